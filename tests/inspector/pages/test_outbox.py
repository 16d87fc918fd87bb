"""The page of the outbox, and what a question shows of its wait."""

from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest
from tests.inspector.conftest import TOKEN, person_at

from turnwright import Agent, Engine, Later, Notice, tool
from turnwright.journal.answers import approve
from turnwright.model import ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright.store.outbox import outbox_store
from turnwright_inspector import Token, inspector_app

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Studio")
Subscriber = Callable[[Notice], Awaitable[object]]


@tool
async def render(film: str) -> str:
    """Render a film elsewhere."""
    raise Later(kept=film, expires_in=3600)


@tool(needs_approval=True, approvers=2)
async def pay(amount: float) -> str:
    """Pay."""
    return f"{amount:g} are paid"


async def refuse(_: Notice) -> None:
    """A subscriber that is down."""
    raise ValueError("the <chat> is down")


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    model = ScriptedModel(asks_for(("render", {"film": "a"}), ("pay", {"amount": 20})), "Done.")
    async with Engine(model=model, tools=[render, pay], store=MemoryStore(), subscribers={"chat": refuse}) as engine:
        yield engine


async def test_failed_deliveries_are_listed_and_delivered_again(engine: Engine) -> None:
    """The page has each notice with its error, and a form that delivers all of them again."""
    turn = await engine.run(AGENT, "Make a film.")
    await engine.deliver()
    outbox = outbox_store(engine.store)
    await outbox.failed((await outbox.notices())[0], "it was given up", None)
    async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
        page = (await person.client.get("/outbox")).text
        for words in ("it was given up", "1 failed delivery", "&lt;chat&gt; is down", turn.id, "<dd>1</dd>"):
            assert words in page
        assert page.index("it was given up") < page.index("1 failed delivery")
        assert 'id="outbox-link"' in (await person.client.get("/needs-you")).text
        answer = await person.does("/outbox", do="retry")
        assert answer.status_code == httpx.codes.OK
    assert {(row.tries, row.next_at) for row in await outbox.notices()} == {(0, 0.0)}


async def test_subscription_is_ended_on_the_page(engine: Engine) -> None:
    """Its notices are deleted with it; an unknown one is an error, and changes nothing."""
    await engine.run(AGENT, "Make a film.")
    outbox = outbox_store(engine.store)
    async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
        for fields, words in (({"remove": "mail"}, "there is no subscription"), ({}, "does not say what to do")):
            refusal = await person.does("/outbox", **fields)
            assert refusal.is_client_error
            assert words in refusal.text
        assert len(await outbox.notices()) == 2
        page = await person.does("/outbox", remove="chat")
        assert "No notice waits" in page.text
    assert await outbox.notices() == []


async def test_form_without_a_csrf_token_changes_nothing(engine: Engine) -> None:
    await engine.run(AGENT, "Make a film.")
    async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
        assert (await person.client.post("/outbox", data={"remove": "chat"})).status_code == httpx.codes.FORBIDDEN
    assert len(await outbox_store(engine.store).notices()) == 2


async def test_wait_shows_its_key_age_expiry_progress_and_approvers(engine: Engine) -> None:
    """An approval is shown before a driver takes it, and a form gives the result."""
    turn = await engine.run(AGENT, "Make a film.")
    wait, approval = turn.interrupts
    await engine.progress(wait.key, 3, 10, "frame 3")
    await engine.answer(turn.id, {approval.id: approve()}, by="ann", via="slack")
    async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
        for path in (f"/turns/{turn.id}", "/needs-you"):
            page = (await person.client.get(path)).text
            for words in (wait.key, "Waits since", "3 of 10: frame 3", "Until <time", "1 of 2: ann by slack"):
                assert words in page
        await person.does(f"/turns/{turn.id}/answer", interrupt=wait.id, decision="settle", result="film.mp4", by="bob")
    assert (await engine.get(turn.id)).answered == {wait.id}
