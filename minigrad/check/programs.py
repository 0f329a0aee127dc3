"""Random programs of a few ops, with kinks and ties among their values: what a gradient check must never fail.

A program is Python source with one call a line, so that a culprit's line can be told.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigrad.engine import OPS
from minigrad.tensor import wrap

BOUND = 30.0  # values beyond are avoided: what follows would be all rounding errors

# Expressions in a and b, names of values computed before.
UNARY = [
    *("mg.exp(a)", "mg.tanh(a)", "mg.sin(a)", "mg.cos(a)", "mg.sigmoid(a)", "mg.softplus(a)", "mg.gelu(a)"),
    *("-a", "a ** 2", "a ** 3", "mg.square(a)", "mg.sqrt(a * a + 0.3)", "mg.log(a * a + 0.2)", "1 / (a * a + 0.5)"),
    *("mg.relu(a)", "mg.abs(a)", "mg.clip(a, -0.5, 1.0)", "mg.maximum(a, 0.0)", "mg.minimum(a, 0.25)"),
    *("mg.expm1(a)", "mg.log1p(mg.abs(a))", "mg.where(a.data > 0, a, 0.5 * a)", "np.tanh(a)", "2.5 * a - 1.0"),
    *("a.sum({axis}, keepdims={keep})", "a.mean({axis}, keepdims={keep})", "mg.logsumexp(a, {axis})"),
    *(
        "a.max({axis})",
        "a.min({axis}, keepdims={keep})",
        "mg.prod(a, {axis})",
        "mg.var(a, {axis})",
        "mg.std(a, {axis})",
    ),
    *("a.reshape(-1)", "mg.swapaxes(a, 0, -1)", "mg.transpose(a)", "mg.flip(a, {axis})", "mg.expand_dims(a, {axis})"),
    *("a[..., ::-1]", "a[{index}]", "a[..., {indices}]", "mg.tril(a)", "mg.triu(a, 1)", "mg.squeeze(a)"),
    *("mg.softmax(a)", "mg.softmax(a, {axis})", "mg.log_softmax(a)", "mg.layer_norm(a)"),
    *("mg.broadcast_to(a, (2, *a.shape))", "mg.concatenate([a, 2 * a], {axis})", "mg.stack([a, mg.sin(a)])"),
    *("mg.einsum('...i,...i->...', a, a)", "mg.index_add(a, {index}, 1.5)", "mg.index_put(a, {index}, a[{index}] * 2)"),
    *("mg.attention(a, a, a)", "mg.cross_entropy(a, np.zeros(a.shape[:-1], int))", "mg.outer(a, a)"),
]
BINARY = [
    *(
        "a + b",
        "a - b",
        "a * b",
        "a / (b * b + 0.5)",
        "mg.maximum(a, b)",
        "mg.minimum(a, b)",
        "mg.multiply(a, mg.sin(b))",
    ),
    *("a @ b", "mg.matmul(mg.swapaxes(a, -1, -2), b)", "mg.where(a.data > b.data, a, b)", "(a * a + 0.5) ** b"),
    *(
        "mg.concatenate([a, b], {axis})",
        "mg.stack([a, b], {axis})",
        "mg.outer(a, b)",
        "mg.linear(a, b)",
        "mg.dot(a, b)",
    ),
    *("mg.attention(a, b, b, scale=0.7)", "mg.layer_norm(a, b)", "mg.einsum('...i,...i', a, b)"),
]


@dataclass(frozen=True)
class Program:
    """A function of some arrays, its source, and the inputs to call it with."""

    name: str
    source: str
    inputs: tuple[np.ndarray, ...]

    def function(self, **names: Any) -> Callable[..., Any]:
        """The program compiled, its lines findable; names: what else it refers to."""
        linecache.cache[self.name] = (len(self.source), None, self.source.splitlines(keepends=True), self.name)
        scope: dict[str, Any] = {"__name__": "program", "np": np, "mg": _Ops(), **names}
        exec(compile(self.source, self.name, "exec"), scope)
        function: Callable[..., Any] = scope["program"]
        return function


class _Ops:
    """mg.name -> the op of that name. (minigrad itself imports this package, so it cannot be imported here.)"""

    def __getattr__(self, name: str) -> Any:
        return OPS[name]


def random_program(seed: int) -> Program:
    """A program of 3 to 12 calls that computes finite numbers from two or three inputs."""
    rng = np.random.default_rng(seed)
    inputs = tuple(_input(rng) for _ in range(rng.integers(2, 4)))
    lines = [f"def program({', '.join(f'x{i}' for i in range(len(inputs)))}):"]
    names = [f"x{i}" for i in range(len(inputs))]
    for number in range(rng.integers(3, 13)):
        expression = _grow(rng, lines, names, inputs)
        lines.append(f"    t{number} = {expression}")
        names.append(f"t{number}")
    return Program(f"<program {seed}>", _finished(lines, names), inputs)


def _finished(lines: Sequence[str], names: Sequence[str]) -> str:
    return "\n".join([*lines, f"    return {names[-1]}, {names[-2]}"]) + "\n"


def _input(rng: np.random.Generator) -> np.ndarray:
    """Normal numbers, or small integers and halves, which tie and lie at kinks."""
    shape = tuple(rng.integers(1, 4, rng.integers(0, 4)))
    return rng.standard_normal(shape) if rng.random() < 0.7 else rng.integers(-2, 3, shape) / 2


def _grow(rng: np.random.Generator, lines: Sequence[str], names: Sequence[str], inputs: Sequence[Any]) -> str:
    """One more expression that can be computed, has bounded values and not too many of them."""
    while True:
        expression = _expression(rng, names)
        program = Program("<draft>", _finished([*lines, f"    t = {expression}"], ["t", "t"]), tuple(inputs))
        with np.errstate(all="ignore"):
            try:
                value = program.function()(*(wrap(x.copy(), None) for x in inputs))[0].data
            except Exception:  # whatever an op says to operands that do not fit it
                continue
        if value.dtype == float and 0 < value.size <= 64 and np.isfinite(value).all() and np.abs(value).max() <= BOUND:
            return expression


def _expression(rng: np.random.Generator, names: Sequence[str]) -> str:
    """Drawn with a preference for what was computed last."""
    templates = UNARY if rng.random() < 0.6 else BINARY
    template = templates[rng.integers(len(templates))]
    weights = np.arange(1.0, len(names) + 1) ** 2
    a, b = rng.choice(names, 2, p=weights / weights.sum())
    index, indices = rng.integers(-1, 2), rng.integers(-1, 2, 3).tolist()
    chosen = template.format(axis=rng.integers(-1, 2), keep=rng.random() < 0.5, index=index, indices=indices)
    return re.sub(r"(?<![\w.])[ab]\b", lambda found: str({"a": a, "b": b}[found.group()]), chosen)


def check_programs(seeds: Sequence[int], check: Callable[..., Any]) -> list[tuple[Program, Any]]:
    """The programs that `check` (gradcheck or gradgradcheck) fails, with its results."""
    failed = []
    for seed in seeds:
        program = random_program(seed)
        result = check(program.function(), program.inputs, raise_exception=False)
        if not result:
            failed.append((program, result))
    return failed
