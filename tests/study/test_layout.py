"""Where boxes and lines go: nothing overlaps, no line crosses a box, everything runs down."""

import itertools

import numpy as np
import pytest

from minigrad.study.layout import _increasing, layout


def random_graph(seed, n):
    rng = np.random.default_rng(seed)
    sizes = [(float(w), float(h)) for w, h in zip(rng.integers(20, 300, n), rng.integers(20, 120, n))]
    names = rng.permutation(n)  # so that edges do not run from lower to higher numbers alone
    edges = []
    for j in range(1, n):
        for i in rng.integers(0, j, rng.integers(0, 4)):
            edges.append((int(names[i]), int(names[j])))
    return sizes, edges


def curve(line, t):
    """The point at t of the S that an upright-ended cubic Bezier curve makes."""
    half = (line.y0 + line.y1) / 2
    weights = [(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3]
    xs, ys = (line.x0, line.x0, line.x1, line.x1), (line.y0, half, half, line.y1)
    return sum(w * x for w, x in zip(weights, xs)), sum(w * y for w, y in zip(weights, ys))


def assert_apart(boxes, space):
    for a, b in itertools.combinations(boxes, 2):
        beside = max(a.x - b.x - b.width, b.x - a.x - a.width)
        above = max(a.y - b.y - b.height, b.y - a.y - a.height)
        assert max(beside, above) >= space, (a, b)


def assert_lines_keep_clear(placed, space=3):
    for pieces in placed.lines:
        for line in pieces:
            for t in np.linspace(0, 1, 41):
                x, y = curve(line, t)
                assert -0.1 <= x <= placed.width + 0.1
                assert -0.1 <= y <= placed.height + 0.1
                for box in placed.boxes:
                    across = box.x - space < x < box.x + box.width + space
                    assert not (across and box.y + 0.2 < y < box.y + box.height - 0.2), (line, box)


def reached(placed, i):
    """The boxes at whose upper edge a head of box i's lines stands, following the pieces from its lower edge."""
    box = placed.boxes[i]
    points = {(round(box.x + box.width / 2, 1), round(box.y + box.height, 1))}
    found = set()
    for line in sorted(placed.lines[i], key=lambda p: (p.y0, p.y1)):
        assert any(abs(line.x0 - x) < 0.11 and abs(line.y0 - y) < 0.11 for x, y in points), "a piece hangs in the air"
        points.add((line.x1, line.y1))
        if line.arrow:
            [j] = [
                j for j, b in enumerate(placed.boxes) if b.x <= line.x1 <= b.x + b.width and abs(b.y - line.y1) < 0.11
            ]
            found.add(j)
    return found


@pytest.mark.parametrize("seed", range(12))
def test_boxes_are_apart_and_lines_join_just_the_boxes_of_each_edge(seed):
    sizes, edges = random_graph(seed, 3 * seed + 2)
    placed = layout(sizes, edges)
    assert [(box.width, box.height) for box in placed.boxes] == sizes
    assert_apart(placed.boxes, 15)
    assert_lines_keep_clear(placed)
    for i in range(len(sizes)):
        assert reached(placed, i) == {b for a, b in edges if a == i}
    for a, b in edges:
        assert placed.boxes[a].y + placed.boxes[a].height < placed.boxes[b].y
    for box in placed.boxes:
        assert box.x >= 0
        assert box.y >= 0
        assert box.x + box.width <= placed.width
        assert box.y + box.height <= placed.height


def test_lines_that_need_not_cross_do_not():
    # two ladders that are given criss-cross: 0 -> 3 -> 4, 1 -> 2 -> 5
    placed = layout([(50, 20)] * 6, [(0, 3), (1, 2), (3, 4), (2, 5)])
    x = [box.x for box in placed.boxes]
    assert np.sign(x[0] - x[1]) == np.sign(x[3] - x[2]) == np.sign(x[4] - x[5])


def crossings(upper, lower, edges):
    """How many pairs of edges cross when the upper and the lower boxes stand in these orders."""
    ends = [(upper.index(a), lower.index(b)) for a, b in edges]
    return sum((p[0] - q[0]) * (p[1] - q[1]) < 0 for p, q in itertools.combinations(ends, 2))


def test_crossings_are_nearly_as_few_as_can_be():
    found, fewest = 0, 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        pairs = list(itertools.product(range(4), range(4, 8)))
        edges = [pairs[k] for k in rng.choice(len(pairs), 8, replace=False)]
        x = [box.x for box in layout([(40, 20)] * 8, edges).boxes]
        found += crossings(sorted(range(4), key=x.__getitem__), sorted(range(4, 8), key=x.__getitem__), edges)
        orders = itertools.product(itertools.permutations(range(4)), itertools.permutations(range(4, 8)))
        fewest += min(crossings(upper, lower, edges) for upper, lower in orders)
    assert fewest > 20
    assert found <= 1.2 * fewest


def test_a_chain_stands_upright_and_a_long_line_passes_beside_it():
    n = 8
    sizes = [(60.0 + 40 * (i % 3), 30.0) for i in range(n)]
    placed = layout(sizes, [*((i, i + 1) for i in range(n - 1)), (0, n - 1), (2, n - 1)])
    middles = [box.x + box.width / 2 for box in placed.boxes]
    assert np.ptp(middles[3:-1]) < 0.2
    inner = placed.boxes[1:-1]
    passing = {p.x0 for p in placed.lines[0] if p.x0 == p.x1 and p.y0 >= inner[0].y and p.y1 <= inner[-1].y + 30}
    assert len(passing) == 1
    [x] = passing
    assert not any(box.x <= x <= box.x + box.width for box in inner)


def test_sources_stand_right_above_what_they_lead_to():
    placed = layout([(40, 20)] * 5, [(0, 1), (1, 2), (2, 3), (4, 3)])
    assert placed.boxes[4].y == placed.boxes[2].y


def test_lines_from_one_box_share_their_way():
    n = 40
    placed = layout([(40, 20)] * (n + 1), [*((i, i + 1) for i in range(1, n)), *((0, i) for i in range(1, n + 1))])
    assert len(placed.lines[0]) < 3 * n


def test_edges_twice_are_one_line():
    placed = layout([(40, 20)] * 2, [(0, 1), (0, 1)])
    assert sum(line.arrow for line in placed.lines[0]) == 1


def test_nothing_and_one():
    assert layout([], []).boxes == ()
    placed = layout([(40, 20)], [])
    assert (placed.width, placed.height) == (72, 52)


@pytest.mark.parametrize("edges", [[(0, 0)], [(0, 1), (1, 0)], [(2, 0), (0, 1), (1, 2)]])
def test_a_circle_is_an_error(edges):
    with pytest.raises(ValueError, match="circle"):
        layout([(1, 1)] * 3, edges)


def test_the_order_of_edges_does_not_matter():
    sizes, edges = random_graph(5, 20)
    assert layout(sizes, edges) == layout(sizes, edges[::-1])


@pytest.mark.parametrize("seed", range(5))
def test_pooling_gives_the_nearest_sequence_that_never_falls(seed):
    rng = np.random.default_rng(seed)
    values, weights = rng.standard_normal(9), rng.uniform(0.1, 3, 9)

    def mean(j, k):
        return np.average(values[j : k + 1], weights=weights[j : k + 1])

    expected = [max(min(mean(j, k) for k in range(i, 9)) for j in range(i + 1)) for i in range(9)]
    np.testing.assert_allclose(_increasing(list(values), list(weights)), expected, rtol=1e-12)
