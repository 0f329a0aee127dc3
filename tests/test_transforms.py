"""grad and value_and_grad: structure, nesting, create_graph."""

import numpy as np
import pytest

import minigrad as mg


def leaf(x):
    return mg.tensor(x, requires_grad=True)


# --- orders ------------------------------------------------------------------------------------------------------


def quartic_sine(x):
    return x**4 * mg.sin(x)


CLOSED_FORMS = [
    lambda x: x**4 * np.sin(x),
    lambda x: 4 * x**3 * np.sin(x) + x**4 * np.cos(x),
    lambda x: (12 * x**2 - x**4) * np.sin(x) + 8 * x**3 * np.cos(x),
    lambda x: (24 * x - 12 * x**3) * np.sin(x) + (36 * x**2 - x**4) * np.cos(x),
    lambda x: (24 - 72 * x**2 + x**4) * np.sin(x) + (96 * x - 16 * x**3) * np.cos(x),
]


@pytest.mark.parametrize("order", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("x", [-2.3, 0.0, 0.7, 3.1])
def test_nested_orders_agree_with_the_closed_form(order, x):
    f = quartic_sine
    for _ in range(order):
        f = mg.grad(f)
    np.testing.assert_allclose(f(x if order else mg.tensor(x)), CLOSED_FORMS[order](x), rtol=1e-9, atol=1e-9)


def test_nested_orders_over_a_vector():
    x = np.array([-1.2, 0.4, 2.5])
    first = lambda x: mg.grad(lambda v: quartic_sine(v).sum())(x)  # noqa: E731
    second = lambda x: mg.grad(lambda v: first(v).sum())(x)  # noqa: E731
    third = mg.grad(lambda v: second(v).sum())(x)
    np.testing.assert_allclose(third, CLOSED_FORMS[3](x), rtol=1e-9)


@pytest.mark.parametrize(
    "f", [mg.exp, lambda x: mg.softmax(x)[1] * 3, lambda x: mg.layer_norm(x)[0], lambda x: mg.logsumexp(x * x)]
)
def test_third_order_of_fused_and_plain_ops(f):
    x, a, b = np.random.default_rng(0).standard_normal((3, 4))
    along = lambda g, v: lambda x: (mg.grad(lambda y: g(y).sum())(x) * v).sum()  # noqa: E731
    mg.gradgradcheck(along(along(f, a), b), x)


# --- perturbation confusion --------------------------------------------------------------------------------------


def test_inner_and_outer_variables_are_kept_apart():
    assert mg.grad(lambda x: x * mg.grad(lambda y: x * y)(2.0))(3.0) == 6
    assert mg.grad(lambda x: x * mg.grad(lambda y: x + y)(1.0))(1.0) == 1
    assert mg.grad(lambda x: mg.grad(lambda y: y * y)(x))(5.0) == 2
    assert mg.grad(lambda x: mg.grad(lambda y: x)(x))(5.0) == 0
    assert mg.grad(lambda x: x * mg.grad(lambda y: 3.0 * y)(2.0))(3.0) == 3


def test_two_inner_transforms_in_a_row_and_one_inside_the_other():
    def f(x):
        a = mg.grad(lambda y: y**3)(x)  # 3 x^2
        b = mg.grad(lambda y: x * y**2)(x)  # 2 x^2
        c = mg.grad(lambda y: y * mg.grad(lambda z: x * y * z)(y))(x)  # d(x y^2)/dy = 2 x^2
        return a + b + c

    np.testing.assert_allclose(mg.grad(f)(1.5), 14 * 1.5)
    np.testing.assert_allclose(mg.grad(mg.grad(f))(1.5), 14)


def test_what_an_earlier_transform_left_behind_does_not_count():
    kept = []
    mg.grad(lambda x: kept.append(x * 2) or x * x)(3.0)
    assert mg.grad(lambda x: x * kept[0])(3.0) == 6
    assert mg.grad(lambda x: mg.grad(lambda y: y * x * kept[0])(1.0))(3.0) == 6


def test_closed_over_parameters_get_nothing_from_a_transform():
    w = leaf([1.0, 2.0])
    g = mg.grad(lambda x: (x * w).sum())(np.ones(2))
    np.testing.assert_array_equal(g, [1, 2])
    assert type(g) is np.ndarray
    assert w.grad is None


# --- create_graph ------------------------------------------------------------------------------------------------


def test_backward_goes_through_a_gradient_penalty():
    """d/dw of |d/dx tanh(x w)|^2, against finite differences."""
    x, w = np.array([[0.3, -0.5]]), np.array([[0.7], [-1.1]])

    def penalty(w):
        g = mg.grad(lambda v: mg.tanh(v @ w).sum(), create_graph=True)(x)
        return (g * g).sum()

    leaf_w = leaf(w)
    penalty(leaf_w).backward()

    def by_hand(w):
        return float(np.sum(((1 - np.tanh(x @ w) ** 2) @ w.T) ** 2))

    step = 1e-5
    for at in np.ndindex(w.shape):
        up, down = w.copy(), w.copy()
        up[at] += step
        down[at] -= step
        np.testing.assert_allclose(leaf_w.grad[at], (by_hand(up) - by_hand(down)) / (2 * step), rtol=1e-8)


@pytest.mark.parametrize(
    ("loss", "what"),
    [
        (lambda x: (x.sum(), x.mean()), "a tuple of 2, where one number"),
        (lambda x: [x.sum()], "a list of 1, where one number"),
        (lambda x: {"loss": x.sum()}, "a dict of 1, where one number"),
        (lambda x: (), "a tuple of 0, where one number"),
        (lambda x: (1.0,), "a tuple of 1, where one number"),
    ],
)
@pytest.mark.parametrize("transform", [mg.grad, mg.value_and_grad])
def test_a_loss_among_others_is_no_number(transform, loss, what):
    with pytest.raises(TypeError, match=f"<lambda> returned {what} was expected"):
        transform(loss)(np.ones(3))


def test_elementwise_grad_of_several_arrays_says_so():
    with pytest.raises(TypeError, match="<lambda> returned a tuple of 2, where an array was expected"):
        mg.elementwise_grad(lambda x: (x, x))(np.ones(3))


def test_create_graph_returns_tensors_that_reach_leaves_among_the_arguments():
    x = leaf([1.0, 2.0])
    value, g = mg.value_and_grad(lambda v: (v**3).sum(), create_graph=True)(x)
    assert type(value) is type(g) is mg.Tensor
    (value + g.sum()).backward()
    np.testing.assert_array_equal(x.grad, [3 + 6, 12 + 12])


def test_create_graph_of_what_does_not_depend_on_the_argument():
    g = mg.grad(lambda x: mg.tensor(1.0), create_graph=True)(2.0)
    assert type(g) is mg.Tensor
    assert g.item() == 0


# --- structure ---------------------------------------------------------------------------------------------------


def test_argnums():
    f = lambda x, y, z: x * y + z  # noqa: E731
    assert mg.grad(f)(2.0, 3.0, 4.0) == 3
    assert mg.grad(f, 1)(2.0, 3.0, 4.0) == 2
    assert mg.grad(f, -1)(2.0, 3.0, 4.0) == 1
    assert mg.grad(f, argnums=(2, 0))(2.0, 3.0, 4.0) == (1, 3)
    assert mg.grad(f, argnums=[0])(2.0, 3.0, 4.0) == (3,)
    assert mg.grad(f)(2.0, y=3.0, z=1) == 3
    with pytest.raises(TypeError, match=r"argument 3 .* 2 positional"):
        mg.grad(f, 3)(2.0, 3.0, z=1.0)


def test_nested_containers_keep_their_structure():
    parameters = {"w": np.ones((2, 3)), "layers": [np.array(2.0), (np.zeros(2),)], "none": []}
    g = mg.grad(lambda p, x: (x @ p["w"]).sum() * p["layers"][0] + p["layers"][1][0].sum())(
        parameters, np.array([[1.0, 2.0]])
    )
    assert g.keys() == parameters.keys()
    np.testing.assert_array_equal(g["w"], [[2, 2, 2], [4, 4, 4]])
    assert g["layers"][0] == 9
    np.testing.assert_array_equal(g["layers"][1][0], [1, 1])
    assert type(g["layers"][1]) is tuple
    assert g["none"] == []


def test_results_are_arrays_of_the_callers_own():
    x = np.array([1.0, 2.0])
    value, g = mg.value_and_grad(lambda x: x.sum())(x)
    assert type(value) is type(g) is np.ndarray
    g[0] = 7
    value[...] = 0
    both = mg.grad(lambda a, b: (a + b).sum(), (0, 1))(x, x)
    assert not np.shares_memory(*both)
    np.testing.assert_array_equal(x, [1, 2])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_dtypes_are_kept(dtype):
    assert mg.grad(lambda x: (x * 2.0).sum())(np.ones(3, dtype)).dtype == dtype


def test_zero_where_there_is_no_path():
    np.testing.assert_array_equal(mg.grad(lambda x: mg.tensor(3.0))(np.ones((2, 3))), np.zeros((2, 3)))
    np.testing.assert_array_equal(mg.grad(lambda x: 3.0)(np.ones(2)), [0, 0])
    np.testing.assert_array_equal(mg.grad(lambda x, y: x.sum(), 1)(np.ones(2), np.ones(3)), np.zeros(3))
    np.testing.assert_array_equal(mg.grad(lambda x: x.detach().sum() + mg.sum(np.sign(x)))(np.ones(2)), [0, 0])
    np.testing.assert_array_equal(mg.grad(lambda x: mg.grad(lambda y: (2.0 * y).sum())(x).sum())(np.ones(2)), [0, 0])


@pytest.mark.parametrize(
    ("f", "x", "error", "message"),
    [
        (lambda x: x, np.ones(2), ValueError, r"shape \(2,\).*sum"),
        (lambda x: x.sum(), np.arange(3), TypeError, "dtype int64"),
        (lambda x: x * 2, 3, TypeError, r"3\.0, not 3"),
        (lambda x: np.argmax(x), np.ones(2), ValueError, "dtype int64"),
    ],
)
def test_errors(f, x, error, message):
    with pytest.raises(error, match=message):
        mg.grad(f)(x)


def test_a_transform_works_inside_no_grad_and_leaves_grad_mode_alone():
    with mg.no_grad():
        assert mg.grad(lambda x: x * x)(3.0) == 6
        assert not (leaf(1.0) * 2).requires_grad
    with pytest.raises(ZeroDivisionError):
        mg.grad(lambda x: x * (1 / 0))(3.0)
    assert (leaf(1.0) * 2).requires_grad
    assert mg.grad(lambda x: x * x)(3.0) == 6
    assert type(mg.grad(lambda x: x * x)(3.0)) is np.ndarray


def test_a_leaf_as_argument_keeps_its_grad():
    x = leaf([1.0, 2.0])
    np.testing.assert_array_equal(mg.grad(lambda v: (v * v).sum())(x), [2, 4])
    assert x.grad is None


def test_backward_inside_a_transform():
    """Somebody's training loop may run inside a function that is differentiated."""
    w = leaf(2.0)

    def f(x):
        (w * 3.0).backward()
        return x * float(w.grad)

    assert mg.grad(f)(1.0) == 3
    assert w.grad == 3


@pytest.mark.parametrize("transform", [mg.grad, mg.jacobian])
@pytest.mark.parametrize("argnums", ["x", 1.0, 2, (0, -3), ("x",), None])
def test_argnums_that_name_no_argument(transform, argnums):
    with pytest.raises(TypeError, match="argnums"):
        transform(lambda x, y: x * y, argnums)(1.0, 2.0)


@pytest.mark.parametrize("transform", [mg.grad, mg.value_and_grad, mg.jacobian, mg.elementwise_grad, mg.hessian])
@pytest.mark.parametrize("argnums", [(0, 0), (0, -2), (1, 0, 1), [-1, 1]])
def test_argnums_that_name_an_argument_twice(transform, argnums):
    with pytest.raises(ValueError, match="twice"):
        transform(lambda x, y: x * y, argnums)(1.0, 2.0)
    with pytest.raises(ValueError, match="twice"):
        mg.hvp(lambda x, y: x * y, argnums)(1.0, 2.0, (1.0, 1.0))


class Empty:
    pass


TRANSFORMS = [mg.grad, mg.value_and_grad, mg.vjp, mg.jacobian, mg.hessian, mg.hvp, mg.elementwise_grad, mg.checkpoint]


@pytest.mark.parametrize("given", [3, None, "f", np.ones(2), mg.tensor(1.0), Empty()])
def test_what_is_no_function_is_refused_where_it_is_given(given):
    layer, tracked = mg.nn.Linear(1, 1), leaf(1.0)
    takers = [*TRANSFORMS, mg.no_grad(), tracked.register_hook]
    takers += [layer.register_forward_hook, layer.register_full_backward_hook]
    takers.append(mg.op(sequence="xs"))
    takers.append(lambda f: mg.jvp(f, (1.0,), (1.0,)))
    for take in takers:
        with pytest.raises(TypeError, match=f"takes a function, and was given {type(given).__name__}"):
            take(given)
    assert "_hooks" not in vars(layer)


@pytest.mark.parametrize("nothing", [None, "text", Empty(), {1}])
def test_a_function_that_returns_no_number(nothing):
    f = lambda x: nothing  # noqa: E731
    calls = [mg.grad(f), mg.value_and_grad(f), mg.jacobian(f), mg.hessian(f)]
    calls += [lambda x: mg.hvp(f)(x, x), lambda x: mg.vjp(f, x), lambda x: mg.jvp(f, x, x)]
    for call in calls:
        with pytest.raises(TypeError, match=f"returned {type(nothing).__name__}"):
            call(1.0)
