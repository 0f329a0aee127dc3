"""Attention block by block: the scores are never there all at once, so memory grows with n and not with n^2.

Forward goes over the key blocks of each block of queries with a running maximum and a running sum (Milakov and
Gimelshein 2018, arXiv:1805.02867) and keeps the output and one logsumexp a query; backward computes the scores again
(FlashAttention-2: Dao 2023, arXiv:2307.08691). Batch rows and heads are spread over threads.

Passes over a block cost as much as its products, so two of them are left to the products: q gets one column more,
minus what is to be subtracted from its scores, and k and v a column of ones.

    [scale q, -shift] [k, 1]^T = scale q k^T - shift            the shift: a maximum, or the logsumexp
    e^scores [v, 1]            = [e^scores v, rowsum(e^scores)]
    [g, -D] [v, 1]^T           = g v^T - D                      D = rowsum(g * y), of the softmax's rule
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from minigrad.threads import get_num_threads, spread

Index = tuple[int, ...]

# Enough queries that products run at full speed, and so few that a block has long rows, over which maxima are fast.
QUERIES = 128

# As long as every score is below the running maximum of earlier blocks plus this, that maximum stays as it is: e^8 is
# as exact as e^0, and moving it costs a pass.
SLACK = 8.0


@functools.cache
def second_level_cache() -> int:
    """Bytes of a core's second-level cache; 1 MiB where the system does not say."""
    try:
        with open("/sys/devices/system/cpu/cpu0/cache/index2/size") as f:
            return int(f.read().strip().removesuffix("K")) * 1024
    except (OSError, ValueError):
        return 2**20


def keys_in_block(itemsize: int) -> int:
    """How many keys a block has.

    Two blocks, the weights and their gradients, fill half of the second-level cache; rows of q, k, v and g need the
    rest. Below 128 keys the calls would cost more than they compute.
    """
    return max(128, second_level_cache() // 4 // (QUERIES * itemsize))


def _blocks(n: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def _over(batch: tuple[int, ...], x: np.ndarray | None) -> np.ndarray | None:
    """A mask, a bias or an operand, broadcast over the batch, its last two axes as they are."""
    if x is None:
        return None
    x = x.reshape((1,) * (2 - x.ndim) + x.shape)
    return np.broadcast_to(x, (*batch, *x.shape[-2:]))


def _block(x: np.ndarray, rows: slice, columns: slice) -> np.ndarray:
    """The part of (query or 1, key or 1) that broadcasts to the block."""
    return x[rows if x.shape[0] > 1 else slice(None), columns if x.shape[1] > 1 else slice(None)]


class Call:
    """The operands of one call, each broadcast over the batch, and how the work is cut."""

    def __init__(
        self,
        q: np.ndarray,
        k: np.ndarray,
        v: np.ndarray,
        mask: np.ndarray | None,
        bias: np.ndarray | None,
        scale: float,
    ):
        self.batch = batch = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
        self.q, self.k, self.v = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (q, k, v))
        self.mask, self.bias, self.scale = _over(batch, mask), _over(batch, bias), scale
        self.given_bias_shape = () if bias is None else bias.shape
        self.bias_shape = (1,) * (len(batch) + 2 - len(self.given_bias_shape)) + self.given_bias_shape
        self.dtype = np.result_type(*(x for x in (q, k, v, bias) if x is not None))
        self.inner = np.promote_types(self.dtype, np.float32)  # halves have no fast product, and sum badly
        # Keys that nobody may look at and queries that may look at nothing count as 0: NaN may stand there.
        self.looking = None if mask is None else np.broadcast_to(mask.any(-1), (*batch, mask.shape[-2]))
        self.looked_at = None if mask is None else np.broadcast_to(mask.any(-2), (*batch, mask.shape[-1]))
        self.query_blocks = _blocks(q.shape[-2], QUERIES)
        self.key_blocks = _blocks(k.shape[-2], keys_in_block(self.inner.itemsize))

    def rows(self) -> list[Index]:
        return list(np.ndindex(self.batch))

    def bias_index(self, row: Index) -> Index:
        """Where this row's bias stands among those that are not broadcast."""
        return tuple(i if n > 1 else 0 for i, n in zip(row, self.bias_shape))

    def indices(self, row: Index) -> tuple[Index, Index, Index, Index]:
        """Where this row's gradients of q, k, v and bias stand."""
        return row, row, row, self.bias_index(row)

    def parts(self, groups: int) -> int:
        """Into how many parts the queries are cut so that the threads get equally much of these groups of rows."""
        threads = get_num_threads()
        wanted = 1 if groups >= 4 * threads else threads // math.gcd(groups, threads)
        return min(wanted, len(self.query_blocks))

    def visible(self, row: Index, queries: slice) -> Iterator[tuple[slice, np.ndarray | None]]:
        """(keys, mask) of each block where these queries may see anything; the mask is None where they see it all."""
        for keys in self.key_blocks:
            seen = None if self.mask is None else _block(self.mask[row], queries, keys)
            if seen is None or seen.all():
                yield keys, None
            elif seen.any():
                yield keys, seen


class Workspace:
    """What one thread computes in: one row's keys and values, and room for the blocks."""

    def __init__(self, call: Call):
        self.call = call
        n, keys, values = call.k.shape[-2], call.k.shape[-1], call.v.shape[-1]
        block = min(n, keys_in_block(call.inner.itemsize))
        self.k = np.ones((n, keys + 1), call.inner)
        self.v = np.ones((n, values + 1), call.inner)
        self._q = np.empty((QUERIES, keys + 1), call.inner)
        self._g = np.empty((QUERIES, values + 1), call.inner)
        self._total = np.empty(QUERIES * (max(keys, values) + 1), call.inner)
        self._scores = np.empty((2, QUERIES * block), call.inner)
        self._product = np.empty(max(QUERIES, block) * (max(keys, values) + 1), call.inner)

    def load(self, row: Index) -> None:
        """Turn to the keys and values of this row of the batch."""
        self.row = row
        self.k[:, :-1] = self.call.k[row]
        self.v[:, :-1] = self.call.v[row]
        if self.call.looked_at is not None and not self.call.looked_at[row].all():
            dead = np.broadcast_to(~self.call.looked_at[row], self.k.shape[:1])
            self.k[dead, :-1] = 0
            self.v[dead, :-1] = 0

    def queries(self, queries: slice) -> np.ndarray:
        """[scale q, room for minus the shift]."""
        q = self._q[: queries.stop - queries.start]
        np.multiply(self.call.q[self.row][queries], self.call.scale, out=q[:, :-1], dtype=q.dtype)
        if self.call.looking is not None:
            looking = self.call.looking[self.row]
            q[~(looking[queries] if len(looking) > 1 else np.broadcast_to(looking, len(q))), :-1] = 0
        return q

    def cotangent(self, g: np.ndarray, y: np.ndarray) -> np.ndarray:
        """[g, -D]."""
        extended = self._g[: len(g)]
        extended[:, :-1] = g
        extended[:, -1] = -np.vecdot(extended[:, :-1], y, dtype=extended.dtype)
        return extended

    def scores(self, q: np.ndarray, queries: slice, keys: slice, mask: np.ndarray | None) -> np.ndarray:
        """scale q k^T + bias - shift; -inf under the mask."""
        k = self.k[keys]
        scores = np.matmul(q, k.T, out=_shaped(self._scores[0], len(q), len(k)))
        if self.call.bias is not None:
            scores += _block(self.call.bias[self.row], queries, keys)
        if mask is not None:
            np.copyto(scores, -np.inf, where=~mask)
        return scores

    def score_gradients(self, g: np.ndarray, keys: slice, weights: np.ndarray) -> np.ndarray:
        """weights * (g v^T - D)."""
        v = self.v[keys]
        gscores = np.matmul(g, v.T, out=_shaped(self._scores[1], len(g), len(v)))
        gscores *= weights
        return gscores

    def total(self, rows: int, columns: int) -> np.ndarray:
        total = _shaped(self._total, rows, columns)
        total.fill(0)
        return total

    def add_product(self, total: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
        total += np.matmul(a, b, out=_shaped(self._product, len(a), b.shape[1]))


def _shaped(buffer: np.ndarray, rows: int, columns: int) -> np.ndarray:
    return buffer[: rows * columns].reshape(rows, columns)


# --- forward -----------------------------------------------------------------------------------------------------


class Residual(NamedTuple):
    """What the way back needs."""

    call: Call
    y: np.ndarray
    logsumexp: np.ndarray


def forward(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray | None,
    bias: np.ndarray | None,
    scale: float,
    out: np.ndarray | None = None,
) -> tuple[np.ndarray, Residual]:
    """The output, written to `out` if there is one, and what the way back needs."""
    call = Call(q, k, v, mask, bias, scale)
    y = np.empty((*call.batch, q.shape[-2], v.shape[-1]), call.dtype) if out is None else out
    logsumexp = np.empty(y.shape[:-1], call.inner)
    parts = call.parts(math.prod(call.batch))

    def work(units: Iterator[tuple[Index, int]]) -> None:
        space = Workspace(call)
        for row, part in units:
            space.load(row)
            for queries in call.query_blocks[part::parts]:
                _attend(space, queries, y[row][queries], logsumexp[row][queries])

    spread(work, list(itertools.product(call.rows(), range(parts))))
    return y, Residual(call, y, logsumexp)


def _attend(space: Workspace, queries: slice, y: np.ndarray, logsumexp: np.ndarray) -> None:
    """The output and the logsumexp of one block of queries."""
    q = space.queries(queries)
    q[:, -1] = 0
    total = space.total(len(q), space.v.shape[1])  # its last column: the sum of the weights
    all_saw = False  # whether each query has seen a key, and so has a maximum
    for keys, mask in space.call.visible(space.row, queries):
        scores = space.scores(q, queries, keys, mask)
        top = np.maximum.reduce(scores, -1)
        if not (all_saw and top.max() <= SLACK):
            _move_maximum(top, scores, total, q)
        np.exp(scores, out=scores)
        space.add_product(total, scores, space.v[keys])
        all_saw = all_saw or bool(total[:, -1].all())
    weight = total[:, -1:]
    weight[weight == 0] = 1  # saw nothing: 0, exactly
    np.divide(total[:, :-1], weight, out=y, casting="same_kind")
    np.subtract(np.log(weight[:, 0]), q[:, -1], out=logsumexp)


def _move_maximum(top: np.ndarray, scores: np.ndarray, total: np.ndarray, q: np.ndarray) -> None:
    """Subtract `top` where it is the row's first maximum or far above the former one; from all that is there, too."""
    first = (total[:, -1] == 0) & (top > -np.inf)
    rise = np.where(first | (top > SLACK), top, 0)
    scores -= rise[:, None]
    total *= np.exp(-np.maximum(rise, 0))[:, None]
    q[:, -1] -= rise


# --- backward ----------------------------------------------------------------------------------------------------


class Sums:
    """Where one operand's gradient is summed. Parts of the queries that meet in it at the same time have a sum each.

    So every sum is taken in an order that depends on the number of threads alone, and not on who comes first.
    """

    def __init__(self, shape: tuple[int, ...], parts: int, dtype: np.dtype, out: np.ndarray | None = None):
        if out is not None:
            out.fill(0)
        self.parts = [
            np.zeros(shape, dtype) if out is None else out,
            *(np.zeros(shape, dtype) for _ in range(parts - 1)),
        ]

    def of(self, part: int) -> np.ndarray:
        return self.parts[part % len(self.parts)]

    def result(self, dtype: np.dtype) -> np.ndarray:
        for part in self.parts[1:]:
            self.parts[0] += part
        return self.parts[0].astype(dtype, copy=False)


def backward(
    g: np.ndarray, residual: Residual, wanted: Sequence[bool], out: Sequence[np.ndarray | None] = (None, None, None)
) -> tuple[np.ndarray | None, ...]:
    """The gradients of q, k, v and bias; those of q, k and v written to `out` where it holds arrays."""
    call, y, logsumexp = residual
    groups = list(_rows_by_bias(call).values()) if wanted[3] else [[row] for row in call.rows()]
    parts = call.parts(len(groups))
    shapes = (call.q.shape, call.k.shape, call.v.shape, call.bias_shape)
    meeting = (1, parts, parts, parts if call.bias_shape[-2] == 1 else 1)
    sums = [
        Sums(shape, n, call.inner, given) if want else None
        for shape, n, given, want in zip(shapes, meeting, (*out, None), wanted)
    ]

    def work(units: Iterator[tuple[list[Index], int]]) -> None:
        space = Workspace(call)
        for rows, part in units:
            for row in rows:
                space.load(row)
                into = _Into(*(s.of(part)[index] if s else None for s, index in zip(sums, call.indices(row))))
                for queries in call.query_blocks[part::parts]:
                    _pull(space, queries, g[row][queries], y[row][queries], logsumexp[row][queries], into)

    spread(work, list(itertools.product(groups, range(parts))))
    gq, gk, gv, gbias = (s.result(call.dtype) if s else None for s in sums)
    return gq, gk, gv, None if gbias is None else gbias.reshape(call.given_bias_shape)


def _rows_by_bias(call: Call) -> dict[Index, list[Index]]:
    """The batch rows that share entries of the bias: one thread at a time may add to its gradient there."""
    groups: dict[Index, list[Index]] = {}
    for row in call.rows():
        groups.setdefault(call.bias_index(row), []).append(row)
    return groups


class _Into(NamedTuple):
    """Where the gradients of one row of the batch are summed; None where nobody wants one."""

    q: np.ndarray | None
    k: np.ndarray | None
    v: np.ndarray | None
    bias: np.ndarray | None


def _pull(space: Workspace, queries: slice, g: np.ndarray, y: np.ndarray, logsumexp: np.ndarray, into: _Into) -> None:
    """The part of the gradients that comes through one block of queries.

    With P the weights: dP = g v^T, and the softmax's rule gives dS = P * (dP - rowsum(P * dP)) for the scores, where
    rowsum(P * dP) = rowsum(g * y).
    """
    q = space.queries(queries)
    np.negative(logsumexp, out=q[:, -1])
    g = space.cotangent(g, y)
    gq = space.total(len(q), q.shape[1] - 1)
    for keys, mask in space.call.visible(space.row, queries):
        weights = space.scores(q, queries, keys, mask)
        np.exp(weights, out=weights)
        if into.v is not None:
            space.add_product(into.v[keys], weights.T, g[:, :-1])
        if into.q is None and into.k is None and into.bias is None:
            continue
        gscores = space.score_gradients(g, keys, weights)
        if into.bias is not None:
            _add_summed(_block(into.bias, queries, keys), gscores)
        if into.k is not None:
            space.add_product(into.k[keys], gscores.T, q[:, :-1])
        if into.q is not None:
            space.add_product(gq, gscores, space.k[keys, :-1])
    if into.q is not None:
        np.multiply(gq, space.call.scale, out=into.q[queries])


def _add_summed(total: np.ndarray, x: np.ndarray) -> None:
    """total += x, summed over the axes over which `total` was broadcast to it."""
    axes = tuple(axis for axis in (0, 1) if total.shape[axis] < x.shape[axis])
    total += x.sum(axes, keepdims=True) if axes else x
