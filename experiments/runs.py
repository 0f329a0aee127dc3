"""A run's directory: what it leaves on disk, and how it is found again.

config.json      what was asked for; enough to start again        history.csv   a row an epoch
vocabulary.json  what the model reads and says                    result.json   the scores, written last
checkpoint.npz   everything that training needs to go on          weights.npz   the best weights
initial.npz      the first weights, and the report's examples     recording.npz what was noted while training
report.html      the report, made of these files
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import platform
import shlex
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import minigrad
from experiments.settings import UsageError
from experiments.training import Training
from experiments.writing import write_text, written
from minigrad import nn, saving


class Run:
    """The directory of one run."""

    def __init__(self, path: Path):
        self.path = path

    @classmethod
    def create(cls, path: Path | None, config: Mapping[str, Any]) -> Run:
        """A new directory, `path` or one named by the time, with its config.json; UsageError if it cannot be made."""
        for candidate in [path] if path is not None else _named_by_time(config["scenario"]):
            try:
                candidate.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                raise UsageError(f"{candidate} cannot be made: {error.strerror}") from None
            return cls.within(candidate, config)
        raise UsageError(f"{path} exists already: give another --out")

    @classmethod
    def within(cls, path: Path, config: Mapping[str, Any]) -> Run:
        """A part of a greater run: new, or begun before that was stopped."""
        run = cls(path)
        try:
            path.mkdir(exist_ok=True)
            if not (path / "config.json").exists():
                run.write_json("config.json", config)
        except OSError as error:
            raise UsageError(f"{path} cannot be written to: {error.strerror}") from None
        return run

    @classmethod
    def open(cls, path: Path) -> Run:
        """An existing run; UsageError if there is none at that path."""
        if not (path / "config.json").is_file():
            raise UsageError(f"{path} is not the directory of a run: it has no config.json")
        return cls(path)

    @property
    def finished(self) -> bool:
        return (self.path / "result.json").is_file()

    @property
    def resume_command(self) -> str:
        return f"python -m experiments --resume {shlex.quote(str(self.path))}"

    def read_json(self, name: str) -> dict[str, Any]:
        try:
            content = json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UsageError(f"{self.path} has no {name}: finish the run first ({self.resume_command})") from None
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{self.path / name} is not readable as JSON: {error}") from None
        if not isinstance(content, dict):
            raise UsageError(f"{self.path / name} should hold a JSON object, and holds a {type(content).__name__}")
        return content

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        self.write_text(name, json.dumps(content, indent=1, ensure_ascii=False) + "\n")

    def save(self, training: Training) -> None:
        """The checkpoint, and the history for people to read."""
        with written(self.path / "checkpoint.npz"):
            saving.save_checkpoint(self.path / "checkpoint.npz", training.state_dict())
        if training.history:
            text = io.StringIO()
            writer = csv.DictWriter(text, list(training.history[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(training.history)
            self.write_text("history.csv", text.getvalue())

    def restore(self, training: Training) -> None:
        """Back to where the last checkpoint was written, if there is one."""
        for leftover in [*self.path.glob(".*.tmp"), *self.path.glob(".*.part")]:  # of a write that was killed
            leftover.unlink()
        if (self.path / "checkpoint.npz").exists():
            with self._usable("checkpoint.npz"):
                training.load_state_dict(saving.load_checkpoint(self.path / "checkpoint.npz"))

    def save_weights(self, model: nn.Module) -> None:
        with written(self.path / "weights.npz"):
            saving.save(self.path / "weights.npz", model.state_dict())

    def load_weights(self, model: nn.Module) -> None:
        with self._usable("weights.npz"):
            model.load_state_dict(saving.load(self.path / "weights.npz"))

    @contextlib.contextmanager
    def _usable(self, name: str) -> Iterator[None]:
        """A file that is missing, damaged or of another model is the user's to know, in one line."""
        try:
            yield
        except FileNotFoundError:
            raise UsageError(f"{self.path} has no {name}: finish the run first ({self.resume_command})") from None
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            reason = str(error).removeprefix(f"{self.path / name} ")
            raise UsageError(f"{self.path / name} cannot be used: {reason}") from None

    def write_text(self, name: str, text: str) -> None:
        """All or nothing."""
        write_text(self.path / name, text)


def _named_by_time(name: str) -> Iterator[Path]:
    """runs/<name>-<time>, then with a number behind it, for those that start in the same second."""
    base = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    yield base
    for i in range(2, 1000):
        yield base.with_name(f"{base.name}-{i}")


def versions() -> dict[str, str]:
    """Of what a result may depend on."""
    return {"minigrad": minigrad.__version__, "numpy": np.__version__, "python": platform.python_version()}
