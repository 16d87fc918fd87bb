"""Audits of recorded runs: how they ended, their loops, and the limits that would have stopped them."""
