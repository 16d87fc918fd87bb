"""How a turn stands that somebody wants to answer, and the answers on their way into its inbox."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from turnwright._base.ids import root_of
from turnwright.errors import ConfigError, InvalidAnswerError, TurnAlreadyEndedError
from turnwright.result import TurnResult, result_of
from turnwright.store import QUEUED, Store
from turnwright.transcript.interrupt import Interrupt
from turnwright_states import EndReason, Outcome
from turnwright_states.facts import Answered

from .answers import Answer, read_answer
from .inbox import answer_item, answers_in, steers
from .turn_journal import JournalFold

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


def need_live(turn_id: str, outcome: Outcome | None, reason: EndReason | None) -> None:
    """Raise `TurnAlreadyEndedError` for a turn that has ended."""
    if outcome is not None and reason is not None:
        raise TurnAlreadyEndedError(turn_id, outcome, reason)


async def post_answers(store: Store, known: JournalFold, answers: Answers, *, now: float) -> dict[str, Answer]:
    """Put the answers into the inbox of a turn, if all of them fit. Returns what they decide, by interrupt.

    `now` is in seconds since the epoch of Unix. Raises `InvalidAnswerError`, naming what is open, and
    `TurnAlreadyEndedError`.
    """
    turn, turn_id = known.machine.turn, known.turn_id
    need_live(turn_id, turn.state.outcome, turn.reason)
    if not isinstance(answers, Mapping):
        raise ConfigError(f"answers are a mapping of each interrupt's id to its answer, and not {answers!r}")
    asked = tuple(Interrupt.of(turn, interrupt) for interrupt in turn.interrupts.values())

    def read(answered: Collection[str] = ()) -> dict[str, Answer]:
        return {name: read_answer(asked, name, one, now=now, answered=answered) for name, one in answers.items()}

    try:
        replies = read()
    except InvalidAnswerError:
        replies = read(answers_in(await store.inbox(turn_id)))  # it names what is open, and only the inbox knows that
    items = {answer_item(turn_id, name, reply): name for name, reply in replies.items()}
    taken = {item.id for item in await store.post(*items)}
    for item, name in items.items():
        if item.id in taken:
            late = {each for one, each in items.items() if one.id in taken}
            open_ones = {one.id for one in asked} - late - answers_in(await store.inbox(turn_id))
            raise InvalidAnswerError(name, _TAKEN, [one.id for one in asked if one.id in open_ones])
    return replies


async def check_answers(store: Store, known: JournalFold, result: TurnResult, replies: Mapping[str, Answer]) -> None:
    """Raise `InvalidAnswerError` if somebody else's answers were taken instead of these. `known` was driven since."""
    decided = _decided(known)
    if not replies.keys() <= decided.keys():  # another driver may have taken them in
        await known.catch_up(store)
        decided = _decided(known)
    for name, reply in replies.items():
        if decided.get(name, reply) != reply:
            still = [one.id for one in result.interrupts if one.id not in result.answered]
            raise InvalidAnswerError(name, _TAKEN, still)


def _decided(known: JournalFold) -> dict[str, Answer]:
    answered = (fact for _, fact in known.facts if isinstance(fact, Answered))
    return {fact.interrupt: Answer(fact.decision, fact.text) for fact in answered}
