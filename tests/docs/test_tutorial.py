"""`docs/tutorials/first-agent.md` tells the truth: its files and commands, one after the other, print what it shows."""

import re
from pathlib import Path

from .chat_server import calls, says, serving
from .page_blocks import Terminal, blocks_of, commands_of, missing_links

TUTORIAL = "tutorials/first-agent.md"


def without_times(text: str) -> str:
    return re.sub(r"\d+\.\d+ ?s\b", "N s", text)


def replaced(text: str, ids: dict[str, str]) -> str:
    for one, other in ids.items():
        text = text.replace(one, other)
    return text


def test_every_block_of_the_page_runs_in_order_and_prints_what_it_shows(tmp_path: Path) -> None:
    (folder := tmp_path / "app").mkdir()
    terminal = Terminal(folder)
    ids: dict[str, str] = {}
    ran = 0
    for block in blocks_of(TUTORIAL):
        if block.language == "python":
            (folder / block.title).write_text(block.text, encoding="utf-8")
        for command, promised in commands_of(block):
            if command.startswith("pip "):
                continue  # it is there
            printed = terminal.run(replaced(command, ids))
            named = re.search(r"turn (\w{16}) asks", printed)
            shown_id = re.search(r"turn (\w{16}) asks", promised)
            if named and shown_id:
                ids[shown_id[1]] = named[1]
            printed = replaced(printed, {real: shown for shown, real in ids.items()})
            assert without_times(printed) == without_times(promised), command
            ran += 1
    assert ran > 10


def test_the_last_app_asks_a_real_server_and_a_person_until_the_answer_is_one(tmp_path: Path) -> None:
    (folder := tmp_path / "app").mkdir()
    app = [block for block in blocks_of(TUTORIAL) if block.title == "keeper.py"][-1]
    (folder / "keeper.py").write_text(app.text, encoding="utf-8")
    (folder / "notes").mkdir()
    (folder / "notes" / "old.txt").write_text("Call Ann: done.")
    with serving(calls("list_notes"), calls("delete_note", name="old.txt"), says("old.txt is gone.")) as address:
        terminal = Terminal(folder, OPENAI_BASE_URL=address, OPENAI_API_KEY="none")
        printed = terminal.run('printf "perhaps\\nyes\\n" | python keeper.py "Delete what is done."')
    asked = "delete_note {'name': 'old.txt'}? "
    refused, answered = printed.splitlines()
    assert refused == f"{asked}interrupt 'approval-1': an approval takes yes or no, not 'perhaps' (open: approval-1)"
    assert answered == f"{asked}old.txt is gone."
    assert list((folder / "notes").iterdir()) == []


def test_the_last_app_asks_again_what_nobody_answered_before_it_begins_another_turn(tmp_path: Path) -> None:
    (folder := tmp_path / "app").mkdir()
    app = [block for block in blocks_of(TUTORIAL) if block.title == "keeper.py"][-1]
    (folder / "keeper.py").write_text(app.text, encoding="utf-8")
    (folder / "notes").mkdir()
    (folder / "notes" / "old.txt").write_text("Call Ann: done.")
    with serving(calls("delete_note", name="old.txt"), says("It is gone."), says("None is left.")) as address:
        terminal = Terminal(folder, OPENAI_BASE_URL=address, OPENAI_API_KEY="none")
        left = terminal.run('python keeper.py "Delete what is done." </dev/null 2>&1 | tail -1')
        printed = terminal.run('echo yes | python keeper.py "What is left?"')
    assert left == "EOFError: EOF when reading a line\n"
    assert printed == "delete_note {'name': 'old.txt'}? It is gone.\nNone is left.\n"


def test_every_block_of_the_page_says_that_it_is_tested() -> None:
    untold = [block for block in blocks_of(TUTORIAL) if block.language in ("python", "console") and not block.comment]
    assert untold == []


def test_every_file_that_the_page_links_to_is_there() -> None:
    assert missing_links(TUTORIAL) == []
