"""Where a NaN or an infinity was made: the first op, forward or backward, that made one of finite operands."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigrad.engine import Array, Call, Node, caller, observers
from minigrad.op import FusedOp, Op, watching
from minigrad.study.graphs import recording
from minigrad.study.text import index_text, number, place
from minigrad.study.walk import edges_of, fitted, operands
from minigrad.tensor import Tensor

PHASES = ("forward", "backward")


@dataclass(frozen=True)
class Range:
    """An operand: the least and the most of its numbers, and what stands where the bad element comes from, if known."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    least: float
    most: float
    there: float | complex | None

    def __str__(self) -> str:
        there = f", there {self.there:.6g}" if self.there is not None and self.shape else ""
        return f"{self.name}: {self.dtype} {self.shape}, from {number(self.least)} to {number(self.most)}{there}"


class AnomalyError(FloatingPointError):
    """An op made a NaN or an infinity out of finite operands, or a NaN out of operands without one.

    phase: "forward" or "backward". op: its name. file, line: of the call, None where that was not recorded. operand:
    in backward, the one whose gradient is bad ("" in forward). index, value: the first bad element of the output or
    gradient. ranges: of the operands, and in backward of the cotangent.
    """

    def __init__(
        self,
        phase: str,
        op: str,
        operand: str,
        where: tuple[str, int] | None,
        bad: _Bad,
        ranges: Sequence[Range],
    ):
        self.phase, self.op, self.operand = phase, op, operand
        self.file = None if where is None else where[0]
        self.line = None if where is None else where[1]
        self.index, self.value, self.ranges = bad.index, bad.value, tuple(ranges)
        maker = f"the gradient rule of {op} for {operand}" if operand else op
        lines = [f"{maker} made {bad.value} out of {bad.of} ({phase})"]
        if where is None:
            lines.append("called outside of study.detect_anomaly(), so no line is known: run the forward within it too")
        else:
            lines.append(f"called at {place(*where)}: {linecache.getline(*where).strip()}")
        lines.append(f"first at {index_text(bad.index)} of {bad.shape}; {bad.count} of {bad.size} elements are like it")
        super().__init__("\n  ".join([*lines, *map(str, ranges)]))


@contextmanager
def detect_anomaly(check: str | Sequence[str] = PHASES) -> Iterator[None]:
    """Within this context the first op that makes a NaN or Inf out of finite operands raises AnomalyError.

    check: "forward", "backward", or both. In forward every call of an op in this thread is looked at, on constants and
    under no_grad too; in backward what each gradient rule returns. An infinity that was put there on purpose is none of
    this: ops that have one among their operands are blamed only if they make a NaN of it, and what ops do inside (the
    masks of attention) is their own business. NumPy's warnings in ops are off. It costs a look at every result, and
    what study.recording() does. ValueError for another `check`.

    >>> import minigrad as mg
    >>> x = mg.tensor([1.0, -1.0], requires_grad=True)
    >>> try:
    ...     with detect_anomaly():
    ...         loss = mg.where(x > 0, mg.sqrt(x), 0.0).sum()  # it would be 1, and yet
    ... except AnomalyError as error:
    ...     found = error
    >>> found.op, found.phase, found.index, found.value
    ('sqrt', 'forward', (1,), nan)
    >>> print(str(found).splitlines()[0])
    sqrt made nan out of finite operands (forward)
    >>> print(found.ranges[0])
    x: float64 (2,), from -1 to 1, there -1
    """
    phases = (check,) if isinstance(check, str) else tuple(check)
    if not phases or not set(phases) <= set(PHASES):
        raise ValueError(f'check names "forward", "backward" or both, and {check!r} was given')
    watcher = _Watcher("forward" in phases, "backward" in phases)
    observers.add(watcher)
    try:
        with watching(watcher), recording() if "backward" in phases else nullcontext():
            yield
    finally:
        observers.discard(watcher)


class _Watcher:
    def __init__(self, forward: bool, backward: bool):
        self._forward, self._backward = forward, backward
        self._inside = 0  # ops that ops and rules call may pass infinities on their way to a finite result

    @contextmanager
    def _within(self) -> Iterator[None]:
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    def forward(self, op: Op[Any], forward: Callable[..., Any], *values: Any) -> Any:
        if self._inside or not self._forward:
            return forward(*values)
        with self._within(), np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            result = forward(*values)
        y = result[0] if isinstance(op, FusedOp) else result
        for output in y if isinstance(y, tuple) else (y,):
            bad = _find(output, values)
            if bad is not None:
                with self._within():
                    ranges = _ranges(op, values, _elements(op, values, bad))
                raise AnomalyError("forward", op.name, "", caller(sys._getframe(1)), bad, ranges)
        return result

    def vjp(self, op: Op[Any], vjp: Callable[..., Any], node: Node, g: Array, recorded: bool) -> Sequence[Array]:
        with self._within():
            gradients: Sequence[Array] = vjp(node, g, recorded)
        if self._inside or not self._backward:
            return gradients
        for i, (edge, ge) in enumerate(zip(edges_of(node), gradients)):
            if ge is None:
                continue
            ge = _plain(ge) if recorded else fitted(ge, edge, node)
            bad = _find(ge, (_plain(g), node.saved))
            if bad is not None:
                raise _in_backward(op, node, g, i, bad)
        return gradients


def _in_backward(op: Op[Any], node: Node, g: Array, edge: int, bad: _Bad) -> AnomalyError:
    cotangents = [_range("cotangent", _plain(c), None) for c in (g if isinstance(g, (tuple, list)) else (g,))]
    call: Call | None = node.notes.call if node.notes is not None else None
    if call is None:
        return AnomalyError("backward", op.name, f"operand {edge}", None, bad, cotangents)
    operand, value = operands(node)[edge]
    there = {operand: np.asarray(value)[bad.index].item()}
    ranges = [*_ranges(op, call.arguments, there), *cotangents]
    return AnomalyError("backward", op.name, operand, (call.file, call.line), bad, ranges)


# --- looking -----------------------------------------------------------------------------------------------------


class _Bad:
    """The elements of an array that should not be there, and what they were made of."""

    def __init__(self, array: np.ndarray, flags: np.ndarray, of: str):
        self.index = tuple(map(int, np.argwhere(flags)[0]))
        self.value = array[self.index].item()
        self.count, self.size, self.shape, self.of = int(flags.sum()), array.size, array.shape, of


def _find(result: Any, operands: Any) -> _Bad | None:
    """What is wrong with a result: not finite, though all operands are; or NaN, though no operand is."""
    array = np.asarray(result)
    if array.dtype.kind not in "fc" or np.isfinite(array).all():
        return None
    given = list(_numbers(operands))
    if all(np.isfinite(x).all() for x in given):
        return _Bad(array, ~np.isfinite(array), "finite operands")
    if np.isnan(array).any() and not any(np.isnan(x).any() for x in given):
        return _Bad(array, np.isnan(array), "operands without a NaN, but with infinities")
    return None


def _numbers(x: Any) -> Iterator[Any]:
    """All floating and complex arrays and numbers in something nested."""
    if isinstance(x, (tuple, list)):
        for item in x:
            yield from _numbers(item)
    elif isinstance(x, (float, complex)) or (isinstance(x, (np.ndarray, np.generic)) and x.dtype.kind in "fc"):
        yield x


def _plain(x: Any) -> Any:
    if isinstance(x, (tuple, list)):
        return [_plain(item) for item in x]
    return x._array if isinstance(x, Tensor) else x


# --- saying ------------------------------------------------------------------------------------------------------


def _ranges(op: Op[Any], values: Sequence[Any], there: dict[str, Any]) -> list[Range]:
    ranges = []
    for name, value in zip(op._names, values):
        several = isinstance(value, (tuple, list))
        for i, x in enumerate(value if several else (value,)):
            label = f"{name}[{i}]" if several else name
            if isinstance(x, (np.ndarray, np.generic)) and x.dtype.kind in "fc" and x.size:
                ranges.append(_range(label, np.asarray(x), there.get(label)))
    return ranges


def _range(name: str, x: np.ndarray, there: Any) -> Range:
    sizes = np.abs(x) if x.dtype.kind == "c" else x
    return Range(name, str(x.dtype), x.shape, float(np.min(sizes)), float(np.max(sizes)), there)


def _elements(op: Op[Any], values: Sequence[Any], bad: _Bad) -> dict[str, Any]:
    """The operands' elements that made the bad one: known where the op, called with these alone, gives it again."""
    try:
        chosen = [np.broadcast_to(x, bad.shape)[bad.index] if isinstance(x, np.ndarray) else x for x in values]
        with np.errstate(all="ignore"):
            again = op.forward(*chosen)
        same = np.shape(again) == () and np.array_equal(again, bad.value, equal_nan=True)
    except Exception:  # it is not elementwise
        return {}
    return {name: x.item() for name, x in zip(op._names, chosen) if isinstance(x, np.generic)} if same else {}
