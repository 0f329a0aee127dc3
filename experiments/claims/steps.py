"""A central difference has a best step, and no step makes it exact; a complex step may be as short as you like.

Both are compared with minigrad's gradient of one self-attention head, along random directions through its weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import minigrad as mg
from experiments import pictures
from experiments.claims.claim import Check, Claim, Outcome

N, DIM = 5, 4
DIRECTIONS = 100
LONG = np.logspace(-1, -3.5, 11)  # where the formula's own error, of order h^2, is all of it
SHORT = np.logspace(-7, -12, 21)  # where the rounding error, of order 1/h, is all of it
STEPS = np.logspace(-1, -12, 45)
TINY = 1e-200

Function = Callable[[Any], Any]


def head(rng: np.random.Generator) -> tuple[Function, np.ndarray]:
    """(loss, weights): one number from the weights Wq, Wk, Wv (3, dim, dim); in NumPy's words, for complex ones too."""
    x, cotangent = rng.standard_normal((2, N, DIM))

    def loss(weights: Any) -> Any:
        q, k, v = x @ weights[0], x @ weights[1], x @ weights[2]
        relevance = np.exp(q @ np.swapaxes(k, -1, -2) / math.sqrt(DIM))
        relevance = relevance / relevance.sum(-1, keepdims=True)
        return np.sum(np.tanh(relevance @ v) * cotangent)

    return loss, rng.standard_normal((3, DIM, DIM)) / math.sqrt(DIM)


def central(f: Function, x: np.ndarray, u: np.ndarray, h: float) -> float:
    """(f(x + hu) - f(x - hu)) / 2h.

    >>> central(np.sum, np.zeros(2), np.ones(2), 0.5)
    2.0
    """
    return float((f(x + h * u) - f(x - h * u)) / (2 * h))


def complex_step(f: Function, x: np.ndarray, u: np.ndarray, h: float) -> float:
    """Im f(x + ihu) / h: there is no difference in which digits could be lost.

    >>> complex_step(np.sum, np.zeros(2), np.ones(2), 1e-200)
    2.0
    """
    return float(f(x + 1j * h * u).imag / h)


def errors(method: Callable[..., float], f: Function, x: np.ndarray, directions: np.ndarray, h: float) -> np.ndarray:
    """How far f's numeric derivatives along unit directions are from minigrad's, in parts of the gradient's length."""
    gradient = mg.grad(f)(x)
    numeric = np.array([method(f, x, u, h) for u in directions])
    exact = np.array([np.vdot(gradient, u) for u in directions])
    return np.asarray(np.abs(numeric - exact) / np.linalg.norm(gradient))


def slope(steps: np.ndarray, sizes: np.ndarray) -> float:
    """The exponent p of sizes ~ steps^p.

    >>> round(slope(np.array([1.0, 2.0, 4.0]), np.array([3.0, 12.0, 48.0])), 6)
    2.0
    """
    return float(np.polyfit(np.log(steps), np.log(sizes), 1)[0])


def measure(seed: int = 0) -> Outcome:
    rng = np.random.default_rng(seed)
    loss, weights = head(rng)
    directions = rng.standard_normal((DIRECTIONS, *weights.shape))
    directions /= np.sqrt((directions**2).sum((1, 2, 3), keepdims=True))

    def medians(method: Callable[..., float], steps: np.ndarray) -> np.ndarray:
        return np.array([np.median(errors(method, loss, weights, directions, h)) for h in steps])

    curve = medians(central, STEPS)
    best = int(curve.argmin())
    exact = errors(complex_step, loss, weights, directions, TINY)
    long, short = slope(LONG, medians(central, LONG)), slope(SHORT, medians(central, SHORT))
    checks = [
        Check("central difference, long steps: exponent of the error", long, "in", (1.9, 2.1)),
        Check("central difference, short steps: exponent of the error", short, "in", (-1.15, -0.85)),
        Check("central difference: the best step", STEPS[best], "in", (1e-6, 1e-4)),
        Check("central difference: median error there", curve[best], "<=", 1e-8),
        Check(f"complex step of {TINY:g}: largest error", exact.max(), "<=", 1e-14),
    ]
    return Outcome(checks, lambda: _figure(curve, medians(complex_step, STEPS)))


def _figure(differences: np.ndarray, complex_steps: np.ndarray) -> Any:
    figure, axes = pictures.subplots(1, 1, (6, 3.4))
    ax = axes[0, 0]
    ax.loglog(STEPS, differences, marker="o", markersize=3, label="central difference")
    ax.loglog(STEPS, complex_steps, marker="s", markersize=3, label="complex step")
    ax.invert_xaxis()
    ax.set_xlabel("step h (getting shorter)")
    ax.set_ylabel("median error / length of the gradient")
    ax.grid(alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(fontsize=8, frameon=False)
    return figure


CLAIM = Claim(
    name="steps",
    statement="a central difference's error is V-shaped in its step; the complex step's falls and stays down",
    source="Squire and Trapp 1998, SIAM Review 40(1)",
    measure=measure,
)
