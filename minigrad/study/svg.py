"""Text in SVG: what may stand in it, and how wide it is."""

from __future__ import annotations

import unicodedata
from html import escape

# The width of a letter is that of the widest of these, so that text fits whichever of them there is.
FONT = "ui-monospace,'DejaVu Sans Mono','Liberation Mono',Menlo,Consolas,'Courier New',monospace"
ADVANCE = 0.62  # in font sizes


def text_width(text: str, size: float) -> float:
    """How wide a text is at most.

    >>> text_width("1234", 10) < text_width("模型四字", 10)
    True
    """
    return size * sum(map(_advance, text))


def _advance(character: str) -> float:
    if unicodedata.combining(character):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return 1.3
    return ADVANCE if ord(character) < 0x250 else 1.0


def escaped(text: str) -> str:
    """Text for an element or an attribute of XML.

    >>> escaped('a < "b"' + chr(0))
    'a &lt; &quot;b&quot;�'
    """
    return escape(printable(text))


def printable(text: str) -> str:
    """Text without the characters that XML forbids and no font shows."""
    hidden = ("Cc", "Cs", "Cn")  # control characters, halves of pairs, and what is no character
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in hidden else c for c in text)
