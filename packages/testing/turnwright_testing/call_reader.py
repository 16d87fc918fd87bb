"""Read the calls of a turn from its facts: each one's result, and the tools."""

from typing import Literal

from turnwright.errors import ConfigError
from turnwright.message import FilePart
from turnwright.tools import Ask
from turnwright_states import Call, CallState, CallStatus, InterruptKind, State, Turn, batch
from turnwright_states import facts as f
from turnwright_states.doom import call_key

from .recording import Recorded


class CallReader:
    """A reader of facts about calls, fact by fact."""

    def __init__(self) -> None:
        self.results: dict[str, Recorded] = {}
        self.exempt: set[str] = set()
        #: The tools whose results are the turn's answer.
        self.asks: dict[str, tuple[Ask, ...]] = {}
        self._asked_in: dict[str, tuple[int, ...]] = {}
        self.loop_keys: dict[str, str] = {}
        #: The names that were offered, as the answer to an unknown one lists them; then those that were called.
        self._offered: list[str] = []
        self._called_names: list[str] = []

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools, each once."""
        return tuple(dict.fromkeys([*self._offered, *self._called_names]))

    @property
    def asked_in(self) -> dict[str, tuple[int, ...]]:
        """Return the attempts in which calls asked, without calls that asked only before they ran."""
        return {call: attempts for call, attempts in self._asked_in.items() if any(attempts)}

    def reply(self, fact: f.ModelReplied, turn: Turn) -> None:
        for call in fact.calls:
            if call.lease is not None:
                raise sub_agents()
            if call.output:
                continue
            tool_names = call.refused.removeprefix(f"there is no tool {call.name!r}; the tools are: ")
            if call.invalid and tool_names != call.refused:
                self._offered = self._offered or ([] if tool_names == "none" else tool_names.split(", "))
            elif turn.state is State.STREAM:
                self._called_names.append(call.name)
                if call.key not in ("", call_key(call.name, call.arguments, call.raw, None)):
                    self.loop_keys[call.id] = call.key
                elif not call.key and call.name not in turn.always_for:
                    self.exempt.add(call.name)

    def ask(self, call: str, ask: Ask, attempt: int = 0) -> None:
        """A call asked a person, in the middle of this attempt, or before it ran."""
        self.asks[call] = (*self.asks.get(call, ()), ask)
        self._asked_in[call] = (*self._asked_in.get(call, ()), attempt)

    def settle(self, fact: f.CallSettled, call: Call) -> None:
        at: Literal["run", "start", "reply", "hook"] = "run"
        came_back = fact.status in (CallStatus.OK, CallStatus.ERROR)
        if call.made.refused and call.made.invalid:
            at = "reply"
        elif call.state is CallState.READY and came_back:
            at = "start"
        elif call.state is CallState.READY and fact.status is CallStatus.REJECTED and fact.decisions:
            at = "hook"
        elif call.state is CallState.READY and fact.result in (batch.NO_PAUSE, batch.UNKNOWN_OUTCOME):
            # It wanted a person, and what exactly it asked is not known.
            self.ask(fact.call, Ask(InterruptKind.APPROVAL))
        self.results[fact.call] = Recorded(
            fact.result,
            fact.status,
            at=at,
            attempt=max(call.attempt, 1) if came_back else 1,
            structured=fact.structured,
            files=tuple(map(FilePart.of_json, fact.files)),
            retry=fact.retry,
            final=fact.final and not call.made.output,
        )

    def blame(self, call: str) -> None:
        was = self.results[call]
        self.results[call] = Recorded(was.text, was.status, at="bug")


def sub_agents() -> ConfigError:
    """A turn has sub-agents."""
    return ConfigError("the turn lent a part of its budget to sub-agents, and a test cannot play these yet")
