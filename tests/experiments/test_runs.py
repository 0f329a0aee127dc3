"""A run's directory: stopped anywhere, by Ctrl-C or killed, it is resumed to the very bits of a run never stopped."""

import csv
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from experiments import pictures, runs
from experiments.runs import Run
from experiments.settings import UsageError
from minigrad import saving

POSIX = pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
# Everything that a checkpoint has to hold: dropout, hidden words, averaged weights, a schedule, early stopping.
WORDS = ("--dropout", "0.3", "--word-dropout", "0.3", "--average", "0.9", "--decay", "cosine", "--patience", "1000")
BARE = (
    "sys.modules['matplotlib'] = None; from experiments.report import build; "
    "build.write = lambda run, *rest: run.write_text(build.NAME, '')"
)


def state_of(path):
    """All that two equal runs have in common: weights and checkpoint in bits, scores, and the names of the files."""
    checkpoint = saving.load_checkpoint(path / "checkpoint.npz")
    checkpoint.pop("seconds")
    checkpoint["recorder"].pop("seconds")
    for row in checkpoint["history"]:
        del row["seconds"]
    rows = list(csv.DictReader((path / "history.csv").read_text().splitlines()))
    result = json.loads((path / "result.json").read_text())
    return {
        "weights": {name: array.tobytes() for name, array in saving.load(path / "weights.npz").items()},
        "checkpoint": bits(checkpoint),
        "history": [{name: value for name, value in row.items() if name != "seconds"} for row in rows],
        "result": {name: value for name, value in result.items() if name not in ("seconds", "run")},
        "files": sorted(file.name for file in path.iterdir()),
    }


def bits(item):
    if isinstance(item, dict):
        return {key: bits(value) for key, value in item.items()}
    if isinstance(item, list):
        return [bits(value) for value in item]
    return (item.dtype.str, item.shape, item.tobytes()) if isinstance(item, np.ndarray) else item


def whole_of(path):
    """state_of a run and of its folds."""
    folds = sorted(path.glob("fold-*"))
    if not folds:
        return state_of(path)
    result = json.loads((path / "result.json").read_text())
    return {
        "folds": [state_of(fold) for fold in folds],
        "result": {name: value for name, value in result.items() if name != "seconds"},
        "files": sorted(file.name for file in path.iterdir()),
    }


@pytest.fixture(scope="module")
def command(files, shape):
    """The words of a run of many short epochs, half of whose time goes into checkpoints; and of a cross-validation."""
    tagged = ("per-vector", "--train", str(files / "test.conllu"), *shape, *WORDS, "--epochs", "120")
    folded = ("single", "--train", str(files / "test.ts"), "--folds", "3", *shape, "--epochs", "12")
    return {"tagged": tagged, "folded": folded}


@pytest.fixture(scope="module")
def uninterrupted(command, call, tmp_path_factory, without_pictures):
    """What those runs come to when nobody stops them."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    with without_pictures():
        for name, words in command.items():
            done = call(*words, "--out", folder / name)
            assert done.status == 0, done.err
    return {name: whole_of(folder / name) for name in command}


def start(argv, environment, folder):
    """A process without pictures and reports, which would be most of its time.

    It hears Ctrl-C even if these tests do not, as what a shell starts in the background.
    """
    hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"import sys; {hears}; {BARE}; from experiments.cli import main; main(sys.argv[1:])"
    words = [sys.executable, "-c", program, *argv]
    return subprocess.Popen(
        words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def stop_and_go(words, path, signals, environment, rng, patience):
    """Run, and at a random moment after it has begun send it a signal; resume; and so on; then let it finish.

    Returns how many of the signals met a run that was not finished.
    """
    argv, met = [*words, "--out", path.name], 0
    for number in signals:
        process = start(argv, environment, path.parent)
        while not (path / "checkpoint.npz").exists() and not list(path.glob("fold-1/checkpoint.npz")):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.002)
        time.sleep(rng.uniform(0, patience) + (0.3 if argv[0] == "--resume" else 0))
        process.send_signal(number)
        _, err = process.communicate()
        if (path / "result.json").exists():
            return met
        met += 1
        argv = ["--resume", path.name]
        # A Ctrl-C while Python still imports ends it as it ends any Python program.
        assert process.returncode in ((-signal.SIGKILL,) if number == signal.SIGKILL else (130, -signal.SIGINT)), err
        if process.returncode == 130:
            told = err.splitlines()[-1]
            assert told.startswith(("stopped; ", "experiments: stopped")), err
            if "Go on with: " in told:
                assert shlex.split(told.split("Go on with: ")[1]) == ["python", "-m", "experiments", *argv]
    process = start(argv, environment, path.parent)
    _, err = process.communicate()
    assert process.returncode == 0, err
    return met


@POSIX
@pytest.mark.parametrize(("name", "signals"), [("tagged", "IK"), ("folded", "K")])
def test_stopped_at_random_moments_and_resumed(name, signals, command, uninterrupted, environment, tmp_path):
    numbers = [{"K": signal.SIGKILL, "I": signal.SIGINT}[letter] for letter in signals]
    rng = random.Random(f"{name} {signals}")
    met = stop_and_go(command[name], tmp_path / "run", numbers, environment, rng, patience=0.2)
    assert met >= 1
    assert whole_of(tmp_path / "run") == uninterrupted[name]


@POSIX
@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(10))
@pytest.mark.parametrize("number", ["SIGKILL", "SIGINT"])
def test_twenty_interruptions(number, attempt, command, uninterrupted, environment, tmp_path):
    rng = random.Random(time.time_ns())  # new moments every time: pytest -m slow
    signals = [getattr(signal, number)] * 3
    assert stop_and_go(command["tagged"], tmp_path / "run", signals, environment, rng, patience=0.5) >= 1
    assert whole_of(tmp_path / "run") == uninterrupted["tagged"]


def stopping_at(function, n, after):
    """The function, but that Ctrl-C comes in its n-th call: before it does its work, or after."""
    calls = []

    def stopping(*args):
        calls.append(args)
        if len(calls) == n and not after:
            raise KeyboardInterrupt
        value = function(*args)
        if len(calls) == n:
            raise KeyboardInterrupt
        return value

    return stopping


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_ctrl_c_at_every_step_of_writing(name, after, files, call, shape, tmp_path, monkeypatch):
    words = ("per-vector", "--train", files / "test.conllu", *shape, *WORDS, "--epochs", 2)
    assert call(*words, "--out", tmp_path / "whole").status == 0
    expected, stops = state_of(tmp_path / "whole"), 0
    for n in range(1, 40):
        path = tmp_path / str(n)
        with monkeypatch.context() as patch:
            patch.setattr(os, name, stopping_at(getattr(os, name), n, after))
            done = call(*words, "--out", path)
        if done.status == 0:
            break
        assert done.status == 130
        stops += 1
        if (path / "result.json").exists():
            assert state_of(path) == expected  # it came after the last step
        elif (path / "config.json").exists():
            assert call("--resume", path).status == 0
            assert state_of(path) == expected
        else:
            assert name == "fsync" or not after
            assert not (path / "checkpoint.npz").exists()  # it had not begun
    assert done.status == 0
    # config, initial, three checkpoints, two histories, vocabulary, weights, recording, report, result
    assert stops >= 12


@POSIX
@pytest.mark.parametrize("n", [4, 10, 17, 18])  # the first checkpoint, the last, the report, the result
def test_killed_in_the_midst_of_writing(n, files, shape, tmp_path, call, environment, no_pictures):
    words = [str(w) for w in ("per-vector", "--train", files / "test.conllu", *shape, *WORDS, "--epochs", 2)]
    assert call(*words, "--out", tmp_path / "whole").status == 0
    program = (
        f"import os, sys; {BARE}; real, calls = os.fsync, []\n"
        "def fsync(file):\n"
        "    calls.append(file)\n"
        f"    os.kill(os.getpid(), 9) if len(calls) == {n} else real(file)\n"
        "os.fsync = fsync\n"
        "from experiments.cli import main; main(sys.argv[1:])"
    )
    words = [sys.executable, "-c", program, *words, "--out", "run"]
    killed = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    leftovers = [path for path in (tmp_path / "run").iterdir() if path.name.startswith(".")]
    assert leftovers  # what is not yet in its place
    assert call("--resume", tmp_path / "run").status == 0
    assert state_of(tmp_path / "run") == state_of(tmp_path / "whole")


def test_ctrl_c_while_drawing_is_resumed_from_there(files, call, shape, tmp_path, monkeypatch):
    words = ("per-vector", "--train", files / "test.conllu", *shape, "--epochs", 1)
    with monkeypatch.context() as patch:
        patch.setattr(pictures, "draw_attention", stopping_at(pictures.draw_attention, 1, after=False))
        done = call(*words, "--out", tmp_path / "run")
    assert done.status == 130
    assert done.err[-1].endswith(f"Go on with: python -m experiments --resume {tmp_path / 'run'}")
    assert not (tmp_path / "run" / "result.json").exists()
    before = (tmp_path / "run" / "weights.npz").read_bytes()
    assert call("--resume", tmp_path / "run").status == 0
    assert (tmp_path / "run" / "weights.npz").read_bytes() == before
    assert (tmp_path / "run" / "attention.svg").exists()


@pytest.mark.usefixtures("no_pictures")
def test_ctrl_c_in_the_final_evaluation_is_resumed(files, call, shape, tmp_path, monkeypatch):
    from experiments.per_vector import PerVectorTask

    words = ("per-vector", "--train", files / "train.conllu", "--test", files / "test.conllu", *shape, "--epochs", 2)
    assert call(*words, "--out", tmp_path / "whole").status == 0
    with monkeypatch.context() as patch:
        evaluate = PerVectorTask.evaluate

        def stopping(task, split):
            if split == "test":
                raise KeyboardInterrupt
            return evaluate(task, split)

        patch.setattr(PerVectorTask, "evaluate", stopping)
        assert call(*words, "--out", tmp_path / "run").status == 130
    assert call("per-vector", "--resume", tmp_path / "run").status == 0
    assert state_of(tmp_path / "run") == state_of(tmp_path / "whole")


@pytest.mark.usefixtures("no_pictures")
def test_a_run_killed_before_its_first_checkpoint_starts_again(files, call, shape, tmp_path):
    words = ("single", "--train", files / "test.npz", "--label", "who", *shape, "--epochs", 2)
    assert call(*words, "--out", tmp_path / "whole").status == 0
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_bytes((tmp_path / "whole" / "config.json").read_bytes())
    (tmp_path / "run" / ".0123456789abcdef.tmp").write_bytes(b"half a checkpoint")
    assert call("--resume", tmp_path / "run").status == 0
    assert state_of(tmp_path / "run") == state_of(tmp_path / "whole")


@pytest.mark.usefixtures("no_pictures")
def test_a_cross_validation_killed_before_a_folds_config_goes_on(files, call, shape, tmp_path):
    words = ("single", "--train", files / "test.ts", "--folds", 2, *shape, "--epochs", 2)
    assert call(*words, "--out", tmp_path / "run").status == 0
    expected = whole_of(tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    for file in (tmp_path / "run" / "fold-2").iterdir():
        file.unlink()
    (tmp_path / "run" / "fold-2" / ".config.json.part").write_text('{"scen')
    assert call("--resume", tmp_path / "run").status == 0
    assert whole_of(tmp_path / "run") == expected


def test_early_stopping_is_remembered(files, call, shape, tmp_path, no_pictures):
    words = ("per-vector", "--train", files / "test.conllu", *shape, "--lr", 1e-12, "--patience", 2, "--epochs", 9)
    assert call(*words, "--out", tmp_path / "run").status == 0
    expected = state_of(tmp_path / "run")
    assert len(expected["history"]) == 3
    (tmp_path / "run" / "result.json").unlink()
    assert call("--resume", tmp_path / "run").status == 0
    assert state_of(tmp_path / "run") == expected


# --- the directory itself ----------------------------------------------------------------------------------------


def test_json_is_utf8_and_comes_back(tmp_path):
    run = Run(tmp_path)
    run.write_json("a.json", {"千": [1, None, 0.1]})
    assert "千" in (tmp_path / "a.json").read_text(encoding="utf-8")
    assert run.read_json("a.json") == {"千": [1, None, 0.1]}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_what_cannot_be_json_leaves_the_file_as_it_was(tmp_path):
    run = Run(tmp_path)
    run.write_json("a.json", {"a": 1})
    with pytest.raises(TypeError):
        run.write_json("a.json", {"a": object()})
    assert run.read_json("a.json") == {"a": 1}


def test_the_command_to_resume_can_be_pasted(tmp_path):
    assert shlex.split(Run(tmp_path / "my run's").resume_command)[-1] == str(tmp_path / "my run's")


def test_create_makes_parents_and_refuses_what_is_there(tmp_path):
    run = Run.create(tmp_path / "a" / "b", {"scenario": "single"})
    assert run.read_json("config.json") == {"scenario": "single"}
    with pytest.raises(UsageError, match="exists already"):
        Run.create(tmp_path / "a" / "b", {"scenario": "per-vector"})
    assert run.read_json("config.json") == {"scenario": "single"}


def test_versions_say_what_a_result_depends_on():
    assert runs.versions()["numpy"] == np.__version__
    assert runs.versions()["python"] == ".".join(map(str, sys.version_info[:3]))
