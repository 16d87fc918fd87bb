"""Tags, notes and scores on a turn's page: added, shown and removed."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.inspector.conftest import engine_on, person_at

from turnwright import Agent
from turnwright.store import Annotation, AnnotationKind, AnnotationStore
from turnwright_inspector import Open, inspector_app

pytestmark = pytest.mark.anyio


async def test_turn_is_judged_tagged_and_noted(file: Path) -> None:
    async with engine_on(file, "Done.") as engine:
        turn = await engine.run(Agent(name="Cleaner"), "Clean")
        facts = await engine.store.facts(turn.id)
        async with person_at(inspector_app(engine, access=Open())) as person:
            await person.does(f"/turns/{turn.id}/annotate", kind="score", name="success", value="1")
            await person.does(f"/turns/{turn.id}/annotate", kind="tag", name=" <b>slow</b> ")
            text = (await person.does(f"/turns/{turn.id}/annotate", kind="note", text="password=hunter22hunter22")).text
            assert "&lt;b&gt;slow&lt;/b&gt;" in text
            assert "hunter22" not in text
            store = engine.store
            assert isinstance(store, AnnotationStore)
            annotations = await store.annotations([turn.id])
            assert [(annotation.kind, annotation.value, annotation.text) for annotation in annotations] == [
                (AnnotationKind.SCORE, 1.0, ""),
                (AnnotationKind.TAG, None, ""),
                (AnnotationKind.NOTE, None, "password=hunter22hunter22"),
            ]
            listed = (await person.client.get("/")).text
            assert "&lt;b&gt;slow&lt;/b&gt;" in listed
            assert 'is-good">success 1<' in listed
            text = (await person.does(f"/turns/{turn.id}/unannotate", kind="tag", name="<b>slow</b>")).text
            assert "slow" not in text
        assert await engine.store.facts(turn.id) == facts


async def test_tag_links_to_tagged_turns_unless_secret(file: Path) -> None:
    secret = "password=hunter22hunter22"  # noqa: S105 (nobody's)
    async with engine_on(file, "Done.", repeat=True) as engine:
        turns = [(await engine.run(Agent(name="Cleaner"), "Clean")).id for _ in range(2)]
        async with person_at(inspector_app(engine, access=Open())) as person:
            for turn, tag in ((turns[0], "a&b"), (turns[1], secret)):
                await person.does(f"/turns/{turn}/annotate", kind="tag", name=tag)
            for path in ("/", f"/turns/{turns[0]}"):
                assert 'href="/?tag=a%26b">a&amp;b</a>' in (await person.client.get(path)).text
            for path in ("/", f"/turns/{turns[1]}"):
                page = (await person.client.get(path)).text
                assert re.search('<span class="(annotation is-info)?">password=[*]{3}</span>', page), path
                assert "hunter22" not in page
            listing = (await person.client.get("/?tag=a%26b")).text
            assert f'id="row-{turns[0]}"' in listing
            assert 'value="a&amp;b" list="tags"' in listing
            assert turns[1] not in listing
            for tag in (secret, "password=***"):
                assert "No matches" in (await person.client.get("/", params={"tag": tag})).text


async def test_damaged_annotation_hides_only_its_own_turns_marks_in_the_list(file: Path) -> None:
    async with engine_on(file, "Done.", repeat=True) as engine:
        turns = [(await engine.run(Agent(name="Cleaner"), "Clean")).id for _ in range(3)]
        store = engine.store
        assert isinstance(store, AnnotationStore)
        await store.annotate(*(Annotation(turn, AnnotationKind.TAG, f"tag-{turn}") for turn in turns))
        with closing(sqlite3.connect(file)) as db, db:
            db.execute("UPDATE annotations SET at = 'never' WHERE turn_id IN (?, ?)", turns[:2])
        async with person_at(inspector_app(engine, access=Open())) as person:
            listing = (await person.client.get("/")).text
            assert all(f'id="row-{turn}"' in listing for turn in turns)
            assert [f"tag={quote(f'tag-{turn}')}" in listing for turn in turns] == [False, False, True]
            assert "an annotation is damaged" in (await person.client.get(f"/turns/{turns[0]}")).text


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kind": "score", "name": "success", "value": "much"}, "a score is a number"),
        ({"kind": "score", "name": "success", "value": "nan"}, "has a number"),
        ({"kind": "tag", "name": " "}, "name it in one line"),
        ({"kind": "note", "text": " "}, "a note needs a text"),
        ({"kind": "star", "name": "x"}, "choose a tag, a note or a score"),
    ],
)
async def test_invalid_annotation_is_reported(fields: dict[str, str], words: str, file: Path) -> None:
    async with engine_on(file, "Done.") as engine:
        turn = await engine.run(Agent(name="Cleaner"), "Clean")
        async with person_at(inspector_app(engine, access=Open())) as person:
            response = await person.does(f"/turns/{turn.id}/annotate", **fields)
    assert (response.status_code, words in response.text) == (422, True)


async def test_unknown_turn_takes_no_annotation(file: Path) -> None:
    async with engine_on(file) as engine, person_at(inspector_app(engine, access=Open())) as person:
        response = await person.does("/turns/nobody/annotate", kind="tag", name="x")
    assert response.status_code == 404


def test_annotation_is_validated() -> None:
    assert Annotation("t", AnnotationKind.SCORE, "x", value=0).value == 0
