"""Initial values: distribution, dtype, where the numbers come from."""

import math

import numpy as np
import pytest

import minigrad as mg
from minigrad.nn import init

DRAWN = {
    "normal": lambda shape, *rest: init.normal(shape, 0.5, *rest),
    "glorot_uniform": init.glorot_uniform,
    "he_uniform": init.he_uniform,
}


def kolmogorov_smirnov(values, cdf):
    """The largest distance between the empirical distribution and cdf, times sqrt(n): above 1.95 once in a thousand."""
    ordered = np.sort(values.ravel().astype(float))
    n = len(ordered)
    expected = np.array([cdf(v) for v in ordered])
    return max(np.max(np.arange(1, n + 1) / n - expected), np.max(expected - np.arange(n) / n)) * math.sqrt(n)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_zeros_and_ones(dtype):
    for make, value in [(init.zeros, 0), (init.ones, 1)]:
        array = make((2, 3), dtype)
        assert array.dtype == dtype
        np.testing.assert_array_equal(array, np.full((2, 3), value))
    assert init.zeros(()).shape == ()
    assert init.ones((0, 2)).dtype == np.float32


@pytest.mark.parametrize("shape", [(60, 20), (20, 60)])
def test_glorot_uniform(shape):
    w = init.glorot_uniform(shape, np.random.default_rng(0), np.float64)
    limit = math.sqrt(6 / 80)
    assert np.abs(w).max() <= limit
    assert kolmogorov_smirnov(w, lambda v: (v + limit) / (2 * limit)) < 1.95


@pytest.mark.parametrize("shape", [(60, 20), (20, 60)])
def test_he_uniform(shape):
    w = init.he_uniform(shape, np.random.default_rng(0), np.float64)
    limit = math.sqrt(6 / shape[0])
    assert np.abs(w).max() <= limit
    assert kolmogorov_smirnov(w, lambda v: (v + limit) / (2 * limit)) < 1.95


@pytest.mark.parametrize("deviation", [0.02, 3.0])
def test_normal(deviation):
    w = init.normal((40, 30), deviation, np.random.default_rng(0), np.float64)
    assert kolmogorov_smirnov(w, lambda v: (1 + math.erf(v / deviation / math.sqrt(2))) / 2) < 1.95


def test_ten_layers_keep_the_size_of_what_goes_through_them():
    rng = np.random.default_rng(0)
    h = g = rng.standard_normal((100, 200))
    for _ in range(10):
        h = np.maximum(h @ init.he_uniform((200, 200), rng), 0)
        g = g @ init.glorot_uniform((200, 200), rng)
    assert 0.5 < (h**2).mean() < 2
    assert 0.5 < g.var() < 2


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_drawn_from_the_generator_given_or_else_from_the_seeded_one(name, dtype):
    make = DRAWN[name]
    one = make((4, 5), np.random.default_rng(3), dtype)
    assert one.shape == (4, 5)
    assert one.dtype == dtype
    np.testing.assert_array_equal(make((4, 5), np.random.default_rng(3), dtype), one)
    assert (make((4, 5), np.random.default_rng(4), dtype) != one).any()
    mg.seed(3)
    np.testing.assert_array_equal(make((4, 5), None, dtype), one)
    assert (make((4, 5), None, dtype) != one).any()


@pytest.mark.parametrize("name", DRAWN)
def test_float32_is_the_default_and_the_rounded_float64(name):
    make = DRAWN[name]
    single = make((4, 5), np.random.default_rng(3))
    assert single.dtype == np.float32
    np.testing.assert_array_equal(single, make((4, 5), np.random.default_rng(3), np.float64).astype(np.float32))
