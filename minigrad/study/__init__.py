"""Instruments for looking at gradients. They read the recorded graph's data; a run that uses none pays nothing."""

from minigrad.study.anomaly import AnomalyError, detect_anomaly
from minigrad.study.attribution import (
    attention_entropy,
    attention_rollout,
    attention_vs_gradient,
    from_point,
    input_x_gradient,
    integrated_gradients,
    kendall_tau,
    leave_one_out,
    saliency,
)
from minigrad.study.bookkeeping import ledger
from minigrad.study.capturing import capture, patch, points, stop_gradient
from minigrad.study.digits import precision
from minigrad.study.graphs import calls, graph, recording
from minigrad.study.jacobians import jacobian_spectrum, layer_jacobian
from minigrad.study.norms import grad_norms, grad_summary
from minigrad.study.parting import diff
from minigrad.study.samples import grad_noise, per_sample_grads

__all__ = [
    "AnomalyError",
    "attention_entropy",
    "attention_rollout",
    "attention_vs_gradient",
    "calls",
    "capture",
    "detect_anomaly",
    "diff",
    "from_point",
    "grad_noise",
    "grad_norms",
    "grad_summary",
    "graph",
    "input_x_gradient",
    "integrated_gradients",
    "jacobian_spectrum",
    "kendall_tau",
    "layer_jacobian",
    "leave_one_out",
    "ledger",
    "patch",
    "per_sample_grads",
    "points",
    "precision",
    "recording",
    "saliency",
    "stop_gradient",
]
