"""Functions of functions: grad, vjp, jvp, jacobian, hessian, hvp, checkpoint and others. They nest to any order.

A transform marks its inputs with a level of its own, runs the function, and pulls cotangents back to those inputs only.
The pass is recorded, and so differentiable, when its result also depends on an input of an outer transform or
create_graph asks for it. Arguments and results may be nested lists, tuples and dicts of arrays; the outermost transform
returns ndarrays.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from minigrad.engine import (
    Node,
    Transform,
    backward_pass,
    check_function,
    check_unwritten,
    new_node,
    next_tick,
    output_node,
    own,
    state,
)
from minigrad.ops.reductions import sum
from minigrad.ops.shapes import reshape, stack
from minigrad.random import get_state, set_state
from minigrad.tensor import Tensor, lent, wrap
from minigrad.trees import flatten, leaves_like

ArgNums = int | Sequence[int]


def grad(f: Callable[..., Any], argnums: ArgNums = 0, *, create_graph: bool = False) -> Callable[..., Any]:
    """The function that returns the gradient of `f`, which returns one number.

    argnums: the argument (or arguments, for a tuple of gradients) to differentiate with respect to; each may be a
    nested list, tuple or dict of floating arrays, and its gradient has that structure. create_graph: return Tensors
    through which `.backward()` can go. Elsewhere the outermost transform returns ndarrays. Raises ValueError when `f`
    returns more than one number, TypeError for an integer argument.

    >>> grad(lambda x: x**3)(2.0)
    array(12.)
    >>> grad(grad(lambda x: x**3))(2.0)
    array(12.)
    """
    check_function(f, "mg.grad")
    both = value_and_grad(f, argnums, create_graph=create_graph)

    @functools.wraps(f, updated=())
    def gradient(*args: Any, **kwargs: Any) -> Any:
        return both(*args, **kwargs)[1]

    return gradient


def value_and_grad(f: Callable[..., Any], argnums: ArgNums = 0, *, create_graph: bool = False) -> Callable[..., Any]:
    """Like `grad`, and returns (value of f, gradient).

    >>> value_and_grad(lambda x: x**3)(2.0)
    (array(8.), array(12.))
    """
    check_function(f, "mg.value_and_grad")

    @functools.wraps(f, updated=())
    def value_and_gradient(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        with Transform() as transform:
            marked = _MarkedArguments(transform, args, argnums)
            y = f(*marked.args, **kwargs)
            value = _one_number(y, f)
            node = y._node if isinstance(y, Tensor) else None
            if node is None or not transform.reached_by(node):
                gradients: list[Any] = [np.zeros(n.shape, n.dtype) for n in marked.nodes]
                recorded = create_graph
            else:
                recorded = create_graph or transform.is_inner_for(node)
                gradients = _pull(transform, [(node, np.ones(node.shape, node.dtype))], marked.nodes, recorded)
        finish = _finisher(create_graph)
        return finish(y if recorded else value), marked.rebuild([finish(g) for g in gradients])

    return value_and_gradient


def vjp(f: Callable[..., Any], *xs: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """(value, pull): the value of f(*xs), and the function from a cotangent to the gradients of <cotangent, f>.

    pull returns a gradient for each x. The cotangent has the structure and the shapes of the value (ValueError
    otherwise); pull can be called many times. Of a complex value y and a cotangent c it is the real part of <c, y>,
    the sum of c y, that is differentiated. TypeError for a function that returns something else than numbers.

    >>> value, pull = vjp(lambda x, y: x * y, 2.0, np.array([3.0, 4.0]))
    >>> value, pull(np.array([1.0, 10.0]))
    (array([6., 8.]), (array(43.), array([ 2., 20.])))
    """
    check_function(f, "mg.vjp")
    with Transform() as transform:
        marked = _MarkedArguments(transform, xs, range(len(xs)))
        y = f(*marked.args)
    outputs, put_back = flatten(y)
    values = [_array_of(t, f) for t in outputs]

    def pull(cotangent: Any) -> tuple[Any, ...]:
        given = _cotangents(leaves_like(cotangent, y, f"the cotangent of {_name(f)}"), values)
        pairs = [
            (t._node, g) for t, g in zip(outputs, given) if isinstance(t, Tensor) and transform.reached_by(t._node)
        ]
        roots = [(node, g) for node, g in pairs if node is not None]
        tracked = any(isinstance(g, Tensor) and g._node is not None for _, g in roots)
        recorded = tracked or any(transform.is_inner_for(node) for node, _ in roots)
        gradients = _pull(transform, roots, marked.nodes, recorded, retain=True)
        finish = _finisher(tracked and not state.depth)
        return tuple(marked.rebuild([finish(g) for g in gradients]))

    finish = _finisher(False)
    return put_back([finish(t) for t in outputs]), pull


def jvp(f: Callable[..., Any], xs: Any, vs: Any) -> tuple[Any, Any]:
    """(value, tangent): f at xs, and how it changes along vs, the derivative times vs.

    xs: a tuple of arguments, or one argument; vs has the same structure. Computed as the vjp of the vjp, which is
    linear in its cotangent; there are no forward rules. TypeError for a complex value.

    >>> jvp(lambda x: x**2, (3.0,), (1.0,))
    (array(9.), array(6.))
    """
    check_function(f, "mg.jvp")
    xs, vs = (xs, vs) if isinstance(xs, tuple) else ((xs,), (vs,))
    if not isinstance(vs, tuple):
        raise TypeError(f"for a tuple of arguments jvp takes a tuple of as many directions, not a {type(vs).__name__}")
    value, pull = vjp(f, *xs)
    tangents = leaves_like(vs, xs, "the directions")

    def along(cotangent: Any) -> Tensor:
        gradients, _ = flatten(list(pull(cotangent)))
        return _inner_product(gradients, tangents)

    outputs, put_back = flatten(value)
    for output in outputs:
        _check_real(output, f, "jvp")
    zeros = put_back([np.zeros(np.shape(t), t.dtype) for t in outputs])
    return value, grad(along)(zeros)


def jacobian(f: Callable[..., Any], argnums: ArgNums = 0) -> Callable[..., Any]:
    """The function that returns all first derivatives of `f`: (*output, *input), in the structure of the arguments.

    One backward pass for each element of the output. If f returns a nest of arrays, it is a nest of such derivatives.
    TypeError for complex numbers.

    >>> jacobian(lambda x: x**2)(np.array([1.0, 2.0]))
    array([[2., 0.],
           [0., 4.]])
    """
    check_function(f, "mg.jacobian")

    @functools.wraps(f, updated=())
    def derivatives(*args: Any, **kwargs: Any) -> Any:
        positions = _positions(argnums, len(args))
        chosen = [args[i] for i in positions]

        @functools.wraps(f, updated=())
        def of_chosen(*xs: Any) -> Any:
            filled = list(args)
            for i, x in zip(positions, xs):
                filled[i] = x
            return f(*filled, **kwargs)

        value, pull = vjp(of_chosen, *chosen)
        outputs, put_back = flatten(value)
        for output in outputs:
            _check_real(output, f, "jacobian")
        zeros = [np.zeros(np.shape(output), output.dtype) for output in outputs]

        def of_output(i: int) -> Any:
            trees = _rows(lambda c: pull(put_back([*zeros[:i], c, *zeros[i + 1 :]])), zeros[i])
            return trees[0] if isinstance(argnums, int) else tuple(trees)

        return put_back(list(map(of_output, range(len(zeros)))))

    return derivatives


def _rows(pull: Callable[[np.ndarray], tuple[Any, ...]], zero: np.ndarray) -> list[Any]:
    """The gradients of every element of an output, stacked: (*output, *input) for each argument. zero: of its shape."""
    rows, put_back = [], None
    for i in range(zero.size):
        basis = np.zeros_like(zero)
        basis.flat[i] = 1
        leaves, put_back = flatten(list(pull(basis)))
        rows.append(leaves)
    if put_back is None:  # no elements: the shapes are those of the gradients of nothing
        leaves, put_back = flatten(list(pull(zero)))
        return list(put_back([np.zeros((*zero.shape, *np.shape(g)), g.dtype) for g in leaves]))
    finish = _finisher(False)
    columns = [finish(reshape(stack(column), (*zero.shape, *np.shape(column[0])))) for column in zip(*rows)]
    return list(put_back(columns))


def hessian(f: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    """The function that returns all second derivatives of `f`: shape (*output, *input, *input).

    With respect to a nest of arrays: for each of them a nest of the derivatives that belong to its gradient.

    >>> hessian(lambda x: (x**3).sum())(np.array([1.0, 2.0]))
    array([[ 6.,  0.],
           [ 0., 12.]])
    """
    check_function(f, "mg.hessian")
    return jacobian(jacobian(f, argnum), argnum)


def hvp(f: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    """The function (*args, v) -> hessian of `f`, which returns one number, times v, without forming the hessian.

    v has the structure and the shapes of the argument; it comes last.

    >>> hvp(lambda x: (x**3).sum())(np.array([1.0, 2.0]), np.array([1.0, 1.0]))
    array([ 6., 12.])
    """
    check_function(f, "mg.hvp")

    @functools.wraps(f, updated=())
    def product(*args: Any, **kwargs: Any) -> Any:
        *xs, v = args or [None]
        if not xs or (isinstance(argnum, int) and argnum >= len(xs)):
            raise TypeError(
                f"hvp(f) is called with the arguments of {_name(f)} and then a direction v for argument {argnum}, all "
                f"by position; {len(args)} came in all"
            )
        positions = _positions(argnum, len(xs))
        of = [xs[i] for i in positions]
        tangents = leaves_like(v, of[0] if isinstance(argnum, int) else of, "the direction")

        def along(*xs: Any) -> Tensor:
            gradients, _ = flatten(grad(f, argnum)(*xs, **kwargs))
            return _inner_product(gradients, tangents)

        return grad(along, argnum)(*xs)

    return product


def elementwise_grad(f: Callable[..., Any], argnums: ArgNums = 0) -> Callable[..., Any]:
    """The function that returns the derivative of `f` at each element, for an f that treats each by itself.

    (For any other f: the gradient of the sum of its outputs.)

    >>> elementwise_grad(np.tanh)(np.array([0.0, 1.0]))
    array([1.        , 0.41997434])
    """
    check_function(f, "mg.elementwise_grad")

    @functools.wraps(f, updated=())
    def total(*args: Any, **kwargs: Any) -> Tensor:
        y = f(*args, **kwargs)
        _check_no_nest(y, f, "an array")
        return sum(y)

    return grad(total, argnums)


def stop_gradient(x: Any) -> Any:
    """x (a tensor, or a nest of them) as constants: no transform and no backward pass reaches behind them.

    >>> grad(lambda x: x * stop_gradient(x))(3.0)
    array(3.)
    """
    leaves, put_back = flatten(x)
    return put_back([leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in leaves])


# --- recomputing instead of remembering --------------------------------------------------------------------------


def checkpoint(f: Callable[..., Any]) -> Callable[..., Any]:
    """f, which remembers nothing for its gradient but its arguments, and runs a second time in the backward pass.

    Gradients are exactly those of f, with respect to its arguments and to whatever else it uses (a module's
    parameters). The default random generator is put back for the second run, so that dropout repeats its draws;
    generators of your own are not.

    >>> grad(checkpoint(lambda x: np.sin(np.exp(x))))(0.0)
    array(0.54030231)
    """
    check_function(f, "mg.checkpoint")

    @functools.wraps(f, updated=())
    def forgetful(*args: Any, **kwargs: Any) -> Any:
        if not state.recording:
            return f(*args, **kwargs)
        draws = get_state()
        begun = next_tick()
        outputs, put_back = flatten(f(*args, **kwargs))
        tensors = [t for t in outputs if isinstance(t, Tensor) and t._node is not None]
        if not tensors:
            return put_back(outputs)
        # What this run recorded is dropped at the end of this call; only its edges to what was there before are kept.
        edges = _edges_before(begun, [t._node for t in tensors if t._node is not None])
        shapes, dtypes = [t.shape for t in tensors], [t.dtype for t in tensors]
        levels = functools.reduce(operator.or_, (edge.levels for edge in edges), 0)
        call = new_node(_Recomputed(f, args, kwargs, draws), None, (), edges, levels, shapes, dtypes)
        again = {id(t): wrap(t._array, output_node(call, i)) for i, t in enumerate(tensors)}
        return put_back([again.get(id(t), t) for t in outputs])

    return forgetful


class _Recomputed:
    """The op of a checkpointed call: its vjp runs the function again and pulls back through what that records."""

    gives_fresh, none_is_zero = False, True

    def __init__(self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], draws: dict[str, Any]):
        self._f, self._args, self._kwargs, self._draws = f, args, kwargs, draws
        self._lent = state.lent

    def __repr__(self) -> str:
        return f"checkpoint({getattr(self._f, '__name__', self._f)})"

    def again(self) -> list[Node]:
        """The nodes of the function's tracked outputs in a second run, which is recorded."""
        draws = get_state()
        set_state(self._draws)
        was_recording, state.recording = state.recording, state.mode
        try:
            with ExitStack() as lending:
                for tensors, values in self._lent:
                    lending.enter_context(lent(tensors, values))
                outputs, _ = flatten(self._f(*self._args, **self._kwargs))
        finally:
            state.recording = was_recording
            set_state(draws)
        return [t._node for t in outputs if isinstance(t, Tensor) and t._node is not None]

    def vjp(self, node: Node, g: tuple[Any, ...], recorded: bool) -> list[Any]:
        begun = next_tick()
        nodes = self.again()
        if set(_edges_before(begun, nodes)) != set(node.edges):
            raise RuntimeError(
                f"{self} computed with other tensors when it ran again than when it was called: what it uses has been "
                "replaced in between (a parameter, a layer that was frozen)"
            )
        check_unwritten(nodes, node.tick)
        found = backward_pass(zip(nodes, g), inputs=set(node.edges), recorded=recorded)
        return [found.get(edge) for edge in node.edges]


def _edges_before(begun: int, roots: list[Node]) -> tuple[Node, ...]:
    """The nodes older than `begun` to which the graph of the roots leads."""
    older: dict[Node, None] = {}
    seen, stack = set(roots), list(roots)
    while stack:
        node = stack.pop()
        if node.tick < begun:
            older[node] = None
            continue
        for edge in node.edges:
            if edge not in seen:
                seen.add(edge)
                stack.append(edge)
    return tuple(older)


# --- what they share ---------------------------------------------------------------------------------------------


def _pull(
    transform: Transform, roots: list[tuple[Node, Any]], inputs: list[Node], recorded: bool, retain: bool = False
) -> list[Any]:
    """The gradient of each input, zeros where there is no path to it."""
    found = backward_pass(roots, inputs=set(inputs), transform=transform, recorded=recorded, retain=retain)
    return [found[n] if n in found else np.zeros(n.shape, n.dtype) for n in inputs]


def _positions(argnums: ArgNums, count: int) -> list[int]:
    """Which of so many positional arguments. TypeError for what is none, ValueError for one that is named twice."""
    positions = [argnums] if isinstance(argnums, int) else argnums
    if not isinstance(positions, Sequence) or not all(isinstance(i, int) for i in positions):
        raise TypeError(f"argnums is the position of an argument, or a tuple of positions, and not {argnums!r}")
    for i in positions:
        if not -count <= i < count:
            raise TypeError(f"argnums names argument {i} of a call with {count} positional arguments")
    if len({i % count for i in positions}) < len(positions):
        raise ValueError(f"argnums {positions!r} names an argument of a call with {count} twice")
    return list(positions)


class _MarkedArguments:
    """A call's arguments with those of argnums replaced by Tensors that carry the transform's level."""

    def __init__(self, transform: Transform, args: Sequence[Any], argnums: ArgNums):
        positions = _positions(argnums, len(args))
        leaves, put_back = flatten([args[i] for i in positions])
        tensors = [_mark(transform, x) for x in leaves]
        self.nodes: list[Node] = [t._node for t in tensors if t._node is not None]
        self.args = list(args)
        for i, tree in zip(positions, put_back(tensors)):
            self.args[i] = tree
        self._put_back, self._single = put_back, isinstance(argnums, int)

    def rebuild(self, gradients: list[Any]) -> Any:
        """The gradients in the structure of the arguments they belong to."""
        trees = self._put_back(gradients)
        return trees[0] if self._single else tuple(trees)


def _mark(transform: Transform, x: Any) -> Tensor:
    array = x._array if isinstance(x, Tensor) else np.asarray(x)
    if array.dtype.kind != "f":
        raise TypeError(
            f"a gradient was asked for with respect to an argument of dtype {array.dtype}: "
            "pass floating numbers (3.0, not 3), or leave the argument out (of argnums; for vjp and jvp, close over it)"
        )
    outer = x._node if isinstance(x, Tensor) else None
    return wrap(array, transform.input(outer, array.shape, array.dtype))


def _name(f: Callable[..., Any]) -> str:
    return str(getattr(f, "__name__", f))


def _array_of(y: Any, f: Callable[..., Any]) -> np.ndarray:
    """What f returned, as an array; TypeError for what is no number."""
    array = y._array if isinstance(y, Tensor) else np.asarray(y)
    if array.dtype.kind not in "fciub":
        raise TypeError(f"{_name(f)} returned {type(y).__name__}, where an array or a number was expected")
    return array


def _check_real(y: Any, f: Callable[..., Any], what: str) -> None:
    if y.dtype.kind == "c":
        raise TypeError(
            f"a {what} is of real outputs, and {_name(f)} returned complex ones ({y.dtype}): take mg.real and mg.imag, "
            "each by itself, or mg.abs"
        )


def _check_no_nest(y: Any, f: Callable[..., Any], expected: str) -> None:
    if isinstance(y, (list, tuple, dict)):
        raise TypeError(
            f"{_name(f)} returned a {type(y).__name__} of {len(y)}, where {expected} was expected: return what is to "
            "be differentiated alone (mg.vjp and mg.jacobian take functions that return several arrays)"
        )


def _one_number(y: Any, f: Callable[..., Any]) -> np.ndarray:
    _check_no_nest(y, f, "one number")
    value = _array_of(y, f)
    if value.size != 1 or value.dtype.kind != "f":
        todo = "take mg.real, mg.imag or mg.abs" if value.dtype.kind == "c" else "reduce it first (.sum(), .mean())"
        raise ValueError(
            f"the gradient of {_name(f)} was asked for, which must return one floating number; "
            f"it returned {type(y).__name__} of shape {value.shape} and dtype {value.dtype}: {todo}"
        )
    return value


def _cotangents(cotangents: list[Any], values: list[np.ndarray]) -> list[Any]:
    """A cotangent for each output, of its shape and dtype."""
    given = [c if isinstance(c, Tensor) and c._node is not None else np.asarray(c) for c in cotangents]
    for c, value in zip(given, values):
        if c.dtype.kind not in "fciub" or (c.dtype.kind == "c" and value.dtype.kind != "c"):
            raise TypeError(f"a cotangent of dtype {c.dtype} was given for an output of dtype {value.dtype}")
        if c.shape != value.shape:
            raise ValueError(
                f"a cotangent of shape {c.shape} was given for an output of shape {value.shape}: they must be equal"
            )
    return [c if c.dtype == value.dtype else c.astype(value.dtype) for c, value in zip(given, values)]


def _inner_product(gradients: list[Any], tangents: list[Any]) -> Tensor:
    """sum over all arrays of <gradient, tangent>; ValueError where their shapes differ, TypeError for no numbers."""
    total: Any = wrap(np.zeros(()), None)
    for g, v in zip(gradients, tangents):
        dtype = v.dtype if isinstance(v, Tensor) else np.asarray(v).dtype
        if dtype.kind not in "fiub":
            raise TypeError(f"a direction is of real numbers, and one of dtype {dtype} was given")
        if np.shape(g) != np.shape(v):
            raise ValueError(f"a direction of shape {np.shape(v)} was given for an argument of shape {np.shape(g)}")
        total = total + sum(g * v)
    return total  # type: ignore[no-any-return]


def _finisher(as_tensor: bool) -> Callable[[Any], Any]:
    """What a transform returns: ndarrays of the caller's own at the outermost level, else (or as asked for) Tensors."""
    if state.depth or as_tensor:
        return lambda x: x if isinstance(x, Tensor) else wrap(own(x), None)
    return lambda x: own(x._array if isinstance(x, Tensor) else x)
