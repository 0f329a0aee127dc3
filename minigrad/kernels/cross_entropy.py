"""Cross-entropy of logits and integer labels, with label smoothing and rows that do not count.

With K classes and smoothing e, a row's loss is logsumexp(z) - (1 - e) z_label - (e / K) sum(z)
(Szegedy et al. 2016, arXiv:1512.00567, section 7), and its gradient is softmax(z) - (1 - e) onehot(label) - e / K.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from minigrad.kernels.linear import sums_of_rows


class Residual(NamedTuple):
    """What the way back needs: softmax (rows, classes), labels (rows,), and which rows count (None: all)."""

    softmax: np.ndarray
    labels: np.ndarray
    counted: np.ndarray | None


def forward(
    logits: np.ndarray, labels: np.ndarray, counted: np.ndarray | None, smoothing: float
) -> tuple[np.ndarray, Residual]:
    """The loss of every row, 0 where it does not count. logits: (rows, classes); labels, counted: (rows,)."""
    if counted is not None:
        logits = np.where(counted[:, None], logits, 0)  # whatever stands there, NaN too, must not spread
        labels = np.where(counted, labels, 0)
    z = logits - np.maximum.reduce(logits, -1, keepdims=True, initial=None if logits.size else -np.inf)
    at = np.arange(len(labels))
    losses = -z[at, labels] if not smoothing else (smoothing - 1) * z[at, labels] - smoothing * z.mean(-1)
    np.exp(z, out=z)
    total = sums_of_rows(z)
    z /= total
    losses += np.log(total[:, 0])
    if counted is not None:
        losses *= counted
    return losses, Residual(z, labels, counted)


def backward(g: np.ndarray, residual: Residual, smoothing: float) -> np.ndarray:
    """The gradient of the logits (rows, classes), given that of every row's loss: (rows,), or () if all are alike."""
    softmax, labels, counted = residual.softmax, residual.labels, residual.counted
    if counted is not None:
        g = np.where(counted, g, 0)
    of_row = g[:, None] if g.ndim else g
    gz: np.ndarray = softmax * of_row
    gz[np.arange(len(labels)), labels] -= (1 - smoothing) * g
    if smoothing:
        gz -= (smoothing / softmax.shape[-1]) * of_row
    return gz
