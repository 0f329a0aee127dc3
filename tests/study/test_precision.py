"""study.precision against float64 by hand, and planted losses of digits that it must find."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study
from minigrad.study.digits import digits, full
from models import AttentionStack, FCStack, PerVector, SummedEmbedding

SINGLE = -np.log10(2.0**-24)


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def leaf(x):
    return mg.tensor(x, requires_grad=True)


def recorded(f, *args):
    with study.recording():
        return f(*args)


def rows_of(found, op, phase, operand=""):
    return [row for row in found.rows if (row.op, row.phase, row.operand) == (op, phase, operand)]


def correct(x, exact):
    """The digits of x by hand."""
    return -np.log10(np.abs(x.astype(np.float64) - exact).max() / np.abs(exact).max())


# --- planted -----------------------------------------------------------------------------------------------------


def test_a_cancellation_is_the_worst_forward():
    x = leaf(normal(50))

    def f():
        near = mg.sin(x) + 1e5
        small = near - 1e5
        return mg.exp(small).sum()

    found = study.precision(recorded(f))
    worst = found.rows[0]
    assert (worst.op, worst.phase, worst.operand) == ("subtract", "forward", "")
    assert (worst.file, worst.line) == (__file__, f.__code__.co_firstlineno + 2)
    assert worst.before == pytest.approx(SINGLE, abs=0.3)
    x32 = x.numpy()
    small = (np.sin(x32) + np.float32(1e5)) - np.float32(1e5)
    assert worst.after == pytest.approx(correct(small, np.sin(x32.astype(np.float64))), abs=0.01)
    assert worst.lost == worst.before - worst.after > 4
    assert all(row.lost < 1 for row in found.rows[1:])
    assert "Most are lost at subtract" in str(found)
    value = np.exp(small).sum()
    exact = np.exp(np.sin(x32.astype(np.float64))).sum()
    assert found.value == pytest.approx(correct(value, exact), abs=0.3)


def test_a_cancellation_in_a_gradient_rule_is_the_worst_backward():
    @mg.op
    def careless(x):
        return (np.square(x) + 1e5) - 1e5

    careless.rule(x=lambda g, x: g * ((2 * x + 1e4) - 1e4))
    x = leaf(normal(40))
    found = study.precision(recorded(lambda: careless(x).sum()))
    (worst,) = [row for row in found.rows if row.phase == "backward" and row.lost > 1]
    assert (worst.op, worst.operand) == ("careless", "x")
    assert worst.before == pytest.approx(SINGLE)  # the rule does not use the output, which has lost digits too
    x32 = x.numpy()
    g = (2 * x32 + np.float32(1e4)) - np.float32(1e4)
    assert worst.after == pytest.approx(correct(g, 2 * x32.astype(np.float64)), abs=0.01)
    (name,) = found.gradients
    assert found.gradients[name] == pytest.approx(worst.after, abs=1e-9)


def test_gradients_that_cancel_when_they_are_added():
    x, w = leaf(normal(30)), leaf(normal(30, seed=1))
    found = study.precision(recorded(lambda: (x * w * 10000.3 - x * w * 10000.1).sum()))
    sums = [row for row in found.rows if row.op == "sum of gradients"]
    assert {row.operand.split()[0] for row in sums} == {"a", "b"}
    assert all(row.lost > 4 and row.phase == "backward" for row in sums)
    assert min(found.gradients.values()) < 3


def test_a_rule_is_not_blamed_for_digits_that_the_forward_pass_lost():
    x = leaf(normal(50))
    found = study.precision(recorded(lambda: (mg.sin(x) + 1e5 - 1e5) @ normal(50, 3) @ normal(3)))
    assert all(row.lost < 1 for row in found.rows if row.phase == "backward")
    squared = study.precision(recorded(lambda: mg.square(mg.sin(x) + 1e5 - 1e5).sum()))
    (row,) = rows_of(squared, "square", "backward", "x")
    assert row.before < 4  # the operand had lost them
    assert row.lost < 1


def test_a_rule_that_uses_no_operand_is_blamed_whatever_these_have_lost():
    @mg.op
    def careless(x):
        return x * 1

    careless.rule(x=lambda g: (g + 1e4) - 1e4)
    x = leaf(normal(50))
    found = study.precision(recorded(lambda: (careless(mg.sin(x) + 1e5 - 1e5) * normal(50)).sum()))
    (row,) = rows_of(found, "careless", "backward", "x")
    assert row.before == pytest.approx(SINGLE, abs=0.2)
    assert row.lost > 3


def test_an_overflow_leaves_no_digit():
    x = leaf(np.array([1.0, 12.0], np.float16))
    with np.errstate(all="ignore"):
        loss = recorded(lambda: (mg.exp(x) * np.float16(0.5)).sum())
    found = study.precision(loss)
    (row,) = rows_of(found, "exp", "forward")
    assert row.after == 0
    assert row.before == pytest.approx(full(np.float16))
    assert found.value == 0


def test_a_cast_is_seen():
    x = leaf(normal(9))
    found = study.precision(recorded(lambda: x.astype(np.float16).astype(np.float32).sum()))
    assert found.value < 5
    narrow = rows_of(found, "astype", "forward")
    assert narrow[0].before == pytest.approx(full(np.float32))
    assert narrow[0].after == pytest.approx(3.5, abs=0.7)


# --- what is sound -----------------------------------------------------------------------------------------------


def tagger():
    rng = np.random.default_rng(0)
    body = AttentionStack(16, blocks=2, heads=2, positions="relative", rng=rng)
    net = PerVector(SummedEmbedding(30, 16, features=2, rng=rng), body, 16, 5, rng=rng)
    ids, labels, valid = rng.integers(1, 30, (4, 6, 2)), rng.integers(0, 5, (4, 6)), rng.random((4, 6)) < 0.7
    return net, recorded(lambda: nn.cross_entropy(net(ids, valid=valid), labels, mask=valid)), (ids, labels, valid)


def test_a_model_against_its_copy_in_float64():
    net, loss, (ids, labels, valid) = tagger()
    found = study.precision(loss)
    assert all(row.lost < 1 for row in found.rows)
    assert "no call loses as much as one" in str(found)
    arrays = {name: p.numpy().astype(np.float64) for name, p in net.named_parameters()}
    exact = mg.grad(
        lambda p: nn.cross_entropy(nn.functional_call(net, p, ids, valid=valid), labels, mask=valid),
    )(arrays)
    loss.backward()
    for name, p in net.named_parameters():
        assert found.gradients[name] == pytest.approx(min(SINGLE, correct(p.grad, exact[name])), abs=0.35)


@mg.op
def sine_and_cosine(x):
    return np.sin(x), np.cos(x)


sine_and_cosine.rule(x=lambda g, y: g[0] * y[1] - g[1] * y[0])


def several_outputs(x):
    sine, cosine = sine_and_cosine(x)
    return (sine * cosine / 3 + cosine).sum()


def one_of_several_outputs(x):
    return mg.exp(sine_and_cosine(x)[1]).sum()


def checkpointed(x):
    return (mg.checkpoint(lambda x: (mg.tanh(x) / 3, x * 2))(x)[0] * x).sum()


def sequences(x):
    return (mg.concatenate([x, x[:2], 3 * x]) / 7).sum() + mg.einsum("i,i->", x, x)


def gradient_penalty(x):
    return (mg.grad(lambda x: mg.attention(x[:, None], x[:, None], x[:, None]).sum(), create_graph=True)(x) ** 2).sum()


def choices(x):
    return mg.where(x > 0, x / 3, -x).sum() + mg.sort(x)[2] * mg.relu(x).max()


@pytest.mark.parametrize(
    "f", [several_outputs, one_of_several_outputs, checkpointed, sequences, choices, gradient_penalty]
)
def test_every_kind_of_call_is_compared_in_both_directions(f):
    x = leaf(normal(6))
    loss = recorded(f, x)
    found = study.precision(loss)
    assert x.grad is None
    ops = {row.op for row in found.rows if row.phase == "forward"}
    assert len(ops) >= 3
    backward = {row.op for row in found.rows if row.phase == "backward"} - {"sum of gradients"}
    assert ops == backward
    assert all(row.lost < 1 for row in found.rows)
    loss.backward()
    exact = mg.grad(f)(x.numpy().astype(np.float64))
    (name,) = found.gradients
    assert found.gradients[name] == pytest.approx(
        min(SINGLE, correct(x.grad, exact) if np.any(x.grad != exact) else 99), abs=0.05
    )


def test_hooks_change_nothing_and_do_not_run():
    seen = []
    net = FCStack((3, 4, 1), rng=np.random.default_rng(0))
    net.register_full_backward_hook(lambda *args: seen.append(args))
    x = leaf(normal(5, 3))
    with study.recording():
        y = net(x)
        y.register_hook(lambda g: g * 5)
        loss = (y.sum() + (x * x).sum()) / 3
    found = study.precision(loss)
    assert not seen
    assert all(row.lost < 1 for row in found.rows)


def test_what_passes_by_a_hook_is_only_a_part():
    class Inner(nn.Module):
        def forward(self, x):
            return x * 2 + mg.sin(x)

    net = Inner()
    net.register_full_backward_hook(lambda *args: None)
    x = leaf(normal(5))
    found = study.precision(recorded(lambda: (net(x) + 1000 * x * x).sum()))
    assert all(row.lost < 1 for row in found.rows if row.phase == "backward")


def test_after_backward_too():
    x = leaf(normal(6))
    loss = recorded(several_outputs, x)
    before = study.precision(loss)
    loss.backward()
    assert study.precision(loss) == before


# --- arrays, errors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "exact", "expected"),
    [
        (np.float32([1, 2]), [1, 2], SINGLE),
        (np.float32([1, 2000.2]), [1, 2000], 4.0),
        (np.float32([1, 0]), [1, 1], 0),
        (np.float32([0, 0]), [1e-60, 0], 0),
        (np.float32([1e-3]), [0], 0),
        (np.float32([np.inf, 1]), [np.inf, 1], SINGLE),
        (np.float32([np.inf, 1]), [-np.inf, 1], 0),
        (np.float32([np.nan, 1]), [np.nan, 1], SINGLE),
        (np.float32([np.nan, 1]), [1, 1], 0),
        (np.float32([np.inf]), [1e60], 0),
        (np.float32([5]), [1], 0),
        (np.zeros((0, 2), np.float32), np.zeros((0, 2)), SINGLE),
        (np.complex64([1 + 1j]), np.array([1 + 1.001j]), 3.15),
    ],
)
def test_digits_of_an_array(x, exact, expected):
    assert digits(x, np.asarray(exact) * 1.0) == pytest.approx(expected, abs=0.01)


def test_what_cannot_be_done_is_said():
    x = leaf(normal(3, dtype=np.float64))
    with pytest.raises(ValueError, match="computed in float64 throughout: compute it in float32"):
        study.precision(recorded(lambda: (x * 2).sum()))
    y = leaf(normal(3))
    with pytest.raises(RuntimeError, match=r"run the forward computation within .*study.recording"):
        study.precision((y * 2).sum())
    with pytest.raises(ValueError, match="reduce it to one number"):
        study.precision(recorded(lambda: y * 2))


def test_it_fits_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = str(study.precision(tagger()[1]))
    assert max(map(len, text.splitlines())) <= 80
    assert "before" in text
