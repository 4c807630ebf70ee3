"""Rapport: a conversation agent that keeps its promises."""

import os

__version__ = "0.1.0"

# numpy's BLAS reads these once, when a module of this package first imports numpy. Matrices are small here, and several
# threads would take ten times the CPU time. A value that the operator has set stays.
for _name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
    os.environ.setdefault(_name, "1")
