"""Bugs that other frameworks had, by the number under which they are collected; each test covers its whole kind.

The cases about layers, optimizers, search and checkpoints are tested where those are.
"""

import copy
import gc
import pickle
import sys
import threading
import weakref

import numpy as np
import pytest

import minigrad as mg

INF, NAN = np.inf, np.nan
quiet = pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value", "ignore:overflow")


def leaf(x, dtype=None):
    return mg.tensor(x, dtype=dtype, requires_grad=True)


def grad(f, x, cotangent=None):
    """x's gradient from backward(), for a cotangent of ones or the given one."""
    t = leaf(x, None if isinstance(x, np.ndarray) else float)
    y = f(t)
    y.backward(np.ones(y.shape) if cotangent is None else np.array(cotangent, float))
    return t.grad


def equal(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)
    assert np.shape(actual) == np.shape(expected)


# --- NaN out of nothing ------------------------------------------------------------------------------------------


@quiet
@pytest.mark.parametrize(
    "dead",
    [lambda x: mg.sqrt(-x), lambda x: mg.log(-x), lambda x: (-x) ** 0.5, lambda x: x / 0.0, lambda x: mg.log1p(-x - 1)],
)
def test_B003_a_dead_branch_of_where(dead):
    equal(grad(lambda x: mg.where(x >= 0, x, dead(x)), [1.0, 4.0]), [1, 1])
    equal(grad(lambda x: mg.where(x < 0, dead(x), x), [1.0, 4.0]), [1, 1])
    equal(
        mg.grad(lambda x: mg.grad(lambda x: mg.where(x >= 0, x * x, dead(x)).sum())(x).sum())(np.array([1.0, 4.0])),
        [2, 2],
    )


def test_B004_the_double_where():
    def f(x):
        s = (x * x).sum(1)
        return mg.sqrt(mg.where(s > 0.5, s, 1.0)).sum()

    x = np.array([[1.0, 2.0], [3.0, 4.0], [0.0, 0.0]])
    equal(grad(f, x), [[0.4472135955, 0.894427191], [0.6, 0.8], [0, 0]])
    mg.gradgradcheck(lambda x: f(x), x + 0.01)


@quiet
@pytest.mark.parametrize(
    "dead",
    [lambda a: 10 ** mg.exp(a), lambda a: mg.exp(mg.exp(a)), lambda a: mg.exp(a * 100) ** 2, lambda a: 1e308 * a * a],
)
def test_B005_a_dead_branch_that_overflows(dead):
    y = mg.where(leaf(10.0) < 15, leaf(10.0), dead(leaf(10.0)))
    assert y.item() == 10
    assert np.isinf(dead(mg.tensor(10.0)).data)
    equal(grad(lambda a: mg.where(a < 15, a, dead(a)), 10.0), 1.0)


def test_B006_logsumexp_of_minus_infinity():
    f = lambda x: mg.logsumexp(mg.stack([-INF, -INF + x]))  # noqa: E731
    assert f(mg.tensor(1.0)).item() == -INF
    equal(grad(f, 1.0), 0.0)
    for axis in (0, 1, -1, None):
        assert not np.isnan(grad(lambda x, axis=axis: mg.logsumexp(x, axis), np.full((2, 3), -INF))).any()


def test_B007_log_softmax_with_a_masked_logit():
    x = np.array([-INF, 0.0, 1.0])
    equal(mg.log_softmax(x).data[1:], [-1.3132616875, -0.3132616875])
    assert mg.log_softmax(x).data[0] == -INF
    equal(grad(lambda x: mg.log_softmax(x)[1], x), [0, 0.7310585786, -0.7310585786])
    equal(grad(lambda x: mg.softmax(x)[1], x), [0, 0.1966119332, -0.1966119332])
    equal(grad(lambda x: mg.log_softmax(x, 0)[1, 0], x[:, None]), [[0], [0.7310585786], [-0.7310585786]])


def test_B008_the_excluded_entry_is_the_largest():
    mask = np.array([True, False])
    f = lambda x: mg.logsumexp(mg.where(mask, x, -INF))  # noqa: E731
    x = np.array([0.0, 100.0])
    assert f(x).item() == 0
    equal(grad(f, x), [1, 0])
    equal(grad(lambda x: mg.attention_weights(np.ones((1, 1)), x[:, None], mask=mask[None])[0, 0], x), [0, 0])


@pytest.mark.parametrize(("x", "expected"), [([2, 0, 3, 4], [0, 24, 0, 0]), ([0, 0, 3], [0, 0, 0])])
def test_B009_products_with_zeros(x, expected):
    equal(grad(mg.prod, x), expected)
    equal(grad(lambda x: mg.prod(x, 0), np.array(x, float)[:, None]), np.array(expected)[:, None])
    equal(grad(lambda x: mg.prod(x, -1, True), np.array([x, x], float)), [expected] * 2)
    equal(grad(mg.prod, np.array(x, np.float32)), expected)
    mg.gradgradcheck(mg.prod, np.array(x, float))


@pytest.mark.parametrize(("n", "expected"), [(0, 0.0), (1, 1.0), (3, 0.0)])
def test_B012_powers_at_zero(n, expected):
    for exponent in (float(n), n, mg.tensor(float(n)), mg.tensor(n), np.array(n), np.float32(n)):
        equal(grad(lambda x, e=exponent: x**e, 0.0), expected)
        equal(grad(lambda x, e=exponent: x**e, [0.0, 0.0]), [expected] * 2)


def test_B016_relu_at_zero_in_every_spelling():
    equal(grad(mg.relu, 0.0), 0)
    equal(grad(lambda x: mg.where(x > 0, x, 0), 0.0), 0)
    equal(grad(lambda x: mg.maximum(x, 0.0), 0.0), 0.5)  # a tie
    for f in (mg.relu, lambda x: mg.maximum(x, 0.0)):
        for x in (-1.0, 0.0, 1.0):
            equal(mg.grad(mg.grad(f))(x), 0)


def test_B019_a_forbidden_class():
    for labels, options in [([1], {}), ([1], {"reduction": "sum"}), ([1, 0], {"ignore_index": 0})]:
        z = np.array([[-INF, 0.0]] * len(labels))
        assert mg.cross_entropy(z, labels, **options).item() == 0
        equal(
            grad(lambda z, labels=labels, options=options: mg.cross_entropy(z, labels, **options), z),
            np.zeros((len(labels), 2)),
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_B021_normalising_a_constant_row(dtype):
    x = np.array([5.0, 5.0, 5.0], dtype)
    assert not mg.layer_norm(x, eps=1e-5).data.any()
    np.testing.assert_allclose(
        grad(mg.layer_norm, x, [1, 2, 3]), [-316.2277660168, 0, 316.2277660168], rtol=1e-6, atol=1e-4
    )
    assert np.isfinite(grad(lambda x: (x - mg.mean(x)) / (mg.std(x) + 1e-5), x, [1, 2, 3])).all()


# --- ties --------------------------------------------------------------------------------------------------------


def test_B024_ties_share_what_there_is():
    equal(grad(mg.max, [0.6, 0.6, 0.3]), [0.5, 0.5, 0])
    equal(grad(lambda x: mg.max(x, 0), np.ones((4, 3))), np.full((4, 3), 0.25))
    equal(grad(lambda x: mg.min(x, (0, 1)), np.ones((4, 3))), np.full((4, 3), 1 / 12))
    equal(grad(lambda x: mg.max(x, 1, True), np.array([[1.0, 1, 0], [2, 1, 2]])), [[0.5, 0.5, 0], [0.5, 0, 0.5]])


def test_B025_hidden_ties():
    def f(x):
        for _ in range(2):
            x = mg.concatenate([mg.max(x, 0).reshape(1, 1), x])
        return x.sum()

    equal(grad(f, np.array([[1.0]])), [[3]])


# --- broadcasting ------------------------------------------------------------------------------------------------


def test_B027_gradients_have_their_operands_shape():
    a, b = leaf([2.0]), leaf(np.arange(20.0).reshape(5, 4))
    (a * b).sum().backward()
    equal(a.grad, [190])
    equal(b.grad, np.full((5, 4), 2))
    column, row = leaf(np.arange(1.0, 5)[:, None]), leaf(np.arange(1.0, 5)[None])
    (column * row).sum().backward()
    equal(column.grad, np.full((4, 1), 10))
    equal(row.grad, np.full((1, 4), 10))
    for op in (mg.add, mg.subtract, mg.divide, mg.maximum, mg.power, lambda a, b: mg.where([[True], [False]], a, b)):
        for shapes in [((), (2, 3)), ((1,), (2, 3)), ((2, 1), (3,)), ((1, 1, 1), (2, 3)), ((2, 3), (1, 2, 1))]:
            a, b = (leaf(np.full(s, 1.5)) for s in shapes)
            op(a, b).sum().backward()
            assert a.grad.shape == shapes[0]
            assert b.grad.shape == shapes[1]


def test_B029_a_variable_used_twice_once_through_a_mean():
    equal(grad(lambda x: x - mg.mean(x), np.arange(4.0)), [0, 0, 0, 0])
    equal(grad(lambda x: x - mg.mean(x), np.arange(4.0), [1, 2, 3, 4]), [-1.5, -0.5, 0.5, 1.5])
    equal(
        grad(lambda x: x - mg.mean(x, 1, True), np.arange(4.0).reshape(2, 2), [[1, 2], [3, 4]]),
        [[-0.5, 0.5], [-0.5, 0.5]],
    )


def test_B032_a_scalars_derivative_is_a_scalar():
    y = np.ones((3, 2))
    f = lambda z: sum(mg.logsumexp(mg.stack([z, y[i].sum() + z])) for i in range(3))  # noqa: E731
    equal(grad(f, 0.1), 3.0)
    equal(mg.grad(lambda z: mg.logsumexp(mg.stack([mg.broadcast_to(z, (3,)), y.sum(1) + z]), 0).sum())(0.1), 3.0)


def test_B033_broadcast_to():
    equal(grad(lambda x: mg.broadcast_to(x, (4, 3)), np.ones(3)), [4, 4, 4])
    equal(grad(lambda x: np.broadcast_to(x, (2, 4, 3)), np.ones((4, 1))), np.full((4, 1), 6))
    equal(grad(lambda x: mg.broadcast_to(x, (2, 2)), 1.0), 4.0)


# --- einsum ------------------------------------------------------------------------------------------------------


def test_B034_a_stretched_axis():
    x, y = leaf([2.0, 3.0]), leaf([2.0])
    z = mg.einsum("i,i", x, y)
    assert z.item() == 10
    z.backward()
    equal(x.grad, [2, 2])
    equal(y.grad, [5])
    mg.gradgradcheck(lambda a, b: mg.einsum("ij,jk->ik", a, b), (np.ones((2, 1)), np.arange(6.0).reshape(3, 2)))


def test_B037_a_repeated_index_that_is_not_at_the_end():
    x = np.arange(16.0).reshape(2, 2, 4)
    equal(mg.einsum("iij->i", x).data, [6, 54])
    g = np.zeros((2, 2, 4))
    g[0, 0], g[1, 1] = 1, 10
    equal(grad(lambda x: mg.einsum("iij->i", x), x, [1, 10]), g)
    for subscripts in ("iji->j", "jii->ij", "iij", "jii->"):
        x = np.random.default_rng(0).standard_normal((2, 2, 2))
        equal(mg.einsum(subscripts, x).data, np.einsum(subscripts, x))
        mg.gradcheck(lambda x, s=subscripts: mg.einsum(s, x), x)


def test_B038_one_tensor_as_both_operands():
    x = np.arange(16.0).reshape(4, 4)
    g = grad(lambda x: mg.einsum("ij,jk", x, x), x)
    equal(g, [[30, 46, 62, 78], [34, 50, 66, 82], [38, 54, 70, 86], [42, 58, 74, 90]])
    equal(grad(lambda x: x @ x, x), g)


# --- shared parts ------------------------------------------------------------------------------------------------


def test_B039_a_diamond():
    def f(x):
        xa = x * 1
        return x * xa + (x * x) * 1 + x * xa

    equal(grad(f, 1.0), 6.0)
    equal(mg.grad(mg.grad(f))(1.0), 6.0)


def test_B042_a_tensor_joined_with_itself():
    equal(grad(lambda x: mg.concatenate([x, x], -1), [5.0, 6.0], [1, 2, 30, 40]), [31, 42])
    equal(grad(lambda x: mg.stack([x, x], -1), [5.0, 6.0], [[1, 2], [30, 40]]), [3, 70])
    equal(grad(lambda x: mg.concatenate([x, x, x], -2), np.ones((1, 2)), [[1, 2], [3, 4], [5, 6]]), [[9, 12]])


def test_B043_outputs_that_nobody_uses():
    for used in range(3):
        expected = np.zeros((5, 2))
        expected[[slice(0, 2), slice(2, 4), slice(4, 5)][used]] = 1
        equal(grad(lambda a, used=used: mg.split(a, [2, 4])[used].sum(), np.ones((5, 2))), expected)


# --- in place ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "write", [lambda x: x.__setitem__(0, 100.0), lambda x: x.__imul__(50.0), lambda x: x.detach().__setitem__(0, 100.0)]
)
def test_B047_writing_to_what_an_op_has_saved(write):
    x = leaf([2.0, 3.0])
    y = x * x
    with pytest.raises(RuntimeError, match="index_put"):
        x[0] = 100.0
    with mg.no_grad():
        write(x)
    with pytest.raises(RuntimeError, match="written in place"):
        y.sum().backward()


def test_B048_no_way_to_change_a_saved_array_unseen():
    source = np.array([1.0, 2.0, 3.0])
    t = leaf(source)
    y = (t * t).sum()
    for view in (
        t.data,
        t.data.T,
        t.data[::-1],
        t.numpy(),
        np.asarray(t.detach()),
        t.data.view(),
        t.data.reshape(3, 1),
    ):
        with pytest.raises(ValueError, match="read-only"):
            view[:] = 10
    source[:] = 10
    y.backward()
    equal(t.grad, [2, 4, 6])


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (lambda w: w.__isub__(0.1 * w.grad), [0.8, 0.64]),
        (lambda w: w.__iadd__(-0.1 * w.grad), [0.8, 0.64]),
        (lambda w: w.__imul__(0.8), [0.8, 0.64]),
    ],
)
def test_B052_an_update_in_place_keeps_the_leaf(step, expected):
    w = leaf(1.0)
    for value in expected:
        same = w
        w.grad = None
        (w**2).backward()
        with pytest.raises(RuntimeError, match="no_grad"):
            step(w)
        with mg.no_grad():
            w = step(w)
        assert w is same
        assert w.requires_grad
        equal(w.data, value)


def test_B116_ops_that_save_their_output():
    for f in (mg.exp, mg.sigmoid, mg.softmax, mg.tanh, mg.sqrt, mg.logsumexp, mg.log_softmax):
        y = f(leaf([1.0, 2.0, 3.0]))
        with pytest.raises(RuntimeError):
            y[..., 1:2] = 2.0
        with pytest.raises(ValueError, match="read-only"):
            y.data[...] = 2.0
        y.detach()[...] = 2.0
        with pytest.raises(RuntimeError, match="written in place"):
            y.sum().backward()
    equal(grad(lambda x: mg.index_put(mg.exp(x), 1, 2.0), [1.0, 2.0, 3.0]), [2.7182818285, 0, 20.0855369232])


# --- depth and lifetime ------------------------------------------------------------------------------------------


def test_B053_long_chains():
    assert sys.getrecursionlimit() <= 20_000
    x = leaf(1.0)
    y = x
    for _ in range(20_000):
        y = y + y * 1e-4
    assert "op=add" in repr(y)
    y.backward(retain_graph=True)
    equal(x.grad, 7.3883172795)
    equal(mg.grad(lambda x: _chain(x, 5_000))(1.0), 1.0001**5_000)
    assert copy.deepcopy(y.detach()).item() == pickle.loads(pickle.dumps(y.detach())).item() == y.item()
    del y


def _chain(x, n):
    for _ in range(n):
        x = x + x * 1e-4
    return x


def test_B054_results_die_with_their_last_reference():
    gc.collect()
    gc.disable()
    try:
        x, total = leaf(np.ones(3)), 0.0
        for _ in range(3):
            hidden = mg.tanh(x)
            loss = (hidden * hidden).sum()
            alive = [weakref.ref(hidden._node), weakref.ref(loss._node), weakref.ref(loss)]
            total += float(loss)
            del hidden, loss
            assert [r() for r in alive] == [None] * 3
    finally:
        gc.enable()


def test_B055_higher_orders_leave_no_cycle():
    gc.collect()
    gc.disable()
    try:
        x = leaf(2.0)
        g = mg.grad(lambda v: mg.tanh(v) * v, create_graph=True)(x)
        g.backward()
        assert type(x.grad) is np.ndarray
        alive = weakref.ref(g._node)
        leaf_alive = weakref.ref(x._node)
        del g, x
        assert alive() is None
        assert leaf_alive() is None
    finally:
        gc.enable()


# --- dtypes and NumPy --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "f",
    [
        mg.max,
        mg.mean,
        mg.var,
        mg.softmax,
        mg.std,
        lambda x: x * 0.2,
        lambda x: x * np.float64(0.2),
        lambda x: x / 3,
        lambda x: x**2,
        lambda x: mg.sum(x) / 3,
        lambda x: mg.where(x > 0, x, 0.0),
        lambda x: x + np.arange(3),
        lambda x: mg.layer_norm(x),
        lambda x: mg.logsumexp(x),
        lambda x: mg.cross_entropy(x, 1),
        lambda x: mg.gelu(x),
        lambda x: mg.clip(x, 0, 1),
        lambda x: mg.einsum("i,j->", x, x),
        lambda x: x[np.array([0, 0])],
        lambda x: mg.prod(x, 0, True),
    ],
)
def test_B056_float32_gets_float32(f):
    x = leaf([1.0, 1.0, 0.0], np.float32)
    y = f(x)
    y.backward(np.ones(y.shape))
    assert x.grad.dtype == np.float32
    equal(grad(mg.max, np.array([1, 1, 0], np.float32)), [0.5, 0.5, 0])
    assert (x * np.float64(0.2)).dtype == np.float64
    assert (x * 0.2).dtype == np.float32


@pytest.mark.parametrize("dtype", [int, np.int8, np.uint16, bool])
def test_B057_integers_do_not_require_gradients(dtype):
    with pytest.raises(TypeError, match=str(np.dtype(dtype))):
        mg.tensor(np.array([1, 0, 1], dtype), requires_grad=True)
    with pytest.raises(TypeError, match=str(np.dtype(dtype))):
        mg.grad(lambda x: (x / 2).sum())(np.array([1, 0, 1], dtype))
    equal(mg.grad(lambda x: (x / 2).sum())(np.array([1, 0, 1], dtype).astype(float)), [0.5, 0.5, 0.5])


def test_B059_arrays_and_numpy_scalars_on_the_left():
    a = np.array([1.0, 2.0])
    for f, value, slope in [
        (lambda t: a * t, [3, 8], [1, 2]),
        (lambda t: np.float64(2) * t, [6, 8], [2, 2]),
        (lambda t: a - t, [-2, -2], [-1, -1]),
        (lambda t: np.int64(1) + t, [4, 5], [1, 1]),
        (lambda t: a / t, [1 / 3, 0.5], [-1 / 9, -1 / 8]),
        (lambda t: a @ t, 11, [1, 2]),
        (lambda t: a**t, [1, 16], [0, 16 * np.log(2)]),
    ]:
        y = f(leaf([3.0, 4.0]))
        assert type(y) is mg.Tensor
        assert y.dtype == np.float64
        equal(y.data, value)
        equal(grad(f, [3.0, 4.0]), slope)
    for result in (a < leaf([3.0, 4.0]), a == leaf([1.0, 4.0]), np.float64(3) >= leaf([3.0, 4.0])):
        assert type(result) is np.ndarray
        assert result.dtype == bool


def test_B061_equal_values_are_not_the_same_tensor():
    a, b = leaf([1.0, 1.0]), leaf([1.0, 1.0])
    (a * b).sum().backward()
    equal(a.grad, [1, 1])
    equal(b.grad, [1, 1])
    assert {a: 0, b: 1}[b] == 1
    assert len({a, b}) == 2
    assert next(i for i, p in enumerate([a, b]) if p is b) == 1
    equal(mg.grad(lambda x, y: (x * y).sum(), (0, 1))(a.data, a.data)[1], [1, 1])


def test_B062_transposes_with_negative_axes():
    x = np.arange(24.0).reshape(2, 3, 4)
    g = grad(lambda x: mg.transpose(x, (-1, 0, 1)), x, np.arange(24.0).reshape(4, 2, 3))
    equal(g, np.arange(24.0).reshape(4, 2, 3).transpose(1, 2, 0))
    equal(g[0, 0], [0, 6, 12, 18])
    equal(grad(lambda x: np.moveaxis(x, -1, -3), x, np.arange(24.0).reshape(4, 2, 3)), g)
    equal(grad(lambda x: x.transpose(2, -3, 1), x, np.arange(24.0).reshape(4, 2, 3)), g)


# --- sizes 0 and () ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.copy(),
        lambda x: mg.tensor(x),
        lambda x: x.detach(),
        lambda x: +x,
        lambda x: x.astype(np.float32),
        copy.deepcopy,
        lambda x: x * 1,
    ],
)
def test_B065_a_scalar_stays_one(f):
    assert f(mg.tensor(2.0)).shape == ()
    assert grad(lambda x: x.copy(), np.array(2.0)).shape == ()


def test_B067_an_empty_batch():
    w, b = leaf(np.ones((3, 2))), leaf(np.ones(2))
    y = mg.linear(np.zeros((0, 3)), w, b)
    assert y.shape == (0, 2)
    y.sum().backward()
    equal(w.grad, np.zeros((3, 2)))
    equal(b.grad, np.zeros(2))
    for f, shape in [
        (mg.layer_norm, (0, 3)),
        (mg.softmax, (0, 3)),
        (lambda x: mg.attention(x, x, x), (0, 4, 3)),
        (lambda x: mg.attention(x, x, x), (2, 0, 3)),
        (lambda x: x @ np.ones((3, 2)), (0, 3)),
        (lambda x: x.reshape(3, 0, 2), (0, 3)),
        (lambda x: mg.cross_entropy(x, np.zeros(0, int)), (0, 3)),
    ]:
        x = leaf(np.zeros(shape))
        f(x).sum().backward()
        assert x.grad.shape == shape


def test_B068_reductions_of_nothing():
    x = np.zeros(0)
    assert mg.sum(x).item() == 0
    assert mg.prod(x).item() == 1
    with pytest.warns(RuntimeWarning), np.errstate(invalid="ignore"):
        assert np.isnan(mg.mean(x).item())
    for f in (mg.max, mg.min, np.max):
        with pytest.raises(ValueError, match="zero-size"):
            f(leaf(x))
    assert mg.softmax(np.zeros((0, 5))).shape == (0, 5)
    for f in (mg.sum, mg.prod, mg.softmax):
        assert grad(f, x).shape == (0,)


# --- losses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_B069_every_label_ignored(reduction):
    z = np.random.default_rng(0).random((5, 3))
    for options in (
        {"ignore_index": -100},
        {"mask": np.zeros(5, bool)},
        {"ignore_index": -100, "label_smoothing": 0.1},
    ):
        f = lambda z, o=options: mg.cross_entropy(z, np.full(5, -100), reduction=reduction, **o)  # noqa: E731
        equal(f(z).data, np.zeros(5 if reduction == "none" else ()))
        equal(grad(f, z), np.zeros((5, 3)))


def test_B070_label_smoothing_leaves_ignored_rows_out():
    z, labels = np.array([[1.0, 0, -1], [5, -5, 2], [0, 2, 1]]), np.array([1, 7, 2])
    for options in ({"ignore_index": 7}, {"mask": np.array([True, False, True])}):
        f = lambda z, o=options: mg.cross_entropy(z, labels, label_smoothing=0.2, **o)  # noqa: E731
        equal(f(z).data, 1.4076059644)
        expected = [[0.29928714, -0.3109691, 0.01168195], [0, 0, 0], [0.01168195, 0.29928714, -0.3109691]]
        np.testing.assert_allclose(grad(f, z), expected, atol=1e-8)
        assert not grad(f, z)[1].any()


# --- no path, wrong cotangents -----------------------------------------------------------------------------------


def test_B086_no_path_is_an_exact_zero():
    z, x = np.array([1.0, 2.0, 3.0]), np.ones(3)
    gradient = lambda x: mg.grad(lambda x: z @ x)(x)  # noqa: E731
    equal([mg.grad(lambda x, i=i: gradient(x)[i])(x) for i in range(3)], np.zeros((3, 3)))
    equal(mg.grad(lambda x: (gradient(x) * z).sum())(x), np.zeros(3))
    equal(mg.grad(lambda x: mg.tensor(5.0))(x), np.zeros(3))
    equal(mg.grad(lambda x, y: x.sum(), 1)(x, np.ones((2, 2))), np.zeros((2, 2)))
    used, unused = leaf(1.0), leaf(1.0)
    (used * 2).backward()
    assert unused.grad is None


def test_B087_cotangents_are_never_broadcast():
    x, y = leaf([[1.0, 2.0], [3.0, 4.0]]), np.array([[3.0, 4.0], [7.0, 8.0]])
    z = x * y
    for shape in [(1,), (2,), (2, 1), (), (1, 2, 2), (4,)]:
        with pytest.raises(ValueError, match="cotangent") as caught:
            z.backward(np.ones(shape))
        assert str(shape) in str(caught.value)
        assert "(2, 2)" in str(caught.value)
    z.backward(1.5 * np.ones((2, 2)))
    equal(x.grad, [[4.5, 6], [10.5, 12]])


# --- grad mode ---------------------------------------------------------------------------------------------------


def test_B109_no_grad_does_not_leak():
    x = leaf(1.0)

    @mg.no_grad()
    def numbers():
        yield (x * 2).requires_grad
        yield (x * 2).requires_grad

    g = numbers()
    assert next(g) is False
    assert (x * 2).requires_grad
    assert next(g) is False
    g.close()
    assert (x * 2).requires_grad
    with pytest.raises(KeyError), mg.no_grad():
        raise KeyError
    assert (x * 2).requires_grad

    @mg.no_grad()
    def fails():
        raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert (x * 2).requires_grad


def test_B110_grad_mode_and_transforms_are_each_threads_own():
    stop, wrong, started = threading.Event(), [], threading.Event()

    def quiet():
        x = leaf(1.0)
        while not stop.is_set():
            with mg.no_grad():
                started.set()
                if (x * 2).requires_grad:
                    wrong.append("recorded")

    def nested():
        while not stop.is_set():
            if mg.grad(lambda x: x * mg.grad(lambda y: x * y)(2.0))(3.0) != 6:
                wrong.append("confused")

    threads = [threading.Thread(target=f) for f in (quiet, nested)]
    for t in threads:
        t.start()
    started.wait(5)
    x = leaf([1.0, 2.0])
    for _ in range(300):
        x.grad = None
        (x * x).sum().backward()
        if x.grad.tolist() != [2, 4]:
            wrong.append("gradient")
    stop.set()
    for t in threads:
        t.join()
    assert wrong == []


def test_B115_normalising_a_zero_vector():
    def f(x):
        return x / mg.maximum(mg.sqrt((x * x).sum()), 1e-12)

    assert not f(np.zeros(3)).data.any()
    equal(grad(f, np.zeros(3), [1, 2, 3]) * 1e-12, [1, 2, 3])
    mg.gradgradcheck(f, np.array([1.0, -2.0, 0.5]))
