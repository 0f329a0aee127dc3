"""How many threads run: the setting, BLAS inside and outside spread work, errors, interrupts, forks."""

import os
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import minigrad as mg
from minigrad import threads
from minigrad.threads import spread


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.fixture(autouse=True)
def three_threads():
    before = mg.get_num_threads()
    mg.set_num_threads(3)
    yield
    mg.set_num_threads(before)


def python(program, **environment):
    """What a program prints in a process of its own, without this one's limits."""
    limits = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    own = {name: value for name, value in os.environ.items() if name not in limits}
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        env=own | environment,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def together(n):
    """Work that goes on only when n threads are at it."""
    barrier = threading.Barrier(n, timeout=20)
    seen = []

    def work(units):
        for unit in units:
            barrier.wait()
            seen.append((unit, threading.get_ident()))

    return work, seen


# --- the setting -------------------------------------------------------------------------------------------------


def test_one_setting_for_blas_and_for_work():
    mg.set_num_threads(2)
    assert mg.get_num_threads() == 2
    assert set(blas_threads()) == {2}
    work, seen = together(2)
    spread(work, range(4))
    assert len({thread for _, thread in seen}) == 2
    mg.set_num_threads(1)
    assert set(blas_threads()) == {1}
    names = set()
    spread(lambda units: names.update(threading.current_thread().name for _ in units), range(4))
    assert names == {threading.current_thread().name}


def test_numbers_that_are_none():
    for n in (0, -1):
        with pytest.raises(ValueError, match=f"{n} was given"):
            mg.set_num_threads(n)
    for n in (1.5, "2", None):
        with pytest.raises(TypeError, match="integer"):
            mg.set_num_threads(n)
    assert mg.get_num_threads() == 3
    mg.set_num_threads(np.int64(2))
    assert mg.get_num_threads() == 2


def test_the_default_is_the_cores_this_process_may_use():
    program = "import minigrad as mg; print(mg.get_num_threads())"
    assert int(python(program)) == threads.cores()
    assert int(python(program, OPENBLAS_NUM_THREADS="1")) == 1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="affinity is Linux's")
def test_the_default_heeds_affinity():
    program = """
        import os
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
        import minigrad as mg
        print(mg.get_num_threads())
    """
    assert python(program) == "1"


def test_importing_starts_and_loads_nothing():
    program = """
        import sys, threading
        import minigrad as mg
        print("threadpoolctl" in sys.modules, threading.active_count())
    """
    assert python(program) == "False 1"


# --- spread ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 7, 100])
def test_each_unit_comes_once(n):
    seen = []
    spread(seen.extend, range(n))
    assert sorted(seen) == list(range(n))


def test_blas_has_one_thread_while_work_is_spread():
    seen = []
    work, _ = together(3)

    def look(units):
        work(units)
        seen.extend(blas_threads())

    spread(look, range(3))
    assert set(seen) == {1}
    assert set(blas_threads()) == {3}


def test_blas_gets_back_what_it_had():
    with threadpool_limits(2, "blas"):
        spread(list, range(3))
        assert set(blas_threads()) == {2}


def in_another_thread(function, *args):
    thread = threading.Thread(target=function, args=args)
    thread.start()
    thread.join()


def test_blas_obeys_whichever_thread_calls():
    """threadpoolctl 3.8 would ignore all but the first that does."""
    inside = []
    in_another_thread(spread, lambda units: inside.extend(blas_threads()), range(2), 1)
    assert set(inside) == {1}
    assert set(blas_threads()) == {3}
    in_another_thread(mg.set_num_threads, 2)
    assert set(blas_threads()) == {2}
    with threadpool_limits(1):
        assert set(blas_threads()) == {1}
    assert set(blas_threads()) == {2}


def test_blas_gets_back_what_it_had_from_the_last_of_several_callers():
    first_is_in, second_is_in, first_is_out = (threading.Event() for _ in range(3))

    def first(units):
        first_is_in.set()
        second_is_in.wait(20)

    def second(units):
        first_is_in.wait(20)
        second_is_in.set()
        first_is_out.wait(20)

    users = [threading.Thread(target=spread, args=(work, range(1), 1)) for work in (first, second)]
    for user in users:
        user.start()
    users[0].join()
    assert set(blas_threads()) == {1}
    first_is_out.set()
    users[1].join()
    assert set(blas_threads()) == {3}


def test_a_setting_made_while_work_is_spread_holds_afterwards():
    inside = []

    def work(units):
        for unit in units:
            if unit == 0:
                mg.set_num_threads(2)
            inside.extend(blas_threads())

    spread(work, range(3))
    assert set(inside) == {1}
    assert set(blas_threads()) == {2}


def test_never_more_threads_than_set():
    """Nested, and from several threads at once: spread work inside spread work runs in its own thread."""
    lock, running, most = threading.Lock(), 0, 0

    def busy(units):
        nonlocal running, most
        for _ in units:
            with lock:
                running += 1
                most = max(most, running)
            time.sleep(0.002)
            with lock:
                running -= 1

    def nest(units):
        for _ in units:
            spread(busy, range(3))

    spread(nest, range(9))
    assert most == 3
    most = 0
    users = [threading.Thread(target=spread, args=(busy, range(20))) for _ in range(4)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert 3 <= most <= 3 + 3  # the four callers' own threads, and as many helpers as one of them may have
    assert set(blas_threads()) == {3}


def test_work_inside_work_stays_in_its_thread():
    mg.set_num_threads(4)
    meet, _ = together(2)
    pairs = []

    def nest(units):
        meet(units)
        outer = threading.get_ident()

        def note(inner):
            for _ in inner:
                time.sleep(0.01)  # long enough for a helper to take the next
                pairs.append((threading.get_ident(), outer))

        spread(note, range(5))

    spread(nest, range(2))
    assert len(pairs) == 10
    assert all(inner == outer for inner, outer in pairs)


def test_two_callers_each_get_helpers_while_there_are_some():
    mg.set_num_threads(4)
    meet, seen = together(4)  # both callers and one helper of each
    users = [threading.Thread(target=spread, args=(meet, range(2))) for _ in range(2)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert len({thread for _, thread in seen}) == 4


@pytest.mark.parametrize("where", ["helper", "caller"])
def test_an_error_ends_the_work_and_is_raised(where):
    work, _ = together(3)
    caller = threading.current_thread()
    after = []

    def fail(units):
        work([next(units)])
        if (threading.current_thread() is caller) == (where == "caller"):
            raise ZeroDivisionError(where)
        time.sleep(0.05)
        after.extend(units)

    with pytest.raises(ZeroDivisionError, match=where):
        spread(fail, range(1000))
    assert len(after) < 900
    assert set(blas_threads()) == {3}
    work, seen = together(3)
    spread(work, range(3))  # everybody is well
    assert len(seen) == 3


def test_numpys_error_state_is_the_callers():
    work, _ = together(3)

    def divide(units):
        work(units)
        return np.ones(1) / np.zeros(1)

    with np.errstate(divide="ignore"):
        spread(divide, range(3))
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        spread(divide, range(3))


def test_helpers_hold_no_arrays_afterwards():
    array = np.ones(10)
    before = sys.getrefcount(array)
    spread(lambda units, array=array: list(units), range(3))
    deadline = time.monotonic() + 5
    while sys.getrefcount(array) != before and time.monotonic() < deadline:
        time.sleep(0.001)
    assert sys.getrefcount(array) == before


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_an_interrupt_ends_the_work():
    program = """
        import os, signal, threading, time
        import minigrad as mg
        from minigrad.threads import spread
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
        mg.set_num_threads(2)
        done = []
        def work(units):
            for unit in units:
                if unit == 10:
                    os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.001)
                done.append(unit)
        try:
            spread(work, range(100000))
        except KeyboardInterrupt:
            print("interrupted", len(done) < 10000)
        spread(list, range(4))
    """
    assert python(program) == "interrupted True"


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("fails", [False, True])
def test_no_helper_writes_after_an_interrupt_has_been_raised(fails):
    program = f"""
        import os, signal, threading, time
        import minigrad as mg
        from minigrad.threads import spread
        signal.signal(signal.SIGINT, signal.default_int_handler)
        mg.set_num_threads(2)
        meet, caller, written = threading.Barrier(2, timeout=20), threading.get_ident(), []
        def work(units):
            for unit in units:
                meet.wait()
                if threading.get_ident() != caller:
                    time.sleep(0.6)
                    written.append(unit)
                elif {fails}:
                    raise ValueError
        def interrupt():
            for _ in range(2):
                time.sleep(0.15)
                os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt).start()
        try:
            spread(work, range(2))
        except KeyboardInterrupt:
            before = len(written)
            time.sleep(1)
            print(before, len(written))
    """
    assert python(program) == "1 1"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_forks_beside_a_thread_that_spreads():
    program = """
        import os, sys, threading, warnings
        import minigrad as mg
        from minigrad.threads import spread
        warnings.simplefilter("ignore")  # of forks while threads run
        sys.setswitchinterval(1e-6)
        mg.set_num_threads(3)
        ended = threading.Event()
        def busy():
            while not ended.is_set():
                spread(list, range(3))
        other = threading.Thread(target=busy)
        other.start()
        codes = set()
        for _ in range(60):
            child = os.fork()
            if not child:
                spread(list, range(3))
                os._exit(0)
            codes.add(os.waitpid(child, 0)[1])
        ended.set()
        other.join()
        print(codes)
    """
    assert python(program) == "{0}"


RANDOM_SIGNALS = """
    import random, signal, threading, time
    import minigrad as mg
    from minigrad.threads import _threads, spread
    from threadpoolctl import threadpool_info
    mg.set_num_threads(3)
    count = 0
    def handler(*_):
        global count
        count += 1
        {handler}
    def meet(units):
        for unit in units:
            barrier.wait()
    signal.signal(signal.SIGALRM, handler)
    r = random.Random(0)
    while count < 2000:
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, r.uniform(1e-5, 5e-4))
                for _ in range(30):
                    spread(list, range(3))
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            pass
    blas = {{library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}}
    print(blas == {{3}}, _threads.inside)
    barrier = threading.Barrier(3, timeout=20)
    spread(meet, range(3))  # all helpers come
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize(
    "handler",
    [
        "raise KeyboardInterrupt",
        "spread(list, range(3))",
        pytest.param(
            "mg.set_num_threads(3)",
            marks=pytest.mark.skipif(
                sys.version_info < (3, 11), reason="a handler may come while threadpoolctl holds its own lock"
            ),
        ),
    ],
)
def test_signals_at_random_moments_leave_everything_in_order(handler):
    """Whether the handler raises, as Ctrl-C's does, or computes with threads itself, or sets their number."""
    assert python(RANDOM_SIGNALS.format(handler=handler)) == "True {}"


def test_a_helper_that_comes_late_does_nothing_and_holds_nothing():
    work, _ = together(3)
    spread(work, range(3))  # all helpers are there
    array, calls, interval = np.ones(10), [], sys.getswitchinterval()
    before = sys.getrefcount(array)

    def alone(units, array=array):
        calls.append(list(units))

    try:
        sys.setswitchinterval(20)  # no helper gets to run before the caller waits for something
        spread(alone, range(3))
        del alone
        assert sys.getrefcount(array) == before
    finally:
        sys.setswitchinterval(interval)
    spread(work, range(3))  # by then they have come
    assert calls == [[0, 1, 2]]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
def test_a_fork_loads_nothing():
    program = """
        import os, sys
        import minigrad.threads
        pid = os.fork()
        if pid == 0:
            os._exit("threadpoolctl" in sys.modules)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    assert python(program) == "0"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
@pytest.mark.parametrize("inside", [False, True])
def test_a_forked_child_has_threads_of_its_own(inside):
    program = f"""
        import os, threading, warnings
        import minigrad as mg
        from minigrad.threads import spread
        from threadpoolctl import threadpool_info
        warnings.simplefilter("ignore")
        mg.set_num_threads(2)
        def meet(units):
            barrier.wait()
            list(units)
        barrier = threading.Barrier(2, timeout=20)
        spread(meet, range(2))
        def child():
            global barrier
            barrier = threading.Barrier(2, timeout=20)
            spread(meet, range(2))
            blas = [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]
            os._exit(0 if set(blas) == {{2}} else 1)
        def fork(units=()):
            list(units)
            if threading.current_thread() is threading.main_thread():
                pid = os.fork()
                if pid == 0:
                    child()
                print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        {"spread(fork, range(2))" if inside else "fork()"}
        spread(meet, range(2))
    """
    assert python(program) == "0"


def test_work_is_spread_again_after_many_settings():
    for n in (1, 4, 2, 3):
        mg.set_num_threads(n)
        work, seen = together(n)
        spread(work, range(n))
        assert len({thread for _, thread in seen}) == n
