"""The requests of the inspector: the page of a turn, the pages of many turns, live events and actions."""
