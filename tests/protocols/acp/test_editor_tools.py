"""The editor's files and terminals as tools, diffs, and slash commands."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from acp import schema
from acp.helpers import text_block
from tests.protocols.acp.test_agent import FOLDER, Editor, begin, connect, journal, say
from tests.protocols.subject import AGENT, HELPER, make_engine

from turnwright import Engine, ToolResult, tool
from turnwright.message import ToolResultPart
from turnwright.model import ModelRequest, ModelResponse, ScriptedModel, asks_for
from turnwright_protocols.acp import AcpAgent
from turnwright_protocols.acp.editor_tools import read_diff

pytestmark = pytest.mark.anyio

READ = ("editor_read_file", {"path": "notes.txt"})
WRITE = ("editor_write_file", {"path": "notes.txt", "content": "new\n"})
RUN = ("editor_run_command", {"command": "make", "args": ["test"]})
NOTES = f"{FOLDER}/notes.txt"


def make_caller(*calls: tuple[str, Mapping[str, Any]], store: str = "memory:") -> Engine:
    """Make an engine whose model makes these calls at once, and then answers with their results."""

    def reply(request: ModelRequest) -> ModelResponse:
        parts = [part for message in request.messages for part in message.parts]
        results = [f"{part.status}: {part.text}" for part in parts if isinstance(part, ToolResultPart)]
        return ModelResponse(text=" | ".join(results)) if results else asks_for(*calls)

    return Engine(model=ScriptedModel(reply, repeat=True), agents=[AGENT, HELPER], store=store)


async def test_editor_reads_a_file() -> None:
    async with make_caller(READ) as engine:
        agent, editor = await connect(engine, files=True)
        editor.files[NOTES] = "not saved\n"
        session = await begin(agent)
        assert (await say(agent, session, "read")).stop_reason == "end_turn"
        assert (editor.text, editor.statuses(), editor.permissions) == ("ok: not saved\n", ["completed"], [])
        assert editor.requests == [("read", session, NOTES)]
        (start,) = (update for update in editor.updates if isinstance(update, schema.ToolCallStart))
        assert start.kind == "read"


async def test_editor_reads_some_lines() -> None:
    async with make_caller((READ[0], {"path": NOTES, "line": 2, "limit": 1})) as engine:
        agent, editor = await connect(engine, files=True)
        editor.files[NOTES] = "a\nb\nc\n"
        await say(agent, await begin(agent), "read")
        assert editor.text == "ok: b\n"
        (start,) = (update for update in editor.updates if isinstance(update, schema.ToolCallStart))
        assert [location.path for location in start.locations or []] == [NOTES]


@pytest.mark.parametrize("old_text", ["old\n", None])
async def test_write_asks_with_its_diff(old_text: str | None) -> None:
    async with make_caller(WRITE) as engine:
        agent, editor = await connect(engine, files=True)
        if old_text is not None:
            editor.files[NOTES] = old_text
        await say(agent, await begin(agent), "write")
        diff = schema.FileEditToolCallContent(type="diff", path=NOTES, old_text=old_text, new_text="new\n")
        assert editor.permissions[0].content == [diff]
        assert editor.contents()[0] == diff
        assert (editor.files, editor.statuses()) == ({NOTES: "new\n"}, ["completed"])
        assert editor.text == f"ok: wrote 4 characters to {NOTES}"


async def test_rejected_write_changes_no_file() -> None:
    async with make_caller(WRITE) as engine:
        agent, editor = await connect(engine, files=True)
        editor.permit = lambda: "no"
        await say(agent, await begin(agent), "write")
        assert (editor.files, editor.statuses()) == ({}, ["failed"])
        assert [name for name, *_ in editor.requests] == ["read"]


async def test_command_runs_in_a_terminal_of_the_editor() -> None:
    async with make_caller(RUN) as engine:
        agent, editor = await connect(engine, files=True)
        session = await begin(agent)
        await say(agent, session, "run")
        assert editor.requests == [
            ("create", session, "make", "test", FOLDER),
            ("wait", session, "t1"),
            ("output", session, "t1"),
            ("release", session, "t1"),
        ]
        assert editor.text == "ok: exit code 3\n[the beginning of the output is cut]\n2 failed"
        assert editor.contents()[0] == schema.TerminalToolCallContent(type="terminal", terminal_id="t1")


async def test_cancel_kills_the_command() -> None:
    async with make_caller(RUN) as engine:
        agent, editor = await connect(engine, files=True)
        session, editor.hangs_at = await begin(agent), "wait"
        responses: list[schema.PromptResponse] = []

        async def work() -> None:
            responses.append(await say(agent, session, "run"))

        async with anyio.create_task_group() as group:
            group.start_soon(work)
            await editor.hangs.wait()
            await agent.cancel(session)
        assert [response.stop_reason for response in responses] == ["cancelled"]
        assert [name for name, *_ in editor.requests] == ["create", "wait", "kill", "release"]


@pytest.mark.parametrize(
    ("call", "request_name", "result", "requests"),
    [
        (READ, "read", "ok: text", ["read"]),
        (RUN, "wait", "error: the agent ended while the command ran: its outcome is unknown", []),
    ],
)
async def test_killed_agent_reads_again_and_runs_no_command_twice(
    tmp_path: Path, call: tuple[str, dict[str, Any]], request_name: str, result: str, requests: list[str]
) -> None:
    """A new process asks the editor for a file again; whether a command ran to its end is unknown."""
    store = f"sqlite:///{tmp_path}/turns.db"
    async with make_caller(call, store=store) as engine:
        agent, editor = await connect(engine, files=True)
        editor.files[NOTES], editor.hangs_at = "text", request_name
        session = await begin(agent)
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(say, agent, session, "go")
                await editor.hangs.wait()
                scope.cancel()
    async with make_caller(call, store=store) as engine:
        agent, editor = await connect(engine, files=True)
        editor.files[NOTES] = "text"
        await agent.load_session(FOLDER, session)
        with anyio.fail_after(10):
            while result not in editor.text:
                await anyio.lowlevel.checkpoint()
        assert [name for name, *_ in editor.requests] == requests


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ((READ[0], {"path": "/etc/passwd"}), "path: /etc/passwd is outside of the session's folder /project"),
        ((READ[0], {"path": "../etc/passwd"}), "path: /etc/passwd is outside of the session's folder /project"),
        ((READ[0], {"path": "/project/../etc"}), "path: /etc is outside of the session's folder /project"),
        ((READ[0], {"path": "/projects/x"}), "path: /projects/x is outside of the session's folder /project"),
        ((READ[0], {"path": " "}), "path: must be the path of a file"),
        ((READ[0], {"path": "a\0b"}), "path: must be the path of a file"),
        (
            (WRITE[0], {"path": "/etc/passwd", "content": ""}),
            "path: /etc/passwd is outside of the session's folder /project",
        ),
        ((RUN[0], {"command": " "}), "command: must be a text, and args a list of texts"),
        ((RUN[0], {"command": "ls", "cwd": "/"}), "path: / is outside of the session's folder /project"),
    ],
)
async def test_calls_outside_of_the_folder_do_not_reach_the_editor(
    call: tuple[str, dict[str, Any]], problem: str
) -> None:
    async with make_caller(call) as engine:
        agent, editor = await connect(engine, files=True)
        await say(agent, await begin(agent), "go")
        assert (editor.text, editor.requests) == (f"error: {problem}", [])


async def test_refusal_of_the_editor_is_the_error_of_the_call() -> None:
    async with make_caller(READ, WRITE, RUN) as engine:
        agent, editor = await connect(engine, files=True)
        editor.refusal = "the disk is full"
        assert (await say(agent, await begin(agent), "go")).stop_reason == "end_turn"
        assert editor.text == " | ".join(["error: the editor refused: the disk is full"] * 3)


@pytest.mark.slow
async def test_large_file_is_cut_and_a_large_diff_left_out() -> None:
    write = (WRITE[0], {"path": NOTES, "content": "b" * 100_000})
    async with make_caller(READ, write) as engine:
        agent, editor = await connect(engine, files=True)
        editor.files[NOTES] = "".join(f"line {number}\n" for number in range(20_000))
        await say(agent, await begin(agent), "go")
        assert editor.files[NOTES] == "b" * 100_000
        assert not editor.permissions[0].content
        assert all(len(update.model_dump_json()) < 64 * 1024 for update in editor.updates if update)


async def offered_names(engine: Engine, **options: bool) -> list[str]:
    agent, _ = await connect(engine, **options)
    await say(agent, await begin(agent), "hello")
    (row, *_) = await engine.turns()
    started: Any = (await engine.store.facts(row.id))[0][1]
    return [declared["name"] for declared in started.client_tools]


async def test_tools_need_the_capability_of_the_editor() -> None:
    async with make_engine() as engine:
        assert await offered_names(engine, files=True) == [READ[0], WRITE[0], RUN[0]]
        assert await offered_names(engine, files=False) == []
        assert await offered_names(engine, files=True, editor_tools=False) == []


async def test_tool_of_the_engine_goes_before_the_editors() -> None:
    @tool(name="editor_read_file")
    def own() -> str:
        """Read."""
        return "own"

    async with Engine(
        model=ScriptedModel(ModelResponse(text="hi"), repeat=True), tools=[own], agents=[AGENT]
    ) as engine:
        assert await offered_names(engine, files=True) == [WRITE[0], RUN[0]]


async def test_result_with_the_fields_of_a_diff_is_shown_as_one() -> None:
    @tool
    def edit() -> ToolResult:
        """Edit."""
        return ToolResult("edited", {"path": "/project/a.py", "old_text": "1\n", "new_text": "2\n"})

    model = ScriptedModel(asks_for(("edit", {})), "Done.")
    async with Engine(model=model, tools=[edit], agents=[AGENT]) as engine:
        agent, editor = await connect(engine)
        session = await begin(agent)
        await say(agent, session, "edit")
        diff = schema.FileEditToolCallContent(type="diff", path="/project/a.py", old_text="1\n", new_text="2\n")
        assert editor.contents()[0] == diff
        editor.updates.clear()
        await agent.load_session(FOLDER, session)  # which replays it
        assert editor.contents()[0] == diff


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"path": "a", "new_text": "b"},
        {"path": 1, "old_text": "a", "new_text": "b"},
        {"path": "a", "old_text": 1, "new_text": "b"},
        {"path": "a", "old_text": "a", "new_text": None},
        {"path": "a", "old_text": "a", "new_text": "b", "more": 1},
        {"path": "a", "old_text": None, "new_text": "b" * 40_000},
    ],
)
def test_other_data_is_no_diff(data: object) -> None:
    assert read_diff(data) is None


async def until(editor: Editor, count: int = 1) -> list[schema.AvailableCommandsUpdate]:
    with anyio.fail_after(10):
        while len(updates := [u for u in editor.updates if isinstance(u, schema.AvailableCommandsUpdate)]) < count:
            await anyio.lowlevel.checkpoint()
    return updates


async def test_commands_are_offered_and_call_no_model() -> None:
    async with make_engine() as engine:
        agent, editor = await connect(engine)
        session = await begin(agent)
        (update,) = await until(editor)
        assert [command.name for command in update.available_commands] == ["status", "delete"]
        await say(agent, session, " /status\n")
        assert editor.text == "This conversation has no turns yet."
        await say(agent, session, "tool")
        before = await journal(engine)
        editor.updates.clear()
        await say(agent, session, "/status")
        assert editor.text.startswith("1 turn, 2 steps, 1 tool call.\n\nThe newest turn, ")
        assert await journal(engine) == before
        await say(agent, session, "/statusx")
        assert len(await engine.turns()) == 2


@pytest.mark.parametrize(("option", "is_deleted"), [("yes", True), ("no", False), ("", False), ("forged", False)])
async def test_delete_command_deletes_the_session_after_a_question(option: str, is_deleted: bool) -> None:
    async with make_engine() as engine:
        agent, editor = await connect(engine, forms=False)
        kept_turn = await engine.run(AGENT, "hello", session="other")
        session = await begin(agent)
        await say(agent, session, "ask")  # it is paused
        editor.permit = lambda: option
        assert (await say(agent, session, "/delete")).stop_reason == "end_turn"
        assert len(editor.permissions) == 1, editor.text
        rows = [row.id for row in await engine.turns()]
        assert (kept_turn.id in rows, len(rows)) == (True, 1 if is_deleted else 2)
        assert (await say(agent, session, "hello")).stop_reason == "end_turn"


async def test_cancel_at_any_moment_ends_the_prompt_as_canceled() -> None:
    """Also between the call and its pause, when the driver that paused the turn may still hold it."""
    async with make_engine() as engine:
        for rounds in range(12):
            agent, editor = await connect(engine)
            session = await begin(agent)

            async def cancel(update: object, agent: AcpAgent = agent, session: str = session, n: int = rounds) -> None:
                if isinstance(update, schema.ToolCallStart):

                    async def later() -> None:
                        for _ in range(n):
                            await anyio.lowlevel.checkpoint()
                        await agent.cancel(session)

                    group.start_soon(later)

            editor.watch, editor.permit = cancel, lambda: "yes"
            async with anyio.create_task_group() as group:
                reason = (await say(agent, session, "approve")).stop_reason
                assert (reason, "paid" in editor.text) in (("cancelled", False), ("end_turn", True))
            assert (await say(agent, session, "hello")).stop_reason == "end_turn"


async def test_hostile_data_of_the_editor_changes_only_its_call() -> None:
    """An editor is trusted with its own files, but its texts are cleaned."""
    async with make_caller(READ) as engine:
        agent, editor = await connect(engine, files=True)
        editor.files[NOTES] = "half \ud800 \x00"
        assert (await agent.prompt(await begin(agent), [text_block("go")])).stop_reason == "end_turn"
        assert json.loads(json.dumps(editor.text)).startswith("ok: half ?")
