"""A run's directory: what it leaves on disk, and how it is found again.

config.json      what was asked for; enough to start again        history.csv   a row an epoch
vocabulary.json  what the model reads and says                    result.json   the scores, written last
checkpoint.npz   everything that training needs to go on          weights.npz   the best weights
"""

from __future__ import annotations

import csv
import io
import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import minigrad
from experiments.settings import UsageError
from experiments.training import Training
from minigrad import nn, saving


class Run:
    """The directory of one run."""

    def __init__(self, path: Path):
        self.path = path

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Any]) -> Run:
        """A new directory with its config.json; UsageError if it exists or cannot be made."""
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            raise UsageError(f"{path} exists already: give another --out, or go on with it by --resume {path}") from None
        except OSError as error:
            raise UsageError(f"{path} cannot be made: {error.strerror}") from None
        run = cls(path)
        try:
            run.write_json("config.json", config)
        except OSError as error:
            raise UsageError(f"{path} cannot be written to: {error.strerror}") from None
        return run

    @classmethod
    def open(cls, path: Path) -> Run:
        """An existing run; UsageError if there is none at that path."""
        run = cls(path)
        if not (path / "config.json").is_file():
            raise UsageError(f"{path} is not the directory of a run: it has no config.json")
        return run

    @property
    def config(self) -> dict[str, Any]:
        return self.read_json("config.json")

    @property
    def finished(self) -> bool:
        return (self.path / "result.json").is_file()

    def read_json(self, name: str) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UsageError(f"{self.path} has no {name}: the run is not finished, or is not one") from None
        except ValueError as error:
            raise UsageError(f"{self.path / name} cannot be read: {error}") from None
        return content

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        self._write(name, json.dumps(content, indent=1, ensure_ascii=False) + "\n")

    def save(self, training: Training) -> None:
        """The checkpoint, and the history for people to read."""
        saving.save_checkpoint(self.path / "checkpoint.npz", training.state_dict())
        if training.history:
            text = io.StringIO()
            writer = csv.DictWriter(text, list(training.history[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(training.history)
            self._write("history.csv", text.getvalue())

    def restore(self, training: Training) -> None:
        """Back to where the last checkpoint was written, if there is one."""
        for leftover in self.path.glob(".*.npz.*"):  # of a write that was killed
            leftover.unlink()
        if (self.path / "checkpoint.npz").exists():
            try:
                training.load_state_dict(saving.load_checkpoint(self.path / "checkpoint.npz"))
            except ValueError as error:
                raise UsageError(f"{self.path / 'checkpoint.npz'} cannot be used: {str(error).splitlines()[0]}") from None

    def save_weights(self, model: nn.Module) -> None:
        saving.save(self.path / "weights.npz", model.state_dict())

    def load_weights(self, model: nn.Module) -> None:
        try:
            model.load_state_dict(saving.load(self.path / "weights.npz"))
        except FileNotFoundError:
            raise UsageError(f"{self.path} has no weights.npz: finish the run first (--resume {self.path})") from None
        except ValueError as error:
            raise UsageError(f"{self.path / 'weights.npz'} cannot be used: {str(error).splitlines()[0]}") from None

    def _write(self, name: str, text: str) -> None:
        temporary = self.path / f".{name}.part"
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, self.path / name)


def default_path(name: str) -> Path:
    """runs/<name>-<time>, with a number behind it if that second has one already."""
    base = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    candidates: Sequence[Path] = [base, *(base.with_name(f"{base.name}-{i}") for i in range(2, 1000))]
    return next(path for path in candidates if not path.exists())


def versions() -> dict[str, str]:
    return {"minigrad": minigrad.__version__, "numpy": np.__version__, "python": platform.python_version()}
