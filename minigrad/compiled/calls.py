"""How calls of NumPy's functions and of arrays' methods are noted: as one step, or as several that write in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from minigrad.compiled.steps import is_view, leaves_of, map_nested
from minigrad.compiled.traced import Traced, real_of
from minigrad.engine import buffer_of

if TYPE_CHECKING:
    from minigrad.compiled.recorder import Recorder

# What asks for shapes and dtypes alone, which are the same in every run.
_STATIC = {np.shape, np.ndim, np.size, np.result_type, np.can_cast, np.iscomplexobj, np.isrealobj, np.broadcast_shapes}
_WRITING = {np.copyto, np.put, np.putmask, np.place, np.fill_diagonal, np.put_along_axis, np.ndarray.fill}
# Functions and methods whose results can be written to where they belong: reductions through their ufunc, and others.
_REDUCTIONS: dict[Any, np.ufunc] = {
    function: ufunc
    for ufunc, name in [
        (np.add, "sum"),
        (np.multiply, "prod"),
        (np.maximum, "max"),
        (np.minimum, "min"),
        (np.logical_or, "any"),
        (np.logical_and, "all"),
    ]
    for function in (getattr(np, name), getattr(np.ndarray, name))
}
_WITH_OUT = {np.einsum, np.concatenate, np.dot, np.ndarray.dot, np.mean, np.ndarray.mean, np.cumsum, np.ndarray.cumsum}
BY_VALUES = {np.real_if_close, np.trim_zeros}  # which view they return
_TAKING = {np.take, np.ndarray.take}  # with mode="raise", the result is copied to `out` behind a buffer


def call_noted(recorder: Recorder, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a NumPy function or an ndarray's method on the real arrays, and note it."""
    real, real_kwargs = real_of(args), real_of(kwargs)
    if function in _STATIC:
        return function(*real, **real_kwargs)
    if function in _WRITING:
        recorder.see_to_writing(args[0])
        function(*real, **real_kwargs)
        recorder.note(function, *args, **kwargs)
        return None
    kwargs = {key: x for key, x in kwargs.items() if key != "out" or x is not None}
    out = kwargs.get("out")
    if out is not None:
        if function not in _WITH_OUT:
            recorder.refuse("only ufuncs and products are followed into given arrays")
        recorder.see_to_writing(out)
        function(*real, **real_kwargs)
        recorder.note_call(function, *args, **kwargs)
        return out
    result = _called_without_writing(recorder, function, real, real_kwargs)
    note = _NOTED.get(function)
    noted = None if note is None else note(recorder, function, args, kwargs, result)
    return recorder.note_result(function, args, kwargs, result) if noted is None else noted


def _called_without_writing(recorder: Recorder, function: Any, args: Any, kwargs: Any) -> Any:
    """function(*args, **kwargs), whose operands cannot be written to: `out` is not always given by its name."""
    try:
        result = function(*_read_only(args), **_read_only(kwargs))
    except ValueError:
        function(*_copied(args), **_copied(kwargs))  # raises what is wrong, if it is something else
        recorder.refuse(f"{function} writes to an operand")
    for view in result if isinstance(result, (list, tuple)) else (result,):
        if is_view(view, (args, kwargs)) and buffer_of(view).flags.writeable:
            view.flags.writeable = True
    return result


def _read_only(x: Any) -> Any:
    if not isinstance(x, np.ndarray):
        return map_nested(_read_only, x)
    view = x.view()
    view.flags.writeable = False
    return view


def _copied(x: Any) -> Any:
    return x.copy() if isinstance(x, np.ndarray) else map_nested(_copied, x)


# How calls are noted that can write where their results belong. Each returns the result, or None: not in this case.


def _note_empty(recorder: Recorder, function: Any, args: Any, kwargs: Any, result: np.ndarray) -> Traced | None:
    if any(isinstance(leaf, Traced) for leaf in leaves_of((args[1:], {**kwargs, "like": None}))):
        return None  # a shape that follows values
    return recorder.new(result)


def _note_zeros(recorder: Recorder, function: Any, args: Any, kwargs: Any, result: np.ndarray) -> Traced | None:
    new = _note_empty(recorder, function, args, kwargs, result)
    if new is None:
        return None
    recorder.note(np.ndarray.fill, new, 0)
    return new


def _note_copy(recorder: Recorder, function: Any, args: Any, kwargs: Any, result: np.ndarray) -> Traced | None:
    if buffer_of(result) is buffer_of(args[0].array):  # astype that has nothing to do
        return None
    new = recorder.new(result)
    recorder.note(np.copyto, new, args[0], casting="unsafe")
    return new


def _note_where(recorder: Recorder, function: Any, args: Any, kwargs: Any, result: np.ndarray) -> Traced | None:
    if len(args) != 3 or getattr(args[0], "dtype", None) != np.bool_:
        return None
    new = recorder.new(result)
    recorder.note(np.copyto, new, args[2], casting="unsafe")
    recorder.note(np.copyto, new, args[1], casting="unsafe", where=args[0])
    return new


def _note_reduction(recorder: Recorder, function: Any, args: Any, kwargs: Any, result: Any) -> Traced | None:
    """As its ufunc's, if that gives the same (other arguments than the axis may be given in another order)."""
    if len(args) > 2:
        return None
    reduce, new = _REDUCTIONS[function].reduce, recorder.new(result)
    keywords = {"axis": args[1] if len(args) == 2 else None, **kwargs}
    again = reduce(real_of(args[0]), **{**real_of(keywords), "out": np.empty_like(new.array)})
    if not np.array_equal(again, result, equal_nan=True):
        return None
    recorder.note(reduce, args[0], **keywords, out=new)
    return new


def _note_with_out(recorder: Recorder, function: Any, args: Any, kwargs: Any, result: Any) -> Traced | None:
    if function in (np.mean, np.ndarray.mean) and getattr(result, "dtype", None) == np.float16:
        return None  # it would sum in halves, and does so in float32 where it makes the result itself
    if function in _TAKING and kwargs.get("mode", "raise") == "raise":
        return None
    if is_view(result, real_of(args)):
        return None
    new = recorder.new(result)
    recorder.note_call(function, *args, **kwargs, out=new)
    return new


_NOTED: dict[Any, Callable[..., Traced | None]] = {
    **dict.fromkeys((np.empty, np.empty_like), _note_empty),
    **dict.fromkeys((np.zeros, np.zeros_like), _note_zeros),
    **dict.fromkeys((np.copy, np.ndarray.copy, np.ndarray.astype), _note_copy),
    np.where: _note_where,
    **dict.fromkeys(_REDUCTIONS, _note_reduction),
    **dict.fromkeys((*_WITH_OUT, *_TAKING), _note_with_out),
}
