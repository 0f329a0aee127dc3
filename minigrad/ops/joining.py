"""Functions that put arrays together and take them apart, beside concatenate, stack and split in shapes.py."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from minigrad.engine import Array
from minigrad.op import derived
from minigrad.ops.indexing import getitem
from minigrad.ops.shapes import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    concatenate,
    moveaxis,
    parts_or_cuts,
    ravel,
    reshape,
    split,
    transpose,
)
from minigrad.tensor import Tensor, _value

# --- together ----------------------------------------------------------------------------------------------------


@derived
def hstack(arrays: Array) -> Tensor:
    """Arrays joined along the second axis; 1-D ones along their only one."""
    parts = [atleast_1d(x) for x in arrays]
    return concatenate(parts, 0 if parts and parts[0].ndim == 1 else 1)


@derived
def vstack(arrays: Array) -> Tensor:
    """Arrays joined along the first axis; 1-D ones as rows."""
    return concatenate([atleast_2d(x) for x in arrays], 0)


@derived
def dstack(arrays: Array) -> Tensor:
    """Arrays joined along the third axis, made 3-D as by atleast_3d."""
    return concatenate([atleast_3d(x) for x in arrays], 2)


@derived
def column_stack(arrays: Array) -> Tensor:
    """1-D arrays as the columns of a matrix; 2-D ones joined beside each other."""
    return concatenate([x if np.ndim(x) > 1 else transpose(atleast_2d(x)) for x in arrays], 1)


@derived
def block(arrays: Any) -> Tensor:
    """An array put together from blocks: lists nested to one depth, the innermost joined along the last axis.

    >>> block([[1.0, 2.0, 3.0], [np.array([4.0, 5.0]), 6.0]])
    tensor([[1., 2., 3.],
            [4., 5., 6.]])
    """
    depths, ndims = zip(*_blocks(arrays, 0))
    if len(set(depths)) > 1:
        raise ValueError(f"the lists of a block are nested to one depth, and these to depths {sorted(set(depths))}")
    return _joined(arrays, depths[0], max(depths[0], *ndims))


def _blocks(arrays: Any, depth: int) -> Iterator[tuple[int, int]]:
    """The depth and the number of axes of each block."""
    if not isinstance(arrays, list):
        yield depth, np.ndim(arrays)
    elif not arrays:
        raise ValueError("a list of blocks is empty")
    else:
        for x in arrays:
            yield from _blocks(x, depth + 1)


def _joined(arrays: Any, depth: int, ndim: int) -> Tensor:
    if not isinstance(arrays, list):
        return reshape(arrays, (1,) * (ndim - np.ndim(arrays)) + np.shape(arrays))
    return concatenate([_joined(x, depth - 1, ndim) for x in arrays], -depth)


@derived
def append(x: Array, values: Array, axis: int | None = None) -> Tensor:
    """`values` joined to the end of an axis (None: both flattened)."""
    return concatenate([x, values], axis)


@derived
def insert(x: Array, index: Array, values: Array, axis: int | None = None) -> Tensor:
    """A copy of x with `values` put in before the given places of an axis (None: of the flattened array).

    >>> insert([1.0, 2.0, 3.0], 1, 9.0)
    tensor([1., 9., 2., 3.])
    """
    numbers = np.arange(np.size(x)).reshape(np.shape(x))
    new_numbers = np.size(x) + np.arange(np.size(values)).reshape(np.shape(values))
    source = np.insert(numbers, _value(index), new_numbers, axis)
    return getitem(concatenate([ravel(x), ravel(values)]), source)


@derived
def delete(x: Array, index: Array, axis: int | None = None) -> Tensor:
    """A copy of x without the given places of an axis (None: of the flattened array)."""
    x, axis = (ravel(x), 0) if axis is None else (x, normalize_axis_index(axis, np.ndim(x)))
    return getitem(x, (slice(None),) * axis + (np.delete(np.arange(np.shape(x)[axis]), _value(index)),))


# --- apart -------------------------------------------------------------------------------------------------------


@derived
def array_split(x: Array, indices_or_sections: Array, axis: int = 0) -> list[Tensor]:
    """x cut along an axis as by split, but the first of so many parts may be longer by one. A list of tensors."""
    parts = parts_or_cuts(indices_or_sections)
    if isinstance(parts, list):
        return split(x, parts, axis)
    length, longer = divmod(np.shape(x)[axis], parts)
    return split(x, list(accumulate(length + (i < longer) for i in range(parts - 1))), axis)


@derived
def hsplit(x: Array, indices_or_sections: Array) -> list[Tensor]:
    """x cut along its second axis; a 1-D one along its only one."""
    return split(x, indices_or_sections, 1 if _with_axes(x, 1, "hsplit") > 1 else 0)


@derived
def vsplit(x: Array, indices_or_sections: Array) -> list[Tensor]:
    """x, of two or more axes, cut along the first."""
    _with_axes(x, 2, "vsplit")
    return split(x, indices_or_sections, 0)


@derived
def dsplit(x: Array, indices_or_sections: Array) -> list[Tensor]:
    """x, of three or more axes, cut along the third."""
    _with_axes(x, 3, "dsplit")
    return split(x, indices_or_sections, 2)


def _with_axes(x: Array, n: int, name: str) -> int:
    if np.ndim(x) < n:
        raise ValueError(f"{name} needs an array of {n} or more axes, not one of shape {np.shape(x)}")
    return np.ndim(x)


@derived
def unstack(x: Array, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices of x along an axis, without it."""
    return tuple(moveaxis(x, axis, 0))
