"""The journal of a turn: what is written, what was posted, and how a turn is read and taken over."""
