"""Responses and chat completions, with the OpenAI SDK as the client and the types of Open Responses as the schema."""

import json
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import openai
import openresponses_types
import pytest
from starlette.applications import Starlette
from tests.protocols.asgi import Client
from tests.protocols.subject import AGENT, HOST, make_engine, settle_job

from turnwright import Agent, Engine, Outcome
from turnwright.errors import ConfigError
from turnwright.model import ScriptedModel
from turnwright.model.protocol import ModelResponse
from turnwright.model.retry import Backoff
from turnwright.rules import Rule
from turnwright_protocols.responses import Gate, ResponseOptions, responses_routes
from turnwright_states import facts as f
from turnwright_testing import Cut, FlakyModel

pytestmark = pytest.mark.anyio

PICTURE = "data:image/png;base64,iVBORw0KGgo="


def app_of(engine: Engine, options: ResponseOptions | None = None, agent: Agent[Any, Any] = AGENT) -> Starlette:
    gate = Gate(lambda _request, _session: True)
    return Starlette(routes=responses_routes(engine, [agent], gate, options=options))


def sdk(app: Starlette) -> openai.AsyncOpenAI:
    transport = httpx2.AsyncClient(transport=httpx2.ASGITransport(app))
    return openai.AsyncOpenAI(base_url="http://test/v1", api_key="none", max_retries=0, http_client=transport)


@pytest.fixture
def client(engine: Engine) -> openai.AsyncOpenAI:
    return sdk(app_of(engine))


async def say(client: openai.AsyncOpenAI, text: Any, /, **options: Any) -> Any:  # noqa: ANN401 (the SDK's own types)
    return await client.responses.create(model="subject", input=text, **options)


async def test_models_are_the_agents(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["subject"]
    assert (await client.models.retrieve("Subject")).id == "subject"
    with pytest.raises(openai.NotFoundError, match="use one of subject"):
        await client.models.retrieve("other")


async def test_agent_may_have_the_name_of_a_path(engine: Engine) -> None:
    """Names of models are often a maker's and its model's."""
    client = sdk(app_of(engine, agent=Agent(name="acme/clerk")))
    assert (await client.models.retrieve("acme/clerk")).id == "acme/clerk"


async def test_rule_that_remembers_a_session_is_refused(engine: Engine) -> None:
    """Responses may branch, so that no order of turns could be remembered."""
    once = Rule("once", at_most=1, of="pay", scope="session")
    with pytest.raises(ConfigError, match="rule 'once' of agent 'A': responses have no session"):
        app_of(engine, agent=Agent(name="A", rules=[once]))


async def test_text_and_messages_are_prompts(client: openai.AsyncOpenAI) -> None:
    first = await say(client, "hello")
    assert (first.status, first.output_text) == ("completed", "You said: hello")
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "I am Ann."}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]},
        {"role": "user", "content": "recall"},
    ]
    assert (await say(client, messages, instructions="Be kind.")).output_text == "You said: I am Ann."


async def test_stream_has_the_events_in_order(client: openai.AsyncOpenAI) -> None:
    events = [event async for event in await say(client, "hello to all of you", stream=True)]
    kinds = list(dict.fromkeys(event.type.removeprefix("response.") for event in events))
    expected = "created in_progress output_item.added content_part.added output_text.delta output_text.done"
    assert kinds == [*expected.split(), "content_part.done", "output_item.done", "completed"]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].response.output_text == "You said: hello to all of you"


@pytest.mark.parametrize("text", ["hello", "tool", "broken", "cap", "cut", "ask", "think", "delegate", "filter"])
async def test_response_is_one_of_open_responses(engine: Engine, text: str) -> None:
    client = Client(app_of(engine, ResponseOptions(calls="outputs")))
    reply = await client.send("POST", "/v1/responses", {"model": "subject", "input": text})
    assert reply.status == 200
    openresponses_types.ResponseResource.model_validate(reply.json())
    stream = await client.send("POST", "/v1/responses", {"model": "subject", "input": text, "stream": True})
    assert stream.text.endswith("data: [DONE]\n\n")
    for event in stream.data():
        if "response" in event:
            openresponses_types.ResponseResource.model_validate(event["response"])


@pytest.mark.parametrize(
    ("text", "status", "reason", "answer"),
    [
        ("cap", "incomplete", "step_cap", "Here is what I have so far."),
        ("doom", "incomplete", "doom_loop", "Here is what I have so far."),
        ("cut", "incomplete", "max_output_tokens", "This sentence is not"),
        ("filter", "incomplete", "content_filter", ""),
        ("tool", "completed", None, "Result: sky is blue"),
        ("delegate", "completed", None, "Result:"),
    ],
)
async def test_ending_has_its_status(
    client: openai.AsyncOpenAI, text: str, status: str, reason: str | None, answer: str
) -> None:
    response = await say(client, text)
    details = response.incomplete_details
    assert (response.status, details and details.reason) == (status, reason)
    assert answer in response.output_text
    record = json.loads(response.metadata["turnwright"])
    assert record.keys() == {"turn", "outcome", "reason"}


async def test_failure_is_an_error_without_the_host(engine: Engine, client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as failure:
        await say(client, "fail")
    assert HOST not in str(failure.value.body)
    events = [event async for event in await say(client, "fail", stream=True)]
    assert events[-1].type == "response.failed"
    assert HOST not in events[-1].response.error.message
    stored = await client.responses.retrieve(events[-1].response.id)
    assert (stored.status, stored.error and stored.error.code) == ("failed", "server_error")
    assert len(await engine.turns()) == 2


@pytest.mark.parametrize("calls", ["outputs", "mcp"])
async def test_call_of_the_server_is_no_function_call(engine: Engine, calls: Any) -> None:  # noqa: ANN401 (a literal)
    """A client would run a function call. The arguments of a call come after it was added, as clients expect."""
    events = [
        event async for event in await say(sdk(app_of(engine, ResponseOptions(calls=calls))), "tool", stream=True)
    ]
    response = events[-1].response
    kinds = [item.type for item in response.output]
    assert kinds == ["message", {"outputs": "function_call_output", "mcp": "mcp_call"}[calls], "message"]
    assert response.output[1].output == "sky is blue"
    pieces = [event.delta for event in events if event.type == "response.mcp_call_arguments.delta"]
    assert pieces == ([response.output[1].arguments] if calls == "mcp" else [])


async def test_reasoning_is_an_item_on_request(engine: Engine, client: openai.AsyncOpenAI) -> None:
    assert [item.type for item in (await say(client, "think")).output] == ["message"]
    response = await say(sdk(app_of(engine, ResponseOptions(reasoning=True))), "think")
    assert response.output[0].content[0].text == "First I think."


async def test_response_continues_the_previous_one_and_branches(client: openai.AsyncOpenAI) -> None:
    first = await say(client, "hello", instructions="Be brief.")
    assert (await say(client, "recall", previous_response_id=first.id)).output_text == "You said: hello"
    branch = await say(client, "left", previous_response_id=first.id)
    assert (await say(client, "recall", previous_response_id=first.id)).output_text == "You said: hello"
    assert (await say(client, "recall", previous_response_id=branch.id)).output_text == "You said: hello | left"
    assert branch.previous_response_id == first.id


async def test_instructions_do_not_reach_the_next_response(engine: Engine, client: openai.AsyncOpenAI) -> None:
    first = await say(client, "hello", instructions="Be brief.")
    await say(client, "hello", previous_response_id=first.id)
    started = (await engine.store.facts((await engine.turns())[0].id))[0][1]
    assert isinstance(started, f.TurnStarted)
    assert [message["role"] for message in started.message_history] == ["user", "assistant"]


@pytest.mark.parametrize(("approve", "text"), [(True, "Result: paid 5"), (False, "too much")])
async def test_approval_is_an_item_that_the_next_request_answers(
    engine: Engine,
    client: openai.AsyncOpenAI,
    approve: bool,
    text: str,
) -> None:
    first = await say(client, "approve")
    (request,) = [item for item in first.output if item.type == "mcp_approval_request"]
    assert (request.name, json.loads(request.arguments), first.status) == ("pay", {"amount": 5}, "completed")
    answer = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": approve}
    answer |= {} if approve else {"reason": "too much"}
    second = await say(client, [answer], previous_response_id=first.id)
    assert text in second.output_text
    assert second.previous_response_id == first.id
    again = await say(client, [answer], previous_response_id=first.id)
    assert (again.id, again.output_text) == (second.id, second.output_text)
    for response in (first, second):
        stored = await client.responses.retrieve(response.id)
        assert [item.type for item in stored.output] == [item.type for item in response.output]
    (row,) = await engine.turns()
    assert sum(isinstance(fact, f.Answered) for _, fact in await engine.store.facts(row.id)) == 1


async def test_approval_without_the_previous_id_finds_its_turn(client: openai.AsyncOpenAI) -> None:
    first = await say(client, "approve")
    request = next(item for item in first.output if item.type == "mcp_approval_request")
    answer = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}
    sent_back = [item.model_dump(exclude_none=True) for item in first.output if item.type != "message"]
    response = await say(client, [{"role": "user", "content": "approve"}, *sent_back, answer])
    assert response.output_text == "Result: paid 5"


async def test_items_of_earlier_responses_come_by_reference(client: openai.AsyncOpenAI) -> None:
    """As the AI SDK sends them. The tool that it declares means the agent's own, whose approvals it answers."""
    tools = [{"type": "mcp", "server_label": "turnwright", "server_url": "http://test", "require_approval": "always"}]
    first = await say(client, "approve", tools=tools)
    request = first.output[-1]
    references = [{"type": "item_reference", "id": item.id} for item in first.output]
    answer = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}
    second = await say(client, [{"role": "user", "content": "approve"}, *references, answer], tools=tools)
    assert second.output_text == "Result: paid 5"
    references += [{"type": "item_reference", "id": item.id} for item in second.output]
    conversation = [{"role": "user", "content": "approve"}, *references, {"role": "user", "content": "recall"}]
    assert (await say(client, conversation, tools=tools)).output_text == "You said: approve"


async def test_items_of_a_question_come_by_reference(client: openai.AsyncOpenAI) -> None:
    first = await say(client, "ask")
    references = [{"type": "item_reference", "id": item.id} for item in first.output]
    assert (await say(client, [*references, {"role": "user", "content": "hello"}])).output_text == "You said: hello"


async def test_json_is_promised_only_by_a_typed_agent(client: openai.AsyncOpenAI) -> None:
    schema = {"type": "json_schema", "name": "answer", "schema": {"type": "object"}}
    with pytest.raises(openai.BadRequestError, match=r"text\.format: the agent answers with text"):
        await say(client, "hello", text={"format": schema})
    messages: list[Any] = [{"role": "user", "content": "hello"}]
    with pytest.raises(openai.BadRequestError, match="response_format: the agent answers with text"):
        await client.chat.completions.create(
            model="subject", messages=messages, response_format={"type": "json_object"}
        )
    agent = Agent(name="Subject", output_schema={"type": "object"}, output_mode="native")
    async with Engine(model=ScriptedModel('{"a": 1}')) as engine:
        typed = sdk(app_of(engine, agent=agent))
        assert (await say(typed, "hello", text={"format": schema})).output_text == '{"a": 1}'


async def test_failed_turn_is_not_repeated(engine: Engine) -> None:
    """The OpenAI SDK repeats other requests after HTTP 500, each of which would run the turn again."""
    client = sdk(app_of(engine)).with_options(max_retries=2)
    with pytest.raises(openai.InternalServerError):
        await say(client, "fail")
    assert len(await engine.turns()) == 1


async def test_all_open_approvals_are_answered_in_one_request(client: openai.AsyncOpenAI) -> None:
    first = await say(client, "both")
    answers = [
        {"type": "mcp_approval_response", "approval_request_id": item.id, "approve": True} for item in first.output
    ]
    with pytest.raises(openai.BadRequestError, match="all open requests"):
        await say(client, answers[:1], previous_response_id=first.id)
    second = await say(client, answers, previous_response_id=first.id)
    assert [item.output for item in second.output if item.type == "mcp_call"] == ["paid 5", "paid 500"]


async def test_question_is_a_text_that_the_next_input_answers(client: openai.AsyncOpenAI) -> None:
    first = await say(client, "ask")
    assert "Which color?" in first.output_text
    assert (await say(client, "green", previous_response_id=first.id)).output_text == "Result: the choice is green"


async def test_approval_may_be_a_text(engine: Engine) -> None:
    client = sdk(app_of(engine, ResponseOptions(approvals="text")))
    first = await say(client, "approve")
    assert "amount: 5" in first.output_text
    assert (await say(client, "yes", previous_response_id=first.id)).output_text == "Result: paid 5"
    second = await say(client, "approve")
    assert "You said" in (await say(client, "what?", previous_response_id=second.id)).output_text
    third = await say(client, "approve")
    assert (await say(client, "always", previous_response_id=third.id)).output_text == "Result: paid 5"
    (turn,) = await engine.turns(limit=1)
    assert [fact.always for _, fact in await engine.store.facts(turn.id) if isinstance(fact, f.Answered)] == [True]


async def test_other_input_replaces_the_paused_turn(engine: Engine, client: openai.AsyncOpenAI) -> None:
    first = await say(client, "approve")
    second = await say(client, "recall", previous_response_id=first.id)
    assert second.output_text == "You said: approve"
    outcomes = [row.status.outcome for row in await engine.turns()]
    assert outcomes == [Outcome.FINISHED, Outcome.ABORTED]


async def test_background_response_is_retrieved_and_canceled(client: openai.AsyncOpenAI) -> None:
    first = await say(client, "slow", background=True)
    assert first.status == "in_progress"
    with pytest.raises(openai.ConflictError):
        await say(client, "hello", previous_response_id=first.id)
    stopped = await client.responses.cancel(first.id)
    assert stopped.status == "cancelled"
    assert (await client.responses.retrieve(first.id)).status == "cancelled"
    assert (await client.responses.cancel(first.id)).status == "cancelled"


async def test_background_response_ends_by_itself(client: openai.AsyncOpenAI) -> None:
    first = await say(client, "hello", background=True, metadata={"topic": "a"})
    with anyio.fail_after(10):
        while (response := await client.responses.retrieve(first.id)).status == "in_progress":
            await anyio.lowlevel.checkpoint()
    assert (response.output_text, response.background, (response.metadata or {})["topic"]) == (
        "You said: hello",
        True,
        "a",
    )


async def test_client_that_left_retrieves_the_whole_response(engine: Engine) -> None:
    app = app_of(engine)
    body = {"model": "subject", "input": "slow", "stream": True}
    cut = await Client(app).send("POST", "/v1/responses", body, leaves=lambda text: "response.created" in text)
    identifier = cut.data()[0]["response"]["id"]
    assert (await sdk(app).responses.retrieve(identifier)).status == "in_progress"
    events: list[Any] = []
    async with anyio.create_task_group() as group:

        async def follow() -> None:
            reply = await Client(app).send("GET", f"/v1/responses/{identifier}?stream=true")
            events.extend(reply.data())

        group.start_soon(follow)
        await anyio.sleep(0.05)
        await sdk(app).responses.cancel(identifier)
    assert (events[0]["type"], events[-1]["response"]["status"]) == ("response.created", "cancelled")


async def test_deleted_response_is_gone(client: openai.AsyncOpenAI) -> None:
    first = await say(client, "hello")
    await client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(first.id)


async def test_other_routes_of_responses_are_refused_in_words(client: openai.AsyncOpenAI) -> None:
    created = await say(client, "hi")
    for request in (client.responses.input_items.list(created.id), client.responses.compact(model="clerk", input="hi")):
        with pytest.raises(openai.NotFoundError, match="this server creates, retrieves, cancels and deletes responses"):
            await request


async def test_usage_is_that_of_the_segment(client: openai.AsyncOpenAI) -> None:
    usage = (await say(client, "tool")).usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (14, 10, 24)


async def test_files_reach_the_model(client: openai.AsyncOpenAI) -> None:
    content = [{"type": "input_text", "text": "files"}, {"type": "input_image", "image_url": PICTURE}]
    content.append({"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="})
    assert "'file', 'file'" in (await say(client, [{"role": "user", "content": content}])).output_text


async def test_withdrawn_text_is_an_incomplete_item() -> None:
    model = FlakyModel([Cut(ModelResponse(text="Wrong."), after=8), "Right."])
    agent = Agent(name="Subject")
    async with Engine(model=model, backoff=Backoff(initial=0.0)) as engine:
        client = sdk(app_of(engine, agent=agent))
        events = [event async for event in await say(client, "hi", stream=True)]
        items = [(item.status, item.content[0].text) for item in events[-1].response.output]
        assert items[-1] == ("completed", "Right.")
        assert {status for status, _ in items[:-1]} <= {"incomplete"}
        stored = await client.responses.retrieve(events[-1].response.id)
        assert stored.output_text == "Right."


async def test_paused_response_is_answered_in_another_process(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/turns.db"
    async with make_engine(store) as engine:
        first = await say(sdk(app_of(engine)), "approve")
    async with make_engine(store) as engine:
        client = sdk(app_of(engine))
        answer = {"type": "mcp_approval_response", "approval_request_id": first.output[-1].id, "approve": True}
        assert (await say(client, [answer], previous_response_id=first.id)).output_text == "Result: paid 5"


async def test_chat_completion_is_a_turn_of_its_own(client: openai.AsyncOpenAI) -> None:
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]
    answer = await client.chat.completions.create(model="subject", messages=messages)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("You said: hello", "stop")
    stream = await client.chat.completions.create(
        model="subject", messages=messages, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "You said: hello"
    assert chunks[-1].usage is not None
    cut = await client.chat.completions.create(model="subject", messages=[{"role": "user", "content": "cut"}])
    assert cut.choices[0].finish_reason == "length"
    with pytest.raises(openai.InternalServerError):
        await client.chat.completions.create(model="subject", messages=[{"role": "user", "content": "fail"}])


@pytest.mark.parametrize("stream", [False, True])
async def test_chat_completion_that_asks_is_aborted(engine: Engine, stream: bool) -> None:
    body = {"model": "subject", "messages": [{"role": "user", "content": "approve"}], "stream": stream}
    reply = await Client(app_of(engine)).send("POST", "/v1/chat/completions", body)
    assert "use /responses" in reply.text
    (row,) = await engine.turns()
    assert row.status.outcome is Outcome.ABORTED


@pytest.mark.parametrize("answers", [{}, {"approval-1": True}, {"question-1": "red"}])
async def test_conversation_continues_after_a_question_closed_elsewhere(
    engine: Engine, client: openai.AsyncOpenAI, answers: dict[str, str | bool]
) -> None:
    """A turn that was canceled, or answered elsewhere, has no later response that the client knows."""
    word = "ask" if "question-1" in answers else "approve"
    first = await say(client, word)
    if answers:
        await engine.resume(first.id.split("_")[1], answers, by="ann")
    else:
        await client.responses.cancel(first.id)
    assert (await say(client, "recall", previous_response_id=first.id)).output_text == f"You said: {word}"


@pytest.mark.parametrize("is_canceled", [False, True])
async def test_question_is_answered_beside_an_approval_given_elsewhere(
    engine: Engine, client: openai.AsyncOpenAI, is_canceled: bool
) -> None:
    first = await say(client, "mixed")
    turn = first.id.split("_")[1]
    await engine.resume(turn, {"approval-1": True}, by="ann")
    if is_canceled:
        await client.responses.cancel(first.id)
        assert (await engine.get(turn)).outcome is Outcome.ABORTED
    else:
        assert (await say(client, "red", previous_response_id=first.id)).output_text == "Result: paid 5"


async def test_response_waits_for_a_result_from_elsewhere(engine: Engine, client: openai.AsyncOpenAI) -> None:
    """It is in progress meanwhile, also for a client that comes later, and asks nothing."""
    first = await say(client, "job", background=True)
    async with anyio.create_task_group() as group:
        group.start_soon(settle_job, engine)
        stream = await client.responses.retrieve(first.id, stream=True)
        assert [event.type async for event in stream][-1] == "response.completed"
    whole = await client.responses.retrieve(first.id)
    assert (whole.status, whole.output_text) == ("completed", "Result: film.mp4")
    assert "waits for its result" not in whole.model_dump_json()
    assert (await say(client, "recall", previous_response_id=first.id)).output_text == "You said: job"


async def test_approval_is_answered_while_a_result_is_awaited(engine: Engine, client: openai.AsyncOpenAI) -> None:
    question = await say(client, "job-and-pay")
    (request,) = (item for item in question.output if item.type == "mcp_approval_request")
    answer = [{"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}]
    async with anyio.create_task_group() as group:
        group.start_soon(settle_job, engine)
        done = await say(client, answer, previous_response_id=question.id)
        assert (done.status, done.output_text) == ("completed", "Result: paid 5")


@pytest.mark.parametrize("stream", [False, True])
async def test_completion_that_asks_is_aborted_without_its_client(engine: Engine, stream: bool) -> None:
    """Nobody could answer, whether its client has gone before the question or not."""
    client = Client(Starlette(routes=responses_routes(engine, [AGENT], Gate(lambda _request, _conversation: True))))
    body = {"model": "subject", "messages": [{"role": "user", "content": "approve"}], "stream": stream}
    with anyio.fail_after(10):
        await client.send("POST", "/v1/chat/completions", body, leaves=lambda _: True)
        while (await engine.turns())[0].status.outcome is not Outcome.ABORTED:
            await anyio.lowlevel.checkpoint()


async def test_completion_waits_for_a_result_from_elsewhere(engine: Engine, client: openai.AsyncOpenAI) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(settle_job, engine)
        messages: list[Any] = [{"role": "user", "content": "job"}]
        answer = await client.chat.completions.create(model="subject", messages=messages)
        assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("Result: film.mp4", "stop")
