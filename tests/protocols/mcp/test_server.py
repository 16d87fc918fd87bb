"""Agents as tools of an MCP server, with the SDK's client in this process: both eras of the protocol."""

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from tests.protocols.subject import AGENT, HOST, StrictStore, make_engine, settle_job

from turnwright import ConfigError, Engine, Outcome, TurnResult, tool, wait_tool
from turnwright.model import ScriptedModel, asks_for
from turnwright_protocols.mcp import Gate, mcp_server
from turnwright_states.facts import Answered

pytestmark = pytest.mark.anyio

MODERN, LEGACY = "2026-07-28", "legacy"


class Person:
    """Fills forms."""

    def __init__(self, answer: Any = True, action: Any = "accept", **fields: bool) -> None:  # noqa: ANN401 (a form's value)
        self.answer = answer
        self.fields = fields
        self.action = action
        self.messages: list[str] = []

    async def fill(self, _: object, params: Any) -> types.ElicitResult:  # noqa: ANN401 (the SDK's)
        self.messages.append(params.message)
        content = {"answer": self.answer, **self.fields} if self.action == "accept" else None
        return types.ElicitResult(action=self.action, content=content)


def client_of(
    engine: Engine,
    person: Person | None = None,
    mode: Any = MODERN,  # noqa: ANN401 (a literal)
    gate: Gate | None = None,
) -> Client:
    callback: Any = None if person is None else person.fill
    return Client(mcp_server(engine, [AGENT], gate), mode=mode, elicitation_callback=callback)


def text_of(result: types.CallToolResult) -> str:
    return "".join(part.text for part in result.content if isinstance(part, types.TextContent))


async def call(client: Client, prompt: object, **arguments: object) -> types.CallToolResult:
    result = await client.call_tool("subject", {"prompt": prompt, **arguments})
    assert isinstance(result, types.CallToolResult)
    return result


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
async def test_agent_is_a_tool_with_a_record(engine: Engine, mode: str) -> None:
    async with client_of(engine, mode=mode) as client:
        (tool,) = (await client.list_tools()).tools
        assert (tool.name, tool.input_schema["required"]) == ("subject", ["prompt"])
        result = await call(client, "hello")
        assert (text_of(result), result.is_error) == ("You said: hello", False)
        assert result.structured_content["outcome"] == "finished"
        limited = await call(client, "cap")
        assert text_of(limited).startswith("Here is what I have so far.Stopped at the step limit")
        assert not limited.is_error


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
async def test_answer_is_signed_by_the_user_of_the_gate(engine: Engine, mode: str) -> None:
    """Earlier protocols ask within the call."""
    async with client_of(engine, Person(), mode, Gate(lambda _request, _session: "ann")) as client:
        assert text_of(await call(client, "approve")) == "Result: paid 5"
    (row,) = await engine.turns()
    facts = [fact for _, fact in await engine.store.facts(row.id)]
    assert [fact.by for fact in facts if isinstance(fact, Answered)] == ["ann"]


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
async def test_failure_is_an_error_without_the_host(engine: Engine, mode: str) -> None:
    async with client_of(engine, mode=mode) as client:
        result = await call(client, "fail")
        assert result.is_error
        assert HOST not in result.model_dump_json()


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
@pytest.mark.parametrize(
    ("word", "person", "text"),
    [
        ("approve", (True, "accept"), "Result: paid 5"),
        ("approve", (False, "accept"), "Result:"),
        ("approve", (True, "decline"), "Result:"),
        ("ask", ("green", "accept"), "the choice is green"),
        ("both", (True, "accept"), "paid 500"),
        ("delegate approve", (True, "accept"), "paid 5"),
    ],
)
async def test_form_answers_a_pause(
    engine: Engine, mode: str, word: str, person: tuple[object, str], text: str
) -> None:
    filler = Person(*person)
    async with client_of(engine, filler, mode) as client:
        result = await call(client, word)
    assert text in text_of(result)
    assert ("paid" in text_of(result)) == (person == (True, "accept"))
    assert len(filler.messages) == (2 if word == "both" else 1)


async def test_form_gives_an_approval_always(engine: Engine) -> None:
    """The next equal call of the session is not asked."""
    filler = Person(always=True)
    async with client_of(engine, filler) as client:
        for _ in range(2):
            assert "paid 5" in text_of(await call(client, "approve", session="s"))
    assert len(filler.messages) == 1


@pytest.mark.no_waiting
async def test_progress_increases_with_each_report(engine: Engine) -> None:
    """Else clients may drop a report."""
    reports: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:  # noqa: ARG001 (the SDK's)
        reports.append(progress)
        if len(reports) == 4:  # the step, the call and two of its own
            await engine.abort((await engine.turns())[0].id)

    async with client_of(engine) as client:
        await client.call_tool("subject", {"prompt": "slow"}, progress_callback=note)
    assert reports[:4] == [1, 2, 3, 4]


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
async def test_session_is_remembered(engine: Engine, mode: str) -> None:
    async with client_of(engine, mode=mode) as client:
        await call(client, "hello", session="s")
        assert text_of(await call(client, "recall", session="s")) == "You said: hello"
        assert text_of(await call(client, "recall")) == "You said: "


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
async def test_client_without_forms_gets_the_question_and_the_turn_is_stopped(engine: Engine, mode: str) -> None:
    async with client_of(engine, mode=mode) as client:
        result = await call(client, "approve")
    assert result.is_error
    assert "amount: 5" in text_of(result)
    assert (await engine.turns())[0].status.outcome is Outcome.ABORTED


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
async def test_canceled_call_aborts_its_turn(engine: Engine, mode: str) -> None:
    async with client_of(engine, mode=mode) as client:
        with anyio.move_on_after(0.5):
            await call(client, "slow", session="c")
        assert text_of(await call(client, "hello", session="c")) == "You said: hello"
    assert (await engine.turns())[-1].status.outcome is Outcome.ABORTED


async def test_pause_is_answered_in_another_process(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/turns.db"
    async with make_engine(store) as engine, client_of(engine, Person()) as client:
        await client.list_tools()
        question = await client.session.call_tool("subject", {"prompt": "approve"}, allow_input_required=True)
        assert isinstance(question, types.InputRequiredResult)
    assert question.input_requests is not None
    answers: dict[str, Any] = {
        name: types.ElicitResult(action="accept", content={"answer": True}) for name in question.input_requests
    }
    async with make_engine(store) as engine, client_of(engine, Person()) as client:
        await client.list_tools()
        result = await client.session.call_tool(
            "subject", {"prompt": "approve"}, input_responses=answers, request_state=question.request_state
        )
        assert isinstance(result, types.CallToolResult)
        assert text_of(result) == "Result: paid 5"


async def test_forged_states_are_refused_and_change_nothing() -> None:
    engine = make_engine(StrictStore())
    chat_turn = await engine.run(AGENT, "approve", session="chat")
    async with client_of(engine, Person()) as client:
        await client.list_tools()
        ended = await call(client, "hello")
        states = [
            "",
            "forged",
            chat_turn.id,
            f"{chat_turn.id}:call00001",
            ended.structured_content["turn"],
            "x" * 5000,
            "\0",
        ]
        for state in states:
            answers: Any = {"approval-1": types.ElicitResult(action="accept", content={"answer": True})}
            with pytest.raises(MCPError):
                await client.session.call_tool(
                    "subject", {"prompt": "x"}, input_responses=answers, request_state=state, allow_input_required=True
                )
    assert (await engine.get(chat_turn.id)).paused
    assert len(await engine.turns()) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"prompt": 7},
        {"prompt": " "},
        {"prompt": "x", "session": ""},
        {"prompt": "x", "session": "a\nb"},
        {"prompt": "\ud800"},
    ],
)
async def test_malformed_call_is_refused_and_starts_nothing(engine: Engine, arguments: dict[str, object]) -> None:
    async with client_of(engine) as client:
        await client.list_tools()
        result = await client.call_tool("subject", arguments)
        assert isinstance(result, types.CallToolResult)
        assert (result.is_error, text_of(result)[:7]) == (True, "session" if "session" in arguments else "prompt:")
        with pytest.raises(MCPError):
            await client.call_tool("nobody", {"prompt": "hello"})
    assert await engine.turns() == []


async def test_argument_that_the_tool_lacks_is_refused(engine: Engine) -> None:
    """A misspelled session would begin another conversation."""
    async with client_of(engine) as client:
        result = await call(client, "hello", sesion="a")
    assert (result.is_error, text_of(result)) == (True, "'sesion' is not an argument: give prompt, and session")
    assert await engine.turns() == []


async def test_repeated_answer_is_none_to_the_next_question() -> None:
    """The client, whose response was lost, gets the open question, and at the end the result."""

    @tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    calls = [asks_for(("pay", {"amount": amount})) for amount in (1, 2)]
    async with (
        Engine(model=ScriptedModel(*calls, "Done."), tools=[pay]) as engine,
        client_of(engine, Person()) as client,
    ):
        yes: Any = types.ElicitResult(action="accept", content={"answer": True})
        ask: Any = partial(client.session.call_tool, "subject", {"prompt": "Pay."}, allow_input_required=True)
        first: Any = await ask()
        answers = {"input_responses": {"approval-1": yes}, "request_state": first.request_state}
        results: list[Any] = [await ask(**answers) for _ in range(2)]
        assert [[*result.input_requests] for result in results] == [["approval-2"]] * 2
        await ask(input_responses={"approval-2": yes}, request_state=first.request_state)
        assert text_of(await ask(**answers)) == "Done."


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
@pytest.mark.parametrize(("word", "result"), [("job", "film.mp4"), ("job-and-pay", "paid 5")])
async def test_call_waits_for_a_result_from_elsewhere(engine: Engine, mode: str, word: str, result: str) -> None:
    """Nobody is asked for the result, and other questions are asked and answered beside the wait."""
    person = Person()
    async with client_of(engine, person, mode) as client, anyio.create_task_group() as group:
        group.start_soon(settle_job, engine)
        assert text_of(await call(client, word)) == f"Result: {result}"
    assert [message.splitlines()[0] for message in person.messages] == ["may pay run?"] * (word != "job")


async def test_call_waits_for_the_time_without_a_worker() -> None:
    engine = Engine(model=ScriptedModel(asks_for(("wait", {"seconds": 0.01})), "Done."), tools=[wait_tool()])
    async with engine, client_of(engine) as client:
        assert text_of(await call(client, "Wait.")) == "Done."


async def test_call_waits_for_the_approvals_of_others() -> None:
    """The person at the client has a name, and is asked once, however long the other one takes."""

    @tool(needs_approval=True, approvers=2)
    async def pay() -> str:
        """Pay."""
        return "paid"

    async def approve(engine: Engine) -> None:
        looks, turns = 0, list[TurnResult]()
        with anyio.fail_after(10):
            while looks < 1000:  # more than another question would take
                await anyio.lowlevel.checkpoint()
                turns = [await engine.get(row.id) for row in await engine.turns(live=True)]
                interrupts = [interrupt for turn in turns if turn.paused for interrupt in turn.interrupts]
                looks += any(answer.by == "ann" for interrupt in interrupts for answer in interrupt.approvals_so_far)
            await engine.answer(turns[0].id, {"approval-1": True}, by="bob")

    engine, person = Engine(model=ScriptedModel(asks_for(("pay", {})), "Done."), tools=[pay]), Person()
    gate = Gate(lambda _request, _session: "ann")
    async with engine, client_of(engine, person, gate=gate) as client, anyio.create_task_group() as group:
        group.start_soon(approve, engine)
        assert text_of(await call(client, "Pay.")) == "Done."
    assert len(person.messages) == 1


async def test_answer_that_does_not_fit_is_refused_in_words(engine: Engine) -> None:
    async with client_of(engine, Person("perhaps")) as client:
        assert text_of(await call(client, "approve")) == (
            "the answer does not fit an open question of the turn:"
            " an approval takes yes or no, always or JSON arguments, not 'perhaps'"
        )


def test_agents_with_one_tool_name_are_refused() -> None:
    agents = [AGENT.model_copy(update={"name": name}) for name in ("do it", "do_it")]
    with pytest.raises(ConfigError, match="its tool would be called do_it, like the tool of agent 'do it'"):
        mcp_server(Engine(model=ScriptedModel("Done.")), agents)
