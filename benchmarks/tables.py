"""Results in words: as text, as the rows of the chart, and as README's section."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchmarks import chart
from benchmarks.measure import LIMIT, Row, Table

OWN = "minigrad"
BEGIN, END = "<!-- benchmarks: begin -->", "<!-- benchmarks: end -->"
SAME_MEMORY = 1.0  # MB: what the memory of a process varies by


def tables_of(results: Mapping[str, Any]) -> list[Table]:
    """From what was written as JSON."""
    return [Table(table["kind"], table["size"], [Row(**row) for row in table["rows"]]) for table in results["tables"]]


def as_text(table: Table) -> str:
    """A line for each implementation, with what was found instead of a ratio where there is none."""
    return "\n".join([table.title, *map(_line, table.rows)])


def _line(row: Row) -> str:
    if row.ratio is None or row.seconds is None:
        return f"  {row.name:18s} {row.note}"
    peak = "" if row.peak_mb is None else f"peak {row.peak_mb:7.1f} MB"
    return f"  {row.name:18s} {row.seconds * 1e3:10.3f} ms  {row.ratio:6.2f} x  {peak:15s}  {row.note}".rstrip()


def chart_rows(tables: Iterable[Table]) -> list[chart.Row]:
    """Those with a ratio, and those that are WRONG."""
    return [
        chart.Row(table.title, row.name, row.ratio, row.note)
        for table in tables
        for row in table.rows
        if row.ratio is not None or row.note.startswith("WRONG")
    ]


def relative_to(tables: Iterable[Table]) -> str:
    """What is 1, in words."""
    bases = {next((row.name for row in table.rows if row.ratio is not None), "") for table in tables} - {""}
    if len(bases) != 1:
        return "the first of each group"
    [base] = bases
    return "hand-written NumPy" if base == "numpy" else base


def draw(tables: Sequence[Table]) -> str:
    """The bar chart, as SVG."""
    axis = f"time, relative to {relative_to(tables)}; further to the left is faster"
    return chart.bar_chart(chart_rows(tables), "minigrad and its peers", axis=axis, own=OWN)


def readme_section(results: Mapping[str, Any], picture: str, figures: str) -> str:
    """Tables of time and memory, where minigrad loses, on what and when they were measured; links to the two files."""
    tables = tables_of(results)
    many = f"medians of {results['rounds']} rounds in turns, ~ where their quartiles lie more than 25 % apart"
    parts = [
        f"Measured on {results['date']} on {_on(results['machine'])}, with {_with(results['versions'])}.",
        f"Time, relative to {relative_to(tables)} ({many}; [all figures]({figures})):",
        _markdown(tables, lambda row: row.ratio, _ratio_cell),
        f"*{LIMIT}: what the step's own would take at the rate of 2048 x 2048 ones, measured in the same turns.*",
        f"![The same as bars]({picture})",
        losses(tables, lambda row: row.ratio, "is slower", ".2f"),
        "Memory: what the process's peak grew by from before the first call, in MB (with jit: compiling too):",
        _markdown([t for t in tables if t.kind != "import"], lambda row: row.peak_mb, lambda row: f"{row.peak_mb:.0f}"),
        losses(tables, lambda row: row.peak_mb, "takes more", ".0f", SAME_MEMORY),
    ]
    return "\n\n".join(parts)


def _on(machine: Mapping[str, Any]) -> str:
    limits = "".join(f", {name}={value}" for name, value in machine["limits"].items())
    return f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}{limits}, {machine['blas']}"


def _with(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _ratio_cell(row: Row) -> str:
    return f"{'~' if row.note else ''}{row.ratio:.2f}"


def _markdown(tables: Sequence[Table], value: Callable[[Row], float | None], cell: Callable[[Row], str]) -> str:
    """A row for each table, a column for each implementation, the least of a row in bold, the limit in italics."""
    names = list(dict.fromkeys(row.name for t in tables for row in t.rows if value(row) is not None))
    names.sort(key=lambda name: (name == LIMIT, not name.startswith(OWN)))
    lines = [f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for table in tables:
        rows = {row.name: row for row in table.rows if row.ratio is not None and value(row) is not None}
        least = min((value(row) or 0.0 for name, row in rows.items() if name != LIMIT), default=None)
        cells = []
        for name in names:
            text = cell(rows[name]) if name in rows else _why_empty(table, name)
            mark = "*" if name == LIMIT and text else "**" if name in rows and value(rows[name]) == least else ""
            cells.append(f"{mark}{text}{mark}")
        lines.append(f"| {table.title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _why_empty(table: Table, name: str) -> str:
    return "WRONG" if any(row.name == name and row.note.startswith("WRONG") for row in table.rows) else ""


def losses(
    tables: Iterable[Table], value: Callable[[Row], float | None], worse: str, form: str, same: float = 0.0
) -> str:
    """Where the better of minigrad's variants is worse than the best of the others, in a sentence."""
    found = []
    for table in tables:
        figures = {r.name: value(r) for r in table.rows if r.ratio is not None and r.name != LIMIT}
        known = {name: figure for name, figure in figures.items() if figure is not None}
        own = min((figure for name, figure in known.items() if name.startswith(OWN)), default=None)
        others = [(figure, name) for name, figure in known.items() if not name.startswith(OWN)]
        if own is not None and others and own > min(others)[0] + same:
            best, name = min(others)
            found.append(f"{table.title} ({own:{form}}; {name} {best:{form}})")
    if not found:
        return f"minigrad {worse} nowhere here."
    return f"Where minigrad {worse} than the best of the others, taking the better of eager and compiled: " + (
        "; ".join(found) + "."
    )


def between_markers(page: str, section: str) -> str:
    """The page with the section in the place of what stood between the markers. ValueError if it has not got them once.

    >>> between_markers(f"before {BEGIN} old {END} after", "new").splitlines()[1:-1]
    ['new']
    """
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise ValueError(f"the page must have {BEGIN} and after it {END}, each once: put them where the tables belong")
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{section}\n{END}{rest.partition(END)[2]}"
