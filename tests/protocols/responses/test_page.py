"""The page about responses names every outcome, and its code runs."""

import re
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient
from tests.protocols.subject import AGENT, make_engine

from turnwright_states import Outcome

PAGE = (Path(__file__).parents[3] / "docs" / "responses.md").read_text(encoding="utf-8")


def test_code_of_the_page_serves_responses() -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(compile(code, "responses.md", "exec"), names)  # noqa: S102 (the page's code)
    body = {"model": "subject", "input": "hello"}
    with TestClient(names["make_app"](make_engine(), AGENT)) as client:
        assert client.post("/v1/responses", json=body).status_code == 403
        answer = client.post("/v1/responses", json=body, headers={"authorization": "Bearer secret-of-ann"})
        assert answer.json()["status"] == "completed"


def test_every_outcome_has_a_row() -> None:
    endings = PAGE.split("## Endings\n")[1].split("\n## ")[0]
    assert {str(outcome) for outcome in Outcome} <= set(re.findall(r"[a-z_]+", endings))
