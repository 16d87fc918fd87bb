"""Tools of one turn that its client runs (docs/rules.md#client-tools)."""

from collections.abc import Callable
from typing import Any

import pytest

from turnwright import (
    Agent,
    ConfigError,
    Engine,
    ExternalTool,
    InvalidAnswerError,
    Limits,
    TurnConflictError,
    TurnResult,
    UnreadableTurnError,
    agent_tool,
    approve,
    external_tool,
    tool,
)
from turnwright.message import ToolResultPart
from turnwright.model import ScriptedModel, asks_for
from turnwright.rules import Rule
from turnwright.store import MemoryStore, SqliteStore
from turnwright.tools.later import CLIENT_TOOLS_LIMIT, MOST_CLIENT_TOOLS, client_tools
from turnwright.tools.result import ToolResult
from turnwright.transcript.events import TurnPausedEvent
from turnwright_states import InterruptKind, Outcome
from turnwright_states.facts import TurnStarted
from turnwright_states.limits import ToolCallLimits
from turnwright_states.replay import replay

# ruff: noqa: ANN401 (what a test gives may be anything)

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Studio")
PARAMETERS: Any = {"type": "object", "properties": {"hue": {"type": "string"}}}


def client_tool(name: str = "pick", **options: Any) -> ExternalTool:
    fields: dict[str, Any] = {"description": "Pick a color.", "parameters": PARAMETERS}
    return external_tool(name=name, **(fields | options))


@tool
def look() -> str:
    """Look."""
    return "seen"


def read_results(model: ScriptedModel) -> list[str]:
    """Return the results that the model read in its last request."""
    parts = [part for message in model.requests[-1].messages for part in message.parts]
    return [part.text for part in parts if isinstance(part, ToolResultPart)]


async def started_fact(engine: Engine, turn_id: str) -> TurnStarted:
    fact = (await engine.store.facts(turn_id))[0][1]
    assert isinstance(fact, TurnStarted)
    return fact


async def test_arguments_that_do_not_fit_go_back_to_the_model() -> None:
    """Nobody is asked about such a call, and the client gets the mended one alone. No result is taken for it."""
    fixed = {"hue": "cold"}
    model = ScriptedModel(asks_for(("pick", {"hue": 7}), ("pick", fixed)), "Blue.")
    async with Engine(model=model) as engine:
        turn: TurnResult = await engine.run(AGENT, "Pick.", tools=[client_tool(needs_approval=True)])
        (interrupt,) = turn.interrupts
        assert (interrupt.kind, interrupt.arguments) == (InterruptKind.APPROVAL, fixed)
        with pytest.raises(InvalidAnswerError, match="7 is not of type 'string'"):
            await engine.answer(turn.id, {interrupt.id: approve(arguments={"hue": 7})})
        turn = await engine.resume(turn.id, {interrupt.id: True})
        (interrupt,) = turn.interrupts
        with pytest.raises(InvalidAnswerError, match="no open call has this key"):
            await engine.settle(f"{turn.id}:call00001", "red")
        await engine.settle(interrupt.key, "blue")
        assert (await engine.resume(turn.id)).text == "Blue."
        assert read_results(model) == ["invalid arguments:\n- $.hue: 7 is not of type 'string'", "blue"]


async def test_client_tool_is_offered_and_waits_for_its_result() -> None:
    """Rule 30: the agent may use it, whatever its own tools are, and `settle` brings the result."""
    model = ScriptedModel(asks_for(("pick", {"hue": "cold"})), "Blue it is.")
    async with Engine(model=model, tools=[look]) as engine:
        turn: TurnResult = await engine.run(Agent(name="Studio", tools=("look",)), "Pick.", tools=[client_tool()])
        (interrupt,) = turn.interrupts
        assert [spec.name for spec in model.requests[0].tools] == ["look", "pick"]
        assert model.requests[0].tools[1].parameters == PARAMETERS
        assert (interrupt.kind, interrupt.tool, interrupt.key) == (
            InterruptKind.RESULT,
            "pick",
            f"{turn.id}:{interrupt.call}",
        )
        assert await engine.settle(interrupt.key, "blue", by="browser")
        assert (await engine.resume(turn.id)).text == "Blue it is."
        assert read_results(model) == ["blue"]
        assert replay(await engine.store.facts(turn.id)).fault is None


async def test_client_tool_belongs_to_one_turn_alone() -> None:
    """The next turn of the same agent is not offered it."""
    model = ScriptedModel("One.", "Two.")
    async with Engine(model=model) as engine:
        await engine.run(AGENT, "One.", session="s", tools=[client_tool()])
        await engine.run(AGENT, "Two.", session="s")
        assert [[spec.name for spec in request.tools] for request in model.requests] == [["pick"], []]


async def test_turn_without_client_tools_keeps_its_journal() -> None:
    async with Engine(model=ScriptedModel("Done.")) as engine:
        turn = await engine.run(AGENT, "Go.", tools=[])
        assert '"client_tools"' not in (await started_fact(engine, turn.id)).payload()


async def test_start_and_submit_take_client_tools() -> None:
    model = ScriptedModel(asks_for(("pick", {})), asks_for(("pick", {})))
    async with Engine(model=model) as engine:
        handle = await engine.start(AGENT, "Pick.", tools=[client_tool()])
        assert (await handle.result()).paused
        async with engine.stream(AGENT, "Pick.", tools=[client_tool()]) as events:
            assert isinstance([event async for event in events][-1], TurnPausedEvent)
        turn_id = await engine.submit(AGENT, "Pick.", tools=[client_tool()])
        assert (await started_fact(engine, turn_id)).client_tools[0]["name"] == "pick"


async def test_another_process_resumes_with_the_client_tools(tmp_path: Any) -> None:
    """The first fact has the declarations, so an engine that was never given the tools offers and settles them."""
    path = tmp_path / "turns.db"
    declared = client_tool(
        output_schema={"type": "object", "required": ["hue"]},
        otherwise=ToolResult("gray", {"hue": "gray"}),
        expires_in=60,
        needs_approval=True,
        approvers=2,
        read_only=True,
        return_direct=True,
    )
    async with Engine(model=ScriptedModel(asks_for(("pick", {}))), store=SqliteStore(path)) as engine:
        turn = await engine.run(AGENT, "Pick.", tools=[declared])
        assert turn.interrupts[0].kind is InterruptKind.APPROVAL
        assert (
            ExternalTool.of_json((await started_fact(engine, turn.id)).client_tools[0]).to_json() == declared.to_json()
        )
    model = ScriptedModel()
    async with Engine(model=model, store=SqliteStore(path)) as engine:
        await engine.resume(turn.id, {turn.interrupts[0].id: True}, by="ann")
        changed = await engine.resume(turn.id, {turn.interrupts[0].id: True}, by="bob")
        (interrupt,) = changed.interrupts
        with pytest.raises(InvalidAnswerError, match="does not fit output_schema"):
            await engine.settle(interrupt.key, {"color": "blue"})
        assert await engine.settle(interrupt.key, {"hue": "blue"})
        assert (await engine.resume(turn.id)).text == '{"hue":"blue"}'
        assert model.requests == [], "return_direct is in the declaration too"


async def test_resumed_turn_offers_its_client_tools_again(tmp_path: Any) -> None:
    path = tmp_path / "turns.db"
    async with Engine(model=ScriptedModel(asks_for(("pick", {}))), store=SqliteStore(path)) as engine:
        turn = await engine.run(AGENT, "Pick.", tools=[client_tool()])
    model = ScriptedModel(asks_for(("pick", {"hue": "warm"})), "Red.")

    @tool
    def pick() -> str:
        """Pick by a newer release of the app."""
        raise AssertionError

    async with Engine(model=model, tools=[pick], store=SqliteStore(path)) as engine:
        await engine.settle(turn.interrupts[0].key, "blue")
        (interrupt,) = (await engine.resume(turn.id)).interrupts
        assert [spec.name for spec in model.requests[0].tools] == ["pick"]
        assert model.requests[0].tools[0].description == "Pick a color."
        assert interrupt.arguments == {"hue": "warm"}


async def test_approval_of_a_client_tool_takes_changed_arguments() -> None:
    """The process that approves needs the tool (decision 88), and finds it in the journal."""
    store = MemoryStore()
    async with Engine(model=ScriptedModel(asks_for(("pick", {"hue": "cold"}))), store=store) as engine:
        turn = await engine.run(AGENT, "Pick.", tools=[client_tool(needs_approval=True)])
        answer = approve(arguments={"hue": "warm"})
        (interrupt,) = (await engine.resume(turn.id, {turn.interrupts[0].id: answer})).interrupts
        assert (interrupt.kind, interrupt.arguments) == (InterruptKind.RESULT, {"hue": "warm"})


async def test_sub_agent_has_no_client_tools() -> None:
    model = ScriptedModel(asks_for(("Helper", {"prompt": "Help."})), asks_for(("pick", {})), "Helped.", "Done.")
    helper = agent_tool(Agent(name="Helper", description="Helps.", mode="subagent"))
    async with Engine(model=model, tools=[helper]) as engine:
        turn = await engine.run(AGENT, "Go.", tools=[client_tool()])
        assert turn.outcome is Outcome.FINISHED
        assert [[spec.name for spec in request.tools] for request in model.requests] == [
            ["Helper", "pick"],
            [],
            [],
            ["Helper", "pick"],
        ]


async def test_limit_and_rules_know_the_client_tools() -> None:
    """A client tool that writes makes the turn one that writes, and a rule may name it."""
    limits = Limits(tool_calls=ToolCallLimits(read_only=7, default=5, writing=3))
    rules = [Rule("look-first", before="pick", need="look")]
    async with Engine(model=ScriptedModel("a", "b"), tools=[look], limits=limits) as engine:
        plain = await engine.run(AGENT, "Go.")
        with pytest.raises(ConfigError, match="pick"):
            await engine.run(Agent(name="Ruled", rules=rules), "Go.")
        ruled = Agent(name="Ruled", rules=rules)
        turn = await engine.run(ruled, "Go.", tools=[client_tool(read_only=False)])
        counts = [(await started_fact(engine, turn_id)).limits.tool_calls for turn_id in (plain.id, turn.id)]
        assert counts == [5, 3]


async def test_id_keeps_a_digest_of_the_client_tools() -> None:
    """Rule 25: the tools are part of the request."""
    async with Engine(model=ScriptedModel("Done.")) as engine:
        await engine.run(AGENT, "Go.", id="k1", tools=[client_tool()])
        assert (await engine.run(AGENT, "Go.", id="k1", tools=[client_tool()])).text == "Done."
        for tools in ([], [client_tool(description="Another.")]):
            with pytest.raises(TurnConflictError, match=r"^turn k1 exists with other tools: use another id"):
                await engine.run(AGENT, "Go.", id="k1", tools=tools)


async def test_fork_keeps_the_client_tools() -> None:
    async with Engine(model=ScriptedModel(asks_for(("pick", {})), "Blue.")) as engine:
        turn = await engine.run(AGENT, "Pick.", tools=[client_tool()])
        fork = await engine.fork(turn.id, at=len(await engine.store.facts(turn.id)))
        (interrupt,) = (await engine.get(fork)).interrupts
        await engine.settle(interrupt.key, "blue")
        assert (await engine.resume(fork)).text == "Blue."


NESTED: Any = {"type": "object"}
for _ in range(10_000):
    NESTED = {"type": "object", "properties": {"a": NESTED}}

HOSTILE: dict[str, tuple[Callable[[], Any], str]] = {
    "name of an engine tool": (lambda: [client_tool("look")], "^tools: 'look' is a tool of the engine: rename yours$"),
    "one name twice": (lambda: [client_tool(), client_tool()], "^tools: two tools are called 'pick'"),
    "129 tools": (
        lambda: [client_tool(f"t{number}") for number in range(MOST_CLIENT_TOOLS + 1)],
        "^tools: 129 tools; the limit: 128$",
    ),
    "257 KiB": (
        lambda: [client_tool(description="x" * CLIENT_TOOLS_LIMIT)],
        r"^tools: 262,\d{3} bytes of JSON; the limit: 262,144$",
    ),
    "no external tool": (lambda: [look], "^tools: <.*look> is not a tool that the client runs"),
    "text": (lambda: "pick", "^tools must be a list: write tools="),
    "one tool": (client_tool, "^tools must be a list: write tools="),
    "approval function": (
        lambda: [client_tool(needs_approval=lambda: True)],
        "^tool pick: needs_approval: the journal keeps no function",
    ),
    "surrogate": (lambda: [client_tool(description="a\ud800")], "half a surrogate pair"),
    "nested schema": (lambda: [client_tool(parameters=NESTED)], "^tool pick: parameters: "),
    "no schema": (lambda: [client_tool(parameters=["a"])], "^tool pick: parameters must be a JSON Schema"),
    "schema of a list": (lambda: [client_tool(parameters={"type": "array"})], "^tool pick: parameters: must be"),
    "not a number": (
        lambda: [client_tool(parameters={"type": "object", "minProperties": float("nan")})],
        "^tool pick: parameters: is not JSON",
    ),
    "bad name": (lambda: [client_tool("a b")], "^tool 'a b': a name must have"),
}


@pytest.mark.parametrize("case", HOSTILE)
async def test_client_tools_are_refused_before_the_turn_begins(case: str) -> None:
    """Rule 30: nothing is written, with a chosen id or without."""
    make, text = HOSTILE[case]
    async with Engine(model=ScriptedModel(), tools=[look]) as engine:
        for turn_id in (None, "k1"):
            with pytest.raises(ConfigError, match=text):
                await engine.run(AGENT, "Pick.", tools=make(), id=turn_id)
        assert await engine.turns() == []


async def test_subclass_of_an_external_tool_is_refused() -> None:
    """The journal would keep its declaration, and not its code."""

    class Own(ExternalTool):
        pass

    with pytest.raises(ConfigError, match="is not a tool that the client runs"):
        client_tools([Own(name="pick", description="Pick.", parameters=PARAMETERS)])


async def test_typed_agent_keeps_the_name_of_its_answer() -> None:
    async with Engine(model=ScriptedModel()) as engine:
        typed = Agent(name="Typed", output_type=int)
        with pytest.raises(ConfigError, match="is a tool of the engine"):
            await engine.run(typed, "Go.", tools=[client_tool("final_result")])


async def test_damaged_declaration_makes_the_turn_unreadable() -> None:
    store = MemoryStore()
    async with Engine(model=ScriptedModel(asks_for(("pick", {}))), store=store) as engine:
        turn = await engine.run(AGENT, "Pick.", tools=[client_tool()])
        facts = await store.facts(turn.id)
        first = facts[0][1]
        assert isinstance(first, TurnStarted)
        with pytest.raises(UnreadableTurnError, match="the tools of its client cannot be read"):
            engine.setup.tools_in_turn(turn.id, TurnStarted(**{**_fields(first), "client_tools": ({"name": "pick"},)}))


def _fields(fact: TurnStarted) -> dict[str, Any]:
    return {name: getattr(fact, name) for name in fact.__struct_fields__}
