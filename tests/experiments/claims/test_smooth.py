"""Where label smoothing stops, by formula against the loss and its gradient; and a short training."""

import numpy as np
import pytest

import minigrad as mg
from experiments.claims import smooth
from minigrad import nn


@pytest.mark.parametrize(("classes", "smoothing"), [(2, 0.1), (4, 0.1), (10, 0.3)])
def test_at_the_formulas_gap_the_loss_is_flat_and_on_its_floor(classes, smoothing):
    logits = np.zeros((1, classes))
    logits[0, 1] = smooth.gap_at_optimum(classes, smoothing)
    value, gradient = mg.value_and_grad(lambda z: nn.cross_entropy(z, [1], label_smoothing=smoothing))(logits)
    np.testing.assert_allclose(gradient, 0, atol=1e-15)
    assert value == pytest.approx(smooth.entropy_floor(classes, smoothing), abs=1e-14)


def test_mean_gap_is_the_loop():
    rng = np.random.default_rng(0)
    logits, labels = rng.standard_normal((5, 4)), rng.integers(0, 4, 5)
    gaps = [row[label] - np.mean(np.delete(row, label)) for row, label in zip(logits, labels)]
    assert smooth.mean_gap(logits, labels) == pytest.approx(np.mean(gaps))


def test_a_short_training_nears_the_gap_and_hard_labels_pass_it():
    mg.seed(4)
    x, labels = smooth.points(np.random.default_rng(4))
    smoothed, hard = (smooth.train(x, labels, smoothing, 200) for smoothing in (smooth.SMOOTHING, 0.0))
    assert smoothed.gap[-1] == pytest.approx(smooth.gap_at_optimum(4, 0.1), rel=0.05)
    assert 0 <= smoothed.loss[-1] - smooth.entropy_floor(4, 0.1) < 0.01
    assert hard.gap[-1] > 6
    assert len(hard.gap) == len(hard.loss) == 200
