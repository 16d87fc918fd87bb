"""The embedded model: a small one, in a process of its own."""
