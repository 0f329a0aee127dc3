"""Boolean masks: True means "may be attended to" or "is a real vector"."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad.nn.module import as_input
from minigrad.ops.elementwise import where
from minigrad.tensor import Tensor, TensorLike


def causal_mask(n_query: int, n_key: int | None = None) -> np.ndarray:
    """(query, key): a query may look at keys up to its own place; a short query stands at the end of long keys.

    >>> causal_mask(2, 4).astype(int)
    array([[1, 1, 1, 0],
           [1, 1, 1, 1]])
    """
    n_key = n_query if n_key is None else n_key
    return np.tri(n_query, n_key, n_key - n_query, dtype=bool)


def window_mask(n: int, neighbours: int) -> np.ndarray:
    """(query, key): a query may look at this many neighbours on each side, and at itself.

    >>> window_mask(3, 1).astype(int)
    array([[1, 1, 0],
           [1, 1, 1],
           [0, 1, 1]])
    """
    place = np.arange(n)
    near: np.ndarray = np.abs(place[:, None] - place) <= neighbours
    return near


def check_valid(valid: np.ndarray | None, shape: tuple[int, ...], name: str = "valid") -> None:
    """`valid` is None or a boolean array (batch, n) like the first two axes of `shape` (else TypeError, ValueError)."""
    if valid is None:
        return
    if getattr(valid, "dtype", None) != np.bool_:
        raise TypeError(f"{name} is a boolean array (True: a real vector), not {getattr(valid, 'dtype', type(valid))}")
    if valid.shape != shape[:2]:
        raise ValueError(f"{name} has shape {valid.shape}, and the vectors of shape {shape} need {shape[:2]}")


def at_entrance(x: TensorLike, valid: np.ndarray | None, dtype: np.dtype[Any]) -> Tensor:
    """x (batch, n, dim) as a tensor of a model's dtype with 0 in the place of padded vectors, whatever stood there."""
    t = as_input(x, dtype)
    if t.ndim != 3:
        raise ValueError(f"a model takes vectors of shape (batch, n, dim), and was given shape {t.shape}")
    check_valid(valid, t.shape)
    if valid is None:
        return t
    return where(valid[..., None], t, t.dtype.type(0))


def ids_at_entrance(ids: Any, valid: np.ndarray | None) -> Any:
    """ids (batch, n) or (batch, n, features) with 0 in the place of padding, where any number may stand (-1, -100)."""
    array: Any = ids if isinstance(ids, Tensor) else np.asarray(ids)
    check_valid(valid, array.shape)
    return array if valid is None else np.where(valid.reshape(valid.shape + (1,) * (array.ndim - 2)), array, 0)
