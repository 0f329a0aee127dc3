"""Where the shared real data lie, and files written for one test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[3].parent / "shared" / "data"


@pytest.fixture
def shared() -> Callable[[str], Path]:
    """The path of a shared data file; the test is skipped where it is absent."""

    def find(name: str) -> Path:
        path = SHARED / name
        if not path.is_file():
            pytest.skip(f"the shared data file {name} is not here")
        return path

    return find


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    """Write a file of this name and content, and give its path."""

    def make(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return make
