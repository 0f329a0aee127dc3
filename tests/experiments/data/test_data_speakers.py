"""The synthetic speakers: bags of frames say nothing, the order of frames says all."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.data.speakers import ORDERS, splits, utterances


def mean(frames):
    return frames.mean(axis=0)


def mean_and_covariance(frames):
    return np.concatenate([frames.mean(axis=0), (frames.T @ frames / len(frames)).ravel()])


def bag(frames):
    """Means of random nonlinear functions of single frames."""
    weights = np.random.default_rng(1).normal(size=(frames.shape[1], 200)) / 2
    return np.tanh(frames @ weights + np.linspace(-2, 2, 200)).mean(axis=0)


def lag_one(frames):
    centred = frames - frames.mean(axis=0)
    return (centred[:-1].T @ centred[1:] / len(frames)).ravel()


def accuracy(feature, train, test):
    """Of a linear least-squares classifier, a little ridge included."""
    names = sorted(ORDERS)

    def design(frames):
        x = np.array([feature(sequence.astype(float)) for sequence in frames.sequences])
        return np.concatenate([x, np.ones((len(x), 1))], axis=1)

    x, y = design(train), np.eye(len(names))[[names.index(label) for label in train.labels]]
    weights = np.linalg.solve(x.T @ x + 0.1 * np.eye(x.shape[1]), x.T @ y)
    guesses = (design(test) @ weights).argmax(axis=1)
    return np.mean([names[guess] == label for guess, label in zip(guesses, test.labels, strict=True)])


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return utterances(300, rng), utterances(200, rng)


@pytest.mark.parametrize("feature", [mean, mean_and_covariance, bag])
def test_a_bag_of_frames_is_near_chance(data, feature):
    # Chance is 1/6; the deviation of a guesser's score over 1,200 utterances is .011.
    assert abs(accuracy(feature, *data) - 1 / 6) < 0.045


def test_the_nearest_centroid_of_means_is_near_chance(data):
    train, test = data
    labels = np.array(train.labels)
    means = np.array([mean(sequence) for sequence in train.sequences])
    names = sorted(ORDERS)
    centroids = np.array([means[labels == name].mean(axis=0) for name in names])
    distances = [np.linalg.norm(mean(sequence) - centroids, axis=1) for sequence in test.sequences]
    assert np.mean([names[d.argmin()] == label for d, label in zip(distances, test.labels, strict=True)]) < 0.22


def test_which_frame_follows_which_says_it_all():
    train, _, test = splits(0)
    assert accuracy(lag_one, train, test) > 0.95


def test_the_same_frames_backwards_are_another_speaker():
    train, _, test = splits(0)
    reverse = {"Anna": "Felix", "Ben": "David", "Clara": "Emma"}
    reverse |= {b: a for a, b in reverse.items()}
    backwards = type(test)([s[::-1] for s in test.sequences], [reverse[label] for label in test.labels])
    assert accuracy(lag_one, train, backwards) > 0.95


def test_shapes_labels_and_seeds():
    parts = splits(3)
    assert [len(part.labels) for part in parts] == [600, 180, 300]
    assert {name: parts[0].labels.count(name) for name in ORDERS} == dict.fromkeys(ORDERS, 100)
    for sequence in parts[0].sequences:
        assert sequence.dtype == np.float32
        assert sequence.shape[1] == 12
        assert np.isfinite(sequence).all()
    lengths = [len(sequence) for sequence in parts[0].sequences]
    assert 10 <= min(lengths) < 20 < 30 < max(lengths) <= 40
    again = splits(3)[2]
    assert again.labels == parts[2].labels
    np.testing.assert_array_equal(np.concatenate(again.sequences), np.concatenate(parts[2].sequences))
    assert splits(4)[2].labels != parts[2].labels
