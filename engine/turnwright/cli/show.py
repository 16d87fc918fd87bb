"""`turnwright show`: prints one turn from its store."""

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from io import TextIOWrapper
from typing import Annotated, Final, NamedTuple

import typer
from pydantic import JsonValue

from turnwright._base.ids import root_of
from turnwright._base.words import count, cut_line, local_time
from turnwright.errors import ConfigError, SessionNotFoundError, TurnNotFoundError, UnreadableTurnError
from turnwright.journal.driving_status import DriverStatus, by_command_line, driving_status
from turnwright.journal.message_history import messages_before
from turnwright.journal.questions import call_lines
from turnwright.journal.result import TurnResult
from turnwright.journal.standing_approvals import StandingApproval, approvals_in, list_approvals
from turnwright.journal.subturns import sub_turns
from turnwright.journal.turn_journal import JournalFold, first_fact
from turnwright.message import (
    AnyPart,
    FilePart,
    Message,
    SentinelPart,
    StepFinishPart,
    StepStartPart,
    ToolCallPart,
    ToolResultPart,
)
from turnwright.runtime.engine import Engine
from turnwright.status import RuleStatus, read_rules
from turnwright.store import ClaimSpan, InboxKind, Store, TurnRow
from turnwright.transcript.events import without_content
from turnwright.transcript.tool_phase import message_ids
from turnwright_states.facts import KINDS, CallSettled, CallStarted, TurnStarted, tool_names
from turnwright_states.verdict import RuleDecision

from .options import DEFAULT_STORE, JsonOption, SessionOption, StoreOption, TurnOrNoneArgument, need_one
from .packages import import_part
from .process import echo, echo_json, json_line, spell
from .screen import print_lines
from .sessions import approval_lines, find_session
from .stores import Journal, find_turn, store_flag, use_store
from .summary import closing_lines, detail_lines, print_closing, rule_lines
from .view import describe_fork, file_line, with_status

#: The width of the column with the role.
_MARGIN: Final = 11
_KIND_WIDTH: Final = max(map(len, KINDS)) + 1
#: The longest summary of a fact, in characters.
_LONGEST: Final = 400


def show(
    turn: TurnOrNoneArgument = None,
    *,
    session: SessionOption = None,
    journal: Annotated[
        bool,
        typer.Option("--journal", help="Print the facts instead of the transcript, one per line; with --json in full."),
    ] = False,
    as_test: Annotated[
        bool,
        typer.Option(
            "--as-test",
            help="Print a pytest file that repeats the turn with its recorded model and tools."
            " It contains the whole journal, secrets too: read it before you share it.",
        ),
    ] = False,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
) -> None:
    """Show a turn: its transcript, its state, and why it ended. Or show the conversation of a session."""
    if session is not None:
        need_one(turn, session)
        if journal or as_test:
            raise ConfigError(f"{'--journal' if journal else '--as-test'} shows one turn: name it instead of --session")
        _show_session(store, session, as_json=as_json)
        return
    turn = find_turn(store, need_one(turn, session))
    if as_test:
        if journal or as_json:
            raise ConfigError(f"--as-test prints a file: leave out {'--journal' if journal else '--json'}")
        _print_test(use_store(store, partial(_read_incident, turn=turn)))
        return
    if journal:
        facts = use_store(store, lambda turn_store: turn_store.facts(turn))
        for line in _json_facts(facts) if as_json else _journal_lines(store, turn, facts):
            echo(line)
        return
    turn_view, root_started, told_to_stop, driver, approvals = use_store(store, partial(_turn, turn=turn))
    if as_json:
        echo_json(turn_view.record(approvals))
        return
    print_lines([*_describe_caller(turn_view.start), *describe_fork(turn_view.start)])
    turn_view.print_messages()
    if driver in (DriverStatus.CRASHED, DriverStatus.LEFT):
        print_lines(_list_begun_calls(turn_view.facts))
    result, elsewhere = turn_view.result, not by_command_line(root_started.metadata)
    closing = _damage_lines(result, turn_view.facts) or closing_lines(
        result, store=store, elsewhere=elsewhere, told_to_stop=told_to_stop, verbose=True, driver=driver
    )
    print_closing(result, [*closing, *rule_lines(turn_view.rules), *approval_lines(approvals)], flags=store_flag(store))


class _Turn(NamedTuple):
    """A turn as this command shows it."""

    result: TurnResult
    facts: Journal
    sub_turns: Mapping[str, TurnRow]
    start: TurnStarted
    rules: Sequence[RuleStatus]

    def record(self, approvals: Sequence[StandingApproval] = ()) -> dict[str, JsonValue]:
        standing: list[JsonValue] = [approval.to_json() for approval in approvals]
        return {
            **_result_record(self.result),
            **_rule_records(self.rules),
            **({"approved_always": standing} if standing else {}),
            **_origin(self.start),
            **_sub_turn_records(self.sub_turns),
        }

    def print_messages(self) -> None:
        broken_rules: dict[str, list[RuleDecision]] = {}  # the decisions of rules that went against each call
        for status in self.rules:
            for decision in status.broken:
                broken_rules.setdefault(decision.call or "", []).append(decision)
        for message in self.result.messages:
            print_lines(_message_lines(message, self.sub_turns, broken_rules), hang=_MARGIN)


async def _read(store: Store, turn: str) -> _Turn:
    result, facts = await Engine(store=store).get(turn), await store.facts(turn)
    rules = read_rules(fact for _, fact in facts)
    return _Turn(result, facts, await sub_turns(store, turn, facts), first_fact(turn, facts), rules)


def _damage_lines(result: TurnResult, facts: Journal) -> list[str]:
    """Return the closing lines of a turn that cannot continue, because its journal is damaged; none for any other."""
    if result.outcome is not None:
        return []
    try:
        JournalFold(result.id, facts)
    except UnreadableTurnError as error:
        return [f"Damaged: {error}", *detail_lines(result)]
    return []


def _list_begun_calls(facts: Journal) -> list[str]:
    """Return the calls that had started when the driver went."""
    settled_ids = {fact.call for _, fact in facts if isinstance(fact, CallSettled)}
    open_calls = dict.fromkeys(
        fact.call for _, fact in facts if isinstance(fact, CallStarted) and fact.call not in settled_ids
    )
    tools = tool_names(fact for _, fact in facts)
    return [f"{cut_line(tools[call])} ({call}) had started, and has no result" for call in open_calls]


def _show_session(store: str, session: str, *, as_json: bool) -> None:
    turns, standing = use_store(store, partial(_session, prefix=session))
    for turn in turns:
        if as_json:
            echo_json(turn.record())
            continue
        result = turn.result
        ending = f"{result.outcome}: {result.reason}" if result.outcome is not None else result.state
        print_lines([f"turn {result.id}: {ending}"])
        turn.print_messages()
        if result.outcome is None:
            print_lines([f"Not ended: `turnwright show {result.id}{store_flag(store)}` shows how to continue it."])
    if not as_json:
        print_lines(approval_lines(standing))


async def _session(store: Store, *, prefix: str) -> tuple[list[_Turn], list[StandingApproval]]:
    """Return the turns of a session, oldest first, and the approvals of the session that cover equal calls."""
    name = await find_session(store, prefix=prefix)
    rows = await store.turns(session=name)
    if not rows:
        raise SessionNotFoundError(name)
    return [await _read(store, row.id) for row in reversed(rows)], await list_approvals(store, name)


def journal_lines(facts: Journal, claims: Sequence[ClaimSpan] = ()) -> Iterator[str]:
    """Return a line for each fact: its number, its kind, the active seconds, and its summary.

    A line before the first fact of each claim after the first has its epoch, its driver and the time of day: there the
    turn was resumed or recovered.
    """
    tools = tool_names(fact for _, fact in facts)
    later = {claim.first: claim for claim in claims[1:]}
    for seq, fact in facts:
        if seq in later:
            claim = later[seq]
            started_at = local_time(claim.began, "%Y-%m-%d %H:%M:%S")
            yield f"      epoch {claim.epoch}, driven by {cut_line(claim.owner)} since {started_at}"
        summary = cut_line(fact.summary(tools), _LONGEST)
        yield f"{seq:>4}  {fact.kind:<{_KIND_WIDTH}} {fact.elapsed:>9.3f} s  {summary}".rstrip()


def _journal_lines(store: str, turn: str, facts: Journal) -> Iterator[str]:
    return journal_lines(facts, use_store(store, lambda turn_store: turn_store.claim_spans(turn)))


def _json_facts(facts: Journal) -> Iterator[str]:
    for seq, fact in facts:
        yield json_line({"seq": seq, "kind": fact.kind, **json.loads(fact.payload())})


async def _turn(
    store: Store, *, turn: str
) -> tuple[_Turn, TurnStarted, bool, DriverStatus | None, list[StandingApproval]]:
    """Return a turn, its root's first fact, if a stop was requested, and its driver.

    The last one are its approvals that cover equal calls now: of a turn without a session, until it ends.
    """
    turn_view = await _read(store, turn)
    root_started, root = turn_view.start, root_of(turn)
    if root != turn:
        with suppress(TurnNotFoundError):  # a turn may have a colon in its id and no root
            root_started = first_fact(root, await store.facts(root))
    told_to_stop = any(item.kind is InboxKind.ABORT for item in await store.inbox(turn))
    _, driver = await driving_status(store, await store.get(turn))
    stand = turn_view.result.outcome is None or turn_view.start.session is not None
    approvals = await approvals_in(store, turn, turn_view.facts) if stand else []
    return turn_view, root_started, told_to_stop, driver, approvals


def _print_test(make: Callable[[], str]) -> None:
    # A failed turn fails again when it is repeated, and must not be logged as an error here.
    logging.disable()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # Python reads source files as UTF-8
    echo(make().removesuffix("\n"))


async def _read_incident(store: Store, *, turn: str) -> Callable[[], str]:
    """Return a function that writes the test of a turn. It must run without an event loop, because it starts one."""
    as_test = import_part("turnwright_testing.regression_test", "turnwright show --as-test").as_test
    row, facts = await store.get(turn), await store.facts(turn)
    history = await messages_before(store, turn, first_fact(turn, facts))
    return partial(as_test, turn, facts, history=history, recorded=local_time(row.created_at, "%Y-%m-%d"))


def _result_record(result: TurnResult) -> dict[str, JsonValue]:
    return {
        "turn": result.id,
        "state": result.state,
        "outcome": result.outcome,
        "reason": result.reason,
        "also_reached": list(result.also_reached),
        "steps": result.steps,
        "tool_calls": result.tool_calls,
        "text": result.text,
        "usage": result.usage.to_json(),
        "seconds": result.seconds,
        "error": result.error,
        "path": list(result.path),
        "interrupts": [interrupt.to_json() for interrupt in result.interrupts],
        "answered": [*sorted(result.answered)],
        "undelivered": list(result.undelivered),
        "messages": [
            {"id": name, "role": message.role, "parts": _parts(message)}
            for name, message in zip(message_ids(result.id, result.messages), result.messages, strict=True)
        ],
    }


def _parts(message: Message) -> JsonValue:
    """Return the parts as JSON, without the contents of files. The journal has those (`--journal --json`)."""
    return without_content([part.to_json() for part in message.parts])


def _origin(turn_start: TurnStarted) -> dict[str, JsonValue]:
    return {
        "parent": turn_start.parent_turn,
        "parent_call": turn_start.parent_call,
        "forked_from": turn_start.forked_from,
        "forked_at": turn_start.forked_at,
        "forked_with": list(turn_start.forked_with),
    }


def _sub_turn_records(turns: Mapping[str, TurnRow]) -> dict[str, JsonValue]:
    return {
        "sub_turns": [
            {
                "call": call,
                "turn": row.id,
                "agent": row.agent,
                "state": row.status.state,
                "outcome": row.status.outcome,
                "reason": row.status.reason,
            }
            for call, row in turns.items()
        ]
    }


def _describe_caller(turn_start: TurnStarted) -> list[str]:
    if turn_start.parent_turn is None:
        return []
    agent = cut_line(str(turn_start.agent.get("name", "")))
    return [f"agent {agent}, called by {turn_start.parent_call} of turn {turn_start.parent_turn}"]


def _rule_records(rules: Sequence[RuleStatus]) -> dict[str, JsonValue]:
    if not rules:
        return {}
    records: list[JsonValue] = [
        {
            "rule": status.rule.name,
            "form": list(status.rule.form),
            "effect": status.rule.effect,
            "scope": status.rule.scope,
            "state": status.state,
            "by": list(status.by),
            "owed": status.is_owed,
            "inherited": status.is_inherited,
            "decisions": [
                {"effect": decision.effect, "call": decision.call, "by": list(decision.by), "words": decision.words}
                for decision in status.decisions
            ],
        }
        for status in rules
    ]
    return {"rules": records}


def _message_lines(
    message: Message, below: Mapping[str, TurnRow], broken_rules: Mapping[str, Sequence[RuleDecision]]
) -> list[str]:
    lines = [line for part in message.parts for line in _part(part, below, broken_rules)]
    return [f"{message.role + ':' if not index else '':<{_MARGIN}}{line}" for index, line in enumerate(lines)]


def _part(  # noqa: PLR0911 (one case a part: flat)
    part: AnyPart, below: Mapping[str, TurnRow], broken_rules: Mapping[str, Sequence[RuleDecision]]
) -> list[str]:
    match part:
        case StepStartPart():
            return [f"-- step {part.step_number}"]
        case StepFinishPart():
            return [
                f"-- step {part.step_number} took {part.seconds:.2f} s, {count(part.output_tokens, 'token')} written"
            ]
        case ToolCallPart():
            call, *arguments = map(spell, call_lines(part.name, part.arguments))
            sub_turn = [_sub_turn_line(below[part.id])] if part.id in below else []
            decisions = [f"  {cut_line(str(decision))}" for decision in broken_rules.get(part.id, ())]
            return [f"{part.id}  {call}", *(f"  {line}" for line in arguments), *sub_turn, *decisions]
        case ToolResultPart():
            first, *more_lines = part.text.splitlines() or [""]
            files = [file_line(file.to_json()) for file in part.files]
            return [f"{part.call}  {with_status(part.status, first)}", *(f"  {line}" for line in [*more_lines, *files])]
        case FilePart():
            return [file_line(part.to_json())]
        case SentinelPart():
            return [f"[{part.kind}: {part.text}]"]
        case _:
            return part.text.splitlines()


def _sub_turn_line(row: TurnRow) -> str:
    stands = f"{row.status.state} {row.status.reason or ''}".rstrip()
    return f"  turn {row.id}, agent {cut_line(row.agent)}: {stands}"
