"""The error map of a failed check as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

CELL, MOST = 14, 48  # pixels a cell; rows and columns drawn


def html(text: str, maps: Sequence[tuple[str, np.ndarray, np.ndarray, np.ndarray]]) -> str:
    """The text, and below it a map for each (name, error, size, wrong): grey is right, red is wrong, dark is very."""
    pictures = [
        f"<figure><figcaption>{escape(name)} {error.shape}</figcaption>{_svg(error, size, wrong)}</figure>"
        for name, error, size, wrong in maps
    ]
    return f"<pre>{escape(text)}</pre>" + "".join(pictures)


def _svg(error: np.ndarray, size: np.ndarray, wrong: np.ndarray) -> str:
    rows = [x.reshape(-1, x.shape[-1] if x.ndim else 1)[:MOST, :MOST] for x in (error, size, wrong)]
    cells = "".join(_cell(i, j, *(float(x[i, j]) for x in rows)) for i, j in np.ndindex(rows[0].shape))
    height, width = (n * CELL for n in rows[0].shape)
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">{cells}</svg>'


def _cell(i: int, j: int, error: float, size: float, wrong: float) -> str:
    """The lightness falls from a relative error of 1e-8 to one of 1."""
    relative = error / size if size else np.inf
    depth = 1.0 if np.isnan(relative) else float(np.clip(1 + np.log10(max(relative, 1e-300)) / 8, 0, 1))
    colour = f"hsl(0 80% {85 - 50 * depth:.0f}%)" if wrong else "#eee"
    place = f'x="{j * CELL}" y="{i * CELL}" width="{CELL - 1}" height="{CELL - 1}"'
    return f'<rect {place} fill="{colour}"><title>({i}, {j}): error {error:.3g}</title></rect>'
