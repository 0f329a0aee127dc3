"""Products of matrices and vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from minigrad.engine import Array
from minigrad.op import derived, op
from minigrad.ops.elementwise import multiply
from minigrad.ops.indexing import getitem
from minigrad.ops.shapes import moveaxis, reshape
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


# --- einsum ------------------------------------------------------------------------------------------------------


@derived
def einsum(subscripts: str, *operands: Array) -> Tensor:
    """Einstein summation in NumPy's notation: implicit or explicit output, ellipses, repeated letters, stretched 1s.

    >>> import minigrad as mg
    >>> a = mg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> mg.einsum("ii", a), mg.einsum("ij,j->i", a, [1.0, 1.0])
    (tensor(5.), tensor([3., 7.]))
    """
    inputs, output = _explicit(subscripts, [np.ndim(x) for x in operands]).split("->")
    terms, distinct = [], []
    for term, x in zip(inputs.split(","), operands):
        term, x = _diagonals(term, x)
        terms.append(term)
        distinct.append(x)
    return _einsum(",".join(terms) + "->" + output, distinct)


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
    free = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if c not in text]
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
