"""What every test relies on: one thread, and nothing of the environment that changes a result."""

import os

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ[name] = "1"
