"""Tables that fit a terminal, places in files, and numbers as text."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence

import numpy as np

WIDEST = 140


def width() -> int:
    """How many characters a line may have."""
    return min(shutil.get_terminal_size((100, 24)).columns, WIDEST)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of aligned columns, to the right below a heading that begins with ">".

    The widest columns of text are cut, with an ellipsis, where a line would be longer than the terminal is wide.
    """
    to_right = [title.startswith(">") for title in header]
    lines = [[title.removeprefix(">") for title in header], *rows]
    widths = [max(map(len, column)) for column in zip(*lines)]
    text = [i for i, right in enumerate(to_right) if not right]
    while sum(widths) + 2 * (len(widths) - 1) > width() and max(widths[i] for i in text) > 8:
        widths[max(text, key=widths.__getitem__)] -= 1
    return ["  ".join(map(_fitted, line, widths, to_right)).rstrip() for line in lines]


def _fitted(cell: str, columns: int, to_right: bool) -> str:
    if len(cell) > columns:
        start = (columns - 1) // 3  # what ends a path or a name tells more than what begins it
        cell = f"{cell[:start]}…{cell[start + 1 - columns :]}"
    return cell.rjust(columns) if to_right else cell.ljust(columns)


def place(file: str, line: int) -> str:
    """file:line, the path as seen from here where that is shorter."""
    if os.path.isabs(file):
        with contextlib.suppress(ValueError):  # another drive
            file = min(os.path.relpath(file), file, key=len)
    return f"{file}:{line}"


def number(x: float | None) -> str:
    """Three digits, and "-" for None."""
    return "-" if x is None else f"{x:.3g}"


def share(x: float) -> str:
    return f"{100 * x:.0f}%"


def index_text(index: Sequence[int]) -> str:
    return f"[{', '.join(map(str, index))}]"


def norm(*arrays: np.ndarray | None) -> float:
    """The Euclidean norm of all elements together, without overflow or underflow on the way."""
    sizes = [np.abs(x) for x in arrays if x is not None and x.size]
    if any(np.isnan(x).any() for x in sizes):
        return float("nan")
    largest = max((float(x.max()) for x in sizes), default=0.0)
    if largest in (0.0, float("inf")):
        return largest
    return largest * float(np.sqrt(sum(float(np.square(x / np.float64(largest)).sum()) for x in sizes)))
