"""NumPy's calls of the ops: aliases of their names, and its arguments where an op has fewer or in another order.

An op need not repeat what has no meaning for tensors (out, order, overwrite_input, subok, ...). Called through NumPy's
function, such an argument may be given as long as it says what its default says; dtype converts the operand first.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from minigrad.engine import NUMPY_OPS, OPS

ALIASES = {
    np.amax: "max",
    np.amin: "min",
    np.degrees: "rad2deg",
    np.radians: "deg2rad",
}
RENAMED = {"a_min": "min", "a_max": "max"}  # clip's older names


def accept_numpy_calls() -> None:
    """Let every NumPy function that has an op take NumPy's arguments. Called once, when all ops are declared."""
    NUMPY_OPS.update({function: OPS[name] for function, name in ALIASES.items()})
    for function, op in NUMPY_OPS.items():
        if not isinstance(function, np.ufunc):
            NUMPY_OPS[function] = _Adapter(function, op)


class _Adapter:
    """Calls an op with the arguments of a NumPy function. What arguments both take is looked up at the first call."""

    def __init__(self, function: Any, op: Any):
        self.function = function
        self.op = op
        self._call: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._call is None:
            self._call = self._adapted()
        return self._call(*args, **kwargs)

    def _adapted(self) -> Callable[..., Any]:
        ours = inspect.signature(self.op).parameters
        try:
            theirs = inspect.signature(self.function).parameters
        except ValueError:  # before NumPy 2.4 where, concatenate, dot and a few more hide theirs, which are the ops'
            return cast("Callable[..., Any]", self.op)
        kinds = {p.kind for p in [*theirs.values(), *ours.values()]}
        same = list(theirs)[1:] == list(ours)[1:]
        if same or inspect.Parameter.VAR_POSITIONAL in kinds or not theirs:
            return cast("Callable[..., Any]", self.op)
        self._defaults = {name: p.default for name, p in theirs.items()}
        self._names = _names_of(list(theirs), list(ours))
        self._ours = ours.keys()
        self._more = any(p.kind is p.VAR_KEYWORD for p in ours.values())
        alike = [self._names.get(a) == b for a, b in zip(theirs, ours)]
        self._agree = alike.index(False) if False in alike else len(alike)  # so many positional arguments mean the same
        return self._call_adapted

    def _call_adapted(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) <= self._agree and kwargs.keys() <= self._ours:
            return self.op(*args, **kwargs)
        named = {**dict(zip(self._defaults, args)), **kwargs}
        if len(args) > len(self._defaults) or len(named) < len(args) + len(kwargs):
            raise TypeError(f"numpy.{self.function.__name__}: too many arguments, or one of them twice")
        given = {}
        for name, value in named.items():
            target = self._names.get(name, name if name in self._ours or self._more else None)
            if target is not None and value is not np._NoValue:
                given[target] = value
            elif not self._is_default(name, value) and name != "dtype":
                raise TypeError(f"numpy.{self.function.__name__}({name}=...) is not supported on tensors")
        if named.get("dtype") is not None and "dtype" not in given:
            self._convert(given, named["dtype"])
        return self.op(*[given.pop(name) for name in list(self._ours)[: self._agree] if name in given], **given)

    def _is_default(self, name: str, value: Any) -> bool:
        default = self._defaults.get(name, inspect.Parameter.empty)
        return value is default or value is np._NoValue or (isinstance(value, (bool, str)) and value == default)

    def _convert(self, given: dict[str, Any], dtype: Any) -> None:
        """The first argument as another dtype."""
        first = next(iter(self._ours))
        if not hasattr(given.get(first), "astype"):
            raise TypeError(f"numpy.{self.function.__name__}(dtype=...) is not supported on several tensors")
        given[first] = given[first].astype(dtype)


def _names_of(theirs: list[str], ours: list[str]) -> dict[str, str]:
    """What the op calls an argument of NumPy's: the same, or what stands in its place and NumPy has no name for."""
    names = {name: name for name in theirs if name in ours}
    for name, own in zip(theirs, ours):
        if name not in ours and own not in theirs:
            names[name] = own
    return names | {old: new for old, new in RENAMED.items() if old in theirs}
