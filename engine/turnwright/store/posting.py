"""The rules of a post to an inbox, for stores that read the inbox first."""

from collections.abc import Iterable, Sequence

from .protocol import InboxItem


def addressee(items: Sequence[InboxItem]) -> str:
    """Return the one turn that these items are for.

    Raises `ValueError` for items of several turns, and for two different items with one id.
    """
    turns = {item.turn for item in items}
    if len(turns) != 1:
        raise ValueError(f"a post is for one turn, not for {', '.join(sorted(turns)) or 'none'}")
    twice = {item.id for item in items if any(item.id == other.id and item != other for other in items)}
    if twice:
        raise ValueError(f"a post has one item under an id, not several that differ: {', '.join(sorted(twice))}")
    return turns.pop()


def conflicting_items(waiting: Iterable[InboxItem], items: Sequence[InboxItem]) -> tuple[InboxItem, ...]:
    """Return the waiting items that have the id of one of `items` and another content, in the order of `waiting`."""
    wanted = {item.id: item for item in items}
    return tuple(one for one in waiting if wanted.get(one.id, one) != one)
