"""The command line as a stranger meets it: what it leaves, what it says, and how it refuses."""

import csv
import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import minigrad
from minigrad import saving

ROOT = Path(__file__).parents[2]
BYTES = bytes(np.random.default_rng(0).integers(0, 256, 4000, dtype=np.uint8))
WORD = "{}\t{}\t_\tNOUN\t_\t_\t_\t_\t_\t_\n"


def result_of(path):
    return json.loads((path / "result.json").read_text(encoding="utf-8"))


def snapshot(folder):
    """Every file below and its content, directories too."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def assert_refused(done, reason):
    """One line, on standard error, that says why."""
    assert done.status == 2, done.err
    assert done.out == []
    assert len(done.err) == 1, done.err
    assert done.err[0].startswith("experiments: ")
    assert re.search(reason, done.err[0]), done.err[0]


# --- what a run leaves -------------------------------------------------------------------------------------------

PICTURES = {f"{name}.{suffix}" for name in ("curves", "attention") for suffix in ("png", "svg")}
LEFT = {"config.json", "vocabulary.json", "checkpoint.npz", "history.csv", "weights.npz", "result.json"} | PICTURES
LEFT |= {"initial.npz", "recording.npz", "report.html"}
METRICS = {
    "conllu": {"accuracy", "accuracy_ambiguous", "accuracy_unknown"},
    "ts": {"accuracy"},
    "npz": {"accuracy"},
    "tsv": {"wer", "per", "exact_match"},
}
SCENARIOS = {"conllu": "per-vector", "ts": "single", "npz": "single", "tsv": "seq2seq"}


@pytest.mark.parametrize("kind", METRICS)
class TestFinishedRun:
    def test_it_has_every_file_and_no_other(self, kind, finished):
        left = LEFT if kind in ("conllu", "tsv") else LEFT - PICTURES
        assert {path.name for path in (finished / kind).iterdir()} - {"said.json"} == left

    def test_config_json_is_all_that_was_asked_for(self, kind, finished, files):
        config = json.loads((finished / kind / "config.json").read_text())
        assert config["scenario"] == SCENARIOS[kind]
        assert config["label"] == ("who" if kind == "npz" else None)
        assert config["folds"] is None
        assert config["settings"]["epochs"] == 2
        assert config["settings"]["dim"] == 8
        assert set(config["files"]) == {"train", "test"}

    def test_result_json_has_scores_and_all_they_depend_on(self, kind, finished, files):
        result = result_of(finished / kind)
        assert result["scenario"] == SCENARIOS[kind]
        assert result["model"] == "attention"
        assert set(result["metrics"]) == {"dev", "test"}
        for scores in result["metrics"].values():
            assert set(scores) == METRICS[kind]
            # Edits per symbol may be more than one; all others are fractions.
            assert all(value is None or 0 <= value <= (9 if name == "per" else 1) for name, value in scores.items())
        weights = saving.load(finished / kind / "weights.npz")
        assert result["parameters"] == sum(array.size for array in weights.values())
        assert result["seconds"] > 0
        assert result["seed"] == 0
        assert result["epochs"] == 2
        assert result["best_epoch"] in (1, 2)
        assert set(result["versions"]) == {"minigrad", "numpy", "python"}
        assert result["versions"]["minigrad"] == minigrad.__version__
        assert result["versions"]["numpy"] == np.__version__
        for split in ("train", "test"):
            path = files / f"{split}.{kind}"
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            assert result["files"][split] == {"path": str(path), "sha256": digest}

    def test_history_csv_has_a_row_an_epoch_and_the_best_is_the_result(self, kind, finished):
        rows = list(csv.DictReader((finished / kind / "history.csv").read_text().splitlines()))
        assert [row["epoch"] for row in rows] == ["1", "2"]
        assert set(rows[0]) == {"epoch", "loss", "lr", "seconds"} | METRICS[kind]
        assert 0 < float(rows[0]["seconds"]) < float(rows[1]["seconds"])
        assert all(float(row["loss"]) > 0 for row in rows)
        result = result_of(finished / kind)
        name = "exact_match" if kind == "tsv" else "accuracy"
        assert float(rows[result["best_epoch"] - 1][name]) == result["metrics"]["dev"][name]
        assert result["metrics"]["dev"][name] == max(float(row[name]) for row in rows)

    def test_the_last_line_is_the_result_in_one_sentence(self, kind, finished):
        said = json.loads((finished / kind / "said.json").read_text())
        result = result_of(finished / kind)
        score = result["metrics"]["test"]["exact_match" if kind == "tsv" else "accuracy"]
        assert said[-1] == f"With attention, {result['summary']['test']}."
        assert f"{score:.4f} of the " in said[-1]
        assert str(finished / kind) in said[0]

    def test_tagging_is_said_to_be_local_where_results_are_shown(self, kind, finished):
        said = "\n".join(json.loads((finished / kind / "said.json").read_text()))
        assert ("Tagging is local: on the generated English and on UD English EWT" in said) == (kind == "conllu")

    def test_its_report_is_named(self, kind, finished):
        said = json.loads((finished / kind / "said.json").read_text())
        assert f"Its report, for a browser: {finished / kind / 'report.html'}" in said


def test_folds_test_every_sequence_and_leave_every_model(finished, call):
    result = result_of(finished / "folds")
    parts = [result_of(finished / "folds" / f"fold-{i}") for i in (1, 2)]
    assert set(result["metrics"]) == {"test"}
    assert result["folds"] == [part["metrics"]["test"]["accuracy"] for part in parts]
    assert result["metrics"]["test"]["accuracy"] == pytest.approx(sum(result["folds"]) / 2)  # of 12 sequences each
    assert "in 2-fold cross-validation" in result["summary"]["test"]
    assert {path.name for path in (finished / "folds" / "fold-2").iterdir()} == LEFT - PICTURES
    said = (finished / "folds.txt").read_text().splitlines()
    folder = finished / "folds"
    named = f"{folder / 'fold-1' / 'report.html'} to {folder / 'fold-2' / 'report.html'}"
    assert f"The reports of its models, for a browser: {named}" in said


def test_a_run_is_reproducible_bit_for_bit(finished, files, tmp_path, call, shape):
    named = ("--train", files / "train.conllu", "--test", files / "test.conllu")
    assert call("per-vector", *named, *shape, "--epochs", 2, "--out", tmp_path / "again").status == 0
    first, again = (saving.load(run / "weights.npz") for run in (finished / "conllu", tmp_path / "again"))
    assert all(first[name].tobytes() == again[name].tobytes() for name in first)
    for name in PICTURES | {"vocabulary.json", "config.json"}:
        assert (finished / "conllu" / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name


@pytest.mark.usefixtures("no_pictures")
def test_another_seed_gives_another_run(finished, files, tmp_path, call, shape):
    named = ("--train", files / "train.conllu", "--test", files / "test.conllu")
    assert call("per-vector", *named, *shape, "--epochs", 2, "--seed", 1, "--out", tmp_path / "other").status == 0
    first, other = (saving.load(run / "weights.npz") for run in (finished / "conllu", tmp_path / "other"))
    assert any(first[name].tobytes() != other[name].tobytes() for name in first)


@pytest.mark.parametrize("kind", ["conllu", "ts"])
@pytest.mark.parametrize("model", ["fc", "window"])
def test_the_lectures_baselines_are_one_option(kind, model, files, tmp_path, call, shape):
    done = call(
        SCENARIOS[kind],
        "--train",
        files / f"train.{kind}",
        *shape,
        "--epochs",
        1,
        "--model",
        model,
        "--out",
        tmp_path / "run",
    )
    assert done.status == 0, done.err
    assert done.out[-1].startswith(f"With {model}, ")
    assert result_of(tmp_path / "run")["model"] == model
    assert not (tmp_path / "run" / "attention.png").exists()
    assert (tmp_path / "run" / "curves.png").exists()


@pytest.mark.usefixtures("no_pictures")
def test_unknown_labels_are_counted_said_and_wrong(files, tmp_path, call, shape):
    text = (
        WORD.format(1, "dog")
        + WORD.format(2, "dogs").replace("NOUN", "XYZ")
        + WORD.format(3, "cat").replace("NOUN", "ABC")
    )
    (tmp_path / "odd.conllu").write_text(text)
    (tmp_path / "one.conllu").write_text(WORD.format(1, "cat").replace("NOUN", "ABC"))
    named = ("--train", files / "train.conllu", "--dev", tmp_path / "one.conllu", "--test", tmp_path / "odd.conllu")
    done = call("per-vector", *named, *shape, "--epochs", 1, "--out", tmp_path / "run")
    assert done.status == 0
    assert "2 labels in test do not occur in train; counted as wrong" in done.err
    assert "1 label in dev does not occur in train; counted as wrong" in done.err
    result = result_of(tmp_path / "run")
    assert result["unknown_labels"] == {"dev": 1, "test": 2}
    assert result["metrics"]["test"]["accuracy"] <= 1 / 3
    assert result["metrics"]["dev"]["accuracy"] == 0
    assert result["metrics"]["test"]["accuracy_ambiguous"] is None  # none of the forms is


def test_training_that_breaks_down_is_one_line_after_the_bar(files, tmp_path, call, shape):
    done = call("single", "--train", files / "train.ts", *shape, "--lr", 1e12, "--warmup", 0, "--out", tmp_path / "run")
    assert done.status == 2
    assert done.out == []
    assert "training broke down" in done.err[-1]
    assert not any("Traceback" in line or "Warning" in line for line in done.err)


# --- as processes ------------------------------------------------------------------------------------------------


def test_a_scenario_script_runs_directly(files, spawn, tmp_path, shape):
    words = ("--train", files / "train.ts", *shape, "--epochs", 1)
    done = spawn(*words, program=[ROOT / "experiments" / "single.py"])
    assert done.status == 0, done.err
    assert done.out[-1].startswith("With attention, ")
    [run] = (tmp_path / "runs").iterdir()  # the default place, named by scenario and time
    assert re.fullmatch(r"single-\d{8}-\d{6}", run.name)
    assert not any("Warning" in line for line in done.err)


@pytest.mark.parametrize("name", ["per_vector", "seq2seq"])
def test_other_scripts_too(name, spawn):
    done = spawn("--help", program=[ROOT / "experiments" / f"{name}.py"])
    assert done.status == 0, done.err
    assert any("--label-smoothing" in line for line in done.out)


def test_without_matplotlib_that_is_said_and_the_run_succeeds(files, spawn, tmp_path, shape):
    blocked = "import sys; sys.modules['matplotlib'] = None; from experiments.cli import main; main(sys.argv[1:])"
    words = ("per-vector", "--train", files / "train.conllu", *shape, "--epochs", 1, "--out", "run")
    done = spawn(*words, program=["-c", blocked])
    assert done.status == 0, done.err
    assert sum("for want of matplotlib" in line for line in done.err) == 1
    assert {path.name for path in (tmp_path / "run").iterdir()} == LEFT - PICTURES


def test_output_that_nobody_reads_is_no_error_message(finished, environment, tmp_path):
    words = [sys.executable, "-m", "experiments", "predict", str(finished / "conllu"), "I saw a saw"]
    with subprocess.Popen(
        words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


@pytest.mark.parametrize("closed", [("stdout",), ("stderr",), ("stdout", "stderr")])
def test_a_run_does_without_closed_streams(closed, files, tmp_path, call, shape, no_pictures, monkeypatch):
    from experiments.cli import main

    for name in closed:
        monkeypatch.setattr(sys, name, None)  # as Python has it after >&- or 2>&-
    words = ["single", "--train", files / "train.ts", *shape, "--epochs", "1", "--out", tmp_path / "run"]
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    assert stop.value.code == 0
    assert result_of(tmp_path / "run")["epochs"] == 1


PROCESSES = {
    "empty": (("per-vector", "--train", "empty.conllu"), r"empty\.conllu: is empty"),
    "columns": (
        ("per-vector", "--train", "columns.conllu", "--out", "run"),
        r"columns\.conllu:2: expected 10 .* got 3",
    ),
    "option": (("single", "--hearts", "3"), "unrecognized arguments: --hearts 3"),
    "proc": (("seq2seq", "--train", "train.tsv", "--out", "/proc/minigrad/run"), "/proc/minigrad/run cannot be made"),
    "resume": (("--resume", "nowhere"), "nowhere is not the directory of a run"),
}


@pytest.mark.parametrize("name", PROCESSES)
def test_a_process_refuses_in_one_line_too(name, bad, spawn):
    argv, reason = PROCESSES[name]
    before = snapshot(bad)
    assert_refused(spawn(*argv, cwd=bad), reason)
    assert snapshot(bad) == before


# --- what is refused ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bad(files, tmp_path_factory):
    """The good files, and many kinds of bad ones."""
    folder = shutil.copytree(files, tmp_path_factory.mktemp("bad") / "files")
    for suffix in ("conllu", "ts", "npz", "tsv"):
        (folder / f"empty.{suffix}").write_bytes(b"")
        (folder / f"rubbish.{suffix}").write_bytes(BYTES)
    (folder / "columns.conllu").write_text(WORD.format(1, "a") + "2\tb\tNOUN\n")
    (folder / "columns.tsv").write_text("ab\tx y\nab x y\n")
    (folder / "target.tsv").write_text("ab\tx y\nab\t\n")
    (folder / "one.conllu").write_text(WORD.format(1, "a"))
    (folder / "long.conllu").write_text(
        "".join(WORD.format(i, "a") for i in range(1, 600)) + "\n" + WORD.format(1, "a")
    )
    (folder / "nan.ts").write_text("@classLabel true a b\n@data\n1,2:3,4:a\n1,nan:3,4:b\n")
    (folder / "label.ts").write_text("@classLabel true a b\n@data\n1,2:3,4:c\n")
    (folder / "headless.ts").write_text("1,2:3,4:a\n")
    np.savez(folder / "nan.npz", frames=np.array([[1.0], [np.nan]]), lengths=[1, 1], who=["a", "b"])
    np.savez(folder / "narrow.npz", frames=np.ones((2, 5)), lengths=[1, 1], who=["Anna", "Ben"])
    np.savez(folder / "lengths.npz", frames=np.ones((2, 5)), lengths=[1, 2], who=["Anna", "Ben"])
    (folder / "data.csv").write_text("a,b\n")
    (folder / "file").write_text("")
    (folder / "blank.txt").write_text(" \n\n")
    for name in ("folder.conllu", "folder.xyz", "taken"):
        (folder / name).mkdir()
    return folder


TAG, WHO, SAY = ("per-vector", "--train"), ("single", "--label", "who", "--train"), ("seq2seq", "--train")
TAGGED = (*TAG, "train.conllu")
TRAINING = {
    "empty ts": (("single", "--train", "empty.ts"), r"empty\.ts: is empty"),
    "empty npz": ((*WHO, "empty.npz"), r"empty\.npz: is empty"),
    "empty tsv": ((*SAY, "empty.tsv"), r"empty\.tsv: is empty"),
    "empty test": ((*TAGGED, "--test", "empty.conllu"), r"empty\.conllu: is empty"),
    "wrong columns": ((*SAY, "columns.tsv"), r"columns\.tsv:2: expected 2 tab-separated columns.*got 1"),
    "wrong columns in dev": ((*SAY, "train.tsv", "--dev", "columns.tsv"), r"columns\.tsv:2"),
    "no target": ((*SAY, "target.tsv"), r"target\.tsv:2: the target"),
    "nan ts": (("single", "--train", "nan.ts"), r"nan\.ts:4: channel 1: nan is not a finite"),
    "nan npz": ((*WHO, "nan.npz"), r"nan\.npz: case 1, frame 0, dimension 0"),
    "nan in test": ((*WHO, "train.npz", "--test", "nan.npz"), r"nan\.npz: case 1"),
    "undeclared label": (("single", "--train", "label.ts"), r"label\.ts:3: label 'c'"),
    "no header": (("single", "--train", "headless.ts"), r"headless\.ts:1: expected a header"),
    "lengths": ((*WHO, "lengths.npz"), r"'lengths' sum to 3, but 'frames' has 2 rows"),
    "rubbish conllu": ((*TAG, "rubbish.conllu"), r"rubbish\.conllu:1: is not"),
    "rubbish ts": (("single", "--train", "rubbish.ts"), r"rubbish\.ts:1: is not"),
    "rubbish npz": ((*WHO, "rubbish.npz"), r"rubbish\.npz: is not a NumPy archive"),
    "rubbish tsv": ((*SAY, "rubbish.tsv"), r"rubbish\.tsv:1: is not"),
    "unknown suffix": ((*TAG, "data.csv"), r"data\.csv: unknown suffix '.csv'; this scenario reads .conllu"),
    "no suffix": ((*TAG, "file"), "unknown suffix ''"),
    "another scenario's file": ((*TAG, "train.ts"), "unknown suffix '.ts'"),
    "missing": ((*TAG, "none.conllu"), r"none\.conllu: no such file"),
    "missing test": ((*TAGGED, "--test", "none.conllu"), r"none\.conllu: no such file"),
    "name too long": ((*TAG, "x" * 5000 + ".conllu"), "File name too long"),
    "a directory": ((*TAG, "folder.conllu"), r"folder\.conllu: is a directory"),
    "a directory of no kind": ((*TAG, "folder.xyz"), r"folder\.xyz: is a directory"),
    "dev alone": (("per-vector", "--dev", "train.conllu"), "--dev was given without --train"),
    "mixed kinds": ((*WHO, "train.npz", "--test", "test.ts"), "one kind"),
    "one example": ((*TAG, "one.conllu"), "one example cannot be split"),
    "out is taken": ((*TAGGED, "--out", "taken"), "taken exists already"),
    "out is a file": ((*TAGGED, "--out", "file"), "file exists already"),
    "out is here": (("per-vector", "--out", "."), ". exists already"),
    "out below a file": ((*TAGGED, "--out", "file/run"), "file/run cannot be made: Not a directory"),
    "negative epochs": ((*TAGGED, "--epochs", "-1"), "--epochs must be from 1 to .* and -1 was given"),
    "zero epochs": ((*TAGGED, "--epochs", "0"), "--epochs must be"),
    "nan rate": ((*TAGGED, "--lr", "nan"), "--lr must be"),
    "infinite rate": ((*TAGGED, "--lr", "inf"), "--lr must be"),
    "full dropout": ((*TAGGED, "--dropout", "1"), "--dropout must be at least 0 and below 1"),
    "not a number": ((*TAGGED, "--dim", "many"), "argument --dim: invalid int value: 'many'"),
    "half a head": ((*TAGGED, "--heads", "1.5"), "--heads: invalid int value"),
    "heads": ((*TAGGED, "--heads", "3"), "--heads 3 does not divide --dim"),
    "a value missing": ((*TAGGED, "--heads"), "--heads: expected one argument"),
    "truth": (("single", "--deltas", "maybe"), "true or false was expected, not 'maybe'"),
    "no such model": ((*TAGGED, "--model", "rnn"), "--model is one of attention, fc, window"),
    "seq2seq has no fc": (("seq2seq", "--model", "fc"), "--model is one of attention"),
    "shortened option": ((*TAGGED, "--epoch", "3"), "unrecognized arguments"),
    "no such scenario": (("per-token",), "there is no 'per-token': choose per-vector"),
    "option of a scenario": (("--epochs", "3"), "unrecognized arguments"),
    "seed of all": (("--seed", "-1"), "--seed must be"),
    "out of all": (("--out", "taken"), "taken exists already"),
    "no label": (("single", "--train", "train.npz"), r"--label; there are: who"),
    "no such label": (("single", "--label", "whom", "--train", "train.npz"), "has no array 'whom'"),
    "frames for label": (("single", "--label", "frames", "--train", "train.npz"), "--label"),
    "label of a ts": ((*WHO, "train.ts"), "--label names an array of an .npz"),
    "label without file": (("single", "--label", "who"), "--label names an array of the file"),
    "label of sentences": ((*TAGGED, "--label", "who"), "unrecognized arguments"),
    "dimensions": ((*WHO, "train.npz", "--test", "narrow.npz"), "have 5 dimensions, and those of the training file 12"),
    "one fold": (("single", "--train", "train.ts", "--folds", "1"), "--folds: expected from 2 to 24"),
    "too many folds": (("single", "--train", "train.ts", "--folds", "25"), "--folds: expected from 2 to 24"),
    "folds and test": (("single", "--train", "train.ts", "--test", "test.ts", "--folds", "2"), "with --train alone"),
    "folds of nothing": (("single", "--folds", "2"), "with --train alone"),
    "folds of sentences": ((*TAGGED, "--folds", "2"), "unrecognized arguments: --folds 2"),
    "beyond learned positions": ((*TAG, "long.conllu", "--positions", "learned"), "reaches 512 vectors.* has 601"),
}


@pytest.mark.parametrize("name", TRAINING)
def test_training_is_refused_and_leaves_nothing(name, bad, call, monkeypatch):
    argv, reason = TRAINING[name]
    monkeypatch.chdir(bad)
    before = snapshot(bad)
    assert_refused(call(*argv), reason)
    assert snapshot(bad) == before  # no run either: ./runs would be here


def test_a_run_is_never_overwritten(finished, files, call):
    before = snapshot(finished / "conllu")
    assert_refused(
        call("per-vector", "--train", files / "train.conllu", "--out", finished / "conllu"), "exists already"
    )
    assert snapshot(finished / "conllu") == before


@pytest.mark.usefixtures("no_pictures")
def test_runs_of_one_second_do_not_collide(files, tmp_path, call, shape, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda form: "20200101-000000")
    for _ in range(3):
        assert call("per-vector", "--train", files / "train.conllu", *shape, "--epochs", 1, "--model", "fc").status == 0
    names = {path.name for path in (tmp_path / "runs").iterdir()}
    assert names == {"per-vector-20200101-000000", "per-vector-20200101-000000-2", "per-vector-20200101-000000-3"}


def config(**changes):
    """A config.json of a right form but for the changes."""
    whole = {"scenario": "per-vector", "settings": {}, "files": {}, "label": None, "folds": None, **changes}
    return json.dumps({name: value for name, value in whole.items() if value is not ...})


CONFIGS = {
    "no JSON": ("{", "is not readable as JSON"),
    "binary": (BYTES, "is not readable as JSON"),
    "empty": ("", "is not readable as JSON"),
    "deep": ("[" * 100_000, "is not readable as JSON"),
    "a list": ("[1, 2]", "should hold a JSON object, and holds a list"),
    "nothing": ("{}", "does not describe a run: it lacks 'scenario'"),
    "no such scenario": (config(scenario="both"), "does not describe a run: it lacks 'both'"),
    "scenario is a list": (config(scenario=[]), "does not describe a run"),
    "no settings": (config(settings=...), "it lacks 'settings'"),
    "settings are a list": (config(settings=[1]), "does not describe a run"),
    "no such setting": (config(settings={"depth": 3}), "does not describe a run: .*'depth'"),
    "setting of another type": (config(settings={"dim": "64"}), "--dim must be of type int"),
    "setting out of bounds": (config(settings={"epochs": -3}), "--epochs must be"),
    "files are names": (config(files={"train": "a.conllu"}), "does not describe a run"),
    "file is a number": (config(files={"train": {"path": 3, "sha256": ""}}), "does not describe a run"),
    "no train": (config(files={"test": {"path": "a.conllu", "sha256": ""}}), "files have no train"),
    "folds in words": (config(folds="five"), "does not describe a run"),
    "no label": (config(label=...), "it lacks 'label'"),
    "all without seed": (config(scenario="all"), "it lacks 'seed'"),
}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("command", ["--resume", "predict"])
def test_a_damaged_config_is_refused(name, command, stopped, call):
    content, reason = CONFIGS[name]
    path = stopped(config=content)
    before = snapshot(path)
    assert_refused(call(command, path, *(["I saw"] if command == "predict" else [])), reason)
    assert snapshot(path) == before


class TestRefusedResuming:
    def test_of_a_finished_run(self, finished, call):
        assert_refused(call("--resume", finished / "conllu"), "is finished")

    def test_of_a_part_of_a_cross_validation(self, finished, tmp_path, call):
        path = shutil.copytree(finished / "folds", tmp_path / "folds")
        (path / "fold-2" / "result.json").unlink()
        assert_refused(call("--resume", path / "fold-2"), f"go on with the whole, --resume {re.escape(str(path))}$")

    def test_with_other_options(self, stopped, call):
        path = stopped()
        for more in (["--epochs", 9], ["--out", "x"], ["--seed=1"]):
            assert_refused(call("per-vector", "--resume", path, *more), "takes no other options")
        assert_refused(call("per-vector", f"--resume={path}", "--epochs=9"), "takes no other options")
        assert_refused(call("--resume", path, "--seed", 0), "takes no other options")

    def test_as_another_scenario(self, stopped, call):
        assert_refused(call("single", "--resume", stopped()), "is a run of per-vector, not of single")

    @pytest.mark.usefixtures("no_pictures")
    @pytest.mark.parametrize("change", ["content", "missing"])
    def test_when_the_data_have_changed(self, change, finished, files, tmp_path, call, shape):
        data = shutil.copy(files / "train.ts", tmp_path / "data.ts")
        assert call("single", "--train", data, *shape, "--epochs", 1, "--out", tmp_path / "run").status == 0
        (tmp_path / "run" / "result.json").unlink()
        if change == "content":
            data.write_text(data.read_text() + data.read_text().splitlines()[-1])
            assert_refused(call("--resume", tmp_path / "run"), r"data\.ts has changed since the run was begun")
        else:
            data.unlink()
            assert_refused(call("--resume", tmp_path / "run"), r"data\.ts: no such file")

    @pytest.mark.parametrize("damage", ["rubbish", "half", "empty", "weights", "lacking", "odd", "text"])
    def test_from_a_damaged_checkpoint(self, damage, stopped, finished, call):
        whole = (finished / "conllu" / "checkpoint.npz").read_bytes()
        path = stopped(checkpoint={"rubbish": BYTES, "half": whole[: len(whole) // 2]}.get(damage, b""))
        file = path / "checkpoint.npz"
        if damage == "weights":
            shutil.copy(finished / "conllu" / "weights.npz", file)
        elif damage == "odd":
            shutil.copy(finished / "ts" / "checkpoint.npz", file)
        elif damage == "text":
            saving.save_checkpoint(file, {"model": "none"})
        elif damage == "lacking":
            state = saving.load_checkpoint(finished / "conllu" / "checkpoint.npz")
            del state["rng"]
            saving.save_checkpoint(file, state)
        assert_refused(call("--resume", path), r"checkpoint\.npz cannot be used: ")
        assert not (path / "result.json").exists()

    def test_a_directory_without_a_run(self, tmp_path, call):
        assert_refused(call("--resume", tmp_path), "has no config.json")
        assert_refused(call("--resume", tmp_path / "file"), "is not the directory of a run")


# --- prediction --------------------------------------------------------------------------------------------------


class TestPredict:
    def test_a_text_is_tagged_word_by_word(self, finished, call):
        done = call("predict", finished / "conllu", "I saw a saw.")
        assert done.status == 0
        assert done.err == []
        [line] = done.out
        assert [pair.rsplit("/", 1)[0] for pair in line.split()] == ["I", "saw", "a", "saw", "."]
        assert all(pair.rsplit("/", 1)[1].isupper() for pair in line.split())

    def test_unknown_forms_and_scripts_are_tagged_too(self, finished, call):
        [line] = call("predict", finished / "conllu", "Xyzzy 千 e\u0301 🙂").out
        assert len(line.split()) >= 4

    def test_a_text_file_is_labelled_line_by_line_as_texts_are(self, finished, tmp_path, call):
        (tmp_path / "in.txt").write_text("I saw a saw\n\nWe can fish .\n", encoding="utf-8")
        lines = call("predict", finished / "conllu", tmp_path / "in.txt").out
        assert lines == [call("predict", finished / "conllu", text).out[0] for text in ("I saw a saw", "We can fish .")]

    @pytest.mark.parametrize("kind", ["ts", "npz"])
    def test_frames_get_a_label_a_sequence_and_the_score_of_the_run(self, kind, finished, files, call):
        from experiments.data.files import read

        done = call("predict", finished / kind, files / f"test.{kind}")
        labels = read(files / f"test.{kind}", "who" if kind == "npz" else None).labels
        right = np.mean([guess == label for guess, label in zip(done.out, labels, strict=True)])
        assert right == result_of(finished / kind)["metrics"]["test"]["accuracy"]

    def test_a_fold_labels_too(self, finished, files, call):
        assert len(call("predict", finished / "folds" / "fold-2", files / "test.ts").out) == 12

    def test_characters_come_out_as_symbols_between_spaces(self, finished, tmp_path, call):
        (tmp_path / "in.txt").write_text("twohundred\nßß\n", encoding="utf-8")
        done = call("predict", finished / "tsv", tmp_path / "in.txt")
        assert done.status == 0
        assert len(done.out) == 2
        assert done.err == ["the model was not trained on the characters d ß"]
        assert call("predict", finished / "tsv", "two").err == []

    def test_a_process_does_the_same(self, finished, spawn, call):
        done = spawn("predict", finished / "conllu", "I saw a saw")
        assert (done.status, done.err) == (0, [])
        assert done.out == call("predict", finished / "conllu", "I saw a saw").out

    REFUSED: ClassVar = {
        "empty": ("conllu", "", "there is nothing to label"),
        "blank": ("tsv", " \t ", "there is nothing to label"),
        "missing text file": ("conllu", "none.txt", r"none\.txt: no such file"),
        "blank text file": ("conllu", "blank.txt", r"blank\.txt: is empty"),
        "binary text file": ("tsv", "rubbish.txt", r"rubbish\.txt:1: is not"),
        "a directory": ("conllu", "docs", "docs is a directory, and texts are read from files"),
        "only unknown characters": (
            "tsv",
            "日本",
            "the model knows none of these characters: it was trained on such as",
        ),
        "a file of another kind": ("conllu", "train.conllu", "texts are read from files whose names end in .txt"),
        "a text for frames": ("ts", "I saw a saw", "unknown suffix ''; expected one of .ts .npz"),
        "sentences for frames": ("ts", "train.conllu", "unknown suffix '.conllu'"),
        "other frames": ("npz", "narrow.npz", "sequence 1 has 5 dimensions, and the model was trained on 12"),
        "rubbish frames": ("ts", "rubbish.ts", r"rubbish\.ts:1: is not"),
        "a cross-validation": ("folds", "test.ts", r"cross-validation: name one of its models, such as .*fold-1"),
    }

    @pytest.mark.parametrize("name", REFUSED)
    def test_what_cannot_be_labelled_is_refused(self, name, finished, bad, call, monkeypatch):
        run, given, reason = self.REFUSED[name]
        monkeypatch.chdir(bad)
        (bad / "rubbish.txt").write_bytes(BYTES)
        (bad / "docs").mkdir(exist_ok=True)
        assert_refused(call("predict", finished / run, given), reason)

    def test_an_unfinished_run_says_how_to_finish(self, stopped, call):
        path = stopped()
        assert_refused(
            call("predict", path, "I"), f"has no weights.npz: finish the run first .*--resume {re.escape(str(path))}"
        )
        (path / "vocabulary.json").unlink()
        assert_refused(call("predict", path, "I"), r"has no vocabulary\.json: finish the run first")

    @pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"features": 3, "tags": 4}', BYTES])
    def test_a_damaged_vocabulary_is_refused(self, content, stopped, call):
        path = stopped()
        (path / "vocabulary.json").write_bytes(content)
        assert_refused(call("predict", path, "I"), r"vocabulary\.json")

    @pytest.mark.parametrize("damage", ["rubbish", "of another run"])
    def test_damaged_weights_are_refused(self, damage, stopped, finished, call):
        path = stopped()
        other = (finished / "ts" / "weights.npz").read_bytes()
        (path / "weights.npz").write_bytes(BYTES if damage == "rubbish" else other)
        assert_refused(call("predict", path, "I"), r"weights\.npz cannot be used: ")

    def test_no_run_and_no_input_are_refused(self, tmp_path, call):
        assert_refused(call("predict", tmp_path, "I"), "is not the directory of a run")
        assert_refused(call("predict", tmp_path), "the following arguments are required: input")


def test_help_names_every_command(call):
    said = " ".join(" ".join(call("--help").out).split())
    for command in ("per-vector|single|seq2seq", "predict RUN INPUT", "report RUN", "claims"):
        assert f"python -m experiments {command}" in said
    assert "of any kind" not in said  # claims are not resumed


def test_runs_that_is_a_file_is_named(tmp_path, spawn, shape, files):
    (tmp_path / "runs").write_text("")
    done = spawn("per-vector", "--train", files / "train.conllu", *shape)
    assert_refused(done, r"runs/per-vector-\S* cannot be made: Not a directory")


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (MOST, MOST))
from experiments.cli import main
main(sys.argv[1:])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows limits no file sizes")
class TestWritingThatFails:
    def test_a_report_that_is_too_large(self, finished, tmp_path, spawn):
        run = shutil.copytree(finished / "conllu", tmp_path / "run")
        before = snapshot(run)
        done = spawn("report", run, program=("-c", LIMITED.replace("MOST", "20_000")))
        assert_refused(
            done, rf"{re.escape(str(run / 'report.html'))} cannot be written \(File too large\): allow larger"
        )
        assert snapshot(run) == before

    @pytest.mark.parametrize(("size", "name"), [(100, "config.json"), (2000, "initial.npz")])
    def test_files_of_a_run(self, size, name, files, shape, tmp_path, spawn):
        named = ("--train", files / "train.conllu", *shape, "--epochs", 1, "--out", tmp_path / "run")
        done = spawn("per-vector", *named, program=("-c", LIMITED.replace("MOST", str(size))))
        assert done.status == 2
        assert re.search(rf"run/{name} cannot be written \(File too large\)", done.err[-1]), done.err
        assert not [path.name for path in (tmp_path / "run").iterdir() if path.name.startswith(".")]

    def test_a_directory_in_the_way(self, finished, tmp_path, call):
        run = shutil.copytree(finished / "conllu", tmp_path / "run")
        (run / "report.html").unlink()
        (run / "report.html").mkdir()
        assert_refused(
            call("report", run), rf"{re.escape(str(run / 'report.html'))} cannot be written \(Is a directory\)"
        )
        assert not (run / ".report.html.part").exists()


def test_help_says_how_long_claims_stay_in_a_report(call):
    said = " ".join(" ".join(call("report", "--help").out).split())
    assert "stays in the report until that is deleted" in said


@pytest.mark.parametrize("words", [("report", "run", "--claim", "claims"), ("predict", "run", "I", "--hel")])
def test_options_are_not_guessed_from_their_beginning(words, call):
    assert_refused(call(*words), "unrecognized arguments: --")


def test_help_tells_the_defaults_for_generated_data(call):
    said = " ".join(" ".join(call("single", "--help").out).split())
    assert "passes over the training data, at most (default: 20)" in said
    assert "beside each frame how it changes (default: false)" in said


def test_help_names_every_option(call):
    for words in ([], ["per-vector"], ["single"], ["seq2seq"], ["predict"]):
        done = call(*words, "--help")
        assert done.status == 0
        assert done.err == []
        assert done.out[0].startswith("usage: python -m experiments")


# --- all experiments ---------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch, no_pictures):
    """All experiments, so small that they take a moment."""
    from dataclasses import replace

    from experiments import cli, scenarios
    from experiments.data import english, numerals, speakers

    tiny = {"dim": 8, "heads": 2, "blocks": 1, "hidden": 8, "epochs": 1}
    for task in scenarios.TASKS.values():
        monkeypatch.setattr(task, "defaults", {"": replace(task.defaults[""], **tiny)})
    for module, sizes in ((english, (40, 10, 20)), (speakers, (2, 1, 1)), (numerals, (100, 5, 5))):
        monkeypatch.setattr(module, "splits", lambda seed, make=module.splits, sizes=sizes: make(seed, *sizes))
    return [f"{scenario}-{model}" for scenario, model in cli.ALL]


def test_without_a_scenario_all_run_and_a_table_is_printed(small, tmp_path, call):
    done = call("--out", tmp_path / "all", "--seed", 3)
    assert done.status == 0, done.err
    table = [line.split() for line in done.out if line.startswith(("per-vector", "single", "seq2seq"))]
    assert [f"{row[0]}-{row[1]}" for row in table] == small
    said = "\n".join(done.out)
    assert f"begin with {tmp_path / 'all' / 'per-vector-attention' / 'report.html'}" in said
    for score in ("accuracy_ambiguous", "wer", "per", "exact_match"):
        assert re.search(rf"\b{score}\b[^\n]*:|\({score}: ", said), score  # what it means
    assert done.out[-1].startswith("On words whose form alone does not tell their tag, FC")
    for name in small:
        assert result_of(tmp_path / "all" / name)["seed"] == 3
    assert set(result_of(tmp_path / "all")["metrics"]) == set(small)
    assert_refused(call("--resume", tmp_path / "all"), "is finished")
    assert_refused(call("predict", tmp_path / "all", "I"), "is several runs: name one of them")
    [line] = call("predict", tmp_path / "all" / "seq2seq-attention", "two hundred and five").out
    assert " " not in line
    assert_refused(call("predict", tmp_path / "all" / "seq2seq-attention", "-"), "'-' has no words")
    unknown = call("predict", tmp_path / "all" / "seq2seq-attention", "I saw a saw")
    assert_refused(unknown, "the model knows none of these words: it was trained on such as ")


def test_all_can_be_stopped_and_resumed(small, tmp_path, call, monkeypatch):
    from experiments import scenarios

    assert call("--out", tmp_path / "whole").status == 0
    train, seen = scenarios._train, []

    def stopping(run, *rest):
        seen.append(run.path.name)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return train(run, *rest)

    monkeypatch.setattr(scenarios, "_train", stopping)
    done = call("--out", tmp_path / "parts")
    assert done.status == 130
    assert done.err[-1].endswith(f"Go on with: python -m experiments --resume {tmp_path / 'parts'}")
    assert call("--resume", tmp_path / "parts").status == 0
    assert seen == [*small[:3], *small[2:]]  # what was finished is not done again
    for name in small:
        whole, parts = (saving.load(tmp_path / run / name / "weights.npz") for run in ("whole", "parts"))
        assert all(whole[key].tobytes() == parts[key].tobytes() for key in whole)
