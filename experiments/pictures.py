"""Pictures of a run: curves of loss and score, and maps of who attends to whom. SVG and PNG; needs matplotlib (the plots extra)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import minigrad as mg
from models import watch_attention

try:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams["font.sans-serif"] = ["DejaVu Sans", "Noto Sans CJK SC", "WenQuanYi Zen Hei", "Arial Unicode MS"]
    plt.rcParams["svg.fonttype"] = "none"  # text stays text: the reader's own fonts have every script
    plt.rcParams["svg.hashsalt"] = "minigrad"
except ImportError:
    matplotlib = None  # type: ignore[assignment]

AVAILABLE = matplotlib is not None
MISSING = 'no pictures were drawn, for want of matplotlib: pip install "minigrad[plots]"'


def draw_curves(folder: Path, history: Sequence[Mapping[str, float | None]], score: str) -> None:
    """curves.svg and .png: the loss on train and the score on dev, by epoch."""
    epochs = [row["epoch"] for row in history]
    dev = [row.get(score) for row in history]
    shown = 2 if any(value is not None for value in dev) else 1
    figure, axes = plt.subplots(1, shown, figsize=(4.5 * shown, 3.2), squeeze=False, layout="constrained")
    _curve(axes[0][0], epochs, [row["loss"] for row in history], "mean loss on train")
    if shown == 2:
        _curve(axes[0][1], epochs, [np.nan if value is None else value for value in dev], f"{score.replace('_', ' ')} on dev")
    _save(figure, folder / "curves")


def _curve(ax: Any, epochs: Sequence[Any], values: Sequence[Any], label: str) -> None:
    ax.plot(epochs, values, marker="o" if len(epochs) < 25 else None, markersize=3)
    ax.set_xlabel("epoch")
    ax.set_ylabel(label)
    ax.grid(alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)


def draw_attention(folder: Path, model: Any, example: tuple[Any, ...]) -> None:
    """attention.svg and .png: a map for every head of the model's last layer of attention, for the task's example."""
    args, kwargs, queries, keys = example
    with mg.no_grad(), watch_attention(model) as seen:
        model(*args, **kwargs)
    if not seen:
        return
    name, weights = list(seen.items())[-1]
    heads = weights[0]
    columns = min(len(heads), 4)
    rows = -(-len(heads) // columns)
    side = min(max(2.4, 0.32 * max(len(keys), len(queries))), 5.0)
    figure, axes = plt.subplots(rows, columns, figsize=(columns * side, rows * side + 0.5), squeeze=False, layout="constrained")
    for i, ax in enumerate(axes.flat):
        if i >= len(heads):
            ax.set_axis_off()
            continue
        image = ax.imshow(heads[i], vmin=0, vmax=1, cmap="Blues", aspect="auto")
        _name_cells(ax, queries, keys)
        ax.set_title(f"head {i + 1}", fontsize=9)
        ax.set_xlabel("key (is asked)", fontsize=8)
        if i % columns == 0:
            ax.set_ylabel("query (asks)", fontsize=8)
    figure.colorbar(image, ax=axes, label="weight", shrink=0.8)
    figure.suptitle(f"who attends to whom: {name}", fontsize=10)
    _save(figure, folder / "attention")


def _name_cells(ax: Any, queries: Sequence[str], keys: Sequence[str]) -> None:
    every = max(1, -(-max(len(queries), len(keys)) // 24))  # names that would not be readable are left out
    size = 8 if len(keys) <= 12 else 6
    ax.set_xticks(range(0, len(keys), every), [_plain(k) for k in keys[::every]], rotation=90, fontsize=size)
    ax.set_yticks(range(0, len(queries), every), [_plain(q) for q in queries[::every]], fontsize=size)


def _plain(text: str) -> str:
    return text.replace("$", r"\$")  # not the beginning of a formula


def _save(figure: Any, path: Path) -> None:
    for suffix in (".svg", ".png"):
        figure.savefig(path.with_suffix(suffix), dpi=120, metadata={"Date": None} if suffix == ".svg" else None)
    plt.close(figure)
