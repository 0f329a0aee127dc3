"""What must hold for every op, run on every case of cases.py."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.engine import OPS, OutputNode
from minigrad.op import FusedOp
from minigrad.tensor import Tensor, wrap

pytestmark = pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")


def tracked(arrays, dtype=None):
    return [mg.tensor(x, dtype=dtype, requires_grad=True) for x in arrays]


def cotangents_of(outputs, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.uniform(0.5, 1.5, y.shape).astype(y.dtype) for y in outputs]


def gradients(case, arrays, dtype=None):
    """The gradients of the case's arrays from a plain backward pass with a random cotangent for every output."""
    xs = tracked(arrays, dtype)
    outputs = case.outputs(*xs)
    for y, c in zip(outputs, cotangents_of(outputs)):
        if y.requires_grad:
            y.backward(c, retain_graph=True)
    return [np.zeros(x.shape) if x.grad is None else x.grad for x in xs]


def calls_of(outputs):
    """The nodes of every op that was called on the way to these outputs."""
    found, stack = {}, [y._node for y in outputs]
    while stack:
        node = stack.pop()
        if id(node) not in found:
            found[id(node)] = node
            stack.extend(node.edges)
    return [node for node in found.values() if node.op is not None and type(node) is not OutputNode]


def test_every_op_has_a_case_and_every_case_an_op(cases):
    assert {c.op for c in cases.CASES} == set(OPS)


def test_value_is_that_of_numpy(case):
    for dtype, tolerance in [(np.float64, 1e-12), (np.float32, 2e-6)]:
        arrays = [x.astype(dtype) for x in case.arrays]
        expected = case.value(*arrays)
        expected = expected if isinstance(expected, (list, tuple)) else [expected]
        outputs = case.outputs(*arrays)
        assert len(outputs) == len(expected)
        for y, e in zip(outputs, expected):
            assert type(y) is Tensor
            assert type(y._array) is np.ndarray
            assert y.shape == np.shape(e)
            np.testing.assert_allclose(y.data, e, rtol=tolerance, atol=tolerance)
            if case.op != "astype":
                assert y.dtype == np.asarray(e).dtype


def test_gradient(case):
    mg.gradcheck(case, case.arrays)


def test_second_order_gradient(case):
    mg.gradgradcheck(case, case.arrays)


def test_rules_give_float32_for_float32(case):
    """Asked of the rules themselves: the engine's cast would hide an accidental float64."""
    for node in calls_of(case.outputs(*tracked(case.arrays, np.float32))):
        g = np.ones(node.shape, node.dtype)
        if node.op.name == "astype":
            continue
        for gradient in node.op.vjp(node, g, False):
            assert gradient.dtype == node.dtype
        if isinstance(node.op, FusedOp):
            continue  # a recorded pass goes through its reference, which is asked below
        for gradient in node.op.vjp(node, wrap(g, None), True):
            assert gradient.dtype == node.dtype


def test_references_stay_float32(cases):
    for case in cases.CASES:
        reference = getattr(OPS[case.op], "reference", None)
        if reference is None:
            continue
        y = case.with_arrays(reference, tracked(case.arrays, np.float32))
        for node in calls_of([y]):
            assert node.dtype == np.float32, (case, node.op)
            for gradient in node.op.vjp(node, np.ones(node.shape, node.dtype), False):
                assert gradient.dtype == np.float32, (case, node.op)


def test_nothing_is_written_to(case):
    arrays = [x.copy() for x in case.arrays]
    xs = tracked(arrays)
    for x in xs:
        x._array.flags.writeable = False
    outputs = case.outputs(*xs)
    for node in calls_of(outputs):
        g = np.ones(node.shape, node.dtype)
        g.flags.writeable = False
        node.op.vjp(node, g, False)
    for x, before in zip(xs, arrays):
        np.testing.assert_array_equal(x.data, before)


def spread_out(x):
    """Equal to x, in Fortran's order, with strides of -3 elements, amid NaN."""
    if x.ndim == 0:
        return x
    view = np.full([3 * n for n in x.shape[::-1]], np.nan, x.dtype)[(slice(None, None, -3),) * x.ndim].T
    view[...] = x
    return view


def test_strides_do_not_matter(case):
    spread = [spread_out(x) for x in case.arrays]
    for y, z in zip(case.outputs(*case.arrays), case.outputs(*spread)):
        np.testing.assert_allclose(y.data, z.data, rtol=1e-12, atol=1e-13)
    xs = tracked(spread)
    for x, view in zip(xs, spread):
        x._array = view
    outputs = case.outputs(*xs)
    for y, c in zip(outputs, cotangents_of(outputs)):
        if y.requires_grad:
            y.backward(spread_out(c), retain_graph=True)
    for x, expected in zip(xs, gradients(case, case.arrays)):
        np.testing.assert_allclose(0 if x.grad is None else x.grad, expected, rtol=1e-11, atol=1e-12)


def test_recorded_pass_equals_plain_pass(case):
    weights = cotangents_of(case.outputs(*case.arrays))

    def weighted(*xs):
        return sum(((y * c).sum() for y, c in zip(case.outputs(*xs), weights)), start=mg.tensor(0.0))

    argnums = range(len(case.arrays))
    for plain, recorded in zip(
        mg.grad(weighted, argnums)(*case.arrays), mg.grad(weighted, argnums, create_graph=True)(*case.arrays)
    ):
        assert type(recorded) is Tensor
        np.testing.assert_allclose(recorded.data, plain, rtol=1e-11, atol=1e-12)


def test_zero_cotangent_gives_zero(case):
    xs = tracked(case.arrays)
    for y in case.outputs(*xs):
        if y.requires_grad:
            y.backward(np.zeros(y.shape), retain_graph=True)
    for x in xs:
        assert x.grad is None or not x.grad.any()
