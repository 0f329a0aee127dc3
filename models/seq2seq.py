"""Encoder and decoder: the model itself decides how many labels come out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from minigrad import nn
from minigrad.engine import no_grad
from minigrad.ops.fused import log_softmax
from minigrad.ops.linalg import matmul
from minigrad.ops.shapes import transpose
from minigrad.tensor import Tensor
from models.attention_stack import AttentionStack
from models.masks import causal_mask, ids_at_entrance


class Seq2Seq(nn.Module):
    """An encoder over the source, and a causal decoder with cross-attention to it; output and target share a table.

    n_source, n_target: sizes of the vocabularies, id 0 is padding in both. Other arguments as in AttentionStack.
    """

    def __init__(
        self,
        n_source: int,
        n_target: int,
        dim: int,
        *,
        blocks: int = 2,
        heads: int = 4,
        hidden: int | None = None,
        positions: str = "sinusoidal",
        max_length: int = 512,
        dropout: float = 0.0,
        rng: np.random.Generator | None = None,
        dtype: DTypeLike = np.float32,
    ):
        stack: dict[str, Any] = {
            "blocks": blocks,
            "heads": heads,
            "hidden": hidden,
            "positions": positions,
            "max_length": max_length,
            "dropout": dropout,
            "rng": rng,
            "dtype": dtype,
        }
        deviation = dim**-0.5  # multiplied by sqrt(dim) on the way in, as it is on its own the output layer's weight
        self.source = nn.Embedding(n_source, dim, padding_idx=0, deviation=deviation, rng=rng, dtype=dtype)
        self.target = nn.Embedding(n_target, dim, padding_idx=0, deviation=deviation, rng=rng, dtype=dtype)
        self.encoder = AttentionStack(dim, **stack)
        self.decoder = AttentionStack(dim, cross=True, **stack)
        self.dropout = nn.Dropout(dropout)
        self.root = math.sqrt(dim)

    def forward(
        self,
        source: np.ndarray,
        target: np.ndarray,
        *,
        source_valid: np.ndarray | None,
        target_valid: np.ndarray | None,
    ) -> Tensor:
        """Logits of each next symbol, (batch, m, n_target), when the decoder reads the right symbols (teacher forcing).

        source: ids (batch, n); target: ids (batch, m), beginning with the start symbol; *_valid: boolean, which of
        them are real (what stands elsewhere is not read); None: all.
        """
        context = self.encode(source, source_valid)
        vectors = self.dropout(self.target(ids_at_entrance(target, target_valid)) * self.root)
        mask = causal_mask(vectors.shape[1])
        h = self.decoder(vectors, valid=target_valid, mask=mask, context=context, context_valid=source_valid)
        return self._logits(h)

    def encode(self, source: np.ndarray, source_valid: np.ndarray | None) -> Tensor:
        """The source as vectors (batch, n, dim)."""
        vectors = self.dropout(self.source(ids_at_entrance(source, source_valid)) * self.root)
        return self.encoder(vectors, valid=source_valid)

    def _logits(self, h: Tensor) -> Tensor:
        return matmul(h, transpose(self.target.weight))

    def decoding(self, source: np.ndarray, source_valid: np.ndarray, never: Sequence[int] = ()) -> DecoderStep:
        """The step function for greedy and beam search over these sources; symbols in `never` get probability 0."""
        return DecoderStep(self, source, source_valid, never)


class DecoderStep:
    """ids (batch, length) -> log-probabilities (batch, n_target) of the next symbol, from caches of all before it."""

    @no_grad()
    def __init__(self, model: Seq2Seq, source: np.ndarray, source_valid: np.ndarray, never: Sequence[int] = ()):
        self._model, self._never = model, list(never)
        self._caches = model.decoder.caches(model.encode(source, source_valid), source_valid)
        self._seen = 0

    @no_grad()
    def __call__(self, ids: np.ndarray) -> np.ndarray:
        if ids.shape[1] != self._seen + 1:
            raise ValueError(f"this decoder has read {self._seen} symbols and reads one more, not up to {ids.shape[1]}")
        model = self._model
        vectors = model.target(ids[:, -1:]) * model.root
        h = model.decoder.step(vectors, self._caches, self._seen)
        self._seen += 1
        logp: np.ndarray = log_softmax(model._logits(h)[:, 0]).numpy().copy()
        logp[:, self._never] = -np.inf
        return logp

    def reorder(self, rows: np.ndarray) -> None:
        """Row i continues what row rows[i] has been."""
        for cache in self._caches:
            cache.reorder(rows)
