"""Numeric derivatives of sum(c * f) along a line: central differences, one-sided ones at a kink, a complex step."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from minigrad.check.subject import Subject
from minigrad.engine import Array, Transform
from minigrad.tensor import Tensor, wrap

RELATIVE = 2e-9  # how far analytic and numeric may differ, of the larger of the two,
OF_LARGEST = 1e-9  # plus this much of the input's largest gradient,
ABSOLUTE = 1e-10  # plus this, plus what the outputs' rounding errors come to
# Times max(1, |x|): where the fourth-order error (step^4) and the rounding error (1e-16 / step) balance. No round
# number, and no powers of two between steps: where f repeats itself (x % 1), or rounds, wrong estimates would agree.
STEP = 7e-4 * 2**0.5
SHORTER = [STEP / 3.7**k for k in range(1, 26)]  # tried, as far as x + step is not just x, where STEP does not agree;
LONGER = [STEP * 4, STEP * 16]  # and these, where rounding errors drown all others
FLAT = STEP / 4**7  # where f does not change at steps of at least this, it is constant
SETTLED = 1e-9  # estimates at two steps that differ by less, relatively, need no third
SHORTEST_OF_DIRECTION = 1e-8  # along a direction, x + step rounds
COMPLEX_STEP = 1e-30


@dataclass(frozen=True)
class Outcome:
    """One derivative: its numeric value, whether the analytic one is wrong, and what is known of a kink there."""

    numeric: float
    wrong: bool = False
    why: str = ""  # not empty where the two sides disagree: what was found there


class Estimate(NamedTuple):
    """A difference quotient: its step, its value, its rounding error, and how far the next shorter step's is away."""

    step: float
    estimate: float
    noise: float
    change: float = 0.0


def _compared(a: Estimate, b: Estimate) -> Estimate:
    return a._replace(change=abs(a.estimate - b.estimate))


def _settled(a: Estimate, b: Estimate) -> bool:
    """Whether two estimates agree, and not just because rounding errors might be anything."""
    size = abs(a.estimate)
    if not (np.isfinite(size) and a.noise <= 1e3 * SETTLED * size + ABSOLUTE):
        return False
    return abs(a.estimate - b.estimate) <= SETTLED * size + a.noise


class Line:
    """sum(c * f) along a line through the inputs, as a function of the distance t, and its derivative at t = 0.

    outputs(t): all of f's outputs at distance t, in one flat array. cotangents: as flat; eps: the outputs' precision.
    scale: what the steps are multiplied by. shortest: the least distance that means anything. grid: distances are
    rounded so that adding them to this number is exact.
    """

    def __init__(
        self,
        outputs: Callable[[float], np.ndarray],
        cotangents: np.ndarray,
        eps: np.ndarray,
        scale: float,
        shortest: float,
        grid: float = 0.0,
    ) -> None:
        self.outputs = functools.cache(outputs)
        self.cotangents = cotangents
        self.eps = eps
        self.scale = scale
        self.grid = grid
        self.steps = [STEP, *(step for step in SHORTER if step * scale >= shortest)]

    def examine(self, analytic: float, tolerance: float) -> Outcome:
        """Compare the analytic derivative with differences.

        Where they differ at the first step, f may just vary fast there, so other steps are tried, and of all estimates
        that counts which agrees best with its successor (not the one which agrees best with the analytic value).
        """
        estimate, noise = self.central(STEP)
        if agree(analytic, estimate, tolerance + noise):
            return Outcome(estimate)
        best = self.refined()
        if agree(analytic, best.estimate, tolerance + best.noise):
            return Outcome(best.estimate)
        tolerance += best.noise if np.isfinite(best.noise) else 0.0
        if self._is_smooth(best, tolerance):
            return Outcome(best.estimate, wrong=True)
        return self._at_kink(analytic, tolerance) or Outcome(best.estimate, wrong=True)

    def has_kink(self) -> bool:
        """Whether the slopes of the two sides differ, be their mean right or not."""
        left, right, noise = self._slopes(STEP / 256)
        return bool(abs(left - right) > 1e-3 * max(abs(left), abs(right)) + 100 * noise)

    def _is_smooth(self, best: Estimate, tolerance: float) -> bool:
        """Whether both sides have the slope that central differences found, at a step like theirs or shorter ones."""
        for step in (best.step / 4, best.step / 256, STEP / 256):
            left, right, noise = self._slopes(step)
            apart = max(abs(left - best.estimate), abs(right - best.estimate))
            if apart <= 1e-6 * abs(best.estimate) + 10 * noise + tolerance:
                return True
        return False

    def refined(self) -> Estimate:
        """The estimate that agrees best with its successor, a shorter step's."""
        estimates: list[Estimate] = []
        for estimate in self._resolved():
            estimates.append(estimate)
            if len(estimates) > 1 and _settled(*estimates[-2:]):
                return _compared(*estimates[-2:])
        near, far = map(self._estimate, LONGER)
        if _settled(near, far) or len(estimates) < 2:
            return _compared(near, far)
        found = [_compared(*pair) for pair in pairwise(estimates)]
        errors = [estimate.change + estimate.noise for estimate in found]
        return found[int(np.argmin([error if np.isfinite(error) else np.inf for error in errors]))]

    def curve(self) -> list[tuple[float, float]]:
        """(step, estimate) from long steps to short ones."""
        estimates = [*map(self._estimate, reversed(LONGER)), *self._resolved()]
        return [(e.step * self.scale, e.estimate) for e in estimates]

    def _resolved(self) -> Iterator[Estimate]:
        """At shorter and shorter steps; not at very short ones where f does not change, as it may just round there."""
        for step in self.steps:
            estimate = self._estimate(step)
            if step < FLAT and not estimate.estimate:
                return
            yield estimate

    def _estimate(self, step: float) -> Estimate:
        return Estimate(step, *self.central(step))

    def central(self, step: float) -> tuple[float, float]:
        """(8 (f(x+h) - f(x-h)) - (f(x+2h) - f(x-2h))) / 12h, with an error of order h^4, and its rounding error."""
        h = self._distance(step)
        near, rounding = self._change(h, -h)
        far, _ = self._change(2 * h, -2 * h)
        return (8 * near - far) / (12 * h), rounding / h

    def _distance(self, step: float) -> float:
        return (self.grid + step * self.scale) - self.grid

    def sided(self, step: float, sign: int) -> tuple[float, float]:
        """(4 (f(x+h) - f(x)) - (f(x+2h) - f(x))) / 2h for h on one side, and its rounding error."""
        h = sign * self._distance(step)
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
    if not max(gaps):  # of an odd function, as the cube root is
        gaps = slopes
    if not min(gaps) > 0:
        return ""
    (left, right, _), (left_after, right_after, _) = steps[-2:]
    if max(abs(left - left_after), abs(right - right_after)) < 0.1 * gaps[-1]:
        return "kink" if gaps is not slopes else ""
    growth = [after / before for before, after in pairwise(gaps)]
    return "infinite slope" if 1.2 < growth[0] < 3.8 and max(growth) <= 1.1 * min(growth) else ""


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
    return Line(outputs, _flat(cotangents), _precision(outputs_there), 1.0, SHORTEST_OF_DIRECTION)


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

        size = abs(x) if np.isfinite(x) else 0.0  # one that is not may still have a gradient: 0, as an ignored one
        return self._line(outputs, max(1.0, size), 4 * np.spacing(size), size)

    def direction(self, u: np.ndarray, scale: float) -> Line:
        return self._line(lambda t: self._outputs(self.x + t * u), scale, SHORTEST_OF_DIRECTION)

    def _line(self, outputs: Callable[[float], np.ndarray], scale: float, shortest: float, grid: float = 0.0) -> Line:
        values, eps = self._unmoved
        return Line(lambda t: outputs(t) if t else values, self._flat_cotangents, eps, scale, shortest, grid)

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
