"""One implementation in a process of its own: it prepares a task, says what it computes, and works when it is told to.

measure.py starts it and reads its answers, a line of JSON each: first the gradients' fingerprints, the losses and
what memory the work took, then the seconds of each turn that is asked for by a line.
"""

from __future__ import annotations

import importlib
import itertools
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import tasks
from benchmarks.peers import PEERS
from benchmarks.tasks import Task

DIRECTIONS = 8
CHUNK = 65536  # of a gradient at a time, so that its fingerprint takes no memory to speak of


class LeftOutError(Exception):
    """An implementation cannot be measured: why, in a few words."""


def builders(name: str) -> Any:
    """What has train_step and the like: minigrad, a variant of it, a peer, or `module:object` from elsewhere."""
    if name in PEERS:
        return PEERS[name]()
    module, _, attribute = name.partition(":")
    if attribute:
        return getattr(importlib.import_module(module), attribute)
    workloads = importlib.import_module("benchmarks.workloads")  # not at the top: peers shall not carry minigrad
    return workloads if name == "minigrad" else workloads.VARIANTS[name]


def fingerprint(gradient: Any) -> list[float]:
    """The norm, and products with fixed random directions.

    The mean square of two gradients' differences in these is about the square of the distance between them, as for
    any fixed vector and random directions of unit variance.
    """
    flat = np.asarray(gradient).reshape(-1)
    square, products = 0.0, np.zeros(DIRECTIONS)
    rng = np.random.default_rng(0)
    for start in range(0, flat.size, CHUNK):
        chunk = flat[start : start + CHUNK].astype(np.float64)
        square += float(chunk @ chunk)
        products += [float(rng.standard_normal(chunk.size) @ chunk) for _ in range(DIRECTIONS)]
    return [square**0.5, *products.tolist()]


def prepare(task: Task, built: Any) -> tuple[Callable[[], Any], Callable[[], tuple[list[list[float]], list[float]]]]:
    """What is to be timed; and what shows that it is right: fingerprints and losses."""
    if task.kind == "product":
        a, b = tasks.product_data()
        return lambda: a @ b, lambda: ([], [])
    if task.kind == "train":
        return _prepare_train(task, _ability(built, "train_step"))
    if task.kind == "chain":
        work = _ability(built, "op_chain")(tasks.chain_data(), int(task.size))
    else:
        work = _ability(built, "attention")(*tasks.attention_data(int(task.size)))
    return work, lambda: (_fingerprints(work()), [])


def _prepare_train(task: Task, train_step: Callable[..., Any]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Gradients of two batches, so that what stays as it was for the first is noticed; losses tell of the updates."""
    params, batches = tasks.train_data(task.size)
    step, gradients = train_step(params)
    turn = itertools.cycle(batches)

    def shown() -> tuple[list[list[float]], list[float]]:
        prints = _fingerprints(gradients(*batches[0])) + _fingerprints(gradients(*batches[1]))
        return prints, [float(step(*batch)) for batch in batches]

    return lambda: step(*next(turn)), shown


def _fingerprints(gradients: Iterable[Any]) -> list[list[float]]:
    return [fingerprint(g) for g in gradients]


def _ability(built: Any, name: str) -> Callable[..., Any]:
    if not hasattr(built, name):
        raise LeftOutError(f"has no {name}")
    found: Callable[..., Any] = getattr(built, name)
    return found


def forget_peak() -> None:
    """Begin anew with what is in use now, where the system can (Linux): importing and preparing may have taken more."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> float:
    """Of this process so far, in MB; NaN where the system does not tell."""
    with suppress(OSError):  # Linux: getrusage would count the process that started this one, too
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 2**10
    try:
        import resource  # not on Windows
    except ImportError:
        return float("nan")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def calls_in(seconds: float, work: Callable[[], Any]) -> int:
    """How many calls last about so long; at least one."""
    start, calls = time.perf_counter(), 0
    while not calls or time.perf_counter() - start < seconds:
        work()
        calls += 1
    return calls


def main() -> None:
    """python -m benchmarks.worker NAME KIND SIZE SECONDS"""
    name, kind, size, seconds = sys.argv[1:]
    warnings.simplefilter("ignore")
    answers, sys.stdout = sys.stdout, sys.stderr  # what a package prints is no answer

    def answer(**said: Any) -> None:
        print(json.dumps(said), file=answers, flush=True)

    try:
        work, shown = prepare(Task(kind, size), builders(name))
    except ModuleNotFoundError as error:
        answer(left_out=f"{error.name} is not installed")
        return
    except LeftOutError as error:
        answer(left_out=str(error))
        return
    forget_peak()
    before = peak_memory()
    prints, losses = shown()
    calls = calls_in(float(seconds), work)
    answer(prints=prints, losses=losses, peak_mb=peak_memory() - before)
    for _ in sys.stdin:
        start = time.perf_counter()
        for _ in range(calls):
            work()
        answer(seconds=(time.perf_counter() - start) / calls, peak_mb=peak_memory() - before)


if __name__ == "__main__":
    main()
