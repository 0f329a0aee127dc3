"""Hooks on modules: functions that watch, or replace, what a module computes and the gradients that come back.

A module without hooks has none of this; Module.__call__ and Module.tap look at one attribute and go on.
"""

from __future__ import annotations

import functools
import operator
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from minigrad.engine import COMPLETE, Array, Node, check_function, keep_call, new_node, observers, output_node, state
from minigrad.tensor import Tensor, wrap
from minigrad.trees import flatten

OUTPUT, BACKWARD = "(output)", "(backward)"  # the places that every module has; the others are its hook points

_lock = threading.Lock()


class ModuleHook:
    """What registering a hook on a module returns: remove() takes that hook off again."""

    def __init__(self, module: Any, place: str, function: Callable[..., Any]):
        check_function(function, "a module's hook")
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
        gradients = _Gradients(module, backward) if backward and state.recording else None
        if gradients is not None:
            args = gradients.of_inputs(args)
        output = module.forward(*args, **kwargs)
        for hook in self.at.get(OUTPUT, ()):
            replacement = hook.function(module, args, output)
            output = output if replacement is None else replacement
        return output if gradients is None else gradients.of_outputs(output)


class _Gradients:
    """One call of a module whose gradients are watched: its tracked inputs and outputs pass through a node each.

    The node of the inputs is older than all that the call records, so its turn in a backward pass comes last.
    """

    def __init__(self, module: Any, hooks: tuple[ModuleHook, ...]):
        self._module, self._hooks = module, hooks
        self._has_inputs = False
        self._n_inputs = 0
        self._grad_output: tuple[Array | None, ...] | None = None

    def of_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        passed = _through_one_node(args, self._at_inputs)
        self._n_inputs, self._has_inputs = len(args), passed is not args
        return tuple(passed)

    def of_outputs(self, output: Any) -> Any:
        outputs, rebuild = flatten(output)
        return rebuild(list(_through_one_node(outputs, self._at_outputs)))

    def _at_outputs(self, g: tuple[Array | None, ...]) -> tuple[Array | None, ...]:
        self._grad_output = g
        if not self._has_inputs:
            self._run((None,) * self._n_inputs)
        return g

    def _at_inputs(self, g: tuple[Array | None, ...]) -> tuple[Array | None, ...]:
        return g if self._grad_output is None else self._run(g)  # None: it came around the outputs

    def _run(self, grad_input: tuple[Array | None, ...]) -> tuple[Array | None, ...]:
        grad_output, self._grad_output = self._grad_output, None
        for hook in self._hooks:
            replacement = hook.function(self._module, grad_input, grad_output)
            if replacement is not None:
                grad_input = self._checked(replacement, grad_input)
        return grad_input

    def _checked(self, given: Any, before: tuple[Array | None, ...]) -> tuple[Array | None, ...]:
        given = given if isinstance(given, tuple) else (given,)
        who = f"a full backward hook of {type(self._module).__name__}"
        if len(given) != len(before):
            raise ValueError(f"{who} returned {len(given)} gradients, and the module has {len(before)} inputs")
        if not self._has_inputs and any(g is not None for g in given):
            raise ValueError(f"{who} returned a gradient, and no input of the module requires one: return None")
        return tuple(_like(g, old, who) for g, old in zip(given, before))


def _like(g: Any, old: Array | None, who: str) -> Array | None:
    """A gradient that stands in the place of the old one; where there was none, there is none."""
    if g is None or old is None:
        return None
    if not isinstance(g, Tensor):
        g = _for_hooks(np.asarray(g, old.dtype), isinstance(old, Tensor))
    if g.shape != old.shape:
        raise ValueError(f"{who} returned a gradient of shape {g.shape} for an input of shape {old.shape}")
    return g


def _for_hooks(g: Array, recorded: bool) -> Array:
    """A gradient as hooks get it: a Tensor in a recorded pass, an array in a plain one."""
    return wrap(np.asarray(g), None) if recorded and not isinstance(g, Tensor) else g


AtGradients: TypeAlias = "Callable[[tuple[Array | None, ...]], tuple[Array | None, ...]]"


class _Passage:
    """The op of a node through which tensors pass unchanged, so that their gradients arrive together.

    at_gradients gets and returns one for each of n values: None for those that are no tracked tensors or that this
    backward pass has not reached.
    """

    gives_fresh, none_is_zero = False, True
    name = "hook"

    def __init__(self, tracked: Sequence[int], n: int, at_gradients: AtGradients):
        self._tracked, self._n, self._at_gradients = tracked, n, at_gradients
        self._reached: set[int] = set()  # the engine gives zeros for the others

    def __repr__(self) -> str:
        return self.name

    def output(self, array: np.ndarray, call: Node, index: int) -> Tensor:
        passed = wrap(array, output_node(call, index))
        passed.register_hook(lambda g: self._reached.add(index))
        return passed

    def vjp(self, node: Node, g: Sequence[Array], recorded: bool) -> list[Array | None]:
        gradients: list[Array | None] = [None] * self._n
        for index, i in enumerate(self._tracked):
            if index in self._reached:
                gradients[i] = _for_hooks(g[index], recorded)  # an array cannot be written to: a hook has seen it
        self._reached = set()
        returned = self._at_gradients(tuple(gradients))
        return [returned[i] for i in self._tracked]


def _through_one_node(xs: Sequence[Any], at_gradients: AtGradients) -> Sequence[Any]:
    """xs, the tracked tensors among them with a history in which they come out of one node; xs itself without any."""
    tracked = [i for i, x in enumerate(xs) if isinstance(x, Tensor) and x._node is not None]
    if not tracked:
        return xs
    passage = _Passage(tracked, len(xs), at_gradients)
    edges = tuple(xs[i]._node for i in tracked)
    levels = functools.reduce(operator.or_, (edge.levels for edge in edges))
    arrays = tuple(xs[i]._array for i in tracked)
    node = new_node(passage, None, (), edges, levels, [a.shape for a in arrays], [a.dtype for a in arrays])
    if state.recording == COMPLETE:
        keep_call(node, arrays, arrays, tuple(range(len(arrays))))
    passed = list(xs)
    for index, i in enumerate(tracked):
        passed[i] = passage.output(arrays[index], node, index)
    return passed
