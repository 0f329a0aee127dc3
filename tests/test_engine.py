"""The graph, the backward pass, grad mode, in-place writes, threads and memory."""

import gc
import threading
import tracemalloc
import weakref

import numpy as np
import pytest

import minigrad as mg
from minigrad.engine import is_leaf


def leaf(x, dtype=None):
    return mg.tensor(x, dtype=dtype, requires_grad=True)


def random(*shape, seed=0, dtype=float):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


# --- accumulation ------------------------------------------------------------------------------------------------


def test_a_difference_of_equals_has_gradient_zero_and_a_square_two_x():
    x = leaf([1.5, -2.0])
    (x - x).sum().backward()
    np.testing.assert_array_equal(x.grad, [0, 0])
    x.grad = None
    (x * x).sum().backward()
    np.testing.assert_array_equal(x.grad, [3.0, -4.0])


def test_many_uses_of_one_tensor_add_up_in_any_shape():
    x = leaf(random(3))
    y = x * 1.0
    total = sum((y * float(k) for k in range(1, 6)), start=y[None, :] + np.zeros((4, 1)))
    total.sum().backward()
    np.testing.assert_allclose(x.grad, np.full(3, 4 * (1 + 15)))


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 1, 3)])
def test_summing_in_place_never_touches_what_somebody_else_holds(shape):
    seen = []
    x = leaf(random(*shape))
    y = x * 1.0
    for k in range(4):
        z = y + float(k)  # each passes one and the same cotangent array on
        z.register_hook(lambda g: seen.append(g.copy()))
        x.register_hook(lambda g: None)
        y = y + z
    c = random(*shape, seed=1)
    before = c.copy()
    y.backward(c)
    np.testing.assert_array_equal(c, before)
    assert len(seen) == 4
    np.testing.assert_allclose(x.grad, 16 * c)
    assert not np.shares_memory(x.grad, c)


def test_backward_adds_to_grad_and_the_array_is_the_tensors_own():
    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    z = x + y
    z.backward(np.ones(2), retain_graph=True)
    z.backward(np.ones(2))
    np.testing.assert_array_equal(x.grad, [2, 2])
    assert not np.shares_memory(x.grad, y.grad)
    assert type(x.grad) is np.ndarray
    x.grad[0] = 7
    np.testing.assert_array_equal(y.grad, [2, 2])


def test_the_cotangent_of_a_leaf_is_copied():
    x = leaf([1.0, 2.0])
    c = np.array([5.0, 6.0])
    x.backward(c)
    c[:] = 0
    np.testing.assert_array_equal(x.grad, [5, 6])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_grad_has_shape_and_dtype_of_its_tensor(dtype):
    x = leaf(random(3, 1), dtype)
    w = leaf(random(4), np.float64)
    (x * w).sum().backward()
    assert x.grad.dtype == dtype
    assert x.grad.shape == (3, 1)
    assert w.grad.dtype == np.float64
    assert w.grad.shape == (4,)


def test_grad_of_a_broadcast_view_is_contiguous_and_writable():
    x = leaf(np.ones((2, 3)))
    x.sum().backward()
    assert x.grad.flags.writeable
    assert x.grad.flags.c_contiguous
    x.grad += 1


# --- what backward asks for --------------------------------------------------------------------------------------


def test_backward_without_a_graph():
    with pytest.raises(RuntimeError, match="requires_grad=True"):
        mg.tensor(1.0).backward()


@pytest.mark.parametrize("shape", [(2,), (0,), (2, 1)])
def test_backward_from_several_numbers_needs_a_cotangent(shape):
    with pytest.raises(ValueError, match=r"needs a cotangent.*sum\(\)"):
        (leaf(np.ones(shape)) * 2).backward()


@pytest.mark.parametrize("wrong", [[None, None], ["1", "2"], [1j, 2j], np.array([None, 1.0])])
def test_a_cotangent_and_a_gradient_are_real_numbers(wrong):
    x = leaf([1.0, 2.0])
    with pytest.raises(TypeError, match="cotangent of dtype"):
        (x * x).backward(wrong)
    with pytest.raises(TypeError, match="gradient of dtype"):
        x.grad = wrong
    assert x.grad is None
    for right in ([1, 2], (True, False), mg.tensor([1.0, 2.0]), np.float32([1, 2])):
        (x * 1).backward(right)
        np.testing.assert_array_equal(x.grad, np.asarray(right, float))
        x.grad = right
        np.testing.assert_array_equal(x.grad, np.asarray(right, float))
        assert x.grad.dtype == float
        x.grad = None


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_element_of_any_shape_needs_none(shape):
    x = leaf(np.full(shape, 3.0))
    (x * x).backward()
    np.testing.assert_array_equal(x.grad, np.full(shape, 6.0))


def test_a_second_pass_over_a_freed_graph_says_so():
    x = leaf(2.0)
    y = mg.exp(x) * x
    y.backward()
    with pytest.raises(RuntimeError, match=r"freed.*retain_graph=True"):
        y.backward()


def test_a_pass_over_a_partly_freed_graph_changes_nothing():
    x, w = leaf(2.0), leaf(3.0)
    shared = mg.exp(x)
    first, second = shared * 2, shared * w
    first.backward()
    before = x.grad.copy()
    with pytest.raises(RuntimeError, match="freed"):
        second.backward()
    assert w.grad is None
    np.testing.assert_array_equal(x.grad, before)


def test_retain_graph_repeats_the_pass():
    x = leaf(random(3))
    y = (mg.tanh(x) * x).sum()
    y.backward(retain_graph=True)
    once = x.grad.copy()
    y.backward(retain_graph=True)
    y.backward()
    np.testing.assert_allclose(x.grad, 3 * once)


def test_an_exception_in_a_rule_leaves_no_gradient_behind():
    @mg.op
    def trap(x):
        return x + 0

    def spring(g):
        raise ArithmeticError("sprung")

    trap.rule(x=spring)
    x, w = leaf(2.0), leaf(3.0)
    with pytest.raises(ArithmeticError):
        (trap(x * w) + w * w + x).backward()
    assert x.grad is None
    assert w.grad is None


def test_a_rule_of_the_wrong_shape_is_named():
    @mg.op
    def stretch(x):
        return x + 0

    stretch.rule(x=lambda g: np.ones((2, 5)))
    with pytest.raises(AssertionError, match=r"stretch.*\(2, 5\).*\(3,\)"):
        stretch(leaf(np.ones(3))).sum().backward()


def test_backward_neither_warns_nor_raises_whatever_the_callers_settings():
    x = leaf([0.0, 1e300, -1.0])
    with np.errstate(all="ignore"):
        y = (mg.sqrt(x) * 1e200 + mg.log(x) + mg.exp(x * 1e-3)).sum()
    with np.errstate(all="raise"):
        y.backward()
    assert x.grad[0] == np.inf
    with np.errstate(all="raise"):
        mg.grad(lambda x: mg.sqrt(x))(0.0)


# --- hooks and retained gradients --------------------------------------------------------------------------------


def test_hooks_see_the_whole_gradient_once_and_may_replace_it():
    x = leaf([1.0, 2.0])
    y = x * 3
    calls = []
    y.register_hook(lambda g: calls.append(np.array(g)))
    handle = y.register_hook(lambda g: g * 10)
    (y * 2 + y).backward(np.ones(2), retain_graph=True)
    np.testing.assert_array_equal(calls, [[3, 3]])
    np.testing.assert_array_equal(x.grad, [90, 90])
    handle.remove()
    handle.remove()
    x.grad = None
    (y + y).backward(np.ones(2))
    np.testing.assert_array_equal(x.grad, [6, 6])


def test_hooks_on_leaves_and_hooks_that_write():
    x = leaf([1.0, 2.0])
    x.register_hook(lambda g: -g)
    (x * x).sum().backward()
    np.testing.assert_array_equal(x.grad, [-2, -4])

    def write(g):
        g[0] = 9

    x.register_hook(write)
    with pytest.raises(ValueError, match="read-only"):
        (x * x).sum().backward()
    np.testing.assert_array_equal(x.grad, [-2, -4])


@pytest.mark.parametrize("make", [float, np.float64, np.float32, np.array, lambda v: np.array(v, int), mg.tensor])
def test_a_hook_returns_any_number_in_plain_and_in_recorded_passes(make):
    def cube(x):
        y = x * x
        y.register_hook(lambda g: make(2.0))
        return y * x

    # With the gradient of y = x x replaced by 2, that of y x is y + 2 (2 x); and the derivative of this, with that of
    # y replaced once more, 2 (2 x) + 4. (PyTorch gives the same.)
    x = mg.tensor(3.0, requires_grad=True)
    cube(x).backward()
    assert x.grad == 21
    assert x.grad.dtype == float
    assert mg.grad(cube)(3.0) == 21
    assert mg.grad(mg.grad(cube))(3.0) == 16


@pytest.mark.parametrize("recorded", [False, True])
def test_a_hooks_gradient_has_the_dtype_of_its_tensor(recorded):
    x = np.float32([1.0, 2.0])

    def f(x):
        y = x * x
        y.register_hook(lambda g: g * np.float64(1.5))
        y.register_hook(lambda g: seen.append(g.dtype))
        return y.sum()

    seen = []
    gradient = mg.grad(f, create_graph=recorded)(x)
    assert seen == [np.float32]
    assert gradient.dtype == np.float32
    np.testing.assert_array_equal(np.asarray(getattr(gradient, "data", gradient)), 3 * x)


def test_a_hook_that_returns_another_shape_is_an_error():
    x = leaf([1.0, 2.0])
    x.register_hook(lambda g: g.sum())
    with pytest.raises(ValueError, match=r"shape \(\).*shape \(2,\)"):
        (x * x).sum().backward()
    assert x.grad is None


def test_retain_grad_keeps_what_only_leaves_keep():
    x = leaf([1.0, 2.0])
    y = x * x
    z = y * 3
    y.retain_grad()
    z.sum().backward()
    np.testing.assert_array_equal(y.grad, [3, 3])
    assert z.grad is None
    np.testing.assert_array_equal(x.grad, [6, 12])
    with pytest.raises(RuntimeError, match="requires_grad=True"):
        mg.tensor(1.0).retain_grad()
    with pytest.raises(RuntimeError, match="hook"):
        mg.tensor(1.0).register_hook(print)


# --- grad mode ---------------------------------------------------------------------------------------------------


def test_no_grad_nests_restores_after_exceptions_and_can_be_entered_again():
    x = leaf(1.0)
    off = mg.no_grad()
    with off:
        with off:
            assert not (x * 2).requires_grad
        assert not (x * 2).requires_grad
    assert (x * 2).requires_grad
    with pytest.raises(KeyError), off:
        raise KeyError
    assert (x * 2).requires_grad


def test_no_grad_as_a_decorator_keeps_name_and_result():
    @mg.no_grad()
    def double(x):
        """Twice."""
        return x * 2

    assert double.__name__ == "double"
    assert double.__doc__ == "Twice."
    assert not double(leaf(1.0)).requires_grad
    assert (leaf(1.0) * 2).requires_grad


def test_no_grad_on_a_generator_leaves_its_caller_alone():
    x = leaf(1.0)
    log = []

    @mg.no_grad()
    def numbers():
        try:
            got = yield (x * 2).requires_grad
            log.append(got)
            try:
                yield (x * 2).requires_grad
            except KeyError:
                log.append((x * 2).requires_grad)
            yield from [1]
            return "end"
        finally:
            log.append((x * 2).requires_grad)

    g = numbers()
    assert next(g) is False
    assert (x * 2).requires_grad
    assert g.send("sent") is False
    assert g.throw(KeyError()) == 1
    assert (x * 2).requires_grad
    with pytest.raises(StopIteration, match="end"):
        next(g)
    assert log == ["sent", False, False]
    half = numbers()
    next(half)
    half.close()
    assert log[-1] is False
    assert (x * 2).requires_grad


def test_backward_works_inside_no_grad():
    x = leaf(3.0)
    y = x * x
    with mg.no_grad():
        y.backward()
    np.testing.assert_array_equal(x.grad, 6)


def test_grad_mode_belongs_to_its_thread():
    x = leaf(1.0)
    inside, done, results = threading.Event(), threading.Event(), []

    def quiet():
        with mg.no_grad():
            inside.set()
            done.wait(5)
            results.append((x * 2).requires_grad)

    thread = threading.Thread(target=quiet)
    thread.start()
    inside.wait(5)
    recorded = [(x * 2).requires_grad for _ in range(100)]
    done.set()
    thread.join()
    assert all(recorded)
    assert results == [False]


def test_two_threads_run_two_graphs():
    def work(seed, out):
        for i in range(60):
            x = leaf(random(4, seed=seed + i))
            y = (mg.tanh(x) * x).sum()
            inner = mg.grad(lambda v: mg.grad(lambda u: (u**3).sum())(v).sum())(x.data)
            y.backward()
            out.append(
                np.allclose(inner, 6 * x.data) and np.allclose(x.grad, np.tanh(x.data) + x.data / np.cosh(x.data) ** 2)
            )

    outs = [[] for _ in range(4)]
    threads = [threading.Thread(target=work, args=(100 * k, out)) for k, out in enumerate(outs)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [len(out) for out in outs] == [60] * 4
    assert all(all(out) for out in outs)


# --- in place ----------------------------------------------------------------------------------------------------


def write_through_transposed_view(x):
    x.detach().T[::-1][0] = 9.0


WRITES = {
    "subtract": lambda x: x.__isub__(1.0),
    "item": lambda x: x.__setitem__(1, 9.0),
    "slice": lambda x: x.__setitem__(slice(None), 9.0),
    "detached": lambda x: x.detach().__setitem__(0, 9.0),
    "view": write_through_transposed_view,
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize(
    "function", [mg.square, lambda x: x * x, lambda x: x**3, lambda x: mg.exp(x[::2]) * x[1:], mg.logsumexp, mg.prod]
)
def test_backward_refuses_an_operand_written_since(function, write):
    x = leaf([1.0, 2.0, 3.0])
    y = function(x)
    with mg.no_grad():
        write(x)
    with pytest.raises(RuntimeError, match=r"written in place"):
        y.sum().backward()
    assert x.grad is None


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("function", [mg.exp, mg.sqrt, mg.tanh, mg.sigmoid, mg.softmax, mg.log_softmax, mg.layer_norm])
def test_backward_refuses_an_output_written_since(function, write):
    x = leaf([1.0, 2.0, 3.0])
    y = function(x)
    write(y.detach())
    if write is WRITES["subtract"]:  # a new tensor: detached ones are no leaves
        y.sum().backward()
    else:
        with pytest.raises(RuntimeError, match="written in place"):
            y.sum().backward()


def test_a_write_that_no_gradient_needs_is_fine():
    x = leaf([1.0, 2.0])
    y = (x + 1) * 3.0
    with mg.no_grad():
        x -= 1.0
        x[0] = 5.0
    y.sum().backward()
    np.testing.assert_array_equal(x.grad, [3, 3])
    (x * x).sum().backward()  # computed after the write
    np.testing.assert_array_equal(x.grad, [13, 5])


def test_writes_beside_a_saved_part_do_not_matter():
    x = leaf(np.arange(6.0))
    y = x[:2] * x[:2]
    x.detach()[4:][...] = 0.0
    y.sum().backward()
    np.testing.assert_array_equal(x.grad, [0, 2, 0, 0, 0, 0])
    y = x[:2] * x[:2]
    x.detach()[1:][...] = 0.0
    with pytest.raises(RuntimeError, match="written in place"):
        y.sum().backward()


def test_constants_belong_to_the_caller():
    x, c = leaf([1.0, 2.0]), np.array([3.0, 4.0])
    y = (x + c).sum()
    c[:] = 0
    y.backward()
    np.testing.assert_array_equal(x.grad, [1, 1])


def test_fused_ops_notice_writes_too():
    x, w = leaf(random(2, 3)), leaf(random(3, 4))
    y = mg.linear(x, w)
    with mg.no_grad():
        w -= 1.0
    with pytest.raises(RuntimeError, match="linear saved"):
        y.sum().backward()


# --- lifetime ----------------------------------------------------------------------------------------------------


@pytest.fixture
def no_gc():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_gc")
@pytest.mark.parametrize(
    "function",
    [
        lambda x: mg.exp(mg.tanh(x)).sum(),
        lambda x: mg.softmax(mg.concatenate([x, x])).sum(),
        lambda x: mg.layer_norm(mg.linear(x[None], np.ones((3, 3)))).sum(),
        lambda x: mg.grad(lambda v: (v**3).sum(), create_graph=True)(x).sum(),
        lambda x: sum(mg.split(x * x, 3), start=x[0]).sum(),
    ],
)
def test_a_dropped_result_frees_its_graph_at_once(function):
    x = leaf(random(3))
    y = function(x)
    seen, stack = [], [y._node]
    while stack:
        node = stack.pop()
        if node is not x._node:
            seen.append(weakref.ref(node))
            stack.extend(node.edges)
    del node, y
    assert len(seen) > 1
    assert [r for r in seen if r() is not None] == []


@pytest.mark.usefixtures("no_gc")
def test_backward_frees_saved_arrays_while_the_result_lives():
    x = leaf(random(1000))
    hidden = mg.exp(x)
    saved = weakref.ref(hidden._node)
    y = (hidden * hidden).sum()
    del hidden
    assert saved() is not None
    y.backward()
    assert saved() is None
    assert y.requires_grad


@pytest.mark.usefixtures("no_gc")
def test_memory_is_steady_over_a_thousand_steps():
    w = leaf(random(20, 20))
    x = random(5, 20)

    def step():
        nonlocal w
        loss = (
            mg.cross_entropy(mg.layer_norm(mg.tanh(mg.linear(x, w))), np.arange(5))
            + mg.grad(lambda v: (v * v).sum())(w.data).sum() * 0.0
        )
        w.grad = None
        loss.backward()
        with mg.no_grad():
            w -= 0.01 * w.grad
        return float(loss)

    losses = [step() for _ in range(20)]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    losses += [step() for _ in range(1000)]
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert losses[-1] < losses[0]
    assert grown < 200_000  # one leaked array a step would be three million; Python's free lists come to half of this


@pytest.mark.usefixtures("no_gc")
def test_a_chain_of_a_million_additions():
    x = leaf(1.0)
    y = x
    for _ in range(1_000_000):
        y = y + 1.0
    y.backward(retain_graph=True)
    assert x.grad == 1.0
    assert float(y) == 1_000_001
    last = weakref.ref(y._node)
    del y
    assert last() is None


def test_a_wide_graph_is_visited_in_order():
    """Each layer uses both of the one before twice: 2^40 paths, and yet every node runs once."""
    x = leaf(1.0)
    a, b = x * 1.0, x * 1.0
    for _ in range(40):
        a, b = (a + b) * 0.5, (a - b) * 0.5 + b
    (a + b).backward()
    np.testing.assert_allclose(x.grad, 2.0)


def test_leaves_are_leaves():
    x = leaf(1.0)
    assert is_leaf(x._node)
    assert not is_leaf((x * 1)._node)


def test_no_grad_without_brackets_says_what_is_missing():
    with pytest.raises(TypeError, match=r"with no_grad\(\)"), mg.no_grad:
        pass
    with pytest.raises(TypeError, match=r"@no_grad\(\)"):
        mg.no_grad(lambda x: x)


def test_no_grad_does_not_decorate_async_functions():
    async def pause():
        return 1

    async def count():
        yield 1

    for function in (pause, count):
        with pytest.raises(TypeError, match="between awaits"):
            mg.no_grad()(function)
