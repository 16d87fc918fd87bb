"""Drives a turn: admits it, asks the machine for an action, performs it, feeds back the result."""
