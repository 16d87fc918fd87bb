"""The recipes of docs/how-to/start-once.md, with a caller that dies after the turn: the order is charged once."""

import subprocess
from pathlib import Path

import pytest
from tests.servers.forked_python import Python

from .page_blocks import blocks_of

PAGE = "how-to/start-once.md"
DIED = 9

TEMPORAL = """
import asyncio, os
from temporalio.testing import ActivityEnvironment
from temporal_activity import bill

async def deliver(*, dies: bool) -> None:
    print(await ActivityEnvironment().run(bill, "17"), flush=True)
    if dies:
        os._exit(9)
"""

CELERY = """
import os
from celery_task import bill

def deliver(*, dies: bool) -> None:
    print(bill.apply(args=["17"], task_id="0c1de9d4-task").get(), flush=True)
    if dies:
        os._exit(9)
"""

WEBHOOK = """
import asyncio, os
import httpx
from billing import AGENT, engine
from webhook import app

async def deliver(*, dies: bool) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://bot") as client:
        answer = await client.post("/orders/17", headers={"webhook-id": "msg_2KWPBgLl"})
        assert answer.status_code == 202, answer.text
        other = await client.post("/orders/18", headers={"webhook-id": "msg_2KWPBgLl"})
        assert other.status_code == 409, other.text
    print((await engine().attach(answer.json()["turn"], AGENT).result()).text, flush=True)
    if dies:
        os._exit(9)
    await engine().aclose()
"""


def deliver(python: Python, folder: Path, script: str, *, dies: bool) -> "subprocess.CompletedProcess[str]":
    """Deliver the request in a process of its own, which dies after the turn or ends well."""
    run = f"asyncio.run(deliver(dies={dies}))" if "async def" in script else f"deliver(dies={dies})"
    return python.run("-c", f"{script}\n{run}", folder=folder)


@pytest.mark.parametrize(
    ("needs", "script"),
    [
        pytest.param("temporalio", TEMPORAL, id="temporal"),
        pytest.param("celery", CELERY, id="celery"),
        pytest.param("fastapi", WEBHOOK, id="webhook"),
    ],
)
def test_caller_that_dies_after_the_turn_charges_once(tmp_path: Path, python: Python, needs: str, script: str) -> None:
    """Rules 25 and 26: the next delivery has the same id, and returns the result of the first one's turn."""
    pytest.importorskip(needs)
    for block in blocks_of(PAGE):
        if block.title:
            (tmp_path / block.title).write_text(block.text)
    first, second = (deliver(python, tmp_path, script, dies=dies) for dies in (True, False))
    assert (first.returncode, first.stdout) == (DIED, "Charged.\n"), first.stderr
    assert (second.returncode, second.stdout) == (0, "Charged.\n"), second.stderr
    assert (tmp_path / "charges.txt").read_text() == "17\n"
