"""Permuted vectors: equal but for rounding, unless the model knows places; a plain layer that does is found out."""

import numpy as np
import pytest

import minigrad as mg
from experiments.claims import permute
from minigrad import nn


@pytest.mark.parametrize("name", permute.MODELS)
def test_errors(name):
    mg.seed(2)
    errors = permute.errors(permute.MODELS[name](), np.random.default_rng(2), permutations=5)
    for found in (errors.forward, errors.backward, errors.weights):
        assert found.shape == (5,)
        assert (found > 1e-3).all() if "with positions" in name else (found <= 1e-12).all()


class Running(nn.Module):
    """The sum of all vectors so far, times a weight: not equivariant."""

    def __init__(self):
        self.weight = nn.Parameter(np.array(2.0))

    def forward(self, x):
        return mg.cumsum(x, axis=1) * self.weight


def test_a_model_that_knows_places_is_found_out():
    x, cotangent = np.random.default_rng(3).standard_normal((2, permute.N, permute.DIM))
    output, gradient, [weight] = permute.passes(Running(), x, cotangent)
    np.testing.assert_allclose(output, 2 * np.cumsum(x, 0))
    np.testing.assert_allclose(gradient, 2 * np.cumsum(cotangent[::-1], 0)[::-1])
    np.testing.assert_allclose(weight, (np.cumsum(x, 0) * cotangent).sum())
    errors = permute.errors(Running(), np.random.default_rng(3), permutations=20)
    assert min(errors.forward.max(), errors.backward.max(), errors.weights.max()) > 0.1
