"""A scenario carried out: from the config.json of a run to its result.json."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

import minigrad as mg
from experiments import pictures, splits
from experiments.per_vector import PerVectorTask
from experiments.report import build as report
from experiments.report.recorder import Recorder
from experiments.runs import Run, versions
from experiments.seq2seq import Seq2SeqTask
from experiments.settings import UsageError
from experiments.single import SingleTask
from experiments.task import Labeller, Metrics, Task
from experiments.training import Training
from minigrad import nn
from minigrad.threads import set_num_threads

_CLASSES: list[type[Task]] = [PerVectorTask, SingleTask, Seq2SeqTask]
TASKS = {task_class.scenario: task_class for task_class in _CLASSES}


# --- what a run is made of ---------------------------------------------------------------------------------------


def config_of(
    task_class: type[Task],
    settings: Any,
    files: Mapping[str, str] | None = None,
    label: str | None = None,
    folds: int | None = None,
) -> dict[str, Any]:
    """What config.json holds: enough to begin the run again. files: each split's path; without any, it is generated."""
    files = files or {}
    if folds is not None and set(files) != {"train"}:
        raise UsageError("--folds splits the training file, and goes with --train alone")
    if label is not None and not files:
        raise UsageError("--label names an array of the file that --train names, and there is none")
    return {
        "scenario": task_class.scenario,
        "settings": asdict(settings),
        "files": splits.checksums(files),
        "label": label,
        "folds": folds,
        "versions": versions(),
    }


def read_config(run: Run) -> dict[str, Any]:
    """A run's config.json; UsageError unless a run can be made of it."""
    config = run.read_json("config.json")
    try:
        if config["scenario"] == "claims":
            raise ValueError("it is of claims, which have no model")
        if config["scenario"] == "all":
            replace(TASKS["single"].defaults[""], seed=config["seed"])
            return config
        TASKS[config["scenario"]].settings_class(**config["settings"])
        known = [(os.fspath(file["path"]), str(file["sha256"])) for file in config["files"].values()]
        if not isinstance(config["label"], (str, type(None))) or not isinstance(config["folds"], (int, type(None))):
            raise TypeError("label is a name and folds is a number, or both are null")
        if known and "train" not in config["files"]:
            raise ValueError("files have no train")
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        reason = f"it lacks {error}" if isinstance(error, LookupError) else str(error)
        raise UsageError(f"{run.path / 'config.json'} does not describe a run: {reason}") from None
    return config


def _paths(config: Mapping[str, Any]) -> dict[str, str]:
    """Each split's file."""
    return {name: file["path"] for name, file in config["files"].items()}


def tasks_of(config: Mapping[str, Any]) -> list[Task]:
    """The task of a run, or one for each fold, with weights initialised by the seed."""
    task_class = TASKS[config["scenario"]]
    settings = task_class.settings_class(**config["settings"])
    set_num_threads(settings.threads)
    files = _paths(config)
    if not files:
        mg.seed(settings.seed)
        return [task_class.embedded(settings)]
    suffix = Path(files["train"]).suffix.lower()
    if config["folds"] is None:
        data = [splits.load(files, config["label"], settings.seed)]
    else:
        data = splits.folds(files, config["label"], config["folds"], settings.seed)
    tasks = []
    for split in data:
        mg.seed(settings.seed)
        tasks.append(task_class.from_splits(settings, split, suffix))
    return tasks


# --- training ----------------------------------------------------------------------------------------------------


def carry_out(run: Run, config: dict[str, Any], tasks: list[Task]) -> dict[str, Any]:
    """Train what is not trained yet; returns the result, which is in result.json too."""
    return _train(run, config, tasks[0]) if config["folds"] is None else _train_folds(run, config, tasks)


def carry_out_part(path: Path, config: dict[str, Any], task: Task | None = None) -> dict[str, Any]:
    """The result of a run within a run, which may have been begun, or finished, before that was stopped."""
    run = Run.within(path, config)
    result = run.read_json("result.json") if run.finished else _train(run, config, task or tasks_of(config)[0])
    return {**result, "run": str(path)}


@np.errstate(over="ignore", invalid="ignore")  # what breaks down is told once, by the gradients' norm
def _train(run: Run, config: dict[str, Any], task: Task) -> dict[str, Any]:
    unknown = {split: task.unknown_labels(split) for split in ("dev", "test") if split in task.splits}
    _warn_of_unknown(unknown)
    mg.seed(task.settings.seed)
    recorder = Recorder(task, run.path)
    training = Training(task, recorder)
    run.restore(training)
    run.save(training)
    run.write_json("vocabulary.json", task.labeller.to_json())
    training.run(run.save)
    run.save_weights(task.model)
    recorder.finish()
    task.model.eval()
    metrics = {split: task.evaluate(split) for split in unknown}
    _draw(run, task, training)
    result = {
        "scenario": task.scenario,
        "model": task.settings.model,
        "metrics": metrics,
        "unknown_labels": unknown,
        "summary": {split: task.summary(scores) for split, scores in metrics.items()},
        "epochs": training.epoch,
        "best_epoch": training.best_epoch,
        "parameters": sum(p.size for p in task.model.parameters()),
        "seconds": round(training.seconds, 2),
        "seed": task.settings.seed,
        "versions": versions(),
        "files": config["files"],
    }
    write_report(run, config, task.model, result)
    run.write_json("result.json", result)
    return {**result, "run": str(run.path)}


def _warn_of_unknown(labels: Mapping[str, int]) -> None:
    for split, count in labels.items():
        if count:
            were = "label in {} does" if count == 1 else "labels in {} do"
            print(f"{count} {were.format(split)} not occur in train; counted as wrong", file=sys.stderr)


def _draw(run: Run, task: Task, training: Training) -> None:
    if pictures.available():
        pictures.draw_curves(run.path, training.history, task.score_name)
        pictures.draw_attention(run.path, task.model, task.example())
    else:
        print(pictures.MISSING, file=sys.stderr)


def _train_folds(run: Run, config: dict[str, Any], tasks: list[Task]) -> dict[str, Any]:
    """Each fold in a directory of its own; every sequence is tested once, by a model that has not seen it."""
    results = []
    for i, task in enumerate(tasks, 1):
        results.append(carry_out_part(run.path / f"fold-{i}", {**config, "folds": None, "fold": i}, task))
    sizes = [splits.count(task.splits["test"]) for task in tasks]
    accuracies = [r["metrics"]["test"]["accuracy"] for r in results]
    overall: Metrics = {"accuracy": sum(a * n for a, n in zip(accuracies, sizes)) / sum(sizes)}
    result = {
        **results[0],
        "metrics": {"test": overall},
        "unknown_labels": {"test": sum(r["unknown_labels"]["test"] for r in results)},
        "summary": {"test": f"in {len(tasks)}-fold cross-validation {tasks[0].summary(overall)}"},
        "folds": accuracies,
        "epochs": [r["epochs"] for r in results],
        "best_epoch": [r["best_epoch"] for r in results],
        "seconds": round(sum(r["seconds"] for r in results), 2),
    }
    del result["run"]
    run.write_json("result.json", result)
    return {**result, "run": str(run.path)}


# --- of a finished run -------------------------------------------------------------------------------------------


def write_report(run: Run, config: Mapping[str, Any], model: nn.Module, result: Mapping[str, Any]) -> Path:
    """report.html, and where it is."""
    task_class = TASKS[config["scenario"]]
    defaults = task_class.defaults[splits.suffix_of(_paths(config), task_class.defaults)]
    return report.write(run, model, result, defaults, task_class.score_name)


def labeller_of(run: Run, config: Mapping[str, Any]) -> Labeller:
    """A run's model with its best weights."""
    task_class = TASKS[config["scenario"]]
    settings = task_class.settings_class(**config["settings"])
    set_num_threads(settings.threads)
    state = run.read_json("vocabulary.json")
    try:
        labeller = task_class.labeller_class.from_json(settings, state)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise UsageError(f"{run.path / 'vocabulary.json'} cannot be used: {error}") from None
    run.load_weights(labeller.model)
    labeller.model.eval()
    return labeller
