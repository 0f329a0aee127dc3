"""The recorded graph and the backward pass over it: nodes, grad mode, writes in place, ops by name. No mathematics.

A graph is plain data. Every recorded call leaves one `Node` with its op, what its gradient rules need, and edges to
the nodes of its operands. Edges hold nodes, never tensors, so a graph has no reference cycles and a result that is
dropped frees it.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from heapq import heappop, heappush, heappushpop
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import numpy as np

# What op declarations and gradient rules handle: an ndarray in a plain pass, a Tensor in a recorded one.
Array = Any
F = TypeVar("F", bound=Callable[..., Any])

# One clock for nodes and for in-place writes: a node's edges always carry earlier ticks than the node itself, so
# descending ticks are a topological order; and "written since it was saved" is a comparison of two ticks.
_clock = itertools.count(1)
next_tick = _clock.__next__


ON, COMPLETE = 1, 2  # recording what rules need; recording every argument, the output and the caller's line too


class _State(threading.local):
    """What each thread has for itself: how calls are recorded, how many transforms are running, and who watches."""

    recording: int = ON  # 0: not at all
    mode: int = ON  # what recording is switched on to
    depth: int = 0
    watchers: tuple[Any, ...] = ()  # of the ops' calls (minigrad.op.watching)
    lent: tuple[Any, ...] = ()  # which tensors have the values of which others for a while (minigrad.tensor.lent)


state = _State()

# The hooks, captures and patches that watch or replace what modules compute, held by whoever has them. In ordinary runs
# there are none; while there are some, what was compiled runs eagerly, so that they see what they came for.
observers: weakref.WeakSet[Any] = weakref.WeakSet()


# --- the graph ---------------------------------------------------------------------------------------------------


class Notes:
    """What only some nodes have: hooks, a gradient that is kept (leaves; others after retain_grad), the whole call."""

    __slots__ = ("call", "grad", "hooks", "retain")

    def __init__(self, retain: bool = False) -> None:
        self.grad: np.ndarray | None = None
        self.hooks: dict[int, Callable[[Any], Any]] = {}
        self.retain = retain
        self.call: Call | None = None


class Call(NamedTuple):
    """A recorded call in full: every argument, the output, and the file and line outside minigrad that made it.

    edges, tracked: the nodes of the differentiable operands, which stay here when a backward pass frees the graph, and
    their positions among the arguments (for an argument that is a sequence: among its items). modules: the modules in
    whose methods the call was made, outermost first.
    """

    arguments: Sequence[Any]
    output: Any
    file: str
    line: int
    edges: tuple[Node, ...]
    tracked: tuple[int, ...]
    modules: tuple[Any, ...]


class Node:
    """One recorded call, or a leaf (op None, no edges), or a transform's input (op None, perhaps one edge).

    to: where its edges lead, one node or a tuple of nodes (one in a tuple would be another object for the garbage
    collector, which goes over all that live). levels has the bit 1 << k set when the node depends on an input of a
    running transform of depth k.
    """

    __slots__ = ("__weakref__", "dtype", "levels", "notes", "op", "plan", "saved", "shape", "tick", "to")
    op: Any
    plan: Any
    saved: Any
    to: Node | tuple[Node, ...]
    levels: int
    shape: Any
    dtype: Any
    tick: int
    notes: Notes | None

    @property
    def edges(self) -> tuple[Node, ...]:
        """The nodes of its operands."""
        to = self.to
        return to if isinstance(to, tuple) else (to,)


class OutputNode(Node):
    """Output number `index` of a call with several outputs; its one edge leads to the call's node."""

    __slots__ = ("index",)
    index: int


def new_node(op: Any, plan: Any, saved: Any, edges: tuple[Node, ...], levels: int, shape: Any, dtype: Any) -> Node:
    """A node with these fields and the next tick; in the place of an __init__, which would take twice as long."""
    node = Node()
    node.op = op
    node.plan = plan
    node.saved = saved
    node.to = edges[0] if len(edges) == 1 else edges
    node.levels = levels
    node.shape = shape
    node.dtype = dtype
    node.tick = next_tick()
    node.notes = None
    return node


def output_node(call: Node, index: int) -> OutputNode:
    """The node of one output of a call with several."""
    node = OutputNode()
    node.op = node.plan = node.saved = node.notes = None
    node.to, node.levels = call, call.levels
    node.shape, node.dtype = call.shape[index], call.dtype[index]
    node.tick, node.index = next_tick(), index
    return node


def leaf(tensor: Any) -> Node:
    """The node of a tensor that requires a gradient and was made by no op; it owns the gradient."""
    node = new_node(None, None, None, (), 0, tensor.shape, tensor.dtype)
    node.notes = Notes(retain=True)
    return node


def is_leaf(node: Node) -> bool:
    """Whether it is no op's, nor a transform's input: it owns its gradient."""
    return node.op is None and not node.to and not node.levels


def keep_call(node: Node, arguments: Sequence[Any], output: Any, tracked: tuple[int, ...]) -> None:
    """Note the whole call on its node, as study.recording() asks, and have its gradient kept like a leaf's."""
    frame = sys._getframe(2)
    file, line = caller(frame)
    if node.notes is None:
        node.notes = Notes()
    node.notes.retain = type(output) is not tuple  # the gradients of several outputs are those of their own nodes
    node.notes.call = Call(arguments, output, file, line, node.edges, tracked, _modules_at_work(frame))


def caller(frame: FrameType) -> tuple[str, int]:
    """The file and line outside minigrad from which what this frame runs was called."""
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "minigrad":
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _modules_at_work(frame: FrameType | None) -> tuple[Any, ...]:
    """The modules (for this file: what has named_modules) whose methods are running, outermost first, each once.

    Read off the stack, so that modules need not announce themselves, and any method counts, not forward() alone.
    """
    found: dict[int, Any] = {}
    while frame is not None:
        if frame.f_code.co_varnames[:1] == ("self",):
            owner = frame.f_locals.get("self")
            if hasattr(type(owner), "named_modules"):
                found[id(owner)] = owner
        frame = frame.f_back
    return tuple(reversed(found.values()))


_FREED: Any = object()  # stands in `saved` of a node whose graph has been freed


# --- the backward pass -------------------------------------------------------------------------------------------


def backward_pass(
    roots: Iterable[tuple[Node, Array]],
    *,
    inputs: Collection[Node] | None = None,
    transform: Transform | None = None,
    recorded: bool = False,
    retain: bool = False,
) -> dict[Node, Array]:
    """Pull each root's cotangent back to the leaves, or to `inputs`.

    Without `inputs` the gradients are added to the leaves' `.grad` once the whole pass has succeeded. With them the
    pass follows only what depends on the inputs of `transform`, stops at `inputs`, and returns {node: gradient}. A
    `recorded` pass hands Tensors to the rules, so that the pass itself can be differentiated; it frees nothing.
    """
    cotangents: dict[Node, Array] = {}
    for root, g in roots:
        cotangents[root] = cotangents[root] + g if root in cotangents else g
    owned: set[Node] = set()  # nodes whose cotangent is an array of this pass's own, which may be added to in place
    heap = sorted((-root.tick, root) for root in cotangents)
    latest: Node | None = None  # what was found last: often the next, and then it never enters the heap
    leaves: list[Node] = []
    found: dict[Node, Array] = {}
    kept: list[tuple[Node, Array, bool]] = []
    keep_graph = retain or recorded
    direct = not (recorded or state.watchers)  # whether op.vjp would but pass on to the plan
    level, since = (transform.level, transform.since) if transform is not None else (0, 0)
    was_recording, state.recording = state.recording, state.mode if recorded else 0
    try:
        with np.errstate(all="ignore"):
            while heap or latest is not None:
                if latest is None:
                    node = heappop(heap)[1]
                else:
                    node = heappushpop(heap, (-latest.tick, latest))[1] if heap else latest
                    latest = None
                g = cotangents.pop(node)
                is_input = inputs is not None and node in inputs
                if node.notes is not None and not (is_input and transform is None):
                    g = _hook_and_keep(node, g, recorded, owned, kept)
                if is_input:
                    found[node] = g
                    continue
                to, op = node.to, node.op
                edges = to if isinstance(to, tuple) else (to,)
                if op is not None:
                    if node.saved is _FREED:
                        raise RuntimeError(_FREED_MESSAGE)
                    if _last_write > node.tick:
                        _check_unwritten(node, node.tick)
                    if type(g) is list:
                        g = _fill_missing(node, g)
                    if direct and node.plan is not None:
                        gradients: Sequence[Array] = node.plan.pull(g, node.saved)
                    else:
                        gradients = op.vjp(node, g, recorded)
                    fresh = op.gives_fresh and not recorded
                elif type(node) is OutputNode:
                    call = edges[0]
                    if call not in cotangents:
                        cotangents[call] = [None] * len(call.shape)
                        heappush(heap, (-call.tick, call))
                    parts = cotangents[call]
                    before = parts[node.index]  # a recorded rule that needs y has output nodes of its own
                    parts[node.index] = g if before is None else before + g
                    continue
                else:
                    gradients, fresh = (g,), False
                i = -1
                for edge in edges:  # not zip(edges, gradients), which takes as long as all else for a node with one
                    i += 1
                    ge = gradients[i]
                    if level and not (edge.levels & level and edge.tick >= since):
                        continue
                    if ge is None:
                        if op.none_is_zero:
                            continue
                        raise TypeError(f"a gradient rule of {op} returned None: it returns the gradient")
                    if ge.shape != edge.shape:
                        ge = _sum_to(ge, edge.shape, node)
                    if ge.dtype is not edge.dtype and ge.dtype != edge.dtype:
                        ge = _cast(ge, edge.dtype)
                    before = cotangents.get(edge)
                    if before is None:
                        cotangents[edge] = ge
                        if edge.op is None and not edge.to and not edge.levels:
                            leaves.append(edge)  # nothing follows from it, so its turn need not be found
                        else:
                            if latest is not None:
                                heappush(heap, (-latest.tick, latest))
                            latest = edge
                        if fresh:
                            owned.add(edge)
                    elif edge in owned:
                        before += ge
                        cotangents[edge] = before  # a 0-d sum may have been rebound instead of changed
                    else:
                        cotangents[edge] = before + ge
                        if not recorded:
                            owned.add(edge)
                if not keep_graph and op is not None:
                    node.saved, node.to = _FREED, ()
            for leaf in leaves:
                g = cotangents[leaf]
                if inputs is not None and leaf in inputs:
                    found[leaf] = g
                elif leaf.notes.hooks:  # type: ignore[union-attr]
                    _hook_and_keep(leaf, g, recorded, owned, kept)
                else:
                    kept.append((leaf, g, leaf in owned))
    finally:
        state.recording = was_recording
    _keep(kept)
    return found


_FREED_MESSAGE = (
    "this graph has already been freed by a backward pass: call the first backward with retain_graph=True, "
    "or run the forward computation again"
)


def as_array(x: Any) -> Array:
    """x as an array; something that stands in for one (it has NumPy's protocol for functions) stays what it is."""
    if type(x) is np.ndarray or (hasattr(x, "__array_function__") and not isinstance(x, np.ndarray)):
        return x
    return np.asarray(x)


def write(function: Callable[..., None], out: Array, *args: Any) -> None:
    """function(out, *args), which writes to `out`, as its values ask for; a stand-in for an array sees to the call."""
    if type(out) is np.ndarray:
        function(out, *args)
    else:
        out.see_to_writing(function, args)


def check_function(f: Any, who: str) -> None:
    """TypeError, where the mistake is made and not where f would be called, for what is no function."""
    if not callable(f):
        raise TypeError(f"{who} takes a function, and was given {type(f).__name__} {f!r:.60}")


def own(g: Array) -> np.ndarray:
    """A writable array that nobody else holds, whatever a rule returned (a view, a broadcast, somebody's operand)."""
    return np.array(g, order="C")


def _keep(kept: list[tuple[Node, Array, bool]]) -> None:
    for node, g, owned in kept:
        notes: Any = node.notes
        array = g if type(g) is np.ndarray else getattr(g, "_array", g)
        if notes.grad is not None:
            notes.grad += array
        else:
            notes.grad = array if owned and type(array) is np.ndarray else own(array)


def _hook_and_keep(
    node: Node, g: Array, recorded: bool, owned: set[Node], kept: list[tuple[Node, Array, bool]]
) -> Array:
    """A node's gradient is complete: let its hooks see it, and note it if it is to be kept."""
    notes = node.notes
    if notes is None:
        return g
    if notes.hooks:
        owned.discard(node)
        g = _run_hooks(node, g, recorded)
    if notes.retain:
        kept.append((node, g, node in owned))
    return g


def _run_hooks(node: Node, g: Array, recorded: bool) -> Array:
    assert node.notes is not None
    for hook in list(node.notes.hooks.values()):
        if not recorded:  # the array may be shared with other edges: let a hook that writes into it fail
            g = np.asarray(g).view()
            g.flags.writeable = False
        replacement = hook(g)
        if replacement is None:
            continue
        replacement = as_array(replacement) if recorded else np.asarray(replacement, dtype=node.dtype)
        if replacement.shape != node.shape:
            raise ValueError(
                f"a hook returned a gradient of shape {replacement.shape} for a tensor of shape {node.shape}: "
                "return None, or a gradient of the tensor's own shape"
            )
        g = replacement if replacement.dtype == node.dtype else _cast(replacement, node.dtype)
    return g


def _fill_missing(node: Node, parts: Sequence[Array | None]) -> tuple[Array, ...]:
    """A cotangent for each output of a call with several: zeros for those that nobody used."""
    rows = zip(parts, node.shape, node.dtype)
    return tuple(np.zeros(shape, dtype) if part is None else part for part, shape, dtype in rows)


def _sum_to(g: Array, shape: tuple[int, ...], node: Node) -> Array:
    """Sum a gradient back over the axes along which its operand was broadcast."""
    extra = g.ndim - len(shape)
    fits = extra >= 0 and all(n in (1, m) for n, m in zip(shape, g.shape[extra:]))
    if not fits:
        raise AssertionError(
            f"the gradient rule of {node.op} returned shape {g.shape} for an operand of shape {shape}: "
            "a rule returns its operand's shape, or a shape that the operand broadcasts to"
        )
    stretched = tuple(i + extra for i, n in enumerate(shape) if n == 1 and g.shape[i + extra] != 1)
    return g.sum(tuple(range(extra)) + stretched).reshape(shape)


def _cast(g: Array, dtype: np.dtype[Any]) -> Array:
    """A gradient in its operand's dtype; what goes back to a real operand of a complex result is the real part."""
    return (np.real(g) if g.dtype.kind == "c" and dtype.kind != "c" else g).astype(dtype)


class Transform:
    """A running transform of this thread: a context in which calls are recorded, with a level of its own.

    Its inputs are nodes that carry the level's bit. A node depends on them if it carries the bit too and is not older
    than they are (results of an earlier transform of the same depth may live on and carry the same bit).
    """

    def __enter__(self) -> Transform:
        self._was_recording, state.recording = state.recording, state.mode
        state.depth += 1
        self.level = 1 << state.depth
        self.since = next_tick()
        return self

    def __exit__(self, *exc: object) -> None:
        state.depth -= 1
        state.recording = self._was_recording

    def input(self, outer: Node | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Node:
        """The node of one input, whose gradient is asked for; `outer`: what it was before it entered the transform."""
        levels = self.level | (outer.levels if outer is not None else 0)
        return new_node(None, None, None, (outer,) if outer is not None else (), levels, shape, dtype)

    def reached_by(self, node: Node | None) -> bool:
        return node is not None and bool(node.levels & self.level) and node.tick >= self.since

    def is_inner_for(self, node: Node) -> bool:
        """Whether the node depends on an input of an outer transform too."""
        return bool(node.levels & (self.level - 1))


# --- grad mode ---------------------------------------------------------------------------------------------------


class _Called(type):
    """For `with no_grad:`, without brackets, which Python would say little about."""

    if not TYPE_CHECKING:

        def __enter__(cls):
            raise TypeError(f"{cls.__name__} is called: with {cls.__name__}(): ...")

        def __exit__(cls, *exc): ...


class no_grad(metaclass=_Called):  # noqa: N801  (a context manager spelled like a function, as everywhere in the field)
    """Switch recording off: a context manager and a decorator, for this thread only.

    Nests, can be re-entered, restores the former state after exceptions. A decorated generator runs without recording
    but leaves its caller's mode alone while it is paused.

    >>> import minigrad as mg
    >>> x = mg.tensor(3.0, requires_grad=True)
    >>> with mg.no_grad():
    ...     y = x * x
    >>> y.requires_grad
    False
    """

    def __init__(self, *function: NoReturn) -> None:
        if function:
            raise TypeError("no_grad is called as a decorator too: @no_grad(), with brackets")
        self._former = threading.local()  # one instance may be entered in several threads at once

    def __enter__(self) -> None:
        stack = self._former.__dict__.setdefault("stack", [])
        stack.append(state.recording)
        state.recording = 0

    def __exit__(self, *exc: object) -> None:
        state.recording = self._former.stack.pop()

    def __call__(self, function: F) -> F:
        check_function(function, "no_grad()")
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                "no_grad() is for a thread, and an async function shares its own: use it inside, between awaits"
            )
        if inspect.isgeneratorfunction(function):
            wrapper: Any = _no_grad_generator(function)
        else:

            @functools.wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                with no_grad():
                    return function(*args, **kwargs)

        return wrapper  # type: ignore[no-any-return]


def _no_grad_generator(function: Callable[..., Any]) -> Callable[..., Generator[Any, Any, Any]]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        generator = function(*args, **kwargs)
        resume: Callable[[], Any] = functools.partial(next, generator)
        try:
            while True:
                with no_grad():
                    try:
                        value = resume()
                    except StopIteration as stop:
                        return stop.value
                try:
                    sent = yield value
                    resume = functools.partial(generator.send, sent)
                except GeneratorExit:
                    raise
                except BaseException as error:  # thrown in by the caller: it belongs inside the generator
                    resume = functools.partial(generator.throw, error)
        finally:
            with no_grad():
                generator.close()

    return wrapper


# --- in-place writes ---------------------------------------------------------------------------------------------

# Which bytes of which buffer were written, and when: {id(buffer): (weak reference, {(low, high): tick})}. Views and
# detached tensors share a buffer, so this is a version shared by all of them, and tensors that nobody writes to pay
# nothing for it.
_writes: dict[int, tuple[weakref.ref[np.ndarray], dict[tuple[int, int], int]]] = {}
_last_write = 0
_write_lock = threading.Lock()


def buffer_of(array: np.ndarray) -> np.ndarray:
    """The array that owns its memory."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def note_write(array: np.ndarray) -> None:
    """Remember that `array` has been written in place, so that no backward pass uses it as what it was."""
    global _last_write
    buffer = buffer_of(array)
    key = id(buffer)
    with _write_lock:
        entry = _writes.get(key)
        if entry is None or entry[0]() is not buffer:
            entry = _writes[key] = (weakref.ref(buffer, lambda _: _writes.pop(key, None)), {})
        tick = next_tick()
        whole = array.nbytes == buffer.nbytes
        entry[1][(0, sys.maxsize) if whole else np.lib.array_utils.byte_bounds(array)] = tick
        _last_write = tick


def _written_since(array: np.ndarray, tick: int) -> bool:
    entry = _writes.get(id(buffer_of(array)))
    if entry is None or array.size == 0:
        return False
    low, high = np.lib.array_utils.byte_bounds(array)
    return any(when > tick and start < high and low < end for (start, end), when in list(entry[1].items()))


def _arrays_in(saved: Any) -> Iterable[np.ndarray]:
    if isinstance(saved, np.ndarray):
        yield saved
    elif isinstance(saved, (tuple, list)):
        for item in saved:
            yield from _arrays_in(item)


def _check_unwritten(node: Node, since: int) -> None:
    for array in _arrays_in(node.saved):
        if _written_since(array, since):
            raise RuntimeError(
                f"an array of shape {array.shape} that {node.op} saved for its gradient has been written in place "
                "since: run backward before the write, or compute with a copy of the tensor"
            )


def check_unwritten(roots: Iterable[Node], since: int) -> None:
    """RuntimeError if an array that the graph of the roots uses was written in place after the tick `since`."""
    if _last_write <= since:
        return
    seen = set(roots)
    stack = list(seen)
    while stack:
        node = stack.pop()
        if node.tick > since:
            _check_unwritten(node, since)
            new = [edge for edge in node.edges if edge not in seen]
            seen.update(new)
            stack += new


# --- ops by name -------------------------------------------------------------------------------------------------


class _Registry(dict[Any, Any]):
    """Whoever looks for something that is not there makes sure that all ops have been declared."""

    def __missing__(self, key: Any) -> Any:
        load_ops()
        if key not in self:
            raise KeyError(key)
        return self[key]


def load_ops() -> None:
    """Declare all ops, if that has not been done."""
    if "minigrad.api" not in sys.modules:
        importlib.import_module("minigrad.api")


OPS = _Registry()  # "matmul" -> the op; tensor.py finds its operators here
NUMPY_OPS = _Registry()  # np.matmul -> the op
# NumPy functions without a gradient, which return plain values: {function: {argument: position}}, for those arguments
# through which a derivative would flow, so that they must be constants.
NUMPY_CONSTANTS: dict[Any, dict[str, int]] = {}


def register(name: str, function: Any) -> None:
    """Make `function` the op called `name`, and what NumPy's function of that name does to a Tensor."""
    OPS[name] = function
    for module in (np, np.linalg, np.fft):
        if callable(numpy_function := getattr(module, name, None)):
            NUMPY_OPS.setdefault(numpy_function, function)
