"""Reading and writing parts of arrays. getitem gathers and index_add scatters: they are each other's adjoint."""

from __future__ import annotations

import math
from types import EllipsisType
from typing import Any

import numpy as np

from minigrad.engine import Array, as_array
from minigrad.op import op


@op
def getitem(x: Array, index: Array) -> Array:
    """x[index], as NumPy does it: integers, slices, None, ..., boolean and integer arrays (which may repeat).

    >>> import minigrad as mg
    >>> mg.grad(lambda x: x[np.array([0, 0, 2])].sum())(np.array([1.0, 2.0, 3.0]))
    array([2., 0., 1.])
    """
    return x[index]


def _getitem_rule(g: Array, x_shape: tuple[int, ...], index: Array) -> Array:
    return _scatter.apply(g, index, x_shape)


getitem.rule(x=_getitem_rule)


@op
def _scatter(g: Array, index: Array, shape: tuple[int, ...], skipped: int | None = None) -> Array:
    """Zeros of `shape` with g added at index, but for the row `skipped`."""
    y = np.zeros(shape, np.asarray(g).dtype)
    add_at(y, index, g)
    if skipped is not None:
        y[skipped] = 0
    return y


def _scatter_rule(cotangent: Array, index: Array, skipped: int | None) -> Array:
    g = cotangent[index]
    return g if skipped is None else np.where(np.equal(index, skipped)[..., None], 0, g)


_scatter.rule(g=_scatter_rule)


@op
def index_add(x: Array, index: Array, value: Array) -> Array:
    """A copy of x with `value`, broadcast to x[index], added at index; where an index repeats, all are added.

    >>> index_add([0.0, 0.0], np.array([1, 1]), [2.0, 3.0])
    tensor([0., 5.])
    """
    y = np.array(x, dtype=np.result_type(x, value))
    add_at(y, index, value)
    return y


index_add.rule(x=lambda g: g, value=lambda g, index: g[index])


@op
def index_put(x: Array, index: Array, value: Array) -> Array:
    """A copy of x with `value`, broadcast to x[index], at index; of a repeated index the last value wins.

    The gradient goes to the value that won.

    >>> index_put([1.0, 2.0, 3.0], 1, 9.0)
    tensor([1., 9., 3.])
    """
    y = np.array(x, dtype=np.result_type(x, value))
    y[index] = value
    return y


def _put_rule_x(g: Array, index: Array, x_shape: tuple[int, ...]) -> Array:
    overwritten = np.zeros(x_shape, bool)
    overwritten[index] = True
    return np.where(overwritten, 0, g)


def _put_rule_value(g: Array, index: Array, x_shape: tuple[int, ...], value_shape: tuple[int, ...]) -> Array:
    taken = g[index]
    # Number the written places; what stands in the array afterwards shows which writer of each place was last.
    numbers = np.arange(math.prod(taken.shape)).reshape(taken.shape)
    last = np.full(x_shape, -1)
    last[index] = numbers
    taken = np.where(last[index] == numbers, taken, 0)
    # Assignment lets a value have more axes than its place, of size 1.
    return np.reshape(taken, (1,) * (len(value_shape) - taken.ndim) + taken.shape)


index_put.rule(x=_put_rule_x, value=_put_rule_value)


@op
def take_along_axis(x: Array, indices: Array, axis: int | None = -1) -> Array:
    """Elements of x picked along an axis by integer `indices`, which have x's shape in all other axes (or 1)."""
    return np.take_along_axis(x, indices, axis)


def _take_along_axis_rule(g: Array, x_shape: tuple[int, ...], indices: Array, axis: int | None) -> Array:
    if axis is None:
        return np.reshape(_scatter.apply(g, indices, (math.prod(x_shape),)), x_shape)
    axis %= len(x_shape)
    grid = np.ix_(*map(np.arange, x_shape))
    return _scatter.apply(g, tuple(indices if i == axis else grid[i] for i in range(len(x_shape))), x_shape)


take_along_axis.rule(x=_take_along_axis_rule)


def add_at(y: np.ndarray, index: Array, value: Array) -> None:
    """y[index] += value in place, where repeated indices all count."""
    index = tuple(map(_plain, index)) if isinstance(index, tuple) else _plain(index)
    if isinstance(index, np.ndarray) and index.dtype.kind in "iu" and y.ndim > 1:
        _add_rows(y, index.ravel(), np.broadcast_to(value, index.shape + y.shape[1:]).reshape(index.size, *y.shape[1:]))
    elif _may_repeat(index):
        np.add.at(y, index, value)
    else:
        y[index] += value


def _plain(index: Any) -> Any:
    """A stand-in for an array of numbers is refused here: how often an index repeats decides what is done."""
    return np.asarray(index) if hasattr(index, "__array_function__") else index


_ONCE = (slice, int, EllipsisType, type(None))


def _may_repeat(index: Array) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    arrays = [np.asarray(part) for part in parts if not isinstance(part, _ONCE)]  # NumPy takes any sequence for one
    return any(array.ndim > 0 and array.dtype.kind in "iu" for array in arrays)


_LONG_RUN = 16  # rows that repeat more often are summed one by one, the others all together, repeat by repeat


def _add_rows(y: np.ndarray, rows: np.ndarray, values: np.ndarray) -> None:
    """Add each of `values` to a row of y: sorted by row and summed run by run, several times faster than np.add.at."""
    if not rows.size:
        return
    if rows.min() < -len(y):
        raise IndexError(f"index {rows.min()} is out of bounds for axis 0 with size {len(y)}")
    rows = rows.astype(np.intp, copy=False)  # 256 rows are too many for ids of 8 bits
    rows = np.where(rows < 0, rows + len(y), rows)
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    starts = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]]))
    lengths = np.diff(np.append(starts, len(rows)))
    longest_first = np.argsort(-lengths, kind="stable")
    starts, lengths = starts[longest_first], lengths[longest_first]
    sums = values[order[starts]]
    long = int(np.searchsorted(-lengths, -_LONG_RUN))
    for i in range(long):
        sums[i] = values[order[starts[i] : starts[i] + lengths[i]]].sum(0)
    for repeat in range(1, int(lengths[long]) if long < len(lengths) else 0):
        longer = int(np.searchsorted(-lengths, -repeat))
        sums[long:longer] += values[order[starts[long:longer] + repeat]]
    y[rows[starts]] += sums


@op
def embedding(weight: Array, ids: Array, padding_idx: int | None = None) -> Array:
    """The rows of `weight` (n, dim) that `ids` name: (..., dim). The row padding_idx gets no gradient.

    Raises TypeError for ids that are not integers, IndexError for one out of range (negative ones too).
    """
    ids = as_array(ids)
    if ids.dtype.kind not in "iu":
        raise TypeError(f"ids are integers, and these are of dtype {ids.dtype}")
    if ids.size and (ids.min() < 0 or ids.max() >= len(weight)):
        wrong = ids[(ids < 0) | (ids >= len(weight))].flat[0]
        raise IndexError(f"id {wrong} is out of range for {len(weight)} rows: ids run from 0 to {len(weight) - 1}")
    return np.take(weight, ids, axis=0, mode="clip")  # without looking whether they are in range once more


def _embedding_rule(g: Array, weight_shape: tuple[int, ...], ids: Array, padding_idx: int | None) -> Array:
    return _scatter.apply(g, np.asarray(ids), weight_shape, padding_idx)


embedding.rule(weight=_embedding_rule)
