"""The .ts and .npz readers: arrays against hand-written ones, and what is said of malformed files."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from experiments.data.errors import DataError
from experiments.data.files import read, read_frames
from experiments.data.npz import read_npz
from experiments.data.ts import read_ts

HEADER = (
    "#made up\n@problemName x\n@timeStamps false\n@dimensions 2\n@equalLength false\n@classLabel true yes no\n@data\n"
)
CASES = "1,2,3:4,5,6:yes\n-1.5e0, 2:0,1: no\n"


def test_ts_gives_frames_by_channels(write):
    frames = read_ts(write("a.ts", HEADER + CASES))
    assert frames.labels == ["yes", "no"]
    assert [s.dtype for s in frames.sequences] == [np.float32] * 2
    np.testing.assert_array_equal(frames.sequences[0], [[1, 4], [2, 5], [3, 6]])
    np.testing.assert_array_equal(frames.sequences[1], [[-1.5, 0], [2, 1]])


def test_ts_header_keys_have_no_case_and_dimensions_may_be_left_out(write):
    loose = HEADER.replace("@dimensions 2\n", "").replace("classLabel", "CLASSLABEL").replace("@data", "@DATA")
    assert len(read_ts(write("a.ts", loose + CASES)).sequences) == 2
    univariate = "@univariate true\n@classLabel true a\n@data\n1,2:a\n"
    assert read_ts(write("b.ts", univariate)).sequences[0].shape == (2, 1)


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (HEADER + "1,2:3,nan:yes\n", 8, "channel 2: nan is not a finite"),
        (HEADER + CASES + "1,inf:3,4:yes\n", 10, "channel 1: inf is not a finite"),
        (HEADER + "1,1e39:3,4:yes\n", 8, "channel 1: 1e39 is not a finite float32"),
        (HEADER + "1,?:3,4:yes\n", 8, "channel 1: '\\?' is not a number; missing values"),
        (HEADER + "1,:3,4:yes\n", 8, "channel 1: '' is not a number"),
        (HEADER + "1,2:3,4:\n", 8, "label after the last ':' is missing"),
        (HEADER + "1,2:3,4:maybe\n", 8, "label 'maybe' is not among those of @classLabel: yes no"),
        (HEADER + "1,2:yes\n", 8, "expected 2 channels and a label between ':', got 1"),
        (HEADER + "1,2:1,2:1,2:yes\n", 8, "expected 2 channels and a label between ':', got 3"),
        (HEADER.replace("@dimensions 2\n", "") + CASES + "1:yes\n", 9, "expected 2 channels"),
        (HEADER + "1,2:3,4,5:yes\n", 8, "differ in length: 2 and 3"),
        (HEADER.replace("#made up", "@seriesLength 2") + CASES, 8, "expected @seriesLength 2 values a channel, got 3"),
        (HEADER.replace("dimensions 2", "dimensions two") + CASES, 4, "@dimensions needs one positive whole number"),
        (HEADER.replace("#made up", "@dimensions 2") + CASES, 4, "@dimensions stands there twice"),
        (HEADER.replace("timeStamps false", "timeStamps true") + CASES, 3, "timestamps are not supported"),
        (HEADER.replace("@classLabel true yes no\n", "") + CASES, None, "has no class labels"),
        (HEADER.replace("@data\n", "") + CASES, 7, "expected a header line"),
        (HEADER.replace("@data\n", ""), None, "has no line @data"),
        (HEADER, None, "has no case after @data"),
    ],
)
def test_ts_blames_the_line(write, content, line, words):
    path = write("bad.ts", content)
    with pytest.raises(DataError, match=words) as caught:
        read_ts(path)
    assert caught.value.line == line


def test_frames_for_prediction_need_no_labels(write):
    bare = HEADER.replace("true yes no", "false")
    expected = [[1, 3], [2, 4]]
    np.testing.assert_array_equal(read_frames(write("a.ts", bare + "1,2:3,4\n"))[0], expected)
    np.testing.assert_array_equal(read_frames(write("b.ts", HEADER + "1,2:3,4:?\n"))[0], expected)
    archive = save(frames=np.array(expected), lengths=[2])
    np.testing.assert_array_equal(read_frames(write("c.npz", archive))[0], expected)
    with pytest.raises(DataError, match=r"unknown suffix '.tsv'; expected one of .ts .npz"):
        read_frames(write("d.tsv", "a\tb"))


def test_ts_reads_the_japanese_vowels(shared):
    frames = read(shared("japanese_vowels/JapaneseVowels_TRAIN.ts"))
    lengths = [len(sequence) for sequence in frames.sequences]
    assert (len(lengths), min(lengths), max(lengths)) == (270, 7, 26)
    assert {label: frames.labels.count(label) for label in frames.labels} == {str(i): 30 for i in range(1, 10)}
    np.testing.assert_allclose(
        frames.sequences[0][:2, :3], [[1.860936, -0.207383, 0.261557], [1.891651, -0.193249, 0.235363]]
    )


def save(**arrays):
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


FRAMES = np.arange(10, dtype=np.float64).reshape(5, 2)


def test_npz_one_after_another_or_padded(write):
    archive = save(frames=FRAMES, lengths=np.int16([2, 3]), who=np.array(["a", "b"]), digit=np.int8([7, 8]))
    one = read_npz(write("a.npz", archive), "who")
    padded = np.full((2, 4, 2), np.nan)  # whatever stands in the padding
    padded[0, :2], padded[1, :3] = FRAMES[:2], FRAMES[2:]
    two = read_npz(write("b.npz", save(frames=padded, lengths=[2, 3], digit=[7, 8])), "digit")
    assert (one.labels, two.labels) == (["a", "b"], ["7", "8"])
    for frames in (one, two):
        assert [s.dtype for s in frames.sequences] == [np.float32] * 2
        np.testing.assert_array_equal(frames.sequences[0], FRAMES[:2])
        np.testing.assert_array_equal(frames.sequences[1], FRAMES[2:])


def test_npz_labels_may_be_bytes(write):
    archive = save(frames=FRAMES, lengths=[2, 3], who=np.array([b"a", "é".encode()]))
    assert read_npz(write("a.npz", archive), "who").labels == ["a", "é"]


def bad(**changes):
    good = {"frames": FRAMES, "lengths": [2, 3], "who": ["a", "b"]}
    return save(**{key: value for key, value in (good | changes).items() if value is not None})


def with_value(value):
    frames = FRAMES.copy()
    frames[3, 1] = value
    return frames


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (bad(who=None, digit=[1, 2]), "has no array 'who'; there are: digit, frames, lengths"),
        (bad(lengths=None), "has no array 'lengths'; there are: frames, who"),
        (bad(lengths=[2, 2]), "'lengths' sum to 4, but 'frames' has 5 rows"),
        (bad(lengths=[5, 0]), "case 1 has length 0"),
        (bad(lengths=[6, -1]), "case 1 has length -1"),
        (bad(lengths=np.uint64([5, 2**64 - 1])), "case 1 has length 18446744073709551615, but 'frames' only 5 rows"),
        (bad(lengths=[2.0, 3.0]), r"'lengths' must be whole numbers \(cases,\), got float64 \(2,\)"),
        (bad(lengths=np.zeros(0, int)), "'lengths' must be whole numbers"),
        (bad(frames=FRAMES[:, 0]), r"'frames' must be numbers .* got float64 \(5,\)"),
        (bad(frames=FRAMES.astype(str)), "'frames' must be numbers"),
        (bad(frames=FRAMES[:, :0]), "'frames' must be numbers"),
        (bad(frames=with_value(np.nan)), "case 1, frame 1, dimension 1: 'frames' has nan"),
        (bad(frames=with_value(-np.inf)), "case 1, frame 1, dimension 1: 'frames' has -inf"),
        (bad(frames=with_value(1e300)), "expected finite float32 numbers"),
        (bad(frames=np.zeros((2, 2, 4))), "case 1 has length 3, but 'frames' only 2 rows a case"),
        (bad(frames=np.zeros((3, 3, 4))), "'frames' has 3 cases, but 'lengths' 2"),
        (bad(who=["a", ""]), "case 1 has an empty label in 'who'"),
        (bad(who=["a", "b", "c"]), r"labels 'who' must be .* one a case \(2,\), got <U1 \(3,\)"),
        (bad(who=[0.5, np.nan]), "labels 'who' must be whole numbers or text"),
        (bad(who=np.array(["a", None], dtype=object)), "has an array of objects; expected plain arrays"),
        (bad()[:-40], "is not a NumPy archive, or a damaged one"),
        (b"PK\x03\x04 and nothing of use", "is not a NumPy archive, or a damaged one"),
        (b"\x93NUMPY rubbish", "is not a NumPy archive, or a damaged one"),
    ],
)
def test_npz_says_what_is_wrong(write, content, words):
    path = write("bad.npz", content)
    with pytest.raises(DataError, match=words) as caught:
        read_npz(path, "who")
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_npz_with_a_flipped_byte_or_a_single_array(write):
    content = bytearray(bad(frames=np.random.default_rng(0).normal(size=(5, 2))))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        start = archive.getinfo("frames.npy").header_offset
    content[start + 120] ^= 0xFF
    with pytest.raises(DataError, match="damaged"):
        read_npz(write("a.npz", bytes(content)), "who")
    buffer = io.BytesIO()
    np.save(buffer, FRAMES)
    with pytest.raises(DataError, match="is a single array; expected an archive"):
        read_npz(write("b.npz", buffer.getvalue()), "who")


@pytest.mark.parametrize("label", [None, "frames", "lengths"])
def test_npz_asks_for_a_label(write, label):
    with pytest.raises(DataError, match="name the array of labels with --label; there are: who"):
        read_npz(write("a.npz", bad()), label)


def test_npz_reads_the_spoken_digits(shared):
    path = shared("fsdd/fsdd_mfcc13_five_speakers.npz")
    frames = read(path, "speaker")
    assert len(frames.sequences) == 2500
    assert sum(len(sequence) for sequence in frames.sequences) == 106797
    assert {sequence.shape[1] for sequence in frames.sequences} == {13}
    assert len(set(frames.labels)) == 5
    with np.load(path) as archive:
        np.testing.assert_array_equal(frames.sequences[-1], archive["frames"][-archive["lengths"][-1] :])
