"""A loss that runs again without being recorded again: `compile`.

The function runs once, forward and backward, with `Traced` arrays in the place of real ones. Every op's forward and
every gradient rule is written in NumPy's syntax, so each NumPy call that they make passes through a Traced array and is
noted, with where its operands lay in memory and where its result went. Views (a transpose, a slice) cost nothing when
run again, since everything has its fixed place. What cannot be noted call by call, because it looks at values, is noted
as one call of the whole op. Places of results are then planned: memory is used again as soon as its content is not
needed any more, and all programs of one compiled function share one workspace.
"""

from __future__ import annotations

import functools
import operator
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from minigrad.engine import ON, Array, Node, backward_pass, caller, is_leaf, observers, own, owner_of, state
from minigrad.op import Op, watching
from minigrad.random import uniform
from minigrad.tensor import Tensor, wrap
from minigrad.trees import flatten


class UntraceableError(Exception):
    """A Traced array cannot follow: an op in which that happens is noted as one call; elsewhere the run stays eager."""


class ChangedError(Exception):
    """A value that decided what was recorded has changed: the program does not fit this call."""


# --- what is recorded --------------------------------------------------------------------------------------------


class Memory:
    """A stretch of the workspace that one array needs, from the step that first writes it to the last that uses it."""

    def __init__(self, size: int, first: int):
        self.size = size
        self.first = self.last = first
        self.offset = 0
        self.shares: Memory | None = None  # the dying operand in whose place an elementwise result is written


class Place(NamedTuple):
    """Where an array lies: a part of a Memory."""

    memory: Memory
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]


class Step(NamedTuple):
    """One call. In `args` and `kwargs` a Place stands for each array of the workspace; `elementwise`: writes to `out`,
    and may do so in the place of another argument."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    elementwise: bool = False


def _owner(array: np.ndarray) -> np.ndarray:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class Recorder:
    """Notes the steps of one run. It watches all ops, and each Traced array reports to it."""

    def __init__(self) -> None:
        self.forward_steps: list[Step] = []
        self.backward_steps: list[Step] = []
        self.steps = self.forward_steps
        self.generators: dict[int, tuple[np.random.Generator, dict[str, Any]]] = {}
        self._thread = threading.get_ident()
        self._memories: dict[int, tuple[weakref.ref[np.ndarray], Memory]] = {}  # by the id of the owning array

    def rewind(self) -> None:
        """Undo all draws."""
        for generator, before in self.generators.values():
            generator.bit_generator.state = before

    def turn_back(self) -> None:
        """What follows belongs to the backward pass."""
        self.steps = self.backward_steps

    @property
    def _now(self) -> int:
        return len(self.forward_steps) + len(self.backward_steps)

    # --- memory ---

    def new(self, array: np.ndarray) -> Traced:
        """A result in memory of its own."""
        owner = _owner(array)
        self._memories[id(owner)] = weakref.ref(owner), Memory(owner.nbytes, self._now)
        return Traced(array, self)

    def memory_of(self, array: np.ndarray) -> Memory | None:
        """None for an array that is no result: an argument's, a parameter's, a constant."""
        owner = _owner(array)
        entry = self._memories.get(id(owner))
        return entry[1] if entry is not None and entry[0]() is owner else None

    def place(self, x: Any) -> Any:
        """x with a Place for each array of the workspace in it, which is used by the step that is being noted."""
        if isinstance(x, Traced):
            x = x.array
        if isinstance(x, np.ndarray):
            memory = self.memory_of(x)
            if memory is None:
                return x
            memory.last = self._now
            start = x.__array_interface__["data"][0] - _owner(x).__array_interface__["data"][0]
            return Place(memory, start, x.shape, x.strides, x.dtype)
        return _map_nested(self.place, x)

    # --- noting ---

    def note(self, function: Callable[..., Any], *args: Any, elementwise: bool = False, **kwargs: Any) -> None:
        if threading.get_ident() != self._thread:
            raise UntraceableError("an op computes in several threads")
        places = tuple([self.place(a) for a in args])
        self.steps.append(Step(function, places, {k: self.place(v) for k, v in kwargs.items()}, elementwise))

    def note_result(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any], result: Any) -> Any:
        """Traced arrays for the result of a call: views need no step, new arrays are assigned to."""
        operands = _real((args, kwargs))
        if _is_view(result, operands):
            return Traced(result, self)
        if isinstance(result, (tuple, list)):
            if all(_is_view(r, operands) for r in result):
                return type(result)(Traced(r, self) for r in result)
            raise UntraceableError(f"{function} returns several new arrays")
        if not isinstance(result, (np.ndarray, np.generic, int, float, bool)):
            raise UntraceableError(f"{function} returns a {type(result).__name__}")
        new = self.new(np.asarray(result))
        self.note(_assign, new, function, args, kwargs)
        return new

    def note_whole(self, function: Callable[..., Any], args: Any, result: Any) -> Any:
        """One step for a call that is not looked into; its arrays are copied to places of their own."""
        copies = _map_arrays(lambda a: self.new(np.array(a, order="K")), result)
        self.note(_assign_nested, copies, function, args)
        return copies

    # --- watching ops ---

    def forward(self, op: Op[Any], forward: Callable[..., Any], *values: Any) -> Any:
        for generator in _generators_in(values):
            self.generators.setdefault(id(generator), (generator, dict(generator.bit_generator.state)))
        if op is uniform:
            generator, shape = values
            new = self.new(forward(generator, shape))
            self.note(generator.random, dtype=np.float32, out=new)
            return new
        return self._call(forward, values)

    def vjp(self, op: Op[Any], vjp: Callable[..., Any], node: Node, g: Array, recorded: bool) -> Sequence[Array]:
        if recorded:  # the rules call ops, which are watched themselves
            return vjp(node, g, recorded)  # type: ignore[no-any-return]
        pull: Any = functools.partial(_pull, vjp, node.plan)
        gradients: Sequence[Array] = self._call(pull, (node.saved, g))
        return gradients

    def _call(self, function: Callable[..., Any], values: tuple[Any, ...]) -> Any:
        begun = len(self.steps)
        try:
            result = function(*_map_arrays(lambda a: Traced(a, self), values))
        except UntraceableError:
            result = function(*_real(values))
        if isinstance(result, (int, float)):  # of an op that returns a number, which its caller makes an array of
            result = np.asarray(result)
        if not any(isinstance(leaf, (np.ndarray, np.generic)) for leaf in _leaves(result)):
            return result
        del self.steps[begun:]
        return self.note_whole(function, _real(values), _real(result))


class _Saved(NamedTuple):
    """What an op's vjp reads of a node."""

    plan: Any
    saved: Any


def _pull(vjp: Callable[..., Any], plan: Any, saved: Any, g: Array) -> Any:
    return vjp(_Saved(plan, saved), g, False)


def _assign(out: np.ndarray, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> None:
    result = function(*args, **kwargs)
    if np.shape(result) != out.shape:
        raise ChangedError
    out[...] = result


def _assign_nested(out: Any, function: Callable[..., Any], args: Any) -> None:
    for place, value in zip(_leaves(out), _leaves(function(*args)), strict=True):
        if isinstance(place, np.ndarray):
            if place.shape != value.shape or place.dtype != value.dtype:
                raise ChangedError
            place[...] = value
        elif place != value:
            raise ChangedError


def _check(value: np.ndarray, expected: Any, read: Callable[[Any], Any]) -> None:
    if read(value) != expected:
        raise ChangedError


# --- nested structures of arrays ---------------------------------------------------------------------------------


def _map_nested(f: Callable[[Any], Any], x: Any) -> Any:
    """The nest x with f applied to its items; anything but a list, tuple or dict is returned as it is."""
    if isinstance(x, (list, tuple)):
        items = [f(item) for item in x]
        return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
    if isinstance(x, dict):
        return {key: f(item) for key, item in x.items()}
    return x


def _map_arrays(f: Callable[[np.ndarray], Any], x: Any) -> Any:
    if isinstance(x, np.generic):
        x = np.asarray(x)
    return f(x) if isinstance(x, np.ndarray) else _map_nested(functools.partial(_map_arrays, f), x)


def _real(x: Any) -> Any:
    return x.array if isinstance(x, Traced) else _map_nested(_real, x)


def _leaves(x: Any) -> list[Any]:
    return flatten(x)[0]


def _arrays_in(x: Any) -> Iterator[np.ndarray]:
    return (leaf for leaf in _leaves(x) if isinstance(leaf, np.ndarray))


def _generators_in(x: Any) -> Iterator[np.random.Generator]:
    return (leaf for leaf in _leaves(x) if isinstance(leaf, np.random.Generator))


# --- arrays that report what is done to them ---------------------------------------------------------------------


class Traced(NDArrayOperatorsMixin):
    """Stands for a real array and notes every NumPy call that it takes part in."""

    __slots__ = ("array", "recorder")

    def __init__(self, array: np.ndarray, recorder: Recorder):
        self.array = array
        self.recorder = recorder

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
        recorder, real = self.recorder, _real(inputs)
        function = ufunc if method == "__call__" else getattr(ufunc, method)
        if method == "at":
            function(*real)
            recorder.note(function, *inputs)
            return None
        if out is not None and not isinstance(out[0], Traced):
            if out[0] is not inputs[0]:
                raise UntraceableError("a NumPy call writes to an array that was made unseen: make it with like=")
            out = None  # a += b with a constant a, which nobody else holds
        result = function(*real, **_real(kwargs), **({} if out is None else {"out": _real(out)}))
        if type(result) is tuple:
            raise UntraceableError(f"{ufunc} has several results")
        traced = recorder.new(np.asarray(result)) if out is None else out[0]
        elementwise = method == "__call__" and ufunc.signature is None and out is None and not kwargs
        recorder.note(function, *inputs, elementwise=elementwise, **kwargs, out=traced)
        return traced

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _call_noted(self.recorder, function, args, kwargs)

    def see_to_writing(self, function: Callable[..., None], args: tuple[Any, ...]) -> None:
        """See engine.write: the call is one step."""
        function(*_real(args))
        self.recorder.note(function, *args)

    def __getattr__(self, name: str) -> Any:
        method = getattr(np.ndarray, name)
        if name.startswith("_") or not callable(method):
            _complain_of_user()
            raise UntraceableError(f"an array's attribute {name} is asked for")
        if name in _READING:
            return lambda *args: self._read(lambda array: method(array, *args))
        return lambda *args, **kwargs: _call_noted(self.recorder, method, (self, *args), kwargs)

    def __getitem__(self, index: Any) -> Any:
        real = _real(index)
        result = self.array[real]
        if isinstance(result, np.generic):  # one element: as a 0-d array, which is a view of it
            index = (*index, ...) if isinstance(index, tuple) else (index, ...)
            result = self.array[_real(index)]
        if not any(isinstance(leaf, Traced) for leaf in _leaves(index)) and _owner(result) is _owner(self.array):
            return Traced(result, self.recorder)
        new = self.recorder.new(np.array(result, order="K"))
        self.recorder.note(_assign, new, operator.getitem, (self, index), {})
        return new

    def __setitem__(self, index: Any, value: Any) -> None:
        self.array[_real(index)] = _real(value)
        self.recorder.note(operator.setitem, self, index, value)

    def __bool__(self) -> bool:
        return bool(self._read(bool))

    def __int__(self) -> int:
        return int(self._read(int))

    def __float__(self) -> float:
        return float(self._read(float))

    def __index__(self) -> int:
        return int(self._read(operator.index))

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        _complain_of_user()
        raise UntraceableError("an array is taken for its values")

    def _read(self, read: Callable[[Any], Any]) -> Any:
        """A value that decides what is done next: inside an op it is noted, and checked when the program runs."""
        _complain_of_user()
        value = read(self.array)
        self.recorder.note(_check, self, value, read)
        return value


def _complain_of_user() -> None:
    """TypeError unless a value is read by minigrad itself, or within an op."""
    frame: Any = sys._getframe(2)
    while frame.f_globals.get("__name__") == __name__ and frame.f_code is not Recorder._call.__code__:
        frame = frame.f_back
    reader = frame.f_globals.get("__name__", "")
    if reader.startswith("minigrad.") and reader != Tensor.__module__:
        return
    above = frame
    while above is not None:
        if above.f_code is Recorder._call.__code__:
            return
        above = above.f_back
    file, line = caller(frame)
    raise TypeError(
        f"{file}:{line} reads a value while mg.compile records: what is read would be the same in every later run. "
        "Keep it an array (mg.where instead of if), or read it outside of the compiled function"
    )


_READING = {"item", "tolist", "tobytes"}
_STATIC = {np.shape, np.ndim, np.size, np.result_type, np.can_cast, np.iscomplexobj, np.isrealobj, np.broadcast_shapes}
_WRITING = {np.copyto, np.put, np.putmask, np.place, np.fill_diagonal, np.put_along_axis, np.ndarray.fill}
# Functions and methods whose results can be written to where they belong, as (function, keyword arguments).
_REDUCTIONS: dict[Any, tuple[np.ufunc, str]] = {
    function: (ufunc, name)
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
_TAKING = {np.take, np.ndarray.take}  # with mode="raise", the result is copied to `out` behind a buffer


def _call_noted(recorder: Recorder, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a NumPy function or an ndarray's method on the real arrays, and note it."""
    real, real_kwargs = _real(args), _real(kwargs)
    if function in _STATIC:
        return function(*real, **real_kwargs)
    if function in _WRITING:
        if not isinstance(args[0], Traced):
            raise UntraceableError("a NumPy call writes to an array that was made unseen: make it with like=")
        function(*real, **real_kwargs)
        recorder.note(function, *args, **kwargs)
        return None
    if kwargs.get("out") is not None:
        raise UntraceableError("only ufuncs are followed into given arrays")
    result = function(*real, **real_kwargs)
    if function in (np.empty, np.empty_like):
        return recorder.new(result)
    if function in (np.zeros, np.zeros_like):
        new = recorder.new(result)
        recorder.note(np.ndarray.fill, new, 0)
        return new
    if function in (np.ndarray.astype, np.ndarray.copy, np.copy) and _owner(result) is not _owner(args[0].array):
        new = recorder.new(result)
        recorder.note(np.copyto, new, args[0], casting="unsafe")
        return new
    if function is np.where and len(args) == 3 and getattr(args[0], "dtype", None) == np.bool_:
        new = recorder.new(result)
        recorder.note(np.copyto, new, args[2], casting="unsafe")
        recorder.note(np.copyto, new, args[1], casting="unsafe", where=args[0])
        return new
    if function in _REDUCTIONS and len(args) <= 2:
        reduce = _REDUCTIONS[function][0].reduce
        keywords = {"axis": args[1] if len(args) == 2 else None, **kwargs}
        new = recorder.new(np.array(result))
        if np.array_equal(reduce(real[0], **{**keywords, "out": np.empty_like(new.array)}), result, equal_nan=True):
            recorder.note(reduce, args[0], **keywords, out=new)
            return new
    with_out = function in _WITH_OUT or (function in _TAKING and kwargs.get("mode", "raise") != "raise")
    if with_out and not _is_view(result, real):
        new = recorder.new(np.asarray(result))
        recorder.note(function, *args, **kwargs, out=new)
        return new
    return recorder.note_result(function, args, kwargs, result)


def _is_view(result: Any, operands: Any) -> bool:
    return isinstance(result, np.ndarray) and any(_owner(result) is _owner(a) for a in _arrays_in(operands))


# --- a program ---------------------------------------------------------------------------------------------------

_ALIGNMENT = 64  # bytes: a cache line, and the widest vector register


class Workspace:
    """The memory that all programs of one compiled function share, since only one runs at a time."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)

    def at_least(self, size: int) -> np.ndarray:
        """Older programs keep the smaller memory that they have; it grows by halves, so that is little."""
        if len(self._bytes) < size:
            self._bytes = np.empty(max(size, len(self._bytes) * 3 // 2), np.uint8)
        return self._bytes


def plan_memory(steps: Sequence[Step]) -> int:
    """Give every Memory of the steps its offset, so that no two that are alive at once overlap; returns the size."""
    memories = {id(m): m for step in steps for m in _memories_in(step)}
    for i, step in enumerate(steps):
        if step.elementwise:
            _share(i, step)
    alone = sorted((m for m in memories.values() if m.shares is None), key=lambda m: m.first)
    placed: list[Memory] = []
    end = 0
    for memory in alone:
        placed = [m for m in placed if m.last >= memory.first]
        memory.offset = _first_gap(placed, memory.size)
        placed.append(memory)
        placed.sort(key=lambda m: m.offset)
        end = max(end, memory.offset + memory.size)
    for memory in memories.values():
        memory.offset = _root(memory).offset
    return end


def _memories_in(step: Step) -> Iterator[Memory]:
    stack: list[Any] = [step.args, step.kwargs]
    while stack:
        x = stack.pop()
        if isinstance(x, Place):
            yield x.memory
        elif isinstance(x, (list, tuple)):
            stack += x
        elif isinstance(x, dict):
            stack += x.values()


def _root(memory: Memory) -> Memory:
    while memory.shares is not None:
        memory = memory.shares
    return memory


def _share(i: int, step: Step) -> None:
    """Let an elementwise result take the place of an operand of the same layout that nobody needs any more."""
    out = step.kwargs["out"]
    for operand in step.args:
        if not isinstance(operand, Place) or (operand.strides, operand.dtype) != (out.strides, out.dtype):
            continue
        root = _root(operand.memory)
        whole = operand.shape == out.shape and operand.offset == out.offset == 0
        if whole and root.last == i and out.memory.first == i and root.size == out.memory.size:
            out.memory.shares = root
            root.last = out.memory.last
            return


def _first_gap(placed: Iterable[Memory], size: int) -> int:
    """The lowest aligned offset at which `size` bytes fit between those placed, which are sorted by offset."""
    offset = 0
    for memory in placed:
        if memory.offset - offset >= size:
            break
        offset = max(offset, -(-(memory.offset + memory.size) // _ALIGNMENT) * _ALIGNMENT)
    return offset


class Program:
    """What one run has recorded, ready to run again."""

    def __init__(
        self,
        recorder: Recorder,
        inputs: list[np.ndarray],
        loss: Any,
        gradients: list[Any],
        workspace: Workspace,
    ):
        self._inputs = inputs
        outputs = recorder.place((loss, gradients))  # used by no step, and needed after the last
        steps = recorder.forward_steps + recorder.backward_steps
        size = plan_memory(steps)
        memory = workspace.at_least(size + _ALIGNMENT)
        skip = -memory.ctypes.data % _ALIGNMENT
        arrays = functools.partial(_arrays_at_places, memory[skip:], {})
        self._loss, self._gradients = arrays(outputs)
        self._generators = [generator for generator, _ in recorder.generators.values()]
        ready = [step._replace(args=arrays(step.args), kwargs=arrays(step.kwargs)) for step in steps]
        n = len(recorder.forward_steps)
        self.source, (self._forward, self._backward) = _generated(ready[:n], ready[n:])

    def run(self, arguments: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
        """The loss and the gradients, in memory that the next run overwrites. ChangedError leaves no draw done."""
        states = [generator.bit_generator.state for generator in self._generators]
        for place, argument in zip(self._inputs, arguments):
            place[...] = argument
        try:
            self._forward()
            with np.errstate(all="ignore"):
                self._backward()
        except ChangedError:
            self._put_back(states)
            raise
        return self._loss, self._gradients

    def _put_back(self, states: list[Any]) -> None:
        for generator, before in zip(self._generators, states):
            generator.bit_generator.state = before

    @contextmanager
    def same_draws(self) -> Iterator[None]:
        """What is drawn within is drawn once more afterwards."""
        states = [generator.bit_generator.state for generator in self._generators]
        yield
        self._put_back(states)


def _arrays_at_places(memory: np.ndarray, made: dict[Any, np.ndarray], x: Any) -> Any:
    if isinstance(x, Place):
        key = (id(x.memory), *x[1:])
        if key not in made:
            made[key] = np.ndarray(x.shape, x.dtype, memory, x.memory.offset + x.offset, x.strides)
        return made[key]
    return _map_nested(functools.partial(_arrays_at_places, memory, made), x)


def _generated(*parts: Sequence[Step]) -> tuple[str, list[Callable[[], None]]]:
    """Python source of one function for each part, a line a call, and these functions.

    Straight code is the fastest way to make many calls, and it can be read.
    """
    names: dict[str, Any] = {}
    known: dict[int, str] = {}
    lines = []
    for i, steps in enumerate(parts):
        lines += [f"def part_{i}():", "    pass"]
        for step in steps:
            written = [_spelled(x, names, known) for x in step.args]
            written += [f"{key}={_spelled(x, names, known)}" for key, x in step.kwargs.items()]
            lines.append(f"    {_spelled(step.function, names, known)}({', '.join(written)})")
    source = "\n".join(lines) + "\n"
    exec(source, names)
    return source, [names[f"part_{i}"] for i in range(len(parts))]


def _spelled(x: Any, names: dict[str, Any], known: dict[int, str]) -> str:
    """x as a literal, or as a name that stands for it."""
    if x is None or type(x) in (bool, int, str) or (type(x) is tuple and all(type(i) is int for i in x)):
        return repr(x)
    if id(x) not in known:
        kind = x.__name__.strip("<>_") if callable(x) and hasattr(x, "__name__") else "a"
        known[id(x)] = name = f"{kind}_{len(known)}" if kind.isidentifier() else f"f_{len(known)}"
        names[name] = x
    return known[id(x)]


# --- compile -----------------------------------------------------------------------------------------------------

_TRIES = 3  # how often a program may turn out not to fit before its arguments' shapes are left to eager runs


class Compiled:
    """What `compile` returns: call it like the loss function; each call also does what loss.backward() would do."""

    def __init__(self, function: Callable[..., Any], check_every: int, cache: int):
        functools.update_wrapper(self, function)
        self._function = function
        self._check_every, self._cache = check_every, cache
        self._programs: OrderedDict[Any, _Recorded] = OrderedDict()
        self._failures: dict[Any, int] = {}
        self._workspace = Workspace()
        self._lock = threading.RLock()

    def __call__(self, *args: Any) -> Tensor:
        leaves, put_back = flatten(args)
        leaves = [_as_tensor(x) for x in leaves]
        if state.recording != ON or state.depth or observers:
            return self._run_eagerly(put_back(leaves))
        with self._lock:
            return self._run(leaves, put_back)

    def _run(self, leaves: list[Any], put_back: Callable[[list[Any]], Any]) -> Tensor:
        key = tuple([_signature(x) for x in leaves])
        if self._failures.get(key, 0) >= _TRIES:
            return self._run_eagerly(put_back(leaves))
        recorded = self._programs.get(key)
        if recorded is None or not recorded.fits():
            return self._record(key, leaves, put_back)
        if recorded.is_hooked(leaves):
            return self._run_eagerly(put_back(leaves))
        self._programs.move_to_end(key)
        recorded.runs += 1
        try:
            if self._check_every and recorded.runs % self._check_every == 0:
                return self._run_checked(recorded, leaves, put_back)
            return recorded.run(leaves)
        except ChangedError:
            self._failures[key] = self._failures.get(key, 0) + 1
            del self._programs[key]
            return self._run_eagerly(put_back(leaves))

    def _run_eagerly(self, args: Sequence[Any]) -> Tensor:
        loss = self._loss(args)
        loss.backward()
        return loss.detach()

    def _loss(self, args: Sequence[Any]) -> Tensor:
        loss = self._function(*args)
        if not isinstance(loss, Tensor) or loss.size != 1 or loss._node is None:
            what = f"a tensor of shape {loss.shape}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
            raise TypeError(
                f"mg.compile is for a function that returns a loss, one number that depends on something that requires "
                f"a gradient; {self._function.__name__} returned {what}"
            )
        return loss

    def _record(self, key: Any, leaves: list[Any], put_back: Callable[[list[Any]], Any]) -> Tensor:
        recorder = Recorder()
        inputs = [np.array(x._array, order="K") if isinstance(x, Tensor) else None for x in leaves]
        stand_ins = [x if a is None else wrap(Traced(a, recorder), x._node) for x, a in zip(leaves, inputs)]
        try:
            with watching(recorder):
                loss = self._loss(put_back(stand_ins))
                assert loss._node is not None
                nodes = _leaf_nodes(loss._node)
                recorder.turn_back()
                one = np.ones(loss.shape, loss.dtype)
                found = backward_pass([(loss._node, one)], inputs=set(nodes))
        except UntraceableError:
            self._failures[key] = _TRIES
            recorder.rewind()
            return self._run_eagerly(put_back(leaves))
        value, gradients = loss._array, [(node, found[node]) for node in nodes if node in found]
        del loss, found, stand_ins
        result = np.array(_real(value))
        for node, g in gradients:
            _add_gradient(node, _real(g))
        self._programs[key] = _Recorded(recorder, leaves, inputs, value, gradients, self._workspace)
        if len(self._programs) > self._cache:
            self._programs.popitem(last=False)
        return wrap(result, None)

    def _run_checked(self, recorded: _Recorded, leaves: list[Any], put_back: Callable[[list[Any]], Any]) -> Tensor:
        """A run that is compared with an eager one; RuntimeError where they differ."""
        with recorded.program.same_draws():
            loss = self._loss(put_back(leaves))
            assert loss._node is not None
            nodes = _leaf_nodes(loss._node)
            found = backward_pass([(loss._node, np.ones(loss.shape, loss.dtype))], inputs=set(nodes))
        value, gradients = recorded.compute(leaves)
        differences = [] if np.array_equal(value, loss._array, equal_nan=True) else [f"loss {value} against {loss:.9g}"]
        differences += [
            f"the gradient of shape {g.shape}"
            for node, g in gradients
            if node not in found or not np.array_equal(g, found[node], equal_nan=True)
        ]
        if differences or len(found) != len(gradients):
            raise RuntimeError(
                f"a compiled run of {self._function.__name__} differs from an eager one in {', '.join(differences)}: "
                "something that is not an argument has changed since it was recorded (train or eval mode, a Python "
                "number, a closed-over array): make it an argument, or compile anew"
            )
        return recorded.finish(value, gradients)


class _Recorded:
    """A program with what it belongs to: the parameters that it uses, and where its gradients go."""

    def __init__(
        self,
        recorder: Recorder,
        leaves: list[Any],
        inputs: list[np.ndarray | None],
        loss: Any,
        gradients: list[tuple[Node, Any]],
        workspace: Workspace,
    ):
        self.runs = 0
        self._places = [i for i, x in enumerate(inputs) if x is not None]
        arguments = {x._node: i for i, x in enumerate(leaves) if isinstance(x, Tensor) and x._node is not None}
        self._targets: list[Node | int] = [arguments.get(node, node) for node, _ in gradients]
        self._parameters = []
        for node in self._targets:
            if isinstance(node, Node):
                owner = owner_of(node)
                if owner is not None:
                    self._parameters.append((weakref.ref(owner), node, owner._array))
        self.program = Program(
            recorder, [x for x in inputs if x is not None], loss, [g for _, g in gradients], workspace
        )

    def fits(self) -> bool:
        """Whether the parameters still are where they were: an optimizer that is made later moves them."""
        for reference, node, array in self._parameters:
            owner = reference()
            if owner is None or owner._node is not node or owner._array is not array:
                return False
        return True

    def _nodes(self, leaves: list[Any]) -> list[Node]:
        return [leaves[target]._node if isinstance(target, int) else target for target in self._targets]

    def is_hooked(self, leaves: list[Any]) -> bool:
        return any(node.notes is not None and node.notes.hooks for node in self._nodes(leaves))

    def compute(self, leaves: list[Any]) -> tuple[np.ndarray, list[tuple[Node, np.ndarray]]]:
        loss, gradients = self.program.run([leaves[i]._array for i in self._places])
        return loss, list(zip(self._nodes(leaves), gradients))

    def finish(self, loss: np.ndarray, gradients: list[tuple[Node, np.ndarray]]) -> Tensor:
        for node, g in gradients:
            _add_gradient(node, g)
        return wrap(loss.copy(), None)

    def run(self, leaves: list[Any]) -> Tensor:
        return self.finish(*self.compute(leaves))


def _as_tensor(x: Any) -> Any:
    if isinstance(x, Tensor):
        if x._has_history():
            raise TypeError(
                "an argument of a compiled function has a history: pass .detach(), or compile what made it too"
            )
        return x
    return wrap(np.asarray(x), None) if isinstance(x, (np.ndarray, np.generic)) else x


def _signature(x: Any) -> Any:
    if isinstance(x, Tensor):
        a = x._array
        return a.shape, a.strides, a.dtype, x._node is not None
    return type(x), x


def _leaf_nodes(root: Node) -> list[Node]:
    """The leaves that lead to the root; UntraceableError if a tensor on the way has a hook or keeps its gradient."""
    seen, stack, leaves = {root}, [root], []
    while stack:
        node = stack.pop()
        if node.notes is not None and (node.notes.hooks or (node.notes.retain and not is_leaf(node))):
            raise UntraceableError("somebody watches a gradient")
        if is_leaf(node):
            leaves.append(node)
        for edge in node.edges:
            if edge not in seen:
                seen.add(edge)
                stack.append(edge)
    return leaves


def _add_gradient(node: Node, g: np.ndarray) -> None:
    notes = node.notes
    assert notes is not None
    if notes.grad is None:
        notes.grad = own(g)
    else:
        notes.grad += g


def compile(function: Callable[..., Any], *, check_every: int = 0, cache: int = 128) -> Compiled:
    """A function that does what loss = function(*args); loss.backward() does, faster, and returns the loss.

    The first call with arguments of new shapes or dtypes runs eagerly and records every NumPy call of the forward and
    the backward pass, with all memory planned; later ones run the list of these calls, and are bit-equal to eager runs.
    Gradients are added to `.grad` of all leaves; the optimizer's step stays outside.

    Arguments: arrays, tensors and nests of them, which enter the function as Tensors, and anything else, which is part
    of what is recorded (a call with another number records anew). So is everything else that the function uses: train
    or eval mode, Python numbers, lengths of lists; scalars that change are passed as 0-d arrays. check_every: compare
    each n-th run with an eager one, and raise RuntimeError where they differ. cache: how many recordings are kept.

    Reading a value in the function (float, bool, .item(), .numpy()) is a TypeError that names the line. Dropout draws
    anew in every run. With hooks, captures or anomaly detection the function runs eagerly.

    >>> import minigrad as mg
    >>> w = mg.tensor([1.0, 2.0], requires_grad=True)
    >>> step = compile(lambda x: ((w * x) ** 2).sum())
    >>> step(np.array([1.0, 1.0])), step(np.array([2.0, 0.0]))
    (tensor(5.), tensor(4.))
    >>> w.grad
    array([10.,  4.])
    """
    if check_every < 0 or cache < 1:
        raise ValueError(f"check_every is at least 0 and cache at least 1, not {check_every} and {cache}")
    return Compiled(function, check_every, cache)
