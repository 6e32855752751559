"""How fast, and where the time goes. Each module prints a table and writes CSV; ``make bench`` runs them all.

Numbers of one machine on one day: they are compared as ratios taken in one run, and no test asserts any of them.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC"):  # before torch and JAX start
    os.environ.setdefault(_name, "1")
