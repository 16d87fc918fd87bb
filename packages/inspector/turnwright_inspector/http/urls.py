"""The addresses of the inspector's pages. A turn's id may come from a forged journal."""

from typing import Final
from urllib.parse import quote

from starlette.requests import Request

#: The most characters of an id in an address, because servers and proxies reject long ones.
_LONGEST: Final = 1000


def address(request: Request, page: str, /, **where: str) -> str:
    """Return the path of a page, with a proxy's prefix; empty for a turn whose id does not fit into a path.

    `where` are the path's parameters: the `turn`, or the `path` of a file. Raises `NoMatchFound` for an unknown page.
    """
    turn = where.get("turn")
    if turn is None:
        return request.url_for(page, **where).path
    if not _fits(turn):
        return ""
    return request.url_for(page, **where | {"turn": quote(turn, safe=":")}).path


def _fits(turn: str) -> bool:
    """Whether a server reads the same id from a path with it."""
    return 0 < len(turn) <= _LONGEST and turn.isprintable() and "/" not in turn and turn not in {".", ".."}
