"""Utterances of synthetic speakers who differ in nothing but the order in which they speak.

All have the same four sounds, and each goes through them in an order of its own: there are six ways round a cycle of
four, hence six speakers. An utterance is one round or two; it begins anywhere, and every sound lasts three to five
frames, whoever speaks. So the *set* of an utterance's frames has the same distribution for all: not their mean, not
their covariance, no function of single frames added up says who it is. Which sound follows which says it at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.data.ts import Frames

ORDERS = {
    "Anna": (0, 1, 2, 3),
    "Ben": (0, 1, 3, 2),
    "Clara": (0, 2, 1, 3),
    "David": (0, 2, 3, 1),
    "Emma": (0, 3, 1, 2),
    "Felix": (0, 3, 2, 1),
}
DIMENSIONS = 12
LOUDNESS, CHANNEL, NOISE = 0.1, 0.1, 0.3  # deviations: of an utterance's gain, of its offset, of every frame


def utterances(count: int, rng: np.random.Generator) -> Frames:
    """That many utterances of each speaker, in random order: (n, 12) float32, 12 to 40 frames, labelled by name."""
    names = np.repeat(list(ORDERS), count)
    rng.shuffle(names)
    return Frames([_utterance(ORDERS[name], rng) for name in names], [str(name) for name in names])


def splits(seed: int, train: int = 100, dev: int = 30, test: int = 50) -> tuple[Frames, Frames, Frames]:
    """So many utterances of each speaker for training, for dev and for testing."""
    rng = np.random.default_rng(seed)
    return utterances(train, rng), utterances(dev, rng), utterances(test, rng)


def _sounds() -> NDArray[np.float64]:
    """The four sounds (4, 12): orthogonal and of length 3, so that all are equally far apart; the same in every run."""
    rotation, _ = np.linalg.qr(np.random.default_rng(12).normal(size=(DIMENSIONS, DIMENSIONS)))
    return 3 * rotation[:4]


_SOUNDS = _sounds()


def _utterance(order: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float32]:
    frames = _SOUNDS[_sequence(order, rng)]
    gain = 1 + LOUDNESS * rng.normal()
    channel = CHANNEL * rng.normal(size=DIMENSIONS)
    return (gain * frames + channel + NOISE * rng.normal(size=frames.shape)).astype(np.float32)


def _sequence(order: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.intp]:
    """Which sound each frame has, (n,)."""
    rounds, start = int(rng.integers(1, 3)), int(rng.integers(len(order)))
    lasting = rng.integers(3, 6, size=rounds * len(order))
    return np.repeat(np.tile(np.roll(order, -start), rounds), lasting)
