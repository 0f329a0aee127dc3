"""study.grad_norms and grad_summary against sums over all gradients, and a step whose size is known."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim, study
from models import FCStack


def trained(dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    net = FCStack((4, 5, 3), rng=rng, dtype=dtype)
    (net(rng.standard_normal((6, 4))) ** 2).sum().backward()
    return net


def all_elements(net, names=None):
    chosen = [p.grad for name, p in net.named_parameters() if (names is None or name in names) and p.grad is not None]
    return np.concatenate([np.ravel(g).astype(np.float64) for g in chosen])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_norms_by_name(dtype):
    net = trained(dtype=dtype)
    net.layers[1].bias.grad = None
    norms = study.grad_norms(net)
    assert list(norms) == [name for name, _ in net.named_parameters()]
    assert norms.pop("layers.1.bias") is None
    for name, value in norms.items():
        assert value == pytest.approx(np.sqrt(np.square(all_elements(net, [name])).sum()), rel=1e-6)


def test_an_overflow_of_squares_is_none_of_the_norm():
    net = nn.Linear(2, 1, bias=False, dtype=np.float32)
    net.weight.grad = np.array([[3e30], [4e30]], np.float32)
    assert study.grad_norms(net)["weight"] == pytest.approx(5e30)
    net.weight.grad = np.array([[3e-30], [4e-30]], np.float32)
    assert study.grad_norms(net)["weight"] == pytest.approx(5e-30)


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ("total", {"total": ["layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"]}),
        ("parameter", {name: [name] for name in ["layers.0.weight", "layers.1.bias"]}),
        (
            "module",
            {
                "": ["layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"],
                "layers.0": ["layers.0.weight", "layers.0.bias"],
                "layers.1": ["layers.1.weight", "layers.1.bias"],
            },
        ),
    ],
)
def test_summaries_are_of_all_elements(by, groups):
    net = trained()
    net.layers[0].weight.grad[0] = [0, np.nan, np.inf, -np.inf, 1]
    summaries = study.grad_summary(net, by)
    assert set(groups) <= set(summaries)
    for key, names in groups.items():
        g, row = all_elements(net, names), summaries[key]
        values = np.concatenate([np.ravel(p.data) for name, p in net.named_parameters() if name in names])
        assert (row.count, row.missing) == (g.size, 0)
        assert (row.nan, row.inf) == (np.isnan(g).sum(), np.isinf(g).sum())
        assert row.zeros == pytest.approx(np.mean(g == 0))
        assert row.weight_norm == pytest.approx(np.linalg.norm(values))
        assert row.norm == pytest.approx(np.linalg.norm(g), nan_ok=True)
        assert row.rms == pytest.approx(np.sqrt(np.mean(g**2)), nan_ok=True)
        assert row.update_ratio is None


def test_missing_gradients_are_none_and_counted():
    net = trained()
    for p in net.layers[0].parameters():
        p.grad = None
    by_module = study.grad_summary(net, "module")
    assert by_module["layers.0"].norm is None
    assert by_module["layers.0"].rms is None
    assert (by_module["layers.0"].count, by_module["layers.0"].missing) == (0, 2)
    assert (by_module[""].missing, by_module[""].norm) == (2, by_module["layers.1"].norm)


@pytest.mark.parametrize("make", [lambda p: optim.SGD(p, lr=0.01, momentum=0.9), lambda p: optim.Adam(p, lr=0.01)])
def test_the_update_ratio_is_measured(make):
    net = trained()
    optimizer = make(net.parameters())
    before = net.state_dict()
    optimizer.step()
    for name, row in study.grad_summary(net, before=before).items():
        moved = dict(net.named_parameters())[name].data - before[name]
        if name.endswith("weight"):
            assert row.update_ratio == pytest.approx(np.linalg.norm(moved) / np.linalg.norm(before[name]))
        else:
            assert row.update_ratio == np.inf  # biases begin at 0


def test_a_frozen_parameter_has_moved_by_nothing():
    net = trained()
    before = net.state_dict()
    rows = study.grad_summary(net, before=before)
    assert {row.update_ratio for row in rows.values()} == {0.0}


def test_tied_parameters_count_once():
    net = nn.Sequential(nn.Linear(3, 3, dtype=np.float64), mg.tanh, nn.Linear(3, 3, dtype=np.float64))
    net.layers[2].weight = net.layers[0].weight
    net(np.ones((2, 3))).sum().backward()
    assert study.grad_summary(net, "total")["total"].count == 9 + 3 + 3
    assert study.grad_summary(net, "module")["layers.2"].count == 9 + 3


def test_wrong_arguments_are_told():
    net = trained()
    with pytest.raises(ValueError, match="'parameter', 'module', 'total', and 'layer' was given"):
        study.grad_summary(net, "layer")
    with pytest.raises(ValueError, match=r"lacks layers\.0\.bias, layers\.1\.weight, layers\.1\.bias"):
        study.grad_summary(net, before={"layers.0.weight": np.zeros((4, 5))})
