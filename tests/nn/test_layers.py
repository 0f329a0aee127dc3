"""Each layer: against its formula and PyTorch, its gradients, its edges."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim

BOTH = pytest.mark.parametrize("dtype", [np.float32, np.float64])
TOLERANCE = {np.float32: {"rtol": 2e-5, "atol": 2e-6}, np.float64: {"rtol": 1e-12, "atol": 1e-13}}


def rng(seed=0):
    return np.random.default_rng(seed)


def check_gradients(layer, x=None, call=None):
    """First and second order, with respect to the layer's parameters and to x (left out where x is integer)."""
    call = call or (lambda params, x: nn.functional_call(layer, params, x))
    inputs = (dict(layer.named_parameters()), x)
    assert mg.gradcheck(call, inputs)
    assert mg.gradgradcheck(call, inputs)


def backward_with(y, cotangent):
    y.backward(np.asarray(cotangent, y.dtype))


# --- Linear ---


@BOTH
@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 4, 3), (2, 1, 4, 3), (0, 3)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_formula(dtype, shape, bias):
    layer = nn.Linear(3, 2, bias=bias, rng=rng(), dtype=dtype)
    if bias:
        layer.load_state_dict({"weight": layer.weight, "bias": np.array([10.0, -20.0])})
    x = mg.tensor(rng(1).standard_normal(shape), dtype=dtype, requires_grad=True)
    w, b = layer.weight.data.astype(float), np.array([10.0, -20.0]) * bias
    y = layer(x)
    assert y.shape == (*shape[:-1], 2)
    assert y.dtype == dtype
    np.testing.assert_allclose(y.data, np.einsum("...i,io->...o", x.data, w) + b, **TOLERANCE[dtype])
    c = rng(2).standard_normal(y.shape)
    backward_with(y, c)
    np.testing.assert_allclose(x.grad, np.einsum("...o,io->...i", c, w), **TOLERANCE[dtype])
    rows = np.einsum("ri,ro->io", x.data.reshape(-1, 3), c.reshape(-1, 2)) if x.size else np.zeros((3, 2))
    np.testing.assert_allclose(layer.weight.grad, rows, **TOLERANCE[dtype])
    if bias:
        np.testing.assert_allclose(layer.bias.grad, c.reshape(-1, 2).sum(0) if x.size else [0, 0], **TOLERANCE[dtype])
    else:
        assert layer.bias is None
        assert len(layer.parameters()) == 1


@pytest.mark.parametrize(
    ("x", "given"),
    [
        ([None] * 3, r"\[None, None, None\] \(dtype object\)"),
        (None, r"None \(dtype object\)"),
        (["1", "2", "3"], r"\['1', '2', '3'\] \(dtype <U1\)"),
        (np.ones(3, complex), r"an array of shape \(3,\) \(dtype complex128\)"),
        (mg.tensor(np.ones(3)) * 1j, r"an array of shape \(3,\) \(dtype complex128\)"),
        (mg.tensor(np.ones(3), requires_grad=True) * 1j, r"an array of shape \(3,\) \(dtype complex128\)"),
        (np.zeros(3, "datetime64[s]"), r"an array of shape \(3,\) \(dtype datetime64\[s\]\)"),
    ],
)
@pytest.mark.parametrize("layer", [nn.Linear(3, 4), nn.LayerNorm(3)])
def test_what_is_no_real_numbers_is_refused(layer, x, given):
    with pytest.raises(TypeError, match=f"takes real numbers, and was given {given}"):
        layer(x)


def test_dropout_refuses_what_is_no_numbers():
    for x in (None, ["1"]):
        with pytest.raises(TypeError, match="takes numbers, and was given"):
            nn.Dropout(0.5)(x)
    assert nn.Dropout(0.5)([1j, 2j]).dtype == np.complex128


def test_linear_initial_values():
    layer = nn.Linear(200, 100, rng=rng())
    assert layer.weight.dtype == layer.bias.dtype == np.float32
    np.testing.assert_array_equal(layer.bias.data, np.zeros(100))
    limit = np.sqrt(6 / 300)
    assert 0.99 * limit < np.abs(layer.weight.data).max() <= np.float32(limit)
    np.testing.assert_array_equal(nn.Linear(200, 100, rng=rng()).weight.data, layer.weight.data)
    assert (nn.Linear(200, 100, rng=rng(1)).weight.data != layer.weight.data).any()


@pytest.mark.parametrize("shape", [(2,), (5, 4), (), (3, 1)])
def test_linear_refuses_another_width(shape):
    with pytest.raises(ValueError, match="n_in"):
        nn.Linear(3, 2)(np.ones(shape))


@pytest.mark.parametrize("bias", [True, False])
def test_linear_gradcheck(bias):
    check_gradients(nn.Linear(3, 2, bias=bias, rng=rng(), dtype=float), rng(1).standard_normal((2, 2, 3)))


# --- Embedding ---


@BOTH
@pytest.mark.parametrize("padding_idx", [None, 0, 2])
def test_embedding_formula(dtype, padding_idx):
    layer = nn.Embedding(4, 3, padding_idx=padding_idx, rng=rng(), dtype=dtype)
    ids = np.array([[0, 2, 2], [3, 2, 0]])
    y = layer(ids)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y.data, layer.weight.data[ids])
    c = rng(1).standard_normal((2, 3, 3)).astype(dtype)
    backward_with(y, c)
    expected = np.zeros((4, 3))
    for position in np.ndindex(2, 3):
        if ids[position] != padding_idx:
            expected[ids[position]] += c[position]
    np.testing.assert_allclose(layer.weight.grad, expected, **TOLERANCE[dtype])


@pytest.mark.parametrize("make", [
    lambda p: optim.AdamW(p, 0.1, weight_decay=0.3),
    lambda p: optim.Adam(p, 0.1, weight_decay=0.3),
    lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.3),
])  # fmt: skip
def test_the_padding_row_is_zero_and_stays_so(make):
    layer = nn.Embedding(4, 3, padding_idx=1, rng=rng())
    assert (layer.weight.data[[0, 2, 3]] != 0).all()
    optimizer = make(layer.parameters())
    for _ in range(5):
        optimizer.zero_grad()
        loss = ((layer(np.array([[1, 0], [1, 3]])) - 1) ** 2).sum()
        loss.backward()
        np.testing.assert_array_equal(layer.weight.grad[1], 0)
        assert (layer.weight.grad[[0, 3]] != 0).all()
        optimizer.step()
    np.testing.assert_array_equal(layer.weight.data[1], 0)


@pytest.mark.parametrize("wrong", [-1, 4, 2**40, -(2**40)])
@pytest.mark.parametrize("padding_idx", [None, 0])
def test_an_id_out_of_range_is_named(wrong, padding_idx):
    layer = nn.Embedding(4, 3, padding_idx=padding_idx)
    with pytest.raises(IndexError, match=rf"id {wrong} .* 0 to 3"):
        layer(np.array([[0, 3], [wrong, 1]]))


@pytest.mark.parametrize("ids", [np.array([0.0, 1.0]), np.array([True]), mg.tensor([0.0]), [0.5], "word"])
def test_ids_that_are_no_integers_are_an_error(ids):
    with pytest.raises(TypeError, match="ids are integers"):
        nn.Embedding(4, 3)(ids)


@pytest.mark.parametrize("ids", [2, [1, 2], np.uint8([3, 0]), mg.tensor([[1], [2]]), np.zeros((2, 0), int)])
def test_ids_of_every_integer_kind(ids):
    layer = nn.Embedding(4, 3, rng=rng())
    plain = np.asarray(ids.data if isinstance(ids, mg.Tensor) else ids)
    np.testing.assert_array_equal(layer(ids).data, layer.weight.data[plain])


@pytest.mark.parametrize("padding_idx", [-1, 4])
def test_padding_idx_out_of_range(padding_idx):
    with pytest.raises(IndexError, match=f"padding_idx {padding_idx} "):
        nn.Embedding(4, 3, padding_idx=padding_idx)


def test_embedding_deviation():
    table = nn.Embedding(300, 100, deviation=0.02, rng=rng()).weight.data
    assert abs(table.std() / 0.02 - 1) < 0.02
    assert abs(table.mean()) < 0.0005


@pytest.mark.parametrize("padding_idx", [None, 2])
def test_embedding_gradcheck(padding_idx):
    layer = nn.Embedding(4, 2, rng=rng(), dtype=float)
    ids = np.array([[0, 3], [3, 1]])  # without the padding row, whose value has, by definition, no gradient
    layer.padding_idx = padding_idx
    check_gradients(layer, ids)


# --- LayerNorm ---


@BOTH
@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5)])
def test_layer_norm_formula(dtype, shape):
    layer = nn.LayerNorm(5, eps=0.1, dtype=dtype)
    weight, bias = rng(1).standard_normal((2, 5))
    layer.load_state_dict({"weight": weight, "bias": bias})
    x = 3 * rng().standard_normal(shape) + 2
    centred = x - x.mean(-1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 0.1) * weight + bias
    y = layer(x)
    assert y.dtype == dtype
    np.testing.assert_allclose(y.data, expected, **TOLERANCE[dtype])


def test_layer_norm_starts_as_the_plain_normalisation():
    y = nn.LayerNorm(50)(rng().standard_normal((4, 50)) * 100 + 7).data
    np.testing.assert_allclose(y.mean(-1), 0, atol=1e-6)
    np.testing.assert_allclose(y.var(-1), 1, rtol=1e-5)


def test_b021_layer_norm_of_a_constant_row():
    layer = nn.LayerNorm(3, dtype=np.float64)
    x = mg.tensor([[5.0, 5.0, 5.0], [0.0, 0.0, 0.0]], requires_grad=True)
    y = layer(x)
    np.testing.assert_array_equal(y.data, np.zeros((2, 3)))
    backward_with(y, [[1, 2, 3], [1, 2, 3]])
    np.testing.assert_allclose(x.grad, [[-316.2277660168, 0, 316.2277660168]] * 2, rtol=1e-11, atol=1e-11)
    np.testing.assert_array_equal(layer.weight.grad, np.zeros(3))
    np.testing.assert_array_equal(layer.bias.grad, [2, 4, 6])


@BOTH
@pytest.mark.parametrize("value", [0.1, 1e6 / 3, -1e-3])
def test_layer_norm_of_a_constant_row_whose_mean_rounds_stays_finite_and_small(dtype, value):
    x = mg.tensor(np.full((2, 7), value), dtype=dtype, requires_grad=True)
    y = nn.LayerNorm(7, dtype=dtype)(x)
    assert np.isfinite(y.data).all()
    bound = 8 * np.finfo(dtype).eps * abs(value) / np.sqrt(1e-5)
    assert np.abs(y.data).max() <= bound
    y.sum().backward()
    assert np.isfinite(x.grad).all()


@pytest.mark.parametrize(("dim", "shape"), [(1, (3, 5)), (5, (3, 1)), (5, (3, 4)), (5, ())])
def test_layer_norm_refuses_another_width(dim, shape):
    with pytest.raises(ValueError, match="shape"):
        nn.LayerNorm(dim)(np.ones(shape))


def test_layer_norm_gradcheck():
    layer = nn.LayerNorm(4, eps=0.01, dtype=float)
    layer.load_state_dict({"weight": rng(1).standard_normal(4), "bias": rng(2).standard_normal(4)})
    check_gradients(layer, rng(3).standard_normal((2, 2, 4)))


# --- Dropout ---


@BOTH
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_keeps_the_mean_and_drops_as_many_as_it_says(dtype, p):
    x = np.full((400, 500), 3, dtype)
    y = nn.Dropout(p, rng=rng())(mg.tensor(x)).data
    assert y.dtype == dtype
    kept = y != 0
    np.testing.assert_array_equal(y[kept], dtype(3) * dtype(1 / (1 - p)))
    deviation = np.sqrt(p * (1 - p) / x.size)
    assert abs(kept.mean() - (1 - p)) < 5 * deviation
    assert abs(y.mean(dtype=float) - 3) < 5 * 3 * deviation / (1 - p)


def test_dropped_elements_are_independent():
    kept = nn.Dropout(0.5, rng=rng())(mg.tensor(np.ones((300, 400)))).data != 0
    for shifted, base in [(kept[1:], kept[:-1]), (kept[:, 1:], kept[:, :-1])]:
        assert abs((shifted == base).mean() - 0.5) < 0.01
    assert (kept.mean(0) > 0).all()
    assert (kept.mean(0) < 1).all()


def test_dropout_gradient_flows_through_what_was_kept():
    x = mg.tensor(np.ones((20, 30)), requires_grad=True)
    y = nn.Dropout(0.25, rng=rng())(x)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad, y.data)  # both are the scaled mask


@pytest.mark.parametrize("layer", [nn.Dropout(0.5).eval(), nn.Dropout(0)])
def test_dropout_is_the_identity_in_eval_and_at_0_and_draws_nothing(layer):
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    before = mg.random.get_state()
    assert layer(x) is x
    np.testing.assert_array_equal(layer([1.0, 2.0]).data, [1, 2])
    assert mg.random.get_state() == before


def test_dropout_is_reproducible_by_seed_and_differs_between_calls():
    layer, x = nn.Dropout(0.5), mg.tensor(np.ones(1000))
    mg.seed(3)
    first, second = layer(x).data, layer(x).data
    assert (first != second).any()
    mg.seed(3)
    np.testing.assert_array_equal(layer(x).data, first)
    np.testing.assert_array_equal(layer(x).data, second)
    mg.seed(4)
    assert (layer(x).data != first).any()


def test_dropout_with_a_generator_of_its_own_leaves_the_default_one_alone():
    x = mg.tensor(np.ones(1000))
    one, other = nn.Dropout(0.5, rng=rng(7)), nn.Dropout(0.5, rng=rng(7))
    before = mg.random.get_state()
    first = one(x).data
    mg.seed(99)
    np.testing.assert_array_equal(other(x).data, first)
    mg.random.set_state(before)
    one(x)
    assert mg.random.get_state() == before


@pytest.mark.parametrize("x", [np.full(1000, 3), np.ones(1000, bool), [1, 2] * 500])
def test_dropout_of_integers_scales_too(x):
    y = nn.Dropout(0.2, rng=rng())(x).data
    np.testing.assert_allclose(y[y != 0], np.asarray(x)[y != 0] / 0.8, rtol=1e-3)
    assert (y == 0).any()


@pytest.mark.parametrize("p", [-0.1, 1, 1.5, float("nan")])
def test_dropout_refuses_what_is_no_probability(p):
    with pytest.raises(ValueError, match="probability"):
        nn.Dropout(p)


def test_dropout_gradcheck():
    def call(x):
        return nn.Dropout(0.4, rng=rng(5))(mg.sin(x))

    x = rng().standard_normal((3, 4))
    assert mg.gradcheck(call, x)
    assert mg.gradgradcheck(call, x)


# --- Sequential ---


def test_sequential_applies_modules_and_functions_in_order():
    first, last = nn.Linear(3, 4, rng=rng()), nn.Linear(4, 2, rng=rng(1))
    model = nn.Sequential(first, mg.relu, lambda h: h * 2, last)
    x = rng(2).standard_normal((5, 3)).astype(np.float32)
    np.testing.assert_array_equal(model(x).data, last(mg.relu(first(x)) * 2).data)
    by_hand = np.maximum(x @ first.weight.data, 0) * 2 @ last.weight.data
    np.testing.assert_allclose(model(x).data, by_hand, rtol=1e-5, atol=1e-6)
    assert [name for name, _ in model.named_parameters()] == [
        "layers.0.weight", "layers.0.bias", "layers.3.weight", "layers.3.bias",
    ]  # fmt: skip
    assert nn.Sequential()(x) is x


def test_sequential_gradcheck():
    model = nn.Sequential(
        nn.Linear(3, 4, rng=rng(), dtype=float),
        mg.tanh,
        nn.LayerNorm(4, eps=0.1, dtype=float),
        nn.Linear(4, 1, rng=rng(1), dtype=float),
    )
    check_gradients(model, rng(2).standard_normal((2, 3)))


# --- empty batches ---


def test_b067_linear_on_an_empty_batch():
    layer = nn.Linear(3, 2)
    y = layer(np.zeros((0, 3)))
    assert y.shape == (0, 2)
    y.sum().backward()
    np.testing.assert_array_equal(layer.weight.grad, np.zeros((3, 2)))
    np.testing.assert_array_equal(layer.bias.grad, np.zeros(2))


@pytest.mark.parametrize("leading", [(0,), (0, 4), (4, 0), (2, 0, 3)])
@pytest.mark.parametrize(
    ("layer", "width", "out"),
    [(nn.Linear(3, 2), 3, 2), (nn.LayerNorm(3), 3, 3), (nn.Dropout(0.5), 3, 3), (nn.Embedding(4, 2), None, 2),
     (nn.Embedding(4, 2, padding_idx=0), None, 2),
     (nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), mg.relu, nn.Linear(5, 2)), 3, 2)],
)  # fmt: skip
def test_b067_every_layer_passes_an_empty_batch(layer, width, out, leading):
    x = (
        np.zeros(leading, int)
        if width is None
        else mg.tensor(np.zeros((*leading, width), np.float32), requires_grad=True)
    )
    y = layer(x)
    assert y.shape == (*leading, out)
    y.sum().backward()
    for p in layer.parameters():
        np.testing.assert_array_equal(p.grad, np.zeros(p.shape))
        p.grad = None
    if width is not None:
        assert x.grad.shape == x.shape


# --- against PyTorch ---


def as_torch(torch, layer, x, weight, bias):
    """The layer with these values, a tracked input."""
    layer = layer.to(getattr(torch, np.dtype(x.dtype).name))
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
        layer.bias.copy_(torch.tensor(bias))
    return layer, torch.tensor(x, requires_grad=True)


@BOTH
@pytest.mark.parametrize("kind", ["linear", "layer_norm"])
def test_layers_equal_torch(dtype, kind):
    torch = pytest.importorskip("torch")
    x = (rng().standard_normal((2, 3, 6)) * 2 + 1).astype(dtype)
    if kind == "linear":
        ours = nn.Linear(6, 4, dtype=dtype)
        weight, bias = rng(1).standard_normal((6, 4)), rng(2).standard_normal(4)
        theirs, tx = as_torch(torch, torch.nn.Linear(6, 4), x, weight.T, bias)
    else:
        ours = nn.LayerNorm(6, dtype=dtype)
        weight, bias = rng(1).standard_normal((2, 6))
        theirs, tx = as_torch(torch, torch.nn.LayerNorm(6), x, weight, bias)
    ours.load_state_dict({"weight": weight, "bias": bias})
    tensor = mg.tensor(x, requires_grad=True)
    y, ty = ours(tensor), theirs(tx)
    np.testing.assert_allclose(y.data, ty.detach().numpy(), **TOLERANCE[dtype])
    c = rng(3).standard_normal(y.shape).astype(dtype)
    y.backward(c)
    ty.backward(torch.tensor(c))
    loose = {k: 5 * v for k, v in TOLERANCE[dtype].items()}
    np.testing.assert_allclose(tensor.grad, tx.grad.numpy(), **loose)
    weight_grad = theirs.weight.grad.numpy()
    np.testing.assert_allclose(ours.weight.grad, weight_grad.T if kind == "linear" else weight_grad, **loose)
    np.testing.assert_allclose(ours.bias.grad, theirs.bias.grad.numpy(), **loose)


@pytest.mark.parametrize("padding_idx", [None, 0, 3])
def test_embedding_equals_torch(padding_idx):
    torch = pytest.importorskip("torch")
    ours = nn.Embedding(5, 3, padding_idx=padding_idx, rng=rng())
    theirs = torch.nn.Embedding(5, 3, padding_idx=padding_idx)
    with torch.no_grad():
        theirs.weight.copy_(torch.tensor(ours.weight.data.copy()))
    ids = rng(1).integers(0, 5, (4, 6))
    y, ty = ours(ids), theirs(torch.tensor(ids))
    np.testing.assert_array_equal(y.data, ty.detach().numpy())
    (y**2).sum().backward()
    (ty**2).sum().backward()
    np.testing.assert_allclose(ours.weight.grad, theirs.weight.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_sequential_is_a_sequence_of_its_layers():
    net = nn.Sequential(nn.Linear(2, 3), mg.tanh, nn.Linear(3, 1))
    assert list(net) == net.layers == [net[0], net[1], net[-1]]
    assert len(net) == 3
    head = net[:2]
    assert head[0] is net[0]
    x = np.ones((4, 2), np.float32)
    np.testing.assert_array_equal(head(x).data, np.tanh(net[0](x)).data)
    with pytest.raises(IndexError):
        net[3]


@pytest.mark.parametrize("make", [lambda: nn.Linear(2, 3), lambda: nn.Embedding(3, 2), lambda: nn.LayerNorm(2)])
def test_parameters_are_float32_unless_told_otherwise(make):
    assert {p.dtype for p in make().parameters()} == {np.dtype(np.float32)}
