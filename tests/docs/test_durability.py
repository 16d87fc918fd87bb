"""`docs/durability.md` names the facts, choices and stores of the code, and crash policies work as it says."""

import re
from pathlib import Path
from typing import get_args

from tests.servers.forked_python import Python

from turnwright.store import InboxKind
from turnwright.store.sqlite.opening import Durability
from turnwright.tools.tool import OnCrash
from turnwright_states.facts import KINDS

from .page_blocks import Terminal, missing_links, text_of

PAGE = "durability.md"
PROGRAM = Path(__file__).parent / "orders_program.py"
PRINTED = """\
child: three calls run
child: exit code -9
asked: unknown_outcome charge rerun unknown
reserve: ok: order 17 is reserved
invoice: ok: invoice 17 is written, at attempt 2
charge: ok: order 17 is charged, at attempt 2
mail: unknown: outcome unknown: the process died while this call ran
finished Order 17 is settled. Check whether the customer got a mail.
"""


def test_each_tool_of_a_killed_turn_follows_the_crash_policy(tmp_path: Path, python: Python) -> None:
    """`reserve` keeps its result, `invoice` runs again, a person decides about `charge`, and `mail` is unknown."""
    (folder := tmp_path / "app").mkdir()
    (folder / "orders.py").write_text(PROGRAM.read_text(encoding="utf-8"), encoding="utf-8")
    assert Terminal(folder, python).run("python orders.py") == PRINTED


def test_every_fact_named_on_the_page_exists() -> None:
    table = text_of(PAGE).split("| before |", 1)[1].split("\n\n", 1)[0]
    kinds = set(re.findall(r"`(\w+_\w+|paused|answered|turn_ended)`", table))
    assert kinds
    assert kinds <= KINDS.keys()


def test_every_option_of_tools_and_stores_is_mentioned() -> None:
    page = text_of(PAGE)
    assert [choice for choice in get_args(OnCrash) if f"`{choice}`" not in page and f'"{choice}"' not in page] == []
    assert [choice for choice in get_args(Durability) if f"`?durability={choice}`" not in page] == []
    assert {str(kind) for kind in InboxKind} == {"abort", "answer", "progress", "steer"}


def test_every_linked_file_exists() -> None:
    assert missing_links(PAGE) == []
