"""What made the model say so: a number for each vector of its input. And what attention says about it.

The functions explain f: a function from embedded vectors (batch, n, dim) to one number a sample (batch,), such as the
logit of a label, in which samples do not meet. `from_point` makes one of a model. Every vector gets one number: (batch,
n). A vector that f does not read (padding) gets 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from minigrad.engine import no_grad
from minigrad.nn.module import Module
from minigrad.study.capturing import capture, patch, stop_gradient
from minigrad.tensor import Tensor, TensorLike
from minigrad.transforms import vjp

Explained: TypeAlias = Callable[[Any], Any]


def from_point(
    model: Module, name: str, run: Callable[[], Tensor]
) -> tuple[np.ndarray, Callable[[TensorLike], Tensor]]:
    """The value at a point of a model in run(), and run() as a function of that value: the model from there on.

    name: a point (see `study.points`) that run() passes once, such as the module that embeds ids. KeyError for an
    unknown name, ValueError for a point that run() does not pass, or passes several times.

    >>> from minigrad import nn
    >>> model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 2))
    >>> vectors, f = from_point(model, "layers.0", lambda: model(np.array([[1, 4]]))[:, 0, 1])
    >>> vectors.shape, saliency(f, vectors).shape
    ((1, 2, 3), (1, 2))
    """
    with no_grad(), capture(model, name, grad=False) as caught:
        run()
    value = caught[name].value
    if value is None:
        raise ValueError(f"run() does not pass {name!r}: {caught[name].reason}")

    def f(x: TensorLike) -> Tensor:
        with patch(model, {name: x}):
            return run()

    return value, f


# --- from gradients ----------------------------------------------------------------------------------------------


def saliency(f: Explained, x: TensorLike) -> np.ndarray:
    """The norm of the gradient of f by each vector, (batch, n): how much a small change of the vector could matter.

    Simonyan, Vedaldi and Zisserman 2014, arXiv:1312.6034, with the norm of a vector in the place of a pixel's maximum.

    >>> saliency(lambda x: (x * np.array([3.0, 4.0])).sum((1, 2)), np.ones((1, 2, 2)))
    array([[5., 5.]])
    """
    _, gradient = _value_and_gradient(f, _vectors(x))
    return _norms(gradient)


def input_x_gradient(f: Explained, x: TensorLike) -> np.ndarray:
    """Each vector times the gradient of f by it, (batch, n): what f would lose without the vector, were it linear.

    >>> input_x_gradient(lambda x: (x * np.array([3.0, 4.0])).sum((1, 2)), np.array([[[1.0, 0.0], [0.0, -1.0]]]))
    array([[ 3., -4.]])
    """
    vectors = _vectors(x)
    _, gradient = _value_and_gradient(f, vectors)
    return _dot(vectors, gradient)


class IntegratedGradients(NamedTuple):
    """attributions (batch, n); completeness_error (batch,): their sum, less what f rises by from baseline to x."""

    attributions: np.ndarray
    completeness_error: np.ndarray


def integrated_gradients(
    f: Explained, x: TensorLike, baseline: TensorLike = 0.0, *, steps: int = 32
) -> IntegratedGradients:
    """(x - baseline) times the mean gradient on the straight line from the baseline to x, of each vector, (batch, n).

    Sundararajan, Taly and Yan 2017, arXiv:1703.01365, equation 1. The attributions add up to f(x) - f(baseline)
    (completeness); how far they do not is returned with them, and tells whether there were enough `steps`. The mean is
    a Gauss-Legendre quadrature, exact for polynomials up to the degree 2 steps - 1. baseline: broadcast to x. Where x
    is normalised (layer norm), 0 is a bad one: on the line from there f jumps at its very beginning, between the steps;
    take another point, the mean of many vectors.

    >>> integrated_gradients(lambda x: (x**2).sum((1, 2)), np.array([[[1.0], [2.0]]]), steps=1)
    IntegratedGradients(attributions=array([[1., 4.]]), completeness_error=array([0.]))
    """
    if steps < 1:
        raise ValueError(f"an integral takes at least one step, not {steps}")
    vectors = _vectors(x)
    start = _baseline(baseline, vectors)
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    mean = np.zeros_like(vectors)
    for t, weight in zip((1 + nodes) / 2, weights / 2):
        point = (start + t * (vectors - start)).astype(vectors.dtype)
        mean += (weight * _value_and_gradient(f, point)[1]).astype(vectors.dtype)
    attributions = _dot(vectors - start, mean)
    return IntegratedGradients(attributions, attributions.sum(1) - (_value(f, vectors) - _value(f, start)))


# --- from taking away --------------------------------------------------------------------------------------------


def leave_one_out(f: Explained, x: TensorLike, baseline: TensorLike = 0.0) -> np.ndarray:
    """What f loses when a vector is replaced by the baseline, for each vector by itself, (batch, n).

    baseline: broadcast to x. One forward pass for each of the n vectors.

    >>> leave_one_out(lambda x: x[:, 0, 0] * x[:, 1, 0], np.array([[[2.0], [3.0], [4.0]]]))
    array([[6., 6., 0.]])
    """
    vectors = _vectors(x)
    instead = _baseline(baseline, vectors)
    losses = np.empty(vectors.shape[:2], vectors.dtype)
    whole = _value(f, vectors)
    for i in range(vectors.shape[1]):
        without = vectors.copy()
        without[:, i] = instead[:, i]
        losses[:, i] = whole - _value(f, without)
    return losses


# --- from attention ----------------------------------------------------------------------------------------------


def attention_rollout(weights: Sequence[np.ndarray], *, residual: float = 0.5) -> np.ndarray:
    """The share of each input vector in each vector after all layers, (batch, query, key), if attention only averaged.

    weights: for each layer, from the first, (batch, heads, query, key) or (batch, query, key); heads are averaged.
    residual: the part of a vector that goes around a layer, 0 for a model without residual connections. Each layer is
    (1 - residual) weights + residual I with rows that add up to 1; the layers are multiplied. Abnar and Zuidema 2020,
    arXiv:2005.00928.

    >>> attention_rollout([np.array([[[0.0, 1.0], [1.0, 0.0]]])] * 2)
    array([[[0.5, 0.5],
            [0.5, 0.5]]])
    """
    if not 0 <= residual <= 1:
        raise ValueError(f"a residual is the part of a vector that goes around a layer, in [0, 1], not {residual}")
    if not len(weights):
        raise ValueError("a rollout needs the weights of at least one layer")
    rolled: Any = None
    for layer in map(_one_head, weights):
        n = layer.shape[-1]
        if layer.shape[-2] != n or (rolled is not None and layer.shape != rolled.shape):
            raise ValueError(
                f"a rollout goes through self-attention, whose weights are square and alike in all layers; here they "
                f"are {[np.shape(w) for w in weights]}"
            )
        mixed = (1 - residual) * layer + residual * np.eye(n, dtype=layer.dtype)
        total = mixed.sum(-1, keepdims=True)
        mixed = np.divide(mixed, total, out=np.zeros_like(mixed), where=total != 0)
        rolled = mixed if rolled is None else mixed @ rolled
    return np.asarray(rolled)


def attention_entropy(weights: np.ndarray) -> np.ndarray:
    """-sum of w log w over the keys, in nats: 0 for a query that looks at one key, log(n) for one that looks at all n.

    weights: (..., query, key); returns (..., query).

    >>> attention_entropy(np.array([[0.5, 0.5], [1.0, 0.0]])).round(4)
    array([0.6931, 0.    ])
    """
    weights = np.asarray(weights)
    logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    entropy: np.ndarray = -(weights * logs).sum(-1) + 0.0  # not -0
    return entropy


def attention_vs_gradient(
    f: Explained,
    x: TensorLike,
    model: Module,
    name: str,
    *,
    detach: bool = False,
    query: int | None = None,
    valid: np.ndarray | None = None,
) -> np.ndarray:
    """Kendall's tau-b between attention to the vectors and |x times gradient| of them, for each sample, (batch,).

    name: a point of the model (see `study.points`) that f passes once, with attention weights (batch, ..., key): they
    are averaged over heads and queries (real ones), or are those of one query. detach: take the gradient with attention
    held constant, as Jain and Wallace 2019, arXiv:1902.10186, section 4.1 do; otherwise through it as well. valid:
    boolean (batch, n), which vectors are real and so compared. NaN where all weights or all gradients of a sample are
    equal.

    It is a measurement, not a verdict: rank correlation should not be used to validate attention as explanation (Neely
    et al. 2022, arXiv:2205.04559).

    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> class Pool(nn.Module):
    ...     hook_points = ("attn",)
    ...     def forward(self, x):
    ...         return (self.tap("attn", mg.softmax(x[..., 0])) * x[..., 0]).sum(1)
    >>> pool, x = Pool(), np.array([[[1.6], [3.0], [-1.0]]])
    >>> [attention_vs_gradient(pool, x, pool, "attn", detach=detach).round(3) for detach in (True, False)]
    [array([1.]), array([0.333])]
    """
    vectors = _vectors(x)
    with stop_gradient(model, name) if detach else nullcontext(), capture(model, name, grad=False) as caught:
        _, gradient = _value_and_gradient(f, vectors)
    if caught[name].value is None:
        raise ValueError(f"f does not pass {name!r}: {caught[name].reason}")
    attention = _attention_to_keys(caught[name].value, query, valid)
    if attention.shape != vectors.shape[:2]:
        raise ValueError(
            f"{name!r} has weights of shape {caught[name].value.shape}, which are no attention (batch, ..., key) to "
            f"vectors of shape {vectors.shape}"
        )
    return kendall_tau(attention, np.abs(_dot(vectors, gradient)), valid)


def kendall_tau(a: np.ndarray, b: np.ndarray, valid: np.ndarray | None = None) -> np.ndarray:
    """Kendall's tau-b of each row of a and b (..., n): (pairs in the same order - pairs in opposite order) / root.

    The root is of (pairs not tied in a) (pairs not tied in b); a row where one of them is 0 has NaN. valid: boolean
    (..., n), which elements count. Kendall 1945, Biometrika 33(3). Every pair is looked at: n^2 work and memory.

    >>> kendall_tau(np.array([[1, 2, 3, 3], [1, 2, 3, 4]]), np.array([1, 3, 2, 4])).round(4)
    array([0.5477, 0.6667])
    """
    a, b = np.broadcast_arrays(a, b)
    if a.ndim < 1:
        raise ValueError("a rank correlation is of rows of numbers (..., n), not of single ones")
    nan = np.isnan(a) | np.isnan(b)
    counted = np.ones(a.shape, bool) if valid is None else np.broadcast_to(valid, a.shape)
    if counted.dtype != np.bool_:
        raise TypeError(f"valid is a boolean array (True: it counts), not {counted.dtype}")
    pairs = counted[..., :, None] & counted[..., None, :]
    in_a, in_b = (_order(each) * pairs for each in (a, b))
    same = (in_a * in_b).sum((-2, -1))
    untied = np.sqrt((in_a**2).sum((-2, -1)) * (in_b**2).sum((-2, -1)))
    hidden = (nan & counted).any(-1) | (untied == 0)
    tau: np.ndarray = np.where(hidden, np.nan, same / np.where(untied == 0, 1.0, untied))
    return tau


def _order(x: np.ndarray) -> np.ndarray:
    """1, 0 or -1 for each pair (..., i, j): whether x_i is more, as much, or less than x_j."""
    more = (x[..., :, None] > x[..., None, :]).astype(float)
    order: np.ndarray = more - more.swapaxes(-1, -2)
    return order


def _one_head(weights: np.ndarray) -> np.ndarray:
    weights = np.asarray(weights)
    if weights.ndim not in (3, 4):
        raise ValueError(
            f"a layer's attention weights are (batch, heads, query, key) or (batch, query, key), not {weights.shape}"
        )
    averaged: np.ndarray = weights.mean(1) if weights.ndim == 4 else weights
    return averaged


def _attention_to_keys(weights: np.ndarray, query: int | None, valid: np.ndarray | None) -> np.ndarray:
    """(batch, key) of (batch, key), (batch, query, key) or (batch, heads, query, key)."""
    if weights.ndim < 3:
        return weights
    by_query = _one_head(weights)
    if query is not None:
        chosen: np.ndarray = by_query[:, query]
        return chosen
    real = np.ones(by_query.shape[:2], bool)
    if valid is not None and valid.shape == real.shape:
        real = valid
    total = np.where(real[..., None], by_query, 0).sum(1)
    averaged: np.ndarray = total / np.maximum(real.sum(1, keepdims=True), 1)
    return averaged


# --- what they share ---------------------------------------------------------------------------------------------


def _vectors(x: TensorLike) -> np.ndarray:
    vectors = x.data if isinstance(x, Tensor) else np.asarray(x)
    if vectors.ndim != 3 or vectors.dtype.kind != "f":
        raise ValueError(
            f"an attribution is to embedded vectors, floating numbers (batch, n, dim), not to an array of shape "
            f"{vectors.shape} and dtype {vectors.dtype}: study.from_point gets them out of a model that takes ids"
        )
    return vectors


def _baseline(baseline: TensorLike, vectors: np.ndarray) -> np.ndarray:
    given = baseline.data if isinstance(baseline, Tensor) else np.asarray(baseline)
    try:
        return np.array(np.broadcast_to(given, vectors.shape), vectors.dtype)
    except ValueError:
        raise ValueError(
            f"a baseline of shape {given.shape} does not broadcast to vectors of shape {vectors.shape}"
        ) from None


@no_grad()
def _value(f: Explained, x: np.ndarray) -> np.ndarray:
    y = f(x)
    return _numbers(y.data if isinstance(y, Tensor) else np.asarray(y), x)


def _value_and_gradient(f: Explained, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """f at x (batch,), and its gradient, shaped like x: that of the sum over samples, which do not meet."""
    value, pull = vjp(f, x)
    value = _numbers(value, x)
    return value, pull(np.ones_like(value))[0]


def _numbers(value: Any, x: np.ndarray) -> np.ndarray:
    if not isinstance(value, np.ndarray) or value.shape != x.shape[:1]:
        raise ValueError(
            f"f returns one number for each of {len(x)} samples, of shape ({len(x)},), and this one returned "
            f"{getattr(value, 'shape', type(value).__name__)}: pick one number of each (a label's logit)"
        )
    if value.dtype.kind == "c":
        raise TypeError(f"f returns real numbers, and this one returned some of dtype {value.dtype}: take mg.real")
    return value


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    product: np.ndarray = np.einsum("bnd,bnd->bn", a, b)
    return product


def _norms(x: np.ndarray) -> np.ndarray:
    norms: np.ndarray = np.linalg.norm(x, axis=-1)
    return norms
