"""NumPy functions whose gradient is zero or that have none: on tensors they return plain values."""

from __future__ import annotations

import numpy as np

from minigrad.engine import NUMPY_CONSTANTS

# By what they return; the page of ops in the documentation shows these groups.
GROUPS: dict[str, str] = {
    "shapes, kinds and dtypes": """
        shape ndim size iscomplexobj isrealobj result_type can_cast min_scalar_type common_type may_share_memory
        shares_memory einsum_path
    """,
    "new arrays like a given one": "zeros_like ones_like empty_like",
    "comparisons and tests": """
        equal not_equal less less_equal greater greater_equal isclose allclose array_equal array_equiv isnan isinf
        isfinite isneginf isposinf isnat iscomplex isreal signbit any all logical_and logical_or logical_not logical_xor
    """,
    "piecewise constant": """
        sign floor ceil rint trunc fix round around floor_divide heaviside nextafter spacing
    """,
    "positions": """
        argmax argmin nanargmax nanargmin argsort argpartition lexsort searchsorted digitize nonzero flatnonzero
        argwhere ix_ unravel_index ravel_multi_index diag_indices_from tril_indices_from triu_indices_from
    """,
    "counts and sets": """
        count_nonzero histogram histogram2d histogramdd histogram_bin_edges unique unique_all unique_counts
        unique_inverse unique_values isin intersect1d union1d setdiff1d setxor1d
    """,
    "integers": """
        gcd lcm bitwise_and bitwise_or bitwise_xor bitwise_count invert left_shift right_shift packbits unpackbits
    """,
    "text and files": "array2string array_repr array_str save savetxt savez savez_compressed",
}

# The arguments through which a derivative flows all the same, with their positions: tracked tensors there are refused.
FLOWS: dict[str, dict[str, int]] = {
    "sign": {"x": 0},  # of complex numbers, where it is x / |x|
    "nextafter": {"x1": 0},
    "heaviside": {"x2": 1},  # its value where x1 is 0
    "histogram": {"bins": 1, "range": 2, "weights": 4},
    "histogram2d": {"bins": 2, "range": 3, "weights": 5},
    "histogramdd": {"bins": 1, "range": 2, "weights": 4},
    "histogram_bin_edges": {"a": 0, "bins": 1, "range": 2},
    "ix_": {"args": 0},
    "intersect1d": {"ar1": 0, "ar2": 1},
    "setdiff1d": {"ar1": 0},
    "setxor1d": {"ar1": 0, "ar2": 1},
    "union1d": {"ar1": 0, "ar2": 1},
    "unique": {"ar": 0},
    "unique_all": {"x": 0},
    "unique_counts": {"x": 0},
    "unique_inverse": {"x": 0},
    "unique_values": {"x": 0},
}

NUMPY_CONSTANTS.update(
    (getattr(np, name), FLOWS.get(name, {})) for names in GROUPS.values() for name in names.split() if hasattr(np, name)
)
