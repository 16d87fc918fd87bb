"""The page about UI message streams names every outcome and chunk, and its code runs."""

import re
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient
from tests.protocols.subject import AGENT, make_engine

from turnwright_states import Outcome

PAGE = (Path(__file__).parents[3] / "docs" / "ui-stream.md").read_text(encoding="utf-8")


def test_code_of_the_page_serves_a_chat() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "ui-stream.md", "exec"), names)  # noqa: S102 (the page's code)
    body = {"id": "c1", "messages": [{"role": "user", "parts": [{"type": "text", "text": "hello"}]}]}
    with TestClient(names["make_app"](make_engine(), AGENT)) as client:
        assert client.post("/api/chat", json=body).status_code == 403
        answer = client.post("/api/chat", json=body, headers={"x-user": "ann"})
        assert answer.text.endswith("data: [DONE]\n\n")
        loaded = client.get("/api/chat/c1", headers={"x-user": "ann"}).json()
        assert loaded[1]["parts"][-1]["text"] == "You said: hello"


def test_every_outcome_has_a_row() -> None:
    endings = PAGE.split("## Endings\n")[1].split("\n## ")[0]
    assert {str(outcome) for outcome in Outcome} <= set(re.findall(r"[a-z_]+", endings))


def test_every_chunk_of_the_code_is_on_the_page() -> None:
    code = (Path(__file__).parents[3] / "packages/protocols/turnwright_protocols/ui/chunks.py").read_text()
    kinds = set(re.findall(r'"((?:tool|text|reset|start|finish)-[a-z-]+)"', code)) | {"abort", "error", "finish"}
    kinds |= {f"data-turnwright-{kind}" for kind in re.findall(r'_data\(\s*"([a-z]+)"', code)}
    missing = {kind for kind in kinds if f"`{kind}`" not in PAGE and f"`{kind} " not in PAGE}
    assert missing <= {"tool-input-error", "tool-calls"}
