"""Ops with a hand-tuned kernel: softmax, log_softmax, cross_entropy, linear, layer_norm, attention.

The reference is the same function composed of plain ops. It is what a higher order differentiates, and what the tests
compare the kernel with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad.engine import Array, as_array
from minigrad.kernels import attention as attention_kernel
from minigrad.kernels import cross_entropy as cross_entropy_kernel
from minigrad.kernels import layer_norm as layer_norm_kernel
from minigrad.kernels import linear as linear_kernel
from minigrad.kernels import self_attention as self_attention_kernel
from minigrad.kernels import softmax as softmax_kernel
from minigrad.op import derived, fused, op
from minigrad.ops.elementwise import astype, exp, relu, sqrt, square, subtract, where
from minigrad.ops.indexing import take_along_axis
from minigrad.ops.linalg import matmul
from minigrad.ops.reductions import logsumexp, mean, sum
from minigrad.ops.shapes import reshape, squeeze, swapaxes
from minigrad.tensor import Tensor


def _floating(x: Array) -> Array:
    """x as an array; integers and booleans as NumPy's default floats."""
    x = as_array(x)
    return x if x.dtype.kind == "f" else x.astype(float)


# --- softmax -----------------------------------------------------------------------------------------------------


@op
def softmax(x: Array, axis: int = -1) -> Array:
    """e^x / sum(e^x) along an axis, without overflow; 0 everywhere in a row of -inf alone.

    >>> softmax([0.0, 1.0, -np.inf])
    tensor([0.26894142, 0.73105858, 0.        ])
    """
    return softmax_kernel.softmax(as_array(x), axis)


softmax.rule(x=lambda g, y, axis: y * (g - np.sum(g * y, axis=axis, keepdims=True)))


@op
def log_softmax(x: Array, axis: int = -1) -> Array:
    """x - log(sum(e^x)) along an axis, without overflow."""
    return softmax_kernel.log_softmax(as_array(x), axis)


log_softmax.rule(x=lambda g, y, axis: g - np.exp(y) * np.sum(g, axis=axis, keepdims=True))


def _softmax_reference(x: Array, axis: int = -1) -> Tensor:
    return exp(x - logsumexp(x, axis, keepdims=True))


def _log_softmax_reference(x: Array, axis: int = -1) -> Tensor:
    return subtract(x, logsumexp(x, axis, keepdims=True))


softmax.reference = _softmax_reference
log_softmax.reference = _log_softmax_reference

# --- cross-entropy -----------------------------------------------------------------------------------------------


_UNSIGNED = {np.dtype(f"{order}i{size}"): np.dtype(f"{order}u{size}") for order in "<>" for size in (1, 2, 4, 8)}


def _check_labels(logits: Array, labels: Array, counted: Array) -> None:
    if labels.dtype.kind not in "iu":
        raise TypeError(f"labels are class numbers, of an integer dtype; these are of dtype {labels.dtype}")
    shape, classes = logits.shape[:-1], logits.shape[-1]
    if shape != labels.shape:
        raise ValueError(
            f"cross_entropy: logits of shape {logits.shape} (classes last) need labels of shape {shape}, and these "
            f"have shape {labels.shape}"
        )
    if labels.size and not classes:
        raise ValueError(f"cross_entropy: logits of shape {logits.shape} (classes last) have no class")
    unsigned = labels.view(_UNSIGNED.get(labels.dtype, labels.dtype))  # negative numbers are huge there
    if counted is not None:
        unsigned = np.where(counted, unsigned, 0)
    if labels.size and np.maximum.reduce(unsigned, None) >= classes:
        wrong = unsigned >= classes
        raise IndexError(
            f"label {labels[wrong].flat[0]} is out of range for {classes} classes: labels run from 0 to {classes - 1}; "
            "pass ignore_index or mask for places that have none"
        )


def _counted(labels: Array, mask: Array, ignore_index: int | None) -> Array:
    """Which labels count: those under the mask that are not ignored; None if nothing can be left out."""
    if mask is not None:
        check_mask(mask, labels.shape, "labels")
        mask = np.broadcast_to(mask, labels.shape)
    if ignore_index is None:
        return mask
    kept = labels != ignore_index
    return kept if mask is None else kept & mask


def check_mask(mask: Array, shape: tuple[int, ...], what: str) -> None:
    """A mask is boolean (else TypeError) and broadcasts to `shape` (else ValueError)."""
    dtype = getattr(mask, "dtype", None)
    if dtype != np.bool_:
        raise TypeError(
            f"a mask is a boolean array (True: may be attended to, or counts), not {dtype or type(mask).__name__}"
        )
    try:
        fits = np.broadcast_shapes(mask.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"a mask of shape {mask.shape} does not broadcast to the {what}' shape {shape}")


_REDUCTIONS = ("mean", "sum", "none")


def _divisor(labels: Array, counted: Array, reduction: str, total: Any, dtype: np.dtype[Any]) -> Any:
    """What the sum of the losses is divided by: a number, or one of `dtype` that depends on what is counted."""
    if reduction not in _REDUCTIONS:
        raise ValueError(f"reduction is one of {', '.join(_REDUCTIONS)}, not {reduction!r}")
    if reduction != "mean":
        return 1.0
    if total is not None:
        return as_array(np.where(np.equal(total, 0), 1, total)).astype(dtype)
    if counted is None:
        return float(labels.size or 1)
    return np.maximum(np.add.reduce(counted, None, dtype), 1)  # nothing counts: 0 / 1


def _cross_entropy_backward(
    g: Array, residual: Any, wanted: Sequence[bool], logits: Array, *arguments: Any
) -> tuple[Array]:
    rows, divisor, smoothing = residual
    g = g.reshape(-1) if g.ndim else g / divisor
    return (cross_entropy_kernel.backward(g, rows, smoothing, logits.shape[:-1]).reshape(logits.shape),)


def _cross_entropy_reference(
    logits: Array,
    labels: Array,
    *,
    mask: Array = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    total: float | None = None,
) -> Tensor:
    labels = np.asarray(labels)
    counted = _counted(labels, mask, ignore_index)
    divisor = _divisor(labels, counted, reduction, total, logits.dtype)
    if counted is not None:
        logits, labels = where(counted[..., None], logits, 0.0), np.where(counted, labels, 0)
    logp = log_softmax(logits)
    losses = -squeeze(take_along_axis(logp, labels[..., None], -1), -1)
    if label_smoothing:
        losses = losses * (1 - label_smoothing) - label_smoothing * mean(logp, -1)
    if counted is not None:
        losses = where(counted, losses, 0.0)
    return losses if reduction == "none" else sum(losses) / divisor


@fused(backward=_cross_entropy_backward, reference=_cross_entropy_reference, differentiable=["logits"])
def cross_entropy(
    logits: Array,
    labels: Array,
    *,
    mask: Array = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    total: float | None = None,
) -> Any:
    """-log softmax(logits)[label], averaged over the labels that count (0, with gradient 0, when none does).

    logits: (..., classes); labels: integers (...); mask: boolean (...), False where there is no label; ignore_index: a
    label that does not count; label_smoothing: the part of each label, in [0, 1], that is spread over all classes;
    reduction: "mean", "sum" or "none"; total: for "mean", divide by this many labels instead. Raises TypeError for
    labels that are not integers, IndexError for one out of range, ValueError for shapes that do not fit or a smoothing
    out of range.

    >>> cross_entropy([[0.0, 0.0], [0.0, 0.0]], [0, 1])
    tensor(0.69314718)
    """
    logits, labels = _floating(logits), as_array(labels)
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"cross_entropy: label_smoothing lies in [0, 1], and {label_smoothing} was given")
    counted = _counted(labels, mask, ignore_index)
    _check_labels(logits, labels, counted)
    divisor = _divisor(labels, counted, reduction, total, logits.dtype)
    losses, rows = cross_entropy_kernel.forward(logits, labels, counted, label_smoothing)
    y = losses.reshape(labels.shape) if reduction == "none" else as_array(np.add.reduce(losses) / divisor)
    return y, (rows, divisor, label_smoothing)


# --- linear ------------------------------------------------------------------------------------------------------


def _linear_reference(x: Array, weight: Array, bias: Array = None, activation: str | None = None) -> Tensor:
    y = matmul(x, weight)
    y = y if bias is None else y + bias
    return y if activation is None else relu(y)


def _linear_backward(
    g: Array, residual: Any, wanted: Sequence[bool], x: Array, weight: Array, *arguments: Any
) -> tuple[Array | None, ...]:
    return linear_kernel.backward(g, residual, wanted, weight)


@fused(backward=_linear_backward, reference=_linear_reference, differentiable=["x", "weight", "bias"])
def linear(x: Array, weight: Array, bias: Array = None, activation: str | None = None) -> Any:
    """x @ weight + bias, and with activation "relu" its positive part, computed in place.

    x: (..., n_in); weight: (n_in, n_out); bias: (n_out,) or None; returns (..., n_out).
    """
    x, weight = as_array(x), as_array(weight)
    if x.shape[-1:] != weight.shape[:1] or weight.ndim != 2:
        raise ValueError(
            f"linear: x of shape {x.shape} and a weight of shape {weight.shape} do not fit: "
            "the weight is (n_in, n_out), and x's last axis has n_in elements"
        )
    if bias is not None and bias.shape != weight.shape[1:]:
        raise ValueError(
            f"linear: a bias of shape {bias.shape} does not fit a weight of shape {weight.shape}: "
            "it has the weight's last size"
        )
    if activation not in (None, "relu"):
        raise ValueError(f'linear: the activation is None or "relu", not {activation!r}: apply others to the result')
    return linear_kernel.forward(x, weight, bias, activation == "relu")


# --- layer normalisation -----------------------------------------------------------------------------------------


def _layer_norm_reference(x: Array, weight: Array = None, bias: Array = None, *, eps: float = 1e-5) -> Tensor:
    if x.dtype.itemsize < 4:  # the squares of halves overflow
        y = _layer_norm_reference(astype(x, np.float32), weight, bias, eps=eps)
        return astype(y, np.result_type(*[a.dtype for a in (x, weight, bias) if a is not None]))
    centred = subtract(x, mean(x, -1, keepdims=True))
    y = centred / sqrt(mean(square(centred), -1, keepdims=True) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


@fused(backward=layer_norm_kernel.backward, reference=_layer_norm_reference, differentiable=["x", "weight", "bias"])
def layer_norm(x: Array, weight: Array = None, bias: Array = None, *, eps: float = 1e-5) -> Any:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axis; weight and bias have its size, or are None.

    Ba, Kiros and Hinton 2016, arXiv:1607.06450.
    """
    x = _floating(x)
    for name, parameter in [("weight", weight), ("bias", bias)]:
        if parameter is not None and parameter.shape != x.shape[-1:]:
            raise ValueError(
                f"layer_norm: a {name} of shape {parameter.shape} does not fit x of shape {x.shape}: "
                "it has the size of the last axis"
            )
    return layer_norm_kernel.forward(x, weight, bias, eps)


# --- attention ---------------------------------------------------------------------------------------------------


def _scale_of(q: Array, scale: float | None) -> float:
    return 1 / math.sqrt(np.shape(q)[-1] or 1) if scale is None else float(scale)


def _check_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: Array, bias: Array) -> None:
    if min(q.ndim, k.ndim, v.ndim) < 2 or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ValueError(
            f"attention: q {q.shape}, k {k.shape}, v {v.shape} do not fit: they are (..., query, key_dim), "
            "(..., key, key_dim) and (..., key, value_dim)"
        )
    _check_hiding((*np.broadcast_shapes(q.shape[:-2], k.shape[:-2]), q.shape[-2], k.shape[-2]), mask, bias)


def _check_hiding(scores: tuple[int, ...], mask: Array, bias: Array) -> None:
    """ValueError or TypeError unless mask and bias fit scores of this shape, (..., query, key)."""
    if mask is not None:
        check_mask(mask, scores, "scores")
        if mask.ndim < 2:
            raise ValueError(f"attention: a mask has the axes (..., query, key), and this one has shape {mask.shape}")
    if bias is not None and np.broadcast_shapes(bias.shape, scores) != scores:
        raise ValueError(f"attention: a bias of shape {bias.shape} does not broadcast to the scores' shape {scores}")


@derived
def attention_weights(
    q: Array, k: Array, *, mask: Array = None, bias: Array = None, scale: float | None = None
) -> Tensor:
    """softmax(scale * q k^T + bias) over the keys, (..., query, key): what `attention` never shows.

    Arguments as for `attention`.
    """
    scores = matmul(q, swapaxes(k, -1, -2)) * _scale_of(q, scale)
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        check_mask(mask, scores.shape, "scores")
        scores = where(mask, scores, -np.inf)
    return softmax(scores)


def _attention_reference(
    q: Array, k: Array, v: Array, *, mask: Array = None, bias: Array = None, scale: float | None = None
) -> Tensor:
    if mask is not None:
        looked_at, looking = mask.any(-2)[..., None], mask.any(-1)[..., None]
        q, k, v = where(looking, q, 0.0), where(looked_at, k, 0.0), where(looked_at, v, 0.0)
    return matmul(attention_weights(q, k, mask=mask, bias=bias, scale=scale), v)


def _attention_backward(
    g: Array,
    residual: Any,
    wanted: Sequence[bool],
    q: Array,
    k: Array,
    v: Array,
    mask: Array,
    bias: Array,
    scale: float | None,
) -> tuple[Array | None, ...]:
    return attention_kernel.backward(g, residual, wanted, _scale_of(q, scale))


@fused(backward=_attention_backward, reference=_attention_reference, differentiable=["q", "k", "v", "bias"])
def attention(
    q: Array, k: Array, v: Array, *, mask: Array = None, bias: Array = None, scale: float | None = None
) -> Any:
    """softmax(scale * q k^T + bias) v, the softmax over the keys.

    q: (..., query, key_dim); k: (..., key, key_dim); v: (..., key, value_dim); returns (..., query, value_dim). mask:
    boolean, True where the query may look at the key, and bias: added to the scaled scores; both broadcast to (...,
    query, key). scale: None is 1/sqrt(key_dim) (Vaswani et al. 2017, arXiv:1706.03762, equation 1), 1.0 the lecture's.
    A query that may look at nothing gets exactly 0.

    >>> attention([[1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]], [[2.0], [4.0]])
    tensor([[3.]])
    """
    q, k, v = _floating(q), _floating(k), _floating(v)
    _check_attention(q, k, v, mask, bias)
    return attention_kernel.forward(q, k, v, mask, bias, _scale_of(q, scale))


# --- self-attention ----------------------------------------------------------------------------------------------


def _check_self_attention(x: Array, wq: Array, wk: Array, wv: Array, heads: int, mask: Array, bias: Array) -> None:
    fits = x.ndim >= 2 and wq.ndim == wv.ndim == 2 and wq.shape == wk.shape and len(wq) == len(wv) == x.shape[-1]
    if not fits or heads < 1 or wq.shape[1] % heads or wv.shape[1] % heads:
        raise ValueError(
            f"self_attention: shapes of x {x.shape}, wq {wq.shape}, wk {wk.shape}, wv {wv.shape} and {heads} heads do "
            "not fit: x is (..., n, dim), wq and wk are (dim, heads * key_dim), wv is (dim, heads * value_dim)"
        )
    if mask is not None or bias is not None:
        _check_hiding((*x.shape[:-2], heads, x.shape[-2], x.shape[-2]), mask, bias)


def _self_attention_reference(
    x: Array,
    wq: Array,
    wk: Array,
    wv: Array,
    *,
    heads: int = 1,
    mask: Array = None,
    bias: Array = None,
    scale: float | None = None,
) -> Tensor:
    q, k, v = (matmul(x, w) for w in (wq, wk, wv))
    q, k, v = (swapaxes(reshape(t, (*t.shape[:-1], heads, t.shape[-1] // heads)), -3, -2) for t in (q, k, v))
    y = swapaxes(_attention_reference(q, k, v, mask=mask, bias=bias, scale=scale), -3, -2)
    return reshape(y, (*y.shape[:-2], y.shape[-2] * y.shape[-1]))


def _self_attention_backward(
    g: Array,
    residual: Any,
    wanted: Sequence[bool],
    x: Array,
    wq: Array,
    wk: Array,
    wv: Array,
    heads: int,
    mask: Array,
    bias: Array,
    scale: float | None,
) -> tuple[Array | None, ...]:
    return self_attention_kernel.backward(g, residual, wanted, wq, wk, heads, _scale_per_head(wq, heads, scale))


def _scale_per_head(wq: Array, heads: int, scale: float | None) -> float:
    return 1 / math.sqrt(wq.shape[1] // heads or 1) if scale is None else float(scale)


@fused(
    backward=_self_attention_backward,
    reference=_self_attention_reference,
    differentiable=["x", "wq", "wk", "wv", "bias"],
)
def self_attention(
    x: Array,
    wq: Array,
    wk: Array,
    wv: Array,
    *,
    heads: int = 1,
    mask: Array = None,
    bias: Array = None,
    scale: float | None = None,
) -> Any:
    """attention(x wq, x wk, x wv) in each head: the products as one, and heads split and joined without copies.

    x: (..., n, dim), finite; wq, wk: (dim, heads * key_dim); wv: (dim, heads * value_dim); returns (..., n, heads *
    value_dim). mask, bias and scale as in `attention`, the former two broadcast to (..., heads, query, key). With
    one head and many vectors, the scores are computed as x (wq wk^T) x^T, which is less work: then wq wk^T must be in
    the range of its dtype.

    >>> self_attention([[1.0], [1.0]], [[1.0]], [[1.0]], [[2.0]])
    tensor([[2.],
            [2.]])
    """
    x = _floating(x)
    _check_self_attention(x, wq, wk, wv, heads, mask, bias)
    return self_attention_kernel.forward(x, wq, wk, wv, heads, mask, bias, _scale_per_head(wq, heads, scale))
