"""What a scenario gives to the shared parts: the training loop, the run directory, the command line, the pictures."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

import minigrad as mg
from experiments.data.errors import DataError
from experiments.data.files import read_texts
from experiments.settings import Settings, UsageError
from minigrad import nn
from models import AttentionStack, FCStack, WindowFC

Metrics = dict[str, float | None]
LONGEST = 512  # how many vectors learned positions reach
DRAWN = 64  # vectors of the example that is drawn, at most


class Drawn(NamedTuple):
    """One input to be drawn: the model's arguments, and the names of the queries and of the keys.

    part: in words, which part of a sequence it is; "" if it is the whole.
    """

    args: tuple[Any, ...]
    keywords: dict[str, Any]
    queries: Sequence[str]
    keys: Sequence[str]
    part: str = ""


class Labeller(ABC):
    """A model, and what it takes to read inputs and to name labels: all that labelling new input needs."""

    model: nn.Module

    @abstractmethod
    def predict(self, given: str) -> list[str]:
        """Lines that say what new input (a text, or a file's name) is labelled with."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Vocabularies and the like, from which from_json makes an equal one."""

    @classmethod
    @abstractmethod
    def from_json(cls, settings: Any, state: Mapping[str, Any]) -> Labeller:
        """With newly initialised weights."""


class Task(ABC):
    """A labeller, and the data that it is trained and tested on: splits "train", and perhaps "dev" and "test"."""

    scenario: ClassVar[str]
    settings_class: ClassVar[type[Settings]]
    labeller_class: ClassVar[type[Labeller]]
    defaults: ClassVar[Mapping[str, Any]]  # by the training file's suffix; "" is the embedded data
    score_name: ClassVar[str]  # the dev metric that tells which weights are best
    higher_is_better: ClassVar[bool]

    settings: Any
    splits: Mapping[str, Any]
    labeller: Any

    @property
    def model(self) -> nn.Module:
        model: nn.Module = self.labeller.model
        return model

    @classmethod
    @abstractmethod
    def embedded(cls, settings: Any) -> Task:
        """On data that the project generates."""

    @classmethod
    @abstractmethod
    def from_splits(cls, settings: Any, splits: Mapping[str, Any], suffix: str) -> Task:
        """On data read from files of that suffix."""

    @abstractmethod
    def batches(self, rng: np.random.Generator) -> list[np.ndarray]:
        """One epoch's batches, as indices of training examples."""

    @abstractmethod
    def arrays(self, batch: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray | None, ...]:
        """The arguments of loss() for a batch, in which examples may be changed at random."""

    @abstractmethod
    def loss(self, *arrays: Any) -> mg.Tensor:
        """The mean loss, recorded. It runs compiled: all that changes from batch to batch is an argument."""

    @abstractmethod
    def evaluate(self, split: str) -> Metrics:
        """The scores on "dev" or "test"."""

    @abstractmethod
    def unknown_labels(self, split: str) -> int:
        """How many labels of a split train does not have; they count as wrong."""

    @abstractmethod
    def summary(self, metrics: Metrics) -> str:
        """The scores in words."""

    @abstractmethod
    def example(self) -> Drawn:
        """One short input to be drawn, or the beginning of one where all are long."""


def body(s: Settings, *, dropout: float) -> nn.Module:
    """What stands between the input vectors and their labels: FC alone, FC over a window, or self-attention and FC."""
    if s.model == "fc":
        return FCStack((s.dim, s.hidden, s.dim), dropout=dropout)
    if s.model == "window":
        return WindowFC(s.dim, s.neighbours, (s.hidden, s.dim), dropout=dropout)
    return AttentionStack(
        s.dim,
        blocks=s.blocks,
        heads=s.heads,
        hidden=s.hidden,
        positions=s.positions,
        position_scale=s.position_scale,
        max_length=LONGEST,
        dropout=dropout,
    )


def check_lengths(s: Settings, lengths: Iterable[int]) -> None:
    """UsageError for a sequence that is longer than learned positions reach."""
    longest = max(lengths, default=0)
    if s.model == "attention" and s.positions == "learned" and longest > LONGEST:
        raise UsageError(f"--positions learned reaches {LONGEST} vectors, and a sequence has {longest}: take others")


def headline(summary: Mapping[str, str]) -> str:
    """Of the scores in words by split those on test; without test those on dev, which are no independent measure."""
    if "test" in summary:
        return summary["test"]
    return f"{summary['dev']}: on dev, by which the best epoch was chosen, for there is no test data"


def first_short(lengths: Sequence[int]) -> int:
    """The index of the first that can be drawn whole; of the shortest, if none can."""
    short = (i for i, length in enumerate(lengths) if length <= DRAWN)
    return next(short, int(np.argmin(lengths)))


def part_of(length: int, most: int | None, what: str) -> str:
    """In words, which part of a sequence of that length its first `most` are; "" for all of it."""
    return "" if most is None or length <= most else f"the first {most} of {length:,} {what}"


def texts(given: str) -> list[str]:
    """A text as it is, or the lines of a .txt file."""
    if not given.lower().endswith(".txt"):
        if os.path.exists(given):
            kind = "directory" if os.path.isdir(given) else "file"
            raise UsageError(f"{given} is a {kind}, and texts are read from files whose names end in .txt")
        return [given]
    lines = read_texts(given)
    if not lines:
        raise DataError(given, "has no text")
    return lines


def share(right: Sequence[bool]) -> float | None:
    """The fraction that is true; None of nothing."""
    return sum(right) / len(right) if right else None
