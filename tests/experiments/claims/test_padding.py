"""The batch, the verdict on the project's models, and planted leaks."""

import numpy as np
import pytest

import minigrad as mg
from experiments.claims import padding
from minigrad import nn


@pytest.fixture
def batch():
    return padding.make_batch(np.random.default_rng(0))


def test_padding_is_replaced_and_nothing_else(batch):
    assert list(batch.valid.sum(1)) == list(padding.LENGTHS)
    other = batch.padded_with(np.nan)
    assert np.isnan(other[~batch.valid]).all()
    np.testing.assert_array_equal(other[batch.valid], batch.frames[batch.valid])


@pytest.mark.parametrize("seed", [0, 5])
def test_the_claim_holds(seed):
    assert all(check.passed for check in padding.measure(seed).checks)


class Mean(nn.Module):
    """The mean of all vectors, times weights; of the real ones alone if careful."""

    def __init__(self, careful):
        self.weight = nn.Parameter(np.ones((padding.FEATURES, padding.LABELS)))
        self.careful = careful

    def forward(self, x, *, valid):
        if self.careful:
            x = mg.where(valid[..., None], x, 0.0)
        return x.mean(1) @ self.weight


@pytest.mark.parametrize("careful", [True, False])
def test_a_leak_is_seen(careful, batch):
    model = Mean(careful)
    found = padding.look(model, padding.loss_single(model), batch, np.random.default_rng(0))
    leaking = np.count_nonzero(found.gradient[~batch.valid])
    if careful:
        assert (leaking, found.other, found.nan) == (0, 0, 0)
    else:
        assert leaking > 0
        assert found.other > 1e-3
        assert np.isnan(found.nan)


def test_changes_are_of_what_is_real(batch):
    gradient = np.zeros_like(batch.frames)
    other = batch.padded_with(1.0) - batch.padded_with(0.0)
    before = padding.Passed(1.0, gradient, [np.zeros(2)])
    assert before.change(padding.Passed(1.0, other, [np.zeros(2)]), batch.valid) == 0
    assert before.change(padding.Passed(1.5, other, [np.zeros(2)]), batch.valid) == 0.5
    assert before.change(padding.Passed(1.0, gradient - 3, [np.zeros(2)]), batch.valid) == 3
    assert before.change(padding.Passed(1.0, gradient, [np.array([0.0, -2.0])]), batch.valid) == 2
