"""What stands in the padding of a batch gets no gradient and changes nothing, if every place that looks is masked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import minigrad as mg
from experiments import pictures
from experiments.claims.claim import Check, Claim, Outcome
from minigrad import nn
from models import AttentionStack, FrameProjection, PerVector, Single

FEATURES, DIM, LABELS = 8, 16, 3
LENGTHS = (3, 8, 5, 1, 7)
LONGEST = 8


@dataclass(frozen=True)
class Batch:
    """frames: (batch, n, features); valid: (batch, n); labels of vectors (batch, n), and of sets (batch,)."""

    frames: np.ndarray
    valid: np.ndarray
    labels: np.ndarray
    label: np.ndarray

    def padded_with(self, padding: Any) -> np.ndarray:
        """The frames, with something else in the place of padding."""
        return np.where(self.valid[..., None], self.frames, padding)


def make_batch(rng: np.random.Generator) -> Batch:
    shape = len(LENGTHS), LONGEST
    valid: np.ndarray = np.arange(LONGEST) < np.array(LENGTHS)[:, None]
    labels = rng.integers(0, LABELS, shape), rng.integers(0, LABELS, len(LENGTHS))
    return Batch(rng.standard_normal((*shape, FEATURES)), valid, *labels)


def body() -> nn.Module:
    return AttentionStack(DIM, blocks=2, heads=2, positions="relative", dtype=np.float64)


class ScoresMaskedOnly(nn.Module):
    """What is easily done by mistake: nobody looks at padding, but the padded rows themselves are pooled."""

    def __init__(self) -> None:
        self.inputs, self.body = FrameProjection(FEATURES, DIM, dtype=np.float64), body()
        self.labels = nn.Linear(DIM, LABELS, dtype=np.float64)

    def forward(self, x: mg.Tensor, *, valid: np.ndarray) -> mg.Tensor:
        keys = np.broadcast_to(valid[:, None], (*valid.shape, valid.shape[1]))
        return self.labels(self.body(self.inputs(x), mask=keys).mean(1))


Loss = Callable[[mg.Tensor, Batch], mg.Tensor]


def loss_per_vector(model: nn.Module) -> Loss:
    return lambda x, b: nn.cross_entropy(model(x, valid=b.valid), b.labels, mask=b.valid)


def loss_single(model: nn.Module) -> Loss:
    return lambda x, b: nn.cross_entropy(model(x, valid=b.valid), b.label)


@dataclass(frozen=True)
class Passed:
    """The loss, the gradient of the frames, and the gradients of the weights."""

    loss: float
    frames: np.ndarray
    weights: list[np.ndarray]

    def change(self, other: Passed, valid: np.ndarray) -> float:
        """The largest difference of anything that is real; NaN if there is one."""
        pairs = [(self.loss, other.loss), (self.frames[valid], other.frames[valid]), *zip(self.weights, other.weights)]
        return float(np.max([np.max(np.abs(np.subtract(a, b))) for a, b in pairs]))


def both_ways(model: nn.Module, loss: Loss, batch: Batch, frames: np.ndarray) -> Passed:
    """Forward and backward."""
    x = mg.tensor(frames, requires_grad=True)
    for p in model.parameters():
        p.grad = None
    value = loss(x, batch)
    value.backward()
    assert x.grad is not None
    return Passed(value.item(), x.grad, [p.grad for p in model.parameters() if p.grad is not None])


@dataclass(frozen=True)
class Found:
    """gradient: of the frames, (batch, n, features); other, nan: what other numbers, or NaN, in the padding change."""

    gradient: np.ndarray
    other: float
    nan: float


def look(model: nn.Module, loss: Loss, batch: Batch, rng: np.random.Generator) -> Found:
    first = both_ways(model, loss, batch, batch.frames)
    others = both_ways(model, loss, batch, batch.padded_with(1e3 * rng.standard_normal(batch.frames.shape)))
    nans = both_ways(model, loss, batch, batch.padded_with(np.nan))
    return Found(first.frames, first.change(others, batch.valid), first.change(nans, batch.valid))


def nonzero(x: np.ndarray) -> int:
    return int(np.count_nonzero(x))


def measure(seed: int = 0) -> Outcome:
    mg.seed(seed)
    rng = np.random.default_rng(seed)
    batch = make_batch(rng)
    padded = ~batch.valid
    checks = []
    gradients: dict[str, np.ndarray] = {}
    for name, head, loss_of in (
        ("a label per vector", PerVector, loss_per_vector),
        ("one label for the set", Single, loss_single),
    ):
        model = head(FrameProjection(FEATURES, DIM, dtype=np.float64), body(), DIM, LABELS, dtype=np.float64)
        found = look(model, loss_of(model), batch, rng)
        gradients[name] = found.gradient
        checks += [
            Check(f"{name}: nonzero gradients in the padding", nonzero(found.gradient[padded]), "=", 0),
            Check(f"{name}: change of loss and gradients by other padding", found.other, "=", 0),
            Check(f"{name}: change of loss and gradients by NaN in the padding", found.nan, "=", 0),
        ]
    careless = ScoresMaskedOnly()
    gradient = both_ways(careless, loss_single(careless), batch, batch.frames).frames
    gradients["scores masked only"] = gradient
    checks.append(
        Check(
            f"scores masked, pooling not: nonzero gradients in the padding, of {gradient[padded].size}",
            nonzero(gradient[padded]),
            ">",
            0,
        )
    )
    return Outcome(checks, lambda: _figure(gradients, batch.valid))


def _figure(gradients: dict[str, np.ndarray], valid: np.ndarray) -> Any:
    figure, axes = pictures.subplots(1, len(gradients), (10, 2.8))
    for ax, (name, gradient) in zip(axes.flat, gradients.items()):
        sizes = np.sqrt((gradient**2).sum(-1))
        image = ax.imshow(np.where(sizes > 0, sizes, np.nan), cmap="viridis", vmin=0, aspect="auto")
        for row, n in enumerate(valid.sum(1)):
            ax.plot([n - 0.5, n - 0.5], [row - 0.5, row + 0.5], color="red", linewidth=2)
        ax.set_title(name, fontsize=9)
        ax.set_xlabel("vector (padding is right of the red line)", fontsize=8)
        figure.colorbar(image, ax=ax, shrink=0.8)
    axes[0, 0].set_ylabel("sequence", fontsize=8)
    figure.suptitle("norm of the gradient of each input vector; white: exactly 0", fontsize=10)
    return figure


CLAIM = Claim(
    name="padding",
    statement="what stands in the padding gets exactly zero gradient and changes nothing",
    source="what masks are for: Vaswani et al. 2017, section 3.2.3",
    measure=measure,
)
