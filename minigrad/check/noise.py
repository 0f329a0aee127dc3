"""Whether rounding errors inside a function explain that its gradient and differences disagree."""

from __future__ import annotations

import numpy as np

from minigrad.check.compare import random_cotangents
from minigrad.check.differences import Differences, Line
from minigrad.check.result import Diagnosis, InputResult
from minigrad.check.subject import Subject
from minigrad.engine import Transform

ACCEPTED = 1e-3  # of the largest gradient: errors up to which noise may acquit a function


class Noise:
    """explains_all: every mismatch is small, and no larger than what estimates at neighbouring steps are apart.

    best: the best error that differences can achieve, relative to the largest gradient. drowns_all: there is no step at
    which the differences mean anything.
    """

    def __init__(self, subject: Subject, inputs: tuple[InputResult, ...]):
        with Transform(), np.errstate(all="ignore"):
            cotangents = random_cotangents([y._array for y in subject(subject.constants())])
        self.explains_all = self.drowns_all = True
        self.best, self.curve = 0.0, [(0.0, 0.0)]
        gradients = [np.abs(i.analytic[np.isfinite(i.analytic)]) for i in inputs]
        self._largest = max(float(np.max(g, initial=np.finfo(float).tiny)) for g in gradients)
        for number, i in enumerate(inputs):
            for m in i.mismatches():
                if not (self.explains_all or self.drowns_all):
                    return
                self._look(Differences(subject, cotangents, number).element(m.index), m.analytic)

    def _look(self, line: Line, analytic: float) -> None:
        """Where estimates are closest together, shorter steps begin to show rounding errors."""
        curve = line.curve()
        estimates = np.array([estimate for _, estimate in curve])
        changes = np.abs(np.diff(estimates))
        tells = np.isfinite(changes) & ((estimates[1:] != 0) | (estimates[:-1] != 0))  # else f may just round
        at = int(np.argmin(np.where(tells, changes, np.inf)[:-1]))
        apart = float(np.max(changes[at : at + 2], initial=0.0, where=tells[at : at + 2]))
        error = apart / self._largest
        explained = abs(analytic - estimates[at + 1]) <= 10 * apart
        self.explains_all &= bool(explained and error <= ACCEPTED)
        best = line.refined()
        self.drowns_all &= not best.estimate or best.change > ACCEPTED * abs(best.estimate)
        if error > self.best:
            self.best, self.curve = error, curve

    @property
    def diagnosis(self) -> Diagnosis:
        steps = ", ".join(f"{estimate:.3g} at {step:.0e}" for step, estimate in self.curve[::2])
        sentence = "every call is right by itself, but rounding errors inside f drown the differences"
        return Diagnosis("float noise", f"{sentence}: best achievable error {self.best:.1g} ({steps})")
