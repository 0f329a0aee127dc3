"""Label smoothing gives the logits somewhere to stop; hard labels pull them apart for ever."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import minigrad as mg
from experiments import pictures
from experiments.claims.claim import Check, Claim, Outcome, fit
from minigrad import nn
from models import FCStack

CLASSES, DIM, HIDDEN = 4, 8, 32
SMOOTHING = 0.1
STEPS = 3000


def gap_at_optimum(classes: int, smoothing: float) -> float:
    """ln of the ratio of the wanted probabilities, 1 - e + e/K of the label and e/K of any other class: ln(K(1-e)/e+1).

    >>> round(gap_at_optimum(4, 0.1), 3)
    3.611
    """
    return math.log(classes * (1 - smoothing) / smoothing + 1)


def entropy_floor(classes: int, smoothing: float) -> float:
    """The entropy of the wanted probabilities: no loss is lower.

    >>> round(entropy_floor(2, 1.0) - math.log(2), 12)
    0.0
    """
    other = smoothing / classes
    label = 1 - smoothing + other
    return -label * math.log(label) - (classes - 1) * other * math.log(other)


def points(rng: np.random.Generator, per_class: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """A well separated cloud for each class: vectors (count, dim) and labels (count,)."""
    labels = np.repeat(np.arange(CLASSES), per_class)
    centres = 4 * np.eye(CLASSES, DIM)
    return centres[labels] + 0.3 * rng.standard_normal((len(labels), DIM)), labels


@dataclass(frozen=True)
class Curve:
    """By training step: the loss, and the mean over points of the label's logit minus the mean of the others."""

    loss: list[float]
    gap: list[float]


def train(x: np.ndarray, labels: np.ndarray, smoothing: float, steps: int) -> Curve:
    """An FC with one hidden layer, by Adam on all points at once."""
    model = FCStack((DIM, HIDDEN, CLASSES), dtype=np.float64)
    gaps: list[float] = []

    def loss() -> mg.Tensor:
        logits = model(x)
        gaps.append(mean_gap(logits.numpy(), labels))
        return nn.cross_entropy(logits, labels, label_smoothing=smoothing)

    return Curve(fit(model.parameters(), loss, steps=steps, lr=1e-2), gaps)


def mean_gap(logits: np.ndarray, labels: np.ndarray) -> float:
    """The mean over points of the label's logit minus the mean of the others.

    >>> mean_gap(np.array([[5.0, 1.0, 3.0]]), np.array([0]))
    3.0
    """
    own = np.take_along_axis(logits, labels[:, None], -1)[:, 0]
    others = (logits.sum(-1) - own) / (logits.shape[-1] - 1)
    return float((own - others).mean())


def measure(seed: int = 0, steps: int = STEPS) -> Outcome:
    mg.seed(seed)
    x, labels = points(np.random.default_rng(seed))
    smoothed, hard = (train(x, labels, smoothing, steps) for smoothing in (SMOOTHING, 0.0))
    gap, floor = gap_at_optimum(CLASSES, SMOOTHING), entropy_floor(CLASSES, SMOOTHING)
    grown = hard.gap[-1] - hard.gap[steps // 2]
    checks = [
        Check(f"smoothed: relative error of the logit gap, to {gap:.4f}", abs(smoothed.gap[-1] / gap - 1), "<=", 0.01),
        Check(f"smoothed: loss above its floor of {floor:.4f}", smoothed.loss[-1] - floor, "<=", 1e-3),
        Check(
            "smoothed: growth of the gap in the second half", smoothed.gap[-1] - smoothed.gap[steps // 2], "<=", 0.01
        ),
        Check(f"hard labels: growth of the gap in the second half, to {hard.gap[-1]:.2f}", grown, ">=", 1),
    ]
    return Outcome(checks, lambda: _figure(smoothed, hard, gap, floor))


def _figure(smoothed: Curve, hard: Curve, gap: float, floor: float) -> Any:
    figure, axes = pictures.subplots(1, 2, (9, 3.2))
    for ax, name, label, line in ((axes[0, 0], "gap", "logit gap", gap), (axes[0, 1], "loss", "loss", floor)):
        for curve, said in ((hard, "hard labels"), (smoothed, f"label smoothing {SMOOTHING}")):
            values = getattr(curve, name)
            ax.plot(np.arange(1, len(values) + 1), values, label=said)
        ax.axhline(line, color="black", linestyle=":", linewidth=1)
        ax.set_xscale("log")
        ax.set_xlabel("training step")
        ax.set_ylabel(label)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0, 0].text(1, gap, "ln(K(1-e)/e + 1)", va="bottom", fontsize=8)
    axes[0, 1].text(STEPS, 0.9 * floor, "entropy of the smoothed labels", ha="right", va="top", fontsize=8)
    axes[0, 1].set_yscale("log")
    axes[0, 0].legend(fontsize=8, frameon=False)
    return figure


CLAIM = Claim(
    name="smooth",
    statement="label smoothing e pulls the logit gap to ln(K(1-e)/e + 1) and the loss to its entropy floor; "
    "with hard labels the gap keeps growing",
    source="Szegedy et al. 2016, arXiv:1512.00567, section 7",
    measure=measure,
)
