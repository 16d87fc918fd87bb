"""`turnwright replay`: checks a journal, and executes nothing."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from pydantic import JsonValue

from turnwright._base.words import cut_line, explain_json_error
from turnwright.errors import ConfigError, StoreError
from turnwright.store import Store
from turnwright.store.copies import CopyingStore, check_columns
from turnwright_states import InvalidJournalError
from turnwright_states.chart import ROWS
from turnwright_states.fact_parser import MAX_NESTING, parse_fact
from turnwright_states.facts import Fact
from turnwright_states.payload import find_repeated_key, nests_deeper
from turnwright_states.replay import Replayed
from turnwright_states.replay import replay as replayed_from
from turnwright_states.verdict import Check, Verdict

from . import check_report
from .options import DEFAULT_STORE, JsonObjectOption, StoreOption
from .process import echo_json, read_lines
from .screen import print_lines
from .stores import find_turn, read_journal, use_store

#: The longest line, in characters: it may quote any text of the journal.
_LONGEST = 600
#: How often a turn that is being driven is read to find its facts and columns together.
_READINGS = 5


def replay(
    journal: Annotated[
        str,
        typer.Argument(
            metavar="TURN|FILE",
            help="A turn's id, or a file from `show TURN --journal --json` (.jsonl; - is standard input).",
        ),
    ],
    *,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonObjectOption = False,
) -> None:
    """Check a recorded turn against the chart. Executes nothing.

    Each fact of the journal must follow from the facts before it, and the store's columns must say what the facts say.
    No model is called, no tool runs, and nothing is written. `turnwright fork` runs a turn from an earlier point.

    Exit codes: 0 the journal holds, 1 violated (the first wrong fact is printed), 2 the journal cannot be read, 6
    inconclusive.
    """
    is_file = journal == "-" or journal.endswith(".jsonl") or _exists(journal)
    replay_result = replayed_from(_from_file(journal) if is_file else _from_store(store, journal))
    if not is_file and replay_result.check.verdict is Verdict.HOLDS:
        replay_result = _with_columns(replay_result, store, journal)
    if as_json:
        echo_json(_record(replay_result))
    else:
        print_lines(cut_line(line, _LONGEST) for line in _lines(replay_result))
    raise typer.Exit(check_report.exit_code([replay_result.check]))


def _exists(name: str) -> bool:
    with suppress(OSError, ValueError):  # no file can have this name, so it is a turn's
        return Path(name).is_file()
    return False


def _from_file(file: str) -> Iterator[tuple[int, Fact]]:
    for number, line in enumerate(read_lines(file), start=1):
        if line.strip():
            yield _read(line, f"{file}: line {number}")


def _read(line: str, where: str) -> tuple[int, Fact]:
    if nests_deeper(line, MAX_NESTING):
        raise ConfigError(f"{where}: nests more than {MAX_NESTING} lists and objects, and no fact does")
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: is not JSON: {explain_json_error(error)}") from None
    if not isinstance(fields, dict):
        raise ConfigError(f"{where}: is not a JSON object")
    seq, kind = fields.pop("seq", None), fields.pop("kind", None)
    if type(seq) is not int or not isinstance(kind, str):
        raise ConfigError(f"{where}: a fact has a whole number as its `seq`, and a text as its `kind`")
    name = find_repeated_key(line)
    if name is not None:
        raise InvalidJournalError(seq, f"{name!r} occurs twice in one object of its line")
    return seq, parse_fact(kind, json.dumps(fields), seq)


def _from_store(store: str, turn: str) -> Iterator[tuple[int, Fact]]:
    try:
        yield from read_journal(store, find_turn(store, turn))
    except StoreError as error:
        if isinstance(error.__cause__, InvalidJournalError):  # it was read, and is not a fact
            raise error.__cause__ from None
        raise


def _with_columns(replay_result: Replayed, address: str, journal: str) -> Replayed:
    """Return the result with the fault of a column that does not copy its fact."""
    turn = find_turn(address, journal)

    async def compare(store: Store) -> None:
        if isinstance(store, CopyingStore):
            for _ in range(_READINGS):
                columns, facts = await store.columns(turn), await store.facts(turn)
                if columns.appends[-1].last == facts[-1][0]:  # else a driver wrote between the two
                    check_columns(facts, columns)
                    break

    try:
        use_store(address, compare)
    except InvalidJournalError as fault:
        check = Check(replay_result.check.claim, Verdict.VIOLATED, str(fault), replay_result.check.witness)
        return replace(replay_result, check=check, fault=fault)
    return replay_result


def _lines(replay_result: Replayed) -> Iterator[str]:
    check, events = replay_result.check, len(replay_result.groups)
    if check.verdict is Verdict.HOLDS:
        yield f"holds: {replay_result.facts} facts, {events} events, {check.claim}"
    else:
        yield f"{check.verdict}: {check.detail}"
        if replay_result.groups:
            last = replay_result.groups[-1]
            yield f"until then: {replay_result.facts} facts, {events} events, {check.claim}; the last is {last}"
    if replay_result.machine is not None:
        turn, rows = replay_result.machine.turn, replay_result.rows
        yield f"rows: {len(rows)} of the chart's {len(ROWS)} taken, {sum(rows.values())} times in all"
        yield f"turn: {turn.state.outcome}, {turn.reason}" if turn.reason else f"turn: not ended, in {turn.state}"
    if replay_result.believed:
        calls = ", ".join(replay_result.believed)
        yield f"not checked: name and arguments of {calls}, which have no loop key, or one from their tools"
    yield "not checked: texts that decide nothing (prompts, replies, results, answers) may have been changed"


def _record(replay_result: Replayed) -> dict[str, JsonValue]:
    turn = None if replay_result.machine is None else replay_result.machine.turn
    fault = replay_result.fault
    return {
        "verdict": replay_result.check.verdict,
        "claim": replay_result.check.claim,
        "detail": replay_result.check.detail,
        "fault": None if fault is None else fault.seq,
        "facts": replay_result.facts,
        "events": len(replay_result.groups),
        "rows": {row.name: count for row, count in replay_result.rows.items()},
        "state": None if turn is None else turn.state,
        "outcome": None if turn is None else turn.state.outcome,
        "reason": None if turn is None else turn.reason,
        "believed": list(replay_result.believed),
    }
