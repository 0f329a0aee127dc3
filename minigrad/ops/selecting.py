"""Functions that pick, order, repeat and pad: each computes positions in plain integers and gathers from there."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from minigrad.engine import Array
from minigrad.op import derived
from minigrad.ops.elementwise import astype, copy, where
from minigrad.ops.indexing import _scatter, getitem, index_put, take_along_axis
from minigrad.ops.reductions import sum
from minigrad.ops.shapes import broadcast_to, expand_dims, moveaxis, ravel, reshape, squeeze, stack
from minigrad.tensor import Tensor, constant

# --- in order ----------------------------------------------------------------------------------------------------


@derived
def sort(x: Array, axis: int | None = -1, kind: Any = None, *, stable: bool | None = None) -> Tensor:
    """A sorted copy, along an axis (None: flattened); equal elements keep their order unless `kind` says otherwise.

    >>> import minigrad as mg
    >>> mg.grad(lambda x: sort(x)[0])(np.array([3.0, 1.0, 2.0]))
    array([0., 1., 0.])
    """
    order = np.argsort(x, axis, kind, stable=True if kind is None and stable is None else stable)
    return take_along_axis(x, order, axis)


@derived
def partition(x: Array, kth: Array, axis: int | None = -1, kind: Any = "introselect") -> Tensor:
    """A copy with the elements `kth` where they stand in sorted order, smaller ones before and larger ones after.

    The others are in the order of numpy.argpartition, which is where their gradients go.
    """
    return take_along_axis(x, np.argpartition(x, kth, axis, kind), axis)


# --- picked ------------------------------------------------------------------------------------------------------


@derived
def take(x: Array, indices: Array, axis: int | None = None, mode: str = "raise") -> Tensor:
    """The elements of an axis (None: of the flattened array) at integer indices.

    mode: what is done with an index out of range: "raise" an IndexError, "wrap" it round, or "clip" it to the ends.
    """
    x, axis = _flat_unless(x, axis)
    return getitem(x, (slice(None),) * axis + (_in_range(np.asarray(indices), np.shape(x)[axis], mode),))


def _flat_unless(x: Array, axis: int | None) -> tuple[Array, int]:
    return (ravel(x), 0) if axis is None else (x, normalize_axis_index(axis, np.ndim(x)))


def _in_range(indices: Array, n: int, mode: str) -> Array:
    if mode in ("wrap", "clip"):  # n may be too large for the indices' dtype
        indices = indices.astype(np.intp, casting="same_kind")
        return np.remainder(indices, n) if mode == "wrap" else np.clip(indices, 0, n - 1)
    if mode != "raise":
        raise ValueError(f"mode is 'raise', 'wrap' or 'clip', not {mode!r}")
    return indices


@derived
def compress(condition: Array, x: Array, axis: int | None = None) -> Tensor:
    """The slices of an axis (None: the elements of the flattened array) for which a 1-D condition holds."""
    return take(x, np.flatnonzero(condition), axis)


@derived
def extract(condition: Array, x: Array) -> Tensor:
    """The elements for which the condition, of x's size, holds, along one axis."""
    return take(x, np.flatnonzero(condition))


@derived
def select(condlist: Any, choicelist: Any, default: Array = 0) -> Tensor:
    """Each element from the first of the choices whose condition holds there, else `default`; all are broadcast."""
    if len(condlist) != len(choicelist) or not len(condlist):
        raise ValueError(f"select needs as many conditions as choices: {len(condlist)} and {len(choicelist)} are given")
    y: Any = default
    for condition, choice in zip(condlist[::-1], choicelist[::-1]):
        y = where(condition, choice, y)
    return cast(Tensor, y)


@derived
def choose(a: Array, choices: Any, mode: str = "raise") -> Tensor:
    """Each element from the choice whose number stands in the integer array `a`; all are broadcast. mode: see take."""
    a, choices = np.asarray(a), list(choices)
    shape = np.broadcast_shapes(a.shape, *map(np.shape, choices))
    stacked = stack([broadcast_to(c, shape) for c in choices])
    if mode == "raise" and ((a < 0) | (a >= len(choices))).any():
        raise ValueError(f"choose: {a.min()} to {a.max()} are not all numbers of {len(choices)} choices")
    index = np.broadcast_to(_in_range(a, len(choices), mode), shape)
    return squeeze(take_along_axis(stacked, index[None], 0), 0)


# --- diagonals ---------------------------------------------------------------------------------------------------


def _diagonal_places(m: int, n: int, offset: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows and columns of a diagonal of an (m, n) matrix."""
    row, column = max(-offset, 0), max(offset, 0)
    along = np.arange(max(min(m - row, n - column), 0))
    return row + along, column + along


@derived
def diagonal(x: Array, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The diagonal of the matrices of two axes, as the last axis of the result; a copy."""
    x = moveaxis(x, (axis1, axis2), (-2, -1))
    m, n = x.shape[-2:]
    return getitem(x, (..., *_diagonal_places(m, n, offset)))


@derived
def diag(x: Array, k: int = 0) -> Tensor:
    """The matrix with x on its diagonal k, for a 1-D x; the diagonal k of a 2-D one."""
    if np.ndim(x) == 2:
        return diagonal(x, k)
    if np.ndim(x) != 1:
        raise ValueError(f"diag needs one or two axes, not shape {np.shape(x)}")
    n = len(x) + abs(k)
    return _scatter(x, _diagonal_places(n, n, k), (n, n))


@derived
def diagflat(x: Array, k: int = 0) -> Tensor:
    """The matrix with the elements of x on its diagonal k."""
    return diag(ravel(x), k)


@derived
def trace(x: Array, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The sum of a diagonal of the matrices of two axes."""
    return sum(diagonal(x, offset, axis1, axis2), -1)


# --- repeated ----------------------------------------------------------------------------------------------------


@derived
def repeat(x: Array, repeats: Array, axis: int | None = None) -> Tensor:
    """Each element of an axis (None: of the flattened array) `repeats` times; an array of them says it for each."""
    x, axis = _flat_unless(x, axis)
    shape = np.shape(x)
    if np.size(repeats) != 1:
        return getitem(x, (slice(None),) * axis + (np.repeat(np.arange(shape[axis]), repeats),))
    n = int(np.asarray(repeats).item())
    before, after = shape[: axis + 1], shape[axis + 1 :]
    spread = broadcast_to(expand_dims(x, axis + 1), (*before, n, *after))
    return reshape(spread, (*before[:-1], before[-1] * n, *after))


@derived
def tile(x: Array, reps: Array) -> Tensor:
    """x so many times along each axis; further axes are put in front of whichever has fewer, x or `reps`."""
    shape = np.shape(x)
    times = tuple(int(n) for n in np.atleast_1d(reps))
    ndim = max(len(shape), len(times))
    times, shape = (1,) * (ndim - len(times)) + times, (1,) * (ndim - len(shape)) + shape
    apart = reshape(x, tuple(n for size in shape for n in (1, size)))
    spread = broadcast_to(apart, tuple(n for pair in zip(times, shape) for n in pair))
    return reshape(spread, tuple(r * n for r, n in zip(times, shape)))


@derived
def full_like(x: Array, fill_value: Array, dtype: Any = None, *, shape: Any = None) -> Tensor:
    """fill_value, broadcast to the shape of x (or to `shape`), in the dtype of x (or in `dtype`).

    The derivative is by fill_value; x gives its shape and dtype alone.

    >>> full_like([1.0, 2.0], 0.5)
    tensor([0.5, 0.5])
    """
    x = x if hasattr(x, "dtype") else np.asarray(x)
    filled = broadcast_to(fill_value, np.shape(x) if shape is None else shape)
    return filled.astype(x.dtype if dtype is None else dtype)


# --- padded ------------------------------------------------------------------------------------------------------


@derived
def pad(x: Array, pad_width: Any, mode: Any = "constant", **keywords: Any) -> Tensor:
    """x with elements before and after it along each axis.

    pad_width: a number, (before, after), or one such pair for each axis. mode: "constant" (constant_values=0, which are
    constants), or elements of x: "edge", "reflect", "symmetric" or "wrap". ValueError for other modes and for
    reflect_type="odd".

    >>> pad([1.0, 2.0, 3.0], (1, 2), "reflect")
    tensor([2., 1., 2., 3., 2., 1.])
    """
    shape = np.shape(x)
    keywords = {name: constant(value, "pad", name) for name, value in keywords.items()}
    widths = _widths(pad_width, len(shape))
    if mode == "constant":
        frame = np.pad(np.zeros(shape, getattr(x, "dtype", None) or np.asarray(x).dtype), widths, mode, **keywords)
        return index_put(frame, tuple(slice(before, before + n) for (before, _), n in zip(widths, shape)), x)
    if mode not in ("edge", "reflect", "symmetric", "wrap"):
        raise ValueError(f"pad: the mode is constant, edge, reflect, symmetric or wrap, and not {mode!r}")
    if (kind := keywords.pop("reflect_type", "even")) != "even":
        raise ValueError(f"pad: the reflect_type is 'even', and not {kind!r}; 'odd' pads with twice the edge less that")
    y = copy(x)
    for axis, (before, after) in enumerate(widths):
        if before or after:
            source = np.pad(np.arange(shape[axis]), (before, after), mode, **keywords)
            y = getitem(y, (slice(None),) * axis + (source,))
    return y


def _widths(pad_width: Any, ndim: int) -> np.ndarray:
    if isinstance(pad_width, dict):
        by_axis = {axis % ndim: np.broadcast_to(width, 2) for axis, width in pad_width.items()}
        pad_width = [by_axis.get(axis, (0, 0)) for axis in range(ndim)]
    return np.broadcast_to(np.asarray(pad_width), (ndim, 2))


# --- counted -----------------------------------------------------------------------------------------------------


@derived
def bincount(x: Array, weights: Array = None, minlength: int = 0) -> Any:
    """How often each integer occurs, a plain array; with weights their sums, differentiable and in float64, as NumPy's.

    >>> bincount([0, 2, 2], weights=[1.0, 2.0, 3.0])
    tensor([1., 0., 5.])
    """
    counts = np.bincount(np.asarray(x), minlength=minlength)
    return counts if weights is None else _scatter(astype(weights, np.float64), np.asarray(x), counts.shape)
