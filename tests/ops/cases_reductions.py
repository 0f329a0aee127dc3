"""Cases of statistics, of reductions with where= and initial=, of running sums and of differences."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from cases import AXES, case, normal, positive
from cases_linalg import complex_normal

from minigrad.check.cases import Case
from minigrad.engine import OPS

CASES: list[Case] = []


def case_with_gaps(name: str, *args: Any, label: str, **kwargs: Any) -> None:
    """A case of a function that gets its first argument with every third element NaN."""

    def with_gaps(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(x: Any, *args: Any, **kwargs: Any) -> Any:
            gaps = np.arange(x.size).reshape(x.shape) % 3 == 0
            return function(np.where(gaps, np.nan, x), *args, **kwargs)

        call.__name__ = name
        return call

    CASES.append(Case(with_gaps(OPS[name]), args, kwargs, with_gaps(getattr(np, name)), label))


# --- complex numbers ---------------------------------------------------------------------------------------------

for _name in ["var", "std", "nanvar", "nanstd"]:
    case(_name, complex_normal(3, 4), label="complex")
    case(_name, complex_normal(3, 4), axis=1, ddof=1, keepdims=True, label="complex-axis")

# --- where and initial -------------------------------------------------------------------------------------------

MASK = np.array([[True, True, False, True], [False, True, True, False], [True, False, True, True]])


def _logsumexp(x: np.ndarray, axis: Any = None, keepdims: bool = False, where: Any = True) -> np.ndarray:
    return np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims, where=where))


for _name in ["var", "std"]:
    case(_name, complex_normal(3, 4), axis=0, where=MASK, label="complex-where")
for _axis, _keepdims in [(None, False), (0, True), (1, False), ((0, 1), True)]:
    for _mask, _kind in [(MASK, "all"), (MASK[1], "row"), (MASK[:, :1], "column"), (MASK.tolist(), "list")]:
        _label = f"where-{_kind}-{_axis}"
        for _name in ["sum", "prod", "mean", "var", "std", "max", "min", "logsumexp"]:
            if _kind in ("row", "column") and _axis in (0, 1) and _name not in ("sum", "prod"):
                continue  # nothing would count in some places
            case(
                _name,
                normal(3, 4),
                axis=_axis,
                keepdims=_keepdims,
                where=_mask,
                expected=_logsumexp if _name == "logsumexp" else None,
                label=_label,
                **({"initial": -9.0 if _name == "max" else 9.0} if _name in ("max", "min") else {}),
            )
case(
    "logsumexp",
    normal(4),
    where=MASK,
    expected=lambda x, where: _logsumexp(np.broadcast_to(x, where.shape), where=where),
    label="where-wider",
)
case("var", normal(3, 4), axis=0, ddof=1, where=MASK[[0, 2, 0]] | MASK, label="where-ddof")
for _name in ["sum", "prod", "max", "min"]:
    case(_name, normal(3, 4), axis=1, initial=0.5, label="initial")
    case(_name, normal(3, 4), initial=0.5, where=MASK, keepdims=True, label="initial-where")
    case(_name, normal(0, 3), axis=0, initial=0.5, label="initial-empty")

# --- statistics --------------------------------------------------------------------------------------------------

for _shape, _axis in AXES:
    for _name in ["ptp", "median", "nansum", "nanprod", "nanmax", "nanmin"]:
        if _name == "ptp" and _axis == ():
            continue
        case(_name, normal(*_shape), axis=_axis, label=f"{_shape}-{_axis}")
    case("quantile", normal(*_shape), 0.3, axis=_axis, label=f"{_shape}-{_axis}")
for _name in ["ptp", "median", "nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanvar", "nanstd", "nanmedian"]:
    case(_name, normal(3, 4), axis=0, keepdims=True, label="kept")
for _name in ["nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanvar", "nanstd", "nanmedian"]:
    for _axis in (None, 0, 1, (0, 1)):
        case_with_gaps(_name, normal(4, 5), axis=_axis, label=f"nan-{_axis}")
    case(_name, normal(4), label="no-nan")
for _name in ["nansum", "nanmean", "nanvar", "nanstd"]:
    case_with_gaps(_name, normal(4, 5), axis=1, where=np.arange(5) != 3, label="nan-where")
case_with_gaps("nanvar", normal(4, 5), axis=1, ddof=1, label="ddof")
case_with_gaps("nanstd", normal(4, 5), axis=1, ddof=1, label="ddof")
case_with_gaps("nanmax", normal(4, 5), axis=1, initial=0.4, label="nan-initial")

for _name in ["quantile", "nanquantile", "percentile", "nanpercentile"]:
    _scale = 100 if "percentile" in _name else 1
    case(_name, normal(7), 0.35 * _scale, label="one")
    case(_name, normal(3, 5), 0.5 * _scale, axis=1, keepdims=True, label="kept")
    case(_name, normal(3, 5), [[0.0, 0.6 * _scale], [0.25 * _scale, _scale]], axis=0, label="many")
    case(_name, normal(3, 2, 2), [0.1 * _scale, 0.9 * _scale], axis=(0, 2), keepdims=True, label="many-kept")
    case(_name, normal(1), 1 * _scale, label="single")
for _name in ["nanquantile", "nanpercentile"]:
    case_with_gaps(_name, normal(4, 5), [0.2, 0.7], axis=1, label="nan")
    case_with_gaps(_name, normal(4, 5), 0.2, label="nan-all")

case("average", normal(3, 4), label="plain")
case("average", normal(3, 4), axis=1, keepdims=True, label="plain-kept")
case("average", normal(3, 4), weights=positive(3, 4, seed=1), label="weights")
case("average", normal(3, 4), axis=0, weights=positive(3, seed=1), label="weights-1-D")
case("average", normal(3, 4), axis=1, weights=positive(4, seed=1), returned=True, label="returned")
case("average", normal(3, 4), axis=1, returned=True, label="returned-plain")
case("average", normal(3, 2, 4), axis=(2, 0), weights=positive(4, 3, seed=1), label="weights-2-D")
case("average", normal(3, 4), axis=-1, weights=positive(3, 4, seed=1), keepdims=True, label="kept")

# --- running sums and products -----------------------------------------------------------------------------------

for _name in ["cumsum", "cumprod", "nancumsum", "nancumprod"]:
    for _shape, _axis in [
        ((5,), None),
        ((5,), -1),
        ((2, 3), None),
        ((2, 3), 0),
        ((3, 4, 2), 1),
        ((3, 1), 1),
        ((), None),
        ((0,), 0),
        ((2, 0), 1),
        ((0, 2), 1),
    ]:
        case(_name, normal(*_shape), axis=_axis, label=f"{_shape}-{_axis}")
for _name in ["nancumsum", "nancumprod"]:
    case_with_gaps(_name, normal(3, 4), 1, label="nan")
case("cumprod", np.array([[2.0, 0.0, 3.0, 0.5], [0.0, 0.5, 0.0, -1.0], [0.0, 0.0, 0.0, 0.0]]), axis=1, label="zeros")


def _cumulative(function: np.ufunc, x: np.ndarray, axis: int = -1, include_initial: bool = False) -> np.ndarray:
    """(NumPy has cumulative_sum and cumulative_prod since 2.1.)"""
    first = np.full_like(x.sum(axis, keepdims=True), function.identity)
    result = function.accumulate(x, axis)
    return np.concatenate([first, result], axis) if include_initial else result


for _name, _ufunc in [("cumulative_sum", np.add), ("cumulative_prod", np.multiply)]:
    _expected = functools.partial(_cumulative, _ufunc)
    case(_name, normal(5), expected=_expected)
    case(_name, normal(2, 3), axis=-1, include_initial=True, expected=_expected, label="initial")
    case(_name, normal(2, 3), axis=0, expected=_expected, label="axis")
    case(_name, normal(0), include_initial=True, expected=_expected)

# --- differences -------------------------------------------------------------------------------------------------

case("diff", normal(5))
for _n in (0, 1, 2, 3, 5):
    case("diff", normal(3, 4), _n, label=f"n-{_n}")
case("diff", normal(3, 4), axis=0, label="axis")
case("diff", normal(3), prepend=0.5, append=normal(2, seed=1), label="ends")
case("diff", normal(2, 3), axis=0, prepend=normal(1, 3, seed=1), append=0.5, label="ends-axis")
case("diff", normal(2, 3), n=2, prepend=normal(seed=1), label="end-0-d")
case("diff", normal(0))
case("ediff1d", normal(2, 3))
case("ediff1d", normal(4), to_begin=normal(2, seed=1), to_end=normal(1, 2, seed=2), label="ends")
case("ediff1d", normal(1))

UNEVEN = [0.0, 0.5, 2.0, 2.3, 3.1]
case("gradient", normal(5))
case("gradient", normal(2))
case("gradient", normal(5), 0.5, edge_order=2, label="edge-2")
case("gradient", normal(5), UNEVEN, label="uneven")
case("gradient", normal(5), UNEVEN, edge_order=2, label="uneven-edge-2")
case("gradient", normal(3, 5), label="all-axes")
case("gradient", normal(3, 5), 2.0, UNEVEN, edge_order=2, label="spacings")
case("gradient", normal(3, 5), UNEVEN, axis=-1, label="axis")
case("gradient", normal(3, 5, 2), 0.5, 2, axis=(2, 0), label="axes")
case("gradient", normal(0, 3), axis=1, label="empty")

case("trapezoid", normal(5))
case("trapezoid", normal(5), dx=0.5, label="dx")
case("trapezoid", normal(5), dx=normal(seed=1), label="dx-array")
case("trapezoid", normal(3, 4), normal(4, seed=1), label="x")
case("trapezoid", normal(3, 4), normal(3, 4, seed=1), axis=0, label="x-2-D")
case("trapezoid", normal(3, 4), normal(3, seed=1), axis=0, label="x-axis")
case("trapezoid", normal(3, 4), axis=0, dx=2, label="axis")
case("trapezoid", normal(1))

_xp, _x = np.array([-1, 0, 1, 3]), np.array([-1.4, -0.6, 0.3, 0.9, 2.5, 3.5])
case("interp", _x, _xp, normal(4))
case("interp", _x.reshape(2, 3), _xp, normal(4), left=7.0, right=-3, label="ends")
case("interp", _x, _xp, normal(4), left=normal(seed=1), right=normal(seed=2), label="end-arrays")
case("interp", np.array(0.4), _xp, normal(4), label="0-d")
case("interp", np.array([0.4, 2.0]), [1], normal(1), label="single")
case("interp", _x, _xp, complex_normal(4), label="complex")

# --- covariances, polynomials, points ----------------------------------------------------------------------------

for _name in ["cov", "corrcoef"]:
    case(_name, normal(3, 5))
    case(_name, normal(5, 3), rowvar=False, label="columns")
    case(_name, normal(4), normal(4, seed=1), label="two")
    case(_name, normal(2, 4), normal(4, seed=1), label="beside")
    case(_name, complex_normal(2, 4), label="complex")
case("cov", normal(4), label="one")
case("cov", normal(2, 4), bias=True, label="bias")
case("cov", normal(2, 4), ddof=2, label="ddof")
for _shapes in [((), ()), ((3,), (2, 3)), ((2, 1), ())]:
    case("linspace", *(normal(*s, seed=i) for i, s in enumerate(_shapes)), 4, label=str(_shapes))
case("linspace", normal(2), normal(2, seed=1), 3, endpoint=False, axis=-1, label="open")
case("linspace", normal(2), normal(2, seed=1), 5, retstep=True, label="step")
case("linspace", normal(2), normal(2, seed=1), 1, label="single")
case("linspace", normal(2), normal(2, seed=1), 0, label="none")
for _shape in [(), (3,), (2, 3)]:
    case("polyval", normal(4), normal(*_shape, seed=1), label=str(_shape))
case("polyval", normal(1), normal(3, seed=1), label="constant")
