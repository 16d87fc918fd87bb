"""Nothing that an observer, a hook, a tool or the telemetry edits in place changes the turn."""

import copy
import json
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from turnwright import Agent, Engine, FinishedCall, Message, Price, ToolResult, Usage, tool
from turnwright.journal.result import TurnResult
from turnwright.message import TextPart, ToolCallPart, ToolResultPart
from turnwright.model import ModelResponse, ResponseToolCall, ScriptedModel
from turnwright.store import MemoryStore
from turnwright.store.outbox import NoticeCounts
from turnwright.telemetry import AttemptWork, CallWork, JudgedCall, Move, TurnWork
from turnwright.tools import Tool, ToolContext
from turnwright.transcript.events import TurnEvent, TurnPausedEvent
from turnwright_states import facts as f
from turnwright_states.fact_parser import parse_fact
from turnwright_states.payload import FrozenDict, FrozenList, freeze, thaw
from turnwright_states.replay import replay
from turnwright_testing.json_values import json_values

ARGUMENTS: dict[str, Any] = {"amount": 1, "to": {"name": "Ann", "tags": ["a", ["b"]]}}
AGENT = Agent(name="Payer", instructions="You pay.")


def spoil(value: object, visited: set[int] | None = None) -> None:
    """Change everything in place that can be reached from a value, and give up where it refuses."""
    visited = set() if visited is None else visited
    if id(value) in visited or isinstance(value, type | str | bytes | int | float) or value is None:
        return
    visited.add(id(value))
    for inner in tuple(inside(value)):
        spoil(inner, visited)
    edits: list[Callable[[], object]] = []
    if isinstance(value, dict):
        edits = [lambda: value.update(amount=999, evil=True), value.clear, value.popitem]
    elif isinstance(value, list):
        edits = [lambda: value.append("evil"), value.clear, value.reverse]
    elif isinstance(value, msgspec.Struct):
        edits = [lambda: setattr(value, "arguments", {"amount": 999}), lambda: setattr(value, "text", "evil")]
    for edit in edits:
        try:
            edit()
        except (TypeError, AttributeError, KeyError, IndexError):
            continue


def inside(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return [*value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return value
    if isinstance(value, msgspec.Struct):
        return [getattr(value, name) for name in value.__struct_fields__]
    if type(value).__module__.startswith("turnwright") and not isinstance(value, Tool | MemoryStore | ScriptedModel):
        names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
        names += getattr(value, "__dict__", ())
        return [getattr(value, name, None) for name in names if not name.startswith("_")]
    return ()


class HostileTelemetry:
    """Telemetry that edits every value it receives."""

    def outbox(self, counts: NoticeCounts) -> None:
        """See `Telemetry.outbox`."""

    def turn(self, work: TurnWork) -> "HostileTelemetry":
        self.work = work
        return self

    def __enter__(self) -> None:
        spoil(self.work)

    def __exit__(self, *_: object) -> None:
        spoil(self.work)

    def judged(self, judged_call: JudgedCall) -> None:
        spoil(judged_call)

    def moved(self, move: Move) -> None:
        spoil((move, self.work.turn))

    def attempt(self, work: AttemptWork) -> AbstractContextManager[object]:
        spoil(work.request)
        return _Spoiling(work)

    def call(self, work: CallWork) -> AbstractContextManager[object]:
        spoil(work.arguments)
        return nullcontext()


class _Spoiling(nullcontext[None]):
    def __init__(self, work: AttemptWork) -> None:
        super().__init__()
        self.work = work

    def __exit__(self, *_: object) -> None:
        spoil((self.work.reply, self.work.request))


class Stage:
    """A turn among people and hooks who edit all that they are given."""

    def __init__(self) -> None:
        self.ran: list[object] = []
        self.observed: list[object] = []
        self.heard: list[TurnEvent] = []
        reply = ModelResponse(
            text="I pay.",
            reasoning="Why not?",
            reasoning_details=({"signature": {"of": ["x"]}},),
            calls=(
                ResponseToolCall("pay", copy.deepcopy(ARGUMENTS)),
                ResponseToolCall("raw", copy.deepcopy(ARGUMENTS)),
            ),
            usage=Usage(input_tokens=1, output_tokens=1),
        )
        self.model = ScriptedModel(reply, "Done.")

    @property
    def tools(self) -> list[Tool]:
        """Two tools that edit what they are given: a function, and one that reads arguments by itself."""
        stage = self

        def key(arguments: Mapping[str, Any]) -> str:
            spoil(arguments)
            return "key"

        def wants(amount: int, to: dict[str, Any]) -> bool:
            stage.observed.append(copy.deepcopy((amount, to)))
            spoil(to)
            return True

        @tool(needs_approval=wants, loop_key=key)
        async def pay(amount: int, to: Any) -> ToolResult:  # noqa: ANN401 (of any shape)
            """Pay."""
            stage.ran.append(copy.deepcopy({"amount": amount, "to": to}))
            spoil(to)
            structured: dict[str, JsonValue] = {"paid": [amount]}
            return ToolResult("paid", structured)

        class Raw(Tool):
            def loop_key(self, arguments: Mapping[str, Any]) -> str | None:
                spoil(arguments)
                return None

            def parse(self, arguments: Mapping[str, Any]) -> dict[str, object]:
                spoil(arguments)
                return super().parse(arguments)

            async def execute(self, values: Mapping[str, object], context: ToolContext) -> object:
                stage.ran.append(copy.deepcopy(dict(values)))
                spoil((values, context))
                return "seen"

        schema: dict[str, Any] = {"type": "object", "properties": {"amount": {"type": "integer"}}}
        return [pay, Raw(name="raw", description="Raw.", parameters=schema)]

    async def prepare(self, messages: tuple[Message, ...]) -> Sequence[Message]:
        spoil(messages)
        return messages

    async def synthesize(self, batch: tuple[FinishedCall, ...]) -> str | None:
        spoil(batch)
        return None

    def observe(self, event: TurnEvent) -> None:
        self.heard.append(event)
        spoil(event)
        spoil(event.to_json())
        spoil(event.public())


async def drive(stage: Stage) -> tuple[Engine, TurnResult]:
    call_message = Message(
        role="assistant", parts=(ToolCallPart(id="c1", name="pay", arguments=copy.deepcopy(ARGUMENTS)),)
    )
    result_message = Message(
        role="tool", parts=(ToolResultPart(call="c1", name="pay", text="paid", structured={"n": [1]}),)
    )
    engine = Engine(
        model=stage.model,
        tools=stage.tools,
        history_processor=stage.prepare,
        synthesize=stage.synthesize,
        on_event=[stage.observe],
        telemetry=HostileTelemetry(),
        prices={"scripted": Price(input=1.0, output=1.0)},
    )
    context: dict[str, JsonValue] = {"user": {"roles": ["admin"]}}
    history = [Message(role="user", parts=(TextPart(text="Before."),)), call_message, result_message]
    paused = await engine.run(AGENT, "Pay.", message_history=history, metadata=context)
    spoil((paused, context, history))
    return engine, await engine.resume(paused.id, {paused.interrupts[0].id: True})


@pytest.mark.anyio
async def test_call_stays_the_same_from_request_to_journal_and_model() -> None:
    stage = Stage()
    engine, turn = await drive(stage)
    assert turn.text == "Done."
    facts = [fact for _, fact in await engine.store.facts(turn.id)]
    (reply, _) = (fact for fact in facts if isinstance(fact, f.ModelReplied))
    assert [call.arguments for call in reply.calls] == [ARGUMENTS, ARGUMENTS]
    assert reply.reasoning_details == ({"signature": {"of": ["x"]}},)
    assert stage.ran == [ARGUMENTS, ARGUMENTS]
    assert stage.observed == [(ARGUMENTS["amount"], ARGUMENTS["to"])]
    (pause,) = (event for event in stage.heard if isinstance(event, TurnPausedEvent))
    assert pause.interrupts[0].arguments == ARGUMENTS
    (paid, _look) = (fact for fact in facts if isinstance(fact, f.CallSettled))
    assert {fact.call: fact.structured for fact in facts if isinstance(fact, f.CallSettled)}[reply.calls[0].id] == {
        "paid": [1]
    }, paid
    assert isinstance(facts[0], f.TurnStarted)
    assert facts[0].metadata == {"user": {"roles": ["admin"]}}
    assert replay(await engine.store.facts(turn.id)).fault is None
    for request in stage.model.requests:
        calls = [call.arguments for message in request.messages for call in message.calls]
        assert all(arguments == ARGUMENTS for arguments in calls)
        assert request.tools[1].parameters == {"type": "object", "properties": {"amount": {"type": "integer"}}}
    assert len(stage.model.requests[-1].messages) == 8


@pytest.mark.anyio
async def test_fact_read_from_a_journal_is_immutable() -> None:
    stage = Stage()
    engine, turn = await drive(stage)
    before = [fact.payload() for _, fact in await engine.store.facts(turn.id)]
    spoil([fact for _, fact in await engine.store.facts(turn.id)])
    spoil([parse_fact(fact.kind, fact.payload()) for _, fact in await engine.store.facts(turn.id)])
    spoil(await engine.get(turn.id))
    assert [fact.payload() for _, fact in await engine.store.facts(turn.id)] == before
    for kind, fact in ((fact.kind, fact) for _, fact in await engine.store.facts(turn.id)):
        read = parse_fact(kind, fact.payload())
        spoil(read)
        assert read.payload() == fact.payload()


@given(st.dictionaries(st.text(max_size=3), json_values(), max_size=4))
def test_frozen_value_equals_the_source_and_thaws_to_a_copy(value: dict[str, Any]) -> None:
    frozen_value = freeze(value)
    encoded = json.dumps(value)
    assert frozen_value == value
    assert json.dumps(frozen_value) == encoded
    assert freeze(frozen_value) is frozen_value
    spoil(frozen_value)
    assert json.dumps(frozen_value) == encoded
    for mine in (thaw(frozen_value), copy.deepcopy(frozen_value), thaw(value)):
        assert mine == value
        spoil(mine)
        mine["mine"] = 1
    assert json.dumps(frozen_value) == json.dumps(value) == encoded
    assert pickle.loads(pickle.dumps(frozen_value)) == value  # noqa: S301 (it was written right here)


@pytest.mark.slow
def test_depth_of_a_frozen_value_is_unbounded() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    rest, depth = freeze(deep), 0
    while rest:
        assert type(rest) is FrozenList
        rest, depth = rest[0], depth + 1
    assert depth == 100_000


@pytest.mark.parametrize("edit", ["append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse"])
def test_a_frozen_list_refuses(edit: str) -> None:
    with pytest.raises(TypeError, match=r"make a copy with copy\.deepcopy"):
        getattr(FrozenList([1]), edit)(1)


@pytest.mark.parametrize("edit", ["update", "setdefault", "pop", "popitem", "clear", "__setitem__", "__ior__"])
def test_a_frozen_dict_refuses(edit: str) -> None:
    with pytest.raises(TypeError, match=r"make a copy with copy\.deepcopy"):
        getattr(FrozenDict({"a": 1}), edit)({"a": 2})
