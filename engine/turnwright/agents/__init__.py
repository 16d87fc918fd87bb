"""Agents from files, and the bounds of their turns."""
