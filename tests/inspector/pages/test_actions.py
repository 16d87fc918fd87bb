"""Actions on the pages: each form does what its button names, or the page says why not."""

import html
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import httpx
import pytest
from tests.inspector.conftest import (
    TOKEN,
    browser,
    csrf_of,
    delete_file,
    engine_on,
    enter,
    look_up,
    paused_turn,
    person_at,
)

from turnwright import Agent, Engine, Later, tool
from turnwright.driver.subagents import agent_tool
from turnwright.errors import StoreError
from turnwright.journal.questions import words
from turnwright.journal.result import TurnResult
from turnwright.model import ScriptedModel, asks_for
from turnwright.model.protocol import ModelError, ModelResponse
from turnwright.model.scripted import Line
from turnwright.tools import Tool
from turnwright_inspector import Open, Token, inspector_app
from turnwright_inspector.views.cli_commands import continue_command
from turnwright_states import Cause, Finish

pytestmark = pytest.mark.anyio

ALLOW = {"interrupt": "approval-1", "decision": "approve"}


async def ended(engine: Engine, turn: str) -> TurnResult:
    """The turn, once somebody has driven it to its end or its next pause."""
    async for _ in engine.events(turn, wait=True):
        pass
    return await engine.get(turn)


def said_to_model(engine: Engine) -> list[str]:
    """Every text that the model was sent the last time."""
    model = engine.setup.model
    assert isinstance(model, ScriptedModel)
    parts = [part for message in model.requests[-1].messages for part in message.parts]
    return [text.removeprefix("rejected by the person: ") for part in parts if (text := getattr(part, "text", ""))]


@pytest.fixture
async def engine(asking: Callable[[], Engine]) -> AsyncIterator[Engine]:
    async with asking() as engine:
        yield engine


async def test_answer_is_recorded_for_a_worker_and_a_command_is_shown(engine: Engine) -> None:
    turn = await paused_turn(engine)
    async with person_at(inspector_app(engine, access=Token(TOKEN), store="sqlite:///turns.db")) as person:
        response = await person.does(f"/turns/{turn}/answer", **ALLOW)
        assert (response.status_code, response.url.path) == (httpx.codes.OK, f"/turns/{turn}")
        assert f"turnwright resume {turn} --store sqlite:///turns.db" in html.unescape(response.text)
    assert (await engine.get(turn)).paused
    assert (await engine.resume(turn)).text == "It is gone."


async def test_answer_is_driven_by_an_inspector_with_drive(engine: Engine) -> None:
    turn = await paused_turn(engine)
    async with person_at(inspector_app(engine, access=Token(TOKEN), drives=True)) as person:
        response = await person.does(f"/turns/{turn}/answer", **ALLOW)
        assert response.status_code == httpx.codes.OK
        assert (await ended(engine, turn)).text == "It is gone."


async def test_denial_message_reaches_the_model(engine: Engine) -> None:
    turn = await paused_turn(engine)
    async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
        words = "Keep it <b>\nfor now"
        await person.does(f"/turns/{turn}/answer", interrupt="approval-1", decision="reject", text=words)
    await engine.resume(turn)
    assert words in said_to_model(engine)


async def test_approval_may_change_the_arguments_on_the_page(engine: Engine) -> None:
    """They are on the page as JSON. What does not fit is refused, and stays typed."""
    turn = await paused_turn(engine)
    async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
        page = html.unescape((await person.client.get(f"/turns/{turn}")).text)
        (approval,) = (await engine.get(turn)).interrupts
        assert json.dumps(approval.arguments, indent=2) in page
        wrong = await person.does(f"/turns/{turn}/answer", **ALLOW, arguments='{"wrong": 1}')
        assert wrong.status_code == httpx.codes.CONFLICT
        assert "the changed arguments do not fit delete_file" in wrong.text
        assert '{"wrong": 1}' in html.unescape(wrong.text)
        response = await person.does(f"/turns/{turn}/answer", **ALLOW, arguments='{\r\n"path": "new.log"}')
        assert response.status_code == httpx.codes.OK
    await engine.resume(turn)
    assert any("new.log" in text and "other arguments" in text for text in said_to_model(engine))


async def test_late_answer_is_refused_and_keeps_the_typed_text(engine: Engine) -> None:
    turn = await paused_turn(engine)
    async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
        await person.does(f"/turns/{turn}/answer", **ALLOW)
        late = {"interrupt": "approval-1", "decision": "reject", "text": "Leave <it> alone."}
        response = await person.does(f"/turns/{turn}/answer", **late)
        assert response.status_code == httpx.codes.CONFLICT
        assert "it was answered before" in response.text
        assert "Leave &lt;it&gt; alone." in response.text


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"interrupt": "approval-9", "decision": "approve"}, 409, "The question is closed: another answer came first"),
        ({"interrupt": "approval-1", "decision": "rerun"}, 409, "takes yes or no"),
        ({"interrupt": "approval-1", "decision": "eat it"}, 409, "not a decision"),
        ({"interrupt": "approval-1", "text": " "}, 422, "the answer is empty"),
        ({"decision": "approve"}, 422, "does not say what it answers"),
    ],
)
async def test_invalid_answer_is_reported_on_the_page(
    engine: Engine, fields: dict[str, str], status: int, words: str
) -> None:
    turn = await paused_turn(engine)
    async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
        response = await person.does(f"/turns/{turn}/answer", **fields)
        assert (response.status_code, words in html.unescape(response.text)) == (status, True)
    assert (await engine.get(turn)).paused


async def test_question_is_answered_by_a_choice_or_in_words(file: Path) -> None:
    asks = asks_for(("ask_user_input", {"question": "Which <one>?", "choices": ["the old", "the new"]}))
    async with engine_on(file, asks, "Fine.", asks, "Well.") as engine:
        app = inspector_app(engine, access=Token(TOKEN))
        for fields in ({"choice": "the new", "text": ""}, {"text": "neither"}):
            turn = (await engine.run(Agent(name="Asker"), "Ask me")).id
            async with person_at(app) as person:
                page = (await person.client.get(f"/turns/{turn}")).text
                assert "Which &lt;one&gt;?" in page
                assert 'name="choice" value="the new"' in page
                await person.does(f"/turns/{turn}/answer", interrupt="question-1", **fields)
            await engine.resume(turn)
            assert (fields.get("choice") or fields["text"]) in said_to_model(engine)


@pytest.mark.parametrize(("decision", "reason"), [("stop", "doom_loop"), ("go_on", "answered")])
async def test_question_about_a_doom_loop_is_answered(file: Path, decision: str, reason: str) -> None:
    again = asks_for(("look_up", {"word": "alpha"}))
    async with engine_on(file, again, again, again, "Done.") as engine:
        agent = Agent(name="Searcher", doom_response="ask")
        turn = (await engine.run(agent, "Find it")).id
        async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
            assert 'value="always"' in (await person.client.get(f"/turns/{turn}")).text
            await person.does(f"/turns/{turn}/answer", interrupt="doom-1", decision=decision)
        assert (await engine.resume(turn)).reason == reason


async def test_sub_agent_question_is_answered_on_both_pages(file: Path) -> None:
    worker = Agent(name="Worker", description="Works.")
    tools: list[Tool] = [delete_file, look_up, agent_tool(worker, name="work")]

    def script() -> ScriptedModel:
        asks = asks_for(("delete_file", {"path": "a"}))
        return ScriptedModel(asks_for(("work", {"prompt": "Delete a"})), asks, "Deleted.", "All is done.")

    store = f"sqlite:///{file}"
    for at_child in (True, False):
        async with Engine(model=script(), tools=tools, store=store) as engine:
            paused = await engine.run(Agent(name="Lead"), "Go")
            (approval,) = paused.interrupts
            call = approval.id.partition("/")[0]
            child = f"{paused.id}:{call}"
            async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
                page = (await person.client.get(f"/turns/{child if at_child else paused.id}")).text
                assert f'action="/turns/{paused.id}/answer"' in page
                assert f'name="interrupt" value="{approval.id}"' in page
                seen_from = {"page": child} if at_child else {}
                fields = {"interrupt": approval.id, "decision": "approve", **seen_from}
                response = await person.does(f"/turns/{paused.id}/answer", **fields)
                assert response.url.path == f"/turns/{child if at_child else paused.id}"
                for action in ("abort", "steer"):
                    refused = await person.does(f"/turns/{child}/{action}", text="Hm")
                    assert (refused.status_code, "its parent drives it" in refused.text) == (422, True)
            assert (await engine.resume(paused.id)).text == "All is done."


async def test_steering_message_is_shown_until_delivered(engine: Engine) -> None:
    turn = await paused_turn(engine)
    async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
        response = await person.does(f"/turns/{turn}/steer", text="Be <quick>,\r\nplease.")
        assert "Be &lt;quick&gt;,\nplease." in response.text
        empty = await person.does(f"/turns/{turn}/steer", text="  ")
        assert (empty.status_code, "is blank" in empty.text) == (422, True)
    await engine.resume(turn, {"approval-1": True})
    assert "Be <quick>,\nplease." in said_to_model(engine)


async def test_stopped_turn_accepts_no_further_action(engine: Engine) -> None:
    turn = await paused_turn(engine)
    async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
        response = await person.does(f"/turns/{turn}/abort")
        assert f'action="/turns/{turn}/abort"' not in response.text
        assert (await engine.get(turn)).outcome == "aborted"
        for action, fields in {"steer": {"text": "Wait, no"}, "answer": ALLOW}.items():
            refused = await person.does(f"/turns/{turn}/{action}", **fields)
            assert (refused.status_code, "has ended (aborted" in refused.text) == (409, True)
        assert (await person.does(f"/turns/{turn}/abort")).status_code == httpx.codes.OK


async def test_fork_is_a_new_driven_turn(engine: Engine) -> None:
    turn = await paused_turn(engine)
    await engine.resume(turn, {"approval-1": False})
    places = {seq: fact.kind for seq, fact in await engine.store.facts(turn)}
    at = next(seq for seq, kind in places.items() if kind == "paused")
    async with person_at(inspector_app(engine, access=Token(TOKEN), drives=True)) as person:
        page = (await person.client.get(f"/turns/{turn}", params={"at": at})).text
        assert f'name="at" value="{at}"' in page
        response = await person.does(f"/turns/{turn}/fork", at=str(at))
        forked = response.url.path.rpartition("/")[2]
        assert forked.startswith("fork-")
        assert "approval-1" in response.text
        for wrong in ("", "x", "9999", "9" * 30, "9" * 5000):
            refused = await person.does(f"/turns/{turn}/fork", at=wrong)
            assert refused.status_code == httpx.codes.UNPROCESSABLE_ENTITY
    assert (await engine.get(forked)).paused
    assert (await engine.get(turn)).outcome == "finished"


async def test_queued_turn_is_resumed_by_an_inspector_with_drive(file: Path) -> None:
    async with engine_on(file, "Hello.") as engine:
        turn = await engine.submit(Agent(name="Greeter"), "Say hello")
        async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
            page = (await person.client.get(f"/turns/{turn}")).text
            assert ("No driver" in page, "/resume" in page) == (True, False)
            assert (await person.does(f"/turns/{turn}/resume")).status_code == httpx.codes.UNPROCESSABLE_ENTITY
        async with person_at(inspector_app(engine, access=Token(TOKEN), drives=True)) as person:
            assert f'action="/turns/{turn}/resume"' in (await person.client.get(f"/turns/{turn}")).text
            assert (await person.does(f"/turns/{turn}/resume")).status_code == httpx.codes.OK
            assert (await ended(engine, turn)).text == "Hello."


async def test_undrivable_turn_is_explained_on_the_page(file: Path) -> None:
    async with engine_on(file, asks_for(("delete_file", {"path": "a"}))) as engine:
        turn = await paused_turn(engine)
    async with (
        Engine(model=ScriptedModel("Hm."), store=f"sqlite:///{file}") as engine,
        person_at(inspector_app(engine, access=Token(TOKEN), drives=True)) as person,
    ):
        await person.does(f"/turns/{turn}/answer", **ALLOW)
        page = ""
        with anyio.fail_after(60):
            while "could not run here" not in page:
                await anyio.lowlevel.checkpoint()
                page = (await person.client.get(f"/turns/{turn}")).text
        assert "delete_file" in page


async def test_form_returns_to_the_displayed_step_and_tab(engine: Engine) -> None:
    turn = await paused_turn(engine)
    async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
        view = f"http://127.0.0.1:8321/turns/{turn}?step=1&tab=journal"
        for header, address in (("Referer", view), ("HX-Current-URL", view), ("Referer", "http://evil.example/?a=b")):
            response = await person.client.post(
                f"/turns/{turn}/steer", data={"csrf": person.csrf, "text": "Hm"}, headers={header: address}
            )
            query = "?step=1&tab=journal" if address == view else ""
            assert (response.status_code, response.headers["location"]) == (303, f"/turns/{turn}{query}")


async def test_unknown_turn_is_not_found(engine: Engine) -> None:
    async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
        for action in ("answer", "steer", "abort", "fork"):
            response = await person.does(f"/turns/nobody/{action}", text="x", at="1", interrupt="q")
            assert (response.status_code, "no turn" in response.text) == (404, True)
        assert (await person.client.get("/turns/x/abort")).status_code == httpx.codes.METHOD_NOT_ALLOWED


async def test_failing_store_is_reported_as_unavailable(engine: Engine) -> None:
    turn = await paused_turn(engine)
    async with browser(inspector_app(engine, access=Open())) as client:
        csrf = csrf_of(await client.get("/"))
        await engine.store.aclose()
        with pytest.raises(StoreError):
            await engine.store.get(turn)
        for response in (
            await client.get(f"/turns/{turn}"),
            await client.get("/"),
            await client.post(f"/turns/{turn}/abort", data={"csrf": csrf}),
        ):
            assert (response.status_code, "store" in response.text) == (503, True)


async def test_model_and_tool_texts_are_escaped_everywhere(file: Path) -> None:
    evil = "</textarea><script>alert(1)</script>"
    asks = asks_for(("ask_user_input", {"question": evil, "choices": [evil]}), text=evil)
    async with engine_on(file, asks) as engine:
        turn = (await engine.run(Agent(name=evil), evil)).id
        async with browser(inspector_app(engine, access=Token(TOKEN))) as client:
            await enter(client)
            for path in ("/", f"/turns/{turn}", *(f"/turns/{turn}?tab={tab}" for tab in ("transcript", "journal"))):
                assert "<script>alert" not in (await client.get(path)).text


@pytest.mark.parametrize("headers", [{"Referer": "http://["}, {"HX-Current-URL": "http://["}])
async def test_forged_page_field_is_ignored(engine: Engine, headers: dict[str, str]) -> None:
    turn = await paused_turn(engine)
    async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
        fields = {"csrf": person.csrf, "text": "Hello", "page": f"{turn}:a/b"}
        response = await person.client.post(f"/turns/{turn}/steer", data=fields, headers=headers)
        assert response.headers["location"] == f"/turns/{turn}"
        fields["text"] = ""
        response = await person.client.post(f"/turns/{turn}/steer", data=fields, headers=headers)
        assert response.status_code == httpx.codes.UNPROCESSABLE_ENTITY


async def test_approval_arguments_have_the_wording_of_the_command_line(file: Path) -> None:
    path = "old.log" + " " * 600 + "".join(f"{number}\n" for number in range(9_000)) + "; evil\u202e\x1b[2J <b>"
    async with engine_on(file, asks_for(("delete_file", {"path": path})), "It is gone.") as engine:
        paused = await engine.run(Agent(name="Cleaner"), "Delete")
        async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
            page = html.unescape((await person.client.get(f"/turns/{paused.id}")).text)
    question = page[page.index('<pre class="question"') :]
    assert words(paused.interrupts[0]) in question[: question.index("</pre>")]
    assert "look like secrets" not in page


async def test_approval_with_hidden_parts_is_refused(file: Path) -> None:
    """A model may name an argument so that it is hidden: nobody is to approve that unread."""
    key = "sk-proj-0123456789abcdefghij"
    async with engine_on(file, asks_for(("delete_file", {"path": f"x; evil {key}"})), "It is gone.") as engine:
        paused = await engine.run(Agent(name="Cleaner"), "Delete")
        async with person_at(inspector_app(engine, access=Token(TOKEN), store="sqlite:///t.db")) as person:
            page = (await person.client.get(f"/turns/{paused.id}?tab=budgets")).text
            refused = await person.does(f"/turns/{paused.id}/answer", **ALLOW)
            assert (refused.status_code, "parts of it are hidden" in refused.text) == (httpx.codes.CONFLICT, True)
            response = await person.does(f"/turns/{paused.id}/answer", **ALLOW, arguments='{"path": "old.log"}')
            assert response.status_code == httpx.codes.OK
        assert (await engine.resume(paused.id)).text == "It is gone."
    assert key not in page
    assert '| path: "x; evil ***"' in html.unescape(page)
    assert "look like secrets and are hidden here" in page
    assert "It cannot be approved here, except with arguments that you write yourself." in page
    assert ">Approve with these arguments</button>" in page
    assert "evil" not in page[page.index('name="arguments"') :], "arguments with hidden parts are not offered"
    assert f"turnwright show {paused.id} --store sqlite:///t.db" in page
    assert any("old.log" in text for text in said_to_model(engine))


@tool(needs_approval=True)
async def wire_money(amount: float, currency: str, to: str) -> str:
    """Wire money."""
    return f"sent {amount} {currency} to {to}"


async def test_approval_sentence_names_the_asking_agent(file: Path) -> None:
    wires = asks_for(("wire_money", {"amount": 1200.5, "currency": "EUR", "to": "ACME GmbH"}))
    clerk = agent_tool(Agent(name="Clerk", description="Pays."), name="clerk")
    tools: list[Tool] = [wire_money, clerk]
    model = ScriptedModel(asks_for(("clerk", {"prompt": "Pay."})), wires)
    async with Engine(model=model, tools=tools, store=f"sqlite:///{file}") as engine:
        paused = await engine.run(Agent(name="Lead"), "Pay them.")
        async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
            page = (await person.client.get(f"/turns/{paused.id}")).text
    heading = page[page.index("<h3 id=") :]
    assert "Clerk wants to run wire_money: 1,200.50 EUR to ACME GmbH" in heading[: heading.index("</h3>")]


@pytest.mark.parametrize(("reason", "steps"), [("step_cap", 1), ("truncated", 5)])
async def test_stopped_turn_is_continued_in_a_new_turn(file: Path, reason: str, steps: int) -> None:
    cut = ModelResponse(text="It is", finish=Finish.LENGTH)
    lines = [cut] if reason == "truncated" else [asks_for(("look_up", {"word": "a"})), "So far."]
    async with engine_on(file, *lines, "The rest.") as engine:
        first = await engine.run(Agent(name="A", steps=steps), "Say it.")
        assert first.reason == reason
        async with person_at(inspector_app(engine, access=Token(TOKEN), store="sqlite:///t.db")) as person:
            page = html.unescape((await person.client.get(f"/turns/{first.id}")).text)
            assert continue_command(first.id, "sqlite:///t.db", elsewhere=True) in page
            assert "/continue" not in page
            refused = await person.does(f"/turns/{first.id}/continue", text="Go on.")
            assert refused.status_code == httpx.codes.UNPROCESSABLE_ENTITY
        async with person_at(inspector_app(engine, access=Token(TOKEN), drives=True)) as person:
            page = (await person.client.get(f"/turns/{first.id}")).text
            assert f'action="/turns/{first.id}/continue"' in page
            assert ">Go on.</textarea>" in page
            response = await person.does(f"/turns/{first.id}/continue", text="Go on, please.")
            new = response.url.path.rpartition("/")[2]
            assert new != first.id
            assert (await ended(engine, new)).text == "The rest."
    assert "Go on, please." in said_to_model(engine)


async def test_turn_with_a_failed_model_is_retried_from_the_failed_step(file: Path) -> None:
    down = ModelError("down", cause=Cause.AUTHENTICATION)
    lines: list[Line] = [asks_for(("look_up", {"word": "a"})), down, "It works now."]
    async with engine_on(file, *lines) as engine:
        failed = await engine.run(Agent(name="A"), "Say it.")
        assert failed.reason == "model_error"
        async with person_at(inspector_app(engine, access=Token(TOKEN), drives=True)) as person:
            page = (await person.client.get(f"/turns/{failed.id}")).text
            (at,) = re.findall(r'id="retry-form".*?name="at" value="(\d+)"', page, re.DOTALL)
            response = await person.does(f"/turns/{failed.id}/fork", at=at)
            new = await ended(engine, response.url.path.rpartition("/")[2])
    assert (new.text, new.steps) == ("It works now.", 2)


async def test_finished_turn_shows_no_advice(file: Path) -> None:
    async with engine_on(file, "Done.") as engine:
        turn = await engine.run(Agent(name="A"), "Say it.")
        async with person_at(inspector_app(engine, access=Token(TOKEN), drives=True)) as person:
            page = (await person.client.get(f"/turns/{turn.id}")).text
    assert "Do this next" not in page
    assert not re.search("/continue|retry-form|to-answer", page)


async def test_fork_and_origin_link_to_each_other(file: Path) -> None:
    async with engine_on(file, "One.", "Two.", "Three.") as engine:
        origin = (await engine.run(Agent(name="A"), "Say it.")).id
        fork = await engine.fork(origin, at=2)
        assert (await engine.resume(fork)).text == "Two."
        again = await engine.fork(fork, at=2)
        await engine.resume(again)
        async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
            await person.client.get("/")
            pages = {name: (await person.client.get(f"/turns/{name}")).text for name in (origin, fork, again)}
    heads = {
        name: page[page.index('<header class="turn-head"') :].split("</header>")[0] for name, page in pages.items()
    }
    links = {name: re.findall(r'href="/turns/([^"?]*)', head) for name, head in heads.items()}
    assert links == {origin: [fork], fork: [origin, again], again: [fork]}


async def test_wait_is_settled_on_the_page(file: Path) -> None:
    """The page shows the key, and a form gives the result; several approvers see who has approved."""

    @tool
    async def render() -> str:
        """Render elsewhere."""
        raise Later

    @tool(needs_approval=True, approvers=2)
    async def pay() -> str:
        """Pay."""
        return "paid"

    model = ScriptedModel(asks_for(("render", {}), ("pay", {})), "Done.")
    async with Engine(model=model, tools=[render, pay], store=f"sqlite:///{file}", poll_interval=0.02) as engine:
        turn: TurnResult = await engine.run(Agent(name="Studio"), "Go")
        await engine.resume(turn.id, {"approval-1": True}, by="ann")
        async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
            page = html.unescape((await person.client.get(f"/turns/{turn.id}")).text)
            assert f"{turn.id}:call00001" in page
            assert "Approved by 1 of 2: ann by api" in page
            path = f"/turns/{turn.id}/answer"
            nameless = await person.does(path, interrupt="approval-1", decision="approve")
            assert "it needs a name: write your name" in html.unescape(nameless.text)
            await person.does(path, interrupt="approval-1", decision="approve", by="bob")
            await person.does(path, interrupt="result-call00001", decision="settle", result="film.mp4")
        assert (await engine.resume(turn.id)).text == "Done."
        assert "film.mp4" in said_to_model(engine)


async def test_approval_may_cover_equal_calls(tmp_path: Path) -> None:
    """A box says what it covers, and the answer has it."""

    @tool(needs_approval=True)
    async def erase() -> str:
        """Erase."""
        return "erased"

    model = ScriptedModel(asks_for(("erase", {})), asks_for(("erase", {})), "Done.")
    async with Engine(model=model, tools=[erase], store=f"sqlite:///{tmp_path}/turns.db", poll_interval=0.02) as engine:
        turn: TurnResult = await engine.run(Agent(name="Tidier"), "Go")
        async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
            page = html.unescape((await person.client.get(f"/turns/{turn.id}")).text)
            assert "Allow calls with this tool and these arguments in this conversation" in page
            await person.does(f"/turns/{turn.id}/answer", **ALLOW, always="1")
        assert (await engine.resume(turn.id)).text == "Done."
