"""NumPy functions whose gradient is zero or that have none: on tensors they return plain values."""

from __future__ import annotations

import numpy as np

from minigrad.engine import NUMPY_CONSTANTS

NUMPY_CONSTANTS.update(
    # shapes and kinds
    {
        np.shape,
        np.ndim,
        np.size,
        np.iscomplexobj,
        np.isrealobj,
        np.result_type,
        np.can_cast,
        np.zeros_like,
        np.ones_like,
    }
    | {np.empty_like, np.full_like, np.may_share_memory, np.shares_memory}
    # comparisons and tests
    | {np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal, np.isnan, np.isinf, np.isfinite}
    | {
        np.isclose,
        np.allclose,
        np.array_equal,
        np.signbit,
        np.any,
        np.all,
        np.count_nonzero,
        np.nonzero,
        np.flatnonzero,
    }
    | {np.logical_and, np.logical_or, np.logical_not, np.logical_xor, np.argwhere, np.iscomplex, np.isreal}
    # piecewise constant
    | {np.sign, np.floor, np.ceil, np.rint, np.trunc, np.round, np.floor_divide}
    # positions
    | {np.argmax, np.argmin, np.argsort, np.searchsorted}
    # printing
    | {np.array2string, np.array_repr, np.array_str}
)
