"""The actions that the machine asks of its driver, which performs them and feeds the results back."""

from msgspec import Struct

from .call import Call
from .facts import InterruptRecord
from .reasons import EndReason
from .state import Outcome, Stall


class CallModel(Struct, frozen=True):
    """Call the model, and feed `ModelRepliedInput`, `AttemptFailedInput` or `ExpireInput`.

    Feed `RequestPreparedInput` first if a part of the step's requests is dynamic. Feed `OversizedInput` instead if the
    conversation is to be compacted first.

    `tools`: whether it may call tools; if not, the definitions are kept and `tool_choice` is `none`. `nudge`: add a
    hint, to this request alone, that the model repeats itself. `stall`: the hint is about this stall, also without
    `nudge`. `max_tokens`: the rest of the token budget; None without one. `second_try`: without tools, the model
    replied without text before, so ask with a sharper instruction.
    """

    tools: bool
    nudge: bool = False
    max_tokens: int | None = None
    stall: Stall | None = None
    second_try: bool = False


class RunTools(Struct, frozen=True):
    """Run these calls.

    Feed `CallStartedInput` before each, then `CallSettledInput` or `CallWaitingInput`, or `ExpireInput` when the time
    is up. A call in the state `STARTED` was started by a process that died.
    """

    calls: tuple[Call, ...]


class ReviewReply(Struct, frozen=True):
    """Check the reply, of which nothing has run: hooks, the output type, guardrails.

    Feed `ReviewedInput`, `TrippedInput` or `AttemptFailedInput`. `calls` are those of the reply.
    """

    calls: tuple[Call, ...]


class CompactHistory(Struct, frozen=True):
    """Summarize the older steps, and feed `CompactedInput` or `AttemptFailedInput`.

    `max_tokens`: the rest of the token budget; None without one.
    """

    max_tokens: int | None = None


class Synthesize(Struct, frozen=True):
    """Offer the finished batch to the synthesis, and feed `SynthesizedInput`."""

    batch: tuple[Call, ...]


class AwaitPerson(Struct, frozen=True):
    """Wait until each interrupt is answered, and feed `AnsweredInput` for each."""

    interrupts: tuple[InterruptRecord, ...]


class Conclude(Struct, frozen=True):
    """Ask the model, tools disabled, for a summary of what was done and what is left.

    Feed `ConcludedInput` or `AttemptFailedInput`. `seconds` and `max_tokens` limit each attempt instead of the turn's
    deadline and budget. `second_try`: the model replied without text before, so ask with a sharper instruction.
    Without `asks_model` the turn has `concluding="never"`: make no call, and feed a `ConcludedInput` without text.
    """

    reason: EndReason
    seconds: float
    max_tokens: int
    second_try: bool = False
    asks_model: bool = True


class Halt(Struct, frozen=True):
    """The turn is over."""

    outcome: Outcome
    reason: EndReason
    also_reached: tuple[EndReason, ...] = ()


Action = CallModel | ReviewReply | CompactHistory | RunTools | Synthesize | AwaitPerson | Conclude | Halt
