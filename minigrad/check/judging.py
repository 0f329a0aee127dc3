"""What becomes of a mutant: killed by a law, equivalent to the original for a reason, or survived."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minigrad.check.cases import Case
from minigrad.check.equivalence import why_equivalent
from minigrad.check.fingerprints import fingerprint, same
from minigrad.check.laws import check_case
from minigrad.check.mutants import Mutant, planted
from minigrad.check.samples import Sample, quietly

REDRAWS = 2  # how often a case is repeated with other values before a mutant is called equivalent


@dataclass
class Outcome:
    """What became of a mutant. verdict: killed, equivalent or survived; law and case: of the kill; reason: else."""

    mutant: Mutant
    verdict: str
    law: str = ""
    case: str = ""
    reason: str = ""
    seconds: float = field(default=0.0, compare=False)


class Known:
    """What is found out about an undamaged op once, for all its mutants."""

    def __init__(self) -> None:
        self._fingerprints: dict[int, Any] = {}
        self._sound: dict[int, bool] = {}
        self._others: dict[Any, list[Case]] = {}

    def fingerprint(self, case: Case) -> list[Any]:
        if id(case) not in self._fingerprints:
            self._fingerprints[id(case)] = fingerprint(case)
        found: list[Any] = self._fingerprints[id(case)]
        return found

    def sound(self, case: Case) -> bool:
        """Whether the undamaged op keeps every law on this case; else it can not tell damage."""
        if id(case) not in self._sound:
            self._sound[id(case)] = next(check_case(case), None) is None
        return self._sound[id(case)]

    def others(self, cases: Sequence[Case], of: Callable[[Case], Iterable[Case]]) -> list[Case]:
        """More calls, made from the cases, and kept, so that each has an identity."""
        if of not in self._others:
            self._others[of] = [other for case in cases for other in of(case)]
        return self._others[of]


def judge(mutant: Mutant, cases: Sequence[Case], known: Known | None = None) -> Outcome:
    """Plant a mutant and run the laws on each case until one breaks.

    known: what was found out about the undamaged op, for the next mutant of the same op.
    """
    start = time.perf_counter()
    known = Known() if known is None else known
    with quietly():
        outcome = _judge_engine(mutant, cases, known) if mutant.op == "engine" else _judge(mutant, cases, known)
    outcome.seconds = time.perf_counter() - start
    return outcome


def _judge(mutant: Mutant, cases: Sequence[Case], known: Known) -> Outcome:
    affected = []
    for case in cases:
        if _affects(mutant, case, known):
            affected.append(case)
            killed = _killed(mutant, case, known)
            if killed:
                return killed
    if affected:
        reason = f"changes gradients ({affected[0]} and {len(affected) - 1} more cases), but breaks no law"
        return Outcome(mutant, "survived", reason=reason)
    others = known.others(cases, _redrawn)
    if mutant.kind == "broadcast sum dropped":
        others = [*others, *known.others(cases, _stretchable)]
    unseen = next((case for case in others if _affects(mutant, case, known)), None)
    if unseen is not None:
        return Outcome(mutant, "survived", reason=f"no case shows it, but other calls do: {unseen}")
    why = why_equivalent(mutant, cases)
    if why is None:
        return Outcome(mutant, "survived", reason=f"no case shows it, of {len(cases)}")
    return Outcome(mutant, "equivalent", reason=f"{why} ({len(cases) + len(others)} calls)")


def _judge_engine(mutant: Mutant, cases: Sequence[Case], known: Known) -> Outcome:
    try:
        kills = (killed for case in cases if (killed := _killed(mutant, case, known)))
        return next(kills, Outcome(mutant, "survived", reason=f"breaks no law in {len(cases)} cases"))
    except LookupError as error:
        return Outcome(mutant, "survived", reason=str(error))


def _killed(mutant: Mutant, case: Case, known: Known) -> Outcome | None:
    with planted(mutant):
        broken = next(check_case(case), None)
    return Outcome(mutant, "killed", broken.law, str(case)) if broken is not None and known.sound(case) else None


def _affects(mutant: Mutant, case: Case, known: Known) -> bool:
    """Whether the damage makes any observable difference to the gradients of this case."""
    right = known.fingerprint(case)
    with planted(mutant):
        return not same(fingerprint(case), right)


def _redrawn(case: Case) -> list[Case]:
    return [case.redrawn(seed) for seed in range(REDRAWS)]


def _stretchable(case: Case) -> Iterator[Case]:
    """The case with one array cut to size 1 along one axis, wherever the op stretches it to the same result again."""
    sample = Sample(case)
    shapes = [y.shape for y in sample.values(sample.arrays)]
    for i, x in enumerate(case.arrays):
        for axis in (axis for axis, n in enumerate(x.shape) if n > 1):
            cut = [np.take(y, [0], axis) if j == i else y for j, y in enumerate(sample.arrays)]
            try:
                stretched = [y.shape for y in sample.values(cut)] == shapes
            except Exception:
                stretched = False
            if stretched:
                yield case.at(cut, f"stretched-{i}-{axis}")
