"""docs/ops.md is what its script writes, and every function of NumPy's has its place there."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import minigrad as mg
from minigrad.engine import NUMPY_CONSTANTS, NUMPY_OPS

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "make_ops.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("make_ops", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_function_of_numpy_is_in_one_group(script):
    assert script.misplaced() == []


def test_the_page_is_up_to_date(script):
    written = script.PAGE.read_text(encoding="utf-8")
    if f"NumPy {script.numpy_version()}." not in written:
        pytest.skip("the page was written with another version of NumPy, which has other functions")
    assert written == script.page(), "run: python docs/make_ops.py"


def test_the_script_writes_the_page(script, tmp_path):
    """As its advice says: in a process of its own, where no op has been looked up yet."""
    copy = Path(shutil.copy(SCRIPT, tmp_path))
    subprocess.run([sys.executable, copy], check=True, env={**os.environ, "PYTHONPATH": str(SCRIPT.parents[1])})
    assert copy.with_name("ops.md").read_text(encoding="utf-8") == script.page()


def test_every_op_is_reachable_by_each_of_numpys_names(script):
    for name, function in script.callables():
        if function in NUMPY_OPS:
            found = mg
            for part in name.split("."):
                found = getattr(found, part)
            assert found is getattr(NUMPY_OPS[function], "op", NUMPY_OPS[function]), name


def test_what_is_not_there_raises_by_name(script):
    t = mg.tensor([1.0, 2.0], requires_grad=True)
    for function in [np.polymul, np.vander, np.geomspace, np.trim_zeros, np.i0, np.modf, np.linalg.lstsq, np.piecewise]:
        assert function not in NUMPY_OPS
        assert function not in NUMPY_CONSTANTS
        arguments = {np.modf: 1, np.vander: 1, np.i0: 1, np.trim_zeros: 1, np.piecewise: 3}.get(function, 2)
        with pytest.raises(TypeError, match=f"{function.__name__} is not supported on tensors"):
            function(*[t] * arguments)


def test_the_page_lists_what_the_registry_has(script):
    lines = script.PAGE.read_text(encoding="utf-8").splitlines()
    named = {name for line in lines if line.startswith("- `") for name in line.partition(":")[0].split("`")[1::2]}
    assert {"cumsum", "linalg.det", "fft.rfft", "mod", "attention", "quantile", "pad"} <= named
