"""Train, dev and test: read, split off, folded."""

import hashlib

import numpy as np
import pytest

from experiments import splits
from experiments.data import speakers
from experiments.data.errors import DataError
from experiments.data.files import read
from experiments.data.ts import Frames
from experiments.settings import UsageError

KNOWN = {"": None, ".ts": None, ".npz": None}


def named(folder, suffix, *names):
    return {name: str(folder / f"{'train' if name == 'dev' else name}.{suffix}") for name in names}


def test_the_suffix_is_the_training_files(files):
    assert splits.suffix_of({}, KNOWN) == ""
    assert splits.suffix_of(named(files, "ts", "train", "test"), KNOWN) == ".ts"
    assert splits.suffix_of({"train": "LOUD.NPZ"}, KNOWN) == ".npz"


@pytest.mark.parametrize(
    ("given", "kind", "reason"),
    [
        ({"dev": "a.ts"}, UsageError, "--dev was given without --train"),
        ({"train": "a.csv"}, DataError, r"unknown suffix '.csv'; this scenario reads .ts, .npz"),
        ({"train": "a"}, DataError, "unknown suffix ''"),
        ({"train": "a.ts", "test": "b.npz"}, UsageError, "one kind.*a.ts, b.npz"),
        ({"train": "/"}, DataError, "is a directory"),
    ],
)
def test_what_does_not_fit_is_refused(given, kind, reason):
    with pytest.raises(kind, match=reason):
        splits.suffix_of(given, KNOWN)


def test_a_directory_with_a_suffix_is_a_directory(tmp_path):
    (tmp_path / "odd.xyz").mkdir()
    with pytest.raises(DataError, match="is a directory"):
        splits.suffix_of({"train": str(tmp_path / "odd.xyz")}, KNOWN)


def test_without_dev_a_seeded_tenth_of_train_is_dev(files):
    everything = read(files / "train.conllu")
    loaded = splits.load(named(files, "conllu", "train", "test"), None, seed=3)
    assert (len(loaded["train"]), len(loaded["dev"])) == (36, 4)
    assert sorted(map(repr, loaded["train"] + loaded["dev"])) == sorted(map(repr, everything))
    assert loaded["test"] == read(files / "test.conllu")
    assert splits.load(named(files, "conllu", "train"), None, seed=3)["dev"] == loaded["dev"]
    assert splits.load(named(files, "conllu", "train"), None, seed=4)["dev"] != loaded["dev"]


def test_a_dev_file_is_dev_and_train_stays_whole(files):
    given = {"train": str(files / "train.tsv"), "dev": str(files / "test.tsv")}
    loaded = splits.load(given, None, seed=0)
    assert loaded == {"train": read(files / "train.tsv"), "dev": read(files / "test.tsv")}


def test_one_example_is_not_split_but_may_train_with_a_dev_file(tmp_path, files):
    one = tmp_path / "one.tsv"
    one.write_text("ab\tx y\n")
    with pytest.raises(DataError, match="one example cannot be split"):
        splits.load({"train": str(one)}, None, seed=0)
    assert len(splits.load({"train": str(one), "dev": str(files / "test.tsv")}, None, seed=0)["train"]) == 1


@pytest.mark.parametrize("split", ["dev", "test"])
def test_frames_have_one_width_in_all_files(split, files, tmp_path):
    narrow = tmp_path / "narrow.npz"
    np.savez(narrow, frames=np.ones((3, 5)), lengths=[3], who=["Ben"])
    with pytest.raises(
        DataError, match=r"narrow\.npz: its frames have 5 dimensions, and those of the training file 12"
    ):
        splits.load({"train": str(files / "train.npz"), split: str(narrow)}, "who", seed=0)


def test_one_dimension_is_one_dimension(files, tmp_path):
    narrow = tmp_path / "narrow.npz"
    np.savez(narrow, frames=np.ones((3, 1)), lengths=[3], who=["Ben"])
    with pytest.raises(DataError, match="its frames have 1 dimension, and"):
        splits.load({"train": str(files / "train.npz"), "test": str(narrow)}, "who", seed=0)


def test_folds_test_every_sequence_once_on_what_the_others_trained(files):
    data = read(files / "train.ts")
    found = splits.folds(named(files, "ts", "train"), None, 3, seed=0)
    tested = [sequence for fold in found for sequence in fold["test"].sequences]
    assert len(found) == 3
    assert sorted(s.tobytes() for s in tested) == sorted(s.tobytes() for s in data.sequences)
    for fold in found:
        assert splits.count(fold["train"]) + splits.count(fold["test"]) == splits.count(data)
        assert not {s.tobytes() for s in fold["train"].sequences} & {s.tobytes() for s in fold["test"].sequences}
        counts = [fold["test"].labels.count(name) for name in speakers.ORDERS]
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("k", [-1, 0, 1, 25])
def test_too_few_and_too_many_folds_are_refused(k, files):
    with pytest.raises(UsageError, match=f"--folds: expected from 2 to 24 folds.*got {k}"):
        splits.folds(named(files, "ts", "train"), None, k, seed=0)


def test_sentences_have_no_folds(files):
    with pytest.raises(UsageError, match="one label a sequence"):
        splits.folds(named(files, "conllu", "train"), None, 2, seed=0)


def test_subset_keeps_labels_with_their_sequences():
    frames = Frames([np.full((1, 1), i, np.float32) for i in range(4)], list("abcd"))
    some = splits.subset(frames, np.array([3, 1]))
    assert [s.item() for s in some.sequences] == [3, 1]
    assert some.labels == ["d", "b"]


def test_checksums_are_sha256(files):
    path = str(files / "train.npz")
    digest = hashlib.sha256((files / "train.npz").read_bytes()).hexdigest()
    assert splits.checksums({"train": path}) == {"train": {"path": path, "sha256": digest}}
