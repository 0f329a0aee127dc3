"""Scenario 3: the model itself decides how many labels come out. Number words to numerals, spelling to sounds.

In a shell:

    python -m experiments seq2seq                                        two hundred and five -> 二百零五
    python -m experiments seq2seq --train train.tsv --test test.tsv      characters to symbols
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

import minigrad as mg
from experiments.data import batching, numerals
from experiments.data.tsv import Pair
from experiments.data.vocabulary import Vocabulary
from experiments.settings import Seq2SeqSettings, UsageError
from experiments.task import DRAWN, LONGEST, Drawn, Labeller, Metrics, Task, check_lengths, part_of, share, texts
from minigrad import nn
from models import Seq2Seq, beam_search, greedy

EMBEDDED = Seq2SeqSettings(
    blocks=1, epochs=12, dropout=0.0, lr=4e-3, label_smoothing=0.0, batch_size=64, weight_decay=0.0
)
TSV = Seq2SeqSettings(
    dim=128,
    hidden=256,
    epochs=90,
    batch_size=64,
    dropout=0.2,
    lr=1.5e-3,
    warmup=0.05,
    weight_decay=0.0,
    average=0.995,
)


class Translator(Labeller):
    """Reads source symbols, and says target symbols until it thinks that it is done."""

    model: Seq2Seq

    def __init__(self, settings: Seq2SeqSettings, source: Vocabulary, target: Vocabulary, limit: int, words: bool):
        """limit: the longest output; words: whether a source text falls into words or into characters."""
        self.settings, self.source, self.target, self.limit, self.words = settings, source, target, limit, words
        s = settings
        self.model = Seq2Seq(
            len(source),
            len(target),
            s.dim,
            blocks=s.blocks,
            heads=s.heads,
            hidden=s.hidden,
            positions=s.positions,
            max_length=LONGEST,
            dropout=s.dropout,
        )

    @mg.no_grad()
    def label(self, sources: Sequence[Sequence[str]]) -> list[list[str]]:
        """The target symbols of each source."""
        check_lengths(self.settings, map(len, sources))
        labels: list[list[str]] = [[] for _ in sources]
        for chosen in batching.by_length([len(symbols) for symbols in sources], 128):
            ids, valid = batching.pad([self.source.encode(sources[i]) for i in chosen])
            step = self.model.decoding(ids, valid, never=(self.target.pad, self.target.bos))
            bos = np.full(len(chosen), self.target.bos)
            if self.settings.beam == 1:
                found = greedy(step, bos, self.target.eos, self.limit)
            else:
                found = beam_search(step, bos, self.target.eos, self.settings.beam, self.limit, length_penalty=1.0)
            for i, symbols in zip(chosen, found):
                labels[i] = self.target.decode(symbols)
        return labels

    def predict(self, given: str) -> list[str]:
        """The output for a text, or for each line of a .txt file."""
        lines = texts(given)
        sources = [numerals.words(line) if self.words else tuple(line) for line in lines]
        for line, source in zip(lines, sources):
            if not source:
                raise UsageError(f"{line!r} has no words")
        self._tell_unknown(sources)
        return [("" if self.words else " ").join(symbols) for symbols in self.label(sources)]

    def _tell_unknown(self, sources: Sequence[Sequence[str]]) -> None:
        """A note if some symbols are new to the model; UsageError if all are, for what it says would mean nothing."""
        symbols = dict.fromkeys(symbol for source in sources for symbol in source)
        unknown = [symbol for symbol in symbols if symbol not in self.source]
        kind = "words" if self.words else "characters"
        if len(unknown) == len(symbols):
            some = " ".join(self.source.symbols[:8])
            raise UsageError(f"the model knows none of these {kind}: it was trained on such as {some}")
        if unknown:
            more = " …" if len(unknown) > 8 else ""
            print(f"the model was not trained on the {kind} {' '.join(unknown[:8])}{more}", file=sys.stderr)

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source.to_json(),
            "target": self.target.to_json(),
            "limit": self.limit,
            "words": self.words,
        }

    @classmethod
    def from_json(cls, settings: Seq2SeqSettings, state: Mapping[str, Any]) -> Translator:
        source, target = Vocabulary.from_json(state["source"]), Vocabulary.from_json(state["target"])
        return cls(settings, source, target, state["limit"], state["words"])


class Seq2SeqTask(Task):
    """A translator and its pairs."""

    scenario = "seq2seq"
    settings_class, labeller_class = Seq2SeqSettings, Translator
    defaults = MappingProxyType({"": EMBEDDED, ".tsv": TSV})
    score_name, higher_is_better = "exact_match", True

    def __init__(self, settings: Seq2SeqSettings, splits: Mapping[str, list[Pair]], *, words: bool):
        self.settings, self.splits = settings, splits
        train = splits["train"]
        source = Vocabulary.from_counts((c for pair in train for c in pair.source), specials=("pad", "unk"))
        target = Vocabulary.from_counts((c for pair in train for c in pair.target), specials=("pad", "bos", "eos"))
        limit = max(len(pair.target) for pair in train) + 5
        check_lengths(settings, [limit, *(len(pair.source) for split in splits.values() for pair in split)])
        self.labeller = Translator(settings, source, target, limit, words)
        self._source = [source.encode(pair.source) for pair in train]
        self._target = [np.array([target.bos, *target.encode(pair.target), target.eos]) for pair in train]

    @classmethod
    def embedded(cls, settings: Seq2SeqSettings) -> Seq2SeqTask:
        return cls(settings, dict(zip(("train", "dev", "test"), numerals.splits(settings.seed))), words=True)

    @classmethod
    def from_splits(cls, settings: Seq2SeqSettings, splits: Mapping[str, Any], suffix: str) -> Seq2SeqTask:
        return cls(settings, splits, words=False)

    def batches(self, rng: np.random.Generator) -> list[np.ndarray]:
        s = self.settings
        lengths = [len(source) + len(target) for source, target in zip(self._source, self._target)]
        return batching.buckets(lengths, max_tokens=s.max_tokens, batch_size=s.batch_size, rng=rng)

    def arrays(self, batch: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray | None, ...]:
        """Source ids, what the decoder reads, what it is to say, and which symbols of source and target are real."""
        source, source_valid = batching.pad([self._source[i] for i in batch])
        target, target_valid = batching.pad([self._target[i] for i in batch])
        # The decoder reads all but the last symbol, and is to say all but the first.
        valid = batching.unless_full(source_valid), batching.unless_full(target_valid[:, 1:])
        return source, target[:, :-1], target[:, 1:], *valid

    def loss(self, source: Any, read: Any, said: Any, source_valid: Any, target_valid: Any) -> mg.Tensor:
        logits = self.model(source, read, source_valid=source_valid, target_valid=target_valid)
        return nn.cross_entropy(logits, said, mask=target_valid, label_smoothing=self.settings.label_smoothing)

    def evaluate(self, split: str) -> Metrics:
        """Word error rate (sequences not wholly right), phone error rate (edits per symbol), exact match."""
        pairs = self.splits[split]
        guesses = self.labeller.label([pair.source for pair in pairs])
        exact = share([list(pair.target) == guess for pair, guess in zip(pairs, guesses)])
        edits = sum(edit_distance(pair.target, guess) for pair, guess in zip(pairs, guesses))
        symbols = sum(len(pair.target) for pair in pairs)
        return {"wer": 1 - exact if exact is not None else None, "per": edits / max(symbols, 1), "exact_match": exact}

    def unknown_labels(self, split: str) -> int:
        return sum(symbol not in self.labeller.target for pair in self.splits[split] for symbol in pair.target)

    def summary(self, metrics: Metrics) -> str:
        return (
            f"{metrics['exact_match']:.4f} of the sequences came out exactly right"
            f" (word error rate {metrics['wer']:.4f}, {metrics['per']:.4f} edits per symbol)"
        )

    def example(self) -> Drawn:
        pairs = self.splits["train"][:200]
        short = [pair for pair in pairs if _longer(pair) < DRAWN]
        whole = max(short, key=lambda pair: len(pair.source)) if short else min(pairs, key=_longer)
        pair = Pair(whole.source[:DRAWN], whole.target[: DRAWN - 1])
        t = self.labeller.target
        source, target = self.labeller.source.encode(pair.source)[None], np.array([[t.bos, *t.encode(pair.target)]])
        valid = {"source_valid": np.ones(source.shape, bool), "target_valid": np.ones(target.shape, bool)}
        part = part_of(_longer(whole), DRAWN, "symbols")
        return Drawn((source, target), valid, [*pair.target, "(end)"], list(pair.source), part)


def _longer(pair: Pair) -> int:
    """The length of source or target, whichever is longer."""
    return max(len(pair.source), len(pair.target))


def edit_distance(a: Sequence[str], b: Sequence[str]) -> int:
    """The fewest insertions, deletions and substitutions that turn a into b (Levenshtein).

    >>> edit_distance("kitten", "sitting")
    3
    """
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]


if __name__ == "__main__":
    from experiments.cli import main

    main(["seq2seq", *sys.argv[1:]])
