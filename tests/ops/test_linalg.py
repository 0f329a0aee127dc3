"""Products against loops and other spellings. Values and gradients over all shapes: test_laws.py."""

import itertools

import numpy as np
import pytest

import minigrad as mg


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def gradients(f, *xs, seed=9):
    """Gradients of <c, f(xs)> for a random c."""
    ts = [mg.tensor(x, requires_grad=True) for x in xs]
    y = f(*ts)
    y.backward(normal(*y.shape, seed=seed))
    return [t.grad for t in ts]


@pytest.mark.parametrize(
    ("a", "b", "subscripts"),
    [
        ((2, 3), (3, 4), "ij,jk->ik"),
        ((3,), (3,), "j,j->"),
        ((3,), (3, 4), "j,jk->k"),
        ((2, 3), (3,), "ij,j->i"),
        ((5, 2, 3), (3, 4), "bij,jk->bik"),
        ((5, 2, 3), (5, 3, 4), "bij,bjk->bik"),
        ((2, 3), (5, 3, 4), "ij,bjk->bik"),
        ((5, 2, 3), (3,), "bij,j->bi"),
        ((3,), (5, 3, 4), "j,bjk->bk"),
    ],
)
def test_matmul_is_einsum(a, b, subscripts):
    xs = normal(*a), normal(*b, seed=1)
    np.testing.assert_allclose(mg.matmul(*xs).data, mg.einsum(subscripts, *xs).data)
    for p, q in zip(gradients(mg.matmul, *xs), gradients(lambda a, b: mg.einsum(subscripts, a, b), *xs)):
        np.testing.assert_allclose(p, q)


@pytest.mark.parametrize(
    ("a", "b"), [((2, 3), (2, 3)), ((), (2, 2)), ((2,), ()), ((2, 1, 3), (3, 3, 2)), ((3, 2), (2, 3, 2))]
)
@pytest.mark.filterwarnings("ignore")
def test_shapes_that_do_not_multiply(a, b):
    with pytest.raises(ValueError, match=r"matmul|operand"):
        mg.matmul(mg.tensor(normal(*a), requires_grad=True), normal(*b))


@pytest.mark.parametrize("n", [1, 20, 200])
def test_large_and_small_products_agree_in_float32(n):
    a, b = normal(3, n).astype(np.float32), normal(n, 2).astype(np.float32)
    y = mg.matmul(mg.tensor(a, requires_grad=True), b)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y.data, a.astype(float) @ b, rtol=1e-4, atol=1e-4)


def loops(subscripts, *operands):
    """einsum by its definition: a sum over every letter."""
    inputs, output = subscripts.split("->")
    terms = inputs.split(",")
    sizes = {}
    for term, x in zip(terms, operands):
        for letter, n in zip(term, x.shape):
            sizes[letter] = max(n, sizes.get(letter, 1))
    letters = sorted(sizes)
    y = np.zeros([sizes[c] for c in output])
    for values in itertools.product(*(range(sizes[c]) for c in letters)):
        at = dict(zip(letters, values))
        product = 1.0
        for term, x in zip(terms, operands):
            product *= x[tuple(at[c] if n > 1 else 0 for c, n in zip(term, x.shape))]
        y[tuple(at[c] for c in output)] += product
    return y


def random_subscripts(rng):
    letters = "abcd"
    sizes = dict(zip(letters, (2, 3, 1, 2)))
    terms = ["".join(rng.choice(list(letters), rng.integers(0, 4))) for _ in range(rng.integers(1, 4))]
    used = sorted(set("".join(terms)))
    output = "".join(rng.permutation(used)[: rng.integers(0, len(used) + 1)]) if used else ""
    return ",".join(terms) + "->" + output, [normal(*(sizes[c] for c in t), seed=i) for i, t in enumerate(terms)]


@pytest.mark.parametrize("seed", range(40))
def test_random_einsums(seed):
    subscripts, operands = random_subscripts(np.random.default_rng(seed))
    y = mg.einsum(subscripts, *operands)
    np.testing.assert_allclose(y.data, loops(subscripts, *operands), rtol=1e-12, atol=1e-12)
    mg.gradcheck(lambda *xs: mg.einsum(subscripts, *xs), tuple(operands))


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ij,jk->ik", [(2, 3)]),
        ("ij->ij", [(2, 3, 4)]),
        ("i->ij", [(2,)]),
        ("ij,jk->ik", [(2, 3), (4, 5)]),
        ("i...->i", [(2, 3)]),
        ("ij", [(3,)]),
        ("ii", [(2, 3)]),
    ],
)
def test_einsums_that_make_no_sense(subscripts, shapes):
    with pytest.raises((ValueError, IndexError)):
        mg.einsum(subscripts, *[mg.tensor(normal(*s), requires_grad=True) for s in shapes])


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x @ x,
        lambda x: mg.einsum("ij,jk->ik", x, x),
        lambda x: mg.dot(x, x),
        lambda x: mg.matmul(x, x.T),
        lambda x: mg.outer(x, x),
    ],
)
def test_one_tensor_as_both_operands(f):
    mg.gradgradcheck(f, normal(3, 3))


def test_a_hessian_of_a_quadratic_form():
    a, x = normal(3, 3), normal(3, seed=1)
    gradient = lambda x: mg.grad(lambda x: x @ a @ x)(x)  # noqa: E731
    np.testing.assert_allclose(gradient(x), (a + a.T) @ x)
    rows = [mg.grad(lambda x, i=i: gradient(x)[i])(x) for i in range(3)]
    np.testing.assert_allclose(rows, a + a.T)
