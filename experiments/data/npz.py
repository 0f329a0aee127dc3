"""Frames in a NumPy archive: `frames`, `lengths`, and arrays with one label a case."""

from __future__ import annotations

import io
import zipfile
import zlib
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.data.errors import DataError
from experiments.data.text import read_bytes
from experiments.data.ts import Frames


def read_npz(path: str | PathLike[str], label: str | None, *, labelled: bool = True) -> Frames:
    """Cases of an archive, labelled by the array named `label`.

    `frames` is (total, d), the cases one after another, or (cases, n, d), each padded at its end; `lengths` is
    (cases,). Labels are whole numbers or text, (cases,). With labelled=False no label is read.
    A malformed file raises a DataError.
    """
    arrays = _load(path, read_bytes(path))
    if labelled and (label is None or label in ("frames", "lengths")):
        others = _names(set(arrays) - {"frames", "lengths"})
        raise DataError(path, f"name the array of labels with --label; there are: {others}")
    for key in ("frames", "lengths", *([label] if labelled and label else [])):
        if key not in arrays:
            raise DataError(path, f"has no array {key!r}; there are: {_names(arrays)}")
    sequences = _sequences(path, arrays["frames"], arrays["lengths"])
    labels = _labels(path, str(label), arrays[str(label)], len(sequences)) if labelled else []
    return Frames(sequences, labels)


def _names(keys: Any) -> str:
    return ", ".join(sorted(keys)) or "none"


def _load(path: str | PathLike[str], content: bytes) -> dict[str, NDArray[Any]]:
    try:
        loaded = np.load(io.BytesIO(content), allow_pickle=False)
        arrays = dict(loaded) if isinstance(loaded, np.lib.npyio.NpzFile) else None
    except (OSError, EOFError, ValueError, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        objects = "allow_pickle" in str(error) and zipfile.is_zipfile(io.BytesIO(content))
        reason = "has an array of objects" if objects else "is not a NumPy archive, or a damaged one"
        raise DataError(path, f"{reason}; expected plain arrays as numpy.savez writes them") from None
    if arrays is None:
        raise DataError(path, "is a single array; expected an archive as numpy.savez writes it")
    return arrays


def _sequences(path: str | PathLike[str], frames: NDArray[Any], lengths: NDArray[Any]) -> list[NDArray[np.float32]]:
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or not len(lengths):
        raise DataError(path, f"'lengths' must be whole numbers (cases,), got {lengths.dtype} {lengths.shape}")
    if frames.dtype.kind not in "fiu" or frames.ndim not in (2, 3) or not frames.shape[-1]:
        given = f"{frames.dtype} {frames.shape}"
        raise DataError(path, f"'frames' must be numbers (total, d) or (cases, n, d), got {given}")
    if lengths.min() < 1:
        raise DataError(path, f"case {int(lengths.argmin())} has length {lengths.min()}; every case needs a frame")
    if lengths.max() > frames.shape[-2]:
        rows = f"{frames.shape[-2]} rows{' a case' if frames.ndim == 3 else ''}"
        reason = f"case {int(lengths.argmax())} has length {lengths.max()}, but 'frames' only {rows}"
        raise DataError(path, reason)
    sizes = lengths.astype(np.int64)  # they fit: no length is longer than the frames
    cases = _concatenated(path, frames, sizes) if frames.ndim == 2 else _padded(path, frames, sizes)
    return [_finite(path, index, case) for index, case in enumerate(cases)]


def _concatenated(path: str | PathLike[str], frames: NDArray[Any], lengths: NDArray[np.int64]) -> list[NDArray[Any]]:
    if lengths.sum() != len(frames):
        raise DataError(path, f"'lengths' sum to {lengths.sum()}, but 'frames' has {len(frames)} rows")
    return np.split(frames, np.cumsum(lengths)[:-1])


def _padded(path: str | PathLike[str], frames: NDArray[Any], lengths: NDArray[np.int64]) -> list[NDArray[Any]]:
    if len(frames) != len(lengths):
        raise DataError(path, f"'frames' has {len(frames)} cases, but 'lengths' {len(lengths)}")
    return [case[:length] for case, length in zip(frames, lengths, strict=True)]


def _finite(path: str | PathLike[str], index: int, case: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # what overflows is reported below
        sequence = np.array(case, dtype=np.float32)
    bad = np.argwhere(~np.isfinite(sequence))
    if len(bad):
        row, column = (int(i) for i in bad[0])
        given = f"'frames' has {case[row, column]}; expected finite float32 numbers"
        raise DataError(path, f"case {index}, frame {row}, dimension {column}: {given}")
    return sequence


def _labels(path: str | PathLike[str], name: str, labels: NDArray[Any], cases: int) -> list[str]:
    if labels.shape != (cases,) or labels.dtype.kind not in "iubUS":
        given = f"{labels.dtype} {labels.shape}"
        raise DataError(path, f"labels {name!r} must be whole numbers or text, one a case ({cases},), got {given}")
    texts = [item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item) for item in labels.tolist()]
    for index, text in enumerate(texts):
        if not text.strip():
            raise DataError(path, f"case {index} has an empty label in {name!r}")
    return texts
