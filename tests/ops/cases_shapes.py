"""Cases of the ops that join, split, order, pick, repeat and pad."""

from __future__ import annotations

from typing import Any

import numpy as np
from cases import case, integers, normal

# --- shapes ------------------------------------------------------------------------------------------------------

for _shape in [(), (3,), (2, 3), (2, 1, 2), (1, 2, 1, 2), (0,), (2, 0)]:
    for _name in ["ravel", "atleast_1d", "atleast_2d", "atleast_3d"]:
        case(_name, normal(*_shape))
for _name in ["atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays"]:
    case(_name, normal(), normal(3, seed=1), normal(2, 3, seed=2), label="several")
case("broadcast_arrays", normal(3, 1), normal(1, 2), 1.5, label="constant")
case("broadcast_arrays", normal(0, 1), normal(3))
case("rollaxis", normal(2, 3, 4), 2)
case("rollaxis", normal(2, 3, 4), 0, 3, label="to-end")
case("rollaxis", normal(2, 3, 4), -1, -2, label="negative")
case("roll", normal(5), 2)
case("roll", normal(2, 3), -1, label="flattened")
case("roll", normal(2, 3), 1, axis=-1, label="axis")
case("roll", normal(2, 3), (1, -2), axis=(0, 1), label="axes")
case("roll", normal(2, 3), 1, axis=(0, 1), label="one-shift-two-axes")
case("roll", normal(0), 1)
for _k in (-1, 0, 1, 2, 5):
    case("rot90", normal(2, 3), _k, label=f"k-{_k}")
case("rot90", normal(2, 3, 4), axes=(1, 2), label="axes")
case("fliplr", normal(2, 3))
case("flipud", normal(2, 3))
case("flipud", normal(3))
for _indexing in ("xy", "ij"):
    for _sparse in (False, True):
        case(
            "meshgrid",
            normal(3),
            normal(2, seed=1),
            normal(4, seed=2),
            indexing=_indexing,
            sparse=_sparse,
            label=f"{_indexing}-{_sparse}",
        )
case("meshgrid", normal(3))
case("meshgrid", normal(3), normal(), label="scalar")
case("meshgrid", normal(0), normal(2))

# --- joined ------------------------------------------------------------------------------------------------------

for _name in ["hstack", "vstack", "dstack", "column_stack"]:
    case(_name, [normal(3), normal(3, seed=1)], label="1-D")
    case(_name, [normal(2, 3), normal(2, 3, seed=1)], label="2-D")
    case(_name, (normal(2, 3), np.zeros((2, 3), int)), label="constant")
for _name in ["hstack", "vstack", "dstack"]:
    case(_name, [normal(), normal(seed=1)], label="0-d")
    case(_name, [normal(2, 2, 3), normal(2, 2, 3, seed=1)], label="3-D")
case("column_stack", [normal(2), normal(2, 3)], label="mixed")

case("block", [normal(2), 1.0, normal(seed=1)], label="row")
case("block", [[normal(2, 2), normal(2, 1)], [normal(1, 2, seed=1), normal(1, 1)]], label="matrix")
case("block", [[normal(2)], [normal(2, seed=1)]], label="rows")
case("block", [[[normal(1, 2, 2)]], [[normal(2, 2, 2)]]], label="3-D")
case("block", normal(2, 3), label="no-list")
case("append", normal(2, 3), normal(2, seed=1), label="flattened")
case("append", normal(2, 3), normal(2, 1, seed=1), axis=1, label="axis")
case("append", normal(3), 2.0, label="scalar")
case("insert", normal(3), 1, normal(seed=1), label="scalar")
case("insert", normal(2, 3), [0, 2, 2], normal(3, seed=1), axis=1, label="columns")
case("insert", normal(2, 3), 1, normal(3, seed=1), axis=0, label="row")
case("insert", normal(2, 3), slice(0, 2), normal(2, seed=1), label="flattened")
case("insert", normal(2, 3), -1, normal(2, seed=1), axis=-1, label="negative")
case("delete", normal(2, 3), 1, label="flattened")
case("delete", normal(2, 3), [0, -1], axis=1, label="columns")
case("delete", normal(4), slice(None, None, 2), axis=0, label="slice")
case("delete", normal(3), np.array([True, False, True]), label="mask")

# --- split -------------------------------------------------------------------------------------------------------

case("array_split", normal(7), 3)
case("array_split", normal(2, 5), 3, axis=1, label="axis")
case("array_split", normal(2), 4, label="empty-parts")
case("array_split", normal(5), [1, 3], label="at-indices")
case("hsplit", normal(2, 4), 2)
case("hsplit", normal(4), [1], label="1-D")
case("vsplit", normal(4, 2), 2)
case("dsplit", normal(2, 1, 4), [1, 3])
case("dsplit", normal(2, 1, 4), 2, label="equal")


def _unstack(x: np.ndarray, axis: int = 0) -> tuple[np.ndarray, ...]:
    """(NumPy has it since 2.1.)"""
    return tuple(np.moveaxis(x, axis, 0))


case("unstack", normal(2, 3), expected=_unstack)
case("unstack", normal(2, 3), axis=-1, expected=_unstack, label="axis")

# --- in order ----------------------------------------------------------------------------------------------------

for _axis in (None, 0, 1, -1):
    case("sort", normal(3, 4), _axis, label=str(_axis))
case("sort", normal(3), kind="heapsort", label="kind")
case("sort", normal(3), stable=False, label="stable")
case("sort", normal(0, 3))


def _partition(x: np.ndarray, kth: Any, axis: int | None = -1, kind: str = "introselect") -> np.ndarray:
    return np.take_along_axis(x, np.argpartition(x, kth, axis, kind), axis)


case("partition", normal(7), 3, expected=_partition)
case("partition", normal(3, 5), (1, 3), axis=-1, expected=_partition, label="several")
case("partition", normal(5, 3), 2, 0, expected=_partition, label="axis")
case("partition", normal(2, 3), 2, None, expected=_partition, label="flattened")

# --- picked ------------------------------------------------------------------------------------------------------

case("take", normal(2, 3), 4)
case("take", normal(2, 3), [[0, 5], [5, -1]], label="repeats")
case("take", normal(2, 3), np.array([2, 0, 2]), axis=1, label="axis")
case("take", normal(2, 3, 4), integers(3, 2, 2), -2, label="2-D-indices")
case("take", normal(2, 3), [-7, 9], mode="wrap", label="wrap")
case("take", normal(2, 3), [-7, 9], axis=0, mode="clip", label="clip")
case("take", normal(3), np.array([], int), label="none")
case("compress", [True, False, True], normal(3, 2), axis=0, label="rows")
case("compress", [False, True], normal(2, 3), axis=1, label="short")
case("compress", [True, False, True, True], normal(2, 3), label="flattened")
case("extract", np.array([[True, False, True], [False, True, False]]), normal(2, 3))
_conditions = [np.array([True, False, False]), np.array([True, True, False])]
case("select", _conditions, [normal(3), normal(3, seed=1)], default=0.5, label="constant-default")
case("select", _conditions, [normal(3), normal(seed=1)], default=normal(2, 1, seed=2), label="default")
case("select", [np.array([[True], [False]])], [normal(3)], 2.0, label="broadcast")
case("choose", np.array([2, 0, 1, 1]), [normal(4), normal(seed=1), normal(4, seed=2)])
case("choose", [[0], [1]], normal(2, 3), label="array")
case("choose", [5, -1], [normal(2), normal(2, seed=1)], mode="wrap", label="wrap")
case("choose", [5, -1], [normal(2), normal(2, seed=1)], mode="clip", label="clip")

# --- diagonals ---------------------------------------------------------------------------------------------------

for _name in ["diagonal", "trace"]:
    for _shape, _offset in [((3, 3), 0), ((3, 4), 1), ((4, 3), -2), ((2, 3), 5), ((2, 3, 3), 0), ((0, 3), 0)]:
        case(_name, normal(*_shape), _offset, label=f"{_shape}-{_offset}")
    case(_name, normal(2, 3, 4), axis1=2, axis2=0, label="axes")
    case(_name, normal(2, 3, 4), -1, -1, -2, label="negative-axes")
for _k in (-2, 0, 1):
    case("diag", normal(3), _k, label=f"matrix-{_k}")
    case("diag", normal(3, 4), _k, label=f"diagonal-{_k}")
case("diag", normal(0))
case("diagflat", normal(2, 2), 1)
case("diagflat", normal())

# --- repeated ----------------------------------------------------------------------------------------------------

case("repeat", normal(2, 3), 2, label="flattened")
case("repeat", normal(2, 3), 3, axis=0, label="axis")
case("repeat", normal(2, 3), 2, axis=-1, label="last")
case("repeat", normal(2, 3), [2, 0, 1], axis=1, label="array")
case("repeat", normal(3), np.array([2]), label="array-of-one")
case("repeat", normal(), 3)
case("repeat", normal(2, 3), 0, axis=1, label="none")
case("repeat", normal(0, 2), 2, axis=0)
for _reps in (2, (2,), (2, 1), (2, 1, 3), (0, 2), ()):
    case("tile", normal(2, 3), _reps, label=str(_reps))
case("tile", normal(), (2, 2))
case("tile", normal(3), (2, 2))

# --- padded ------------------------------------------------------------------------------------------------------

for _mode in ["constant", "edge", "reflect", "symmetric", "wrap"]:
    case("pad", normal(4), 2, _mode, label=f"{_mode}-1-D")
    case("pad", normal(3, 4), ((1, 2), (0, 3)), mode=_mode, label=f"{_mode}-2-D")
    case("pad", normal(2, 3), (4, 7), _mode, label=f"{_mode}-long")
    case("pad", normal(2, 3), 0, _mode, label=f"{_mode}-none")
case("pad", normal(2, 3), 1, constant_values=((1.5, 2.5), (3, 4)), label="values")
case("pad", normal(2, 3), {-1: (1, 2)}, expected=lambda x, _: np.pad(x, ((0, 0), (1, 2))), label="by-axis")
case("pad", normal(0, 2), 1)

# --- counted -----------------------------------------------------------------------------------------------------

case("full_like", np.zeros((2, 3)), normal())
case("full_like", np.zeros((2, 3)), normal(3), label="broadcast")
case("full_like", np.zeros(2), normal(1, 2), shape=(3, 2), label="shape")
case("bincount", np.array([0, 2, 2, 5]), normal(4))
case("bincount", np.array([1, 1]), weights=normal(2), minlength=4, label="minlength")
