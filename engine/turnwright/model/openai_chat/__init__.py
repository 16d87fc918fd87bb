"""Models that speak the Chat Completions protocol."""
