"""The Jacobian of a layer at each sample, and its singular values: what the layer stretches, and what it swallows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad.engine import no_grad
from minigrad.tensor import Tensor, TensorLike
from minigrad.transforms import vjp


def layer_jacobian(layer: Callable[[Any], Any], x: TensorLike) -> np.ndarray:
    """The derivatives of a layer's output by its input, for each sample by itself: (batch, *output, *input).

    layer: a Module or function from (batch, *input) to (batch, *output) that treats each sample by itself (ValueError
    otherwise). One backward pass for each element of a sample's output, all samples at once.

    >>> from minigrad import nn
    >>> layer = nn.Linear(2, 3, dtype=float)
    >>> jacobian = layer_jacobian(layer, np.ones((4, 2)))
    >>> jacobian.shape, bool((jacobian == layer.weight.data.T).all())
    ((4, 3, 2), True)
    """
    value, pull, x = _at(layer, x)
    batch, *output = value.shape
    size = math.prod(output)
    columns = np.empty((batch, size, *x.shape[1:]), x.dtype)
    for i in range(size):
        cotangent = np.zeros((batch, size), value.dtype)
        cotangent[:, i] = 1
        columns[:, i] = pull(cotangent.reshape(value.shape))[0]
    return columns.reshape(batch, *output, *x.shape[1:])


def jacobian_spectrum(layer: Callable[[Any], Any], x: TensorLike) -> np.ndarray:
    """The singular values of a layer's Jacobian at each sample, largest first: (batch, min(output, input) elements).

    Inputs and outputs count as flat vectors. The largest is the most that a small change of the input is stretched; the
    largest over the smallest is the condition number. Arguments as in `layer_jacobian`; ValueError for a Jacobian with
    NaN or Inf.

    >>> jacobian_spectrum(lambda x: x * np.array([3.0, 0.0, 4.0]), np.ones((1, 3)))
    array([[4., 3., 0.]])
    """
    jacobian = layer_jacobian(layer, x)
    batch, *inputs = np.shape(x)
    outputs = jacobian.shape[1 : jacobian.ndim - len(inputs)]
    matrices = jacobian.reshape(batch, math.prod(outputs), math.prod(inputs))
    bad = np.flatnonzero(~np.isfinite(matrices).all((1, 2)))
    if bad.size:
        raise ValueError(f"the Jacobian of sample {bad[0]} holds NaN or Inf, and so has no singular values")
    singular_values: np.ndarray = np.linalg.svd(matrices, compute_uv=False)
    return singular_values


def _at(layer: Callable[[Any], Any], x: TensorLike) -> tuple[np.ndarray, Callable[[Any], Any], np.ndarray]:
    """The layer's value at x, its pull, and x as an array."""
    x = x.data if isinstance(x, Tensor) else np.asarray(x)
    value, pull = vjp(layer, x)
    if not isinstance(value, np.ndarray) or x.ndim < 1 or value.shape[:1] != x.shape[:1]:
        raise ValueError(
            f"a layer maps (batch, ...) to one array (batch, ...), and from {x.shape} this one made "
            f"{getattr(value, 'shape', type(value).__name__)}"
        )
    if len(x) > 1:
        _check_alone(layer, x, value)
    return value, pull, x


@no_grad()
def _check_alone(layer: Callable[[Any], Any], x: np.ndarray, value: np.ndarray) -> None:
    alone = layer(x[:1])
    array = alone.data if isinstance(alone, Tensor) else np.asarray(alone)
    tolerance = np.sqrt(np.finfo(value.dtype).eps)
    size = np.max(np.abs(value), initial=0, where=np.isfinite(value))
    if not np.allclose(array, value[:1], tolerance, tolerance * size, equal_nan=True):
        raise ValueError(
            "the first sample has another output when it is alone: the layer mixes samples (batch statistics), which "
            "have no Jacobians of their own, or draws random numbers (dropout: call .eval() first)"
        )
