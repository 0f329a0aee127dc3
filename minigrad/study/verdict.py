"""What is wrong with a gradient, in words: one sentence for each thing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from minigrad.engine import Node
from minigrad.op import Op
from minigrad.study.names import Names
from minigrad.study.text import norm, number, place, share
from minigrad.study.walk import Record, Step, call_of, is_source, operands, outputs
from minigrad.tensor import Tensor

# By how much a gradient's norm must change between two calls on the way from the loss to a parameter. Means over
# batches, residual connections and sensible layers stay within a few hundred.
FACTOR = 1e4

# Activations that pass nothing on where their outputs are near these values.
_LIMITS = {"sigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0)}


class Evidence:
    """What a pass has shown: the norm of each cotangent, where most of it came from, and what spoilt it first."""

    def __init__(self) -> None:
        self.norms: dict[Node, float] = {}
        self.source: dict[Node, Node] = {}  # for a node the one that contributed most to its cotangent
        self.spoilt: Step | None = None  # the first to make something that is not finite of a finite cotangent
        self._most: dict[Node, float] = {}

    def note(self, step: Step) -> None:
        node = step.node
        several = isinstance(step.cotangent, (tuple, list))
        self.norms[node] = norm(*step.cotangent) if several else norm(step.cotangent)
        for edge, g in zip(step.edges, step.gradients):
            if g is None:
                continue
            size = norm(g)
            if not math.isfinite(size) and math.isfinite(self.norms[node]):
                self.spoilt = self.spoilt or step
            if edge not in self._most or not size <= self._most[edge]:
                self._most[edge], self.source[edge] = size, node

    def path_to(self, leaf: Node) -> list[Node]:
        """The calls, from the loss on, along which most of a leaf's gradient came."""
        path, node = [], leaf
        while node in self.source:
            node = self.source[node]
            path.append(node)
        return [node for node in reversed(path) if isinstance(node.op, Op)]


def verdict(
    loss: Tensor, record: Record, names: Names, evidence: Evidence, gradients: Mapping[str, float | None]
) -> list[str]:
    """The findings. gradients: the norm of each parameter's gradient, None where none arrives."""
    leaves = [node for node in record.nodes if is_source(node) and node in evidence.norms]
    paths = [path for path in (_Path(leaf, names, evidence) for leaf in leaves) if path.is_finite]
    found = [*_not_finite(loss, names, evidence), *_disconnected(gradients), *_dying(paths, names)]
    vanishing = [path for path in paths if path.stop is None and path.fall.factor > FACTOR]
    exploding = [path for path in paths if path.rise.factor > FACTOR]
    if vanishing:
        worst = max(vanishing, key=lambda path: path.fall.factor)
        found.append(
            f"The gradient vanishes on its way to {_to(worst, vanishing, names)}: its norm falls "
            f"{_course(worst, worst.fall, names)}, {_mostly(worst, worst.fall, -1)}."
        )
    if exploding:
        worst = max(exploding, key=lambda path: path.rise.factor)
        found.append(
            f"The gradient explodes on its way to {_to(worst, exploding, names)}: its norm grows "
            f"{_course(worst, worst.rise, names)}, {_mostly(worst, worst.rise, 1)}."
        )
    return found or [_healthy({names.leaf(leaf): evidence.norms[leaf] for leaf in leaves})]


class _Stretch(NamedTuple):
    """A stretch of a path over which the norm changes by a factor above 1."""

    first: int
    last: int
    factor: float


class _Path:
    """The way of a gradient to a leaf: the calls that it passes, and its norm where it arrives at each and at the end.

    From the first call in a module on, or where there is none the first whose output has several elements: what comes
    before is the scale of the loss, and its mean.
    """

    def __init__(self, leaf: Node, names: Names, evidence: Evidence):
        calls = evidence.path_to(leaf)
        sizes = [*(evidence.norms[node] for node in calls), evidence.norms[leaf]]
        within = [i for i, node in enumerate(calls) if names.module(node) is not None]
        within = within or [i for i, node in enumerate(calls) if sum(np.size(y) for y in outputs(node)) > 1]
        start = within[0] if within else 0
        self.leaf = leaf
        self.calls = calls[start:]
        # How much is summed up in a parameter's gradient, over a batch, says nothing about what arrives there.
        self.norms = sizes[start:-1] if leaf in names.parameters.values() else sizes[start:]
        self.is_finite = all(map(math.isfinite, sizes))
        stops = [node for node, before, after in zip(calls, sizes, sizes[1:]) if before and not after]
        self.stop = stops[0] if stops else None  # the call that passes on exactly zero
        self.rise = _steepest(self.norms)
        self.fall = _steepest([1 / x if x else 0.0 for x in self.norms])


def _steepest(values: Sequence[float]) -> _Stretch:
    """The stretch over which positive values grow by the largest factor."""
    best, low = _Stretch(0, 0, 1.0), 0
    for i, value in enumerate(values):
        if not values[low] or 0 < value < values[low]:
            low = i
        if values[low] and value / values[low] > best.factor:
            best = _Stretch(low, i, value / values[low])
    return best


# --- sentences ---------------------------------------------------------------------------------------------------


def _not_finite(loss: Tensor, names: Names, evidence: Evidence) -> Iterator[str]:
    if not np.isfinite(loss._array).all():
        yield f"The loss is {loss.item()}: within study.detect_anomaly() the op that made it is named."
    step = evidence.spoilt
    if step is None:
        return
    pairs = zip(operands(step.node), step.gradients)
    bad = {name: int((~np.isfinite(g)).sum()) for (name, _), g in pairs if g is not None}
    where = " and ".join(f"{name} ({count} elements)" for name, count in bad.items() if count)
    arrays = [x for x in call_of(step.node).arguments if isinstance(x, np.ndarray) and x.dtype.kind in "fc"]
    made = "" if all(np.isfinite(x).all() for x in arrays) else ", as some of its operands are"
    yield (
        f"The gradient is not finite from {_at(step.node, names)} on: what its rule makes of a finite cotangent is NaN "
        f"or infinite for {where}{made}."
    )


def _disconnected(gradients: Mapping[str, float | None]) -> Iterator[str]:
    missing = [name for name, size in gradients.items() if size is None]
    if missing:
        yield f"No gradient arrives at {_listed(missing)}: the loss was not computed from {_them(missing)}."


def _dying(paths: Sequence[_Path], names: Names) -> Iterator[str]:
    by_stop: dict[Node, list[str]] = {}
    for path in paths:
        if path.stop is not None:
            by_stop.setdefault(path.stop, []).append(names.leaf(path.leaf))
    for stop, leaves in by_stop.items():
        yield (
            f"The gradient dies on its way to {_listed(leaves)}: it is exactly 0 from {_at(stop, names)} on"
            f"{_all_zero(stop)}{_saturated(str(stop.op), [stop])}."
        )


def _all_zero(node: Node) -> str:
    call = call_of(node)
    if not any(np.any(y) for y in outputs(node)):
        return ", whose outputs are all 0"
    arrays = zip(node.op._names, call.arguments)
    zero = [name for name, x in arrays if isinstance(x, np.ndarray) and x.dtype.kind in "fc" and not x.any()]
    return f", whose {_listed(zero)} {'is' if len(zero) == 1 else 'are'} all 0" if zero else ""


def _healthy(norms: Mapping[str, float]) -> str:
    least, most = (choose(norms, key=norms.__getitem__) for choose in (min, max))
    between = f"between {number(norms[least])} (of {least}) and {number(norms[most])} (of {most})"
    return "The gradient arrives everywhere, and neither vanishes nor explodes: its norm is " + (
        f"{between}." if len(norms) > 1 else f"{number(norms[least])} (of {least})."
    )


def _to(worst: _Path, paths: Sequence[_Path], names: Names) -> str:
    more = len(paths) - 1
    return names.leaf(worst.leaf) + (f" (and {more} more)" if more else "")


def _course(path: _Path, stretch: _Stretch, names: Names) -> str:
    first, last = (number(path.norms[i]) for i in stretch[:2])
    end = f"at {_at(path.calls[stretch.last], names)}" if stretch.last < len(path.calls) else "there"
    return f"from {first} at {_at(path.calls[stretch.first], names)} to {last} {end}"


def _mostly(path: _Path, stretch: _Stretch, sign: int) -> str:
    """Which calls of one line change the norm most along the stretch: in the direction of the sign."""
    groups: dict[tuple[str, str], list[int]] = {}
    for i in range(stretch.first, stretch.last):
        call = call_of(path.calls[i])
        groups.setdefault((str(path.calls[i].op), place(call.file, call.line)), []).append(i)
    change = {key: sum(math.log(path.norms[i + 1] / path.norms[i]) for i in group) for key, group in groups.items()}
    key = max(change, key=lambda key: sign * change[key])
    (op, where), group = key, groups[key]
    factor = number(math.exp(change[key] / len(group)))
    calls = (
        f"{op} ({where}), which multiplies"
        if len(group) == 1
        else f"{len(group)} calls of {op} ({where}), which multiply"
    )
    average = "" if len(group) == 1 else " on average"
    return f"mostly in {calls} it by {factor}{average}" + _saturated(op, [path.calls[i] for i in group])


def _saturated(op: str, calls: Sequence[Node]) -> str:
    if op not in _LIMITS:
        return ""
    low, high = _LIMITS[op]
    values = np.concatenate([np.ravel(y) for node in calls for y in outputs(node)])
    near = float(np.mean((values - low < 0.01) | (high - values < 0.01)))
    return f": {share(near)} of its outputs lie within 0.01 of {low:g} or {high:g}" if near > 0.5 else ""


def _at(node: Node, names: Names) -> str:
    path, call = names.module(node), call_of(node)
    inside = "" if path is None else names.title(path).strip("()") + ", "
    return f"{node.op} ({inside}{place(call.file, call.line)})"


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:3])
    if len(names) > 3:
        return f"{', '.join(shown)} and {len(names) - 3} more"
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def _them(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "them"
