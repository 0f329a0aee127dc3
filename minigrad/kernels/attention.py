"""softmax(scale * q k^T + bias) v, forward and backward, on arrays.

q: (..., query, key_dim); k: (..., key, key_dim); v: (..., key, value_dim).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad.engine import write
from minigrad.kernels import attention_blockwise as blockwise
from minigrad.kernels.memory import empty
from minigrad.kernels.pieces import Cut, cut_batch, is_little
from minigrad.kernels.softmax import is_calm, normalised_exp

Residual = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | blockwise.Residual

# From this many scores on, and this many keys a row, they are computed block by block and never kept. Up to there
# keeping them is as fast or faster, for the passes over them take no longer than computing them again.
LONG, LONG_ROW = 2**22, 512


def is_long(q: np.ndarray, k: np.ndarray) -> bool:
    """Whether the scores are too many to be there at once."""
    if k.shape[-2] < LONG_ROW:
        return False
    scores_by_dim = max(q.size * k.shape[-2], k.size * q.shape[-2])  # the larger of the two has the whole batch
    return bool(scores_by_dim >= LONG * q.shape[-1] > 0)


def without_dead_rows(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray, pieces: Cut | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """0 in the place of keys that nobody may look at and of queries that may look at nothing.

    Their weights are 0 anyway, but 0 times a NaN or an infinity in the padding would not be.
    """
    looked_at = mask.any(-2, keepdims=True).swapaxes(-1, -2)
    if not looked_at.all():
        k, v = _only(looked_at, k, pieces), _only(looked_at, v, pieces)
    looking = mask.any(-1, keepdims=True)
    if not looking.all():
        q = _only(looking, q, pieces)
    return q, k, v


def _only(alive: Any, x: np.ndarray, pieces: Cut | None) -> np.ndarray:
    """x where `alive`, 0 elsewhere."""
    if pieces is None:
        return np.where(alive, x, 0)
    y = empty(x.shape, x)
    pieces.each(lambda part: _copy_alive(part(y), part(alive), part(x)))
    return y


def _copy_alive(y: np.ndarray, alive: Any, x: np.ndarray) -> None:
    np.copyto(y, 0)
    np.copyto(y, x, where=alive)


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
    pieces = _cut(q, k, v, bias)
    if mask is not None:
        q, k, v = without_dead_rows(q, k, v, mask, pieces)
    if pieces is None:
        y, weights = _attend(q, k, v, mask, bias, scale, out)
        return y, (weights, q, k, v)
    y = empty((*q.shape[:-1], v.shape[-1]), q) if out is None else out
    weights = empty((*q.shape[:-1], k.shape[-2]), q)
    pieces.each(lambda part: _attend(part(q), part(k), part(v), part(mask), part(bias), scale, part(y), part(weights)))
    return y, (weights, q, k, v)


def _cut(q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: np.ndarray | None) -> Cut | None:
    """How to cut a large batch; None for a small one, and where operands have batches or dtypes of their own."""
    work = q.size * k.shape[-2]
    if is_little(work):
        return None
    alike = q.shape[:-2] == k.shape[:-2] == v.shape[:-2] and q.dtype == k.dtype == v.dtype
    if not alike or (bias is not None and bias.dtype != q.dtype):
        return None
    return cut_batch(q.shape[:-2], 2, work)


def _attend(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray | None,
    bias: np.ndarray | None,
    scale: float,
    out: np.ndarray | None,
    weights: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The output and the weights, written to the arrays given for them."""
    scores = np.matmul(q, k.swapaxes(-1, -2), out=weights)
    if scale != 1:
        np.multiply(scores, scale, out=scores)
    if bias is not None:
        scores = np.add(scores, bias, out=scores if bias.dtype == scores.dtype else None)
    hiding = mask is not None or bias is not None or not scores.shape[-1]
    write(_shift, scores, mask, hiding)
    weights = normalised_exp(scores, -1, hiding)
    return np.matmul(weights, v, out=out), weights


def _shift(scores: np.ndarray, mask: np.ndarray | None, hiding: bool) -> None:
    """-inf under the mask; and each row less its maximum, if e^scores would not be safe else."""
    calm = is_calm(scores)
    if mask is not None:
        np.copyto(scores, -np.inf, where=~mask)
    if not calm:
        top = np.maximum.reduce(scores, -1, keepdims=True, initial=-np.inf if hiding else None)
        if hiding:
            top[top == -np.inf] = 0  # a row with nothing to attend to: its weights become 0
        scores -= top


def backward(
    g: np.ndarray,
    residual: Residual,
    wanted: Sequence[bool],
    scale: float,
    out: Sequence[np.ndarray | None] = (None, None, None),
) -> tuple[np.ndarray | None, ...]:
    """The gradients of q, k, v and bias; those of q, k and v written to `out` where it holds arrays."""
    if isinstance(residual, blockwise.Residual):
        return blockwise.backward(g, residual, wanted, out)
    weights, q, k, v = residual
    pieces = _cut(q, k, v, weights)
    if pieces is None:
        return _pull(g, weights, q, k, v, wanted, scale, (*out, None))
    gradients = tuple(
        (empty(x.shape, x) if given is None else given) if want else None
        for x, given, want in zip((q, k, v, weights), (*out, None), wanted)
    )
    pieces.each(
        lambda part: _pull(
            part(g), part(weights), part(q), part(k), part(v), wanted, scale, [part(x) for x in gradients]
        )
    )
    return gradients


def _pull(
    g: np.ndarray,
    weights: np.ndarray,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    wanted: Sequence[bool],
    scale: float,
    out: Sequence[np.ndarray | None],
) -> tuple[np.ndarray | None, ...]:
    """The gradients of q, k, v and bias, written to `out` where it holds arrays.

    With P the weights: dP = g v^T, and the softmax's rule gives dS = P * (dP - rowsum(P * dP)) for the scores.
    """
    gv = np.matmul(weights.swapaxes(-1, -2), g, out=out[2]) if wanted[2] else None
    if not (wanted[0] or wanted[1] or wanted[3]):
        return None, None, gv, None
    gs = np.matmul(g, v.swapaxes(-1, -2), out=out[3])
    gs -= np.vecdot(gs, weights)[..., None]
    gs *= weights
    gbias = gs
    if scale != 1 and (wanted[0] or wanted[1]):
        gs = np.multiply(gs, scale, out=None if wanted[3] else gs)
    gq = np.matmul(gs, k, out=out[0]) if wanted[0] else None
    gk = np.matmul(gs.swapaxes(-1, -2), q, out=out[1]) if wanted[1] else None
    return gq, gk, gv, gbias if wanted[3] else None
