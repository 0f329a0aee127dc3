"""How many threads run: one setting for BLAS (every matrix product) and for minigrad's own threads.

Nothing is touched until a number is set or the first work is spread: `import minigrad` leaves the process as it is.
"""

from __future__ import annotations

import contextvars
import operator
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Here(threading.local):
    """What each thread knows of itself: whether it is at work for `spread`."""

    inside = False


class _Threads:
    """The setting, BLAS's controllers, and who runs now. Changed under `lock` alone."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.setting: int | None = None
        self.blas: list[Any] | None = None  # looked for once: it takes milliseconds, and a call to one a microsecond
        self.running = 0  # threads inside `spread`, callers included
        self.former: list[int] = []  # what BLAS is set to when nobody is inside any more
        self.helpers = self.helping = 0  # threads of minigrad's own: started, and promised to somebody
        self.queue: SimpleQueue[tuple[_Job, contextvars.Context]] = SimpleQueue()

    def libraries(self) -> list[Any]:
        if self.blas is None:
            from threadpoolctl import ThreadpoolController  # half of what NumPy's own import takes

            self.blas = ThreadpoolController().select(user_api="blas").lib_controllers
        return self.blas

    def number(self) -> int:
        if self.setting is None:
            limits = self.former if self.running else [library.get_num_threads() for library in self.libraries()]
            self.setting = max(1, min([cores(), *limits]))
        return self.setting

    def enter(self, wanted: int) -> int:
        """Begin to work with up to `wanted` threads, BLAS held to one; returns how many helpers the caller gets."""
        with self.lock:
            helpers = max(0, min(wanted, self.number() - self.running) - 1)
            if not self.running:
                self.former = [library.get_num_threads() for library in self.libraries()]
                self._set_blas([1] * len(self.former))
            self.running += 1 + helpers
            self.helping += helpers
            while self.helpers < self.helping:
                threading.Thread(target=_serve, args=(self.queue,), name="minigrad", daemon=True).start()
                self.helpers += 1
            return helpers

    def leave(self, helpers: int) -> None:
        with self.lock:
            self.running -= 1 + helpers
            self.helping -= helpers
            if not self.running:
                self._set_blas(self.former)

    def _set_blas(self, numbers: Sequence[int]) -> None:
        for library, n in zip(self.libraries(), numbers):
            library.set_num_threads(n)

    def set(self, n: int) -> None:
        with self.lock:
            self.setting = n
            self.former = [n] * len(self.libraries())
            if not self.running:
                self._set_blas(self.former)

    def forget_threads(self) -> None:
        """In the child of a fork, where only the forking thread lives on."""
        self.lock = threading.Lock()
        if self.running:
            self._set_blas(self.former)
        self.running = self.helpers = self.helping = 0
        self.queue = SimpleQueue()
        _here.inside = False


_here = _Here()
_threads = _Threads()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.forget_threads)


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
    """An iterator that several threads draw from; each item comes once."""

    def __init__(self, items: Iterable[T]):
        self._items = iter(items)
        self._lock = threading.Lock()

    def __next__(self) -> T:
        with self._lock:
            return next(self._items)

    def stop(self) -> None:
        with self._lock:
            self._items = iter(())


class _Job:
    """Work handed to some helpers; the first error of any of them ends it."""

    def __init__(self, work: Callable[[Iterator[Any]], None], units: _Shared[Any], helpers: int):
        self.work = work
        self.units = units
        self._helpers = helpers
        self._finished: list[None] = []  # an item for each helper that has
        self._bell: SimpleQueue[None] = SimpleQueue()  # rung by each of them; an Event would take 20 microseconds more
        self.error: BaseException | None = None

    def help(self, context: contextvars.Context) -> None:
        try:
            context.run(self.work, self.units)
        except BaseException as error:
            self.error = error
            self.units.stop()
        finally:
            self._finished.append(None)
            self._bell.put(None)

    def wait(self) -> None:
        """Whoever is interrupted while waiting can wait again."""
        while len(self._finished) < self._helpers:
            self._bell.get()


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
    helpers = _threads.enter(min(len(units), threads or get_num_threads()))
    _here.inside = True
    try:
        if helpers:
            _with_helpers(work, units, helpers)
        else:
            work(iter(units))
    finally:
        _here.inside = False
        _threads.leave(helpers)


def _with_helpers(work: Callable[[Iterator[T]], None], units: Sequence[T], helpers: int) -> None:
    shared = _Shared(units)
    job = _Job(work, shared, helpers)
    try:
        for _ in range(helpers):
            _threads.queue.put((job, contextvars.copy_context()))
        work(shared)
        job.wait()
    except BaseException:
        shared.stop()
        job.wait()  # they write to arrays of the caller's
        raise
    if job.error is not None:
        try:
            raise job.error
        finally:
            job.error = None  # its traceback holds this frame
