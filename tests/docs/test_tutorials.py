"""Run the tutorials: docs/tutorials/first-agent.md, approvals-and-recovery.md and chat-service.md.

The blocks of a page run in order, and each command prints what the page shows.
"""

import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.servers.forked_python import Program, Python

from .chat_server import calls, says, serving
from .page_blocks import Terminal, blocks_of, commands_of, missing_links

PAGES = ("tutorials/first-agent.md", "tutorials/approvals-and-recovery.md", "tutorials/chat-service.md")
PORT = "8000"
#: A line of a journal: the number of a fact, and the fact.
FACT = re.compile(r" +\d+  (\w+ +N s.*|\w+ .*)")


def comparable(text: str) -> str:
    """Return what a command printed without times and epochs, and with the ids of turns numbered in their order.

    The facts of a journal are sorted: on a busy machine a killed process had not asked for the approval yet.
    """
    ids = list(dict.fromkeys(re.findall(r"\b[0-9a-f]{16}\b", text)))
    for number, turn_id in enumerate(ids):
        text = text.replace(turn_id, f"turn-{number}")
    text = re.sub(r"\d+\.\d+ ?s\b", "N s", text)
    if not FACT.match(text):
        return text
    facts = (FACT.match(line) for line in text.splitlines())
    return "\n".join(sorted(fact[1] for fact in facts if fact is not None))


class Server:
    """The server of a page: each `uvicorn` command ends the one before."""

    def __init__(self, folder: Path, python: Python) -> None:
        self.folder, self.python = folder, python
        self.program: Program | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])

    def start(self, command: str) -> None:
        self.stop()
        words = command.replace(PORT, self.port).split()
        self.program = self.python.start("-m", *words, "--log-level", "warning", folder=self.folder)
        with httpx.Client(transport=httpx.HTTPTransport(retries=10)) as client:
            client.get(f"http://127.0.0.1:{self.port}/docs", timeout=60)

    def stop(self) -> None:
        if self.program is not None:
            with self.program:
                self.program.end(signal.SIGINT)
            self.program = None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (folder := tmp_path / "app").mkdir()
    return folder


@pytest.fixture
def server(folder: Path, python: Python) -> Iterator[Server]:
    server = Server(folder, python)
    yield server
    server.stop()


def played(page: str, folder: Path, server: Server) -> Iterator[tuple[str, str, str]]:
    """Yield each command of a page with what it shows and what it printed."""
    terminal = Terminal(folder, server.python)
    ids: dict[str, str] = {}
    variables = ""
    for block in blocks_of(page):
        if block.language == "python":
            (folder / block.title).write_text(block.text, encoding="utf-8")
        for command, output in commands_of(block) if block.language == "console" else ():
            if command.startswith("uvicorn "):
                server.start(command)
            elif re.fullmatch(r"[A-Z]+=\S+", command):
                variables += f"{command}; "
            elif not command.startswith("pip "):
                typed = (variables + command).replace(f"localhost:{PORT}", f"localhost:{server.port}")
                for real_id, fake_id in ids.items():
                    typed = typed.replace(real_id, fake_id)
                printed = terminal.run(typed)
                real, fake = (re.findall(r"\b[0-9a-f]{16}\b", text) for text in (printed, output))
                ids.update(zip(fake, real, strict=False))
                yield command, output, printed


@pytest.mark.parametrize("page", PAGES)
def test_every_command_prints_the_output_of_the_page(page: str, folder: Path, server: Server) -> None:
    if "chat" in page:
        pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'turnwright[examples]'")
    ran = 0
    for command, expected, printed in played(page, folder, server):
        assert comparable(printed).rstrip("\n") == comparable(expected).rstrip("\n"), command
        ran += 1
    assert ran >= 6


def test_first_agent_calls_a_real_server(folder: Path, python: Python) -> None:
    files = {block.title: block.text for block in blocks_of(PAGES[0]) if block.title}
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "notes").mkdir()
    with serving(calls("list_notes"), says("You have no notes.")) as address:
        terminal = Terminal(folder, python, OPENAI_BASE_URL=address, OPENAI_API_KEY="none")
        assert terminal.run('python keeper.py "What is in my notes?"') == "You have no notes.\n"


@pytest.mark.parametrize("page", PAGES)
def test_every_block_names_a_test_and_every_linked_file_exists(page: str) -> None:
    blocks = [block for block in blocks_of(page) if block.language in ("python", "console")]
    assert [block for block in blocks if not block.comment] == []
    assert missing_links(page) == []


def test_unknown_turn_of_the_chat_service_is_not_found(folder: Path, server: Server) -> None:
    pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'turnwright[examples]'")
    for block in blocks_of("tutorials/chat-service.md"):
        if block.language == "python":
            (folder / block.title).write_text(block.text, encoding="utf-8")
    server.start(f"uvicorn chat:app --port {PORT}")
    turn = f"http://127.0.0.1:{server.port}/turns/nope"
    assert httpx.get(turn).status_code == 404
    assert httpx.get(f"{turn}/events").status_code == 404
    assert httpx.post(f"{turn}/answers/approval-1").status_code == 404
