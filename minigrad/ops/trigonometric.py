"""Trigonometric and hyperbolic functions, their inverses, and what goes with angles. (tanh: elementwise.py.)"""

from __future__ import annotations

import math

import numpy as np

from minigrad.engine import Array
from minigrad.op import op

# --- trigonometric -----------------------------------------------------------------------------------------------


@op
def sin(x: Array) -> Array:
    """The sine of x, in radians."""
    return np.sin(x)


sin.derivative(x=lambda x: np.cos(x))


@op
def cos(x: Array) -> Array:
    """The cosine of x, in radians."""
    return np.cos(x)


cos.derivative(x=lambda x: -np.sin(x))


@op
def tan(x: Array) -> Array:
    """The tangent of x, in radians."""
    return np.tan(x)


tan.derivative(x=lambda y: 1 + y * y)


@op
def arcsin(x: Array) -> Array:
    """The angle in [-pi/2, pi/2] whose sine is x; its derivative at -1 and 1 is infinite."""
    return np.arcsin(x)


arcsin.derivative(x=lambda x: 1 / np.sqrt((1 - x) * (1 + x)))


@op
def arccos(x: Array) -> Array:
    """The angle in [0, pi] whose cosine is x; its derivative at -1 and 1 is infinite."""
    return np.arccos(x)


arccos.derivative(x=lambda x: -1 / np.sqrt((1 - x) * (1 + x)))


@op
def arctan(x: Array) -> Array:
    """The angle in [-pi/2, pi/2] whose tangent is x."""
    return np.arctan(x)


arctan.derivative(x=lambda x: 1 / (1 + x * x))
asin, acos, atan = arcsin, arccos, arctan


@op
def hypot(a: Array, b: Array) -> Array:
    """sqrt(a ** 2 + b ** 2), broadcast, without overflow. Its gradient at (0, 0) is 0."""
    return np.hypot(a, b)


def _over_length(a: Array, y: Array) -> Array:
    return np.where(y == 0, 0, a / np.where(y == 0, 1, y))


hypot.derivative(a=_over_length, b=lambda b, y: _over_length(b, y))


@op
def arctan2(a: Array, b: Array) -> Array:
    """The angle in (-pi, pi] of the point whose ordinate is a and whose abscissa is b. (0, 0) has no gradient: NaN.

    >>> arctan2([1.0, 0.0], [0.0, -1.0])
    tensor([1.57079633, 3.14159265])
    """
    return np.arctan2(a, b)


def _over_square(a: Array, b: Array) -> Array:
    """a / (a ** 2 + b ** 2), without overflow on the way."""
    length = np.hypot(a, b)
    return a / length / length


arctan2.derivative(a=lambda a, b: _over_square(b, a), b=lambda a, b: -_over_square(a, b))
atan2 = arctan2

# --- hyperbolic --------------------------------------------------------------------------------------------------


@op
def sinh(x: Array) -> Array:
    """The hyperbolic sine."""
    return np.sinh(x)


sinh.derivative(x=lambda x: np.cosh(x))


@op
def cosh(x: Array) -> Array:
    """The hyperbolic cosine."""
    return np.cosh(x)


cosh.derivative(x=lambda x: np.sinh(x))


@op
def arcsinh(x: Array) -> Array:
    """The number whose hyperbolic sine is x."""
    return np.arcsinh(x)


def _arcsinh_slope(x: Array) -> Array:
    """1 / sqrt(1 + x ** 2), without overflow on the way."""
    return 1 / (np.sqrt(1 + 1j * x) * np.sqrt(1 - 1j * x) if x.dtype.kind == "c" else np.hypot(1, x))


arcsinh.derivative(x=_arcsinh_slope)


@op
def arccosh(x: Array) -> Array:
    """The number, not negative, whose hyperbolic cosine is x; its derivative at 1 is infinite."""
    return np.arccosh(x)


arccosh.derivative(x=lambda x: 1 / (np.sqrt(x - 1) * np.sqrt(x + 1)))


@op
def arctanh(x: Array) -> Array:
    """The number whose hyperbolic tangent is x; its derivative at -1 and 1 is infinite."""
    return np.arctanh(x)


arctanh.derivative(x=lambda x: 1 / ((1 - x) * (1 + x)))
asinh, acosh, atanh = arcsinh, arccosh, arctanh

# --- angles ------------------------------------------------------------------------------------------------------


@op
def deg2rad(x: Array) -> Array:
    """Degrees in radians."""
    return np.deg2rad(x)


deg2rad.rule(x=lambda g: g * (math.pi / 180))


@op
def rad2deg(x: Array) -> Array:
    """Radians in degrees."""
    return np.rad2deg(x)


rad2deg.rule(x=lambda g: g * (180 / math.pi))

radians, degrees = deg2rad, rad2deg


@op
def unwrap(x: Array, discont: float | None = None, axis: int = -1, *, period: float = 2 * math.pi) -> Array:
    """Angles along an axis, shifted by whole periods so that none is more than half a period from the one before.

    The shifts are constant, and so the derivative is 1.
    """
    return np.unwrap(x, discont, axis, period=period)


unwrap.rule(x=lambda g: g)

# --- sinc --------------------------------------------------------------------------------------------------------


@op
def sinc(x: Array) -> Array:
    """sin(pi x) / (pi x), and 1 at 0; its derivatives of every order are exact there too."""
    return np.sinc(x)


def _sinc_slope(x: Array) -> Array:
    return _sinc_derivative.apply(x, 1)


sinc.derivative(x=_sinc_slope)


@op
def _sinc_derivative(x: Array, order: int) -> Array:
    """The derivative of sinc of an order >= 1."""
    x = np.asarray(x)
    u = np.pi * x.astype(np.result_type(x, np.float64))
    near = np.abs(u) < order + 1
    y = np.where(near, _sinc_by_series(np.where(near, u, 0), order), _sinc_by_recurrence(np.where(near, 1, u), order))
    return (np.pi**order * y).astype(x.dtype)


_sinc_derivative.derivative(x=lambda x, order: _sinc_derivative.apply(x, order + 1))


def _sinc_by_series(u: np.ndarray, order: int) -> np.ndarray:
    """f(u) = sin(u) / u is the sum of (-u^2)^k / (2k + 1)!; differentiated term by term."""
    total = np.zeros_like(u)
    for k in reversed(range((order + 1) // 2, order + 20)):
        power = 2 * k - order
        total += (-1) ** k / ((2 * k + 1) * math.factorial(power)) * u**power
    return total


def _sinc_by_recurrence(u: np.ndarray, order: int) -> np.ndarray:
    """u f = sin(u), differentiated n times: u f^(n) + n f^(n - 1) = sin(u + n pi / 2). Stable where |u| > n."""
    y: np.ndarray = np.sin(u) / u
    for n in range(1, order + 1):
        y = (np.sin(u + n * np.pi / 2) - n * y) / u
    return y
