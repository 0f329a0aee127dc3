"""Kinks, ties, singular points and nothing-from-nothing of the elementwise ops. Values and gradients: test_laws.py."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.engine import OPS

pytestmark = pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value", "ignore:overflow")
INF, NAN = np.inf, np.nan


def slope(f, x):
    return mg.grad(lambda x: f(x).sum())(np.asarray(x, float))


def second(f, x):
    return mg.grad(lambda x: mg.grad(lambda x: f(x).sum())(x).sum())(np.asarray(x, float))


# --- kinks and ties ----------------------------------------------------------------------------------------------


def test_kinks():
    np.testing.assert_array_equal(slope(mg.abs, [-2.0, 0.0, -0.0, 3.0]), [-1, 0, 0, 1])
    np.testing.assert_array_equal(slope(mg.relu, [-2.0, 0.0, -0.0, 3.0]), [0, 0, 0, 1])
    np.testing.assert_array_equal(slope(lambda x: mg.clip(x, -1.0, 2.0), [-2.0, -1.0, 0.0, 2.0, 2.5]), [0, 1, 1, 1, 0])
    for f in [mg.abs, mg.relu, lambda x: mg.clip(x, 0, 1), lambda x: mg.maximum(x, 0.0)]:
        np.testing.assert_array_equal(second(f, [-2.0, 0.0, 1.0]), [0, 0, 0])


@pytest.mark.parametrize("op", [mg.maximum, mg.minimum])
@pytest.mark.parametrize("shapes", [((3,), (3,)), ((2, 3), (3,)), ((), (4,))])
def test_ties_are_split_evenly_and_sum_to_the_cotangent(op, shapes):
    a, b = (mg.tensor(np.ones(s), requires_grad=True) for s in shapes)
    y = op(a, b)
    c = np.random.default_rng(0).standard_normal(y.shape)
    y.backward(c)
    np.testing.assert_allclose(a.grad.sum(), c.sum() / 2)
    np.testing.assert_allclose(b.grad.sum(), c.sum() / 2)
    x = np.array([1.0, -1.0])
    np.testing.assert_array_equal(slope(lambda x: op(x, x), x), [1, 1])


def test_unequal_elements_go_to_the_winner_alone():
    a, b = mg.grad(lambda a, b: mg.maximum(a, b).sum(), (0, 1))(np.array([1.0, 5.0, INF]), np.array([2.0, 3.0, -INF]))
    np.testing.assert_array_equal(a, [0, 1, 1])
    np.testing.assert_array_equal(b, [1, 0, 0])


# --- singular points ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "f", [mg.sqrt, mg.log, lambda x: x**0.5, lambda x: x**-1.0, lambda x: 1 / x, lambda x: mg.power(x, np.array(0.25))]
)
def test_an_infinite_derivative_is_infinite(f):
    assert np.isinf(slope(f, 0.0))


@pytest.mark.parametrize(
    "make", [float, int, np.float64, np.array, lambda n: np.array(float(n)), lambda n: mg.tensor(float(n))]
)
@pytest.mark.parametrize(("n", "expected"), [(0, 0), (1, 1), (2, 0), (3, 0)])
def test_powers_at_zero(make, n, expected):
    assert slope(lambda x: x ** make(n), 0.0) == expected
    assert slope(lambda x: x ** make(n), 2.0) == n * 2.0 ** (n - 1)
    assert second(lambda x: x ** make(n), 0.0) == (2 if n == 2 else 0)


def test_the_exponents_gradient_at_base_zero_is_zero():
    for b in [0.0, 1.0, 2.5]:
        assert mg.grad(mg.power, 1)(0.0, b) == 0
        assert mg.grad(lambda b: 0**b)(b) == 0
    np.testing.assert_allclose(mg.grad(mg.power, 1)(2.0, 3.0), 8 * np.log(2))
    np.testing.assert_allclose(mg.grad(lambda b: 2**b)(3.0), 8 * np.log(2))
    assert np.isnan(mg.grad(lambda b: (-2.0) ** b)(2.0))


def test_negative_bases_have_their_gradient_too():
    np.testing.assert_allclose(slope(lambda x: x**3, [-2.0, -0.5]), [12, 0.75])
    np.testing.assert_allclose(slope(lambda x: x**-2, [-2.0]), [0.25])


# --- nothing from nothing ----------------------------------------------------------------------------------------

SINGULAR = {
    "sqrt": (mg.sqrt, [0.0, -1.0, INF, NAN]),
    "log": (mg.log, [0.0, -1.0, NAN]),
    "log1p": (mg.log1p, [-1.0, -2.0, NAN]),
    "exp": (mg.exp, [1e4, INF, NAN]),
    "expm1": (mg.expm1, [1e4, INF, NAN]),
    "divide": (lambda x: 1 / x, [0.0, NAN]),
    "divide-numerator": (lambda x: x / np.zeros(()), [0.0, 1.0]),
    "power": (lambda x: x**-1.5, [0.0, -1.0, NAN]),
    "half-power": (lambda x: x**0.5, [0.0, -1.0]),
    "exponent": (lambda x: mg.power(-1.0, x), [0.5, INF]),
    "square": (mg.square, [INF, NAN]),
    "multiply": (lambda x: x * INF, [0.0, 1.0]),
    "multiply-nan": (lambda x: x * NAN, [0.0, 1.0]),
    "sin": (mg.sin, [INF, NAN]),
    "cos": (mg.cos, [INF, NAN]),
    "tanh": (mg.tanh, [INF, NAN]),
    "sigmoid": (mg.sigmoid, [INF, NAN]),
    "softplus": (mg.softplus, [INF, NAN]),
    "chain": (lambda x: mg.log(mg.sqrt(x)), [0.0, -1.0]),
    "product": (lambda x: x * mg.log(x), [0.0, -1.0]),
}


@pytest.mark.parametrize("name", SINGULAR)
def test_a_zero_cotangent_contributes_zero(name):
    f, points = SINGULAR[name]
    x = np.array(points)
    np.testing.assert_array_equal(slope(lambda x: f(x) * 0.0, x), np.zeros(len(x)))


@pytest.mark.parametrize("name", SINGULAR)
def test_a_dead_branch_of_where_contributes_zero_at_every_order(name):
    f, points = SINGULAR[name]
    x = np.array([*points, 0.7])
    alive = np.arange(len(x)) == len(x) - 1
    for g in [
        lambda x: mg.where(alive, f(x), x),
        lambda x: mg.where(~alive, x, f(x)),
        lambda x: f(x)[-1] + x[:-1].sum(),
    ]:
        np.testing.assert_allclose(slope(g, x), np.where(alive, slope(f, 0.7), 1), rtol=1e-14)
        np.testing.assert_allclose(second(g, x), np.where(alive, second(f, 0.7), 0), rtol=1e-14)


def test_x_log_x():
    f = lambda x: mg.where(x > 0, x * mg.log(x), 0.0)  # noqa: E731
    np.testing.assert_allclose(slope(f, [0.0, 1.0, np.e]), [0, 1, 2])
    np.testing.assert_allclose(second(f, [0.0, 1.0, 2.0]), [0, 1, 0.5])
    with pytest.warns(RuntimeWarning, match="divide by zero"):  # forward does exactly what NumPy does
        f(mg.tensor(0.0))


def test_entropy_with_zero_probabilities():
    p = np.array([0.0, 0.25, 0.75])
    h = lambda p: -mg.where(p > 0, p * mg.log(p), 0.0).sum()  # noqa: E731
    np.testing.assert_allclose(mg.grad(h)(p), [0, -1 - np.log(0.25), -1 - np.log(0.75)])


def test_where_gives_exact_zeros_to_what_is_not_chosen():
    a, b = mg.grad(lambda a, b: (mg.where([True, False], a, b) * np.array([INF, NAN])).sum(), (0, 1))(
        np.ones(2), np.ones(2)
    )
    np.testing.assert_array_equal(a, [INF, 0])
    np.testing.assert_array_equal(b, [0, NAN])


# --- no overflow -------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
def test_sigmoid_and_softplus_never_overflow():
    x = np.array([-1e308, -1e4, -40.0, 0.0, 40.0, 1e4, 1e308])
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        np.testing.assert_allclose(mg.sigmoid(x).data, [0, 0, np.exp(-40), 0.5, 1, 1, 1], rtol=1e-15)
        np.testing.assert_allclose(mg.softplus(x).data, [0, 0, np.exp(-40), np.log(2), 40, 1e4, 1e308], rtol=1e-15)
    np.testing.assert_allclose(slope(mg.softplus, x), [0, 0, np.exp(-40), 0.5, 1, 1, 1], rtol=1e-14)
    np.testing.assert_allclose(slope(mg.sigmoid, x), [0, 0, np.exp(-40), 0.25, 0, 0, 0], rtol=1e-14, atol=1e-16)
    for f in (mg.sigmoid, mg.softplus, mg.gelu):
        assert f(x.astype(np.float32) * 1e-300).dtype == np.float32


# --- laws between ops --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "g"),
    [
        (lambda x: mg.square(x), lambda x: x * x),
        (lambda x: x**3, lambda x: x * x * x),
        (lambda x: mg.sqrt(x), lambda x: x**0.5),
        (lambda x: mg.sigmoid(x), lambda x: 1 / (1 + mg.exp(-x))),
        (lambda x: mg.softplus(x), lambda x: mg.log(1 + mg.exp(x))),
        (lambda x: mg.tanh(x), lambda x: 2 * mg.sigmoid(2 * x) - 1),
        (lambda x: mg.expm1(x), lambda x: mg.exp(x) - 1),
        (lambda x: mg.log1p(x), lambda x: mg.log(x + 1)),
        (lambda x: mg.abs(x), lambda x: mg.maximum(x, -x)),
        (lambda x: mg.relu(x), lambda x: mg.where(x > 0, x, 0)),
        (lambda x: mg.clip(x, 0.5, 1.5), lambda x: mg.minimum(mg.maximum(x, 0.5), 1.5)),
        (lambda x: mg.sin(x) ** 2, lambda x: 1 - mg.cos(x) ** 2),
    ],
)
def test_two_spellings_have_one_value_and_gradient(f, g):
    x = np.array([0.1, 0.7, 1.3, 2.2])
    np.testing.assert_allclose(f(x).data, g(x).data, rtol=1e-12)
    np.testing.assert_allclose(slope(f, x), slope(g, x), rtol=1e-11)
    np.testing.assert_allclose(second(f, x), second(g, x), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "name",
    [
        "exp",
        "log",
        "sqrt",
        "tanh",
        "sin",
        "cos",
        "sigmoid",
        "softplus",
        "gelu",
        "relu",
        "square",
        "expm1",
        "log1p",
        "abs",
    ],
)
def test_integers_are_constants_with_numpys_dtype(name):
    x = np.array([1, 2, 3])
    y, expected = OPS[name](x), OPS[name](x.astype(float))
    np.testing.assert_allclose(y.data, expected.data)
    assert y.dtype == (np.int64 if name in ("relu", "square", "abs") else np.float64)


def test_second_derivatives_of_power_where_the_exponent_is_zero():
    a, b = np.array([2.0, 0.7, 3.0]), np.array([0.0, 0.0, 1.0])
    mixed = mg.grad(lambda b: mg.grad(lambda a: (a**b).sum())(a).sum())(b)
    np.testing.assert_allclose(mixed, a ** (b - 1) * (1 + b * np.log(a)), rtol=1e-14)
    mg.gradgradcheck(mg.power, (a, b))
    assert mg.grad(mg.power)(0.0, np.array(0.0)) == 0.0
