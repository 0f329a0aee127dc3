"""Arrays and whole checkpoints on disk: `.npz` files without pickle, written all or nothing."""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from minigrad.tensor import Tensor

# In a checkpoint, arrays are named by the path to them: their keys joined by "/", in which JSON pointer's escapes (RFC
# 6901: ~0 for ~ and ~1 for /) keep different paths apart. No escaped key contains these two:
_STRUCTURE = "~structure"  # the entry that holds everything but the arrays, as JSON
_ARRAY = "~array"  # in it, {"~array": path} stands in the place of an array


def save(path: str | os.PathLike[str], arrays: Mapping[str, Any]) -> None:
    """Write named arrays (or numbers, or tensors) to exactly `path`, as an uncompressed .npz without pickle.

    The file is complete or as it was before: the new one is written beside it, synced and renamed. TypeError, naming
    the entry, for anything that is not a plain array of numbers, booleans or text; nothing is written then.
    """
    _check_dict(arrays, "save")
    plain = {_checked_name(name): _plain_array(name, value) for name, value in arrays.items()}
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            _write_archive(file, plain)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.filename == os.fspath(temporary):  # a name that the user never gave
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None
        raise
    _sync_directory(target.parent)


def load(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The named arrays of a file that `save` (or numpy.savez) wrote.

    ValueError for a file that is no such thing, is damaged, or would need pickle; OSError as open() raises it.
    """
    with open(path, "rb") as file:
        try:
            return _read_archive(file)
        except Exception as error:  # damage shows as any of a dozen kinds, even MemoryError for a garbled shape
            what = str(error) or type(error).__name__
            raise ValueError(f"{os.fspath(path)} is not a readable .npz file of plain arrays: {what}") from None


def save_checkpoint(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Write nested dicts and lists of arrays, numbers, strings and None (state_dict()s, epoch, ...), as `save` does.

    Keys are strings. Tuples come back as lists, NumPy's scalars (but for float64) as 0-d arrays.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "checkpoint.npz"
    >>> save_checkpoint(file, {"epoch": 3, "model": {"weight": np.ones(2)}})
    >>> load_checkpoint(file)
    {'epoch': 3, 'model': {'weight': array([1., 1.])}}
    """
    _check_dict(state, "save_checkpoint")
    arrays: dict[str, Any] = {}
    structure = _take_out_arrays(state, (), arrays)
    save(path, {**arrays, _STRUCTURE: json.dumps(structure)})


def load_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What save_checkpoint wrote. ValueError for a file that is no checkpoint."""
    arrays = load(path)
    try:
        state = _put_back_arrays(json.loads(str(arrays[_STRUCTURE])), arrays)
    except (KeyError, ValueError):
        state = None
    if not isinstance(state, dict):
        raise ValueError(f"{os.fspath(path)} holds arrays but is no checkpoint: read it with saving.load")
    return state


# --- archives ----------------------------------------------------------------------------------------------------


class _NewArchive(zipfile.ZipFile):
    """A zip file to be written. If that fails nothing more is tried: the file is closed by then, or an entry open.

    (That would raise an error of its own, in the place of a Ctrl-C.)
    """

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is None:
            self.close()
        else:
            self.fp = io.BytesIO()  # where an open entry ends

    def __del__(self) -> None:
        pass


def _write_archive(file: BinaryIO, arrays: Mapping[str, np.ndarray]) -> None:
    with _NewArchive(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


def _read_archive(file: BinaryIO) -> dict[str, np.ndarray]:
    """(numpy.load would take the entries "a" and "a.npy" for one, and believe a header before its checksum.)"""
    arrays = {}
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if not info.filename.endswith(".npy"):
                raise ValueError(f"its entry {info.filename!r} is no .npy array")
            content = io.BytesIO(archive.read(info))
            arrays[info.filename.removesuffix(".npy")] = np.lib.format.read_array(content, allow_pickle=False)
    return arrays


def _check_dict(x: Any, function: str) -> None:
    if isinstance(x, Mapping):
        return
    wanted = "its .state_dict()" if hasattr(x, "state_dict") else "a dict of names to arrays"
    raise TypeError(f"{function} was given {type(x).__name__}, which is no dict: pass {wanted}")


_LONGEST = 60_000  # a zip file's names end at 65,535 bytes


def _checked_name(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"an entry's name is a string, and {name!r} is not")
    if "\0" in name:
        raise ValueError(f"an entry's name cannot contain a null character, as {name!r} does")
    if len(name.encode(errors="replace")) > _LONGEST or name.encode(errors="ignore").decode() != name:
        raise ValueError(f"an entry's name is a text of at most {_LONGEST} bytes in UTF-8, and {name!r:.40} is not")
    return name


def _plain_array(name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value._array if isinstance(value, Tensor) else value)
    except (ValueError, TypeError) as error:  # a ragged list, or one of tensors
        raise TypeError(f"entry {name!r} is no array: {error}") from None
    if array.dtype.kind not in "fbiuUc":
        raise TypeError(
            f"entry {name!r} is a {type(value).__name__} of dtype {array.dtype}, which could only be pickled: "
            "save plain arrays, numbers or text"
        )
    return array


def _sync_directory(folder: Path) -> None:
    """Make the renaming itself durable, where the system can."""
    if os.name == "posix":
        with contextlib.suppress(OSError):
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


# --- checkpoints -------------------------------------------------------------------------------------------------


def _take_out_arrays(item: Any, path: tuple[str, ...], arrays: dict[str, Any]) -> Any:
    """The structure in JSON's terms; arrays go into `arrays` under their path, with a reference in their place."""
    if isinstance(item, Mapping):
        if not all(isinstance(key, str) for key in item):
            raise TypeError(f"a checkpoint's dicts have strings for keys, unlike {'/'.join(path) or 'the outermost'}")
        escaped = {_escape(key): value for key, value in item.items()}
        return {key: _take_out_arrays(value, (*path, key), arrays) for key, value in escaped.items()}
    if isinstance(item, (list, tuple)):
        return [_take_out_arrays(value, (*path, str(i)), arrays) for i, value in enumerate(item)]
    if item is None or isinstance(item, (bool, int, float, str)):
        return item
    name = "/".join(path)
    arrays[name] = item
    return {_ARRAY: name}


def _put_back_arrays(item: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if isinstance(item, dict):
        if _ARRAY in item:
            return arrays[item[_ARRAY]]
        return {_unescape(key): _put_back_arrays(value, arrays) for key, value in item.items()}
    return [_put_back_arrays(value, arrays) for value in item] if isinstance(item, list) else item


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _unescape(key: str) -> str:
    return key.replace("~1", "/").replace("~0", "~")
