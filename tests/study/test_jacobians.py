"""Jacobians of layers against central differences and closed forms."""

import itertools

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study
from models import FCStack, SelfAttention


def differences(layer, x, step=1e-6):
    """The Jacobian at each sample by central differences: (batch, *output, *input)."""
    rows = []
    for sample in x:
        columns = []
        for place in itertools.product(*map(range, sample.shape)):
            change = np.zeros_like(sample)
            change[place] = step
            more, less = (np.asarray(layer(each[None]).data[0]) for each in (sample + change, sample - change))
            columns.append((more - less) / (2 * step))
        rows.append(np.stack(columns, -1).reshape(*columns[0].shape, *sample.shape))
    return np.stack(rows)


LAYERS = {
    "linear": lambda rng: (nn.Linear(3, 2, rng=rng, dtype=float), (3,)),
    "layer norm": lambda rng: (nn.LayerNorm(4, dtype=float), (4,)),
    "FC": lambda rng: (FCStack((3, 5, 2), activation="tanh", rng=rng, dtype=float), (3,)),
    "self-attention": lambda rng: (SelfAttention(2, rng=rng, dtype=float), (4, 2)),
    "softmax": lambda rng: (mg.softmax, (5,)),
    "a number for each sample": lambda rng: (lambda x: mg.tanh(x).sum((1, 2)), (2, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("batch", [1, 3])
def test_jacobian_and_spectrum(name, batch):
    rng = np.random.default_rng(0)
    layer, shape = LAYERS[name](rng)
    x = rng.standard_normal((batch, *shape))
    found = study.layer_jacobian(layer, x)
    expected = differences(layer, x)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=1e-8)
    for i in range(batch):
        np.testing.assert_allclose(found[i], mg.jacobian(lambda one: layer(one[None])[0])(x[i]), atol=1e-13)
    matrices = expected.reshape(batch, -1, np.prod(shape))
    eigenvalues = np.linalg.eigvalsh(matrices @ matrices.swapaxes(1, 2))[:, ::-1]  # squares of the singular values
    spectrum = study.jacobian_spectrum(layer, x)
    assert spectrum.shape == (batch, min(matrices.shape[1:]))
    np.testing.assert_allclose(spectrum**2, eigenvalues[:, : spectrum.shape[1]], atol=1e-6)


def test_float32_and_tensors():
    rng = np.random.default_rng(1)
    layer = nn.Linear(3, 2, rng=rng)
    x = mg.tensor(rng.standard_normal((2, 3)).astype(np.float32))
    assert study.layer_jacobian(layer, x).dtype == study.jacobian_spectrum(layer, x).dtype == np.float32
    assert layer.weight.grad is None


@pytest.mark.parametrize("score", ["scaled_dot", "additive"])
def test_a_layer_may_know_a_mask_for_each_sample(score):
    rng = np.random.default_rng(3)
    layer, x = SelfAttention(2, rng=rng, dtype=float, score=score), rng.standard_normal((3, 5, 2))
    valid = np.arange(5) < np.array([[5], [3], [1]])
    found = study.layer_jacobian(lambda x: layer(x, valid=valid), x)
    for i in range(3):
        alone = differences(lambda one, i=i: layer(one, valid=valid[i : i + 1]), x[i : i + 1])
        np.testing.assert_allclose(found[i], alone[0], atol=1e-8)
    spectrum = study.jacobian_spectrum(lambda x: layer(x, valid=valid), x)
    np.testing.assert_allclose(spectrum[2], np.linalg.svd(found[2].reshape(10, 10), compute_uv=False), atol=1e-12)


MIXING = {
    "mean": lambda x: x - mg.mean(x, 0),
    "standard deviation": lambda x: x / mg.std(x),
    "largest": lambda x: x * mg.max(x),
    "neighbour": lambda x: x + mg.roll(x, 1, 0),
    "last": lambda x: x * x[-1],
}


@pytest.mark.parametrize("name", MIXING)
@pytest.mark.parametrize("batch", [2, 4])
def test_layers_that_mix_samples(name, batch):
    with pytest.raises(ValueError, match="mixes samples"):
        study.layer_jacobian(MIXING[name], np.random.default_rng(4).standard_normal((batch, 3)))


def test_what_has_no_real_jacobian():
    table = nn.Embedding(5, 2, dtype=float)
    for f in (study.layer_jacobian, study.jacobian_spectrum):
        with pytest.raises(TypeError, match="after the embedding") as caught:
            f(table, np.array([[0, 3]]))
        assert "argnums" not in str(caught.value)
        with pytest.raises(TypeError, match=r"mg\.real"):
            f(np.fft.rfft, np.ones((2, 3)))


def test_empty():
    layer = nn.Linear(3, 2, dtype=float)
    assert study.layer_jacobian(layer, np.zeros((0, 3))).shape == (0, 2, 3)
    assert study.jacobian_spectrum(layer, np.zeros((0, 3))).shape == (0, 2)


def test_errors():
    x = np.random.default_rng(2).standard_normal((4, 3))
    with pytest.raises(ValueError, match="mixes samples"):
        study.layer_jacobian(lambda x: x - mg.mean(x, 0), x)
    with pytest.raises(ValueError, match="dropout"):
        study.layer_jacobian(nn.Dropout(0.5), np.ones((4, 40)))
    with pytest.raises(ValueError, match=r"from \(4, 3\) this one made \(\)"):
        study.layer_jacobian(mg.sum, x)
    with pytest.raises(ValueError, match="made tuple"):
        study.jacobian_spectrum(lambda x: (x, x), x)
    with pytest.raises(ValueError, match="sample 1 holds NaN or Inf"):
        study.jacobian_spectrum(mg.sqrt, np.array([[1.0], [0.0]]))
