"""FCStack and WindowFC against loops written by hand."""

import math

import numpy as np
import pytest

from minigrad import nn
from minigrad.check.gradcheck import gradcheck, gradgradcheck
from models import FCStack, WindowFC


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def generator():
    return np.random.default_rng(1)


def with_biases(model):
    """Biases start at 0; give them other values, so that a missing one shows."""
    state = {
        name: array + random(*array.shape, seed=9) * (array.ndim == 1) for name, array in model.state_dict().items()
    }
    model.load_state_dict(state)
    return model


BY_HAND = {
    "relu": lambda z: max(z, 0.0),
    "tanh": math.tanh,
    "sigmoid": lambda z: 1 / (1 + math.exp(-z)),
    "gelu": lambda z: z / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))),
}


def stack_by_hand(model, vector, activation="relu"):
    for number, layer in enumerate(model.layers):
        vector = [
            sum(v * w for v, w in zip(vector, column)) + b for column, b in zip(layer.weight.data.T, layer.bias.data)
        ]
        if number < len(model.layers) - 1:
            vector = [BY_HAND[activation](z) for z in vector]
    return vector


@pytest.mark.parametrize("activation", BY_HAND)
@pytest.mark.parametrize("sizes", [(3, 2), (3, 5, 2), (3, 4, 4, 2)], ids=str)
def test_stack_equals_the_loop_by_hand(sizes, activation):
    model = with_biases(FCStack(sizes, activation=activation, rng=generator(), dtype=np.float64))
    x = random(2, 4, 3)
    wanted = [[stack_by_hand(model, vector, activation) for vector in row] for row in x]
    np.testing.assert_allclose(model(x).data, wanted, rtol=0, atol=1e-13)
    np.testing.assert_allclose(model(x[1, 2]).data, wanted[1][2], rtol=0, atol=1e-13)


def test_wrong_arguments_are_value_errors():
    with pytest.raises(ValueError, match="activation"):
        FCStack((3, 2), activation="softplus")
    with pytest.raises(ValueError, match="widths"):
        FCStack((3,))
    with pytest.raises(ValueError, match="fit"):
        FCStack((3, 2))(random(2, 4, 5))
    with pytest.raises(ValueError, match="batch, n, dim"):
        WindowFC(3, 1, (2,))(random(4, 3))


def window_by_hand(model, x, neighbours):
    batch, n, dim = x.shape
    output = []
    for b in range(batch):
        row = []
        for i in range(n):
            window = []
            for j in range(i - neighbours, i + neighbours + 1):
                window.extend(x[b, j] if 0 <= j < n else [0.0] * dim)
            row.append(stack_by_hand(model.fc, window))
        output.append(row)
    return output


@pytest.mark.parametrize("neighbours", [0, 1, 2, 6])
def test_window_equals_the_loop_by_hand(neighbours):
    model = with_biases(WindowFC(3, neighbours, (5, 2), rng=generator(), dtype=np.float64))
    x = random(2, 4, 3)
    np.testing.assert_allclose(model(x).data, window_by_hand(model, x, neighbours), rtol=0, atol=1e-13)


@pytest.mark.parametrize(("w", "D", "H", "K"), [(0, 3, 5, 2), (1, 3, 5, 2), (4, 7, 11, 13)])
def test_window_parameters_grow_with_the_window(w, D, H, K):
    assert sum(p.size for p in WindowFC(D, w, (H, K)).parameters()) == (2 * w + 1) * D * H + H + H * K + K


def test_a_window_sees_its_neighbours_and_no_further():
    model = WindowFC(3, 1, (8, 2), rng=generator(), dtype=np.float64)
    x = random(1, 6, 3)
    changed = x.copy()
    changed[:, 3] += 1.0
    differs = (model(x).data != model(changed).data).any(-1)[0]
    np.testing.assert_array_equal(differs, [False, False, True, True, True, False])


def test_edges_are_zeros_and_equal_to_padding():
    model = with_biases(WindowFC(3, 2, (5, 2), rng=generator(), dtype=np.float64))
    x = random(1, 4, 3)
    wide = np.concatenate([np.full((1, 3, 3), np.nan), x, np.full((1, 3, 3), np.nan)], axis=1)
    valid = np.array([[False] * 3 + [True] * 4 + [False] * 3])
    np.testing.assert_allclose(model(wide, valid=valid).data[:, 3:7], model(x).data, rtol=0, atol=1e-13)


def test_equal_vectors_get_equal_labels_from_a_stack_but_not_from_a_window():
    i, saw, a = random(3, 4)
    sentence = np.stack([i, saw, a, saw])[None]
    y = FCStack((4, 8, 3), rng=generator(), dtype=np.float64)(sentence).data[0]
    np.testing.assert_allclose(y[1], y[3], rtol=0, atol=1e-12)
    y = WindowFC(4, 1, (8, 3), rng=generator(), dtype=np.float64)(sentence).data[0]
    assert np.abs(y[1] - y[3]).max() > 1e-3


@pytest.mark.parametrize("activation", BY_HAND)
def test_stack_gradients_of_both_orders(activation):
    model = with_biases(FCStack((3, 4, 2), activation=activation, rng=generator(), dtype=np.float64))

    def call(x, p):
        return nn.functional_call(model, p, x, valid=np.array([[True, True], [True, False]]))

    assert gradcheck(call, (random(2, 2, 3), model.state_dict()))
    assert gradgradcheck(call, (random(2, 2, 3), model.state_dict()))


def test_window_gradients_of_both_orders():
    model = with_biases(WindowFC(2, 1, (3, 2), rng=generator(), dtype=np.float64))

    def call(x, p):
        return nn.functional_call(model, p, x, valid=np.array([[True, True, False]]))

    assert gradcheck(call, (random(1, 3, 2), model.state_dict()))
    assert gradgradcheck(call, (random(1, 3, 2), model.state_dict()))


def test_dropout_stands_between_layers_and_only_in_training():
    model = FCStack((3, 500, 500), dropout=0.5, rng=generator(), dtype=np.float64)
    model.layers[1].weight = nn.Parameter(np.eye(500))
    x = random(1, 3)
    hidden = np.maximum(x @ model.layers[0].weight.data, 0)
    np.testing.assert_allclose(model.eval()(x).data, hidden, rtol=0, atol=1e-13)
    y = model.train()(x).data
    active = hidden > 0
    assert 0.3 < (y[active] == 0).mean() < 0.7
    np.testing.assert_allclose(y[y != 0], 2 * hidden[y != 0], rtol=0, atol=1e-12)
