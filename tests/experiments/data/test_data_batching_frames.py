"""Padding, buckets, folds; and what is done to frames."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.data.batching import buckets, pad, split, stratified_folds
from experiments.data.frames import mask_features, mask_time, resample, standardise, statistics, with_deltas


def test_pad_by_hand():
    padded, valid = pad([np.array([1, 2]), np.array([3]), np.array([], dtype=int)])
    np.testing.assert_array_equal(padded, [[1, 2], [3, 0], [0, 0]])
    np.testing.assert_array_equal(valid, [[True, True], [True, False], [False, False]])
    assert valid.dtype == bool
    frames, _ = pad([np.ones((1, 3), np.float32), np.ones((2, 3), np.float32)])
    assert (frames.shape, frames.dtype) == ((2, 2, 3), np.float32)
    with pytest.raises(ValueError, match="at least one"):
        pad([])
    with pytest.raises(ValueError, match="length only"):
        pad([np.ones((2, 3)), np.ones((2, 4))])


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.integers(1, 60), max_size=80),
    st.none() | st.integers(1, 100),
    st.none() | st.integers(1, 9),
    st.integers(0, 9),
)
def test_buckets_hold_every_item_once_within_their_limits(lengths, max_tokens, batch_size, seed):
    if max_tokens is None and batch_size is None:
        batch_size = 1
    limits = {"max_tokens": max_tokens, "batch_size": batch_size}
    batches = buckets(lengths, **limits, rng=np.random.default_rng(seed))
    assert Counter(i for batch in batches for i in batch.tolist()) == Counter(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[i] for i in batch)
        assert batch_size is None or len(batch) <= batch_size
        assert max_tokens is None or len(batch) == 1 or len(batch) * longest <= max_tokens
    again = buckets(lengths, **limits, rng=np.random.default_rng(seed))
    assert [batch.tolist() for batch in again] == [batch.tolist() for batch in batches]


def test_buckets_waste_little_and_change():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 50, size=2000)
    first, second = (buckets(lengths, max_tokens=1000, rng=rng) for _ in range(2))
    padded = sum(len(batch) * lengths[batch].max() for batch in first)
    assert padded / lengths.sum() < 1.1
    assert len(first) < 1.2 * lengths.sum() / 1000
    assert {tuple(sorted(b)) for b in first}.isdisjoint(tuple(sorted(b)) for b in second)
    # Short batches and long ones come in no order.
    assert abs(np.corrcoef([lengths[b].mean() for b in first], range(len(first)))[0, 1]) < 0.4


@pytest.mark.parametrize("limits", [{}, {"max_tokens": 0}, {"batch_size": -1}])
def test_buckets_need_a_limit(limits):
    with pytest.raises(ValueError, match="positive max_tokens or batch_size"):
        buckets([1, 2], **limits, rng=np.random.default_rng(0))


@pytest.mark.parametrize(("n", "fraction", "held"), [(100, 0.1, 10), (3, 0.1, 1), (2, 0.9, 1), (25, 0.3, 8)])
def test_split(n, fraction, held):
    kept, part = split(n, fraction, np.random.default_rng(0))
    assert len(part) == held
    assert sorted([*kept, *part]) == list(range(n))
    assert kept.tolist() == sorted(kept.tolist())


def test_split_is_seeded_and_refuses_what_cannot_be():
    one, two, other = (split(100, 0.5, np.random.default_rng(seed))[1].tolist() for seed in (0, 0, 1))
    assert one == two != other
    for n, fraction in [(1, 0.5), (10, 0.0), (10, 1.0)]:
        with pytest.raises(ValueError, match="at least two items"):
            split(n, fraction, np.random.default_rng(0))


@settings(deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=2, max_size=60), st.data())
def test_folds_deal_classes_and_items_evenly(labels, data):
    k = data.draw(st.integers(2, min(7, len(labels))))
    folds = stratified_folds(labels, k, np.random.default_rng(1))
    assert sorted(i for fold in folds for i in fold.tolist()) == list(range(len(labels)))
    sizes = [len(fold) for fold in folds]
    assert max(sizes) - min(sizes) <= 1
    for label in set(labels):
        counts = [sum(labels[i] == label for i in fold) for fold in folds]
        assert max(counts) - min(counts) <= 1


def test_folds_are_seeded_and_checked():
    labels = ["a"] * 20 + ["b"] * 20
    first, same, other = (
        [f.tolist() for f in stratified_folds(labels, 4, np.random.default_rng(s))] for s in (0, 0, 1)
    )
    assert first == same != other
    for k in (1, 41):
        with pytest.raises(ValueError, match=f"got {k}"):
            stratified_folds(labels, k, np.random.default_rng(0))


def frames(n, d, seed=0):
    return np.random.default_rng(seed).normal(3, 2, size=(n, d)).astype(np.float32)


def test_standardised_frames_have_mean_0_and_deviation_1():
    sequences = [frames(10, 4, 0), frames(7, 4, 1)]
    for sequence in sequences:
        sequence[:, 2] = 0.1  # never changes
    given = statistics(sequences)
    done = np.concatenate([standardise(sequence, given) for sequence in sequences])
    assert done.dtype == np.float32
    np.testing.assert_allclose(done.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(done.std(axis=0), [1, 1, 0, 1], atol=1e-6)
    assert given.deviation[2] == 1


def test_resample_is_linear_interpolation():
    x = frames(9, 3)
    y = resample(x, 32)
    for column in range(3):
        expected = np.interp(np.linspace(0, 8, 32), np.arange(9), x[:, column])
        np.testing.assert_allclose(y[:, column], expected, rtol=1e-5)
    np.testing.assert_allclose(resample(x, 9), x, rtol=1e-5)
    np.testing.assert_array_equal(resample(x[:1], 4), np.repeat(x[:1], 4, axis=0))
    assert y.dtype == np.float32


def test_time_warps_keep_the_ends_and_their_direction_and_differ():
    ramp = np.arange(50, dtype=np.float32)[:, None]
    rng = np.random.default_rng(0)
    warped = np.array([resample(ramp, 101, rng, warp=0.9)[:, 0] for _ in range(200)])
    np.testing.assert_allclose(warped[:, 0], 0, atol=1e-4)
    np.testing.assert_allclose(warped[:, -1], 49, atol=1e-4)
    speeds = np.diff(warped, axis=1) / (49 / 100)
    assert speeds.min() >= 1 - 0.9 - 1e-3
    assert speeds.max() <= 1 + 0.9 + 1e-3
    assert np.abs(np.diff(speeds, axis=1)).max() < 0.1  # smooth
    assert warped[:, 50].std() > 1
    for length, warp in [(0, 0.5), (5, 1.0), (5, -0.1)]:
        with pytest.raises(ValueError, match="positive length"):
            resample(ramp, length, rng, warp=warp)


def test_deltas_by_hand():
    x = np.array([[0.0], [2.0], [6.0]], dtype=np.float32)
    np.testing.assert_array_equal(with_deltas(x), [[0, 1], [2, 3], [6, 2]])
    np.testing.assert_array_equal(with_deltas(x[1:2]), [[2, 0]])


@pytest.mark.parametrize(("mask", "axis"), [(mask_time, 0), (mask_features, 1)])
def test_masks_are_one_stripe_of_any_width_up_to_the_limit(mask, axis):
    x = np.ones((12, 10), dtype=np.float32)
    rng = np.random.default_rng(0)
    widths, covered = set(), np.zeros(x.shape[axis])
    for _ in range(400):
        masked = mask(x, 4, rng)
        gone = (masked == 0).all(axis=1 - axis)
        assert (masked == 0).sum() == gone.sum() * x.shape[1 - axis]
        places = np.flatnonzero(gone)
        assert len(places) == 0 or np.ptp(places) == len(places) - 1
        widths.add(len(places))
        covered += gone
    assert widths == {0, 1, 2, 3, 4}
    assert covered.min() > 0
    assert (x == 1).all()
    assert mask(x, 99, rng).shape == x.shape
