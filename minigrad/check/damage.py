"""The kinds of damage that `minigrad.check.mutate` does, each a function: to results, to operands, to the engine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from minigrad import engine
from minigrad.engine import Array
from minigrad.op import FusedOp, Op, _scaled
from minigrad.ops import elementwise, indexing
from minigrad.tensor import Tensor, wrap

# --- damage to what a rule returns: (result, shape of the operand) -> result -------------------------------------


def _weighted(r: Array, at: Any, weight: float) -> Array:
    weights = np.ones(r.shape, r.dtype)
    weights[at] = weight
    return r * weights


def _transposed(r: Array, shape: tuple[int, ...]) -> Array:
    return np.reshape(np.swapaxes(r, -1, -2), r.shape) if len(r.shape) > 1 else r


def _off_by_one(r: Array, shape: tuple[int, ...]) -> Array:
    return r[np.arange(r.shape[0]) - 1] if r.shape and r.shape[0] else r


def _first_of_broadcast(r: Array, shape: tuple[int, ...]) -> Array:
    if r.shape == shape or not r.shape:
        return r
    extra = len(r.shape) - len(shape)
    return r[(0,) * extra + tuple(slice(0, 1) if n == 1 else slice(None) for n in shape)]


def _constant(r: Array, shape: tuple[int, ...]) -> Array:
    return wrap(r._array, None) if isinstance(r, Tensor) else r


def _double_precision(r: Array, shape: tuple[int, ...]) -> Array:
    return r.astype(np.result_type(r.dtype, np.float64))


def _single_precision(r: Array, shape: tuple[int, ...]) -> Array:
    return r.astype(np.complex64 if r.dtype.kind == "c" else np.float32).astype(r.dtype)


RESULTS: dict[str, Callable[[Array, tuple[int, ...]], Array]] = {
    "sign": lambda r, shape: -r,
    "factor 1.001": lambda r, shape: r * 1.001,
    "factor 2": lambda r, shape: r * 2,
    "missing": lambda r, shape: r * 0,
    "offset": lambda r, shape: r + 0.01,
    "last element": lambda r, shape: _weighted(r, (-1,) * len(r.shape), 0.5) if 0 not in r.shape else r,
    "last row": lambda r, shape: _weighted(r, -1, 0) if len(r.shape) > 1 and r.shape[0] else r,
    "off by one": _off_by_one,
    "transposed": _transposed,
    "broadcast sum dropped": _first_of_broadcast,
    "float64": _double_precision,
    "float32": _single_precision,
    "constant": _constant,
}
# A fused kernel's outputs are not recorded, so they can not lose their history.
KERNEL_RESULTS = [kind for kind in RESULTS if kind != "constant"]


def each(damage: Callable[[Array, Any], Array], result: Any, shape: Any) -> Any:
    """Damage a gradient, or every gradient of a sequence."""
    if isinstance(result, (list, tuple)):
        return [None if r is None else damage(r, s) for r, s in zip(result, shape)]
    return damage(np.asarray(result) if not isinstance(result, Tensor) else result, shape)


# --- damage to what a rule is given: (rule, names of what it needs, g, what it needs) -> result ------------------


def _detached(rule: Any, names: Sequence[str], g: Array, needs: Sequence[Any]) -> Any:
    return rule(g, *[without_history(x) for x in needs])


def without_history(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return type(x)(map(without_history, x)) if type(x) in (list, tuple) else x
    return wrap(x._array, None) if isinstance(x, Tensor) else x


AXIS_NAMES = ("axis", "axis1", "axis2", "axes", "source", "destination")


def _other_axis(rule: Any, names: Sequence[str], g: Array, needs: Sequence[Any]) -> Any:
    ndim = len((g[0] if isinstance(g, tuple) else g).shape)
    return rule(g, *[_next_axis(x, ndim) if name in AXIS_NAMES else x for name, x in zip(names, needs)])


def _next_axis(axis: Any, ndim: int) -> Any:
    if isinstance(axis, (list, tuple)):
        return type(axis)(_next_axis(a, ndim) for a in axis)
    return (axis + 1) % max(ndim, 1) if isinstance(axis, (int, np.integer)) else axis


def _writes(rule: Any, names: Sequence[str], g: Array, needs: Sequence[Any]) -> Any:
    result = rule(g, *needs)
    for part in g if isinstance(g, tuple) else (g,):
        if isinstance(part, np.ndarray):
            part *= 1.5
    return result


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _assigned(rule: Any, names: Sequence[str], g: Array, needs: Sequence[Any]) -> Any:
    with replaced(indexing, "add_at", _assign_at):
        return rule(g, *needs)


def _assign_at(y: np.ndarray, index: Any, value: Any) -> None:
    y[index] = value


def _unsafe(rule: Any, names: Sequence[str], g: Array, needs: Sequence[Any]) -> Any:
    with (
        replaced(sys.modules[Op.__module__], "safe_product", np.multiply),  # minigrad.op is the decorator
        replaced(elementwise, "safe_product", np.multiply),
    ):
        return rule(g, *needs)


def _output_ignored(rule: Any, names: Sequence[str], g: Array, needs: Sequence[Any]) -> Any:
    return rule((g[0] * 0, *g[1:]) if isinstance(g, tuple) else g, *needs)


def _last_output_ignored(rule: Any, names: Sequence[str], g: Array, needs: Sequence[Any]) -> Any:
    return rule((*g[:-1], g[-1] * 0) if isinstance(g, tuple) else g, *needs)


CALLS: dict[str, Callable[[Any, Sequence[str], Array, Sequence[Any]], Any]] = {
    "second-order term dropped": _detached,
    "axis off by one": _other_axis,
    "writes to cotangent": _writes,
    "assigned, not added": _assigned,
    "zero times infinity": _unsafe,
    "first output ignored": _output_ignored,
    "last output ignored": _last_output_ignored,
}
SWAPPED = "swapped operands"


# --- damage to the engine: (function, text, what stands there instead) -------------------------------------------

ENGINE: dict[str, tuple[Any, str, str]] = {
    "second arrival replaces the first": (
        engine.backward_pass,
        "cotangents[edge] = before + ge",
        "cotangents[edge] = ge",
    ),
    "third arrival forgotten": (engine.backward_pass, "before += ge", "pass"),
    "adds to a borrowed array": (engine.backward_pass, "elif edge in owned:", "elif True:"),
    "gradient not cast": (engine.backward_pass, "ge = _cast(ge, edge.dtype)", "pass"),
    "only the last use of an output counts": (
        engine.backward_pass,
        "parts[node.index] = g if before is None else before + g",
        "parts[node.index] = g",
    ),
    "mean over broadcast axes": (engine._sum_to, "g.sum(", "g.mean("),
    "sum over new axes only": (engine._sum_to, "+ stretched", ""),
    "unused outputs get ones": (engine._fill_missing, "np.zeros(", "np.ones("),
    "imaginary part for a real operand": (engine._cast, "np.real(g)", "np.imag(g)"),
    "second backward replaces .grad": (engine._keep, "notes.grad += array", "notes.grad = array"),
    ".grad shared": (engine.own, 'np.array(g, order="C")', "np.asarray(g)"),
    "operands not on the record": (
        Op._on_record,
        "return wrap(x, node.edges[edge_of[need]])",
        "return wrap(x, None)",
    ),
    "output not on the record": (Op._on_record, "return wrap(x, node)", "return wrap(x, None)"),
    "outputs not on the record": (Op._on_record, "wrap(y, output_node(node, i))", "wrap(y, None)"),
    "sequence not on the record": (
        Op._vjp_sequence,
        "wrap(v, node.edges[edge_of[i]]) if i in edge_of else v",
        "v",
    ),
    "zero times infinity on the record": (_scaled, 'OPS["scale"](g, d)', "g * d"),
    "reference pulled back without its cotangent": (
        FusedOp._vjp_reference,
        "[(y._node, g)]",
        "[(y._node, wrap(g._array, None))]",
    ),
}
