"""Functions that reduce axes: sums, means, extrema, products.

axis: None (all), an axis or a tuple of them; keepdims: keep the reduced axes, with size 1; initial: a constant that is
reduced too; where: a boolean array that broadcasts to x, True for the elements that count. The others do not matter,
whatever they are (NaN too), and get gradient 0.
"""

from __future__ import annotations

import math

import numpy as np

from minigrad.engine import Array
from minigrad.op import derived, op
from minigrad.ops.complexes import imag, real
from minigrad.ops.elementwise import sqrt, square
from minigrad.ops.elementwise import where as pick
from minigrad.ops.shapes import squeeze
from minigrad.tensor import Tensor


def axes_of(axis: Array, ndim: int) -> tuple[int, ...]:
    """The reduced axes as a tuple of non-negative numbers."""
    if axis is None or ndim == 0:  # NumPy lets a 0-d array be reduced over axis 0 and -1
        return tuple(range(ndim))
    return tuple(a % ndim for a in (axis if isinstance(axis, (tuple, list)) else (axis,)))


def unreduced(g: Array, x_shape: tuple[int, ...], axis: Array, keepdims: bool) -> Array:
    """A reduced array with its axes back, of size 1, so that it broadcasts against x."""
    if keepdims:
        return g
    axes = axes_of(axis, len(x_shape))
    return np.reshape(g, tuple(1 if i in axes else n for i, n in enumerate(x_shape)))


def count_of(x_shape: tuple[int, ...], axis: Array) -> int:
    """How many elements are reduced to one."""
    return math.prod(x_shape[i] for i in axes_of(axis, len(x_shape)))


def _spread(g: Array, x_shape: tuple[int, ...], axis: Array, keepdims: bool) -> Array:
    # Copied: matrix products read a stride-0 view many times more slowly than an array.
    return np.copy(np.broadcast_to(unreduced(g, x_shape, axis, keepdims), x_shape))


def _masked(x: Array, where: Array, fill: float = 0) -> Array:
    """x, with `fill` where it does not count."""
    return x if where is True else np.where(where, x, fill)


@op
def sum(x: Array, axis: Array = None, keepdims: bool = False, initial: Array = None, where: Array = True) -> Array:
    """The sum over axes; 0 over none.

    >>> import minigrad as mg
    >>> sum(mg.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    tensor([4., 6.])
    """
    if where is True and initial is None:
        return np.sum(x, axis=axis, keepdims=keepdims)
    return np.sum(x, axis=axis, keepdims=keepdims, **given(initial, where))


def given(initial: Array, where: Array) -> dict[str, Array]:
    """The keywords for NumPy's function."""
    return {"where": where} if initial is None else {"where": where, "initial": initial}


sum.rule(x=lambda g, x_shape, axis, keepdims, where: _masked(_spread(g, x_shape, axis, keepdims), where))


@op
def mean(x: Array, axis: Array = None, keepdims: bool = False, where: Array = True) -> Array:
    """The mean over axes; NaN, with NumPy's warning, over none."""
    if where is True:
        return np.mean(x, axis=axis, keepdims=keepdims)
    return np.mean(x, axis=axis, keepdims=keepdims, where=where)


def _mean_rule(g: Array, x_shape: tuple[int, ...], axis: Array, keepdims: bool, where: Array) -> Array:
    if where is True:
        return _spread(g, x_shape, axis, keepdims) * (1.0 / (count_of(x_shape, axis) or 1))
    share = (1.0 / np.maximum(_counts(x_shape, axis, where), 1)).astype(g.dtype)  # halves end before counts do
    return _masked(_spread(unreduced(g, x_shape, axis, keepdims) * share, x_shape, axis, True), where)


def _counts(x_shape: tuple[int, ...], axis: Array, where: Array) -> np.ndarray:
    """How many elements count, with the reduced axes kept."""
    counts: np.ndarray = np.sum(np.broadcast_to(where, x_shape), axis=axis, keepdims=True)
    return counts


mean.rule(x=_mean_rule)


@derived
def var(x: Array, axis: Array = None, ddof: int = 0, keepdims: bool = False, where: Array = True) -> Tensor:
    """The variance over axes: the mean of |x - mean|**2 (real for complex x too), with n - ddof in the place of n."""
    if where is not True:
        return _masked_var(x, axis, ddof, keepdims, where)
    deviation = x - mean(x, axis, keepdims=True)
    n = count_of(np.shape(x), axis) - ddof
    return sum(_squared_size(deviation), axis, keepdims) * (1.0 / n if n > 0 else np.inf)  # NumPy's: inf, or NaN for 0


def _squared_size(x: Tensor) -> Tensor:
    """|x|**2, which is real for complex x."""
    return square(real(x)) + square(imag(x)) if x.dtype.kind == "c" else square(x)


def _masked_var(x: Array, axis: Array, ddof: int, keepdims: bool, where: Array) -> Tensor:
    x = pick(where, x, 0.0)
    deviation = x - mean(x, axis, keepdims=True, where=where)
    total = sum(_squared_size(deviation), axis, True, where=where)
    n = np.maximum(_counts(np.shape(x), axis, where) - ddof, 0).astype(total.dtype)
    y = total / n
    return y if keepdims else squeeze(y, axes_of(axis, np.ndim(x)))


@derived
def std(x: Array, axis: Array = None, ddof: int = 0, keepdims: bool = False, where: Array = True) -> Tensor:
    """The standard deviation over axes. Its gradient where all values are equal is 0."""
    return root_of_variance(var(x, axis, ddof, keepdims, where))


def root_of_variance(variance: Tensor) -> Tensor:
    """The square root, with gradient 0 at 0: a deviation has its minimum there."""
    constant = variance == 0
    return pick(constant, 0.0, sqrt(pick(constant, 1.0, variance)))


@op
def max(x: Array, axis: Array = None, keepdims: bool = False, initial: Array = None, where: Array = True) -> Array:
    """The largest element over axes; elements that tie share the gradient evenly. ValueError over none.

    initial: a constant that takes part. With `where` it is needed, for the case that nothing counts.
    """
    if where is True and initial is None:
        return np.max(x, axis=axis, keepdims=keepdims)
    return np.max(x, axis=axis, keepdims=keepdims, **given(initial, where))


@op
def min(x: Array, axis: Array = None, keepdims: bool = False, initial: Array = None, where: Array = True) -> Array:
    """The smallest element over axes; elements that tie share the gradient evenly. ValueError over none.

    initial: a constant that takes part. With `where` it is needed, for the case that nothing counts.
    """
    if where is True and initial is None:
        return np.min(x, axis=axis, keepdims=keepdims)
    return np.min(x, axis=axis, keepdims=keepdims, **given(initial, where))


def share_of_extrema(x: Array, top: Array, axis: Array, initial: Array, where: Array, at_least: int = 0) -> np.ndarray:
    """What part of the gradient each element gets: those that equal the extremum (and `initial`) share it evenly."""
    chosen = x == top
    if where is not True:
        chosen = np.logical_and(chosen, where)
    n = np.sum(chosen, axis=axis, keepdims=True, dtype=np.promote_types(top.dtype, np.float32))  # halves end at 65504
    if initial is not None:
        n = n + (top == initial)
    share: np.ndarray = chosen / (np.maximum(n, at_least) if at_least else n)
    return share.astype(top.dtype, copy=False)


def _to_extrema(g: Array, x: Array, y: Array, axis: Array, keepdims: bool, initial: Array, where: Array) -> Array:
    share = share_of_extrema(x, unreduced(y, x.shape, axis, keepdims), axis, initial, where)
    return unreduced(g, x.shape, axis, keepdims) * share


max.rule(x=_to_extrema)
min.rule(x=_to_extrema)
amax, amin = max, min


@derived
def ptp(x: Array, axis: Array = None, keepdims: bool = False) -> Tensor:
    """Peak to peak: the largest element over axes less the smallest."""
    return max(x, axis, keepdims) - min(x, axis, keepdims)


@op
def prod(x: Array, axis: Array = None, keepdims: bool = False, initial: Array = None, where: Array = True) -> Array:
    """The product over axes; 1 over none. Its gradient is right with zeros among the factors."""
    if where is True and initial is None:
        return np.prod(x, axis=axis, keepdims=keepdims)
    return np.prod(x, axis=axis, keepdims=keepdims, **given(initial, where))


def _prod_rule(g: Array, x: Array, axis: Array, keepdims: bool, initial: Array, where: Array) -> Array:
    """Each factor's gradient is the product of the others: of those before it and those after it, without division."""
    axes = axes_of(axis, x.ndim)
    rest = tuple(i for i in range(x.ndim) if i not in axes)
    kept_shape = tuple(x.shape[i] for i in rest)
    n = math.prod(x.shape[i] for i in axes)
    factors = np.reshape(np.transpose(_masked(x, where, 1), rest + axes), (*kept_shape, n))
    others = np.reshape(exclusive_products(factors), (*kept_shape, *(x.shape[i] for i in axes)))
    gx = np.transpose(others, np.argsort(rest + axes)) * unreduced(g, x.shape, axis, keepdims)
    return _masked(gx if initial is None else gx * initial, where)


def exclusive_products(x: Array) -> Array:
    """For each element the product of all others along the last axis, those before it times those after it.

    Exact with zeros, since nothing is divided.
    """
    return products_before(x) * np.flip(products_before(np.flip(x, -1)), -1)


def products_before(x: Array) -> Array:
    """For each element the product of those before it along the last axis, by doubling: log n steps.

    After step k, running holds the product of the (at most) 2^k elements before each position.
    """
    n = x.shape[-1]
    ones = np.ones((*x.shape[:-1], 1), x.dtype)
    running = np.concatenate([ones, x[..., :-1]], -1) if n else x
    step = 1
    while step < n:
        ahead = np.ones((*x.shape[:-1], step), x.dtype)
        running = running * np.concatenate([ahead, running[..., :-step]], -1)
        step *= 2
    return running


prod.rule(x=_prod_rule)


@op
def logsumexp(x: Array, axis: Array = None, keepdims: bool = False, where: Array = True) -> Array:
    """log(sum(e ** x)) over axes, without overflow; -inf, with gradient 0, where all x are -inf.

    >>> logsumexp([0.0, 100.0], where=np.array([True, False]))
    tensor(0.)
    """
    x = _masked(np.asarray(x) * 1.0, where, -np.inf)
    top = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, top.dtype.type(0))
    with np.errstate(divide="ignore"):
        y = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
    return y if keepdims else np.squeeze(y, axis=axes_of(axis, x.ndim))


def _logsumexp_rule(g: Array, x: Array, y: Array, axis: Array, keepdims: bool, where: Array) -> Array:
    total = unreduced(y, x.shape, axis, keepdims)
    weights = np.exp(_masked(x, where, -np.inf) - np.where(total == -np.inf, 0, total))  # 0 where all x are -inf
    norm = np.sum(weights, axis=axis, keepdims=True)  # 1, but for the rounding of a large y
    return unreduced(g, x.shape, axis, keepdims) * (weights / np.where(norm == 0, 1, norm))


logsumexp.rule(x=_logsumexp_rule)
