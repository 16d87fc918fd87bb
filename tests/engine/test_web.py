"""Links by which people answer, and callbacks with results (docs/rules.md#links)."""

import json
from base64 import b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from turnwright import (
    Agent,
    ConfigError,
    Engine,
    Interrupt,
    Later,
    Links,
    ToolContext,
    TurnResult,
    agent_tool,
    external_tool,
    tool,
)
from turnwright.journal.links import Grant
from turnwright.model import ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright.web import answer_app
from turnwright_states.facts import Answered

# ruff: noqa: ANN401 (what a test gives may be anything)

pytestmark = pytest.mark.anyio

BASE = "https://bot.example/a"
KEY, OLD_KEY = "k" * 32, b"o" * 40
AGENT = Agent(name="Payer")
NOW = 1_795_892_400.0


class Bot:
    """An app with links, its store, its clock, and a client of its web application."""

    def __init__(self, *tools: Any, keys: Any = (KEY,), **options: Any) -> None:
        self.now, self.urls = NOW, list[str]()

        @tool(needs_approval=True, expires_in=10_000)
        async def pay(invoice: str = "<17>") -> str:
            """Pay an invoice."""
            return f"paid {invoice}"

        @tool(needs_approval=True, approvers=2)
        async def pay_much() -> str:
            """Pay much."""
            return "paid"

        @tool(idempotent=True)
        async def render(context: ToolContext) -> str:
            """Render elsewhere."""
            self.urls.append(context.callback_url())
            raise Later

        bill = external_tool(
            name="bill",
            description="Bill.",
            parameters={"type": "object"},
            output_schema={"type": "object", "properties": {"amount": {"type": "number"}}},
        )
        self.tools = [pay, pay_much, render, bill, *tools]
        self.store = MemoryStore()
        self.options = options
        self.engine = self.engine_with(keys)

    def engine_with(self, keys: Any, *lines: Any) -> Engine:
        return Engine(
            model=ScriptedModel(*lines),
            tools=self.tools,
            store=self.store,
            now=lambda: self.now,
            links=Links(BASE, keys=keys),
            **self.options,
        )

    async def paused(self, name: str, **options: Any) -> TurnResult:
        """A turn that waits for a call of this tool."""
        engine = self.engine_with((KEY,), asks_for((name, {})))
        return await engine.run(AGENT, "Go.", **options)

    def client(self, engine: Engine | None = None) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(app=answer_app(engine or self.engine)))  # type: ignore[arg-type]

    async def answers(self, turn: str) -> list[Any]:
        return [json.loads(item.payload) for item in await self.store.inbox(turn)]

    async def go_on(self, turn: str) -> TurnResult:
        return await self.engine_with((KEY,), "Done.").resume(turn)


@pytest.fixture
def bot() -> Bot:
    return Bot()


async def test_link_of_an_interrupt_id_is_refused(bot: Bot) -> None:
    """`link` takes the interrupt itself, whose question and turn the address names."""
    turn = await bot.paused("pay")
    with pytest.raises(ConfigError, match=r"link: 'approval-1' is not an interrupt .* take one of its `interrupts`"):
        bot.engine.link(turn.id, "approval-1", "approve")  # type: ignore[arg-type]


async def test_get_shows_the_question_and_post_answers(bot: Bot) -> None:
    """Rules 13 and 19: scanners follow links, so `GET` stores nothing; the answer has the person and the channel."""
    turn = await bot.paused("pay")
    url = bot.engine.link(turn.id, turn.interrupts[0], "approve", by="ann")
    assert url.startswith(f"{BASE}/")
    async with bot.client() as client:
        for method in ("GET", "HEAD"):
            page = await client.request(method, url)
            assert page.status_code == httpx.codes.OK
            assert not await bot.answers(turn.id)
        page = await client.get(url)
        assert "may pay run?" in page.text
        assert "&lt;17&gt;" not in page.text, "the model gave no invoice"
        assert '<form method="post"><button>Approve</button></form>' in page.text
        assert "You answer as ann." in page.text
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert page.headers["cache-control"] == "no-store"
        assert (await client.post(url)).status_code == httpx.codes.OK
    (answer,) = await bot.answers(turn.id)
    assert (answer["decision"], answer["by"], answer["via"], answer["at"]) == ("approve", "ann", "link", NOW)
    assert (await bot.go_on(turn.id)).text == "Done."


async def test_same_link_again_says_so(bot: Bot) -> None:
    """Rule 20: the same token again is 200, another answer first is 409: while it waits, and when it was read."""
    turn = await bot.paused("pay")
    approve, reject = (bot.engine.link(turn.id, turn.interrupts[0], word, by="ann") for word in ("approve", "reject"))
    async with bot.client() as client:
        assert "stored" in (await client.post(approve)).text
        for _ in range(2):
            for method in ("POST", "GET"):
                again, conflict = await client.request(method, approve), await client.request(method, reject)
                assert (again.status_code, conflict.status_code) == (httpx.codes.OK, httpx.codes.CONFLICT)
                assert "Already answered." in again.text
            await bot.go_on(turn.id) if await bot.answers(turn.id) else None
    assert len([fact for _, fact in await bot.store.facts(turn.id) if isinstance(fact, Answered)]) == 1


async def test_link_answers_one_wait_of_a_call_that_waits_again(bot: Bot) -> None:
    """The waits of a call have one id, and a link that runs it again would run it each time that it is opened."""
    turn = await bot.paused("render")
    rerun, reject = (bot.engine.link(turn.id, turn.interrupts[0], word, by="ann") for word in ("rerun", "reject"))
    async with bot.client() as client:
        bot.now += 1
        assert "stored" in (await client.post(rerun)).text
        waiting = await bot.go_on(turn.id)
        assert ([open_.id for open_ in waiting.interrupts], len(bot.urls)) == ([turn.interrupts[0].id], 2)
        for method in ("POST", "GET"):
            again, conflict = await client.request(method, rerun), await client.request(method, reject)
            assert (again.status_code, conflict.status_code) == (httpx.codes.OK, httpx.codes.CONFLICT)
            assert "Already answered." in again.text
        assert not await bot.answers(turn.id)
        assert "stored" in (await client.post(bot.engine.link(turn.id, waiting.interrupts[0], "reject"))).text


async def test_links_expire(bot: Bot) -> None:
    """Rule 20: 410 after the link's time, or the question's."""
    turn = await bot.paused("pay")
    short, long = (
        bot.engine.link(turn.id, turn.interrupts[0], "approve", expires_in=seconds) for seconds in (60, 100_000)
    )
    async with bot.client() as client:
        bot.now += 60
        assert (await client.post(short)).status_code == httpx.codes.GONE
        assert (await client.get(long)).status_code == httpx.codes.OK
        bot.now += 10_000
        for _ in range(2):
            assert (await client.post(long)).status_code == httpx.codes.GONE
            await bot.go_on(turn.id) if (await bot.engine.get(turn.id)).paused else None
    assert not await bot.answers(turn.id)


def forge(change: Callable[[dict[str, Any]], Any]) -> Callable[[str], str]:
    """Change the content of a token and keep its signature."""

    def forged(token: str) -> str:
        text, _, signature = token.partition(".")
        fields = json.loads(b64decode(f"{text}==", altchars=b"-_"))
        fields = change(fields) or fields
        return f"{urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip('=')}.{signature}"

    return forged


@pytest.mark.parametrize(
    "damage",
    [
        lambda token: token[:-1] + ("A" if token[-1] != "A" else "B"),
        lambda token: token.partition(".")[0],
        lambda token: f"{token}.",
        lambda token: f"{token}=",
        lambda token: token.replace(".", ".."),
        lambda _: "",
        lambda _: ".",
        lambda _: "x" * 20_000,
        lambda _: "%ED%A0%80",
        lambda _: "%F0%9F%90%A2.é",
        forge(lambda fields: fields.update(decision="reject")),
        forge(lambda fields: fields.update(by="mallory")),
        forge(lambda fields: fields.update(expires_at=10**12)),
        forge(lambda _: [1]),
    ],
)
async def test_forged_links_are_not_found(bot: Bot, damage: Callable[[str], str]) -> None:
    """Rules 18 and 20: all alike, and without a trace."""
    turn = await bot.paused("pay")
    token = bot.engine.link(turn.id, turn.interrupts[0], "approve").rpartition("/")[2]
    before = await bot.store.facts(turn.id)
    async with bot.client() as client:
        plain = await client.get(f"{BASE}/nothing")
        for method in ("GET", "POST"):
            refused = await client.request(method, f"{BASE}/{damage(token)}")
            assert (refused.status_code, refused.text) == (httpx.codes.NOT_FOUND, plain.text)
    assert await bot.store.facts(turn.id) == before
    assert not await bot.answers(turn.id)


async def test_link_of_a_turn_that_is_gone_is_not_found(bot: Bot) -> None:
    """Rule 20: of a deleted turn, and of another turn of the same id."""
    turn = await bot.paused("pay", id="order-17")
    url = bot.engine.link(turn.id, turn.interrupts[0], "approve")
    await bot.engine.delete("order-17")
    async with bot.client() as client:
        plain = await client.get(f"{BASE}/nothing")
        deleted = await client.post(url)
        bot.now += 5
        again = await bot.paused("pay", id="order-17")
        recreated = await client.post(url)
        assert {(reply.status_code, reply.text) for reply in (deleted, recreated)} == {(404, plain.text)}
    assert not await bot.answers(again.id)


async def test_keys_are_rotated(bot: Bot) -> None:
    """Rule 18, scenario 19: `keys[0]` signs, all verify."""
    turn = await bot.paused("pay")
    url = bot.engine_with((OLD_KEY,)).link(turn.id, turn.interrupts[0], "approve")
    for keys, status in (((KEY, OLD_KEY), 200), ((KEY,), 404)):
        async with bot.client(bot.engine_with(keys)) as client:
            assert (await client.get(url)).status_code == status


async def test_two_people_approve_by_links(bot: Bot) -> None:
    """Rules 14 and 20: each link counts once."""
    turn = await bot.paused("pay_much")
    interrupt = turn.interrupts[0]
    with pytest.raises(ConfigError, match="approval-1 needs a name: give by="):
        bot.engine.link(turn.id, interrupt, "approve")
    ann, bob = (bot.engine.link(turn.id, interrupt, "approve", by=by) for by in ("ann", "bob"))
    async with bot.client() as client:
        assert "stored" in (await client.post(ann)).text
        assert "Already answered." in (await client.post(ann)).text
        assert (await bot.engine_with((KEY,)).resume(turn.id)).paused
        assert "Already answered." in (await client.post(ann)).text
        assert "Approved by 1 of 2: ann by link" in (await client.get(bob)).text
        assert "stored" in (await client.post(bob)).text
    assert (await bot.go_on(turn.id)).text == "Done."


async def test_link_is_authorized() -> None:
    """Rule 15: the app is asked about the person of the link."""
    bot = Bot(authorize=lambda answering: answering.by == "ann" or "only ann")
    turn = await bot.paused("pay")
    async with bot.client() as client:
        refused = await client.post(bot.engine.link(turn.id, turn.interrupts[0], "approve", by="bob"))
        assert (refused.status_code, "only ann" in refused.text) == (httpx.codes.FORBIDDEN, True)
        assert not await bot.answers(turn.id)
        assert "stored" in (await client.post(bot.engine.link(turn.id, turn.interrupts[0], "reject", by="ann"))).text


async def test_links_without_a_place_are_refused(bot: Bot) -> None:
    """Rule 18: an engine without links, a decision that needs more, a sub-agent's turn, an interrupt of nowhere."""
    turn = await bot.paused("pay")
    interrupt = turn.interrupts[0]
    plain = Engine(store=bot.store)
    for make in (lambda: plain.link(turn.id, interrupt, "approve"), lambda: answer_app(plain)):
        with pytest.raises(ConfigError, match="links=Links"):
            make()
    for decision in ("reply", "settle", "go_on", "maybe"):
        with pytest.raises(ConfigError, match=f"approval takes approve, reject by a link, not {decision}"):
            bot.engine.link(turn.id, interrupt, decision)
    with pytest.raises(ConfigError, match="a sub-agent's"):
        bot.engine.link(f"{turn.id}:call00001", interrupt, "approve")
    with pytest.raises(ConfigError, match="not an interrupt of a turn's result"):
        bot.engine.link(turn.id, Interrupt(id="approval-1", kind=interrupt.kind), "approve")
    with pytest.raises(ConfigError, match="expires_in"):
        bot.engine.link(turn.id, interrupt, "approve", expires_in=0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"keys": ["k" * 8]}, "a key needs 32 bytes, not 8"),
        ({"keys": [b"k" * 31]}, "a key needs 32 bytes, not 31"),
        ({"keys": []}, "at least one key"),
        ({"keys": "k" * 32}, "must be a list"),
        ({"keys": [5]}, "bytes or text"),
        ({"base": "bot.example/a"}, "base must be an address"),
        ({"base": "https://["}, "base must be an address"),
        ({"base": "https://u:p@bot.example/a"}, "no user and no password"),
        ({"base": "https://bot.example/a?b=c"}, "neither a query"),
        ({"expires_in": 0}, "expires_in"),
        ({"expires_in": float("nan")}, "expires_in"),
    ],
)
def test_options_of_links_are_checked(options: Any, words: str) -> None:
    """Rule 18."""
    with pytest.raises(ConfigError, match=words):
        Links(**{"base": BASE, "keys": [KEY]} | options)


def test_links_keep_their_keys_secret() -> None:
    """Their representation has no key, and a token of an unknown version is not read."""
    links = Links(BASE, keys=[KEY])
    assert KEY not in repr(links)
    grant = Grant(purpose="answer", turn="t", started_at="", subject="approval-1", expires_at=1.0)
    token = links._address(grant).rpartition("/")[2]  # noqa: SLF001 (what the engine signs)
    assert links.read(token) == grant


# Callbacks


async def test_callback_takes_the_result(bot: Bot) -> None:
    """Rules 13 and 21: a result, again, another one; and progress before."""
    turn = await bot.paused("render")
    (url,) = bot.urls
    async with bot.client() as client:
        assert (await client.post(url, json={"progress": 0.5, "total": 1, "message": "half way"})).json() == {
            "stored": True
        }
        assert str((await bot.engine.get(turn.id)).interrupts[0].progress) == "0.5 of 1: half way"
        for stored in (True, False):
            assert (await client.post(url, json={"result": {"file": "film"}})).json() == {"stored": stored}
        assert (await client.post(url, json={"error": "no"})).status_code == httpx.codes.CONFLICT
        assert (await client.get(url)).status_code == httpx.codes.METHOD_NOT_ALLOWED
    assert (await bot.go_on(turn.id)).text == "Done."
    (answered,) = [fact for _, fact in await bot.store.facts(turn.id) if isinstance(fact, Answered)]
    assert (answered.via, answered.given.text) == ("callback", '{"file":"film"}')  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"result": "' + b"x" * (513 * 1024) + b'"}', 413),
        (b"", 422),
        (b"film", 422),
        (b"[1]", 422),
        (b'{"result": 1, "error": "x"}', 422),
        (b'{"result": 1, "more": 2}', 422),
        (b'{"error": 5}', 422),
        (b'{"error": " "}', 422),
        (b'{"result": "paid", "result": "refused"}', 422),
        (b"{}", 422),
        (b'{"result": NaN}', 422),
        (b'{"result": "\\ud800"}', 422),
        (b'{"result": "\xff"}', 422),
        (b'{"result": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", 422),
        (b'{"result": "' + b"x" * (65 * 1024) + b'"}', 422),
        (b'{"progress": "half"}', 422),
        (b'{"progress": 1, "message": 5}', 422),
    ],
)
async def test_hostile_bodies_are_refused(bot: Bot, body: bytes, status: int) -> None:
    """Rule 21, scenario 20: nothing is stored, and the turn can still be settled."""
    turn = await bot.paused("render")

    async def pieces() -> AsyncIterator[bytes]:
        yield body

    async with bot.client() as client:
        for content in (body, pieces()):
            assert (await client.post(bot.urls[0], content=content)).status_code == status
        assert not await bot.answers(turn.id)
        assert (await client.post(bot.urls[0], json={"result": "film"})).json() == {"stored": True}


async def test_callback_names_the_error_of_the_schema(bot: Bot) -> None:
    """Rule 21: 422."""
    turn = await bot.paused("bill")
    assert bot.engine.setup.links is not None
    url = bot.engine.setup.links.callback(
        turn.interrupts[0].key, turn.interrupts[0].turn_started_at, expires_in=None, now=bot.now
    )
    async with bot.client() as client:
        refused = await client.post(url, json={"result": {"amount": "12"}})
        assert refused.status_code == httpx.codes.UNPROCESSABLE_ENTITY
        assert "$.amount is not a number" in refused.json()["error"]
        bot.now += 604_800
        assert (await client.post(url, json={"result": {}})).status_code == httpx.codes.GONE


async def test_callback_of_a_sub_agents_call_reaches_the_sub_agent() -> None:
    """Rule 21: the key names the deepest call."""
    bot = Bot(agent_tool(Agent(name="Helper", description="Helps.", tools=["render"])))
    engine = bot.engine_with((KEY,), asks_for(("Helper", {"prompt": "p"})), asks_for(("render", {})))
    turn: TurnResult = await engine.run(AGENT, "Go.")
    async with bot.client() as client:
        assert (await client.post(bot.urls[0], json={"result": "film"})).json() == {"stored": True}
    turn = await bot.engine_with((KEY,), "helped", "Done.").resume(turn.id)
    assert turn.text == "Done."


async def test_callback_needs_links() -> None:
    """A tool whose engine has none learns it at once."""

    @tool
    async def render(context: ToolContext) -> str:
        """Render."""
        return context.callback_url()

    model = ScriptedModel(asks_for(("render", {})), "Done.")
    turn = await Engine(model=model, tools=[render]).run(AGENT, "Go.")
    assert "give the engine links=Links" in str(turn.messages)


async def test_lifespan_of_the_app_is_answered(bot: Bot) -> None:
    """Servers start and stop it like any ASGI application."""
    responses: list[Any] = []
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        responses.append(message["type"])

    await answer_app(bot.engine)({"type": "lifespan"}, receive, send)
    assert responses == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_environment_has_the_links_of_the_command_line() -> None:
    """`turnwright serve` and `worker` take the address and the keys from variables."""
    assert Links.from_environment({}) is None
    links = Links.from_environment({"TURNWRIGHT_LINKS": BASE, "TURNWRIGHT_LINK_KEYS": f"{KEY} {'n' * 32}"})
    assert links is not None
    assert links.path == "/a"
    with pytest.raises(ConfigError, match="at least one key"):
        Links.from_environment({"TURNWRIGHT_LINKS": BASE})
