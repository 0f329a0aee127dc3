"""Does attention rank words as the gradient does? The less so, the more context the vectors carry.

Words have a valence, and the sign of a sentence's sum is its label. The encoder is a projection of each word by itself,
or one or two layers of self-attention, a ReLU behind each; additive attention then pools the vectors. Attention is that
of the pooling, and a word's importance |x . gradient|, as in Jain and Wallace 2019, who found a tau of .61 with
averaged embeddings and of .35 with an LSTM (SST).

It is a measurement, not a verdict: Neely et al. 2022 argue that rank correlation should not be used to validate
attention as explanation. And not a law either: with residual connections and layer norms around each attention, one
block of models.AttentionStack as the encoder has a tau of -.07, and two have -.11 (8 seeds, attention detached).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import minigrad as mg
from experiments import pictures
from experiments.claims.claim import Check, Claim, Outcome, fit
from minigrad import nn
from minigrad.study import attention_vs_gradient, from_point
from models import SelfAttention

WORDS, DIM, SHORTEST, LONGEST = 60, 16, 6, 16


class Encoder(nn.Module):
    """`layers` times self-attention and ReLU; with 0 layers a linear layer and ReLU."""

    def __init__(self, layers: int):
        self.attentions = [SelfAttention(DIM, dtype=np.float64) for _ in range(layers)]
        self.projection = nn.Linear(DIM, DIM, activation="relu", dtype=np.float64) if layers == 0 else None

    def forward(self, x: mg.Tensor, *, valid: np.ndarray) -> mg.Tensor:
        if self.projection is not None:
            return self.projection(x)
        for attention in self.attentions:
            x = mg.relu(attention(x, valid=valid))
        return x


class Classifier(nn.Module):
    """Embeddings, an encoder, and the mean of its vectors that a learned question asks for by additive attention.

    The embeddings begin small, so that what they hold is what was learned.
    """

    def __init__(self, layers: int):
        self.embedding = nn.Embedding(WORDS, DIM, padding_idx=0, deviation=0.1, dtype=np.float64)
        self.encoder = Encoder(layers)
        self.question = nn.Parameter(nn.init.normal((1, 1, DIM), 1.0, None, np.float64))
        self.pool = SelfAttention(DIM, score="additive", dtype=np.float64)
        self.labels = nn.Linear(DIM, 2, dtype=np.float64)

    def forward(self, ids: np.ndarray, *, valid: np.ndarray) -> mg.Tensor:
        """Logits (batch, 2)."""
        vectors = self.encoder(self.embedding(ids), valid=valid)
        question = mg.broadcast_to(self.question, (len(ids), 1, DIM))
        return self.labels(self.pool(question, context=vectors, context_valid=valid)[:, 0])


class Sentences:
    """Sentences of random words with a normally distributed valence each; the label is whether the sum is positive."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.valence = rng.standard_normal(WORDS)
        self.valence[0] = 0  # padding

    def draw(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """ids and valid (batch, n), labels (batch,)."""
        valid = np.arange(LONGEST) < self.rng.integers(SHORTEST, LONGEST + 1, (count, 1))
        ids = self.rng.integers(1, WORDS, valid.shape) * valid
        return ids, valid, (self.valence[ids].sum(-1) > 0).astype(int)


@dataclass(frozen=True)
class Agreement:
    """accuracy on test; mean tau over test sentences, with attention held constant in the gradient, and through it."""

    accuracy: float
    detached: float
    through: float


def trained(layers: int, seed: int, steps: int, count: int) -> tuple[Classifier, tuple[np.ndarray, ...]]:
    """A model, and ids, valid and labels to test it on."""
    mg.seed(seed)
    task = Sentences(np.random.default_rng(seed))
    model = Classifier(layers)

    def loss() -> mg.Tensor:
        ids, valid, labels = task.draw(32)
        return nn.cross_entropy(model(ids, valid=valid), labels)

    fit(model.parameters(), loss, steps=steps, lr=3e-3)
    return model, task.draw(count)


def agreement(layers: int, seed: int, steps: int = 300, count: int = 300) -> Agreement:
    """Of a newly trained model."""
    model, (ids, valid, labels) = trained(layers, seed, steps, count)
    with mg.no_grad():
        accuracy = (model(ids, valid=valid).numpy().argmax(-1) == labels).mean()
    x, logit = from_point(model, "embedding", lambda: model(ids, valid=valid)[:, 1])
    taus = [
        np.nanmean(attention_vs_gradient(logit, x, model, "pool.attn", detach=detach, valid=valid))
        for detach in (True, False)
    ]
    return Agreement(float(accuracy), *map(float, taus))


ENCODERS = {"projection": 0, "one self-attention layer": 1, "two layers": 2}
Taus = dict[str, np.ndarray]  # by encoder, one for each seed


def checks_of(taus: Taus, how: str) -> list[Check]:
    """Of the means over seeds, beside which their deviations stand."""
    means = {name: float(values.mean()) for name, values in taus.items()}
    said = {name: f"{means[name]:.2f} +- {values.std(ddof=1):.2f}" for name, values in taus.items()}
    first, *rest = taus
    seeds = len(taus[first])
    checks = [Check(f"{how}: mean tau of the {first} over {seeds} seeds, {said[first]}", means[first], ">=", 0.6)]
    for before, name in zip(taus, rest):
        checks.append(Check(f"{how}: {before} above {name}, {said[name]}", means[before] - means[name], ">=", 0.1))
    return checks


def measure(seed: int = 0, seeds: int = 8, steps: int = 300) -> Outcome:
    found = {name: [agreement(n, seeds * seed + i, steps) for i in range(seeds)] for name, n in ENCODERS.items()}
    accuracy = min(a.accuracy for rows in found.values() for a in rows)
    detached = {name: np.array([a.detached for a in rows]) for name, rows in found.items()}
    through = {name: np.array([a.through for a in rows]) for name, rows in found.items()}
    checks = [Check("accuracy of the least accurate model", accuracy, ">=", 0.9)]
    checks += checks_of(detached, "attention detached") + checks_of(through, "gradient through it")
    return Outcome(checks, lambda: _figure({"attention detached": detached, "gradient through it": through}))


def _figure(panels: dict[str, Taus]) -> Any:
    figure, axes = pictures.subplots(1, 2, (8, 3.2))
    for ax, (title, taus) in zip(axes.flat, panels.items()):
        for i, values in enumerate(taus.values()):
            ax.plot(np.full(len(values), i), values, "o", color="tab:blue", alpha=0.5, markersize=5)
            ax.hlines(values.mean(), i - 0.2, i + 0.2, color="black")
            ax.text(i + 0.25, values.mean(), f"{values.mean():.2f}", va="center", fontsize=9)
        ax.axhline(0, color="black", linestyle=":", linewidth=1)
        ax.set_xticks(range(len(taus)), [name.replace(" ", "\n", 1) for name in taus], fontsize=9)
        ax.set_xlim(-0.5, len(taus) - 0.3)
        ax.set_ylim(-0.4, 1)
        ax.set_title(title, fontsize=10)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("Kendall's tau of attention and gradient")
    return figure


CLAIM = Claim(
    name="agree",
    statement="attention and the gradient's importance agree less, the more context the vectors carry "
    "(a measurement, not a verdict: Neely et al. 2022, arXiv:2205.04559)",
    source="Jain and Wallace 2019, arXiv:1902.10186, section 4.1",
    measure=measure,
)
