"""Self-attention from the vectors themselves: q, k and v come from one product, and go back in one.

x: (..., n, dim); wq, wk: (dim, heads * key_dim); wv: (dim, heads * value_dim). Nothing is copied to split or to join
heads: they are views of the product, and of the output.

With one head, q k^T = x (wq wk^T) x^T. Where x has many rows this is *folded*: x (wq wk^T) are the queries and x itself
the keys. That saves three products of all rows, one forward and one each to the gradients of x and of the weights, and
costs three of matrices of weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minigrad.kernels import attention, linear
from minigrad.kernels.memory import empty

# What the way back needs: of the projection; its weights side by side; of attention; and whether it is folded.
Residual = tuple[linear.Residual, np.ndarray, attention.Residual, bool]

# Multiplications that folding must save forward, or the calls that it adds would take longer.
WORTH = 2**18


def folds(x: np.ndarray, wq: np.ndarray, wk: np.ndarray, wv: np.ndarray, heads: int) -> bool:
    """Whether it pays to multiply the weights of queries and keys first, and their dtype has digits enough for it.

    Keys narrower than x would not pay: the scores themselves would be products of longer rows.
    """
    dim, keys = wq.shape
    if heads != 1 or dim > keys or x.size * (2 * keys - dim) - dim * dim * keys <= WORTH:
        return False
    return x.dtype.itemsize >= 4 and x.dtype is wq.dtype is wk.dtype is wv.dtype


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return linear.forward(a, b, None, False)[0]


def _heads(x: np.ndarray, heads: int) -> np.ndarray:
    """(..., n, heads * width) -> (..., heads, n, width), a view."""
    shape = x.shape
    split = x.reshape(shape[:-1] + (heads, shape[-1] // heads))
    heads_first: np.ndarray = split.swapaxes(-3, -2)
    return heads_first


def _split(projected: np.ndarray, x: np.ndarray | None, heads: int, keys: int) -> Sequence[np.ndarray]:
    """q, k and v as views of the product; of x, if it stands for the keys. keys: heads * key_dim."""
    if x is not None:
        dim = x.shape[-1]
        return [t[..., None, :, :] for t in (projected[..., :dim], x, projected[..., dim:])]
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
    folded = folds(x, wq, wk, wv, heads)
    weights = np.concatenate((_product(wq, wk.T), wv) if folded else (wq, wk, wv), 1)
    projected, projection = linear.forward(x, weights, None, False)
    q, k, v = _split(projected, x if folded else None, heads, wq.shape[1])
    dtype = projected.dtype if bias is None else np.result_type(projected.dtype, bias.dtype)
    y = empty((*x.shape[:-1], wv.shape[1]), projected, dtype)
    _, residual = attention.forward(q, k, v, mask, bias, scale, out=_heads(y, heads))
    return y, (projection, weights, residual, folded)


def backward(
    g: np.ndarray, residual: Residual, wanted: Sequence[bool], wq: np.ndarray, wk: np.ndarray, heads: int, scale: float
) -> tuple[np.ndarray | None, ...]:
    """The gradients of x, wq, wk, wv and bias."""
    projection, weights, *_ = residual
    gprojected, gkeys, gbias = to_projections(g, residual, (wanted[0], wanted[4]), wq.shape[1], heads, scale)
    wanted_here = (wanted[0], wanted[1] or wanted[2] or wanted[3], False)
    gx, gweights, _ = linear.backward(gprojected, projection, wanted_here, weights, gkeys)
    if gweights is None:
        return gx, None, None, None, gbias
    return gx, *to_weights(gweights, wq, wk, residual), gbias


def to_projections(
    g: np.ndarray, residual: Residual, wanted: tuple[bool, bool], keys: int, heads: int, scale: float
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """The gradients of the product, (..., n, width), of x as keys (None unless folded and wanted), and of the bias.

    wanted: whether those of x and of the bias are.
    """
    (x, _), weights, attended, folded = residual
    gprojected = empty((*g.shape[:-1], weights.shape[1]), g)
    gkeys = empty((*g.shape[:-1], x.shape[1]), g) if folded else None
    out = _split(gprojected, gkeys, heads, keys)
    needed = (True, wanted[0] or not folded, True, wanted[1])
    *_, gbias = attention.backward(_heads(g, heads), attended, needed, scale, out)
    return gprojected, gkeys if wanted[0] else None, gbias


def to_weights(
    gweights: np.ndarray, wq: np.ndarray, wk: np.ndarray, residual: Residual
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The gradients of wq, wk and wv from that of the weights side by side, (..., dim, width)."""
    dim, keys = wq.shape
    if not residual[-1]:
        return gweights[..., :keys], gweights[..., keys : 2 * keys], gweights[..., 2 * keys :]
    folded = gweights[..., :dim]
    return _product(folded, wk), _product(folded.swapaxes(-1, -2), wq), gweights[..., dim:]
