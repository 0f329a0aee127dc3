"""Cases of the products that cases.py has none of, and of functions and parts of complex numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from cases import normal

from minigrad.check.cases import Case

CASES: list[Case] = []


def case(op: str, *args: Any, expected: Callable[..., Any] | None = None, label: str = "", **kwargs: Any) -> None:
    """Register a case; without `expected` it is NumPy's function of the same name."""
    CASES.append(Case(op, args, kwargs, expected or getattr(np, op), label))


def complex_normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.asarray(normal(*shape, seed=seed) + 1j * normal(*shape, seed=seed + 100))


def sinc_slope(x: np.ndarray, order: int) -> np.ndarray:
    """The first derivative of sinc away from 0."""
    return np.asarray((np.cos(np.pi * x) - np.sinc(x)) / x)


# --- functions of complex numbers ---------------------------------------------------------------------------------

for _name in ["sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "arcsinh", "arccosh", "arctanh"]:
    case(_name, complex_normal(2, 3), label="complex")
for _name in ["exp2", "expm1", "log2", "log10", "log1p", "square", "reciprocal"]:
    case(_name, complex_normal(2, 3), label="complex")
case("sinc", complex_normal(2, 3), label="complex")
case("sigmoid", complex_normal(2, 3), expected=lambda x: 1 / (1 + np.exp(-x)), label="complex")
case("softplus", complex_normal(2, 3), expected=lambda x: np.log(1 + np.exp(x)), label="complex")
case("sinc", 3 * complex_normal(3), label="complex-large")
case("_sinc_derivative", complex_normal(2), 1, expected=sinc_slope, label="complex")

# --- parts -------------------------------------------------------------------------------------------------------

for _name in ["real", "imag", "conj", "angle"]:
    for _shape in [(), (2, 3), (0, 2)]:
        case(_name, complex_normal(*_shape))
for _name in ["real", "imag", "conj"]:
    case(_name, normal(2, 3), label="of-real")
case("angle", complex_normal(3), deg=True, label="degrees")
case("_argument", complex_normal(3), expected=np.angle)
for _shape in [(), (2, 3)]:
    case("abs", complex_normal(*_shape), label=f"complex-{_shape}")
for _name in ["add", "subtract", "multiply", "divide"]:
    case(_name, complex_normal(2, 3), complex_normal(3, seed=1), label="complex")
    case(_name, complex_normal(2, 1), normal(3, seed=1), label="complex-real")
    case(_name, normal(3), 1.5 - 2j, label="complex-constant")
for _name in ["exp", "sin", "square", "negative"]:
    case(_name, complex_normal(3), label="complex")
case("matmul", complex_normal(2, 3), normal(3, 2), label="complex-real")
case("sum", complex_normal(2, 3), axis=0, label="complex")
case("astype", normal(3), np.dtype(complex), expected=lambda x, dtype: x.astype(dtype), label="to-complex")

# --- products of vectors -----------------------------------------------------------------------------------------

for _a, _b in [
    ((2, 3), (4, 3)),
    ((3,), (3,)),
    ((), (2, 3)),
    ((2,), ()),
    ((3,), (2, 4, 3)),
    ((2, 0), (3, 0)),
    ((0, 2), (2,)),
]:
    case("inner", normal(*_a), normal(*_b, seed=1))
for _a, _b in [((6,), (6,)), ((2, 3), (3, 2)), ((), ()), ((0,), (0, 2))]:
    case("vdot", normal(*_a), normal(*_b, seed=1))
case("vdot", complex_normal(3), complex_normal(3, seed=1), label="complex")
for _a, _b, _axis in [((3,), (3,), -1), ((2, 3), (4, 1, 3), -1), ((3, 2), (3, 1), 0), ((2, 0), (0,), -1)]:
    case("vecdot", normal(*_a), normal(*_b, seed=1), axis=_axis)
case("vecdot", complex_normal(2, 3), complex_normal(3, seed=1), label="complex")


def _matvec(a: np.ndarray, x: np.ndarray) -> Any:
    """(NumPy has these two since 2.2.)"""
    return np.einsum("...ij,...j->...i", a, x)


def _vecmat(x: np.ndarray, a: np.ndarray) -> Any:
    return np.einsum("...i,...ij->...j", x.conj(), a)


for _a, _b in [((2, 3), (3,)), ((4, 2, 3), (4, 3)), ((2, 3), (4, 3)), ((2, 0), (0,))]:
    case("matvec", normal(*_a), normal(*_b, seed=1), expected=_matvec)
    case("vecmat", normal(*_b, seed=1), np.swapaxes(normal(*_a), -1, -2).copy(), expected=_vecmat)
case("vecmat", complex_normal(2), complex_normal(2, 3), expected=_vecmat, label="complex")


def _cross(a: np.ndarray, b: np.ndarray, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None) -> Any:
    """By the permutation symbol."""
    axisa, axisb, axisc = (axisa, axisb, axisc) if axis is None else (axis,) * 3
    a, b = np.moveaxis(a, axisa, -1), np.moveaxis(b, axisb, -1)
    flat = a.shape[-1] == b.shape[-1] == 2
    a, b = (np.concatenate([x, np.zeros((*x.shape[:-1], 3 - x.shape[-1]), x.dtype)], -1) for x in (a, b))
    symbol = np.zeros((3, 3, 3), a.dtype)
    for i, j, k in [(0, 1, 2), (1, 2, 0), (2, 0, 1)]:
        symbol[i, j, k], symbol[i, k, j] = 1, -1
    product = np.einsum("ijk,...j,...k->...i", symbol, a, b)
    return product[..., 2] if flat else np.moveaxis(product, -1, axisc)


for _a, _b, _axes in [
    ((3,), (3,), {}),
    ((2, 3), (3,), {}),
    ((2, 1, 3), (4, 3), {}),
    ((3, 2), (3, 2), {"axis": 0}),
    ((3, 2), (2, 3), {"axisa": 0, "axisc": 0}),
    ((2, 3, 4), (4, 3), {"axisa": 1, "axisb": 1, "axisc": -2}),
    ((2,), (2,), {}),
    ((4, 2), (2,), {}),
    ((2,), (3,), {}),
    ((4, 3), (2,), {}),
    ((0, 3), (3,), {}),
]:
    case("cross", normal(*_a), normal(*_b, seed=1), expected=_cross, label=f"{_a}-{_b}-{'-'.join(_axes)}", **_axes)

# --- products of arrays ------------------------------------------------------------------------------------------

for _a, _b, _axes in [
    ((2, 3, 4), (3, 4, 2), 2),
    ((2, 3), (3, 2), 1),
    ((2,), (3,), 0),
    ((2, 3, 4), (4, 3, 2), ([1, 2], [1, 0])),
    ((2, 3), (2, 3), (0, 0)),
    ((2, 3), (2, 3), ((-1, 0), (-1, 0))),
    ((2, 0), (0, 3), 1),
    ((0, 2), (2, 3), 1),
    ((), (2,), 0),
    ((2, 3), (4, 2, 3), ((0, 1), (1, 2))),
]:
    case("tensordot", normal(*_a), normal(*_b, seed=1), _axes, label=f"{_a}-{_b}-{_axes}")
for _a, _b in [((2, 3), (3, 2)), ((2,), (3,)), ((), (2,)), ((2,), (2, 3)), ((2, 1, 2), (2, 3)), ((0, 2), (2, 2))]:
    case("kron", normal(*_a), normal(*_b, seed=1))
for _shape in [(2, 3), (2, 3, 4), (0, 2)]:
    case("matrix_transpose", normal(*_shape))
for _shapes in [
    [(2, 3), (3, 2)],
    [(2, 3), (3, 4), (4, 2)],
    [(4, 1), (1, 4), (4, 2), (2, 3)],
    [(3,), (3, 2), (2, 4), (4,)],
    [(3,), (3,)],
    [(2, 0), (0, 3), (3, 2)],
]:
    _arrays = [normal(*s, seed=i) for i, s in enumerate(_shapes)]
    case("multi_dot", _arrays, expected=np.linalg.multi_dot, label=str(_shapes))
case("einsum", normal(2, 3), [0, 1], normal(3, 2), [1, 2], [0, 2], label="numbers")
case("einsum", normal(2, 3), [5, 2], normal(3, 2), [2, 0], label="numbers-implicit")
case("einsum", normal(2, 3, 3), [..., 0, 0], label="numbers-ellipsis")
case("einsum", "ij,jk,kl->il", normal(2, 3), normal(3, 2), normal(2, 4), optimize=True, label="optimize")
case("einsum", "ij,jk,kl->il", normal(2, 3), normal(3, 2), normal(2, 4), optimize="optimal", label="optimal")
