"""Writes and reads the facts of a turn: inbox, answers, results, recovery, forks."""
