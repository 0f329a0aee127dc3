"""The known ways in which gradient checks of others have passed what is wrong or failed what is right."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


NORMALISATIONS = {
    "softmax": softmax,
    "sum to one": lambda x: x / x.sum(-1, keepdims=True),
    "mean zero": lambda x: x - x.mean(-1, keepdims=True),
    "log softmax": lambda x: np.log(softmax(x)),
}


@pytest.mark.parametrize("name", NORMALISATIONS)
@pytest.mark.parametrize("shape", [(3,), (2, 3)])
@pytest.mark.parametrize("wrong", [lambda g: 0 * g, lambda g: g - g.mean(-1, keepdims=True) + 0.1 * g])
def test_B079_a_normalisation_is_checked_with_cotangents_that_are_not_uniform(name, shape, wrong):
    x = np.arange(float(np.prod(shape))).reshape(shape) + 0.5
    f = mg.op(NORMALISATIONS[name]).rule(x=wrong)
    assert not mg.gradcheck(f, x, raise_exception=False)
    for check in (mg.gradcheck, mg.gradgradcheck):
        assert check(mg.softmax, x)
        assert check(mg.log_softmax, x)
        assert check(mg.layer_norm, x)


def test_B079_softmax_by_its_numbers():
    x = np.array([0.0, 1.0, 2.0])
    uniform, other = (mg.vjp(mg.softmax, x)[1](c)[0] for c in (np.ones(3), np.array([1.0, 2.0, 3.0])))
    np.testing.assert_allclose(uniform, 0, atol=1e-16)
    np.testing.assert_allclose(other, [-0.1418170936, -0.1407703575, 0.2825874511], rtol=1e-8)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("f", [mg.sin, mg.exp, mg.softmax, lambda x: mg.linear(x, np.eye(2)), lambda x: x**3])
def test_B080_low_precision_inputs_are_checked_in_double(f, dtype):
    x = np.array([[1.2345, -0.3]], dtype)
    (i,) = mg.gradcheck(f, x).inputs
    assert i.numeric.dtype == i.analytic.dtype == np.float64
    np.testing.assert_allclose(i.numeric, i.analytic, rtol=1e-8, atol=1e-10)
    (i,) = mg.gradcheck(mg.sin, dtype(1.2345)).inputs
    np.testing.assert_allclose(i.numeric, i.analytic, rtol=1e-8)


def test_B080_low_precision_parameters_are_checked_in_double():
    layer = nn.Sequential(nn.Linear(3, 4), mg.tanh, nn.LayerNorm(4), nn.Linear(4, 1))
    result = mg.gradcheck(layer, np.ones((2, 3), np.float32))
    assert all(i.numeric.dtype == np.float64 for i in result.inputs)
    assert len(result.inputs) == 7


@pytest.mark.parametrize("method", ["central", "random"])
@pytest.mark.parametrize("check", [mg.gradcheck, mg.gradgradcheck])
def test_B082_probes_do_not_drift(check, method):
    def shifted(x):
        x += 1
        return (x * x).sum()

    def tripled(x):
        x = x * 1.0
        x *= 3.0
        return (x * x).sum()

    def counted(x, ids):
        ids += 1  # a constant of the caller's
        return x[ids] ** 2

    x, ids = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 2, 2])
    result = check(shifted, x, method=method)
    if check is mg.gradcheck and method == "central":
        c = result.inputs[0].analytic / np.array([4.0, 6.0, 8.0, 10.0])
        np.testing.assert_allclose(c, c[0])
    assert check(tripled, x, method=method)
    assert check(counted, (x, ids), method=method)
    np.testing.assert_array_equal(mg.grad(shifted)(x), [4, 6, 8, 10])
    np.testing.assert_array_equal(x, [1, 2, 3, 4])
    np.testing.assert_array_equal(ids, [0, 2, 2])


def test_B082_a_call_that_writes_into_its_operand_is_named():
    def add_one(x):
        x += 1
        return x.copy()

    f = mg.op(add_one).rule(x=lambda g: g)
    result = mg.gradcheck(lambda x: f(x) ** 2, np.array([1.0, 2.0]), raise_exception=False)
    assert (result.diagnosis.kind, result.culprit.op) == ("input mutated", "add_one")


@pytest.mark.parametrize("method", ["central", "complex", "random"])
@pytest.mark.parametrize(
    "x",
    [
        np.broadcast_to([2.0], (3,)),
        np.broadcast_to(2.0, (2, 2)),
        np.lib.stride_tricks.sliding_window_view(np.arange(4.0), 2),
        np.arange(12.0).reshape(3, 4).T[::-1, ::2],
    ],
)
def test_B083_inputs_whose_elements_share_memory(x, method):
    before = x.copy()
    (i,) = mg.gradcheck(lambda x: (x**2).sum(), x, method=method).inputs
    factor = i.analytic[x != 0] / (2 * x[x != 0])  # the random cotangent of the sum
    np.testing.assert_allclose(factor, factor[0])
    if method != "complex":  # which gradients do not take
        assert mg.gradgradcheck(lambda x: (x**3).sum(), x, method=method)
    np.testing.assert_array_equal(x, before)
