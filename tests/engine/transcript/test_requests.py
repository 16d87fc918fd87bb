"""Requests to the model: which texts, settings and tools one call has."""

from collections.abc import Sequence

import pytest
from pydantic import BaseModel

from turnwright import Agent, Compact, Engine, Limits, TurnContext
from turnwright.driver.hooks.decisions import ChangeRequest
from turnwright.driver.hooks.hooks import before_model
from turnwright.message import Message
from turnwright.model.model_settings import ModelSettings
from turnwright.model.protocol import ModelRequest
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright.tools import tool

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Helper", instructions="Help.")
NOTES = asks_for(("note", {"n": 1}))


class Total(BaseModel):
    """A typed answer."""

    total: int


@tool
async def note(n: int) -> str:
    """Note a number."""
    return f"noted {n}"


@before_model
async def appends(_: TurnContext[None], __: ModelRequest) -> ChangeRequest:
    return ChangeRequest(append=("Be brief.",), settings=ModelSettings(temperature=0.5))


def said(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


async def test_first_request_is_marked_and_the_conclusion_is_not() -> None:
    model = ScriptedModel(NOTES, "Concluded.")
    await Engine(model=model, tools=[note], limits=Limits(steps=1)).run(AGENT, "Go.")
    assert [request.first for request in model.requests] == [True, False]


async def test_the_request_of_the_second_step_is_not_the_first() -> None:
    model = ScriptedModel(NOTES, "Done.")
    await Engine(model=model, tools=[note]).run(AGENT, "Go.")
    assert [request.first for request in model.requests] == [True, False]


async def test_turn_without_allowed_tools_is_not_told_to_conclude() -> None:
    model = ScriptedModel("Done.")
    await Engine(model=model, tools=[note], limits=Limits(steps=5, concluding="within", tool_calls=0)).run(AGENT, "Go.")
    assert said(model.requests[0].messages) == ["Help.", "Go."]


async def test_budget_text_precedes_messages_appended_by_a_hook() -> None:
    model = ScriptedModel("Done.")
    agent = AGENT.model_copy(update={"hooks": (appends,)})
    await Engine(model=model, tools=[note], show_budget_to_model="Limits apply.").run(agent, "Go.")
    assert said(model.requests[0].messages) == ["Help.", "Go.", "Limits apply.", "Be brief."]


async def test_hook_settings_override_turn_settings_by_field() -> None:
    model = ScriptedModel("Done.")
    agent = AGENT.model_copy(update={"hooks": (appends,)})
    settings = ModelSettings(temperature=1.0, max_tokens=70)
    await Engine(model=model).run(agent, "Go.", model_settings=settings)
    (request,) = model.requests
    assert request.settings == ModelSettings(temperature=0.5, max_tokens=70)
    assert request.max_tokens == 70


async def test_settings_without_a_most_of_tokens_leave_the_rest_of_the_budget() -> None:
    model = ScriptedModel("Done.")
    settings = ModelSettings(temperature=1.0)
    await Engine(model=model, limits=Limits(tokens=90)).run(AGENT, "Go.", model_settings=settings)
    assert model.requests[0].max_tokens == 90


async def test_compacted_request_has_instructions_and_summary_only() -> None:
    store, answers = MemoryStore(), ScriptedModel("A long answer.", "Summary.", "Done.")
    agent = AGENT.model_copy(update={"compaction": Compact(at_tokens=1, keep_steps=0, max_compactions=1)})
    engine = Engine(model=answers, store=store)
    await engine.run(AGENT, "The first question.", session="one")
    await engine.run(agent, "The second question.", session="one")
    texts = said(answers.requests[-1].messages)
    assert texts[0] == "Help."
    assert "The first question." not in texts[1:]
    assert any("Summary." in text for text in texts)


async def test_the_prompt_for_a_typed_answer_is_a_paragraph_of_the_instructions() -> None:
    model = ScriptedModel('{"total": 1}')
    agent = Agent(name="Sums", instructions="Sum up.", output_type=Total, output_mode="prompt")
    await Engine(model=model).run(agent, "Go.")
    instructions = model.requests[0].messages[0].text
    assert instructions.startswith("Sum up.\n\n")
    assert "XX" not in instructions


async def test_a_conclusion_has_no_format_of_a_typed_answer() -> None:
    model = ScriptedModel(NOTES, "Concluded.")
    agent = Agent(name="Sums", output_type=Total, output_mode="native")
    await Engine(model=model, tools=[note], limits=Limits(steps=1)).run(agent, "Go.")
    assert [request.output is None for request in model.requests] == [False, True]


async def test_thinking_model_is_not_forced_to_the_output_tool() -> None:
    chosen = []
    for thinking in (None, "low"):
        model = ScriptedModel(asks_for(("final_result", {"total": 1})))
        agent = Agent(name="Sums", output_type=Total, output_mode="tool")
        settings = None if thinking is None else ModelSettings(thinking=thinking)
        await Engine(model=model).run(agent, "Go.", model_settings=settings)
        chosen.append(model.requests[0].tool_choice)
    assert chosen == ["required", "auto"]
