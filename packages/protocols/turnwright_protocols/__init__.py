"""Turns as runs of other protocols."""
