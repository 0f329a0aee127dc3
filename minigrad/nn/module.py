"""Module: something with parameters.

Attributes that are Parameters, Modules, or lists, tuples and dicts of them are found by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, Protocol, TypeVar

import numpy as np

from minigrad.engine import as_array, note_write
from minigrad.nn.hooks import BACKWARD, OUTPUT, ModuleHook, ModuleHooks
from minigrad.tensor import Tensor, TensorLike, lent, wrap

M = TypeVar("M", bound="Module")
P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class HasForward(Protocol[P, R]):
    """For type checkers: calling a module takes and returns what its forward() does."""

    _hooks: ModuleHooks | None

    def forward(self, *args: P.args, **kwargs: P.kwargs) -> R: ...


class Parameter(Tensor):
    """A tensor that a Module trains: a leaf that requires a gradient.

    `p *= x` under no_grad writes to it, also while it is frozen (requires_grad = False): a module would lose it else.
    """

    __slots__ = ()
    _keeps_identity = True

    def __init__(self, x: TensorLike):
        super().__init__(x, requires_grad=True)


class Module:
    """A function with parameters. Subclasses set them as attributes and define forward().

    >>> from minigrad import nn
    >>> class Twice(nn.Module):
    ...     def __init__(self):
    ...         self.layers = [nn.Linear(2, 3), nn.Linear(3, 1)]
    ...     def forward(self, x):
    ...         return self.layers[1](self.layers[0](x))
    >>> [name for name, _ in Twice().named_parameters()]
    ['layers.0.weight', 'layers.0.bias', 'layers.1.weight', 'layers.1.bias']
    """

    training: bool = True
    hook_points: ClassVar[tuple[str, ...]] = ()
    """The points inside forward(), each passed by a `x = self.tap("name", x)`, at which one may watch."""
    hook_aliases: ClassVar[Mapping[str, str]] = {}
    """Other names of hook points."""
    branch: ClassVar[str] = ""
    """What study.ledger calls the paths of a gradient that lead through such a module, if they are to be told apart."""
    _hooks: ModuleHooks | None = None

    if not TYPE_CHECKING:  # a type checker would let one assign any attribute

        def __setattr__(self, name, value):
            """TypeError for what is put in the place of a parameter and is none: the module would lose it silently."""
            old = self.__dict__.get(name)
            if isinstance(old, Parameter) and not (value is None or isinstance(value, Parameter)):
                raise TypeError(
                    f"{type(self).__name__}.{name} is a parameter, and {type(value).__name__} was assigned to it: "
                    f"write its values under mg.no_grad() (module.{name}[...] = value), assign "
                    f"nn.Parameter(value), or delete it first (del module.{name})"
                )
            object.__setattr__(self, name, value)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define forward()")

    def __call__(self: HasForward[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        hooks = self._hooks  # looked at once: another thread may take the last one off
        if hooks is None:
            return self.forward(*args, **kwargs)
        return hooks.call(self, args, kwargs)  # type: ignore[no-any-return]

    # --- watching ---

    def tap(self, point: str, x: Tensor) -> Tensor:
        """x, or what the hooks at this point of the class (one of its hook_points) put in its place."""
        hooks = self._hooks
        return x if hooks is None else hooks.pass_by(point, x)

    def is_watched(self, *points: str) -> bool:
        """Whether there is a hook at any of these hook points, so that what passes there must be computed."""
        hooks = self._hooks
        return hooks is not None and any(hooks.at.get(point) for point in points)

    def register_forward_hook(self, hook: Callable[[Any, tuple[Any, ...], Any], Any]) -> ModuleHook:
        """Call hook(module, inputs, output) after each forward(); anything that it returns but None is the new output.

        inputs: the positional arguments. Hooks run in the order in which they were registered, each on what the one
        before it has made of the output; they see calls of the module, not of its other methods. They are not copied
        with the module. Returns a handle: its remove() takes the hook off.

        >>> from minigrad import nn
        >>> layer = nn.Linear(2, 3)
        >>> handle = layer.register_forward_hook(lambda module, inputs, output: print(inputs[0].shape, output.shape))
        >>> _ = layer(np.ones((4, 2)))
        (4, 2) (4, 3)
        >>> handle.remove()
        """
        return ModuleHook(self, OUTPUT, hook)

    def register_full_backward_hook(self, hook: Callable[[Any, tuple[Any, ...], tuple[Any, ...]], Any]) -> ModuleHook:
        """Call hook(module, grad_input, grad_output) when the gradients of a call's inputs are complete.

        grad_input: for each positional argument its gradient through this call; grad_output: for each output (a tuple
        of one for one tensor) its gradient; None where none is required or none came. They are arrays that may not be
        written to, or Tensors in a recorded pass. What the hook returns (but None), a tuple or for one input its
        gradient, takes the place of grad_input. When no input requires a gradient, the hook is called with those of
        the outputs alone, and must return None. A hook concerns the calls that are made while it is on, and their
        gradients also when it is taken off in between. Returns a handle: its remove() takes the hook off.

        A replacement of another length or shape is a ValueError in backward.

        >>> import minigrad as mg
        >>> from minigrad import nn
        >>> layer = nn.Linear(2, 1, bias=False)
        >>> handle = layer.register_full_backward_hook(lambda module, grad_input, grad_output: grad_input[0] * 2)
        >>> x = mg.tensor(np.ones((1, 2), np.float32), requires_grad=True)
        >>> layer(x).sum().backward()
        >>> bool((x.grad == 2 * layer.weight.data.T).all())
        True
        """
        return ModuleHook(self, BACKWARD, hook)

    def register_point_hook(self, point: str, hook: Callable[[Tensor], Tensor | None]) -> ModuleHook:
        """Call hook(value) whenever a value passes this hook point; a tensor that it returns takes its place.

        KeyError for a name that is neither in hook_points nor in hook_aliases. Returns a handle with remove().
        """
        name = self.hook_aliases.get(point, point)
        if name not in self.hook_points:
            known = ", ".join([*self.hook_points, *self.hook_aliases]) or "none"
            raise KeyError(f"{type(self).__name__} has no hook point {point!r}; it has {known}")
        return ModuleHook(self, name, hook)

    # --- finding what is inside ---

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module (named by the prefix) and all below it, each once, with their paths."""
        return ((name, item) for name, item in _walk(self, prefix, set()) if isinstance(item, Module))

    def modules(self) -> Iterator[Module]:
        return (module for _, module in self.named_modules())

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Every parameter once, under the first path at which it is found ("layers.0.weight").

        ValueError when keys of dicts give two parameters one name ({"a.b": ...} beside {"a": {"b": ...}}).
        """
        names: set[str] = set()
        for name, item in _walk(self, "", set()):
            if isinstance(item, Parameter):
                if name in names:
                    raise ValueError(f"{type(self).__name__} has two parameters called {name!r}: change a dict's key")
                names.add(name)
                yield name, item

    def parameters(self) -> list[Parameter]:
        return [parameter for _, parameter in self.named_parameters()]

    # --- modes and state ---

    def train(self: M, mode: bool = True) -> M:
        """Switch dropout and the like on, here and below; returns the module."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self: M) -> M:
        """Switch dropout and the like off, here and below; returns the module."""
        return self.train(False)

    def state_dict(self) -> dict[str, np.ndarray]:
        """A copy of every parameter's value, by name."""
        return {name: parameter._array.copy() for name, parameter in self.named_parameters()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy values into the parameters of those names.

        ValueError lists every name that is missing or unknown and every shape or kind of number that does not fit;
        nothing is changed then. TypeError for what is no dict.
        """
        check_mapping(state, f"{type(self).__name__}.load_state_dict", "names to arrays, as state_dict() returns it")
        parameters = dict(self.named_parameters())
        values = {name: value._array if isinstance(value, Tensor) else value for name, value in state.items()}
        arrays = {name: np.array(value) for name, value in values.items()}  # copies: they may be views of parameters
        check_state({name: p._array for name, p in parameters.items()}, arrays, type(self).__name__)
        for name, parameter in parameters.items():
            parameter._array[...] = arrays[name]
            note_write(parameter._array)

    def __repr__(self) -> str:
        count = sum(parameter.size for parameter in self.parameters())
        return f"{type(self).__name__}({count:,} parameters)"


def _walk(item: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Module | Parameter]]:
    """Modules and Parameters at and below `item` with their paths, each once, depth first in order of attributes."""
    if not isinstance(item, (Parameter, Module, dict, list, tuple)) or id(item) in seen:
        return
    seen.add(id(item))
    inside: Any = ()
    if isinstance(item, Parameter):
        yield path, item
    elif isinstance(item, Module):
        yield path, item
        inside = vars(item).items()
    elif isinstance(item, dict):
        inside = item.items()
    else:
        inside = enumerate(item)
    for key, value in inside:
        yield from _walk(value, f"{path}.{key}" if path else str(key), seen)


def check_mapping(given: Any, who: str, of_what: str) -> None:
    """TypeError for what is no dict."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{who} takes a dict of {of_what}, and was given {type(given).__name__} {given!r:.60}")


def check_state(expected: Mapping[str, np.ndarray], given: Mapping[str, np.ndarray], what: str) -> None:
    """ValueError that lists all differences in names, shapes and kinds of two dicts of arrays."""
    wrong = [f"missing: {name} {array.shape}" for name, array in expected.items() if name not in given]
    wrong += [f"unknown: {name} {array.shape}" for name, array in given.items() if name not in expected]
    for name in expected.keys() & given.keys():
        old, new = expected[name], given[name]
        if old.shape != new.shape or old.dtype.kind != new.dtype.kind:
            wrong.append(f"{name}: expected {old.shape} {old.dtype}, got {new.shape} {new.dtype}")
    if wrong:
        raise ValueError(f"this state does not fit {what} (nothing was loaded):\n  " + "\n  ".join(sorted(wrong)))


def functional_call(module: Module, params: Mapping[str, TensorLike], *args: Any, **kwargs: Any) -> Any:
    """module(*args, **kwargs) with other values for the named parameters (those not named keep their own).

    This brings a module's parameters within a transform's reach. The module itself is as before afterwards. KeyError
    for an unknown name, ValueError for a shape, TypeError for a dtype that does not fit (values for all parameters may
    be of another dtype, in which the module then computes). One thread at a time.

    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> layer = nn.Linear(2, 1)
    >>> x = np.ones((3, 2), np.float32)
    >>> gradient = mg.grad(lambda p: nn.functional_call(layer, p, x).sum())(dict(layer.named_parameters()))
    >>> gradient["weight"]
    array([[3.],
           [3.]], dtype=float32)
    """
    check_mapping(params, "functional_call", "names to the values of parameters")
    own = dict(module.named_parameters())
    tensors = {name: value if isinstance(value, Tensor) else Tensor(value) for name, value in params.items()}
    for name, t in tensors.items():
        if name not in own:
            raise KeyError(f"{type(module).__name__} has no parameter {name!r}; it has {', '.join(own)}")
        if t.shape != own[name].shape:
            raise ValueError(f"parameter {name!r} has shape {own[name].shape}, and a value of shape {t.shape} came")
    makes_another = len(tensors) == len(own) and len({t.dtype for t in tensors.values()}) == 1
    if not makes_another:  # values for all, of one dtype, make a module of that dtype; others must fit this one
        for name, t in tensors.items():
            if t.dtype != own[name].dtype:
                raise TypeError(
                    f"parameter {name!r} is of dtype {own[name].dtype}, and a value of dtype {t.dtype} came"
                )
    with lent([own[name] for name in tensors], list(tensors.values())):
        return module(*args, **kwargs)


def as_input(x: TensorLike, dtype: np.dtype[Any]) -> Tensor:
    """x as a tensor of a module's dtype: constants are cast, a tensor with a gradient must have it (TypeError).

    TypeError for what is no real numbers, of which a cast would make some (NaN of None, numbers of text).
    """
    if isinstance(x, Tensor):
        if x.dtype == dtype:
            return x
        if x.dtype.kind != "c" and x._node is not None:
            raise TypeError(
                f"a module of dtype {dtype} was given a tensor of dtype {x.dtype} that requires a gradient: "
                f"make the input {dtype}, or the module {x.dtype} (dtype=numpy.{x.dtype})"
            )
        x = x._array
    return wrap(as_numbers(x, "fiub", "real numbers").astype(dtype, copy=False), None)


def as_numbers(x: Any, kinds: str, expected: str) -> np.ndarray:
    """x as an array of one of these kinds of dtype, else TypeError."""
    array: np.ndarray = as_array(x)
    if array.dtype.kind not in kinds:
        given = f"{x!r:.60}" if array.dtype.kind in "OUS" else f"an array of shape {array.shape}"
        raise TypeError(f"a module of nn takes {expected}, and was given {given} (dtype {array.dtype})")
    return array
