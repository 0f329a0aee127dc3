"""The recorder: it watches all ops of one run, is told of every NumPy call by Traced arrays, and notes the steps."""

from __future__ import annotations

import functools
import math
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from minigrad.compiled.calls import BY_VALUES, call_noted
from minigrad.compiled.lanes import ELEMENT
from minigrad.compiled.steps import (
    Memory,
    Place,
    Step,
    UntraceableError,
    assign,
    assign_nested,
    generators_in,
    is_view,
    leaves_of,
    map_arrays,
    map_nested,
)
from minigrad.compiled.traced import Traced, TracedScalar, real_of
from minigrad.engine import Array, Node, buffer_of
from minigrad.kernels.pieces import cut
from minigrad.op import Op
from minigrad.random import uniform
from minigrad.tensor import Tensor

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

    def has_lost_a_tensor(self) -> bool:
        """Whether one from before the run is gone: then the function has put another in its place (a running mean)."""
        return any(reference() is None for reference, _, _ in self._tensors.values())

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

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a NumPy function or an ndarray's method on the real arrays, and note it."""
        return call_noted(self, function, args, kwargs)

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
        if is_view(result, operands):
            if function in BY_VALUES or _decided_by_another(result, (args, kwargs)):
                return self.note_copied_view(function, args, kwargs, result)
            return Traced(result, self)
        if isinstance(result, (tuple, list)):
            if all(is_view(r, operands) and not _decided_by_another(r, (args, kwargs)) for r in result):
                return type(result)(Traced(r, self) for r in result)
            self.refuse(f"{function} returns several new arrays")
        if not isinstance(result, (np.ndarray, np.generic, int, float, bool)):
            self.refuse(f"{function} returns a {type(result).__name__}")
        new = self.new(result)
        self.note(assign, new, function, args, kwargs)
        return new

    def note_copied_view(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any], view: Any) -> Traced:
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


def _outputs(y: Any) -> Any:
    """What an op returned, with arrays in the place of scalars, as it makes Tensors of them."""
    if type(y) is tuple:
        return tuple(map(_outputs, y))
    return Traced(y.array, y.recorder) if isinstance(y, TracedScalar) else y


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


def _decided_by_another(view: np.ndarray, operands: Any) -> bool:
    """Whether a Traced number says where or how large the view is: an axis, a part of a shape."""
    buffer = buffer_of(view)
    return any(isinstance(leaf, Traced) and buffer_of(leaf.array) is not buffer for leaf in leaves_of(operands))
