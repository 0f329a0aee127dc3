"""The bar chart of ratios: what it shows is to scale, and can be read."""

import functools
import itertools
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from fontTools.ttLib import TTFont
from matplotlib import get_data_path

from benchmarks.chart import STYLE, Row, bar_chart

SVG = "{http://www.w3.org/2000/svg}"
AXIS = "time of a step, relative to hand-written NumPy; shorter is faster"
ROWS = [
    Row("tiny (16 x 8 x 16)", "numpy", 1.0),
    Row("tiny (16 x 8 x 16)", "minigrad", 0.62),
    Row("tiny (16 x 8 x 16)", "minigrad_compiled", 0.43),
    Row("tiny (16 x 8 x 16)", "autograd", 5.75),
    Row("tiny (16 x 8 x 16)", "mygrad", None, "not installed"),
    Row("large", "numpy", 1.0),
    Row("large", "minigrad", 0.9, "noisy: 0.7 to 1.3"),
    Row("large", "torch_sdpa", 1.25, "noisy: 0.9 to 2.1"),
    Row("large", "jax", None, "WRONG"),
]
CHARTS = {
    "both sides": ROWS,
    "all slower": [Row("a", "x", 1.0), Row("a", "minigrad", 57.2)],
    "all faster": [Row("a", "x", 0.5), Row("b", "minigrad", 0.031)],
    "one": [Row("a", "minigrad", 1.0)],
    "far apart": [Row("a", "x", 0.00012), Row("a", "y", 43210.0)],
    "hostile": [Row("<b>", '</svg>&"模型\x00', 2.0, "]]>"), Row("<b>", "minigrad<script>", 0.3)],
}


@pytest.fixture(params=list(itertools.product(CHARTS, [True, False])), ids=str)
def chart(request):
    rows, log = CHARTS[request.param[0]], request.param[1]
    return rows, log, ElementTree.fromstring(bar_chart(rows, "Train step", axis=AXIS, log=log))


def bars(root):
    """Start and width of each bar, from above."""
    found = [r for r in root.iter(f"{SVG}rect") if r.get("class") in ("bar", "own")]
    return [(float(r.get("x")), float(r.get("width")), float(r.get("y"))) for r in found]


def line_of_one(root):
    [line] = [item for item in root.iter(f"{SVG}line") if item.get("class") == "one"]
    return float(line.get("x1"))


@functools.cache
def font():
    """Glyphs' names by characters' numbers, their (width, margin) by name, and the font's size in these units."""
    face = TTFont(Path(get_data_path()) / "fonts" / "ttf" / "DejaVuSansMono-Bold.ttf")
    return face.getBestCmap(), face["hmtx"].metrics, face["head"].unitsPerEm


def advance(character):
    names, metrics, size = font()
    return metrics[names[ord(character)]][0] / size if ord(character) in names else 1.0


def texts(root):
    """Each text with the box that it takes in a real font: (text, left, right, base line)."""
    for t in root.iter(f"{SVG}text"):
        x, width = float(t.get("x")), 12 * sum(map(advance, t.text))
        left = x - width * {"start": 0, "middle": 0.5, "end": 1}[t.get("text-anchor", "start")]
        yield t.text, left, left + width, float(t.get("y"))


def test_bars_are_to_scale(chart):
    rows, log, root = chart
    ratios = [row.ratio for row in rows if row.ratio is not None]
    found = bars(root)
    assert len(found) == len(ratios)
    one = line_of_one(root)
    if log:
        units = [
            (width if x >= one - 0.11 else -width) / math.log(r) for (x, width, _), r in zip(found, ratios) if r != 1
        ]
        for (x, width, _), r in zip(found, ratios):
            assert (x if r >= 1 else x + width) == pytest.approx(one, abs=0.11)
    else:
        [zero] = {x for x, _, _ in found}
        units = [width / r for (_, width, _), r in zip(found, ratios) if width > 30]
        assert all(unit == pytest.approx(one - zero, rel=0.02, abs=0.2) for unit in units)
    if units:
        assert min(units) == pytest.approx(max(units), rel=0.02)
        assert min(units) > 0


def test_ticks_stand_at_their_numbers(chart):
    _, log, root = chart
    one = line_of_one(root)
    lines = sorted(float(line.get("x1")) for line in root.iter(f"{SVG}line"))
    bottom = max(float(line.get("y2")) for line in root.iter(f"{SVG}line"))
    labels = [(float(text), (left + right) / 2) for text, left, right, y in texts(root) if bottom < y < bottom + 18]
    assert 1.0 in [v for v, _ in labels]
    assert all(v == 0 or re.fullmatch(r"[125]\.0*e.*", f"{v:e}") for v, _ in labels if log)
    for v, x in labels:
        assert min(abs(x - line) for line in lines) < 0.2
        if v not in (0.0, 1.0):
            place = math.log(v) if log else v - 1
            scale = [(math.log(w) if log else w - 1, at) for w, at in labels if w not in (0.0, 1.0)]
            unit = (scale[-1][1] - one) / scale[-1][0]
            assert x == pytest.approx(one + unit * place, abs=0.3)
    assert len(labels) <= 16
    if not log:
        assert all(v >= 0 for v, _ in labels)


def test_nothing_overlaps_and_nothing_is_cut(chart):
    _, _, root = chart
    width, height = float(root.get("width")), float(root.get("height"))
    placed = list(texts(root))
    for text, left, right, y in placed:
        assert left >= 4, text
        assert right <= width - 4, text
        assert 10 <= y <= height - 4
    for a, b in itertools.combinations(placed, 2):
        if abs(a[3] - b[3]) < 12:
            assert a[2] + 2 <= b[1] or b[2] + 2 <= a[1], (a, b)
    for x, wide, y in bars(root):
        for _, left, right, base in placed:
            if y < base < y + 16:
                assert right <= x or x + wide <= left
    tops = sorted(y for _, _, y in bars(root))
    assert all(b - a >= 13 for a, b in itertools.pairwise(tops))


def test_every_row_is_named_and_says_its_ratio(chart):
    rows, log, root = chart
    said = [t.text for t in root.iter(f"{SVG}text")]
    description = root.find(f"{SVG}desc").text
    at = {}
    for text, _, _, y in texts(root):
        at.setdefault(y, []).append(text)
    drawn = [pair for _, pair in sorted(at.items()) if len(pair) == 2][: len(rows)]  # the labels of the axis come after
    for row, (name, label) in zip(rows, drawn):
        assert name == row.name.replace("\x00", "\N{REPLACEMENT CHARACTER}")
        assert f"{row.size}, {name}: {label}" in description
        ratio, _, note = label.partition(" ") if row.ratio else ("", "", label)
        assert note == row.note
        if row.ratio is not None:
            assert float(ratio) == pytest.approx(row.ratio, rel=0.05, abs=0.005 if row.ratio >= 0.1 else 0)
    sizes = list(dict.fromkeys(row.size for row in rows))
    assert [text for text in said if text in sizes] == sizes
    assert f"{AXIS} ({'logarithmic' if log else 'linear'} axis)" in said
    assert root.find(f"{SVG}title").text == "Train step"
    assert root.get("role") == "img"


def test_own_bars_are_set_off():
    root = ElementTree.fromstring(bar_chart(ROWS, "t", axis="x"))
    kinds = [r.get("class") for r in root.iter(f"{SVG}rect") if r.get("class") != "paper"]
    assert kinds == ["bar", "own", "own", "bar", "bar", "own", "bar"]


def luminance(colour):
    digits = colour[1:] if len(colour) == 7 else "".join(2 * c for c in colour[1:])
    channels = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    bright, dim = sorted((luminance(a), luminance(b)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def test_colours_can_be_told_apart_in_light_and_dark():
    light, rest = STYLE.split("@media (prefers-color-scheme:dark)")
    for style in (light, rest.split("@media")[0]):
        [ink] = re.findall(r"\.mg-chart\{color:(#\w+)", style)
        colour = {
            kind: re.search(rf"\.{kind}\{{fill:(#\w+)", style).group(1) for kind in ("paper", "faint", "bar", "own")
        }
        assert contrast(ink, colour["paper"]) >= 4.5
        assert contrast(colour["faint"], colour["paper"]) >= 4.5
        assert contrast(colour["bar"], colour["paper"]) >= 3
        assert contrast(colour["own"], colour["paper"]) >= 3
        assert contrast(colour["own"], colour["bar"]) >= 1.5


def test_it_stands_by_itself_and_is_the_same_each_time():
    text = bar_chart(CHARTS["hostile"], "<&>", axis="x")
    assert text == bar_chart(CHARTS["hostile"], "<&>", axis="x")
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|url\(|@import|<script|<image|\sid=", text)


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_ratio_is_an_error(wrong):
    with pytest.raises(ValueError, match=r"torch at tiny .*None"):
        bar_chart([Row("tiny", "numpy", 1.0), Row("tiny", "torch", wrong)], "t", axis="x")


@pytest.mark.parametrize("rows", [[], [Row("tiny", "torch", None, "not installed")]])
def test_a_chart_of_nothing_is_an_error(rows):
    with pytest.raises(ValueError, match="at least one"):
        bar_chart(rows, "t", axis="x")
