"""Blockwise attention: against the reference and the plain kernel, whatever is hidden, broadcast, odd or empty."""

import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import minigrad as mg
from minigrad.kernels import attention as plain
from minigrad.kernels import attention_blockwise as blockwise
from minigrad.kernels import pieces

INF, NAN = np.inf, np.nan
TOLERANCE = {np.float16: 4e-3, np.float32: 2e-5, np.float64: 1e-12}


def normal(*shape, seed=0, dtype=float):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


@pytest.fixture
def small_blocks(monkeypatch):
    """Many blocks in little time, none of them a divisor of the shapes below."""
    monkeypatch.setattr(blockwise, "block_shape", lambda itemsize: (6, 6))


@pytest.fixture
def always_blockwise(small_blocks, monkeypatch):
    monkeypatch.setattr(plain, "is_long", lambda q, k: q.size > 0 and k.size > 0)


def run(f, *xs, cotangent=None):
    """Value, and gradients of <c, value> for a random or given c."""
    ts = [mg.tensor(x, requires_grad=True) for x in xs]
    y = f(*ts)
    y.backward(normal(*y.shape, seed=7, dtype=y.dtype) if cotangent is None else cotangent)
    return y.data, [t.grad for t in ts]


def oracle(q, k, v, mask=None, bias=None, scale=None):
    """One query at a time, in double precision."""
    q, k, v = (np.asarray(x, float) for x in (q, k, v))
    batch = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    q, k, v = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (q, k, v))
    scores = (*batch, q.shape[-2], k.shape[-2])
    mask = np.broadcast_to(True if mask is None else mask, scores)
    bias = np.broadcast_to(0.0 if bias is None else np.asarray(bias, float), scores)
    y = np.zeros((*batch, q.shape[-2], v.shape[-1]))
    for i in np.ndindex(*batch, q.shape[-2]):
        seen = mask[i]
        if seen.any():
            s = k[i[:-1]][seen] @ q[i] * (q.shape[-1] ** -0.5 if scale is None else scale) + bias[i][seen]
            e = np.exp(s - s.max())
            y[i] = e @ v[i[:-1]][seen] / e.sum()
    return y


def masks(queries, keys, *batch):
    """Masks of every shape: hidden rows, columns and blocks, causal either way, random, broadcast over either axis."""
    rng = np.random.default_rng(1)
    dead = rng.random((*batch, queries, keys)) < 0.6
    dead[..., 3, :] = False
    dead[..., :, 5] = False
    return {
        "none": None,
        "causal": np.tri(queries, keys, keys - queries, dtype=bool),
        "strictly causal": np.tri(queries, keys, -1, dtype=bool),
        "band": np.tri(queries, keys, 3, bool) & ~np.tri(queries, keys, -3, bool),
        "random": rng.random((queries, keys)) < 0.5,
        "dead rows and columns": dead,
        "padding": rng.random((*batch[:1], *(1 for _ in batch[1:]), 1, keys)) < 0.7,
        "no queries": rng.random((queries, 1)) < 0.5,
        "nothing": np.zeros((1, 1), bool),
        "all": np.ones((queries, keys), bool),
    }


# --- values and gradients ----------------------------------------------------------------------------------------

SHAPES = {
    "heads": [(2, 3, 23, 4), (2, 3, 37, 4), (2, 3, 37, 6)],
    "one row": [(23, 4), (37, 4), (37, 1)],
    "shared keys": [(2, 3, 23, 4), (2, 1, 37, 4), (37, 3)],
    "one query": [(2, 3, 4, 4), (2, 3, 1, 4), (2, 3, 1, 2)],
    "one block": [(2, 5, 4), (2, 6, 4), (2, 6, 2)],
    "values alone in a batch": [(23, 4), (37, 4), (3, 37, 2)],
}
BIASES = {
    "none": lambda *scores: None,
    "full": lambda *scores: scores,
    "by query and key": lambda *scores: scores[-2:],
    "by key": lambda *scores: scores[-1:],
    "by query": lambda *scores: (scores[-2], 1),
    "by head": lambda *scores: (*scores[1:-2], 1, 1) if len(scores) > 3 else (),
}


@pytest.mark.parametrize("calm", [0.0, blockwise.CALM])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.usefixtures("always_blockwise")
def test_with_and_without_a_running_maximum(calm, shape, monkeypatch):
    monkeypatch.setattr(blockwise, "CALM", calm)
    monkeypatch.setattr(blockwise, "SLACK", 0.5)
    q, k, v = (3 * normal(*s, seed=i) for i, s in enumerate(SHAPES[shape]))
    for name, mask in masks(max(q.shape[-2], 4), max(k.shape[-2], 6)).items():
        mask = None if mask is None else mask[..., : q.shape[-2], : k.shape[-2]]
        y = mg.attention(q, k, v, mask=mask).data
        np.testing.assert_allclose(y, oracle(q, k, v, mask), rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.usefixtures("always_blockwise")
def test_equals_the_loop_and_the_reference(shape, bias, dtype, threads):
    q, k, v = (normal(*s, seed=i, dtype=dtype) for i, s in enumerate(SHAPES[shape]))
    batch = np.broadcast_shapes(q.shape[:-2], k.shape[:-2])
    bias_shape = BIASES[bias](*batch, q.shape[-2], k.shape[-2])
    b = [] if bias_shape is None else [normal(*bias_shape, seed=9, dtype=dtype)]
    every = list(masks(max(q.shape[-2], 4), max(k.shape[-2], 6), *batch).items())
    for name, mask in every[threads % 3 :: 3]:  # the numbers of threads, 1, 2 and 3, share the masks
        mask = None if mask is None else mask[..., : q.shape[-2], : k.shape[-2]]  # built larger, for the holes to fit
        options = {"mask": mask, "scale": 0.7}

        def f(attention, q, k, v, b=None, options=options):
            return attention(q, k, v, bias=b, **options)

        y, grads = run(lambda *xs: f(mg.attention, *xs), q, k, v, *b)
        _, expected_grads = run(lambda *xs: f(mg.attention.reference, *xs), q, k, v, *b)
        tolerance = TOLERANCE[dtype]
        np.testing.assert_allclose(
            y, oracle(q, k, v, mask, b[0] if b else None, 0.7), rtol=tolerance, atol=tolerance, err_msg=name
        )
        assert y.dtype == dtype
        for g, expected_g in zip(grads, expected_grads):
            assert g.dtype == dtype
            np.testing.assert_allclose(g, expected_g, rtol=10 * tolerance, atol=10 * tolerance, err_msg=name)


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (3,), (0, 2), (1, 3)])
@pytest.mark.usefixtures("always_blockwise")
def test_gradients_only_where_they_are_asked_for(wanted, threads):
    operands = [normal(2, 13, 4), normal(2, 17, 4), normal(2, 17, 3), normal(13, 17)]

    def f(*some):
        filled = list(operands)
        for i, x in zip(wanted, some):
            filled[i] = x
        return mg.attention(*filled[:3], bias=filled[3])

    _, full = run(lambda q, k, v, b: mg.attention(q, k, v, bias=b), *operands)
    _, grads = run(f, *(operands[i] for i in wanted))
    for i, g in zip(wanted, grads):
        np.testing.assert_allclose(g, full[i], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtypes", [("e", "e", "e"), ("f", "d", "f"), ("f", "f", "d"), ("e", "f", "e")])
@pytest.mark.usefixtures("always_blockwise")
def test_dtypes_promote_as_in_the_plain_form(dtypes):
    q, k, v = (normal(*s, seed=i).astype(t) for i, (s, t) in enumerate(zip([(2, 13, 4)] * 3, dtypes)))
    y, grads = run(mg.attention, q, k, v)
    expected, expected_grads = run(mg.attention.reference, *(x.astype(float) for x in (q, k, v)))
    assert y.dtype == np.result_type(q, k, v)
    tolerance = 10 * max(TOLERANCE[x.dtype.type] for x in (q, k, v))
    np.testing.assert_allclose(y, expected, rtol=tolerance, atol=tolerance)
    for g, expected_g, x in zip(grads, expected_grads, (q, k, v)):
        assert g.dtype == x.dtype
        np.testing.assert_allclose(g, expected_g, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("always_blockwise")
def test_second_order_is_the_references(threads):
    q, k, v, b = normal(2, 9, 3), normal(2, 11, 3), normal(2, 11, 2), normal(9, 11)
    mask = masks(9, 11)["causal"]

    def loss(attention, q, k, v, b):
        return (attention(q, k, v, mask=mask, bias=b) ** 2).sum()

    def second(attention):
        inner = mg.grad(lambda *xs: loss(attention, *xs), argnums=(0, 1, 2, 3))
        return mg.grad(lambda *xs: sum((g**2).sum() for g in inner(*xs)), argnums=(0, 1, 2, 3))(q, k, v, b)

    for g, expected in zip(second(mg.attention), second(mg.attention.reference)):
        np.testing.assert_allclose(g, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.usefixtures("always_blockwise")
def test_finite_differences(threads):
    q, k, v, b = normal(2, 6, 3), normal(2, 9, 3), normal(2, 9, 2), normal(6, 9)
    mask = masks(6, 9)["dead rows and columns"]
    assert mg.gradcheck(lambda q, k, v, b: mg.attention(q, k, v, mask=mask, bias=b), (q, k, v, b))


@pytest.mark.usefixtures("always_blockwise")
@pytest.mark.parametrize("heads", [1, 2])
def test_self_attention_takes_it_too(heads, threads):
    x, wq, wk, wv = normal(2, 23, 6), normal(6, 6), normal(6, 6, seed=1), normal(6, 4, seed=2)
    mask = masks(23, 23)["causal"]
    y, grads = run(lambda *xs: mg.self_attention(*xs, heads=heads, mask=mask), x, wq, wk, wv)
    expected, expected_grads = run(lambda *xs: mg.self_attention.reference(*xs, heads=heads, mask=mask), x, wq, wk, wv)
    np.testing.assert_allclose(y, expected, rtol=1e-11, atol=1e-12)
    for g, expected_g in zip(grads, expected_grads):
        np.testing.assert_allclose(g, expected_g, rtol=1e-11, atol=1e-11)


@pytest.mark.usefixtures("always_blockwise")
def test_gradients_of_halves_that_are_large_only_before_they_are_scaled(threads):
    """Sums are taken in float32 and scaled there, also where self-attention gives an array of halves for them."""
    x, *weights = (normal(*s, seed=i, dtype=np.float16) for i, s in enumerate([(40, 16), (16, 16), (16, 16), (16, 16)]))
    weights[1] *= 4
    cotangent = 2000 * normal(40, 16, seed=8, dtype=np.float16)
    tensors = [mg.tensor(a, requires_grad=True) for a in (x, *weights)]
    mg.self_attention(*tensors, heads=2, scale=1e-3).backward(cotangent)
    exact = [mg.tensor(a.astype(float), requires_grad=True) for a in (x, *weights)]
    mg.self_attention.reference(*exact, heads=2, scale=1e-3).backward(cotangent.astype(float))
    for t, e in zip(tensors, exact):
        np.testing.assert_allclose(t.grad, e.grad, rtol=0.05, atol=0.02 * abs(e.grad).max())


# --- the plain form, in pieces -----------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_pieces_of_the_plain_form_give_the_same_bits(shape, bias, dtype, threads, monkeypatch):
    q, k, v = (normal(*s, seed=i, dtype=dtype) for i, s in enumerate(SHAPES[shape]))
    batch = np.broadcast_shapes(q.shape[:-2], k.shape[:-2])
    bias_shape = BIASES[bias](*batch, q.shape[-2], k.shape[-2])
    b = [] if bias_shape is None else [normal(*bias_shape, seed=9, dtype=dtype)]
    for name, mask in masks(max(q.shape[-2], 4), max(k.shape[-2], 6), *batch).items():
        mask = None if mask is None else mask[..., : q.shape[-2], : k.shape[-2]]
        runs = []
        for wide in (2**60, 1):
            monkeypatch.setattr(pieces, "LEAST", wide)
            monkeypatch.setattr(pieces, "WIDE", wide)
            runs.append(run(lambda q, k, v, b=None, mask=mask: mg.attention(q, k, v, bias=b, mask=mask), q, k, v, *b))
        (y, grads), (y_pieces, grads_pieces) = runs
        np.testing.assert_array_equal(y, y_pieces, err_msg=name)
        for g, g_pieces in zip(grads, grads_pieces):
            np.testing.assert_array_equal(g, g_pieces, err_msg=name)


def test_pieces_are_taken_and_are_wanted_ones_alone(monkeypatch, threads):
    monkeypatch.setattr(pieces, "LEAST", 1)
    cut = []
    monkeypatch.setattr(pieces, "spread", lambda work, units, threads: (cut.append(len(units)), work(iter(units))))
    q, k, v = normal(5, 3, 4), normal(5, 6, 4), normal(5, 6, 2)
    _, full = run(mg.attention, q, k, v)
    assert cut == ([threads] * 2 if threads > 1 else [])
    for i, part in enumerate(
        [lambda q: mg.attention(q, k, v), lambda k: mg.attention(q, k, v), lambda v: mg.attention(q, k, v)]
    ):
        np.testing.assert_allclose(run(part, (q, k, v)[i])[1][0], full[i], rtol=1e-13)


# --- what is hidden, what is large -------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.usefixtures("always_blockwise")
def test_padding_changes_nothing_and_gets_nothing(bad, dtype, threads):
    q, k, v = (normal(2, n, d, seed=i, dtype=dtype) for i, (n, d) in enumerate([(23, 4), (37, 4), (37, 2)]))
    queries, keys = np.ones((2, 23), bool), np.ones((2, 37), bool)
    queries[0, 11:], keys[0, 19:], keys[1, 4], queries[1, 2] = False, False, False, False
    mask = keys[:, None, :] & queries[:, :, None]
    c = normal(2, 23, 2, seed=3, dtype=dtype) * queries[..., None]
    y, grads = run(lambda *xs: mg.attention(*xs, mask=mask), q, k, v, cotangent=c)
    dirty = [np.where(real[..., None], x, x.dtype.type(bad)) for real, x in [(queries, q), (keys, k), (keys, v)]]
    y_dirty, grads_dirty = run(lambda *xs: mg.attention(*xs, mask=mask), *dirty, cotangent=c)
    np.testing.assert_array_equal(y, y_dirty)
    assert not y[~queries].any()
    for g, g_dirty, real in zip(grads, grads_dirty, [queries, keys, keys]):
        np.testing.assert_array_equal(g, g_dirty)
        assert not g[~real].any()
    np.testing.assert_allclose(y[0, :11], oracle(q[0, :11], k[0, :19], v[0, :19]), atol=TOLERANCE[dtype])


@pytest.mark.filterwarnings("error")
@pytest.mark.usefixtures("always_blockwise")
def test_a_bias_of_minus_infinity_is_a_mask(threads):
    q, k, v = normal(2, 23, 4), normal(2, 37, 4), normal(2, 37, 3)
    for name, mask in masks(23, 37).items():
        if mask is None:
            continue
        bias = np.where(mask, 0.0, -INF)
        y, grads = run(lambda *xs, mask=mask: mg.attention(*xs, mask=mask), q, k, v)
        y_bias, grads_bias = run(lambda *xs, bias=bias: mg.attention(*xs, bias=bias), q, k, v)
        np.testing.assert_allclose(y, y_bias, atol=1e-15, err_msg=name)
        for g, g_bias in zip(grads, grads_bias):
            np.testing.assert_allclose(g, g_bias, atol=1e-14, err_msg=name)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("level", [-1e5, -300.0, 300.0, 1e5])
@pytest.mark.parametrize("slope", [-40.0, 0.0, 40.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.usefixtures("always_blockwise")
def test_scores_that_would_overflow_or_vanish(level, slope, dtype):
    """Scores of any size, rising or falling from block to block, early ones hidden from some."""
    q, k, v = normal(23, 4, dtype=dtype), normal(37, 4, dtype=dtype), normal(37, 3, dtype=dtype)
    bias = (level + slope * np.arange(37) + np.zeros((23, 1))).astype(dtype)
    mask = np.tri(23, 37, 14, dtype=bool)[:, ::-1]  # the first sees the last keys alone
    y, grads = run(lambda q, k, v, b: mg.attention(q, k, v, mask=mask, bias=b), q, k, v, bias)
    expected, expected_grads = run(
        lambda q, k, v, b: mg.attention.reference(q, k, v, mask=mask, bias=b),
        *(x.astype(float) for x in (q, k, v, bias)),
    )
    tolerance = max(TOLERANCE[dtype], 4 * np.finfo(dtype).eps * abs(bias).max())  # as exact as scores of that size are
    np.testing.assert_allclose(y, expected, rtol=tolerance, atol=tolerance)
    for g, expected_g in zip(grads, expected_grads):
        np.testing.assert_allclose(g, expected_g, rtol=10 * tolerance, atol=10 * tolerance)


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:overflow")
@pytest.mark.usefixtures("always_blockwise")
def test_nan_is_not_swallowed():
    q, k, v = normal(23, 4), normal(37, 4), normal(37, 3)
    q[3, 1] = NAN
    assert (np.isnan(mg.attention(q, k, v).data).any(-1) == (np.arange(23) == 3)).all()
    k[30, 2] = INF
    np.testing.assert_array_equal(
        np.isnan(mg.attention(q, k, v).data), np.isnan(plain_attention(q, k, v)), err_msg="infinite score"
    )


def plain_attention(q, k, v):
    with np.errstate(all="ignore"):
        scores = q @ k.T / 2
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True) @ v


# --- layouts, sizes, threads, memory -----------------------------------------------------------------------------


@pytest.mark.usefixtures("always_blockwise")
def test_strides_do_not_matter_and_nothing_is_written_to(threads):
    q, k, v = normal(2, 23, 3, 4).swapaxes(1, 2), normal(4, 37, 3, 2).T, normal(2, 3, 74, 5)[:, :, ::-2]
    k = np.ascontiguousarray(k.transpose(0, 1, 2, 3)).astype(float)[..., ::-1]
    bias, mask = normal(37, 23).T, (normal(37, 23) > 0).T
    copies = [x.copy() for x in (q, k, v, bias, mask)]
    y, grads = run(lambda q, k, v, b: mg.attention(q, k, v, bias=b, mask=mask), q, k, v, bias)
    y_copy, grads_copy = run(lambda q, k, v, b: mg.attention(q, k, v, bias=b, mask=copies[4]), *copies[:4])
    np.testing.assert_array_equal(y, y_copy)
    for g, g_copy in zip(grads, grads_copy):
        np.testing.assert_array_equal(g, g_copy)
    for x, copy in zip((q, k, v, bias, mask), copies):
        np.testing.assert_array_equal(x, copy)


@pytest.mark.parametrize(
    "shapes",
    [
        [(0, 5, 4), (0, 7, 4), (0, 7, 3)],
        [(2, 0, 4), (2, 7, 4), (2, 7, 3)],
        [(2, 5, 4), (2, 0, 4), (2, 0, 3)],
        [(2, 5, 0), (2, 7, 0), (2, 7, 3)],
        [(2, 5, 4), (2, 7, 4), (2, 7, 0)],
    ],
)
@pytest.mark.parametrize("with_mask", [False, True])
@pytest.mark.usefixtures("small_blocks")
def test_nothing_at_all(shapes, with_mask, monkeypatch, threads):
    monkeypatch.setattr(plain, "is_long", lambda q, k: True)
    q, k, v = (normal(*s) for s in shapes)
    mask = np.ones((q.shape[-2], k.shape[-2]), bool) if with_mask else None
    y, grads = run(lambda *xs: mg.attention(*xs, mask=mask), q, k, v)
    expected, expected_grads = run(lambda *xs: mg.attention.reference(*xs, mask=mask), q, k, v)
    np.testing.assert_allclose(y, expected, atol=1e-12)
    for g, expected_g in zip(grads, expected_grads):
        np.testing.assert_allclose(g, expected_g, atol=1e-12)


@pytest.mark.usefixtures("always_blockwise")
def test_the_same_bits_every_time(threads):
    q, k, v, b = normal(3, 23, 4), normal(3, 37, 4), normal(3, 37, 3), normal(37)
    first = run(lambda q, k, v, b: mg.attention(q, k, v, bias=b), q, k, v, b)
    for _ in range(5):
        y, grads = run(lambda q, k, v, b: mg.attention(q, k, v, bias=b), q, k, v, b)
        np.testing.assert_array_equal(y, first[0])
        for g, g_first in zip(grads, first[1]):
            np.testing.assert_array_equal(g, g_first)


@pytest.mark.usefixtures("always_blockwise")
def test_several_users_threads_at_once(threads):
    operands = [[normal(2, 23, 4, seed=i + 10 * j) for i in range(3)] for j in range(4)]
    expected = [run(mg.attention, *xs) for xs in operands]
    found = [None] * len(operands)

    def work(i):
        found[i] = [run(mg.attention, *operands[i]) for _ in range(5)]

    users = [threading.Thread(target=work, args=(i,)) for i in range(len(operands))]
    for t in users:
        t.start()
    for t in users:
        t.join()
    for runs, (y_expected, grads_expected) in zip(found, expected):
        for y, grads in runs:
            np.testing.assert_allclose(y, y_expected, atol=1e-13)
            for g, g_expected in zip(grads, grads_expected):
                np.testing.assert_allclose(g, g_expected, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.usefixtures("always_blockwise")
def test_products_in_strips(dtype, threads, monkeypatch):
    """Blocks of which each product has whole strips of rows and some rows more."""
    monkeypatch.setattr(blockwise, "block_shape", lambda itemsize: (30, 17))
    monkeypatch.setattr(blockwise, "small_product", lambda: 2000)
    q, k, v = (normal(2, n, d, seed=i, dtype=dtype) for i, (n, d) in enumerate([(70, 4), (50, 4), (50, 3)]))
    mask = np.tri(70, 50, -4, dtype=bool)
    y, grads = run(lambda *xs: mg.attention(*xs, mask=mask), q, k, v)
    expected, expected_grads = run(lambda *xs: mg.attention.reference(*xs, mask=mask), q, k, v)
    for x, expected_x in zip((y, *grads), (expected, *expected_grads)):
        np.testing.assert_allclose(x, expected_x, rtol=10 * TOLERANCE[dtype], atol=10 * TOLERANCE[dtype])


@pytest.mark.parametrize("limit", [0, 10**6])
def test_blocks_of_real_size(limit, monkeypatch):
    monkeypatch.setattr(blockwise, "small_product", lambda: limit)
    q, k, v = (normal(2, n, 16, seed=i, dtype=np.float32) for i, n in enumerate([1100, 3000, 3000]))
    mask = np.tri(1100, 3000, 1900, dtype=bool)
    assert plain.is_long(q, k)
    y, grads = run(lambda *xs: mg.attention(*xs, mask=mask), q, k, v)
    expected, residual = plain_form(q, k, v, mask)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    g = normal(*y.shape, seed=7, dtype=np.float32)
    for grad, expected_g in zip(grads, plain.backward(g, residual, (True, True, True, False), 0.25)):
        np.testing.assert_allclose(grad, expected_g, rtol=1e-4, atol=2e-5)


def plain_form(q, k, v, mask):
    whole, plain.is_long = plain.is_long, lambda q, k: False
    try:
        return plain.forward(q, k, v, mask, None, 0.25)
    finally:
        plain.is_long = whole


def test_memory_is_linear_in_n():
    """Forward and backward of 16,384 vectors would need 2 GB; what comes and goes must stay under 40 MB."""
    program = """
        import resource
        import numpy as np
        import minigrad as mg
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        def step(n):
            q, k, v = (mg.tensor(np.ones((1, n, 16), np.float32), requires_grad=True) for _ in range(3))
            mg.attention(q, k, v, bias=np.zeros((1, n), np.float32)).sum().backward()
        step(128)
        before = peak()
        step(16384)
        print(peak() - before)
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    assert float(run.stdout) < 40
