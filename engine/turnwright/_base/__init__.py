"""Small helpers that know nothing of turns."""
