"""Op: one declared function with its gradient rules, and what calling it records.

    @op                                             a forward function on plain arrays ...
    def matmul(a, b):
        return np.matmul(a, b)

    matmul.rule(a=lambda g, b: g @ np.swapaxes(b, -1, -2),      ... and a rule for each differentiable argument.
                b=lambda g, a: np.swapaxes(a, -1, -2) @ g)

A rule's parameters after the cotangent g name what it needs: arguments of the op, `y` for its output (unless an
argument is called so), `x_shape` for the shape of x alone. Exactly those are saved. Names are resolved once, here; a
call only moves positions.
"""

from __future__ import annotations

import functools
import inspect
import math
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import CO_VARARGS, CO_VARKEYWORDS
from operator import itemgetter
from types import FunctionType
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast, overload

import numpy as np

from minigrad.engine import (
    COMPLETE,
    OPS,
    Array,
    Node,
    Notes,
    Transform,
    as_array,
    backward_pass,
    check_function,
    keep_call,
    new_node,
    next_tick,
    output_node,
    register,
    state,
)
from minigrad.tensor import Tensor, wrap

P = ParamSpec("P")
R = TypeVar("R")
Rule = Callable[..., Any]

_MISSING: Any = object()
_new = Tensor.__new__
_ndarray = np.ndarray
_NESTED = (list, tuple)


class _Plan:
    """For one pattern of tracked arguments: which rules run, what each needs, and where edges come from.

    In the pattern, a number, the bit 1 << i stands for argument i. A need is a position among (*arguments, output);
    ~position means the shape of that argument alone. save(values) is what a node saves of (*arguments, output), and
    pull(g, saved) the gradients. Saved is a tuple of needs for each rule; but where one or two rules need one thing
    each, as in arithmetic, it is these things bare.
    """

    __slots__ = ("edge_of", "needs", "pull", "rules", "save", "saves_bare", "tracked")

    def __init__(self, op: Op[Any], pattern: int):
        self.tracked = tuple([position for position in range(len(op._names)) if pattern >> position & 1])
        self.edge_of = {position: edge for edge, position in enumerate(self.tracked)}
        self.rules = [op._rule_for(position) for position in self.tracked]
        self.needs = [op._needs[position] for position in self.tracked]
        self.saves_bare = len(self.needs) <= 2 and all(len(need) == 1 and need[0] >= 0 for need in self.needs)
        self.save = itemgetter(*[i for (i,) in self.needs]) if self.saves_bare else _saver(self.needs)
        self.pull = _puller([getattr(rule, "on_arrays", rule) for rule in self.rules], self.needs, self.saves_bare)

    def needs_in(self, saved: Any) -> Sequence[Sequence[Any]]:
        """What each rule needs, of what a node has saved."""
        if not self.saves_bare:
            return saved  # type: ignore[no-any-return]
        return [(saved,)] if len(self.rules) == 1 else [(x,) for x in saved]


def _saver(needs: list[tuple[int, ...]]) -> Callable[[Sequence[Any]], tuple[tuple[Any, ...], ...]]:
    if not any(needs):
        nothing = tuple(() for _ in needs)
        return lambda values: nothing
    return lambda values: tuple([tuple([_need(values, i) for i in need]) for need in needs])


def _puller(rules: list[Rule], needs: list[tuple[int, ...]], bare: bool) -> Callable[[Array, Any], Sequence[Array]]:
    """What most nodes do is spelled out: starred calls and loops would take longer than a rule of small operands."""
    rule = rules[0]
    if bare and len(rules) == 1:
        return lambda g, saved: (rule(g, saved),)
    if bare:
        second = rules[1]
        return lambda g, saved: (rule(g, saved[0]), second(g, saved[1]))
    if len(rules) == 1 and not needs[0]:
        return lambda g, saved: (rule(g),)
    return lambda g, saved: [rule(g, *xs) for rule, xs in zip(rules, saved)]


def _need(values: Sequence[Any], i: int) -> Any:
    if i >= 0:
        return values[i]
    value = values[~i]
    return [np.shape(v) for v in value] if isinstance(value, (list, tuple)) else np.shape(value)


class Op(Generic[P]):
    """One differentiable function: calling it returns a Tensor, and records the call if an argument is tracked."""

    gives_fresh = False  # whether its gradients are arrays that nobody else holds
    none_is_zero = False  # whether None may stand for a gradient that is zero

    def __init__(self, forward: Callable[P, Any], sequence: str | None = None):
        check_function(forward, "mg.op")
        functools.update_wrapper(cast(Any, self), forward)
        self.name = forward.__name__
        self.forward: Callable[..., Any] = forward
        self.reference: Callable[..., Any] | None = None
        self._names, self._defaults, self._n_positional = _parameters(forward)
        self._index = {name: i for i, name in enumerate(self._names)}
        # A call with just so many positional arguments needs no binding.
        self._arity = len(self._names) if self._n_positional == len(self._names) and sequence is None else -1
        self._sequence = self._index[sequence] if sequence is not None else -1
        self._rules: dict[int, Rule] = {}
        self._needs: dict[int, tuple[int, ...]] = {}
        self._plans: dict[int, _Plan] = {}
        if self._n_positional < len(self._names):
            self.forward = _by_position(forward, self._n_positional, self._names)
        _all_ops.add(self)
        if _watching:
            _watch(self)

    def __repr__(self) -> str:
        return self.name

    # --- declaring ---

    def rule(self, **rules: Rule) -> Op[P]:
        """Declare gradient rules: argument=function(g, *what it needs) -> the gradient of that argument.

        A rule gets and returns arrays; written in NumPy's syntax it also runs on Tensors, which is how higher orders
        come about. It must not write to what it gets. Summing over broadcast axes and casting are done for it.
        """
        for argument, rule in rules.items():
            self._declare(argument, rule, _parameters(rule)[0][1:])
        return self

    def _declare(self, argument: str, rule: Rule, needs: list[str]) -> None:
        if argument not in self._index:
            raise TypeError(f"{self.name} has no argument {argument!r}: its arguments are {', '.join(self._names)}")
        position = self._index[argument]
        self._rules[position] = rule
        self._needs[position] = tuple([self._resolve(name) for name in needs])
        self._plans.clear()

    def derivative(self, *, finite: bool = False, **derivatives: Rule) -> Op[P]:
        """Declare local derivatives of an elementwise op: argument=function(*what it needs) -> d output / d argument.

        A zero cotangent contributes zero, even where the derivative is infinite or NaN; `finite` says that it never is,
        not even at infinite or NaN operands, which saves looking.
        """
        for argument, local in derivatives.items():
            needs = _parameters(local)[0]
            rule: Any = _times(local) if finite else _times_safely(local, len(needs))
            rule.is_local = True
            self._declare(argument, rule, needs)
        return self

    def _resolve(self, name: str) -> int:
        if name in self._index:  # before y: an op may well have an argument of that name
            return self._index[name]
        if name == "y":
            return len(self._names)
        if name.endswith("_shape") and name[:-6] in self._index:
            return ~self._index[name[:-6]]
        raise TypeError(
            f"a gradient rule of {self.name} needs {name!r}, which is none of its arguments "
            f"({', '.join(self._names)}), their shapes (as x_shape), or its output (y)"
        )

    def _rule_for(self, position: int) -> Rule:
        rule = self._rules.get(position)
        if rule is None:
            name = self._names[position]
            joins = name == "axis" and self._sequence >= 0
            todo = (
                f"pass the arrays as one list, {self.name}([a, b])"
                if joins
                else "pass a constant there (t.detach()), or declare a rule for it"
            )
            raise TypeError(f"{self.name} has no gradient with respect to {name!r}: {todo}")
        return rule

    # --- calling ---

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        bound: Sequence[Any] = args
        if kwargs or len(args) != self._arity:
            bound = self._bind(args, kwargs)
            if self._sequence >= 0:
                return self._call_sequence(bound)
        elif len(args) == 2:
            return self.of_two(args[0], args[1])
        values: list[Any] = []
        tracked = 0
        edges: tuple[Node, ...] = ()
        levels = 0
        for position, x in enumerate(bound):
            if isinstance(x, Tensor):
                node = x._node
                if node is not None:
                    tracked |= 1 << position
                    edges += (node,)
                    levels |= node.levels
                x = x._array
            elif type(x) is list or type(x) is tuple:
                x = _constant(x, position in self._rules)
            values.append(x)
        y = self.forward(*values)
        if type(y) is not np.ndarray:
            if type(y) is tuple:
                return self._record_outputs(values, y, tracked, edges, levels)  # type: ignore[no-any-return]
            y = self._as_output(y)
        recording = state.recording
        if not edges or not recording:
            return wrap(y, None)
        values.append(y)
        plan = self._plans.get(tracked) or self._plan(tracked)
        node = new_node(self, plan, plan.save(values), edges, levels, y.shape, y.dtype)
        if recording == COMPLETE:
            keep_call(node, values[:-1], y, plan.tracked)
        return wrap(y, node)

    def of_two(self, a: Any, b: Any) -> Tensor:
        """__call__ for an op of two arguments, without loops and further calls: arithmetic is what programs do most."""
        node_a: Node | None = None
        node_b: Node | None = None
        if isinstance(a, Tensor):
            node_a, a = a._node, a._array
        elif type(a) is not _ndarray and isinstance(a, _NESTED):
            a = _constant(a, 0 in self._rules)
        if isinstance(b, Tensor):
            node_b, b = b._node, b._array
        elif type(b) is not _ndarray and isinstance(b, _NESTED):
            b = _constant(b, 1 in self._rules)
        edges: Node | tuple[Node, ...]
        if node_a is not None:
            if node_b is not None:
                tracked, edges, levels = 0b11, (node_a, node_b), node_a.levels | node_b.levels
            else:
                tracked, edges, levels = 0b01, node_a, node_a.levels
        elif node_b is not None:
            tracked, edges, levels = 0b10, node_b, node_b.levels
        else:
            tracked, edges, levels = 0, (), 0
        y = self.forward(a, b)
        if type(y) is not _ndarray:
            if type(y) is tuple:
                nodes = tuple([node for node in (node_a, node_b) if node is not None])
                return self._record_outputs([a, b], y, tracked, nodes, levels)  # type: ignore[no-any-return]
            y = self._as_output(y)
        recording = state.recording
        if not edges or not recording:
            return wrap(y, None)
        plan = self._plans.get(tracked) or self._plan(tracked)
        node = Node()  # new_node(...), written out
        node.op = self
        node.plan = plan
        node.saved = plan.save((a, b, y))
        node.to = edges
        node.levels = levels
        shape = y.shape
        known = (node_a or node_b).shape  # type: ignore[union-attr]
        node.shape = known if shape == known else shape  # one tuple less to live as long as the graph
        node.dtype = y.dtype
        node.tick = next_tick()
        node.notes = None
        if recording == COMPLETE:
            keep_call(node, [a, b], y, plan.tracked)
        t = _new(Tensor)  # wrap(y, node)
        t._array, t._node = y, node
        return t

    def _as_output(self, y: Any) -> np.ndarray:
        array: np.ndarray = as_array(y)
        if array.dtype.kind == "O":
            raise TypeError(f"{self.name} returned {type(y).__name__}: the function of an op returns an array")
        return array

    def _plan(self, tracked: int) -> _Plan:
        plan = self._plans[tracked] = _Plan(self, tracked)
        return plan

    def apply(self, *args: Any, **kwargs: Any) -> Any:
        """Call from inside a gradient rule: arrays give arrays; with any Tensor the call is recorded and gives one."""
        y: Any = self(*args, **kwargs)
        if _any_tensor(args) or _any_tensor(kwargs.values()):
            return y
        return tuple(t._array for t in y) if type(y) is tuple else y._array

    def _bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        try:
            return self._arguments(*args, **kwargs)
        except TypeError as error:
            signature = inspect.signature(cast(Any, self).__wrapped__)
            raise TypeError(f"{self.name}{signature}: {error}") from None

    @functools.cached_property
    def _arguments(self) -> Callable[..., list[Any]]:
        """A list of its arguments by position: a function with the op's own signature, so that Python does the binding.

        Made at the first call that needs it, since hundreds of ops are declared at every import.
        """
        given = [
            name if default is _MISSING else f"{name}=defaults[{i}]"
            for i, (name, default) in enumerate(zip(self._names, self._defaults))
        ]
        if self._n_positional < len(given):
            given.insert(self._n_positional, "*")
        source = f"lambda {', '.join(given)}: [{', '.join(self._names)}]"
        function: Callable[..., list[Any]] = eval(source, {"defaults": self._defaults})
        function.__qualname__ = self.name
        return function

    def _record_outputs(
        self, values: list[Any], ys: tuple[Any, ...], tracked: int, edges: tuple[Node, ...], levels: int
    ) -> Any:
        """Several outputs: one node for the call, and one for each output with an edge to it."""
        ys = tuple(map(as_array, ys))
        if not edges or not state.recording:
            return tuple(wrap(y, None) for y in ys)
        plan = self._plans.get(tracked) or self._plan(tracked)
        saved = plan.save([*values, ys])
        node = new_node(self, plan, saved, edges, levels, [y.shape for y in ys], [y.dtype for y in ys])
        if state.recording == COMPLETE:
            keep_call(node, values, ys, plan.tracked)
        outputs = [output_node(node, i) for i in range(len(ys))]
        if state.recording == COMPLETE:
            for output in outputs:
                output.notes = Notes(retain=True)
        return tuple(map(wrap, ys, outputs))

    def _call_sequence(self, bound: Sequence[Any]) -> Tensor:
        """With an argument that is a sequence of arrays: each tracked element has an edge, and one rule serves all."""
        at = self._sequence
        items = list(bound[at])
        values = [x._array if isinstance(x, Tensor) else x for x in bound]
        values[at] = [x._array if isinstance(x, Tensor) else as_array(x) for x in items]
        others = [i for i, x in enumerate(bound) if i != at and isinstance(x, Tensor) and x._node is not None]
        if others and state.recording:
            self._rule_for(others[0])
        y = as_array(self.forward(*values))
        tracked = tuple(i for i, x in enumerate(items) if isinstance(x, Tensor) and x._node is not None)
        if not tracked or not state.recording:
            return wrap(y, None)
        edges = tuple(items[i]._node for i in tracked)
        levels = functools.reduce(lambda bits, node: bits | node.levels, edges, 0)
        self._rule_for(at)
        saved = (tracked, *_saver([self._needs[at]])([*values, y]))
        node = new_node(self, None, saved, edges, levels, y.shape, y.dtype)
        if state.recording == COMPLETE:
            keep_call(node, values, y, tracked)
        return wrap(y, node)

    # --- differentiating ---

    def vjp(self, node: Node, g: Array, recorded: bool) -> Sequence[Array]:
        """The gradients for node's edges, given the cotangent of its output; recorded: as Tensors, on the record."""
        plan = node.plan
        if plan is None:
            return self._vjp_sequence(node, g, recorded)
        if not recorded:
            return plan.pull(g, node.saved)  # type: ignore[no-any-return]
        gradients = []
        for rule, needs, saved in zip(plan.rules, plan.needs, plan.needs_in(node.saved)):
            gradients.append(rule(g, *[self._on_record(node, plan.edge_of, i, x) for i, x in zip(needs, saved)]))
        return gradients

    def _on_record(self, node: Node, edge_of: dict[int, int], need: int, x: Any) -> Any:
        """What a rule needs, connected to the graph again where it depends on a tracked operand."""
        if need == len(self._names):
            if isinstance(x, tuple):
                return tuple(wrap(y, output_node(node, i)) for i, y in enumerate(x))
            return wrap(x, node)
        if need >= 0 and need in edge_of:
            return wrap(x, node.edges[edge_of[need]])
        return x

    def _vjp_sequence(self, node: Node, g: Array, recorded: bool) -> Sequence[Array]:
        tracked, saved = node.saved
        needs = self._needs[self._sequence]
        if recorded:
            edge_of = {i: edge for edge, i in enumerate(tracked)}
            saved = [
                [wrap(v, node.edges[edge_of[i]]) if i in edge_of else v for i, v in enumerate(x)]
                if need == self._sequence
                else self._on_record(node, {}, need, x)
                for need, x in zip(needs, saved)
            ]
        gradients = self._rules[self._sequence](g, *saved)
        return [gradients[i] for i in tracked]


class FusedOp(Op[P]):
    """An op with a hand-tuned kernel, and the plain `reference` that it must equal.

    forward(*arguments) returns (output, residual). backward(g, residual, wanted, *arguments) returns a gradient for
    each differentiable argument, in the order of `arguments`, None where not wanted[argument]: new arrays, all
    different, which the engine may write to. Higher orders differentiate the reference.
    """

    gives_fresh = none_is_zero = True

    def __init__(self, forward: Callable[P, Any], backward: Callable[..., Any], reference: Callable[..., Any]):
        super().__init__(forward)
        self.reference = reference
        self._backward = backward
        self._differentiable: tuple[int, ...] = ()
        self._wanted: dict[tuple[int, ...], tuple[bool, ...]] = {}

    def differentiable(self, *arguments: str) -> FusedOp[P]:
        self._differentiable = tuple(self._index[name] for name in arguments)
        return self

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        bound = self._bind(args, kwargs)
        tracked: tuple[int, ...] = ()
        edges: list[Node] = []
        levels = 0
        for position, x in enumerate(bound):
            if x is None or type(x) is _ndarray:
                continue
            if isinstance(x, Tensor):
                bound[position] = x._array
                node = x._node
                if node is not None:
                    tracked += (position,)
                    edges.append(node)
                    levels |= node.levels
            elif isinstance(x, _NESTED):
                bound[position] = np.asarray(x)
        recording = state.recording
        if not edges or not recording:
            return wrap(self.forward(*bound)[0], None)
        wanted = self._wanted.get(tracked) or self._which(tracked)
        y, residual = self.forward(*bound)
        node = new_node(self, None, (tracked, wanted, bound, residual), tuple(edges), levels, y.shape, y.dtype)
        if recording == COMPLETE:
            keep_call(node, bound, y, tracked)
        return wrap(y, node)

    def _which(self, tracked: tuple[int, ...]) -> tuple[bool, ...]:
        """For each differentiable argument whether its gradient is wanted; TypeError for a tracked one that is none."""
        for position in tracked:
            if position not in self._differentiable:
                self._rule_for(position)  # raises
        wanted = self._wanted[tracked] = tuple(position in tracked for position in self._differentiable)
        return wanted

    def vjp(self, node: Node, g: Array, recorded: bool) -> Sequence[Array]:
        tracked, wanted, values, residual = node.saved
        if recorded:
            return self._vjp_reference(node, g, tracked, values)
        gradients: Sequence[Array] = self._backward(g, residual, wanted, *values)
        if len(tracked) == len(wanted):
            return gradients
        return [gradient for gradient, want in zip(gradients, wanted) if want]

    def _vjp_reference(self, node: Node, g: Array, tracked: tuple[int, ...], values: list[Any]) -> Sequence[Array]:
        """The gradient of the plain definition, on the record: evaluated anew at the operands, and pulled back."""
        assert self.reference is not None
        filled = list(values)
        with Transform() as transform:
            inputs = [transform.input(edge, edge.shape, edge.dtype) for edge in node.edges]
            for position, marked in zip(tracked, inputs):
                filled[position] = wrap(values[position], marked)
            n = self._n_positional
            y = self.reference(*filled[:n], **dict(zip(self._names[n:], filled[n:])))
            found = backward_pass([(y._node, g)], inputs=inputs, transform=transform, recorded=True)
        return [found.get(marked) for marked in inputs]


class Derived(Generic[P, R]):
    """A function composed of other ops: it has no rule of its own, and an array-in, array-out `apply` like theirs."""

    def __init__(self, function: Callable[P, R]):
        functools.update_wrapper(cast(Any, self), function)
        self.name = function.__name__
        self._function = function

    def __repr__(self) -> str:
        return self.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def apply(self, *args: Any, **kwargs: Any) -> Any:
        y: Any = self._function(*args, **kwargs)
        return y if _any_tensor(args) or _any_tensor(kwargs.values()) else y._array


@overload
def op(forward: Callable[P, Any]) -> Op[P]: ...
@overload
def op(*, sequence: str) -> Callable[[Callable[P, Any]], Op[P]]: ...
def op(forward: Callable[P, Any] | None = None, *, sequence: str | None = None) -> Any:
    """Declare an op: a function on plain arrays, whose gradient rules follow with `.rule` or `.derivative`.

    sequence: the name of the argument that is a sequence of arrays (its one rule returns as many gradients).

    >>> import numpy as np, minigrad as mg
    >>> @mg.op
    ... def cube(x):
    ...     return x**3
    >>> _ = cube.derivative(x=lambda x: 3 * x**2)
    >>> mg.grad(cube)(2.0)
    array(12.)
    """
    if forward is None:
        return lambda function: _declared(Op(function, sequence))
    return _declared(Op(forward))


def fused(
    *, backward: Callable[..., Any], reference: Callable[..., Any], differentiable: Sequence[str]
) -> Callable[[Callable[P, Any]], FusedOp[P]]:
    """Declare a fused op: a kernel forward and backward (see FusedOp), and the plain definition that it must equal."""
    return lambda forward: _declared(FusedOp(forward, backward, reference).differentiable(*differentiable))


def derived(function: Callable[P, R]) -> Derived[P, R]:
    """Declare a function composed of other ops."""
    return _declared(Derived(function))


Declared = TypeVar("Declared", bound="Op[Any] | Derived[Any, Any]")


def _declared(function: Declared) -> Declared:
    """minigrad's own ops are found by name and by NumPy's functions; a user's are just theirs."""
    if (cast(Any, function).__module__ or "").startswith("minigrad."):
        register(function.name, function)
    return function


# --- watching every call -----------------------------------------------------------------------------------------


class Watcher(Protocol):
    """What is called in the place of every op's forward and vjp, which it is given to call."""

    def forward(self, op: Op[Any], forward: Callable[..., Any], *values: Any) -> Any:
        """values: all arguments, by position, as arrays. Returns what forward(*values) does."""

    def vjp(self, op: Op[Any], vjp: Callable[..., Any], node: Node, g: Array, recorded: bool) -> Sequence[Array]:
        """Returns what vjp(node, g, recorded) does."""


_all_ops: weakref.WeakSet[Op[Any]] = weakref.WeakSet()
_unwatched: dict[Op[Any], Callable[..., Any]] = {}  # while anybody watches: each op's own forward
_watch_lock = threading.Lock()
_watching: set[object] = set()  # one for every context, in whatever thread


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Within this context the watcher sees every call of an op in this thread: on constants and under no_grad too.

    The ops' own attributes are replaced for the while, so that calls which nobody watches do not even look. An
    interrupt may come at any line: the next context replaces what is not.
    """
    context, before = object(), state.watchers
    try:
        with _watch_lock:
            _watching.add(context)
            for op in list(_all_ops):
                if op.forward is _unwatched.get(op, op.forward):
                    _watch(op)
        state.watchers = (*before, watcher)
        yield
    finally:
        state.watchers = before
        with _watch_lock:
            _watching.discard(context)
            if not _watching:
                for op, forward in _unwatched.items():
                    op.forward = forward
                    del op.vjp
                _unwatched.clear()


def _watch(op: Op[Any]) -> None:
    own_forward, own_vjp = op.forward, op.vjp

    def forward(*values: Any) -> Any:
        function = own_forward
        for watcher in state.watchers:
            function = functools.partial(watcher.forward, op, function)
        return function(*values)

    def vjp(node: Node, g: Array, recorded: bool) -> Sequence[Array]:
        function = own_vjp
        for watcher in state.watchers:
            function = functools.partial(watcher.vjp, op, function)
        return function(node, g, recorded)

    _unwatched[op] = own_forward
    op.vjp = vjp  # type: ignore[method-assign]
    op.forward = forward


# --- small helpers -----------------------------------------------------------------------------------------------


def _parameters(function: Callable[..., Any]) -> tuple[list[str], list[Any], int]:
    """The names and defaults of a function's parameters, and how many may be given by position.

    Read off its code, where that can be: hundreds of ops and rules are declared when minigrad is imported, and
    inspect.signature takes a hundred times as long.
    """
    if type(function) is FunctionType and not function.__code__.co_flags & (CO_VARARGS | CO_VARKEYWORDS):
        code, given, by_keyword = function.__code__, function.__defaults__ or (), function.__kwdefaults__ or {}
        n = code.co_argcount
        names = list(code.co_varnames[: n + code.co_kwonlyargcount])
        defaults = [_MISSING] * (n - len(given)) + [*given] + [by_keyword.get(name, _MISSING) for name in names[n:]]
        return names, defaults, n
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        raise TypeError(
            f"an op's arguments have names, and {function.__name__}{signature} takes any number of them: "
            "declare one that is a sequence, @mg.op(sequence='xs') def f(xs): ..."
        )
    defaults = [_MISSING if p.default is p.empty else p.default for p in parameters]
    return [p.name for p in parameters], defaults, sum(p.kind is not p.KEYWORD_ONLY for p in parameters)


def _constant(x: Any, is_array: bool) -> Any:
    """A list or tuple given as an argument: an array where an array is meant, else what it is (a shape, an index)."""
    if is_array:
        return np.asarray(x)
    items = (v._array if isinstance(v, Tensor) else v for v in x)
    return list(items) if isinstance(x, list) else tuple(items)  # named tuples are not made of one iterable


def _any_tensor(xs: Any) -> bool:
    return any(isinstance(x, Tensor) or (isinstance(x, (list, tuple)) and _any_tensor(x)) for x in xs)


def _by_position(forward: Callable[..., Any], n_positional: int, names: list[str]) -> Callable[..., Any]:
    """The function with all of its parameters given by position, those that are by keyword alone too."""
    if type(forward) is FunctionType:
        code = forward.__code__.replace(co_argcount=len(names), co_kwonlyargcount=0)
        return FunctionType(code, forward.__globals__, forward.__name__, None, forward.__closure__)
    return lambda *values: forward(*values[:n_positional], **dict(zip(names[n_positional:], values[n_positional:])))


_IDENTITY = (lambda x: x).__code__.co_code  # a derivative that is what it needs, as it is


def _times(local: Rule) -> Rule:
    return lambda g, *needs: g * local(*needs)


def _times_safely(local: Rule, n_needs: int) -> Rule:
    rule: Any = lambda g, *needs: _scaled(g, local(*needs))  # noqa: E731  (a function with attributes)
    if n_needs == 1 and isinstance(local, FunctionType) and local.__code__.co_code == _IDENTITY:
        rule.on_arrays = safe_product
    elif n_needs == 1:
        rule.on_arrays = lambda g, need: safe_product(g, local(need))
    else:
        rule.on_arrays = lambda g, *needs: safe_product(g, local(*needs))
    return rule  # type: ignore[no-any-return]


def _scaled(g: Array, d: Array) -> Array:
    if isinstance(g, Tensor) or isinstance(d, Tensor):
        return OPS["scale"](g, d)
    return safe_product(g, d)


def safe_product(g: Array, d: Array) -> Array:
    """g * d for a cotangent g and a local derivative d, where g = 0 gives 0 even if d is infinite or NaN."""
    product = np.multiply(g, d)
    if type(d) is float and math.isfinite(d):
        return product
    flat = product.ravel("K")
    total = flat.dot(flat)  # NaN exactly if an element is: one pass and no temporary
    return product if total == total else np.where(np.equal(g, 0), product.dtype.type(0), product)
