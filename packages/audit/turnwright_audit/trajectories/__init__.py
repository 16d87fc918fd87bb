"""Recorded runs of any agent, in the Agent Trajectory Interchange Format (ATIF)."""
