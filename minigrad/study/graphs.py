"""The recorded graph as data: making it complete, and reading it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from minigrad.engine import COMPLETE, Node, state
from minigrad.nn.module import Module
from minigrad.study import export
from minigrad.study.parts import Parts, collapsed, inside, plain
from minigrad.study.reading import read
from minigrad.study.walk import in_order
from minigrad.tensor import Tensor


@contextmanager
def recording() -> Iterator[None]:
    """Within this context every recorded call keeps all its arguments, its output, and the file and line that made it.

    Ordinarily a node keeps only what gradient rules need, and what a backward pass has used is freed. What is kept
    stands in `node.notes.call`, and a call's gradient in `node.notes.grad`; see `calls` and `graph`.

    >>> import minigrad as mg
    >>> x = mg.tensor(2.0, requires_grad=True)
    >>> with recording():
    ...     y = x * 3.0
    >>> [(node.op, node.notes.call.arguments) for node in calls(y)]
    [(multiply, [array(2.), 3.0])]
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
    return [node for node in in_order(_roots(outputs)) if node.op is not None]


class Graph(Parts):
    """A computation graph as plain data; in a notebook it draws itself. Made by `graph`; it does not change.

    >>> import numpy as np
    >>> from minigrad import nn
    >>> model = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3))
    >>> with recording():
    ...     loss = model(np.ones((4, 2), np.float32)).sum()
    >>> seen = graph(loss, model)
    >>> [node.name or node.op for node in seen.by_module().nodes]
    ['layers.0', 'layers.1', 'sum']
    >>> [node.kind for node in seen.inside("layers.0").nodes]
    ['constant', 'parameter', 'parameter', 'call', 'outside']
    >>> seen.to_svg()[:4], seen.to_dot()[:7], seen.to_mermaid()[:9], seen.to_html()[:4], seen.to_json()["schema"]
    ('<svg', 'digraph', 'flowchart', '<div', 'minigrad.graph/1')
    """

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
    roots = _roots(loss)
    if not roots:
        raise ValueError("graph() needs a tensor that was computed from one with requires_grad=True, outside no_grad")
    return Graph(**vars(read(roots, model)))


def _roots(outputs: Tensor | Sequence[Tensor]) -> list[Node]:
    tensors = [outputs] if isinstance(outputs, Tensor) else outputs
    if not isinstance(tensors, (list, tuple)) or not all(isinstance(t, Tensor) for t in tensors):
        raise TypeError(f"a graph is that of a tensor or of a list of tensors, not of {outputs!r:.60}")
    return [t._node for t in tensors if t._node is not None]
