"""Cases of the elementwise ops that cases.py has none of: trigonometric, hyperbolic, remainders, choices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from cases import BROADCASTS, UNARY_SHAPES, case, normal, positive


def inside(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers in (-1, 1), away from the ends."""
    return np.asarray(normal(*shape, seed=seed) * 0.4)


def above_one(*shape: int, seed: int = 0) -> np.ndarray:
    return np.asarray(1 + positive(*shape, seed=seed))


_unary: dict[str, Callable[..., np.ndarray]] = {
    **dict.fromkeys(["exp2", "fabs", "positive", "deg2rad", "rad2deg", "sinc", "nan_to_num", "cbrt"], normal),
    **dict.fromkeys(["reciprocal", "log2", "log10"], positive),
    **dict.fromkeys(["sin", "cos", "tan", "arctan", "sinh", "cosh", "arcsinh"], normal),
    **dict.fromkeys(["arcsin", "arccos", "arctanh"], inside),
    "arccosh": above_one,
}
_unary["tan"] = inside  # away from its poles
for _name, _values in _unary.items():
    for _shape in UNARY_SHAPES:
        if (_name, _shape) not in [("sin", ()), ("cos", ())]:
            case(_name, _values(*_shape))
case("cbrt", -positive(3), label="negative")
case("reciprocal", -positive(3), label="negative")
case("sinc", np.array([0.0, 1e-9, 0.03, -0.6, 1.5, 7.25]), label="near-and-far")


def _sinc_derivative(x: np.ndarray, order: int) -> np.ndarray:
    """By the integral: sin(u) / u is that of cos(u t) over t in [0, 1]."""
    t, weights = np.polynomial.legendre.leggauss(60)
    t, u = (t + 1) / 2, np.pi * x[..., None].astype(float)
    y = np.pi**order * np.sum(weights / 2 * t**order * np.cos(u * t + order * np.pi / 2), -1)
    return y.astype(x.dtype)


for _order in (1, 2, 5):
    case(
        "_sinc_derivative", np.array([0.0, 0.2, -1.1, 3.3]), _order, expected=_sinc_derivative, label=f"order-{_order}"
    )
case("unwrap", normal(5) * 4, axis=-1, label="1-D")
case("unwrap", normal(3, 4) * 4, axis=0, label="axis")
case("unwrap", normal(5) * 4, period=3.0, discont=2.0, label="period")

# --- two operands ------------------------------------------------------------------------------------------------

for _name in ["arctan2", "hypot", "fmax", "fmin", "logaddexp", "logaddexp2", "copysign"]:
    for _a, _b in BROADCASTS:
        case(_name, normal(*_a), normal(*_b, seed=1))
    case(_name, normal(3), 0.7, label="python-scalar")
    case(_name, 0.7, normal(3), label="python-scalar-first")
    case(_name, normal(2, 3), np.array([1, 2, -3]), label="integer-constant")
for _name in ["remainder", "fmod"]:
    for _a, _b in BROADCASTS:
        case(_name, normal(*_a) * 3, positive(*_b, seed=1))
    case(_name, normal(3) * 3, -positive(3, seed=1), label="negative-divisor")
    case(_name, normal(3) * 3, 0.7, label="python-scalar")
    case(_name, 7.3, normal(3), label="python-scalar-first")
for _a, _b in BROADCASTS[:3]:
    case("float_power", positive(*_a), normal(*_b, seed=1))
case("float_power", positive(3), 2, label="python-scalar")
case("float_power", 2, normal(3), label="python-base")
case("ldexp", normal(2, 3), np.array([1, -2, 3]))
case("ldexp", normal(2, 1), np.array([1, -2, 3]), label="broadcast")
case("ldexp", normal(3), 2, label="python-scalar")
