"""The walk's numbers: against the lecture's formulas in its own column convention, and against differences."""

import numpy as np
import pytest

import minigrad as mg
from experiments.report import trace
from experiments.report.examples import Examples
from minigrad import nn
from models import AttentionStack, FrameProjection, PerVector, Seq2Seq, Single

FEATURES, DIM, LABELS, N = 5, 8, 3, 4
SMOOTHING = 0.1


def names(n):
    return [[f"v{i}" for i in range(n)]]


def tagger(seed, **shape):
    mg.seed(seed)
    stack = AttentionStack(DIM, blocks=2, hidden=8, **{"heads": 2, "positions": "relative", **shape})
    model = PerVector(FrameProjection(FEATURES, DIM), stack, DIM, LABELS)
    rng = np.random.default_rng(seed)
    for p in model.parameters():  # biases and tables start at 0, where nothing is to be seen
        with mg.no_grad():
            p += (0.3 * rng.standard_normal(p.shape)).astype(p.dtype)
    frames, labels = rng.standard_normal((1, N, FEATURES)), rng.integers(0, LABELS, (1, N))
    counted = np.array([[True] * (N - 1) + [False]])
    example = Examples([frames], {}, labels, counted, names(N), names(N), names(N))
    return model, model.state_dict(), example


def translator(seed):
    mg.seed(seed)
    model = Seq2Seq(6, 7, DIM, blocks=2, heads=2, hidden=8)
    rng = np.random.default_rng(seed)
    source, target = rng.integers(1, 6, (1, 3)), rng.integers(1, 7, (1, 5))
    valid = {"source_valid": np.ones((1, 3), bool), "target_valid": np.ones((1, 5), bool)}
    labels = rng.integers(1, 7, (1, 5))
    example = Examples([source, target], valid, labels, valid["target_valid"], names(5), names(3), names(5))
    return model, model.state_dict(), example


def traced(model, weights, example):
    return trace.trace(model, weights, example, SMOOTHING)


def columns(layer, name, h):
    """A head's vectors as the lecture has them, one column each."""
    if name == "b":
        return layer.values["b"].reshape(layer.values["b"].shape[0], layer.heads, -1)[:, h].T
    return layer.values[name][h].T


def back(layer, name, h):
    if name == "b":
        return layer.grads["b"].reshape(layer.grads["b"].shape[0], layer.heads, -1)[:, h].T
    return layer.grads[name][h].T


CASES = {
    "relative positions": {},
    "one head": {"heads": 1},
    "no positions": {"positions": "none"},
    "without the division": {"score": "dot"},
    "without norms": {"norm": False, "positions": "sinusoidal"},
    "the bare form": {"norm": False, "residual": False, "positions": "none", "heads": 1},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_captured_numbers_are_those_of_the_lectures_formulas(case, seed):
    model, weights, example = tagger(seed, **CASES[case])
    layers = traced(model, weights, example).layers
    assert [layer.path for layer in layers] == ["body.blocks.0.attention", "body.blocks.1.attention"]
    for layer in layers:
        root = np.sqrt(layer.key_dim) if CASES[case].get("score") != "dot" else 1.0
        inputs, total = layer.values["x"].T, 0
        for h in range(layer.heads):
            Wq, Wk, Wv = (
                layer.weights[name].reshape(DIM, layer.heads, -1)[:, h].T for name in ("query", "key", "value")
            )
            Q, K, V = Wq @ inputs, Wk @ inputs, Wv @ inputs
            A = K.T @ Q / root
            if layer.clip is not None:
                A = A + np.array([[layer.weights["table"][h, j - i + layer.clip] for i in range(N)] for j in range(N)])
            A1 = np.exp(A) / np.exp(A).sum(0)
            O = V @ A1  # noqa: E741  (the lecture's letter)
            for name, value in {"q": Q, "k": K, "v": V, "scores": A, "attn": A1, "b": O}.items():
                np.testing.assert_allclose(columns(layer, name, h), value, rtol=1e-12, atol=1e-13, err_msg=name)
            dO = back(layer, "b", h)
            dV, dA1 = dO @ A1.T, V.T @ dO
            dA = A1 * (dA1 - (A1 * dA1).sum(0))
            dQ, dK = K @ dA / root, Q @ dA.T / root
            for name, value in {"v": dV, "attn": dA1, "scores": dA, "q": dQ, "k": dK}.items():
                np.testing.assert_allclose(back(layer, name, h), value, rtol=1e-10, atol=1e-12, err_msg=name)
            for name, gradient in {"query": dQ, "key": dK, "value": dV}.items():
                found = layer.weight_grads[name].reshape(DIM, layer.heads, -1)[:, h].T
                np.testing.assert_allclose(found, gradient @ inputs.T, rtol=1e-10, atol=1e-12, err_msg=name)
            total = total + Wq.T @ dQ + Wk.T @ dK + Wv.T @ dV
        around = layer.grads["out"] if layer.residual and layer.norm is None else 0.0
        np.testing.assert_allclose(layer.grads["x"].T, total + np.transpose(around), rtol=1e-10, atol=1e-12)
        paths = sum(layer.grads[name] for name in trace.PATHS)
        np.testing.assert_allclose(layer.grads["x"], paths + around, rtol=1e-12, atol=1e-15)
        if layer.norm is not None and layer.residual:
            around = layer.grads["out"] + layer.grads["norm"]
            np.testing.assert_allclose(layer.grads["input"], around, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("seed", [0, 1])
def test_of_cross_attention_too(seed):
    layers = {layer.path: layer for layer in traced(*translator(seed)).layers}
    assert set(layers) == {
        *(f"encoder.blocks.{i}.attention" for i in (0, 1)),
        *(f"decoder.blocks.{i}.{name}" for i in (0, 1) for name in ("attention", "cross")),
    }
    cross = layers["decoder.blocks.1.cross"]
    asks, asked = cross.values["x"].T, cross.values["context"].T
    for h in range(cross.heads):
        Wq, Wk, Wv = (cross.weights[name].reshape(DIM, cross.heads, -1)[:, h].T for name in ("query", "key", "value"))
        A = (Wk @ asked).T @ (Wq @ asks) / np.sqrt(cross.key_dim)
        np.testing.assert_allclose(columns(cross, "scores", h), A, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(columns(cross, "b", h), Wv @ asked @ (np.exp(A) / np.exp(A).sum(0)), rtol=1e-11)
    causal = layers["decoder.blocks.0.attention"].values["attn"]
    assert np.count_nonzero(np.triu(causal, 1)) == 0
    np.testing.assert_allclose(causal.sum(-1), 1, rtol=1e-14)


@pytest.mark.parametrize("case", [*CASES, "translation"])
def test_every_gradient_agrees_with_a_difference_of_the_loss(case):
    model, weights, example = translator(2) if case == "translation" else tagger(2, **CASES[case])
    for layer in traced(model, weights, example).layers:
        found = trace.check(trace.Differences(model, weights, example, SMOOTHING, layer), layer)
        assert {"q", "k", "v", "scores", "attn", "b", "rows", "shifts", "x", "query.weight", "query"} <= set(found)
        for name, slopes in found.items():
            gradient = trace.gradient_of(layer, name)
            assert np.abs(slopes - gradient).max() <= 1e-6 * max(1, np.abs(gradient).max()), (layer.path, name)
        largest = max(np.abs(trace.gradient_of(layer, name)).max() for name in found)
        assert largest > 1e-3  # it is not 0 that is compared with 0


def test_a_wrong_gradient_is_seen():
    model, weights, example = tagger(0)
    layer = traced(model, weights, example).layers[0]
    found = trace.check(trace.Differences(model, weights, example, SMOOTHING, layer), layer)
    assert trace.largest_gap(layer, found) < 1e-7
    for name in ("q", "attn", "x"):
        whole = layer.grads[name].copy()
        layer.grads[name] *= 1.01
        assert trace.largest_gap(layer, found) > 1e-6, name
        layer.grads[name] = whole


def test_a_kink_between_the_two_sides_is_stepped_around():
    """The loss is |x| + x^2 at x = 3e-7: a step of 1e-6 crosses the kink, a finer one does not."""

    class Kinked(trace.Differences):
        def __init__(self):
            self._base = self._losses("x", np.zeros((1, 1)))[0]

        def _losses(self, point, moves):
            x = 3e-7 + moves[:, 0]
            return np.abs(x) + x**2

    [slope] = Kinked().slopes("x", np.ones((1, 1)))
    assert abs(slope - 1) < 1e-5


def test_loss_and_probabilities_are_the_models():
    model, weights, example = tagger(3)
    found = traced(model, weights, example)
    logits = nn.functional_call(model, {k: v.astype(float) for k, v in weights.items()}, *example.inputs).numpy()[0]
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    target = np.full((N, LABELS), SMOOTHING / LABELS)
    target[np.arange(N), example.labels[0]] += 1 - SMOOTHING
    losses = -(target * logp).sum(-1)[: N - 1]
    assert found.loss == pytest.approx(losses.mean(), rel=1e-12)
    np.testing.assert_allclose(found.log_probabilities, logp[: N - 1], rtol=1e-12)
    assert found.places.tolist() == [0, 1, 2]


def test_the_model_keeps_no_hook_and_no_other_weight():
    model, weights, example = tagger(0)
    traced(model, weights, example)
    assert all(module._hooks is None for module in model.modules())
    assert all(np.array_equal(now, weights[name]) for name, now in model.state_dict().items())


def test_one_label_for_the_whole():
    mg.seed(0)
    model = Single(FrameProjection(FEATURES, DIM), AttentionStack(DIM, heads=2, hidden=8), DIM, LABELS)
    frames = np.random.default_rng(0).standard_normal((1, N, FEATURES))
    valid = {"valid": np.ones((1, N), bool)}
    example = Examples([frames], valid, np.array([2]), None, names(N), names(N), [["c"]])
    found = traced(model, model.state_dict(), example)
    assert found.log_probabilities.shape == (1, LABELS)
    layer = found.layers[0]
    gaps = trace.check(trace.Differences(model, model.state_dict(), example, SMOOTHING, layer), layer)
    assert trace.largest_gap(layer, gaps) < 1e-8


def test_layers_that_the_walk_does_not_know_are_left_out():
    additive = AttentionStack(DIM, heads=2, score="additive")
    rectified = AttentionStack(DIM, heads=2, normalise="relu")
    assert trace.walkable(additive) == trace.walkable(rectified) == []
    assert trace.walkable(AttentionStack(DIM, heads=2)) == ["blocks.0.attention"]
