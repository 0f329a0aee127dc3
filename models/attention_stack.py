"""Self-attention and FC, alternating: the encoder, and with cross-attention the decoder."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import DTypeLike

from minigrad import nn
from minigrad.ops.shapes import concatenate
from minigrad.tensor import Tensor, TensorLike
from models.fc import FCStack
from models.masks import at_entrance
from models.positions import Learned, Relative, Sinusoidal
from models.self_attention import SelfAttention

KeysAndValues: TypeAlias = "tuple[Tensor, Tensor]"  # both (batch, heads, n, width per head)

POSITIONS = ("none", "sinusoidal", "learned", "relative")


class Block(nn.Module):
    """x + attention(norm(x)), then (in a decoder) x + cross-attention(norm(x)), then x + FC(norm(x)).

    Without `residual` and `norm` it is the lecture's bare form: FC(attention(x)).
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        hidden: int,
        *,
        cross: bool = False,
        residual: bool = True,
        norm: bool = True,
        dropout: float = 0.0,
        relative: bool = False,
        clip: int = 8,
        score: str = "scaled_dot",
        normalise: str = "softmax",
        rng: np.random.Generator | None = None,
        dtype: DTypeLike = np.float32,
    ):
        common: dict[str, Any] = {"score": score, "normalise": normalise, "rng": rng, "dtype": dtype}
        self.residual = residual
        bias = Relative(heads, clip, dtype=dtype) if relative else None
        self.attention = SelfAttention(dim, heads, positions=bias, **common)
        self.cross = SelfAttention(dim, heads, **common) if cross else None
        self.fc = FCStack((dim, hidden, dim), dropout=dropout, rng=rng, dtype=dtype)
        self.norms = [nn.LayerNorm(dim, dtype=dtype) for _ in range(3 if cross else 2)] if norm else None
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        *,
        valid: np.ndarray | None = None,
        mask: np.ndarray | None = None,
        context: Tensor | None = None,
        context_valid: np.ndarray | None = None,
    ) -> Tensor:
        """x: (batch, n, dim), its padding harmless already; the same shape comes back."""
        x = self._add(x, self.attention(self._norm(0, x), valid=valid, mask=mask, inside=True))
        if self.cross is not None:
            asked = self.cross(self._norm(1, x), context=context, context_valid=context_valid, inside=True)
            x = self._add(x, asked)
        return self._add(x, self.fc(self._norm(-1, x)))

    def step(self, x: Tensor, cache: BlockCache) -> Tensor:
        """forward() under a causal mask for one more vector (batch, 1, dim); the cache remembers those before it."""
        h = self.attention.tap("x", self._norm(0, x))
        keys, values = cache.append(*self.attention.keys_and_values(h))
        x = self._add(x, self.attention.look_up(h, keys, values))
        if self.cross is not None:
            assert cache.context is not None
            h = self.cross.tap("x", self._norm(1, x))
            x = self._add(x, self.cross.look_up(h, *cache.context, cache.context_mask))
        return self._add(x, self.fc(self._norm(-1, x)))

    def _norm(self, i: int, x: Tensor) -> Tensor:
        return x if self.norms is None else self.norms[i](x)

    def _add(self, x: Tensor, change: Tensor) -> Tensor:
        change = self.dropout(change)
        return x + change if self.residual else change


class BlockCache:
    """Keys and values that one block has computed: of its own vectors so far, and of the context (if any), once."""

    def __init__(self, context: KeysAndValues | None, context_valid: np.ndarray | None):
        self.context = context
        self.context_mask = None if context_valid is None else context_valid[:, None, None, :]
        self._own: KeysAndValues | None = None

    def append(self, keys: Tensor, values: Tensor) -> KeysAndValues:
        """All keys and values up to now."""
        if self._own is not None:
            keys, values = concatenate([self._own[0], keys], 2), concatenate([self._own[1], values], 2)
        self._own = keys, values
        return self._own

    def reorder(self, rows: np.ndarray) -> None:
        """Row i continues what row rows[i] has been, in all that is remembered."""
        if self.context is not None:
            self.context = self.context[0][rows], self.context[1][rows]
        if self.context_mask is not None:
            self.context_mask = self.context_mask[rows]
        if self._own is not None:
            self._own = self._own[0][rows], self._own[1][rows]


class AttentionStack(nn.Module):
    """`blocks` times self-attention and FC, with positions in front of them or in their scores.

    dim, heads, hidden (width of the FC's middle); positions: "none", "sinusoidal", "learned" or "relative";
    residual, norm: off for the lecture's bare form; cross: with cross-attention to a context, for a decoder.
    """

    def __init__(
        self,
        dim: int,
        *,
        blocks: int = 1,
        heads: int = 1,
        hidden: int | None = None,
        positions: str = "none",
        position_scale: float = 1.0,
        clip: int = 8,
        max_length: int = 512,
        cross: bool = False,
        residual: bool = True,
        norm: bool = True,
        dropout: float = 0.0,
        score: str = "scaled_dot",
        normalise: str = "softmax",
        rng: np.random.Generator | None = None,
        dtype: DTypeLike = np.float32,
    ):
        if positions not in POSITIONS:
            raise ValueError(f"positions is one of {', '.join(POSITIONS)}, not {positions!r}")
        self.cross = cross
        self.positions: nn.Module | None = None
        if positions == "sinusoidal":
            self.positions = Sinusoidal(dim, position_scale)
        elif positions == "learned":
            self.positions = Learned(max_length, dim, rng=rng, dtype=dtype)
        self.blocks = [
            Block(
                dim,
                heads,
                2 * dim if hidden is None else hidden,
                cross=cross,
                residual=residual,
                norm=norm,
                dropout=dropout,
                relative=positions == "relative",
                clip=clip,
                score=score,
                normalise=normalise,
                rng=rng,
                dtype=dtype,
            )
            for _ in range(blocks)
        ]
        self.norm = nn.LayerNorm(dim, dtype=dtype) if norm else None

    def forward(
        self,
        x: TensorLike,
        *,
        valid: np.ndarray | None = None,
        mask: np.ndarray | None = None,
        context: TensorLike | None = None,
        context_valid: np.ndarray | None = None,
    ) -> Tensor:
        """x: (batch, n, dim); valid, mask, context as in SelfAttention; returns (batch, n, dim).

        A stack made with cross=True must be given a context, another must not (ValueError).
        """
        self._check_context(context, context_valid)
        dtype = self.blocks[0].attention.query.weight.dtype
        h = at_entrance(x, valid, dtype)
        context = None if context is None else at_entrance(context, context_valid, dtype)
        if self.positions is not None:
            h = self.positions(h, valid)
        for block in self.blocks:
            h = block(h, valid=valid, mask=mask, context=context, context_valid=context_valid)
        return h if self.norm is None else self.norm(h)

    def _check_context(self, context: Any, context_valid: np.ndarray | None) -> None:
        if (context is not None) != self.cross or (context_valid is not None and not self.cross):
            raise ValueError("a stack made with cross=True needs a context, and one made without it takes none")

    def caches(self, context: Tensor | None = None, context_valid: np.ndarray | None = None) -> list[BlockCache]:
        """Empty caches for step(), one a block; the keys and values of the context are computed here, once.

        ValueError, as in forward(), for a context that is missing or has no use.
        """
        self._check_context(context, context_valid)
        looked_at = None if context_valid is None else context_valid[:, None, :, None]
        known = [
            None if block.cross is None else block.cross.keys_and_values(cast(Tensor, context), looked_at)
            for block in self.blocks
        ]
        return [BlockCache(keys_and_values, context_valid) for keys_and_values in known]

    def step(self, x: Tensor, caches: list[BlockCache], place: int) -> Tensor:
        """forward() under a causal mask for the vector (batch, 1, dim) at one more place, from caches of all before."""
        if self.positions is not None:
            x = self.positions(x, None, place)
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block.step(x, cache)
        return x if self.norm is None else self.norm(x)
