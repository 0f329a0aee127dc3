"""Nested lists, tuples and dicts of arrays, as transforms take and return them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def flatten(tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """The leaves of nested lists, tuples and dicts, in order; and the function that puts as many back in place.

    >>> leaves, rebuild = flatten({"a": 1, "b": [2, (3, 4)]})
    >>> leaves, rebuild([5, 6, 7, 8])
    ([1, 2, 3, 4], {'a': 5, 'b': [6, (7, 8)]})
    """
    leaves: list[Any] = []
    _collect(tree, leaves)
    return leaves, lambda values: _rebuild(tree, iter(values))


def leaves_like(tree: Any, like: Any, what: str) -> list[Any]:
    """The leaves of `tree` in the order of those of `like`; ValueError, which names `what`, if it is built otherwise.

    Entries of dicts belong together by their keys; a list may stand for a tuple.

    >>> leaves_like({"b": 1, "a": [2, 3]}, {"a": (0, 0), "b": 0}, "a direction")
    [2, 3, 1]
    """
    if isinstance(like, dict):
        if isinstance(tree, dict) and tree.keys() == like.keys():
            return [leaf for key, item in like.items() for leaf in leaves_like(tree[key], item, what)]
    elif isinstance(like, (list, tuple)):
        if isinstance(tree, (list, tuple)) and len(tree) == len(like):
            return [leaf for item, other in zip(tree, like) for leaf in leaves_like(item, other, what)]
    elif not isinstance(tree, (dict, list, tuple)):
        return [tree]
    raise ValueError(f"{what}: {_described(tree)} stands in the place of {_described(like)}")


def _described(tree: Any) -> str:
    if isinstance(tree, dict):
        return f"a dict of {', '.join(map(repr, tree))}" if tree else "an empty dict"
    if isinstance(tree, (list, tuple)):
        return f"a {type(tree).__name__} of length {len(tree)}"
    return "an array or a number"


def structure(tree: Any) -> Any:
    """What two trees have in common whose leaves alone differ, as something that can be hashed.

    >>> structure([1, {"a": 2}]) == structure([3, {"a": 4}]), structure([1, 2]) == structure((1, 2))
    (True, False)
    """
    if isinstance(tree, dict):
        return type(tree), tuple([(key, structure(item)) for key, item in tree.items()])
    if isinstance(tree, (list, tuple)):
        return type(tree), tuple(map(structure, tree))
    return None


def _collect(tree: Any, leaves: list[Any]) -> None:
    if isinstance(tree, dict):
        for item in tree.values():
            _collect(item, leaves)
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            _collect(item, leaves)
    else:
        leaves.append(tree)


def _rebuild(tree: Any, values: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _rebuild(item, values) for key, item in tree.items()}
    if isinstance(tree, (list, tuple)):
        items = [_rebuild(item, values) for item in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    return next(values)
