"""What a run is recorded as: steps, each one call, and the places in memory that its arrays have."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from minigrad.engine import buffer_of
from minigrad.trees import flatten


class UntraceableError(Exception):
    """A Traced array cannot follow: an op in which that happens is noted as one call; elsewhere the run stays eager."""


class ChangedError(Exception):
    """A value that decided what was recorded has changed: the program does not fit this call."""


# What a program raises that does not fit: the latter two, as another recording, or an eager run, says what is wrong.
NOT_FITTING = (ChangedError, IndexError, ValueError)


class Memory:
    """A stretch of the workspace, for one array and its views."""

    def __init__(self, size: int):
        self.size = size
        self.offset = 0
        self.in_lanes = False  # whether steps of lanes have written to it
        self.shares: Memory | None = None  # the dying operand in whose place an elementwise result is written


class Place(NamedTuple):
    """Where an array lies: a part of a Memory."""

    memory: Memory
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]


class Step(NamedTuple):
    """One call of a recorded run.

    In `args` and `kwargs` a Place stands for each array of the workspace; it writes to `out` or, where there is none,
    to its first argument. elementwise: `out` may be in the place of another argument; backward: it belongs to the
    backward pass; lane: the number of the piece that it works on.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    elementwise: bool
    backward: bool
    lane: int | None

    @property
    def written(self) -> Any:
        """The argument that it writes to."""
        if self.function is check_value:
            return None
        return self.kwargs["out"] if "out" in self.kwargs else self.args[0]


# --- functions that steps call -----------------------------------------------------------------------------------


def assign(out: np.ndarray, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> None:
    result = np.asarray(function(*args, **kwargs))
    if result.shape != out.shape or result.dtype != out.dtype:
        raise ChangedError
    out[...] = result


def assign_nested(out: Any, function: Callable[..., Any], args: Any) -> None:
    for place, value in zip(leaves_of(out), leaves_of(function(*args)), strict=True):
        if isinstance(place, np.ndarray):
            value = np.asarray(value)
            if place.shape != value.shape or place.dtype != value.dtype:
                raise ChangedError
            place[...] = value
        elif place != value:
            raise ChangedError


def with_scalars(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """function(*args), with NumPy's scalars in the place of 0-d arrays."""
    return function(*[x[()] if isinstance(x, np.ndarray) else x for x in args], **kwargs)


def check_value(value: np.ndarray, expected: Any, read: Callable[[Any], Any]) -> None:
    found = read(value)
    same = repr(found) == repr(expected) if isinstance(expected, _WITH_FLOATS) else found == expected
    if not same:
        raise ChangedError


_WITH_FLOATS = (float, complex, list)  # -0.0 == 0.0, NaN != NaN


# --- nested structures of arrays ---------------------------------------------------------------------------------


def map_nested(f: Callable[[Any], Any], x: Any) -> Any:
    """The nest x with f applied to its items; anything but a list, tuple or dict is returned as it is."""
    if isinstance(x, (list, tuple)):
        items = [f(item) for item in x]
        return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
    if isinstance(x, dict):
        return {key: f(item) for key, item in x.items()}
    return x


def map_arrays(f: Callable[[np.ndarray], Any], x: Any) -> Any:
    if isinstance(x, np.generic):
        x = np.asarray(x)
    return f(x) if isinstance(x, np.ndarray) else map_nested(functools.partial(map_arrays, f), x)


def leaves_of(x: Any) -> list[Any]:
    return flatten(x)[0]


def arrays_in(x: Any) -> Iterator[np.ndarray]:
    return (leaf for leaf in leaves_of(x) if isinstance(leaf, np.ndarray))


def generators_in(x: Any) -> Iterator[np.random.Generator]:
    return (leaf for leaf in leaves_of(x) if isinstance(leaf, np.random.Generator))


def is_view(result: Any, operands: Any) -> bool:
    return isinstance(result, np.ndarray) and any(buffer_of(result) is buffer_of(a) for a in arrays_in(operands))
