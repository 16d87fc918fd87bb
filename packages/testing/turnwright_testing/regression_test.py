"""A recorded turn as a test: a pytest file that plays it again and asserts its outcome."""

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Final

from turnwright.errors import TurnwrightError
from turnwright.journal.result import TurnResult, result_of
from turnwright.message import Message
from turnwright.status import name_limit
from turnwright.transcript.transcript import reading
from turnwright_states import EndReason, MachineError
from turnwright_states.facts import Fact

from .facts_to_recording import read_facts
from .playback import PlaybackError, playback, results_of
from .python_source import Imports, PythonSource, code
from .recording import Recording

_WIDTH: Final = 100
_NEVER: Final = (
    "Not reproduced: times and waits, the provider's ids of calls, the pieces in which replies streamed in, the order"
    " in which calls that ran side by side were done."
)
_PRIVATE: Final = "It holds what the journal held, secrets among them: read it before you share it."
_HOW: Final = "Run it with `pytest FILE`. It needs turnwright and pytest, no model, no tool and no network."
#: The beginning of the fixed summary after a timeout. It contains times, which differ in every run.
_TIMED: Final = f"Stopped at {name_limit(EndReason.DEADLINE)} ("

Get = Callable[[TurnResult], object]


def as_test(
    turn_id: str, facts: Sequence[tuple[int, Fact]], *, history: Sequence[Message] | None = None, recorded: str = ""
) -> str:
    """The text of a pytest file that plays a recorded turn again.

    `facts` are the turn's (seq, fact) pairs, oldest first. `history` is what was said before, where that is more than
    the turn's own journal holds: the earlier turns of its session. `recorded` says when that was, in words.

    The turn is played once here, and what does not come out as recorded is said in the file and not asserted. A turn
    that has not ended is played as far as it went. Raises `ConfigError` for a turn that no test can play (see
    `read_facts`), `UnreadableTurnError` for facts that do not follow from each other, and `PlaybackError` for a turn
    that cannot be played to where its journal ends. Not to be called from a running event loop.
    """
    was, imports = result_of(turn_id, facts), Imports()
    with reading(turn_id):
        recording, notes = read_facts((fact for _, fact in facts), history)
    kept_assertions, notes_of_losses = _make_assertions(was, recording)
    body = [*_recording(recording, imports), "", "", *_test(was, kept_assertions, recording, imports)]
    lines = [*_head(turn_id, (*notes, *notes_of_losses), recorded), "", *imports.lines(), "", *body]
    return "\n".join(lines) + "\n"


def _facts_of(turn: TurnResult) -> Iterator[tuple[str, Get]]:
    """An assertion about a turn, as it is written in the test, and as it is evaluated here."""
    names = ["outcome", "reason", "also_reached"] if turn.outcome is not None else ["state"]
    names += ["steps", "tool_calls", "text"]
    for name in names:
        yield f"turn.{name}", attrgetter(name)
    if turn.output not in (None, turn.text):
        yield "turn.output", attrgetter("output")
    if turn.guardrail is not None:
        yield "turn.guardrail", attrgetter("guardrail")
    yield '" > ".join(turn.path)', lambda turn: " > ".join(turn.path)
    if turn.interrupts:
        yield "[asked.id for asked in turn.interrupts]", lambda turn: [interrupt.id for interrupt in turn.interrupts]


def _make_assertions(was: TurnResult, recording: Recording) -> tuple[list[tuple[str, object]], list[str]]:
    """Return the assertions of the test, and sentences about those that do not hold here."""
    try:
        result = playback(recording)
    except (TurnwrightError, MachineError) as error:  # the machine refuses facts that somebody changed
        raise PlaybackError(f"turn {was.id} cannot be played again as it was recorded: {error}") from error
    kept_assertions: list[tuple[str, object]] = []
    notes: list[str] = []
    for assertion, get in _facts_of(was):
        if assertion == "turn.text" and was.reason is EndReason.DEADLINE and was.text.startswith(_TIMED):
            notes.append("The turn's text is a fixed summary that contains times: it is not compared.")
        elif get(result) == get(was):
            kept_assertions.append((assertion, get(was)))
        else:
            notes.append(f"DIFFERENT: {assertion} was {get(was)!a}, and is {get(result)!a} when it is played.")
    results = results_of(was)
    if results == results_of(result):
        kept_assertions.append(
            ("results_of(turn)", PythonSource("RECORDING.results") if results == recording.results else results)
        )
    else:
        notes.append("DIFFERENT: some calls have other results when the turn is played: they are not compared.")
    return kept_assertions, notes


def _head(turn_id: str, notes: Sequence[str], recorded_at: str) -> list[str]:
    when = f", recorded {_plain(recorded_at)}" if recorded_at else ""
    paragraphs = [f'"""Turn {_plain(turn_id)}{when}, to be played again.', f"{_HOW} {_PRIVATE}", _NEVER]
    lines: list[str] = []
    for paragraph in (*paragraphs, *map(_plain, notes)):
        lines += ["", *textwrap.wrap(paragraph, _WIDTH)] if lines else [paragraph]
    return [*lines, '"""']


def _recording(recording: Recording, imports: Imports) -> list[str]:
    source = code(recording, imports, before=len("RECORDING = "))
    return f"RECORDING = {source}".split("\n")


def _test(
    was: TurnResult, kept_assertions: Sequence[tuple[str, object]], recording: Recording, imports: Imports
) -> Iterator[str]:
    how = f"{was.outcome}: {was.reason}" if was.outcome is not None else f"in {was.state}"
    yield f"def test_turn_{_name(was.id)}() -> None:"
    yield f'    """{how}. Model calls: {len(recording.model)}."""'
    yield f"    turn = {imports.name(playback)}(RECORDING)"
    for assertion, value in kept_assertions:
        if assertion.startswith(results_of.__name__):
            imports.name(results_of)
        before = f"assert {assertion} == "
        yield f"    {before}{code(value, imports, indent=4, before=len(before))}"


def _plain(text: str) -> str:
    """Return the text in a form that fits into a docstring: ASCII, without its end."""
    return ascii(text)[1:-1].replace("\\", "/").replace('"', "'")


def _name(turn_id: str) -> str:
    return re.sub(r"[^0-9a-zA-Z]", "_", turn_id)[:8].lower()
