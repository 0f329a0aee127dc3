"""Taus against SciPy's, from attention and gradients that are computed another way."""

import numpy as np
import pytest

import minigrad as mg
from experiments.claims import agree
from minigrad import study


def test_labels_are_the_sign_of_the_sum():
    task = agree.Sentences(np.random.default_rng(0))
    ids, valid, labels = task.draw(30)
    assert set(valid.sum(1)) <= set(range(agree.SHORTEST, agree.LONGEST + 1))
    for row, real, label in zip(ids, valid, labels):
        assert (row[real] > 0).all()
        assert not row[~real].any()
        assert label == (sum(task.valence[i] for i in row[real]) > 0)


def products(f, x, h=1e-5):
    """x . gradient of f, one number a sample, for each vector: how f changes as the vector grows, by differences."""
    columns = []
    for t in range(x.shape[1]):
        grown = np.ones((1, x.shape[1], 1))
        grown[0, t] += h
        columns.append((f(x * grown) - f(x * (2 - grown))) / (2 * h))
    return np.stack(columns, 1)


@pytest.mark.parametrize("layers", [0, 1])
def test_taus_are_scipys_of_differences(layers):
    kendalltau = pytest.importorskip("scipy.stats").kendalltau
    found = agree.agreement(layers, seed=5, steps=80, count=5)
    model, (ids, valid, labels) = agree.trained(layers, seed=5, steps=80, count=5)  # once more, the same
    x = model.embedding.weight.data[ids]
    with study.capture(model, "pool.attn", grad=False) as caught, mg.no_grad():
        logits = model(ids, valid=valid).data
    attention = caught["pool.attn"].value
    assert found.accuracy == np.mean(logits.argmax(-1) == labels)

    def tau_with(**held):
        def logit(vectors):
            with mg.no_grad(), study.patch(model, {"embedding": vectors, **held}):
                return model(ids, valid=valid).data[:, 1]

        firsts = [[list(row).index(word) for word in row] for row in ids]  # a word that stands there twice is a tie
        importance = np.take_along_axis(np.abs(products(logit, x)), np.array(firsts), 1)
        rows = zip(attention[:, 0, 0], importance, valid)
        return np.mean([kendalltau(weights[real], sizes[real]).statistic for weights, sizes, real in rows])

    assert found.through == pytest.approx(tau_with(), abs=1e-9)
    assert found.detached == pytest.approx(tau_with(**{"pool.attn": attention}), abs=1e-9)
    assert found.through != found.detached


def test_checks_are_of_means_and_their_differences():
    taus = {"a": np.array([0.7, 0.9]), "b": np.array([0.5, 0.5]), "c": np.array([0.45, 0.45])}
    checks = agree.checks_of(taus, "somehow")
    assert [check.value for check in checks] == pytest.approx([0.8, 0.3, 0.05])
    assert [check.passed for check in checks] == [True, True, False]
    assert "0.80 +- 0.14" in checks[0].what
