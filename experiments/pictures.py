"""Pictures of a run, SVG and PNG: curves of loss and score, and maps of who attends to whom. Needs matplotlib."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import minigrad as mg
from experiments.task import Drawn
from experiments.writing import written
from minigrad.study import capture
from models import SelfAttention

MISSING = 'no pictures were drawn, for want of matplotlib: pip install "minigrad[plots]"'
SUBSTITUTED = "no font here draws some characters: numerals stand there by their value (1000), others by their code"
_STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "minigrad"}  # text as text; equal pictures, equal files
_FIRST_FONT = "DejaVu Sans"  # matplotlib brings it along


def available() -> bool:
    """Is matplotlib there?"""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def draw_curves(folder: Path, history: Sequence[Mapping[str, float | None]], score: str) -> None:
    """curves.svg and .png: the loss on train and the score on dev, by epoch."""
    epochs = [row["epoch"] for row in history]
    curves = {"mean loss on train": [row["loss"] for row in history]}
    dev = [row.get(score) for row in history]
    if any(value is not None for value in dev):
        curves[f"{score.replace('_', ' ')} on dev"] = [np.nan if value is None else value for value in dev]
    figure, axes = subplots(1, len(curves), (4.5 * len(curves), 3.2))
    for ax, (label, values) in zip(axes.flat, curves.items()):
        ax.plot(epochs, values, marker="o" if len(epochs) < 25 else None, markersize=3)
        ax.set_xlabel("epoch")
        ax.set_ylabel(label)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.grid(alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    save(figure, folder / "curves")


def draw_attention(folder: Path, model: Any, example: Drawn) -> None:
    """attention.svg and .png: a map for every head of the model's last layer of attention, for the task's example."""
    args, kwargs, queries, keys, part = example
    if not any(isinstance(module, SelfAttention) for module in model.modules()):
        return
    with mg.no_grad(), capture(model, "*.attn") as caught:
        model(*args, **kwargs)
    name, last = list(caught.items())[-1]
    heads = last.value[0]
    columns = min(len(heads), 4)
    rows = math.ceil(len(heads) / columns)
    side = min(max(2.4, 0.32 * max(len(keys), len(queries))), 5.0)
    figure, axes = subplots(rows, columns, (columns * side, rows * side + 0.5))
    given = queries, keys
    families, [queries, keys] = readable(*given)
    for i, ax in enumerate(axes.flat):
        if i >= len(heads):
            ax.set_axis_off()
            continue
        image = ax.imshow(heads[i], vmin=0, vmax=1, cmap="Blues", aspect="auto")
        _name_cells(ax, queries, keys, families)
        ax.set_title(f"head {i + 1}", fontsize=9)
        ax.set_xlabel("key (is asked)", fontsize=8)
        if i % columns == 0:
            ax.set_ylabel("query (asks)", fontsize=8)
    figure.colorbar(image, ax=axes, label="weight", shrink=0.8)
    title = f"who attends to whom: {name.removesuffix('.attn')}"
    figure.suptitle(f"{title}\n({part})" if part else title, fontsize=10)
    if unreadable(*given):
        figure.supxlabel(SUBSTITUTED, fontsize=8)
    save(figure, folder / "attention")


def subplots(rows: int, columns: int, size: tuple[float, float]) -> tuple[Any, Any]:
    """A figure and its axes (rows, columns), without pyplot, which would choose a window system."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _name_cells(ax: Any, queries: Sequence[str], keys: Sequence[str], families: Sequence[str]) -> None:
    every = math.ceil(max(len(queries), len(keys)) / 24)  # names that would not be readable are left out
    size = 8 if len(keys) <= 12 else 6
    style = {"fontsize": size, "fontfamily": families, "parse_math": False}  # a dollar is a dollar
    ax.set_xticks(range(0, len(keys), every), keys[::every], rotation=90, **style)
    ax.set_yticks(range(0, len(queries), every), queries[::every], **style)


def save(figure: Any, path: Path) -> None:
    from matplotlib import rc_context

    with rc_context(_STYLE):
        for suffix in (".svg", ".png"):
            with written(path.with_suffix(suffix)):
                figure.savefig(path.with_suffix(suffix), dpi=120, metadata={"Date": None} if suffix == ".svg" else None)


# --- names that can be read, whatever fonts there are ------------------------------------------------------------


def readable(*lists: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """The font families to draw names with, and the names, in which another text stands for what no font has."""
    families, missing = _fonts_for(_characters(lists))
    return families, [[_spell(name, missing) for name in names] for names in lists]


def unreadable(*lists: Sequence[str]) -> bool:
    """Does another text stand for a character of these names?"""
    return bool(_fonts_for(_characters(lists))[1])


def _characters(lists: Iterable[Sequence[str]]) -> set[str]:
    return {character for names in lists for name in names for character in name}


def _spell(name: str, missing: Iterable[str]) -> str:
    """千 as 1000 if there is no glyph for it, other characters by their code; spaces visible; not too long."""
    if not name.strip(" "):
        return "\N{OPEN BOX}" * len(name)
    spelt = " ".join(_substitute(c) for c in name) if set(name) <= set(missing) else name
    spelt = "".join(_substitute(c) if c in missing else c for c in spelt)
    return spelt if len(spelt) <= 18 else spelt[:17] + "…"


def _substitute(character: str) -> str:
    number = unicodedata.numeric(character, None)
    return f"U+{ord(character):04X}" if number is None else f"{number:g}"


def _fonts_for(characters: set[str]) -> tuple[list[str], set[str]]:
    """Installed families that together have the most of the characters, and the characters that none has."""
    from matplotlib.font_manager import fontManager

    unfit = ("Last Resort", "Emoji")  # boxes, and pictures that cannot be drawn
    usable = [f for f in fontManager.ttflist if f.style == "normal" and not any(name in f.name for name in unfit)]
    families, missing = [_FIRST_FONT], set(characters)
    for font in sorted(usable, key=lambda f: (f.name != _FIRST_FONT, "CJK" not in f.name, f.weight != 400, f.name)):
        if found := missing & _glyphs(font.fname):
            missing -= found
            families.append(font.name)
        if not missing:
            break
    return list(dict.fromkeys(families)), missing


@lru_cache(maxsize=1024)
def _glyphs(path: str) -> frozenset[str]:
    """The characters that a font file can draw."""
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(map(chr, FT2Font(path).get_charmap()))
    except (OSError, RuntimeError):
        return frozenset()
