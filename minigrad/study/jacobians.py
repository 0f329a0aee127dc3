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
    otherwise). It is called with whole batches of that size alone, so that it may know more about each sample (a mask).
    One backward pass for each element of a sample's output, all samples at once. TypeError for an x that is not
    floating, and for complex outputs.

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
    if x.dtype.kind != "f":
        raise TypeError(
            f"a layer's Jacobian is by its floating inputs, and x is of dtype {x.dtype}: pass what comes after the "
            "embedding, and the layers from there on"
        )
    value, pull = vjp(layer, x)
    if not isinstance(value, np.ndarray) or x.ndim < 1 or value.shape[:1] != x.shape[:1]:
        raise ValueError(
            f"a layer maps (batch, ...) to one array (batch, ...), and from {x.shape} this one made "
            f"{getattr(value, 'shape', type(value).__name__)}"
        )
    if value.dtype.kind == "c":
        raise TypeError(f"a layer's Jacobian is of real outputs, and these are of dtype {value.dtype}: take mg.real")
    if len(x) > 1:
        _check_by_itself(layer, x, value)
    return value, pull, x


@no_grad()
def _check_by_itself(layer: Callable[[Any], Any], x: np.ndarray, value: np.ndarray) -> None:
    """ValueError if the first or the last sample's output changes when all others are copies of it."""
    tolerance = np.sqrt(np.finfo(value.dtype).eps)
    size = np.max(np.abs(value), initial=0, where=np.isfinite(value))
    for i in (0, -1):
        beside = layer(np.repeat(x[i][None], len(x), 0))
        array = beside.data if isinstance(beside, Tensor) else np.asarray(beside)
        if not np.allclose(array[i], value[i], tolerance, tolerance * size, equal_nan=True):
            raise ValueError(
                "a sample has another output when others stand beside it: the layer mixes samples (batch statistics), "
                "which have no Jacobians of their own, or draws random numbers (dropout: call .eval() first)"
            )
