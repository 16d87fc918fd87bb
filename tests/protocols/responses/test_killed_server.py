"""Responses of a server that was killed: they are retrieved, answered and canceled by the next one."""

from pathlib import Path

import openai
import pytest
from tests.protocols.judge import serving
from tests.servers.forked_python import Python

pytestmark = pytest.mark.slow


def test_responses_of_a_killed_server_continue(tmp_path: Path, python: Python) -> None:
    with serving(python, "responses", tmp_path) as (address, server):
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=3)
        first = client.responses.create(model="subject", input="approve")
        running = client.responses.create(model="subject", input="slow", background=True)
        server.end()
    with serving(python, "responses", tmp_path) as (address, _):
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=3)
        assert client.responses.retrieve(running.id).status == "in_progress"
        assert client.responses.cancel(running.id).status == "cancelled"
        request = first.output[-1]
        assert request.type == "mcp_approval_request"
        second = client.responses.create(
            model="subject",
            input=[{"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}],
            previous_response_id=first.id,
        )
        assert second.output_text == "Result: paid 5"
