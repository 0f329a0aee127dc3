"""Averages, covariances, quantiles, and reductions that leave NaN out. axis, keepdims, where: see reductions.py."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from minigrad.engine import Array
from minigrad.op import derived, op
from minigrad.ops.complexes import conj, real
from minigrad.ops.elementwise import astype, clip, multiply, sqrt, where
from minigrad.ops.indexing import getitem, take_along_axis
from minigrad.ops.linalg import matmul
from minigrad.ops.reductions import count_of, given, mean, prod, root_of_variance, share_of_extrema, sum, unreduced, var
from minigrad.ops.selecting import diagonal, sort
from minigrad.ops.shapes import (
    atleast_2d,
    broadcast_to,
    concatenate,
    expand_dims,
    moveaxis,
    reshape,
    squeeze,
    transpose,
)
from minigrad.tensor import Tensor, constant

# --- average -----------------------------------------------------------------------------------------------------


@derived
def average(
    x: Array, axis: Array = None, weights: Array = None, returned: bool = False, *, keepdims: bool = False
) -> Any:
    """The weighted mean over axes, differentiable by the weights too; with `returned` the weights' sums as well.

    weights: x's shape, or the sizes of the axes. ZeroDivisionError where they sum to 0.

    >>> average([1.0, 2.0], weights=[3.0, 1.0])
    tensor(1.25)
    """
    axis = axis if axis is None else normalize_axis_tuple(axis, np.ndim(x))
    if weights is None:
        y = mean(x, axis, keepdims)
        total: Array = np.full(y.shape, count_of(np.shape(x), axis), y.dtype)
    else:
        weights = _weights_beside(weights, np.shape(x), axis)
        total = sum(weights, axis, keepdims)
        if (total == 0).any():
            raise ZeroDivisionError("the weights of an average sum to zero")
        y = sum(multiply(x, weights), axis, keepdims) / total
    return (y, broadcast_to(total, y.shape)) if returned else y


def _weights_beside(weights: Array, shape: tuple[int, ...], axes: tuple[int, ...] | None) -> Array:
    """The weights, with axes of size 1 for those of x that they lack."""
    if np.shape(weights) == shape:
        return weights
    if axes is None:
        raise TypeError(f"average: weights of shape {np.shape(weights)} for x of shape {shape} need an axis")
    if np.shape(weights) != tuple(shape[a] for a in axes):
        raise ValueError(
            f"average: weights of shape {np.shape(weights)} are neither of x's shape {shape} nor of its axes {axes}"
        )
    weights = transpose(weights, tuple(np.argsort(axes)))
    return reshape(weights, tuple(n if i in axes else 1 for i, n in enumerate(shape)))


# --- covariances -------------------------------------------------------------------------------------------------


@derived
def cov(m: Array, y: Array = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None) -> Tensor:
    """The covariances of variables, one a row (or a column, without rowvar), over observations; float64 at least.

    y: more variables. The sums are divided by n - ddof, where ddof is 1, or 0 with bias.
    """
    rows = _variables(m, rowvar)
    if y is not None:
        rows = concatenate([rows, _variables(y, rowvar)], 0)
    n = rows.shape[1] - (ddof if ddof is not None else 0 if bias else 1)
    deviations = rows - mean(rows, 1, keepdims=True)
    scale = 1.0 / n if n > 0 else np.inf  # NumPy's: inf, or NaN for 0
    return squeeze(matmul(deviations, conj(transpose(deviations))) * scale)


def _variables(x: Array, rowvar: bool) -> Tensor:
    x = astype(x, np.result_type(x.dtype if hasattr(x, "dtype") else np.asarray(x), np.float64))
    rows = atleast_2d(x)
    return rows if rowvar or x.ndim < 2 or rows.shape[0] == 1 else transpose(rows)


@derived
def corrcoef(x: Array, y: Array = None, rowvar: bool = True) -> Tensor:
    """The correlations of variables, given as for `cov`: covariances of unit variances; NaN of what does not vary."""
    c = cov(x, y, rowvar)
    if c.ndim == 0:
        return c / c
    deviations = sqrt(real(diagonal(c)))
    correlations = c / expand_dims(deviations, 1) / deviations
    return correlations if c.dtype.kind == "c" else clip(correlations, -1, 1)


# --- medians and quantiles ---------------------------------------------------------------------------------------


@derived
def median(x: Array, axis: Array = None, keepdims: bool = False) -> Tensor:
    """The middle element over axes, or the mean of the middle two; NaN if there is any. It gets the whole gradient.

    >>> import minigrad as mg
    >>> mg.grad(median)(np.array([5.0, 1.0, 3.0, 4.0]))
    array([0. , 0. , 0.5, 0.5])
    """
    rows = _sorted_rows(x, axis)
    n = rows.shape[-1]
    y = mean(getitem(rows, (..., slice((n - 1) // 2, n // 2 + 1))), -1)
    return _restored(_nan_if_any(y, rows), np.shape(x), axis, keepdims)


@derived
def nanmedian(x: Array, axis: Array = None, keepdims: bool = False) -> Tensor:
    """The median of the elements that are not NaN; NaN where all are."""
    return nanquantile(x, 0.5, axis, keepdims=keepdims)


@derived
def quantile(x: Array, q: Array, axis: Array = None, method: str = "linear", keepdims: bool = False) -> Tensor:
    """The element that a part q of all lies below, between two neighbours linearly; NaN if there is any.

    q: one number in [0, 1] or an array of them, whose axes come first in the result; constant. The two neighbours
    share the gradient. ValueError for other methods than "linear".

    >>> quantile([1.0, 3.0, 2.0], [0.25, 1.0])
    tensor([1.5, 3. ])
    """
    q = constant(q, "quantile", "q")
    rows = _sorted_rows(x, axis)
    y = _at_quantiles(rows, rows.shape[-1], q, method)
    return _restored(_nan_if_any(y, rows), np.shape(x), axis, keepdims)


@derived
def nanquantile(x: Array, q: Array, axis: Array = None, method: str = "linear", keepdims: bool = False) -> Tensor:
    """The quantiles of the elements that are not NaN; NaN where all are."""
    q = constant(q, "nanquantile", "q")
    rows = _sorted_rows(x, axis)
    if not rows.shape[-1]:  # one NaN, to be picked
        rows = concatenate([rows, np.full((*rows.shape[:-1], 1), np.nan, np.result_type(rows.dtype, np.float16))], -1)
    n = np.count_nonzero(~np.isnan(rows), axis=-1)
    y = _nan_where(n == 0, _at_quantiles(rows, n, q, method))
    return _restored(y, np.shape(x), axis, keepdims)


@derived
def percentile(x: Array, q: Array, axis: Array = None, method: str = "linear", keepdims: bool = False) -> Tensor:
    """The quantiles for q in percent."""
    return quantile(x, _percent(q, "percentile"), axis, method, keepdims)


@derived
def nanpercentile(x: Array, q: Array, axis: Array = None, method: str = "linear", keepdims: bool = False) -> Tensor:
    """The quantiles for q in percent of the elements that are not NaN; NaN where all are."""
    return nanquantile(x, _percent(q, "nanpercentile"), axis, method, keepdims)


def _percent(q: Array, who: str) -> Array:
    q = constant(q, who, "q")
    return q / 100 if isinstance(q, (int, float)) else np.asarray(q) / 100


def _sorted_rows(x: Array, axis: Array) -> Tensor:
    """x in ascending order, NaN last, along one last axis that stands for all the reduced ones."""
    shape = np.shape(x)
    axes = normalize_axis_tuple(range(len(shape)) if axis is None else axis, len(shape))
    rest = tuple(i for i in range(len(shape)) if i not in axes)
    n = math.prod(shape[a] for a in axes)
    return sort(reshape(transpose(x, rest + axes), (*(shape[i] for i in rest), n)))


def _restored(y: Tensor, x_shape: tuple[int, ...], axis: Array, keepdims: bool) -> Tensor:
    """With keepdims, y with x's reduced axes back, of size 1; the axes of several q stay in front."""
    if not keepdims:
        return y
    ndim = len(x_shape)
    axes = normalize_axis_tuple(range(ndim) if axis is None else axis, ndim)
    in_front = y.shape[: y.ndim - (ndim - len(axes))]
    return reshape(y, in_front + tuple(1 if i in axes else n for i, n in enumerate(x_shape)))


def _nan_if_any(y: Tensor, rows: Tensor) -> Tensor:
    """NaN, which sorts last, makes the result NaN."""
    last = rows._array[..., -1:]
    return where(np.isnan(last)[..., 0], np.nan, y) if last.size and np.isnan(last).any() else y


def _at_quantiles(rows: Tensor, n: Array, q: Array, method: str) -> Tensor:
    """What stands at q * (n - 1) in the first n elements of each row, for all q: shape q.shape + rows.shape[:-1]."""
    if method != "linear":
        raise ValueError(f"quantiles are interpolated by the method 'linear', not {method!r}")
    q = np.asarray(q, rows.dtype if isinstance(q, (int, float)) and rows.dtype.kind == "f" else None)
    if not ((q >= 0) & (q <= 1)).all():
        raise ValueError("quantiles lie in [0, 1], percentiles in [0, 100]")
    kept = rows.shape[:-1]
    position = q.reshape(q.shape + (1,) * len(kept)) * np.asarray(n - 1).astype(q.dtype)
    position = np.broadcast_to(np.maximum(position, 0), q.shape + kept)
    low = np.floor(position)
    start = low.astype(int)
    below, above = (_pick(rows, at) for at in (start, np.minimum(start + 1, np.maximum(n - 1, 0))))
    y: Tensor = below + (above - below) * (position - low)
    return y


def _pick(rows: Tensor, at: np.ndarray) -> Tensor:
    """The elements of rows at positions of shape (..., *rows.shape[:-1])."""
    flat = at.reshape(math.prod(at.shape[: at.ndim - rows.ndim + 1]), *rows.shape[:-1])
    return reshape(moveaxis(take_along_axis(rows, np.moveaxis(flat, 0, -1), -1), -1, 0), at.shape)


# --- without NaN -------------------------------------------------------------------------------------------------


def _numbers(x: Array, where: Array) -> Array:
    """Which elements count: those that are not NaN."""
    numbers = ~np.isnan(x)
    return numbers if where is True else numbers & where


@derived
def nansum(x: Array, axis: Array = None, keepdims: bool = False, initial: Array = None, where: Array = True) -> Tensor:
    """The sum of the elements that are not NaN."""
    return sum(x, axis, keepdims, initial, _numbers(x, where))


@derived
def nanprod(x: Array, axis: Array = None, keepdims: bool = False, initial: Array = None, where: Array = True) -> Tensor:
    """The product of the elements that are not NaN."""
    return prod(x, axis, keepdims, initial, _numbers(x, where))


@derived
def nanmean(x: Array, axis: Array = None, keepdims: bool = False, where: Array = True) -> Tensor:
    """The mean of the elements that are not NaN; NaN, with NumPy's warning, where all are."""
    return mean(x, axis, keepdims, _numbers(x, where))


@derived
def nanvar(x: Array, axis: Array = None, ddof: int = 0, keepdims: bool = False, where: Array = True) -> Tensor:
    """The variance of the elements that are not NaN; NaN where there are no more than ddof."""
    numbers = _numbers(x, where)
    few = np.count_nonzero(numbers, axis=axis, keepdims=keepdims) <= ddof
    return _nan_where(few, var(x, axis, ddof, keepdims, numbers))


@derived
def nanstd(x: Array, axis: Array = None, ddof: int = 0, keepdims: bool = False, where: Array = True) -> Tensor:
    """The standard deviation of the elements that are not NaN; NaN where there are no more than ddof."""
    return root_of_variance(nanvar(x, axis, ddof, keepdims, where))


def _nan_where(condition: Array, y: Tensor) -> Tensor:
    return where(condition, np.nan, y) if np.any(condition) else y


@op
def nanmax(x: Array, axis: Array = None, keepdims: bool = False, initial: Array = None, where: Array = True) -> Array:
    """The largest element that is not NaN; NaN, with NumPy's warning and no gradient, where all are."""
    return np.nanmax(x, axis=axis, keepdims=keepdims, **given(initial, where))


@op
def nanmin(x: Array, axis: Array = None, keepdims: bool = False, initial: Array = None, where: Array = True) -> Array:
    """The smallest element that is not NaN; NaN, with NumPy's warning and no gradient, where all are."""
    return np.nanmin(x, axis=axis, keepdims=keepdims, **given(initial, where))


def _to_extremal_numbers(
    g: Array, x: Array, y: Array, axis: Array, keepdims: bool, initial: Array, where: Array
) -> Array:
    share = share_of_extrema(x, unreduced(y, x.shape, axis, keepdims), axis, initial, where, at_least=1)
    return unreduced(g, x.shape, axis, keepdims) * share


nanmax.rule(x=_to_extremal_numbers)
nanmin.rule(x=_to_extremal_numbers)
