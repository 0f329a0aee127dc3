"""Self-attention from the vectors themselves: q, k and v come from one product, and go back in one.

x: (..., n, dim); wq, wk: (dim, heads * key_dim); wv: (dim, heads * value_dim). Nothing is copied to split or to join
heads: they are views of the product, and of the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from minigrad.kernels import attention, linear
from minigrad.kernels.linear import rows
from minigrad.kernels.memory import empty


class Residual(NamedTuple):
    """What the way back needs."""

    projection: linear.Residual
    weights: np.ndarray  # wq, wk and wv side by side, (dim, heads * (2 key_dim + value_dim))
    attention: attention.Residual


def _heads(projected: np.ndarray, leading: tuple[int, ...], heads: int) -> np.ndarray:
    """(rows, heads * width) -> (..., heads, n, width), a view."""
    split = projected.reshape(*leading, heads, projected.shape[1] // heads)
    heads_first: np.ndarray = split.swapaxes(-3, -2)
    return heads_first


def _split(projected: np.ndarray, leading: tuple[int, ...], heads: int, keys: int) -> list[np.ndarray]:
    """q, k and v as views of the product; keys: heads * key_dim."""
    columns = (slice(keys), slice(keys, 2 * keys), slice(2 * keys, None))
    return [_heads(projected[:, column], leading, heads) for column in columns]


def forward(
    x: np.ndarray,
    wq: np.ndarray,
    wk: np.ndarray,
    wv: np.ndarray,
    heads: int,
    mask: np.ndarray | None,
    bias: np.ndarray | None,
    scale: float,
) -> tuple[np.ndarray, Residual]:
    """The output (..., n, heads * value_dim), and what the way back needs."""
    weights = np.concatenate((wq, wk, wv), 1)
    projected, projection = linear.forward(x, weights, None, False)
    q, k, v = _split(rows(projected), x.shape[:-1], heads, wq.shape[1])
    y = empty((*x.shape[:-1], wv.shape[1]), q)
    _, residual = attention.forward(q, k, v, mask, bias, scale, out=_heads(rows(y), x.shape[:-1], heads))
    return y, Residual(projection, weights, residual)


def backward(
    g: np.ndarray, residual: Residual, wanted: Sequence[bool], keys: int, heads: int, scale: float
) -> tuple[np.ndarray | None, ...]:
    """The gradients of x, wq, wk, wv and bias; keys: heads * key_dim."""
    gqkv, gbias = to_projections(g, residual, wanted[4], keys, heads, scale)
    wanted_here = (wanted[0], wanted[1] or wanted[2] or wanted[3], False)
    gx, gweights, _ = linear.backward(gqkv, residual.projection, wanted_here, residual.weights)
    if gweights is None:
        return gx, None, None, None, gbias
    return gx, gweights[:, :keys], gweights[:, keys : 2 * keys], gweights[:, 2 * keys :], gbias


def to_projections(
    g: np.ndarray, residual: Residual, bias_wanted: bool, keys: int, heads: int, scale: float
) -> tuple[np.ndarray, np.ndarray | None]:
    """The gradients of q, k and v side by side, (..., n, width), and of the bias; arguments as for backward."""
    leading = g.shape[:-1]
    gqkv = empty((*leading, residual.weights.shape[1]), g)
    out = _split(rows(gqkv), leading, heads, keys)
    g = _heads(rows(g), leading, heads)
    *_, gbias = attention.backward(g, residual.attention, (True, True, True, bias_wanted), scale, out=out)
    return gqkv, gbias
