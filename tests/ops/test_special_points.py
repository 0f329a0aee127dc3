"""Zeros, ties, kinks and infinities of the functions beyond the first set. Values and gradients: test_laws.py."""

import numpy as np
import pytest

import minigrad as mg

pytestmark = pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value", "ignore:overflow")
INF, NAN = np.inf, np.nan


def slope(f, x):
    return mg.grad(lambda x: f(x).sum())(np.asarray(x, float))


def slopes(f, *xs):
    return mg.grad(lambda *xs: f(*xs).sum(), tuple(range(len(xs))))(*[np.asarray(x, float) for x in xs])


# --- elementwise -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "x", "expected"),
    [
        (mg.cbrt, 0.0, INF),
        (mg.log2, 0.0, INF),
        (mg.log10, 0.0, INF),
        (mg.arcsin, 1.0, INF),
        (mg.arccos, -1.0, -INF),
        (mg.arccosh, 1.0, INF),
        (mg.arctanh, 1.0, INF),
        (mg.fabs, 0.0, 0),
        (mg.sinc, 0.0, 0),
        (mg.arctan, 1e200, 0),
        (mg.arcsinh, 1e200, 1e-200),
        (mg.nan_to_num, NAN, 0),
        (mg.nan_to_num, INF, 0),
    ],
)
def test_derivatives_at_special_points(op, x, expected):
    np.testing.assert_allclose(slope(op, x), expected)
    assert slope(lambda x: op(x) * 0.0, x) == 0


def test_sinc_at_zero_has_the_derivatives_of_its_series():
    f, found = mg.sinc, []
    for _ in range(5):
        found.append(f(0.0).item() if f is mg.sinc else f(np.array(0.0)).item())
        f = mg.grad(f)
    np.testing.assert_allclose(found, [1, 0, -(np.pi**2) / 3, 0, np.pi**4 / 5], atol=1e-12)
    x = np.array([1e-8, 1e-4, 0.3, 2.0])
    exact = np.cos(np.pi * x) / x - np.sin(np.pi * x) / (np.pi * x**2)
    np.testing.assert_allclose(slope(mg.sinc, x)[2:], exact[2:], rtol=1e-12)
    np.testing.assert_allclose(slope(mg.sinc, x)[:2], -(np.pi**2) / 3 * x[:2], rtol=1e-7)


def test_hypot_and_arctan2_at_the_origin_and_far_away():
    a, b = slopes(mg.hypot, [0.0, 3.0, 3e200], [0.0, -4.0, 4e200])
    np.testing.assert_allclose(a, [0, 0.6, 0.6])
    np.testing.assert_allclose(b, [0, -0.8, 0.8])
    second = mg.hessian(lambda x: mg.hypot(x[0], x[1]))(np.zeros(2))
    np.testing.assert_array_equal(second, np.zeros((2, 2)))
    a, b = slopes(mg.arctan2, [1e-200, 1.0, 0.0], [0.0, 0.0, -2.0])
    np.testing.assert_allclose(a, [0, 0, -0.5])
    np.testing.assert_allclose(b, [-1e200, -1, 0])
    assert np.isnan(slopes(mg.arctan2, 0.0, 0.0)).all()
    assert slopes(lambda a, b: mg.arctan2(a, b) * 0.0, 0.0, 0.0) == (0, 0)


@pytest.mark.parametrize("op", [mg.fmax, mg.fmin])
def test_ties_and_nan_of_fmax_and_fmin(op):
    a, b = slopes(op, [1.0, NAN, 2.0, NAN, INF], [1.0, 1.0, NAN, NAN, INF])
    np.testing.assert_array_equal(a, [0.5, 0, 1, 0.5, 0.5])
    np.testing.assert_array_equal(b, [0.5, 1, 0, 0.5, 0.5])


def test_logaddexp_never_overflows():
    a, b = slopes(mg.logaddexp, [1000.0, -INF, -INF, 1e308], [1000.0, -INF, 0.0, -1e308])
    np.testing.assert_array_equal(a, [0.5, 0, 0, 1])
    np.testing.assert_array_equal(b, [0.5, 0, 1, 0])
    a, b = slopes(mg.logaddexp2, [3.0, -INF], [4.0, -INF])
    np.testing.assert_allclose(a, [1 / 3, 0])
    np.testing.assert_allclose(b, [2 / 3, 0])


def test_remainders_step_by_the_whole_quotient():
    a, b = slopes(mg.remainder, [7.0, -7.0, 7.0, 0.3], [3.0, 3.0, -3.0, 0.1])
    np.testing.assert_array_equal(a, [1, 1, 1, 1])
    np.testing.assert_array_equal(b[:3], [-2, 3, 3])
    a, b = slopes(mg.fmod, [7.0, -7.0, 7.0], [3.0, 3.0, -3.0])
    np.testing.assert_array_equal(b, [-2, 2, 2])


def test_copysign():
    a, b = slopes(mg.copysign, [2.0, -2.0, 2.0, 0.0], [1.0, 1.0, -0.0, 1.0])
    np.testing.assert_array_equal(a, [1, -1, -1, 0])
    np.testing.assert_array_equal(b, [0, 0, 0, 0])


# --- reductions --------------------------------------------------------------------------------------------------

MASK = np.array([[True, False, True], [False, True, True]])
REDUCTIONS = [mg.sum, mg.mean, mg.prod, mg.var, mg.std, mg.logsumexp, mg.max, mg.min]


@pytest.mark.parametrize("bad", [NAN, INF, -INF, 1e308])
@pytest.mark.parametrize("op", REDUCTIONS)
def test_what_is_under_the_mask_does_not_matter(op, bad):
    x = np.array([[0.5, 1.0, -2.0], [3.0, 0.7, 1.1]])
    initial = {mg.max: {"initial": -9.0}, mg.min: {"initial": 9.0}}.get(op, {})
    f = lambda x: op(x, axis=1, where=MASK, **initial)  # noqa: E731
    spoiled = np.where(MASK, x, bad)
    np.testing.assert_array_equal(f(spoiled).data, f(x).data)
    np.testing.assert_array_equal(slope(f, spoiled), slope(f, x))
    assert not slope(f, spoiled)[~MASK].any()
    twice = lambda x: mg.grad(lambda x: (f(x) ** 2).sum())(x).sum()  # noqa: E731
    np.testing.assert_array_equal(mg.grad(twice)(spoiled), mg.grad(twice)(x))


def test_b008_logsumexp_where_the_excluded_entry_is_the_largest():
    f = lambda x: mg.logsumexp(x, where=np.array([True, False]))  # noqa: E731
    assert f([0.0, 100.0]).item() == 0
    np.testing.assert_array_equal(mg.grad(f)(np.array([0.0, 100.0])), [1, 0])
    assert mg.logsumexp([1.0, 2.0], where=np.array([False, False])).item() == -INF


def test_initial_shares_a_tie_and_wins_alone():
    np.testing.assert_array_equal(slope(lambda x: mg.max(x, initial=3.0), [3.0, 1.0]), [0.5, 0])
    np.testing.assert_array_equal(slope(lambda x: mg.max(x, initial=4.0), [3.0, 1.0]), [0, 0])
    np.testing.assert_array_equal(slope(lambda x: mg.min(x, initial=9.0, where=[False, True]), [3.0, 1.0]), [0, 1])
    with pytest.raises(ValueError, match="initial"):
        mg.max([1.0], where=[True])
    with pytest.raises(TypeError, match="initial"):
        mg.sum([1.0], initial=mg.tensor(1.0, requires_grad=True))


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:Degrees of freedom", "ignore:All-NaN")
def test_rows_in_which_nothing_counts():
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    where = np.array([[True, True], [False, False]])
    for op in [mg.sum, mg.mean, mg.prod, mg.var, mg.std, mg.logsumexp]:
        assert not slope(lambda x, op=op: op(x, axis=1, where=where)[:1], x)[1].any()
    nan = np.where(where, x, NAN)
    for op, function in [
        (mg.nanmax, np.nanmax),
        (mg.nanmean, np.nanmean),
        (mg.nanvar, np.nanvar),
        (mg.nansum, np.nansum),
    ]:
        np.testing.assert_array_equal(op(nan, axis=1).data, function(nan, axis=1))
        assert not slope(lambda x, op=op: op(x, axis=1), nan)[1].any()


def test_nanstd_of_equal_values_has_gradient_zero():
    np.testing.assert_array_equal(slope(mg.nanstd, [2.0, NAN, 2.0]), [0, 0, 0])


def test_extrema_without_nan_share_ties():
    np.testing.assert_array_equal(slope(mg.nanmax, [1.0, NAN, 1.0, 0.0]), [0.5, 0, 0.5, 0])
    np.testing.assert_array_equal(slope(mg.ptp, [1.0, 1.0, 0.0]), [0.5, 0.5, -1])


# --- medians, quantiles, orders ----------------------------------------------------------------------------------


def test_order_statistics_route_their_gradient_by_the_permutation():
    x = [2.0, 1.0, 2.0, 2.0, 0.0]
    np.testing.assert_array_equal(slope(mg.median, x), [1, 0, 0, 0, 0])
    np.testing.assert_array_equal(slope(lambda x: mg.quantile(x, 0.75), x), [0, 0, 1, 0, 0])
    np.testing.assert_allclose(slope(lambda x: mg.quantile(x, 0.6), x), [0.6, 0, 0.4, 0, 0], atol=1e-15)
    np.testing.assert_array_equal(slope(lambda x: mg.sort(x) * np.arange(5), x), [2, 1, 3, 4, 0])
    c = np.arange(5.0)
    np.testing.assert_array_equal(slope(lambda x: mg.partition(x, 2) * c, x)[np.argpartition(x, 2)], c)


def test_nan_in_a_median_or_quantile():
    x = np.array([[1.0, NAN, 3.0], [4.0, 6.0, 5.0], [NAN, NAN, NAN]])
    np.testing.assert_array_equal(mg.median(x, axis=1).data, [NAN, 5, NAN])
    np.testing.assert_array_equal(mg.quantile(x, [0.5, 1.0], axis=1).data, [[NAN, 5, NAN], [NAN, 6, NAN]])
    np.testing.assert_array_equal(mg.nanmedian(x, axis=1).data, [2, 5, NAN])
    np.testing.assert_array_equal(slope(lambda x: mg.nanmedian(x, axis=1), x), [[0.5, 0, 0.5], [0, 0, 1], [0, 0, 0]])
    np.testing.assert_array_equal(slope(lambda x: mg.median(x, axis=1)[1], x), [[0, 0, 0], [0, 0, 1], [0, 0, 0]])


def test_what_quantiles_refuse():
    for q in (-0.1, 1.5, [0.5, 2.0], NAN):
        with pytest.raises(ValueError, match=r"\[0, 1\]"):
            mg.quantile([1.0, 2.0], q)
    with pytest.raises(ValueError, match="linear"):
        mg.percentile([1.0, 2.0], 50, method="nearest")
    with pytest.raises(np.exceptions.AxisError):
        mg.median(np.ones((2, 3)), axis=2)


def test_what_averages_refuse():
    with pytest.raises(ZeroDivisionError, match="zero"):
        mg.average([1.0, 2.0], weights=[1.0, -1.0])
    with pytest.raises(TypeError, match="axis"):
        mg.average(np.ones((2, 3)), weights=np.ones(3))
    with pytest.raises(ValueError, match="weights"):
        mg.average(np.ones((2, 3)), axis=0, weights=np.ones(3))


# --- running products, differences -------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [[2.0, 0.0, 3.0, 4.0], [0.0, 0.0, 3.0], [0.0], [5.0, 0.0], [1e200, 1e-200, 2.0], []])
def test_running_products_do_not_divide(x):
    x = np.array(x)
    c = np.arange(1.0, len(x) + 1)
    expected = np.zeros(len(x))
    for j in range(len(x)):
        for i in range(j + 1):
            expected[i] += c[j] * np.prod(np.delete(x[: j + 1], i))
    np.testing.assert_allclose(slope(lambda x: mg.cumprod(x) * c, x), expected, rtol=1e-14)


def test_running_products_in_many_steps():
    x = np.random.default_rng(0).uniform(0.8, 1.2, (2, 37))
    mg.gradgradcheck(lambda x: mg.cumprod(x, 1), x)


def test_differences_refuse():
    with pytest.raises(ValueError, match="n >= 0"):
        mg.diff([1.0], -1)
    with pytest.raises(ValueError, match="edge_order"):
        mg.gradient([1.0, 2.0], edge_order=2)
    with pytest.raises(TypeError, match="spacing"):
        mg.gradient(np.ones((2, 3)), 1.0, 2.0, 3.0)
    with pytest.raises(ValueError, match="coordinates"):
        mg.gradient([1.0, 2.0, 4.0], [0.0, 1.0])
    with pytest.raises(ValueError, match="axis"):
        mg.cumulative_sum(np.ones((2, 2)))


@pytest.mark.parametrize(
    ("f", "who", "argument"),
    [
        (lambda t: np.quantile(np.ones(3), t), "quantile", "q"),
        (lambda t: mg.quantile(np.ones(3), [0.5, t]), "quantile", "q"),
        (lambda t: np.nanquantile(np.ones(3), t), "nanquantile", "q"),
        (lambda t: np.percentile(np.ones(3), t), "percentile", "q"),
        (lambda t: np.nanpercentile(np.ones(3), t), "nanpercentile", "q"),
        (lambda t: np.interp(0.3, t * np.array([1.0, 2.0]), [0.0, 1.0]), "interp", "xp"),
        (lambda t: mg.pad(np.ones(3), 1, constant_values=t), "pad", "constant_values"),
    ],
)
def test_a_constant_argument_is_named(f, who, argument):
    t = mg.tensor(0.5, requires_grad=True)
    with pytest.raises(TypeError, match=f"^{who} has no gradient with respect to '{argument}'"):
        f(t)
    with mg.no_grad():
        np.testing.assert_array_equal(f(t).data, f(t.detach()).data)


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
@pytest.mark.parametrize("f", ["nanmedian", "nanquantile", "nanpercentile"])
def test_of_nothing_a_median_without_nan_is_nan(f):
    q = () if f == "nanmedian" else (0.2,)  # (of nothing, NumPy leaves out the axes of several q)
    for shape, axis in [((0,), None), ((2, 0), 1), ((0, 3), 0), ((0, 3), 1)]:
        for dtype in (np.float64, np.float32):
            x = mg.tensor(np.zeros(shape, dtype), requires_grad=True)
            y, expected = getattr(mg, f)(x, *q, axis=axis), getattr(np, f)(x.data, *q, axis=axis)
            np.testing.assert_array_equal(y.data, expected)
            y.sum().backward()
            assert x.grad.shape == shape


def test_the_running_sum_of_one_number():
    for op, function in [(mg.cumulative_sum, np.cumsum), (mg.cumulative_prod, np.cumprod)]:
        for axis in (None, 0, -1):
            np.testing.assert_array_equal(op(2.0, axis=axis).data, function([2.0]))
        initial = 0 if op is mg.cumulative_sum else 1
        np.testing.assert_array_equal(op(2.0, include_initial=True).data, [initial, 2])
        assert mg.grad(lambda x: op(x, include_initial=True).sum())(3.0) == 1  # noqa: B023
        with pytest.raises(ValueError, match="2 axes"):
            op(np.ones((2, 2)))


def test_what_pad_cannot_do_is_named():
    with pytest.raises(ValueError, match="the reflect_type is 'even', and not 'odd'"):
        mg.pad(np.ones(3), 1, mode="reflect", reflect_type="odd")
    with pytest.raises(ValueError, match="edge, reflect, symmetric or wrap, and not 'mean'"):
        mg.pad(np.ones(3), 1, mode="mean")


def test_interpolation_at_the_points_and_beyond():
    xp, fp = [0.0, 1.0, 3.0], np.array([1.0, 2.0, 0.0])
    x = np.array([-1.0, 0.0, 1.0, 3.0, 4.0])
    np.testing.assert_array_equal(mg.interp(x, xp, fp).data, np.interp(x, xp, fp))
    np.testing.assert_array_equal(slope(lambda x: mg.interp(x, xp, fp), x), [0, 1, -1, -1, 0])
    np.testing.assert_array_equal(slope(lambda f: mg.interp(x, xp, f), fp), [2, 1, 2])


# --- picking and padding -----------------------------------------------------------------------------------------


def test_repeats_add_up():
    np.testing.assert_array_equal(slope(lambda x: mg.repeat(x, [0, 1, 3]), [1.0, 2.0, 3.0]), [0, 1, 3])
    np.testing.assert_array_equal(slope(lambda x: mg.tile(x, (2, 2)), [1.0, 2.0]), [4, 4])
    np.testing.assert_array_equal(slope(lambda x: mg.take(x, [2, 2, -1]), [1.0, 2.0, 3.0]), [0, 0, 3])
    np.testing.assert_array_equal(slope(lambda x: mg.pad(x, 2, "edge"), [1.0, 2.0, 3.0]), [3, 1, 3])
    np.testing.assert_array_equal(slope(lambda x: mg.pad(x, 2), [1.0, 2.0, 3.0]), [1, 1, 1])


def test_a_choice_that_nobody_takes_gets_exactly_zero():
    f = lambda x: mg.select([x > 0], [mg.log(x)], default=0.0)  # noqa: E731
    np.testing.assert_array_equal(slope(f, [0.0, -1.0, 2.0]), [0, 0, 0.5])
    np.testing.assert_array_equal(slope(lambda x: mg.choose([0, 0], [x, mg.sqrt(x)]), [0.0, -1.0]), [1, 1])


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: mg.pad([1.0], 1, "mean"), ValueError),
        (lambda: mg.pad([1.0, 2.0], 1, "reflect", reflect_type="odd"), ValueError),
        (lambda: mg.take([1.0], [1]), IndexError),
        (lambda: mg.take([1.0], [0], mode="none"), ValueError),
        (lambda: mg.choose([2], [[1.0], [2.0]]), ValueError),
        (lambda: mg.select([[True]], []), ValueError),
        (lambda: mg.select([], []), ValueError),
        (lambda: mg.diag(np.ones((1, 1, 1))), ValueError),
        (lambda: mg.diagonal(np.ones(3)), ValueError),
        (lambda: mg.diagonal(np.ones((2, 2)), 0, 1, 1), ValueError),
        (lambda: mg.block([[1.0], 2.0]), ValueError),
        (lambda: mg.block([[1.0], []]), ValueError),
        (lambda: mg.meshgrid([1.0], indexing="yx"), ValueError),
        (lambda: mg.rollaxis(np.ones((2, 3)), 0, 4), ValueError),
        (lambda: mg.array_split([1.0], 0), ValueError),
        (lambda: mg.hsplit(1.0, 1), ValueError),
        (lambda: mg.vsplit([1.0], 1), ValueError),
        (lambda: mg.dsplit(np.ones((2, 2)), 1), ValueError),
        (lambda: mg.fliplr([1.0]), ValueError),
        (lambda: mg.repeat([1.0, 2.0], [1, 2, 3]), ValueError),
    ],
)
def test_calls_that_make_no_sense(call, error):
    with pytest.raises(error):
        call()


def test_integers_are_constants_with_numpys_values():
    x = np.array([3, 1, 2])
    for op, function in [(mg.cumsum, np.cumsum), (mg.sort, np.sort), (mg.median, np.median), (mg.diff, np.diff)]:
        np.testing.assert_array_equal(op(x).data, function(x))
        assert op(x).dtype == function(x).dtype
    assert mg.bincount([1, 1]).tolist() == [0, 2]


@pytest.mark.parametrize("op", [mg.sort, lambda x: mg.partition(x, 2)], ids=["sort", "partition"])
def test_equal_elements_keep_their_own_cotangents_when_sorted(op):
    x, c = np.array([2.0, 1.0, 2.0, 1.0, 1.0]), np.arange(1.0, 6)
    (g,) = mg.vjp(op, x)[1](c)
    assert sorted(g) == sorted(c)  # a permutation: nothing is shared among ties
    for value in (1.0, 2.0):
        np.testing.assert_array_equal(np.sort(g[x == value]), c[op(x).data == value])
