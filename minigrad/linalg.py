"""mg.linalg: numpy.linalg's functions of tensors.

outer, cross, diagonal and trace are numpy.linalg's, which differ from numpy's of the same name: they take vectors, and
matrices in the last two axes.
"""

from __future__ import annotations

import numpy as np

from minigrad.engine import NUMPY_OPS, Array
from minigrad.ops.decompositions import (
    EighResult,
    QRResult,
    SlogdetResult,
    SVDResult,
    cholesky,
    det,
    eigh,
    eigvalsh,
    inv,
    matrix_power,
    pinv,
    qr,
    slogdet,
    solve,
    svd,
    svdvals,
    tensorinv,
    tensorsolve,
)
from minigrad.ops.indexing import getitem
from minigrad.ops.linalg import cross as _cross
from minigrad.ops.linalg import matmul, matrix_transpose, multi_dot, tensordot, vecdot
from minigrad.ops.linalg import outer as _outer
from minigrad.ops.norms import cond, matrix_norm, norm, vector_norm
from minigrad.ops.reductions import sum as _sum
from minigrad.tensor import Tensor


def outer(x1: Array, x2: Array) -> Tensor:
    """The products of all elements of two vectors, (m,) and (n,): (m, n). ValueError for other than 1-D arrays."""
    if np.ndim(x1) != 1 or np.ndim(x2) != 1:
        raise ValueError(f"linalg.outer: needs vectors, not shapes {np.shape(x1)} and {np.shape(x2)}")
    return _outer(x1, x2)


def cross(x1: Array, x2: Array, *, axis: int = -1) -> Tensor:
    """The vector product of 3-vectors along an axis, the others broadcast. ValueError for other lengths."""
    if np.shape(x1)[axis] != 3 or np.shape(x2)[axis] != 3:
        raise ValueError(f"linalg.cross: needs 3-vectors, not shapes {np.shape(x1)} and {np.shape(x2)} along {axis}")
    return _cross(x1, x2, axis=axis)


def diagonal(x: Array, *, offset: int = 0) -> Tensor:
    """The diagonals of the matrices in the last two axes; offset: how far to the right of the main one."""
    m, n = np.shape(x)[-2:]
    rows = np.arange(max(0, -offset), max(0, -offset, min(m, n - offset)))
    return getitem(x, (..., rows, rows + offset))


def trace(x: Array, *, offset: int = 0) -> Tensor:
    """The sums of the diagonals of the matrices in the last two axes; offset: as in `diagonal`."""
    return _sum(diagonal(x, offset=offset), -1)


NUMPY_OPS.update({np.linalg.outer: outer, np.linalg.cross: cross, np.linalg.diagonal: diagonal, np.linalg.trace: trace})

__all__ = [
    "EighResult",
    "QRResult",
    "SVDResult",
    "SlogdetResult",
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "trace",
    "vecdot",
    "vector_norm",
]
