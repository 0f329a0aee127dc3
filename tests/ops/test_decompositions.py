"""Singular matrices, repeated values, triangles, errors and oracles. Values and gradients over shapes: test_laws.py."""

import numpy as np
import pytest

import minigrad as mg


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def symmetric(n, seed=0):
    a = normal(n, n, seed=seed)
    return a @ a.T + n * np.eye(n)


def slope(f, *xs):
    return mg.grad(lambda *xs: f(*xs).sum(), tuple(range(len(xs))) if len(xs) > 1 else 0)(*xs)


# --- determinants ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_the_gradient_of_det_is_the_cofactors_at_any_rank(rank):
    a = normal(3, rank) @ normal(rank, 3, seed=1) if rank else np.zeros((3, 3))
    cofactors = np.stack([np.cross(a[1], a[2]), np.cross(a[2], a[0]), np.cross(a[0], a[1])])
    np.testing.assert_allclose(slope(mg.linalg.det, a), cofactors, atol=1e-13)


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_the_hessian_of_det_is_right_at_any_rank(rank):
    a = normal(3, rank) @ normal(rank, 3, seed=1) if rank else np.zeros((3, 3))
    expected = np.zeros((3, 3, 3, 3))
    for i, j, m, n in np.ndindex(3, 3, 3, 3):  # det is linear in each of two different elements
        corners = [a.copy() for _ in range(4)]
        for x, (s, t) in zip(corners, [(1, 1), (1, -1), (-1, 1), (-1, -1)]):
            x[i, j] += s
            x[m, n] += t
        if (i, j) != (m, n):
            plus, mixed, other, minus = map(np.linalg.det, corners)
            expected[i, j, m, n] = (plus - mixed - other + minus) / 4
    np.testing.assert_allclose(mg.hessian(mg.linalg.det)(a), expected, atol=1e-12)


def test_a_third_derivative_of_det_at_zero():
    f = lambda t: mg.linalg.det(t * np.eye(3))  # noqa: E731  (t ** 3)
    assert mg.grad(mg.grad(mg.grad(f)))(0.0) == pytest.approx(6)


def test_slogdet_neither_overflows_nor_underflows():
    for size in (1e-3, 1e3):
        a = size * np.eye(200)
        sign, logabsdet = mg.linalg.slogdet(a)
        assert sign.item() == 1
        assert logabsdet.item() == pytest.approx(200 * np.log(size))
        np.testing.assert_allclose(slope(lambda a: mg.linalg.slogdet(a).logabsdet, a), np.eye(200) / size)


def test_slogdet_of_a_singular_matrix():
    a = mg.tensor(np.stack([np.ones((2, 2)), np.eye(2)]), requires_grad=True)
    sign, logabsdet = np.linalg.slogdet(a)
    np.testing.assert_array_equal(sign.data, [0, 1])
    np.testing.assert_array_equal(logabsdet.data, [-np.inf, 0])
    np.where([False, True], logabsdet, 0).sum().backward()
    np.testing.assert_array_equal(a.grad, [np.zeros((2, 2)), np.eye(2)])
    assert np.isinf(slope(lambda a: mg.linalg.slogdet(a)[1], np.ones((2, 2)))).all()


# --- inverses ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "f", [mg.linalg.inv, lambda a: mg.linalg.solve(a, np.ones(2)), lambda a: mg.linalg.matrix_power(a, -1)]
)
def test_singular_matrices_raise_numpys_error(f):
    with pytest.raises(np.linalg.LinAlgError):
        f(mg.tensor(np.ones((2, 2)), requires_grad=True))


@pytest.mark.parametrize(
    "f",
    [
        lambda: mg.linalg.inv(normal(2, 3)),
        lambda: mg.linalg.solve(normal(2, 2), normal(3)),
        lambda: mg.linalg.solve(normal(2, 2), normal(3, 2)),
        lambda: mg.linalg.det(normal(2, 3)),
        lambda: mg.linalg.cholesky(-np.eye(2)),
        lambda: mg.linalg.eigh(normal(2, 2), "X"),
        lambda: mg.linalg.matrix_power(normal(2, 3), 2),
        lambda: mg.linalg.matrix_power(normal(2, 3), 0),
        lambda: mg.linalg.qr(normal(3, 2), "complete"),
        lambda: mg.linalg.qr(normal(3, 3), "raw"),
        lambda: mg.linalg.svd(normal(3, 2)),
        lambda: mg.linalg.tensorinv(normal(2, 2), 0),
        lambda: mg.linalg.tensorsolve(normal(2, 3), normal(2)),
        lambda: mg.linalg.cond(normal(3)),
        lambda: mg.linalg.cond(np.zeros((0, 0))),
        lambda: mg.linalg.norm(normal(3), "fro"),
        lambda: mg.linalg.norm(normal(2, 3), 3),
        lambda: mg.linalg.norm(normal(2, 3), 2, (1, 1)),
        lambda: mg.linalg.norm(normal(2, 3, 2), 2),
        lambda: mg.linalg.norm(normal(2, 3, 2), None, (0, 1, 2)),
        lambda: mg.linalg.norm(normal(0), -np.inf),
        lambda: mg.linalg.vector_norm(normal(3), ord="nuc"),
    ],
)
def test_what_does_not_exist(f):
    with pytest.raises(ValueError):  # noqa: PT011  (LinAlgError is one; the texts are LAPACK's, NumPy's and ours)
        f()


@pytest.mark.parametrize("name", ["det", "slogdet", "cholesky", "eigh", "eigvalsh", "qr", "svdvals", "pinv"])
def test_complex_matrices_are_a_type_error(name):
    with pytest.raises(TypeError, match="complex"):
        getattr(mg.linalg, name)(np.eye(2) * 1j)


def test_a_power_that_is_not_whole_is_a_type_error():
    with pytest.raises(TypeError):
        mg.linalg.matrix_power(np.eye(2), 0.5)


@pytest.mark.parametrize("n", range(-6, 9))
def test_powers(n):
    a = normal(3, 3) + 3 * np.eye(3)
    np.testing.assert_allclose(np.linalg.matrix_power(mg.tensor(a), n).data, np.linalg.matrix_power(a, n), rtol=1e-12)
    expected = sum(
        (
            np.linalg.matrix_power(a.T, k) @ np.ones((3, 3)) @ np.linalg.matrix_power(a.T, n - 1 - k)
            for k in (range(n) if n > 0 else range(n, 0))
        ),
        start=np.zeros((3, 3)),
    )
    np.testing.assert_allclose(slope(lambda a: mg.linalg.matrix_power(a, n), a), np.sign(n) * expected, rtol=1e-10)


def test_the_pseudo_inverse_of_a_matrix_that_keeps_its_rank():
    u, v = normal(4, 2), normal(2, 3, seed=1)
    mg.gradgradcheck(lambda u, v: mg.linalg.pinv(u @ v, 1e-10), (u, v))


def test_integers_become_floats():
    a = np.array([[2, 1], [1, 3]])
    for name in ["inv", "det", "cholesky", "eigvalsh", "svdvals", "norm", "cond", "pinv"]:
        np.testing.assert_allclose(getattr(mg.linalg, name)(a).data, getattr(np.linalg, name)(a), err_msg=name)


# --- triangles ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "upper"),
    [
        (mg.linalg.cholesky, False),
        (lambda a: mg.linalg.cholesky(a, upper=True), True),
        (lambda a: mg.linalg.eigh(a).eigenvectors, False),
        (lambda a: mg.linalg.eigh(a, "u").eigenvectors, True),
        (lambda a: mg.linalg.eigvalsh(a, UPLO="U"), True),
    ],
)
def test_only_the_triangle_that_is_read_has_a_gradient(f, upper):
    a = symmetric(3)
    junk = np.where(np.tri(3).T if upper else np.tri(3), a, 99)
    np.testing.assert_array_equal(f(junk).data, f(a).data)
    g = slope(f, a)
    np.testing.assert_array_equal(g, np.triu(g) if upper else np.tril(g))
    np.testing.assert_array_equal(slope(f, junk), g)
    mg.gradgradcheck(f, junk)


def test_both_triangles_give_a_symmetric_parameter_one_gradient():
    b = normal(3, 3)
    for f in [mg.linalg.cholesky, mg.linalg.eigvalsh]:
        lower = slope(lambda b, f=f: f(b @ b.T + np.eye(3)), b)
        mirrored = slope(lambda b, f=f: f((b @ b.T + np.eye(3)).T), b)
        np.testing.assert_allclose(lower, mirrored, rtol=1e-12)


# --- repeated values ---------------------------------------------------------------------------------------------


def test_repeated_values_have_finite_gradients_and_their_vectors_have_not():
    a = np.diag([2.0, 2.0, 1.0])
    weights = np.arange(9.0).reshape(3, 3)
    np.testing.assert_allclose(slope(mg.linalg.eigvalsh, a), np.eye(3))
    np.testing.assert_allclose(slope(mg.linalg.svdvals, a), np.eye(3))
    assert not np.isfinite(slope(lambda a: mg.linalg.eigh(a)[1] * weights, a)).all()
    assert not np.isfinite(slope(lambda a: mg.linalg.svd(a)[0] * weights, a)).all()


def test_singular_values_of_a_singular_matrix():
    a = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    np.testing.assert_array_equal(slope(lambda a: mg.linalg.svdvals(a)[0], a), [[1, 0], [0, 0], [0, 0]])
    np.testing.assert_array_equal(slope(lambda a: mg.linalg.norm(a, 2), a), [[1, 0], [0, 0], [0, 0]])


def test_results_have_numpys_names():
    a = mg.tensor(symmetric(3), requires_grad=True)
    for name in ["slogdet", "eigh", "qr", "svd"]:
        for namespace in (mg.linalg, np.linalg):
            result, expected = getattr(namespace, name)(a), getattr(np.linalg, name)(a.data)
            assert type(result).__name__ == type(expected).__name__
            assert result._fields == expected._fields
            for y, e in zip(result, expected):
                assert isinstance(y, mg.Tensor)
                np.testing.assert_allclose(y.data, e, atol=1e-15)


def test_an_unused_output_gives_no_gradient():
    a = mg.tensor(symmetric(3), requires_grad=True)
    _, r = mg.linalg.qr(a)
    (r * 0.0).sum().backward()
    np.testing.assert_array_equal(a.grad, 0)


# --- norms -------------------------------------------------------------------------------------------------------

VECTOR_ORDERS = [None, 2, 1, 0, 3, 2.5, 1.5, 0.5, np.inf]
MATRIX_ORDERS = [None, "fro", "nuc", 2, -2, 1, -1, np.inf, -np.inf]


@pytest.mark.parametrize("ord", [*VECTOR_ORDERS, -1, -0.5, -np.inf])
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_vectors_of_zeros_have_gradient_zero_at_every_order(ord):
    f = lambda x: mg.linalg.norm(x, ord)  # noqa: E731
    x = np.zeros(3)
    np.testing.assert_array_equal(f(x).data, np.linalg.norm(x, ord))
    np.testing.assert_array_equal(slope(f, x), np.zeros(3))
    np.testing.assert_array_equal(mg.hessian(f)(x), np.zeros((3, 3)))


@pytest.mark.parametrize("ord", MATRIX_ORDERS)
def test_matrices_of_zeros_have_gradient_zero(ord):
    np.testing.assert_array_equal(slope(lambda x: mg.linalg.norm(x, ord, (0, 1)), np.zeros((2, 3))), np.zeros((2, 3)))


@pytest.mark.parametrize("ord", [*VECTOR_ORDERS, -1, -np.inf])
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_rows_of_zeros_do_not_disturb_the_others(ord):
    x = np.array([[0.0, 0.0], [3.0, -4.0], [0.0, 2.0]])
    f = lambda x: mg.linalg.norm(x, ord, 1)  # noqa: E731
    np.testing.assert_allclose(f(x).data, np.linalg.norm(x, ord, 1))
    g = slope(f, x)
    assert np.isfinite(g).all()
    np.testing.assert_array_equal(g[0], 0)
    np.testing.assert_allclose(g[1], slope(lambda x: mg.linalg.norm(x, ord), x[1]))
    assert g[2, 0] == 0


@pytest.mark.parametrize("ord", [ord for ord in VECTOR_ORDERS if ord != 0])
def test_a_zero_cotangent_gives_a_vectors_norm_zero(ord):
    x = mg.tensor([[0.0, 0.0], [1.0, 2.0]], requires_grad=True)
    y = mg.linalg.norm(x, ord, 1)
    np.where([False, True], y, 7.0).sum().backward()
    np.testing.assert_array_equal(x.grad[0], 0)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3)])
def test_norms_of_nothing(shape):
    x = np.zeros(shape)
    for ord in [None, 2, 1, np.inf, 3]:
        for axis in range(len(shape)):
            np.testing.assert_array_equal(mg.linalg.norm(x, ord, axis).data, x.sum(axis))
    for ord in ["fro", "nuc", 2, 1, np.inf]:
        if len(shape) > 1:
            np.testing.assert_array_equal(mg.linalg.norm(x, ord, (-2, -1)).data, x.sum((-2, -1)))


@pytest.mark.parametrize("p", [None, 2, -2, 1, -1, np.inf, -np.inf, "fro"])
def test_condition_numbers_of_singular_matrices(p):
    a = np.stack([np.ones((2, 2)), np.eye(2) * 3, np.zeros((2, 2))])
    np.testing.assert_allclose(mg.linalg.cond(a, p).data, np.linalg.cond(a, p), rtol=1e-12, atol=1e-12)


# --- against PyTorch and JAX -------------------------------------------------------------------------------------

SHAPES = {"square": (4, 4), "stack": (2, 3, 3), "tall": (5, 3), "wide": (3, 5)}


def torch_gradient(torch, f, x):
    t = torch.tensor(x, requires_grad=True)
    f(t).sum().backward()
    return t.grad.numpy()


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["inv", "det", "pinv", "svdvals", "matrix_norm", "vector_norm"])
@pytest.mark.parametrize("shape", SHAPES)
def test_single_results_agree_with_pytorch(name, shape):
    torch = pytest.importorskip("torch")
    if name in ("inv", "det") and shape in ("tall", "wide"):
        pytest.skip("square matrices only")
    x = normal(*SHAPES[shape])
    theirs = torch_gradient(torch, lambda t: getattr(torch.linalg, name)(t) ** 2, x)
    np.testing.assert_allclose(slope(lambda x: getattr(mg.linalg, name)(x) ** 2, x), theirs, rtol=1e-8, atol=1e-10)


@pytest.mark.oracle
@pytest.mark.parametrize("ord", [2, -2, 1, -1, np.inf, -np.inf, "fro", "nuc"])
def test_matrix_norms_agree_with_pytorch(ord):
    torch = pytest.importorskip("torch")
    x = normal(2, 4, 3)
    theirs = torch_gradient(torch, lambda t: torch.linalg.matrix_norm(t, ord), x)
    np.testing.assert_allclose(slope(lambda x: mg.linalg.matrix_norm(x, ord=ord), x), theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.oracle
@pytest.mark.parametrize("shape", SHAPES)
def test_decompositions_agree_with_pytorch(shape):
    """Of functions that do not depend on the vectors' signs."""
    torch = pytest.importorskip("torch")
    x = normal(*SHAPES[shape])
    w = normal(*SHAPES[shape], seed=1)

    def low_rank(library, x, **options):
        u, s, vh = library.linalg.svd(x, full_matrices=False)
        return ((u * s[..., None, :] ** 2) @ vh) * options["weights"]

    def projector(library, x, **options):
        q, r = library.linalg.qr(x)
        return abs(q).sum() + abs(r * r).sum()

    for f in (low_rank, projector):
        theirs = torch_gradient(torch, lambda t, f=f: f(torch, t, weights=torch.tensor(w)), x)
        np.testing.assert_allclose(slope(lambda x, f=f: f(mg, x, weights=w), x), theirs, rtol=1e-7, atol=1e-8)


@pytest.mark.oracle
@pytest.mark.parametrize("n", [1, 2, 5])
def test_symmetric_decompositions_agree_with_pytorch_when_made_symmetric(n):
    torch = pytest.importorskip("torch")
    a, w = symmetric(n), normal(n, n, seed=1)
    functions = [
        lambda library, a, w: library.linalg.cholesky(a) * w,
        lambda library, a, w: library.linalg.eigvalsh(a) ** 2,
        lambda library, a, w: (library.linalg.eigh(a)[1] * w) ** 2,
    ]
    for f in functions:
        ours = slope(lambda a, f=f: f(mg, a, w), a)
        theirs = torch_gradient(torch, lambda t, f=f: f(torch, t, torch.tensor(w)), a)
        np.testing.assert_allclose((ours + ours.T) / 2, theirs, rtol=1e-8, atol=1e-10)
        of_b = slope(lambda b, f=f: f(mg, b @ b.T + np.eye(n), w), a)
        theirs = torch_gradient(torch, lambda b, f=f: f(torch, b @ b.T + torch.eye(n), torch.tensor(w)), a)
        np.testing.assert_allclose(of_b, theirs, rtol=1e-8, atol=1e-10)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
def test_second_derivatives_agree_with_jax():
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    a, b = symmetric(3) + normal(3, 3) / 9, normal(3)
    functions = [
        lambda library, a: library.linalg.det(a),
        lambda library, a: (library.linalg.solve(a, b) ** 2).sum(),
        lambda library, a: (library.linalg.qr(a)[1] ** 2)[0].sum(),
    ]
    for f in functions:
        theirs = np.asarray(jax.hessian(lambda a, f=f: f(jax.numpy, a))(a))
        np.testing.assert_allclose(mg.hessian(lambda a, f=f: f(mg, a))(a), theirs, rtol=1e-7, atol=1e-9)
