"""What goes into a model and what comes out; and what holds for every model: dtype, seeds, state, copies."""

import copy

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim
from minigrad.check.gradcheck import gradcheck, gradgradcheck
from models import (
    AttentionStack,
    FCStack,
    FrameProjection,
    PerVector,
    SelfAttention,
    Seq2Seq,
    Single,
    SummedEmbedding,
    WindowFC,
    mean_pool,
)

IDS = np.array([[[1, 2], [3, 0], [4, 4]], [[5, 1], [2, 6], [0, 0]]])
VALID = np.array([[True, True, True], [True, True, False]])


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


# --- pooling -----------------------------------------------------------------------------------------------------


def test_mean_pool_counts_real_vectors_alone_b077():
    h = mg.tensor([[[1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, 2.0]]] * 2, requires_grad=True)
    pooled = mean_pool(h, np.array([[True, True, False, False], [False] * 4]))
    np.testing.assert_array_equal(pooled.data, [[1.0, 0.0], [0.0, 0.0]])
    pooled.backward(np.ones((2, 2)))
    np.testing.assert_array_equal(h.grad[0], [[0.5, 0.5], [0.5, 0.5], [0, 0], [0, 0]])
    assert not h.grad[1].any()


def test_mean_pool_without_a_mask_is_the_mean():
    h = random(2, 3, 4)
    np.testing.assert_allclose(mean_pool(mg.tensor(h), None).data, h.mean(1), rtol=1e-15)
    np.testing.assert_allclose(mean_pool(mg.tensor(h), np.ones((2, 3), bool)).data, h.mean(1), rtol=1e-15)
    np.testing.assert_array_equal(mean_pool(mg.tensor(np.ones((2, 0, 4))), None).data, np.zeros((2, 4)))
    np.testing.assert_array_equal(
        mean_pool(mg.tensor(np.ones((2, 0, 4))), np.ones((2, 0), bool)).data, np.zeros((2, 4))
    )


def test_mean_pool_is_untouched_by_junk_in_padding():
    h = random(2, 3, 4)
    wanted = mean_pool(mg.tensor(h), VALID).data
    h[~VALID] = np.nan
    t = mg.tensor(h, requires_grad=True)
    pooled = mean_pool(t, VALID)
    np.testing.assert_array_equal(pooled.data, wanted)
    np.testing.assert_allclose(wanted[1], h[1, :2].mean(0), rtol=1e-15)
    pooled.backward(random(2, 4, seed=1))
    assert not t.grad[~VALID].any()
    assert np.isfinite(t.grad).all()


def test_mean_pool_checks_its_mask_and_its_gradient():
    h = mg.tensor(random(2, 3, 4))
    with pytest.raises(TypeError, match="boolean"):
        mean_pool(h, VALID.astype(int))
    with pytest.raises(ValueError, match="valid"):
        mean_pool(h, VALID.T)
    for check in (gradcheck, gradgradcheck):
        assert check(lambda h: mg.sin(mean_pool(h, VALID)), (h.data,))
        assert check(lambda h: mg.sin(mean_pool(h, None)), (h.data,))


# --- inputs and heads --------------------------------------------------------------------------------------------


def test_summed_embedding_sums_and_normalises():
    words = SummedEmbedding(7, 4, features=2, rng=np.random.default_rng(1), dtype=np.float64)
    table = words.embedding.weight.data
    assert not table[0].any()
    y = words(IDS)
    for b, i in np.ndindex(2, 3):
        total = table[IDS[b, i, 0]] + table[IDS[b, i, 1]]
        wanted = (total - total.mean()) / np.sqrt(total.var() + 1e-5)
        np.testing.assert_allclose(y.data[b, i], wanted, rtol=0, atol=1e-13)
    y.backward(random(2, 3, 4))
    assert not words.embedding.weight.grad[0].any()
    assert words.embedding.weight.grad[1:].any(-1).all()


def test_frame_projection_is_linear():
    project = FrameProjection(3, 4, rng=np.random.default_rng(1), dtype=np.float64)
    project.load_state_dict({"linear.weight": random(3, 4), "linear.bias": random(4, seed=1)})
    x = random(2, 3, 3)
    np.testing.assert_allclose(project(x).data, x @ random(3, 4) + random(4, seed=1), rtol=0, atol=1e-13)


def test_heads_are_their_parts_one_after_the_other():
    common = {"rng": np.random.default_rng(1), "dtype": np.float64}
    inputs, body = FrameProjection(3, 4, **common), AttentionStack(4, positions="relative", **common)
    x = random(2, 3, 3)
    for head, pool in ((PerVector, lambda h: h), (Single, lambda h: np.stack([h[0].mean(0), h[1, :2].mean(0)]))):
        model = head(inputs, body, 4, 5, **common)
        model.labels.load_state_dict({"weight": random(4, 5), "bias": random(5, seed=1)})
        h = body(inputs(x, valid=VALID), valid=VALID).data
        wanted = pool(h) @ random(4, 5) + random(5, seed=1)
        np.testing.assert_allclose(model(x, valid=VALID).data, wanted, rtol=0, atol=1e-13)


def test_i_saw_a_saw():
    sentence = np.array([[[1, 2], [3, 4], [5, 6], [3, 4]]])
    for positions in ("none", "sinusoidal", "learned", "relative"):
        common = {"rng": np.random.default_rng(1), "dtype": np.float64}
        words, body = SummedEmbedding(7, 4, features=2, **common), AttentionStack(4, positions=positions, **common)
        logits = PerVector(words, body, 4, 3, **common)(sentence).data[0]
        difference = np.abs(logits[1] - logits[3]).max()
        assert difference <= 1e-12 if positions == "none" else difference > 1e-3


@pytest.mark.parametrize("head", [PerVector, Single])
def test_gradients_of_both_orders(head):
    common = {"rng": np.random.default_rng(1), "dtype": np.float64}
    body = AttentionStack(2, hidden=3, positions="relative", clip=1, **common)
    model = head(FrameProjection(2, 2, **common), body, 2, 2, **common)
    rng = np.random.default_rng(2)
    state = {name: a + 0.3 * rng.normal(size=a.shape) for name, a in model.state_dict().items()}

    def call(x, p):
        y = nn.functional_call(model, p, x, valid=VALID)
        return mg.where(VALID[..., None], y, 0.0) if y.ndim == 3 else y

    assert gradcheck(call, (random(2, 3, 2), state))
    assert gradgradcheck(call, (random(2, 3, 2), state))


def test_gradients_of_a_summed_embedding():
    words = SummedEmbedding(7, 3, features=2, rng=np.random.default_rng(1), dtype=np.float64)
    state = words.state_dict()
    padding = state.pop("embedding.weight")[:1]
    rest = words.embedding.weight.data[1:].copy()

    def call(rows, p):
        table = mg.concatenate([padding, rows])  # row 0 has no gradient by definition
        return nn.functional_call(words, {"embedding.weight": table, **p}, IDS, valid=VALID)[:, :2]

    assert gradcheck(call, (rest, state))
    assert gradgradcheck(call, (rest, state))


# --- what holds for every model ----------------------------------------------------------------------------------


def stack_of(positions="none", **common):
    return AttentionStack(4, blocks=2, heads=2, positions=positions, max_length=8, clip=2, **common)


def words(**common):
    return SummedEmbedding(7, 4, features=2, **common)


def frames(**common):
    return FrameProjection(4, 4, **common)


MODELS = {
    "attention": lambda **c: SelfAttention(4, 2, positions="relative", **c),
    "attention, additive": lambda **c: SelfAttention(4, score="additive", normalise="relu", **c),
    "fc": lambda **c: FCStack((4, 6, 3), activation="gelu", **c),
    "window": lambda **c: WindowFC(4, 1, (6, 3), **c),
    "stack, none": stack_of,
    "stack, sinusoidal": lambda **c: stack_of("sinusoidal", **c),
    "stack, learned": lambda **c: stack_of("learned", **c),
    "stack, relative": lambda **c: stack_of("relative", **c),
    "per vector": lambda **c: PerVector(words(**c), stack_of("relative", **c), 4, 3, **c),
    "per vector, window": lambda **c: PerVector(words(**c), WindowFC(4, 1, (6, 4), **c), 4, 3, **c),
    "single": lambda **c: Single(frames(**c), stack_of("sinusoidal", **c), 4, 3, **c),
    "seq2seq": lambda **c: Seq2Seq(7, 6, 4, blocks=1, heads=2, positions="sinusoidal", **c),
    "seq2seq, relative": lambda **c: Seq2Seq(7, 6, 4, blocks=1, heads=2, positions="relative", **c),
}
every_model = pytest.mark.parametrize("name", MODELS)


def call(name, model, valid=VALID):
    if name.startswith("seq2seq"):
        target = np.array([[1, 2, 3], [1, 4, 0]])
        return model(IDS[..., 0], target, source_valid=VALID, target_valid=VALID)
    return model(IDS if name.startswith("per vector") else random(2, 3, 4), valid=valid)  # float64 frames


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@pytest.mark.parametrize("valid", [None, VALID], ids=["all real", "padded"])
@every_model
def test_float32_stays_float32(name, valid):
    model = MODELS[name]()
    assert {p.dtype for p in model.parameters()} == {np.dtype(np.float32)}
    y = call(name, model, valid)
    waiting, seen = [y._node], set()
    while waiting:
        node = waiting.pop()
        if id(node) not in seen:
            seen.add(id(node))
            assert node.dtype == np.float32, node.op
            waiting.extend(node.edges)
    assert len(seen) > len(model.parameters())
    y.sum().backward()
    assert {p.grad.dtype for p in model.parameters()} == {np.dtype(np.float32)}
    assert call(name, MODELS[name](dtype=np.float64)).dtype == np.float64


@every_model
def test_one_seed_gives_one_model(name):
    same(
        MODELS[name](rng=np.random.default_rng(5)).state_dict(), MODELS[name](rng=np.random.default_rng(5)).state_dict()
    )
    mg.seed(5)
    first = MODELS[name]().state_dict()
    mg.seed(5)
    same(MODELS[name]().state_dict(), first)
    mg.seed(6)
    other = MODELS[name]().state_dict()
    assert any((other[key] != first[key]).any() for key in first)


@every_model
def test_state_goes_out_and_comes_in(name):
    model, other = MODELS[name](rng=np.random.default_rng(1)), MODELS[name](rng=np.random.default_rng(2))
    wanted = call(name, model).data
    assert (call(name, other).data != wanted).any()
    state = model.state_dict()
    other.load_state_dict(state)
    np.testing.assert_array_equal(call(name, other).data, wanted)
    for array in state.values():
        array += 1.0
    np.testing.assert_array_equal(call(name, model).data, wanted)


@every_model
def test_a_deep_copy_is_another_model(name):
    model = MODELS[name]()
    twin = copy.deepcopy(model)
    wanted = call(name, model).data
    np.testing.assert_array_equal(call(name, twin).data, wanted)
    assert not {id(p) for p in model.parameters()} & {id(p) for p in twin.parameters()}
    before = model.state_dict()
    y = call(name, twin)
    (y * y).sum().backward()
    assert all(p.grad is None for p in model.parameters())
    optim.SGD(twin.parameters(), lr=0.1).step()
    same(model.state_dict(), before)
    assert (call(name, twin).data != wanted).any()


@every_model
def test_every_parameter_gets_a_gradient(name):
    """With a random cotangent none is left out of the graph, and none is doubled: each path is found once."""
    model = MODELS[name](dtype=np.float64)
    y = call(name, model)
    y.backward(random(*y.shape, seed=3))
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.any(), key
