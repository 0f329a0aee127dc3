"""A computation graph as DOT, as a Mermaid flowchart, as SVG and as HTML. Equal graphs give equal bytes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from minigrad.study.layout import Box, Line, layout
from minigrad.study.parts import GraphNode, Numbers, Parts, collapsed, inside
from minigrad.study.svg import FONT, escaped, printable, text_width

MOST_BOXES = 1500  # that are drawn: more take long to place, and nobody can read them
AT_A_GLANCE = 40  # boxes of the picture that a notebook shows first

KINDS = {
    "call": "call of an op",
    "output": "one output of a call",
    "module": "module, with the numbers of its output",
    "parameter": "parameter",
    "leaf": "leaf (requires a gradient)",
    "input": "input of a transform",
    "constant": "constant",
    "outside": "outside of this module",
}


# --- what is said ------------------------------------------------------------------------------------------------


def summary(parts: Parts) -> str:
    """The graph in one line: by op: 3 boxes, 3 edges; gradients computed."""
    state = next((node.gradient_state for node in parts.nodes if node.id in parts.results), "")
    bad = sum(node.not_finite for node in parts.nodes if node.kind != "outside")
    return (
        f"{parts.view}: {_count(len(parts.nodes), 'box', 'boxes')}, {_count(len(parts.edges), 'edge', 'edges')}"
        + (f"; gradients {state}" if state else "")
        + (f"; {_count(bad, 'element is', 'elements are')} NaN or infinite" if bad else "")
    )


def _count(n: int, one: str, many: str) -> str:
    return f"{n:,} {one if n == 1 else many}"


def title(parts: Parts, node: GraphNode) -> str:
    """What a box is called; paths are those from the root."""
    if node.kind in ("parameter", "module") or (node.kind == "outside" and node.name):
        return _from_root(parts, node.name) or node.op
    return node.op or node.kind


def lines(parts: Parts, node: GraphNode) -> list[tuple[str, str]]:
    """What stands in a box, line by line, each with its class: head, plain, faint or bad."""
    said = []
    if node.kind in ("call", "output", "outside") and node.module and (path := _from_root(parts, node.module)):
        said.append(("faint", path))
    said.append(("head", title(parts, node)))
    if node.kind == "module":
        said.append(("plain", node.op))
    if node.detail:
        said.append(("plain", node.detail))
    if node.shape is not None:
        said.append(("plain", f"{shape_text(node.shape)} {node.dtype}"))
    if node.kind == "outside":
        return said
    if node.value is not None:
        said.append(("bad" if node.value.not_finite else "plain", value_text(node)))
    if node.kind != "constant" and node.shape is not None:
        bad = node.gradient is not None and node.gradient.not_finite
        said.append(("bad" if bad else "plain", gradient_text(node)))
    if node.kind == "module" and node.not_finite:
        said.append(("bad", f"{node.not_finite:,} NaN or infinite inside"))
    if node.place:
        said.append(("faint", node.place))
    return said


def shape_text(shape: Sequence[int] | None) -> str:
    """A shape as NumPy writes it; nothing for a call with several outputs, which have a shape each."""
    return "" if shape is None else str(tuple(shape)) if shape else "scalar"


def value_text(node: GraphNode) -> str:
    """Floating numbers by mean and standard deviation, integers by their range, booleans by how many are true."""
    x = node.value
    if x is None:
        return ""
    if x.mean is None or x.least is None or x.most is None:
        spread = "" if x.size else "empty"
    elif node.dtype == "bool":
        spread = f"{x.mean:.0%} true"
    elif x.size == 1:
        spread = f"value {x.mean:.4g}"
    elif "int" in node.dtype:
        spread = f"{x.least:.10g} to {x.most:.10g}"
    else:
        spread = f"mean {x.mean:.3g}, sd {_or_infinite(x.deviation)}"
    return ", ".join(filter(None, [spread, *_counts(x)]))


def gradient_text(node: GraphNode) -> str:
    """The gradient's norm, or why there is none: never a 0 that nobody computed."""
    x = node.gradient
    if x is None:
        return f"gradient {node.gradient_state}"
    if x.size and x.zeros == x.size:
        return "gradient exactly 0"
    norm = [] if x.norm is None and x.not_finite else [f"norm {_or_infinite(x.norm)}"]
    return "gradient " + ", ".join([*norm, *_counts(x)])


def _or_infinite(v: float | None) -> str:
    return "beyond float64" if v is None else f"{v:.3g}"


def _counts(x: Numbers) -> Iterator[str]:
    if x.nan:
        yield f"{x.nan:,} NaN"
    if x.infinite:
        yield f"{x.infinite:,} Inf"


def _from_root(parts: Parts, path: str) -> str:
    return path[len(parts.root) + 1 :] if parts.root and path.startswith(parts.root + ".") else path


# --- DOT and Mermaid ---------------------------------------------------------------------------------------------


def dot(parts: Parts) -> str:
    """Graphviz's language: modules are nested clusters."""
    shapes = {"module": "box3d", "parameter": "ellipse", "constant": "note"}
    clusters = itertools.count()
    out = ["digraph computation {", '  rankdir=TB; node [fontname="monospace", shape=box];']
    for pad, item in _nested(parts):
        if item is None:
            out.append(f"{pad}}}")
        elif isinstance(item, str):
            label = _quoted(f"{item} ({parts.modules[item]})")
            out.append(f"{pad}subgraph cluster_{next(clusters)} {{ label={label};")
        else:
            label = _quoted(*(text for _, text in lines(parts, item)))
            out.append(f"{pad}{item.id} [label={label}, shape={shapes.get(item.kind, 'box')}];")
    for edge in parts.edges:
        label = f" [label={_quoted(str(edge.count))}]" if edge.count > 1 else ""
        out.append(f"  {edge.source} -> {edge.target}{label};")
    return "\n".join([*out, "}", ""])


def _quoted(*said: str) -> str:
    return '"' + "\\n".join(printable(text).replace("\\", "\\\\").replace('"', '\\"') for text in said) + '"'


def mermaid(parts: Parts) -> str:
    """A Mermaid flowchart: modules are nested subgraphs."""
    brackets = {"parameter": ("([", "])"), "constant": ("[/", "/]"), "module": ("[[", "]]")}
    clusters = itertools.count()
    out = ["flowchart TD"]
    for pad, item in _nested(parts):
        if item is None:
            out.append(f"{pad}end")
        elif isinstance(item, str):
            out.append(f'{pad}subgraph s{next(clusters)}["{_entities(f"{item} ({parts.modules[item]})")}"]')
        else:
            left, right = brackets.get(item.kind, ("[", "]"))
            label = "<br/>".join(_entities(text) for _, text in lines(parts, item))
            out.append(f'{pad}{item.id}{left}"{label}"{right}')
    for edge in parts.edges:
        arrow = f'-- "{edge.count}" -->' if edge.count > 1 else "-->"
        out.append(f"  {edge.source} {arrow} {edge.target}")
    return "\n".join([*out, ""])


def _entities(text: str) -> str:
    """Mermaid's own escapes, which begin with # instead of &."""
    return re.sub(r'[#&<>"`;\\]', lambda found: f"#{ord(found.group())};", printable(text))


def _nested(parts: Parts, path: str = "", pad: str = "  ") -> Iterator[tuple[str, GraphNode | str | None]]:
    """Boxes in the modules that they stand in, after an indentation: a path begins a module, None ends it."""
    for node in parts.nodes:
        if _stands_in(parts, node)[-1:] == ([path] if path else []):
            yield pad, node
    for child in _modules_in(parts, path):
        yield pad, child
        yield from _nested(parts, child, pad + "  ")
        yield pad, None


def _stands_in(parts: Parts, node: GraphNode) -> list[str]:
    """The modules around a box, outermost first; leaves and constants belong to none."""
    return [] if node.kind in ("leaf", "input", "constant", "outside") else parts.chain(node.module)


def _modules_in(parts: Parts, path: str) -> list[str]:
    """The modules right inside that of a path which have boxes in them or deeper, in order."""
    chains = (["", *_stands_in(parts, node)] for node in parts.nodes)
    return list(dict.fromkeys(chain[chain.index(path) + 1] for chain in chains if path in chain[:-1]))


# --- SVG ---------------------------------------------------------------------------------------------------------

FONT_SIZES = {"head": 13, "plain": 11, "faint": 10, "bad": 11}
LEADING = 1.4  # height of a line, in font sizes
PADDING = 9.0
LONGEST = 34  # characters of a line, before it is broken

STYLE = f"""
.mg-graph{{color:#1c1c21;background:#fff;font-family:{FONT}}}
.mg-graph .paper{{fill:#fff}}
.mg-graph text{{fill:currentColor;font-size:11px;text-anchor:middle}}
.mg-graph text.start{{text-anchor:start}}
.mg-graph .head{{font-size:13px;font-weight:bold}}
.mg-graph .faint{{font-size:10px;fill:#55555f}}
.mg-graph .bad{{fill:#b00020;font-weight:bold}}
.mg-graph rect{{stroke:#63636e;fill:#fff}}
.mg-graph .paper{{stroke:none}}
.mg-graph .module rect{{fill:#efeafc;stroke:#6a4fb3;stroke-width:1.5}}
.mg-graph .parameter rect{{fill:#e3effb;stroke:#2b6cb0}}
.mg-graph .leaf rect,.mg-graph .input rect{{fill:#e4f5e6;stroke:#2f7d3a}}
.mg-graph .constant rect{{fill:#f2f2f4;stroke-dasharray:4 3}}
.mg-graph .outside rect{{fill:none;stroke-dasharray:2 3}}
.mg-graph .result rect{{stroke-width:3}}
.mg-graph .wrong rect{{stroke:#b00020;stroke-width:2.5}}
.mg-graph .line{{fill:none;stroke:#63636e}}
.mg-graph .tip{{fill:#63636e;stroke:none}}
@media (prefers-color-scheme:dark){{
.mg-graph{{color:#ececf1;background:#18181c}}
.mg-graph .paper{{fill:#18181c}}
.mg-graph .faint{{fill:#b4b4c0}}
.mg-graph .bad{{fill:#ff9aa5}}
.mg-graph rect{{stroke:#a0a0ad;fill:#26262c}}
.mg-graph .paper{{stroke:none}}
.mg-graph .module rect{{fill:#2f2845;stroke:#b9a3f2}}
.mg-graph .parameter rect{{fill:#1d3045;stroke:#86b8ea}}
.mg-graph .leaf rect,.mg-graph .input rect{{fill:#1e3623;stroke:#86cf91}}
.mg-graph .constant rect{{fill:#222226}}
.mg-graph .outside rect{{fill:none}}
.mg-graph .wrong rect{{stroke:#ff9aa5}}
.mg-graph .line{{stroke:#a0a0ad}}
.mg-graph .tip{{fill:#a0a0ad}}
}}
@media (forced-colors:active){{
.mg-graph rect{{fill:Canvas!important;stroke:CanvasText!important}}
.mg-graph text,.mg-graph .tip{{fill:CanvasText!important}}
.mg-graph .line{{stroke:CanvasText!important}}
}}
"""


def overview(parts: Parts) -> Parts:
    """As much detail as can be seen at a glance: by op if these are few, else by module, as deep as possible."""
    if len(parts.nodes) <= AT_A_GLANCE or not parts.children():
        return parts
    seen = collapsed(parts, 1)
    for depth in itertools.count(2):
        deeper = collapsed(parts, depth)
        if len(deeper.nodes) > AT_A_GLANCE or deeper.nodes == seen.nodes:
            return seen
        seen = deeper
    raise AssertionError("a depth without an end")


def svg(parts: Parts, style: bool = True) -> str:
    """A picture of all boxes; style: with the style sheet in it (a page needs it once). ValueError for too many."""
    if len(parts.nodes) > MOST_BOXES:
        raise ValueError(
            f"a picture of {len(parts.nodes):,} boxes cannot be read (the limit is {MOST_BOXES:,}): "
            "draw it .by_module() or a module's .inside(), or use .to_dot()"
        )
    texts = [broken(lines(parts, node)) for node in parts.nodes]
    numbered = {node.id: i for i, node in enumerate(parts.nodes)}
    placed = layout([_size(text) for text in texts], [(numbered[e.source], numbered[e.target]) for e in parts.edges])
    caption = f"Computation graph {parts.view}"
    legend = [(kind, meaning) for kind, meaning in KINDS.items() if any(n.kind == kind for n in parts.nodes)]
    width = max([placed.width, _width("head", caption) + 32, *(_width("plain", text) + 60 for _, text in legend)])
    shift = (width - placed.width) / 2
    top = 34 + 18 * len(legend)
    height = placed.height + top
    body = [f'<rect class="paper" width="{width:.1f}" height="{height:.1f}"/>']
    body.append(f'<text class="head start" x="16" y="24">{escaped(caption)}</text>')
    body += [_key(kind, text, 36 + 18 * i) for i, (kind, text) in enumerate(legend)]
    body.append(f'<g transform="translate({shift:.1f} {top})">')
    body += [_drawn_lines(found) for found in placed.lines if found]
    body += [_drawn_box(parts, *item) for item in zip(parts.nodes, placed.boxes, texts)]
    size = f'width="{width:.1f}" height="{height:.1f}" viewBox="0 0 {width:.1f} {height:.1f}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="mg-graph" role="img" {size}>'
        f"<title>{escaped(caption)}</title><desc>{escaped(_description(parts))}</desc>"
        + (f"<style>{STYLE}</style>" if style else "")
        + "\n".join(body)
        + "</g></svg>"
    )


def _description(parts: Parts) -> str:
    results = ", ".join(title(parts, node) for node in parts.nodes if node.id in parts.results)
    ends = f", from what is given at the top to the result ({results}) at the bottom" if results else ""
    return f"{summary(parts)}{ends}."


def broken(said: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The lines, long ones broken after a space or another mark where there is one, else anywhere."""
    result = []
    for kind, text in said:
        text = printable(text)
        while len(text) > LONGEST:
            cut = max(text.rfind(mark, LONGEST // 3, LONGEST) for mark in " .,/_") + 1 or LONGEST
            result.append((kind, text[:cut].rstrip()))
            text = text[cut:].lstrip()
        result.append((kind, text))
    return result


def _size(text: Sequence[tuple[str, str]]) -> tuple[float, float]:
    width = max(_width(kind, line) for kind, line in text)
    return round(width + 2 * PADDING, 1), round(sum(map(_height, text)) + 2 * PADDING, 1)


def _width(kind: str, text: str) -> float:
    return text_width(text, FONT_SIZES[kind])


def _height(line: tuple[str, str]) -> float:
    return FONT_SIZES[line[0]] * LEADING


def _drawn_box(parts: Parts, node: GraphNode, box: Box, text: Sequence[tuple[str, str]]) -> str:
    classes = node.kind + " result" * (node.id in parts.results) + " wrong" * (node.not_finite > 0)
    middle, y = box.x + box.width / 2, box.y + PADDING
    written = []
    for line in text:
        y += _height(line)
        kind = "" if line[0] == "plain" else f' class="{line[0]}"'
        written.append(
            f'<text{kind} x="{middle:.1f}" y="{y - 0.4 * FONT_SIZES[line[0]]:.1f}">{escaped(line[1])}</text>'
        )
    path = f' data-module="{escaped(node.name)}"' if node.kind == "module" else ""
    place = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="4"'
    return f'<g class="{classes}"{path}><title>{escaped(hint(node))}</title><rect {place}/>{"".join(written)}</g>'


def hint(node: GraphNode) -> str:
    """All about a node, for where there is room (tool tips)."""
    said = [" ".join(filter(None, [node.kind, node.op, node.name or node.module]))]
    for name, x in (("value", node.value), ("gradient", node.gradient)):
        if x is not None and x.mean is not None:
            said.append(f"{name}: {x.least:.4g} to {x.most:.4g}, mean {x.mean:.4g}, {x.zeros:,} of {x.size:,} are 0")
    return "; ".join(said)


def _drawn_lines(pieces: Sequence[Line]) -> str:
    drawn = "".join(map(_piece, pieces))
    tips = "".join(f"M{p.x1:.1f} {p.y1:.1f}l-3.5 -7h7z" for p in pieces if p.arrow)
    return f'<path class="line" d="{drawn}"/><path class="tip" d="{tips}"/>'


def _piece(p: Line) -> str:
    end = p.y1 - (6 if p.arrow else 0)  # the head's point is sharper than the line's end
    if p.x0 == p.x1:
        return f"M{p.x0:.1f} {p.y0:.1f}V{end:.1f}"
    half = (p.y0 + end) / 2
    return f"M{p.x0:.1f} {p.y0:.1f}C{p.x0:.1f} {half:.1f} {p.x1:.1f} {half:.1f} {p.x1:.1f} {end:.1f}"


def _key(kind: str, meaning: str, y: float) -> str:
    """A line of the legend."""
    swatch = f'<rect x="16" y="{y:.1f}" width="22" height="12" rx="3"/>'
    return f'<g class="{kind}">{swatch}<text class="start" x="46" y="{y + 10:.1f}">{escaped(meaning)}</text></g>'


# --- HTML --------------------------------------------------------------------------------------------------------


def html(parts: Parts) -> str:
    """The picture by module; each module's inside, to be unfolded; and a table of all numbers. No script is needed."""
    whole = collapsed(parts, 1) if parts.children() else parts
    drawn = [_framed(whole), *(_unfolding(parts, child) for child in parts.children())]
    return f'<div class="mg-graph-page"><style>{STYLE}{_PAGE_STYLE}</style>{"".join(drawn)}{_table(parts)}</div>'


_PAGE_STYLE = """
.mg-graph-page .scroll{overflow-x:auto}
.mg-graph-page details{margin:.4em 0 .4em 1em}
.mg-graph-page summary{cursor:pointer}
.mg-graph-page table{border-collapse:collapse;font-size:.85em}
.mg-graph-page th,.mg-graph-page td{padding:.2em .6em;text-align:left;border-bottom:1px solid currentColor}
"""


def _framed(parts: Parts) -> str:
    """A picture that scrolls inside its frame, by keyboard too."""
    if len(parts.nodes) > MOST_BOXES:
        return f"<p>{escaped(summary(parts))}: too many to be drawn.</p>"
    label = escaped(f"Computation graph {parts.view}")
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">{svg(parts, style=False)}</div>'


def _unfolding(parts: Parts, path: str) -> str:
    """A module's inside, and those of the modules in it; nothing for a module that is one call."""
    own = inside(parts, path)
    calls = sum(node.kind == "call" for node in own.nodes)
    if calls < 2:
        return ""
    children = own.children()
    picture = _framed(collapsed(own, 1) if children else own)
    deeper = "".join(_unfolding(own, child) for child in children)
    name = escaped(f"{path}: {parts.modules[path]}, {_count(calls, 'call', 'calls')}")
    return f'<details data-module="{escaped(path)}"><summary>{name}</summary>{picture}{deeper}</details>'


_COLUMNS = ("what", "name or module", "shape", "value", "gradient", "source line")


def _table(parts: Parts) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in _COLUMNS)
    rows = "".join(f"<tr>{''.join(f'<td>{escaped(cell)}</td>' for cell in _row(node))}</tr>" for node in parts.nodes)
    count = _count(len(parts.nodes), "node", "nodes")
    return (
        f"<details><summary>All {count} as a table</summary>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Table of all nodes">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></details>"
    )


def _row(node: GraphNode) -> list[str]:
    return [
        f"{node.op or node.kind} {node.detail}".strip(),
        node.name or node.module,
        f"{shape_text(node.shape)} {node.dtype}".strip(),
        value_text(node),
        "" if node.kind == "constant" or node.shape is None else gradient_text(node),
        node.place,
    ]
