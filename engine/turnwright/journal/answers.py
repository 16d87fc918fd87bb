"""Reads what a person answered: which of the decisions that an interrupt takes it is."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from turnwright.errors import InvalidAnswerError
from turnwright.transcript.interrupt import Interrupt
from turnwright_states import DECISIONS, Decision, InterruptKind

_YES: Final = frozenset({"yes", "y", "true", "ok", "grant", "approve", "allow"})
_NO: Final = frozenset({"no", "n", "false", "deny", "reject"})


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that says its decision itself, with words for the model where there are any."""

    decision: Decision
    text: str = ""


def unanswered(kind: InterruptKind) -> Decision:
    """What an interrupt decides that nobody answers in time, or that nobody may be asked about any more."""
    return {InterruptKind.DOOM_LOOP: Decision.STOP, InterruptKind.UNKNOWN_OUTCOME: Decision.UNKNOWN}.get(
        kind, Decision.REJECT
    )


def reject(words: str = "") -> Answer:
    """Turn a call down. The model is told the words."""
    return Answer(Decision.REJECT, words)


def approve() -> Answer:
    """Approve a call, or the read access that it asks for."""
    return Answer(Decision.APPROVE)


def read_answer(
    pending: tuple[Interrupt, ...],
    interrupt: str,
    answer: str | bool | Answer,
    *,
    now: float = -math.inf,
    answered: Collection[str] = (),
) -> Answer:
    """What `answer` decides for the pending interrupt of that id.

    A question takes any text. An approval or a grant takes yes or no (or True, False), a doom loop `go_on`, `always`
    or `stop`, an unknown outcome `rerun` or `unknown`. Raises `InvalidAnswerError`, which lists what is open, also for
    one that expired by `now`, in seconds since the epoch of Unix. Those in `answered` are open no more: somebody was
    faster.
    """
    ids = [one.id for one in pending if one.id not in answered]
    asked = next((one for one in pending if one.id == interrupt), None)
    if asked is None:
        raise InvalidAnswerError(interrupt, "no such interrupt is open", ids)
    if asked.expires_at is not None and asked.expires_at <= now:
        raise InvalidAnswerError(
            interrupt, "the time to answer it is over: resume the turn without an answer to it", ids
        )
    takes = DECISIONS[asked.kind]
    if isinstance(answer, Answer):
        reply = answer
    elif asked.kind is InterruptKind.QUESTION and isinstance(answer, str):
        reply = Answer(Decision.REPLY, answer)
    else:
        reply = Answer(_decision(answer, takes) or Decision.REPLY)
    if reply.decision not in takes:
        words = " or ".join({Decision.APPROVE: "yes", Decision.REJECT: "no"}.get(one, str(one)) for one in takes)
        given = reply.decision if isinstance(answer, Answer) else repr(answer)
        raise InvalidAnswerError(interrupt, f"{_article(asked.kind)} takes {words}, not {given}", ids)
    try:
        reply.text.encode()
    except UnicodeEncodeError as error:
        raise InvalidAnswerError(
            interrupt, f"its text is no text: its character {error.start} is half a pair", ids
        ) from None
    return reply


def _decision(answer: str | bool, takes: tuple[Decision, ...]) -> Decision | None:
    word = str(answer).strip().lower().replace("-", "_")
    if word in _YES and Decision.APPROVE in takes:
        return Decision.APPROVE
    if word in _NO and Decision.REJECT in takes:
        return Decision.REJECT
    return next((one for one in takes if one == word), None)


def _article(kind: InterruptKind) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
