"""softmax(scale * q k^T + bias) v, forward and backward, on arrays.

q: (..., query, key_dim); k: (..., key, key_dim); v: (..., key, value_dim).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minigrad.kernels import attention_blockwise as blockwise
from minigrad.kernels.softmax import normalised_exp

Residual = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | blockwise.Residual

# From this many scores on, and this many keys a row, they are computed block by block and never kept: about where that
# begins to take less time than passes over arrays that no cache holds (16 MB of float32).
LONG, LONG_ROW = 2**22, 512


def is_long(q: np.ndarray, k: np.ndarray) -> bool:
    """Whether the scores are too many to be there at once."""
    scores_by_dim = max(q.size * k.shape[-2], k.size * q.shape[-2])  # the larger of the two has the whole batch
    return bool(k.shape[-2] >= LONG_ROW and scores_by_dim >= LONG * q.shape[-1] > 0)


def without_dead_rows(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """0 in the place of keys that nobody may look at and of queries that may look at nothing.

    Their weights are 0 anyway, but 0 times a NaN or an infinity in the padding would not be.
    """
    looked_at = mask.any(-2, keepdims=True).swapaxes(-1, -2)
    if not looked_at.all():
        k, v = np.where(looked_at, k, 0), np.where(looked_at, v, 0)
    looking = mask.any(-1, keepdims=True)
    if not looking.all():
        q = np.where(looking, q, 0)
    return q, k, v


def forward(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray | None,
    bias: np.ndarray | None,
    scale: float,
    out: np.ndarray | None = None,
) -> tuple[np.ndarray, Residual]:
    """The output, written to `out` if there is one, and what the way back needs: (weights, q, k, v) if they are few."""
    if is_long(q, k):
        return blockwise.forward(q, k, v, mask, bias, scale, out)
    if mask is not None:
        q, k, v = without_dead_rows(q, k, v, mask)
    scores = q @ k.swapaxes(-1, -2)
    if scale != 1:
        scores *= scores.dtype.type(scale)
    if bias is not None:
        scores = np.add(scores, bias, out=scores if bias.dtype == scores.dtype else None)
    if mask is not None:
        np.copyto(scores, -np.inf, where=~mask)
    hiding = mask is not None or bias is not None or not scores.shape[-1]
    top = np.maximum.reduce(scores, -1, keepdims=True, initial=-np.inf if hiding else None)
    if hiding:
        top[top == -np.inf] = 0  # a row with nothing to attend to: its weights become 0
    scores -= top
    weights = normalised_exp(scores, -1, hiding)
    return np.matmul(weights, v, out=out), (weights, q, k, v)


def backward(
    g: np.ndarray,
    residual: Residual,
    wanted: Sequence[bool],
    scale: float,
    out: Sequence[np.ndarray | None] = (None, None, None),
) -> tuple[np.ndarray | None, ...]:
    """The gradients of q, k, v and bias; those of q, k and v written to `out` where it holds arrays.

    With P the weights: dP = g v^T, and the softmax's rule gives dS = P * (dP - rowsum(P * dP)) for the scores.
    """
    if isinstance(residual, blockwise.Residual):
        return blockwise.backward(g, residual, wanted, out)
    weights, q, k, v = residual
    gv = np.matmul(weights.swapaxes(-1, -2), g, out=out[2]) if wanted[2] else None
    if not (wanted[0] or wanted[1] or wanted[3]):
        return None, None, gv, None
    gs = g @ v.swapaxes(-1, -2)
    gs -= np.einsum("...ij,...ij->...i", gs, weights)[..., None]
    gs *= weights
    gbias = gs
    if scale != 1 and (wanted[0] or wanted[1]):
        gs = np.multiply(gs, gs.dtype.type(scale), out=None if wanted[3] else gs)
    gq = np.matmul(gs, k, out=out[0]) if wanted[0] else None
    gk = np.matmul(gs.swapaxes(-1, -2), q, out=out[1]) if wanted[1] else None
    return gq, gk, gv, gbias if wanted[3] else None
