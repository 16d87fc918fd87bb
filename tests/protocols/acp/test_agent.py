"""An agent of ACP: its sessions, questions and updates, and what it refuses."""

import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from acp import RequestError, schema
from acp.helpers import resource_link_block, text_block
from hypothesis import given
from tests.protocols.ag_ui.test_properties import played, told
from tests.protocols.subject import AGENT, HELPER, HOST, UnreachableStore, make_engine, settle_job

from turnwright import Answering, ConfigError, Engine, Outcome
from turnwright.message import FilePart
from turnwright_protocols.acp import AcpAgent
from turnwright_protocols.acp.prompt import read_prompt
from turnwright_protocols.acp.updates import UpdateEncoder, fitting, pieces
from turnwright_states import facts as f
from turnwright_testing import Scenario

pytestmark = pytest.mark.anyio

FOLDER = "/project"


class Editor:
    """A client: it notes the updates, and answers permissions and forms with `permit` and `fill`."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.permissions: list[schema.ToolCallUpdate] = []
        self.options: list[Any] = []
        self.forms: list[str] = []
        self.permit: Callable[[], str] = lambda: "yes"
        self.fill: Callable[[], Any] = lambda: schema.AcceptElicitationResponse(
            action="accept", content={"answer": "red"}
        )
        self.waits: anyio.Event | None = None
        #: Called with each update.
        self.watch: Callable[[Any], Awaitable[object]] | None = None
        #: The contents of files by path, the requests about files and terminals, and the text of each one's refusal.
        self.files: dict[str, str] = {}
        self.requests: list[tuple[str, ...]] = []
        self.refusal = ""
        #: The name of the request that is never answered, and the event that it has come.
        self.hangs_at = ""
        self.hangs = anyio.Event()

    async def session_update(self, session_id: str, update: object) -> None:
        del session_id
        self.updates.append(update)
        if self.watch is not None:
            await self.watch(update)

    async def note(self, *request: str) -> None:
        self.requests.append(request)
        if self.refusal:
            raise RequestError(-32000, self.refusal)
        if request[0] == self.hangs_at:
            self.hangs.set()
            await anyio.sleep_forever()

    async def read_text_file(
        self, session_id: str, path: str, line: int | None = None, limit: int | None = None
    ) -> schema.ReadTextFileResponse:
        await self.note("read", session_id, path)
        if path not in self.files:
            raise RequestError.resource_not_found(path)
        lines = self.files[path].splitlines(keepends=True)[(line or 1) - 1 :]
        return schema.ReadTextFileResponse(content="".join(lines[:limit]))

    async def write_text_file(self, session_id: str, path: str, content: str) -> None:
        await self.note("write", session_id, path)
        self.files[path] = content

    async def create_terminal(
        self, session_id: str, command: str, args: list[str], cwd: str, output_byte_limit: int
    ) -> schema.CreateTerminalResponse:
        assert output_byte_limit <= 64 * 1024
        await self.note("create", session_id, command, *args, cwd)
        return schema.CreateTerminalResponse(terminal_id="t1")

    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str) -> schema.WaitForTerminalExitResponse:
        await self.note("wait", session_id, terminal_id)
        return schema.WaitForTerminalExitResponse(exit_code=3)

    async def terminal_output(self, session_id: str, terminal_id: str) -> schema.TerminalOutputResponse:
        await self.note("output", session_id, terminal_id)
        return schema.TerminalOutputResponse(output="2 failed", truncated=True)

    async def kill_terminal(self, session_id: str, terminal_id: str) -> None:
        await self.note("kill", session_id, terminal_id)

    async def release_terminal(self, session_id: str, terminal_id: str) -> None:
        await self.note("release", session_id, terminal_id)

    def contents(self) -> list[Any]:
        """Return the content of the last update of a call that has one."""
        return next(u.content for u in reversed(self.updates) if isinstance(u, schema.ToolCallProgress) and u.content)

    async def request_permission(
        self, session_id: str, tool_call: schema.ToolCallUpdate, options: Sequence[object]
    ) -> schema.RequestPermissionResponse:
        del session_id
        self.permissions.append(tool_call)
        self.options.append(options)
        if self.waits is not None:
            self.waits.set()
            await anyio.sleep_forever()
        option = self.permit()
        outcome: Any = (
            schema.AllowedOutcome(outcome="selected", option_id=option)
            if option
            else schema.DeniedOutcome(outcome="cancelled")
        )
        return schema.RequestPermissionResponse(outcome=outcome)

    async def create_elicitation(self, message: str, mode: object) -> object:
        del mode
        self.forms.append(message)
        return self.fill()

    @property
    def text(self) -> str:
        return "".join(u.content.text for u in self.updates if isinstance(u, schema.AgentMessageChunk))

    def statuses(self) -> list[str]:
        """Return the last status of each call."""
        last: dict[str, str] = {}
        for update in self.updates:
            if isinstance(update, schema.ToolCallStart | schema.ToolCallProgress):
                last[update.tool_call_id] = update.status or ""
        return [*last.values()]


async def connect(
    engine: Engine, *, forms: bool = True, files: bool = False, editor_tools: bool = True
) -> tuple[AcpAgent, Editor]:
    agent, editor = AcpAgent(engine, [AGENT, HELPER], editor_tools=editor_tools), Editor()
    agent.on_connect(editor)  # type: ignore[arg-type]
    elicitation = schema.ElicitationCapabilities(form=schema.ElicitationFormCapabilities()) if forms else None
    capabilities = schema.ClientCapabilities(
        elicitation=elicitation,
        fs=schema.FileSystemCapabilities(read_text_file=files, write_text_file=files),
        terminal=files,
    )
    await agent.initialize(1, capabilities)
    return agent, editor


async def begin(agent: AcpAgent) -> str:
    return (await agent.new_session(FOLDER)).session_id


async def say(agent: AcpAgent, session: str, text: str) -> schema.PromptResponse:
    return await agent.prompt(session, [text_block(text)])


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("hello", "end_turn"),
        ("cap", "max_turn_requests"),
        ("doom", "max_turn_requests"),
        ("cut", "max_tokens"),
        ("filter", "refusal"),
        ("broken", "end_turn"),
    ],
)
async def test_prompt_ends_with_its_stop_reason(engine: Engine, word: str, reason: str) -> None:
    agent, _ = await connect(engine)
    response = await say(agent, await begin(agent), word)
    assert response.stop_reason == reason
    assert response.field_meta is not None
    assert response.field_meta["turnwright"]["turn"] == (await engine.turns())[0].id


async def test_failure_is_an_error_without_the_host(engine: Engine) -> None:
    agent, _ = await connect(engine)
    with pytest.raises(RequestError) as failure:
        await say(agent, await begin(agent), "fail")
    assert failure.value.code == -32603
    assert HOST not in json.dumps(failure.value.to_error_obj())


async def test_other_error_is_logged_and_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    agent, _ = await connect(make_engine(UnreachableStore()))
    session = await begin(agent)
    with pytest.raises(RequestError) as failure:
        await say(agent, session, "hello")
    assert HOST not in json.dumps(failure.value.to_error_obj())
    assert HOST in caplog.text
    await agent.close_session(session)
    with pytest.raises(RequestError) as failure:
        await agent.list_sessions()
    assert HOST not in json.dumps(failure.value.to_error_obj())


async def test_answer_that_the_app_refuses_is_refused() -> None:
    async def authorize(_: Answering) -> bool:
        return False

    async with make_engine(authorize=authorize) as engine:
        agent, _ = await connect(engine)
        with pytest.raises(RequestError, match="the app does not let you answer this"):
            await say(agent, await begin(agent), "approve")


@pytest.mark.parametrize(
    ("option", "status"), [("yes", "completed"), ("no", "failed"), ("", "failed"), ("forged", "failed")]
)
async def test_permission_decides_the_call(engine: Engine, option: str, status: str) -> None:
    agent, editor = await connect(engine)
    editor.permit = lambda: option
    response = await say(agent, await begin(agent), "approve")
    assert (response.stop_reason, editor.statuses()) == ("end_turn", [status])
    (call,) = editor.permissions
    assert call.raw_input == {"amount": 5}
    assert "amount: 5" in (call.title or "")
    assert ("paid 5" in editor.text) == (status == "completed")


async def test_permission_may_cover_equal_calls_of_the_session(engine: Engine) -> None:
    """The option says what it covers, and an equal call of the next prompt is not asked. Others are."""
    agent, editor = await connect(engine)
    editor.permit = lambda: "always"
    session = await begin(agent)
    await say(agent, session, "approve")
    await say(agent, session, "approve")
    assert (len(editor.permissions), editor.statuses()) == (1, ["completed"] * 2)
    (always,) = [option for option in editor.options[0] if option.kind == "allow_always"]
    assert always.name == "Allow calls with this tool and these arguments in this conversation"
    await say(agent, session, "both")
    assert len(editor.permissions) == 2, "the call with other arguments is asked"


async def test_permission_of_a_sub_agent_is_about_the_parents_call(engine: Engine) -> None:
    agent, editor = await connect(engine)
    await say(agent, await begin(agent), "delegate approve")
    announced = {update.tool_call_id for update in editor.updates if isinstance(update, schema.ToolCallStart)}
    assert [call.tool_call_id in announced for call in editor.permissions] == [True]


async def test_question_is_a_form(engine: Engine) -> None:
    agent, editor = await connect(engine)
    await say(agent, await begin(agent), "ask")
    assert editor.forms == ["Which color?"]
    assert editor.text.endswith("the choice is red")


async def test_question_without_forms_is_a_text_that_the_next_prompt_answers(engine: Engine) -> None:
    agent, editor = await connect(engine, forms=False)
    session = await begin(agent)
    assert (await say(agent, session, "ask")).stop_reason == "end_turn"
    assert "Which color?" in editor.text
    await say(agent, session, "green")
    assert editor.text.endswith("the choice is green")


async def test_answer_belongs_to_the_agent_that_asked(engine: Engine) -> None:
    """The person may choose another mode while a permission is open."""
    agent, editor = await connect(engine, forms=False)
    session = await begin(agent)

    async def switch(update: object) -> None:
        if isinstance(update, schema.ToolCallProgress) or "Which color?" in editor.text:
            await agent.set_session_mode(session, "Helper")

    editor.watch = switch
    assert (await say(agent, session, "mixed")).stop_reason == "end_turn"
    await say(agent, session, "green")
    assert editor.text.endswith("paid 5")
    assert [(row.agent, row.status.outcome) for row in await engine.turns()] == [("Subject", Outcome.FINISHED)]


async def test_next_prompt_answers_a_question_beside_a_wait(engine: Engine) -> None:
    agent, editor = await connect(engine, forms=False)
    session = await begin(agent)
    await say(agent, session, "job-and-ask")
    async with anyio.create_task_group() as group:
        group.start_soon(settle_job, engine)
        await say(agent, session, "green")
    assert editor.text.endswith("the choice is green")


async def test_cancel_during_a_permission_ends_the_prompt(engine: Engine) -> None:
    agent, editor = await connect(engine)
    session, editor.waits = await begin(agent), anyio.Event()
    responses: list[schema.PromptResponse] = []

    async def ask() -> None:
        responses.append(await say(agent, session, "approve"))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await editor.waits.wait()
        with pytest.raises(RequestError, match="busy"):
            await say(agent, session, "hello")
        await agent.cancel(session)
    assert [response.stop_reason for response in responses] == ["cancelled"]
    editor.waits = None
    await agent.cancel(session)  # of nothing
    assert (await say(agent, session, "hello")).stop_reason == "end_turn"


async def test_mode_is_an_agent(engine: Engine) -> None:
    agent, _ = await connect(engine)
    session = await begin(agent)
    await agent.set_session_mode(session, "Helper")
    await say(agent, session, "hello")
    assert [row.agent for row in await engine.turns()] == ["Helper"]
    with pytest.raises(RequestError):
        await agent.set_session_mode(session, "Nobody")


async def test_killed_editor_finds_its_session_and_the_open_question(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/turns.db"
    async with make_engine(store) as engine:
        agent, editor = await connect(engine)
        session, editor.waits = await begin(agent), anyio.Event()
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(say, agent, session, "approve")
                await editor.waits.wait()
                scope.cancel()
    async with make_engine(store) as engine:
        agent, editor = await connect(engine)
        (info,) = (await agent.list_sessions()).sessions
        assert (info.session_id, info.cwd) == (session, FOLDER)
        assert (await agent.list_sessions(cwd="/nowhere")).sessions == []
        await agent.load_session(FOLDER, session)
        with anyio.fail_after(10):
            while "paid 5" not in editor.text:
                await anyio.lowlevel.checkpoint()
        assert [u.content.text for u in editor.updates if isinstance(u, schema.UserMessageChunk)] == ["approve"]
        assert len(editor.permissions) == 1


@pytest.mark.parametrize("word", ["job", "job-and-pay"])
async def test_prompt_waits_for_a_result_from_elsewhere(engine: Engine, word: str) -> None:
    """Nobody is asked for the result, and the editor is busy meanwhile."""
    agent, editor = await connect(engine)
    async with anyio.create_task_group() as group:
        group.start_soon(settle_job, engine)
        response = await say(agent, await begin(agent), word)
        assert (response.stop_reason, "film.mp4" in editor.text) == ("end_turn", word == "job")
    assert "waits for its result" not in editor.text
    assert len(editor.permissions) == (word != "job")


async def test_prompt_that_waits_for_a_result_is_canceled(engine: Engine) -> None:
    agent, _ = await connect(engine)
    session, responses = await begin(agent), list[schema.PromptResponse]()

    async def ask() -> None:
        responses.append(await say(agent, session, "job"))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        with anyio.fail_after(10):
            while not any([(await engine.get(row.id)).paused for row in await engine.turns()]):
                await anyio.lowlevel.checkpoint()
        await agent.cancel(session)
    assert [response.stop_reason for response in responses] == ["cancelled"]


async def test_killed_editor_waits_for_the_result_again(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/turns.db"
    async with make_engine(store) as engine:
        turn = await engine.run(AGENT, "job", session="s", metadata={"acp": {"cwd": FOLDER, "mode": AGENT.name}})
    async with make_engine(store) as engine:
        agent, editor = await connect(engine)
        await agent.load_session(FOLDER, "s")
        await engine.settle(turn.interrupts[0].key, "film.mp4")
        with anyio.fail_after(10):
            while "film.mp4" not in editor.text:
                await anyio.lowlevel.checkpoint()


async def journal(engine: Engine) -> dict[str, object]:
    return {row.id: await engine.store.facts(row.id) for row in await engine.turns()}


async def test_hostile_requests_are_refused_and_change_nothing(engine: Engine) -> None:
    agent, _ = await connect(engine)
    session = await begin(agent)
    chat_turn = await engine.run(AGENT, "approve", session="chat")
    before = await journal(engine)
    picture = schema.ImageContentBlock(type="image", data="no base64!", mime_type="image/png")
    for request in (
        lambda: say(agent, "no-such", "hello"),
        lambda: say(agent, "chat", "hello"),
        lambda: say(agent, session, " "),
        lambda: agent.prompt(session, []),
        lambda: agent.prompt(session, [text_block("half \ud800")]),
        lambda: agent.prompt(session, [text_block("look"), picture]),
        lambda: agent.load_session(FOLDER, "no-such"),
        lambda: agent.load_session(FOLDER, "chat"),  # of another door
        lambda: agent.resume_session(FOLDER, "chat"),
        lambda: agent.close_session("chat"),
        lambda: agent.set_session_mode("chat", "Helper"),
        lambda: agent.new_session("relative/folder"),
        lambda: agent.load_session(FOLDER, "\ud800"),
        lambda: agent.list_sessions(cursor="x"),
        lambda: agent.list_sessions(cursor="9" * 30),
        lambda: agent.authenticate("root"),
        lambda: agent.ext_method("x", {}),
    ):
        with pytest.raises(RequestError) as refusal:
            await request()
        assert refusal.value.code != -32603, "the fault is not the server's"
    await agent.cancel("chat")
    await agent.cancel("no-such")
    assert await journal(engine) == before
    assert (await engine.get(chat_turn.id)).paused


async def test_closed_session_stops_its_turn(engine: Engine) -> None:
    agent, editor = await connect(engine)
    session = await begin(agent)
    responses: list[schema.PromptResponse] = []

    async def work() -> None:
        responses.append(await say(agent, session, "slow"))

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        while "in_progress" not in editor.statuses():
            await anyio.lowlevel.checkpoint()
        await agent.close_session(session)
    assert [response.stop_reason for response in responses] == ["cancelled"]
    assert (await engine.turns())[0].status.outcome is Outcome.ABORTED


async def test_editor_is_offered_agents_with_different_names(engine: Engine) -> None:
    for agents, why in (
        ([], "at least one agent"),
        (AGENT, "write agents="),
        ([AGENT, HELPER, AGENT.model_copy()], "two"),
    ):
        with pytest.raises(ConfigError, match=why):
            AcpAgent(engine, agents)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_prompt_has_links_resources_and_pictures() -> None:
    resource = schema.TextResourceContents(uri="file:///a/b.txt", text="content")
    blob = schema.BlobResourceContents(uri="file:///a/c.pdf", blob="JVBERg==", mime_type="application/pdf")
    text, files = read_prompt(
        [
            text_block("look"),
            resource_link_block("b.txt", "file:///a/b.txt"),
            schema.EmbeddedResourceContentBlock(type="resource", resource=resource),
            schema.EmbeddedResourceContentBlock(type="resource", resource=blob),
            schema.ImageContentBlock(type="image", data="iVBORw0KGgo=", mime_type="image/png"),
        ]
    )
    assert text == "look\n[b.txt](file:///a/b.txt)\nfile:///a/b.txt:\ncontent"
    assert files == (
        FilePart(media_type="application/pdf", data="JVBERg==", name="c.pdf"),
        FilePart(media_type="image/png", data="iVBORw0KGgo="),
    )


@pytest.mark.parametrize("text", ["", "a" * 100_000, "\x00" * 50_000, "ä" * 50_000, "\U0001f600" * 50_000])
def test_texts_are_cut_into_pieces_that_fit_a_line(text: str) -> None:
    parts = [*pieces(text)]
    assert "".join(parts) == text
    assert all(len(json.dumps(part)) < 32 * 1024 for part in parts)
    assert fitting({"text": "a" * 100_000}) is None


@given(played)
def test_live_and_replayed_updates_have_the_same_calls_and_last_text(scenario: Scenario) -> None:
    for turn in told(scenario):
        calls, texts = [], []
        for events in (turn.live, turn.journal):
            encoder, editor = UpdateEncoder(turn.turn), Editor()
            editor.updates = [update for event in events for update in encoder.encode(event)]
            calls.append(editor.statuses())
            texts.append(editor.text)
            last = turn.facts[-1][1]
            assert (encoder.end is not None) == isinstance(last, f.TurnEnded)
        assert calls[0] == calls[1]
        assert texts[0].endswith(texts[1].rpartition(".")[2])
