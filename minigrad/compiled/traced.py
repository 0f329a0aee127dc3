"""Arrays that report every NumPy call that they take part in to a recorder."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from minigrad.compiled.steps import assign, check_value, is_view, leaves_of, map_nested, with_scalars
from minigrad.engine import caller
from minigrad.tensor import Tensor

if TYPE_CHECKING:
    from minigrad.compiled.recorder import Recorder

# Methods by which a value is read.
_READING = {"item", "tolist", "tobytes"}


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
        return self.recorder.call(function, args, kwargs)

    def __pow__(self, exponent: Any) -> Any:
        """Noted as it is: it is not always np.power, which depends on exponent, dtype and NumPy's version."""
        if isinstance(exponent, Tensor):
            return NotImplemented
        return self.recorder.call(operator.pow, (self, exponent), {})

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
        return lambda *args, **kwargs: self.recorder.call(method, (self, *args), kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in Traced.__slots__:
            self._refuse(f"an array's attribute {name} is set")
        object.__setattr__(self, name, value)

    def __getitem__(self, index: Any) -> Any:
        index = _plain(index)
        result = self.array[real_of(index)]
        follows_values = any(isinstance(leaf, Traced) for leaf in leaves_of(index))
        if not is_view(result, self.array):
            new = self.recorder.new(np.array(result, order="K") if isinstance(result, np.ndarray) else result)
            self.recorder.note(assign, new, operator.getitem, (self, index), {})
            return new
        if follows_values:
            return self.recorder.note_copied_view(operator.getitem, (self, index), {}, result)
        return Traced(result, self.recorder)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.recorder.see_to_writing(self)
        index = _plain(index)
        self.array[real_of(index)] = real_of(value)
        self.recorder.note(operator.setitem, self, index, value)

    def __copy__(self) -> Any:
        return self.recorder.call(np.ndarray.copy, (self,), {})

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


def _complain_of_user(recorder: Recorder) -> None:
    """TypeError unless a value is read by minigrad itself, or within an op."""
    frame: Any = sys._getframe(2)
    follows = type(recorder)._call.__code__
    while _passes_on(_module(frame)) and frame.f_code is not follows:
        frame = frame.f_back
    if _module(frame).startswith("minigrad."):
        return
    above = frame
    while above is not None:
        if above.f_code is follows:
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
    return module.startswith(f"{__package__}.") or module == Tensor.__module__ or module.partition(".")[0] == "numpy"


def _plain(index: Any) -> Any:
    """An index whose slices have numbers for their ends, as indexing an array would ask for them."""
    if isinstance(index, tuple):
        return tuple(map(_plain, index))
    if not isinstance(index, slice):
        return index
    return slice(*[end if end is None else operator.index(end) for end in (index.start, index.stop, index.step)])


def real_of(x: Any) -> Any:
    """x with the arrays and scalars that Traced ones stand for."""
    return x._stands_for() if isinstance(x, Traced) else map_nested(real_of, x)
