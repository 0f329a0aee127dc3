"""Attention block by block: the scores are never there all at once, so memory grows with n and not with n^2.

Forward goes over the key blocks of each block of queries with a running maximum and a running sum (Milakov and
Gimelshein 2018, arXiv:1805.02867) and keeps the output and one logsumexp a query; backward computes the scores again,
over the query blocks of each block of keys (FlashAttention-2: Dao 2023, arXiv:2307.08691), so that the gradients of
keys and values are summed in the second-level cache. Batch rows and heads are spread over threads, and if they are few,
parts of them.

Three passes over a block cost as much as a product, so three are left to the products: q gets one column more, minus
what is to be subtracted from its scores, g another, and k and v a column of ones.

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

from minigrad.kernels.memory import ALIGNMENT, of_dtype
from minigrad.threads import get_num_threads, spread

Index = tuple[int, ...]

# As long as every score is below the running maximum of earlier blocks plus this, that maximum stays as it is: 2^12 is
# as exact as 2^0, and moving it costs a pass.
SLACK = 12.0

# Where |q| |k| says that no score is further from 0 than this, no maximum is needed: 2^48 is far from overflow.
CALM = 48.0


@functools.cache
def second_level_cache() -> int:
    """Bytes of a core's second-level cache; 1 MiB where the system does not say."""
    try:
        with open("/sys/devices/system/cpu/cpu0/cache/index2/size") as f:
            return int(f.read().strip().removesuffix("K")) * 1024
    except (OSError, ValueError):
        return 2**20


def block_shape(itemsize: int) -> tuple[int, int]:
    """How many queries, and how many keys, a block has.

    Two blocks, the weights and their gradients, fill three fifths of the second-level cache; the block's rows of q, k,
    v and g and their gradients need the rest. Forward, those of the keys come from outside it for every block, so it is
    taller than wide; backward, those of the queries do, but other shapes are no faster. Both are multiples of the
    widest vector and of the rows that BLAS computes at a time; with fewer than 144 the calls would cost more than they
    compute. Where BLAS packs the operands of every product, that costs more than leaving the second-level cache, unless
    a block is 384 wide.
    """
    scores = second_level_cache() * 3 // 10 // itemsize
    least = 144 if small_product() else 384
    keys = max(least, math.isqrt(scores * 3 // 5) // 48 * 48)
    return max(least, scores // keys // 48 * 48), keys


@functools.cache
def has_avx512() -> bool:
    """Whether NumPy found AVX-512 here: exp2 has a version for that alone."""
    try:
        target: str = np.lib.introspect.opt_func_info("^exp2$", "float32")["exp2"]["ff"]["current"]
    except (AttributeError, KeyError):  # an older NumPy, or one that does not choose at run time
        return False
    return not target.startswith("base")


class Base(NamedTuple):
    """The powers that weights are; scores are divided by the logarithm of their base."""

    power: np.ufunc
    log: np.ufunc
    log_of_base: float


def fastest_base() -> Base:
    """2 where this NumPy has vector instructions for it (AVX-512: twice as fast as e); else e."""
    return Base(np.exp2, np.log2, math.log(2)) if has_avx512() else Base(np.exp, np.log, 1.0)


def small_product() -> int:
    """Up to how many multiplications a product is a small one to BLAS, which takes its operands where they are.

    OpenBLAS packs those of larger ones first and adds to the output: that takes a third of the time where the inner
    dimension, or the output, is no wider than a head. It has such kernels for AVX-512; elsewhere 0: small products gain
    nothing.
    """
    return 10**6 if has_avx512() else 0


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
        self.base = fastest_base()
        # Keys that nobody may look at and queries that may look at nothing count as 0: NaN may stand there.
        self.looking = None if mask is None else np.broadcast_to(mask.any(-1), (*batch, mask.shape[-2]))
        self.looked_at = None if mask is None else np.broadcast_to(mask.any(-2), (*batch, mask.shape[-1]))
        queries, keys = block_shape(self.inner.itemsize)
        self.query_blocks, self.key_blocks = _blocks(q.shape[-2], queries), _blocks(k.shape[-2], keys)
        self.block = min(q.shape[-2], queries), min(k.shape[-2], keys)  # the largest

    def rows(self) -> list[Index]:
        return list(np.ndindex(self.batch))

    def bias_index(self, row: Index) -> Index:
        """Where this row's bias stands among those that are not broadcast."""
        return tuple(i if n > 1 else 0 for i, n in zip(row, self.bias_shape))

    def indices(self, row: Index) -> tuple[Index, Index, Index, Index]:
        """Where this row's gradients of q, k, v and bias stand."""
        return row, row, row, self.bias_index(row)

    def parts(self, groups: int, blocks: int, rounds: int) -> int:
        """Into how many parts `blocks` are cut so that each thread gets equally many units, and at least `rounds`.

        More than one: threads are not equally fast, and at the end they wait for the last unit.
        """
        threads = get_num_threads()
        if threads == 1 or not 0 < groups < 8 * threads:
            return 1
        step = threads // math.gcd(groups, threads)
        wanted = math.ceil(rounds * threads / groups / step) * step
        return min(wanted, blocks)

    def seen(self, row: Index, queries: slice, keys: slice) -> tuple[bool, np.ndarray | None]:
        """Whether these queries see any of these keys, and which; None: all."""
        mask = None if self.mask is None else _block(self.mask[row], queries, keys)
        if mask is None or mask.all():
            return True, None
        return bool(mask.any()), mask

    def of_row(self, x: np.ndarray, row: Index, keys: slice = slice(None)) -> np.ndarray:
        """Keys or values of one row of the batch; 0 where nobody may look."""
        some: np.ndarray = x[row][keys].astype(self.inner, copy=False)
        if self.looked_at is None or self.looked_at[row].all():
            return some
        looked_at = self.looked_at[row]
        return np.where(looked_at[keys if len(looked_at) > 1 else slice(None), None], some, some.dtype.type(0))

    def scaled_queries(self, row: Index, queries: slice, out: np.ndarray) -> None:
        """scale q, so that the scores are powers of the base; 0 for those that may look at nothing."""
        np.multiply(self.q[row][queries], self.scale / self.base.log_of_base, out=out, dtype=out.dtype)
        if self.looking is not None:
            looking = self.looking[row]
            out[~(looking[queries] if len(looking) > 1 else np.broadcast_to(looking, len(out)))] = 0


def _aligned(rows: int, columns: int, dtype: np.dtype) -> np.ndarray:
    """An array whose every row begins with a cache line: a vector that crosses one is read twice."""
    line = ALIGNMENT // dtype.itemsize
    padded = -(-columns // line) * line
    return of_dtype((rows, padded), dtype)[:, :columns]


def _shaped(buffer: np.ndarray, rows: int, columns: int) -> np.ndarray:
    return buffer[: rows * columns].reshape(rows, columns)


def _multiply(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> np.ndarray:
    """a b, in strips of rows that are small products; a multiple of the 12 rows that BLAS computes at a time."""
    rows = small_product() // max(1, b.size) // 12 * 12
    strips = len(a) // rows if rows else 0
    whole = strips * rows
    if strips:
        np.matmul(a[:whole].reshape(strips, rows, -1), b, out=out[:whole].reshape(strips, rows, -1))
    if whole < len(a):
        np.matmul(a[whole:], b, out=out[whole:])
    return out


def _longest(x: np.ndarray) -> float:
    """The greatest norm of any row."""
    with np.errstate(over="ignore", invalid="ignore"):
        return math.sqrt(np.vecdot(x, x).max(initial=0))


class Workspace:
    """What one thread computes in: room for a block of scores, and for what is added up from blocks."""

    def __init__(self, call: Call):
        self.call = call
        self.row: Index = (-1,)  # none yet
        self._scores = _aligned(1, math.prod(call.block), call.inner)[0]
        wider = max(call.k.shape[-1], call.v.shape[-1]) + 1
        self._product = of_dtype((max(call.block) * wider,), call.inner)

    def scores(self, q: np.ndarray, kt: np.ndarray, queries: slice, keys: slice, mask: np.ndarray | None) -> np.ndarray:
        """[scale q, -shift] [k, 1]^T + bias for one block; -inf under the mask."""
        bias = self.call.bias
        scores = _multiply(q, kt, _shaped(self._scores, len(q), kt.shape[1]))
        if bias is not None:
            scores += _block(bias[self.row], queries, keys) / self.call.base.log_of_base
        if mask is not None:
            np.copyto(scores, -np.inf, where=~mask)
        return scores

    def add_product(self, total: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
        total += _multiply(a, b, _shaped(self._product, len(a), b.shape[1]))


def _with_ones(rows: int, columns: int, dtype: np.dtype) -> np.ndarray:
    """Room for an array, with a column of ones behind it."""
    room = _aligned(rows, columns + 1, dtype)
    room[:, -1] = 1
    return room


def _under_ones(rows: int, columns: int, dtype: np.dtype) -> np.ndarray:
    """Room for an array, with a row of ones below it."""
    room = _aligned(rows + 1, columns, dtype)
    room[-1] = 1
    return room


# --- forward -----------------------------------------------------------------------------------------------------


class Residual(NamedTuple):
    """What the way back needs: the operands, the output and the logsumexp (in the call's base)."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    mask: np.ndarray | None
    bias: np.ndarray | None
    scale: float
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
    y = of_dtype((*call.batch, q.shape[-2], v.shape[-1]), call.dtype) if out is None else out
    logsumexp = of_dtype(y.shape[:-1], call.inner)
    parts = call.parts(math.prod(call.batch), len(call.query_blocks), 16)

    def work(units: Iterator[tuple[Index, int]]) -> None:
        space = ForwardSpace(call)
        for row, part in units:
            space.turn_to(row)
            for queries in call.query_blocks[part::parts]:
                _attend(space, queries, y[row][queries], logsumexp[row][queries])

    spread(work, list(itertools.product(call.rows(), range(parts))))
    return y, Residual(q, k, v, mask, bias, scale, y, logsumexp)


class ForwardSpace(Workspace):
    """With the keys and the values of a row of the batch, and room for a block of queries and of the output."""

    def __init__(self, call: Call):
        super().__init__(call)
        key_dim, value_dim = call.k.shape[-1], call.v.shape[-1]
        self._q = _aligned(call.block[0], key_dim + 1, call.inner)
        self._total = of_dtype((call.block[0], value_dim + 1), call.inner)
        # [k, 1]^T in blocks: turned around once, and not by every product
        self.kt = [_under_ones(key_dim, keys.stop - keys.start, call.inner) for keys in call.key_blocks]
        self.v = _with_ones(call.v.shape[-2], value_dim, call.inner)

    def turn_to(self, row: Index) -> None:
        if row == self.row:
            return
        self.row = row
        k = self.call.of_row(self.call.k, row)
        for kt, keys in zip(self.kt, self.call.key_blocks):
            kt[:-1] = k[keys].T
        self.longest_key = _longest(k)
        self.v[:, :-1] = self.call.of_row(self.call.v, row)

    def queries(self, queries: slice) -> np.ndarray:
        """[scale q, 0]; minus the shift will stand in the place of the 0."""
        q = self._q[: queries.stop - queries.start]
        self.call.scaled_queries(self.row, queries, out=q[:, :-1])
        q[:, -1] = 0
        return q

    def total(self, rows: int) -> np.ndarray:
        total = self._total[:rows]
        total.fill(0)
        return total


def _attend(space: ForwardSpace, queries: slice, y: np.ndarray, logsumexp: np.ndarray) -> None:
    """The output and the logsumexp (in the call's base) of one block of queries."""
    call, base = space.call, space.call.base
    q = space.queries(queries)
    total = space.total(len(q))  # its last column: the sum of the weights
    calm = call.bias is None and _longest(q) * space.longest_key <= CALM
    all_saw = False  # whether each query has seen a key, and so has a maximum
    for keys, kt in zip(call.key_blocks, space.kt):
        seen, mask = call.seen(space.row, queries, keys)
        if not seen:
            continue
        scores = space.scores(q, kt, queries, keys, mask)
        if not calm:
            top = np.maximum.reduce(scores, -1)
            if not (all_saw and top.max() <= SLACK):
                _move_maximum(top, scores, total, q, base)
        base.power(scores, out=scores)
        space.add_product(total, scores, space.v[keys])
        all_saw = all_saw or bool(total[:, -1].all())
    weight = total[:, -1:]
    weight[weight == 0] = 1  # saw nothing: 0, exactly
    np.divide(total[:, :-1], weight, out=y, casting="same_kind")
    np.subtract(base.log(weight[:, 0]), q[:, -1], out=logsumexp)


def _move_maximum(top: np.ndarray, scores: np.ndarray, total: np.ndarray, q: np.ndarray, base: Base) -> None:
    """Subtract `top` where it is the row's first maximum or far above the former one; from all that is there, too."""
    first = (total[:, -1] == 0) & (top > -np.inf)
    rise = np.where(first | (top > SLACK), top, 0)
    scores -= rise[:, None]
    total *= base.power(-np.maximum(rise, 0))[:, None]
    q[:, -1] -= rise


# --- backward ----------------------------------------------------------------------------------------------------


class BackwardSpace(Workspace):
    """With the queries and the cotangents of a row of the batch, and room for a block of keys and of values."""

    def __init__(self, call: Call):
        super().__init__(call)
        n_keys, key_dim, value_dim = call.block[1], call.k.shape[-1], call.v.shape[-1]
        self.q = _aligned(call.q.shape[-2], key_dim + 1, call.inner)
        self.g = _aligned(call.q.shape[-2], value_dim + 1, call.inner)
        self._gscores = _aligned(1, self._scores.size, call.inner)[0]
        self._k = _aligned(n_keys, key_dim, call.inner)
        self._kt, self._vt = (_under_ones(dim, n_keys, call.inner) for dim in (key_dim, value_dim))
        self._gk, self._gv = (of_dtype((n_keys, dim), call.inner) for dim in (key_dim, value_dim))

    def turn_to(self, row: Index, g: np.ndarray, y: np.ndarray, logsumexp: np.ndarray) -> None:
        """To [scale q, -logsumexp] and [g, -D] of this row."""
        if row == self.row:
            return
        self.row = row
        self.call.scaled_queries(row, slice(None), out=self.q[:, :-1])
        np.negative(logsumexp[row], out=self.q[:, -1])
        self.g[:, :-1] = g[row]
        self.g[:, -1] = -np.vecdot(self.g[:, :-1], y[row], dtype=self.g.dtype)

    def keys(self, keys: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """k, [k, 1]^T and [v, 1]^T of these."""
        n = keys.stop - keys.start
        k, kt, vt = self._k[:n], self._kt[:, :n], self._vt[:, :n]
        k[...] = self.call.of_row(self.call.k, self.row, keys)
        kt[:-1] = k.T
        vt[:-1] = self.call.of_row(self.call.v, self.row, keys).T
        return k, kt, vt

    def totals(self, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Where the gradients of a block of keys and of values are added up."""
        gk, gv = self._gk[:rows], self._gv[:rows]
        gk.fill(0)
        gv.fill(0)
        return gk, gv

    def score_gradients(self, g: np.ndarray, vt: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """weights * (g v^T - D)."""
        gscores = _multiply(g, vt, _shaped(self._gscores, *weights.shape))
        gscores *= weights
        return gscores


class Sums:
    """Where one operand's gradient is summed. Parts of the keys that meet in it at the same time have a sum each.

    So every sum is taken in an order that depends on the number of threads alone, and not on who comes first.
    """

    def __init__(self, shape: tuple[int, ...], parts: int, dtype: np.dtype, out: np.ndarray | None = None):
        first = of_dtype(shape, dtype) if out is None or out.dtype != dtype else out
        self.parts = [first, *(of_dtype(shape, dtype) for _ in range(parts - 1))]
        for part in self.parts:
            part.fill(0)

    def of(self, part: int) -> np.ndarray:
        return self.parts[part % len(self.parts)]

    def result(self) -> np.ndarray:
        for part in self.parts[1:]:
            self.parts[0] += part
        return self.parts[0]


def backward(
    g: np.ndarray, residual: Residual, wanted: Sequence[bool], out: Sequence[np.ndarray | None] = (None, None, None)
) -> tuple[np.ndarray | None, ...]:
    """The gradients of q, k, v and bias; those of q, k and v written to `out` where it holds arrays."""
    q, k, v, mask, bias, scale, y, logsumexp = residual
    call = Call(q, k, v, mask, bias, scale)
    groups = list(_rows_by_bias(call).values()) if wanted[3] else [[row] for row in call.rows()]
    parts = call.parts(len(groups), len(call.key_blocks), 1)  # no more than needed: each has sums of its own
    shapes = (call.q.shape, call.k.shape, call.v.shape, call.bias_shape)
    # A part has its own keys and values; all parts meet in the queries, and in a bias that is the same for all keys.
    meeting = (parts, 1, 1, parts if call.bias_shape[-1] == 1 else 1)
    sums = [
        Sums(shape, n, call.inner, given) if want else None
        for shape, n, given, want in zip(shapes, meeting, (*out, None), wanted)
    ]

    def work(units: Iterator[tuple[list[Index], int]]) -> None:
        space = BackwardSpace(call)
        for rows, part in units:
            for row in rows:
                space.turn_to(row, g, y, logsumexp)
                into = _Into(*(s.of(part)[index] if s else None for s, index in zip(sums, call.indices(row))))
                for keys in call.key_blocks[part::parts]:
                    _pull(space, keys, into)

    spread(work, list(itertools.product(groups, range(parts))))
    gq, gk, gv, gbias = (s.result() if s else None for s in sums)
    if gq is not None:
        gq *= scale
    if gbias is not None:
        gbias = gbias.reshape(call.given_bias_shape)
    return tuple(_delivered(x, given, call.dtype) for x, given in zip((gq, gk, gv, gbias), (*out, None)))


def _delivered(x: np.ndarray | None, out: np.ndarray | None, dtype: np.dtype) -> np.ndarray | None:
    """The sum x in the dtype of the call, and in `out` if there is one."""
    if x is None or x is out:
        return x
    if out is None:
        return x.astype(dtype, copy=False)
    out[...] = x
    return out


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


def _pull(space: BackwardSpace, keys: slice, into: _Into) -> None:
    """The part of the gradients that comes through one block of keys and their values.

    With P the weights: dP = g v^T, and the softmax's rule gives dS = P * (dP - rowsum(P * dP)) for the scores, where
    rowsum(P * dP) = rowsum(g * y).
    """
    call = space.call
    k, kt, vt = space.keys(keys)
    gk, gv = space.totals(len(k))
    for queries in call.query_blocks:
        seen, mask = call.seen(space.row, queries, keys)
        if not seen:
            continue
        q, g = space.q[queries], space.g[queries]
        weights = space.scores(q, kt, queries, keys, mask)
        call.base.power(weights, out=weights)
        if into.v is not None:
            space.add_product(gv, weights.T, g[:, :-1])
        if into.q is None and into.k is None and into.bias is None:
            continue
        gscores = space.score_gradients(g, vt, weights)
        if into.bias is not None:
            _add_summed(_block(into.bias, queries, keys), gscores)
        if into.k is not None:
            space.add_product(gk, gscores.T, q[:, :-1])
        if into.q is not None:
            space.add_product(into.q[queries], gscores, k)
    if into.k is not None:
        np.multiply(gk, call.base.log_of_base, out=into.k[keys])  # the queries are divided by it
    if into.v is not None:
        into.v[keys] = gv


def _add_summed(total: np.ndarray, x: np.ndarray) -> None:
    """total += x, summed over the axes over which `total` was broadcast to it."""
    axes = tuple(axis for axis in (0, 1) if total.shape[axis] < x.shape[axis])
    total += x.sum(axes, keepdims=True) if axes else x
