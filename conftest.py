"""Before anything imports NumPy: one thread for matrix products, since the tests themselves run on all cores."""

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
