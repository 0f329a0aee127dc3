"""The recorded graph as data: making it complete, and reading it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from minigrad.engine import COMPLETE, Call, Node, OutputNode, is_leaf, state
from minigrad.nn.module import Module
from minigrad.op import Op
from minigrad.study import export
from minigrad.study.names import Names
from minigrad.study.parts import (
    COMPUTED,
    NOT_COMPUTED,
    NOT_KEPT,
    GraphEdge,
    GraphNode,
    Numbers,
    Parts,
    collapsed,
    inside,
    numbers,
    plain,
)
from minigrad.study.walk import Record
from minigrad.tensor import Tensor


@contextmanager
def recording() -> Iterator[None]:
    """Within this context every recorded call keeps all its arguments, its output, and the file and line that made it.

    Ordinarily a node keeps only what gradient rules need, and what a backward pass has used is freed. What is kept
    stands in `node.notes.call`, and a call's gradient in `node.notes.grad`; see `calls` and `graph`.
    """
    before = state.mode, state.recording
    state.mode = COMPLETE
    state.recording = COMPLETE if state.recording else 0
    try:
        yield
    finally:
        state.mode, state.recording = before


def calls(outputs: Tensor | Sequence[Tensor]) -> list[Node]:
    """The nodes of all recorded calls that lead to the outputs, in the order in which they were made.

    >>> import minigrad as mg
    >>> x = mg.tensor(2.0, requires_grad=True)
    >>> with recording():
    ...     y = mg.exp(x) * x
    >>> [(node.op, node.notes.call.output) for node in calls(y)]
    [(exp, array(7.3890561)), (multiply, array(14.7781122))]
    """
    return [node for node in _history(_roots(outputs)) if node.op is not None]


class Graph(Parts):
    """A computation graph as plain data; in a notebook it draws itself. Made by `graph`; it does not change."""

    def by_module(self, depth: int = 1) -> Graph:
        """One box for each call of a module, down to modules nested `depth` deep; ValueError for a depth below 1."""
        return collapsed(self, depth)

    def inside(self, module: str) -> Graph:
        """What the module of that path did alone; KeyError for one that did nothing here."""
        return inside(self, module)

    def to_json(self) -> dict[str, Any]:
        """Plain data for json.dumps: nodes, edges, modules; the schema is called minigrad.graph/1."""
        return plain(self)

    def to_dot(self) -> str:
        """The graph in Graphviz's language."""
        return export.dot(self)

    def to_mermaid(self) -> str:
        """The graph as a Mermaid flowchart."""
        return export.mermaid(self)

    def to_svg(self) -> str:
        """A picture, placed by `study.layout`; ValueError for more boxes than anybody can look at."""
        return export.svg(self)

    def to_html(self) -> str:
        """The picture by module, below it one of each module's inside to be unfolded, and all numbers in a table."""
        return export.html(self)

    _repr_html_ = to_html

    def _repr_svg_(self) -> str:
        return export.svg(export.overview(self))

    def __repr__(self) -> str:
        return f"Graph({export.summary(self)})"


def graph(loss: Tensor | Sequence[Tensor], model: Module | None = None) -> Graph:
    """The computation that led to the loss, which was recorded in `with study.recording()`.

    model: whose parameters and modules give the nodes their names. After backward each node tells its gradient as it
    stands in `.grad`; before it, "not computed".
    Raises TypeError for what is no tensor, ValueError for a tensor without a history, and RuntimeError for one whose
    history was not recorded in full.

    >>> import minigrad as mg
    >>> x = mg.tensor([1.0, 2.0], requires_grad=True)
    >>> with recording():
    ...     loss = (x * x).sum()
    >>> loss.backward()
    >>> seen = graph(loss)
    >>> seen
    Graph(by op: 3 boxes, 3 edges; gradients computed)
    >>> [(node.kind, node.op, node.gradient.norm) for node in seen.nodes]
    [('leaf', '', 4.472136), ('call', 'multiply', 1.414214), ('call', 'sum', 1.0)]
    """
    return _Reading(_roots(loss), model).graph()


def _roots(outputs: Tensor | Sequence[Tensor]) -> list[Node]:
    tensors = [outputs] if isinstance(outputs, Tensor) else outputs
    if not isinstance(tensors, (list, tuple)) or not all(isinstance(t, Tensor) for t in tensors):
        raise TypeError(f"a graph is that of a tensor or of a list of tensors, not of {outputs!r:.60}")
    return [t._node for t in tensors if t._node is not None]


def _history(roots: Sequence[Node]) -> list[Node]:
    """The roots and all that leads to them, in the order in which they were made."""
    seen = set(roots)
    stack = list(seen)
    while stack:
        new = [edge for edge in _edges(stack.pop()) if edge not in seen]
        seen.update(new)
        stack += new
    return sorted(seen, key=lambda node: node.tick)


def _edges(node: Node) -> tuple[Node, ...]:
    """A call that was recorded in full keeps its edges when a backward pass has freed the graph."""
    call = _call(node)
    return node.edges if call is None else call.edges


def _call(node: Node) -> Call | None:
    return None if node.notes is None else node.notes.call


class _Reading:
    """One walk over a recorded history, which collects nodes and edges."""

    def __init__(self, roots: Sequence[Node], model: Module | None):
        if not roots:
            raise ValueError(
                "graph() needs a tensor that was computed from one with requires_grad=True (outside no_grad)"
            )
        self.roots = roots
        self.history = _history(roots)
        _check_complete(self.history)
        # A leaf's .grad may be left from another backward pass; the result's is from one over this graph.
        self.after_backward = any(node.notes is not None and node.notes.grad is not None for node in roots)
        self.missing = NOT_KEPT if self.after_backward else NOT_COMPUTED
        self.names = Names(Record(roots[0], self.history, {}), model)
        self.parameters = {node: name for name, node in self.names.parameters.items()}
        self.paths = {file: source_path(file) for file in {c.file for c in map(_call, self.history) if c is not None}}
        self.values: dict[Node, Any] = {}
        self.ids: dict[Any, str] = {}
        self.nodes: list[GraphNode] = []
        self.edges: list[GraphEdge] = []

    def graph(self) -> Graph:
        for node in self.history:
            if (call := _call(node)) is not None:
                self.values[node] = call.output
                arrays = ((edge, x) for edge, _, x in _operands(node, call) if edge is not None)
                self.values.update((edge, x) for edge, x in arrays if edge not in self.values)
        for node in self.history:
            if _edges(node) or node in self.roots:
                self._add(node)
        results = tuple(self.ids[root] for root in dict.fromkeys(self.roots))
        modules = {path: type(module).__name__ for path, module in self.names.modules.items()}
        return Graph(tuple(self.nodes), tuple(self.edges), modules, results)

    def _add(self, node: Node, use: str = "") -> None:
        call = _call(node)
        operands = [(edge, "", None) for edge in node.edges] if call is None else list(_operands(node, call))
        sources = []
        for edge, name, x in operands:
            use = f"{name} of {node.op}" if name else ""
            if edge is None:
                self._add_constant(x, use)
            elif edge not in self.ids:  # a leaf comes right before the first call that uses it
                self._add(edge, use)
            sources.append((self.ids[id(x) if edge is None else edge], name))
        mine = self.ids[node] = self._next_id()
        self.edges += [GraphEdge(source, mine, name) for source, name in sources]
        several = isinstance(node.shape, list)
        value = None if several else _numbers(self._value(node))
        gradient = _numbers(node.notes.grad) if self.after_backward and node.notes is not None else None
        described = self._describe(node, call, use)
        self.nodes.append(
            GraphNode(
                id=mine,
                shape=None if several else tuple(node.shape),
                dtype="" if several else str(node.dtype),
                value=value,
                gradient=gradient,
                gradient_state=COMPUTED if gradient is not None else self.missing,
                place="" if call is None else f"{self.paths[call.file]}:{call.line}",
                not_finite=sum(n.not_finite for n in (value, gradient) if n is not None),
                **described,
            )
        )

    def _describe(self, node: Node, call: Call | None, use: str) -> dict[str, Any]:
        module = self.names.module(node) or ""
        if isinstance(node, OutputNode):
            return {"kind": "output", "op": str(node.edges[0].op), "module": module, "detail": f"output {node.index}"}
        if node.op is not None:
            detail = "" if call is None else _detail(node, call)
            return {"kind": "call", "op": str(node.op), "module": module, "detail": detail, "calls": 1}
        if node in self.parameters:
            return {"kind": "parameter", "name": self.parameters[node], "module": module}
        return {"kind": "leaf" if is_leaf(node) else "input", "detail": use}

    def _value(self, node: Node) -> Any:
        if isinstance(node, OutputNode):
            outputs = self.values.get(node.edges[0])
            return self.values.get(node) if outputs is None else outputs[node.index]
        return self.values.get(node)

    def _add_constant(self, x: Any, use: str) -> None:
        """A node for each array, which the calls keep alive."""
        if id(x) in self.ids:
            return
        self.ids[id(x)] = self._next_id()
        seen = numbers(x)
        self.nodes.append(
            GraphNode(
                id=self.ids[id(x)],
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
