"""From examples of many lengths to padded batches, and from one data set to several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def pad(arrays: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Arrays (n_i, ...) as one (batch, n, ...) with zeros behind each, and which rows are real, (batch, n).

    ValueError for no arrays, or if they differ in anything but their length.
    """
    if not arrays:
        raise ValueError("expected at least one array to pad, got none")
    tails = {array.shape[1:] for array in arrays}
    if len(tails) > 1:
        raise ValueError(f"arrays may differ in length only, got rows of shapes {sorted(tails)}")
    lengths = np.array([len(array) for array in arrays])
    padded = np.zeros((len(arrays), lengths.max(), *tails.pop()), dtype=np.result_type(*arrays))
    for row, array in zip(padded, arrays, strict=True):
        row[: len(array)] = array
    return padded, np.arange(padded.shape[1]) < lengths[:, None]


def unless_full(valid: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    """`valid`, or None where every vector is real: then nothing need be hidden."""
    return None if valid.all() else valid


def buckets(
    lengths: ArrayLike, *, max_tokens: int | None = None, batch_size: int | None = None, rng: np.random.Generator
) -> list[NDArray[np.intp]]:
    """Index arrays of one epoch's batches: every item once, similar lengths together, the order of batches random.

    A batch has at most batch_size items and, padded, at most max_tokens vectors; an item longer than that is a batch
    of its own. Who shares a batch with whom changes from call to call. ValueError without a limit.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    limits = [limit for limit in (max_tokens, batch_size) if limit is not None]
    if not limits or min(limits) < 1:
        raise ValueError(f"expected a positive max_tokens or batch_size, got {max_tokens} and {batch_size}")
    # Lengths are shaken by one before they are sorted, so that the borders between batches move.
    order = np.argsort(sizes + rng.uniform(-1, 1, size=sizes.shape), kind="stable")
    batches: list[list[int]] = []
    longest = 0
    for index in order.tolist():
        longest = max(longest, int(sizes[index]))
        if batches and _fits(len(batches[-1]) + 1, longest, max_tokens, batch_size):
            batches[-1].append(index)
        else:
            batches.append([index])
            longest = int(sizes[index])
    return [np.array(batches[i], dtype=np.intp) for i in rng.permutation(len(batches))]


def _fits(count: int, longest: int, max_tokens: int | None, batch_size: int | None) -> bool:
    return (batch_size is None or count <= batch_size) and (max_tokens is None or count * longest <= max_tokens)


def split(n: int, fraction: float, rng: np.random.Generator) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Indices 0 to n - 1 as (most, a random fraction), each ascending, neither empty. ValueError if that cannot be."""
    if n < 2 or not 0 < fraction < 1:
        raise ValueError(f"expected at least two items and a fraction between 0 and 1, got {n} and {fraction}")
    held = min(max(round(n * fraction), 1), n - 1)
    order = rng.permutation(n)
    return np.sort(order[held:]), np.sort(order[:held])


def stratified_folds(labels: Sequence[str], k: int, rng: np.random.Generator) -> list[NDArray[np.intp]]:
    """k disjoint index arrays, each ascending; a class's items, and all items, are dealt evenly to within one.

    ValueError unless 2 <= k <= the number of items.
    """
    if len(labels) < 2:
        raise ValueError(f"expected at least two items to cut into folds, got {len(labels)}")
    if not 2 <= k <= len(labels):
        raise ValueError(f"expected from 2 to {len(labels)} folds, as many as there are items, got {k}")
    classes = np.unique(np.asarray(labels), return_inverse=True)[1]
    shuffled = rng.permutation(len(labels))
    # Dealt like cards, class after class, so that what is left of one class is made up for by the next.
    dealt = shuffled[np.argsort(classes[shuffled], kind="stable")]
    return [np.sort(dealt[fold::k]) for fold in range(k)]


def by_length(lengths: Sequence[int], batch_size: int) -> list[NDArray[np.intp]]:
    """Index arrays of batches of similar lengths, shortest first: for labelling, where order does not matter."""
    order = np.argsort(lengths, kind="stable")
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
