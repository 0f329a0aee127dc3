"""Values and gradients inside a model, by name: to look at (capture), to change (patch), to cut (stop_gradient).

A point is the output of a module, named by the module's path ("body.blocks.0.fc"; "" is the model itself), or one of
the hook points of its class, named path.point ("body.blocks.0.attention.attn").
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import numpy as np

from minigrad.engine import Notes, new_node, state
from minigrad.nn.hooks import ModuleHook
from minigrad.nn.module import Module
from minigrad.tensor import Tensor, TensorLike, wrap
from minigrad.trees import flatten

Names: TypeAlias = "str | Sequence[str]"
Replacement: TypeAlias = "TensorLike | Callable[[Tensor], TensorLike]"


def points(model: Module, names: Names = "*") -> list[str]:
    """The names of the points of a model that match, in the order of its modules.

    names: one name or several; `*`, `?` and `[...]` match as in file names, and a leading `*.` matches nothing too.
    KeyError, with the nearest names, for one that matches no point.

    >>> from minigrad import nn
    >>> points(nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3)))
    ['', 'layers.0', 'layers.1']
    """
    return list(_find(model, names))


def _find(model: Module, names: Names) -> dict[str, tuple[Module, str]]:
    """{name: (module, hook point, or "" for its output)} of all points that match."""
    every, aliases = _all_points(model)
    wanted: set[str] = set()
    for pattern in [names] if isinstance(names, str) else names:
        matching = {aliases.get(name, name) for name in [*every, *aliases] if _matches(name, pattern)}
        if not matching:
            raise KeyError(_unknown(pattern, model, [*every, *aliases]))
        wanted |= matching
    return {name: place for name, place in every.items() if name in wanted}


def _all_points(model: Module) -> tuple[dict[str, tuple[Module, str]], dict[str, str]]:
    """All points of a model, by name; and other names of points: {alias: name}."""
    every: dict[str, tuple[Module, str]] = {}
    aliases: dict[str, str] = {}
    for path, module in model.named_modules():
        inner = {_join(path, point): (module, point) for point in module.hook_points}
        for name, place in {path: (module, ""), **inner}.items():
            if name in every:
                raise ValueError(
                    f"{type(model).__name__} has two points called {name!r}: rename a module or hook point"
                )
            every[name] = place
        aliases |= {_join(path, alias): _join(path, point) for alias, point in module.hook_aliases.items()}
    return every, aliases


def _join(path: str, point: str) -> str:
    return f"{path}.{point}" if path else point


def _matches(name: str, pattern: str) -> bool:
    patterns = [pattern, pattern[2:]] if pattern.startswith("*.") else [pattern]
    return name == pattern or any(fnmatchcase(name, each) for each in patterns)


def _unknown(name: str, model: Module, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=5, cutoff=0.5)
    near = near or [other for other in known if other.rpartition(".")[2] == name.rpartition(".")[2]][:5]
    hint = f"the nearest are {', '.join(map(repr, near))}" if near else "study.points(model) lists all"
    return f"{type(model).__name__} has no point {name!r}: {hint}"


def _watch(module: Module, point: str, function: Callable[[Any], Any]) -> ModuleHook:
    """Have function(value) see what this thread computes at a point; what it returns (but None) takes its place."""
    thread = threading.get_ident()

    def here(value: Any) -> Any:
        return function(value) if threading.get_ident() == thread else None

    if point:
        return module.register_point_hook(point, here)
    return module.register_forward_hook(lambda module, inputs, output: here(output))


class _Watching:
    """A context manager that hooks points while it is entered, and takes off its own hooks and no others."""

    def __init__(self) -> None:
        self._hooks: list[ModuleHook] = []

    def _places(self) -> Iterator[tuple[Module, str, Callable[[Any], Any]]]:
        """The points to be hooked, and what is called with the values there."""
        raise NotImplementedError

    def _enter(self) -> None:
        if self._hooks:
            raise RuntimeError("this context has been entered already: make another one")
        self._hooks = [_watch(module, point, function) for module, point, function in self._places()]

    def __exit__(self, *exc: object) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []


# --- looking -----------------------------------------------------------------------------------------------------


class CapturedCall:
    """What passed a point once. value: a copy. grad: its gradient, an array of the same shape, or None; see reason."""

    def __init__(self, value: Any, notes: Notes | None, why_not: str):
        self.value: Any = value
        self._notes = notes
        self._why_not = why_not
        self._model_output: list[Notes] | None = None  # of the call of the model in which this was

    @property
    def grad(self) -> np.ndarray | None:
        return None if self._notes is None else self._notes.grad

    @property
    def reason(self) -> str | None:
        """Why there is no gradient, None if there is one."""
        if self.grad is not None:
            return None
        if self._notes is None:
            return self._why_not
        if self._model_output is None:
            return "backward was not run, or no path leads here from what it was run on"
        if all(notes.grad is None for notes in self._model_output):
            return "backward was not run on anything computed from the model's output"
        return "no path leads here from what backward was run on"


class Captured:
    """What passed one point: its calls in order, and for a point that was passed once value, grad and reason.

    ValueError for value, grad and reason of a point that was passed several times; None for one that never was.
    """

    def __init__(self, name: str):
        self.name = name
        self.calls: list[CapturedCall] = []

    @property
    def value(self) -> Any:
        return self._only().value

    @property
    def grad(self) -> np.ndarray | None:
        return self._only().grad

    @property
    def reason(self) -> str | None:
        return self._only().reason

    def _only(self) -> CapturedCall:
        if len(self.calls) > 1:
            raise ValueError(
                f"{self.name!r} was passed {len(self.calls)} times: take one of .calls, "
                "or .clear() what was captured before a run"
            )
        return self.calls[0] if self.calls else CapturedCall(None, None, "the forward pass did not come by here")

    def __repr__(self) -> str:
        return f"Captured({self.name!r}, calls={len(self.calls)})"


class capture(_Watching, Mapping[str, Captured]):  # noqa: N801  (a context manager spelled like a function)
    """What passes points of a model in the with block: {name: Captured}, with values and gradients as copies.

    names: see `points`. grad: whether to keep gradients, which a backward pass fills in, in the block or after it;
    those of several passes add up. A gradient is that of what passed the point from there on: a value that is also
    used by other ways (a residual) has its other gradients elsewhere. Where there is none, `grad` is None, never 0, and
    `reason` says why. Every call is kept, so a loop should clear() from time to time.

    Only what the thread that entered computes is captured. A patch that was entered earlier is seen, one that is
    entered later comes after. A model that computes again in backward (mg.checkpoint) passes its points again.

    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> class Squares(nn.Module):
    ...     hook_points = ("doubled",)
    ...     def forward(self, x):
    ...         return (self.tap("doubled", x * 2) ** 2).sum()
    >>> model, x = Squares(), mg.tensor([1.0, 2.0], requires_grad=True)
    >>> with capture(model, "doubled") as caught:
    ...     loss = model(x)
    >>> caught["doubled"].value, caught["doubled"].grad, caught["doubled"].reason
    (array([2., 4.]), None, "backward was not run on anything computed from the model's output")
    >>> loss.backward()
    >>> caught["doubled"].grad
    array([4., 8.])
    """

    def __init__(self, model: Module, names: Names = "*.attn", grad: bool = True):
        super().__init__()
        self._model, self._grad = model, grad
        self._where = _find(model, names)
        self._caught = {name: Captured(name) for name in self._where}
        self._unfinished: list[CapturedCall] = []  # those of the call of the model that is under way

    def __enter__(self) -> capture:
        self._enter()
        return self

    def _places(self) -> Iterator[tuple[Module, str, Callable[[Any], Any]]]:
        for name, (module, point) in self._where.items():
            yield module, point, self._watcher(name)
        if self._grad:
            yield self._model, "", self._end_of_model

    def _watcher(self, name: str) -> Callable[[Any], Any]:
        return lambda value: self._take(name, value)

    def _take(self, name: str, value: Any) -> Tensor | None:
        array = value._array if isinstance(value, Tensor) else value
        copied = np.array(array, order="C") if isinstance(array, np.ndarray) else None
        passed = _retained(value) if self._grad and isinstance(value, Tensor) else None
        call = CapturedCall(copied, passed._node.notes if passed is not None else None, self._why_not(value))
        self._caught[name].calls.append(call)
        self._unfinished.append(call)
        return passed

    def _why_not(self, value: Any) -> str:
        if not self._grad:
            return "it was captured with grad=False"
        if not isinstance(value, (Tensor, np.ndarray)):
            return f"it is no tensor but of type {type(value).__name__}"
        if not state.recording:
            return "it was computed under no_grad"
        return "nothing that it was computed from requires a gradient"

    def _end_of_model(self, output: Any) -> Any:
        outputs, rebuild = flatten(output)
        passed = [_retained(x) if isinstance(x, Tensor) else None for x in outputs]
        notes = [t._node.notes for t in passed if t is not None]
        for call in self._unfinished:
            call._model_output = notes
        self._unfinished = []
        return rebuild([x if t is None else t for x, t in zip(outputs, passed)])

    def clear(self) -> None:
        """Forget what was captured."""
        self._unfinished = []
        for captured in self._caught.values():
            captured.calls = []

    def __getitem__(self, name: str) -> Captured:
        if name in self._caught:
            return self._caught[name]
        place = _find(self._model, name)
        if len(place) == 1 and (found := next(iter(place))) in self._caught:
            return self._caught[found]
        raise KeyError(f"{name!r} is not captured, only {', '.join(map(repr, self._caught))}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._caught)

    def __len__(self) -> int:
        return len(self._caught)


def _retained(x: Tensor) -> Any:
    """x by way of a node of its own, which keeps the gradient of what is done with x from here on; None if constant."""
    edge = x._node
    if edge is None or not state.recording:
        return None
    node = new_node(None, None, None, (edge,), edge.levels, x.shape, x.dtype)
    node.notes = Notes(retain=True)
    return wrap(x._array, node)


# --- changing ----------------------------------------------------------------------------------------------------


class patch(_Watching):  # noqa: N801
    """In the with block, other values at points of a model: for counterfactuals ("what if it attended evenly?").

    replacements: {name: an array, or a function from the Tensor that was computed to what takes its place}; for names
    see `points`. An array is a constant, so no gradient passes the point; a function's result is what it is, and a
    Tensor that requires a gradient gets it. Everything else is computed as ever. The model's call raises ValueError
    for a replacement of another shape. Patches of one point work in the order in which they were entered. Only the
    thread that entered is concerned.

    >>> from minigrad import nn
    >>> model = nn.Sequential(nn.Linear(2, 3), np.exp)
    >>> with patch(model, {"layers.0": np.zeros((1, 3))}):
    ...     model(np.ones((1, 2)))
    tensor([[1., 1., 1.]], dtype=float32)
    """

    def __init__(self, model: Module, replacements: Mapping[str, Replacement]):
        super().__init__()
        self._replacements = [(_find(model, name), value) for name, value in replacements.items()]

    def __enter__(self) -> None:
        self._enter()

    def _places(self) -> Iterator[tuple[Module, str, Callable[[Any], Any]]]:
        for where, replacement in self._replacements:
            for name, (module, point) in where.items():
                yield module, point, _replacer(name, replacement)


def _replacer(name: str, replacement: Replacement) -> Callable[[Any], Any]:
    def replace(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            value = wrap(value, None)
        if not isinstance(value, Tensor):
            raise TypeError(f"{name!r} is no tensor but of type {type(value).__name__}: patch a point inside it")
        return _as_replacement(replacement(value) if callable(replacement) else replacement, value, name)

    return replace


def _as_replacement(new: TensorLike, value: Tensor, name: str) -> Tensor:
    """`new` as a tensor that can stand where `value` does: of its shape, and if a constant cast to its dtype."""
    if not isinstance(new, Tensor) or (new._node is None and new.dtype != value.dtype):
        new = Tensor(new, dtype=value.dtype)
    if new.shape != value.shape:
        raise ValueError(f"the patch of {name!r} has shape {new.shape}, and the value there has {value.shape}")
    if new.dtype != value.dtype:
        raise TypeError(f"the patch of {name!r} is of dtype {new.dtype}, and the value there of {value.dtype}")
    return new


def stop_gradient(model: Module, names: Names) -> patch:
    """A context manager in which no gradient passes these points of a model backward; values are as ever.

    >>> from minigrad import nn
    >>> model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    >>> with stop_gradient(model, "layers.0"):
    ...     model(np.ones((1, 2))).sum().backward()
    >>> [p.grad is None for p in model.parameters()]
    [True, True, False, False]
    """
    return patch(model, dict.fromkeys(points(model, names), Tensor.detach))
