"""How many digits a computation has left: every recorded call again in float64, and what differs."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minigrad.engine import Node, OutputNode
from minigrad.op import FusedOp, Op
from minigrad.study.names import Names
from minigrad.study.text import place, table, width
from minigrad.study.walk import (
    Record,
    Step,
    call_of,
    cotangent_of,
    edges_of,
    is_source,
    operands,
    pull_back,
    record_of,
    replayed,
)
from minigrad.tensor import Tensor

ROWS_SHOWN = 20


@dataclass(frozen=True)
class Digits:
    """The correct digits of what a call was given and of what it made.

    phase: "forward" or "backward". operand: in backward the one whose gradient it is; "" in forward. before: those of
    the least precise thing that went in (in backward the cotangent, and what the rule uses of the forward pass). An
    array has -log10(max |x - exact| / max |exact|) of them, at most what its dtype holds (7.2 in float32, 3.3 in
    float16), and none where it is not finite and should be. In backward, op "sum of gradients" is where those of
    several uses of one tensor, the operand, are added.
    """

    phase: str
    op: str
    operand: str
    module: str
    file: str
    line: int
    before: float
    after: float

    @property
    def lost(self) -> float:
        return max(0.0, self.before - self.after)


@dataclass(frozen=True, repr=False)
class Precision:
    """Digits lost, the worst call first. value: the digits of the loss; gradients: those of each leaf's gradient."""

    rows: tuple[Digits, ...]
    value: float
    gradients: Mapping[str, float]

    def __repr__(self) -> str:
        cells = [
            [row.phase, f"{row.op}: {row.operand}" if row.operand else row.op, row.module]
            + [f"{row.before:.1f}", f"{row.after:.1f}", f"{row.lost:.1f}", place(row.file, row.line)]
            for row in self.rows[:ROWS_SHOWN]
        ]
        lines = table(["phase", "op", "module", ">before", ">after", ">lost", "line"], cells)
        more = len(self.rows) - len(cells)
        return "\n".join([*self._words(), "", *lines, *([f"(and {more} more, which lose less)"] if more else [])])

    def _words(self) -> list[str]:
        words = f"The loss has {self.value:.1f} correct digits"
        if self.gradients:
            name = min(self.gradients, key=self.gradients.__getitem__)
            words += f", and the least precise gradient, that of {name}, {self.gradients[name]:.1f}"
        worst = self.rows[0]
        if worst.lost >= 1:
            what = f"the gradient of {worst.operand}" if worst.operand else "its output"
            words += (
                f". Most are lost at {worst.op} ({place(worst.file, worst.line)}), {worst.phase}: {worst.lost:.1f} of "
                f"{worst.before:.1f} digits, in {what}"
            )
        else:
            words += "; no call loses as much as one"
        return textwrap.wrap(words + ".", width())


def precision(loss: Tensor) -> Precision:
    """How many digits every call loses, forward and backward, on the way to a loss and from it.

    All that was recorded within study.recording() is computed again in float64, from the same leaves and constants and
    with the same choices (conditions, indices), and compared. What is not a call of an op with a gradient (a mean
    computed from constants) is taken as it stands. Hooks do not run. Printed, it is a table, the worst first.

    Raises RuntimeError for a graph that was not recorded in full, ValueError for a loss of more than one element or if
    all is in float64 already.

    >>> import minigrad as mg
    >>> from minigrad import study
    >>> x = mg.tensor([1.0, 2.0], dtype=np.float32, requires_grad=True)
    >>> with study.recording():
    ...     loss = ((x / 3 + 1000.0) - 1000.0).sum()
    >>> found = study.precision(loss)
    >>> found.rows[0].op, found.rows[0].phase, round(found.rows[0].lost)
    ('subtract', 'forward', 3)
    """
    record = record_of(loss, "study.precision")
    cotangent = cotangent_of(loss, "study.precision")
    if all(np.dtype(d).itemsize >= 8 for node in record.nodes for d in _dtypes(node) if np.dtype(d).kind == "f"):
        raise ValueError(
            "study.precision compares with float64, and this loss was computed in float64 throughout: "
            "compute it in float32 (the parameters' and the inputs' dtype)"
        )
    return _Comparison(record, cotangent).result()


def _dtypes(node: Node) -> Sequence[Any]:
    return node.dtype if isinstance(node.dtype, list) else [node.dtype]


class _Comparison:
    """A record beside the same in float64."""

    def __init__(self, record: Record, cotangent: np.ndarray):
        self._record = record
        self._names = Names(record)
        self._exact = replayed(record, widened)
        self._digits = {node: self._of_value(node) for node in record.nodes}  # of what stands at each node
        self._gradients: dict[str, float] = {}
        self._rows = [*self._forward(), *self._backward(cotangent)]

    def result(self) -> Precision:
        rows = sorted(self._rows, key=lambda row: row.lost, reverse=True)
        return Precision(tuple(rows), self._digits[self._record.root], self._gradients)

    def _of_value(self, node: Node) -> float:
        """The digits of a node's value; a call with several outputs has those of the worst that was used."""
        if node in self._exact and (value := self._value(node)) is not None:
            return digits(value, self._exact[node]._array)
        return min((full(d) for d in _dtypes(node)), default=math.inf)

    def _value(self, node: Node) -> Any:
        while type(node) is OutputNode or (node.op is None and node.edges):
            if type(node) is OutputNode:
                call = node.edges[0]
                if call not in self._record.inside:
                    return call_of(call).output[node.index]
                node = self._record.inside[call][node.index]
            else:
                node = node.edges[0]
        return None if is_source(node) or node.notes is None or node.notes.call is None else node.notes.call.output

    def _row(self, node: Node, phase: str, op: str, operand: str, before: float, after: float) -> Digits:
        call = call_of(node)
        module = self._names.title(self._names.module(node))
        return Digits(phase, op, operand, module, call.file, call.line, before, after)

    def _forward(self) -> Iterator[Digits]:
        outputs: dict[Node, list[float]] = {}
        for node in self._record.nodes:
            if type(node) is OutputNode:
                outputs.setdefault(node.edges[0], []).append(self._digits[node])
        for node in self._record.calls:
            before = min(self._digits[edge] for edge in edges_of(node))
            after = min(outputs.get(node, [self._digits[node]]))
            yield self._row(node, "forward", str(node.op), "", before, after)

    def _backward(self, cotangent: np.ndarray) -> Iterator[Digits]:
        exact_record = record_of(self._exact[self._record.root], "study.precision")
        exact = {step.node: step for step in pull_back(exact_record, widened(cotangent), hooks=False)}
        arrived: dict[Node, list[Digits]] = {}
        for step in pull_back(self._record, cotangent, hooks=False):
            twin = self._twin(step.node)
            if twin is None or twin not in exact:
                continue
            after = min(map(digits, _several(step.cotangent), _several(exact[twin].cotangent)))
            if len(rows := arrived.get(step.node, [])) > 1:
                before = min(row.after for row in rows)
                yield replace(
                    rows[-1], op="sum of gradients", operand=self._called(step.node), before=before, after=after
                )
            if is_source(step.node):
                self._gradients[self._names.leaf(step.node)] = after
            if isinstance(step.node.op, Op):
                for edge, row in self._rules(step, exact[twin], after):
                    arrived.setdefault(edge, []).append(row)
                    yield row

    def _twin(self, node: Node) -> Node | None:
        """The node of the same thing in float64; None for one through which others merely pass."""
        if isinstance(node.op, Op) and node not in self._exact:
            output = next((n for n in self._record.nodes if type(n) is OutputNode and n.edges[0] is node), None)
            return None if output is None else self._twin_node(output).edges[0]
        passes = type(node) is OutputNode and not isinstance(node.edges[0].op, Op)
        return self._twin_node(node) if node in self._exact and not passes else None

    def _twin_node(self, node: Node) -> Node:
        twin = self._exact[node]._node
        assert twin is not None
        return twin

    def _rules(self, step: Step, exact: Step, before: float) -> Iterator[tuple[Node, Digits]]:
        for i, (edge, (name, _)) in enumerate(zip(step.edges, operands(step.node))):
            ge, exact_ge = step.gradients[i], exact.gradients[i]
            if ge is not None and exact_ge is not None:
                least = min([before, *self._used(step.node, i)])
                row = self._row(step.node, "backward", str(step.node.op), name, least, digits(ge, exact_ge))
                yield edge, row

    def _used(self, node: Node, edge: int) -> Iterator[float]:
        """The digits of what the rule for an edge uses of the forward pass; of all that it might use, if unknown."""
        op, edges = node.op, edges_of(node)
        needs = None
        if not isinstance(op, FusedOp) and op._sequence < 0:
            needs = op._needs[call_of(node).tracked[edge]]
        for position, operand in zip(call_of(node).tracked, edges):
            if needs is None or position in needs:
                yield self._digits[operand]
        if needs is None or len(op._names) in needs:
            yield self._digits[node]

    def _called(self, node: Node) -> str:
        while node.op is None and node.edges:
            node = node.edges[0]
        if is_source(node):
            return self._names.leaf(node)
        return f"output of {node.op} at {place(call_of(node).file, call_of(node).line)}"


def _several(x: Any) -> Sequence[Any]:
    return x if isinstance(x, (tuple, list)) else (x,)


# --- arrays ------------------------------------------------------------------------------------------------------


def full(dtype: Any) -> float:
    """The decimal digits that a floating or complex dtype holds."""
    dtype = np.dtype(dtype)
    return -math.log10(float(np.finfo(dtype).eps) / 2) if dtype.kind in "fc" else math.inf


def digits(x: Any, exact: Any) -> float:
    """The correct digits of x: -log10(max |x - exact| / max |exact|), at most its dtype's; 0 if wrongly not finite.

    >>> digits(np.float32([1.0, 1000.1]), np.array([1.0, 1000.0]))
    4.0
    """
    x, exact = np.asarray(x), np.asarray(exact)
    most = full(x.dtype)
    with np.errstate(all="ignore"):
        finite = np.isfinite(exact)
        if not np.array_equal(x[~finite], exact[~finite].astype(x.dtype), equal_nan=True):
            return 0.0
        error = float(np.abs(x[finite].astype(exact.dtype) - exact[finite]).max(initial=0.0))
        largest = float(np.abs(exact[finite]).max(initial=0.0))
    if error == 0:
        return most
    if not largest or not math.isfinite(error):
        return 0.0
    return min(most, max(0.0, round(-math.log10(error / largest), 3)))


def widened(x: Any) -> Any:
    """An argument of a call with float64 (complex128) in the place of lesser precision: arrays, numbers, dtypes."""
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return type(x)(map(widened, x))
    if isinstance(x, (np.ndarray, np.generic)):
        return np.asarray(x, _wider(x.dtype)) if x.dtype.kind in "fc" else x
    if isinstance(x, np.dtype) or (isinstance(x, type) and issubclass(x, np.inexact)):
        return _wider(np.dtype(x))
    return x


def _wider(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.kind not in "fc":
        return dtype
    return np.result_type(dtype, np.float64)
