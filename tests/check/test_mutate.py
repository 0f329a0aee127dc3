"""The mutation test of the gradient rules, itself: damage is planted and taken out again, and verdicts are right."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import minigrad as mg
from minigrad.check import judging
from minigrad.check.cases import Case
from minigrad.check.mutate import ENGINE, Mutant, judge, mutants, planted, run, summary
from minigrad.engine import OPS
from minigrad.op import Derived, FusedOp

ROOT = Path(__file__).parents[2]
X = np.array([[0.5, -1.2, 2.0], [1.5, 0.7, -0.4]])


def test_there_are_hundreds_and_each_rule_has_its_own():
    found = list(mutants())
    assert len(found) == len(set(found)) > 1000
    damaged = {(m.op, m.argument) for m in found if m.kind == "sign"}
    for op in {id(op): op for op in OPS.values()}.values():
        if isinstance(op, FusedOp):
            assert damaged >= {(op.name, op._names[i]) for i in op._differentiable}
        elif not isinstance(op, Derived):
            assert damaged >= {(op.name, op._names[i]) for i in op._rules}


def test_every_mutant_can_be_planted_and_leaves_no_trace():
    rules = {name: dict(getattr(op, "_rules", {})) for name, op in OPS.items()}
    codes = {kind: function.__code__ for kind, (function, _, _) in ENGINE.items()}
    for mutant in mutants():
        with planted(mutant):
            pass
    assert rules == {name: dict(getattr(op, "_rules", {})) for name, op in OPS.items()}
    assert codes == {kind: function.__code__ for kind, (function, _, _) in ENGINE.items()}
    assert mg.grad(mg.exp)(0.0) == 1


@pytest.mark.parametrize(
    ("mutant", "gradient"),
    [
        (Mutant("exp", "x", "factor 2"), [2.0, 2.0]),
        (Mutant("exp", "x", "off by one"), None),
        (Mutant("exp", "x", "last element"), [1.0, 0.5]),
        (Mutant("exp", "x", "missing"), [0.0, 0.0]),
        (Mutant("engine", "_sum_to", "mean over broadcast axes"), [0.5, 0.5]),
    ],
)
def test_planted_damage_does_what_its_name_says(mutant, gradient):
    def f(x):
        return mg.exp(x * np.zeros((2, 1)) + x).sum() / 2 if mutant.op == "engine" else mg.exp(x).sum()

    x = np.zeros(2) if gradient else np.log([2.0, 3.0])
    with planted(mutant):
        np.testing.assert_allclose(mg.grad(f)(x), gradient or [3, 2])


def test_damage_is_taken_out_after_an_exception():
    with pytest.raises(ZeroDivisionError), planted(Mutant("exp", "x", "sign")):
        raise ZeroDivisionError
    assert mg.grad(mg.exp)(0.0) == 1


@pytest.mark.parametrize("mutant", [Mutant("no_such_op", "x", "sign"), Mutant("engine", "own", "no such kind")])
def test_a_place_that_is_not_there_is_a_lookup_error(mutant):
    with pytest.raises(LookupError), planted(mutant):
        pass


def test_verdicts():
    matrix = Case("exp", (X,), {}, np.exp)
    assert judge(Mutant("exp", "x", "sign"), [matrix]).verdict == "killed"
    assert judge(Mutant("exp", "x", "sign"), [matrix]).law == "differences"
    assert judge(Mutant("exp", "x", "broadcast sum dropped"), [matrix]).verdict == "equivalent"
    assert judge(Mutant("add", "a", "swapped operands"), [Case("add", (X, X + 1))]).verdict == "equivalent"
    assert "symmetric" in judge(Mutant("add", "a", "swapped operands"), [Case("add", (X, X + 1))]).reason
    constant = judge(Mutant("relu", "x", "second-order term dropped"), [Case("relu", (X,))])
    assert (constant.verdict, constant.reason.partition(" (")[0]) == (
        "equivalent",
        "what it saved enters only where it is constant",
    )


def test_a_missing_case_is_no_reason_to_call_a_mutant_equivalent():
    same_shapes = [Case("add", (X, X))]
    survivor = judge(Mutant("add", "b", "broadcast sum dropped"), same_shapes)
    assert survivor.verdict == "survived"
    assert "no case shows it, but other calls do" in survivor.reason
    assert judge(Mutant("exp", "x", "factor 2"), [Case("exp", (np.zeros((0, 2)),))]).verdict == "survived"
    assert judge(Mutant("exp", "x", "sign"), []).verdict == "survived"


def test_a_mutant_that_laws_miss_has_survived(monkeypatch):
    monkeypatch.setattr(judging, "check_case", lambda case: iter(()))
    outcome = judge(Mutant("exp", "x", "sign"), [Case("exp", (X,))])
    assert outcome.verdict == "survived"
    assert "breaks no law" in outcome.reason
    assert "SURVIVED: 1\n  sign: changes gradients\n      exp(x)" in summary([outcome])


def test_a_case_that_breaks_laws_undamaged_kills_nothing():
    broken = Case("exp", (X,), {}, np.sin)
    assert judge(Mutant("exp", "x", "sign"), [broken]).verdict == "survived"


def test_some_ops_have_no_survivor():
    outcomes = run(str(ROOT / "tests" / "ops"), names=["concatenate", "layer_norm"], jobs=1)
    assert [o for o in outcomes if o.verdict == "survived"] == []


def command(*arguments, cwd=ROOT):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    call = [sys.executable, "-m", "minigrad.check.mutate", *arguments]
    return subprocess.run(call, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_quick_run_kills_or_explains_every_mutant():
    result = command("--quick", "--json", "-")
    outcomes = json.loads(result.stdout)
    assert [o for o in outcomes if o["verdict"] == "survived"] == []
    assert {o["verdict"] for o in outcomes if o["op"] == "engine"} == {"killed"}
    assert result.returncode == 0, result.stderr


def test_without_cases_the_command_says_what_it_needs(tmp_path):
    result = command("--quick", cwd=tmp_path)
    assert result.returncode == 2
    assert "no cases*.py in tests/ops: name a directory" in result.stderr
