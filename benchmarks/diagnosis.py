"""How good is gradcheck's diagnosis? Every mutant of every gradient rule, planted into programs right otherwise.

    python -m benchmarks.diagnosis                         every mutant, in a program of a few calls; some minutes
    python -m benchmarks.diagnosis --attention             in a two-layer attention model, those of the ops that it uses
    python -m benchmarks.diagnosis --others                those of references, composed functions and the engine
    python -m benchmarks.diagnosis --programs 2000         no mutant: random programs, which gradcheck must not fail
    python -m benchmarks.diagnosis --ops matmul sum -v     those of some ops, every miss shown

For each mutant that gradcheck or gradgradcheck notices: does it name the op and the line that were damaged, and the
kind of damage? Mutants that neither notices are counted by kind (the laws catch them: see minigrad.check.mutate).

Damage outside of gradient rules has no rule to be named, so it is counted apart, by what is said of it: a reference is
what second derivatives of a fused op come from; a composed function that drops an argument's history is not recorded
as a call; and with a damaged engine every check of a call by itself runs through that engine too.
"""

from __future__ import annotations

import argparse
import secrets
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import filterfalse, groupby
from typing import Any

import numpy as np

import minigrad as mg
from minigrad import nn
from minigrad.check import CheckResult
from minigrad.check.alone import Alone
from minigrad.check.cases import Case, load_cases
from minigrad.check.mutate import Known, Mutant, judge, mutants, planted
from minigrad.check.programs import Program, check_programs
from minigrad.check.record import Record
from minigrad.check.subject import Subject
from minigrad.engine import OPS
from minigrad.op import Derived
from minigrad.tensor import Tensor
from minigrad.trees import flatten

CASES = "tests/ops"
TRIED = 12  # cases of an op in which a mutant may show

# What each kind of damage may rightly be called: what it is, or what it comes to in the call at hand.
RIGHT: dict[str, set[str]] = {
    "sign": {"sign"},
    "factor 1.001": {"constant factor"},
    "factor 2": {"constant factor"},
    "missing": {"not connected"},
    "offset": {"constant offset"},
    "last element": {"one row or column", "some elements"},
    "last row": {"one row or column"},
    "off by one": {"one row or column", "some elements"},
    "transposed": {"transposed"},
    "broadcast sum dropped": {"one row or column"},
    "float64": {"wrong dtype"},
    "float32": {"wrong dtype"},
    "constant": {"second order only"},
    "second-order term dropped": {"second order only"},
    "axis off by one": {"transposed", "wrong shape"},  # axes of other sizes do not fit
    "writes to cotangent": {"input mutated"},
    "assigned, not added": {"one row or column", "some elements"},
    "zero times infinity": {"not finite"},
    "first output ignored": {
        "one row or column",
        "some elements",
        "not connected",
    },  # the latter where no other output has a gradient
    "last output ignored": {"one row or column", "some elements", "not connected"},
    # Operands of other shapes do not fit; those of subtract differ by their sign, those of outer by their order.
    "swapped operands": {"swapped operands", "wrong shape", "sign", "transposed"},
}
Place = tuple[str, str, int]  # op, file, line


@dataclass
class Score:
    """How many mutants were noticed, and for how many the place and the kind were right."""

    noticed: int = 0
    place: int = 0
    kind: int = 0
    misses: list[str] = field(default_factory=list)
    unnoticed: Counter[str] = field(default_factory=Counter)

    def add(self, mutant: Mutant, result: CheckResult, places: set[Place]) -> None:
        assert result.diagnosis is not None
        culprit = result.culprit
        place = culprit is not None and (culprit.op, culprit.file, culprit.line) in places
        allowed = RIGHT[mutant.kind] | _indistinguishable(mutant, result)
        kind = result.diagnosis.kind in allowed
        self.noticed += 1
        self.place += place
        self.kind += kind
        if not (place and kind):
            found = f"{culprit.op}:{culprit.line}" if culprit is not None else "no culprit"
            self.misses.append(f"{mutant} -> {found}; {result.diagnosis}")

    def __str__(self) -> str:
        n = self.noticed or 1
        return (
            f"{self.noticed} mutants noticed; op and line right for {self.place} ({self.place / n:.2%}), "
            f"kind right for {self.kind} ({self.kind / n:.2%}); not noticed: {sum(self.unnoticed.values())} "
            f"({', '.join(f'{kind} {count}' for kind, count in self.unnoticed.most_common())})"
        )


def _indistinguishable(mutant: Mutant, result: CheckResult) -> set[str]:
    """What else a damage is, where the gradient is such that the two are the same array."""
    inputs = result.inputs if result.culprit is None else result.culprit.result.inputs
    for i in (i for i in inputs if i.wrong.any()):
        values = i.numeric[i.probed]
        if (
            mutant.kind in ("last element", "last row", "off by one", "swapped operands")
            and not i.analytic[i.probed].any()
        ):
            return {"not connected"}  # all is gone: exchanged with an operand that is not there, say
        if mutant.kind == "last element" and np.count_nonzero(values) == 1:
            return {"constant factor"}  # half of the only element
        if mutant.kind == "offset" and np.allclose(values, values[0]):
            return {"constant factor"}  # a constant plus a constant
    return set()


# --- programs to plant mutants into ------------------------------------------------------------------------------


def around(case: Case) -> Program:
    """A program of one call of the case's op among others, which are of other ops."""
    before = "{0} / 0.5" if case.name == "multiply" else "2.0 * {0}"
    names = [f"x{i}" for i in range(len(case.arrays))]
    lines = [
        f"def program({', '.join(names)}):",
        *(f"    t{i} = {before.format(name)}" for i, name in enumerate(names)),
        f"    ys = call({', '.join(f't{i}' for i in range(len(names)))})",
        f"    return [mg.{'cos' if case.name == 'sin' else 'sin'}(y) for y in parts(ys)]",
    ]
    return Program(f"<around {case}>", "\n".join(lines) + "\n", tuple(np.asarray(x / 2) for x in case.arrays))


def singular(case: Case) -> Program:
    """The same at 0, 1, infinities and NaN, where derivatives are infinite; but nothing of it is used."""
    program = around(case)
    values = np.array([0.0, 1.0, -1.0, np.inf, -np.inf, np.nan])
    head, _, _ = program.source.rpartition("    return")
    source = f"{head}    return [mg.where(np.zeros(y.shape, bool), y, 0.0) for y in parts(ys)]\n"
    return Program(program.name, source, tuple(np.resize(values, x.shape) for x in program.inputs))


def parts(ys: Any) -> Iterator[Tensor]:
    """The floating outputs; a complex one as its two parts."""
    for y in flatten(ys)[0]:
        if y.dtype.kind == "c":
            yield mg.real(y)
            yield mg.imag(y)
        elif y.dtype.kind == "f":
            yield y


class AttentionModel(nn.Module):
    """Two layers of self-attention and FC, and a loss, from plain ops and fused ones."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.embedding = nn.Embedding(6, 3, rng=rng)
        self.norms = [nn.LayerNorm(3) for _ in range(2)]
        self.projections = [nn.Linear(3, 9, rng=rng) for _ in range(2)]
        self.hidden = [nn.Linear(3, 4, rng=rng) for _ in range(2)]
        self.output = [nn.Linear(4, 3, rng=rng) for _ in range(2)]
        self.head = nn.Linear(3, 3, rng=rng)
        self.all_parameters = self.parameters()
        self.known: dict[bytes, np.ndarray] = {}

    def __call__(self, ids: np.ndarray, vectors: Any, labels: np.ndarray) -> Any:
        """The loss. Damage to gradient rules changes no value, so what differences need is computed once for all."""
        operands = [vectors, *self.all_parameters]
        if any(isinstance(x, Tensor) and x.requires_grad for x in operands):
            return self.forward(ids, vectors, labels)
        key = b"".join(np.asarray(x).tobytes() for x in operands)
        if key not in self.known:
            self.known[key] = self.forward(ids, vectors, labels).numpy()
        return mg.tensor(self.known[key])

    def forward(self, ids: np.ndarray, vectors: Any, labels: np.ndarray) -> Any:
        x = self.embedding(ids)
        x = x + vectors
        for i in range(2):
            h = self.norms[i](x)
            h = self.projections[i](h)
            q, k, v = h[..., :3], h[..., 3:6], h[..., 6:]
            if i:
                h = mg.attention(q, k, v)
            else:
                k = mg.swapaxes(k, -1, -2)
                scores = mg.matmul(q, k)
                scores = scores / 2.0
                h = mg.matmul(mg.softmax(scores), v)
            x = x + h
            h = self.hidden[i](x)
            h = mg.gelu(h) if i else mg.tanh(h)
            x = x - self.output[i](h)
        pooled = mg.mean(x, 1)
        top = mg.max(x, 1)
        logits = self.head(mg.concatenate([pooled, top], 0))
        return mg.cross_entropy(logits, np.concatenate([labels, labels]))


def attention_model() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    rng = np.random.default_rng(0)
    model = AttentionModel(rng)
    ids, labels = np.array([[0, 3, 3], [5, 1, 0]]), np.array([0, 2])
    return model, (ids, rng.standard_normal((2, 3, 3)).astype(np.float32), labels)


def places_of(f: Callable[..., Any], inputs: Sequence[Any], op: str) -> set[Place]:
    """Where the undamaged program calls the op, or a call whose own derivative is computed with it."""
    with np.errstate(all="ignore"):
        record = Record(Subject(f, tuple(inputs)))
        calls = [Alone(node, arguments) for node, arguments in record.with_operands()]
        found = [call for call in calls if call.op.name == op or op in {inner.name for inner in call.ops_of_rule()}]
    return {(op, call.file, call.line) for call in found}


def _is_floating(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind == "f"


# --- measuring ---------------------------------------------------------------------------------------------------


def notice(mutant: Mutant, f: Callable[..., Any], inputs: Sequence[Any]) -> CheckResult | None:
    """What gradcheck, or else gradgradcheck, says of the damaged program; None if both pass it."""
    if mutant.kind == "float64":  # which only a lower precision shows
        inputs = [x.astype(np.float32) if _is_floating(x) else x for x in inputs]
    for check in (mg.gradcheck, mg.gradgradcheck):
        with planted(mutant):
            result = check(f, tuple(inputs), raise_exception=False)
        if not result:
            return result
    return None


def in_small_programs(names: Iterable[str] | None, cases: Sequence[Case]) -> Score:
    """Every mutant that the laws kill, in a program around the case that killed it, or another of its op."""
    score = Score()
    known: defaultdict[str, Known] = defaultdict(Known)
    for mutant in filter(is_of_rule, mutants(names)):
        of_op = [case for case in cases if case.name == mutant.op]
        outcome = judge(mutant, of_op, known[mutant.op])
        if outcome.verdict != "killed":
            continue
        result, f, inputs = noticed_around(mutant, of_op, outcome.case)
        if result is not None:
            score.add(mutant, result, places_of(f, inputs, mutant.op))
        else:
            score.unnoticed[f"{mutant.kind} ({outcome.law})"] += 1
            score.misses.append(f"{mutant} not noticed; killed by {outcome.law} on {outcome.case}")
    return score


def noticed_around(mutant: Mutant, cases: Sequence[Case], killing: str) -> tuple[CheckResult | None, Any, Any]:
    """What is said of the mutant in a program around the killing case, or some other; the program, and its inputs."""
    f, inputs = None, ()
    for case in sorted(cases, key=lambda case: str(case) != killing)[:TRIED]:
        program = singular(case) if mutant.kind == "zero times infinity" else around(case)
        f, inputs = program.function(call=case, parts=parts), program.inputs
        result = _noticed_unless_right(mutant, f, inputs)
        if result is not None:
            return result, f, inputs
    return None, f, inputs


def _noticed_unless_right(mutant: Mutant, f: Callable[..., Any], inputs: Sequence[Any]) -> CheckResult | None:
    """None too where the undamaged program cannot be checked: its values are not finite, say."""
    result = notice(mutant, f, inputs)
    if result is None:
        return None
    second = result.what == "gradgradcheck"
    undamaged = (mg.gradgradcheck if second else mg.gradcheck)(f, tuple(inputs), raise_exception=False)
    return result if undamaged else None


def in_attention(names: Iterable[str] | None) -> Score:
    score = Score()
    f, inputs = attention_model()
    used = {node.op.name for node in Record(Subject(f, inputs)).nodes}
    for op, of_op in groupby(filter(is_of_rule, mutants(names)), key=lambda mutant: mutant.op):
        places = places_of(f, inputs, op) if op in used else set()
        for mutant in of_op if places else ():
            result = notice(mutant, f, inputs)
            if result is not None:
                score.add(mutant, result, places)
            else:
                score.unnoticed[mutant.kind] += 1
    return score


def is_of_rule(mutant: Mutant) -> bool:
    """Whether a gradient rule is damaged, for which an op can be named."""
    return mutant.op != "engine" and not isinstance(OPS[mutant.op], Derived) and mutant.argument != "reference"


def of_others(names: Iterable[str] | None, cases: Sequence[Case]) -> Iterator[str]:
    """What is said of damage elsewhere, counted by class."""
    said: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for mutant in filterfalse(is_of_rule, mutants(names)):
        name = "engine" if mutant.op == "engine" else "reference" if mutant.argument == "reference" else "composed"
        of_op = mixed(cases) if name == "engine" else [case for case in cases if case.name == mutant.op]
        outcome = judge(mutant, of_op)
        if outcome.verdict == "killed":
            result, f, inputs = noticed_around(mutant, of_op, outcome.case)
            what = _said(result, places_of(f, inputs, mutant.op))
            said[name][what] += 1
            said[name]["killed by the laws"] += 1
            yield f"{mutant} -> {what}"
    for name, counts in said.items():
        yield f"{name}: " + "; ".join(f"{what} {count}" for what, count in counts.most_common())


def _said(result: CheckResult | None, places: set[Place]) -> str:
    if result is None:
        return "not noticed"
    assert result.diagnosis is not None
    culprit = result.culprit
    if culprit is None:
        return f"{result.diagnosis.kind}, nobody named"
    is_right = (culprit.op, culprit.file, culprit.line) in places
    return f"{result.diagnosis.kind}, {'its call' if is_right else 'a call'} named"


def mixed(cases: Sequence[Case]) -> list[Case]:
    """One case of each op, then a second one of each, and so on."""
    numbered: Counter[str] = Counter()
    keys = []
    for case in cases:
        numbered[case.name] += 1
        keys.append(numbered[case.name])
    return [case for _, case in sorted(zip(keys, cases), key=lambda pair: pair[0])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", nargs="*", help="only mutants of these ops")
    parser.add_argument("--attention", action="store_true", help="plant into a two-layer attention model")
    parser.add_argument("--others", action="store_true", help="damage elsewhere than in gradient rules")
    parser.add_argument("--programs", type=int, help="check so many correct random programs instead")
    parser.add_argument("--seed", type=int, help="of the first program (a fresh one unless given)")
    parser.add_argument("--cases", default=CASES, help="directory of the ops' sample calls")
    parser.add_argument("-v", "--verbose", action="store_true", help="show every miss")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    if given.programs:
        seed = secrets.randbits(48) if given.seed is None else given.seed
        failed = check_programs(range(seed, seed + given.programs), mg.gradcheck)
        print(f"{len(failed)} of {given.programs} correct programs from seed {seed} failed")
        misses = [f"{program.source}{result}" for program, result in failed]
    elif given.others:
        misses = list(of_others(given.ops, load_cases(given.cases)))
        print(*(line for line in misses if "->" not in line), sep="\n")
    else:
        score = in_attention(given.ops) if given.attention else in_small_programs(given.ops, load_cases(given.cases))
        print(score)
        misses = score.misses
    print(f"{time.perf_counter() - start:.0f} s", flush=True)
    if given.verbose:
        print("\n".join(misses))


if __name__ == "__main__":
    main()
