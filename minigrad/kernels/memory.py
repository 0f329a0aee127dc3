"""Memory for the kernels' large arrays: what nobody needs any more is used again.

The C library gives large blocks back to the system, which fills every page of the next one with zeros when it is first
touched: for an array of a megabyte that takes longer than a pass over it.
"""

from __future__ import annotations

import math
import sys
import threading

import numpy as np

SMALLEST = 2**16  # bytes; the C library itself keeps smaller blocks
KEPT = 2**26  # bytes that a thread may keep in any case; beyond that, twice as many as were in use at once
ALIGNMENT = 64  # bytes: a cache line, and the widest vector register


class _Buffers(threading.local):
    """Each thread's buffers by their sizes, whether in use or free, and where in each the first aligned byte is.

    A buffer is free when nobody but its list refers to it: every view of it does.
    """

    def __init__(self) -> None:
        self.of_size: dict[int, list[np.ndarray]] = {}
        self.starts: dict[int, int] = {}
        self.bytes = 0
        self.most_in_use = 0

    def free(self, size: int) -> np.ndarray | None:
        buffers = self.of_size.get(size, ())
        for i in range(len(buffers)):
            if sys.getrefcount(buffers[i]) == _REFERENCES:
                return buffers[i]
        return None

    def new(self, size: int) -> np.ndarray:
        if self.bytes + size > max(KEPT, 2 * self.most_in_use):
            self.most_in_use = max(self.most_in_use, self.in_use() + size)
            if self.bytes + size > max(KEPT, 2 * self.most_in_use):
                self.drop_free()
        buffer = np.empty(size + ALIGNMENT, np.uint8)
        self.of_size.setdefault(size, []).append(buffer)
        self.starts[id(buffer)] = -buffer.ctypes.data % ALIGNMENT
        self.bytes += size
        return buffer

    def in_use(self) -> int:
        """Bytes of the buffers that are not free."""
        return sum(
            size
            for size, buffers in self.of_size.items()
            for i in range(len(buffers))
            if sys.getrefcount(buffers[i]) != _REFERENCES
        )

    def drop_free(self) -> None:
        for size, buffers in list(self.of_size.items()):
            for i in reversed(range(len(buffers))):
                if sys.getrefcount(buffers[i]) == _REFERENCES:
                    del self.starts[id(buffers[i])], buffers[i]
                    self.bytes -= size
            if not buffers:
                del self.of_size[size]


def _references_of_a_free_one() -> int:
    buffers = [np.empty(1, np.uint8)]
    return sys.getrefcount(buffers[0])


_REFERENCES = _references_of_a_free_one()
_buffers = _Buffers()


def empty(shape: tuple[int, ...], like: np.ndarray) -> np.ndarray:
    """An array of this shape and of like's dtype, with anything in it; a stand-in for one if like is one."""
    if type(like) is not np.ndarray:
        return np.empty(shape, like.dtype, like=like)
    dtype = like.dtype
    size = math.prod(shape) * dtype.itemsize
    if size < SMALLEST:
        return np.empty(shape, dtype)
    buffer = _buffers.free(size)
    if buffer is None:
        buffer = _buffers.new(size)
    array: np.ndarray = np.ndarray(shape, dtype, buffer, _buffers.starts[id(buffer)])
    return array


def empty_like(x: np.ndarray) -> np.ndarray | None:
    """For a result as large as x; None if that is little, and NumPy had better make it."""
    return empty(x.shape, x) if x.size >= SMALLEST // 8 else None


def give_back() -> None:
    """Let go of the free memory that this thread keeps."""
    _buffers.drop_free()
