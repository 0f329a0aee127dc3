"""Tensors that show Traced arrays: what is looked at in them outside of ops, while a run is recorded, is noted too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minigrad.compiled.tracing import Recorder, Traced, real_of
from minigrad.tensor import Tensor

_slot: Any = Tensor.__dict__["_array"]
_shown_lock = threading.Lock()
_shown_in = 0


class _Showing(threading.local):
    recorder: Recorder | None = None


_showing = _Showing()


@contextmanager
def tensors_traced(recorder: Recorder) -> Iterator[None]:
    """Within, in this thread, whoever asks a tensor for its array gets a Traced one: comparisons, sorting, .item().

    So what is computed from a parameter outside of ops is noted as well. The tensors keep their real arrays; what is
    replaced for the while is how Tensor looks them up, so that eager code does not pay for it.
    """
    global _shown_in
    with _shown_lock:
        _shown_in += 1
        setattr(Tensor, "_array", property(_traced_array, _keep_array))  # noqa: B010  (which a type checker would not allow)
    before, _showing.recorder = _showing.recorder, recorder
    try:
        yield
    finally:
        _showing.recorder = before
        with _shown_lock:
            _shown_in -= 1
            if not _shown_in:
                setattr(Tensor, "_array", _slot)  # noqa: B010


def _traced_array(t: Tensor) -> Any:
    array, recorder = _slot.__get__(t), _showing.recorder
    return array if recorder is None or recorder.looks_away else Traced(array, recorder)


def _keep_array(t: Tensor, array: Any) -> None:
    _slot.__set__(t, real_of(array))
