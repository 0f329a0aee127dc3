"""Integers of few bits or without a sign, as arguments: nothing wraps around, in values or gradients."""

from collections import deque

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn


def gradient(f, x):
    return mg.grad(lambda x: f(x).sum())(x)


@pytest.mark.parametrize("index", [(0, 0), [0, 0], deque([0, 0]), np.array([0, 0], np.int8)])
def test_a_sequence_within_an_index_may_repeat(index):
    x = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(gradient(lambda x: x[index, :], x), [[2, 2], [0, 0], [0, 0]])
    np.testing.assert_array_equal(gradient(lambda x: x[0:1, index], x), [[2, 0], [0, 0], [0, 0]])
    np.testing.assert_array_equal(mg.index_add(np.zeros(3), (index,), 1.0).data, [2, 0, 0])
    np.testing.assert_array_equal(
        mg.hvp(lambda x: (x[index, :] ** 3).sum())(x, np.ones((3, 2))), 12 * x * [[1], [0], [0]]
    )


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.uint64])
def test_more_rows_than_the_dtype_of_ids_can_count(dtype):
    ids = np.array([1, 1, 100], dtype)
    expected = np.zeros((300, 2))
    np.add.at(expected, ids.astype(int), 1.0)
    table = nn.Embedding(300, 2, dtype=float)
    table(ids).sum().backward()
    np.testing.assert_array_equal(table.weight.grad, expected)
    np.testing.assert_array_equal(gradient(lambda x: x[ids], np.ones((300, 2))), expected)
    np.testing.assert_array_equal(mg.index_add(np.zeros((300, 2)), ids, 1.0).data, expected)
    for mode in ("wrap", "clip"):
        np.testing.assert_array_equal(
            gradient(lambda x, m=mode: np.take(x, ids, 0, mode=m), np.ones((300, 2))), expected
        )
    if np.dtype(dtype).kind == "i":
        np.testing.assert_array_equal(gradient(lambda x: x[-ids], np.ones((300, 2))), np.roll(expected[::-1], 1, 0))


@pytest.mark.parametrize("shift", [np.uint8(1), np.uint64(1), np.int8(-128), np.array([1, 2], np.uint8)])
def test_roll(shift):
    x, axis = np.random.default_rng(0).normal(size=(3, 4)), (0, 1) if np.ndim(shift) else 1
    expected = mg.grad(
        lambda x: (np.roll(x, np.asarray(shift).astype(int), axis) * np.arange(12.0).reshape(3, 4)).sum()
    )(x)
    found = mg.grad(lambda x: (np.roll(x, shift, axis) * np.arange(12.0).reshape(3, 4)).sum())(x)
    np.testing.assert_array_equal(found, expected)
    assert mg.gradcheck(lambda x: np.roll(x, shift, axis) ** 2, x)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.uint64, np.int8, bool])
def test_powers(dtype, kind):
    exponents = np.arange(2 if dtype is bool else 4).astype(dtype)
    x = np.array([[2.0], [-1.5], [0.0]], kind)
    expected = gradient(lambda x: x ** exponents.astype(kind), x)
    found = gradient(lambda x: x**exponents, x)
    np.testing.assert_allclose(found, expected, 1e-6)
    assert found.dtype == kind
    bases = np.array([1, 3, 100]).astype(dtype)
    np.testing.assert_allclose(
        gradient(lambda x: bases**x, np.full(3, 2, kind)),
        gradient(lambda x: bases.astype(kind) ** x, np.full(3, 2, kind)),
        1e-6,
    )


def test_the_lowest_exponent():
    np.testing.assert_allclose(gradient(lambda x: x ** np.array([-128], np.int8), np.array([2.0])), [-(2.0**-122)])


def test_coordinates():
    xp, x = np.array([-100, 100], np.int8), np.array([50.0, -75.0])
    np.testing.assert_array_equal(mg.interp(x, xp, [0.0, 1.0]).data, np.interp(x, xp, [0.0, 1.0]))
    np.testing.assert_allclose(gradient(lambda x: mg.interp(x, xp, [0.0, 1.0]), x), [1 / 200, 1 / 200])
    y, spacing = np.array([2.5, 3.5, 4.0]), np.array([200, 3, 1], np.uint8)
    np.testing.assert_allclose(mg.gradient(y, spacing).data, np.gradient(y, spacing), 1e-14)
    start, stop = np.uint8(200), np.uint8(10)
    np.testing.assert_array_equal(mg.linspace(start, stop, 3).data, np.linspace(start, stop, 3))


def test_more_elements_than_halves_can_count():
    x, where = np.ones(70_000, np.float16), np.ones(70_000, bool)
    np.testing.assert_allclose(mg.grad(lambda x: np.mean(x, where=where))(x), 1 / 70_000, rtol=0.01)
    np.testing.assert_allclose(mg.grad(np.max)(x), 1 / 70_000, rtol=0.01)
    assert mg.grad(np.max)(x).dtype == np.float16
