"""`docs/durability.md` tells the truth: its examples print what it shows, and its words are those of the code."""

import re
from pathlib import Path
from typing import get_args

import pytest

from turnwright.store import InboxKind
from turnwright.store.sqlite.store import Durability
from turnwright.tools.tool import OnCrash
from turnwright_states.facts import KINDS

from .page_blocks import Terminal, blocks_of, commands_of, missing_links, text_of

PAGE = "durability.md"
FILES = [block for block in blocks_of(PAGE) if block.title]
COMMANDS = [command for block in blocks_of(PAGE) if block.language == "console" for command in commands_of(block)]


@pytest.mark.parametrize(("command", "promised"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_an_example_prints_what_the_page_shows(command: str, promised: str, tmp_path: Path) -> None:
    (folder := tmp_path / "app").mkdir()
    for file in FILES:
        (folder / file.title).write_text(file.text, encoding="utf-8")
    assert Terminal(folder).run(command) == promised


def test_every_fact_that_the_page_names_is_one() -> None:
    table = text_of(PAGE).split("| before |", 1)[1].split("\n\n", 1)[0]
    named = set(re.findall(r"`(\w+_\w+|paused|answered|turn_ended)`", table))
    assert named
    assert named <= KINDS.keys()


def test_every_choice_of_a_tool_and_of_a_store_is_told() -> None:
    page = text_of(PAGE)
    assert [choice for choice in get_args(OnCrash) if f"`{choice}`" not in page and f'"{choice}"' not in page] == []
    assert [choice for choice in get_args(Durability) if f"`?durability={choice}`" not in page] == []
    assert {str(kind) for kind in InboxKind} == {"abort", "answer", "steer"}  # "an abort, an answer or a message"


def test_every_file_that_the_page_links_to_is_there() -> None:
    assert missing_links(PAGE) == []
