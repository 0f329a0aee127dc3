"""What is computed after training for a report: gradients by sample, attribution, a gradient check, the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

import minigrad as mg
from experiments.report.examples import Examples
from experiments.report.trace import doubled
from minigrad import nn, study
from minigrad.study.graphs import Graph
from minigrad.tensor import Tensor, lent, wrap
from models import SelfAttention

CHECKED = 3  # elements of each parameter in the gradient check
MOST_CHECKED = 40  # parameters that it goes over
STEPS = 10.0 ** -np.arange(1.0, 12.5, 0.5)  # of the curve of differences


@dataclass(frozen=True)
class Samples:
    """norms: of each sample's gradient, times the size of the batch; cosine: (batch, batch)."""

    norms: np.ndarray
    cosine: np.ndarray
    noise_scale: float
    names: list[str]


def samples(model: nn.Module, weights: Mapping[str, np.ndarray], batch: Examples, smoothing: float) -> Samples | None:
    """The gradients of single examples of one batch; None for a batch of one."""
    if len(batch.keys) < 2:
        return None
    model.load_state_dict(weights)

    def loss(model: nn.Module, x: Any, y: Any) -> Tensor:
        labels, counted = y
        logits = model(*x["inputs"], **x["keywords"])
        return nn.cross_entropy(logits, labels, mask=counted, label_smoothing=smoothing)

    x = {"inputs": batch.inputs, "keywords": batch.keywords}
    noise = study.grad_noise(study.per_sample_grads(model.eval(), loss, x, (batch.labels, batch.counted)))
    return Samples(noise.norms, noise.cosine, noise.noise_scale, [batch.title(i) for i in range(len(batch.keys))])


def gradients(
    model: nn.Module, weights: Mapping[str, np.ndarray], batch: Examples, smoothing: float
) -> dict[str, np.ndarray]:
    """The gradient of one batch by parameter, zeros where none arrives."""
    model.load_state_dict(weights)
    for p in model.parameters():
        p.grad = None
    batch.loss(batch.logits(model.eval(), {}), smoothing).backward()
    return {name: np.zeros(p.shape) if p.grad is None else p.grad.copy() for name, p in model.named_parameters()}


@contextmanager
def in_double(model: nn.Module, weights: Mapping[str, np.ndarray]) -> Iterator[None]:
    """Within it the model has these weights, in float64."""
    parameters = dict(model.named_parameters())
    with lent([parameters[name] for name in weights], [wrap(x, None) for x in doubled(weights).values()]):
        yield


# --- attribution -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attribution:
    """For each vector that the model reads a number from each method, and what it is that they explain."""

    explained: str
    names: list[str]
    methods: dict[str, np.ndarray]
    completeness_error: float
    tau: float | None
    tau_detached: float | None


def attribution(
    model: nn.Module, weights: Mapping[str, np.ndarray], example: Examples, query: int, labels: Sequence[str]
) -> Attribution:
    """What made the model say the label of one query (of the whole, where there is one label), in float64."""
    with in_double(model.eval(), weights):
        return _attribution(model, example, query, labels)


def _attribution(model: nn.Module, example: Examples, query: int, labels: Sequence[str]) -> Attribution:
    logits = model(*example.inputs, **example.keywords)
    whole = logits.ndim == 2
    at: tuple[Any, ...] = (slice(None),) if whole else (slice(None), query)
    said = int(logits.numpy()[at][0].argmax())

    def run() -> Tensor:
        now: Tensor = model(*example.inputs, **example.keywords)[at + (said,)]
        return now

    vectors, f = study.from_point(model, "source" if hasattr(model, "source") else "inputs", run)
    mean = vectors.mean(1, keepdims=True)  # not 0, around which a layer norm is not continuous
    integrated = study.integrated_gradients(f, vectors, mean)
    methods = {
        "saliency": study.saliency(f, vectors)[0],
        "input × gradient": study.input_x_gradient(f, vectors)[0],
        "integrated gradients": integrated.attributions[0],
        "leave one out": study.leave_one_out(f, vectors, mean)[0],
    }
    taus: list[float | None] = [None, None]
    path, asks = last_layer(model), None if whole else query
    if path is not None:
        name = f"{path}.attn"
        with study.capture(model, name, grad=False) as caught:
            run()
        seen = caught[name].value[0].mean(0)
        methods = {"attention": seen.mean(0) if asks is None else seen[asks], **methods}
        found = (study.attention_vs_gradient(f, vectors, model, name, detach=d, query=asks) for d in (False, True))
        taus = [float(tau[0]) for tau in found]
    place = example.part(0) or "the whole" if whole else f"“{example.queries[0][query]}” ({query + 1})"
    explained = f"the logit of {labels[said]} for {place}"
    return Attribution(explained, example.keys[0], methods, float(integrated.completeness_error[0]), *taus)


def last_layer(model: nn.Module) -> str | None:
    """The path of the last layer of attention that looks at what the model reads."""
    paths = [path for path, module in model.named_modules() if isinstance(module, SelfAttention)]
    crossing = [path for path in paths if path.endswith(".cross")]
    found = crossing or paths
    return found[-1] if found else None


# --- the gradient check ------------------------------------------------------------------------------------------


class DoubleLoss:
    """The loss of one example in float64, as a function of one parameter or of all. Not for several threads."""

    def __init__(self, model: nn.Module, weights: Mapping[str, np.ndarray], example: Examples, smoothing: float):
        self._model, self._example, self._smoothing = model.eval(), example, smoothing
        self._parameters = dict(model.named_parameters())
        self.weights = doubled(weights)

    def __call__(self, moved: Mapping[str, Any]) -> Tensor:
        """With other values for some parameters."""
        values = {name: mg.tensor(x) if not isinstance(x, Tensor) else x for name, x in moved.items()}
        tensors = [values[name] if name in values else wrap(x, None) for name, x in self.weights.items()]
        with lent([self._parameters[name] for name in self.weights], tensors):
            logits = self._model(*self._example.inputs, **self._example.keywords)
            return self._example.loss(logits, self._smoothing)


ROUNDING = 1e-12  # a gradient that is no larger is 0


@dataclass(frozen=True)
class Checked:
    """Some elements of one parameter's gradient, by their indices: from backward, and from differences of the loss."""

    name: str
    indices: list[tuple[int, ...]]
    analytic: np.ndarray
    numeric: np.ndarray
    wrong: np.ndarray

    @property
    def error(self) -> np.ndarray:
        """How far the two are apart, relative to the parameter's largest gradient: that is how gradcheck judges.

        (Where all its gradients are 0, but perhaps for rounding, as it is.)
        """
        largest = float(np.abs(self.analytic).max(initial=0.0, where=np.isfinite(self.analytic)))
        error: np.ndarray = np.abs(self.analytic - self.numeric) / (largest if largest > ROUNDING else 1.0)
        return np.where(np.isfinite(error), error, np.inf)


def check(loss: DoubleLoss) -> list[Checked]:
    """gradcheck by some elements of every parameter, from the largest of its gradients to the smallest."""
    gradient = mg.grad(loss)(loss.weights)
    found = []
    for name, g in list(gradient.items())[:MOST_CHECKED]:
        places = _spread(g)
        result = mg.gradcheck(_of_elements(loss, name, places), _chosen(loss, name, places), raise_exception=False)
        indices = [tuple(map(int, np.unravel_index(place, g.shape))) for place in places]
        found += [Checked(name, indices, one.analytic, one.numeric, one.wrong) for one in result.inputs]
    return found


def _of_elements(loss: DoubleLoss, name: str, places: np.ndarray) -> Callable[[Tensor], Tensor]:
    whole = loss.weights[name]

    def of_elements(values: Tensor) -> Tensor:
        return loss({name: mg.reshape(mg.index_put(mg.reshape(whole, (-1,)), places, values), whole.shape)})

    return of_elements


def _chosen(loss: DoubleLoss, name: str, places: np.ndarray) -> np.ndarray:
    chosen: np.ndarray = loss.weights[name].reshape(-1)[places]
    return chosen


def _spread(gradient: np.ndarray) -> np.ndarray:
    order = np.argsort(-np.abs(gradient).reshape(-1), kind="stable")
    order = order[: max(1, np.count_nonzero(gradient))]  # of an embedding, the rows that were read
    return np.unique(order[np.linspace(0, len(order) - 1, min(CHECKED, len(order))).astype(int)])


def step_curve(loss: DoubleLoss) -> np.ndarray:
    """The error of the central difference along one random direction, by the slope there, for each of STEPS."""
    rng = np.random.default_rng(0)
    gradient = mg.grad(loss)(loss.weights)
    direction = {
        name: rng.standard_normal(x.shape) * np.abs(x).mean() * (gradient[name] != 0)
        for name, x in loss.weights.items()
    }
    slope = sum(float(np.vdot(gradient[name], direction[name])) for name in direction)

    @mg.no_grad()
    def moved(step: float) -> float:
        return float(loss({name: x + step * direction[name] for name, x in loss.weights.items()}).item())

    return np.array(
        [abs((moved(h) - moved(-h)) / (2 * h) - slope) / (abs(slope) if abs(slope) > ROUNDING else 1.0) for h in STEPS]
    )


# --- the graph ---------------------------------------------------------------------------------------------------


def graph(model: nn.Module, weights: Mapping[str, np.ndarray], example: Examples, smoothing: float) -> Graph:
    """The recorded computation of the loss of one example, with its gradients."""
    model.load_state_dict(weights)
    for p in model.parameters():
        p.grad = None
    with study.recording():
        loss = example.loss(model.eval()(*example.inputs, **example.keywords), smoothing)
    loss.backward()
    return study.graph(loss, model)
