"""A computation graph as plain data: its nodes with their numbers, its edges, and how to collapse both by module."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import numpy as np

COMPUTED, NOT_COMPUTED, NOT_KEPT = "computed", "not computed", "not kept"

CALLS = ("call", "output")  # the kinds of nodes that a module has made

P = TypeVar("P", bound="Parts")


@dataclass(frozen=True)
class Numbers:
    """What an array holds: mean to norm are those of its finite elements (None if there are none)."""

    size: int
    mean: float | None
    deviation: float | None
    least: float | None
    most: float | None
    norm: float | None
    zeros: int
    nan: int
    infinite: int

    @property
    def not_finite(self) -> int:
        return self.nan + self.infinite


def numbers(x: Any) -> Numbers:
    """The statistics of an array, computed in float64.

    >>> seen = numbers([3.0, 4.0, float("nan")])
    >>> seen.mean, seen.norm, seen.nan
    (3.5, 5.0, 1)
    """
    array = np.asarray(x)
    if array.dtype.kind == "c":
        array = np.abs(array)
    nan = int(np.isnan(array).sum())
    infinite = int(np.isinf(array).sum())
    zeros = array.size - int(np.count_nonzero(array))
    finite = array[np.isfinite(array)].astype(np.float64)
    found: list[float | None] = [None] * 5
    if finite.size:
        largest = float(np.abs(finite).max()) or 1.0
        scaled = finite / largest  # so that no square overflows
        sizes = scaled.mean(), scaled.std(), scaled.min(), scaled.max(), np.sqrt(np.square(scaled).sum())
        found = [_rounded(largest * float(v)) for v in sizes]
    mean, deviation, least, most, norm = found
    return Numbers(array.size, mean, deviation, least, most, norm, zeros, nan, infinite)


def _rounded(v: float) -> float | None:
    """To seven digits, which keeps files small; None for what overflows even float64 (JSON has no infinity)."""
    return float(f"{v:.7g}") if math.isfinite(v) else None


@dataclass(frozen=True)
class GraphNode:
    """One box of a graph.

    kind: "call" (of an op), "output" (one of the several of a call), "parameter", "leaf" (another tensor that requires
    a gradient), "input" (of a transform), "constant" (an array that requires none), "module" (the calls that a module
    made, collapsed), "outside" (where a part of a graph begins or ends).
    op: the op's name, or the module's class. name: of a parameter or module, its path. module: the path of the module
    that made the call or owns the parameter. detail: the arguments of the call that are no arrays; what a module holds;
    of a leaf or constant, what it is first used as. value, gradient: statistics; gradient_state says why there is no
    gradient. place: source file and line. not_finite: how many elements of values and gradients are NaN or infinite,
    here or inside.
    """

    id: str
    kind: str
    op: str = ""
    name: str = ""
    module: str = ""
    detail: str = ""
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    value: Numbers | None = None
    gradient: Numbers | None = None
    gradient_state: str = NOT_COMPUTED
    place: str = ""
    calls: int = 0
    not_finite: int = 0


@dataclass(frozen=True)
class GraphEdge:
    """From a node to one that uses it, as the argument of that name; count: how many edges are merged in this one."""

    source: str
    target: str
    argument: str = ""
    count: int = 1


@dataclass(frozen=True)
class Parts:
    """Nodes in the order in which they were computed, edges, and the class of each module by its path.

    results: the ids of the nodes whose computation this is. view: what is shown, in words. root: the path of the
    module whose inside it is ("": of everything).
    """

    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    modules: Mapping[str, str]
    results: tuple[str, ...]
    view: str = "by op"
    root: str = ""

    def chain(self, path: str) -> list[str]:
        """The modules around `path` and it itself, from the outermost inwards, below the root."""
        names = path.split(".")
        ways = (".".join(names[: i + 1]) for i in range(len(names)))
        return [way for way in ways if way in self.modules and way != self.root and is_within(way, self.root)]

    def is_innermost(self, path: str) -> bool:
        """Whether the module contains no other."""
        return not any(other.startswith(path + ".") for other in self.modules)

    def children(self) -> list[str]:
        """The modules right below the root that have made a call, in order."""
        chains = (self.chain(node.module) for node in self.nodes if node.kind in CALLS)
        return list(dict.fromkeys(chain[0] for chain in chains if chain))


def is_within(path: str, module: str) -> bool:
    return not module or path == module or path.startswith(module + ".")


def plain(parts: Parts) -> dict[str, Any]:
    """The graph as dicts, lists, text and numbers, ready for JSON: the fields of the classes above but empty ones."""
    return {
        "schema": "minigrad.graph/1",
        "view": parts.view,
        "root": parts.root,
        "results": list(parts.results),
        "modules": dict(parts.modules),
        "nodes": [_without_nothing(asdict(node)) for node in parts.nodes],
        "edges": [asdict(edge) for edge in parts.edges],
    }


def _without_nothing(node: dict[str, Any]) -> dict[str, Any]:
    kept = ("id", "kind", "value", "gradient", "gradient_state")
    return {k: v for k, v in node.items() if k in kept or v not in ("", None, 0)}


# --- collapsing --------------------------------------------------------------------------------------------------


def collapsed(parts: P, depth: int) -> P:
    """One box for all that a module did in one go, down to modules nested `depth` deep; what is not within one stays.

    A module that is called again later gets another box: so there are never circles. Parameters and constants that
    are used in one box alone are in it. ValueError for a depth below 1.
    """
    if depth < 1:
        raise ValueError(f"modules are nested at a depth of at least 1, and {depth} was given")
    group_of = _groups(parts, depth)
    first = [n for n in parts.nodes if n.id not in group_of or n.kind in CALLS]  # a group stands where its calls begin
    inside: dict[str, list[GraphNode]] = {group_of.get(node.id, node.id): [] for node in first}
    for node in parts.nodes:
        inside[group_of.get(node.id, node.id)].append(node)
    leaving = {e.source for e in parts.edges if group_of.get(e.source) != group_of.get(e.target)}
    leaving.update(parts.results)
    times: dict[str, int] = {}
    nodes = []
    for key, members in inside.items():
        if key not in group_of.values():
            nodes += members
            continue
        path = parts.chain(next(n.module for n in members if n.kind in CALLS))[:depth][-1]
        times[path] = times.get(path, 0) + 1
        nodes.append(_group(parts, key, path, times[path], members, leaving))
    edges = _merged(parts.edges, group_of)
    results = tuple(dict.fromkeys(group_of.get(i, i) for i in parts.results))
    view = (f"inside {parts.root}, " if parts.root else "") + f"by module, {depth} deep"
    return replace(parts, nodes=tuple(nodes), edges=edges, results=results, view=view)


def _groups(parts: Parts, depth: int) -> dict[str, str]:
    """The group that each node belongs to, of those that belong to one: unbroken runs of calls of one module."""
    group_of: dict[str, str] = {}
    last, count = None, 0
    for node in parts.nodes:
        if node.kind not in CALLS:
            continue
        chain = parts.chain(node.module)
        path = chain[:depth][-1] if len(chain) >= depth or (chain and parts.is_innermost(chain[-1])) else None
        count += path is not None and path != last
        last = path
        if path is not None:
            group_of[node.id] = f"m{count}"
    users: dict[str, set[str | None]] = {}
    for edge in parts.edges:
        users.setdefault(edge.source, set()).add(group_of.get(edge.target))
    for node in parts.nodes:
        if node.kind in ("parameter", "constant") and len(used := users.get(node.id, set())) == 1:
            (group,) = used
            if group is not None:
                group_of[node.id] = group
    return group_of


def _group(parts: Parts, key: str, path: str, time: int, members: list[GraphNode], leaving: set[str]) -> GraphNode:
    made = [node for node in members if node.kind in CALLS]
    last = [node for node in made if node.id in leaving][-1]
    n_calls = sum(node.kind == "call" for node in made)
    size = sum(math.prod(node.shape or ()) for node in members if node.kind == "parameter")
    held = f"{n_calls} call{'s' * (n_calls != 1)}" + (f", {size:,} parameter{'s' * (size != 1)}" if size else "")
    around = parts.chain(path)[:-1]
    return GraphNode(
        id=key,
        kind="module",
        op=parts.modules[path],
        name=path,
        module=around[-1] if around else parts.root,
        detail=held + (f", time {time}" if time > 1 else ""),
        shape=last.shape,
        dtype=last.dtype,
        value=last.value,
        gradient=last.gradient,
        gradient_state=last.gradient_state,
        calls=n_calls,
        not_finite=sum(node.not_finite for node in members),
    )


def _merged(edges: Iterable[GraphEdge], group_of: Mapping[str, str]) -> tuple[GraphEdge, ...]:
    merged: dict[tuple[str, str], GraphEdge] = {}
    for edge in edges:
        ends = group_of.get(edge.source, edge.source), group_of.get(edge.target, edge.target)
        if ends[0] == ends[1]:
            continue
        if ends in merged:
            merged[ends] = replace(merged[ends], argument="", count=merged[ends].count + edge.count)
        else:
            merged[ends] = replace(edge, source=ends[0], target=ends[1])
    return tuple(merged.values())


_NAMED = 8


def _those_like(path: str, known: list[str]) -> str:
    if not known:
        return "give graph() the model, and none but calls of ops"
    if near := difflib.get_close_matches(path, known):
        return f"the nearest are {', '.join(near)}" if len(near) > 1 else f"the nearest is {near[0]}"
    more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
    return f"there are {', '.join(known[:_NAMED])}{more}"


def inside(parts: P, path: str) -> P:
    """What the module of that path did, with a box for each place outside that it comes from and goes to.

    KeyError for a path at which no module made a call, with those most like it.
    """
    own = {n.id for n in parts.nodes if n.kind in CALLS and is_within(n.module, path)}
    if path not in parts.modules or not own:
        known = list(dict.fromkeys(way for node in parts.nodes for way in parts.chain(node.module)))
        raise KeyError(f"no module {path!r} made a call in this graph: {_those_like(path, known)}")
    sources = {e.source for e in parts.edges if e.target in own} - own
    targets = {e.target for e in parts.edges if e.source in own} - own
    nodes = []
    for node in parts.nodes:
        is_call = node.kind in (*CALLS, "module")
        if node.id in own or (node.id in sources and not is_call):
            nodes.append(node)
        elif node.id in sources or node.id in targets:
            nodes.append(replace(node, kind="outside"))
    edges = tuple(e for e in parts.edges if e.target in own or e.source in own)
    results = tuple(i for i in parts.results if i in own)
    return replace(parts, nodes=tuple(nodes), edges=edges, results=results, view=f"inside {path}", root=path)
