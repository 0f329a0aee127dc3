"""What must hold for any differentiable op, minigrad's or a user's: run the laws on sample calls of it.

    broken = check_op(op, [case, ...])          a list of Broken, empty when all is well
    print(report(broken))                       what is wrong, a line for each law and case

(In pytest, the fixture assert_laws(op, cases) of the plugin that is installed with minigrad does both.)

A case is a minigrad.check.cases.Case, or just a tuple of arguments. Each law is a short function that gets a Sample and
returns what is wrong, or None. All run in float64, except those that are about float32.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigrad.check.cases import Case
from minigrad.check.closeness import STEP, Quotient, inner, size_of, unequal, unlike_in_single
from minigrad.check.samples import (
    Sample,
    array_of,
    calls_of,
    draw,
    nodes_of,
    ones_for,
    pull,
    quietly,
    roots_of,
)
from minigrad.engine import Node, backward_pass
from minigrad.op import FusedOp
from minigrad.tensor import Tensor, as_leaf, wrap
from minigrad.trees import flatten

__all__ = ["LAWS", "Broken", "Case", "Law", "Sample", "check_case", "check_op", "report"]

Law = Callable[[Sample], "str | None"]

EXACT = 1e-11  # how far two ways of computing one float64 number may differ, relative to the largest
SINGLE = 1e-5  # and two float32 ones
LOCATED = 200  # elements for which a failed comparison is repeated one by one, to say which is wrong
SINGULAR = np.array([0.0, 1.0, -1.0, np.inf, -np.inf, np.nan])


@dataclass(frozen=True)
class Broken:
    """A law that does not hold for a case."""

    law: str
    case: Case
    text: str

    def __str__(self) -> str:
        return f"{self.case}: {self.law}: {self.text}"


def check_op(op: Callable[..., Any] | str, cases: Iterable[Any], laws: Sequence[Law] | None = None) -> list[Broken]:
    """Run every law on every case of one op; return those that are broken, in order.

    op: an op, a function composed of ops, or the name of one of minigrad's ops. cases: Cases, tuples of arguments, or
    single arguments; floating arrays in them are differentiated. Raises ValueError for no case.

    >>> import minigrad as mg
    >>> @mg.op
    ... def cube(x):
    ...     return x**3
    >>> _ = cube.derivative(x=lambda x: 2 * x**2)
    >>> print(report(check_op(cube, [np.array([1.0, 2.0])], [differences])))
    cube-2: differences: argument 0 at (1,): the rule gives -6.16, differences give -9.24
    """
    given = [Case.of(op, case) for case in cases]
    if not given:
        raise ValueError(f"the laws need at least one sample call of {Case.of(op, ()).name}, and got none")
    return [broken for case in given for broken in check_case(case, laws)]


def check_case(case: Case, laws: Sequence[Law] | None = None) -> Iterator[Broken]:
    """The laws that this case breaks, one by one; what a law raises breaks it too."""
    sample = Sample(case)
    for law in LAWS if laws is None else laws:
        with quietly():
            try:
                text = law(sample)
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
        if text is not None:
            yield Broken(law.__name__, case, text)


def report(broken: Iterable[Broken]) -> str:
    """A line for each."""
    return "\n".join(map(str, broken))


# --- the laws ----------------------------------------------------------------------------------------------------


def value(s: Sample) -> str | None:
    """The value, its shape and its dtype are those of `expected`, in float64 and float32."""
    if s.case.expected is None:
        return None
    for sample, tolerance in [(s, EXACT / 10), (s.single, SINGLE / 2)]:
        outputs = sample.outputs(sample.arrays)
        expected = [np.asarray(y) for y in flatten(s.case.value(*sample.arrays))[0]]
        if len(outputs) != len(expected):
            return f"{len(outputs)} outputs instead of {len(expected)}"
        got = [array_of(y) for y in outputs]
        wrong = unequal("output", got, expected, tolerance * s.case.tolerance)
        if wrong:
            return f"{sample.dtype}: {wrong}"
        for y, e in zip(got, expected):
            if y.dtype != e.dtype and not _names_dtype(s.case):
                return f"{sample.dtype}: a value of dtype {y.dtype} instead of {e.dtype}"
    return None


def _names_dtype(case: Case) -> bool:
    return any(isinstance(x, (np.dtype, type)) for x in flatten((case.args, case.kwargs))[0])


def differences(s: Sample) -> str | None:
    """The gradient along a random direction is that of finite differences; where it is not, element by element."""
    outputs = functools.partial(_tracked_values, s)
    quotient = Quotient(functools.partial(_moved, outputs, s.arrays, s.directions), s.cotangents)
    pairs = list(zip(s.pulled, s.directions))
    agrees, numeric = quotient.compare(inner(pairs), size_of(pairs) * s.case.tolerance)
    if not agrees:
        return _locate(s) or f"along a direction the rule gives {inner(pairs):.6g}, differences give {numeric:.6g}"
    return None if s.recorded[1] or not s.arrays or _is_constant(s) else "no gradient reaches any argument"


def _tracked_values(s: Sample, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs that a gradient reaches, at other values of the arrays."""
    return [y._array for y in s.record(arrays)[1]]


def _moved(
    outputs: Callable[[list[np.ndarray]], list[np.ndarray]], arrays: Sequence[Any], u: Sequence[Any], t: float
) -> list[np.ndarray]:
    return outputs([x + t * v for x, v in zip(arrays, u)])


def _is_constant(s: Sample) -> bool:
    moved = s.values([x + STEP * u for x, u in zip(s.arrays, s.directions)])
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(s.values(s.arrays), moved))


def _locate(s: Sample) -> str | None:
    """The element whose gradient is furthest from that of differences."""
    outputs, worst = functools.partial(_tracked_values, s), (0.0, "")
    elements = ((i, at) for i, g in enumerate(s.pulled) for at in np.ndindex(g.shape))
    for i, at in itertools.islice(elements, LOCATED):
        u = [np.zeros(x.shape) for x in s.arrays]
        u[i][at] = 1
        analytic = float(s.pulled[i][at])
        quotient = Quotient(functools.partial(_moved, outputs, s.arrays, u), s.cotangents)
        agrees, numeric = quotient.compare(analytic, max(abs(analytic), 1e-3) * s.case.tolerance)
        error = abs(analytic - numeric) if np.isfinite(analytic) else np.inf
        if not agrees and error > worst[0]:
            text = f"argument {i} at {at}: the rule gives {analytic:.3g}, differences give {numeric:.3g}"
            worst = error, text
    return worst[1] or None


def second_order(s: Sample) -> str | None:
    """The derivative of gradient and outputs together, by arrays and cotangents, is that of finite differences."""
    xs, cs, gradients, ys = s.doubled
    weights, u, v = [*draw(s.arrays, 2), *draw(ys, 8)], s.directions, draw(cs, 3)
    reached = [(y, w) for y, w in zip([*gradients, *ys], weights) if y._node is not None]
    found = pull([*xs, *cs], [y for y, _ in reached], [w for _, w in reached])
    pairs = list(zip(found, [*u, *v]))

    def moved(t: float) -> list[np.ndarray]:
        xs, ys = s.record([x + t * a for x, a in zip(s.arrays, u)])
        return [*pull(xs, ys, [c + t * a for c, a in zip(s.cotangents, v)]), *(y._array for y in ys)]

    agrees, numeric = Quotient(moved, weights).compare(inner(pairs), (size_of(pairs) + 1e-2) * s.case.tolerance)
    if agrees:
        return None
    return f"along a direction: the recorded gradient gives {inner(pairs):.9g}, differences {numeric:.9g}"


def adjoint(s: Sample) -> str | None:
    """<c, J u> = <J^T c, u>, with J u as the transpose of the transposed: the gradient by c of <J^T c, u>."""
    _, cs, gradients, _ = s.doubled
    reached = [(g, u) for g, u in zip(gradients, s.directions) if g._node is not None]
    tangents = pull(cs, [g for g, _ in reached], [u for _, u in reached])
    pushed, pulled = inner(zip(s.cotangents, tangents)), inner(zip(s.pulled, s.directions))
    scale = size_of(zip(s.pulled, s.directions)) + 1e-3
    if abs(pushed - pulled) <= EXACT * scale * s.case.tolerance:
        return None
    return f"<c, J u> is {pushed:.12g} and <J^T c, u> is {pulled:.12g}"


def recorded_alike(s: Sample) -> str | None:
    """The rules run on Tensors as on arrays, and give the same."""
    _, _, gradients, _ = s.doubled
    if any(type(g) is not Tensor for g in gradients):
        return "a recorded pass gave something else than tensors"
    got = [g._array for g in gradients]
    return unequal("gradient", got, s.pulled, EXACT * s.case.tolerance, ("recorded", "plain"))


def linear(s: Sample) -> str | None:
    """The gradient is linear in the cotangent, and that of several outputs the sum of those of each."""
    ys, c = s.recorded[1], s.cotangents
    d = [v if i == 0 else np.zeros_like(v) for i, v in enumerate(draw(ys, 4))]
    only = pull(s.recorded[0], ys[:1], d[:1])  # the other outputs unused
    both = pull(*s.recorded, [np.asarray(2 * a + 3 * b) for a, b in zip(c, d)])
    wanted = [2 * a + 3 * b for a, b in zip(s.pulled, only)]
    return unequal("gradient", both, wanted, EXACT * s.case.tolerance, ("of a sum", "sum of both"))


def zero(s: Sample) -> str | None:
    """A zero cotangent gives a zero gradient; elementwise at singular, infinite and NaN operands too."""
    for arrays in _operands_for_zero(s):
        for i, g in enumerate(_gradients_of_zero(s, arrays)):
            if g.any():
                at = tuple(map(int, np.argwhere(g)[0]))
                how = "plain" if i < len(arrays) else "recorded"
                at_operands = f"at operands {[x.tolist() for x in arrays]}"
                return f"the {how} gradient {i % len(arrays)} at {at} is {g[at]}, {at_operands}"
    return None


def gradients_of_zero(s: Sample) -> list[np.ndarray]:
    """The gradients by zero cotangents, at all the operands where they must be zero."""
    return [g for arrays in _operands_for_zero(s) for g in _gradients_of_zero(s, arrays)]


def _operands_for_zero(s: Sample) -> Iterator[list[np.ndarray]]:
    yield s.arrays
    if not s.arrays or not (s.case.singular or (s.case.singular is None and s.elementwise)):
        return
    rng = np.random.default_rng(5)
    for shift in range(len(SINGULAR)):
        draws = [np.asarray(rng.choice(SINGULAR, x.shape)) for x in s.arrays]
        first = shift % len(draws)
        draws[first] = np.resize(np.roll(SINGULAR, shift), draws[first].shape)
        yield draws


def _gradients_of_zero(s: Sample, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """A plain gradient for each array, then recorded ones."""
    xs, ys = s.record(arrays)
    zeros = [np.zeros(y.shape, y.dtype) for y in ys]
    found = backward_pass(roots_of(ys, [wrap(z, None) for z in zeros]), inputs=nodes_of(xs), recorded=True)
    recorded = [found[x._node]._array if x._node in found else np.zeros(x.shape) for x in xs]
    return [*pull(xs, ys, zeros), *recorded]


def dtype(s: Sample) -> str | None:
    """The rules themselves, plain and recorded, give float32 for float32; the gradient has its operand's dtype."""
    for node in s.single.calls:
        wrong = _imprecise(node)
        if wrong:
            return wrong
    for sample in [s.single, _mixed(s)]:
        for x, g in zip(sample.arrays, sample.pulled):
            if (g.dtype, g.shape) != (x.dtype, x.shape):
                return f"a gradient of {g.dtype}{g.shape} for an operand of {x.dtype}{x.shape}"
    return None


def single(s: Sample) -> str | None:
    """In float32 the gradient is what it is in float64 at the same operands, as exactly as the values are."""
    arrays = [x.astype(w.dtype) for x, w in zip(s.single.arrays, s.arrays)]
    cotangents = [c.astype(w.dtype) for c, w in zip(s.single.cotangents, s.cotangents)]
    narrow = s.single.values(s.single.arrays), s.single.pulled
    wide = s.values(arrays), s.gradients(arrays, cotangents)
    return unlike_in_single(narrow, wide, arrays)


def _imprecise(node: Node) -> str | None:
    """Whether a rule returns float64 where its call was in float32: the engine's cast would hide it."""
    g = ones_for(node)
    dtypes = node.dtype if isinstance(node.dtype, list) else [node.dtype]
    allowed = {np.finfo(d).dtype for d in dtypes if d.kind in "fc"}
    results = [list(node.op.vjp(node, g, False))]
    if not isinstance(node.op, FusedOp):  # whose recorded pass goes through the reference
        on_record = tuple(wrap(part, None) for part in g) if isinstance(g, tuple) else wrap(g, None)
        results.append(list(node.op.vjp(node, on_record, True)))
    for gradients in results:
        for edge, gradient in zip(node.edges, gradients):
            if gradient is not None and np.finfo(gradient.dtype).dtype not in {*allowed, np.finfo(edge.dtype).dtype}:
                return f"a rule of {node.op} returned {gradient.dtype} for {edge.dtype}"
    return None


def _mixed(s: Sample) -> Sample:
    mixed = Sample(s.case)
    mixed.arrays = [x.astype(np.float32) if i == 0 else x for i, x in enumerate(mixed.arrays)]
    return mixed


def untouched(s: Sample) -> str | None:
    """Neither the call nor a rule writes to what it is given, and a rule run twice gives the same."""
    constants = [x for x in flatten((s.case.args, s.case.kwargs))[0] if isinstance(x, np.ndarray)]
    before = [x.copy() for x in constants]
    arrays = [x.copy() for x in s.arrays]
    for x in arrays:
        x.flags.writeable = False
    _, ys = s.record(arrays)
    for node in calls_of(ys):
        g = ones_for(node)
        for part in g if isinstance(g, tuple) else (g,):
            part.flags.writeable = False
        first = [np.array(gradient) for gradient in node.op.vjp(node, g, False) if gradient is not None]
        again = [gradient for gradient in node.op.vjp(node, g, False) if gradient is not None]
        wrong = unequal("gradient", again, first, 0.0, ("the second time", "the first time"))
        if wrong:
            return f"{node.op}: {wrong}"
    if not all(np.array_equal(x, y, equal_nan=x.dtype.kind in "fc") for x, y in zip(constants, before)):
        return "an argument was written to"
    return None


def strides(s: Sample) -> str | None:
    """Operands and cotangents that are not contiguous give the same values and gradients."""
    spread = [spread_out(x) for x in s.arrays]
    values, wanted = s.values(spread), s.values(s.arrays)
    tolerance = EXACT * s.case.tolerance
    wrong = unequal("output", values, wanted, tolerance, ("strided", "contiguous"))
    if wrong:
        return wrong
    gradients = s.gradients(spread, [spread_out(c) for c in s.cotangents])
    return unequal("gradient", gradients, s.pulled, tolerance, ("strided", "contiguous"))


def spread_out(x: np.ndarray) -> np.ndarray:
    """Equal to x, in Fortran's order, with strides of -3 elements, amid NaN."""
    if x.ndim == 0:
        return x
    amid = np.full([3 * n for n in x.shape[::-1]], np.nan, x.dtype)
    view: np.ndarray = amid[(slice(None, None, -3),) * x.ndim].T
    view[...] = x
    return view


def one_by_one(s: Sample) -> str | None:
    """With one tracked argument and constant others, its gradient is what it is when all are tracked."""
    for i in range(len(s.arrays) if len(s.arrays) > 1 else 0):
        xs, ys = s.record(s.arrays, only=i)
        if len(ys) not in (0, len(s.cotangents)):
            continue  # some outputs do not depend on it
        found = pull(xs[i : i + 1], ys, s.cotangents) if ys else [np.zeros(xs[i].shape)]
        wrong = unequal("gradient", found, s.pulled[i : i + 1], EXACT * s.case.tolerance, ("alone", "together"))
        if wrong:
            return f"argument {i}: {wrong}"
    return None


def adds_up(s: Sample) -> str | None:
    """Several uses of a tensor add up, in `.grad` too, which belongs to its tensor alone."""
    xs = [as_leaf(x) for x in s.arrays]
    cs = [c.copy() for c in s.cotangents]
    uses = [[y for y in s.outputs(xs) if isinstance(y, Tensor) and y._node is not None] for _ in range(4)]
    backward_pass(roots_of(uses[0], cs))
    grads = [x.grad for x in xs if x.grad is not None]
    others = [*cs, *s.arrays, *(y._array for y in uses[0])]
    if any(not g.flags.writeable or np.shares_memory(g, y) for g in grads for y in others):
        return "a .grad shares its memory, or is read-only"
    backward_pass([root for ys in uses[1:] for root in roots_of(ys, cs)])
    grads = [np.zeros(x.shape) if x.grad is None else x.grad for x in xs]
    wrong = unequal("gradient", grads, [4 * g for g in s.pulled], EXACT * s.case.tolerance)
    if wrong:
        return f"used four times: {wrong}"
    if not all(np.array_equal(c, before) for c, before in zip(cs, s.cotangents)):
        return "a cotangent was written to"
    return _as_both(s)


def _as_both(s: Sample) -> str | None:
    """One tensor as two arguments gets the sum of both gradients."""
    pairs = [(i, j) for i, j in itertools.combinations(range(len(s.arrays)), 2)]
    same = [(i, j) for i, j in pairs if s.arrays[i].shape == s.arrays[j].shape]
    if not same or any(x.dtype.kind == "c" for x in s.case.args if isinstance(x, np.ndarray)):
        return None
    i, j = same[0]
    arrays = [s.arrays[i] if k == j else x for k, x in enumerate(s.arrays)]
    apart = s.gradients(arrays)
    x = as_leaf(arrays[i])
    ys = s.outputs([x if k in (i, j) else y for k, y in enumerate(arrays)])
    together = pull([x], [y for y in ys if isinstance(y, Tensor)], s.cotangents)
    wanted = [apart[i] + apart[j]]
    return unequal("gradient", together, wanted, EXACT * s.case.tolerance, ("of one tensor twice", "sum of two"))


def reference(s: Sample) -> str | None:
    """A fused op equals the plain definition that it carries, in value and gradients, in float64 and float32."""
    plain = getattr(s.case.function, "reference", None)
    if plain is None:
        return None
    for sample, tolerance in [(s, EXACT), (s.single, 2 * SINGLE)]:
        other = sample.of(plain)
        tolerance *= s.case.tolerance
        names = ("kernel", "reference")
        wrong = unequal("output", sample.values(sample.arrays), other.values(sample.arrays), tolerance, names)
        wrong = wrong or unequal("gradient", sample.pulled, other.pulled, tolerance, names)
        if wrong:
            return f"{sample.dtype}: {wrong}"
        for node in other.calls:
            if node.dtype != sample.dtype or _imprecise(node):
                return f"{node.op} in the reference of a {sample.dtype} call is not"
    return None


def silent(s: Sample) -> str | None:
    """The backward pass does not warn."""
    xs, ys = s.recorded
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pull(xs, ys, s.cotangents)
    return None


LAWS: tuple[Law, ...] = (
    value,
    differences,
    recorded_alike,
    adjoint,
    second_order,
    linear,
    zero,
    dtype,
    single,
    untouched,
    strides,
    one_by_one,
    adds_up,
    reference,
    silent,
)
