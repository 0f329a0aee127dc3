"""Bytes and lines of a file, every failure turned into a DataError."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from experiments.data.errors import DataError


def read_bytes(path: str | PathLike[str]) -> bytes:
    """The content of a file; a DataError if it is missing, a directory, unreadable or empty."""
    if Path(path).is_dir():
        raise DataError(path, "is a directory; name a file")
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise DataError(path, "no such file") from None
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror}") from None
    except ValueError as error:  # a NUL in the name
        raise DataError(path, f"is not a file name: {error}") from None
    if not content.strip():
        raise DataError(path, "is empty")
    return content


def read_lines(path: str | PathLike[str]) -> list[str]:
    """The lines of a UTF-8 file without their ends, line i at i - 1; a DataError names the line that is not UTF-8."""
    content = read_bytes(path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(path, f"is not UTF-8 text (byte 0x{content[error.start]:02x})", line) from None
    if "\0" in text:
        raise DataError(path, "is not text (a NUL byte)", text.count("\n", 0, text.index("\0")) + 1)
    if "\n" not in text:
        text = text.replace("\r", "\n")  # the line ends of old Macs
    # Not splitlines(): a form feed or U+2028 within a line is part of it.
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]
