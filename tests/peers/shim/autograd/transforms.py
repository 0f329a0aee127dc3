"""autograd's transforms in terms of minigrad's."""

from collections.abc import Callable
from typing import Any

import numpy as np

import minigrad as mg

from .wrap_util import unary_to_nary

Function = Callable[..., Any]

checkpoint = mg.checkpoint


@unary_to_nary
def make_vjp(f: Function, x: Any) -> tuple[Function, Any]:
    value, pull = mg.vjp(f, x)
    return lambda g: pull(g)[0], value


@unary_to_nary
def make_jvp(f: Function, x: Any) -> Function:
    return lambda v: mg.jvp(f, (x,), (v,))


@unary_to_nary
def grad(f: Function, x: Any) -> Any:
    return mg.grad(f)(x)


@unary_to_nary
def value_and_grad(f: Function, x: Any) -> Any:
    return mg.value_and_grad(f)(x)


@unary_to_nary
def grad_and_aux(f: Function, x: Any) -> Any:
    (value, aux), pull = mg.vjp(f, x)
    return pull((np.ones(value.shape), np.zeros(aux.shape)))[0], aux


@unary_to_nary
def elementwise_grad(f: Function, x: Any) -> Any:
    return mg.elementwise_grad(f)(x)


@unary_to_nary
def deriv(f: Function, x: Any) -> Any:
    return mg.jvp(f, (x,), (np.ones(np.shape(x)),))[1]


def holomorphic_grad(f: Function) -> Any:
    raise NotImplementedError("complex numbers")


@unary_to_nary
def jacobian(f: Function, x: Any) -> Any:
    return mg.jacobian(f)(x)


@unary_to_nary
def hessian(f: Function, x: Any) -> Any:
    return mg.hessian(f)(x)


@unary_to_nary
def make_hvp(f: Function, x: Any) -> tuple[Function, Any]:
    return (lambda v: mg.hvp(f)(x, v)), mg.grad(f)(x)


def hessian_tensor_product(f: Function, argnum: int = 0) -> Function:
    return mg.hvp(f, argnum)


def tensor_jacobian_product(f: Function, argnum: int = 0) -> Function:
    def product(*args: Any) -> Any:
        *xs, v = args
        return mg.jacobian(lambda *xs: np.tensordot(v, f(*xs), axes=np.ndim(v)), argnum)(*xs)

    return product


def _half_squared(x: Any) -> Any:
    return 0.5 * np.sum(x**2, axis=-1)


def make_ggnvp(f: Function, g: Function = _half_squared, f_argnum: int = 0) -> Function:
    @unary_to_nary
    def maker(f: Function, x: Any) -> Function:
        value, pull = mg.vjp(f, x)
        return lambda v: pull(mg.hvp(g)(value, mg.jvp(f, (x,), (v,))[1]))[0]

    return maker(f, f_argnum)
