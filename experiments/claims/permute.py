"""Without positions, self-attention of permuted vectors is the permuted self-attention; so are its gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import minigrad as mg
from experiments import pictures
from experiments.claims.claim import Check, Claim, Outcome
from minigrad import nn
from models import AttentionStack, SelfAttention

DIM, HEADS, N = 16, 4, 9
PERMUTATIONS = 200

MODELS: dict[str, Callable[[], nn.Module]] = {
    "self-attention": lambda: SelfAttention(DIM, HEADS, dtype=np.float64),
    "two blocks of self-attention and FC": lambda: AttentionStack(DIM, blocks=2, heads=HEADS, dtype=np.float64),
    "self-attention with positions": lambda: SelfAttention(DIM, HEADS, positions="relative", dtype=np.float64),
}


@dataclass(frozen=True)
class Errors:
    """The largest differences, one for each permutation: outputs, gradients of the input, gradients of the weights."""

    forward: np.ndarray
    backward: np.ndarray
    weights: np.ndarray


def passes(model: nn.Module, x: np.ndarray, cotangent: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Output, gradient of x, and gradients of the parameters, of <cotangent, model(x)>."""
    t = mg.tensor(x[None], requires_grad=True)
    for p in model.parameters():
        p.grad = None
    y = model(t)
    y.backward(cotangent[None])
    assert t.grad is not None
    return y.numpy()[0], t.grad[0], [p.grad for p in model.parameters() if p.grad is not None]


def errors(model: nn.Module, rng: np.random.Generator, permutations: int = PERMUTATIONS) -> Errors:
    """model(permuted x) against permuted model(x), and the same of the gradients, at random x and cotangents."""
    x, cotangent = rng.standard_normal((2, N, DIM))
    output, gradient, weights = passes(model, x, cotangent)
    rows = []
    for _ in range(permutations):
        order = rng.permutation(N)
        permuted_output, permuted_gradient, permuted_weights = passes(model, x[order], cotangent[order])
        rows.append(
            (
                np.abs(permuted_output - output[order]).max(),
                np.abs(permuted_gradient - gradient[order]).max(),
                max(np.abs(a - b).max() for a, b in zip(weights, permuted_weights)),
            )
        )
    return Errors(*np.array(rows).T)


def measure(seed: int = 0, permutations: int = PERMUTATIONS) -> Outcome:
    mg.seed(seed)
    rng = np.random.default_rng(seed)
    found = {name: errors(make(), rng, permutations) for name, make in MODELS.items()}
    checks = []
    for name, e in found.items():
        if "with positions" in name:
            checks += [
                Check(f"{name}: median error forward", float(np.median(e.forward)), ">", 0.1),
                Check(f"{name}: median error of the input's gradient", float(np.median(e.backward)), ">", 0.1),
            ]
            continue
        checks += [
            Check(f"{name}: largest error forward, {permutations} permutations", e.forward.max(), "<=", 1e-12),
            Check(f"{name}: largest error of the input's gradient", e.backward.max(), "<=", 1e-12),
            Check(f"{name}: largest change of a weight's gradient", e.weights.max(), "<=", 1e-12),
        ]
    return Outcome(checks, lambda: _figure(found))


def _figure(found: dict[str, Errors]) -> Any:
    figure, axes = pictures.subplots(1, 1, (7, 3.2))
    ax = axes[0, 0]
    for colour, (name, e) in zip(("tab:blue", "tab:green", "tab:red"), found.items()):
        ax.plot(np.sort(np.maximum(e.forward, 1e-17)), color=colour, label=f"{name}, forward")
        ax.plot(np.sort(np.maximum(e.backward, 1e-17)), color=colour, linestyle="--", label=f"{name}, backward")
    ax.axhline(1e-12, color="black", linestyle=":", linewidth=1)
    ax.set_yscale("log")
    ax.set_xlabel("permutations, from the smallest error to the largest")
    ax.set_ylabel("largest error")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(fontsize=8, frameon=False)
    return figure


CLAIM = Claim(
    name="permute",
    statement="self-attention without positions is permutation equivariant, forward and backward",
    source="Lee et al. 2019 (Set Transformer), arXiv:1810.00825",
    measure=measure,
)
