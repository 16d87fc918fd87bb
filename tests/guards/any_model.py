"""Replies of a model that does anything: texts, calls that fit and calls that do not, or nothing."""

import itertools
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

from turnwright_states import Limits


class AnyReply(NamedTuple):
    """One reply: its text, and its calls as (id, tool, arguments)."""

    text: str
    calls: list[tuple[str, str, dict[str, Any]]]


def any_replies(random: Random) -> Iterator[AnyReply]:
    """Make replies for ever."""
    numbers = itertools.count(1)
    while True:
        calls = [
            (f"c{next(numbers)}", "read_page", random.choice([{"number": random.randint(1, 3)}, {"wrong": 1}]))
            for _ in range(random.choice([0, 0, 1, 2, 3, 4]))
        ]
        yield AnyReply(random.choice(["", "", "x"]), calls)


def any_limits(random: Random) -> Limits:
    """Make small limits."""
    return Limits(
        steps=random.randint(0, 5),
        tool_calls=random.randint(0, 8),
        max_retries=random.randint(0, 2),
        concluding=random.choice(["after", "within"]),
        nudges=random.randint(0, 1),
    )


def noting(ran: list[int]) -> Callable[[int], str]:
    """Return the work of a tool, which notes each page that it read."""

    def read(number: int) -> str:
        ran.append(number)
        return f"page {number}"

    return read
