"""One case of the walk: a turn's limits and the abilities of its environment."""

from typing import Final, NamedTuple

from turnwright_states.inputs import JsonObject, StartedInput
from turnwright_states.limits import Limits

#: The fields of a case that are true or false: what its environment can do.
ABILITIES: Final = ("synthesis", "delegates", "hooked", "waits")


class Case(NamedTuple):
    """The limits, and the abilities of the environment.

    `synthesis`: whether the app has one. `widest`: the calls of the widest batch, at least 1. `delegates`: whether some
    calls run sub-agents. `hooked`: whether hooks, guardrails and typed answers act. `waits`: whether results come from
    outside, a call asks several questions at once, and an approval needs two people. `rules` name tools `a`, `b`. The
    environment spends tokens, money and time if the limits have such a budget.
    """

    limits: Limits
    synthesis: bool = False
    widest: int = 2
    delegates: bool = False
    hooked: bool = False
    waits: bool = False
    rules: tuple[JsonObject, ...] = ()

    @property
    def started(self) -> StartedInput:
        """The input that begins the turn."""
        return StartedInput(prompt="x", limits=self.limits, synthesis=self.synthesis, rules=self.rules)

    @property
    def changed(self) -> dict[str, object]:
        """The limits without those that have their defaults, by field name, and the other fields of the case."""
        extras: dict[str, object] = {"widest": self.widest}
        extras |= {name: True for name in ABILITIES if getattr(self, name)}
        extras |= {"rules": [rule["name"] for rule in self.rules]} if self.rules else {}
        return self.limits.model_dump(exclude_defaults=True) | extras
