"""`docs/ag-ui.md` names every event that a listener receives and no other, and its code runs."""

import re
from collections.abc import Iterator

import pytest
from ag_ui.core import ResumeEntry, RunAgentInput, UserMessage

from turnwright import Agent, Engine, tool
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.transcript.events import ResponseRestartedEvent, TextDeltaEvent, ToolProgressEvent, TurnEvent
from turnwright_protocols.ag_ui.own_events import PREFIX
from turnwright_states import InterruptKind, Outcome
from turnwright_states.facts import KINDS

from .client import Client, asked
from .page import PAGE, answer

pytestmark = pytest.mark.anyio

QUESTION = UserMessage(id="m1", content="Erase x")


def kinds_of(event: type[TurnEvent]) -> Iterator[type[TurnEvent]]:
    for subclass in event.__subclasses__():
        yield from (subclass, *kinds_of(subclass))


def rows(heading: str) -> list[list[str]]:
    """The cells of the table whose header begins with that word."""
    table = re.search(rf"^\| {heading} \|.*\n\|[ -|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines()]


def named(heading: str) -> list[str]:
    return [name for row in rows(heading) for name in re.findall(r"`([^`]+)`", row[0])]


def test_every_event_type_has_a_row() -> None:
    # `FactEvent` carries every fact but the two that have a class of their own.
    assert {kind.__name__ for kind in kinds_of(TurnEvent)} - {"FactEvent", "DeltaEvent"} == {
        "OutputDeltaEvent",
        "ReasoningDeltaEvent",
        "ResponseRestartedEvent",
        "ResponseWithdrawnEvent",
        "TextDeltaEvent",
        "ToolCallDeltaEvent",
        "ToolProgressEvent",
        "TurnEndedEvent",
        "TurnPausedEvent",
    }
    own = {
        TextDeltaEvent("t", 1, 0, "").type,
        "reasoning_delta",
        "tool_call_delta",
        "output_delta",
        ResponseRestartedEvent("t", 1).type,
        "response_withdrawn",
    }
    progress = ToolProgressEvent("t", 1, "call00001", "look", 0.5).type
    assert sorted(named("event")) == sorted({*KINDS, *own, progress})


@pytest.mark.parametrize(("heading", "names"), [("outcome", list(Outcome)), ("kind", list(InterruptKind))])
def test_every_outcome_and_kind_of_interrupt_has_a_row(heading: str, names: list[str]) -> None:
    assert sorted(named(heading)) == sorted(map(str, names))


def test_custom_event_names_are_names_of_events() -> None:
    event_names = {name for row in rows("event") for name in re.findall(rf"`{re.escape(PREFIX)}(\w+)`", row[1])}
    assert event_names <= {*KINDS, "tool_progress"}


@tool(needs_approval=True)
async def erase(path: str) -> str:
    return f"erased {path}"


class Server:
    """The page's own code, and a client that posts to it. The client knows only the ids that it received."""

    def __init__(self) -> None:
        script = ScriptedModel(asks_for(("erase", {"path": "x"}), text="I look."), "Gone.")
        self.engine = Engine(model=script, tools=[erase])
        self.client = Client()

    async def post(self, run: RunAgentInput) -> None:
        self.client.attach()
        self.client.hear([event async for event in answer(self.engine, Agent(name="Tidier"), run)])
        self.client.end()

    def approval(self) -> RunAgentInput:
        """Return the input that approves the interrupts of the last run."""
        (interrupt,) = self.client.ends[-1]["outcome"]["interrupts"]
        entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
        return asked(QUESTION, run="r2").model_copy(update={"resume": [ResumeEntry.model_validate(entry)]})


async def test_example_starts_a_turn_and_continues_after_a_pause() -> None:
    server = Server()
    await server.post(asked(QUESTION))
    await server.post(server.approval())
    assert server.client.ends[-1]["outcome"] == {"type": "success"}
    assert server.client.text() == ["I look.", "Gone."]
    assert server.client.text("tool") == ["erased x"]


async def test_example_refuses_answers_to_a_turn_of_another_thread() -> None:
    server = Server()
    await server.post(asked(QUESTION))
    approval = server.approval()
    (row,) = await server.engine.store.turns()
    await server.post(approval.model_copy(update={"thread_id": "s2"}))
    assert server.client.ends[-1]["type"] == "RUN_ERROR"
    assert row.id in server.client.ends[-1]["message"]
    assert (await server.engine.get(row.id)).paused


async def test_example_reports_a_refusal_to_the_client() -> None:
    """Within the protocol: the body has begun, and an error of the server would only break it."""
    server = Server()
    await server.post(asked(QUESTION))
    wrong = server.approval()
    assert wrong.resume is not None
    (entry,) = wrong.resume
    await server.post(wrong.model_copy(update={"resume": [entry.model_copy(update={"payload": {"perhaps": 1}})]}))
    assert server.client.ends[-1]["type"] == "RUN_ERROR"
    assert "approval-1" in server.client.ends[-1]["message"]
