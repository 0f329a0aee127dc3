"""What kind of mistake it is: the patterns in which a wrong gradient differs from the right one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from minigrad.check.result import Diagnosis, InputResult

KINDS = (
    "not connected",
    "constant factor",
    "constant offset",
    "sign",
    "transposed",
    "swapped operands",
    "one row or column",
    "some elements",
    "kink",
    "float noise",
    "non-deterministic",
    "input mutated",
    "wrong shape",
    "wrong dtype",
    "second order only",
    "not finite",
    "exception",
    "other",
)
CLOSE = 1e-6

Sizes = Sequence[tuple[int, str]]  # the sizes that may have got into a factor, and what each is


def sizes_of(shapes: Sequence[tuple[str, tuple[int, ...]]]) -> list[tuple[int, str]]:
    """Every axis of the named shapes, and every number of elements; each size once, under all its names."""
    names: dict[int, list[str]] = {}
    for name, shape in shapes:
        for axis, n in enumerate(shape):
            names.setdefault(n, []).append(f"axis {axis} of {name}")
        if len(shape) > 1:
            names.setdefault(math.prod(shape), []).append(f"the elements of {name}")
    return [(n, " or ".join(found[:2])) for n, found in names.items() if n > 1]


def diagnose(result: InputResult, sizes: Sizes) -> Diagnosis:
    """The pattern of one input's wrong elements."""
    for pattern in (*PLAIN, _permuted, _offset, _rows, _partly_a_factor, _elements):
        found = pattern(result, sizes)
        if found is not None:
            return found
    wrong, probed = int(result.wrong.sum()), int(result.probed.sum())
    return Diagnosis(
        "other", f"the gradient of {result.name} is wrong in {wrong} of {probed} elements, in no simple pattern"
    )


def _pair(result: InputResult) -> tuple[np.ndarray, np.ndarray]:
    """Analytic and numeric gradients of the wrong elements."""
    return result.analytic[result.wrong], result.numeric[result.wrong]


def _close(a: np.ndarray, b: np.ndarray, scale: float) -> bool:
    return bool(np.allclose(a, b, rtol=CLOSE, atol=CLOSE * scale))


def _largest(x: np.ndarray) -> float:
    return float(np.max(np.abs(x), initial=0.0, where=np.isfinite(x)))


def _kink(result: InputResult, sizes: Sizes) -> Diagnosis | None:
    if not result.wrong.any() or not (result.at_kink == result.wrong).all():
        return None
    outside = f"{result.name} lies at a kink of f, and its gradient is outside the slopes of the two sides"
    return Diagnosis("kink", result.ties[0] if result.ties else outside)


def _not_finite(result: InputResult, sizes: Sizes) -> Diagnosis | None:
    analytic, numeric = _pair(result)
    if not np.isfinite(analytic).all():
        count = int((~np.isfinite(analytic)).sum())
        what = "NaN" if np.isnan(analytic).any() else "infinite"
        return Diagnosis(
            "not finite", f"the gradient of {result.name} is {what} in {count} elements, and should not be"
        )
    if not np.isfinite(numeric).all():
        return Diagnosis("not finite", f"f itself has no finite values around {result.name}: check at other inputs")
    return None


def _unconnected(result: InputResult, sizes: Sizes) -> Diagnosis | None:
    if result.connected and result.analytic[result.probed].any():
        return None
    if not result.connected:
        return Diagnosis(
            "not connected",
            f"f depends on {result.name}, but nothing recorded leads there: "
            "was it taken out by .data, .numpy(), .item(), .detach() or stop_gradient?",
        )
    return Diagnosis("not connected", f"the gradient of {result.name} is 0, and f depends on it")


def _imprecise(result: InputResult, sizes: Sizes) -> Diagnosis | None:
    """Right up to what looks like rounding: small errors of any size."""
    analytic, numeric = _pair(result)
    difference, largest = analytic - numeric, _largest(result.numeric)
    ratios = difference[numeric != 0] / numeric[numeric != 0]
    is_factor = len(ratios) > 2 and float(np.ptp(ratios)) <= 0.1 * float(np.max(np.abs(ratios)))
    error = float(np.max(np.abs(difference)))
    if error > 1e-6 * largest or is_factor:
        return None
    sentence = f"the gradient of {result.name} is right only to {error / largest:.1g} of its largest element"
    return Diagnosis("wrong dtype", f"{sentence}: is it computed in float32?")


def _sign(result: InputResult, sizes: Sizes) -> Diagnosis | None:
    analytic, numeric = _pair(result)
    if not _close(analytic, -numeric, _largest(numeric)):
        return None
    return Diagnosis("sign", f"the gradient of {result.name} has the wrong sign{_where(result)}")


def _where(result: InputResult) -> str:
    """In how many of the elements whose gradient is not 0."""
    counted = result.probed & ((result.numeric != 0) | result.wrong)
    wrong = int(result.wrong.sum())
    return "" if wrong == int(counted.sum()) else f" in {wrong} of {int(counted.sum())} elements"


def _everywhere_a_factor(result: InputResult, sizes: Sizes) -> Diagnosis | None:
    right = result.probed & ~result.wrong & (np.abs(result.numeric) > CLOSE * _largest(result.numeric))
    return None if right.any() else _a_factor(result, sizes)


def _partly_a_factor(result: InputResult, sizes: Sizes) -> Diagnosis | None:
    return _a_factor(result, sizes) if result.wrong.sum() > 1 else None  # one of several says nothing of a constant


def _a_factor(result: InputResult, sizes: Sizes) -> Diagnosis | None:
    analytic, numeric = _pair(result)
    significant = np.abs(numeric) > 1e-3 * _largest(numeric)
    if not significant.any():
        return None
    factor = float(np.median(analytic[significant] / numeric[significant]))
    if not factor or not _close(analytic, factor * numeric, abs(factor) * _largest(numeric)):
        return None
    sentence = f"the gradient of {result.name} is {factor_name(factor, sizes)} times what it should be{_where(result)}"
    return Diagnosis("constant factor", sentence)


_CONSTANTS = [
    (math.log(2), "ln 2"),
    (math.log(10), "ln 10"),
    (math.pi, "pi"),
    (2 * math.pi, "2 pi"),
    (math.pi / 180, "pi/180"),
    (math.sqrt(2), "sqrt(2)"),
    (math.sqrt(math.pi), "sqrt(pi)"),
]


def factor_name(factor: float, sizes: Sizes) -> str:
    """The factor, and what it may come from.

    >>> factor_name(0.5, [(8, "axis 0 of x")]), factor_name(-64.0, [(8, "axis 0 of x")])
    ('1/2', '-64 (8^2; 8: axis 0 of x)')
    >>> factor_name(0.5, [(4, "axis 1 of q")]), factor_name(1.001, [])
    ('1/2 (1/sqrt(4); 4: axis 1 of q)', '1.001')
    """
    if factor < 0:
        return "-" + factor_name(-factor, sizes)
    fraction = Fraction(factor).limit_denominator(12)
    exact = math.isclose(fraction, factor, rel_tol=1e-6) and fraction.numerator <= 1000
    number = str(fraction) if exact else f"{factor:.7g}"
    found = [text for value, text in _candidates(sizes) if math.isclose(value, factor, rel_tol=1e-6)]
    return f"{number} ({min(found, key=len)})" if found else number


def _candidates(sizes: Sizes) -> Iterator[tuple[float, str]]:
    for value, text in _CONSTANTS:
        yield value, text
        yield 1 / value, f"1/({text})"
    for n, name in sizes:
        yield n, f"{n}: {name}"
        yield 1 / n, f"{n}: {name}"
        yield (n - 1) / n, f"({n} - 1)/{n}; {n}: {name}"
        yield n / (n - 1), f"{n}/({n} - 1); {n}: {name}"
        for value, text in ((math.sqrt(n), f"sqrt({n})"), (n * n, f"{n}^2")):
            yield value, f"{text}; {n}: {name}"
            yield 1 / value, f"1/{text}; {n}: {name}"


def _transposed(result: InputResult, sizes: Sizes) -> Diagnosis | None:
    """The right values with the axes in another order."""
    known = result.probed.all() and result.analytic.size > 1
    largest = _largest(result.numeric)
    for axes in itertools.permutations(range(result.analytic.ndim)):
        moved = result.analytic.transpose(axes)
        both = result.probed & result.probed.transpose(axes) if moved.shape == result.analytic.shape else None
        if both is not None and list(axes) != sorted(axes) and _close(moved[both], result.numeric[both], largest):
            return Diagnosis("transposed", f"the gradient of {result.name} is right with its axes in the order {axes}")
    if known and _close(result.analytic.ravel("F"), result.numeric.ravel("C"), largest):
        return Diagnosis("transposed", f"the gradient of {result.name} is transposed, and then reshaped")
    return None


def _permuted(result: InputResult, sizes: Sizes) -> Diagnosis | None:
    everywhere = result.probed.all() and result.analytic.size > 1
    if everywhere and _close(np.sort(result.analytic, None), np.sort(result.numeric, None), _largest(result.numeric)):
        sentence = f"the gradient of {result.name} has the right values in the wrong places (their order, or the axes')"
        return Diagnosis("transposed", sentence)
    return None


def _rows(result: InputResult, sizes: Sizes) -> Diagnosis | None:
    """All wrong elements at some indices of one axis, and right ones that are not 0 at its others."""
    wrong = result.wrong
    for axis in range(wrong.ndim):
        others = tuple(i for i in range(wrong.ndim) if i != axis)
        bad = wrong.any(others)
        good = (result.probed & ~wrong & (result.numeric != 0)).any(others)
        if good[~bad].any() and not good[bad].any():
            indices = np.flatnonzero(bad)
            shown = ", ".join(map(str, indices[:5])) + (", ..." if len(indices) > 5 else "")
            place = f"ind{'ex' if len(indices) == 1 else 'ices'} {shown} of axis {axis}"
            looked_at = (
                "" if result.probed.all() else f", of {int(result.probed.any(others).sum())} that were looked at,"
            )
            return Diagnosis(
                "one row or column",
                f"only {place} of {result.name}{looked_at} {'is' if len(indices) == 1 else 'are'} wrong "
                "(an index that repeats? a broadcast?)",
            )
    return None


def _elements(result: InputResult, sizes: Sizes) -> Diagnosis | None:
    """A few elements of many."""
    wrong = [tuple(map(int, at)) for at in np.argwhere(result.wrong)]
    counted = int((result.probed & (result.wrong | (result.numeric != 0))).sum())
    if 2 * len(wrong) > counted:
        return None
    shown = ", ".join(map(str, wrong[:3])) + (", ..." if len(wrong) > 3 else "")
    sentence = (
        f"only {len(wrong)} of {counted} elements of {result.name} wrong: {shown} (an index that repeats? a mask?)"
    )
    return Diagnosis("some elements", sentence)


def _shifted(result: InputResult, sizes: Sizes) -> Diagnosis | None:
    """The right rows, each at its neighbour's index."""
    if not result.probed.all():
        return None
    for axis, by in itertools.product(range(result.analytic.ndim), (1, -1)):
        if result.analytic.shape[axis] > 1 and _close(
            result.analytic, np.roll(result.numeric, by, axis), _largest(result.numeric)
        ):
            neighbour = "before" if by > 0 else "after"
            sentence = f"every index of axis {axis} of {result.name} has the gradient of the one {neighbour} it"
            return Diagnosis("one row or column", sentence)
    return None


def _offset(result: InputResult, sizes: Sizes) -> Diagnosis | None:
    analytic, numeric = _pair(result)
    offset = float(np.median(analytic - numeric))
    right = result.probed & ~result.wrong
    if right.any() or not np.allclose(analytic - numeric, offset, rtol=1e-5, atol=1e-9 * _largest(numeric)):
        return None
    return Diagnosis("constant offset", f"the gradient of {result.name} is what it should be plus {offset:.6g}")


PLAIN = (_not_finite, _kink, _unconnected, _imprecise, _sign, _everywhere_a_factor, _shifted, _transposed)


def plainly(result: InputResult, sizes: Sizes) -> Diagnosis | None:
    """The diagnosis where it is one of those patterns that need no second look."""
    return next((found for pattern in PLAIN if (found := pattern(result, sizes)) is not None), None)
