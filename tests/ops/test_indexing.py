"""Repeats, overlaps and errors in indexing. Values and gradients over all kinds of index: test_laws.py."""

import numpy as np
import pytest

import minigrad as mg


def leaf(x):
    return mg.tensor(x, requires_grad=True)


def test_repeated_indices_add_up():
    x = leaf([1.0, 2.0, 3.0])
    x[np.array([0, 0, -3, 2])].backward(np.array([1.0, 10.0, 100.0, 1000.0]))
    np.testing.assert_array_equal(x.grad, [111, 0, 1000])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64])
@pytest.mark.parametrize("shape", [(7,), (2, 3), (0,), ()])
def test_rows_gathered_by_any_integer_dtype(dtype, shape):
    ids = np.random.default_rng(0).integers(0, 4, shape).astype(dtype)
    x = leaf(np.random.default_rng(1).standard_normal((4, 2)))
    c = np.random.default_rng(2).standard_normal((*shape, 2))
    x[ids].backward(c)
    expected = np.zeros((4, 2))
    for at in np.ndindex(shape):
        expected[int(ids[at])] += c[at]
    np.testing.assert_allclose(x.grad, expected)


def test_many_repeats_are_exact_enough_in_float32():
    ids = np.random.default_rng(0).integers(0, 3, 30_000)
    x = mg.tensor(np.zeros((3, 1)), dtype=np.float32, requires_grad=True)
    x[ids].backward(np.full((30_000, 1), 0.1, np.float32))
    np.testing.assert_allclose(x.grad[:, 0], np.bincount(ids) * np.float32(0.1), rtol=1e-5)


def test_indices_may_be_tensors_lists_and_booleans():
    x = leaf(np.arange(6.0).reshape(2, 3))
    for index, expected in [
        (mg.tensor([1, 0]), [[3, 4, 5], [0, 1, 2]]),
        ((mg.tensor(1), slice(None)), [3, 4, 5]),
        ([1], [[3, 4, 5]]),
        ([True, False], [[0, 1, 2]]),
        (([0, 1], [2, 2]), [2, 5]),
        (x > 3.5, [4, 5]),
        (np.bool_(True), [[[0, 1, 2], [3, 4, 5]]]),
        (None, [[[0, 1, 2], [3, 4, 5]]]),
    ]:
        np.testing.assert_array_equal(x[index].data, expected)
        x.grad = None
        x[index].sum().backward()
        hits = np.zeros((2, 3))
        plain = (
            index.data
            if isinstance(index, mg.Tensor)
            else tuple(i.item() if isinstance(i, mg.Tensor) else i for i in index)
            if isinstance(index, tuple)
            else index
        )
        np.add.at(hits, plain, 1)
        np.testing.assert_array_equal(x.grad, hits)


@pytest.mark.parametrize(
    "index", [5, -4, (0, 7), np.array([0, 3]), np.array([-4]), "a", 1.0, (0, 0, 0), np.array([True, False])]
)
def test_indices_out_of_range_or_of_no_kind(index):
    with pytest.raises(IndexError):
        leaf(np.ones((3, 2)))[index]
    with pytest.raises(IndexError):
        mg.index_add(np.ones((3, 2)), index, 1.0)
    with pytest.raises(IndexError):
        mg.index_put(np.ones((3, 2)), index, 1.0)


# --- index_put and index_add -------------------------------------------------------------------------------------


def test_the_last_duplicate_wins_and_gets_the_gradient():
    x, v = leaf([1.0, 2.0, 3.0]), leaf([10.0, 20.0, 30.0, 40.0])
    y = mg.index_put(x, np.array([1, 2, 1, -2]), v)
    assert y.tolist() == [1, 40, 20]
    assert x.tolist() == [1, 2, 3]
    y.backward(np.array([5.0, 6.0, 7.0]))
    np.testing.assert_array_equal(x.grad, [5, 0, 0])
    np.testing.assert_array_equal(v.grad, [0, 7, 0, 6])


def test_a_broadcast_value_gets_the_sum_of_what_it_reached():
    v = leaf(2.0)
    mg.index_put(np.zeros((3, 2)), np.array([0, 0, 2]), v).backward(np.arange(6.0).reshape(3, 2))
    np.testing.assert_array_equal(v.grad, 0 + 1 + 4 + 5)
    v = leaf([1.0, 2.0])
    mg.index_add(np.zeros((3, 2)), np.array([0, 0, 2]), v).backward(np.arange(6.0).reshape(3, 2))
    np.testing.assert_array_equal(v.grad, [0 + 0 + 4, 1 + 1 + 5])
    v = leaf([[1.0, 2.0]])  # more axes than its place
    mg.index_put(np.zeros((3, 2)), 1, v).backward(np.arange(6.0).reshape(3, 2))
    np.testing.assert_array_equal(v.grad, [[2, 3]])


def test_adding_and_gathering_are_adjoint():
    rng = np.random.default_rng(0)
    ids, a, v = rng.integers(-4, 4, (3, 2)), rng.standard_normal((4, 5)), rng.standard_normal((3, 2, 5))
    scattered = mg.index_add(np.zeros((4, 5)), ids, v)
    np.testing.assert_allclose((scattered.data * a).sum(), (v * a[ids]).sum())


@pytest.mark.parametrize(
    ("x", "value", "dtype"),
    [
        (np.zeros(2, np.float32), 1.5, np.float32),
        (np.zeros(2, np.float32), np.ones(1), np.float64),
        (np.zeros(2, int), 1.5, np.float64),
        ([0, 0], 1, np.int64),
    ],
)
def test_a_written_copy_has_numpys_dtype(x, value, dtype):
    for op in (mg.index_put, mg.index_add):
        y = op(x, np.array([1]), value)
        assert y.dtype == dtype
        assert y.tolist() == [0, np.max(value)]


def test_values_that_do_not_fit():
    for op in (mg.index_put, mg.index_add):
        with pytest.raises(ValueError, match=r"shape|broadcast"):
            op(np.zeros((3, 2)), np.array([0, 1]), np.ones(3))


# --- take_along_axis and embedding -------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1, -2, None])
def test_sorting_by_taking(axis):
    x = leaf(np.random.default_rng(0).standard_normal((3, 4)))
    order = np.argsort(x, axis=axis)
    y = mg.take_along_axis(x, order, axis)
    np.testing.assert_array_equal(y.data, np.sort(x.data, axis=axis))
    c = np.random.default_rng(1).standard_normal(y.shape)
    y.backward(c)
    expected = np.zeros(x.size if axis is None else x.shape)
    np.put_along_axis(expected, order, c, axis)
    np.testing.assert_array_equal(x.grad, expected.reshape(3, 4))


def test_taking_out_of_range():
    with pytest.raises(IndexError):
        mg.take_along_axis(leaf(np.ones((2, 3))), np.array([[3]]), 1)


def test_the_padding_row_of_an_embedding_gets_no_gradient():
    w = leaf(np.ones((4, 2)))
    mg.embedding(w, [[0, 2, 2], [1, 0, 3]], 2).sum().backward()
    np.testing.assert_array_equal(w.grad, [[2, 2], [1, 1], [0, 0], [1, 1]])


def test_embedding_ids_are_checked():
    w = leaf(np.ones((4, 2)))
    for ids, value in [([0, 4], "4"), ([-1], "-1")]:
        with pytest.raises(IndexError, match=rf"id {value} .* 4 rows"):
            mg.embedding(w, ids)
    with pytest.raises(TypeError, match=r"integers.*float64"):
        mg.embedding(w, [0.0])
    assert mg.embedding(w, np.zeros((0, 3), int)).shape == (0, 3, 2)
