"""One recorded call checked by itself, as a function of its differentiable operands."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from minigrad.check.closeness import unlike_in_single
from minigrad.check.compare import Examination, examine, looks_right, random_cotangents
from minigrad.check.differences import Differences
from minigrad.check.noise import Noise
from minigrad.check.record import Record, call_of, call_op, copies, place_of, places
from minigrad.check.result import Skip
from minigrad.check.samples import pull
from minigrad.check.second import second_order
from minigrad.check.subject import Subject
from minigrad.engine import Node, Transform
from minigrad.op import Op
from minigrad.tensor import Tensor, as_leaf

# Complex numbers and their parts, by ops that belong to nobody else, so that they cannot be what is wrong.
_joined = Op(lambda re, im: re + 1j * im).rule(re=lambda g: g, im=lambda g: g * 1j)
_real = Op(lambda z: np.array(np.real(z))).rule(z=lambda g: g)
_imag = Op(lambda z: np.array(np.imag(z))).rule(z=lambda g: g * -1j)


class Alone:
    """One recorded call as a function of its differentiable operands."""

    def __init__(self, node: Node, arguments: list[Any]):
        self.node, self.op, self.arguments = node, node.op, arguments
        self.places = places(node)
        call = call_of(node)
        self.file, self.line = call.file, call.line
        self.subject = self._subject()

    @property
    def place(self) -> str:
        return place_of(self.node)

    def ops_of_rule(self) -> set[Any]:
        """What its rules call when they are recorded, and its reference."""
        return {node.op for record in self._records_inside() for node in record.nodes}

    def calls_inside(self) -> list[Alone]:
        """The calls of other ops of which its derivative is computed."""
        inside = [record.with_operands() for record in self._records_inside()]
        return [Alone(node, arguments) for calls in inside for node, arguments in calls if node.op is not self.op]

    def _records_inside(self) -> Iterator[Record]:
        with contextlib.suppress(Exception):  # its rules do not run
            yield Record(second_order(self.subject))
        if self.op.reference is not None:
            yield Record(self._subject(self.op.reference))

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

    def _subject(self, function: Any = None) -> Subject:
        """Of the op, or a function like it. A complex operand counts as two real ones, and so does a complex output."""
        operands = [self._operand(place) for place in self.places]
        is_complex = [np.asarray(x).dtype.kind == "c" for x in operands]
        parts: list[np.ndarray] = []
        for x, splits in zip(operands, is_complex):
            parts += [np.real(x), np.imag(x)] if splits else [np.asarray(x)]

        def f(*xs: Tensor) -> list[Tensor]:
            given = iter(xs)
            tensors = [_joined(next(given), next(given)) if splits else next(given) for splits in is_complex]
            y = call_op(self.op, copies(_filled(self.arguments, self.places, tensors)), function)
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

    def constants(self) -> list[tuple[str, np.ndarray]]:
        """The floating arguments that are not differentiated, with their names."""
        tracked = {position for position, _ in self.places}
        named = [(n, x) for i, (n, x) in enumerate(zip(self.op._names, self.arguments)) if i not in tracked]
        return [
            (n, np.asarray(x))
            for n, x in named
            if isinstance(x, (float, np.ndarray)) and np.asarray(x).dtype.kind == "f"
        ]

    def _operand(self, place: tuple[int, int | None]) -> Any:
        position, item = place
        return self.arguments[position] if item is None else self.arguments[position][item]

    def _name(self, place: tuple[int, int | None]) -> str:
        position, item = place
        name: str = self.op._names[position]
        return name if item is None else f"{name}[{item}]"

    def examine(self, order: int, cotangents: Sequence[np.ndarray] | None = None) -> Examination:
        """Of order 2: without cotangents. A complex cotangent counts as two real ones."""
        if order == 2:
            return examine(second_order(self.subject))
        if cotangents is not None and cotangents[0].dtype.kind == "c":
            cotangents = [cotangents[0].real, -cotangents[0].imag]
        return examine(self.subject, cotangents=cotangents)

    def unlike_in_single(self) -> str | None:
        """What its gradients are not in float64, at these operands; None for a call that is in float64 anyway."""
        operands = [np.asarray(self._operand(place)) for place in self.places]
        if all(x.dtype == _wide(x.dtype) for x in operands):
            return None
        return unlike_in_single(self._pulled(self.arguments), self._pulled(_widened(self.arguments)), operands)

    def _pulled(self, arguments: list[Any]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Its values, and the gradients of its operands by random cotangents, in the precision of these arguments."""
        given = copies(arguments)
        xs = [as_leaf(np.asarray(given[i] if item is None else given[i][item])) for i, item in self.places]
        outputs = call_op(self.op, _filled(given, self.places, xs))
        ys = [y for y in (outputs if isinstance(outputs, tuple) else (outputs,)) if y._node is not None]
        values = [y._array for y in ys]
        return values, pull(xs, ys, [c.astype(y.dtype) for c, y in zip(random_cotangents(values), values)])

    def second_order_looks_right(self) -> bool:
        return looks_right(second_order(self.subject))

    def is_acquitted(self, examination: Examination, order: int) -> bool:
        """Whether it cannot be judged: it has no finite values around its operands, or all is rounding errors."""
        wrong = [i for i in examination.inputs if i.wrong.any()]
        if not wrong:
            return False
        undefined = all(np.isnan(i.numeric[i.wrong]).all() for i in wrong)
        subject = self.subject if order == 1 else second_order(self.subject)
        return undefined or Noise(subject, examination.inputs).explains_all

    def describe(self, skip: Skip) -> str:
        return f"{self.place}, {skip.why}"


def _filled(arguments: Sequence[Any], places: Sequence[tuple[int, int | None]], tensors: Sequence[Any]) -> list[Any]:
    """The arguments with these in their places."""
    filled = list(arguments)
    for (position, item), t in zip(places, tensors):
        if item is None:
            filled[position] = t
        else:
            filled[position] = [t if i == item else x for i, x in enumerate(filled[position])]
    return filled


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.promote_types(dtype, np.float64)


def _widened(x: Any) -> Any:
    """Floating and complex arrays in the precision of float64, in nested lists too."""
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return type(x)(map(_widened, x))
    return x.astype(_wide(x.dtype)) if isinstance(x, np.ndarray) and x.dtype.kind in "fc" else x
