"""A kernel's rows cut into pieces, one for each thread.

Where they are cut follows from shapes and the number of threads alone, so sums over pieces are the same in every run. A
batch with an example or more for each thread is cut between its examples, by every kernel at the same places, so that
mg.compile lets each thread go through all kernels with its own piece, and they meet once. (Of fewer examples, rows are
cut, and in attention heads: then threads meet after every kernel.)
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from minigrad.threads import get_num_threads, spread

T = TypeVar("T")

# From this many multiplications on (others count as many as take as long) work is cut. For a product of up to 2^18
# OpenBLAS never wakes threads of its own, which then wait actively and stand in the way of minigrad's for some 30 ms.
LEAST = 2**18 + 1

# From this many on, each piece has its thread: a twentieth of a millisecond, where waking one takes a fifth of that.
WIDE = 2**21


class _Here(threading.local):
    follow: Callable[[int | None], None] | None = None  # told the number of each piece while it is worked on


_here = _Here()


def cut(leading: tuple[int, ...], multiplications: int) -> Sequence[slice] | None:
    """The rows of each piece, all leading axes counted as one; None for too little work, or for one thread."""
    return None if multiplications < LEAST else _cut(leading, get_num_threads())


@functools.lru_cache(maxsize=256)
def _cut(leading: tuple[int, ...], threads: int) -> Sequence[slice] | None:
    n = math.prod(leading)
    if threads < 2 or n < threads:
        return None
    whole = n // leading[0] if leading[0] >= threads else 1  # examples that are fewer than threads are cut themselves
    return [slice(start * whole, stop * whole) for start, stop in _bounds(n // whole, threads)]


def _bounds(n: int, parts: int) -> list[tuple[int, int]]:
    return [(i * n // parts, (i + 1) * n // parts) for i in range(parts)]


class Cut:
    """An axis of the batch cut into pieces, each taken out of any array that broadcasts to the batch."""

    def __init__(self, axis: int, length: int, pieces: int, multiplications: int):
        """axis: counted from the end, where all arrays have it."""
        self._axis, self._multiplications = axis, multiplications
        self._slices = [slice(*bounds) for bounds in _bounds(length, pieces)]

    def each(self, work: Callable[[Callable[[Any], Any]], object]) -> None:
        """work(part) for every piece, where part(x) is the piece of x; x itself where it is None or broadcast."""
        parts = [functools.partial(self._part, piece) for piece in self._slices]
        each(work, parts, self._multiplications)

    def _part(self, piece: slice, x: Any) -> Any:
        if x is None or x.ndim < -self._axis or x.shape[self._axis] == 1:
            return x
        index = (Ellipsis, piece, *(slice(None),) * (-self._axis - 1))
        return x[index]


def cut_batch(batch: tuple[int, ...], last: int, multiplications: int) -> Cut | None:
    """The first axis of the batch that is long enough, cut; None if there is none. last: the axes after the batch."""
    if multiplications < LEAST:
        return None
    threads = get_num_threads()
    if threads < 2:
        return None
    for i, length in enumerate(batch):
        if length >= threads:
            return Cut(i - len(batch) - last, length, threads, multiplications)
    return None


def is_little(multiplications: int) -> bool:
    """Whether work is too little to be cut."""
    return multiplications < LEAST


def over_rows(work: Callable[[slice], T], leading: tuple[int, ...], multiplications: int) -> list[T]:
    """work(rows) for each piece of them; the results in their order."""
    pieces = cut(leading, multiplications)
    return [work(slice(None))] if pieces is None else each(work, pieces, multiplications)


def each(work: Callable[[Any], T], pieces: Sequence[Any], multiplications: int) -> list[T]:
    """work(piece) for each, in threads where that pays; the results in their order."""
    results: list[Any] = [None] * len(pieces)
    follow = _here.follow

    def run(numbers: Iterator[int]) -> None:
        for i in numbers:
            if follow is not None:
                follow(i)
            results[i] = work(pieces[i])

    try:
        spread(run, range(len(pieces)), threads=None if multiplications >= WIDE and follow is None else 1)
    finally:
        if follow is not None:
            follow(None)
    return results


@contextmanager
def following(follow: Callable[[int | None], None]) -> Iterator[None]:
    """Within, pieces are worked on one after the other, and follow(number) says which comes; None: no more."""
    before, _here.follow = _here.follow, follow
    try:
        yield
    finally:
        _here.follow = before
