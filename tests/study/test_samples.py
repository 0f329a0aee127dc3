"""Per-sample gradients against a loop of single-sample backward passes."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study
from minigrad.kernels import self_attention as self_attention_kernel
from minigrad.ops.fused import self_attention
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
)


@pytest.fixture(autouse=True)
def _folded(monkeypatch):
    """Self-attention is folded where that saves a single multiplication: at the sizes of tests, too."""
    monkeypatch.setattr(self_attention_kernel, "WORTH", 0)


def one_by_one(model, loss_fn, x, y, batch):
    """The oracle: a forward and a backward pass for each sample."""
    gradients = {name: np.zeros((batch, *p.shape), p.dtype) for name, p in model.named_parameters()}
    for i in range(batch):
        for p in model.parameters():
            p.grad = None
        loss_fn(model, pick(x, i), pick(y, i)).backward()
        for name, p in model.named_parameters():
            gradients[name][i] = 0 if p.grad is None else p.grad
            p.grad = None
    return gradients


def pick(tree, i):
    if isinstance(tree, dict):
        return {name: pick(item, i) for name, item in tree.items()}
    if isinstance(tree, tuple):
        return tuple(pick(item, i) for item in tree)
    return None if tree is None else tree[i : i + 1]


def check(model, loss_fn, x, y, batch, tolerance=1e-12):
    found = study.per_sample_grads(model, loss_fn, x, y)
    expected = one_by_one(model, loss_fn, x, y, batch)
    assert list(found) == list(expected)
    for name, gradient in found.items():
        assert gradient.dtype == expected[name].dtype
        assert gradient.shape == expected[name].shape
        np.testing.assert_allclose(gradient, expected[name], rtol=0, atol=tolerance, err_msg=name)
    assert any(np.abs(gradient).max() > 1e3 * tolerance for gradient in found.values())
    return found


def away_from_zero(model, rng):
    """Biases and tables start as zeros and ones, which would hide a wrong factor."""
    for p in model.parameters():
        with mg.no_grad():
            p += 0.3 * rng.standard_normal(p.shape).astype(p.dtype)
    return model


def padded(rng, batch, n):
    lengths = rng.integers(1, n + 1, batch)
    lengths[0] = n
    return np.arange(n) < lengths[:, None]


def tagged(rng, batch, n, vocabulary=30, features=3, labels=5):
    """Sentences, and a loss whose total is that of the whole batch."""
    valid = padded(rng, batch, n)
    x = {"ids": rng.integers(0, vocabulary, (batch, n, features)), "valid": valid}
    y = {"labels": rng.integers(0, labels, (batch, n)), "mask": valid & (rng.random((batch, n)) < 0.8)}
    total = np.count_nonzero(y["mask"])

    def loss_fn(model, x, y):
        logits = model(x["ids"], valid=x["valid"])
        return nn.cross_entropy(logits, y["labels"], mask=y["mask"], label_smoothing=0.1, total=total)

    return loss_fn, x, y


def tagger(rng, dtype=float, **stack):
    options = {"blocks": 2, "heads": 2, "hidden": 7, "positions": "relative", "rng": rng, "dtype": dtype}
    words = SummedEmbedding(30, 6, features=3, rng=rng, dtype=dtype)
    body = AttentionStack(6, **{**options, **stack})
    return away_from_zero(PerVector(words, body, 6, 5, rng=rng, dtype=dtype), rng)


@pytest.mark.parametrize(("dtype", "tolerance"), [(float, 1e-12), (np.float32, 1e-6)])
def test_the_tagger(dtype, tolerance):
    rng = np.random.default_rng(0)
    model = tagger(rng, dtype)
    loss_fn, x, y = tagged(rng, 9, 7)
    found = check(model, loss_fn, x, y, 9, tolerance)
    loss_fn(model, x, y).backward()
    for name, p in model.named_parameters():
        np.testing.assert_allclose(found[name].sum(0), p.grad, rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.parametrize(
    "stack",
    [
        {"positions": "learned", "max_length": 9},
        {"positions": "sinusoidal", "norm": False},
        {"positions": "none", "residual": False, "heads": 1},
        {"score": "additive"},
        {"normalise": "relu", "score": "dot"},
        {"heads": 3, "clip": 1},
    ],
)
def test_other_stacks(stack):
    rng = np.random.default_rng(1)
    loss_fn, x, y = tagged(rng, 5, 6)
    check(tagger(rng, **stack), loss_fn, x, y, 5)


def test_a_label_for_the_whole_set():
    rng = np.random.default_rng(2)
    inputs = FrameProjection(4, 6, rng=rng, dtype=float)
    body = AttentionStack(6, heads=2, positions="relative", rng=rng, dtype=float)
    model = away_from_zero(Single(inputs, body, 6, 3, rng=rng, dtype=float), rng)
    x, y = (rng.standard_normal((4, 5, 4)), padded(rng, 4, 5)), rng.integers(0, 3, 4)
    x[0][~x[1]] = np.nan
    check(model, lambda model, x, y: nn.cross_entropy(model(x[0], valid=x[1]), y, total=4), x, y, 4)


def test_encoder_and_decoder_whose_output_shares_the_embedding():
    rng = np.random.default_rng(3)
    model = away_from_zero(Seq2Seq(8, 9, 6, blocks=1, heads=2, rng=rng, dtype=float), rng)
    x = {
        "source": rng.integers(1, 8, (4, 5)),
        "target": rng.integers(1, 9, (4, 3)),
        "source_valid": padded(rng, 4, 5),
        "target_valid": padded(rng, 4, 3),
    }
    y = rng.integers(1, 9, (4, 3))
    total = np.count_nonzero(x["target_valid"])

    def loss_fn(model, x, y):
        return nn.cross_entropy(model(**x), y, mask=x["target_valid"], total=total)

    check(model, loss_fn, x, y, 4)


def test_window_and_other_activations():
    rng = np.random.default_rng(4)
    for body in (
        WindowFC(3, 1, (5, 2), activation="gelu", rng=rng, dtype=float),
        FCStack((3, 4, 2), activation="tanh", rng=rng, dtype=float),
    ):
        x, y = rng.standard_normal((5, 4, 3)), rng.standard_normal((5, 4, 2))
        check(away_from_zero(body, rng), lambda model, x, y: ((model(x) - y) ** 2).sum() / 3, x, y, 5)


class Layer(nn.Module):
    """A parameter w and a function of it."""

    def __init__(self, w, function):
        self.w = nn.Parameter(w)
        self.function = function

    def forward(self, x):
        return self.function(x, self.w)


B, N, D = 4, 3, 2  # none equal, so that no axis is mistaken for another by its size alone

CALLS = {
    "matrix product with vectors": ((D, 5), lambda x, w: x[:, 0] @ w),
    "matrix product with sets": ((D, 5), lambda x, w: x @ w),
    "matrix product from the left": ((5, N), lambda x, w: w @ x),
    "product with one vector": ((D,), lambda x, w: x @ w),
    "a stack of matrices": ((N, D, 5), lambda x, w: x[:, :, None] @ w),
    "einsum": ((D, 5), lambda x, w: mg.einsum("bnd,dk->bkn", x, w)),
    "einsum of three": ((N, D), lambda x, w: mg.einsum("bnd,nd,nk->bk", x, w, w)),
    "tensordot": ((D, N), lambda x, w: mg.tensordot(x, w, axes=([2, 1], [0, 1]))),
    "added": ((D,), lambda x, w: x + w),
    "added to all": ((), lambda x, w: x + w),
    "added, with a size of 1": ((N, 1), lambda x, w: x + w),
    "added, with leading sizes of 1": ((1, 1, D), lambda x, w: (x + w) ** 2),
    "multiplied twice": ((N, D), lambda x, w: x * w * w),
    "a denominator": ((D,), lambda x, w: x / (w + 3)),
    "an exponent": ((D,), lambda x, w: mg.abs(x) ** w),
    "chosen": ((D,), lambda x, w: mg.where(x > 0, x, w)),
    "the larger": ((D,), lambda x, w: mg.maximum(x, w)),
    "broadcast and joined": (
        (1, D),
        lambda x, w: mg.concatenate([mg.broadcast_to(w, (x.shape[0], 1, D)), x], axis=1),
    ),
    "repeated": ((N, D), lambda x, w: np.repeat(w[None], len(x), axis=0) * x),
    "tiled": ((N, D), lambda x, w: np.tile(w, (len(x), 1, 1)) * x),
    "looked up by index": ((7, D), lambda x, w: w[np.floor(2 * mg.abs(x)).astype(int) % 7]),
    "looked up by np.take": ((7,), lambda x, w: np.take(w, np.floor(2 * mg.abs(x)).astype(int) % 7)),
    "layer norm": ((D,), lambda x, w: mg.layer_norm(x[:, 0], w, w * 2)),
    "linear": ((D, D), lambda x, w: mg.linear(x[:, 0], w, w[0] + 1, "relu")),
    "samples along the second axis": ((D, 5), lambda x, w: x.swapaxes(0, 1) @ w),
    "samples along the last axis": ((5, N * D), lambda x, w: w @ x.reshape(x.shape[0], N * D).T),
    "sets and vectors as one axis": ((D, 5), lambda x, w: mg.linear(x.reshape(-1, D), w)),
    "one axis, split again": ((D,), lambda x, w: (x.reshape(-1, D) * w).reshape(-1, N, D) ** 2),
    "an attention with shared queries": ((5, D), lambda x, w: mg.attention(w, x, x)),
    "an attention with shared keys": ((5, D), lambda x, w: mg.attention(x, w, w)),
    "all of self-attention": ((D, 4), lambda x, w: self_attention(x, w, w * 2, -w, heads=2)),
    "self-attention with one head": ((D, 2 * D), lambda x, w: self_attention(x, w, mg.sin(w), -w)),
    "self-attention with one head and a bias": (
        (N, N),
        lambda x, w: self_attention(x, *[np.eye(D)] * 3, bias=w, mask=np.tri(N, dtype=bool)),
    ),
    "self-attention with a bias": (
        (2, N, N),
        lambda x, w: self_attention(x, *w[0, None, :D, :D].repeat(3, 0), heads=2, bias=w, scale=0.3),
    ),
    "self-attention with a bias for each head": (
        (2, 1, N),
        lambda x, w: self_attention(x, *[np.eye(D)] * 3, heads=2, bias=w, mask=np.tri(N, dtype=bool)),
    ),
    "from parameters alone": ((D, D), lambda x, w: x @ mg.linalg.inv(w + 4 * np.eye(D)) * mg.exp(w).sum()),
    "from several outputs": ((4, D), lambda x, w: mg.tanh(x * mg.split(w, 2)[1][0] + mg.split(w, 2)[0][1])),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("batch", [B, 1, 2])
def test_every_way_to_use_a_parameter(name, batch):
    shape, function = CALLS[name]
    rng = np.random.default_rng(5)
    model = Layer(0.5 * rng.standard_normal(shape), function)
    x = rng.standard_normal((batch, N, D))
    check(model, lambda model, x, y: (mg.sin(model(x)) ** 2).sum() * 0.7, x, None, batch)


def test_nested_inputs_tensors_and_no_labels():
    rng = np.random.default_rng(6)
    model = nn.Linear(3, 2, rng=rng, dtype=float)
    x = [rng.standard_normal((4, 3)), (mg.tensor(rng.standard_normal((4, 2))), None)]

    def loss_fn(model, x, y):
        assert y is None
        assert x[1][1] is None
        return (model(x[0]) * x[1][0]).sum()

    found = study.per_sample_grads(model, loss_fn, x, None)
    np.testing.assert_allclose(found["bias"], x[1][0].data, atol=1e-15)
    np.testing.assert_allclose(found["weight"], np.einsum("bi,bo->bio", x[0], x[1][0].data), atol=1e-15)


def test_the_mean_has_the_total_of_the_batch():
    rng = np.random.default_rng(7)
    model, x = nn.Linear(3, 1, rng=rng, dtype=float), rng.standard_normal((4, 3))
    found = study.per_sample_grads(model, lambda model, x, y: model(x).mean(), x, None)
    np.testing.assert_allclose(found["weight"][..., 0], x / 4, atol=1e-15)
    mask = np.array([[True, True], [True, False], [False, False]])  # three labels, two of them of one sample
    x, y = rng.standard_normal((3, 2, 3)), np.zeros((3, 2), int)
    model = nn.Linear(3, 2, rng=rng, dtype=float)
    found = study.per_sample_grads(
        model, lambda model, x, y: nn.cross_entropy(model(x["x"]), y, mask=x["mask"]), {"x": x, "mask": mask}, y
    )
    for i, count in enumerate(mask.sum(1)):
        model.weight.grad = None
        nn.cross_entropy(model(x[i]), y[i], mask=mask[i], total=count).backward()
        np.testing.assert_allclose(found["weight"][i], model.weight.grad * count / 3, atol=1e-15)


def test_sums_of_several_losses():
    rng = np.random.default_rng(8)
    model = nn.Linear(3, 4, rng=rng, dtype=float)

    def loss_fn(model, x, y):
        logits = model(x)
        return 2 * nn.cross_entropy(logits, y, total=5) - (logits**2).sum() / 7 + 3

    check(model, loss_fn, rng.standard_normal((5, 3)), rng.integers(0, 4, 5), 5)


def test_nothing_else_changes():
    rng = np.random.default_rng(9)
    model = nn.Sequential(nn.Linear(3, 2, rng=rng), nn.Linear(2, 2, rng=rng))
    unused, frozen, used = nn.Linear(1, 1), model.layers[0].weight, model.layers[1].weight
    model.unused = unused
    frozen.requires_grad = False
    used.grad = np.ones_like(used.data)
    x = rng.standard_normal((4, 3))
    found = study.per_sample_grads(model, lambda model, x, y: model(x).sum(), x, None)
    assert list(found) == ["layers.0.bias", "layers.1.weight", "layers.1.bias", "unused.weight", "unused.bias"]
    np.testing.assert_array_equal(found["unused.weight"], np.zeros((4, 1, 1)))
    np.testing.assert_array_equal(used.grad, np.ones((2, 2)))
    assert all(p.grad is None for p in model.parameters() if p is not used)


def test_a_model_that_is_watched():
    rng = np.random.default_rng(22)
    model = tagger(rng)
    loss_fn, x, y = tagged(rng, 5, 6)
    expected = study.per_sample_grads(model, loss_fn, x, y)
    seen = []
    hook = model.body.blocks[0].register_full_backward_hook(lambda module, grad_input, grad_output: seen.append(1))
    with study.capture(model, ["*.attn", "inputs"]) as caught:
        found = study.per_sample_grads(model, loss_fn, x, y)
    hook.remove()
    assert seen
    assert caught["inputs"].calls[0].grad.shape == (5, 6, 6)
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, rtol=0, atol=1e-12)


def test_a_loop_over_the_samples_is_told():
    model = nn.Linear(2, 3, dtype=float)
    with pytest.raises(ValueError, match=r"depend on how many they are \(a loop over them\)"):
        study.per_sample_grads(model, lambda model, x, y: sum(model(row).sum() for row in x), np.ones((4, 2)), None)


def test_an_empty_batch():
    model = nn.Linear(3, 2)
    found = study.per_sample_grads(model, lambda model, x, y: model(x).sum(), np.zeros((0, 3)), None)
    assert {name: gradient.shape for name, gradient in found.items()} == {"weight": (0, 3, 2), "bias": (0, 2)}


def test_a_parameter_of_another_dtype():
    rng = np.random.default_rng(20)
    model = Layer(rng.standard_normal((D, 5)).astype(np.float32), lambda x, w: x @ w)
    check(model, lambda model, x, y: model(x).sum(), rng.standard_normal((B, N, D)), None, B, 1e-6)


def test_logits_that_are_not_finite():
    rng = np.random.default_rng(21)
    labels, mask = np.array([[0, 1, 2], [0, 0, 0]]), np.array([[True, True, True], [True, True, False]])
    x = {"x": rng.standard_normal((2, 3, 4)), "mask": mask}

    def loss_fn(model, x, y):
        logits = mg.where(x["mask"][..., None], model(x["x"]), np.nan)  # not counted
        hidden = np.arange(5) == 4  # a class that is never right
        return nn.cross_entropy(mg.where(hidden, -np.inf, logits), y, mask=x["mask"], total=5)

    check(nn.Linear(4, 5, rng=rng, dtype=float), loss_fn, x, labels, 2)


@pytest.mark.parametrize("special", range(7))
def test_a_path_that_depends_on_what_is_among_the_samples(special):
    rng = np.random.default_rng(10)
    x = np.abs(rng.standard_normal((7, 1, 2)))
    x[special, 0, 1] *= -1

    def function(x, w):
        mixed_signs = np.prod(np.sign(x), -1) < 0
        return mg.where(mixed_signs[..., None], 0.0, x @ w) if mixed_signs.any() else x @ w

    model = Layer(rng.standard_normal((2, 2)), function)
    check(model, lambda model, x, y: model(x).sum(), x, None, 7)


@pytest.mark.parametrize("longest", range(6))
def test_a_model_that_cuts_off_what_no_sample_has(longest):
    rng = np.random.default_rng(23)
    x = rng.standard_normal((6, 5, 2))
    x[:, 2:] = 0
    x[longest, 2:4] = 1

    def function(x, w):
        return mg.tanh(x[:, : np.flatnonzero(x.any((0, 2))).max() + 1] @ w)

    check(Layer(rng.standard_normal((2, 3)), function), lambda model, x, y: model(x).sum(), x, None, 6)


def statistics(x, axis):
    return mg.mean(x, axis, keepdims=True)


MIXED = {
    "batch statistics": (lambda h: h - statistics(h, 0), "subtract.*meets them with a sum over all"),
    "statistics as constants": (lambda h: h - statistics(h.detach(), 0), "subtract"),
    "the largest of all, as a constant": (lambda h: h / np.abs(h.data).max(), "divide|power"),
    "each meets the next": (lambda h: h + np.roll(h, 1, axis=0), "roll|concatenate|add"),
    "each meets the last": (lambda h: h + h[::-1], "getitem|add"),
    "a softmax over the batch": (lambda h: mg.softmax(h, axis=0), "softmax"),
    "attention across the batch": (lambda h: mg.attention(h[:, 0], h[:, 0], h[:, 0]), "attention"),
    "products across the batch": (lambda h: h[:, 0] @ h[:, 0].T, "matmul"),
    "a running sum": (lambda h: mg.cumsum(h, axis=0), "cumsum"),
    "random numbers": (nn.Dropout(0.5), "multiply"),
}


@pytest.mark.parametrize("name", MIXED)
def test_samples_that_are_mixed(name):
    mix, op = MIXED[name]
    rng = np.random.default_rng(11)
    model = nn.Sequential(nn.Linear(2, 3, rng=rng, dtype=float), mix)
    op, _, more = op.partition(".*")
    with pytest.raises(ValueError, match=rf"samples are mixed.*({op}) \(.*\.py:\d+\).*{more}"):
        study.per_sample_grads(model, lambda model, x, y: (model(x) ** 2).sum(), rng.standard_normal((6, 4, 2)), None)


def test_dropout_that_is_off_is_fine():
    rng = np.random.default_rng(12)
    model = nn.Sequential(nn.Linear(2, 3, rng=rng, dtype=float), nn.Dropout(0.5)).eval()
    check(model, lambda model, x, y: (model(x) ** 2).sum(), rng.standard_normal((6, 2)), None, 6)


NO_SUM = {
    "the largest": (lambda h, w: mg.max(h), "max"),
    "a soft maximum": (lambda h, w: mg.logsumexp(h), "logsumexp"),
    "a root": (lambda h, w: mg.sqrt((h**2).mean()), "sqrt"),
    "a square": (lambda h, w: h.mean() * h.mean(), "multiply"),
    "a reciprocal": (lambda h, w: 1 / (h**2).mean(), "divide"),
    "a norm": (lambda h, w: mg.linalg.norm(h), "norm|sqrt"),
    "weight decay": (lambda h, w: h.mean() + (w**2).sum(), "belongs to no sample: add"),
    "a learned weight of the loss": (lambda h, w: h.mean() * w.sum(), "belongs to no sample: multiply"),
    "parameters alone": (lambda h, w: (w**2).sum(), "on no sample"),
}


@pytest.mark.parametrize("name", NO_SUM)
def test_losses_that_are_no_sum_over_samples(name):
    loss, message = NO_SUM[name]
    rng = np.random.default_rng(13)
    model = nn.Linear(2, 3, rng=rng, dtype=float)
    with pytest.raises(ValueError, match=message):
        study.per_sample_grads(model, lambda m, x, y: loss(m(x), m.weight), rng.standard_normal((4, 2)), None)


def test_what_loss_fn_and_its_inputs_must_be():
    rng = np.random.default_rng(14)
    model, x = nn.Linear(2, 3, rng=rng, dtype=float), rng.standard_normal((4, 2))
    with pytest.raises(ValueError, match=r"one number as a tensor .* not a tensor of shape \(4, 3\)"):
        study.per_sample_grads(model, lambda model, x, y: model(x), x, None)
    with pytest.raises(ValueError, match="not float"):
        study.per_sample_grads(model, lambda model, x, y: 1.0, x, None)
    with pytest.raises(ValueError, match="no_grad"), mg.no_grad():
        study.per_sample_grads(model, lambda model, x, y: model(x).sum(), x, None)
    with pytest.raises(ValueError, match=r"as many in each.*\(4, 2\), \(3,\)"):
        study.per_sample_grads(model, lambda model, x, y: model(x).sum(), x, np.zeros(3))
    with pytest.raises(ValueError, match="belongs in loss_fn"):
        study.per_sample_grads(model, lambda model, x, y: model(x).sum(), {"x": x, "total": 4}, None)
    compiled = mg.compile(lambda x: model(x).sum())
    with pytest.raises(ValueError, match=r"mg\.compile, which runs backward by itself"):
        study.per_sample_grads(model, lambda model, x, y: compiled(x), x, None)
    with pytest.raises(ValueError, match="hides the calls inside it"):
        study.per_sample_grads(model, lambda model, x, y: mg.checkpoint(model)(x).sum(), x, None)


# --- noise -------------------------------------------------------------------------------------------------------


def test_noise_against_a_loop():
    rng = np.random.default_rng(15)
    parts = {"a": rng.standard_normal((5, 2, 3)) + 1, "b": rng.standard_normal((5, 4)).astype(np.float32) - 2}
    noise = study.grad_noise(parts)
    flat = np.array([np.concatenate([parts["a"][i].ravel(), parts["b"][i]]) * 5 for i in range(5)], float)
    mean = flat.sum(0) / 5
    covariance = np.cov(flat.T)
    np.testing.assert_allclose(noise.norms, np.linalg.norm(flat, axis=1))
    np.testing.assert_allclose(np.concatenate([v.ravel() for v in noise.variance.values()]), np.diag(covariance))
    ratio = np.abs(mean) / np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(np.concatenate([v.ravel() for v in noise.signal_to_noise.values()]), ratio)
    for i in range(5):
        for j in range(5):
            cosine = flat[i] @ flat[j] / np.linalg.norm(flat[i]) / np.linalg.norm(flat[j])
            assert noise.cosine[i, j] == pytest.approx(cosine)
    # Appendix A.1 of the paper, with batches of 1 and of 5.
    big, small = mean @ mean, np.mean([row @ row for row in flat])
    signal, trace = (5 * big - small) / (5 - 1), (small - big) / (1 - 1 / 5)
    assert noise.noise_scale == pytest.approx(trace / signal)


def test_the_noise_scale_of_known_noise():
    rng = np.random.default_rng(16)
    batch, mean, deviation = 4000, np.array([1.0, -2.0, 0.5]), np.array([3.0, 1.0, 2.0])
    estimates = mean + deviation * rng.standard_normal((batch, 3))
    noise = study.grad_noise({"w": estimates / batch})
    assert noise.noise_scale == pytest.approx((9 + 1 + 4) / (1 + 4 + 0.25), rel=0.1)
    np.testing.assert_allclose(noise.variance["w"], deviation**2, rtol=0.1)


def test_the_noise_scale_is_unbiased_for_small_batches():
    rng = np.random.default_rng(17)
    noises = [study.grad_noise({"w": (1 + rng.standard_normal((8, 50))) / 8}) for _ in range(200)]
    assert np.mean([noise.noise_scale for noise in noises]) == pytest.approx(1.0, rel=0.05)  # plain |mean|^2: 0.89


def test_no_noise_and_no_signal():
    noise = study.grad_noise({"w": np.array([[2.0, 0.0], [2.0, 0.0]])})
    assert noise.noise_scale == 0
    np.testing.assert_array_equal(noise.signal_to_noise["w"], [np.inf, 0])
    noise = study.grad_noise({"w": np.array([[1.0], [-1.0], [0.0]])})
    assert noise.noise_scale == np.inf
    np.testing.assert_array_equal(noise.cosine, [[1, -1, np.nan], [-1, 1, np.nan], [np.nan] * 3])


def test_noise_needs_two_samples():
    with pytest.raises(ValueError, match="two samples or more"):
        study.grad_noise({"w": np.ones((1, 2))})
    with pytest.raises(ValueError, match="two samples or more"):
        study.grad_noise({})
    with pytest.raises(ValueError, match="as many for each"):
        study.grad_noise({"w": np.ones((3, 2)), "b": np.ones((2, 2))})


def test_a_batch_folded_in_float32_under_a_loss_in_float64(monkeypatch):
    """All samples together are folded, few are not: they differ by float32's rounding, in float64's digits."""
    monkeypatch.setattr(self_attention_kernel, "WORTH", 2**14)
    rng = np.random.default_rng(9)
    model = SelfAttention(32, rng=rng)
    x, y = rng.standard_normal((8, 16, 32)).astype(np.float32), rng.standard_normal((8, 16, 32))
    weights = (model.query.weight, model.key.weight, model.value.weight)
    assert self_attention_kernel.folds(x, *(w.data for w in weights), 1)
    assert not self_attention_kernel.folds(x[:2], *(w.data for w in weights), 1)
    found = study.per_sample_grads(model, lambda model, x, y: ((model(x) - y) ** 2).sum(), x, y)
    for name, weight in model.named_parameters():
        for i in range(8):
            weight.grad = None
            ((model(x[i : i + 1]) - y[i : i + 1]) ** 2).sum().backward()
            np.testing.assert_allclose(found[name][i], weight.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("batch", [2, 3, 5])
def test_samples_inside_of_an_axis_that_was_made_one_are_refused(batch):
    """Their gradients would be those of other places, though the sum over all of them is right."""
    model, x = (
        nn.Linear(4, 3, rng=np.random.default_rng(0), dtype=float),
        np.random.default_rng(1).normal(size=(batch, 2, 4)),
    )

    def time_first(model, x, y):
        z = model(np.swapaxes(x, 0, 1).reshape(-1, 4)).reshape(2, -1, 3)
        return (np.swapaxes(z, 0, 1) ** 2).sum()

    def joined(model, x, y):
        first, second = mg.split(model(np.concatenate([x[:, 0], 2 * x[:, 0]])), 2)
        return (first * second).sum()

    for loss in (time_first, joined):
        with pytest.raises(ValueError, match="must be the outer"):
            study.per_sample_grads(model, loss, x, None)
