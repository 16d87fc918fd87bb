"""Turns in the protocols of others."""
