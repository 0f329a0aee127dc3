"""The self-attention layer of the lecture, with heads, masks and the choices that it leaves open."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import DTypeLike

from minigrad import nn
from minigrad.nn import init
from minigrad.ops.elementwise import relu, tanh, where
from minigrad.ops.fused import attention, check_mask, self_attention, softmax
from minigrad.ops.linalg import matmul
from minigrad.ops.shapes import expand_dims, reshape, swapaxes
from minigrad.tensor import Tensor, TensorLike
from models.masks import at_entrance, check_valid
from models.positions import Relative

SCORES = ("scaled_dot", "dot", "additive")
NORMALISERS = ("softmax", "relu")


class SelfAttention(nn.Module):
    """Every vector asks (query), every vector is asked (key), and what it answers (value) is averaged by relevance.

    With row vectors and one head, for x (n, dim), in the lecture's letters: q = x Wq, k = x Wk, v = x Wv; alpha = q k^T
    (query, key), divided by sqrt(key_dim) when score is "scaled_dot"; alpha' = softmax of alpha over the keys;
    b = alpha' v.

    dim: width of the vectors; heads; key_dim, value_dim: widths per head (dim / heads unless given).
    score: "scaled_dot", "dot" (the lecture's), or "additive": u . tanh(q + k), with a learned u per head (Bahdanau et
    al. 2015). normalise: "softmax", or "relu" (which leaves the sum of the weights open).
    positions: None, "relative", or a Relative of as many heads.
    Returns (batch, n, dim); with one head, which has no output projection, (batch, n, value_dim).

    Hook points: x (batch, n, dim), the vectors that ask; q, k, v (batch, heads, n, width), 0 for vectors that may look
    at nothing or be looked at by none; scores, which are made of these, before the mask, and attn (batch, heads, query,
    key), their alpha and alpha'; out, the layer's output.
    """

    hook_points: ClassVar[tuple[str, ...]] = ("x", "q", "k", "v", "scores", "attn", "out")
    hook_aliases: ClassVar[Mapping[str, str]] = {"alpha": "scores", "alpha_prime": "attn", "b": "out"}
    branch: ClassVar[str] = "attention"

    def __init__(
        self,
        dim: int,
        heads: int = 1,
        *,
        key_dim: int | None = None,
        value_dim: int | None = None,
        score: str = "scaled_dot",
        normalise: str = "softmax",
        positions: Relative | str | None = None,
        rng: np.random.Generator | None = None,
        dtype: DTypeLike = np.float32,
    ):
        if score not in SCORES or normalise not in NORMALISERS:
            raise ValueError(f"score is in {SCORES} and normalise in {NORMALISERS}; given: {score!r}, {normalise!r}")
        if positions == "relative":
            positions = Relative(heads, dtype=dtype)
        if positions is not None and (not isinstance(positions, Relative) or len(positions.table) != heads):
            raise ValueError(
                f'positions of a SelfAttention is None, "relative" or a Relative of {heads} heads, not {positions!r}'
            )
        if dim < 1 or heads < 1:
            raise ValueError(f"a SelfAttention has a width and heads of at least 1, not {dim} and {heads}")
        if (key_dim is None or value_dim is None) and dim % heads:
            raise ValueError(f"{heads} heads do not divide a width of {dim}: pass key_dim and value_dim")
        self.heads, self.score, self.normalise = heads, score, normalise
        self.key_dim = dim // heads if key_dim is None else key_dim
        self.value_dim = dim // heads if value_dim is None else value_dim
        self.query = nn.Linear(dim, heads * self.key_dim, bias=False, rng=rng, dtype=dtype)
        self.key = nn.Linear(dim, heads * self.key_dim, bias=False, rng=rng, dtype=dtype)
        self.value = nn.Linear(dim, heads * self.value_dim, bias=False, rng=rng, dtype=dtype)
        self.output = nn.Linear(heads * self.value_dim, dim, bias=False, rng=rng, dtype=dtype) if heads > 1 else None
        if score == "additive":
            self.u = nn.Parameter(init.normal((heads, 1, self.key_dim), self.key_dim**-0.5, rng, dtype))
        self.positions = positions

    def forward(
        self,
        x: TensorLike,
        *,
        valid: np.ndarray | None = None,
        mask: np.ndarray | None = None,
        context: TensorLike | None = None,
        context_valid: np.ndarray | None = None,
        need_weights: bool = False,
        inside: bool = False,
    ) -> Any:
        """x: (batch, n, dim). Returns the output, or (output, weights (batch, heads, query, key)) when need_weights.

        valid: boolean (batch, n), which vectors are real. mask: boolean (query, key), (batch, query, key) or
        (batch, heads, query, key), who may look at whom. context: other vectors (batch, m, dim) to be asked instead
        (cross-attention), context_valid: which of them are real. A query that may look at nothing gets exactly 0.
        inside: the vectors are tensors from inside a model, whose padding has been made harmless at its entrance.
        """
        dtype = self.query.weight.dtype
        if context is None and context_valid is not None:
            raise ValueError("context_valid was given without a context: vectors that ask each other have one `valid`")
        x = cast(Tensor, x) if inside else at_entrance(x, valid, dtype)
        if context is not None:
            context = cast(Tensor, context) if inside else at_entrance(context, context_valid, dtype)
        x = self.tap("x", x)
        if context is None and not need_weights and self._is_plain() and not self._is_watched_inside():
            return self._at_once(x, self._mask(x.shape, (0, 0, x.shape[1]), mask, valid))
        asked, real_keys = (x, valid) if context is None else (context, context_valid)
        mask = self._mask(x.shape, (0, 0, asked.shape[1]), mask, real_keys)
        looked_at = None
        if mask is not None and self._shows_parts(need_weights):
            looked_at = np.swapaxes(mask.any(-2, keepdims=True), -1, -2)
        keys, values = self.keys_and_values(asked, looked_at)
        return self.look_up(x, keys, values, mask, need_weights)

    def _is_plain(self) -> bool:
        return self.score != "additive" and self.normalise == "softmax"

    def _is_watched_inside(self) -> bool:
        """Whether somebody watches what is not formed when all is computed at once."""
        hooked = (module._hooks is not None for module in (self.query, self.key, self.value))
        return self.is_watched("q", "k", "v", "scores", "attn") or any(hooked)

    def _at_once(self, x: Tensor, mask: np.ndarray | None) -> Tensor:
        """The output from one fused op, when nobody looks at what lies between."""
        weights = self.query.weight, self.key.weight, self.value.weight
        bias = self.positions(x.shape[1], x.shape[1]) if self.positions is not None else None
        y = self_attention(x, *weights, heads=self.heads, mask=mask, bias=bias, scale=self._scale())
        return self.tap("out", y if self.output is None else self.output(y))

    def _shows_parts(self, need_weights: bool) -> bool:
        """Whether what the fused op keeps to itself is computed here, or seen.

        It is then 0 for vectors that are never used, as in the op, since 0 times a NaN would not be 0.
        """
        return need_weights or not self._is_plain() or self.is_watched("q", "k", "v", "scores", "attn")

    def keys_and_values(self, context: Tensor, looked_at: np.ndarray | None = None) -> tuple[Tensor, Tensor]:
        """What the vectors to be asked answer with: (batch, heads, n, key_dim) and (batch, heads, n, value_dim).

        looked_at: which of them are asked by any, broadcast to (batch, heads, n, 1); 0 stands for the others.
        """
        keys, values = self._split_heads(self.key(context)), self._split_heads(self.value(context))
        if looked_at is not None:
            keys, values = where(looked_at, keys, 0.0), where(looked_at, values, 0.0)
        return self.tap("k", keys), self.tap("v", values)

    def look_up(
        self, x: Tensor, keys: Tensor, values: Tensor, mask: np.ndarray | None = None, need_weights: bool = False
    ) -> Any:
        """The output for queries from x (batch, n, dim). mask: boolean, broadcast to (batch, heads, query, key)."""
        queries = self._split_heads(self.query(x))
        if mask is not None and self._shows_parts(need_weights):
            queries = where(mask.any(-1, keepdims=True), queries, 0.0)
        queries = self.tap("q", queries)
        bias = self.positions(x.shape[1], keys.shape[2]) if self.positions is not None else None
        formed = need_weights or self.is_watched("scores", "attn")  # the fused op never forms them
        if self._is_plain() and not formed:
            fused = attention(queries, keys, values, mask=mask, bias=bias, scale=self._scale())
            return self.tap("out", self._join_heads(fused))
        weights = self.tap("attn", self._weights(queries, keys, mask, bias))
        output = self.tap("out", self._join_heads(matmul(weights, values)))
        return (output, weights) if need_weights else output

    def _scale(self) -> float:
        return 1 / math.sqrt(self.key_dim) if self.score == "scaled_dot" else 1.0

    def _weights(self, q: Tensor, k: Tensor, mask: np.ndarray | None, bias: Tensor | None) -> Tensor:
        """alpha', (batch, heads, query, key)."""
        if self.score == "additive":
            pairs = tanh(expand_dims(q, 3) + expand_dims(k, 2))  # (batch, heads, query, key, key_dim)
            scores = (pairs * expand_dims(self.u, 1)).sum(-1)
        else:
            scores = matmul(q, swapaxes(k, -1, -2)) * self._scale()
        if bias is not None:
            scores = scores + bias
        scores = self.tap("scores", scores)
        if self.normalise == "softmax":
            return softmax(scores if mask is None else where(mask, scores, scores.dtype.type(-np.inf)))
        weights = relu(scores)
        return weights if mask is None else where(mask, weights, weights.dtype.type(0))

    def _split_heads(self, x: Tensor) -> Tensor:
        batch, n, width = x.shape
        split = reshape(x, (batch, n, self.heads, width // self.heads))
        return swapaxes(split, 1, 2)  # (batch, heads, n, width per head)

    def _join_heads(self, x: Tensor) -> Tensor:
        batch, heads, n, width = x.shape
        joined = reshape(swapaxes(x, 1, 2), (batch, n, heads * width))
        return joined if self.output is None else self.output(joined)

    def _mask(
        self, x_shape: tuple[int, ...], k_shape: tuple[int, ...], mask: np.ndarray | None, real_keys: np.ndarray | None
    ) -> np.ndarray | None:
        """Both masks as one that broadcasts to (batch, heads, query, key); None if nothing is hidden."""
        scores = (x_shape[0], self.heads, x_shape[1], k_shape[2])
        if mask is not None:
            mask = mask[:, None] if getattr(mask, "ndim", 0) == 3 else mask
            check_mask(mask, scores, "scores")
            if mask.ndim < 2:
                raise ValueError(f"a mask is (query, key) or has batch and heads before these, not {mask.shape}")
        if real_keys is None:
            return mask
        check_valid(real_keys, (x_shape[0], k_shape[2]))
        columns = real_keys[:, None, None, :]
        return columns if mask is None else mask & columns
