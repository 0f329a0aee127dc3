"""Going over a recorded graph: forward in the order of its calls, back with their cotangents, and doing it again.

Nothing here changes the graph or any `.grad`, and it works after a backward pass that has freed the graph as well:
calls that were recorded in full are simply made once more. Checkpointed calls are opened: in their place stand the
calls that they make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from minigrad.engine import (
    _FREED,
    COMPLETE,
    Array,
    Call,
    Node,
    OutputNode,
    _arrays_in,
    _cast,
    _fill_missing,
    _run_hooks,
    _sum_to,
    _written_since,
    next_tick,
    state,
)
from minigrad.op import Op
from minigrad.tensor import Tensor, as_leaf
from minigrad.transforms import _Recomputed


@dataclass(frozen=True)
class Record:
    """A recorded graph. nodes: leaves, calls and the outputs of calls with several, operands before what uses them.

    inside: for each checkpointed call the nodes of its outputs among those of its second run.
    """

    root: Node
    nodes: list[Node]
    inside: dict[Node, list[Node]]

    @property
    def calls(self) -> list[Node]:
        """The calls of ops, in order."""
        return [node for node in self.nodes if isinstance(node.op, Op)]


class Step(NamedTuple):
    """A node on the way back: the cotangent of its output (a tuple for several), and what goes on along each edge."""

    node: Node
    cotangent: Any
    edges: Sequence[Node]
    gradients: Sequence[Array | None]


def record_of(y: Tensor, purpose: str) -> Record:
    """The complete record of what led to y.

    purpose: who needs it, for the errors. Raises RuntimeError if y has no graph, if a call in it was made outside
    study.recording(), or if an operand has been written in place since.
    """
    if y._node is None:
        raise RuntimeError(
            f"{purpose} needs a tensor with a recorded graph, and this one has none: compute it from a tensor with "
            "requires_grad=True, outside no_grad"
        )
    if is_source(y._node):
        raise RuntimeError(f"{purpose} needs a tensor that ops have made, and this one is a leaf: pass the loss")
    return record_with(in_order([y._node]), purpose)


def cotangent_of(loss: Tensor, purpose: str) -> np.ndarray:
    """The 1 from which a backward pass starts; ValueError for a loss of more than one element."""
    if loss.size != 1:
        raise ValueError(
            f"{purpose} is about the gradient of one number, and this tensor has shape {loss.shape}: reduce "
            "it to one number first (.sum(), .mean())"
        )
    return loss._cotangent(None)


def record_with(nodes: Sequence[Node], purpose: str) -> Record:
    """The record of these nodes, of which the last is the root; errors as record_of."""
    inside: dict[Node, list[Node]] = {}
    opened = _opened(nodes, inside)
    for node in opened:
        _check(node, purpose)
    return Record(nodes[-1], opened, inside)


def call_of(node: Node) -> Call:
    """A recorded call; ValueError for one that is not recorded."""
    call = node.notes.call if node.notes is not None else None
    if call is None:
        raise ValueError(f"{node.op} hides the calls inside it: use the function itself")
    return call


def edges_of(node: Node) -> tuple[Node, ...]:
    """The node's edges; a recorded call keeps them when the graph is freed."""
    if not node.edges and node.notes is not None and node.notes.call is not None:
        return node.notes.call.edges
    return node.edges


def outputs(node: Node) -> tuple[Any, ...]:
    """The arrays that a call returned."""
    y = call_of(node).output
    return y if isinstance(y, tuple) else (y,)


def is_source(node: Node) -> bool:
    """Whether no call made what stands at this node: a leaf, or an input of a running transform."""
    return node.op is None and not node.edges


def operands(node: Node) -> list[tuple[str, Any]]:
    """The name and the value of every differentiable operand of a call, in the order of its edges."""
    call, op = call_of(node), node.op
    if op._sequence >= 0:
        name = op._names[op._sequence]
        return [(f"{name}[{i}]", call.arguments[op._sequence][i]) for i in call.tracked]
    return [(op._names[i], call.arguments[i]) for i in call.tracked]


def in_order(roots: Sequence[Node], since: int = 0) -> list[Node]:
    """The roots and all that leads to them, in the order in which they were made, as far as they were after `since`."""
    seen = {node for node in roots if node.tick > since}
    stack = list(seen)
    while stack:
        new = [edge for edge in edges_of(stack.pop()) if edge not in seen and edge.tick > since]
        seen.update(new)
        stack += new
    return sorted(seen, key=lambda node: node.tick)


def _opened(nodes: Sequence[Node], inside: dict[Node, list[Node]]) -> list[Node]:
    """The nodes, with those of a second run before each checkpointed call."""
    opened: list[Node] = []
    for node in nodes:
        if isinstance(node.op, _Recomputed) and edges_of(node):
            begun = next_tick()
            with complete():
                inside[node] = node.op.again()
            opened += _opened(in_order(inside[node], begun), inside)
        opened.append(node)
    return opened


def _check(node: Node, purpose: str) -> None:
    if isinstance(node.op, _Recomputed) and node.saved is _FREED:
        raise RuntimeError(
            f"{purpose} comes too late: a backward pass has freed a checkpointed call of this graph. Use it before "
            "backward(), or call backward(retain_graph=True)"
        )
    if not isinstance(node.op, Op):
        return
    if node.notes is None or node.notes.call is None:
        raise RuntimeError(
            f"{purpose} needs a graph that was recorded in full, and a call of {node.op} in it was not: run the "
            "forward computation within `with study.recording():`"
        )
    for array in _arrays_in(node.notes.call.arguments):
        if _written_since(array, node.tick):
            raise RuntimeError(
                f"an operand of shape {array.shape} of {node.op} (line {node.notes.call.line} of "
                f"{node.notes.call.file}) has been written in place since the call, perhaps by an optimizer: "
                f"{purpose} comes before that"
            )


@contextmanager
def complete() -> Iterator[None]:
    """Recording in full, even under no_grad."""
    before = state.mode, state.recording
    state.mode = state.recording = COMPLETE
    try:
        yield
    finally:
        state.mode, state.recording = before


# --- back --------------------------------------------------------------------------------------------------------


def pull_back(record: Record, cotangent: Array, hooks: bool = True) -> Iterator[Step]:
    """The steps of a backward pass from the root, each with what backward() would have computed there.

    hooks: call those on tensors and modules, as in backward().
    """
    waiting: dict[Node, Any] = {record.root: cotangent}
    for node in reversed(record.nodes):
        g = waiting.pop(node, None)
        if g is None:
            continue
        if hooks and type(g) is not list and node.notes is not None and node.notes.hooks:
            g = _run_hooks(node, g, False)
        step = back_through(record, node, g, hooks)
        for edge, ge in zip(step.edges, step.gradients):
            if ge is not None:
                add_to(waiting, edge, node, ge)
        yield step


def back_through(record: Record, node: Node, g: Any, hooks: bool = True) -> Step:
    """What a node's rules make of its cotangent, in shape and dtype of the operands; hooks: call those of modules."""
    if type(g) is list:
        g = _fill_missing(node, g)
    if type(node) is OutputNode or node.op is None:
        return Step(node, g, node.edges, [g] * len(node.edges))
    if node in record.inside:
        return Step(node, g, record.inside[node], g)
    edges = edges_of(node)
    gradients = vjp(node, g) if hooks or isinstance(node.op, Op) else g
    return Step(node, g, edges, [None if ge is None else fitted(ge, e, node) for e, ge in zip(edges, gradients)])


def vjp(node: Node, g: Any) -> Sequence[Array | None]:
    """The op's own gradients, as its rules return them."""
    if node.saved is _FREED and isinstance(node.op, Op):
        node = call_again(node)
    was_recording, state.recording = state.recording, 0
    try:
        with np.errstate(all="ignore"):
            return node.op.vjp(node, g, False)  # type: ignore[no-any-return]
    finally:
        state.recording = was_recording


def fitted(g: Array, edge: Node, node: Node) -> Array:
    """A gradient as the engine adds it to an operand: summed over broadcast axes, in the dtype of the operand."""
    with np.errstate(all="ignore"):
        g = g if g.shape == edge.shape else _sum_to(g, edge.shape, node)
        return g if g.dtype == edge.dtype else _cast(g, edge.dtype)


def add_to(waiting: dict[Node, Any], edge: Node, node: Node, g: Array) -> None:
    """Add what arrives from `node` at one of its edges; an output of a call is one part of the call's cotangent."""
    if type(node) is OutputNode:
        parts = waiting.setdefault(edge, [None] * len(edge.shape))
        parts[node.index] = g if parts[node.index] is None else parts[node.index] + g
    else:
        before = waiting.get(edge)
        with np.errstate(all="ignore"):
            waiting[edge] = g if before is None else before + g


# --- again -------------------------------------------------------------------------------------------------------


def call_with(node: Node, tensors: Sequence[Tensor], convert: Callable[[Any], Any] = lambda x: x) -> Any:
    """Call the op of a recorded call again: with tensors for its differentiable operands, other arguments converted."""
    call, op = call_of(node), node.op
    arguments = [convert(x) for x in call.arguments]
    if op._sequence >= 0:
        items = list(arguments[op._sequence])
        for position, t in zip(call.tracked, tensors):
            items[position] = t
        arguments[op._sequence] = items
    else:
        for position, t in zip(call.tracked, tensors):
            arguments[position] = t
    n = op._n_positional
    with np.errstate(all="ignore"):
        return op(*arguments[:n], **dict(zip(op._names[n:], arguments[n:])))


def call_again(node: Node) -> Node:
    """The node of the same call, made again."""
    with complete():
        y = call_with(node, [as_leaf(np.asarray(x)) for _, x in operands(node)])
    again: Node = y[0]._node.edges[0] if isinstance(y, tuple) else y._node
    return again


def replayed(record: Record, convert: Callable[[Any], Any]) -> dict[Node, Tensor]:
    """All calls again, from leaves and constants that have been converted: for each node of one value its new tensor.

    For a call with several outputs, those of its output nodes.
    """
    again: dict[Node, Tensor] = {}
    several: dict[Node, tuple[Tensor, ...]] = {}
    for node in record.nodes:
        if type(node) is OutputNode:
            call = node.edges[0]
            if call in record.inside:
                again[node] = again[record.inside[call][node.index]]
            elif call in several:
                again[node] = several[call][node.index]
            else:  # of a node through which tensors pass on to a module's hooks
                edge = edges_of(call)[node.index]
                _enter(again, edge, convert(call_of(call).arguments[node.index]))
                again[node] = again[edge]
        elif node.op is None and node.edges and node.edges[0] in again:
            again[node] = again[node.edges[0]]
        elif isinstance(node.op, Op):
            for edge, (_, x) in zip(edges_of(node), operands(node)):
                _enter(again, edge, convert(np.asarray(x)))
            with complete():
                y = call_with(node, [again[edge] for edge in edges_of(node)], convert)
            if isinstance(y, tuple):
                several[node] = y
            else:
                again[node] = y
    return again


def _enter(again: dict[Node, Tensor], edge: Node, x: np.ndarray) -> None:
    """Make a leaf of the value of an operand, if nothing has been computed for it: it comes from a source."""
    if edge in again:
        return
    way = [edge]
    while not is_source(way[-1]):
        way.append(way[-1].edges[0])  # inputs of transforms
    source = again.setdefault(way[-1], as_leaf(x))
    for node in way:
        again[node] = source
