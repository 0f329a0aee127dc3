"""Gives a test that asks for `cases` every case of every op, and one that asks for `op_name` each op in turn."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from minigrad import get_num_threads, set_num_threads
from minigrad.check.cases import load_cases
from minigrad.kernels import self_attention as self_attention_kernel

CASES = load_cases(Path(__file__).parent)


def pytest_generate_tests(metafunc):
    if "op_name" in metafunc.fixturenames:
        metafunc.parametrize("op_name", sorted({case.name for case in CASES}))


@pytest.fixture(scope="session")
def cases():
    return SimpleNamespace(CASES=CASES)


@pytest.fixture(autouse=True)
def _folded(monkeypatch):
    """Self-attention is folded where that saves a single multiplication: at the sizes of tests, too."""
    monkeypatch.setattr(self_attention_kernel, "WORTH", 0)


@pytest.fixture(params=[1, 2, 3], ids=lambda n: f"{n}threads")
def threads(request):
    before = get_num_threads()
    set_num_threads(request.param)
    yield request.param
    set_num_threads(before)
