"""Proofs that need more than the walk: the chart's model, checked by an independent verifier."""

from .spin import CHECKS, each_check, verify_with_spin

__all__ = ["CHECKS", "each_check", "verify_with_spin"]
