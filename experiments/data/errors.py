"""The one exception for input that cannot be read."""

from __future__ import annotations

from os import PathLike, fspath


class DataError(ValueError):
    """A data file that cannot be used: `path:line: reason`, or `path: reason` where no line is to blame."""

    def __init__(self, path: str | PathLike[str], reason: str, line: int | None = None) -> None:
        # All three stay in args, so that the error survives pickling between processes.
        super().__init__(fspath(path), reason, line)
        self.path, self.reason, self.line = fspath(path), reason, line

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.reason}"
