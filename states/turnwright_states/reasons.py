"""Why a turn ended and why an attempt failed: two closed sets, and the one table of what they mean.

Sentinels, the command line, the page and the documentation print `REASONS`; nobody words it again.
"""

from enum import StrEnum
from typing import Final, NamedTuple

from .state import Outcome


class EndReason(StrEnum):
    """The one reason that the chart's row gave the outcome."""

    ANSWERED = "answered"
    TEXT_ONLY = "text_only"
    TRUNCATED = "truncated"
    SYNTHESIZED = "synthesized"
    STEP_CAP = "step_cap"
    BUDGET = "budget"
    TOKENS = "tokens"
    COST = "cost"
    DEADLINE = "deadline"
    DOOM_LOOP = "doom_loop"
    ABORTED = "aborted"
    SUPERSEDED = "superseded"
    MODEL_ERROR = "model_error"
    EMPTY_REPLY = "empty_reply"
    CONTENT_FILTER = "content_filter"
    CONTEXT_OVERFLOW = "context_overflow"
    CRASHED = "crashed"
    ENGINE_ERROR = "engine_error"


class Cause(StrEnum):
    """Why an attempt at a model call (or a synthesis) failed. The first group may pass; the second will not."""

    CONNECTION = "connection"
    TIMEOUT = "timeout"
    CONFLICT = "conflict"
    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    OVERLOADED = "overloaded"
    INTERRUPTED = "interrupted"
    EMPTY_REPLY = "empty_reply"
    CRASH = "crash"

    BAD_REQUEST = "bad_request"
    AUTHENTICATION = "authentication"
    PERMISSION = "permission"
    NOT_FOUND = "not_found"
    CONTEXT_OVERFLOW = "context_overflow"
    CONTENT_FILTER = "content_filter"
    REJECTED = "rejected"

    @property
    def may_pass(self) -> bool:
        """Whether another attempt at the same call may succeed (DESIGN 2)."""
        return self in _MAY_PASS

    @property
    def reason(self) -> EndReason:
        """The reason that a turn gets when this cause ends it."""
        return _REASON_OF_CAUSE.get(self, EndReason.MODEL_ERROR)


_MAY_PASS: Final = frozenset(
    {
        Cause.CONNECTION,
        Cause.TIMEOUT,
        Cause.CONFLICT,
        Cause.RATE_LIMITED,
        Cause.SERVER_ERROR,
        Cause.OVERLOADED,
        Cause.INTERRUPTED,
        Cause.EMPTY_REPLY,
        Cause.CRASH,
    }
)
_REASON_OF_CAUSE: Final = {
    Cause.EMPTY_REPLY: EndReason.EMPTY_REPLY,
    Cause.CRASH: EndReason.CRASHED,
    Cause.CONTEXT_OVERFLOW: EndReason.CONTEXT_OVERFLOW,
    Cause.CONTENT_FILTER: EndReason.CONTENT_FILTER,
}

#: Which reasons an outcome can have.
REASONS_OF: Final[dict[Outcome, frozenset[EndReason]]] = {
    Outcome.FINISHED: frozenset({EndReason.ANSWERED, EndReason.TEXT_ONLY, EndReason.TRUNCATED}),
    Outcome.SYNTHESIS_DONE: frozenset({EndReason.SYNTHESIZED}),
    Outcome.CAP_HIT: frozenset(
        {EndReason.STEP_CAP, EndReason.BUDGET, EndReason.TOKENS, EndReason.COST, EndReason.DEADLINE}
    ),
    Outcome.DOOM_LOOP: frozenset({EndReason.DOOM_LOOP}),
    Outcome.ABORTED: frozenset({EndReason.ABORTED, EndReason.SUPERSEDED}),
    Outcome.FAILED: frozenset(
        {
            EndReason.MODEL_ERROR,
            EndReason.EMPTY_REPLY,
            EndReason.CONTENT_FILTER,
            EndReason.CONTEXT_OVERFLOW,
            EndReason.CRASHED,
            EndReason.ENGINE_ERROR,
        }
    ),
}


class Meaning(NamedTuple):
    """What a reason means, in words for developers and for users.

    `means` says what happened and `next` which setting or program to change: the command line and the inspector show
    them. `told` is what a user is told to do; it names no setting.
    """

    means: str
    next: str
    told: str = ""


_RAISE = "Continue in a new turn (it keeps the transcript), or raise {what}."
_CONTINUE = "You can continue in a new message."
_TRY_AGAIN = "You can try again."

#: The message of the machine's own failed attempt, for a reply with nothing in it. A model may have words of its own.
NOTHING_SAID: Final = "the model replied with neither text nor tool calls"

REASONS: Final[dict[EndReason, Meaning]] = {
    EndReason.ANSWERED: Meaning("The model answered.", "Use the answer."),
    EndReason.TEXT_ONLY: Meaning(
        "The turn was allowed no step or no tool call, so the model answered in text.", "Use the answer."
    ),
    EndReason.TRUNCATED: Meaning(
        "The answer was cut off at the model's output limit.",
        "Raise the model's output limit, or ask it to go on.",
        "You can ask it to go on.",
    ),
    EndReason.SYNTHESIZED: Meaning("The synthesis turned the last batch into the answer.", "Use the answer."),
    EndReason.STEP_CAP: Meaning(
        "The turn took all the steps that it may take.", _RAISE.format(what="the agent's `steps`"), _CONTINUE
    ),
    EndReason.BUDGET: Meaning("The turn reached its tool-call limit.", _RAISE.format(what="`tool_calls`"), _CONTINUE),
    EndReason.TOKENS: Meaning("The turn spent its budget of tokens.", _RAISE.format(what="`tokens`"), _CONTINUE),
    EndReason.COST: Meaning("The turn spent its budget of money.", _RAISE.format(what="`cost`"), _CONTINUE),
    EndReason.DEADLINE: Meaning("The turn used up its time.", _RAISE.format(what="`seconds`"), _CONTINUE),
    EndReason.DOOM_LOOP: Meaning(
        "The model repeated the same round of tool calls.",
        "Read what it repeated, then ask again with what it lacked, or give it another tool.",
        "You can continue in a new message: say what was missing.",
    ),
    EndReason.ABORTED: Meaning("Somebody aborted the turn.", "Nothing to mend; ask again when you like.", _CONTINUE),
    EndReason.SUPERSEDED: Meaning(
        "A new message of the session arrived while the turn was paused.",
        "Follow the session's newer turn.",
        "The newer message is answered instead.",
    ),
    EndReason.MODEL_ERROR: Meaning(
        "The model could not be reached, or refused the request.",
        "Read the error; retry when its cause has passed.",
        _TRY_AGAIN,
    ),
    EndReason.EMPTY_REPLY: Meaning(
        "The model kept replying with neither text nor tool calls.", "Retry, or use another model.", _TRY_AGAIN
    ),
    EndReason.CONTENT_FILTER: Meaning(
        "The provider's content filter stopped the reply.",
        "Do not retry unchanged.",
        "You can ask again in other words.",
    ),
    EndReason.CONTEXT_OVERFLOW: Meaning(
        "The conversation no longer fits the model's context.",
        "Compact it with a `history_processor` hook, or start anew.",
        "You can go on in a new conversation.",
    ),
    EndReason.CRASHED: Meaning(
        "The process died during the same call again and again.", "Find out why; then retry.", _TRY_AGAIN
    ),
    EndReason.ENGINE_ERROR: Meaning(
        "A bug in the engine or in a hook of its embedder.",
        "Report it with the turn's journal; do not retry.",
        "You can report it with the id of this turn.",
    ),
}
