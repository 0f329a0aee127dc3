"""The pytest plugin, run by pytest in a directory and a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

OP = """
import numpy as np, minigrad as mg

@mg.op
def cube(x):
    return x**3

cube.derivative(x=lambda x: {factor} * x**2)
"""


ENTRY_POINT = "[pytest11]\nminigrad = pytest_minigrad\n"


@pytest.fixture
def run(tmp_path):
    """Runs pytest, with the plugin installed, on a file of that text; returns (exit status, output)."""
    installed = tmp_path / "site" / "minigrad-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: minigrad\nVersion: 0\n", encoding="utf-8")
    (installed / "entry_points.txt").write_text(ENTRY_POINT, encoding="utf-8")

    def run(text):
        (tmp_path / "test_mine.py").write_text(text, encoding="utf-8")
        path = os.pathsep.join([str(installed.parent), str(ROOT)])
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:hypothesispytest",
            "test_mine.py",
        ]
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    return run


def test_a_right_gradient_passes(run):
    status, output = run(OP.format(factor=3) + "def test_it(gradcheck):\n    assert gradcheck(cube, np.ones(2))\n")
    assert (status, "1 passed" in output) == (0, True)


@pytest.mark.parametrize("call", ["gradcheck", "mg.gradcheck"])
def test_a_failure_shows_the_diagnosis_alone(run, call):
    test = f"def test_it(gradcheck):\n    x = np.ones(2)\n    ({call})(lambda x: mg.exp(cube(x)), x)\n"
    status, output = run(OP.format(factor=2) + test)
    line = len((OP + test).splitlines())
    assert status == 1
    assert "constant factor: the gradient of x is 2/3" in output
    assert f"culprit: cube, gradient of its argument 'x', called at test_mine.py:{line}" in output
    assert f"test_mine.py:{line}: the check that failed" in output
    assert "FAILED test_mine.py::test_it" in output
    assert "Traceback" not in output
    assert "_finish" not in output
    assert "GradientError" not in output.split("short test summary")[0]


def test_other_failures_look_as_they_did(run):
    status, output = run("import minigrad\ndef test_it(gradcheck):\n    assert 1 == 2\n")
    assert status == 1
    assert "assert 1 == 2" in output


def test_the_laws_of_an_op(run):
    test = "def test_it(assert_laws):\n    assert_laws(cube, [np.array([1.0, 2.0]), (np.ones((2, 0)),)])\n"
    assert run(OP.format(factor=3) + test)[0] == 0
    status, output = run(OP.format(factor=2) + test)
    assert status == 1
    assert "cube-2: differences: argument 0" in output
    assert "laws.py" not in output


def test_it_costs_nothing_to_those_who_do_not_use_it(run):
    text = "import sys\ndef test_it():\n    assert not {'numpy', 'minigrad'} & set(sys.modules)\n"
    status, output = run(text)
    assert status == 0, output


def test_it_is_installed_as_an_entry_point():
    text = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    assert ENTRY_POINT.replace("[pytest11]", "pytest11 =").replace("\nminigrad", "\n    minigrad") in text
    assert "py_modules = pytest_minigrad\n" in text
