"""NumPy's own spelling of calls: arguments by its names, in its order; out= and what makes no sense raise."""

import inspect
import itertools
import warnings

import numpy as np
import pytest

import minigrad as mg
from minigrad.engine import NUMPY_CONSTANTS, NUMPY_OPS
from minigrad.tensor import Tensor

X = np.array([[0.5, -1.2, 3.3], [2.1, 0.7, -0.4]])
MASK = X > 0

CALLS = [
    lambda x: np.sum(x, 0, None, None, True),
    lambda x: np.sum(a=x, axis=1, dtype=np.float32),
    lambda x: np.sum(x, where=MASK, initial=2.0),
    lambda x: np.mean(x, 1, np.float32, None, True, where=MASK),
    lambda x: np.var(x, 0, None, None, 1, True),
    lambda x: np.std(x, ddof=1, keepdims=np._NoValue),
    lambda x: np.max(x, 0, None, True, -1.0),
    lambda x: np.amax(x, axis=0),
    lambda x: np.amin(a=x),
    lambda x: np.min(x, where=MASK, initial=9.0),
    lambda x: np.prod(x, axis=(0, 1), dtype=float),
    lambda x: np.nansum(x, 1, None, None, True),
    lambda x: np.median(x, 0, None, False, True),
    lambda x: np.quantile(a=x, q=0.3, axis=1, overwrite_input=False),
    lambda x: np.percentile(x, [20, 60], method="linear"),
    lambda x: np.cumsum(x, 1, float),
    lambda x: np.cumprod(x, axis=0, out=None),
    lambda x: np.ravel(x, "C"),
    lambda x: np.reshape(x, (3, 2), order="C"),
    lambda x: np.clip(x, a_min=0, a_max=1),
    lambda x: np.clip(x, 0, None),
    lambda x: np.where(MASK, x, 0),
    lambda x: np.sort(x, 0, None, None),
    lambda x: np.partition(x, 1, kind="introselect"),
    lambda x: np.take(x, [0, 5], None, None, "raise"),
    lambda x: np.compress([True, False], x, 0),
    lambda x: np.extract(MASK, x),
    lambda x: np.choose([0, 1, 0], x, mode="raise"),
    lambda x: np.insert(arr=x, obj=1, values=x[0], axis=0),
    lambda x: np.delete(x, 1, 1),
    lambda x: np.append(x, values=x, axis=0),
    lambda x: np.trace(x, 0, 0, 1, None, None),
    lambda x: np.pad(array=x, pad_width=1, mode="reflect", reflect_type="even"),
    lambda x: np.vstack(tup=[x, x]),
    lambda x: np.linalg.matmul(x, x.T),
    lambda x: np.interp(x, [0.0, 1.0, 2.0], [0.0, 2.0, 1.0]),
    lambda x: np.trapezoid(x, dx=0.5, axis=0),
    lambda x: np.nan_to_num(x, copy=True, nan=1.0),
    lambda x: np.asin(x / 9) + np.pow(x, 2) + np.degrees(x),
    lambda x: np.matrix_transpose(np.permute_dims(x, (1, 0))),
    lambda x: np.concat([x, np.abs(x)]),
]
VERSION = np.lib.NumpyVersion(np.__version__)
if VERSION >= "2.1.0":
    CALLS += [lambda x: np.cumulative_sum(x, axis=1, include_initial=True), lambda x: np.clip(x, min=0, max=1)]
if VERSION >= "2.4.0":  # before that, concatenate hides what arguments it has
    CALLS += [lambda x: np.concatenate([x, x], 1, None, dtype=None)]


@pytest.mark.parametrize("call", CALLS)
def test_numpys_calls_give_numpys_values(call):
    t = mg.tensor(X, requires_grad=True)
    y, expected = call(t), call(X)
    assert isinstance(y, Tensor)
    assert y.requires_grad
    assert y.dtype == expected.dtype
    np.testing.assert_allclose(y.data, expected, rtol=1e-6 if y.dtype == np.float32 else 1e-12, atol=1e-7)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: np.sum(x, out=np.empty(())),
        lambda x: np.sum(x, 0, None, np.empty(3)),
        lambda x: np.exp(x, out=np.empty(X.shape)),
        lambda x: np.cumsum(x, out=np.empty(6)),
        lambda x: np.ravel(x, order="F"),
        lambda x: np.sort(x, order="field"),
        lambda x: np.quantile(x, 0.5, weights=np.ones(6)),
        lambda x: np.var(x, correction=1),
        lambda x: np.interp(x, [0.0, 1.0], [0.0, 1.0], period=3.0),
        lambda x: np.hstack([x, x], dtype=np.float32),
        lambda x: np.sum(x, 0, axis=0),
        lambda x: np.median(x, overwrite_input=True),
    ],
)
def test_what_makes_no_sense_for_a_tensor_raises(call):
    with pytest.raises(TypeError):
        call(mg.tensor(X, requires_grad=True))


def test_the_default_spelling_of_such_an_argument_is_fine():
    t = mg.tensor(X)
    np.testing.assert_array_equal(np.ravel(t, order="C").data, X.ravel())
    np.testing.assert_allclose(np.quantile(t, 0.5, weights=None).data, np.quantile(X, 0.5))


CONSTANTS = {
    "floor": X,
    "sign": X,
    "round": (X, 1),
    "around": X,
    "fix": X,
    "floor_divide": (X, 0.3),
    "argmax": X,
    "argsort": (X, 0),
    "nanargmin": X,
    "argpartition": (X, 1),
    "digitize": (X, [0.0, 1.0]),
    "searchsorted": (X[0, ::2], 1.0),
    "histogram": X,
    "nonzero": X,
    "isnan": X,
    "greater": (X, 0),
    "logical_not": X,
    "isin": (X, [0.5]),
    "heaviside": (X, 0.5),
    "count_nonzero": X,
    "array_equal": (X, X),
    "lexsort": X,
    "zeros_like": X,
}


@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated")  # since NumPy 2.5
@pytest.mark.parametrize("name", CONSTANTS)
def test_functions_without_gradient_give_plain_values(name):
    function, arguments = getattr(np, name), CONSTANTS[name]
    arguments = arguments if isinstance(arguments, tuple) else (arguments,)
    assert function in NUMPY_CONSTANTS
    y = function(*[mg.tensor(x, requires_grad=True) if x is X else x for x in arguments])
    expected = function(*arguments)
    for got, wanted in zip(y, expected) if isinstance(y, tuple) else [(y, expected)]:
        assert not isinstance(got, Tensor)
        np.testing.assert_array_equal(got, wanted)


FLOWING = {
    "histogram-weights": lambda t: np.histogram(X, 3, weights=t),
    "histogram2d-weights": lambda t: np.histogram2d(X[0], X[1], 3, weights=t[0]),
    "histogramdd-weights": lambda t: np.histogramdd(X.T, 3, None, None, t[0]),
    "histogram-bins": lambda t: np.histogram(X, t[0]),
    "histogram-range": lambda t: np.histogram(t, 3, (t[0, 0], 4.0)),
    "histogram_bin_edges-a": lambda t: np.histogram_bin_edges(t),
    "nextafter-x1": lambda t: np.nextafter(t, X),
    "heaviside-x2": lambda t: np.heaviside(X, t),
    "unique-ar": lambda t: np.unique(t),
    "unique_values-x": lambda t: np.unique_values(t),
    "union1d-ar2": lambda t: np.union1d(X, t),
    "setdiff1d-ar1": lambda t: np.setdiff1d(t, X),
    "ix_-args": lambda t: np.ix_(t[0]),
    "sign-x": lambda t: np.sign(t * 1j),
}


@pytest.mark.parametrize("name", FLOWING)
def test_a_constant_function_refuses_an_argument_through_which_a_derivative_flows(name):
    function, _, argument = name.partition("-")
    message = f"numpy.{function} has no gradient with respect to '{argument}'.*detach"
    with pytest.raises(TypeError, match=message):
        FLOWING[name](mg.tensor(X, requires_grad=True))
    FLOWING[name](mg.tensor(np.sort(X)))
    with mg.no_grad():
        FLOWING[name](mg.tensor(np.sort(X), requires_grad=True))


def test_full_like_is_differentiable_by_its_value():
    f = lambda v, x: (mg.full_like(x, v) * [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).sum()  # noqa: E731
    np.testing.assert_array_equal(mg.grad(f)(2.0, X), 21.0)
    np.testing.assert_array_equal(mg.grad(f)(np.ones(3), X), [5.0, 7.0, 9.0])
    np.testing.assert_array_equal(mg.grad(f, 1)(2.0, X), np.zeros((2, 3)))
    np.testing.assert_array_equal(mg.grad(lambda v: mg.full_like(np.ones(2), fill_value=v).sum())(3.0), 2.0)
    np.testing.assert_array_equal(mg.grad(lambda v: np.full_like(v, v, np.float32, shape=(4,)).sum())(3.0), 4.0)


def test_filling_a_plain_array_names_the_op_that_can():
    """NumPy makes the array itself, and then copies the value to it."""
    t = mg.tensor(1.0, requires_grad=True)
    with pytest.raises(TypeError, match=r"numpy.copyto is not supported.*mg.full_like\(x, value\)"):
        np.full_like(np.ones(2), t)


def test_full_like_gives_numpys_values_and_dtypes_in_memory_of_its_own():
    for x in (X, X.astype(np.float32), [1, 2], np.zeros((2, 0))):
        for value in (1.5, True):
            got, expected = mg.full_like(x, value), np.full_like(x, value)
            np.testing.assert_array_equal(got.data, expected)
            assert got.dtype == expected.dtype
    t = mg.full_like(X, 1.0)
    t[0] = 2.0
    np.testing.assert_array_equal(t.data, [[2.0] * 3, [1.0] * 3])
    whole = mg.full_like([1, 2], mg.tensor(1.5, requires_grad=True))
    assert not whole.requires_grad
    np.testing.assert_array_equal(whole.data, [1, 1])


def test_a_constant_function_inside_a_gradient():
    np.testing.assert_allclose(mg.grad(lambda x: (x * np.floor(x)).sum())(X), np.floor(X))


METHODS = [
    lambda x: x.cumsum(),
    lambda x: x.cumprod(1),
    lambda x: x.repeat(2, 0),
    lambda x: x.take([0, 2], axis=1),
    lambda x: x.compress([True, False], 0),
    lambda x: x.diagonal(1),
    lambda x: x.trace(),
    lambda x: x.sum(0, where=MASK),
    lambda x: x.max(initial=7.0),
    lambda x: x.mean(where=MASK),
    lambda x: x.var(1, ddof=1),
    lambda x: x.std(where=MASK),
]


@pytest.mark.parametrize("method", METHODS)
def test_methods_that_ndarray_has(method):
    np.testing.assert_allclose(method(mg.tensor(X, requires_grad=True)).data, method(X))


def test_methods_that_give_plain_arrays():
    t = mg.tensor(X, requires_grad=True)
    for got, expected in zip(t.nonzero(), X.nonzero()):
        np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(t[0].detach().searchsorted(1.0), X[0].searchsorted(1.0))
    np.testing.assert_array_equal(t.argpartition(1), X.argpartition(1))


SINGULAR = [0.0, -0.0, 1.0, -1.0, 2.0, -2.5, 710.0, -710.0, 1e38, -1e308, 1e-320, np.inf, -np.inf, np.nan]
# ldexp takes integers; float_power keeps quiet about 0 ** -inf, of which power says "divide by zero".
UFUNCS = [u for u in NUMPY_OPS if isinstance(u, np.ufunc) and not u.signature and u not in (np.float_power, np.ldexp)]


def said(f, *xs):
    """The value, and what is said of floating point on the way."""
    with warnings.catch_warnings(record=True) as caught, np.errstate(all="warn"):
        warnings.simplefilter("always")
        y = f(*xs)
    return y, {str(w.message).partition(" encountered")[0] for w in caught}


@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda u: u.__name__)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_forward_gives_numpys_values_and_warnings(ufunc, dtype):
    with np.errstate(all="ignore"):
        values = np.array(SINGULAR).astype(dtype)
    for operands in itertools.product(values.reshape(-1, 1), repeat=ufunc.nin):
        wanted, warned = said(ufunc, *operands)
        got, warned_here = said(ufunc, *(mg.tensor(x, requires_grad=True) for x in operands))
        assert warned_here == warned
        for y, z in zip(got if isinstance(got, tuple) else [got], wanted if isinstance(wanted, tuple) else [wanted]):
            np.testing.assert_array_equal(getattr(y, "data", y), z)


def test_functions_whose_arguments_numpy_hides(monkeypatch):
    """As NumPy before 2.4 does for these, which are builtins."""

    def hidden(function, own=inspect.signature):
        if type(function).__name__ == "_ArrayFunctionDispatcher":
            raise ValueError(f"no signature found for builtin {function!r}")
        return own(function)

    adapter = type(NUMPY_OPS[np.where])
    monkeypatch.setattr(inspect, "signature", hidden)
    for function, arguments, keywords in [
        (np.where, (MASK, X, 0.0), {}),
        (np.concatenate, ([X, X],), {"axis": 1}),
        (np.concat, ([X, X],), {}),
        (np.dot, (X, X.T), {}),
        (np.inner, (X, X), {}),
        (np.vdot, (X, X), {}),
        (np.bincount, ([0, 2, 2],), {"weights": [1.0, 2.0, 3.0], "minlength": 4}),
    ]:
        fresh = adapter(function, NUMPY_OPS[function].op)
        np.testing.assert_allclose(np.asarray(fresh(*arguments, **keywords)), function(*arguments, **keywords))
