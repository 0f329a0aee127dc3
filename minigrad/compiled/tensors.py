"""Tensors that show Traced arrays: what is looked at in them outside of ops, while a run is recorded, is noted too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minigrad.compiled.recorder import Recorder
from minigrad.compiled.traced import Traced, real_of
from minigrad.tensor import Tensor

_slot: Any = Tensor.__dict__["_array"]
_lock = threading.Lock()
_contexts: set[object] = set()  # in whatever thread


class _Showing(threading.local):
    recorder: Recorder | None = None


_showing = _Showing()


@contextmanager
def tensors_traced(recorder: Recorder) -> Iterator[None]:
    """Within, in this thread, whoever asks a tensor for its array gets a Traced one: comparisons, sorting, .item().

    So what is computed from a parameter outside of ops is noted as well. The tensors keep their real arrays; what is
    replaced for the while is how Tensor looks them up, so that eager code does not pay for it.
    """
    context, before = object(), _showing.recorder
    try:
        with _lock:
            _contexts.add(context)
            setattr(Tensor, "_array", property(_traced_array, _keep_array))  # noqa: B010  (mypy would not allow it)
        _showing.recorder = recorder
        yield
    finally:
        _showing.recorder = before
        recorder.has_ended = True
        with _lock:
            _contexts.discard(context)
            if not _contexts:
                setattr(Tensor, "_array", _slot)  # noqa: B010


def recorder_here() -> Recorder | None:
    """That of this thread, while it records."""
    return _showing.recorder


def _traced_array(t: Tensor) -> Any:
    array, recorder = _slot.__get__(t), _showing.recorder
    if recorder is None or recorder.looks_away:
        return array
    recorder.note_tensor(t, array)
    return Traced(array, recorder)


def _keep_array(t: Tensor, array: Any) -> None:
    _slot.__set__(t, real_of(array))
    if _showing.recorder is not None:
        _showing.recorder.made.add(id(t))
