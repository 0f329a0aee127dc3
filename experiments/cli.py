"""The command line: run a scenario, all of them, go on with a run, or label new input with one."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, NoReturn

import minigrad as mg
from experiments import pictures, splits
from experiments.data.errors import DataError
from experiments.per_vector import PerVectorTask
from experiments.runs import Run, default_path, versions
from experiments.seq2seq import Seq2SeqTask
from experiments.settings import UsageError, add_options
from experiments.single import SingleTask
from experiments.task import Metrics, Task
from experiments.training import Training

TASKS: dict[str, type[Task]] = {task.scenario: task for task in (PerVectorTask, SingleTask, Seq2SeqTask)}

# Without a scenario: each on the project's own data, with the lecture's comparison where there is one.
ALL = [
    ("per-vector", "fc"),
    ("per-vector", "window"),
    ("per-vector", "attention"),
    ("single", "fc"),
    ("single", "attention"),
    ("seq2seq", "attention"),
]
LOCAL = "Tagging is local: a window of two neighbours on each side (--model window) does about as well as self-attention here."


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Exit status 0; 2 with one line for what the user got wrong; 130 when stopped by Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    try:
        _dispatch(list(sys.argv[1:] if argv is None else argv))
    except (UsageError, DataError) as error:
        sys.exit(_complain(" ".join(str(error).split())))
    except FloatingPointError as error:
        sys.exit(_complain(f"training broke down: {error}; a smaller --lr may help"))
    except BrokenPipeError:
        sys.exit(0)
    sys.exit(0)


def _complain(text: str) -> int:
    print(f"experiments: {text}", file=sys.stderr)
    return 2


class _Parser(argparse.ArgumentParser):
    """argparse, with its complaint on one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see: {self.prog} --help)")


def _dispatch(argv: list[str]) -> None:
    if argv and argv[0] in TASKS:
        _run_scenario(TASKS[argv[0]], argv[1:])
    elif argv and argv[0] == "predict":
        _predict(argv[1:])
    else:
        _run_all_or_resume(argv)


def _run_all_or_resume(argv: list[str]) -> None:
    parser = _Parser(
        prog="python -m experiments",
        description=f"Run all experiments, small, on generated data; or one: python -m experiments {'|'.join(TASKS)} --help; "
        "or label new input with a finished run: python -m experiments predict RUN INPUT",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the data, the initial weights and the training")
    parser.add_argument("--out", type=Path, help="directory for the runs (default: runs/all-TIME)")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="go on with a run that was stopped")
    options = parser.parse_args(argv)
    if options.resume is not None:
        _resume(options.resume)
    else:
        _run_all(options.seed, options.out or default_path("all"))


# --- one scenario ------------------------------------------------------------------------------------------------


def _run_scenario(task_class: type[Task], argv: list[str]) -> None:
    options = vars(_scenario_parser(task_class).parse_args(argv))
    if options["resume"] is not None:
        if set(argv) - {"--resume", str(options["resume"])} and len(argv) > 2:
            raise UsageError("--resume goes on with a run as it was begun, and takes no other options")
        return _resume(options["resume"])
    files = {name: str(Path(options[name]).resolve()) for name in splits.SPLITS if options[name] is not None}
    given = {f.name: options[f.name] for f in fields(task_class.settings_class) if f.name in options}
    preset = task_class.defaults[splits.suffix_of(files, task_class.defaults)]
    config = _config(task_class, replace(preset, **given), files, options.get("label"), options.get("folds"))
    result = _start(config, options["out"] or default_path(task_class.scenario))
    _tell(task_class.scenario, result)
    return None


def _scenario_parser(task_class: type[Task]) -> _Parser:
    parser = _Parser(prog=f"python -m experiments {task_class.scenario}", description=task_class.settings_class.__doc__)
    suffixes = ", ".join(suffix for suffix in task_class.defaults if suffix)
    parser.add_argument("--train", metavar="FILE", help=f"training data ({suffixes}); without it data is generated")
    parser.add_argument("--dev", metavar="FILE", help="data that tells the best epoch; without it a tenth of train")
    parser.add_argument("--test", metavar="FILE", help="data to report on")
    if task_class is SingleTask:
        parser.add_argument("--label", metavar="NAME", help="the array of an .npz file that holds the labels")
        parser.add_argument("--folds", type=int, metavar="K", help="instead of dev and test: K-fold cross-validation on train")
    parser.add_argument("--out", type=Path, help=f"directory of the run (default: runs/{task_class.scenario}-TIME)")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="go on with a run that was stopped")
    settings = parser.add_argument_group("hyperparameters", "defaults depend on the kind of data; config.json shows them")
    add_options(settings, task_class.settings_class)
    return parser


def _config(
    task_class: type[Task], settings: Any, files: Mapping[str, str], label: str | None, folds: int | None
) -> dict[str, Any]:
    """What config.json holds: enough to begin the run again."""
    if folds is not None and set(files) != {"train"}:
        raise UsageError("--folds splits the training file, and goes with --train alone")
    return {
        "scenario": task_class.scenario,
        "settings": asdict(settings),
        "files": splits.checksums(files),
        "label": label,
        "folds": folds,
        "versions": versions(),
    }


def _start(config: dict[str, Any], path: Path) -> dict[str, Any]:
    tasks = _tasks(config)  # before the directory is made: malformed data leaves nothing behind
    return _go_on(Run.create(path, config), config, tasks)


def _resume(path: Path) -> None:
    run = Run.open(path)
    if run.finished:
        raise UsageError(f"{path} is finished: result.json has its scores")
    config = run.config
    for file in config["files"].values():
        if splits.sha256(file["path"]) != file["sha256"]:
            raise UsageError(f"{file['path']} has changed since the run was begun: start a new run")
    _tell(config["scenario"], _go_on(run, config, _tasks(config)))


def _tasks(config: dict[str, Any]) -> list[Task]:
    """The task of a run, or one for each fold, with weights initialised by the seed."""
    task_class = TASKS[config["scenario"]]
    settings = task_class.settings_class(**config["settings"])
    files = {name: file["path"] for name, file in config["files"].items()}
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


def _go_on(run: Run, config: dict[str, Any], tasks: list[Task]) -> dict[str, Any]:
    """Train what is not trained yet; returns the result, which is in result.json too."""
    command = f"python -m experiments --resume {shlex.quote(str(run.path))}"
    try:
        if config["folds"] is None:
            return _train(run, config, tasks[0])
        return _train_folds(run, config, tasks)
    except KeyboardInterrupt:
        print(f"\nstopped; what was done is saved in {run.path}. Go on with: {command}", file=sys.stderr)
        sys.exit(130)


def _train(run: Run, config: dict[str, Any], task: Task) -> dict[str, Any]:
    for split in ("dev", "test"):
        if split in task.splits and (unknown := task.unknown_labels(split)):
            print(f"{unknown} labels in {split} do not occur in train; they count as wrong", file=sys.stderr)
    mg.seed(task.settings.seed)
    training = Training(task)
    run.restore(training)
    run.save(training)
    run.write_json("vocabulary.json", task.labeller.to_json())
    training.run(run.save)
    run.save_weights(task.model)
    task.model.eval()
    metrics = {split: task.evaluate(split) for split in ("dev", "test") if split in task.splits}
    if pictures.AVAILABLE:
        pictures.draw_curves(run.path, training.history, task.score_name)
        pictures.draw_attention(run.path, task.model, task.example())
    else:
        print(pictures.MISSING, file=sys.stderr)
    result = {
        "scenario": task.scenario,
        "model": task.settings.model,
        "metrics": metrics,
        "summary": {split: task.summary(scores) for split, scores in metrics.items()},
        "epochs": training.epoch,
        "best_epoch": training.best_epoch,
        "parameters": sum(p.size for p in task.model.parameters()),
        "seconds": round(training.seconds, 2),
        "seed": task.settings.seed,
        "versions": versions(),
        "files": config["files"],
    }
    run.write_json("result.json", result)
    return {**result, "run": str(run.path)}


def _train_folds(run: Run, config: dict[str, Any], tasks: list[Task]) -> dict[str, Any]:
    """Each fold in a directory of its own; every sequence is tested once, by a model that has not seen it."""
    results = []
    for i, task in enumerate(tasks, 1):
        path = run.path / f"fold-{i}"
        fold = Run(path) if (path / "config.json").exists() else Run.create(path, {**config, "folds": None, "fold": i})
        results.append(fold.read_json("result.json") if fold.finished else _train(fold, config, task))
    sizes = [splits.count(task.splits["test"]) for task in tasks]
    accuracies = [r["metrics"]["test"]["accuracy"] for r in results]
    overall: Metrics = {"accuracy": sum(a * n for a, n in zip(accuracies, sizes)) / sum(sizes)}
    metrics = {"test": overall}
    result = {
        **results[0],
        "metrics": metrics,
        "summary": {"test": f"in {len(tasks)}-fold cross-validation {tasks[0].summary(overall)}"},
        "folds": accuracies,
        "seconds": round(sum(r["seconds"] for r in results), 2),
    }
    result.pop("run", None)
    run.write_json("result.json", result)
    return {**result, "run": str(run.path)}


def _tell(scenario: str, result: dict[str, Any]) -> None:
    """The scores on standard output; the last line is the result in one sentence."""
    print(f"{scenario}, {result['model']}: {result['parameters']:,} parameters, {result['seconds']:.0f} s, in {result['run']}")
    for split, scores in result["metrics"].items():
        shown = [f"{name} {value:.4f}" for name, value in scores.items() if value is not None]
        print(f"  {split}: {', '.join(shown)}")
    if scenario == "per-vector" and result["files"]:
        print(LOCAL)
    split = "test" if "test" in result["summary"] else "dev"
    print(f"With {result['model']}, {result['summary'][split]}.")


# --- all of them -------------------------------------------------------------------------------------------------


def _run_all(seed: int, out: Path) -> None:
    if out.exists():
        raise UsageError(f"{out} exists already: give another --out")
    results = []
    for scenario, model in ALL:
        task_class = TASKS[scenario]
        settings = replace(task_class.defaults[""], seed=seed, model=model)
        config = _config(task_class, settings, {}, None, None)
        results.append(_start(config, out / f"{scenario}-{model}"))
    print(f"\n{'scenario':12}{'model':11}{'parameters':>11}{'seconds':>9}  scores on test")
    for r in results:
        scores = ", ".join(f"{n} {v:.3f}" for n, v in r["metrics"]["test"].items() if v is not None)
        print(f"{r['scenario']:12}{r['model']:11}{r['parameters']:>11,}{r['seconds']:>9.1f}  {scores}")
    by_name = {(r["scenario"], r["model"]): r["metrics"]["test"] for r in results}
    print(f"\nThe runs, with their pictures, are in {out}.")
    print(
        "On words whose form alone does not tell their tag, FC without context is right for "
        f"{by_name['per-vector', 'fc']['accuracy_ambiguous']:.3f} and self-attention for "
        f"{by_name['per-vector', 'attention']['accuracy_ambiguous']:.3f}; self-attention names "
        f"{by_name['single', 'attention']['accuracy']:.3f} of the speakers and writes "
        f"{by_name['seq2seq', 'attention']['exact_match']:.3f} of the unseen numbers."
    )


# --- prediction --------------------------------------------------------------------------------------------------


def _predict(argv: list[str]) -> None:
    parser = _Parser(prog="python -m experiments predict", description="Label new input with a finished run's weights.")
    parser.add_argument("run", type=Path, help="the run's directory")
    parser.add_argument("input", help="a text, a .txt file with a text a line, or a file of frames (.ts, .npz)")
    options = parser.parse_args(argv)
    run = Run.open(options.run)
    config = run.config
    if config["folds"] is not None:
        raise UsageError(f"{options.run} is a cross-validation: name one of its models, {options.run / 'fold-1'}")
    task_class = TASKS[config["scenario"]]
    settings = task_class.settings_class(**config["settings"])
    labeller = task_class.labeller_class.from_json(settings, run.read_json("vocabulary.json"))
    run.load_weights(labeller.model)
    labeller.model.eval()
    for line in labeller.predict(options.input):
        print(line)
