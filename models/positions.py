"""Where a vector stands: sinusoidal or learned vectors to be added, or a learned bias on the scores by distance."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import DTypeLike

from minigrad import nn
from minigrad.nn import init
from minigrad.ops.indexing import embedding
from minigrad.ops.linalg import matmul
from minigrad.ops.shapes import reshape
from minigrad.tensor import Tensor


def numbers(n: int, valid: np.ndarray | None, start: int = 0) -> np.ndarray:
    """Position numbers (n,), or (batch, n) counted over the real vectors, so that padding on a side changes nothing.

    >>> numbers(4, np.array([[False, True, True, True]]))
    array([[0, 0, 1, 2]])
    """
    if valid is None:
        return np.arange(start, start + n)
    counted: np.ndarray = start + np.maximum(valid.cumsum(-1) - 1, 0)
    return counted


def sinusoids(places: np.ndarray, dim: int) -> np.ndarray:
    """sin and cos of the place at wavelengths from 2 pi to 20000 pi: (..., dim) for places (...).

    Vaswani et al. 2017, section 3.5: PE(p, 2i) = sin(p / 10000^(2i / dim)), PE(p, 2i + 1) = cos of the same.
    """
    rates = 10000.0 ** (-np.arange(0, dim, 2) / dim)
    angles = np.asarray(places)[..., None] * rates
    vectors = np.empty((*angles.shape[:-1], dim))
    vectors[..., 0::2] = np.sin(angles)
    vectors[..., 1::2] = np.cos(angles[..., : dim // 2])
    return vectors


class Sinusoidal(nn.Module):
    """Adds `scale` times the sinusoids of each vector's place. x: (batch, n, dim)."""

    def __init__(self, dim: int, scale: float = 1.0):
        self.dim, self.scale = dim, scale

    def forward(self, x: Tensor, valid: np.ndarray | None = None, start: int = 0) -> Tensor:
        places = numbers(x.shape[1], valid, start)
        return x + embedding(_scaled_sinusoids(start + x.shape[1], self.dim, self.scale, x.dtype), places)


@lru_cache(maxsize=64)
def _scaled_sinusoids(n: int, dim: int, scale: float, dtype: np.dtype[np.floating]) -> np.ndarray:
    return (scale * sinusoids(np.arange(n), dim)).astype(dtype)


class Learned(nn.Module):
    """Adds a learned vector for each of the first `max_length` places; ValueError for more real vectors than that."""

    def __init__(
        self, max_length: int, dim: int, *, rng: np.random.Generator | None = None, dtype: DTypeLike = np.float32
    ):
        self.table = nn.Embedding(max_length, dim, deviation=dim**-0.5, rng=rng, dtype=dtype)
        self.max_length = max_length

    def forward(self, x: Tensor, valid: np.ndarray | None = None, start: int = 0) -> Tensor:
        places = numbers(x.shape[1], valid, start)
        if isinstance(places, np.ndarray) and places.size and places.max() >= self.max_length:
            raise ValueError(
                f"learned positions reach {self.max_length} vectors, and the sequence has {places.max() + 1}: "
                "make the model with a larger max_length"
            )
        return x + self.table(places)


# Where heads start to look, nearest first; the rest of them start undecided.
_NEAR = (-1, 1, -2, 2, 0, -3)


class Relative(nn.Module):
    """A learned bias per head and distance, to be added to the scores; distances beyond `clip` share one.

    Clipped distances: Shaw et al. 2018, arXiv:1803.02155. The first three quarters of the heads (one at least, six at
    most) start with +`strength` on one near distance each, so that they look at that neighbour from the beginning.
    """

    def __init__(self, heads: int, clip: int = 8, *, strength: float = 4.0, dtype: DTypeLike = np.float32):
        table = init.zeros((heads, 2 * clip + 1), dtype)
        for head, distance in zip(range(max(1, 3 * heads // 4)), _NEAR):
            if abs(distance) <= clip:
                table[head, clip + distance] = strength
        self.table = nn.Parameter(table)
        self.clip = clip

    def forward(self, n_query: int, n_key: int) -> Tensor:
        """(heads, query, key); a short query stands at the end of long keys."""
        chosen = _one_hot_distances(n_query, n_key, self.clip, self.table.dtype)
        return reshape(matmul(self.table, chosen), (self.table.shape[0], n_query, n_key))


@lru_cache(maxsize=16)
def _one_hot_distances(n_query: int, n_key: int, clip: int, dtype: np.dtype[np.floating]) -> np.ndarray:
    """(2 clip + 1, query * key): a column with a single 1 for each pair, at its clipped distance.

    Looking up by a product makes the gradient a product too, which is much faster than scattering.
    """
    distance = np.arange(n_key) - np.arange(n_query)[:, None] - (n_key - n_query)
    row = np.clip(distance, -clip, clip) + clip
    chosen: np.ndarray = np.equal(np.arange(2 * clip + 1)[:, None], row.ravel()).astype(dtype)
    return chosen
