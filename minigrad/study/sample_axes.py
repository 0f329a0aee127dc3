"""Which axis of each array in a recorded batch is the samples', and whether the samples keep to themselves.

The batch is recorded once, and then a few of its samples again: an axis that is shorter then is the samples' axis, and
a sample whose numbers are others then depends on who stands beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Set
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from minigrad.engine import Call, Node, OutputNode, is_leaf
from minigrad.nn.module import Module
from minigrad.ops.elementwise import add, astype, copy, divide, multiply, negative, subtract
from minigrad.ops.fused import cross_entropy
from minigrad.ops.indexing import getitem
from minigrad.ops.reductions import mean, sum
from minigrad.ops.shapes import reshape, squeeze
from minigrad.study.graphs import recording
from minigrad.study.walk import call_of
from minigrad.tensor import Tensor
from minigrad.trees import flatten

LossFn: TypeAlias = Callable[[Any, Any, Any], Tensor]


# --- samples in arrays -------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """Where an array has the samples: along `axis`, `block` elements a sample."""

    axis: int
    block: int


def by_sample(array: np.ndarray, place: Place) -> np.ndarray:
    """(batch, block, *other axes)."""
    moved = np.moveaxis(array, place.axis, 0)
    return moved.reshape(len(moved) // place.block, place.block, *moved.shape[1:])


def vectors(array: np.ndarray, place: Place) -> np.ndarray:
    """(batch, vectors, width): all axes but the samples' and the last as one."""
    each = by_sample(array, place)
    return each.reshape(len(each), math.prod(each.shape[1:-1]), each.shape[-1])


def one_sample(array: np.ndarray, place: Place, i: int) -> np.ndarray:
    """Sample i, with as many axes as the whole."""
    own = slice(i * place.block, (i + 1) * place.block)
    sample: np.ndarray = array[(slice(None),) * place.axis + (own,)]
    return sample


def batch_size(x: Any, y: Any) -> int:
    """The number of samples in nested arrays; ValueError unless all have it as their first size."""
    shapes = [array.shape for array in _arrays(x, y)]
    if not shapes or not all(shapes) or len({shape[0] for shape in shapes}) > 1:
        raise ValueError(
            f"x and y hold arrays with the samples along the first axis, as many in each, and these have the shapes "
            f"{shapes}: what all samples share (a total, a rate) belongs in loss_fn"
        )
    return int(shapes[0][0])


def _arrays(*trees: Any) -> list[np.ndarray]:
    leaves = flatten(trees)[0]
    return [leaf.data if isinstance(leaf, Tensor) else np.asarray(leaf) for leaf in leaves if leaf is not None]


def _pick(tree: Any, samples: np.ndarray) -> Any:
    leaves, rebuild = flatten(tree)
    return rebuild([leaf if leaf is None else _arrays(leaf)[0][samples] for leaf in leaves])


def _few(x: Any, y: Any, batch: int) -> np.ndarray:
    """Three or more samples, in no order, that should take the model along the same path as all do.

    A path may depend on whether there is any padding: of each mask, samples with most and with least of it are chosen.
    """
    masks = [array.reshape(batch, -1).sum(1) for array in _arrays(x, y) if array.dtype == np.bool_]
    order = np.random.default_rng(0).permutation(batch)
    chosen = dict.fromkeys([int(choose(mask)) for mask in masks for choose in (np.argmin, np.argmax)])
    chosen.update(dict.fromkeys(order[: max(0, 3 - len(chosen))].tolist()))
    few = [i for i in order.tolist() if i in chosen]
    return np.array(few) if 1 < len(few) < batch else _all_and_one_twice(batch)


def _all_and_one_twice(batch: int) -> np.ndarray:
    return np.array([*range(batch - 1, -1, -1), 0])


# --- one graph beside another ------------------------------------------------------------------------------------


class _OtherPathError(ValueError):
    """Two runs of a model made different calls, or arrays that differ in more than the number of samples."""


class _Again:
    """A run of some samples of a batch, beside the run of all of them: for each node its like."""

    def __init__(self, loss: Node, like: Node, batch: int, chosen: np.ndarray, until: Set[Node] = frozenset()):
        self.batch, self.chosen = batch, chosen
        self.like: dict[Node, Node] = {}
        stack = [(loss, like)]
        while stack:
            node, other = stack.pop()
            if node in self.like or node in until:
                self.like[node] = other
                continue
            if repr(node.op) != repr(other.op) or len(node.edges) != len(other.edges):
                raise _OtherPathError(
                    f"the model makes other calls for some of the samples, {called(other)}, than for all of them, "
                    f"{called(node)}: what it does may not depend on how many they are (a loop over them). {_ADVICE}"
                )
            self.like[node] = other
            stack += zip(node.edges, other.edges)

    def place_of(self, shape: tuple[int, ...], like: tuple[int, ...]) -> Place | None:
        """Where an array has the samples, if anywhere, from its shapes in both runs."""
        if shape == like:
            return None
        differ = [axis for axis, sizes in enumerate(zip(shape, like)) if sizes[0] != sizes[1]]
        if len(shape) == len(like) and len(differ) == 1:
            (axis,) = differ
            block = shape[axis] // self.batch
            if shape[axis] == self.batch * block and like[axis] == len(self.chosen) * block:
                return Place(axis, block)
        raise _OtherPathError(
            f"an array has the shape {shape} for {self.batch} samples and {like} for {len(self.chosen)}, so that they "
            "do not stand side by side along one axis of it"
        )

    def agrees(self, node: Node, tolerance: float) -> bool:
        """Whether a node's samples have the same numbers in both runs, up to rounding."""
        outputs = [_output(node), _output(self.like[node])]
        pairs = zip(*outputs) if isinstance(outputs[0], tuple) else [outputs]
        return all(self._same(a, b, tolerance) for a, b in pairs)

    def _same(self, output: np.ndarray, like: np.ndarray, tolerance: float) -> bool:
        place = self.place_of(output.shape, like.shape)
        expected = output if place is None else by_sample(output, place)[self.chosen]
        given = like if place is None else by_sample(like, place)
        size = np.max(np.abs(expected), initial=0, where=np.isfinite(expected))
        return np.allclose(given, expected, tolerance, tolerance * size, equal_nan=True)


def _tolerance(nodes: Iterable[Node]) -> float:
    """How far results may differ: they are rounded as the coarsest of all is, whatever dtype those after it have."""
    dtypes = [dtype for node in nodes for dtype in (node.dtype if isinstance(node.dtype, list) else [node.dtype])]
    return math.sqrt(max(float(np.finfo(dtype).eps) for dtype in dtypes if dtype.kind in "fc"))


def called(node: Node) -> str:
    """A call's op, file and line."""
    while node.op is None and node.edges:
        node = node.edges[0]
    call = node.notes.call if node.notes is not None else None
    return str(node.op) if call is None else f"{node.op} ({call.file}:{call.line})"


def _output(node: Node) -> Any:
    index = None
    while node.op is None:  # an output of several, or something that is only passed on
        index = node.index if isinstance(node, OutputNode) else index
        (node,) = node.edges
    output = call_of(node).output
    return output if index is None else output[index]


# --- the recorded batch ------------------------------------------------------------------------------------------

# What may stand between the samples and the loss: an op that adds up what belongs to samples ...
_ADD_UP = (sum, mean, cross_entropy)
# ... and then ops that are linear in such totals, the last two in one of their operands.
_LINEAR = (add, subtract, negative, copy, astype, sum, mean, reshape, squeeze, getitem)
_LINEAR_IN_ONE = (multiply, divide)

_ADVICE = (
    "A sample must have a loss of its own, whatever else is in the batch: what is computed from all of them can be a "
    "constant that loss_fn knows, and dropout must be off (model.eval())"
)


class SampleGraph:
    """The recorded graph of a batch: what in it belongs to samples, what they share, and what is added up already.

    place: {node: where its array has the samples}; totals: the sums over samples, and what is computed from those. All
    else is shared by the samples. ValueError if the samples have no losses of their own.
    """

    def __init__(self, model: Module, loss_fn: LossFn, x: Any, y: Any, batch: int):
        def run(chosen: np.ndarray) -> Node:
            return _recorded(model, loss_fn, _pick(x, chosen), _pick(y, chosen))

        self.batch = batch
        self.loss = _recorded(model, loss_fn, x, y)
        try:
            self._compare(run, _few(x, y, batch))
        except _OtherPathError:  # what depends on the presence of any such sample is as it was if all are there
            self._compare(run, _all_and_one_twice(batch))
        if self.loss not in self.totals:
            raise ValueError(f"this loss depends on parameters and on no sample. {_ADVICE}")
        self._check_values(run)

    def _compare(self, run: Callable[[np.ndarray], Node], chosen: np.ndarray) -> None:
        self.again = _Again(self.loss, run(chosen), self.batch, chosen)
        self.nodes = sorted((node for node in self.again.like if not is_leaf(node)), key=lambda node: node.tick)
        self.place: dict[Node, Place] = {}
        self.totals: set[Node] = set()
        for node in self.nodes:
            self._classify(node)

    def like(self, node: Node) -> Call:
        """The same call, of the few samples."""
        return call_of(self.again.like[node])

    def _classify(self, node: Node) -> None:
        place = self._place_of(node)
        from_totals = not self.totals.isdisjoint(node.edges)
        if place is not None:
            if from_totals:
                raise ValueError(f"the samples are mixed: {called(node)} meets them with a sum over all. {_ADVICE}")
            self.place[node] = place
        elif self._takes_samples(node):
            self._check_adds_up(node)
            self.totals.add(node)
        elif from_totals:
            self._check_linear(node)
            self.totals.add(node)

    def _place_of(self, node: Node) -> Place | None:
        several = type(node.shape) is list
        shapes, like = node.shape, self.again.like[node].shape
        try:
            places = [self.again.place_of(*pair) for pair in (zip(shapes, like) if several else [(shapes, like)])]
        except _OtherPathError as error:
            raise _OtherPathError(f"the samples are mixed: at {called(node)} {error}. {_ADVICE}") from None
        return next((place for place in places if place is not None), None)

    def _takes_samples(self, node: Node) -> bool:
        if node.op is None or any(edge in self.place for edge in node.edges):
            return any(edge in self.place for edge in node.edges)
        pairs = zip(call_of(node).arguments, self.like(node).arguments)
        return any(a.shape != b.shape for a, b in pairs if isinstance(a, np.ndarray))

    def _check_adds_up(self, node: Node) -> None:
        if node.op is not None and node.op not in _ADD_UP:
            raise ValueError(
                f"the loss is not a sum over samples: {called(node)} makes one thing of them all, and of ops only "
                f"{', '.join(map(str, _ADD_UP))} may do so. {_ADVICE}"
            )

    def _check_linear(self, node: Node) -> None:
        if not self.totals.issuperset(node.edges):
            raise ValueError(
                f"the loss has a term that belongs to no sample: {called(node)} joins it to a sum over samples. Leave "
                "out of loss_fn what depends on parameters alone (weight decay)"
            )
        in_one = node.op in _LINEAR_IN_ONE and len(node.edges) == 1
        if node.op is divide and call_of(node).tracked != (0,):
            in_one = False  # it is the denominator
        if not in_one and node.op is not None and node.op not in _LINEAR:
            raise ValueError(f"the loss is not a sum over samples: {called(node)} is not linear in one. {_ADVICE}")

    def _check_values(self, run: Callable[[np.ndarray], Node]) -> None:
        """ValueError unless every sample has the same numbers beside others, and one of them also when it is alone.

        The one alone is not among the few, so that no extreme sample, on which all others depend, is in both runs.
        """
        last = {edge for node in self.totals for edge in node.edges if edge in self.place}
        # Where they meet what they share, they must also lie in memory as the shapes let one believe.
        meetings = {n for n in self.place if n.op is not None and not all(edge in self.place for edge in n.edges)}
        tolerance = _tolerance(self.again.like)
        if not all(self.again.agrees(node, tolerance) for node in last | meetings):
            first = next(node for node in self.nodes if node in self.place and not self.again.agrees(node, tolerance))
            raise ValueError(
                f"the samples are mixed, or random numbers are drawn: {called(first)} gives a sample other numbers "
                f"when others are beside it (or the samples are the inner of two axes that were made one: they must be "
                f"the outer). {_ADVICE}"
            )
        i = np.setdiff1d(np.arange(self.batch), self.again.chosen)[:1]
        if not i.size:
            return
        with suppress(_OtherPathError):  # what is cut to another length cannot be compared
            alone = _Again(self.loss, run(i), self.batch, i, until=last)
            different = [called(node) for node in last if not alone.agrees(node, tolerance)]
            if different:
                raise ValueError(
                    f"the samples are mixed: what goes into the loss from {different[0]} is something else for sample "
                    f"{i[0]} when it is alone. {_ADVICE}"
                )


def _recorded(model: Module, loss_fn: LossFn, x: Any, y: Any) -> Node:
    with recording():
        loss = loss_fn(model, x, y)
    if not isinstance(loss, Tensor) or loss.size != 1:
        given = f"a tensor of shape {loss.shape}" if isinstance(loss, Tensor) else type(loss).__name__
        raise ValueError(f"loss_fn returns one number as a tensor (.sum() or .mean() of the samples'), not {given}")
    if loss._node is None:
        raise ValueError(
            "no parameter that requires a gradient leads to this loss: it is computed inside no_grad, or by a function "
            "of mg.compile, which runs backward by itself (use the function without it)"
        )
    return loss._node
