"""Where two runs part: the first recorded call that is not the same, or does not give the same, in both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigrad.engine import Node, OutputNode
from minigrad.op import Op
from minigrad.study.text import index_text, place
from minigrad.study.walk import Record, call_of, edges_of, record_of, record_with
from minigrad.tensor import Tensor


@dataclass(frozen=True)
class Parting:
    """The first call at which two runs differ, and how.

    kind: "op" (another is called), "length" (one run ends), "operands" (an argument was computed elsewhere, or is given
    in another way), "argument" (a constant or leaf is another), "output" (given the same). number: of the call, counted
    from 0. ops, places: of both runs' calls, None where there is none; places are (file, line). argument: its name, ""
    for the output. index, values: the first element that differs and what it is in both; index None where shapes,
    dtypes or other things differ, which are the values then.
    """

    kind: str
    number: int
    ops: tuple[str | None, str | None]
    places: tuple[tuple[str, int] | None, tuple[str, int] | None]
    argument: str = ""
    index: tuple[int, ...] | None = None
    values: tuple[Any, Any] = (None, None)

    def __str__(self) -> str:
        first, second = (
            f"{op} ({place(*at)})" if at is not None else "nothing" for op, at in zip(self.ops, self.places)
        )
        begin = f"The runs part at call {self.number}: "
        if self.kind in ("op", "length"):
            return f"{begin}{first} in the first, and {second} in the second."
        both = first if first == second else f"{first}, in the second {second}"
        one, other = self.values
        what = f"its argument {self.argument}" if self.argument else "its output"
        if self.kind == "operands":
            return f"{begin}{both}: {what} is {one} in the first, and {other} in the second."
        at = "" if self.index is None else f" at {index_text(self.index)}"
        same = "" if self.argument else ", of equal arguments"
        return f"{begin}{both}: {what}{same} is {one!r}{at} in the first, and {other!r} in the second."


def diff(graph_a: Tensor | Sequence[Node], graph_b: Tensor | Sequence[Node], *, rtol: float = 0.0) -> Parting | None:
    """The first call at which two recorded runs part, or None if they are the same.

    graph_a, graph_b: results of both (losses), or lists of their calls (study.calls). Calls are compared in the order
    in which they were made: which op, where each argument was computed, constants and leaves, then outputs. rtol: by
    how much numbers may differ, relative to the largest of their array; if it is 0 they must be equal (NaN is equal to
    NaN), and of one dtype, and else they need not be. Raises RuntimeError for a graph that was not recorded in full.

    >>> import numpy as np, minigrad as mg
    >>> from minigrad import study
    >>> def run(factor):
    ...     x = mg.tensor([1.0, 2.0], requires_grad=True)
    ...     with study.recording():
    ...         return mg.exp(x * np.array([1.0, factor])).sum()
    >>> parting = study.diff(run(1.0), run(1.5))
    >>> parting.number, parting.ops, parting.argument, parting.index
    (0, ('multiply', 'multiply'), 'b', (1,))
    >>> [float(value) for value in parting.values]
    [1.0, 1.5]
    >>> study.diff(run(1.0), run(1.0)) is None
    True
    """
    records = [
        record_of(graph, "study.diff") if isinstance(graph, Tensor) else record_with(graph, "study.diff")
        for graph in (graph_a, graph_b)
    ]
    first, second = (record.calls for record in records)
    sources = _Sources(records[0]), _Sources(records[1])
    for number, (a, b) in enumerate(zip(first, second)):
        ops, places = (str(a.op), str(b.op)), (_place(a), _place(b))
        if ops[0] != ops[1]:
            return Parting("op", number, ops, places)
        for found in _differences(a, b, sources, rtol):
            return Parting(found[0], number, ops, places, *found[1:])
    n = min(len(first), len(second))
    if len(first) == len(second):
        return None
    ends = [calls[n] if len(calls) > n else None for calls in (first, second)]
    one, other = (None if node is None else str(node.op) for node in ends)
    here, there = (None if node is None else _place(node) for node in ends)
    return Parting("length", n, (one, other), (here, there))


def _place(node: Node) -> tuple[str, int]:
    return call_of(node).file, call_of(node).line


class _Sources:
    """In words that mean the same in both runs: where each argument of a call comes from."""

    def __init__(self, record: Record):
        self._inside = record.inside
        self._known = {node: f"the output of call {i} ({node.op})" for i, node in enumerate(record.calls)}
        self._leaves = 0

    def of(self, node: Node) -> dict[str, str]:
        """For each argument by name (an item of a sequence: with its number); constants are missing."""
        op, call = node.op, call_of(node)
        found = {}
        for position, edge in zip(call.tracked, edges_of(node)):
            name = f"{op._names[op._sequence]}[{position}]" if op._sequence >= 0 else op._names[position]
            found[name] = self._source(edge)
        return found

    def _source(self, edge: Node) -> str:
        output = ""
        while edge.op is None and edge.edges:
            call = edge.edges[0]
            if type(edge) is not OutputNode:
                edge = call
            elif call in self._inside:
                edge = self._inside[call][edge.index]
            elif isinstance(call.op, Op):
                output, edge = f"output {edge.index} of ", call
            else:  # what passes by a module's hooks
                edge = edges_of(call)[edge.index]
        if edge not in self._known:
            self._known[edge] = f"leaf {self._leaves}"
            self._leaves += 1
        return output + self._known[edge]


def _differences(
    a: Node, b: Node, sources: tuple[_Sources, _Sources], rtol: float
) -> Iterator[tuple[str, str, tuple[int, ...] | None, tuple[Any, Any]]]:
    """(kind, argument, index, values) of what differs between two calls of one op."""
    from_a, from_b = sources[0].of(a), sources[1].of(b)
    for name in {**from_a, **from_b}:
        one, other = from_a.get(name, "a constant"), from_b.get(name, "a constant")
        if one != other:
            yield "operands", name, None, (one, other)
    for name, x, y in zip(a.op._names, call_of(a).arguments, call_of(b).arguments):
        for index, values in _unequal(x, y, rtol):
            yield "argument", name, index, values
    for index, values in _unequal(call_of(a).output, call_of(b).output, rtol):
        yield "output", "", index, values


def _unequal(x: Any, y: Any, rtol: float) -> Iterator[tuple[tuple[int, ...] | None, tuple[Any, Any]]]:
    if isinstance(x, (list, tuple)) and isinstance(y, (list, tuple)) and len(x) == len(y):
        for one, other in zip(x, y):
            yield from _unequal(one, other, rtol)
    elif isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
        yield from _unequal_arrays(x, y, rtol)
    elif type(x) is not type(y) or not _same(x, y):
        yield None, (x, y)


def _unequal_arrays(
    x: np.ndarray, y: np.ndarray, rtol: float
) -> Iterator[tuple[tuple[int, ...] | None, tuple[Any, Any]]]:
    if x.shape != y.shape:
        yield None, (f"of shape {x.shape}", f"of shape {y.shape}")
        return
    if x.dtype != y.dtype and not (rtol and x.dtype.kind == y.dtype.kind):
        yield None, (f"of dtype {x.dtype}", f"of dtype {y.dtype}")
        return
    with np.errstate(all="ignore"):
        differs = x != y
        if x.dtype.kind in "fc":
            differs &= ~(np.isnan(x) & np.isnan(y))
            largest = max((float(np.abs(z[np.isfinite(z)]).max(initial=0.0)) for z in (x, y)), default=0.0)
            differs &= ~(np.abs(np.subtract(x, y, dtype=np.result_type(x, y, float))) <= rtol * largest)
    if differs.any():
        index = tuple(map(int, np.argwhere(differs)[0]))
        yield index, (x[index], y[index])


def _same(x: Any, y: Any) -> bool:
    try:
        return bool(x is y or x == y or (x != x and y != y))
    except Exception:  # things that do not compare
        return False
