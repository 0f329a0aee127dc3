"""From the files of a run to its report.html: the same files give the same bytes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from experiments.report import measures, panels, static
from experiments.report.examples import Examples
from experiments.report.markup import join
from experiments.report.pack import Tensors, size_of, unpack
from experiments.report.recorder import INITIAL, MEASURES, RECORDING
from experiments.report.walk import Walk
from experiments.runs import Run
from experiments.settings import Settings, UsageError
from experiments.task import headline
from minigrad import nn, saving

SCHEMA = "minigrad.report/1"
NAME = "report.html"
CLAIMS = "claims.json"
SOURCES = Path(__file__).parent
MAPS = 350_000  # bytes of the file for attention and its gradient, beyond the attention after training


def write(run: Run, model: nn.Module, result: Mapping[str, Any], defaults: Settings, score: str) -> Path:
    """Write report.html into a run's directory, from its files.

    model: of the run's kind; its weights are replaced. result: what result.json holds. defaults: the settings of the
    scenario; score: the name of the metric that told which weights are best.
    """
    run.write_text(NAME, Report(run, model, result, defaults, score).html())
    return run.path / NAME


class Report:
    """What the page shows: `data`, of the schema minigrad.report/1, and what Python draws of it."""

    def __init__(self, run: Run, model: nn.Module, result: Mapping[str, Any], defaults: Settings, score: str):
        self.run, self.model, self.result, self.score = run, model, result, score
        self.config = run.read_json("config.json")
        begun, self.recorded = _recorded(run, INITIAL), _recorded(run, RECORDING)
        self.weights = {"first": begun["weights"], "last": saving.load(run.path / "weights.npz")}
        self.examples = [Examples.from_state(state) for state in begun["probes"]]
        self.batch = Examples.from_state(begun["batch"])
        self.labels: list[str] = begun["labels"]
        self.smoothing: float = self.config["settings"]["label_smoothing"]
        self.history: list[dict[str, Any]] = saving.load_checkpoint(run.path / "checkpoint.npz")["history"]
        self.tensors = Tensors()
        self.said = panels.command(self.config, vars(defaults))
        self._measure()
        self.data = self._data()

    def _measure(self) -> None:
        last = self.weights["last"]
        self.walk = Walk(self.model, self.weights, self.examples, self.labels, self.smoothing, self.tensors)
        self._keep_attention()
        self.samples = measures.samples(self.model, last, self.batch, self.smoothing)
        self.gradients = [
            measures.gradients(self.model, self.weights[name], self.batch, self.smoothing) for name in ("first", "last")
        ]
        self.attributions = [
            measures.attribution(self.model, last, example, self._explained(p), self.labels)
            for p, example in enumerate(self.examples)
        ]
        loss = measures.DoubleLoss(self.model, last, self.examples[0], self.smoothing)
        self.checked = measures.check(loss)
        self.curves = panels.curves(self.history, self.recorded["scores"], self.score)
        self.step_curve = panels.step_curve(measures.step_curve(loss))
        self.graph = measures.graph(self.model, last, self.examples[0], self.smoothing)
        self._keep_small()

    def _explained(self, p: int) -> int:
        """Of which query's label the attribution of a probe tells: where the walk starts, else the last label."""
        start = self.walk.start()
        if start is not None and self.walk.walks[start["walk"]]["probe"] == p:
            return int(start["query"])
        counted = self.examples[p].counted
        return 0 if counted is None else int(np.flatnonzero(counted[0])[-1])

    def _keep_attention(self) -> None:
        """Weights and gradients after training and before it, and weights between, as far as there is room for them.

        The weights after training are always there: the page begins with them.
        """
        begun = self.tensors.size
        for full, array in self._attention():
            needed = full.startswith("last/") and full.endswith(".attn")
            room = MAPS - (self.tensors.size - begun)
            if full not in self.tensors.packed and (needed or size_of(array) <= room):
                self.tensors.add(full, array, ("head", "query", "key"))

    def _attention(self) -> Iterator[tuple[str, np.ndarray]]:
        """Names and float32 arrays, the most needed first."""
        for name, kept in (("attn", "values"), ("attn.grad", "grads")):
            for (snapshot, p), found in self.walk.traces.items():
                for layer in found.layers:
                    array = getattr(layer, kept)["attn"].astype(np.float32)
                    yield f"{snapshot}/{p}/{layer.path}.{name}", array
        for epoch, seen in self.recorded["attention"].items():
            for p, layers in enumerate(seen):
                for path, attn in layers.items():
                    yield f"{epoch}/{p}/{path}.attn", attn.astype(np.float32)

    def _keep_small(self) -> None:
        if self.samples is not None:
            cosine = np.rint(100 * np.nan_to_num(self.samples.cosine)).astype(np.int8)
            order = np.argsort(-self.samples.norms, kind="stable")
            self.tensors.add("last/cosine", cosine[np.ix_(order, order)], ("example", "example, percent"))
        sizes = np.array(self.recorded["sizes"], np.float32).reshape(-1, len(MEASURES), len(self.weights["last"]))
        self.tensors.add("training/sizes", sizes, ("step", ", ".join(MEASURES), "parameter"))

    def _data(self) -> dict[str, Any]:
        epochs = {epoch: f"after epoch {epoch}" for epoch in self.recorded["attention"]}
        kept = f"after training (epoch {self.result['best_epoch']})"
        watched = (name for name in self.tensors.packed if name.endswith(".attn"))
        return {
            "schema": SCHEMA,
            "run": {"command": self.said, "config": self.config, "result": self.result, "labels": self.labels},
            "tokens": [_tokens(example) for example in self.examples],
            "claims": self._claims(),
            "snapshots": {"first": "before training", **epochs, "last": kept},
            "history": self.history,
            "steps": self.recorded["steps"],
            "broken": self.recorded["broken"],
            "parameters": list(self.weights["last"]),
            "walks": self.walk.walks,
            "losses": self.walk.losses,
            "start": self.walk.start(),
            "layers": {path: _who_asks(path) for path in sorted({name.split("/")[2][:-5] for name in watched})},
            "samples": None if self.samples is None else _samples(self.samples),
            "attribution": [_attribution(one) for one in self.attributions],
            "gradcheck": [_checked(one) for one in self.checked],
            "graph": _brief(self.graph.by_module(1).to_json()),
            "figures": _brief([chart.to_json() for chart in (*self.curves, self.step_curve)]),
            "tensors": self.tensors.packed,
        }

    def _claims(self) -> list[dict[str, Any]]:
        """What this report has checked of its own numbers, and the claims of claims.json, if it is in the directory."""
        rows = [_claim(*row) for row in (*_of_walk(self.walk), self._of_check())]
        there = (self.run.path / CLAIMS).exists()
        measured: list[dict[str, Any]] = json.loads(claims_in(self.run.path)) if there else []
        return rows + measured

    def _of_check(self) -> tuple[str, float, float, str]:
        wrong = sum(int(one.wrong.sum()) for one in self.checked)
        return "gradient check: elements that differ from differences of the loss", wrong, 0, "definition of a gradient"

    def html(self) -> str:
        """The page."""
        result = self.result
        layers = f"{result['scenario']} with {result['model']}"
        parts_only = any(example.part(0) for example in self.examples)
        card = panels.run_card(
            self.config, result, self.said, self.recorded["seconds"], self.data["claims"], parts_only=parts_only
        )
        sizes = unpack(self.tensors.packed["training/sizes"])
        parts: dict[str, str] = {
            "title": escape(f"{layers}: report of a run"),
            "style": _source("report.css"),
            "script": _source("report.js"),
            "heading": escape(f"{layers[0].upper()}{layers[1:]}"),
            "lead": escape(f"{headline(result['summary'])}."),
            "card": card,
            "curves": join(chart.html() for chart in self.curves),
            "walk": static.walk(self.data),
            "maps": static.maps(self.data),
            "health": panels.health(
                self.data["parameters"], self.data["steps"], sizes, self.recorded["broken"], *self.gradients
            ),
            "samples": panels.samples(self.samples),
            "attribution": panels.attributions(self.attributions),
            "gradcheck": panels.gradcheck(self.checked, self.step_curve),
            "graph": panels.graph(self.graph, measures.last_layer(self.model)),
            "reproduce": panels.reproduce(self.said),
            "data": as_json(self.data),
        }
        first, *pieces = _source("template.html").split("{{")
        return first + "".join(parts[name] + rest for name, rest in (piece.split("}}", 1) for piece in pieces))


def claims_in(path: Path) -> str:
    """The claims.json in a directory; UsageError if that holds no table of claims."""
    file = path / CLAIMS
    try:
        text = file.read_text(encoding="utf-8")
        found = json.loads(text)
        if not isinstance(found, list):
            raise TypeError("a table is a list of rows")
        panels.claims_table(found)
    except OSError:
        reason = f"it has no {CLAIMS} (python -m experiments claims makes one)"
        raise UsageError(f"{path} is not the directory of a run of the claims: {reason}") from None
    except (LookupError, TypeError, ValueError):
        raise UsageError(f"{file} cannot be used: it holds no table of claims") from None
    return text


def _recorded(run: Run, name: str) -> dict[str, Any]:
    try:
        return saving.load_checkpoint(run.path / name)
    except FileNotFoundError:
        raise UsageError(f"{run.path} has no {name}: it was trained without a recorder, or not to its end") from None
    except ValueError as error:
        raise UsageError(f"{run.path / name} cannot be used: {error}") from None


def _tokens(example: Examples) -> dict[str, Any]:
    """The names of one example's vectors."""
    names = {"queries": example.queries[0], "keys": example.keys[0], "answers": example.answers[0]}
    return {"text": example.title(0), **names}


def _who_asks(path: str) -> dict[str, str]:
    """Which of a probe's names are those of a layer's queries, and which those of its keys."""
    own = "keys" if path.startswith("encoder") else "queries"
    return {"asks": own, "asked": "keys" if path.endswith(".cross") else own}


def _samples(found: measures.Samples) -> dict[str, Any]:
    return {"names": found.names, "norms": _short(found.norms), "noise_scale": found.noise_scale}


def _attribution(found: measures.Attribution) -> dict[str, Any]:
    return {**vars(found), "methods": {name: _short(values) for name, values in found.methods.items()}}


def _checked(found: measures.Checked) -> dict[str, Any]:
    numbers = {"analytic": _short(found.analytic), "numeric": _short(found.numeric)}
    return {"name": found.name, "indices": found.indices, **numbers}


def _short(array: np.ndarray) -> list[float]:
    return [float(f"{v:.9g}") for v in array.reshape(-1)]


def _brief(x: Any) -> Any:
    """With six digits of every float: more than are shown."""
    if isinstance(x, float):
        return float(f"{x:.6g}")
    if isinstance(x, Mapping):
        return {name: _brief(value) for name, value in x.items()}
    return [_brief(value) for value in x] if isinstance(x, (list, tuple)) else x


def _claim(what: str, value: float, bound: float, source: str) -> dict[str, Any]:
    threshold = f"<= {bound:g}"
    return {"claim": what, "value": value, "threshold": threshold, "passed": bool(value <= bound), "source": source}


def _of_walk(walk: Walk) -> Sequence[tuple[str, float, float, str]]:
    layers = [layer for found in walk.traces.values() for layer in found.layers]
    if not layers:
        return []
    sums = max(float(np.abs(layer.values["attn"].sum(-1) - 1).max()) for layer in layers)
    zero = max(float(np.abs(layer.grads["scores"].sum(-1)).max()) for layer in layers)
    rows = [
        ("attention: how far the weights of a query are from adding up to 1", sums, 1e-12, "the lecture: softmax"),
        (
            "attention: how far the gradients of a query's scores are from adding up to 0",
            zero,
            1e-12,
            "softmax backward",
        ),
    ]
    if walk.differences:
        gap = max(walk.differences)
        rows.append(("walk: largest gap between a gradient and a difference of the loss", gap, 1e-6, "definition of a "
                     "gradient"))  # fmt: skip
    return rows


def as_json(data: Any) -> str:
    """JSON for a <script>: no NaN (null), and nothing that could end the element."""
    text = json.dumps(_finite(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _finite(x: Any) -> Any:
    if isinstance(x, np.generic):
        x = x.item()
    if isinstance(x, float):
        return x if math.isfinite(x) else None
    if isinstance(x, Mapping):
        return {str(key): _finite(value) for key, value in x.items()}
    if isinstance(x, (list, tuple)):
        return [_finite(value) for value in x]
    return x


def _source(name: str) -> str:
    """One of the parts that are the same in every report, without its indentation."""
    return re.sub(r"(?m)^ +", "", (SOURCES / name).read_text(encoding="utf-8"))
