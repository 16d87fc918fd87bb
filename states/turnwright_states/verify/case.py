"""One case of the walk: under which limits a turn runs, and what its surroundings may do to it."""

from typing import NamedTuple

from turnwright_states.inputs import StartedInput
from turnwright_states.limits import Limits


class Case(NamedTuple):
    """The limits, and how rich the surroundings are.

    `synthesis`: the embedder has one. `widest`: how many calls the widest batch has, at least 1. `delegates`: some
    calls run sub-agents. The surroundings spend tokens, money and time where the limits have a budget of them.
    """

    limits: Limits
    synthesis: bool = False
    widest: int = 2
    delegates: bool = False

    @property
    def started(self) -> StartedInput:
        """The event that begins the turn."""
        return StartedInput(prompt="x", limits=self.limits, synthesis=self.synthesis)

    @property
    def changed(self) -> dict[str, object]:
        """The limits that are not at their defaults, by field name; what differs from a plain case beside them."""
        extras: dict[str, object] = {"widest": self.widest}
        extras |= {name: True for name in ("synthesis", "delegates") if getattr(self, name)}
        return self.limits.model_dump(exclude_defaults=True) | extras
