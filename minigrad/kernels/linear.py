"""x @ weight + bias, and perhaps its positive part, as one matrix product over all leading axes."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np


def rows(x: np.ndarray) -> np.ndarray:
    """All axes but the last as one: (..., n) -> (product of the others, n)."""
    return x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


@functools.lru_cache(maxsize=64)
def _ones(n: int, dtype: np.dtype[Any]) -> np.ndarray:
    return np.ones(n, dtype)


def sum_of_rows(x: np.ndarray) -> np.ndarray:
    """(rows, n) -> (n,), as a matrix product, which is up to ten times as fast as adding them up."""
    return np.dot(_ones(len(x), x.dtype), x)  # type: ignore[no-any-return]


def sums_of_rows(x: np.ndarray) -> np.ndarray:
    """(..., n) -> (..., 1), as products as well; each row's is the same whatever rows stand beside it."""
    sums: np.ndarray = np.vecdot(x, _ones(x.shape[-1], x.dtype))
    return sums[..., None]


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
        sum_of_rows(g_rows) if wanted[2] else None,
    )
