"""Self-attention from the vectors themselves: q, k and v come from one product, and go back in one.

x: (..., n, dim); wq, wk: (dim, heads * key_dim); wv: (dim, heads * value_dim). Nothing is copied to split or to join
heads: they are views of the product, and of the output.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minigrad.kernels import attention, linear
from minigrad.kernels.memory import empty

# What the way back needs: of the projection; wq, wk and wv side by side, (dim, heads * (2 key_dim + value_dim)); and of
# attention.
Residual = tuple[linear.Residual, np.ndarray, attention.Residual]


def _heads(x: np.ndarray, heads: int) -> np.ndarray:
    """(..., n, heads * width) -> (..., heads, n, width), a view."""
    shape = x.shape
    split = x.reshape(shape[:-1] + (heads, shape[-1] // heads))
    heads_first: np.ndarray = split.swapaxes(-3, -2)
    return heads_first


def _split(projected: np.ndarray, heads: int, keys: int) -> Sequence[np.ndarray]:
    """q, k and v as views of the product; keys: heads * key_dim."""
    if projected.shape[-1] == 3 * keys:  # they are alike, so it is three times as many heads
        every = _heads(projected, 3 * heads)
        return every[..., :heads, :, :], every[..., heads : 2 * heads, :, :], every[..., 2 * heads :, :, :]
    columns = (slice(keys), slice(keys, 2 * keys), slice(2 * keys, None))
    return [_heads(projected[..., column], heads) for column in columns]


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
    q, k, v = _split(projected, heads, wq.shape[1])
    y = empty((*x.shape[:-1], wv.shape[1]), q)
    _, residual = attention.forward(q, k, v, mask, bias, scale, out=_heads(y, heads))
    return y, (projection, weights, residual)


def backward(
    g: np.ndarray, residual: Residual, wanted: Sequence[bool], keys: int, heads: int, scale: float
) -> tuple[np.ndarray | None, ...]:
    """The gradients of x, wq, wk, wv and bias; keys: heads * key_dim."""
    projection, weights, _ = residual
    gqkv, gbias = to_projections(g, residual, wanted[4], keys, heads, scale)
    wanted_here = (wanted[0], wanted[1] or wanted[2] or wanted[3], False)
    gx, gweights, _ = linear.backward(gqkv, projection, wanted_here, weights)
    if gweights is None:
        return gx, None, None, None, gbias
    return gx, gweights[:, :keys], gweights[:, keys : 2 * keys], gweights[:, 2 * keys :], gbias


def to_projections(
    g: np.ndarray, residual: Residual, bias_wanted: bool, keys: int, heads: int, scale: float
) -> tuple[np.ndarray, np.ndarray | None]:
    """The gradients of q, k and v side by side, (..., n, width), and of the bias; arguments as for backward."""
    _, weights, attended = residual
    gqkv = empty((*g.shape[:-1], weights.shape[1]), g)
    wanted = (True, True, True, bias_wanted)
    *_, gbias = attention.backward(_heads(g, heads), attended, wanted, scale, out=_split(gqkv, heads, keys))
    return gqkv, gbias
