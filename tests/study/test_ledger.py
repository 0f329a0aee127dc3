"""study.ledger: its norms against backward and hand-made sums, its branches against cutting them, its sentences."""

import contextlib
import re

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study
from models import AttentionStack, FCStack, PerVector, SelfAttention, SummedEmbedding


def normal(*shape, seed=0, dtype=np.float64):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def leaf(*shape, seed=0, dtype=np.float64):
    return mg.tensor(normal(*shape, seed=seed, dtype=dtype), requires_grad=True)


def recorded(f, *args):
    with study.recording():
        return f(*args)


def rows_of(books, op):
    return [row for row in books.ops if row.name == op]


def row_of(rows, name):
    (row,) = [row for row in rows if row.name == name]
    return row


def size(*arrays):
    return float(np.sqrt(sum((np.asarray(a, np.float64) ** 2).sum() for a in arrays)))


@mg.op
def cube(x):
    return x**3


cube.rule(x=lambda g, x: g * 3 * x**2)


# --- norms -------------------------------------------------------------------------------------------------------


def a_user_op(x, w):
    return cube(x @ w).sum()


@mg.op
def sine_and_cosine(x):
    return np.sin(x), np.cos(x)


sine_and_cosine.rule(x=lambda g, y: g[0] * y[1] - g[1] * y[0])


def several_outputs(x, w):
    sine, cosine = sine_and_cosine(x @ w)
    return (sine * cosine + sine_and_cosine(x)[1]).sum()


def a_checkpoint(x, w):
    return mg.checkpoint(lambda x: mg.tanh(x @ w) * x.sum())(x).sum()


def nested_checkpoints(x, w):
    inner = mg.checkpoint(lambda h: (mg.exp(h), mg.sin(h)))
    outer = mg.checkpoint(lambda x: inner(x @ w))
    e, s = outer(x)
    return (e * s + e).sum()


def a_sequence(x, w):
    return (mg.concatenate([x, w.T, x], axis=0) ** 2).mean()


def one_operand_twice(x, w):
    y = x @ w
    return (y * y - y).sum()


def fused(x, w):
    h = mg.layer_norm(x, w[:, 0], w[:, 1])
    return (mg.attention(h, x, x) * mg.softmax(x)).sum()


def broadcast(x, w):
    return (x * w[0, 0] + w.sum(0)[:1]).sum() * 0.5


def of_a_decomposition(x, w):
    values, vectors = mg.linalg.eigh(x.T @ x + np.eye(3))
    return (values * w[0]).sum() + mg.abs(vectors).sum()


def gradient_penalty(x, w):
    g = mg.grad(lambda x: several_outputs(x, w), create_graph=True)(x)
    return (g**2).sum()


@pytest.mark.parametrize(
    "f",
    [
        a_user_op,
        gradient_penalty,
        of_a_decomposition,
        several_outputs,
        a_checkpoint,
        nested_checkpoints,
        a_sequence,
        one_operand_twice,
        fused,
        broadcast,
    ],
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_leaves_have_the_norms_of_backward_before_and_after_it(f, dtype):
    x, w = leaf(4, 3, dtype=dtype), leaf(3, 3, seed=1, dtype=dtype)
    loss = recorded(f, x, w)
    before = study.ledger(loss)
    assert x.grad is None
    assert w.grad is None
    loss.backward(retain_graph=True)
    expected = sorted([size(x.grad), size(w.grad)])
    assert sorted(row.norm for row in before.leaves) == pytest.approx(expected, rel=1e-5)
    loss.backward()
    gradients = x.grad.copy(), w.grad.copy()
    if "checkpoint" not in f.__name__:
        after = study.ledger(loss)
        assert after.findings == before.findings
        assert [row.norm for row in after.leaves] == [row.norm for row in before.leaves]
    assert np.array_equal(x.grad, gradients[0])
    assert np.array_equal(w.grad, gradients[1])
    for row in before.leaves:
        assert sum(part.share for part in row.branches.values()) == pytest.approx(1, abs=1e-5)


def test_rows_of_ops_are_what_the_rules_do():
    x, w = leaf(5, 2), leaf(2, 3, seed=1)
    x._array[0] = 0

    def f():
        return mg.relu(x @ w).sum()

    books = study.ledger(recorded(f))
    assert [row.name for row in books.ops] == ["sum", "relu", "matmul"]
    line = f.__code__.co_firstlineno + 1
    assert all(re.fullmatch(rf".*test_ledger\.py:{line}", row.place) for row in books.ops)
    h = x.data @ w.data
    g = (h > 0).astype(float)
    total, relu, matmul = books.ops
    assert (total.norm_in, total.norm_out) == pytest.approx((1, 15**0.5))
    assert total.gain == pytest.approx(15**0.5)
    assert (relu.norm_in, relu.norm_out, relu.shape) == (pytest.approx(15**0.5), pytest.approx(size(g)), (5, 3))
    assert relu.zeros == pytest.approx(np.mean(g == 0))
    gx, gw = g @ w.data.T, x.data.T @ g
    assert matmul.norm_out == pytest.approx(size(gx, gw))
    assert matmul.zeros == pytest.approx((np.sum(gx == 0) + np.sum(gw == 0)) / (gx.size + gw.size))
    assert [row.nonfinite for row in books.ops] == [0, 0, 0]


def test_what_goes_on_to_parameters_is_no_gain():
    net, x = nn.Linear(3, 2, dtype=np.float64), leaf(5, 3)
    (row,) = rows_of(study.ledger(recorded(lambda: net(x).sum())), "linear")
    assert row.norm_out == pytest.approx(size(np.ones((5, 2)) @ net.weight.data.T))
    (row,) = rows_of(study.ledger(recorded(lambda: net(x.detach()).sum())), "linear")
    assert row.norm_out == pytest.approx(size(x.data.T @ np.ones((5, 2)), np.full(2, 5.0)))


def test_norms_neither_overflow_nor_underflow():
    x = leaf(4)
    tiny = study.ledger(recorded(lambda: (x * 1e-170 * 1e-130).sum()))
    assert tiny.leaves[0].norm == pytest.approx(2e-300, rel=1e-9)
    large = study.ledger(recorded(lambda: (x * 1e150 * 1e150).sum()))
    assert large.leaves[0].norm == pytest.approx(2e300, rel=1e-9)


class Doubled(nn.Module):
    """Calls one module twice, and adds."""

    def __init__(self):
        self.inner = nn.Sequential(nn.Linear(3, 3, dtype=np.float64), mg.tanh)
        self.last = nn.Linear(3, 1, dtype=np.float64)

    def forward(self, x):
        return self.last(self.inner(self.inner(x)) + x)


def test_rows_of_modules_have_what_enters_and_what_leaves():
    net, x = Doubled(), leaf(4, 3)
    books = study.ledger(recorded(lambda: net(x).sum()))
    h = leaf(4, 3)
    h._array[...] = net.inner(x).data
    out = net.inner(h)
    out.retain_grad()
    net.last(out + x.detach()).sum().backward()  # the gradient at h, and at what comes out of the second call
    from_first = h.grad
    y = net.inner(x)
    x.grad = None
    y.backward(from_first)
    inner = row_of(books.modules, "inner")
    assert inner.place == f"minigrad/nn/layers.py:{nn.Sequential.forward.__code__.co_firstlineno}"
    assert inner.norm_in == pytest.approx(size(out.grad))  # between the two calls the gradient does not leave it
    assert inner.norm_out == pytest.approx(size(x.grad))
    whole = row_of(books.modules, "(Doubled)")
    assert whole.norm_in == pytest.approx(2)
    assert whole.norm_out == pytest.approx(size(x.grad + out.grad))
    assert row_of(books.modules, "last").norm_out == pytest.approx(size(out.grad))
    assert {row.module for row in books.ops} == {"", "(Doubled)", "inner", "inner.layers.0", "last"}


def test_a_module_that_nothing_leaves():
    net = FCStack((3, 4, 2), dtype=np.float64)
    books = study.ledger(recorded(lambda: net(normal(5, 3)).sum()))
    assert row_of(books.modules, "(FCStack)").norm_out is None
    assert row_of(books.modules, "(FCStack)").gain is None
    assert row_of(books.modules, "layers.1").norm_out is not None


# --- heads -------------------------------------------------------------------------------------------------------


def heads_by_hand(layer, x, g):
    """For every head the norms of its output's cotangent and of the gradients of q, k and v, by loops."""
    batch = len(x)
    joined = g @ layer.output.weight.data.T if layer.output is not None else g
    rows = []
    for head in range(layer.heads):
        squares = np.zeros(4)
        keys, values = (slice(head * d, (head + 1) * d) for d in (layer.key_dim, layer.value_dim))
        for b in range(batch):
            q, k = x[b] @ layer.query.weight.data[:, keys], x[b] @ layer.key.weight.data[:, keys]
            v, go = x[b] @ layer.value.weight.data[:, values], joined[b][:, values]
            scale = 1 / np.sqrt(layer.key_dim)
            a = np.exp(q @ k.T * scale)
            a /= a.sum(1, keepdims=True)
            ga = go @ v.T
            gs = a * (ga - (a * ga).sum(1, keepdims=True)) * scale
            squares += [(m**2).sum() for m in (go, gs @ k, gs.T @ q, a.T @ go)]
        rows.append(np.sqrt(squares))
    return np.array(rows)


@pytest.mark.parametrize(("heads", "plain"), [(1, False), (3, False), (1, True), (3, True), (4, True)])
def test_heads_agree_with_loops(heads, plain):
    layer = SelfAttention(12, heads, dtype=np.float64)
    x, c = normal(2, 4, 12), normal(2, 4, 12, seed=1)

    def f():
        y = layer(x, need_weights=True)[0] if plain else layer(x)
        return (y * c).sum()

    books = study.ledger(recorded(f))
    found = np.array([[h.norm_in, h.query, h.key, h.value] for h in books.heads])
    assert [h.head for h in books.heads] == list(range(heads))
    assert all(re.fullmatch(r"models/self_attention\.py:\d+", h.place) for h in books.heads)
    np.testing.assert_allclose(found, heads_by_hand(layer, x, c), rtol=1e-10)


def test_heads_inside_the_op_that_does_everything():
    layer = SelfAttention(12, 3, dtype=np.float64)
    x, c = normal(2, 4, 12), normal(2, 4, 12, seed=1)

    def f():
        y = mg.self_attention(x, layer.query.weight, layer.key.weight, layer.value.weight, heads=3)
        return (layer.output(y) * c).sum()

    books = study.ledger(recorded(f))
    found = np.array([[h.norm_in, h.query, h.key, h.value] for h in books.heads])
    np.testing.assert_allclose(found, heads_by_hand(layer, x, c), rtol=1e-10)


def test_additive_scores_have_no_product_of_queries_and_keys():
    layer = SelfAttention(4, 2, score="additive")
    x = normal(2, 3, 4, dtype=np.float32)
    books = study.ledger(recorded(lambda: layer(x).sum()))
    assert [(h.head, h.query, h.key) for h in books.heads] == [(0, None, None), (1, None, None)]


# --- branches ----------------------------------------------------------------------------------------------------


class Branch(nn.Module):
    """Its output can be cut off from the gradient."""

    def __init__(self, name, seed):
        self.branch = name
        self.linear = nn.Linear(3, 3, dtype=np.float64, rng=np.random.default_rng(seed))
        self.cut = False

    def forward(self, x):
        y = mg.tanh(self.linear(x))
        return y.detach() if self.cut else y


class Residual(nn.Module):
    def __init__(self):
        self.first = nn.Linear(3, 3, dtype=np.float64)
        self.blocks = [Branch(name, i) for i, name in enumerate(["attention", "FC", "attention", "FC"])]

    def forward(self, x):
        h = self.first(x)
        for block in self.blocks:
            h = h + block(h)
        return (h**2).sum()


def test_branches_are_what_remains_when_the_others_are_cut():
    net, x = Residual(), normal(5, 3)

    def gradient(*uncut):
        for block in net.blocks:
            block.cut = block.branch not in uncut
        net.first.weight.grad = None
        net(x).backward()
        return net.first.weight.grad

    # A path through no branch is in every gradient, one through attention alone in all that leave attention uncut, ...
    residual = gradient()
    attention = gradient("attention") - residual
    fc = gradient("FC") - residual
    whole = gradient("attention", "FC")
    both = whole - residual - attention - fc
    expected = {"residual": residual, "attention": attention, "FC": fc, "attention+FC": both}
    books = study.ledger(recorded(net, x))
    parts = row_of(books.leaves, "first.weight").branches
    assert set(parts) == set(expected)
    for name, part in expected.items():
        assert parts[name].norm == pytest.approx(size(part))
        assert parts[name].share == pytest.approx((part * whole).sum() / (whole**2).sum())


def test_a_parameters_own_module_is_no_branch_of_its_gradient():
    net, x = Residual(), normal(5, 3)
    books = study.ledger(recorded(net, x))
    assert set(row_of(books.leaves, "blocks.3.linear.weight").branches) == {"residual"}
    assert set(row_of(books.leaves, "blocks.2.linear.weight").branches) == {"residual", "FC"}


def test_models_declare_their_branches():
    body = AttentionStack(8, blocks=2, heads=2, rng=np.random.default_rng(0))
    x = mg.tensor(normal(2, 3, 8, dtype=np.float32), requires_grad=True)
    books = study.ledger(recorded(lambda: (body(x) ** 2).sum()))
    (row,) = [row for row in books.leaves if not row.is_parameter]
    assert set(row.branches) == {"residual", "attention", "FC", "attention+FC"}
    assert list(row_of(books.leaves, "blocks.1.attention.output.weight").branches) == ["residual", "FC"]


def test_a_checkpointed_block_belongs_to_its_model():
    class Net(nn.Module):
        def __init__(self):
            self.stack = FCStack((3, 4, 3), dtype=np.float64)
            self.last = nn.Linear(3, 1, dtype=np.float64)

        def forward(self, x, f):
            return self.last(f(self.stack)(x) + x)

    net, x = Net(), leaf(2, 3)
    plain = study.ledger(recorded(lambda: net(x, lambda module: module).sum()))
    opened = study.ledger(recorded(lambda: net(x, mg.checkpoint).sum()))
    assert [row.name for row in opened.modules] == [row.name for row in plain.modules]
    for one, other in zip(opened.modules, plain.modules):
        assert (one.norm_in, one.norm_out) == pytest.approx((other.norm_in, other.norm_out))
    assert [(row.name, row.module) for row in opened.ops] == [(row.name, row.module) for row in plain.ops]
    for one in opened.leaves:
        other = (
            row_of(plain.leaves, one.name) if one.is_parameter else next(x for x in plain.leaves if not x.is_parameter)
        )
        assert {name: part.norm for name, part in one.branches.items()} == pytest.approx(
            {name: part.norm for name, part in other.branches.items()}
        )


# --- sentences ---------------------------------------------------------------------------------------------------


def eight_layers(activation, bias=0.0, factor=1.0, dtype=np.float32):
    rng = np.random.default_rng(0)
    net = FCStack((16,) * 9, activation=activation, rng=rng, dtype=dtype)
    for layer in net.layers:
        layer.weight._array[...] *= factor
        layer.bias._array[...] += bias
    return net


def loss_of(net, dtype=np.float32):
    return study.ledger(recorded(lambda: (net(normal(32, 16, dtype=dtype)) ** 2).mean()))


def test_eight_layers_of_saturated_sigmoid_are_told_in_one_sentence():
    books = loss_of(eight_layers("sigmoid", bias=6.0))
    (sentence,) = books.findings
    first = row_of(books.leaves, "layers.0.weight")
    assert sentence.startswith(
        "The gradient vanishes on its way to layers.0.weight (and 11 more): its norm falls from "
    )
    start, end = re.search(r"falls from (\S+) at sigmoid .* to (\S+) at linear \(layers.0, ", sentence).groups()
    assert float(start) / float(end) > 1e10
    assert float(end) == pytest.approx(rows_of(books, "linear")[-1].norm_in, rel=1e-2)
    assert re.search(r"mostly in 7 calls of sigmoid \(models/fc.py:\d+\), which multiply it by 0.00\d+ on", sentence)
    assert sentence.endswith("93% of its outputs lie within 0.01 of 0 or 1.")
    assert first.norm < 1e-10


def test_a_sigmoid_that_passes_on_nothing_at_all_is_told():
    (sentence,) = loss_of(eight_layers("sigmoid", bias=100.0)).findings
    assert re.match(
        r"The gradient dies on its way to .* and 11 more: it is exactly 0 from sigmoid \(FCStack, ", sentence
    )
    assert sentence.endswith(" on: 100% of its outputs lie within 0.01 of 0 or 1.")


def test_an_explosion_is_told_in_one_sentence():
    (sentence,) = loss_of(eight_layers("relu", factor=30.0)).findings
    assert re.match(r"The gradient explodes on its way to layers\.0\.weight \(and \d+ more\): its norm grows", sentence)
    assert re.search(r"from \S+ at linear \(layers.7, .*\) to \S+ at linear \(layers.0, ", sentence)
    assert re.search(r"mostly in 6 calls of linear \(models/fc.py:\d+\), which multiply it by 3\d\.\d on", sentence)


def test_one_call_is_to_blame():
    x, w = leaf(4, 3), leaf(3, 3, seed=1)
    (sentence,) = study.ledger(recorded(lambda: mg.tanh(x @ w * 1e-7).sum())).findings
    assert re.search(r"mostly in multiply \(.*test_ledger.py:\d+\), which multiplies it by 1e-07\.$", sentence)


def test_the_last_call_before_an_input_is_to_blame():
    x = leaf(4, 3)
    (sentence,) = study.ledger(recorded(lambda: mg.tanh(x * 1e-7).sum())).findings
    assert re.search(r"to 3.46e-07 there, mostly in multiply \(.*\), which multiplies it by 1e-07\.$", sentence)


@pytest.mark.parametrize("first", [1.0, 1e-9])
def test_a_weak_path_beside_a_strong_one_is_no_vanishing(first):
    x = leaf(4, 3)

    def f():
        one = mg.sin(x) * first
        other = mg.sin(x) * (1e-9 / first)
        return (mg.tanh(one) + mg.tanh(other)).sum()

    (sentence,) = study.ledger(recorded(f)).findings
    assert sentence.startswith("The gradient arrives everywhere")


def test_a_dead_relu_is_told():
    before, after = loss_of(eight_layers("relu", bias=-1e3)).findings
    assert before.startswith(
        "The gradient dies on its way to layers.0.weight, layers.0.bias, layers.1.weight and 11 more"
    )
    assert "it is exactly 0 from linear (layers.6, " in before
    assert before.endswith("whose outputs are all 0.")
    assert re.match(
        r".* to layers.7.weight: it is exactly 0 from linear \(layers.7, .*\) on, whose x is all 0\.$", after
    )


def test_a_disconnected_parameter_is_named():
    class Net(nn.Module):
        def __init__(self):
            self.used, self.unused = nn.Linear(3, 2), nn.Linear(3, 2, bias=False)
            self.cut = nn.Linear(2, 2, bias=False)

        def forward(self, x):
            h = self.used(x)
            return h + self.cut(h).detach()

    books = study.ledger(recorded(lambda: Net()(normal(4, 3, dtype=np.float32)).sum()))
    (sentence,) = books.findings
    assert sentence == ("No gradient arrives at unused.weight and cut.weight: the loss was not computed from them.")
    assert row_of(books.leaves, "unused.weight").norm is None
    assert row_of(books.leaves, "used.weight").norm is not None


def test_frozen_parameters_are_not_disconnected():
    net = FCStack((3, 4, 2))
    net.layers[0].weight.requires_grad = False
    books = study.ledger(recorded(lambda: net(normal(4, 3, dtype=np.float32)).sum()))
    assert "arrives everywhere" in books.findings[0]


def test_a_gradient_that_is_not_finite_is_told():
    x = leaf(4)
    x._array[1] = 0
    books = study.ledger(recorded(lambda: mg.sqrt(mg.abs(x)).sum()))
    (sentence,) = books.findings
    assert re.match(
        r"The gradient is not finite from sqrt \(.*test_ledger.py:\d+\) on: .* for x \(1 elements\)\.", sentence
    )
    assert row_of(books.ops, "sqrt").nonfinite == 1
    assert books.leaves[0].nonfinite == 1


def test_a_loss_that_is_nan_is_told():
    x = leaf(3)
    x._array[1] = np.nan
    books = study.ledger(recorded(lambda: (x * 2).sum()))
    assert books.findings[0].startswith("The loss is nan: ")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("blocks", [1, 4])
def test_sensible_models_are_not_blamed(seed, blocks):
    rng = np.random.default_rng(seed)
    body = AttentionStack(16, blocks=blocks, heads=2, positions="sinusoidal", rng=rng)
    net = PerVector(SummedEmbedding(50, 16, features=3, rng=rng), body, 16, 7, rng=rng)
    ids, labels, valid = rng.integers(1, 50, (8, 9, 3)), rng.integers(0, 7, (8, 9)), rng.random((8, 9)) < 0.8
    books = study.ledger(recorded(lambda: nn.cross_entropy(net(ids, valid=valid), labels, mask=valid)))
    assert books.findings[0].startswith("The gradient arrives everywhere")


# --- names, printing, errors -------------------------------------------------------------------------------------


def test_several_models_are_told_apart():
    a, b, c = FCStack((3, 3)), FCStack((3, 3)), nn.Linear(3, 1)
    books = study.ledger(
        recorded(lambda: c(a(normal(2, 3, dtype=np.float32)) + b(normal(2, 3, dtype=np.float32))).sum())
    )
    names = {leaf.name for leaf in books.leaves}
    assert names == {"FCStack.layers.0.weight", "FCStack.layers.0.bias", "FCStack2.layers.0.weight"} | {
        "FCStack2.layers.0.bias", "Linear.weight", "Linear.bias"
    }  # fmt: skip
    assert {row.name for row in books.modules} == {
        "FCStack",
        "FCStack.layers.0",
        "FCStack2",
        "FCStack2.layers.0",
        "Linear",
    }


def test_what_is_no_module_of_ours_is_none():
    class Foreign:
        def named_modules(self):
            raise AssertionError

        def __call__(self, x):
            return (x * x).sum()

    books = study.ledger(recorded(Foreign(), leaf(3)))
    assert not books.modules
    assert {row.module for row in books.ops} == {""}


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_it_fits_the_terminal(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    rng = np.random.default_rng(0)
    body = AttentionStack(8, blocks=2, heads=2, rng=rng)
    net = PerVector(SummedEmbedding(9, 8, features=2, rng=rng), body, 8, 3, rng=rng)
    text = str(study.ledger(recorded(lambda: net(rng.integers(0, 9, (2, 4, 2))).sum())))
    assert max(map(len, text.splitlines())) <= columns
    for word in ["arrives everywhere", "module", "norm in", "gain", "to queries", "attention+FC", ".py:"]:
        assert word in text


def test_what_was_not_recorded_is_said():
    x = leaf(3)
    with pytest.raises(RuntimeError, match=r"a call of multiply in it was not: run .*study\.recording"):
        study.ledger((x * 2).sum())
    early = x * 2
    with pytest.raises(RuntimeError, match="a call of multiply in it was not"):
        study.ledger(recorded(lambda: early.sum()))
    with pytest.raises(RuntimeError, match="none: compute it"):
        study.ledger(mg.tensor(1.0))
    with pytest.raises(RuntimeError, match="this one is a leaf: pass the loss"):
        study.ledger(leaf())
    with pytest.raises(ValueError, match="reduce it to one number"):
        study.ledger(recorded(lambda: x * 2))


def test_too_late_is_said():
    x = leaf(3)
    loss = recorded(lambda: mg.checkpoint(mg.exp)(x).sum())
    loss.backward()
    with pytest.raises(RuntimeError, match=r"comes too late: .* freed a checkpointed call"):
        study.ledger(loss)
    loss = recorded(lambda: (x * x).sum())
    loss.backward()
    with mg.no_grad():
        x -= x.grad
    with pytest.raises(RuntimeError, match=r"operand of shape \(3,\) of multiply .* written in place"):
        study.ledger(loss)


def test_inside_a_transform():
    books = []

    def f(x):
        loss = recorded(lambda: (x * x).sum())
        books.append(study.ledger(loss))
        return loss

    x = normal(3)
    assert np.array_equal(mg.grad(f)(x), 2 * x)
    assert books[0].leaves[0].norm == pytest.approx(2 * size(x))


def test_hooks_change_what_follows_as_in_backward():
    x = leaf(3)
    with study.recording():
        y = x * 2
        y.register_hook(lambda g: g * 5)
        loss = y.sum()
    assert study.ledger(loss).leaves[0].norm == pytest.approx(10 * 3**0.5)


# --- several calls of one attention, several elements ------------------------------------------------------------


@pytest.mark.parametrize("watched", [False, True])
def test_heads_of_a_tied_attention_are_told_apart(watched, monkeypatch):
    """Each call's norms are those of the gradients that two attentions of equal weights have."""
    first, second = (SelfAttention(4, 2, rng=np.random.default_rng(0), dtype=float) for _ in range(2))
    x = normal(1, 3, 4)

    def books_of(a, b):
        model = nn.Sequential(a, b)
        watching = study.capture(model) if watched else contextlib.nullcontext()
        with watching, study.recording():
            loss = (model(x) ** 2).sum()
        return study.ledger(loss)

    tied, apart = books_of(first, first), books_of(first, second)
    assert [(h.module, h.head, h.time) for h in tied.heads] == [
        ("layers.0", 0, 2), ("layers.0", 1, 2), ("layers.0", 0, 1), ("layers.0", 1, 1)
    ]  # fmt: skip
    assert [(h.module, h.head, h.time) for h in apart.heads] == [
        ("layers.1", 0, 1), ("layers.1", 1, 1), ("layers.0", 0, 1), ("layers.0", 1, 1)
    ]  # fmt: skip
    for a, b in zip(tied.heads, apart.heads):
        np.testing.assert_allclose(
            [a.norm_in, a.query, a.key, a.value], [b.norm_in, b.query, b.key, b.value], rtol=1e-12
        )
    monkeypatch.setenv("COLUMNS", "140")
    assert re.findall(r"^layers\.0 +(\d) +(\d) ", repr(tied), re.MULTILINE) == [
        ("2", "0"), ("2", "1"), ("1", "0"), ("1", "1")
    ]  # fmt: skip
    assert "time" not in repr(apart)


@pytest.mark.parametrize("purpose", ["ledger", "precision"])
def test_books_are_of_one_number(purpose):
    x = leaf(3, dtype=np.float32)
    y = recorded(lambda: x * 2)
    with pytest.raises(ValueError, match=rf"study\.{purpose} .* shape \(3,\): reduce it to one number first") as caught:
        getattr(study, purpose)(y)
    assert "backward(" not in str(caught.value)
