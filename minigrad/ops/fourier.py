"""Discrete Fourier transforms, as numpy.fft has them. n, axis (s, axes), norm: as there.

A transform is a linear map, and the matrix of fft is symmetric: so the gradient rule of each primitive is a transform
again. The others are composed of the primitives as NumPy composes them. Complex tensors: see complexes.py.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from minigrad.engine import Array
from minigrad.op import derived, op
from minigrad.ops.complexes import conj
from minigrad.ops.indexing import getitem
from minigrad.tensor import Tensor

Norm = Literal["backward", "ortho", "forward"] | None
Sizes = Sequence[int | None] | None
Axes = Sequence[int] | None

# --- along one axis ----------------------------------------------------------------------------------------------


@op
def fft(a: Array, n: int | None = None, axis: int = -1, norm: Norm = None) -> Array:
    """The Fourier transform along an axis, cut or padded with zeros to n: y_k = sum_j a_j e^(-2 pi i jk / n)."""
    return np.fft.fft(a, n, axis, norm)


@op
def ifft(a: Array, n: int | None = None, axis: int = -1, norm: Norm = None) -> Array:
    """The inverse of `fft`."""
    return np.fft.ifft(a, n, axis, norm)


@op
def rfft(a: Array, n: int | None = None, axis: int = -1, norm: Norm = None) -> Array:
    """The first n // 2 + 1 numbers of `fft`, which determine the others when a is real. A complex a is a TypeError.

    >>> import minigrad as mg
    >>> power = lambda x: rfft(x).real ** 2 + rfft(x).imag ** 2
    >>> power(np.array([1.0, 2.0, 3.0, 4.0]))
    tensor([100.,   8.,   4.])
    >>> mg.grad(lambda x: power(x)[1])(np.array([1.0, 2.0, 3.0, 4.0]))
    array([-4., -4.,  4.,  4.])
    """
    return np.fft.rfft(a, n, axis, norm)


@op
def irfft(a: Array, n: int | None = None, axis: int = -1, norm: Norm = None) -> Array:
    """The inverse of `rfft`: n real numbers, by default 2 (m - 1) for m complex ones."""
    return np.fft.irfft(a, n, axis, norm)


def _along(axis: int, part: slice) -> tuple[Any, ...]:
    """The index of a part of an axis, whether that is counted from the front or from the back."""
    axis = operator.index(axis)
    return (slice(None),) * axis + (part,) if axis >= 0 else (..., part) + (slice(None),) * (-1 - axis)


def _fitted(g: Array, n: int, axis: int) -> Array:
    """g cut or padded with zeros to n along an axis: undoes what a transform did to its operand."""
    if g.shape[axis] >= n:
        return g[_along(axis, slice(n))]
    missing = list(g.shape)
    missing[axis] = n - g.shape[axis]
    return np.concatenate([g, np.zeros(missing, g.dtype)], axis)


def _fft_rule(g: Array, a_shape: tuple[int, ...], axis: int, norm: Norm) -> Array:
    return _fitted(np.fft.fft(g, axis=axis, norm=norm), a_shape[axis], axis)


def _ifft_rule(g: Array, a_shape: tuple[int, ...], axis: int, norm: Norm) -> Array:
    return _fitted(np.fft.ifft(g, axis=axis, norm=norm), a_shape[axis], axis)


def _rfft_rule(g: Array, a_shape: tuple[int, ...], n: int | None, axis: int, norm: Norm) -> Array:
    full = np.fft.fft(g, a_shape[axis] if n is None else n, axis, norm)
    return _fitted(np.real(full), a_shape[axis], axis)


def _irfft_rule(g: Array, a_shape: tuple[int, ...], axis: int, norm: Norm) -> Array:
    n = g.shape[axis]
    twice = np.full(n // 2 + 1, 2, g.dtype)  # an inner number stands for its mirror image too
    twice[[0, -1]] = 1, 2 if n % 2 and n > 1 else 1
    weights = np.reshape(twice, [-1 if i == axis % g.ndim else 1 for i in range(g.ndim)])
    return _fitted(np.fft.ihfft(g, axis=axis, norm=norm) * weights, a_shape[axis], axis)


fft.rule(a=_fft_rule)
ifft.rule(a=_ifft_rule)
rfft.rule(a=_rfft_rule)
irfft.rule(a=_irfft_rule)


def _opposite(norm: Norm) -> Norm:
    return norm if norm == "ortho" else "backward" if norm == "forward" else "forward"


@derived
def hfft(a: Array, n: int | None = None, axis: int = -1, norm: Norm = None) -> Tensor:
    """The real Fourier transform of a signal that is Hermitian (a_-j is the conjugate of a_j), given its first half."""
    return irfft(conj(a), n, axis, _opposite(norm))


@derived
def ihfft(a: Array, n: int | None = None, axis: int = -1, norm: Norm = None) -> Tensor:
    """The inverse of `hfft`."""
    return conj(rfft(a, n, axis, _opposite(norm)))


# --- along several axes ------------------------------------------------------------------------------------------


def _sizes_and_axes(a: Array, s: Sizes, axes: Axes) -> tuple[list[int | None], list[int]]:
    """A size (None: the default; -1: the axis as it is) for every axis; without axes the last len(s), or all."""
    if axes is None:
        axes = range(-len(s), 0) if s is not None else range(-np.ndim(a), 0)
    sizes: list[int | None] = [None] * len(axes) if s is None else list(s)
    if len(sizes) != len(axes):
        raise ValueError(f"{len(sizes)} sizes were given for {len(axes)} axes")
    return [np.shape(a)[axis] if n == -1 else n for n, axis in zip(sizes, axes)], list(axes)


def _repeated(transform: Callable[..., Tensor], a: Array, s: Sequence[Any], axes: Sequence[int], norm: Norm) -> Any:
    for n, axis in reversed(list(zip(s, axes))):
        a = transform(a, n, axis, norm)
    return a


@derived
def fftn(a: Array, s: Sizes = None, axes: Axes = None, norm: Norm = None) -> Tensor:
    """`fft` along several axes: all, or `axes`; cut or padded to the sizes `s`."""
    return _repeated(fft, a, *_sizes_and_axes(a, s, axes), norm)  # type: ignore[no-any-return]


@derived
def ifftn(a: Array, s: Sizes = None, axes: Axes = None, norm: Norm = None) -> Tensor:
    """The inverse of `fftn`."""
    return _repeated(ifft, a, *_sizes_and_axes(a, s, axes), norm)  # type: ignore[no-any-return]


@derived
def rfftn(a: Array, s: Sizes = None, axes: Axes = None, norm: Norm = None) -> Tensor:
    """`rfft` along the last of several axes, then `fft` along the others."""
    s, axes = _sizes_and_axes(a, s, axes)
    return _repeated(fft, rfft(a, s[-1], axes[-1], norm), s[:-1], axes[:-1], norm)  # type: ignore[no-any-return]


@derived
def irfftn(a: Array, s: Sizes = None, axes: Axes = None, norm: Norm = None) -> Tensor:
    """The inverse of `rfftn`; the last size is 2 (m - 1) for m numbers unless `s` says otherwise."""
    s, axes = _sizes_and_axes(a, s, axes)
    for n, axis in zip(s[:-1], axes[:-1]):
        a = ifft(a, n, axis, norm)
    return irfft(a, s[-1], axes[-1], norm)


@derived
def fft2(a: Array, s: Sizes = None, axes: Axes = (-2, -1), norm: Norm = None) -> Tensor:
    """`fftn` along two axes."""
    return fftn(a, s, axes, norm)


@derived
def ifft2(a: Array, s: Sizes = None, axes: Axes = (-2, -1), norm: Norm = None) -> Tensor:
    """The inverse of `fft2`."""
    return ifftn(a, s, axes, norm)


@derived
def rfft2(a: Array, s: Sizes = None, axes: Axes = (-2, -1), norm: Norm = None) -> Tensor:
    """`rfftn` along two axes."""
    return rfftn(a, s, axes, norm)


@derived
def irfft2(a: Array, s: Sizes = None, axes: Axes = (-2, -1), norm: Norm = None) -> Tensor:
    """The inverse of `rfft2`."""
    return irfftn(a, s, axes, norm)


# --- the zero frequency's place ----------------------------------------------------------------------------------


def _shifted(x: Array, axes: int | Axes, shift: Callable[[int], int]) -> Any:
    ndim = np.ndim(x)
    for axis in range(ndim) if axes is None else normalize_axis_tuple(axes, ndim, allow_duplicate=True):
        n = np.shape(x)[axis]
        x = getitem(x, _along(axis, (np.arange(n) - shift(n)) % n if n else slice(0)))
    return x


@derived
def fftshift(x: Array, axes: int | Axes = None) -> Tensor:
    """The zero frequency moved from the front to the middle of axes (all, if None)."""
    return _shifted(x, axes, lambda n: n // 2)  # type: ignore[no-any-return]


@derived
def ifftshift(x: Array, axes: int | Axes = None) -> Tensor:
    """The inverse of `fftshift`."""
    return _shifted(x, axes, lambda n: -(n // 2))  # type: ignore[no-any-return]
