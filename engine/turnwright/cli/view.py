"""What a display knows of the turn it shows, gathered from the events as they come."""

import time
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from turnwright.events import FactEvent, Pending, ReplyRestarted, TextPiece, TurnEvent, TurnHalted, TurnPaused
from turnwright_states import Limits, State
from turnwright_states import facts as f

_REPLACED: Final = "\N{REPLACEMENT CHARACTER}"
_JOINERS: Final = "\t\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}"


@dataclass(slots=True)
class CallView:
    """One tool call on the screen."""

    name: str
    arguments: str
    status: str = ""
    seconds: float | None = None
    started: float | None = None

    @property
    def took(self) -> str:
        """How long it took, or has taken so far; empty for a call that never ran."""
        if self.seconds is not None:
            return f"{self.seconds:.2f} s"
        return "" if self.started is None else f"{time.monotonic() - self.started:.1f} s"


@dataclass(slots=True)
class TurnView:
    """One turn on the screen."""

    turn: str = ""
    agent: str = ""
    model: str = ""
    limits: Limits = field(default_factory=Limits)
    state: State = State.CHECK
    step: int = 0
    calls_run: int = 0
    tokens: int = 0
    text: str = ""
    calls: dict[str, CallView] = field(default_factory=dict)
    pending: tuple[Pending, ...] = ()
    _started_at: dict[str, float] = field(default_factory=dict)

    def recall(self, turn: str, facts: Iterable[f.Fact]) -> None:
        """Take in what happened before this process took the turn up."""
        self.turn = turn
        for fact in facts:
            self.state = fact.state
            self._fact(fact)

    def take(self, event: TurnEvent) -> None:
        """Take one event in."""
        self.turn = event.turn
        match event:
            case FactEvent(fact=fact):
                self.state = fact.state
                self._fact(fact)
            case TextPiece():
                self.text += event.text
            case ReplyRestarted():
                self.text = ""
            case TurnPaused():
                self.state, self.pending = State.PAUSED, event.pending
            case TurnHalted():
                self.state = State[event.outcome.name]
            case _:
                pass

    def _fact(self, fact: f.Fact) -> None:
        match fact:
            case f.TurnStarted():
                self.limits, self.model = fact.limits, fact.model
                self.agent = str(fact.agent.get("name", ""))
            case f.StepStarted():
                self.step, self.text, self.calls = fact.number, "", {}
            case f.ModelReplied():
                self.text = fact.text
                self.tokens += fact.usage.tokens if fact.usage else 0
                self.calls = {call.id: CallView(one_line(call.name), shown_arguments(call)) for call in fact.calls}
            case f.CallStarted():
                self.calls_run += 1
                self._started_at[fact.call] = fact.elapsed
                if fact.call in self.calls:
                    self.calls[fact.call].started = time.monotonic()
            case f.CallSettled() if fact.call in self.calls:
                call = self.calls[fact.call]
                call.status = str(fact.status)
                if fact.call in self._started_at:
                    call.seconds = fact.elapsed - self._started_at[fact.call]
            case f.CallWaiting() if fact.call in self.calls:
                self.calls[fact.call].status = f"waits for {fact.interrupt.id}"
            case f.Stopping():
                self.text, self.calls = "", {}
            case _:
                pass


def shown_arguments(call: f.CallMade, width: int = 120) -> str:
    """The arguments of a call in one line of at most `width` characters."""
    if call.arguments is None:
        text = call.raw
    else:
        text = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
    return one_line(text, width)


def safe(text: str) -> str:
    """The text without the characters that a terminal would obey; line breaks and tabs stay."""
    return "".join(c if c == "\n" or _is_shown(c) else _REPLACED for c in text.replace("\r\n", "\n"))


def one_line(text: str, width: int = 160) -> str:
    """The text in one line of at most `width` characters, nothing in it that a terminal would obey."""
    text = " ".join("".join(c if _is_shown(c) else " " for c in text).split())
    return text if len(text) <= width else text[: width - 1] + "…"


def _is_shown(character: str) -> bool:
    """Whether a terminal shows it: also spaces of every width, and the joiners in Persian, Hindi and emoji."""
    return character.isprintable() or character in _JOINERS or unicodedata.category(character) == "Zs"
