"""Scenario 1: every vector gets a label. Words of a sentence are tagged with their parts of speech.

In a shell:

    python -m experiments per-vector                                     English from a small grammar
    python -m experiments per-vector --train train.conllu --test test.conllu
    python -m experiments per-vector --model fc                          the lecture's baselines: fc, window
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

import minigrad as mg
from experiments.data import batching, english
from experiments.data.conllu import Tagged
from experiments.data.features import FAMILIES, WordFeatures
from experiments.data.files import tokenise
from experiments.data.vocabulary import Vocabulary
from experiments.settings import PerVectorSettings
from experiments.task import (
    DRAWN,
    Drawn,
    Labeller,
    Metrics,
    Task,
    body,
    check_lengths,
    first_short,
    part_of,
    share,
    texts,
)
from minigrad import nn
from models import PerVector, SummedEmbedding

EMBEDDED = PerVectorSettings(epochs=8, lr=3e-3, word_dropout=0.05)
CONLLU = PerVectorSettings(
    dim=128,
    heads=8,
    hidden=256,
    epochs=12,
    max_tokens=1000,
    batch_size=1000,
    dropout=0.3,
    word_dropout=0.25,
    warmup=0.08,
)
LECTURE = ("I", "saw", "a", "saw")


class Tagger(Labeller):
    """Reads words by their features, and says their tags."""

    def __init__(self, settings: PerVectorSettings, features: WordFeatures, tags: Vocabulary):
        self.settings, self.features, self.tags = settings, features, tags
        s = settings
        words = SummedEmbedding(features.size, s.dim, features=len(FAMILIES), dropout=s.dropout)
        self.model = PerVector(words, body(s, dropout=s.dropout), s.dim, len(tags))

    def encode(self, sentences: Sequence[Sequence[str]]) -> tuple[np.ndarray, np.ndarray]:
        """Feature ids (batch, n, features) between begin and end symbols, and which vectors are real (batch, n)."""
        return batching.pad([self.features.encode(tokens, boundaries=True) for tokens in sentences])

    @mg.no_grad()
    def label(self, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
        """The tags of each sentence's words."""
        check_lengths(self.settings, (len(tokens) + 2 for tokens in sentences))
        labels: list[list[str]] = [[] for _ in sentences]
        for chosen in batching.by_length([len(tokens) for tokens in sentences], 64):
            ids, valid = self.encode([sentences[i] for i in chosen])
            for i, best in zip(chosen, self.model(ids, valid=valid).argmax(-1)):
                labels[i] = self.tags.decode(best[1 : len(sentences[i]) + 1])
        return labels

    def predict(self, given: str) -> list[str]:
        """word/TAG for each word of a sentence, or of each line of a .txt file."""
        sentences = [tokenise(line) for line in texts(given)]
        rows = zip(sentences, self.label(sentences))
        return [" ".join(f"{token}/{tag}" for token, tag in zip(tokens, tags)) for tokens, tags in rows]

    def to_json(self) -> dict[str, Any]:
        return {"features": self.features.to_json(), "tags": self.tags.to_json()}

    @classmethod
    def from_json(cls, settings: PerVectorSettings, state: Mapping[str, Any]) -> Tagger:
        return cls(settings, WordFeatures.from_json(state["features"]), Vocabulary.from_json(state["tags"]))


class PerVectorTask(Task):
    """A tagger and its sentences."""

    scenario = "per-vector"
    settings_class, labeller_class = PerVectorSettings, Tagger
    defaults = MappingProxyType({"": EMBEDDED, ".conllu": CONLLU})
    score_name, higher_is_better = "accuracy", True

    def __init__(self, settings: PerVectorSettings, splits: Mapping[str, list[Tagged]]):
        self.settings, self.splits = settings, splits
        check_lengths(settings, (len(sentence.tokens) + 2 for split in splits.values() for sentence in split))
        train = splits["train"]
        features = WordFeatures.fit(sentence.tokens for sentence in train)
        tags = Vocabulary.from_counts(tag for sentence in train for tag in sentence.tags)
        self.labeller = Tagger(settings, features, tags)
        self.ambiguous = english.ambiguous_forms(train)
        self._ids = [features.encode(sentence.tokens, boundaries=True) for sentence in train]
        self._labels = [np.concatenate([[-1], tags.encode(sentence.tags), [-1]]) for sentence in train]

    @classmethod
    def embedded(cls, settings: PerVectorSettings) -> PerVectorTask:
        return cls(settings, dict(zip(("train", "dev", "test"), english.splits(settings.seed))))

    @classmethod
    def from_splits(cls, settings: PerVectorSettings, splits: Mapping[str, Any], suffix: str) -> PerVectorTask:
        return cls(settings, splits)

    def batches(self, rng: np.random.Generator) -> list[np.ndarray]:
        s = self.settings
        lengths = [len(ids) for ids in self._ids]
        return batching.buckets(lengths, max_tokens=s.max_tokens, batch_size=s.batch_size, rng=rng)

    def arrays(self, batch: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray | None, ...]:
        """Feature ids, labels, which of these are words', and which vectors are real."""
        ids, valid = batching.pad([self._ids[i] for i in batch])
        labels, _ = batching.pad([self._labels[i] for i in batch])
        words = valid & (labels >= 0)  # not the begin and end symbols
        hidden = words & (rng.random(valid.shape) < self.settings.word_dropout)
        features = self.labeller.features
        ids[hidden, features.word_column] = features.unknown_word
        return ids, labels, words, batching.unless_full(valid)

    def loss(self, ids: Any, labels: Any, words: Any, valid: Any) -> mg.Tensor:
        logits = self.model(ids, valid=valid)
        return nn.cross_entropy(logits, labels, mask=words, label_smoothing=self.settings.label_smoothing)

    def evaluate(self, split: str) -> Metrics:
        """Accuracy over all words, over forms with several tags in train, and over forms not in train."""
        sentences = self.splits[split]
        guesses = self.labeller.label([sentence.tokens for sentence in sentences])
        rows = [
            (form, tag == guess)
            for sentence, tags in zip(sentences, guesses)
            for form, tag, guess in zip(sentence.tokens, sentence.tags, tags)
        ]
        return {
            "accuracy": share([right for _, right in rows]),
            "accuracy_ambiguous": share([right for form, right in rows if form in self.ambiguous]),
            "accuracy_unknown": share([right for form, right in rows if not self.labeller.features.known(form)]),
        }

    def unknown_labels(self, split: str) -> int:
        return sum(tag not in self.labeller.tags for sentence in self.splits[split] for tag in sentence.tags)

    def summary(self, metrics: Metrics) -> str:
        said = f"{metrics['accuracy']:.4f} of the words got the right tag"
        if metrics["accuracy_ambiguous"] is not None:
            said += f", {metrics['accuracy_ambiguous']:.4f} of those whose form alone does not tell it"
        if metrics["accuracy_unknown"] is not None:
            said += f", {metrics['accuracy_unknown']:.4f} of those whose form training has not shown"
        return said

    def example(self) -> Drawn:
        known = all(self.labeller.features.known(token) for token in LECTURE)
        sentences = [LECTURE] if known else [sentence.tokens for sentence in self.splits["dev"]]
        tokens = sentences[first_short([len(tokens) + 2 for tokens in sentences])]
        most = DRAWN - 2  # the begin and end symbols are vectors too
        ids, valid = self.labeller.encode([tokens[:most]])
        names = ["(begin)", *tokens[:most], "(end)"]
        return Drawn((ids,), {"valid": valid}, names, names, part_of(len(tokens), most, "words"))


if __name__ == "__main__":
    import sys

    from experiments.cli import main

    main(["per-vector", *sys.argv[1:]])
