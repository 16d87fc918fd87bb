"""The invariants of every turn, each with its rule in docs/rules.md."""

from enum import StrEnum


class TraceClaim(StrEnum):
    """One invariant of a turn. The value is the sentence that a verdict is about."""

    #: docs/rules.md#pairing.
    PAIRED = "each call has its result before the model is called again and before the turn ends"
    #: docs/rules.md#pairing.
    ASKED = "each result answers a call that a reply asked for, once"
    #: docs/rules.md#steps.
    REPLIED = "each model call has one reply or one failure, and no reply comes without a call"
    #: docs/rules.md#budgets, #recovery.
    STARTED = "each call that succeeded was started, and nothing starts that no reply asked for"
    #: docs/rules.md#retries, #recovery.
    RETRIED = "no call starts twice without a record of its retry"
    #: docs/rules.md#concluding.
    DISABLED = "no call runs that came while tools were disabled"
    #: docs/rules.md#approvals.
    RESTED = "nothing runs while the turn is paused"
    #: docs/rules.md#steps.
    STEPS = "steps stay within their limit"
    #: docs/rules.md#budgets.
    CALLS = "tool calls that start stay within their limit"
    #: docs/rules.md#model-calls.
    MODEL_CALLS = "model calls stay within their limit"
    #: docs/rules.md#retries.
    RETRIES = "no model call is tried again more often than allowed"
    #: docs/rules.md#outcomes.
    ONE_END = "the turn begins once and ends once"
    #: A final state has no rows.
    NOTHING_AFTER = "nothing happens after the end"
    #: docs/rules.md#outcomes.
    REASON = "the end names its outcome and its reason"
    #: docs/rules.md#concluding.
    WORDS = "the turn does not end silently: the user gets a text"
