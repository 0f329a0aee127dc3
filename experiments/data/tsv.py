"""Pairs of a source and a target sequence, one a line: source characters, a tab, target symbols between spaces."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike

from experiments.data.errors import DataError
from experiments.data.text import read_lines


@dataclass(frozen=True)
class Pair:
    """What is read and what is to be written."""

    source: tuple[str, ...]
    target: tuple[str, ...]


def read_tsv(path: str | PathLike[str]) -> list[Pair]:
    """Every line's pair, Unicode as it stands there; empty lines are skipped, malformed ones raise a DataError."""
    lines = enumerate(read_lines(path), start=1)
    return [_pair(path, number, line) for number, line in lines if line.strip(" ")]


def _pair(path: str | PathLike[str], number: int, line: str) -> Pair:
    columns = line.split("\t")
    if len(columns) != 2:
        raise DataError(path, f"expected 2 tab-separated columns (source, target), got {len(columns)}", number)
    target = tuple(symbol for symbol in columns[1].split(" ") if symbol)
    if not columns[0].strip(" "):
        raise DataError(path, "the source before the tab is empty", number)
    if not target:
        raise DataError(path, "the target after the tab is empty", number)
    return Pair(tuple(columns[0]), target)
