"""The reasons of endings, the causes of failed attempts, and `REASONS`, the table of their meanings.

The table has each reason's outcome, words and origin. Sentinels, the command line, the pages and the documentation
print it. The machine, the lint, the walk and the list of causes read it.
"""

from enum import StrEnum
from typing import Final, NamedTuple

from .state import Outcome, Trigger


class EndReason(StrEnum):
    """The reason of an outcome, given by the row of the chart that ended the turn."""

    ANSWERED = "answered"
    TEXT_ONLY = "text_only"
    TRUNCATED = "truncated"
    SYNTHESIZED = "synthesized"
    STEP_CAP = "step_cap"
    BUDGET = "budget"
    TOKENS = "tokens"
    COST = "cost"
    DEADLINE = "deadline"
    NO_CALL_RAN = "no_call_ran"
    DOOM_LOOP = "doom_loop"
    ABORTED = "aborted"
    SUPERSEDED = "superseded"
    MODEL_ERROR = "model_error"
    EMPTY_REPLY = "empty_reply"
    CONTENT_FILTER = "content_filter"
    CONTEXT_OVERFLOW = "context_overflow"
    CRASHED = "crashed"
    ENGINE_ERROR = "engine_error"
    INVALID_OUTPUT = "invalid_output"
    GUARDRAIL = "guardrail"


class Cause(StrEnum):
    """The cause of a failed attempt at a model call or a synthesis. `REASONS` maps causes to reasons."""

    CONNECTION = "connection"
    TIMEOUT = "timeout"
    CONFLICT = "conflict"
    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    OVERLOADED = "overloaded"
    INTERRUPTED = "interrupted"
    EMPTY_REPLY = "empty_reply"
    REPETITION = "repetition"
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
        """Whether another attempt at the same call may succeed (docs/rules.md#retries)."""
        return _OF_CAUSE[self][1]

    @property
    def reason(self) -> EndReason:
        """The reason that a turn gets when this cause ends it."""
        return _OF_CAUSE[self][0]


class Meaning(NamedTuple):
    """The meaning and the origin of a reason.

    `means` is what happened, and `next` is the setting or program to change, for developers: the command line and the
    inspector show them. `for_users` is the next step for a user, and names no setting.
    """

    outcome: Outcome
    means: str
    next: str
    for_users: str = ""
    #: The triggers whose rows give it.
    triggers: tuple[Trigger, ...] = ()
    #: The causes that end a turn with it: those that may pass, and those that will not.
    passing: tuple[Cause, ...] = ()
    lasting: tuple[Cause, ...] = ()
    #: For a limit: the guard that holds once it is reached, and its name in `Turn.use`.
    reached: str = ""
    limit: str = ""


#: The default message of a failed attempt that was a reply without content.
NOTHING_SAID: Final = "the model replied with neither text nor tool calls"
#: The message of one that was cut off, which reasoning models send.
CUT_SHORT: Final = f"{NOTHING_SAID} before its output limit: raise the limit, or lower the effort of its thinking"

_USE: Final = "Use the answer."
_CONTINUE: Final = "You can continue in a new message."
_TRY_AGAIN: Final = "You can try again."


def _describe_answer(means: str, next_: str = _USE, for_users: str = "", *more_triggers: Trigger) -> Meaning:
    return Meaning(Outcome.FINISHED, means, next_, for_users, (Trigger.REPLIED, *more_triggers))


def _stop(means: str, next_: str, for_users: str) -> Meaning:
    return Meaning(Outcome.ABORTED, means, next_, for_users, (Trigger.ABORT,))


def _describe_limit(limit: str, reached_text: str, means: str, setting: str = "", *more_triggers: Trigger) -> Meaning:
    next_ = f"Continue in a new turn (it keeps the transcript), or raise {setting or f'`{limit}`'}."
    triggers = (Trigger.PROCEED, *more_triggers)
    return Meaning(Outcome.CAP_HIT, means, next_, _CONTINUE, triggers, reached=reached_text, limit=limit)


def _describe_failure(
    means: str, next_: str, for_users: str, *, passing: tuple[Cause, ...] = (), lasting: tuple[Cause, ...] = ()
) -> Meaning:
    return Meaning(Outcome.FAILED, means, next_, for_users, (Trigger.ATTEMPT_FAILED,), passing, lasting)


#: If several limits are reached, the first in this order is the reason.
REASONS: Final[dict[EndReason, Meaning]] = {
    EndReason.ANSWERED: _describe_answer(
        "The model answered.", _USE, "", Trigger.REVIEWED, Trigger.SETTLED, Trigger.EXPIRE
    ),
    EndReason.TEXT_ONLY: _describe_answer(
        "The turn was allowed no step or no tool call, so the model answered in text."
    ),
    EndReason.TRUNCATED: _describe_answer(
        "The answer was cut off at the model's output limit.",
        "Raise the model's output limit, or ask it to continue.",
        "You can ask it to continue.",
        Trigger.REVIEWED,
    ),
    EndReason.SYNTHESIZED: Meaning(
        Outcome.SYNTHESIS_DONE, "The app made the answer from tool results.", _USE, "", (Trigger.SETTLED,)
    ),
    EndReason.STEP_CAP: _describe_limit(
        "steps", "steps >= allowance", "The turn reached its step limit.", "the agent's `steps`"
    ),
    EndReason.DOOM_LOOP: Meaning(
        Outcome.DOOM_LOOP,
        "The model repeated the same round of tool calls.",
        "Read what it repeated, then ask again with what it lacked, or give it another tool.",
        "You can continue in a new message: say what was missing.",
        (Trigger.PROCEED, Trigger.ANSWERED),
        reached="doom",
        limit="doom_threshold",
    ),
    EndReason.BUDGET: _describe_limit("tool_calls", "calls_spent", "The turn reached its tool-call limit."),
    EndReason.TOKENS: _describe_limit(
        "tokens", "tokens_spent", "The turn reached its token limit.", "", Trigger.COMPACTED
    ),
    EndReason.COST: _describe_limit("cost", "cost_spent", "The turn reached its cost limit.", "", Trigger.COMPACTED),
    EndReason.DEADLINE: _describe_limit(
        "seconds", "time_spent", "The turn reached its time limit.", "", Trigger.EXPIRE
    ),
    EndReason.NO_CALL_RAN: _describe_limit(
        "idle_steps", "idled", "In too many steps in a row, no tool call of the model could run."
    ),
    EndReason.ABORTED: _stop("The turn was aborted.", "Nothing to mend; ask again when you like.", _CONTINUE),
    EndReason.SUPERSEDED: _stop(
        "A new message of the session arrived while the turn was paused.",
        "Follow the session's newer turn.",
        "The newer message is answered instead.",
    ),
    EndReason.MODEL_ERROR: _describe_failure(
        "The model could not be reached, refused the request, or gave no usable reply.",
        "Read the error; retry when its cause has passed.",
        _TRY_AGAIN,
        passing=(
            Cause.CONNECTION,
            Cause.TIMEOUT,
            Cause.CONFLICT,
            Cause.RATE_LIMITED,
            Cause.SERVER_ERROR,
            Cause.OVERLOADED,
            Cause.INTERRUPTED,
            Cause.REPETITION,
        ),
        lasting=(Cause.BAD_REQUEST, Cause.AUTHENTICATION, Cause.PERMISSION, Cause.NOT_FOUND, Cause.REJECTED),
    ),
    EndReason.EMPTY_REPLY: _describe_failure(
        "The model kept replying with neither text nor tool calls.",
        "Retry, or use another model.",
        _TRY_AGAIN,
        passing=(Cause.EMPTY_REPLY,),
    ),
    EndReason.CONTENT_FILTER: Meaning(
        Outcome.FAILED,
        "The provider's content filter stopped the reply.",
        "Do not retry unchanged.",
        "You can ask again in other words.",
        (Trigger.REPLIED, Trigger.ATTEMPT_FAILED),
        lasting=(Cause.CONTENT_FILTER,),
    ),
    EndReason.CONTEXT_OVERFLOW: _describe_failure(
        "The conversation no longer fits the model's context.",
        "Give the agent a `compaction`, or start anew.",
        "You can continue in a new conversation.",
        lasting=(Cause.CONTEXT_OVERFLOW,),
    ),
    EndReason.CRASHED: _describe_failure(
        "The process died during the same call again and again.",
        "Find out why; then retry.",
        _TRY_AGAIN,
        passing=(Cause.CRASH,),
    ),
    EndReason.ENGINE_ERROR: Meaning(
        Outcome.FAILED,
        "A hook or another function of the app raised, or the engine has a bug.",
        "Fix the function that the error names; if it names none of yours, report it with the turn's journal.",
        "You can report it with the id of this turn.",
        (Trigger.FAIL,),
    ),
    EndReason.INVALID_OUTPUT: Meaning(
        Outcome.FAILED,
        "The model's answer was refused, and no output retry was left.",
        "Read the error; simplify the output type, or raise `output_retries`.",
        _TRY_AGAIN,
        (Trigger.REVIEWED,),
    ),
    EndReason.GUARDRAIL: Meaning(
        Outcome.FAILED,
        "A guardrail tripped.",
        "Read its message; do not retry unchanged.",
        "You can ask again in other words.",
        (Trigger.TRIPPED,),
    ),
}

#: The possible reasons of each outcome.
REASONS_OF: Final[dict[Outcome, frozenset[EndReason]]] = {
    outcome: frozenset(reason for reason, meaning in REASONS.items() if meaning.outcome is outcome)
    for outcome in Outcome
}
_OF_CAUSE: Final = {
    cause: (reason, cause in meaning.passing)
    for reason, meaning in REASONS.items()
    for cause in (*meaning.passing, *meaning.lasting)
}
