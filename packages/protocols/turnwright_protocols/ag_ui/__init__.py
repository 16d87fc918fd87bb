"""Turns as runs of the AG-UI protocol, for frontends that speak it.

Needs `pip install 'turnwright-protocols[ag-ui]'`. `docs/ag-ui.md` has the mapping of events.
"""

from .encoder import AgUiEncoder, encode_events, to_sse
from .messages import messages_of
from .run_input import RunRequest, read_input

__all__ = ["AgUiEncoder", "RunRequest", "encode_events", "messages_of", "read_input", "to_sse"]
