"""Are the laws any good? Damage every gradient rule in turn, and see which law notices.

    python -m minigrad.check.mutate                    every mutant, by processes on all cores; some minutes
    python -m minigrad.check.mutate --quick            a subset, for continuous integration
    python -m minigrad.check.mutate --ops matmul sum   those of some ops

A mutant is one gradient rule (or one output of a fused backward kernel, one step of the engine) damaged in one way. It
is killed when a law breaks on a case of its op. One that no case tells from the original, in plain and recorded passes
and in their derivatives, is listed as equivalent if the check can say why; any other has survived, and makes the exit
status 1. The cases are sample calls with independent expected values. They live with minigrad's tests, not in the
package: name their directory with --cases when you are not in a checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import zip_longest
from typing import Any

from minigrad.check.cases import Case, load_cases
from minigrad.check.damage import ENGINE
from minigrad.check.judging import Known, Outcome, judge
from minigrad.check.mutants import Mutant, mutants, planted

__all__ = ["ENGINE", "Known", "Mutant", "Outcome", "judge", "main", "mutants", "planted", "run", "summary"]

CASES = os.path.join("tests", "ops")
QUICK = 25  # --quick takes one mutant in so many


# --- running -----------------------------------------------------------------------------------------------------


def run(
    directory: str, *, names: Iterable[str] | None = None, quick: bool = False, jobs: int | None = None
) -> list[Outcome]:
    """Judge all mutants (of some ops; a fixed subset, if quick) by as many processes as there are cores.

    directory: where the cases are. Raises FileNotFoundError when there are none.
    """
    cases_of = _by_op(directory)
    chosen = [m for m in mutants(names) if not quick or m.op == "engine" or zlib.crc32(str(m).encode()) % QUICK == 0]
    by_op: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in chosen:
        by_op[mutant.op].append(mutant)
    jobs = jobs or os.cpu_count() or 1
    if jobs == 1:
        groups = [_judge_all(group, cases_of) for group in by_op.values()]
    else:
        with ProcessPoolExecutor(jobs, initializer=_load, initargs=(directory,)) as pool:
            groups = list(pool.map(_judge_loaded, sorted(by_op.values(), key=len, reverse=True)))
    order = {mutant: i for i, mutant in enumerate(chosen)}
    return sorted((outcome for group in groups for outcome in group), key=lambda outcome: order[outcome.mutant])


def _by_op(directory: str) -> dict[str, list[Case]]:
    """The cases by op; those of the engine are all, one of each op before a second one of any."""
    by_op: dict[str, list[Case]] = defaultdict(list)
    for case in load_cases(directory):
        by_op[case.name].append(case)
    mixed = [sorted(cases, key=lambda case: zlib.crc32(str(case).encode())) for cases in by_op.values()]
    by_op["engine"] = [case for row in zip_longest(*mixed) for case in row if case is not None]
    return by_op


_loaded: dict[str, list[Case]] = {}  # a worker's own, since cases hold functions, which do not travel


def _load(directory: str) -> None:
    _loaded.update(_by_op(directory))


def _judge_loaded(group: Sequence[Mutant]) -> list[Outcome]:
    return _judge_all(group, _loaded)


def _judge_all(group: Sequence[Mutant], cases_of: dict[str, list[Case]]) -> list[Outcome]:
    known = Known()
    return [judge(mutant, cases_of.get(mutant.op, []), known) for mutant in group]


# --- telling -----------------------------------------------------------------------------------------------------


def summary(outcomes: Sequence[Outcome]) -> str:
    """How many of each kind were caught, by which laws; then the equivalent mutants and the survivors, with reasons."""
    verdicts = Counter(outcome.verdict for outcome in outcomes)
    by_kind: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_kind[outcome.mutant.kind if outcome.mutant.op != "engine" else "engine"].append(outcome)
    lines = [_row(kind, group) for kind, group in by_kind.items()]
    lines += _listed("equivalent to the original", [o for o in outcomes if o.verdict == "equivalent"])
    lines += _listed("SURVIVED", [o for o in outcomes if o.verdict == "survived"])
    counts = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in ("killed", "equivalent", "survived"))
    return "\n".join([*lines, "", f"{len(outcomes)} mutants: {counts}"])


def _row(kind: str, group: Sequence[Outcome]) -> str:
    laws = Counter(outcome.law for outcome in group if outcome.verdict == "killed")
    caught = ", ".join(f"{law} {n}" for law, n in laws.most_common())
    return f"{kind:32}{sum(laws.values()):5} of {len(group):4} killed   {caught}"


def _listed(title: str, outcomes: Sequence[Outcome]) -> list[str]:
    """Outcomes by reason, each mutant without the number of calls."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for outcome in outcomes:
        kind_and_reason = f"{outcome.mutant.kind}: {outcome.reason.partition(' (')[0]}"
        by_reason[kind_and_reason].append(f"{outcome.mutant.op}({outcome.mutant.argument})")
    lines = ["", f"{title}: {len(outcomes)}"] if outcomes else []
    for reason, names in by_reason.items():
        lines += [
            f"  {reason}",
            textwrap.fill(", ".join(names), 110, initial_indent=" " * 6, subsequent_indent=" " * 6),
        ]
    return lines


def as_json(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """A flat dict for each outcome."""
    return [
        {
            "op": o.mutant.op,
            "argument": o.mutant.argument,
            "kind": o.mutant.kind,
            "verdict": o.verdict,
            "law": o.law,
            "case": o.case,
            "reason": o.reason,
            "seconds": round(o.seconds, 4),
        }
        for o in outcomes
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns 1 if a mutant survived, 2 without cases."""
    parser = argparse.ArgumentParser(prog="python -m minigrad.check.mutate", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--cases", default=CASES, metavar="DIR", help=f"directory of cases*.py (default: {CASES})")
    parser.add_argument("--ops", nargs="+", metavar="NAME", help='only the mutants of these ("engine": the engine\'s)')
    parser.add_argument("--quick", action="store_true", help=f"about one mutant in {QUICK}, always the same ones")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default: one a core)")
    parser.add_argument("--json", metavar="FILE", help="write every outcome to a file, or to - (standard output)")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    try:
        outcomes = run(options.cases, names=options.ops, quick=options.quick, jobs=options.jobs)
    except (FileNotFoundError, KeyError) as error:
        print(error, file=sys.stderr)
        return 2
    text = json.dumps(as_json(outcomes), indent=1)
    if options.json == "-":
        print(text)
    else:
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                file.write(text + "\n")
        print(summary(outcomes) + f", in {time.perf_counter() - start:.0f} s")
    return int(any(outcome.verdict == "survived" for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
