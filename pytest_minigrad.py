"""The pytest plugin that comes with minigrad: a failed gradient check shows its diagnosis, not a traceback through it.

    def test_my_op(gradcheck):                  minigrad.gradcheck
        gradcheck(my_op, np.ones(3))

    def test_laws(assert_laws):                 every law of minigrad.check.laws, on sample calls of an op of yours
        assert_laws(my_op, [np.ones(3), np.ones((2, 0))])

It stands outside of the package and imports it only when a test asks, so that other projects' test runs pay nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable
from typing import Any

import pytest


@pytest.fixture
def gradcheck() -> Callable[..., Any]:
    """minigrad.gradcheck."""
    import minigrad

    return minigrad.gradcheck


@pytest.fixture
def assert_laws() -> Callable[..., None]:
    """assert_laws(op, cases): fail, with a line for each, where a law does not hold for an op or a composed function.

    cases: sample calls, each a tuple of arguments, a single argument, or a minigrad.check.cases.Case; floating arrays
    among them are differentiated.
    """
    from minigrad.check import laws

    def check(op: Callable[..., Any], cases: Iterable[Any]) -> None:
        broken = laws.check_op(op, cases)
        if broken:
            pytest.fail(laws.report(broken), pytrace=False)

    return check


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, Any, None]:
    """Show the text of a GradientError in the place of its traceback."""
    outcome = yield
    check = sys.modules.get("minigrad.check")  # not loaded: nothing of it can have been raised
    if call.excinfo is None or check is None or not isinstance(call.excinfo.value, check.GradientError):
        return
    report = outcome.get_result()
    path, line = _line_of_test(item, call.excinfo)
    report.longrepr = f"{call.excinfo.value}\n{path}:{line}: the check that failed"


def _line_of_test(item: pytest.Item, excinfo: pytest.ExceptionInfo[BaseException]) -> tuple[Any, int]:
    """Where the test called the check."""
    entries = [entry for entry in excinfo.traceback if entry.path == item.path]
    return (item.path.name, entries[-1].lineno + 1) if entries else (item.nodeid, 0)
