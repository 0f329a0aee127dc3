"""The window's size, tasks, blindness and cost, against loops and formulas."""

import numpy as np
import pytest

import minigrad as mg
from experiments.claims import window
from models import FCStack, SelfAttention, WindowFC


@pytest.mark.parametrize("neighbours", [0, 1, 5])
def test_parameters_are_counted(neighbours):
    model = WindowFC(window.D, neighbours, (window.H, window.K))
    shapes = [p.shape for p in model.parameters()]
    width = 2 * neighbours + 1
    assert shapes == [(width * 8, 32), (32,), (32, 4), (4,)]
    assert window.parameters(neighbours) == sum(int(np.prod(shape)) for shape in shapes)


def test_local_labels_are_the_loop():
    task = window.LocalTask(np.random.default_rng(0))
    x, labels = task.draw(3)
    for row, row_labels in zip(x, labels):
        for t, label in enumerate(row_labels):
            near = [(row[t + i], task.weights[i + 1]) for i in (-1, 0, 1) if 0 <= t + i < len(row)]
            assert label == np.argmax(sum(vector @ weights for vector, weights in near))


def test_marked_sequences():
    x, labels, distance = window.marked(50, np.random.default_rng(1))
    assert (x[..., :-1].sum(-1) == 1).all()
    assert (x[..., -1].sum(-1) == 1).all()
    for row, row_labels, row_distance in zip(x, labels, distance):
        [at] = np.flatnonzero(row[:, -1])
        assert (row_labels == row[at, :-1].argmax()).all()
        assert list(row_distance) == [abs(t - at) for t in range(window.LENGTH)]


def test_past_its_edge_a_window_sees_nothing():
    accuracies = window.accuracy_by_distance(
        WindowFC(window.DIM, window.SEEN, (window.H, window.DIM), dtype=np.float64), np.random.default_rng(2), steps=120
    )
    assert accuracies[: window.SEEN + 1].min() > 0.9
    assert np.abs(accuracies[window.SEEN + 1 :] - 0.25).max() < 0.08


def test_multiply_adds_are_the_formulas():
    for n in (1, 7, 20):
        assert window.multiply_adds(WindowFC(8, 3, (32, 4)), n) == n * (7 * 8 * 32 + 32 * 4)
        assert window.multiply_adds(SelfAttention(8), n) == n * 3 * 8 * 8 + n * n * (8 + 8)
        assert window.multiply_adds(FCStack((8, 5)), n) == n * 8 * 5


def test_quadratic_part():
    assert window.quadratic_part({n: 5 * n + 3 * n**2 for n in (2, 4, 8)}) == 3
    assert window.quadratic_part({n: 5 * n for n in (2, 4, 8)}) == 0


def test_a_wider_window_over_fits():
    mg.seed(0)
    task = window.LocalTask(np.random.default_rng(3))
    train, test = task.draw(20), task.draw(100)
    narrow, wide = (window.fitted(neighbours, train, test, steps=150) for neighbours in (1, 7))
    assert wide.gap > narrow.gap + 0.1
    assert wide.loss > narrow.loss
    row = [window.Fitted(1, 0.0, loss) for loss in (9.0, 1.0, 1.5, 1.25)]
    assert window.loss_above(row) == 0.25
