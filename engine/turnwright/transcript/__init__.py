"""The messages and events of a turn, computed from its facts, and the requests to the model."""
