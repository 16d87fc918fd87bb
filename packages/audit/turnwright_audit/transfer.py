"""A turn as one file that another store, and another inspector, can read: its journal and those of its sub-agents.

Each line is a fact as JSON, with the id of its turn; the first of a turn has the time of its creation. Earlier messages
are in the first fact, because another store lacks their turns. Secrets are hidden.
"""

import json
from collections.abc import Iterable, Sequence
from functools import partial

from msgspec import structs
from pydantic import JsonValue

from turnwright.errors import ConfigError, StoreError, TurnwrightError, UnreadableTurnError
from turnwright.journal.message_history import messages_before
from turnwright.journal.subturns import sub_turns
from turnwright.journal.turn_journal import first_fact
from turnwright.message import Message
from turnwright.privacy.redaction import Redactor, redactor, without_secrets
from turnwright.store import NewTurn, Status, Store
from turnwright.store.rows import is_time
from turnwright.transcript.transcript import reading
from turnwright_states import CallSettledInput, Input, InvalidJournalError, ModelRepliedInput, Turn, TurnMachine
from turnwright_states.event_inference import started_input
from turnwright_states.fact import PAYLOAD_VERSION
from turnwright_states.fact_parser import parse_fact
from turnwright_states.facts import CallSettled, Fact, ModelReplied, TurnStarted
from turnwright_states.payload import freeze, thaw
from turnwright_states.rederive import rederive
from turnwright_states.replay import FactGroup, replay
from turnwright_states.verdict import Verdict


async def export_turn(store: Store, turn_id: str) -> list[str]:
    """Return the lines of the file. Raises `TurnNotFoundError` and `StoreError`."""
    lines: list[str] = []
    waiting = [turn_id]
    while waiting:
        name = waiting.pop()
        row, journal = await store.get(name), await store.facts(name)
        first = first_fact(name, journal)
        history = await messages_before(store, name, first) if name == turn_id else []
        facts = [_alone(first, history), *(fact for _, fact in journal[1:])]
        try:
            hidden_facts = _hide_secrets(facts, redactor())
        except InvalidJournalError as error:
            raise UnreadableTurnError(name, f"it cannot be copied: {error}") from error
        for seq, fact in enumerate(hidden_facts, start=1):
            head: dict[str, JsonValue] = {"turn": name, "seq": seq, "kind": fact.kind, "v": PAYLOAD_VERSION}
            if seq == 1:
                head["created_at"] = row.created_at
            lines.append(json.dumps({**head, **fact.to_json()}))
        waiting += [child.id for child in (await sub_turns(store, name, journal)).values()]
    return lines


def _alone(first: TurnStarted, history: Sequence[Message]) -> TurnStarted:
    """Return the first fact of a turn without its earlier turns."""
    messages = tuple(message.to_json() for message in history) or first.message_history
    return structs.replace(first, message_history=messages, continue_from=None)


def _hide_secrets(facts: Sequence[Fact], hider: Redactor) -> list[Fact]:
    """Return the facts without secrets.

    Loop keys are made of arguments and results. If secrets were in these, the inputs are played again without them.
    Hashes cover what calls were given too.
    """
    hidden_facts = [without_secrets(fact, hider) for fact in facts]
    first, pairs = hidden_facts[0], [*enumerate(facts, start=1)]
    changed_kinds = {
        type(fact) for fact, hidden_fact in zip(facts, hidden_facts, strict=True) if fact is not hidden_fact
    }
    if not changed_kinds or not isinstance(first, TurnStarted):
        return hidden_facts
    replay_result = replay(pairs)
    if replay_result.check.verdict is not Verdict.HOLDS:
        return hidden_facts
    if changed_kinds & {ModelReplied, CallSettled}:
        new_facts = rederive(facts, replay_result.groups, started_input(first), partial(_without_secrets, hider))
        if isinstance(new_facts, FactGroup):
            return hidden_facts
        hidden_facts = [without_secrets(fact, hider) for fact in new_facts]
    turn = Turn()
    for place, fact in enumerate(hidden_facts):
        turn.apply(fact)
        if fact.hash:
            hidden_facts[place] = structs.replace(fact, hash=turn.digest())
    return hidden_facts


def _without_secrets(hider: Redactor, event: Input) -> Input:
    """Return the input without secrets in what is in loop keys."""
    if isinstance(event, CallSettledInput):
        return structs.replace(event, result=hider.hide(event.result))
    if not isinstance(event, ModelRepliedInput):
        return event
    calls = (
        structs.replace(
            call,
            arguments=None if call.arguments is None else freeze(hider.hide_fields(thaw(call.arguments))),
            raw=hider.hide(call.raw),
        )
        for call in event.calls
    )
    return structs.replace(event, calls=tuple(calls))


async def import_turns(store: Store, lines: Iterable[str | bytes]) -> list[str]:
    """Write the turns of such a file into a store, and return their ids, in the order of the file.

    Raises `ConfigError` for a line that is not a fact, for a fact that is missing or in another place, and for facts
    from which no turn can be made, and `StoreError` if a turn exists; the turns before it are written.
    """
    journals: dict[str, list[Fact]] = {}
    created_at: dict[str, float] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            _take(line, journals, created_at)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, InvalidJournalError) as error:
            raise ConfigError(f"line {number}: it is not a fact of an exported turn: {error}") from None
    for turn, facts in journals.items():
        await _write(store, turn, facts, created_at.get(turn, 0.0))
    return [*journals]


def _take(line: str | bytes, journals: dict[str, list[Fact]], created_at: dict[str, float]) -> None:
    """Add the fact of a line to its journal. Raises several kinds of errors for another line."""
    fields = json.loads(line)
    turn, seq, kind = str(fields.pop("turn")), fields.pop("seq"), fields.pop("kind")
    turn.encode()  # half a surrogate pair is not part of an id
    facts = journals.setdefault(turn, [])
    if type(seq) is not int or seq != len(facts) + 1:
        raise ValueError(f"its seq is {seq!r}, and fact {len(facts) + 1} of turn {turn} is missing")
    at = fields.pop("created_at", None)
    if at is not None:
        if not is_time(at):
            raise ValueError(f"created_at is not a time: {at!r:.40}")
        created_at[turn] = float(at)
    facts.append(parse_fact(kind, json.dumps(fields), seq))


async def _write(store: Store, turn: str, facts: list[Fact], created_at: float) -> None:
    try:
        first = first_fact(turn, [*enumerate(facts, start=1)])
        with reading(turn):
            status = Status.of(TurnMachine.resume(facts).turn)
    except StoreError as error:
        raise ConfigError(str(error)) from None
    agent = str(first.agent.get("name", ""))
    for session in (first.session, None):
        new = NewTurn(id=turn, session=session, agent=agent, model=first.model, created_at=created_at)
        try:
            await store.create(new, facts, status, driven=False)
        except TurnwrightError:
            if session is None:
                raise
        else:
            return
