"""Tasks of a server: calls whose results come later, at which workers look (rule 29 of waits)."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError
from pydantic import JsonValue
from typing_extensions import override

from turnwright import Agent, Engine, Later, Tool, ToolContext, TurnResult, agent_tool
from turnwright._base.background_task import background_task
from turnwright.errors import ConfigError, StoreError, UnreadableTurnError
from turnwright.journal.polling import WaitPoller
from turnwright.message import ToolResultPart
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import MemoryStore, TurnRow
from turnwright.tools import NeedsPersonError
from turnwright.tools.mcp import McpServer, mcp_tools
from turnwright.tools.mcp.tasks import LONGEST_INTERVAL, SHORTEST_INTERVAL
from turnwright_states import CallStatus, InterruptKind
from turnwright_states.facts import Fact
from turnwright_testing import clock
from turnwright_testing.faults import StoreWrapper

from .conftest import Context, Stage

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Clerk")
DATES = {"createdAt": "2026-11-29T10:00:00Z", "lastUpdatedAt": "2026-11-29T10:00:00Z", "ttlMs": 60_000}
FREE = types.ToolAnnotations(read_only_hint=True)
SURE = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}


class Job(types.RequestParams):
    """The parameters of a request about a task."""

    task_id: str
    input_responses: dict[str, Any] | None = None


class Jobs:
    """A server whose tool `render` makes a task, and the requests about it."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.state: dict[str, Any] = {"status": "working"}
        self.requests: list[tuple[str, dict[str, Any]]] = []
        for method in ("get", "update", "cancel"):
            stage.server.add_request_handler(f"tasks/{method}", Job, self._handler(method))

        @stage.tool("render", FREE)
        async def render(_context: Context, _params: types.CallToolRequestParams) -> Any:  # noqa: ANN401
            return {"resultType": "task", "taskId": "job-1", **DATES, **self.state}

    def _handler(self, method: str) -> Any:  # noqa: ANN401
        async def handle(_context: Context, params: Job) -> Any:  # noqa: ANN401
            self.requests.append((method, params.input_responses or {}))
            if params.task_id != "job-1":
                raise MCPError(types.INVALID_PARAMS, "there is no such task")
            if method == "get":
                return {"resultType": "complete", "taskId": "job-1", **DATES, **self.state}
            return {"resultType": "complete"}

        return handle

    def complete(self, text: str = "film.mp4") -> None:
        content = [{"type": "text", "text": text}]
        self.state = {"status": "completed", "result": {"resultType": "complete", "content": content}}

    def ask(self, *keys: str) -> None:
        params = {"mode": "form", "message": "Sure?", "requestedSchema": SURE}
        requests = {key: {"method": "elicitation/create", "params": params} for key in keys}
        self.state = {"status": "input_required", "inputRequests": requests}

    @property
    def methods(self) -> list[str]:
        return [method for method, _ in self.requests]


@pytest.fixture
def jobs(stage: Stage) -> Jobs:
    return Jobs(stage)


async def look_again(engine: Engine) -> list[TurnResult]:
    """Recover after the time in which a task is looked at once. The event loop skips it."""
    await anyio.sleep(SHORTEST_INTERVAL)
    return await engine.recover()


def results(turn: TurnResult) -> list[tuple[CallStatus, str]]:
    parts = (part for message in turn.messages for part in message.parts)
    return [(part.status, part.text) for part in parts if isinstance(part, ToolResultPart)]


def model() -> ScriptedModel:
    return ScriptedModel(asks_for(("s__render", {})), "Done.")


async def test_task_is_a_wait_for_the_result(jobs: Jobs) -> None:
    """Another process looks at it, and the call runs again only when the task has ended."""
    store = MemoryStore()
    async with mcp_tools({"s": jobs.stage.server}, tasks=True) as tools:
        paused = await Engine(model=model(), tools=tools, store=store).run(AGENT, "Render.")
        (interrupt,) = paused.interrupts
        assert (interrupt.kind, interrupt.expires_at is not None) == (InterruptKind.RESULT, True)
    async with mcp_tools({"s": jobs.stage.server}, tasks=True) as tools:
        engine = Engine(model=ScriptedModel("Done."), tools=tools, store=store)
        assert await engine.recover() == []
        jobs.complete()
        assert await engine.recover() == [], "it has looked just now"
        (done,) = await look_again(engine)
    assert (results(done), done.text) == ([(CallStatus.OK, "film.mp4")], "Done.")
    assert len(jobs.stage.calls) == 1


async def test_questions_of_a_task_are_asked_once(jobs: Jobs) -> None:
    """`tasks/update` brings the answers. The task may show answered requests for a while."""
    async with mcp_tools({"s": jobs.stage.server}, tasks=True) as tools, Engine(model=model(), tools=tools) as engine:
        paused = await engine.run(AGENT, "Render.")
        jobs.ask("a", "b")
        (asking,) = await look_again(engine)
        assert [open_.question.splitlines()[0] for open_ in asking.interrupts] == ["s asks: Sure?"] * 2
        first, second = (open_.id for open_ in asking.interrupts)
        waiting = await engine.resume(paused.id, {second: "no", first: "yes"})
        assert [open_.kind for open_ in waiting.interrupts] == [InterruptKind.RESULT]
        updates = [json.loads(json.dumps(responses)) for method, responses in jobs.requests if method == "update"]
        assert [{key: answer["content"] for key, answer in update.items()} for update in updates] == [
            {"a": {"sure": True}, "b": {"sure": False}}
        ]
        assert await look_again(engine) == []
        jobs.complete()
        (done,) = await look_again(engine)
        assert results(done) == [(CallStatus.OK, "film.mp4")]
        assert "cancel" not in jobs.methods


@pytest.mark.parametrize(
    ("milliseconds", "seconds"),
    [
        (1e15, LONGEST_INTERVAL),
        (math.inf, LONGEST_INTERVAL),
        (5000, 5),
        (0, SHORTEST_INTERVAL),
        (-5, SHORTEST_INTERVAL),
    ],
)
async def test_interval_of_a_server_is_within_bounds(jobs: Jobs, milliseconds: float, seconds: float) -> None:
    """With a huge one the task would never be looked at, and its result be lost."""
    jobs.state["pollIntervalMs"] = milliseconds
    async with mcp_tools({"s": jobs.stage.server}, tasks=True) as tools, Engine(model=model(), tools=tools) as engine:
        await engine.run(AGENT, "Render.")
        jobs.complete()
        await anyio.sleep(seconds - 0.5)
        assert await engine.recover() == []
        await anyio.sleep(0.5)
        (done,) = await engine.recover()
        assert results(done) == [(CallStatus.OK, "film.mp4")]


async def test_time_of_a_task_that_is_no_number_is_an_error(stage: Stage) -> None:
    @stage.tool("render", FREE)
    async def render(_context: Context, _params: types.CallToolRequestParams) -> Any:  # noqa: ANN401
        return {"resultType": "task", "taskId": "job-1", "status": "working", **DATES, "ttlMs": math.inf}

    async with mcp_tools({"s": stage.server}, tasks=True) as tools, Engine(model=model(), tools=tools) as engine:
        ((status, text),) = results(await engine.run(AGENT, "Render."))
    assert (status, text.partition(": its")[0]) == (CallStatus.ERROR, "server s")


def test_worker_looks_at_tasks(jobs: Jobs) -> None:
    """The event loop skips the time between the looks."""

    async def scene() -> None:
        async with (
            mcp_tools({"s": jobs.stage.server}, tasks=True) as tools,
            Engine(model=model(), tools=tools) as engine,
        ):
            turn_id, stopping = await engine.submit(AGENT, "Render."), anyio.Event()
            async with background_task(engine.run_worker, stopping):
                while jobs.methods.count("get") < 3:  # noqa: ASYNC110 (the time is skipped)
                    await anyio.sleep(1)
                jobs.complete()
                while (turn := await engine.get(turn_id)).outcome is None:  # noqa: ASYNC110 (the time is skipped)
                    await anyio.sleep(1)
                stopping.set()
            assert results(turn) == [(CallStatus.OK, "film.mp4")]

    clock.run(scene)


async def test_turn_that_is_deleted_during_the_look_is_no_fault(jobs: Jobs) -> None:
    async with mcp_tools({"s": jobs.stage.server}, tasks=True) as tools, Engine(model=model(), tools=tools) as engine:
        paused = await engine.run(AGENT, "Render.")
        jobs.complete()

        async def delete(_context: Context, _params: Job) -> Any:  # noqa: ANN401
            await engine.delete(paused.id)
            return {"resultType": "complete", "taskId": "job-1", **DATES, **jobs.state}

        jobs.stage.server.add_request_handler("tasks/get", Job, delete)
        assert await look_again(engine) == []
        assert await engine.turns() == [], "it was deleted"


class Unsteady(StoreWrapper):
    """A store whose turns seem written to `seconds` after they were, and whose next read of a journal fails."""

    error: StoreError | None = None
    seconds = 0

    async def turns(self, **options: Any) -> list[TurnRow]:  # noqa: ANN401
        rows = await self.inner.turns(**options)
        return [replace(row, updated_at=row.updated_at + self.seconds) for row in rows]

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, Fact]]:
        error, self.error = self.error, None
        if error is not None:
            raise error
        return await self.inner.facts(turn_id, after)


@pytest.mark.parametrize(
    ("error", "is_known"),
    [
        (StoreError("no such disk"), True),
        (UnreadableTurnError("t1", "torn"), True),
        (StoreError("no such disk"), False),
    ],
)
async def test_task_of_a_turn_unreadable_for_a_while_is_kept(jobs: Jobs, error: StoreError, *, is_known: bool) -> None:
    """A failed read does not end the wait."""
    store = Unsteady(MemoryStore())
    async with (
        mcp_tools({"s": jobs.stage.server}, tasks=True) as tools,
        Engine(model=model(), tools=tools, store=store) as engine,
    ):
        paused = await engine.run(AGENT, "Render.")
        poller = WaitPoller(store, {tool.name: tool for tool in tools}, engine.setup.now)
        if is_known:
            assert await poller.poll() == []
            store.seconds = 1  # so that it is read again
        store.error = error
        assert await poller.poll() == []
        assert store.error is None
        jobs.complete()
        await anyio.sleep(SHORTEST_INTERVAL)
        assert await poller.poll() == [paused.id]
    assert "cancel" not in jobs.methods


def test_worker_outlives_a_tool_that_fails_to_look() -> None:
    """The other waits are looked at: an error of a tool is logged."""

    class Film(Tool):
        def __init__(self, name: str) -> None:
            super().__init__(name=name, description="Render.", parameters={"type": "object", "properties": {}})

        @property
        @override
        def watches_waits(self) -> bool:
            return True

        @override
        async def is_ready(self, data: JsonValue) -> bool:
            if data == "broken":
                raise KeyError(data)
            return True

        @override
        async def execute(self, values: Mapping[str, object], context: ToolContext) -> str:
            if context.attempt == 1:
                raise Later(kept=self.name)
            return "film.mp4"

    async def scene() -> None:
        calls = ScriptedModel(asks_for(("broken", {})), asks_for(("film", {})), "Done.")
        async with Engine(model=calls, tools=[Film("broken"), Film("film")]) as engine:
            first, second = [await engine.submit(AGENT, "Render.") for _ in range(2)]
            stopping = anyio.Event()
            async with background_task(engine.run_worker, stopping):
                while (await engine.get(second)).outcome is None:  # noqa: ASYNC110 (the time is skipped)
                    await anyio.sleep(1)
                stopping.set()
            assert (await engine.get(first)).paused

    clock.run(scene)


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        ({"status": "failed", "error": {"code": -1, "message": "the disk is full"}}, "server s: the disk is full"),
        ({"status": "failed"}, "server s: the task was failed"),
        ({"status": "cancelled", "statusMessage": "too expensive"}, "server s: too expensive"),
        ({"status": "strange"}, "server s: its answer violates the protocol: "),
        ({"status": "completed", "result": {"content": 7}}, "server s: its answer violates the protocol: "),
        (
            {"status": "input_required", "inputRequests": {"r": {"method": "roots/list"}}},
            "server s: it needs roots/list, which is not offered",
        ),
    ],
)
async def test_task_that_fails_is_an_error_of_the_call(jobs: Jobs, state: dict[str, Any], problem: str) -> None:
    async with mcp_tools({"s": jobs.stage.server}, tasks=True) as tools, Engine(model=model(), tools=tools) as engine:
        paused = await engine.run(AGENT, "Render.")
        jobs.state = state
        done = await engine.resume(paused.id, {paused.interrupts[0].id: "rerun"})
        ((status, text),) = results(done)
        assert (status, text[: len(problem)]) == (CallStatus.ERROR, problem)


@pytest.mark.parametrize("end", ["abort", "reject", "settle", "delete"])
async def test_task_that_nobody_waits_for_is_canceled_once(jobs: Jobs, end: str) -> None:
    async with mcp_tools({"s": jobs.stage.server}, tasks=True) as tools, Engine(model=model(), tools=tools) as engine:
        paused = await engine.run(AGENT, "Render.")
        await engine.recover()
        (interrupt,) = paused.interrupts
        if end == "abort":
            await engine.abort(paused.id)
        elif end == "reject":
            await engine.resume(paused.id, {interrupt.id: "reject"})
        elif end == "settle":
            await engine.settle(interrupt.key, "from elsewhere")
            await engine.resume(paused.id)
        else:
            await engine.delete(paused.id)
        assert "cancel" not in jobs.methods
        await engine.recover()
        await engine.recover()
        assert jobs.methods.count("cancel") == 1


async def test_task_of_a_sub_agent_goes_on_too(jobs: Jobs) -> None:
    helper = Agent(name="Helper", description="Renders.")
    scripted = ScriptedModel(
        asks_for(("helper", {"prompt": "Render."})), asks_for(("s__render", {})), "Rendered.", "Done."
    )
    async with mcp_tools({"s": jobs.stage.server}, tasks=True) as tools:
        every_tool = [*tools, agent_tool(helper, name="helper")]
        async with Engine(model=scripted, tools=every_tool, agents=[AGENT, helper]) as engine:
            await engine.run(AGENT, "Delegate.")
            jobs.complete()
            done, *_ = await look_again(engine)
            assert (await engine.get(done.id)).text == "Done."


async def test_server_without_the_option_makes_no_tasks(stage: Stage) -> None:
    """The client does not offer the extension, so a task is a violation of the protocol."""
    jobs = Jobs(stage)
    async with mcp_tools({"s": stage.server}) as (render,):
        with pytest.raises(Exception, match="its answer violates the protocol"):
            await render.run({}, ToolContext(turn_id="t1", call_id="c1"))
    assert jobs.requests == []


async def test_task_that_works_waits_with_its_id(jobs: Jobs) -> None:
    async with mcp_tools({"s": jobs.stage.server}, tasks=True) as (render,):
        with pytest.raises(NeedsPersonError) as needs:
            await render.run({}, ToolContext(turn_id="t1", call_id="c1"))
    data: Any = needs.value.ask.kept
    assert (data["task"], needs.value.ask.expires_in) == ("job-1", LONGEST_INTERVAL)


def test_option_is_a_boolean() -> None:
    assert McpServer(command="x", tasks=True).tasks
    assert not McpServer(command="x").tasks
    with pytest.raises((ConfigError, ValueError)):
        McpServer.model_validate({"command": "x", "tasks": "perhaps"})
