"""Checks the chart's Promela model with SPIN."""

from .spin import CHECKS, each_check, verify_with_spin

__all__ = ["CHECKS", "each_check", "verify_with_spin"]
