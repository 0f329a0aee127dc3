"""Initial values of parameters, as arrays. `rng` None is the default generator, which mg.seed seeds."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import DTypeLike

from minigrad.random import generator


def zeros(shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


def ones(shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> np.ndarray:
    return np.ones(shape, dtype)


def normal(
    shape: tuple[int, ...],
    deviation: float,
    rng: np.random.Generator | None = None,
    dtype: DTypeLike = np.float32,
) -> np.ndarray:
    """Normal with mean 0 and the given standard deviation."""
    return (generator(rng).standard_normal(shape) * deviation).astype(dtype)


def glorot_uniform(
    shape: tuple[int, int], rng: np.random.Generator | None = None, dtype: DTypeLike = np.float32
) -> np.ndarray:
    """Uniform in +-sqrt(6 / (n_in + n_out)), which keeps variances about equal forward and backward.

    Glorot and Bengio 2010, equation 16. shape: (n_in, n_out).
    """
    limit = math.sqrt(6 / (shape[0] + shape[1]))
    return generator(rng).uniform(-limit, limit, shape).astype(dtype)


def he_uniform(
    shape: tuple[int, int], rng: np.random.Generator | None = None, dtype: DTypeLike = np.float32
) -> np.ndarray:
    """Uniform in +-sqrt(6 / n_in), which makes up for the half that a ReLU cuts off.

    He et al. 2015, equation 10. shape: (n_in, n_out).
    """
    limit = math.sqrt(6 / shape[0])
    return generator(rng).uniform(-limit, limit, shape).astype(dtype)
