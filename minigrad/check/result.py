"""What a check found: for every input the two gradients and where they differ, and as text the worst of it."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from minigrad.check.picture import html

SHOWN = 8
WIDTH = 100


class GradientError(AssertionError):
    """A gradient disagrees with finite differences; `result` is the whole CheckResult."""

    def __init__(self, result: CheckResult):
        super().__init__(str(result))
        self.result = result


@dataclass(frozen=True)
class Mismatch:
    """One element whose analytic and numeric gradients differ by more than the tolerance."""

    input: str
    index: tuple[int, ...]
    analytic: float
    numeric: float

    @property
    def absolute(self) -> float:
        return abs(self.analytic - self.numeric)

    @property
    def relative(self) -> float:
        return self.absolute / max(abs(self.analytic), abs(self.numeric), np.finfo(float).tiny)

    def _severity(self) -> float:
        return np.inf if np.isnan(self.absolute) else self.absolute


@dataclass(frozen=True)
class Skip:
    """One element that differences cannot decide, and why: at a kink, any slope between the two sides' is accepted."""

    input: str
    index: tuple[int, ...]
    analytic: float
    numeric: float
    why: str

    def __str__(self) -> str:
        return f"{self.input} {self.index}: {self.why}; analytic {self.analytic:.6g}"


@dataclass(frozen=True)
class InputResult:
    """The gradients of one floating input: arrays of its shape (numeric NaN where not probed), and where they differ.

    connected: whether the recorded graph leads to the input at all. at_kink: which wrong elements lie at a kink.
    directions: (analytic, numeric) along random directions, when the input was checked in that way. ties: what is wrong
    with elements that are equal, each of whose gradients might be right by itself.
    """

    name: str
    analytic: np.ndarray
    numeric: np.ndarray
    wrong: np.ndarray
    probed: np.ndarray
    at_kink: np.ndarray
    skipped: tuple[Skip, ...] = ()
    connected: bool = True
    directions: tuple[tuple[float, float], ...] = ()
    ties: tuple[str, ...] = ()

    @property
    def error(self) -> np.ndarray:
        """|analytic - numeric|, NaN where not probed: the error map."""
        with np.errstate(invalid="ignore"):
            return np.asarray(np.abs(self.analytic - self.numeric))

    def with_tie(self, members: np.ndarray, sentence: str) -> InputResult:
        """With these elements, if there are any, as wrong ones at a kink."""
        if not members.any():
            return self
        left = tuple(skip for skip in self.skipped if not members[skip.index])
        wrong, at_kink = self.wrong | members, self.at_kink | members
        return replace(self, wrong=wrong, at_kink=at_kink, skipped=left, ties=(*self.ties, sentence))

    def mismatches(self) -> list[Mismatch]:
        return [
            Mismatch(self.name, tuple(map(int, at)), float(self.analytic[tuple(at)]), float(self.numeric[tuple(at)]))
            for at in np.argwhere(self.wrong)
        ]


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong: a kind, one of `minigrad.check.KINDS`, and a sentence."""

    kind: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.sentence}"


@dataclass(frozen=True)
class Culprit:
    """The recorded call whose gradient is wrong by itself: its op, the argument, and the user's file and line."""

    op: str
    argument: str
    file: str
    line: int
    source: str
    diagnosis: Diagnosis
    result: CheckResult

    def __str__(self) -> str:
        argument = f", gradient of its argument {self.argument!r}" if self.argument else ""
        return f"{self.op}{argument}, called at {short_path(self.file)}:{self.line}"


def short_path(file: str) -> str:
    """The path as seen from here, where that is shorter."""
    if not os.path.isabs(file):
        return file
    try:
        return min(os.path.relpath(file), file, key=len)
    except ValueError:  # another drive
        return file


@dataclass(frozen=True)
class CheckResult:
    """What a check found: truthy when it passed; as text, the diagnosis, the culprit and the worst elements.

    diagnosis: what is wrong, None if nothing is. culprit: the call that is wrong by itself, if one was found.
    """

    what: str
    inputs: tuple[InputResult, ...]
    diagnosis: Diagnosis | None = None
    culprit: Culprit | None = None

    def __bool__(self) -> bool:
        return self.diagnosis is None

    @property
    def mismatches(self) -> list[Mismatch]:
        """The elements that differ, the worst first."""
        found = [m for i in self.inputs for m in i.mismatches()]
        return sorted(found, key=Mismatch._severity, reverse=True)

    @property
    def skipped(self) -> list[Skip]:
        """The elements that differences could not decide."""
        return [skip for i in self.inputs for skip in i.skipped]

    def __str__(self) -> str:
        lines = [self._head()]
        if self.diagnosis is not None:
            lines += _wrapped(str(self.diagnosis))
        if self.culprit is not None:
            lines.append(f"  culprit: {self.culprit}")
            lines += [f"    {self.culprit.source[: WIDTH - 4]}"] if self.culprit.source else []
        worst = self.mismatches
        lines += _table(worst[:SHOWN]) if worst else []
        lines += ["  ..."] if len(worst) > SHOWN else []
        return "\n".join(lines + self._skipped_lines())

    def _head(self) -> str:
        checked = sum(int(i.probed.sum()) for i in self.inputs)
        decided = checked - len(self.skipped)
        along = sum(len(i.directions) for i in self.inputs)
        count = f"{decided} element{'' if decided == 1 else 's'}"
        if not self:
            wrong = len(self.mismatches)
            if wrong:
                return f"{self.what} failed: {wrong} of {checked} elements differ from finite differences"
            return f"{self.what} failed"
        counts = [count] * bool(checked or not along) + [f"{along} random directions"] * bool(along)
        return (
            f"{self.what} passed: {' and '.join(counts)} agree{'s' * (counts == ['1 element'])} with finite differences"
        )

    def _skipped_lines(self) -> list[str]:
        skipped = self.skipped
        lines = [line for skip in skipped[:3] for line in _wrapped(f"not decided by differences: {skip}")]
        return lines + ([f"  ... and {len(skipped) - 3} more"] if len(skipped) > 3 else [])

    def _repr_html_(self) -> str:
        return html(str(self), [(i.name, i.error, np.abs(i.numeric), i.wrong) for i in self.inputs if i.wrong.any()])


def _wrapped(text: str) -> list[str]:
    return [
        line
        for part in text.split("\n")
        for line in textwrap.wrap(part, WIDTH, initial_indent="  ", subsequent_indent="    ")
    ]


def _table(rows: Sequence[Mismatch]) -> list[str]:
    cells = [("input", "index", "analytic", "numeric", "abs error", "rel error")]
    for m in rows:
        numbers = (f"{m.analytic:.8g}", f"{m.numeric:.8g}", f"{m.absolute:.2g}", f"{m.relative:.2g}")
        cells.append((m.input[-30:], str(m.index), *numbers))
    widths = [max(map(len, column)) for column in zip(*cells)]
    return ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells]
