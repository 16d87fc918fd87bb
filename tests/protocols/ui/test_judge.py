"""The AI SDK's own chat client, as a judge of a real server.

`make test-all` puts the client into the environment, where npm is there; `TURNWRIGHT_PROTOCOL_CLIENTS` names another
folder.
"""

from pathlib import Path

import httpx
import pytest
from tests.protocols.judge import NODE_MODULES, run_judge, serving
from tests.servers.forked_python import Python

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (NODE_MODULES / "ai-7").is_dir(),
        reason="the AI SDK is not there: install npm, then `make test-all` fetches it",
    ),
]

#: What the judge cannot pass, and why.
REFUSED = {"regenerate": "a turn cannot be generated again: send a new message"}


@pytest.mark.parametrize("flags", [(), ("--ai-7",)], ids=["ai_6", "ai_7"])
def test_chat_client_passes_every_capability(tmp_path: Path, python: Python, flags: tuple[str, ...]) -> None:
    with serving(python, "ui", tmp_path) as (address, _):
        verdicts = run_judge("ui_judge.mjs", f"{address}/api/chat", *flags, folder=tmp_path)
    assert {name: why for name, (verdict, why) in verdicts.items() if verdict == "FAIL"} == {}
    refused = {name: why for name, (verdict, why) in verdicts.items() if verdict == "SKIP"}
    assert refused.keys() == REFUSED.keys()
    assert all(REFUSED[name] in why for name, why in refused.items())
    assert len(verdicts) == 26


def test_chat_of_a_killed_server_continues(tmp_path: Path, python: Python) -> None:
    """A turn that was killed inside a tool is replaced by the next message, and an open approval is still there."""
    first = {"id": "a", "messages": [_user("approve")]}
    second = {"id": "b", "messages": [_user("slow")]}
    with serving(python, "ui", tmp_path) as (address, server):
        assert '"tool-approval-request"' in httpx.post(f"{address}/api/chat", json=first).text
        with httpx.stream("POST", f"{address}/api/chat", json=second) as response:
            assert any("data-turnwright-call" in line for line in response.iter_lines())
            server.end()
    with serving(python, "ui", tmp_path) as (address, _):
        (_, message) = httpx.get(f"{address}/api/chat/a").json()
        (call,) = [part for part in message["parts"] if part["type"] == "dynamic-tool"]
        assert call["state"] == "approval-requested"
        answers = {"id": "a", "answers": {call["approval"]["id"]: True}}
        assert "Result: paid 5" in httpx.post(f"{address}/api/chat", json=answers).text
        hello = {"id": "b", "messages": [_user("hello")]}
        assert '"outcome":"finished"' in httpx.post(f"{address}/api/chat", json=hello).text


def _user(text: str) -> dict[str, object]:
    return {"id": "m", "role": "user", "parts": [{"type": "text", "text": text}]}
