"""Instruments for looking at gradients. They read the recorded graph's data; a run that uses none pays nothing."""

from minigrad.study.capture import capture, patch, points, stop_gradient
from minigrad.study.graph import calls, recording

__all__ = ["calls", "capture", "patch", "points", "recording", "stop_gradient"]
