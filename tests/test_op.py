"""Op: how ops are declared, called and differentiated; ops that users declare; the law of each declaration."""

from collections import namedtuple

import numpy as np
import pytest

import minigrad as mg
from minigrad.engine import NUMPY_OPS, OPS
from minigrad.op import Derived, FusedOp


def leaf(x, dtype=None):
    return mg.tensor(x, dtype=dtype, requires_grad=True)


@mg.op
def scaled_add(a, b, factor=2.0, *, shift=0.0):
    """a * factor + b + shift."""
    return a * factor + b + shift


scaled_add.rule(a=lambda g, factor: g * factor, b=lambda g: g)


# --- calling -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b: scaled_add(a, b, 3.0, shift=1.0),
        lambda a, b: scaled_add(a, b, factor=3.0, shift=1.0),
        lambda a, b: scaled_add(shift=1.0, b=b, factor=3.0, a=a),
        lambda a, b: scaled_add(a, shift=1.0, factor=3, b=b),
    ],
)
def test_positional_keyword_and_default_arguments(call):
    a, b = leaf([1.0, 2.0]), leaf(5.0)
    y = call(a, b)
    assert y.tolist() == [9, 12]
    y.sum().backward()
    np.testing.assert_array_equal(a.grad, [3, 3])
    np.testing.assert_array_equal(b.grad, 2)


@pytest.mark.parametrize(
    "call",
    [
        lambda: scaled_add(1.0),
        lambda: scaled_add(1.0, 2.0, 3.0, 4.0),
        lambda: scaled_add(1.0, 2.0, wrong=1),
        lambda: scaled_add(1.0, 2.0, a=1.0),
        lambda: mg.exp(),
        lambda: mg.exp(1.0, 2.0),
        lambda: mg.linear(1.0),
        lambda: mg.cross_entropy([[1.0]], [0], None),
        lambda: mg.concatenate(),
        lambda: mg.concatenate([[1.0]], axes=0),
    ],
)
def test_wrong_calls_are_type_errors(call):
    with pytest.raises(TypeError, match=r"argument"):
        call()


def test_constants_may_be_arrays_scalars_nested_lists_and_constant_tensors():
    for a in [[1.0, 2.0], (1.0, 2.0), np.array([1.0, 2.0]), mg.tensor([1.0, 2.0]), [1, 2]]:
        assert scaled_add(np.asarray(a) if isinstance(a, (list, tuple)) else a, 1.0).tolist() == [3, 5]
        assert mg.multiply(a, leaf([1.0, 1.0])).tolist() == [1, 2]
        assert mg.linear(leaf([[1.0, 0.0]]), [a, a]).tolist() == [[1, 2]]


def test_nothing_is_recorded_without_a_tracked_argument():
    y = mg.exp(mg.tensor([1.0]))
    assert y._node is None
    with mg.no_grad():
        assert mg.exp(leaf([1.0]))._node is None
        assert mg.layer_norm(leaf([1.0, 2.0]))._node is None
        assert mg.stack([leaf(1.0)])._node is None


def test_only_what_rules_need_is_saved():
    x, y = leaf(np.ones(5)), leaf(np.ones(5))
    assert mg.add(x, y)._node.saved == ((), ())
    (saved,) = mg.sum(x)._node.saved
    assert saved == ((5,), None, False, True)
    factor = np.full(5, 2.0)
    assert (x * factor)._node.saved is factor
    product = (x * y)._node
    assert product.saved[0] is y._array
    assert product.saved[1] is x._array
    assert len(product.saved) == 2
    out = mg.exp(x)
    assert out._node.saved is out._array


def test_docs_and_names_survive_the_declaration():
    assert scaled_add.__doc__ == "a * factor + b + shift."
    assert repr(mg.exp) == "exp"
    assert repr(mg.gelu) == "gelu"
    assert scaled_add.__name__ == "scaled_add"


# --- declaring ---------------------------------------------------------------------------------------------------


def test_a_rule_for_what_is_no_argument():
    with pytest.raises(TypeError, match=r"no argument 'c'.*a, b, factor"):
        scaled_add.rule(c=lambda g: g)


def test_a_rule_that_needs_what_there_is_not():
    with pytest.raises(TypeError, match=r"needs 'z'.*x_shape.*y"):
        mg.op(lambda x: x).rule(x=lambda g, z: g)


def test_an_argument_without_a_rule_is_a_constant():
    with pytest.raises(TypeError, match=r"scaled_add has no gradient with respect to 'factor'.*detach"):
        scaled_add(1.0, 2.0, leaf(3.0))
    with pytest.raises(TypeError, match="'min'"):
        mg.clip(leaf(1.0), leaf(0.0))
    with pytest.raises(TypeError, match="'labels'"):
        mg.cross_entropy(leaf([[1.0, 2.0]]), leaf([0.0]))
    assert scaled_add(1.0, 2.0, leaf(3.0).detach()).item() == 5


def test_a_users_op_is_not_registered_under_its_name():
    @mg.op
    def exp(x):
        return x

    assert OPS["exp"] is mg.exp
    assert NUMPY_OPS[np.exp] is mg.exp


def test_a_users_op_with_rules_has_gradients_of_every_order():
    @mg.op
    def swish(x, beta=1.0):
        return x / (1 + np.exp(-beta * x))

    swish.derivative(x=lambda x, beta: (1 + np.exp(-beta * x) * (1 + beta * x)) / (1 + np.exp(-beta * x)) ** 2)
    x = np.array([-1.0, 0.5, 2.0])
    mg.gradcheck(swish, x)
    mg.gradgradcheck(swish, x)
    mg.gradgradcheck(lambda x: mg.grad(lambda x: swish(x, 1.5).sum())(x), x)


def test_a_rule_may_use_output_shape_and_several_arguments():
    @mg.op
    def power_mean(x, p):
        return np.mean(np.power(x, p)) ** (1 / p)

    power_mean.rule(x=lambda g, x, p, y, x_shape: g * y ** (1 - p) * x ** (p - 1) / x_shape[0])
    x = np.array([0.5, 1.0, 2.0])
    mg.gradcheck(lambda x: power_mean(x, 3.0), x)
    mg.gradgradcheck(lambda x: power_mean(x, 3.0), x)


def test_a_rule_that_broadcasts_is_summed_back_and_cast():
    @mg.op
    def add_row(a, b):
        return a + b

    add_row.rule(a=lambda g: g, b=lambda g: g.astype(np.float64))
    a, b = leaf(np.ones((4, 1, 3)), np.float32), leaf(np.ones((2, 1)), np.float32)
    add_row(a, b).sum().backward()
    np.testing.assert_array_equal(a.grad, np.full((4, 1, 3), 2))
    np.testing.assert_array_equal(b.grad, np.full((2, 1), 12))
    assert b.grad.dtype == np.float32


def test_zero_cotangent_contributes_zero_to_a_declared_derivative():
    @mg.op
    def root(x):
        return np.sqrt(x)

    root.derivative(x=lambda y: 0.5 / y)
    np.testing.assert_array_equal(
        mg.grad(lambda x: (root(x) * np.array([0.0, 1.0])).sum())(np.array([0.0, 4.0])), [0, 0.25]
    )


# --- several outputs ---------------------------------------------------------------------------------------------


@mg.op
def polar_coordinates(a, b):
    """Radius and angle of the points (a, b)."""
    return np.hypot(a, b), np.arctan2(b, a)


polar_coordinates.rule(
    a=lambda g, a, b, y: g[0] * a / y[0] - g[1] * b / (y[0] * y[0]),
    b=lambda g, a, b, y: g[0] * b / y[0] + g[1] * a / (y[0] * y[0]),
)
POINTS = (np.array([1.0, -0.5, 0.3]), np.array([0.2, 0.7, -2.0]))


@pytest.mark.parametrize(
    "pick", [lambda r, phi: (r, phi), lambda r, phi: r, lambda r, phi: phi, lambda r, phi: r * phi + r]
)
def test_several_outputs_used_all_or_in_part(pick):
    def f(a, b):
        return pick(*polar_coordinates(a, b))

    mg.gradcheck(f, POINTS)
    mg.gradgradcheck(f, POINTS)


def test_hooks_and_retained_gradients_on_one_of_several_outputs():
    a, b = map(leaf, POINTS)
    r, phi = polar_coordinates(a, b)
    seen = []
    phi.register_hook(seen.append)
    r.retain_grad()
    (3 * r + phi * 2).sum().backward()
    np.testing.assert_array_equal(r.grad, [3, 3, 3])
    np.testing.assert_array_equal(seen[0], [2, 2, 2])
    assert repr(r).endswith("op=polar_coordinates)")
    with pytest.raises(RuntimeError, match="freed"):
        r.sum().backward()


def test_several_outputs_without_a_tracked_argument():
    r, phi = polar_coordinates(3.0, 4.0)
    assert (r.item(), type(phi), r.requires_grad) == (5.0, mg.Tensor, False)


def test_unused_outputs_get_zeros_of_their_shape_and_dtype():
    given = []

    @mg.op
    def two(x):
        return x * 2, np.ones((2, 3), np.float32)

    two.rule(x=lambda g: given.append(g) or g[0] * 2)
    x = leaf([1.0])
    two(x)[0].backward()
    assert given[0][1].shape == (2, 3)
    assert given[0][1].dtype == np.float32
    assert not given[0][1].any()


# --- a sequence of arrays ----------------------------------------------------------------------------------------


@mg.op(sequence="xs")
def weighted_total(xs, weights=None):
    return sum(x * w for x, w in zip(xs, weights or [1.0] * len(xs)))


weighted_total.rule(xs=lambda g, xs, weights: [g * w for x, w in zip(xs, weights)])


def test_one_rule_serves_every_element():
    a, c = leaf([1.0, 2.0]), leaf(3.0)
    y = weighted_total([a, np.ones(2), c, a], [1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(y.data, [16, 21])
    y.sum().backward()
    np.testing.assert_array_equal(a.grad, [5, 5])
    np.testing.assert_array_equal(c.grad, 6)


@pytest.mark.parametrize("join", [mg.stack, mg.concatenate, np.stack])
def test_the_same_tensor_twice(join):
    x = leaf([1.0, 2.0])
    join([x, x]).reshape(-1).backward(np.array([1.0, 2.0, 30.0, 40.0]))
    np.testing.assert_array_equal(x.grad, [31, 42])
    assert mg.gradgradcheck(lambda x: join([x * x, x]), np.array([1.0, 2.0]))


def test_an_array_is_a_sequence_too():
    x = leaf(np.arange(6.0).reshape(3, 2))
    for y, expected in [
        (mg.concatenate(x), np.concatenate(x.data)),
        (np.stack(x, axis=1), x.data.T),
        (mg.stack(x.data), x.data),
    ]:
        np.testing.assert_array_equal(y.data, expected)
    mg.concatenate(x, 0).backward(np.arange(6.0))
    np.testing.assert_array_equal(x.grad, np.arange(6.0).reshape(3, 2))


def test_a_tuple_works_like_a_list_and_apply_gives_arrays():
    assert type(weighted_total.apply((np.ones(2), np.ones(2)))) is np.ndarray
    assert type(weighted_total.apply((np.ones(2), leaf(np.ones(2))), [1.0, 2.0])) is mg.Tensor
    assert type(mg.exp.apply(1.0)) is np.ndarray
    assert type(mg.gelu.apply(np.ones(2))) is np.ndarray


# --- kinds of ops ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPS)
def test_every_op_says_what_it_does_and_is_what_it_is_called(name):
    op = OPS[name]
    assert op.name == name
    assert op.__doc__
    if isinstance(op, FusedOp):
        assert op.reference is not None
    if not isinstance(op, Derived) and not isinstance(op, FusedOp):
        assert op._rules, f"{name} has no gradient rule"
    if not name.startswith("_") and name not in ("scale", "getitem", "astype"):
        assert any(getattr(namespace, name, None) is op for namespace in (mg, mg.linalg, mg.fft))
    numpy_function = getattr(np, name, None)
    if callable(numpy_function):
        found = NUMPY_OPS[numpy_function]
        assert getattr(found, "op", found) is op  # perhaps adapted to NumPy's arguments


def test_an_argument_called_y_is_that_argument_and_not_the_output():
    @mg.op
    def f(x, y):
        return x * y * y

    f.rule(x=lambda g, y: g * y * y, y=lambda g, x, y: 2 * g * x * y)
    assert mg.grad(f, (0, 1))(2.0, 3.0) == (9.0, 12.0)
    mg.gradgradcheck(f, (np.array([2.0, -1.0]), np.array([3.0, 0.5])))


def test_a_rule_or_a_function_that_forgets_its_return_is_named():
    @mg.op
    def kept(x):
        return x * 1.0

    kept.rule(x=lambda g: None)
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(TypeError, match="rule of kept returned None"):
        kept(x).sum().backward()
    assert x.grad is None

    @mg.op
    def forgetful(x):
        x * 1.0

    for argument in (x, 2.0):
        with pytest.raises(TypeError, match="forgetful returned NoneType"):
            forgetful(argument)


@pytest.mark.parametrize("forward", [lambda *xs: xs[0], lambda x, **options: x])
def test_any_number_of_arguments_is_refused_at_the_declaration(forward):
    with pytest.raises(TypeError, match="takes any number of them: declare one that is a sequence"):
        mg.op(forward)


def test_a_named_tuple_is_a_shape():
    pair = namedtuple("pair", "rows columns")
    assert mg.reshape(mg.tensor(np.zeros(6)), pair(2, 3)).shape == (2, 3)
