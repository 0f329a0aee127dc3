"""What a report needs to know of a training, noted down while it runs, and the time that this takes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import minigrad as mg
from experiments.report.examples import Examples, batch, label_names, probes
from experiments.task import Task
from experiments.writing import written
from minigrad import saving
from minigrad.study import capture
from models import SelfAttention

if TYPE_CHECKING:
    from experiments.training import Training

INITIAL, RECORDING = "initial.npz", "recording.npz"
NOTED = 30  # steps whose gradients and updates are measured
SCORED = 16  # examples of each kind whose loss is measured after every epoch
BETWEEN = 2  # snapshots of attention between the first and the last


class Recorder:
    """Notes the sizes of gradients and updates, scores, and attention; `seconds` is the time spent in here.

    It takes at most 3 % of a training with the default settings.

    Files: initial.npz, the weights before training and the examples that the report looks at; recording.npz, the rest,
    which is in the training's checkpoints meanwhile.
    """

    def __init__(self, task: Task, path: Path):
        self.path = path
        self.seconds = 0.0
        self.steps: list[int] = []
        self.sizes: list[np.ndarray] = []  # at each of these steps (measures, parameters): see MEASURES
        self.broken = [0] * len(task.model.parameters())  # elements of each gradient that were NaN or infinite
        self.scores: list[list[float]] = []  # after each epoch: see SCORES
        self.attention: dict[str, list[dict[str, np.ndarray]]] = {}  # by epoch, for each probe, by layer
        with self._timed():
            if not (path / INITIAL).exists():
                self._begin(task, path / INITIAL)
            begun = saving.load_checkpoint(path / INITIAL)
        self._probes = [Examples.from_state(state) for state in begun["probes"]]
        self._batches = [Examples.from_state(begun[name]).first(SCORED) for name in ("batch", "training_batch")]
        self._epochs = _spread(task.settings.epochs)

    @staticmethod
    def _begin(task: Task, path: Path) -> None:
        state = {
            "weights": task.model.state_dict(),
            "probes": [example.to_state() for example in probes(task)],
            "batch": batch(task).to_state(),
            "training_batch": batch(task, "train").to_state(),
            "labels": label_names(task),
        }
        with written(path):
            saving.save_checkpoint(path, state)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - started

    def step(self, training: Training, number: int, norm: float) -> None:
        """The optimizer's step, number `number` from 0; at some, what it does to each parameter is noted.

        norm: of all gradients together, before they were clipped.
        """
        if number % max(1, training.steps // NOTED):
            training.optimizer.step()
            return
        with self._timed():
            parameters = training.task.model.parameters()
            before = [p.numpy().copy() for p in parameters]
            clipped = max(1.0, norm / training.task.settings.clip)
        training.optimizer.step()
        with self._timed():
            self.steps.append(number)
            rows = [_measure(p, old, clipped) for p, old in zip(parameters, before)]
            self.sizes.append(np.array([row[: len(MEASURES)] for row in rows], np.float64).T)
            self.broken = [count + int(row[-1]) for count, row in zip(self.broken, rows)]

    def epoch(self, training: Training) -> None:
        """Losses and scores of one batch of each kind, and at some epochs who attends to whom."""
        with self._timed(), mg.no_grad():
            task = training.task
            task.model.eval()
            self.scores.append([x for some in self._batches for x in _score(task, some)])
            if training.epoch in self._epochs:
                self.attention[str(training.epoch)] = [attention(task, probe) for probe in self._probes]

    def state_dict(self) -> dict[str, Any]:
        return {
            "seconds": self.seconds,
            "steps": self.steps,
            "sizes": self.sizes,
            "broken": self.broken,
            "scores": self.scores,
            "attention": self.attention,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.seconds += state["seconds"]
        self.steps, self.sizes, self.scores = state["steps"], state["sizes"], state["scores"]
        self.broken, self.attention = state["broken"], state["attention"]

    def finish(self) -> None:
        """Write recording.npz."""
        with self._timed(), written(self.path / RECORDING):
            saving.save_checkpoint(self.path / RECORDING, self.state_dict())


MEASURES = ("norm of the gradient", "norm of the update by that of the weight")
SCORES = ("held-out loss", "held-out accuracy", "training loss", "training accuracy")


def _measure(p: mg.Tensor, old: np.ndarray, clipped: float) -> tuple[float, float, float]:
    """MEASURES of one parameter, NaN for a gradient that is not there, and how much of it is not finite."""
    ratio = _norm(p.numpy() - old) / (_norm(old) or np.inf)
    g = p.grad
    if g is None:
        return np.nan, ratio, 0.0
    size = _norm(g) * clipped
    return size, ratio, 0.0 if np.isfinite(size) else float(np.count_nonzero(~np.isfinite(g)))


def _norm(x: np.ndarray) -> float:
    return float(np.sqrt(np.vdot(x, x)))


def _score(task: Task, examples: Examples) -> tuple[float, float]:
    """The loss, and the share of labels that are right when those before them are given."""
    logits = examples.logits(task.model, {})
    loss = examples.loss(logits, task.settings.label_smoothing).item()
    right = np.equal(logits.numpy().argmax(-1), examples.labels)
    counted = right if examples.counted is None else right[examples.counted]
    return loss, float(counted.mean())


def attention(task: Task, probe: Examples) -> dict[str, np.ndarray]:
    """The weights (heads, query, key) of every layer of attention, by its path."""
    if not any(isinstance(module, SelfAttention) for module in task.model.modules()):
        return {}
    with capture(task.model, "*.attn", grad=False) as caught:
        probe.logits(task.model, {})
    return {name.removesuffix(".attn"): point.value[0].copy() for name, point in caught.items()}


def _spread(epochs: int) -> list[int]:
    """A few epochs before the last, dense at the beginning, where most happens."""
    last = max(epochs, 1)
    chosen = {round(last ** (k / (BETWEEN + 1))) for k in range(1, BETWEEN + 1)}
    return sorted(epoch for epoch in chosen if epoch < last)
