"""autograd.misc: containers flattened into one vector."""

from typing import Any

from . import numpy as np
from .core import make_vjp


def flatten(tree: Any) -> tuple[Any, Any]:
    """One vector of all the numbers, and the function that puts a vector back into the tree."""
    unflatten, flat = make_vjp(_flat, tree)
    return flat, unflatten


def _flat(tree: Any) -> Any:
    if isinstance(tree, dict):
        tree = [tree[key] for key in sorted(tree)]
    if isinstance(tree, (list, tuple)):
        return np.concatenate([_flat(item) for item in tree]) if tree else np.zeros(0)
    return np.ravel(tree)


def const_graph(f: Any, *args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError("autograd's graphs that are traced once")
