"""The page about A2A names every outcome, and its code runs."""

import re
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient
from tests.protocols.subject import AGENT, make_engine

from turnwright_states import Outcome

from .client import VERSION, message

PAGE = (Path(__file__).parents[3] / "docs" / "a2a.md").read_text(encoding="utf-8")


def test_code_of_the_page_serves_tasks() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "a2a.md", "exec"), names)  # noqa: S102 (the page's code)
    body = {"message": message("hello")}
    with TestClient(names["make_app"](make_engine(), AGENT)) as client:
        assert client.get("/.well-known/agent-card.json").json()["name"] == "Subject"
        assert client.post("/message:send", json=body, headers=VERSION).status_code == 403
        headers = {**VERSION, "authorization": "Bearer secret-of-ann"}
        task = client.post("/message:send", json=body, headers=headers).json()["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"


def test_every_outcome_has_a_row() -> None:
    endings = PAGE.split("## Endings\n")[1].split("\n## ")[0]
    assert {str(outcome) for outcome in Outcome} <= set(re.findall(r"[a-z_]+", endings))
