"""Rapport: a conversation agent that keeps its promises."""

import os

__version__ = "0.1.0"

# numpy's BLAS reads these once, when numpy is first imported, which only modules of this package do. Matrices are small here:
# threads that wait for each other cost ten times the work. A value that the operator has set stays.
for _name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
    os.environ.setdefault(_name, "1")
