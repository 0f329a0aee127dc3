"""Whether damage makes any difference that could be observed: all that a call's rules can be asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad.check.cases import Case
from minigrad.check.laws import gradients_of_zero
from minigrad.check.samples import Sample, draw, ones_for, pull, quietly

SAME = 1e-12  # relative; closer than that, two gradients are taken for equal


def fingerprint(case: Case) -> list[Any]:
    """All that a rule can be asked for: its results, plain and recorded, their dtypes, and their derivatives."""
    seen: list[Any] = []
    with quietly():
        for part in (_by_call, _by_pass, _by_reference):
            try:
                seen += part(Sample(case))
            except Exception as error:
                seen.append(type(error).__name__)
    return seen


def _by_call(s: Sample) -> list[Any]:
    """What each call's rule returns, and what it leaves of its cotangent; and the dtypes in float32."""
    seen: list[Any] = []
    for node in s.calls:
        shapes = ones_for(node)
        g: Any = tuple(draw(shapes, 6)) if isinstance(shapes, tuple) else draw([shapes], 6)[0]
        seen += [x.copy() if isinstance(x, np.ndarray) else x for x in node.op.vjp(node, g, False)]
        seen += list(g) if isinstance(g, tuple) else [g]
    for node in s.single.calls:
        seen += [str(getattr(x, "dtype", "")) for x in node.op.vjp(node, ones_for(node), False)]
    return seen


def _by_pass(s: Sample) -> list[Any]:
    xs, cs, gradients, ys = s.doubled
    outputs = [*gradients, *ys]
    second = pull([*xs, *cs], outputs, draw(outputs, 7))
    return [*s.pulled, *(g._array for g in gradients), *second, *gradients_of_zero(s)]


def _by_reference(s: Sample) -> list[Any]:
    reference = getattr(s.case.function, "reference", None)
    return [] if reference is None else s.of(reference).values(s.arrays)


def same(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(map(_equal, a, b))


def _equal(a: Any, b: Any) -> bool:
    if not isinstance(a, (np.ndarray, np.generic)) or not isinstance(b, (np.ndarray, np.generic)):
        return type(a) is type(b) and bool(a == b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    with np.errstate(all="ignore"):
        largest = np.max(np.abs(b), initial=0.0, where=np.isfinite(b))
        return np.allclose(a, b, rtol=SAME, atol=SAME * largest, equal_nan=True)
