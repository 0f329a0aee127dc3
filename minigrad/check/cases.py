"""Sample calls of ops, for the laws to run on, and the collections of them in files."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.engine import OPS
from minigrad.trees import flatten


@dataclass(frozen=True)
class Case:
    """op(*args, **kwargs). Every floating or complex ndarray among the arguments, also in lists, is differentiated.

    All else (axes, indices, masks, Python numbers) is constant. A complex array counts as two real ones, its parts.

    op: the function itself, or the name of one of minigrad's.
    expected: an independent function that gives the same value from arrays (None: the value is not compared).
    singular: whether a zero cotangent must give a zero gradient at 0, 1, infinite and NaN operands too (None: it must
    if the op turns out to be elementwise).
    tolerance: how many times farther than usual numbers may differ, for ill-conditioned functions.

    >>> case = Case("cumsum", (np.ones((2, 3)),), {"axis": 1}, np.cumsum)
    >>> print(case)
    cumsum-2x3
    >>> case.value(*case.arrays)
    array([[1., 2., 3.],
           [1., 2., 3.]])
    """

    op: str | Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    expected: Callable[..., Any] | None = None
    label: str = ""
    singular: bool | None = None
    tolerance: float = 1.0
    arrays: tuple[np.ndarray, ...] = field(init=False)

    def __post_init__(self) -> None:
        arrays: list[np.ndarray] = []
        for x in flatten((self.args, self.kwargs))[0]:
            if _kind(x) == "c":
                arrays += [np.array(x.real), np.array(x.imag)]
            elif _kind(x) == "f":
                arrays.append(x)
        object.__setattr__(self, "arrays", tuple(arrays))

    @property
    def function(self) -> Callable[..., Any]:
        function: Callable[..., Any] = OPS[self.op] if isinstance(self.op, str) else self.op
        return function

    @property
    def name(self) -> str:
        return self.op if isinstance(self.op, str) else getattr(self.op, "__name__", repr(self.op))

    def __str__(self) -> str:
        shapes = "-".join("x".join(map(str, x.shape)) or "0d" for x in self.arrays)
        return f"{self.name}-{self.label or shapes}"

    def with_arrays(self, function: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        """function(*args, **kwargs) with these arrays or tensors in the place of the case's own."""
        leaves, put_back = flatten((self.args, self.kwargs))
        given = iter(arrays)
        args, kwargs = put_back([_replaced(x, given) for x in leaves])
        return function(*args, **kwargs)

    def __call__(self, *arrays: Any) -> Any:
        """The op's value with these in the place of the case's arrays."""
        return self.with_arrays(self.function, arrays)

    def value(self, *arrays: np.ndarray) -> Any:
        """What `expected` gives for these arrays."""
        assert self.expected is not None
        return self.with_arrays(self.expected, arrays)

    def outputs(self, *arrays: Any) -> list[Any]:
        """The op's value as a list, be it one tensor or several."""
        return flatten(self(*arrays))[0]

    def at(self, arrays: Sequence[np.ndarray], label: str) -> Case:
        """The same call with other arrays."""
        args, kwargs = self.with_arrays(lambda *args, **kwargs: (args, kwargs), arrays)
        return Case(self.op, args, kwargs, self.expected, f"{self}-{label}", self.singular, self.tolerance)

    def redrawn(self, seed: int) -> Case:
        """The same call with every element of every array moved by up to a tenth, and none across 0."""
        rng = np.random.default_rng([seed, len(self.arrays)])
        arrays = [np.asarray(x * rng.uniform(0.9, 1.1, x.shape)).astype(x.dtype) for x in self.arrays]
        return self.at(arrays, f"redrawn-{seed}")

    @staticmethod
    def of(op: str | Callable[..., Any], given: Any) -> Case:
        """A case as it is; a tuple as the arguments of op; anything else as its one argument."""
        if isinstance(given, Case):
            return given
        return Case(op, given if isinstance(given, tuple) else (given,))


def _kind(x: Any) -> str:
    """f or c for what is differentiated, else nothing."""
    return x.dtype.kind if isinstance(x, np.ndarray) and x.dtype.kind in "fc" else ""


def _replaced(x: Any, given: Any) -> Any:
    kind = _kind(x)
    if kind == "c":
        real, imaginary = next(given), next(given)
        joined = real + imaginary * 1j
        return joined if hasattr(joined, "backward") else np.asarray(joined)
    return next(given) if kind else x


def load_cases(directory: str | Path) -> list[Case]:
    """All of CASES in the files cases*.py of a directory, which may import each other by their names.

    Raises FileNotFoundError, with what to do, when there is no such file.
    """
    files = sorted(Path(directory).glob("cases*.py"))
    if not files:
        raise FileNotFoundError(
            f"no cases*.py in {directory}: name a directory of files that define CASES, a list of "
            "minigrad.check.cases.Case; in a checkout of minigrad it is tests/ops"
        )
    sys.path.insert(0, str(Path(directory).resolve()))
    try:
        modules = [_module(file) for file in files]
    finally:
        sys.path.pop(0)
    # By identity, since a file may have imported its neighbour's list.
    return list({id(case): case for module in modules for case in getattr(module, "CASES", ())}.values())


def _module(file: Path) -> Any:
    """The module of a file, imported once a process and under its bare name, so that its neighbours find it."""
    known = sys.modules.get(file.stem)
    if known is not None and getattr(known, "__file__", None) != str(file.resolve()):
        del sys.modules[file.stem]  # another directory's
    return importlib.import_module(file.stem)
