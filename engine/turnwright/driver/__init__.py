"""The driver: it asks the machine for the next action, does it, and feeds back what came of it."""
