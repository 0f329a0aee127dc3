"""Every law on every op: on the cases of cases*.py, and on calls that hypothesis generates.

Generated calls of the families below vary shapes, axes and indices; all other ops get their cases with other values.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import minigrad as mg
from minigrad.check.cases import Case
from minigrad.check.laws import Sample, check_case, report
from minigrad.engine import OPS
from minigrad.tensor import as_leaf
from minigrad.trees import flatten

EXAMPLES = 5
SEEDS = st.integers(0, 9)


def test_every_op_has_a_case_and_every_case_an_op(cases):
    assert {case.name for case in cases.CASES} == set(OPS)


def holds(cases):
    broken = [broken for case in cases for broken in check_case(case)]
    assert not broken, "\n" + report(broken[:30])


def test_laws(op_name, cases):
    holds([case for case in cases.CASES if case.name == op_name])


def test_constants_may_be_nested_lists(op_name, cases):
    if op_name == "block":
        return  # whose lists are the structure of blocks
    own = [case for case in cases.CASES if case.name == op_name and len(case.arrays) > 1]
    real = [case for case in own if not any(np.iscomplexobj(x) for x in flatten(case.args)[0])]
    for case in real[:2]:
        first = as_leaf(case.arrays[0].copy())
        from_arrays = case.outputs(first, *case.arrays[1:])
        for y, z in zip(case.outputs(first, *(x.tolist() for x in case.arrays[1:])), from_arrays):
            np.testing.assert_array_equal(np.asarray(y.data), np.asarray(z.data))


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value", "ignore:Mean of empty slice")
def test_every_operand_may_be_a_nested_list(op_name, cases):
    if op_name in ("block", "getitem"):  # whose lists are the structure of blocks; what lists have themselves
        return
    own = [case for case in cases.CASES if case.name == op_name and not case.kwargs.get("returned")]
    real = [case for case in own if not any(np.iscomplexobj(x) for x in flatten(case.args)[0])]
    full = [case for case in real if case.arrays and all(x.size and x.dtype == np.float64 for x in case.arrays)]
    for case in full[:2]:
        from_lists = case.outputs(*(x.tolist() for x in case.arrays))
        for y, z in zip(from_lists, case.outputs(*case.arrays), strict=True):
            np.testing.assert_array_equal(np.asarray(getattr(y, "data", y)), np.asarray(getattr(z, "data", z)))


INDEXED_BY_TUPLES = ("getitem", "_scatter", "index_add", "index_put")  # where an array would be another index


def is_integral(x):
    if isinstance(x, (list, tuple)):
        return len({np.shape(i) for i in x}) == 1 and np.asarray(x).dtype.kind in "iu"
    return type(x) is not bool and np.asarray(x).dtype.kind in "iub"


def with_arrays_for_integers(case, kind):
    """The case's call, one for each argument of integers, given as an array (or what `kind` makes of it) there."""
    places = [*range(len(case.args)), *case.kwargs]
    for place in places:
        given = case.args[place] if isinstance(place, int) else case.kwargs[place]
        if not is_integral(given) or (isinstance(given, tuple) and case.name in INDEXED_BY_TUPLES):
            continue
        args, kwargs = list(case.args), dict(case.kwargs)
        (args if isinstance(place, int) else kwargs)[place] = kind(given)
        yield Case(case.op, tuple(args), kwargs, case.expected, f"{case}-{place}", tolerance=case.tolerance)


def value_and_pull(case):
    outputs = case.outputs(*[as_leaf(x.copy()) for x in case.arrays])
    _, pull = mg.vjp(lambda *xs: [y for y in case.outputs(*xs) if isinstance(y, mg.Tensor)], *case.arrays)
    return outputs, pull([np.cos(np.arange(y.size)).reshape(y.shape) for y in outputs if isinstance(y, mg.Tensor)])


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value", "ignore:Mean of empty slice")
def test_integers_may_be_arrays_and_tensors_where_numpy_takes_arrays(op_name, cases):
    if op_name == "block":
        return  # whose lists are the structure of blocks
    for case in [case for case in cases.CASES if case.name == op_name]:
        if any(np.iscomplexobj(x) for x in flatten(case.args)[0]):
            continue
        for kind in (np.asarray, mg.tensor):
            both = zip(with_arrays_for_integers(case, np.asarray), with_arrays_for_integers(case, kind))
            for array_case, own_case in both:
                try:
                    expected = flatten(array_case.value(*case.arrays))[0]
                except Exception:
                    continue
                values, gradients = value_and_pull(own_case)
                for y, z in zip(values, expected, strict=True):
                    np.testing.assert_allclose(np.asarray(getattr(y, "data", y)), z, 1e-9, 1e-9)
                for g, h in zip(gradients, value_and_pull(case)[1], strict=True):
                    np.testing.assert_allclose(g, h, 1e-12, 1e-12)


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value", "ignore:Mean of empty slice")
def test_laws_on_generated_calls(op_name, cases):
    own = [case for case in cases.CASES if case.name == op_name]
    family = FAMILIES.get(op_name, elementwise if is_elementwise(own) else redrawn)

    @settings(
        derandomize=True, max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(family(own))
    def run(case):
        holds([case])

    run()


# --- values ------------------------------------------------------------------------------------------------------


def distinct(shape, seed):
    """Numbers away from 0 and from each other, of either sign."""
    n = int(np.prod(shape))
    x = np.random.default_rng([seed, n]).permutation(np.linspace(-1.87, 2.13, n))
    return np.where(np.abs(x) < 0.02, 0.31, x).reshape(shape)


def shapes(**limits):
    return hnp.array_shapes(**{"min_dims": 1, "max_dims": 3, "min_side": 1, "max_side": 4, **limits})


def arrays(shape):
    return st.builds(distinct, shape if isinstance(shape, st.SearchStrategy) else st.just(shape), SEEDS)


# --- families ----------------------------------------------------------------------------------------------------


def redrawn(own):
    return st.builds(Case.redrawn, st.sampled_from(own), SEEDS)


def plain(own):
    """The cases with nothing but arrays."""
    return [case for case in own if len(case.arrays) == len(case.args) and not case.kwargs and case.arrays]


def is_elementwise(own):
    samples = [
        Sample(case) for case in plain(own) if len({x.shape for x in case.arrays}) == 1 and case.arrays[0].size > 2
    ]
    return bool(samples) and all(sample.elementwise for sample in samples)


def elementwise(own):
    """Broadcasting operands of any shape, with values that some case has in the same place."""
    own = plain(own)
    model = own[0]
    pools = [np.concatenate([case.arrays[i].ravel() for case in own]) for i in range(len(model.arrays))]

    @st.composite
    def cases(draw):
        broadcast = draw(hnp.mutually_broadcastable_shapes(num_shapes=len(pools), max_dims=3, min_side=0, max_side=3))
        rng = np.random.default_rng(draw(SEEDS))
        operands = [rng.choice(pool, shape) for pool, shape in zip(pools, broadcast.input_shapes)]
        return Case(model.op, tuple(operands), {}, model.expected, tolerance=model.tolerance)

    return cases()


def reduction(own, min_side=1):
    """Any axis, several or all, kept or dropped."""

    @st.composite
    def cases(draw):
        x = draw(arrays(shapes(min_side=min_side)))
        axis = draw(st.none() | st.integers(-x.ndim, x.ndim - 1) | hnp.valid_tuple_axes(x.ndim, min_size=1))
        options = {"axis": axis, "keepdims": draw(st.booleans())}
        return Case(own[0].op, (x,), options, own[0].expected, str(options), tolerance=own[0].tolerance)

    return cases()


def along_axis(own):
    @st.composite
    def cases(draw):
        x = draw(arrays(shapes()))
        axis = draw(st.integers(-x.ndim, x.ndim - 1))
        return Case(own[0].op, (x,), {"axis": axis}, own[0].expected, f"{x.shape}-{axis}")

    return cases()


@st.composite
def matmuls(draw):
    fit = draw(hnp.mutually_broadcastable_shapes(signature=np.matmul.signature, max_dims=2, min_side=0, max_side=3))
    return Case("matmul", tuple(draw(arrays(shape)) for shape in fit.input_shapes), {}, np.matmul)


LETTERS = dict(zip("abcd", (2, 3, 1, 2)))


@st.composite
def einsums(draw, op="einsum"):
    """Letters may repeat, stand alone, and appear in one operand or several."""
    repeats = {} if op == "einsum" else {"unique": True}
    terms = draw(st.lists(st.lists(st.sampled_from("abcd"), max_size=3, **repeats), min_size=1, max_size=3))
    used = sorted({letter for term in terms for letter in term})
    output = draw(st.lists(st.sampled_from(used), unique=True)) if used else []
    subscripts = ",".join(map("".join, terms)) + "->" + "".join(output)
    operands = [draw(arrays(tuple(LETTERS[letter] for letter in term))) for term in terms]
    if op == "einsum":
        return Case(op, (subscripts, *operands), {}, np.einsum, subscripts)
    return Case(op, (subscripts, operands), {}, lambda s, xs: np.einsum(s, *xs), subscripts)


def indexing(own):
    """Slices and integers, or integer arrays that may repeat; the value to write broadcasts."""
    writes = own[0].name != "getitem"

    @st.composite
    def cases(draw):
        x = draw(arrays(shapes()))
        basic = hnp.basic_indices(x.shape, allow_newaxis=not writes)
        index = draw(basic | hnp.integer_array_indices(x.shape))
        taken = np.shape(x[index])
        value = (draw(arrays(taken[draw(st.integers(0, len(taken))) :])),) if writes else ()
        return Case(own[0].op, (x, index, *value), {}, own[0].expected, f"{x.shape}-{index}")

    return cases()


@st.composite
def reshapes(draw):
    x = draw(arrays(shapes(min_side=0)))
    return Case("reshape", (x, tuple(draw(st.permutations((1, *x.shape))))), {}, np.reshape)


@st.composite
def transposes(draw):
    x = draw(arrays(shapes()))
    axes = draw(st.none() | st.permutations(range(x.ndim)).map(tuple))
    return Case("transpose", (x, axes), {}, np.transpose, str(axes))


@st.composite
def concatenations(draw):
    shape = draw(shapes())
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    sizes = draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    before, after = shape[: axis % len(shape)], shape[axis % len(shape) + 1 :]
    parts = [draw(arrays((*before, size, *after))) for size in sizes]
    return Case("concatenate", (parts, axis), {}, np.concatenate, f"{shape}-{sizes}-{axis}")


@st.composite
def stacks(draw):
    shape = draw(shapes(min_dims=0, min_side=0))
    parts = [draw(arrays(shape)) for _ in range(draw(st.integers(1, 3)))]
    return Case("stack", (parts, draw(st.integers(-len(shape) - 1, len(shape)))), {}, np.stack)


def linear(own):
    @st.composite
    def cases(draw):
        x = draw(arrays(shapes(min_side=0)))
        n_out = draw(st.integers(1, 3))
        bias = draw(st.none() | arrays((n_out,)))
        return Case("linear", (x, draw(arrays((x.shape[-1], n_out))), bias), {}, own[0].expected)

    return cases()


def layer_norm(own):
    @st.composite
    def cases(draw):
        x = draw(arrays(shapes()))
        weight, bias = (draw(st.none() | arrays(x.shape[-1:])) for _ in range(2))
        return Case("layer_norm", (x, weight, bias), {"eps": 0.1}, own[0].expected)

    return cases()


def cross_entropy(own):
    @st.composite
    def cases(draw):
        logits = draw(arrays(shapes(min_dims=2)))
        rng = np.random.default_rng(draw(SEEDS))
        labels = rng.integers(0, logits.shape[-1], logits.shape[:-1])
        options = {
            "mask": rng.random(labels.shape) < 0.7 if draw(st.booleans()) else None,
            "ignore_index": draw(st.none() | st.just(0)),
            "label_smoothing": draw(st.sampled_from([0.0, 0.1])),
            "reduction": draw(st.sampled_from(["mean", "sum", "none"])),
        }
        return Case("cross_entropy", (logits, labels), options, own[0].expected, f"{logits.shape}-{options}")

    return cases()


def attention(own, values=True):
    @st.composite
    def cases(draw):
        n, m, k, v = (draw(st.integers(1, 3)) for _ in range(4))
        batch = draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=2, max_side=2))
        of_q, of_k = batch.input_shapes
        operands = [(*of_q, n, k), (*of_k, m, k), *([(*of_k, m, v)] if values else [])]
        scores = (*batch.result_shape, n, m)
        rng = np.random.default_rng(draw(SEEDS))
        options = {
            "mask": rng.random(scores[draw(st.integers(0, len(scores) - 2)) :]) < 0.7 if draw(st.booleans()) else None,
            "bias": draw(st.none() | arrays(scores[draw(st.integers(0, len(scores))) :])),
        }
        qkv = tuple(draw(arrays(shape)) for shape in operands)
        return Case(own[0].op, qkv, options, own[0].expected)

    return cases()


FAMILIES = {
    **dict.fromkeys(["sum", "mean", "max", "min", "prod", "logsumexp", "var", "median", "ptp"], reduction),
    "std": lambda own: reduction(own, min_side=2),
    **dict.fromkeys(["softmax", "log_softmax", "flip", "cumsum", "cumprod", "diff", "sort", "trapezoid"], along_axis),
    **dict.fromkeys(["fft", "ifft", "rfft"], along_axis),
    "matmul": lambda own: matmuls(),
    "einsum": lambda own: einsums(),
    "_einsum": lambda own: einsums("_einsum"),
    **dict.fromkeys(["getitem", "index_add", "index_put"], indexing),
    "reshape": lambda own: reshapes(),
    "transpose": lambda own: transposes(),
    "concatenate": lambda own: concatenations(),
    "stack": lambda own: stacks(),
    "linear": linear,
    "layer_norm": layer_norm,
    "cross_entropy": cross_entropy,
    "attention": attention,
    "attention_weights": lambda own: attention(own, values=False),
}
