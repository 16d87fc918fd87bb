"""Models that speak the Anthropic Messages protocol."""
