"""Pictures and documents are sent with the prompt, kept in the journal, and sent again after a resume."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec import structs
from pydantic import JsonValue

from turnwright import Agent, ConfigError, Engine, tool
from turnwright.message import FilePart, Message
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict

pytestmark = pytest.mark.anyio

PIXEL = FilePart.of(b"\x89PNG", "image/png", "pixel.png")
LINK = FilePart(media_type="application/pdf", url="https://example.com/plan.pdf")
AGENT = Agent(name="Looker")


@tool(needs_approval=True)
async def zoom() -> str:
    """Look closer."""
    return "closer"


def shown(message: Message) -> list[FilePart]:
    return [structs.replace(file, seq=0) for file in message.files]


async def test_files_reach_the_model_in_the_order_of_the_prompt() -> None:
    model = ScriptedModel("A pixel and a plan.")
    turn = await Engine(model=model).run(AGENT, "What is this?", files=[PIXEL, LINK])
    message = model.requests[0].messages[-1]
    assert (message.role, message.text, shown(message)) == ("user", "What is this?", [PIXEL, LINK])
    assert shown(turn.messages[0]) == [PIXEL, LINK]
    assert len({part.seq for part in turn.messages[0].parts}) == 3


async def test_resuming_process_sends_the_files_again(tmp_path: Path) -> None:
    """Another process, which was given no file: it is in the journal."""
    address = f"sqlite:///{tmp_path / 'turns.db'}"
    async with Engine(model=ScriptedModel(asks_for(("zoom", {}))), tools=[zoom], store=address) as engine:
        paused = await engine.run(AGENT, "What is this?", files=[PIXEL])
    model = ScriptedModel("A pixel.")
    async with Engine(model=model, tools=[zoom], store=address) as engine:
        await engine.resume(paused.id, {"approval-1": True})
        facts = await engine.store.facts(paused.id)
    assert shown(model.requests[0].messages[0]) == [PIXEL]
    assert replay(facts).check.verdict is Verdict.HOLDS


async def test_next_turn_of_the_session_sends_the_files() -> None:
    model = ScriptedModel("A pixel.", "Still a pixel.")
    engine = Engine(model=model)
    await engine.run(AGENT, "What is this?", session="s", files=[PIXEL])
    await engine.run(AGENT, "And now?", session="s")
    assert [shown(message) for message in model.requests[1].messages] == [[PIXEL], [], []]


async def test_a_history_may_hold_pictures() -> None:
    model = ScriptedModel("A pixel.")
    part: JsonValue = {"type": "image_url", "image_url": {"url": PIXEL.address}}
    history: list[Message | Mapping[str, JsonValue]] = [
        {"role": "user", "content": [part]},
        Message.assistant("I see."),
    ]
    await Engine(model=model).run(AGENT, "What is it?", message_history=history)
    assert [file.data for file in model.requests[0].messages[0].files] == [PIXEL.data]


async def test_wrong_file_object_is_refused_before_anything_runs() -> None:
    model = ScriptedModel("Hello.")
    with pytest.raises(ConfigError, match=r"files: file 1 is not a FilePart: write FilePart\.read\(path\)"):
        await Engine(model=model).run(AGENT, "What is this?", files=[PIXEL, "pixel.png"])  # type: ignore[list-item]
    assert model.requests == []
