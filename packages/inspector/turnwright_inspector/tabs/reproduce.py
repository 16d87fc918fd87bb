"""The tab that reproduces a turn, or one step of it: commands to copy, and a test."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from turnwright.errors import TurnwrightError
from turnwright.message import Message
from turnwright.privacy.redaction import redactor, without_secrets
from turnwright.store.address import outlives_process
from turnwright_inspector.views.cli_commands import (
    IN_MEMORY,
    NO_ADDRESS,
    UNTOLD,
    asked_at,
    begun_elsewhere,
    continue_command,
    fork_command,
    fork_place,
    lacks_model,
    resume_command,
    store_flag,
)
from turnwright_inspector.views.steps import Step
from turnwright_inspector.views.turn_record import Journal, TabContext, TurnRecord
from turnwright_states import InvalidJournalError, Outcome

#: The most characters of a journal for a test on a page: playing a longer one would delay other pages.
_LARGEST: Final = 1_000_000
_TOO_LARGE: Final = "The turn is too large to make a test of on this page: the command above prints it."
_GOES_ON: Final = frozenset({Outcome.CAP_HIT, Outcome.DOOM_LOOP, Outcome.ABORTED, Outcome.FAILED})


@dataclass(frozen=True, slots=True)
class Command:
    """A command to copy, with its effect in words. `runs`: it calls models and tools."""

    does: str
    line: str
    runs: bool = False


@dataclass(frozen=True, slots=True)
class ReproduceView:
    """Commands, and a test of the turn up to the chosen step, or of all of it.

    `missing` says why there is no test; `file` is the name to give it. `lacks` says what the commands need beside.
    """

    commands: tuple[Command, ...]
    test: str
    file: str
    missing: str
    lacks: str


def view(tab_context: TabContext) -> ReproduceView:
    """The commands and the test for the chosen step, or for the whole turn.

    It plays the turn in an event loop of its own, so it is called in a thread without one.
    """
    turn, step = tab_context.turn, tab_context.step
    facts = turn.facts if step is None else turn.journal[: _end(turn, step)]
    test = missing = ""
    commands = commands_of(tab_context)
    lacks = _lacks(tab_context, commands)
    if _is_large(facts):
        return ReproduceView(commands, "", "", _TOO_LARGE, lacks)
    try:
        test = _test(turn.row.id, facts, tab_context.history)
    except (TurnwrightError, InvalidJournalError, ValueError, LookupError) as error:
        # The last two: of a journal that somebody changed, anything may be wrong.
        missing = f"There is no test of it: {str(error) or type(error).__name__}"
    name = "".join(letter if letter.isalnum() else "_" for letter in turn.row.id)[:16]
    suffix = "" if step is None else f"_{step.key}"
    return ReproduceView(commands, test, f"test_turn_{name}{suffix}.py", missing, lacks)


def _lacks(tab_context: TabContext, commands: Sequence[Command]) -> str:
    """Return what the commands need, or why there are none."""
    if _is_in_memory(tab_context):
        return IN_MEMORY
    untold = lacks_model(tab_context.turn) and any(command.runs for command in commands)
    return " ".join(note for note in ("" if tab_context.store else NO_ADDRESS, UNTOLD if untold else "") if note)


def _is_in_memory(tab_context: TabContext) -> bool:
    return not (outlives_process(tab_context.store) if tab_context.store else tab_context.engine.store.shared)


def _is_large(facts: Journal) -> bool:
    size = 0
    for _, fact in facts:
        size += len(fact.payload())
        if size > _LARGEST:
            return True
    return False


def _test(turn_id: str, facts: Journal, history: Sequence[Message]) -> str:
    """The text of the test.

    Secrets are hidden before the test is written: the writer breaks long texts into pieces, in which a secret is not
    recognized, and a test that was changed afterwards might fail.
    """
    from turnwright_testing.regression_test import as_test  # noqa: PLC0415 (slow to load, and only this tab needs it)

    hider = redactor()
    clean = [(seq, without_secrets(fact, hider)) for seq, fact in facts]
    messages = [Message.of_json(hider.hide_fields(message.to_json())) for message in history]
    return as_test(turn_id, clean, history=messages)


def commands_of(tab_context: TabContext) -> tuple[Command, ...]:
    """Return the commands that show the turn, or the chosen step; none if no command can read its store."""
    turn, step, store = tab_context.turn, tab_context.step, tab_context.store
    if _is_in_memory(tab_context):
        return ()
    name, flag = shlex.quote(turn.row.id), store_flag(store)
    commands = [
        Command("The transcript, and why the turn stopped.", f"turnwright show {name}{flag}"),
        Command("Does each fact follow from the ones before? Runs nothing.", f"turnwright replay {name}{flag}"),
        Command("The test below, complete and with its secrets.", f"turnwright show {name} --as-test{flag}"),
    ]
    if step is None:
        commands += _whole(turn, store)
        return tuple(commands)
    before, after = fork_place(turn, asked_at(step)), fork_place(turn, _end(turn, step))
    if before is not None:
        title = f"Repeat {step.title.lower()} in a new turn, beginning with its model call."
        commands.append(Command(title, fork_command(turn, before, store), runs=True))
    if after is not None and after != before:
        title = f"Continue in a new turn from the end of {step.title.lower()}."
        commands.append(Command(title, fork_command(turn, after, store), runs=True))
    return tuple(commands)


def _whole(turn: TurnRecord, store: str) -> list[Command]:
    outcome, name, elsewhere = turn.row.status.outcome, turn.row.id, begun_elsewhere(turn)
    if ":" in name:
        return []
    if outcome is None and not turn.driven:
        return [Command("Resume it here.", resume_command(name, store, elsewhere=elsewhere), runs=True)]
    if outcome in _GOES_ON:
        title = "Continue in a new turn with the transcript."
        return [Command(title, continue_command(name, store, elsewhere=elsewhere), runs=True)]
    return []


def _end(turn: TurnRecord, step: Step) -> int:
    """The last fact of the event that ended the step."""
    return next((place for place in turn.places if place >= step.last), turn.length)
