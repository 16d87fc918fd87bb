"""What a post does to an inbox, by any store that can read the inbox first."""

from collections.abc import Iterable, Sequence

from .protocol import InboxItem


def addressee(items: Sequence[InboxItem]) -> str:
    """The one turn that these items are for.

    Raises `ValueError` where there are several, or two items that differ under one id: no store could take them all.
    """
    turns = {item.turn for item in items}
    if len(turns) != 1:
        raise ValueError(f"a post is for one turn, not for {', '.join(sorted(turns)) or 'none'}")
    twice = {item.id for item in items if any(item.id == other.id and item != other for other in items)}
    if twice:
        raise ValueError(f"a post has one item under an id, not several that differ: {', '.join(sorted(twice))}")
    return turns.pop()


def conflicting_items(waiting: Iterable[InboxItem], items: Sequence[InboxItem]) -> tuple[InboxItem, ...]:
    """What waits under an id of one of `items` with something else in it, in the order of `waiting`."""
    wanted = {item.id: item for item in items}
    return tuple(one for one in waiting if wanted.get(one.id, one) != one)
