"""x @ weight + bias as one matrix product over all leading axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def rows(x: np.ndarray) -> np.ndarray:
    """All axes but the last as one: (..., n) -> (product of the others, n)."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def forward(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    y: np.ndarray = rows(x) @ weight
    if bias is not None:
        y = np.add(y, bias, out=y if bias.dtype == y.dtype else None)
    return y.reshape(*x.shape[:-1], weight.shape[-1])


def backward(
    g: np.ndarray, _: None, wanted: Sequence[bool], x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None
) -> tuple[np.ndarray | None, ...]:
    g_rows = rows(g)
    return (
        (g_rows @ weight.T).reshape(x.shape) if wanted[0] else None,
        rows(x).T @ g_rows if wanted[1] else None,
        g_rows.sum(0) if wanted[2] else None,
    )
