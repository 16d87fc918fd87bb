"""Writes and reads the facts of a turn: admission, inbox, answers, recovery, forks."""
