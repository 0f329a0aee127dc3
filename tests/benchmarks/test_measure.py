"""Comparisons in real processes: what is right, wrong, missing or fails half way is told; nothing is said of times."""

import math
import sys

import numpy as np
import pytest

from benchmarks import measure
from benchmarks.measure import GoneError, Row, Table, compare, compare_imports, disagreement, distance, judged
from benchmarks.tasks import Task
from benchmarks.worker import fingerprint

TINY = Task("train", "tiny")
MODULE = """
import itertools
import os

import numpy as np

from benchmarks.peers import NumPy


class Wrong(NumPy):
    '''A bias whose gradient has the wrong sign.'''

    def train_step(self, params):
        step, gradients = super().train_step(params)

        def wrong(*batch):
            found = gradients(*batch)
            found[4] = -found[4]
            return found

        return step, wrong


class Stale(NumPy):
    '''Gradients that stay those of the first batch.'''

    def train_step(self, params):
        step, gradients = super().train_step(params)
        first = []

        def stale(*batch):
            first[:] = first or gradients(*batch)
            return first

        return step, stale


class Idle(NumPy):
    '''Right gradients, no updates.'''

    def train_step(self, params):
        step, gradients = super().train_step(params)
        return lambda *batch: super(Idle, self).train_step(params)[0](*batch), gradients


class Talks(NumPy):
    '''Prints, and warns at length.'''

    def op_chain(self, a, n):
        print("hello")
        print("warning" * 30_000, file=__import__("sys").stderr)
        return super().op_chain(a, n)


class Dies(NumPy):
    '''Works twice, to be checked and counted, and no more.'''

    def op_chain(self, a, n):
        run, calls = super().op_chain(a, n), itertools.count()
        return lambda: run() if next(calls) < 2 else os._exit(7)


class Fails(NumPy):
    def op_chain(self, a, n):
        raise OSError("no such device")


class Holds(NumPy):
    '''Takes 64 MB, and took as much before that.'''

    def op_chain(self, a, n):
        run = super().op_chain(a, n)
        np.ones(8 << 20)
        return lambda: [g + 0 * np.ones(8 << 20)[0] for g in run()]


wrong, stale, idle, talks, dies, fails, holds = Wrong(), Stale(), Idle(), Talks(), Dies(), Fails(), Holds()
nothing = object()
"""


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """Makes names of implementations that are not as they should be, for workers in other processes."""
    (tmp_path / "planted_builders.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    return lambda *names: [f"planted_builders:{name}" for name in names]


def told(table):
    return {row.name.removeprefix("planted_builders:"): row for row in table.rows}


def test_training_right_and_wrong(planted):
    table = compare(TINY, ["numpy", "minigrad", *planted("wrong", "stale", "idle")], rounds=2, seconds=0)
    rows = told(table)
    assert rows["numpy"].ratio == 1
    assert rows["minigrad"].ratio > 0
    assert len(rows["minigrad"].times) == 2
    assert math.isfinite(rows["minigrad"].peak_mb)
    assert rows["matrix products"].ratio > 0
    assert rows["wrong"].note == "WRONG: a gradient is off by 2 of its norm"
    assert rows["stale"].note.startswith("WRONG: a gradient is off by")
    assert rows["idle"].note.startswith("WRONG: a loss is ")
    assert all(rows[name].ratio is None and not rows[name].times for name in ("wrong", "stale", "idle"))


def test_what_is_missing_fails_or_dies_is_left_out(planted):
    names = ["nowhere:builders", *planted("talks", "fails", "dies", "holds", "nothing")]
    rows = told(compare(Task("chain", "3"), names, rounds=2, seconds=0))
    assert rows["nowhere:builders"].note == "nowhere is not installed"
    assert rows["fails"].note == "OSError: no such device"
    assert rows["dies"].note == "its process ended with status 7"
    assert rows["nothing"].note == "has no op_chain"
    assert {name for name, row in rows.items() if row.ratio is not None} == {"talks", "holds"}
    assert rows["talks"].ratio == 1  # the first that is there
    if sys.platform == "linux":  # elsewhere a former peak may hide it
        assert 60 < rows["holds"].peak_mb < 80
        assert rows["talks"].peak_mb < 20


def test_no_process_is_left(planted, monkeypatch):
    started = []
    original = measure.Worker.__init__

    def noted(self, *args):
        started.append(self)
        original(self, *args)

    monkeypatch.setattr(measure.Worker, "__init__", noted)
    monkeypatch.setattr(measure, "take_turns", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        compare(Task("chain", "3"), ["numpy", *planted("fails")], rounds=1, seconds=0)
    assert len(started) == 2
    assert all(worker.process.poll() is not None for worker in started)


def test_imports():
    table = compare_imports(["json", "nowhere", "keyword"], rounds=2)
    rows = told(table)
    assert table.title == "import"
    assert rows["json"].ratio == 1
    assert len(rows["keyword"].times) == 2
    assert (rows["nowhere"].ratio, rows["nowhere"].note) == (None, "nowhere is not installed")


@pytest.mark.parametrize("size", [1, 3, 65536, 200_001])
@pytest.mark.parametrize("apart", [0.0, 1e-3, 0.3])
def test_distance_of_fingerprints_is_that_of_the_arrays(size, apart):
    rng = np.random.default_rng(size)
    a = rng.standard_normal(size)
    d = rng.standard_normal(size)
    b = a + apart * np.linalg.norm(a) * d / np.linalg.norm(d)
    found = distance(fingerprint(b), fingerprint(a))
    # the mean of 8 squared normal numbers: below 0.04 or above 4 once in some ten thousand times
    assert 0.2 * apart <= found <= 2 * apart + 1e-12


def test_fingerprints_tell_what_the_norm_does_not():
    a = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32)
    for other in (-a, a[::-1], a.T, np.roll(a, 1)):
        assert distance(fingerprint(other), fingerprint(a)) > 0.1
    assert distance(fingerprint(a), fingerprint(0 * a)) > 1


def test_disagreement():
    first = {"prints": [[1.0] + 8 * [0.5], [2.0] + 8 * [0.1]], "losses": [1.0, 2.0]}
    assert disagreement(first, first) == ""
    assert disagreement({**first, "prints": first["prints"][:1]}, first) == "WRONG: 1 gradients, not 2"
    assert disagreement({**first, "losses": [1.0, 2.1]}, first) == "WRONG: a loss is 2.1, not 2"
    assert disagreement({**first, "losses": [1.0, math.nan]}, first) == "WRONG: a loss is nan, not 2"
    broken = {**first, "prints": [first["prints"][0], [math.nan] * 9]}
    assert disagreement(broken, first) == "WRONG: a gradient is off by nan of its norm"


def test_ratios_are_those_within_a_round():
    slow, fast = [10.0, 1.0, 4.0, 2.0], [5.0, 0.5, 2.0, 1.0]  # the machine's speed drifts; the ratio does not
    rows = judged([Row("gone", "not there"), Row("first", times=slow), Row("own", times=fast)])
    assert [row.ratio for row in rows] == [None, 1.0, 0.5]
    assert rows[2].note == ""
    assert rows[2].seconds == 1.5
    [_, noisy] = judged([Row("first", times=[1.0] * 4), Row("own", times=[0.5, 0.6, 0.9, 1.2])])
    assert noisy.ratio == 0.75
    assert noisy.note.startswith("noisy: 0.5")


def test_a_worker_says_what_it_cannot():
    with pytest.raises(GoneError, match="nowhere is not installed"):
        measure.Worker("nowhere:builders", TINY, 0.0)


def test_titles():
    assert Table("train", "large", []).title == "train, large (8 x 256 x 512)"
    assert Table("chain", "2000", []).title == "chain, 2000 links"
