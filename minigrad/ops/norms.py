"""Norms of vectors and matrices. Where a norm is 0 its gradient is 0."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minigrad.engine import Array
from minigrad.op import derived
from minigrad.ops.complexes import conj, real
from minigrad.ops.decompositions import inv, svdvals
from minigrad.ops.elementwise import abs, divide, multiply, power, sqrt, square, where
from minigrad.ops.reductions import axes_of, max, min, sum
from minigrad.ops.shapes import expand_dims, moveaxis, reshape
from minigrad.tensor import Tensor, wrap

Axis = int | tuple[int, ...] | None


@derived
def norm(x: Array, ord: Any = None, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The norm of vectors along one axis, or of matrices along two; without axis and ord, of all elements as a vector.

    ord, for vectors: p for sum(|x|^p)^(1/p), None for 2, inf and -inf for the largest and smallest |x|, 0 for the
    number of elements that are not 0. For matrices: None or "fro" (Frobenius), "nuc" (the sum of the singular values),
    2 and -2 (the largest and smallest of them), 1 and -1 (of the columns' sums of |x|), inf and -inf (of the rows').
    ValueError for any other. Elements that are 0 have gradient 0, as has a norm that is 0; ties share evenly.

    >>> import minigrad as mg
    >>> mg.grad(norm)(np.array([3.0, 4.0])), mg.grad(norm)(np.zeros(2))
    (array([0.6, 0.8]), array([0., 0.]))
    """
    ndim = np.ndim(x)
    if axis is None and ord is None:
        return _root_of_squares(x, None, keepdims)
    axes = tuple(range(ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if len(axes) == 1:
        return _of_vectors(x, ord, axes[0], keepdims)
    if len(axes) != 2:
        raise ValueError(f"norm: vectors have one axis and matrices two, and these are {len(axes)}")
    rows, columns = axes_of(axes, ndim)
    if rows == columns:
        raise ValueError("norm: the two axes of a matrix are the same one")
    return _of_matrices(moveaxis(x, (rows, columns), (-2, -1)), ord, (rows, columns) if keepdims else None)


def _root_of_squares(x: Array, axis: Axis, keepdims: bool) -> Tensor:
    x = _floating(x)
    squares = real(multiply(conj(x), x)) if np.iscomplexobj(x) else square(x)
    return _root(sum(squares, axis, keepdims), 0.5)


def _root(total: Tensor, exponent: float) -> Tensor:
    """total ** exponent, with gradient 0 where total is 0 (or infinite, for a negative exponent: the root is 0 too)."""
    value = total**exponent if exponent != 0.5 else sqrt(total)
    zero = value == 0
    if not zero.any():
        return value
    regular = where(zero, 1.0, total)
    return where(zero, 0.0, regular**exponent if exponent != 0.5 else sqrt(regular))


def _of_vectors(x: Array, ord: Any, axis: int, keepdims: bool) -> Tensor:
    if isinstance(ord, str):
        raise ValueError(f"norm: vectors have no norm of order {ord!r}")
    if ord is None or ord == 2:
        return _root_of_squares(x, axis, keepdims)
    sizes = abs(_floating(x))
    if ord in (np.inf, -np.inf):
        return _extreme(sizes, ord, axis, keepdims)
    if ord == 0:
        return sum((sizes != 0).astype(sizes.dtype), axis, keepdims)
    if ord == 1:
        return sum(sizes, axis, keepdims)
    return _root(sum(_powers(sizes, float(ord)), axis, keepdims), 1 / float(ord))


def _extreme(sizes: Tensor, ord: Any, axis: Axis, keepdims: bool) -> Tensor:
    """The largest (0 of none) or, for a negative order, the smallest (ValueError of none)."""
    if ord < 0:
        return min(sizes, axis, keepdims)
    return max(sizes, axis, keepdims) if sizes.size else sum(sizes, axis, keepdims)


def _powers(sizes: Tensor, ord: float) -> Tensor:
    """sizes ** ord, without the infinite derivative that an order below 1 has at 0."""
    zero = sizes == 0
    if not zero.any():
        return power(sizes, ord)
    at_zero = np.power(sizes.dtype.type(0), ord)
    return where(zero, at_zero, power(where(zero, 1.0, sizes), ord))


def _of_matrices(x: Tensor, ord: Any, kept: tuple[int, int] | None) -> Tensor:
    """The norms of the last two axes, which come back as axes of size 1 at the places `kept`."""
    x = _floating(x)
    if ord in (None, "fro", "f"):
        y = _root_of_squares(x, (-2, -1), False)
    elif ord in (2, -2):
        y = _extreme(abs(svdvals(x)), ord, -1, False)  # abs, for its gradient at 0
    elif ord == "nuc":
        y = sum(abs(svdvals(x)), -1)
    elif ord in (1, -1, np.inf, -np.inf):
        y = _extreme(sum(abs(x), -2 if ord in (1, -1) else -1), ord, -1, False)
    else:
        raise ValueError(f"norm: matrices have no norm of order {ord!r}")
    return y if kept is None else expand_dims(y, kept)


def _floating(x: Array) -> Array:
    """x, or as floats if it holds integers or booleans."""
    if isinstance(x, Tensor):
        return x if x.dtype.kind in "fc" else x.astype(float)
    x = np.asarray(x)
    return wrap(x if x.dtype.kind in "fc" else x.astype(float), None)


@derived
def vector_norm(x: Array, *, axis: Axis = None, keepdims: bool = False, ord: Any = 2) -> Tensor:
    """The norm of all elements, or of those along an axis or several, as one vector. ord as in `norm`, a number."""
    shape, axes = np.shape(x), axes_of(axis, np.ndim(x))
    first = moveaxis(x, axes, range(len(axes)))
    y = _of_vectors(reshape(first, (math.prod(shape[i] for i in axes), *first.shape[len(axes) :])), ord, 0, False)
    return expand_dims(y, axes) if keepdims else y


@derived
def matrix_norm(x: Array, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """The norm of the matrices in the last two axes. ord as in `norm`."""
    return norm(x, ord, (-2, -1), keepdims)


@derived
def cond(x: Array, p: Any = None) -> Tensor:
    """The condition number norm(x, p) * norm(inv(x), p), inf if x is singular; p: as in `norm`, and None for 2.

    For None, 2 and -2 it is a ratio of singular values, and x need not be square. LinAlgError for an empty x.
    """
    if np.ndim(x) < 2 or 0 in np.shape(x)[-2:]:
        raise np.linalg.LinAlgError(f"cond: needs matrices that are not empty, and this is of shape {np.shape(x)}")
    values = x._array if isinstance(x, Tensor) else np.asarray(x)
    with np.errstate(all="ignore"):
        if p in (None, 2, -2):
            s = svdvals(x)
            y = divide(s[..., -1], s[..., 0]) if p == -2 else divide(s[..., 0], s[..., -1])
            infinite = np.isnan(y._array) & ~np.isnan(values).any((-2, -1))
        else:
            infinite = np.linalg.slogdet(values)[0] == 0
            regular = where(infinite[..., None, None], np.eye(values.shape[-1], dtype=values.dtype), x)
            y = norm(x, p, (-2, -1)) * norm(inv(regular), p, (-2, -1))
        return where(infinite, np.inf, y) if infinite.any() else y
