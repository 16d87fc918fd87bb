"""What a tool is told about its call, and what it may ask of a person before it runs."""

from dataclasses import dataclass

from turnwright_states import Decision, InterruptKind


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person said to this call's interrupt, before it runs. `text` holds the words of a reply."""

    decision: Decision
    text: str = ""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The call that is being made.

    A tool whose function has a parameter annotated `ToolContext` is given one; the model never sees that parameter.
    `turn` is the turn's id, `call` the call's, unique in the turn. `attempt` counts from 1. `answers` are those to
    this call's own interrupts, oldest first. `grants` is everything that was granted so far in this turn: absolute
    paths, for the built-in tools.
    """

    turn: str
    call: str
    attempt: int = 1
    answers: tuple[Answer, ...] = ()
    grants: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The idempotency key `{turn}:{call}`: the same at every attempt (DESIGN 4.13)."""
        return f"{self.turn}:{self.call}"


@dataclass(frozen=True, slots=True)
class Ask:
    """A call wants a person before it runs.

    `question` and `choices` are shown to the person. `grant` is what saying yes would allow. `expires_in` is the
    time to answer in seconds, after which the call is denied; None waits for ever.
    """

    kind: InterruptKind
    question: str = ""
    choices: tuple[str, ...] = ()
    grant: str | None = None
    expires_in: float | None = None
