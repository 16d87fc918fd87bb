"""How a turn stands that somebody wants to answer, and the answers on their way into its inbox."""

from collections.abc import Mapping
from typing import Final

from turnwright_states.facts import Answered

from .answers import Reply, read_answer
from .errors import BadAnswer, ConfigError, TurnEnded
from .inbox import answer_item, steers
from .result import TurnResult, result_of
from .store import Store

Answers = Mapping[str, str | bool | Reply]

_TAKEN: Final = "somebody else has answered it, and the first answer stands"


async def standing(store: Store, turn_id: str) -> TurnResult:
    """How a turn stands now. Raises `UnknownTurn`."""
    facts = await store.facts(turn_id)
    return result_of(turn_id, facts, tuple(steers(await store.inbox(turn_id)).values()))


async def standing_live(store: Store, turn_id: str) -> TurnResult:
    """How a turn stands that has not ended. Raises `UnknownTurn`, and `TurnEnded` for one that has."""
    result = await standing(store, turn_id)
    if result.outcome is not None and result.reason is not None:
        raise TurnEnded(turn_id, result.outcome, result.reason)
    return result


async def post_answers(store: Store, turn_id: str, answers: Answers, *, now: float) -> dict[str, Reply]:
    """Put the answers into the turn's inbox, if all of them fit. Returns what they decide, by interrupt.

    `now` is in seconds since the epoch of Unix. Raises `BadAnswer`, naming what is open, and what `standing_live` does.
    """
    before = await standing_live(store, turn_id)
    if not isinstance(answers, Mapping):
        raise ConfigError(f"answers are a mapping of each interrupt's id to its answer, and not {answers!r}")
    replies = {name: read_answer(before.pending, name, answer, now=now) for name, answer in answers.items()}
    items = {answer_item(turn_id, name, reply): name for name, reply in replies.items()}
    taken = {item.id for item in await store.post(*items)}
    for item, name in items.items():
        if item.id in taken:
            raise BadAnswer(name, _TAKEN, [one.id for one in before.pending])
    return replies


async def taken_in(store: Store, turn_id: str, replies: Mapping[str, Reply]) -> TurnResult:
    """How the turn stands that was answered so. Raises `BadAnswer` if somebody else's answer was taken instead."""
    result = await standing(store, turn_id)
    decided = {
        fact.interrupt: Reply(fact.decision, fact.text)
        for _, fact in await store.facts(turn_id)
        if isinstance(fact, Answered)
    }
    for name, reply in replies.items():
        if decided.get(name, reply) != reply:
            raise BadAnswer(name, _TAKEN, [one.id for one in result.pending])
    return result
