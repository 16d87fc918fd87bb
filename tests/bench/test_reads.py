"""The inspector's pages are measured on a store that the benchmark writes itself."""

from pathlib import Path

import pytest
from bench.goals import PAGES, goals
from bench.many_turns import COMMON, NOTHING, RARE, write_turns
from bench.reads import FIGURES, measured
from bench.report import details
from bench.results import Results, empty
from tests.servers.postgres_server import PostgresServer

from turnwright.journal.summarize import summarize_turns
from turnwright.store import SqliteStore
from turnwright.store.summaries import PAUSED, UNFINISHED, TurnFilter

pytestmark = pytest.mark.anyio


async def test_store_of_copies_has_turns_of_every_kind(tmp_path: Path) -> None:
    await write_turns(tmp_path / "turns.db", 2_000)
    store = SqliteStore(tmp_path / "turns.db")

    async def count(**filters: str) -> int:
        return (await store.totals(TurnFilter(**filters))).turns  # type: ignore[arg-type]

    assert await count() == 2_000
    assert await count(text=COMMON) > 1_000
    assert (await count(text=RARE), await count(text=NOTHING)) == (0, 0)
    assert (await count(outcome=PAUSED), await count(outcome=UNFINISHED)) == (2, 1)
    for filters in ({"outcome": "failed"}, {"reason": "step_cap"}, {"outcome": "doom_loop"}, {"agent": "Agent 11"}):
        assert await count(**filters), filters
    assert len((await store.agents(TurnFilter())).agents) > 12
    assert await summarize_turns(store, store, str, limit=9) == 1, "but for the one whose driver died, all are written"
    await store.aclose()


@pytest.mark.slow
async def test_each_page_has_figures_and_the_slowest_have_a_target(tmp_path: Path) -> None:
    rows = await measured(tmp_path, turns=60, repeats=1, served=1)
    stores = ["SQLite", *([] if PostgresServer.reason_missing() else ["PostgreSQL"])]
    pages = [row for row in rows if row["what"] != "serve"]
    assert {row["what"] for row in pages} == {*PAGES}
    assert all(
        row.keys() == {"what", "page", *(f"{store} {name}" for store in stores for name in FIGURES)} for row in pages
    )
    results_read: Results = {**empty(), "reads": rows}
    assert "| list | / |" in details(results_read)
    (goal,) = (goal for goal in goals(results_read) if "SQLite, ms" in goal.label)
    assert goal.now.startswith(
        f"{max(float(str(row['SQLite CPU'])) for row in pages if row['what'] == 'list'):.0f} (list)"
    )
