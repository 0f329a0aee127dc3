"""Kernels that cut their rows into pieces, against their references and against whole ones, however little there is."""

import threading
from pathlib import Path

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.check.cases import load_cases
from minigrad.kernels import pieces

FUSED = ("linear", "cross_entropy", "layer_norm", "attention", "self_attention")
CASES = [case for case in load_cases(Path(__file__).parent) if case.name in FUSED]
TOLERANCE = {np.dtype(np.float16): 2e-2, np.dtype(np.float32): 3e-5, np.dtype(np.float64): 1e-12}


@pytest.fixture
def always_cut(monkeypatch):
    monkeypatch.setattr(pieces, "LEAST", 1)
    monkeypatch.setattr(pieces, "WIDE", 1)


def normal(*shape, seed=0, dtype=float):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def run(f, *xs):
    """Value, and gradients of <c, value> for a random c."""
    ts = [mg.tensor(x, requires_grad=True) for x in xs]
    y = f(*ts)
    y.backward(normal(*y.shape, seed=7, dtype=y.dtype))
    return [y.data, *(t.grad for t in ts)]


def assert_close(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        bound = TOLERANCE[b.dtype]
        np.testing.assert_allclose(a, b, rtol=bound, atol=bound * max(1, np.abs(b).max(initial=0)))


# --- where rows are cut ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leading", [(1,), (2,), (7,), (3, 5), (1, 5), (2, 1), (4, 3, 2), (0, 3), (3, 0), ()])
def test_pieces_are_all_rows_once(leading, threads, always_cut):
    n = int(np.prod(leading))
    cut = pieces.cut(leading, 10)
    if threads == 1 or n < threads:
        assert cut is None
        return
    assert len(cut) == threads
    np.testing.assert_array_equal(np.concatenate([np.arange(n)[piece] for piece in cut]), np.arange(n))
    if leading[0] >= threads:  # between examples
        assert all(piece.start % (n // leading[0]) == 0 for piece in cut)


def test_all_kernels_cut_a_batch_at_the_same_places(threads, always_cut):
    rows, batch = pieces.cut((7, 5), 10), pieces.cut_batch((7, 2), 2, 10)
    assert (rows is None) == (batch is None) == (threads == 1)
    if rows is not None:
        seen = []
        batch.each(lambda part: seen.append(part(np.arange(7)[:, None, None, None]).ravel().tolist()))
        assert sorted(seen) == [np.arange(7)[piece.start // 5 : piece.stop // 5].tolist() for piece in rows]


def test_little_work_stays_whole(threads):
    assert pieces.cut((100, 100), pieces.LEAST - 1) is None
    assert (pieces.cut((100, 100), pieces.LEAST) is None) == (threads == 1)


def test_each_piece_has_its_thread_and_its_place(threads, always_cut):
    barrier = threading.Barrier(threads, timeout=20)

    def work(piece):
        barrier.wait()
        return piece, threading.get_ident()

    found = pieces.each(work, list(range(threads)), 10)
    assert [piece for piece, _ in found] == list(range(threads))
    assert len({thread for _, thread in found}) == threads


# --- kernels -----------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_case_as_a_whole_and_in_pieces(case, threads, monkeypatch):
    def arrays(y):
        return mg.concatenate([part.reshape(-1) for part in (y if isinstance(y, (list, tuple)) else [y])])

    whole = run(lambda *xs: arrays(case(*xs)), *case.arrays)
    monkeypatch.setattr(pieces, "LEAST", 1)
    for wide in (1, 2**60):
        monkeypatch.setattr(pieces, "WIDE", wide)
        assert_close(run(lambda *xs: arrays(case(*xs)), *case.arrays), whole)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("leading", [(7,), (5, 3), (2, 3, 4), (1, 9), (0, 3)])
@pytest.mark.parametrize("strided", [False, True])
def test_linear(leading, dtype, strided, threads, always_cut):
    x, weight, bias = normal(*leading, 5, dtype=dtype), normal(5, 6, dtype=dtype), normal(6, dtype=dtype)
    if strided:
        x, weight = np.repeat(x, 2, -1)[..., ::2], np.asfortranarray(weight)
    for activation in (None, "relu"):
        found = run(lambda x, w, b, a=activation: mg.linear(x, w, b, a), x, weight, bias)
        assert_close(found, run(lambda x, w, b, a=activation: mg.linear.reference(x, w, b, a), x, weight, bias))
    assert_close(run(mg.linear, x, weight), run(mg.linear.reference, x, weight))
    assert_close(run(lambda w: mg.linear(x, w), weight), run(lambda w: mg.linear.reference(x, w), weight))


def test_linear_of_two_dtypes(threads, always_cut):
    x, weight = normal(6, 5, dtype=np.float32), normal(5, 3)
    assert_close(run(mg.linear, x, weight), run(mg.linear.reference, x, weight))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1}, {"reduction": "none"}, {"ignore_index": 2}])
def test_cross_entropy(dtype, options, threads, always_cut):
    labels = np.random.default_rng(0).integers(0, 4, (5, 3))
    mask = np.arange(3) < np.array([[3], [2], [0], [1], [3]])
    for scale in (1, 50):  # rows as they are, and some that must be shifted by their largest
        logits = (scale * normal(5, 3, 4)).astype(dtype)
        for hidden in (None, mask):
            found = run(lambda z, m=hidden: nn.cross_entropy(z, labels, mask=m, **options), logits)
            expected = run(
                lambda z, m=hidden: mg.cross_entropy.reference(z, labels, mask=m, **options), logits.astype(float)
            )
            assert_close(found, [x.astype(dtype) for x in expected])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("given", [(True, True), (True, False), (False, True), (False, False)])
def test_layer_norm(dtype, given, threads, always_cut):
    x, weight, bias = normal(5, 3, 8, dtype=dtype), normal(8, dtype=dtype), normal(8, seed=1, dtype=dtype)
    parameters = [p for p, there in zip((weight, bias), given) if there]

    def loss(layer_norm):
        def f(x, *ps):
            ps = iter(ps)
            return layer_norm(x, *(next(ps) if there else None for there in given))

        return f

    assert_close(run(loss(mg.layer_norm), x, *parameters), run(loss(mg.layer_norm.reference), x, *parameters))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("batch", [(5,), (1,), (4, 2), (0,)])
@pytest.mark.parametrize("hidden", ["nothing", "padding", "causal", "everything"])
@pytest.mark.parametrize("heads", [1, 2])
def test_self_attention(dtype, batch, hidden, heads, threads, always_cut):
    n = 6
    x = normal(*batch, n, 4, dtype=dtype)
    weights = [normal(4, w, seed=w, dtype=dtype) for w in (6, 6, 8)]
    valid = np.arange(n) < np.random.default_rng(0).integers(1, n, (*batch, 1))
    mask = {
        "nothing": None,
        "padding": (valid[..., None, :] & valid[..., :, None])[..., None, :, :],
        "causal": np.tril(np.ones((n, n), bool)),
        "everything": np.zeros((n, n), bool),
    }[hidden]
    bias = normal(heads, n, n, dtype=dtype)

    def loss(attend):
        return lambda x, *rest: attend(x, *rest[:3], heads=heads, mask=mask, bias=rest[3])

    found = run(loss(mg.self_attention), x, *weights, bias)
    assert_close(found, run(loss(mg.self_attention.reference), x, *weights, bias))


def test_sums_over_pieces_are_the_same_in_every_run(threads, always_cut):
    x, weight = normal(50, 8, dtype=np.float32), normal(8, 8, dtype=np.float32)
    first = run(mg.linear, x, weight)
    for _ in range(20):
        for a, b in zip(first, run(mg.linear, x, weight)):
            np.testing.assert_array_equal(a, b)


def test_an_error_in_a_piece_is_raised(threads, always_cut):
    labels = np.array([0, 1, 2, 9])
    with pytest.raises(IndexError, match="label 9 is out of range"):
        nn.cross_entropy(normal(4, 3), labels)
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        mg.linear(np.full((4, 2), 1e308), np.eye(2), np.full(2, 1e308))
