"""Sample calls of every op: what the laws in test_laws.py and `python -m minigrad.check.mutate` run on.

An op without a case fails in test_laws.py. The files cases_*.py beside this one hold more; each imports what it needs
from here (`from cases import case, normal`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad.check.cases import Case

CASES: list[Case] = []


def case(
    op: str,
    *args: Any,
    expected: Callable[..., Any] | None = None,
    label: str = "",
    singular: bool | None = None,
    tolerance: float = 1.0,
    **kwargs: Any,
) -> None:
    """Register a case; without `expected` it is NumPy's function of the same name."""
    CASES.append(Case(op, args, kwargs, expected or getattr(np, op), label, singular, tolerance))


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal numbers, none near 0 and no two close together, so that no step of a difference crosses a kink."""
    rng = np.random.default_rng([seed, *shape])
    x = rng.permutation(np.linspace(-1.9, 2.1, math.prod(shape)))
    return (np.where(np.abs(x) < 0.02, 0.3, x) + rng.uniform(-0.01, 0.01, x.shape)).reshape(shape)


def positive(*shape: int, seed: int = 0) -> np.ndarray:
    return np.asarray(np.abs(normal(*shape, seed=seed)) + 0.2)


def integers(high: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, high, *shape]).integers(0, high, shape)


def booleans(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).random(shape) < 0.6


# --- elementwise -------------------------------------------------------------------------------------------------

BROADCASTS = [
    ((3, 4), (3, 4)),
    ((2, 3, 4), (4,)),
    ((3, 1), (1, 4)),
    ((), (2, 3)),
    ((3,), ()),
    ((), ()),
    ((0, 3), (3,)),
    ((2, 0), (2, 1)),
]

for _name in ["add", "subtract", "multiply", "maximum", "minimum"]:
    for _a, _b in BROADCASTS:
        case(_name, normal(*_a), normal(*_b, seed=1))
    case(_name, normal(3), 0.7, label="python-scalar")
    case(_name, 0.7, normal(3), label="python-scalar-first")
    case(_name, normal(2, 3), np.arange(3), label="integer-constant")
for _a, _b in BROADCASTS:
    case("divide", normal(*_a), positive(*_b, seed=1))
    case("power", positive(*_a), normal(*_b, seed=1))
    case("scale", normal(*_a), normal(*_b, seed=1), expected=np.multiply)
    case("_scale_back", normal(*_a), normal(*_b, seed=1), expected=np.multiply)
case("divide", 2.0, normal(3), label="python-scalar-first")
case("divide", normal(3), 2, label="python-scalar")
case("divide", normal(3), np.array([1, 2, -3]), label="integer-constant")
case("scale", normal(3), 2.0, expected=np.multiply, label="python-scalar")
for _n in (-1, 0, 1, 2, 3, 0.5, -1.5):
    case("power", positive(3), _n, label=f"exponent-{_n}")
for _n in (-2, 0, 1, 2, 3):
    case("power", normal(3), _n, label=f"any-base-exponent-{_n}")
case("power", normal(2, 3), np.array([0, 1, 3]), label="integer-exponents")
case("power", 2, normal(3), label="python-base")
case("power", np.array([2, 3, 4]), normal(3), label="integer-base")

UNARY_SHAPES: list[tuple[int, ...]] = [(), (3,), (2, 3), (2, 1, 3), (0,), (2, 0)]


def _tanh_gelu(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


_unary: dict[str, Callable[..., Any]] = {
    "negative": np.negative,
    "square": np.square,
    "abs": np.abs,
    "copy": np.copy,
    "exp": np.exp,
    "expm1": np.expm1,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "relu": lambda x: np.where(x > 0, x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(0, x).astype(x.dtype),
    "gelu": _tanh_gelu,
}
for _name, _expected in _unary.items():
    for _shape in UNARY_SHAPES:
        case(_name, normal(*_shape), expected=_expected)
for _name in ["sqrt", "log", "log1p"]:
    for _shape in UNARY_SHAPES:
        case(_name, positive(*_shape))
case("log1p", normal(3) / 4, label="negative")
for _dtype, _tolerance in [(np.dtype(float), 1.0), (np.dtype(np.float32), 1e5)]:
    case(
        "astype",
        normal(2, 3),
        _dtype,
        expected=lambda x, dtype: x.astype(dtype),
        label=str(_dtype),
        tolerance=_tolerance,
    )
for _limits in [(-0.5, 0.5), (None, 0.5), (-0.5, None), (np.array([-1.0, 0, 1]).tolist(), 1.5)]:
    case("clip", normal(2, 3), *_limits, label=f"limits-{_limits}")
case("clip", normal(2, 3), min=-0.5, max=0.5, expected=lambda x, min, max: np.clip(x, min, max), label="keywords")
case("clip", normal(0, 3), -0.5, 0.5)
case("clip", normal(3), [[-0.5], [-1.0]], 0.5, label="broadcast-to-limits")
case("clip", normal(), -0.5, 0.5)
case("where", booleans(2, 3), normal(2, 3), normal(2, 3, seed=1))
case("where", booleans(3, 1), normal(4), normal(2, 1, 1, seed=1))
case("where", booleans(2, 3), normal(2, 3), 0.0, label="python-scalar")
case("where", booleans(2, 3), 1, normal(), label="scalar-condition-array")
case("where", np.array(True), normal(3), normal(3, seed=1), label="scalar-condition")
case("where", np.array([[True], [False]]), normal(3), normal(2, 3, seed=1), label="rows")
case("where", booleans(0, 3), normal(3), normal(0, 1))

# --- reductions --------------------------------------------------------------------------------------------------


def _logsumexp(x: np.ndarray, axis: Any = None, keepdims: bool = False) -> np.ndarray:
    return np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims))


AXES: list[tuple[tuple[int, ...], Any]] = [
    ((2, 3, 2), None),
    ((2, 3, 2), 0),
    ((2, 3, 2), -1),
    ((2, 3, 2), (0, 2)),
    ((2, 3, 2), (-1, -2)),
    ((2, 3, 2), (2, 0, 1)),
    ((5,), 0),
    ((), None),
    ((3, 1), 1),
    ((2, 3), ()),
    ((0, 3), 1),
    ((3, 0, 2), -1),
]
for _name in ["sum", "mean", "var", "std", "max", "min", "prod", "logsumexp"]:
    for _shape, _axis in AXES:
        if _name == "std" and (_shape == () or _axis == () or _shape == (3, 1)):
            continue  # 0, where it has a kink
        for _keepdims in (False, True):
            case(
                _name,
                normal(*_shape),
                axis=_axis,
                keepdims=_keepdims,
                expected=_logsumexp if _name == "logsumexp" else None,
                label=f"{_shape}-{_axis}-{'kept' if _keepdims else 'dropped'}",
            )
for _name in ["sum", "prod", "logsumexp"]:
    for _shape, _axis in [((0,), None), ((2, 0), 1), ((0, 3), 0)]:
        with np.errstate(divide="ignore"):
            _expected = _logsumexp if _name == "logsumexp" else getattr(np, _name)
        case(_name, normal(*_shape), axis=_axis, expected=_expected, label=f"empty-{_shape}-{_axis}")
for _name in ["var", "std"]:
    case(_name, normal(4, 3), axis=0, ddof=1, label="ddof")
case("prod", np.array([[2.0, 0.0, 3.0], [0.0, 0.5, 0.0]]), axis=1, label="zeros")
case("prod", np.array([[2.0, 0.0], [3.0, 4.0]]), axis=None, label="one-zero")
case("max", np.array([[3.0, 1.0, 2.0, 0.0]]).T, axis=0, label="column")

# --- shapes ------------------------------------------------------------------------------------------------------

for _shape, _new in [
    ((2, 6), (3, 4)),
    ((2, 6), (4, -1)),
    ((2, 6), -1),
    ((1,), ()),
    ((), (1, 1)),
    ((0, 3), (3, 0, 2)),
    ((2, 3), [3, 2]),
]:
    case("reshape", normal(*_shape), _new, label=f"{_shape}-{_new}")
for _axes in [None, (1, 2, 0), (-1, 0, 1), [2, 0, 1]]:
    case("transpose", normal(2, 3, 4), _axes, label=str(_axes))
case("transpose", normal(3))
case("transpose", normal(0, 2))
case("swapaxes", normal(2, 3, 4), 0, -1)
case("swapaxes", normal(2, 3, 4), 1, 1, label="same")
case("moveaxis", normal(2, 3, 4), 0, -1)
case("moveaxis", normal(2, 3, 4), (0, -1), (1, 0), label="several")
case("expand_dims", normal(2, 3), -1)
case("expand_dims", normal(2, 3), (0, 2, -1), label="several")
case("expand_dims", normal(), 0)
case("squeeze", normal(1, 3, 1), label="all")
case("squeeze", normal(1, 3, 1), -1, label="last")
case("squeeze", normal(1, 3, 1), (0, -1), label="both")
case("squeeze", normal(1, 0))
case("squeeze", normal(3, 1, 2), 1, label="middle")
case("squeeze", normal(1, 3, 2), label="matrix")
for _shape, _new in [
    ((3,), (2, 3)),
    ((2, 1), (4, 2, 3)),
    ((), (2, 2)),
    ((2, 3), (2, 3)),
    ((1,), (0,)),
    ((1, 3), (0, 3)),
]:
    case("broadcast_to", normal(*_shape), _new, label=f"{_shape}-{_new}")
case("broadcast_to", normal(), 3, label="integer-shape")
case("concatenate", [normal(2, 3), normal(1, 3, seed=1)])
case("concatenate", [normal(2, 3), normal(2, 1, seed=1), normal(2, 0, seed=2)], -1)
case("concatenate", (normal(2, 3), normal(2, 3, seed=1)), axis=None, label="flattened")
case("concatenate", [normal(2), np.arange(3), normal(1, seed=1)], label="constant-between")
case("stack", [normal(2, 3), normal(2, 3, seed=1)])
case("stack", [normal(2, 3), normal(2, 3, seed=1)], -1)
case("stack", [normal(2, 3), normal(2, 3, seed=1)], axis=1, label="middle")
case("stack", [normal(), normal(seed=1), 2.0], label="scalars")
case("stack", [normal(0), normal(0)])
case("split", normal(6, 2), 3)
case("split", normal(2, 6), [1, 4], axis=-1, label="at-indices")
case("split", normal(2, 6), (2, 2, 9), axis=1, label="empty-parts")
case("split", normal(2, 0), 2, axis=1)
case("flip", normal(2, 3))
case("flip", normal(2, 3), -1)
case("flip", normal(2, 3, 4), (0, 2))
for _name in ["tril", "triu"]:
    for _shape, _k in [((3, 4), 0), ((4, 3), 1), ((2, 3, 3), -1), ((0, 3), 0)]:
        case(_name, normal(*_shape), _k, label=f"{_shape}-{_k}")
    case(_name, normal(3), label="1-D")

# --- indexing ----------------------------------------------------------------------------------------------------

MASK_2D = np.array([[True, False, True, False], [False, False, True, True], [False, False, False, False]])
INDICES: dict[str, Any] = {
    "integer": 1,
    "negative": -1,
    "numpy-integer": np.int64(2),
    "slice": slice(1, None),
    "step": slice(None, None, -2),
    "ellipsis": (..., 1),
    "newaxis": (slice(None), None, 0),
    "all-integers": (1, 2),
    "empty-slice": slice(2, 2),
    "empty-tuple": (),
    "repeats": np.array([0, 2, 0, 0]),
    "negative-repeats": np.array([-1, 2, 0]),
    "list": [2, 0, 2],
    "2-D": np.array([[0, 1], [1, 1]]),
    "pair": (np.array([0, 0, 2]), np.array([1, 1, 3])),
    "pair-broadcast": (np.array([[0], [2]]), np.array([1, 1])),
    "array-and-slice": (np.array([1, 1]), slice(1, 3)),
    "slice-and-array": (slice(None), np.array([3, 0, 3])),
    "separated": (np.array([0, 1]), None, np.array([2, 2])),
    "rows": np.array([True, False, True]),
    "mask": MASK_2D,
    "all-false": np.zeros((3, 4), bool),
    "mask-in-tuple": (slice(None), np.array([True, False, False, True])),
    "mask-and-integers": (np.array([True, False, True]), np.array([1, 1])),
    "no-integers": np.array([], int),
    "0-d-integer": np.array(1),
}


def _get(x: np.ndarray, index: Any) -> np.ndarray:
    return x[index]


def _added(x: np.ndarray, index: Any, value: Any) -> np.ndarray:
    y = x.copy()
    np.add.at(y, index, value)
    return y


def _put(x: np.ndarray, index: Any, value: Any) -> np.ndarray:
    y = x.copy()
    y[index] = value
    return y


def _scattered(g: np.ndarray, index: Any, shape: tuple[int, ...], skipped: int | None = None) -> np.ndarray:
    y = _added(np.zeros(shape, g.dtype), index, g)
    if skipped is not None:
        y[skipped] = 0
    return y


for _label, _index in INDICES.items():
    _taken = normal(3, 4)[_index].shape
    case("getitem", normal(3, 4), _index, expected=_get, label=_label)
    case("_scatter", normal(*_taken, seed=1), _index, (3, 4), expected=_scattered, label=_label)
    case("index_add", normal(3, 4), _index, normal(*_taken, seed=1), expected=_added, label=_label)
    case("index_put", normal(3, 4), _index, normal(*_taken, seed=1), expected=_put, label=_label)
for _name, _expected in [("index_add", _added), ("index_put", _put)]:
    case(_name, normal(3, 4), np.array([0, 2, 0]), normal(4, seed=1), expected=_expected, label="broadcast-row")
    case(_name, normal(3, 4), MASK_2D, normal(seed=1), expected=_expected, label="broadcast-scalar")
    case(
        _name,
        normal(3, 4),
        (slice(None), np.array([1, 1])),
        normal(3, 1, seed=1),
        expected=_expected,
        label="broadcast-column",
    )
    case(_name, normal(3, 4), 1, 2.5, expected=_expected, label="python-scalar")
    case(_name, normal(5), np.array([1, 1, 4]), normal(3, seed=1), expected=_expected, label="1-D")
case("_scatter", normal(4), np.array([0, 2, 0]), (3, 4), expected=_scattered, label="broadcast-row")
case("_scatter", normal(2, 3, 4), np.array([[0, 2, 0], [2, 1, 1]]), (3, 4), 2, expected=_scattered, label="skipped")
case("getitem", normal(5), np.array([[1, 1], [4, -1]]), expected=_get, label="1-D")
case(
    "getitem", normal(2, 3, 4), (np.array([1, 0]), slice(None), np.array([3, 3])), expected=_get, label="separated-3-D"
)
case("getitem", normal(2, 3, 4), (slice(None), MASK_2D), expected=_get, label="2-D-mask-in-tuple")
case("getitem", normal(0, 3), np.array([], int), expected=_get, label="from-empty")
case("getitem", normal(), (), expected=_get, label="0-d")
case("getitem", normal(), (None, ...), expected=_get, label="0-d-newaxis")
case("take_along_axis", normal(3, 4), integers(4, 3, 2), -1)
case("take_along_axis", normal(3, 4), np.array([[0, 2, 2, -1]]), 0, label="broadcast-negative")
case("take_along_axis", normal(3, 4), np.array([3, 3, 11]), None, label="flattened")
case("take_along_axis", normal(2, 3, 4), integers(3, 1, 5, 4), axis=1, label="3-D")
case("take_along_axis", normal(0, 3), integers(3, 0, 1), -1)


def _embedding(weight: np.ndarray, ids: Any, padding_idx: int | None = None) -> np.ndarray:
    return weight[np.asarray(ids)]


for _ids in [[0, 2, 0], [[1], [1]], [], 3]:
    case("embedding", normal(4, 2), np.array(_ids, int), expected=_embedding, label=str(_ids))

# --- linalg ------------------------------------------------------------------------------------------------------

MATMULS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 3), (3, 4)),
    ((3,), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((5, 1, 2, 3), (4, 3, 2)),
    ((1, 2, 3), (5, 3, 4)),
    ((5, 2, 3), (3,)),
    ((3,), (5, 3, 4)),
    ((2, 2, 2, 3), (3, 1)),
    ((1, 1), (1, 1)),
    ((0, 3), (3, 4)),
    ((2, 0), (0, 4)),
    ((0, 2, 3), (3, 4)),
    ((2, 3), (0, 3, 4)),
    ((0,), (0, 2)),
    ((2, 0), (0,)),
    ((0,), (0,)),
]
for _a, _b in MATMULS:
    case("matmul", normal(*_a), normal(*_b, seed=1))
for _a, _b in [
    *MATMULS[:4],
    ((), (2, 3)),
    ((3,), ()),
    ((2, 3), (4, 3, 2)),
    ((5, 2, 3), (3, 4)),
    ((3,), (2, 3, 4)),
    ((2, 3, 2), (4, 2, 3)),
]:
    case("dot", normal(*_a), normal(*_b, seed=1))
for _a, _b in [((2,), (3,)), ((2, 2), (3, 1)), ((), (3,)), ((0,), (3,))]:
    case("outer", normal(*_a), normal(*_b, seed=1))
EINSUMS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("ij,jk", [(2, 3), (3, 4)]),
    ("ij->ji", [(2, 3)]),
    ("ba", [(2, 3)]),
    ("ii", [(3, 3)]),
    ("ii->i", [(3, 3)]),
    ("iij->i", [(2, 2, 4)]),
    ("iji->j", [(2, 3, 2)]),
    ("ijk->", [(2, 3, 2)]),
    ("i,i", [(3,), (3,)]),
    ("i,i", [(3,), (1,)]),
    ("i,j->ij", [(3,), (2,)]),
    ("i,j->", [(3,), (2,)]),
    ("...ij,...jk->...ik", [(5, 2, 3), (3, 4)]),
    ("...i,...i", [(5, 1, 3), (2, 3)]),
    ("i...->...", [(3, 2, 2)]),
    ("b...d,hd->b...h", [(2, 2, 3, 3), (4, 3)]),
    ("bij,bjk,k->bi", [(2, 2, 3), (2, 3, 2), (2,)]),
    ("ij,ij,ij->j", [(2, 3), (2, 3), (1, 3)]),
    (",i->i", [(), (3,)]),
    (" i j , j k -> k ", [(2, 3), (3, 4)]),
    ("iiij->ij", [(2, 2, 2, 3)]),
    ("ii,ii->", [(2, 2), (2, 2)]),
    ("...,...", [(2, 3), (3,)]),
    ("ij,jk->ik", [(0, 3), (3, 4)]),
    ("ij,jk->ik", [(2, 0), (0, 4)]),
    ("i->", [(0,)]),
    ("i...->i...", [(2, 3)]),
    ("bqd,bkd->bqk", [(2, 1, 3), (1, 4, 3)]),
]
for _subscripts, _shapes in EINSUMS:
    case("einsum", _subscripts, *[normal(*s, seed=i) for i, s in enumerate(_shapes)], label=f"{_subscripts}-{_shapes}")
for _subscripts, _shapes in EINSUMS:
    if _subscripts in ("ij,jk->ik", "ij->ji", "ijk->", "i,j->", "bij,bjk,k->bi", "ij,ij,ij->j"):
        case(
            "_einsum",
            _subscripts,
            [normal(*s, seed=i) for i, s in enumerate(_shapes)],
            expected=lambda subscripts, operands: np.einsum(subscripts, *operands),
            label=f"{_subscripts}-{_shapes}",
        )

# --- fused -------------------------------------------------------------------------------------------------------


def _softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    return np.exp(x) / np.sum(np.exp(x), axis=axis, keepdims=True)


def _log_softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    return np.log(_softmax(x, axis))


for _name, _expected in [("softmax", _softmax), ("log_softmax", _log_softmax)]:
    for _shape, _axis in [((2, 3), -1), ((2, 3), 0), ((2, 3, 4), 1), ((5,), -1), ((3, 1), -1), ((0, 3), -1)]:
        case(_name, normal(*_shape), _axis, expected=_expected, label=f"{_shape}-{_axis}")
    case(_name, normal(2, 3), expected=_expected, label="default")


def cross_entropy_by_hand(
    logits: np.ndarray,
    labels: Any,
    *,
    mask: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    total: float | None = None,
) -> np.ndarray:
    """Row by row, in Python."""
    labels = np.asarray(labels)
    losses, n = np.zeros(labels.shape, logits.dtype), 0
    counts = np.ones(labels.shape, bool) if mask is None else np.broadcast_to(mask, labels.shape)
    for at in np.ndindex(labels.shape):
        if not counts[at] or labels[at] == ignore_index:
            continue
        n += 1
        target = np.full(logits.shape[-1], label_smoothing / logits.shape[-1])
        target[labels[at]] += 1 - label_smoothing
        losses[at] = -np.sum(target * _log_softmax(logits[at]))
    if reduction == "none":
        return losses
    return losses.sum() / logits.dtype.type(1 if reduction == "sum" else total or n or 1)


for _shape, _options in [
    ((4, 3), {}),
    ((2, 3, 5), {"reduction": "sum"}),
    ((2, 3, 5), {"reduction": "none", "label_smoothing": 0.2}),
    ((4, 3), {"ignore_index": 1}),
    ((4, 3), {"ignore_index": 1, "label_smoothing": 0.3}),
    ((2, 3, 5), {"mask": booleans(2, 3)}),
    ((2, 3, 5), {"mask": booleans(2, 1, seed=3), "label_smoothing": 0.1, "total": 11}),
    ((2, 3, 5), {"mask": np.zeros((2, 3), bool)}),
    ((3,), {}),
    ((0, 3), {}),
    ((2, 0, 3), {"reduction": "none"}),
    ((3, 1), {}),
]:
    case(
        "cross_entropy",
        normal(*_shape),
        integers(_shape[-1], *_shape[:-1]),
        expected=cross_entropy_by_hand,
        label=f"{_shape}-{'-'.join(_options)}",
        **_options,
    )


def _linear(x: np.ndarray, weight: np.ndarray, bias: Any = None, activation: Any = None) -> np.ndarray:
    y = np.einsum("...i,io->...o", x, weight)
    y = y if bias is None else y + bias
    return y if activation is None else y.clip(0)


for _shape in [(2, 3), (3,), (2, 4, 3), (0, 3), (2, 0, 3), (2, 0)]:
    case("linear", normal(*_shape), normal(_shape[-1], 4, seed=1), normal(4, seed=2), expected=_linear)
case("linear", normal(2, 3), normal(3, 1, seed=1), expected=_linear)
case("linear", normal(2, 4, 3), normal(3, 5, seed=1), normal(5, seed=2), "relu", expected=_linear, label="relu")


def _layer_norm(x: np.ndarray, weight: Any = None, bias: Any = None, *, eps: float = 1e-5) -> np.ndarray:
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + x.dtype.type(eps))
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


for _shape in [(2, 3), (4,), (2, 3, 5), (0, 3), (2, 1)]:
    case("layer_norm", normal(*_shape), normal(_shape[-1], seed=1), normal(_shape[-1], seed=2), expected=_layer_norm)
case("layer_norm", normal(2, 3), expected=_layer_norm)
case("layer_norm", normal(2, 3), None, normal(3, seed=1), expected=_layer_norm, eps=0.1, label="bias-only")
case("layer_norm", normal(2, 3), normal(3, seed=1), expected=_layer_norm, eps=0.1, label="weight-only")


def attention_by_hand(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray | None,
    *,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
) -> np.ndarray:
    """One query at a time, over the keys that it may look at; without v the weights."""
    scores_shape = (*np.broadcast_shapes(q.shape[:-2], k.shape[:-2]), q.shape[-2], k.shape[-2])
    mask = np.broadcast_to(True if mask is None else mask, scores_shape)
    bias = np.broadcast_to(0.0 if bias is None else bias, scores_shape).astype(q.dtype)
    weights = np.zeros(scores_shape, q.dtype)
    q = np.broadcast_to(q, (*scores_shape[:-2], *q.shape[-2:]))
    k = np.broadcast_to(k, (*scores_shape[:-2], *k.shape[-2:]))
    for *batch, i in np.ndindex(scores_shape[:-1]):
        keys = [j for j in range(scores_shape[-1]) if mask[(*batch, i, j)]]
        if keys:
            scores = [q[(*batch, i)] @ k[(*batch, j)] for j in keys]
            scores = np.array(scores) * q.dtype.type(q.shape[-1] ** -0.5 if scale is None else scale)
            weights[(*batch, i, keys)] = _softmax(scores + bias[(*batch, i, keys)])
    return weights if v is None else np.einsum("...qk,...kv->...qv", weights, v)


def _attention_weights(q: np.ndarray, k: np.ndarray, **options: Any) -> np.ndarray:
    return attention_by_hand(q, k, None, **options)


ATTENTIONS: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
    ("plain", [(3, 2), (4, 2), (4, 5)], {}),
    ("batch-unscaled", [(2, 3, 2), (2, 4, 2), (2, 4, 3)], {"scale": 1.0}),
    ("heads-masked", [(2, 2, 3, 2), (2, 2, 4, 2), (2, 2, 4, 3)], {"mask": booleans(2, 1, 3, 4)}),
    (
        "dead-row-and-key",
        [(3, 2), (4, 2), (4, 3)],
        {"mask": np.array([[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 1]], bool)},
    ),
    ("all-masked", [(2, 3, 2), (2, 4, 2), (2, 4, 3)], {"mask": np.zeros((3, 4), bool)}),
    ("bias", [(2, 3, 2), (2, 4, 2), (2, 4, 3)], {"bias": normal(2, 3, 4, seed=5)}),
    (
        "bias-broadcast",
        [(2, 2, 3, 2), (2, 2, 4, 2), (2, 2, 4, 3)],
        {"bias": normal(2, 1, 4, seed=5), "mask": booleans(3, 4, seed=2)},
    ),
    ("shared-keys", [(2, 3, 2), (4, 2), (4, 3)], {"mask": booleans(2, 3, 4, seed=1)}),
    ("shared-query", [(1, 3, 2), (2, 4, 2), (2, 4, 3)], {}),
    ("empty-batch", [(0, 3, 2), (0, 4, 2), (0, 4, 3)], {"mask": np.ones((3, 4), bool)}),
    ("no-keys", [(2, 3, 2), (2, 0, 2), (2, 0, 3)], {}),
    ("no-queries", [(2, 0, 2), (2, 4, 2), (2, 4, 3)], {}),
    ("single", [(1, 1), (1, 1), (1, 1)], {}),
]
for _label, _shapes, _options in ATTENTIONS:
    _q, _k, _v = (normal(*s, seed=i) for i, s in enumerate(_shapes))
    case("attention", _q, _k, _v, expected=attention_by_hand, label=_label, **_options)
    case("attention_weights", _q, _k, expected=_attention_weights, label=_label, **_options)


def self_attention_by_hand(
    x: np.ndarray, wq: np.ndarray, wk: np.ndarray, wv: np.ndarray, *, heads: int = 1, **options: Any
) -> np.ndarray:
    """One head at a time, each with its own columns of the weights."""
    columns = [np.split(w, heads, axis=1) for w in (wq, wk, wv)]
    parts = [[np.einsum("...ni,io->...no", x, w) for w in ws] for ws in columns]
    q, k, v = (np.stack(p, axis=-3) for p in parts)
    y = attention_by_hand(q, k, v, **options)
    return np.concatenate([y[..., i, :, :] for i in range(heads)], axis=-1)


SELF_ATTENTIONS: list[tuple[str, tuple[int, ...], tuple[int, int, int], dict[str, Any]]] = [
    ("one-head", (3, 2), (1, 2, 3), {}),
    ("heads", (2, 3, 4), (2, 2, 1), {"heads": 2}),
    ("mask-bias", (2, 3, 3), (2, 1, 2), {"heads": 2, "mask": booleans(2, 1, 3, 3), "bias": normal(2, 3, 3, seed=5)}),
    ("bias-of-each", (2, 3, 2), (2, 1, 1), {"heads": 2, "bias": normal(2, 2, 3, 3, seed=6)}),
    ("unscaled", (2, 1, 4, 2), (3, 2, 2), {"heads": 3, "scale": 1.0}),
    ("dead-row", (3, 2), (1, 2, 2), {"mask": np.array([[1, 1, 0], [0, 0, 0], [1, 0, 0]], bool)}),
    ("empty-batch", (0, 3, 2), (2, 2, 2), {"heads": 2}),
    ("no-vectors", (2, 0, 2), (2, 2, 2), {"heads": 2}),
    # Vectors enough for the weights of queries and keys to be multiplied first, where a test lets that be done at once.
    ("folded", (2, 3, 2), (1, 2, 3), {}),
    ("folded-wide-keys", (1, 2, 4, 3), (1, 4, 1), {"bias": normal(1, 1, 4, seed=4), "scale": 0.7}),
    ("folded-dead-row", (5, 2), (1, 2, 2), {"mask": booleans(5, 5) & np.array([1, 0, 1, 1, 1], bool)[:, None]}),
    ("folded-one-number", (3, 1), (1, 1, 1), {}),
]
for _label, _shape, (_heads, _key_dim, _value_dim), _options in SELF_ATTENTIONS:
    _widths = (_heads * _key_dim, _heads * _key_dim, _heads * _value_dim)
    _wq, _wk, _wv = (normal(_shape[-1], width, seed=i) for i, width in enumerate(_widths, 1))
    case("self_attention", normal(*_shape), _wq, _wk, _wv, expected=self_attention_by_hand, label=_label, **_options)
