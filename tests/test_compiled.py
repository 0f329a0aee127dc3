"""Compiled runs against eager ones, bit for bit: every op, random programs, models; and when they must not be used."""

import copy
import functools
import gc
import importlib
import itertools
import math
import threading
from pathlib import Path

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim, study
from minigrad.check.cases import load_cases
from minigrad.check.programs import Program, random_program
from minigrad.compiled import lanes as compiled_lanes
from minigrad.compiled import program as compiled_program
from minigrad.compiled.lanes import _used
from minigrad.kernels import pieces
from minigrad.kernels import self_attention as self_attention_kernel
from models import AttentionStack, FCStack, SelfAttention

op_module = importlib.import_module("minigrad.op")  # minigrad.op is the decorator

CASES = load_cases(Path(__file__).parent / "ops")


@pytest.fixture(autouse=True)
def _folded(monkeypatch):
    """Self-attention is folded where that saves a single multiplication: at the sizes of tests, too."""
    monkeypatch.setattr(self_attention_kernel, "WORTH", 0)


def normal(*shape, seed=0, dtype=float):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def assert_equal_bits(a, b, what=""):
    assert (a is None) == (b is None), what
    if a is not None:
        assert a.dtype == b.dtype, what
        np.testing.assert_array_equal(a, b, err_msg=what)
        np.testing.assert_array_equal(np.signbit(a), np.signbit(b), err_msg=f"signs of zeros and NaNs: {what}")


def compare(loss, parameters, batches, **options):
    """The compiled function after every batch, against the eager one: the loss and every gradient."""
    compiled = mg.compile(loss, **options)
    for number, batch in enumerate(batches):
        draws = mg.random.get_state()
        eager = loss(*[mg.tensor(x) if isinstance(x, np.ndarray) else x for x in batch])
        eager.backward()
        expected = [p.grad for p in parameters]
        for p in parameters:
            p.grad = None
        mg.random.set_state(draws)
        y = compiled(*batch)
        assert not y.requires_grad
        assert_equal_bits(y.numpy(), eager.numpy(), f"loss of run {number}")
        for i, (p, g) in enumerate(zip(parameters, expected)):
            assert_equal_bits(p.grad, g, f"gradient {i} of run {number}")
            p.grad = None
    return compiled


@pytest.fixture
def in_lanes(monkeypatch):
    """Kernels cut whatever little there is for three threads, and each array that a lane writes to is its own."""
    monkeypatch.setattr(pieces, "LEAST", 1)
    monkeypatch.setattr(pieces, "WIDE", 1)
    monkeypatch.setattr(compiled_program, "WIDE", 0)
    generated, lanes = compiled_program._generated, []

    def checked(sections, arrays):
        for section in sections:
            uses = [
                [(arrays(use.place), use.writes) for step in steps for use in _used(step)]
                for steps in section.lanes.values()
            ]
            lanes.append(len(uses))
            for one, other in itertools.combinations(uses, 2):
                for (a, writes_a), (b, writes_b) in itertools.product(one, other):
                    assert not ((writes_a or writes_b) and np.shares_memory(a, b))
        return generated(sections, arrays)

    monkeypatch.setattr(compiled_program, "_generated", checked)
    before = mg.get_num_threads()
    mg.set_num_threads(3)
    yield lanes
    mg.set_num_threads(before)


@pytest.fixture(params=["whole", "lanes"])
def whole_or_in_lanes(request):
    return request.getfixturevalue("in_lanes") if request.param == "lanes" else None


def recordings(compiled):
    return sum(len(kept.programs) for kept in compiled._recordings.values())


def some_of(cases, n):
    """n of them at most: more of one op look at values in no other way."""
    return cases[:: math.ceil(len(cases) / n) or 1]


# --- every op ----------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted({case.name for case in CASES}))
def test_every_op_runs_again_bit_for_bit(name):
    for case in some_of([case for case in CASES if case.name == name], 10):
        leaves = [mg.tensor(x, requires_grad=True) for x in case.arrays]
        if not leaves or any(x.dtype.kind == "c" for x in case.arrays):
            continue

        def loss(*scales, case=case, leaves=leaves):
            y = case(*[leaf * scale for leaf, scale in zip(leaves, scales)])
            parts = y if isinstance(y, (list, tuple)) else [y]
            total = 0.0 * leaves[0].sum()
            for part in parts:
                if part.size and part.dtype.kind == "f":
                    total = total + (part * np.linspace(1, 2, part.size).reshape(part.shape)).sum()
            return total

        # Each element by itself: what is largest, and in which order they come, changes from run to run.
        spread = 1e-3 if name == "cholesky" else 0.5  # cholesky's matrices are to stay positive definite
        rng = np.random.default_rng(0)
        compare(
            loss,
            leaves,
            [[rng.uniform(1 - spread, 1 + spread, x.shape).astype(x.dtype) for x in case.arrays] for _ in range(3)],
        )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted({case.name for case in CASES}))
def test_every_op_of_parameters_that_change(name):
    """Whatever the op looks at in them: their order, their signs."""
    for case in some_of([case for case in CASES if case.name == name and name != "cholesky"], 3):
        leaves = [mg.tensor(x, requires_grad=True) for x in case.arrays if x.dtype.kind == "f"]
        if not leaves or len(leaves) < len(case.arrays):
            continue

        def loss(one, case=case, leaves=leaves):
            y = case(*leaves)
            parts = [part for part in (y if isinstance(y, (list, tuple)) else [y]) if part.dtype.kind == "f"]
            weights = [np.linspace(1, 2, part.size).reshape(part.shape) for part in parts]
            return sum((part * c).sum() * one for part, c in zip(parts, weights)) + 0.0 * leaves[0].sum()

        def runs(leaves=leaves):
            rng = np.random.default_rng(0)
            for _ in range(3):
                for leaf in leaves:
                    with mg.no_grad():
                        leaf[...] = (
                            rng.permutation(leaf.numpy().copy(), axis=rng.integers(leaf.ndim)) if leaf.ndim else leaf
                        )
                yield [np.array(1.0)]

        compare(loss, leaves, runs())


@pytest.mark.parametrize("block", range(4))
def test_random_programs(block, whole_or_in_lanes):
    for seed in range(25 * block, 25 * block + 25):
        program = random_program(seed)
        program = Program(program.name, program.source.replace(".data", ""), program.inputs)
        function, leaves = program.function(), [mg.tensor(x, requires_grad=True) for x in program.inputs]

        def loss(*shifts, function=function, leaves=leaves):
            y, z = function(*[leaf + shift for leaf, shift in zip(leaves, shifts)])
            return (y * y).sum() + z.sum()

        runs = [[np.full(x.shape, 0.01 * run) for x in program.inputs] for run in range(3)]
        with np.errstate(all="ignore"):
            compare(loss, leaves, runs)


# --- models ------------------------------------------------------------------------------------------------------


def tagger(dtype, positions="relative"):
    rng = np.random.default_rng(0)
    return AttentionStack(
        8, blocks=2, heads=2, hidden=12, positions=positions, dropout=0.2, rng=rng, dtype=dtype
    ), nn.Linear(8, 5, rng=rng, dtype=dtype)


@pytest.mark.parametrize(
    ("positions", "dtype"), [("none", np.float64), ("relative", np.float32), ("sinusoidal", np.float32)]
)
def test_training_with_dropout_and_adam_is_bit_equal(dtype, positions, whole_or_in_lanes):
    """Two copies trained side by side, on batches of two shapes with padding, draw and step alike."""
    rng = np.random.default_rng(1)
    batches = []
    for n in (4, 6, 4, 6, 4, 4, 6):
        valid = np.arange(n) < rng.integers(1, n + 1, 3)[:, None]
        batches.append((rng.standard_normal((3, n, 8)).astype(dtype), rng.integers(0, 5, (3, n)), valid))
    states, losses = [], []
    for compiling in (False, True):
        body, head = tagger(dtype, positions)
        parameters = body.parameters() + head.parameters()
        optimizer = optim.AdamW(parameters, lr=0.01)

        def loss(x, labels, valid, body=body, head=head):
            return nn.cross_entropy(head(body(x, valid=valid)), labels, mask=valid, label_smoothing=0.1)

        step = mg.compile(loss) if compiling else None
        mg.seed(3)
        values = []
        for x, labels, valid in batches:
            optimizer.zero_grad()
            if step is not None:
                value = step(x, labels, valid)
            else:
                value = loss(x, labels, valid)
                value.backward()
            optimizer.step()
            values.append(value.item())
        if step is not None:
            assert recordings(step) == 2
        losses.append(values)
        states.append([p.numpy().copy() for p in parameters])
    assert losses[0] == losses[1]
    for a, b in zip(*states):
        assert_equal_bits(a, b)
    assert whole_or_in_lanes is None or max(whole_or_in_lanes) == 3


@pytest.mark.parametrize("hidden", [False, True])
def test_each_thread_goes_through_all_kernels_with_its_piece(hidden, in_lanes):
    """Attention, normalisation and FC layers with residuals, forward and backward, without a meeting in between."""
    w = [mg.tensor(0.3 * normal(8, 8, seed=s), requires_grad=True) for s in range(6)]
    labels = np.arange(15).reshape(3, 5) % 8
    mask = np.tril(np.ones((5, 5), bool)) if hidden else None

    def loss(x):
        y = x + mg.self_attention(mg.layer_norm(x), *w[:3], heads=2, mask=mask)
        y = y + mg.linear(mg.linear(y, w[3], w[4][0], "relu"), w[5])
        return nn.cross_entropy(y, labels)

    compare(loss, [t for t in w if t is not w[4]], [[normal(3, 5, 8, seed=s)] for s in range(4)])
    assert [n for n in in_lanes if n] == [3, 3]  # the second time, for the sums over pieces


def test_heads_of_one_example_are_worked_on_side_by_side(in_lanes):
    """Their columns lie in the same rows, so their first and last bytes tell nothing."""
    w = [mg.tensor(normal(6, 6, seed=i), requires_grad=True) for i in range(3)]
    compare(lambda x: (mg.self_attention(x, *w, heads=3) ** 2).sum(), w, [[normal(1, 7, 6, seed=s)] for s in range(3)])
    assert in_lanes.count(3) > 2
    assert 1 not in in_lanes


def test_nested_arguments_and_gradients_of_arguments():
    w = mg.tensor(normal(3), requires_grad=True)

    def loss(batch, power, pair):
        return ((batch["x"] * w) ** power).sum() * pair[0] + (pair[1] * w[0]).sum()

    compiled = mg.compile(loss)
    for seed in range(4):
        arrays = [{"x": normal(2, 3, seed=seed)}, 2, (np.array(seed + 0.5), normal(2, seed=seed + 9))]
        given = mg.tensor(arrays[0]["x"], requires_grad=True)
        reference = mg.tensor(arrays[0]["x"], requires_grad=True)
        w.grad = None
        eager = loss({"x": reference}, 2, tuple(map(mg.tensor, arrays[2])))
        eager.backward()
        expected, w.grad = w.grad, None
        assert compiled({"x": given}, 2, arrays[2]).item() == eager.item()
        assert_equal_bits(given.grad, reference.grad)
        assert_equal_bits(w.grad, expected)
    assert recordings(compiled) == 1
    compiled({"x": normal(2, 3)}, 3, arrays[2])  # another Python number is another program, a plain array too
    assert recordings(compiled) == 2


def test_gradients_accumulate_and_are_nobody_elses():
    w = mg.tensor(normal(3), requires_grad=True)
    compiled = mg.compile(lambda x: (w * x).sum())
    kept = []
    for seed in range(4):
        compiled(normal(3, seed=seed))
        kept.append(w.grad.copy())
        w.grad += 0  # writable
    np.testing.assert_allclose(kept[3], sum(normal(3, seed=s) for s in range(4)))
    before = w.grad
    w.grad = None
    compiled(normal(3, seed=9))
    np.testing.assert_allclose(before, kept[3])  # what was handed out stays
    assert_equal_bits(w.grad, normal(3, seed=9))


def test_second_order_inside_a_compiled_loss():
    w = mg.tensor(normal(3), requires_grad=True)

    def loss(x):
        penalty = mg.grad(lambda x: (mg.tanh(x * w) ** 2).sum(), create_graph=True)(x)
        return (penalty**2).sum()

    compare(loss, [w], [[normal(3, seed=s)] for s in range(4)])


# --- what is not an argument -------------------------------------------------------------------------------------


def test_an_optimizer_made_later_moves_the_parameters():
    layer = nn.Linear(3, 2, rng=np.random.default_rng(0))
    compiled = mg.compile(lambda x: (layer(x) ** 2).sum())
    x = normal(4, 3, dtype=np.float32)
    compiled(x)
    optimizer = optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        value = compiled(x)
        assert value.item() == (layer(x) ** 2).sum().item()
        optimizer.step()


def test_a_layer_that_was_frozen_while_recorded_trains_again():
    frozen, free = (nn.Linear(3, 3, rng=np.random.default_rng(i), dtype=float) for i in range(2))
    calls = []

    def loss(x):
        calls.append(x)
        return (free(mg.tanh(frozen(x))) ** 2).sum()

    compiled = mg.compile(loss)
    parameters = [*frozen.parameters(), *free.parameters()]
    for wanted in (False, True, False, True):
        for p in frozen.parameters():
            p.requires_grad = wanted
        for seed in range(3):
            for p in parameters:
                p.grad = None
            x = normal(4, 3, seed=seed)
            compiled(x)
            found = [p.grad for p in parameters]
            expected = mg.grad(of_two_layers)([p.numpy() for p in parameters], x)
            assert [g is None for g in found] == [not wanted] * 2 + [False] * 2
            assert all(g is None or np.allclose(g, e, rtol=1e-12) for g, e in zip(found, expected))
    assert len(calls) == 4  # recorded anew when something changed, and only then


def of_two_layers(parameters, x):
    w1, b1, w2, b2 = parameters
    return ((mg.tanh(x @ w1 + b1) @ w2 + b2) ** 2).sum()


def test_what_begins_to_require_a_gradient_elsewhere_does_not_matter():
    w = mg.tensor(normal(3), requires_grad=True)
    calls = []
    compiled = mg.compile(lambda x: calls.append(x) or (x * w * constant).sum())
    constant = mg.tensor(np.ones(3))
    others = []
    for seed in range(4):
        x = mg.tensor(normal(3, seed=seed))
        x.requires_grad = True
        others.append(x)
        compiled(x)
        assert np.array_equal(x.grad, w.numpy())
    assert len(calls) == 1
    constant.requires_grad = True
    compiled(mg.tensor(np.ones(3)))
    assert np.array_equal(constant.grad, w.numpy())


@pytest.mark.parametrize("form", ["np.dot(a, b)", "np.dot(a, b=b)", "np.dot(a=a, b=b)", "a.dot(b)"])
def test_products_in_every_form(form):
    @mg.op
    def product(a, b):
        return eval(form)

    product.rule(a=lambda g, b: g @ b.T, b=lambda g, a: a.T @ g)
    w = mg.tensor(normal(3, 2), requires_grad=True)
    compare(lambda x: product(x, w).sum(), [w], [[normal(4, 3, seed=s)] for s in range(3)])


EXPONENTS = [-2, -1, -1.0, 0, 0.5, 1, 1.0, 1.5, 2, 2.0, 3, True, np.float32(0.5), np.float64(2), np.int64(2),
             np.array(-1.0), np.array(2.0), np.array([[0.5], [2]])]  # fmt: skip


POWERS = [
    (exponent, dtype, in_place)
    for exponent, dtype, in_place in itertools.product(EXPONENTS, [np.float16, np.float32, float, complex], [0, 1])
    if not (in_place and np.shape(exponent))
] + [(exponent, bool, 0) for exponent in EXPONENTS if not (isinstance(exponent, int) and exponent < 0)]


@pytest.mark.parametrize(("exponent", "dtype", "in_place"), POWERS, ids=repr)
def test_powers_by_the_operator(exponent, dtype, in_place):
    """Which are not always np.power's: that depends on exponent, dtype and NumPy's version."""

    def power(a):
        a = (a > 0.5).astype(bool) if dtype is bool else a.astype(dtype)
        if not in_place:
            return np.abs(a**exponent)
        b = a + dtype(0)
        b **= exponent
        return np.abs(b)

    raised = mg.op(power).rule(a=lambda g, a: g * power(a).sum(0) if np.shape(exponent) else g * power(a))
    given = float if dtype in (float, complex) else np.float32
    w = mg.tensor(np.ones(50, given), requires_grad=True)
    batches = [[np.abs(normal(50, seed=s)).astype(given)] for s in range(3)]
    with np.errstate(all="ignore"):
        compare(lambda x: raised(w * x).sum(), [w], batches)


def _swapped(a):
    b = a.copy()
    first = b[0]
    b[0] = b[1]
    b[1] = first
    return b


def _running_sums(a):
    total, sums = a[0], np.zeros_like(a)
    for i, x in enumerate(a):
        total += x
        sums[i] = total
    return sums


def _kept_from_before(a):
    b = a + 1
    before = b[2]
    b *= 2
    return b * before


def _all_operators(a):
    s = t = np.abs(a).max() + 1
    s += 1
    s *= t
    s -= 3
    s /= t
    s //= 0.25
    s %= 7
    s **= t / 2
    b, c = (a > 0).any(), (a > 1).any()
    d = b
    d &= c
    d |= b
    d ^= c
    n = m = np.argmax(a)
    n <<= 2
    n >>= 1
    return a * s + np.where(d, t, b) + np.where(c, n, m)


def _methods(a):
    s = a.sum()
    b = s.reshape(1)
    b += 1
    return a * b + s.astype(np.float32).round(1).clip(-1, 1) + np.atleast_1d(s)


def _scalar_powers(a):
    s, t = np.abs(a).sum(), np.abs(a).max()
    return a * s**2.3 + 1.7**s + s**t + np.exp(s / 100) ** 0.5 + t ** np.float32(3)


def _of_complex_scalars(a):
    z, product = a * (0.3 + 1j) + 1, 0.1 + 1j
    for factor in z:
        product = product * factor
    return a * np.abs(product)


SCALARS = [_swapped, _running_sums, _kept_from_before, _all_operators, _methods, _scalar_powers, _of_complex_scalars]


@pytest.mark.parametrize("dtype", [np.float32, float])
@pytest.mark.parametrize("function", SCALARS)
def test_scalars_within_ops(function, dtype):
    """What NumPy returns as a scalar is never written to, and its arithmetic is not always a ufunc's."""
    own = mg.op(lambda a: function(a).astype(dtype)).rule(a=lambda g, a: (g * function(a)).astype(dtype))
    w = mg.tensor(np.ones(9, dtype), requires_grad=True)
    compare(lambda x: own(w * x).sum(), [w], [[normal(9, seed=s, dtype=dtype)] for s in range(4)])
    assert w.numpy().tolist() == [1] * 9


LOOKING = [
    lambda w, x: mg.where(w > 2, w, 2 * w) * x,
    lambda w, x: w[w > 0.5].sum() * x,
    lambda w, x: w[w > 2].sum() * x,
    lambda w, x: w[w.argmax()] * x,
    lambda w, x: w[w.argsort()] * x + w[np.argpartition(w, 1)],
    lambda w, x: w.round() * w * x + w // 2 * w,
    lambda w, x: np.sign(w - 2) * w * x + np.floor(w) * w,
    lambda w, x: np.count_nonzero(w > 2) * w * x,
    lambda w, x: (w > 2.5).any() * w * x + (w >= 1).all() * w,
    lambda w, x: np.searchsorted(x, w) * w * x,
    lambda w, x: (w.detach() > 2) * w * x,
    lambda w, x: mg.stop_gradient(w) * (w.detach() < 2) * w * x,
]


@pytest.mark.parametrize("number", range(len(LOOKING)))
def test_looking_at_a_parameter_is_recorded(number):
    """Outside of ops too: what follows from its values follows from those of each run."""
    w = mg.tensor([1.0, 2.0, 3.0], requires_grad=True)

    def runs():
        for values in ([1.0, 2, 3], [3.0, 2, 1], [2.0, 4, 1], [2, 4, 1.1]):
            with mg.no_grad():
                w[...] = np.array(values)
            yield [np.array([1.0, 10, 100])]

    compiled = compare(lambda x: LOOKING[number](w, x).sum(), [w], runs())
    assert recordings(compiled) == 1


@pytest.mark.parametrize("read", [mg.Tensor.numpy, mg.Tensor.tolist, lambda w: w[0].item(), lambda w: w.data, max])
def test_reading_a_parameter_is_an_error(read):
    w = mg.tensor([1.0, 2.0], requires_grad=True)

    with pytest.raises(TypeError, match=rf"{Path(__file__).name}:\d+ reads a value"):
        mg.compile(lambda x: (w * x * read(w)).sum())(np.ones(2))
    assert w.numpy().tolist() == [1, 2]
    assert type(w._array) is np.ndarray


def test_arguments_in_another_structure_are_other_arguments():
    w = mg.tensor([1.0, 1.0], requires_grad=True)
    x, y = np.array([1.0, 2.0]), np.array([10.0, 20.0])
    difference = mg.compile(lambda d: (w * d["a"] - d["b"]).sum())
    assert [difference(d).item() for d in ({"a": x, "b": y}, {"b": x, "a": y})] == [-27, 27]
    counted = mg.compile(lambda a, b: (w * x).sum() * (len(a) + 10 * len(b) + 100 * isinstance(a, tuple)))
    assert [counted(*given).item() for given in (([x, y], []), ([x], [y]), ((x, y), []), ([], [x, y]))] == [
        6,
        33,
        306,
        60,
    ]
    named = mg.compile(lambda d: (w * x).sum() * len(next(iter(d))))
    assert [named({name: x}).item() for name in ("a", "bcd")] == [3, 9]


@pytest.mark.parametrize(
    "looked_at", [lambda p: mg.where(p > 0, 1.0, -1.0), lambda p: p.detach(), lambda p: mg.sort(p)]
)
@pytest.mark.parametrize("frozen", [False, True])
def test_an_optimizer_moves_what_gets_no_gradient_from_the_loss(looked_at, frozen):
    w, p = mg.tensor([1.0, 2.0], requires_grad=True), mg.tensor([3.0, -3.0], requires_grad=not frozen)

    def loss(x):
        return (w * looked_at(mg.stop_gradient(p)) * x).sum()

    compiled = mg.compile(loss)
    x = np.array([1.0, 2.0])
    compiled(x)
    p.requires_grad = True
    optimizer = optim.SGD([p], lr=1.0)
    for values in ([-1.0, 1.0], [0.5, 0.25]):
        with mg.no_grad():
            p[...] = np.array(values)
        assert compiled(x).item() == loss(mg.tensor(x)).item()
    del optimizer


def test_what_thaws_and_moves_at_once_gets_its_gradient():
    w, p = mg.tensor([1.0, 2.0], requires_grad=True), mg.tensor([3.0, -3.0])
    compiled = mg.compile(lambda x: (w * p * x).sum())
    compiled(np.ones(2))
    p.requires_grad = True
    optimizer = optim.SGD([p], lr=1.0)
    compiled(np.ones(2))
    assert p.grad.tolist() == [1, 2]
    optimizer.step()
    assert compiled(np.ones(2)).item() == 2 - 5 * 2


def test_what_moves_while_it_is_recorded():
    w = mg.tensor([1.0, 2.0], requires_grad=True)
    optimizers = []

    def loss(x):
        y = (w * x).sum()
        if not optimizers:
            thread = threading.Thread(target=lambda: optimizers.append(optim.SGD([w], lr=1.0)))
            thread.start()
            thread.join()
        return y

    compiled = mg.compile(loss)
    compiled(np.ones(2))
    with mg.no_grad():
        w[...] = np.array([20.0, 20.0])
    assert compiled(np.ones(2)).item() == 40


def test_what_is_kept_from_a_recording_is_what_it_was_then():
    w, kept = mg.tensor([1.0, 2.0], requires_grad=True), {}

    def loss(x):
        kept.update(mask=x > 0, largest=x.argmax(), exp=mg.exp(x), total=x.sum())
        return (w * x).sum()

    mg.compile(loss)(np.array([1.0, -2.0, 3.0][:2]))
    assert np.asarray(kept["mask"]).tolist() == kept["mask"].tolist() == [True, False]
    assert bool(kept["mask"].any())
    assert int(kept["largest"]) == 0
    np.testing.assert_array_equal(kept["exp"].numpy(), np.exp([1.0, -2.0]))
    assert float(kept["total"]) == -1


def _number(x):
    return float(x.sum())


def _sign_of_zero(x):
    return x * np.copysign(1.0, float(x[0]))


def _text(x):
    return x * len(str(x[0] > 0))


@pytest.mark.parametrize("function", [_number, _sign_of_zero, _text])
def test_ops_that_compute_with_python(function):
    own = mg.op(function).rule(x=lambda g, x: g * np.ones_like(x) * 2)
    w = mg.tensor([1.0, 2.0], requires_grad=True)
    batches = [[np.array(values)] for values in ([0.0, 3], [0.0, 2], [-0.0, 2], [-1.0, 2], [1.0, 2])]
    compare(lambda x: own(w * x).sum(), [w], batches)


def test_an_interrupt_while_ops_begin_to_be_watched(monkeypatch):
    """At the third op: a recording after it must watch all the same."""
    watch, calls = op_module._watch, itertools.count()

    def interrupted(op):
        if next(calls) == 2:
            raise KeyboardInterrupt
        watch(op)

    monkeypatch.setattr(op_module, "_watch", interrupted)
    w = mg.tensor(normal(3), requires_grad=True)
    with pytest.raises(KeyboardInterrupt):
        mg.compile(lambda x: mg.tanh(w * x).sum())(np.ones(3))
    monkeypatch.undo()
    assert type(w._array) is np.ndarray
    compare(lambda x: mg.tanh(w * x).sum(), [w], [[normal(3, seed=s)] for s in range(3)])
    assert not op_module._unwatched


def test_what_writes_in_place_runs_eagerly():
    def results(prepare):
        w, mean = mg.tensor([1.0, 2.0, 3.0], requires_grad=True), mg.tensor(np.zeros(3))

        def loss(x):
            with mg.no_grad():
                mean[...] = 0.9 * mean + x
                w[0] = w[0] * 1.5
            x[1] = 4.0
            part = mg.tensor(np.zeros(3))
            part[1:] = x[1:]
            part += x
            return (w * x * mean * part).sum()

        step = prepare(loss)
        losses = [step(mg.tensor(np.arange(3.0) + run)).item() for run in range(4)]
        return losses, mean.tolist(), w.tolist(), w.grad.tolist()

    def eager(loss):
        def step(x):
            y = loss(x)
            y.backward()
            return y

        return step

    assert results(mg.compile) == results(eager)


ENDS = [
    lambda w, i: w[:i],
    lambda w, i: w[i:],
    lambda w, i: w.reshape(2, 3)[:, :i],
    lambda w, i: w[:: i + 1],
    lambda w, i: mg.index_put(w, slice(i), 0.0),
]


@pytest.mark.parametrize("part", ENDS)
def test_slices_that_end_at_an_argument(part):
    w = mg.tensor(normal(6), requires_grad=True)
    compare(lambda i: (part(w, i) ** 2).sum(), [w], [[np.array(i)] for i in (2, 2, 1, 1, 2)])


INDEXED = [
    (lambda w, i: mg.take(w, i), [2, 0]),
    (lambda w, i: w.take(i), [2, 0]),
    (lambda w, i: mg.bincount(i, weights=w), [1, 0, 1]),
    (lambda w, i: mg.repeat(w, i), [1, 0, 2]),
    (lambda w, i: mg.quantile(w, i), [0.1, 0.7]),
    (lambda w, i: mg.interp(i, np.arange(3.0), w), [0.3, 1.5]),
    (lambda w, i: mg.split(w, i)[1], [1]),
    (lambda w, i: mg.take_along_axis(w, i, 0), [1, 1]),
]


@pytest.mark.parametrize("number", range(len(INDEXED)))
def test_ops_that_take_an_argument_for_its_values(number):
    op, index = INDEXED[number]
    w = mg.tensor(normal(3), requires_grad=True)
    compare(lambda i: (op(w, i) ** 2).sum(), [w], [[np.array(index)]] * 3)


LAYOUTS = [
    normal(64, 74)[:, ::2],
    normal(64, 37)[::-1],
    normal(37, 64).T,
    np.broadcast_to(normal(37), (64, 37)),
    normal(4, 37, 16).transpose(2, 0, 1)[::-1],
]


@pytest.mark.parametrize("x", LAYOUTS)
def test_arguments_that_are_not_contiguous(x):
    v = mg.tensor(normal(37), requires_grad=True)
    compiled = mg.compile(lambda x: ((x @ v) ** 2).sum(), check_every=1)
    again = np.array(x)
    for given in (x, x, again):
        v.grad = None
        y = compiled(given)
        eager = ((mg.tensor(given) @ v) ** 2).sum()
        np.testing.assert_allclose(y.item(), eager.item(), rtol=1e-14)


def test_numbers_and_objects_that_are_part_of_what_is_recorded():
    w = mg.tensor([1.0, 2.0], requires_grad=True)
    divided = mg.compile(lambda x, z: (w * x / z).sum())
    with np.errstate(all="ignore"):
        assert [divided(np.ones(2), z).item() for z in (0.0, -0.0, 0.0)] == [np.inf, -np.inf, np.inf]
    scaled = mg.compile(lambda x, z: (w * x).sum() * mg.where(np.isnan(z), 2.0, 3.0))
    assert [scaled(np.ones(2), float("nan")).item() for _ in range(3)] == [6, 6, 6]
    assert recordings(scaled) == 1
    chosen = mg.compile(lambda x, s: (w[s] * x).sum())
    assert [chosen(np.ones(1), slice(i, i + 1)).item() for i in (0, 1, 0)] == [1, 2, 1]
    among = mg.compile(lambda x, s: (w * x).sum() * (3 in s))
    assert [among(np.ones(2), s).item() for s in ({3}, {4}, {3})] == [3, 0, 3]


def test_what_has_no_real_loss_is_refused():
    w = mg.tensor(np.ones(3), requires_grad=True)
    compiled = mg.compile(lambda x: (w * x).sum())
    compiled(np.ones(3))
    with pytest.raises(TypeError, match="this one is complex"):
        compiled(np.ones(3) * 1j)
    np.testing.assert_array_equal(w.grad, np.ones(3))
    with pytest.raises(TypeError, match="was given int"):
        mg.compile(3)


def test_numbers_too_large_for_the_dtype_warn_in_every_run():
    w = mg.tensor(np.ones(3, np.float32), requires_grad=True)
    compiled = mg.compile(lambda x: (w * x * 1e300).sum())
    for _ in range(3):
        with pytest.warns(RuntimeWarning, match="overflow"):
            compiled(np.ones(3, np.float32))


def test_check_every_tells_of_a_changed_mode():
    drop = nn.Dropout(0.5)
    w = mg.tensor(np.ones(100), requires_grad=True)
    compiled = mg.compile(lambda x: (drop(x * w)).sum(), check_every=1)
    for _ in range(3):
        compiled(np.ones(100))
    drop.eval()
    w.grad = None
    with pytest.raises(RuntimeError, match=r"differs from an eager one in loss .*train or eval"):
        compiled(np.ones(100))
    assert w.grad is None


def test_a_value_that_decides_inside_an_op_is_watched():
    @mg.op
    def signed_root(x):
        if x.min() < 0:
            return -np.sqrt(np.abs(x))
        return np.sqrt(x)

    signed_root.rule(x=lambda g, x: g * (-0.5 if x.min() < 0 else 0.5) * np.sign(x) / np.sqrt(np.abs(x)))
    w = mg.tensor([4.0, 9.0], requires_grad=True)
    compiled = compare(lambda s: signed_root(w * s).sum(), [w], [[np.array(s)] for s in (1.0, 1.5, -1.0, -2.0, 2.0)])
    assert compiled(np.array(1.0)).item() == 5.0


def counted(f):
    """f, and the number of its calls: one for a recording or an eager run, none for a program's."""

    @functools.wraps(f)
    def loss(*args):
        loss.calls += 1
        return f(*args)

    loss.calls = 0
    return loss


def test_each_of_a_few_values_that_decide_has_a_program_of_its_own():
    """Masks that hide something in one batch and nothing in another, in turns."""
    x = mg.tensor(normal(3, 5, 4), requires_grad=True)
    loss = counted(lambda mask: (mg.attention(x, x, x, mask=mask) ** 2).sum())
    full = np.ones((3, 5, 5), bool)
    padded = full & (np.arange(5) < 4)
    dead = padded & (np.arange(5) < 3)[:, None]
    masks = [full, padded, dead] * 10
    compiled = compare(loss, [x], [[mask] for mask in masks])
    assert recordings(compiled) == 3
    loss.calls = 0
    for mask in masks:
        compiled(mask)
    assert loss.calls == 0


@mg.op
def stepped(x, at):
    """x times how many of `at` it is at least."""
    return x * int(np.sum(x.item() >= at))


stepped.rule(x=lambda g, x, at: g * int(np.sum(x.item() >= at)))


def test_where_values_decide_anew_in_every_call_all_run_eagerly():
    w = mg.tensor(1.0, requires_grad=True)
    loss = counted(lambda x: stepped(w * x, np.arange(1.0, 1000)))
    compiled = mg.compile(loss)
    assert [compiled(np.array(n + 0.5)).item() for n in range(1, 50)] == [n * (n + 0.5) for n in range(1, 50)]
    assert (loss.calls, recordings(compiled)) == (49, 0)


def test_a_value_that_decides_otherwise_now_and_then_costs_no_program():
    w = mg.tensor(1.0, requires_grad=True)
    loss = counted(lambda x: stepped(w * x, np.arange(1.0, 1000)))
    compiled = mg.compile(loss)
    for n in range(2, 40):
        assert compiled(np.array(n + 0.5)).item() == n * (n + 0.5)
        for _ in range(30):
            assert compiled(np.array(1.5)).item() == 1.5
    assert loss.calls == 39
    assert recordings(compiled) == 4


def test_an_error_of_the_callers_costs_no_program():
    w = mg.tensor(normal(4, 3), requires_grad=True)
    loss = counted(lambda x, labels: nn.cross_entropy(x @ w, labels))
    compiled = mg.compile(loss)
    compiled(normal(2, 4), np.array([0, 2]))
    for _ in range(10):
        with pytest.raises(IndexError, match="label 3 is out of range"):
            compiled(normal(2, 4), np.array([0, 3]))
    loss.calls = 0
    compiled(normal(2, 4), np.array([1, 2]))
    assert loss.calls == 0


@mg.op
def by_kind(x):
    """What isinstance says of an array and of one of its sums decides."""
    total = np.sum(x)
    y = np.square(x) if isinstance(x, np.ndarray) else x
    return y * 2.0 if isinstance(total, (float, np.floating)) and not isinstance(total, np.ndarray) else y


by_kind.rule(x=lambda g, x: g * (4.0 * x if isinstance(x, np.ndarray) and isinstance(x.max(), np.floating) else 1.0))


def test_ops_find_arrays_and_scalars_to_be_what_they_are_eagerly():
    w = mg.tensor([4.0, 9.0], requires_grad=True)
    compiled = compare(lambda s: by_kind(w * s).sum(), [w], [[np.array(s)] for s in (1.0, 1.5, -1.0)])
    assert compiled(np.array(1.0)).item() == 2 * (16 + 81)


def in_place(write):
    """write(y), where y is a copy of x that it changes."""

    def f(x):
        y = x * 1
        write(y)
        return y

    return f


def filled(write, shape=()):
    """What write(x, z) puts into z."""

    def f(x):
        z = np.empty_like(x, shape=shape)
        write(x, z)
        return z

    return f


def tried(x):
    try:
        return x * 2 if x.flags.c_contiguous else x
    except Exception:
        return x * 100


def viewed_and_written(x):
    y = x.reshape(2, 2) * 1
    row = y[x.argmax() // 2]
    y *= 2
    return row


def written_through(x):
    y = x.reshape(2, 2) * 1
    row = y[x.argmax() // 2]
    row *= 2
    return y


AS_WHOLE = {
    "dot into a third argument": filled(lambda x, z: np.dot(np.outer(x, x), np.outer(x, x), z), (4, 4)),
    "clip into a fourth": in_place(lambda y: np.clip(y, 0, 1, y)),
    "clip method": in_place(lambda y: y.clip(0, 1, y)),
    "cumsum into": filled(lambda x, z: np.cumsum(x, 0, None, z), 4),
    "round into": in_place(lambda y: y.round(0, y)),
    "mean into": filled(lambda x, z: np.mean(x, 0, None, z)),
    "max into": filled(lambda x, z: x.max(0, z)),
    "sum into": filled(lambda x, z: x.sum(0, None, z)),
    "median into": filled(lambda x, z: np.median(x, 0, z)),
    "into an array made unseen": lambda x: np.dot(np.outer(x, x), x, np.zeros(4)),
    "nan_to_num": in_place(lambda y: np.nan_to_num(np.log(y, out=y), copy=False, nan=7.0)),
    "sort": in_place(lambda y: y.sort()),
    "resize": in_place(lambda y: setattr(y, "shape", (2, 2))),
    "a flag": tried,
    "reshape by a value": lambda x: x.reshape(x.argmax() % 2 + 1, -1)[0],
    "split at a value": lambda x: np.split(x, [x.argmax()])[0].sum(),
    "diagonal by a value": lambda x: np.diagonal(np.outer(x, x + 1), x.argmax()),
    "moved by a value": lambda x: np.moveaxis(x.reshape(2, 2), 0, x.argmax() % 2)[0],
    "zeros by a value": lambda x: np.zeros_like(x, shape=(x.argmax() + 1,)) + x[0],
    "a view of values": viewed_and_written,
    "written through a view": written_through,
    "real_if_close": lambda x: np.abs(np.real_if_close(x + 1j * (x < 0))),
    "trim_zeros": lambda x: np.trim_zeros(np.trunc(x - 1))[0] + x,
    "complex now and then": lambda x: np.abs(np.linalg.eigvals((3 - x[1]) * np.eye(2, k=1) + np.eye(2, k=-1))).max(),
    "a root of a negative number": lambda x: np.abs(np.emath.sqrt(x)),
    "repr": lambda x: x * (2 if "9" in repr(x.max()) else 1),
    "format": lambda x: x * float(f"{x.max():.2f}"),
    "round": lambda x: x * round(x.max()),
    "a key": lambda x: x * {9.0: 2}.get(x.max(), 1),
    "is_integer": lambda x: x * (2 if x.max().is_integer() else 3),
    "in": lambda x: x * (2 if 81 in np.outer(x, x) else 3),
    "complex()": lambda x: x * complex((x * 1j).sum()).imag,
    "copy": lambda x: copy.copy(x) * copy.deepcopy(x),
    "the sign of zero": lambda x: x + [math.copysign(1, v) for v in np.trunc(x / 10).tolist()],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(AS_WHOLE))
def test_whatever_an_op_does_with_arrays_runs_again_bit_for_bit(name):
    op = mg.op(AS_WHOLE[name])
    op.rule(x=lambda g, x: np.full_like(x, np.sum(g)))
    w = mg.tensor(np.ones(4), requires_grad=True)
    batches = [[1.0, 2, 5, 3], [1.0, 9, 5, 3], [-4.0, 0.5, 2, 1], [1.0, 2, 0, 6], [-1.0, -9, 0, -3]]
    compare(lambda x: op(w * x).sum(), [w], [[np.array(x)] for x in batches * 2])


@pytest.mark.parametrize(
    "f",
    [
        lambda y, i: np.reshape(y, (i % 2 + 1, -1))[0],
        lambda y, i: np.broadcast_to(y.sum(), (i + 1,)),
        lambda y, i: np.swapaxes(y.reshape(2, 2), 0, i % 2)[0],
        lambda y, i: np.flip(y.reshape(2, 2), i % 2)[0],
    ],
)
def test_shapes_and_axes_that_follow_values_of_arguments(f):
    w = mg.tensor(np.ones(4), requires_grad=True)
    batches = [[1.0, 2, 5, 3], [1.0, 9, 5, 3], [4.0, 0.5, 2, 1]]
    compare(lambda x: f(w * x, np.argmax(x)).sum(), [w], [[np.array(x)] for x in batches * 2])


def test_a_refusal_that_the_function_catches_is_raised_all_the_same():
    def number(x):
        try:
            return float(x.sum())
        except (TypeError, ValueError):
            return 0.0

    w = mg.tensor(np.ones(4), requires_grad=True)
    with pytest.raises(TypeError, match="reads a value while"):
        mg.compile(lambda x: (w * x).sum() * number(x))(np.ones(4))


def test_a_compiled_function_within_another():
    w, u = (mg.tensor(np.ones(3), requires_grad=True) for _ in range(2))
    penalty = mg.compile(lambda: (u**2).sum())
    step = mg.compile(lambda x: (w * x).sum() + penalty())
    for _ in range(3):
        assert step(np.ones(3)).item() == 6
    np.testing.assert_array_equal(u.grad, 3 * 2 * np.ones(3))
    with mg.no_grad():
        u[...] = np.full(3, 10.0)
    assert step(np.ones(3)).item() == 303


def test_check_every_counts_runs_that_fit():
    scale = [1.0]

    @mg.op
    def scaled(x):
        return x * scale[0] if (x > 0).all() else x * 3

    scaled.rule(x=lambda g, x: g * (scale[0] if (x > 0).all() else 3))
    w = mg.tensor(np.ones(3), requires_grad=True)
    step = mg.compile(lambda x: scaled(w * x).sum(), check_every=2)
    a, b = np.array([1.0, 2, 3]), np.array([-1.0, 2, 3])
    for x in (a, a, b, a, b, a, b, a):
        step(x)
    scale[0] = 100.0

    def turns():
        for x in (b, a) * 10:
            step(x)

    with pytest.raises(RuntimeError, match="differs from an eager one"):
        turns()


@pytest.mark.parametrize("check_every", [0, 1])
@pytest.mark.parametrize("error", [RuntimeError, IndexError, KeyError])
def test_draws_after_an_error_are_those_of_eager_runs(error, check_every):
    @mg.op
    def strict(x, limit):
        if max(np.asarray(x)) > limit:  # which is noted as one call
            raise error("too large")
        return x

    strict.rule(x=lambda g, x, limit: g)

    def losses(run):
        rng = np.random.default_rng(0)
        w, found = mg.tensor(np.ones(20), requires_grad=True), []
        drop = nn.Dropout(0.5, rng=rng)
        step = run(lambda x: strict(drop(w * x), 5.0).sum())
        for size in (1.0, 2.0, 100.0, 1.0, 100.0, 2.0):
            try:
                found.append(step(np.full(20, size)).item())
            except error:
                found.append(rng.random())
        return found

    assert losses(lambda f: mg.compile(f, check_every=check_every)) == losses(lambda f: lambda x: f(mg.tensor(x)))


def test_functions_without_a_name_are_named_all_the_same():
    w = mg.tensor(np.ones(3), requires_grad=True)
    with pytest.raises(TypeError, match=r"functools\.partial.* returned a tensor of shape \(3,\)"):
        mg.compile(functools.partial(lambda a, x: w * x * a, 1))(np.ones(3))


def test_legacy_generators_draw_anew():
    @mg.op
    def noisy(x, random):
        return x * random.standard_normal(x.shape)

    noisy.rule(x=lambda g, x, random: g)
    w = mg.tensor(np.ones(3), requires_grad=True)
    random = np.random.RandomState(0)
    step = mg.compile(lambda: noisy(w, random).sum())
    assert len({step().item() for _ in range(3)}) == 3


def test_an_op_that_leaves_numpy_is_one_call():
    import math

    @mg.op
    def by_hand(x):
        return np.array([math.sin(v) for v in x.tolist()])

    by_hand.rule(x=lambda g, x: np.array([a * math.cos(v) for a, v in zip(g.tolist(), np.asarray(x).tolist())]))
    w = mg.tensor([4.0, 9.0], requires_grad=True)
    compiled = compare(lambda s: (by_hand(w * s) * w).sum(), [w], [[np.array(s)] for s in (1.0, 1.5, -1.0)])
    assert recordings(compiled) == 1


def test_labels_out_of_range_raise_as_they_do_eagerly():
    w = mg.tensor(normal(4, 3), requires_grad=True)
    compiled = mg.compile(lambda x, labels: nn.cross_entropy(x @ w, labels))
    for _ in range(2):
        compiled(normal(2, 4), np.array([0, 2]))
    with pytest.raises(IndexError, match="label 3 is out of range"):
        compiled(normal(2, 4), np.array([0, 3]))
    assert compiled(normal(2, 4), np.array([1, 1])).item() == nn.cross_entropy(normal(2, 4) @ w, [1, 1]).item()


@pytest.mark.parametrize(
    "expression", ["float(t)", "bool(t)", "int(t)", "t.item()", "t.numpy()", "t.data", "np.asarray(t)"]
)
@pytest.mark.parametrize("of", ["x", "(x * w).detach()", "x * w", "x > 0", "np.floor(x)"])
def test_reading_a_value_names_the_line(expression, of):
    if expression in ("t.numpy()", "t.data") and of in ("x > 0", "np.floor(x)"):
        return  # plain arrays have neither
    w = mg.tensor(2.0, requires_grad=True)
    scope = {"np": np, "w": w}
    exec(compile(f"def loss(x):\n    t = {of}\n    {expression}\n    return w * x", "a program", "exec"), scope)
    message = "does not turn into an array" if (expression, of) == ("np.asarray(t)", "x * w") else "a program:3 reads"
    with pytest.raises(TypeError, match=message):
        mg.compile(scope["loss"])(np.array(3.0))
    assert w.grad is None


def test_random_draws_are_new_in_every_run_and_undone_when_a_run_is():
    drop = nn.Dropout(0.5)
    w = mg.tensor(np.ones(50), requires_grad=True)
    compiled = mg.compile(lambda x: drop(x * w).sum())
    mg.seed(0)
    values = [compiled(np.ones(50)).item() for _ in range(6)]
    mg.seed(0)
    assert values == [drop(mg.tensor(np.ones(50)) * w).sum().item() for _ in range(6)]
    assert len(set(values)) > 1


# --- when to run eagerly -----------------------------------------------------------------------------------------


def test_hooks_and_captures_see_every_run():
    layer = SelfAttention(4, rng=np.random.default_rng(0))
    compiled = mg.compile(lambda x: (layer(x) ** 2).sum())
    x = normal(2, 3, 4, dtype=np.float32)
    for _ in range(2):
        compiled(x)
    seen = []
    handle = layer.query.weight.register_hook(seen.append)
    compiled(x)
    assert len(seen) == 1
    handle.remove()
    with study.capture(layer, "*attn") as caught:
        compiled(x)
    assert len(list(caught)) == 1
    compiled(x)
    assert len(seen) == 1


def test_a_gradient_that_is_kept_on_the_way():
    w = mg.tensor(normal(3), requires_grad=True)
    kept = []

    def loss(x):
        y = w * x
        y.retain_grad()
        kept.append(y)
        return (y**2).sum()

    compiled = mg.compile(loss)
    for _ in range(3):
        compiled(normal(3))
    assert kept[-1].grad is not None
    assert recordings(compiled) == 0


def test_no_grad_and_losses_that_are_none():
    w = mg.tensor(normal(3), requires_grad=True)
    with mg.no_grad(), pytest.raises(TypeError, match="depends on something that requires a gradient"):
        mg.compile(lambda x: (w * x).sum())(normal(3))
    with pytest.raises(TypeError, match=r"returned a tensor of shape \(3,\)"):
        mg.compile(lambda x: w * x)(normal(3))
    with pytest.raises(TypeError, match="returned a float"):
        mg.compile(lambda x: 1.0)(normal(3))
    with pytest.raises(TypeError, match="has a history"):
        mg.compile(lambda x: (w * x).sum())(w * 2)
    with pytest.raises(ValueError, match="check_every"):
        mg.compile(lambda x: x, check_every=-1)


# --- memory and threads ------------------------------------------------------------------------------------------


def test_the_cache_is_bounded_and_the_workspace_is_shared():
    w = mg.tensor(normal(3), requires_grad=True)
    compiled = mg.compile(lambda x: (mg.tanh(x * w) ** 2).sum(), cache=4)
    for n in range(1, 30):
        compiled(normal(n, 3))
        compiled(normal(n, 3))
    assert recordings(compiled) == 4
    assert len(compiled._workspace._bytes) < 29 * 3 * 8 * 8


def test_failures_are_forgotten_like_programs():
    w = mg.tensor(normal(3), requires_grad=True)

    def loss(x):
        y = (x * w).sum()
        y.register_hook(lambda g: None)  # a gradient that is watched cannot be recorded
        return y

    compiled = mg.compile(loss, cache=4)
    for n in range(1, 20):
        compiled(normal(n, 3))
    assert recordings(compiled) == 0
    assert len(compiled._recordings) == 4


def test_memory_is_used_again():
    """A chain of n products needs the n saved operands and little more, not the 3 n arrays that appear on the way."""
    w = mg.tensor(normal(1000), requires_grad=True)

    def loss(x):
        y = w
        for _ in range(50):
            y = mg.tanh(y * x) * 0.1
        return y.sum()

    compiled = compare(loss, [w], [[normal(1000, seed=s)] for s in range(3)])
    assert len(compiled._workspace._bytes) < 110 * 8000


def test_nothing_is_left_of_a_dropped_function():
    w = mg.tensor(normal(3), requires_grad=True)
    compiled = mg.compile(lambda x: (x * w).sum())
    compiled(normal(3))
    compiled(normal(3))
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(50):
        compiled(normal(3))
    gc.collect()
    assert len(gc.get_objects()) < before + 20


def test_two_threads_share_a_compiled_function():
    nets = FCStack((4, 8, 1), rng=np.random.default_rng(0))
    compiled = mg.compile(lambda x: (nets(x) ** 2).sum())
    inputs = [normal(3, 4, seed=s, dtype=np.float32) for s in range(40)]
    expected = [(nets(x) ** 2).sum().item() for x in inputs]
    results = [0.0] * 40

    def work(part):
        for i in range(part, 40, 4):
            results[i] = compiled(inputs[i]).item()

    threads = [threading.Thread(target=work, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == expected


def test_long_sequences_block_by_block(monkeypatch):
    from minigrad.kernels import attention as kernel

    monkeypatch.setattr(kernel, "LONG", 1)
    monkeypatch.setattr(kernel, "LONG_ROW", 4)
    layer = SelfAttention(8, heads=2, rng=np.random.default_rng(0))
    batches = [[normal(2, 9, 8, seed=s, dtype=np.float32)] for s in range(4)]
    calls = []

    def loss(x):
        calls.append(x.shape)
        return (layer(x) ** 2).sum()

    compare(loss, layer.parameters(), batches)
    assert len(calls) == len(batches) + 1  # eager ones, and one that is recorded


def test_what_an_op_computes_unseen_is_not_taken_for_a_constant():
    """A forward and a rule that leave NumPy's protocols, work out an index from values, and call other ops with it."""

    @mg.op
    def descending(x):
        return mg.take.apply(x, np.argsort(-np.asarray(x)))

    def pull(g, x):
        return mg.index_add.apply(np.zeros(np.shape(x)), np.argsort(-np.asarray(x)), g)

    descending.rule(x=pull)
    w = mg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    signs = [[np.array(s)] for s in ([1.0, 1, 1], [-1.0, -1, -1], [1.0, -1, 1], [-1.0, 1, 1])]
    compare(lambda s: (descending(w * s) * [1.0, 10.0, 100.0]).sum(), [w], signs)


# --- less usual functions ----------------------------------------------------------------------------------------


@mg.op
def _centred(x):
    y = x * 1.0
    y -= y[:1]
    return y


_centred.rule(x=lambda g: g)


def test_a_write_that_reads_elsewhere_in_its_memory_is_not_cut(in_lanes):
    w = mg.tensor(normal(4, 4), requires_grad=True)
    compare(lambda x: (_centred(mg.linear(x, w)) ** 2).sum(), [w], [[normal(7, 4, seed=s)] for s in range(4)])
    assert max(in_lanes) == 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_section_of_one_lane_has_one_thread_of_blas(dtype, in_lanes, monkeypatch):
    """One example, whose heads' columns are not known to lie apart, so that lanes come one after the other."""
    monkeypatch.setattr(compiled_lanes, "_meet", lambda *_: True)
    ws = [mg.tensor(0.1 * normal(128, 128, seed=s, dtype=dtype), requires_grad=True) for s in range(4)]
    labels = np.arange(400)[None] % 128

    def loss(x):
        return nn.cross_entropy(mg.linear(mg.self_attention(x, *ws[:3], heads=4), ws[3]), labels)

    compare(loss, ws, [[normal(1, 400, 128, seed=s, dtype=dtype)] for s in range(3)])
    assert 1 in in_lanes


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_means_of_halves_do_not_overflow(dtype):
    w = mg.tensor(np.ones(2000, dtype), requires_grad=True)
    compare(lambda x: mg.mean(w * x), [w], [[np.full(2000, 40 + s, dtype)] for s in range(3)])


def test_one_tensor_in_two_places():
    a, b = (mg.tensor(x, requires_grad=True) for x in ([1.0, 2.0], [3.0, 4.0]))
    for loss, calls in (
        (lambda x, y: (x * y * y).sum(), [(a, a), (a, b), (b, b), (b, a), (a, a)]),
        (lambda x: (x * a * a).sum(), [(a,), (b,), (a,), (b,)]),
        (lambda x: (x * a * a).sum(), [(b,), (a,), (b,)]),
    ):
        compiled = mg.compile(loss)
        for args in calls:
            expected = []
            loss(*args).backward()
            for t in (a, b):
                expected.append(t.grad)
                t.grad = None
            compiled(*args)
            for t, g in zip((a, b), expected):
                assert_equal_bits(t.grad, g)
                t.grad = None


def test_a_checkpointed_call_that_draws_makes_the_same_draws_again():
    w = mg.tensor(np.ones(16), requires_grad=True)
    dropout = nn.Dropout(0.5)
    mg.seed(0)
    compare(lambda x: mg.checkpoint(lambda h: dropout(h * x))(w).sum(), [w], [[np.ones(16)] for _ in range(4)])


@pytest.mark.parametrize("expression", [lambda h: (h > 0) * h, lambda h: h * (h > 0), lambda h: ~(h > 0) * h])
def test_comparisons_on_either_side(expression):
    w = mg.tensor(normal(5), requires_grad=True)
    compare(lambda x: expression(w * x).sum(), [w], [[normal(5, seed=s)] for s in range(3)])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["e", "f", "d"])
@pytest.mark.parametrize("number", [2, 0.1, True, -0.0, 1e6, 1e39, np.inf, np.nan])
def test_numbers_beside_arrays(dtype, number):
    """1e6 is infinite as a half and 1e39 in single precision; 0.1 is another number in each."""
    w = mg.tensor(normal(5, dtype=dtype), requires_grad=True)

    def loss(x):
        y = mg.maximum(w * number + x, number) - number / (w * w + 1)
        return mg.where(number < w * x, y, -y).sum()

    compare(loss, [w], [[normal(5, seed=s, dtype=dtype)] for s in range(3)])


def test_numbers_beside_integers():
    """300 is no number of 8 bits, which a comparison need not mind."""
    w = mg.tensor(normal(5), requires_grad=True)
    ids = np.arange(5, dtype=np.int8)
    compare(lambda x, i: (w * x * (i < 300) * (i + 1)).sum(), [w], [[normal(5, seed=s), ids + s] for s in range(3)])


def test_an_array_made_unseen_is_no_constant():
    @mg.op
    def middle(x):
        y = np.zeros(5, np.float32)
        part = y[1:4]
        part += x
        return y * x.sum()

    middle.rule(x=lambda g, x: (g[1:4] * x.sum()) + (g[1:4] * x).sum())
    w = mg.tensor(normal(3, dtype=np.float32), requires_grad=True)
    compare(lambda x: (middle(w * x) ** 2).sum(), [w], [[normal(3, seed=s, dtype=np.float32)] for s in range(3)])


def test_draws_keep_their_order(in_lanes):
    rng = np.random.default_rng(0)

    @mg.op
    def shaken(x, rng):
        return x + np.asarray(rng.random(x.shape)) * np.sort(np.asarray(x), 0)

    shaken.rule(x=lambda g: g)
    w = mg.tensor(normal(4, 4), requires_grad=True)
    dropout = nn.Dropout(0.5, rng=rng)

    def loss(x):
        h = shaken(mg.linear(x, w), rng)
        return (h * dropout(x)).sum()

    states = []
    for compiled in (None, mg.compile(loss)):
        rng.bit_generator.state = np.random.default_rng(1).bit_generator.state
        values = []
        for s in range(4):
            x = normal(6, 4, seed=s)
            values.append((loss(mg.tensor(x)) if compiled is None else compiled(x)).item())
        states.append((values, rng.bit_generator.state))
    assert states[0] == states[1]


def test_labels_made_in_lanes_are_checked_as_they_are_eagerly(in_lanes):
    w = mg.tensor(normal(4, 5), requires_grad=True)

    def loss(x, labels):
        h = mg.linear(x, w)
        return nn.cross_entropy(h, (labels[:, None] + (h.detach() > 1e9) * 1)[:, 0])

    compiled = mg.compile(loss)
    for label in (0, 1):
        compiled(normal(6, 4), np.full(6, label))
    for label in (77, -3):
        with pytest.raises(IndexError, match=f"label {label} is out of range"):
            compiled(normal(6, 4), np.full(6, label))
    compiled(normal(6, 4), np.full(6, 2))


def test_scores_and_logits_that_grow_and_shrink_are_no_change():
    """Kernels that shift rows where they must look at values in every run: one recording does for all."""
    ws = [mg.tensor(normal(4, 4, seed=s), requires_grad=True) for s in range(3)]
    labels = np.arange(10).reshape(2, 5) % 4
    batches = [[scale * normal(2, 5, 4, seed=s)] for s, scale in enumerate([1.0, 300.0, 1.0, 1000.0, 0.1, 300.0, 1.0])]
    calls = []

    def loss(x):
        calls.append(x.shape)
        return nn.cross_entropy(mg.self_attention(x, *ws), labels)

    compare(loss, ws, batches)
    assert len(calls) == len(batches) + 1


def test_recording_in_one_thread_leaves_tensors_of_others_alone():
    w = mg.tensor([1.0, 2.0], requires_grad=True)
    seen, done = [], threading.Event()

    def use():
        while not done.is_set():
            seen.append((type(w._array), ((w > 1) * w).sum().item()))

    thread = threading.Thread(target=use)
    thread.start()
    try:
        for i in range(100):
            assert mg.compile(lambda x, i=i: (mg.sort(w) * x).sum() * i)(np.ones(2)).item() == 3 * i
    finally:
        done.set()
        thread.join()
    assert set(seen) == {(np.ndarray, 2.0)}


# --- what the function replaces ----------------------------------------------------------------------------------


class Running(nn.Module):
    def __init__(self):
        self.mean = mg.tensor(np.zeros(2))
        self.weight = nn.Parameter(np.ones(2))

    def forward(self, x, *, in_place):
        now = mg.mean(x * self.weight, 0).detach()
        if in_place:
            with mg.no_grad():
                self.mean *= 0.9
                self.mean += now * 0.1
        else:
            self.mean = self.mean * 0.9 + now * 0.1
        return (x - self.mean) * self.weight


@pytest.mark.parametrize("in_place", [False, True])
def test_a_tensor_that_the_function_replaces_goes_on_changing(in_place):
    eager, compiled = Running(), Running()
    step = mg.compile(lambda x: (compiled(x, in_place=in_place) ** 3).sum())
    for i in range(5):
        x = normal(4, 2, seed=i)
        loss = (eager(mg.tensor(x), in_place=in_place) ** 3).sum()
        loss.backward()
        assert_equal_bits(step(x).numpy(), loss.numpy())
        assert_equal_bits(compiled.weight.grad, eager.weight.grad)
        assert_equal_bits(compiled.mean.numpy(), eager.mean.numpy())


def test_a_tensor_that_is_another_one_in_every_run_is_not_recorded_for_ever():
    held, weight, recorded = {}, leaf_of(normal(3)), []

    def loss(x):
        recorded.append(type(weight._array) is np.ndarray)
        return (x * weight * held["scale"]).sum()

    step = mg.compile(loss)
    for i in range(40):
        held["scale"] = mg.tensor(float(i))
        weight.grad = None
        x = normal(3, seed=i)
        step(x)
        np.testing.assert_array_equal(weight.grad, x * i)
    assert len(recorded) == 40
    assert recorded.count(False) < 8  # then it is called as it is


def leaf_of(x):
    return mg.tensor(x, requires_grad=True)
