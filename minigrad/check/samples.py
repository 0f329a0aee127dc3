"""A sample call of an op, its records and gradients by every kind of pass: what the laws compare."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from minigrad.check.cases import Case
from minigrad.engine import Node, OutputNode, backward_pass
from minigrad.op import FusedOp
from minigrad.tensor import Tensor, as_leaf, wrap
from minigrad.trees import flatten


class quietly(warnings.catch_warnings):  # noqa: N801
    """No warnings: operands of laws may be empty, infinite or NaN."""

    def __enter__(self) -> Any:
        entered = super().__enter__()
        warnings.simplefilter("ignore")
        return entered


class Sample:
    """A case at copies of its arrays, and what several laws ask for, computed once."""

    def __init__(self, case: Case, dtype: Any = float):
        self.case = case
        self.function: Callable[..., Any] = case
        self.arrays = [np.array(x, dtype, order="C") for x in case.arrays]

    @functools.cached_property
    def single(self) -> Sample:
        """The same in float32."""
        return Sample(self.case, np.float32)

    def of(self, function: Callable[..., Any]) -> Sample:
        """The same call of another function."""
        other = Sample(self.case, self.dtype)
        other.function = lambda *arrays: self.case.with_arrays(function, arrays)
        return other

    @property
    def dtype(self) -> Any:
        return self.arrays[0].dtype if self.arrays else np.dtype(float)

    def outputs(self, arrays: Sequence[Any]) -> list[Any]:
        with np.errstate(all="ignore"):
            return flatten(self.function(*arrays))[0]

    def values(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [array_of(y) for y in self.outputs(arrays)]

    def record(self, arrays: Sequence[np.ndarray], only: int | None = None) -> tuple[list[Tensor], list[Tensor]]:
        """The arrays (or `only` one of them) as tracked tensors, and the outputs that a gradient reaches."""
        xs = [as_leaf(x) for x in arrays]
        ys = self.outputs([x if only in (None, i) else x._array for i, x in enumerate(xs)])
        return xs, [y for y in ys if isinstance(y, Tensor) and y._node is not None]

    def gradients(self, arrays: Sequence[np.ndarray], cs: Sequence[np.ndarray] | None = None) -> list[np.ndarray]:
        """The gradient of every array; cs: a cotangent for each tracked output."""
        xs, ys = self.record(arrays)
        return pull(xs, ys, self.cotangents if cs is None else cs)

    @functools.cached_property
    def recorded(self) -> tuple[list[Tensor], list[Tensor]]:
        return self.record(self.arrays)

    @functools.cached_property
    def cotangents(self) -> list[np.ndarray]:
        return draw(self.recorded[1], 0)

    @functools.cached_property
    def directions(self) -> list[np.ndarray]:
        return [u * np.maximum(1, np.abs(x)) for u, x in zip(draw(self.arrays, 1), self.arrays)]

    @functools.cached_property
    def pulled(self) -> list[np.ndarray]:
        """The gradient of every array, from a plain pass."""
        return pull(*self.recorded, self.cotangents)

    @functools.cached_property
    def doubled(self) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
        """The arrays and the cotangents as tracked tensors, the recorded gradients, and the outputs."""
        xs, ys = self.record(self.arrays)
        cs = [as_leaf(c) for c in self.cotangents]
        found = backward_pass(roots_of(ys, cs), inputs=nodes_of(xs), recorded=True)
        gradients = [found[x._node] if x._node in found else wrap(np.zeros(x.shape), None) for x in xs]
        return xs, cs, gradients, ys

    @functools.cached_property
    def calls(self) -> list[Node]:
        return calls_of(self.recorded[1])

    @functools.cached_property
    def elementwise(self) -> bool:
        """Whether each element of the output depends on its own elements alone, as one-hot cotangents show.

        Only if it is made of calls that promise as much for zeros: of ops that declare local derivatives, or whose
        rules do not look at operands. (A sum over an axis of size 1 is elementwise by accident.)
        """
        ys = self.recorded[1]
        if len(ys) != 1 or ys[0].size < 3 or not all(_promises_zeros(node.op) for node in self.calls):
            return False
        try:
            broadcast = np.broadcast_shapes(*(x.shape for x in self.arrays))
        except ValueError:
            return False
        if ys[0].shape != broadcast:
            return False
        return all(self._touches_only(at) for at in (0, ys[0].size // 2, ys[0].size - 1))

    def _touches_only(self, at: int) -> bool:
        y = self.recorded[1][0]
        hot = np.zeros(y.size, y.dtype)
        hot[at] = 1
        places = np.arange(y.size).reshape(y.shape) == at
        gradients = pull(*self.recorded, [hot.reshape(y.shape)])
        return all(not g[_summed(places, g.shape) == 0].any() for g in gradients)


def _promises_zeros(op: Any) -> bool:
    if isinstance(op, FusedOp):
        return False
    differentiable = {*op._rules, len(op._names)}
    return all(
        is_local(rule) or not differentiable.intersection(op._needs[position]) for position, rule in op._rules.items()
    )


def is_local(rule: Callable[..., Any]) -> bool:
    """Whether a rule was declared by its local derivative."""
    return getattr(rule, "is_local", False)


def _summed(places: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    extra = places.ndim - len(shape)
    axes = (*range(extra), *(i + extra for i, n in enumerate(shape) if n == 1))
    return np.reshape(places.sum(axes, dtype=int), shape)


def array_of(y: Any) -> np.ndarray:
    array: np.ndarray = y._array if isinstance(y, Tensor) else np.asarray(y)
    return array


def nodes_of(xs: Sequence[Tensor]) -> set[Any]:
    return {x._node for x in xs}


def roots_of(ys: Sequence[Tensor], cs: Sequence[Any]) -> list[tuple[Any, Any]]:
    return [(y._node, c) for y, c in zip(ys, cs) if y._node is not None]


def pull(xs: Sequence[Tensor], ys: Sequence[Tensor], cs: Sequence[Any]) -> list[np.ndarray]:
    """The gradients of xs by a plain pass: zeros where nothing arrives. Frees nothing."""
    found = backward_pass(roots_of(ys, cs), inputs=nodes_of(xs), retain=True)
    return [found[x._node] if x._node in found else np.zeros(x.shape, x.dtype) for x in xs]


def draw(like: Sequence[Any], seed: int) -> list[np.ndarray]:
    """Random arrays of these shapes and dtypes: of either sign, and none so small that it would hide an element."""
    rng = np.random.default_rng(seed)

    def one(shape: tuple[int, ...]) -> np.ndarray:
        return np.asarray(rng.uniform(0.5, 1.5, shape) * rng.choice([-1.0, 1.0], shape))

    return [(one(x.shape) + (1j * one(x.shape) if x.dtype.kind == "c" else 0)).astype(x.dtype) for x in like]


def calls_of(ys: Iterable[Tensor]) -> list[Node]:
    """The nodes of every op that was called on the way to these outputs."""
    found: dict[int, Node] = {}
    stack = [y._node for y in ys]
    while stack:
        node = stack.pop()
        if node is not None and id(node) not in found:
            found[id(node)] = node
            stack.extend(node.edges)
    return [node for node in found.values() if node.op is not None and type(node) is not OutputNode]


def ones_for(node: Node) -> Any:
    """A cotangent of ones for a call, be its outputs one or several."""
    if isinstance(node.shape, list):
        return tuple(np.ones(shape, dtype) for shape, dtype in zip(node.shape, node.dtype))
    return np.ones(node.shape, node.dtype)
