"""Turning next-symbol probabilities into sequences: greedy and beam search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Step = Callable[[np.ndarray], np.ndarray]


def greedy(step: Step, bos: Any, eos: int, max_length: int) -> list[np.ndarray]:
    """Take the most probable symbol at each step until every row has ended with `eos` or is max_length long.

    step: ids (batch, length) -> log-probabilities (batch, vocabulary) of the next symbol; bos: start ids (batch,).
    Returns an array of ids for each row, without bos and eos.

    >>> next_symbol = lambda ids: np.log(np.eye(4)[(ids[:, -1] + 1) % 4] + 1e-9)
    >>> greedy(next_symbol, [0, 2], eos=3, max_length=5)
    [array([1, 2]), array([], dtype=int64)]
    """
    ids = _start(bos)
    ended = np.zeros(len(ids), bool)
    for _ in range(max_length):
        if ended.all():
            break
        ids = np.concatenate([ids, step(ids).argmax(-1)[:, None]], 1)
        ended |= ids[:, -1] == eos
    return [_until(row[1:], eos) for row in ids]


def beam_search(
    step: Step, bos: Any, eos: int, beam: int, max_length: int, length_penalty: float = 0.0
) -> list[np.ndarray]:
    """The sequence with the greatest log-probability / length ** length_penalty that `beam` hypotheses a row find.

    The length counts the generated symbols, `eos` included. A row stops when no hypothesis still alive could overtake
    its best finished one. step, the other arguments and the result are as in `greedy`, which beam 1 equals; the rows
    that step is given are the hypotheses of the first start symbol, then those of the second, and so on.
    step.reorder(rows), where it exists, is called before the next step with the row that each row continues.
    """
    if beam < 1:
        raise ValueError(f"a beam has at least one hypothesis, and {beam} was given")
    ids = _start(bos)
    batch = len(ids)
    if batch == 0:
        return []
    alive = np.zeros((batch, 1))  # log-probabilities; -inf: an empty place of the beam
    best: list[tuple[float, np.ndarray]] = [(-np.inf, ids[b, 1:]) for b in range(batch)]

    def finish(b: int, total: float, symbols: np.ndarray) -> None:
        score = total / len(symbols) ** length_penalty
        if score > best[b][0]:
            best[b] = (score, symbols)

    for length in range(1, max_length + 1):
        logp = np.asarray(step(ids))
        width, vocabulary = alive.shape[1], logp.shape[-1]
        totals = (alive.reshape(-1, 1) + logp).reshape(batch, width * vocabulary)
        chosen = np.argsort(-totals, axis=1, kind="stable")[:, :beam]
        alive = np.take_along_axis(totals, chosen, 1)
        rows = (np.arange(batch)[:, None] * width + chosen // vocabulary).ravel()
        ids = np.concatenate([ids[rows], (chosen % vocabulary).reshape(-1, 1)], 1)
        ended = (ids[:, -1] == eos).reshape(alive.shape) | (length == max_length)
        for b, place in zip(*np.nonzero(ended & (alive > -np.inf))):
            finish(b, alive[b, place], ids[b * alive.shape[1] + place, 1:])
        alive = np.where(ended, -np.inf, alive)
        # Log-probabilities only fall, so the most that a hypothesis can still reach is its own, at the greatest length.
        bound = alive.max(1) / (max_length if length_penalty > 0 else length + 1) ** length_penalty
        alive[bound <= [score for score, _ in best]] = -np.inf
        if (alive == -np.inf).all():
            break
        if hasattr(step, "reorder"):
            step.reorder(rows)
    return [_until(symbols, eos) for _, symbols in best]


def _start(bos: Any) -> np.ndarray:
    """(batch, 1)"""
    ids = np.asarray(bos).reshape(-1, 1)
    if ids.size and ids.dtype.kind not in "iu":
        raise TypeError(f"start symbols are integers, and these are of dtype {ids.dtype}")
    return ids.astype(np.int64)


def _until(symbols: np.ndarray, eos: int) -> np.ndarray:
    ends = np.flatnonzero(symbols == eos)
    return symbols[: ends[0]] if len(ends) else symbols
