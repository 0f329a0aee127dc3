"""Tensor: creation, dtypes, in-place rules, Python's and NumPy's protocols."""

import contextlib
import copy
import operator
import pickle

import numpy as np
import pytest

import minigrad as mg


def leaf(x, dtype=None):
    return mg.tensor(x, dtype=dtype, requires_grad=True)


# --- creation and dtypes -----------------------------------------------------------------------------------------


def test_tensor_copies_what_it_is_given():
    a = np.array([1.0, 2.0])
    t, again = mg.tensor(a), mg.tensor(mg.tensor(a))
    a[0] = 9
    assert t.tolist() == again.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("x", "dtype"),
    [
        (1, int),
        (1.5, float),
        (True, bool),
        ([1, 2], int),
        ([[1.0], [2]], float),
        (np.float32(1), "f4"),
        (np.arange(3, dtype="i2"), "i2"),
    ],
)
def test_array_likes_keep_numpys_dtype(x, dtype):
    assert mg.tensor(x).dtype == np.dtype(dtype)
    assert type(mg.tensor(x).data) is np.ndarray


@pytest.mark.parametrize("x", ["text", [None], 1j, [[1], [2, 3]], np.array(["2020"], "M8[Y]")])
def test_what_is_no_number_is_refused(x):
    with pytest.raises((TypeError, ValueError)):
        mg.tensor(x)


@pytest.mark.parametrize("x", [1, [1, 2], True, np.arange(3, dtype=np.uint8)])
def test_only_floating_tensors_can_require_gradients(x):
    with pytest.raises(TypeError, match=r"floating.*dtype (int64|bool|uint8).*dtype=float"):
        mg.tensor(x, requires_grad=True)
    with pytest.raises(TypeError, match="floating"):
        mg.tensor(x).requires_grad = True
    assert mg.tensor(x, dtype=float, requires_grad=True).requires_grad


def test_python_scalars_are_weak_and_numpy_scalars_are_not():
    x = leaf([1.0, 2.0], np.float32)
    for y in [
        x * 0.2,
        2 - x,
        x**2,
        2.0**x,
        x / 3,
        mg.maximum(x, 0.5),
        mg.where(x > 1, x, 0.0),
        mg.clip(x, 0.0, 1.0),
        -x,
        abs(x),
    ]:
        assert y.dtype == np.float32
    assert (x * np.float64(0.2)).dtype == np.float64
    assert (x + np.arange(2)).dtype == np.float64
    assert (mg.tensor([1, 2]) / 2).dtype == np.float64
    assert (mg.tensor([1, 2]) * 2).dtype == np.int64
    assert (mg.tensor([True]) + mg.tensor([True])).tolist() == [True]


def test_results_stay_arrays_even_0_d():
    for y in [mg.tensor(1.0) * 2, mg.sum(mg.tensor([1.0])), mg.tensor([1.0])[0], mg.max([1.0, 2.0]), mg.exp(0.0)]:
        assert type(y.data) is np.ndarray
        assert y.shape == ()
    assert type(mg.grad(lambda x: x * x)(2.0)) is np.ndarray


def test_astype_is_recorded_between_floats_and_constant_to_others():
    x = leaf([1.5, 2.5], np.float32)
    y = x.astype(np.float64)
    (y * y).sum().backward()
    assert x.grad.dtype == np.float32
    np.testing.assert_array_equal(x.grad, [3, 5])
    assert not x.astype(int).requires_grad
    assert x.astype(int).tolist() == [1, 2]


def test_attributes():
    x = mg.tensor(np.zeros((2, 3), np.float32))
    assert (x.shape, x.ndim, x.size, x.dtype, len(x)) == ((2, 3), 2, 6, np.float32, 2)
    assert x.T.shape == (3, 2)
    assert mg.tensor(np.zeros((4, 2, 3))).mT.shape == (4, 3, 2)


def test_requires_grad_can_be_switched_on_leaves_only():
    x = mg.tensor([1.0])
    x.requires_grad = True
    y = x * 2
    x.requires_grad = False
    assert not x.requires_grad
    with pytest.raises(RuntimeError, match=r"leaf.*detach"):
        y.requires_grad = False


def test_grad_is_assignable():
    x = leaf([1.0, 2.0], np.float32)
    given = np.array([3.0, 4.0])
    x.grad = given
    given[0] = 0
    assert x.grad.dtype == np.float32
    np.testing.assert_array_equal(x.grad, [3, 4])
    with pytest.raises(ValueError, match=r"\(1,\).*\(2,\)"):
        x.grad = [1.0]
    x.grad = None
    assert x.grad is None
    mg.tensor(1.0).grad = None
    with pytest.raises(RuntimeError, match="requires_grad=True"):
        mg.tensor(1.0).grad = 1.0


# --- no silent detaching -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "convert", [np.asarray, np.array, np.ascontiguousarray, lambda t: np.array([t, t]), lambda t: mg.tensor([t, t])]
)
def test_a_tracked_tensor_does_not_turn_into_an_array(convert):
    for t in [leaf([1.0, 2.0]), leaf([1.0, 2.0]) * 2]:
        with pytest.raises(TypeError, match=r"\.numpy\(\).*\.data.*\.detach\(\)"):
            convert(t)
    np.testing.assert_array_equal(np.asarray(mg.tensor([1.0, 2.0])), [1, 2])


def test_explicit_conversions_are_fine():
    t = leaf(2.5) * 2
    assert float(t) == t.item() == t.tolist() == 5.0
    assert int(t) == 5
    assert bool(t)
    np.testing.assert_array_equal(t.numpy(), 5)
    assert not t.detach().requires_grad


def test_data_and_numpy_are_read_only_views():
    t = leaf([1.0, 2.0])
    for view in [t.data, t.numpy(), t.data.T, t.data[::-1], np.asarray(t.detach())]:
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 5
    assert np.shares_memory(t.data, t.detach().data)
    with pytest.raises(AttributeError):
        t.data = np.zeros(2)


@pytest.mark.parametrize("f", [np.polyfit, np.i0, np.linalg.eig, np.linalg.lstsq, np.piecewise, np.linspace])
def test_an_unsupported_numpy_function_is_named(f):
    with pytest.raises(TypeError, match=f.__name__):
        f(leaf(np.eye(2)))


@pytest.mark.parametrize("call", [np.add.accumulate, np.multiply.outer, np.add.at, np.logaddexp.reduce])
def test_an_unsupported_ufunc_method_is_named(call):
    with pytest.raises(TypeError, match=call.__self__.__name__):
        call(
            leaf([1.0, 2.0]),
            *([np.array([0]), 1.0] if call.__name__ == "at" else [[1.0]] if call.__name__ == "outer" else []),
        )


def test_out_is_refused():
    t, out = leaf([1.0, 2.0]), np.zeros(2)
    for call in [
        lambda: np.exp(t, out=out),
        lambda: np.add(t, t, out=out),
        lambda: np.sum(t, out=np.zeros(())),
        lambda: out.__iadd__(t),
    ]:
        with pytest.raises(TypeError, match="out"):
            call()
    assert not out.any()


# --- in place ----------------------------------------------------------------------------------------------------

AUGMENTED = {
    "iadd": lambda t, x: t.__iadd__(x),
    "isub": lambda t, x: t.__isub__(x),
    "imul": lambda t, x: t.__imul__(x),
    "itruediv": lambda t, x: t.__itruediv__(x),
    "ipow": lambda t, x: t.__ipow__(x),
    "imod": lambda t, x: t.__imod__(x),
}
PLAIN = {
    "iadd": np.add,
    "isub": np.subtract,
    "imul": np.multiply,
    "itruediv": np.divide,
    "ipow": np.power,
    "imod": np.remainder,
}


@pytest.mark.parametrize("name", AUGMENTED)
def test_augmented_assignment_makes_a_new_recorded_tensor(name):
    x = leaf([1.0, 2.0])
    t = before = x * 2
    t = AUGMENTED[name](t, np.array([3.0, 2.0]))
    assert t is not before
    np.testing.assert_array_equal(t.data, PLAIN[name]([2.0, 4.0], [3.0, 2.0]))
    np.testing.assert_array_equal(before.data, [2, 4])
    t.sum().backward()
    assert x.grad is not None
    constant = mg.tensor([2.0, 4.0])
    assert AUGMENTED[name](constant, x).requires_grad
    np.testing.assert_array_equal(constant.data, [2, 4])


@pytest.mark.parametrize("name", AUGMENTED)
def test_on_a_leaf_it_raises_outside_no_grad_and_writes_under_it(name):
    w = same = leaf([2.0, 4.0])
    view = w.data
    with pytest.raises(RuntimeError, match="no_grad"):
        AUGMENTED[name](w, 2.0)
    with mg.no_grad():
        w = AUGMENTED[name](w, np.array([3.0, 2.0]))
    assert w is same
    assert w.requires_grad
    np.testing.assert_array_equal(view, PLAIN[name]([2.0, 4.0], [3.0, 2.0]))


def test_a_floor_division_in_place():
    w = same = leaf([7.0, -4.0])
    t, constant, before = w * 1, mg.tensor([7.0, -4.0]), w.data
    for y in (t, constant):  # which has no gradient, and so is a plain array, as y // 2 is
        y //= 2
        assert type(y) is np.ndarray
        np.testing.assert_array_equal(y, [3, -2])
    with pytest.raises(RuntimeError, match="no_grad"):
        w //= 2
    with mg.no_grad():
        w //= 2
    assert w is same
    assert w.requires_grad
    np.testing.assert_array_equal(before, [3, -2])


def test_logic_in_place_is_none_of_a_leaf():
    w = leaf([1.0, 2.0])
    for step in (operator.iand, operator.ior, operator.ixor):
        for mode in (contextlib.nullcontext(), mg.no_grad()):
            with mode, pytest.raises(TypeError):
                step(w, True)
    assert w.tolist() == [1, 2]
    np.testing.assert_array_equal(operator.iand(mg.tensor([True, False]), True), [True, False])


@pytest.mark.parametrize("name", [*AUGMENTED, "ifloordiv"])
def test_a_write_in_place_is_seen_by_the_graphs_before_it(name):
    w = leaf([2.0, 4.0])
    y = (w * w).sum()
    with mg.no_grad():
        getattr(w, f"__{name}__")(3.0)
    with pytest.raises(RuntimeError, match="written in place"):
        y.backward()


def test_a_leaf_update_keeps_its_dtype_and_shape():
    w = leaf([1.0, 2.0], np.float32)
    with mg.no_grad():
        w -= np.array([0.5, 0.5])
        assert w.dtype == np.float32
        with pytest.raises(ValueError, match="shape"):
            w -= np.ones((3, 2))
    w = leaf([[1.0, 2.0], [3.0, 4.0]])
    with mg.no_grad():
        w @= np.eye(2)[::-1]
    assert w.tolist() == [[2, 1], [4, 3]]


def test_a_running_sum_just_works():
    x = leaf([1.0, 2.0, 3.0])
    loss = mg.tensor(0.0)
    for i in range(3):
        loss += x[i] * x[i]
    loss.backward()
    np.testing.assert_array_equal(x.grad, [2, 4, 6])


def test_item_assignment_is_for_constants_and_for_leaves_under_no_grad():
    t = mg.tensor([1.0, 2.0, 3.0])
    t[1] = 9.0
    t[mg.tensor([0, 2])] = mg.tensor([4.0, 5.0])
    assert t.tolist() == [4, 9, 5]
    w = leaf([1.0, 2.0])
    y = w * 2
    for target in [w, y]:
        with pytest.raises(RuntimeError, match=r"index_put.*where"):
            target[0] = 1.0
    with mg.no_grad():
        w[0] = 7.0
        with pytest.raises(RuntimeError, match="index_put"):
            y[0] = 1.0
    assert w.tolist() == [7, 2]
    with pytest.raises(RuntimeError, match=r"history.*index_put"):
        t[0] = w[0]
    assert t.tolist() == [4, 9, 5]
    with mg.no_grad():
        t[0] = w[0]
    assert t.tolist() == [7, 9, 5]


# --- Python's protocols ------------------------------------------------------------------------------------------


def test_formatting():
    loss = leaf(1.23456)
    assert f"{loss:.3f} {loss * 1:.1e}" == "1.235 1.2e+00"
    assert f"{mg.tensor([1.5]):.2f}" == "1.50"
    assert f"{mg.tensor([1, 2])}" == "tensor([1, 2])"


def test_repr_shows_dtype_when_unusual_and_the_op_that_made_it():
    assert repr(mg.tensor([1.0, 2.0])) == "tensor([1., 2.])"
    assert repr(mg.tensor([1])) == "tensor([1])"
    assert repr(mg.tensor([1.0], dtype=np.float32)) == "tensor([1.], dtype=float32)"
    assert repr(leaf(1.0)) == "tensor(1., requires_grad=True)"
    assert repr(mg.exp(leaf(0.0))) == "tensor(1., op=exp)"
    assert repr(leaf([1.0])[0]) == "tensor(1., op=getitem)"
    assert eval(repr(mg.tensor([[1.5, 2]])), {"tensor": mg.tensor}).tolist() == [[1.5, 2.0]]


def test_len_iteration_and_containment():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    assert len(x) == 2
    rows = list(x)
    assert [r.tolist() for r in rows] == [[1, 2], [3, 4]]
    rows[1].sum().backward()
    np.testing.assert_array_equal(x.grad, [[0, 0], [1, 1]])
    a, b = x[0]
    assert (float(a), float(b)) == (1, 2)
    assert 3.0 in x
    assert 7.0 not in x
    with pytest.raises(TypeError, match="0-d"):
        iter(leaf(1.0))
    with pytest.raises(TypeError):
        len(leaf(1.0))


def test_truth_and_index_follow_numpy():
    assert bool(mg.tensor(2.0))
    assert not mg.tensor([0])
    with pytest.raises(ValueError, match="ambiguous"):
        bool(mg.tensor([1.0, 2.0]))
    assert [10, 20, 30][mg.tensor(2)] == 30
    with pytest.raises(TypeError):
        [10, 20][mg.tensor(1.0)]
    with pytest.raises(ValueError, match="size 1"):
        mg.tensor([1.0, 2.0]).item()


def test_comparisons_are_elementwise_plain_arrays():
    x = leaf([1.0, 2.0, 3.0])
    for result, expected in [
        (x == 2, [False, True, False]),
        (x != x, [False] * 3),
        (x < [2, 2, 2], [True, False, False]),
        (x >= mg.tensor(2), [False, True, True]),
        (x < 2, [True, False, False]),
        (np.array([2.0] * 3) <= x, [False, True, True]),
        (x > 2, [False, False, True]),
        (x <= 1, [True, False, False]),
    ]:
        assert type(result) is np.ndarray
        assert result.tolist() == expected


def test_tensors_hash_by_identity():
    a, b = mg.tensor([1.0, 1.0]), mg.tensor([1.0, 1.0])
    assert len({a, b, a}) == 2
    assert {a: 0, b: 1}[b] == 1


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
def test_copies_are_leaves_of_their_own(duplicate):
    x = leaf([1.0, 2.0], np.float32)
    (x * x).sum().backward()
    y = duplicate(x)
    assert y.requires_grad
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y.grad, [2, 4])
    assert not np.shares_memory(x.data, y.data)
    assert not np.shares_memory(x.grad, y.grad)
    constant = duplicate(mg.tensor([1, 2]))
    assert constant.tolist() == [1, 2]
    assert not constant.requires_grad
    with pytest.raises(RuntimeError, match="history"):
        duplicate(x * 2)


def test_deepcopy_keeps_sharing():
    x = leaf([1.0])
    a, b = copy.deepcopy([x, x])
    assert a is b


# --- NumPy's protocols -------------------------------------------------------------------------------------------


def test_operators_with_arrays_and_numpy_scalars_on_either_side():
    a = np.array([1.0, 2.0])
    for left, right, slope in [
        (lambda t: a * t, a * [3, 4], a),
        (lambda t: a - t, a - [3, 4], -np.ones(2)),
        (lambda t: a / t, a / [3, 4], -a / np.array([9, 16])),
        (lambda t: a**t, a ** [3, 4], a ** [3, 4] * np.log(a)),
        (lambda t: np.float64(2) * t, [6, 8], [2, 2]),
        (lambda t: np.float32(2) - t, [-1, -2], [-1, -1]),
        (lambda t: a + t, a + [3, 4], np.ones(2)),
        (lambda t: np.array(2.0) / t, [2 / 3, 0.5], [-2 / 9, -2 / 16]),
        (lambda t: [1.0, 2.0] * t, a * [3, 4], a),
    ]:
        t = leaf([3.0, 4.0])
        y = left(t)
        assert type(y) is mg.Tensor
        assert y.dtype == np.float64
        np.testing.assert_allclose(y.data, right)
        y.sum().backward()
        np.testing.assert_allclose(t.grad, slope)
    m = leaf(np.eye(2))
    y = np.array([[1.0, 2.0]]) @ m
    y.sum().backward()
    np.testing.assert_array_equal(m.grad, [[1, 1], [2, 2]])


def test_numpy_functions_are_recorded():
    x = leaf(np.array([[0.5, 1.0], [2.0, 3.0]]))
    y = np.sum(np.log(np.concatenate([np.exp(x), np.sqrt(x)], axis=1)) * np.where(x > 1, 1.0, 0.0)[:, :1], axis=0)
    assert type(y) is mg.Tensor
    y.sum().backward()
    np.testing.assert_allclose(x.grad, [[0, 0], [1 + 0.25, 1 + 1 / 6]])


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (np.argmax, 2),
        (np.shape, (3,)),
        (np.isnan, [False] * 3),
        (np.sign, [1, -1, 1]),
        (np.floor, [1, -3, 3]),
        (np.argsort, [1, 0, 2]),
        (np.ndim, 1),
    ],
)
def test_functions_without_a_gradient_give_plain_values(call, expected):
    result = call(leaf([1.5, -2.5, 3.5]))
    assert not isinstance(result, mg.Tensor)
    np.testing.assert_array_equal(result, expected)


def test_reductions_of_ufuncs_are_ops():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(np.add.reduce(x).data, [4, 6])
    np.testing.assert_array_equal(np.multiply.reduce(x, axis=1).data, [2, 12])
    np.maximum.reduce(x, axis=None).backward()
    np.testing.assert_array_equal(x.grad, [[0, 0], [0, 1]])


METHODS = {
    "sum": [(), (0,), (-1, True)],
    "mean": [(), (1,)],
    "var": [()],
    "std": [(), (1,)],
    "max": [(), (0,)],
    "min": [(), (0, True)],
    "prod": [(), (1,)],
    "reshape": [((4,),), (4, 1), (-1,)],
    "transpose": [(), (1, 0), ((1, 0),)],
    "swapaxes": [(0, 1)],
    "clip": [(0.5, 1.5)],
    "ravel": [()],
    "flatten": [()],
    "dot": [(np.array([1.0, 2.0]),)],
    "squeeze": [()],
    "argmax": [(), (0,)],
    "argmin": [()],
    "argsort": [(0,)],
    "any": [()],
    "all": [(1,)],
    "round": [()],
    "copy": [()],
    "astype": [(np.float32,)],
}


@pytest.mark.parametrize(("name", "args"), [(name, args) for name, calls in METHODS.items() for args in calls])
def test_methods_do_what_ndarrays_do(name, args):
    a = np.array([[0.25, 1.0], [2.0, -3.0]])
    expected = (
        getattr(a, name)(*args)
        if name not in ("sum", "min") or len(args) < 2
        else getattr(a, name)(args[0], keepdims=True)
    )
    result = getattr(leaf(a), name)(*args)
    np.testing.assert_allclose(getattr(result, "data", result), expected)
    assert np.shape(result) == np.shape(expected)


def test_scipy_style_optimisers_can_call_a_gradient():
    f = lambda x: ((x - np.array([1.0, 2.0])) ** 2).sum()  # noqa: E731
    g = mg.grad(f)(np.array([0.0, 0.0]))
    assert type(g) is np.ndarray
    np.testing.assert_array_equal(g, [-2, -4])
    optimize = pytest.importorskip("scipy.optimize")
    np.testing.assert_allclose(
        optimize.minimize(lambda x: float(f(x)), np.zeros(2), jac=mg.grad(f)).x, [1, 2], atol=1e-6
    )


def test_modulo_and_floor_division_are_those_of_numpy():
    x = mg.tensor([5.5, -7.25], requires_grad=True)
    divisor = np.array([2.0, 3.0])
    (x % divisor).sum().backward()
    np.testing.assert_array_equal(x.grad, [1.0, 1.0])
    np.testing.assert_array_equal((9.0 % x).data, 9.0 % x.data)
    quotient, rest = divmod(x, divisor)
    np.testing.assert_array_equal(quotient * divisor + rest.data, x.data)
    for whole in (x // divisor, 9.0 // x):
        assert type(whole) is np.ndarray


def test_a_tensor_of_a_tensor_copies_leaves_and_refuses_to_lose_a_history():
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    copy = mg.tensor(x)
    assert not copy.requires_grad
    assert not np.shares_memory(copy.data, x.data)
    with pytest.raises(TypeError, match="detach"):
        mg.tensor(x * 2)
    assert mg.tensor((x * 2).detach()).data.tolist() == [2.0, 4.0]


def test_a_list_of_tensors_is_not_an_array_and_stack_is_named():
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(TypeError, match=r"mg\.stack"):
        mg.mean([x, x])


@pytest.mark.parametrize("pack", [list, tuple, lambda xs: [np.zeros(1), xs[0].reshape(1)]])
def test_item_assignment_of_a_sequence_with_a_history_is_refused(pack):
    x, z = mg.tensor(2.0, requires_grad=True), mg.tensor(np.zeros(2))
    with pytest.raises(RuntimeError, match="silently lose the history"):
        z[:] = pack([x * 1, x])
    np.testing.assert_array_equal(z.data, 0)


def test_divmod_from_the_left():
    whole, rest = divmod(7.5, mg.tensor(2.0, requires_grad=True))
    assert (whole, rest.item()) == (3, 1.5)
    rest.backward()
