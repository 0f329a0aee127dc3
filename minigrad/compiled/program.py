"""A recorded run, ready to run again: memory planned, and one line of Python for every call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from minigrad.compiled.lanes import Section, arranged, places_in
from minigrad.compiled.planning import plan_memory
from minigrad.compiled.recorder import Recorder
from minigrad.compiled.steps import NOT_FITTING, Place, Step, map_nested
from minigrad.kernels.memory import ALIGNMENT
from minigrad.kernels.pieces import WIDE
from minigrad.threads import spread


class Workspace:
    """The memory that all programs of one compiled function share, since only one runs at a time."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)

    def at_least(self, size: int) -> np.ndarray:
        """Older programs keep the smaller memory that they have; it grows by halves, so that is little."""
        if len(self._bytes) < size:
            self._bytes = np.empty(max(size, len(self._bytes) * 3 // 2), np.uint8)
        return self._bytes


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
        outputs = recorder.place((loss, gradients))
        kept = [place.memory for place in places_in(outputs)]
        sections = arranged(recorder.steps, kept)
        size = plan_memory(sections, kept)
        memory = workspace.at_least(size + ALIGNMENT)
        skip = -memory.ctypes.data % ALIGNMENT
        arrays = functools.partial(_arrays_at_places, memory[skip:], {})
        self._loss, self._gradients = arrays(outputs)
        self._generators = [generator for generator, _ in recorder.generators.values()]
        self.source, self._run_all = _generated(sections, arrays)

    def run(self, arguments: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
        """The loss and the gradients, in memory that the next run overwrites. If it does not fit, no draw is done."""
        draws = self.draws()
        for place, argument in zip(self._inputs, arguments):
            place[...] = argument
        try:
            self._run_all()
        except NOT_FITTING:
            self.put_back(draws)
            raise
        return self._loss, self._gradients

    def draws(self) -> list[Any]:
        """Where the generators stand that it draws from."""
        return [generator.bit_generator.state for generator in self._generators]

    def put_back(self, draws: list[Any]) -> None:
        for generator, before in zip(self._generators, draws):
            generator.bit_generator.state = before


def _arrays_at_places(memory: np.ndarray, made: dict[Any, np.ndarray], x: Any) -> Any:
    if isinstance(x, Place):
        key = (id(x.memory), *x[1:])
        if key not in made:
            made[key] = np.ndarray(x.shape, x.dtype, memory, x.memory.offset + x.offset, x.strides)
        return made[key]
    return map_nested(functools.partial(_arrays_at_places, memory, made), x)


def _generated(sections: Sequence[Section], arrays: Callable[[Any], Any]) -> tuple[str, Callable[[], None]]:
    """Python source of a function that runs all steps, a line a call, and this function.

    Straight code is the fastest way to make many calls, and it can be read. arrays: what puts arrays for places.
    """
    names: dict[str, Any] = {"side_by_side": _side_by_side, "ignoring": functools.partial(np.errstate, all="ignore")}
    known: dict[int, str] = {}
    lanes, run = [], ["def run():", "    pass"]
    for i, section in enumerate(sections):
        run += _lines(section.first, arrays, names, known)
        for j, lane in section.lanes.items():
            lanes += [f"def lane_{i}_{j}():", *_lines(lane, arrays, names, known)]
        if section.lanes:
            wide = section.work() >= WIDE
            run.append(f"    side_by_side({wide}, {', '.join(f'lane_{i}_{j}' for j in section.lanes)})")
    source = "\n".join(lanes + run) + "\n"
    exec(source, names)
    return source, names["run"]


def _lines(
    steps: Sequence[Step], arrays: Callable[[Any], Any], names: dict[str, Any], known: dict[int, str]
) -> list[str]:
    """One line for each step; those of the backward pass, in which nothing warns, below a line of their own."""
    lines, backward = [], False
    for step in steps:
        if step.backward != backward:
            backward = step.backward
            lines += ["    with ignoring():"] if backward else []
        written = [_spelled(arrays(x), names, known) for x in step.args]
        written += [f"{key}={_spelled(arrays(x), names, known)}" for key, x in step.kwargs.items()]
        call = f"{_spelled(step.function, names, known)}({', '.join(written)})"
        lines.append(f"    {'    ' * backward}{call}")
    return lines


def _side_by_side(wide: bool, *lanes: Callable[[], None]) -> None:
    """Run each lane, in threads if there is much to do."""

    def run(some: Iterator[Callable[[], None]]) -> None:
        for lane in some:
            lane()

    spread(run, lanes, threads=len(lanes) if wide else 1)


def _spelled(x: Any, names: dict[str, Any], known: dict[int, str]) -> str:
    """x as a literal, or as a name that stands for it."""
    if x is None or type(x) in (bool, int, str) or (type(x) is tuple and all(type(i) is int for i in x)):
        return repr(x)
    if id(x) not in known:
        kind = x.__name__.strip("<>_") if callable(x) and hasattr(x, "__name__") else "a"
        known[id(x)] = name = f"{kind}_{len(known)}" if kind.isidentifier() else f"f_{len(known)}"
        names[name] = x
    return known[id(x)]
