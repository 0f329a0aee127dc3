"""Symbols to ids, and words to rows of the embedding table."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from experiments.data.features import BEGIN, END, FAMILIES, WordFeatures
from experiments.data.vocabulary import Vocabulary


def test_specials_come_first_and_are_no_symbols():
    v = Vocabulary(["a", "<unk>", "pad"], ["pad", "unk", "bos", "eos"])
    assert (v.pad, v.unk, v.bos, v.eos, len(v)) == (0, 1, 2, 3, 7)
    np.testing.assert_array_equal(v.encode(["pad", "a", "b", "<unk>", "<pad>"]), [6, 4, 1, 5, 1])
    assert v.decode([6, 4, 2, 0]) == ["pad", "a", "<bos>", "<pad>"]
    assert "a" in v
    assert "bos" not in v
    assert v.encode([]).dtype == np.int64


def test_unknown_without_unk_and_wrong_ids_are_named():
    v = Vocabulary(["a", "b"])
    with pytest.raises(KeyError, match="unknown symbol 'c'"):
        v.encode(["a", "c"])
    with pytest.raises(KeyError, match="no special 'pad'"):
        _ = v.pad
    for wrong in (-1, 2):
        with pytest.raises(IndexError, match=f"from 0 to 1, got {wrong}"):
            v.decode([wrong])
    with pytest.raises(ValueError, match="'a' stands there twice"):
        Vocabulary(["a", "b", "a"])
    with pytest.raises(ValueError, match="unknown special 'mask'"):
        Vocabulary(["a"], ["mask"])


def test_from_counts_orders_by_frequency_then_name():
    v = Vocabulary.from_counts("banana-bx", min_count=2, specials=["unk"])
    assert v.symbols == ("a", "b", "n")
    assert Vocabulary.from_counts(Counter("banana-bx"), 2, ["unk"]).symbols == v.symbols
    assert Vocabulary.from_counts("zzyx").symbols == ("z", "x", "y")


def test_vocabulary_through_json():
    v = Vocabulary("零一二", ["pad", "bos"])
    again = Vocabulary.from_json(json.loads(json.dumps(v.to_json())))
    assert (again.symbols, again.specials) == (v.symbols, v.specials)
    np.testing.assert_array_equal(again.encode("二零"), v.encode("二零"))


TRAIN = [["The", "walking", "cook", "walking"], ["the", "Talking", "cook", "x-2"], ["McX", "USA", "stalking"]]


@pytest.fixture
def features():
    return WordFeatures.fit(TRAIN)


def column(features, token, family):
    return int(features.encode([token])[0, FAMILIES.index(family)])


def test_rows_are_of_their_family_and_within_the_table(features):
    rows = features.encode(["the", "zzz", "walking", "9", "!"])
    assert rows.shape == (5, 14)
    assert rows.dtype == np.int64
    assert rows.min() > END
    assert rows.max() < features.size
    # Families lie one after another in the table, so the columns of any row ascend.
    assert (np.diff(rows, axis=1) > 0).all()


def test_training_reaches_every_row_but_padding_and_the_unknown_ones(features):
    reached = set(np.concatenate([features.encode(s, boundaries=True) for s in TRAIN]).ravel().tolist())
    firsts, start = [], END + 1
    for family in FAMILIES:
        firsts.append(start)
        start += 1 + len(features.values[family])
    assert start == features.size
    assert reached | set(firsts) == set(range(features.size))  # 0 is in the rows of the boundaries
    assert firsts[features.word_column] == features.unknown_word


def test_words_need_two_occurrences_whatever_their_case(features):
    unknown = features.unknown_word
    assert features.encode(["zzz"])[0, features.word_column] == unknown
    assert column(features, "USA", "word") == unknown
    assert column(features, "cook", "word") != unknown
    assert column(features, "THE", "word") == column(features, "the", "word") != unknown


def test_affixes_need_three(features):
    # -ing ends four words here, walk- begins two.
    assert column(features, "singing", "suffix3") == column(features, "walking", "suffix3")
    assert column(features, "walking", "suffix3") != column(features, "qqq", "suffix3")
    assert column(features, "walking", "prefix4") == column(features, "qqqqq", "prefix4")
    assert column(features, "king", "suffix4") == column(features, "walking", "suffix4")


def test_a_short_word_is_not_taken_for_an_affix():
    features = WordFeatures.fit([["go", "go", "go", "gone", "gone", "gone", "goner"]])
    assert column(features, "go", "prefix2") == column(features, "gone", "prefix2")
    assert column(features, "go", "prefix3") != column(features, "gone", "prefix3")


@pytest.mark.parametrize(
    ("family", "groups"),
    [
        ("case", [["the", "x-2"], ["The", "Talking"], ["USA"], ["A"], ["McX", "iPod"], ["12", "!"]]),
        ("digit", [["x-2", "7"], ["the", "!"]]),
        ("hyphen", [["x-2", "a-b"], ["the"]]),
        ("shape", [["the", "a"], ["The", "Ax"], ["McX", "AbCCC"], ["USA", "A"], ["x-2", "yy-13"]]),
        ("length", [["twelve chars", "more than twelve"], ["the", "USA"], ["a"]]),
    ],
)
def test_classes_of_the_small_families(family, groups):
    features = WordFeatures.fit([token for group in groups for token in group] for _ in range(3))
    rows = [{column(features, token, family) for token in group} for group in groups]
    assert [len(row) for row in rows] == [1] * len(groups)
    assert len(set().union(*rows)) == len(groups)


def test_shapes_are_cut_at_eight():
    features = WordFeatures.fit([["a1b2c3d4e5"]])
    assert column(features, "x9x9x9x9", "shape") == column(features, "a1b2c3d4zzz", "shape")
    assert column(features, "x9x9x9x", "shape") != column(features, "x9x9x9x9", "shape")


def test_boundaries_stand_around(features):
    inner, outer = features.encode(["the", "cook"]), features.encode(["the", "cook"], boundaries=True)
    np.testing.assert_array_equal(outer[1:-1], inner)
    assert outer[0].tolist() == [BEGIN] + [0] * 13
    assert outer[-1].tolist() == [END] + [0] * 13
    assert features.encode([]).shape == (0, 14)


def test_known_is_the_very_form(features):
    assert [features.known(token) for token in ("The", "USA", "usa", "Cook", "cook")] == [
        True,
        True,
        False,
        False,
        True,
    ]


def test_what_is_returned_can_be_written_to(features):
    features.encode(["the"])[:] = 0
    assert features.encode(["the"]).min() > END


def test_features_through_json(features):
    again = WordFeatures.from_json(json.loads(json.dumps(features.to_json())))
    tokens = [token for sentence in TRAIN for token in sentence] + ["unseen", "Zz-9"]
    np.testing.assert_array_equal(again.encode(tokens), features.encode(tokens))
    assert (again.size, again.unknown_word, again.forms) == (features.size, features.unknown_word, features.forms)
