"""The numbers of the walk through self-attention: which traces are kept, and where a reader starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.report import trace
from experiments.report.examples import Examples
from experiments.report.pack import Tensors, size_of
from minigrad import nn

AXES = {
    "x": ("query", "dim"),
    "context": ("key", "dim"),
    "input": ("query", "dim"),
    "q": ("head", "query", "component"),
    "k": ("head", "key", "component"),
    "v": ("head", "key", "component"),
    "scores": ("head", "query", "key"),
    "attn": ("head", "query", "key"),
    "b": ("query", "head and component"),
    "out": ("query", "dim"),
}
CENTRE = ("q", "k", "v", "scores", "attn", "b")  # what the walk from the scores on needs
BUDGET = 270_000  # bytes of the file for these tensors
FIRST = 700_000  # what those of the first example after training may take, lest there be too little to walk through


class Walk:
    """Fills `tensors`, in the order of their worth, and lists in `walks` and `losses` what can be walked through."""

    def __init__(
        self,
        model: nn.Module,
        weights: Mapping[str, Mapping[str, np.ndarray]],
        probes: Sequence[Examples],
        labels: Sequence[str],
        smoothing: float,
        tensors: Tensors,
    ):
        """weights: of the snapshots "first" and "last"."""
        self._model, self._weights, self._probes, self._smoothing = model, weights, probes, smoothing
        self.labels, self.tensors = labels, tensors
        self.walks: list[dict[str, Any]] = []
        self.losses: dict[str, dict[str, Any]] = {}
        self.differences: list[float] = []  # for each layer, how far gradients and differences of the loss are apart
        self.traces = {
            (snapshot, p): trace.trace(model, weights[snapshot], probe, smoothing)
            for snapshot in ("last", "first")
            for p, probe in enumerate(probes)
        }
        self._before = tensors.size
        paths = trace.walkable(model)
        for path in reversed(paths):
            self._consider(path, True, "last", 0)
        for path in reversed(paths):
            for snapshot, p in (("first", 0), ("last", 1), ("last", 2)):
                if p < len(probes):
                    self._consider(path, False, snapshot, p)

    def _consider(self, path: str, whole: bool, snapshot: str, p: int) -> None:
        """Keep a layer's numbers if there is room for them; if not for all of them, then for those of its centre."""
        layer = next(layer for layer in self.traces[snapshot, p].layers if layer.path == path)
        for wanted in (True, False) if whole else (False,):
            arrays = self._arrays(layer, wanted, snapshot, p)
            size = sum(size_of(array) for array, _ in arrays.values())
            most = FIRST if (snapshot, p) == ("last", 0) else BUDGET
            if size <= most - (self.tensors.size - self._before):
                return self._keep(layer, arrays, wanted, snapshot, p)
        return None

    def _keep(self, layer: trace.LayerTrace, arrays: dict[str, Any], whole: bool, snapshot: str, p: int) -> None:
        if whole:
            differences = trace.Differences(
                self._model, self._weights[snapshot], self._probes[p], self._smoothing, layer
            )
            found = trace.check(differences, layer)
            self.differences.append(trace.largest_gap(layer, found))
            for name, array in found.items():
                arrays[f"{snapshot}/{p}/{layer.path}.{name}.fd"] = (array.astype(np.float32), ("",) * array.ndim)
        for name, (array, axes) in arrays.items():
            if name not in self.tensors.packed:
                self.tensors.add(name, array, axes)
        self.walks.append(
            {
                "snapshot": snapshot,
                "probe": p,
                "layer": layer.path,
                "block": layer.block,
                "heads": layer.heads,
                "key_dim": layer.key_dim,
                "scale": layer.scale,
                "cross": layer.cross,
                "clip": layer.clip,
                "residual": layer.residual,
                "around": layer.around,
                "featured": layer.featured,
                "components": layer.components if whole else [list(range(layer.key_dim))] * layer.heads,
                "whole": whole,
                "output": "output" in layer.weights,
            }
        )
        self._tell_loss(snapshot, p)

    def _tell_loss(self, snapshot: str, p: int) -> None:
        found = self.traces[snapshot, p]
        answers = self._probes[p].answers[0]
        places = found.places if len(answers) > 1 else np.zeros(1, int)
        truth = self._probes[p].labels.reshape(-1)[places]
        unlikely = -found.log_probabilities
        self.losses[f"{snapshot}/{p}"] = {
            "loss": found.loss,
            "places": places.tolist() if len(answers) > 1 else [-1],
            "right": [answers[place] for place in places],
            "said": [self.labels[best] for best in unlikely.argmin(-1)],
            "unlikely": [float(row[label]) for row, label in zip(unlikely, truth)],  # -ln p of the right label
            "mean": unlikely.mean(-1).tolist(),  # -ln p, the mean over all classes: what label smoothing adds
        }

    def _arrays(self, layer: trace.LayerTrace, whole: bool, snapshot: str, p: int) -> dict[str, Any]:
        """{name: (array, axes)}. Weights are float32, as they were trained, which is exact."""
        here, featured = f"{snapshot}/{p}/{layer.path}", layer.featured
        arrays: dict[str, Any] = {}
        for name in CENTRE:
            arrays[f"{here}.{name}"] = layer.values[name], AXES[name]
            arrays[f"{here}.{name}.grad"] = layer.grads[name], AXES[name]
        if "table" in layer.weights:
            axes = ("head", "distance")
            arrays[f"{snapshot}/{layer.path}.table"] = layer.weights["table"].astype(np.float32), axes
            arrays[f"{here}.table.grad"] = layer.weight_grads["table"], axes
        if not whole:
            return arrays
        for name in ("x", "context") if layer.cross else ("x",):
            arrays[f"{here}.{name}"] = layer.values[name], AXES[name]
        arrays[f"{here}.out.grad"] = layer.grads["out"], AXES["out"]
        few: dict[str, np.ndarray] = {
            "x.grad": layer.grads["x"],
            "out": layer.values["out"],
            **{f"{path}.grad": layer.grads[path] for path in trace.PATHS},
        }
        if layer.norm is not None:
            few |= {"input": layer.values["input"]}
            few |= {"input.grad": layer.grads["input"], "norm.grad": layer.grads["norm"]}
        for name, array in few.items():
            arrays[f"{here}.{name}"] = np.ascontiguousarray(array[:, featured]), ("vector", "featured")
        shared = f"{snapshot}/{layer.path}"
        for path in trace.PATHS:
            weight, grad = layer.weights[path].astype(np.float32), layer.weight_grads[path][featured]
            arrays[f"{shared}.{path}.weight"] = layer.kept(weight), ("dim", "head", "component")
            arrays[f"{here}.{path}.weight.grad"] = layer.kept(grad), ("featured", "head", "component")
            arrays[f"{here}.{path}.rows"] = weight[featured], ("featured", "head and component")
        if "output" in layer.weights:
            weight = layer.weights["output"].astype(np.float32)
            arrays[f"{shared}.output.weight"] = layer.kept(weight.T), ("dim", "head", "component")
            arrays[f"{here}.output.columns"] = weight[:, featured], ("head and component", "featured")
        return arrays

    def start(self) -> dict[str, Any] | None:
        """Where the walk begins: the last vector whose name another one has too, and the head that is surest of it."""
        if not self.walks:
            return None
        first = self.walks[0]
        probe = self._probes[first["probe"]]
        names = probe.keys[0] if first["layer"].startswith("encoder") else probe.queries[0]
        twice = [i for i, name in enumerate(names) if names.count(name) > 1]
        query = twice[-1] if twice else len(names) - 1
        attn = next(
            layer for layer in self.traces[first["snapshot"], first["probe"]].layers if layer.path == first["layer"]
        ).values["attn"]
        sure = attn[:, query].copy()
        names = self._probes[first["probe"]].keys[0]
        sure[:, [name.startswith("(") for name in names]] = 0  # not the begin and end symbols
        if not first["cross"]:
            sure[:, query] = 0
        head, key = np.unravel_index(int(sure.argmax()), sure.shape)
        return {"walk": 0, "head": int(head), "query": query, "key": int(key), "component": 0, "dim": 0}
