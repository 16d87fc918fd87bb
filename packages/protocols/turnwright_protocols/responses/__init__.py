"""Turns as responses of the Responses API and of chat completions, for programs that use the OpenAI SDK.

Needs `pip install 'turnwright-protocols[responses]'`. `docs/responses.md` has the mapping.
"""

from typing import TYPE_CHECKING

from turnwright._base.lazy_imports import lazy_imports

# Lazily, so that the error of a missing library says how to install it.
if TYPE_CHECKING:
    from turnwright_protocols.http import Bounds, Gate

    from .response_encoder import ResponseEncoder, ResponseOptions
    from .routes import responses_routes
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            "turnwright_protocols.http": "Bounds Gate",
            ".response_encoder": "ResponseEncoder ResponseOptions",
            ".routes": "responses_routes",
        },
        extra="turnwright-protocols[responses]",
    )

__all__ = ["Bounds", "Gate", "ResponseEncoder", "ResponseOptions", "responses_routes"]
