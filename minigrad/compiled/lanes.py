"""Recorded steps arranged for threads.

Kernels cut large work into pieces (minigrad.kernels.pieces), and each step notes to which piece it belongs: its lane.
Lanes run side by side as long as no step of one needs what another has made. So a program is a list of sections: steps
for the caller's thread, then lanes, then the threads meet. With kernels that cut their work at the same places there
is one meeting, at the end of the backward pass.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from minigrad.compiled.steps import Memory, Place, Step, generators_in, map_nested

# Bytes. A step for which threads must meet, a sum over pieces mostly, is not left until the others have met as well if
# it writes as much as this: until then, the pieces would take up more memory than another meeting is worth.
LARGE = 2**20

# How many combinations np.shares_memory may try.
_EFFORT: Any = 1000

# An element takes about as long as so many multiplications of a matrix product.
ELEMENT = 16


class Section:
    """Steps for the caller, and then, side by side, those of the lanes."""

    def __init__(self) -> None:
        self.first: list[Step] = []
        self.lanes: dict[int, list[Step]] = {}

    def add(self, step: Step) -> None:
        steps = self.first if step.lane is None else self.lanes.setdefault(step.lane, [])
        steps.append(step)

    def work(self) -> int:
        """How much the lanes have to do, in multiplications."""
        return sum(_work(step) for lane in self.lanes.values() for step in lane)


def _work(step: Step) -> int:
    if step.function in (np.matmul, np.dot, np.ndarray.dot):
        a, b = (x.shape for x in step.args)
        return int(math.prod(a) * (b[-1] if len(b) > 1 else 1))
    return ELEMENT * max((math.prod(place.shape) for place in places_in(step.args)), default=0)


class Access(NamedTuple):
    """A use of a part of a Memory: by which step, whether it writes, and from which byte to which."""

    section: int
    lane: int | None
    writes: bool
    start: int
    stop: int
    place: Place | None  # None: all bytes in between


class History:
    """How a Memory has been used: what later uses may have to wait for, and which stretch each lane has used."""

    def __init__(self) -> None:
        self.accesses: dict[Access, None] = {}  # an ordered set: what is alike counts once
        self.extents: dict[int | None, tuple[int, int]] = {}

    def add(self, access: Access) -> None:
        start, stop = self.extents.get(access.lane, (access.start, access.stop))
        self.extents[access.lane] = min(start, access.start), max(stop, access.stop)
        if access.writes and access.place is not None and _is_dense(access.place):
            # Whoever meets earlier uses of these bytes meets this one, which has waited for them.
            inside = [a for a in self.accesses if access.start <= a.start and a.stop <= access.stop]
            for a in inside:
                del self.accesses[a]
        self.accesses[access] = None


def arranged(steps: Sequence[Step], kept: Sequence[Memory]) -> list[Section]:
    """Each step in the earliest section in which all that it needs is there. kept: memories of the results."""
    sections = [Section()]
    histories: defaultdict[Memory, History] = defaultdict(History)
    first = drawn = 0
    for step in steps:
        used = list(_used(step))
        at = max((_earliest(step.lane, use, histories[use.place.memory].accesses) for use in used), default=0)
        at = max(at, first)
        if _draws(step):
            at = drawn = max(at, drawn)  # in their order, whatever else they need
        if at > first and any(use.writes and use.extent[1] - use.extent[0] >= LARGE for use in used):
            first = at
        while len(sections) <= at:
            sections.append(Section())
        sections[at].add(step)
        for use in used:
            histories[use.place.memory].add(Access(at, step.lane, use.writes, *use.extent, use.place))
    for memory in kept:
        histories[memory].add(Access(len(sections), None, False, 0, memory.size, None))
    _split(sections, histories)
    return sections


class _Use(NamedTuple):
    place: Place
    writes: bool
    extent: tuple[int, int]


def _used(step: Step) -> Iterator[_Use]:
    written = step.written
    for x in (*step.args, *step.kwargs.values()):
        for place in places_in(x):
            yield _Use(place, x is written, _extent(place))


def _draws(step: Step) -> bool:
    function, *others = step.function, *step.args, *step.kwargs.values()
    return isinstance(getattr(function, "__self__", None), np.random.Generator) or any(generators_in(others))


def places_in(x: Any) -> Iterator[Place]:
    if isinstance(x, Place):
        yield x
    elif isinstance(x, (list, tuple)):
        for item in x:
            yield from places_in(item)
    elif isinstance(x, dict):
        yield from places_in(list(x.values()))


def _extent(place: Place) -> tuple[int, int]:
    """From which byte to which the elements lie."""
    if 0 in place.shape:
        return place.offset, place.offset
    ends = [(n - 1) * stride for n, stride in zip(place.shape, place.strides)]
    start = place.offset + sum(end for end in ends if end < 0)
    return start, place.offset + sum(end for end in ends if end > 0) + place.dtype.itemsize


def _is_dense(place: Place) -> bool:
    """Whether the place has every byte of its extent."""
    start, stop = _extent(place)
    return math.prod(place.shape) * place.dtype.itemsize == stop - start


def _earliest(lane: int | None, use: _Use, before: Iterable[Access]) -> int:
    """The first section in which this use comes after all earlier ones that it must not meet."""
    start, stop = use.extent
    return max(
        (
            a.section + (a.lane is not None and a.lane != lane)
            for a in before
            if (a.writes or use.writes) and a.start < stop and start < a.stop and _meet(lane, use.place, a)
        ),
        default=0,
    )


def _meet(lane: int | None, place: Place, other: Access) -> bool:
    """Whether two uses of a stretch have an element in common: columns of one array, as of heads, have not.

    In one lane, steps keep their order anyway, and what is hard to find out counts as common.
    """
    if lane is None or other.lane is None or lane == other.lane or other.place is None:
        return True
    stretch = np.empty(place.memory.size, np.uint8)
    a, b = (np.ndarray(p.shape, p.dtype, stretch, p.offset, p.strides) for p in (place, other.place))
    try:
        return np.shares_memory(a, b, _EFFORT)
    except np.exceptions.TooHardError:
        return True


def _split(sections: list[Section], histories: dict[Memory, History]) -> None:
    """Give each lane a Memory of its own in the place of one of which it alone uses a part."""
    own: dict[tuple[Memory, int], tuple[Memory, int]] = {}
    for memory, history in histories.items():
        if None in history.extents or len(history.extents) < 2:
            continue
        extents = sorted((start, stop, lane) for lane, (start, stop) in history.extents.items())
        if all(stop <= start for (_, stop, _), (start, _, _) in itertools.pairwise(extents)):
            for start, stop, lane in extents:
                own[memory, lane] = Memory(stop - start), start  # type: ignore[index]

    def moved(lane: int) -> Any:
        def move(x: Any) -> Any:
            if not isinstance(x, Place):
                return map_nested(move, x)
            memory, start = own.get((x.memory, lane), (x.memory, 0))
            return x._replace(memory=memory, offset=x.offset - start)

        return move

    for section in sections:
        for lane, steps in section.lanes.items():
            move = moved(lane)
            section.lanes[lane] = [step._replace(args=move(step.args), kwargs=move(step.kwargs)) for step in steps]
