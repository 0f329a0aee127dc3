"""Layers with parameters, composed from minigrad's ops."""

from minigrad.nn import init
from minigrad.nn.layers import Dropout, Embedding, LayerNorm, Linear, Sequential
from minigrad.nn.module import Module, Parameter, functional_call
from minigrad.ops.fused import cross_entropy

__all__ = [
    "Dropout",
    "Embedding",
    "LayerNorm",
    "Linear",
    "Module",
    "Parameter",
    "Sequential",
    "cross_entropy",
    "functional_call",
    "init",
]
