"""What a window costs: parameters, over-fitting, and blindness past its edge. What attention costs: n^2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import minigrad as mg
from experiments import pictures
from experiments.claims.claim import Check, Claim, Outcome, fit
from minigrad import nn, study
from models import AttentionStack, FrameProjection, PerVector, SelfAttention, WindowFC

D, H, K = 8, 32, 4  # widths of a vector and of the hidden layer, and the number of labels
NEIGHBOURS = tuple(range(8))  # on each side
DATA_SETS = 6

# --- a local task with little data: wider windows over-fit -------------------------------------------------------


class LocalTask:
    """Vectors whose labels depend, linearly, on themselves and one neighbour on each side, and on nothing else."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.weights = rng.standard_normal((3, D, K))

    def draw(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Vectors (count, n, D) and labels (count, n)."""
        x = self.rng.standard_normal((count, 12, D))
        left, right = np.zeros_like(x), np.zeros_like(x)
        left[:, 1:], right[:, :-1] = x[:, :-1], x[:, 1:]
        scores = left @ self.weights[0] + x @ self.weights[1] + right @ self.weights[2]
        return x, scores.argmax(-1)


@dataclass(frozen=True)
class Fitted:
    """A trained window model: gap is its accuracy on train minus that on test; loss its cross-entropy on test."""

    parameters: int
    gap: float
    loss: float


def fitted(neighbours: int, train: Any, test: Any, steps: int) -> Fitted:
    """A model trained on all of `train` at once. train, test: vectors and labels."""
    model = WindowFC(D, neighbours, (H, K), dtype=np.float64)
    fit(model.parameters(), lambda: nn.cross_entropy(model(train[0]), train[1]), steps=steps, lr=1e-2)
    with mg.no_grad():
        seen, unseen = model(train[0]).numpy(), model(test[0]).numpy()
        loss = nn.cross_entropy(unseen, test[1]).item()
    gap = np.mean(seen.argmax(-1) == train[1]) - np.mean(unseen.argmax(-1) == test[1])
    return Fitted(sum(p.size for p in model.parameters()), float(gap), loss)


def parameters(neighbours: int) -> int:
    """(2w + 1) D H + H + H K + K, for w neighbours on each side."""
    return (2 * neighbours + 1) * D * H + H + H * K + K


def widening(rng: np.random.Generator, steps: int = 300, data_sets: int = DATA_SETS) -> list[Fitted]:
    """For each number of neighbours, the mean over several small data sets."""
    rows = []
    for _ in range(data_sets):
        task = LocalTask(rng)
        train, test = task.draw(20), task.draw(200)
        rows.append([fitted(neighbours, train, test, steps) for neighbours in NEIGHBOURS])
    return [
        Fitted(column[0].parameters, float(np.mean([f.gap for f in column])), float(np.mean([f.loss for f in column])))
        for column in zip(*rows)
    ]


# --- one vector of a sequence is marked, and all are labelled with what it is ------------------------------------

LENGTH, SEEN, DIM = 16, 3, 16

BODIES: dict[str, Any] = {
    f"window of {SEEN} neighbours": lambda: WindowFC(DIM, SEEN, (H, DIM), dtype=np.float64),
    "self-attention": lambda: AttentionStack(DIM, heads=4, dtype=np.float64),
}


def marked(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One-hot kinds and a mark (count, n, K + 1), labels (count, n), and each vector's distance to the marked one."""
    kinds, at = rng.integers(0, K, (count, LENGTH)), rng.integers(0, LENGTH, count)
    x = np.eye(K + 1)[kinds]
    x[np.arange(count), at, K] = 1
    labels = np.repeat(kinds[np.arange(count), at, None], LENGTH, 1)
    return x, labels, np.abs(np.arange(LENGTH) - at[:, None])


def accuracy_by_distance(body: nn.Module, rng: np.random.Generator, steps: int = 400) -> np.ndarray:
    """Of a model trained on such sequences, at distances 0 to n - 1."""
    model = PerVector(FrameProjection(K + 1, DIM, dtype=np.float64), body, DIM, K, dtype=np.float64)

    def loss() -> mg.Tensor:
        x, labels, _ = marked(32, rng)
        return nn.cross_entropy(model(x), labels)

    fit(model.parameters(), loss, steps=steps, lr=1e-2)
    x, labels, distance = marked(5000, rng)
    with mg.no_grad():
        right = model(x).numpy().argmax(-1) == labels
    return np.array([right[distance == d].mean() for d in range(LENGTH)])


# --- what it costs -----------------------------------------------------------------------------------------------

LENGTHS = (16, 32, 64, 128, 256, 512, 1024)


def multiply_adds(model: nn.Module, n: int) -> int:
    """Of all matrix products in the recorded graph of a forward pass over n vectors.

    Watching all that passes in the model makes its attention form the weights, in plain matrix products.
    """
    with study.recording(), study.capture(model, "*", grad=False):
        output = model(np.ones((1, n, D)))
    total = 0
    for node in study.calls(output):
        call = node.notes.call if node.notes is not None else None
        if call is not None and str(node.op) in ("linear", "matmul"):
            total += call.output.size * np.shape(call.arguments[0])[-1]
    return total


def quadratic_part(counts: dict[int, int]) -> float:
    """b of the counts a n + b n^2, from the two longest lengths."""
    *_, (n, count), (twice, double) = sorted(counts.items())
    return (double - twice // n * count) / (twice * (twice - n))


# --- all of it ---------------------------------------------------------------------------------------------------


def measure(seed: int = 0) -> Outcome:
    mg.seed(seed)
    rng = np.random.default_rng(seed)
    wide = widening(rng)
    far = {name: accuracy_by_distance(body(), rng) for name, body in BODIES.items()}
    blind, sees = (accuracies[SEEN + 1 :] for accuracies in far.values())
    window, attention = WindowFC(D, SEEN, (H, K), dtype=np.float64), SelfAttention(D, dtype=np.float64)
    costs = {
        name: {n: multiply_adds(model, n) for n in LENGTHS}
        for name, model in ((f"window of {SEEN} neighbours", window), ("self-attention", attention))
    }
    of_window, of_attention = map(quadratic_part, costs.values())
    off = max(abs(f.parameters - parameters(w)) for w, f in zip(NEIGHBOURS, wide))
    span = f"{wide[1].parameters} (width 3) to {wide[-1].parameters} (15)"
    checks = [
        Check(f"window FC: parameters, {span}, off (2w+1)DH + H + HK + K by", off, "=", 0),
        Check("window FC: how much higher test cross-entropy is at widths 5 to 15 than at 3", loss_above(wide), ">", 0),
        Check(
            "window FC: gap of accuracy, train to test, at width 15 minus at 3", wide[-1].gap - wide[1].gap, ">=", 0.2
        ),
        Check(f"window FC: accuracy past its edge (chance {1 / K})", float(blind.mean()), "in", (0.22, 0.28)),
        Check("self-attention: accuracy at those distances, the lowest", float(sees.min()), ">=", 0.95),
        Check("window FC: multiply-adds, coefficient of n^2", of_window, "=", 0),
        Check("self-attention: multiply-adds, coefficient of n^2 (key and value width)", of_attention, "=", 2 * D),
    ]
    return Outcome(checks, lambda: _figure(wide, far, costs))


def loss_above(wide: list[Fitted]) -> float:
    """How much the best of all windows that are wider than 3 is worse than the window of width 3."""
    return min(f.loss for f in wide[2:]) - wide[1].loss


def _figure(wide: list[Fitted], far: dict[str, np.ndarray], costs: dict[str, dict[int, int]]) -> Any:
    figure, axes = pictures.subplots(1, 3, (13, 3.4))
    ax = axes[0, 0]
    widths = [2 * w + 1 for w in NEIGHBOURS]
    ax.plot(
        widths, [f.loss for f in wide], marker="o", markersize=4, label="test cross-entropy (labels depend on width 3)"
    )
    ax.plot(widths, [f.gap for f in wide], marker="s", markersize=4, label="accuracy on train minus test")
    ax.set_xlabel("width of the window, and its parameters")
    ax.set_xticks(widths, [f"{width}\n{f.parameters}" for width, f in zip(widths, wide)], fontsize=8)
    ax.set_ylim(bottom=0)
    ax = axes[0, 1]
    for name, accuracies in far.items():
        ax.plot(accuracies, marker="o", markersize=4, label=name)
    ax.axhline(1 / K, color="black", linestyle=":", linewidth=1, label="chance")
    ax.axvline(SEEN + 0.5, color="grey", linestyle="--", linewidth=1, label="edge of the window")
    ax.set_xlabel("distance to what tells the label")
    ax.set_xticks(range(0, LENGTH, 3))
    ax.set_ylabel("accuracy on test")
    ax = axes[0, 2]
    for name, counts in costs.items():
        ax.loglog(list(counts), list(counts.values()), marker="o", markersize=4, label=name)
    ax.set_xlabel("vectors in the sequence")
    ax.set_ylabel("multiply-adds of a forward pass")
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(fontsize=8, frameon=False)
    return figure


CLAIM = Claim(
    name="window",
    statement="a window FC grows with its window and over-fits, and cannot look past its edge; attention can, for n^2",
    source="the lecture",
    measure=measure,
)
