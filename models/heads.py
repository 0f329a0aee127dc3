"""What a model reads and says: word features or frames in; a label per vector, or one for the whole set, out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from minigrad import nn
from minigrad.ops.elementwise import where
from minigrad.tensor import Tensor, TensorLike
from models.masks import at_entrance, check_valid, ids_at_entrance


class SummedEmbedding(nn.Module):
    """The vector of a word: the sum of its features' embeddings, normalised.

    ids: integers (batch, n, features) below n; 0 is no feature. What stands in padding is not read.
    """

    def __init__(
        self,
        n: int,
        dim: int,
        *,
        features: int,
        dropout: float = 0.0,
        rng: np.random.Generator | None = None,
        dtype: DTypeLike = np.float32,
    ):
        self.embedding = nn.Embedding(n, dim, padding_idx=0, deviation=features**-0.5, rng=rng, dtype=dtype)
        self.norm = nn.LayerNorm(dim, dtype=dtype)
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids: np.ndarray, *, valid: np.ndarray | None = None) -> Tensor:
        """Vectors (batch, n, dim)."""
        return self.dropout(self.norm(self.embedding(ids_at_entrance(ids, valid)).sum(-2)))


class FrameProjection(nn.Module):
    """Frames (batch, n, features) projected to vectors (batch, n, dim)."""

    def __init__(
        self,
        features: int,
        dim: int,
        *,
        dropout: float = 0.0,
        rng: np.random.Generator | None = None,
        dtype: DTypeLike = np.float32,
    ):
        self.linear = nn.Linear(features, dim, rng=rng, dtype=dtype)
        self.dropout = nn.Dropout(dropout)

    def forward(self, frames: TensorLike, *, valid: np.ndarray | None = None) -> Tensor:
        return self.dropout(self.linear(at_entrance(frames, valid, self.linear.weight.dtype)))


class PerVector(nn.Module):
    """A label for every vector: inputs -> body -> linear. Returns logits (batch, n, labels).

    inputs and body are modules called (x, valid=...); body returns vectors of width dim.
    """

    def __init__(
        self,
        inputs: nn.Module,
        body: nn.Module,
        dim: int,
        labels: int,
        *,
        rng: np.random.Generator | None = None,
        dtype: DTypeLike = np.float32,
    ):
        self.inputs, self.body = inputs, body
        self.labels = nn.Linear(dim, labels, rng=rng, dtype=dtype)

    def forward(self, x: Any, *, valid: np.ndarray | None = None) -> Tensor:
        return self.labels(self.body(self.inputs(x, valid=valid), valid=valid))


class Single(nn.Module):
    """One label for the whole set: inputs -> body -> mean over the real vectors -> linear.

    Otherwise like PerVector. Returns logits (batch, labels).
    """

    def __init__(
        self,
        inputs: nn.Module,
        body: nn.Module,
        dim: int,
        labels: int,
        *,
        rng: np.random.Generator | None = None,
        dtype: DTypeLike = np.float32,
    ):
        self.inputs, self.body = inputs, body
        self.labels = nn.Linear(dim, labels, rng=rng, dtype=dtype)

    def forward(self, x: Any, *, valid: np.ndarray | None = None) -> Tensor:
        return self.labels(mean_pool(self.body(self.inputs(x, valid=valid), valid=valid), valid))


def mean_pool(h: Tensor, valid: np.ndarray | None) -> Tensor:
    """The mean of the real vectors of each set, (batch, dim); 0 for a set without any.

    >>> import minigrad as mg
    >>> h = mg.tensor([[[1.0, 0.0], [0.0, 2.0]]])
    >>> mean_pool(h, np.array([[True, False]]))
    tensor([[1., 0.]])
    """
    if valid is None:
        return h.sum(1) * (1 / max(h.shape[1], 1))
    check_valid(valid, h.shape)
    count: np.ndarray = np.maximum(valid.sum(1, keepdims=True), 1).astype(h.dtype)
    return where(valid[..., None], h, h.dtype.type(0)).sum(1) / count
