"""Proves the bounds of the chart for all limits, with SMT solvers."""

from .smt import each_smt_check

__all__ = ["each_smt_check"]
