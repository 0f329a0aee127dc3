"""A bar chart of ratios, a bar for each size and implementation, as SVG that stands by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from minigrad.study.svg import FONT, escaped, text_width

SIZE = 12  # of the font
ROW, BAR, BASE = 20, 13, 14  # heights of a row and of a bar; of the text's base line in a row
BESIDE = 6  # between the end of a bar and its label
EDGE = 16  # around everything
PLOT = 420  # width between the ends of the axis
MOST_TICKS = 7


class Row(NamedTuple):
    """How one implementation did at one size: its ratio, or None and a note that says why there is none."""

    size: str
    name: str
    ratio: float | None
    note: str = ""


STYLE = f"""
.mg-chart{{color:#1c1c21;background:#fff;font-family:{FONT}}}
.mg-chart text{{fill:currentColor;font-size:{SIZE}px;paint-order:stroke;stroke:#fff;stroke-width:3px}}
.mg-chart .paper{{fill:#fff}}
.mg-chart .strong{{font-weight:bold}}
.mg-chart .faint{{fill:#55555f}}
.mg-chart .bar{{fill:#8b93a3}}
.mg-chart .own{{fill:#5b3fb0}}
.mg-chart .grid{{stroke:#d4d4da}}
.mg-chart .one{{stroke:#1c1c21;stroke-width:1.5}}
@media (prefers-color-scheme:dark){{
.mg-chart{{color:#ececf1;background:#18181c}}
.mg-chart .paper{{fill:#18181c}}
.mg-chart text{{stroke:#18181c}}
.mg-chart .faint{{fill:#b4b4c0}}
.mg-chart .bar{{fill:#7d8594}}
.mg-chart .own{{fill:#b9a3f2}}
.mg-chart .grid{{stroke:#3a3a42}}
.mg-chart .one{{stroke:#ececf1}}
}}
@media (forced-colors:active){{
.mg-chart .paper{{fill:Canvas}}
.mg-chart text{{fill:CanvasText!important;stroke:Canvas!important}}
.mg-chart .bar{{fill:GrayText}}
.mg-chart .own{{fill:Highlight}}
.mg-chart .grid,.mg-chart .one{{stroke:CanvasText}}
}}
"""


def bar_chart(rows: Sequence[Row], title: str, *, axis: str, log: bool = True, own: str = "minigrad") -> str:
    """Horizontal bars of ratios to what is 1, grouped by size in the order given.

    axis: what the ratios are, in words ("time, relative to hand-written NumPy; shorter is faster"). log: on a
    logarithmic axis, where bars begin at 1 and go to the left below it; else they begin at 0. own: names that begin
    so are set off. ValueError without any ratio, and for one that is not finite or not positive.

    >>> picture = bar_chart([Row("tiny", "minigrad", 0.5), Row("tiny", "torch", 2.5)], "Train step", axis="time")
    >>> picture.count('class="bar"'), picture.count('class="own"')
    (1, 1)
    """
    ratios = [row.ratio for row in rows if row.ratio is not None]
    if not ratios:
        raise ValueError("a chart needs at least one row with a ratio")
    for row in rows:
        if row.ratio is not None and not (math.isfinite(row.ratio) and row.ratio > 0):
            raise ValueError(f"the ratio of {row.name} at {row.size} is {row.ratio}: give None and a note instead")
    legend = f"{axis} ({'logarithmic' if log else 'linear'} axis)"
    names = EDGE + max(text_width(row.name, SIZE) for row in rows)
    before = max((_label_width(row) for row in rows if log and row.ratio is not None and row.ratio < 1), default=0.0)
    sizes = EDGE + max(text_width(row.size, SIZE) for row in rows)
    scale = _Scale(ratios, log, max(names + before, sizes) + SIZE)
    top = EDGE + 1.5 * ROW
    drawn, y = [], top
    for i, row in enumerate(rows):
        if i == 0 or row.size != rows[i - 1].size:
            y += ROW / 2 if i else 0
            drawn.append(_text(EDGE, y + BASE, row.size, "strong"))
            y += ROW
        drawn += [_text(names, y + BASE, row.name, "strong" if row.name.startswith(own) else "", "end")]
        drawn += _bar(row, scale, y, "own" if row.name.startswith(own) else "bar")
        y += ROW
    after = max(scale.at(max(row.ratio or 1.0, 1.0)) + _label_width(row) for row in rows)
    width = max(after, scale.right, *(EDGE + text_width(text, SIZE) for text in (title, legend))) + EDGE
    height = y + 2.5 * ROW
    frame = [f'<rect class="paper" width="{width:.1f}" height="{height:.1f}"/>', _text(EDGE, BASE + 6, title, "strong")]
    frame += [*_ticks(scale, top, y), _text(EDGE, y + ROW + BASE, legend, "faint")]
    size = f'width="{width:.1f}" height="{height:.1f}" viewBox="0 0 {width:.1f} {height:.1f}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="mg-chart" role="img" {size}>'
        f"<title>{escaped(title)}</title><desc>{escaped(_in_words(rows, legend))}</desc><style>{STYLE}</style>"
        + "\n".join([*frame, *drawn])
        + "</svg>\n"
    )


class _Scale:
    """From ratios to places along the axis."""

    def __init__(self, ratios: Sequence[float], log: bool, left: float):
        self.log = log
        self.left, self.right = left, left + PLOT
        self.origin = 1.0 if log else 0.0
        self.low = min(*ratios, 1.0) if log else 0.0
        self.high = max(*ratios, 1.0)
        if self.low == self.high:
            self.high *= 2

    def at(self, ratio: float) -> float:
        low, high, v = (math.log(x) for x in (self.low, self.high, ratio)) if self.log else (self.low, self.high, ratio)
        return self.left + PLOT * (v - low) / (high - low)

    def ticks(self) -> list[float]:
        """1 and other round numbers along the axis; on a logarithmic one powers of ten, with 2 and 5 where few."""
        if not self.log:
            step = next(s for s in _round_numbers(self.high / MOST_TICKS) if self.high / s <= MOST_TICKS)
            return sorted({1.0, *(round(i * step, 9) for i in range(int(self.high / step * (1 + 1e-9)) + 1))})
        within = [v for v in _round_numbers(self.low) if self.low * (1 - 1e-9) <= v <= self.high * (1 + 1e-9)]
        return within if len(within) <= MOST_TICKS else [v for v in within if f"{v:e}".startswith("1")]


def _round_numbers(start: float) -> list[float]:
    """1, 2, 5 times powers of ten, from `start` or below on, far enough for any chart."""
    power = math.floor(math.log10(start))
    return [float(f"{digit}e{k}") for k in range(power, power + 40) for digit in (1, 2, 5)]


def _ticks(scale: _Scale, top: float, bottom: float) -> list[str]:
    """Lines and labels, that of 1 first; others only where there is room."""
    lines, labels = [], []
    taken: list[tuple[float, float]] = []
    for v in sorted(scale.ticks(), key=lambda v: (v != 1, v)):
        x, label = scale.at(v), f"{v:.10g}"
        kind = "one" if v == 1 else "grid"
        lines.append(f'<line class="{kind}" x1="{x:.1f}" y1="{top:.1f}" x2="{x:.1f}" y2="{bottom:.1f}"/>')
        half = text_width(label, SIZE) / 2
        if all(x + half + 6 < left or right < x - half - 6 for left, right in taken):
            labels.append(_text(x, bottom + BASE, label, "faint", "middle"))
            taken.append((x - half, x + half))
    return lines + labels


def _bar(row: Row, scale: _Scale, y: float, kind: str) -> list[str]:
    """The bar and its label; where there is no ratio, the note alone."""
    start = scale.at(scale.origin)
    if row.ratio is None:
        return [_text(start + BESIDE, y + BASE, _label(row), "faint")]
    end = scale.at(row.ratio)
    place = f'x="{min(start, end):.1f}" y="{y + 3:.1f}" width="{max(abs(end - start), 1):.1f}" height="{BAR}"'
    beside, anchor = (end - BESIDE, "end") if end < start else (end + BESIDE, "start")
    return [f'<rect class="{kind}" {place}/>', _text(beside, y + BASE, _label(row), "", anchor)]


def _label(row: Row) -> str:
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}" if row.ratio >= 0.1 else f"{row.ratio:.2g}"
    return " ".join(filter(None, [ratio, row.note])) or "not measured"


def _label_width(row: Row) -> float:
    return text_width(_label(row), SIZE) + BESIDE


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    """A line of text."""
    classes = f' class="{kind}"' if kind else ""
    placed = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text{classes} x="{x:.1f}" y="{y:.1f}"{placed}>{escaped(text)}</text>'


def _in_words(rows: Sequence[Row], legend: str) -> str:
    return f"{legend}: " + "; ".join(f"{row.size}, {row.name}: {_label(row)}" for row in rows) + "."
