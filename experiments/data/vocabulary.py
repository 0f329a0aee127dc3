"""Symbols and their integer ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

SPECIALS = ("pad", "unk", "bos", "eos")


class Vocabulary:
    """Ids for symbols: the specials' first, in the order given, then the symbols'.

    Specials are known by name (`pad`, `unk`, `bos`, `eos`) and never mistaken for a symbol that looks like one.
    With `pad` first, 0 is padding. ValueError for a symbol twice or an unknown special.
    """

    def __init__(self, symbols: Iterable[str], specials: Sequence[str] = ()) -> None:
        self.specials = tuple(specials)
        self.symbols = tuple(symbols)
        for name in self.specials:
            if name not in SPECIALS:
                raise ValueError(f"unknown special {name!r}; expected some of {', '.join(SPECIALS)}")
        for kind in (self.specials, self.symbols):
            twice = [symbol for symbol, count in Counter(kind).items() if count > 1]
            if twice:
                raise ValueError(f"symbols must differ, but {twice[0]!r} stands there twice")
        self._ids = {symbol: index for index, symbol in enumerate(self.symbols, start=len(self.specials))}

    @classmethod
    def from_counts(
        cls, symbols: Iterable[str] | Mapping[str, int], min_count: int = 1, specials: Sequence[str] = ()
    ) -> Vocabulary:
        """From symbols, or their counts: those seen min_count times or more, the most frequent first, ties by name."""
        counts = Counter(symbols)
        kept = sorted((-count, symbol) for symbol, count in counts.items() if count >= min_count)
        return cls((symbol for _, symbol in kept), specials)

    def __len__(self) -> int:
        return len(self.specials) + len(self.symbols)

    def __contains__(self, symbol: object) -> bool:
        return symbol in self._ids

    def __getitem__(self, symbol: str) -> int:
        """The symbol's id, else that of `unk`; without `unk` a KeyError that names the symbol."""
        if symbol in self._ids:
            return self._ids[symbol]
        if "unk" in self.specials:
            return self.unk
        raise KeyError(f"unknown symbol {symbol!r}; the vocabulary has {len(self.symbols)} symbols and no 'unk'")

    def encode(self, symbols: Iterable[str]) -> NDArray[np.int64]:
        """Ids (n,) of n symbols."""
        return np.array([self[symbol] for symbol in symbols], dtype=np.int64)

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Symbols of ids; specials are written `<name>`. IndexError for an id that does not exist."""
        return [self._spell(int(index)) for index in ids]

    def _spell(self, index: int) -> str:
        if not 0 <= index < len(self):
            raise IndexError(f"expected an id from 0 to {len(self) - 1}, got {index}")
        first = len(self.specials)
        return f"<{self.specials[index]}>" if index < first else self.symbols[index - first]

    def _special(self, name: str) -> int:
        if name not in self.specials:
            raise KeyError(f"the vocabulary has no special {name!r}; it has {', '.join(self.specials) or 'none'}")
        return self.specials.index(name)

    @property
    def pad(self) -> int:
        """The id of padding; KeyError if there is none, as for the others."""
        return self._special("pad")

    @property
    def unk(self) -> int:
        """The id of what is not in the vocabulary."""
        return self._special("unk")

    @property
    def bos(self) -> int:
        """The id that begins a sequence."""
        return self._special("bos")

    @property
    def eos(self) -> int:
        """The id that ends a sequence."""
        return self._special("eos")

    def to_json(self) -> dict[str, Any]:
        """Plain data from which `from_json` makes an equal vocabulary."""
        return {"specials": list(self.specials), "symbols": list(self.symbols)}

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Vocabulary:
        """The vocabulary that `to_json` described."""
        return cls(state["symbols"], state["specials"])
