"""The claims from the command line: the table, what is left on disk, and what a claim that does not hold does."""

import json
import math
import re

import numpy as np
import pytest

import minigrad as mg
from experiments.claims import CLAIMS
from experiments.claims.claim import Check, Claim, Outcome, fit
from minigrad import nn

FIELDS = {"name", "claim", "source", "value", "threshold", "passed"}


def test_there_are_eight():
    assert list(CLAIMS) == ["saw", "window", "scale", "permute", "padding", "agree", "smooth", "steps"]
    assert all(claim.statement and claim.source for claim in CLAIMS.values())


@pytest.mark.parametrize(
    ("relation", "bound", "passing", "failing"),
    [
        ("=", 0.5, [0.5], [0.5 + 1e-12, 0]),
        ("<=", 1, [1, 0, -math.inf], [1 + 1e-12, math.inf]),
        (">=", 1, [1, 2], [1 - 1e-12]),
        ("<", 1, [0.9], [1]),
        (">", 1, [1.1], [1]),
        ("in", (1.9, 2.1), [1.9, 2, 2.1], [1.89, 2.11]),
    ],
)
def test_a_check_compares_and_a_nan_passes_nothing(relation, bound, passing, failing):
    assert all(Check("it", value, relation, bound).passed for value in passing)
    assert not any(Check("it", value, relation, bound).passed for value in [*failing, math.nan])


def test_rows_are_plain_json_without_nan():
    claim = Claim("one", "all is well", "somebody", lambda seed: Outcome([], lambda: None))
    checks = [Check("a", np.float64(2), "in", (1, 3)), Check("b", math.nan, "<=", 1)]
    rows = json.loads(json.dumps(claim.rows(Outcome(checks, lambda: None)), allow_nan=False))
    assert rows == [
        {"name": "one", "claim": "a", "source": "somebody", "value": 2.0, "threshold": "in 1 to 3", "passed": True},
        {"name": "one", "claim": "b", "source": "somebody", "value": None, "threshold": "<= 1", "passed": False},
    ]


def test_fit_goes_down_to_the_minimum():
    x = nn.Parameter(np.array([3.0, -2.0]))
    losses = fit([x], lambda: ((x - np.array([1.0, 1.0])) ** 2).sum(), steps=300, lr=0.05)
    assert losses[0] == 13
    np.testing.assert_allclose(x.data, [1, 1], atol=1e-2)


@pytest.fixture(scope="module")
def done(call, tmp_path_factory):
    """The quick claims, run from the command line, some named twice."""
    out = tmp_path_factory.mktemp("claims") / "run"
    return call("claims", "steps", "padding", "steps", "--out", out), out


def test_the_table_has_every_number_with_its_threshold(done):
    result, out = done
    assert (result.status, result.err) == (0, [])
    rows = json.loads((out / "claims.json").read_text(encoding="utf-8"))
    assert [row["name"] for row in rows] == ["steps"] * 5 + ["padding"] * 7
    lines = [line for line in result.out if line.startswith("  PASS")]
    assert len(lines) == len(rows)
    for row, line in zip(rows, lines):
        assert set(row) == FIELDS
        assert row["passed"] is True
        assert f"{row['value']:.4g}" in line
        assert row["threshold"] in line
        assert line.endswith(row["claim"])
    for name in ("steps", "padding"):
        assert any(line.startswith(f"{name}: ") for line in result.out)
        assert f"  ({CLAIMS[name].source})" in result.out
    assert re.fullmatch(r"PASS: all 12 numbers; \d+ s, in .*run", result.out[-1])


def test_figures_and_results_are_left(done):
    pytest.importorskip("matplotlib")
    _, out = done
    pictures = {f"{name}.{suffix}" for name in ("steps", "padding") for suffix in ("png", "svg")}
    assert {path.name for path in out.iterdir()} == {"config.json", "claims.json", "result.json"} | pictures
    result = json.loads((out / "result.json").read_text())
    assert (result["scenario"], result["seed"], result["failed"]) == ("claims", 0, [])


@pytest.mark.usefixtures("no_pictures")
def test_without_matplotlib_there_are_numbers(call, tmp_path):
    assert call("claims", "padding", "--seed", 3, "--out", tmp_path / "run").status == 0
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"config.json", "claims.json", "result.json"}


@pytest.mark.usefixtures("no_pictures")
def test_a_wrong_gradient_fails_its_claim_and_the_exit_status(call, tmp_path, request):
    request.addfinalizer(lambda: mg.tanh.derivative(x=lambda y: 1 - y * y))
    mg.tanh.derivative(x=lambda y: 1 - y * y + 1e-6)
    done = call("claims", "padding", "steps", "--out", tmp_path / "run")
    assert (done.status, done.err) == (1, [])
    assert [line for line in done.out if line.startswith("  FAIL") and "complex step" in line]
    assert done.out[-1].startswith("FAIL: steps; ")
    rows = json.loads((tmp_path / "run" / "claims.json").read_text())
    assert {row["name"] for row in rows if not row["passed"]} == {"steps"}
    assert json.loads((tmp_path / "run" / "result.json").read_text())["failed"] == ["steps"]


@pytest.mark.usefixtures("no_pictures")
def test_what_was_measured_is_kept_when_it_is_stopped(call, tmp_path, monkeypatch):
    class Stopped(Claim):
        def rows(self, outcome):
            raise KeyboardInterrupt

    monkeypatch.setitem(CLAIMS, "steps", Stopped(**vars(CLAIMS["steps"])))
    done = call("claims", "padding", "steps", "--out", tmp_path / "run")
    assert done.status == 130
    said = " ".join(done.err)
    assert f"what was measured is in {tmp_path / 'run' / 'claims.json'}" in said
    assert "cannot be resumed" in said
    rows = json.loads((tmp_path / "run" / "claims.json").read_text())
    assert {row["name"] for row in rows} == {"padding"}


def test_what_cannot_be_done_is_refused_in_one_line(call, tmp_path):
    for words, reason in (
        (("swa",), "there is no claim 'swa': choose saw, window, scale, "),
        (("saw", "--seed", "-1"), "--seed must be from 0"),
        (("saw", "--seed", "x"), "invalid int value"),
        (("saw", "--out", tmp_path), "exists already: give another --out"),
    ):
        done = call("claims", *words)
        assert (done.status, done.out, len(done.err)) == (2, [], 1)
        assert done.err[0].startswith("experiments: ")
        assert reason in done.err[0]


def test_a_directory_of_claims_has_no_model(done, call):
    _, out = done
    for words in (("predict", out, "I saw a saw"), ("--resume", out), ("report", out)):
        refused = call(*words)
        assert (refused.status, len(refused.err)) == (2, 1)
        assert "it is of claims, which have no model" in refused.err[0]


def test_help_names_them_all(call):
    done = call("claims", "--help")
    assert done.status == 0
    assert all(name in " ".join(done.out) for name in CLAIMS)


@pytest.mark.slow
def test_all_of_them_hold(call, tmp_path):
    done = call("claims", "--out", tmp_path / "run")
    assert done.status == 0, "\n".join(done.out)
