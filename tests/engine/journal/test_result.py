"""A turn's messages, in the forms that a later request takes."""

from collections.abc import Sequence

import pytest

from turnwright import Agent, ConfigError, Engine, FilePart, Limits, Message, ToolResult, TurnResult, tool
from turnwright.message import ReasoningPart
from turnwright.model import ModelResponse, ScriptedModel, asks_for

pytestmark = pytest.mark.anyio

CLERK = Agent(name="Clerk", instructions="Be brief.")
PNG = FilePart.of(b"\x89PNG", "image/png", "a.png")


@tool
async def look(name: str) -> ToolResult:
    """Look at something."""
    return ToolResult(text=f"seen {name}", files=(PNG,))


@tool(needs_approval=True)
async def erase() -> str:
    """Erase something, with leave."""
    return "erased"


async def turn(*lines: str | ModelResponse, limits: Limits | None = None) -> TurnResult:
    engine = Engine(model=ScriptedModel(*lines), tools=[look, erase], limits=limits)
    return await engine.run(CLERK, "hi", files=[PNG])


def roles(messages: Sequence[Message]) -> list[str]:
    return [message.role for message in messages]


async def test_new_messages_exclude_instructions_and_history() -> None:
    engine = Engine(model=ScriptedModel("One.", "Two."))
    await engine.run(CLERK, "first", session="s")
    second = await engine.run(CLERK, "second", session="s")
    assert [(message.role, message.text) for message in second.new_messages()] == [
        ("user", "second"),
        ("assistant", "Two."),
    ]
    assert second.new_messages("chat") == [
        {"role": "user", "content": "second"},
        {"role": "assistant", "content": "Two."},
    ]


async def test_chat_form_has_calls_results_and_files_without_reasoning() -> None:
    reply = asks_for(("look", {"name": "a"}), ("look", {"name": "b"}), text="Let me see.")
    thinking = ModelResponse(text=reply.text, reasoning="Hm.", calls=reply.calls, finish=reply.finish)
    result = await turn(thinking, "Done.")
    assert any(isinstance(part, ReasoningPart) for message in result.new_messages() for part in message.parts)
    prompt, call_message, first_result, second_result, files, last = result.new_messages("chat")
    image = {"type": "image_url", "image_url": {"url": PNG.address}}
    assert prompt == {"role": "user", "content": [{"type": "text", "text": "hi"}, image]}
    assert call_message["content"] == "Let me see."
    assert call_message.keys() == {"role", "content", "tool_calls"}
    calls = [call.id for message in result.messages for call in message.calls]
    assert [first_result, second_result] == [
        {"role": "tool", "tool_call_id": call, "content": f"seen {name}"}
        for call, name in zip(calls, "ab", strict=True)
    ]
    assert files["role"] == "user"
    assert last == {"role": "assistant", "content": "Done."}


async def test_open_call_gets_a_result_in_both_forms() -> None:
    """`messages` stays the record: it has the call alone."""
    result = await turn(asks_for(("erase", {})))
    assert roles(result.messages) == ["user", "assistant"]
    assert roles(result.new_messages()) == ["user", "assistant", "tool"]
    assert [message["role"] for message in result.new_messages("chat")] == ["user", "assistant", "tool"]


async def test_both_forms_are_a_history_for_another_turn() -> None:
    """The next request has the same text, calls and results."""
    result = await turn(asks_for(("look", {"name": "a"})), "Done.", limits=Limits(steps=1))
    requests: list[list[tuple[str, str]]] = []
    for history in (result.new_messages(), result.new_messages("chat")):
        model = ScriptedModel("Next.")
        engine = Engine(model=model, tools=[look], unpaired="reject")
        await engine.run(CLERK, "next", message_history=history)
        requests.append(
            [(message.role, message.text) for message in model.requests[0].messages if message.role != "tool"]
        )
    assert ("assistant", result.text) in requests[0]
    assert [entry for entry in requests[1] if not entry[1].startswith("From the result")] == requests[0]


async def test_unknown_form_is_refused() -> None:
    result = await turn("Done.")
    with pytest.raises(ConfigError, match="must be \"chat\", or left out, not 'openai'"):
        result.new_messages("openai")  # type: ignore[call-overload]


async def test_repr_is_short_and_has_the_ending() -> None:
    """A notebook shows it. The messages are left out, and a long text is cut."""
    turn = await Engine(model=ScriptedModel("Word. " * 1000)).run(Agent(name="A"), "hi")
    assert repr(turn).startswith(f"TurnResult(id={turn.id!r}, outcome='finished', reason='answered', text='Word. ")
    assert repr(turn).endswith("…', steps=1, tool_calls=0)")
    assert len(repr(turn)) < 200
    failed = await Engine(model=ScriptedModel()).run(Agent(name="A"), "hi")
    assert "reason='model_error', error='ScriptedModel has no line 1" in repr(failed)


async def test_repr_of_a_paused_turn_has_the_interrupts() -> None:
    @tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    turn = await Engine(model=ScriptedModel(asks_for(("pay", {}), ("pay", {}))), tools=[pay]).run(Agent(name="A"), "hi")
    about = "state='PAUSED', interrupts='approval-1, approval-2', text='', steps=1, tool_calls=0"
    assert repr(turn) == f"TurnResult(id={turn.id!r}, {about})"
