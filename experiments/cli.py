"""The command line: run a scenario, all of them, go on with a run, or label new input with one."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NoReturn

from experiments import claims, splits
from experiments.data.errors import DataError
from experiments.data.files import sha256
from experiments.report import build as report
from experiments.runs import Run, versions
from experiments.scenarios import (
    TASKS,
    carry_out,
    carry_out_part,
    config_of,
    labeller_of,
    read_config,
    tasks_of,
    write_report,
)
from experiments.settings import Settings, UsageError, add_options
from experiments.single import SingleTask
from experiments.task import Task, headline
from minigrad.threads import set_num_threads

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
    _open_closed_streams()
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


def _open_closed_streams() -> None:
    """Standard output and error that were closed (>&-) lead to nowhere, for they are written to in many places."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            setattr(sys, name, open(nowhere, "w", closefd=False))  # noqa: SIM115 (to the end of the process)


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
    config = config_of(task_class, replace(preset, **given), files, options.get("label"), options.get("folds"))
    tasks = tasks_of(config)  # before the directory is made: malformed data leaves nothing behind
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
    add_options(parser, task_class.defaults[""])
    return parser


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
    config = read_config(run)
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
    _tell(_go_on(run, config, tasks_of(config)))
    return None


def _go_on(run: Run, config: dict[str, Any], tasks: list[Task]) -> dict[str, Any]:
    with _resumable(run):
        return carry_out(run, config, tasks)


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
    else:
        first, last = (Path(result["run"]) / f"fold-{i}" / report.NAME for i in (1, len(result["folds"])))
        print(f"The reports of its models, for a browser: {first} to {last}")
    print(f"With {model}, {headline(result['summary'])}.")


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
        configs[f"{scenario}-{model}"] = config_of(task_class, settings)
    return configs


def _go_on_with_all(run: Run, config: dict[str, Any]) -> None:
    results = {}
    with _resumable(run):
        for name, part in _configs_of_all(config["seed"]).items():
            results[name] = carry_out_part(run.path / name, part)
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
        kept = f"what was measured is in {run.path / report.CLAIMS}; " if (run.path / report.CLAIMS).exists() else ""
        print(
            f"\nstopped; {kept}claims cannot be resumed: name those that are missing to measure them alone",
            file=sys.stderr,
        )
        sys.exit(130)
    if not holds:
        sys.stdout.flush()
        sys.exit(1)


# --- of a finished run -------------------------------------------------------------------------------------------


def _report(argv: list[str]) -> None:
    parser = _Parser(
        prog="python -m experiments report",
        description="Write a finished run's report.html anew; the same files give the same bytes.",
        allow_abbrev=False,
    )
    parser.add_argument("run", type=Path, help="the run's directory")
    kept = f"it is copied to {report.CLAIMS} in the run's directory, and stays in the report until that is deleted"
    parser.add_argument(
        "--claims", type=Path, metavar="RUN", help=f"a run of the claims, whose table is to stand in the report: {kept}"
    )
    options = parser.parse_args(argv)
    run = Run.open(options.run)
    config = read_config(run)
    _one_model(run, config)
    if options.claims is not None:
        run.write_text(report.CLAIMS, report.claims_in(options.claims))
    print(write_report(run, config, labeller_of(run, config).model, run.read_json("result.json")))


def _one_model(run: Run, config: Mapping[str, Any]) -> None:
    """UsageError for a run of several models."""
    if config["scenario"] == "all":
        raise UsageError(f"{run.path} is several runs: name one of them, such as {run.path / 'per-vector-attention'}")
    if config["folds"] is not None:
        raise UsageError(f"{run.path} is a cross-validation: name one of its models, such as {run.path / 'fold-1'}")


def _predict(argv: list[str]) -> None:
    parser = _Parser(
        prog="python -m experiments predict",
        description="Label new input with a finished run's weights.",
        allow_abbrev=False,
    )
    parser.add_argument("run", type=Path, help="the run's directory")
    parser.add_argument("input", help="a text, a .txt file with a text a line, or a file of frames (.ts, .npz)")
    options = parser.parse_args(argv)
    run = Run.open(options.run)
    config = read_config(run)
    _one_model(run, config)
    if not options.input.strip():
        raise UsageError("there is nothing to label: the input is empty")
    for line in labeller_of(run, config).predict(options.input):
        print(line)
