"""Equal words get equal labels unless something tells their places apart: the two `saw` of "I saw a saw".

Sentences begin with up to five other words, so that neither the word nor its place in the sentence is the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import minigrad as mg
from experiments import pictures
from experiments.claims.claim import Check, Claim, Outcome, fit
from minigrad import nn
from models import AttentionStack, FCStack, PerVector, SummedEmbedding, WindowFC
from models.positions import Sinusoidal

WORDS = ("", "I", "saw", "a", "yesterday", "often", "there", "then", "always", "again")  # 0 is no word
TAGS = ("PRON", "VERB", "DET", "NOUN", "ADV")
SENTENCE, SENTENCE_TAGS = (1, 2, 3, 2), (0, 1, 2, 3)
SAW, FIRST_OTHER, OTHER_TAG = 2, 4, 4
LONGEST_PREFIX = 5
DIM, HIDDEN = 16, 32


class PlacedFC(nn.Module):
    """FC on vectors to which their places have been added."""

    def __init__(self) -> None:
        self.positions = Sinusoidal(DIM)
        self.fc = FCStack((DIM, HIDDEN, DIM), dtype=np.float64)

    def forward(self, x: mg.Tensor, *, valid: np.ndarray | None = None) -> mg.Tensor:
        return self.fc(self.positions(x, valid), valid=valid)


BODIES: dict[str, Any] = {
    "FC": lambda: FCStack((DIM, HIDDEN, DIM), dtype=np.float64),
    "self-attention": lambda: AttentionStack(DIM, heads=2, dtype=np.float64),
    "FC with positions": PlacedFC,
    "self-attention with positions": lambda: AttentionStack(DIM, heads=2, positions="sinusoidal", dtype=np.float64),
    "window of one neighbour": lambda: WindowFC(DIM, 1, (HIDDEN, DIM), dtype=np.float64),
}


@dataclass
class Sentences:
    """ids: (batch, n, 1); valid, tags: (batch, n)."""

    ids: np.ndarray
    valid: np.ndarray
    tags: np.ndarray

    @property
    def saws(self) -> np.ndarray:
        """Where a `saw` stands, (batch, n)."""
        at: np.ndarray = self.ids[..., 0] == SAW
        return at


def sentences(count: int, rng: np.random.Generator) -> Sentences:
    """Random words before "I saw a saw", padded at the end."""
    n = LONGEST_PREFIX + len(SENTENCE)
    ids, tags = np.zeros((count, n), int), np.zeros((count, n), int)
    prefixes = rng.integers(0, LONGEST_PREFIX + 1, count)
    for row, before in enumerate(prefixes):
        ids[row, :before] = rng.integers(FIRST_OTHER, len(WORDS), before)
        tags[row, :before] = OTHER_TAG
        ids[row, before : before + len(SENTENCE)] = SENTENCE
        tags[row, before : before + len(SENTENCE)] = SENTENCE_TAGS
    return Sentences(ids[..., None], ids > 0, tags)


def tagger(body: nn.Module, rng: np.random.Generator, steps: int) -> PerVector:
    """A trained model: words, `body`, tags."""
    words = SummedEmbedding(len(WORDS), DIM, features=1, dtype=np.float64)
    model = PerVector(words, body, DIM, len(TAGS), dtype=np.float64)

    def loss() -> mg.Tensor:
        batch = sentences(64, rng)
        return nn.cross_entropy(model(batch.ids, valid=batch.valid), batch.tags, mask=batch.valid)

    fit(model.parameters(), loss, steps=steps, lr=3e-3)
    return model


@dataclass(frozen=True)
class Scores:
    """On the two `saw` alone. difference: the largest between a logit of the first and the same logit of the second."""

    accuracy: float
    cross_entropy: float
    difference: float


@mg.no_grad()
def score(model: PerVector, test: Sentences) -> Scores:
    logits = model(test.ids, valid=test.valid).numpy()
    right = logits.argmax(-1) == test.tags
    pairs = logits[test.saws].reshape(-1, 2, len(TAGS))
    return Scores(
        accuracy=float(right[test.saws].mean()),
        cross_entropy=nn.cross_entropy(logits, test.tags, mask=test.saws).item(),
        difference=float(np.abs(pairs[:, 0] - pairs[:, 1]).max()),
    )


def best_by_place() -> float:
    """The highest accuracy on `saw` of a model that knows the word and its place, and no other word.

    The first `saw` stands at places 1 to longest + 1, the second at places 3 to longest + 3, all equally often: four
    places tell, the others are shared by both.
    """
    return 1 / 2 + 1 / (LONGEST_PREFIX + 1)


def measure(seed: int = 0, steps: int = 300) -> Outcome:
    mg.seed(seed)
    rng = np.random.default_rng(seed)
    models = {name: tagger(body(), rng, steps) for name, body in BODIES.items()}
    test = sentences(1000, rng)
    scores = {name: score(model, test) for name, model in models.items()}
    checks = []
    for name in ("FC", "self-attention"):
        s = scores[name]
        checks += [
            Check(f"{name}: accuracy on the two `saw`", s.accuracy, "=", 0.5),
            Check(f"{name}: largest difference between the logits of the two `saw`", s.difference, "<=", 1e-12),
            Check(f"{name}: cross-entropy on the two `saw` (ln 2 at best)", s.cross_entropy, ">=", 0.693),
        ]
    for name, relation, bound in (
        ("FC with positions", "<=", 0.95),
        ("self-attention with positions", ">=", 0.99),
        ("window of one neighbour", ">=", 0.99),
    ):
        best = f" ({best_by_place():.3f} at best)" if relation == "<=" else ""
        checks.append(Check(f"{name}: accuracy on the two `saw`{best}", scores[name].accuracy, relation, bound))
    return Outcome(checks, lambda: _figure(scores))


def _figure(scores: dict[str, Scores]) -> Any:
    figure, axes = pictures.subplots(1, 2, (9, 2.8))
    names = list(scores)[::-1]
    panels = (
        ([scores[name].accuracy for name in names], "accuracy on the two `saw`", 0.5, "guessing"),
        ([scores[name].cross_entropy for name in names], "cross-entropy on the two `saw`", np.log(2), "ln 2"),
    )
    for ax, (values, label, line, said) in zip(axes.flat, panels):
        bars = ax.barh(names, values, color="tab:blue", height=0.6)
        ax.bar_label(bars, [f"{value:.3f}" for value in values], padding=3, fontsize=8)
        ax.axvline(line, color="black", linestyle=":", linewidth=1)
        ax.text(line, len(names) - 0.4, said, ha="center", va="bottom", fontsize=8)
        ax.set_xlabel(label)
        ax.set_xlim(0, 1.25 * max(values))
        ax.spines[["top", "right"]].set_visible(False)
    axes[0, 1].set_yticks([])
    return figure


CLAIM = Claim(
    name="saw",
    statement='without context FC cannot tell the two `saw` of "I saw a saw" apart; '
    "neither can self-attention without positions",
    source="the lecture; Vaswani et al. 2017, section 3.5, on positions",
    measure=measure,
)
