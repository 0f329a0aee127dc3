"""Numbers from 0 to 9999 in English words and in Chinese numerals: two hundred and five, 二百零五."""

from __future__ import annotations

import re

import numpy as np

from experiments.data.tsv import Pair

LIMIT = 10_000
DIGITS = "零一二三四五六七八九"
UNITS = ("", "十", "百", "千")

_DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
_TEENS = ["ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
_SMALL = _DIGITS + _TEENS
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def english(n: int) -> str:
    """n in words, the British way: `one thousand and five`, `ninety-nine`. ValueError outside 0 to 9999."""
    _check(n)
    thousands, hundreds, rest = n // 1000, n // 100 % 10, n % 100
    parts = [f"{_SMALL[thousands]} thousand"] if thousands else []
    parts += [f"{_SMALL[hundreds]} hundred"] if hundreds else []
    if not rest and parts:
        return " ".join(parts)
    return " ".join([*parts, "and", _below_hundred(rest)] if parts else [_below_hundred(rest)])


def _below_hundred(n: int) -> str:
    if n < 20:
        return _SMALL[n]
    tens = _TENS[n // 10 - 2]
    return f"{tens}-{_SMALL[n % 10]}" if n % 10 else tens


def chinese(n: int) -> str:
    """n as a Chinese numeral: one 零 for any run of zeros within, no 一 before a leading 十. ValueError as english."""
    _check(n)
    digits = str(n)
    written = "".join(
        DIGITS[int(digit)] + (UNITS[place] if digit != "0" else "")
        for digit, place in zip(digits, reversed(range(len(digits))), strict=True)
    )
    written = re.sub("零+", "零", written)
    if n:
        written = written.rstrip("零")
    return written[1:] if written.startswith("一十") else written


def _check(n: int) -> None:
    if not 0 <= n < LIMIT:
        raise ValueError(f"expected a number from 0 to {LIMIT - 1}, got {n}")


def words(text: str) -> tuple[str, ...]:
    """The words of an English number, hyphens taken apart: the source symbols."""
    return tuple(text.lower().replace("-", " ").split())


def pair(n: int) -> Pair:
    """Words and numeral of n; source symbols are words, target symbols characters."""
    return Pair(words(english(n)), tuple(chinese(n)))


def splits(seed: int, train: int = 4000, dev: int = 300, test: int = 1000) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """Disjoint numbers for training (all below 100 among them), for dev and for testing."""
    rng = np.random.default_rng(seed)
    small, large = np.arange(100), rng.permutation(np.arange(100, LIMIT))
    if train < len(small) or train + dev + test > LIMIT:
        raise ValueError(f"expected train >= {len(small)} and {LIMIT} numbers at most, got {train}, {dev}, {test}")
    numbers = np.concatenate([small, large])[: train + dev + test].tolist()
    pairs = [pair(n) for n in numbers]
    return pairs[:train], pairs[train : train + dev], pairs[train + dev :]
