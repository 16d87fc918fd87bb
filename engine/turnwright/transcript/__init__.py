"""The conversation that a turn's facts spell, and the requests made of it."""
