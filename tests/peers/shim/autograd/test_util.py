"""autograd.test_util: gradients by reverse mode, of the first and second order, against numerical differences."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad.trees import flatten

from .wrap_util import name_of, unary_to_nary

TOL = 1e-6
RTOL = 1e-6
EPS = 1e-6

REAL_ONLY = "real arguments pass, complex ones are left out"


def scalar_close(a: Any, b: Any) -> bool:
    return bool(abs(a - b) < TOL or abs(a - b) / abs(a + b) < RTOL)


@unary_to_nary
def check_grads(f: Callable[..., Any], x: Any, modes: tuple[str, ...] = ("rev",), order: int = 2) -> None:
    """Check the derivative along a random direction, for a random cotangent. Forward mode is left out."""
    f = _with_real_outputs(f)
    _check_vjp(f, x)
    if order > 1:

        def vjp(x: Any, v: Any) -> Any:
            return mg.vjp(f, x)[1](v)[0]

        vjp.__name__ = f"vjp_{name_of(f)}"
        check_grads(vjp, (0, 1), order=order - 1)(x, _random_like(f(x)))


def _with_real_outputs(f: Callable[..., Any]) -> Callable[..., Any]:
    """f with a complex array of its result as two: the real and the imaginary part."""

    def parts(x: Any) -> Any:
        leaves, rebuild = flatten(f(x))
        return rebuild([(np.real(y), np.imag(y)) if np.iscomplexobj(y) else y for y in leaves])

    parts.__name__ = name_of(f)
    return parts


def _check_vjp(f: Callable[..., Any], x: Any) -> None:
    value, pull = mg.vjp(f, x)
    direction, cotangent = _random_like(x), _random_like(value)
    (gradient,) = pull(cotangent)
    analytic = _inner(direction, gradient)
    numeric = _inner(cotangent, _numeric_jvp(f, x, direction))
    assert scalar_close(numeric, analytic), (
        f"Derivative (VJP) check of {name_of(f)} failed with arg {x}:\nanalytic: {analytic}\nnumeric:  {numeric}"
    )


def _numeric_jvp(f: Callable[..., Any], x: Any, direction: Any) -> Any:
    (leaves, rebuild), (steps, _) = flatten(x), flatten(direction)
    above = f(rebuild([leaf + step * (EPS / 2) for leaf, step in zip(leaves, steps)]))
    below = f(rebuild([leaf - step * (EPS / 2) for leaf, step in zip(leaves, steps)]))
    (high, rebuild), (low, _) = flatten(above), flatten(below)
    return rebuild([(np.asarray(a) - np.asarray(b)) / EPS for a, b in zip(high, low)])


def _random_like(tree: Any) -> Any:
    leaves, rebuild = flatten(tree)
    return rebuild([np.random.randn(*np.shape(leaf)) for leaf in leaves])


def _inner(a: Any, b: Any) -> Any:
    """The inner product of two trees, whose structure and shapes must be equal."""
    pairs = list(zip(flatten(a)[0], flatten(b)[0], strict=True))
    assert [np.shape(x) for x, _ in pairs] == [np.shape(y) for _, y in pairs]
    return sum(np.sum(np.asarray(x) * np.asarray(y)) for x, y in pairs)


def check_equivalent(a: Any, b: Any) -> None:
    """The same structure, shapes and kinds of number, and values that are close along a random direction."""
    assert [np.iscomplexobj(x) for x in flatten(a)[0]] == [np.iscomplexobj(y) for y in flatten(b)[0]]
    direction = _random_like(a)
    assert scalar_close(_inner(a, direction), _inner(b, direction)), f"{a} and {b}"


def combo_check(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., None]:
    """check_grads for every combination of the arguments and keywords given.

    Those without complex numbers are checked; if there are others, the test then ends as skipped, not as passed.
    """

    def check(*choices: Any, **named_choices: Any) -> None:
        named = [[(name, choice) for choice in options] for name, options in named_choices.items()]
        left_out = False
        for chosen in itertools.product(*choices):
            if any(map(np.iscomplexobj, flatten(chosen)[0])):
                left_out = True
                continue
            for options in itertools.product(*named):
                check_grads(f, *args, **kwargs)(*chosen, **dict(options))
        if left_out:
            pytest.skip(REAL_ONLY)

    return check
