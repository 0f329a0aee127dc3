"""Parts of complex numbers: real, imag, conj, angle.

Complex tensors are intermediate results: a Fourier transform makes them, and so does arithmetic with complex constants;
what a gradient is asked for stays real (`mg.tensor` takes real numbers, `backward` and `grad` start from one). The
cotangent g of a complex tensor z is the complex array with dL = Re(sum(g * dz)), the convention of HIPS autograd: its
real part is dL / dRe(z), its imaginary part -dL / dIm(z). So the rule of a holomorphic function is the one it has for
real numbers, without conjugates, and a real operand's gradient is the real part, which the engine takes.
"""

from __future__ import annotations

import math

import numpy as np

from minigrad.engine import Array
from minigrad.op import derived, op
from minigrad.tensor import Tensor


@op
def real(val: Array) -> Array:
    """The real part, in memory of its own; a real array's is itself."""
    return np.array(np.real(val))


real.rule(val=lambda g: g)


@op
def imag(val: Array) -> Array:
    """The imaginary part; a real array's is 0."""
    return np.array(np.imag(val))


def _imag_rule(g: Array) -> Array:
    return g * -1j


imag.rule(val=_imag_rule)


@op
def conj(x: Array) -> Array:
    """The complex conjugate; a real array's is itself."""
    return np.conjugate(x)


conj.rule(x=lambda g: np.conjugate(g))

conjugate = conj


@op
def _argument(z: Array) -> Array:
    """The angle of each number to the positive real axis, in radians, in (-pi, pi]."""
    return np.angle(z)


_argument.derivative(z=lambda z: -1j / z)  # the imaginary part of log z


@derived
def angle(z: Array, deg: bool = False) -> Tensor:
    """The angle of each number to the positive real axis, in (-pi, pi], or in degrees; at 0 its gradient is infinite.

    >>> angle([1j, -1.0], deg=True)
    tensor([ 90., 180.])
    """
    return _argument(z) * (180 / math.pi) if deg else _argument(z)
