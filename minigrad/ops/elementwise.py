"""Functions of each element by itself. Most declare their local derivative, by which the cotangent is multiplied."""

from __future__ import annotations

import math

import numpy as np

from minigrad.engine import Array, as_array
from minigrad.op import derived, op, safe_product
from minigrad.tensor import Tensor

# --- arithmetic --------------------------------------------------------------------------------------------------


@op
def scale(g: Array, d: Array) -> Array:
    """g * d for a cotangent g and a local derivative d, where g = 0 gives 0 even if d is infinite or NaN."""
    return safe_product(g, d)


@op
def _scale_back(c: Array, g: Array) -> Array:
    """c * g, where a zero in either gives 0: what goes back to the derivative d of a `scale`, c being its cotangent.

    Where g is 0, `scale` gave 0 whatever d was, so nothing goes back, even if c is infinite or NaN.
    """
    product = safe_product(c, g)
    return np.where(np.equal(g, 0), product.dtype.type(0), product) if np.isnan(product).any() else product


scale.rule(
    g=lambda cotangent, d: scale.apply(cotangent, d),
    d=lambda cotangent, g: _scale_back.apply(cotangent, g),
)
_scale_back.rule(
    c=lambda cotangent, g: _scale_back.apply(cotangent, g),
    g=lambda cotangent, c: _scale_back.apply(cotangent, c),
)


@op
def add(a: Array, b: Array) -> Array:
    """a + b, broadcast."""
    return np.add(a, b)


add.rule(a=lambda g: g, b=lambda g: g)


@op
def subtract(a: Array, b: Array) -> Array:
    """a - b, broadcast."""
    return np.subtract(a, b)


subtract.rule(a=lambda g: g, b=lambda g: -g)


@op
def multiply(a: Array, b: Array) -> Array:
    """a * b, broadcast."""
    return np.multiply(a, b)


multiply.derivative(a=lambda b: b, b=lambda a: a)


@op
def divide(a: Array, b: Array) -> Array:
    """a / b, broadcast."""
    return np.divide(a, b)


for _arithmetic in (add, subtract, multiply, divide):  # what programs do most, without a Python function around it
    _arithmetic.forward = getattr(np, _arithmetic.name)


def _reciprocal(b: Array) -> Array:
    if isinstance(b, (int, float)) and b == 0:  # which Python refuses to divide by
        return math.copysign(math.inf, b)
    return 1 / b


divide.derivative(a=_reciprocal, b=lambda b, y: -y / b)
true_divide = divide


@op
def negative(x: Array) -> Array:
    """-x."""
    return np.negative(x)


negative.rule(x=lambda g: -g)


@op
def power(a: Array, b: Array) -> Array:
    """a ** b, broadcast. At a = 0 the exponent's gradient is 0, and so is the gradient of a ** 0.

    >>> import minigrad as mg
    >>> mg.grad(power, argnums=(0, 1))(2.0, 3.0)
    (array(12.), array(5.54517744))
    """
    return np.power(a, b)


def _power_base(a: Array, b: Array) -> Array:
    if isinstance(b, (int, float)):  # stays a Python number, which keeps a float32 base float32
        if b == 0:
            return np.zeros_like(a)
        return b * (a if b == 2 else np.power(a, b - 1))
    if b.dtype.kind in "iub":  # of which 0 - 1 may be a large number
        b = b.astype(np.result_type(a.dtype, b.dtype))
    return b * np.power(a, np.where((b == 0) & (a == 0), 1, b - 1))


def _power_exponent(a: Array, y: Array) -> Array:
    if isinstance(a, (int, float)):
        return y * (math.log(a) if a > 0 else 0.0 if a == 0 else math.nan)
    if a.dtype.kind in "iub":  # of small ones NumPy takes the logarithm in halves
        a = a.astype(y.dtype)
    return np.where(a == 0, 0, y * np.log(np.where(a == 0, 1, a)))


power.derivative(a=_power_base, b=_power_exponent)
pow = power


@op
def square(x: Array) -> Array:
    """x * x."""
    return np.square(x)


square.derivative(x=lambda x: 2 * x)


@op
def sqrt(x: Array) -> Array:
    """The square root; its derivative at 0 is infinite."""
    return np.sqrt(x)


sqrt.derivative(x=lambda y: 0.5 / y)


@op
def abs(x: Array) -> Array:
    """|x|, with derivative 0 at 0."""
    return np.abs(x)


def _abs_slope(x: Array) -> Array:
    if x.dtype.kind != "c":
        return np.sign(x)
    zero = x == 0
    return np.where(zero, 0, np.abs(x) / np.where(zero, 1, x))


abs.derivative(x=_abs_slope)


absolute = abs


@op
def fabs(x: Array) -> Array:
    """|x| as a floating number, with derivative 0 at 0."""
    return np.fabs(x)


fabs.derivative(x=lambda x: np.sign(x))


@op
def cbrt(x: Array) -> Array:
    """The cube root, of negative numbers too; its derivative at 0 is infinite."""
    return np.cbrt(x)


cbrt.derivative(x=lambda y: 1 / (3 * y * y))


@op
def reciprocal(x: Array) -> Array:
    """1 / x."""
    return np.reciprocal(x)


reciprocal.derivative(x=lambda y: -y * y)


@op
def remainder(a: Array, b: Array) -> Array:
    """a - b * floor(a / b), broadcast: what is left of a, with the sign of b. Also called mod."""
    return np.remainder(a, b)


remainder.rule(a=lambda g: g).derivative(b=lambda a, b: -np.floor_divide(a, b))
mod = remainder


@op
def fmod(a: Array, b: Array) -> Array:
    """a - b * trunc(a / b), broadcast: what is left of a, with the sign of a."""
    return np.fmod(a, b)


fmod.rule(a=lambda g: g).derivative(b=lambda a, b, y: -np.rint((a - y) / b))


@op
def copysign(a: Array, b: Array) -> Array:
    """|a| with the sign of b, broadcast. The derivative by a at 0 is 0, that by b 0 everywhere."""
    return np.copysign(a, b)


copysign.derivative(a=lambda a, b: np.where(np.signbit(b), -np.sign(a), np.sign(a)), b=lambda: 0.0)


@op
def ldexp(x: Array, exponent: Array) -> Array:
    """x * 2 ** exponent, for integer exponents (constants)."""
    return np.ldexp(x, exponent)


ldexp.rule(x=lambda g, exponent: np.ldexp(g, exponent))


@derived
def float_power(a: Array, b: Array) -> Tensor:
    """a ** b in float64 at least, whatever the dtypes; of integers too."""
    wide = np.result_type(np.float64, *(getattr(x, "dtype", np.float64) for x in (a, b)))
    return power(astype(a, wide), astype(b, wide))


@derived
def positive(x: Array) -> Tensor:
    """+x, a copy."""
    return copy(x)


@op
def nan_to_num(
    x: Array, copy: bool = True, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Array:
    """x with numbers in the place of NaN and the infinities (the dtype's extremes, unless given). Always copies.

    What is replaced gets no gradient.
    """
    return np.nan_to_num(x, True, nan, posinf, neginf)


nan_to_num.derivative(finite=True, x=lambda x: np.isfinite(x))


@op
def copy(x: Array) -> Array:
    """x in memory of its own."""
    return np.array(x)


copy.rule(x=lambda g: g)


@op
def astype(x: Array, dtype: Array) -> Array:
    """x as another floating dtype. The gradient comes back in x's own."""
    return as_array(x).astype(dtype)


astype.rule(x=lambda g: g)

# --- exponentials and logarithms ---------------------------------------------------------------------------------

_LN2, _LN10 = math.log(2), math.log(10)


@op
def exp(x: Array) -> Array:
    """e ** x."""
    return np.exp(x)


exp.derivative(x=lambda y: y)


@op
def expm1(x: Array) -> Array:
    """e ** x - 1, exact for small x."""
    return np.expm1(x)


expm1.derivative(x=lambda y: y + 1)


@op
def log(x: Array) -> Array:
    """The natural logarithm."""
    return np.log(x)


log.derivative(x=lambda x: 1 / x)


@op
def log1p(x: Array) -> Array:
    """log(1 + x), exact for small x."""
    return np.log1p(x)


log1p.derivative(x=lambda x: 1 / (1 + x))


@op
def exp2(x: Array) -> Array:
    """2 ** x."""
    return np.exp2(x)


exp2.derivative(x=lambda y: _LN2 * y)


@op
def log2(x: Array) -> Array:
    """The logarithm to base 2."""
    return np.log2(x)


log2.derivative(x=lambda x: 1 / (_LN2 * x))


@op
def log10(x: Array) -> Array:
    """The logarithm to base 10."""
    return np.log10(x)


log10.derivative(x=lambda x: 1 / (_LN10 * x))


@op
def logaddexp(a: Array, b: Array) -> Array:
    """log(e ** a + e ** b), broadcast, without overflow; -inf, with gradient 0, where both are -inf.

    >>> logaddexp(1000.0, 1000.0)
    tensor(1000.69314718)
    """
    return np.logaddexp(a, b)


@op
def logaddexp2(a: Array, b: Array) -> Array:
    """log2(2 ** a + 2 ** b), broadcast, without overflow; -inf, with gradient 0, where both are -inf."""
    return np.logaddexp2(a, b)


def _weight(a: Array, b: Array, y: Array, ln_base: float) -> Array:
    """The part of base ** a in base ** a + base ** b."""
    return sigmoid.apply(np.where(y == -np.inf, -np.inf, ln_base * (a - b)))


logaddexp.derivative(a=lambda a, b, y: _weight(a, b, y, 1.0), b=lambda a, b, y: _weight(b, a, y, 1.0))
logaddexp2.derivative(a=lambda a, b, y: _weight(a, b, y, _LN2), b=lambda a, b, y: _weight(b, a, y, _LN2))

# --- choosing ----------------------------------------------------------------------------------------------------


def _share(larger: Array, smaller: Array) -> Array:
    """1 where larger > smaller, half in a tie, else 0."""
    wins, tie = larger > smaller, larger == smaller
    dtype = np.result_type(getattr(larger, "dtype", larger), getattr(smaller, "dtype", smaller))
    return wins.astype(dtype) + dtype.type(0.5) * tie


@op
def maximum(a: Array, b: Array) -> Array:
    """The larger of a and b, broadcast. In a tie each gets half of the gradient."""
    return np.maximum(a, b)


maximum.derivative(finite=True, a=lambda a, b: _share(a, b), b=lambda a, b: _share(b, a))


@op
def minimum(a: Array, b: Array) -> Array:
    """The smaller of a and b, broadcast. In a tie each gets half of the gradient."""
    return np.minimum(a, b)


minimum.derivative(finite=True, a=lambda a, b: _share(b, a), b=lambda a, b: _share(a, b))


def _share_of_numbers(larger: Array, smaller: Array) -> Array:
    """_share, where a number wins against NaN, and two NaN tie."""
    lost, other_lost, share = np.isnan(larger), np.isnan(smaller), _share(larger, smaller)
    return np.where(lost == other_lost, np.where(lost, share.dtype.type(0.5), share), other_lost.astype(share.dtype))


@op
def fmax(a: Array, b: Array) -> Array:
    """The larger of a and b, broadcast, or the one that is not NaN. In a tie each gets half of the gradient."""
    return np.fmax(a, b)


fmax.derivative(finite=True, a=lambda a, b: _share_of_numbers(a, b), b=lambda a, b: _share_of_numbers(b, a))


@op
def fmin(a: Array, b: Array) -> Array:
    """The smaller of a and b, broadcast, or the one that is not NaN. In a tie each gets half of the gradient."""
    return np.fmin(a, b)


fmin.derivative(finite=True, a=lambda a, b: _share_of_numbers(-a, -b), b=lambda a, b: _share_of_numbers(-b, -a))


@op
def clip(x: Array, min: Array = None, max: Array = None) -> Array:
    """x limited to [min, max]; the derivative is 1 on the closed interval and 0 outside. The limits are constants."""
    return np.clip(x, min, max)


def _inside(x: Array, min: Array, max: Array) -> Array:
    inside: Array = True
    if min is not None:
        inside = inside & (x >= min)
    if max is not None:
        inside = inside & (x <= max)
    return inside


clip.derivative(finite=True, x=_inside)


@op
def where(condition: Array, a: Array, b: Array) -> Array:
    """a where the (boolean, constant) condition holds, else b, broadcast. What is not chosen gets exactly 0.

    >>> import minigrad as mg
    >>> mg.grad(lambda x: where(x > 0, np.sqrt(x), x))(0.0)
    array(1.)
    """
    return np.where(condition, a, b)


where.rule(
    a=lambda g, condition: np.where(condition, g, 0),
    b=lambda g, condition: np.where(condition, 0, g),
)

# --- activations -------------------------------------------------------------------------------------------------


@op
def tanh(x: Array) -> Array:
    """The hyperbolic tangent."""
    return np.tanh(x)


tanh.derivative(x=lambda y: 1 - y * y)


@op
def relu(x: Array) -> Array:
    """max(x, 0), with derivative 0 at 0."""
    return np.maximum(x, 0)


relu.derivative(finite=True, x=lambda y: y > 0)


def _size(x: Array) -> Array:
    """|x|; of a complex number x or -x, whichever has the greater real part."""
    return np.where(np.real(x) >= 0, x, np.negative(x)) if np.iscomplexobj(x) else np.abs(x)


@op
def sigmoid(x: Array) -> Array:
    """1 / (1 + e ** -x), without overflow for any x."""
    e = np.exp(-_size(x))
    return np.where(np.greater_equal(np.real(x), 0), 1, e) / (1 + e)


sigmoid.derivative(x=lambda y: y * (1 - y))


@op
def softplus(x: Array) -> Array:
    """log(1 + e ** x), without overflow for any x."""
    positive = np.where(np.real(x) >= 0, x, 0) if np.iscomplexobj(x) else np.maximum(x, 0)
    return positive + np.log1p(np.exp(-_size(x)))


softplus.derivative(x=lambda x: sigmoid.apply(x))

_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


@derived
def gelu(x: Array) -> Array:
    """The Gaussian error linear unit in its tanh form: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).

    Hendrycks and Gimpel 2016, arXiv:1606.08415, section 2.
    """
    x = as_array(x)
    return 0.5 * x * (1 + tanh(_SQRT_2_OVER_PI * (x + 0.044715 * x * x * x)))
