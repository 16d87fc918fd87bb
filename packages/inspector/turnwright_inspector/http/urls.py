"""The addresses of the inspector's pages. A turn's id may come from a forged journal."""

from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.routing import NoMatchFound

#: The most characters of an id in an address, because servers and proxies reject long ones.
_LONGEST: Final = 1000


def address(request: Request, page: str, /, **where: str) -> str:
    """Return the path of a page, with a proxy's prefix; empty for a turn whose id does not fit into a path.

    `where` are the path's parameters: the `turn`, or the `path` of a file. Raises `NoMatchFound` for an unknown page.
    """
    turn = where.get("turn")
    if turn is not None:
        if not _fits(turn):
            return ""
        where["turn"] = quote(turn, safe=":")
    # `request.url_for` tries each route for each of the links of a page, which is a tenth of the time of the page.
    routes = (request.scope.get("router") or request.app).routes
    route = next((route for route in routes if route.name == page), None)
    if route is None:
        raise NoMatchFound(page, where)
    return request.base_url.path.rstrip("/") + str(route.url_path_for(page, **where))


def _fits(turn: str) -> bool:
    """Whether a server reads the same id from a path with it."""
    return 0 < len(turn) <= _LONGEST and turn.isprintable() and "/" not in turn and turn not in {".", ".."}
