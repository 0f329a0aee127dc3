"""Checks of gradients: gradcheck compares them with finite differences, and gradgradcheck the second derivatives."""

from minigrad.check.gradcheck import CheckResult, GradientError, Mismatch, gradcheck, gradgradcheck

__all__ = ["CheckResult", "GradientError", "Mismatch", "gradcheck", "gradgradcheck"]
