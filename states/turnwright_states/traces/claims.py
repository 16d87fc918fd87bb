"""What should hold of every turn, and where each claim comes from."""

from enum import StrEnum


class TraceClaim(StrEnum):
    """One invariant of a turn. The value is the sentence that a verdict is about."""

    #: DESIGN 4.8.
    PAIRED = "each call has its result before the model is called again and before the turn ends"
    #: DESIGN 4.8.
    ASKED = "each result answers a call that a reply asked for, once"
    #: One model call at a time, and one reply a call.
    REPLIED = "each model call has one reply or one failure, and no reply comes without a call"
    #: DESIGN 4.5 and 4.13.
    STARTED = "each call that succeeded was started, and nothing starts that no reply asked for"
    #: DESIGN 4.10 and 4.13.
    RETRIED = "no call starts twice without a record of its retry"
    #: DESIGN 4.7.
    DISABLED = "no call runs that came while tools were disabled"
    #: DESIGN 4.12.
    RESTED = "nothing runs while the turn is paused"
    #: DESIGN 4.1.
    STEPS = "steps stay within their limit"
    #: DESIGN 4.5.
    CALLS = "tool calls that start stay within their limit"
    #: DESIGN 4.1.
    MODEL_CALLS = "model calls stay within their limit"
    #: DESIGN 4.10.
    RETRIES = "no model call is tried again more often than allowed"
    #: DESIGN 1: the outcome is one.
    ONE_END = "the turn begins once and ends once"
    #: A final state has no rows.
    NOTHING_AFTER = "nothing happens after the end"
    #: DESIGN 1: one outcome, one reason.
    REASON = "the end names its outcome and its reason"
    #: DESIGN 4.7.
    WORDS = "the turn does not end silently: the user is told something"
