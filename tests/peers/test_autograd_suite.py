"""HIPS autograd's own tests, run on minigrad: fetched from the package registry, nothing of them is kept here.

The package in shim/ stands in front of autograd and maps its names onto minigrad's. Tests that are not minigrad's
business are listed with their reasons in excluded.txt; they run too, so that one that would pass is seen.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import pytest

HERE = Path(__file__).parent
REAL_ONLY = "real arguments pass"  # how the shim's combo_check begins to say that complex ones were left out
ENOUGH = 386  # the tests outside test_scipy that need only real numbers and reverse mode


@dataclass
class Outcome:
    passed: set[str] = field(default_factory=set)
    real_only: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)


def test_autograds_own_tests_pass(
    pytestconfig: pytest.Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tests = _fetch(pytestconfig.cache.mkdir("autograd"), tmp_path)
    outcome = _run(tests, tmp_path)
    excluded = _excluded()

    known = outcome.passed | outcome.real_only | outcome.skipped | outcome.failed.keys()
    stale = {test for test in excluded if test in outcome.passed | outcome.real_only}
    counts = {
        "passed": len(outcome.passed - stale),
        "passed for real arguments, complex ones left out": len(outcome.real_only - stale),
        "excluded with a reason": len(excluded.keys() & known),
        "skipped by autograd": len(outcome.skipped - excluded.keys()),
    }
    with capsys.disabled():
        print("\nautograd's suite: " + ", ".join(f"{number} {what}" for what, number in counts.items()))
        if stale:
            print("excluded, though they pass here: " + ", ".join(sorted(stale)))

    unexplained = {test: message for test, message in outcome.failed.items() if test not in excluded}
    assert not unexplained, "\n\n".join(f"{test}\n{message}" for test, message in sorted(unexplained.items()))
    assert not excluded.keys() - known, "excluded.txt names tests that do not exist"
    assert counts["passed"] >= ENOUGH


def _fetch(cache: Path, tmp_path: Path) -> Path:
    """The folder of the tests in autograd's source distribution, which is downloaded once."""
    if not list(cache.glob("*.tar.gz")):
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--retries", "1", "--timeout", "20"]
        command = ["download", "--no-deps", "--no-binary", "autograd", "-r", str(HERE / "autograd.txt")]
        done = subprocess.run([*pip, *command, "--dest", str(cache)], capture_output=True, text=True, timeout=300)
        if done.returncode and "after connection broken by" in done.stdout + done.stderr:
            pytest.skip("the package registry cannot be reached")
        assert not done.returncode, done.stdout + done.stderr
    (archive,) = cache.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        members = [member for member in tar.getmembers() if "/tests/" in member.name]
        tar.extractall(tmp_path, members, filter="data")
    (tests,) = tmp_path.glob("autograd-*/tests")
    return tests


def _run(tests: Path, tmp_path: Path) -> Outcome:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")  # autograd's own settings want plugins
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"]
    command += ["-c", str(tmp_path / "pytest.ini"), f"--junitxml={report}", f"--rootdir={tests}", str(tests)]
    command += [f"--ignore={tests / 'test_scipy.py'}"]  # SciPy's functions are not minigrad's
    path = os.pathsep.join([str(HERE / "shim"), str(HERE.parents[1])])
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, cwd=tests, capture_output=True, text=True, timeout=600
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr  # 0: all pass, 1: some fail
    return _read(report)


def _read(report: Path) -> Outcome:
    outcome = Outcome()
    for case in ElementTree.parse(report).iter("testcase"):
        test = f"{case.get('classname')}::{case.get('name')}"
        skipped = case.find("skipped")
        broken = [part for kind in ("failure", "error") for part in case.findall(kind)]
        if broken:
            outcome.failed[test] = "\n".join(part.text or "" for part in broken)
        elif skipped is None:
            outcome.passed.add(test)
        elif (skipped.get("message") or "").startswith(REAL_ONLY):
            outcome.real_only.add(test)
        else:
            outcome.skipped.add(test)
    return outcome


def _excluded() -> dict[str, str]:
    """test -> reason. In excluded.txt the tests of a reason stand indented below it."""
    reasons: dict[str, str] = {}
    reason = ""
    for line in (HERE / "excluded.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            assert line.strip() not in reasons, f"{line.strip()} is excluded twice"
            reasons[line.strip()] = reason
        elif line.strip():
            reason = line
    return reasons
