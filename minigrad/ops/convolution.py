"""Convolution and correlation of two sequences. mode: "full", "same" or "valid", as in NumPy."""

from __future__ import annotations

import builtins
from typing import Literal

import numpy as np

from minigrad.engine import Array
from minigrad.op import derived, op
from minigrad.ops.complexes import conj
from minigrad.ops.shapes import flip, reshape
from minigrad.tensor import Tensor

Mode = Literal["full", "same", "valid"]


@op
def convolve(a: Array, v: Array, mode: Mode = "full") -> Array:
    """The sum over m of a_m v_(n - m), for 1-D a and v (a scalar counts as one element). ValueError for an empty one.

    mode: "full" gives a.size + v.size - 1 elements; "same" the max(a.size, v.size) in its middle; "valid" those to
    which the two overlap fully.

    >>> import minigrad as mg
    >>> mg.grad(lambda v: convolve([1.0, 2.0, 3.0], v, "valid")[0])(np.array([0.5, 0.5]))
    array([2., 1.])
    """
    return np.convolve(a, v, mode)


def _convolve_rule_a(g: Array, v: Array, a_shape: tuple[int, ...], mode: Mode) -> Array:
    v = np.reshape(v, (np.size(v),))
    full = _as_full(g, a_shape[0] if a_shape else 1, v.shape[0], mode)
    return np.reshape(np.convolve(full, np.flip(v), "valid"), a_shape)


def _as_full(g: Array, n: int, m: int, mode: Mode) -> Array:
    """The cotangent of a full convolution of n and m elements, of which `mode` has kept a part."""
    n, m = builtins.max(n, m), builtins.min(n, m)
    before = {"f": 0, "s": (m - 1) // 2, "v": m - 1}[mode[0]]
    after = n + m - 1 - before - g.shape[0]
    return np.concatenate([np.zeros(before, g.dtype), g, np.zeros(after, g.dtype)]) if before or after else g


convolve.rule(
    a=_convolve_rule_a,
    v=lambda g, a, v_shape, mode: _convolve_rule_a(g, a, v_shape, mode),
)


@derived
def correlate(a: Array, v: Array, mode: Mode = "valid") -> Tensor:
    """The sum over n of a_(n + k) conj(v_n), for 1-D a and v: convolution with v reversed."""
    a, v = reshape(a, (np.size(a),)), reshape(v, (np.size(v),))
    if np.size(v) > np.size(a):  # so that "same" is taken from the middle of the longer one, as NumPy does
        return conj(flip(convolve(v, conj(flip(a)), mode)))
    return convolve(a, conj(flip(v)), mode)
