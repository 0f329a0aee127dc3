"""The recorded graph as data: making it complete, and reading it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from minigrad.engine import COMPLETE, Node, state
from minigrad.tensor import Tensor


@contextmanager
def recording() -> Iterator[None]:
    """Within this context every recorded call keeps all its arguments, its output, and the file and line that made it.

    Ordinarily a node keeps only what gradient rules need. What is kept stands in `node.notes.call`; see `calls`.
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
    roots = [outputs] if isinstance(outputs, Tensor) else outputs
    seen = {t._node for t in roots if t._node is not None}
    stack = list(seen)
    while stack:
        new = [edge for edge in stack.pop().edges if edge not in seen]
        seen.update(new)
        stack += new
    return sorted((node for node in seen if node.op is not None), key=lambda node: node.tick)
