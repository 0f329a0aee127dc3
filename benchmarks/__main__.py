"""minigrad and its peers at the same work, side by side.

    python -m benchmarks                                    everything, some 20 minutes on two cores
    python -m benchmarks --tasks train --sizes tiny small --impl numpy minigrad minigrad_compiled torch
    python -m benchmarks --readme                           measures nothing: puts the last results in README.md

Prints a table for each task and size, and writes benchmarks.json and benchmarks.svg into --out. Peers whose package is
missing are left out (pip install -e ".[peers]" brings them); one whose gradients or losses are not those of the first
implementation is said to be WRONG and gets no ratio. The method is described in benchmarks/measure.py. Quote ratios of
one run, measured on a quiet machine; a time by itself says little.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks import tables, tasks
from benchmarks.machine import load, machine, versions
from benchmarks.measure import ROOT, Table, compare, compare_imports
from benchmarks.peers import PEERS
from benchmarks.tasks import Task
from benchmarks.workloads import VARIANTS

IMPLEMENTATIONS = ["numpy", "minigrad", *VARIANTS, *(name for name in PEERS if name != "numpy")]
KINDS = ["train", "chain", "attention", "import"]
JSON, SVG = "benchmarks.json", "benchmarks.svg"
BUSY = 0.5  # load per core from which on figures are doubtful


def main(argv: Sequence[str] | None = None) -> None:
    parser = _parser()
    given = parser.parse_args(argv)
    if given.readme:
        try:
            update_readme(given.out, ROOT)
        except (OSError, ValueError) as error:
            parser.error(str(error))
        return
    given.out.mkdir(parents=True, exist_ok=True)
    if load() > BUSY * machine()["cores"]:
        print(f"The machine is busy (load {load():.1f}): these figures are not to be quoted.", flush=True)
    results: dict[str, Any] = {
        "date": date.today().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "rounds": given.rounds,
        "seconds_of_a_turn": given.seconds,
        "tables": [],
    }
    for table in measured(given):
        print(tables.as_text(table), end="\n\n", flush=True)
        results["tables"].append(table.as_dict())
        _write(given.out, results)  # after each: stopped early, what was measured is there


def measured(given: argparse.Namespace) -> Iterator[Table]:
    """Each task at each size."""
    sizes = {"train": given.sizes, "chain": [str(given.links)], "attention": map(str, given.vectors)}
    for kind in given.tasks:
        for size in sizes.get(kind, []):
            yield compare(Task(kind, size), given.impl, rounds=given.rounds, seconds=given.seconds)
        if kind == "import":
            packages = dict.fromkeys(name.split("_")[0] for name in given.impl if ":" not in name)
            yield compare_imports(list(packages), rounds=given.rounds)


def update_readme(out: Path, root: Path) -> None:
    """README.md between its markers, and the files that it links, from the results in `out`."""
    source = out / JSON
    if not source.exists():
        raise ValueError(f"{source} does not exist: run python -m benchmarks first, with the same --out")
    results = json.loads(source.read_text(encoding="utf-8"))
    page = root / "README.md"
    section = tables.readme_section(results, f"docs/{SVG}", f"docs/{JSON}")
    page.write_text(tables.between_markers(page.read_text(encoding="utf-8"), section), encoding="utf-8")
    _write(root / "docs", results)


def _write(directory: Path, results: dict[str, Any]) -> None:
    (directory / JSON).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    found = tables.tables_of(results)
    if any(row.ratio is not None for row in tables.chart_rows(found)):
        (directory / SVG).write_text(tables.draw(found), encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--sizes", nargs="+", choices=list(tasks.SIZES), default=list(tasks.SIZES), help="of train")
    parser.add_argument("--vectors", nargs="+", type=_positive, default=[512, 2048, 8192], help="of attention")
    parser.add_argument("--links", type=_positive, default=2000, help="of the chain")
    parser.add_argument(
        "--impl",
        nargs="+",
        type=_implementation,
        default=IMPLEMENTATIONS,
        help=f"the first is what others are compared to; any of {', '.join(IMPLEMENTATIONS)}, "
        "or module:object with functions like those of benchmarks/workloads.py",
    )
    parser.add_argument("--rounds", type=_positive, default=11)
    parser.add_argument("--seconds", type=float, default=0.2, help="how long a turn lasts (or one call, if longer)")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "benchmarks", help="directory of what is written")
    parser.add_argument("--readme", action="store_true", help="only put the results in --out into README.md")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def _implementation(name: str) -> str:
    if name not in IMPLEMENTATIONS and ":" not in name:
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(IMPLEMENTATIONS)}, nor module:object")
    return name


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
