"""Pictures and texts of computation graphs: DOT, Mermaid, SVG and HTML."""

import functools
import itertools
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from fontTools.ttLib import TTFont
from matplotlib import get_data_path

import minigrad as mg
from minigrad import nn
from minigrad.study import export, graph, recording
from minigrad.study.parts import GraphNode, Parts, numbers
from models import AttentionStack, Seq2Seq

CHROMIUM = Path("/usr/bin/chromium")
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '</script><img onerror="x">&amp;\\ #quot; `'


def tiny():
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    with recording():
        loss = (mg.exp(x) * x + np.ones(2)).sum()
    loss.backward()
    return graph(loss)


def stack():
    rng = np.random.default_rng(0)
    model = AttentionStack(8, blocks=2, heads=2, positions="relative", rng=rng)
    with recording():
        loss = (model(rng.standard_normal((2, 5, 8)).astype(np.float32)) ** 2).mean()
    return graph(loss)


def seq2seq():
    rng = np.random.default_rng(1)
    model = Seq2Seq(7, 6, 8, heads=2, rng=rng)
    source, target = rng.integers(1, 7, (2, 4)), rng.integers(1, 6, (2, 3))
    with recording():
        logits = model(source, target, source_valid=source > 0, target_valid=target > 0)
        loss = nn.cross_entropy(logits, target)
    loss.backward()
    return graph(loss)


class Hostile(nn.Module):
    def __init__(self):
        self.inner = {HOSTILE: nn.Linear(2, 2), "模型": nn.Linear(2, 1), "a\x00\x1b\nb": nn.Linear(1, 1)}

    def forward(self, x):
        for layer in self.inner.values():
            x = layer(x)
        return x


def hostile():
    with recording():
        loss = Hostile()(np.ones((3, 2), np.float32)).sum()
    return graph(loss)


GRAPHS = {"tiny": tiny, "stack": stack, "seq2seq": seq2seq, "hostile": hostile}
VIEWS = [
    *itertools.product(GRAPHS, ["by op", "1 deep", "3 deep"]),
    ("stack", "inside blocks.1"),
    ("seq2seq", "inside decoder.blocks.0.cross"),
]


@pytest.fixture(scope="module", params=VIEWS, ids=" ".join)
def seen(request):
    name, view = request.param
    whole = GRAPHS[name]()
    if view.endswith("deep"):
        return whole.by_module(int(view.split()[0]))
    return whole if view == "by op" else whole.inside(view.split()[1])


# --- DOT and Mermaid ---------------------------------------------------------------------------------------------

DOT_TOKEN = re.compile(r'\s*(?:("(?:[^"\\\n]|\\.)*")|([A-Za-z_]\w*|\d+)|(->|[{}\[\];,=]))', re.DOTALL)


def parse_dot(text):
    """Nodes with their labels, edges, and the number of clusters: a parser of the DOT grammar's stmt_list."""
    tokens, at = [], 0
    while text[at:].strip():
        found = DOT_TOKEN.match(text, at)
        assert found, f"no DOT: {text[at : at + 40]!r}"
        tokens.append(found.group().strip())
        at = found.end()
    take = iter(tokens)
    nodes, edges, clusters = {}, [], 0

    def attributes(token):
        values = {}
        while token != "]":
            name = next(take)
            assert next(take) == "="
            values[name] = next(take)
            token = next(take)
            assert token in (",", "]")
        return values

    assert [next(take), next(take), next(take)][0::2] == ["digraph", "{"]
    depth = 1
    for token in take:
        if token == "}":
            depth -= 1
        elif token == "subgraph":
            assert next(take).startswith("cluster_")
            assert next(take) == "{"
            depth, clusters = depth + 1, clusters + 1
        elif token != ";":
            then = next(take)
            if then == "=":
                next(take)
            elif then == "->":
                edges.append((token, next(take)))
            elif then == "[" and token != "node":
                assert token not in nodes
                nodes[token] = attributes(then)["label"]
            elif then == "[":
                attributes(then)
    assert depth == 0
    return nodes, edges, clusters


def shown(text):
    """Text with what cannot be shown replaced."""
    return re.sub(r"[\x00-\x1f]", "\N{REPLACEMENT CHARACTER}", text)


def unquoted(label):
    return re.sub(r"\\(.)", lambda m: "\n" if m.group(1) == "n" else m.group(1), label[1:-1])


def test_dot_holds_each_node_and_edge_and_nothing_else(seen):
    nodes, edges, clusters = parse_dot(seen.to_dot())
    assert set(nodes) == {node.id for node in seen.nodes}
    assert edges == [(e.source, e.target) for e in seen.edges]
    for node in seen.nodes:
        said = [shown(text) for _, text in export.lines(seen, node)]
        assert unquoted(nodes[node.id]).split("\n") == said
    held = {path for n in seen.nodes if n.kind in ("call", "output", "parameter") for path in seen.chain(n.module)}
    held |= {path for n in seen.nodes if n.kind == "module" for path in seen.chain(n.name)[:-1]}
    assert clusters == len(held)


def test_the_dot_parser_refuses_what_is_no_dot():
    good = tiny().to_dot()
    for bad in (good.replace('"', "", 1), good[:-3], good.replace("->", "-", 1)):
        with pytest.raises((AssertionError, StopIteration)):
            parse_dot(bad)


MERMAID_LINES = [
    r'subgraph s\d+\["[^"<>`]*"\]',
    r"end",
    r'[nm]\d+(\[|\(\[|\[/|\[\[)"([^"`<>]|<br/>)*"(\]|\]\)|/\]|\]\])',
    r'[nm]\d+ (-->|-- "\d+" -->) [nm]\d+',
]


def test_mermaid_has_a_line_for_each_box_edge_and_module(seen):
    first, *rest = seen.to_mermaid().splitlines()
    assert first == "flowchart TD"
    counts = [0] * 4
    for line in rest:
        fits = [bool(re.fullmatch(form, line.strip())) for form in MERMAID_LINES]
        assert sum(fits) == 1, line
        counts[fits.index(True)] += 1
    assert counts[0] == counts[1]
    assert counts[2:] == [len(seen.nodes), len(seen.edges)]


def test_mermaid_can_be_read_back():
    text = hostile().to_mermaid()
    plain = re.sub(r"#(\d+);", lambda found: chr(int(found.group(1))), text)
    assert HOSTILE in plain


# --- SVG ---------------------------------------------------------------------------------------------------------


@functools.cache
def font(bold):
    """Glyphs' names by characters' numbers, their (width, margin) by name, and the font's size in these units."""
    name = "DejaVuSansMono-Bold.ttf" if bold else "DejaVuSansMono.ttf"
    face = TTFont(Path(get_data_path()) / "fonts" / "ttf" / name)
    return face.getBestCmap(), face["hmtx"].metrics, face["head"].unitsPerEm


def advance(character, bold):
    """The width of a character in a real font, per size; one that the font lacks is as wide as high."""
    names, metrics, size = font(bold)
    return metrics[names[ord(character)]][0] / size if ord(character) in names else 1.0


def measured(text, size, bold):
    return size * sum(advance(c, bold) for c in text)


def drawn_boxes(root):
    """Each box of the graph: (x, y, width, height), and its texts (text, size, bold, x, y)."""
    [body] = [g for g in root.findall(f"{SVG}g") if g.get("transform")]
    for g in body.findall(f"{SVG}g"):
        rect = g.find(f"{SVG}rect")
        box = [float(rect.get(k)) for k in ("x", "y", "width", "height")]
        texts = []
        for t in g.findall(f"{SVG}text"):
            kind = t.get("class") or "plain"
            size = {"head": 13, "plain": 11, "faint": 10, "bad": 11}[kind]
            texts.append((t.text, size, kind in ("head", "bad"), float(t.get("x")), float(t.get("y"))))
        yield box, texts


def boxes_of(seen):
    root = ElementTree.fromstring(seen.to_svg())
    return [g for g in root.iter(f"{SVG}g") if g.find(f"{SVG}title") is not None]


def points_of(path):
    """Points along a path of M, V and C commands, in pieces."""
    at = None
    for command, given in re.findall(r"([MVC])([^MVC]*)", path):
        values = [float(v) for v in given.split()]
        if command == "M":
            at = values
            continue
        if command == "V":
            corners = [at, at, [at[0], values[0]], [at[0], values[0]]]
        else:
            corners = [at, values[0:2], values[2:4], values[4:6]]
        for t in np.linspace(0, 1, 30):
            weights = [(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3]
            yield tuple(sum(w * corner[axis] for w, corner in zip(weights, corners)) for axis in (0, 1))
        at = corners[-1]


def test_svg_is_well_formed_named_and_self_contained(seen):
    text = seen.to_svg()
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert root[0].tag == f"{SVG}title"
    assert seen.view in root[0].text
    assert root[1].tag == f"{SVG}desc"
    assert f"{len(seen.nodes):,} box" in root[1].text
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|url\(|@import|<script|<image|<use", text)
    assert not any(name in ("id", "href") or name.startswith("on") for item in root.iter() for name in item.attrib)
    assert "prefers-color-scheme:dark" in text
    assert len(list(drawn_boxes(root))) == len(seen.nodes)


def test_no_label_is_cut_and_none_leaves_its_box(seen):
    root = ElementTree.fromstring(seen.to_svg())
    for node, ((x, y, width, height), texts) in zip(seen.nodes, drawn_boxes(root)):
        said = "".join(text for text, *_ in texts)
        for _, line in export.lines(seen, node):
            assert shown(line).replace(" ", "") in said.replace(" ", "")
        below = y
        for text, size, bold, middle, baseline in texts:
            half = measured(text, size, bold) / 2
            assert x + 3 <= middle - half
            assert middle + half <= x + width - 3
            assert baseline - 0.8 * size >= below, "lines of text overlap"
            below = baseline + 0.2 * size
        assert below <= y + height


def test_boxes_are_apart_and_no_line_crosses_one(seen):
    root = ElementTree.fromstring(seen.to_svg())
    boxes = [box for box, _ in drawn_boxes(root)]
    for a, b in itertools.combinations(boxes, 2):
        assert a[0] + a[2] <= b[0] or b[0] + b[2] <= a[0] or a[1] + a[3] <= b[1] or b[1] + b[3] <= a[1]
    left, top, width, height = np.array(boxes).T[:, :, None]
    lines = [path.get("d") for path in root.iter(f"{SVG}path") if path.get("class") == "line"]
    x, y = np.array([point for line in lines for point in points_of(line)]).T
    assert len(x) >= 30 * len(seen.edges)
    assert not ((left < x) & (x < left + width) & (top + 0.2 < y) & (y < top + height - 0.2)).any()


def test_everything_is_on_the_paper(seen):
    root = ElementTree.fromstring(seen.to_svg())
    width, height = float(root.get("width")), float(root.get("height"))
    [body] = [g for g in root.findall(f"{SVG}g") if g.get("transform")]
    right, down = map(float, re.findall(r"[\d.]+", body.get("transform")))
    for (x, y, w, h), _ in drawn_boxes(root):
        assert 0 <= x + right <= x + right + w <= width
        assert 0 <= y + down <= y + down + h <= height
    legend = [g for g in root.findall(f"{SVG}g") if not g.get("transform")]
    assert {g.get("class") for g in legend} == {node.kind for node in seen.nodes}
    for g in legend:
        t = g.find(f"{SVG}text")
        assert float(t.get("x")) + measured(t.text, 11, False) <= width
        assert float(t.get("y")) < down + min(box[1] for box, _ in drawn_boxes(root))
    head = root.find(f"{SVG}text")
    assert float(head.get("x")) + measured(head.text, 13, True) <= width


def contrast(a, b):
    """Of two colours "#rrggbb" or "#rgb", as WCAG 2 defines it."""

    def luminance(colour):
        digits = colour[1:] if len(colour) == 7 else "".join(2 * c for c in colour[1:])
        channels = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dim = sorted((luminance(a), luminance(b)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def test_colours_can_be_read_in_light_and_dark():
    light, rest = export.STYLE.split("@media (prefers-color-scheme:dark)")
    dark = rest.split("@media")[0]
    for style in (light, dark):
        [ink] = re.findall(r"\.mg-graph\{color:(#\w+)", style)
        inks = [ink, *re.findall(r"\.(?:faint|bad)\{[^}]*?fill:(#\w+)", style)]
        grounds = set(re.findall(r"(?:rect|paper)\{[^}]*?fill:(#\w+)", style))
        assert len(inks) == 3
        assert len(grounds) >= 5
        assert min(contrast(a, b) for a in inks for b in grounds) >= 4.5
        strokes = re.findall(r"stroke:(#\w+)", style)
        [paper] = re.findall(r"\.paper\{fill:(#\w+)", style)
        assert min(contrast(stroke, paper) for stroke in strokes) >= 3


@pytest.mark.skipif(not CHROMIUM.exists(), reason=f"{CHROMIUM} is not installed")
def test_a_browser_finds_every_label_in_its_box(tmp_path):
    playwright = pytest.importorskip("playwright.sync_api")
    with ThreadPoolExecutor(1) as pool:  # a thread of its own: other tests' browser has an event loop in this one
        pool.submit(_look_in_browser, playwright, tmp_path).result()


def _look_in_browser(playwright, tmp_path):
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        page = browser.new_page()
        for name, make in GRAPHS.items():
            (tmp_path / f"{name}.svg").write_text(make().to_svg(), encoding="utf-8")
            page.goto((tmp_path / f"{name}.svg").as_uri())
            outside = page.evaluate(
                """() => [...document.querySelectorAll("g[transform] > g")].flatMap(g => {
                    const box = g.querySelector("rect").getBBox();
                    return [...g.querySelectorAll("text")].filter(t => {
                        const b = t.getBBox();
                        return b.x < box.x || b.x + b.width > box.x + box.width
                            || b.y < box.y || b.y + b.height > box.y + box.height;
                    }).map(t => t.textContent);
                })"""
            )
            assert outside == []
            page.emulate_media(forced_colors="active", color_scheme="dark")
            colours = page.evaluate(
                """() => ["text", "rect"].map(kind =>
                    [...new Set([...document.querySelectorAll(kind)].map(item => getComputedStyle(item).fill))])"""
            )
            assert [len(fills) for fills in colours] == [1, 1]
            assert colours[0] != colours[1]
            page.emulate_media(forced_colors="none", color_scheme="light")
        browser.close()


def test_hostile_names_stay_text():
    seen = hostile()
    root = ElementTree.fromstring(seen.to_svg())
    assert HOSTILE.replace(" ", "") in "".join(t.text for t in root.iter(f"{SVG}text")).replace(" ", "")
    for text in (seen.to_svg(), seen.to_html()):
        assert "<img" not in text
        assert not re.search(r"[\x00-\x08\x0b-\x1f]", text)


def test_what_is_said_of_gradients():
    def said(**kwargs):
        return export.gradient_text(GraphNode("n0", "call", shape=(2,), **kwargs))

    assert said() == "gradient not computed"
    assert said(gradient_state="not kept") == "gradient not kept"
    assert said(gradient=numbers(np.zeros(2))) == "gradient exactly 0"
    assert said(gradient=numbers([3.0, 4.0])) == "gradient norm 5"
    assert said(gradient=numbers([np.nan, 4.0])) == "gradient norm 4, 1 NaN"
    assert said(gradient=numbers([np.inf, np.nan])) == "gradient 1 NaN, 1 Inf"


def test_what_is_wrong_is_marked():
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    with recording():
        loss = (x * np.array([np.inf, 1.0])).sum()
    classes = [g.get("class").split() for g in boxes_of(graph(loss))]
    assert [("wrong" in c) for c in classes] == [False, True, True, True]
    assert ["result" in c for c in classes] == [False, False, False, True]


def test_equal_graphs_give_equal_bytes_whatever_the_hashes(tmp_path):
    script = (
        "import sys, numpy as np, minigrad as mg\nfrom minigrad import nn\n"
        "from minigrad.study import graph, recording\n"
        "model = nn.Sequential(nn.Linear(3, 4, rng=np.random.default_rng(0)), nn.LayerNorm(4))\n"
        "with recording():\n    loss = (model(np.ones((2, 3), np.float32)) ** 2).sum()\n"
        "loss.backward()\nseen = graph(loss, model)\n"
        "print(seen.to_svg(), seen.to_html(), seen.to_dot(), seen.to_mermaid(), seen.to_json())\n"
    )
    root = Path(__file__).parents[2]
    outputs = set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        outputs.add(subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, check=True).stdout)
    assert len(outputs) == 1
    assert len(outputs.pop()) > 10_000


def chain(n):
    x = mg.tensor([1.0], requires_grad=True)
    with recording():
        y = x
        for _ in range(n):
            y = y + 1.0
    return graph(y)


def test_too_many_boxes_are_not_drawn():
    seen = chain(export.MOST_BOXES)
    with pytest.raises(ValueError, match=r"by_module.*to_dot"):
        seen.to_svg()
    assert "too many" in seen.to_html()
    assert seen.to_dot().count("->") == export.MOST_BOXES


def test_a_notebook_shows_what_can_be_seen_at_a_glance():
    few = tiny()
    assert few._repr_svg_() == few.to_svg()
    assert few._repr_html_() == few.to_html()
    whole = stack()
    glance = export.overview(whole)
    assert whole._repr_svg_() == glance.to_svg()
    depths = [whole.by_module(d) for d in range(1, 8)]
    fitting = [view for view in depths if len(view.nodes) <= export.AT_A_GLANCE]
    assert len(glance.nodes) == max(len(view.nodes) for view in fitting)
    assert repr(few) == "Graph(by op: 6 boxes, 6 edges; gradients computed)"


# --- HTML --------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """What a page nests: for each element its tag, attributes and parent; its text."""

    VOID = ("br", "img", "meta", "input")

    def __init__(self, text):
        super().__init__()
        self.open, self.elements = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), [a.get("data-module") for t, a in self.open if t == "details"]))
        if tag not in self.VOID:
            self.open.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag


def test_html_unfolds_modules_as_they_are_nested():
    seen = seq2seq()
    page = Page(seen.to_html())
    unfolded = {a["data-module"]: around for t, a, around in page.elements if t == "details" and "data-module" in a}
    count = {
        path: sum(n.kind == "call" and f"{n.module}.".startswith(f"{path}.") for n in seen.nodes)
        for path in seen.modules
    }
    assert unfolded.keys() == {path for path, n in count.items() if path and n > 1}
    for path, around in unfolded.items():
        assert around == seen.chain(path)[:-1]
    assert sum(tag == "svg" for tag, _, _ in page.elements) == len(unfolded) + 1
    rows = sum(tag == "tr" for tag, _, _ in page.elements)
    assert rows == len(seen.nodes) + 1
    regions = [a for t, a, _ in page.elements if a.get("role") == "region"]
    assert all(a["tabindex"] == "0" and a["aria-label"] for a in regions)
    assert not any("id" in a for _, a, _ in page.elements)


def test_html_is_small_enough_for_a_report():
    assert len(seq2seq().to_html()) < 400_000


def test_the_table_says_what_the_boxes_say():
    text = tiny().to_html()
    rows = re.findall(r"<tr>(.*?)</tr>", text)[1:]
    cells = [re.findall(r"<td>(.*?)</td>", row) for row in rows]
    assert [row[0] for row in cells] == ["leaf x of exp", "exp", "multiply", "constant b of add", "add", "sum"]
    assert [bool(re.fullmatch(r".*test_export\.py:\d+", row[5])) for row in cells] == [0, 1, 1, 0, 1, 1]
    assert [row[4].startswith("gradient norm") for row in cells] == [1, 1, 1, 0, 1, 1]
    for row, g in zip(cells, boxes_of(tiny())):
        said = "".join(t.text for t in g.iter(f"{SVG}text"))
        for cell in row[2:]:
            assert cell.replace(" ", "") in said.replace(" ", "")


def test_what_is_said_of_values():
    def said(x):
        return export.value_text(GraphNode("n0", "call", dtype=str(np.asarray(x).dtype), value=numbers(x)))

    assert said(np.array([1.0, 3.0])) == "mean 2, sd 1"
    assert said(np.array(2.5)) == "value 2.5"
    assert said(np.array([3, -4, 7])) == "-4 to 7"
    assert said(np.array([True, True, False, True])) == "75% true"
    assert said(np.array([1.0, np.nan, -np.inf, np.inf])) == "mean 1, sd 0, 1 NaN, 2 Inf"
    assert said(np.full(2, np.nan)) == "2 NaN"
    assert said(np.zeros((2, 0))) == "empty"
    assert said(np.array([1e308, -1e308])) == "mean 0, sd 1e+308"
    assert export.value_text(GraphNode("n0", "call")) == ""


def test_each_picture_says_what_it_shows():
    seen = seq2seq()
    assert seen.by_module(2).view == "by module, 2 deep"
    assert seen.inside("encoder").view == "inside encoder"
    assert seen.inside("encoder").by_module().view == "inside encoder, by module, 1 deep"


def test_a_graph_of_nothing_is_drawn():
    nothing = Parts((), (), {}, ())
    ElementTree.fromstring(export.svg(nothing))
    parse_dot(export.dot(nothing))
