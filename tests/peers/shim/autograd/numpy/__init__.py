"""autograd.numpy: NumPy itself, whose functions are recorded when they get a Tensor.

Defined here is what NumPy cannot be told about: lists with Tensors in them where it takes an array, np.r_ and np.c_;
and make_diagonal, which is autograd's own.
"""

from collections.abc import Callable
from typing import Any

import numpy

import autograd.numpy.linalg  # noqa: F401

from .lists import array as array
from .lists import of_lists


def __getattr__(name: str) -> Any:
    return getattr(numpy, name)


mean, std, var, append = map(of_lists, (numpy.mean, numpy.std, numpy.var, numpy.append))


class _Joined:
    """np.r_ and np.c_: slices and constants as NumPy reads them, and everything joined."""

    def __init__(self, join: Callable[..., Any]):
        self._join = join

    def __getitem__(self, items: Any) -> Any:
        items = items if isinstance(items, tuple) else (items,)
        return self._join([numpy.r_[x] if isinstance(x, slice) else x for x in items])


row_stack = numpy.vstack
r_ = _Joined(lambda items: numpy.concatenate([numpy.atleast_1d(x) for x in items]))
c_ = _Joined(numpy.column_stack)


def make_diagonal(x: Any, axis1: int = -1, axis2: int = -2) -> Any:
    return x[..., None] * numpy.eye(x.shape[-1])
