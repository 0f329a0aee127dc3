"""SelfAttention against the lecture's formulas, a loop over queries and keys written by hand, and torch."""

import itertools
import math

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.check.gradcheck import gradcheck, gradgradcheck
from minigrad.study import capture
from models import AttentionStack, Relative, SelfAttention, causal_mask, window_mask

BATCH, N, M, DIM = 2, 4, 3, 6


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def layer_of(heads=1, seed=1, **options):
    return SelfAttention(DIM, heads, rng=np.random.default_rng(seed), dtype=np.float64, **options)


def by_hand(layer, x, allowed=None, context=None, divisor=1.0, additive=False, relu=False):
    """Output and weights, one query and one key at a time. allowed: boolean (batch, heads, query, key)."""
    context = x if context is None else context
    batch, n, m = len(x), x.shape[1], context.shape[1]
    wq, wk, wv = (w.weight.data for w in (layer.query, layer.key, layer.value))
    heads = layer.heads
    dk, dv = wq.shape[1] // heads, wv.shape[1] // heads
    weights, joined = np.zeros((batch, heads, n, m)), np.zeros((batch, n, heads * dv))
    for b, h, i in itertools.product(range(batch), range(heads), range(n)):
        seen = [j for j in range(m) if allowed is None or allowed[b, h, i, j]]
        scores = []
        for j in seen:
            q, k = x[b, i] @ wq[:, h * dk : (h + 1) * dk], context[b, j] @ wk[:, h * dk : (h + 1) * dk]
            score = layer.u.data[h, 0] @ np.tanh(q + k) if additive else q @ k / divisor
            if layer.positions is not None:
                clip = layer.positions.clip
                distance = j - (i + m - n)
                score += layer.positions.table.data[h, max(-clip, min(clip, distance)) + clip]
            scores.append(score)
        e = [max(s, 0.0) if relu else math.exp(s) for s in scores]
        for j, part in zip(seen, e):
            weights[b, h, i, j] = part if relu else part / sum(e)
            joined[b, i, h * dv : (h + 1) * dv] += weights[b, h, i, j] * (context[b, j] @ wv[:, h * dv : (h + 1) * dv])
    return (joined if layer.output is None else joined @ layer.output.weight.data), weights


# --- the formulas ------------------------------------------------------------------------------------------------


def test_equals_the_lecture_in_columns():
    layer = layer_of(score="dot", key_dim=3, value_dim=2)
    I = random(DIM, N)  # noqa: E741
    Wq, Wk, Wv = layer.query.weight.data.T, layer.key.weight.data.T, layer.value.weight.data.T
    Q, K, V = Wq @ I, Wk @ I, Wv @ I
    A = K.T @ Q
    A_prime = np.exp(A) / np.exp(A).sum(axis=0)
    O = V @ A_prime  # noqa: E741
    alpha_12 = Q[:, 0] @ K[:, 1]
    assert A[1, 0] == pytest.approx(alpha_12, rel=1e-14)
    np.testing.assert_allclose(layer(I.T[None]).data[0].T, O, rtol=0, atol=1e-13)
    output, weights = layer(I.T[None], need_weights=True)
    np.testing.assert_allclose(output.data[0].T, O, rtol=0, atol=1e-13)
    np.testing.assert_allclose(weights.data[0, 0].T, A_prime, rtol=0, atol=1e-13)


SCORES = {
    "dot": ({"score": "dot"}, {}),
    "scaled": ({}, {"divisor": "sqrt"}),
    "additive": ({"score": "additive"}, {"additive": True}),
    "relu": ({"normalise": "relu"}, {"divisor": "sqrt", "relu": True}),
    "additive relu": ({"score": "additive", "normalise": "relu"}, {"additive": True, "relu": True}),
}


@pytest.mark.parametrize("widths", [{}, {"key_dim": 5, "value_dim": 4}], ids=["widths", "other widths"])
@pytest.mark.parametrize("positions", [None, "relative"])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("name", SCORES)
def test_equals_the_loop_by_hand(name, heads, positions, widths):
    options, expected = SCORES[name]
    layer = layer_of(heads, positions=positions, **options, **widths)
    expected = {**expected}
    if expected.get("divisor"):
        expected["divisor"] = math.sqrt(widths.get("key_dim", DIM // heads))
    x, context = random(BATCH, N, DIM), random(BATCH, M, DIM, seed=5)
    masks = np.random.default_rng(3).random((BATCH, heads, N, N)) < 0.6
    masks[0, 0, 1] = False  # a query that may look at nothing
    for mask, allowed in [
        (None, None),
        (masks, masks),
        (masks[:, 0], np.broadcast_to(masks[:, :1], masks.shape)),
        (masks[1, 0], np.broadcast_to(masks[1, 0], masks.shape)),
    ]:
        wanted, wanted_weights = by_hand(layer, x, allowed, **expected)
        np.testing.assert_allclose(layer(x, mask=mask).data, wanted, rtol=0, atol=1e-13)
        output, weights = layer(x, mask=mask, need_weights=True)
        np.testing.assert_allclose(output.data, wanted, rtol=0, atol=1e-13)
        np.testing.assert_allclose(weights.data, wanted_weights, rtol=0, atol=1e-13)
    real = np.array([[True, True, False], [False, True, True]])
    allowed = np.broadcast_to(real[:, None, None, :], (BATCH, heads, N, M))
    wanted, wanted_weights = by_hand(layer, x, allowed, context, **expected)
    output, weights = layer(x, context=context, context_valid=real, need_weights=True)
    np.testing.assert_allclose(layer(x, context=context, context_valid=real).data, wanted, rtol=0, atol=1e-13)
    np.testing.assert_allclose(output.data, wanted, rtol=0, atol=1e-13)
    np.testing.assert_allclose(weights.data, wanted_weights, rtol=0, atol=1e-13)


@pytest.mark.parametrize("crossing", [False, True])
def test_equals_torch(crossing):
    torch = pytest.importorskip("torch")
    layer = layer_of(3)
    theirs = torch.nn.MultiheadAttention(DIM, 3, bias=False, batch_first=True, dtype=torch.float64)
    projections = np.concatenate([w.weight.data.T for w in (layer.query, layer.key, layer.value)])
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.tensor(projections))
        theirs.out_proj.weight.copy_(torch.tensor(layer.output.weight.data.T.copy()))
    x = mg.tensor(random(BATCH, N, DIM), requires_grad=True)
    asked = mg.tensor(random(BATCH, M, DIM, seed=5), requires_grad=True) if crossing else x
    real = np.ones(asked.shape[:2], bool)
    real[1, -1] = False
    tx = torch.tensor(x.data.copy(), requires_grad=True)
    tasked = torch.tensor(asked.data.copy(), requires_grad=True) if crossing else tx
    wanted, wanted_weights = theirs(
        tx, tasked, tasked, key_padding_mask=torch.tensor(~real), average_attn_weights=False
    )
    options = {"context": asked, "context_valid": real} if crossing else {"mask": real[:, None, :]}
    output, weights = layer(x, need_weights=True, **options)
    np.testing.assert_allclose(output.data, wanted.detach().numpy(), rtol=0, atol=1e-13)
    np.testing.assert_allclose(weights.data, wanted_weights.detach().numpy(), rtol=0, atol=1e-13)
    cotangent = random(BATCH, N, DIM, seed=8)
    layer(x, **options).backward(cotangent)
    wanted.backward(torch.tensor(cotangent))
    np.testing.assert_allclose(x.grad, tx.grad.numpy(), rtol=0, atol=1e-13)
    np.testing.assert_allclose(asked.grad, tasked.grad.numpy(), rtol=0, atol=1e-13)
    gradients = np.concatenate([w.weight.grad.T for w in (layer.query, layer.key, layer.value)])
    np.testing.assert_allclose(gradients, theirs.in_proj_weight.grad.numpy(), rtol=0, atol=1e-12)
    np.testing.assert_allclose(layer.output.weight.grad.T, theirs.out_proj.weight.grad.numpy(), rtol=0, atol=1e-12)


def test_shapes_and_parameters():
    x = random(BATCH, N, DIM)
    assert layer_of(1, value_dim=2)(x).shape == (BATCH, N, 2)
    assert layer_of(3, key_dim=1, value_dim=7)(x).shape == (BATCH, N, DIM)
    shapes = {name: p.shape for name, p in layer_of(2, key_dim=5, value_dim=4, score="additive").named_parameters()}
    assert shapes == {
        "query.weight": (DIM, 10),
        "key.weight": (DIM, 10),
        "value.weight": (DIM, 8),
        "output.weight": (8, DIM),
        "u": (2, 1, 5),
    }
    assert set(dict(layer_of(1).named_parameters())) == {"query.weight", "key.weight", "value.weight"}


# --- masks -------------------------------------------------------------------------------------------------------


def test_a_causal_mask_hides_the_future():
    layer, x = layer_of(2), random(1, N, DIM)
    before = layer(x, mask=causal_mask(N)).data
    for i in range(N - 1):
        changed = x.copy()
        changed[:, i + 1 :] += 1.0
        np.testing.assert_array_equal(layer(changed, mask=causal_mask(N)).data[:, : i + 1], before[:, : i + 1])
        alone = layer(x[:, : i + 1]).data[:, -1]
        np.testing.assert_allclose(before[:, i], alone, rtol=0, atol=1e-13)


def test_a_window_and_a_graph_hide_the_rest():
    layer, x = layer_of(2), random(1, 6, DIM)
    windowed = layer(x, mask=window_mask(6, 1)).data
    np.testing.assert_allclose(windowed[:, 3], layer(x[:, 2:5]).data[:, 1], rtol=0, atol=1e-13)
    np.testing.assert_allclose(windowed[:, 0], layer(x[:, :2]).data[:, 0], rtol=0, atol=1e-13)
    adjacency = np.zeros((6, 6), bool)
    adjacency[:3, :3] = adjacency[3:, 3:] = True  # two components that know nothing of each other
    parts = np.concatenate([layer(x[:, :3]).data, layer(x[:, 3:]).data], axis=1)
    np.testing.assert_allclose(layer(x, mask=adjacency).data, parts, rtol=0, atol=1e-13)


def test_valid_and_mask_hide_together():
    layer, x = layer_of(2), random(1, N, DIM)
    valid = np.array([[True, True, False, True]])
    both = layer(x, valid=valid, mask=causal_mask(N)).data
    alone = layer(x[:, [0, 1, 3]], mask=causal_mask(3)).data
    np.testing.assert_allclose(both[:, [0, 1, 3]], alone, rtol=0, atol=1e-13)


OPTIONS = [
    {},
    {"heads": 2},
    {"heads": 2, "score": "dot", "positions": "relative"},
    {"heads": 2, "score": "additive"},
    {"heads": 2, "normalise": "relu", "positions": "relative"},
]


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_row_with_nothing_to_attend_to_is_exactly_zero_and_so_is_its_gradient(options, need_weights):
    layer = layer_of(**options)
    mask = np.ones((N, N), bool)
    mask[2] = False
    x = mg.tensor(random(BATCH, N, DIM), requires_grad=True)
    output = layer(x, mask=mask, need_weights=need_weights)
    if need_weights:
        output, weights = output
        assert not weights.data[:, :, 2].any()
    assert not output.data[:, 2].any()
    assert output.data[:, [0, 1, 3]].all()
    cotangent = np.zeros(output.shape)
    cotangent[:, 2] = 1.0
    output.backward(cotangent)
    assert not x.grad.any()
    for parameter in layer.parameters():
        if parameter is not getattr(layer.output, "weight", None):
            assert not parameter.grad.any()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_nan_in_a_row_that_nobody_looks_at_stays_there(options):
    layer, x = layer_of(**options), random(BATCH, N, DIM)
    hidden = np.ones((N, N), bool)
    hidden[:, 1] = hidden[1] = False
    wanted = layer(x, mask=hidden).data
    x[:, 1] = np.nan
    np.testing.assert_array_equal(layer(x, mask=hidden).data, wanted)
    output, _ = layer(x, mask=hidden, need_weights=True)
    np.testing.assert_allclose(output.data, wanted, rtol=0, atol=1e-13)


def test_masks_are_not_changed():
    mask, valid = causal_mask(N), np.array([[True, True, True, False]] * BATCH)
    copies = mask.copy(), valid.copy()
    layer_of(2)(random(BATCH, N, DIM), mask=mask, valid=valid)
    np.testing.assert_array_equal(mask, copies[0])
    np.testing.assert_array_equal(valid, copies[1])


# --- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [np.ones((N, N), int), np.ones((N, N)), [[True] * N] * N, True], ids=repr)
def test_a_mask_that_is_not_boolean_is_a_type_error(wrong):
    with pytest.raises(TypeError, match="boolean"):
        layer_of()(random(BATCH, N, DIM), mask=wrong)


@pytest.mark.parametrize("wrong", [np.ones((BATCH, N), int), np.ones((BATCH, N)), [[True] * N] * BATCH], ids=repr)
def test_valid_that_is_not_boolean_is_a_type_error(wrong):
    x = random(BATCH, N, DIM)
    with pytest.raises(TypeError, match="boolean"):
        layer_of()(x, valid=wrong)
    with pytest.raises(TypeError, match="boolean"):
        layer_of()(x, context=x, context_valid=wrong)


@pytest.mark.parametrize("shape", [(N,), (N, N + 1), (BATCH + 1, N, N), (BATCH, 3, N, N), (1, BATCH, 2, N, N)], ids=str)
def test_a_misshapen_mask_is_a_value_error(shape):
    for options in OPTIONS[1:]:
        with pytest.raises(ValueError, match="mask"):
            layer_of(**options)(random(BATCH, N, DIM), mask=np.ones(shape, bool))


def test_other_misshapen_inputs_are_value_errors():
    layer, x = layer_of(2), random(BATCH, N, DIM)
    for wrong in (x[0], x[None], x[..., 1:]):
        with pytest.raises(ValueError, match="shape"):
            layer(wrong)
    for valid in (np.ones((BATCH, N - 1), bool), np.ones(N, bool), np.ones((BATCH, N, 1), bool)):
        with pytest.raises(ValueError, match="valid"):
            layer(x, valid=valid)
    with pytest.raises(ValueError, match="valid"):
        layer(x, context=x[:, :2], context_valid=np.ones((BATCH, N), bool))
    with pytest.raises(ValueError, match="shape"):
        layer(x, context=random(BATCH + 1, N, DIM))
    with pytest.raises(ValueError, match="without a context"):
        layer(x, context_valid=np.ones((BATCH, N), bool))


def test_wrong_arguments_are_value_errors():
    for options in (
        {"score": "cosine"},
        {"normalise": "tanh"},
        {"positions": "sinusoidal"},
        {"positions": Relative(2)},
    ):
        with pytest.raises(ValueError, match=next(iter(options))):
            layer_of(3, **options)
    with pytest.raises(ValueError, match="4 heads do not divide a width of 6"):
        layer_of(4)
    assert layer_of(4, key_dim=2, value_dim=2)(random(BATCH, N, DIM)).shape == (BATCH, N, DIM)


# --- gradients ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"heads": 2, "key_dim": 1, "value_dim": 3},
        {"heads": 2, "score": "dot", "positions": "relative"},
        {"heads": 2, "score": "additive"},
        {"heads": 2, "normalise": "relu"},
        {"score": "additive", "normalise": "relu", "positions": "relative"},
    ],
    ids=str,
)
def test_gradients_of_both_orders(options):
    layer = SelfAttention(2, rng=np.random.default_rng(2), dtype=np.float64, **options)
    x, context = random(2, 3, 2), random(2, 2, 2, seed=3)
    parameters = layer.state_dict()
    mask = np.random.default_rng(0).random((2, layer.heads, 3, 3)) < 0.7
    mask[0, :, 1] = False

    def itself(x, p):
        return nn.functional_call(layer, p, x, mask=mask, valid=np.array([[True] * 3, [True, False, True]]))

    def crossing(x, context, p):
        return nn.functional_call(layer, p, x, context=context, need_weights=True)

    assert gradcheck(itself, (x, parameters))
    assert gradcheck(crossing, (x, context, parameters))
    assert gradgradcheck(itself, (x, parameters))
    assert gradgradcheck(crossing, (x[:1, :2], context[:1], parameters))


# --- watching ----------------------------------------------------------------------------------------------------


def test_watching_shows_every_layers_weights_and_changes_nothing():
    stack = AttentionStack(DIM, blocks=2, heads=2, cross=True, rng=np.random.default_rng(1), dtype=np.float64)
    x, context = random(BATCH, N, DIM), random(BATCH, M, DIM, seed=5)
    options = {"mask": causal_mask(N), "context": context}
    wanted = stack(x, **options).data
    with capture(stack) as caught:
        np.testing.assert_allclose(stack(x, **options).data, wanted, rtol=0, atol=1e-13)
    keys = {"attention": N, "cross": M}
    assert {name: point.value.shape for name, point in caught.items()} == {
        f"blocks.{block}.{name}.attn": (BATCH, 2, N, keys[name]) for block in (0, 1) for name in keys
    }
    normed = stack.blocks[0].norms[0](x)
    _, weights = stack.blocks[0].attention(normed, mask=causal_mask(N), need_weights=True)
    np.testing.assert_array_equal(caught["blocks.0.attention.attn"].value, weights.data)


# --- what holds without positions --------------------------------------------------------------------------------


@pytest.mark.parametrize("score", ["scaled_dot", "dot", "additive"])
def test_permuting_the_vectors_permutes_the_outputs_unless_there_are_positions(score):
    x, order = random(BATCH, N, DIM), np.array([2, 0, 3, 1])
    plain, placed = layer_of(2, score=score), layer_of(2, score=score, positions="relative")
    np.testing.assert_allclose(plain(x[:, order]).data, plain(x).data[:, order], rtol=0, atol=1e-12)
    assert np.abs(placed(x[:, order]).data - placed(x).data[:, order]).max() > 1e-3


def test_empty_batches_and_sequences():
    for options in OPTIONS:
        layer = layer_of(**options)
        for shape in ((0, N, DIM), (BATCH, 0, DIM), (0, 0, DIM)):
            x = mg.tensor(np.zeros(shape), requires_grad=True)
            output, weights = layer(x, need_weights=True)
            assert output.shape == layer(x, valid=np.ones(shape[:2], bool), mask=causal_mask(shape[1])).shape == shape
            assert weights.shape == (shape[0], layer.heads, shape[1], shape[1])
            layer(x).sum().backward()
            assert x.grad.shape == shape
