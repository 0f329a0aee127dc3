"""What a word looks like, as rows of one embedding table: the word itself, its affixes, case, shape and length.

A word's vector is the sum of the rows that `WordFeatures.encode` names. Row 0 is padding, rows 1 and 2 stand for the
beginning and the end of a sentence; then every family of features has its rows, the first for what it does not know.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

PADDING, BEGIN, END = 0, 1, 2
AFFIX, SHAPE, LENGTH = 4, 8, 12  # the longest affix, shape, and length told apart
FAMILIES = (
    "word",
    *(f"prefix{size}" for size in range(1, AFFIX + 1)),
    *(f"suffix{size}" for size in range(1, AFFIX + 1)),
    "case",
    "digit",
    "hyphen",
    "shape",
    "length",
)
# How often a value must be seen in training to get a row of its own.
_MIN_COUNT = {family: 2 if family == "word" else 3 if family[:-1] in ("prefix", "suffix") else 1 for family in FAMILIES}


class WordFeatures:
    """The table's rows for every word of a sentence, learnt from the words of the training sentences.

    Attributes: size, the number of rows; word_column, the column of the word's own row; unknown_word, the row that
    stands there for a word not known (training puts it there at random, so that it is learnt).
    """

    def __init__(self, values: Mapping[str, Sequence[str]], forms: Iterable[str]) -> None:
        """From every family's values that have a row, and the forms seen in training; `fit` is the usual way."""
        self.values = {family: tuple(values[family]) for family in FAMILIES}
        self.forms = frozenset(forms)
        self.word_column = FAMILIES.index("word")
        self.size = END + 1
        self._unknown: list[int] = []
        self._rows: list[dict[str, int]] = []
        for family in FAMILIES:
            self._unknown.append(self.size)
            self._rows.append({value: row for row, value in enumerate(self.values[family], start=self.size + 1)})
            self.size += 1 + len(self.values[family])
        self.unknown_word = self._unknown[self.word_column]
        # Most of a text is a few thousand words: each is looked at once.
        self._cache: dict[str, NDArray[np.int64]] = {}

    @classmethod
    def fit(cls, sentences: Iterable[Sequence[str]]) -> WordFeatures:
        """From the tokens of training sentences: words seen twice, affixes seen three times get a row of their own."""
        tokens = Counter(chain.from_iterable(sentences))
        counts: dict[str, Counter[str]] = {family: Counter() for family in FAMILIES}
        for token, count in tokens.items():
            for family, value in zip(FAMILIES, _describe(token), strict=True):
                counts[family][value] += count
        kept = {
            family: sorted(value for value, count in counts[family].items() if count >= _MIN_COUNT[family])
            for family in FAMILIES
        }
        return cls(kept, tokens)

    def encode(self, tokens: Sequence[str], *, boundaries: bool = False) -> NDArray[np.int64]:
        """Rows (n, 14) of n tokens; with boundaries (n + 2, 14), the sentence's begin and end around them."""
        rows = np.zeros((len(tokens) + 2, len(FAMILIES)), dtype=np.int64)
        rows[0, self.word_column], rows[-1, self.word_column] = BEGIN, END
        for index, token in enumerate(tokens, start=1):
            rows[index] = self._encode(token)
        return rows if boundaries else rows[1:-1]

    def _encode(self, token: str) -> NDArray[np.int64]:
        if token not in self._cache:
            table = zip(_describe(token), self._rows, self._unknown, strict=True)
            self._cache[token] = np.array([rows.get(value, unknown) for value, rows, unknown in table], dtype=np.int64)
        return self._cache[token]

    def known(self, token: str) -> bool:
        """Was this very form, capitals as they are, in the training sentences?"""
        return token in self.forms

    def to_json(self) -> dict[str, Any]:
        """Plain data from which `from_json` makes an equal one."""
        return {"values": {family: list(values) for family, values in self.values.items()}, "forms": sorted(self.forms)}

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> WordFeatures:
        """The features that `to_json` described."""
        return cls(state["values"], state["forms"])


def _describe(token: str) -> tuple[str, ...]:
    """The token's value in every family, in the order of FAMILIES."""
    lower = token.lower()
    marked = f"^{lower}$"  # so that a short word's affixes tell that they are all of it
    sizes = range(1, AFFIX + 1)
    return (
        lower,
        *(marked[: size + 1] for size in sizes),
        *(marked[-size - 1 :] for size in sizes),
        _case(token),
        str(any(character.isdigit() for character in token)),
        str("-" in token),
        _shape(token),
        str(min(len(token), LENGTH)),
    )


def _case(token: str) -> str:
    letters = [character for character in token if character.isalpha()]
    if not any(character.isupper() for character in letters):
        return "lower" if letters else "none"
    if all(character.isupper() for character in letters):
        return "upper" if len(letters) > 1 else "initial"
    return "title" if letters[0].isupper() and not any(letter.isupper() for letter in letters[1:]) else "mixed"


def _shape(token: str) -> str:
    """X for capitals, x for other letters, 9 for digits, runs written once, at most 8 characters."""
    classes = "".join("X" if c.isupper() else "x" if c.isalpha() else "9" if c.isdigit() else c for c in token)
    return re.sub(r"(.)\1+", r"\1", classes)[:SHAPE]
