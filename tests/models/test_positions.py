"""Sinusoidal, learned and relative positions: values, lengths, and numbers counted from the mask."""

import math

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.check.gradcheck import gradcheck, gradgradcheck
from models import Learned, Relative, Sinusoidal
from models.positions import numbers, sinusoids


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("dim", [1, 4, 7])
def test_sinusoids_equal_the_formula(dim):
    places = np.array([[0, 1, 5], [100, 3, 2]])
    vectors = sinusoids(places, dim)
    assert vectors.shape == (2, 3, dim)
    for b, i, d in np.ndindex(vectors.shape):
        angle = places[b, i] / 10000 ** (d // 2 * 2 / dim)
        assert vectors[b, i, d] == pytest.approx(math.cos(angle) if d % 2 else math.sin(angle), abs=1e-14)


def test_numbers_are_counted_over_the_real_vectors_b114():
    left, right = np.array([[False, False, True, True, True, True]]), np.array([[True] * 4 + [False] * 3])
    offset = 2  # case B114 numbers the first symbol 2, and we 0
    np.testing.assert_array_equal(numbers(6, left)[left] + offset, [2, 3, 4, 5])
    np.testing.assert_array_equal(numbers(7, right)[right] + offset, [2, 3, 4, 5])
    np.testing.assert_array_equal(numbers(4, None, 3), [3, 4, 5, 6])
    np.testing.assert_array_equal(numbers(3, np.array([[True, False, True]]), 2)[0, [0, 2]], [2, 3])
    assert numbers(3, np.zeros((1, 3), bool)).min() >= 0


@pytest.mark.parametrize(
    "make", [lambda: Sinusoidal(4, 0.5), lambda: Learned(5, 4, dtype=np.float64)], ids=["sin", "learned"]
)
def test_added_vectors_depend_on_the_place_among_real_vectors_alone_b114(make):
    positions, x = make(), random(1, 4, 4)
    alone = positions(mg.tensor(x)).data - x
    for left, right in [(0, 3), (2, 0), (3, 4)]:
        valid = np.array([[False] * left + [True] * 4 + [False] * right])
        wide = np.zeros((1, left + 4 + right, 4))
        wide[:, left : left + 4] = x
        added = positions(mg.tensor(wide), valid).data - wide
        np.testing.assert_allclose(added[:, left : left + 4], alone, rtol=0, atol=1e-15)
    assert np.abs(np.diff(alone[0], axis=0)).max(-1).min() > 1e-3
    for start in range(4):
        step = positions(mg.tensor(x[:, start : start + 1]), None, start).data - x[:, start : start + 1]
        np.testing.assert_allclose(step[0, 0], alone[0, start], rtol=0, atol=1e-15)


def test_sinusoidal_adds_scaled_sinusoids():
    x = random(2, 3, 4)
    added = Sinusoidal(4, 0.5)(mg.tensor(x)).data - x
    np.testing.assert_allclose(added, np.broadcast_to(0.5 * sinusoids(np.arange(3), 4), x.shape), rtol=0, atol=1e-15)
    assert Sinusoidal(4)(mg.tensor(x, dtype=np.float32)).dtype == np.float32


def test_learned_adds_rows_of_its_table_and_knows_its_length():
    learned, x = Learned(3, 4, dtype=np.float64), random(2, 3, 4)
    np.testing.assert_array_equal(learned(mg.tensor(x)).data, x + learned.table.weight.data)
    with pytest.raises(ValueError, match="reach 3 vectors, and the sequence has 4"):
        learned(mg.tensor(random(2, 4, 4)))
    with pytest.raises(ValueError, match="reach 3 vectors, and the sequence has 4"):
        learned(mg.tensor(random(2, 1, 4)), None, 3)
    assert learned(mg.tensor(random(2, 1, 4)), None, 2).shape == (2, 1, 4)


def test_padding_does_not_use_up_a_learned_length():
    learned, x = Learned(3, 4, dtype=np.float64), random(1, 3, 4)
    wide = np.concatenate([np.zeros((1, 3, 4)), x], axis=1)
    y = learned(mg.tensor(wide), np.array([[False] * 3 + [True] * 3]))
    np.testing.assert_array_equal(y.data[:, 3:], learned(mg.tensor(x)).data)


@pytest.mark.parametrize(("n", "m"), [(4, 4), (1, 5), (2, 5), (7, 7), (0, 0)])
def test_relative_bias_is_looked_up_by_clipped_distance(n, m):
    relative = Relative(3, clip=2, dtype=np.float64)
    relative.load_state_dict({"table": random(3, 5)})
    bias = relative(n, m).data
    assert bias.shape == (3, n, m)
    for h, i, j in np.ndindex(bias.shape):
        distance = j - (i + m - n)  # a short query stands at the end
        assert bias[h, i, j] == relative.table.data[h, min(max(distance, -2), 2) + 2]


def test_relative_heads_start_at_their_neighbours():
    table = Relative(8, clip=3, strength=5.0).table.data
    assert table.dtype == np.float32
    assert [(h, d - 3) for h, d in zip(*np.nonzero(table))] == [(0, -1), (1, 1), (2, -2), (3, 2), (4, 0), (5, -3)]
    assert set(table[table != 0]) == {5.0}
    assert np.count_nonzero(Relative(1).table.data) == 1
    assert np.count_nonzero(Relative(16).table.data) == 6
    assert np.count_nonzero(Relative(4, clip=0).table.data) == 0


def test_gradients_of_both_orders():
    relative, learned = Relative(2, clip=1, dtype=np.float64), Learned(3, 2, dtype=np.float64)
    valid = np.array([[True, True, True], [False, True, True]])

    def bias(p):
        return mg.sin(nn.functional_call(relative, p, 2, 3))

    def added(x, p):
        return mg.sin(nn.functional_call(learned, p, x, valid))

    for check in (gradcheck, gradgradcheck):
        assert check(bias, (relative.state_dict(),))
        assert check(added, (random(2, 3, 2), learned.state_dict()))
        assert check(lambda x: mg.sin(Sinusoidal(2)(x, valid)), (random(2, 3, 2),))
