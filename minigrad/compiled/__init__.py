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
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigrad.compiled.program import Program, Workspace
from minigrad.compiled.recorder import Recorder
from minigrad.compiled.steps import NOT_FITTING, UntraceableError
from minigrad.compiled.tensors import recorder_here, tensors_traced
from minigrad.compiled.traced import Traced
from minigrad.engine import (
    ON,
    Node,
    backward_pass,
    is_leaf,
    leaf,
    observers,
    state,
)
from minigrad.kernels.memory import give_back
from minigrad.kernels.pieces import following
from minigrad.op import Op, watching
from minigrad.tensor import Tensor, wrap
from minigrad.threads import get_num_threads
from minigrad.trees import flatten, structure

_hooks_of = operator.attrgetter("hooks")

_MOST = 4  # programs for arguments of the same shapes and dtypes

# So often may a call turn out to fit none of them, and once more for so many that did, before all run eagerly.
_TRIES, _RUNS_A_TRY = 3, 16


class Compiled:
    """What `compile` returns: call it like the loss function; each call also does what loss.backward() would do."""

    def __init__(self, function: Callable[..., Any], check_every: int, cache: int):
        functools.update_wrapper(self, function)
        self._function = function
        self._check_every, self._cache = check_every, cache
        self._recordings: OrderedDict[Any, _Recordings] = OrderedDict()
        self._workspace = Workspace()
        self._lock = threading.RLock()

    def __call__(self, *args: Any) -> Tensor:
        leaves, put_back = flatten(args)
        leaves = [_as_tensor(x) for x in leaves]
        outer = recorder_here()
        if outer is not None:  # it is to call backward(), which another program does not know of
            outer.refuse("a compiled function is called")
        if state.recording != ON or state.depth or observers:
            return self._run_eagerly(put_back(leaves))
        with self._lock:
            return self._run(structure(args), leaves, put_back)

    def _run(self, shape_of_args: Any, leaves: list[Any], put_back: Callable[[list[Any]], Any]) -> Tensor:
        key = (get_num_threads(), shape_of_args, *[_signature(x) for x in leaves])
        try:
            recordings = self._recordings_for(key)
        except TypeError:  # an argument that Python cannot hash (a set, a slice) may be another one at every call
            return self._run_eagerly(put_back(leaves))
        nodes = [x._node for x in leaves if isinstance(x, Tensor) and x._node is not None]
        if recordings.hopeless or len(set(nodes)) < len(nodes):
            return self._run_eagerly(put_back(leaves))
        if any(node.notes is not None and node.notes.hooks for node in nodes):
            return self._run_eagerly(put_back(leaves))
        for recorded in recordings.of_present_tensors():
            if recorded.is_hooked() or recorded.holds_any(nodes):
                return self._run_eagerly(put_back(leaves))
            try:
                loss = self._run_recorded(recorded, leaves, put_back)
            except NOT_FITTING:
                continue
            recordings.note_run(recorded)
            return loss
        return self._record(recordings, leaves, put_back)

    def _recordings_for(self, key: Any) -> _Recordings:
        found = self._recordings.get(key)
        if found is None:
            found = self._recordings[key] = _Recordings()
            if len(self._recordings) > self._cache:
                self._recordings.popitem(last=False)
        elif len(self._recordings) > 1:
            self._recordings.move_to_end(key)
        return found

    def _run_recorded(self, recorded: _Recorded, leaves: list[Any], put_back: Callable[[list[Any]], Any]) -> Tensor:
        if self._check_every and (recorded.runs + 1) % self._check_every == 0:
            return self._run_checked(recorded, leaves, put_back)
        return recorded.run(leaves)

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
                f"a gradient; {self._name()} returned {what}"
            )
        return loss

    def _name(self) -> str:
        return str(getattr(self._function, "__name__", self._function))

    def _record(self, recordings: _Recordings, leaves: list[Any], put_back: Callable[[list[Any]], Any]) -> Tensor:
        recorder = Recorder()
        inputs = [np.array(x._array, order="K") if isinstance(x, Tensor) else None for x in leaves]
        # Arguments have nodes of their own: the function may hold the same tensor besides.
        nodes_of = {x._node: leaf(x) for x in leaves if isinstance(x, Tensor) and x._node is not None}
        stand_ins = [x if a is None else wrap(a, nodes_of.get(x._node)) for x, a in zip(leaves, inputs)]
        try:
            with watching(recorder), following(recorder.follow), tensors_traced(recorder):
                loss = self._loss(put_back(stand_ins))
                recorder.raise_refusal()
                assert loss._node is not None
                nodes = _leaf_nodes(loss._node, draws=bool(recorder.generators))
                recorder.turn_back()
                found = backward_pass([(loss._node, loss._cotangent(None))], inputs=set(nodes))
        except UntraceableError:
            recordings.give_up()
            recorder.rewind()
            return self._run_eagerly(put_back(leaves))
        if recorder.has_lost_a_tensor():  # a program would go on with the first; this run has done all that it should
            recordings.give_up()
        given = {stand_in: node for node, stand_in in nodes_of.items()}
        value = loss._array
        gradients = [(given.get(node, node), _array_of(found[node])) for node in nodes if node in found]
        held = {node for node in nodes if node not in given}
        del loss, found, stand_ins
        result = value.copy()
        for node, g in gradients:
            _add_gradient(node, g)
        if recordings.programs:
            recordings.note_miss()
        if held.isdisjoint(nodes_of):
            recordings.add(_Recorded(recorder, leaves, inputs, value, gradients, self._workspace))
        del value, gradients
        give_back()  # what recording has left behind is as large as the workspace will be
        return wrap(result, None)

    def _run_checked(self, recorded: _Recorded, leaves: list[Any], put_back: Callable[[list[Any]], Any]) -> Tensor:
        """A run that is compared with an eager one; RuntimeError where they differ."""
        draws = recorded.program.draws()
        value, gradients = recorded.compute(leaves)
        recorded.program.put_back(draws)
        loss = self._loss(put_back(leaves))
        assert loss._node is not None
        nodes = _leaf_nodes(loss._node, draws=False)
        found = backward_pass([(loss._node, loss._cotangent(None))], inputs=set(nodes))
        differences = [] if np.array_equal(value, loss._array, equal_nan=True) else [f"loss {value} against {loss:.9g}"]
        differences += [
            f"the gradient of shape {g.shape}"
            for node, g in gradients
            if node not in found or not np.array_equal(g, found[node], equal_nan=True)
        ]
        if differences or len(found) != len(gradients):
            raise RuntimeError(
                f"a compiled run of {self._name()} differs from an eager one in {', '.join(differences)}: "
                "something that is not an argument has changed since it was recorded (train or eval mode, a Python "
                "number, a closed-over array): make it an argument, or compile anew"
            )
        return recorded.finish(value, gradients)


class _Recordings:
    """The programs for arguments of the same shapes and dtypes.

    There are several where what is done follows from values that an op looks at: whether a mask hides anything.
    """

    def __init__(self) -> None:
        self.programs: list[_Recorded] = []  # the one that ran last first
        self._runs = self._misses = 0
        self.hopeless = False  # whether recording does not pay

    def of_present_tensors(self) -> list[_Recorded]:
        """The programs; without those whose tensors have moved, which never run again."""
        if not all(recorded.fits() for recorded in self.programs):
            self.programs = [recorded for recorded in self.programs if recorded.fits()]
            self.note_miss()
        return self.programs

    def note_run(self, recorded: _Recorded) -> None:
        self._runs += 1
        recorded.runs += 1
        if recorded is not self.programs[0]:
            self.programs.remove(recorded)
            self.programs.insert(0, recorded)

    def note_miss(self) -> None:
        self._misses += 1
        if self._misses > _TRIES + self._runs // _RUNS_A_TRY:
            self.give_up()

    def add(self, recorded: _Recorded) -> None:
        if not self.hopeless:
            self.programs = [recorded, *self.programs[: _MOST - 1]]

    def give_up(self) -> None:
        self.hopeless = True
        self.programs = []


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
        self._held = {node for node in self._targets if isinstance(node, Node)}
        self._notes: list[Any] = [node.notes for node in self._held]
        self._tensors = recorder.tensors()
        self.program = Program(
            recorder, [x for x in inputs if x is not None], loss, [g for _, g in gradients], workspace
        )

    def fits(self) -> bool:
        """Whether the tensors that the function closes over still are where they were, and constants still constants.

        An optimizer that is made later moves parameters; a layer that was frozen may train again.
        """
        for reference, node, array in self._tensors:
            t = reference()
            if t is None or t._node is not node or t._array is not array:
                return False
        return True

    def holds_any(self, nodes: Sequence[Node]) -> bool:
        """Whether an argument is a tensor that the function also uses by itself: the two gradients are one sum then."""
        return not self._held.isdisjoint(nodes)

    def _nodes(self, leaves: list[Any]) -> list[Node]:
        return [leaves[target]._node if isinstance(target, int) else target for target in self._targets]

    def is_hooked(self) -> bool:
        """Whether somebody watches the gradient of a parameter."""
        return any(map(_hooks_of, self._notes))

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
        return x if _is_compact(x._array) else wrap(np.array(x._array), x._node)
    if not isinstance(x, (np.ndarray, np.generic)):
        return x
    array = np.asarray(x)
    return wrap(array if _is_compact(array) else np.array(array), None)


def _is_compact(x: np.ndarray) -> bool:
    """Whether a copy lies in memory as x does: products of others round in other orders."""
    return bool(x.flags.forc) or np.empty_like(x).strides == x.strides


def _signature(x: Any) -> Any:
    if isinstance(x, Tensor):
        a = x._array
        return a.shape, a.strides, a.dtype, x._node is not None
    return type(x), repr(x) if isinstance(x, (float, complex)) else x  # 0.0 == -0.0, and NaN is not equal to itself


def _leaf_nodes(root: Node, draws: bool) -> list[Node]:
    """The leaves that lead to the root; UntraceableError if a tensor on the way has a hook or keeps its gradient.

    And if a checkpointed call must make the draws of the forward pass again.
    """
    seen, stack, leaves = {root}, [root], []
    while stack:
        node = stack.pop()
        if node.notes is not None and (node.notes.hooks or (node.notes.retain and not is_leaf(node))):
            raise UntraceableError("somebody watches a gradient")
        if draws and node.op is not None and not isinstance(node.op, Op):
            raise UntraceableError("a checkpointed call draws anew")
        if is_leaf(node):
            leaves.append(node)
        for edge in node.edges:
            if edge not in seen:
                seen.add(edge)
                stack.append(edge)
    return leaves


def _array_of(x: Any) -> np.ndarray:
    return x.array if isinstance(x, Traced) else np.asarray(x)


def _add_gradient(node: Node, g: np.ndarray) -> None:
    notes = node.notes
    assert notes is not None
    if notes.grad is None:
        notes.grad = g.copy()
    else:
        notes.grad += g


def compile(function: Callable[..., Any], *, check_every: int = 0, cache: int = 128) -> Compiled:
    """A function that does what loss = function(*args); loss.backward() does, faster, and returns the loss.

    The first call with arguments of new shapes or dtypes runs eagerly and records every NumPy call of the forward and
    the backward pass, with all memory planned; later ones run the list of these calls, and are bit-equal to eager runs.
    Gradients are added to `.grad` of all leaves; the optimizer's step stays outside. Where batches are large, each
    thread (set_num_threads) takes some of the examples through both passes.

    Arguments: arrays, tensors and nests of them, which enter the function as Tensors (copied if they are not
    contiguous), and anything else, which is part of what is recorded (a call with another number records anew). So is
    everything else that the function uses: train or eval mode, Python numbers, lengths of lists; scalars that change
    are passed as 0-d arrays. Of tensors that it closes over the present values count; when one begins or ceases to
    require a gradient, or is moved by an optimizer, it records anew.
    Where an op looks at values (whether a mask hides anything), each outcome is recorded, up to four; if others come
    too often, all calls with such arguments run eagerly.
    check_every: compare each n-th run with an eager one, and raise RuntimeError where they differ. cache: for how many
    kinds of arguments recordings are kept.

    Reading a value in the function (float, bool, .item(), .numpy()) is a TypeError that names the line. In ops of your
    own ask with isinstance whether something is an array: its type is another while the function is recorded. Dropout
    draws anew in every run; a generator of NumPy's that the function closes over does not. With hooks, captures or
    anomaly detection the function runs eagerly, and so does one that writes to a tensor in place, or puts another in
    its place (a running mean).

    >>> import minigrad as mg
    >>> w = mg.tensor([1.0, 2.0], requires_grad=True)
    >>> step = compile(lambda x: ((w * x) ** 2).sum())
    >>> step(np.array([1.0, 1.0])), step(np.array([2.0, 0.0]))
    (tensor(5.), tensor(4.))
    >>> w.grad
    array([10.,  4.])
    """
    if not callable(function):
        raise TypeError(f"mg.compile takes a function that returns a loss, and was given {type(function).__name__}")
    if check_every < 0 or cache < 1:
        raise ValueError(f"check_every is at least 0 and cache at least 1, not {check_every} and {cache}")
    return Compiled(function, check_every, cache)
