"""Nothing that a turn waits for has no time limit by default (docs/rules.md#time-limits)."""

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import anyio
import pytest
from pydantic import JsonValue

from turnwright import (
    Agent,
    Compact,
    Engine,
    Limits,
    Tool,
    ToolContext,
    TurnInfo,
    TurnResult,
    agent_tool,
    before_model,
    before_tool,
    input_guardrail,
    tool,
)
from turnwright.errors import CannotRunError, ConfigError
from turnwright.model import ScriptedModel, TextDelta, asks_for
from turnwright.model.protocol import ModelRequest
from turnwright.model.scripted import Line
from turnwright.tools import ToolResult
from turnwright_proof import explain
from turnwright_states import CallStatus, EndReason, Outcome

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Clerk", steps=3)


async def never(*_: object, **__: object) -> Any:  # noqa: ANN401 (any function of the app)
    """Return never."""
    await anyio.sleep_forever()


def model() -> ScriptedModel:
    return ScriptedModel(asks_for(("look", {})), "Done.")


@tool
async def look() -> str:
    """Look."""
    return "seen"


def waiting_tool(**options: Any) -> Tool:  # noqa: ANN401 (options of `@tool`)
    async def look() -> str:
        await anyio.sleep_forever()
        return "never"

    return tool(**options)(look)


class SilentModel:
    """A model of an app. Its stream yields `text`, and then nothing."""

    name = "silent"

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.calls = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta]:
        del request
        self.calls += 1
        if self.text:
            yield TextDelta(self.text)
        await anyio.sleep_forever()


class ImpatientModel(SilentModel):
    """A model of an app, with a time limit of its own for silence."""

    silence_timeout = 60.0


class Overriding(Tool):
    """A tool with a `run` of its own, without the time limit of `Tool.run`."""

    async def run(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        del arguments, context
        await anyio.sleep_forever()
        return ToolResult("never")

    async def execute(self, values: Mapping[str, object], context: ToolContext) -> object:
        raise AssertionError(f"this tool has its own `run`, which calls no `execute`: {values}, {context}")


def result(turn: TurnResult) -> tuple[CallStatus, str]:
    (part,) = (part for message in turn.messages for part in message.parts if part.type == "tool_result")
    return part.status, part.text


@pytest.mark.parametrize(
    "waits", [waiting_tool(), Overriding(name="look", description="Look.", parameters={"type": "object"})]
)
async def test_hanging_tool_ends_after_300_seconds(waits: Tool) -> None:
    start = anyio.current_time()
    turn = await Engine(model=model(), tools=[waits]).run(AGENT, "go")
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")
    assert result(turn) == (CallStatus.ERROR, "look did not finish within 300 s; part of its work may be done")
    assert 300 <= anyio.current_time() - start < 310


async def test_hanging_thread_ends_the_call() -> None:
    over = threading.Event()

    @tool(name="look")
    def waits() -> None:
        """Look."""
        over.wait()

    turn = await Engine(model=model(), tools=[waits], tool_timeout=5).run(AGENT, "go")
    over.set()
    assert result(turn)[1].startswith("look did not finish within 5 s")


@pytest.mark.parametrize(
    ("engine", "agent"),
    [
        ({"tool_timeout": 60}, {}),
        ({"limits": Limits(tool_timeout=60)}, {}),
        ({"tool_timeout": 5}, {"tool_timeout": 60}),
        ({"tool_timeout": None}, {"tool_timeout": 60}),
    ],
)
async def test_the_setting_of_engine_and_agent_is_the_limit(engine: dict[str, Any], agent: dict[str, Any]) -> None:
    turn = await Engine(model=model(), tools=[waiting_tool()], **engine).run(Agent(name="Clerk", **agent), "go")
    assert result(turn)[1].startswith("look did not finish within 60 s")


async def test_a_timeout_of_the_tool_precedes_the_setting() -> None:
    engine = Engine(model=model(), tools=[waiting_tool(timeout=900)], tool_timeout=60)
    assert result(await engine.run(AGENT, "go"))[1].startswith("look did not finish within 900 s")


async def test_resumed_turn_keeps_the_setting() -> None:
    """It is a limit of the turn, and so in its journal."""
    waits = waiting_tool(needs_approval=True)
    first = Engine(model=model(), tools=[waits], tool_timeout=60)
    turn = await first.run(AGENT, "go")
    second = Engine(model=ScriptedModel("Done."), tools=[waits], store=first.store, tool_timeout=5)
    assert result(await second.resume(turn.id, {"approval-1": True}))[1].startswith("look did not finish within 60 s")


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "60", True])
def test_an_invalid_setting_is_refused_when_the_engine_is_made(value: Any) -> None:  # noqa: ANN401 (a mistake)
    with pytest.raises(ConfigError, match="tool_timeout must be a number above 0"):
        Engine(model=model(), tool_timeout=value)


@pytest.mark.parametrize(
    ("silent", "seconds"), [(SilentModel(), 1800), (SilentModel("Half"), 1800), (ImpatientModel(), 60)]
)
async def test_silent_custom_model_fails_the_attempts(silent: SilentModel, seconds: int) -> None:
    start = anyio.current_time()
    turn = await Engine(model=silent, limits=Limits(max_retries=1)).run(AGENT, "go")
    assert turn.reason is EndReason.MODEL_ERROR
    assert turn.error == f"model silent yielded no part of its reply for {seconds} s (`silence_timeout`)"
    assert silent.calls == 2
    assert 2 * seconds <= anyio.current_time() - start < 2 * seconds + 60


async def test_a_silent_model_for_summaries_does_not_keep_the_turn_open() -> None:
    agent = Agent(name="Clerk", compaction=Compact(at_tokens=10, keep_steps=1, model="silent"))
    scripted = ScriptedModel(asks_for(("look", {})), asks_for(("look", {})), "Done.")
    models = {"silent": ImpatientModel()}.__getitem__
    turn = await Engine(model=scripted, models=models, tools=[look], limits=Limits(max_retries=0)).run(
        agent, "go " * 99
    )
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")


async def test_hanging_scripted_function_fails_the_attempt() -> None:
    turn = await Engine(model=ScriptedModel(never), limits=Limits(max_retries=0)).run(AGENT, "go")
    assert turn.reason is EndReason.MODEL_ERROR


async def test_hanging_approval_check_refuses_the_call() -> None:
    turn = await Engine(model=model(), tools=[waiting_tool(needs_approval=never)]).run(AGENT, "go")
    assert result(turn) == (
        CallStatus.ERROR,
        "refused and not run: the approval check of look did not finish within 300 s",
    )


def endless_agent(option: str) -> Agent[Any, Any]:
    options: dict[str, Any] = {option: never}
    if option == "output_validators":
        options = {"output_type": int, "output_validators": [never]}
    return Agent(name="Clerk", **options)


@pytest.mark.parametrize("option", ["instructions", "prepare_tools", "output_validators"])
async def test_hanging_function_of_an_agent_ends_the_turn(option: str) -> None:
    answers = ScriptedModel(asks_for(("final_result", {"response": 3})), repeat=True)
    turn = await Engine(model=answers).run(endless_agent(option), "go")
    assert turn.reason is EndReason.ENGINE_ERROR
    assert "did not finish within 30 s" in turn.error


@pytest.mark.parametrize("option", ["history_processor", "synthesize"])
async def test_hanging_function_of_an_engine_ends_the_turn(option: str) -> None:
    code: Any = {option: never}
    turn = await Engine(model=model(), tools=[look], **code).run(AGENT, "go")
    assert (turn.reason, turn.error) == (EndReason.ENGINE_ERROR, f"{option} 'never' did not finish within 300 s")


async def test_hanging_hook_or_guardrail_ends_the_turn() -> None:
    extensions: list[Any] = [{"hooks": [before_model(never)]}, {"guardrails": [input_guardrail(never)]}]
    for code in extensions:
        turn = await Engine(model=model(), tools=[look], **code).run(AGENT, "go")
        assert turn.reason is EndReason.ENGINE_ERROR
        assert turn.error.endswith("did not finish within 30 s")


async def test_hanging_dependency_factory_releases_the_turn() -> None:
    engine = Engine(model=model(), tools=[look], deps=never)
    with pytest.raises(CannotRunError, match="deps: never did not finish within 300 s: the turn stays as it is"):
        await engine.run(AGENT, "go")


async def test_hanging_close_of_dependencies_keeps_no_caller(caplog: pytest.LogCaptureFixture) -> None:
    async def make(_: TurnInfo) -> AsyncIterator[int]:
        yield 3
        await anyio.sleep_forever()

    turn = await Engine(model=model(), tools=[look], deps=make).run(AGENT, "go")
    assert turn.outcome is Outcome.FINISHED
    assert "did not finish within 300 s while it closed them" in caplog.text


async def test_sub_agent_has_only_the_limits_of_the_sub_agents_turn() -> None:
    """It may wait for a person, and its tools have time limits."""
    helper = Agent(name="Helper", description="Helps.", tools=["look"], mode="subagent")
    lines: list[Line] = [asks_for(("Helper", {"prompt": "Look."})), asks_for(("look", {})), "It hung.", "Done."]
    tools = [agent_tool(helper), waiting_tool()]
    turn = await Engine(model=ScriptedModel(*lines), tools=tools).run(AGENT, "go")
    assert (turn.text, result(turn)[0]) == ("Done.", CallStatus.OK)
    assert result(turn)[1].startswith("It hung.")


def limits_in_certificate(*tools: Tool, **options: Any) -> Iterator[tuple[str, float | None]]:  # noqa: ANN401 (of engines)
    code = explain(Engine(model=model(), tools=tools, **options), AGENT).code
    assert code is not None
    assert code.tools is not None
    yield from ((tool.tool, tool.timeout) for tool in code.tools)


def test_the_certificate_has_the_time_limit_of_each_tool() -> None:
    helper = agent_tool(Agent(name="Helper", description="Helps."))
    tools = [waiting_tool(name="a"), waiting_tool(name="b", timeout=9), waiting_tool(name="c", timeout=None)]
    assert dict(limits_in_certificate(*tools, helper)) == {"a": 300, "b": 9, "c": None, "Helper": None}
    assert dict(limits_in_certificate(*tools, tool_timeout=60)) == {"a": 60, "b": 9, "c": None}
    engine = Engine(model=model(), tools=[*tools, helper], tool_timeout=None)
    code = explain(engine, AGENT).code
    assert code is not None
    assert code.endless_tools == ("a", "c")


@pytest.mark.no_waiting(False)
@pytest.mark.parametrize("kind", ["tool", "hook"])
async def test_waiting_for_a_thread_is_no_part_of_the_time(kind: str) -> None:
    """Of 20 functions on 2 threads, each has its time when it runs."""
    starts: list[int] = []

    def works(*_: object) -> None:
        starts.append(1)
        time.sleep(0.05)

    @tool(name="look", timeout=0.3)
    def slow() -> str:
        """Look."""
        works()
        return "seen"

    def line(request: ModelRequest) -> Any:  # noqa: ANN401 (a line of a script)
        return asks_for(("look", {})) if request.first else "Done."

    code: dict[str, Any] = {"tools": [slow]} if kind == "tool" else {"tools": [look], "hooks": [hook_of(works)]}
    async with Engine(model=ScriptedModel(line, repeat=True), max_threads=2, **code) as engine:
        turns: list[TurnResult] = []

        async def run() -> None:
            turns.append(await engine.run(AGENT, "go"))

        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(run)
    assert [(turn.outcome, result(turn)) for turn in turns] == [(Outcome.FINISHED, (CallStatus.OK, "seen"))] * 20
    assert len(starts) == 20


def hook_of(function: Callable[..., None]) -> Any:  # noqa: ANN401 (of any dependencies)
    return before_tool(timeout=0.3)(function)


@pytest.mark.parametrize("count", [0, -1, 2.5, True, "40"])
def test_an_invalid_number_of_threads_is_refused(count: Any) -> None:  # noqa: ANN401 (a mistake)
    with pytest.raises(ConfigError, match="max_threads must be a number of threads, at least 1"):
        Engine(model=model(), max_threads=count)


async def test_hanging_thread_frees_the_slot_after_the_timeout() -> None:
    over, texts = threading.Event(), list[str]()

    @tool(name="look")
    def hangs() -> None:
        """Look."""
        over.wait()

    def line(request: ModelRequest) -> Any:  # noqa: ANN401 (a line of a script)
        return asks_for(("look", {})) if request.first else "Done."

    engine = Engine(model=ScriptedModel(line, repeat=True), tools=[hangs], max_threads=1, tool_timeout=5)

    async def run() -> None:
        texts.append(result(await engine.run(AGENT, "go"))[1])

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(run)
    over.set()
    assert [text.startswith("look did not finish within 5 s") for text in texts] == [True] * 3
