"""The account of a turn, which every protocol encodes: its pairs, its texts, and what it drops."""

import json
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from msgspec.structs import replace

from turnwright import Agent, Engine, Limits, approve, tool
from turnwright.model.protocol import ModelResponse, ResponseToolCall
from turnwright.model.retry import Backoff
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.transcript.events import TextDeltaEvent, ToolCallDeltaEvent, TurnEvent
from turnwright_protocols import items as i
from turnwright_protocols.turn_reader import TurnReader
from turnwright_testing import Cut, FlakyModel, Scenario

from .ag_ui.test_properties import played, told

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier")


@tool
async def look(path: str) -> str:
    return path


@tool(needs_approval=True)
async def erase(path: str) -> str:
    return f"erased {path}"


def read(events: Iterable[TurnEvent]) -> list[i.Item]:
    reader: TurnReader | None = None
    items: list[i.Item] = []
    for event in events:
        reader = reader or TurnReader(event.turn)
        items += reader.read(event)
    return items


def final_texts(items: Sequence[i.Item]) -> dict[tuple[str, i.Kind], str]:
    """Return the texts that a client shows at the end. Checks that each start has an end, and each piece both."""
    texts: dict[tuple[str, i.Kind], str] = {}
    open_parts: set[object] = set()
    for item in items:
        match item:
            case i.TextStartItem():
                key = (item.message, item.kind)
                assert key not in open_parts
                open_parts.add(key)
            case i.TextDeltaItem():
                key = (item.message, item.kind)
                assert key in open_parts
                assert item.delta
                texts[key] = texts.get(key, "") + item.delta
            case i.TextEndItem():
                open_parts.remove((item.message, item.kind))
            case i.CallInputStartItem(call=call):
                assert call not in open_parts
                open_parts.add(call)
            case i.CallInputDeltaItem(call=call):
                assert call in open_parts
            case i.CallInputEndItem(call=call):
                open_parts.remove(call)
            case i.ReplyItem(message=message, reasoning=reasoning, text=text):
                assert not open_parts
                if item.replaced:
                    texts |= {(message, "reasoning"): reasoning, (message, "text"): text}
                assert (texts.get((message, "reasoning"), ""), texts.get((message, "text"), "")) == (reasoning, text)
            case _:
                pass
    assert not open_parts
    return {key: text for key, text in texts.items() if text}


@given(played)
def test_live_and_replayed_accounts_have_the_same_texts_and_calls(scenario: Scenario) -> None:
    for turn in told(scenario):
        live, replayed = read(turn.live), read(turn.journal)
        assert final_texts(live) == final_texts(replayed)
        kinds = (i.CallsItem, i.CallResultItem, i.UserMessageItem, i.StepStartItem, i.EndItem)
        assert [item for item in live if isinstance(item, kinds)] == [
            item for item in replayed if isinstance(item, kinds)
        ]


@given(played)
def test_calls_are_announced_before_start_and_settle_once(scenario: Scenario) -> None:
    for turn in told(scenario):
        announced, settled = set[str](), list[str]()
        for item in read(turn.live):
            if isinstance(item, i.CallsItem):
                announced |= {call.id for call in item.calls}
            elif isinstance(item, i.CallRunItem | i.CallAskItem | i.CallResultItem):
                assert item.call in announced
            if isinstance(item, i.CallResultItem):
                settled.append(item.call)
        assert len(settled) == len({*settled})


async def events_of(engine: Engine) -> list[TurnEvent]:
    async with engine.stream(AGENT, "hi") as events:
        return [event async for event in events]


async def test_restarted_reply_is_replaced() -> None:
    model = FlakyModel([Cut(ModelResponse(text="Wrong.", reasoning="oh"), after=8), "Right."])
    items = read(await events_of(Engine(model=model, backoff=Backoff(initial=0.0))))
    replies = [(item.text, item.replaced) for item in items if isinstance(item, i.ReplyItem)]
    assert replies == [("", True), ("Right.", False)]


async def test_missing_piece_is_completed_by_the_reply() -> None:
    events = await events_of(Engine(model=FlakyModel(["one two three"])))
    pieces = [event for event in events if isinstance(event, TextDeltaEvent)]
    deltas = [item.delta for item in read(e for e in events if e is not pieces[1]) if isinstance(item, i.TextDeltaItem)]
    assert deltas == ["one", " two three"]


async def test_call_with_another_name_in_its_pieces_is_sent_again() -> None:
    asks = asks_for(ResponseToolCall("look", {"path": "a"}, '{"path":"a"}'))
    events = [
        replace(event, tool="other") if isinstance(event, ToolCallDeltaEvent) else event
        for event in await events_of(Engine(model=FlakyModel([asks, "Done."]), tools=[look]))
    ]
    items = read(events)
    assert [item.name for item in items if isinstance(item, i.CallInputStartItem)] == ["other", "look"]
    assert next(item.replaced for item in items if isinstance(item, i.ReplyItem))
    (announced,) = [item for item in items if isinstance(item, i.CallsItem)]
    assert json.loads(announced.calls[0].arguments) == {"path": "a"}


async def test_changed_arguments_come_with_the_result() -> None:
    engine = Engine(model=ScriptedModel(asks_for(("erase", {"path": "a"})), "Done."), tools=[erase])
    turn = await engine.run(AGENT, "hi")
    await engine.resume(turn.id, {"approval-1": approve(arguments={"path": "b"})})
    items = read([event async for event in engine.events(turn.id)])
    (result,) = [item for item in items if isinstance(item, i.CallResultItem)]
    assert (result.changed, result.fact.result) == ({"path": "b"}, "erased b")
    (pause,) = [item for item in items if isinstance(item, i.PauseItem)]
    assert [i.asking_call(interrupt) for interrupt in pause.event.interrupts] == ["call00001"]


async def test_suspended_text_starts_again_and_calls_come_whole() -> None:
    asks = asks_for(ResponseToolCall("look", {"path": "a b"}, '{ "path":"a b"}'), text="I look.")
    events = await events_of(Engine(model=FlakyModel([asks, "Done."]), tools=[look], limits=Limits(steps=3)))
    for cut in range(1, len(events)):
        reader = TurnReader(events[0].turn)
        for event in events[:cut]:
            list(reader.read(event))
        list(reader.suspend())
        reader.reopen()
        reader.resend_calls()
        rest = [item for event in events[cut:] for item in reader.read(event)]
        starts = [item.name for item in rest if isinstance(item, i.CallInputStartItem)]
        assert starts in ([], ["look"])
        for item in rest:
            if isinstance(item, i.ReplyItem):
                assert item.text in ("I look.", "Done.")
