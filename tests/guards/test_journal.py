"""The journal of a guarded turn: what `turnwright show` and the inspector read."""

from pathlib import Path

import httpx
import pytest
from tests.servers.forked_python import Python

from turnwright import Engine
from turnwright.errors import ConfigError, LeaseLostError, StoreError
from turnwright.journal.turn_journal import JournalFold
from turnwright.model import ScriptedModel
from turnwright.store import AbandonedDrivers, TurnRow, open_store
from turnwright_guards import GuardedLoop
from turnwright_guards.turn import GuardedTurn, GuardOptions
from turnwright_inspector import Open, inspector_app
from turnwright_states import Limits, Outcome, facts
from turnwright_states.replay import replay

from .clients import PROMPT, chat
from .test_loop import Client, guarded, pages, run

pytestmark = pytest.mark.anyio


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'turns.db'}"


async def the_turn(address: str) -> tuple[TurnRow, JournalFold]:
    """The only turn of a store."""
    store = open_store(address)
    (row,) = await store.turns()
    fold = await JournalFold.read(store, row.id)
    assert not await store.is_driven(row.id)
    await store.aclose()
    return row, fold


async def test_turn_is_stored_with_every_fact_valid(address: str) -> None:
    loop = guarded("chat", address, steps=2)
    ending = run(Client("chat", pages("chat")), loop)
    row, fold = await the_turn(address)
    assert (row.id, row.agent) == (ending.turn_id, "loop (chat)")
    assert (row.status.outcome, row.status.steps, row.status.tool_calls) == (Outcome.CAP_HIT, 2, 2)
    assert fold.result().text == "I am not done."
    assert replay(fold.facts).fault is None
    steps = [fact for _, fact in fold.facts if isinstance(fact, facts.StepStarted)]
    assert None not in [step.started_at for step in steps]


@pytest.mark.slow
async def test_turn_is_shown_by_the_command_and_the_inspector(address: str, python: Python) -> None:
    ending = run(Client("chat", pages("chat")), guarded("chat", address, steps=2))
    output = python.run("-m", "turnwright", "show", ending.turn_id, "--store", address).stdout
    assert 'read_page({"number": 2})' in output
    assert "Stopped at the step limit (2 of 2)." in output
    async with Engine(model=ScriptedModel(), store=address) as engine:
        app = inspector_app(engine, access=Open())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1") as browser:
            for path in ("/", f"/turns/{ending.turn_id}"):
                page = await browser.get(path, follow_redirects=True)
                assert page.status_code == httpx.codes.OK
                assert "loop (chat)" in page.text or "read_page" in page.text


async def test_dropped_turn_is_released_and_run_by_no_engine(address: str) -> None:
    loop = guarded("chat", address)
    loop.reply(next(pages("chat")))
    del loop
    row, _ = await the_turn(address)
    assert row.status.outcome is None
    async with Engine(model=ScriptedModel("x"), store=address) as engine:
        assert await engine.recover() == []


async def test_session_has_the_title_of_the_first_prompt(address: str) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": PROMPT}]}]
    with GuardedLoop(messages, journal=address, session="s1") as loop:
        loop.reply(chat("Hello."))
    store = open_store(address)
    (session,) = await store.sessions()
    await store.aclose()
    assert (session.id, session.title) == ("s1", PROMPT)


def test_invalid_address_is_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown kind of address"):
        guarded("chat", "nowhere")
    with pytest.raises((ConfigError, StoreError)):
        guarded("chat", f"sqlite:///{tmp_path / 'no' / 'folder' / 'turns.db'}")


async def test_loop_stops_if_another_driver_claims_the_turn(address: str) -> None:
    """Its journal has no gap: nothing is written after a fact that could not be."""
    loop = guarded("chat", address)
    (call,) = loop.reply(next(pages("chat")))
    store = open_store(address)
    (row,) = await store.turns()
    assert row.owner is not None
    claim = await store.claim(row.id, abandoned=AbandonedDrivers(frozenset({row.owner})))
    with pytest.raises(LeaseLostError):
        loop.result(call, "page 1")
    with pytest.raises(StoreError, match="an earlier append failed"):
        loop.reply(chat("Hello."))
    await store.release(claim)
    await store.aclose()
    row, fold = await the_turn(address)
    assert row.status.outcome is None
    assert replay(fold.facts).fault is None


async def test_events_of_an_event_loop_are_written_in_a_thread(address: str) -> None:
    turn = GuardedTurn(GuardOptions(Limits(), address, None), app="test", prompt=PROMPT)
    assert await turn.in_thread(turn.replied, "Hello.") == ()
    row, fold = await the_turn(address)
    assert row.status.outcome is Outcome.FINISHED
    assert fold.result().text == "Hello."
