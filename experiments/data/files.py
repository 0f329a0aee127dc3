"""Any data file by its suffix: labelled for training and testing, unlabelled for prediction."""

from __future__ import annotations

import hashlib
import re
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.data.conllu import Tagged, read_conllu
from experiments.data.errors import DataError
from experiments.data.npz import read_npz
from experiments.data.text import read_bytes, read_lines
from experiments.data.ts import Frames, read_ts
from experiments.data.tsv import Pair, read_tsv

SUFFIXES = (".conllu", ".ts", ".npz", ".tsv")

# Contractions split as the English treebanks split them (do n't, it 's), then words, numbers, and single marks.
_TOKEN = re.compile(
    r"""https?://\S*[\w/] | [\w.+-]+@[\w-]+\.[\w.-]*\w
      | \d+(?:[.,:]\d+)* | (?:[^\W\d_]\.){2,}
      | \w+?(?=n['\u2019]t\b) | n['\u2019]t\b | ['\u2019](?:s|re|ve|ll|d|m)\b
      | [^\W\d_]+ | \w+ | \.{2,} | [^\w\s]""",
    re.VERBOSE | re.IGNORECASE,
)


def read(path: str | PathLike[str], label: str | None = None) -> list[Tagged] | Frames | list[Pair]:
    """A labelled file: `.conllu` gives sentences, `.ts` and `.npz` frames, `.tsv` pairs; `label` belongs to `.npz`.

    Whatever cannot be read raises a DataError.
    """
    suffix = _suffix(path, SUFFIXES)
    if suffix == ".npz":
        return read_npz(path, label)
    if label is not None:
        raise DataError(path, f"--label names an array of an .npz file; a {suffix} file holds its labels: leave it out")
    if suffix == ".conllu":
        return read_conllu(path)
    return read_ts(path) if suffix == ".ts" else read_tsv(path)


def read_frames(path: str | PathLike[str]) -> list[NDArray[np.float32]]:
    """The sequences of a `.ts` or `.npz` file, each (n_i, d), whether it has labels or not."""
    if _suffix(path, (".ts", ".npz")) == ".ts":
        return read_ts(path, labelled=False).sequences
    return read_npz(path, None, labelled=False).sequences


def read_texts(path: str | PathLike[str]) -> list[str]:
    """The lines of a text file that are not empty, one input for the tagger or the translator each."""
    return [line for line in read_lines(path) if line.strip()]


def tokenise(text: str) -> tuple[str, ...]:
    """Tokens of an English sentence: words, numbers, punctuation marks; `don't` is `do`, `n't`."""
    return tuple(_TOKEN.findall(text))


def sha256(path: str | PathLike[str]) -> str:
    """The file's checksum in hexadecimal."""
    return hashlib.sha256(read_bytes(path)).hexdigest()


def _suffix(path: str | PathLike[str], known: tuple[str, ...]) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in known and not Path(path).is_dir():  # a directory gets the reader's own complaint
        raise DataError(path, f"unknown suffix {suffix!r}; expected one of {' '.join(known)}")
    return suffix
