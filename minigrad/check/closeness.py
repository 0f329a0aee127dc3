"""Whether two arrays agree, and whether a derivative agrees with its difference quotient."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

NUMERIC = 1e-7  # how far a difference quotient may be off, relative to the sum of its terms
STEP = 1e-3  # of differences: where the error of fourth order balances the rounding error
REFINEMENTS = 7  # shorter steps (each a quarter of the one before) tried where the first does not agree


def eps_of(x: np.ndarray) -> float:
    return float(np.finfo(x.dtype).eps)


def inner(pairs: Iterable[tuple[Any, Any]]) -> float:
    """The real part of the sum of all products, without conjugates: what a cotangent does to a change."""
    return float(sum(np.sum(a * b).real for a, b in pairs))


def size_of(pairs: Iterable[tuple[Any, Any]]) -> float:
    """The sum of all products' magnitudes: what an error of their sum is relative to."""
    return float(sum(np.sum(np.abs(a * b)) for a, b in pairs))


def unequal(
    what: str, got: Sequence[Any], wanted: Sequence[Any], tolerance: float, names: tuple[str, str] = ("got", "expected")
) -> str | None:
    """The first of several arrays that differs from what it should be: in shape, or by more than the tolerance."""
    for i, (a, b) in enumerate(zip(got, wanted)):
        if np.shape(a) != np.shape(b):
            return f"{what} {i} has shape {np.shape(a)} instead of {np.shape(b)}"
        if np.array_equal(a, b):
            continue  # which is nearly always so, and fast
        with np.errstate(all="ignore"):
            largest = np.max(np.abs(b), initial=1.0, where=np.isfinite(b))
            close = np.isclose(a, b, rtol=tolerance, atol=tolerance * largest, equal_nan=True)
        if not close.all():
            at = tuple(map(int, np.argwhere(~close)[0]))
            return f"{what} {i} at {at}: {names[0]} {a[at]:.9g}, {names[1]} {b[at]:.9g}"
    return None


SINGLE_RULE = 1e-3  # how far a gradient in float32 may be from that in float64, of its natural size


def unlike_in_single(
    narrow: tuple[Sequence[Any], Sequence[Any]], wide: tuple[Sequence[Any], Sequence[Any]], operands: Sequence[Any]
) -> str | None:
    """What gradients in float32 are not in float64, at the same operands and with the same cotangents.

    narrow, wide: values and gradients. As large as |value| / |operand| a gradient naturally is: much smaller ones may
    be rounding errors alone. And where the values themselves differ in float32, gradients do as well.
    """
    apart = max((_apart(y, z) / (_largest(z) or 1.0) for y, z in zip(narrow[0], wide[0])), default=0.0)
    value = max(map(_largest, wide[0]), default=0.0)
    for i, (g, h, x) in enumerate(zip(narrow[1], wide[1], operands)):
        natural = value / _largest(x) if _largest(x) else math.inf if value else 0.0
        if _apart(g, h) > (SINGLE_RULE + 100 * apart) * max(_largest(h), natural):
            at = tuple(map(int, np.unravel_index(np.argmax(_gap(g, h)), g.shape)))
            return f"gradient {i} at {at} is {g[at]:.6g} in float32 and {h[at]:.6g} in float64"
    return None


def _gap(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(a) & np.isfinite(b), np.abs(a - b), 0.0)


def _apart(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.max(_gap(a, b), initial=0.0))


def _largest(x: np.ndarray) -> float:
    return float(np.max(np.abs(x), initial=0.0, where=np.isfinite(x)))


class Quotient:
    """The derivative at 0 of sum(weights * outputs(t)) by differences of fourth order."""

    def __init__(self, outputs: Callable[[float], list[np.ndarray]], weights: Sequence[np.ndarray]):
        self.outputs = outputs
        self.weights = weights

    def compare(self, analytic: float, scale: float) -> tuple[bool, float]:
        """Whether the two agree, and the numeric one.

        Where they do not at the first step, the function may just vary fast, so shorter steps are tried; of all
        estimates that counts which agrees best with its successor, not the one which agrees best with `analytic`.
        """
        numeric, noise = self._stencil(STEP)
        if abs(numeric - analytic) <= NUMERIC * scale + noise:
            return True, numeric
        estimates = [(numeric, noise), *(self._stencil(STEP / 4.0**k) for k in range(1, REFINEMENTS + 1))]
        changes = [abs(a - b) + noise for (a, noise), (b, _) in pairwise(estimates)]
        best = int(np.argmin([change if np.isfinite(change) else np.inf for change in changes]))
        numeric, noise = estimates[best]
        return bool(abs(numeric - analytic) <= NUMERIC * scale + noise), numeric

    def _stencil(self, step: float) -> tuple[float, float]:
        near, rounding = self._change(step)
        far, _ = self._change(2 * step)
        return (8 * near - far) / (12 * step), rounding / step

    def _change(self, step: float) -> tuple[float, float]:
        """sum(weights * (outputs(step) - outputs(-step))), and a bound on its rounding error."""
        change = rounding = 0.0
        for up, down, c in zip(self.outputs(step), self.outputs(-step), self.weights):
            with np.errstate(all="ignore"):
                change += float(np.sum(c * np.where(up == down, 0, up - down)).real)  # infinities may stay
                rounding += 4 * eps_of(up) * float(np.sum(np.abs(c) * (np.abs(up) + np.abs(down))))
        return change, rounding
