"""Tools of an AG-UI application: offered to the agent, run by the client, settled by its messages."""

import json
from typing import Any

import anyio
import pytest
from ag_ui.core import RunAgentInput
from pydantic import JsonValue
from tests.protocols.ag_ui.client import Client
from tests.protocols.ag_ui.page import answer
from tests.protocols.subject import AGENT, make_engine, settle_job

from turnwright import CallView, ChangeArguments, ConfigError, Engine, Later, TurnContext, before_tool, tool
from turnwright.message import ToolResultPart
from turnwright.model import ScriptedModel, asks_for
from turnwright_protocols.ag_ui import AgUiEncoder, read_input

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

PICK: Json = {
    "name": "pick",
    "description": "Pick a place.",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}},
}


class Frontend:
    """A client with tools of its own, that posts to the page's example."""

    def __init__(self, engine: Engine, *tools: Json, thread: str = "s1") -> None:
        self.engine, self.thread, self.tools = engine, thread, list(tools)
        self.client = Client()
        self._runs = 0

    async def post(self, *messages: Json, **fields: JsonValue) -> Json:
        """Add these messages to the client's, and return the last event of the run."""
        self._runs += 1
        self.client.messages += messages
        run = {
            "threadId": self.thread,
            "runId": f"r{self._runs}",
            "messages": self.client.messages,
            "tools": self.tools,
            **fields,
        }
        self.client.attach()
        self.client.hear([event async for event in answer(self.engine, AGENT, RunAgentInput.model_validate(run))])
        self.client.end()
        return self.client.ends[-1]

    @property
    def calls(self) -> list[Json]:
        return [call for message in self.client.messages for call in message.get("toolCalls", ())]

    async def turn(self) -> str:
        (row,) = await self.engine.store.turns(session=self.thread, limit=1)
        return row.id


def user(text: str) -> Json:
    return {"id": f"user-{text}", "role": "user", "content": text}


def result(call: Json | str, content: JsonValue = "Graz", name: str = "mine", **fields: JsonValue) -> Json:
    identifier = call if isinstance(call, str) else call["id"]
    return {"id": f"{name}-{identifier}", "role": "tool", "toolCallId": identifier, "content": content, **fields}


async def journal(engine: Engine) -> list[tuple[str, list[object]]]:
    return [
        (row.id, [*await engine.store.facts(row.id), *await engine.store.inbox(row.id)])
        for row in await engine.store.turns()
    ]


async def test_application_tool_is_run_by_the_client() -> None:
    """Rule 30, scenario 23: the run ends with success, and the next run's message settles the call."""
    engine = make_engine()
    page = Frontend(engine, PICK)
    end = await page.post(user("use it"))
    assert (end["type"], end["outcome"]) == ("RUN_FINISHED", {"type": "success"})
    assert "result" not in end
    (call,) = page.calls
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("pick", {"location": "Graz"})
    assert (await engine.get(await page.turn())).paused
    end = await page.post(result(call, "Linz"))
    assert end["outcome"] == {"type": "success"}
    assert page.client.text() == ["Result: Linz"]
    assert page.client.text("tool") == ["Linz"], "the client's own result is not sent to it again"
    assert len(await engine.turns()) == 1


async def test_arguments_that_do_not_fit_go_back_to_the_model() -> None:
    """The client sees a call with its error, and has nothing to run."""
    schema = {"type": "object", "properties": {"location": {"type": "integer"}}}
    page = Frontend(make_engine(), {**PICK, "parameters": schema})
    await page.post(user("use it"))
    assert "'Graz' is not of type 'integer'" in page.client.text("tool")[0]
    assert "invalid arguments" in page.client.text()[0]
    assert not (await page.engine.get(await page.turn())).paused


async def test_several_application_tools_may_settle_in_two_runs() -> None:
    """A result that comes alone is stored, and the turn waits for the second_page one."""
    engine = make_engine()
    page = Frontend(engine, PICK, {**PICK, "name": "stroke"})
    await page.post(user("use them"))
    first, second = page.calls
    end = await page.post(result(first, "a"))
    assert end["outcome"] == {"type": "success"}
    assert (await engine.get(await page.turn())).paused
    await page.post(result(second, "b"))
    assert page.client.text() == ["Result: b"]
    turn = await engine.get(await page.turn())
    parts = [part for message in turn.messages for part in message.parts if isinstance(part, ToolResultPart)]
    assert [part.text for part in parts] == ["a", "b"]


async def test_error_and_parts_of_a_result_reach_the_model() -> None:
    engine = make_engine()
    page = Frontend(engine, PICK)
    await page.post(user("use it"))
    await page.post(result(page.calls[0], "", error="no permission"))
    assert "no permission" in page.client.text()[-1]
    second_page = Frontend(engine, PICK, thread="s2")
    await second_page.post(user("use it"))
    await second_page.post(result(second_page.calls[0], [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]))
    assert second_page.client.text() == ["Result: a\nb"]


async def test_pause_with_an_approval_stays_an_interrupt() -> None:
    """The result comes with the answer, and one run answers both."""
    engine = make_engine()
    page = Frontend(engine, PICK)
    end = await page.post(user("mix"))
    (interrupt,) = end["outcome"]["interrupts"]
    assert interrupt["reason"] == "tool_call"
    entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
    end = await page.post(result(page.calls[0]), resume=[entry])
    assert end["outcome"] == {"type": "success"}
    assert page.client.text() == ["Result: paid 5"]


async def test_result_and_approval_may_come_one_after_the_other() -> None:
    """Whichever comes first is stored, and the turn waits for the second_page one."""
    for result_first in (True, False):
        page = Frontend(make_engine(), PICK)
        (interrupt,) = (await page.post(user("mix")))["outcome"]["interrupts"]
        entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
        if result_first:
            (interrupt,) = (await page.post(result(page.calls[0])))["outcome"]["interrupts"]
            assert interrupt["reason"] == "tool_call"
            await page.post(resume=[entry])
        else:
            assert (await page.post(resume=[entry]))["outcome"] == {"type": "success"}
            assert page.client.text() == []
            await page.post(result(page.calls[0]))
        assert page.client.text() == ["Result: paid 5"]


async def test_user_message_supersedes_the_turn_that_waits() -> None:
    engine = make_engine()
    page = Frontend(engine, PICK)
    await page.post(user("use it"))
    await page.post(result(page.calls[0]), user("hello"))
    assert page.client.text() == ["You said: hello"]
    assert [str(row.status.outcome) for row in await engine.turns()] == ["finished", "aborted"]


async def test_client_that_returns_has_the_call_and_its_own_result() -> None:
    """A client without messages gets the engine's; one with its own result keeps that."""
    engine = make_engine()
    page = Frontend(engine, PICK)
    await page.post(user("use it"))
    before = json.loads(json.dumps(page.client.messages))
    await page.post(result(page.calls[0], "Linz"))
    ids = [message["id"] for message in page.client.messages]
    assert len(ids) == len(set(ids))
    assert [message["id"] for message in before] == ids[: len(before)]


TOO_MANY = [{**PICK, "name": f"t{number}"} for number in range(129)]


@pytest.mark.parametrize(
    "tools",
    [
        [{**PICK, "name": "look"}],
        [PICK, PICK],
        TOO_MANY,
        [{**PICK, "description": "x" * 300_000}],
        [{**PICK, "name": "a b"}],
        [{**PICK, "parameters": {"type": "array"}}],
        [{**PICK, "parameters": {"$ref": "#/nowhere"}}],
        [{**PICK, "parameters": "no schema"}],
    ],
    ids=["engine tool", "twice", "129", "large", "name", "array", "reference", "text"],
)
async def test_hostile_tools_are_refused_before_the_turn_begins(tools: list[Json]) -> None:
    engine = make_engine()
    page = Frontend(engine, *tools)
    end = await page.post(user("use it"))
    assert end["type"] == "RUN_ERROR"
    assert await engine.turns() == []


async def test_forged_results_are_refused_and_change_nothing() -> None:
    """Foreign ids, another thread's turn, an ended turn, a call that waits for a person: the journals stay."""
    engine = make_engine()
    page, second_page = Frontend(engine, PICK), Frontend(engine, thread="s2")
    await page.post(user("use it"))
    await second_page.post(user("approve"))
    (call,) = page.calls
    (paying,) = second_page.calls
    turn = call["id"].partition("/")[0]
    before = await journal(engine)
    forged: list[tuple[str, list[Json], str]] = [
        ("foreign thread", [result(call)], "s2"),
        ("foreign id", [result("call00001")], "s1"),
        ("no such call", [result(f"{turn}/call00009")], "s1"),
        ("no such turn", [result("feedfeed/call00001")], "s1"),
        ("two turns", [result(call), result(paying)], "s1"),
        ("two results", [result(call, "a"), result(call, "b", "second_page")], "s1"),
        ("approval", [result(paying, "paid")], "s2"),
        ("nested call", [result(f"{turn}/call00001:call00002")], "s1"),
        ("too large", [result(call, "x" * 100_000)], "s1"),
    ]
    for name, messages, thread in forged:
        attacker = Frontend(engine, thread=thread)
        end = await attacker.post(user("hi"), *messages)
        assert end["type"] == "RUN_ERROR", name
        assert await journal(engine) == before, name
    await page.post(result(call, "Linz"))
    ended = await journal(engine)
    attacker = Frontend(engine, thread="s1")
    assert (await attacker.post(user("hi"), result(call, "Wien")))["type"] == "RUN_ERROR"
    assert await journal(engine) == ended


def test_result_of_a_foreign_call_is_no_message_to_answer() -> None:
    run = {"threadId": "s1", "runId": "r1", "messages": [result("call_abc")]}
    with pytest.raises(ConfigError, match="no message to answer: the last message is of the role tool"):
        read_input(RunAgentInput.model_validate(run))


async def test_client_runs_the_arguments_that_a_hook_changed() -> None:
    """A snapshot replaces the arguments of the model before the run ends."""

    @before_tool
    def colder(_: TurnContext, call: CallView) -> ChangeArguments:
        return ChangeArguments({**call.arguments, "location": "Oslo"})

    model = ScriptedModel(asks_for(("pick", {"location": "Graz"})), "Done.")
    page = Frontend(Engine(model=model, hooks=[colder]), PICK)
    end = await page.post(user("use it"))
    assert end["outcome"] == {"type": "success"}
    (call,) = page.calls
    assert json.loads(call["function"]["arguments"]) == {"location": "Oslo"}
    await page.post(result(call))
    assert page.client.text() == ["Done."]


async def test_run_lasts_until_a_result_from_elsewhere(engine: Engine) -> None:
    """Nobody is asked for the result: the protocol's client would begin no other run without an answer."""
    page = Frontend(engine)
    async with anyio.create_task_group() as group:
        group.start_soon(settle_job, engine)
        end = await page.post(user("job"))
        assert (end["outcome"], page.client.text()) == ({"type": "success"}, ["Result: film.mp4"])
    assert page.client.types().count("RUN_STARTED") == 1


async def test_approval_is_asked_beside_a_result_from_elsewhere(engine: Engine) -> None:
    page = Frontend(engine)
    (interrupt,) = (await page.post(user("job-and-pay")))["outcome"]["interrupts"]
    assert interrupt["reason"] == "tool_call"
    entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
    async with anyio.create_task_group() as group:
        group.start_soon(settle_job, engine)
        await page.post(resume=[entry])
    assert page.client.text() == ["Result: paid 5"]


async def test_client_tool_runs_beside_a_result_from_elsewhere() -> None:
    @tool
    def render() -> Later:
        """Render elsewhere."""
        return Later()

    model = ScriptedModel(asks_for(("render", {}), ("pick", {"location": "Graz"})), "Done.")
    async with Engine(model=model, tools=[render], poll_interval=0.02) as engine:
        page = Frontend(engine, PICK)
        end = await page.post(user("use it"))
        assert end["outcome"] == {"type": "success"}
        async with anyio.create_task_group() as group:
            group.start_soon(settle_job, engine)
            await page.post(result(page.calls[1]))
        assert page.client.text() == ["Done."]


async def test_feed_that_ends_in_a_wait_is_a_run_that_asks_nothing(engine: Engine) -> None:
    turn = await engine.run(AGENT, "job")
    run = RunAgentInput.model_validate({"threadId": "s1", "runId": "r1", "messages": [user("job")]})
    encoder, client = AgUiEncoder(run), Client()
    client.hear(encoded for event in await engine.snapshot(turn.id) for encoded in encoder.encode(event))
    assert client.ends == []
    client.hear(encoder.close())
    client.end()
    assert client.ends[-1]["outcome"] == {"type": "success"}
