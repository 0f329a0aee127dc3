"""What is done to sequences of frames (n, d) before a model sees them; every function returns a new array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Sequence32 = NDArray[np.float32]


@dataclass(frozen=True)
class Statistics:
    """Mean and deviation of every dimension, each (d,)."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]


def statistics(sequences: Sequence[Sequence32]) -> Statistics:
    """Mean and deviation over all frames of all sequences; a dimension that never changes has deviation 1."""
    frames = np.concatenate(sequences).astype(np.float64)
    deviation = frames.std(axis=0)
    # A constant column's deviation may come out as rounding error; dividing by that would blow it up.
    constant = deviation <= 1e-7 * np.abs(frames).max(axis=0)
    return Statistics(frames.mean(axis=0), np.where(constant, 1.0, deviation))


def standardise(frames: Sequence32, given: Statistics) -> Sequence32:
    """Frames with the mean taken off and divided by the deviation."""
    scaled: NDArray[np.float64] = (frames - given.mean) / given.deviation
    return scaled.astype(np.float32)


def resample(frames: Sequence32, length: int, rng: np.random.Generator | None = None, warp: float = 0.5) -> Sequence32:
    """Frames (n, d) as (length, d), linearly interpolated; with rng along a random smooth time warp.

    The warp keeps both ends; its speed lies between 1 - warp and 1 + warp. ValueError unless 0 <= warp < 1.
    """
    if length < 1 or not 0 <= warp < 1:
        raise ValueError(f"expected a positive length and 0 <= warp < 1, got {length} and {warp}")
    times = np.linspace(0.0, 1.0, length)
    if rng is not None:
        times = _warped(times, rng, warp)
    at = times * (len(frames) - 1)
    left = np.minimum(at.astype(np.intp), max(len(frames) - 2, 0))
    right = np.minimum(left + 1, len(frames) - 1)
    weight = (at - left)[:, None]
    between: NDArray[np.float64] = (1 - weight) * frames[left] + weight * frames[right]
    return between.astype(np.float32)


def _warped(times: NDArray[np.float64], rng: np.random.Generator, warp: float) -> NDArray[np.float64]:
    """t + sum_k a_k sin(k pi t) / (k pi), whose derivative 1 + sum_k a_k cos(k pi t) stays within warp of 1."""
    waves = np.arange(1, 4)
    amplitudes = rng.uniform(-warp, warp, size=len(waves)) / len(waves)
    warped: NDArray[np.float64] = times + np.sin(np.pi * np.outer(times, waves)) @ (amplitudes / (np.pi * waves))
    return warped.clip(0.0, 1.0)


def with_deltas(frames: Sequence32) -> Sequence32:
    """Frames (n, d), beside each half the difference of its neighbours: (n, 2 d). The ends are their own neighbours."""
    around = np.concatenate([frames[:1], frames, frames[-1:]])
    return np.concatenate([frames, (around[2:] - around[:-2]) / 2], axis=1).astype(np.float32)


def mask_time(frames: Sequence32, width: int, rng: np.random.Generator) -> Sequence32:
    """Frames with up to width successive ones put to 0."""
    masked: Sequence32 = frames.copy()
    masked[_stripe(len(frames), width, rng)] = 0
    return masked


def mask_features(frames: Sequence32, width: int, rng: np.random.Generator) -> Sequence32:
    """Frames with up to width neighbouring dimensions put to 0."""
    masked: Sequence32 = frames.copy()
    masked[:, _stripe(frames.shape[1], width, rng)] = 0
    return masked


def _stripe(size: int, width: int, rng: np.random.Generator) -> slice:
    """A random stretch of 0 to width places out of size."""
    length = int(rng.integers(min(width, size) + 1))
    start = int(rng.integers(size - length + 1))
    return slice(start, start + length)
