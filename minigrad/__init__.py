"""minigrad: reverse-mode automatic differentiation on NumPy arrays, small enough to read in an afternoon.

>>> import minigrad as mg
>>> x = mg.tensor([1.0, 2.0, 3.0], requires_grad=True)
>>> mg.sum(mg.exp(x)).backward()
>>> x.grad
array([ 2.71828183,  7.3890561 , 20.08553692])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from minigrad.engine import no_grad as no_grad
from minigrad.op import op as op
from minigrad.tensor import Tensor as Tensor
from minigrad.tensor import tensor as tensor

if TYPE_CHECKING:
    from minigrad import check, fft, linalg, nn, optim, random, saving, study, threads  # noqa: F401
    from minigrad.api import *  # noqa: F403
    from minigrad.check import gradcheck as gradcheck
    from minigrad.check import gradgradcheck as gradgradcheck
    from minigrad.compiled import compile as compile

__version__ = "0.1.0"

# The rest is imported when it is looked up, so that `import minigrad` takes hardly longer than NumPy's import.
_SUBMODULES = ("check", "fft", "linalg", "nn", "optim", "random", "saving", "study", "threads")
_ELSEWHERE = {"compile": "compiled", "gradcheck": "check", "gradgradcheck": "check"}


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"minigrad.{name}")
    if name == "__all__":
        return __dir__()
    if not name.startswith("__"):
        module = import_module(f"minigrad.{_ELSEWHERE.get(name, 'api')}")
        if hasattr(module, name):
            globals()[name] = getattr(module, name)
            return globals()[name]
    raise AttributeError(f"minigrad has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*_SUBMODULES, *_ELSEWHERE, *import_module("minigrad.api").__all__])
