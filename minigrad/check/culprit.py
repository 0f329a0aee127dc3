"""Who is to blame: every recorded call of a function, checked by itself at its own inputs.

Each call is checked with random cotangents, and its operands are computed anew from the inputs, so that one call that
writes into its operands does not spoil the evidence against the others.
"""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minigrad.check.alone import Alone
from minigrad.check.compare import Examination
from minigrad.check.diagnosis import Sizes, diagnose, plainly, sizes_of
from minigrad.check.hypotheses import exchanged, explain, imprecise
from minigrad.check.record import Record, call_of, place_of
from minigrad.check.result import CheckResult, Culprit, Diagnosis, InputResult
from minigrad.check.subject import Subject
from minigrad.engine import Node
from minigrad.trees import flatten

UNSURE = ("kink", "not finite", "float noise", "other", "non-deterministic")  # a call of another kind is blamed first


@dataclass(frozen=True)
class Findings:
    """The culprit, if there is one; else where calls are at kinks, and where one has less than float64's precision."""

    culprit: Culprit | None
    kinks: tuple[str, ...] = ()
    single: str = ""


def find(subject: Subject, second: bool) -> Findings:
    """Check every call that the subject makes by itself; second: its second derivatives too.

    With random cotangents; and if those show nothing, with the cotangents that arrive there (zeros among them). Second
    derivatives of a call take long, so all are looked at quickly before any is checked element by element.
    """
    record = Record(subject)
    alone = [Alone(node, arguments) for node, arguments in record.with_operands()]
    if (misbehaviour := _misbehaviour(Record(subject, pulled=False))) is not None:
        return Findings(misbehaviour)
    kinks: list[str] = []
    rounds = [(1, False, False), (1, True, False), (2, False, True), (2, False, False)]
    for order, actual, quick in rounds if second else rounds[:2]:
        suspects = []
        for call in alone:
            cotangent = record.cotangents.get(call.node)
            if (actual and cotangent is None) or (quick and call.second_order_looks_right()):
                continue
            examination = call.examine(order, [cotangent] if actual and cotangent is not None else None)
            if not examination and not call.is_acquitted(examination, order):
                suspects.append((call, _culprit(call, examination, order)))
                if order == 1 and suspects[-1][1].diagnosis.kind not in UNSURE:
                    return Findings(suspects[-1][1])
            kinks += [call.describe(skip) for i in examination.inputs for skip in i.skipped]
        if suspects:
            return Findings(suspects[0][1] if order == 1 else _inside(*_innermost(suspects)))
    return Findings(None, tuple(kinks), next((call.place for call in alone if call.loses_precision), ""))


def _innermost(suspects: Sequence[tuple[Alone, Culprit]]) -> tuple[Alone, Culprit]:
    """The first whose recorded rule calls the op of no other: where that is wrong, so are all rules that call it."""
    ops = {call.op for call, _ in suspects}
    for call, culprit in suspects:
        if not ops & (call.ops_of_rule() - {call.op}):
            return call, culprit
    return suspects[0]


def _inside(call: Alone, culprit: Culprit) -> Culprit:
    """The call whose second derivative is wrong; or, at its place, the op that makes it so.

    The derivative of a call is computed with other ops, and one of these may be wrong where the program itself never
    uses it in such a way: broadcast, or with a tracked divisor.
    """
    inside = call.calls_inside()
    for order in (1, 2):
        suspects = []
        for inner in inside:
            if order == 2 and inner.second_order_looks_right():
                continue
            examination = inner.examine(order)
            if not examination and not inner.is_acquitted(examination, order):
                suspects.append((inner, _culprit(inner, examination, order)))
        if suspects:
            found = suspects[0][1] if order == 1 else _innermost(suspects)[1]
            sentence = f"in the derivative of {call.op.name}, {found.op} is wrong: {found.diagnosis.sentence}"
            diagnosis = Diagnosis(found.diagnosis.kind, sentence)
            return replace(found, file=culprit.file, line=culprit.line, source=culprit.source, diagnosis=diagnosis)
    return culprit


def _culprit(call: Alone, examination: Examination, order: int) -> Culprit:
    wrong = [i for i in examination.inputs if i.wrong.any()]
    shapes = [(n, x.shape) for n, x in zip(call.subject.names, call.subject.leaves)]
    sizes = sizes_of([*shapes, *(("the output", shape) for shape in examination.outputs)])
    diagnosis = examination.failure or _diagnosis(call, examination, wrong, sizes, order)
    if order == 2:
        diagnosis = Diagnosis(
            "second order only", f"its first derivative is right, but not that derivative's own ({diagnosis})"
        )
    argument = wrong[0].name if wrong else ""
    source = linecache.getline(call.file, call.line).strip()
    local = CheckResult(f"gradcheck of {call.op.name} by itself", examination.inputs, diagnosis)
    return Culprit(call.op.name, argument, call.file, call.line, source, diagnosis, local)


def _diagnosis(
    call: Alone, examination: Examination, wrong: Sequence[InputResult], sizes: Sizes, order: int
) -> Diagnosis:
    if order == 2:
        return diagnose(wrong[0], sizes)
    right = [i for i in examination.inputs if not i.wrong.any()]
    plain = imprecise(call, wrong[0]) or plainly(wrong[0], sizes)
    if plain is not None and plain.kind == "constant factor":
        return exchanged(call, wrong[0]) or plain  # of one operand that is a multiple of another
    return plain or explain(call, wrong, right) or diagnose(wrong[0], sizes)


def misbehaving(subject: Subject) -> Culprit | None:
    """The first call that writes to its operands, or whose rule does, or goes wrong in the dtypes that were given.

    That need not show in any gradient: the cotangent may not be used again, the engine casts, differences are taken in
    float64.
    """
    found = _misbehaviour(Record(subject, pulled=False))
    if found is not None or all(dtype == np.float64 for dtype in subject.dtypes):
        return found
    try:
        given = [x.astype(d) for x, d in zip(subject.leaves, subject.dtypes)]
        record = Record(subject, given, pulled=False)
        return _misbehaviour(record) or _wrong_in_single(record)
    except Exception:
        return None  # f takes only float64 beside its constants


def _misbehaviour(record: Record) -> Culprit | None:
    for _ in record.with_operands():
        if record.writers:
            return _blamed(record.writers[0], "input mutated", "it writes into an operand: compute with a copy")
    return next(filter(None, map(_misbehaviour_of, record.nodes)), None)


def _wrong_in_single(record: Record) -> Culprit | None:
    for node, arguments in record.with_operands():
        if (found := Alone(node, arguments).unlike_in_single()) is not None:
            return _blamed(node, "wrong dtype", f"its rule is right in float64, and not in {node.dtype}: {found}")
    return None


def _misbehaviour_of(node: Node) -> Culprit | None:
    g = _read_only_cotangent(node)
    given = [x for x in flatten((call_of(node).arguments, call_of(node).output))[0] if isinstance(x, np.ndarray)]
    before = [x.copy() for x in given]
    try:
        gradients = node.op.vjp(node, g, False)
    except Exception as error:  # any other is found when the call is checked by itself
        written = isinstance(error, ValueError) and "read-only" in str(error)
        return (
            _blamed(node, "input mutated", "its rule writes into the cotangent that it is given") if written else None
        )
    if not all(np.array_equal(x, y, equal_nan=x.dtype.kind in "fc") for x, y in zip(given, before)):
        return _blamed(node, "input mutated", "its rule writes into an operand or the output that it is given")
    dtypes = node.dtype if isinstance(node.dtype, list) else [node.dtype]
    for edge, gradient in zip(node.edges, gradients):
        allowed = {_precision(dtype) for dtype in (edge.dtype, *dtypes)}
        if gradient is not None and gradient.size and _precision(gradient.dtype) not in allowed:
            return _blamed(node, "wrong dtype", f"its rule returns {gradient.dtype} for operands of {edge.dtype}")
    return None


def _read_only_cotangent(node: Node) -> Any:
    several = isinstance(node.shape, list)
    shapes, dtypes = (node.shape, node.dtype) if several else ([node.shape], [node.dtype])
    gs = [np.full(shape, 0.5, dtype) for shape, dtype in zip(shapes, dtypes)]  # of 1, g * y would be y
    for g in gs:
        g.flags.writeable = False
    return tuple(gs) if several else gs[0]


def _precision(dtype: np.dtype[Any]) -> Any:
    return np.finfo(dtype).dtype if dtype.kind in "fc" else dtype


def _blamed(node: Node, kind: str, sentence: str) -> Culprit:
    call, diagnosis = call_of(node), Diagnosis(kind, sentence)
    source = linecache.getline(call.file, call.line).strip()
    return Culprit(node.op.name, "", call.file, call.line, source, diagnosis, CheckResult("", (), diagnosis))


def hidden_kink(subject: Subject) -> str:
    """The first call that takes another branch, or whose operands tie, right here; though its gradient may look right.

    A condition computed from values is a constant of the call that it steers, and the mean of two slopes, which a tie
    is given, is what central differences show: both pass a check of the call by itself.
    """
    record = Record(subject)
    rng = np.random.default_rng(0)
    for sign in (1, -1):
        moved = [x + sign * 1e-7 * rng.uniform(0.5, 1.5, x.shape) for x in subject.leaves]
        for a, b in zip(record.nodes, Record(subject, moved).nodes):
            if a.op is not b.op or not _same_choices(call_of(a).arguments, call_of(b).arguments):
                return place_of(a)
    alone = (Alone(node, arguments) for node, arguments in record.with_operands())
    return next((call.place for call in alone if call.has_kink()), "")


def _same_choices(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two calls' conditions and indices are the same."""
    chosen = [(x, y) for x, y in zip(a, b) if isinstance(x, np.ndarray) and x.dtype.kind in "biu"]
    return all(np.array_equal(x, y) for x, y in chosen)


def differing_call(subject: Subject) -> str:
    """Where two runs of a non-deterministic function part: the first call with other values in the second run."""
    first, again = Record(subject).nodes, Record(subject).nodes
    for a, b in zip(first, again):
        if a.op is not b.op or not _equal(a.notes.call.output, b.notes.call.output):  # type: ignore[union-attr]
            return place_of(a)
    return ""


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return all(map(_equal, a, b))
    return np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=1e-12, equal_nan=True)
