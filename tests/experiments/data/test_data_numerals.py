"""Number words and Chinese numerals, against parsers written for the test and published examples."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.data.numerals import chinese, english, pair, splits, words

VALUES = {character: value for value, character in enumerate("零一二三四五六七八九")}
PLACES = {"十": 10, "百": 100, "千": 1000}


def parse_chinese(text):
    """The number, by adding digit times unit; checks that 零 stands exactly where a place is skipped."""
    if text == "零":
        return 0
    total, digit, last, zero = 0, None, None, False
    for character in text:
        if character == "零":
            assert (digit, zero) == (None, False)
            assert last is not None
            zero = True
        elif character in VALUES:
            assert digit is None
            digit = VALUES[character]
        else:
            place = PLACES[character]
            if digit is None:  # only ten at the very beginning goes without a digit
                assert (place, last) == (10, None)
                digit = 1
            assert last is None or place < last
            assert zero == (last is not None and place * 10 < last)
            total, digit, last, zero = total + digit * place, None, place, False
    assert digit is not None or not zero
    if digit is not None:
        assert zero == (last is not None and last > 10)
        total += digit
    return total


def parse_english(text):
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
    names += ["thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
    tens = {
        "twenty": 20,
        "thirty": 30,
        "forty": 40,
        "fifty": 50,
        "sixty": 60,
        "seventy": 70,
        "eighty": 80,
        "ninety": 90,
    }
    total, current = 0, 0
    for word in words(text):
        if word in ("hundred", "thousand"):
            total, current = total + current * {"hundred": 100, "thousand": 1000}[word], 0
        elif word != "and":
            current += tens[word] if word in tens else names.index(word)
    return total + current


@pytest.mark.parametrize(
    ("n", "numeral"),
    [
        (0, "零"), (2, "二"), (10, "十"), (15, "十五"), (20, "二十"), (99, "九十九"), (100, "一百"), (101, "一百零一"),
        (110, "一百一十"), (111, "一百一十一"), (205, "二百零五"), (1000, "一千"), (1005, "一千零五"),
        (1010, "一千零一十"), (1050, "一千零五十"), (1100, "一千一百"), (2000, "二千"), (3015, "三千零一十五"),
        (3600, "三千六百"), (7801, "七千八百零一"), (9999, "九千九百九十九"),
    ],
)  # fmt: skip
def test_chinese_examples(n, numeral):
    assert chinese(n) == numeral


def test_all_ten_thousand_read_back():
    assert [parse_chinese(chinese(n)) for n in range(10_000)] == list(range(10_000))
    assert [parse_english(english(n)) for n in range(10_000)] == list(range(10_000))


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, "zero"), (13, "thirteen"), (40, "forty"), (99, "ninety-nine"), (100, "one hundred"),
        (205, "two hundred and five"), (1005, "one thousand and five"), (1200, "one thousand two hundred"),
        (9999, "nine thousand nine hundred and ninety-nine"),
    ],
)  # fmt: skip
def test_english_examples(n, text):
    assert english(n) == text


@pytest.mark.parametrize("n", [-1, 10_000])
@pytest.mark.parametrize("write", [chinese, english])
def test_other_numbers_are_refused(write, n):
    with pytest.raises(ValueError, match=f"from 0 to 9999, got {n}"):
        write(n)


def test_pairs_are_words_and_characters():
    assert pair(221).source == ("two", "hundred", "and", "twenty", "one")
    assert pair(221).target == ("二", "百", "二", "十", "一")


def test_splits_are_disjoint_seeded_and_begin_small():
    parts = splits(0)
    numbers = [[parse_chinese("".join(p.target)) for p in part] for part in parts]
    assert [len(part) for part in numbers] == [4000, 300, 1000]
    assert len({n for part in numbers for n in part}) == 5300
    assert set(range(100)) <= set(numbers[0])
    assert np.mean(numbers[2]) == pytest.approx(5050, abs=400)
    assert all(parse_english(" ".join(p.source)) == n for p, n in zip(parts[2], numbers[2], strict=True))
    assert splits(0) == parts
    assert splits(1)[2] != parts[2]
    with pytest.raises(ValueError, match="at most"):
        splits(0, train=9000)
