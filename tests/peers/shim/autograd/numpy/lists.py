"""Lists with Tensors in them, where NumPy takes an array."""

from collections.abc import Callable
from typing import Any

import numpy

import minigrad as mg


def array(x: Any, *args: Any, **kwargs: Any) -> Any:
    if isinstance(x, mg.Tensor):
        return mg.copy(x)
    return mg.stack([array(item) for item in x]) if _has_tensors(x) else numpy.array(x, *args, **kwargs)


def _has_tensors(x: Any) -> bool:
    return isinstance(x, (list, tuple)) and any(isinstance(item, mg.Tensor) or _has_tensors(item) for item in x)


def of_lists(f: Callable[..., Any]) -> Callable[..., Any]:
    """f, whose positional arguments may be such lists."""
    return lambda *args, **kwargs: f(*[array(x) if _has_tensors(x) else x for x in args], **kwargs)
