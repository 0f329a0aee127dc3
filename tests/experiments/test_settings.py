"""Hyperparameters: bounds, types, and the command line that mirrors them."""

import argparse
import json
import math
from dataclasses import asdict, fields

import pytest

from experiments.scenarios import TASKS
from experiments.settings import (
    PerVectorSettings,
    Seq2SeqSettings,
    Settings,
    SingleSettings,
    UsageError,
    add_options,
)

CLASSES = [PerVectorSettings, SingleSettings, Seq2SeqSettings]


def parse(cls, *words):
    parser = argparse.ArgumentParser()
    add_options(parser, cls())
    return vars(parser.parse_args([str(word) for word in words]))


@pytest.mark.parametrize("cls", CLASSES)
def test_the_command_line_has_every_field_and_gives_back_its_value(cls):
    for f in fields(cls):
        value = getattr(cls(), f.name)
        assert parse(cls, "--" + f.name.replace("_", "-"), value) == {f.name: value}


def test_what_is_not_given_is_absent():
    assert parse(PerVectorSettings) == {}


@pytest.mark.parametrize("text", ["true", "Yes", "1"])
def test_a_truth_is_spelt_in_words(text):
    assert parse(SingleSettings, "--deltas", text) == {"deltas": True}
    assert parse(SingleSettings, "--deltas", "no") == {"deltas": False}


@pytest.mark.parametrize("cls", CLASSES)
def test_json_gives_back_equal_settings(cls):
    assert cls(**json.loads(json.dumps(asdict(cls(lr=0.3, seed=7))))) == cls(lr=0.3, seed=7)


@pytest.mark.parametrize("task", TASKS.values())
def test_every_kind_of_data_has_defaults_of_the_scenario(task):
    assert "" in task.defaults
    assert all(type(preset) is task.settings_class for preset in task.defaults.values())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("epochs", -1),
        ("dim", 0),
        ("heads", 0),
        ("blocks", 10**6),
        ("neighbours", -1),
        ("seed", -1),
        ("seed", 2**63),
        ("lr", 0.0),
        ("lr", -1e-3),
        ("lr", math.nan),
        ("lr", math.inf),
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("average", 1.0),
        ("beta2", 1.0),
        ("label_smoothing", 1.5),
        ("warmup", -math.inf),
        ("weight_decay", -1.0),
        ("clip", 0.0),
        ("position_scale", math.nan),
        ("model", "transformer"),
        ("decay", ""),
        ("positions", "Relative"),
    ],
)
def test_a_value_out_of_bounds_is_refused_by_name(name, value):
    with pytest.raises(UsageError, match=f"--{name.replace('_', '-')} "):
        PerVectorSettings(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("dim", "64"), ("dim", 64.0), ("dim", True), ("lr", "1"), ("lr", None), ("model", 3), ("seed", [])],
)
def test_a_value_of_another_type_is_refused(name, value):
    with pytest.raises(UsageError, match=f"--{name} must be of type"):
        PerVectorSettings(**{name: value})


def test_bounds_that_lie_within_are_fine():
    Settings(epochs=1, dropout=0.0, label_smoothing=1.0, warmup=1.0, neighbours=0, weight_decay=0, seed=2**63 - 1)


def test_below_one_is_said_so():
    with pytest.raises(UsageError, match=r"at least 0 and below 1, and 1\.0 was given"):
        Settings(dropout=1.0)


def test_heads_divide_the_width_where_there_are_heads():
    with pytest.raises(UsageError, match="--heads 3 does not divide --dim 64"):
        Settings(heads=3)
    Settings(heads=3, model="fc")


def test_seq2seq_has_no_baselines():
    with pytest.raises(UsageError, match="--model is one of attention"):
        Seq2SeqSettings(model="window")
    with pytest.raises(UsageError, match="--positions"):
        Seq2SeqSettings(positions="relative")
