"""Arrays that report every NumPy call that they take part in, and the recorder that they report to."""

from __future__ import annotations

import functools
import math
import operator
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from minigrad.compiled.lanes import ELEMENT
from minigrad.compiled.steps import (
    Memory,
    Place,
    Step,
    UntraceableError,
    arrays_in,
    assign,
    assign_nested,
    check_value,
    generators_in,
    leaves_of,
    map_arrays,
    map_nested,
    with_scalars,
)
from minigrad.engine import Array, Node, buffer_of, caller
from minigrad.kernels.pieces import cut
from minigrad.op import Op
from minigrad.random import uniform
from minigrad.tensor import Tensor


class Recorder:
    """Notes the steps of one run. It watches all ops, and each Traced array reports to it."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._backward = False
        self._lane: int | None = None
        self.generators: dict[int, tuple[np.random.Generator, dict[str, Any]]] = {}
        self._thread = threading.get_ident()
        self.looks_away = False  # within a call that is noted as a whole, ops are not followed
        self.has_ended = False
        self._refusal: Exception | None = None  # what was raised last because it cannot be followed
        self.made: set[int] = set()  # ids of tensors that were given their arrays during the run
        self._tensors: dict[int, tuple[weakref.ref[Tensor], Node | None, np.ndarray]] = {}
        self._copied: set[Memory] = set()  # of views that follow values, and of what they show
        self._memories: dict[int, tuple[weakref.ref[np.ndarray], Memory]] = {}  # by the id of the array that owns it

    def rewind(self) -> None:
        """Undo all draws."""
        for generator, before in self.generators.values():
            generator.bit_generator.state = before

    def turn_back(self) -> None:
        """What follows belongs to the backward pass."""
        self._backward = True

    def follow(self, lane: int | None) -> None:
        """What follows belongs to this piece of a kernel's work."""
        self._lane = lane

    def refuse(self, why: str | Exception) -> NoReturn:
        """Raise that something cannot be followed; should the user's code catch it, raise_refusal() still knows."""
        self._refusal = UntraceableError(why) if isinstance(why, str) else why
        raise self._refusal

    def raise_refusal(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    # --- memory ---

    def new(self, result: Any) -> Traced:
        """A result, an array or a scalar, in memory of its own."""
        array = np.asarray(result)
        buffer = buffer_of(array)
        self._memories[id(buffer)] = weakref.ref(buffer), Memory(buffer.nbytes)
        return Traced(array, self) if isinstance(result, np.ndarray) else TracedScalar(array, self)

    def memory_of(self, array: np.ndarray) -> Memory | None:
        """None for an array that is no result: an argument's, a parameter's, a constant."""
        buffer = buffer_of(array)
        entry = self._memories.get(id(buffer))
        return entry[1] if entry is not None and entry[0]() is buffer else None

    def place(self, x: Any) -> Any:
        """x with a Place for each array of the workspace in it."""
        if isinstance(x, Traced):
            x = x.array
        if isinstance(x, np.ndarray):
            memory = self.memory_of(x)
            if memory is None:
                return x
            start = x.__array_interface__["data"][0] - buffer_of(x).__array_interface__["data"][0]
            return Place(memory, start, x.shape, x.strides, x.dtype)
        return map_nested(self.place, x)

    def see_to_writing(self, x: Any) -> None:
        """UntraceableError before a write to what outlives the run, or was made unseen."""
        if not isinstance(x, Traced):
            self.refuse("a NumPy call writes to an array that was made unseen: make it with like=")
        memory = self.memory_of(x.array)
        if memory is None:
            self.refuse("an array is written to that is no result of the run")
        if memory in self._copied:
            self.refuse("a view, which follows values, or what it shows, is written to")

    def note_tensor(self, t: Tensor, array: np.ndarray) -> None:
        """A tensor has shown its array: if it was there before the run, the program goes on using that array."""
        if id(t) not in self.made and id(t) not in self._tensors:
            self._tensors[id(t)] = weakref.ref(t), t._node, array

    def tensors(self) -> list[tuple[weakref.ref[Tensor], Node | None, np.ndarray]]:
        """The tensors that the program is for, with their nodes and arrays at recording."""
        return [found for found in self._tensors.values() if found[0]() is not None]

    # --- noting ---

    def note(self, function: Callable[..., Any], *args: Any, elementwise: bool = False, **kwargs: Any) -> None:
        if threading.get_ident() != self._thread:
            self.refuse("an op computes in several threads")
        places, keywords = tuple([self.place(a) for a in args]), {k: self.place(v) for k, v in kwargs.items()}
        step = Step(function, places, keywords, elementwise, self._backward, self._lane)
        self.steps.append(step)
        if self._lane is not None and isinstance(step.written, Place):
            step.written.memory.in_lanes = True

    def note_call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """A call of a NumPy function that writes to `out`."""
        if function is np.dot and len(args) == 2 and type(real_of(args[0])) is np.ndarray:
            function = np.ndarray.dot  # which does not look first for others' __array_function__
        self.note(function, *args, **kwargs)

    def note_ufunc(self, ufunc: np.ufunc, inputs: Sequence[Any], out: Traced, elementwise: bool) -> None:
        """A call of a ufunc; in pieces if it goes on with what kernels have made in pieces."""
        if ufunc in _EXACT:
            inputs = _numbers_as_arrays(inputs)
        rows = cut(out.shape[:1], out.size * ELEMENT) if self._goes_on_in_lanes(ufunc, (*inputs, out)) else None
        if rows is None:
            self.note(ufunc, *inputs, elementwise=elementwise, out=out)
            return
        for lane, piece in enumerate(rows):
            self._lane = lane
            parts = [x[piece] if np.shape(x)[:1] == out.shape[:1] and np.ndim(x) == out.ndim else x for x in inputs]
            self.note(ufunc, *parts, elementwise=elementwise, out=out[piece])
        self._lane = None

    def _goes_on_in_lanes(self, ufunc: np.ufunc, operands: Sequence[Any]) -> bool:
        """Whether pieces are sure to give the same bits, and were made in lanes."""
        if self._lane is not None or self.looks_away or ufunc not in _EXACT:
            return False
        arrays = [x.array for x in operands if isinstance(x, Traced)]
        memories = [self.memory_of(x) for x in arrays]
        *inputs, out = arrays
        if any(np.may_share_memory(x, out) and not _same_place(x, out) for x in inputs):
            return False  # a piece would read what another has written already
        return all(x.flags.c_contiguous for x in arrays) and any(m is not None and m.in_lanes for m in memories)

    def note_result(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any], result: Any) -> Any:
        """Traced arrays for the result of a call: views need no step, new arrays are assigned to."""
        operands = real_of((args, kwargs))
        if _is_view(result, operands):
            if function in _BY_VALUES or _decided_by_another(result, (args, kwargs)):
                return self._note_copied_view(function, args, kwargs, result)
            return Traced(result, self)
        if isinstance(result, (tuple, list)):
            if all(_is_view(r, operands) and not _decided_by_another(r, (args, kwargs)) for r in result):
                return type(result)(Traced(r, self) for r in result)
            self.refuse(f"{function} returns several new arrays")
        if not isinstance(result, (np.ndarray, np.generic, int, float, bool)):
            self.refuse(f"{function} returns a {type(result).__name__}")
        new = self.new(result)
        self.note(assign, new, function, args, kwargs)
        return new

    def _note_copied_view(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any], view: Any) -> Traced:
        """A view that follows values (x[i] of a traced i): copied whenever the program runs, it lies anywhere.

        So neither it nor what it is of may be written to from here on.
        """
        new = self.new(np.array(view, order="K"))
        self._copied |= {memory for memory in map(self.memory_of, (view, new.array)) if memory is not None}
        self.note(assign, new, function, args, kwargs)
        return new

    def note_whole(self, function: Callable[..., Any], args: Any, result: Any) -> Any:
        """One step for a call that is not looked into; its arrays are copied to places of their own."""
        copies = map_arrays(lambda a: self.new(np.array(a, order="K")), result)
        self.note(assign_nested, copies, function, args)
        return copies

    # --- watching ops ---

    def forward(self, op: Op[Any], forward: Callable[..., Any], *values: Any) -> Any:
        if any(isinstance(leaf, np.random.RandomState) for leaf in leaves_of(values)):
            self.refuse("a legacy generator draws")
        generators = list(generators_in(values))
        for generator in generators:
            self.generators.setdefault(id(generator), (generator, dict(generator.bit_generator.state)))
        if self.looks_away:
            return forward(*values)
        if op is uniform:
            generator, shape = values
            new = self.new(forward(generator, shape))
            self.note(generator.random, dtype=np.float32, out=new)
            return new
        if generators:  # what it draws would be constants
            return self.note_whole(forward, values, self._unseen(forward, values))
        return _outputs(self._call(forward, values))

    def vjp(self, op: Op[Any], vjp: Callable[..., Any], node: Node, g: Array, recorded: bool) -> Sequence[Array]:
        if recorded or self.looks_away:  # recorded rules call ops, which are watched themselves
            return vjp(node, g, recorded)  # type: ignore[no-any-return]
        pull: Any = functools.partial(_pull, vjp, node.plan)
        gradients: Sequence[Array] = self._call(pull, (node.saved, g))
        return gradients

    def _unseen(self, function: Callable[..., Any], values: tuple[Any, ...]) -> Any:
        """The result on real arrays. What it hands to other ops would be taken for constant: they are not followed."""
        self.looks_away = True
        try:
            return real_of(function(*real_of(values)))
        finally:
            self.looks_away = False

    def _call(self, function: Callable[..., Any], values: tuple[Any, ...]) -> Any:
        begun, refusal_before = len(self.steps), self._refusal
        self._refusal = None
        try:
            result = function(*map_arrays(lambda a: Traced(a, self), values))
            self.raise_refusal()
        except UntraceableError:
            del self.steps[begun:]
            result = self._unseen(function, values)
        finally:
            self._refusal = refusal_before
        if isinstance(result, (int, float)):  # of an op that returns a number, which its caller makes an array of
            result = np.asarray(result)
        if not any(isinstance(leaf, (np.ndarray, np.generic)) for leaf in leaves_of(result)):
            return result
        del self.steps[begun:]
        return self.note_whole(function, values, real_of(result))


class _Saved(NamedTuple):
    """What an op's vjp reads of a node."""

    plan: Any
    saved: Any


def _pull(vjp: Callable[..., Any], plan: Any, saved: Any, g: Array) -> Any:
    return vjp(_Saved(plan, saved), g, False)


# --- arrays that report what is done to them ---------------------------------------------------------------------


class Traced(NDArrayOperatorsMixin):
    """Stands for a real array and notes every NumPy call that it takes part in."""

    __slots__ = ("array", "recorder")

    def __init__(self, array: np.ndarray, recorder: Recorder):
        self.array = array
        self.recorder = recorder

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """What isinstance goes by: an op of the user's may treat arrays in one way and numbers in another."""
        asks = _module(sys._getframe(1)).partition(".")[0]
        return type(self) if asks in ("minigrad", "numpy") else type(self._stands_for())

    def _stands_for(self) -> Any:
        return self.array

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)
    ndim = property(lambda self: self.array.ndim)
    size = property(lambda self: self.array.size)
    strides = property(lambda self: self.array.strides)
    T = property(lambda self: Traced(self.array.T, self.recorder))

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        if any(isinstance(x, Tensor) for x in inputs):
            return NotImplemented  # it is an op, which is Tensor's to call
        recorder, real = self.recorder, real_of(inputs)
        function = ufunc if method == "__call__" else getattr(ufunc, method)
        if method == "at":
            recorder.see_to_writing(inputs[0])
            function(*real)
            recorder.note(function, *inputs)
            return None
        if out is not None:
            recorder.see_to_writing(out[0])
        result = function(*real, **real_of(kwargs), **({} if out is None else {"out": real_of(out)}))
        if type(result) is tuple:
            recorder.refuse(f"{ufunc} has several results")
        traced = recorder.new(result) if out is None else out[0]
        elementwise = method == "__call__" and ufunc.signature is None and not kwargs
        if elementwise:
            recorder.note_ufunc(ufunc, inputs, traced, out is None)
        else:
            recorder.note(function, *inputs, **kwargs, out=traced)
        return traced

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _call_noted(self.recorder, function, args, kwargs)

    def __pow__(self, exponent: Any) -> Any:
        """Noted as it is: it is not always np.power, which depends on exponent, dtype and NumPy's version."""
        if isinstance(exponent, Tensor):
            return NotImplemented
        return _call_noted(self.recorder, operator.pow, (self, exponent), {})

    def __ipow__(self, exponent: Any) -> Any:
        self[...] = self**exponent
        return self

    def see_to_writing(self, function: Callable[..., None], args: tuple[Any, ...]) -> None:
        """See engine.write: one step, which looks at values whenever it runs."""
        self.recorder.see_to_writing(self)
        function(self.array, *real_of(args))
        self.recorder.note(function, self, *args)

    def __getattr__(self, name: str) -> Any:
        if self.recorder.has_ended:  # somebody has kept it
            return getattr(self._stands_for(), name)
        method = getattr(type(self._stands_for()), name)
        if name.startswith("_") or not callable(method):
            self._refuse(f"an array's attribute {name} is asked for")
        if name in _READING:
            return lambda *args: self._read(lambda array: method(array, *args))
        return lambda *args, **kwargs: _call_noted(self.recorder, method, (self, *args), kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in Traced.__slots__:
            self._refuse(f"an array's attribute {name} is set")
        object.__setattr__(self, name, value)

    def __getitem__(self, index: Any) -> Any:
        index = _plain(index)
        result = self.array[real_of(index)]
        follows_values = any(isinstance(leaf, Traced) for leaf in leaves_of(index))
        if not _is_view(result, self.array):
            new = self.recorder.new(np.array(result, order="K") if isinstance(result, np.ndarray) else result)
            self.recorder.note(assign, new, operator.getitem, (self, index), {})
            return new
        if follows_values:
            return self.recorder._note_copied_view(operator.getitem, (self, index), {}, result)
        return Traced(result, self.recorder)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.recorder.see_to_writing(self)
        index = _plain(index)
        self.array[real_of(index)] = real_of(value)
        self.recorder.note(operator.setitem, self, index, value)

    def __copy__(self) -> Any:
        return _call_noted(self.recorder, np.ndarray.copy, (self,), {})

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__copy__()

    def __reduce_ex__(self, protocol: Any) -> Any:
        self._refuse("an array is pickled")

    def __bool__(self) -> bool:
        return bool(self._read(bool))

    def __int__(self) -> int:
        return int(self._read(int))

    def __float__(self) -> float:
        return float(self._read(float))

    def __complex__(self) -> complex:
        return complex(self._read(complex))

    def __round__(self, digits: int | None = None) -> Any:
        return self._read(lambda array: round(array[()], digits))

    def __index__(self) -> int:
        return int(self._read(operator.index))

    def __contains__(self, item: Any) -> bool:
        return bool(self._read(lambda array: real_of(item) in array))

    def __str__(self) -> str:
        return str(self._read(str))

    def __repr__(self) -> str:
        return str(self._read(lambda array: repr(array[()])))

    def __format__(self, spec: str) -> str:
        return str(self._read(lambda array: format(array[()], spec)))

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        if not self.recorder.has_ended:
            self._refuse("an array is taken for its values")
        return np.asarray(self.array, dtype)

    def _refuse(self, why: str) -> NoReturn:
        """In an op, which is then noted as one call; elsewhere a TypeError that names the line."""
        _complain_of_user(self.recorder)
        self.recorder.refuse(why)

    def _read(self, read: Callable[[Any], Any]) -> Any:
        """A value that decides what is done next: inside an op it is noted, and checked when the program runs."""
        if self.recorder.has_ended:
            return read(self.array)
        _complain_of_user(self.recorder)
        value = read(self.array)
        self.recorder.note(check_value, self, value, read)
        return value


def _of_scalars(function: Callable[[Any, Any], Any], inherited: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """The method for an operator whose result, for two scalars, need not be the ufunc's bit for bit."""

    def method(self: TracedScalar, other: Any) -> Any:
        if not isinstance(other, (TracedScalar, np.generic, int, float, complex)):
            return inherited(self, other)
        result = function(*real_of((self, other)))
        return self.recorder.note_result(with_scalars, (function, self, other), {}, result)

    return method


def _not_in_place(self: Traced, other: Any) -> Any:
    return NotImplemented


class TracedScalar(Traced):
    """Stands for one of NumPy's scalars. They are never written to: s += 1 makes another one."""

    __slots__ = ()

    def __hash__(self) -> int:
        return int(self._read(lambda array: hash(array[()])))

    def _stands_for(self) -> Any:
        return self.array[()]

    __pow__ = _of_scalars(operator.pow, Traced.__pow__)
    __rpow__ = _of_scalars(lambda a, b: b**a, Traced.__rpow__)
    __mul__ = _of_scalars(operator.mul, Traced.__mul__)
    __rmul__ = _of_scalars(lambda a, b: b * a, Traced.__rmul__)
    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ifloordiv__ = __imod__ = __ipow__ = _not_in_place
    __iand__ = __ior__ = __ixor__ = __ilshift__ = __irshift__ = _not_in_place

    def __getattr__(self, name: str) -> Any:
        if self.recorder.has_ended or name in _READING or not callable(method := getattr(type(self.array[()]), name)):
            return super().__getattr__(name)
        return functools.partial(self._note_method, method)

    def _note_method(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = method(*real_of((self, *args)), **real_of(kwargs))
        return self.recorder.note_result(with_scalars, (method, self, *args), kwargs, result)


def _outputs(y: Any) -> Any:
    """What an op returned, with arrays in the place of scalars, as it makes Tensors of them."""
    if type(y) is tuple:
        return tuple(map(_outputs, y))
    return Traced(y.array, y.recorder) if isinstance(y, TracedScalar) else y


def _complain_of_user(recorder: Recorder) -> None:
    """TypeError unless a value is read by minigrad itself, or within an op."""
    frame: Any = sys._getframe(2)
    while _passes_on(_module(frame)) and frame.f_code is not Recorder._call.__code__:
        frame = frame.f_back
    if _module(frame).startswith("minigrad."):
        return
    above = frame
    while above is not None:
        if above.f_code is Recorder._call.__code__:
            return
        above = above.f_back
    file, line = caller(frame)
    recorder.refuse(
        TypeError(
            f"{file}:{line} reads a value while mg.compile records: what is read would be the same in every later run. "
            "Keep it an array (mg.where instead of if), or read it outside of the compiled function"
        )
    )


def _module(frame: Any) -> str:
    return frame.f_globals.get("__name__") or ""


def _passes_on(module: str) -> bool:
    """Whether what looks at values there does so for its caller."""
    return module in (__name__, Tensor.__module__) or module.partition(".")[0] == "numpy"


def _plain(index: Any) -> Any:
    """An index whose slices have numbers for their ends, as indexing an array would ask for them."""
    if isinstance(index, tuple):
        return tuple(map(_plain, index))
    if not isinstance(index, slice):
        return index
    return slice(*[end if end is None else operator.index(end) for end in (index.start, index.stop, index.step)])


# Ufuncs whose results are the nearest floats there are, however many elements a call has; e^x, for one, need not be.
_EXACT = {
    *(
        np.add,
        np.subtract,
        np.multiply,
        np.divide,
        np.negative,
        np.absolute,
        np.square,
        np.sqrt,
        np.maximum,
        np.minimum,
    ),
    *(np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal),
    *(np.logical_and, np.logical_or, np.logical_not, np.bitwise_and, np.bitwise_or, np.invert),
}

_READING = {"item", "tolist", "tobytes"}
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
_BY_VALUES = {np.real_if_close, np.trim_zeros}  # which view they return
_TAKING = {np.take, np.ndarray.take}  # with mode="raise", the result is copied to `out` behind a buffer


def _call_noted(recorder: Recorder, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
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
        if _is_view(view, (args, kwargs)) and buffer_of(view).flags.writeable:
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
    if _is_view(result, real_of(args)):
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


_NUMBERS = (int, float, bool)


def _numbers_as_arrays(inputs: Sequence[Any]) -> Sequence[Any]:
    """Python's numbers beside floats as 0-d arrays of their dtype: NumPy takes half as long to get to those."""
    if not any(type(x) in _NUMBERS for x in inputs):
        return inputs
    dtype = np.result_type(*real_of(inputs))
    if dtype.kind != "f":
        return inputs
    return [_number_as(dtype, x) if type(x) in _NUMBERS else x for x in inputs]


def _number_as(dtype: np.dtype[Any], x: float) -> Any:
    with np.errstate(over="ignore"):
        array = np.asarray(x, dtype)
    return array if math.isinf(x) or not np.isinf(array) else x  # too large for the dtype: every run is to warn


def _same_place(a: np.ndarray, b: np.ndarray) -> bool:
    return a.__array_interface__["data"][0] == b.__array_interface__["data"][0] and (a.shape, a.strides) == (
        b.shape,
        b.strides,
    )


def _is_view(result: Any, operands: Any) -> bool:
    return isinstance(result, np.ndarray) and any(buffer_of(result) is buffer_of(a) for a in arrays_in(operands))


def _decided_by_another(view: np.ndarray, operands: Any) -> bool:
    """Whether a Traced number says where or how large the view is: an axis, a part of a shape."""
    buffer = buffer_of(view)
    return any(isinstance(leaf, Traced) and buffer_of(leaf.array) is not buffer for leaf in leaves_of(operands))


def real_of(x: Any) -> Any:
    """x with the arrays and scalars that Traced ones stand for."""
    return x._stands_for() if isinstance(x, Traced) else map_nested(real_of, x)
