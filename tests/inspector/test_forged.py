"""Journals that somebody changed: each of their pages is shown, and none fails."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from tests.one_row_a_fact import one_row_a_fact

from turnwright import Agent, Engine
from turnwright.model import ScriptedModel, asks_for
from turnwright.model.protocol import ModelError
from turnwright.model.retry import Backoff
from turnwright.store import SqliteStore
from turnwright_inspector import inspector_app
from turnwright_inspector.http.access import Open
from turnwright_inspector.tabs import TABS
from turnwright_states import Cause, State

from .conftest import browser
from .turns_made import TOOLS

pytestmark = pytest.mark.anyio

#: No ids of turns, or none that an address could have.
ODD = ("a/b", "", "..", "x" * 100_000, "a\nb\0c\u202e", "\ud800")

Row = tuple[int, str, str]
Forge = Callable[[list[Row]], list[Row]]


def without(place: int) -> Forge:
    return lambda rows: [row for row in rows if row[0] != place]


def with_fields(place: int, **fields: object) -> Forge:
    def forged(rows: list[Row]) -> list[Row]:
        return [
            (seq, kind, json.dumps({**json.loads(payload), **fields}) if seq == place else payload)
            for seq, kind, payload in rows
        ]

    return forged


def nested(levels: int) -> dict[str, object]:
    """Objects in each other."""
    value: dict[str, object] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def swapped(place: int) -> Forge:
    """Exchange a fact with the next one."""

    def forged(rows: list[Row]) -> list[Row]:
        swapped = {place: place + 1, place + 1: place}
        by_place = {seq: (kind, payload) for seq, kind, payload in rows}
        return [(seq, *by_place[swapped.get(seq, seq)]) for seq, _, _ in rows]

    return forged


def of_kind(place: int, name: str) -> Forge:
    return lambda rows: [(seq, name if seq == place else kind, payload) for seq, kind, payload in rows]


async def a_turn(file: Path) -> str:
    lines = (
        asks_for(("ok", {"n": 1}), ("again", {})),
        ModelError("busy", cause=Cause.OVERLOADED),
        asks_for(("ok", {"n": 2})),
        "Capped.",
    )
    never = Backoff(initial=0.0, max_retry_after=0.0)
    async with Engine(model=ScriptedModel(*lines), tools=TOOLS, store=f"sqlite:///{file}", backoff=never) as engine:
        return (await engine.run(Agent(name="A", steps=2), "hi")).id


FORGERIES: dict[str, Forge] = {
    **{f"without fact {place}": without(place) for place in (1, 2, 3, 5, 8, 12, 15)},
    **{f"another time at fact {place}": with_fields(place, elapsed=1e300) for place in (1, 3)},
    "a time below zero": with_fields(3, elapsed=-5.0),
    "a later version": with_fields(3, v=99),
    "an unknown kind": of_kind(4, "dreamt"),
    "another kind": of_kind(4, "turn_ended"),
    "no kind of state": with_fields(4, state="NOWHERE"),
    "another state": with_fields(4, state="FINISHED"),
    **{
        f"fact {place} in {state}": with_fields(place, state=state)
        for place in (9, 10, 16)
        for state in (State.CHECK, State.CAP_HIT, State.ABORTED)
    },
    **{f"facts {place} and {place + 1} in each other's place": swapped(place) for place in (2, 8, 9, 14)},
    **{
        f"{field} of fact {place}, {levels} deep": with_fields(place, **{field: value})
        for levels in (297, 900)
        for place, field, value in (
            (1, "metadata", nested(levels)),
            (3, "reasoning_details", [nested(levels)]),
            (6, "structured", nested(levels)),
        )
    },
    "another number": with_fields(2, number=7),
    "an unknown call": with_fields(4, call="call09999"),
    "an agent that is none": with_fields(1, agent={"steps": "many"}),
    "an agent that is another": with_fields(1, agent={"name": 5}),
    "a history that is none": with_fields(1, history=[{"role": "nobody"}]),
    **{
        f"{word} the turn {odd[:9]!r}": with_fields(1, forked_at=2, **{field: odd})
        for word, field in (("below", "parent_turn"), ("behind", "continue_from"), ("forked from", "forked_from"))
        for odd in ODD
    },
    **{f"a call that drove the turn {odd[:9]!r}": with_fields(4, child=odd) for odd in ODD},
    "a number that no float holds": with_fields(9, number=10**400),
    "more tokens than a float holds": with_fields(3, usage={"input_tokens": 10**400}),
    "another chart": with_fields(1, chart=99),
    "a text": lambda rows: [(seq, kind, "no JSON" if seq == 3 else payload) for seq, kind, payload in rows],
}


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("forged") / "turns.db"
    anyio.run(a_turn, file)
    return file


@pytest.mark.parametrize("forgery", FORGERIES)
async def test_every_page_of_a_forged_journal_is_shown(forgery: str, journal: Path, tmp_path: Path) -> None:
    file = tmp_path / "turns.db"
    with sqlite3.connect(journal) as old, sqlite3.connect(file) as db:
        old.backup(db)
        number = db.execute("SELECT number FROM turns").fetchone()[0]
        one_row_a_fact(db)
        rows = db.execute("SELECT seq, kind, payload FROM facts ORDER BY seq").fetchall()
        changed = FORGERIES[forgery](rows)
        assert changed != rows
        db.execute("PRAGMA writable_schema = 1")
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {name}")
        gone = {row[0] for row in rows} - {row[0] for row in changed}
        db.executemany("DELETE FROM facts WHERE turn = ? AND seq = ?", [(number, seq) for seq in gone])
        db.executemany(
            "UPDATE facts SET kind = ?, payload = ? WHERE turn = ? AND seq = ?",
            [(kind, payload, number, seq) for seq, kind, payload in changed],
        )
    old.close()
    db.close()
    async with Engine(model=ScriptedModel(), tools=TOOLS, store=SqliteStore(file)) as engine:
        name = (await engine.store.turns())[0].id
        app = inspector_app(engine, access=Open())
        async with browser(app) as client:
            pages = [f"/turns/{name}?tab={tab}{step}" for tab in TABS for step in ("", "&step=2")]
            pages += [f"/compare?left={name}&right={name}&pair=1", f"/turns/{name}/edit?step=2"]
            for path in (
                "/",
                "/sessions",
                "/statistics",
                "/agents",
                "/needs-you",
                "/?q=hi",
                f"/turns/{name}/journal.jsonl",
                f"/turns/{name}/export.jsonl",
                *pages,
            ):
                response = await client.get(path)
                assert response.status_code in {200, 503}, path
                if response.status_code == 503:
                    assert "The store cannot be read" in response.text, path
