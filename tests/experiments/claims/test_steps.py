"""Numeric derivatives against one by hand, and the measured slopes."""

import numpy as np
import pytest

from experiments.claims import steps


def example(x):
    """e^x / (sin^3 x + cos^3 x), of one element; no step is too short for the digits of its difference to vanish."""
    return np.sum(np.exp(x) / (np.sin(x) ** 3 + np.cos(x) ** 3))


X, ONE = np.array([1.5]), np.array([1.0])
SIN, COS = np.sin(1.5), np.cos(1.5)
DERIVATIVE = np.exp(1.5) * (1 - 3 * SIN * COS * (SIN - COS) / (SIN**3 + COS**3)) / (SIN**3 + COS**3)


def test_an_example_by_hand():
    assert steps.complex_step(example, X, ONE, 1e-200) == pytest.approx(DERIVATIVE, rel=1e-14)
    assert steps.central(example, X, ONE, 1e-5) == pytest.approx(DERIVATIVE, rel=1e-9)
    assert steps.central(example, X, ONE, 1e-2) != pytest.approx(DERIVATIVE, rel=1e-4)
    both = [method(example, X, ONE, 1e-3) for method in (steps.complex_step, steps.central)]
    assert np.mean(both) == pytest.approx(DERIVATIVE, rel=1e-9)  # their errors of order h^2 are opposite: h^4 is left
    for method in (steps.complex_step, steps.central):
        [error] = steps.errors(method, example, X, ONE[None], 1e-3)
        assert error == pytest.approx(abs(method(example, X, ONE, 1e-3) / DERIVATIVE - 1), rel=1e-6)


def test_slope_is_the_exponent():
    h = np.logspace(-3, 0, 7)
    assert steps.slope(h, 5 * h**-1.5) == pytest.approx(-1.5)


@pytest.mark.parametrize("seed", [0, 6])
def test_the_claim_holds(seed):
    assert all(check.passed for check in steps.measure(seed).checks)


def test_the_head_is_attention_by_hand():
    loss, weights = steps.head(np.random.default_rng(0))
    x, cotangent = np.random.default_rng(0).standard_normal((2, steps.N, steps.DIM))
    q, k, v = (x @ w for w in weights)
    total = 0.0
    for i in range(steps.N):
        relevance = np.exp([q[i] @ k[j] / 2 for j in range(steps.N)])  # sqrt(4) is 2
        b = sum(r * v[j] for j, r in enumerate(relevance)) / relevance.sum()
        total += np.tanh(b) @ cotangent[i]
    assert loss(weights) == pytest.approx(total)
