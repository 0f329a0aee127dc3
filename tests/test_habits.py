"""Attributes that other frameworks' tensors have: the error names what stands for them here."""

import copy
import re

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.habits import _HABITS


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("view", "t.reshape"),
        ("unsqueeze", "mg.expand_dims"),
        ("cpu", "leave it out"),
        ("add_", "t += x"),
        ("softmax", "mg.softmax(t)"),
        ("det", "mg.linalg.det(t)"),
        ("rfft", "mg.fft.rfft(t)"),
    ],
)
def test_a_missing_attribute_names_minigrads_way(name, wanted):
    for t in (mg.tensor(1.0), nn.Parameter(np.ones(2))):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'.*in minigrad: .*{re.escape(wanted)}"):
            getattr(t, name)


def test_others_are_just_missing():
    for name in ("no_such_thing", "_private", "getitem"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'$"):
            getattr(mg.tensor(1.0), name)
    assert not hasattr(mg.tensor(1.0), "view")
    assert copy.deepcopy(mg.tensor([1.0])).shape == (1,)


def test_no_habit_hides_an_attribute_and_every_name_that_a_hint_mentions_exists():
    t = mg.tensor([1.0, 2.0])
    for name, text in _HABITS.items():
        assert not hasattr(t, name)
        for path in re.findall(r"\bmg\.([\w.]+)\(", text):
            found = mg
            for part in path.split("."):
                found = getattr(found, part)
        for attribute in re.findall(r"(?<![\w.])t\.(\w+)", text):
            assert hasattr(t, attribute), text
