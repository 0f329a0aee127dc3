"""The two gradients of a subject, and where they differ: at each element, or along random directions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from minigrad.check.differences import ABSOLUTE, OF_LARGEST, RELATIVE, STEP, Differences, Outcome, agree, along
from minigrad.check.result import Diagnosis, InputResult, Skip
from minigrad.check.subject import Subject
from minigrad.engine import Transform, backward_pass, own
from minigrad.tensor import Tensor, wrap

METHODS = ("auto", "central", "complex", "random")
LARGE = 2000  # "auto" goes over every element of so many, and of an input of up to SMALL in any case
SMALL = 64
DIRECTIONS = 4
FOUND = 4  # elements looked for by halving a direction that disagrees
GRID = 12  # then so many indices of each of the last two axes are gone over
COMPLEX_RELATIVE = 1e-10


@dataclass(frozen=True)
class Examination:
    """What came of comparing a subject's gradients.

    failure: what made a comparison impossible or pointless (then there are no inputs). error: the exception behind it.
    """

    inputs: tuple[InputResult, ...]
    failure: Diagnosis | None = None
    error: Exception | None = None
    outputs: tuple[tuple[int, ...], ...] = ()

    def __bool__(self) -> bool:
        return self.failure is None and not any(i.wrong.any() for i in self.inputs)


class _RuleError(Exception):
    """Raised from what a gradient rule raised."""


def examine(subject: Subject, method: str = "auto", cotangents: Sequence[np.ndarray] | None = None) -> Examination:
    """Compare the gradients of <cotangents, f> (random ones unless given) with differences."""
    try:
        analytic = _Analytic(subject, cotangents)
    except _RuleError as wrapped:
        error = wrapped.__cause__
        assert isinstance(error, Exception)
        return Examination((), _of_exception(error), error)
    shapes = tuple(y.shape for y in analytic.outputs)
    failure = analytic.mutation or _repeated(subject)
    if failure is not None:
        return Examination((), failure, outputs=shapes)
    total = sum(x.size for x in subject.leaves)
    results = []
    for number, gradient in enumerate(analytic.gradients):
        differences = Differences(subject, analytic.cotangents, number)
        comparison = _Comparison(differences, gradient, subject.names[number], analytic.connected[number])
        comparison.run(_method_for(method, gradient.size, total))
        results.append(comparison.result())
    return Examination(tuple(_with_ties(subject, analytic, results)), outputs=shapes)


def _with_ties(subject: Subject, analytic: _Analytic, results: Sequence[InputResult]) -> Sequence[InputResult]:
    """The results, with those elements wrong that share a kink because they are equal, and not one gradient.

    At a tie each element's own gradient may be anything between two slopes. But where f is smooth as they all move
    together, as max is, the sum of their gradients is its slope.
    """
    equal: dict[float, list[tuple[int, tuple[int, ...]]]] = {}
    for number, result in enumerate(results):
        for skip in result.skipped:
            if skip.why.startswith("kink"):
                equal.setdefault(float(subject.leaves[number][skip.index]), []).append((number, skip.index))
    for members in (members for members in equal.values() if len(members) > 1):
        us = [np.zeros(x.shape) for x in subject.leaves]
        for number, at in members:
            us[number][at] = 1
        gradients = [float(analytic.gradients[number][at]) for number, at in members]
        tolerance = OF_LARGEST * sum(map(abs, gradients)) + ABSOLUTE
        outcome = along(subject, analytic.cotangents, us).examine(sum(gradients), tolerance)
        if outcome.wrong and not outcome.why:
            sentence = (
                f"{len(members)} equal elements lie at one kink, and their gradients sum to {sum(gradients):.6g}, "
                f"while f's slope as they move together is {outcome.numeric:.6g}: a tie shares one gradient"
            )
            results = [result.with_tie(u == 1, sentence) for result, u in zip(results, us)]
    return results


def looks_right(subject: Subject) -> bool:
    """A first look: whether the derivative along one random direction through all inputs at once is right.

    False too where a simple difference cannot tell.
    """
    try:
        analytic = _Analytic(subject, None)
    except _RuleError:
        return False
    us = random_cotangents(subject.leaves)
    products = [float(np.sum(g * u)) for g, u in zip(analytic.gradients, us)]
    line = along(subject, analytic.cotangents, us)
    estimate, noise = line.central(STEP)
    tolerance = RELATIVE * math.hypot(*products) + ABSOLUTE + noise
    return analytic.mutation is None and agree(sum(products), estimate, tolerance)


def _method_for(method: str, size: int, total: int) -> str:
    if method != "auto":
        return method
    return "central" if total <= LARGE or size <= SMALL else "random"


def _of_exception(error: Exception) -> Diagnosis:
    """Wrong shapes are what the engine asserts, and what NumPy raises ValueError for."""
    if isinstance(error, (AssertionError, ValueError)):
        return Diagnosis("wrong shape", f"a gradient rule does not fit its operands' shapes ({_first_line(error)})")
    return Diagnosis("exception", f"a gradient rule raised {type(error).__name__} ({_first_line(error)})")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


class _Analytic:
    """One forward and one backward pass: the cotangents, the gradient of every input, and who wrote into what."""

    def __init__(self, subject: Subject, cotangents: Sequence[np.ndarray] | None):
        with Transform() as transform:
            nodes = [transform.input(None, x.shape, x.dtype) for x in subject.leaves]
            tensors = [wrap(x.copy(), node) for x, node in zip(subject.leaves, nodes)]
            ys = _forward(subject, tensors)
            if any(y.dtype.kind == "c" for y in ys):
                raise TypeError("a gradient is of real outputs, and these are complex: take mg.real, mg.abs, ...")
            self.outputs = [y._array.copy() for y in ys]
            after_forward = _changed(tensors, subject)
            self.cotangents = random_cotangents(self.outputs) if cotangents is None else list(cotangents)
            given = [c.astype(y.dtype) for y, c in zip(ys, self.cotangents)]
            pairs = [(y._node, c.copy()) for y, c in zip(ys, given)]
            roots = [(node, c) for node, c in pairs if node is not None and transform.reached_by(node)]
            try:
                found = backward_pass(roots, inputs=set(nodes), transform=transform)
            except Exception as error:
                raise _RuleError from error
        self.connected = [node in found for node in nodes]
        self.gradients = [own(found[node]).astype(float) if node in found else np.zeros(node.shape) for node in nodes]
        self.mutation = _mutation(after_forward, _changed(tensors, subject))


def _forward(subject: Subject, tensors: list[Tensor]) -> list[Tensor]:
    if not subject.takes_gradients:
        return subject(tensors)
    try:
        return subject(tensors)
    except Exception as error:
        raise _RuleError from error


def _changed(tensors: list[Tensor], subject: Subject) -> list[str]:
    rows = zip(subject.names, tensors, subject.leaves)
    return [name for name, t, x in rows if not np.array_equal(t._array, x, equal_nan=True)]


def _mutation(in_forward: list[str], in_all: list[str]) -> Diagnosis | None:
    if not in_all:
        return None
    who = "the function" if in_forward else "a gradient rule"
    return Diagnosis("input mutated", f"{who} writes into {' and '.join(in_all)}: compute with a copy")


def _repeated(subject: Subject) -> Diagnosis | None:
    """Whether a second call gives something else."""
    with Transform(), np.errstate(all="ignore"):
        first, again = ([y._array for y in subject(subject.constants())] for _ in range(2))
    same = len(first) == len(again) and all(map(_same, first, again))
    if same:
        return None
    return Diagnosis(
        "non-deterministic",
        "called twice with the same inputs, the function returned different values: "
        "draw its random numbers outside, or call .eval() on a module with dropout",
    )


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    """Up to the order in which threads add."""
    if a.shape != b.shape:
        return False
    largest = float(np.max(np.abs(a), initial=0.0, where=np.isfinite(a)))
    return bool(np.allclose(a, b, rtol=1e-12, atol=1e-12 * largest, equal_nan=True))


def random_cotangents(ys: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Of either sign, and none so small that it would hide an element."""
    rng = np.random.default_rng(0)
    return [rng.uniform(0.5, 1.5, y.shape) * rng.choice([-1.0, 1.0], y.shape) for y in ys]


class _Comparison:
    """The gradient of one input against differences."""

    def __init__(self, differences: Differences, gradient: np.ndarray, name: str, connected: bool):
        self.differences, self.gradient, self.name, self.connected = differences, gradient, name, connected
        self.largest = float(np.max(np.abs(gradient), initial=0.0, where=np.isfinite(gradient)))
        self.numeric = np.full(gradient.shape, np.nan)
        self.wrong, self.probed, self.at_kink = (np.zeros(gradient.shape, bool) for _ in range(3))
        self.skipped: list[Skip] = []
        self.directions: list[tuple[float, float]] = []

    def run(self, method: str) -> None:
        if method == "random":
            self._along_directions()
        else:
            self._elements(np.ndindex(self.gradient.shape), by_complex_step=method == "complex")

    def result(self) -> InputResult:
        return InputResult(
            self.name,
            self.gradient,
            self.numeric,
            self.wrong,
            self.probed,
            self.at_kink,
            tuple(self.skipped),
            self.connected,
            tuple(self.directions),
        )

    # --- element by element ---

    def _elements(self, places: Iterable[tuple[int, ...]], by_complex_step: bool = False) -> None:
        for at in places:
            if not self.probed[at]:
                self._note(at, self._complex(at) if by_complex_step else self._central(at))

    def _central(self, at: tuple[int, ...]) -> Outcome:
        if np.isfinite(self.gradient[at]) and not np.isfinite(self.differences.x[at]):
            return Outcome(float(self.gradient[at]), why="the input is not finite")
        tolerance = OF_LARGEST * self.largest + ABSOLUTE
        return self.differences.element(at).examine(float(self.gradient[at]), tolerance)

    def _complex(self, at: tuple[int, ...]) -> Outcome:
        """The complex step decides wherever central differences confirm it (they do not where |x| or max are taken)."""
        numeric, analytic = self.differences.complex_step(at), float(self.gradient[at])
        if agree(analytic, numeric, COMPLEX_RELATIVE * self.largest, COMPLEX_RELATIVE):
            return Outcome(numeric)
        outcome = self._central(at)
        confirmed = not outcome.wrong and not outcome.why and agree(numeric, outcome.numeric, 1e-8 * self.largest, 1e-6)
        return Outcome(numeric, wrong=True) if confirmed else outcome

    def _note(self, at: tuple[int, ...], outcome: Outcome) -> None:
        self.probed[at] = True
        self.numeric[at], self.wrong[at] = outcome.numeric, outcome.wrong
        self.at_kink[at] = outcome.wrong and bool(outcome.why)
        if outcome.why and not outcome.wrong:
            self.skipped.append(Skip(self.name, at, float(self.gradient[at]), outcome.numeric, outcome.why))

    # --- along random directions ---

    def _along_directions(self) -> None:
        rng = np.random.default_rng(0)
        x = self.differences.x
        for _ in range(DIRECTIONS):
            u = rng.uniform(0.5, 1.5, x.shape) * rng.choice([-1.0, 1.0], x.shape) * np.maximum(1, np.abs(x))
            outcome = self._along(u)
            self.directions.append((float(np.sum(self.gradient * u)), outcome.numeric))
            if outcome.wrong:
                self._find(u)
                return

    def _along(self, u: np.ndarray) -> Outcome:
        products = self.gradient * u
        tolerance = RELATIVE * math.sqrt(float(np.sum(products**2))) + OF_LARGEST * self.largest + ABSOLUTE
        line = self.differences.direction(u, 1 / math.sqrt(np.count_nonzero(u) or 1))
        return line.examine(float(np.sum(products)), tolerance)

    def _find(self, u: np.ndarray) -> None:
        """Go over some elements that make the direction disagree, and if they do, over a grid of others."""
        stack, flat = [np.flatnonzero(u)], u.ravel()
        while stack and self.probed.sum() < FOUND:
            support = stack.pop()
            if len(support) == 1:
                at = tuple(int(i) for i in np.unravel_index(support[0], u.shape))
                self._note(at, self._central(at))
                continue
            for half in np.array_split(support, 2):
                part = np.zeros(u.size)
                part[half] = flat[half]
                if self._along(part.reshape(u.shape)).wrong:
                    stack.append(half)
        self._elements(_grid(u.shape))


def _grid(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Elements among which rows, columns and transposed pairs show: few indices of each axis, and its ends."""
    most = [2] * max(len(shape) - 2, 0) + [GRID if len(shape) > 1 else GRID**2] * min(len(shape), 2)
    chosen = [sorted({int(i) for i in np.linspace(0, n - 1, min(n, m)).round()}) for n, m in zip(shape, most)]
    return [tuple(chosen[axis][i] for axis, i in enumerate(at)) for at in np.ndindex(*map(len, chosen))]
