"""x @ weight + bias, and perhaps its positive part, as one matrix product over all leading axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def rows(x: np.ndarray) -> np.ndarray:
    """All axes but the last as one: (..., n) -> (product of the others, n)."""
    return x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def forward(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, relu: bool) -> np.ndarray:
    y: np.ndarray = rows(x) @ weight
    if bias is not None:
        y = np.add(y, bias, out=y if bias.dtype == y.dtype else None)
    if relu:
        np.maximum(y, 0, out=y)
    return y if x.ndim == 2 else y.reshape(x.shape[:-1] + y.shape[1:])


def backward(
    g: np.ndarray, y: np.ndarray | None, wanted: Sequence[bool], x: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray | None, ...]:
    """The gradients of x, weight and bias; y: the output if negative parts were cut off, else None."""
    g_rows = rows(g)
    if y is not None:
        g_rows = g_rows * (rows(y) > 0)
    return (
        (g_rows @ weight.T).reshape(x.shape) if wanted[0] else None,
        rows(x).T @ g_rows if wanted[1] else None,
        np.add.reduce(g_rows, 0) if wanted[2] else None,
    )
