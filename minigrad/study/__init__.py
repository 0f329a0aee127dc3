"""Instruments for looking at gradients. They read the recorded graph's data; a run that uses none pays nothing."""

from minigrad.study.anomaly import AnomalyError, detect_anomaly
from minigrad.study.bookkeeping import ledger
from minigrad.study.capture import capture, patch, points, stop_gradient
from minigrad.study.digits import precision
from minigrad.study.graph import calls, graph, recording
from minigrad.study.norms import grad_norms, grad_summary
from minigrad.study.parting import diff

__all__ = [
    "AnomalyError",
    "calls",
    "capture",
    "detect_anomaly",
    "diff",
    "grad_norms",
    "grad_summary",
    "graph",
    "ledger",
    "patch",
    "points",
    "precision",
    "recording",
    "stop_gradient",
]
