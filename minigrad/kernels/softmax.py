"""softmax and log-softmax along one axis, shifted by the maximum so that nothing overflows."""

from __future__ import annotations

import numpy as np

from minigrad.kernels.linear import sums_of_rows


def _shifted(x: np.ndarray, axis: int) -> np.ndarray:
    """x minus its maximum, as a new floating array; rows of -inf alone stay as they are."""
    top = x.max(axis, keepdims=True, initial=-np.inf) if x.dtype.kind == "f" else x.max(axis, keepdims=True)
    return x - np.where(np.isfinite(top), top, 0)


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """e^x / sum(e^x); 0 in a row of -inf alone."""
    if not x.ndim:  # what follows writes in place, and a number of NumPy's own has no place
        return softmax(x.reshape(1), axis).reshape(())
    y = _shifted(x, axis) * 1.0 if x.dtype.kind != "f" else _shifted(x, axis)
    return normalised_exp(y, axis, True)


# e^60 is far from overflow in float32 and e^-60 from losing digits, also summed over all rows there can be.
CALM = 60.0


def is_calm(scores: np.ndarray) -> bool:
    """Whether e^scores is safe as it is, so that rows need not be shifted by their maxima: two passes instead of three.

    (And NumPy takes several times as long for the maxima of short rows as for one of the whole.)
    """
    if not scores.size or scores.dtype.itemsize < 4:
        return False
    if scores.size <= CALM**2:
        flat = scores.reshape(-1)
        if flat.dot(flat) < CALM**2:  # no score is larger than the norm of all
            return True
    calm = np.minimum.reduce(scores, None) > -CALM and np.maximum.reduce(scores, None) < CALM  # False for NaN
    return bool(calm)


def normalised_exp(scores: np.ndarray, axis: int, may_be_nothing: bool) -> np.ndarray:
    """scores -> e^scores / sum(e^scores) in place; the caller has shifted them.

    may_be_nothing: there may be rows of -inf alone, which become 0.
    """
    np.exp(scores, out=scores)
    total = sums_of_rows(scores) if axis == -1 else np.add.reduce(scores, axis, keepdims=True)
    if may_be_nothing:
        total[total == 0] = 1
    scores /= total
    return scores


def log_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """x - log(sum(e^x))."""
    y = _shifted(x, axis)
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(y).sum(axis, keepdims=True))
    return y - np.where(total == -np.inf, 0, total)
