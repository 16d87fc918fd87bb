"""Pages that show turns, where people answer, steer, stop and fork them."""

from typing import TYPE_CHECKING

from turnwright._base.lazy_imports import lazy_imports

# The command `serve` is loaded for its help too, and the web framework takes long to load.
if TYPE_CHECKING:
    from .app import Inspector, inspector_app
    from .http.access import Open, Token
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            ".app": "Inspector inspector_app",
            ".http.access": "Open Token",
        },
    )

__all__ = ["Inspector", "Open", "Token", "inspector_app"]
