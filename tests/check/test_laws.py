"""The laws: a right op of a user's keeps them, and each notices what it is about."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.check import laws
from minigrad.check.cases import Case, load_cases
from minigrad.check.laws import LAWS, check_op, report
from minigrad.op import fused

X = np.array([[0.5, -1.2, 2.0], [1.5, 0.7, -0.4]])


def scaled(**options):
    """2x, as an op with the rule that is asked for."""

    @mg.op
    def double(x):
        return 2 * x

    return double.rule(x=options.get("rule", lambda g: 2 * g))


def names_of(broken):
    return [b.law for b in broken]


def test_a_right_op_keeps_every_law():
    @mg.op
    def softclip(x, width=1.0):
        return width * np.tanh(x / width)

    softclip.derivative(x=lambda y, width: 1 - (y / width) ** 2)
    cases = [
        X,
        np.array(0.3),
        np.zeros((0, 2)),
        (X, 2.0),
        Case(softclip, (X,), {"width": 3.0}, lambda x, width: 3 * np.tanh(x / 3)),
    ]
    assert check_op(softclip, cases) == []


def test_a_composed_function_and_a_name_are_checked_too():
    assert check_op(lambda x, y: mg.sin(x) * y + y, [(X, X[0])]) == []
    assert check_op("matmul", [(X, X.T)]) == []
    assert check_op(mg.cross_entropy, [(X, np.array([0, 2]))]) == []


def test_lists_of_arrays_several_outputs_and_complex_arrays():
    assert check_op(mg.concatenate, [([X, X[:1]],)]) == []
    assert check_op(lambda x: (mg.exp(x), [mg.sin(x), x]), [X]) == []
    assert check_op(lambda z, w: z * w, [(X + 1j, X[0] - 2j)]) == []


def test_no_case_is_an_error():
    with pytest.raises(ValueError, match="at least one sample call of exp"):
        check_op(mg.exp, [])


def test_the_text_names_case_law_argument_and_place():
    wrong = scaled(rule=lambda g: np.where(np.arange(3) == 1, 3, 2) * g)
    (first, *_) = check_op(wrong, [X])
    assert str(first).startswith("double-2x3: differences: argument 0 at (")
    assert ", 1): the rule gives" in str(first)
    assert report([first, first]) == f"{first}\n{first}"


def test_what_a_rule_raises_breaks_the_laws():
    def raising(g):
        raise ZeroDivisionError("no")

    broken = check_op(scaled(rule=raising), [X])
    assert {"differences", "second_order", "untouched"} <= set(names_of(broken))
    assert "ZeroDivisionError: no" in broken[0].text


def writing(g):
    g *= 2
    return g


calls = []


def remembering(g):
    calls.append(1)
    return 2.0 * g * (1 + 1e-9 * len(calls))


@pytest.mark.parametrize(
    ("law", "rule"),
    [
        (laws.differences, lambda g: 2.001 * g),
        (laws.differences, lambda g: -2 * g),
        (laws.differences, lambda g: 2 * np.flip(g, 0)),
        (laws.recorded_alike, lambda g: 2 * g if isinstance(g, np.ndarray) else 2.1 * g),
        (laws.recorded_alike, lambda g: mg.tensor(2.0) * g if isinstance(g, np.ndarray) else 2 * np.asarray(g.data)),
        (laws.adjoint, lambda g: 2 * g if isinstance(g, np.ndarray) else 2 * g.detach()),
        (laws.linear, lambda g: 2 * g + 0.1 * g**2),
        (laws.zero, lambda g: 2 * g + 0.1),
        (laws.dtype, lambda g: g * np.float64(2)),
        (laws.single, lambda g: 2.02 * g if g.dtype == np.float32 else 2 * g),
        (laws.untouched, writing),
        (laws.untouched, remembering),
        (laws.strides, lambda g: 2 * g if not isinstance(g, np.ndarray) or g.flags.c_contiguous else 2 * g[::-1]),
        (laws.adds_up, lambda g: writing(g) if isinstance(g, np.ndarray) else 2 * g),
    ],
)
def test_each_law_notices(law, rule):
    assert names_of(check_op(scaled(rule=rule), [X], [law])) == [law.__name__]


def test_value_notices_shape_dtype_and_number():
    def broken(expected):
        return check_op(scaled(), [Case(scaled(), (X,), {}, expected)], [laws.value])

    assert broken(lambda x: 2 * x) == []
    assert "instead of" in broken(lambda x: (2 * x)[None])[0].text
    assert "dtype float32 instead of float64" in broken(lambda x: 2.0 * x.astype(float))[0].text
    assert "output 0 at (0, 0)" in broken(lambda x: 2.0001 * x)[0].text
    assert "1 outputs instead of 2" in broken(lambda x: [2 * x, x])[0].text


def test_no_gradient_at_all_is_noticed_unless_the_value_is_constant():
    assert names_of(check_op(lambda x: mg.tensor(2 * x.data), [X], [laws.differences])) == ["differences"]
    assert check_op(lambda x: mg.tensor([1.0]), [X], [laws.differences]) == []


def test_second_order_notices_a_saved_value_without_history():
    @mg.op
    def cube(x):
        return x**3

    cube.rule(x=lambda g, x: 3 * np.square(getattr(x, "data", x)) * g)
    assert names_of(check_op(cube, [X])) == ["second_order"]


def test_zero_is_asked_at_singular_operands_of_elementwise_ops():
    @mg.op
    def root(x):
        return np.sqrt(x)

    root.derivative(x=lambda y: 0.5 / y)
    assert check_op(root, [np.abs(X)], [laws.zero]) == []
    root.rule(x=lambda g, y: 0.5 * g / y)  # looks at its output without promising zeros
    assert check_op(root, [np.abs(X)], [laws.zero]) == []
    forced = Case(root, (np.abs(X),), singular=True)
    assert "nan" in check_op(root, [forced], [laws.zero])[0].text


def test_one_by_one_notices_a_kernel_that_needs_the_others():
    def backward(g, residual, wanted, a, b):
        return g * b, g * a if wanted[0] else g

    @fused(backward=backward, reference=lambda a, b: mg.multiply(a, b), differentiable=["a", "b"])
    def product(a, b):
        return a * b, None

    assert names_of(check_op(product, [(X, X + 1)])) == ["one_by_one"]


def test_reference_notices_value_and_gradient():
    def op(reference):
        @fused(backward=lambda g, residual, wanted, x: (2 * g,), reference=reference, differentiable=["x"])
        def double(x):
            return 2 * x, None

        return double

    assert check_op(op(lambda x: mg.add(x, x)), [X]) == []
    assert "output 0" in check_op(op(lambda x: 2.5 * mg.add(x, 0)), [X], [laws.reference])[0].text
    assert "gradient 0" in check_op(op(lambda x: mg.tensor(x.data) + x), [X], [laws.reference])[0].text


def test_silent_notices_a_warning():
    import warnings

    def rule(g):
        warnings.warn("mean of nothing", RuntimeWarning, stacklevel=1)
        return 2 * g

    assert names_of(check_op(scaled(rule=rule), [X])) == ["silent"]


def test_every_law_says_what_it_is():
    assert len({law.__name__ for law in LAWS}) == len(LAWS)
    assert all(law.__doc__ for law in LAWS)


def test_a_case_puts_arrays_where_they_were():
    case = Case("index_add", (X, np.array([0, 1]), [X[0], 2.0]), {"k": X[1]})
    args, kwargs = case.with_arrays(lambda *args, **kwargs: (args, kwargs), "abc")
    assert args[0] == "a"
    assert args[2] == ["b", 2.0]
    assert kwargs == {"k": "c"}
    redrawn = case.redrawn(0)
    assert all(0 < abs(a - b).max() < 0.3 for a, b in zip(case.arrays, redrawn.arrays))


def test_cases_are_collected_from_a_directory(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no cases\*\.py in .*tests/ops"):
        load_cases(tmp_path)
    (tmp_path / "cases_a.py").write_text(
        "from cases_b import CASES as others\n"
        "from minigrad.check.cases import Case\n"
        "CASES = [*others, Case('exp', (1.0,))]\n"
    )
    (tmp_path / "cases_b.py").write_text("from minigrad.check.cases import Case\nCASES = [Case('sin', (1.0,))]\n")
    assert [case.op for case in load_cases(tmp_path)] == ["sin", "exp"]
