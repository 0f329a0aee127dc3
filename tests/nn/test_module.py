"""Module: what is found inside, by which name; state both ways; modes; functional_call; copies."""

import copy
import gc
import operator
import pickle
import threading
import weakref

import numpy as np
import pytest

import minigrad as mg
from minigrad import engine, nn


class Net(nn.Module):
    """Two layers with a tied weight and something in every kind of container."""

    def __init__(self, rng=None, dtype=np.float32):
        self.embed = nn.Embedding(5, 3, rng=rng, dtype=dtype)
        self.layers = [nn.Linear(3, 4, rng=rng, dtype=dtype), nn.Linear(4, 3, rng=rng, dtype=dtype)]
        self.scale = nn.Parameter(np.ones((), dtype))
        self.tied = self.embed.weight

    def forward(self, ids):
        h = self.layers[1](mg.tanh(self.layers[0](self.embed(ids)))) * self.scale
        return h @ self.tied.T


class Small(nn.Module):
    def __init__(self, **attributes):
        vars(self).update(attributes)


def parameter(*shape, dtype=np.float32):
    return nn.Parameter(np.zeros(shape, dtype))


def names(module):
    return [name for name, _ in module.named_parameters()]


def snapshot(module):
    return [(id(p), p._array, p._node, p.data.copy()) for p in module.parameters()]


def assert_as_before(module, before):
    for p, (identity, array, node, value) in zip(module.parameters(), before):
        assert id(p) == identity
        assert p._array is array
        assert p._node is node
        np.testing.assert_array_equal(p.data, value)


# --- discovery ---


def test_b096_layers_in_a_list_are_found():
    model = Small(layers=[nn.Linear(2, 3), nn.Linear(3, 1)])
    assert len(model.parameters()) == 4
    assert sum(p.size for p in model.parameters()) == 13
    assert names(model) == ["layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"w": parameter(1)}, ["w"]),
        ({"a": [parameter(1)], "b": (parameter(1), parameter(2))}, ["a.0", "b.0", "b.1"]),
        ({"a": {"x": parameter(1), "y": nn.Linear(1, 1, bias=False)}}, ["a.x", "a.y.weight"]),
        ({"a": {3: parameter(1)}}, ["a.3"]),
        ({"a": [{"x": ([parameter(1)],)}]}, ["a.0.x.0.0"]),
        ({"a": Small(b=Small(c=[parameter(1)]))}, ["a.b.c.0"]),
        ({"a": mg.tensor([1.0], requires_grad=True), "b": 3, "c": "text", "d": None, "e": np.ones(2)}, []),
        ({"a": nn.Sequential(nn.Linear(1, 1), mg.relu, nn.Linear(1, 1, bias=False))},
         ["a.layers.0.weight", "a.layers.0.bias", "a.layers.2.weight"]),
    ],
)  # fmt: skip
def test_names_are_paths(attributes, expected):
    assert names(Small(**attributes)) == expected


def test_what_is_set_later_is_found_and_what_is_deleted_is_not():
    model = Small(a=nn.Linear(2, 2))
    model.a.bias = None
    model.extra = parameter(3)
    assert names(model) == ["a.weight", "extra"]
    model.a = nn.Linear(2, 5)
    assert names(model) == ["a.weight", "a.bias", "extra"]
    assert dict(model.named_parameters())["a.weight"].shape == (2, 5)


def test_tied_parameters_and_modules_come_once_under_the_first_path():
    layer = nn.Linear(2, 2)
    model = Small(first=layer, again=[layer], weight=layer.weight)
    assert names(model) == ["first.weight", "first.bias"]
    assert [name for name, _ in model.named_modules()] == ["", "first"]
    assert list(Net().state_dict()) == [
        "embed.weight", "layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias", "scale",
    ]  # fmt: skip


def test_named_modules_with_a_prefix_and_equal_but_distinct_modules():
    model = Small(a=[nn.Linear(1, 1), nn.Linear(1, 1)])
    assert [name for name, _ in model.named_modules("net")] == ["net", "net.a.0", "net.a.1"]
    assert list(model.modules()) == [model, *model.a]


def test_cycles_end():
    model = Small(a=nn.Linear(1, 1))
    model.a.parent = model
    model.itself = model
    loop = [parameter(2)]
    loop.append(loop)
    model.loop = loop
    assert names(model) == ["a.weight", "a.bias", "loop.0"]
    assert len(list(model.modules())) == 2
    assert model.eval() is model


def test_shared_modules_do_not_cost_exponential_time():
    model = Small(w=parameter(1))
    for _ in range(200):  # 2^200 paths lead to w
        model = Small(a=model, b=model)
    assert names(model) == [".".join(["a"] * 200 + ["w"])]


@pytest.mark.parametrize(
    "clash",
    [
        {"d": {1: parameter(1), "1": parameter(1)}},
        {"d": {"a.b": parameter(1), "a": {"b": parameter(1)}}},
    ],
)
def test_two_parameters_of_one_name_are_an_error_and_not_one_of_them_lost(clash):
    with pytest.raises(ValueError, match=r"two parameters called 'd\."):
        Small(**clash).state_dict()


def test_parameter_is_a_trainable_copy():
    source = np.ones(3, np.float32)
    p = nn.Parameter(source)
    source[:] = 7
    np.testing.assert_array_equal(p.data, [1, 1, 1])
    assert p.requires_grad
    assert p.dtype == np.float32
    with pytest.raises(TypeError, match="int64"):
        nn.Parameter(np.arange(3, dtype=np.int64))


def test_a_module_without_forward_says_so_and_repr_counts_parameters():
    with pytest.raises(NotImplementedError, match=r"Small does not define forward\(\)"):
        Small()(1)
    assert repr(Small(a=nn.Linear(100, 20))) == "Small(2,020 parameters)"


# --- modes ---


def test_train_and_eval_reach_everything_below():
    model = Small(a=nn.Dropout(0.5), b=[nn.Sequential(nn.Dropout(0.5))], c={"k": (nn.Dropout(0.5),)})
    assert all(m.training for m in model.modules())
    assert model.eval() is model
    assert not any(m.training for m in model.modules())
    assert len(list(model.modules())) == 5
    assert model.train() is model
    assert all(m.training for m in model.modules())
    model.b[0].eval()
    assert [m.training for m in model.modules()] == [True, True, False, False, True]


# --- state ---


def test_state_dict_gives_copies():
    model = Net(np.random.default_rng(0))
    state = model.state_dict()
    before = {name: p.data.copy() for name, p in model.named_parameters()}
    for array in state.values():
        array[...] = 99
    for name, p in model.named_parameters():
        np.testing.assert_array_equal(p.data, before[name])


def test_load_state_dict_round_trip_copies_in_and_keeps_tensors_and_ties():
    one, other = Net(np.random.default_rng(1)), Net(np.random.default_rng(2))
    identities = [id(p) for p in other.parameters()]
    state = one.state_dict()
    other.load_state_dict(state)
    ids = np.array([[0, 3]])
    np.testing.assert_array_equal(other(ids).data, one(ids).data)
    for array in state.values():
        array[...] = 99
    np.testing.assert_array_equal(other(ids).data, one(ids).data)
    assert [id(p) for p in other.parameters()] == identities
    assert other.tied is other.embed.weight


def test_load_state_dict_takes_tensors_and_casts_between_floats():
    one, other = Net(np.random.default_rng(1), np.float64), Net(np.random.default_rng(2))
    other.load_state_dict(dict(one.named_parameters()))
    for p, q in zip(one.parameters(), other.parameters()):
        assert q.dtype == np.float32
        np.testing.assert_array_equal(q.data, p.data.astype(np.float32))


@pytest.mark.parametrize("state", [None, [1], np.ones(2), "weights.npz"])
def test_what_is_no_dict_of_parameters(state):
    layer = nn.Linear(2, 2)
    message = f"takes a dict of names to .*, and was given {type(state).__name__}"
    with pytest.raises(TypeError, match=f"Linear.load_state_dict {message}"):
        layer.load_state_dict(state)
    with pytest.raises(TypeError, match=f"functional_call {message}"):
        nn.functional_call(layer, state, np.ones(2))


def test_load_state_dict_from_views_of_its_own_parameters():
    model = Small(a=nn.Parameter([1.0, 2.0]), b=nn.Parameter([3.0, 4.0]))
    model.load_state_dict({"a": model.b.data, "b": model.a.data})
    np.testing.assert_array_equal(model.a.data, [3, 4])
    np.testing.assert_array_equal(model.b.data, [1, 2])


@pytest.mark.parametrize(
    ("own", "given"),
    [((32, 4), (1, 4)), ((32, 4), (4,)), ((32, 4), ()), ((), (3,)), ((), (1,)), ((1,), ()), ((3, 2), (2, 3)),
     ((2, 3), (6,)), ((0,), (1,)), ((5, 0), (0,))],
)  # fmt: skip
def test_b098_a_wrong_shape_is_never_broadcast(own, given):
    model = Small(w=nn.Parameter(np.full(own, 7.0)))
    with pytest.raises(ValueError, match="w") as info:
        model.load_state_dict({"w": np.ones(given)})
    assert str(own) in str(info.value)
    assert str(given) in str(info.value)
    np.testing.assert_array_equal(model.w.data, np.full(own, 7.0))


def test_b098_all_errors_are_listed_and_nothing_is_loaded():
    model = Net(np.random.default_rng(0))
    before = snapshot(model)
    state = {name: np.ones_like(array) for name, array in model.state_dict().items()}
    state["layers.0.weight"] = np.ones((1, 4))
    state["scale"] = np.ones(3)
    state["layers.1.weight"] = np.ones((4, 3), int)
    del state["embed.weight"], state["layers.1.bias"]
    state["layers.7.weight"] = np.ones(2)
    with pytest.raises(ValueError, match="nothing was loaded") as info:
        model.load_state_dict(state)
    lines = {line.strip() for line in str(info.value).splitlines()[1:]}
    assert lines == {
        "missing: embed.weight (5, 3)",
        "missing: layers.1.bias (3,)",
        "unknown: layers.7.weight (2,)",
        "layers.0.weight: expected (3, 4) float32, got (1, 4) float64",
        "scale: expected () float32, got (3,) float64",
        "layers.1.weight: expected (4, 3) float32, got (4, 3) int64",
    }
    assert_as_before(model, before)


def test_loading_between_forward_and_backward_is_noticed():
    layer = nn.Linear(2, 2, rng=np.random.default_rng(0))
    x = mg.tensor(np.ones((1, 2), np.float32), requires_grad=True)
    loss = layer(x).sum()
    layer.load_state_dict(layer.state_dict())
    with pytest.raises(RuntimeError, match="written in place"):
        loss.backward()
    assert x.grad is None


# --- functional_call ---


def loss_of(model, params, ids):
    return (nn.functional_call(model, params, ids) ** 2).sum()


def test_functional_call_gradients_equal_backward():
    model = Net(np.random.default_rng(0))
    ids = np.array([[0, 3, 3], [4, 1, 0]])
    params = dict(model.named_parameters())
    gradients = mg.grad(lambda p: loss_of(model, p, ids))(params)
    assert all(p.grad is None for p in model.parameters())
    (model(ids) ** 2).sum().backward()
    assert list(gradients) == names(model)
    for name, p in params.items():
        assert type(gradients[name]) is np.ndarray
        np.testing.assert_array_equal(gradients[name], p.grad)


def test_functional_call_uses_other_values_and_keeps_those_not_named():
    model = Net(np.random.default_rng(0))
    ids = np.array([0, 1])
    expected = 2 * model(ids).data
    before = snapshot(model)
    doubled = nn.functional_call(model, {"scale": np.float32(2)}, ids)
    np.testing.assert_array_equal(doubled.data, expected)
    assert_as_before(model, before)


def test_functional_call_with_all_values_of_another_dtype_computes_in_it():
    layer = nn.Linear(3, 2)
    params = {name: value.astype(np.float64) for name, value in layer.state_dict().items()}
    x = mg.tensor(np.random.default_rng(0).standard_normal((4, 3)), requires_grad=True)
    y = nn.functional_call(layer, params, x)
    assert y.dtype == np.float64
    np.testing.assert_allclose(y.data, x.data @ params["weight"] + params["bias"], rtol=1e-14)
    with pytest.raises(TypeError, match="float64"):
        nn.functional_call(layer, {"weight": params["weight"]}, x)
    assert layer.weight.dtype == np.float32


def test_functional_call_passes_keywords_on():
    class Keyworded(nn.Module):
        def __init__(self):
            self.w = nn.Parameter(1.0)

        def forward(self, x, *, times):
            return self.w * x * times

    assert nn.functional_call(Keyworded(), {"w": 3.0}, 5.0, times=2.0).item() == 30


def test_functional_call_second_order_against_a_closed_form():
    # f(w, b) = sum((x w + b)^3): the Hessian is sum over rows of 6 (x w + b) [x, 1] [x, 1]^T
    rng = np.random.default_rng(0)
    layer = nn.Linear(3, 1, rng=rng, dtype=np.float64)
    x = rng.standard_normal((4, 3))
    flat = np.concatenate([layer.weight.data.ravel(), layer.bias.data])
    v = rng.standard_normal(4)

    def f(theta):
        return (nn.functional_call(layer, {"weight": theta[:3].reshape(3, 1), "bias": theta[3:]}, x) ** 3).sum()

    product = mg.grad(lambda theta: (mg.grad(f)(theta) * v).sum())(flat)
    extended = np.concatenate([x, np.ones((4, 1))], 1)
    hessian = (6 * (extended @ flat))[:, None, None] * extended[:, :, None] * extended[:, None, :]
    np.testing.assert_allclose(product, hessian.sum(0) @ v, rtol=1e-12)


def test_functional_call_nests():
    class Product(nn.Module):
        def __init__(self):
            self.w = nn.Parameter(1.0)

        def forward(self, x):
            return self.w * x

    module = Product()
    inner = mg.grad(lambda y, x: nn.functional_call(module, {"w": x}, y))
    assert mg.grad(lambda x: x * inner(2.0, x))(3.0) == 6
    twice = lambda w, u: nn.functional_call(module, {"w": w}, nn.functional_call(module, {"w": u}, 5.0))  # noqa: E731
    assert mg.grad(twice, (0, 1))(2.0, 3.0) == (15, 10)
    assert module.w.item() == 1
    assert module.w.grad is None


@pytest.mark.parametrize("outer", [False, True])
def test_functional_call_restores_after_an_exception(outer):
    class Failing(nn.Module):
        def __init__(self):
            self.w = nn.Parameter([1.0, 2.0])

        def forward(self):
            assert self.w.data[0] == 5
            raise KeyboardInterrupt

    module = Failing()
    module.w.grad = [3.0, 4.0]
    before = snapshot(module)
    call = lambda w: nn.functional_call(module, {"w": w})  # noqa: E731
    with pytest.raises(KeyboardInterrupt):
        mg.grad(call)(np.array([5.0, 6.0])) if outer else call(np.array([5.0, 6.0]))
    assert_as_before(module, before)
    np.testing.assert_array_equal(module.w.grad, [3, 4])
    (module.w * 2).sum().backward()  # the mode of recording is as before too
    np.testing.assert_array_equal(module.w.grad, [5, 6])


@pytest.mark.parametrize(
    ("params", "error", "match"),
    [
        ({"wieght": np.ones((2, 3), np.float32)}, KeyError, r"no parameter 'wieght'; it has weight, bias"),
        ({"weight": np.ones((1, 3), np.float32)}, ValueError, r"shape \(2, 3\).*shape \(1, 3\)"),
        ({"bias": np.ones(3)}, TypeError, "float32.*float64"),
    ],
)
def test_functional_call_refuses_what_does_not_fit(params, error, match):
    layer = nn.Linear(2, 3)
    before = snapshot(layer)
    with pytest.raises(error, match=match):
        nn.functional_call(layer, {"bias": np.zeros(3, np.float32), **params}, np.ones((1, 2)))
    assert_as_before(layer, before)


def test_functional_call_lets_gradients_reach_tensors_outside():
    layer = nn.Linear(2, 1, bias=False, dtype=np.float64)
    scale = mg.tensor(3.0, requires_grad=True)
    nn.functional_call(layer, {"weight": np.ones((2, 1)) * scale}, [[1.0, 10.0]]).sum().backward()
    assert scale.grad == 11
    assert layer.weight.grad is None


# --- copies ---


def pickled(model):
    return pickle.loads(pickle.dumps(model))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickled])
def test_copies_are_separate_keep_ties_and_carry_no_history(duplicate):
    model = Net(np.random.default_rng(0)).eval()
    ids = np.array([[1, 2]])
    loss = (model(ids) ** 2).sum()  # the graph at hand must not come along
    loss.backward()
    twin = duplicate(model)
    assert twin.tied is twin.embed.weight
    assert names(twin) == names(model)
    assert not twin.training
    np.testing.assert_array_equal(twin(ids).data, model(ids).data)
    for p, q in zip(model.parameters(), twin.parameters()):
        assert type(q) is nn.Parameter
        assert q.requires_grad
        assert q._node.edges == ()
        assert not np.shares_memory(p._array, q._array)
        np.testing.assert_array_equal(p.grad, q.grad)
        assert not np.shares_memory(p.grad, q.grad)
    before = model.state_dict()
    with mg.no_grad():
        for q in twin.parameters():
            q += 1.0
    for name, p in model.named_parameters():
        np.testing.assert_array_equal(p.data, before[name])
    gradient = model.tied.grad.copy()
    (twin(ids) ** 2).sum().backward()
    np.testing.assert_array_equal(model.tied.grad, gradient)


def test_a_model_that_keeps_a_tensor_with_history_cannot_be_copied_silently():
    model = Net()
    model.last = model(np.array([0]))
    with pytest.raises(RuntimeError, match="detach"):
        copy.deepcopy(model)


def test_a_frozen_parameter_stays_frozen_in_a_copy():
    model = Net()
    model.scale.requires_grad = False
    twin = copy.deepcopy(model)
    assert not twin.scale.requires_grad
    assert "scale" in twin.state_dict()


# --- dtypes ---


class Everything(nn.Module):
    def __init__(self, dtype=np.float32):
        rng = np.random.default_rng(0)
        self.body = nn.Sequential(
            nn.Linear(3, 4, rng=rng, dtype=dtype), mg.relu, nn.LayerNorm(4, dtype=dtype), nn.Dropout(0.5, rng=rng)
        )
        self.head = nn.Linear(4, 2, rng=rng, dtype=dtype)

    def forward(self, x):
        return self.head(self.body(x))


@pytest.mark.parametrize(
    "x",
    [np.ones((2, 3)), np.ones((2, 3), int), np.ones((2, 3), bool), [[1.0, 2.0, 3.0]], [[1, 2, 3]],
     mg.tensor(np.ones((2, 3))), np.ones((2, 3), np.float16)],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_net_keeps_its_dtype_whatever_constant_comes_in(x, dtype):
    net = Everything(dtype)
    y = net(x)
    assert y.dtype == dtype
    y.sum().backward()
    assert all(p.grad.dtype == dtype for p in net.parameters())


@pytest.mark.parametrize("layer", [nn.Linear(3, 2), nn.LayerNorm(3)])
def test_a_tracked_input_of_another_dtype_is_an_error(layer):
    x = mg.tensor(np.ones((2, 3)), requires_grad=True)
    with pytest.raises(TypeError, match="float32 was given a tensor of dtype float64"):
        layer(x)
    with pytest.raises(TypeError, match="float64"):
        mg.grad(lambda x: layer(x).sum())(np.ones((2, 3)))
    assert layer(x.astype(np.float32)).dtype == np.float32
    assert layer(x.detach()).dtype == np.float32


def used_and_dropped():
    model = Net()
    (model(np.array([0, 1])) ** 2).sum().backward()
    mg.grad(lambda p: loss_of(model, p, np.array([0])))(dict(model.named_parameters()))
    return [weakref.ref(model), *(weakref.ref(p) for p in model.parameters())]


def test_a_dropped_model_is_freed_without_the_garbage_collector():
    gc.collect()
    gc.disable()
    try:
        assert [r() for r in used_and_dropped()] == [None] * 7
    finally:
        gc.enable()


# --- hooks ---


@pytest.fixture
def no_observers():
    before = set(engine.observers)
    yield
    assert set(engine.observers) <= before


class Mixed(nn.Module):
    """Two tensors, a number and a keyword in; a tuple with an unused, a constant and a plain element out."""

    def __init__(self, first, second):
        self.first, self.second = first, second

    def forward(self, x, y, n, *, z):
        a = self.first(x) * n + z
        return a, self.second(a) * y, x.detach(), "text"


def linear(n_in, n_out, seed):
    return nn.Linear(n_in, n_out, rng=np.random.default_rng(seed), dtype=np.float64)


def log_of(module, log, name):
    """A backward hook that writes down copies of what it is given."""

    def as_arrays(gs):
        return tuple(None if g is None else np.array(g.numpy() if hasattr(g, "numpy") else g) for g in gs)

    def hook(given, grad_input, grad_output):
        assert given is module
        assert isinstance(grad_input, tuple)
        assert isinstance(grad_output, tuple)
        log.append((name, as_arrays(grad_input), as_arrays(grad_output)))

    return hook


def assert_same_log(one, other):
    assert [entry[0] for entry in one] == [entry[0] for entry in other]
    for (name, *groups), (_, *others) in zip(one, other):
        for gs, hs in zip(groups, others):
            assert [g is None for g in gs] == [h is None for h in hs], name
            for g, h in zip(gs, hs):
                if g is not None:
                    np.testing.assert_allclose(g, h, rtol=1e-12, atol=1e-14, err_msg=name)


def test_forward_hooks_see_inputs_and_output_and_may_replace_it(no_observers):
    layer, x = linear(2, 3, 0), np.ones((1, 2))
    seen = []
    handles = [
        layer.register_forward_hook(lambda module, inputs, output: seen.append((module, inputs, output))),
        layer.register_forward_hook(lambda module, inputs, output: output * 2),
        layer.register_forward_hook(lambda module, inputs, output: output + 1),
        layer.register_forward_hook(lambda module, inputs, output: seen.append(output)),
    ]
    output = layer(x)
    plain = layer.forward(x).data  # hooks are on calls
    (module, inputs, first), last = seen
    assert module is layer
    assert type(inputs) is tuple
    assert inputs[0] is x
    np.testing.assert_array_equal(first.data, plain)
    np.testing.assert_array_equal(output.data, 2 * plain + 1)
    assert last is output
    handles[1].remove()
    handles[1].remove()  # twice does no harm
    np.testing.assert_array_equal(layer(x).data, plain + 1)
    for handle in handles:
        handle.remove()
    np.testing.assert_array_equal(layer(x).data, plain)
    assert len(seen) == 4
    assert not set(handles) & set(engine.observers)
    assert "_hooks" not in vars(layer)


def test_backward_hooks_get_the_gradients_of_inputs_and_outputs(no_observers):
    rng = np.random.default_rng(3)
    model = Mixed(linear(2, 3, 1), linear(3, 3, 2))
    log = []
    handles = [
        module.register_full_backward_hook(log_of(module, log, name))
        for name, module in (("whole", model), ("first", model.first), ("second", model.second))
    ]
    arrays = rng.normal(size=(4, 2)), rng.normal(size=(4, 3))
    x, y = (mg.tensor(a, requires_grad=True) for a in arrays)
    z = mg.tensor(1.0, requires_grad=True)
    output = model(x, y, 5, z=z)
    assert output[3] == "text"
    weights = rng.normal(size=(4, 3))
    (output[1] * weights).sum().backward()
    for handle in handles:
        handle.remove()
    w, b = model.first.weight.data, model.first.bias.data
    a = (arrays[0] @ w + b) * 5 + 1
    ga = (weights * arrays[1]) @ model.second.weight.data.T
    wanted = [
        ("second", (ga,), (weights * arrays[1],)),
        ("first", (ga * 5 @ w.T,), (ga * 5,)),
        ("whole", (ga * 5 @ w.T, weights * (a @ model.second.weight.data + model.second.bias.data), None),
         (None, weights, None, None)),
    ]  # fmt: skip
    assert_same_log(log, wanted)
    np.testing.assert_allclose(x.grad, log[2][1][0])
    np.testing.assert_allclose(z.grad, ga.sum())


@pytest.mark.oracle
def test_backward_hooks_run_in_the_order_and_with_the_gradients_of_torch(no_observers):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(5, 3)), rng.normal(size=(5, 2))

    def body(first, second, third, tanh):
        """A chain with a branch: third(tanh(second(h))) + h, h = tanh(first(x))."""
        return lambda x: (lambda h: third(tanh(second(h))) * 1.0 + h[:, :2])(tanh(first(x)))

    ours = [linear(3, 4, 1), linear(4, 4, 2), linear(4, 2, 3)]
    theirs = [torch.nn.Linear(p.weight.shape[0], p.weight.shape[1], dtype=torch.float64) for p in ours]
    with torch.no_grad():
        for p, q in zip(ours, theirs):
            q.weight.copy_(torch.tensor(p.weight.data.T.copy()))
            q.bias.copy_(torch.tensor(p.bias.data.copy()))
    logs = [], []
    handles = []
    for log, modules in zip(logs, (ours, theirs)):
        for i, module in enumerate(modules):
            hooks = [log_of(module, log, f"{i}, not replaced")]
            if i < 2:
                hooks += [lambda module, grad_input, grad_output: (grad_input[0] * 2,)]
                hooks += [log_of(module, log, f"{i}, replaced")]
            handles += map(module.register_full_backward_hook, hooks)
    leaf = mg.tensor(x, requires_grad=True)
    ((body(*ours, mg.tanh)(leaf) - labels) ** 2).sum().backward()
    other = torch.tensor(x, requires_grad=True)
    ((body(*theirs, torch.tanh)(other) - torch.tensor(labels)) ** 2).sum().backward()
    assert len(logs[0]) == 5
    assert_same_log(*logs)
    np.testing.assert_allclose(leaf.grad, other.grad.numpy(), rtol=1e-12)
    for p, q in zip(ours, theirs):
        np.testing.assert_allclose(p.weight.grad, q.weight.grad.numpy().T, rtol=1e-12)
    for handle in handles:
        handle.remove()


def test_backward_hooks_without_an_input_that_requires_a_gradient(no_observers):
    layer, log = linear(2, 3, 0), []
    handle = layer.register_full_backward_hook(log_of(layer, log, "layer"))
    layer(np.ones((1, 2))).sum().backward()
    assert_same_log(log, [("layer", (None,), (np.ones((1, 3)),))])
    handle.remove()
    handle = layer.register_full_backward_hook(lambda *a: (np.ones((1, 2)),))
    with pytest.raises(ValueError, match="no input of the module requires one"):
        layer(np.ones((1, 2))).sum().backward()
    handle.remove()


def test_backward_hooks_see_only_what_goes_through_the_module(no_observers):
    class Same(nn.Module):
        def forward(self, *xs):
            return xs[0] if len(xs) == 1 else xs[0] * xs[1]

    module, log = Same(), []
    handle = module.register_full_backward_hook(log_of(module, log, "same"))
    x = mg.tensor([3.0], requires_grad=True)
    (module(x) * 2 + x * 5).sum().backward()
    (module(x, x)).sum().backward()
    handle.remove()
    assert_same_log(log, [("same", (np.array([2.0]),), (np.array([2.0]),)),
                          ("same", (np.array([3.0]), np.array([3.0])), (np.array([1.0]),))])  # fmt: skip
    assert x.grad == 2 + 5 + 6


def test_backward_hooks_with_inputs_that_are_not_used_and_outputs_of_any_nesting(no_observers):
    class Nested(nn.Module):
        def forward(self, x, y):
            return {"a": [x * 2, x * 3], "b": x * 4}

    module, log = Nested(), []
    handle = module.register_full_backward_hook(log_of(module, log, "nested"))
    x, y = (mg.tensor([1.0], requires_grad=True) for _ in range(2))
    output = module(x, y)
    (output["a"][1] + output["b"]).sum().backward(retain_graph=True)
    output["a"][0].sum().backward()
    handle.remove()
    one = np.array([1.0])
    assert_same_log(
        log,
        [("nested", (np.array([7.0]), None), (None, one, one)), ("nested", (np.array([2.0]), None), (one, None, None))],
    )
    assert x.grad == 7 + 2
    assert y.grad is None  # as without the hook


def test_a_gradient_that_goes_around_the_outputs_is_no_call_of_the_hook(no_observers):
    class Leaky(nn.Module):
        def forward(self, x):
            self.inner = x * 2
            return self.inner * 3

    module, log = Leaky(), []
    handle = module.register_full_backward_hook(log_of(module, log, "leaky"))
    x = mg.tensor([1.0], requires_grad=True)
    module(x)
    module.inner.sum().backward()
    assert log == []
    assert x.grad == 2
    module(x).sum().backward(retain_graph=True)
    module.inner.sum().backward()  # nor after a pass that was one
    handle.remove()
    assert len(log) == 1
    assert x.grad == 2 + 6 + 2


def test_backward_hooks_fire_once_a_call_and_once_a_pass(no_observers):
    layer, log = linear(2, 2, 0), []
    handle = layer.register_full_backward_hook(log_of(layer, log, "layer"))
    x = mg.tensor(np.ones((1, 2)), requires_grad=True)
    loss = layer(layer(x)).sum()
    loss.backward(retain_graph=True)
    handle.remove()  # the hook concerns the calls that were made while it was on
    loss.backward()
    assert len(log) == 4
    np.testing.assert_array_equal(log[0][1][0], log[1][2][0])
    np.testing.assert_array_equal(log[0][1][0], log[2][1][0])
    layer(x).sum().backward()
    assert len(log) == 4


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "pow", "mod", "floordiv", "matmul"])
def test_in_place_arithmetic_writes_to_a_frozen_parameter_under_no_grad(name):
    layer = nn.Linear(2, 2, bias=False)
    x, other = np.abs(layer.weight.data) + 1, np.full((2, 2), 0.7, np.float32)
    with mg.no_grad():
        layer.weight[...] = x
    layer.weight.requires_grad = False
    weight, in_place = layer.weight, getattr(operator, f"i{name}")
    with mg.no_grad():
        layer.weight = in_place(layer.weight, mg.tensor(other))
    assert layer.weight is weight
    np.testing.assert_allclose(layer.state_dict()["weight"], getattr(operator, name)(x, other), rtol=1e-6)


@pytest.mark.parametrize("value", [np.ones((2, 2)), mg.tensor(np.ones((2, 2))), 0.5, nn.Linear(2, 2)])
def test_nothing_but_a_parameter_takes_the_place_of_one(value):
    layer = nn.Linear(2, 2)
    before = layer.state_dict()
    with pytest.raises(TypeError, match=r"Linear\.weight is a parameter.*no_grad.*\[\.\.\.\] = .*nn\.Parameter"):
        layer.weight = value
    np.testing.assert_array_equal(layer.state_dict()["weight"], before["weight"])


def test_a_parameter_can_be_replaced_by_another_left_out_or_deleted():
    layer = nn.Linear(2, 2)
    layer.weight = nn.Parameter(np.ones((2, 2)))
    np.testing.assert_array_equal(layer.state_dict()["weight"], np.ones((2, 2)))
    layer.bias = None
    assert list(layer.state_dict()) == ["weight"]
    del layer.weight
    layer.weight = np.ones((2, 2))
    assert layer.parameters() == []


def test_in_place_arithmetic_outside_no_grad_does_not_lose_a_frozen_parameter():
    layer = nn.Linear(2, 2)
    layer.weight.requires_grad = False
    with pytest.raises(TypeError, match="no_grad"):
        layer.weight *= 0.5
    assert "weight" in layer.state_dict()


def test_an_average_of_weights_in_a_frozen_copy():
    net, target = nn.Linear(2, 3), nn.Linear(2, 3)
    for p in target.parameters():
        p.requires_grad = False
    expected = {name: 0.9 * value + 0.1 * net.state_dict()[name] for name, value in target.state_dict().items()}
    with mg.no_grad():
        for t, p in zip(target.parameters(), net.parameters()):
            t *= 0.9
            t += 0.1 * p
    for name, value in target.state_dict().items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-6)


def test_a_frozen_parameter_outside_no_grad_is_computed_with():
    layer = nn.Linear(2, 2)
    layer.weight.requires_grad = False
    before = layer.weight.data.copy()
    t = layer.weight
    t *= 2.0
    assert t is not layer.weight
    np.testing.assert_array_equal(t.data, 2 * before)
    np.testing.assert_array_equal(layer.weight.data, before)


def test_backward_hooks_under_no_grad_and_in_recorded_passes(no_observers):
    class Cube(nn.Module):
        def forward(self, x):
            return x**3

    module, kinds = Cube(), []
    handle = module.register_full_backward_hook(lambda module, gi, go: kinds.append((type(gi[0]), type(go[0]))))
    with mg.no_grad():
        assert module(mg.tensor(2.0, requires_grad=True)).item() == 8
        same, x = nn.Sequential(), mg.tensor(2.0, requires_grad=True)
        also = same.register_full_backward_hook(lambda *a: None)
        assert same(x) is x
        also.remove()
    assert kinds == []
    assert mg.grad(module)(2.0) == 12
    assert kinds == [(np.ndarray, np.ndarray)]
    assert mg.grad(mg.grad(module))(2.0) == 12
    assert kinds[1] == (mg.Tensor, mg.Tensor)
    handle.remove()
    handle = module.register_full_backward_hook(lambda module, gi, go: gi[0] * gi[0])
    assert mg.grad(module)(2.0) == 144
    assert mg.grad(mg.grad(module))(2.0) != 12
    handle.remove()


@pytest.mark.parametrize(
    ("returned", "error", "match"),
    [
        (lambda gi: (gi[0], gi[0]), ValueError, "returned 2 gradients, and the module has 1 inputs"),
        (lambda gi: (), ValueError, "returned 0 gradients"),
        (lambda gi: gi[0][0], ValueError, r"shape \(2,\) for an input of shape \(1, 2\)"),
    ],
)
def test_a_replacement_that_does_not_fit_is_an_error_and_writes_no_gradient(returned, error, match):
    layer = linear(2, 3, 0)
    layer.register_full_backward_hook(lambda module, gi, go: returned(gi))
    x = mg.tensor(np.ones((1, 2)), requires_grad=True)
    with pytest.raises(error, match=match):
        layer(x).sum().backward()
    assert x.grad is None
    assert layer.weight.grad is None


def test_replacements_of_gradients():
    layer = linear(2, 3, 0)
    x = mg.tensor(np.ones((1, 2)), requires_grad=True)
    for returned, wanted in [([[5, 6]], [[5.0, 6.0]]), ((np.float32([[1, 2]]),), [[1.0, 2.0]]), ((None,), None)]:
        x.grad = None
        handle = layer.register_full_backward_hook(lambda module, gi, go, returned=returned: returned)
        layer(x).sum().backward()
        handle.remove()
        if wanted is None:
            assert x.grad is None
        else:
            np.testing.assert_array_equal(x.grad, wanted)


def test_a_replacement_for_an_input_that_has_no_gradient_is_not_used():
    class Product(nn.Module):
        def forward(self, x, y, z):
            return x * y

    module = Product()
    module.register_full_backward_hook(lambda module, gi, go: (gi[0] * 2, np.ones(1), np.ones(1)))
    x, z = (mg.tensor([1.0], requires_grad=True) for _ in range(2))
    module(x, np.array([3.0]), z).sum().backward()
    assert x.grad == 6
    assert z.grad is None


def test_a_hook_that_writes_into_a_gradient_fails():
    layer = linear(2, 3, 0)

    def write(module, grad_input, grad_output):
        grad_output[0][...] = 0

    layer.register_full_backward_hook(write)
    with pytest.raises(ValueError, match="read-only"):
        layer(mg.tensor(np.ones((1, 2)), requires_grad=True)).sum().backward()


def test_the_gradients_that_hooks_see_are_slopes():
    """grad_output is the slope in what a forward hook adds to the output, grad_input in what is added to the input."""
    rng = np.random.default_rng(0)
    model = nn.Sequential(linear(3, 4, 1), mg.tanh, linear(4, 4, 2), mg.tanh, linear(4, 1, 3))
    middle, x, seen = model.layers[2], rng.normal(size=(5, 3)), []
    hook = middle.register_full_backward_hook(lambda module, gi, go: seen.append((gi[0].copy(), go[0].copy())))
    (model(x) ** 2).sum().backward()
    hook.remove()
    [(grad_input, grad_output)] = seen
    for gradient, at in ((grad_input, model.layers[0]), (grad_output, middle)):
        direction = rng.normal(size=(5, 4))
        losses = []
        for h in (1e-6, -1e-6):
            handle = at.register_forward_hook(
                lambda module, inputs, output, h=h, direction=direction: (
                    output + h * direction if module is middle else mg.arctanh(mg.tanh(output) + h * direction)
                )
            )
            losses.append((model(x) ** 2).sum().item())
            handle.remove()
        np.testing.assert_allclose((losses[0] - losses[1]) / 2e-6, (gradient * direction).sum(), rtol=1e-6)


def test_points_are_watched_by_name_and_alias(no_observers):
    class Squared(nn.Module):
        hook_points = ("square",)
        hook_aliases = {"power": "square"}  # noqa: RUF012

        def forward(self, x):
            return self.tap("square", x * x) + 1

    module = Squared()
    assert not module.is_watched("square")
    seen = []
    handles = [
        module.register_point_hook("square", lambda x: seen.append(x.item())),
        module.register_point_hook("power", lambda x: x * 10),
        module.register_point_hook("square", lambda x: seen.append(x.item())),
    ]
    assert module.is_watched("other", "square")
    assert module(mg.tensor(3.0)).item() == 91
    assert seen == [9, 90]
    for handle in handles:
        handle.remove()
    assert not module.is_watched("square")
    assert module(mg.tensor(3.0)).item() == 10
    with pytest.raises(KeyError, match="Squared has no hook point 'cube'; it has square, power"):
        module.register_point_hook("cube", print)
    with pytest.raises(KeyError, match="it has none"):
        linear(1, 1, 0).register_point_hook("cube", print)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickled])
def test_copies_have_no_hooks(duplicate, no_observers):
    model = Small(layer=linear(1, 1, 0))
    handle = model.layer.register_forward_hook(print)
    twin = duplicate(model)
    assert twin.layer._hooks is None
    assert names(twin) == names(model)
    assert handle in engine.observers
    handle.remove()


def test_a_module_with_hooks_is_freed_without_the_garbage_collector(no_observers):
    def used_and_dropped():
        model = Net()
        model.register_forward_hook(lambda *a: None)
        model.layers[0].register_full_backward_hook(lambda *a: None)
        (model(np.array([0, 1])) ** 2).sum().backward()
        return weakref.ref(model), model.layers[0].register_forward_hook(lambda *a: None)

    gc.collect()
    gc.disable()
    try:
        model, handle = used_and_dropped()
        assert model() is None
        handle.remove()  # of a module that is gone
    finally:
        gc.enable()


def test_hooks_come_and_go_in_several_threads(no_observers):
    layer = linear(2, 2, 0)
    plain = layer.forward(np.ones((1, 2))).data

    def come_and_go():
        for _ in range(300):
            layer.register_forward_hook(lambda *a: None).remove()
            layer.register_full_backward_hook(lambda *a: None).remove()

    for added in (0, 1):
        kept = [layer.register_forward_hook(lambda module, inputs, output: output + 1) for _ in range(added)]
        threads = [threading.Thread(target=come_and_go) for _ in range(4)]
        for thread in threads:
            thread.start()
        outputs = [layer(np.ones((1, 2))).data]
        while any(thread.is_alive() for thread in threads):
            outputs.append(layer(np.ones((1, 2))).data)
        np.testing.assert_array_equal(outputs, np.broadcast_to(plain + added, (len(outputs), *plain.shape)))
        for handle in kept:
            handle.remove()
    assert "_hooks" not in vars(layer)
