"""The default generator: seeding, state for a checkpoint."""

import json

import numpy as np
import pytest

import minigrad as mg
from minigrad import random


@pytest.fixture(autouse=True)
def _put_back():
    state = random.get_state()
    yield
    random.set_state(state)


def test_seed_equals_numpys_default_rng_and_keeps_the_generator():
    generator = random.generator()
    for value in (0, 1, 2**70):
        mg.seed(value)
        np.testing.assert_array_equal(generator.random(5), np.random.default_rng(value).random(5))
    assert random.generator() is generator


def test_a_generator_that_is_passed_is_used():
    rng = np.random.default_rng(0)
    assert random.generator(rng) is rng
    assert random.generator(None) is random.generator()


def draws(rng):
    """Of several kinds: some generators keep half a word, or a spare normal, between draws."""
    return [rng.random(3), rng.integers(0, 2**31, 3, dtype=np.int32), rng.standard_normal(3), rng.permutation(5)]


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox,
                                  np.random.SFC64])  # fmt: skip
def test_state_round_trip(kind):
    rng = np.random.Generator(kind(5))
    rng.integers(0, 10, dtype=np.int32)  # leaves half a word over
    state = random.get_state(rng)
    expected = draws(rng)
    random.set_state(state, rng)
    for a, b in zip(draws(rng), expected):
        np.testing.assert_array_equal(a, b)
    random.set_state(state, rng)  # a state is a copy that later draws do not change
    np.testing.assert_array_equal(draws(rng)[0], expected[0])


def test_state_of_the_default_generator_survives_json():
    mg.seed(8)
    random.generator().random()
    text = json.dumps(random.get_state())
    expected = random.generator().random(4)
    mg.seed(9)
    random.set_state(json.loads(text))
    np.testing.assert_array_equal(random.generator().random(4), expected)


def test_a_state_of_another_kind_of_generator_is_an_error_and_changes_nothing():
    before = random.get_state()
    with pytest.raises(ValueError, match="PCG64"):
        random.set_state(random.get_state(np.random.Generator(np.random.MT19937(0))))
    assert random.get_state() == before


def test_seed_and_draws_do_not_touch_numpys_global_state():
    before = np.random.get_state()[1].copy()
    mg.seed(1)
    random.generator().random(10)
    np.testing.assert_array_equal(np.random.get_state()[1], before)
