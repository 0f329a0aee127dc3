"""study.diff: planted differences between two runs must be found at their call, and equal runs must be equal."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import study
from models import AttentionStack


@mg.op
def both(x):
    return np.sin(x), np.sin(x)


both.rule(x=lambda g, x: (g[0] + g[1]) * np.cos(x))


def recorded(f, *args):
    with study.recording():
        return f(*args)


def run(middle, x=(1.0, 2.0), y=(3.0, 4.0), dtype=np.float64):
    """A computation that can be changed in its middle."""
    x, y = (mg.tensor(v, dtype=dtype, requires_grad=True) for v in (x, y))
    with study.recording():
        return (mg.exp(middle(x, y)) * x).sum()


def product(x, y):
    return x * y


def test_equal_runs_are_equal():
    assert study.diff(run(product), run(product)) is None
    assert study.diff(study.calls(run(product)), study.calls(run(product))) is None
    assert study.diff(run(product, x=(np.nan, 1.0)), run(product, x=(np.nan, 1.0))) is None


def test_another_constant():
    a, b = run(lambda x, y: x * np.array([1.0, 1.5])), run(lambda x, y: x * np.array([1.0, 1.25]))
    found = study.diff(a, b)
    assert (found.kind, found.number, found.argument, found.index) == ("argument", 0, "b", (1,))
    assert found.values == (1.5, 1.25)
    assert found.places[0][0] == __file__
    assert "at call 0" in str(found)
    assert "argument b is np.float64(1.5) at [1] in the first, and np.float64(1.25) in the second" in str(found)


def test_another_leaf():
    found = study.diff(run(product), run(product, y=(3.0, 5.0)))
    assert (found.kind, found.argument, found.index, found.values) == ("argument", "b", (1,), (4.0, 5.0))


def test_another_op():
    found = study.diff(run(product), run(lambda x, y: x + y))
    assert (found.kind, found.number, found.ops) == ("op", 0, ("multiply", "add"))
    assert "multiply (" in str(found)
    assert "add (" in str(found)


def test_other_operands_of_one_op():
    x = (1.0, 2.0)
    found = study.diff(run(lambda x, y: (x * y) * y, x, x), run(lambda x, y: (x * y) * x, x, x))
    assert (found.kind, found.number, found.argument) == ("operands", 1, "b")
    assert "its argument b is leaf 1 in the first, and leaf 0 in the second" in str(found)
    found = study.diff(run(lambda x, y: x * y, x, x), run(lambda x, y: x * y.detach(), x, x))
    assert (found.kind, found.argument, found.values) == ("operands", "b", ("leaf 1", "a constant"))


def test_a_call_more():
    short, long = run(product), run(product)
    with study.recording():
        long = mg.log(long)
    found = study.diff(short, long)
    assert (found.kind, found.number, found.ops) == ("length", 4, (None, "log"))
    assert found.places[0] is None
    assert "nothing in the first, and log (" in str(found)
    assert study.diff(long, short).ops == ("log", None)


def test_an_op_that_is_not_deterministic():
    draws = iter(range(10))

    @mg.op
    def noisy(x):
        return x + np.array([0.0, next(draws)])

    noisy.rule(x=lambda g: g)
    found = study.diff(run(lambda x, y: noisy(x)), run(lambda x, y: noisy(x)))
    assert (found.kind, found.ops, found.index, found.values) == ("output", ("noisy", "noisy"), (1,), (2.0, 3.0))
    assert "its output, of equal arguments, is" in str(found) or "its output" in str(found)


def test_other_options_shapes_and_dtypes():
    x = mg.tensor(np.ones((3, 3)), requires_grad=True)
    found = study.diff(recorded(lambda: x.sum(0)), recorded(lambda: x.sum(1)))
    assert (found.kind, found.argument, found.index, found.values) == ("argument", "axis", None, (0, 1))
    found = study.diff(recorded(lambda: x * np.ones(3)), recorded(lambda: x * np.ones((1, 3))))
    assert found.values == ("of shape (3,)", "of shape (1, 3)")
    found = study.diff(run(product), run(product, dtype=np.float32))
    assert found.values == ("of dtype float64", "of dtype float32")


def test_a_tolerance():
    a, b = run(product), run(product, dtype=np.float32)
    assert study.diff(a, b, rtol=1e-6) is None
    near, far = run(product, x=(1.0, 2.0 + 1e-9)), run(product, x=(1.0, 2.0 + 1e-3))
    assert study.diff(a, near).index == (1,)
    assert study.diff(a, near, rtol=1e-6) is None
    assert study.diff(a, far, rtol=1e-6).index == (1,)
    infinite = run(product, x=(1.0, np.inf))
    assert study.diff(infinite, infinite, rtol=1e-6) is None
    assert study.diff(a, infinite, rtol=1e-6).index == (1,)


def test_sequences_and_several_outputs():
    x = mg.tensor(np.arange(6.0), requires_grad=True)

    def f(first, second):
        parts = both(x)
        return (mg.concatenate([parts[first], parts[second]]) ** 2).sum()

    assert study.diff(recorded(f, 0, 1), recorded(f, 0, 1)) is None
    found = study.diff(recorded(f, 0, 1), recorded(f, 1, 1))
    assert (found.kind, found.number) == ("operands", 1)
    assert found.values == ("output 0 of the output of call 0 (both)", "output 1 of the output of call 0 (both)")


def test_a_checkpoint_makes_no_difference():
    x = mg.tensor(np.ones((2, 3)), requires_grad=True)

    def f(x):
        return mg.tanh(x) * mg.exp(x)

    assert study.diff(recorded(lambda: f(x).sum()), recorded(lambda: mg.checkpoint(f)(x).sum())) is None


@pytest.mark.parametrize("changed", ["blocks.0.attention.query", "blocks.1.fc.layers.1", "norm"])
def test_a_changed_parameter_of_a_model_is_where_its_runs_part(changed):
    def stack():
        return AttentionStack(8, blocks=2, heads=2, rng=np.random.default_rng(0))

    x = np.random.default_rng(1).standard_normal((2, 3, 8)).astype(np.float32)
    one, other = stack(), stack()
    assert study.diff(recorded(lambda: one(x).sum()), recorded(lambda: other(x).sum())) is None
    dict(other.named_modules())[changed].weight._array.flat[-1] += 0.5
    found = study.diff(recorded(lambda: one(x).sum()), recorded(lambda: other(x).sum()))
    assert (found.kind, found.argument) in [("argument", "weight"), ("argument", "wq")]
    weight = dict(one.named_modules())[changed].weight
    assert found.values == pytest.approx((weight.numpy()[found.index], weight.numpy()[found.index] + 0.5))


def test_what_was_not_recorded_is_said():
    x = mg.tensor(np.ones(3), requires_grad=True)
    with pytest.raises(RuntimeError, match=r"study\.diff needs a graph that was recorded in full"):
        study.diff(recorded(lambda: x.sum()), x.sum())
    with pytest.raises(RuntimeError, match=r"study\.diff needs a graph that was recorded in full"):
        study.diff(study.calls(x.sum()), study.calls(x.sum()))
