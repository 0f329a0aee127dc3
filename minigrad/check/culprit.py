"""Who is to blame: every recorded call of a function, checked by itself at its own inputs.

Each call is checked with random cotangents, and its operands are computed anew from the inputs, so that one call that
writes into its operands does not spoil the evidence against the others.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigrad.check.compare import Examination, examine, random_cotangents
from minigrad.check.diagnosis import Sizes, diagnose, plainly, sizes_of
from minigrad.check.differences import Differences
from minigrad.check.hypotheses import explain, imprecise
from minigrad.check.noise import Noise
from minigrad.check.result import CheckResult, Culprit, Diagnosis, InputResult, Skip, short_path
from minigrad.check.second import second_order
from minigrad.check.subject import Subject
from minigrad.engine import Node, OutputNode, Transform, backward_pass
from minigrad.op import FusedOp, Op
from minigrad.study.graph import calls, recording
from minigrad.tensor import Tensor, wrap
from minigrad.transforms import _Recomputed

UNSURE = ("kink", "not finite", "float noise", "other", "non-deterministic")  # a call of another kind is blamed first


# Complex numbers and their parts, by ops that belong to nobody else, so that they cannot be what is wrong.
_joined = Op(lambda re, im: re + 1j * im).rule(re=lambda g: g, im=lambda g: g * 1j)
_real = Op(lambda z: np.array(np.real(z))).rule(z=lambda g: g)
_imag = Op(lambda z: np.array(np.imag(z))).rule(z=lambda g: g * -1j)


@dataclass(frozen=True)
class Findings:
    """The culprit, if there is one; else where calls are at kinks, and where one has less than float64's precision."""

    culprit: Culprit | None
    kinks: tuple[str, ...] = ()
    single: str = ""


def find(subject: Subject, second: bool) -> Findings:
    """Check every call that the subject makes by itself; second: its second derivatives too.

    With random cotangents; and if those show nothing, with the cotangents that arrive there (zeros among them).
    """
    record = _Record(subject)
    alone = [Alone(node, arguments) for node, arguments in record.with_operands()]
    if (misbehaviour := record.misbehaviour()) is not None:
        return Findings(misbehaviour)
    kinks: list[str] = []
    for order, actual in [(1, False), (1, True), (2, False)] if second else [(1, False), (1, True)]:
        suspects = []
        for call in alone:
            cotangent = record.cotangents.get(call.node)
            if actual and cotangent is None:
                continue
            examination = call.examine(order, [cotangent] if actual and cotangent is not None else None)
            if not examination and not call.is_acquitted(examination, order):
                suspects.append((call, call.culprit(examination, order)))
                if order == 1 and suspects[-1][1].diagnosis.kind not in UNSURE:
                    return Findings(suspects[-1][1])
            kinks += [call.describe(skip) for i in examination.inputs for skip in i.skipped]
        if suspects:
            return Findings(suspects[0][1] if order == 1 else _innermost(suspects))
    return Findings(None, tuple(kinks), next((call.place for call in alone if call.loses_precision), ""))


def _innermost(suspects: Sequence[tuple[Alone, Culprit]]) -> Culprit:
    """The first whose recorded rule calls the op of no other: where that is wrong, so are all rules that call it."""
    ops = {call.op for call, _ in suspects}
    for call, culprit in suspects:
        if not ops & (call.ops_of_rule() - {call.op}):
            return culprit
    return suspects[0][1]


def misbehaving(subject: Subject) -> Culprit | None:
    """The first call that writes to its operands, or whose rule does, or returns another dtype than theirs.

    Neither need show in any gradient: the cotangent may not be used again, and the engine casts.
    """
    found = _Record(subject).misbehaviour()
    if found is not None or all(dtype == np.float64 for dtype in subject.dtypes):
        return found
    try:
        return _Record(subject, [x.astype(d) for x, d in zip(subject.leaves, subject.dtypes)]).misbehaviour()
    except Exception:
        return None  # f takes only float64 beside its constants


def _misbehaviour(node: Node) -> Culprit | None:
    g = _read_only_cotangent(node)
    operands = [x for x in _call(node).arguments if isinstance(x, np.ndarray)]
    before = [x.copy() for x in operands]
    try:
        with np.errstate(all="ignore"):
            gradients = node.op.vjp(node, g, False)
    except Exception as error:  # any other is found when the call is checked by itself
        written = isinstance(error, ValueError) and "read-only" in str(error)
        return (
            _blamed(node, "input mutated", "its rule writes into the cotangent that it is given") if written else None
        )
    if not all(np.array_equal(x, y, equal_nan=x.dtype.kind in "fc") for x, y in zip(operands, before)):
        return _blamed(node, "input mutated", "its rule writes into the operands that it is given")
    dtypes = node.dtype if isinstance(node.dtype, list) else [node.dtype]
    for edge, gradient in zip(node.edges, gradients):
        allowed = {_precision(dtype) for dtype in (edge.dtype, *dtypes)}
        if gradient is not None and gradient.size and _precision(gradient.dtype) not in allowed:
            return _blamed(node, "wrong dtype", f"its rule returns {gradient.dtype} for operands of {edge.dtype}")
    return None


def _read_only_cotangent(node: Node) -> Any:
    several = isinstance(node.shape, list)
    shapes, dtypes = (node.shape, node.dtype) if several else ([node.shape], [node.dtype])
    gs = [np.ones(shape, dtype) for shape, dtype in zip(shapes, dtypes)]
    for g in gs:
        g.flags.writeable = False
    return tuple(gs) if several else gs[0]


def _precision(dtype: np.dtype[Any]) -> Any:
    return np.finfo(dtype).dtype if dtype.kind in "fc" else dtype


def _place(node: Node) -> str:
    return f"{node.op.name} at {short_path(_call(node).file)}:{_call(node).line}"


def _blamed(node: Node, kind: str, sentence: str) -> Culprit:
    call, diagnosis = _call(node), Diagnosis(kind, sentence)
    source = linecache.getline(call.file, call.line).strip()
    return Culprit(node.op.name, "", call.file, call.line, source, diagnosis, CheckResult("", (), diagnosis))


def hidden_kink(subject: Subject) -> str:
    """The first call that takes another branch, or whose operands tie, right here; though its gradient may look right.

    A condition computed from values is a constant of the call that it steers, and the mean of two slopes, which a tie
    is given, is what central differences show: both pass a check of the call by itself.
    """
    record = _Record(subject)
    rng = np.random.default_rng(0)
    for sign in (1, -1):
        moved = [x + sign * 1e-7 * rng.uniform(0.5, 1.5, x.shape) for x in subject.leaves]
        for a, b in zip(record.nodes, _Record(subject, moved).nodes):
            if a.op is not b.op or not _same_choices(_call(a).arguments, _call(b).arguments):
                return _place(a)
    alone = (Alone(node, arguments) for node, arguments in record.with_operands())
    return next((call.place for call in alone if call.has_kink()), "")


def _same_choices(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two calls' conditions and indices are the same."""
    chosen = [(x, y) for x, y in zip(a, b) if isinstance(x, np.ndarray) and x.dtype.kind in "biu"]
    return all(np.array_equal(x, y) for x, y in chosen)


def differing_call(subject: Subject) -> str:
    """Where two runs of a non-deterministic function part: the first call with other values in the second run."""
    first, again = _Record(subject).nodes, _Record(subject).nodes
    for a, b in zip(first, again):
        if a.op is not b.op or not _equal(a.notes.call.output, b.notes.call.output):  # type: ignore[union-attr]
            return _place(a)
    return ""


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return all(map(_equal, a, b))
    return np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=1e-12, equal_nan=True)


class _Record:
    """All calls of a subject in order, its inputs, and the cotangents that arrived at calls with one output."""

    def __init__(self, subject: Subject, leaves: Sequence[np.ndarray] | None = None):
        leaves = subject.leaves if leaves is None else leaves
        self.cotangents: dict[Node, np.ndarray] = {}
        self.writers: list[Node] = []  # calls that write to their operands; with_operands finds them
        with recording(), Transform() as transform, np.errstate(all="ignore"):
            inputs = [transform.input(None, x.shape, x.dtype) for x in leaves]
            ys = subject([wrap(x.copy(), node) for x, node in zip(leaves, inputs)])
            self.nodes = list(_complete(calls(ys)))
            self.values: dict[Node, Any] = dict(zip(inputs, leaves))
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

    def misbehaviour(self) -> Culprit | None:
        for _ in self.with_operands():
            if self.writers:
                return _blamed(self.writers[0], "input mutated", "it writes into an operand: compute with a copy")
        return next(filter(None, map(_misbehaviour, self.nodes)), None)

    def with_operands(self) -> Iterator[tuple[Node, list[Any]]]:
        """Every call with its arguments as they were before any call could write to them, computed anew."""
        for node in self.nodes:
            arguments = list(_call(node).arguments)
            for (position, item), edge in zip(places(node), node.edges):
                value = _value(edge, self.values)
                if value is not None and item is None:
                    arguments[position] = value
                elif value is not None:
                    arguments[position] = [value if i == item else x for i, x in enumerate(arguments[position])]
            given = _copies(arguments)
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
            outputs = node.op._f(*node.op._args, **node.op._kwargs)
            again = outputs if isinstance(outputs, (list, tuple)) else [outputs]
            inside = calls([y for y in again if isinstance(y, Tensor)])
            yield from _complete([inner for inner in inside if inner.tick > begun])
        elif isinstance(node.op, Op) and node.notes is not None and node.notes.call is not None:
            yield node


def _call(node: Node) -> Any:
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


def _copies(x: Any) -> Any:
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return type(x)(map(_copies, x))
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


def call_op(op: Any, arguments: Sequence[Any]) -> Any:
    n = op._n_positional
    return op(*arguments[:n], **dict(zip(op._names[n:], arguments[n:])))


class Alone:
    """One recorded call as a function of its differentiable operands."""

    def __init__(self, node: Node, arguments: list[Any]):
        self.node, self.op, self.arguments = node, node.op, arguments
        self.places = places(node)
        call = _call(node)
        self.file, self.line = call.file, call.line
        self.subject = self._subject()

    @property
    def place(self) -> str:
        return _place(self.node)

    def ops_of_rule(self) -> set[Any]:
        """What its rules call when they are recorded, or its reference."""
        try:
            return {node.op for node in _Record(second_order(self.subject)).nodes}
        except Exception:
            return set()  # they do not run

    def has_kink(self) -> bool:
        with Transform(), np.errstate(all="ignore"):
            cotangents = random_cotangents([y._array for y in self.subject(self.subject.constants())])
        lines = (
            Differences(self.subject, cotangents, number).element(at)
            for number, x in enumerate(self.subject.leaves)
            for at in np.ndindex(x.shape)
        )
        return any(line.has_kink() for line in lines)

    @property
    def loses_precision(self) -> bool:
        """Whether it returns less than float64 for float64."""
        dtypes = self.node.dtype if isinstance(self.node.dtype, list) else [self.node.dtype]
        return any(dtype.itemsize < edge.dtype.itemsize for dtype in dtypes for edge in self.node.edges)

    def _subject(self) -> Subject:
        """A complex operand counts as two real ones, and so does a complex output."""
        operands = [self._operand(place) for place in self.places]
        is_complex = [np.asarray(x).dtype.kind == "c" for x in operands]
        parts: list[np.ndarray] = []
        for x, splits in zip(operands, is_complex):
            parts += [np.real(x), np.imag(x)] if splits else [np.asarray(x)]

        def f(*xs: Tensor) -> list[Tensor]:
            given = iter(xs)
            tensors = [_joined(next(given), next(given)) if splits else next(given) for splits in is_complex]
            y = call_op(self.op, _copies(self._filled(tensors)))
            ys = y if isinstance(y, tuple) else (y,)
            return [
                t for y in ys for t in ([_real(y), _imag(y)] if y.dtype.kind == "c" else [y]) if t.dtype.kind == "f"
            ]

        subject = Subject(f, tuple(parts))
        names = [self._name(place) for place in self.places]
        subject.names = [
            text for n, splits in zip(names, is_complex) for text in ([f"Re {n}", f"Im {n}"] if splits else [n])
        ]
        return subject

    def _operand(self, place: tuple[int, int | None]) -> Any:
        position, item = place
        return self.arguments[position] if item is None else self.arguments[position][item]

    def _name(self, place: tuple[int, int | None]) -> str:
        position, item = place
        name: str = self.op._names[position]
        return name if item is None else f"{name}[{item}]"

    def _filled(self, tensors: Sequence[Any]) -> list[Any]:
        filled = list(self.arguments)
        for (position, item), t in zip(self.places, tensors):
            if item is None:
                filled[position] = t
            else:
                filled[position] = [t if i == item else x for i, x in enumerate(filled[position])]
        return filled

    def examine(self, order: int, cotangents: Sequence[np.ndarray] | None = None) -> Examination:
        """Of order 2: without cotangents. A complex cotangent counts as two real ones."""
        if order == 2:
            return examine(second_order(self.subject))
        if cotangents is not None and cotangents[0].dtype.kind == "c":
            cotangents = [cotangents[0].real, -cotangents[0].imag]
        return examine(self.subject, cotangents=cotangents)

    def is_acquitted(self, examination: Examination, order: int) -> bool:
        """Whether it cannot be judged: it has no finite values around its operands, or all is rounding errors."""
        wrong = [i for i in examination.inputs if i.wrong.any()]
        if not wrong:
            return False
        undefined = all(np.isnan(i.numeric[i.wrong]).all() for i in wrong)
        subject = self.subject if order == 1 else second_order(self.subject)
        return undefined or Noise(subject, examination.inputs).explains_all

    def culprit(self, examination: Examination, order: int) -> Culprit:
        wrong = [i for i in examination.inputs if i.wrong.any()]
        shapes = [(n, x.shape) for n, x in zip(self.subject.names, self.subject.leaves)]
        sizes = sizes_of([*shapes, *(("the output", shape) for shape in examination.outputs)])
        diagnosis = examination.failure or self._diagnosis(examination, wrong, sizes, order)
        if order == 2:
            diagnosis = Diagnosis(
                "second order only", f"its first derivative is right, but not that derivative's own ({diagnosis})"
            )
        argument = wrong[0].name if wrong else ""
        source = linecache.getline(self.file, self.line).strip()
        local = CheckResult(f"gradcheck of {self.op.name} by itself", examination.inputs, diagnosis)
        return Culprit(self.op.name, argument, self.file, self.line, source, diagnosis, local)

    def _diagnosis(self, examination: Examination, wrong: Sequence[InputResult], sizes: Sizes, order: int) -> Diagnosis:
        if order == 2:
            return diagnose(wrong[0], sizes)
        right = [i for i in examination.inputs if not i.wrong.any()]
        plain = imprecise(self, wrong[0]) or plainly(wrong[0], sizes)
        return plain or explain(self, wrong, right) or diagnose(wrong[0], sizes)

    def describe(self, skip: Skip) -> str:
        return f"{self.place}, {skip.why}"
