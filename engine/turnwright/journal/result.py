"""The result of a turn, computed from its facts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, Literal, cast, overload

from pydantic import JsonValue
from typing_extensions import TypeVar

from turnwright._base.words import cut_clean
from turnwright.errors import ConfigError, NoOutputError
from turnwright.message import Message, SentinelPart
from turnwright.status import find_nearest_limit
from turnwright.store import Queued
from turnwright.transcript.interrupt import Interrupt
from turnwright.transcript.pairing import repair_pairs
from turnwright.transcript.refusal import without_refused
from turnwright.transcript.transcript import Transcript, reading
from turnwright_states import EndReason, Outcome, State, Usage
from turnwright_states import facts as f
from turnwright_states.verdict import Broken

#: Characters of the text in `repr`.
_SHOWN: Final = 80
#: The type of the agent's answer. `object` is the default: a function that takes any result needs no type.
OutT_co = TypeVar("OutT_co", default=object, covariant=True)


@dataclass(frozen=True, slots=True, repr=False)
class TurnResult(Generic[OutT_co]):
    """The result so far of a turn that has ended, is paused, was released by its driver, or is `QUEUED`.

    `output` is the agent's answer, of the agent's type. It is None unless the turn is `FINISHED`.

    `outcome` and `reason` are None until it has ended. `interrupts` is what a paused turn waits for, in the order of
    its calls. `steps` and `tool_calls` count what started. `text` is the final text: the answer, the conclusion, or as
    much of it as there was. `error` describes a failure. `path` has the states in order.
    """

    id: str
    state: State | Queued
    outcome: Outcome | None
    reason: EndReason | None
    also_reached: tuple[EndReason, ...]
    text: str
    steps: int
    tool_calls: int
    usage: Usage
    seconds: float
    interrupts: tuple[Interrupt, ...]
    messages: tuple[Message, ...]
    path: tuple[State, ...]
    #: The limit closest to being reached: "the tool-call limit (48 of 50)".
    next_limit: str = ""
    #: The used share of that limit, from 0 to 1.
    next_limit_used: float = 0.0
    error: str = ""
    #: Messages to the turn that never reached its model, oldest first.
    undelivered: tuple[str, ...] = ()
    #: The text for the user about why the turn was stopped, if it was.
    sentinel: SentinelPart | None = None
    #: The setting for a developer to change, if the turn was stopped. Not for users.
    advice: str = ""
    #: The ids of `interrupts` that have an answer in the inbox. The next driver feeds it.
    answered: frozenset[str] = frozenset()
    output: OutT_co | None = None
    #: The guardrail that ended the turn, with its message and its metadata.
    guardrail: f.TrippedGuardrail | None = None
    #: Every decision of a rule that went against a call or an answer, oldest first.
    broken: tuple[Broken, ...] = ()
    #: The rules whose `then` had not come when the turn ended.
    unmet: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Show the ending or the state, the counts and the beginning of the text: a notebook shows this."""
        about: dict[str, object] = (
            {"outcome": self.outcome, "reason": self.reason} if self.outcome else {"state": self.state}
        )
        if self.interrupts:
            about["interrupts"] = ", ".join(interrupt.id for interrupt in self.interrupts)
        text = cut_clean(self.error or self.text, _SHOWN)
        shown_fields = {"id": self.id, **about, "error" if self.error else "text": text}
        words = [f"{name}={str(value)!r}" for name, value in shown_fields.items()]
        return f"TurnResult({', '.join([*words, f'steps={self.steps}', f'tool_calls={self.tool_calls}'])})"

    @property
    def paused(self) -> bool:
        """Whether the turn waits for a person."""
        return self.state is State.PAUSED

    def require_output(self) -> OutT_co:
        """Return the agent's answer. Raises `NoOutputError` for a turn that is not `FINISHED`."""
        if self.outcome is not Outcome.FINISHED:
            raise NoOutputError(self.id, self.state if self.outcome is None else f"{self.outcome}: {self.reason}")
        return cast("OutT_co", self.output)

    @overload
    def new_messages(self) -> tuple[Message, ...]: ...

    @overload
    def new_messages(self, form: Literal["chat"]) -> list[dict[str, JsonValue]]: ...

    def new_messages(self, form: Literal["chat"] | None = None) -> tuple[Message, ...] | list[dict[str, JsonValue]]:
        """Return the turn's messages, beginning with its prompt, in a form that can be sent to a model as it is.

        Each call is followed by its result; one that is still open gets the result "outcome unknown". Messages without
        content for a model are left out, and a line replaces what the provider refused (docs/rules.md#refused-content).
        With `form="chat"` they are dictionaries of the chat completions format,
        without reasoning. `message_history=` takes both forms. Raises `ConfigError` for another form.
        """
        messages, _ = repair_pairs([message for message in without_refused(self.messages) if message.says_something])
        if form is None:
            return tuple(messages)
        if form != "chat":
            raise ConfigError(f'new_messages: the form must be "chat", or left out, not {form!r}')
        from turnwright.model.openai_chat.request import chat_messages  # noqa: PLC0415 (a turn needs no wire format)

        return chat_messages(messages)


def result_of(turn_id: str, facts: Sequence[tuple[int, f.Fact]], late: Sequence[str] = ()) -> TurnResult:
    """Return the result of a turn from its facts, oldest first. `late` are messages still in its inbox.

    Raises `UnreadableTurnError` if the facts do not follow from each other.
    """
    with reading(turn_id):
        return result_from(turn_id, Transcript.of(facts), late)


def result_from(turn_id: str, transcript: Transcript, late: Sequence[str] = ()) -> TurnResult:
    """Return the result of a turn from its transcript."""
    last = transcript.last
    turn = transcript.turn
    next_limit, next_limit_used = find_nearest_limit(turn, {turn.reason, *turn.also_reached})
    return TurnResult(
        id=turn_id,
        state=turn.state,
        outcome=turn.state.outcome,
        reason=turn.reason,
        also_reached=turn.also_reached,
        text=transcript.text,
        steps=turn.steps_taken,
        tool_calls=turn.counters.calls,
        usage=turn.usage,
        seconds=turn.elapsed,
        interrupts=Interrupt.all_of(turn_id, turn, transcript.started_at, transcript.asked_at),
        messages=transcript.messages,
        path=transcript.path,
        next_limit=next_limit,
        next_limit_used=next_limit_used,
        guardrail=last.guardrail if isinstance(last, f.TurnEnded) else None,
        error=_error(last) if isinstance(last, f.TurnEnded) else "",
        undelivered=(*last.undelivered, *late) if isinstance(last, f.TurnEnded) else (),
        sentinel=transcript.sentinel,
        advice=transcript.advice,
        output=transcript.output,
        broken=transcript.broken,
        unmet=last.unmet if isinstance(last, f.TurnEnded) else (),
    )


def _error(ending: f.TurnEnded) -> str:
    return ending.error if ending.guardrail is None else f"{ending.guardrail.name}: {ending.guardrail.message}"
