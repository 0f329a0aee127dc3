"""Why scores are divided by sqrt(d): q . k has variance d, softmax saturates, and most scores get no gradient.

It is the median query that gets none. The gradient of Wq as a whole grows with d: a few queries whose two best keys
are nearly tied carry it. And it takes few keys: the more there are, the nearer are the best two, and the wider q and k
must be before softmax saturates (the figure has a curve for 64 keys).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import minigrad as mg
from experiments import pictures
from experiments.claims.claim import Check, Claim, Outcome
from minigrad import study
from models import SelfAttention

WIDTHS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
REFERENCE = WIDTHS.index(16)  # the width that wider ones are compared with
KEYS, MANY_KEYS = 8, 64
MARKS: dict[str, dict[str, Any]] = {  # a line under another is seen beside it
    "dot": {"marker": "o", "markersize": 4},
    "scaled_dot": {"marker": "s", "markersize": 8, "linewidth": 5, "alpha": 0.5},
    "additive": {"marker": "^", "markersize": 4, "linestyle": "--"},
}
SCORES = {"dot": "q . k", "scaled_dot": "q . k / sqrt(d)", "additive": "u . tanh(q + k)"}


def variance(d: int, rng: np.random.Generator, pairs: int = 20000) -> float:
    """The variance of q . k over many pairs with independent components of mean 0 and variance 1."""
    chunks = [mg.vecdot(*rng.standard_normal((2, 1000, d))).numpy() for _ in range(pairs // 1000)]
    return float(np.var(chunks))


def jacobian_norms(scores: np.ndarray) -> np.ndarray:
    """The Frobenius norm of d softmax(scores) / d scores of each query, (...) for scores (..., key)."""
    _, pull = mg.vjp(mg.softmax, scores)
    rows = [pull(np.broadcast_to(unit, scores.shape))[0] for unit in np.eye(scores.shape[-1])]
    norms: np.ndarray = np.linalg.norm(rows, axis=(0, -1))
    return norms


@dataclass(frozen=True)
class Sizes:
    """jacobian: median norm over the queries; gradients: norms of dL/dalpha, one a query; weight: norm of dL/dWq."""

    jacobian: float
    gradients: np.ndarray
    weight: float

    @property
    def gradient(self) -> float:
        return float(np.median(self.gradients))

    @property
    def share_of_few(self) -> float:
        """What a tenth of the queries, those with the largest, have of the sum of all squared norms."""
        squares = np.sort(self.gradients**2)
        return float(squares[-(len(squares) // 10) :].sum() / squares.sum())


def sizes(d: int, score: str, rng: np.random.Generator, keys: int = KEYS) -> Sizes:
    """Of new layers of width d on vectors of independent normal numbers; L = <c, b>, c of length 1 for each query.

    Narrow layers differ more, so there are more of them.
    """
    jacobians, gradients, weights = [], [], []
    for _ in range(max(4, 256 // d)):
        layer = SelfAttention(d, score=score, rng=rng, dtype=np.float64)
        with study.capture(layer, "scores") as caught:
            output = layer(rng.standard_normal((400 // keys, keys, d)))
        cotangent = rng.standard_normal(output.shape)
        output.backward(cotangent / np.linalg.norm(cotangent, axis=-1, keepdims=True))
        assert caught["scores"].grad is not None
        assert layer.query.weight.grad is not None
        jacobians.append(jacobian_norms(caught["scores"].value))
        gradients.append(np.linalg.norm(caught["scores"].grad, axis=-1))
        weights.append(np.linalg.norm(layer.query.weight.grad))
    return Sizes(float(np.median(jacobians)), np.ravel(gradients), float(np.mean(weights)))


def farthest(found: list[Sizes]) -> float:
    """The largest relative difference of a wider layer's median Jacobian norm from that at the reference width."""
    norms = np.array([s.jacobian for s in found])
    return float(np.abs(norms[REFERENCE:] / norms[REFERENCE] - 1).max())


def measure(seed: int = 0) -> Outcome:
    rng = np.random.default_rng(seed)
    variances = [variance(d, rng) for d in WIDTHS]
    found = {score: [sizes(d, score, rng) for d in WIDTHS] for score in SCORES}
    many = [sizes(d, "dot", rng, MANY_KEYS) for d in WIDTHS]
    ratios = [v / d for v, d in zip(variances, WIDTHS)]
    raw, scaled, additive = found.values()
    grown = raw[-1].weight / raw[REFERENCE].weight
    checks = [
        Check("variance of q . k over d, the smallest of d = 4 to 1024", min(ratios), ">=", 0.95),
        Check("variance of q . k over d, the largest of d = 4 to 1024", max(ratios), "<=", 1.05),
        Check("raw scores: median norm of softmax's Jacobian at d = 1024", raw[-1].jacobian, "<=", 1e-4),
        Check("scaled scores: largest relative change of that norm from d = 16 on", farthest(scaled), "<=", 0.05),
        Check("additive scores: largest relative change of that norm from d = 16 on", farthest(additive), "<=", 0.1),
        Check("raw scores: median norm of dL/dalpha at d = 1024", raw[-1].gradient, "<=", 1e-4),
        Check("scaled scores: median norm of dL/dalpha at d = 1024", scaled[-1].gradient, ">=", 0.2),
        Check("raw scores: norm of dL/dWq at d = 1024 over that at d = 16", grown, ">", 1),
        Check(
            "raw scores: share of dL/dalpha squared that a tenth of the queries has", raw[-1].share_of_few, ">=", 0.9
        ),
    ]
    return Outcome(checks, lambda: _figure(variances, found, many))


def _figure(variances: list[float], found: dict[str, list[Sizes]], many: list[Sizes]) -> Any:
    figure, axes = pictures.subplots(1, 3, (13, 3.6))
    axes[0, 0].loglog(WIDTHS, WIDTHS, color="black", linestyle=":", linewidth=1, label="d")
    axes[0, 0].loglog(WIDTHS, variances, "o", markersize=4, label="variance of q . k")
    for ax, name in ((axes[0, 1], "jacobian"), (axes[0, 2], "gradient")):
        for score, label in SCORES.items():
            ax.loglog(WIDTHS, [getattr(s, name) for s in found[score]], label=label, **MARKS[score])
        values = [getattr(s, name) for s in many]
        ax.loglog(WIDTHS, values, color="tab:blue", linestyle="--", label=f"q . k, {MANY_KEYS} keys instead of {KEYS}")
        ax.axhline(1e-4, color="black", linestyle=":", linewidth=1)
    axes[0, 0].set_ylabel("variance")
    axes[0, 1].set_ylabel("median norm of softmax's Jacobian")
    axes[0, 2].set_ylabel("median norm of dL/dalpha")
    for ax in axes.flat:
        ax.set_xlabel("d, width of query and key")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(fontsize=8, frameon=False)
    return figure


CLAIM = Claim(
    name="scale",
    statement="the variance of q . k is d, so that softmax saturates without 1 / sqrt(d); additive scores do not",
    source="Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1, footnote 4",
    measure=measure,
)
