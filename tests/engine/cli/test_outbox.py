"""`turnwright outbox` lists notices, delivers them again, and ends subscriptions (docs/rules.md#outbox)."""

import json
from typing import TYPE_CHECKING

import anyio

from turnwright import Agent, Engine, Notice
from turnwright.model import ScriptedModel

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli


async def to_nobody(notice: Notice) -> None:
    """Fail."""
    raise ValueError(f"nobody listens to {notice.kind}")


async def leave_a_notice(address: str) -> None:
    async with Engine(model=ScriptedModel("Done."), store=address, subscribers={"chat": to_nobody}) as engine:
        await engine.run(Agent(name="A"), "Go.", id="t1")
        await engine.deliver()


def test_notices_are_listed_retried_and_removed(cli: "Cli") -> None:
    """Rule 23: with the error of the last delivery."""
    address = f"sqlite:///{cli.folder}/turns.db"
    anyio.run(leave_a_notice, address)
    flag = ("--store", address)
    listed = cli.run("outbox", *flag)
    assert listed.code == 0
    assert "/chat  ended  1 failed delivery: subscriber 'chat' raised ValueError: nobody listens to ended" in listed.out
    (row,) = map(json.loads, cli.run("outbox", *flag, "--json").out.splitlines())
    assert (row["turn"], row["name"], row["tries"]) == ("t1", "chat", 1)
    assert "1 notice: delivered again" in cli.run("outbox", *flag, "--retry").out
    assert cli.run("outbox", *flag, "--retry", "--remove", "chat").code == 2
    assert cli.run("outbox", *flag, "--remove", "nobody").code == 2
    assert cli.run("outbox", *flag, "--remove", "chat").out == "subscription chat: removed\n"
    assert cli.run("outbox", *flag).out == "No notice waits.\n"
