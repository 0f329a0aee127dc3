"""gradcheck and gradgradcheck: what they pass, what they catch, and what they say."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.check import CheckResult, GradientError


def wrong_op(forward, **derivatives):
    return mg.op(forward).derivative(**derivatives)


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def failure(f, inputs, check=mg.gradcheck):
    with pytest.raises(GradientError) as caught:
        check(f, inputs)
    result = caught.value.result
    assert isinstance(caught.value, AssertionError)
    assert not result
    assert str(caught.value) == str(result)
    assert str(check(f, inputs, raise_exception=False).mismatches) == str(result.mismatches)
    return result


# --- what passes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", [mg.gradcheck, mg.gradgradcheck])
@pytest.mark.parametrize(
    ("f", "inputs"),
    [
        (mg.exp, normal(2, 3)),
        (mg.exp, 0.5),
        (mg.exp, normal(0, 3)),
        (mg.multiply, (normal(2, 1), normal(3))),
        (lambda x, n: x**n, (normal(3), 3)),
        (
            lambda x, ids, keep: mg.where(keep, x[ids], 0.0),
            (normal(4), np.array([0, 0, 3]), np.array([True, False, True])),
        ),
        (lambda x: x * 0.0, normal(3)),
        (lambda x, y: x * 2, (normal(2), normal(3))),
        (lambda x: mg.tensor([1.0, 2.0]), normal(2)),
        (lambda x: (x, mg.exp(x).sum()), normal(2)),
        (lambda x: {"a": [x * x], "b": x[0]}, normal(2)),
        (lambda p, s: p["w"] @ p["b"][0] * s, ({"w": normal(2, 3), "b": [normal(3)]}, 1.5)),
        (lambda xs: mg.concatenate(xs), [normal(2), normal(1)]),
        (lambda x, none: x * x, (normal(2), None)),
        (lambda x: mg.grad(lambda v: (v**3).sum())(x), normal(3)),
        (lambda xs: xs[0] * xs[1][0], [1.0, [2.0, 3.0]]),
        (lambda x: x.reshape(1, 1, -1), normal(3)),
    ],
)
def test_right_gradients_pass(check, f, inputs):
    result = check(f, inputs)
    assert result
    assert isinstance(result, CheckResult)
    assert result.mismatches == []
    assert "passed" in str(result)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("f", [mg.log, mg.sqrt, lambda x: 1 / x, lambda x: mg.exp(-1 / x), lambda x: x**7])
def test_right_gradients_pass_at_any_scale_of_value(f, scale):
    mg.gradcheck(lambda x: f(x) * scale, np.array([1e-3, 0.05, 1.0, 20.0]))


@pytest.mark.parametrize("x", [0.0, 1e-6, 1.0, 1e3, 1e6])
def test_steps_fit_the_size_of_the_input(x):
    mg.gradcheck(lambda x: x * x + 3 * x, x)
    mg.gradcheck(lambda x: mg.sin(x * 1e-3), x)
    mg.gradcheck(lambda x: mg.sin(x * 50), min(x, 1.0))


def test_a_fast_function_is_resolved_with_shorter_steps():
    mg.gradcheck(lambda x: mg.sin(x * 500), np.array([0.1, 0.7]))
    mg.gradcheck(lambda x: mg.log(x), np.array([1e-4, 3e-4]))


def _layer_norm(x):
    centred = x - x.mean(-1, keepdims=True)
    return centred / mg.sqrt((centred**2).mean(-1, keepdims=True) + 1e-8)


_HILBERT = 1 / (np.arange(5)[:, None] + np.arange(5) + 1.0)


@pytest.mark.parametrize(
    ("f", "inputs"),
    [
        (_layer_norm, np.array([[1, 1.00001, 0.99999], [1, 2, 3]])),
        (mg.std, np.array([1, 1 + 1e-5, 1 - 1e-5])),
        (mg.linalg.norm, np.array([1e-9, 1e-9])),
        *[(mg.reciprocal, np.array([x, 1.0])) for x in (1e-5, 1e-8, 1e-12)],
        *[(f, np.array([x, 1.0])) for f in (mg.sqrt, mg.log, lambda x: x**0.5) for x in (1e-7, 1e-10, 1e-14)],
        *[(f, np.array([1 - x, 0.5])) for f in (mg.arccos, mg.arctanh) for x in (1e-8, 1e-12)],
        *[(mg.sin, np.array([x, x + 1, -x])) for x in (1e5, 1e6, 1e8)],
        (mg.tan, np.array([np.pi / 2 - 1e-6])),
        (mg.linalg.inv, _HILBERT),
        (mg.linalg.solve, (_HILBERT, np.ones(5))),
        (lambda a: mg.linalg.slogdet(a)[1], _HILBERT),
        (lambda x: mg.softmax(1e4 * x), np.array([0.1, 0.1001, 0.1002])),
    ],
)
def test_what_varies_fast_or_rounds_badly_is_not_blamed(f, inputs):
    """Within 1e-12 of the ends of domains, too."""
    result = mg.gradcheck(f, inputs)
    assert result, str(result)


_LARGE = np.array([1500.3, 3000.7, 9000.1, 1e5 + 0.3])


@pytest.mark.parametrize(
    "f",
    [
        lambda x: abs(x % 1.0 - 0.5),
        lambda x: mg.sin(2 * np.pi * (x % 1.0)),
        lambda x: mg.sin(np.pi * (x % 2.0)),
        lambda x: np.floor(x) + 0.25 * x,
    ],
)
def test_steps_are_no_periods(f):
    assert mg.gradcheck(f, _LARGE)
    assert mg.gradcheck(f, np.round(_LARGE, -2) + 0.25)


def test_wrong_gradients_of_periodic_functions_are_noticed():
    flat = wrong_op(lambda x: x % 1.0, x=lambda x: 0.0 * x)
    for x in (*_LARGE, 1000.25, 8000.25):
        assert failure(flat, np.array([x])).culprit.op == flat.name
        failure(lambda x: x + 0.1 * (x - np.floor(x.data)) - 0.1 * x + 0.1 * x.detach(), np.array([x]))


@pytest.mark.parametrize(
    ("f", "slope"), [(np.reciprocal, lambda x: -1 / x**2), (np.sqrt, lambda x: 0.5 / x**0.5), (np.log, lambda x: 1 / x)]
)
@pytest.mark.parametrize("x", [1e-5, 1e-8, 1e-12])
@pytest.mark.parametrize("factor", [1.01, 1 + 1e-4])
def test_what_varies_fast_is_still_checked(f, slope, x, factor):
    op = wrong_op(lambda x: f(x), x=lambda x: factor * slope(x))
    result = failure(op, np.array([x, 3 * x]))
    assert (result.diagnosis.kind, result.culprit.op) == ("constant factor", op.name)


@pytest.mark.parametrize("x", [np.inf, -np.inf, np.nan])
@pytest.mark.filterwarnings("ignore")
def test_what_is_ignored_gets_no_nan(x):
    unsafe = mg.op(lambda x: np.sin(x)).rule(x=lambda g, x: g * np.cos(x))
    for f in (lambda op: lambda x: op(x)[1:], lambda op: lambda x: mg.where(np.array([False, True]), op(x), 1.0)):
        assert mg.gradcheck(f(mg.sin), np.array([x, 1.0]))
        result = failure(f(unsafe), np.array([x, 1.0]))
        assert (result.diagnosis.kind, result.culprit.op) == ("not finite", unsafe.name)


def test_an_infinite_slope():
    for f in (mg.cbrt, mg.sqrt):
        result = mg.gradcheck(f, np.array([0.0, 1.0]))
        assert [skip.index for skip in result.skipped] == [(0,)]
    result = failure(
        wrong_op(lambda x: np.cbrt(x), x=lambda y: np.where(y, 1 / (3 * y * y), 5.0)), np.array([0.0, 1.0])
    )
    assert [m.index for m in result.mismatches] == [(0,)]


# --- ties --------------------------------------------------------------------------------------------------------

_TIED = np.array([[1.0, 3, 3], [2, 2, 2], [0, 1, 5]])


def _largest(share):
    """max over the last axis; share(which are largest) of the cotangent goes to each."""
    return mg.op(lambda x: x.max(-1)).rule(x=lambda g, x, y: g[..., None] * share(x == y[..., None]))


@pytest.mark.parametrize(
    "share",
    [
        lambda largest: largest / largest.sum(-1, keepdims=True),
        lambda largest: largest & (np.cumsum(largest, -1) == 1),
        lambda largest: np.where(largest, [0.2, 0.3, 0.7], 0) / np.where(largest, [0.2, 0.3, 0.7], 0).sum(-1)[:, None],
    ],
)
def test_a_tie_may_share_a_gradient_in_any_way(share):
    assert mg.gradcheck(lambda x: mg.exp(_largest(share)(x)), _TIED).skipped


@pytest.mark.parametrize(
    "share",
    [
        lambda largest: largest,
        lambda largest: largest & (largest.sum(-1, keepdims=True) == 1),
        lambda largest: largest * 0.6,
    ],
)
def test_a_tie_shares_one_gradient(share):
    op = _largest(lambda largest: np.where(largest.sum(-1, keepdims=True) == 1, largest, share(largest)))
    result = failure(lambda x: mg.exp(op(x)), _TIED)
    assert (result.diagnosis.kind, result.culprit.op) == ("kink", op.name)
    assert "a tie shares one gradient" in result.diagnosis.sentence
    assert {m.index for m in result.mismatches} == {(0, 1), (0, 2), (1, 0), (1, 1), (1, 2)}


def test_ties_between_inputs():
    a, b = np.array([1.0, 2, 3]), np.array([1.0, 5, 3])
    assert mg.gradcheck(mg.maximum, (a, b))
    both = mg.op(lambda a, b: np.maximum(a, b)).rule(a=lambda g, a, b: g * (a >= b), b=lambda g, a, b: g * (b >= a))
    assert "equal elements" in failure(both, (a, b)).diagnosis.sentence


def test_elements_at_other_kinks_are_no_ties():
    rng = np.random.default_rng(0)
    for _ in range(20):
        x, c = rng.integers(-1, 2, (3, 3)).astype(float), rng.standard_normal((3, 3))
        assert mg.gradcheck(lambda x, c: mg.relu(x) * c + abs(x) * c.T, (x, c))
        assert mg.gradcheck(lambda x: abs(x).sum() - mg.relu(x).max(), x)
        assert mg.gradcheck(lambda x: mg.softmax(mg.maximum(x, 0.0)) + mg.sort(x, 0) * abs(x), x)


def test_what_is_not_decided_is_not_said_to_agree():
    text = str(mg.gradcheck(mg.relu, np.array([0.0, 1.0, 0.0, -1.0, 2.0])))
    assert text.startswith("gradcheck passed: 3 elements agree with finite differences")
    assert text.count("not decided by differences") == 2


# --- dtypes and writes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [2.0, 1.01, -1.0])
def test_a_rule_that_is_wrong_in_float32_alone(wrong):
    tanh = mg.op(lambda x: np.tanh(x)).rule(x=lambda g, y: g * (1 - y * y) * (wrong if y.dtype == np.float32 else 1))
    x = normal(3, 4)
    assert mg.gradcheck(lambda x: mg.exp(tanh(x)), x)
    result = failure(lambda x: mg.exp(tanh(x)), x.astype(np.float32))
    assert (result.diagnosis.kind, result.culprit.op) == ("wrong dtype", tanh.name)
    assert "right in float64, and not in float32" in result.diagnosis.sentence


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_rounding_in_float32_is_no_mistake(dtype):
    x = normal(5, 6).astype(dtype)
    for f in (
        mg.softmax,
        mg.log_softmax,
        mg.layer_norm,
        mg.std,
        lambda x: mg.softmax(30 * x),
        lambda x: mg.exp(x @ x.T),
    ):
        assert mg.gradcheck(f, x)
    assert mg.gradcheck(mg.linalg.inv, _HILBERT.astype(np.float32))


def _scaled_in_place(g, y):
    y *= g
    return y


def _cleared(g, x, y):
    slope = g * np.cos(x)
    y[...] = 0
    return slope


@pytest.mark.parametrize(("f", "rule"), [(np.exp, _scaled_in_place), (np.sin, _cleared)])
def test_a_rule_that_writes_into_its_output(f, rule):
    op = mg.op(lambda x: f(x)).rule(x=rule)
    result = failure(op, np.array([1.0, 2.0]))
    assert (result.diagnosis.kind, result.culprit.op) == ("input mutated", op.name)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_low_precision_inputs_are_lifted(dtype):
    seen = []

    def f(x):
        seen.append(x.dtype)
        return mg.sin(x)

    assert mg.gradcheck(f, np.array([1.2345], dtype))
    assert seen.count(dtype) == 1  # to look at the dtypes of the rules' results
    assert set(seen) == {np.dtype(float), np.dtype(dtype)}


def test_tensors_are_taken_as_inputs_and_left_alone():
    x = mg.tensor([1.0, 2.0], dtype=np.float32, requires_grad=True)
    assert mg.gradcheck(lambda x: x * x, x)
    assert x.grad is None


def test_inputs_are_never_written_to_and_are_probed_one_by_one():
    x, y = np.broadcast_to([2.0], (3,)), normal(4)[::2]
    before = y.copy()
    assert mg.gradcheck(lambda x, y: (x**2).sum() * y.sum(), (x, y))
    np.testing.assert_array_equal(y, before)


def test_a_function_that_writes_into_its_argument():
    def f(x):
        x += 1
        return (x * x).sum()

    x = np.array([1.0, 2.0, 3.0])
    assert mg.gradcheck(f, x)
    np.testing.assert_array_equal(x, [1, 2, 3])


def test_closed_over_leaves_get_no_gradient():
    w = mg.tensor([1.0, 2.0], requires_grad=True)
    assert mg.gradgradcheck(lambda x: mg.tanh(x * w), np.array([0.5, 0.7]))
    assert w.grad is None


def test_the_result_does_not_depend_on_the_day():
    f = wrong_op(lambda x: np.exp(x), x=lambda x: 1.0001 * np.exp(x))
    first, again = [str(mg.gradcheck(f, normal(4), raise_exception=False)) for _ in range(2)]
    assert first == again


# --- what is caught ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [0.0, -1.0, 2.0, 1.001, 1 + 1e-6])
def test_a_wrong_factor(factor):
    result = failure(wrong_op(lambda x: np.sin(x), x=lambda x: factor * np.cos(x)), normal(2, 3))
    assert len(result.mismatches) == 6
    for m in result.mismatches:
        assert m.numeric == pytest.approx(m.analytic / factor if factor else m.numeric, rel=1e-8)
        assert m.absolute == pytest.approx(abs(m.analytic - m.numeric))
        assert m.relative == pytest.approx(abs(1 - factor) / max(1, abs(factor)), rel=1e-3)


def test_one_wrong_element_is_located():
    @mg.op
    def skips_one(x, y):
        return x * 2 + y

    def rule(g):
        wrong = 2 * g
        wrong[1, 2] *= 0.5
        return wrong

    skips_one.rule(x=rule, y=lambda g: g)
    (m,) = failure(skips_one, (normal(2, 3), normal(2, 3))).mismatches
    assert (m.input, m.index) == ("argument 0", (1, 2))
    assert m.numeric == pytest.approx(2 * m.analytic)


def test_the_worst_come_first_and_the_table_is_bounded():
    result = failure(wrong_op(lambda x: x**2, x=lambda x: 3 * x), np.arange(1.0, 21.0))
    errors = [m.absolute for m in result.mismatches]
    assert len(errors) == 20
    assert errors == sorted(errors, reverse=True)
    lines = str(result).splitlines()
    assert lines[0] == "gradcheck failed: 20 of 20 elements differ from finite differences"
    assert ["input", "index", "analytic", "numeric", "abs", "error", "rel", "error"] in [x.split() for x in lines]
    assert len(lines) <= 25
    assert lines[-1] == "  ..."
    assert max(map(len, lines)) <= 100


def test_inputs_are_named_by_their_place():
    f = wrong_op(lambda x: x**2, x=lambda x: 3 * x)
    result = failure(lambda n, p: f(p["w"][1]) * n, (2, {"a": 1.0, "w": [np.ones(2), np.ones(1)]}))
    assert [m.input for m in result.mismatches] == ["argument 1['w'][1]"]
    (m,) = failure(f, 3.0).mismatches
    assert (m.index, m.analytic) == ((), pytest.approx(m.numeric * 1.5))


def test_an_input_that_is_not_connected():
    (m,) = failure(lambda x, y: x * mg.tensor(y.data), (1.0, 2.0)).mismatches
    assert (m.input, m.analytic) == ("argument 1", 0)


def test_the_cotangent_is_not_uniform():
    """A softmax whose gradient rule returns nothing passes every check through a plain sum."""
    f = mg.op(lambda x: np.exp(x) / np.exp(x).sum()).rule(x=lambda g: 0 * g)
    failure(f, np.array([0.0, 1.0, 2.0]))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_gradients_that_are_not_finite(bad):
    result = failure(wrong_op(lambda x: x * 2, x=lambda x: np.where(x > 1, bad, 2.0)), np.array([0.0, 3.0]))
    assert [m.index for m in result.mismatches] == [(1,)]
    assert str(bad) in str(result)


def test_a_missing_second_order_term():
    @mg.op
    def cubed(x):
        return x**3

    cubed.rule(x=lambda g, x: 3 * g * x.data**2 if isinstance(x, mg.Tensor) else 3 * g * x**2)
    x = np.array([1.0, 2.0])
    assert mg.gradcheck(cubed, x)
    result = failure(cubed, x, mg.gradgradcheck)
    assert {m.input for m in result.mismatches} == {"argument 0"}
    assert "gradgradcheck failed" in str(result)


def test_a_rule_that_loses_the_cotangents_history():
    f = mg.op(lambda x: 2 * x).rule(x=lambda g: mg.tensor(2 * g.data) if isinstance(g, mg.Tensor) else 2 * g)
    assert mg.gradcheck(f, 1.0)
    assert {m.input for m in failure(f, 1.0, mg.gradgradcheck).mismatches} == {"cotangent"}


# --- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", [mg.gradcheck, mg.gradgradcheck])
@pytest.mark.parametrize(
    ("f", "what"),
    [
        (lambda x: x.data, "ndarray"),
        (lambda x: float(x.sum()), "float"),
        (lambda x: None, "NoneType"),
        (lambda x: [x, 3], "int"),
        (lambda x: x.astype(int), "int64"),
    ],
)
def test_outputs_that_are_no_floating_tensors(check, f, what):
    with pytest.raises(TypeError, match=rf"returns floating tensors.*{what}.*\.numpy\(\)"):
        check(f, np.ones(2))


def test_errors_of_the_function_come_through():
    with pytest.raises(ZeroDivisionError):
        mg.gradcheck(lambda x: x * (1 / 0), 1.0)


@pytest.mark.parametrize("check", [mg.gradcheck, mg.gradgradcheck])
@pytest.mark.parametrize("inputs", [2, None, np.arange(3), np.ones(2) + 1j, (), (np.ones(2, bool), 3)])
def test_nothing_to_check_is_an_error(check, inputs):
    with pytest.raises(TypeError, match="nothing to check: no input is a floating"):
        check(np.exp, inputs)


def test_a_list_of_numbers_is_a_list_of_tensors_and_says_so():
    with pytest.raises(TypeError, match=r"inputs is a list.*pass np\.array"):
        mg.gradcheck(mg.exp, [1.0, 2.0])
    assert mg.gradcheck(lambda xs: xs[0] * xs[1], [1.0, 2.0])


def test_what_is_no_function_or_returns_complex_numbers():
    with pytest.raises(TypeError, match="was given str"):
        mg.gradcheck("exp", 1.0)
    with pytest.raises(TypeError, match=r"take mg\.real"):
        mg.gradcheck(mg.fft.fft, np.ones(3))
