"""Every kind of mistake, planted into a program that is right otherwise: its diagnosis, and who is named for it."""

import inspect

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study
from minigrad.check import KINDS, GradientError
from minigrad.check.diagnosis import factor_name
from minigrad.check.mutants import Mutant
from minigrad.check.mutants import planted as planted_mutant
from minigrad.tensor import Tensor
from minigrad.trees import flatten


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def op(forward, **rules):
    return mg.op(forward).rule(**rules)


def line_of(function, text):
    """The number of the line of a function that contains the text."""
    lines, first = inspect.getsourcelines(function)
    (found,) = [i for i, line in enumerate(lines) if text in line]
    return first + found


def planted(suspect, *inputs, check=mg.gradcheck):
    """The result for a program in which only `suspect` can be wrong; it must be blamed, at its line."""

    def program(*xs):
        xs = [mg.tanh(x) * 2.0 for x in xs]
        y = suspect(*xs)
        return mg.sin(y).sum(-1) if y.ndim else mg.sin(y)

    result = check(program, inputs, raise_exception=False)
    assert not result
    assert result.culprit.op == suspect.name
    assert result.culprit.file == __file__
    assert result.culprit.line == line_of(program, "suspect(")
    assert result.culprit.source == "y = suspect(*xs)"
    assert result.diagnosis == result.culprit.diagnosis
    assert result.diagnosis.kind in KINDS
    lines = str(result).splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 100
    return result


# --- kinds -------------------------------------------------------------------------------------------------------


def test_not_connected():
    result = planted(op(lambda a, b: a * b, a=lambda g, b: g * b, b=lambda g: 0 * g), normal(3), normal(3, seed=1))
    assert (result.diagnosis.kind, result.culprit.argument) == ("not connected", "b")


@pytest.mark.parametrize("way", ["data", "numpy", "detach", "stop_gradient"])
def test_an_input_that_leaves_the_record(way):
    ways = {
        "data": lambda x: np.array(x.data),
        "numpy": lambda x: x.numpy().copy(),
        "detach": lambda x: x.detach(),
        "stop_gradient": mg.stop_gradient,
    }
    result = mg.gradcheck(lambda x, y: x * ways[way](y), (1.0, 2.0), raise_exception=False)
    assert (result.diagnosis.kind, result.culprit) == ("not connected", None)
    assert "argument 1" in result.diagnosis.sentence
    assert [i.connected for i in result.inputs] == [True, False]
    partly = mg.gradcheck(lambda x: mg.exp(x) * ways[way](x), normal(3), raise_exception=False)
    assert partly.diagnosis.kind == "not connected"
    assert "every recorded call is right by itself" in partly.diagnosis.sentence


@pytest.mark.parametrize("factor", [2.0, 0.5, 1.001, 3.7, -2.0])
def test_constant_factor(factor):
    diagnosis = planted(op(lambda x: x**3, x=lambda g, x: factor * g * 3 * x**2), normal(3, 4)).diagnosis
    assert diagnosis.kind == "constant factor"
    assert f"{factor_name(factor, [])} " in diagnosis.sentence


@pytest.mark.parametrize(
    ("factor", "names"),
    [
        (1 / 5, ["1/5", "5: axis 0 of x"]),
        (7.0, ["7: axis 1 of x"]),
        (35.0, ["35: the elements of x"]),
        (np.sqrt(7), ["sqrt(7)"]),
        (1 / np.sqrt(5), ["1/sqrt(5)"]),
        (6 / 7, ["(7 - 1)/7"]),
        (np.log(2), ["ln 2"]),
        (np.pi / 180, ["pi/180"]),
    ],
)
def test_a_factor_is_matched_with_sizes(factor, names):
    sentence = planted(op(lambda x: np.sin(x), x=lambda g, x: factor * g * np.cos(x)), normal(5, 7)).diagnosis.sentence
    for name in names:
        assert name in sentence


def test_sign():
    assert planted(op(lambda a, b: a - b, a=lambda g: g, b=lambda g: g), normal(3), normal(3)).diagnosis.kind == "sign"


@pytest.mark.parametrize("n", [3, 40])  # 40: along random directions, and then a grid
def test_transposed(n):
    wrong = op(lambda a, b: a @ b, a=lambda g, b: g @ b, b=lambda g, a: a.T @ g)
    result = planted(wrong, normal(n, n), normal(n, n, seed=1))
    assert (result.diagnosis.kind, result.culprit.argument) == ("transposed", "a")


def test_transposed_result():
    turned = op(lambda x: x**2, x=lambda g, x: np.swapaxes(g * 2 * x, -1, -2))
    assert planted(turned, normal(4, 4)).diagnosis.kind == "transposed"


def test_a_constant_operand_in_the_place_of_a_tracked_one():
    wrong = op(lambda x, c: x / c, x=lambda g, x: g / x)
    result = mg.gradcheck(lambda x: wrong(x, np.array([2.0, 3.0, 0.7])), normal(2, 3), raise_exception=False)
    assert (result.diagnosis.kind, result.culprit.argument) == ("swapped operands", "x")
    assert "with c in the place of x" in result.diagnosis.sentence


def test_an_operand_that_is_a_multiple_of_the_other():
    wrong = op(lambda a, b: a * b, a=lambda g, a: g * a, b=lambda g, a: g * a)
    result = mg.gradcheck(lambda x: wrong(0.37 * x, x), normal(3), raise_exception=False)
    assert result.diagnosis.kind == "swapped operands"


def test_an_axis():
    softmax = op(
        lambda x, axis=0: np.exp(x) / np.exp(x).sum(axis, keepdims=True),
        x=lambda g, y, axis: y * (g - np.sum(g * y, axis=axis + 1, keepdims=True)),
    )
    assert planted(softmax, normal(3, 4)).diagnosis.kind == "transposed"


def test_swapped_operands():
    wrong = op(lambda a, b: a * b, a=lambda g, a: g * a, b=lambda g, a: g * a)
    result = planted(wrong, normal(3, 4), normal(3, 4, seed=1))
    assert (result.diagnosis.kind, result.culprit.argument) == ("swapped operands", "a")


@pytest.mark.parametrize("rule", [lambda g: g[0], lambda g: g[-1:]])
def test_a_missing_sum_over_a_broadcast(rule):
    result = planted(op(lambda x, b: x + b, x=lambda g: g, b=rule), normal(3, 4), normal(4))
    assert (result.diagnosis.kind, result.culprit.argument) == ("one row or column", "b")
    assert "sum" in result.diagnosis.sentence


@pytest.mark.parametrize(
    ("at", "kind"),
    [
        (0, "one row or column"),
        ((slice(None), 1), "one row or column"),
        ((slice(1, 3),), "one row or column"),
        ((2, 3), "some elements"),
    ],
)
def test_one_row_or_column_or_some_elements(at, kind):
    def rule(g):
        wrong = np.array(g)
        wrong[at] *= 0.3
        return wrong

    assert planted(op(lambda x: x * 1.0, x=rule), normal(4, 5)).diagnosis.kind == kind


def test_rows_of_which_some_were_looked_at():
    def rule(g):
        wrong = np.array(g)
        wrong[64:] *= 0.3
        return wrong

    sentence = planted(op(lambda x: x * 1.0, x=rule), normal(70, 40)).diagnosis.sentence
    assert "only index 69 of axis 0 of x, of 12 that were looked at, is wrong" in sentence


def test_an_index_that_repeats():
    index = np.array([0, 0, 3])

    def assigned(g, x_shape):
        y = np.zeros(x_shape)
        y[index] = g
        return y

    result = planted(op(lambda x: x[index], x=assigned), normal(4))
    assert result.diagnosis.kind == "one row or column"
    shifted = op(lambda x: x * 2, x=lambda g: 2 * np.roll(g, 1, 0))
    assert planted(shifted, normal(4, 3)).diagnosis.kind == "one row or column"


def test_constant_offset():
    assert planted(op(lambda x: x**2, x=lambda g, x: g * 2 * x + 0.1), normal(5)).diagnosis.kind == "constant offset"


def test_no_pattern():
    noise = normal(3, 4, seed=9)
    diagnosis = planted(op(lambda x: x**2, x=lambda g, x: g * 2 * x + noise), normal(3, 4)).diagnosis
    assert diagnosis.kind == "other"
    assert "12 of 12" in diagnosis.sentence


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_not_finite(bad):
    assert planted(op(lambda x: x * 2, x=lambda g: g * bad), normal(3)).diagnosis.kind == "not finite"


@pytest.mark.parametrize(
    ("f", "x", "what"),
    [
        (lambda x: mg.log(x).sum(), [-1.0, 2.0], "NaN in 1 of 1 elements"),
        (lambda x: mg.log(x), [-1.0, 2.0], "NaN in 1 of 2 elements"),
        (lambda x: mg.log(x - 5), [1.0, 2.0], "NaN in 2 of 2 elements"),
        (lambda x: (x * x).sum(), [np.nan, 2.0], "NaN in 1 of 1 elements"),
        (lambda x: mg.sqrt(x), [-1.0], "NaN in 1 of 1 elements"),
        (lambda x: mg.exp(x * 1000), [-1.0, 2.0], "infinite in 1 of 2 elements"),
        (lambda x: (mg.tanh(x), 1 / (x - 1)), [1.0, 2.0], "infinite in 1 of 4 elements"),
    ],
)
def test_nobody_is_to_blame_where_f_has_no_value(f, x, what):
    with np.errstate(all="ignore"):
        result = mg.gradcheck(f, np.array(x), raise_exception=False)
    assert not result
    assert result.culprit is None
    assert result.diagnosis.kind == "not finite"
    assert what in result.diagnosis.sentence


def test_infinite_values_that_do_not_change_hide_no_mistake():
    @mg.op
    def double(x):
        return x * 2

    double.rule(x=lambda g: g * 3)
    result = mg.gradcheck(lambda x: mg.where(x.data > 0, double(x), -np.inf), normal(5), raise_exception=False)
    assert (result.diagnosis.kind, result.culprit.op) == ("constant factor", "double")


def test_zero_times_infinity_in_a_dead_branch():
    log = op(lambda x: np.log(np.maximum(x, 0)), x=lambda g, x: g * (1 / (x * (x > 0))))

    def program(x):
        y = log(x)
        return mg.where(x.data > 0, y, x)

    with np.errstate(all="ignore"):
        result = mg.gradcheck(program, np.array([-1.0, 0.0, 2.0]), raise_exception=False)
    assert (result.diagnosis.kind, result.culprit.line) == ("not finite", line_of(program, "log(x)"))


@pytest.mark.parametrize(
    "rule", [lambda g, x: g[:1], lambda g, x: g[None, :, :, None], lambda g, x: g @ x, lambda g, x: g + np.ones(7)]
)
def test_wrong_shape(rule):
    assert planted(op(lambda x: x * 2, x=rule), normal(3, 4)).diagnosis.kind == "wrong shape"
    with pytest.raises(GradientError) as caught:
        mg.gradcheck(op(lambda x: x * 2, x=rule), normal(3, 4))
    assert caught.value.result.diagnosis.kind == "wrong shape"
    assert caught.value.__cause__ is not None


def test_a_rule_that_raises():
    result = planted(op(lambda x: x * 2, x=lambda g: g.nonsense), normal(3))
    assert result.diagnosis.kind == "exception"
    assert "AttributeError" in result.diagnosis.sentence


def test_errors_of_the_function_itself_come_through():
    with pytest.raises(ZeroDivisionError):
        mg.gradcheck(lambda x: x * (1 / 0), 1.0)


# --- kinks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("f", [mg.relu, lambda x: mg.maximum(x, 0.5 * x), lambda x: mg.clip(x, 0, 1)])
def test_a_slope_between_those_of_the_sides_is_accepted_at_a_kink(f):
    for g in (f, lambda x: mg.exp(f(x)), lambda x: f(x) + mg.abs(x)):
        result = mg.gradcheck(g, np.array([-1.0, 0.0, 1.5]))
        for skip in result.skipped:
            assert (skip.input, skip.index) == ("argument 0", (1,))
            assert "slope" in skip.why
    assert mg.gradcheck(mg.relu, np.array([-1.0, 0.0])).skipped
    assert "not decided by differences: argument 0 (1,): kink: slope" in str(mg.gradcheck(mg.relu, np.array([1.0, 0])))


@pytest.mark.parametrize("at_zero", [-0.5, 1.5, 7.0])
def test_a_slope_outside_is_a_wrong_kink(at_zero):
    relu = op(lambda x: np.maximum(x, 0), x=lambda g, x: g * np.where(x == 0, at_zero, x > 0))
    result = mg.gradcheck(lambda x: relu(x) * 3.0, np.array([-1.0, 0.0, 1.5]), raise_exception=False)
    assert (result.diagnosis.kind, result.culprit.op) == ("kink", relu.name)
    assert [m.index for m in result.mismatches] == [(1,)]


def test_kinks_that_cancel_are_no_mistake():
    result = mg.gradcheck(lambda x: mg.relu(x) - mg.relu(-x), np.array([0.0, 1.0]))
    assert "relu" in result.skipped[0].why


@pytest.mark.parametrize("f", [mg.sqrt, lambda x: x**1.5, lambda x: mg.where(x.data > 0.5, x, 0 * x)])
def test_ends_of_domains_and_jumps(f):
    assert mg.gradcheck(f, np.array([0.0, 0.5, 1.0]))


def test_many_kinks_close_by():
    x = normal(40, 40) * 1e-3
    assert mg.gradcheck(lambda x: mg.relu(x) @ np.ones(40), x, method="random")


# --- noise and precision -----------------------------------------------------------------------------------------


def test_float_noise():
    small = mg.gradcheck(lambda x: mg.sin((x / 3 + 1e8) - 1e8), np.array([0.3, 0.4]))
    assert "float noise" in small.skipped[0].why
    large = mg.gradcheck(lambda x: mg.sin((x / 3 + 1e12) - 1e12), np.array([0.3, 0.4]), raise_exception=False)
    assert large.diagnosis.kind == "float noise"
    assert "best achievable error" in large.diagnosis.sentence
    assert " at 1e-03" in large.diagnosis.sentence  # an estimate of the curve


def test_noise_excuses_no_mistake():
    cube = op(lambda x: x**3, x=lambda g, x: 1.001 * g * 3 * x**2)
    result = mg.gradcheck(lambda x: cube((x / 3 + 1e8) - 1e8), np.array([0.3, 0.4]), raise_exception=False)
    assert (result.diagnosis.kind, result.culprit.op) == ("constant factor", cube.name)


def test_wrong_dtype_of_the_function():
    def f(x):
        low = x.astype(np.float32)
        return mg.sin(low).astype(float)

    result = mg.gradcheck(f, np.array([0.3, 0.4]), raise_exception=False)
    assert result.diagnosis.kind == "wrong dtype"
    assert f":{line_of(f, 'low = ')}" in result.diagnosis.sentence


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "rule",
    [
        lambda g, x: (g * 2 * x).astype(np.float32),
        lambda g, x: (g * 2 * x).astype(np.float32).astype(float),
        lambda g, x: (g * 2 * x).astype(np.float64) if g.dtype == np.float32 else (g * 2 * x).astype(np.float32),
        lambda g, x: (g * 2 * x).astype(int),
    ],
)
def test_wrong_dtype_of_a_rule(rule, dtype):
    assert planted(op(lambda x: x**2, x=rule), normal(4).astype(dtype)).diagnosis.kind == "wrong dtype"


def test_an_accidental_float64_shows_for_float32_inputs():
    wide = op(lambda x: x * 2, x=lambda g: g * np.array([2.0]))
    assert mg.gradcheck(wide, normal(4))
    assert planted(wide, normal(4).astype(np.float32)).diagnosis.kind == "wrong dtype"


# --- impure functions --------------------------------------------------------------------------------------------


def test_non_deterministic():
    def f(x):
        kept = np.random.default_rng().random(x.shape) < 0.5
        y = x * kept
        return y * 2.0

    result = mg.gradcheck(f, normal(20), raise_exception=False)
    assert (result.diagnosis.kind, result.culprit) == ("non-deterministic", None)
    assert f"test_diagnosis.py:{line_of(f, 'x * kept')}" in result.diagnosis.sentence


@pytest.mark.parametrize("train", [True, False])
def test_dropout(train):
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).train(train)
    result = mg.gradcheck(net, normal(6, 4), raise_exception=False)
    assert bool(result) is not train
    assert not train or result.diagnosis.kind == "non-deterministic"


def in_place(x):
    x[x < 0] = 0
    return x * 1.0


def test_input_mutated():
    relu = op(in_place, x=lambda g, y: g * (y > 0))
    result = planted(relu, normal(6))
    assert result.diagnosis.kind == "input mutated"
    direct = mg.gradcheck(relu, normal(6), raise_exception=False)
    assert (direct.diagnosis.kind, direct.culprit.op) == ("input mutated", "in_place")

    def spoilt(x):
        y = x * 2.0
        z = relu(y)
        return mg.square(y) + z

    result = mg.gradcheck(spoilt, normal(6), raise_exception=False)
    assert (result.diagnosis.kind, result.culprit.line) == ("input mutated", line_of(spoilt, "relu("))


def test_a_rule_that_writes():
    def writes_to_cotangent(g):
        result = g * 2
        g *= 0.5
        return result

    def writes_to_operand(g, x):
        x *= 1.5
        return g * 2

    for rule in (writes_to_cotangent, writes_to_operand):
        assert planted(op(lambda x: x * 2, x=rule), normal(6)).diagnosis.kind == "input mutated"


# --- second order ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule",
    [
        lambda g, x: g * 3 * (x.data if isinstance(x, Tensor) else x) ** 2,
        lambda g, x: mg.tensor(g.data * 3 * x.data**2) if isinstance(g, Tensor) else g * 3 * x**2,
        lambda g, x: g * 3 * x**2 * (2.0 if isinstance(g, Tensor) else 1.0),
    ],
)
def test_second_order_only(rule):
    cube = op(lambda x: x**3, x=rule)
    assert mg.gradcheck(cube, normal(3))
    result = planted(cube, normal(3), check=mg.gradgradcheck)
    assert result.diagnosis.kind == "second order only"


def test_second_order_of_a_reference():
    fused = mg.op(lambda x: np.exp(x)).rule(x=lambda g, y: g * y)
    assert mg.gradgradcheck(lambda x: fused(x) * x, normal(3))


@pytest.mark.parametrize(
    ("mutant", "kind"),
    [
        (Mutant("divide", "b", "factor 1.001"), "constant factor"),  # in the recorded reference's own derivative
        (Mutant("divide", "b", "constant"), "second order only"),
        (Mutant("add", "b", "broadcast sum dropped"), "one row or column"),  # the bias, on whose sum nothing depends
    ],
)
def test_a_wrong_op_that_only_the_reference_of_another_uses(mutant, kind):
    def program(x, weight, bias):
        return mg.layer_norm(x, weight, bias)

    inputs = normal(2, 3), normal(3), normal(3, seed=1)
    with planted_mutant(mutant):
        assert mg.gradcheck(program, inputs)
        result = mg.gradgradcheck(program, inputs, raise_exception=False)
    assert (result.culprit.op, result.diagnosis.kind) == (mutant.op, kind)
    assert result.culprit.line == line_of(program, "layer_norm(")
    assert f"in the derivative of layer_norm, {mutant.op} is wrong" in str(result).replace("\n    ", " ")


# --- whole layers, losses, checkpoints, complex intermediates ----------------------------------------------------


def test_a_wrong_op_inside_a_module():
    swish = op(lambda x: x / (1 + np.exp(-x)), x=lambda g, x: g / (1 + np.exp(-x)))

    class Layer(nn.Module):
        def __init__(self):
            self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x):
            h = self.first(x)
            h = swish(h)
            return self.second(h)

    layer = Layer()
    x = normal(5, 3).astype(np.float32)
    result = mg.gradcheck(layer, x, raise_exception=False)
    assert (result.culprit.op, result.culprit.line) == (swish.name, line_of(Layer, "swish(h)"))
    assert {m.input for m in result.mismatches} == {"argument 0", "first.weight", "first.bias"}
    assert all(p.grad is None and p.dtype == np.float32 for p in layer.parameters())


def test_a_module_among_the_inputs_stands_for_its_parameters():
    layer, labels = nn.Linear(3, 4), np.array([0, 3])
    result = mg.gradcheck(lambda m, x: nn.cross_entropy(m(x), labels), (layer, normal(2, 3)))
    assert [i.name for i in result.inputs] == ["argument 1", "argument 0.weight", "argument 0.bias"]
    result = mg.gradcheck(lambda ms, x: ms["a"](x), ({"a": layer}, normal(2, 3)))
    assert [i.name for i in result.inputs][1:] == ["argument 0['a'].weight", "argument 0['a'].bias"]
    assert mg.gradgradcheck(layer, normal(2, 3))


def test_inside_a_checkpoint():
    cube = op(lambda x: x**3, x=lambda g, x: 2 * g * x**2)

    def inner(x):
        y = cube(x)
        return mg.sin(y)

    for f in (inner, lambda x: {"a": [inner(x)]}):
        result = mg.gradcheck(lambda x, f=f: flatten(mg.checkpoint(f)(x))[0][0] * 2, normal(3), raise_exception=False)
        assert (result.culprit.op, result.culprit.line) == (cube.name, line_of(inner, "cube(x)"))


def test_through_an_inner_gradient():
    cube = op(lambda x: x**3, x=lambda g, x: g * 3 * (x.data if isinstance(x, Tensor) else x) ** 2)

    def penalty(x):
        y = mg.grad(lambda v: cube(v).sum())(x)
        return (y * y).sum()

    result = mg.gradcheck(penalty, normal(3), raise_exception=False)
    assert not result


def test_several_uses_and_a_sequence_argument():
    join = mg.op(lambda xs: np.concatenate(xs))
    wrong = mg.op(sequence="xs")(lambda xs: np.concatenate(xs)).rule(xs=lambda g, xs: [g[:2], 2 * g[2:]])
    assert join.name
    result = mg.gradcheck(
        lambda x, y: wrong(
            [
                mg.sin(x),
                y,
            ]
        ),
        (normal(2), normal(3)),
        raise_exception=False,
    )
    assert (result.diagnosis.kind, result.culprit.argument) == ("constant factor", "xs[1]")


def test_several_outputs():
    @mg.op
    def both(x):
        return np.sin(x), np.cos(x)

    both.rule(x=lambda g, x: g[0] * np.cos(x))

    def program(x):
        s, c = both(x)
        return s * c

    result = mg.gradcheck(program, normal(3), raise_exception=False)
    assert (result.culprit.op, result.culprit.line) == ("both", line_of(program, "both(x)"))
    assert "nothing of output 1" in result.diagnosis.sentence


def test_complex_intermediates():
    turn = op(lambda z: z * 1j, z=lambda g: g * -1j)

    def program(x):
        y = x * (1 + 2j)
        return mg.real(turn(y))

    result = mg.gradcheck(program, normal(3), raise_exception=False)
    assert (result.diagnosis.kind, result.culprit.line) == ("sign", line_of(program, "turn("))


# --- methods -----------------------------------------------------------------------------------------------------


def test_the_complex_step_sees_errors_that_differences_do_not():
    f = op(lambda x: np.exp(x), x=lambda g, y: g * y * (1 + 1e-9))
    assert mg.gradcheck(f, normal(3), method="central")
    assert not mg.gradcheck(f, normal(3), method="complex", raise_exception=False)
    assert mg.gradcheck(lambda x: mg.exp(x) / x + mg.tanh(x), normal(3), method="complex")
    assert mg.gradcheck(lambda x: mg.abs(x) * x, normal(3), method="complex")


def test_a_complex_step_that_is_impossible():
    f = mg.op(lambda x: x.astype(np.float64)).rule(x=lambda g: g)
    with pytest.raises(TypeError, match="use method='central'"):
        mg.gradcheck(f, normal(3), method="complex")


def test_random_directions_for_big_inputs():
    x = normal(100, 60)
    result = mg.gradcheck(lambda x: mg.tanh(x) @ np.ones(60), x)
    assert [len(i.directions) for i in result.inputs] == [4]
    assert str(result) == "gradcheck passed: 4 random directions agree with finite differences"
    with pytest.raises(ValueError, match="method is one of"):
        mg.gradcheck(mg.exp, x, method="forward")


@pytest.mark.parametrize("place", [(0, 0), (17, 41), (99, 59)])
def test_one_wrong_element_of_many_is_found(place):
    def rule(g, x):
        wrong = 2 * g * x
        if x.size > 2000:
            wrong[place] *= 1.01
        return wrong

    result = mg.gradcheck(op(lambda x: x**2, x=rule), normal(100, 60) + 3, raise_exception=False)
    assert place in [m.index for m in result.mismatches]


# --- the result --------------------------------------------------------------------------------------------------


def test_the_error_map_and_the_picture():
    wrong = op(lambda x: x**2, x=lambda g, x: 3 * g * x)
    result = mg.gradcheck(lambda x, y: wrong(x) + y, (normal(2, 3), normal(2, 3)), raise_exception=False)
    error = result.inputs[0].error
    assert error.shape == (2, 3)
    np.testing.assert_allclose(error, np.abs(result.inputs[0].analytic) / 3, rtol=1e-7)
    assert result.inputs[1].error.max() < 1e-8
    picture = result._repr_html_()
    assert picture.startswith("<pre>gradcheck failed")
    assert picture.count("<rect") == 6
    assert "argument 0" in picture
    assert "<svg" not in mg.gradcheck(mg.exp, normal(3))._repr_html_()


def test_recording_is_only_entered_on_failure_or_to_look_at_rules():
    assert mg.gradcheck(mg.exp, normal(3))
    x = mg.tensor([1.0], requires_grad=True)
    assert (x * 2)._node.notes is None
    with study.recording():
        assert not mg.gradcheck(op(lambda x: x, x=lambda g: -g), normal(3), raise_exception=False)
        assert (x * 2)._node.notes.call is not None


def test_a_gradient_of_nan_is_no_kink():
    size = op(lambda x: np.abs(x), x=lambda g, x: g * x / np.abs(x))
    result = mg.gradcheck(lambda x: size(x).sum(), np.array([0.0, 1.0, -2.0]), raise_exception=False)
    assert result.diagnosis.kind == "not finite"
    assert "NaN in 1 element" in str(result.diagnosis)
