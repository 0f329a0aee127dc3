"""One example through one self-attention layer, forward and backward, in float64: every operand and every gradient.

Everything is computed by minigrad itself, on a float64 copy of the weights, and captured at the layer's hook points.
Beside the gradients stand central differences of the loss, for the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import minigrad as mg
from experiments.report.examples import Examples
from minigrad import nn
from minigrad.nn.module import functional_call
from minigrad.tensor import Tensor
from models import SelfAttention
from models.attention_stack import Block

POINTS = ("x", "q", "k", "v", "scores", "attn", "out")
PATHS = ("query", "key", "value")  # the three ways in which a vector enters the layer
FEATURED = 4  # components of the vectors, and of
COMPONENTS = 4  # each head's queries, keys and values, of which a report keeps the weights
STEP, FINE_STEP = 1e-6, 1e-8
KINK = 5e-7  # a finer step sees another slope: more than it would by rounding
ROWS = 256  # examples with one number moved, computed as one batch


@dataclass
class LayerTrace:
    """One layer's numbers, without a batch axis. `values` and `grads` have the same names:

    x (n, dim) the vectors that ask, context (m, dim) those that are asked; q, k, v (heads, n, width); scores (before a
    mask) and attn (heads, query, key); b (n, heads * width) the heads' answers side by side; out (n, dim) the layer's
    output; input (n, dim) what entered the block, before its norm. Among the gradients stand also those of x by way of
    `query`, of the context by way of `key` and `value`, and of the input by way of the `norm`.
    """

    path: str
    block: str
    heads: int
    key_dim: int
    scale: float
    cross: bool
    clip: int | None
    norm: str | None
    residual: bool
    values: dict[str, np.ndarray] = field(default_factory=dict)
    grads: dict[str, np.ndarray] = field(default_factory=dict)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    weight_grads: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def around(self) -> bool:
        """Whether x itself is what goes around the layer: a residual path and no norm before the layer."""
        return self.residual and self.norm is None

    @property
    def featured(self) -> list[int]:
        """The components of the vectors to which the loss is most sensitive."""
        return _largest(np.abs(self.grads["x"]).mean(0), FEATURED)

    @property
    def components(self) -> list[list[int]]:
        """For each head, the components of its queries, keys and values to which the loss is most sensitive."""
        width = min(self.key_dim, self.values["v"].shape[-1])
        sizes = [np.abs(self.grads[name][..., :width]).mean(1) for name in ("q", "k", "v")]
        shares = sum(size / np.maximum(size.sum(-1, keepdims=True), 1e-300) for size in sizes)
        return [_largest(row, COMPONENTS) for row in np.asarray(shares)]

    def kept(self, array: np.ndarray) -> np.ndarray:
        """(..., heads * width) as (..., heads, components): those of each head that are kept."""
        split = array.reshape(*array.shape[:-1], self.heads, -1)
        return np.stack([split[..., h, own] for h, own in enumerate(self.components)], -2)


def _largest(sizes: np.ndarray, count: int) -> list[int]:
    return sorted(int(i) for i in np.argsort(-sizes, kind="stable")[:count])


@dataclass(frozen=True)
class Trace:
    """loss; for each label that counts the logarithms of the probabilities (labels, classes), and where it stands."""

    loss: float
    log_probabilities: np.ndarray
    places: np.ndarray
    layers: list[LayerTrace]


def doubled(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same weights in float64, exactly."""
    return {name: array.astype(np.float64) for name, array in weights.items()}


def walkable(model: nn.Module) -> list[str]:
    """The paths of the self-attention layers that the walk knows: dot-product scores, softmax, inside a Block."""
    modules = dict(model.named_modules())
    return [
        path
        for path, layer in modules.items()
        if isinstance(layer, SelfAttention)
        and layer.score != "additive"
        and layer.normalise == "softmax"
        and isinstance(modules.get(path.rpartition(".")[0]), Block)
    ]


def trace(model: nn.Module, weights: Mapping[str, np.ndarray], example: Examples, smoothing: float) -> Trace:
    """All walkable layers of the model on one example, in eval mode and float64."""
    model.eval()
    parameters = {name: mg.tensor(array, requires_grad=True) for name, array in doubled(weights).items()}
    layers = [_layer(model, path) for path in walkable(model)]
    with ExitStack() as stack:
        captures = [stack.enter_context(_capturing(model, layer)) for layer in layers]
        logits = example.logits(model, parameters)
        loss = example.loss(logits, smoothing)
        loss.backward()
    for layer, seen in zip(layers, captures):
        _fill(layer, seen, parameters)
        if layer.norm is not None:
            layer.grads["norm"] = _back_through_norm(dict(model.named_modules())[layer.norm], layer, parameters)
    counted = np.ones(logits.shape[:-1], bool) if example.counted is None else example.counted
    log_probabilities = mg.log_softmax(logits.detach()).numpy()[counted]
    return Trace(loss.item(), log_probabilities, np.argwhere(counted)[:, -1], layers)


def _layer(model: nn.Module, path: str) -> LayerTrace:
    modules = dict(model.named_modules())
    attention, above = modules[path], path.rpartition(".")
    block = modules[above[0]]
    assert isinstance(attention, SelfAttention)
    assert isinstance(block, Block)
    cross = above[2] == "cross"
    norm = None if block.norms is None else f"{above[0]}.norms.{1 if cross else 0}"
    clip = attention.positions.clip if attention.positions is not None else None
    return LayerTrace(
        path=path,
        block=above[0],
        heads=attention.heads,
        key_dim=attention.key_dim,
        scale=attention._scale(),
        cross=cross,
        clip=clip,
        norm=norm,
        residual=block.residual,
    )


@contextmanager
def _capturing(model: nn.Module, layer: LayerTrace) -> Iterator[dict[str, Any]]:
    """In the with block a dict that gets the layer's tensors, and under `name.grad` arrays of gradients."""
    modules = dict(model.named_modules())
    attention: Any = modules[layer.path]
    seen: dict[str, Any] = {}

    def keep(name: str) -> Callable[[Tensor], None]:
        return lambda x: _retain(seen, name, x)

    def keep_input(name: str) -> Callable[[Any, tuple[Any, ...], Any], None]:
        return lambda module, inputs, output: _retain(seen, name, inputs[0])

    def keep_gradient(name: str) -> Callable[[Any, tuple[Any, ...], Any], None]:
        return lambda module, grad_input, grad_output: seen.__setitem__(f"{name}.grad", np.array(grad_input[0]))

    hooks = [attention.register_point_hook(point, keep(point)) for point in POINTS]
    hooks += [getattr(attention, path).register_full_backward_hook(keep_gradient(path)) for path in PATHS]
    hooks.append(attention.key.register_forward_hook(keep_input("context")))
    if attention.output is not None:
        hooks.append(attention.output.register_forward_hook(keep_input("b")))
    if layer.norm is not None:
        hooks.append(modules[layer.norm].register_forward_hook(keep_input("input")))
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def _retain(seen: dict[str, Any], name: str, x: Tensor) -> None:
    x.retain_grad()
    seen[name] = x


def _fill(layer: LayerTrace, seen: dict[str, Any], parameters: Mapping[str, Tensor]) -> None:
    for name, x in seen.items():
        if isinstance(x, np.ndarray):
            layer.grads[name.removesuffix(".grad")] = x[0]
        else:
            layer.values[name] = x.numpy()[0].copy()
            layer.grads[name] = np.zeros(x.shape[1:]) if x.grad is None else x.grad[0].copy()
    if "b" not in layer.values:  # one head has no output projection
        layer.values["b"], layer.grads["b"] = layer.values["out"], layer.grads["out"]
    names = {name: f"{layer.path}.{name}.weight" for name in (*PATHS, "output")} | {
        "table": f"{layer.path}.positions.table"
    }
    for name, full in names.items():
        if full in parameters:
            layer.weights[name] = parameters[full].numpy().copy()
            grad = parameters[full].grad
            layer.weight_grads[name] = np.zeros(parameters[full].shape) if grad is None else grad.copy()


def _back_through_norm(norm: nn.Module, layer: LayerTrace, parameters: Mapping[str, Tensor]) -> np.ndarray:
    """(n, dim): what the gradient of x is for the vectors before the norm."""
    own = {name: parameters[f"{layer.norm}.{name}"].numpy() for name, _ in norm.named_parameters()}
    _, pull = mg.vjp(lambda x: functional_call(norm, own, x), layer.values["input"])
    (gradient,) = pull(layer.grads["x"])
    return np.array(gradient)


# --- differences of the loss -------------------------------------------------------------------------------------


class Differences:
    """The loss of one example as a function of numbers inside one layer, and its slopes by central differences."""

    def __init__(
        self,
        model: nn.Module,
        weights: Mapping[str, np.ndarray],
        example: Examples,
        smoothing: float,
        layer: LayerTrace,
    ):
        self._model, self._example, self._smoothing, self._layer = model.eval(), example, smoothing, layer
        self._weights = doubled(weights)
        self._modules: dict[str, Any] = dict(model.named_modules())
        self._base = self._losses("out", np.zeros((1, *layer.values["out"].shape)))[0]

    def slopes(self, point: str, directions: np.ndarray) -> np.ndarray:
        """(r,): how fast the loss changes when the value at `point` moves along each of `directions` (r, *shape).

        The step is 1e-6, or 1e-8 where both sides disagree and that sees another slope: a ReLU lies between them there.
        """
        return np.concatenate(
            [self._slopes(point, directions[i : i + ROWS]) for i in range(0, len(directions), ROWS)] or [np.zeros(0)]
        )

    def _slopes(self, point: str, directions: np.ndarray) -> np.ndarray:
        above, below = np.split(self._losses(point, np.concatenate([directions, -directions]) * STEP), 2)
        slopes: np.ndarray = (above - below) / (2 * STEP)
        (bent,) = np.nonzero(np.abs(above + below - 2 * self._base) > STEP * STEP)
        if len(bent):
            chosen = directions[bent]
            above, below = np.split(self._losses(point, np.concatenate([chosen, -chosen]) * FINE_STEP), 2)
            fine = (above - below) / (2 * FINE_STEP)
            slopes[bent] = np.where(np.abs(fine - slopes[bent]) > KINK, fine, slopes[bent])
        return slopes

    @mg.no_grad()
    def _losses(self, point: str, moves: np.ndarray) -> np.ndarray:
        """(r,): the loss when `moves` (r, *shape) are added to the value at the point."""
        many = self._example.repeated(len(moves))
        with self._moved(point, moves):
            losses = many.loss(many.logits(self._model, self._weights), self._smoothing, "none").numpy()
        count = 1 if self._example.counted is None else int(self._example.counted.sum())
        total: np.ndarray = losses.reshape(len(moves), -1).sum(1) / count
        return total

    @contextmanager
    def _moved(self, point: str, moves: np.ndarray) -> Iterator[None]:
        layer, attention = self._layer, self._modules[self._layer.path]

        def again(module: Any, inputs: tuple[Any, ...], output: Any) -> Any:
            return module.forward(inputs[0] + moves)

        if point == "input" or (point == "x" and layer.around):  # it enters by way of the norm, and around the layer
            into = self._modules[layer.norm] if layer.norm else None
            hooks = [
                attention.register_point_hook("x", lambda x: x + moves)
                if into is None
                else into.register_forward_hook(again)
            ]
            hooks.append(attention.register_point_hook("out", lambda x: x + moves))
        elif point == "b" and attention.output is not None:
            hooks = [attention.output.register_forward_hook(again)]
        else:
            hooks = [attention.register_point_hook("out" if point == "b" else point, lambda x: x + moves)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def check(differences: Differences, layer: LayerTrace) -> dict[str, np.ndarray]:
    """For every gradient that the walk shows, by its name: the difference of the loss that it must equal.

    Of q, k, v and b the kept components of each head, of vectors of width dim the featured ones. `rows` is the slope
    when a query's weights are all scaled by 1 + h (which is the sum that softmax's gradient subtracts), `shifts` when h
    is added to all its scores (0).
    """
    found = {name: _each(differences, name, layer.values[name]) for name in ("scores", "attn")}
    for name in ("q", "k", "v", "b"):
        found[name] = _each(differences, name, layer.values[name], kept_places(layer, name))
    attn = layer.values["attn"]
    rows = np.zeros((attn[..., 0].size, *attn.shape))
    for r, (h, i) in enumerate(np.ndindex(attn.shape[:2])):
        rows[r, h, i] = 1
    found["rows"] = differences.slopes("attn", rows * attn).reshape(attn.shape[:2])
    found["shifts"] = differences.slopes("scores", rows).reshape(attn.shape[:2])
    for name in ("x", "out", "input"):
        if name in layer.values:
            found[name] = _each(differences, name, layer.values[name], featured_places(layer, name))
    for path, point in zip(PATHS, ("q", "k", "v")):
        found[f"{path}.weight"] = _by_weight(differences, layer, path, point)
        found[path] = _by_path(differences, layer, path, point)
    if "table" in layer.weights:
        found["table"] = _by_distance(differences, layer)
    return found


def _places(value: np.ndarray) -> np.ndarray:
    return np.arange(value.size).reshape(value.shape)


def kept_places(layer: LayerTrace, name: str) -> np.ndarray:
    """Where in the flattened q, k or v (heads, n, components), or b (n, heads, components), the kept numbers stand."""
    places = _places(layer.values[name])
    if name == "b":
        return layer.kept(places)
    return np.stack([places[h][:, own] for h, own in enumerate(layer.components)])


def featured_places(layer: LayerTrace, name: str) -> np.ndarray:
    """Where in the flattened vectors (n, featured) the featured components stand."""
    return _places(layer.values[name])[:, layer.featured]


def largest_gap(layer: LayerTrace, found: Mapping[str, np.ndarray]) -> float:
    """The largest difference between what `check` found and the gradients that backward computed."""
    return max(float(np.abs(array - gradient_of(layer, name)).max()) for name, array in found.items())


def gradient_of(layer: LayerTrace, name: str) -> np.ndarray:
    """The gradient that an entry of `check` must equal."""
    gradient: np.ndarray
    if name == "rows":
        gradient = (layer.values["attn"] * layer.grads["attn"]).sum(-1)
    elif name == "shifts":
        gradient = layer.grads["scores"].sum(-1)
    elif name == "table":
        gradient = layer.weight_grads[name]
    elif name.endswith(".weight"):
        gradient = layer.kept(layer.weight_grads[name.removesuffix(".weight")][layer.featured])
    elif name in ("x", "out", "input", *PATHS):
        gradient = layer.grads[name][:, layer.featured]
    elif name in ("q", "k", "v", "b"):
        gradient = layer.grads[name].reshape(-1)[kept_places(layer, name)]
    else:
        gradient = layer.grads[name]
    return gradient


def _each(differences: Differences, point: str, value: np.ndarray, places: np.ndarray | None = None) -> np.ndarray:
    """A slope for every number of a value, or for those at some places of the flattened value."""
    places = _places(value) if places is None else places
    directions = np.zeros((places.size, value.size))
    directions[np.arange(places.size), places.ravel()] = 1
    return differences.slopes(point, directions.reshape(-1, *value.shape)).reshape(places.shape)


def _source(layer: LayerTrace, path: str) -> np.ndarray:
    """The vectors that a projection reads."""
    return layer.values["x" if path == "query" else "context"]


def _by_weight(differences: Differences, layer: LayerTrace, path: str, point: str) -> np.ndarray:
    """(featured, heads, components): W moved at [d, c] by h moves component c of every projection by h a[d]."""
    heads, n, width = layer.values[point].shape
    source, kept = _source(layer, path), layer.components
    directions = np.zeros((len(layer.featured), heads, len(kept[0]), heads, n, width))
    for f, d in enumerate(layer.featured):
        for h, own in enumerate(kept):
            for k, c in enumerate(own):
                directions[f, h, k, h, :, c] = source[:, d]
    flat = directions.reshape(-1, heads, n, width)
    return differences.slopes(point, flat).reshape(directions.shape[:3])


def _by_path(differences: Differences, layer: LayerTrace, path: str, point: str) -> np.ndarray:
    """(n, featured): a vector's component moved in the eyes of one projection alone."""
    heads, n, width = layer.values[point].shape
    rows = layer.weights[path][layer.featured].reshape(-1, heads, width)
    directions = np.zeros((n, len(rows), heads, n, width))
    for i in range(n):
        directions[i, :, :, i] = rows
    return differences.slopes(point, directions.reshape(-1, heads, n, width)).reshape(n, len(rows))


def distances(n_query: int, n_key: int, clip: int) -> np.ndarray:
    """(query, key): the column of the table of position biases that each pair reads."""
    distance = np.arange(n_key) - np.arange(n_query)[:, None] - (n_key - n_query)
    columns: np.ndarray = np.clip(distance, -clip, clip) + clip
    return columns


def _by_distance(differences: Differences, layer: LayerTrace) -> np.ndarray:
    """(heads, distances): a position bias moved."""
    assert layer.clip is not None
    heads, columns = layer.weights["table"].shape
    _, n_query, n_key = layer.values["scores"].shape
    where = distances(n_query, n_key, layer.clip)
    directions = np.zeros((heads, columns, *layer.values["scores"].shape))
    for h, column in np.ndindex(heads, columns):
        directions[h, column, h][where == column] = 1
    flat = directions.reshape(-1, *layer.values["scores"].shape)
    return differences.slopes("scores", flat).reshape(heads, columns)
