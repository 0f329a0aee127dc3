"""The training loop that all scenarios share: epochs of shuffled batches, dev scores, best weights, checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from tqdm import tqdm

import minigrad as mg
from experiments.report.recorder import Recorder
from experiments.task import Task
from minigrad import nn, optim
from minigrad import random as mg_random


class Training:
    """All that changes while a model is trained; a checkpoint holds all of it: resuming changes nothing."""

    def __init__(self, task: Task, recorder: Recorder | None = None):
        s = task.settings
        self.task, self.recorder = task, recorder
        self.rng = np.random.default_rng([s.seed, 1])
        self.steps = steps = s.epochs * len(task.batches(np.random.default_rng([s.seed, 2])))
        self.optimizer = optim.AdamW(_groups(task.model, s.weight_decay), lr=s.lr, betas=(0.9, s.beta2))
        warmup = min(round(s.warmup * steps), steps - 1)
        self.schedule = optim.Schedule(self.optimizer, decay=s.decay, warmup=warmup, total=steps)
        self.average = optim.ExponentialAverage(task.model.parameters(), s.average) if s.average else None
        self._loss_and_gradients = mg.compile(task.loss)
        self.history: list[dict[str, float | None]] = []
        self.best_weights = task.model.state_dict()
        self.best_epoch = 0
        self.seconds = 0.0

    @property
    def epoch(self) -> int:
        return len(self.history)

    def run(self, save: Callable[[Training], None]) -> None:
        """Train until the epochs are done or dev has stopped getting better; save(self) after every epoch."""
        s = self.task.settings
        with tqdm(total=s.epochs, initial=self.epoch, desc=s.model, unit="epoch", dynamic_ncols=True) as bar:
            while self.epoch < s.epochs and self.epoch - self.best_epoch < s.patience:
                started = time.perf_counter()
                loss = self._train_epoch(bar)
                scores = self._score()
                self.seconds += time.perf_counter() - started
                row = {"epoch": self.epoch + 1, "loss": loss, "lr": self.optimizer.groups[0]["lr"], **scores}
                self.history.append({**row, "seconds": self.seconds})
                self._keep_if_best()
                if self.recorder is not None:
                    self.recorder.epoch(self)
                save(self)
                bar.update()
                bar.set_postfix({"loss": f"{loss:.3f}", **_shown(scores)})
        self.task.model.load_state_dict(self.best_weights)

    def _train_epoch(self, bar: tqdm[Any]) -> float:
        """The mean loss over one epoch's batches."""
        model, s = self.task.model.train(), self.task.settings
        parameters = model.parameters()
        batches = self.task.batches(self.rng)
        losses = 0.0
        for i, batch in enumerate(batches):
            self.optimizer.zero_grad()
            loss = self._loss_and_gradients(*self.task.arrays(batch, self.rng))
            norm = optim.clip_grad_norm(parameters, s.clip, error_if_nonfinite=True)
            if self.recorder is None:
                self.optimizer.step()
            else:
                self.recorder.step(self, self.epoch * len(batches) + i, norm)
            self.schedule.step()
            if self.average is not None:
                self.average.update()
            losses += loss.item()
            if i % 20 == 0:
                bar.set_postfix(loss=f"{losses / (i + 1):.3f}", batch=f"{i + 1}/{len(batches)}")
        return losses / len(batches)

    def _score(self) -> dict[str, float | None]:
        """Dev scores of the weights that would be kept: the averaged ones, where there are any."""
        self.task.model.eval()
        if "dev" not in self.task.splits:
            return {}
        if self.average is None:
            return self.task.evaluate("dev")
        with self.average.applied():
            return self.task.evaluate("dev")

    def _keep_if_best(self) -> None:
        sign = 1 if self.task.higher_is_better else -1
        scores = [sign * (row.get(self.task.score_name) or 0.0) for row in self.history]
        if "dev" in self.task.splits and len(scores) > 1 and scores[-1] <= max(scores[:-1]):
            return
        self.best_epoch = self.epoch
        if self.average is None:
            self.best_weights = self.task.model.state_dict()
        else:
            with self.average.applied():
                self.best_weights = self.task.model.state_dict()

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self.task.model.state_dict(),
            "best_weights": self.best_weights,
            "best_epoch": self.best_epoch,
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "average": self.average.state_dict() if self.average is not None else None,
            "history": self.history,
            "seconds": self.seconds,
            "recorder": self.recorder.state_dict() if self.recorder is not None else None,
            "rng": mg_random.get_state(self.rng),
            "minigrad_rng": mg_random.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.task.model.load_state_dict(state["model"])
        self.best_weights, self.best_epoch = state["best_weights"], state["best_epoch"]
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.history, self.seconds = state["history"], state["seconds"]
        if self.recorder is not None:
            self.recorder.load_state_dict(state["recorder"])
        mg_random.set_state(state["rng"], self.rng)
        mg_random.set_state(state["minigrad_rng"])


def _groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Matrices of products decay; embeddings, biases and norms do not."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    decayed = [p for p in model.parameters() if p.ndim >= 2 and id(p) not in tables]
    spared = [p for p in model.parameters() if p.ndim < 2 or id(p) in tables]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": spared, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def _shown(scores: dict[str, float | None]) -> dict[str, str]:
    return {name: f"{value:.3f}" for name, value in scores.items() if value is not None}
