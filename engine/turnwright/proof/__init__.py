"""Checks the chart with SPIN, and for all limits with SMT solvers."""

from .smt import each_smt_check
from .spin import CHECKS, each_check, verify_with_spin

__all__ = ["CHECKS", "each_check", "each_smt_check", "verify_with_spin"]
