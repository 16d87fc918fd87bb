"""The page about guards: its code for a client runs, and is short."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from .clients import Json
from .page import blocks_of, own_lines, run_block
from .test_loop import Client, pages


def test_code_for_a_client_bounds_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    scripted = Client("chat", pages("chat"), "I read ten.")

    async def create(**request: object) -> Json:
        return scripted.create(**request)

    completions = SimpleNamespace(create=create)
    client = SimpleNamespace(chat=SimpleNamespace(completions=completions))
    names = {
        "client": client,
        "model": "m",
        "tools": ["read_page"],
        "run": lambda name, arguments: f"{name} {arguments}",
    }
    run_block("bound-your-loop.md", "GuardedLoop", names)
    assert capsys.readouterr().out == "I read ten. cap_hit: step_cap\n"
    assert (tmp_path / "turns.db").exists()


def test_guard_examples_take_at_most_ten_lines() -> None:
    guards = [block for block in blocks_of("bound-your-loop.md") if "turnwright_guards" in block]
    assert max(map(own_lines, guards)) <= 10
