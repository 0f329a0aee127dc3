"""gradcheck: the gradients that backward computes, compared with finite differences; and if they differ, why.

f is called with float64 copies. With a random cotangent c for its outputs, the analytic gradient of sum(c * f) comes
from one backward pass, and the numeric one from differences. What differs is diagnosed, and every call that f makes is
then checked by itself, which names the one that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from minigrad.check.compare import METHODS, Examination, examine
from minigrad.check.culprit import Findings, differing_call, find, hidden_kink, misbehaving
from minigrad.check.diagnosis import diagnose, sizes_of
from minigrad.check.noise import Noise
from minigrad.check.result import CheckResult, Diagnosis, GradientError, InputResult, Skip
from minigrad.check.second import second_order
from minigrad.check.subject import Subject
from minigrad.engine import Transform


def gradcheck(f: Callable[..., Any], inputs: Any, *, method: str = "auto", raise_exception: bool = True) -> CheckResult:
    """Compare the gradient of `f` with differences, in float64; where they disagree, say what is wrong and where.

    inputs: a tuple of f's arguments, or one argument by itself; each an array or a nested list, tuple or dict of
    arrays. Floating arrays are copied and lifted to float64; everything else (integers, masks, None) is passed on as it
    is. If f is a Module its parameters are checked too, by name; a Module among the inputs stands for its parameters.
    f returns a floating tensor, or a nested list, tuple or dict of them; its output may ignore an input (gradient 0).

    method: "central" differences of fourth order for every element; a "complex" step, which has no rounding error and
    so shows relative errors of 1e-10, for f whose ops take complex numbers (TypeError otherwise); differences along
    "random" directions, for big inputs; "auto" is central up to some thousand elements, random beyond.

    Returns a CheckResult; when gradients differ, GradientError is raised with its text, unless raise_exception is
    False. At a kink any slope between those of the two sides is accepted and listed in `skipped`. Raises TypeError for
    outputs that are not floating tensors, and where no input is floating.

    >>> import minigrad as mg
    >>> print(gradcheck(lambda x, n: mg.sin(x) ** n, (np.array([0.5, 1.0]), 3)))
    gradcheck passed: 2 elements agree with finite differences
    >>> @mg.op
    ... def cube(x):
    ...     return x**3
    >>> _ = cube.derivative(x=lambda x: 2 * x**2)
    >>> result = gradcheck(lambda x: mg.exp(cube(x)), np.array([0.5, 1.0]), raise_exception=False)
    >>> result.diagnosis.kind, result.culprit.op, result.culprit.argument
    ('constant factor', 'cube', 'x')
    """
    subject = _subject("gradcheck", f, inputs, method)
    with _told_of_lists(inputs):
        return _finish("gradcheck", subject, subject, method, raise_exception)


def gradgradcheck(
    f: Callable[..., Any], inputs: Any, *, method: str = "auto", raise_exception: bool = True
) -> CheckResult:
    """Check the second derivatives of `f`: gradcheck of its gradient, as a function of the inputs and of the cotangent.

    Arguments, result and errors as for `gradcheck`.

    >>> bool(gradgradcheck(lambda x: x**4, 2.0))
    True
    """
    first = _subject("gradgradcheck", f, inputs, method)
    with _told_of_lists(inputs):
        return _finish("gradgradcheck", first, second_order(first), method, raise_exception)


def _subject(what: str, f: Callable[..., Any], inputs: Any, method: str) -> Subject:
    if method not in METHODS:
        raise ValueError(f"method is one of {', '.join(METHODS)}, not {method!r}")
    if not callable(f):
        raise TypeError(f"{what} checks a function of the inputs, and was given {type(f).__name__}")
    subject = Subject(f, inputs)
    if not subject.leaves:
        raise TypeError(
            f"{what} has nothing to check: no input is a floating array or number (2.0, not 2), and all else "
            "(integers, booleans, complex numbers) is passed on as it is"
        )
    return subject


@contextmanager
def _told_of_lists(inputs: Any) -> Iterator[None]:
    """What f made of a list of tensors, where an array or several arguments were meant, is no help by itself."""
    try:
        yield
    except TypeError as error:
        if not isinstance(inputs, list):
            raise
        raise TypeError(
            f"{error} (inputs is a list, which f was given as one argument, a list of tensors: pass np.array(...) for "
            "one array, a tuple for several arguments)"
        ) from error


def _finish(what: str, first: Subject, checked: Subject, method: str, raise_exception: bool) -> CheckResult:
    examination = examine(checked, method)
    with np.errstate(all="ignore"):  # f has warned already, if it does
        if examination:
            culprit = misbehaving(first)
            result = CheckResult(what, examination.inputs, culprit.diagnosis if culprit else None, culprit)
        else:
            result = _explain(what, first, checked, examination)
    if raise_exception and not result:
        raise GradientError(result) from examination.error
    return result


def _explain(what: str, first: Subject, checked: Subject, examination: Examination) -> CheckResult:
    """The result of a check that did not pass: with a culprit, or with what else explains it (which may acquit f)."""
    failure = examination.failure
    if failure is not None and failure.kind == "non-deterministic":
        where = differing_call(first)
        where = f"{failure.sentence} (they first differ in {where})" if where else failure.sentence
        return CheckResult(what, examination.inputs, Diagnosis(failure.kind, where))
    undefined = None if failure else _undefined(first, examination)
    if undefined is not None:
        return CheckResult(what, examination.inputs, undefined)
    findings = find(first, second=first is not checked)
    if findings.culprit is not None:
        return CheckResult(what, examination.inputs, findings.culprit.diagnosis, findings.culprit)
    if failure is not None:
        return CheckResult(what, examination.inputs, failure)
    return _without_culprit(what, first, checked, examination, findings)


def _undefined(f: Subject, examination: Examination) -> Diagnosis | None:
    """Where f has no value it has no gradient, whatever its rules say. (An infinite one may come from no input.)"""
    with Transform(), np.errstate(all="ignore"):  # in a transform, so that f's own transforms return tensors
        values = np.concatenate([y._array.ravel() for y in f(f.constants())])
    finite = all(np.isfinite(i.analytic[i.wrong]).all() for i in examination.inputs)
    for name, bad in (("NaN", np.isnan(values)), ("infinite", np.isinf(values) & (not finite))):
        if bad.any():
            sentence = f"f is {name} in {int(bad.sum())} of {bad.size} elements at these inputs: check at other inputs"
            return Diagnosis("not finite", sentence)
    return None


def _without_culprit(
    what: str, first: Subject, checked: Subject, examination: Examination, findings: Findings
) -> CheckResult:
    """Every call is right by itself: kinks or noise hide that, or a path is missing from the record."""
    inputs = examination.inputs
    wrong = [i for i in inputs if i.wrong.any()]
    names = zip(checked.names, checked.leaves)
    diagnosis = diagnose(wrong[0], sizes_of([(name, x.shape) for name, x in names]))
    if not wrong[0].connected:
        return CheckResult(what, inputs, diagnosis)
    if findings.single:
        sentence = f"f computes in less than float64 ({findings.single}), which differences cannot see through"
        return CheckResult(what, inputs, Diagnosis("wrong dtype", f"{sentence}: cast outside of f"))
    where = findings.kinks[0] if findings.kinks else hidden_kink(first)
    if where:
        why = f"every call is right by itself, and one lies at a kink: {where}"
        return CheckResult(what, tuple(_acquitted(i, why) for i in inputs))
    noise = Noise(checked, inputs)
    if noise.explains_all:
        why = f"float noise: every call is right by itself, and differences see no finer than {noise.best:.1g}"
        return CheckResult(what, tuple(_acquitted(i, why) for i in inputs))
    if noise.drowns_all:
        return CheckResult(what, inputs, noise.diagnosis)
    if diagnosis.kind in ("kink", "not finite"):
        return CheckResult(what, inputs, diagnosis)
    sentence = (
        f"every recorded call is right by itself, so part of f's dependence on {wrong[0].name} is not recorded: "
        f"look for .data, .numpy(), .item(), .detach() or stop_gradient in f ({diagnosis})"
    )
    return CheckResult(what, inputs, Diagnosis("not connected", sentence))


def _acquitted(i: InputResult, why: str) -> InputResult:
    """With what was wrong as skipped."""
    skipped = [Skip(m.input, m.index, m.analytic, m.numeric, why) for m in i.mismatches()]
    return replace(i, wrong=np.zeros_like(i.wrong), skipped=(*i.skipped, *skipped))
