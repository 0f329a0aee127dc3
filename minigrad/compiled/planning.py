"""Where in the workspace each result lies: memory is used again as soon as its content is not needed any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from minigrad.compiled.lanes import Section, places_in
from minigrad.compiled.steps import Memory, Place, Step
from minigrad.kernels.memory import ALIGNMENT

_END = 2**62  # a moment after all steps

Lifetimes = dict[Memory, tuple[int, int]]  # the moments of the first and of the last use


def plan_memory(sections: Sequence[Section], kept: Sequence[Memory]) -> int:
    """Give every Memory its offset, so that no two that are alive at once overlap; returns the size.

    kept: those that hold results. Lanes run side by side, which is one moment for all other steps; what lives within
    one lane alone is planned there, in a stretch of its own.
    """
    moments: list[list[Step]] = []
    lanes: list[tuple[int, list[Step]]] = []
    for section in sections:
        moments += [[step] for step in section.first]
        if section.lanes:
            lanes += [(len(moments), lane) for lane in section.lanes.values()]
            moments.append([step for lane in section.lanes.values() for step in lane])
    alive = _lifetimes(moments)
    for memory in kept:
        alive[memory] = alive[memory][0], _END
    users = Counter(memory for _, lane in lanes for memory in _lifetimes([lane]))
    inside = []
    for moment, lane in lanes:
        own = {m: life for m, life in _lifetimes([[s] for s in lane]).items() if alive[m][0] == alive[m][1]}
        own = {m: life for m, life in own.items() if users[m] == 1}
        for memory in own:
            del alive[memory]
        arena = Memory(_pack(lane, own))
        alive[arena] = moment, moment
        inside.append((arena, own))
    size = _pack([steps[0] if len(steps) == 1 else None for steps in moments], alive)
    for arena, own in inside:
        for memory in own:
            memory.offset += arena.offset
    return size


def _lifetimes(moments: Sequence[Sequence[Step]]) -> Lifetimes:
    alive: Lifetimes = {}
    for now, steps in enumerate(moments):
        for step in steps:
            for place in places_in((step.args, step.kwargs)):
                alive[place.memory] = alive.get(place.memory, (now,))[0], now
    return alive


def _pack(steps: Sequence[Step | None], alive: Lifetimes) -> int:
    """Offsets for these; returns where the last one ends. steps: the one of each moment, None where there are lanes."""
    for now, step in enumerate(steps):
        if step is not None and step.elementwise:
            _share(now, step, alive)
    placed: list[Memory] = []
    end = 0
    alone = sorted((m for m in alive if m.shares is None), key=lambda m: alive[m][0])
    for memory in alone:
        placed = [m for m in placed if alive[m][1] >= alive[memory][0]]
        memory.offset = _first_gap(placed, memory.size)
        placed.append(memory)
        placed.sort(key=lambda m: m.offset)
        end = max(end, memory.offset + memory.size)
    for memory in alive:
        memory.offset = _root(memory).offset
    return -(-end // ALIGNMENT) * ALIGNMENT


def _root(memory: Memory) -> Memory:
    while memory.shares is not None:
        memory = memory.shares
    return memory


def _share(now: int, step: Step, alive: Lifetimes) -> None:
    """Let an elementwise result take the place of an operand of the same layout that nobody needs any more."""
    out = step.kwargs["out"]
    for operand in step.args:
        if not isinstance(operand, Place) or (operand.strides, operand.dtype) != (out.strides, out.dtype):
            continue
        root = _root(operand.memory)
        if root not in alive or out.memory not in alive:
            continue
        whole = operand.shape == out.shape and operand.offset == out.offset == 0
        if whole and alive[root][1] == alive[out.memory][0] == now and root.size == out.memory.size:
            out.memory.shares = root
            alive[root] = alive[root][0], alive[out.memory][1]
            return


def _first_gap(placed: Iterable[Memory], size: int) -> int:
    """The lowest aligned offset at which `size` bytes fit between those placed, which are sorted by offset."""
    offset = 0
    for memory in placed:
        if memory.offset - offset >= size:
            break
        offset = max(offset, -(-(memory.offset + memory.size) // ALIGNMENT) * ALIGNMENT)
    return offset
