"""One default random generator for initial weights and dropout, used where no generator is passed."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad.op import Op

_default = np.random.default_rng()


def seed(value: int) -> None:
    """Seed the default generator: a run with one seed is bit-reproducible on one machine.

    >>> seed(0)
    >>> generator().integers(10)
    np.int64(8)
    """
    _default.bit_generator.state = np.random.default_rng(value).bit_generator.state


def generator(rng: np.random.Generator | None = None) -> np.random.Generator:
    """`rng`, or the default generator when it is None."""
    return _default if rng is None else rng


def _uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.random(shape, dtype=np.float32)


# An op, so that what watches ops sees draws too: compiled functions draw anew whenever they run. It is nobody's NumPy
# function and has no gradient.
uniform = Op(_uniform)


def get_state(rng: np.random.Generator | None = None) -> dict[str, Any]:
    """The state of a generator (None: the default one) as nested dicts of numbers and strings, for a checkpoint."""
    return dict(generator(rng).bit_generator.state)


def set_state(state: dict[str, Any], rng: np.random.Generator | None = None) -> None:
    """Put a generator (None: the default one) back into a state that get_state returned."""
    generator(rng).bit_generator.state = state
