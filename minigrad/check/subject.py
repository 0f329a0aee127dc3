"""What is checked: a function, its inputs and modules, as a function from float64 arrays to floating tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigrad.nn.module import Module
from minigrad.tensor import Tensor, lent, wrap
from minigrad.trees import flatten


class Subject:
    """f as a function from a flat list of tensors, one for each floating input, to a flat list of floating tensors.

    leaves: the floating inputs as float64 arrays of its own, then the parameters of every module among the inputs (and
    of f, if it is one). names: what each is called.
    """

    def __init__(self, f: Callable[..., Any], inputs: Any):
        args = inputs if isinstance(inputs, tuple) else (inputs,)
        given, self._put_back = flatten(args)
        paths = [path for i, arg in enumerate(args) for path in _paths(arg, f"argument {i}")]
        self._others = [x._array if isinstance(x, Tensor) else x for x in given]
        self._positions = [i for i, x in enumerate(self._others) if _is_floating(x)]
        self._caller = _Caller(f, {path: x for path, x in zip(paths, given) if isinstance(x, Module)})
        parameters = dict(self._caller.named_parameters())
        self._parameters = list(parameters.values())  # found once: a check calls f thousands of times
        arrays = [self._others[i] for i in self._positions] + [p._array for p in parameters.values()]
        self.leaves = [np.array(x, float, order="C") for x in arrays]
        self.dtypes = [np.asarray(x).dtype for x in arrays]  # as they were given
        self.names = [paths[i] for i in self._positions] + [name.split(".", 1)[1] for name in parameters]
        self.takes_gradients = False  # f itself runs gradient rules, so what it raises may be theirs

    def __call__(self, leaves: Sequence[Tensor]) -> list[Tensor]:
        filled = [x.copy() if isinstance(x, np.ndarray) else x for x in self._others]
        for position, leaf in zip(self._positions, leaves):
            filled[position] = leaf
        with lent(self._parameters, leaves[len(self._positions) :]):
            outputs, _ = flatten(self._caller(*self._put_back(filled)))
        for y in outputs:
            _check_output(y)
        return outputs

    def constants(self) -> list[Tensor]:
        """The inputs as untracked tensors of their own, so that f may do what it likes with them."""
        return [wrap(x.copy(), None) for x in self.leaves]


class _Caller(Module):
    """Calls f; a Module that holds the modules whose parameters are checked, so that functional_call reaches them."""

    def __init__(self, f: Callable[..., Any], modules: dict[str, Module]):
        self.f = f
        self.modules_among_inputs = modules

    def forward(self, *args: Any) -> Any:
        return self.f(*args)


def _is_floating(x: Any) -> bool:
    return isinstance(x, float) or (isinstance(x, (np.ndarray, np.generic)) and x.dtype.kind == "f")


def _paths(tree: Any, name: str) -> list[str]:
    """A name for every leaf, in flatten's order."""
    if isinstance(tree, dict):
        return [path for key, item in tree.items() for path in _paths(item, f"{name}[{key!r}]")]
    if isinstance(tree, (list, tuple)):
        return [path for i, item in enumerate(tree) for path in _paths(item, f"{name}[{i}]")]
    return [name]


def _check_output(y: Any) -> None:
    if isinstance(y, Tensor) and y.dtype.kind in "fc":  # complex ones come about in complex steps
        return
    what = f"a tensor of dtype {y.dtype}" if isinstance(y, Tensor) else f"{type(y).__name__}"
    raise TypeError(
        f"a function whose gradient is checked returns floating tensors, and this one returned {what}: "
        "compute with mg.* from its arguments to its result, without .numpy(), .data, float() or .item()"
    )
