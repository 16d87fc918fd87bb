"""Turns driven by Temporal workers."""
