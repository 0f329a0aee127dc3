"""The ledger, precision, diff and detect_anomaly on every model: they agree with backward and find nothing wrong."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study
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


def words(rng):
    valid = rng.random((3, 5)) < 0.7
    valid[0] = True
    return rng.integers(1, 20, (3, 5, 2)), valid


def per_vector(body, rng, dtype):
    net = PerVector(SummedEmbedding(20, 8, features=2, rng=rng, dtype=dtype), body, 8, 4, rng=rng, dtype=dtype)
    ids, valid = words(rng)
    labels = rng.integers(0, 4, valid.shape)
    return net, lambda: nn.cross_entropy(net(ids, valid=valid), labels, mask=valid, label_smoothing=0.1)


def tagger(rng, dtype, **options):
    return per_vector(AttentionStack(8, blocks=2, heads=2, rng=rng, dtype=dtype, **options), rng, dtype)


def window(rng, dtype):
    return per_vector(WindowFC(8, 1, (6, 8), activation="gelu", rng=rng, dtype=dtype), rng, dtype)


def fc(rng, dtype):
    return per_vector(FCStack((8, 6, 8), activation="tanh", dropout=0.2, rng=rng, dtype=dtype), rng, dtype)


def single(rng, dtype):
    body = AttentionStack(8, blocks=1, residual=False, norm=False, rng=rng, dtype=dtype)
    net = Single(FrameProjection(3, 8, rng=rng, dtype=dtype), body, 8, 4, rng=rng, dtype=dtype)
    frames, (_, valid), labels = rng.standard_normal((3, 5, 3)), words(rng), rng.integers(0, 4, 3)
    return net, lambda: nn.cross_entropy(net(frames, valid=valid), labels)


def seq2seq(rng, dtype):
    net = Seq2Seq(9, 7, 8, blocks=2, heads=2, dropout=0.1, rng=rng, dtype=dtype)
    source, (_, source_valid) = rng.integers(1, 9, (3, 5)), words(rng)
    target, (_, valid) = rng.integers(1, 7, (3, 5)), words(rng)
    return net, lambda: nn.cross_entropy(
        net(source, target[:, :-1], source_valid=source_valid, target_valid=valid[:, :-1]),
        target[:, 1:],
        mask=valid[:, 1:],
    )


def composed(rng, dtype):
    layer = SelfAttention(8, 2, normalise="relu", rng=rng, dtype=dtype)
    x, (_, valid) = rng.standard_normal((3, 5, 8)).astype(dtype), words(rng)
    return layer, lambda: (layer(x, valid=valid) ** 2).sum()


class Checkpointed(nn.Module):
    """The second of two layers is computed again on the way back."""

    def __init__(self, rng, dtype):
        self.first, self.second = (AttentionStack(8, blocks=1, heads=2, rng=rng, dtype=dtype) for _ in range(2))

    def forward(self, x, valid):
        return mg.checkpoint(self.second)(self.first(x, valid=valid), valid=valid)


def checkpointed(rng, dtype):
    net, x, (_, valid) = Checkpointed(rng, dtype), rng.standard_normal((3, 5, 8)).astype(dtype), words(rng)
    return net, lambda: (net(x, valid) * x[::-1]).mean()


MODELS = [
    tagger,
    lambda rng, dtype: tagger(rng, dtype, positions="relative", score="dot"),
    lambda rng, dtype: tagger(rng, dtype, positions="learned", score="additive", dropout=0.1),
    lambda rng, dtype: tagger(rng, dtype, positions="sinusoidal", normalise="relu"),
    window,
    fc,
    single,
    seq2seq,
    composed,
    checkpointed,
]

each_model = pytest.mark.parametrize("build", MODELS)


def recorded(f):
    mg.seed(0)  # for dropout
    with study.recording():
        return f()


@each_model
def test_the_ledger_agrees_with_backward(build):
    net, f = build(np.random.default_rng(0), np.float64)
    loss = recorded(f)
    books = study.ledger(loss)
    assert all(p.grad is None for p in net.parameters())
    loss.backward()
    rows = {row.name: row for row in books.leaves}
    for name, p in net.named_parameters():
        assert rows[name].is_parameter
        assert rows[name].norm == pytest.approx(np.linalg.norm(p.grad), rel=1e-9)
        assert rows[name].zeros == pytest.approx(np.mean(p.grad == 0))
        assert sum(part.share for part in rows[name].branches.values()) == pytest.approx(1)
    assert len(rows) == len(dict(net.named_parameters()))
    whole = {row.name: row for row in books.modules}[f"({type(net).__name__})"]
    assert whole.norm_out is None
    assert all(row.module for row in books.ops if "models/" in row.place)
    assert "arrives everywhere" in books.findings[0]


@each_model
def test_every_head_is_there(build):
    net, f = build(np.random.default_rng(0), np.float64)
    layers = [(path, m) for path, m in net.named_modules() if isinstance(m, SelfAttention)]
    expected = [(path or "(SelfAttention)", head) for path, m in layers for head in range(m.heads)]
    books = study.ledger(recorded(f))
    assert sorted((h.module, h.head) for h in books.heads) == sorted(expected)
    assert all(h.norm_in > 0 and h.value > 0 for h in books.heads)


@each_model
def test_float32_is_enough(build):
    _, f = build(np.random.default_rng(0), np.float32)
    found = study.precision(recorded(f))
    assert all(row.lost < 1.5 for row in found.rows)
    assert found.value > 5.5
    assert min(found.gradients.values()) > 4.5


@each_model
def test_nothing_is_made_that_is_not_finite(build):
    net, f = build(np.random.default_rng(0), np.float32)
    with study.detect_anomaly():
        f().backward()
    assert all(np.isfinite(p.grad).all() for p in net.parameters())


@each_model
def test_two_runs_are_one_and_a_third_is_not(build):
    first, again, other = (build(np.random.default_rng(seed), np.float32)[1] for seed in (0, 0, 1))
    assert study.diff(recorded(first), recorded(again)) is None
    found = study.diff(recorded(first), recorded(other))
    assert (found.kind, found.ops[0]) in {("argument", op) for op in ("embedding", "linear", "layer_norm", "matmul")}
