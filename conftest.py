"""Before anything imports NumPy: one thread for matrix products, since the tests themselves run on all cores."""

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import pytest  # noqa: E402

import minigrad as mg  # noqa: E402


@pytest.fixture(autouse=True)
def _seeded():
    """What a test draws from the default generator does not depend on the tests before it."""
    mg.seed(0)
