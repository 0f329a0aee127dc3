"""Variances and norms against closed forms and against a simulation without any layer."""

import numpy as np
import pytest

from experiments.claims import scale


@pytest.mark.parametrize("d", [4, 64])
def test_variance_is_d(d):
    assert scale.variance(d, np.random.default_rng(0), pairs=10000) == pytest.approx(d, rel=0.06)


def test_jacobian_norms_are_those_of_the_whole_jacobians():
    scores = np.random.default_rng(1).standard_normal((2, 3, 5))
    norms = scale.jacobian_norms(scores)
    assert norms.shape == (2, 3)
    for index in np.ndindex(2, 3):
        p = np.exp(scores[index]) / np.exp(scores[index]).sum()
        assert norms[index] == pytest.approx(np.linalg.norm(np.diag(p) - np.outer(p, p)))


def simulated(deviation, keys=scale.KEYS):
    """The median norm of softmax's Jacobian where scores are independent normal numbers."""
    e = np.exp(deviation * np.random.default_rng(2).standard_normal((4000, keys)))
    p = e / e.sum(-1, keepdims=True)
    squares = (p**2).sum(-1) - 2 * (p**3).sum(-1) + (p**2).sum(-1) ** 2
    return np.median(np.sqrt(np.maximum(squares, 0)))


@pytest.mark.parametrize(("score", "deviation", "within"), [("scaled_dot", 1.0, 0.05), ("dot", 8.0, 0.5)])
def test_a_layers_scores_are_as_wide_as_said(score, deviation, within):
    sizes = scale.sizes(64, score, np.random.default_rng(3))
    assert sizes.jacobian == pytest.approx(simulated(deviation), rel=within)
    assert sizes.gradient < sizes.jacobian * 1.5
    assert sizes.weight > 0


def test_raw_scores_lose_their_gradient_by_width_256_and_others_do_not():
    rng = np.random.default_rng(4)
    found = {score: scale.sizes(256, score, rng) for score in scale.SCORES}
    assert found["dot"].gradient < 5e-3
    assert found["dot"].share_of_few > 0.8
    assert min(found["scaled_dot"].gradient, found["additive"].gradient) > 0.2


def test_lines_that_lie_on_one_another_are_both_seen():
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    same = [scale.Sizes(0.5, np.full(10, 0.3), 1.0)] * len(scale.WIDTHS)
    figure = scale._figure(list(scale.WIDTHS), dict.fromkeys(scale.SCORES, same), same)
    canvas = FigureCanvasAgg(figure)

    def drawn():
        canvas.draw()
        return np.asarray(canvas.buffer_rgba()).astype(int)

    for ax in figure.axes[1:]:
        ax.get_legend().set_visible(False)
    whole = drawn()
    for ax in figure.axes[1:]:
        for line in ax.get_lines()[1:3]:  # scaled and additive, which are the same here
            line.set_visible(False)
            assert np.count_nonzero(np.abs(drawn() - whole).max(-1) > 50) > 100, line.get_label()
            line.set_visible(True)


def test_share_and_farthest():
    sizes = scale.Sizes(0.5, np.sqrt([1.0] * 9 + [91.0]), 1.0)
    assert sizes.share_of_few == pytest.approx(0.91)
    norms = [9.0, 9.0, 0.5, 0.6, 0.45, *[0.5] * 4]  # narrower widths than 16 do not count
    assert scale.farthest([scale.Sizes(n, np.ones(10), 1.0) for n in norms]) == pytest.approx(0.2)
