"""A person's answers to the open interrupts of a turn: checked, then posted to its inbox."""

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from turnwright._base.ids import root_of
from turnwright.agent import Agent
from turnwright.errors import ConfigError, InvalidAnswerError, TurnAlreadyEndedError
from turnwright.result import TurnResult, result_of
from turnwright.store import QUEUED, InboxItem, InboxKind, Store
from turnwright.transcript.interrupt import Interrupt
from turnwright_states import DECISIONS, Decision, EndReason, InterruptKind, Outcome
from turnwright_states.facts import Answered

from .inbox import ANSWER_PREFIX, answers_in, steers
from .turn_journal import JournalFold

_YES: Final = frozenset({"yes", "y", "true", "ok", "grant", "approve", "allow"})
_NO: Final = frozenset({"no", "n", "false", "deny", "reject"})


_OTHER_ANSWER: Final = "it was answered before, and the first answer counts"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer with an explicit decision, and with text for the model if there is any."""

    decision: Decision
    text: str = ""


Answers = Mapping[str, str | bool | Answer]


def answer_item(turn: str, interrupt: str, answer: Answer) -> InboxItem:
    """Make an answer to an open interrupt. An interrupt has at most one."""
    payload = json.dumps({"interrupt": interrupt, "decision": answer.decision, "text": answer.text})
    return InboxItem(turn, f"{ANSWER_PREFIX}{interrupt}", InboxKind.ANSWER, payload)


def unanswered(kind: InterruptKind) -> Decision:
    """Return the decision for an interrupt that is not answered in time, or that nobody may answer any more."""
    return {InterruptKind.DOOM_LOOP: Decision.STOP, InterruptKind.UNKNOWN_OUTCOME: Decision.UNKNOWN}.get(
        kind, Decision.REJECT
    )


def reject(words: str = "") -> Answer:
    """Reject a call. The model receives `words`."""
    return Answer(Decision.REJECT, words)


def approve() -> Answer:
    """Approve a call, or the read access that it asks for."""
    return Answer(Decision.APPROVE)


def parse_answer(
    pending: tuple[Interrupt, ...],
    interrupt: str,
    answer: str | bool | Answer,
    *,
    now: float = -math.inf,
    answered: Collection[str] = (),
) -> Answer:
    """Check an answer to the open interrupt of that id, and return it with its decision.

    A question takes any text. An approval or a read access takes yes or no (True or False), a doom loop `go_on`,
    `always` or `stop`, an unknown outcome `rerun` or `unknown`.

    Raises `InvalidAnswerError`, which lists the open interrupts, also for one that expired by `now` (seconds since the
    Unix epoch). Interrupts in `answered` count as closed. See docs/rules.md#approvals.
    """
    ids = [one.id for one in pending if one.id not in answered]
    asked = next((one for one in pending if one.id == interrupt), None)
    if asked is None:
        raise InvalidAnswerError(interrupt, "no such interrupt is open", ids)
    if asked.expires_at is not None and asked.expires_at <= now:
        raise InvalidAnswerError(interrupt, "it has expired: resume the turn without an answer to it", ids)
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
            interrupt, f"its text has half a surrogate pair at character {error.start}", ids
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


def need_root(turn_id: str, do: str = "resume") -> None:
    """Raise `ConfigError` for a sub-agent's turn, which its parent drives; it says to `do` it to the root turn."""
    root = root_of(turn_id)
    if root != turn_id:
        raise ConfigError(f"turn {turn_id} is a sub-agent's, and its parent drives it: {do} turn {root}")


def need_agent(known: JournalFold, agent: Agent | None) -> None:
    """Raise `ConfigError` for an agent that is not the turn's."""
    name = known.started.agent.get("name")
    if agent is not None and agent.name != name:
        raise ConfigError(f"turn {known.turn_id} belongs to agent {name!r}, not to {agent.name!r}")


async def current_result(store: Store, turn_id: str) -> TurnResult:
    """Return a turn's current result. Raises `TurnNotFoundError`."""
    facts, inbox = await store.facts(turn_id), await store.inbox(turn_id)
    result = result_of(turn_id, facts, tuple(steers(inbox).values()))
    # Read last: then the turn was still queued when everything else was read.
    if result.outcome is None and (await store.get(turn_id)).status.state is QUEUED:
        result = replace(result, state=QUEUED)
    return replace(result, answered=answers_in(inbox) & {one.id for one in result.interrupts})


def need_live(turn_id: str, outcome: Outcome | None, reason: EndReason | None) -> None:
    """Raise `TurnAlreadyEndedError` for a turn that has ended."""
    if outcome is not None and reason is not None:
        raise TurnAlreadyEndedError(turn_id, outcome, reason)


async def post_answers(store: Store, known: JournalFold, answers: Answers, *, now: float) -> dict[str, Answer]:
    """Post all answers to the inbox of a turn, or none. Returns them parsed, by interrupt.

    `now` is in seconds since the Unix epoch. Raises `InvalidAnswerError`, naming the open interrupts, and
    `TurnAlreadyEndedError`.
    """
    turn, turn_id = known.machine.turn, known.turn_id
    need_live(turn_id, turn.state.outcome, turn.reason)
    if not isinstance(answers, Mapping):
        raise ConfigError(f"answers must map each interrupt's id to its answer, not {answers!r}")
    asked = tuple(Interrupt.of(turn, interrupt) for interrupt in turn.interrupts.values())

    def parse_all(answered: Collection[str] = ()) -> dict[str, Answer]:
        return {name: parse_answer(asked, name, one, now=now, answered=answered) for name, one in answers.items()}

    try:
        replies = parse_all()
    except InvalidAnswerError:
        replies = parse_all(
            answers_in(await store.inbox(turn_id))
        )  # the error lists the open interrupts, which only the inbox knows
    items = {answer_item(turn_id, name, reply): name for name, reply in replies.items()}
    taken = {item.id for item in await store.post(*items)}
    for item, name in items.items():
        if item.id in taken:
            late = {each for one, each in items.items() if one.id in taken}
            open_ones = {one.id for one in asked} - late - answers_in(await store.inbox(turn_id))
            raise InvalidAnswerError(name, _OTHER_ANSWER, [one.id for one in asked if one.id in open_ones])
    return replies


async def need_accepted(store: Store, known: JournalFold, result: TurnResult, replies: Mapping[str, Answer]) -> None:
    """Raise `InvalidAnswerError` if other answers were accepted instead of these.

    `known` was driven since they were posted.
    """
    decided = _decided(known)
    if not replies.keys() <= decided.keys():  # another driver may have fed them
        await known.catch_up(store)
        decided = _decided(known)
    for name, reply in replies.items():
        if decided.get(name, reply) != reply:
            still = [one.id for one in result.interrupts if one.id not in result.answered]
            raise InvalidAnswerError(name, _OTHER_ANSWER, still)


def _decided(known: JournalFold) -> dict[str, Answer]:
    answered = (fact for _, fact in known.facts if isinstance(fact, Answered))
    return {fact.interrupt: Answer(fact.decision, fact.text) for fact in answered}
