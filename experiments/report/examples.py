"""What a report looks at: a few short examples of a run's data with their labels, and one batch of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from experiments.data import batching
from experiments.per_vector import LECTURE, PerVectorTask
from experiments.seq2seq import Seq2SeqTask
from experiments.single import SingleTask
from experiments.task import Task, part_of
from minigrad import nn
from minigrad.nn.module import functional_call
from minigrad.tensor import Tensor

PROBES, BATCH = 3, 32
MOST = 24  # vectors of an example that is looked at closely: what is shown of it grows with their square
VECTORS = 20_000  # in the batch, padding included
LONGEST = 12  # names in a title
LECTURE_TAGS = ("PRON", "VERB", "DET", "NOUN")


@dataclass(frozen=True)
class Examples:
    """A batch: the model's arguments, the label ids, and which of these count (None: all).

    queries, keys: for each example the names of the vectors that ask and that are asked; answers: those of its labels;
    parts: what of it is there, in words, where that is not the whole of it, else "" (no list at all: all are whole).
    """

    inputs: list[np.ndarray]
    keywords: dict[str, np.ndarray]
    labels: np.ndarray
    counted: np.ndarray | None
    queries: list[list[str]]
    keys: list[list[str]]
    answers: list[list[str]]
    parts: list[str] = field(default_factory=list)

    def to_state(self) -> dict[str, Any]:
        """Nested dicts and lists of arrays and names, as a checkpoint holds them."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Examples:
        return cls(**state)

    def title(self, i: int) -> str:
        """Example number i in a few words."""
        if len(self.answers[i]) == 1:
            return f"{self.answers[i][0]}, {self.part(i) or f'{len(self.keys[i])} vectors'}"
        shown = [name for name in self.keys[i] if not name.startswith("(")]
        text = " ".join(shown if len(shown) <= LONGEST else [*shown[:LONGEST], "…"])
        return f"{text} ({self.part(i)})" if self.part(i) else text

    def part(self, i: int) -> str:
        """Which part of example number i this is; "" if it is the whole of it."""
        return self.parts[i] if self.parts else ""

    def first(self, count: int) -> Examples:
        """The first so many of the batch."""
        counted = None if self.counted is None else self.counted[:count]
        keywords = {name: x[:count] for name, x in self.keywords.items()}
        names = self.queries[:count], self.keys[:count], self.answers[:count]
        inputs, parts = [x[:count] for x in self.inputs], self.parts[:count]
        return Examples(inputs, keywords, self.labels[:count], counted, *names, parts)

    def repeated(self, times: int) -> Examples:
        """A batch of so many copies of a single example, without names."""
        inputs = [np.repeat(x, times, 0) for x in self.inputs]
        keywords = {name: np.repeat(x, times, 0) for name, x in self.keywords.items()}
        counted = None if self.counted is None else np.repeat(self.counted, times, 0)
        return Examples(inputs, keywords, np.repeat(self.labels, times, 0), counted, [], [], [])

    def logits(self, model: nn.Module, weights: Mapping[str, Any]) -> Tensor:
        """What the model says with these weights, in their dtype."""
        logits: Tensor = functional_call(model, weights, *self.inputs, **self.keywords)
        return logits

    def loss(self, logits: Tensor, smoothing: float, reduction: str = "mean") -> Tensor:
        """The cross-entropy that training minimises."""
        return nn.cross_entropy(logits, self.labels, mask=self.counted, label_smoothing=smoothing, reduction=reduction)


def probes(task: Task) -> list[Examples]:
    """The lecture's sentence, where the model knows its words, and the shortest of the data: examples of one each.

    Of those that are long even so only the beginning is taken.
    """
    encode, pool = _ENCODE[type(task)], _pool(task)
    chosen = _lecture(task) + sorted(range(len(pool)), key=lambda i: _length(pool[i]))
    found: list[Examples] = []
    for item in chosen:
        example = item if isinstance(item, Examples) else encode(task, [pool[item]], MOST)
        if all(example.answers != other.answers for other in found):
            found.append(example)
        if len(found) == PROBES:
            break
    return found


def batch(task: Task, split: str = "dev") -> Examples:
    """Some of the data that were held out (of the training data, where none were), as one batch.

    They are drawn at random, always the same: what stands first in a file is seldom like the rest of it.
    """
    pool = _pool(task, split)
    order = np.random.default_rng([task.settings.seed, 3]).permutation(len(pool))[:BATCH]
    longest = np.maximum.accumulate([len(pool[i][0]) for i in order])
    fitting = int((longest * np.arange(1, len(order) + 1) <= VECTORS).sum())
    return _ENCODE[type(task)](task, [pool[i] for i in order[: max(fitting, 2)]], None)


def label_names(task: Task) -> list[str]:
    """The name of every class, in the order of the model's outputs."""
    vocabulary = {PerVectorTask: "tags", SingleTask: "labels", Seq2SeqTask: "target"}[type(task)]
    known = getattr(task.labeller, vocabulary)
    return list(known.decode(range(len(known))))


# --- by scenario -------------------------------------------------------------------------------------------------


def _pool(task: Task, split: str = "dev") -> list[Any]:
    """A split's examples whose labels the model can say, as (what is read, its label or labels)."""
    data = task.splits[split if split in task.splits else "train"]
    if isinstance(task, PerVectorTask):
        pairs: list[Any] = [(sentence.tokens, sentence.tags) for sentence in data]
        known = task.labeller.tags
    elif isinstance(task, SingleTask):
        pairs = [(frames, [label]) for frames, label in zip(data.sequences, data.labels)]
        known = task.labeller.labels
    else:
        pairs = [(pair.source, pair.target) for pair in data]
        known = task.labeller.target
    usable = [pair for pair in pairs if all(label in known for label in pair[1])]
    return usable or _pool(task, "train")


def _length(pair: Any) -> int:
    """Sentences of one or two words show little."""
    n = len(pair[0])
    return n if n > 2 else 1000 + n


def _lecture(task: Task) -> list[Examples]:
    if not isinstance(task, PerVectorTask):
        return []
    known = all(map(task.labeller.features.known, LECTURE)) and all(tag in task.labeller.tags for tag in LECTURE_TAGS)
    return [_tagged(task, [(LECTURE, LECTURE_TAGS)], None)] if known else []


def _tagged(task: Any, pairs: Sequence[Any], most: int | None) -> Examples:
    most = None if most is None else most - 2  # the begin and end symbols are vectors too
    parts = [part_of(len(tokens), most, "words") for tokens, _ in pairs]
    pairs = [(tokens[:most], tags[:most]) for tokens, tags in pairs]
    ids, valid = task.labeller.encode([tokens for tokens, _ in pairs])
    rows = [np.concatenate([[-1], task.labeller.tags.encode(tags), [-1]]) for _, tags in pairs]
    labels, _ = batching.pad(rows)
    names = [["(begin)", *tokens, "(end)"] for tokens, _ in pairs]
    answers = [["", *tags, ""] for _, tags in pairs]
    counted = valid & (labels >= 0)
    return Examples([ids], {"valid": valid}, np.where(counted, labels, 0), counted, names, names, answers, parts)


def _framed(task: Any, pairs: Sequence[Any], most: int | None) -> Examples:
    prepared = [task.labeller.prepare(frames) for frames, _ in pairs]
    parts = [part_of(len(frames), most, "vectors") for frames in prepared]
    x, valid = batching.pad([frames[:most] for frames in prepared])
    labels = task.labeller.labels.encode([label for _, [label] in pairs])
    names = [[f"frame {i + 1}" for i in range(int(n))] for n in valid.sum(1)]
    return Examples([x], {"valid": valid}, labels, None, names, names, [label for _, label in pairs], parts)


def _translated(task: Any, pairs: Sequence[Any], most: int | None) -> Examples:
    t = task.labeller.target
    parts = [part_of(max(map(len, pair)), most, "symbols") for pair in pairs]
    pairs = [(source[:most], target[:most]) for source, target in pairs]
    source, source_valid = batching.pad([task.labeller.source.encode(symbols) for symbols, _ in pairs])
    rows = [np.array([t.bos, *t.encode(symbols), t.eos]) for _, symbols in pairs]
    target, valid = batching.pad(rows)
    said, counted = target[:, 1:], valid[:, 1:]
    keywords = {"source_valid": source_valid, "target_valid": counted}
    return Examples(
        [source, target[:, :-1]],
        keywords,
        np.where(counted, said, 0),
        counted,
        [["(begin)", *symbols] for _, symbols in pairs],
        [list(symbols) for symbols, _ in pairs],
        [[*symbols, "(end)"] for _, symbols in pairs],
        parts,
    )


_ENCODE: dict[type[Task], Callable[[Any, Sequence[Any], int | None], Examples]] = {
    PerVectorTask: _tagged,
    SingleTask: _framed,
    Seq2SeqTask: _translated,
}
