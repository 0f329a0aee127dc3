"""Complex intermediates, identities and errors of the transforms. Values and gradients over shapes: test_laws.py."""

import numpy as np
import pytest

import minigrad as mg


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def leaf(*shape):
    return mg.tensor(normal(*shape), requires_grad=True)


# --- complex tensors ---------------------------------------------------------------------------------------------


def test_the_way_from_real_to_real_over_complex_numbers():
    """A filter: transform, scale, transform back."""
    response = normal(5) + 1j * normal(5, seed=1)
    mg.gradgradcheck(lambda x, w: np.fft.irfft(np.fft.rfft(x) * response * w, 8), (normal(8), normal(5, seed=2)))


@pytest.mark.parametrize(
    "f",
    [
        lambda z: np.abs(z),
        lambda z: np.angle(z),
        lambda z: np.real(z) * np.imag(z),
        lambda z: z.real + z.imag**2,
        lambda z: (z * z.conj()).real,
        lambda z: np.abs(z / (1 + z)),
        lambda z: np.abs(np.exp(z)) + np.real(z**3),
        lambda z: np.abs(z - 2j) + np.imag(1j / z) + np.real(np.sqrt(z)),
        lambda z: np.real(np.sum(z) * np.mean(z)),
        lambda z: np.abs(z[::2]) + np.abs(np.concatenate([z, z.conj()])[3:5]),
        lambda z: np.real(np.where(np.arange(4) > 1, z, 0)),
        lambda z: np.abs(np.reshape(z, (2, 2)) @ np.array([[1, 2j], [3, 4.0]])),
        lambda z: np.real(np.vdot(z, z * 1j) + np.vdot(z, np.arange(4) * 1j)),
        lambda z: mg.linalg.norm(z) + mg.linalg.norm(z, 3),
        lambda z: np.real(mg.linalg.inv(np.reshape(z, (2, 2)))),
        lambda z: np.real(np.einsum("i,j->ij", z, z)),
        lambda z: np.real(z.astype(np.complex128)) + np.abs(np.prod(z)),
    ],
)
def test_functions_of_complex_intermediates(f):
    mg.gradgradcheck(lambda x: f(np.fft.rfft(x)), normal(7))


def test_the_gradient_of_a_complex_tensor_is_that_of_its_parts():
    x = leaf(3)
    z = x * (2 - 3j)
    z.retain_grad()
    (mg.real(z) * 5 + mg.imag(z) * 7).sum().backward()
    np.testing.assert_array_equal(z.grad, np.full(3, 5 - 7j))
    np.testing.assert_array_equal(x.grad, np.full(3, 5 * 2 - 7 * 3))
    assert x.grad.dtype == float


@pytest.mark.filterwarnings("error")
def test_no_warning_when_a_real_operand_meets_complex_numbers():
    x = leaf(3)
    np.abs(x * np.array([1j, 2j, 3j])).sum().backward()
    np.testing.assert_allclose(x.grad, np.sign(x.data) * [1, 2, 3])


def test_the_size_of_zero_has_gradient_zero():
    for order in (1, 2):
        f = lambda x: np.abs(np.fft.rfft(x)).sum()  # noqa: E731
        for _ in range(order - 1):
            f = lambda x, f=f: mg.grad(f)(x).sum()  # noqa: E731
        np.testing.assert_array_equal(mg.grad(f)(np.zeros(4)), 0)


def test_single_precision_stays_single():
    x = mg.tensor(normal(6), dtype=np.float32, requires_grad=True)
    z = np.fft.rfft(x)
    assert z.dtype == np.complex64
    y = np.fft.irfft(z * 2j)
    assert y.dtype == np.float32
    y.sum().backward()
    assert x.grad.dtype == np.float32


def test_complex_numbers_are_intermediate_results_only():
    z = np.fft.rfft(leaf(1))
    with pytest.raises(TypeError, match="real"):
        z.backward()
    with pytest.raises(ValueError, match="complex"):
        mg.grad(lambda x: np.fft.rfft(x)[0])(normal(3))
    with pytest.raises(TypeError, match="complex"):
        mg.tensor([1j])
    with pytest.raises(TypeError, match="complex"):
        mg.linalg.svdvals(np.fft.fft2(leaf(2, 2)))


# --- transforms --------------------------------------------------------------------------------------------------

NAMES = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn"]


@pytest.mark.parametrize("name", [*NAMES, "irfftn", "fftshift", "ifftshift"])
def test_transforms_are_reached_under_numpys_names(name):
    x = leaf(3, 4)
    expected = getattr(np.fft, name)(x.data)
    for namespace in (mg.fft, np.fft):
        y = getattr(namespace, name)(x)
        assert isinstance(y, mg.Tensor)
        np.testing.assert_allclose(y.data, expected, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("n", [1, 2, 5, 6])
@pytest.mark.parametrize("norm", [None, "ortho", "forward", "backward"])
def test_going_there_and_back_is_the_identity(n, norm):
    x, c = leaf(2, n), normal(2, n, seed=1)
    mg.fft.irfft(mg.fft.rfft(x, norm=norm), n, norm=norm).backward(c)
    np.testing.assert_allclose(x.grad, c, atol=1e-14)
    x.grad = None
    mg.real(mg.fft.ifftn(mg.fft.fftn(x, norm=norm), norm=norm)).backward(c)
    np.testing.assert_allclose(x.grad, c, atol=1e-14)


def test_parsevals_theorem_differentiated():
    x = normal(6)
    energy = lambda x: (np.abs(np.fft.fft(x, norm="ortho")) ** 2).sum()  # noqa: E731
    np.testing.assert_allclose(mg.grad(energy)(x), 2 * x)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: mg.fft.fft(x, 0),
        lambda x: mg.fft.fft(x, norm="other"),
        lambda x: mg.fft.fft(x, axis=2),
        lambda x: mg.fft.fft2(x[0]),
        lambda x: mg.fft.fftn(x, s=(2,), axes=(0, 1)),
    ],
)
def test_transforms_that_do_not_exist(f):
    with pytest.raises((ValueError, IndexError)):
        f(leaf(2, 3))


def test_rfft_of_complex_numbers_is_a_type_error():
    with pytest.raises(TypeError):
        mg.fft.rfft(mg.fft.fft(leaf(3)))


@pytest.mark.oracle
@pytest.mark.parametrize("norm", ["ortho", "forward", "backward"])
@pytest.mark.parametrize("n", [5, 8, 3])
def test_transforms_agree_with_pytorch(n, norm):
    torch = pytest.importorskip("torch")
    x, w = normal(2, 5), normal(2, n // 2 + 1, seed=1)
    t = torch.tensor(x, requires_grad=True)
    z = torch.fft.rfft(t, n, norm=norm) * torch.tensor(w)
    (torch.abs(z).sum() + (torch.fft.irfft(z * z, n, norm=norm) ** 2).sum()).backward()

    def ours(x):
        z = np.fft.rfft(x, n, norm=norm) * w
        return np.abs(z).sum() + (np.fft.irfft(z * z, n, norm=norm) ** 2).sum()

    np.testing.assert_allclose(mg.grad(ours)(x), t.grad.numpy(), rtol=1e-9, atol=1e-12)
