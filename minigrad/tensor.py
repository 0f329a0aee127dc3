"""Tensor: an array and how it was computed. Operators, ndarray-like methods, and the two NumPy protocols.

The methods are real methods, so that editors and type checkers see them; each finds its op by name in the registry.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import EllipsisType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, SupportsIndex, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from minigrad.engine import (
    NUMPY_CONSTANTS,
    NUMPY_OPS,
    OPS,
    Array,
    Node,
    Notes,
    backward_pass,
    check_function,
    is_leaf,
    leaf,
    load_ops,
    note_write,
    state,
)
from minigrad.habits import hint

Axes: TypeAlias = "int | tuple[int, ...] | None"
Index: TypeAlias = "int | slice | EllipsisType | np.ndarray | Sequence[Any] | tuple[Any, ...] | Tensor | None"
TensorLike: TypeAlias = "Tensor | ArrayLike"

_hook_keys = itertools.count()


class _Op(Protocol):
    """What this file knows of an op, which is declared further up the house."""

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor: ...
    def of_two(self, a: Any, b: Any) -> Tensor: ...


_ops = cast("dict[str, _Op]", OPS)


def _first_time(name: str, a: Any, b: Any) -> Tensor:
    _of_two[name] = _ops[name].of_two
    return _of_two[name](a, b)


# What the operators call. A plain dict of bound methods costs them less than the registry; it fills as they are used.
_of_two: dict[str, Callable[[Any, Any], Tensor]] = {
    name: partial(_first_time, name)
    for name in ("add", "subtract", "multiply", "divide", "power", "matmul", "remainder")
}


class HookHandle:
    """What register_hook returns: remove() takes that hook off again."""

    __slots__ = ("_hooks", "_key")

    def __init__(self, hooks: dict[int, Callable[[Any], Any]], key: int):
        self._hooks = hooks
        self._key = key

    def remove(self) -> None:
        self._hooks.pop(self._key, None)


class Tensor:
    """An array that remembers how it was computed, so that backward() can differentiate through it.

    Made by `mg.tensor`, which copies its argument, and by every op. It behaves like the ndarray it holds; NumPy's
    functions (`np.exp(t)`) and operators are recorded.

    >>> import minigrad as mg
    >>> x = mg.tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    array([2., 4.])
    """

    __slots__ = ("__weakref__", "_array", "_node")
    _array: np.ndarray
    _node: Node | None
    _keeps_identity: ClassVar[bool] = False
    """Whether in-place arithmetic under no_grad writes to it even when it requires no gradient, as to a leaf."""

    def __init__(self, x: TensorLike, *, dtype: DTypeLike | None = None, requires_grad: bool = False):
        if isinstance(x, Tensor):
            if x._has_history():
                raise TypeError("a new tensor of one with a history would lose it silently: use .detach() or .copy()")
            x = x._array
        array = np.array(x, dtype=dtype, order="C")
        if array.dtype.kind not in "fbiu":
            raise TypeError(f"a tensor holds real numbers or booleans, and this would be of dtype {array.dtype}")
        self._array = array
        self._node = None
        if requires_grad:
            self._node = self._new_leaf()

    # --- what it holds ---

    @property
    def data(self) -> np.ndarray:
        """The value, as a read-only view."""
        view: np.ndarray = self._array.view()
        view.flags.writeable = False
        return view

    def numpy(self) -> np.ndarray:
        """The value, as a read-only view; `.numpy().copy()` is yours to write to."""
        return self.data

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    @property
    def ndim(self) -> int:
        return self._array.ndim

    @property
    def size(self) -> int:
        return self._array.size

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._array.dtype

    def item(self) -> Any:
        """The one element as a Python number; ValueError when there are more."""
        return self._array.item()

    def tolist(self) -> Any:
        return self._array.tolist()

    # --- gradients ---

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient reaches this tensor in backward; can be set on tensors that no op has made."""
        return self._node is not None

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        if wanted == (self._node is not None):
            return
        if not wanted and self._has_history():
            raise RuntimeError("only a leaf can stop requiring a gradient: use .detach() on a tensor that an op made")
        self._node = self._new_leaf() if wanted else None

    def _new_leaf(self) -> Node:
        if self.dtype.kind != "f":
            raise TypeError(
                f"only floating tensors can require gradients, and this one is of dtype {self.dtype}: "
                "pass dtype=float (or numpy.float32)"
            )
        return leaf(self)

    @property
    def grad(self) -> np.ndarray | None:
        """The gradient that backward has added up here: an ndarray of the same shape and dtype, or None."""
        notes = self._node.notes if self._node is not None else None
        return notes.grad if notes is not None else None

    @grad.setter
    def grad(self, value: ArrayLike | None) -> None:
        if value is None:
            if self._node is not None and self._node.notes is not None:
                self._node.notes.grad = None
            return
        given = _of_dtype(np.asarray(value), self.dtype, "a gradient")
        if given.shape != self.shape:
            raise ValueError(f"a gradient of shape {given.shape} was given to a tensor of shape {self.shape}")
        self._notes("be given a gradient").grad = given.copy()

    def _notes(self, purpose: str) -> Notes:
        if self._node is None:
            raise RuntimeError(f"a tensor that does not require a gradient cannot {purpose}: set requires_grad=True")
        if self._node.notes is None:
            self._node.notes = Notes()
        return self._node.notes

    def _has_history(self) -> bool:
        return self._node is not None and not is_leaf(self._node)

    def backward(self, cotangent: TensorLike | None = None, retain_graph: bool = False) -> None:
        """Add the gradient of this tensor, times `cotangent`, to the `.grad` of every leaf it was computed from.

        cotangent: this tensor's shape; it may be left out when there is one element (it is then 1).
        retain_graph: keep what the pass used, so that a second one can follow.
        Raises RuntimeError without a graph or with a freed one, ValueError for a missing or misshapen cotangent.
        Nothing is written to any `.grad` unless the whole pass succeeds.
        """
        if self._node is None:
            raise RuntimeError(
                "backward() needs a tensor that was computed from one with requires_grad=True (outside no_grad)"
            )
        backward_pass([(self._node, self._cotangent(cotangent))], retain=retain_graph)

    def _cotangent(self, given: TensorLike | None) -> np.ndarray:
        if given is None:
            if self.size != 1:
                raise ValueError(
                    f"backward() from a tensor of shape {self.shape} needs a cotangent of that shape: "
                    "reduce it to one number first (.sum(), .mean()), or pass backward(cotangent)"
                )
            if self.dtype.kind == "c":
                raise TypeError("backward() starts from a real number, and this one is complex: take mg.real or mg.abs")
            return np.array(1, self.dtype, ndmin=self.ndim)
        array = np.asarray(given._array if isinstance(given, Tensor) else given)
        array = _of_dtype(array, self.dtype, "a cotangent")
        if array.shape != self.shape:
            raise ValueError(
                f"the cotangent has shape {array.shape} and the tensor has shape {self.shape}: they must be equal"
                " (a cotangent is never broadcast)"
            )
        return array

    def retain_grad(self) -> None:
        """Keep this tensor's gradient in `.grad` in the next backward pass, as leaves always do."""
        self._notes("keep its gradient").retain = True

    def register_hook(self, hook: Callable[[Any], Any]) -> HookHandle:
        """Call hook(gradient) when this tensor's gradient is complete; an array that it returns takes its place.

        TypeError for what is no function; in backward ValueError for a replacement of another shape.
        """
        check_function(hook, "register_hook")
        hooks = self._notes("have a gradient hook").hooks
        key = next(_hook_keys)
        hooks[key] = hook
        return HookHandle(hooks, key)

    def detach(self) -> Tensor:
        """The same array (shared, not copied) without its history."""
        return wrap(self._array, None)

    def astype(self, dtype: DTypeLike) -> Tensor:
        """As another dtype; a constant if that is neither a floating nor a complex one."""
        if np.dtype(dtype).kind not in "fc":
            return wrap(self._array.astype(dtype), None)
        return call("astype", self, np.dtype(dtype))

    def copy(self) -> Tensor:
        """A recorded copy in memory of its own."""
        return call("copy", self)

    # --- Python's protocols ---

    if not TYPE_CHECKING:  # a type checker would believe that there is every attribute

        def __getattr__(self, name):
            """Only reached for what is missing."""
            wanted = hint(name, OPS)
            here = f" (in minigrad: {wanted})" if wanted else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{here}", name=name, obj=self)

    def __repr__(self) -> str:
        name = type(self).__name__.lower()
        parts = [np.array2string(self._array, separator=", ", prefix=f"{name}(")]
        if self.dtype not in (np.dtype(float), np.dtype(int), np.dtype(bool)):
            parts.append(f"dtype={self.dtype}")
        if self._node is not None:
            made_by = self._node.edges[0].op if self._node.op is None and self._node.edges else self._node.op
            parts.append(f"op={made_by}" if made_by is not None else "requires_grad=True")
        return f"{name}({', '.join(parts)})"

    def __format__(self, spec: str) -> str:
        return format(self.item() if spec and self.size == 1 else str(self), spec)

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        return self._array.__index__()

    def __bool__(self) -> bool:
        return bool(self._array)

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[Tensor]:
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d tensor")
        return (self[i] for i in range(len(self)))

    def __contains__(self, x: object) -> bool:
        return bool((self == x).any())

    __hash__ = object.__hash__

    def __reduce__(self) -> Any:
        """For copy, deepcopy and pickle: a leaf or constant, its gradient included, without its hooks."""
        if self._has_history():
            raise RuntimeError("a tensor with history cannot be copied or pickled: use .detach() or .copy()")
        return _rebuild, (type(self), self._array.copy(), self.requires_grad, self.grad)

    # --- NumPy's protocols ---

    if not TYPE_CHECKING:  # seen by a type checker, it would make np.exp(t) an ndarray

        def __array__(self, dtype=None, copy=None):
            if self._node is not None:
                raise TypeError(
                    "a tensor that requires a gradient does not turn into an array silently: "
                    "mg.stack([...]) joins tensors; .numpy() or .data is the value, .detach() a constant tensor"
                )
            if copy is False and dtype is not None and np.dtype(dtype) != self.dtype:
                raise ValueError(
                    f"a tensor of dtype {self.dtype} cannot become an array of dtype {dtype} without a copy"
                )
            return np.array(self._array, dtype) if copy else np.asarray(self.data, dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "reduce" and (name := _REDUCTIONS.get(ufunc)) is not None:
            return call(name, *inputs, **{"axis": 0, **kwargs})
        if method != "__call__":
            raise TypeError(f"numpy.{ufunc.__name__}.{method} is not differentiable in minigrad: use an op of mg.*")
        return self.__array_function__(ufunc, (), inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        load_ops()
        op = NUMPY_OPS.get(function)
        if op is not None:
            if kwargs.get("out") is not None:
                raise TypeError(f"numpy.{function.__name__}: out= would overwrite an array; use the result instead")
            return op(*args, **kwargs)
        if function in NUMPY_CONSTANTS:
            _check_constants(function, args, kwargs)
            return function(*map(_value, args), **{k: _value(v) for k, v in kwargs.items()})
        name = f"{getattr(function, '__module__', None) or 'numpy'}.{function.__name__}"
        todo = "mg.full_like(x, value) or mg.where" if function is np.copyto else "an op of mg.*"
        raise TypeError(
            f"{name} is not supported on tensors: use {todo}, declare one with @mg.op, or pass .numpy() for a constant"
        )

    # --- operators ---

    def __add__(self, other: TensorLike) -> Tensor:
        return _of_two["add"](self, other)

    def __radd__(self, other: TensorLike) -> Tensor:
        return _of_two["add"](other, self)

    def __sub__(self, other: TensorLike) -> Tensor:
        return _of_two["subtract"](self, other)

    def __rsub__(self, other: TensorLike) -> Tensor:
        return _of_two["subtract"](other, self)

    def __mul__(self, other: TensorLike) -> Tensor:
        return _of_two["multiply"](self, other)

    def __rmul__(self, other: TensorLike) -> Tensor:
        return _of_two["multiply"](other, self)

    def __truediv__(self, other: TensorLike) -> Tensor:
        return _of_two["divide"](self, other)

    def __rtruediv__(self, other: TensorLike) -> Tensor:
        return _of_two["divide"](other, self)

    def __pow__(self, other: TensorLike) -> Tensor:
        return _of_two["power"](self, other)

    def __rpow__(self, other: TensorLike) -> Tensor:
        return _of_two["power"](other, self)

    def __matmul__(self, other: TensorLike) -> Tensor:
        return _of_two["matmul"](self, other)

    def __rmatmul__(self, other: TensorLike) -> Tensor:
        return _of_two["matmul"](other, self)

    def __mod__(self, other: TensorLike) -> Tensor:
        return _of_two["remainder"](self, other)

    def __rmod__(self, other: TensorLike) -> Tensor:
        return _of_two["remainder"](other, self)

    def __neg__(self) -> Tensor:
        return call("negative", self)

    def __pos__(self) -> Tensor:
        return call("copy", self)

    def __abs__(self) -> Tensor:
        return call("abs", self)

    # Floor division, comparisons and logic have no gradient and give plain arrays.

    def __floordiv__(self, other: Any) -> Any:
        return self._array // _value(other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _value(other) // self._array

    def __divmod__(self, other: TensorLike) -> tuple[Any, Tensor]:
        return self // other, self % other

    def __rdivmod__(self, other: TensorLike) -> tuple[Any, Tensor]:
        return self.__rfloordiv__(other), self.__rmod__(other)

    def __eq__(self, other: Any) -> Any:
        return self._array == _value(other)

    def __ne__(self, other: Any) -> Any:
        return self._array != _value(other)

    def __lt__(self, other: Any) -> Any:
        return self._array < _value(other)

    def __le__(self, other: Any) -> Any:
        return self._array <= _value(other)

    def __gt__(self, other: Any) -> Any:
        return self._array > _value(other)

    def __ge__(self, other: Any) -> Any:
        return self._array >= _value(other)

    def __and__(self, other: Any) -> Any:
        return self._array & _value(other)

    def __rand__(self, other: Any) -> Any:
        return _value(other) & self._array

    def __or__(self, other: Any) -> Any:
        return self._array | _value(other)

    def __ror__(self, other: Any) -> Any:
        return _value(other) | self._array

    def __xor__(self, other: Any) -> Any:
        return self._array ^ _value(other)

    def __rxor__(self, other: Any) -> Any:
        return _value(other) ^ self._array

    def __invert__(self) -> Any:
        return ~self._array

    # `t += x` is `t = t + x`, recorded; only on a leaf or nn.Parameter under no_grad does it write in place.

    def __iadd__(self, other: TensorLike) -> Tensor:
        return self._augmented("add", np.add, other)

    def __isub__(self, other: TensorLike) -> Tensor:
        return self._augmented("subtract", np.subtract, other)

    def __imul__(self, other: TensorLike) -> Tensor:
        return self._augmented("multiply", np.multiply, other)

    def __itruediv__(self, other: TensorLike) -> Tensor:
        return self._augmented("divide", np.divide, other)

    def __ipow__(self, other: TensorLike) -> Tensor:
        return self._augmented("power", np.power, other)

    def __imatmul__(self, other: TensorLike) -> Tensor:
        return self._augmented("matmul", np.matmul, other)

    def __imod__(self, other: TensorLike) -> Tensor:
        return self._augmented("remainder", np.remainder, other)

    def __ifloordiv__(self, other: Any) -> Any:
        if not self._is_written_in_place():
            return self // other
        return self._augmented("floor_divide", np.floor_divide, other)

    def _is_written_in_place(self) -> bool:
        if self._node is None:
            return self._keeps_identity and not state.recording
        return not self._has_history()

    def _augmented(self, name: str, ufunc: np.ufunc, other: TensorLike) -> Tensor:
        if not self._is_written_in_place():
            return call(name, self, other)
        if state.recording:
            raise RuntimeError(
                "in-place arithmetic on a leaf that requires a gradient would lose the leaf: "
                "write it under mg.no_grad() to update it, or as t = t + x to go on computing"
            )
        ufunc(self._array, _value(other), out=self._array, casting="same_kind")
        note_write(self._array)
        return self

    def __getitem__(self, index: Index) -> Tensor:
        return call("getitem", self, index)

    def __setitem__(self, index: Index, value: TensorLike) -> None:
        if self._has_history() or (self._node is not None and state.recording):
            raise RuntimeError(
                "item assignment would change a value that its gradient needs: use mg.index_put(t, index, value) or "
                "mg.where(condition, x, t), or write to a leaf under mg.no_grad()"
            )
        if state.recording and _is_tracked(value, "fc"):
            raise RuntimeError(
                "item assignment would silently lose the history of the value: use mg.index_put(t, index, value), "
                "or assign value.detach()"
            )
        self._array[_value(index)] = _value(value)
        note_write(self._array)

    # --- ndarray's methods ---

    def sum(self, axis: Axes = None, keepdims: bool = False, initial: Any = None, where: Any = True) -> Tensor:
        return call("sum", self, axis, keepdims, initial, where)

    def mean(self, axis: Axes = None, keepdims: bool = False, where: Any = True) -> Tensor:
        return call("mean", self, axis, keepdims, where)

    def var(self, axis: Axes = None, ddof: int = 0, keepdims: bool = False, where: Any = True) -> Tensor:
        return call("var", self, axis, ddof, keepdims, where)

    def std(self, axis: Axes = None, ddof: int = 0, keepdims: bool = False, where: Any = True) -> Tensor:
        return call("std", self, axis, ddof, keepdims, where)

    def max(self, axis: Axes = None, keepdims: bool = False, initial: Any = None, where: Any = True) -> Tensor:
        return call("max", self, axis, keepdims, initial, where)

    def min(self, axis: Axes = None, keepdims: bool = False, initial: Any = None, where: Any = True) -> Tensor:
        return call("min", self, axis, keepdims, initial, where)

    def prod(self, axis: Axes = None, keepdims: bool = False, initial: Any = None, where: Any = True) -> Tensor:
        return call("prod", self, axis, keepdims, initial, where)

    def cumsum(self, axis: int | None = None) -> Tensor:
        return call("cumsum", self, axis)

    def cumprod(self, axis: int | None = None) -> Tensor:
        return call("cumprod", self, axis)

    def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
        return call("trace", self, offset, axis1, axis2)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
        return call("diagonal", self, offset, axis1, axis2)

    def take(self, indices: ArrayLike, axis: int | None = None, mode: str = "raise") -> Tensor:
        return call("take", self, indices, axis, mode)

    def compress(self, condition: ArrayLike, axis: int | None = None) -> Tensor:
        return call("compress", condition, self, axis)

    def repeat(self, repeats: ArrayLike, axis: int | None = None) -> Tensor:
        return call("repeat", self, repeats, axis)

    def reshape(self, *shape: Any) -> Tensor:
        return call("reshape", self, shape[0] if len(shape) == 1 else shape)

    def ravel(self) -> Tensor:
        return call("reshape", self, (self.size,))

    def flatten(self) -> Tensor:
        return call("reshape", self, (self.size,))

    def transpose(self, *axes: Any) -> Tensor:
        return call("transpose", self, None if not axes else axes[0] if len(axes) == 1 else axes)

    @property
    def T(self) -> Tensor:  # noqa: N802
        return call("transpose", self, None)

    @property
    def mT(self) -> Tensor:  # noqa: N802
        """The matrices of the last two axes, transposed."""
        return call("swapaxes", self, -1, -2)

    @property
    def real(self) -> Tensor:
        return call("real", self)

    @property
    def imag(self) -> Tensor:
        return call("imag", self)

    def conj(self) -> Tensor:
        return call("conj", self)

    def swapaxes(self, axis1: SupportsIndex, axis2: SupportsIndex) -> Tensor:
        return call("swapaxes", self, axis1, axis2)

    def squeeze(self, axis: Axes = None) -> Tensor:
        return call("squeeze", self, axis)

    def clip(self, min: TensorLike | None = None, max: TensorLike | None = None) -> Tensor:
        return call("clip", self, min, max)

    def dot(self, other: TensorLike) -> Tensor:
        return call("dot", self, other)

    # Without a gradient, and so plain arrays:

    def argmax(self, axis: int | None = None, keepdims: bool = False) -> Any:
        return np.argmax(self._array, axis, keepdims=keepdims)

    def argmin(self, axis: int | None = None, keepdims: bool = False) -> Any:
        return np.argmin(self._array, axis, keepdims=keepdims)

    def argsort(self, axis: int | None = -1) -> Any:
        return self._array.argsort(axis)

    def argpartition(self, kth: Any, axis: int | None = -1) -> Any:
        return self._array.argpartition(kth, axis)

    def nonzero(self) -> tuple[Any, ...]:
        return self._array.nonzero()

    def searchsorted(self, v: TensorLike, side: Literal["left", "right"] = "left", sorter: Any = None) -> Any:
        return np.searchsorted(self._array, _value(v), side, sorter)

    def any(self, axis: Any = None, keepdims: bool = False) -> Any:
        return self._array.any(axis, keepdims=keepdims)

    def all(self, axis: Any = None, keepdims: bool = False) -> Any:
        return self._array.all(axis, keepdims=keepdims)

    def round(self, decimals: int = 0) -> Any:
        return self._array.round(decimals)


_new = Tensor.__new__


def wrap(array: Array, node: Node | None) -> Tensor:
    """A Tensor around an array that nobody else will write to; not copied, not checked."""
    t = _new(Tensor)
    t._array = array
    t._node = node
    return t


def as_leaf(array: Array) -> Tensor:
    """A leaf around this very array, not copied, of any kind of number."""
    t = wrap(array, None)
    t._node = leaf(t)
    return t


def tensor(x: TensorLike, *, dtype: DTypeLike | None = None, requires_grad: bool = False) -> Tensor:
    """A tensor that holds a copy of `x` (an array, number, nested list or tensor).

    dtype: NumPy's choice for `x` unless given. requires_grad: only for floating dtypes, else TypeError.

    >>> tensor([[1, 2], [3, 4]], dtype=float, requires_grad=True)
    tensor([[1., 2.],
            [3., 4.]], requires_grad=True)
    """
    return Tensor(x, dtype=dtype, requires_grad=requires_grad)


@contextmanager
def lent(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> Iterator[None]:
    """Let the tensors have the values, and their history, for a while.

    A graph refers to nodes, not to tensors, so lending a parameter another array and node disturbs none. What runs
    again later (a checkpoint) asks state.lent.
    """
    before, outer = [(t._array, t._node) for t in tensors], state.lent
    state.lent = (*outer, (tensors, values))
    try:
        for t, value in zip(tensors, values):
            t._array, t._node = value._array, value._node
        yield
    finally:
        state.lent = outer
        for t, (array, node) in zip(tensors, before):
            t._array, t._node = array, node


def call(name: str, *args: Any, **kwargs: Any) -> Tensor:
    return _ops[name](*args, **kwargs)


def _value(x: Any) -> Any:
    """x with the values of tensors in place of the tensors, also inside lists and tuples (an index)."""
    if isinstance(x, Tensor):
        return x._array
    return type(x)(map(_value, x)) if type(x) in (tuple, list) else x


def _check_constants(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """TypeError for a tensor with a gradient where the function would lose one that is not zero."""
    kinds = "c" if function is np.sign else "fc"
    for name, position in NUMPY_CONSTANTS[function].items():
        given = kwargs[name] if name in kwargs else args[position : position + 1]
        constant(given, f"numpy.{function.__name__}", name, kinds)


def constant(x: Any, who: str, argument: str, kinds: str = "fc") -> Any:
    """The value of an argument that has no gradient: TypeError for a tensor, of these kinds, that requires one."""
    if state.recording and _is_tracked(x, kinds):
        raise TypeError(f"{who} has no gradient with respect to {argument!r}: pass a constant there (t.detach())")
    return _value(x)


def _is_tracked(x: Any, kinds: str) -> bool:
    if isinstance(x, (tuple, list)):
        return any(_is_tracked(item, kinds) for item in x)
    return isinstance(x, Tensor) and x._node is not None and x.dtype.kind in kinds


def _of_dtype(array: np.ndarray, dtype: np.dtype[Any], what: str) -> np.ndarray:
    """TypeError for what is no number, which NumPy might make NaN of (None), and for complex numbers as real ones."""
    if array.dtype.kind not in ("fciub" if dtype.kind == "c" else "fiub"):
        raise TypeError(f"{what} of dtype {array.dtype} was given to a tensor of dtype {dtype}")
    return array.astype(dtype, copy=False)


def _rebuild(cls: type[Tensor], array: np.ndarray, requires_grad: bool, grad: np.ndarray | None) -> Tensor:
    t = cls.__new__(cls)
    t._array = array
    t._node = None
    if requires_grad:
        t._node = t._new_leaf()
    t.grad = grad
    return t


_REDUCTIONS: dict[np.ufunc, str] = {np.add: "sum", np.multiply: "prod", np.maximum: "max", np.minimum: "min"}
