"""autograd's convention for operators on functions: operator(f, argnum)(*args, **kwargs)."""

import functools
from collections.abc import Callable
from typing import Any


def unary_to_nary(unary: Callable[..., Any]) -> Callable[..., Any]:
    """An operator unary(f, x) on functions of one argument, made one that is told which argument (or arguments)."""

    @functools.wraps(unary)
    def operator(f: Callable[..., Any], argnum: Any = 0, *options: Any, **named: Any) -> Callable[..., Any]:
        def nary(*args: Any, **kwargs: Any) -> Any:
            def of_x(x: Any) -> Any:
                filled = list(args)
                for i, value in [(argnum, x)] if isinstance(argnum, int) else zip(argnum, x):
                    filled[i] = value
                return f(*filled, **kwargs)

            of_x.__name__ = name_of(f)
            x = args[argnum] if isinstance(argnum, int) else tuple(args[i] for i in argnum)
            return unary(of_x, x, *options, **named)

        nary.__name__ = f"{name_of(unary)}_of_{name_of(f)}_wrt_argnum_{argnum}"
        return nary

    return operator


def name_of(f: Any) -> str:
    return getattr(f, "__name__", str(f))
