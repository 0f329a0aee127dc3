"""Cross-entropy of logits and integer labels, with label smoothing and rows that do not count.

With K classes and smoothing e, a row's loss is logsumexp(z) - (1 - e) z_label - (e / K) sum(z)
(Szegedy et al. 2016, arXiv:1512.00567, section 7), and its gradient is softmax(z) - (1 - e) onehot(label) - e / K.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from minigrad.engine import write
from minigrad.kernels.linear import rows, sums_of_rows
from minigrad.kernels.memory import empty
from minigrad.kernels.pieces import is_little, over_rows
from minigrad.kernels.softmax import CALM

# A logit takes about as long as so many multiplications of a matrix product.
_COST = 64


# What the way back needs: softmax (rows, classes), where in it each row's label stands, counted from its first element,
# and which rows count (None: all).
Residual = tuple[np.ndarray, np.ndarray, np.ndarray | None]


def forward(
    logits: np.ndarray, labels: np.ndarray, counted: np.ndarray | None, smoothing: float
) -> tuple[np.ndarray, Residual]:
    """The loss of every row, 0 where it does not count. logits: (..., classes); labels, counted: (...)."""
    leading, work = labels.shape, logits.size * _COST
    logits, labels = rows(logits), labels.reshape(-1).astype(np.intp, copy=False)
    if counted is not None:
        counted = counted.reshape(-1)
        labels = np.where(counted, labels, 0)
    places = labels + _starts(*logits.shape)
    if is_little(work):
        losses, softmax = _losses(logits, places, counted, smoothing)
        return losses, (softmax, places, counted)
    softmax, losses = empty(logits.shape, logits), empty(labels.shape, logits)

    def work_on(some: slice) -> None:
        counted_part = None if counted is None else counted[some]
        places_part = _places_of(some, places, logits.shape[1])
        _losses(logits[some], places_part, counted_part, smoothing, softmax[some], losses[some])

    over_rows(work_on, leading, work)
    return losses, (softmax, places, counted)


@functools.lru_cache(maxsize=16)
def _starts(n: int, classes: int) -> np.ndarray:
    """Where each row begins, counted from the first element."""
    return np.arange(n) * classes


def _places_of(some: slice, places: np.ndarray, classes: int) -> np.ndarray:
    """Those of some rows, counted from their first element."""
    part: np.ndarray = places[some] - (some.start or 0) * classes
    return part


@functools.cache
def _lowest(dtype: np.dtype[Any]) -> Any:
    return np.finfo(dtype).min


def _losses(
    logits: np.ndarray,
    places: np.ndarray,
    counted: np.ndarray | None,
    smoothing: float,
    z: np.ndarray | None = None,
    losses: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The loss of each row and softmax(logits), written to `losses` and to `z` where they are given.

    Logits are shifted so that nothing overflows: by that of the label, which keeps small losses exact, or, should
    another be far above it, by the largest, for which NumPy takes as long as for all the rest where rows are short.
    """
    if counted is not None:
        logits = np.where(counted[:, None], logits, 0)  # whatever stands there, NaN too, must not spread
    at_label = np.maximum(logits.reshape(-1)[places], _lowest(logits.dtype))  # -inf less -inf would warn
    z = np.subtract(logits, at_label[:, None], out=z)
    write(_shift_further, z, logits)
    at_label = z.reshape(-1)[places]
    mean = z.mean(-1) if smoothing else None
    np.exp(z, out=z)
    total = sums_of_rows(z)
    z /= total
    losses = np.log(total[:, 0], out=losses)
    losses -= at_label if mean is None else (1 - smoothing) * at_label + smoothing * mean
    if counted is not None:
        losses *= counted
    return losses, z


def _shift_further(z: np.ndarray, logits: np.ndarray) -> None:
    """z = logits less the largest of each row, if e^z would not be safe else."""
    if z.size and z.dtype.itemsize >= 4 and np.maximum.reduce(z, None) < CALM:  # which NaN is not
        return
    top = np.maximum.reduce(logits, -1, keepdims=True, initial=None if logits.size else -np.inf)
    np.subtract(logits, top, out=z)


def backward(g: np.ndarray, residual: Residual, smoothing: float, leading: tuple[int, ...]) -> np.ndarray:
    """The gradient of the logits (rows, classes), given that of every row's loss: (rows,), or () if all are alike.

    leading: the axes that were made one.
    """
    softmax, places, counted = residual
    if counted is not None:
        g = np.where(counted, g, 0)
    gz, work = empty(softmax.shape, softmax), softmax.size * _COST
    if is_little(work):
        return _pull(g, softmax, places, smoothing, gz)

    def pull(some: slice) -> None:
        places_part = _places_of(some, places, softmax.shape[1])
        _pull(g[some] if g.ndim else g, softmax[some], places_part, smoothing, gz[some])

    over_rows(pull, leading, work)
    return gz


def _pull(g: np.ndarray, softmax: np.ndarray, places: np.ndarray, smoothing: float, gz: np.ndarray) -> np.ndarray:
    """The gradient of some rows, written to gz, whose rows are contiguous."""
    of_row = g[:, None] if g.ndim else g
    np.multiply(softmax, of_row, out=gz)
    gz.reshape(-1)[places] -= g if not smoothing else (1 - smoothing) * g
    if smoothing:
        gz -= (smoothing / softmax.shape[-1]) * of_row
    return gz
