"""autograd's traced containers. minigrad's transforms take Python's own, so these are they."""

import builtins
from builtins import dict, list, tuple  # noqa: UP029
from typing import Any

from minigrad import Tensor

__all__ = ["dict", "isinstance", "list", "tuple"]


def isinstance(x: Any, kind: Any) -> bool:
    """A tensor counts as the array it holds."""
    return builtins.isinstance(x.data if builtins.isinstance(x, Tensor) else x, kind)
