"""Which module a recorded call belongs to, and what the leaves of a graph are called."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from minigrad.engine import Node, OutputNode
from minigrad.nn.module import Module
from minigrad.study.text import place
from minigrad.study.walk import Record, call_of, edges_of, is_source, operands


class Names:
    """Paths of modules and names of parameters in a record, as seen from the outermost modules that were called.

    With several of these, each path begins with its module's class. model: as seen from this one, if it is given.
    """

    def __init__(self, record: Record, model: Module | None = None):
        called = {id(m): m for node in record.calls for m in _modules(node)}
        self._inside = record.inside
        self._model = model
        known = [] if model is None else list(model.modules())
        others = [m for m in called.values() if not any(m is inner for inner in known)]
        self.roots = [*known[:1], *_outermost(others)]
        self.modules: dict[str, Module] = {}
        self._path_of: dict[int, str] = {}
        self._name_of: dict[Node, str] = {}
        self.parameters: dict[str, Node] = {}  # all of the modules' own, whether the record leads to them or not
        for prefix, root in zip(self._prefixes(), self.roots):
            for path, module in root.named_modules(prefix):
                if self._path_of.setdefault(id(module), path) == path:
                    self.modules.setdefault(path, module)
            for name, parameter in root.named_parameters():
                if parameter._node is not None:
                    name = f"{prefix}.{name}" if prefix else name
                    self.parameters.setdefault(self._name_of.setdefault(parameter._node, name), parameter._node)
        self._name_other_leaves(record)

    def _prefixes(self) -> Iterator[str]:
        times: dict[str, int] = {}
        for root in self.roots:
            if len(self.roots) == 1 or root is self._model:
                yield ""
                continue
            kind = type(root).__name__
            times[kind] = times.get(kind, 0) + 1
            yield kind if times[kind] == 1 else f"{kind}{times[kind]}"

    def _name_other_leaves(self, record: Record) -> None:
        for node in record.calls:
            for edge, (name, _) in zip(edges_of(node), operands(node)):
                if is_source(edge) and edge not in self._name_of:
                    self._name_of[edge] = f"{name} of {node.op} at {place(call_of(node).file, call_of(node).line)}"

    def leaf(self, node: Node) -> str:
        """A parameter's name; for other leaves where they were first used."""
        return self._name_of.get(node, "a tensor that no op used")

    def module(self, node: Node) -> str | None:
        """The path of the innermost module that a call, an output or a parameter belongs to; None: to no module."""
        node = self._maker(node)
        if node.notes is not None and node.notes.call is not None:
            modules = _modules(node)
            return self._path_of.get(id(modules[-1])) if modules else None
        name = self._name_of.get(node)
        if name is None or name not in self.parameters:
            return None
        return next((path for path in _upwards(name) if path in self.modules), None)

    def _maker(self, node: Node) -> Node:
        """The call that made what passes through this node; for what a checkpointed call returned, one inside it."""
        while node in self._inside or (node.op is None and node.edges):
            if node in self._inside:
                node = self._inside[node][0]
            elif type(node) is OutputNode and node.edges[0] in self._inside:
                node = self._inside[node.edges[0]][node.index]
            else:
                node = node.edges[0]
        return node

    def around(self, node: Node) -> list[str]:
        """The paths of all modules around a node, its own first."""
        path = self.module(node)
        return [] if path is None else [p for p in (path, *_upwards(path)) if p in self.modules]

    def heads(self, path: str) -> int | None:
        """How many heads a module of attention has."""
        return getattr(self.modules[path], "heads", None)

    def title(self, path: str | None) -> str:
        """A path as it is shown: the outermost module, whose path is empty, by its class; no module as nothing."""
        return "" if path is None else path or f"({type(self.modules[path]).__name__})"


def _modules(node: Node) -> list[Module]:
    return [m for m in call_of(node).modules if isinstance(m, Module)]  # not another framework's


def _upwards(path: str) -> Iterator[str]:
    """What contains a path: for "a.b.c", "a.b", "a" and ""."""
    while path:
        path = path.rpartition(".")[0]
        yield path


def _outermost(modules: Sequence[Module]) -> Iterator[Module]:
    """Those that are in no other of them."""
    for module in modules:
        others = (m for m in modules if m is not module)
        if not any(inner is module for m in others for inner in m.modules()):
            yield module
