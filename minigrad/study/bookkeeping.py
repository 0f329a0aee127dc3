"""The books of a backward pass: what arrives at every op, module and head, what goes on, and what is wrong with it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from minigrad.engine import Array, Node
from minigrad.op import Op
from minigrad.ops.fused import attention
from minigrad.study.books import Gain, Head, Ledger, Part, Row
from minigrad.study.names import Names
from minigrad.study.text import norm, place
from minigrad.study.verdict import Evidence, verdict
from minigrad.study.walk import (
    Record,
    Step,
    add_to,
    back_through,
    call_of,
    cotangent_of,
    is_source,
    operands,
    outputs,
    pull_back,
    record_of,
)
from minigrad.tensor import Tensor
from minigrad.transforms import vjp


def ledger(loss: Tensor) -> Ledger:
    """The books of the backward pass from a loss that was computed within study.recording().

    It pulls a cotangent of 1 back through the recorded graph by itself: no `.grad` is touched and nothing is freed. It
    may come before or after loss.backward(), but not after an optimizer has changed the parameters. Hooks on tensors
    and modules run as in backward (the split by branch leaves them out). Printed, it says in words where the gradient
    vanishes, dies, explodes or is not finite and which parameters none arrives at; then come tables of modules, heads,
    parameters and ops.

    Raises RuntimeError if the graph was not recorded in full, ValueError for a loss of more than one element.

    >>> import minigrad as mg
    >>> from minigrad import study
    >>> x = mg.tensor([1.0, 2.0], requires_grad=True)
    >>> with study.recording():
    ...     loss = mg.exp(x * 1e-6).sum()
    >>> books = study.ledger(loss)
    >>> [(row.name, float(f"{row.gain:.2g}")) for row in books.ops]
    [('sum', 1.4), ('exp', 1.0), ('multiply', 1e-06)]
    >>> books.findings[0][:50]
    'The gradient vanishes on its way to a of multiply '
    """
    record = record_of(loss, "study.ledger")
    cotangent = cotangent_of(loss, "study.ledger")
    names = Names(record)
    tally = _Tally(names, record.root, cotangent)
    for step in pull_back(record, cotangent):
        tally.see(step)
    leaves = [
        _gain(node, names, tally.gradients.get(node), parts)
        for node, parts in _by_branch(record, names, cotangent).items()
    ]
    leaves += [_gain(node, names, None, {}) for node in names.parameters.values() if node not in tally.gradients]
    norms = {leaf.name: leaf.norm for leaf in leaves if leaf.is_parameter}
    findings = verdict(loss, record, names, tally.evidence, norms)
    return Ledger(tuple(findings), tuple(tally.ops), tuple(tally.modules()), tally.heads.in_books(), tuple(leaves))


class _Tally:
    """What the steps of a pass show."""

    def __init__(self, names: Names, root: Node, cotangent: Array):
        self._names = names
        self._parameters = set(names.parameters.values())
        self.ops: list[Row] = []
        self.heads = _Heads()
        self.gradients: dict[Node, Array] = {}
        self.evidence = Evidence()
        # For each module: what arrives at its calls from outside, and what goes on from them to elsewhere.
        self._in: dict[str, dict[Node, Array]] = {path: {} for path in names.modules}
        self._out: dict[str, dict[Node, Array]] = {path: {} for path in names.modules}
        for path in names.around(root):
            self._in[path][root] = cotangent

    def see(self, step: Step) -> None:
        node = step.node
        self.evidence.note(step)
        if is_source(node):
            self.gradients[node] = step.cotangent
        for edge, g in zip(step.edges, step.gradients):
            if g is not None:
                self._cross(node, edge, g)
        if isinstance(node.op, Op):
            self.ops.append(self._op_row(step))
            self.heads.see(step, self._names)

    def _op_row(self, step: Step) -> Row:
        node, call = step.node, call_of(step.node)
        to_parameters = [edge in self._parameters for edge in step.edges]
        onward = [g for g, last in zip(step.gradients, to_parameters) if not last or all(to_parameters)]
        shape = np.shape(outputs(node)[0])
        title, where = self._names.title(self._names.module(node)), place(call.file, call.line)
        every = _arrays(step.gradients)
        return _row(str(node.op), title, where, shape, _arrays(step.cotangent), _arrays(onward), every)

    def _cross(self, node: Node, edge: Node, g: Array) -> None:
        """Note g where it leaves a module, and where it enters one."""
        here, there = self._names.around(node), self._names.around(edge)
        for path in set(here) - set(there):
            _add(self._out[path], edge, g)
        if not is_source(edge):
            for path in set(there) - set(here):
                _add(self._in[path], edge, g)

    def modules(self) -> Iterator[Row]:
        for path, arriving in self._in.items():
            if arriving:
                leaving = list(self._out[path].values())
                shape = next(iter(arriving.values())).shape
                title = self._names.title(path)
                code = getattr(inspect.unwrap(type(self._names.modules[path]).forward), "__code__", None)
                where = "" if code is None else place(code.co_filename, code.co_firstlineno)
                yield _row(title, title, where, shape, list(arriving.values()), leaving, leaving)


def _row(
    name: str,
    module: str,
    where: str,
    shape: tuple[int, ...],
    arriving: Sequence[Array],
    onward: Sequence[Array],
    every: Sequence[Array],
) -> Row:
    norm_out = norm(*onward) if onward else None
    return Row(name, module, where, shape, norm(*arriving), norm_out, _zeros(every), _nonfinite(every))


def _arrays(g: Any) -> list[np.ndarray]:
    return [x for x in g if x is not None] if isinstance(g, (tuple, list)) else [g]


def _add(sums: dict[Node, Array], key: Node, g: Array) -> None:
    with np.errstate(all="ignore"):
        sums[key] = sums[key] + g if key in sums else g


def _zeros(arrays: Sequence[Array]) -> float:
    size = sum(g.size for g in arrays)
    return 1 - sum(int(np.count_nonzero(g)) for g in arrays) / size if size else 0.0


def _nonfinite(arrays: Sequence[Array]) -> int:
    return sum(g.size - int(np.isfinite(g).sum()) for g in arrays)


# --- heads -------------------------------------------------------------------------------------------------------


class _Heads:
    """The rows of all attentions' heads; heads are the axis before the last two.

    Where attention is composed of products, that of the weights and the values makes the rows, and that of queries and
    keys, which follows on the way back, completes them.
    """

    def __init__(self) -> None:
        self.rows: list[Head] = []
        self._awaited: dict[str, tuple[int, ...]] = {}  # by module: the shape of the weights whose scores are to come

    def in_books(self) -> tuple[Head, ...]:
        """The rows, with the number of each of a module's attentions: the last was met first."""
        times: dict[tuple[str, int], int] = {}
        numbered = []
        for row in reversed(self.rows):
            key = row.module, row.head
            times[key] = times.get(key, 0) + 1
            numbered.append(replace(row, time=times[key]))
        return tuple(reversed(numbered))

    def see(self, step: Step, names: Names) -> None:
        op, g = step.node.op.name, step.cotangent
        path = names.module(step.node)
        call = call_of(step.node)
        at = names.title(path), place(call.file, call.line)
        given = {name: gradient for (name, _), gradient in zip(operands(step.node), step.gradients)}
        if op == "self_attention":
            self.rows += _rows_of_heads(at, *_inside_self_attention(step))
        elif op == "attention" and g.ndim > 2:
            self.rows += _rows_of_heads(at, g, given.get("q"), given.get("k"), given.get("v"))
        elif op == "matmul" and path is not None and g.ndim > 3 and names.heads(path) == g.shape[-3]:
            self._see_product(at, g, given, np.shape(call.arguments[0]))

    def _see_product(
        self, at: tuple[str, str], g: Array, given: dict[str, Array | None], left: tuple[int, ...]
    ) -> None:
        module = at[0]
        if self._awaited.get(module) != g.shape:
            self._awaited[module] = left
            self.rows += _rows_of_heads(at, g, None, None, given.get("b"))
            return
        del self._awaited[module]
        first = len(self.rows) - 1 - [row.module for row in reversed(self.rows)].index(module) - (g.shape[-3] - 1)
        for i, scores in enumerate(_rows_of_heads(at, g, given.get("a"), given.get("b"), None), first):
            self.rows[i] = replace(self.rows[i], query=scores.query, key=scores.key)


def _rows_of_heads(at: tuple[str, str], g: Array, q: Array, k: Array, v: Array) -> list[Head]:
    """at: the module and the place. The others: cotangents (..., heads, n, width), None where they are not known."""

    def of(x: Array, head: int) -> float | None:
        return None if x is None or x.ndim < 3 else norm(x[..., head, :, :])

    module, where = at
    return [
        Head(module, head, where, norm(g[..., head, :, :]), of(q, head), of(k, head), of(v, head))
        for head in range(g.shape[-3])
    ]


def _inside_self_attention(step: Step) -> list[Array]:
    """The cotangents of each head's output, queries, keys and values, which the fused op keeps to itself."""
    x, wq, wk, wv, heads, mask, bias, scale = call_of(step.node).arguments

    def by_head(t: Array) -> Array:
        return np.swapaxes(t.reshape(*t.shape[:-1], heads, t.shape[-1] // heads), -3, -2)

    g = by_head(step.cotangent)
    with np.errstate(all="ignore"):
        vectors = [by_head(x @ w) for w in (wq, wk, wv)]
        _, pull = vjp(partial(attention, mask=mask, bias=bias, scale=scale), *vectors)
        return [g, *pull(g)]


# --- branches ----------------------------------------------------------------------------------------------------

Kinds = frozenset[str]


def _by_branch(record: Record, names: Names, cotangent: Array) -> dict[Node, dict[Kinds, Array]]:
    """Every leaf's gradient in parts, by the kinds of the modules that it came through.

    Rules are linear in the cotangent, so the parts go back side by side, each by the same rules.
    """
    waiting: dict[Kinds, dict[Node, Any]] = {frozenset(): {record.root: cotangent}}
    leaves: dict[Node, dict[Kinds, Array]] = {}
    for node in reversed(record.nodes):
        for kinds in list(waiting):
            g = waiting[kinds].pop(node, None)
            if g is None:
                continue
            if is_source(node):
                leaves.setdefault(node, {})[kinds] = g
                continue
            step = back_through(record, node, g, hooks=False)
            for edge, ge in zip(step.edges, step.gradients):
                if ge is not None:
                    add_to(waiting.setdefault(kinds | _left(node, edge, names), {}), edge, node, ge)
    return leaves


def _left(node: Node, edge: Node, names: Names) -> Kinds:
    """The kinds of the modules that a path leaves between two nodes."""
    paths = set(names.around(node)) - set(names.around(edge))
    return frozenset(names.modules[path].branch for path in paths if names.modules[path].branch)


def _gain(node: Node, names: Names, g: Array | None, parts: dict[Kinds, Array]) -> Gain:
    name, is_parameter = names.leaf(node), node in names.parameters.values()
    if g is None:
        return Gain(name, is_parameter, None, 0.0, 0, {})
    branches = {}
    for kinds in sorted(parts, key=lambda kinds: (len(kinds), *sorted(kinds))):
        branches["+".join(sorted(kinds, key=str.lower)) or "residual"] = _part(parts[kinds], g)
    return Gain(name, is_parameter, norm(g), _zeros([g]), _nonfinite([g]), branches)


def _part(part: Array, whole: Array) -> Part:
    size = norm(whole)
    if not 0 < size < np.inf:
        return Part(norm(part), float("nan"))
    scaled = np.asarray(whole, np.float64) / size  # so that tiny gradients do not underflow
    return Part(norm(part), float(np.vdot(scaled, np.asarray(part, np.float64) / size)))
