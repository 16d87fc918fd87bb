"""Turnwright drives one turn of an LLM agent as an explicit finite-state machine."""
