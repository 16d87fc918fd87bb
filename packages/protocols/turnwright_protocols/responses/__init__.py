"""Turns as responses of the Responses API and of chat completions, for programs that use the OpenAI SDK.

Needs `pip install 'turnwright-protocols[responses]'`. `docs/responses.md` has the mapping.
"""

from turnwright_protocols.http import Bounds, Gate

from .response_encoder import ResponseEncoder, ResponseOptions
from .routes import responses_routes

__all__ = ["Bounds", "Gate", "ResponseEncoder", "ResponseOptions", "responses_routes"]
