"""autograd's way to declare a function with its rules, mapped onto mg.op."""

import inspect
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import minigrad as mg


class Primitive:
    """A function on arrays, without names of arguments (autograd's rules get all of them by position)."""

    def __init__(self, f: Callable[..., Any]):
        self.__name__ = f.__name__
        self._f = f
        self._ops: dict[int, Any] = {}
        self._makers: dict[int, Callable[..., Any]] = {}

    def declare(self, argnum: int, maker: Callable[..., Any]) -> None:
        self._makers[argnum] = maker
        self._ops.clear()

    def __call__(self, *args: Any) -> Any:
        if not self._makers and any(isinstance(x, mg.Tensor) and x.requires_grad for x in args):
            raise NotImplementedError(f"{self.__name__} has no gradient rule")
        if len(args) not in self._ops:
            self._ops[len(args)] = self._op_of(len(args))
        return self._ops[len(args)].apply(*args)

    def _op_of(self, count: int) -> Any:
        names = [f"x{i}" for i in range(count)]

        def forward(*args: Any) -> Any:
            return self._f(*args)

        op = mg.op(_with_parameters(forward, names))
        for argnum, maker in self._makers.items():

            def rule(g: Any, y: Any, *args: Any, maker: Callable[..., Any] = maker) -> Any:
                return maker(y, *args)(g)

            op.rule(**{names[argnum]: _with_parameters(rule, ["g", "y", *names])})
        return op


def _with_parameters(f: Callable[..., Any], names: list[str]) -> Callable[..., Any]:
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    f.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return f


def primitive(f: Callable[..., Any]) -> Primitive:
    return Primitive(f)


def defvjp(function: Primitive, *makers: Callable[..., Any], argnums: Iterable[int] | None = None) -> None:
    """Each maker(answer, *args) returns the function from the cotangent to the gradient of one argument."""
    for argnum, maker in zip(itertools.count() if argnums is None else argnums, makers):
        function.declare(argnum, maker)
