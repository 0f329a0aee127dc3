"""Functions that rearrange elements. None of them computes anything, so each gradient rule is the way back."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from minigrad.engine import Array
from minigrad.op import derived, op
from minigrad.ops.indexing import getitem
from minigrad.tensor import Tensor


@op
def reshape(x: Array, shape: Array) -> Array:
    """The same elements, in the same order, in another shape; one size may be -1.

    >>> import minigrad as mg
    >>> reshape(mg.tensor([1.0, 2.0, 3.0, 4.0]), (2, 2))
    tensor([[1., 2.],
            [3., 4.]])
    """
    return np.reshape(x, shape)


reshape.rule(x=lambda g, x_shape: np.reshape(g, x_shape))


@derived
def ravel(x: Array) -> Tensor:
    """All elements along one axis."""
    return reshape(x, (np.size(x),))


@derived
def atleast_1d(*arrays: Array) -> Any:
    """A number as an array of one axis, others as they are. One tensor, or a tuple of as many as there are arrays."""
    return _each(arrays, lambda shape: shape or (1,))


@derived
def atleast_2d(*arrays: Array) -> Any:
    """New axes in front up to two. One tensor, or a tuple of as many as there are arrays."""
    return _each(arrays, lambda shape: (1,) * (2 - len(shape)) + shape)


@derived
def atleast_3d(*arrays: Array) -> Any:
    """New axes up to three: (n,) becomes (1, n, 1), and (m, n) becomes (m, n, 1). One tensor, or a tuple."""
    return _each(arrays, lambda shape: (*((1,) * (2 - len(shape)) + shape), 1) if len(shape) < 3 else shape)


def _each(arrays: tuple[Array, ...], new_shape: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Any:
    tensors = tuple(reshape(x, new_shape(np.shape(x))) for x in arrays)
    return tensors[0] if len(tensors) == 1 else tensors


@op
def transpose(x: Array, axes: Array = None) -> Array:
    """The axes in another order: reversed, or as `axes` says."""
    return np.transpose(x, axes)


def _transpose_rule(g: Array, axes: Array) -> Array:
    if axes is None:
        return np.transpose(g)
    return np.transpose(g, np.argsort([a % g.ndim for a in axes]))


transpose.rule(x=_transpose_rule)
permute_dims = transpose


@op
def swapaxes(x: Array, axis1: Array, axis2: Array) -> Array:
    """Two axes exchanged."""
    return np.swapaxes(x, axis1, axis2)


swapaxes.rule(x=lambda g, axis1, axis2: np.swapaxes(g, axis1, axis2))


@op
def moveaxis(x: Array, source: Array, destination: Array) -> Array:
    """Axes moved from `source` to `destination`, the others in their order."""
    return np.moveaxis(x, source, destination)


moveaxis.rule(x=lambda g, source, destination: np.moveaxis(g, destination, source))


@derived
def rollaxis(x: Array, axis: int, start: int = 0) -> Tensor:
    """One axis moved to stand before the axis `start`."""
    n = np.ndim(x)
    axis = normalize_axis_index(axis, n)
    start = normalize_axis_index(start, n + 1) if start >= 0 else normalize_axis_index(start, n)
    return moveaxis(x, axis, start - (axis < start))


@op
def expand_dims(x: Array, axis: Array) -> Array:
    """New axes of size 1 at the positions `axis` of the result."""
    return np.expand_dims(x, axis)


expand_dims.rule(x=lambda g, x_shape: np.reshape(g, x_shape))


@op
def squeeze(x: Array, axis: Array = None) -> Array:
    """Axes of size 1 removed: all, or those that `axis` names (ValueError if one of them is longer)."""
    return np.squeeze(x, axis)


squeeze.rule(x=lambda g, x_shape: np.reshape(g, x_shape))


@op
def broadcast_to(x: Array, shape: Array) -> Array:
    """x repeated along new and size-1 axes up to `shape`, as a view."""
    return np.broadcast_to(x, shape)


broadcast_to.rule(x=lambda g: g)  # the engine sums it back


@derived
def broadcast_arrays(*arrays: Array) -> tuple[Tensor, ...]:
    """All arrays broadcast to one shape, as views."""
    shape = np.broadcast_shapes(*map(np.shape, arrays))
    return tuple(broadcast_to(x, shape) for x in arrays)


@derived
def meshgrid(*arrays: Array, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[Tensor, ...]:
    """The coordinates of the points of a grid: one array for each axis of it, varying along that axis alone.

    indexing: "ij", or "xy", by which the first two axes are exchanged. sparse: with size 1 along the other axes.
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"the indexing of meshgrid is 'xy' or 'ij', not {indexing!r}")
    n = len(arrays)
    places = [1, 0, *range(2, n)] if indexing == "xy" and n > 1 else range(n)
    grid = [reshape(x, tuple(np.size(x) if i == place else 1 for i in range(n))) for x, place in zip(arrays, places)]
    return tuple(grid) if sparse else broadcast_arrays(*grid)


def _check_axis(axis: Array, name: str) -> None:
    """TypeError for an array that can be no axis: it is the second of those to be joined."""
    if isinstance(axis, np.ndarray) and (axis.ndim or axis.dtype.kind not in "iu"):
        raise TypeError(f"{name} was given an array as its axis: pass the arrays as one list, {name}([a, b])")


@op(sequence="arrays")
def concatenate(arrays: Array, axis: Array = 0) -> Array:
    """Arrays joined along an existing axis (None: all flattened)."""
    _check_axis(axis, "concatenate")
    return np.concatenate(arrays, axis)


def _concatenate_rule(g: Array, arrays_shape: Array, axis: Array) -> list[Array]:
    if axis is None:
        ends = list(accumulate(int(np.prod(shape)) for shape in arrays_shape))
        return [np.reshape(g[end - int(np.prod(s)) : end], s) for end, s in zip(ends, arrays_shape)]
    ends = list(accumulate(shape[axis] for shape in arrays_shape))
    before = (slice(None),) * (axis % g.ndim)
    return [g[before + (slice(end - shape[axis], end),)] for end, shape in zip(ends, arrays_shape)]


concatenate.rule(arrays=_concatenate_rule)
concat = concatenate


@op(sequence="arrays")
def stack(arrays: Array, axis: Array = 0) -> Array:
    """Arrays of one shape joined along a new axis."""
    _check_axis(axis, "stack")
    return np.stack(arrays, axis)


def _stack_rule(g: Array, arrays_shape: Array, axis: Array) -> list[Array]:
    along = np.moveaxis(g, axis, 0)
    return [along[i] for i in range(len(arrays_shape))]


stack.rule(arrays=_stack_rule)


@derived
def split(x: Array, indices_or_sections: Array, axis: int = 0) -> list[Tensor]:
    """x cut along an axis: into so many equal parts, or before each of the given indices. A list of tensors."""
    axis = normalize_axis_index(axis, np.ndim(x))
    n, parts = np.shape(x)[axis], parts_or_cuts(indices_or_sections)
    if isinstance(parts, list):
        cuts = [0, *parts, n]
    elif n % parts:
        raise ValueError(f"split: an axis of {n} does not divide into {parts} equal parts")
    else:
        cuts = [i * (n // parts) for i in range(parts + 1)]
    before = (slice(None),) * axis
    return [getitem(x, before + (slice(start, end),)) for start, end in pairwise(cuts)]


def parts_or_cuts(given: Array) -> int | list[int]:
    """Into how many parts an axis is cut, or before which indices. TypeError for what are no integers."""
    try:
        parts = operator.index(given) if np.ndim(given) == 0 else [operator.index(i) for i in given]
    except TypeError:
        raise TypeError(
            f"an axis is cut into a number of parts or before a list of indices, integers, and not as {given!r} says"
        ) from None
    if isinstance(parts, int) and parts < 1:
        raise ValueError(f"an axis is cut into at least one part, not {parts}")
    return parts


@op
def flip(x: Array, axis: Array = None) -> Array:
    """The order of elements reversed along axes."""
    return np.flip(x, axis)


flip.rule(x=lambda g, axis: np.flip(g, axis))


@derived
def fliplr(x: Array) -> Tensor:
    """The second axis reversed."""
    return flip(x, 1)


@derived
def flipud(x: Array) -> Tensor:
    """The first axis reversed."""
    return flip(x, 0)


@op
def roll(x: Array, shift: Array, axis: Array = None) -> Array:
    """Elements moved along axes by `shift` places, those beyond the end to the beginning (axis None: flattened)."""
    return np.roll(x, shift, axis)


roll.rule(x=lambda g, shift, axis: np.roll(g, np.negative(np.asarray(shift, np.intp)), axis))


@op
def rot90(x: Array, k: int = 1, axes: Array = (0, 1)) -> Array:
    """Turned k times by 90 degrees, from the first of two axes towards the second."""
    return np.rot90(x, k, axes)


rot90.rule(x=lambda g, k, axes: np.rot90(g, -k, axes))


@op
def tril(x: Array, k: int = 0) -> Array:
    """The lower triangle of the last two axes up to diagonal k; 0 above it."""
    return np.tril(x, k)


tril.rule(x=lambda g, k: np.tril(g, k))


@op
def triu(x: Array, k: int = 0) -> Array:
    """The upper triangle of the last two axes from diagonal k on; 0 below it."""
    return np.triu(x, k)


triu.rule(x=lambda g, k: np.triu(g, k))
