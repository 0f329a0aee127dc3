"""Greedy and beam search, against all sequences of a small vocabulary and on step functions with a state."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models import beam_search, greedy

EOS = 0


def random_step(seed, vocabulary, spread=1.0):
    """Log-probabilities that depend on the whole row and on nothing else."""
    calls = []

    def next_symbol(row):
        logits = np.random.default_rng([seed, *map(int, row)]).normal(size=vocabulary) * spread
        return logits - np.log(np.exp(logits).sum())

    def step(ids):
        calls.append(ids.copy())
        return np.stack([next_symbol(row) for row in ids])

    step.next_symbol, step.calls = next_symbol, calls
    return step


def all_sequences(step, start, vocabulary, max_length):
    """Every sequence that ends with EOS, or is max_length long, with its log-probability."""
    symbols = [s for s in range(vocabulary) if s != EOS]
    for length in range(1, max_length + 1):
        for prefix in itertools.product(symbols, repeat=length - 1):
            lasts = range(vocabulary) if length == max_length else [EOS]
            for sequence in ((*prefix, last) for last in lasts):
                row, total = [start], 0.0
                for symbol in sequence:
                    total += step.next_symbol(row)[symbol]
                    row.append(symbol)
                yield sequence, total


def without_end(sequence):
    return list(sequence[:-1]) if sequence and sequence[-1] == EOS else list(sequence)


def lists(arrays):
    return [array.tolist() for array in arrays]


@pytest.mark.parametrize("length_penalty", [0.0, 0.5, 1.0, -0.5])
@pytest.mark.parametrize(("vocabulary", "max_length"), [(2, 5), (3, 4), (4, 3), (3, 1)])
@pytest.mark.parametrize("seed", range(6))
def test_a_wide_beam_finds_the_best_of_all_sequences(seed, vocabulary, max_length, length_penalty):
    step, starts = random_step(seed, vocabulary), [1, 7]
    found = beam_search(step, starts, EOS, vocabulary**max_length, max_length, length_penalty)
    for start, sequence in zip(starts, found):
        ranked = sorted(
            all_sequences(step, start, vocabulary, max_length), key=lambda s: s[1] / len(s[0]) ** length_penalty
        )
        assert sequence.tolist() == without_end(ranked[-1][0])


def test_the_length_penalty_matters_to_the_oracle():
    """Else the test above would not tell penalties apart."""
    winners = set()
    step = random_step(0, 3)
    for penalty in (0.0, 1.0):
        winners.add(max(all_sequences(step, 7, 3, 4), key=lambda s: s[1] / len(s[0]) ** penalty)[0])
    assert len(winners) == 2


@settings(deadline=None, max_examples=150)
@given(
    st.integers(0, 10**6),
    st.integers(1, 6),
    st.integers(0, 7),
    st.lists(st.integers(0, 9), max_size=4),
    st.sampled_from([0.0, 0.5, 1.0]),
)
def test_a_beam_of_one_is_greedy(seed, vocabulary, max_length, starts, length_penalty):
    step = random_step(seed, vocabulary)
    wanted = greedy(step, starts, EOS, max_length)
    assert lists(beam_search(step, starts, EOS, 1, max_length, length_penalty)) == lists(wanted)
    assert len(wanted) == len(starts)
    for start, sequence in zip(starts, wanted):
        row = [start]  # by hand
        while len(row) <= max_length and (symbol := int(step.next_symbol(row).argmax())) != EOS:
            row.append(symbol)
        assert sequence.tolist() == row[1:]


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 10**6), st.integers(2, 5), st.integers(1, 5), st.integers(1, 4), st.sampled_from([0.0, 0.7, 1.0]))
def test_rows_of_a_batch_are_searched_independently(seed, vocabulary, max_length, beam, length_penalty):
    step, starts = random_step(seed, vocabulary), [1, 2, 3]
    together = lists(beam_search(step, starts, EOS, beam, max_length, length_penalty))
    assert together == [lists(beam_search(step, [s], EOS, beam, max_length, length_penalty))[0] for s in starts]


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 10**6), st.integers(2, 5), st.integers(1, 6), st.integers(2, 5))
def test_a_state_follows_its_rows(seed, vocabulary, max_length, beam):
    """A step function that sees nothing but the last symbols, and whose memory is only right if it is reordered."""
    starts = [3, 8]

    class Stateful:
        def __init__(self):
            self.memory = np.zeros((len(starts), 0), int)
            self.stateless = random_step(seed, vocabulary)
            self.reordered = True

        def __call__(self, ids):
            assert self.reordered
            self.reordered = False
            self.memory = np.concatenate([self.memory, ids[:, -1:]], axis=1)
            np.testing.assert_array_equal(self.memory, ids)
            return self.stateless(self.memory)

        def reorder(self, rows):
            assert not self.reordered
            self.reordered = True
            self.memory = self.memory[rows]

    plain = beam_search(random_step(seed, vocabulary), starts, EOS, beam, max_length)
    assert lists(beam_search(Stateful(), starts, EOS, beam, max_length)) == lists(plain)


def test_hypotheses_of_one_start_stand_together_b102():
    step = random_step(1, 4)
    beam_search(step, [1, 2, 3], EOS, 2, 3)
    assert step.calls[0][:, 0].tolist() == [1, 2, 3]
    assert [call[:, 0].tolist() for call in step.calls[1:]] == [[1, 1, 2, 2, 3, 3]] * 2


def test_a_longer_hypothesis_wins_after_the_length_penalty_b101():
    """A: log-probability -1.0, length 2; B: -1.2, length 4."""
    a, b = [1, EOS], [2, 1, 1, EOS]
    logp = {(): {1: -0.5, 2: -0.6}, (1,): {EOS: -0.5}, (2,): {1: -0.2}, (2, 1): {1: -0.2}, (2, 1, 1): {EOS: -0.2}}

    def step(ids):
        rows = np.full((len(ids), 3), -50.0)
        for row, symbols in zip(rows, ids[:, 1:].tolist()):
            for symbol, value in logp.get(tuple(symbols), {}).items():
                row[symbol] = value
        return rows

    assert lists(beam_search(step, [9], EOS, 2, 6, 0.0)) == [without_end(a)]  # -1.0 beats -1.2
    assert lists(beam_search(step, [9], EOS, 2, 6, 1.0)) == [without_end(b)]  # -.3 beats -.5


def test_the_search_goes_on_while_something_alive_could_still_win():
    """The end at once scores -0.3; the row of 1s is at -1.2 after one symbol and at -1.2 / 6 = -0.2 at full length."""

    def step(ids):
        first = ids.shape[1] == 1
        return np.tile([-0.3, -1.2] if first else [-5.0, 0.0], (len(ids), 1))

    assert lists(beam_search(step, [9], EOS, 2, 6, 1.0)) == [[1] * 6]
    assert lists(beam_search(step, [9], EOS, 2, 3, 1.0)) == [[]]  # -1.2 / 3 = -0.4


def ends_after(lengths):
    """Row i says 2 until it has said lengths[start symbol] symbols, and then EOS."""

    def step(ids):
        logp = np.full((len(ids), 4), -20.0)
        for row, start in zip(logp, ids[:, 0]):
            row[EOS if ids.shape[1] > lengths[start] else 2] = -0.1
        return logp

    return step


@pytest.mark.parametrize("search", [greedy, lambda *a: beam_search(*a[:3], 3, a[3])], ids=["greedy", "beam"])
def test_each_row_stops_at_its_own_end(search):
    lengths = [3, 0, 5, 1]
    assert lists(search(ends_after(lengths), [0, 1, 2, 3], EOS, 10)) == [[2] * n for n in lengths]
    assert lists(search(ends_after(lengths), [0, 1, 2, 3], EOS, 3)) == [[2] * min(n, 3) for n in lengths]
    assert lists(search(ends_after(lengths), [0, 1, 2, 3], EOS, 1)) == [[2], [], [2], [2]]
    assert lists(search(ends_after(lengths), [0, 1], EOS, 0)) == [[], []]


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("beam", [1, 2, 4])
def test_an_end_that_never_comes(beam, penalty):
    def step(ids):
        logp = np.log(np.broadcast_to([0.0001, 0.3, 0.6999], (len(ids), 3)))
        return np.where(np.arange(3) == EOS, -np.inf, logp)

    assert lists(greedy(step, [1, 2], EOS, 4)) == [[2] * 4] * 2
    assert lists(beam_search(step, [1, 2], EOS, beam, 4, penalty)) == [[2] * 4] * 2


def test_steps_end_with_the_last_row():
    calls = []

    def step(ids):
        calls.append(len(ids))
        return ends_after([1, 2])(ids)

    greedy(step, [0, 1], EOS, 50)
    assert len(calls) == 3
    calls.clear()
    beam_search(step, [0, 1], EOS, 2, 50)
    assert len(calls) == 3


def test_a_beam_larger_than_the_vocabulary():
    step = random_step(2, 3)
    assert lists(beam_search(step, [5], EOS, 1000, 3)) == lists(beam_search(step, [5], EOS, 27, 3))


@pytest.mark.parametrize("starts", [[], np.zeros(0, int), np.zeros(0, np.int32)], ids=["list", "int64", "int32"])
def test_a_batch_of_no_rows(starts):
    def step(ids):
        raise AssertionError("there is nothing to ask for")

    assert greedy(step, starts, EOS, 5) == []
    assert beam_search(step, starts, EOS, 3, 5) == []


def test_results_are_integer_arrays():
    for start in ([1, 2], np.array([1, 2], np.int32), (1, 2)):
        for found in (greedy(random_step(0, 4), start, EOS, 3), beam_search(random_step(0, 4), start, EOS, 2, 3)):
            assert [array.dtype for array in found] == [np.int64] * 2
        nothing = greedy(random_step(0, 4), start, EOS, 0) + beam_search(random_step(0, 4), start, EOS, 2, 0)
        assert [(array.dtype, array.shape) for array in nothing] == [(np.int64, (0,))] * 4


def test_wrong_arguments():
    with pytest.raises(ValueError, match="beam"):
        beam_search(random_step(0, 3), [1], EOS, 0, 5)
    with pytest.raises(TypeError, match="integers"):
        greedy(random_step(0, 3), [1.5], EOS, 5)
