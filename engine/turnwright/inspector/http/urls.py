"""The addresses of the inspector's own pages. The id of a turn may stand in a journal that anybody wrote."""

from typing import Final
from urllib.parse import quote

from starlette.requests import Request

#: Characters of an id that an address may have: servers and proxies refuse long ones.
_LONGEST: Final = 1000


def address(request: Request, page: str, /, **where: str) -> str:
    """The path of a page, with what a proxy puts before it; empty for a turn whose id can be in no path.

    `where` are the parts of the path that differ, by name: the `turn`, or the `path` of a file. Raises `NoMatchFound`
    where there is no such page.
    """
    turn = where.get("turn")
    if turn is None:
        return request.url_for(page, **where).path
    if not _fits(turn):
        return ""
    return request.url_for(page, **where | {"turn": quote(turn, safe=":")}).path


def _fits(turn: str) -> bool:
    """Whether a server that is asked for the path with this id sees the id again."""
    return 0 < len(turn) <= _LONGEST and turn.isprintable() and "/" not in turn and turn not in {".", ".."}
