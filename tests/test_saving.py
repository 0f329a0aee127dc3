"""Files: what goes in comes out, exactly there, without pickle, all or nothing."""

import io
import itertools
import os
import pickle
import re
import signal
import stat
import subprocess
import sys
import threading
import time
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minigrad as mg
from minigrad import nn, optim, random, saving


def assert_same(a, b):
    """Equal arrays, names in the same order, to dtype, shape and bit."""
    assert list(a) == list(b)
    for name in a:
        left, right = np.asarray(a[name]), b[name]
        assert type(right) is np.ndarray
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        assert left.tobytes() == right.tobytes()


def round_trip(path, arrays):
    saving.save(path, arrays)
    return saving.load(path)


def only(folder, *names):
    assert sorted(os.listdir(folder)) == sorted(names)


# --- arrays ---


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "<i4", ">i4", "i8", "u8", "f2", "f4", "<f8", ">f8", "c8",
                                   "c16", "U3"])  # fmt: skip
@pytest.mark.parametrize("shape", [(), (1,), (3,), (0,), (2, 0, 3), (2, 3, 4), (1, 1)])
def test_b065_round_trip_of_shapes_and_dtypes(tmp_path, dtype, shape):
    array = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    assert_same({"a": array}, round_trip(tmp_path / "f", {"a": array}))


@pytest.mark.parametrize(
    "array",
    [
        np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324]),
        np.frombuffer(np.uint64([0x7FF8000000000123]).tobytes()),  # a NaN with a payload
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(24).reshape(2, 3, 4)[:, ::-1, ::2].T,
        np.broadcast_to(np.float32(2), (3, 2)),
        np.array(["", "ä", "漢字", "a\nb"]),
        np.zeros((100, 1000), np.float32),
    ],
)
def test_round_trip_of_values_and_layouts(tmp_path, array):
    loaded = round_trip(tmp_path / "f", {"a": array})
    assert_same({"a": array}, loaded)
    loaded["a"][...] = loaded["a"]  # what is loaded can be written to


def test_numbers_lists_and_tensors_are_arrays_too(tmp_path):
    tensor = mg.tensor([[1.0]], dtype=np.float32, requires_grad=True)
    given_ = {"i": 3, "f": 0.1, "b": True, "s": "text", "l": [[1, 2], [3, 4]], "t": tensor, "h": tensor * 2}
    loaded = round_trip(tmp_path / "f", given_)
    expected = {**given_, "t": np.float32([[1]]), "h": np.float32([[2]])}
    assert_same(expected, loaded)


NAMES = ["a/b", "a.b", "/a", "a/", "file", "a", "a.npy", "a.npy.npy", ".npy", "", " ", "ä漢", "..", "../x", "self", "~",
         "a\\b" if os.sep == "/" else "b", "C:x", "x" * 300, "name\n", "arr_0"]  # fmt: skip


def test_names_of_every_kind_at_once(tmp_path):
    arrays = {name: np.array(i) for i, name in enumerate(NAMES)}
    assert_same(arrays, round_trip(tmp_path / "f", arrays))
    only(tmp_path, "f")


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.text(st.characters(exclude_characters="\0\\", exclude_categories=["Cs"])), st.integers(0, 9)))
def test_any_names(tmp_path_factory, arrays):
    path = tmp_path_factory.getbasetemp() / "any_names"
    assert_same(arrays, round_trip(path, arrays))


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("a\0b", ValueError),
        ("x" * 70_000, ValueError),
        ("\ud800", ValueError),
        (3, TypeError),
        (None, TypeError),
        (b"a", TypeError),
    ],
)
def test_names_that_would_not_come_back_are_refused(tmp_path, name, error):
    with pytest.raises(error, match="name"):
        saving.save(tmp_path / "f", {name: np.ones(2)})
    only(tmp_path)


def test_no_arrays_at_all(tmp_path):
    assert round_trip(tmp_path / "f", {}) == {}


@pytest.mark.parametrize("name", ["ck", "ck.npz", "ck.bin", "ck.npz.old", "c k", ".ck", "漢字", "x" * 255])
@pytest.mark.parametrize("kind", [str, lambda p: p])
def test_b100_the_path_is_taken_exactly(tmp_path, name, kind):
    path = kind(tmp_path / name)
    assert_same({"a": np.ones(2)}, round_trip(path, {"a": np.ones(2)}))
    only(tmp_path, name)


def test_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_same({"a": np.ones(2)}, round_trip("ck", {"a": np.ones(2)}))
    only(tmp_path, "ck")


def test_a_link_is_followed(tmp_path):
    (tmp_path / "runs").mkdir()
    link = tmp_path / "latest"
    link.symlink_to(tmp_path / "runs" / "w")
    for value in (1, 2):
        assert_same({"a": np.array(value)}, round_trip(link, {"a": value}))
    assert link.is_symlink()
    only(tmp_path / "runs", "w")


def test_numpy_reads_and_writes_the_same_files(tmp_path):
    arrays = {"w": np.ones((2, 3), np.float32), "a/b": np.array(4)}
    saving.save(tmp_path / "ours.npz", arrays)
    with np.load(tmp_path / "ours.npz", allow_pickle=False) as archive:
        assert_same(arrays, dict(archive))
    for write in (np.savez, np.savez_compressed):
        write(tmp_path / "theirs.npz", **arrays)
        assert_same(arrays, saving.load(tmp_path / "theirs.npz"))


def test_the_same_arrays_give_the_same_bytes(tmp_path):
    for name in "ab":
        saving.save(tmp_path / name, {"w": np.arange(5), "v": np.ones(3)})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


# --- no pickle ---


class Trap:
    """Unpickling it would show."""

    def __reduce__(self):
        return (os.putenv, ("MINIGRAD_TRAP", "sprung"))


@pytest.mark.parametrize(
    "value",
    [
        np.array([1, "a", None], object),
        np.array([[1], [2, 3]], object),
        [[1.0], [2.0, 3.0]],
        [np.ones(2), np.ones(3)],
        [mg.tensor([1.0], requires_grad=True), mg.tensor([2.0], requires_grad=True)],
        None,
        {"a": 1},
        {1, 2},
        b"bytes",
        np.zeros(2, [("x", float)]),
        np.array(["2020-01-01"], "M8[D]"),
        Trap(),
        nn.Linear(2, 2),
        random.generator(),
        lambda: 0,
    ],
)
def test_b099_what_needs_pickle_is_refused_at_save_by_name_and_nothing_is_written(tmp_path, value):
    saving.save(tmp_path / "f", {"old": 1})
    before = (tmp_path / "f").read_bytes()
    with pytest.raises(TypeError, match="'bad/entry'"):
        saving.save(tmp_path / "f", {"good": np.ones(3), "bad/entry": value, "more": np.ones(2)})
    with pytest.raises(TypeError, match="'bad/entry'"):
        saving.save(tmp_path / "new", {"bad/entry": value})
    only(tmp_path, "f")
    assert (tmp_path / "f").read_bytes() == before


def test_b099_pickles_are_never_loaded(tmp_path):
    objects = np.array([Trap()], object)
    np.savez(tmp_path / "a.npz", w=objects)
    np.save(tmp_path / "b.npy", objects)
    (tmp_path / "c").write_bytes(pickle.dumps(Trap()))
    for name in ("a.npz", "b.npy", "c"):
        with pytest.raises(ValueError, match=re.escape(name)):
            saving.load(tmp_path / name)


# --- damage ---


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    path = tmp_path_factory.mktemp("healthy") / "f"
    arrays = {"w": np.arange(40.0), "n": np.array(3), "none": np.ones((0, 2))}
    saving.save(path, arrays)
    return arrays, path.read_bytes()


def test_a_truncated_file_is_an_error_at_every_length(tmp_path, healthy):
    _, content = healthy
    path = tmp_path / "f"
    for length in [*range(0, len(content), 7), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"not a readable \.npz file"):
            saving.load(path)


def test_a_flipped_bit_is_an_error_or_harmless(tmp_path, healthy):
    arrays, content = healthy
    path, refused = tmp_path / "f", 0
    positions = range(0, len(content), 3)
    for position in positions:
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        try:
            loaded = saving.load(path)
        except ValueError as error:
            assert str(path) in str(error)  # noqa: PT017
            refused += 1
        else:  # the directory at the end has no checksum: a changed length in it can hide an entry, but change none
            assert_same({name: arrays[name] for name in loaded}, loaded)
    assert refused > 0.7 * len(positions)


def npy_bytes(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def zip_bytes(**entries):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return file.getvalue()


HUGE = npy_bytes(np.ones(3)).replace(b"(3,), ", b"(3" + b"0" * 15 + b",), ")


GARBAGE = {
    "nothing": b"",
    "zeros": b"\0" * 1000,
    "the beginning of an archive": b"PK\3\4" + b"rubbish" * 30,
    "text": "Gemüse\n".encode(),
    "noise": os.urandom(5000),
    "a single array": npy_bytes(np.ones(3)),
    "an archive of text": zip_bytes(**{"a.txt": b"text"}),
    "text as an array": zip_bytes(**{"a.npy": b"text"}),
    "an array cut off": zip_bytes(**{"a.npy": npy_bytes(np.ones(3))[:-1]}),
    "a huge shape": zip_bytes(**{"a.npy": HUGE}),
    "a broken header": zip_bytes(**{"a.npy": b"\x93NUMPY\x01\x00\x10\x00{'descr': (((((\n"}),
}


@pytest.mark.parametrize("content", GARBAGE.values(), ids=GARBAGE)  # (the bytes differ between the tests' processes)
def test_garbage_is_a_value_error_that_names_the_file(tmp_path, content):
    path = tmp_path / "rubbish"
    path.write_bytes(content)
    for load in (saving.load, saving.load_checkpoint):
        with pytest.raises(ValueError, match=r"rubbish is not a readable \.npz file"):
            load(path)


def test_a_missing_file_and_a_folder_are_the_systems_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing_here"):
        saving.load(tmp_path / "nothing_here")
    with pytest.raises(OSError, match=tmp_path.name):
        saving.load(tmp_path)


# --- all or nothing ---


@pytest.fixture
def old(tmp_path):
    saving.save(tmp_path / "f", {"w": np.full(1000, 1.0)})
    content = (tmp_path / "f").read_bytes()
    yield tmp_path / "f"
    only(tmp_path, "f")
    assert (tmp_path / "f").read_bytes() == content


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_write_that_fails_in_the_middle_leaves_the_old_file(old, monkeypatch, error, written):
    write, count = np.lib.format.write_array, 0

    def failing(file, array, **options):
        nonlocal count
        count += 1
        if count > written:
            file.write(b"half of the arr")
            raise error
        write(file, array, **options)

    monkeypatch.setattr(np.lib.format, "write_array", failing)
    with pytest.raises(type(error)):
        saving.save(old, {"w": np.zeros(1000), "v": np.zeros(1000), "u": np.zeros(1000)})


def interrupting(n, *modules):
    """A trace function that raises KeyboardInterrupt at the n-th call, line or return of these modules."""
    files, count = {module.__file__ for module in modules}, itertools.count(1)

    def trace(frame, event, _):
        if frame.f_code.co_filename not in files:
            return None
        if next(count) == n:
            raise KeyboardInterrupt
        return trace

    return trace


def test_ctrl_c_at_every_line_is_that_and_leaves_the_old_file(old, monkeypatch):
    """(A zip file that is closed while an entry is written raises an error of its own.)"""
    said, content, new = [], old.read_bytes(), {"w": np.zeros(3), "v": np.zeros(())}
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    for n in itertools.count(1):
        sys.settrace(interrupting(n, saving, zipfile))
        try:
            saving.save(old, new)
        except KeyboardInterrupt:
            pass
        else:
            break
        finally:
            sys.settrace(None)
        # (From 3.13 on Python reports that a half-made entry cannot be closed.)
        assert all(isinstance(what.exc_value, AttributeError) for what in said), n
        only(old.parent, "f")
        if old.read_bytes() != content:  # at the end it is the new one, whole
            assert_same(new, saving.load(old))
            old.write_bytes(content)
    assert_same(new, saving.load(old))
    old.write_bytes(content)
    assert n > 100


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failing_sync_or_rename_leaves_the_old_file(old, monkeypatch, step):
    def failing(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, step, failing)
    with pytest.raises(OSError, match="Input/output"):
        saving.save(old, {"w": np.zeros(1000)})
    monkeypatch.undo()


def test_a_full_disk_leaves_the_old_file(old):
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
        with pytest.raises(OSError, match="too large"):
            saving.save(old, {"w": np.zeros(5000), "v": np.zeros(5000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, former)


def test_the_file_is_synced_before_it_gets_its_name_and_the_folder_after(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(handle):
        kind = "folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else os.fstat(handle).st_size
        calls.append(kind)
        fsync(handle)

    def noted_replace(*args):
        calls.append("replace")
        replace(*args)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    saving.save(tmp_path / "f", {"w": np.zeros(1000)})
    assert calls == [(tmp_path / "f").stat().st_size, "replace", *(["folder"] if os.name == "posix" else [])]


WRITER = """
import sys, itertools
import numpy as np
from minigrad import saving
for k in itertools.count(1):
    saving.save(sys.argv[1], {"a": np.full(20_000, k), "b": np.full(20_000, k)})
    print(k, flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_a_killed_writer_leaves_a_whole_file(tmp_path):
    rng = np.random.default_rng()
    path = tmp_path / "f"
    for _ in range(8):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout.readline() == b"1\n"
            time.sleep(rng.uniform(0, 0.05))
            writer.kill()
            said = int((b"1\n" + writer.stdout.read()).split()[-1])
        loaded = saving.load(path)
        assert len(set(loaded["a"]) | set(loaded["b"])) == 1
        assert loaded["a"][0] in (said, said + 1)


def test_a_reader_never_sees_a_half_written_file(tmp_path):
    path, stop = tmp_path / "f", threading.Event()
    saving.save(path, {"a": np.full(20_000, 0)})

    def write():
        k = 0
        while not stop.is_set():
            k += 1
            saving.save(path, {"a": np.full(20_000, k)})

    writers = [threading.Thread(target=write) for _ in range(2)]
    for thread in writers:
        thread.start()
    try:
        seen = set()
        deadline = time.monotonic() + 20
        while len(seen) < 10 and time.monotonic() < deadline:
            (value,) = set(saving.load(path)["a"])
            seen.add(value)
    finally:
        stop.set()
        for thread in writers:
            thread.join()
    assert len(seen) >= 10
    only(tmp_path, "f")


# --- permissions and folders ---


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002, 0o000])
def test_permissions_honour_the_umask(tmp_path, umask):
    former = os.umask(umask)
    try:
        saving.save(tmp_path / "f", {"a": 1})
        assert os.umask(umask) == umask
    finally:
        os.umask(former)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o666 & ~umask


def test_saving_never_changes_the_umask(tmp_path, monkeypatch):
    """(Not even for a moment: it is the whole process's, and other threads create files too.)"""
    monkeypatch.setattr(os, "umask", lambda _: pytest.fail("the umask was changed"))
    saving.save(tmp_path / "f", {"a": 1})
    assert saving.load(tmp_path / "f")["a"] == 1


@pytest.mark.parametrize("name", ["missing/f", "missing/deeper/f"])
def test_a_missing_folder_is_an_error_in_the_callers_terms(tmp_path, name):
    with pytest.raises(FileNotFoundError) as info:
        saving.save(tmp_path / name, {"a": 1})
    assert info.value.filename == str(tmp_path / name)
    only(tmp_path)


def test_a_folder_or_a_file_in_the_way_is_an_error_and_leaves_nothing(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inside").write_text("kept")
    (tmp_path / "file").write_text("kept")
    with pytest.raises(OSError, match="folder"):
        saving.save(tmp_path / "folder", {"a": 1})
    with pytest.raises(OSError, match="file"):
        saving.save(tmp_path / "file" / "f", {"a": 1})
    only(tmp_path, "folder", "file")
    only(tmp_path / "folder", "inside")
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_folder_is_an_error_and_leaves_nothing(tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o500)
    try:
        with pytest.raises(PermissionError) as info:
            saving.save(folder / "f", {"a": 1})
        assert info.value.filename == str(folder / "f")
        only(folder)
    finally:
        folder.chmod(0o700)


def test_an_unwritable_folder_as_the_system_reports_it(tmp_path, monkeypatch):
    """(For root, who may write everywhere.)"""

    def denied(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(saving, "open", denied, raising=False)
    with pytest.raises(PermissionError) as info:
        saving.save(tmp_path / "f", {"a": 1})
    assert info.value.filename == str(tmp_path / "f")
    only(tmp_path)


# --- checkpoints ---


def checkpoint_round_trip(tmp_path, state):
    saving.save_checkpoint(tmp_path / "c", state)
    only(tmp_path, "c")
    return saving.load_checkpoint(tmp_path / "c")


def assert_equal_trees(a, b):
    if isinstance(a, dict):
        assert isinstance(b, dict)
        assert list(a) == list(b)
        for key in a:
            assert_equal_trees(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert isinstance(b, list)
        assert len(a) == len(b)
        for x, y in zip(a, b):
            assert_equal_trees(x, y)
    elif isinstance(a, np.ndarray):
        assert_same({"a": a}, {"a": b})
    else:
        assert type(a) is type(b)
        assert a == b or (a != a and b != b)


def test_checkpoint_of_everything(tmp_path):
    model = nn.Linear(2, 3)
    optimizer = optim.AdamW(model.parameters())
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": optim.Schedule(optimizer, warmup=3).state_dict(),
        "average": optim.ExponentialAverage(model.parameters(), 0.9).state_dict(),
        "random": random.get_state(),
        "epoch": 3,
        "best": {"loss": 0.1 + 0.2, "name": "ä\n\0\ud800", "none": None, "yes": True, "no": False},
        "floats": [np.inf, -np.inf, np.nan, -0.0, 5e-324, 1.7976931348623157e308],
        "ints": [0, -1, 2**128 - 1, -(2**200)],
        "empty": [{}, [], "", np.ones((0, 3)), np.array(2, np.int8)],
        "history": [{"loss": 1.5, "w": np.ones(2)}, {"loss": 0.5, "w": np.zeros(2)}],
    }
    loaded = checkpoint_round_trip(tmp_path, state)
    state["optimizer"]["groups"][0]["betas"] = [0.9, 0.999]
    assert_equal_trees(state, loaded)
    assert np.signbit(loaded["floats"][3])


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64])
def test_random_state_continues_exactly(tmp_path, kind):
    rng = np.random.Generator(kind(2**100))
    rng.integers(0, 10, dtype=np.int32)
    state = checkpoint_round_trip(tmp_path, {"rng": random.get_state(rng)})
    expected = rng.random(5), rng.integers(0, 1000, 5, dtype=np.int32)
    random.set_state(state["rng"], rng)
    np.testing.assert_array_equal(rng.random(5), expected[0])
    np.testing.assert_array_equal(rng.integers(0, 1000, 5, dtype=np.int32), expected[1])


def test_paths_and_keys_that_look_alike_stay_apart(tmp_path):
    a = iter(np.arange(100.0).reshape(100, 1))
    state = {
        "a": {"b": next(a), "b/c": next(a), "b~1c": next(a), "": next(a)},
        "a/b": next(a),
        "a~1b": next(a),
        "": {"": next(a), "a": next(a)},
        "/": next(a),
        "x": [next(a), {"0": next(a)}],
        "x/0": next(a),
        "~structure": next(a),
        "~array": "a/b",
        "$array": "a/b",
        "nested": {"~array": next(a), "~0array": "a/b"},
        "only": {"~array": "a/b"},
        "structure.npy": next(a),
        "file": next(a),
    }
    assert_equal_trees(state, checkpoint_round_trip(tmp_path, state))


keys = st.text("ab/~01.$\\\n", max_size=4) if os.sep == "/" else st.text("ab/~01.$\n", max_size=4)
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.integers(0, 9).map(np.asarray)
)
trees = st.recursive(leaves, lambda x: st.one_of(st.lists(x, max_size=3), st.dictionaries(keys, x, max_size=3)))


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(keys, trees, max_size=4))
def test_any_checkpoint(tmp_path_factory, state):
    path = tmp_path_factory.getbasetemp() / "any_checkpoint"
    saving.save_checkpoint(path, state)
    assert_equal_trees(state, saving.load_checkpoint(path))


def test_numpys_scalars_keep_value_and_dtype(tmp_path):
    loaded = checkpoint_round_trip(tmp_path, {"f": np.float32(0.1), "i": np.int64(3), "b": np.bool_(True), "d": np.pi})
    assert loaded["f"].dtype == np.float32
    assert loaded["f"] == np.float32(0.1)
    assert (loaded["i"], loaded["b"], loaded["d"]) == (3, True, np.pi)


@pytest.mark.parametrize("bad", [{1, 2}, object(), b"x", [[1], np.array([None])], {3: 1}, {"a": {None: 1}}])
def test_what_a_checkpoint_cannot_hold_is_named_and_nothing_is_written(tmp_path, bad):
    with pytest.raises(TypeError, match="outer/thing"):
        saving.save_checkpoint(tmp_path / "c", {"outer": {"thing": bad}, "fine": 1})
    only(tmp_path)


def test_arrays_that_are_no_checkpoint(tmp_path):
    saving.save(tmp_path / "f", {"w": np.ones(2)})
    with pytest.raises(ValueError, match="no checkpoint"):
        saving.load_checkpoint(tmp_path / "f")


@pytest.mark.parametrize("structure", ["{", "[]", "3", '{"w": {"~array": "gone"}}', np.ones(3)])
def test_a_checkpoint_with_a_wrong_structure_is_a_value_error(tmp_path, structure):
    saving.save(tmp_path / "f", {"~structure": structure, "w": np.ones(2)})
    with pytest.raises(ValueError, match="no checkpoint"):
        saving.load_checkpoint(tmp_path / "f")


def test_a_checkpoint_is_all_or_nothing_too(old):
    with pytest.raises(TypeError, match="a/b"):
        saving.save_checkpoint(old, {"x": np.ones(3), "a": {"b": object()}})


def test_a_module_or_a_list_is_no_dict_of_arrays(tmp_path):
    for save in (saving.save, saving.save_checkpoint):
        with pytest.raises(TypeError, match=r"Linear, which is no dict: pass its \.state_dict\(\)"):
            save(tmp_path / "x.npz", nn.Linear(1, 1))
        with pytest.raises(TypeError, match="list, which is no dict: pass a dict"):
            save(tmp_path / "x.npz", [np.ones(2)])
    assert not list(tmp_path.iterdir())
