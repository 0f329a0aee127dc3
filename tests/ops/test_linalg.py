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


# --- the other products ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("namespace", [mg, np])
def test_products_are_reached_under_numpys_names(namespace):
    a, b = mg.tensor(normal(3, 3), requires_grad=True), normal(3, 3, seed=1)
    for name in ["tensordot", "inner", "vdot", "kron", "cross", "vecdot", "matvec", "vecmat", "dot", "outer", "matmul"]:
        if not hasattr(np, name):  # matvec and vecmat, before NumPy 2.2
            continue
        y = getattr(namespace, name)(a, b)
        assert isinstance(y, mg.Tensor), name
        np.testing.assert_allclose(y.data, getattr(np, name)(a.data, b), err_msg=name)


@pytest.mark.parametrize("name", ["matmul", "matrix_transpose", "tensordot", "vecdot", "cross", "trace", "diagonal"])
@pytest.mark.parametrize("namespace", [mg.linalg, np.linalg])
def test_linalgs_own_products_are_numpys(namespace, name):
    xs = [mg.tensor(normal(2, 3, 3, seed=i), requires_grad=True) for i in range(2)]
    xs = xs[:1] if name in ("matrix_transpose", "trace", "diagonal") else xs
    options = {"axes": ([1, 2], [2, 1])} if name == "tensordot" else {}
    y = getattr(namespace, name)(*xs, **options)
    assert isinstance(y, mg.Tensor)
    np.testing.assert_allclose(y.data, getattr(np.linalg, name)(*(x.data for x in xs), **options))


@pytest.mark.parametrize("offset", [-4, -2, -1, 0, 1, 3, 5])
@pytest.mark.parametrize("shape", [(3, 4), (2, 4, 3), (2, 0, 3)])
def test_diagonals_and_traces_of_the_last_two_axes(shape, offset):
    x = normal(*shape)
    np.testing.assert_array_equal(mg.linalg.diagonal(x, offset=offset).data, np.linalg.diagonal(x, offset=offset))
    np.testing.assert_allclose(mg.linalg.trace(x, offset=offset).data, np.linalg.trace(x, offset=offset))
    mg.gradcheck(lambda x: mg.linalg.trace(x, offset=offset), x)


def test_linalg_outer_and_cross_are_strict():
    v = mg.tensor(normal(3), requires_grad=True)
    np.testing.assert_array_equal(np.linalg.outer(v, v).data, np.outer(v.data, v.data))
    with pytest.raises(ValueError, match="vectors"):
        np.linalg.outer(v, normal(2, 2))
    with pytest.raises(ValueError, match="3-vectors"):
        mg.linalg.cross(v[:2], v[:2])


@pytest.mark.parametrize(
    "call",
    [
        lambda: mg.tensordot(normal(2, 3), normal(2, 3)[:1], axes=2),
        lambda: mg.tensordot(normal(2, 3), normal(3, 2), axes=([0, 1], [0])),
        lambda: mg.tensordot(normal(2, 3), normal(3, 2), axes=([0, 2], [0, 1])),
        lambda: mg.tensordot(normal(2), normal(2), axes=2),
        lambda: mg.inner(normal(2, 3), normal(2, 4)),
        lambda: mg.vdot(normal(3), normal(4)),
        lambda: mg.vecdot(normal(3), normal(1)),
        lambda: mg.matvec(normal(2, 3), normal(2)),
        lambda: mg.cross(normal(4), normal(4)),
        lambda: mg.linalg.multi_dot([normal(2, 2)]),
        lambda: mg.linalg.multi_dot([normal(2, 2), normal(2, 2, 2), normal(2, 2)]),
        lambda: mg.linalg.multi_dot([normal(2, 3), normal(2, 3)]),
        lambda: mg.matrix_transpose(normal(3)),
    ],
)
def test_products_that_do_not_exist(call):
    with pytest.raises(ValueError, match=r"tensordot|matmul|vecdot|vectors|multi_dot|matrix_transpose|inner"):
        call()


def test_multi_dot_multiplies_in_the_cheapest_order():
    a, b, c = normal(100, 1), normal(1, 100, seed=1), normal(100, 1, seed=2)
    x = mg.tensor(a, requires_grad=True)
    y = mg.linalg.multi_dot([x, b, c])
    assert y._node.edges == (x._node,)  # a @ (b @ c), not (a @ b) @ c
    np.testing.assert_allclose(y.data, np.linalg.multi_dot([a, b, c]))


def test_einsum_with_numbers_for_subscripts():
    a, b = normal(2, 3), normal(3, 4, seed=1)
    t = mg.tensor(a, requires_grad=True)
    for call in (mg.einsum, np.einsum):
        np.testing.assert_allclose(call(t, [0, 1], b, [1, 2], [0, 2]).data, a @ b)
        np.testing.assert_allclose(call(t, [1, 0], b, [0, 2]).data, np.einsum(a, [1, 0], b, [0, 2]))
        np.testing.assert_allclose(call(t, [Ellipsis, 1], [1, Ellipsis]).data, a.T)
        np.testing.assert_allclose(call("ij,jk", t, b, optimize=["einsum_path", (0, 1)]).data, a @ b)


# --- against PyTorch ---------------------------------------------------------------------------------------------


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "shapes", "options"),
    [
        ("tensordot", [(2, 3, 4), (4, 3, 2)], ([[1, 2], [1, 0]],)),
        ("inner", [(2, 3), (4, 3)], ()),
        ("kron", [(2, 3), (3, 2)], ()),
        ("outer", [(2,), (3,)], ()),
        ("vdot", [(5,), (5,)], ()),
    ],
)
def test_products_agree_with_pytorch(name, shapes, options):
    torch = pytest.importorskip("torch")
    xs = [normal(*s, seed=i) for i, s in enumerate(shapes)]
    ts = [torch.tensor(x, requires_grad=True) for x in xs]
    y = getattr(torch, name)(*ts, *options)
    y.backward(torch.tensor(normal(*y.shape, seed=9)))
    np.testing.assert_allclose(getattr(mg, name)(*xs, *options).data, y.detach().numpy())
    for got, t in zip(gradients(lambda *xs: getattr(mg, name)(*xs, *options), *xs), ts):
        np.testing.assert_allclose(got, t.grad.numpy())
