"""Turns as runs of the AG-UI protocol, for frontends that speak it.

Needs `pip install 'turnwright-protocols[ag-ui]'`. `docs/ag-ui.md` has the mapping of events.
"""

from typing import TYPE_CHECKING

from turnwright._base.lazy_imports import lazy_imports

# Lazily, so that the error of a missing library says how to install it.
if TYPE_CHECKING:
    from .encoder import AgUiEncoder, encode_events, encode_turn, to_sse
    from .messages import messages_of
    from .run_input import RunRequest, read_input
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            ".encoder": "AgUiEncoder encode_events encode_turn to_sse",
            ".messages": "messages_of",
            ".run_input": "RunRequest read_input",
        },
        extra="turnwright-protocols[ag-ui]",
    )

__all__ = ["AgUiEncoder", "RunRequest", "encode_events", "encode_turn", "messages_of", "read_input", "to_sse"]
