"""Are the laws any good? Damage every gradient rule in turn, and see which law notices.

    python -m minigrad.check.mutate                    every mutant, by processes on all cores; some minutes
    python -m minigrad.check.mutate --quick            a subset, for continuous integration
    python -m minigrad.check.mutate --ops matmul sum   those of some ops

A mutant is one gradient rule (or one output of a fused backward kernel, one step of the engine) damaged in one way. It
is killed when a law breaks on a case of its op. One that no case tells from the original, in plain and recorded passes
and in their derivatives, is listed as equivalent if the check can say why; any other has survived, and makes the exit
status 1. The cases are sample calls with independent expected values. They live with minigrad's tests, not in the
package: name their directory with --cases when you are not in a checkout.
"""

from __future__ import annotations
import __future__

import argparse
import inspect
import json
import os
import sys
import textwrap
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np

import minigrad  # noqa: F401  (registers the ops)
from minigrad import engine
from minigrad.check.cases import Case, load_cases
from minigrad.check.laws import Sample, check_case, draw, gradients_of_zero, is_local, ones_for, pull, quietly, tracked
from minigrad.engine import OPS, Array
from minigrad.op import Derived, FusedOp, Op, _scaled
from minigrad.ops import elementwise, indexing
from minigrad.tensor import Tensor, wrap
from minigrad.trees import flatten

CASES = os.path.join("tests", "ops")
QUICK = 25  # --quick takes one mutant in so many
REDRAWS = 2  # how often a case is repeated with other values before a mutant is called equivalent
SAME = 1e-12  # relative; closer than that, two gradients are taken for equal


@dataclass(frozen=True)
class Mutant:
    """One damage. op: its name, or "engine"; argument: whose gradient (or which function of the engine) is damaged."""

    op: str
    argument: str
    kind: str

    def __str__(self) -> str:
        return f"{self.op}({self.argument}): {self.kind}"


# --- damage to what a rule returns: (result, shape of the operand) -> result -------------------------------------


def _weighted(r: Array, at: Any, weight: float) -> Array:
    weights = np.ones(r.shape, r.dtype)
    weights[at] = weight
    return r * weights


def _transposed(r: Array, shape: tuple[int, ...]) -> Array:
    return np.reshape(np.swapaxes(r, -1, -2), r.shape) if len(r.shape) > 1 else r


def _off_by_one(r: Array, shape: tuple[int, ...]) -> Array:
    return r[np.arange(r.shape[0]) - 1] if r.shape and r.shape[0] else r


def _first_of_broadcast(r: Array, shape: tuple[int, ...]) -> Array:
    if r.shape == shape or not r.shape:
        return r
    extra = len(r.shape) - len(shape)
    return r[(0,) * extra + tuple(slice(0, 1) if n == 1 else slice(None) for n in shape)]


def _constant(r: Array, shape: tuple[int, ...]) -> Array:
    return wrap(r._array, None) if isinstance(r, Tensor) else r


def _double_precision(r: Array, shape: tuple[int, ...]) -> Array:
    return r.astype(np.result_type(r.dtype, np.float64))


def _single_precision(r: Array, shape: tuple[int, ...]) -> Array:
    return r.astype(np.complex64 if r.dtype.kind == "c" else np.float32).astype(r.dtype)


RESULTS: dict[str, Callable[[Array, tuple[int, ...]], Array]] = {
    "sign": lambda r, shape: -r,
    "factor 1.001": lambda r, shape: r * 1.001,
    "factor 2": lambda r, shape: r * 2,
    "missing": lambda r, shape: r * 0,
    "offset": lambda r, shape: r + 0.01,
    "last element": lambda r, shape: _weighted(r, (-1,) * len(r.shape), 0.5) if 0 not in r.shape else r,
    "last row": lambda r, shape: _weighted(r, -1, 0) if len(r.shape) > 1 and r.shape[0] else r,
    "off by one": _off_by_one,
    "transposed": _transposed,
    "broadcast sum dropped": _first_of_broadcast,
    "float64": _double_precision,
    "float32": _single_precision,
    "constant": _constant,
}
# A fused kernel's outputs are not recorded, so they can not lose their history.
KERNEL_RESULTS = [kind for kind in RESULTS if kind != "constant"]


def _each(damage: Callable[[Array, Any], Array], result: Any, shape: Any) -> Any:
    """Damage a gradient, or every gradient of a sequence."""
    if isinstance(result, (list, tuple)):
        return [None if r is None else damage(r, s) for r, s in zip(result, shape)]
    return damage(np.asarray(result) if not isinstance(result, Tensor) else result, shape)


# --- damage to what a rule is given: (rule, names of what it needs, g, what it needs) -> result ------------------


def _detached(rule: Any, names: Sequence[str], g: Array, needs: Sequence[Any]) -> Any:
    return rule(g, *[_without_history(x) for x in needs])


def _without_history(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return type(x)(map(_without_history, x)) if type(x) in (list, tuple) else x
    return wrap(x._array, None) if isinstance(x, Tensor) else x


AXIS_NAMES = ("axis", "axis1", "axis2", "axes", "source", "destination")


def _other_axis(rule: Any, names: Sequence[str], g: Array, needs: Sequence[Any]) -> Any:
    ndim = len((g[0] if isinstance(g, tuple) else g).shape)
    return rule(g, *[_next_axis(x, ndim) if name in AXIS_NAMES else x for name, x in zip(names, needs)])


def _next_axis(axis: Any, ndim: int) -> Any:
    if isinstance(axis, (list, tuple)):
        return type(axis)(_next_axis(a, ndim) for a in axis)
    return (axis + 1) % max(ndim, 1) if isinstance(axis, (int, np.integer)) else axis


def _writes(rule: Any, names: Sequence[str], g: Array, needs: Sequence[Any]) -> Any:
    result = rule(g, *needs)
    for part in g if isinstance(g, tuple) else (g,):
        if isinstance(part, np.ndarray):
            part *= 1.5
    return result


def _assigned(rule: Any, names: Sequence[str], g: Array, needs: Sequence[Any]) -> Any:
    with _replaced(indexing, "add_at", _assign_at):
        return rule(g, *needs)


def _assign_at(y: np.ndarray, index: Any, value: Any) -> None:
    y[index] = value


def _unsafe(rule: Any, names: Sequence[str], g: Array, needs: Sequence[Any]) -> Any:
    with (
        _replaced(sys.modules[Op.__module__], "safe_product", np.multiply),  # minigrad.op is the decorator
        _replaced(elementwise, "safe_product", np.multiply),
    ):
        return rule(g, *needs)


def _output_ignored(rule: Any, names: Sequence[str], g: Array, needs: Sequence[Any]) -> Any:
    return rule((g[0] * 0, *g[1:]) if isinstance(g, tuple) else g, *needs)


def _last_output_ignored(rule: Any, names: Sequence[str], g: Array, needs: Sequence[Any]) -> Any:
    return rule((*g[:-1], g[-1] * 0) if isinstance(g, tuple) else g, *needs)


CALLS: dict[str, Callable[[Any, Sequence[str], Array, Sequence[Any]], Any]] = {
    "second-order term dropped": _detached,
    "axis off by one": _other_axis,
    "writes to cotangent": _writes,
    "assigned, not added": _assigned,
    "zero times infinity": _unsafe,
    "first output ignored": _output_ignored,
    "last output ignored": _last_output_ignored,
}
SWAPPED = "swapped operands"


# --- damage to the engine: (function, text, what stands there instead) -------------------------------------------

ENGINE: dict[str, tuple[Any, str, str]] = {
    "second arrival replaces the first": (
        engine.backward_pass,
        "cotangents[edge] = before + ge",
        "cotangents[edge] = ge",
    ),
    "third arrival forgotten": (engine.backward_pass, "before += ge", "pass"),
    "adds to a borrowed array": (engine.backward_pass, "elif edge in owned:", "elif True:"),
    "gradient not cast": (engine.backward_pass, "ge = _cast(ge, edge.dtype)", "pass"),
    "only the last use of an output counts": (
        engine.backward_pass,
        "parts[node.index] = g if before is None else before + g",
        "parts[node.index] = g",
    ),
    "mean over broadcast axes": (engine._sum_to, "g.sum(", "g.mean("),
    "sum over new axes only": (engine._sum_to, "+ stretched", ""),
    "unused outputs get ones": (engine._fill_missing, "np.zeros(", "np.ones("),
    "imaginary part for a real operand": (engine._cast, "np.real(g)", "np.imag(g)"),
    "second backward replaces .grad": (engine._keep, "notes.grad += array", "notes.grad = array"),
    ".grad shared": (engine.own, 'np.array(g, order="C")', "np.asarray(g)"),
    "operands not on the record": (
        Op._on_record,
        "return wrap(x, node.edges[edge_of[need]])",
        "return wrap(x, None)",
    ),
    "output not on the record": (Op._on_record, "return wrap(x, node)", "return wrap(x, None)"),
    "outputs not on the record": (Op._on_record, "wrap(y, OutputNode(node, i))", "wrap(y, None)"),
    "sequence not on the record": (
        Op._vjp_sequence,
        "wrap(v, node.edges[edge_of[i]]) if i in edge_of else v",
        "v",
    ),
    "zero times infinity on the record": (_scaled, 'OPS["scale"](g, d)', "g * d"),
    "reference pulled back without its cotangent": (
        FusedOp._vjp_reference,
        "[(y._node, g)]",
        "[(y._node, wrap(g._array, None))]",
    ),
}


# --- all mutants -------------------------------------------------------------------------------------------------


def mutants(names: Iterable[str] | None = None) -> Iterator[Mutant]:
    """Every mutant, or those of some ops ("engine": of the engine), in a fixed order."""
    for name in sorted(OPS) if names is None else names:
        if name != "engine":
            yield from _of_op(name, OPS[name])
    if names is None or "engine" in names:
        for kind, (function, _, _) in ENGINE.items():
            yield Mutant("engine", function.__name__, kind)


def _of_op(name: str, op: Any) -> Iterator[Mutant]:
    if name != op.name:
        return  # a second name of the same op
    if isinstance(op, Derived):
        for parameter in inspect.signature(op._function).parameters.values():
            if parameter.annotation == "Array" and parameter.name not in AXIS_NAMES:
                yield Mutant(name, parameter.name, "detached")
        return
    if isinstance(op, FusedOp):
        for position in op._differentiable:
            for kind in [*KERNEL_RESULTS, "writes to cotangent", *([SWAPPED] if len(op._differentiable) > 1 else [])]:
                yield Mutant(name, op._names[position], kind)
    else:
        for position in op._rules:
            for kind in _kinds(op, position):
                yield Mutant(name, op._names[position], kind)
    if op.reference is not None:
        yield Mutant(name, "reference", "factor 1.001")


def _kinds(op: Op[Any], position: int) -> list[str]:
    """The kinds of damage for which a rule offers a place."""
    rule, needs = op._rules[position], op._needs[position]
    names = [op._names[i] for i in needs if 0 <= i < len(op._names)]
    several = str(inspect.signature(op).return_annotation).startswith("tuple")
    offered = {
        "second-order term dropped": any(i in op._rules or i == len(op._names) for i in needs),
        "axis off by one": any(name in AXIS_NAMES for name in names),
        "writes to cotangent": True,
        "assigned, not added": _mentions(rule, {"_scatter", "add_at", "index_add"}),
        "zero times infinity": is_local(rule),
        "first output ignored": several,
        "last output ignored": several,
        SWAPPED: len(op._rules) > 1 or op._sequence == position,
    }
    return [*RESULTS, *(kind for kind, there in offered.items() if there)]


def _mentions(function: Any, names: set[str]) -> bool:
    """Whether a function, or a function of its own module that it names, uses one of these names."""
    seen, stack = set(), [function]
    while stack:
        function = inspect.unwrap(stack.pop())
        code = getattr(function, "__code__", None)
        if code is None or code in seen:
            continue
        seen.add(code)
        if names & set(code.co_names):
            return True
        stack += [cell.cell_contents for cell in function.__closure__ or () if callable(cell.cell_contents)]
        found = [function.__globals__.get(name) for name in code.co_names]
        stack += [f for f in found if inspect.isfunction(f) and f.__module__ == function.__module__]
    return False


# --- planting ----------------------------------------------------------------------------------------------------


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """Run with the damage in place, for all threads: calls made inside are differentiated wrongly.

    Raises LookupError for a place that does not exist (any more).

    >>> import minigrad as mg
    >>> with planted(Mutant("exp", "x", "sign")):
    ...     print(mg.grad(mg.exp)(0.0))
    -1.0
    """
    if mutant.op == "engine":
        place = _edited(*ENGINE[mutant.kind])
    elif mutant.op not in OPS:
        raise LookupError(f"there is no op {mutant.op!r}")
    elif mutant.argument == "reference":
        op = OPS[mutant.op]
        place = _replaced(op, "reference", _scaled_reference(op.reference))
    elif isinstance(OPS[mutant.op], Derived):
        place = _replaced(OPS[mutant.op], "_function", _detaching(OPS[mutant.op]._function, mutant.argument))
    elif isinstance(OPS[mutant.op], FusedOp):
        place = _replaced(OPS[mutant.op], "_backward", _damaged_kernel(OPS[mutant.op], mutant))
    else:
        place = _damaged_rule(OPS[mutant.op], mutant)
    with place:
        yield


@contextmanager
def _edited(function: Any, text: str, instead: str) -> Iterator[None]:
    """A function of the engine with a piece of its source replaced."""
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(text) != 1:
        raise LookupError(f"{function.__name__} has {source.count(text)} places that read {text!r} instead of one")
    namespace: dict[str, Any] = {}
    flags = __future__.annotations.compiler_flag
    exec(compile(source.replace(text, instead), "<mutant>", "exec", flags), function.__globals__, namespace)
    with _replaced(function, "__code__", namespace[function.__name__].__code__):
        yield


def _scaled_reference(reference: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: reference(*args, **kwargs) * 1.001


def _detaching(function: Callable[..., Any], argument: str) -> Callable[..., Any]:
    """A composed function that does not see the history of one of its arguments."""
    signature = inspect.signature(function)

    def detached(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        if argument in bound.arguments:
            bound.arguments[argument] = _without_history(bound.arguments[argument])
        return function(*bound.args, **bound.kwargs)

    return detached


def _damaged_kernel(op: Any, mutant: Mutant) -> Callable[..., Any]:
    backward, at = op._backward, op._differentiable.index(op._index[mutant.argument])

    def damaged(g: Array, residual: Any, wanted: Sequence[bool], *arguments: Any) -> Any:
        results = list(backward(g, residual, wanted, *arguments))
        if results[at] is None:
            return results
        if mutant.kind == SWAPPED:
            other = (at + 1) % len(results)
            results[at], results[other] = results[other], results[at]
        elif mutant.kind == "writes to cotangent":
            g *= 1.5
        else:
            results[at] = RESULTS[mutant.kind](results[at], np.shape(arguments[op._differentiable[at]]))
        return results

    return damaged


@contextmanager
def _damaged_rule(op: Any, mutant: Mutant) -> Iterator[None]:
    position = op._index[mutant.argument]
    with _declared(op, position, *_damaged(op, position, mutant.kind)):
        yield


@contextmanager
def _declared(op: Any, position: int, rule: Any, needs: tuple[int, ...]) -> Iterator[None]:
    """An op with another rule, declared in the way in which its own is."""
    before = op._rules[position], op._needs[position]
    if is_local(before[0]) and not is_local(rule):
        rule.__signature__ = inspect.signature(before[0])
    op._rules[position], op._needs[position] = rule, needs
    op._plans.clear()
    try:
        yield
    finally:
        op._rules[position], op._needs[position] = before
        op._plans.clear()


def _damaged(op: Any, position: int, kind: str) -> tuple[Callable[..., Any], tuple[int, ...]]:
    """A rule with one damage, and what it needs: the shape of its operand too, when the damage is to the result."""
    rule, needs = op._rules[position], op._needs[position]
    if kind == SWAPPED:
        return _swapped(op, position)
    if kind in CALLS:
        names = [op._names[i] if 0 <= i < len(op._names) else "" for i in needs]
        return lambda g, *values: CALLS[kind](rule, names, g, values), needs
    damage = RESULTS[kind]
    return lambda g, *values: _each(damage, rule(g, *values[:-1]), values[-1]), (*needs, ~position)


def _swapped(op: Any, position: int) -> tuple[Callable[..., Any], tuple[int, ...]]:
    """The rule with two operands exchanged; the other one's rule, if it looks at neither; or a sequence's, rotated."""
    rule, needs = op._rules[position], op._needs[position]
    if op._sequence == position:
        return lambda g, *values: _rotated(rule(g, *values)), needs
    positions = sorted(op._rules)
    other = positions[(positions.index(position) + 1) % len(positions)]
    exchange = {position: other, other: position, ~position: ~other, ~other: ~position}
    exchanged = tuple(exchange.get(i, i) for i in needs)
    return (rule, exchanged) if exchanged != needs else (op._rules[other], op._needs[other])


def _rotated(gradients: Sequence[Any]) -> list[Any]:
    return [*gradients[1:], *gradients[:1]]


# --- judging -----------------------------------------------------------------------------------------------------


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
            self._fingerprints[id(case)] = _fingerprint(case)
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
    why = _why_equivalent(mutant, cases)
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
        return not _same(_fingerprint(case), right)


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


def _fingerprint(case: Case) -> list[Any]:
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


def _same(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(map(_equal, a, b))


def _equal(a: Any, b: Any) -> bool:
    if not isinstance(a, (np.ndarray, np.generic)) or not isinstance(b, (np.ndarray, np.generic)):
        return type(a) is type(b) and bool(a == b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    with np.errstate(all="ignore"):
        largest = np.max(np.abs(b), initial=0.0, where=np.isfinite(b))
        return np.allclose(a, b, rtol=SAME, atol=SAME * largest, equal_nan=True)


# --- why a mutant is equivalent ----------------------------------------------------------------------------------


def _why_equivalent(mutant: Mutant, cases: Sequence[Case]) -> str | None:
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
        bound.arguments[mutant.argument] = put_back([tracked(np.asarray(x + moved, float)) for x in leaves])
        ys = flatten(OPS[mutant.op](*bound.args, **bound.kwargs))[0]
        return [y._array for y in ys if isinstance(y, Tensor)]

    try:
        return not _same(values(0.0), values(0.01))
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
            _fingerprint(case)
    return seen


@contextmanager
def _watched(mutant: Mutant, watch: Callable[..., Array]) -> Iterator[None]:
    op = OPS[mutant.op]
    if isinstance(op, FusedOp):
        name = "watched"
        RESULTS[name] = watch
        try:
            with _replaced(op, "_backward", _damaged_kernel(op, Mutant(mutant.op, mutant.argument, name))):
                yield
        finally:
            del RESULTS[name]
        return
    position = op._index[mutant.argument]
    rule, needs = op._rules[position], op._needs[position]

    def watching(g: Array, *values: Any) -> Any:
        result = rule(g, *values[:-1])
        return _each(lambda r, shape: watch(r, shape, values[:-1]), result, values[-1])

    with _declared(op, position, watching, (*needs, ~position)):
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


# --- running -----------------------------------------------------------------------------------------------------


def run(
    directory: str, *, names: Iterable[str] | None = None, quick: bool = False, jobs: int | None = None
) -> list[Outcome]:
    """Judge all mutants (of some ops; a fixed subset, if quick) by as many processes as there are cores.

    directory: where the cases are. Raises FileNotFoundError when there are none.
    """
    cases_of = _by_op(directory)
    chosen = [m for m in mutants(names) if not quick or m.op == "engine" or zlib.crc32(str(m).encode()) % QUICK == 0]
    by_op: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in chosen:
        by_op[mutant.op].append(mutant)
    jobs = jobs or os.cpu_count() or 1
    if jobs == 1:
        groups = [_judge_all(group, cases_of) for group in by_op.values()]
    else:
        with ProcessPoolExecutor(jobs, initializer=_load, initargs=(directory,)) as pool:
            groups = list(pool.map(_judge_loaded, sorted(by_op.values(), key=len, reverse=True)))
    order = {mutant: i for i, mutant in enumerate(chosen)}
    return sorted((outcome for group in groups for outcome in group), key=lambda outcome: order[outcome.mutant])


def _by_op(directory: str) -> dict[str, list[Case]]:
    """The cases by op; those of the engine are all, one of each op before a second one of any."""
    by_op: dict[str, list[Case]] = defaultdict(list)
    for case in load_cases(directory):
        by_op[case.name].append(case)
    mixed = [sorted(cases, key=lambda case: zlib.crc32(str(case).encode())) for cases in by_op.values()]
    by_op["engine"] = [case for row in zip_longest(*mixed) for case in row if case is not None]
    return by_op


_loaded: dict[str, list[Case]] = {}  # a worker's own, since cases hold functions, which do not travel


def _load(directory: str) -> None:
    _loaded.update(_by_op(directory))


def _judge_loaded(group: Sequence[Mutant]) -> list[Outcome]:
    return _judge_all(group, _loaded)


def _judge_all(group: Sequence[Mutant], cases_of: dict[str, list[Case]]) -> list[Outcome]:
    known = Known()
    return [judge(mutant, cases_of.get(mutant.op, []), known) for mutant in group]


# --- telling -----------------------------------------------------------------------------------------------------


def summary(outcomes: Sequence[Outcome]) -> str:
    """How many of each kind were caught, by which laws; then the equivalent mutants and the survivors, with reasons."""
    verdicts = Counter(outcome.verdict for outcome in outcomes)
    by_kind: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_kind[outcome.mutant.kind if outcome.mutant.op != "engine" else "engine"].append(outcome)
    lines = [_row(kind, group) for kind, group in by_kind.items()]
    lines += _listed("equivalent to the original", [o for o in outcomes if o.verdict == "equivalent"])
    lines += _listed("SURVIVED", [o for o in outcomes if o.verdict == "survived"])
    counts = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in ("killed", "equivalent", "survived"))
    return "\n".join([*lines, "", f"{len(outcomes)} mutants: {counts}"])


def _row(kind: str, group: Sequence[Outcome]) -> str:
    laws = Counter(outcome.law for outcome in group if outcome.verdict == "killed")
    caught = ", ".join(f"{law} {n}" for law, n in laws.most_common())
    return f"{kind:32}{sum(laws.values()):5} of {len(group):4} killed   {caught}"


def _listed(title: str, outcomes: Sequence[Outcome]) -> list[str]:
    """Outcomes by reason, each mutant without the number of calls."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for outcome in outcomes:
        kind_and_reason = f"{outcome.mutant.kind}: {outcome.reason.partition(' (')[0]}"
        by_reason[kind_and_reason].append(f"{outcome.mutant.op}({outcome.mutant.argument})")
    lines = ["", f"{title}: {len(outcomes)}"] if outcomes else []
    for reason, names in by_reason.items():
        lines += [
            f"  {reason}",
            textwrap.fill(", ".join(names), 110, initial_indent=" " * 6, subsequent_indent=" " * 6),
        ]
    return lines


def as_json(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """A flat dict for each outcome."""
    return [
        {
            "op": o.mutant.op,
            "argument": o.mutant.argument,
            "kind": o.mutant.kind,
            "verdict": o.verdict,
            "law": o.law,
            "case": o.case,
            "reason": o.reason,
            "seconds": round(o.seconds, 4),
        }
        for o in outcomes
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns 1 if a mutant survived, 2 without cases."""
    parser = argparse.ArgumentParser(prog="python -m minigrad.check.mutate", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--cases", default=CASES, metavar="DIR", help=f"directory of cases*.py (default: {CASES})")
    parser.add_argument("--ops", nargs="+", metavar="NAME", help='only the mutants of these ("engine": the engine\'s)')
    parser.add_argument("--quick", action="store_true", help=f"about one mutant in {QUICK}, always the same ones")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default: one a core)")
    parser.add_argument("--json", metavar="FILE", help="write every outcome to a file, or to - (standard output)")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    try:
        outcomes = run(options.cases, names=options.ops, quick=options.quick, jobs=options.jobs)
    except (FileNotFoundError, KeyError) as error:
        print(error, file=sys.stderr)
        return 2
    text = json.dumps(as_json(outcomes), indent=1)
    if options.json == "-":
        print(text)
    else:
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                file.write(text + "\n")
        print(summary(outcomes) + f", in {time.perf_counter() - start:.0f} s")
    return int(any(outcome.verdict == "survived" for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
