"""Open pages receive each event, from any driver of the turns, and following them disturbs no driver."""

import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream
from tests.inspector.conftest import browser, look_up, paused_turn
from tests.servers.forked_python import Python
from tests.servers.postgres_server import PostgresServer

from turnwright import Agent, Engine, ToolContext, tool
from turnwright.model import ModelResponse, ScriptedModel, asks_for
from turnwright.model.protocol import TextDelta
from turnwright.store import NewTurn, SqliteStore, Status
from turnwright_inspector import Inspector, Open, inspector_app
from turnwright_states import State

pytestmark = pytest.mark.anyio

Heard = tuple[str, dict[str, Any]]


@dataclass
class Stream:
    """An open stream of events."""

    status: int
    _chunks: MemoryObjectReceiveStream[bytes]
    leave: anyio.Event
    #: The last id that an event had.
    last: str = ""

    async def next(self) -> Heard:
        """The next event, with its data."""
        with anyio.fail_after(60):
            while True:
                lines = (await self._chunks.receive()).decode().splitlines()
                fields = dict(line.split(": ", 1) for line in lines if line)
                self.last = fields.get("id", self.last)
                if "event" in fields:
                    return fields["event"], json.loads(fields["data"])

    async def until(self, name: str) -> list[Heard]:
        """The events up to the first of this name."""
        heard = [await self.next()]
        while heard[-1][0] != name:
            heard.append(await self.next())
        return heard

    async def rest(self) -> list[Heard]:
        """The events until the stream ends."""
        heard: list[Heard] = []
        try:
            while True:
                heard.append(await self.next())
        except anyio.EndOfStream:
            return heard


@asynccontextmanager
async def listening(app: Inspector, path: str, query: str = "", **headers: str) -> AsyncIterator[Stream]:
    """An open stream of the application, as a server has it. It is left, and has ended, when the block is over."""
    chunks, received = anyio.create_memory_object_stream[bytes](1000)
    started, leave, was_sent = anyio.Event(), anyio.Event(), anyio.Event()
    status: list[int] = []
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": query.encode(),
        "headers": [(b"host", b"localhost"), *((k.lower().encode(), v.encode()) for k, v in headers.items())],
    }

    async def receive() -> dict[str, object]:
        if was_sent.is_set():
            await leave.wait()
            return {"type": "http.disconnect"}
        was_sent.set()
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:  # noqa: ANN401 (as ASGI has it)
        if message["type"] == "http.response.start":
            status.append(message["status"])
            started.set()
        elif message.get("body"):
            await chunks.send(message["body"])

    async def serve() -> None:
        with chunks:
            await app(scope, receive, send)

    with anyio.fail_after(60), received:
        async with anyio.create_task_group() as group:
            group.start_soon(serve)
            await started.wait()
            yield Stream(status[0], received, leave)
            leave.set()


@pytest.fixture
async def engine(file: Path) -> AsyncIterator[Engine]:
    """The engine of the inspector: it drives nothing."""
    async with Engine(store=SqliteStore(file), poll_interval=0.02) as engine:
        yield engine


@pytest.fixture
async def other_engine(asking: Callable[[], Engine]) -> AsyncIterator[Engine]:
    """An engine as another process has it, on the same store."""
    async with asking() as other_engine:
        yield other_engine


@pytest.fixture
def app(engine: Engine) -> Inspector:
    return inspector_app(engine, access=Open())


async def test_list_receives_changes_made_by_other_processes(app: Inspector, other_engine: Engine) -> None:
    async with listening(app, "/live") as first, listening(app, "/live") as second:
        assert await first.next() == await second.next() == ("changed", {})  # for what happened before
        turn = await paused_turn(other_engine)
        assert await first.next() == await second.next() == ("changed", {})
        await other_engine.abort(turn)
        assert await first.next() == ("changed", {})


async def test_list_receives_the_death_of_a_driver(app: Inspector, engine: Engine, other_engine: Engine) -> None:
    """Nothing is written then."""
    facts = [fact for _, fact in await other_engine.store.facts(await paused_turn(other_engine))]
    await other_engine.store.create(NewTurn("t", None, "A", "m", 1.0), facts[:2], Status(State.STREAM, 1))
    row = await engine.store.get("t")
    assert await engine.store.is_driven("t")
    async with listening(app, "/live") as stream:
        assert await stream.next() == ("changed", {})
        await anyio.sleep(1.2)
        await other_engine.store.aclose()
        assert (await engine.store.get("t"), await engine.store.is_driven("t")) == (row, False)
        assert await stream.next() == ("changed", {})


async def test_late_listener_receives_the_reply_from_the_beginning(file: Path) -> None:
    ready, go, more = anyio.Event(), anyio.Event(), anyio.Event()

    class Slow:
        name = "slow"

        async def stream(self, request: object) -> AsyncIterator[TextDelta | ModelResponse]:  # noqa: ARG002 (as models have it)
            ready.set()
            await go.wait()
            yield TextDelta("one two ")
            await more.wait()
            yield TextDelta("three")
            yield ModelResponse(text="one two three")

    async with (
        Engine(model=Slow(), store=SqliteStore(file), poll_interval=0.02) as engine,
        anyio.create_task_group() as group,
    ):
        turn = await engine.submit(Agent(name="Teller"), "Tell")
        app, path = inspector_app(engine, access=Open()), f"/turns/{turn}/live"
        async with listening(app, path) as first:
            assert await first.next() == ("grown", {"seq": 2})
            group.start_soon(engine.resume, turn)
            await ready.wait()
            await first.next()
            go.set()
            assert (await first.until("piece"))[-1][1]["text"] == "one two"
        async with listening(app, path, f"after={len(await engine.store.facts(turn))}") as second:
            await anyio.sleep(0.3)
            more.set()
            heard = await second.rest()
        pieces = [data for name, data in heard if name == "piece"]
        assert pieces[0]["kind"] == "restarted"
        assert "".join(piece["text"] for piece in pieces) == "one two three"


async def test_listener_follows_a_turn_of_another_process_until_the_end(app: Inspector, other_engine: Engine) -> None:
    turn = await paused_turn(other_engine)
    (facts, _) = (await other_engine.store.facts(turn))[-1]
    async with listening(app, f"/turns/{turn}/live", f"after={facts - 2}") as stream:
        assert await stream.next() == ("grown", {"seq": facts})
        await other_engine.resume(turn, {"approval-1": True})
        heard = await stream.rest()
        last = len(await other_engine.store.facts(turn))
        assert heard[-2:] == [("grown", {"seq": last}), ("ended", {"seq": last})]
        assert stream.last == str(last)
    assert (await other_engine.store.get(turn)).epoch == 2  # who watched claimed nothing


async def test_ended_turn_sends_no_more_events(app: Inspector, other_engine: Engine) -> None:
    turn = await paused_turn(other_engine)
    await other_engine.abort(turn)
    last = len(await other_engine.store.facts(turn))
    async with browser(app) as client:
        path = f"/turns/{turn}/live"
        assert (await client.get(path, params={"after": last})).status_code == httpx.codes.NO_CONTENT
        # A browser that connects again sends the id of the last event that it received, not the one of its page.
        again = await client.get(path, params={"after": 1}, headers={"Last-Event-ID": str(last)})
        assert again.status_code == httpx.codes.NO_CONTENT
        assert "ended" in (await client.get(path, params={"after": "x"})).text


async def test_unknown_turn_sends_no_events(app: Inspector) -> None:
    async with browser(app) as client:
        assert (await client.get("/turns/nobody/live")).status_code == httpx.codes.NOT_FOUND


async def test_inbox_item_sends_an_event(app: Inspector, other_engine: Engine) -> None:
    turn = await paused_turn(other_engine)
    last = len(await other_engine.store.facts(turn))
    async with listening(app, f"/turns/{turn}/live") as stream:
        assert await stream.next() == ("grown", {"seq": last})
        await other_engine.steer(turn, "Hurry")
        assert await stream.next() == ("grown", {"seq": last})


async def test_deleted_turn_sends_gone(app: Inspector, other_engine: Engine) -> None:
    turn = await paused_turn(other_engine)
    async with listening(app, f"/turns/{turn}/live") as stream:
        await stream.next()
        await other_engine.delete(turn)
        assert await stream.rest() == [("gone", {})]


async def test_streamed_text_of_a_local_turn_is_received(file: Path) -> None:
    go, ready = anyio.Event(), anyio.Event()

    async def reply(_: object) -> ModelResponse:
        ready.set()
        await go.wait()
        return ModelResponse(text="One two <three>", reasoning="Hm")

    model = ScriptedModel(asks_for(("look_up", {"word": "a"})), reply)
    async with (
        Engine(model=model, tools=[look_up], store=SqliteStore(file), poll_interval=0.02) as engine,
        anyio.create_task_group() as group,
    ):
        turn = await engine.submit(Agent(name="Teller"), "Tell")
        async with listening(inspector_app(engine, access=Open()), f"/turns/{turn}/live") as stream:
            assert await stream.next() == ("grown", {"seq": 2})
            group.start_soon(engine.resume, turn)
            await ready.wait()
            while (await stream.next())[1].get("seq", 0) < len(await engine.store.facts(turn)):
                pass
            go.set()
            heard = await stream.rest()
        pieces = [data for name, data in heard if name == "piece"]
        assert [(piece["kind"], piece["text"]) for piece in pieces] == [
            ("reasoning", "Hm"),
            ("text", "One"),
            ("text", " two"),
            ("text", " <three>"),
        ]
        assert heard[-1][0] == "ended"


async def test_streamed_secret_is_hidden(file: Path) -> None:
    secret = "sk-proj-" + "a1b2" * 6
    ready, go = anyio.Event(), anyio.Event()

    async def reply(_: object) -> ModelResponse:
        ready.set()
        await go.wait()
        return ModelResponse(text=f"The key is {secret} and no other")

    async with (
        Engine(model=ScriptedModel(reply), store=SqliteStore(file), poll_interval=0.02) as engine,
        anyio.create_task_group() as group,
    ):
        turn = await engine.submit(Agent(name="Teller"), "Tell")
        async with listening(inspector_app(engine, access=Open()), f"/turns/{turn}/live") as stream:
            assert await stream.next() == ("grown", {"seq": 2})
            group.start_soon(engine.resume, turn)
            await ready.wait()
            await stream.next()
            go.set()
            heard = await stream.rest()
        text = "".join(data["text"] for name, data in heard if name == "piece")
        assert text == "The key is *** and no other"


async def test_tool_progress_is_received_from_the_driving_process(file: Path) -> None:
    heard = anyio.Event()

    @tool
    async def measure(context: ToolContext) -> str:
        """Report progress until a listener has received it."""
        while not heard.is_set():
            context.progress(1, 2, "half")
            await anyio.sleep(0.01)
        return "measured"

    model = ScriptedModel(asks_for(("measure", {})), "Done.")
    async with (
        Engine(model=model, tools=[measure], store=SqliteStore(file), poll_interval=0.02) as engine,
        anyio.create_task_group() as group,
    ):
        turn = await engine.submit(Agent(name="Teller"), "Tell")
        app = inspector_app(engine, access=Open())
        async with listening(app, f"/turns/{turn}/live") as stream:
            group.start_soon(engine.resume, turn)
            _, progress = (await stream.until("progress"))[-1]
            heard.set()
            assert (progress["tool"], progress["progress"], progress["total"]) == ("measure", 1, 2)
            assert progress["message"] == "half"
            assert (await stream.rest())[-1][0] == "ended"


async def test_store_failure_is_reported_and_does_not_end_the_stream(
    app: Inspector, engine: Engine, other_engine: Engine
) -> None:
    turn = await paused_turn(other_engine)
    async with listening(app, f"/turns/{turn}/live") as stream, listening(app, "/live") as all_turns:
        assert (await stream.next())[0] == "grown"
        assert (await all_turns.next())[0] == "changed"
        await engine.store.aclose()
        for listener in (stream, all_turns):
            name, data = await listener.next()
            assert (name, bool(data["message"])) == ("trouble", True)


async def test_store_migration_is_reported_and_does_not_end_the_stream(
    app: Inspector, other_engine: Engine, file: Path
) -> None:
    turn = await paused_turn(other_engine)
    async with listening(app, f"/turns/{turn}/live") as stream, listening(app, "/live") as all_turns:
        assert (await stream.next())[0] == "grown"
        assert (await all_turns.next())[0] == "changed"
        with closing(sqlite3.connect(file)) as db:
            db.execute("PRAGMA user_version = 99")
        for listener in (stream, all_turns):
            name, data = await listener.next()
            assert (name, "upgrade turnwright" in data["message"]) == ("trouble", True)


async def test_disconnected_listener_leaves_no_task_behind(
    app: Inspector, engine: Engine, other_engine: Engine
) -> None:
    turn = await paused_turn(other_engine)
    for path in ("/live", f"/turns/{turn}/live"):
        async with listening(app, path) as stream:
            await stream.next()
    assert (await engine.store.get(turn)).epoch == 1
    assert not await engine.store.is_driven(turn)
    await other_engine.delete(turn)


DRIVE = """
import sys, anyio
from turnwright import Agent, Engine, tool
from turnwright.model import ScriptedModel, asks_for
@tool
async def wait() -> str:
    "Wait for a line on standard input."
    return await anyio.to_thread.run_sync(sys.stdin.readline)
async def main():
    async with Engine(model=ScriptedModel(asks_for(("wait", {})), "Done."), tools=[wait], store=sys.argv[1]) as engine:
        await engine.resume(sys.argv[2])
anyio.run(main)
"""


@pytest.fixture(params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest, file: Path) -> str:
    """The address of a store that two processes use."""
    if request.param == "sqlite":
        return f"sqlite:///{file}"
    server = request.getfixturevalue("postgres_server")
    assert isinstance(server, PostgresServer)
    return server.new_schema()


async def test_turn_is_watched_while_another_process_drives(shared: str, python: Python) -> None:
    async with Engine(model=ScriptedModel(), store=shared) as engine:
        await engine.store.migrate()
        turn = await engine.submit(Agent(name="Waiter"), "Wait")
        before = len(await engine.store.facts(turn))
        app = inspector_app(engine, access=Open())
        async with listening(app, f"/turns/{turn}/live", f"after={before}") as stream:
            with python.start("-c", DRIVE, shared, turn) as program:
                heard = await stream.next()
                while heard[1].get("seq", 0) <= before:
                    heard = await stream.next()
                assert heard[0] == "grown"
                program.stdin.write("go\n")
                assert (await stream.rest())[-1][0] == "ended"
                assert await anyio.to_thread.run_sync(program.wait) == 0
        assert (await engine.get(turn)).text == "Done."
