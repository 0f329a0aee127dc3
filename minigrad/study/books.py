"""What a ledger consists of, and how it is printed."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from minigrad.study.text import number, share, table, width

OPS_SHOWN = 12


@dataclass(frozen=True)
class Row:
    """What a gradient is before and after an op or a module.

    name: the op's, or the module's path (the outermost one's class, in parentheses). module: that of the module which
    made the call, "" if none did. place: file and line of the call, or of the module's forward(). norm_in: of the
    cotangent that arrives at the output, of that shape. norm_out: of what goes on to operands that are no parameters
    (from an op without such operands, to its parameters; from a module without, None). zeros: the share of zeros among
    all that goes on; nonfinite: how many elements of that are NaN or infinite.
    """

    name: str
    module: str
    place: str
    shape: tuple[int, ...]
    norm_in: float
    norm_out: float | None
    zeros: float
    nonfinite: int

    @property
    def gain(self) -> float | None:
        """norm_out / norm_in; None where nothing arrives, or goes on."""
        return self.norm_out / self.norm_in if self.norm_in and self.norm_out is not None else None


@dataclass(frozen=True)
class Head:
    """Norms at one head: of the cotangent of its output, and of what goes on to its queries, keys and values.

    None for queries and keys where the scores are no products of both. place: file and line of the last call. time:
    which of the module's attentions it is, counted from 1 as they were computed.
    """

    module: str
    head: int
    place: str
    norm_in: float
    query: float | None
    key: float | None
    value: float | None
    time: int = 1


class Part(NamedTuple):
    """The part of a gradient that came along one branch: its norm, and its share <part, gradient> / |gradient|^2."""

    norm: float
    share: float


@dataclass(frozen=True)
class Gain:
    """The gradient of a parameter or another leaf, whose norm is None if none arrives, and where it comes from.

    branches: by the kinds of modules (Module.branch) that its paths from the loss lead through before they reach the
    module that the parameter belongs to: "attention", "FC", "attention+FC"; "residual": through none, because residual
    connections lead around them or none lies between. The parts add up to the gradient, and their shares to 1 (one may
    be below 0 or above 1).
    """

    name: str
    is_parameter: bool
    norm: float | None
    zeros: float
    nonfinite: int
    branches: Mapping[str, Part]


@dataclass(frozen=True, repr=False)
class Ledger:
    """The books of a backward pass. findings: in words, where the gradient vanishes, dies, explodes or is not finite.

    ops: in the order of the backward pass. modules: all that it reached. heads: of every attention. leaves: parameters,
    and other tensors that require a gradient.
    """

    findings: tuple[str, ...]
    ops: tuple[Row, ...]
    modules: tuple[Row, ...]
    heads: tuple[Head, ...]
    leaves: tuple[Gain, ...]

    def __repr__(self) -> str:
        words = [line for finding in self.findings for line in textwrap.wrap(finding, width(), subsequent_indent="  ")]
        blocks = [words, self._module_table(), self._head_table(), self._leaf_table(), self._op_table()]
        return "\n\n".join("\n".join(block) for block in blocks if block)

    def _module_table(self) -> list[str]:
        rows = [[row.name, *_flow(row), row.place] for row in self.modules]
        return table(["module", *_FLOW, "line"], rows) if rows else []

    def _head_table(self) -> list[str]:
        timed = any(h.time > 1 for h in self.heads)
        header = ["attention in", *([">time"] if timed else []), ">head"]
        header += [">norm in", ">to queries", ">to keys", ">to values", "line"]
        rows = [
            [h.module, *([str(h.time)] if timed else []), str(h.head)]
            + [*map(number, (h.norm_in, h.query, h.key, h.value)), h.place]
            for h in self.heads
        ]
        return table(header, rows) if rows else []

    def _leaf_table(self) -> list[str]:
        branches = list(dict.fromkeys(name for leaf in self.leaves for name in leaf.branches))
        rows = [
            [leaf.name, number(leaf.norm), share(leaf.zeros), str(leaf.nonfinite)]
            + [share(leaf.branches[name].share) if name in leaf.branches else "" for name in branches]
            for leaf in self.leaves
        ]
        return table(["gradient of", ">norm", ">zeros", ">nan/inf", *(f">{name}" for name in branches)], rows)

    def _op_table(self) -> list[str]:
        chosen = sorted(self.ops, key=_interest, reverse=True)[:OPS_SHOWN]
        rows = [row for row in self.ops if any(row is other for other in chosen)]
        lines = table(["op", "module", *_FLOW, "line"], [[r.name, r.module, *_flow(r), r.place] for r in rows])
        more = len(self.ops) - len(rows)
        return [*lines, f"(and {more} more, whose gains are nearer to 1: see .ops)"] if more else lines


_FLOW = (">norm in", ">norm out", ">gain", ">zeros", ">nan/inf")


def _flow(row: Row) -> Sequence[str]:
    return [number(row.norm_in), number(row.norm_out), number(row.gain), share(row.zeros), str(row.nonfinite)]


def _interest(row: Row) -> float:
    """Most for gradients that are not finite, that are stopped, or that change most in size."""
    if row.nonfinite or not row.norm_out:
        return math.inf
    return abs(math.log(row.gain)) if row.gain else 0.0
