"""Functions of functions: grad and value_and_grad. They nest to any order.

A transform marks its inputs with a level of its own, runs the function, and pulls a cotangent back to those inputs only. The
pass is recorded, and so differentiable, when the result also depends on an input of an outer transform or create_graph asks for it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigrad.engine import Node, Transform, backward_pass, own, state
from minigrad.tensor import Tensor, wrap
from minigrad.trees import flatten

ArgNums = int | Sequence[int]


def grad(f: Callable[..., Any], argnums: ArgNums = 0, *, create_graph: bool = False) -> Callable[..., Any]:
    """The function that returns the gradient of `f`, which returns one number.

    argnums: the argument (or arguments, for a tuple of gradients) to differentiate with respect to; each may be a nested list,
    tuple or dict of floating arrays, and its gradient has that structure. create_graph: return Tensors through
    which `.backward()` can go. Elsewhere the outermost transform returns ndarrays.
    Raises ValueError when `f` returns more than one number, TypeError for an integer argument.

    >>> grad(lambda x: x**3)(2.0)
    array(12.)
    >>> grad(grad(lambda x: x**3))(2.0)
    array(12.)
    """
    both = value_and_grad(f, argnums, create_graph=create_graph)

    @functools.wraps(f, updated=())
    def gradient(*args: Any, **kwargs: Any) -> Any:
        return both(*args, **kwargs)[1]

    return gradient


def value_and_grad(f: Callable[..., Any], argnums: ArgNums = 0, *, create_graph: bool = False) -> Callable[..., Any]:
    """Like `grad`, and returns (value of f, gradient).

    >>> value_and_grad(lambda x: x**3)(2.0)
    (array(8.), array(12.))
    """

    @functools.wraps(f, updated=())
    def value_and_gradient(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        with Transform() as transform:
            marked = _MarkedArguments(transform, args, argnums)
            y = f(*marked.args, **kwargs)
            value, node = _one_number(y, f)
            if not transform.reached_by(node):
                gradients = [np.zeros(n.shape, n.dtype) for n in marked.nodes]
                recorded = create_graph
            else:
                assert node is not None
                recorded = create_graph or transform.is_inner_for(node)
                gradients = pull(transform, node, np.ones(node.shape, node.dtype), marked.nodes, recorded)
        finish = _finisher(create_graph)
        return finish(y if recorded else value), marked.rebuild([finish(g) for g in gradients])

    return value_and_gradient


def pull(transform: Transform, root: Node, cotangent: Any, inputs: list[Node], recorded: bool) -> list[Any]:
    """The gradient of each input, zeros where there is no path to it."""
    found = backward_pass(root, cotangent, inputs=set(inputs), transform=transform, recorded=recorded)
    return [found[n] if n in found else np.zeros(n.shape, n.dtype) for n in inputs]


class _MarkedArguments:
    """A call's arguments with those of argnums replaced by Tensors that carry the transform's level."""

    def __init__(self, transform: Transform, args: tuple[Any, ...], argnums: ArgNums):
        positions = [argnums] if isinstance(argnums, int) else list(argnums)
        for i in positions:
            if not -len(args) <= i < len(args):
                raise TypeError(f"argnums names argument {i} of a call with {len(args)} positional arguments")
        leaves, put_back = flatten([args[i] for i in positions])
        tensors = [_mark(transform, x) for x in leaves]
        self.nodes: list[Node] = [t._node for t in tensors if t._node is not None]
        self.args = list(args)
        for i, tree in zip(positions, put_back(tensors)):
            self.args[i] = tree
        self._put_back, self._single = put_back, isinstance(argnums, int)

    def rebuild(self, gradients: list[Any]) -> Any:
        """The gradients in the structure of the arguments they belong to."""
        trees = self._put_back(gradients)
        return trees[0] if self._single else tuple(trees)


def _mark(transform: Transform, x: Any) -> Tensor:
    array = x._array if isinstance(x, Tensor) else np.asarray(x)
    if array.dtype.kind != "f":
        raise TypeError(
            f"a gradient was asked for with respect to an argument of dtype {array.dtype}: "
            "pass floating numbers (3.0, not 3), or leave the argument out of argnums"
        )
    outer = x._node if isinstance(x, Tensor) else None
    return wrap(array, transform.input(outer, array.shape, array.dtype))


def _one_number(y: Any, f: Callable[..., Any]) -> tuple[np.ndarray, Node | None]:
    value = y._array if isinstance(y, Tensor) else np.asarray(y)
    if value.size != 1 or value.dtype.kind != "f":
        raise ValueError(
            f"the gradient of {getattr(f, '__name__', f)} was asked for, which must return one floating number; "
            f"it returned {type(y).__name__} of shape {value.shape} and dtype {value.dtype}: reduce it first (.sum(), .mean())"
        )
    return value, y._node if isinstance(y, Tensor) else None


def _finisher(create_graph: bool) -> Callable[[Any], Any]:
    """What a transform returns: ndarrays of the caller's own at the outermost level, Tensors inside another or for create_graph."""
    if state.depth or create_graph:
        return lambda x: x if isinstance(x, Tensor) else wrap(own(x), None)
    return lambda x: own(x._array if isinstance(x, Tensor) else x)
