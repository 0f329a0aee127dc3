"""Times that can be compared: processes that take turns, and ratios within a round.

Each implementation lives in a process of its own, as thread pools that wait by spinning would disturb the others. They
take turns in a new random order round after round, so that a drift of the machine's speed hits all alike. A ratio is
the median over the rounds of (own time / the first one's time in the same round). All must compute what the first does.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import tasks
from benchmarks.tasks import Task

ROOT = Path(__file__).resolve().parents[1]
GRADIENTS_AGREE, LOSSES_AGREE = 1e-2, 1e-3  # relative; a relu that flips for float32 moves a gradient by thousandths
NOISY = 1.25  # between the upper and the lower quartile of a ratio
LIMIT = "matrix products"  # not an implementation: the time that a step's products alone would take


@dataclass
class Row:
    """How one implementation did: `ratio` is None where `note` says why there is none."""

    name: str
    note: str = ""
    ratio: float | None = None
    quartiles: tuple[float, float] | None = None
    seconds: float | None = None  # the median
    peak_mb: float | None = None
    times: list[float] = field(default_factory=list)


@dataclass
class Table:
    """One task at one size."""

    kind: str
    size: str
    rows: list[Row]

    @property
    def title(self) -> str:
        return str(Task(self.kind, self.size))

    def as_dict(self) -> dict[str, Any]:
        return {"title": self.title, **asdict(self)}


class GoneError(Exception):
    """A worker has ended before its time, or cannot begin: why."""


class Worker:
    """A process that works when asked to. Raises GoneError where it cannot."""

    def __init__(self, name: str, task: Task, seconds: float):
        command = [sys.executable, "-m", "benchmarks.worker", name, *task, str(seconds)]
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (a pipe that nobody reads would fill)
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True
        )
        try:
            self.shown = self._answer()
        except BaseException:
            self.stop()
            raise

    def turn(self) -> tuple[float, float]:
        """Seconds of a call, and the memory peak since the work began, in MB."""
        assert self.process.stdin is not None
        with suppress(OSError):  # it has ended: reading its answer says why
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        said = self._answer()
        return said["seconds"], said["peak_mb"]

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait()
            self.errors.seek(0)
            lines = self.errors.read().strip().splitlines()
            raise GoneError(lines[-1] if status > 0 and lines else f"its process ended with status {status}")
        said: dict[str, Any] = json.loads(line)
        if "left_out" in said:
            raise GoneError(said["left_out"])
        return said

    def stop(self) -> None:
        """At once, even if it is at work."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            assert stream is not None
            with suppress(OSError):  # what it has not read cannot be written any more
                stream.close()


def compare(task: Task, names: Sequence[str], *, rounds: int, seconds: float) -> Table:
    """A task in several implementations; the ratios are to the first that is there. A turn lasts about `seconds`."""
    rows = {name: Row(name) for name in names}
    workers: dict[str, Worker] = {}
    try:
        for name, row in rows.items():
            try:
                workers[name] = Worker(name, task, seconds)
            except GoneError as why:
                row.note = str(why)
        first = next(iter(workers.values()), None)
        for name, worker in workers.items():
            rows[name].note = disagreement(worker.shown, first.shown) if first else ""
        if task.kind == "train" and first:
            workers[LIMIT] = Worker("numpy", Task("product", str(tasks.PRODUCT)), seconds)
            rows[LIMIT] = Row(LIMIT)
        take_turns(rows, {name: worker.turn for name, worker in workers.items()}, rounds)
    finally:
        for worker in workers.values():
            worker.stop()
    if LIMIT in rows:
        share = tasks.train_products(task.size) / tasks.PRODUCT**3
        rows[LIMIT].times = [t * share for t in rows[LIMIT].times]
        rows[LIMIT].peak_mb = None
    return Table(*task, judged(list(rows.values())))


def compare_imports(packages: Sequence[str], *, rounds: int) -> Table:
    """`import package`, each time in a new process that has imported nothing else."""
    rows = {package: Row(package) for package in packages}
    turns = {package: partial(import_time, package) for package in packages}
    take_turns(rows, turns, 1)  # unmeasured: files come from the disk, and bytecode is written
    for row in rows.values():
        row.times.clear()
    take_turns(rows, turns, rounds)
    return Table("import", "", judged(list(rows.values())))


def import_time(package: str) -> tuple[float, None]:
    """Seconds (no memory is measured); raises GoneError where it cannot be imported."""
    code = f"import time; start = time.perf_counter(); import {package}; print(time.perf_counter() - start)"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        missing = f"No module named '{package}'" in done.stderr
        raise GoneError(f"{package} is not installed" if missing else done.stderr.strip().splitlines()[-1])
    return float(done.stdout.split()[-1]), None


def take_turns(
    rows: Mapping[str, Row], turns: Mapping[str, Callable[[], tuple[float, float | None]]], rounds: int
) -> None:
    """Each once a round, in a new order every round; those whose row has a note of what is wrong are not asked."""
    order = random.Random(0)
    for _ in range(rounds):
        for name in order.sample(list(turns), len(turns)):
            row = rows[name]
            if row.note:
                continue
            try:
                seconds, row.peak_mb = turns[name]()
                row.times.append(seconds)
            except GoneError as why:
                row.note = str(why)


def disagreement(shown: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    """What is wrong with gradients and losses that differ from the first one's; empty if nothing is."""
    if len(shown["prints"]) != len(first["prints"]):
        return f"WRONG: {len(shown['prints'])} gradients, not {len(first['prints'])}"
    for a, b in zip(shown["prints"], first["prints"]):
        if not distance(a, b) <= GRADIENTS_AGREE:
            return f"WRONG: a gradient is off by {distance(a, b):.1g} of its norm"
    for loss, right in zip(shown["losses"], first["losses"]):
        if not abs(loss - right) <= LOSSES_AGREE * abs(right):  # not: a NaN is wrong, too
            return f"WRONG: a loss is {loss:.5g}, not {right:.5g}"
    return ""


def distance(a: Sequence[float], b: Sequence[float]) -> float:
    """About how far two gradients are apart, as a share of the second one's norm, judged by their fingerprints.

    >>> distance([3.0, 1.0, 2.0], [3.0, 1.0, 2.0]), round(distance([3.0, 1.3, 2.3], [3.0, 1.0, 2.0]), 3)
    (0.0, 0.1)
    """
    apart = max(math.sqrt(statistics.fmean((x - y) ** 2 for x, y in zip(a[1:], b[1:]))), abs(a[0] - b[0]))
    return apart / max(b[0], 1e-12)


def judged(rows: list[Row]) -> list[Row]:
    """Rows with the ratios to the first one that has times; those with a note keep it and get none."""
    base = next((row.times for row in rows if row.times and not row.note), [])
    for row in rows:
        if row.note:
            continue
        ratios = [own / of_first for own, of_first in zip(row.times, base)]
        row.ratio, row.seconds = statistics.median(ratios), statistics.median(row.times)
        low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [row.ratio] * 3
        row.quartiles = (low, high)
        if high > NOISY * low:
            row.note = f"noisy: {low:.2f} to {high:.2f}"
    return rows
