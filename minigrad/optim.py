"""Optimizers, schedules of the learning rate, gradient clipping, averaged weights.

All parameters of an optimizer live in one flat vector (one a dtype), and each parameter is a view of it, so that an
update is a handful of NumPy calls whatever the number of parameters.
"""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigrad.engine import note_write
from minigrad.kernels.memory import aligned, empty
from minigrad.nn.module import Module, check_mapping, check_state
from minigrad.tensor import Tensor
from minigrad.threads import spread

Group = dict[str, Any]

# {id(parameter): its optimizer}: two that moved one parameter's data into different vectors would fight over it.
# A living optimizer keeps its parameters alive, so an id in here is never another object's.
_owners: weakref.WeakValueDictionary[int, Optimizer] = weakref.WeakValueDictionary()

# An update reads and writes some six arrays; in pieces of this many elements they stay in a core's level-2 cache.
_PIECE = 32768
_SPREAD = 8 * _PIECE  # below that, threads would hardly be awake before the work is done
_SPREAD_PIECE = 4 * _PIECE  # threads take turns to start calls, and wait for each other unless calls are long


@dataclass(slots=True)
class _Run:
    """A stretch of a flat vector that is updated alike; step: the number of this update, from 1."""

    start: int
    end: int
    group: Group
    step: int


class _Flat:
    """The parameters of one dtype in one vector, with one more for their gradients and for each state (momentum)."""

    def __init__(self, parameters: list[Tensor], groups: list[Group], dtype: np.dtype[Any], states: Sequence[str]):
        self.parameters, self.groups = parameters, groups
        ends = np.cumsum([p.size for p in parameters])
        self.spans = list(zip([0, *map(int, ends[:-1])], map(int, ends)))
        size = int(ends[-1])
        self.data, self.gradient = aligned(size, dtype), aligned(size, dtype)
        self.states = {name: aligned(size, dtype) for name in states}
        for state in self.states.values():
            state.fill(0)
        self.scratch = aligned(min(size, _PIECE), dtype)  # for a thread that works alone
        self.steps = [0] * len(parameters)
        self.gradient_views = []
        for p, (start, end) in zip(parameters, self.spans):
            view = self.data[start:end].reshape(p.shape)
            view[...] = p._array
            p._array = view
            self.gradient_views.append(self.gradient[start:end].reshape(p.shape))

    def runs(self) -> list[_Run]:
        """The stretches to be updated alike, their gradients copied in.

        A parameter without a gradient is left out of every stretch.
        """
        runs: list[_Run] = []
        copies: list[tuple[np.ndarray, np.ndarray]] = []
        for i, p in enumerate(self.parameters):
            gradient = p._node.notes.grad if p._node is not None and p._node.notes is not None else None
            if gradient is None:
                continue
            copies.append((self.gradient_views[i], gradient))
            self.steps[i] = step = self.steps[i] + 1
            (start, end), group = self.spans[i], self.groups[i]
            last = runs[-1] if runs else None
            if last is not None and last.end == start and last.step == step and last.group is group:
                last.end = end
            else:
                runs.append(_Run(start, end, group, step))
        _spread(_copy, copies, len(self.data))
        return runs


def _copy(pairs: Iterator[tuple[np.ndarray, np.ndarray]]) -> None:
    for place, gradient in pairs:
        place[...] = gradient


def _spread(work: Callable[[Iterator[Any]], None], units: Sequence[Any], size: int) -> None:
    """Over threads where that pays."""
    if size < _SPREAD:
        work(iter(units))
    else:
        spread(work, units)


class Optimizer:
    """What all optimizers share: groups, the flat vectors, state. A parameter whose gradient is None is skipped."""

    _states: tuple[str, ...] = ()

    def __init__(self, parameters: Iterable[Any], **defaults: Any):
        self.groups = _as_groups(parameters, defaults)
        every = [(p, group) for group in self.groups for p in group["params"]]
        for p, _ in every:
            if id(p) in _owners:  # (a local name for the owner would live on in the traceback, and keep it alive)
                raise ValueError(
                    f"a parameter of shape {p.shape} already belongs to another optimizer: delete that one first, "
                    "or pass all parameters to one optimizer, in groups"
                )
        self._flats = []
        for dtype in dict.fromkeys(p.dtype for p, _ in every):
            mine = [(p, group) for p, group in every if p.dtype == dtype]
            self._flats.append(_Flat([p for p, _ in mine], [g for _, g in mine], dtype, self._states))
        for p, _ in every:
            _owners[id(p)] = self

    def __reduce__(self) -> Any:
        raise TypeError(
            "an optimizer is not copied or pickled, for a copy would not hold the copied model's parameters: "
            "make a new one and give it this one's state_dict()"
        )

    def step(self) -> None:
        """Update every parameter that has a gradient."""
        for flat in self._flats:
            runs = flat.runs()
            size = _PIECE if len(flat.data) < _SPREAD else _SPREAD_PIECE
            pieces = [
                (slice(low, min(low + size, run.end)), run) for run in runs for low in range(run.start, run.end, size)
            ]
            _spread(functools.partial(self._update_pieces, flat), pieces, len(flat.data))
            for run in runs:
                note_write(flat.data[run.start : run.end])

    def _update_pieces(self, flat: _Flat, pieces: Iterator[tuple[slice, _Run]]) -> None:
        room = flat.scratch if len(flat.data) < _SPREAD else empty((_SPREAD_PIECE,), flat.data)
        for piece, run in pieces:
            states = [state[piece] for state in flat.states.values()]
            scratch = room[: piece.stop - piece.start]
            self._update(flat.data[piece], flat.gradient[piece], scratch, states, run.group, run.step)

    def _update(
        self, p: np.ndarray, g: np.ndarray, scratch: np.ndarray, states: list[np.ndarray], group: Group, step: int
    ) -> None:
        """Update one piece in place; g is the optimizer's own copy, free to be overwritten."""
        raise NotImplementedError

    def zero_grad(self) -> None:
        """Forget all gradients: each parameter's .grad becomes None."""
        for flat in self._flats:
            for p in flat.parameters:
                if p._node is not None and p._node.notes is not None:  # p.grad = None, at a fourth of the time
                    p._node.notes.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Copies of the state vectors, step numbers, hyperparameters and shapes; load_state_dict takes them back."""
        vectors = {}
        for flat in self._flats:
            states = {name: state.copy() for name, state in flat.states.items()}
            vectors[str(flat.data.dtype)] = {**states, "steps": np.array(flat.steps)}
        hyperparameters = [{k: v for k, v in group.items() if k != "params"} for group in self.groups]
        shapes = [[list(p.shape) for p in group["params"]] for group in self.groups]
        return {"vectors": vectors, "groups": hyperparameters, "shapes": shapes}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what state_dict returned; ValueError, with nothing changed, if it is another optimizer's."""
        check_mapping(state, f"{type(self).__name__}.load_state_dict", "what state_dict() returns")
        here = self.state_dict()
        check_state(_named_vectors(here), _named_vectors(state), type(self).__name__)
        if state["shapes"] != here["shapes"]:
            raise ValueError(
                f"this state is of parameters of other shapes (nothing was loaded): expected, group by group, "
                f"{here['shapes']}, got {state['shapes']}"
            )
        keys = [set(group) for group in here["groups"]]
        if keys != [set(group) for group in state["groups"]]:
            raise ValueError(f"the groups of this state do not fit {type(self).__name__}: expected {keys}")
        hyperparameters = [_checked(group) for group in state["groups"]]
        for flat in self._flats:
            vectors = state["vectors"][str(flat.data.dtype)]
            for name, array in flat.states.items():
                array[...] = vectors[name]
            flat.steps = [int(n) for n in vectors["steps"]]
        for group, values in zip(self.groups, hyperparameters):
            group.update(values)


def _named_vectors(state: Mapping[str, Any]) -> dict[str, np.ndarray]:
    rows = state.get("vectors", {}).items()
    return {f"{dtype}.{name}": np.asarray(array) for dtype, vectors in rows for name, array in vectors.items()}


def _as_list(parameters: Iterable[Any], who: str) -> list[Any]:
    """TypeError for a tensor, which would be taken for a list of its rows, and for a module."""
    if isinstance(parameters, (Module, Tensor)):
        todo = "model.parameters()" if isinstance(parameters, Module) else "[parameter]"
        raise TypeError(f"{who} takes a list of parameters, and was given one {type(parameters).__name__}: pass {todo}")
    return list(parameters)


def _once(parameters: Iterable[Tensor], who: str) -> list[Tensor]:
    """Each tensor once, in order. TypeError for what is none."""
    given = _as_list(parameters, who)
    for p in given:
        if not isinstance(p, Tensor):
            raise TypeError(f"{who} takes a list of parameters, and was given {p!r:.80} in it")
    return list({id(p): p for p in given}.values())


def _as_groups(parameters: Iterable[Any], defaults: Group) -> list[Group]:
    """Groups with every hyperparameter filled in, and each parameter in the first group that names it."""
    given = _as_list(parameters, "an optimizer")
    groups = given if given and isinstance(given[0], Mapping) else [{"params": given}]
    seen: set[int] = set()
    filled = []
    for group in groups:
        unknown = set(group) - {"params", *defaults}
        if unknown or "params" not in group:
            raise TypeError(f"a group has 'params' and any of {sorted(defaults)}; one was given {sorted(group)}")
        params = []
        for p in _as_list(group["params"], "a group"):
            if not isinstance(p, Tensor) or p._has_history() or p.dtype.kind != "f":
                raise TypeError(f"an optimizer takes floating tensors that no op has made, and was given {p!r:.80}")
            if id(p) not in seen:
                seen.add(id(p))
                params.append(p)
        filled.append(_checked({**defaults, **group, "params": params}))
    if not seen:
        raise ValueError("an optimizer needs at least one parameter, and the list is empty")
    return filled


_NUMBERS = ("lr", "weight_decay", "eps", "momentum", "dampening")


def _checked(group: Group) -> Group:
    """The group with Python's own numbers for hyperparameters, so that a saved state brings the same bits back."""
    group = {name: float(value) if name in _NUMBERS else value for name, value in group.items()}
    for name in _NUMBERS:
        if name in group and not (math.isfinite(group[name]) and group[name] >= 0):
            raise ValueError(f"{name} must be a finite number of at least 0, and {group[name]} was given")
    if "betas" in group:
        group["betas"] = tuple(map(float, group["betas"]))
        if len(group["betas"]) != 2 or not all(0 <= beta < 1 for beta in group["betas"]):
            raise ValueError(f"betas must be two numbers in [0, 1), and {group['betas']} were given")
    if group.get("nesterov") and (group["momentum"] == 0 or group["dampening"] != 0):
        raise ValueError("Nesterov momentum needs a momentum above 0 and no dampening")
    return group


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum (heavy-ball or Nesterov's) and L2 weight decay.

    b = momentum * b + (1 - dampening) * g (the first time b = g); p -= lr * b, or lr * (g + momentum * b) for Nesterov
    (Sutskever et al. 2013, in PyTorch's form).
    """

    _states = ("momentum",)

    def __init__(
        self,
        parameters: Iterable[Any],
        lr: float,
        momentum: float = 0,
        dampening: float = 0,
        nesterov: bool = False,
        weight_decay: float = 0,
    ):
        super().__init__(
            parameters, lr=lr, momentum=momentum, dampening=dampening, nesterov=nesterov, weight_decay=weight_decay
        )

    def _update(
        self, p: np.ndarray, g: np.ndarray, scratch: np.ndarray, states: list[np.ndarray], group: Group, step: int
    ) -> None:
        (b,) = states
        momentum = group["momentum"]
        if group["weight_decay"]:
            g += np.multiply(p, group["weight_decay"], out=scratch)
        if momentum:
            if step == 1:
                b[...] = g
            else:
                b *= momentum
                b += np.multiply(g, 1 - group["dampening"], out=scratch)
            if group["nesterov"]:
                g += np.multiply(b, momentum, out=scratch)
            else:
                g[...] = b
        g *= group["lr"]
        p -= g


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015, algorithm 1), epsilon outside the square root.

    weight_decay: L2, this many times the parameter is added to its gradient.
    """

    _states = ("m", "v")

    def __init__(
        self,
        parameters: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
    ):
        super().__init__(parameters, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def _update(
        self, p: np.ndarray, g: np.ndarray, scratch: np.ndarray, states: list[np.ndarray], group: Group, step: int
    ) -> None:
        if group["weight_decay"]:
            self._decay(p, g, scratch, group)
        m, v = states
        beta1, beta2 = group["betas"]
        # NumPy takes longer for `m *= beta1` than for the function, by a third of what a small piece takes
        np.multiply(m, beta1, out=m)
        np.multiply(g, 1 - beta1, out=scratch)
        m += scratch
        np.multiply(v, beta2, out=v)
        np.square(g, out=g)
        np.multiply(g, 1 - beta2, out=g)
        v += g
        # m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps), the constants drawn together
        np.sqrt(v, out=scratch)
        correction = math.sqrt(1 - beta2**step)
        np.add(scratch, group["eps"] * correction, out=scratch)
        np.divide(m, scratch, out=scratch)
        np.multiply(scratch, group["lr"] * correction / (1 - beta1**step), out=scratch)
        p -= scratch

    def _decay(self, p: np.ndarray, g: np.ndarray, scratch: np.ndarray, group: Group) -> None:
        g += np.multiply(p, group["weight_decay"], out=scratch)


class AdamW(Adam):
    """Adam with decoupled weight decay: p *= 1 - lr * weight_decay before the step (Loshchilov and Hutter 2019)."""

    def __init__(
        self,
        parameters: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ):
        super().__init__(parameters, lr, betas, eps, weight_decay)

    def _decay(self, p: np.ndarray, g: np.ndarray, scratch: np.ndarray, group: Group) -> None:
        p *= 1 - group["lr"] * group["weight_decay"]


# --- schedules ---------------------------------------------------------------------------------------------------

_DECAYS: dict[str, Callable[[float, float], float]] = {
    # of the fraction of the way from the end of the warm-up to the end, and the step number over that of the warm-up
    "constant": lambda fraction, ratio: 1.0,
    "linear": lambda fraction, ratio: 1 - fraction,
    "cosine": lambda fraction, ratio: (1 + math.cos(math.pi * fraction)) / 2,
    "inverse_sqrt": lambda fraction, ratio: 1 / math.sqrt(ratio),
}


class Schedule:
    """A learning rate that rises linearly over `warmup` steps, and then stays or falls as `decay` says.

    decay: "constant", "linear" or "cosine" (both to 0 at `total` steps), "inverse_sqrt" (Vaswani et al. 2017,
    section 5.3). Call step() after each optimizer.step(). Each group keeps its own peak: the lr that it had when the
    schedule was made.
    """

    def __init__(self, optimizer: Optimizer, *, decay: str = "constant", warmup: int = 0, total: int | None = None):
        if decay not in _DECAYS:
            raise ValueError(f"decay is one of {', '.join(_DECAYS)}, not {decay!r}")
        if warmup < 0:
            raise ValueError(f"a warm-up takes at least 0 steps, and {warmup} were given")
        if decay in ("linear", "cosine") and (total is None or total <= warmup):
            raise ValueError(f"a {decay} decay needs a total number of steps above the warm-up's {warmup}, not {total}")
        self._optimizer, self._decay = optimizer, decay
        self._warmup, self._total = warmup, total
        self._peaks = [group["lr"] for group in optimizer.groups]
        self.n = 0
        self._apply()

    def factor(self, n: int) -> float:
        """What the peak is multiplied with for step number n, counted from 0."""
        if n < self._warmup:
            return (n + 1) / self._warmup
        fraction = (n - self._warmup) / max((self._total or 0) - self._warmup, 1)
        return _DECAYS[self._decay](min(fraction, 1.0), (n + 1) / max(self._warmup, 1))

    def step(self) -> None:
        """Set the learning rates for the next step."""
        self.n += 1
        self._apply()

    def _apply(self) -> None:
        for group, peak in zip(self._optimizer.groups, self._peaks):
            group["lr"] = peak * self.factor(self.n)

    def state_dict(self) -> dict[str, Any]:
        return {"n": self.n, "peaks": list(self._peaks)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_mapping(state, f"{type(self).__name__}.load_state_dict", "what state_dict() returns")
        if len(state["peaks"]) != len(self._peaks):
            raise ValueError(f"this schedule has {len(self._peaks)} groups, and the state {len(state['peaks'])}")
        self.n, self._peaks = int(state["n"]), list(state["peaks"])
        self._apply()


# --- gradients and averages --------------------------------------------------------------------------------------


def clip_grad_norm(parameters: Iterable[Tensor], max_norm: float, *, error_if_nonfinite: bool = False) -> float:
    """Scale all gradients, as one vector, down to max_norm if it is longer; returns its norm before.

    Tied weights count once. A norm that is not finite leaves the gradients alone, or raises FloatingPointError when
    asked to.
    """
    if not max_norm >= 0:
        raise ValueError(f"max_norm must be a number of at least 0, and {max_norm} was given")
    unique = _once(parameters, "clip_grad_norm")
    gradients = [p.grad for p in unique if p.grad is not None]
    norm = math.sqrt(sum(float(np.vdot(g, g)) for g in gradients))
    if not 1e-15 < norm < math.inf:  # the squares may have left the range of floats where the norm itself does not
        norm = _scaled_norm(gradients)
    if not math.isfinite(norm):
        if error_if_nonfinite:
            raise FloatingPointError(f"the norm of the gradients is {norm}: some gradient is NaN or infinite")
        return norm
    if norm > max_norm:
        for g in gradients:
            g *= max_norm / norm
    return norm


def _scaled_norm(gradients: list[np.ndarray]) -> float:
    largest = float(np.max([np.max(np.abs(g), initial=0) for g in gradients], initial=0))
    if not 0 < largest < math.inf:
        return largest
    scaled = (np.divide(g, largest, dtype=np.float64) for g in gradients)
    return largest * math.sqrt(sum(float(np.vdot(s, s)) for s in scaled))


class ExponentialAverage:
    """An exponential moving average of the weights: after each step a += (1 - decay) (p - a).

    The average starts at the weights themselves, and follows quickly at first: in update number n, decay is at most
    (1 + n) / (10 + n).
    """

    def __init__(self, parameters: Iterable[Tensor], decay: float):
        if not 0 <= decay < 1:
            raise ValueError(f"a decay lies in [0, 1), and {decay} was given")
        self._parameters = _once(parameters, "ExponentialAverage")
        self.average = [p._array.copy() for p in self._parameters]
        self.decay, self.n = decay, 0

    def update(self) -> None:
        """Take the present weights into the average."""
        self.n += 1
        weight = 1 - min(self.decay, (1 + self.n) / (10 + self.n))
        for p, average in zip(self._parameters, self.average):
            average += weight * (p._array - average)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within this context the parameters hold their averages; afterwards their own values again."""
        own = [p._array.copy() for p in self._parameters]
        try:
            self._write(self.average)
            yield
        finally:
            self._write(own)

    def _write(self, arrays: list[np.ndarray]) -> None:
        for p, array in zip(self._parameters, arrays):
            p._array[...] = array
            note_write(p._array)

    def state_dict(self) -> dict[str, Any]:
        return {"n": self.n, "average": [average.copy() for average in self.average]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_mapping(state, f"{type(self).__name__}.load_state_dict", "what state_dict() returns")
        expected, given = (
            {str(i): np.asarray(a) for i, a in enumerate(arrays)} for arrays in (self.average, state["average"])
        )
        check_state(expected, given, "ExponentialAverage")
        self.n = int(state["n"])
        for average, array in zip(self.average, state["average"]):
            average[...] = array
