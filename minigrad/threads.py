"""How many threads run: one setting for BLAS (every matrix product) and for minigrad's own threads.

Nothing is touched until a number is set or the first work is spread: `import minigrad` leaves the process as it is.
"""

from __future__ import annotations

import contextvars
import itertools
import operator
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Here(threading.local):
    """What each thread knows of itself: whether it is at work for `spread`."""

    inside = False


class _Blas(NamedTuple):
    """A BLAS library, and how to ask and tell it the number of its threads."""

    get: Callable[[], int]
    set: Callable[[int], object]

    @classmethod
    def of(cls, controller: Any) -> _Blas:
        """OpenBLAS's own functions if it is one, else threadpoolctl's.

        The latter take several times as long, which counts where every kernel needs two; and from 3.8 on they heed but
        one thread that sets OpenBLAS's number. (With OpenMP each thread has a number of its own.)
        """
        if controller.internal_api == "openblas" and controller.threading_layer != "openmp":
            for prefix, suffix in itertools.product(("", "scipy_"), ("", "64_", "_64")):
                get, set_ = (
                    getattr(controller.dynlib, f"{prefix}openblas_{verb}_num_threads{suffix}", None)
                    for verb in ("get", "set")
                )
                if get is not None and set_ is not None:
                    return cls(get, set_)
        return cls(controller.get_num_threads, controller.set_num_threads)


class _Threads:
    """The setting, the BLAS libraries, and who runs now. Changed under `lock` alone.

    An interrupt may come between any two calls: so leave() may be called again, or without enter(), and should it not
    come to its end even then, the next enter() of that thread makes up for it.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()  # a signal handler may ask just then
        self.setting: int | None = None
        self.blas: list[_Blas] | None = None  # looked for once: it takes milliseconds
        self.inside: dict[int, int] = {}  # each thread that is inside `spread`, and how many helpers it has
        self.former: list[int] = []  # what BLAS is set to when nobody is inside any more; empty while it is not held
        self.helpers = 0  # threads of minigrad's own
        self.queue: SimpleQueue[tuple[_Job, contextvars.Context]] = SimpleQueue()

    def libraries(self) -> list[_Blas]:
        if self.blas is None:
            from threadpoolctl import ThreadpoolController  # half of what NumPy's own import takes

            self.blas = [_Blas.of(found) for found in ThreadpoolController().select(user_api="blas").lib_controllers]
        return self.blas

    def number(self) -> int:
        if self.setting is None:
            limits = self.former or [library.get() for library in self.libraries()]
            self.setting = max(1, min([cores(), *limits]))
        return self.setting

    def enter(self, wanted: int) -> int:
        """Begin to work with up to `wanted` threads, BLAS held to one; returns how many helpers the caller gets."""
        with self.lock:
            self.inside.pop(threading.get_ident(), None)
            if not self.former:
                self.former = [library.get() for library in self.libraries()]
                self._set_blas([1] * len(self.former))
            running = len(self.inside) + sum(self.inside.values())
            helpers = self.inside[threading.get_ident()] = max(0, min(wanted, self.number() - running) - 1)
            while self.helpers < sum(self.inside.values()):
                threading.Thread(target=_serve, args=(self.queue,), name="minigrad", daemon=True).start()
                self.helpers += 1
            return helpers

    def leave(self) -> None:
        with self.lock:
            self.inside.pop(threading.get_ident(), None)
            if self.former and not self.inside:
                self._set_blas(self.former)
                self.former = []

    def _set_blas(self, numbers: Sequence[int]) -> None:
        for library, n in zip(self.libraries(), numbers):
            library.set(n)

    def set(self, n: int) -> None:
        with self.lock:
            self.setting = n
            everywhere = [n] * len(self.libraries())
            if self.inside:
                self.former = everywhere
            else:
                self._set_blas(everywhere)

    def forget_threads(self) -> None:
        """In the child of a fork, where only the forking thread lives on."""
        self.lock = threading.RLock()
        if self.former:
            self._set_blas(self.former)
        self.inside, self.former, self.helpers = {}, [], 0
        self.queue = SimpleQueue()
        _here.inside = False


_here = _Here()
_threads = _Threads()
if hasattr(os, "register_at_fork"):
    # under the lock: the child will not have a thread that is in the midst of a change, and whatever it holds
    os.register_at_fork(
        before=lambda: _threads.lock.acquire(),
        after_in_parent=lambda: _threads.lock.release(),
        after_in_child=_threads.forget_threads,
    )


def set_num_threads(n: int) -> None:
    """Let at most `n` threads compute: BLAS's, and with it every matrix product of this process, and minigrad's own.

    ValueError below 1. Threads pay for wide products and long sequences on an otherwise idle machine. BLAS's wait for
    each other actively: where other work runs too, small products on two threads can take ten times as long as on one.

    >>> import minigrad as mg
    >>> mg.set_num_threads(1)
    >>> mg.get_num_threads()
    1
    """
    try:
        n = operator.index(n)
    except TypeError:
        raise TypeError(f"the number of threads is an integer, not {n!r}") from None
    if n < 1:
        raise ValueError(f"at least one thread is needed, and {n} was given")
    _threads.set(n)


def get_num_threads() -> int:
    """How many threads may compute at once.

    Unless set_num_threads said otherwise: as many as BLAS uses at first (environment variables such as
    OPENBLAS_NUM_THREADS decide that), and at most the cores that the process may use.
    """
    n = _threads.setting
    if n is None:
        with _threads.lock:
            n = _threads.number()
    return n


# --- work spread over threads ------------------------------------------------------------------------------------


class _Shared(Iterator[T]):
    """An iterator that several threads draw from; each item comes once.

    Without a lock: before Python 3.11 an interrupt may come between a `with` block and the release of its lock.
    """

    def __init__(self, items: Sequence[T]):
        self._items = deque(items)

    def __next__(self) -> T:
        try:
            return self._items.popleft()
        except IndexError:
            raise StopIteration from None

    def stop(self) -> None:
        self._items.clear()


class _Job:
    """Work handed to helpers; the first error of any of them ends it."""

    def __init__(self, work: Callable[[Iterator[Any]], None], units: _Shared[Any]):
        self._units = units
        self._work: Callable[[Iterator[Any]], None] | None = work
        self._begun: list[None] = []  # an item for each helper that has
        self._finished: list[None] = []
        self._bell: SimpleQueue[None] = SimpleQueue()  # rung by who has finished; an Event would take 20 us more
        self.error: BaseException | None = None

    def help(self, context: contextvars.Context) -> None:
        self._begun.append(None)
        work = self._work  # looked at after having begun, as end() looks at who has begun after taking it away
        try:
            if work is not None:
                context.run(work, self._units)
        except BaseException as error:
            self.error = error
            self._units.stop()
        finally:
            self._finished.append(None)
            self._bell.put(None)

    def end(self) -> None:
        """Let no helper begin any more, and wait for those that have: they write to arrays of the caller's.

        An interrupt meanwhile ends the work, and is raised when they have finished.
        """
        self._work = None
        interrupt: BaseException | None = None
        while len(self._finished) < len(self._begun):
            try:
                self._bell.get()
            except BaseException as error:
                interrupt = error
                self._units.stop()
        if interrupt is not None:
            try:
                raise interrupt
            finally:
                interrupt = None  # its traceback holds this frame


def _serve(queue: SimpleQueue[Any]) -> None:
    _here.inside = True
    while True:
        job, context = queue.get()
        job.help(context)
        del job, context  # arrays must not outlive the work because a helper has nothing else to do


def spread(work: Callable[[Iterator[T]], None], units: Sequence[T], threads: int | None = None) -> None:
    """Call work(iterator) in several threads at once; their iterators together hand out each of `units` once.

    Work that is called so prepares its workspace once and then loops over what it gets. BLAS is held to one thread
    meanwhile, so that no more run than set_num_threads allows. Called inside such work, or when all threads are busy,
    it runs in the calling thread alone. An exception in any thread ends the work of all, and is raised here; NumPy's
    error state is the caller's. threads: at most so many; 1 only holds BLAS.
    """
    if (len(units) < 2 and threads is None) or _here.inside or get_num_threads() < 2:
        work(iter(units))
        return
    try:
        _here.inside = True
        helpers = _threads.enter(min(len(units), threads or get_num_threads()))
        if helpers:
            _with_helpers(work, units, helpers)
        else:
            work(iter(units))
    finally:
        try:
            _threads.leave()
        except BaseException:  # an interrupt
            _threads.leave()
            raise
        finally:
            _here.inside = False


def _with_helpers(work: Callable[[Iterator[T]], None], units: Sequence[T], helpers: int) -> None:
    shared = _Shared(units)
    job = _Job(work, shared)
    try:
        for _ in range(helpers):
            _threads.queue.put((job, contextvars.copy_context()))
        work(shared)
        job.end()
    except BaseException:
        shared.stop()
        job.end()
        raise
    if job.error is not None:
        try:
            raise job.error
        finally:
            job.error = None  # its traceback holds this frame
