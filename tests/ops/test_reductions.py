"""Ties, zeros, constants, overflow and emptiness in reductions. Values and gradients over axes: test_laws.py."""

import warnings

import numpy as np
import pytest

import minigrad as mg

INF = np.inf


def slope(f, *xs):
    return mg.grad(lambda *xs: f(*xs).sum(), tuple(range(len(xs))) if len(xs) > 1 else 0)(*xs)


@pytest.mark.parametrize("op", [mg.max, mg.min])
@pytest.mark.parametrize(
    ("shape", "axis"), [((4,), None), ((3, 4), None), ((3, 4), 0), ((3, 4), -1), ((2, 3, 2), (0, 2))]
)
@pytest.mark.parametrize("keepdims", [False, True])
def test_extrema_that_tie_share_evenly(op, shape, axis, keepdims):
    x = np.round(np.random.default_rng(3).standard_normal(shape))  # many ties
    t = mg.tensor(x, requires_grad=True)
    y = op(t, axis, keepdims)
    c = np.random.default_rng(4).standard_normal(y.shape)
    y.backward(c)
    axes = tuple(range(x.ndim)) if axis is None else axis
    np.testing.assert_allclose(t.grad.sum(axes, keepdims=keepdims), c)
    winners = x == (np.max if op is mg.max else np.min)(x, axis, keepdims=True)
    assert (t.grad[~winners] == 0).all()
    expected = np.reshape(c, np.max(x, axis, keepdims=True).shape) / winners.sum(axis, keepdims=True) * winners
    np.testing.assert_allclose(t.grad, expected)


@pytest.mark.parametrize("n", range(9))
@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_each_factors_gradient_is_the_product_of_the_others(n, zeros):
    x = np.random.default_rng(n).uniform(0.5, 2, n)
    x[: min(zeros, n)] = 0
    expected = [np.prod(np.delete(x, i)) for i in range(n)]
    np.testing.assert_allclose(slope(mg.prod, x), expected, rtol=1e-14)


def test_products_neither_overflow_on_the_way_nor_divide():
    np.testing.assert_array_equal(slope(mg.prod, np.array([1e200, 1e-200, 3.0])), [3e-200, 3e200, 1.0])
    np.testing.assert_array_equal(slope(mg.prod, np.array([INF, 2.0])), [2, INF])


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_deviation_of_equal_values_has_gradient_zero_at_every_order(shape):
    x = np.full(shape, 2.5)
    assert mg.std(x).item() == 0
    np.testing.assert_array_equal(slope(mg.std, x), np.zeros(shape))
    np.testing.assert_array_equal(slope(lambda x: slope(mg.std, x), x), np.zeros(shape))
    rows = np.array([[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]])
    grad = slope(lambda x: mg.std(x, axis=1), rows)
    np.testing.assert_array_equal(grad[0], 0)
    np.testing.assert_allclose(grad[1], [-1 / (3 * np.std(rows[1])), 0, 1 / (3 * np.std(rows[1]))])


def test_variance_with_too_few_values_is_numpys():
    for x, ddof in [([1.0, 2.0], 3), ([1.0, 2.0], 2), ([[1.0, 4.0]], 1)]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            np.testing.assert_array_equal(
                mg.var(x, -1, ddof=ddof).data, np.var(x, axis=-1, ddof=min(ddof, 2)) if ddof < 3 else INF
            )


def test_variance_far_from_zero_is_exact():
    x = np.array([1e8, 1e8 + 1, 1e8 + 2])
    np.testing.assert_allclose(mg.var(x).data, 2 / 3)
    np.testing.assert_allclose(slope(mg.var, x), [-2 / 3, 0, 2 / 3], atol=1e-12)


# --- logsumexp ---------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
def test_logsumexp_never_overflows():
    for shift in [-1e308, -1e5, 0.0, 1e5, 1e308]:
        x = np.array([[0.0, 1.0, 2.0]]) if abs(shift) < 1e300 else np.zeros((1, 3))
        np.testing.assert_allclose(mg.logsumexp(x + shift, -1).data, shift + np.log(np.exp(x).sum(-1)), rtol=1e-14)
        np.testing.assert_allclose(
            slope(lambda x: mg.logsumexp(x, -1), x + shift), np.exp(x) / np.exp(x).sum(), rtol=1e-9
        )


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("keepdims", [False, True])
def test_logsumexp_with_minus_infinity(keepdims):
    x = np.array([[-INF, -INF], [-INF, 1.0], [0.0, 0.0]])
    np.testing.assert_allclose(mg.logsumexp(x, 1, keepdims).data.ravel(), [-INF, 1, np.log(2)])
    np.testing.assert_array_equal(slope(lambda x: mg.logsumexp(x, 1, keepdims), x), [[0, 0], [0, 1], [0.5, 0.5]])
    np.testing.assert_array_equal(slope(lambda x: slope(lambda x: mg.logsumexp(x, 1, keepdims), x), x)[0], [0, 0])


def test_logsumexp_of_integers_is_floating():
    assert mg.logsumexp([0, 0]).item() == pytest.approx(np.log(2))
    assert mg.logsumexp(np.zeros(2, np.float32)).dtype == np.float32


# --- empty -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
def test_reductions_of_nothing(shape):
    x = np.zeros(shape)
    assert mg.sum(x).item() == 0
    assert mg.prod(x).item() == 1
    assert mg.logsumexp(x).item() == -INF
    for op in (mg.max, mg.min):
        with pytest.raises(ValueError, match="zero-size"):
            op(x)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert np.isnan(mg.mean(x).item())
        assert slope(mg.mean, x).shape == shape
    assert "Mean of empty slice" in str(caught[0].message)
    for op in (mg.sum, mg.prod, mg.logsumexp):
        assert slope(op, x).shape == shape


def test_reductions_over_some_axes_of_nothing():
    x = np.zeros((0, 3))
    assert mg.max(x, 1).shape == (0,)
    np.testing.assert_array_equal(mg.sum(x, 0).data, np.zeros(3))
    np.testing.assert_array_equal(mg.prod(x, 0).data, np.ones(3))
    assert slope(lambda x: mg.max(x, 1), x).shape == (0, 3)


@pytest.mark.parametrize("op", [mg.sum, mg.mean, mg.max, mg.min, mg.prod, mg.logsumexp, mg.var, mg.std])
@pytest.mark.parametrize("axis", [2, -3, (0, 2)])
def test_an_axis_that_is_not_there(op, axis):
    with pytest.raises(np.exceptions.AxisError, match="out of bounds"):
        op(np.ones((2, 3)), axis)


@pytest.mark.parametrize("op", [mg.sum, mg.mean, mg.max, mg.prod, mg.var, mg.std, mg.logsumexp])
def test_float32_inputs_give_float32_through_counts(op):
    x = mg.tensor([1.0, 1.0, 0.0], dtype=np.float32, requires_grad=True)
    y = op(x)
    assert y.dtype == np.float32
    y.backward()
    assert x.grad.dtype == np.float32


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("name", ["sum", "max", "min", "prod", "logsumexp", "nansum", "nanmax"])
def test_a_0d_tensor_is_reduced_over_axis_0_as_numpy_does_it(name, axis):
    op, expected = getattr(mg, name), getattr(np, name, lambda x, axis: x)
    for keepdims in (False, True):
        assert op(mg.tensor(2.5), axis=axis, keepdims=keepdims).data == expected(np.array(2.5), axis=axis)
    mg.gradcheck(lambda x: op(x * x, axis=axis), 1.5)
