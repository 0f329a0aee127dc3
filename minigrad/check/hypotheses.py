"""Mistakes of a gradient rule that only show when it is run again: with operands exchanged, or with less of g."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from minigrad.check.alone import Alone
from minigrad.check.compare import random_cotangents
from minigrad.check.differences import Differences
from minigrad.check.result import Diagnosis, InputResult
from minigrad.engine import Node, Transform
from minigrad.tensor import wrap

MOST = 40  # ways to run a rule again
CLOSE = 1e-6


def explain(call: Alone, wrong: Sequence[InputResult], right: Sequence[InputResult]) -> Diagnosis | None:
    """A diagnosis from what the call's own rules do, None if they show nothing."""
    result = wrong[0]
    return _another_gradient(result, [*wrong[1:], *right]) or _Rerun(call).exchanged(result) or _part(call, result)


def imprecise(call: Alone, result: InputResult) -> Diagnosis | None:
    """Whether the rule returned numbers of another kind or of less precision than its operand's."""
    return _Rerun(call).imprecise(result)


def exchanged(call: Alone, result: InputResult) -> Diagnosis | None:
    """Whether the call's rule is right with operands exchanged."""
    return _Rerun(call).exchanged(result)


class _Rerun:
    """The call made again with tracked operands, and its rules at hand."""

    def __init__(self, call: Alone):
        self.call = call
        with Transform() as transform, np.errstate(all="ignore"):
            nodes = [transform.input(None, x.shape, x.dtype) for x in call.subject.leaves]
            ys = call.subject([wrap(x.copy(), node) for x, node in zip(call.subject.leaves, nodes)])
        node = ys[0]._node if len(ys) == 1 else None
        real = (
            node is not None and node.op is call.op and len(node.edges) == len(nodes)
        )  # a complex operand counts twice
        self.single = real
        self.node: Node | None = ys[0]._node
        self.cotangents = random_cotangents([y._array for y in ys])

    def _position(self, result: InputResult) -> int:
        return self.call.subject.names.index(result.name)

    def imprecise(self, result: InputResult) -> Diagnosis | None:
        if not self.single or self.node is None:
            return None
        gradients = list(self.node.op.vjp(self.node, self.cotangents[0], False))
        if len(gradients) != len(self.call.subject.leaves) or gradients[self._position(result)] is None:
            return None  # complex operands, which count as two
        gradient = np.asarray(gradients[self._position(result)])
        dtype = gradient.dtype
        if dtype.kind == "f" and dtype.itemsize >= 8:
            rounded = gradient.astype(np.float32)
            if not gradient.any() or not np.isfinite(gradient).all() or not np.array_equal(gradient, rounded):
                return None
            dtype = rounded.dtype
        return Diagnosis("wrong dtype", f"the rule for {result.name} returns {dtype}, for operands of float64")

    def exchanged(self, result: InputResult) -> Diagnosis | None:
        """Whether the rule is right with other operands in the place of those that it uses, or with one transposed."""
        if not self.single or self.node is None or self.node.plan is None:
            return None
        position = self._position(result)
        rule, needs = self.node.plan.rules[position], self.node.plan.needs_in(self.node.saved)[position]
        for kind, what, given in itertools.islice(self._ways(needs, self._axes(position)), MOST):
            try:
                with np.errstate(all="ignore"):
                    gradient = np.asarray(rule(*given))
                gradient = _summed_to(gradient, result.numeric.shape)
            except Exception:
                continue  # does not even fit
            if _agrees(gradient, result):
                return Diagnosis(kind, f"the gradient of {result.name} would be right {what}")
        return None

    def _axes(self, position: int) -> list[bool]:
        """For g and each need whether it is an axis, by its name."""
        op = self.call.op
        argument = sorted(self.node.plan.edge_of)[position] if self.node is not None else 0
        names = [op._names[i] if 0 <= i < len(op._names) else "" for i in op._needs[argument]]
        return [False, *(name.startswith(("axis", "axes", "source", "destination")) for name in names)]

    def _ways(self, needs: Sequence[Any], is_axis: Sequence[bool]) -> Iterator[tuple[str, str, list[Any]]]:
        """A kind, a description, and (g, *needs) with one thing changed."""
        given = [self.cotangents[0], *needs]
        arrays = [i for i, x in enumerate(given) if isinstance(x, np.ndarray)]
        for i in arrays:
            if given[i].ndim > 1:
                yield (
                    "transposed",
                    f"with {self._needed(given, i)} transposed",
                    _with(given, {i: given[i].swapaxes(-1, -2)}),
                )
        for i, j in itertools.combinations(arrays, 2):
            names = f"{self._needed(given, i)} and {self._needed(given, j)}"
            yield "swapped operands", f"with {names} exchanged", _with(given, {i: given[j], j: given[i]})
        for i, x in enumerate(given):
            if is_axis[i] and isinstance(x, int):
                for axis in range(-3, 4):
                    yield "transposed", f"with {axis} in the place of {x}, an axis", _with(given, {i: axis})
        for i in arrays[1:]:
            for name, x in [*zip(self.call.subject.names, self.call.subject.leaves), *self.call.constants()]:
                if x is not given[i] and not np.array_equal(x, given[i]):
                    yield (
                        "swapped operands",
                        f"with {name} in the place of {self._needed(given, i)}",
                        _with(given, {i: x}),
                    )

    def _needed(self, given: Sequence[Any], i: int) -> str:
        if i == 0:
            return "the cotangent"
        for name, x in zip(self.call.subject.names, self.call.subject.leaves):
            if np.array_equal(x, given[i]):
                return name
        return "the output"


def _with(given: Sequence[Any], changes: dict[int, Any]) -> list[Any]:
    return [changes.get(i, x) for i, x in enumerate(given)]


def _summed_to(gradient: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """As the engine does it."""
    extra = gradient.ndim - len(shape)
    axes = (*range(extra), *(i + extra for i, n in enumerate(shape) if n == 1))
    return np.asarray(gradient.sum(axes, keepdims=True).reshape(shape))


def _agrees(gradient: np.ndarray, result: InputResult) -> bool:
    """With the differences, wherever they were taken."""
    probed = result.probed & np.isfinite(result.numeric)
    if gradient.shape != result.numeric.shape or not probed.any():
        return False
    largest = float(np.max(np.abs(result.numeric[probed]), initial=0.0))
    return bool(np.allclose(gradient[probed], result.numeric[probed], rtol=CLOSE, atol=CLOSE * largest))


def _another_gradient(result: InputResult, others: Sequence[InputResult]) -> Diagnosis | None:
    """Whether the operand got another one's gradient."""
    for other in others:
        if other.numeric.shape == result.analytic.shape and _agrees(result.analytic, other):
            return Diagnosis("swapped operands", f"{result.name} has the gradient of {other.name}")
    return None


def _part(call: Alone, result: InputResult) -> Diagnosis | None:
    """Whether the gradient is that of one row of the output alone: where a sum over broadcast axes was forgotten."""
    number = call.subject.names.index(result.name)
    with np.errstate(all="ignore"), Transform():
        outputs = [y._array for y in call.subject(call.subject.constants())]
    cotangents = random_cotangents(outputs)
    places = [tuple(map(int, at)) for at in np.argwhere(result.wrong)[:6]]
    analytic = np.array([result.analytic[at] for at in places])
    scale = float(np.max(np.abs(result.numeric), initial=0.0, where=np.isfinite(result.numeric)))
    for what, kept in _parts(cotangents, result.analytic.shape):
        differences = Differences(call.subject, kept, number)
        numeric = np.array([differences.element(at).refined().estimate for at in places])
        if np.allclose(analytic, numeric, rtol=CLOSE, atol=CLOSE * scale):
            return Diagnosis("one row or column", f"the gradient of {result.name} counts {what}")
    return None


def _parts(cotangents: Sequence[np.ndarray], shape: tuple[int, ...]) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Descriptions of a part of the outputs, and the cotangents with 0 elsewhere. shape: the operand's."""
    first = cotangents[0]
    extra = first.ndim - len(shape)
    if extra >= 0 and shape != first.shape:
        stretched = [axis < extra or shape[axis - extra] == 1 for axis in range(first.ndim)]
        kept = np.zeros_like(first)
        at = tuple(slice(0, 1) if is_stretched else slice(None) for is_stretched in stretched)
        kept[at] = first[at]
        yield (
            "only the first index of the axes along which it was broadcast (a sum is missing)",
            [kept, *cotangents[1:]],
        )
    for axis, index in itertools.product(range(cotangents[0].ndim), (0, -1)):
        if cotangents[0].shape[axis] > 1:
            kept = np.zeros_like(cotangents[0])
            row: tuple[Any, ...] = (*(slice(None),) * axis, index)
            kept[row] = cotangents[0][row]
            which = "first" if index == 0 else "last"
            yield f"only the {which} index of the output's axis {axis} (a sum is missing)", [kept, *cotangents[1:]]
    for ignored in range(len(cotangents) if len(cotangents) > 1 else 0):
        yield f"nothing of output {ignored}", [c * (i != ignored) for i, c in enumerate(cotangents)]
