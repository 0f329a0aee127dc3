"""The `.ts` format of sktime and aeon: multivariate series of unequal length with a class label."""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from experiments.data.errors import DataError
from experiments.data.text import read_lines

# Beyond it a finite number in the file would be infinite in the array.
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Frames:
    """Sequences of frames, each (n_i, d) float32 and finite, and a label for each (none where a file has none)."""

    sequences: list[NDArray[np.float32]]
    labels: list[str]


@dataclass
class _Header:
    """What the lines before `@data` say; None where they say nothing."""

    dimensions: int | None = None
    length: int | None = None
    classes: list[str] | None = None
    keys: set[str] = field(default_factory=set)


def read_ts(path: str | PathLike[str], *, labelled: bool = True) -> Frames:
    """Every case of a `.ts` file: channels between `:`, their values between `,`, the label last.

    Timestamps and missing values are not supported. With labelled=False a file without labels will do, and labels
    that the header does not declare (`?`) as well. A malformed file raises a DataError that names the line.
    """
    lines = read_lines(path)
    header, start = _read_header(path, lines)
    if labelled and header.classes is None:
        raise DataError(path, "has no class labels; the header needs a line '@classLabel true' and the labels' names")
    sequences, labels = [], []
    for number, line in enumerate(lines[start:], start=start + 1):
        if not line.strip() or line.startswith("#"):
            continue
        *channels, label = line.split(":") if header.classes is not None else [*line.split(":"), ""]
        if labelled:
            _check_label(path, number, label.strip(), header.classes or [])
        sequences.append(_sequence(path, number, channels, header))
        labels.append(label.strip())
    if not sequences:
        raise DataError(path, "has no case after @data")
    return Frames(sequences, labels if header.classes is not None else [])


def _read_header(path: str | PathLike[str], lines: list[str]) -> tuple[_Header, int]:
    """The header, and how many lines it takes, `@data` included."""
    header = _Header()
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith("@"):
            raise DataError(path, "expected a header line (@...) or a comment (#...) before @data", number)
        key, *values = line[1:].split()
        if key.lower() == "data":
            return header, number
        _read_key(path, number, header, key.lower(), values)
    raise DataError(path, "has no line @data")


def _read_key(path: str | PathLike[str], number: int, header: _Header, key: str, values: list[str]) -> None:
    if key in header.keys:
        raise DataError(path, f"@{key} stands there twice", number)
    header.keys.add(key)
    if key == "timestamps" and values[:1] == ["true"]:
        raise DataError(path, "series with timestamps are not supported; resample them to evenly spaced values", number)
    if key in ("dimensions", "dimension"):
        header.dimensions = _positive(path, number, key, values)
    elif key == "univariate" and values[:1] == ["true"]:
        header.dimensions = 1
    elif key == "serieslength":
        header.length = _positive(path, number, key, values)
    elif key == "classlabel" and values[:1] == ["true"]:
        header.classes = values[1:]


def _positive(path: str | PathLike[str], number: int, key: str, values: list[str]) -> int:
    if len(values) != 1 or not values[0].isdecimal() or int(values[0]) == 0:
        raise DataError(path, f"@{key} needs one positive whole number, got {' '.join(values)!r}", number)
    return int(values[0])


def _check_label(path: str | PathLike[str], number: int, label: str, classes: list[str]) -> None:
    if not label:
        raise DataError(path, "the label after the last ':' is missing", number)
    if classes and label not in classes:
        raise DataError(path, f"label {label!r} is not among those of @classLabel: {' '.join(classes)}", number)


def _sequence(path: str | PathLike[str], number: int, channels: list[str], header: _Header) -> NDArray[np.float32]:
    """One case as (n, d)."""
    if header.dimensions is None:
        header.dimensions = len(channels)  # the first case says it where the header does not
    if len(channels) != header.dimensions:
        what = "channels and a label" if header.classes is not None else "channels"
        raise DataError(path, f"expected {header.dimensions} {what} between ':', got {len(channels)} channels", number)
    values = [_channel(path, number, index, text) for index, text in enumerate(channels, start=1)]
    lengths = sorted({len(channel) for channel in values})
    if len(lengths) > 1:
        raise DataError(path, f"channels of one case differ in length: {lengths[0]} and {lengths[-1]} values", number)
    if header.length is not None and lengths[0] != header.length:
        raise DataError(path, f"expected @seriesLength {header.length} values a channel, got {lengths[0]}", number)
    return np.ascontiguousarray(np.array(values, dtype=np.float32).T)


def _channel(path: str | PathLike[str], number: int, index: int, text: str) -> list[float]:
    values = []
    for item in text.split(","):
        try:
            value = float(item)
        except ValueError:
            reason = f"channel {index}: {item.strip()!r} is not a number; missing values are not supported"
            raise DataError(path, reason, number) from None
        if not abs(value) <= _LARGEST:
            raise DataError(path, f"channel {index}: {item.strip()} is not a finite float32 number", number)
        values.append(value)
    return values
