"""Notices of turns: the outbox, its subscribers, and webhooks (docs/rules.md#outbox)."""

import base64
import hmac
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, closing
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import anyio
import pytest

from turnwright import Agent, ConfigError, Engine, Later, Notice, TurnResult, agent_tool, tool, webhook
from turnwright.journal.termination import end_turn
from turnwright.model import ScriptedModel, asks_for
from turnwright.store import MemoryStore, SqliteStore, open_store
from turnwright.store.outbox import NoticeCounts, outbox_store
from turnwright.telemetry import TurnTelemetry, TurnWork

# ruff: noqa: ANN401 (what a test gives may be anything)

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Studio")
NOW = 1_795_892_400.0


@tool
async def render() -> str:
    """Render elsewhere."""
    raise Later


@tool(needs_approval=True)
async def pay() -> str:
    """Pay."""
    return "paid"


class App:
    """Engines on one store, with a subscriber that may fail, and a clock."""

    def __init__(self, store: Any) -> None:
        self.store, self.now, self.notices, self.fails = store, NOW, list[Notice](), 0

    async def chat(self, notice: Notice) -> None:
        if self.fails:
            self.fails -= 1
            raise ValueError("the chat is down")
        self.notices.append(notice)

    def engine(self, *lines: Any, subscribers: Any = None, **options: Any) -> Engine:
        names = {"chat": self.chat} if subscribers is None else subscribers
        helper = agent_tool(Agent(name="Helper", description="Helps.", tools=["render"]))
        return Engine(
            model=ScriptedModel(*lines),
            tools=[render, pay, helper],
            store=self.store,
            now=lambda: self.now,
            subscribers=names,
            **options,
        )

    @property
    def kinds(self) -> list[str]:
        return [notice.kind for notice in self.notices]


@pytest.fixture(params=["memory", "sqlite"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[App]:
    store = MemoryStore() if request.param == "memory" else open_store(f"sqlite:///{tmp_path}/turns.db")
    yield App(store)
    await store.aclose()


async def test_subscriber_receives_each_change_of_a_turn(app: App) -> None:
    """Rules 22 and 24: a call is handed out, the turn pauses, and ends; with the public fields and the metadata."""
    engine = app.engine(asks_for(("render", {})), "Done.")
    turn: TurnResult = await engine.run(AGENT, "Go.", session="s", metadata={"team": "film"})
    await engine.settle(turn.interrupts[0].key, "film")
    await engine.resume(turn.id)
    assert await engine.deliver() == 3
    assert app.kinds == ["handed_out", "paused", "ended"]
    handed_out, paused, ended = app.notices
    assert (handed_out.turn, handed_out.session, handed_out.agent, handed_out.metadata) == (
        turn.id,
        "s",
        "Studio",
        {"team": "film"},
    )
    assert [interrupt.key for interrupt in paused.interrupts] == [turn.interrupts[0].key]
    assert (ended.outcome, ended.reason, ended.interrupts) == ("finished", "answered", ())
    assert ended.id == f"{turn.id}/{ended.seq}/chat"
    assert len({notice.id for notice in app.notices}) == 3
    assert await engine.deliver() == 0


async def test_subscription_is_of_the_store(app: App) -> None:
    """Rule 22: notices are also written by a process without subscribers, such as `turnwright abort`."""
    await app.engine().deliver()
    turn: TurnResult = await app.engine(asks_for(("pay", {})), subscribers={}).run(AGENT, "Go.")
    await end_turn(app.store, turn.id)
    assert await app.engine().deliver() == 2
    assert app.kinds == ["paused", "ended"]


async def test_only_root_turns_have_notices(app: App) -> None:
    """Rule 22: what a sub-agent hands out is a wait of its root turn."""
    engine = app.engine(asks_for(("Helper", {"prompt": "p"})), asks_for(("render", {})))
    turn: TurnResult = await engine.run(AGENT, "Go.")
    await engine.deliver()
    assert [(notice.kind, notice.turn) for notice in app.notices] == [("handed_out", turn.id), ("paused", turn.id)]


async def test_failed_delivery_is_repeated(app: App) -> None:
    """Rule 23: after a second, then twice as long each time; with the same id."""
    app.fails = 3
    engine = app.engine("Done.")
    await engine.run(AGENT, "Go.")
    for wait in (0, 1, 2):
        app.now += wait
        assert await engine.deliver() == 0
        assert await engine.deliver() == 0, "not before its time"
    (row,) = await outbox_store(app.store).notices()
    assert (row.tries, row.next_at, "the chat is down" in row.error) == (3, app.now + 4, True)
    app.now += 4
    assert await engine.deliver() == 1
    assert app.kinds == ["ended"]


async def test_notice_is_given_up_after_three_days(app: App) -> None:
    """Rule 23: it is kept as failed, and delivered when somebody asks for it."""
    app.fails = 1_000
    engine = app.engine("Done.")
    await engine.run(AGENT, "Go.")
    (row,) = await outbox_store(app.store).notices()
    app.now = row.at
    for _ in range(200):
        await engine.deliver()
        (row,) = await outbox_store(app.store).notices()
        if row.next_at is None:
            break
        assert row.next_at - app.now < 3_601
        app.now = max(row.next_at, app.now)
    assert row.next_at is None
    assert 2.9 * 86_400 < app.now - row.at < 3.1 * 86_400
    assert await engine.deliver() == 0
    app.fails = 0
    assert await outbox_store(app.store).retry_notices() == 1
    assert await engine.deliver() == 1


@pytest.mark.parametrize(
    "change", ["seq = 'x'", "seq = NULL", "seq = 1", "seq = 99", "kind = 'dreamt'", "kind = 'ended'"]
)
async def test_damaged_notice_fails_alone(change: str, tmp_path: Path) -> None:
    """It is delivered in no other form, and the notices behind it are delivered."""
    file = tmp_path / "turns.db"
    app = App(SqliteStore(file))
    engine = app.engine(asks_for(("pay", {})), "Done.")
    paused, ended = (await engine.run(AGENT, "hi")).id, (await engine.run(AGENT, "hi")).id
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        for statement in ("CREATE TABLE was AS SELECT * FROM outbox", "DROP TABLE outbox"):
            db.execute(statement)
        db.execute("ALTER TABLE was RENAME TO outbox")
        db.execute(f"UPDATE outbox SET {change} WHERE turn_id = ?", (paused,))  # noqa: S608 (constant)
    assert await engine.deliver() == 1
    assert [notice.turn for notice in app.notices] == [ended]
    await app.store.aclose()


async def test_leased_notice_is_delivered_by_one_worker(app: App) -> None:
    """Rule 23: for 60 seconds; after the death of its worker another one delivers it."""
    await app.engine("Done.").run(AGENT, "Go.")
    outbox = outbox_store(app.store)
    (row,) = await outbox.lease_notices(["chat"], app.now, app.now + 60, 10)
    assert await outbox.lease_notices(["chat"], app.now, app.now + 60, 10) == []
    assert await app.engine().deliver() == 0
    app.now += 60
    assert await app.engine().deliver() == 1
    assert app.notices[0].id == row.id


async def test_worker_delivers_notices(app: App) -> None:
    """Rule 23: continuously."""
    async with app.engine("Done.") as engine:
        await engine.submit(AGENT, "Go.")
        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                group.start_soon(engine.run_worker)
                while not app.notices:  # noqa: ASYNC110 (a worker, as if in another process)
                    await anyio.sleep(0.01)
                group.cancel_scope.cancel()
    assert app.kinds == ["ended"]


async def test_slow_subscriber_holds_up_no_other() -> None:
    """The first one waits for the notice of the second."""
    is_received = anyio.Event()

    async def wait(_: Notice) -> None:
        await is_received.wait()

    async def receive(_: Notice) -> None:
        is_received.set()

    async with Engine(model=ScriptedModel("Done."), subscribers={"a": wait, "b": receive}) as engine:
        await engine.run(AGENT, "Go.")
        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                group.start_soon(engine.run_worker)
                await is_received.wait()
                group.cancel_scope.cancel()


async def test_worker_reports_the_outbox_to_the_telemetry(app: App) -> None:
    """A gauge needs no query of its own; a telemetry that fails stops no delivery."""
    counts: list[tuple[int, int]] = []

    class Gauge:
        def turn(self, work: TurnWork) -> TurnTelemetry:
            raise ValueError(work.id)

        def outbox(self, notice_counts: NoticeCounts) -> None:
            counts.append(notice_counts)
            raise ValueError("no gauge")

    app.fails = 1
    async with app.engine("Done.", telemetry=Gauge()) as engine:
        await engine.run(AGENT, "Go.")
        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                group.start_soon(engine.run_worker)
                while len(counts) < 2:
                    app.now += 60
                    await anyio.sleep(0.01)
                group.cancel_scope.cancel()
    assert counts[:2] == [(1, 0), (0, 0)]


async def test_notices_are_deleted_with_their_turn_and_subscription(app: App) -> None:
    """Rule 22."""
    engine = app.engine("Done.", "Done.")
    first, _ = await engine.run(AGENT, "Go."), await engine.run(AGENT, "Go.")
    await engine.delete(first.id)
    outbox = outbox_store(app.store)
    assert len(await outbox.notices()) == 1
    assert await outbox.unsubscribe("chat")
    assert not await outbox.unsubscribe("chat")
    assert await outbox.notices() == []


@pytest.mark.parametrize("subscribers", [{"a b": print}, {"": print}, {"x" * 65: print}, {"chat": 5}, ["chat"]])
async def test_wrong_subscribers_are_refused(subscribers: Any) -> None:
    """Rule 22: names and functions."""
    with pytest.raises(ConfigError, match="subscribers"):
        Engine(subscribers=subscribers)


async def test_store_without_an_outbox_refuses_subscribers(app: App) -> None:
    """A third-party store need not have one."""

    class Plain:
        shared = inline = owner = None

        async def append(self) -> None:
            """Do nothing."""

    with pytest.raises(ConfigError, match="no outbox"):
        Engine(store=Plain(), subscribers={"chat": app.chat})  # type: ignore[call-overload]


# Webhooks


@asynccontextmanager
async def receiver(
    status: int, requests: list[tuple[dict[str, str], bytes]], more: Callable[[], Iterable[bytes]] = tuple
) -> AsyncIterator[str]:
    """An HTTP server that answers each request with this status, and sends `more` after or instead of it."""

    async def handle(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            data = b""
            while b"\r\n\r\n" not in data:
                data += await stream.receive()
            head, _, body = data.partition(b"\r\n\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head.decode().split("\r\n")[1:])
            while len(body) < int(headers["content-length"]):
                body += await stream.receive()
            requests.append((headers, body))
            extra = b"location: http://127.0.0.1:9/\r\n" if status == 302 else b""
            for piece in more():
                await stream.send(piece)
                await anyio.sleep(0.01)
            await stream.send(b"HTTP/1.1 %d X\r\n%scontent-length: 0\r\nconnection: close\r\n\r\n" % (status, extra))

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as group,
    ):
        group.start_soon(listener.serve, handle)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610 (of anyio)
        yield f"http://127.0.0.1:{port}/hook"
        group.cancel_scope.cancel()


@pytest.mark.parametrize(("status", "delivered"), [(200, 1), (204, 1), (302, 0), (400, 0), (500, 0)])
async def test_webhook_is_signed_and_a_success_is_2xx(status: int, delivered: int) -> None:
    """Rule 24: as Standard Webhooks, and no redirect is followed."""
    requests: list[tuple[dict[str, str], bytes]] = []
    key = b"s" * 24
    async with receiver(status, requests) as url:
        hook = webhook(url, secret=f"whsec_{base64.b64encode(key).decode()}")
        app = App(MemoryStore())
        turn = await app.engine("Done.", subscribers={"hook": hook}).run(AGENT, "Go.", metadata={"team": "film"})
        assert await app.engine(subscribers={"hook": hook}).deliver() == delivered
    ((headers, body),) = requests
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    signature = base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
    assert headers["webhook-signature"].lower() == f"v1,{signature}".lower()
    content = json.loads(body)
    assert (content["type"], content["data"]["turn"], content["data"]["metadata"]) == (
        "turn.ended",
        turn.id,
        {"team": "film"},
    )
    assert headers["webhook-id"] == content["data"]["id"]


@pytest.mark.parametrize(
    ("first", "piece", "error"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 999999999999\r\n\r\n", b"x" * 1000, ""),
        (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n", "the receiver did not answer within 0.3 s"),
    ],
    ids=["body", "headers"],
)
async def test_receiver_that_never_ends_its_answer_is_not_awaited(first: bytes, piece: bytes, error: str) -> None:
    """The status counts, and has to come within the time of the webhook."""
    async with receiver(200, [], lambda: chain([first], repeat(piece))) as url:
        app = App(MemoryStore())
        engine = app.engine("Done.", subscribers={"hook": webhook(url, secret=b"s" * 24, timeout=0.3)})
        await engine.run(AGENT, "Go.")
        with anyio.fail_after(5):
            assert await engine.deliver() == (not error)
        assert [row.error[-len(error) :] for row in await outbox_store(app.store).notices()] == [error] * bool(error)


async def test_webhook_without_a_receiver_is_repeated() -> None:
    """Rule 23: the error is kept."""
    hook = webhook("http://127.0.0.1:9/", secret=b"s" * 24)
    app = App(MemoryStore())
    engine = app.engine("Done.", subscribers={"hook": hook})
    await engine.run(AGENT, "Go.")
    assert await engine.deliver() == 0
    (row,) = await outbox_store(app.store).notices()
    assert "ConnectError" in row.error


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"secret": "short"}, "a secret needs 24 bytes, not 5"),
        ({"secret": "whsec_!"}, "not base64: make one with `openssl rand -base64 32`"),
        ({"secret": 5}, "bytes or text"),
        ({"url": "ftp://x"}, "must begin with https"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": 51}, "timeout"),
    ],
)
def test_options_of_a_webhook_are_checked(options: Any, words: str) -> None:
    """Rule 24."""
    options = {"url": "https://x.example", "secret": b"s" * 24} | options
    with pytest.raises(ConfigError, match=words):
        webhook(options.pop("url"), **options)
