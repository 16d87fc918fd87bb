"""The turns that need somebody are found with few questions to the store, and lists need no writable store."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from tests.inspector.conftest import person_at

from turnwright import Engine
from turnwright.errors import StoreError
from turnwright.model import ScriptedModel
from turnwright.store import SqliteStore
from turnwright.store.summaries import TurnFilter, TurnSummary, TurnTotals, Unsummarized
from turnwright_inspector import Open, inspector_app
from turnwright_inspector.background_turns import BackgroundTurns
from turnwright_inspector.views.needs_you import NeedsYou
from turnwright_inspector.views.summaries import Summaries
from turnwright_inspector.views.turn_query import Query, list_turns
from turnwright_testing.store_suite import Written

pytestmark = pytest.mark.anyio


class Counting(SqliteStore):
    """Counts the questions whether a turn is driven."""

    checks: Counter[str]

    async def is_driven(self, turn_id: str) -> bool:
        self.checks[turn_id] += 1
        return await super().is_driven(turn_id)


async def test_only_a_single_turn_of_each_process_is_checked(tmp_path: Path) -> None:
    driver, store = SqliteStore(tmp_path / "a.db"), Counting(tmp_path / "a.db")
    store.checks = Counter()
    for number in range(20):
        await Written(f"t{number}").create(driver)
    async with Engine(model=ScriptedModel(), store=store) as engine:
        needs = NeedsYou(engine, BackgroundTurns(engine, drives=False), Summaries(store), store="")
        assert await needs.refresh() == 0
        assert store.checks.total() == 1
        await driver.aclose()
        assert len(await needs.find()) == 20
        assert {row.crashed for row in await needs.find()} == {True}
    await store.aclose()


class Full(SqliteStore):
    """A store that cannot be written."""

    async def summarize(self, summaries: Sequence[tuple[Unsummarized, TurnSummary]]) -> None:  # noqa: ARG002 (as it is named)
        raise StoreError("the disk is full")


async def test_read_only_store_is_listed(tmp_path: Path) -> None:
    """From the journals, without totals of usage."""
    store, draft = Full(tmp_path / "a.db"), Written("t1", prompt="hello")
    claim = await draft.create(store)
    await store.append(claim, draft.answer(), draft.status)
    await store.release(claim)
    listing = await list_turns(Summaries(store), Query())
    assert [(row.row.id, row.turn.prompt) for row in listing.turns] == [("t1", "hello")]
    await store.aclose()


class Down(SqliteStore):
    """A store whose server may be down. It counts the questions."""

    down = False
    checks = 0

    async def totals(self, turn_filter: TurnFilter) -> TurnTotals:
        self.checks += 1
        if self.down:
            raise StoreError("the server is down")
        return await super().totals(turn_filter)


@pytest.mark.no_waiting
async def test_unavailable_store_is_reported_after_a_single_query(tmp_path: Path) -> None:
    store = Down(tmp_path / "a.db")
    async with (
        Engine(model=ScriptedModel(), store=store) as engine,
        person_at(inspector_app(engine, access=Open())) as person,
    ):
        await Written("t1").create(store)
        await anyio.sleep(3)
        store.down, store.checks = True, 0
        for path in ("/", "/needs-you", "/turns/none", "/statistics"):
            page = await person.client.get(path)
            assert page.status_code == 503
            assert "the server is down" in page.text
            assert "Try again" in page.text
        response = await person.does("/turns/t1/abort")
        assert (response.status_code, "the server is down" in response.text) == (503, True)
        assert store.checks == 1
        assert not await store.inbox("t1")
        store.down = False
        await anyio.sleep(3)
        assert (await person.client.get("/needs-you")).status_code == 200
    await store.aclose()
