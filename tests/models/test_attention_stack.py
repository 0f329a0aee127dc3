"""AttentionStack: its blocks written out, the bare lecture form, positions, cross-attention, gradients."""

import contextlib
import copy

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study
from minigrad.check.gradcheck import gradcheck, gradgradcheck
from models import AttentionStack, causal_mask

POSITIONS = ["none", "sinusoidal", "learned", "relative"]


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def stack_of(dim=4, seed=1, **options):
    """A stack whose parameters are all random: biases that start at 0 would hide their absence."""
    options = {"heads": 2, "hidden": 5, "dtype": np.float64, "max_length": 8, "clip": 2, **options}
    stack = AttentionStack(dim, rng=np.random.default_rng(seed), **options)
    rng = np.random.default_rng(seed)
    stack.load_state_dict({name: a + 0.3 * rng.normal(size=a.shape) for name, a in stack.state_dict().items()})
    return stack


def softmax(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def norm(layer, x):
    deviation = np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return (x - x.mean(-1, keepdims=True)) / deviation * layer.weight.data + layer.bias.data


def attend(layer, x, context, hidden=None):
    """Two heads of width 2, scaled; hidden: True where a query may not look."""
    q, k, v = x @ layer.query.weight.data, context @ layer.key.weight.data, context @ layer.value.weight.data
    heads = []
    for h in (slice(0, 2), slice(2, 4)):
        scores = q[..., h] @ k[..., h].swapaxes(-1, -2) / np.sqrt(2)
        heads.append(softmax(scores if hidden is None else np.where(hidden, -1e300, scores)) @ v[..., h])
    return np.concatenate(heads, -1) @ layer.output.weight.data


def fc(layer, x):
    first, second = layer.layers
    return np.maximum(x @ first.weight.data + first.bias.data, 0) @ second.weight.data + second.bias.data


def test_equals_its_blocks_written_out():
    stack, x = stack_of(blocks=2), random(2, 3, 4)
    h = x
    for block in stack.blocks:
        n = norm(block.norms[0], h)
        h = h + attend(block.attention, n, n)
        h = h + fc(block.fc, norm(block.norms[1], h))
    np.testing.assert_allclose(stack(x).data, norm(stack.norm, h), rtol=0, atol=1e-12)


def test_bare_form_is_the_lectures_attention_and_fc_in_turns():
    stack, x = stack_of(blocks=2, residual=False, norm=False), random(2, 3, 4)
    h = x
    for block in stack.blocks:
        h = fc(block.fc, attend(block.attention, h, h))
    np.testing.assert_allclose(stack(x).data, h, rtol=0, atol=1e-12)
    assert not [name for name, _ in stack.named_parameters() if "norm" in name]


def test_decoder_equals_its_blocks_written_out():
    stack, x, context = stack_of(blocks=2, cross=True), random(2, 3, 4), random(2, 5, 4, seed=7)
    context_valid = np.array([[True] * 5, [True, True, False, True, False]])
    future = np.triu(np.ones((3, 3), bool), 1)
    h = x
    for block in stack.blocks:
        n = norm(block.norms[0], h)
        h = h + attend(block.attention, n, n, future)
        h = h + attend(block.cross, norm(block.norms[1], h), context, ~context_valid[:, None, :])
        h = h + fc(block.fc, norm(block.norms[2], h))
    y = stack(x, mask=causal_mask(3), context=context, context_valid=context_valid)
    np.testing.assert_allclose(y.data, norm(stack.norm, h), rtol=0, atol=1e-12)


def crossing(cross, rows=(0, 1)):
    """A context for two samples, and which of it is real; nothing for a stack that takes none."""
    real = np.array([[True, True, True], [False, True, True]])
    return {"context": random(2, 3, 4, seed=7)[[*rows]], "context_valid": real[[*rows]]} if cross else {}


def caches_of(stack, context=None, context_valid=None):
    return stack.caches(None if context is None else mg.tensor(context), context_valid)


@pytest.mark.parametrize("cross", [True, False])
@pytest.mark.parametrize("score", ["scaled_dot", "additive"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_steps_with_caches_equal_the_whole(positions, cross, score):
    stack = stack_of(blocks=2, cross=cross, positions=positions, score=score)
    x = random(2, 5, 4)
    whole = stack(x, mask=causal_mask(5), **crossing(cross)).data
    for watched in (contextlib.nullcontext(), study.capture(stack, "*.scores")):
        with watched:
            caches = caches_of(stack, **crossing(cross))
            steps = [stack.step(mg.tensor(x[:, i : i + 1]), caches, i).data for i in range(5)]
        np.testing.assert_allclose(np.concatenate(steps, axis=1), whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("cross", [True, False])
def test_reordered_caches_continue_other_rows(cross):
    stack = stack_of(blocks=2, cross=cross, positions="relative")
    x, rows = random(2, 4, 4), np.array([1, 1, 0])
    caches = caches_of(stack, **crossing(cross))
    for i in range(2):
        stack.step(mg.tensor(x[:, i : i + 1]), caches, i)
    for cache in caches:
        cache.reorder(rows)
    later = [stack.step(mg.tensor(x[rows, i : i + 1]), caches, i).data for i in (2, 3)]
    whole = stack(x[rows], mask=causal_mask(4), **crossing(cross, rows)).data
    np.testing.assert_allclose(np.concatenate(later, axis=1), whole[:, 2:], rtol=0, atol=1e-12)


def test_every_block_has_a_cache():
    stack = stack_of(blocks=2)
    with pytest.raises(ValueError, match="shorter"):
        stack.step(mg.tensor(random(2, 1, 4)), stack.caches()[:1], 0)


@pytest.mark.parametrize("options", [{}, {"score": "dot"}, {"normalise": "relu"}])
@pytest.mark.parametrize("positions", ["none", "relative"])
def test_what_is_captured_adds_up_at_padding_too(options, positions):
    """The scores are q . k and the bias, and the output is attn v, at every vector; and watching changes nothing."""
    stack, x = stack_of(blocks=2, cross=True, positions=positions, **options), random(2, 4, 4)
    masks = {"valid": np.array([[True] * 4, [True, False, True, False]]), "mask": causal_mask(4), **crossing(True)}
    masks["context"][~masks["context_valid"]] = np.nan
    plain = stack(x, **masks).data
    with study.capture(stack, ["*.q", "*.k", "*.v", "*.scores", "*.attn"]) as caught:
        np.testing.assert_allclose(stack(x, **masks).data[masks["valid"]], plain[masks["valid"]], rtol=0, atol=1e-13)
    for i, block in enumerate(stack.blocks):
        for name, layer in (("attention", block.attention), ("cross", block.cross)):
            q, k, v, scores, attn = (caught[f"blocks.{i}.{name}.{p}"].value for p in ("q", "k", "v", "scores", "attn"))
            expected = q @ np.swapaxes(k, -1, -2) * (1 if options.get("score") == "dot" else 2**-0.5)
            if layer.positions is not None:
                expected = expected + layer.positions(4, 4).data
            np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-13)
            assert np.isfinite(attn @ v).all()


def test_capturing_queries_and_keys_alone_gives_those_of_all():
    stack, x = stack_of(blocks=1), random(2, 4, 4)
    valid = np.array([[True] * 4, [True, False, True, False]])
    found = []
    for points in (["*.q", "*.k", "*.v"], ["*.q", "*.k", "*.v", "*.scores"]):
        with study.capture(stack, points) as caught:
            stack(x, valid=valid)
        found.append([caught[f"blocks.0.attention.{p}"].value for p in ("q", "k", "v")])
    for a, b in zip(*found):
        np.testing.assert_array_equal(a, b)


def test_a_context_is_for_stacks_that_cross():
    x = random(2, 3, 4)
    with pytest.raises(ValueError, match="cross=True"):
        stack_of()(x, context=x)
    with pytest.raises(ValueError, match="cross=True"):
        stack_of()(x, context_valid=np.ones((2, 3), bool))
    with pytest.raises(ValueError, match="cross=True"):
        stack_of(cross=True)(x)
    with pytest.raises(ValueError, match="cross=True"):
        stack_of().caches(mg.tensor(x), None)
    with pytest.raises(ValueError, match="cross=True"):
        stack_of().caches(None, np.ones((2, 3), bool))
    with pytest.raises(ValueError, match="cross=True"):
        stack_of(cross=True).caches()


def test_junk_in_a_contexts_padding_reaches_nothing():
    stack, x, clean = stack_of(cross=True), random(2, 3, 4), random(2, 3, 4, seed=7)
    real = np.array([[True, True, False], [True, False, False]])
    found = []
    for junk in (0.0, 5.0, np.nan, np.inf):
        context = mg.tensor(np.where(real[..., None], clean, junk), requires_grad=True)
        for parameter in stack.parameters():
            parameter.grad = None
        y = stack(x, context=context, context_valid=real)
        y.backward(random(2, 3, 4, seed=8))
        assert not context.grad[~real].any()
        assert context.grad[real].all()
        found.append([y.data, context.grad, *(p.grad for p in stack.parameters())])
    for other in found[1:]:
        for a, b in zip(found[0], other):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("positions", POSITIONS)
def test_permuting_the_vectors_permutes_the_outputs_only_without_positions(positions, bare):
    stack = stack_of(blocks=2, positions=positions, residual=not bare, norm=not bare)
    x, order = random(2, 4, 4), np.array([2, 0, 3, 1])
    difference = np.abs(stack(x[:, order]).data - stack(x).data[:, order]).max()
    assert difference <= 1e-12 if positions == "none" else difference > 1e-3


@pytest.mark.parametrize("positions", POSITIONS)
def test_i_saw_a_saw(positions):
    i, saw, a = random(3, 4)
    stack = stack_of(blocks=2, positions=positions)
    y = stack(np.stack([i, saw, a, saw])[None]).data[0]
    difference = np.abs(y[1] - y[3]).max()
    assert difference <= 1e-12 if positions == "none" else difference > 1e-3


def test_unknown_positions_are_a_value_error():
    with pytest.raises(ValueError, match="positions"):
        AttentionStack(4, positions="rotary")


def along_a_direction(model):
    """The model's parameters as functions of one number each: p + t d with a random direction d; all t are 0."""
    state = model.state_dict()
    directions = {name: random(*a.shape, seed=number) for number, (name, a) in enumerate(state.items())}
    start = {name: np.zeros(()) for name in state}
    return start, lambda t: {name: state[name] + t[name] * directions[name] for name in t}


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("cross", [False, True])
def test_gradients_of_both_orders(positions, cross):
    stack = stack_of(3, blocks=1, heads=3, positions=positions, cross=cross, hidden=2, max_length=3, clip=1)
    valid = np.array([[True, True, False]])
    masks = {"valid": valid, "mask": causal_mask(3)}

    def call(x, p, context=None):
        crossing = {} if context is None else {"context": context, "context_valid": valid[:, 1:]}
        y = nn.functional_call(stack, p, x, **masks, **crossing)
        return mg.where(valid[..., None], y, 0.0)

    x, context = random(1, 3, 3), (random(1, 2, 3, seed=7),) if cross else ()
    assert gradcheck(call, (x, stack.state_dict(), *context))
    start, parameters = along_a_direction(stack)
    assert gradgradcheck(lambda x, t, *c: call(x, parameters(t), *c), (x, start, *context))


def test_gradients_of_the_bare_form():
    stack = stack_of(2, blocks=2, residual=False, norm=False, score="additive", hidden=3)

    def call(x, p):
        return nn.functional_call(stack, p, x)

    assert gradcheck(call, (random(1, 3, 2), stack.state_dict()))
    start, parameters = along_a_direction(stack)
    assert gradgradcheck(lambda x, t: call(x, parameters(t)), (random(1, 3, 2), start))


def test_dropout_is_for_training():
    stack = stack_of(dropout=0.5)
    without = copy.deepcopy(stack)
    for module in without.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    x = random(2, 3, 4)
    np.testing.assert_array_equal(stack.eval()(x).data, without(x).data)
    for block in without.blocks:
        for dropout in (block.dropout, block.fc.dropout):  # each by itself does something
            dropout.p = 0.5
            assert (without(x).data != stack(x).data).any()
            dropout.p = 0.0
    mg.seed(3)
    first, second = stack.train()(x).data, stack(x).data
    assert (first != second).any()
    mg.seed(3)
    np.testing.assert_array_equal(stack(x).data, first)
