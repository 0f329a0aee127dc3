"""A recorded run, ready to run again: memory planned, and one line of Python for every call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from minigrad.compiled.steps import ChangedError, Memory, Place, Step, map_nested
from minigrad.compiled.tracing import Recorder

_ALIGNMENT = 64  # bytes: a cache line, and the widest vector register


class Workspace:
    """The memory that all programs of one compiled function share, since only one runs at a time."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)

    def at_least(self, size: int) -> np.ndarray:
        """Older programs keep the smaller memory that they have; it grows by halves, so that is little."""
        if len(self._bytes) < size:
            self._bytes = np.empty(max(size, len(self._bytes) * 3 // 2), np.uint8)
        return self._bytes


def plan_memory(steps: Sequence[Step]) -> int:
    """Give every Memory of the steps its offset, so that no two that are alive at once overlap; returns the size."""
    memories = {id(m): m for step in steps for m in _memories_in(step)}
    for i, step in enumerate(steps):
        if step.elementwise:
            _share(i, step)
    alone = sorted((m for m in memories.values() if m.shares is None), key=lambda m: m.first)
    placed: list[Memory] = []
    end = 0
    for memory in alone:
        placed = [m for m in placed if m.last >= memory.first]
        memory.offset = _first_gap(placed, memory.size)
        placed.append(memory)
        placed.sort(key=lambda m: m.offset)
        end = max(end, memory.offset + memory.size)
    for memory in memories.values():
        memory.offset = _root(memory).offset
    return end


def _memories_in(step: Step) -> Iterator[Memory]:
    stack: list[Any] = [step.args, step.kwargs]
    while stack:
        x = stack.pop()
        if isinstance(x, Place):
            yield x.memory
        elif isinstance(x, (list, tuple)):
            stack += x
        elif isinstance(x, dict):
            stack += x.values()


def _root(memory: Memory) -> Memory:
    while memory.shares is not None:
        memory = memory.shares
    return memory


def _share(i: int, step: Step) -> None:
    """Let an elementwise result take the place of an operand of the same layout that nobody needs any more."""
    out = step.kwargs["out"]
    for operand in step.args:
        if not isinstance(operand, Place) or (operand.strides, operand.dtype) != (out.strides, out.dtype):
            continue
        root = _root(operand.memory)
        whole = operand.shape == out.shape and operand.offset == out.offset == 0
        if whole and root.last == i and out.memory.first == i and root.size == out.memory.size:
            out.memory.shares = root
            root.last = out.memory.last
            return


def _first_gap(placed: Iterable[Memory], size: int) -> int:
    """The lowest aligned offset at which `size` bytes fit between those placed, which are sorted by offset."""
    offset = 0
    for memory in placed:
        if memory.offset - offset >= size:
            break
        offset = max(offset, -(-(memory.offset + memory.size) // _ALIGNMENT) * _ALIGNMENT)
    return offset


class Program:
    """What one run has recorded, ready to run again."""

    def __init__(
        self,
        recorder: Recorder,
        inputs: list[np.ndarray],
        loss: Any,
        gradients: list[Any],
        workspace: Workspace,
    ):
        self._inputs = inputs
        outputs = recorder.place((loss, gradients))  # used by no step, and needed after the last
        steps = recorder.forward_steps + recorder.backward_steps
        size = plan_memory(steps)
        memory = workspace.at_least(size + _ALIGNMENT)
        skip = -memory.ctypes.data % _ALIGNMENT
        arrays = functools.partial(_arrays_at_places, memory[skip:], {})
        self._loss, self._gradients = arrays(outputs)
        self._generators = [generator for generator, _ in recorder.generators.values()]
        ready = [step._replace(args=arrays(step.args), kwargs=arrays(step.kwargs)) for step in steps]
        n = len(recorder.forward_steps)
        self.source, (self._forward, self._backward) = _generated(ready[:n], ready[n:])

    def run(self, arguments: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
        """The loss and the gradients, in memory that the next run overwrites. ChangedError leaves no draw done."""
        states = [generator.bit_generator.state for generator in self._generators]
        for place, argument in zip(self._inputs, arguments):
            place[...] = argument
        try:
            self._forward()
            with np.errstate(all="ignore"):
                self._backward()
        except ChangedError:
            self._put_back(states)
            raise
        return self._loss, self._gradients

    def _put_back(self, states: list[Any]) -> None:
        for generator, before in zip(self._generators, states):
            generator.bit_generator.state = before

    @contextmanager
    def same_draws(self) -> Iterator[None]:
        """What is drawn within is drawn once more afterwards."""
        states = [generator.bit_generator.state for generator in self._generators]
        yield
        self._put_back(states)


def _arrays_at_places(memory: np.ndarray, made: dict[Any, np.ndarray], x: Any) -> Any:
    if isinstance(x, Place):
        key = (id(x.memory), *x[1:])
        if key not in made:
            made[key] = np.ndarray(x.shape, x.dtype, memory, x.memory.offset + x.offset, x.strides)
        return made[key]
    return map_nested(functools.partial(_arrays_at_places, memory, made), x)


def _generated(*parts: Sequence[Step]) -> tuple[str, list[Callable[[], None]]]:
    """Python source of one function for each part, a line a call, and these functions.

    Straight code is the fastest way to make many calls, and it can be read.
    """
    names: dict[str, Any] = {}
    known: dict[int, str] = {}
    lines = []
    for i, steps in enumerate(parts):
        lines += [f"def part_{i}():", "    pass"]
        for step in steps:
            written = [_spelled(x, names, known) for x in step.args]
            written += [f"{key}={_spelled(x, names, known)}" for key, x in step.kwargs.items()]
            lines.append(f"    {_spelled(step.function, names, known)}({', '.join(written)})")
    source = "\n".join(lines) + "\n"
    exec(source, names)
    return source, [names[f"part_{i}"] for i in range(len(parts))]


def _spelled(x: Any, names: dict[str, Any], known: dict[int, str]) -> str:
    """x as a literal, or as a name that stands for it."""
    if x is None or type(x) in (bool, int, str) or (type(x) is tuple and all(type(i) is int for i in x)):
        return repr(x)
    if id(x) not in known:
        kind = x.__name__.strip("<>_") if callable(x) and hasattr(x, "__name__") else "a"
        known[id(x)] = name = f"{kind}_{len(known)}" if kind.isidentifier() else f"f_{len(known)}"
        names[name] = x
    return known[id(x)]
