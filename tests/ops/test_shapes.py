"""Errors, repeats and adjoints of the shape ops. Values and gradients: test_laws.py."""

import numpy as np
import pytest

import minigrad as mg


def leaf(*shape):
    return mg.tensor(np.random.default_rng(list(shape)).standard_normal(shape), requires_grad=True)


@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 0, 1), (1, 2, 0), (-1, 0, 1), (-1, -3, -2), (0, -1, 1), None])
def test_transposes_go_back_the_way_they_came(axes):
    x = leaf(2, 3, 4)
    y = mg.transpose(x, axes)
    c = np.arange(24.0).reshape(y.shape)
    y.backward(c)
    for at in np.ndindex(2, 3, 4):
        to = at[::-1] if axes is None else tuple(at[a] for a in axes)
        assert x.grad[at] == c[to]


@pytest.mark.parametrize(("source", "destination"), [(0, 2), (-1, 0), ((0, 1), (2, 0)), ((0, -1), (-1, 0)), ([2], [1])])
def test_moved_axes_come_home(source, destination):
    x = leaf(2, 3, 4)
    y = mg.moveaxis(x, source, destination)
    y.backward(y.data)
    np.testing.assert_array_equal(x.grad, x.data)


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (mg.reshape, ((5,),)),
        (mg.reshape, ((4, -1),)),
        (mg.transpose, ((0, 0),)),
        (mg.transpose, ((0,),)),
        (mg.squeeze, (0,)),
        (mg.broadcast_to, ((3, 3),)),
        (mg.split, (2, 1)),
        (mg.swapaxes, (0, 2)),
        (mg.moveaxis, (0, 5)),
        (mg.expand_dims, (4,)),
        (mg.flip, (2,)),
    ],
)
def test_shapes_that_do_not_fit(op, args):
    with pytest.raises(ValueError, match=r"axis|axes|shape|divide|select"):
        op(leaf(2, 3), *args)


@pytest.mark.parametrize("arrays", [[], [np.ones((2, 3)), np.ones((2, 2, 3))], [np.ones((2, 3)), np.ones((3, 2))]])
@pytest.mark.parametrize("op", [mg.concatenate, mg.stack])
def test_arrays_that_cannot_be_joined(op, arrays):
    with pytest.raises(ValueError, match=r"array"):
        op([mg.tensor(a, requires_grad=True) for a in arrays])


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_split_undoes_concatenate_at_any_axis(axis):
    a, b = leaf(2, 3), leaf(2, 3)
    joined = mg.concatenate([a, b], axis)
    first, second = mg.split(joined, 2, axis)
    np.testing.assert_array_equal(first.data, a.data)
    (second * 3.0).sum().backward()
    np.testing.assert_array_equal(a.grad, np.zeros((2, 3)))
    np.testing.assert_array_equal(b.grad, np.full((2, 3), 3))


@pytest.mark.parametrize("cut", [mg.split, mg.array_split, mg.vsplit, np.split, np.array_split])
def test_what_a_split_cannot_cut_by(cut):
    x = mg.tensor(np.ones((3, 2)), requires_grad=True)
    for wrong in (1.5, "2", None, [0.5], [[1, 2]], mg.tensor(2.0), mg.tensor([1.0, 2.0])):
        with pytest.raises(TypeError, match="number of parts or before a list of indices"):
            cut(x, wrong)
    for wrong in (0, -1, mg.tensor(0)):
        with pytest.raises(ValueError, match="at least one part"):
            cut(x, wrong)


@pytest.mark.parametrize("join", [mg.concatenate, mg.stack, np.concatenate, np.stack])
def test_two_arrays_that_are_not_in_a_list_are_no_array_and_its_axis(join):
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    for second in (np.ones(2), np.arange(2), np.array(1.0), mg.tensor(1.0)):
        with pytest.raises(TypeError, match="as one list"):
            join(x, second)


def test_parts_of_a_split_that_nobody_uses():
    x = leaf(5, 2)
    mg.split(x, [2, 4])[1].sum().backward()
    np.testing.assert_array_equal(x.grad, [[0, 0], [0, 0], [1, 1], [1, 1], [0, 0]])


def test_a_broadcast_view_sums_back_and_shares_nothing():
    x = leaf(3, 1)
    y = mg.broadcast_to(x, (2, 3, 4))
    y.backward(np.arange(24.0).reshape(2, 3, 4))
    np.testing.assert_array_equal(x.grad, np.arange(24.0).reshape(2, 3, 4).sum((0, 2)).reshape(3, 1))
    x.grad += 1


def test_views_stay_views():
    x = leaf(2, 3)
    for y in [x.T, x.reshape(-1), x[0], mg.broadcast_to(x, (2, 2, 3)), mg.squeeze(x[None])]:
        assert np.shares_memory(x.data, y.data)
    assert not np.shares_memory(x.data, x.copy().data)


@pytest.mark.parametrize(
    ("forward", "back"),
    [
        (lambda x: mg.reshape(x, (3, 2)), lambda y: np.reshape(y, (2, 3))),
        (lambda x: mg.flip(x, 1), lambda y: np.flip(y, 1)),
        (lambda x: mg.tril(x), np.tril),
        (lambda x: mg.triu(x, 1), lambda y: np.triu(y, 1)),
        (lambda x: mg.expand_dims(x, 1), lambda y: y[:, 0]),
        (lambda x: mg.swapaxes(x, 0, -1), np.transpose),
        (lambda x: mg.stack([x, x]), lambda y: y.sum(0)),
        (lambda x: mg.concatenate([x, x], None), lambda y: y.reshape(2, 2, 3).sum(0)),
    ],
)
def test_the_gradient_is_the_adjoint(forward, back):
    x = leaf(2, 3)
    y = forward(x)
    c = np.random.default_rng(1).standard_normal(y.shape)
    y.backward(c)
    np.testing.assert_allclose(x.grad, back(c))
    np.testing.assert_allclose((c * y.data).sum(), (x.grad * x.data).sum())


@pytest.mark.parametrize("f", [mg.concatenate, mg.stack])
def test_arrays_to_join_come_as_one_list(f):
    for x in (np.ones(2), mg.tensor([1.0, 2.0]), mg.tensor([1.0, 2.0], requires_grad=True)):
        with pytest.raises(TypeError, match=rf"as one list, {f.name}\(\[a, b\]\)"):
            f(x, x)
