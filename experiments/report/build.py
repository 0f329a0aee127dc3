"""From the files of a run to its report.html: the same files give the same bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from experiments.report.examples import Examples
from experiments.report.pack import Tensors
from experiments.report.recorder import INITIAL, RECORDING
from experiments.report.walk import Walk
from experiments.runs import Run
from minigrad import nn, saving

SCHEMA = "minigrad.report/1"
NAME = "report.html"
SOURCES = Path(__file__).parent


def write(run: Run, model: nn.Module, result: Mapping[str, Any]) -> Path:
    """Write report.html into a run's directory, from its files; `model` is of the run's kind, `result` its result.json.

    The model's own weights are left alone: those of the files count.
    """
    run.write_text(NAME, page(data_of(run, model, result)))
    return run.path / NAME


def data_of(run: Run, model: nn.Module, result: Mapping[str, Any]) -> dict[str, Any]:
    """All that the page shows: schema minigrad.report/1."""
    config = run.read_json("config.json")
    begun = saving.load_checkpoint(run.path / INITIAL)
    recorded = saving.load_checkpoint(run.path / RECORDING)
    weights = {"first": begun["weights"], "last": saving.load(run.path / "weights.npz")}
    examples = [Examples.from_state(state) for state in begun["probes"]]
    tensors = Tensors()
    walk = Walk(model, weights, examples, begun["labels"], config["settings"]["label_smoothing"], tensors)
    return {
        "schema": SCHEMA,
        "run": {"result": result, "seconds": recorded["seconds"]},
        "tokens": [
            {"text": " ".join(e.keys[0]), "queries": e.queries[0], "keys": e.keys[0], "answers": e.answers[0]}
            for e in examples
        ],
        "snapshots": {"first": "before training", "last": "after training"},
        "walks": walk.walks,
        "losses": walk.losses,
        "start": walk.start(),
        "tensors": tensors.packed,
    }


def _tokens(example: Examples) -> dict[str, Any]:
    """The names of one example's vectors."""
    names = {"queries": example.queries[0], "keys": example.keys[0], "answers": example.answers[0]}
    return {"text": " ".join(example.keys[0]), **names}


def page(data: Mapping[str, Any]) -> str:
    """The HTML of a report."""
    parts = {
        "title": escape("minigrad"),
        "heading": "x",
        "lead": "",
        "card": "",
        "walk": "",
        "reproduce": "",
        "style": _source("report.css"),
        "script": _source("report.js"),
        "data": as_json(data),
    }
    html = _source("template.html")
    pieces = html.split("{{")
    return pieces[0] + "".join(parts[name] + rest for name, rest in (piece.split("}}", 1) for piece in pieces[1:]))


def as_json(data: Any) -> str:
    """JSON for a <script>: no NaN (null), and nothing that could end the element."""
    text = json.dumps(_finite(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _finite(x: Any) -> Any:
    if isinstance(x, float):
        return x if math.isfinite(x) else None
    if isinstance(x, Mapping):
        return {str(key): _finite(value) for key, value in x.items()}
    if isinstance(x, (list, tuple)):
        return [_finite(value) for value in x]
    return x.item() if isinstance(x, np.generic) else x


def _source(name: str) -> str:
    return (SOURCES / name).read_text(encoding="utf-8")
