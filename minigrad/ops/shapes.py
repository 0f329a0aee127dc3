"""Functions that rearrange elements. None of them computes anything, so each gradient rule is the way back."""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np

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


@op
def transpose(x: Array, axes: Array = None) -> Array:
    """The axes in another order: reversed, or as `axes` says."""
    return np.transpose(x, axes)


def _transpose_rule(g: Array, axes: Array) -> Array:
    if axes is None:
        return np.transpose(g)
    return np.transpose(g, np.argsort([a % g.ndim for a in axes]))


transpose.rule(x=_transpose_rule)


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


@op(sequence="arrays")
def concatenate(arrays: Array, axis: Array = 0) -> Array:
    """Arrays joined along an existing axis (None: all flattened)."""
    return np.concatenate(arrays, axis)


def _concatenate_rule(g: Array, arrays_shape: Array, axis: Array) -> list[Array]:
    if axis is None:
        ends = list(accumulate(int(np.prod(shape)) for shape in arrays_shape))
        return [np.reshape(g[end - int(np.prod(s)) : end], s) for end, s in zip(ends, arrays_shape)]
    ends = list(accumulate(shape[axis] for shape in arrays_shape))
    before = (slice(None),) * (axis % g.ndim)
    return [g[before + (slice(end - shape[axis], end),)] for end, shape in zip(ends, arrays_shape)]


concatenate.rule(arrays=_concatenate_rule)


@op(sequence="arrays")
def stack(arrays: Array, axis: Array = 0) -> Array:
    """Arrays of one shape joined along a new axis."""
    return np.stack(arrays, axis)


def _stack_rule(g: Array, arrays_shape: Array, axis: Array) -> list[Array]:
    along = np.moveaxis(g, axis, 0)
    return [along[i] for i in range(len(arrays_shape))]


stack.rule(arrays=_stack_rule)


@derived
def split(x: Array, indices_or_sections: Array, axis: int = 0) -> list[Tensor]:
    """x cut along an axis: into so many equal parts, or before each of the given indices. A list of tensors."""
    n = np.shape(x)[axis]
    if isinstance(indices_or_sections, (int, np.integer)):
        if n % indices_or_sections:
            raise ValueError(f"split: an axis of {n} does not divide into {indices_or_sections} equal parts")
        cuts = list(range(0, n + 1, n // indices_or_sections)) if n else [0] * (indices_or_sections + 1)
    else:
        cuts = [0, *indices_or_sections, n]
    before = (slice(None),) * (axis % np.ndim(x))
    return [getitem(x, before + (slice(start, end),)) for start, end in pairwise(cuts)]


@op
def flip(x: Array, axis: Array = None) -> Array:
    """The order of elements reversed along axes."""
    return np.flip(x, axis)


flip.rule(x=lambda g, axis: np.flip(g, axis))


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
