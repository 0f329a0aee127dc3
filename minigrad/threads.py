"""How many threads matrix products use. Not imported by `import minigrad`, which leaves the process as it finds it."""

from __future__ import annotations

from threadpoolctl import threadpool_limits


def set_num_threads(n: int) -> None:
    """Let BLAS, and with it every matrix product of this process, use at most `n` threads. ValueError below 1.

    BLAS takes all cores unless told otherwise. Its threads wait for each other actively: on a machine that does other
    work too, small products on two threads can take ten times as long as on one.
    """
    if n < 1:
        raise ValueError(f"at least one thread is needed, and {n} was given")
    threadpool_limits(limits=n, user_api="blas")
