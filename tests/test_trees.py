"""Nested lists, tuples and dicts."""

from collections import OrderedDict, namedtuple

import pytest

from minigrad.trees import flatten

Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("tree", "leaves"),
    [
        (1, [1]),
        (None, [None]),
        ([], []),
        ((), []),
        ({}, []),
        ([1, [2, (3,)], {"a": 4, "b": []}], [1, 2, 3, 4]),
        ({"b": 1, "a": 2}, [1, 2]),
        (Point(1, [2]), [1, 2]),
        (OrderedDict(z=1, a={"q": 2}), [1, 2]),
    ],
)
def test_leaves_come_in_order_and_go_back(tree, leaves):
    found, rebuild = flatten(tree)
    assert found == leaves
    assert rebuild(found) == tree
    doubled = rebuild([(x,) for x in found])
    assert flatten(doubled)[0] == found


def test_types_of_containers_survive():
    _, rebuild = flatten([Point(1, 2), (3,)])
    back = rebuild([5, 6, 7])
    assert back == [Point(5, 6), (7,)]
    assert type(back[0]) is Point
    assert type(back[1]) is tuple


def test_the_tree_itself_stays_as_it_is():
    tree = {"a": [1, 2]}
    flatten(tree)[1]([3, 4])
    assert tree == {"a": [1, 2]}
