"""Every gradient rule, fused backward kernel and step of the engine, each damaged in one way; how to plant a mutant."""

from __future__ import annotations
import __future__

import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

import minigrad.api  # noqa: F401  (declares all ops)
from minigrad.check.damage import (
    AXIS_NAMES,
    CALLS,
    ENGINE,
    KERNEL_RESULTS,
    RESULTS,
    SWAPPED,
    each,
    replaced,
    without_history,
)
from minigrad.check.samples import is_local
from minigrad.engine import OPS, Array
from minigrad.op import Derived, FusedOp, Op


@dataclass(frozen=True)
class Mutant:
    """One damage. op: its name, or "engine"; argument: whose gradient (or which function of the engine) is damaged."""

    op: str
    argument: str
    kind: str

    def __str__(self) -> str:
        return f"{self.op}({self.argument}): {self.kind}"


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
        place = replaced(op, "reference", _scaled_reference(op.reference))
    elif isinstance(OPS[mutant.op], Derived):
        place = replaced(OPS[mutant.op], "_function", _detaching(OPS[mutant.op]._function, mutant.argument))
    elif isinstance(OPS[mutant.op], FusedOp):
        place = replaced(OPS[mutant.op], "_backward", damaged_kernel(OPS[mutant.op], mutant))
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
    with replaced(function, "__code__", namespace[function.__name__].__code__):
        yield


def _scaled_reference(reference: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: reference(*args, **kwargs) * 1.001


def _detaching(function: Callable[..., Any], argument: str) -> Callable[..., Any]:
    """A composed function that does not see the history of one of its arguments."""
    signature = inspect.signature(function)

    def detached(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        if argument in bound.arguments:
            bound.arguments[argument] = without_history(bound.arguments[argument])
        return function(*bound.args, **bound.kwargs)

    return detached


def damaged_kernel(op: Any, mutant: Mutant) -> Callable[..., Any]:
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
    with declared(op, position, *_damaged(op, position, mutant.kind)):
        yield


@contextmanager
def declared(op: Any, position: int, rule: Any, needs: tuple[int, ...]) -> Iterator[None]:
    """An op with another rule, declared in the way in which its own is."""
    before = op._rules[position], op._needs[position]
    if is_local(before[0]):
        rule.is_local = True
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
    return lambda g, *values: each(damage, rule(g, *values[:-1]), values[-1]), (*needs, ~position)


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
