"""Writes docs/ops.md: what of NumPy's namespace is differentiable, what is constant, and what is not there, and why.

    python docs/make_ops.py

Everything callable in numpy, numpy.linalg and numpy.fft is in exactly one group, or this fails and names it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import minigrad
from minigrad.engine import NUMPY_CONSTANTS, NUMPY_OPS, OPS, load_ops
from minigrad.ops.constants import FLOWS, GROUPS

PAGE = Path(__file__).with_name("ops.md")
NAMESPACES = {"": np, "linalg.": np.linalg, "fft.": np.fft}

# Where the families' ops are declared, in the order of the page.
FAMILIES = {
    "Elementwise": "elementwise",
    "Trigonometric and hyperbolic": "trigonometric",
    "Reductions": "reductions",
    "Statistics": "statistics",
    "Running sums and differences": "cumulative",
    "Shapes": "shapes",
    "Joining and splitting": "joining",
    "Ordering, picking, repeating, padding": "selecting",
    "Indexing": "indexing",
    "Products": "linalg",
    "Norms": "norms",
    "Decompositions and solving": "decompositions",
    "Convolution": "convolution",
    "Fourier transforms": "fourier",
    "Complex numbers": "complexes",
    "Networks": "fused",
}

NOT_THERE = {
    "Creation of arrays: there is nothing to differentiate; `mg.tensor(np.ones(3))` makes a tensor of any of them": """
        arange array asanyarray asarray asarray_chkfinite ascontiguousarray asfortranarray asmatrix bartlett blackman
        bmat diag_indices empty eye frombuffer from_dlpack fromfunction fromiter fromstring full hamming hanning
        identity indices kaiser mask_indices ones require tri tril_indices triu_indices zeros fft.fftfreq fft.rfftfreq
    """,
    "Creation from end points: write it as `start + (stop - start) * np.linspace(0, 1, n)`": """
        logspace geomspace
    """,
    "In place: a tensor's value does not change; use `mg.index_put`, `mg.index_add`, `mg.where`": """
        copyto fill_diagonal place put put_along_axis putmask resize
    """,
    "Python functions applied piece by piece: use operations on whole arrays, `mg.where` or `mg.select`": """
        apply_along_axis apply_over_axes frompyfunc piecewise
    """,
    "Two results, one of them constant: use `np.floor_divide`, `mg.remainder`, `np.trunc`": "divmod modf frexp",
    "Results whose shape or kind depends on the values": "trim_zeros real_if_close sort_complex",
    "Derivative not in NumPy (it needs a further Bessel function)": "i0",
    "Complex results for real input: only the symmetric eigenproblem (`linalg.eigh`) is real": """
        linalg.eig linalg.eigvals roots
    """,
    "Not yet: compose it of what is there": """
        linalg.lstsq poly polyadd polyder polydiv polyfit polyint polymul polysub vander
    """,
    "Dates, and numbers as text": """
        busday_count busday_offset is_busday datetime_as_string datetime_data base_repr binary_repr
        format_float_positional format_float_scientific
    """,
    "Files": "fromfile fromregex genfromtxt load loadtxt",
    "Dtypes, shapes without arrays, and Python objects": """
        broadcast_shapes isdtype isfortran isscalar issubdtype iterable mintypecode promote_types typename
    """,
    "NumPy's own settings and tools": """
        get_include get_printoptions getbufsize geterr geterrcall info nested_iters printoptions set_printoptions
        setbufsize seterr seterrcall show_config show_runtime test linalg.test fft.test
    """,
    "Older names that NumPy warns of": "in1d row_stack trapz",
}

INTRODUCTION = """
NumPy's functions as of NumPy {numpy}. What is listed as differentiable is called as `mg.name(t)` or as `np.name(t)`,
with NumPy's arguments; `out=` raises, and so does another argument that makes no sense for a tensor, unless it says
what its default says.
""".strip()
ELSEWHERE = [name for names in NOT_THERE.values() for name in names.split()]


def callables() -> Iterator[tuple[str, Any]]:
    """Every function of the three namespaces, with its name from numpy on; classes and dtypes are left out."""
    for prefix, module in NAMESPACES.items():
        for name in sorted(dir(module)):
            function = getattr(module, name)
            if callable(function) and not name.startswith("_") and not isinstance(function, type):
                yield prefix + name, function


def misplaced() -> list[str]:
    """The functions that are in no group of this page, or in several."""
    return [
        name
        for name, function in callables()
        if (function in NUMPY_OPS) + (function in NUMPY_CONSTANTS) + ELSEWHERE.count(name) != 1
    ]


def constants() -> dict[str, list[str]]:
    """The constant functions by group; those of linear algebra are declared beside its ops."""
    groups = {group: names.split() for group, names in GROUPS.items()}
    listed = {name for names in groups.values() for name in names}
    others = [name for name, f in callables() if f in NUMPY_CONSTANTS and name not in listed and "." in name]
    return groups | {"linear algebra": others}


def page() -> str:
    parts = [
        "<!-- Generated by `python docs/make_ops.py` from the registry of ops: do not edit. -->",
        "# What is differentiable",
        INTRODUCTION.format(numpy=numpy_version()),
        "## Differentiable",
        *families(),
        "## Deliberately constant",
        "Their gradient is zero almost everywhere, or there is none. NumPy's functions give plain values for tensors. "
        "An argument through which a derivative would flow all the same is a constant, or TypeError: "
        + ", ".join(f"{code(arguments)} of {code([name])}" for name, arguments in FLOWS.items())
        + ". (`sign` is such a function of complex numbers alone.)",
        *[f"**{group[0].upper() + group[1:]}**: {code(names)}." for group, names in constants().items()],
        "## Not there",
        "On a tensor these raise TypeError, or are not about arrays at all. Classes and dtypes are left out.",
        *[f"**{reason}**: {code(present(names))}." for reason, names in NOT_THERE.items() if present(names)],
    ]
    return "\n\n".join(parts) + "\n"


def numpy_version() -> str:
    return ".".join(np.__version__.split(".")[:2])


def present(names: str) -> list[str]:
    known = dict(callables())
    return sorted(name for name in names.split() if name in known)


def code(names: list[str]) -> str:
    return " ".join(f"`{name}`" for name in names if "." in name or hasattr(np, name))


def families() -> Iterator[str]:
    found: dict[str, dict[int, list[str]]] = {file: {} for file in FAMILIES.values()}
    ops = {id(op): op for op in map(_declared, [*NUMPY_OPS.values(), *OPS.values()])}
    for name, function in callables():
        if function in NUMPY_OPS:
            op = _declared(NUMPY_OPS[function])
            found[_file(op)].setdefault(id(op), []).append(name)
    for name, op in OPS.items():
        if id(op) not in found[_file(op)] and hasattr(minigrad, name):
            found[_file(op)][id(op)] = [name]
    for title, file in FAMILIES.items():
        yield f"### {title}"
        yield "\n".join(sorted(line(ops[key], names) for key, names in found[file].items()))


def line(op: Any, names: list[str]) -> str:
    own_first = sorted(names, key=lambda name: (name != op.__name__, name))
    return f"- {', '.join(f'`{name}`' for name in own_first)}: {summary(op)}"


def _declared(op: Any) -> Any:
    """The op itself, where NumPy's call of it is adapted."""
    return getattr(op, "op", op)


def _file(op: Any) -> str:
    file = str(op.__module__).rsplit(".", 1)[-1]
    return file if file in FAMILIES.values() else "elementwise"


def summary(op: Any) -> str:
    return str(op.__doc__).strip().partition("\n")[0]


if __name__ == "__main__":
    load_ops()
    if wrong := misplaced():
        sys.exit(f"in no group, or in several: {', '.join(wrong)}")
    PAGE.write_text(page(), encoding="utf-8")
