"""What a claim is: what must hold, who said so, and the script that measures it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from minigrad import optim
from minigrad.tensor import Tensor


def _within(value: float, bounds: Any) -> bool:
    return bool(bounds[0] <= value <= bounds[1])


RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "in": _within,
}


@dataclass(frozen=True)
class Check:
    """A measured number beside its threshold. relation: a key of RELATIONS; "in" has a pair of bounds.

    >>> check = Check("the error", 2e-9, "<=", 1e-8)
    >>> check.threshold, check.passed
    ('<= 1e-08', True)
    """

    what: str
    value: float
    relation: str
    bound: float | tuple[float, float]

    @property
    def threshold(self) -> str:
        bounds = self.bound if isinstance(self.bound, tuple) else (self.bound,)
        return f"{self.relation} {' to '.join(f'{bound:.6g}' for bound in bounds)}"

    @property
    def passed(self) -> bool:
        """A NaN passes nothing."""
        return RELATIONS[self.relation](self.value, self.bound)


@dataclass(frozen=True)
class Outcome:
    """What one script found. figure: makes the picture (a matplotlib Figure)."""

    checks: Sequence[Check]
    figure: Callable[[], Any]


@dataclass(frozen=True)
class Claim:
    """measure: the script, from a seed."""

    name: str
    statement: str
    source: str
    measure: Callable[[int], Outcome]

    def rows(self, outcome: Outcome) -> list[dict[str, Any]]:
        """The checks as plain data, as the run card of a report shows them."""
        return [
            {
                "name": self.name,
                "claim": check.what,
                "source": self.source,
                "value": float(check.value) if math.isfinite(check.value) else None,  # JSON has no NaN
                "threshold": check.threshold,
                "passed": bool(check.passed),
            }
            for check in outcome.checks
        ]


def fit(parameters: Sequence[Tensor], loss: Callable[[], Tensor], *, steps: int, lr: float) -> list[float]:
    """Adam on a loss that draws its own batches; returns the loss at every step."""
    optimizer = optim.Adam(parameters, lr=lr)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses
