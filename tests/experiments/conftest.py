"""Small data files of every kind, small runs on them, and two ways to call the command line."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.cli import main
from experiments.data import english, numerals, speakers
from experiments.report import build

ROOT = Path(__file__).parents[2]
SHAPE = ("--dim", "8", "--heads", "2", "--blocks", "1", "--hidden", "8")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}


def call(*argv):
    """main() in this process: its exit status, and the lines of its standard output and error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as stop:
        main([str(word) for word in argv])
    return SimpleNamespace(status=stop.value.code, out=out.getvalue().splitlines(), err=err.getvalue().splitlines())


def spawn(*argv, cwd, program=("-m", "experiments")):
    """The same in a process of its own."""
    words = [sys.executable, *program, *map(str, argv)]
    done = subprocess.run(
        words, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, encoding="utf-8", check=False
    )
    return SimpleNamespace(status=done.returncode, out=done.stdout.splitlines(), err=done.stderr.splitlines())


def write_conllu(path, sentences):
    rows = [
        "".join(f"{i}\t{word}\t_\t{tag}\t_\t_\t_\t_\t_\t_\n" for i, (word, tag) in enumerate(zip(s.tokens, s.tags), 1))
        for s in sentences
    ]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def write_ts(path, frames):
    names = " ".join(sorted(set(frames.labels)))
    cases = [
        ":".join(",".join(str(value) for value in channel) for channel in sequence.T) + f":{label}\n"
        for sequence, label in zip(frames.sequences, frames.labels)
    ]
    path.write_text(f"@classLabel true {names}\n@data\n" + "".join(cases), encoding="utf-8")


def write_npz(path, frames):
    lengths = np.array([len(sequence) for sequence in frames.sequences])
    np.savez(path, frames=np.concatenate(frames.sequences), lengths=lengths, who=np.array(frames.labels))


def write_tsv(path, pairs):
    path.write_text("".join(f"{''.join(p.source)}\t{' '.join(p.target)}\n" for p in pairs), encoding="utf-8")


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """A directory with well-formed data, train and test of every kind."""
    folder = tmp_path_factory.mktemp("files")
    train, _, test = english.splits(0, train=40, dev=1, test=10)
    write_conllu(folder / "train.conllu", train)
    write_conllu(folder / "test.conllu", test)
    train, _, test = speakers.splits(0, train=4, dev=1, test=2)
    for write, suffix in ((write_ts, "ts"), (write_npz, "npz")):
        write(folder / f"train.{suffix}", train)
        write(folder / f"test.{suffix}", test)
    train, _, test = numerals.splits(0, train=100, dev=1, test=10)
    write_tsv(folder / "train.tsv", train[:30])
    write_tsv(folder / "test.tsv", test)
    return folder


KINDS = {
    "conllu": ("per-vector",),
    "ts": ("single",),
    "npz": ("single", "--label", "who"),
    "tsv": ("seq2seq",),
}


DRAWN = ("conllu", "tsv")  # drawing takes longer than training here


@pytest.fixture(scope="session")
def finished(files, tmp_path_factory):
    """By the kind of its data, the directory of a finished run of two epochs; "folds" is a cross-validation.

    Those of sentences and pairs have pictures.
    """
    folder = tmp_path_factory.mktemp("finished")
    for kind, words in KINDS.items():
        named = ("--train", files / f"train.{kind}", "--test", files / f"test.{kind}")
        with contextlib.nullcontext() if kind in DRAWN else without_pictures():
            done = call(*words, *named, *SHAPE, "--epochs", 2, "--out", folder / kind)
        assert done.status == 0, done.err
        (folder / kind / "said.json").write_text(json.dumps(done.out))
    with without_pictures():
        named = ("--train", files / "train.ts", "--folds", 2)
        done = call("single", *named, *SHAPE, "--epochs", 1, "--out", folder / "folds")
    assert done.status == 0, done.err
    (folder / "folds.txt").write_text("\n".join(done.out))
    return folder


@contextlib.contextmanager
def without_pictures():
    """Within it matplotlib cannot be imported, and reports are empty: both take longer than a small training."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib", None)
        patch.setattr(build, "write", lambda run, *rest: run.write_text(build.NAME, ""))
        yield


@pytest.fixture(name="without_pictures", scope="session")
def without_pictures_fixture():
    return without_pictures


@pytest.fixture
def no_pictures():
    with without_pictures():
        yield


@pytest.fixture
def stopped(finished, tmp_path):
    """A copy of a finished run's directory, as it was when its last epoch had ended; a file can be put in its place."""

    def make(kind="conllu", **replaced):
        path = tmp_path / "stopped"
        shutil.copytree(finished / kind, path)
        for name in ("result.json", "weights.npz", "said.json"):
            (path / name).unlink(missing_ok=True)
        for name, content in replaced.items():
            file = path / {"config": "config.json", "checkpoint": "checkpoint.npz"}[name]
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make


@pytest.fixture(name="call", scope="session")
def call_fixture():
    return call


@pytest.fixture(name="spawn")
def spawn_fixture(tmp_path):
    def run(*argv, cwd=tmp_path, **more):
        return spawn(*argv, cwd=cwd, **more)

    return run


@pytest.fixture(scope="session")
def shape():
    return SHAPE


@pytest.fixture(scope="session")
def environment():
    return ENVIRONMENT
