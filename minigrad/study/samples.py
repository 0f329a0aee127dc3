"""The gradient of each sample by itself, from one forward and one backward pass of the whole batch.

A gradient of a parameter is a sum over the places where the parameter is used, and in a batch each place belongs to one
sample. So the batch is recorded and pulled back as ever; only where something that all samples share (a parameter, or
what is computed from parameters alone) meets what belongs to single samples, the sum over the samples is left undone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from minigrad.engine import Node, backward_pass, is_leaf
from minigrad.kernels import layer_norm as layer_norm_kernel
from minigrad.kernels import self_attention as self_attention_kernel
from minigrad.kernels.linear import rows
from minigrad.nn.module import Module
from minigrad.ops.fused import layer_norm, linear, self_attention
from minigrad.ops.indexing import add_at, embedding
from minigrad.ops.linalg import matmul
from minigrad.study.sample_axes import (
    LossFn,
    Place,
    SampleGraph,
    batch_size,
    by_sample,
    called,
    one_sample,
    vectors,
)
from minigrad.study.walk import call_of
from minigrad.tensor import Tensor
from minigrad.transforms import vjp


def per_sample_grads(model: Module, loss_fn: LossFn, x: Any, y: Any) -> dict[str, np.ndarray]:
    """The gradient of every sample's own part of the loss, by parameter name: arrays (batch, *shape of the parameter).

    x, y: arrays with the samples along the first axis, or nested lists, tuples and dicts of such (masks go in there
    too); None stands for nothing. loss_fn(model, x, y) returns one number: the sum of terms that each belong to one
    sample, perhaps divided by a total (the mean). A sample's part is the sum of its terms, divided by the total of the
    whole batch; and so the sum over the samples is the gradient of the batch. A parameter that the loss does not reach
    has zeros, one that requires no gradient is left out. No `.grad` is touched.

    Raises ValueError, which names the call and its line, when samples have no loss of their own: the model mixes them
    (batch statistics), it draws random numbers (dropout: call model.eval() first), the loss is not a sum over samples,
    or it has a term without a sample (weight decay).

    >>> import numpy as np
    >>> from minigrad import nn
    >>> model = nn.Linear(2, 1, bias=False, dtype=float)
    >>> x = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> per_sample_grads(model, lambda model, x, y: model(x).mean(), x, None)["weight"]
    array([[[0.5],
            [1. ]],
    <BLANKLINE>
           [[1.5],
            [2. ]]])
    """
    parameters = {name: p._node for name, p in model.named_parameters() if p._node is not None}
    batch = batch_size(x, y)
    found = _pull_back(SampleGraph(model, loss_fn, x, y, batch)) if batch else {}
    return {
        name: found[node] if node in found else np.zeros((batch, *node.shape), node.dtype)
        for name, node in parameters.items()
    }


@dataclass(frozen=True)
class GradNoise:
    """How much the gradients of single samples differ; what `grad_noise` returns.

    Each sample, times the size of the batch, is an estimate of the batch's gradient G, which is their mean.

    norms: the length of each sample's estimate, (batch,). variance: of the estimates, unbiased, an array a parameter.
    signal_to_noise: |G| over the estimates' standard deviation, an array a parameter (inf where there is no noise, 0
    where there is no signal either). noise_scale: tr(variance) / |G|^2, the size of batch above which more samples
    hardly make a better gradient. cosine: between the gradients of each two samples, (batch, batch), NaN for one of
    length 0.
    """

    norms: np.ndarray
    variance: dict[str, np.ndarray]
    signal_to_noise: dict[str, np.ndarray]
    noise_scale: float
    cosine: np.ndarray


def grad_noise(per_sample: Mapping[str, np.ndarray]) -> GradNoise:
    """The noise in the gradients of samples that `per_sample_grads` returned: arrays (batch, *shape), by name.

    The noise scale is the simple one of McCandlish et al. 2018, arXiv:1812.06162, equation 2.9, with unbiased estimates
    of both of its parts (their appendix A.1): |mean|^2 alone is too large by tr(variance) / batch. It is inf when the
    batch is too small to tell G from 0. ValueError for fewer than two samples.

    >>> noise = grad_noise({"w": np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])})
    >>> noise.variance["w"], noise.noise_scale
    (array([3., 3.]), 1.0)
    """
    batches = {name: len(gradient) for name, gradient in per_sample.items()}
    batch = min(batches.values(), default=0)
    if batch < 2 or len(set(batches.values())) > 1:
        raise ValueError(f"noise is told from two samples or more, as many for each parameter, not from {batches}")
    estimates = {name: batch * np.asarray(gradient, float) for name, gradient in per_sample.items()}
    flat = [estimate.reshape(batch, -1) for estimate in estimates.values()]
    products = sum((each @ each.T for each in flat), np.zeros((batch, batch)))
    norms = np.sqrt(np.diag(products))
    variance = {name: estimate.var(0, ddof=1) for name, estimate in estimates.items()}
    trace = sum(float(v.sum()) for v in variance.values())
    signal = float(products.mean()) - trace / batch
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = {name: np.abs(e.mean(0)) / np.sqrt(variance[name]) for name, e in estimates.items()}
        cosine = products / np.outer(norms, norms)
    return GradNoise(
        norms=norms,
        variance=variance,
        signal_to_noise={name: np.where(np.isnan(ratio), 0.0, ratio) for name, ratio in ratios.items()},
        noise_scale=trace / signal if signal > 0 else math.inf,
        cosine=cosine,
    )


def _pull_back(graph: SampleGraph) -> dict[Node, np.ndarray]:
    """The gradient (batch, *shape) of every leaf."""
    leaves = {edge for node in graph.nodes for edge in node.edges if is_leaf(edge)}
    kept: dict[Node, np.ndarray] = {}
    for node in graph.nodes:
        if node.op is None:
            continue
        if node.notes is not None:
            node.notes.retain = False  # nobody reads the gradients that a recorded call keeps
        if node in graph.place and not all(edge in graph.place for edge in node.edges):
            node.op = _Meeting(graph, node, kept)
    backward_pass([(graph.loss, np.ones(graph.loss.shape, graph.loss.dtype))], inputs=leaves)
    found = {node: gradient for node, gradient in kept.items() if node in leaves}
    behind = {node: gradient for node, gradient in kept.items() if node not in leaves}
    for i in range(graph.batch if behind else 0):  # what is computed from parameters alone is small
        roots = [(node, gradient[i]) for node, gradient in behind.items()]
        for leaf, gradient in backward_pass(roots, inputs=leaves, retain=True).items():
            if leaf not in found:
                found[leaf] = np.zeros((graph.batch, *leaf.shape), leaf.dtype)
            found[leaf][i] += gradient
    return found


# --- where samples meet what they share --------------------------------------------------------------------------


class _Meeting:
    """The op of a call that takes both: going back, it keeps the gradients of what is shared, sample by sample."""

    gives_fresh, none_is_zero = False, True

    def __init__(self, graph: SampleGraph, node: Node, kept: dict[Node, np.ndarray]):
        self.graph, self.kept = graph, kept
        self.op, self.saved, self.place = node.op, node.saved, graph.place[node]
        self.plan, node.plan = node.plan, None  # or the pass would call the plan's rules itself
        self.call, self.like = call_of(node), graph.like(node)
        if isinstance(self.call.output, tuple):
            raise ValueError(f"{called(node)} has several outputs for what samples share: use an op that has one")

    def __repr__(self) -> str:
        return repr(self.op)

    def vjp(self, node: Node, g: np.ndarray, recorded: bool) -> list[np.ndarray | None]:
        shared = {position for edge, position in zip(node.edges, self.call.tracked) if edge not in self.graph.place}
        found = self._pull(node, g, shared)
        for edge, position in zip(node.edges, self.call.tracked):
            if position in shared:
                self._keep(edge, found[position])
        return [None if position in shared else found[position] for position in self.call.tracked]

    def _keep(self, edge: Node, gradient: np.ndarray) -> None:
        if edge in self.kept:
            self.kept[edge] += gradient
        else:
            self.kept[edge] = gradient.astype(edge.dtype, copy=False)

    def _pull(self, node: Node, g: np.ndarray, shared: set[int]) -> dict[int, Any]:
        """The gradient of each operand: (batch, *shape) if it is shared."""
        rule = _RULES.get(self.op)
        found = rule(self, g, shared) if rule is not None else None
        if found is not None:
            return found
        node.plan = self.plan
        found = dict(zip(self.call.tracked, self.op.vjp(node, g, False)))
        unsummed = {
            position: _sum_but_samples(found[position], edge.shape, g.ndim, self.place)
            for edge, position in zip(node.edges, self.call.tracked)
            if position in shared
        }
        if any(gradient is None for gradient in unsummed.values()):
            unsummed = self._sample_by_sample(g, shared)
        return {**found, **unsummed}

    def where(self, position: int) -> Place | None:
        """Where an argument has the samples."""
        shapes = [np.shape(call.arguments[position]) for call in (self.call, self.like)]
        return self.graph.again.place_of(*shapes)

    def vectors(self, position: int) -> np.ndarray | None:
        """An argument as (batch, vectors, width); None if it is shared."""
        place = self.where(position)
        return None if place is None else vectors(self.call.arguments[position], place)

    def _sample_by_sample(self, g: np.ndarray, shared: set[int]) -> dict[int, Any]:
        """The call repeated for each sample: slow, and right for every op."""
        pulled: list[dict[int, np.ndarray]] = []
        for i in range(self.graph.batch):
            arguments = [self._of_sample(a, b, i) for a, b in zip(self.call.arguments, self.like.arguments)]
            operands = arguments if self.op._sequence < 0 else arguments[self.op._sequence]
            _, pull = vjp(partial(self._repeat, arguments, operands), {p: operands[p] for p in shared})
            pulled += pull(one_sample(g, self.place, i))
        return {position: np.stack([each[position] for each in pulled]) for position in shared}

    def _repeat(self, arguments: list[Any], operands: list[Any], shared: dict[int, Any]) -> Tensor:
        for position, tracked in shared.items():
            operands[position] = tracked
        n = self.op._n_positional
        y: Tensor = self.op(*arguments[:n], **dict(zip(self.op._names[n:], arguments[n:])))
        return y

    def _of_sample(self, a: Any, b: Any, i: int) -> Any:
        """Sample i of an argument that is `a` for the batch and `b` for few samples; of numbers in it (shapes) too."""
        if isinstance(a, np.ndarray):
            place = self.graph.again.place_of(a.shape, b.shape)
            return a if place is None else one_sample(a, place, i)
        if type(a) in (list, tuple):
            return type(a)(self._of_sample(x, y, i) for x, y in zip(a, b))
        if type(a) is int and a != b:
            return a - (self.graph.batch - 1) * (a - b) // (self.graph.batch - len(self.graph.again.chosen))
        return a


def _sum_but_samples(g: np.ndarray, shape: tuple[int, ...], n_axes: int, place: Place) -> np.ndarray | None:
    """What a rule returned for an operand of `shape`, summed over the axes it was broadcast along, but the samples'.

    place: where the output, which has n_axes axes, has the samples. Returns (batch, *shape); None if the rule itself
    did the sum over the samples.
    """
    extra = g.ndim - len(shape)
    along = [i for i in range(g.ndim) if i < extra or g.shape[i] != shape[i - extra]]
    axis = g.ndim - n_axes + place.axis  # axes correspond from the right
    if axis not in along:
        return None
    summed = g.sum(tuple(i for i in along if i != axis), keepdims=True)
    each = by_sample(summed, Place(axis, place.block)).sum(1)
    return np.reshape(each, (len(each), *shape))


Rule: TypeAlias = Callable[[_Meeting, np.ndarray, "set[int]"], "dict[int, np.ndarray] | None"]


def _linear(at: _Meeting, g: np.ndarray, shared: set[int]) -> dict[int, np.ndarray] | None:
    _, weight, _, activation = at.call.arguments
    x = at.vectors(0)
    if x is None:
        return None
    if activation is not None:
        g = g * (at.call.output > 0)
    g_rows = vectors(g, at.place)
    return {0: _times(g, weight.T), 1: np.matmul(x.swapaxes(1, 2), g_rows), 2: g_rows.sum(1)}


def _matmul(at: _Meeting, g: np.ndarray, shared: set[int]) -> dict[int, np.ndarray] | None:
    weight = at.call.arguments[1]
    x = at.vectors(0)
    if x is None or shared != {1} or weight.ndim != 2:
        return None
    return {0: _times(g, weight.T), 1: np.matmul(x.swapaxes(1, 2), vectors(g, at.place))}


def _times(x: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """x @ matrix as one product, not one for each sample."""
    return np.reshape(rows(x) @ matrix, (*x.shape[:-1], matrix.shape[1]))


def _layer_norm(at: _Meeting, g: np.ndarray, shared: set[int]) -> dict[int, np.ndarray] | None:
    if at.where(0) is None:
        return None
    *_, (normal, inverse) = at.saved
    gx, *_ = layer_norm_kernel.backward(g, (normal, inverse), (True, False, False), *at.call.arguments)
    g_rows = vectors(g, at.place)
    return {0: gx, 1: np.einsum("bri,bri->bi", g_rows, vectors(normal, at.place)), 2: g_rows.sum(1)}


def _embedding(at: _Meeting, g: np.ndarray, shared: set[int]) -> dict[int, np.ndarray] | None:
    weight, ids, padding_idx = at.call.arguments
    place = at.where(1)
    if place is None:
        return None
    batch, (n, *row) = at.graph.batch, weight.shape
    own_ids = by_sample(np.asarray(ids), place).reshape(batch, -1) + n * np.arange(batch)[:, None]
    tables = np.zeros((batch, n, *row), weight.dtype)
    add_at(tables.reshape(batch * n, *row), own_ids, by_sample(g, at.place).reshape(*own_ids.shape, *row))
    if padding_idx is not None:
        tables[:, padding_idx] = 0
    return {0: tables}


def _self_attention(at: _Meeting, g: np.ndarray, shared: set[int]) -> dict[int, np.ndarray] | None:
    _, wq, wk, _, heads, _, bias, scale = at.call.arguments
    *_, residual = at.saved
    keys = wq.shape[1]
    scale = (keys / heads) ** -0.5 if scale is None else scale
    each = at.vectors(0)
    if each is None:
        return None
    wanted = (True, 6 in at.call.tracked)
    gprojected, gkeys, gbias = self_attention_kernel.to_projections(g, residual, wanted, keys, heads, scale)
    _, side_by_side, *_ = residual
    gx = _times(gprojected, side_by_side.T)
    if gkeys is not None:
        gx += gkeys
    weights = np.matmul(each.swapaxes(1, 2), vectors(gprojected, at.place))
    gwq, gwk, gwv = self_attention_kernel.to_weights(weights, wq, wk, residual)
    found: dict[int, Any] = {0: gx, 1: gwq, 2: gwk, 3: gwv}
    if gbias is None or 6 not in shared:
        return {**found, 6: gbias}
    unsummed = _sum_but_samples(gbias, bias.shape, gbias.ndim, at.place)
    return None if unsummed is None else {**found, 6: unsummed}


_RULES: Mapping[Any, Rule] = {
    linear: _linear,
    matmul: _matmul,
    layer_norm: _layer_norm,
    embedding: _embedding,
    self_attention: _self_attention,
}
