"""Where the boxes and lines of a directed acyclic graph go: a layered layout, as Sugiyama et al. 1981 described it.

Boxes stand in ranks, from the top down; every line runs downwards. A line that passes a rank gets a slot of its own
there (a dummy point), as wide as nothing but kept clear of the boxes. Curves live in the gaps between the ranks alone,
so no line can cross a box.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

MARGIN = 16.0
BESIDE_BOX, BESIDE_LINE = 20.0, 14.0  # free space between boxes, and between a line and what stands beside it
GAP, STEEPNESS = 34.0, 0.08  # between ranks: at least, and more of it where lines run far to the side
PORT = 18.0  # between lines that arrive at one box
SWEEPS = 24


@dataclass(frozen=True)
class Box:
    x: float  # of its left edge
    y: float  # of its upper edge
    width: float
    height: float


@dataclass(frozen=True)
class Line:
    """A piece of a line from (x0, y0) down to (x1, y1): straight if x0 == x1, else an S with upright ends."""

    x0: float
    y0: float
    x1: float
    y1: float
    arrow: bool = False  # whether it ends in a head


@dataclass(frozen=True)
class Layout:
    """Boxes in the order they were given in; lines[i]: the pieces of all lines that leave box i."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    lines: tuple[tuple[Line, ...], ...]


def layout(sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> Layout:
    """Place boxes of the given sizes (width, height), joined by edges (from, to) that make no circle.

    Several edges between the same two boxes are drawn as one line, and long lines from one box share their way.
    ValueError for a circle.

    >>> placed = layout([(40, 20), (60, 20)], [(0, 1)])
    >>> placed.boxes[0].y < placed.boxes[1].y
    True
    """
    pairs = sorted(set(edges))
    ranks = _ranks(len(sizes), pairs)
    points = _Points(sizes, ranks, pairs)
    rows = _order(points)
    x = _horizontal(points, rows)
    return _draw(points, rows, x)


def _ranks(n: int, pairs: Sequence[tuple[int, int]]) -> list[int]:
    """A rank for each box, below all that lead to it; sources stand as close to what they lead to as they can."""
    below: list[list[int]] = [[] for _ in range(n)]
    above: list[list[int]] = [[] for _ in range(n)]
    for a, b in pairs:
        below[a].append(b)
        above[b].append(a)
    missing = [len(a) for a in above]
    order = [i for i in range(n) if not missing[i]]
    for i in order:  # grows while it is read
        for j in below[i]:
            missing[j] -= 1
            if not missing[j]:
                order.append(j)
    if len(order) < n:
        raise ValueError("these edges go round in a circle: a layered layout needs a graph without one")
    ranks = [0] * n
    for i in order:
        ranks[i] = max((ranks[a] + 1 for a in above[i]), default=0)
    for i in reversed(order):
        if below[i] and len(above[i]) <= len(below[i]):
            ranks[i] = min(ranks[b] for b in below[i]) - 1
    first = min(ranks, default=0)
    return [rank - first for rank in ranks]


class _Points:
    """Boxes (numbered from 0) and after them the dummy points, with the links between neighbouring ranks."""

    def __init__(self, sizes: Sequence[tuple[float, float]], ranks: Sequence[int], pairs: Sequence[tuple[int, int]]):
        self.sizes = list(sizes)
        self.n_boxes = len(sizes)
        self.rank = list(ranks)
        self.source = list(range(len(sizes)))  # the box whose line a dummy point belongs to
        self.above: list[list[int]] = [[] for _ in sizes]
        self.below: list[list[int]] = [[] for _ in sizes]
        ways: dict[tuple[int, int], int] = {}
        for a, b in pairs:
            last = a
            for rank in range(ranks[a] + 1, ranks[b]):
                if (a, rank) not in ways:
                    ways[a, rank] = self._dummy(a, rank)
                    self._link(last, ways[a, rank])
                last = ways[a, rank]
            self._link(last, b)

    def _dummy(self, source: int, rank: int) -> int:
        self.sizes.append((0.0, 0.0))
        self.rank.append(rank)
        self.source.append(source)
        self.above.append([])
        self.below.append([])
        return len(self.rank) - 1

    def _link(self, a: int, b: int) -> None:
        self.below[a].append(b)
        self.above[b].append(a)

    def is_dummy(self, i: int) -> bool:
        return i >= self.n_boxes

    def weight(self, a: int, b: int) -> float:
        """How much a link wants to be upright: those of long lines most of all, those of lone sources least."""
        if self.is_dummy(a) or self.is_dummy(b):
            return 8.0
        return 1.0 if not self.above[a] else 3.0

    def apart(self, left: int, right: int) -> float:
        """The least distance between the middles of two neighbours in a rank."""
        free = BESIDE_LINE if self.is_dummy(left) or self.is_dummy(right) else BESIDE_BOX
        return (self.sizes[left][0] + self.sizes[right][0]) / 2 + free


# --- the order within ranks --------------------------------------------------------------------------------------


def _order(points: _Points) -> list[list[int]]:
    """Each rank from left to right, with few crossings: sweeps down and up, by the barycentre of the neighbours."""
    rows: list[list[int]] = [[] for _ in range(max(points.rank, default=-1) + 1)]
    for i in _depth_first(points):
        rows[points.rank[i]].append(i)
    best, fewest, idle = rows, _crossings(points, rows), 0
    for sweep in range(SWEEPS):
        if not fewest or idle == 8:
            break
        rows = _sweep(points, rows, down=sweep % 2 == 0, turn_ties=sweep % 4 >= 2)
        count = _crossings(points, rows)
        idle += 1
        if count < fewest:
            best, fewest, idle = rows, count, 0
    return best


def _depth_first(points: _Points) -> list[int]:
    """All points, from the sinks upwards, so that what leads to one box starts side by side."""
    seen: dict[int, None] = {}
    stack = [i for i in reversed(range(len(points.rank))) if not points.below[i]]
    while stack:
        i = stack.pop()
        if i not in seen:
            seen[i] = None
            stack += reversed(points.above[i])
    return list(seen)


def _sweep(points: _Points, rows: Sequence[Sequence[int]], down: bool, turn_ties: bool) -> list[list[int]]:
    """Order each rank by the barycentres in the one before it; turning ties round leads out of ruts."""
    place = {i: float(p) for row in rows for p, i in enumerate(row)}
    neighbours = points.above if down else points.below
    result = [list(row) for row in rows]
    for r in range(len(rows)) if down else reversed(range(len(rows))):
        wanted = {i: _mean([place[j] for j in neighbours[i]], place[i]) for i in result[r]}
        if turn_ties:
            result[r].reverse()
        result[r].sort(key=wanted.__getitem__)
        place.update((i, float(p)) for p, i in enumerate(result[r]))
    return result


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _crossings(points: _Points, rows: Sequence[Sequence[int]]) -> int:
    count = 0
    for upper, lower in pairwise(rows):
        place = {i: p for p, i in enumerate(lower)}
        ends: list[int] = []  # of the links to the left of the present one, sorted
        for i in upper:
            mine = sorted(place[j] for j in points.below[i])
            count += sum(len(ends) - bisect_right(ends, p) for p in mine)
            for p in mine:
                insort(ends, p)
    return count


# --- coordinates -------------------------------------------------------------------------------------------------


def _horizontal(points: _Points, rows: Sequence[Sequence[int]]) -> list[float]:
    """The middle of each point: as near to its neighbours' as those beside it allow."""
    x = [0.0] * len(points.rank)
    for row in rows:
        for left, right in pairwise(row):
            x[right] = x[left] + points.apart(left, right)
        middle = (x[row[0]] + x[row[-1]]) / 2
        for i in row:
            x[i] -= middle
    for sweep in range(SWEEPS):
        down, both = sweep % 2 == 0, sweep >= SWEEPS // 2
        for row in rows if down else reversed(rows):
            _settle(points, row, x, above=down or both, below=not down or both)
    _straighten(points, rows, x)
    return x


def _settle(points: _Points, row: Sequence[int], x: list[float], above: bool, below: bool) -> None:
    """Move a rank to where its links would be upright, as far as the least distances allow (in least squares)."""
    wanted, weights, offsets = [], [], [0.0]
    for i in row:
        pulls = [(points.weight(j, i), x[j]) for j in points.above[i]] if above else []
        pulls += [(points.weight(i, j), x[j]) for j in points.below[i]] if below else []
        pulls = pulls or [(0.1, x[i])]
        weight = sum(w for w, _ in pulls)
        weights.append(weight)
        wanted.append(sum(w * at for w, at in pulls) / weight)
    for left, right in pairwise(row):
        offsets.append(offsets[-1] + points.apart(left, right))
    free = _increasing([at - offset for at, offset in zip(wanted, offsets)], weights)
    for i, at, offset in zip(row, free, offsets):
        x[i] = at + offset


def _increasing(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The sequence that never falls and is nearest to the values: pooling of adjacent violators."""
    pools: list[tuple[float, float, int]] = []  # mean, weight, how many
    for value, weight in zip(values, weights):
        pool = value, weight, 1
        while pools and pools[-1][0] > pool[0]:
            mean, w, n = pools.pop()
            total = w + pool[1]
            pool = (mean * w + pool[0] * pool[1]) / total, total, n + pool[2]
        pools.append(pool)
    return [mean for mean, _, n in pools for _ in range(n)]


def _straighten(points: _Points, rows: Sequence[Sequence[int]], x: list[float]) -> None:
    """Set each chain of points upright, as far down at a time as those beside it allow: least squares make slopes."""
    left = {b: a for row in rows for a, b in pairwise(row)}
    right = {a: b for row in rows for a, b in pairwise(row)}
    for chain in _chains(points):
        piece: list[int] = []
        low, high = -math.inf, math.inf
        for i in chain:
            lowest = x[left[i]] + points.apart(left[i], i) if i in left else -math.inf
            highest = x[right[i]] - points.apart(i, right[i]) if i in right else math.inf
            if max(low, lowest) > min(high, highest):
                _set_upright(piece, low, high, x)
                piece, low, high = [], -math.inf, math.inf
            piece.append(i)
            low, high = max(low, lowest), min(high, highest)
        _set_upright(piece, low, high, x)


def _set_upright(piece: Sequence[int], low: float, high: float, x: list[float]) -> None:
    wanted = sum(x[i] for i in piece) / max(len(piece), 1)
    for i in piece:
        x[i] = min(max(wanted, low), high)


def _chains(points: _Points) -> list[list[int]]:
    """Points that follow each other with nothing else between: the long lines first, then boxes."""
    following: dict[int, int] = {}
    for i in range(len(points.rank)):
        for j in points.below[i]:
            through = [k for k in points.above[j] if points.is_dummy(k) or points.above[k]]
            alone = len(points.below[i]) == 1 and through == [i] and not points.is_dummy(i)
            if (points.is_dummy(i) and points.is_dummy(j)) or (alone and not points.is_dummy(j)):
                following[i] = j
    inner = set(following.values())
    chains = []
    for first in sorted(following.keys() - inner, key=lambda i: (not points.is_dummy(i), i)):
        chain = [first]
        while chain[-1] in following:
            chain.append(following[chain[-1]])
        chains.append(chain)
    return chains


# --- lines -------------------------------------------------------------------------------------------------------


def _draw(points: _Points, rows: Sequence[Sequence[int]], x: list[float]) -> Layout:
    left = min((at - points.sizes[i][0] / 2 for i, at in enumerate(x)), default=0.0) - MARGIN
    x = [round(at - left, 1) for at in x]
    ports = _ports(points, x)
    tops, bottoms = _bands(points, rows, x)
    boxes = []
    for i, (width, height) in enumerate(points.sizes[: points.n_boxes]):
        boxes.append(Box(round(x[i] - width / 2, 1), tops[points.rank[i]], width, height))
    lines: list[list[Line]] = [[] for _ in boxes]
    for i, rank in enumerate(points.rank):
        mine = lines[points.source[i]]
        start = tops[rank] if points.is_dummy(i) else tops[rank] + points.sizes[i][1]
        if points.below[i] and start < bottoms[rank]:
            mine.append(Line(x[i], start, x[i], bottoms[rank]))
        for j in points.below[i]:
            mine.append(Line(x[i], bottoms[rank], ports.get((i, j), x[j]), tops[rank + 1], not points.is_dummy(j)))
    width = max((box.x + box.width for box in boxes), default=0.0)
    width = max([width, *x]) + MARGIN
    height = (bottoms[-1] if bottoms else 0.0) + MARGIN
    return Layout(round(width, 1), round(height, 1), tuple(boxes), tuple(map(tuple, lines)))


def _ports(points: _Points, x: Sequence[float]) -> dict[tuple[int, int], float]:
    """Where along its upper edge each line arrives at a box: side by side, in the order in which they come."""
    ports = {}
    for i in range(points.n_boxes):
        above = sorted(points.above[i], key=lambda j: (x[j], j))
        room = max(points.sizes[i][0] - PORT, 0.0)
        step = min(PORT, room / max(len(above) - 1, 1))
        for k, j in enumerate(above):
            ports[j, i] = round(x[i] + (k - (len(above) - 1) / 2) * step, 1)
    return ports


def _bands(points: _Points, rows: Sequence[Sequence[int]], x: Sequence[float]) -> tuple[list[float], list[float]]:
    """The upper and lower end of every rank."""
    tops, bottoms = [], []
    y = MARGIN
    for row in rows:
        tops.append(round(y, 1))
        bottoms.append(round(y + max(points.sizes[i][1] for i in row), 1))
        aside = max((abs(x[i] - x[j]) for i in row for j in points.below[i]), default=0.0)
        y = bottoms[-1] + min(GAP + STEEPNESS * aside, 4 * GAP)
    return tops, bottoms
