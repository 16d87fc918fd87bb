"""Models that pydantic-ai speaks to."""
