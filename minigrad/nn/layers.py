"""The layers: Linear, Embedding, LayerNorm, Dropout, Sequential.

Parameters are called weight and bias, and are float32 unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike

from minigrad.nn import init
from minigrad.nn.module import Module, Parameter, as_input, as_numbers
from minigrad.ops.elementwise import multiply
from minigrad.ops.fused import layer_norm, linear
from minigrad.ops.indexing import embedding
from minigrad.random import generator, uniform
from minigrad.tensor import Tensor, TensorLike, wrap


class Linear(Module):
    """x @ weight + bias, and with activation "relu" its positive part. x: (..., n_in); returns (..., n_out)."""

    def __init__(
        self,
        n_in: int,
        n_out: int,
        *,
        bias: bool = True,
        activation: str | None = None,
        rng: np.random.Generator | None = None,
        dtype: DTypeLike = np.float32,
    ):
        initial = init.glorot_uniform if activation is None else init.he_uniform
        self.weight = Parameter(initial((n_in, n_out), rng, dtype))
        self.bias = Parameter(init.zeros((n_out,), dtype)) if bias else None
        self.activation = activation

    def forward(self, x: TensorLike) -> Tensor:
        return linear(as_input(x, self.weight.dtype), self.weight, self.bias, self.activation)


class Embedding(Module):
    """A vector for each id. ids: integers (...); returns (..., dim).

    padding_idx: an id whose vector is zero, gets no gradient and so stays zero. IndexError for an id out of range.
    """

    def __init__(
        self,
        n: int,
        dim: int,
        *,
        padding_idx: int | None = None,
        deviation: float = 1.0,
        rng: np.random.Generator | None = None,
        dtype: DTypeLike = np.float32,
    ):
        table = init.normal((n, dim), deviation, rng, dtype)
        if padding_idx is not None:
            if not 0 <= padding_idx < n:
                raise IndexError(f"padding_idx {padding_idx} is out of range for {n} rows: it lies in 0 to {n - 1}")
            table[padding_idx] = 0
        self.weight = Parameter(table)
        self.padding_idx = padding_idx

    def forward(self, ids: Any) -> Tensor:
        return embedding(self.weight, ids, self.padding_idx)


class LayerNorm(Module):
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axis, of size dim (ValueError for another)."""

    def __init__(self, dim: int, *, eps: float = 1e-5, dtype: DTypeLike = np.float32):
        self.weight = Parameter(init.ones((dim,), dtype))
        self.bias = Parameter(init.zeros((dim,), dtype))
        self.eps = eps

    def forward(self, x: TensorLike) -> Tensor:
        return layer_norm(as_input(x, self.weight.dtype), self.weight, self.bias, eps=self.eps)


class Dropout(Module):
    """In training, each element becomes 0 with probability p and is divided by 1 - p otherwise; else x itself.

    Srivastava et al. 2014. rng: where the draws come from; None is the default generator.
    """

    def __init__(self, p: float, *, rng: np.random.Generator | None = None):
        if not 0 <= p < 1:
            raise ValueError(f"a dropout probability lies in [0, 1), and {p} was given")
        self.p = p
        self._rng = rng

    def forward(self, x: TensorLike) -> Tensor:
        x = x if isinstance(x, Tensor) else wrap(as_numbers(x, "fiubc", "numbers"), None)
        if not self.training or self.p == 0:
            return x
        kept = uniform(generator(self._rng), x.shape) >= self.p
        dtype = np.result_type(x.dtype, np.float16)  # x's own if it is floating
        return multiply(x, kept * dtype.type(1 / (1 - self.p)))


class Sequential(Module):
    """Modules and functions applied one after the other.

    >>> from minigrad import nn
    >>> net = nn.Sequential(nn.Linear(3, 4), np.tanh, nn.Linear(4, 2))
    >>> len(net), net[0], net[1:]
    (3, Linear(16 parameters), Sequential(10 parameters))
    """

    def __init__(self, *layers: Any):
        self.layers = list(layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.layers)

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        """One layer; for a slice a Sequential of the very layers, so that they share their parameters."""
        return Sequential(*self.layers[index]) if isinstance(index, slice) else self.layers[index]

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x
