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
        """Where shorter steps stop bringing estimates closer together, rounding errors begin."""
        curve = line.curve()
        estimates = np.array([estimate for _, estimate in curve])
        changes = np.abs(np.diff(estimates))
        rising = np.flatnonzero(changes[1:] >= changes[:-1])
        at = int(rising[0]) if len(rising) else len(changes) - 2
        apart = float(np.max(changes[at : at + 2]))
        error = apart / self._largest
        explained = abs(analytic - estimates[at + 1]) <= 10 * apart
        self.explains_all &= bool(explained and error <= ACCEPTED)
        estimate, _, change = line.refined()
        self.drowns_all &= not estimate or change > ACCEPTED * abs(estimate)
        if error > self.best:
            self.best, self.curve = error, curve

    @property
    def diagnosis(self) -> Diagnosis:
        steps = ", ".join(f"{estimate:.3g} at {step:.0e}" for step, estimate in self.curve[::2])
        sentence = "every call is right by itself, but rounding errors inside f drown the differences"
        return Diagnosis("float noise", f"{sentence}: best achievable error {self.best:.1g} ({steps})")
