"""Gradients after a backward pass, in numbers: by parameter, by module, or all together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from minigrad.nn.module import Module, Parameter
from minigrad.study.text import norm

BY = ("parameter", "module", "total")


@dataclass(frozen=True)
class GradSummary:
    """The `.grad` of one or several parameters, as if these were one vector.

    count: of elements; missing: how many parameters have no gradient (they count nowhere else; norm and rms are None if
    all are missing). zeros: share of elements that are 0; nan, inf: how many are. weight_norm: of the parameters'
    values. update_ratio: the norm of their change since `before`, by their norm then; None if that was not given.
    """

    count: int
    missing: int
    norm: float | None
    rms: float | None
    zeros: float
    nan: int
    inf: int
    weight_norm: float
    update_ratio: float | None


def grad_norms(model: Module) -> dict[str, float | None]:
    """The norm of each parameter's `.grad` by name; None, never 0, for one that no gradient has arrived at.

    >>> import minigrad as mg
    >>> from minigrad import nn, study
    >>> layer = nn.Linear(2, 1)
    >>> layer(np.array([[3.0, 4.0]])).sum().backward()
    >>> study.grad_norms(layer)
    {'weight': 5.0, 'bias': 1.0}
    """
    return {name: None if p.grad is None else norm(p.grad) for name, p in model.named_parameters()}


def grad_summary(
    model: Module, by: str = "parameter", *, before: Mapping[str, np.ndarray] | None = None
) -> dict[str, GradSummary]:
    """Summaries of the parameters' gradients, by "parameter", by "module", or of the "total" (under that name).

    A module's summary, under its path ("" for the model), is of all parameters at and below it. before: the
    model.state_dict() from before the optimizer's step, to measure by how much that has moved the parameters: about
    1e-3 of their norm is usual, whatever the optimizer, while learning rate times gradient would be true of plain SGD
    alone. Call it after step() and before zero_grad() then. Raises ValueError for another `by`, and for a `before` that
    lacks a parameter.

    >>> import minigrad as mg
    >>> from minigrad import nn, optim, study
    >>> layer = nn.Linear(2, 1)
    >>> optimizer = optim.SGD(layer.parameters(), lr=0.1)
    >>> layer(np.array([[3.0, 4.0]])).sum().backward()
    >>> before = layer.state_dict()
    >>> optimizer.step()
    >>> total = study.grad_summary(layer, "total", before=before)["total"]
    >>> total.count, round(total.norm, 3)
    (3, 5.099)
    >>> bool(np.isclose(total.update_ratio, 0.1 * total.norm / np.linalg.norm(before["weight"])))
    True
    """
    if by not in BY:
        raise ValueError(f"a summary is by one of {', '.join(map(repr, BY))}, and {by!r} was given")
    named = dict(model.named_parameters())
    if before is not None and (lacking := [name for name in named if name not in before]):
        raise ValueError(f"`before` is a state_dict() of this model, and the one given lacks {', '.join(lacking)}")
    groups: dict[str, list[str]] = {"total": list(named)}
    if by == "parameter":
        groups = {name: [name] for name in named}
    elif by == "module":
        names = {id(p): name for name, p in named.items()}
        groups = {path: [names[id(p)] for p in module.parameters()] for path, module in model.named_modules()}
    return {key: _summary([named[n] for n in group], _old(before, group)) for key, group in groups.items() if group}


def _old(before: Mapping[str, np.ndarray] | None, names: Sequence[str]) -> list[np.ndarray] | None:
    return None if before is None else [np.asarray(before[name]) for name in names]


def _summary(parameters: Sequence[Parameter], before: Sequence[np.ndarray] | None) -> GradSummary:
    gradients = [p.grad for p in parameters if p.grad is not None]
    count = sum(g.size for g in gradients)
    size = norm(*gradients) if gradients else None
    ratio = None
    if before is not None:
        old = norm(*before)
        moved = norm(*(np.subtract(p._array, b, dtype=np.float64) for p, b in zip(parameters, before)))
        ratio = moved / old if old else (float("inf") if moved else 0.0)
    return GradSummary(
        count=count,
        missing=len(parameters) - len(gradients),
        norm=size,
        rms=None if size is None else size / max(count, 1) ** 0.5,
        zeros=sum(g.size - np.count_nonzero(g) for g in gradients) / max(count, 1),
        nan=sum(int(np.isnan(g).sum()) for g in gradients),
        inf=sum(int(np.isinf(g).sum()) for g in gradients),
        weight_norm=norm(*(p._array for p in parameters)),
        update_ratio=ratio,
    )
