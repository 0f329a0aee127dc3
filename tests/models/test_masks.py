"""Masks, and what padding must not do to any model.

The oracle of padding is its absence: every row of a padded batch by itself, without a mask.
"""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from models import (
    AttentionStack,
    FCStack,
    FrameProjection,
    PerVector,
    SelfAttention,
    Single,
    SummedEmbedding,
    WindowFC,
    causal_mask,
    window_mask,
)
from models.masks import at_entrance, check_valid, ids_at_entrance

DIM = 4
JUNK = {"random": 3.0, "nan": np.nan, "inf": np.inf, "-inf": -np.inf, "huge": 1e300}


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


# --- the masks themselves ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "m"), [(1, 1), (4, 4), (2, 4), (1, 4), (0, 3), (4, 2)])
def test_causal_mask(n, m):
    mask = causal_mask(n, m)
    assert mask.dtype == bool
    assert mask.shape == (n, m)
    for i, j in np.ndindex(n, m):
        assert mask[i, j] == (j <= i + (m - n))


def test_causal_mask_stands_bottom_right_b076():
    np.testing.assert_array_equal(causal_mask(2, 4).astype(int), [[1, 1, 1, 0], [1, 1, 1, 1]])
    y = mg.attention(np.zeros((1, 1)), np.zeros((4, 1)), [[1.0], [2.0], [3.0], [4.0]], mask=causal_mask(1, 4))
    np.testing.assert_allclose(y.data, [[2.5]], rtol=1e-15)


@pytest.mark.parametrize(("n", "neighbours"), [(1, 0), (4, 0), (5, 1), (5, 2), (3, 9), (0, 1)])
def test_window_mask(n, neighbours):
    mask = window_mask(n, neighbours)
    assert mask.dtype == bool
    assert mask.shape == (n, n)
    for i, j in np.ndindex(n, n):
        assert mask[i, j] == (-neighbours <= j - i <= neighbours)


def test_check_valid():
    check_valid(None, (2, 3, 4))
    check_valid(np.ones((2, 3), bool), (2, 3, 4))
    with pytest.raises(ValueError, match=r"\(2, 3\)"):
        check_valid(np.ones((3, 2), bool), (2, 3, 4))
    with pytest.raises(TypeError, match="int64"):
        check_valid(np.ones((2, 3), np.int64), (2, 3, 4))


def test_at_entrance_puts_zeros_in_padding_and_leaves_the_caller_its_array():
    x = random(2, 3, DIM)
    x[1, 2] = np.nan
    copy = x.copy()
    valid = np.array([[True] * 3, [True, True, False]])
    y = at_entrance(x, valid, np.dtype(np.float32))
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y.data, np.where(valid[..., None], np.nan_to_num(x), 0).astype(np.float32))
    np.testing.assert_array_equal(x, copy)


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 5)], ids=str)
def test_ids_at_entrance(shape):
    ids = np.random.default_rng(0).integers(1, 9, shape)
    valid = np.array([[True, True, False], [False, True, True]])
    ids[~valid] = -100
    copy = ids.copy()
    cleaned = ids_at_entrance(ids, valid)
    assert cleaned.dtype == ids.dtype
    assert not cleaned[~valid].any()
    np.testing.assert_array_equal(cleaned[valid], ids[valid])
    np.testing.assert_array_equal(ids, copy)
    np.testing.assert_array_equal(ids_at_entrance(ids, None), copy)
    with pytest.raises(TypeError, match="boolean"):
        ids_at_entrance(ids, valid.astype(int))
    with pytest.raises(ValueError, match="valid"):
        ids_at_entrance(ids, valid.T)


# --- padding -----------------------------------------------------------------------------------------------------


def common():
    return {"rng": np.random.default_rng(1), "dtype": np.float64}


def stack_of(**options):
    return AttentionStack(DIM, **{"blocks": 2, "heads": 2, "max_length": 16, "clip": 2, **options}, **common())


def frames():
    return FrameProjection(DIM, DIM, **common())


MODELS = {
    "attention": lambda: SelfAttention(DIM, **common()),
    "attention, heads": lambda: SelfAttention(DIM, 2, score="dot", positions="relative", **common()),
    "attention, additive": lambda: SelfAttention(DIM, 2, score="additive", **common()),
    "attention, relu": lambda: SelfAttention(DIM, 2, normalise="relu", **common()),
    "fc": lambda: FCStack((DIM, 6, 3), **common()),
    "window": lambda: WindowFC(DIM, 2, (6, 3), **common()),
    "stack, none": stack_of,
    "stack, sinusoidal": lambda: stack_of(positions="sinusoidal"),
    "stack, learned": lambda: stack_of(positions="learned"),
    "stack, relative": lambda: stack_of(positions="relative"),
    "stack, bare": lambda: stack_of(residual=False, norm=False, score="dot"),
    "stack, additive": lambda: stack_of(score="additive", normalise="relu", positions="relative"),
    "per vector, stack": lambda: PerVector(frames(), stack_of(positions="relative"), DIM, 3, **common()),
    "per vector, fc": lambda: PerVector(frames(), FCStack((DIM, 6, DIM), **common()), DIM, 3, **common()),
    "per vector, window": lambda: PerVector(frames(), WindowFC(DIM, 1, (6, DIM), **common()), DIM, 3, **common()),
    "single, stack": lambda: Single(frames(), stack_of(positions="sinusoidal"), DIM, 3, **common()),
    "single, fc": lambda: Single(frames(), FCStack((DIM, 6, DIM), **common()), DIM, 3, **common()),
    "single, window": lambda: Single(frames(), WindowFC(DIM, 1, (6, DIM), **common()), DIM, 3, **common()),
}
LENGTHS = (4, 2, 1)


def made(name):
    """The model with random parameters throughout: biases that start at 0 would leave padding 0 by luck."""
    model, rng = MODELS[name](), np.random.default_rng(4)
    model.load_state_dict({key: a + 0.3 * rng.normal(size=a.shape) for key, a in model.state_dict().items()})
    return model


def batch_of(left, right, lengths=LENGTHS, junk=0.0):
    """Vectors of rows of these lengths with at least so much padding on each side, and which are real."""
    n = left + max(lengths) + right
    x, valid = np.full((len(lengths), n, DIM), junk), np.zeros((len(lengths), n), bool)
    if junk == JUNK["random"]:
        x = random(*x.shape, seed=11)
    for b, length in enumerate(lengths):
        start = left if right else n - length
        x[b, start : start + length] = random(length, DIM, seed=b)
        valid[b, start : start + length] = True
    return x, valid


def real_part(y, valid):
    """The rows of real vectors in order; all of it when there is one output a set."""
    return y[valid] if y.ndim == 3 else y


def run(model, x, valid, cotangents):
    """Output and gradients, with the cotangents of the real rows in order and 0 for padding."""
    for parameter in model.parameters():
        parameter.grad = None
    t = mg.tensor(x, requires_grad=True)
    y = model(t, valid=valid)
    cotangent = np.zeros(y.shape)
    if y.ndim == 3:
        cotangent[np.ones(x.shape[:2], bool) if valid is None else valid] = cotangents
    else:
        cotangent[...] = cotangents
    y.backward(cotangent)
    return y.data, t.grad, {name: p.grad for name, p in model.named_parameters()}


def cotangents_for(name, model, lengths=LENGTHS):
    width = model(np.zeros((1, 1, DIM))).shape[-1]
    return random(len(lengths) if name.startswith("single") else sum(lengths), width, seed=21)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("name", MODELS)
def test_what_stands_in_padding_changes_no_bit(name, junk, side):
    model = made(name)
    cotangents = cotangents_for(name, model)
    amount = (1, 0) if side == "left" else (0, 1)
    x, valid = batch_of(*amount)
    y, gx, gp = run(model, x, valid, cotangents)
    x_junk, _ = batch_of(*amount, junk=JUNK[junk])
    y_junk, gx_junk, gp_junk = run(model, x_junk, valid, cotangents)
    assert (x_junk[~valid] != x[~valid]).all()
    np.testing.assert_array_equal(real_part(y_junk, valid), real_part(y, valid))
    np.testing.assert_array_equal(gx_junk[valid], gx[valid])
    assert gx[valid].any(-1).sum() >= sum(LENGTHS) - 1
    assert not gx_junk[~valid].any()
    assert gp.keys() == gp_junk.keys()
    for key, gradient in gp.items():
        np.testing.assert_array_equal(gp_junk[key], gradient, err_msg=key)


@pytest.mark.parametrize(("left", "right"), [(0, 1), (0, 7), (1, 0), (6, 0), (2, 3)])
@pytest.mark.parametrize("name", MODELS)
def test_a_padded_batch_equals_its_rows_alone(name, left, right):
    model = made(name)
    cotangents = cotangents_for(name, model)
    x, valid = batch_of(left, right)
    y, gx, gp = run(model, x, valid, cotangents)
    outputs, gradients, sums, place = [], [], dict.fromkeys(gp, 0.0), 0
    for b, length in enumerate(LENGTHS):
        single = name.startswith("single")
        own = cotangents[b : b + 1] if single else cotangents[place : place + length]
        y_alone, gx_alone, gp_alone = run(model, x[b : b + 1, valid[b]], None, own)
        outputs.append(y_alone if single else y_alone[0])
        gradients.append(gx_alone[0])
        sums = {key: sums[key] + gradient for key, gradient in gp_alone.items()}
        place += length
    np.testing.assert_allclose(real_part(y, valid), np.concatenate(outputs), rtol=0, atol=1e-12)
    np.testing.assert_allclose(gx[valid], np.concatenate(gradients), rtol=1e-12, atol=1e-12)
    for key, gradient in gp.items():
        np.testing.assert_allclose(gradient, sums[key], rtol=1e-12, atol=1e-12, err_msg=key)


@pytest.mark.parametrize("name", MODELS)
def test_a_row_with_no_real_vector(name):
    model = made(name)
    lengths = (3, 0, 2)
    cotangents = cotangents_for(name, model, lengths)
    if name.startswith("single"):
        cotangents[1] = 0.0
    x, valid = batch_of(0, 2, lengths, junk=np.nan)
    y, gx, gp = run(model, x, valid, cotangents)
    assert np.isfinite(y).all()
    assert not gx[1].any()
    kept = np.array([0, 2])
    y_kept, gx_kept, gp_kept = run(model, x[kept], valid[kept], cotangents[kept] if y.ndim == 2 else cotangents)
    np.testing.assert_allclose(real_part(y[kept], valid[kept]), real_part(y_kept, valid[kept]), rtol=0, atol=1e-12)
    np.testing.assert_allclose(gx[kept], gx_kept, rtol=1e-12, atol=1e-12)
    for key, gradient in gp.items():
        np.testing.assert_allclose(gradient, gp_kept[key], rtol=1e-12, atol=1e-12, err_msg=key)
    if name.startswith("attention"):
        assert not y[1].any()
    if name.startswith("single"):
        np.testing.assert_array_equal(y[1], model.labels.bias.data)


@pytest.mark.parametrize("shape", [(0, 3, DIM), (2, 0, DIM), (0, 0, DIM)], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_empty_batches_and_sequences(name, shape):
    model = made(name)
    for valid in (None, np.ones(shape[:2], bool)):
        x = mg.tensor(np.zeros(shape), requires_grad=True)
        y = model(x, valid=valid)
        assert y.shape[:-1] == (shape[:1] if name.startswith("single") else shape[:2])
        y.sum().backward()
        assert x.grad.shape == shape


@pytest.mark.parametrize("name", MODELS)
def test_wrong_valid_raises(name):
    model, x = made(name), random(2, 3, DIM)
    with pytest.raises(TypeError, match="boolean"):
        model(x, valid=np.ones((2, 3), int))
    with pytest.raises(ValueError, match="valid"):
        model(x, valid=np.ones((2, 4), bool))


@pytest.mark.parametrize("junk", [1, 5, -1, -100, 10**6])
@pytest.mark.parametrize("head", [PerVector, Single])
def test_ids_in_padding_change_no_bit(head, junk):
    words = SummedEmbedding(9, DIM, features=2, **common())
    model = head(words, stack_of(positions="learned"), DIM, 3, **common())
    ids = np.random.default_rng(0).integers(1, 9, (2, 4, 2))
    valid = np.array([[True] * 4, [False, True, True, False]])

    def gradients(ids):
        for parameter in model.parameters():
            parameter.grad = None
        logits = model(ids, valid=valid)
        loss = nn.cross_entropy(logits, np.ones(logits.shape[:-1], int), mask=valid if logits.ndim == 3 else None)
        loss.backward()
        return [
            logits.data[valid] if logits.ndim == 3 else logits.data,
            loss.data,
            *(p.grad for p in model.parameters()),
        ]

    wanted = gradients(np.where(valid[..., None], ids, 0))
    for a, b in zip(wanted, gradients(np.where(valid[..., None], ids, junk))):
        np.testing.assert_array_equal(a, b)
    assert not words.embedding.weight.grad[0].any()


def test_ids_out_of_range_raise_where_vectors_are_real():
    words = SummedEmbedding(9, DIM, features=1, **common())
    with pytest.raises(IndexError, match="9"):
        words(np.array([[[1], [9]]]), valid=np.array([[True, True]]))
