"""Drives a turn: asks the machine for an action, performs it, feeds back the result."""
