"""HTML from Python: elements that escape their text, tables, and charts as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

WIDTH, HEIGHT = 400, 240
LEFT, RIGHT, TOP, BOTTOM = 70, 14, 12, 46
STYLES = ("", "b", "c", "d")  # of the curves in one chart


class Html(str):
    """Text that is markup already."""


def tag(name: str, *inside: Any, **attributes: Any) -> Html:
    """An element. Attributes named `class_`, `stroke_width` are written class, stroke-width; None leaves one out.

    >>> tag("a", "<b>", href="#x", class_=None)
    '<a href="#x">&lt;b&gt;</a>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{written}>{join(*inside)}</{name}>")


def join(*inside: Any) -> Html:
    """The pieces behind one another: Html as it is, all else escaped; lists are looked into, None is left out."""
    return Html("".join(_written(piece) for piece in inside))


def _written(piece: Any) -> str:
    if piece is None:
        return ""
    if isinstance(piece, (list, tuple)) or (isinstance(piece, Iterable) and not isinstance(piece, str)):
        return join(*piece)
    return piece if isinstance(piece, Html) else escape(str(piece))


def number(x: float | None) -> str:
    """Four significant digits, with a true minus sign.

    >>> number(-0.00012345), number(12.0), number(None)
    ('−1.234e−4', '12', 'none')
    """
    if x is None:
        return "none"
    if not math.isfinite(x):
        return str(x).replace("-", "−").replace("inf", "∞")
    text = f"{x:.4g}"
    if "e" in text:
        mantissa, power = text.split("e")
        text = f"{mantissa}e{int(power)}"
    return text.replace("-", "−")


def table(head: Sequence[Any], rows: Iterable[Sequence[Any]], caption: str = "", class_: str = "long") -> Html:
    """A table in a box of its own that scrolls; the first cell of a row is its header. Floats are shortened."""
    columns = [tag("th", cell, scope="col", class_=None if i else "left") for i, cell in enumerate(head)]
    lines = [tag("tr", tag("th", row[0], scope="row"), [tag("td", _cell(cell)) for cell in row[1:]]) for row in rows]
    whole = tag(
        "table",
        tag("caption", caption) if caption else None,
        tag("thead", tag("tr", columns)),
        tag("tbody", lines),
        class_=class_,
    )
    return tag("div", whole, class_="scroll narrow", tabindex=0, role="region", aria_label=caption or "table")


def _cell(x: Any) -> Any:
    return number(x) if isinstance(x, float) or x is None else x


def facts(rows: Iterable[tuple[str, Any]]) -> Html:
    """Names and what they are."""
    lines = [tag("tr", tag("th", name, scope="row"), tag("td", value)) for name, value in rows]
    return tag("table", tag("tbody", lines), class_="facts")


def more(summary: str, *inside: Any) -> Html:
    return tag("details", tag("summary", summary), *inside)


# --- charts ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chart:
    """Curves over one axis, both axes named in words, with the numbers in a table to be unfolded.

    x: what it is called, and the values; curves: each its name and values; styles: of each, one of STYLES; log: whether
    both axes are logarithmic.
    """

    title: str
    x: tuple[str, Sequence[float]]
    y: str
    curves: Sequence[tuple[str, Sequence[float | None]]]
    styles: Sequence[str] = STYLES
    log: bool = False

    @property
    def alt(self) -> str:
        return f"{self.title}: {self.y} by {self.x[0]}."

    def table(self) -> list[list[Any]]:
        """The numbers, the names of the columns first."""
        name, values = self.x
        rows = [[v, *(ys[i] for _, ys in self.curves)] for i, v in enumerate(values)]
        return [[name, *(curve for curve, _ in self.curves)], *rows]

    def to_json(self) -> dict[str, Any]:
        return {"title": self.title, "alt": self.alt, "table": self.table()}

    def html(self) -> Html:
        head, *rows = self.table()
        told = [[number(float(row[0])), *row[1:]] for row in rows]
        return tag(
            "figure",
            tag("h3", self.title),
            self._drawn(),
            _legend([name for name, _ in self.curves], self.styles) if len(self.curves) > 1 else None,
            more("The numbers", table(head, told, self.title)),
        )

    def _drawn(self) -> Html:
        (name, values), log = self.x, self.log
        across = _Axis(values, LEFT, WIDTH - RIGHT, log)
        up = _Axis([v for _, ys in self.curves for v in ys], HEIGHT - BOTTOM, TOP, log)
        lines = [
            tag("polyline", points=_points(across, up, values, ys), class_=f"curve {style}".strip())
            for (_, ys), style in zip(self.curves, self.styles)
        ]
        return tag(
            "svg",
            _frame(across, up),
            tag("text", name, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 8, text_anchor="middle", class_="soft"),
            tag("text", self.y, transform=f"translate(14 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)",
                text_anchor="middle", class_="soft"),
            lines,
            viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img",
            aria_label=f"{self.alt} The numbers are in the table below.",
        )  # fmt: skip


def _legend(names: Sequence[str], styles: Sequence[str]) -> Html:
    def sample(style: str) -> Html:
        line = tag("line", x1=0, y1=5, x2=30, y2=5, class_=f"curve {style}".strip())
        return tag("svg", line, viewBox="0 0 30 10", width=30, height=10, style="display:inline;width:30px")

    return tag(
        "p", [tag("span", sample(style), f" {name}") for name, style in zip(names, styles)], class_="note legend"
    )


class _Axis:
    """From values to places between `start` and `end`."""

    def __init__(self, values: Iterable[float | None], start: float, end: float, log: bool):
        usable = [v for v in values if v is not None and math.isfinite(v) and (v > 0 or not log)]
        self.log, self.start, self.end = log, start, end
        low, high = (min(usable), max(usable)) if usable else (0.0, 1.0)
        self.low, self.high = self._of(low if usable or not log else 1e-3), self._of(high)
        if self.high - self.low < 1e-12:
            self.low, self.high = self.low - 0.5, self.high + 0.5

    def _of(self, v: float) -> float:
        return math.log10(v) if self.log else v

    def place(self, v: float) -> float:
        share = (self._of(v) - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def usable(self, v: float | None) -> bool:
        return v is not None and math.isfinite(v) and (v > 0 or not self.log)

    def ticks(self) -> list[float]:
        if self.log:
            first, last = math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9)
            every = max(1, math.ceil((last - first + 1) / 6))
            return [10.0**power for power in range(first, last + 1, every)]
        rough = (self.high - self.low) / 5
        unit = 10.0 ** math.floor(math.log10(rough))
        step = unit * next(m for m in (1, 2, 5, 10) if m * unit >= rough)
        first = math.ceil(self.low / step - 1e-9)
        return [k * step for k in range(first, math.floor(self.high / step + 1e-9) + 1)]


def _frame(across: _Axis, up: _Axis) -> list[Html]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    pieces = [tag("path", d=f"M{LEFT} {TOP}V{bottom}H{right}", class_="axis")]
    for v in across.ticks():
        x = across.place(v)
        pieces.append(tag("text", _short(v, across.log), x=x, y=bottom + 17, text_anchor="middle"))
    for v in up.ticks():
        y = up.place(v)
        pieces.append(tag("path", d=f"M{LEFT} {y}H{right}", class_="rule"))
        pieces.append(tag("text", _short(v, up.log), x=LEFT - 7, y=y + 4, text_anchor="end"))
    return pieces


def _short(v: float, log: bool) -> str:
    return number(float(f"{v:.12g}")) if not log or 1e-3 < v < 1e4 else f"1e{round(math.log10(v))}".replace("-", "−")


def _points(across: _Axis, up: _Axis, xs: Sequence[float], ys: Sequence[float | None]) -> str:
    pairs = [(x, y) for x, y in zip(xs, ys) if across.usable(x) and up.usable(y)]
    places = [(across.place(x), up.place(float(y or 0))) for x, y in pairs]
    if len(places) == 1:  # a line of no length is not seen
        [(x, y)] = places
        places = [(x - 6, y), (x + 6, y)]
    return " ".join(f"{x:g},{y:g}" for x, y in places)


# --- small drawings in tables ------------------------------------------------------------------------------------


def bars(counts: Sequence[int], label: str, class_: str = "plus") -> Html:
    """A histogram without axes."""
    most = max([*counts, 1])
    path = "".join(f"M{6 * i} 26v-{max(1, round(24 * n / most))}h5V26" for i, n in enumerate(counts) if n)
    width = 6 * len(counts)
    drawing = tag("path", d=path, class_=class_)
    return tag("svg", drawing, viewBox=f"0 0 {width} 26", width=width, role="img", aria_label=label)
