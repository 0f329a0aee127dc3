"""Running sums and products, differences, and functions of points: gradient, trapezoid, interp, linspace, polyval."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from minigrad.engine import Array
from minigrad.op import derived, op
from minigrad.ops.elementwise import astype, multiply, subtract, where
from minigrad.ops.indexing import getitem
from minigrad.ops.reductions import products_before, sum
from minigrad.ops.shapes import broadcast_to, concatenate, moveaxis, reshape
from minigrad.tensor import Tensor, constant

# --- running sums and products -----------------------------------------------------------------------------------


@op
def cumsum(x: Array, axis: int | None = None) -> Array:
    """The sums of all elements up to each one along an axis (None: of the flattened array)."""
    return np.cumsum(x, axis)


def _cumsum_rule(g: Array, x_shape: tuple[int, ...], axis: int | None) -> Array:
    axis = axis or 0
    return np.reshape(np.flip(np.cumsum(np.flip(g, axis), axis), axis), x_shape)


cumsum.rule(x=_cumsum_rule)


@op
def cumprod(x: Array, axis: int | None = None) -> Array:
    """The products of all elements up to each one along an axis (None: of the flattened array).

    The gradient does not divide, and so it is right with zeros among the factors.

    >>> import minigrad as mg
    >>> mg.grad(lambda x: cumprod(x).sum())(np.array([2.0, 0.0, 3.0]))
    array([1., 8., 0.])
    """
    return np.cumprod(x, axis)


def _cumprod_rule(g: Array, x: Array, axis: int | None) -> Array:
    """x_i stands in every product from y_i on, beside the product before it and the factors after it."""
    if axis is None or x.ndim == 0:
        flat = np.reshape(x, (math.prod(x.shape),))
        return np.reshape(products_before(flat) * _sums_of_products(g, flat), x.shape)
    x, g = np.moveaxis(x, axis, -1), np.moveaxis(g, axis, -1)
    return np.moveaxis(products_before(x) * _sums_of_products(g, x), -1, axis)


def _sums_of_products(g: Array, x: Array) -> Array:
    """s_i = g_i + x_(i+1) s_(i+1) along the last axis, by doubling: log n steps.

    After step k, total holds the first 2^k terms of each sum, and factor the product of as many factors.
    """
    n = x.shape[-1]
    total, factor = g, x[..., 1:]
    step = 1
    while step < n:
        total = np.concatenate([total[..., :-step] + factor * total[..., step:], total[..., -step:]], -1)
        factor = factor[..., :-step] * factor[..., step:]
        step *= 2
    return total


cumprod.rule(x=_cumprod_rule)


@derived
def nancumsum(x: Array, axis: int | None = None) -> Tensor:
    """The running sums with NaN counted as 0."""
    return cumsum(where(np.isnan(x), 0, x), axis)


@derived
def nancumprod(x: Array, axis: int | None = None) -> Tensor:
    """The running products with NaN counted as 1."""
    return cumprod(where(np.isnan(x), 1, x), axis)


@derived
def cumulative_sum(x: Array, *, axis: int | None = None, include_initial: bool = False) -> Tensor:
    """cumsum, along the only axis unless one is given; include_initial: with the empty sum 0 in front."""
    x, axis = _with_axis(x, axis)
    return _with_initial(cumsum(x, axis), axis, 0.0 if include_initial else None)


@derived
def cumulative_prod(x: Array, *, axis: int | None = None, include_initial: bool = False) -> Tensor:
    """cumprod, along the only axis unless one is given; include_initial: with the empty product 1 in front."""
    x, axis = _with_axis(x, axis)
    return _with_initial(cumprod(x, axis), axis, 1.0 if include_initial else None)


def _with_axis(x: Array, axis: int | None) -> tuple[Array, int]:
    """x, a number as an array of one axis, and the axis to go along."""
    if np.ndim(x) == 0:
        x = reshape(x, (1,))
    if axis is None and np.ndim(x) != 1:
        raise ValueError(f"an array of {np.ndim(x)} axes needs one of them named: axis=...")
    return x, axis or 0


def _with_initial(y: Tensor, axis: int, initial: float | None) -> Tensor:
    if initial is None:
        return y
    first = np.full(tuple(1 if i == axis % y.ndim else n for i, n in enumerate(y.shape)), initial, y.dtype)
    return concatenate([first, y], axis)


# --- differences -------------------------------------------------------------------------------------------------


@derived
def diff(x: Array, n: int = 1, axis: int = -1, prepend: Array = None, append: Array = None) -> Tensor:
    """Each element along an axis less the one before it, n times over.

    prepend, append: values to put at the axis' ends first (a scalar stands for one slice of it).

    >>> diff([1.0, 4.0, 9.0]), diff([1.0, 4.0], prepend=0.0)
    (tensor([3., 5.]), tensor([1., 3.]))
    """
    if n < 0:
        raise ValueError(f"diff is taken n >= 0 times, not {n}")
    axis = normalize_axis_index(axis, np.ndim(x))
    y = concatenate([_slice_of(prepend, x, axis), x, _slice_of(append, x, axis)], axis)
    for _ in range(n):
        y = subtract(_from(y, axis, 1, None), _from(y, axis, None, -1))
    return y


def _slice_of(value: Array, x: Array, axis: int) -> Array:
    """What is put at an end of the axis: nothing, the given array, or a slice full of the given scalar."""
    length = 0 if value is None else 1
    shape = tuple(length if i == axis else n for i, n in enumerate(np.shape(x)))
    if value is None:
        return np.empty(shape, getattr(x, "dtype", None) or np.asarray(x).dtype)
    return broadcast_to(value, shape) if np.ndim(value) == 0 else value


def _from(x: Array, axis: int, start: int | None, stop: int | None) -> Tensor:
    return getitem(x, (slice(None),) * axis + (slice(start, stop),))


@derived
def ediff1d(x: Array, to_end: Array = None, to_begin: Array = None) -> Tensor:
    """The differences of neighbours in the flattened array, with to_begin before and to_end after them."""
    differences = diff(reshape(x, (np.size(x),)))
    ends = [None if e is None else reshape(e, (np.size(e),)) for e in (to_begin, to_end)]
    return concatenate([part for part in (ends[0], differences, ends[1]) if part is not None])


@derived
def trapezoid(y: Array, x: Array = None, dx: Array = 1.0, axis: int = -1) -> Tensor:
    """The integral of y over x (or steps dx) along an axis, by the trapezoidal rule; differentiable by x too.

    >>> trapezoid([0.0, 1.0, 4.0])
    tensor(3.)
    """
    axis = normalize_axis_index(axis, np.ndim(y))
    if x is not None and np.ndim(x) == 1:
        dx = reshape(diff(x), tuple(-1 if i == axis else 1 for i in range(np.ndim(y))))
    elif x is not None:
        dx = diff(x, axis=axis)
    return sum(dx * (_from(y, axis, 1, None) + _from(y, axis, None, -1)) / 2.0, axis)


@derived
def gradient(x: Array, *spacing: Array, axis: Array = None, edge_order: int = 1) -> Any:
    """numpy.gradient: slopes along each axis, from the parabola through each element and its two neighbours.

    spacing: none (1), one number for all axes, or for each axis a number or its coordinates; constants.
    edge_order: 1 or 2, of the one-sided differences at the ends. A tuple of tensors unless there is but one axis.

    >>> gradient([0.0, 1.0, 4.0, 9.0])
    tensor([1., 2., 4., 5.])
    """
    axes = normalize_axis_tuple(range(np.ndim(x)) if axis is None else axis, np.ndim(x))
    if len(spacing) == 1 and np.ndim(spacing[0]) == 0:
        spacing = spacing * len(axes)
    if spacing and len(spacing) != len(axes):
        raise TypeError(f"gradient along {len(axes)} axes: give no spacing, one number, or one spacing for each")
    slopes = [_slopes(x, h, a, edge_order) for a, h in zip(axes, spacing or (1.0,) * len(axes))]
    return slopes[0] if len(slopes) == 1 else tuple(slopes)


def _slopes(x: Array, spacing: Array, axis: int, edge_order: int) -> Tensor:
    n = np.shape(x)[axis]
    if edge_order not in (1, 2):
        raise ValueError(f"gradient has an edge_order of 1 or 2, not {edge_order}")
    if n <= edge_order:
        raise ValueError(f"gradient with edge_order {edge_order} needs more than {edge_order} elements, and has {n}")
    spacing = np.asarray(spacing)
    spacing = spacing.astype(float) if spacing.dtype.kind in "iub" else spacing
    h = np.diff(spacing) if spacing.ndim else np.full(n - 1, float(spacing))
    if h.shape != (n - 1,):
        raise ValueError(f"gradient along an axis of {n} needs as many coordinates, not shape {np.shape(spacing)}")
    x = moveaxis(x, axis, -1)
    h = h.astype(x.dtype if x.dtype.kind == "f" else float)
    before, after = h[:-1], h[1:]
    inner = _weighted(
        x,
        (slice(None, -2), -after / (before * (before + after))),
        (slice(1, -1), (after - before) / (before * after)),
        (slice(2, None), before / (after * (before + after))),
    )
    return moveaxis(
        concatenate([_edge(x, h, edge_order), inner, -_edge(x[..., ::-1], h[::-1], edge_order)], -1), -1, axis
    )


def _edge(x: Tensor, h: np.ndarray, edge_order: int) -> Tensor:
    """The slope at the first element: of the line to the second, or of the parabola through the first three."""
    if edge_order == 1:
        return _weighted(x, (slice(0, 1), -1 / h[:1]), (slice(1, 2), 1 / h[:1]))
    a, b = h[:1], h[1:2]
    return _weighted(
        x,
        (slice(0, 1), -(2 * a + b) / (a * (a + b))),
        (slice(1, 2), (a + b) / (a * b)),
        (slice(2, 3), -a / (b * (a + b))),
    )


def _weighted(x: Tensor, *terms: tuple[slice, np.ndarray]) -> Tensor:
    first, *others = [multiply(x[..., part], weight) for part, weight in terms if weight.any() or not weight.size]
    for term in others:
        first = first + term
    return first


@derived
def interp(x: Array, xp: Array, fp: Array, left: Array = None, right: Array = None) -> Tensor:
    """The piecewise linear function through the points (xp, fp), at x; float64 (or complex128), as NumPy's.

    xp: increasing, constant. left, right: the values below and above xp, which otherwise are those at its ends.
    """
    xp, at = np.asarray(constant(xp, "interp", "xp")).astype(float), x._array if isinstance(x, Tensor) else x
    start = np.clip(np.searchsorted(xp, at, side="right") - 1, 0, max(len(xp) - 2, 0))
    end = np.minimum(start + 1, len(xp) - 1)
    width = np.where(end == start, 1, xp[end] - xp[start])
    fp = astype(fp, np.complex128 if np.iscomplexobj(fp) else np.float64)
    y = fp[start] + (fp[end] - fp[start]) / width * (x - xp[start])
    y = where(np.less(at, xp[0]), fp[0] if left is None else left, y)
    return where(np.greater(at, xp[-1]), fp[-1] if right is None else right, y)


@derived
def linspace(
    start: Array, stop: Array, num: int = 50, endpoint: bool = True, retstep: bool = False, *, axis: int = 0
) -> Any:
    """num numbers from start to stop (without stop unless endpoint), evenly apart; with `retstep` the step as well.

    start and stop broadcast against each other; axis: the new one.

    >>> import minigrad as mg
    >>> mg.jacobian(lambda stop: linspace(0.0, stop, 3))(2.0)
    array([0. , 0.5, 1. ])
    """
    steps = num - 1 if endpoint else num
    start, stop = multiply(start, 1.0), multiply(stop, 1.0)  # integers as floats before they are subtracted
    width = stop - start
    parts = np.reshape(np.arange(num, dtype=width.dtype) / max(steps, 1), (num,) + (1,) * width.ndim)
    y = where(parts == 1, stop, start + parts * width)  # the last is stop itself, not nearly
    y = moveaxis(y, 0, axis)
    return (y, width / steps if steps > 0 else width * np.nan) if retstep else y


@derived
def polyval(p: Array, x: Array) -> Tensor:
    """The polynomial with the coefficients p, of the highest power first, at x: by Horner's rule.

    >>> polyval([1.0, 0.0, -2.0], 3.0)
    tensor(7.)
    """
    y = multiply(x, 0)
    for i in range(len(p)):
        y = y * x + p[i]
    return y
