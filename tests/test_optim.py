"""Optimizers against hand-computed numbers, textbook loops and PyTorch; schedules, clipping, averages, state."""

import copy
import gc
import math
import pickle
import weakref

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim, random, saving

SHAPES = [(3, 2), (), (4,), (0, 2), (2, 1, 3), (1,)]
SETTINGS = range(24)


def parameters(rng, dtype=np.float64, shapes=SHAPES):
    return [nn.Parameter(np.asarray(rng.standard_normal(shape), dtype)) for shape in shapes]


def one(value=1.0, grad=None, dtype=np.float64):
    p = nn.Parameter(np.asarray(value, dtype))
    p.grad = grad
    return p


def step_with(optimizer, p, grad):
    p.grad = grad
    optimizer.step()
    return p.item()


# --- hand-computed numbers ---


def test_b089_adamw_decays_before_the_step():
    p = one()
    assert step_with(optim.AdamW([p], lr=0.1, weight_decay=0.1, eps=0), p, 1.0) == pytest.approx(0.89, rel=1e-14)


def test_b089_adam_has_coupled_decay():
    p = one()
    assert step_with(optim.Adam([p], lr=0.1, weight_decay=0.1, eps=0), p, 1.0) == pytest.approx(0.9, rel=1e-14)


def test_b090_epsilon_stands_outside_the_square_root_of_the_corrected_moment():
    p = one()
    assert step_with(optim.Adam([p], lr=0.1, eps=0.5), p, 1.0) == pytest.approx(1 - 0.1 / 1.5, rel=1e-14)
    # second step, by hand: m = .09 + .2 = .29, v = .000999 + .004; corrected m = .29 / .19, v = .004999 / .001999
    expected = 1 - 0.1 / 1.5 - 0.1 * (0.29 / 0.19) / (math.sqrt(0.004999 / 0.001999) + 0.5)
    assert step_with(optim.Adam([q := one()], lr=0.1, eps=0.5), q, 1.0) == p.item()
    optimizer = optim.Adam([r := one()], lr=0.1, eps=0.5)
    step_with(optimizer, r, 1.0)
    assert step_with(optimizer, r, 2.0) == pytest.approx(expected, rel=1e-13)


def test_b093_dampening_spares_the_first_step():
    p = one(0.0)
    optimizer = optim.SGD([p], lr=0.1, momentum=0.9, dampening=0.5)
    assert step_with(optimizer, p, 1.0) == pytest.approx(-0.1, rel=1e-15)
    assert step_with(optimizer, p, 1.0) == pytest.approx(-0.24, rel=1e-15)


def test_b093_weight_decay_works_without_momentum():
    p = one()
    assert step_with(optim.SGD([p], lr=0.1, weight_decay=0.1), p, 0.0) == pytest.approx(0.99, rel=1e-15)


def test_nesterov_by_hand():
    p = one(0.0)
    optimizer = optim.SGD([p], lr=0.1, momentum=0.5, nesterov=True)
    assert step_with(optimizer, p, 1.0) == pytest.approx(-0.15)  # b = 1, step 1 + .5
    assert step_with(optimizer, p, 2.0) == pytest.approx(-0.475)  # b = 2.5, step 2 + 1.25


def test_sgd_on_a_quadratic_has_a_closed_form():
    p = one(3.0)
    optimizer = optim.SGD([p], lr=0.1)
    for _ in range(10):
        optimizer.zero_grad()
        (0.5 * p * p).backward()
        optimizer.step()
    assert p.item() == pytest.approx(3 * 0.9**10, rel=1e-12)


MAKERS = {
    "sgd": lambda p: optim.SGD(p, 0.1, weight_decay=0.1),
    "momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.1),
    "nesterov": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: optim.Adam(p, 0.1, weight_decay=0.1),
    "adamw": lambda p: optim.AdamW(p, 0.1, weight_decay=0.1),
}
EVERY = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


def state_bytes(optimizer):
    vectors = optimizer.state_dict()["vectors"]
    return {(dtype, name): array.tobytes() for dtype, arrays in vectors.items() for name, array in arrays.items()}


@EVERY
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_b091_a_missing_gradient_is_not_a_zero_one(make, dtype):
    rng = np.random.default_rng(0)
    ps = parameters(rng, dtype, [(3,), (4,), (2, 2)])
    optimizer = make(ps)
    fresh = state_bytes(optimizer)
    optimizer.step()  # no gradient anywhere
    assert state_bytes(optimizer) == fresh
    before = [p.data.tobytes() for p in ps]
    for p in (ps[0], ps[2]):
        p.grad = np.zeros(p.shape)
    optimizer.step()
    assert ps[1].data.tobytes() == before[1]
    steps = optimizer.state_dict()["vectors"][np.dtype(dtype).name]["steps"]
    assert steps.tolist() == [1, 0, 1]
    if optimizer.groups[0]["weight_decay"]:
        assert all(ps[i].data.tobytes() != before[i] for i in (0, 2))
    for p in ps:
        p.grad = rng.standard_normal(p.shape)
    optimizer.step()
    moved = [p.data.tobytes() for p in ps]
    state = optimizer.state_dict()["vectors"][np.dtype(dtype).name]
    ps[1].grad = None
    optimizer.step()  # now with a history that momentum could go on with
    assert ps[1].data.tobytes() == moved[1]
    after = optimizer.state_dict()["vectors"][np.dtype(dtype).name]
    for name in set(state) - {"steps"}:
        np.testing.assert_array_equal(after[name][3:7], state[name][3:7])
    assert after["steps"].tolist() == [3, 1, 3]


def test_b091_the_number_for_a_zero_gradient():
    for make in (optim.SGD, optim.AdamW):
        assert step_with(make([p := one()], lr=0.1, weight_decay=0.1), p, 0.0) == pytest.approx(0.99, rel=1e-15)


# --- textbook loops, a parameter at a time, in float64 ---


class Textbook:
    """The rules as the papers and PyTorch's documentation write them, for one array."""

    def __init__(self, kind, p, **h):
        self.kind, self.p, self.h, self.t = kind, p, h, 0
        self.b = self.m = self.v = 0.0

    def step(self, g):
        if g is None:
            return
        self.t += 1
        getattr(self, self.kind)(g, **self.h)

    def sgd(self, g, lr, momentum, dampening, nesterov, weight_decay):
        g = g + weight_decay * self.p
        if momentum:
            self.b = g if self.t == 1 else momentum * self.b + (1 - dampening) * g
            g = g + momentum * self.b if nesterov else self.b
        self.p = self.p - lr * g

    def adam(self, g, lr, betas, eps, weight_decay):
        self.m = betas[0] * self.m + (1 - betas[0]) * (g + weight_decay * self.p)
        self.v = betas[1] * self.v + (1 - betas[1]) * (g + weight_decay * self.p) ** 2
        m, v = self.m / (1 - betas[0] ** self.t), self.v / (1 - betas[1] ** self.t)
        self.p = self.p - lr * m / (np.sqrt(v) + eps)

    def adamw(self, g, lr, betas, eps, weight_decay):
        self.p = self.p * (1 - lr * weight_decay)
        self.adam(g, lr, betas, eps, 0.0)


def random_setting(rng):
    """A kind of optimizer and hyperparameters for it, at sizes that show the formula."""
    kind = rng.choice(["sgd", "adam", "adamw"])
    lr, decay = 10 ** rng.uniform(-3, -0.5), rng.choice([0, rng.uniform(0, 0.3)])
    if kind == "sgd":
        momentum = rng.choice([0, rng.uniform(0, 0.95)])
        nesterov = bool(momentum and rng.random() < 0.5)
        dampening = 0 if nesterov else rng.choice([0, rng.uniform(0, 1)])
        own = {"momentum": momentum, "dampening": dampening, "nesterov": nesterov}
        return optim.SGD, kind, {"lr": lr, "weight_decay": decay, **own}
    betas = (rng.choice([0, rng.uniform(0, 0.99)]), rng.choice([0, rng.uniform(0, 0.9999)]))
    make = optim.Adam if kind == "adam" else optim.AdamW
    return make, kind, {"lr": lr, "weight_decay": decay, "betas": betas, "eps": 10 ** rng.uniform(-8, 0)}


def random_gradients(rng, shapes):
    """For one step; some missing, some zero."""
    kinds = rng.random(len(shapes))
    return [None if u < 0.2 else rng.standard_normal(s) * (u > 0.3) for u, s in zip(kinds, shapes)]


@pytest.mark.parametrize("seed", SETTINGS)
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-11), (np.float32, 2e-4)])
def test_many_steps_equal_the_textbook(seed, dtype, rtol):
    rng = np.random.default_rng(seed)
    make, kind, h = random_setting(rng)
    other = random_setting_like(rng, kind)
    ps = parameters(rng, dtype)
    books = [Textbook(kind, p.data.astype(float), **(h if i < 4 else other)) for i, p in enumerate(ps)]
    optimizer = make([{"params": ps[:4]}, {"params": ps[4:], **other}], **h)
    for _ in range(30):
        for p, book, g in zip(ps, books, random_gradients(rng, SHAPES)):
            p.grad = g
            book.step(None if g is None else g.astype(dtype).astype(float))
        optimizer.step()
    for p, book in zip(ps, books):
        assert p.dtype == dtype
        np.testing.assert_allclose(p.data, book.p, rtol=rtol, atol=rtol)


def random_setting_like(rng, kind):
    while True:
        _, other, h = random_setting(rng)
        if other == kind:
            return h


@pytest.mark.parametrize("seed", SETTINGS)
@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-11), ("float32", 2e-4)])
def test_many_steps_equal_torch(seed, dtype, rtol):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(100 + seed)
    make, kind, h = random_setting(rng)
    other = random_setting_like(rng, kind)
    other.pop("betas", None)
    ps = parameters(rng, dtype)
    ts = [torch.tensor(p.data.copy(), requires_grad=True) for p in ps]
    split = int(rng.integers(1, len(ps)))

    def grouped(xs):
        return [{"params": xs[:split]}, {"params": xs[split:], **other}]

    ours = make(grouped(ps), **h)
    theirs = getattr(torch.optim, make.__name__)(grouped(ts), **h)
    for _ in range(30):
        for p, t, g in zip(ps, ts, random_gradients(rng, SHAPES)):
            p.grad = g
            t.grad = None if g is None else torch.tensor(np.asarray(g, dtype))
        ours.step()
        theirs.step()
    for p, t in zip(ps, ts):
        np.testing.assert_allclose(p.data, t.detach().numpy(), rtol=rtol, atol=rtol)


@EVERY
def test_large_parameters_are_updated_throughout(make):
    """(An update works in pieces.)"""
    rng = np.random.default_rng(0)
    values, gradients = rng.standard_normal((2, 3, 50_001))
    whole = [nn.Parameter(row) for row in values]
    optimizer = make(whole)
    rows = [nn.Parameter(v) for v in values[:, 49_990:].ravel()]
    small = make(rows)
    for factor in (1, 2):
        for p, g in zip(whole, gradients):
            p.grad = factor * g
        for p, g in zip(rows, gradients[:, 49_990:].ravel()):
            p.grad = factor * g
        optimizer.step()
        small.step()
    tails = np.concatenate([p.data[49_990:] for p in whole])
    np.testing.assert_array_equal(tails, [p.item() for p in rows])
    assert all((p.data != v).all() for p, v in zip(whole, values))


# --- groups and parameters ---


@EVERY
def test_tied_weights_are_updated_once(make):
    p, q = one(), one()
    tied = make([p, p, {"x": p}["x"]])
    single = make([q])
    for g in (1.0, -3.0):
        assert step_with(tied, p, g) == step_with(single, q, g)
    assert len(tied.groups[0]["params"]) == 1


def test_a_tied_model_is_updated_once_by_the_sum_of_its_gradients():
    class Tied(nn.Module):
        def __init__(self):
            self.a = nn.Linear(2, 2, bias=False, dtype=float)
            self.b = self.a

        def forward(self, x):
            return self.b(self.a(x))

    model = Tied()
    before = model.a.weight.data.copy()
    x = np.array([[1.0, 2.0]])
    optimizer = optim.SGD(model.parameters(), 0.1)
    model(x).sum().backward()
    optimizer.step()
    gradient = x.T @ np.ones((1, 2)) @ before.T + (x @ before).T @ np.ones((1, 2))
    np.testing.assert_allclose(model.a.weight.data, before - 0.1 * gradient, rtol=1e-14)


def test_groups_have_their_own_hyperparameters_and_share_the_defaults():
    a, b = one(grad=1.0), one(grad=1.0)
    optimizer = optim.SGD([{"params": [a], "lr": 0.5}, {"params": (p for p in [b]), "weight_decay": 1.0}], lr=0.1)
    optimizer.step()
    assert (a.item(), b.item()) == pytest.approx((0.5, 0.8))
    optimizer.groups[1]["lr"] = 0.0
    optimizer.step()
    assert (a.item(), b.item()) == pytest.approx((0.0, 0.8))


def test_both_dtypes_in_one_optimizer():
    a, b, c = one(dtype=np.float32), one(), one(dtype=np.float32)
    optimizer = optim.SGD([a, b, c], 0.25)
    for p in (a, b, c):
        p.grad = 1.0
    optimizer.step()
    assert [p.item() for p in (a, b, c)] == [0.75] * 3
    assert [p.dtype for p in (a, b, c)] == [np.float32, np.float64, np.float32]


@pytest.mark.parametrize("given", [[], (), iter([]), [{"params": []}], [{"params": []}, {"params": []}]])
@EVERY
def test_no_parameters_is_an_error(make, given):
    with pytest.raises(ValueError, match="at least one parameter"):
        make(copy.copy(given))


@pytest.mark.parametrize(
    "given",
    [
        ["weight"],
        [np.ones(2)],
        [mg.tensor([1, 2])],
        [mg.tensor([1.0], requires_grad=True) * 2],
        [{"params": [3.0]}],
        [{"parameters": []}],
        [{"params": [one()], "learning_rate": 0.1}],
        [{"lr": 0.1}],
    ],
)
def test_what_is_no_parameter_or_no_hyperparameter_is_an_error(given):
    with pytest.raises(TypeError, match=r"floating tensors|a group has 'params' and any of"):
        optim.SGD(given, 0.1)


@pytest.mark.parametrize(
    ("make", "wrong", "match"),
    [
        (optim.SGD, {"lr": -1}, "lr"),
        (optim.SGD, {"lr": math.nan}, "lr"),
        (optim.SGD, {"lr": math.inf}, "lr"),
        (optim.SGD, {"lr": 1, "momentum": -0.1}, "momentum"),
        (optim.SGD, {"lr": 1, "dampening": -0.1}, "dampening"),
        (optim.SGD, {"lr": 1, "weight_decay": -0.1}, "weight_decay"),
        (optim.SGD, {"lr": 1, "nesterov": True}, "Nesterov"),
        (optim.SGD, {"lr": 1, "nesterov": True, "momentum": 0.9, "dampening": 0.1}, "Nesterov"),
        (optim.Adam, {"lr": -1}, "lr"),
        (optim.Adam, {"eps": -1e-8}, "eps"),
        (optim.Adam, {"betas": (0.9, 1.0)}, "betas"),
        (optim.Adam, {"betas": (-0.1, 0.9)}, "betas"),
        (optim.Adam, {"betas": (math.nan, 0.9)}, "betas"),
        (optim.Adam, {"betas": (0.9,)}, "betas"),
        (optim.AdamW, {"weight_decay": math.nan}, "weight_decay"),
    ],
)
def test_hyperparameters_are_checked_and_nothing_is_taken(make, wrong, match):
    p = one()
    array = p._array
    with pytest.raises(ValueError, match=match):
        make([p], **wrong)
    with pytest.raises(ValueError, match=match):  # in a group too
        make([{"params": [p], **wrong}], **({"lr": 1} if make is optim.SGD else {}))
    assert p._array is array
    make([p], lr=1)


@pytest.mark.parametrize(
    "make", [lambda ps: optim.Adam(ps, weight_decay=0.1), lambda ps: optim.SGD(ps, 0.1, momentum=0.9)]
)
def test_pieces_and_threads_change_no_bit(make, monkeypatch):
    shapes, before = [(40, 7), (9,), (50, 6), (1,)], mg.get_num_threads()
    results = set()
    try:
        for threads, piece in [(1, 10**6), (1, 37), (2, 37), (3, 64)]:
            monkeypatch.setattr(optim, "_PIECE", piece)
            monkeypatch.setattr(optim, "_SPREAD_PIECE", piece)
            monkeypatch.setattr(optim, "_SPREAD", 100)
            mg.set_num_threads(threads)
            rng = np.random.default_rng(0)
            ps = parameters(rng, np.float32, shapes)
            optimizer = make([{"params": ps[:2]}, {"params": ps[2:], "lr": 0.01}])
            for step in range(3):
                for i, p in enumerate(ps):
                    p.grad = None if (step, i) == (1, 1) else rng.standard_normal(p.shape)
                optimizer.step()
            results.add(b"".join(p.data.tobytes() for p in ps))
    finally:
        mg.set_num_threads(before)
    assert len(results) == 1


def test_defaults_are_the_fields():
    adam = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0}
    sgd = {"lr": 0.5, "momentum": 0, "dampening": 0, "nesterov": False, "weight_decay": 0}
    for optimizer, expected in [
        (optim.Adam([p := one()]), adam),
        (optim.AdamW([q := one()]), {**adam, "weight_decay": 0.01}),
        (optim.SGD([r := one()], 0.5), sgd),
    ]:
        assert {k: v for k, v in optimizer.groups[0].items() if k != "params"} == expected
    assert all(x.item() == 1 for x in (p, q, r))


def test_unknown_and_missing_arguments():
    with pytest.raises(TypeError):
        optim.SGD([one()])
    with pytest.raises(TypeError):
        optim.Adam([one()], momentum=0.9)


# --- the flat vector ---


def test_parameters_are_views_of_one_vector_a_dtype():
    rng = np.random.default_rng(0)
    ps = parameters(rng) + parameters(rng, np.float32)
    values = [p.data.copy() for p in ps]
    optimizer = optim.Adam(ps)
    for half in (ps[: len(SHAPES)], ps[len(SHAPES) :]):
        (base,) = {id(p._array.base): p._array.base for p in half}.values()
        assert base.shape == (sum(p.size for p in half),)
        for p in half:
            assert p.size == 0 or np.shares_memory(p._array, base)
    for p, value in zip(ps, values):
        assert p.shape == value.shape
        np.testing.assert_array_equal(p.data, value)
    assert optimizer.groups[0]["params"] == ps


def test_grad_is_never_lent_out():
    ps = [nn.Parameter([1.0, 2.0]), nn.Parameter([[3.0]])]
    optimizer = optim.SGD(ps, 0.1, momentum=0.9, weight_decay=0.1)
    (ps[0].sum() * ps[1].sum()).backward()
    gradients = [p.grad for p in ps]
    before = [g.copy() for g in gradients]
    optimizer.step()
    for p, g, value in zip(ps, gradients, before):
        assert p.grad is g
        np.testing.assert_array_equal(g, value)
        assert g.flags.owndata
        assert g.flags.writeable
    kept = ps[0].data.copy()
    gradients[0][...] = 99  # the owner may write to it, and no step has seen it
    optimizer.zero_grad()
    assert all(p.grad is None for p in ps)
    optimizer.step()
    np.testing.assert_array_equal(ps[0].data, kept)
    np.testing.assert_array_equal(gradients[0], [99, 99])


def test_steps_after_load_state_dict_and_in_place_writes_go_on_from_there():
    layer = nn.Linear(2, 1, bias=False, dtype=float)
    optimizer = optim.SGD(layer.parameters(), 0.5)
    layer.load_state_dict({"weight": [[1.0], [2.0]]})
    with mg.no_grad():
        layer.weight *= 2
        layer.weight[0] = 7.0
    layer.weight.grad = [[1.0], [1.0]]
    optimizer.step()
    np.testing.assert_array_equal(layer.weight.data, [[6.5], [3.5]])


def test_functional_call_leaves_an_optimizers_parameters_in_place():
    layer = nn.Linear(2, 1, bias=False, dtype=float)
    optimizer = optim.SGD(layer.parameters(), 0.5)
    nn.functional_call(layer, {"weight": np.zeros((2, 1))}, [[1.0, 1.0]])
    before = layer.weight.data.copy()
    layer.weight.grad = [[1.0], [1.0]]
    optimizer.step()
    np.testing.assert_array_equal(layer.weight.data, before - 0.5)


def test_a_frozen_parameter_stands_still_and_can_be_thawed():
    a, b = one(), one()
    optimizer = optim.AdamW([a, b], 0.1)
    a.requires_grad = False
    (a * b).backward()
    optimizer.step()
    assert a.item() == 1
    assert b.item() != 1
    optimizer.zero_grad()
    a.requires_grad = True
    (a * b).backward()
    optimizer.step()
    assert a.item() != 1


@EVERY
def test_a_step_between_forward_and_backward_is_noticed(make):
    layer = nn.Linear(2, 2)
    x = mg.tensor(np.ones((1, 2), np.float32), requires_grad=True)
    optimizer = make(layer.parameters())
    loss = (layer(x) ** 2).sum()
    loss.backward(retain_graph=True)
    first = layer.weight.grad.copy()
    optimizer.step()
    with pytest.raises(RuntimeError, match="written in place"):
        loss.backward()
    np.testing.assert_array_equal(layer.weight.grad, first)  # nothing half-done


def test_a_step_that_leaves_a_parameter_alone_does_not_spoil_its_graph():
    """Two networks in one optimizer, trained in turns."""
    a, b = nn.Linear(2, 2), nn.Linear(2, 2)
    optimizer = optim.Adam([*a.parameters(), *b.parameters()])
    x = mg.tensor(np.ones((1, 2), np.float32), requires_grad=True)
    loss = a(x).sum()
    b(np.ones((1, 2))).sum().backward()
    optimizer.step()
    loss.backward()
    np.testing.assert_array_equal(x.grad[0], a.weight.data.sum(1))


# --- whose parameters ---


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 2), (0,)])
@pytest.mark.parametrize("value", [1.0, math.nan])
def test_a_parameter_of_another_optimizer_is_an_error_until_that_one_is_gone(shape, value):
    p, free = nn.Parameter(np.full(shape, value)), one()
    gc.disable()
    try:
        first = optim.Adam([p])
        array = p._array
        with pytest.raises(ValueError, match="already belongs to another optimizer") as info:
            optim.SGD([free, p], 0.1)
        assert p._array is array
        alive = weakref.ref(first)
        p.grad = np.ones(shape)
        first.step()
        first.state_dict()
        del first
        assert alive() is None, "something holds the optimizer, though only the raised error is left"
        assert info.value is not None
        second = optim.SGD([free, p], 0.1)
        before = p.data.copy()
        p.grad = np.ones(shape)
        second.step()
        np.testing.assert_array_equal(p.data, before - 0.1)
    finally:
        gc.enable()


def test_an_optimizer_is_not_copied_to_a_dead_twin():
    optimizer = optim.Adam([one()])
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="state_dict"):
            duplicate(optimizer)


# --- state ---


def toy(seed=0):
    rng = np.random.default_rng(seed)
    return nn.Sequential(nn.Linear(3, 8, rng=rng), mg.tanh, nn.Linear(8, 2, rng=rng, dtype=np.float32))


def train(model, optimizer, schedule, average, steps):
    for x, y in steps:
        optimizer.zero_grad()
        ((model(x) - y) ** 2).mean().backward()
        optim.clip_grad_norm(model.parameters(), 0.7)
        optimizer.step()
        schedule.step()
        average.update()


def assert_same_bits(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype
        assert a[name].tobytes() == b[name].tobytes(), name


def groups_of(model):
    first, _, last = model.layers
    return [{"params": first.parameters()}, {"params": last.parameters(), "lr": np.float64(0.07), "weight_decay": 0.01}]


@pytest.mark.parametrize("decay", ["constant", "linear", "cosine", "inverse_sqrt"])
@EVERY
def test_resumed_training_has_the_same_bits(make, decay, tmp_path):
    rng = np.random.default_rng(1)
    steps = [(rng.standard_normal((4, 3)), rng.standard_normal((4, 2))) for _ in range(12)]

    def everything(seed):
        model = toy(seed)
        optimizer = make(groups_of(model))
        schedule = optim.Schedule(optimizer, decay=decay, warmup=4, total=15)
        return model, optimizer, schedule, optim.ExponentialAverage(model.parameters(), 0.8)

    whole = everything(0)
    train(*whole, steps)
    half = everything(0)
    train(*half, steps[:5])
    saving.save_checkpoint(tmp_path / "c", {str(i): part.state_dict() for i, part in enumerate(half)})
    del half
    resumed = everything(99)
    for i, part in enumerate(resumed):
        part.load_state_dict(saving.load_checkpoint(tmp_path / "c")[str(i)])
    train(*resumed, steps[5:])
    assert_same_bits(resumed[0].state_dict(), whole[0].state_dict())
    assert state_bytes(resumed[1]) == state_bytes(whole[1])
    assert resumed[1].state_dict()["groups"] == whole[1].state_dict()["groups"]
    assert resumed[2].state_dict() == whole[2].state_dict()
    for a, b in zip(resumed[3].average, whole[3].average):
        assert a.tobytes() == b.tobytes()


def test_b111_resumed_training_with_dropout_and_shuffling_has_the_same_losses(tmp_path):
    data = np.random.default_rng(0).standard_normal((24, 3)).astype(np.float32)

    def start():
        random.seed(5)
        shuffle = np.random.default_rng(6)
        model = nn.Sequential(nn.Linear(3, 16), mg.relu, nn.Dropout(0.5), nn.Linear(16, 1))
        return model, optim.AdamW(model.parameters(), 0.01), shuffle

    def epoch(model, optimizer, shuffle):
        losses = []
        for rows in np.split(shuffle.permutation(24), 4):
            optimizer.zero_grad()
            loss = ((model(data[rows]) - data[rows, :1]) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    former = random.get_state()
    try:
        run = start()
        whole = [epoch(*run) for _ in range(4)]
        run = start()
        first = [epoch(*run) for _ in range(2)]
        model, optimizer, shuffle = run
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "random": random.get_state(),
            "shuffle": random.get_state(shuffle),
        }
        saving.save_checkpoint(tmp_path / "c", state)
        model, optimizer, shuffle = start()
        random.seed(1234)
        state = saving.load_checkpoint(tmp_path / "c")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        random.set_state(state["random"])
        random.set_state(state["shuffle"], shuffle)
        assert first + [epoch(model, optimizer, shuffle) for _ in range(2)] == whole
    finally:
        random.set_state(former)


@EVERY
def test_state_dict_is_a_copy_both_ways(make):
    p, q = one(), one()
    a, b = make([p]), make([q])
    step_with(a, p, 1.0)
    state = a.state_dict()
    kept = copy.deepcopy(state)
    step_with(a, p, 2.0)
    a.groups[0]["lr"] = 5.0
    assert str(state) == str(kept)
    b.load_state_dict(state)
    step_with(b, q, 2.0)
    assert str(state) == str(kept)


def test_every_piece_of_state_comes_back():
    p, q = one([1.0, 2.0]), one([1.0, 2.0])
    a = optim.Adam([p], lr=0.3, betas=(0.5, 0.6), eps=0.1, weight_decay=0.2)
    step_with_array(a, p, [3.0, 4.0])
    b = optim.Adam([q])
    b.load_state_dict(a.state_dict())
    with mg.no_grad():
        q[...] = p.data
    for g in ([1.0, -1.0], [0.5, 2.0]):
        step_with_array(a, p, g)
        step_with_array(b, q, g)
        np.testing.assert_array_equal(p.data, q.data)


def step_with_array(optimizer, p, grad):
    p.grad = grad
    optimizer.step()


def test_b098_a_state_that_does_not_fit_is_an_error_and_changes_nothing():
    def make(shapes, kind=optim.Adam, dtype=np.float64, n_groups=1):
        ps = [nn.Parameter(np.ones(s, dtype)) for s in shapes]
        groups = [{"params": ps[i::n_groups]} for i in range(n_groups)]
        optimizer = kind(groups, lr=0.5)
        for p in ps:
            p.grad = np.ones(p.shape)
        optimizer.step()
        return optimizer

    others = [
        make([(2, 3), (4,), (1,)]),
        make([(3, 2), (4,)]),
        make([(4,), (2, 3)]),
        make([(2, 3)]),
        make([(2, 3), (4,)], optim.SGD),
        make([(2, 3), (4,)], dtype=np.float32),
        make([(2, 3), (4,)], n_groups=2),
    ]
    mine = make([(2, 3), (4,)])
    mine.groups[0]["lr"] = 0.25
    before = str(mine.state_dict())
    for other in others:
        with pytest.raises(ValueError, match=r"fit|other shapes"):
            mine.load_state_dict(other.state_dict())
        assert str(mine.state_dict()) == before
    broken = mine.state_dict()
    broken["groups"][0]["lr"] = math.nan
    with pytest.raises(ValueError, match="lr"):
        mine.load_state_dict(broken)
    broken = mine.state_dict()
    del broken["vectors"]["float64"]["m"]
    broken["vectors"]["float64"]["v"] = np.ones(3)
    with pytest.raises(ValueError, match=r"(?s)float64\.v: expected \(10,\).*missing: float64\.m"):
        mine.load_state_dict(broken)
    assert str(mine.state_dict()) == before


# --- schedules ---


def lrs(steps, peak=1.0, **settings):
    """The learning rate of each step."""
    optimizer = optim.SGD([one()], lr=peak)
    schedule = optim.Schedule(optimizer, **settings)
    found = []
    for _ in range(steps):
        found.append(optimizer.groups[0]["lr"])
        schedule.step()
    return found


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [1, 1, 1]),
        ({"warmup": 4}, [0.25, 0.5, 0.75, 1, 1, 1]),
        ({"warmup": 1}, [1, 1]),
        ({"warmup": 3, "total": 3}, [1 / 3, 2 / 3, 1, 1, 1]),
        ({"decay": "linear", "total": 4}, [1, 0.75, 0.5, 0.25, 0, 0, 0]),
        ({"decay": "linear", "warmup": 2, "total": 6}, [0.5, 1, 1, 0.75, 0.5, 0.25, 0, 0]),
        ({"decay": "cosine", "total": 4}, [1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2, 0, 0]),
        ({"decay": "cosine", "warmup": 2, "total": 5}, [0.5, 1, 1, 0.75, 0.25, 0, 0]),
        ({"decay": "inverse_sqrt"}, [1, 1 / math.sqrt(2), 1 / math.sqrt(3), 0.5]),
        ({"decay": "inverse_sqrt", "warmup": 4}, [0.25, 0.5, 0.75, 1, *(math.sqrt(4 / s) for s in (5, 6, 7, 8))]),
    ],
)
def test_schedules_at_exact_steps(settings, expected):
    np.testing.assert_allclose(lrs(len(expected), **settings), expected, rtol=1e-15, atol=1e-16)


@pytest.mark.parametrize("warmup", [0, 1, 7])
def test_schedules_over_many_steps(warmup):
    n = np.arange(60)
    rise = np.minimum((n + 1) / max(warmup, 1), 1)
    fraction = np.clip((n - warmup) / (50 - warmup), 0, 1)
    vaswani = np.minimum((n + 1) ** -0.5, (n + 1) * max(warmup, 1) ** -1.5) * math.sqrt(max(warmup, 1))
    for decay, expected in [
        ("constant", 0.3 * rise),
        ("linear", 0.3 * rise * (1 - fraction)),
        ("cosine", 0.3 * rise * (1 + np.cos(np.pi * fraction)) / 2),
        ("inverse_sqrt", 0.3 * vaswani),
    ]:
        found = lrs(60, 0.3, decay=decay, warmup=warmup, total=50)
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-16)


def test_each_group_keeps_its_own_peak():
    optimizer = optim.SGD([{"params": [one()], "lr": 1.0}, {"params": [one()]}], lr=0.1)
    schedule = optim.Schedule(optimizer, warmup=2)
    assert [g["lr"] for g in optimizer.groups] == [0.5, 0.05]
    schedule.step()
    assert [g["lr"] for g in optimizer.groups] == [1.0, 0.1]


def test_a_schedule_steers_the_optimizer():
    p = one(0.0)
    optimizer = optim.SGD([p], lr=1.0)
    schedule = optim.Schedule(optimizer, decay="linear", total=4)
    for _ in range(6):
        step_with(optimizer, p, 1.0)
        schedule.step()
    assert p.item() == -2.5


@pytest.mark.parametrize(
    ("settings", "match"),
    [({"decay": "stepwise"}, "decay is one of"), ({"decay": "linear"}, "total"),
     ({"decay": "cosine", "warmup": 5, "total": 5}, "total"), ({"warmup": -1}, "warm-up")],
)  # fmt: skip
def test_schedule_settings_are_checked(settings, match):
    optimizer = optim.SGD([one()], lr=1.0)
    with pytest.raises(ValueError, match=match):
        optim.Schedule(optimizer, **settings)
    assert optimizer.groups[0]["lr"] == 1.0


@pytest.mark.parametrize("schedule_first", [True, False])
def test_schedule_state_in_either_order(schedule_first):
    def make():
        optimizer = optim.SGD([one()], lr=0.3)
        return optimizer, optim.Schedule(optimizer, decay="cosine", warmup=3, total=11)

    a = make()
    for _ in range(5):
        a[1].step()
    b = make()
    states = [part.state_dict() for part in a]
    for i in [1, 0] if schedule_first else [0, 1]:
        b[i].load_state_dict(states[i])
    for _ in range(8):
        assert b[0].groups[0]["lr"] == a[0].groups[0]["lr"]
        a[1].step()
        b[1].step()
    with pytest.raises(ValueError, match="2"):
        b[1].load_state_dict({"n": 1, "peaks": [1.0, 2.0]})


# --- clipping ---


def graded(*gradients, dtype=np.float64):
    return [one(np.zeros(np.shape(g)), g, dtype) for g in gradients]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("max_norm", [0.0, 0.5, 6.9, 7.1, math.inf])
def test_clip_grad_norm(dtype, max_norm):
    gradients = [[[2.0, 3.0]], 6.0, [0.0]]  # of norm 7
    ps = graded(*gradients, dtype=dtype)
    assert optim.clip_grad_norm((p for p in ps), max_norm) == pytest.approx(7, rel=1e-6)
    for p, g in zip(ps, gradients):
        np.testing.assert_allclose(p.grad, np.array(g) * min(1, max_norm / 7), rtol=1e-6)
        assert p.grad.dtype == dtype
        assert p.grad.shape == p.shape


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(5))
def test_clip_grad_norm_equals_torch(dtype, seed):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    gradients = [rng.standard_normal(s).astype(dtype) for s in SHAPES]
    ps = graded(*gradients, dtype=dtype)
    ts = [torch.zeros(s, dtype=getattr(torch, dtype), requires_grad=True) for s in SHAPES]
    for t, g in zip(ts, gradients):
        t.grad = torch.tensor(g)
    max_norm = float(rng.uniform(0.1, 8))
    norm = optim.clip_grad_norm(ps, max_norm)
    assert norm == pytest.approx(torch.nn.utils.clip_grad_norm_(ts, max_norm).item(), rel=1e-6)
    for p, t in zip(ps, ts):
        np.testing.assert_allclose(p.grad, t.grad.numpy(), rtol=1e-5)  # torch adds 1e-6 to the norm


TAKES_A_LIST = {
    "Adam": optim.Adam,
    "SGD": lambda given: optim.SGD(given, 0.1),
    "a group": lambda given: optim.SGD([{"params": given}], 0.1),
    "clip_grad_norm": lambda given: optim.clip_grad_norm(given, 1.0),
    "ExponentialAverage": lambda given: optim.ExponentialAverage(given, 0.9),
}


@pytest.mark.parametrize("who", TAKES_A_LIST)
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (nn.Linear(2, 2), r"takes a list of parameters, and was given one Linear: pass model\.parameters\(\)"),
        (nn.Parameter(np.ones((2, 2))), r"takes a list of parameters, and was given one Parameter: pass \[parameter\]"),
        (mg.tensor(np.ones(2), requires_grad=True), r"was given one Tensor: pass \[parameter\]"),
        (["weight"], "was given 'weight'"),
    ],
)
def test_one_tensor_or_module_is_no_list_of_parameters(who, given, message):
    with pytest.raises(TypeError, match=message):
        TAKES_A_LIST[who](given)


@pytest.mark.parametrize("state", [None, [1]])
def test_what_is_no_state(state):
    optimizer = optim.Adam([nn.Parameter(np.ones(2))])
    for loads in (optimizer, optim.Schedule(optimizer), optim.ExponentialAverage([nn.Parameter(np.ones(2))], 0.9)):
        name = type(loads).__name__
        with pytest.raises(TypeError, match=rf"{name}.load_state_dict takes a dict of what state_dict\(\) returns"):
            loads.load_state_dict(state)


def test_clip_grad_norm_of_nothing_and_of_zero():
    assert optim.clip_grad_norm([], 1.0) == 0
    p, q = one(), one(0.0, 0.0)
    assert optim.clip_grad_norm([p, q], 1.0) == 0
    assert p.grad is None
    assert q.grad == 0
    assert optim.clip_grad_norm([q], 0.0, error_if_nonfinite=True) == 0
    assert q.grad == 0


def test_clip_grad_norm_counts_tied_weights_once():
    (p,) = graded([3.0, 4.0])
    assert optim.clip_grad_norm([p, p], 1.0) == 5
    np.testing.assert_allclose(p.grad, [0.6, 0.8], rtol=1e-15)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", [0, 1])
def test_clip_grad_norm_with_a_gradient_that_is_not_finite(bad, where):
    values = [[1.0, 2.0], [3.0, 4.0]]
    values[where][0] = bad
    ps = graded(*values, dtype=np.float32)
    norm = optim.clip_grad_norm(ps, 1.0)
    assert math.isnan(norm) if math.isnan(bad) else norm == math.inf
    with pytest.raises(FloatingPointError, match="NaN or infinite"):
        optim.clip_grad_norm(ps, 1.0, error_if_nonfinite=True)
    for p, value in zip(ps, values):
        np.testing.assert_array_equal(p.grad, value)


@pytest.mark.parametrize(
    ("dtype", "size"),
    [(np.float32, 1e25), (np.float32, 1e-25), (np.float32, 1e-38), (np.float64, 1e250), (np.float64, 1e-250)],
)
def test_clip_grad_norm_where_only_the_squares_leave_the_range(dtype, size):
    ps = graded([3 * size], [[4 * size], [12 * size]], dtype=dtype)
    norm = optim.clip_grad_norm(ps, size, error_if_nonfinite=True)
    assert norm == pytest.approx(13 * size, rel=1e-6)
    np.testing.assert_allclose(ps[0].grad / dtype(size), [3 / 13], rtol=1e-5)
    np.testing.assert_allclose(ps[1].grad / dtype(size), [[4 / 13], [12 / 13]], rtol=1e-5)


@pytest.mark.parametrize("max_norm", [-1.0, math.nan])
def test_clip_grad_norm_refuses_a_norm_that_is_none(max_norm):
    (p,) = graded([3.0])
    with pytest.raises(ValueError, match="max_norm"):
        optim.clip_grad_norm([p], max_norm)
    assert p.grad == 3


# --- averaged weights ---


def test_exponential_average_by_hand():
    p = one(0.0)
    average = optim.ExponentialAverage([p], 0.5)
    expected = 0.0
    for n in range(1, 20):
        with mg.no_grad():
            p += 1.0
        average.update()
        decay = min(0.5, (1 + n) / (10 + n))
        expected = decay * expected + (1 - decay) * n
        assert average.average[0] == pytest.approx(expected, rel=1e-12)
    assert p.item() == 19


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_applied_lends_the_averages_and_gives_the_weights_back(dtype):
    p, q = nn.Parameter(np.array([1.0, 2.0], dtype)), nn.Parameter(np.array(5.0, dtype))
    optimizer = optim.SGD([p, q], 1.0)
    average = optim.ExponentialAverage([p, q, p], 0.9)
    p.grad, q.grad = [1.0, 1.0], 1.0
    optimizer.step()
    average.update()
    averages = [a.copy() for a in average.average]
    assert len(averages) == 2
    own = [p.data.copy(), q.data.copy()]

    def fails(error):
        with average.applied():
            np.testing.assert_array_equal(p.data, averages[0])
            np.testing.assert_array_equal(q.data, averages[1])
            assert (p.data != own[0]).all()
            raise error

    for error in (SystemExit, KeyError, KeyboardInterrupt):
        with pytest.raises(error):
            fails(error)
        np.testing.assert_array_equal(p.data, own[0])
        np.testing.assert_array_equal(q.data, own[1])
    with average.applied():
        np.testing.assert_array_equal(p.data, averages[0])
    np.testing.assert_array_equal(p.data, own[0])
    p.grad, q.grad = [1.0, 1.0], None
    optimizer.step()  # still the optimizer's
    np.testing.assert_array_equal(p.data, own[0] - 1)
    np.testing.assert_array_equal(average.average[0], averages[0])
    assert average.average[0].dtype == dtype


def test_applied_is_a_write_that_backward_notices():
    p = one(3.0)
    average = optim.ExponentialAverage([p], 0.9)
    loss = p * p
    with average.applied():
        pass
    with pytest.raises(RuntimeError, match="written in place"):
        loss.backward()


def test_average_state_round_trip_and_misfits():
    p, q = one([1.0, 2.0]), one([5.0, 6.0])
    a, b = optim.ExponentialAverage([p], 0.9), optim.ExponentialAverage([q], 0.9)
    with mg.no_grad():
        p += 1.0
    a.update()
    state = a.state_dict()
    b.load_state_dict(state)
    with mg.no_grad():
        q[...] = p.data
    for _ in range(3):
        a.update()
        b.update()
    assert a.average[0].tobytes() == b.average[0].tobytes()
    assert state["n"] == 1
    before = a.average[0].copy()
    for wrong in ([np.ones(3)], [], [np.ones(2), np.ones(2)], [np.ones((1, 2))], [1.0]):
        with pytest.raises(ValueError, match="does not fit ExponentialAverage"):
            a.load_state_dict({"n": 7, "average": wrong})
    assert a.n == 4
    np.testing.assert_array_equal(a.average[0], before)


@pytest.mark.parametrize("decay", [-0.1, 1, math.nan])
def test_average_refuses_what_is_no_decay(decay):
    with pytest.raises(ValueError, match="decay"):
        optim.ExponentialAverage([one()], decay)


def test_a_module_or_one_parameter_in_the_place_of_a_list_is_told():
    with pytest.raises(TypeError, match=r"model\.parameters\(\)"):
        optim.SGD(nn.Linear(2, 1), lr=0.1)
    with pytest.raises(TypeError, match=r"pass \[parameter\]"):
        optim.SGD(nn.Linear(2, 1).weight, lr=0.1)
