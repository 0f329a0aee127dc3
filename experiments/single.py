"""Scenario 2: the whole set of vectors gets one label. Who is speaking, told from the frames of an utterance.

In a shell:

    python -m experiments single                                         six synthetic speakers
    python -m experiments single --train train.ts [--folds 5]
    python -m experiments single --train digits.npz --label digit
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

import minigrad as mg
from experiments.data import batching, speakers
from experiments.data import frames as fr
from experiments.data.errors import DataError
from experiments.data.files import read_frames
from experiments.data.ts import Frames
from experiments.data.vocabulary import Vocabulary
from experiments.settings import SingleSettings
from experiments.task import DRAWN, Drawn, Labeller, Metrics, Task, body, check_lengths, first_short, part_of, share
from minigrad import nn
from models import FrameProjection, Single

EMBEDDED = SingleSettings(blocks=1, epochs=20, lr=3e-3, dropout=0.2, positions="relative")
TS = SingleSettings(
    blocks=1, epochs=120, positions="sinusoidal", position_scale=0.5, dropout=0.4, decay="cosine", beta2=0.999
)
NPZ = SingleSettings(
    epochs=12,
    positions="sinusoidal",
    dropout=0.2,
    decay="cosine",
    batch_size=64,
    standardise="utterance",
    frames=32,
    warp=0.5,
    deltas=True,
    time_mask=6,
    feature_mask=4,
)


class Classifier(Labeller):
    """Reads sequences of frames, and says whose they are."""

    def __init__(self, settings: SingleSettings, statistics: fr.Statistics, labels: Vocabulary):
        self.settings, self.statistics, self.labels = settings, statistics, labels
        s = settings
        width = len(statistics.mean) * (2 if s.deltas else 1)
        frames = FrameProjection(width, s.dim, dropout=s.dropout)
        self.model = Single(frames, body(s, dropout=s.dropout), s.dim, len(labels))

    def prepare(self, frames: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """Frames as the model sees them, (n, width); with rng, distorted at random as in training."""
        s = self.settings
        given = self.statistics if s.standardise == "global" else fr.statistics([frames])
        frames = fr.standardise(frames, given)
        if s.frames:
            frames = fr.resample(frames, s.frames, rng, s.warp)
        if s.deltas:
            frames = fr.with_deltas(frames)
        if rng is not None and s.time_mask:
            frames = fr.mask_time(frames, s.time_mask, rng)
        if rng is not None and s.feature_mask:
            frames = fr.mask_features(frames, s.feature_mask, rng)
        return frames

    @mg.no_grad()
    def label(self, sequences: Sequence[np.ndarray]) -> list[str]:
        """The label of each sequence (n, dimensions)."""
        check_lengths(self.settings, (self.settings.frames or len(frames) for frames in sequences))
        labels = [""] * len(sequences)
        for chosen in batching.by_length([len(frames) for frames in sequences], 64):
            x, valid = batching.pad([self.prepare(sequences[i]) for i in chosen])
            for i, label in zip(chosen, self.labels.decode(self.model(x, valid=valid).argmax(-1))):
                labels[i] = label
        return labels

    def predict(self, given: str) -> list[str]:
        """A label for each utterance of a .ts or .npz file."""
        sequences, width = read_frames(given), len(self.statistics.mean)
        for i, frames in enumerate(sequences):
            if frames.shape[1] != width:
                given_width = f"{frames.shape[1]} {'dimension' if frames.shape[1] == 1 else 'dimensions'}"
                reason = f"sequence {i + 1} has {given_width}, and the model was trained on {width}"
                raise DataError(given, reason)
        return self.label(sequences)

    def to_json(self) -> dict[str, Any]:
        s = self.statistics
        return {"mean": s.mean.tolist(), "deviation": s.deviation.tolist(), "labels": self.labels.to_json()}

    @classmethod
    def from_json(cls, settings: SingleSettings, state: Mapping[str, Any]) -> Classifier:
        statistics = fr.Statistics(np.array(state["mean"]), np.array(state["deviation"]))
        return cls(settings, statistics, Vocabulary.from_json(state["labels"]))


class SingleTask(Task):
    """A classifier and its utterances."""

    scenario = "single"
    settings_class, labeller_class = SingleSettings, Classifier
    defaults = MappingProxyType({"": EMBEDDED, ".ts": TS, ".npz": NPZ})
    score_name, higher_is_better = "accuracy", True

    def __init__(self, settings: SingleSettings, splits: Mapping[str, Frames]):
        self.settings, self.splits = settings, splits
        sequences = (frames for split in splits.values() for frames in split.sequences)
        check_lengths(settings, (settings.frames or len(frames) for frames in sequences))
        train = splits["train"]
        labels = Vocabulary(sorted(set(train.labels)))
        self.labeller = Classifier(settings, fr.statistics(train.sequences), labels)
        self._labels = labels.encode(train.labels)

    @classmethod
    def embedded(cls, settings: SingleSettings) -> SingleTask:
        return cls(settings, dict(zip(("train", "dev", "test"), speakers.splits(settings.seed))))

    @classmethod
    def from_splits(cls, settings: SingleSettings, splits: Mapping[str, Any], suffix: str) -> SingleTask:
        return cls(settings, splits)

    def batches(self, rng: np.random.Generator) -> list[np.ndarray]:
        s = self.settings
        lengths = [len(frames) for frames in self.splits["train"].sequences]
        return batching.buckets(lengths, max_tokens=s.max_tokens, batch_size=s.batch_size, rng=rng)

    def arrays(self, batch: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray | None, ...]:
        """Frames, labels, and which frames are real."""
        sequences = self.splits["train"].sequences
        x, valid = batching.pad([self.labeller.prepare(sequences[i], rng) for i in batch])
        return x, self._labels[batch], batching.unless_full(valid)

    def loss(self, x: Any, labels: Any, valid: Any) -> mg.Tensor:
        logits = self.model(x, valid=valid)
        return nn.cross_entropy(logits, labels, label_smoothing=self.settings.label_smoothing)

    def evaluate(self, split: str) -> Metrics:
        data = self.splits[split]
        guesses = self.labeller.label(data.sequences)
        return {"accuracy": share([guess == label for guess, label in zip(guesses, data.labels)])}

    def unknown_labels(self, split: str) -> int:
        return sum(label not in self.labeller.labels for label in self.splits[split].labels)

    def summary(self, metrics: Metrics) -> str:
        classes = len(self.labeller.labels)
        among = f"of {classes} classes" if classes > 1 else "the only class"
        return f"{metrics['accuracy']:.4f} of the sequences got the right label ({among})"

    def example(self) -> Drawn:
        sequences = self.splits["train"].sequences
        chosen = first_short([self.settings.frames or len(frames) for frames in sequences])
        frames = self.labeller.prepare(sequences[chosen])
        shown = frames[:DRAWN]
        names = [str(i + 1) for i in range(len(shown))]
        return Drawn((shown[None],), {}, names, names, part_of(len(frames), DRAWN, "vectors"))


if __name__ == "__main__":
    import sys

    from experiments.cli import main

    main(["single", *sys.argv[1:]])
