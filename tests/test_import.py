"""What `import minigrad` brings, and how little it loads: a fresh interpreter each."""

import subprocess
import sys

import pytest

import minigrad as mg


def run(program):
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_importing_minigrad_declares_no_ops():
    loaded = run("import sys, minigrad; print(*[name for name in sys.modules if name.startswith('minigrad')])")
    assert set(loaded) == {"minigrad", "minigrad.engine", "minigrad.tensor", "minigrad.op", "minigrad.habits"}


@pytest.mark.parametrize(
    "first",
    [
        "minigrad.tensor([1.0, 2.0]).sum()",
        "minigrad.tensor([1.0, 2.0]) + 1.0",
        "numpy.exp(minigrad.tensor([1.0, 2.0]))",
        "numpy.argmax(minigrad.tensor([1.0, 2.0]))",
        "minigrad.exp([1.0])",
        "minigrad.nn.Linear(2, 3)(numpy.ones((1, 2))).mean()",
        "minigrad.fft.rfft([1.0, 2.0])",
        "minigrad.grad(lambda x: x * x)(1.0)",
        "minigrad.gradcheck(numpy.sin, 1.0)",
        "minigrad.compile",
        "minigrad.set_num_threads",
        "minigrad.study.ledger",
        "numpy.linalg.inv(minigrad.tensor([[2.0]]))",
        "numpy.mean(minigrad.nn.Parameter([1.0, 2.0]))",
    ],
)
def test_whatever_comes_first_finds_what_it_needs(first):
    assert run(f"import minigrad, numpy; {first}; print('done')") == ["done"]


@pytest.mark.parametrize(
    "module", ["minigrad.tensor", "minigrad.nn", "minigrad.optim", "minigrad.study", "minigrad.check"]
)
def test_modules_by_themselves(module):
    program = (
        f"import {module}; from minigrad import tensor; print(tensor([1.0, 3.0], requires_grad=True).mean().item())"
    )
    assert run(program) == ["2.0"]


def test_names():
    assert {"exp", "compile", "gradcheck", "nn", "Tensor", "no_grad"} <= set(mg.__all__)
    assert all(hasattr(mg, name) for name in mg.__all__)
    assert set(mg.__all__) <= set(dir(mg))
    with pytest.raises(AttributeError, match="minigrad has no attribute 'Exp'"):
        mg.Exp  # noqa: B018
