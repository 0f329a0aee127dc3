"""Attributions against finite differences, loops, closed forms and SciPy."""

import itertools

import numpy as np
import pytest
from scipy import stats

import minigrad as mg
from minigrad import nn, study
from models import AttentionStack, SelfAttention, Single


def differences(f, x, step=1e-6):
    """The gradient of each sample's own number by central differences, shaped like x."""
    gradient = np.zeros_like(x)
    for place in itertools.product(*map(range, x.shape)):
        more, less = x.copy(), x.copy()
        more[place] += step
        less[place] -= step
        gradient[place] = (f(more).data - f(less).data)[place[0]] / (2 * step)
    return gradient


def explained(rng, batch=3, n=4, dim=3):
    """A small model with attention as a function of vectors, and vectors."""
    body = AttentionStack(dim, hidden=5, positions="sinusoidal", rng=rng, dtype=float)
    model = Single(nn.Sequential(), body, dim, 3, rng=rng, dtype=float)
    valid = np.arange(n) < np.array([n, n - 1, n - 2])[:batch, None]
    return lambda x: model.labels(model.body(x, valid=valid)[:, 0])[:, 1], rng.standard_normal((batch, n, dim)), valid


class Pooled(nn.Module):
    """Self-attention, of whose output the mean over queries is read."""

    def __init__(self, rng, dim=4, heads=2):
        self.attention = SelfAttention(dim, heads, rng=rng, dtype=float)
        self.read = nn.Linear(dim, 1, rng=rng, dtype=float)

    def forward(self, x, valid):
        return self.read(np.tanh(self.attention(x, valid=valid)[:, 0]))[:, 0]


def test_saliency_and_input_x_gradient():
    f, x, valid = explained(np.random.default_rng(0))
    gradient = differences(f, x)
    np.testing.assert_allclose(study.saliency(f, x), np.sqrt((gradient**2).sum(-1)), atol=1e-8)
    np.testing.assert_allclose(study.input_x_gradient(f, mg.tensor(x)), (gradient * x).sum(-1), atol=1e-8)
    assert np.count_nonzero(study.saliency(f, x)[~valid]) == 0
    assert np.count_nonzero(study.saliency(f, x)[valid]) == np.count_nonzero(valid)


def test_float32_stays_float32():
    x = np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32)
    f = lambda x: mg.tanh(x).sum((1, 2))  # noqa: E731
    results = [study.saliency(f, x), study.input_x_gradient(f, x), study.leave_one_out(f, x)]
    results += study.integrated_gradients(f, x)
    assert {result.dtype for result in results} == {np.dtype(np.float32)}
    np.testing.assert_allclose(results[1], (x * (1 - np.tanh(x) ** 2)).sum(-1), rtol=1e-5, atol=1e-6)


def test_integrated_gradients_of_a_polynomial():
    rng = np.random.default_rng(2)
    x, start, a = rng.standard_normal((2, 3, 2)), rng.standard_normal((3, 2)), rng.standard_normal((3, 2))
    # Along the line d = x - start, the integral of 5 a (start + t d)^4 d is a (x^5 - start^5), element by element.
    found = study.integrated_gradients(lambda x: (a * x**5).sum((1, 2)), x, start, steps=3)
    np.testing.assert_allclose(found.attributions, (a * (x**5 - start**5)).sum(-1), rtol=1e-12)
    np.testing.assert_allclose(found.completeness_error, 0, atol=1e-12)
    rough = study.integrated_gradients(lambda x: (a * x**5).sum((1, 2)), x, start, steps=2)
    assert np.all(np.abs(rough.completeness_error) > 1e-6)
    np.testing.assert_allclose(
        rough.completeness_error, rough.attributions.sum(1) - (a * (x**5 - start**5)).sum((1, 2)), atol=1e-12
    )


def test_integrated_gradients_of_a_model():
    rng = np.random.default_rng(3)
    model, x = Pooled(rng), rng.standard_normal((3, 5, 4))
    valid = np.arange(5) < np.array([5, 4, 2])[:, None]
    f = lambda x: model(x, valid)  # noqa: E731
    found = study.integrated_gradients(f, x, 0.3)
    start, mean = np.full_like(x, 0.3), np.zeros_like(x)
    for t in (np.arange(500) + 0.5) / 500:  # the midpoint rule
        point = mg.tensor(start + t * (x - start), requires_grad=True)
        f(point).sum().backward()
        mean += point.grad / 500
    np.testing.assert_allclose(found.attributions, ((x - start) * mean).sum(-1), atol=1e-5)
    np.testing.assert_allclose(found.completeness_error, 0, atol=1e-10)
    np.testing.assert_allclose(found.attributions.sum(1), f(x).data - f(start).data, atol=1e-10)
    assert np.count_nonzero(found.attributions[~valid]) == 0


def test_the_completeness_error_tells_a_bad_baseline():
    rng = np.random.default_rng(15)
    x, w = rng.standard_normal((3, 4, 5)), rng.standard_normal((4, 5))
    f = lambda x: (mg.layer_norm(x, eps=1e-12) * w).sum((1, 2))  # noqa: E731
    jumps = study.integrated_gradients(f, x).completeness_error
    np.testing.assert_allclose(jumps, -f(x).data, rtol=1e-3)  # all of it happens at the start
    elsewhere = study.integrated_gradients(f, x, x.mean((0, 1)) + 0.1, steps=64).completeness_error
    assert np.all(np.abs(elsewhere) < 1e-3)


@pytest.mark.parametrize("baseline", [0.0, np.array([0.5, -1.0, 2.0])])
def test_leave_one_out(baseline):
    f, x, valid = explained(np.random.default_rng(4))
    found = study.leave_one_out(f, x, baseline)
    for i, j in itertools.product(range(3), range(4)):
        without = x.copy()
        without[i, j] = baseline
        assert found[i, j] == pytest.approx(f(x).data[i] - f(without).data[i], abs=1e-14)
    assert np.count_nonzero(found[~valid]) == 0
    assert np.count_nonzero(found[valid]) == np.count_nonzero(valid)


def test_all_agree_on_a_linear_function():
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((2, 3, 4)), rng.standard_normal((3, 4))
    f = lambda x: (x * w).sum((1, 2)) + 7  # noqa: E731
    expected = (x * w).sum(-1)
    for found in (
        study.input_x_gradient(f, x),
        study.integrated_gradients(f, x, steps=1).attributions,
        study.leave_one_out(f, x),
    ):
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_what_f_and_its_input_must_be():
    x = np.ones((2, 3, 4))
    with pytest.raises(ValueError, match=r"shape \(2,\), and this one returned \(2, 3\)"):
        study.saliency(lambda x: x.sum(-1), x)
    with pytest.raises(ValueError, match=r"one number for each"):
        study.leave_one_out(lambda x: x.sum(), x)
    for attribution in (study.saliency, study.integrated_gradients, study.leave_one_out):
        with pytest.raises(TypeError, match=r"complex128.*take mg\.real"):
            attribution(lambda x: (x * 1j).sum((1, 2)), x)
    with pytest.raises(ValueError, match=r"embedded vectors.*dtype int.*from_point"):
        study.saliency(lambda x: x, np.ones((2, 3), int))
    with pytest.raises(ValueError, match=r"baseline of shape \(5,\)"):
        study.integrated_gradients(lambda x: x.sum((1, 2)), x, np.ones(5))
    with pytest.raises(ValueError, match="at least one step"):
        study.integrated_gradients(lambda x: x.sum((1, 2)), x, steps=0)


# --- a model from a point on -------------------------------------------------------------------------------------


def test_from_a_point_on():
    rng = np.random.default_rng(6)
    model = nn.Sequential(nn.Embedding(7, 3, rng=rng), nn.Linear(3, 2, rng=rng), np.tanh)
    ids = np.array([[1, 2, 2], [0, 5, 6]])
    vectors, f = study.from_point(model, "layers.0", lambda: model(ids).sum((1, 2)))
    np.testing.assert_array_equal(vectors, model.layers[0].weight.data[ids])
    np.testing.assert_array_equal(f(vectors).data, model(ids).sum((1, 2)).data)
    other = rng.standard_normal(vectors.shape).astype(np.float32)
    linear = model.layers[1]
    expected = np.tanh(other @ linear.weight.data + linear.bias.data).sum((1, 2))
    np.testing.assert_allclose(f(other).data, expected, rtol=1e-5)
    assert study.saliency(f, vectors).shape == (2, 3)
    assert model.layers[0].weight.grad is None


def test_from_a_point_that_is_not_passed_once():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    x = np.ones((1, 2))
    with pytest.raises(KeyError, match=r"no point 'layers\.7'"):
        study.from_point(model, "layers.7", lambda: model(x))
    with pytest.raises(ValueError, match="did not come by here"):
        study.from_point(model, "layers.1", lambda: model.layers[0](x))
    with pytest.raises(ValueError, match="2 times"):
        study.from_point(model, "layers.0", lambda: model(model(x)))


# --- attention ---------------------------------------------------------------------------------------------------


def random_weights(rng, *shape):
    weights = rng.random(shape) ** 3
    return weights / weights.sum(-1, keepdims=True)


@pytest.mark.parametrize("residual", [0.0, 0.5, 0.2])
def test_rollout(residual):
    rng = np.random.default_rng(7)
    layers = [random_weights(rng, 2, 3, 4, 4), random_weights(rng, 2, 4, 4), random_weights(rng, 2, 1, 4, 4)]
    found = study.attention_rollout(layers, residual=residual)
    for i in range(2):
        expected = np.eye(4)
        for layer in layers:
            heads = layer[i] if layer.ndim == 4 else layer[i : i + 1]
            averaged = sum(heads) / len(heads)
            expected = (residual * np.eye(4) + (1 - residual) * averaged) @ expected
        np.testing.assert_allclose(found[i], expected, atol=1e-14)
    np.testing.assert_allclose(found.sum(-1), 1)


def test_rollout_of_a_query_that_may_look_at_nothing():
    dead = np.zeros((1, 2, 2))
    np.testing.assert_array_equal(study.attention_rollout([dead, dead]), np.eye(2)[None])
    np.testing.assert_array_equal(study.attention_rollout([dead], residual=0), np.zeros((1, 2, 2)))


def test_rollout_takes_square_weights_of_a_batch():
    with pytest.raises(ValueError, match=r"square and alike.*\(1, 2, 3\)"):
        study.attention_rollout([np.ones((1, 2, 3))])
    with pytest.raises(ValueError, match="square and alike"):
        study.attention_rollout([np.ones((1, 2, 2)), np.ones((1, 3, 3))])
    with pytest.raises(ValueError, match=r"not \(2, 2\)"):
        study.attention_rollout([np.ones((2, 2))])
    with pytest.raises(ValueError, match="at least one layer"):
        study.attention_rollout([])
    with pytest.raises(ValueError, match=r"in \[0, 1\], not 2"):
        study.attention_rollout([np.ones((1, 2, 2))], residual=2)


def test_entropy():
    weights = random_weights(np.random.default_rng(8), 2, 3, 4, 5)
    weights[0, 0, 0] = [0, 1, 0, 0, 0]
    weights[0, 0, 1] = 0
    found = study.attention_entropy(weights)
    expected = stats.entropy(weights[1:], axis=-1)
    np.testing.assert_allclose(found[1:], expected, atol=1e-14)
    assert found[0, 0, 0] == found[0, 0, 1] == 0
    assert not np.signbit(found[0, 0, :2]).any()  # 0 and not -0, which would be printed
    assert found.shape == (2, 3, 4)
    assert study.attention_entropy(weights.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize("dtype", [float, np.float32, int])
@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_kendalls_tau(dtype, levels):
    rng = np.random.default_rng(9)
    a, b = (rng.integers(0, levels, (2, 6, 9)).astype(dtype) for _ in range(2))
    a[0] += b[0]
    found = study.kendall_tau(a, b)
    expected = [[stats.kendalltau(*pair).statistic for pair in zip(*rows)] for rows in zip(a, b)]
    np.testing.assert_allclose(found, expected, atol=1e-14)
    assert np.isfinite(found).any()


def test_kendalls_tau_of_some_elements():
    rng = np.random.default_rng(10)
    a, b = rng.integers(0, 4, (8, 7)), rng.standard_normal((8, 7))
    valid = rng.random((8, 7)) < 0.7
    b[~valid] = np.nan  # what does not count is not looked at
    expected = [stats.kendalltau(x[v], y[v]).statistic for x, y, v in zip(a, b, valid)]
    np.testing.assert_allclose(study.kendall_tau(a, b, valid), expected, atol=1e-14)


def test_kendalls_tau_where_there_is_none():
    assert np.isnan(study.kendall_tau(np.ones(4), np.arange(4)))
    assert np.isnan(study.kendall_tau(np.arange(4), np.array([1, np.nan, 2, 3])))
    assert np.isnan(study.kendall_tau(np.zeros((1, 0)), np.zeros((1, 0)))).all()
    assert study.kendall_tau(np.array([-np.inf, 0, np.inf]), np.arange(3)) == 1
    with pytest.raises(TypeError, match="boolean"):
        study.kendall_tau(np.arange(3), np.arange(3), np.ones(3))
    with pytest.raises(ValueError, match="not of single ones"):
        study.kendall_tau(1.0, 2.0)


@pytest.mark.parametrize("query", [None, 2])
@pytest.mark.parametrize("detach", [False, True])
def test_attention_against_gradients(detach, query):
    rng = np.random.default_rng(11)
    model, x = Pooled(rng), rng.standard_normal((5, 6, 4))
    valid = np.arange(6) < np.array([6, 6, 5, 4, 6])[:, None]
    f = lambda x: model(x, valid)  # noqa: E731
    found = study.attention_vs_gradient(f, x, model, "attention.attn", detach=detach, query=query, valid=valid)
    _, weights = model.attention(x, valid=valid, need_weights=True)
    weights = weights.data

    def fixed(x):
        with study.patch(model, {"attention.attn": weights}):
            return f(x)

    gradient = differences(fixed if detach else f, x)
    expected = []
    for i in range(5):
        real = valid[i]
        queries = weights[i][:, real].mean(1) if query is None else weights[i][:, query]
        importance = np.abs((gradient[i] * x[i]).sum(-1))
        expected.append(stats.kendalltau(queries.mean(0)[real], importance[real]).statistic)
    np.testing.assert_allclose(found, expected, atol=1e-12)


class Tapped(nn.Module):
    """Weights that stand for attention, and a sum of squares of the vectors."""

    hook_points = ("attn",)

    def __init__(self, weights):
        self.weights = weights

    def forward(self, x):
        self.tap("attn", mg.tensor(self.weights))
        return (x**2).sum((1, 2))


@pytest.mark.parametrize("shape", [(8,), (8, 8), (3, 8, 8)])
def test_which_weights_are_compared(shape):
    rng = np.random.default_rng(14)
    model, x = Tapped(rng.random((4, *shape))), rng.standard_normal((4, 8, 2))
    valid = np.arange(8) < np.array([8, 7, 5, 6])[:, None]
    found = study.attention_vs_gradient(model, x, model, "attn", valid=valid)
    for i, real in enumerate(valid):
        weights = model.weights[i].reshape(-1, *shape[-2:]).mean(0)
        weights = weights if weights.ndim == 1 else sum(weights[query] for query in np.flatnonzero(real))
        expected = stats.kendalltau(weights[real], (x[i] ** 2).sum(-1)[real]).statistic
        assert found[i] == pytest.approx(expected, abs=1e-14)


def test_detaching_attention_matters():
    rng = np.random.default_rng(12)
    model, x = Pooled(rng), rng.standard_normal((20, 6, 4))
    f = lambda x: model(x, None)  # noqa: E731
    taus = [study.attention_vs_gradient(f, x, model, "attention.attn", detach=detach) for detach in (False, True)]
    assert np.any(taus[0] != taus[1])


def test_attention_that_is_nowhere_or_no_attention():
    rng = np.random.default_rng(13)
    model, x = Pooled(rng), rng.standard_normal((2, 3, 4))
    f = lambda x: model(x, None)  # noqa: E731
    with pytest.raises(KeyError, match=r"attention\.atn"):
        study.attention_vs_gradient(f, x, model, "attention.atn")
    with pytest.raises(ValueError, match=r"\(2, 3, 4\), which are no attention"):
        study.attention_vs_gradient(f, x, model, "attention.out")
    with pytest.raises(ValueError, match=r"f does not pass 'attention\.attn'"):
        study.attention_vs_gradient(lambda x: x.sum((1, 2)), x, model, "attention.attn")
