"""minigrad: reverse-mode automatic differentiation on NumPy arrays, small enough to read in an afternoon.

>>> import minigrad as mg
>>> x = mg.tensor([1.0, 2.0, 3.0], requires_grad=True)
>>> mg.sum(mg.exp(x)).backward()
>>> x.grad
array([ 2.71828183,  7.3890561 , 20.08553692])
"""

from minigrad.check import gradcheck, gradgradcheck
from minigrad.engine import no_grad
from minigrad.op import op
from minigrad.ops import constants as _constants
from minigrad.ops.elementwise import (
    abs,
    add,
    clip,
    copy,
    cos,
    divide,
    exp,
    expm1,
    gelu,
    log,
    log1p,
    maximum,
    minimum,
    multiply,
    negative,
    power,
    relu,
    sigmoid,
    sin,
    softplus,
    sqrt,
    square,
    subtract,
    tanh,
    where,
)
from minigrad.ops.fused import attention, attention_weights, cross_entropy, layer_norm, linear, log_softmax, softmax
from minigrad.ops.indexing import embedding, index_add, index_put, take_along_axis
from minigrad.ops.linalg import dot, einsum, matmul, outer
from minigrad.ops.reductions import logsumexp, max, mean, min, prod, std, sum, var
from minigrad.ops.shapes import (
    broadcast_to,
    concatenate,
    expand_dims,
    flip,
    moveaxis,
    reshape,
    split,
    squeeze,
    stack,
    swapaxes,
    transpose,
    tril,
    triu,
)
from minigrad.random import seed
from minigrad.tensor import Tensor, tensor
from minigrad.transforms import grad, value_and_grad

__version__ = "0.1.0"
