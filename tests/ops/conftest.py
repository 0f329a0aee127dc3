"""Gives a test that asks for `case` every case of every op, and one that asks for `cases` the module that has them."""

import importlib.util
import sys
from pathlib import Path

import pytest


def _load(name):
    spec = importlib.util.spec_from_file_location(f"minigrad_tests_{name}", Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


CASES = _load("cases")


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", CASES.CASES, ids=str)


@pytest.fixture(scope="session")
def cases():
    return CASES
