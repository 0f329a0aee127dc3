"""vjp, jvp, jacobian, hessian, hvp, elementwise_grad, stop_gradient, checkpoint."""

import gc
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.kernels import memory
from minigrad.trees import flatten
from models import AttentionStack, FCStack


def normal(*shape, seed=5):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


MATRIX, POINT = normal(3, 4), normal(4)


def curve(x):
    return mg.tanh(mg.matmul(MATRIX, x)) * x[0]


def number(x):
    return mg.logsumexp(mg.sin(x) * x) + x[1] ** 3


def differences(f, x, h=1e-5):
    """The jacobian of f by central differences, (*output, *input)."""
    columns = []
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = h
        columns.append((np.asarray(f(x + step)) - np.asarray(f(x - step))) / (2 * h))
    output = np.shape(columns[0])
    return np.moveaxis(np.array(columns).reshape(*x.shape, *output), range(x.ndim), range(-x.ndim, 0))


def value_of(f):
    return lambda x: f(mg.tensor(x)).data


# --- vjp and jvp -------------------------------------------------------------------------------------------------


def test_vjp_and_jvp_are_the_jacobian_from_both_sides():
    jacobian = differences(value_of(curve), POINT)
    value, pull = mg.vjp(curve, POINT)
    np.testing.assert_allclose(value, curve(mg.tensor(POINT)).data, rtol=1e-14)
    for i in range(3):  # it can be pulled again and again
        c, v = normal(3, seed=i), normal(4, seed=i)
        np.testing.assert_allclose(pull(c)[0], c @ jacobian, rtol=1e-8)
        value, tangent = mg.jvp(curve, (POINT,), (v,))
        np.testing.assert_allclose(tangent, jacobian @ v, rtol=1e-8)
        np.testing.assert_allclose(value, curve(mg.tensor(POINT)).data, rtol=1e-14)


def test_vjp_of_nested_containers():
    def f(tree, scale):
        return {"sum": (tree["a"] * tree["b"][0]).sum() * scale, "rest": [tree["b"][1] ** 2]}

    tree = {"a": np.array([1.0, 2.0]), "b": [np.array([3.0, 4.0]), np.array([[5.0]])]}
    value, pull = mg.vjp(f, tree, 2.0)
    assert value["sum"] == 22.0
    gradient, d_scale = pull({"sum": np.array(10.0), "rest": [np.array([[7.0]])]})
    np.testing.assert_array_equal(gradient["a"], [60.0, 80.0])
    np.testing.assert_array_equal(gradient["b"][0], [20.0, 40.0])
    np.testing.assert_array_equal(gradient["b"][1], [[70.0]])
    assert d_scale == 110.0


@pytest.mark.parametrize("shape", [(1,), (4,), (3, 1), ()])
def test_a_cotangent_of_another_shape_is_refused(shape):
    _, pull = mg.vjp(curve, POINT)
    with pytest.raises(ValueError, match=r"\(3,\)"):
        pull(np.ones(shape))
    with pytest.raises(ValueError, match="the cotangent of curve: a list of length 2 stands in the place of an array"):
        pull([np.ones(3), np.ones(3)])


def test_a_direction_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"\(4,\)"):
        mg.jvp(curve, (POINT,), (np.ones(3),))
    with pytest.raises(ValueError, match=r"\(4,\)"):
        mg.hvp(number)(POINT, np.ones((4, 1)))


def test_pull_inside_a_transform_is_differentiable():
    def f(x):
        _, pull = mg.vjp(curve, x)
        return (pull(np.array([1.0, -2.0, 0.5]))[0] ** 2).sum()

    np.testing.assert_allclose(mg.grad(f)(POINT), differences(value_in_transform(f), POINT), rtol=1e-6)


def value_in_transform(f):
    return lambda x: mg.vjp(f, x)[0]


COMPLEX = [np.fft.fft, lambda x: np.sum(x) * 1j, lambda x: np.fft.rfft(x)[:0]]


@pytest.mark.parametrize("f", COMPLEX)
def test_real_transforms_refuse_complex_outputs(f):
    x = np.array([1.0, -2.0, 0.5])
    for call in [
        mg.jacobian(f),
        mg.hessian(f),
        lambda x: mg.jvp(f, (x,), (x,)),
        lambda x: mg.jvp(lambda x: (x, f(x)), x, x),
    ]:
        with pytest.raises(TypeError, match=r"complex.*take mg\.real"):
            call(x)
    with pytest.raises((TypeError, ValueError), match=r"take mg\.real"):
        mg.grad(lambda x: f(x).sum())(x)
    assert mg.jacobian(lambda x: mg.imag(f(x)))(x).dtype == float


def test_the_jacobian_of_a_complex_function_from_its_parts_is_its_matrix():
    matrix = mg.jacobian(lambda x: mg.real(np.fft.fft(x)))(np.ones(4)) + 1j * mg.jacobian(
        lambda x: mg.imag(np.fft.fft(x))
    )(np.ones(4))
    np.testing.assert_allclose(matrix, np.fft.fft(np.eye(4)), atol=1e-15)


def test_vjp_of_a_complex_output_differentiates_the_real_part_of_its_product():
    c = np.array([1 + 2j, -3j, 0.5])
    _, pull = mg.vjp(np.fft.fft, np.array([1.0, -2.0, 0.5]))
    np.testing.assert_allclose(pull(c)[0], (np.fft.fft(np.eye(3)).T @ c).real, atol=1e-14)


def test_cotangents_and_directions_that_are_no_real_numbers():
    f = lambda x: x * x  # noqa: E731
    for wrong in (None, "1", 1j, np.array(1j)):
        with pytest.raises(TypeError, match="cotangent of dtype"):
            mg.vjp(f, 1.0)[1](wrong)
        for call in (lambda v: mg.jvp(f, (1.0,), (v,)), lambda v: mg.hvp(f)(1.0, v)):
            with pytest.raises(TypeError, match="direction is of real numbers"):
                call(wrong)


def test_jvp_says_what_the_directions_of_a_tuple_are():
    for wrong in (1.0, [1.0], np.ones(1), None):
        with pytest.raises(TypeError, match="a tuple of as many directions"):
            mg.jvp(lambda a: a * a, (1.0,), wrong)
    for wrong in ((), (1.0, 2.0)):
        with pytest.raises(
            ValueError, match=f"a tuple of length {len(wrong)} stands in the place of a tuple of length 1"
        ):
            mg.jvp(lambda a: a * a, (1.0,), wrong)


def test_entries_of_dicts_belong_together_by_their_keys():
    f = lambda p: 10 * p["a"] ** 2 + p["b"][0]  # noqa: E731
    p, v = {"a": 1.0, "b": (2.0,)}, {"b": (1.0,), "a": 0.0}
    assert mg.jvp(f, (p,), (v,))[1] == 1.0
    assert mg.hvp(f)(p, {"b": (5.0,), "a": 1.0}) == {"a": 20.0, "b": (0.0,)}
    assert mg.hvp(lambda p, x: f(p) * x**2, (0, 1))(p, 3.0, ({"b": (0.0,), "a": 0.0}, 1.0)) == (
        {"a": 120.0, "b": (6.0,)},
        24.0,
    )
    _, pull = mg.vjp(lambda x: {"y": 2 * x, "z": 3 * x}, 1.0)
    assert pull({"z": 1.0, "y": 0.0}) == (3.0,)


@pytest.mark.parametrize("wrong", [{"a": 1.0}, {"a": 1.0, "c": (1.0,)}, [1.0, (1.0,)], {"a": (1.0,), "b": 1.0}, 1.0])
def test_cotangents_and_directions_that_are_built_otherwise(wrong):
    f = lambda p: p["a"] ** 2 + p["b"][0]  # noqa: E731
    p = {"a": 1.0, "b": (2.0,)}
    _, pull = mg.vjp(lambda x: {"a": x, "b": (x,)}, 1.0)
    for call in (pull, lambda v: mg.jvp(f, (p,), (v,)), lambda v: mg.hvp(f)(p, v)):
        with pytest.raises(ValueError, match="in the place of"):
            call(wrong)


def test_the_hessian_of_a_nest_is_a_nest_of_nests():
    a = np.array([1.0, 2.0])
    found = mg.hessian(lambda p: (p["a"] ** 2).sum() * p["b"])({"a": a, "b": 3.0})
    np.testing.assert_array_equal(found["a"]["a"], 6 * np.eye(2))
    np.testing.assert_array_equal(found["a"]["b"], 2 * a)
    np.testing.assert_array_equal(found["b"]["a"], 2 * a)
    assert found["b"]["b"] == 0.0


def test_the_jacobian_of_several_arrays():
    x, y = np.array([1.0, 2.0]), 3.0
    found = mg.jacobian(lambda x, y: {"sum": x.sum(), "parts": [x * y, 7.0]}, (0, 1))(x, y)
    np.testing.assert_array_equal(found["sum"][0], [1.0, 1.0])
    assert found["sum"][1] == 0.0
    np.testing.assert_array_equal(found["parts"][0][0], y * np.eye(2))
    np.testing.assert_array_equal(found["parts"][0][1], x)
    np.testing.assert_array_equal(found["parts"][1][0], [0.0, 0.0])


def test_hvp_without_a_direction():
    for call in (mg.hvp(number), mg.hvp(lambda x, y: number(x) * y, 1), lambda x: mg.hvp(number)()):
        with pytest.raises(TypeError, match="and then a direction v"):
            call(POINT)


def test_jvp_nests():
    f = lambda x: mg.exp(x) * x**2  # noqa: E731
    x = 0.7
    second = lambda x: mg.jvp(lambda x: mg.jvp(f, (x,), (1.0,))[1], (x,), (1.0,))[1]  # noqa: E731
    np.testing.assert_allclose(second(x), np.exp(x) * (x**2 + 4 * x + 2), rtol=1e-13)
    np.testing.assert_allclose(mg.grad(second)(x), np.exp(x) * (x**2 + 6 * x + 6), rtol=1e-13)


# --- jacobian and hessian ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4,), (2, 2), (1, 4)])
def test_jacobian_has_the_axes_of_the_output_and_then_of_the_input(shape):
    x = POINT.reshape(shape)
    f = lambda x: curve(x.reshape(4)).reshape(3, 1)  # noqa: E731
    jacobian = mg.jacobian(f)(x)
    assert jacobian.shape == (3, 1, *shape)
    np.testing.assert_allclose(jacobian, differences(value_of(f), x), rtol=1e-7)


def test_jacobian_with_argnums_and_containers():
    def f(x, pair, y):
        return x * pair[0] + pair[1] * y

    x, y = np.array([1.0, 2.0]), np.array([5.0, 6.0])
    for_pair, for_x = mg.jacobian(f, argnums=(1, 0))(x, [np.array(3.0), 4.0], y)
    np.testing.assert_array_equal(for_pair[0], x)
    np.testing.assert_array_equal(for_pair[1], y)
    np.testing.assert_array_equal(for_x, 3 * np.eye(2))


def test_B086_no_path_is_exactly_zero():  # noqa: N802
    z = np.array([1.0, 2.0, 3.0])
    linear = lambda x: (z * x).sum()  # noqa: E731
    np.testing.assert_array_equal(mg.hessian(linear)(z), np.zeros((3, 3)))
    np.testing.assert_array_equal(mg.hvp(linear)(z, z), np.zeros(3))
    np.testing.assert_array_equal(mg.jacobian(lambda x: mg.tensor([1.0, 2.0]))(z), np.zeros((2, 3)))
    np.testing.assert_array_equal(mg.jvp(lambda x: mg.tensor([1.0, 2.0]), (z,), (z,))[1], np.zeros(2))
    _, pull = mg.vjp(lambda x, unused: x * 2, z, np.ones((2, 2)))
    np.testing.assert_array_equal(pull(np.ones(3))[1], np.zeros((2, 2)))


def test_B113_the_hessian_of_a_vector_function_is_output_by_input_by_input():  # noqa: N802
    hessian = mg.hessian(mg.exp)(np.ones(4))
    assert hessian.shape == (4, 4, 4)
    expected = np.zeros((4, 4, 4))
    expected[np.arange(4), np.arange(4), np.arange(4)] = np.e
    np.testing.assert_allclose(hessian, expected, rtol=1e-15)
    assert mg.hessian(mg.exp)(1.0).shape == ()
    assert mg.jacobian(lambda x: x[:0])(np.ones(3)).shape == (0, 3)
    assert mg.jacobian(lambda x: x.sum())(np.ones((0, 2))).shape == (0, 2)


def test_the_hessian_of_softmax_cross_entropy_is_diag_p_minus_p_p():
    z = normal(6)
    p = np.exp(z) / np.exp(z).sum()
    for f in (lambda z: nn.cross_entropy(z[None], [2]), lambda z: mg.logsumexp(z) - z[2]):
        np.testing.assert_allclose(mg.hessian(f)(z), np.diag(p) - np.outer(p, p), rtol=1e-12, atol=1e-15)


def test_hessian_and_hvp_agree_with_differences_of_the_gradient():
    hessian = differences(lambda x: mg.grad(number)(x), POINT)
    np.testing.assert_allclose(mg.hessian(number)(POINT), hessian, rtol=1e-6, atol=1e-8)
    v = normal(4, seed=6)
    np.testing.assert_allclose(mg.hvp(number)(POINT, v), hessian @ v, rtol=1e-6)


def test_hvp_takes_containers_and_other_arguments():
    f = lambda scale, p: scale * (p["a"] ** 3).sum() * p["b"]  # noqa: E731
    p = {"a": np.array([1.0, 2.0]), "b": np.array(3.0)}
    v = {"a": np.array([1.0, 0.0]), "b": np.array(1.0)}
    product = mg.hvp(f, 1)(2.0, p, v)
    np.testing.assert_allclose(product["a"], 2 * np.array([6 * 1 * 3 + 3 * 1, 3 * 4]), rtol=1e-14)
    np.testing.assert_allclose(product["b"], 2 * 3.0, rtol=1e-14)


def test_hvp_never_builds_the_hessian():
    n = 3000
    x, v = np.linspace(-1, 1, n), np.ones(n)
    f = lambda x: mg.sin(x).sum() * (x**2).sum()  # noqa: E731
    mg.hvp(f)(x[:10], v[:10])
    tracemalloc.start()
    product = mg.hvp(f)(x, v)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60 * x.nbytes  # the hessian would be 3000 times x
    hessian = -np.diag(np.sin(x)) * (x**2).sum() + 2 * np.eye(n) * np.sin(x).sum()
    hessian += np.outer(np.cos(x), 2 * x) + np.outer(2 * x, np.cos(x))
    np.testing.assert_allclose(product, hessian @ v, rtol=1e-9)


def test_the_fourth_derivative_of_an_attention_network_along_a_direction():
    """Against a polynomial fit of exact third derivatives, themselves checked against the second ones."""
    model = AttentionStack(4, blocks=2, heads=2, hidden=6, rng=np.random.default_rng(0), dtype=np.float64)
    x, v = normal(1, 3, 4, seed=2), normal(1, 3, 4, seed=3)  # far from every kink of relu
    along = [lambda t: (model(mg.tensor(x) + t * v) ** 2).sum() * 0.1]
    for _ in range(4):
        along.append(mg.grad(along[-1]))
    for low, high in pairwise(along[1:]):  # eighth-order central difference
        h = 0.01
        weights = {1: 4 / 5, 2: -1 / 5, 3: 4 / 105, 4: -1 / 280}
        numeric = sum(w * (low(k * h) - low(-k * h)) for k, w in weights.items()) / h
        np.testing.assert_allclose(high(0.0), numeric, rtol=1e-6)


# --- elementwise_grad and stop_gradient --------------------------------------------------------------------------


def test_elementwise_grad_nests():
    x = np.linspace(-2, 2, 7)
    np.testing.assert_allclose(mg.elementwise_grad(mg.elementwise_grad(np.sin))(x), -np.sin(x), rtol=1e-14)
    np.testing.assert_array_equal(mg.elementwise_grad(lambda a, b: a * b, 1)(x, 2 * x), x)


def test_stop_gradient_stops_transforms_and_backward():
    assert mg.grad(lambda x: x * mg.stop_gradient({"x": [x]})["x"][0])(3.0) == 3.0
    inner = lambda x: mg.grad(lambda y: mg.stop_gradient(x) * x * y)(1.0)  # noqa: E731
    assert mg.grad(inner)(3.0) == 3.0
    x = mg.tensor(3.0, requires_grad=True)
    (mg.stop_gradient(x) * x).backward()
    assert x.grad == 3.0


# --- checkpoint --------------------------------------------------------------------------------------------------


def gradients_of(loss, model, x):
    for p in [*model.parameters(), x]:
        p.grad = None
    mg.seed(7)
    loss(x).backward()
    return [p.grad for p in [*model.parameters(), x]]


def test_checkpoint_gives_the_same_gradients_with_dropout_and_closed_over_parameters():
    model = FCStack((4, 16, 16, 3), dropout=0.4, dtype=np.float64, rng=np.random.default_rng(0))
    x = mg.tensor(normal(5, 4), requires_grad=True)
    plain = gradients_of(lambda x: (model(x) ** 2).sum(), model, x)
    for f in (lambda x: (mg.checkpoint(model)(x) ** 2).sum(), mg.checkpoint(lambda x: (model(x) ** 2).sum())):
        for a, b in zip(plain, gradients_of(f, model, x)):
            np.testing.assert_array_equal(a, b)
    mg.seed(7)
    (model(x) ** 2).sum().backward()
    after_plain = mg.random.generator().random()
    mg.seed(7)
    (mg.checkpoint(model)(x) ** 2).sum().backward()
    assert mg.random.generator().random() == after_plain  # the second run took no draws from anybody else


def test_checkpoint_of_a_checkpoint_and_higher_orders():
    f = lambda x: mg.sin(x) ** 3  # noqa: E731
    twice = mg.checkpoint(lambda x: mg.checkpoint(f)(x) * x)
    plain = lambda x: f(x) * x  # noqa: E731
    for _ in range(3):
        twice, plain = mg.grad(twice), mg.grad(plain)
        np.testing.assert_allclose(twice(0.8), plain(0.8), rtol=1e-13)


def test_checkpoint_with_several_outputs_and_constants():
    def f(x, n):
        return {"a": x * n, "n": n, "b": [mg.exp(x)]}

    x = mg.tensor([1.0, 2.0], requires_grad=True)
    out = mg.checkpoint(f)(x, 3)
    assert out["n"] == 3
    (out["b"][0].sum() * 2).backward()  # the other output is not used
    np.testing.assert_allclose(x.grad, 2 * np.exp([1.0, 2.0]), rtol=1e-15)


def test_checkpoint_refuses_a_parameter_that_was_written_in_between():
    w = mg.tensor([2.0], requires_grad=True)
    y = mg.checkpoint(lambda x: mg.exp(w * x))(mg.tensor([1.0], requires_grad=True))
    with mg.no_grad():
        w += 1.0
    with pytest.raises(RuntimeError, match="written in place"):
        y.backward()


def test_checkpoint_saves_memory():
    layers = [FCStack((64, 256, 64), dtype=np.float64, rng=np.random.default_rng(i)) for i in range(8)]
    x = mg.tensor(np.random.default_rng(0).standard_normal((2000, 64)), requires_grad=True)

    def peak(wrap):
        gc.collect()
        memory._buffers.drop_free()
        tracemalloc.start()
        h = x
        for layer in layers:
            h = wrap(layer)(h)
        (h**2).sum().backward()
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    peak(mg.checkpoint)  # what is made once for all is no memory of the pass
    assert peak(mg.checkpoint) < 0.55 * peak(lambda layer: layer)


def test_a_cotangent_that_is_an_untracked_tensor_is_like_an_array():
    z, labels = np.array([[0.3, -0.2], [1.0, 0.5]]), [0, 1]

    def pulled(scale):
        _, pull = mg.vjp(lambda z: nn.cross_entropy(z, labels, reduction="none"), z)
        return (pull(mg.tensor([1.0, 2.0]))[0] * scale).sum()

    _, pull = mg.vjp(lambda z: nn.cross_entropy(z, labels, reduction="none"), z)
    np.testing.assert_allclose(mg.grad(pulled)(3.0), pull(np.array([1.0, 2.0]))[0].sum(), atol=1e-15)


class Recomputed(mg.nn.Module):
    def __init__(self):
        self.inner = mg.nn.Linear(3, 4, rng=np.random.default_rng(0), dtype=float)

    def forward(self, x, again=mg.checkpoint):
        return again(lambda z: mg.tanh(self.inner(z)))(x)


def test_checkpoint_inside_a_functional_call_runs_again_with_the_same_parameters():
    model, x = Recomputed(), np.random.default_rng(1).standard_normal((5, 3))
    values = {name: 3 * p.data for name, p in model.named_parameters()}

    def loss(values, x, again):
        return (mg.nn.functional_call(model, values, x, again) ** 2).sum()

    for argnum in (0, 1):
        found, expected = (mg.grad(loss, argnum)(values, x, again) for again in (mg.checkpoint, lambda f: f))
        for g, h in zip(flatten(found)[0], flatten(expected)[0], strict=True):
            np.testing.assert_array_equal(g, h)
            assert np.abs(h).max() > 0.01
    assert mg.gradcheck(model, x)
    assert mg.gradgradcheck(model, x)


def test_checkpoint_refuses_a_parameter_that_was_replaced_in_between():
    model = Recomputed()
    loss = model(np.ones((2, 3))).sum()
    model.inner.weight = mg.nn.Parameter(np.ones((3, 4)))
    with pytest.raises(RuntimeError, match=r"checkpoint\(<lambda>\) computed with other tensors"):
        loss.backward()
