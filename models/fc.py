"""Stacks of fully connected layers: for each vector by itself, and for a window of neighbours."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import DTypeLike

from minigrad import nn
from minigrad.ops.elementwise import gelu, relu, sigmoid, tanh
from minigrad.ops.shapes import concatenate
from minigrad.tensor import Tensor, TensorLike, wrap
from models.masks import at_entrance

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": relu, "gelu": gelu, "tanh": tanh, "sigmoid": sigmoid}


class FCStack(nn.Module):
    """Linear layers with an activation (and dropout) between them: FCStack((8, 32, 5)) maps (..., 8) to (..., 5).

    sizes: the widths from input to output. activation: "relu", "gelu", "tanh" or "sigmoid".
    """

    branch: ClassVar[str] = "FC"

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        activation: str = "relu",
        dropout: float = 0.0,
        rng: np.random.Generator | None = None,
        dtype: DTypeLike = np.float32,
    ):
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation is one of {', '.join(ACTIVATIONS)}, not {activation!r}")
        if len(sizes) < 2:
            raise ValueError(f"an FC stack needs the widths of its input and its output, and was given {tuple(sizes)}")
        *inner, last = itertools.pairwise(sizes)
        fused = activation if activation == "relu" else None
        self.layers = [nn.Linear(*shape, activation=fused, rng=rng, dtype=dtype) for shape in inner]
        self.layers.append(nn.Linear(*last, rng=rng, dtype=dtype))
        self.activation = None if fused else ACTIVATIONS[activation]
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: TensorLike, *, valid: np.ndarray | None = None) -> Tensor:
        """x: (..., sizes[0]), or (batch, n, sizes[0]) with `valid` (batch, n); returns (..., sizes[-1])."""
        h = at_entrance(x, valid, self.layers[0].weight.dtype) if valid is not None else x
        for layer in self.layers[:-1]:
            h = layer(h)
            h = self.dropout(h if self.activation is None else self.activation(h))
        return self.layers[-1](h)


class WindowFC(nn.Module):
    """An FC stack that sees each vector with `neighbours` vectors on each side; 0 stands beyond the edges.

    Its first layer, of ((2 neighbours + 1) dim) x hidden, is what grows with the window.
    """

    def __init__(
        self,
        dim: int,
        neighbours: int,
        sizes: Sequence[int],
        *,
        activation: str = "relu",
        dropout: float = 0.0,
        rng: np.random.Generator | None = None,
        dtype: DTypeLike = np.float32,
    ):
        self.neighbours = neighbours
        width = (2 * neighbours + 1) * dim
        self.fc = FCStack((width, *sizes), activation=activation, dropout=dropout, rng=rng, dtype=dtype)

    def forward(self, x: TensorLike, *, valid: np.ndarray | None = None) -> Tensor:
        """x: (batch, n, dim); valid: (batch, n); returns (batch, n, sizes[-1])."""
        t = at_entrance(x, valid, self.fc.layers[0].weight.dtype)
        batch, n, dim = t.shape
        beyond = wrap(np.zeros((batch, self.neighbours, dim), t.dtype), None)
        padded = concatenate([beyond, t, beyond], axis=1)
        windows = concatenate([padded[:, i : i + n] for i in range(2 * self.neighbours + 1)], axis=-1)
        return self.fc(windows)
