"""The gradient of a subject as a subject: what gradgradcheck checks."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad.check.compare import random_cotangents
from minigrad.check.subject import Subject
from minigrad.engine import Transform
from minigrad.tensor import Tensor
from minigrad.transforms import vjp


def second_order(first: Subject) -> Subject:
    """The gradient of <cotangent, f>, as a function of f's inputs and of the cotangent."""
    with Transform(), np.errstate(all="ignore"):
        cotangents = random_cotangents([y._array for y in first(first.constants())])
    n = len(first.leaves)

    def gradients(*arrays: Tensor) -> list[Any]:
        _, pull = vjp(lambda *xs: first(xs), *arrays[:n])
        return list(pull([c if c.requires_grad else c._array for c in arrays[n:]]))

    second = Subject(gradients, (*first.leaves, *cotangents))
    names = ["cotangent"] if len(cotangents) == 1 else [f"cotangent {i}" for i in range(len(cotangents))]
    second.names = [*first.names, *names]
    second.takes_gradients = True
    return second
