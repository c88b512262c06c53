"""Run CUDA kernels under green contexts across SM counts, and prove what was measured."""

__version__ = "0.1.0"
