"""Tasks of A2A: their life, by JSON-RPC and by REST."""

import json

import anyio
import anyio.lowlevel
import pytest
from starlette.applications import Starlette
from tests.protocols.asgi import Client, Json
from tests.protocols.subject import AGENT, HELPER, settle_job

from turnwright import Agent, ConfigError, Engine, external_tool, tool
from turnwright.model import ScriptedModel, asks_for
from turnwright_protocols.a2a import Bounds, Gate, a2a_routes
from turnwright_states import Outcome

from .client import VERSION, TaskView, answer_of, call, message, send, state_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def client(engine: Engine) -> Client:
    return make_client(engine)


def make_client(engine: Engine, *agents: Agent, bounds: Bounds | None = None) -> Client:
    gate = Gate(lambda _request, _session: True, bounds or Bounds())
    return Client(Starlette(routes=a2a_routes(engine, agents or (AGENT,), gate)))


async def stream(client: Client, method: str, params: Json) -> list[Json]:
    return [event["result"] for event in (await call(client, method, params)).data()]


async def test_card_names_the_address_of_the_request(client: Client) -> None:
    reply = await client.send("GET", "/.well-known/agent-card.json", headers={"host": "agents.example"})
    card = reply.json()
    assert {interface["url"] for interface in card["supportedInterfaces"]} == {"http://agents.example"}
    bindings = [
        (interface["protocolBinding"], interface["protocolVersion"]) for interface in card["supportedInterfaces"]
    ]
    assert bindings == [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0")]
    assert (card["url"], card["protocolVersion"]) == ("http://agents.example", "0.3")  # for clients of 0.3
    assert "max-age" in reply.headers["cache-control"]
    unchanged = await client.send(
        "GET",
        "/.well-known/agent-card.json",
        headers={"host": "agents.example", "if-none-match": reply.headers["etag"]},
    )
    assert unchanged.status == 304


async def test_agents_of_one_address_are_refused(engine: Engine) -> None:
    """The second one would be out of reach."""
    with pytest.raises(ConfigError, match="its address would be called _, like the address of agent '代理'"):
        make_client(engine, Agent(name="代理"), Agent(name="агент"))


async def test_each_agent_has_a_card_and_an_address(engine: Engine) -> None:
    client = make_client(engine, AGENT, HELPER)
    card = (await client.send("GET", "/a2a/helper/.well-known/agent-card.json")).json()
    assert (card["name"], card["supportedInterfaces"][0]["url"]) == ("Helper", "http://test/a2a/helper")
    body = {"message": message("hello", context="c1")}
    task = (await client.send("POST", "/a2a/helper/message:send", body, headers=VERSION)).json()["task"]
    assert (await engine.store.get(task["id"])).agent == "Helper"
    reply = await client.send("GET", f"/tasks/{task['id']}", headers=VERSION)
    assert reply.status == 404  # the first agent has no such task


async def test_stream_leads_to_the_task_of_the_journal(client: Client) -> None:
    for words in ("hello to all", "tool", "approve", "cap", "fail", "filter", "think", "delegate say this"):
        view = TaskView().read(await stream(client, "SendStreamingMessage", {"message": message(words)}))
        task = (await call(client, "GetTask", {"id": view.task["id"]})).json()["result"]
        assert answer_of(view.task) == answer_of(task)
        assert view.states[-1] == state_of(task)
        assert view.task["metadata"] == task["metadata"]
        assert view.task["status"].get("message") == task["status"].get("message")


async def test_rest_and_json_rpc_have_the_same_tasks(client: Client) -> None:
    task = await send(client, "tool", context="c1")
    assert (await client.send("GET", f"/tasks/{task['id']}", headers=VERSION)).json() == task
    events = await client.send("POST", "/message:stream", {"message": message("hello")}, headers=VERSION)
    assert answer_of(TaskView().read(events.data()).task) == "You said: hello"
    listed = (await client.send("GET", "/tasks?contextId=c1", headers=VERSION)).json()
    assert [entry["id"] for entry in listed["tasks"]] == [task["id"]]


async def test_client_of_version_0_3_runs_a_task(engine: Engine, client: Client) -> None:
    """It sends no version, and other names."""

    async def send_old(method: str, text: str, **fields: object) -> Json:
        parts = [{"kind": "text", "text": text}]
        message_sent = {"kind": "message", "messageId": "m1", "role": "user", "parts": parts, **fields}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message_sent}}
        reply = await client.send("POST", "/", body)
        last: Json = reply.data()[-1] if method == "message/stream" else reply.json()
        return last

    task = (await send_old("message/send", "approve"))["result"]
    assert (task["kind"], task["status"]["state"]) == ("task", "input-required")
    ended = (await send_old("message/stream", "yes", taskId=task["id"]))["result"]
    assert (ended["status"]["state"], ended["final"]) == ("completed", True)
    assert (await engine.get(task["id"])).text == "Result: paid 5"
    assert (await send_old("message/send", "yes", taskId="forged"))["error"]["code"] == -32001


@pytest.mark.parametrize("context", ["", "c1"])
@pytest.mark.parametrize("words", ["tool", "approve", "job"])
async def test_repeated_message_starts_no_second_task(engine: Engine, client: Client, words: str, context: str) -> None:
    """Its sender did not get the answer. A task that has ended meanwhile is answered as it is."""
    params = {"message": message(words, context=context), "configuration": {"returnImmediately": True}}
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(call, client, "SendMessage", params)
    (row,) = [row for row in await engine.turns() if ":" not in row.id]
    await engine.attach(row.id, AGENT).result()
    task = (await call(client, "GetTask", {"id": row.id})).json()["result"]
    assert (await call(client, "SendMessage", params)).json()["result"]["task"] == task
    if words == "tool":
        first, *updates = await stream(client, "SendStreamingMessage", params)
        assert (first["task"], updates) == (task, [])
        await send(client, "approve", context=task["contextId"])  # a later task is open
        assert (await call(client, "SendMessage", params)).json()["result"]["task"] == task


@pytest.mark.parametrize("parts", [["hi"], [{"raw": "AA==", "mediaType": "image/png"}, "hello"]])
@pytest.mark.parametrize("context", ["", "c1"])
async def test_other_message_with_a_known_id_starts_a_task(
    client: Client, context: str, parts: list[str | Json]
) -> None:
    tasks = {}
    for content in (["hello"], parts):
        body = message(*content, context=context, messageId="m1")
        tasks[str(content)] = (await call(client, "SendMessage", {"message": body})).json()["result"]["task"]["id"]
    assert len({*tasks.values()}) == 2


async def test_repeated_message_follows_its_task(client: Client) -> None:
    params = {"message": message("approve")}
    task = (await call(client, "SendMessage", params)).json()["result"]["task"]
    view = TaskView().read(await stream(client, "SendStreamingMessage", params))
    assert view.task["status"]["message"] == task["status"]["message"]
    await send(client, "yes", task=task["id"])
    ended = (await call(client, "SendMessage", params)).json()["result"]["task"]
    assert (ended["id"], state_of(ended)) == (task["id"], "COMPLETED")


async def test_messages_with_one_id_are_told_apart_by_user_agent_and_context(engine: Engine) -> None:
    users = Gate(lambda request, _context: request.headers["authorization"])
    client = Client(Starlette(routes=a2a_routes(engine, [AGENT, HELPER], users)))
    tasks: set[str] = set()
    for user, path, context in [("ann", "", ""), ("bob", "", ""), ("ann", "/a2a/helper", ""), ("ann", "", "c1")]:
        body = {"message": message("hello", context=context, messageId="m1")}
        reply = await client.send("POST", f"{path}/message:send", body, headers={**VERSION, "authorization": user})
        tasks.add(reply.json()["task"]["id"])
    assert len(tasks) == len(await engine.turns()) == 4


async def test_history_has_earlier_texts_questions_and_answers(client: Client) -> None:
    task = await send(client, "approve")
    task = await send(client, "yes", task=task["id"])
    history = [(entry["role"].removeprefix("ROLE_"), entry["parts"][0]["text"]) for entry in task["history"]]
    assert history[:2] == [("USER", "approve"), ("AGENT", "I pay.")]
    assert "pay" in history[2][1]
    assert history[3] == ("USER", "approve")  # the decision
    assert answer_of(task) == "Result: paid 5"


async def test_answers_with_reasons_and_to_several_questions(engine: Engine, client: Client) -> None:
    task = await send(client, "mixed")
    data = task["status"]["message"]["parts"][1]["data"]
    kinds = {interrupt["kind"]: interrupt["id"] for interrupt in data["interrupts"]}
    answers = {kinds["question"]: "green", kinds["approval"]: {"approved": False, "reason": "too much"}}
    body = {"data": {"answers": answers}}
    assert state_of(await send(client, body, task=task["id"])) == "COMPLETED"
    facts = [fact for _, fact in await engine.store.facts(task["id"]) if fact.kind == "answered"]
    assert {fact.via for fact in facts} == {"a2a"}  # type: ignore[attr-defined]
    again = await send(client, body, task=task["id"])
    assert state_of(again) == "COMPLETED"
    assert len([fact for _, fact in await engine.store.facts(task["id"]) if fact.kind == "answered"]) == 2


async def test_question_stays_open_until_all_people_have_approved() -> None:
    @tool(needs_approval=True, approvers=2)
    async def erase() -> str:
        """Erase everything."""
        return "erased"

    model = ScriptedModel(asks_for(("erase", {})), "done")
    async with Engine(model=model, tools=[erase]) as engine:
        client = make_client(engine)
        task = await send(client, "go", context="c1")
        await engine.answer(task["id"], {"approval-1": True}, by="ann")
        task = (await call(client, "GetTask", {"id": task["id"]})).json()["result"]
        assert state_of(task) == "INPUT_REQUIRED"
        await engine.answer(task["id"], {"approval-1": True}, by="bob")
        result = await engine.attach(task["id"], AGENT).result()
        assert result.outcome is Outcome.FINISHED
        assert state_of((await call(client, "GetTask", {"id": task["id"]})).json()["result"]) == "COMPLETED"


async def test_result_from_outside_is_an_answer() -> None:
    parameters: Json = {"type": "object", "properties": {"order": {"type": "string"}}}
    ship = external_tool(name="ship", description="Ship an order.", parameters=parameters)
    model = ScriptedModel(asks_for(("ship", {"order": "a"})), "shipped")
    async with Engine(model=model, tools=[ship]) as engine:
        client = make_client(engine)
        task = await send(client, "go")
        (interrupt,) = task["status"]["message"]["parts"][1]["data"]["interrupts"]
        assert interrupt["kind"] == "result"
        answers = {"data": {"answers": {interrupt["id"]: {"result": {"parcels": 2}}}}}
        assert answer_of(await send(client, answers, task=task["id"])) == "shipped"
        facts = [fact for _, fact in await engine.store.facts(task["id"]) if fact.kind == "call_settled"]
        assert json.loads(facts[0].result) == {"parcels": 2}  # type: ignore[attr-defined]


@pytest.mark.parametrize("part", ["yes", {"data": {"answers": {"approval-1": True}}}])
async def test_approval_is_answered_while_a_result_is_awaited(engine: Engine, client: Client, part: object) -> None:
    asking = await send(client, "job-and-pay")
    (interrupt,) = asking["status"]["message"]["parts"][1]["data"]["interrupts"]
    assert (state_of(asking), interrupt["kind"]) == ("INPUT_REQUIRED", "approval")
    waiting = await send(client, part, task=asking["id"], returnImmediately=True)
    assert state_of(waiting) == "WORKING"
    await settle_job(engine)
    await engine.recover()
    done = (await call(client, "GetTask", {"id": asking["id"]})).json()["result"]
    assert (state_of(done), answer_of(done)) == ("COMPLETED", "Result: paid 5")


async def test_repeated_answers_are_none_to_the_next_question() -> None:
    @tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    calls = [asks_for(("pay", {"amount": amount})) for amount in (1, 2)]
    async with Engine(model=ScriptedModel(*calls, "Done."), tools=[pay]) as engine:
        client = make_client(engine)
        task = await send(client, "Pay.")
        answers = {"data": {"answers": {"approval-1": True}}}
        for _ in range(2):
            again = await send(client, answers, task=task["id"])
            (interrupt,) = again["status"]["message"]["parts"][1]["data"]["interrupts"]
            assert (state_of(again), interrupt["id"]) == ("INPUT_REQUIRED", "approval-2")
        assert answer_of(await send(client, "yes", task=task["id"])) == "Done."


async def test_task_that_waits_for_a_result_from_elsewhere_works(engine: Engine, client: Client) -> None:
    """It can be read, listed, followed and steered like any working task."""
    task = await send(client, "job", returnImmediately=True)
    with anyio.fail_after(10):
        while not (await engine.get(task["id"])).paused:
            await anyio.lowlevel.checkpoint()
    read_task = (await call(client, "GetTask", {"id": task["id"]})).json()["result"]
    assert (state_of(read_task), read_task["status"].get("message")) == ("WORKING", None)
    states = ("TASK_STATE_WORKING", "TASK_STATE_INPUT_REQUIRED")
    listed = [(await call(client, "ListTasks", {"status": state})).json()["result"]["tasks"] for state in states]
    assert [len(tasks) for tasks in listed] == [1, 0]
    assert state_of(await send(client, "and more", task=task["id"], returnImmediately=True)) == "WORKING"
    async with anyio.create_task_group() as group:
        group.start_soon(settle_job, engine)
        view = TaskView().read(await stream(client, "SubscribeToTask", {"id": task["id"]}))
        assert (state_of(view.task), answer_of(view.task)) == ("COMPLETED", "You said: and more")


async def test_large_integers_and_deep_arguments_are_shown_exactly() -> None:
    deep: Json = {"x": 1}
    for _ in range(30):
        deep = {"a": deep}

    @tool(needs_approval=True)
    async def pay(amount: int, details: dict[str, object]) -> str:
        """Pay."""
        return f"{amount} {details}"

    calls = [asks_for(("pay", {"amount": 2**53 + 1, "details": {}})), asks_for(("pay", {"amount": 1, "details": deep}))]
    async with Engine(model=ScriptedModel(*calls), tools=[pay]) as engine:
        client = make_client(engine)
        parts = (await send(client, "go"))["status"]["message"]["parts"]
        assert str(2**53 + 1) in parts[0]["text"]
        assert parts[1]["data"]["interrupts"][0]["arguments"]["amount"] == str(2**53 + 1)
        parts = (await send(client, "go"))["status"]["message"]["parts"]
        assert json.loads(parts[1]["text"])["interrupts"][0]["arguments"]["details"] == deep


async def test_files_and_data_reach_the_model(client: Client) -> None:
    picture = {"raw": "aGk=", "mediaType": "image/png", "filename": "a.png"}
    task = await send(client, "files", picture)
    assert answer_of(task) == "parts: ['text', 'file']"
    task = await send(client, {"data": {"amount": 5}})
    assert answer_of(task) == 'You said: {"amount": 5}'


async def test_client_that_does_not_wait_follows_the_task_later(client: Client) -> None:
    task = await send(client, "hello", returnImmediately=True)
    assert state_of(task) == "WORKING"
    assert [entry["parts"][0]["text"] for entry in task["history"]] == ["hello"]
    view = TaskView()
    reply = await call(client, "SubscribeToTask", {"id": task["id"]})
    if "error" not in reply.text:
        view.read([event["result"] for event in reply.data()])
        assert answer_of(view.task) == "You said: hello"
    assert answer_of((await call(client, "GetTask", {"id": task["id"]})).json()["result"]) == "You said: hello"


async def test_disconnect_stops_nothing(engine: Engine, client: Client) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message("hello")}}
    await client.send("POST", "/", body, headers=VERSION, leaves=lambda text: "task" in text)
    (row,) = await engine.turns()
    assert (await engine.attach(row.id, AGENT).result()).text == "You said: hello"


async def test_slow_client_and_long_stream_are_cut(engine: Engine) -> None:
    client = make_client(engine, bounds=Bounds(stream_seconds=0.05))
    events = await stream(client, "SendStreamingMessage", {"message": message("slow")})
    assert "task" in events[0]
    task = await send(client, "slow")
    assert state_of(task) == "WORKING"
    for row in await engine.turns(live=True):
        await engine.abort(row.id)


async def test_list_has_pages_states_and_times(client: Client) -> None:
    for words in ("hello", "approve"):
        for number in range(3):
            await send(client, words, context=f"{words}{number}")
    everything: list[str] = []
    token = ""
    while True:
        page = (await call(client, "ListTasks", {"pageSize": 2, "pageToken": token})).json()["result"]
        assert page["totalSize"] == 6
        everything += [task["contextId"] for task in page["tasks"]]
        token = page["nextPageToken"]
        if not token:
            break
    assert everything == ["approve2", "approve1", "approve0", "hello2", "hello1", "hello0"]
    paused = {"status": "TASK_STATE_INPUT_REQUIRED", "includeArtifacts": True}
    tasks = (await call(client, "ListTasks", paused)).json()["result"]["tasks"]
    assert [task["contextId"] for task in tasks] == ["approve2", "approve1", "approve0"]
    assert answer_of(tasks[0]) == "I pay."
    later = {"statusTimestampAfter": "2999-01-01T00:00:00Z"}
    assert (await call(client, "ListTasks", later)).json()["result"]["tasks"] == []


async def test_turn_of_another_door_is_a_task_of_its_session(engine: Engine, client: Client) -> None:
    turn = await engine.run(AGENT, "hello", session="chat")
    task = (await call(client, "GetTask", {"id": turn.id})).json()["result"]
    assert (task["contextId"], answer_of(task)) == ("chat", "You said: hello")


async def test_steered_message_is_in_the_history(engine: Engine, client: Client) -> None:
    task = await send(client, "slow", returnImmediately=True)
    await send(client, "mind the cable", task=task["id"], returnImmediately=True)
    canceled = (await call(client, "CancelTask", {"id": task["id"]})).json()["result"]
    assert state_of(canceled) == "CANCELED"
    result = await engine.get(task["id"])
    texts = [entry["parts"][0].get("text") for entry in canceled["history"]]
    assert "mind the cable" in [*texts, *result.undelivered]
