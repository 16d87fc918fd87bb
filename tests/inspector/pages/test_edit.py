"""The page that forks a turn with changes: its fields, what was typed, and the fork that says what it has otherwise."""

import re
from pathlib import Path

import pytest
from tests.inspector.conftest import Person, engine_on, person_at

from turnwright import Agent, Engine, TurnResult
from turnwright.model.protocol import ModelResponse, ResponseToolCall
from turnwright.model.scripted import Line
from turnwright_inspector import Open, inspector_app
from turnwright_states import facts as f

pytestmark = pytest.mark.anyio

SECRET = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"  # noqa: S105 (nobody's)


def looks_up(word: str) -> ModelResponse:
    return ModelResponse(calls=(ResponseToolCall("look_up", {"word": word}),))


async def read(engine: Engine, *, instructions: str = "Read.") -> TurnResult:
    return await engine.run(Agent(name="Reader", instructions=instructions, steps=5), "Look up alpha")


async def forked(engine: Engine) -> tuple[str, f.TurnStarted]:
    row = (await engine.store.turns())[0]
    first = (await engine.store.facts(row.id))[0][1]
    assert isinstance(first, f.TurnStarted)
    return row.id, first


def at_of(text: str) -> str:
    return text.split('name="shown" value="')[1].split('"', maxsplit=1)[0]


async def sends(person: Person, turn: str, step: str = "", **fields: str) -> tuple[str, int]:
    """Open the form for a step, change some of its fields, and send it as a browser does: with every field."""
    text = (await person.client.get(f"/turns/{turn}/edit", params={"step": step} if step else {})).text
    response = await person.does(f"/turns/{turn}/edit", at=at_of(text), **fields)
    return response.text, response.status_code


SAID: tuple[Line, ...] = (looks_up("alpha"), "Nothing.", "Something else.")


async def test_fork_from_the_page_runs_with_the_changes_and_lists_the_changes(file: Path) -> None:
    async with engine_on(file, *SAID) as engine:
        turn = await read(engine)
        app = inspector_app(engine, access=Open(), drives=True)
        async with person_at(app) as person:
            form = (await person.client.get(f"/turns/{turn.id}/edit?step=2")).text
            call = next(fact.call for _, fact in await engine.store.facts(turn.id) if isinstance(fact, f.CallSettled))
            assert f'name="result.{call}"' in form
            fields = {"limit.steps": "3", f"result.{call}": "It is a letter.", "prompt": "Look up alpha"}
            text, status = await sends(person, turn.id, "2", **fields)
        fork, first = await forked(engine)
        result = await engine.resume(fork) if (await engine.get(fork)).outcome is None else await engine.get(fork)
    assert status == 200
    assert first.forked_with == ("limits.steps", f"results.{call}")
    assert f'<code class="wrap">results.{call}</code>' in text
    assert result.text == "Something else."


async def test_unchanged_fields_are_copied_including_secrets(file: Path) -> None:
    async with engine_on(file, "Hello.", "Hello again.") as engine:
        turn = await read(engine, instructions=f"Use {SECRET}\r\nto look up.")
        async with person_at(inspector_app(engine, access=Open())) as person:
            form = (await person.client.get(f"/turns/{turn.id}/edit")).text
            assert SECRET not in form
            assert "Secrets in it are hidden" in form
            typed = form.split('<textarea id="instructions"')[1].split(">\n", 1)[1].split("</textarea>")[0]
            await sends(person, turn.id, instructions=typed.replace("\n", "\r\n"), prompt="Hi")
        _, first = await forked(engine)
    assert first.forked_with == ("prompt",)
    assert first.agent["instructions"] == f"Use {SECRET}\r\nto look up."


async def test_limit_with_separators_is_read(file: Path) -> None:
    async with engine_on(file, *SAID) as engine:
        turn = await read(engine)
        async with person_at(inspector_app(engine, access=Open())) as person:
            await sends(person, turn.id, **{"limit.tokens": "1,200,000"})
        _, first = await forked(engine)
    assert first.limits.tokens == 1_200_000


async def test_impossible_change_is_reported_with_the_typed_text(file: Path) -> None:
    async with engine_on(file, *SAID) as engine:
        turn = await read(engine)
        async with person_at(inspector_app(engine, access=Open(), drives=True)) as person:
            text, status = await sends(person, turn.id, "2", **{"limit.steps": "many", "prompt": "Look up <beta>"})
            refusal, _ = await sends(person, turn.id, model="nobody's")
            blank, _ = await sends(person, turn.id, model=" ")
            settings, _ = await sends(person, turn.id, model_settings="[1]")
            unknown, _ = await sends(person, turn.id, model_settings='{"temprature": 1}')
            deep, refused = await sends(person, turn.id, **{"limit.steps": "[" * 100_000})
            nested, _ = await sends(person, turn.id, model_settings='{"a":' * 20_000 + "1" + "}" * 20_000)
        assert len(await engine.store.turns()) == 1
    assert status == refused == 422
    assert "Steps: write a number, or nothing for no limit" in deep
    assert "Model settings, as JSON" in nested
    assert "Not done." in text
    assert "Steps: write a number, or nothing for no limit, not &#39;many&#39;" in text
    assert "Look up &lt;beta&gt;</textarea>" in text
    assert 'value="many"' in text
    assert "the engine has only" in refusal
    assert "Model: it is blank" in blank
    assert "must be a JSON object" in settings
    assert "did you mean" in unknown


async def test_changing_the_place_keeps_the_input_and_an_unseen_place_is_refused(file: Path) -> None:
    async with engine_on(file, *SAID) as engine:
        turn = await read(engine)
        call = next(fact.call for _, fact in await engine.store.facts(turn.id) if isinstance(fact, f.CallSettled))
        async with person_at(inspector_app(engine, access=Open(), drives=True)) as person:
            text = (await person.client.get(f"/turns/{turn.id}/edit")).text
            first, last = re.findall(r'<option value="(\d+)"', text)
            typed = {"prompt": "Look up <beta>", "limit.steps": "7", "shown": first, "at": last}
            for fields in (typed | {"show": "yes"}, typed):
                response = await person.does(f"/turns/{turn.id}/edit", **fields)
                assert response.status_code == 200
                assert f'<option value="{last}" selected>' in response.text
                assert f'name="result.{call}"' in response.text
                assert "Look up &lt;beta&gt;</textarea>" in response.text
                assert 'value="7"' in response.text
                assert ("Another beginning was chosen" in response.text) is ("show" not in fields)
        assert len(await engine.store.turns()) == 1


async def test_fork_may_begin_at_each_step_linked_from_the_turn_page(file: Path) -> None:
    async with engine_on(file, looks_up("a"), looks_up("b"), "Done.") as engine:
        turn = await read(engine)
        async with person_at(inspector_app(engine, access=Open())) as person:
            page = (await person.client.get(f"/turns/{turn.id}?step=2")).text
            assert f'href="/turns/{turn.id}/edit?step=2"' in page
            text = (await person.client.get(f"/turns/{turn.id}/edit?step=2")).text
            assert text.count("Before the model call of step") == 3
            assert "A worker on this store runs it" in text
            missing = await person.client.get("/turns/nobody/edit")
    assert missing.status_code == 404


async def test_turn_links_to_all_forks_even_undriven(file: Path) -> None:
    async with engine_on(file, *SAID) as engine:
        turn = await read(engine)
        async with person_at(inspector_app(engine, access=Open())) as person:
            assert "forks:" not in (await person.client.get(f"/turns/{turn.id}")).text
            fork = await engine.fork(turn.id, at=4)
            text = (await person.client.get(f"/turns/{turn.id}")).text
            assert f'href="/turns/{fork}">{fork}</a>' in text.split("forks:")[1]
