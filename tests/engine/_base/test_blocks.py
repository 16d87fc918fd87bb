"""A stream that is iterated over, and events that are entered, say what to write instead."""

from typing import Any

import pytest

from turnwright import Agent, Engine
from turnwright.model import ScriptedModel
from turnwright.transcript.events import TurnEndedEvent

AGENT = Agent(name="Clerk")
STREAM = r"^write `async with engine.stream\(...\) as events:` and in it `async for event in events:`$"
EVENTS = r"^write `async for event in engine.events\(...\):`$"


def engine() -> Engine:
    return Engine(model=ScriptedModel("Done.", "Done."))


@pytest.mark.anyio
async def test_stream_without_async_with_is_refused_with_advice() -> None:
    async with engine() as opened:
        stream: Any = opened.stream(AGENT, "hi")
        with pytest.raises(TypeError, match=STREAM):
            [event async for event in stream]
        with pytest.raises(TypeError, match=STREAM):
            await stream
        with pytest.raises(TypeError, match=STREAM), stream:
            pass
        resumed: Any = opened.stream_resume("turn")
        with pytest.raises(TypeError, match=r"^write `async with engine.stream_resume\(...\) as events:`"):
            [event async for event in resumed]
        assert await opened.turns() == []


@pytest.mark.anyio
async def test_events_used_as_a_block_are_refused_with_advice() -> None:
    async with engine() as opened:
        handle = await opened.start(AGENT, "hi")
        await handle.result()
        events: Any = opened.events(handle.id)
        with pytest.raises(TypeError, match=EVENTS):
            async with events:
                pass
        with pytest.raises(TypeError, match=EVENTS):
            await events
        of_handle: Any = handle.events()
        with pytest.raises(TypeError, match=r"^write `async for event in handle.events\(\):`$"):
            async with of_handle:
                pass
        assert (await anext(events)).seq == 1
        assert isinstance([event async for event in events][-1], TurnEndedEvent)
        await events.aclose()
        assert [event async for event in events] == []


def test_sync_stream_without_with_is_refused_with_advice() -> None:
    with engine() as opened:
        stream: Any = opened.stream_sync(AGENT, "hi")
        with pytest.raises(TypeError, match=r"^write `with engine.stream_sync\(...\) as events:` and in it `for event"):
            list(stream)
        resumed: Any = opened.stream_resume_sync("turn")
        with pytest.raises(TypeError, match=r"^write `with engine.stream_resume_sync\(...\) as events:`"):
            list(resumed)
        with opened.stream_sync(AGENT, "hi") as events:
            assert isinstance([*events][-1], TurnEndedEvent)
