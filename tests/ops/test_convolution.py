"""Convolution against its definition, errors and PyTorch. Values and gradients over sizes and modes: test_laws.py."""

import numpy as np
import pytest

import minigrad as mg


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


@pytest.mark.parametrize("namespace", [mg, np])
@pytest.mark.parametrize("name", ["convolve", "correlate"])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_every_pair_of_sizes_is_numpys(namespace, name, mode):
    for n in range(1, 7):
        for m in range(1, 7):
            a, v = normal(n), normal(m, seed=1)
            y = getattr(namespace, name)(mg.tensor(a, requires_grad=True), v, mode)
            assert isinstance(y, mg.Tensor)
            np.testing.assert_allclose(y.data, getattr(np, name)(a, v, mode), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["convolve", "correlate"])
def test_an_empty_operand_is_an_error(name):
    with pytest.raises(ValueError, match="empty"):
        getattr(mg, name)(mg.tensor([1.0], requires_grad=True), np.zeros(0))


def test_convolution_is_of_sequences():
    with pytest.raises(ValueError, match="deep"):
        mg.convolve(mg.tensor(normal(2, 2), requires_grad=True), normal(2))
    with pytest.raises(ValueError, match="mode"):
        mg.convolve(normal(3), normal(2), "most")


def test_one_tensor_as_both_operands():
    mg.gradgradcheck(lambda x: mg.convolve(x, x, "same"), normal(5))


def test_a_convolution_is_a_product_of_transforms():
    a, v = normal(5), normal(3, seed=1)
    transformed = lambda a, v: np.fft.irfft(np.fft.rfft(a, 7) * np.fft.rfft(v, 7), 7)  # noqa: E731
    weights = normal(7, seed=2)
    for got, expected in zip(
        mg.grad(lambda a, v: (mg.convolve(a, v) * weights).sum(), (0, 1))(a, v),
        mg.grad(lambda a, v: (transformed(a, v) * weights).sum(), (0, 1))(a, v),
    ):
        np.testing.assert_allclose(got, expected, atol=1e-13)


@pytest.mark.oracle
@pytest.mark.parametrize(("n", "m"), [(6, 3), (5, 5), (7, 1)])
def test_correlation_agrees_with_pytorch(n, m):
    torch = pytest.importorskip("torch")
    a, v, c = normal(n), normal(m, seed=1), normal(n - m + 1, seed=2)
    s, t = (torch.tensor(x, requires_grad=True) for x in (a, v))
    torch.nn.functional.conv1d(s[None, None], t[None, None]).backward(torch.tensor(c)[None, None])
    got = mg.grad(lambda a, v: (mg.correlate(a, v) * c).sum(), (0, 1))(a, v)
    np.testing.assert_allclose(got[0], s.grad.numpy())
    np.testing.assert_allclose(got[1], t.grad.numpy())
