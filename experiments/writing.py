"""Writing files whole or not at all, with complaints that name the user's file."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from experiments.settings import UsageError

ADVICE = {
    errno.EFBIG: "allow larger files, and try again",
    errno.ENOSPC: "make room for it, and try again",
    errno.EDQUOT: "make room for it, and try again",
    errno.EACCES: "make its directory writable, and try again",
    errno.EROFS: "make its directory writable, and try again",
}


@contextlib.contextmanager
def written(path: Path) -> Iterator[None]:
    """Within it a file is written, by whatever steps: what goes wrong is told as a UsageError about the file itself."""
    try:
        yield
    except OSError as error:
        advice = f": {ADVICE[error.errno]}" if error.errno in ADVICE else ""
        raise UsageError(f"{path} cannot be written ({error.strerror or error}){advice}") from None


def write_text(path: Path, text: str) -> None:
    """All or nothing."""
    temporary = path.with_name(f".{path.name}.part")
    with written(path):
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
