"""Functions that reduce axes: sums, means, extrema, products.

axis: None (all), an axis or a tuple of them; keepdims: keep the reduced axes, with size 1.
"""

from __future__ import annotations

import math

import numpy as np

from minigrad.engine import Array
from minigrad.op import derived, op
from minigrad.ops.elementwise import sqrt, square, where


def axes_of(axis: Array, ndim: int) -> tuple[int, ...]:
    """The reduced axes as a tuple of non-negative numbers."""
    if axis is None:
        return tuple(range(ndim))
    return tuple(a % ndim for a in (axis if isinstance(axis, (tuple, list)) else (axis,)))


def unreduced(g: Array, x_shape: tuple[int, ...], axis: Array, keepdims: bool) -> Array:
    """A reduced array with its axes back, of size 1, so that it broadcasts against x."""
    if keepdims:
        return g
    axes = axes_of(axis, len(x_shape))
    return np.reshape(g, tuple(1 if i in axes else n for i, n in enumerate(x_shape)))


def _count(x_shape: tuple[int, ...], axis: Array) -> int:
    return math.prod(x_shape[i] for i in axes_of(axis, len(x_shape)))


def _spread(g: Array, x_shape: tuple[int, ...], axis: Array, keepdims: bool) -> Array:
    # Copied: matrix products read a stride-0 view many times more slowly than an array.
    return np.copy(np.broadcast_to(unreduced(g, x_shape, axis, keepdims), x_shape))


@op
def sum(x: Array, axis: Array = None, keepdims: bool = False) -> Array:
    """The sum over axes; 0 over none.

    >>> import minigrad as mg
    >>> sum(mg.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    tensor([4., 6.])
    """
    return np.sum(x, axis=axis, keepdims=keepdims)


sum.rule(x=_spread)


@op
def mean(x: Array, axis: Array = None, keepdims: bool = False) -> Array:
    """The mean over axes; NaN, with NumPy's warning, over none."""
    return np.mean(x, axis=axis, keepdims=keepdims)


mean.rule(
    x=lambda g, x_shape, axis, keepdims: _spread(g, x_shape, axis, keepdims) * (1.0 / (_count(x_shape, axis) or 1))
)


@derived
def var(x: Array, axis: Array = None, ddof: int = 0, keepdims: bool = False) -> Array:
    """The variance over axes: the mean squared deviation, with n - ddof in the place of n."""
    shape = np.shape(x)
    deviation = x - mean(x, axis, keepdims=True)
    n = _count(shape, axis)
    return sum(square(deviation), axis, keepdims) * (
        1.0 / (n - ddof) if n > ddof else np.inf
    )  # NumPy's: inf, or NaN for 0


@derived
def std(x: Array, axis: Array = None, ddof: int = 0, keepdims: bool = False) -> Array:
    """The standard deviation over axes. Its gradient where all values are equal is 0."""
    variance = var(x, axis, ddof, keepdims)
    constant = variance == 0
    return where(constant, 0.0, sqrt(where(constant, 1.0, variance)))


@op
def max(x: Array, axis: Array = None, keepdims: bool = False) -> Array:
    """The largest element over axes; elements that tie share the gradient evenly. ValueError over none."""
    return np.max(x, axis=axis, keepdims=keepdims)


@op
def min(x: Array, axis: Array = None, keepdims: bool = False) -> Array:
    """The smallest element over axes; elements that tie share the gradient evenly. ValueError over none."""
    return np.min(x, axis=axis, keepdims=keepdims)


def _to_extrema(g: Array, x: Array, y: Array, axis: Array, keepdims: bool) -> Array:
    chosen = x == unreduced(y, x.shape, axis, keepdims)
    share = chosen / np.sum(chosen, axis=axis, keepdims=True, dtype=y.dtype)
    return unreduced(g, x.shape, axis, keepdims) * share


max.rule(x=_to_extrema)
min.rule(x=_to_extrema)


@op
def prod(x: Array, axis: Array = None, keepdims: bool = False) -> Array:
    """The product over axes; 1 over none. Its gradient is right with zeros among the factors."""
    return np.prod(x, axis=axis, keepdims=keepdims)


def _prod_rule(g: Array, x: Array, axis: Array, keepdims: bool) -> Array:
    """Each factor's gradient is the product of the others: of those before it and those after it, without division."""
    axes = axes_of(axis, x.ndim)
    rest = tuple(i for i in range(x.ndim) if i not in axes)
    kept_shape = tuple(x.shape[i] for i in rest)
    n = math.prod(x.shape[i] for i in axes)
    factors = np.reshape(np.transpose(x, rest + axes), (*kept_shape, n))
    others = np.reshape(exclusive_products(factors), (*kept_shape, *(x.shape[i] for i in axes)))
    return np.transpose(others, np.argsort(rest + axes)) * unreduced(g, x.shape, axis, keepdims)


def exclusive_products(x: Array) -> Array:
    """For each element the product of all others along the last axis, by doubling: exact with zeros, log n steps.

    before holds the product of the 2^k elements before each position, running that of the 2^k elements up to it.
    """
    return _products_before(x) * np.flip(_products_before(np.flip(x, -1)), -1)


def _products_before(x: Array) -> Array:
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
def logsumexp(x: Array, axis: Array = None, keepdims: bool = False) -> Array:
    """log(sum(e ** x)) over axes, without overflow; -inf, with gradient 0, where all x are -inf."""
    x = np.asarray(x) * 1.0
    top = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, top.dtype.type(0))
    with np.errstate(divide="ignore"):
        y = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
    return y if keepdims else np.squeeze(y, axis=axes_of(axis, x.ndim))


def _logsumexp_rule(g: Array, x: Array, y: Array, axis: Array, keepdims: bool) -> Array:
    total = unreduced(y, x.shape, axis, keepdims)
    weights = np.exp(x - np.where(total == -np.inf, 0, total))  # 0 where all x are -inf
    norm = np.sum(weights, axis=axis, keepdims=True)  # 1, but for the rounding of a large y
    return unreduced(g, x.shape, axis, keepdims) * (weights / np.where(norm == 0, 1, norm))


logsumexp.rule(x=_logsumexp_rule)
