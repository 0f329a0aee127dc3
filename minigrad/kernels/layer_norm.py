"""Layer normalisation over the last axis (Ba, Kiros and Hinton 2016, arXiv:1607.06450)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minigrad.kernels.linear import rows, sum_of_rows, total
from minigrad.kernels.memory import empty
from minigrad.kernels.pieces import is_little, over_rows

Residual = tuple[np.ndarray, np.ndarray]

# An element takes about as long as so many multiplications of a matrix product.
_COST = 64


def forward(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, eps: float
) -> tuple[np.ndarray, Residual]:
    """The output, and (normalised x, 1 / deviation) for the way back."""
    if x.dtype.itemsize < 4:  # the squares of halves overflow from 256 on
        y, residual = forward(x.astype(np.float32), weight, bias, eps)
        return y.astype(np.result_type(*[a for a in (x, weight, bias) if a is not None])), residual
    work = x.size * _COST
    if is_little(work) or not _alike(x, weight, bias):
        normal, inverse, y = _normalise(x, weight, bias, eps)
        return y, (normal, inverse)
    x_rows = rows(x)
    normal, y, inverse = empty(x_rows.shape, x), empty(x_rows.shape, x), empty((len(x_rows), 1), x)
    over_rows(
        lambda some: _normalise(x_rows[some], weight, bias, eps, normal[some], inverse[some], y[some]),
        x.shape[:-1],
        work,
    )
    return y.reshape(x.shape), (normal.reshape(x.shape), inverse.reshape((*x.shape[:-1], 1)))


def _alike(x: np.ndarray, *others: np.ndarray | None) -> bool:
    return all(other is None or other.dtype == x.dtype for other in others)


def _normalise(
    x: np.ndarray,
    weight: np.ndarray | None,
    bias: np.ndarray | None,
    eps: float,
    normal: np.ndarray | None = None,
    inverse: np.ndarray | None = None,
    y: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(normalised x, 1 / deviation, output), written to the arrays given for them."""
    n = x.shape[-1]
    normal = np.subtract(x, x.mean(-1, keepdims=True), out=normal)
    variance = np.einsum("...i,...i->...", normal, normal)[..., None]
    variance /= n
    variance += eps
    np.sqrt(variance, out=variance)
    inverse = np.divide(1, variance, out=inverse)
    normal *= inverse
    if weight is None and bias is None and y is None:
        return normal, inverse, normal
    y = np.multiply(normal, 1 if weight is None else weight, out=y)
    if bias is not None:
        y = np.add(y, bias, out=None if bias.dtype != y.dtype else y)
    return normal, inverse, y


def backward(
    g: np.ndarray,
    residual: Residual,
    wanted: Sequence[bool],
    x: np.ndarray,
    weight: np.ndarray | None,
    bias: np.ndarray | None,
    eps: float,
) -> tuple[np.ndarray | None, ...]:
    """The gradients of x, weight and bias."""
    normal, inverse = residual
    work = x.size * _COST
    if is_little(work) or not _alike(x, g, normal, weight):
        return _pull(g, normal, inverse, wanted, weight)
    g, normal, inverse = rows(g), rows(normal), rows(inverse)
    gx = empty(g.shape, g) if wanted[0] else None

    def pull(some: slice) -> tuple[np.ndarray | None, ...]:
        return _pull(g[some], normal[some], inverse[some], wanted, weight, None if gx is None else gx[some])

    _, gweights, gbiases = zip(*over_rows(pull, x.shape[:-1], work))
    return None if gx is None else gx.reshape(x.shape), total(gweights), total(gbiases)


def _pull(
    g: np.ndarray,
    normal: np.ndarray,
    inverse: np.ndarray,
    wanted: Sequence[bool],
    weight: np.ndarray | None,
    gx: np.ndarray | None = None,
) -> tuple[np.ndarray | None, ...]:
    """dx = (gn - mean(gn) - normal * mean(gn * normal)) / deviation, with gn the gradient of the normalised x."""
    gweight = None
    if wanted[0]:
        gn = g if weight is None else g * weight
        along = np.einsum("...i,...i->...", gn, normal)[..., None]
        along /= g.shape[-1]
        gx = np.subtract(gn, gn.mean(-1, keepdims=True), out=gx)
        gx -= normal * along
        gx *= inverse
    if wanted[1]:
        gweight = np.einsum("ri,ri->i", rows(g), rows(normal))
    return gx, gweight, sum_of_rows(rows(g)) if wanted[2] else None
