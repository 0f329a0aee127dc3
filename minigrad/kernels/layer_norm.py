"""Layer normalisation over the last axis (Ba, Kiros and Hinton 2016, arXiv:1607.06450)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minigrad.kernels.linear import rows, sum_of_rows

Residual = tuple[np.ndarray, np.ndarray]


def forward(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, eps: float
) -> tuple[np.ndarray, Residual]:
    """The output, and (normalised x, 1 / deviation) for the way back."""
    n = x.shape[-1]
    normal = x - x.mean(-1, keepdims=True)
    inverse = np.einsum("...i,...i->...", normal, normal)[..., None]
    inverse /= n
    inverse += eps
    np.sqrt(inverse, out=inverse)
    np.divide(1, inverse, out=inverse)
    normal *= inverse
    y = normal if weight is None else normal * weight
    if bias is not None:
        y = np.add(y, bias, out=None if y is normal or bias.dtype != y.dtype else y)
    return y, (normal, inverse)


def backward(
    g: np.ndarray,
    residual: Residual,
    wanted: Sequence[bool],
    x: np.ndarray,
    weight: np.ndarray | None,
    bias: np.ndarray | None,
    eps: float,
) -> tuple[np.ndarray | None, ...]:
    """dx = (gn - mean(gn) - normal * mean(gn * normal)) / deviation, with gn the gradient of the normalised x."""
    normal, inverse = residual
    gx = gweight = None
    if wanted[0]:
        gn = g if weight is None else g * weight
        along = np.einsum("...i,...i->...", gn, normal)[..., None]
        along /= x.shape[-1]
        gx = gn - gn.mean(-1, keepdims=True)
        gx -= normal * along
        gx *= inverse
    if wanted[1]:
        gweight = np.einsum("ri,ri->i", rows(g), rows(normal))
    return gx, gweight, sum_of_rows(rows(g)) if wanted[2] else None
