"""Memory for the kernels' large arrays: what nobody needs any more is used again.

The C library gives large blocks back to the system, which fills every page of the next one with zeros when it is first
touched: for an array of a megabyte that takes longer than a pass over it.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import sys
import threading
from typing import Any

import numpy as np

SMALLEST = 2**16  # bytes; the C library itself keeps smaller blocks
KEPT = 2**26  # bytes that a thread may keep in any case; beyond that, twice as many as were in use at once
ALIGNMENT = 64  # bytes: a cache line, and the widest vector register


Buffer = tuple[np.ndarray, int]  # bytes, and the number of the first one that is aligned


def aligned(size: int, dtype: np.dtype[Any]) -> np.ndarray:
    """New memory for `size` elements, beginning with a cache line: writing across lines takes twice as long."""
    buffer = np.empty(size * dtype.itemsize + ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % ALIGNMENT
    # through a memoryview, so that no larger array is its base: engine.buffer_of finds this one
    return np.frombuffer(buffer.data[start : start + size * dtype.itemsize], dtype)


class _Buffers(threading.local):
    """Each thread's buffers by their sizes, whether in use or free.

    A buffer is free when nobody but its tuple here refers to it: every view of it does. To look, one refers to it
    oneself; so a signal handler that looks as well, just then, does not take it for free.
    """

    def __init__(self) -> None:
        self.of_size: dict[int, list[Buffer]] = {}
        self.bytes = 0
        self.most_in_use = 0

    def free(self, size: int) -> Buffer | None:
        for buffer, start in self.of_size.get(size, ()):
            if sys.getrefcount(buffer) == _REFERENCES:
                return buffer, start
        return None

    def new(self, size: int) -> Buffer:
        if self.bytes + size > max(KEPT, 2 * self.most_in_use):
            self.most_in_use = max(self.most_in_use, self.in_use() + size)
            if self.bytes + size > max(KEPT, 2 * self.most_in_use):
                self.drop_free()
        buffer = np.empty(size + ALIGNMENT, np.uint8)
        start = -buffer.ctypes.data % ALIGNMENT
        self.of_size.setdefault(size, []).append((buffer, start))
        self.bytes += size
        return buffer, start

    def in_use(self) -> int:
        """Bytes of the buffers that are not free."""
        return sum(
            size
            for size, buffers in self.of_size.items()
            for buffer, _ in buffers
            if sys.getrefcount(buffer) != _REFERENCES
        )

    def drop_free(self) -> None:
        self.of_size = {
            size: [(buffer, start) for buffer, start in buffers if sys.getrefcount(buffer) != _REFERENCES]
            for size, buffers in self.of_size.items()
        }
        self.bytes = sum(size * len(buffers) for size, buffers in self.of_size.items())


def _references_while_looking() -> int:
    """How often a free buffer is referred to while one looks."""
    for buffer, _ in [(np.empty(1, np.uint8), 0)]:
        count = sys.getrefcount(buffer)
    return count


_REFERENCES = _references_while_looking()
_buffers = _Buffers()


def give_back() -> None:
    """Let the C library return freed memory to the system, wherever it lies, if it knows how (glibc: malloc_trim)."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def empty(shape: tuple[int, ...], like: np.ndarray, dtype: np.dtype[Any] | None = None) -> np.ndarray:
    """An array of this shape and of like's or another dtype, with anything in it; a stand-in for one if like is one."""
    dtype = like.dtype if dtype is None else dtype
    return of_dtype(shape, dtype) if type(like) is np.ndarray else np.empty(shape, dtype, like=like)


def of_dtype(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """An array of this shape and dtype, with anything in it."""
    size = math.prod(shape) * dtype.itemsize
    if size < SMALLEST:
        return np.empty(shape, dtype)
    buffer, start = _buffers.free(size) or _buffers.new(size)
    array: np.ndarray = np.ndarray(shape, dtype, buffer, start)
    return array


def empty_like(x: np.ndarray) -> np.ndarray | None:
    """For a result as large as x; None if that is little, and NumPy had better make it."""
    return empty(x.shape, x) if x.size >= SMALLEST // 8 else None
