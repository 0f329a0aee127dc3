"""Fused ops: kernel against reference and against torch; masks, padding, labels that do not count."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.engine import OPS
from minigrad.kernels import self_attention as self_attention_kernel
from minigrad.kernels.self_attention import folds
from minigrad.op import FusedOp

INF, NAN = np.inf, np.nan


def normal(*shape, seed=0, dtype=float):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def leaf(x):
    return mg.tensor(x, requires_grad=True)


def run(f, *xs, cotangent=None):
    """Value, and gradients of <c, value> for a random or given c."""
    ts = [leaf(x) for x in xs]
    y = f(*ts)
    y.backward(normal(*y.shape, seed=7) if cotangent is None else cotangent)
    return y.data, [np.zeros(t.shape) if t.grad is None else t.grad for t in ts]


# --- kernel and reference ----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:divide by zero")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kernel_equals_reference(cases, dtype):
    """Value and gradients, on every case of every op that has a reference."""
    checked = set()
    for case in cases.CASES:
        reference = getattr(case.function, "reference", None)
        if reference is None:
            continue
        checked.add(case.name)
        xs = [x.astype(dtype) for x in case.arrays]
        y, grads = run(case, *xs)
        y_reference, grads_reference = run(lambda *xs, case=case, f=reference: case.with_arrays(f, xs), *xs)
        tolerance = 2e-5 if dtype == np.float32 else 1e-12
        assert y.dtype == y_reference.dtype == dtype
        np.testing.assert_allclose(y, y_reference, rtol=tolerance, atol=tolerance, err_msg=str(case))
        for g, g_reference in zip(grads, grads_reference):
            np.testing.assert_allclose(g, g_reference, rtol=tolerance, atol=tolerance, err_msg=str(case))
    assert checked == {name for name, op in OPS.items() if getattr(op, "reference", None)}
    assert checked >= {name for name, op in OPS.items() if isinstance(op, FusedOp)}


@pytest.mark.parametrize("shape", [(7, 33), (3, 5, 64), (1, 1)])
def test_layer_norm_of_larger_float32_rows(shape):
    x = normal(*shape, dtype=np.float32) * 3 + 5
    y, (g,) = run(mg.layer_norm, x)
    y64, (g64,) = run(mg.layer_norm, x.astype(float))
    assert y.dtype == g.dtype == np.float32
    np.testing.assert_allclose(y, y64, atol=2e-5)
    np.testing.assert_allclose(g, g64, atol=2e-5)


def test_gradients_only_where_they_are_asked_for():
    q, k, v, b = normal(2, 3), normal(4, 3), normal(4, 2), normal(2, 4)
    _, full = run(lambda q, k, v, b: mg.attention(q, k, v, bias=b), q, k, v, b)
    for i, part in enumerate(
        [
            lambda q: mg.attention(q, k, v, bias=b),
            lambda k: mg.attention(q, k, v, bias=b),
            lambda v: mg.attention(q, k, v, bias=b),
            lambda b: mg.attention(q, k, v, bias=b),
        ]
    ):
        np.testing.assert_allclose(run(part, (q, k, v, b)[i])[1][0], full[i], rtol=1e-13)


@pytest.mark.parametrize("vectors", [2, 9])
def test_gradients_of_self_attention_only_where_they_are_asked_for(vectors):
    """In both forms: with few vectors, and folded."""
    xs = [normal(vectors, 3), *(normal(3, 3, seed=s) for s in range(3)), normal(vectors, vectors)]
    _, full = run(lambda x, q, k, v, b: mg.self_attention(x, q, k, v, bias=b), *xs)
    for i, x in enumerate(xs):

        def part(t, i=i):
            *first, b = [t if i == j else other for j, other in enumerate(xs)]
            return mg.self_attention(*first, bias=b)

        np.testing.assert_allclose(run(part, x)[1][0], full[i], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize("dim", [1, 4, 12])
@pytest.mark.parametrize("width", [4, 8, 12])
@pytest.mark.parametrize("worth", [0, 700])
def test_self_attention_is_folded_where_that_saves_multiplications(heads, dim, width, worth, monkeypatch):
    monkeypatch.setattr(self_attention_kernel, "WORTH", worth)
    for n in (0, 1, dim, 2 * dim, 5 * dim, 100):
        apart = n * dim * 2 * width
        folded = n * dim * dim + dim * width * dim
        pays = heads == 1 and dim <= width and folded + worth < apart
        assert folds(normal(n, dim), normal(dim, width), normal(dim, width), normal(dim, 3), heads) == pays


@pytest.mark.parametrize("x_dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("dtypes", ["eee", "fff", "ddd", "ffd", "dff", "fdf", "??f", "bbd"])
def test_self_attention_of_any_dtypes(x_dtype, dtypes):
    """As exact as the reference, in whichever dtype that computes: in float64 it has no error to speak of."""
    x = normal(12, 3, dtype=x_dtype)
    weights = [(4 * normal(3, 3, seed=s)).astype(dtype) for s, dtype in enumerate(dtypes)]
    y, expected = mg.self_attention(x, *weights), mg.self_attention.reference(x, *weights)
    assert y.dtype == expected.dtype
    exact = mg.self_attention.reference(*(a.astype(float) for a in (x, *weights))).data
    error, allowed = (abs(a.data - exact).max() for a in (y, expected))
    assert error <= 4 * allowed + 1e-6 * (np.finfo(y.dtype).eps > 1e-7) + 1e-14


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bias_dtype", [np.float16, np.float32, np.float64])
def test_self_attention_with_a_bias_of_another_dtype(dtype, bias_dtype):
    xs = [normal(9, 3, dtype=dtype), *(normal(3, 4, seed=s, dtype=dtype) for s in range(3))]
    bias = normal(9, 9, dtype=bias_dtype)
    found, grads = run(lambda *xs: mg.self_attention(*xs[:4], bias=xs[4]), *xs, bias)
    expected, expected_grads = run(lambda *xs: mg.self_attention.reference(*xs[:4], bias=xs[4]), *xs, bias)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    for g, expected_g in zip(grads, expected_grads):
        assert g.dtype == expected_g.dtype
        np.testing.assert_allclose(g, expected_g, rtol=2e-3, atol=2e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bias_dtype", [bool, np.int8, np.int64])
@pytest.mark.parametrize("heads", [1, 2])
def test_self_attention_with_a_bias_of_integers(dtype, bias_dtype, heads):
    xs = [normal(9, 2, dtype=dtype), *(normal(2, 4, seed=s, dtype=dtype) for s in range(3))]
    bias = (normal(9, 9) > 0).astype(bias_dtype)
    found = mg.self_attention(*xs, heads=heads, bias=bias)
    expected = mg.self_attention.reference(*xs, heads=heads, bias=bias)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found.data, expected.data, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    "call",
    [
        lambda: mg.linear(normal(2, 3), normal(4, 5)),
        lambda: mg.linear(normal(2, 3), normal(3)),
        lambda: mg.linear(normal(2, 3), normal(3, 4), normal(3)),
        lambda: mg.linear(normal(2, 3), normal(3, 4), normal(1)),
        lambda: mg.layer_norm(normal(2, 3), normal(2)),
        lambda: mg.layer_norm(normal(2, 3), None, normal(1)),
        lambda: mg.attention(normal(2, 3), normal(2, 4), normal(2, 3)),
        lambda: mg.attention(normal(2, 3), normal(4, 3), normal(3, 3)),
        lambda: mg.attention(normal(3), normal(4, 3), normal(4, 3)),
        lambda: mg.attention(normal(2, 3), normal(4, 3), normal(4, 3), bias=normal(3, 4)),
        lambda: mg.attention(normal(2, 3), normal(4, 3), normal(4, 3), mask=np.ones((4, 2), bool)),
        lambda: mg.attention(normal(2, 3), normal(4, 3), normal(4, 3), mask=np.ones(4, bool)),
        lambda: mg.attention(normal(2, 3), normal(4, 3), normal(4, 3), mask=np.ones((5, 2, 4), bool)),
        lambda: mg.attention_weights(normal(2, 3), normal(4, 3), mask=np.ones((4, 2), bool)),
    ],
)
def test_shapes_that_do_not_fit(call):
    with pytest.raises(ValueError, match=r"\("):
        call()


@pytest.mark.parametrize("mask", [np.ones((2, 4)), np.ones((2, 4), int), [[1, 0, 1, 1]] * 2])
def test_masks_are_boolean(mask):
    with pytest.raises(TypeError, match="boolean"):
        mg.attention(normal(2, 3), normal(4, 3), normal(4, 3), mask=mask)
    with pytest.raises(TypeError, match="boolean"):
        mg.attention_weights(normal(2, 3), normal(4, 3), mask=mask)
    with pytest.raises(TypeError, match="boolean"):
        mg.cross_entropy(normal(2, 4, 3), np.zeros((2, 4), int), mask=mask)


def test_lists_and_integers_are_constants():
    assert mg.attention([[1, 0]], [[1, 0], [1, 0]], [[2], [4]], mask=[[True, False]]).tolist() == [[2.0]]
    assert mg.linear([[1, 2]], [[1], [2]], [0.5]).tolist() == [[5.5]]
    np.testing.assert_allclose(mg.cross_entropy([[0, 0]], [1]).item(), np.log(2))
    np.testing.assert_allclose(mg.layer_norm([[0, 2]], eps=0.0).data, [[-1, 1]])
    assert mg.linear(normal(2, 3, dtype=np.float32), normal(3, 4, dtype=np.float32), normal(4)).dtype == np.float64
    assert mg.layer_norm(normal(2, 3, dtype=np.float32), None, normal(3)).dtype == np.float64


# --- softmax -----------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("op", [mg.softmax, mg.log_softmax])
def test_softmax_never_overflows(op):
    for shift in [-1e308, -1e4, 1e4, 1e307]:
        x = np.array([[0.0, 1.0, 2.0]]) * (1 if abs(shift) < 1e300 else 0)
        y, (g,) = run(op, x + shift)
        np.testing.assert_allclose(y, op(x).data, rtol=1e-11)
        np.testing.assert_allclose(g, run(op, x)[1][0], rtol=1e-10, atol=1e-12)
    assert op(np.array([1e4, -1e4], np.float32)).dtype == np.float32


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("op", [mg.softmax, mg.log_softmax])
@pytest.mark.parametrize("x", [2.0, -3.0, np.float32(5), 7])
@pytest.mark.parametrize("axis", [-1, 0])
def test_softmax_of_one_number(op, x, axis):
    y = op(x, axis)
    assert isinstance(y.data, np.ndarray)
    assert y.shape == ()
    assert y.data == (1 if op is mg.softmax else 0)
    assert mg.grad(op)(float(x)) == 0
    assert mg.grad(mg.grad(op))(float(x)) == 0
    with pytest.raises(ValueError, match="axis 1 is out of bounds"):
        op(x, 1)


def test_softmax_of_minus_infinity_alone_is_zero():
    assert mg.softmax(-INF).data == 0
    x = np.array([[-INF, -INF], [-INF, 3.0]])
    y, (g,) = run(mg.softmax, x)
    np.testing.assert_array_equal(y, [[0, 0], [0, 1]])
    np.testing.assert_array_equal(g, np.zeros((2, 2)))


def test_softmax_hessian_and_jacobian():
    x = normal(4)
    p = np.exp(x) / np.exp(x).sum()
    jacobian = [mg.grad(lambda x, i=i: mg.softmax(x)[i])(x) for i in range(4)]
    np.testing.assert_allclose(jacobian, np.diag(p) - np.outer(p, p), atol=1e-15)
    gradient = lambda x: mg.grad(lambda x: mg.cross_entropy(x, np.array(2)))(x)  # noqa: E731
    np.testing.assert_allclose(gradient(x), p - np.eye(4)[2])
    hessian = [mg.grad(lambda x, i=i: gradient(x)[i])(x) for i in range(4)]
    np.testing.assert_allclose(hessian, np.diag(p) - np.outer(p, p), atol=1e-15)


# --- cross-entropy -----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("bad", [NAN, INF, -INF, 1e308])
def test_what_stands_in_rows_that_do_not_count_does_not_matter(smoothing, reduction, bad):
    logits, labels = normal(2, 3, 4), np.array([[1, 0, 99], [2, -5, 3]])
    mask = np.array([[True, True, False], [True, False, True]])
    options = {"label_smoothing": smoothing, "reduction": reduction}
    clean, (g_clean,) = run(lambda z: mg.cross_entropy(z, np.where(mask, labels, 0), mask=mask, **options), logits)
    dirty = np.where(mask[..., None], logits, bad)
    y, (g,) = run(lambda z: mg.cross_entropy(z, labels, mask=mask, **options), dirty)
    np.testing.assert_array_equal(y, clean)
    np.testing.assert_array_equal(g, g_clean)
    assert not g[~mask].any()
    second = mg.grad(
        lambda z: (mg.grad(lambda z: mg.cross_entropy(z, labels, mask=mask, **options).sum())(z) ** 2).sum()
    )(dirty)
    assert not second[~mask].any()
    assert np.isfinite(second).all()


def test_mean_counts_what_counts():
    logits, labels = normal(5, 3), np.array([0, 1, -100, 2, -100])
    rows = mg.cross_entropy(logits, labels, ignore_index=-100, reduction="none").data
    assert (rows[[2, 4]] == 0).all()
    np.testing.assert_allclose(mg.cross_entropy(logits, labels, ignore_index=-100).data, rows.sum() / 3)
    mask = np.array([True, True, True, False, True])
    np.testing.assert_allclose(
        mg.cross_entropy(logits, labels, ignore_index=-100, mask=mask).data, (rows[0] + rows[1]) / 2
    )
    np.testing.assert_allclose(mg.cross_entropy(logits, labels, ignore_index=-100, total=12).data, rows.sum() / 12)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "options",
    [
        {"ignore_index": 1},
        {"mask": np.zeros(3, bool)},
        {"mask": np.zeros(3, bool), "total": 0},
        {"ignore_index": 1, "label_smoothing": 0.1},
    ],
)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_no_label_that_counts_gives_zero(options, reduction):
    y, (g,) = run(lambda z: mg.cross_entropy(z, [1, 1, 1], reduction=reduction, **options), normal(3, 4))
    assert not y.any()
    assert not g.any()


@pytest.mark.parametrize("classes", [0, 3])
def test_an_empty_batch_has_loss_zero(classes):
    y, (g,) = run(lambda z: mg.cross_entropy(z, np.zeros(0, int)), np.zeros((0, classes)))
    assert y == 0
    assert g.shape == (0, classes)


@pytest.mark.parametrize("size", [1e-3, 1.0, 300.0, 1e4])
@pytest.mark.parametrize("with_parameters", [False, True])
def test_layer_norm_of_halves_whose_squares_leave_their_range(size, with_parameters):
    x = (size * normal(3, 5)).astype(np.float16)
    xs = [x, *[normal(5, seed=i).astype(np.float16) for i in (1, 2)]][: 3 if with_parameters else 1]
    f = lambda *xs: mg.layer_norm(*xs, eps=1e-12)  # noqa: E731
    y, gradients = run(f, *xs)
    assert y.dtype == np.float16
    wide = [a.astype(np.float64) for a in xs]
    centred = wide[0] - wide[0].mean(-1, keepdims=True)
    normalised = centred / np.sqrt((centred**2).mean(-1, keepdims=True))
    expected = normalised * wide[1] + wide[2] if with_parameters else normalised
    np.testing.assert_allclose(y, expected, rtol=2e-3, atol=2e-3)
    for g, expected in zip(gradients, run(f, *wide)[1]):
        assert g.dtype == np.float16
        np.testing.assert_allclose(g, expected, rtol=2e-3, atol=2e-3 * np.abs(expected).max() + 1e-7)
    twice = mg.grad(lambda x: mg.grad(lambda x: f(x)[0, 0] * 1.0)(x)[0, 1] * size)
    np.testing.assert_allclose(twice(x), twice(wide[0]), rtol=1e-2, atol=1e-2 * np.abs(twice(wide[0])).max() + 1e-7)


@pytest.mark.parametrize("smoothing", [-0.1, 1.1, 2, NAN])
@pytest.mark.parametrize("make", [np.array, leaf])
def test_a_label_smoothing_out_of_range(make, smoothing):
    with pytest.raises(ValueError, match=rf"label_smoothing lies in \[0, 1\], and {smoothing} was given"):
        mg.cross_entropy(make(normal(2, 3)), [0, 1], label_smoothing=smoothing)


def test_all_of_a_label_can_be_smoothed_away():
    y, (g,) = run(lambda z: mg.cross_entropy(z, [0, 1], label_smoothing=1), normal(2, 3), cotangent=1.0)
    logp = np.log(np.exp(normal(2, 3)) / np.exp(normal(2, 3)).sum(-1, keepdims=True))
    np.testing.assert_allclose(y, -logp.mean(-1).mean())
    np.testing.assert_allclose(g, (np.exp(logp) - 1 / 3) / 2)


@pytest.mark.parametrize("options", [{}, {"ignore_index": 0}, {"mask": np.zeros(2, bool)}, {"label_smoothing": 0.1}])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_logits_without_a_class(options, reduction):
    with pytest.raises(ValueError, match=r"\(2, 0\).*no class"):
        mg.cross_entropy(leaf(np.zeros((2, 0))), [0, 0], reduction=reduction, **options)


@pytest.mark.parametrize(
    ("labels", "options", "error", "message"),
    [
        ([0, 3], {}, IndexError, "label 3 .* 3 classes"),
        ([0, -1], {}, IndexError, "label -1"),
        ([0, -1], {"ignore_index": -2}, IndexError, "label -1"),
        ([0, 5], {"mask": np.array([True, True])}, IndexError, "label 5"),
        ([0.0, 1.0], {}, TypeError, "integer.*float64"),
        ([True, False], {}, TypeError, "bool"),
        ([0], {}, ValueError, r"\(2, 3\).*\(2,\).*\(1,\)"),
        ([[0], [1]], {}, ValueError, r"\(2, 1\)"),
        ([0, 1], {"reduction": "avg"}, ValueError, "mean, sum, none"),
        ([0, 1], {"mask": np.ones(3, bool)}, ValueError, r"\(3,\)"),
    ],
)
def test_labels_that_are_wrong(labels, options, error, message):
    with pytest.raises(error, match=message):
        mg.cross_entropy(leaf(normal(2, 3)), labels, **options)


@pytest.mark.filterwarnings("error")
def test_extreme_logits():
    z = np.array([[1e4, -1e4, 0.0], [-1e308, 1e307, 0.0]])
    y, (g,) = run(lambda z: mg.cross_entropy(z, [1, 1], reduction="none"), z, cotangent=np.ones(2))
    np.testing.assert_allclose(y, [2e4, 0])
    np.testing.assert_allclose(g, [[1, -1, 0], [0, 0, 0]])


# --- attention ---------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_padding_changes_nothing_and_gets_nothing(bad, dtype):
    q, k, v = normal(2, 3, 4, dtype=dtype), normal(2, 5, 4, seed=1, dtype=dtype), normal(2, 5, 2, seed=2, dtype=dtype)
    keys = np.array([[True] * 3 + [False] * 2, [True] * 5])
    queries = np.array([[True, True, False], [True, True, True]])
    mask = keys[:, None, :] & queries[:, :, None]
    c = normal(2, 3, 2, seed=3, dtype=dtype) * queries[..., None]

    def f(q, k, v):
        return mg.attention(q, k, v, mask=mask)

    y, grads = run(f, q, k, v, cotangent=c)
    dirty = [np.where(real[..., None], x, x.dtype.type(bad)) for real, x in [(queries, q), (keys, k), (keys, v)]]
    y_dirty, grads_dirty = run(f, *dirty, cotangent=c)
    np.testing.assert_array_equal(y, y_dirty)
    assert not y[0, 2].any()
    for g, g_dirty, real in zip(grads, grads_dirty, [queries, keys, keys]):
        np.testing.assert_array_equal(g, g_dirty)
        assert not g[~real].any()
    # The real part alone gives the same.
    short, grads_short = run(lambda q, k, v: mg.attention(q, k, v), q[0, :2], k[0, :3], v[0, :3], cotangent=c[0, :2])
    tolerance = 1e-6 if dtype == np.float32 else 1e-14
    np.testing.assert_allclose(short, y[0, :2], rtol=tolerance, atol=tolerance)
    for g, g_short in zip(grads, grads_short):
        np.testing.assert_allclose(g[0, : len(g_short)], g_short, rtol=tolerance, atol=10 * tolerance)
    second = mg.grad(lambda k: (mg.grad(lambda q: (f(q, k, dirty[2]) * c).sum())(dirty[0]) ** 2).sum())(dirty[1])
    assert np.isfinite(second).all()
    assert not second[~keys].any()


@pytest.mark.filterwarnings("error")
def test_a_query_that_may_look_at_nothing_outputs_exactly_zero():
    q, k, v, b = normal(2, 3, 4), normal(2, 5, 4), normal(2, 5, 2), normal(3, 5)
    mask = np.ones((3, 5), bool)
    mask[1] = False
    y, (gq, gk, gv, gb) = run(lambda q, k, v, b: mg.attention(q, k, v, mask=mask, bias=b), q, k, v, b)
    assert not y[:, 1].any()
    assert not gq[:, 1].any()
    assert not gb[1].any()
    assert gk.all()
    assert gv.all()
    assert not mg.attention_weights(q, k, mask=mask).data[:, 1].any()


@pytest.mark.filterwarnings("error")
def test_a_bias_of_minus_infinity_is_a_mask():
    q, k, v = normal(3, 4), normal(5, 4), normal(5, 2)
    mask = np.tril(np.ones((3, 5), bool), 1)
    mask[2] = False
    bias = np.where(mask, 0.0, -INF)
    y, grads = run(lambda q, k, v: mg.attention(q, k, v, mask=mask), q, k, v)
    y_bias, grads_bias = run(lambda q, k, v: mg.attention(q, k, v, bias=bias), q, k, v)
    np.testing.assert_allclose(y, y_bias, rtol=1e-14)
    assert not y_bias[2].any()
    for g, g_bias in zip(grads, grads_bias):
        np.testing.assert_allclose(g, g_bias, atol=1e-15)


def test_the_lectures_column_form():
    """O = V softmax(K^T Q), one column a vector, softmax over each column."""
    wq, wk, wv, vectors = normal(3, 4), normal(3, 4, seed=1), normal(2, 4, seed=2), normal(4, 5, seed=3)
    q, k, v = wq @ vectors, wk @ vectors, wv @ vectors
    a = np.exp(k.T @ q)
    np.testing.assert_allclose(mg.attention(q.T, k.T, v.T, scale=1.0).data.T, v @ (a / a.sum(0)))


def test_weights_are_what_attention_multiplies_with():
    q, k, v = normal(2, 3, 4), normal(2, 5, 4), normal(2, 5, 2)
    mask, bias = np.random.default_rng(0).random((3, 5)) < 0.7, normal(3, 5)
    weights = mg.attention_weights(q, k, mask=mask, bias=bias, scale=0.3)
    np.testing.assert_allclose(
        (weights @ v).data, mg.attention(q, k, v, mask=mask, bias=bias, scale=0.3).data, rtol=1e-13
    )
    np.testing.assert_allclose(weights.data.sum(-1), np.broadcast_to(mask.any(-1), (2, 3)))


def test_scores_that_would_overflow_their_exponential():
    q, k = np.array([[1e3, 0.0]]), np.array([[1e3, 0.0], [-1e3, 0.0]])
    y, _ = run(lambda q, k: mg.attention(q, k, [[1.0], [2.0]]), q, k)
    assert y == 1


# --- torch as an oracle ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


def compare(torch, ours, theirs, *xs, rtol=1e-10):
    y, grads = run(ours, *xs)
    ts = [torch.tensor(x, requires_grad=True) for x in xs]
    z = theirs(*ts)
    z.backward(torch.tensor(normal(*y.shape, seed=7)))
    np.testing.assert_allclose(y, z.detach().numpy(), rtol=rtol, atol=1e-12)
    for g, t in zip(grads, ts):
        np.testing.assert_allclose(g, t.grad.numpy(), rtol=rtol, atol=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_is_torchs(torch, smoothing, reduction):
    labels = np.array([0, 3, 2, 3, 1])
    options = {"ignore_index": 3, "reduction": reduction, "label_smoothing": smoothing}
    f = torch.nn.functional.cross_entropy
    compare(
        torch,
        lambda z: mg.cross_entropy(z, labels, **options),
        lambda z: f(z, torch.tensor(labels), **options),
        normal(5, 4),
    )


@pytest.mark.parametrize("shapes", [[(2, 3, 4), (2, 5, 4), (2, 5, 6)], [(2, 2, 3, 4), (2, 2, 3, 4), (2, 2, 3, 4)]])
def test_attention_is_torchs(torch, shapes):
    mask = np.random.default_rng(1).random((shapes[0][-2], shapes[1][-2])) < 0.7
    mask[:, 0] = True
    f = torch.nn.functional.scaled_dot_product_attention
    xs = [normal(*s, seed=i) for i, s in enumerate(shapes)]
    compare(
        torch,
        lambda q, k, v: mg.attention(q, k, v, mask=mask),
        lambda q, k, v: f(q, k, v, attn_mask=torch.tensor(mask)),
        *xs,
    )


def test_layer_norm_linear_and_activations_are_torchs(torch):
    f = torch.nn.functional
    compare(
        torch, mg.layer_norm, lambda x, w, b: f.layer_norm(x, (5,), w, b), normal(2, 3, 5), normal(5), normal(5, seed=1)
    )
    compare(torch, mg.linear, lambda x, w, b: f.linear(x, w.T, b), normal(2, 3, 5), normal(5, 4), normal(4))
    compare(torch, mg.gelu, lambda x: f.gelu(x, approximate="tanh"), normal(3, 5))
    compare(torch, mg.softplus, lambda x: f.softplus(x, threshold=1000), normal(3, 5))
    compare(torch, lambda x: mg.log_softmax(x, 0), lambda x: f.log_softmax(x, 0), normal(3, 5))


@pytest.mark.parametrize("label", [-1, -100, 3, 255])
def test_no_label_is_ignored_by_default(label):
    with pytest.raises(IndexError, match=f"label {label}"):
        mg.cross_entropy(leaf(normal(2, 3)), [0, label])


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.uint64, np.int64])
def test_labels_of_any_integer_dtype(dtype):
    logits = np.random.default_rng(0).standard_normal((3, 4))
    expected = mg.grad(lambda z: mg.cross_entropy(z, np.array([0, 3, 1])))(logits)
    np.testing.assert_array_equal(mg.grad(lambda z: mg.cross_entropy(z, np.array([0, 3, 1], dtype)))(logits), expected)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_impossible_label_costs_infinity_without_a_warning(dtype):
    z = mg.tensor(np.array([[-np.inf, 1, 2], [-np.inf, 1, 2]], dtype), requires_grad=True)
    losses = mg.cross_entropy(z, [0, 2], reduction="none")
    np.testing.assert_allclose(losses.data, [np.inf, np.log1p(np.exp(-1.0))], rtol=1e-6)
    losses.sum().backward()
    p = 1 / (1 + np.exp(1.0))
    np.testing.assert_allclose(z.grad, [[-1, p, 1 - p], [0, p, -p]], rtol=1e-6, atol=1e-7)
