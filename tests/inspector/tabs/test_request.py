"""The Request tab shows what the model was sent: it is compared with what models got that keep their requests."""

import base64
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import anyio
import pytest
from hypothesis import example, given, settings
from pydantic import JsonValue
from tests.hypothesis_examples import percent_of_examples
from tests.inspector.conftest import browser
from tests.inspector.turns_made import AGENT, TOOLS, kept, look, look_at_each_step, rows_of

from turnwright import Agent, Engine, ModelSettings, StoreError
from turnwright.driver.admission import TurnOptions
from turnwright.driver.subagents import agent_tool
from turnwright.journal.answers import approve, reject
from turnwright.message import FilePart, Message
from turnwright.model import ScriptedModel, asks_for
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse, ResponseToolCall
from turnwright.model.retry import Backoff
from turnwright.store import SqliteStore
from turnwright_inspector import Open, inspector_app
from turnwright_inspector.tabs import request as tab
from turnwright_inspector.views.request_replay import Rebuilt
from turnwright_inspector.views.turn_record import TabContext
from turnwright_states import Cause, Limits, Usage
from turnwright_states import facts as f
from turnwright_testing import Driven, FaultyStore, Scenario, play
from turnwright_testing.strategies import scenarios

NEVER_WAIT = Backoff(initial=0.0, max_retry_after=0.0)
PASSES = ModelError("busy", cause=Cause.OVERLOADED)
MOST_FACTS = 2000


def rebuilt_by(looked: TabContext) -> Rebuilt:
    agent = Agent.from_json(looked.turn.started.agent)
    tools = tuple(tool.spec for tool in looked.engine.setup.tools_for(agent).values())
    turn = looked.turn
    return Rebuilt(turn.row.id, turn.journal, agent, tools, looked.history, looked.engine.setup.show_budget_to_model)


def same(request: ModelRequest, other_request: ModelRequest) -> bool:
    """Whether the two are one request. `first` is for providers that bill a turn, and no page shows it."""
    return (request.messages, request.tools, request.tool_choice, request.max_tokens, request.settings) == (
        other_request.messages,
        other_request.tools,
        other_request.tool_choice,
        other_request.max_tokens,
        other_request.settings,
    )


async def requests_of(engine: Engine, name: str) -> list[tuple[ModelRequest, bool]]:
    """Return the request of each attempt as the page shows it, in order, and whether the journal has its outcome."""
    requests = []
    for looked in (await look_at_each_step(engine, name)).values():
        assert looked.step is not None
        sendings = rebuilt_by(looked).sendings(looked.step)
        requests += [(sending.request, sending.answered) for sending in sendings]
        view = tab.view(looked)
        assert view.missing == ("" if sendings else "Nothing was sent to a model here.")
        if sendings:
            rows = rows_of(tab.view, looked, lambda view: (*view.same_messages, *view.new))
            assert tuple(row.message for row in rows) == sendings[-1].request.messages
            assert [row.number for row in rows] == list(range(1, len(rows) + 1))
            assert all(row.title for row in rows)
            assert view.attempts == len(sendings)
    return requests


async def check(engine: Engine, name: str, sent_requests: Sequence[ModelRequest]) -> None:
    """Each request that the model got is what the page says; it may say of one without an answer that it was sent."""
    page_requests = await requests_of(engine, name)
    place = 0
    for request in sent_requests:
        while place < len(page_requests) and not same(page_requests[place][0], request):
            assert not page_requests[place][1], (
                f"the page shows a request that was not sent so: {page_requests[place][0]} {request}"
            )
            place += 1
        assert place < len(page_requests), f"the page does not show {request}"
        place += 1
    assert not any(answered for _, answered in page_requests[place:])


@settings(max_examples=percent_of_examples(30))
@given(scenarios(TOOLS))
@example(Scenario((asks_for(("ok", {})),), limits=Limits(ceiling=1, concluding="never")))
def test_displayed_request_equals_the_request_sent_to_the_model(scenario: Scenario) -> None:
    """Through caps, nudges, retries, pauses, conclusions and aborts; a turn that supersedes another has its history.

    An attempt whose guardrail fails is shown with its request, although the guardrail may have come first. Each step is
    read from the whole journal, so only turns of some length are looked at: others would take minutes.
    """
    fails = any(isinstance(verdict, ModelError) for guardrail in scenario.guardrails for verdict in guardrail.verdicts)
    if scenario.crash is not None or fails:
        return
    driven = play(scenario, agent=AGENT, tools=TOOLS)
    if sum(len(turn.facts) for turn in driven) <= MOST_FACTS:
        anyio.run(partial(_check_all, driven))


async def _check_all(driven: Sequence[Driven]) -> None:
    engine, names = await kept(driven)
    for name, scripted_turn in zip(names, driven, strict=True):
        assert scripted_turn.requests is not None
        await check(engine, name, [request for request in scripted_turn.requests if not asks_for_summary(request)])


def asks_for_summary(request: ModelRequest) -> bool:
    """Whether a request is a compaction's: the page shows those of steps and conclusions."""
    return request.messages[-1].text.startswith("The conversation above is about to be removed to save space")


pytestmark = pytest.mark.anyio


async def test_displayed_budget_equals_the_budget_sent() -> None:
    model = ScriptedModel(asks_for(("ok", {"n": 1})), asks_for(("ok", {"n": 2})), "done")
    async with Engine(model=model, tools=TOOLS, show_budget_to_model=True) as engine:
        turn = await engine.run(Agent(name="A", steps=3, budget=Limits(tokens=1000)), "hi")
        await check(engine, turn.id, model.requests)
        view = tab.view(await look(engine, turn.id))
        assert "The budget message is worded as this process would word it." in view.notes
        assert view.max_tokens == model.requests[-1].max_tokens


async def test_turn_settings_are_shown_with_requests() -> None:
    model = ScriptedModel(asks_for(("ok", {"n": 1})), "done")
    settings = ModelSettings(temperature=0.2, max_tokens=70, thinking="low", extra_body={"a": 1})
    async with Engine(model=model, tools=TOOLS) as engine:
        turn = await engine.run(Agent(name="A"), "hi", model_settings=settings)
        await check(engine, turn.id, model.requests)
        view = tab.view(await look(engine, turn.id))
    assert (view.settings, view.max_tokens) == ({"temperature": "0.2", "thinking": '"low"'}, 70)
    assert '"reasoning_effort": "low"' in view.body


async def test_message_between_two_attempts_is_only_in_the_later() -> None:
    started, steered, name = anyio.Event(), anyio.Event(), ""

    async def fails(_: ModelRequest) -> ModelError:
        started.set()
        await steered.wait()
        return PASSES

    model = ScriptedModel(fails, "done")
    async with (
        Engine(model=model, tools=TOOLS, backoff=Backoff(initial=0.001)) as engine,
        anyio.create_task_group() as group,
    ):
        group.start_soon(engine.run, AGENT, "hi")
        await started.wait()
        name = (await engine.store.turns())[0].id
        await engine.steer(name, "And be quick.")
        steered.set()
    assert len(model.requests) == 2
    await check(engine, name, model.requests)
    view = tab.view(await look(engine, name, "1"))
    assert view.differs == ("Attempt 1 was sent without the last 1 of these messages: they came later.",)
    assert view.attempts == 2


async def test_history_files_sessions_and_continuations_are_sent_again() -> None:
    picture = FilePart.of(b"\x89PNG", "image/png", "shot.png")
    history: list[Message | Mapping[str, JsonValue]] = [
        Message.user("Before."),
        {"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": "ok", "arguments": "{}"}}]},
        Message.assistant("Lost its result."),
    ]
    model = ScriptedModel(
        asks_for(("ok", {}), text="a"), "it ends", "first", "second", asks_for(("ok", {})), "cap", "on", repeat=True
    )
    async with Engine(model=model, tools=TOOLS) as engine:

        async def ran(begins: int, turn_id: str) -> None:
            await check(engine, turn_id, model.requests[begins:])

        turn_options = [
            TurnOptions(message_history=history, files=[picture]),
            TurnOptions(session="s"),
            TurnOptions(session="s"),
        ]
        for options in turn_options:
            begins = len(model.requests)
            await ran(begins, (await engine.run(AGENT, "hi", **options)).id)
        begins = len(model.requests)
        capped = await engine.run(AGENT.model_copy(update={"steps": 1}), "three")
        await ran(begins, capped.id)
        begins = len(model.requests)
        went_on = await engine.run(AGENT, "Go on.", continue_from=capped.id)
        await ran(begins, went_on.id)
        view = tab.view(await look(engine, went_on.id))
        assert len(view.same_messages) > 3
        assert view.first
        assert any("earlier turns" in note for note in view.notes)


async def test_fork_shows_own_requests_and_requests_of_the_original() -> None:
    model = ScriptedModel(asks_for(("ok", {"n": 1})), "done", "other")
    async with Engine(model=model, tools=TOOLS) as engine:
        turn = await engine.run(AGENT, "hi", session="s")
        facts = await engine.store.facts(turn.id)
        at = next(seq for seq, fact in facts if isinstance(fact, f.StepStarted) and fact.number == 2)
        fork = await engine.fork(turn.id, at=at)
        await engine.resume(fork)
        await check(engine, fork, [model.requests[0], model.requests[2]])


async def test_sub_agent_requests_go_to_the_sub_agent_model() -> None:
    inner, outer = Agent(name="Helper", description="It helps.", model="inner", tools=("ask",)), AGENT
    models = {
        "inner": ScriptedModel(asks_for(("ask", {"n": 1})), "helped", name="inner"),
        "": ScriptedModel(asks_for(("Helper", {"prompt": "help"}), ("ok", {})), "done", name="outer"),
    }
    async with Engine(
        model=models[""], models=models.__getitem__, tools=[*TOOLS, agent_tool(inner)], limits=Limits(tool_calls=20)
    ) as engine:
        turn = await engine.run(outer, "hi")
        assert turn.paused
        await engine.resume(turn.id, {interrupt.id: approve() for interrupt in turn.interrupts})
        await check(engine, turn.id, models[""].requests)
        await check(engine, f"{turn.id}:call00001", models["inner"].requests)


async def test_thinking_is_shown_with_a_note_about_signatures() -> None:
    signed = ModelResponse(
        reasoning="hm",
        reasoning_details=({"type": "thinking", "signature": "abc"},),
        calls=(ResponseToolCall("ask", {"n": 1}),),
        usage=Usage(),
    )
    first, second = ScriptedModel(signed, "done", name="one"), ScriptedModel("done", name="other")
    store_of = Engine(model=first, tools=TOOLS)
    async with store_of as engine:
        turn = await engine.run(AGENT, "hi")
        async with Engine(model=second, tools=TOOLS, store=engine.store) as later:
            await later.resume(turn.id, {interrupt.id: reject() for interrupt in turn.interrupts})
            view = tab.view(await look(later, turn.id))
        assert any("without the signatures" in note for note in view.notes)
        unsigned = [m for m in second.requests[0].messages if m.role == "assistant"]
        messages = [row.message for row in (*view.same_messages, *view.new) if row.message.role == "assistant"]
        assert len(unsigned) == len(messages)


async def test_request_of_a_crashed_process_is_shown_too(tmp_path: Path) -> None:
    model = ScriptedModel(asks_for(("ok", {"n": 1})), "never kept", "done")
    file = tmp_path / "turns.db"
    dying = FaultyStore(SqliteStore(file), at=3)
    async with Engine(model=model, tools=TOOLS, store=dying, backoff=NEVER_WAIT) as engine:
        with pytest.raises(StoreError):
            await engine.run(AGENT, "hi")
    async with Engine(model=model, tools=TOOLS, store=SqliteStore(file), backoff=NEVER_WAIT) as engine:
        name = (await engine.store.turns())[0].id
        await engine.resume(name)
        await check(engine, name, model.requests)


async def test_hook_with_possible_changes_is_mentioned() -> None:
    async def prepare(messages: Sequence[Message]) -> Sequence[Message]:
        return messages

    async with Engine(model=ScriptedModel("done"), history_processor=prepare) as engine:
        turn = await engine.run(AGENT, "hi")
        view = tab.view(await look(engine, turn.id))
        async with browser(inspector_app(engine, access=Open())) as client:
            assert "<dd>not known</dd>" in (await client.get(f"/turns/{turn.id}?tab=request")).text
        assert any(note.startswith("A `history_processor` hook may have changed") for note in view.notes)
        assert any(note.startswith("The agent may use all tools of its process.") for note in view.notes)


async def seen_without_tools(file: Path, agent: Agent) -> tuple[tab.RequestView, str]:
    """The Request tab of a turn in a process that has only its store."""
    model = ScriptedModel(asks_for(("ok", {"n": 1})), "done")
    async with Engine(model=model, tools=TOOLS, store=SqliteStore(file)) as engine:
        turn = await engine.run(agent, "hi")
    async with (
        Engine(store=SqliteStore(file)) as other_engine,
        browser(inspector_app(other_engine, access=Open())) as client,
    ):
        page = await client.get(f"/turns/{turn.id}?tab=request")
        return tab.view(await look(other_engine, turn.id)), page.text


async def test_names_of_tools_are_read_from_the_journal(tmp_path: Path) -> None:
    view, page = await seen_without_tools(tmp_path / "turns.db", Agent(name="A", tools=("ok", "again")))
    assert (view.tool_names, view.tools) == (("ok", "again"), ())
    assert '<li class="mono wrap">again</li>' in page
    assert any(note.startswith("The journal has the names of the tools") for note in view.notes)
    assert "<code>turnwright serve --drive --tools FILE</code>" in page


async def test_tools_of_a_step_are_the_prepared_tools(tmp_path: Path) -> None:
    async def prepare(_: object, names: Sequence[str]) -> Sequence[str]:
        return [name for name in names if name == "ok"]

    agent = Agent(name="A", prepare_tools=prepare)
    model = ScriptedModel("done")
    async with Engine(model=model, tools=TOOLS, agents=[agent]) as engine:
        turn = await engine.run(agent, "hi")
        assert [tool.name for tool in tab.view(await look(engine, turn.id)).tools] == ["ok"]
    view, _ = await seen_without_tools(tmp_path / "turns.db", agent)
    assert view.tool_names == ("ok",)


async def test_unrecorded_tools_are_named_by_recorded_calls(tmp_path: Path) -> None:
    view, page = await seen_without_tools(tmp_path / "turns.db", Agent(name="A"))
    assert view.tool_names is None
    assert "<dd>not known</dd>" in page
    assert "The turn has called ok." in view.notes
    none, page = await seen_without_tools(tmp_path / "other.db", Agent(name="A", tools=()))
    assert none.tool_names == ()
    assert "<dd>0</dd>" in page
    assert not any("tools" in note for note in none.notes)


async def test_messages_are_titled_by_kind() -> None:
    calls = asks_for(("ok", {"n": 1}), ("ok", {"n": 2}), ("again", {}))
    async with Engine(model=ScriptedModel(calls, asks_for(("ok", {"n": 3})), "done"), tools=TOOLS) as engine:
        turn = await engine.run(AGENT, "hi\nthere")
        view = tab.view(await look(engine, turn.id, "3"))
        assert [message.title for message in view.same_messages] == [
            "You are somebody.",
            "hi there",
            "calls ok ×2, again",  # noqa: RUF001 (the sign of multiplication is meant)
            "ok call00001 ok: ok 1",
            "ok call00002 ok: ok 2",
            "again call00003 ok: again 0",
        ]
        assert [message.title for message in view.new] == ["calls ok", "ok call00004 ok: ok 3"]


def test_picture_is_titled_by_the_file_name() -> None:
    data = base64.b64encode(b"x").decode()
    picture = FilePart(media_type="image/png", data=data, name="shot.png")
    assert tab.title_of(Message(role="user", parts=(picture,))) == "shot.png"


async def test_request_can_be_sent_by_a_command() -> None:
    """The shell sends the text as it is, whatever is in it."""
    prompt = "It's $HOME, `id` and \"all\"\nJSON\n'"
    engine = Engine(model=ScriptedModel("Hello."))
    turn = await engine.run(AGENT, prompt)
    request = tab.view(await look(engine, turn.id))
    script = f"curl() {{ cat; }}\n{request.curl}\n"
    process = await anyio.run_process(["sh", "-c", script])
    assert json.loads(process.stdout) == json.loads(request.body)
    assert json.loads(request.body)["messages"][-1] == {"role": "user", "content": prompt}
    assert "/chat/completions" in request.curl
