"""What the machine asks its driver to do next. The driver does it, and feeds back what came of it."""

from msgspec import Struct

from .call import Call
from .facts import InterruptRecord
from .reasons import EndReason
from .state import Outcome


class CallModel(Struct, frozen=True):
    """Call the model, and feed `ModelReplied`, `AttemptFailed` or `ExpireInput`.

    `tools`: whether it may call tools; if not, the definitions are kept and `tool_choice` is `none`. `nudge`: tell
    it, ephemerally, that it repeats itself. `max_tokens`: what the token budget leaves; None if there is none.
    """

    tools: bool
    nudge: bool = False
    max_tokens: int | None = None


class RunTools(Struct, frozen=True):
    """Run these calls.

    Feed `CallStartedInput` before each, then `CallSettledInput` or `CallWaitingInput`; `ExpireInput` when time is up. A
    call that is already started was started by a process that died.
    """

    calls: tuple[Call, ...]


class Synthesize(Struct, frozen=True):
    """Offer the finished batch to the synthesis, and feed `Synthesized`."""

    batch: tuple[Call, ...]


class AwaitPerson(Struct, frozen=True):
    """Rest until each interrupt is answered: feed `Answered` for each."""

    interrupts: tuple[InterruptRecord, ...]


class Conclude(Struct, frozen=True):
    """Ask the model to say what was done and what is left, tools disabled: feed `Concluded` or `AttemptFailed`.

    `seconds` and `max_tokens` bound each attempt; the turn's own deadline and budget do not bind it. `second_try`: the
    model was asked before and replied without text; ask once more, with a sharper instruction.
    """

    reason: EndReason
    seconds: float
    max_tokens: int
    second_try: bool = False


class Halt(Struct, frozen=True):
    """The turn is over."""

    outcome: Outcome
    reason: EndReason
    also_reached: tuple[EndReason, ...] = ()


Action = CallModel | RunTools | Synthesize | AwaitPerson | Conclude | Halt
