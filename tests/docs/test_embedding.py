"""`docs/embedding.md` tells the truth: its examples print what it says, and its tables are those of the code."""

import inspect
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

import turnwright
from turnwright import Engine, TurnwrightError, events
from turnwright_states.facts import KINDS

from .page_blocks import Block, blocks_of, missing_links, text_of

PAGE = "embedding.md"
BLOCKS = blocks_of(PAGE)
EXAMPLES = [
    (block, below.text if below.language == "text" else "")
    for block, below in zip(BLOCKS, [*BLOCKS[1:], Block("", "", "", "")], strict=True)
    if block.language == "python"
]


def cells_below(comment: str) -> list[list[str]]:
    """The cells of the table below a comment, without its two head lines."""
    table = text_of(PAGE).split(f"<!-- {comment}", 1)[1].split("-->\n", 1)[1].split("\n\n", 1)[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


@pytest.mark.parametrize(("block", "promised"), EXAMPLES, ids=[str(number) for number in range(len(EXAMPLES))])
def test_an_example_prints_what_the_page_says(
    block: Block, promised: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert promised
    exec(compile(block.text, f"{PAGE}, an example", "exec"), {"__name__": "__main__"})  # noqa: S102 (our own page)
    assert capsys.readouterr().out == promised


def test_every_argument_of_the_engine_is_told_with_its_default() -> None:
    told = {name: row[1] for row in cells_below("the arguments") for name in re.findall(r"`(\w+)`", row[0])}
    defaults = {name: one.default for name, one in inspect.signature(Engine).parameters.items()}
    assert sorted(told) == sorted(defaults)
    plain = {name: repr(one) for name, one in defaults.items() if one is not None and not callable(one)}
    assert {name: told[name].strip("`").replace('"', "'") for name in plain} == plain


def test_every_error_that_leaves_the_engine_is_told() -> None:
    told = {name for row in cells_below("the errors") for name in re.findall(r"`(\w+)`", row[0])}
    public = {name: getattr(turnwright, name) for name in turnwright.__all__}
    errors = {name for name, one in public.items() if inspect.isclass(one) and issubclass(one, TurnwrightError)}
    # What an agent file has wrong is a ConfigError; a tool's own error becomes a result.
    assert told == errors - {"TurnwrightError", "ToolError", "AgentFileError"} | {ValidationError.__name__}


def test_every_event_of_the_table_is_one_of_the_code() -> None:
    rows = [[re.findall(r"`(\w+)`", cell) for cell in row[:2]] for row in cells_below("the events")]
    told = {name: kind for names, kinds in rows for name, kind in zip(names, kinds, strict=True)}
    pieces = {one.kind: one.__name__ for one in (events.TextDeltaEvent, events.ReasoningDeltaEvent)}
    others = {
        "response_restarted": "ResponseRestartedEvent",
        "paused": "TurnPausedEvent",
        "turn_ended": "TurnEndedEvent",
    }
    known = {name: one.__name__ for name, one in KINDS.items()} | pieces | others
    assert told == {name: known[name] for name in told}
    assert all(hasattr(events, known[name]) for name in others)


def test_every_file_that_the_page_links_to_is_there() -> None:
    assert missing_links(PAGE) == []
