"""Inverses, determinants, linear equations and decompositions of matrices, as numpy.linalg has them, in stacks too.

Matrices are in the last two axes. Singular matrices raise numpy.linalg.LinAlgError where NumPy does. Complex ones are a
TypeError, except for inv and solve.

cholesky and eigh read one triangle of their operand and take the other to mirror it. The gradient is that of the
function of the elements that are read: it lies in that triangle, an element beside the diagonal counting for its mirror
image too. Other libraries spread it evenly over both; (G + G^T) / 2 of the one is the other, and for a matrix that is
computed symmetric, like B @ B.T, they give B the same gradient.

Eigenvectors and singular vectors of a repeated eigenvalue or singular value, which are determined only up to rotation,
have an infinite or NaN gradient; the values themselves have a finite one.

Sources: Giles, An extended collection of matrix derivative results for forward and reverse mode algorithmic
differentiation (2008); Seeger, Hetzel, Dai, Lawrence, Auto-differentiating linear algebra (2017), arXiv:1710.08717;
Townsend, Differentiating the singular value decomposition (2016); Roberts and Roberts, QR and LQ decomposition matrix
backpropagation algorithms for square, wide, and deep matrices (2020), arXiv:2009.10071.
"""

from __future__ import annotations

import math
import operator
from typing import Any, Literal, NamedTuple

import numpy as np

from minigrad.engine import NUMPY_CONSTANTS, Array
from minigrad.op import derived, op
from minigrad.ops.elementwise import scale
from minigrad.ops.indexing import _scatter, getitem
from minigrad.ops.linalg import matmul
from minigrad.ops.reductions import exclusive_products
from minigrad.ops.shapes import moveaxis, reshape
from minigrad.tensor import Tensor, wrap

Triangle = Literal["L", "U", "l", "u"]

NUMPY_CONSTANTS[np.linalg.matrix_rank] = {}


def _t(x: Array) -> Array:
    return np.swapaxes(x, -1, -2)


def _real(a: Array) -> Array:
    if np.iscomplexobj(a):
        raise TypeError("this decomposition is of real matrices here, and this one is complex")
    return a


def _half_triangle(n: int, dtype: Any, upper: bool = False) -> Array:
    """Weights that keep a triangle and half of the diagonal."""
    lower = np.tril(np.ones((n, n), dtype)) - np.eye(n, dtype=dtype) / 2
    return lower.T if upper else lower


# --- inverses and equations --------------------------------------------------------------------------------------


@op
def inv(a: Array) -> Array:
    """The inverse matrix. (The gradient: Giles 2008, 2.2.3.)"""
    return np.linalg.inv(a)


inv.rule(a=lambda g, y: -(_t(y) @ g @ _t(y)))


@op
def solve(a: Array, b: Array) -> Array:
    """The x with a @ x = b. A 1-D b is one vector; any other b is matrices (..., n, k), broadcast against a.

    (The gradient: Giles 2008, 2.3.1.)

    >>> solve([[2.0, 0.0], [0.0, 4.0]], [1.0, 1.0])
    tensor([0.5 , 0.25])
    """
    return np.linalg.solve(a, b)


def _as_columns(x: Array, b_shape: tuple[int, ...]) -> Array:
    return x[..., None] if len(b_shape) == 1 else x


def _solve_rule_b(g: Array, a: Array, b_shape: tuple[int, ...]) -> Array:
    columns = np.linalg.solve(_t(a), _as_columns(g, b_shape))
    return columns[..., 0] if len(b_shape) == 1 else columns


def _solve_rule_a(g: Array, a: Array, b_shape: tuple[int, ...], y: Array) -> Array:
    return -(np.linalg.solve(_t(a), _as_columns(g, b_shape)) @ _t(_as_columns(y, b_shape)))


solve.rule(a=_solve_rule_a, b=_solve_rule_b)


@derived
def tensorsolve(a: Array, b: Array, axes: Any = None) -> Tensor:
    """The x with tensordot(a, x, x.ndim) = b; `axes` of a are moved to its end first."""
    if axes is not None:
        a = moveaxis(a, axes, range(-len(axes), 0))
    shape = np.shape(a)[np.ndim(b) :]
    if np.size(b) != math.prod(shape):
        raise np.linalg.LinAlgError(f"tensorsolve: {np.size(b)} equations for {math.prod(shape)} unknowns")
    return reshape(solve(reshape(a, (np.size(b), math.prod(shape))), reshape(b, (np.size(b),))), shape)


@derived
def tensorinv(a: Array, ind: int = 2) -> Tensor:
    """The inverse of the map x -> tensordot(a, x), whose results have a's first `ind` axes."""
    if ind <= 0:
        raise ValueError(f"tensorinv: ind is positive, not {ind}")
    rows, columns = np.shape(a)[:ind], np.shape(a)[ind:]
    return reshape(inv(reshape(a, (math.prod(rows), math.prod(columns)))), (*columns, *rows))


@derived
def matrix_power(a: Array, n: int) -> Tensor:
    """The product of n factors a: the identity for n = 0, of inverses for a negative n. TypeError unless n is whole."""
    n = operator.index(n)
    if np.ndim(a) < 2 or np.shape(a)[-1] != np.shape(a)[-2]:
        raise np.linalg.LinAlgError(f"matrix_power: needs square matrices, not shape {np.shape(a)}")
    if n == 0:
        dtype = np.result_type(a._array if isinstance(a, Tensor) else a)
        return wrap(np.broadcast_to(np.eye(np.shape(a)[-1], dtype=dtype), np.shape(a)).copy(), None)
    factor = inv(a) if n < 0 else getitem(a, ...)
    product = None
    for bit in reversed(f"{abs(n):b}"):  # the squares a, a^2, a^4, ... that the binary number calls for
        if bit == "1":
            product = factor if product is None else matmul(product, factor)
        factor = matmul(factor, factor)
    assert product is not None
    return product


@op
def pinv(a: Array, rcond: Array = None) -> Array:
    """The Moore-Penrose inverse; singular values up to rcond times the largest count as 0 (NumPy's default: 1e-15).

    The gradient is that of a matrix which keeps its rank (elsewhere pinv jumps): Golub and Pereyra, The differentiation
    of pseudo-inverses and nonlinear least squares problems whose variables separate (1973), theorem 4.3.
    """
    return np.linalg.pinv(_real(a), rcond)


def _pinv_rule(g: Array, a: Array, y: Array) -> Array:
    gt, yt = _t(g), _t(y)
    turned = y @ gt @ y
    left = gt @ y - a @ turned  # (I - A P) G^T P
    right = y @ gt - turned @ a  # P G^T (I - P A)
    return -(yt @ g @ yt) + left @ yt + yt @ right


pinv.rule(a=_pinv_rule)

# --- determinants ------------------------------------------------------------------------------------------------


@op
def det(a: Array) -> Array:
    """The determinant. Its gradient, the matrix of cofactors, is right for singular matrices too.

    A second derivative takes the cofactors of all n^2 minors: of large matrices prefer `slogdet`.

    >>> import minigrad as mg
    >>> mg.grad(det)(np.array([[1.0, 2.0], [2.0, 4.0]]))
    array([[ 4., -2.],
           [-2.,  1.]])
    """
    return np.linalg.det(_real(a))


@op
def _cofactors(a: Array) -> Array:
    """The determinants of the minors, with their signs; for a regular matrix det(a) inv(a)^T.

    Without division: from a = U S V^T, as an orthogonal matrix is its own cofactors, times its determinant.
    """
    if a.shape[-1] == 0:
        return np.zeros_like(a)
    u, s, vh = np.linalg.svd(a)
    sign = np.sign(np.linalg.det(u @ vh))
    return (u * (sign[..., None] * exclusive_products(s))[..., None, :]) @ vh


det.rule(a=lambda g, a: g[..., None, None] * _cofactors.apply(a))


def _minors(n: int) -> tuple[Array, Array]:
    """Index arrays (n, n, n - 1, n - 1) of the rows and the columns of every minor."""
    kept = np.array([[j for j in range(n) if j != i] for i in range(n)], int).reshape(n, n - 1)
    shape = (n, n, n - 1, n - 1)
    return np.broadcast_to(kept[:, None, :, None], shape), np.broadcast_to(kept[None, :, None, :], shape)


def _cofactors_rule(g: Array, a: Array) -> Array:
    n = a.shape[-1]
    if n < 2:
        return np.where(False, g, 0)  # the cofactor of a 1 x 1 matrix is 1
    index = (..., *_minors(n))
    signs = ((-1) ** np.add.outer(range(n), range(n))).astype(a.dtype)
    back = (g * signs)[..., None, None] * _cofactors.apply(a[index])
    return _scatter.apply(back, index, a.shape)


_cofactors.rule(a=_cofactors_rule)


class SlogdetResult(NamedTuple):
    """What slogdet returns; logabsdet carries the gradient."""

    sign: Tensor
    logabsdet: Tensor


@op
def _slogdet(a: Array) -> Array:
    """(sign, log |det a|)."""
    return tuple(np.linalg.slogdet(_real(a)))


def _slogdet_rule(g: Array, a: Array, y: Array) -> Array:
    """inv(a)^T (Giles 2008, 2.2.4), and infinite for a singular matrix."""
    singular = (y[1] == -np.inf)[..., None, None]
    regular = np.where(singular, np.eye(a.shape[-1], dtype=a.dtype), a)
    return scale.apply(g[1][..., None, None], np.where(singular, np.inf, _t(np.linalg.inv(regular))))


_slogdet.rule(a=_slogdet_rule)


@derived
def slogdet(a: Array) -> SlogdetResult:
    """(sign, logabsdet): det(a) = sign * e^logabsdet, without overflow; a singular matrix gives (0, -inf)."""
    return SlogdetResult(*_slogdet(a))


# --- cholesky and eigh -------------------------------------------------------------------------------------------


@op
def cholesky(a: Array, *, upper: bool = False) -> Array:
    """The lower triangle L with a = L @ L.T, a positive definite; or its transpose, from the upper triangle of a.

    LinAlgError for a matrix that is not positive definite. (The gradient: Seeger et al. 2017, section 4.1.)
    """
    return np.linalg.cholesky(_real(a), upper=upper)


def _cholesky_rule(g: Array, y: Array, upper: bool) -> Array:
    if upper:
        g, y = _t(g), _t(y)
    half = _half_triangle(y.shape[-1], y.dtype)
    inner = np.linalg.solve(_t(y), (_t(y) @ g) * half)
    return _in_triangle(_t(np.linalg.solve(_t(y), _t(inner))), upper)


def _in_triangle(g: Array, upper: bool) -> Array:
    """The gradient of one triangle of a symmetric matrix, from that of all its elements as if they were independent."""
    return (g + _t(g)) * _half_triangle(g.shape[-1], g.dtype, upper)


cholesky.rule(a=_cholesky_rule)


class EighResult(NamedTuple):
    """What eigh returns: (..., n) and, as columns, (..., n, n)."""

    eigenvalues: Tensor
    eigenvectors: Tensor


@op
def _eigh(a: Array, UPLO: Triangle = "L") -> Array:
    """(eigenvalues, eigenvectors)."""
    return tuple(np.linalg.eigh(_real(a), UPLO))


def _inverse_gaps(w: Array) -> Array:
    """1 / (w_j - w_i) beside the diagonal, 0 on it."""
    eye = np.eye(w.shape[-1], dtype=w.dtype)
    return (1 - eye) / (w[..., None, :] - w[..., :, None] + eye)


def _eigh_rule(g: Array, y: Array, UPLO: Triangle) -> Array:
    """V (diag(gw) + F * V^T gv) V^T, with F the inverse gaps: Giles 2008, 3.1."""
    (gw, gv), (w, v) = g, y
    turned = scale.apply(_t(v) @ gv, _inverse_gaps(w))
    return _in_triangle((v @ turned + v * gw[..., None, :]) @ _t(v), UPLO.upper() == "U")


_eigh.rule(a=_eigh_rule)


@derived
def eigh(a: Array, UPLO: Triangle = "L") -> EighResult:
    """Eigenvalues in ascending order, and eigenvectors as columns, of symmetric matrices given by their lower triangle.

    UPLO: "U" for the upper one. The sign of an eigenvector is LAPACK's choice.
    """
    return EighResult(*_eigh(a, UPLO))


@derived
def eigvalsh(a: Array, UPLO: Triangle = "L") -> Tensor:
    """The eigenvalues of `eigh`; their gradient is finite also where they repeat."""
    return _eigh(a, UPLO)[0]


# --- qr ----------------------------------------------------------------------------------------------------------


class QRResult(NamedTuple):
    """What qr returns: (..., m, k) and (..., k, n), k = min(m, n)."""

    Q: Tensor
    R: Tensor


@op
def _qr(a: Array) -> Array:
    """(Q, R), reduced."""
    return tuple(np.linalg.qr(_real(a)))


def _qr_rule(g: Array, y: Array) -> Array:
    """Seeger et al. 2017, section 4.3; for a wide a = [X, Q V], with X square, Roberts and Roberts 2020."""
    (gq, gr), (q, r) = g, y
    m = q.shape[-2]
    if r.shape[-1] <= m:
        return _tall_qr_rule(gq, gr, q, r)
    gv = gr[..., m:]
    g_left = _tall_qr_rule(gq + q @ (r[..., m:] @ _t(gv)), gr[..., :m], q, r[..., :m])
    return np.concatenate([g_left, q @ gv], -1)


def _tall_qr_rule(gq: Array, gr: Array, q: Array, r: Array) -> Array:
    lower = (r @ _t(gr) - _t(gq) @ q) * _half_triangle(r.shape[-1], r.dtype)
    return _t(np.linalg.solve(r, _t(gq + q @ (lower + _t(lower)))))


_qr.rule(a=_qr_rule)


@derived
def qr(a: Array, mode: str = "reduced") -> Any:
    """a = Q @ R: orthonormal columns Q (..., m, k) and an upper triangle R (..., k, n), k = min(m, n).

    mode: "r" returns R alone; "complete" is the same as "reduced" where Q is square anyway, and a ValueError for a
    taller a, whose further columns a does not determine. Differentiable where the first k columns of a are independent.
    """
    m, n = np.shape(a)[-2:]
    if mode not in ("reduced", "r", "complete") or (mode == "complete" and m > n):
        raise ValueError(f"qr: mode {mode!r} has no gradient for matrices of {m} x {n}: mode='reduced' or 'r' has")
    q, r = _qr(a)
    return r if mode == "r" else QRResult(q, r)


# --- svd ---------------------------------------------------------------------------------------------------------


class SVDResult(NamedTuple):
    """What svd returns: (..., m, k), (..., k) and (..., k, n), k = min(m, n)."""

    U: Tensor
    S: Tensor
    Vh: Tensor


@op
def _svd(a: Array) -> Array:
    """(U, S, Vh), reduced."""
    return tuple(np.linalg.svd(_real(a), full_matrices=False))


def _svd_rule(g: Array, y: Array) -> Array:
    """Townsend 2016, equation 31; terms whose cotangent is 0 contribute 0 whatever the singular values are."""
    (gu, gs, gvh), (u, s, vh) = g, y
    m, n, k = u.shape[-2], vh.shape[-1], s.shape[-1]
    row, column = s[..., None, :], s[..., :, None]
    gaps = _inverse_gaps(s) / (row + column)  # 1 / (s_j^2 - s_i^2)
    of_u, of_v = _t(u) @ gu, vh @ _t(gvh)
    turned_u, turned_v = scale.apply(of_u - _t(of_u), gaps), scale.apply(of_v - _t(of_v), gaps)
    left = u @ (turned_u * row + turned_v * column) + u * gs[..., None, :]
    if m > k:
        left = left + scale.apply(gu - u @ of_u, 1 / row)
    if n == k:
        return left @ vh
    return left @ vh + u @ scale.apply(gvh - _t(of_v) @ vh, 1 / column)


_svd.rule(a=_svd_rule)


@derived
def svd(a: Array, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """a = (U * S) @ Vh with orthonormal columns of U and rows of Vh, and S descending; S alone without compute_uv.

    Matrices that are not square need full_matrices=False (else ValueError): a does not determine the further vectors.

    >>> svd([[0.0, 2.0], [1.0, 0.0]]).S
    tensor([2., 1.])
    """
    if not compute_uv:
        return _svd(a)[1]
    m, n = np.shape(a)[-2:]
    if full_matrices and m != n:
        raise ValueError(f"svd: a matrix of {m} x {n} determines min(m, n) vectors: pass full_matrices=False")
    return SVDResult(*_svd(a))


@derived
def svdvals(x: Array) -> Tensor:
    """The singular values, descending; their gradient is finite also where they repeat."""
    return _svd(x)[1]
