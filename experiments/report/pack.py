"""Arrays as the report's file holds them: base64 of little-endian numbers, with their shape and named axes."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

DTYPES = {"float64": "<f8", "float32": "<f4", "int8": "<i1"}


class Tensors:
    """The report's `tensors`: {name: {shape, dtype, axes, b64}}."""

    def __init__(self) -> None:
        self.packed: dict[str, dict[str, Any]] = {}

    @property
    def size(self) -> int:
        """Bytes in the file, about."""
        return sum(size_of(np.empty(t["shape"], t["dtype"])) for t in self.packed.values())

    def add(self, name: str, array: np.ndarray, axes: Sequence[str]) -> None:
        """Under a name ("snapshot/hook"); axes: a word for each axis. ValueError for a wrong number of them."""
        if len(axes) != array.ndim:
            raise ValueError(f"{name} has {array.ndim} axes, and {len(axes)} were named: {', '.join(axes)}")
        data = np.ascontiguousarray(array, DTYPES[str(array.dtype)])
        self.packed[name] = {
            "shape": list(array.shape),
            "dtype": str(array.dtype),
            "axes": list(axes),
            "b64": base64.b64encode(data.tobytes()).decode(),
        }


def size_of(array: np.ndarray) -> int:
    """How many bytes an array takes in the file."""
    return array.nbytes * 4 // 3 + 150


def unpack(packed: Mapping[str, Any]) -> np.ndarray:
    """The array of an entry of `tensors`.

    >>> tensors = Tensors()
    >>> tensors.add("last/q", np.eye(2), ("query", "component"))
    >>> unpack(tensors.packed["last/q"])
    array([[1., 0.],
           [0., 1.]])
    """
    data = base64.b64decode(packed["b64"])
    array: np.ndarray = np.frombuffer(data, DTYPES[packed["dtype"]]).reshape(packed["shape"])
    return array
