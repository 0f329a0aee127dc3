"""What is timed: the tasks, and their data, the same float32 arrays for every implementation.

train      a step of training: 2 x (single-head self-attention -> FC relu FC) -> linear -> mean cross-entropy, forward,
           backward and Adam; scores divided by sqrt(width), no residuals, another batch at every call
chain      y = y * a + a again and again on 16 x 16 numbers, sum, backward: what a call costs beside its arithmetic
attention  sum(softmax(q k^T / sqrt(d)) v * w) of 4 heads of 64, forward and backward
product    a product of two 2048 x 2048 matrices: the rate that no step of training can exceed
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Arrays = list[np.ndarray[Any, Any]]
Batch = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]

BLOCKS = 2
WEIGHTS_OF_A_BLOCK = 7  # query, key, value (width, width), w1 (width, hidden), b1, w2 (hidden, width), b2
BATCHES = 8
PRODUCT = 2048


class Shape(NamedTuple):
    """How large a step of training is."""

    batch: int
    vectors: int
    width: int
    hidden: int
    classes: int


SIZES = {
    "tiny": Shape(16, 8, 16, 32, 8),
    "small": Shape(32, 32, 64, 128, 16),
    "medium": Shape(32, 64, 256, 512, 32),
    "large": Shape(8, 256, 512, 1024, 64),
}


class Task(NamedTuple):
    """A task and its size: a key of SIZES for train, the number of links, vectors or rows for the others.

    >>> str(Task("train", "tiny")), str(Task("attention", "512"))
    ('train, tiny (16 x 8 x 16)', 'attention, 512 vectors')
    """

    kind: str
    size: str

    def __str__(self) -> str:
        if self.kind == "train":
            return f"train, {self.size} ({' x '.join(map(str, SIZES[self.size][:3]))})"
        unit = {"chain": "links", "attention": "vectors"}.get(self.kind)
        return f"{self.kind}, {self.size} {unit}" if unit else self.kind


def train_data(size: str) -> tuple[Arrays, list[Batch]]:
    """First weights, a block's after the other's and the classifier's last, and batches of vectors and labels."""
    shape = SIZES[size]
    rng = np.random.default_rng(0)

    def weight(n_in: int, n_out: int) -> np.ndarray[Any, Any]:
        return rng.normal(0, n_in**-0.5, (n_in, n_out)).astype(np.float32)

    def bias(n: int) -> np.ndarray[Any, Any]:
        return np.zeros(n, np.float32)

    width, hidden = shape.width, shape.hidden
    params: Arrays = []
    for _ in range(BLOCKS):
        params += [weight(width, width) for _ in range(3)]
        params += [weight(width, hidden), bias(hidden), weight(hidden, width), bias(width)]
    params += [weight(width, shape.classes), bias(shape.classes)]
    places = (shape.batch, shape.vectors)
    return params, [
        (rng.standard_normal((*places, width), np.float32), rng.integers(0, shape.classes, places))
        for _ in range(BATCHES)
    ]


def chain_data() -> np.ndarray[Any, Any]:
    """Just below 1, so that the longest chain stays finite."""
    return np.full((16, 16), 0.999, np.float32)


def attention_data(vectors: int) -> Arrays:
    """q, k, v and w, (heads, vectors, 64)."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal((4, vectors, 64), np.float32) for _ in range(4)]


def product_data() -> Arrays:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((PRODUCT, PRODUCT), np.float32) for _ in range(2)]


def train_products(size: str) -> int:
    """Multiplications in the matrix products of a step: once forward, twice backward; the input needs no gradient."""
    shape = SIZES[size]
    width = shape.width
    a_vector = 3 * width * width + 2 * width * shape.hidden + 2 * shape.vectors * width
    unneeded = 3 * width * width
    return shape.batch * shape.vectors * (3 * (BLOCKS * a_vector + width * shape.classes) - unneeded)
