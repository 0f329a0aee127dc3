"""What is said of self-attention and of gradients, measured: one script a claim, and the table of what came out."""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Iterable
from typing import Any

from experiments import pictures
from experiments.claims import agree, padding, permute, saw, scale, smooth, steps, window
from experiments.claims.claim import Check, Claim
from experiments.runs import Run, versions

CLAIMS: dict[str, Claim] = {
    script.CLAIM.name: script.CLAIM for script in (saw, window, scale, permute, padding, agree, smooth, steps)
}


def run(into: Run, names: Iterable[str], seed: int) -> bool:
    """Measure these claims; print the table, leave claims.json and a figure for each; whether all of them hold."""
    rows: list[dict[str, Any]] = []
    started = time.perf_counter()
    for claim in (CLAIMS[name] for name in names):
        rows += _measured(claim, into, seed)
        into.write_text("claims.json", json.dumps(rows, indent=1, ensure_ascii=False) + "\n")  # kept if stopped later
    seconds = round(time.perf_counter() - started, 2)
    failed = list(dict.fromkeys(row["name"] for row in rows if not row["passed"]))
    result = {"scenario": "claims", "seed": seed, "failed": failed, "seconds": seconds, "versions": versions()}
    into.write_json("result.json", result)
    verdict = f"FAIL: {', '.join(failed)}" if failed else f"PASS: all {len(rows)} numbers"
    print(f"\n{verdict}; {seconds:.0f} s, in {into.path}")
    return not failed


def _measured(claim: Claim, into: Run, seed: int) -> list[dict[str, Any]]:
    print("\n" + textwrap.fill(f"{claim.name}: {claim.statement}", 120, subsequent_indent="  "))
    print(f"  ({claim.source})", flush=True)
    outcome = claim.measure(seed)
    for check in outcome.checks:
        print(_line(check), flush=True)
    if pictures.available():
        pictures.save(outcome.figure(), into.path / claim.name)
    return claim.rows(outcome)


def _line(check: Check) -> str:
    return f"  {'PASS' if check.passed else 'FAIL'}  {check.value:<10.4g} {check.threshold:<18} {check.what}"
