"""From a recorded history of nodes to plain data: what each call was given, what it gave, and what flowed back."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from minigrad.engine import Call, Node, OutputNode, is_leaf
from minigrad.nn.module import Module
from minigrad.op import Op
from minigrad.study.names import Names
from minigrad.study.parts import (
    COMPUTED,
    NOT_COMPUTED,
    NOT_KEPT,
    GraphEdge,
    GraphNode,
    Numbers,
    Parts,
    numbers,
)
from minigrad.study.walk import Record, edges_of, in_order


def read(roots: Sequence[Node], model: Module | None) -> Parts:
    """The graph that led to the roots, of which there is at least one; RuntimeError if it was not recorded in full."""
    history = in_order(roots)
    _check_complete(history)
    reading = _Reading(roots, history, model)
    for node in history:
        if edges_of(node) or node in roots:  # other leaves come right before the first call that uses them
            reading.add(node)
    results = tuple(reading.ids[root] for root in dict.fromkeys(roots))
    modules = {path: type(module).__name__ for path, module in reading.names.modules.items()}
    return Parts(tuple(reading.nodes), tuple(reading.edges), modules, results)


class _Reading:
    """Nodes and edges as they are collected."""

    def __init__(self, roots: Sequence[Node], history: Sequence[Node], model: Module | None):
        # A leaf's .grad may be left from another backward pass; the result's is from one over this graph.
        self.after_backward = any(node.notes is not None and node.notes.grad is not None for node in roots)
        self.names = Names(Record(roots[0], list(history), {}), model)
        self.parameters = {node: name for name, node in self.names.parameters.items()}
        calls = {node: call for node in history if (call := _call(node)) is not None}
        self.paths = {file: source_path(file) for file in {call.file for call in calls.values()}}
        self.values: dict[Node, Any] = {}
        for node, call in calls.items():
            self.values[node] = call.output
            operands = [(edge, x) for edge, _, x in _operands(node, call) if edge is not None]
            self.values.update((edge, x) for edge, x in operands if edge not in self.values)
        self.ids: dict[Any, str] = {}  # of nodes, and of constants by the id of their array
        self.nodes: list[GraphNode] = []
        self.edges: list[GraphEdge] = []

    def add(self, node: Node, use: str = "") -> None:
        """Add a node and what comes with it; use: what it is first used as."""
        operands = self._add_operands(node)
        mine = self.ids[node] = self._next_id()
        self.edges += [GraphEdge(source, mine, name) for source, name in operands]
        call = _call(node)
        several = isinstance(node.shape, list)
        value = None if several else _numbers(self._value(node))
        gradient = _numbers(node.notes.grad) if self.after_backward and node.notes is not None else None
        missing = NOT_KEPT if self.after_backward else NOT_COMPUTED
        self.nodes.append(
            GraphNode(
                id=mine,
                shape=None if several else tuple(node.shape),
                dtype="" if several else str(node.dtype),
                value=value,
                gradient=gradient,
                gradient_state=missing if gradient is None else COMPUTED,
                place="" if call is None else f"{self.paths[call.file]}:{call.line}",
                not_finite=sum(n.not_finite for n in (value, gradient) if n is not None),
                **self._described(node, use),
            )
        )

    def _add_operands(self, node: Node) -> list[tuple[str, str]]:
        """The id and the argument's name of each operand; leaves and constants are added where they are first used."""
        call = _call(node)
        operands: Iterable[tuple[Node | None, str, Any]] = ((edge, "", None) for edge in node.edges)
        if call is not None:
            operands = _operands(node, call)
        found = []
        for edge, name, x in operands:
            key = id(x) if edge is None else edge
            if key not in self.ids:
                use = f"{name} of {node.op}" if name else ""
                self._add_constant(x, use) if edge is None else self.add(edge, use)
            found.append((self.ids[key], name))
        return found

    def _described(self, node: Node, use: str) -> dict[str, Any]:
        module = self.names.module(node) or ""
        call = _call(node)
        if isinstance(node, OutputNode):
            return {"kind": "output", "op": str(node.edges[0].op), "module": module, "detail": f"output {node.index}"}
        if node.op is not None:
            detail = "" if call is None else _detail(node, call)
            return {"kind": "call", "op": str(node.op), "module": module, "detail": detail, "calls": 1}
        if node in self.parameters:
            return {"kind": "parameter", "name": self.parameters[node], "module": module}
        return {"kind": "leaf" if is_leaf(node) else "input", "detail": use}

    def _value(self, node: Node) -> Any:
        if isinstance(node, OutputNode) and (outputs := self.values.get(node.edges[0])) is not None:
            return outputs[node.index]
        return self.values.get(node)

    def _add_constant(self, x: np.ndarray, use: str) -> None:
        mine = self.ids[id(x)] = self._next_id()
        seen = numbers(x)
        self.nodes.append(
            GraphNode(
                id=mine,
                kind="constant",
                detail=use,
                shape=x.shape,
                dtype=str(x.dtype),
                value=seen,
                gradient_state="constant",
                not_finite=seen.not_finite,
            )
        )

    def _next_id(self) -> str:
        return f"n{len(self.ids)}"


def _call(node: Node) -> Call | None:
    return None if node.notes is None else node.notes.call


def _check_complete(history: Sequence[Node]) -> None:
    for node in history:
        if node.op is None or _call(node) is not None:
            continue
        if isinstance(node.op, Op):
            raise RuntimeError(
                f"the call of {node.op} that gave shape {node.shape} was not recorded in full: run the computation, "
                "from its first op on, in `with minigrad.study.recording():`"
            )
        if not node.edges:
            raise RuntimeError(f"{node.op} was freed by backward(): draw it before, or use backward(retain_graph=True)")


def _operands(node: Node, call: Call) -> Iterator[tuple[Node | None, str, Any]]:
    """The arrays among a call's arguments, items of a sequence too: the node if it has one, the name, the array.

    Constants that are a mere number stand in the call's box instead.
    """
    op = node.op
    edge_of = dict(zip(call.tracked, call.edges))
    if not isinstance(op, Op):  # what passes to a module's hooks
        yield from ((edge_of[i], "", call.arguments[i]) for i in call.tracked)
        return
    for position, (name, x) in enumerate(zip(op._names, call.arguments)):
        if position == op._sequence:
            items = [(edge_of.get(i), f"{name}[{i}]", item) for i, item in enumerate(x)]
        else:
            items = [(edge_of.get(position) if op._sequence < 0 else None, name, x)]
        yield from (item for item in items if item[0] is not None or (isinstance(item[2], np.ndarray) and item[2].ndim))


def _detail(node: Node, call: Call) -> str:
    """The arguments that are no arrays, or mere numbers, and not left at their default."""
    op = node.op
    if not isinstance(op, Op):
        return ""
    tracked = call.tracked if op._sequence < 0 else (op._sequence,)
    shown = []
    for position, (name, x, default) in enumerate(zip(op._names, call.arguments, op._defaults)):
        is_drawn = position in tracked or position == op._sequence or (isinstance(x, np.ndarray) and x.ndim)
        if not is_drawn and x is not default and not (type(x) is type(default) and x == default):
            shown.append(f"{name}={_short(x)}")
    return ", ".join(shown)


def _short(x: Any) -> str:
    if isinstance(x, (np.ndarray, np.generic)):
        x = x.item()
    return f"{x:.4g}" if isinstance(x, float) else repr(x)


def _numbers(x: Any) -> Numbers | None:
    return None if x is None else numbers(x)


def source_path(file: str) -> str:
    """A file as it is imported or seen from here ("models/fc.py"), so that no picture tells where somebody lives."""
    if not os.path.isabs(file):
        return file
    below = [f for root in [os.getcwd(), *sys.path] if not (f := os.path.relpath(file, root or ".")).startswith("..")]
    return min(below, key=len, default=os.path.basename(file)).replace(os.sep, "/")
