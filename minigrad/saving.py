"""Arrays and whole checkpoints on disk: `.npz` files without pickle, written all or nothing."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.tensor import Tensor

_STRUCTURE = "checkpoint.json"  # the one entry of a checkpoint that is no array of the user's
_ARRAY = "$array"


def save(path: str | os.PathLike[str], arrays: Mapping[str, Any]) -> None:
    """Write named arrays (or numbers, or tensors) to exactly `path`, as an uncompressed .npz without pickle.

    The file is complete or not there at all: it is written beside, synced and renamed. TypeError, naming the entry, for anything
    that is not a plain array of numbers, booleans or text; nothing is written then.
    """
    plain = {name: _plain_array(name, value) for name, value in arrays.items()}
    target = Path(path)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            with zipfile.ZipFile(file, "w") as archive:
                for name, array in plain.items():
                    with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                        np.lib.format.write_array(entry, array, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_directory(target.parent)


def load(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The named arrays of a file that `save` (or numpy.savez) wrote. ValueError for a file that is no such thing."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (zipfile.BadZipFile, ValueError, EOFError, AttributeError, OSError) as error:
        if isinstance(error, OSError) and not isinstance(error, zipfile.BadZipFile) and error.errno is not None:
            raise  # missing, no permission, a folder: the system's own words
        raise ValueError(f"{os.fspath(path)} is not a readable .npz file of plain arrays: {error}") from None


def save_checkpoint(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Write nested dicts and lists of arrays, numbers, strings and None (state_dict()s, epoch, random state) as `save` does.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "checkpoint.npz"
    >>> save_checkpoint(file, {"epoch": 3, "model": {"weight": np.ones(2)}})
    >>> load_checkpoint(file)
    {'epoch': 3, 'model': {'weight': array([1., 1.])}}
    """
    arrays: dict[str, Any] = {}
    structure = _take_out_arrays(state, "", arrays)
    save(path, {**arrays, _STRUCTURE: json.dumps(structure)})


def load_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What save_checkpoint wrote. ValueError for a file that is no checkpoint."""
    arrays = load(path)
    if _STRUCTURE not in arrays:
        raise ValueError(f"{os.fspath(path)} holds arrays but is no checkpoint: read it with saving.load")
    state: dict[str, Any] = _put_back_arrays(json.loads(str(arrays[_STRUCTURE])), arrays)
    return state


def _take_out_arrays(item: Any, path: str, arrays: dict[str, Any]) -> Any:
    """The structure in JSON's terms; arrays go into `arrays` under their path, with a reference in their place."""
    if isinstance(item, Mapping):
        if not all(isinstance(key, str) for key in item):
            raise TypeError(f"a checkpoint's dicts have strings for keys, unlike {path or 'the outermost'}")
        return {key: _take_out_arrays(value, f"{path}/{key}" if path else key, arrays) for key, value in item.items()}
    if isinstance(item, (list, tuple)):
        return [_take_out_arrays(value, f"{path}/{i}", arrays) for i, value in enumerate(item)]
    if item is None or isinstance(item, (bool, int, float, str)):
        return item
    arrays[path] = item
    return {_ARRAY: path}


def _put_back_arrays(item: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if isinstance(item, dict):
        if item.keys() == {_ARRAY}:
            return arrays[item[_ARRAY]]
        return {key: _put_back_arrays(value, arrays) for key, value in item.items()}
    return [_put_back_arrays(value, arrays) for value in item] if isinstance(item, list) else item


def _plain_array(name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value._array if isinstance(value, Tensor) else value)
    except ValueError as error:  # a ragged list
        raise TypeError(f"entry {name!r} is no array: {error}") from None
    if array.dtype.kind not in "fbiuUc":
        raise TypeError(
            f"entry {name!r} is a {type(value).__name__} of dtype {array.dtype}, which could only be pickled: "
            "save plain arrays, numbers or text"
        )
    return array


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def _sync_directory(folder: Path) -> None:
    """Make the renaming itself durable, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
