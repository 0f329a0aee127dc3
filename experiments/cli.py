"""The command line: run a scenario, all of them, go on with a run, or label new input with one."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

import minigrad as mg
from experiments import claims, pictures, splits
from experiments.data.errors import DataError
from experiments.data.files import sha256
from experiments.per_vector import PerVectorTask
from experiments.report import build as report
from experiments.report.recorder import Recorder
from experiments.runs import Run, versions
from experiments.seq2seq import Seq2SeqTask
from experiments.settings import Settings, UsageError, add_options
from experiments.single import SingleTask
from experiments.task import Labeller, Metrics, Task
from experiments.training import Training
from minigrad import nn
from minigrad.threads import set_num_threads

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
LOCAL = (
    "Tagging is local: on the generated English and on UD English EWT a window of two neighbours on each side "
    "(--model window) does about as well as self-attention."
)
LEGEND = """
accuracy: the share of labels that are right (one of six speakers by chance: 0.167); accuracy_ambiguous: of words whose
form alone does not tell their tag; wer: the share of sequences that are not wholly right (exact_match: that are); per:
symbols to change, leave out or put in, for each symbol that is right."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Exit status 0; 1 for a claim that fails; 2 with one line for what cannot be done; 130 when stopped by Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")
    try:
        _dispatch(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except (UsageError, DataError) as error:
        _complain(str(error))
    except FloatingPointError as error:
        _complain(f"training broke down: {error}; a smaller --lr may help")
    except MemoryError as error:
        _complain(f"not enough memory: {error}; try a smaller model or smaller batches")
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        _complain(f"{error.filename or 'the system says'}: {error.strerror or error}")
    except KeyboardInterrupt:
        print("\nexperiments: stopped", file=sys.stderr)
        sys.exit(130)
    sys.exit(0)


def _complain(text: str) -> NoReturn:
    print("experiments:", " ".join(text.split()), file=sys.stderr)
    sys.exit(2)


class _Parser(argparse.ArgumentParser):
    """argparse, with its complaint on one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see: {self.prog} --help)")


def _dispatch(argv: list[str]) -> None:
    if argv and argv[0] in TASKS:
        _run_scenario(TASKS[argv[0]], argv[1:])
    elif argv and argv[0] == "predict":
        _predict(argv[1:])
    elif argv and argv[0] == "report":
        _report(argv[1:])
    elif argv and argv[0] == "claims":
        _claims(argv[1:])
    else:
        _run_all(argv)


def _new_or_resumed(parser: argparse.ArgumentParser, argv: list[str]) -> dict[str, Any]:
    """The options that were given; without --resume, --out is known to be free before anything takes time."""
    options = {name: value for name, value in vars(parser.parse_args(argv)).items() if value is not None}
    if "resume" in options and len(options) > 1:
        raise UsageError("--resume goes on with a run as it was begun, and takes no other options")
    if "out" in options and os.path.lexists(options["out"]):
        raise UsageError(f"{options['out']} exists already: give another --out")
    return options


# --- one scenario ------------------------------------------------------------------------------------------------


def _run_scenario(task_class: type[Task], argv: list[str]) -> None:
    options = _new_or_resumed(_scenario_parser(task_class), argv)
    if "resume" in options:
        return _resume(options["resume"], task_class.scenario)
    files = {name: os.path.abspath(options[name]) for name in splits.SPLITS if name in options}
    given = {f.name: options[f.name] for f in fields(task_class.settings_class) if f.name in options}
    preset = task_class.defaults[splits.suffix_of(files, task_class.defaults)]
    config = _config(task_class, replace(preset, **given), files, options.get("label"), options.get("folds"))
    tasks = _tasks(config)  # before the directory is made: malformed data leaves nothing behind
    _tell(_go_on(Run.create(options.get("out"), config), config, tasks))
    return None


def _scenario_parser(task_class: type[Task]) -> _Parser:
    parser = _Parser(
        prog=f"python -m experiments {task_class.scenario}",
        description=task_class.settings_class.__doc__,
        allow_abbrev=False,
    )
    suffixes = ", ".join(suffix for suffix in task_class.defaults if suffix)
    parser.add_argument("--train", metavar="FILE", help=f"training data ({suffixes}); without it data is generated")
    parser.add_argument("--dev", metavar="FILE", help="data that tells the best epoch; without it a tenth of train")
    parser.add_argument("--test", metavar="FILE", help="data to report on")
    if task_class is SingleTask:
        parser.add_argument("--label", metavar="NAME", help="the array of an .npz file that holds the labels")
        parser.add_argument(
            "--folds", type=int, metavar="K", help="instead of dev and test: K-fold cross-validation on train"
        )
    parser.add_argument("--out", type=Path, help=f"directory of the run (default: runs/{task_class.scenario}-TIME)")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="go on with a run that was stopped")
    add_options(parser, task_class.settings_class)
    return parser


def _config(
    task_class: type[Task], settings: Any, files: Mapping[str, str], label: str | None, folds: int | None
) -> dict[str, Any]:
    """What config.json holds: enough to begin the run again."""
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


def _tasks(config: dict[str, Any]) -> list[Task]:
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


# --- stopping and going on ---------------------------------------------------------------------------------------


@contextmanager
def _resumable(run: Run) -> Iterator[None]:
    """Ctrl-C within says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"\nstopped; all finished epochs are saved. Go on with: {run.resume_command}", file=sys.stderr)
        sys.exit(130)


def _resume(path: Path, scenario: str | None = None) -> None:
    run = Run.open(path)
    config = _config_of(run)
    if run.finished:
        raise UsageError(f"{path} is finished: result.json has its scores")
    if "fold" in config:
        raise UsageError(f"{path} is a part of a cross-validation: go on with the whole, --resume {path.parent}")
    if scenario not in (None, config["scenario"]):
        raise UsageError(f"{path} is a run of {config['scenario']}, not of {scenario}")
    if config["scenario"] == "all":
        return _go_on_with_all(run, config)
    for file in config["files"].values():
        if sha256(file["path"]) != file["sha256"]:
            raise UsageError(f"{file['path']} has changed since the run was begun: start a new run")
    _tell(_go_on(run, config, _tasks(config)))
    return None


def _config_of(run: Run) -> dict[str, Any]:
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


def _go_on(run: Run, config: dict[str, Any], tasks: list[Task]) -> dict[str, Any]:
    """Train what is not trained yet; returns the result, which is in result.json too."""
    with _resumable(run):
        return _train(run, config, tasks[0]) if config["folds"] is None else _train_folds(run, config, tasks)


def _part(path: Path, config: dict[str, Any], task: Task | None = None) -> dict[str, Any]:
    """The result of a run within a run, which may have been begun, or finished, before that was stopped."""
    run = Run.within(path, config)
    result = run.read_json("result.json") if run.finished else _train(run, config, task or _tasks(config)[0])
    return {**result, "run": str(path)}


@np.errstate(over="ignore", invalid="ignore")  # what breaks down is told once, by the gradients' norm
def _train(run: Run, config: dict[str, Any], task: Task) -> dict[str, Any]:
    unknown = {split: task.unknown_labels(split) for split in ("dev", "test") if split in task.splits}
    for split, count in unknown.items():
        if count:
            were = "label in {} does" if count == 1 else "labels in {} do"
            print(f"{count} {were.format(split)} not occur in train; counted as wrong", file=sys.stderr)
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
    if pictures.available():
        pictures.draw_curves(run.path, training.history, task.score_name)
        pictures.draw_attention(run.path, task.model, task.example())
    else:
        print(pictures.MISSING, file=sys.stderr)
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
    _write_report(run, config, task.model, result)
    run.write_json("result.json", result)
    return {**result, "run": str(run.path)}


def _train_folds(run: Run, config: dict[str, Any], tasks: list[Task]) -> dict[str, Any]:
    """Each fold in a directory of its own; every sequence is tested once, by a model that has not seen it."""
    results = []
    for i, task in enumerate(tasks, 1):
        results.append(_part(run.path / f"fold-{i}", {**config, "folds": None, "fold": i}, task))
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


def _tell(result: dict[str, Any]) -> None:
    """The scores on standard output; the last line is the result in one sentence."""
    scenario, model = result["scenario"], result["model"]
    print(f"{scenario}, {model}: {result['parameters']:,} parameters, {result['seconds']:.0f} s, in {result['run']}")
    for split, scores in result["metrics"].items():
        shown = [f"{name} {value:.4f}" for name, value in scores.items() if value is not None]
        print(f"  {split}: {', '.join(shown)}")
    if scenario == "per-vector" and result["files"]:
        print(LOCAL)
    if "folds" not in result:
        print(f"Its report, for a browser: {Path(result['run']) / report.NAME}")
    split = "test" if "test" in result["summary"] else "dev"
    print(f"With {model}, {result['summary'][split]}.")


# --- all of them -------------------------------------------------------------------------------------------------


def _run_all(argv: list[str]) -> None:
    names = "|".join(TASKS)
    parser = _Parser(
        prog="python -m experiments",
        description="Run all experiments, small, on generated data.",
        epilog=f"one of them: python -m experiments {names} --help\n"
        "label new input with a finished run: python -m experiments predict RUN INPUT\n"
        "write a finished run's report.html anew: python -m experiments report RUN\n"
        "measure what is said of self-attention: python -m experiments claims --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--seed", type=int, help="seed of the data, the initial weights and the training (default: 0)")
    parser.add_argument("--out", type=Path, help="directory for the runs (default: runs/all-TIME)")
    parser.add_argument(
        "--resume", type=Path, metavar="RUN", help="go on with a run of one model, or of all, that was stopped"
    )
    if argv and not argv[0].startswith("-"):
        others = "predict, report, claims, or nothing at all"
        raise UsageError(f"there is no {argv[0]!r}: choose {', '.join(TASKS)}, {others}")
    options = _new_or_resumed(parser, argv)
    if "resume" in options:
        return _resume(options["resume"])
    config = {"scenario": "all", "seed": options.get("seed", 0), "versions": versions()}
    _configs_of_all(config["seed"])  # complains of a bad seed before a directory is made
    return _go_on_with_all(Run.create(options.get("out"), config), config)


def _configs_of_all(seed: int) -> dict[str, dict[str, Any]]:
    """The config of every experiment, by the name of its directory."""
    configs = {}
    for scenario, model in ALL:
        task_class = TASKS[scenario]
        settings = replace(task_class.defaults[""], seed=seed, model=model)
        configs[f"{scenario}-{model}"] = _config(task_class, settings, {}, None, None)
    return configs


def _go_on_with_all(run: Run, config: dict[str, Any]) -> None:
    results = {}
    with _resumable(run):
        for name, part in _configs_of_all(config["seed"]).items():
            results[name] = _part(run.path / name, part)
        scores = {name: r["metrics"]["test"] for name, r in results.items()}
        run.write_json("result.json", {"scenario": "all", "seed": config["seed"], "metrics": scores})
    print(f"\n{'scenario':12}{'model':11}{'parameters':>11}{'seconds':>9}  scores on test")
    for r in results.values():
        shown = ", ".join(f"{n} {v:.3f}" for n, v in r["metrics"]["test"].items() if v is not None)
        print(f"{r['scenario']:12}{r['model']:11}{r['parameters']:>11,}{r['seconds']:>9.1f}  {shown}")
    print(LEGEND)
    print(
        f"\nThe runs, with their pictures, are in {run.path}. Each has a report for a browser: begin with "
        f"{run.path / 'per-vector-attention' / report.NAME}."
    )
    print(
        "On words whose form alone does not tell their tag, FC without context is right for "
        f"{scores['per-vector-fc']['accuracy_ambiguous']:.3f} and self-attention for "
        f"{scores['per-vector-attention']['accuracy_ambiguous']:.3f}; self-attention names "
        f"{scores['single-attention']['accuracy']:.3f} of the speakers and writes "
        f"{scores['seq2seq-attention']['exact_match']:.3f} of the unseen numbers."
    )


# --- claims ------------------------------------------------------------------------------------------------------


def _claims(argv: list[str]) -> None:
    parser = _Parser(
        prog="python -m experiments claims",
        description="Measure what is said of self-attention and of gradients; exit status 1 if some does not hold.",
        allow_abbrev=False,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(claims.CLAIMS)} (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the data and the initial weights (default: 0)")
    parser.add_argument("--out", type=Path, help="directory for the numbers and figures (default: runs/claims-TIME)")
    options = _new_or_resumed(parser, argv)
    names = list(dict.fromkeys(options["names"])) or list(claims.CLAIMS)
    if unknown := [name for name in names if name not in claims.CLAIMS]:
        raise UsageError(f"there is no claim {unknown[0]!r}: choose {', '.join(claims.CLAIMS)}, or none for all")
    settings = Settings(seed=options["seed"])
    set_num_threads(settings.threads)
    config = {"scenario": "claims", "names": names, "seed": settings.seed, "versions": versions()}
    run = Run.create(options.get("out"), config)
    try:
        holds = claims.run(run, names, settings.seed)
    except KeyboardInterrupt:
        kept = f"what was measured is in {run.path / report.CLAIMS}. " if (run.path / report.CLAIMS).exists() else ""
        print(f"\nstopped; {kept}Claims cannot be resumed; the others can be named.", file=sys.stderr)
        sys.exit(130)
    if not holds:
        sys.stdout.flush()
        sys.exit(1)


# --- of a finished run -------------------------------------------------------------------------------------------


def _report(argv: list[str]) -> None:
    parser = _Parser(prog="python -m experiments report", description="Write a finished run's report.html anew.")
    parser.add_argument("run", type=Path, help="the run's directory")
    parser.add_argument("--claims", type=Path, metavar="RUN", help="a run of the claims, whose table is to stand in it")
    options = parser.parse_args(argv)
    run = Run.open(options.run)
    config = _config_of(run)
    _one_model(run, config)
    if options.claims is not None:
        run.write_text(report.CLAIMS, report.claims_in(options.claims))
    print(_write_report(run, config, _labeller(run, config).model, run.read_json("result.json")))


def _write_report(run: Run, config: Mapping[str, Any], model: nn.Module, result: Mapping[str, Any]) -> Path:
    task_class = TASKS[config["scenario"]]
    defaults = task_class.defaults[splits.suffix_of(_paths(config), task_class.defaults)]
    return report.write(run, model, result, defaults, task_class.score_name)


def _paths(config: Mapping[str, Any]) -> dict[str, str]:
    """Each split's file."""
    return {name: file["path"] for name, file in config["files"].items()}


def _one_model(run: Run, config: Mapping[str, Any]) -> None:
    """UsageError for a run of several models."""
    if config["scenario"] == "all":
        raise UsageError(f"{run.path} is several runs: name one of them, such as {run.path / 'per-vector-attention'}")
    if config["folds"] is not None:
        raise UsageError(f"{run.path} is a cross-validation: name one of its models, such as {run.path / 'fold-1'}")


def _predict(argv: list[str]) -> None:
    parser = _Parser(prog="python -m experiments predict", description="Label new input with a finished run's weights.")
    parser.add_argument("run", type=Path, help="the run's directory")
    parser.add_argument("input", help="a text, a .txt file with a text a line, or a file of frames (.ts, .npz)")
    options = parser.parse_args(argv)
    run = Run.open(options.run)
    config = _config_of(run)
    _one_model(run, config)
    if not options.input.strip():
        raise UsageError("there is nothing to label: the input is empty")
    for line in _labeller(run, config).predict(options.input):
        print(line)


def _labeller(run: Run, config: dict[str, Any]) -> Labeller:
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
