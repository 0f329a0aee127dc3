"""The two `saw`: what the sentences are, and what no model can do whatever its weights."""

import itertools
import math

import numpy as np
import pytest

import minigrad as mg
from experiments.claims import saw


@pytest.fixture
def test_sentences():
    return saw.sentences(40, np.random.default_rng(0))


def test_sentences_are_other_words_and_then_i_saw_a_saw(test_sentences):
    lengths = set()
    for ids, valid, tags in zip(test_sentences.ids[..., 0], test_sentences.valid, test_sentences.tags):
        n = valid.sum()
        assert valid[:n].all()
        assert not ids[n:].any()
        assert [saw.WORDS[i] for i in ids[n - 4 : n]] == ["I", "saw", "a", "saw"]
        assert [saw.TAGS[i] for i in tags[n - 4 : n]] == ["PRON", "VERB", "DET", "NOUN"]
        assert all(saw.WORDS[i] not in ("", "I", "saw", "a") for i in ids[: n - 4])
        lengths.add(n - 4)
    assert lengths == set(range(saw.LONGEST_PREFIX + 1))
    assert test_sentences.saws.sum() == 80


def test_best_by_place_is_that_of_the_best_table_of_places():
    counts = {}
    for prefix, (offset, tag) in itertools.product(range(saw.LONGEST_PREFIX + 1), ((1, "VERB"), (3, "NOUN"))):
        place = prefix + offset
        counts.setdefault(place, []).append(tag)
    best = sum(max(tags.count("VERB"), tags.count("NOUN")) for tags in counts.values())
    assert saw.best_by_place() == pytest.approx(best / (2 * (saw.LONGEST_PREFIX + 1)))


@pytest.mark.parametrize("name", saw.BODIES)
def test_only_models_that_know_places_tell_them_apart(name, test_sentences):
    mg.seed(1)
    model = saw.tagger(saw.BODIES[name](), np.random.default_rng(1), steps=3)
    scores = saw.score(model, test_sentences)
    if name in ("FC", "self-attention"):
        assert scores.difference <= 1e-12
        assert scores.accuracy in (0, 0.5)
        assert scores.cross_entropy >= math.log(2)
    else:
        assert scores.difference > 1e-3


def test_scores_are_of_the_saws_alone(test_sentences):
    class Knows(saw.nn.Module):
        """Right about every second `saw`, sure of itself, and wrong everywhere else."""

        def forward(self, ids, *, valid):
            logits = np.zeros((*valid.shape, len(saw.TAGS)))
            logits[..., saw.TAGS.index("NOUN")] = 1000
            return mg.tensor(logits)

    scores = saw.score(Knows(), test_sentences)
    assert scores == saw.Scores(accuracy=0.5, cross_entropy=500.0, difference=0.0)
