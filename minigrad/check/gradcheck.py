"""gradcheck: the gradients that backward computes, compared with finite differences, element by element.

f is called with float64 copies. With a random cotangent c for its outputs, the analytic gradient of sum(c * f) comes
from one backward pass, and the numeric one from a fourth-order central difference at every element of every floating
input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from minigrad.engine import Array, Transform, backward_pass, own
from minigrad.tensor import Tensor, wrap
from minigrad.transforms import grad
from minigrad.trees import flatten

RELATIVE = 1e-7  # how far analytic and numeric may differ, of the larger of the two,
OF_LARGEST = 1e-9  # plus this much of the input's largest gradient,
ABSOLUTE = 1e-10  # plus this, plus what the outputs' rounding errors come to
STEP = 1e-3  # times max(1, |x|): where the fourth-order error (step^4) and the rounding error (1e-16 / step) balance
REFINEMENTS = 7  # shorter steps (each a quarter of the one before) tried where the first does not agree
SHOWN = 8


class GradientError(AssertionError):
    """A gradient disagrees with finite differences; `result` is the whole CheckResult."""

    def __init__(self, result: CheckResult):
        super().__init__(str(result))
        self.result = result


@dataclass(frozen=True)
class Mismatch:
    """One element whose analytic and numeric gradients differ by more than the tolerance."""

    input: str
    index: tuple[int, ...]
    analytic: float
    numeric: float

    @property
    def absolute(self) -> float:
        return abs(self.analytic - self.numeric)

    @property
    def relative(self) -> float:
        return self.absolute / max(abs(self.analytic), abs(self.numeric), np.finfo(float).tiny)

    def _severity(self) -> float:
        return np.inf if np.isnan(self.absolute) else self.absolute


@dataclass(frozen=True)
class InputResult:
    """The gradients of one floating input: arrays of its shape, and where they differ too much."""

    name: str
    analytic: np.ndarray
    numeric: np.ndarray
    wrong: np.ndarray

    def mismatches(self) -> list[Mismatch]:
        return [
            Mismatch(self.name, tuple(map(int, at)), float(self.analytic[tuple(at)]), float(self.numeric[tuple(at)]))
            for at in np.argwhere(self.wrong)
        ]


@dataclass(frozen=True)
class CheckResult:
    """What a check found: truthy when it passed; as text, the worst elements in a table."""

    what: str
    inputs: tuple[InputResult, ...]

    def __bool__(self) -> bool:
        return not any(i.wrong.any() for i in self.inputs)

    @property
    def mismatches(self) -> list[Mismatch]:
        """The elements that differ, the worst first."""
        found = [m for i in self.inputs for m in i.mismatches()]
        return sorted(found, key=Mismatch._severity, reverse=True)

    def __str__(self) -> str:
        checked = sum(i.analytic.size for i in self.inputs)
        worst = self.mismatches
        if not worst:
            return f"{self.what} passed: {checked} elements agree with finite differences"
        lines = [f"{self.what} failed: {len(worst)} of {checked} elements differ from finite differences"]
        return "\n".join([*lines, *_table(worst[:SHOWN]), *(["..."] if len(worst) > SHOWN else [])])


def _table(rows: Sequence[Mismatch]) -> list[str]:
    cells = [("input", "index", "analytic", "numeric", "abs error", "rel error")]
    for m in rows:
        numbers = (f"{m.analytic:.8g}", f"{m.numeric:.8g}", f"{m.absolute:.2g}", f"{m.relative:.2g}")
        cells.append((m.input, str(m.index), *numbers))
    widths = [max(map(len, column)) for column in zip(*cells)]
    return ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells]


def gradcheck(f: Callable[..., Any], inputs: Any, *, raise_exception: bool = True) -> CheckResult:
    """Compare the gradient of `f` with central differences, for every element of every floating input, in float64.

    inputs: a tuple of f's arguments, or one argument by itself; each an array or a nested list, tuple or dict of
    arrays. Floating arrays are copied and lifted to float64; everything else (integers, masks, None) is passed on as it
    is. f returns a floating tensor, or a nested list, tuple or dict of them; its output may ignore an input (gradient
    0). Returns a CheckResult; when gradients differ, GradientError is raised with its text, unless raise_exception is
    False. Raises TypeError for outputs that are not floating tensors. f should be smooth near the inputs.

    >>> import minigrad as mg
    >>> print(gradcheck(lambda x, n: mg.sin(x) ** n, (np.array([0.5, 1.0]), 3)))
    gradcheck passed: 2 elements agree with finite differences
    >>> @mg.op
    ... def cube(x):
    ...     return x**3
    >>> _ = cube.derivative(x=lambda x: 2 * x**2)
    >>> print(gradcheck(cube, np.array([1.0, 2.0]), raise_exception=False))
    gradcheck failed: 2 of 2 elements differ from finite differences
      input       index  analytic    numeric     abs error  rel error
      argument 0  (1,)   -6.1582937  -9.2374406  3.1        0.33
      argument 0  (0,)   -2.2739234  -3.4108851  1.1        0.33
    """
    return _finish("gradcheck", _Function(f, inputs), raise_exception)


def gradgradcheck(f: Callable[..., Any], inputs: Any, *, raise_exception: bool = True) -> CheckResult:
    """Check the second derivatives of `f`: gradcheck of its gradient, as a function of the inputs and of the cotangent.

    Arguments, result and errors as for `gradcheck`.

    >>> bool(gradgradcheck(lambda x: x**4, 2.0))
    True
    """
    first = _Function(f, inputs)
    with Transform():
        cotangents = _cotangents([y._array for y in first(first.constants())])
    n = len(first.leaves)

    def weighted(*arrays: Tensor) -> Any:
        return sum(((y * c).sum() for y, c in zip(first(arrays[:n]), arrays[n:])), start=wrap(np.zeros(()), None))

    second = _Function(grad(weighted, argnums=range(n)), (*first.leaves, *cotangents))
    names = ["cotangent"] if len(cotangents) == 1 else [f"cotangent {i}" for i in range(len(cotangents))]
    second.names = [*first.names, *names]
    return _finish("gradgradcheck", second, raise_exception)


def _finish(what: str, function: _Function, raise_exception: bool) -> CheckResult:
    result = CheckResult(what, _compare(function))
    if raise_exception and not result:
        raise GradientError(result)
    return result


class _Function:
    """f as a function from a flat list of tensors, one for each floating input, to a flat list of floating tensors."""

    def __init__(self, f: Callable[..., Any], inputs: Any):
        self.f = f
        args = inputs if isinstance(inputs, tuple) else (inputs,)
        leaves, self._put_back = flatten(args)
        self._others = [x._array if isinstance(x, Tensor) else x for x in leaves]
        self._positions = [i for i, x in enumerate(self._others) if _is_floating(x)]
        self.leaves = [np.array(self._others[i], float, order="C") for i in self._positions]
        paths = [path for i, arg in enumerate(args) for path in _paths(arg, f"argument {i}")]
        self.names = [paths[i] for i in self._positions]

    def __call__(self, leaves: Sequence[Tensor]) -> list[Tensor]:
        filled = list(self._others)
        for position, leaf in zip(self._positions, leaves):
            filled[position] = leaf
        outputs, _ = flatten(self.f(*self._put_back(filled)))
        for y in outputs:
            _check_output(y)
        return outputs

    def constants(self) -> list[Tensor]:
        """The inputs as untracked tensors of their own, so that f may do what it likes with them."""
        return [wrap(x.copy(), None) for x in self.leaves]


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
    if isinstance(y, Tensor) and y.dtype.kind == "f":
        return
    what = f"a tensor of dtype {y.dtype}" if isinstance(y, Tensor) else f"{type(y).__name__}"
    raise TypeError(
        f"a function whose gradient is checked returns floating tensors, and this one returned {what}: "
        "compute with mg.* from its arguments to its result, without .numpy(), .data, float() or .item()"
    )


def _cotangents(ys: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Random, of either sign, and none so small that it would hide an element."""
    rng = np.random.default_rng(0)
    return [rng.uniform(0.5, 1.5, y.shape) * rng.choice([-1.0, 1.0], y.shape) for y in ys]


# --- the two gradients -------------------------------------------------------------------------------------------


def _compare(function: _Function) -> tuple[InputResult, ...]:
    cotangents, analytic = _analytic(function)
    results = []
    for number, (name, gradient) in enumerate(zip(function.names, analytic)):
        numeric, wrong = np.empty_like(gradient), np.zeros(gradient.shape, bool)
        largest = np.max(np.abs(gradient), initial=0.0, where=np.isfinite(gradient))
        for at in np.ndindex(gradient.shape):
            probe = _Probe(function, cotangents, number, at)
            numeric[at], wrong[at] = probe.difference(gradient[at], OF_LARGEST * largest + ABSOLUTE)
        results.append(InputResult(name, gradient, numeric, wrong))
    return tuple(results)


def _analytic(function: _Function) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Cotangents for the outputs, and the gradient of every input from a backward pass."""
    with Transform() as transform:
        nodes = [transform.input(None, x.shape, x.dtype) for x in function.leaves]
        ys = function([wrap(x.copy(), node) for x, node in zip(function.leaves, nodes)])
        cotangents = _cotangents([y._array for y in ys])
        pairs = [(y._node, c.astype(y.dtype)) for y, c in zip(ys, cotangents)]
        roots = [(node, c) for node, c in pairs if node is not None and transform.reached_by(node)]
        found = backward_pass(roots, inputs=set(nodes), transform=transform)
    return cotangents, [own(found[node]) if node in found else np.zeros(node.shape) for node in nodes]


class _Probe:
    """sum(c * f) as a function of one element of one input, and its derivative there by differences."""

    def __init__(self, function: _Function, cotangents: list[np.ndarray], number: int, at: tuple[int, ...]):
        self.function = function
        self.cotangents = cotangents
        self.number = number
        self.at = at

    def difference(self, analytic: float, tolerance: float) -> tuple[float, bool]:
        """The numeric derivative, and whether it differs from the analytic one.

        Where it does at the first step, f may just vary fast there, so shorter steps are tried, and of all estimates
        that counts which agrees best with its successor (not the one which agrees best with the analytic value).
        """
        x = float(self.function.leaves[self.number][self.at])
        step = STEP * max(1.0, abs(x))
        numeric, noise = self._stencil(x, step)
        if _agree(analytic, numeric, tolerance + noise):
            return numeric, False
        estimates = [(numeric, noise), *(self._stencil(x, step / 4.0**k) for k in range(1, REFINEMENTS + 1))]
        changes = [abs(a - b) + noise for (a, noise), (b, _) in pairwise(estimates)]
        finite = [change if np.isfinite(change) else np.inf for change in changes]
        numeric, noise = estimates[int(np.argmin(finite))]
        return numeric, not _agree(analytic, numeric, tolerance + noise)

    def _stencil(self, x: float, step: float) -> tuple[float, float]:
        """(8 (f(x+h) - f(x-h)) - (f(x+2h) - f(x-2h))) / 12h, with an error of order h^4, and its rounding error."""
        near, rounding = self._change(x, step)
        far, _ = self._change(x, 2 * step)
        return (8 * near - far) / (12 * step), rounding / step

    def _change(self, x: float, step: float) -> tuple[float, float]:
        """sum(c * (f(x + step) - f(x - step))), and a bound on its rounding error."""
        change = rounding = 0.0
        for y_up, y_down, c in zip(self._outputs(x + step), self._outputs(x - step), self.cotangents):
            with np.errstate(all="ignore"):
                change += float(np.sum(c * (y_up.astype(float) - y_down)))
                rounding += float(4 * np.finfo(y_up.dtype).eps * np.sum(np.abs(c) * (np.abs(y_up) + np.abs(y_down))))
        return change, rounding

    def _outputs(self, value: float) -> list[np.ndarray]:
        tensors = self.function.constants()
        tensors[self.number]._array[self.at] = value
        with Transform(), np.errstate(all="ignore"):  # in a transform, so that f's own transforms return tensors
            return [y._array for y in self.function(tensors)]


def _agree(analytic: Array, numeric: Array, tolerance: float) -> bool:
    error = abs(analytic - numeric)
    return bool(np.isfinite(error) and error <= RELATIVE * max(abs(analytic), abs(numeric)) + tolerance)
