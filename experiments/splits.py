"""The data of a run: generated, or read from the files that were named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.data import batching
from experiments.data.errors import DataError
from experiments.data.files import read, sha256
from experiments.data.ts import Frames
from experiments.settings import UsageError

SPLITS = ("train", "dev", "test")


def suffix_of(files: Mapping[str, str], known: Mapping[str, Any]) -> str:
    """The training file's suffix, "" without one; UsageError for one that the scenario does not read."""
    if not files:
        return ""
    if "train" not in files:
        raise UsageError(f"--{next(iter(files))} was given without --train")
    suffixes = [suffix for suffix in known if suffix]
    for name in files.values():
        if Path(name).is_dir():
            raise DataError(name, "is a directory; name a file")
        if Path(name).suffix.lower() not in suffixes:
            raise DataError(name, f"unknown suffix {Path(name).suffix!r}; this scenario reads {', '.join(suffixes)}")
    if len({Path(name).suffix.lower() for name in files.values()}) > 1:
        raise UsageError(f"all files of a run are of one kind, and these differ: {', '.join(files.values())}")
    return Path(files["train"]).suffix.lower()


def load(files: Mapping[str, str], label: str | None, seed: int) -> dict[str, Any]:
    """The files' data by split. Without a dev file a tenth of train, drawn by the seed, is dev."""
    splits = {name: read(path, label) for name, path in files.items()}
    if "dev" not in splits:
        train = splits["train"]
        if count(train) < 2:
            raise DataError(files["train"], "one example cannot be split into train and dev: give more, or --dev FILE")
        kept, held = batching.split(count(train), 0.1, np.random.default_rng([seed, 3]))
        splits["train"], splits["dev"] = subset(train, kept), subset(train, held)
    for name, data in splits.items():
        _check_dimensions(files.get(name, files["train"]), data, splits["train"])
    return splits


def _check_dimensions(path: str, data: Any, train: Any) -> None:
    if isinstance(data, Frames) and (data.sequences[0].shape[1] != train.sequences[0].shape[1]):
        given, expected = data.sequences[0].shape[1], train.sequences[0].shape[1]
        what = "dimension" if given == 1 else "dimensions"
        raise DataError(path, f"its frames have {given} {what}, and those of the training file {expected}")


def folds(files: Mapping[str, str], label: str | None, k: int, seed: int) -> list[dict[str, Any]]:
    """For each of k stratified folds: train without it, and it as test."""
    data = read(files["train"], label)
    if not isinstance(data, Frames):
        raise UsageError("--folds is for data with one label a sequence")
    try:
        held = batching.stratified_folds(data.labels, k, np.random.default_rng([seed, 4]))
    except ValueError as error:
        raise UsageError(f"--folds: {error}") from None
    everything = np.arange(count(data))
    return [{"train": subset(data, np.setdiff1d(everything, fold)), "test": subset(data, fold)} for fold in held]


def count(data: Any) -> int:
    return len(data.labels) if isinstance(data, Frames) else len(data)


def subset(data: Any, indices: np.ndarray) -> Any:
    if isinstance(data, Frames):
        return Frames([data.sequences[i] for i in indices], [data.labels[i] for i in indices])
    return [data[i] for i in indices]


def checksums(files: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Each split's file and its SHA-256."""
    return {name: {"path": path, "sha256": sha256(path)} for name, path in files.items()}
