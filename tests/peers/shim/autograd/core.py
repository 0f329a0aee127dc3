"""Names that the tests import from autograd.core. Its vector spaces (vspace) are internals that minigrad lacks."""

from typing import Any

from .extend import primitive
from .transforms import make_vjp as _make_vjp

__all__ = ["make_vjp", "primitive", "primitive_vjps", "vspace"]

primitive_vjps: dict[Any, Any] = {}


def make_vjp(f: Any, x: Any) -> Any:
    return _make_vjp(f)(x)


def vspace(x: Any) -> Any:
    raise NotImplementedError("autograd's vector spaces")
