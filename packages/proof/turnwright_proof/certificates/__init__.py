"""Certificates of agents: every bound of a turn, who set it, and what a change of the agent does."""
