"""Cases of the Fourier transforms, and of convolution."""

from __future__ import annotations

from typing import Any

import numpy as np
from cases import normal
from cases_linalg import complex_normal

from minigrad.check.cases import Case

CASES: list[Case] = []


def case(op: str, *args: Any, label: str = "", **kwargs: Any) -> None:
    """Register a case; its value is that of NumPy's function of the same name."""
    CASES.append(Case(op, args, kwargs, getattr(np.fft, op, None) or getattr(np, op), label))


ONE_AXIS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((5,), {}),
    ((6,), {}),
    ((1,), {}),
    ((2, 4), {}),
    ((4, 3), {"axis": 0}),
    ((2, 4, 3), {"axis": -2}),
    ((5,), {"n": 3}),
    ((5,), {"n": 8}),
    ((2, 5), {"n": 4, "axis": 0}),
    ((2, 5), {"n": 7, "axis": 1}),
    ((2, 4), {"n": 1}),
    ((5,), {"norm": "ortho"}),
    ((4,), {"norm": "forward"}),
    ((4,), {"norm": "backward", "n": 5}),
    ((0, 4), {}),
]
for _shape, _options in ONE_AXIS:
    for _name in ["fft", "ifft"]:
        case(_name, normal(*_shape), label=f"real-{_shape}-{_options}", **_options)
        case(_name, complex_normal(*_shape), label=f"{_shape}-{_options}", **_options)
    for _name in ["rfft", "ihfft"]:
        case(_name, normal(*_shape), label=f"{_shape}-{_options}", **_options)
    for _name in ["irfft", "hfft"]:
        if _shape[_options.get("axis", -1)] > 1 or _options.get("n"):
            case(_name, complex_normal(*_shape), label=f"{_shape}-{_options}", **_options)
    case("irfft", normal(*_shape), label=f"real-{_shape}-{_options}", **{"n": 4, **_options})

SEVERAL_AXES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((3, 4), {}),
    ((2, 3, 4), {}),
    ((2, 3, 4), {"axes": (0, 2)}),
    ((2, 3, 4), {"axes": (2, 1)}),
    ((3, 4), {"s": (2, 6), "axes": (0, 1)}),
    ((3, 4), {"s": (4, -1), "axes": (-2, -1)}),
    ((3, 4), {"norm": "ortho"}),
    ((3, 4), {"norm": "forward", "axes": (1, 0)}),
]
for _shape, _options in SEVERAL_AXES:
    for _suffix in ["n", "2"]:
        for _name in ["fft", "ifft", "irfft"]:
            case(_name + _suffix, complex_normal(*_shape), label=f"{_shape}-{_options}", **_options)
        case("rfft" + _suffix, normal(*_shape), label=f"{_shape}-{_options}", **_options)
for _shape, _axes in [((5,), None), ((4,), None), ((3, 4), None), ((3, 4), 0), ((3, 4), (-1,)), ((2, 3, 5), (0, 2))]:
    for _name in ["fftshift", "ifftshift"]:
        case(_name, normal(*_shape), _axes, label=f"{_shape}-{_axes}")
case("fftshift", complex_normal(3), label="complex")
case("fftshift", normal(0, 3))

# --- convolution -------------------------------------------------------------------------------------------------

for _mode in ["full", "same", "valid"]:
    for _n, _m in [(5, 3), (3, 5), (6, 4), (4, 6), (5, 2), (2, 5), (4, 4), (1, 3), (3, 1), (1, 1), (2, 2), (3, 3)]:
        for _name in ["convolve", "correlate"]:
            case(_name, normal(_n), normal(_m, seed=1), _mode, label=f"{_n}-{_m}-{_mode}")
for _name in ["convolve", "correlate"]:
    case(_name, normal(4), normal(2, seed=1), label="default")
    case(_name, complex_normal(4), complex_normal(3, seed=1), "same", label="complex")
    case(_name, complex_normal(2), complex_normal(5, seed=1), "same", label="complex-longer")
case("convolve", normal(), normal(3, seed=1), label="scalar")
case("convolve", normal(3), normal(seed=1), mode="same", label="by-scalar")
