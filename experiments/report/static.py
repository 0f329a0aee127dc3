"""The walk as plain tables, for readers without JavaScript: one query's output, forward and backward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.report.markup import Html, join, number, table, tag
from experiments.report.pack import unpack

NONE = "There is no self-attention to walk through."
TOO_MANY = "The numbers of its self-attention are too many to be walked through on one page."
ALPHA = "<msub><mi>α</mi><mrow><mi>i</mi><mo>,</mo><mi>j</mi></mrow></msub>"
PRIME = "<msub><mi>α′</mi><mrow><mi>i</mi><mo>,</mo><mi>j</mi></mrow></msub>"


def walk(data: Mapping[str, Any]) -> Html:
    """From a report's data, the tables of the query at which the walk starts; or why there is no walk."""
    if data["start"] is None:
        return tag("p", TOO_MANY if data["layers"] else NONE)
    return tag("noscript", _tables(data))


def maps(data: Mapping[str, Any]) -> Html:
    """What stands above the grids of attention; only the page's script can draw and walk them."""
    if not data["layers"]:
        return tag("p", "This model has no attention.")
    opens = "; Enter (or a double click) opens the walk at that cell" if data["start"] is not None else ""
    return join(
        tag("noscript", tag("p", "The grids of attention and its gradient need JavaScript.")),
        tag("p", f"Arrow keys walk a grid{opens}.", id="grids-help", hidden=""),
    )


def _tables(data: Mapping[str, Any]) -> Html:
    start, own = data["start"], data["walks"][data["start"]["walk"]]
    tokens = data["tokens"][own["probe"]]
    i, h = start["query"], start["head"]
    named = data["layers"][own["layer"]]
    keys = [f"“{name}” ({j + 1})" for j, name in enumerate(tokens[named["asked"]])]

    def get(name: str) -> np.ndarray:
        return unpack(data["tensors"][f"{own['snapshot']}/{own['probe']}/{own['layer']}.{name}"])

    scores, attn = get("scores")[h, i], get("attn")[h, i]
    answers = get("v")[h] * attn[:, None]
    dots = get("k")[h] @ get("q")[h, i] * own["scale"]
    exponentials = np.exp(scores - scores[attn > 0].max()) * (attn > 0)
    gain, back = get("attn.grad")[h, i], get("scores.grad")[h, i]
    width = answers.shape[1]
    b, back_b = (get(name)[i, h * width : (h + 1) * width] for name in ("b", "b.grad"))
    who = f"“{tokens[named['asks']][i]}” ({i + 1})"
    root = " / √d" if own["scale"] != 1 else ""
    biased = own["clip"] is not None
    return join(
        tag(
            "p",
            f"Without JavaScript: how b of {who} comes about in head {h + 1} of {own['layer']} on “{tokens['text']}”, "
            "and how the loss depends on it. With JavaScript every step can be walked, for each vector and head.",
        ),
        tag("h3", "Forward: who is asked, and how much"),
        _formula(f"{ALPHA}<mo>=</mo><msup><mi>q</mi><mi>i</mi></msup><mo>·</mo><msup><mi>k</mi><mi>j</mi></msup>"
                 + ("<mo>/</mo><msqrt><mi>d</mi></msqrt>" if root else "")
                 + ("<mo>+</mo><msub><mi>p</mi><mrow><mi>j</mi><mo>−</mo><mi>i</mi></mrow></msub>" if biased else "")),
        table(
            ["key j", f"q · k{root}", *(["position bias p"] if biased else []), "α", "e^(α − max)", "α′"],
            [
                [keys[j], float(dots[j]), *([float(scores[j] - dots[j])] if biased else []),
                 *map(float, (scores[j], exponentials[j], attn[j]))]
                for j in range(len(keys))
            ]
            + [["sum", "", *([""] if biased else []), "", float(exponentials.sum()), float(attn.sum())]],
            f"The scores of {who}, and their softmax",
        ),
        tag("h3", "Forward: b, the values averaged by attention"),
        _formula(f"<msup><mi>b</mi><mi>i</mi></msup><mo>=</mo><munder><mo>∑</mo><mi>j</mi></munder>{PRIME}"
                 "<msup><mi>v</mi><mi>j</mi></msup>"),
        table(
            ["component", *(f"α′ v of {key}" for key in keys), "b", "∂L/∂b"],
            [
                [str(c + 1), *(float(x) for x in answers[:, c]), float(b[c]), float(back_b[c])] for c in range(width)
            ],
            f"b of {who}",
        ),
        tag("h3", "Backward: what more attention would do to the loss"),
        _formula(f"<mi>∂L/∂</mi>{ALPHA}<mo>=</mo>{PRIME}<mo>(</mo><mi>∂L/∂</mi>{PRIME}<mo>−</mo><munder><mo>∑</mo>"
                 "<mi>m</mi></munder><msub><mi>α′</mi><mrow><mi>i</mi><mo>,</mo><mi>m</mi></mrow></msub>"
                 "<mi>∂L/∂</mi><msub><mi>α′</mi><mrow><mi>i</mi><mo>,</mo><mi>m</mi></mrow></msub><mo>)</mo>"),
        table(
            ["key j", "∂L/∂α′ = v · ∂L/∂b", "α′ ∂L/∂α′", "∂L/∂α"],
            [[keys[j], *map(float, (gain[j], attn[j] * gain[j], back[j]))] for j in range(len(keys))]
            + [["sum", "", float((attn * gain).sum()), f"{number(float(back.sum()))} (0 but for rounding)"]],
            f"The gradients of the scores of {who}",
        ),
    )  # fmt: skip


def _formula(inside: str) -> Html:
    return Html(f'<math display="block"><mrow>{inside}</mrow></math>')
