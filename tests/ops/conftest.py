"""Gives a test that asks for `cases` every case of every op, and one that asks for `op_name` each op in turn."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from minigrad.check.cases import load_cases

CASES = load_cases(Path(__file__).parent)


def pytest_generate_tests(metafunc):
    if "op_name" in metafunc.fixturenames:
        metafunc.parametrize("op_name", sorted({case.name for case in CASES}))


@pytest.fixture(scope="session")
def cases():
    return SimpleNamespace(CASES=CASES)
