"""Pages that show turns, where people answer, steer, stop and fork them."""

from .app import Inspector, inspector_app
from .http.access import Open, Token

__all__ = ["Inspector", "Open", "Token", "inspector_app"]
