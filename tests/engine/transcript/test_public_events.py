"""The public part of an event: the conversation, and no configuration or prices."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import pytest
from ag_ui.core import RunAgentInput
from msgspec.structs import fields

from turnwright import Agent, Engine, FilePart, Limits, Message, Price, ToolResult, tool
from turnwright.message import TextPart
from turnwright.model import ModelError, ModelResponse, ResponseToolCall, ScriptedModel
from turnwright.transcript.events import (
    DeltaEvent,
    FactEvent,
    Interrupt,
    OutputDeltaEvent,
    ReasoningDeltaEvent,
    ResponseRestartedEvent,
    ResponseWithdrawnEvent,
    TextDeltaEvent,
    ToolCallDeltaEvent,
    ToolProgressEvent,
    TurnEndedEvent,
    TurnEvent,
    TurnPausedEvent,
)
from turnwright_protocols.ag_ui import AgUiEncoder
from turnwright_states import Cause, State, Usage
from turnwright_states import facts as f

#: What is in a line of every type, or in none.
EVERYWHERE = frozenset({"turn", "seq", "elapsed", "state", "fact", "hash"})
SECRETS = {
    name: f"secret-{name}"
    for name in (
        "instructions",
        "message_history",
        "metadata",
        "session",
        "model",
        "reasoning",
        "signature",
        "host",
        "url",
    )
}


def names_of(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}


#: Whatever lists its public and its private fields.
DECIDED: Mapping[str, type[f.Fact | TurnEvent]] = {
    **f.KINDS,
    "text_delta": TextDeltaEvent,
    "reasoning_delta": ReasoningDeltaEvent,
    "tool_call_delta": ToolCallDeltaEvent,
    "output_delta": OutputDeltaEvent,
    "response_restarted": ResponseRestartedEvent,
    "response_withdrawn": ResponseWithdrawnEvent,
    "tool_progress": ToolProgressEvent,
    "turn_paused_event": TurnPausedEvent,
    "turn_ended_event": TurnEndedEvent,
}


@pytest.mark.parametrize("kind", DECIDED)
def test_every_field_of_facts_and_events_is_classified(kind: str) -> None:
    decision = DECIDED[kind]
    assert names_of(decision) <= set(decision.public_fields) | decision.private_fields | EVERYWHERE
    assert not set(decision.public_fields) & decision.private_fields


def test_public_field_tests_cover_every_event() -> None:
    assert kinds_of(TurnEvent) - {TurnEvent, FactEvent, DeltaEvent} == set(DECIDED.values()) - set(f.KINDS.values())
    assert names_of(FactEvent) - EVERYWHERE <= {"message", "tools", "text", "tool"}, "of some facts: looked at below"


def kinds_of(base: type[TurnEvent]) -> set[type[TurnEvent]]:
    return {base}.union(*map(kinds_of, base.__subclasses__()))


@pytest.mark.parametrize(
    ("place", "kind", "private"),
    [
        ("model_replied.calls", f.CallMade, {"provider_id", "key", "own_key", "lease", "reaches"}),
        ("call_waiting.interrupt", f.InterruptRecord, {"approved_by", "otherwise", "kept", "schema", "restricted"}),
        ("call_waiting.more", f.InterruptRecord, {"approved_by", "otherwise", "kept", "schema", "restricted"}),
        ("paused.interrupt", f.InterruptRecord, {"approved_by", "otherwise", "kept", "schema", "restricted"}),
    ],
)
def test_every_nested_field_is_classified(place: str, kind: type, private: set[str]) -> None:
    line, name = place.split(".")
    rule = f.KINDS[line].public_fields[name]
    assert rule is not None
    assert set(rule) | private == names_of(kind)
    assert not set(rule) & private


def test_usage_is_public_except_the_cost() -> None:
    rules = [decision.public_fields["usage"] for decision in DECIDED.values() if "usage" in decision.public_fields]
    assert rules
    assert all(rule is not None and set(rule) == set(Usage.__struct_fields__) - {"cost"} for rule in rules)


class BrandNew(f.Fact, frozen=True, kw_only=True):
    """A fact with a field that nobody decided on, and one that the event has too."""

    kind = "brand_new"
    text: str
    message: str = ""


def test_undecided_field_is_private() -> None:
    event = FactEvent(turn="t", seq=1, fact=BrandNew(0.0, State.STREAM, text="secret", message="secret"))
    assert event.to_json()["text"] == "secret"
    assert event.public() == {"type": "brand_new", "turn": "t", "seq": 1, "elapsed": 0.0, "state": "STREAM"}


@tool(needs_approval=lambda path: path == "ask")
async def erase(path: str) -> ToolResult:
    """Erase a file."""
    return ToolResult(f"erased {path}", {"erased": path})


async def secretive(*script: ModelResponse | ModelError) -> list[TurnEvent]:
    """The events of a turn that has a secret in each private place."""
    model = ScriptedModel(*script, name=SECRETS["model"])
    heard: list[TurnEvent] = []
    engine = Engine(
        model=model,
        tools=[erase],
        limits=Limits(tokens=123_457, cost=1234.5, max_retries=0),
        prices={model.name: Price(input=7.0, output=11.0)},
        on_event=[heard.append],
    )
    linked = FilePart(media_type="image/png", url=f"https://example.org/?{SECRETS['url']}", name="a.png")
    await engine.run(
        Agent(name="Tidier", instructions=SECRETS["instructions"]),
        "Tidy up.",
        files=[linked],
        message_history=[Message(role="user", parts=(TextPart(text=SECRETS["message_history"]),))],
        session=SECRETS["session"],
        metadata={"user": SECRETS["metadata"]},
    )
    return heard


def asking(path: str) -> ModelResponse:
    return ModelResponse(
        text="Let me see.",
        reasoning=SECRETS["reasoning"],
        reasoning_details=({"signature": SECRETS["signature"]},),
        calls=(ResponseToolCall("erase", {"path": path}),),
        usage=Usage(input_tokens=10, output_tokens=5),
    )


@pytest.mark.anyio
async def test_public_events_contain_only_the_conversation() -> None:
    events = await secretive(asking("x.log"), asking("ask"))
    whole, public = json.dumps([e.to_json() for e in events]), [e.public() for e in events]
    public_text = json.dumps(public)
    assert [name for name, secret in SECRETS.items() if secret in whole] == [name for name in SECRETS if name != "host"]
    assert [name for name, secret in SECRETS.items() if secret in public_text] == []
    assert "123457" not in public_text
    assert "cost" not in public_text
    assert [line["type"] for line in public] == [event.type for event in events]
    by_type: dict[str, Any] = {str(line["type"]): line for line in public}
    assert by_type["turn_started"]["prompt"] == "Tidy up."
    assert by_type["turn_started"]["agent"] == {"name": "Tidier"}
    assert by_type["turn_started"]["files"] == [{"media_type": "image/png", "name": "a.png"}]
    assert by_type["model_replied"]["calls"][0]["arguments"] == {"path": "ask"}
    assert by_type["call_settled"]["result"] == "erased x.log"
    assert by_type["paused"]["interrupts"][0]["arguments"] == {"path": "ask"}


@pytest.mark.anyio
async def test_error_text_is_never_public() -> None:
    failure = ModelError(f"cannot reach http://{SECRETS['host']}:8080", cause=Cause.BAD_REQUEST)
    events = await secretive(failure)
    assert SECRETS["host"] in json.dumps([event.to_json() for event in events])
    public_events = [event.public() for event in events]
    assert SECRETS["host"] not in json.dumps(public_events)
    assert (public_events[-1]["outcome"], public_events[-1]["reason"]) == ("failed", "model_error")
    means = "The model could not be reached, refused the request, or gave no usable reply. You can try again."
    assert public_events[-1]["sentinel"] == {"kind": "failed", "reason": "model_error", "text": means}


@pytest.mark.anyio
@pytest.mark.parametrize("fails", [True, False])
async def test_ag_ui_events_contain_no_more_than_public_events(fails: bool) -> None:
    """But for the model's reasoning and name: the protocol has events and fields for them."""
    failure = ModelError(f"cannot reach http://{SECRETS['host']}:8080", cause=Cause.BAD_REQUEST)
    events = await secretive(asking("x.log"), failure if fails else asking("ask"))
    agent_input = RunAgentInput(
        thread_id="t", run_id="r", state={}, messages=[], tools=[], context=[], forwarded_props={}
    )
    encoder = AgUiEncoder(agent_input)
    encoded = [chunk.model_dump_json() for event in events for chunk in encoder.encode(event)]
    for name in SECRETS.keys() - {"reasoning", "model"}:
        assert SECRETS[name] not in "".join(encoded), name
    assert '"cost"' not in "".join(encoded)


def test_public_interrupt_fields_match_the_result() -> None:
    """`TurnResult.interrupts` is sent to a browser as well."""
    rule = TurnPausedEvent.public_fields["interrupts"]
    assert rule is not None
    assert {field.name for field in dataclasses.fields(Interrupt)} - set(rule) == Interrupt.private_fields
    assert Interrupt.private_fields == {
        *(
            "grant",
            "approved_by",
            "approvals_so_far",
            "otherwise",
            "schema",
            "restricted",
            "turn_started_at",
            "asked_at",
        )
    }
