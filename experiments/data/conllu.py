"""CoNLL-U: a sentence's tokens and their universal parts of speech (universaldependencies.org/format.html)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from os import PathLike

from experiments.data.errors import DataError
from experiments.data.text import read_lines

COLUMNS = 10
_NOT_A_WORD = re.compile(r"\d+[-.]\d+")  # a range of words written as one, or an empty node


@dataclass(frozen=True)
class Tagged:
    """A sentence: as many tags as tokens."""

    tokens: tuple[str, ...]
    tags: tuple[str, ...]


def read_conllu(path: str | PathLike[str]) -> list[Tagged]:
    """Forms (column 2) and UPOS tags (column 4) of every sentence; a DataError names the line that is malformed."""
    sentences: list[Tagged] = []
    words: list[tuple[str, str]] = []
    for number, line in enumerate([*read_lines(path), ""], start=1):
        if not line.strip(" "):
            if words:
                tokens, tags = zip(*words, strict=True)
                sentences.append(Tagged(tokens, tags))
            words = []
        elif not line.startswith("#"):
            word = _word(path, number, line, len(words) + 1)
            words.extend([word] if word else [])
    if not sentences:
        raise DataError(path, "has no sentence, only comments and empty lines")
    return sentences


def _word(path: str | PathLike[str], number: int, line: str, expected: int) -> tuple[str, str] | None:
    """Form and tag of a line; None for what is not a word of the sentence."""
    columns = line.split("\t")
    if len(columns) != COLUMNS:
        raise DataError(path, f"expected {COLUMNS} tab-separated columns, got {len(columns)}", number)
    if _NOT_A_WORD.fullmatch(columns[0]):
        return None
    if columns[0] != str(expected):
        hint = "; is the empty line between two sentences missing?" if columns[0] == "1" else ""
        raise DataError(path, f"expected word id {expected} in column 1, got {columns[0]!r}{hint}", number)
    form, tag = columns[1], columns[3]
    if not form.strip():
        raise DataError(path, "the form in column 2 is empty", number)
    if not tag.strip() or tag == "_":
        raise DataError(path, f"{form!r} has no UPOS tag in column 4", number)
    return form, tag
