"""Cases of inverses, determinants, decompositions and norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from cases import normal

from minigrad.check.cases import Case

CASES: list[Case] = []


def case(op: str, *args: Any, expected: Callable[..., Any] | None = None, label: str = "", **kwargs: Any) -> None:
    """Register a case; without `expected` it is NumPy's function of the same name. Inverses lose some digits."""
    CASES.append(Case(op, args, kwargs, expected or getattr(np.linalg, op), label, tolerance=30.0))


def matrix(*shape: int, seed: int = 0) -> np.ndarray:
    """Matrices (..., m, n) whose singular values lie between 0.7 and 2, no two close together."""
    k = min(shape[-2:])
    u, _, vh = np.linalg.svd(np.random.default_rng([seed, *shape]).standard_normal(shape), full_matrices=False)
    return np.asarray((u * np.linspace(2, 0.7, k)) @ vh) if k else np.zeros(shape)


def positive_definite(*shape: int, seed: int = 0) -> np.ndarray:
    """Symmetric matrices with eigenvalues between 0.5 and 4."""
    a = matrix(*shape, seed=seed)
    return np.asarray(a @ np.swapaxes(a, -1, -2))


SQUARES: list[tuple[int, ...]] = [(3, 3), (2, 3, 3), (1, 1), (2, 1, 2, 2), (0, 0), (0, 2, 2), (4, 4)]


def _cofactors(a: np.ndarray) -> np.ndarray:
    """By definition."""
    n = a.shape[-1]
    y = np.zeros_like(a)
    for i, j in np.ndindex(n, n):
        minor = np.delete(np.delete(a, i, -2), j, -1)
        y[..., i, j] = (-1) ** (i + j) * np.linalg.det(minor)
    return y


for _shape in SQUARES:
    for _name in ["inv", "det"]:
        case(_name, matrix(*_shape))
    case("_cofactors", matrix(*_shape), expected=_cofactors)
    for _name in ["slogdet", "_slogdet"]:
        case(_name, matrix(*_shape), expected=lambda a: tuple(np.linalg.slogdet(a)))
    case("cholesky", positive_definite(*_shape))
    case("cholesky", positive_definite(*_shape), upper=True, label=f"{_shape}-upper")
    for _name in ["eigh", "_eigh"]:
        case(_name, positive_definite(*_shape), expected=lambda a: tuple(np.linalg.eigh(a)))
    case("eigvalsh", positive_definite(*_shape))
for _name in ["eigh", "_eigh"]:
    case(_name, matrix(3, 3), "U", expected=lambda a, UPLO: tuple(np.linalg.eigh(a, UPLO)), label="upper-of-any")
    case(_name, matrix(3, 3), "L", expected=lambda a, UPLO: tuple(np.linalg.eigh(a, UPLO)), label="lower-of-any")
case("eigvalsh", matrix(2, 3, 3), UPLO="U", label="upper-of-any")
case("cholesky", np.tril(positive_definite(3, 3)), label="lower-alone")
case("det", matrix(3, 3)[[0, 1, 1]], label="singular")


for _a, _b in [
    ((3, 3), (3,)),
    ((3, 3), (3, 2)),
    ((2, 3, 3), (3,)),
    ((2, 3, 3), (3, 2)),
    ((3, 3), (2, 3, 1)),
    ((2, 1, 3, 3), (4, 3, 2)),
    ((3, 3), (3, 3)),
    ((0, 0), (0,)),
    ((0, 2, 2), (2, 1)),
    ((2, 2), (2, 0)),
]:
    case("solve", matrix(*_a), normal(*_b, seed=1))
case("tensorsolve", matrix(6, 6).reshape(2, 3, 6), normal(2, 3))
case("tensorsolve", matrix(6, 6).reshape(6, 3, 2), normal(6), label="1-D")
case("tensorsolve", matrix(6, 6).reshape(2, 6, 3), normal(2, 3), axes=(1,), label="axes")
case("tensorinv", matrix(6, 6).reshape(2, 3, 6))
case("tensorinv", matrix(6, 6).reshape(6, 3, 2), ind=1, label="ind")
for _n in (-3, -1, 0, 1, 2, 3, 6):
    case("matrix_power", matrix(3, 3), _n, label=str(_n))
    case("matrix_power", matrix(2, 2, 2), _n, label=f"stack-{_n}")
for _shape in [*SQUARES, (3, 2), (2, 4), (2, 2, 3), (0, 3), (3, 0)]:
    case("pinv", matrix(*_shape))
case("pinv", matrix(3, 2), 0.01, label="rcond")

for _shape in [*SQUARES, (4, 2), (2, 4), (2, 3, 2), (2, 2, 3), (3, 1), (1, 3), (0, 3), (3, 0)]:
    for _name in ["qr", "_qr"]:
        case(_name, matrix(*_shape), expected=lambda a: tuple(np.linalg.qr(a)))
    for _name in ["svd", "_svd"]:
        _options = {"full_matrices": False} if _name == "svd" else {}
        case(_name, matrix(*_shape), expected=lambda a, **_: tuple(np.linalg.svd(a, full_matrices=False)), **_options)
    case("svdvals", matrix(*_shape))
case("qr", matrix(3, 2), "r", label="r-alone")
case("qr", matrix(2, 3), mode="complete", expected=lambda a, mode: tuple(np.linalg.qr(a, mode)), label="complete")
case("svd", matrix(3, 3), expected=lambda a: tuple(np.linalg.svd(a)), label="full")
case("svd", matrix(3, 2), compute_uv=False, label="values-alone")

# --- norms -------------------------------------------------------------------------------------------------------

for _shape in [(5,), (2, 3), (2, 3, 2), (), (0,), (2, 0)]:
    for _keepdims in (False, True):
        case("norm", normal(*_shape), keepdims=_keepdims, label=f"{_shape}-{'kept' if _keepdims else 'dropped'}")
for _ord in (None, 2, 1, 0, np.inf, -np.inf, -1, -2, 3, 2.5, 0.5, -0.5):
    case("norm", normal(5), _ord, label=f"vector-{_ord}")
    for _axis in (0, -2, (2,)):
        case("norm", normal(2, 3, 2), _ord, _axis, label=f"vectors-{_ord}-{_axis}")
    case("norm", normal(2, 3), _ord, 1, True, label=f"vectors-{_ord}-kept")
    case("vector_norm", normal(2, 3, 2), ord=_ord or 0, axis=(0, -1), keepdims=True, label=f"{_ord}-axes")
    case("vector_norm", normal(2, 3), ord=_ord or 0, label=f"{_ord}-all")
case("vector_norm", normal(2, 3), axis=0)
case("vector_norm", normal(2, 0), axis=-1)
for _ord in (None, "fro", "nuc", np.inf, -np.inf, 1, -1, 2, -2):
    case("norm", matrix(3, 2), _ord, label=f"matrix-{_ord}")
    for _axis in [(0, 1), (-1, 0), (2, 1)]:
        _a = np.moveaxis(matrix(2, 3, 2), (-2, -1), _axis)
        for _keepdims in (False, True):
            case("norm", _a, _ord, _axis, _keepdims, label=f"matrices-{_ord}-{_axis}-{_keepdims}")
    case("matrix_norm", matrix(2, 3, 2), ord=_ord or "fro", keepdims=True, label=f"{_ord}-kept")
case("matrix_norm", matrix(2, 3, 2))
for _p in (None, 2, -2, "fro", "nuc", 1, -1, np.inf, -np.inf):
    case("cond", matrix(3, 3), _p, label=f"{_p}")
    case("cond", matrix(2, 2, 2), p=_p, label=f"{_p}-stack")
case("cond", matrix(3, 2))
