"""The benchmark's three pieces of work as a user of minigrad would write them.

Each builder takes plain float32 arrays: train_step(params) returns (step, gradients) of two rounds of single-head
self-attention and FC, then a linear layer and the mean cross-entropy, trained with Adam; op_chain(a, n) returns run()
of n links y * a + a and their backward; attention(q, k, v, w) returns run() of sum(attention(q, k, v) * w) and its
backward.
"""

import minigrad as mg
from minigrad import nn, optim


def _eager(loss_of):
    def run(*args):
        loss = loss_of(*args)
        loss.backward()
        return loss

    return run


def train_step(params, runner=_eager):
    weights = [nn.Parameter(p) for p in params]
    optimizer = optim.Adam(weights, lr=1e-3)

    def loss_of(x, labels):
        h = x
        for block in (weights[:7], weights[7:14]):
            wq, wk, wv, w1, b1, w2, b2 = block
            h = mg.self_attention(h, wq, wk, wv)
            h = mg.linear(mg.linear(h, w1, b1, activation="relu"), w2, b2)
        return nn.cross_entropy(mg.linear(h, weights[14], weights[15]), labels)

    run = runner(loss_of)

    def step(x, labels):
        optimizer.zero_grad()
        loss = run(x, labels)
        optimizer.step()
        return loss.item()

    def gradients(x, labels):
        optimizer.zero_grad()
        run(x, labels)
        return [p.grad for p in weights]

    return step, gradients


def op_chain(a, n):
    x = mg.tensor(a, requires_grad=True)

    def run():
        y = x
        for _ in range(n):
            y = y * a + a
        x.grad = None
        y.sum().backward()
        return [x.grad]

    return run


def attention(q, k, v, w):
    operands = [mg.tensor(t, requires_grad=True) for t in (q, k, v)]

    def run():
        for t in operands:
            t.grad = None
        (mg.attention(*operands) * w).sum().backward()
        return [t.grad for t in operands]

    return run


class minigrad_compiled:  # noqa: N801  (as compare.py's table spells it)
    """train_step through mg.compile."""

    @staticmethod
    def train_step(params):
        return train_step(params, mg.compile)


VARIANTS = {"minigrad_compiled": minigrad_compiled}
