"""How a turn stands that somebody wants to answer, and the answers on their way into its inbox."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from turnwright._base.ids import root_of
from turnwright.errors import ConfigError, InvalidAnswerError, TurnAlreadyEndedError
from turnwright.result import TurnResult, result_of
from turnwright.store import QUEUED, Store
from turnwright_states.facts import Answered

from .answers import Answer, read_answer
from .inbox import answer_item, answers_in, steers

Answers = Mapping[str, str | bool | Answer]

_TAKEN: Final = "somebody has answered it, and the first answer stands: whoever drives the turn next takes it in"


def need_root(turn_id: str, do: str = "resume") -> None:
    """Raise `ConfigError` for a sub-agent's turn, which its parent drives: it says to `do` that to the turn above."""
    root = root_of(turn_id)
    if root != turn_id:
        raise ConfigError(f"turn {turn_id} is a sub-agent's, and its parent drives it: {do} turn {root}")


async def current_result(store: Store, turn_id: str) -> TurnResult:
    """How a turn stands now. Raises `TurnNotFoundError`."""
    facts, inbox = await store.facts(turn_id), await store.inbox(turn_id)
    result = result_of(turn_id, facts, tuple(steers(inbox).values()))
    # Asked last: it was still nobody's when all that is known of it was read.
    if result.outcome is None and (await store.get(turn_id)).status.state is QUEUED:
        result = replace(result, state=QUEUED)
    return replace(result, answered=answers_in(inbox) & {one.id for one in result.interrupts})


async def current_live_result(store: Store, turn_id: str) -> TurnResult:
    """How a turn stands that has not ended.

    Raises `TurnNotFoundError`, and `TurnAlreadyEndedError` for one that has.
    """
    result = await current_result(store, turn_id)
    if result.outcome is not None and result.reason is not None:
        raise TurnAlreadyEndedError(turn_id, result.outcome, result.reason)
    return result


async def post_answers(store: Store, turn_id: str, answers: Answers, *, now: float) -> dict[str, Answer]:
    """Put the answers into the turn's inbox, if all of them fit. Returns what they decide, by interrupt.

    `now` is in seconds since the epoch of Unix. Raises `InvalidAnswerError`, naming what is open, and what
    `current_live_result` does.
    """
    before = await current_live_result(store, turn_id)
    if not isinstance(answers, Mapping):
        raise ConfigError(f"answers are a mapping of each interrupt's id to its answer, and not {answers!r}")
    replies = {
        name: read_answer(before.interrupts, name, answer, now=now, answered=before.answered)
        for name, answer in answers.items()
    }
    items = {answer_item(turn_id, name, reply): name for name, reply in replies.items()}
    taken = {item.id for item in await store.post(*items)}
    for item, name in items.items():
        if item.id in taken:
            late = {each for one, each in items.items() if one.id in taken}
            raise InvalidAnswerError(name, _TAKEN, _open_in(before, late))
    return replies


async def result_after_answers(store: Store, turn_id: str, replies: Mapping[str, Answer]) -> TurnResult:
    """How the turn stands that was answered so.

    Raises `InvalidAnswerError` if somebody else's answer was taken instead.
    """
    result = await current_result(store, turn_id)
    decided = {
        fact.interrupt: Answer(fact.decision, fact.text)
        for _, fact in await store.facts(turn_id)
        if isinstance(fact, Answered)
    }
    for name, reply in replies.items():
        if decided.get(name, reply) != reply:
            raise InvalidAnswerError(name, _TAKEN, _open_in(result))
    return result


def _open_in(result: TurnResult, taken: Collection[str] = ()) -> list[str]:
    """The interrupts that nobody has answered; `taken` are some that somebody has answered since."""
    return [one.id for one in result.interrupts if one.id not in result.answered and one.id not in taken]
