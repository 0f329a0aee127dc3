"""Numeric derivatives of sum(c * f) along a line: central differences, one-sided ones at a kink, a complex step."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from minigrad.check.subject import Subject
from minigrad.engine import Array, Transform
from minigrad.tensor import Tensor, wrap

RELATIVE = 2e-9  # how far analytic and numeric may differ, of the larger of the two,
OF_LARGEST = 1e-9  # plus this much of the input's largest gradient,
ABSOLUTE = 1e-10  # plus this, plus what the outputs' rounding errors come to
STEP = 1e-3  # times max(1, |x|): where the fourth-order error (step^4) and the rounding error (1e-16 / step) balance
REFINEMENTS = (1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 4**5, 1 / 4**6, 1 / 4**7, 4, 16)  # tried where STEP does not agree
SETTLED = 1e-9  # estimates at two steps that differ by less, relatively, need no third
COMPLEX_STEP = 1e-30


@dataclass(frozen=True)
class Outcome:
    """One derivative: its numeric value, whether the analytic one is wrong, and what is known of a kink there."""

    numeric: float
    wrong: bool = False
    why: str = ""  # not empty where the two sides disagree: what was found there


class Line:
    """sum(c * f) along a line through the inputs, as a function of the distance t, and its derivative at t = 0.

    outputs(t): all of f's outputs at distance t, in one flat array. cotangents: as flat; eps: the outputs' precision.
    scale: what the steps are multiplied by.
    """

    def __init__(
        self, outputs: Callable[[float], np.ndarray], cotangents: np.ndarray, eps: np.ndarray, scale: float
    ) -> None:
        self.outputs = functools.cache(outputs)
        self.cotangents = cotangents
        self.eps = eps
        self.scale = scale

    def examine(self, analytic: float, tolerance: float) -> Outcome:
        """Compare the analytic derivative with differences.

        Where they differ at the first step, f may just vary fast there, so other steps are tried, and of all estimates
        that counts which agrees best with its successor (not the one which agrees best with the analytic value).
        """
        estimate, noise = self.central(STEP)
        if agree(analytic, estimate, tolerance + noise):
            return Outcome(estimate)
        estimate, noise, _ = self.refined()
        if agree(analytic, estimate, tolerance + noise):
            return Outcome(estimate)
        tolerance += noise if np.isfinite(noise) else 0.0
        if self._is_smooth(estimate, tolerance):
            return Outcome(estimate, wrong=True)
        return self._at_kink(analytic, tolerance) or Outcome(estimate, wrong=True)

    def has_kink(self) -> bool:
        """Whether the slopes of the two sides differ, be their mean right or not."""
        left, right, noise = self._slopes(STEP / 256)
        return bool(abs(left - right) > 1e-3 * max(abs(left), abs(right)) + 100 * noise)

    def _is_smooth(self, estimate: float, tolerance: float) -> bool:
        """Whether both sides have the slope that central differences found, at a known step or a short one."""
        for step in (STEP * REFINEMENTS[0], STEP / 256):
            left, right, noise = self._slopes(step)
            if max(abs(left - estimate), abs(right - estimate)) <= 1e-6 * abs(estimate) + 10 * noise + tolerance:
                return True
        return False

    def refined(self) -> tuple[float, float, float]:
        """The estimate that agrees best with its successor, its rounding error, and how far the two are apart."""
        estimates = [self.central(STEP)]
        for factor in REFINEMENTS:
            estimates.append(self.central(STEP * factor))
            (a, noise), (b, _) = estimates[-2:]
            if np.isfinite(a) and abs(a - b) <= SETTLED * abs(a) + noise:
                return a, noise, abs(a - b)
        del estimates[-2:]  # the long steps serve only where rounding errors drown all others
        changes = [abs(a - b) + noise for (a, noise), (b, _) in pairwise(estimates)]
        finite = [change if np.isfinite(change) else np.inf for change in changes]
        best = int(np.argmin(finite))
        return *estimates[best], finite[best]

    def curve(self) -> list[tuple[float, float]]:
        """(step, estimate) from long steps to short ones."""
        steps = sorted({STEP, *(STEP * factor for factor in REFINEMENTS)}, reverse=True)
        return [(step * self.scale, self.central(step)[0]) for step in steps]

    def central(self, step: float) -> tuple[float, float]:
        """(8 (f(x+h) - f(x-h)) - (f(x+2h) - f(x-2h))) / 12h, with an error of order h^4, and its rounding error."""
        h = step * self.scale
        near, rounding = self._change(h, -h)
        far, _ = self._change(2 * h, -2 * h)
        return (8 * near - far) / (12 * h), rounding / h

    def sided(self, step: float, sign: int) -> tuple[float, float]:
        """(4 (f(x+h) - f(x)) - (f(x+2h) - f(x))) / 2h for h on one side, and its rounding error."""
        h = sign * step * self.scale
        near, rounding = self._change(h, 0.0)
        far, _ = self._change(2 * h, 0.0)
        return (4 * near - far) / (2 * h), 2 * rounding / abs(h)

    def _change(self, up: float, down: float) -> tuple[float, float]:
        """sum(c * (f(up) - f(down))), and a bound on its rounding error."""
        a, b, c = self.outputs(up), self.outputs(down), self.cotangents
        with np.errstate(all="ignore"):
            same = (a == b) | (np.isnan(a) & np.isnan(b)) | (c == 0)  # so that what is infinite there counts 0
            change = np.sum(np.where(same, 0, c * (a - b)))
            sizes = np.where(same & ~np.isfinite(a), 0, np.abs(c) * (np.abs(a) + np.abs(b)))
            return float(change), float(4 * np.sum(self.eps * sizes))

    def _at_kink(self, analytic: float, tolerance: float) -> Outcome | None:
        """What to say if f has a kink, a jump, or an end of its domain here; None if it is smooth."""
        steps = [self._slopes(STEP / factor) for factor in (16, 64, 256)]
        left, right, noise = steps[-1]
        if np.isfinite(left) != np.isfinite(right):
            side = 0 if np.isfinite(left) else 1
            return _at_edge(analytic, steps[-1][side], steps[-2][side], tolerance)
        gaps = [abs(right - left) for left, right, _ in steps]
        what = _kind_of_break(steps, gaps)
        if not what or max(gaps[-1], abs(left)) <= 1e-6 * max(abs(left), abs(right)) + 10 * noise:
            return None
        if np.isinf(analytic):
            return Outcome((left + right) / 2, what == "kink", "the slope grows without bound")
        if what == "jump":
            return Outcome((left + right) / 2, not np.isfinite(analytic), "jump: there is no derivative")
        slack = 1e-4 * gaps[-1] + tolerance
        within = min(left, right) - slack <= analytic <= max(left, right) + slack
        return Outcome(
            (left + right) / 2, not within, f"{what}: slope {left:.6g} on the left, {right:.6g} on the right"
        )

    def _slopes(self, step: float) -> tuple[float, float, float]:
        (left, noise), (right, more) = self.sided(step, -1), self.sided(step, 1)
        return left, right, noise + more


def _kind_of_break(steps: Sequence[tuple[float, float, float]], gaps: Sequence[float]) -> str:
    """What the two sides' slopes at shorter and shorter steps (each a quarter) show; "" for a smooth or noisy f."""
    if not np.isfinite(gaps).all():
        return ""
    slopes = [max(abs(left), abs(right)) for left, right, _ in steps]
    if all(3.8 * before < after < 4.2 * before for before, after in pairwise(slopes)):
        return "jump"
    if not min(gaps) > 0:
        return ""
    (left, right, _), (left_after, right_after, _) = steps[-2:]
    if max(abs(left - left_after), abs(right - right_after)) < 0.1 * gaps[-1]:
        return "kink"
    growth = [after / before for before, after in pairwise(gaps)]
    if max(growth) > 1.1 * min(growth):
        return ""
    return "infinite slope" if 1.2 < growth[0] < 3.8 else ""


def _at_edge(analytic: float, slope: float, before: float, tolerance: float) -> Outcome:
    """At the end of f's domain, where one side has values: does the slope there tend to the analytic one?"""
    if np.isinf(analytic):
        right = abs(slope) > 1.5 * abs(before) and np.sign(slope) == np.sign(analytic)
    else:
        right = agree(analytic, slope, 2 * abs(slope - before) + tolerance)
    return Outcome(slope, not right, f"the end of the domain: slope {slope:.6g} on the side that has values")


def agree(analytic: Array, numeric: Array, tolerance: float, relative: float = RELATIVE) -> bool:
    error = abs(analytic - numeric)
    return bool(np.isfinite(error) and error <= relative * max(abs(analytic), abs(numeric)) + tolerance)


def along(subject: Subject, cotangents: Sequence[np.ndarray], us: Sequence[np.ndarray]) -> Line:
    """The line through all inputs at once, in the direction of the us."""

    def outputs(t: float) -> np.ndarray:
        return _flat(_run(subject, [wrap(x + t * u, None) for x, u in zip(subject.leaves, us)]))

    outputs_there = _run(subject, subject.constants())
    return Line(outputs, _flat(cotangents), _precision(outputs_there), 1.0)


class Differences:
    """The numeric derivatives of one input, element by element or along a direction."""

    def __init__(self, subject: Subject, cotangents: Sequence[np.ndarray], number: int):
        self.subject = subject
        self.cotangents = cotangents
        self.number = number
        self.x = subject.leaves[number]
        self._flat_cotangents = _flat(cotangents)

    def element(self, at: tuple[int, ...]) -> Line:
        x = float(self.x[at])

        def outputs(t: float) -> np.ndarray:
            moved = self.x.copy()
            moved[at] = x + t
            return self._outputs(moved)

        return self._line(outputs, max(1.0, abs(x)))

    def direction(self, u: np.ndarray, scale: float) -> Line:
        return self._line(lambda t: self._outputs(self.x + t * u), scale)

    def _line(self, outputs: Callable[[float], np.ndarray], scale: float) -> Line:
        values, eps = self._unmoved
        return Line(lambda t: outputs(t) if t else values, self._flat_cotangents, eps, scale)

    @functools.cached_property
    def _unmoved(self) -> tuple[np.ndarray, np.ndarray]:
        """The outputs at the inputs themselves, and the precision of each."""
        outputs = _run(self.subject, self.subject.constants())
        return _flat(outputs), _precision(outputs)

    def complex_step(self, at: tuple[int, ...]) -> float:
        """Im(f(x + ih)) / h, without any cancellation. TypeError if f does not take complex numbers."""
        tensors = [wrap(x.astype(complex), None) for x in self.subject.leaves]
        tensors[self.number]._array[at] += COMPLEX_STEP * 1j
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", np.exceptions.ComplexWarning)
                outputs = _run(self.subject, tensors)
        except Exception as error:
            raise TypeError(f"the complex step fails on this function ({error}): use method='central'") from error
        return float(sum(np.sum(c * y.imag) for y, c in zip(outputs, self.cotangents)) / COMPLEX_STEP)

    def _outputs(self, moved: np.ndarray) -> np.ndarray:
        tensors = self.subject.constants()
        tensors[self.number]._array = moved
        return _flat(_run(self.subject, tensors))


def _run(subject: Subject, tensors: list[Tensor]) -> list[np.ndarray]:
    with Transform(), np.errstate(all="ignore"):  # in a transform, so that f's own transforms return tensors
        return [t._array for t in subject(tensors)]


def _flat(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """All numbers in one array of float64."""
    return np.concatenate([np.ravel(x) for x in arrays] or [np.zeros(0)]).astype(float)


def _precision(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The machine epsilon of each number in `_flat` of the arrays."""
    return np.repeat([np.finfo(x.dtype).eps for x in arrays], [x.size for x in arrays])
