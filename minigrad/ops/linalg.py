"""Products of matrices and vectors, and einsum."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad.engine import Array
from minigrad.op import derived, op
from minigrad.ops.complexes import conj
from minigrad.ops.elementwise import multiply, subtract
from minigrad.ops.indexing import getitem
from minigrad.ops.reductions import axes_of
from minigrad.ops.shapes import concatenate, expand_dims, moveaxis, reshape, squeeze, stack, swapaxes, transpose
from minigrad.tensor import Tensor


@op
def matmul(a: Array, b: Array) -> Array:
    """a @ b: matrices in the last two axes, broadcast over the others; a 1-D operand is a row or column.

    >>> import minigrad as mg
    >>> mg.matmul(mg.tensor([[1.0, 2.0]]), mg.tensor([3.0, 4.0]))
    tensor([11.])
    """
    return np.matmul(a, b)


def _rows(x: Array) -> Array:
    """All leading axes as one, so that a product over them is one matrix product. (-1 is ambiguous for empty ones.)"""
    return np.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


def _matmul_rule_a(g: Array, b: Array, a_shape: tuple[int, ...]) -> Array:
    if np.ndim(b) == 1:  # y_i = sum_j a_ij b_j
        return g[..., None] * b
    if len(a_shape) == 1:  # y_k = sum_j a_j b_jk
        return np.squeeze(np.matmul(g[..., None, :], np.swapaxes(b, -1, -2)), -2)
    if np.ndim(b) == 2:
        return np.reshape(np.matmul(_rows(g), np.transpose(b)), a_shape)
    return np.matmul(g, np.swapaxes(b, -1, -2))


def _matmul_rule_b(g: Array, a: Array, b_shape: tuple[int, ...]) -> Array:
    if np.ndim(a) == 1:
        return g * a if len(b_shape) == 1 else a[:, None] * g[..., None, :]
    if len(b_shape) == 1:
        return np.matmul(np.reshape(g, (math.prod(g.shape),)), _rows(a))
    if len(b_shape) == 2:  # one product over all leading axes instead of a batch of them that is summed afterwards
        return np.matmul(np.transpose(_rows(a)), _rows(g))
    return np.matmul(np.swapaxes(a, -1, -2), g)


matmul.rule(a=_matmul_rule_a, b=_matmul_rule_b)


@derived
def dot(a: Array, b: Array) -> Tensor:
    """NumPy's dot: a scalar multiplies; else a's last axis is summed with b's last but one (its only one if 1-D)."""
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return multiply(a, b)
    if np.ndim(b) <= 2:
        return matmul(a, b)
    letters = "abcdefghijklmnopqrstuvwxy"
    left, right = letters[: np.ndim(a) - 1], letters[np.ndim(a) - 1 : np.ndim(a) + np.ndim(b) - 3]
    return einsum(f"{left}z,{right}z{letters[-1]}->{left}{right}{letters[-1]}", a, b)


@derived
def outer(a: Array, b: Array) -> Tensor:
    """The products of all elements of a with all of b: shape (a.size, b.size)."""
    return multiply(reshape(a, (np.size(a), 1)), reshape(b, (1, np.size(b))))


@derived
def inner(a: Array, b: Array) -> Tensor:
    """The sums of products over the last axis of both; a scalar multiplies. Shape a.shape[:-1] + b.shape[:-1]."""
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return multiply(a, b)
    return tensordot(a, b, axes=(-1, -1))


@derived
def vdot(a: Array, b: Array) -> Tensor:
    """The sum of all products of corresponding elements, both flattened; of a complex a the conjugate is taken."""
    return matmul(conj(reshape(a, (np.size(a),))), reshape(b, (np.size(b),)))


@derived
def vecdot(x1: Array, x2: Array, axis: int = -1) -> Tensor:
    """The sums of products over an axis of each, the other axes broadcast; of a complex x1 the conjugate is taken."""
    x1, x2 = moveaxis(x1, axis, -1), moveaxis(x2, axis, -1)
    return einsum("...i,...i->...", conj(x1), _of_length(x2, x1.shape[-1], "vecdot"))


@derived
def matvec(x1: Array, x2: Array) -> Tensor:
    """Matrices (..., m, n) times vectors (..., n), broadcast: (..., m)."""
    return squeeze(matmul(x1, expand_dims(x2, -1)), -1)


@derived
def vecmat(x1: Array, x2: Array) -> Tensor:
    """Vectors (..., m), conjugated if complex, times matrices (..., m, n), broadcast: (..., n)."""
    return squeeze(matmul(expand_dims(conj(x1), -2), x2), -2)


def _of_length(x: Array, n: int, name: str) -> Array:
    """x, or ValueError if its last axis is not of size n: unlike einsum, NumPy does not stretch a summed axis."""
    if np.shape(x)[-1] != n:
        raise ValueError(f"{name}: the summed axes have sizes {n} and {np.shape(x)[-1]}")
    return x


@derived
def matrix_transpose(x: Array) -> Tensor:
    """The matrices of the last two axes, transposed. ValueError for fewer axes."""
    if np.ndim(x) < 2:
        raise ValueError(f"matrix_transpose: matrices have two axes or more, and this array has {np.ndim(x)}")
    return swapaxes(x, -1, -2)


@derived
def tensordot(a: Array, b: Array, axes: Any = 2) -> Tensor:
    """The sums of products over pairs of axes: shape a's other axes, then b's other axes.

    axes: (an axis or several of a, as many of b); or n, for the last n of a with the first n of b.

    >>> import minigrad as mg
    >>> tensordot(np.ones((2, 3, 4)), np.ones((4, 3, 5)), axes=([1, 2], [1, 0])).shape
    (2, 5)
    """
    of_a, of_b = _paired_axes(axes, np.ndim(a), np.ndim(b))
    sizes = [np.shape(a)[i] for i in of_a]
    if sizes != [np.shape(b)[i] for i in of_b]:
        raise ValueError(f"tensordot: axes {axes} of shapes {np.shape(a)} and {np.shape(b)} differ in size")
    rest_a = [i for i in range(np.ndim(a)) if i not in of_a]
    rest_b = [i for i in range(np.ndim(b)) if i not in of_b]
    shape_a, shape_b = [np.shape(a)[i] for i in rest_a], [np.shape(b)[i] for i in rest_b]
    rows = reshape(transpose(a, rest_a + of_a), (math.prod(shape_a), math.prod(sizes)))
    columns = reshape(transpose(b, of_b + rest_b), (math.prod(sizes), math.prod(shape_b)))
    return reshape(matmul(rows, columns), (*shape_a, *shape_b))


def _paired_axes(axes: Any, ndim_a: int, ndim_b: int) -> tuple[list[int], list[int]]:
    """tensordot's `axes` as two lists of non-negative numbers."""
    if not isinstance(axes, (list, tuple)) and np.ndim(axes) == 0:
        axes = (list(range(ndim_a - axes, ndim_a)), list(range(axes)))
    of_a, of_b = ([part] if np.ndim(part) == 0 else list(part) for part in axes)
    if len(of_a) != len(of_b) or any(not -n <= i < n for part, n in ((of_a, ndim_a), (of_b, ndim_b)) for i in part):
        raise ValueError(f"tensordot: axes {axes} do not pair axes of arrays of {ndim_a} and {ndim_b} axes")
    return list(axes_of(of_a, ndim_a)), list(axes_of(of_b, ndim_b))


@derived
def kron(a: Array, b: Array) -> Tensor:
    """The Kronecker product: each element of a times the whole of b, as blocks; 1s lead the shape with fewer axes."""
    ndim = max(np.ndim(a), np.ndim(b))
    shape_a, shape_b = ((1,) * (ndim - np.ndim(x)) + np.shape(x) for x in (a, b))
    rows = reshape(a, [n for size in shape_a for n in (size, 1)])
    columns = reshape(b, [n for size in shape_b for n in (1, size)])
    return reshape(multiply(rows, columns), [m * n for m, n in zip(shape_a, shape_b)])


@derived
def cross(a: Array, b: Array, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Tensor:
    """The vector product of 3-vectors, along axisa of a and axisb of b, the others broadcast; axisc of the result.

    axis: stands for all three. A 2-vector counts as one whose third component is 0; of two of them the product is the
    third component alone. ValueError for other lengths.
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = moveaxis(a, axisa, -1), moveaxis(b, axisb, -1)
    lengths = {a.shape[-1], b.shape[-1]}
    if not lengths <= {2, 3}:
        raise ValueError(f"cross: vectors have 2 or 3 components, and these have {a.shape[-1]} and {b.shape[-1]}")
    if lengths == {2}:
        return subtract(a[..., 0] * b[..., 1], a[..., 1] * b[..., 0])
    a, b = _three(a), _three(b)
    parts = [a[..., i] * b[..., j] - a[..., j] * b[..., i] for i, j in ((1, 2), (2, 0), (0, 1))]
    return moveaxis(stack(parts, -1), -1, axisc)


def _three(x: Tensor) -> Tensor:
    return x if x.shape[-1] == 3 else concatenate([x, np.zeros((*x.shape[:-1], 1), x.dtype)], -1)


@derived
def multi_dot(arrays: Sequence[Array]) -> Tensor:
    """The product of two or more matrices in the order of multiplication that costs least.

    The first may be 1-D (a row) and the last (a column), as in matmul. ValueError for fewer than two.
    Cormen et al., Introduction to Algorithms, section 15.2.
    """
    if len(arrays) < 2:
        raise ValueError(f"multi_dot: needs two arrays or more, and was given {len(arrays)}")
    ndims = [np.ndim(x) for x in arrays]
    if any(n != 2 for n in ndims[1:-1]) or ndims[0] not in (1, 2) or ndims[-1] not in (1, 2):
        raise np.linalg.LinAlgError(f"multi_dot: multiplies matrices, and these arrays have {ndims} axes")
    first = (1, *np.shape(arrays[0]))[-2]
    sizes = [first, *(np.shape(x)[0] for x in arrays[1:]), (*np.shape(arrays[-1]), 1)[1]]
    product: Tensor = _product(arrays, _cheapest_cuts(sizes), 0, len(arrays))
    return product


def _cheapest_cuts(sizes: list[int]) -> dict[tuple[int, int], int]:
    """For each run of factors [i, j), of sizes[i] x sizes[i + 1] and so on, where to cut it into two products."""
    n = len(sizes) - 1
    cost = {(i, i + 1): 0 for i in range(n)}
    cuts: dict[tuple[int, int], int] = {}
    for i, j in [(i, i + length) for length in range(2, n + 1) for i in range(n - length + 1)]:
        costs = {k: cost[i, k] + cost[k, j] + sizes[i] * sizes[k] * sizes[j] for k in range(i + 1, j)}
        cuts[i, j] = min(costs, key=costs.__getitem__)
        cost[i, j] = costs[cuts[i, j]]
    return cuts


def _product(arrays: Sequence[Array], cuts: dict[tuple[int, int], int], i: int, j: int) -> Any:
    if j == i + 1:
        return arrays[i]
    return matmul(_product(arrays, cuts, i, cuts[i, j]), _product(arrays, cuts, cuts[i, j], j))


# --- einsum ------------------------------------------------------------------------------------------------------


@derived
def einsum(subscripts: Any, *operands: Any, optimize: Any = False) -> Tensor:
    """Einstein summation in NumPy's notation: implicit or explicit output, ellipses, repeated letters, stretched 1s.

    Subscripts are a string, or lists of numbers after each operand: einsum(a, [0, 1], b, [1, 2], [0, 2]), where ... is
    an ellipsis. optimize is NumPy's; the order of multiplication is chosen here, whatever it says.

    >>> import minigrad as mg
    >>> a = mg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> mg.einsum("ii", a), mg.einsum("ij,j->i", a, [1.0, 1.0])
    (tensor(5.), tensor([3., 7.]))
    """
    if not isinstance(subscripts, str):
        subscripts, operands = _as_letters((subscripts, *operands))
    inputs, output = _explicit(subscripts, [np.ndim(x) for x in operands]).split("->")
    terms, distinct = [], []
    for term, x in zip(inputs.split(","), operands):
        term, x = _diagonals(term, x)
        terms.append(term)
        distinct.append(x)
    return _einsum(",".join(terms) + "->" + output, distinct)


def _as_letters(given: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """(a, [0, 1], b, [1, 2], [0, 2]) as ("AB,BC->AC", (a, b)). Letters order like numbers, for an implicit output."""
    n = len(given) // 2
    terms = [*given[1 : 2 * n : 2], *given[2 * n :]]
    letters = ["".join("..." if i is Ellipsis else _LETTERS[operator.index(i)] for i in term) for term in terms]
    return ",".join(letters[:n]) + "".join("->" + output for output in letters[n:]), given[: 2 * n : 2]


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _diagonals(term: str, x: Array) -> tuple[str, Array]:
    """An operand's letters without repeats: where one repeats, the operand's diagonal is taken first."""
    for letter in dict.fromkeys(term):
        axes = [i for i, c in enumerate(term) if c == letter]
        if len(axes) > 1:
            sizes = [np.shape(x)[i] for i in axes]
            if len(set(sizes)) > 1:
                raise ValueError(f"einsum: {letter!r} in {term!r} stands for axes of sizes {sizes}")
            along = np.arange(sizes[0])
            x = getitem(moveaxis(x, axes, list(range(len(axes)))), (along,) * len(axes))
            term = letter + term.replace(letter, "")
    return term, x


@op(sequence="operands")
def _einsum(subscripts: str, operands: Sequence[Array]) -> Array:
    """einsum in explicit form: a letter for every axis, and no letter twice in one operand."""
    large = math.prod(np.shape(operands[0])) > 4096  # planning a BLAS call costs more than a small product
    return np.einsum(subscripts, *operands, optimize=len(operands) > 2 or (large and len(operands) == 2))


def _einsum_rule(g: Array, subscripts: str, operands: Sequence[Array]) -> list[Array]:
    """An operand's gradient is the einsum of the cotangent with the other operands.

    Along a letter that stands nowhere else the operand was just summed, so its gradient is spread along it; along an
    axis of size 1 that was stretched to another operand's size, the engine sums it back.
    """
    inputs, output = subscripts.split("->")
    terms = inputs.split(",")
    sizes: dict[str, int] = {}
    for term, x in zip(terms, operands):
        for letter, n in zip(term, x.shape):
            sizes[letter] = n if sizes.get(letter, 1) == 1 else sizes[letter]
    gradients = []
    for i, term in enumerate(terms):
        others = terms[:i] + terms[i + 1 :]
        elsewhere = output + "".join(others)
        found = "".join(c for c in term if c in elsewhere)
        partial = _einsum.apply(",".join([output, *others]) + "->" + found, [g, *operands[:i], *operands[i + 1 :]])
        sizes_found = iter(partial.shape)
        partial = np.reshape(partial, tuple(next(sizes_found) if c in elsewhere else 1 for c in term))
        gradients.append(np.broadcast_to(partial, tuple(sizes[c] for c in term)))
    return gradients


_einsum.rule(operands=_einsum_rule)


def _explicit(subscripts: str, ndims: list[int]) -> str:
    """The subscripts with an output and with letters in the place of ellipses."""
    text = subscripts.replace(" ", "")
    inputs, arrow, output = text.partition("->")
    terms = inputs.split(",")
    if len(terms) != len(ndims):
        raise ValueError(f"einsum: {subscripts!r} describes {len(terms)} operands and {len(ndims)} were given")
    free = [c for c in _LETTERS if c not in text]
    widths = [n - len(t.replace("...", "")) for t, n in zip(terms, ndims)]
    for term, n, width in zip(terms, ndims, widths):
        if width < 0 or (width and "..." not in term):
            raise ValueError(f"einsum: {term!r} in {subscripts!r} describes an operand of {n} axes")
    longest = max([w for t, w in zip(terms, widths) if "..." in t], default=0)
    dots = "".join(free[:longest])
    terms = [t.replace("...", dots[longest - w :] if "..." in t else "") for t, w in zip(terms, widths)]
    if arrow:
        if longest and "..." not in output:
            raise ValueError(f"einsum: the output of {subscripts!r} lacks the ellipsis that its inputs have")
        output = output.replace("...", dots)
    else:
        letters = "".join(terms)
        output = dots + "".join(sorted(c for c in set(letters) if letters.count(c) == 1 and c not in dots))
    return ",".join(terms) + "->" + output
