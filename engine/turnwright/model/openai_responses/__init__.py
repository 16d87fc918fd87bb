"""Models that speak the Responses API of OpenAI."""
