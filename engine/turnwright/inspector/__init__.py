"""The inspector: pages that show turns, and let people answer, steer, stop and fork them; an ASGI application."""

from .access import Open, Token
from .app import Inspector, inspector_app

__all__ = ["Inspector", "Open", "Token", "inspector_app"]
