"""Hooks on modules: functions that watch, or replace, what a module computes and the gradients that come back.

A module without hooks has none of this; Module.__call__ and Module.tap look at one attribute and go on.
"""

from __future__ import annotations

import functools
import operator
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigrad.engine import COMPLETE, Array, Node, OutputNode, keep_call, observers, state
from minigrad.tensor import Tensor, wrap

OUTPUT, BACKWARD = "(output)", "(backward)"  # the places that every module has; the others are its hook points

_lock = threading.Lock()


class ModuleHook:
    """What registering a hook on a module returns: remove() takes that hook off again."""

    def __init__(self, module: Any, place: str, function: Callable[..., Any]):
        self.function = function
        self._module = weakref.ref(module)
        self._place = place
        with _lock:
            if module._hooks is None:
                module._hooks = ModuleHooks()
            at = module._hooks.at
            at[place] = (*at.get(place, ()), self)
        observers.add(self)

    def remove(self) -> None:
        observers.discard(self)
        module = self._module()
        with _lock:
            if module is None or module._hooks is None:
                return
            at = module._hooks.at
            at[self._place] = tuple(hook for hook in at.get(self._place, ()) if hook is not self)
            if not any(at.values()):
                del module._hooks  # the class has None


class ModuleHooks:
    """The hooks on one module, by place, in the order in which they were registered."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at: dict[str, tuple[ModuleHook, ...]] = {}

    def __reduce__(self) -> Any:
        """A copy of a module has no hooks: who watches one does not thereby watch the other."""
        return type(None), ()

    def pass_by(self, point: str, x: Any) -> Any:
        """What the hooks at a point make of x."""
        for hook in self.at.get(point, ()):
            replacement = hook.function(x)
            x = x if replacement is None else replacement
        return x

    def call(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """module.forward(*args, **kwargs), with its hooks."""
        backward = self.at.get(BACKWARD, ())
        gradients = _Gradients(module, self, backward) if backward and state.recording else None
        if gradients is not None:
            args = gradients.of_inputs(args)
        output = module.forward(*args, **kwargs)
        for hook in self.at.get(OUTPUT, ()):
            replacement = hook.function(module, args, output)
            output = output if replacement is None else replacement
        return output if gradients is None else gradients.of_outputs(output)


class _Gradients:
    """One call of a module whose gradients are watched: its tracked inputs and outputs pass through a node each."""

    def __init__(self, module: Any, hooks: ModuleHooks, backward: tuple[ModuleHook, ...]):
        self._module, self._hooks, self._backward = module, hooks, backward
        self._inputs: list[int] = []  # the positions of the tracked ones among all positional arguments
        self._n_inputs = 0
        self._grad_output: tuple[Any, ...] | None = None

    def of_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self._n_inputs = len(args)
        args, self._inputs = _through_one_node(args, self._at_inputs)
        return args

    def of_outputs(self, output: Any) -> Any:
        several = type(output) is tuple
        outputs = output if several else (output,)
        if not all(x is None or isinstance(x, (Tensor, np.ndarray)) for x in outputs):
            raise TypeError(
                f"a full backward hook needs a module that returns a tensor or a tuple of tensors, and "
                f"{type(self._module).__name__} returned {type(output).__name__}: put the hook on a module inside it"
            )
        n = len(outputs)
        outputs, tracked = _through_one_node(outputs, lambda g: self._at_outputs(g, tracked, n))
        return outputs if several else outputs[0]

    def _at_outputs(self, g: Sequence[Array], tracked: list[int], n: int) -> Sequence[Array]:
        self._grad_output = _spread(g, tracked, n)
        if not self._inputs:
            self._run((None,) * self._n_inputs)
        return g

    def _at_inputs(self, g: Sequence[Array]) -> Sequence[Array | None]:
        if self._grad_output is None:  # the gradient came around the outputs
            return g
        grad_input = self._run(_spread(g, self._inputs, self._n_inputs))
        return [grad_input[i] for i in self._inputs]

    def _run(self, grad_input: tuple[Any, ...]) -> tuple[Any, ...]:
        grad_output, self._grad_output = self._grad_output, None
        for hook in self._backward:
            if hook not in self._hooks.at.get(BACKWARD, ()):  # removed since
                continue
            replacement = hook.function(self._module, grad_input, grad_output)
            if replacement is not None:
                grad_input = self._checked(replacement, grad_input)
        return grad_input

    def _checked(self, given: Any, before: tuple[Any, ...]) -> tuple[Any, ...]:
        given = given if isinstance(given, tuple) else (given,)
        who = f"a full backward hook of {type(self._module).__name__}"
        if len(given) != len(before):
            raise ValueError(f"{who} returned {len(given)} gradients, and the module has {len(before)} inputs")
        if not self._inputs and any(g is not None for g in given):
            raise ValueError(f"{who} returned a gradient, and no input of the module requires one: return None")
        return tuple(_like(g, old, who) for g, old in zip(given, before))


def _like(g: Any, old: Any, who: str) -> Any:
    if g is None or old is None:
        return None
    if not isinstance(g, Tensor):
        g = _read_only(np.asarray(g, old.dtype))
    if g.shape != old.shape:
        raise ValueError(f"{who} returned a gradient of shape {g.shape} for an input of shape {old.shape}")
    return g


def _spread(g: Sequence[Array], positions: list[int], n: int) -> tuple[Any, ...]:
    spread: list[Any] = [None] * n
    for i, gradient in zip(positions, g):
        spread[i] = gradient if isinstance(gradient, Tensor) else _read_only(np.asarray(gradient))
    return tuple(spread)


def _read_only(array: np.ndarray) -> np.ndarray:
    """A view that fails a hook that writes to it: others may hold the array."""
    view: np.ndarray = array.view()
    view.flags.writeable = False
    return view


class _Passage:
    """The op of a node through which tensors pass unchanged, so that their gradients arrive together."""

    gives_fresh, none_is_zero = False, True
    name = "hook"

    def __init__(self, at_gradients: Callable[[Sequence[Array]], Sequence[Array | None]]):
        self._at_gradients = at_gradients

    def __repr__(self) -> str:
        return self.name

    def vjp(self, node: Node, g: Sequence[Array], recorded: bool) -> Sequence[Array | None]:
        return self._at_gradients(g)


def _through_one_node(
    xs: tuple[Any, ...], at_gradients: Callable[[Sequence[Array]], Sequence[Array | None]]
) -> tuple[tuple[Any, ...], list[int]]:
    """xs, the tracked tensors among them with a history in which they come out of one node; and their positions."""
    tracked = [i for i, x in enumerate(xs) if isinstance(x, Tensor) and x._node is not None]
    if not tracked:
        return xs, tracked
    edges = tuple(xs[i]._node for i in tracked)
    levels = functools.reduce(operator.or_, (edge.levels for edge in edges))
    arrays = tuple(xs[i]._array for i in tracked)
    node = Node(_Passage(at_gradients), None, (), edges, levels, [a.shape for a in arrays], [a.dtype for a in arrays])
    if state.recording == COMPLETE:
        keep_call(node, arrays, arrays, tuple(range(len(arrays))))
    passed = list(xs)
    for index, i in enumerate(tracked):
        passed[i] = wrap(arrays[index], OutputNode(node, index))
    return tuple(passed), tracked
