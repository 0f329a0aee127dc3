"""Why a mutant that makes no difference can make none, as the undamaged rule's own results show it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigrad.check.cases import Case
from minigrad.check.damage import RESULTS, SWAPPED, each, replaced
from minigrad.check.fingerprints import fingerprint, same
from minigrad.check.mutants import Mutant, damaged_kernel, declared
from minigrad.check.samples import Sample
from minigrad.engine import OPS, Array
from minigrad.op import Derived, FusedOp
from minigrad.tensor import Tensor, as_leaf
from minigrad.trees import flatten


def why_equivalent(mutant: Mutant, cases: Sequence[Case]) -> str | None:
    """The reason why a mutant that makes no difference can make none, as its rule's own results show it."""
    if mutant.kind == SWAPPED:
        return "symmetric: with operands exchanged, the rule gives the same"
    if mutant.kind == "assigned, not added":
        return "its index never repeats: each place is written once, onto zero"
    if mutant.kind == "zero times infinity":
        finite = any(Sample(case).elementwise for case in cases)
        return "its derivative is finite at 0, 1, infinite and NaN operands" if finite else None
    if isinstance(OPS[mutant.op], Derived):
        return None if any(_passes_tensors(mutant, case) for case in cases) else "it takes constants only"
    seen = _observed(mutant, cases)
    if not seen:
        return None
    if mutant.kind == "second-order term dropped":
        return None if any(s.depends for s in seen) else "what it saved enters only where it is constant"
    if all(not s.result.any() for s in seen):
        return "its gradient is always 0"
    checks: dict[str, tuple[str, Callable[[_Seen], bool]]] = {
        "broadcast sum dropped": ("its operand is never broadcast", lambda s: s.result.shape == s.shape),
        "transposed": ("its gradients have no two axes, or are symmetric", _is_symmetric),
        "last row": ("its gradients have no rows", lambda s: s.result.ndim < 2),
        "off by one": ("its gradients have one row", lambda s: s.result.shape[:1] in ((), (1,))),
    }
    reason, holds = checks.get(mutant.kind, ("", lambda s: False))
    return reason if all(map(holds, seen)) else None


def _passes_tensors(mutant: Mutant, case: Case) -> bool:
    """Whether a composed function takes tensors for this argument and computes with them, with or without gradient.

    An argument that is meant to be constant refuses tracked tensors; its history is not lost in silence.
    """
    bound = case.with_arrays(inspect.signature(OPS[mutant.op]).bind, case.arrays)
    bound.apply_defaults()
    leaves, put_back = flatten(bound.arguments[mutant.argument])
    if not leaves or any(isinstance(x, bool) or np.asarray(x).dtype.kind not in "fiu" for x in leaves):
        return False

    def values(moved: float) -> list[np.ndarray]:
        bound.arguments[mutant.argument] = put_back([as_leaf(np.asarray(x + moved, float)) for x in leaves])
        ys = flatten(OPS[mutant.op](*bound.args, **bound.kwargs))[0]
        return [y._array for y in ys if isinstance(y, Tensor)]

    try:
        return not same(values(0.0), values(0.01))
    except Exception:
        return False


@dataclass
class _Seen:
    """A result of an undamaged rule, its operand's shape, and whether its record leads back to what the rule saved."""

    result: np.ndarray
    shape: tuple[int, ...]
    depends: bool


def _is_symmetric(s: _Seen) -> bool:
    r = s.result
    return r.ndim < 2 or np.array_equal(np.swapaxes(r, -1, -2).reshape(r.shape), r, equal_nan=True)


def _observed(mutant: Mutant, cases: Sequence[Case]) -> list[_Seen]:
    """The results of a rule in plain and recorded passes over all cases."""
    seen: list[_Seen] = []

    def watch(result: Array, shape: tuple[int, ...], saved: Sequence[Any] = ()) -> Array:
        array = result._array if isinstance(result, Tensor) else np.asarray(result)
        if array.size:
            seen.append(_Seen(array, tuple(shape), _leads_to(result, saved)))
        return result

    with _watched(mutant, watch):
        for case in cases:
            fingerprint(case)
    return seen


@contextmanager
def _watched(mutant: Mutant, watch: Callable[..., Array]) -> Iterator[None]:
    op = OPS[mutant.op]
    if isinstance(op, FusedOp):
        name = "watched"
        RESULTS[name] = watch
        try:
            with replaced(op, "_backward", damaged_kernel(op, Mutant(mutant.op, mutant.argument, name))):
                yield
        finally:
            del RESULTS[name]
        return
    position = op._index[mutant.argument]
    rule, needs = op._rules[position], op._needs[position]

    def watching(g: Array, *values: Any) -> Any:
        result = rule(g, *values[:-1])
        return each(lambda r, shape: watch(r, shape, values[:-1]), result, values[-1])

    with declared(op, position, watching, (*needs, ~position)):
        yield


def _leads_to(result: Any, saved: Sequence[Any]) -> bool:
    """Whether the record of a result leads back to one of the tensors that its rule was given."""
    if not isinstance(result, Tensor):
        return False
    goals = {id(x._node) for x in _tensors(saved) if x._node is not None}
    stack, visited = [result._node], set()
    while stack:
        node = stack.pop()
        if node is None or id(node) in visited:
            continue
        if id(node) in goals:
            return True
        visited.add(id(node))
        stack.extend(node.edges)
    return False


def _tensors(tree: Any) -> Iterator[Tensor]:
    return (x for x in flatten(tree)[0] if isinstance(x, Tensor))
