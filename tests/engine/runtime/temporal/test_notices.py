"""Notices of turns that a Temporal server gives to workers: at least once, also over the death of a worker."""

import json
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from tests.servers.postgres_server import PostgresServer
from tests.servers.temporal_server import TemporalServer

from turnwright import Agent, Engine, tool, webhook
from turnwright.model import ScriptedModel, asks_for
from turnwright.store.outbox import outbox_store
from turnwright_testing.faults import DriverProcess

pytest.importorskip("temporalio")

from turnwright.runtime import Temporal

pytestmark = pytest.mark.anyio

CLERK = Agent(name="Clerk")
SECRET = "whsec_" + "c2VjcmV0IG9mIHRoZSB0ZXN0" * 2


@tool(needs_approval=True)
async def pay() -> str:
    """Pay."""
    return "paid"


@dataclass
class Receiver:
    """A webhook that does not answer until `is_up`, and the ids and types of what it received."""

    url: str = ""
    is_up: bool = False
    received: list[tuple[str, str]] = field(default_factory=list)
    change: anyio.Event = field(default_factory=anyio.Event)

    async def handle(self, stream: SocketStream) -> None:
        async with stream:
            data = b""
            while b"\r\n\r\n" not in data:
                data += await stream.receive()
            head, _, body = data.partition(b"\r\n\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head.decode().split("\r\n")[1:])
            while len(body) < int(headers["content-length"]):
                body += await stream.receive()
            self.received.append((headers["webhook-id"], json.loads(body)["type"]))
            self.change.set()
            if self.is_up:
                await stream.send(b"HTTP/1.1 204 X\r\nconnection: close\r\n\r\n")
            else:
                await anyio.sleep_forever()

    async def until(self, count: int) -> None:
        """Wait for so many requests."""
        while len(self.received) < count:
            self.change = anyio.Event()
            await self.change.wait()


@asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    hook = Receiver()
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as group,
    ):
        group.start_soon(partial(listener.serve, hook.handle))
        hook.url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/hook"  # noqa: S610 (of anyio)
        yield hook
        group.cancel_scope.cancel()


async def work(address: str, server: str, queue: str, url: str, ahead: float) -> None:
    """Work, with a clock that is `ahead` seconds fast, until killed."""
    model = ScriptedModel("Done.") if ahead else ScriptedModel(asks_for(("pay", {})))
    runtime = Temporal(server, queue=queue, heartbeat=0.2, patience=1.5, sweep=1.0)
    engine = Engine(
        agents=[CLERK],
        model=model,
        tools=[pay],
        store=address,
        runtime=runtime,
        subscribers={"hook": webhook(url, secret=SECRET)},
        now=lambda: time.time() + ahead,
    )
    async with engine:
        await engine.run_worker()


async def test_notice_of_a_pause_survives_a_killed_worker(postgres: PostgresServer) -> None:
    """The first worker dies while the webhook has its request. The lease of 60 s passes, and another one repeats it."""
    reason = TemporalServer.reason_missing()
    if reason is not None:
        pytest.skip(reason)
    queue, address = f"queue-{secrets.token_hex(6)}", postgres.new_schema()
    with TemporalServer() as server:
        client = Engine(
            model=ScriptedModel(), tools=[pay], store=address, runtime=Temporal(server.address, queue=queue)
        )
        async with receiver() as hook, client as engine:
            await engine.store.migrate()
            await outbox_store(engine.store).subscribe(["hook"])
            with DriverProcess(work, address, server.address, queue, hook.url, 0.0) as worker:
                turn = await engine.submit(CLERK, "Pay.")
                with anyio.fail_after(60):
                    await hook.until(1)
                worker.kill()
            (first,) = hook.received
            assert first[1] == "turn.paused"
            hook.is_up = True
            with DriverProcess(work, address, server.address, queue, hook.url, 90.0), anyio.fail_after(60):
                await hook.until(2)
                assert hook.received[1] == first
                await engine.answer(turn, {"approval-1": True})
                await hook.until(3)
            assert hook.received[2][1] == "turn.ended"
            assert (await engine.get(turn)).text == "Done."
