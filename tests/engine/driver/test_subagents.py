"""Sub-agents: turns that calls drive, within the budget, the time and the fate of the turn that called them."""

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from msgspec.structs import replace
from pydantic import JsonValue

from turnwright import (
    Agent,
    ConfigError,
    EndReason,
    Engine,
    LeaseLostError,
    Limits,
    Outcome,
    Price,
    StoreError,
    TurnResult,
    UnreadableTurnError,
    reject,
    tool,
)
from turnwright.driver.subagents import AgentTool, agent_tool, subagent_tools
from turnwright.journal.questions import words
from turnwright.journal.result import result_of
from turnwright.journal.termination import end_turn
from turnwright.message import ToolResultPart
from turnwright.model.protocol import Model, ModelError, ModelRequest, ModelResponse, TextDelta
from turnwright.model.scripted import Line, ScriptedModel, asks_for
from turnwright.store import AbandonedDrivers, Claim, MemoryStore, NewTurn, Status, Store
from turnwright.tools import Tool, ToolContext, ToolResult
from turnwright.tools.builtin import builtin_tools
from turnwright.transcript.events import TurnEndedEvent, TurnEvent
from turnwright_proof import explain
from turnwright_states import CallStatus, Cause, Decision, InterruptKind, State
from turnwright_states import facts as f
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict
from turnwright_testing.faults import FaultyStore, StoreWrapper

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

LEAD = Agent(name="Lead", model="lead")
READER = Agent(name="Reader", description="Reads files.", model="reader", tools=("note", "erase"))


class Company:
    """Tools and what they did, and models by name: they outlive every process."""

    def __init__(self, **scripts: Sequence[Line] | Line) -> None:
        self.done: list[str] = []
        self.models = {
            name: ScriptedModel(
                *(lines if isinstance(lines, Sequence) and not isinstance(lines, str) else [lines]), name=name
            )
            for name, lines in scripts.items()
        }

        @tool
        async def note(text: str) -> str:
            """Note something."""
            self.done.append(text)
            return f"noted {text}"

        @tool(needs_approval=True)
        async def erase(path: str) -> str:
            """Erase a file."""
            self.done.append(f"erase {path}")
            return f"erased {path}"

        self.tools: dict[str, Tool] = {tool.name: tool for tool in (note, erase)}

    def hire(self, agent: Agent, **options: bool) -> AgentTool:
        """Offer the agent as a tool."""
        agent_as_tool = agent_tool(agent, needs_approval=options.get("needs_approval", False))
        self.tools[agent_as_tool.name] = agent_as_tool
        return agent_as_tool

    def find(self, name: str) -> Model:
        """The model of that name."""
        if name not in self.models:
            raise ConfigError(f"there is no model {name!r}")
        return self.models[name]

    def engine(
        self,
        store: Store | None = None,
        *,
        limits: Limits | None = None,
        cancel_grace: float = 1.0,
        on_event: Sequence[Callable[[TurnEvent], None]] = (),
        prices: Mapping[str, Price] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> Engine:
        return Engine(
            models=self.find,
            tools=list(self.tools.values()),
            store=store or MemoryStore(),
            limits=limits,
            cancel_grace=cancel_grace,
            on_event=on_event,
            prices=prices,
            clock=clock,
        )


def send(*names: str) -> ModelResponse:
    """A reply that gives each of these sub-agents a task."""
    return asks_for(*[(name, {"prompt": f"task {place}"}) for place, name in enumerate(names, start=1)])


def results(turn: TurnResult) -> list[tuple[CallStatus, str]]:
    parts = (part for message in turn.messages for part in message.parts)
    return [(part.status, part.text) for part in parts if isinstance(part, ToolResultPart)]


async def started(engine: Engine, turn_id: str) -> f.TurnStarted:
    """Return the first fact of a turn."""
    (_, fact), *_ = await engine.store.facts(turn_id)
    assert isinstance(fact, f.TurnStarted)
    return fact


async def leases(engine: Engine, turn_id: str) -> list[f.Lease | None]:
    """Return the leases of a turn's calls, in call order."""
    replies = [fact for _, fact in await engine.store.facts(turn_id) if isinstance(fact, f.ModelReplied)]
    return [call.lease for reply in replies for call in reply.calls]


# What a call of a sub-agent is.


async def test_answer_of_a_sub_agent_is_the_result_of_the_call() -> None:
    """A turn of its own, with the call's id in its own, and all that the model needs to know in the result."""
    company = Company(lead=[send("Reader"), "All done."], reader="Nothing to tidy.")
    company.hire(READER)
    engine = company.engine()
    turn = await engine.run(LEAD, "hi")
    child = f"{turn.id}:call00001"
    begun = [fact for _, fact in await engine.store.facts(turn.id) if isinstance(fact, f.CallStarted)]
    assert [fact.child for fact in begun] == [child]
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "All done.")
    assert results(turn) == [
        (CallStatus.OK, f"Nothing to tidy.\n\n[sub-agent: finished, answered; turn {child}]"),
    ]
    first = await started(engine, child)
    assert (first.parent_turn, first.parent_call, first.depth, first.prompt) == (turn.id, "call00001", 1, "task 1")
    assert first.agent["name"] == "Reader"


async def test_sub_agent_counts_own_steps_and_charges_the_caller() -> None:
    company = Company(
        lead=[send("Reader"), "All done."],
        reader=[asks_for(("note", {"text": "a"})), asks_for(("note", {"text": "b"})), "Done."],
    )
    company.hire(READER)
    engine = company.engine()
    turn = await engine.run(LEAD, "hi")
    child = await engine.get(f"{turn.id}:call00001")
    assert (turn.steps, child.steps) == (2, 3)
    assert (turn.tool_calls, child.tool_calls) == (3, 2), "its own call and the two of its sub-agent"
    assert (turn.usage.tokens, child.usage.tokens) == (10, 6)


async def test_listeners_hear_a_sub_agent_from_the_first_fact_on() -> None:
    company = Company(lead=[send("Reader"), "All done."], reader="Done.")
    company.hire(READER)
    heard: list[TurnEvent] = []
    engine = company.engine(on_event=[heard.append])
    turn = await engine.run(LEAD, "hi")
    child = [event for event in heard if event.turn != turn.id and event.type != "text_delta"]
    assert [event.seq for event in child] == list(range(1, len(child) + 1))
    assert (child[0].type, child[-1].type) == ("turn_started", "turn_ended")


async def test_failure_of_a_sub_agent_is_an_error_with_the_partial_text() -> None:
    company = Company(lead=[send("Reader"), "I see."], reader=[asks_for(("note", {"text": "a"}), text="Looking.")])
    company.hire(READER)
    turn = await company.engine().run(LEAD, "hi")
    ((status, text),) = results(turn)
    assert (turn.outcome, status) == (Outcome.FINISHED, CallStatus.ERROR)
    assert text == (
        "Looking.\n\n[sub-agent: failed, model_error: The model could not be reached, refused the request, or gave"
        f" no usable reply; turn {turn.id}:call00001]"
    )


async def test_provider_error_of_a_sub_agent_stays_in_the_sub_agents_turn() -> None:
    """The result of a call is public, and goes to another model: an error may name hosts and accounts."""
    private = "https://proxy.internal:8443 refused account acme-42"
    refused = ModelError(private, cause=Cause.AUTHENTICATION)
    company = Company(lead=[send("Reader"), "I see."], reader=[refused])
    company.hire(READER)
    heard: list[TurnEvent] = []
    engine = company.engine(on_event=[heard.append])
    turn = await engine.run(LEAD, "hi")
    child = await engine.get(f"{turn.id}:call00001")
    assert private in child.error
    settled = [event.to_json() for event in heard if event.turn == turn.id]
    assert private not in json.dumps(settled)
    assert private not in json.dumps([event.public() for event in heard])
    assert private not in str(company.models["lead"].requests)


async def test_long_answer_is_cut_and_the_ending_still_told() -> None:
    company = Company(lead=[send("Reader"), "I see."], reader="".join(map(str, range(30_000)))[:100_000])
    company.hire(READER)
    ((_, text),) = results(await company.engine().run(LEAD, "hi"))
    assert "[cut: the first 65536 of 100000 bytes" in text
    assert "[sub-agent: finished, answered; turn " in text


async def test_two_calls_of_an_agent_run_in_parallel() -> None:
    """Each waits for the other: they would wait for ever if one ran after the other."""
    company = Company(lead=[send("Reader", "Reader"), "All done."], reader="")
    met: list[str] = []
    both_ready = anyio.Event()

    @tool
    async def meet(context: ToolContext) -> str:
        """Wait for the other."""
        met.append(context.turn_id)
        if len(met) == 2:
            both_ready.set()
        await both_ready.wait()
        return "met"

    def reader(request: ModelRequest) -> ModelResponse | str:
        return "Done." if any(message.calls for message in request.messages) else asks_for(("meet", {}))

    company.tools["meet"] = meet
    company.models["reader"] = ScriptedModel(reader, name="reader", repeat=True)
    company.hire(READER.model_copy(update={"tools": ("meet",)}))
    turn = await company.engine().run(LEAD, "hi")
    assert sorted(met) == [f"{turn.id}:call00001", f"{turn.id}:call00002"]
    assert turn.tool_calls == 4


# What it is lent.


async def test_calls_of_a_batch_share_the_budget_and_return_the_rest() -> None:
    """Of 12, the batch itself takes 3; of the 9 that are left each sub-agent is lent 4."""
    company = Company(
        lead=[
            asks_for(("Reader", {"prompt": "a"}), ("Reader", {"prompt": "b"}), ("note", {"text": "mine"})),
            send("Reader"),
            "All done.",
        ],
        reader=[asks_for(("note", {"text": "a"})), "Done.", "Done.", "Done."],
    )
    company.hire(READER)
    engine = company.engine(limits=Limits(tool_calls=12))
    turn = await engine.run(LEAD, "hi")
    first, second, plain, last = await leases(engine, turn.id)
    assert first == second == f.Lease(calls=4)
    assert plain is None
    assert last == f.Lease(calls=7), "12 without the 3 of the batch, the one that was used, and its own place"
    assert (await started(engine, f"{turn.id}:call00004")).limits.tool_calls == 7
    assert turn.tool_calls == 5


@pytest.mark.parametrize(("budget", "refused"), [(1, True), (2, False)])
async def test_a_lease_of_nothing_is_refused(budget: int, refused: bool) -> None:
    company = Company(lead=[send("Reader"), "I see."], reader="Done.")
    company.hire(READER)
    engine = company.engine(limits=Limits(tool_calls=budget))
    turn = await engine.run(LEAD, "hi")
    ((status, text),) = results(turn)
    assert (status is CallStatus.REFUSED) is refused
    assert ("nothing is left of the budget" in text) is refused
    assert len(await engine.store.turns()) == (1 if refused else 2)


async def test_smaller_budget_of_a_sub_agent_holds() -> None:
    company = Company(lead=[send("Thrifty"), "All done."], reader=[asks_for(("note", {"text": "a"})), "Stopped."])
    company.hire(Agent(name="Thrifty", description="Spends little.", model="reader", budget=1))
    engine = company.engine()
    turn = await engine.run(LEAD, "hi")
    child = await engine.get(f"{turn.id}:call00001")
    assert (child.outcome, child.reason, child.tool_calls) == (Outcome.CAP_HIT, EndReason.BUDGET, 1)
    ((status, text),) = results(turn)
    assert (status, "[sub-agent: cap_hit, budget;" in text) == (CallStatus.OK, True)


async def test_tokens_and_cost_are_lent_to_sub_agents() -> None:
    """The reply's own usage is subtracted first."""
    company = Company(lead=[send("Reader", "Reader"), "All done."], reader=["Done.", "Done."])
    company.hire(READER)
    price = Price(input=1e5, output=1e5)
    engine = company.engine(limits=Limits(tokens=102, cost=10.2), prices={"lead": price, "reader": price})
    turn = await engine.run(LEAD, "hi")
    first_lease, second_lease = await leases(engine, turn.id)
    assert first_lease == second_lease
    assert first_lease is not None
    assert first_lease.tokens == 50
    assert first_lease.cost == pytest.approx(5.0)
    limits = (await started(engine, f"{turn.id}:call00002")).limits
    assert limits.tokens == 50
    assert limits.cost == pytest.approx(5.0)
    assert turn.usage.tokens == 8
    assert turn.usage.cost == pytest.approx(0.8)


async def test_agent_may_call_the_same_agent_three_levels_deep() -> None:
    """The call at the fourth level is refused, and its model receives that."""
    agent = Agent(name="Deep", description="Goes deeper.", model="deep")

    def deeper(request: ModelRequest) -> ModelResponse | str:
        return "Done." if any(message.calls for message in request.messages) else send("Deep")

    company = Company(deep=deeper)
    company.models["deep"] = ScriptedModel(deeper, name="deep", repeat=True)
    company.hire(agent)
    engine = company.engine()
    turn = await engine.run(agent, "hi")
    rows = {row.id.removeprefix(turn.id) for row in await engine.store.turns()}
    assert rows == {"", ":call00001", ":call00001:call00001", ":call00001:call00001:call00001"}
    deepest = await engine.get(f"{turn.id}:call00001:call00001:call00001")
    assert results(deepest) == [(CallStatus.REFUSED, "not executed: sub-agents may be nested 3 deep")]
    assert turn.tool_calls == 3


# What it asks a person.


async def test_approval_shows_the_call_and_the_asking_agent() -> None:
    company = Company(lead=[send("Reader"), "All done."], reader=[asks_for(("erase", {"path": "é.py"})), "Done."])
    company.hire(READER)
    engine = company.engine()
    paused = await engine.run(LEAD, "hi")
    (interrupt,) = paused.interrupts
    assert (interrupt.id, interrupt.kind) == ("call00001/approval-1", InterruptKind.APPROVAL)
    assert interrupt.question == "Reader: may erase run?"
    assert interrupt.arguments == {"path": "é.py"}, "its prompt is not what is to be approved"
    turn = await engine.resume(paused.id, {interrupt.id: True})
    assert (turn.outcome, company.done) == (Outcome.FINISHED, ["erase é.py"])
    assert turn.tool_calls == 2


async def test_approval_from_below_shows_the_path_of_agents() -> None:
    company = Company(
        lead=[send("Editor"), "All done."],
        editor=[asks_for(("note", {"text": "a"}), ("Reader", {"prompt": "b"})), "Edited."],
        reader=[asks_for(("erase", {"path": "x.py"})), "Done."],
    )
    company.hire(READER)
    company.hire(Agent(name="Editor", description="Edits.", model="editor"))
    engine = company.engine()
    paused = await engine.run(LEAD, "hi")
    (interrupt,) = paused.interrupts
    assert interrupt.id == "call00001/call00002/approval-1"
    assert interrupt.question == "Editor > Reader: may erase run?"
    assert interrupt.arguments == {"path": "x.py"}
    turn = await engine.resume(paused.id, {interrupt.id: reject("not that one")})
    assert (turn.outcome, turn.text, company.done) == (Outcome.FINISHED, "All done.", ["a"])
    child = await engine.get(f"{turn.id}:call00001:call00002")
    assert results(child) == [(CallStatus.REJECTED, "rejected by the person: not that one")]


async def test_question_of_a_sub_agent_keeps_text_and_choices(tmp_path: Path) -> None:
    company = Company(
        lead=[send("Asker"), "All done."],
        asker=[asks_for(("ask_user_input", {"question": "Which branch?", "choices": ["main", "dev"]})), "Done."],
    )
    company.tools |= {builtin_tool.name: builtin_tool for builtin_tool in builtin_tools(tmp_path)}
    company.hire(Agent(name="Asker", description="Asks.", model="asker"))
    engine = company.engine()
    paused = await engine.run(LEAD, "hi")
    (interrupt,) = paused.interrupts
    assert (interrupt.kind, interrupt.question, interrupt.choices) == (
        InterruptKind.QUESTION,
        "Asker: Which branch?",
        ("main", "dev"),
    )
    turn = await engine.resume(paused.id, {interrupt.id: "dev"})
    ((_, text),) = results(await engine.get(f"{turn.id}:call00001"))
    assert "dev" in text


async def test_read_grant_of_a_sub_agent_stays_with_the_sub_agent(tmp_path: Path) -> None:
    """A person who grants something to a sub-agent has not granted it to the one that called it."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    company = Company(
        lead=[send("Asker"), "All done."],
        asker=[asks_for(("request_read_access", {"path": str(outside), "reason": "to see"})), "Done."],
    )
    company.tools |= {builtin_tool.name: builtin_tool for builtin_tool in builtin_tools(inside)}
    company.hire(Agent(name="Asker", description="Asks.", model="asker"))
    engine = company.engine()
    paused = await engine.run(LEAD, "hi")
    (interrupt,) = paused.interrupts
    assert (interrupt.kind, str(outside) in interrupt.question) == (InterruptKind.GRANT, True)
    turn = await engine.resume(paused.id, {interrupt.id: True})
    grants = [
        fact.grant
        for name in (turn.id, f"{turn.id}:call00001")
        for _, fact in await engine.store.facts(name)
        if isinstance(fact, f.Answered)
    ]
    assert grants == [None, str(outside)]


async def test_all_open_questions_of_a_sub_agent_are_asked_at_once() -> None:
    """Rule 16: in one pause. Nothing of it runs before the last answer."""
    company = Company(
        lead=[send("Reader"), "All done."],
        reader=[asks_for(*[("erase", {"path": path}) for path in "wxyz"]), "Done."],
    )
    company.hire(READER)
    engine = company.engine()
    paused = await engine.run(LEAD, "hi")
    assert [(interrupt.id, interrupt.tool, interrupt.call) for interrupt in paused.interrupts] == [
        (f"call00001/approval-{number}", "erase", f"call00001:call0000{number}") for number in (1, 2, 3, 4)
    ]
    assert [interrupt.arguments for interrupt in paused.interrupts] == [{"path": path} for path in "wxyz"]
    half = await engine.resume(paused.id, {f"call00001/approval-{number}": True for number in (1, 3)})
    assert (half.paused, company.done) == (True, [])
    turn = await engine.resume(paused.id, {f"call00001/approval-{number}": number == 2 for number in (2, 4)})
    assert (turn.outcome, sorted(company.done)) == (Outcome.FINISHED, ["erase w", "erase x", "erase y"])
    facts = [fact for _, fact in await engine.store.facts(turn.id)]
    assert [fact.kind for fact in facts].count("paused") == 1


async def test_questions_of_three_levels_are_asked_at_the_root() -> None:
    """Rule 16: to any depth, each with its own tool and the calls that lead to it."""
    company = Company(
        lead=[asks_for(("erase", {"path": "a"}), ("Writer", {"prompt": "Go."})), "All done."],
        writer=[asks_for(("erase", {"path": "b"}), ("Reader", {"prompt": "Go."})), "Done."],
        reader=[asks_for(("erase", {"path": "c"}), ("erase", {"path": "d"})), "Done."],
    )
    writer = Agent(name="Writer", description="Writes files.", model="writer", tools=("erase", "Reader"))
    company.hire(READER)
    company.hire(writer)
    engine = company.engine()
    paused = await engine.run(LEAD, "hi")
    assert {interrupt.id: (interrupt.tool, interrupt.call) for interrupt in paused.interrupts} == {
        "approval-1": ("erase", "call00001"),
        "call00002/approval-1": ("erase", "call00002:call00001"),
        "call00002/call00002/approval-1": ("erase", "call00002:call00002:call00001"),
        "call00002/call00002/approval-2": ("erase", "call00002:call00002:call00002"),
    }
    turn = await engine.resume(paused.id, {interrupt.id: True for interrupt in paused.interrupts})
    assert (turn.outcome, sorted(company.done)) == (Outcome.FINISHED, [f"erase {path}" for path in "abcd"])


async def test_questions_beyond_64_come_with_the_next_pause() -> None:
    """Rule 16."""
    calls = [("erase", {"path": f"{number}"}) for number in range(33)]
    company = Company(lead=[send("Boss"), "All done."], boss=[send("Reader", "Reader", "Reader"), "Done."], reader="")
    ask_all = asks_for(*calls[:32])
    company.models["reader"] = ScriptedModel(
        lambda request: "Done." if any(message.calls for message in request.messages) else ask_all,
        name="reader",
        repeat=True,
    )
    company.hire(READER)
    company.hire(Agent(name="Boss", description="Leads.", model="boss", tools=("Reader",)))
    engine = company.engine(limits=Limits(tool_calls=None))
    paused = await engine.run(LEAD, "hi")
    assert len(paused.interrupts) == 64
    second = await engine.resume(paused.id, {interrupt.id: False for interrupt in paused.interrupts})
    assert len(second.interrupts) == 32
    turn = await engine.resume(paused.id, {interrupt.id: False for interrupt in second.interrupts})
    assert turn.outcome is Outcome.FINISHED


async def test_two_sub_agents_may_ask_at_once() -> None:
    def reader(request: ModelRequest) -> ModelResponse | str:
        return "Done." if any(message.calls for message in request.messages) else asks_for(("erase", {"path": "x"}))

    company = Company(lead=[send("Reader", "Reader"), "All done."], reader="")
    company.models["reader"] = ScriptedModel(reader, name="reader", repeat=True)
    company.hire(READER)
    engine = company.engine()
    paused = await engine.run(LEAD, "hi")
    assert [interrupt.id for interrupt in paused.interrupts] == ["call00001/approval-1", "call00002/approval-1"]
    turn = await engine.resume(paused.id, {"call00001/approval-1": True, "call00002/approval-1": False})
    assert (turn.outcome, company.done) == (Outcome.FINISHED, ["erase x"])


async def test_sub_agent_without_a_pause_left_is_denied_and_goes_on() -> None:
    company = Company(
        lead=[send("Reader"), "All done."],
        reader=[asks_for(("erase", {"path": "x"}), ("erase", {"path": "y"})), "Not done."],
    )
    company.hire(READER)
    turn = await company.engine(limits=Limits(max_pauses=0)).run(LEAD, "hi")
    assert (turn.outcome, company.done) == (Outcome.FINISHED, [])
    ((status, text),) = results(turn)
    assert (status, text.startswith("Not done.")) == (CallStatus.OK, True)


async def test_approvals_of_a_sub_agent_without_a_pause_are_denied() -> None:
    """The sub-agent may pause, for its agent says so; its caller may not."""
    company = Company(
        lead=[send("Patient"), "All done."],
        patient=[asks_for(("erase", {"path": "x"}), ("erase", {"path": "y"})), "Not done."],
    )
    company.hire(Agent(name="Patient", description="Waits.", model="patient", max_pauses=5))
    engine = company.engine(limits=Limits(max_pauses=0))
    turn = await engine.run(LEAD, "hi")
    assert (turn.outcome, company.done) == (Outcome.FINISHED, [])
    child_results = results(await engine.get(f"{turn.id}:call00001"))
    no = "rejected by the person: the turn that called this sub-agent has no pause left"
    assert child_results == [(CallStatus.REJECTED, no)] * 2


async def test_doom_loop_of_a_sub_agent_without_a_pause_is_stopped() -> None:
    again = asks_for(("note", {"text": "a"}))
    company = Company(lead=[send("Patient"), "All done."], patient=[again, again, again, "I gave up."])
    company.hire(Agent(name="Patient", description="Waits.", model="patient", max_pauses=5, doom_response="ask"))
    engine = company.engine(limits=Limits(max_pauses=0))
    turn = await engine.run(LEAD, "hi")
    child = await engine.get(f"{turn.id}:call00001")
    assert (child.outcome, child.text) == (Outcome.DOOM_LOOP, "I gave up.")
    assert turn.outcome is Outcome.FINISHED


async def test_unknown_outcome_of_a_sub_agent_without_a_pause_stays_unknown() -> None:
    memory = MemoryStore()
    company = Company(lead=[send("Patient"), "All done."], patient=[asks_for(("pay", {})), "Perhaps."])

    @tool(on_crash="ask")
    async def pay() -> str:
        """Pay."""
        company.done.append("paid")
        return "paid"

    company.tools["pay"] = pay
    company.hire(Agent(name="Patient", description="Waits.", model="patient", max_pauses=5))
    limits = Limits(max_pauses=0)
    with pytest.raises(StoreError):
        await company.engine(FaultyStore(memory, at=f.CallSettled), limits=limits).run(LEAD, "hi")
    await memory.aclose()
    (turn,) = await company.engine(memory, limits=limits).recover()
    child_results = results(await company.engine(memory).get(f"{turn.id}:call00001"))
    assert child_results == [(CallStatus.UNKNOWN, "outcome unknown: verify before retrying")]
    assert (turn.outcome, company.done) == (Outcome.FINISHED, ["paid"])


async def test_doom_loop_of_a_sub_agent_is_asked_through_the_caller() -> None:
    again = asks_for(("note", {"text": "a"}))
    company = Company(lead=[send("Reader"), "All done."], reader=[again, again, again, "Done."])
    company.hire(READER)
    engine = company.engine(limits=Limits(doom_response="ask"))
    paused = await engine.run(LEAD, "hi")
    (interrupt,) = paused.interrupts
    assert (interrupt.id, interrupt.kind) == ("call00001/doom-1", InterruptKind.DOOM_LOOP)
    assert interrupt.question.startswith("Reader: The model keeps asking for the same calls (note)")
    turn = await engine.resume(paused.id, {interrupt.id: "go_on"})
    assert (turn.outcome, (await engine.get(f"{turn.id}:call00001")).text) == (Outcome.FINISHED, "Done.")


async def test_approval_of_a_sub_agent_call_approves_no_call_inside() -> None:
    """Both interrupts are called approval-1, each in its own turn, also when the process dies in between."""
    memory = MemoryStore()
    company = Company(lead=[send("Reader"), "All done."], reader=[asks_for(("erase", {"path": "x"})), "Done."])
    company.hire(READER, needs_approval=True)
    paused = await company.engine(memory).run(LEAD, "hi")
    assert [interrupt.id for interrupt in paused.interrupts] == ["approval-1"]
    assert len(await memory.turns()) == 1
    # The answer, the start, the sub-agent's reply with its pause; then the caller's.
    dying = FaultyStore(memory, at=4)
    with pytest.raises(StoreError):
        await company.engine(dying).resume(paused.id, {"approval-1": True})
    assert (await memory.get(f"{paused.id}:call00001")).status.state is State.PAUSED
    await memory.aclose()
    engine = company.engine(memory)
    still_paused = await engine.resume(paused.id)
    assert ([interrupt.id for interrupt in still_paused.interrupts], company.done) == (["call00001/approval-1"], [])
    turn = await engine.resume(paused.id, {"call00001/approval-1": False})
    assert (turn.outcome, company.done) == (Outcome.FINISHED, [])


async def test_an_interrupt_expires_in_the_name_of_the_sub_agent() -> None:
    company = Company(lead=[send("Reader"), "All done."], reader=[asks_for(("pay", {})), "Done."])

    @tool(needs_approval=True, expires_in=60)
    async def pay() -> str:
        """Pay."""
        company.done.append("paid")
        return "paid"

    company.tools["pay"] = pay
    company.hire(READER.model_copy(update={"tools": ("pay",)}))
    now = [1000.0]
    engine = Engine(models=company.find, tools=list(company.tools.values()), now=lambda: now[0])
    paused = await engine.run(LEAD, "hi")
    assert [interrupt.expires_at for interrupt in paused.interrupts] == [1060.0]
    now[0] = 1061.0
    (turn,) = await engine.recover()
    assert (turn.outcome, company.done) == (Outcome.FINISHED, [])
    child_results = results(await engine.get(f"{turn.id}:call00001"))
    assert child_results == [(CallStatus.REJECTED, "rejected by the person: nobody answered in time")]


# Its time, and its end.


class Silent:
    """A model that says a word and then nothing, and says when it has."""

    name = "silent"

    def __init__(self) -> None:
        self.waits = anyio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResponse]:
        """Never end. See `Model.stream`."""
        del request
        yield TextDelta("Well")
        self.waits.set()
        await anyio.sleep_forever()


class Office(Company):
    """A company with a silent model, and two tools that take their time."""

    def __init__(self, **scripts: Sequence[Line] | Line) -> None:
        super().__init__(**scripts)
        self.silent = Silent()
        self.busy, self.leave = anyio.Event(), anyio.Event()

        @tool
        async def quick() -> str:
            """End when somebody says so."""
            self.busy.set()
            await self.leave.wait()
            return "quick is done"

        @tool
        async def slow() -> str:
            """Never end."""
            self.busy.set()
            await anyio.sleep_forever()
            raise AssertionError

        self.tools |= {tool.name: tool for tool in (quick, slow)}

    def find(self, name: str) -> Model:
        """The model of that name."""
        return self.silent if name == "silent" else super().find(name)


MUTE = Agent(name="Mute", description="Says little.", model="silent")
WORKER = Agent(name="Worker", description="Works.", model="worker")


async def endings(engine: Engine, turn_id: str) -> dict[str, EndReason | None]:
    """Return the endings of a tree's turns, by their ids after the first one's."""
    rows = await engine.store.turns()
    return {row.id.removeprefix(turn_id): row.status.reason for row in rows if row.id.startswith(turn_id)}


class Clock:
    """A clock that is moved by hand, and a tool that takes half a minute."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time

    def tool(self) -> Tool:
        @tool
        async def tick() -> str:
            """Take half a minute."""
            self.time += 30.0
            return "ticked"

        return tick


async def test_sub_agent_has_the_remaining_time() -> None:
    """The steps of its caller before it, and of nobody else."""
    clock = Clock()
    company = Company(lead=[asks_for(("tick", {})), send("Reader"), "All done."], reader="Done.")
    company.tools["tick"] = clock.tool()
    company.hire(READER)
    engine = Engine(models=company.find, tools=list(company.tools.values()), limits=Limits(seconds=100), clock=clock)
    turn = await engine.run(LEAD, "hi")
    assert (await started(engine, f"{turn.id}:call00002")).limits.seconds == pytest.approx(70)


async def test_paused_time_counts_for_no_turn() -> None:
    clock = Clock()
    company = Company(
        lead=[send("Reader"), "All done."],
        reader=[asks_for(("erase", {"path": "x"}), ("tick", {})), asks_for(("tick", {})), "Done."],
    )
    company.tools["tick"] = clock.tool()
    company.hire(READER.model_copy(update={"tools": ("erase", "tick")}))
    engine = Engine(models=company.find, tools=list(company.tools.values()), limits=Limits(seconds=100), clock=clock)
    paused = await engine.run(LEAD, "hi")
    clock.time += 5000.0
    turn = await engine.resume(paused.id, {"call00001/approval-1": True})
    child = await engine.get(f"{turn.id}:call00001")
    assert (child.reason, turn.reason) == (EndReason.ANSWERED, EndReason.ANSWERED)
    assert child.seconds == turn.seconds == pytest.approx(60)


async def test_time_spent_by_a_sub_agent_counts_for_the_parent() -> None:
    """Each has a minute, and the sub-agent concludes when its parent's is over."""
    clock = Clock()
    company = Company(
        lead=[asks_for(("tick", {})), send("Reader"), "Out of time."],
        reader=[asks_for(("tick", {})), "I was stopped."],
    )
    company.tools["tick"] = clock.tool()
    company.hire(READER.model_copy(update={"tools": ("tick",)}))
    engine = Engine(models=company.find, tools=list(company.tools.values()), limits=Limits(seconds=60), clock=clock)
    turn = await engine.run(LEAD, "hi")
    child = await engine.get(f"{turn.id}:call00002")
    assert (child.reason, child.text) == (EndReason.DEADLINE, "I was stopped.")
    assert (turn.outcome, turn.reason, turn.text) == (Outcome.CAP_HIT, EndReason.DEADLINE, "Out of time.")


async def test_shorter_time_limit_of_a_sub_agent_holds() -> None:
    company = Office(lead=[send("Brief"), "All done."])
    company.hire(Agent(name="Brief", description="Is brief.", model="silent", budget=Limits(seconds=5)))
    company.hire(MUTE)
    engine = Engine(
        models=company.find,
        tools=list(company.tools.values()),
        limits=Limits(seconds=100, conclude_seconds=1, max_retries=0),
        clock=anyio.current_time,
    )
    turn = await engine.run(LEAD, "hi")
    child = await engine.get(f"{turn.id}:call00001")
    assert (child.reason, turn.outcome) == (EndReason.DEADLINE, Outcome.FINISHED)


async def test_deadline_of_the_caller_ends_all_sub_agents() -> None:
    """And theirs: nobody is left running when it concludes."""
    company = Office(lead=[send("Manager", "Mute"), "Out of time."], manager=[send("Mute"), "never said"])
    company.hire(MUTE)
    company.hire(Agent(name="Manager", description="Delegates.", model="manager", budget=Limits(seconds=100)))
    heard: list[TurnEvent] = []
    engine = company.engine(limits=Limits(seconds=50), on_event=[heard.append], clock=anyio.current_time)
    turn = await engine.run(LEAD, "hi")
    assert (turn.outcome, turn.reason, turn.text) == (Outcome.CAP_HIT, EndReason.DEADLINE, "Out of time.")
    assert set((await endings(engine, turn.id)).values()) <= {EndReason.DEADLINE, EndReason.ABORTED}
    last = [event.turn for event in heard if event.type == "turn_ended"]
    stopping = next(place for place, event in enumerate(heard) if event.type == "stopping" and event.turn == turn.id)
    assert last[-1] == turn.id
    assert all(event.turn == turn.id for event in heard[stopping:])


async def run_and(engine: Engine, when: anyio.Event, act: Callable[[str], Awaitable[None]]) -> TurnResult:
    """Run the lead; when the event is set, do something to its turn, whose id is given."""
    root: list[str] = []

    async def wait(turn_id: str) -> None:
        await when.wait()
        await act(turn_id)

    async with engine.stream(LEAD, "hi") as events, anyio.create_task_group() as group:
        async for event in events:
            if not root:
                root.append(event.turn)
                group.start_soon(wait, event.turn)
    return await engine.get(root[0])


async def run_and_abort(company: Office, engine: Engine, when: anyio.Event, suffix: str = "") -> TurnResult:
    """Run the lead; when the event is set, abort its turn, or the one whose id follows its own."""

    async def abort(turn_id: str) -> None:
        await engine.abort(f"{turn_id}{suffix}")
        company.leave.set()

    return await run_and(engine, when, abort)


async def test_abort_reaches_a_sub_agent_during_a_model_call() -> None:
    """It keeps the received text; no grace is needed for that."""
    company = Office(lead=[send("Mute")])
    company.hire(MUTE)
    engine = company.engine(cancel_grace=30)
    turn = await run_and_abort(company, engine, company.silent.waits)
    child = await engine.get(f"{turn.id}:call00001")
    assert (turn.reason, child.reason, child.text) == (EndReason.ABORTED, EndReason.ABORTED, "Well")
    ((status, text),) = results(turn)
    assert (status, text) == (CallStatus.ABORTED, f"Well\n\n[sub-agent: aborted, aborted; turn {child.id}]")


async def test_an_abort_lets_the_tools_of_sub_agents_finish_within_grace() -> None:
    """Two levels down as well; the slower one is canceled."""
    company = Office(
        lead=[send("Manager")],
        manager=[send("Worker")],
        worker=[asks_for(("quick", {}), ("slow", {}))],
    )
    company.hire(WORKER)
    company.hire(Agent(name="Manager", description="Delegates.", model="manager"))
    engine = company.engine(cancel_grace=0.5)
    turn = await run_and_abort(company, engine, company.busy)
    worker = await engine.get(f"{turn.id}:call00001:call00001")
    assert [status for status, _ in results(worker)] == [CallStatus.OK, CallStatus.ABORTED]
    assert set((await endings(engine, turn.id)).values()) == {EndReason.ABORTED}


async def test_abort_without_grace_ends_all_sub_agents() -> None:
    company = Office(lead=[send("Manager", "Worker")], manager=[send("Worker")], worker="")

    def worker(request: ModelRequest) -> ModelResponse | str:
        del request
        return asks_for(("slow", {}))

    company.models["worker"] = ScriptedModel(worker, name="worker", repeat=True)
    company.hire(WORKER)
    company.hire(Agent(name="Manager", description="Delegates.", model="manager"))
    engine = company.engine(cancel_grace=0.0)
    turn = await run_and_abort(company, engine, company.busy)
    ended = await endings(engine, turn.id)
    assert set(ended.values()) == {EndReason.ABORTED}
    assert await engine.store.turns(live=True) == []


async def test_abort_ends_a_resting_tree() -> None:
    company = Company(lead=[send("Editor")], editor=[send("Reader")], reader=[asks_for(("erase", {"path": "x"}))])
    company.hire(READER)
    company.hire(Agent(name="Editor", description="Edits.", model="editor"))
    engine = company.engine()
    paused = await engine.run(LEAD, "hi")
    await engine.abort(paused.id)
    assert set((await endings(engine, paused.id)).values()) == {EndReason.ABORTED}
    assert len(await engine.store.turns()) == 3


async def test_a_failure_of_the_engine_ends_the_sub_agents_first() -> None:
    company = Office(lead=[asks_for(("Mute", {"prompt": "a"}), ("broken", {}))])
    company.hire(MUTE)

    class Broken(Tool):
        async def run(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
            del arguments, context
            await company.silent.waits.wait()
            raise RuntimeError("a bug")

        async def execute(self, values: Mapping[str, object], context: ToolContext) -> object:
            raise AssertionError(values, context)

    company.tools["broken"] = Broken(name="broken", description="Has a bug.", parameters={"type": "object"})
    engine = company.engine()
    turn = await engine.run(LEAD, "hi")
    assert (turn.outcome, turn.reason) == (Outcome.FAILED, EndReason.ENGINE_ERROR)
    child = await engine.get(f"{turn.id}:call00001")
    assert child.reason is EndReason.ABORTED


async def test_sub_agent_created_during_the_stop_of_the_caller_ends() -> None:
    """The store has written it, and nobody has driven it yet: its claim must not outlive its caller."""
    company = Office(lead=[send("Mute")])
    company.hire(MUTE)

    class Slow(StoreWrapper):
        async def create(self, new: NewTurn, facts: Sequence[f.Fact], status: Status, *, driven: bool = True) -> Claim:
            claim = await super().create(new, facts, status, driven=driven)
            if ":" in new.id:
                await engine.abort(new.id.partition(":")[0])
                for _ in range(20):
                    await anyio.lowlevel.checkpoint()
            return claim

    engine = company.engine(Slow(MemoryStore()), cancel_grace=0.0)
    turn = await engine.run(LEAD, "hi")
    assert set((await endings(engine, turn.id)).values()) == {EndReason.ABORTED}
    assert len(await engine.store.turns()) == 2
    assert not await engine.store.is_driven(f"{turn.id}:call00001")


async def test_usage_of_sub_agents_counts_for_a_stopped_caller() -> None:
    company = Office(
        lead=[send("Manager")],
        manager=[send("Worker")],
        worker=[asks_for(("note", {"text": "a"})), asks_for(("slow", {}))],
    )
    company.hire(WORKER)
    company.hire(Agent(name="Manager", description="Delegates.", model="manager"))
    turn = await run_and_abort(company, company.engine(cancel_grace=0.0), company.busy)
    assert (turn.reason, turn.tool_calls, turn.usage.tokens) == (EndReason.ABORTED, 4, 8)


async def test_usage_of_grandchildren_of_an_aborted_manager_is_counted() -> None:
    """An aborted manager does not receive its worker's usage; the budget of the manager's parent does."""
    company = Office(
        lead=[send("Manager"), "All done."],
        manager=[send("Worker")],
        worker=[asks_for(("note", {"text": "a"})), asks_for(("slow", {}))],
    )
    company.hire(WORKER)
    company.hire(Agent(name="Manager", description="Delegates.", model="manager"))
    engine = company.engine(cancel_grace=0.0)
    turn = await run_and_abort(company, engine, company.busy, ":call00001")
    assert (await engine.get(f"{turn.id}:call00001:call00001")).tool_calls == 2
    assert (turn.outcome, turn.tool_calls) == (Outcome.FINISHED, 4), "the manager, the worker, and its two calls"
    assert turn.usage.tokens == 10, "two replies of the lead's, one of the manager's, two of the worker's"


# What cannot run.


#: The result of a call is public: why it cannot run is for the log.
CANNOT_RUN = (
    "the sub-agent cannot run here: its limits are not allowed, or the agent, its model, a tool or a price is missing;"
    " calling it again does not help"
)


async def test_sub_agent_with_a_missing_model_is_an_error_of_the_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    company = Company(lead=[send("Reader"), "I see."])
    company.hire(READER)
    engine = company.engine()
    turn = await engine.run(LEAD, "hi")
    assert turn.outcome is Outcome.FINISHED
    ((status, text),) = results(turn)
    assert (status, text) == (CallStatus.ERROR, CANNOT_RUN)
    (logged,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert logged.getMessage() == f"turn {turn.id}: sub-agent Reader cannot run here: there is no model 'reader'"
    assert (vars(logged)["turn"], vars(logged)["call"], vars(logged)["tool"]) == (turn.id, "call00001", "Reader")
    assert turn.tool_calls == 1
    assert len(await engine.store.turns()) == 1


async def test_raising_model_finder_does_not_end_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    company = Company(lead=[send("Reader"), "I see."])
    company.hire(READER)
    engine = Engine(models=company.models.__getitem__, tools=list(company.tools.values()))
    ((status, text),) = results(await engine.run(LEAD, "hi"))
    assert (status, text) == (CallStatus.ERROR, CANNOT_RUN)
    assert "model 'reader' was not found: KeyError" in caplog.text


async def test_sub_agent_with_missing_tools_is_an_error_of_the_call(caplog: pytest.LogCaptureFixture) -> None:
    company = Company(lead=[send("Reader"), "I see."], reader="Done.")
    company.hire(READER.model_copy(update={"tools": ("nothing",)}))
    ((status, text),) = results(await company.engine().run(LEAD, "hi"))
    assert (status, text) == (CallStatus.ERROR, CANNOT_RUN)
    assert "there is no tool 'nothing'" in caplog.text


async def test_a_lent_cost_needs_the_price_of_the_sub_agents_model(caplog: pytest.LogCaptureFixture) -> None:
    """Its own budget is none, and it is bound by its caller's all the same."""
    company = Company(lead=[send("Reader"), "I see."], reader="Done.")
    company.hire(READER)
    engine = company.engine(prices={"lead": Price(input=1, output=1)})
    costly = LEAD.model_copy(update={"budget": Limits(cost=5.0)})
    turn = await engine.run(Agent(name="Lead", model="lead", budget=costly.budget), "hi")
    ((status, text),) = results(turn)
    assert (status, text) == (CallStatus.ERROR, CANNOT_RUN)
    assert "needs the price of model 'reader'" in caplog.text


async def test_sub_agent_with_missing_tools_after_a_crash_is_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Another process may have them: nothing that was done is thrown away (docs/rules.md#drivers)."""
    memory = MemoryStore()
    company = Company(lead=[send("Reader"), "I see."], reader=[asks_for(("note", {"text": "a"})), "Done."])
    company.hire(READER)
    with pytest.raises(StoreError):
        await company.engine(FaultyStore(memory, at=f.CallSettled)).run(LEAD, "hi")
    await memory.aclose()
    note_tool = company.tools.pop("note")
    assert await company.engine(memory).recover() == []
    assert len(await memory.turns(live=True)) == 2
    assert "its open calls need the tools note" in caplog.text or "there is no tool 'note'" in caplog.text
    company.tools["note"] = note_tool
    (turn,) = await company.engine(memory).recover()
    assert (turn.outcome, await memory.turns(live=True)) == (Outcome.FINISHED, [])


async def test_tool_no_longer_a_sub_agent_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    memory = MemoryStore()
    company = Company(lead=[send("Reader"), "I see."], reader="Done.")
    company.hire(READER)
    with pytest.raises(StoreError):
        await company.engine(Unborn(memory)).run(LEAD, "hi")
    await memory.aclose()

    @tool(name="Reader")
    async def reader(prompt: str) -> str:
        """Is a tool now."""
        return prompt

    company.tools["Reader"] = reader
    (turn,) = await company.engine(memory).recover()
    assert results(turn) == [
        (CallStatus.ERROR, CANNOT_RUN),
    ]
    assert "Reader is no longer a sub-agent: make it with agent_tool(...)" in caplog.text


class Unborn(StoreWrapper):
    """Dies before it writes a sub-agent's turn."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.dead = False

    def enter(self) -> None:
        """Raise when the store is dead."""
        if self.dead:
            raise StoreError("the store is dead, as planned")

    async def create(self, new: NewTurn, facts: Sequence[f.Fact], status: Status, *, driven: bool = True) -> Claim:
        """See `Store.create`."""
        self.dead = ":" in new.id
        return await super().create(new, facts, status, driven=driven)


async def test_turn_with_an_unwritten_sub_agent_can_be_aborted() -> None:
    """Its usage is unknown, so its whole lease counts."""
    memory = MemoryStore()
    company = Company(lead=[send("Reader")], reader="Done.")
    company.hire(READER)
    with pytest.raises(StoreError):
        await company.engine(Unborn(memory)).run(LEAD, "hi")
    await memory.aclose()
    (row,) = await memory.turns(live=True)
    engine = company.engine(memory)
    await engine.abort(row.id)
    assert await endings(engine, row.id) == {"": EndReason.ABORTED}


async def test_turn_with_an_unreadable_sub_agent_can_be_aborted() -> None:
    company = Company(lead=[send("Reader")], reader=[asks_for(("erase", {"path": "x"}))])
    company.hire(READER)
    store = Torn()
    engine = company.engine(store)
    paused = await engine.run(LEAD, "hi")
    store.torn = f"{paused.id}:call00001"
    await engine.abort(paused.id)
    assert (await endings(engine, paused.id))[""] is EndReason.ABORTED


async def test_abandoned_drivers_do_not_keep_a_sub_agent_alive() -> None:
    memory = MemoryStore()
    company = Company(lead=[send("Reader")], reader=[asks_for(("erase", {"path": "x"}))])
    company.hire(READER)
    engine = company.engine(memory)
    paused = await engine.run(LEAD, "hi")
    for turn_id in (paused.id, f"{paused.id}:call00001"):
        await memory.claim(turn_id)
    await end_turn(memory, paused.id, abandoned_drivers=AbandonedDrivers(frozenset({memory.owner})))
    assert await endings(engine, paused.id) == {"": EndReason.ABORTED, ":call00001": EndReason.ABORTED}


class Torn(MemoryStore):
    """Has lost the first fact of one turn."""

    torn = ""

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, f.Fact]]:
        """See `Store.facts`."""
        return (await super().facts(turn_id, after))[turn_id == self.torn :]


# Who drives it.


async def test_recovery_leaves_sub_agents_to_their_callers() -> None:
    memory = MemoryStore()
    company = Company(lead=[send("Reader"), "All done."], reader=[asks_for(("note", {"text": "a"})), "Done."])
    company.hire(READER)
    with pytest.raises(StoreError):
        await company.engine(FaultyStore(memory, at=f.CallSettled)).run(LEAD, "hi")
    await memory.aclose()
    assert len(await memory.turns(live=True)) == 2
    turns = await company.engine(memory).recover()
    assert [(":" in turn.id, turn.outcome) for turn in turns] == [(False, Outcome.FINISHED)]
    assert await memory.turns(live=True) == []


async def test_sub_agent_cannot_be_resumed_alone() -> None:
    company = Company(lead=[send("Reader"), "All done."], reader=[asks_for(("erase", {"path": "x"})), "Done."])
    company.hire(READER)
    engine = company.engine()
    paused = await engine.run(LEAD, "hi")
    for below in ("call00001", "call00001:call00002"):
        with pytest.raises(ConfigError, match=f"its parent drives it: resume turn {paused.id}$"):
            await engine.resume(f"{paused.id}:{below}", {"approval-1": True})


async def test_aborted_sub_agent_leaves_the_caller_running() -> None:
    company = Office(lead=[send("Mute", "Reader"), "All done."], reader="Done.")
    company.hire(MUTE)
    company.hire(READER)
    engine = company.engine()
    turn = await run_and_abort(company, engine, company.silent.waits, ":call00001")
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "All done.")
    assert [status for status, _ in results(turn)] == [CallStatus.ABORTED, CallStatus.OK]


async def test_waiting_sub_agent_may_be_aborted_alone() -> None:
    """Nobody need answer its question: its parents go on without it once they are resumed."""
    company = Company(
        lead=[send("Editor"), "All done."],
        editor=[send("Reader"), "Edited."],
        reader=[asks_for(("erase", {"path": "x"})), "Done."],
    )
    company.hire(READER)
    company.hire(Agent(name="Editor", description="Edits.", model="editor"))
    engine = company.engine()
    paused = await engine.run(LEAD, "hi")
    await engine.abort(f"{paused.id}:call00001:call00001")
    (turn,) = await engine.recover()
    assert (turn.id, turn.outcome, company.done) == (paused.id, Outcome.FINISHED, [])
    answers = [fact for _, fact in await engine.store.facts(paused.id) if isinstance(fact, f.Answered)]
    assert [(answer.decision, answer.text) for answer in answers] == [(Decision.REJECT, "the sub-agent was aborted")]
    assert set((await endings(engine, turn.id)).values()) == {EndReason.ABORTED, EndReason.ANSWERED}


async def test_abort_below_an_unreadable_root_names_the_root() -> None:
    company = Company(lead=[send("Reader")], reader=[asks_for(("erase", {"path": "x"}))])
    company.hire(READER)
    store = Torn()
    engine = company.engine(store)
    paused = await engine.run(LEAD, "hi")
    store.torn = paused.id
    with pytest.raises(UnreadableTurnError, match="begins with its only turn_started") as caught:
        await engine.abort(f"{paused.id}:call00001")
    assert caught.value.turn == paused.id


async def test_running_sub_agent_may_be_steered() -> None:
    company = Office(lead=[send("Worker"), "All done."], worker=[asks_for(("quick", {})), "Done."])
    company.hire(WORKER)
    engine = company.engine()

    async def say(turn_id: str) -> None:
        await engine.steer(f"{turn_id}:call00001", "Mind the cat.")
        company.leave.set()

    await run_and(engine, company.busy, say)
    assert [message.text for message in company.models["worker"].requests[-1].messages][-1] == "Mind the cat."


async def test_briefly_claimed_sub_agent_is_waited_for() -> None:
    """Another process claims a turn to end it; its parent must not fail of that."""
    memory = MemoryStore()
    company = Company(lead=[send("Reader"), "All done."], reader=[asks_for(("erase", {"path": "x"})), "Done."])
    company.hire(READER)
    engine = company.engine(memory)
    paused = await engine.run(LEAD, "hi")
    claim = await memory.claim(f"{paused.id}:call00001")
    ended: list[TurnResult] = []

    async def resume() -> None:
        ended.append(await engine.resume(paused.id, {"call00001/approval-1": True}))

    async with anyio.create_task_group() as group:
        group.start_soon(resume)
        while (await memory.get(paused.id)).status.state is State.PAUSED:
            await anyio.lowlevel.checkpoint()
        await anyio.sleep(0.01)
        await memory.release(claim)
    assert (ended[0].outcome, company.done) == (Outcome.FINISHED, ["erase x"])


async def test_overtaken_driver_hears_of_the_sub_agent_of_the_new_driver() -> None:
    """It finds the sub-agent's turn written. That is not a failure of the store."""
    memory = MemoryStore()
    company = Company(lead=[send("Reader"), "All done."], reader="Done.")
    company.hire(READER)
    ended: list[TurnResult] = []

    class Overtaken(StoreWrapper):
        async def create(self, new: NewTurn, facts: Sequence[f.Fact], status: Status, *, driven: bool = True) -> Claim:
            if ":" in new.id and not ended:
                parent = new.id.partition(":")[0]
                await memory.aclose()  # the driver looks dead to everybody
                ended.append(await company.engine(memory).resume(parent))
            return await super().create(new, facts, status, driven=driven)

    with pytest.raises(LeaseLostError):
        await company.engine(Overtaken(memory)).run(LEAD, "hi")
    assert ended[0].text == "All done."


async def test_unwritable_sub_agent_is_a_store_failure() -> None:
    class Full(StoreWrapper):
        async def create(self, new: NewTurn, facts: Sequence[f.Fact], status: Status, *, driven: bool = True) -> Claim:
            if ":" in new.id:
                raise StoreError("the disk is full")
            return await super().create(new, facts, status, driven=driven)

    company = Company(lead=[send("Reader")], reader="Done.")
    company.hire(READER)
    with pytest.raises(StoreError, match="the disk is full"):
        await company.engine(Full(MemoryStore())).run(LEAD, "hi")


async def test_claimed_sub_agent_is_waited_for_by_an_abort_of_the_parent() -> None:
    """The process that holds it finds the abort in its inbox. Listeners learn of its end too."""
    memory, heard = MemoryStore(), list[TurnEvent]()
    company = Company(lead=[send("Reader")], reader=[asks_for(("erase", {"path": "x"}))])
    company.hire(READER)
    engine = company.engine(memory, on_event=[heard.append])
    paused = await engine.run(LEAD, "hi")
    child = f"{paused.id}:call00001"
    claim = await memory.claim(child)
    async with anyio.create_task_group() as group:
        group.start_soon(engine.abort, paused.id)
        while [item.id for item in await memory.inbox(child)] != ["abort"]:
            await anyio.lowlevel.checkpoint()
        await memory.release(claim)
    assert await endings(engine, paused.id) == {"": EndReason.ABORTED, ":call00001": EndReason.ABORTED}
    ended = [event.turn for event in heard if isinstance(event, TurnEndedEvent)]
    assert ended == [child, paused.id]


async def test_turn_is_deleted_with_all_sub_agents() -> None:
    company = Company(lead=[send("Reader"), "All done."], reader="Done.")
    company.hire(READER)
    engine = company.engine()
    turn = await engine.run(LEAD, "hi")
    assert await engine.delete(turn.id) == 2
    assert await engine.store.turns() == []


async def test_pruning_leaves_the_sub_agents_of_a_live_turn() -> None:
    """A turn that ended long ago may be all that its parent needs."""
    company = Company(
        lead=[send("Reader", "Asker"), "All done."], reader="Done.", asker=[asks_for(("erase", {"path": "x"})), "Done."]
    )
    company.hire(READER)
    company.hire(Agent(name="Asker", description="Asks.", model="asker"))
    engine = company.engine()
    paused = await engine.run(LEAD, "hi")
    assert await engine.prune(older_than=-1) == 0
    await engine.resume(paused.id, {"call00002/approval-1": True})
    assert await engine.prune(older_than=-1) == 3


async def test_follower_of_a_sub_agent_is_let_go_with_the_caller() -> None:
    company = Office(lead=[send("Mute")])
    company.hire(MUTE)
    engine = company.engine()
    heard: list[str] = []

    async def run(scope: anyio.CancelScope) -> None:
        with scope:
            await engine.run(LEAD, "hi")

    async with anyio.create_task_group() as group:
        scope = anyio.CancelScope()
        group.start_soon(run, scope)
        await company.silent.waits.wait()
        (child,) = [row.id for row in await engine.store.turns() if ":" in row.id]
        async for event in engine.events(child):
            heard.append(event.type)
            scope.cancel()
    assert heard[0] == "turn_started"


async def test_deleted_sub_agent_is_not_begun_again() -> None:
    """Its actions happened; its parent receives that the outcome is unknown."""
    company = Company(
        lead=[send("Reader"), "I see."],
        reader=[asks_for(("note", {"text": "a"}), ("erase", {"path": "x"})), "Done."],
    )
    company.hire(READER)
    engine = company.engine(limits=Limits(tool_calls=10))
    paused = await engine.run(LEAD, "hi")
    with pytest.raises(ConfigError, match=f"belongs to turn {paused.id}, which has not ended"):
        await engine.delete(f"{paused.id}:call00001")
    await engine.store.delete(f"{paused.id}:call00001")
    turn = await engine.resume(paused.id, {"call00001/approval-1": True})
    ((status, text),) = results(turn)
    assert (turn.reason, turn.text, status) == (EndReason.BUDGET, "I see.", CallStatus.UNKNOWN)
    assert text.startswith("outcome unknown: the sub-agent's turn was not found: it was deleted")
    assert company.done == ["a"]
    assert turn.tool_calls == 10, "nobody knows what it used, so all that it was lent is spent"


async def test_fork_begins_a_new_sub_agent() -> None:
    """If the call had started and the sub-agent had not asked a person."""
    memory = MemoryStore()
    company = Company(lead=[send("Reader"), "All done."], reader=["Done.", "Done again."])
    company.hire(READER)
    engine = company.engine(memory)
    turn = await engine.run(LEAD, "hi")
    at = next(seq for seq, fact in await memory.facts(turn.id) if isinstance(fact, f.CallStarted))
    company.models["lead"] = ScriptedModel("Done twice.", name="lead")
    engine = company.engine(memory)
    fork = await engine.resume(await engine.fork(turn.id, at=at))
    assert (fork.outcome, fork.text) == (Outcome.FINISHED, "Done twice.")
    child = await engine.get(f"{fork.id}:call00001")
    assert (child.text, (await started(engine, child.id)).parent_turn) == ("Done again.", fork.id)


async def test_answer_in_a_fork_goes_to_the_sub_agent_of_the_fork() -> None:
    """The original's sub-agent still waits."""
    company = Company(lead=[send("Reader"), "I see."], reader=[asks_for(("erase", {"path": "x"})), "Done."])
    company.hire(READER)
    engine = company.engine()
    paused = await engine.run(LEAD, "hi")
    at = (await engine.store.facts(paused.id))[-1][0]
    fork = await engine.resume(await engine.fork(paused.id, at=at), {"call00001/approval-1": True})
    ((status, text),) = results(fork)
    assert (fork.text, status, text.startswith("Done.")) == ("I see.", CallStatus.OK, True)
    assert company.done == ["erase x"]
    assert (await engine.get(f"{fork.id}:call00001")).outcome is Outcome.FINISHED
    for turn in (paused.id, f"{paused.id}:call00001"):
        assert (await engine.get(turn)).paused


# What is offered.


def test_tool_name_is_derived_from_the_agents_name() -> None:
    code_reader = agent_tool(Agent(name="Code reader (fast)", description="Reads code."))
    assert (code_reader.name, code_reader.description) == ("Code_reader_fast", "Reads code.")
    assert agent_tool(READER, name="read", description="Reads.").name == "read"


NO_NAME = "its name has no letter or digit of ASCII for its tool: rename it, or give agent_tool(name=...)"
NO_OPTION = (
    "is not an option of a sub-agent: its agent's `seconds` limits its time, and its own journal handles crashes"
)


@pytest.mark.parametrize(
    ("agent", "options", "message"),
    [
        ("Mum", {}, "agent_tool: agent must be Agent(name=...), not 'Mum'"),
        (Agent(name="Mum"), {}, "agent 'Mum': a sub-agent needs a description, by which models choose it"),
        (Agent(name="読", description="Reads."), {}, f"agent '読': {NO_NAME}"),
        (READER, {"timeout": 5.0}, f"sub-agent Reader: timeout {NO_OPTION}"),
        (READER, {"on_crash": "ask", "timeout": 5.0}, f"sub-agent Reader: on_crash {NO_OPTION}"),
    ],
)
def test_unsuitable_agent_cannot_become_a_sub_agent(agent: Agent, options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        agent_tool(agent, **options)  # type: ignore[arg-type]  # refused by the type checker too
    assert str(raised.value) == message


@pytest.mark.parametrize(
    "arguments", [{}, {"prompt": ""}, {"prompt": " "}, {"prompt": 5}, {"prompt": "a", "more": 1}, {"prompt": "\ud800"}]
)
async def test_sub_agent_call_takes_only_a_prompt(arguments: dict[str, JsonValue]) -> None:
    company = Company(lead=[asks_for(("Reader", arguments)), "I see."], reader="Done.")
    company.hire(READER)
    engine = company.engine()
    turn = await engine.run(LEAD, "hi")
    ((status, text),) = results(turn)
    assert (status, text) == (CallStatus.ERROR, "Reader takes one argument, prompt: the task as text")
    assert len(await engine.store.turns()) == 1


def test_engine_certifies_sub_agents() -> None:
    company = Company()
    company.hire(READER)
    below = explain(company.engine(), LEAD).sub_agents
    assert below is not None
    assert [(agent.tool, agent.depth, agent.calls) for agent in below.agents] == [("Reader", 1, ())]


def test_sub_agents_of_an_agent_are_among_the_tools_of_the_agent() -> None:
    company = Company()
    company.hire(READER)
    company.hire(WORKER)
    assert subagent_tools(company.tools, LEAD) == {"Reader": READER, "Worker": WORKER}
    assert subagent_tools(company.tools, Agent(name="One", tools=("Worker", "note"))) == {"Worker": WORKER}
    assert subagent_tools(company.tools, Agent(name="None", tools=())) == {}


@pytest.mark.parametrize("stop", ["abort", "expire"])
async def test_stop_during_crash_recovery_reaches_the_sub_agents(stop: str) -> None:
    """A sibling is run again, and meanwhile somebody aborts, or the time is up: nobody is left behind."""
    memory = MemoryStore()
    begun, again = anyio.Event(), anyio.Event()

    @tool(idempotent=True)
    async def redo(context: ToolContext) -> str:
        if context.attempt > 1:
            again.set()
            await anyio.sleep_forever()
        await begun.wait()
        return "done"

    @tool
    async def slow() -> str:
        begun.set()
        await anyio.sleep_forever()
        return "slow"

    company = Company(
        lead=[asks_for(("redo", {}), ("Reader", {"prompt": "go"})), "I see."], reader=[asks_for(("slow", {}))]
    )
    company.hire(READER.model_copy(update={"tools": ("slow",)}))
    company.tools |= {"redo": redo, "slow": slow}
    limits, clock = Limits(seconds=30) if stop == "expire" else Limits(), anyio.current_time
    with pytest.raises(StoreError):
        await company.engine(FaultyStore(memory, at=f.CallSettled), limits=limits, clock=clock).run(LEAD, "hi")
    await memory.aclose()
    assert len(await memory.turns(live=True)) == 2
    engine = company.engine(memory, limits=limits, clock=clock)
    (root,) = [row.id for row in await memory.turns(live=True) if ":" not in row.id]
    async with anyio.create_task_group() as group:
        group.start_soon(engine.resume, root)
        await again.wait()
        if stop == "abort":
            await engine.abort(root)
    assert await memory.turns(live=True) == []


async def test_every_level_shows_all_arguments_of_the_approved_call() -> None:
    """Also those of more than a result may have, and the journal says so of itself."""
    path = "x" * 100_000 + " " * 9 + "; evil"
    company = Company(
        lead=[send("Editor"), "All done."],
        editor=[asks_for(("Reader", {"prompt": "b"})), "Edited."],
        reader=[asks_for(("erase", {"path": path})), "Done."],
    )
    company.hire(READER)
    company.hire(Agent(name="Editor", description="Edits.", model="editor"))
    engine = company.engine()
    top = await engine.run(LEAD, "hi")
    for turn, name in (
        (top.id, "Editor > Reader: may erase run?"),
        (f"{top.id}:call00001", "Reader: may erase run?"),
        (f"{top.id}:call00001:call00001", "may erase run?"),
    ):
        (interrupt,) = (await engine.get(turn)).interrupts
        assert words(interrupt) == f'{name}\narguments:\n| path: "{"x" * 100_000}\\x20{{9}}; evil"'
        assert replay(await engine.store.facts(turn)).check.verdict is Verdict.HOLDS


async def test_forged_arguments_of_an_interrupt_are_ignored() -> None:
    company = Company(lead=[asks_for(("erase", {"path": "x"})), "Done."], reader=[])
    engine = company.engine()
    paused = await engine.run(LEAD, "hi")
    facts = await engine.store.facts(paused.id)
    forged = [
        (seq, replace(fact, interrupt=replace(fact.interrupt, arguments={"path": "safe"})))
        if isinstance(fact, f.CallWaiting)
        else (seq, fact)
        for seq, fact in facts
    ]
    assert replay(forged).check.verdict is Verdict.VIOLATED
    (interrupt,) = result_of(paused.id, forged).interrupts
    assert interrupt.arguments == {"path": "x"}, "what runs is what is shown"
