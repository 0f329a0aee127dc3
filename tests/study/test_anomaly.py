"""study.detect_anomaly: planted faults must be named with their lines, and nothing that is sound may raise."""

import inspect
import threading
import warnings

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study
from minigrad.engine import observers
from minigrad.op import fused
from models import AttentionStack, PerVector, SelfAttention, SummedEmbedding, causal_mask


def leaf(x, dtype=None):
    return mg.tensor(x, dtype=dtype, requires_grad=True)


def line_of(function, text):
    """The number of the line of a function that contains a text."""
    lines, first = inspect.getsourcelines(function)
    (number,) = [first + i for i, line in enumerate(lines) if text in line]
    return number


def caught(f, *args, check=("forward", "backward")):
    with pytest.raises(study.AnomalyError) as error, study.detect_anomaly(check):
        f(*args)
    assert isinstance(error.value, FloatingPointError)
    return error.value


# --- the two programs of PyTorch's issue 160016 ------------------------------------------------------------------


def hidden_by_where():
    x = leaf([4.0, -1.0, 9.0])
    root = mg.sqrt(x)
    loss = mg.where(x > 0, root, 0.0).sum()
    loss.backward()
    return loss


def hidden_by_zero():
    x = leaf([4.0, -1.0, 9.0])
    root = mg.sqrt(x)
    kept = root * np.array([1.0, 0.0, 1.0])
    loss = kept.sum()
    loss.backward()
    return loss


def nan_with_a_finite_backward():
    x = leaf([1.0, 2.0])
    constant = mg.log(np.array([1.0, -1.0]))
    loss = (x + constant).sum()
    loss.backward()
    assert np.isfinite(x.grad).all()
    return loss


@pytest.mark.parametrize("f", [hidden_by_where, hidden_by_zero])
def test_the_root_of_a_negative_number_hidden_by_a_second_op(f):
    error = caught(f)
    assert (error.phase, error.op, error.operand, error.index) == ("forward", "sqrt", "", (1,))
    assert (error.file, error.line) == (__file__, line_of(f, "mg.sqrt"))
    assert np.isnan(error.value)
    (x,) = error.ranges
    assert (x.name, x.least, x.most, x.there) == ("x", -1.0, 9.0, -1.0)
    assert "root = mg.sqrt(x)" in str(error)


def test_a_nan_loss_whose_backward_is_finite():
    error = caught(nan_with_a_finite_backward)
    assert (error.phase, error.op, error.index) == ("forward", "log", (1,))
    assert error.line == line_of(nan_with_a_finite_backward, "mg.log")


def test_without_it_neither_program_raises():
    with np.errstate(all="ignore"):
        assert float(hidden_by_where()) == 5
        assert np.isnan(float(hidden_by_zero()))
        assert np.isnan(float(nan_with_a_finite_backward()))


# --- forward -----------------------------------------------------------------------------------------------------


def overflow():
    x = leaf(np.array([[1.0, 2.0], [3.0, 100.0]], np.float32))
    return mg.exp(x).sum()


def division():
    x = leaf([1.0, 0.0])
    return 1 / x


def a_module_inside():
    layer = nn.Linear(2, 2)
    layer.weight._array[...] = 3e38
    return layer(np.full((3, 2), 10, np.float32))


def passed_on():
    x = leaf([-1.0, 1.0])
    y = mg.log(x)
    return (y * 2).sum() * 3


def under_no_grad():
    x = leaf([0.0])
    with mg.no_grad():
        return mg.log(x)


def of_several_outputs():
    @mg.op
    def with_inverse(x):
        return x, 1 / x

    return with_inverse(leaf([1.0, 0.0]))


def of_a_sequence():
    x = leaf([3e38, 1.0], np.float32)
    return mg.einsum("i,i->", x, x)


def made_of_infinities():
    x = leaf([1.0, 2.0])
    hidden = mg.where(np.array([False, False]), x, -np.inf)
    return hidden - hidden.max()


def inside_a_transform():
    return mg.grad(lambda x: mg.sqrt(x) * 0.0)(-1.0)


def inside_a_checkpoint():
    x = leaf([1.0, -1.0])
    return mg.checkpoint(lambda x: mg.sqrt(x))(x).sum()


@pytest.mark.parametrize(
    ("f", "op", "line", "index", "value"),
    [
        (overflow, "exp", "mg.exp", (1, 1), np.inf),
        (division, "divide", "1 / x", (1,), np.inf),
        (a_module_inside, "linear", "layer(np", (0, 0), np.inf),
        (passed_on, "log", "mg.log", (0,), np.nan),
        (under_no_grad, "log", "mg.log", (0,), -np.inf),
        (of_several_outputs, "with_inverse", "return with_inverse", (1,), np.inf),
        (of_a_sequence, "_einsum", "mg.einsum", (), np.inf),
        (made_of_infinities, "subtract", "hidden - hidden", (0,), np.nan),
        (inside_a_transform, "sqrt", "mg.grad", (), np.nan),
        (inside_a_checkpoint, "sqrt", "mg.checkpoint", (1,), np.nan),
    ],
)
def test_the_op_that_made_it_is_named(f, op, line, index, value):
    error = caught(f, check="forward")
    assert (error.phase, error.op, error.index) == ("forward", op, index)
    assert (error.file, error.line) == (__file__, line_of(f, line))
    assert np.array_equal(error.value, value, equal_nan=True)
    assert line in str(error)


def test_a_users_op_is_watched_whenever_it_was_declared():
    @mg.op
    def before(x):
        return x / (x - 1)

    with pytest.raises(study.AnomalyError, match="before made inf"), study.detect_anomaly():
        before(np.array([1.0]))
    with study.detect_anomaly():

        @mg.op
        def within(x):
            return x / (x - 1)

        with pytest.raises(study.AnomalyError, match="within made inf"):
            within(np.array([1.0]))
    with np.errstate(all="ignore"):
        assert before(np.array([1.0])).item() == within(np.array([1.0])).item() == np.inf


def test_elements_are_shown_for_elementwise_ops_alone():
    big = np.full((3, 3), 1e200)
    error = caught(lambda: mg.matmul(big, big))
    assert [r.there for r in error.ranges] == [None, None]
    error = caught(lambda: mg.cumsum(np.full(3, 1e308)))
    assert (error.index, error.ranges[0].there) == ((1,), None)
    error = caught(lambda: mg.multiply(big, np.array([1.0, 1.0, 1e200])))
    assert error.index == (0, 2)
    assert [(r.name, r.there) for r in error.ranges] == [("a", 1e200), ("b", 1e200)]


# --- backward ----------------------------------------------------------------------------------------------------


def root_of_zero():
    x = leaf([4.0, 0.0])
    loss = mg.sqrt(x).sum()
    loss.backward()


def a_wrong_rule():
    @mg.op
    def broken(a, b):
        return a * b

    broken.rule(a=lambda g, b: g * b, b=lambda g, a: g / (a - a))
    y = broken(leaf([1.0, 2.0]), leaf([3.0, 4.0]))
    y.sum().backward()


def overflow_in_the_cast():
    x = leaf(np.array([1.0, 2.0], np.float16))
    y = x * np.array([1e5, 1.0])
    y.sum().backward()


def a_checkpoint_on_the_way_back():
    x = leaf([0.0, 1.0])
    y = mg.checkpoint(lambda x: mg.sqrt(x))(x)
    y.sum().backward()


@pytest.mark.parametrize(
    ("f", "op", "operand", "line", "index", "value"),
    [
        (root_of_zero, "sqrt", "x", "mg.sqrt", (1,), np.inf),
        (a_wrong_rule, "broken", "b", "y = broken", (0,), np.inf),
        (overflow_in_the_cast, "multiply", "a", "y = x", (0,), np.inf),
        (a_checkpoint_on_the_way_back, "sqrt", "x", "mg.checkpoint", (0,), np.inf),
    ],
)
def test_the_rule_that_made_it_is_named(f, op, operand, line, index, value):
    error = caught(f)
    assert (error.phase, error.op, error.operand, error.index) == ("backward", op, operand, index)
    assert (error.file, error.line) == (__file__, line_of(f, line))
    assert np.array_equal(error.value, value, equal_nan=True)
    assert {"cotangent", operand} <= {r.name for r in error.ranges}


def test_nothing_is_written_to_grad():
    x = leaf([4.0, 0.0])
    caught(lambda: (mg.sqrt(x).sum() + x.sum()).backward())
    assert x.grad is None


def test_a_forward_outside_has_no_line():
    x = leaf([4.0, 0.0])
    loss = mg.sqrt(x).sum()
    error = caught(loss.backward)
    assert (error.phase, error.op, error.line) == ("backward", "sqrt", None)
    assert "no line is known" in str(error)


def test_one_phase_alone():
    x = leaf([4.0, 0.0])
    with study.detect_anomaly("forward"):
        mg.sqrt(x).sum().backward()
    with study.detect_anomaly(check=["backward"]), np.errstate(all="ignore"):
        mg.log(x)
    caught(lambda: mg.log(x), check="forward")
    with pytest.raises(ValueError, match="'forwards' was given"), study.detect_anomaly("forwards"):
        pass


# --- what is sound -----------------------------------------------------------------------------------------------


def tagger(**options):
    rng = np.random.default_rng(0)
    body = AttentionStack(16, blocks=2, heads=2, rng=rng, **options)
    net = PerVector(SummedEmbedding(30, 16, features=2, rng=rng), body, 16, 5, rng=rng)
    ids, labels, valid = rng.integers(1, 30, (4, 6, 2)), rng.integers(0, 5, (4, 6)), rng.random((4, 6)) < 0.7
    valid[0] = False  # a set with nothing to look at
    nn.cross_entropy(net(ids, valid=valid), labels, mask=valid).backward()


def attention(**options):
    rng = np.random.default_rng(0)
    x = mg.tensor(rng.standard_normal((2, 5, 8)).astype(np.float32), requires_grad=True)
    valid = rng.random((2, 5)) < 0.6
    mask = causal_mask(5)
    y, weights = SelfAttention(8, 2, rng=rng, **options)(x, valid=valid, mask=mask, need_weights=True)
    (y.sum() + weights.sum()).backward()


def masks_by_hand():
    x = leaf(np.random.default_rng(0).standard_normal((3, 4)))
    keep = np.array([[True, True, False, True], [False] * 4, [True] * 4])
    scores = mg.where(keep, x, -np.inf)
    weights = mg.softmax(scores)
    best = scores.max(-1)
    (weights.sum() + mg.logsumexp(scores, -1)[0] + best[2]).backward()
    mg.attention(x, x, x, bias=np.where(np.eye(3, dtype=bool), 0.0, -np.inf)).sum().backward()


def dead_branches():
    x = leaf([0.0, 1.0])
    mg.where(x > 0, mg.sqrt(x), 0.0).sum().backward()
    mg.grad(mg.grad(lambda x: mg.where(x > 0, mg.sqrt(x), 0.0).sum()))


def second_order_that_is_sound():
    mg.hessian(lambda x: mg.layer_norm(mg.softmax(x)).sum() + (x**3).sum())(np.array([1.0, 0.0, 2.0]))
    x = np.array([0.0, 1.0, 2.0])
    mg.hvp(lambda x: (mg.where(x > 0, mg.sqrt(x), 0.0) ** 2).sum())(x, np.ones(3))


def integers_and_nothing():
    mg.add(np.array([1, 2]), 3)
    mg.exp(leaf(np.zeros((0, 3)))).sum().backward()
    mg.embedding(leaf(np.ones((3, 2))), np.array([0, 2])).sum().backward()


def a_reference_that_is_masked():
    """Its own backward is what it likes; at the second order, that of its reference, infinities come and go inside."""

    @mg.op
    def half_log(x):
        return x * x

    half_log.rule(x=lambda g, x: g / x)
    whole = fused(
        backward=lambda g, residual, wanted, x: (g * np.where(x > 0, x, 0.0),),
        reference=lambda x: half_log(mg.where(x > 0, x, 0.0)),
        differentiable=["x"],
    )(lambda x: (x * x, None))
    mg.grad(lambda x: whole(x).sum(), create_graph=True)(np.array([0.0, 1.0]))


@pytest.mark.parametrize(
    "f",
    [
        tagger,
        a_reference_that_is_masked,
        lambda: tagger(positions="relative", score="dot"),
        attention,
        lambda: attention(normalise="relu"),
        lambda: attention(score="additive"),
        masks_by_hand,
        dead_branches,
        second_order_that_is_sound,
        integers_and_nothing,
    ],
)
def test_sound_programs_pass(f):
    with study.detect_anomaly():
        f()


# --- leaving no trace --------------------------------------------------------------------------------------------


def test_it_nests_and_leaves_every_op_as_it_was():
    def seen():
        return mg.sqrt.forward, "vjp" in vars(mg.sqrt), set(observers)

    before = seen()
    with study.detect_anomaly():
        with study.detect_anomaly("forward"):
            assert mg.sqrt.forward is not before[0]
            assert len(set(observers) - before[2]) == 2  # so what has been compiled runs eagerly
        caught(lambda: mg.sqrt(-1.0))
    assert seen() == before
    caught(lambda: mg.sqrt(-1.0))
    assert seen() == before


def test_other_threads_are_left_alone():
    found = []

    def other():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(mg.log(0.0).item())

    with study.detect_anomaly():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert found == [-np.inf]


def test_values_and_gradients_are_the_same_within():
    def run():
        rng = np.random.default_rng(0)
        body = AttentionStack(8, blocks=1, heads=2, rng=rng)
        loss = (body(rng.standard_normal((2, 3, 8)).astype(np.float32)) ** 2).sum()
        loss.backward()
        return [loss.numpy(), *(p.grad for p in body.parameters())]

    plain = run()
    with study.detect_anomaly():
        watched = run()
    assert all(np.array_equal(a, b) for a, b in zip(plain, watched))
