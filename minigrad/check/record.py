"""A record of all calls that a subject makes: their arguments, what arrived at them, and how to make them again."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from minigrad.check.compare import random_cotangents
from minigrad.check.result import short_path
from minigrad.check.subject import Subject
from minigrad.engine import Node, OutputNode, Transform, backward_pass
from minigrad.op import FusedOp, Op
from minigrad.study.graphs import calls, recording
from minigrad.study.walk import in_order
from minigrad.tensor import wrap
from minigrad.transforms import _Recomputed


def place_of(node: Node) -> str:
    return f"{node.op.name} at {short_path(call_of(node).file)}:{call_of(node).line}"


class Record:
    """All calls of a subject in order, its inputs, and the cotangents that arrived at calls with one output.

    pulled: whether they did. Without that no rule has run yet, which might have written to what was recorded.
    """

    def __init__(self, subject: Subject, leaves: Sequence[np.ndarray] | None = None, *, pulled: bool = True):
        leaves = subject.leaves if leaves is None else leaves
        self.cotangents: dict[Node, np.ndarray] = {}
        self.writers: list[Node] = []  # calls that write to their operands; with_operands finds them
        with recording(), Transform() as transform, np.errstate(all="ignore"):
            inputs = [transform.input(None, x.shape, x.dtype) for x in leaves]
            ys = subject([wrap(x.copy(), node) for x, node in zip(leaves, inputs)])
            self.nodes = list(_complete(calls(ys)))
            self.values: dict[Node, Any] = dict(zip(inputs, leaves))
            if not pulled:
                return
            pairs = [(y._node, c.astype(y.dtype)) for y, c in zip(ys, random_cotangents([y._array for y in ys]))]
            roots = [(node, c) for node, c in pairs if node is not None and transform.reached_by(node)]
            self._watch()
            with contextlib.suppress(Exception):  # a rule's, which is what is being looked for
                backward_pass(roots, inputs=set(inputs), transform=transform, retain=True)

    def _watch(self) -> None:
        for node in self.nodes:
            if not isinstance(node.shape, list) and node.notes is not None:
                node.notes.hooks[-1] = functools.partial(self._keep, node)

    def _keep(self, node: Node, g: np.ndarray) -> None:
        self.cotangents[node] = np.array(g)

    def with_operands(self) -> Iterator[tuple[Node, list[Any]]]:
        """Every call with its arguments as they were before any call could write to them, computed anew."""
        for node in self.nodes:
            arguments = list(call_of(node).arguments)
            for (position, item), edge in zip(places(node), node.edges):
                value = _value(edge, self.values)
                if value is not None and item is None:
                    arguments[position] = value
                elif value is not None:
                    arguments[position] = [value if i == item else x for i, x in enumerate(arguments[position])]
            given = copies(arguments)
            with np.errstate(all="ignore"):
                y = call_op(node.op, given)
            if not _same_arrays(given, arguments):
                self.writers.append(node)
            self.values[node] = tuple(t._array for t in y) if isinstance(y, tuple) else y._array
            yield node, arguments


def _complete(nodes: Sequence[Node]) -> Iterator[Node]:
    """The calls that were recorded in full; in the place of a checkpointed call those that it makes."""
    begun = max((node.tick for node in nodes), default=0)
    for node in nodes:
        if isinstance(node.op, _Recomputed):
            yield from _complete(in_order(node.op.again(), begun))
        elif isinstance(node.op, Op) and node.notes is not None and node.notes.call is not None:
            yield node


def call_of(node: Node) -> Any:
    assert node.notes is not None
    assert node.notes.call is not None
    return node.notes.call


def _value(node: Node, values: dict[Node, Any]) -> Any:
    while node not in values and node.op is None and len(node.edges) == 1 and type(node) is not OutputNode:
        node = node.edges[0]  # an inner transform's input
    if type(node) is OutputNode:
        outputs = values.get(node.edges[0])
        return None if outputs is None else outputs[node.index]
    return values.get(node)


def _same_arrays(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return all(map(_same_arrays, a, b))
    return not isinstance(a, np.ndarray) or np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


def copies(x: Any) -> Any:
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return type(x)(map(copies, x))
    return x.copy() if isinstance(x, np.ndarray) else x


def places(node: Node) -> list[tuple[int, int | None]]:
    """For every edge which argument it belongs to, and which item of it if that is a sequence."""
    op = node.op
    if node.plan is not None:
        edge_of = node.plan.edge_of
        return [(position, None) for position in sorted(edge_of, key=edge_of.__getitem__)]
    if isinstance(op, FusedOp):
        return [(position, None) for position in node.saved[0]]
    return [(op._sequence, i) for i in node.saved[0]]


def call_op(op: Any, arguments: Sequence[Any], function: Any = None) -> Any:
    """The op's value, or that of another function of the same arguments."""
    n = op._n_positional
    return (function or op)(*arguments[:n], **dict(zip(op._names[n:], arguments[n:])))
