"""Questions of a server during a call: the turn pauses, and the call is repeated with the answer.

Both ways of the protocol are tried: the request of a server that waits (old), and the result that says what is missing
(new).
"""

import json
from typing import Any

import anyio
import anyio.lowlevel
import mcp_types as types
import pytest
from mcp.shared.exceptions import UrlElicitationRequiredError
from pydantic import JsonValue

from turnwright import Agent, Answer, Engine, TurnResult, reject
from turnwright._base.background_task import background_task
from turnwright.message import ToolResultPart
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright.tools import GivenAnswer, ToolContext
from turnwright.tools.mcp import mcp_tools
from turnwright_states import CallStatus, Decision, InterruptKind, Limits
from turnwright_testing import clock

from .conftest import Context, Stage, Target

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Clerk")
NAME = {"type": "object", "properties": {"name": {"type": "string", "minLength": 2}}, "required": ["name"]}
SURE = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
FREE = types.ToolAnnotations(read_only_hint=True)


def asks(stage: Stage, name: str, *questions: tuple[str, dict[str, Any]]) -> None:
    """Offer a tool that asks these questions, one after the other, and returns the answers."""

    async def old(context: Context) -> str:
        answers = []
        for message, schema in questions:
            result = await context.session.elicit_form(message, schema)
            if result.action != "accept":
                return f"the user would not say: {result.action}"
            answers.append(result.content)
        return str(answers)

    async def new(params: types.CallToolRequestParams) -> str | types.InputRequiredResult:
        contents = json.loads(params.request_state or "[]")
        for answer in (params.input_responses or {}).values():
            assert isinstance(answer, types.ElicitResult)
            contents.append(answer.content)
        if len(contents) == len(questions):
            return str(contents)
        message, schema = questions[len(contents)]
        request = types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))
        return types.InputRequiredResult(input_requests={"q": request}, request_state=json.dumps(contents))

    @stage.tool(name, FREE)
    async def ask(context: Context, params: types.CallToolRequestParams) -> str | types.InputRequiredResult:
        return await (new(params) if context.protocol_version >= "2026" else old(context))


def answered() -> ToolContext:
    """A call that a person has answered, as it is made again."""
    return ToolContext(turn_id="t1", call_id="c1", attempt=2, answers=(GivenAnswer(Decision.REPLY, "Ada"),))


def results(turn: TurnResult) -> list[tuple[CallStatus, str]]:
    parts = (part for message in turn.messages for part in message.parts)
    return [(part.status, part.text) for part in parts if isinstance(part, ToolResultPart)]


async def told(target: Target, *answers: str, limits: Limits | None = None) -> list[TurnResult]:
    """Run a turn that calls the tool once, and answer its pauses with these; give the turn after each of them.

    Each part of the turn has servers of its own, as if days had passed between them.
    """
    store, model = MemoryStore(), ScriptedModel(asks_for(("s__ask", {})), "Done.")
    async with mcp_tools({"s": target}) as tools:
        turns: list[TurnResult] = [await Engine(model=model, tools=tools, store=store, limits=limits).run(AGENT, "hi")]
    for answer in answers:
        (open_,) = turns[-1].interrupts
        async with mcp_tools({"s": target}) as tools:
            engine = Engine(model=model, tools=tools, store=store, limits=limits)
            turns.append(await engine.resume(turns[-1].id, {open_.id: answer}))
    return turns


async def test_question_of_a_server_pauses_the_turn_and_gets_the_answer(stage: Stage, target: Target) -> None:
    asks(stage, "ask", ("Your name?", NAME))
    paused, done = await told(target, "Ada")
    (open_,) = paused.interrupts
    assert (open_.kind, open_.tool, open_.question) == (
        InterruptKind.QUESTION,
        "s__ask",
        "s asks: Your name?\nname (text; at least 2 characters)",
    )
    assert (done.text, results(done)) == ("Done.", [(CallStatus.OK, "[{'name': 'Ada'}]")])


async def test_several_questions_are_a_pause_each(stage: Stage, target: Target) -> None:
    """An old server starts from the beginning each time, and gets the same answers again."""
    asks(stage, "ask", ("Your name?", NAME), ("Sure?", SURE))
    first, second, done = await told(target, "Ada", "yes")
    assert [turn.interrupts[0].question.splitlines()[0] for turn in (first, second)] == [
        "s asks: Your name?",
        "s asks: Sure?",
    ]
    assert second.interrupts[0].choices == ("yes", "no")
    assert results(done) == [(CallStatus.OK, "[{'name': 'Ada'}, {'sure': True}]")]


def sure(message: str) -> types.ElicitRequest:
    """Return a server's request for a yes or a no."""
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=SURE))


def drafts(stage: Stage, *messages: str, state: str = "draft-1") -> list[types.CallToolRequestParams]:
    """Offer a tool that makes a draft in its first round, asks these questions at once, and sends the draft after it.

    The returned list has the requests of rounds that made a draft.
    """
    first_rounds: list[types.CallToolRequestParams] = []

    @stage.tool("ask", FREE)
    async def ask(_context: Context, params: types.CallToolRequestParams) -> str | types.InputRequiredResult:
        if params.request_state is None:
            first_rounds.append(params)
            requests: types.InputRequests = {message: sure(message) for message in messages}
            return types.InputRequiredResult(input_requests=requests, request_state=state)
        assert params.request_state == state
        answers = {key: answer.content for key, answer in (params.input_responses or {}).items()}  # type: ignore[union-attr]
        return f"sent: {json.dumps(answers)}"

    return first_rounds


async def resume_later(
    target: Target, store: MemoryStore, turn: TurnResult, answers: dict[str, str | Answer]
) -> TurnResult:
    """Answer a paused turn in a process of its own, with a connection of its own."""
    async with mcp_tools({"s": target}) as tools:
        engine = Engine(model=ScriptedModel("Done."), tools=tools, store=store)
        return await engine.resume(turn.id, answers)


async def begin(target: Target, store: MemoryStore) -> TurnResult:
    async with mcp_tools({"s": target}) as tools:
        return await Engine(model=ScriptedModel(asks_for(("s__ask", {})), "Done."), tools=tools, store=store).run(
            AGENT, "hi"
        )


@pytest.mark.parametrize("state", ["draft-1", "", " \n", 'é\u2028"\\u0000\x00', "s" * 100_000])
async def test_request_state_survives_the_pause(stage: Stage, state: str) -> None:
    """The server's side effect of round 1 happens once, and its state comes back byte by byte (rule 28)."""
    first_rounds, store = drafts(stage, "Send it?", state=state), MemoryStore()
    paused = await begin(stage.server, store)
    done = await resume_later(stage.server, store, paused, {paused.interrupts[0].id: "yes"})
    assert results(done) == [(CallStatus.OK, 'sent: {"Send it?": {"sure": true}}')]
    assert (len(first_rounds), len(stage.calls)) == (1, 2)


async def test_questions_of_one_round_are_asked_at_once(stage: Stage) -> None:
    """The answers come in another order, and belong to their questions (rule 28)."""
    first_rounds, store = drafts(stage, "Now?", "Urgent?", "Signed?"), MemoryStore()
    paused = await begin(stage.server, store)
    assert [open_.question.splitlines()[0] for open_ in paused.interrupts] == [
        "s asks: Now?",
        "s asks: Urgent?",
        "s asks: Signed?",
    ]
    now, urgent, signed = (open_.id for open_ in paused.interrupts)
    still = await resume_later(stage.server, store, paused, {signed: "yes"})
    done = await resume_later(stage.server, store, still, {urgent: "no", now: "yes"})
    text = 'sent: {"Now?": {"sure": true}, "Urgent?": {"sure": false}, "Signed?": {"sure": true}}'
    assert results(done) == [(CallStatus.OK, text)]
    assert (len(first_rounds), len(stage.calls)) == (1, 2)


async def test_only_unfit_answers_of_a_round_are_asked_again(stage: Stage) -> None:
    """The server is not called for it, and the valid answers are kept."""
    first_rounds, store = drafts(stage, "Now?", "Urgent?"), MemoryStore()
    paused = await begin(stage.server, store)
    now, urgent = (open_.id for open_ in paused.interrupts)
    again = await resume_later(stage.server, store, paused, {now: "perhaps", urgent: "yes"})
    (open_,) = again.interrupts
    assert open_.question.startswith("Invalid answer: sure: 'perhaps' is neither yes nor no\ns asks: Now?")
    assert len(stage.calls) == 1
    done = await resume_later(stage.server, store, again, {open_.id: "no"})
    assert results(done) == [(CallStatus.OK, 'sent: {"Urgent?": {"sure": true}, "Now?": {"sure": false}}')]
    assert (len(first_rounds), len(stage.calls)) == (1, 2)


async def test_rejecting_one_question_of_a_round_rejects_the_call(stage: Stage) -> None:
    """Rule 17: nothing more is sent to the server."""
    drafts(stage, "Now?", "Urgent?")
    store = MemoryStore()
    paused = await begin(stage.server, store)
    now, urgent = (open_.id for open_ in paused.interrupts)
    done = await resume_later(stage.server, store, paused, {now: reject("no"), urgent: "yes"})
    assert [status for status, _ in results(done)] == [CallStatus.REJECTED]
    assert len(stage.calls) == 1


async def test_a_round_of_many_questions_takes_several_pauses(stage: Stage) -> None:
    """A call waits for at most 64 answers at once; the rest come with its next pause (rule 16)."""
    first_rounds, store = drafts(stage, *(f"Sure of {number}?" for number in range(70))), MemoryStore()
    paused = await begin(stage.server, store)
    assert len(paused.interrupts) == 64
    rest = await resume_later(stage.server, store, paused, {open_.id: "yes" for open_ in paused.interrupts})
    assert [open_.question.splitlines()[0] for open_ in rest.interrupts] == [
        f"s asks: Sure of {number}?" for number in range(64, 70)
    ]
    done = await resume_later(stage.server, store, rest, {open_.id: "no" for open_ in rest.interrupts})
    ((status, text),) = results(done)
    assert (status, text.count("true"), text.count("false")) == (CallStatus.OK, 64, 6)
    assert (len(first_rounds), len(stage.calls)) == (1, 2)


@pytest.mark.parametrize(
    ("needs", "problem"),
    [
        (
            types.InputRequiredResult(input_requests={"r": types.ListRootsRequest()}, request_state="x"),
            "server s: it needs roots/list, which is not offered",
        ),
        (
            types.InputRequiredResult(input_requests={"q": sure("Sure?")}, request_state="s" * 300_000),
            "server s: its questions and its request_state have 300,",
        ),
        (
            types.InputRequiredResult(request_state="again"),
            "server s: it asked for more than 100 rounds in one call",
        ),
    ],
)
def test_unusual_rounds_are_errors_of_the_call(stage: Stage, needs: types.InputRequiredResult, problem: str) -> None:
    """A server that needs what is not offered, too much, or rounds without end. The event loop skips the time."""

    @stage.tool("ask", FREE)
    async def ask(_context: Context, _params: types.CallToolRequestParams) -> types.InputRequiredResult:
        return needs

    async def scene() -> None:
        ((status, text),) = results(await begin(stage.server, MemoryStore()))
        assert (status, text[: len(problem)]) == (CallStatus.ERROR, problem)

    clock.run(scene)


async def test_a_round_without_questions_gets_the_next_round_at_once(stage: Stage) -> None:
    """A server that only sheds load is called again with its state, and nobody is asked."""

    @stage.tool("ask", FREE)
    async def ask(_context: Context, params: types.CallToolRequestParams) -> str | types.InputRequiredResult:
        if params.request_state is None:
            return types.InputRequiredResult(request_state="half")
        assert params.input_responses is None
        return f"the rest after {params.request_state}"

    assert results(await begin(stage.server, MemoryStore())) == [(CallStatus.OK, "the rest after half")]


@pytest.mark.parametrize("data", [None, 7, "x", ["x"], {"state": 7}, {"requests": {"q": {"method": "boo"}}}])
async def test_data_that_is_no_round_begins_the_call_anew(stage: Stage, data: JsonValue) -> None:
    """Such as what another tool of this name kept, before a deployment."""
    stage.says("ask", "fine", FREE)
    async with mcp_tools({"s": stage.server}) as (ask,):
        assert (await ask.run({}, ToolContext(turn_id="t1", call_id="c1", attempt=2, kept=data))).text == "fine"
    assert (stage.calls[0].request_state, stage.calls[0].input_responses) == (None, None)


async def test_unfit_answer_is_asked_for_again(stage: Stage, target: Target) -> None:
    asks(stage, "ask", ("Sure?", SURE))
    _, again, done = await told(target, "perhaps", "no")
    assert again.interrupts[0].question == (
        "Invalid answer: sure: 'perhaps' is neither yes nor no\ns asks: Sure?\nsure (yes or no)"
    )
    assert results(done) == [(CallStatus.OK, "[{'sure': False}]")]


async def test_endless_unfit_answers_use_up_the_pauses(stage: Stage, target: Target) -> None:
    """A server's questions count as pauses of the turn."""
    asks(stage, "ask", ("Sure?", SURE))
    *_, last = await told(target, "?", "?", limits=Limits(max_pauses=2))
    assert (last.paused, last.text) == (False, "Done.")
    ((status, _),) = results(last)
    assert status is not CallStatus.OK


async def test_a_denial_settles_the_call(stage: Stage, target: Target) -> None:
    asks(stage, "ask", ("Your name?", NAME))
    async with mcp_tools({"s": target}) as tools:
        engine = Engine(model=ScriptedModel(asks_for(("s__ask", {})), "Done."), tools=tools)
        paused = await engine.run(AGENT, "hi")
        done = await engine.resume(paused.id, {paused.interrupts[0].id: reject("none of its business")})
    assert [status for status, _ in results(done)] == [CallStatus.REJECTED]
    assert len(stage.calls) == 1


async def test_several_fields_are_answered_together(stage: Stage, target: Target) -> None:
    schema = {"type": "object", "properties": NAME["properties"] | SURE["properties"]}  # type: ignore[operator]
    asks(stage, "ask", ("Book?", schema))
    _, done = await told(target, "name=Ada\nsure=yes")
    assert results(done) == [(CallStatus.OK, "[{'name': 'Ada', 'sure': True}]")]


async def test_parallel_asking_calls_get_matching_answers(stage: Stage, target: Target) -> None:
    """Over streams a question does not name its call: the calls are repeated, one after the other."""
    asks(stage, "ask", ("Your name?", NAME))
    asks(stage, "check", ("Sure?", SURE))
    stage.says("quick", "at once", FREE)
    model = ScriptedModel(asks_for(("s__ask", {}), ("s__check", {}), ("s__quick", {})), "Done.")
    async with mcp_tools({"s": target}) as tools, Engine(model=model, tools=tools) as engine:
        paused = await engine.run(AGENT, "hi")
        answers = {open_.id: "Ada" if open_.tool == "s__ask" else "yes" for open_ in paused.interrupts}
        assert sorted(open_.question.splitlines()[0] for open_ in paused.interrupts) == [
            "s asks: Sure?",
            "s asks: Your name?",
        ]
        done = await engine.resume(paused.id, answers)
    assert [text for _, text in results(done)] == ["[{'name': 'Ada'}]", "[{'sure': True}]", "at once"]


async def test_question_waits_until_the_asking_call_is_known(stage: Stage) -> None:
    """A call that only takes long is let finish, and is not made again."""
    asks(stage, "ask", ("Your name?", NAME))
    asking = anyio.Event()

    @stage.tool("long", FREE)
    async def long(_context: Context, _params: types.CallToolRequestParams) -> str:
        await asking.wait()
        return "long ago"

    async def watch() -> None:
        while not any(call.name == "ask" for call in stage.calls):
            await anyio.lowlevel.checkpoint()
        asking.set()

    model = ScriptedModel(asks_for(("s__ask", {}), ("s__long", {})), "Done.")
    async with mcp_tools({"s": stage.old}) as tools, Engine(model=model, tools=tools) as engine:
        async with background_task(watch):
            paused = await engine.run(AGENT, "hi")
        done = await engine.resume(paused.id, {paused.interrupts[0].id: "Ada"})
    assert [text for _, text in results(done)] == ["[{'name': 'Ada'}]", "long ago"]
    assert [call.name for call in stage.calls].count("long") == 1


async def test_answered_call_runs_in_parallel_if_questions_name_the_call(stage: Stage) -> None:
    asks(stage, "ask", ("Your name?", NAME))
    over = anyio.Event()

    @stage.tool("slow", FREE)
    async def slow(_context: Context, _params: types.CallToolRequestParams) -> str:
        await over.wait()
        return "slow"

    async with mcp_tools({"s": stage.server}) as (ask, dawdle), anyio.create_task_group() as group:
        group.start_soon(dawdle.run, {}, ToolContext(turn_id="another", call_id="c1"))
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(60):
            assert (await ask.run({}, answered())).text == "[{'name': 'Ada'}]"
        over.set()


def test_waiting_to_run_alone_uses_no_time_of_the_call(stage: Stage) -> None:
    """Over streams, where one that was answered runs alone. The event loop skips the time."""

    @stage.tool("ask", FREE)
    async def ask(context: Context, _params: types.CallToolRequestParams) -> str:
        await anyio.sleep(20)
        return str((await context.session.elicit_form("Your name?", NAME)).content)

    @stage.tool("slow", FREE)
    async def slow(_context: Context, _params: types.CallToolRequestParams) -> str:
        await anyio.sleep(20)
        return "slow"

    async def scene() -> None:
        async with mcp_tools({"s": stage.old}, timeout=30) as (asking, dawdle), anyio.create_task_group() as group:
            group.start_soon(dawdle.run, {}, ToolContext(turn_id="another", call_id="c1"))
            await anyio.wait_all_tasks_blocked()
            assert (await asking.run({}, answered())).text == "{'name': 'Ada'}"

    clock.run(scene)


async def test_later_calls_do_not_overtake_a_call_waiting_to_run_alone(stage: Stage) -> None:
    asks(stage, "ask", ("Your name?", NAME))
    over = anyio.Event()

    @stage.tool("slow", FREE)
    async def slow(_context: Context, _params: types.CallToolRequestParams) -> str:
        await over.wait()
        return "slow"

    async with mcp_tools({"s": stage.old}) as (ask, dawdle):
        other_context = ToolContext(turn_id="another", call_id="c1")
        async with anyio.create_task_group() as group:
            for tool, context in ((dawdle, other_context), (ask, answered()), (dawdle, other_context)):
                group.start_soon(tool.run, {}, context)
                await anyio.wait_all_tasks_blocked()
            assert [call.name for call in stage.calls] == ["slow"]
            over.set()
    assert [call.name for call in stage.calls] == ["slow", "ask", "slow"]


async def test_an_address_to_visit_is_shown(stage: Stage) -> None:
    @stage.tool("ask", FREE)
    async def ask(context: Context, _params: types.CallToolRequestParams) -> str:
        result = await context.session.elicit_url("Please pay.", "https://pay.example/7", "e1")
        return result.action

    paused, done = await told(stage.old, "done")
    (open_,) = paused.interrupts
    assert open_.question == "s asks: Please pay.\nOpen https://pay.example/7, then answer done."
    assert open_.choices == ("done",)
    assert results(done) == [(CallStatus.OK, "accept")]


async def test_only_the_answer_done_confirms_an_address(stage: Stage) -> None:
    """An answer that is not a consent is not sent as one."""

    @stage.tool("ask", FREE)
    async def ask(context: Context, _params: types.CallToolRequestParams) -> str:
        return (await context.session.elicit_url("Please pay.", "https://pay.example/7", "e1")).action

    _, again, done = await told(stage.old, "no", "Done ")
    assert again.interrupts[0].question.startswith("Invalid answer 'no': answer done, or reject the call.")
    assert results(done) == [(CallStatus.OK, "accept")]


async def test_error_naming_an_address_becomes_a_question(stage: Stage, target: Target) -> None:
    """Once it is answered the call is made again at once; if that names an address again, so is the person."""

    @stage.tool("ask", FREE)
    async def ask(_context: Context, _params: types.CallToolRequestParams) -> str:
        if len(stage.calls) > 3:  # the person has been there
            return "welcome"
        login = types.ElicitRequestURLParams(message="Log in.", url="https://login.example", elicitation_id="e1")
        raise UrlElicitationRequiredError([login])

    paused, again, done = await told(target, "done", "done")
    assert "Open https://login.example, then answer done." in paused.interrupts[0].question
    assert again.interrupts[0].question == paused.interrupts[0].question
    assert results(done) == [(CallStatus.OK, "welcome")]


async def test_a_question_about_no_call_is_turned_down(stage: Stage) -> None:
    """Nobody waits for its answer, and nobody is asked."""
    actions: list[str] = []
    over = anyio.Event()

    @stage.tool("later", FREE)
    async def later(context: Context, _params: types.CallToolRequestParams) -> str:
        async def ask() -> None:
            actions.append((await context.session.elicit_form("Still there?", NAME)).action)
            over.set()

        group.start_soon(ask)
        return "soon"

    async with anyio.create_task_group() as group, mcp_tools({"s": stage.old}) as tools:
        engine = Engine(model=ScriptedModel(asks_for(("s__later", {})), "Done."), tools=tools)
        assert (await engine.run(AGENT, "hi")).text == "Done."
        await over.wait()
    assert actions == ["cancel"]
