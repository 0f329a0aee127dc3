"""The kernels' memory: used again when nobody can see it any more, and never before."""

import gc
import random
import signal
import threading
import time

import numpy as np
import pytest

import minigrad as mg
from minigrad.kernels import memory
from minigrad.kernels.memory import SMALLEST, empty

LIKE = np.zeros(1, np.float32)


@pytest.fixture(autouse=True)
def no_buffers(monkeypatch):
    monkeypatch.setattr(memory, "_buffers", memory._Buffers())


def address(x):
    return x.__array_interface__["data"][0]


def large(n=SMALLEST):
    return empty((n,), LIKE)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64])
@pytest.mark.parametrize("shape", [(300, 301), (0, 5), (3,), (), (2**18,)])
def test_shape_dtype_and_alignment(shape, dtype):
    x = empty(shape, np.zeros(2, dtype))
    assert (x.shape, x.dtype) == (shape, dtype)
    assert x.flags.c_contiguous
    assert x.flags.writeable
    if x.nbytes >= SMALLEST:
        assert address(x) % 64 == 0


def test_what_is_free_is_used_again():
    x = large()
    place = address(x)
    del x
    assert address(large()) == place
    assert address(empty((SMALLEST // 4, 4), LIKE)) == place  # another shape of the same size


HOLDERS = {
    "slice": lambda x: x[3:5],
    "transpose": lambda x: x.reshape(-1, 2).T,
    "view": lambda x: x.view(np.int32),
    "memoryview": lambda x: memoryview(x)[2:],
    "frombuffer": lambda x: np.frombuffer(x, np.uint8),
    "broadcast": lambda x: np.broadcast_to(x, (2, *x.shape)),
    "iterator": lambda x: x.flat,
    "element by element": lambda x: list(x[:2].reshape(2, 1)),
    "tensor": lambda x: mg.tensor(1.0, requires_grad=True) * x,
    "dlpack": np.from_dlpack,
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_what_anybody_can_see_is_not(holder):
    x = large()
    x.fill(1)
    place = address(x)
    held = HOLDERS[holder](x)
    del x
    assert address(large()) != place
    del held
    gc.collect()
    assert address(large()) == place


def test_outputs_saved_for_the_way_back_and_gradients_are_kept():
    x = mg.tensor(np.random.default_rng(0).standard_normal((300, 64)).astype(np.float32), requires_grad=True)
    w = mg.tensor(np.eye(64, dtype=np.float32), requires_grad=True)
    outputs = [mg.linear(x, w, activation="relu") for _ in range(3)]
    copies = [y.numpy().copy() for y in outputs]
    for y, copy in zip(outputs, copies):
        y.backward(np.ones_like(copy))
        np.testing.assert_array_equal(y.numpy(), copy)
    np.testing.assert_array_equal(x.grad, 3.0 * (x.data > 0))
    first = x.grad
    x.grad = None
    mg.linear(x, w).sum().backward()
    np.testing.assert_array_equal(first, 3.0 * (x.data > 0))


def test_what_is_kept_is_twice_what_was_in_use(monkeypatch):
    monkeypatch.setattr(memory, "KEPT", 0)
    buffers = memory._buffers
    held = [large() for _ in range(5)]
    assert len({address(x) for x in held}) == 5
    most = buffers.bytes
    assert most == 5 * 4 * SMALLEST
    held.clear()
    for n in range(50):  # sizes that never come again
        large(SMALLEST + n)
        assert buffers.most_in_use <= most
        assert buffers.bytes <= 2 * most
    assert sum(len(some) for some in buffers.of_size.values()) <= 10
    memory._buffers.drop_free()
    assert buffers.bytes == 0
    assert not any(buffers.of_size.values())


def test_a_step_that_is_repeated_asks_for_nothing_new(monkeypatch):
    monkeypatch.setattr(memory, "KEPT", 0)
    rng = np.random.default_rng(0)
    w = [mg.tensor(rng.standard_normal((64, 64)).astype(np.float32), requires_grad=True) for _ in range(4)]
    batches = [rng.standard_normal((n, 64)).astype(np.float32) for n in (400, 500)]

    def step(x):
        for weight in w:
            weight.grad = None
            x = mg.linear(x, weight, activation="relu")
        (x * x).sum().backward()

    for x in batches * 2:
        step(x)
    monkeypatch.setattr(memory._Buffers, "new", None)
    for x in batches * 3:
        step(x)


def test_threads_never_share():
    """Each fills what it gets, keeps it for a while, also beyond what another thread does, and finds it unchanged."""
    wrong, handed = [], []

    def work(number):
        rng = random.Random(number)
        mine = []
        for turn in range(400):
            x = large(SMALLEST // 4 + rng.randrange(3))
            x[:] = value = number * 1000 + turn
            mine.append((x, value))
            if rng.random() < 0.1:
                handed.append((x[::7], value))
            if rng.random() < 0.6:
                x, value = mine.pop(rng.randrange(len(mine)))
                wrong.extend([value] if (x != value).any() else [])
            if len(mine) > 8:
                mine.clear()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert all((x == value).all() for x, value in handed)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="signals of a timer are not Windows's")
def test_a_signal_handler_that_computes_gets_memory_of_its_own():
    wrong, mine, over = [], [], threading.Event()

    def handler(*_):
        mine[:] = [large()]
        mine[0].fill(-1)
        if not over.is_set():  # a last one may still be due then
            signal.setitimer(signal.ITIMER_REAL, 1e-4)  # the next, after this one: handlers must not pile up

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 1e-4)
    try:
        end = time.monotonic() + 1
        while time.monotonic() < end:
            x = large()
            wrong.extend(1 for y in mine if np.may_share_memory(x, y))
            del x
    finally:
        over.set()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not wrong
