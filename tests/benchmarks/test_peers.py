"""The hand-written gradients against finite differences, and the peers that are installed against those."""

import numpy as np
import pytest

from benchmarks import tasks, workloads
from benchmarks.peers import PEERS, Adam, NumPy, attend, loss_and_gradients


@pytest.fixture
def rng():
    """New for each test, whichever ran before it."""
    return np.random.default_rng(0)


def along(f, arrays, directions, eps=1e-6):
    """The derivative of f along the directions, from central differences."""
    ends = [f([a + sign * eps * d for a, d in zip(arrays, directions)]) for sign in (1, -1)]
    return (ends[0] - ends[1]) / (2 * eps)


def test_training_by_hand(rng):
    params, batches = tasks.train_data("tiny")
    params, (x, labels) = [p.astype(np.float64) + 0.01 for p in params], batches[3]
    _, gradients = loss_and_gradients(params, x, labels)
    for i, (p, g) in enumerate(zip(params, gradients)):  # each by itself: an error in a small one shows
        assert g.shape == p.shape
        direction = [np.zeros_like(q) if j != i else rng.standard_normal(q.shape) for j, q in enumerate(params)]
        expected = along(lambda ps: loss_and_gradients(ps, x, labels)[0], params, direction)
        np.testing.assert_allclose((g * direction[i]).sum(), expected, rtol=1e-5, atol=1e-9)


def test_attention_by_hand(rng):
    q, k, v, w = rng.standard_normal((4, 2, 5, 3))
    gradients = NumPy().attention(q, k, v, w)()
    directions = rng.standard_normal((3, 2, 5, 3))
    expected = along(lambda qkv: (attend(*qkv)[0] * w).sum(), [q, k, v], directions)
    np.testing.assert_allclose(sum((g * d).sum() for g, d in zip(gradients, directions)), expected, rtol=1e-7)


def test_chain_by_hand(rng):
    a = rng.uniform(0.5, 1, (3, 3))
    [gradient] = NumPy().op_chain(a, 4)()
    np.testing.assert_allclose(gradient, a**4)


def test_adam_moves_at_first_by_its_rate_against_the_sign():
    weights = [np.zeros(3)]
    Adam(weights).step([np.array([2.0, -3.0, 0.0])])
    np.testing.assert_allclose(weights[0], [-1e-3, 1e-3, 0.0], rtol=1e-6)


@pytest.mark.oracle
@pytest.mark.parametrize("name", [name for name in PEERS if name != "numpy"])
def test_a_peer_does_the_same(name):
    peer = builders(name)
    params, batches = tasks.train_data("tiny")
    (step, gradients), (right_step, right) = peer.train_step(params), NumPy().train_step(params)
    close(gradients(*batches[0]), right(*batches[0]))
    for batch in batches[:3]:
        assert step(*batch) == pytest.approx(right_step(*batch), rel=1e-4)
    operands = tasks.attention_data(7)
    for ability, args in {"op_chain": (tasks.chain_data(), 3), "attention": operands}.items():
        if hasattr(peer, ability):
            close(getattr(peer, ability)(*args)(), getattr(NumPy(), ability)(*args)())


def builders(name):
    pytest.importorskip(name.split("_")[0])
    return PEERS[name]()


def close(found, right):
    assert len(found) == len(right)
    for f, r in zip(found, right):
        np.testing.assert_allclose(f, r, atol=1e-4 * np.abs(r).max())


@pytest.mark.parametrize("own", [workloads, *workloads.VARIANTS.values()], ids=["eager", *workloads.VARIANTS])
def test_minigrad_does_the_same(own):
    params, batches = tasks.train_data("tiny")
    _, gradients = own.train_step(params)
    _, right = NumPy().train_step(params)
    for batch in batches[:2]:
        close(gradients(*batch), right(*batch))


def test_products_of_a_step_are_counted(monkeypatch):
    """Every product's multiplications, as it is asked for."""
    size = "tiny"
    count = 0

    class Counting(np.ndarray):
        def __array_ufunc__(self, ufunc, method, *args, **kwargs):
            nonlocal count
            plain = [a.view(np.ndarray) if isinstance(a, Counting) else a for a in args]
            if "out" in kwargs:
                kwargs["out"] = tuple(a.view(np.ndarray) for a in kwargs["out"])
            result = getattr(ufunc, method)(*plain, **kwargs)
            if ufunc is np.matmul:
                count += result.size * plain[0].shape[-1]
            return result.view(Counting) if isinstance(result, np.ndarray) else result

    params, batches = tasks.train_data(size)
    x, labels = batches[0]
    loss_and_gradients([p.view(Counting) for p in params], x.view(Counting), labels)
    assert count == tasks.train_products(size)
