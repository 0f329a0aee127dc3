"""How others do what is timed, each as its own documentation would have it; minigrad's own is in workloads.py.

Each has what it can of train_step(params), op_chain(a, n) and attention(q, k, v, w), as workloads.py describes them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks import tasks

Array = Any
Run = Callable[[], list[Array]]
Step = tuple[Callable[[Array, Array], float], Callable[[Array, Array], list[Array]]]


class NumPy:
    """Forward and backward written by hand: what an engine on NumPy can hope for if recording costs nothing."""

    def train_step(self, params: Sequence[Array]) -> Step:
        weights = [p.copy() for p in params]
        adam = Adam(weights)

        def step(x: Array, labels: Array) -> float:
            loss, gradients = loss_and_gradients(weights, x, labels)
            adam.step(gradients)
            return loss

        return step, lambda x, labels: loss_and_gradients(weights, x, labels)[1]

    def op_chain(self, a: Array, n: int) -> Run:
        def run() -> list[Array]:
            y = a
            for _ in range(n):
                y = y * a + a
            g = np.ones_like(a)
            for _ in range(n):
                g = g * a
            return [g]

        return run

    def attention(self, q: Array, k: Array, v: Array, w: Array) -> Run:
        def run() -> list[Array]:
            out, weights = attend(q, k, v)
            (out * w).sum()
            return attend_backward(w, q, k, v, weights)

        return run


class Adam:
    """With its usual rates."""

    def __init__(self, weights: Sequence[Array]):
        self.weights = weights
        self.means = [np.zeros_like(w) for w in weights]
        self.squares = [np.zeros_like(w) for w in weights]
        self.steps = 0

    def step(self, gradients: Sequence[Array]) -> None:
        self.steps += 1
        rate = 1e-3 / (1 - 0.9**self.steps)
        correction = (1 - 0.999**self.steps) ** 0.5
        for w, g, mean, square in zip(self.weights, gradients, self.means, self.squares):
            mean += 0.1 * (g - mean)
            square += 0.001 * (g * g - square)
            w -= rate * mean / (np.sqrt(square) / correction + 1e-8)


def softmax_in_place(scores: Array) -> Array:
    """Over the last axis."""
    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(-1, keepdims=True)
    return scores


def attend(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    """The output and the attention weights."""
    scores = q @ k.swapaxes(-1, -2)
    scores *= q.shape[-1] ** -0.5
    weights = softmax_in_place(scores)
    return weights @ v, weights


def attend_backward(g: Array, q: Array, k: Array, v: Array, weights: Array) -> list[Array]:
    """Gradients of q, k and v. The softmax's is weights * (g - sum(g * weights)), for each query."""
    g_scores = g @ v.swapaxes(-1, -2)
    g_scores -= np.einsum("...qk,...qk->...q", g_scores, weights)[..., None]
    g_scores *= weights
    g_scores *= q.shape[-1] ** -0.5
    return [g_scores @ k, g_scores.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ g]


def block(h: Array, weights: Sequence[Array], batch: int) -> tuple[Array, tuple[Array, ...]]:
    """Self-attention, FC, relu, FC; h is (batch * vectors, width), so that each product with a weight is one."""
    query, key, value, w1, b1, w2, b2 = weights
    q, k, v = ((h @ w).reshape(batch, -1, h.shape[-1]) for w in (query, key, value))
    attended, attention = attend(q, k, v)
    attended = attended.reshape(h.shape)
    hidden = attended @ w1
    hidden += b1
    np.maximum(hidden, 0, out=hidden)
    out = hidden @ w2
    out += b2
    return out, (h, q, k, v, attention, attended, hidden)


def block_backward(g: Array, weights: Sequence[Array], saved: tuple[Array, ...]) -> tuple[list[Array], list[Array]]:
    """Gradients of the weights; then those of the queries, keys and values, from which the input's follows."""
    _, _, _, w1, _, w2, _ = weights
    h, q, k, v, attention, attended, hidden = saved
    g_hidden = g @ w2.T
    g_hidden *= hidden > 0
    g_attended = (g_hidden @ w1.T).reshape(q.shape)
    projected = [gx.reshape(h.shape) for gx in attend_backward(g_attended, q, k, v, attention)]
    fc = [attended.T @ g_hidden, g_hidden.sum(0), hidden.T @ g, g.sum(0)]
    return [h.T @ gx for gx in projected] + fc, projected


def loss_and_gradients(weights: Sequence[Array], x: Array, labels: Array) -> tuple[float, list[Array]]:
    """Of the whole network, by hand. The input needs no gradient."""
    blocks = _blocks(weights)
    classifier, bias = weights[-2:]
    labels = labels.reshape(-1)
    rows = np.arange(labels.size)
    h = x.reshape(-1, x.shape[-1])
    history = []
    for of_this in blocks:
        h, saved = block(h, of_this, len(x))
        history.append(saved)
    logits = h @ classifier
    logits += bias
    g = softmax_in_place(logits)
    loss = -np.log(g[rows, labels]).mean()
    g[rows, labels] -= 1
    g /= labels.size
    gradients = [h.T @ g, g.sum(0)]
    g = g @ classifier.T
    for i in reversed(range(tasks.BLOCKS)):
        of_this, projected = block_backward(g, blocks[i], history[i])
        gradients = of_this + gradients
        if i > 0:
            g = projected[0] @ blocks[i][0].T
            for gx, w in zip(projected[1:], blocks[i][1:3]):
                g += gx @ w.T
    return float(loss), gradients


class Torch:
    """PyTorch, eager, attention written out."""

    def __init__(self) -> None:
        self.torch: Any = importlib.import_module("torch")

    def attend(self, q: Array, k: Array, v: Array) -> Array:
        return self.torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v

    def train_step(self, params: Sequence[Array]) -> Step:
        torch, functional = self.torch, self.torch.nn.functional
        weights = [torch.tensor(p, requires_grad=True) for p in params]
        optimizer = torch.optim.Adam(weights, lr=1e-3)

        def backward(x: Array, labels: Array) -> Array:
            optimizer.zero_grad()
            h = torch.from_numpy(x)
            for query, key, value, w1, b1, w2, b2 in _blocks(weights):
                h = self.attend(h @ query, h @ key, h @ value)
                h = torch.relu(h @ w1 + b1) @ w2 + b2
            logits = h @ weights[-2] + weights[-1]
            loss = functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(labels).flatten())
            loss.backward()
            return loss

        def step(x: Array, labels: Array) -> float:
            loss = backward(x, labels)
            optimizer.step()
            return float(loss.item())

        def gradients(x: Array, labels: Array) -> list[Array]:
            backward(x, labels)
            return [w.grad.numpy() for w in weights]

        return step, gradients

    def op_chain(self, a: Array, n: int) -> Run:
        x, constant = self.torch.tensor(a, requires_grad=True), self.torch.tensor(a)

        def run() -> list[Array]:
            y = x
            for _ in range(n):
                y = y * constant + constant
            x.grad = None
            y.sum().backward()
            return [x.grad.numpy()]

        return run

    def attention(self, q: Array, k: Array, v: Array, w: Array) -> Run:
        operands = [self.torch.tensor(x, requires_grad=True) for x in (q, k, v)]
        cotangent = self.torch.tensor(w)

        def run() -> list[Array]:
            for x in operands:
                x.grad = None
            (self.attend(*operands) * cotangent).sum().backward()
            return [x.grad.numpy() for x in operands]

        return run


class TorchSdpa(Torch):
    """PyTorch, eager, with its fused attention."""

    def attend(self, q: Array, k: Array, v: Array) -> Array:
        fused = self.torch.nn.functional.scaled_dot_product_attention
        if q.ndim == 4:
            return fused(q, k, v)
        return fused(q[None], k[None], v[None])[0]  # its fast kernels ask for a batch and heads


class Jax:
    """JAX, everything under jit. It has no chain: traced as a whole, that would not be calls of small operations."""

    def __init__(self) -> None:
        self.jax: Any = importlib.import_module("jax")

    def attend(self, q: Array, k: Array, v: Array) -> Array:
        return self.jax.nn.softmax(q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5, -1) @ v

    def train_step(self, params: Sequence[Array]) -> Step:
        jax, jnp = self.jax, self.jax.numpy

        def loss_of(weights: list[Array], x: Array, labels: Array) -> Array:
            h = x
            for query, key, value, w1, b1, w2, b2 in _blocks(weights):
                h = self.attend(h @ query, h @ key, h @ value)
                h = jax.nn.relu(h @ w1 + b1) @ w2 + b2
            logs = jax.nn.log_softmax(h @ weights[-2] + weights[-1])
            return -jnp.take_along_axis(logs, labels[..., None], -1).mean()

        def adam(state: dict[str, Any], gradients: list[Array]) -> dict[str, Any]:
            steps = state["steps"] + 1
            means = [0.9 * m + 0.1 * g for m, g in zip(state["means"], gradients)]
            squares = [0.999 * s + 0.001 * g * g for s, g in zip(state["squares"], gradients)]
            rate, correction = 1e-3 / (1 - 0.9**steps), jnp.sqrt(1 - 0.999**steps)
            weights = [
                w - rate * m / (jnp.sqrt(s) / correction + 1e-8) for w, m, s in zip(state["weights"], means, squares)
            ]
            return {"weights": weights, "means": means, "squares": squares, "steps": steps}

        @jax.jit  # type: ignore[untyped-decorator]
        def update(state: dict[str, Any], x: Array, labels: Array) -> tuple[dict[str, Any], Array]:
            loss, gradients = jax.value_and_grad(loss_of)(state["weights"], x, labels)
            return adam(state, gradients), loss

        weights = [jnp.array(p) for p in params]
        zeros = [jnp.zeros_like(w) for w in weights]
        state = {"weights": weights, "means": zeros, "squares": zeros, "steps": 0}
        gradient = jax.jit(jax.grad(loss_of))

        def step(x: Array, labels: Array) -> float:
            nonlocal state
            state, loss = update(state, x, labels)
            return float(loss)

        return step, lambda x, labels: [np.asarray(g) for g in gradient(state["weights"], x, labels)]

    def attention(self, q: Array, k: Array, v: Array, w: Array) -> Run:
        operands = [self.jax.numpy.array(x) for x in (q, k, v)]
        gradient = self.jax.jit(self.jax.grad(lambda qkv: (self.attend(*qkv) * w).sum()))
        return lambda: [np.asarray(g) for g in gradient(operands)]


class Autograd:
    """HIPS autograd. Its attention, like MyGrad's, is the hand-written one and more: left out, as it takes long."""

    def __init__(self) -> None:
        self.anp: Any = importlib.import_module("autograd.numpy")
        self.autograd: Any = importlib.import_module("autograd")

    def train_step(self, params: Sequence[Array]) -> Step:
        anp = self.anp
        weights = [p.copy() for p in params]
        adam = Adam(weights)

        def softmax(scores: Array) -> Array:
            exps = anp.exp(scores - anp.max(scores, -1, keepdims=True))
            return exps / anp.sum(exps, -1, keepdims=True)

        def loss_of(weights: list[Array], x: Array, labels: Array) -> Array:
            h = x.reshape(-1, x.shape[-1])
            for query, key, value, w1, b1, w2, b2 in _blocks(weights):
                q, k, v = (anp.reshape(anp.dot(h, w), x.shape) for w in (query, key, value))
                attention = softmax(anp.matmul(q, anp.swapaxes(k, 1, 2)) * x.shape[-1] ** -0.5)
                h = anp.reshape(anp.matmul(attention, v), h.shape)
                h = anp.dot(anp.maximum(anp.dot(h, w1) + b1, 0), w2) + b2
            logits = anp.dot(h, weights[-2]) + weights[-1]
            shifted = logits - anp.max(logits, -1, keepdims=True)
            logs = shifted - anp.log(anp.sum(anp.exp(shifted), -1, keepdims=True))
            return -anp.mean(logs[np.arange(labels.size), labels.reshape(-1)])

        value_and_grad = self.autograd.value_and_grad(loss_of)

        def step(x: Array, labels: Array) -> float:
            loss, gradients = value_and_grad(weights, x, labels)
            adam.step(gradients)
            return float(loss)

        return step, lambda x, labels: list(value_and_grad(weights, x, labels)[1])

    def op_chain(self, a: Array, n: int) -> Run:
        def chain(y: Array) -> Array:
            for _ in range(n):
                y = y * a + a
            return self.anp.sum(y)

        gradient = self.autograd.grad(chain)
        return lambda: [gradient(a)]


class MyGrad:
    """MyGrad."""

    def __init__(self) -> None:
        self.mygrad: Any = importlib.import_module("mygrad")
        self.nnet: Any = importlib.import_module("mygrad.nnet")

    def train_step(self, params: Sequence[Array]) -> Step:
        mygrad, nnet = self.mygrad, self.nnet
        weights = [mygrad.tensor(p) for p in params]
        adam = Adam([w.data for w in weights])

        def backward(x: Array, labels: Array) -> tuple[float, list[Array]]:
            h = x.reshape(-1, x.shape[-1])
            for query, key, value, w1, b1, w2, b2 in _blocks(weights):
                q, k, v = (mygrad.matmul(h, w).reshape(x.shape) for w in (query, key, value))
                scores = mygrad.matmul(q, mygrad.swapaxes(k, 1, 2)) * np.float32(x.shape[-1] ** -0.5)
                h = mygrad.matmul(nnet.softmax(scores, axis=-1), v).reshape(h.shape)
                h = mygrad.matmul(nnet.relu(mygrad.matmul(h, w1) + b1), w2) + b2
            logits = mygrad.matmul(h, weights[-2]) + weights[-1]
            loss = nnet.softmax_crossentropy(logits, labels.reshape(-1))
            loss.backward()
            return float(loss), [w.grad for w in weights]

        def step(x: Array, labels: Array) -> float:
            loss, gradients = backward(x, labels)
            adam.step(gradients)
            return loss

        return step, lambda x, labels: backward(x, labels)[1]

    def op_chain(self, a: Array, n: int) -> Run:
        x = self.mygrad.tensor(a)

        def run() -> list[Array]:
            y = x
            for _ in range(n):
                y = y * a + a
            y.sum().backward()
            return [x.grad]

        return run


def _blocks(weights: Sequence[Any]) -> list[Sequence[Any]]:
    """The weights of each block."""
    n = tasks.WEIGHTS_OF_A_BLOCK
    return [weights[i * n : (i + 1) * n] for i in range(tasks.BLOCKS)]


PEERS: dict[str, type] = {
    "numpy": NumPy,
    "torch": Torch,
    "torch_sdpa": TorchSdpa,
    "jax": Jax,
    "autograd": Autograd,
    "mygrad": MyGrad,
}
