"""Checks of gradients: gradcheck compares them with finite differences, and gradgradcheck the second derivatives."""

from minigrad.check.diagnosis import KINDS
from minigrad.check.gradcheck import gradcheck, gradgradcheck
from minigrad.check.result import CheckResult, Culprit, Diagnosis, GradientError, InputResult, Mismatch, Skip

__all__ = [
    "KINDS",
    "CheckResult",
    "Culprit",
    "Diagnosis",
    "GradientError",
    "InputResult",
    "Mismatch",
    "Skip",
    "gradcheck",
    "gradgradcheck",
]
