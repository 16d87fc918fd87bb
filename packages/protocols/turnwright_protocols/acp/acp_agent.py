"""An agent of ACP: its sessions are the engine's, and its prompts are turns."""

import asyncio
import logging
import os
import stat
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, Final, ParamSpec, TextIO, TypeVar

import anyio
from acp import PROTOCOL_VERSION, RequestError, run_agent, schema
from acp.interfaces import Client
from acp.stdio import stdio_streams

from turnwright import ExternalTool
from turnwright._base.background_task import background_task, spawn
from turnwright._base.ids import new_id
from turnwright._base.version import VERSION
from turnwright.agent import Agent
from turnwright.errors import ConfigError, InvalidAnswerError
from turnwright.journal.questions import words
from turnwright.runtime.engine import Engine
from turnwright.runtime.handle import TurnHandle
from turnwright.store import TurnRow
from turnwright.transcript.events import TurnPausedEvent
from turnwright.transcript.interrupt import Interrupt
from turnwright_protocols.conversations import (
    NOT_AUTHORIZED,
    UNFIT_ANSWER,
    AnswerValue,
    PausedTurn,
    abort_turn,
    accepts_text,
    agents_by_name,
    answerable_by,
    events_for_client,
    find_open_turn,
    is_paused,
    open_interrupts,
    root_turns,
    start_in_session,
    start_of,
)
from turnwright_protocols.endings import explain_end, record_end
from turnwright_protocols.items import clean
from turnwright_states import InterruptKind
from turnwright_states import facts as f

from .commands import COMMANDS, DELETE_QUESTION, STATUS, Command, delete_session, describe_session
from .editor_tools import EditorCalls, is_editor_call, offer_tools
from .lines import MOST_BYTES, pass_messages
from .prompt import Block, read_prompt
from .questions import ask_form, ask_permission, asks_permission, confirm
from .updates import UpdateEncoder, agent_chunks, stop_reason, user_chunks

_LOG = logging.getLogger(__name__)
_P = ParamSpec("_P")
_T = TypeVar("_T")

#: Our key in the metadata of turns, and of messages.
_KEY: Final = "acp"
_META: Final = "turnwright"
_VIA: Final = "acp"
#: The most sessions of a list, and turns of a session that are replayed.
_MOST_SESSIONS, _MOST_TURNS = 50, 200
#: Digits of a session's number.
_LONGEST_CURSOR: Final = 18
_INVALID_REQUEST, _INVALID_PARAMS, _INTERNAL = -32600, -32602, -32603


def _hiding_faults(handle: Callable[_P, Awaitable[_T]]) -> Callable[_P, Awaitable[_T]]:
    """Log the other errors of a request: the protocol's library would send their words, which may name files."""

    @wraps(handle)
    async def run_guarded(*values: _P.args, **options: _P.kwargs) -> _T:
        try:
            return await handle(*values, **options)
        except RequestError:
            raise
        except InvalidAnswerError as error:
            raise RequestError(_INVALID_PARAMS, NOT_AUTHORIZED if error.is_refused else UNFIT_ANSWER) from None
        except Exception as error:  # noqa: BLE001 (the client gets words of ours)
            _LOG.warning("a request failed", exc_info=error)
            raise RequestError(_INTERNAL, "that is not possible here now: see the log of the agent") from None

    return run_guarded


@dataclass(slots=True)
class _Session:
    """A session that a client has opened."""

    cwd: str
    mode: str
    #: The terminals of the editor that calls of this session show, by the call's id.
    terminals: dict[str, schema.TerminalToolCallContent] = field(default_factory=dict)
    #: The turn that runs for a prompt, and the scope of the question to the person.
    turn: str = ""
    busy: bool = False
    question_scope: anyio.CancelScope | None = None
    canceled: bool = False
    idle: anyio.Event = field(default_factory=anyio.Event)


class AcpAgent:
    """Serves agents to one client of ACP. An agent is a session mode; the first one is the default.

    With `editor_tools`, the agents may use the editor's files and terminals, if it has them.
    """

    def __init__(self, engine: Engine, agents: Sequence[Agent], *, editor_tools: bool = True) -> None:
        self._engine = engine
        self._agents = {agent.name: agent for agent in agents_by_name(agents).values()}
        self._default = next(iter(self._agents))
        self._sessions: dict[str, _Session] = {}
        self._offers_editor_tools = editor_tools
        self._editor_tools: tuple[ExternalTool, ...] = ()
        self._has_forms = False
        self._client: Client | None = None
        self._tasks: set[Any] = set()

    def on_connect(self, conn: Client) -> None:
        """Take the connection to the client."""
        self._client = conn

    async def initialize(
        self, protocol_version: int, client_capabilities: schema.ClientCapabilities | None = None, **_: object
    ) -> schema.InitializeResponse:
        """Say what this agent can do."""
        forms = None if client_capabilities is None else client_capabilities.elicitation
        self._has_forms = forms is not None and forms.form is not None
        if self._offers_editor_tools:
            self._editor_tools = offer_tools(client_capabilities, self._engine.setup.tools)
        sessions = schema.SessionCapabilities(
            list=schema.SessionListCapabilities(),
            resume=schema.SessionResumeCapabilities(),
            close=schema.SessionCloseCapabilities(),
        )
        return schema.InitializeResponse(
            protocol_version=min(protocol_version, PROTOCOL_VERSION) or PROTOCOL_VERSION,
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(image=True, embedded_context=True),
                session_capabilities=sessions,
            ),
            agent_info=schema.Implementation(name="turnwright", title="Turnwright", version=VERSION),
            auth_methods=[],
        )

    async def authenticate(self, method_id: str, **_: object) -> None:
        """Refuse: there is nothing to log in to."""
        raise RequestError(_INVALID_PARAMS, f"there is no way to log in called {method_id[:40]!r}")

    async def new_session(
        self, cwd: str, mcp_servers: Sequence[object] | None = None, **_: object
    ) -> schema.NewSessionResponse:
        """Begin a session. It is in the store with its first turn."""
        _need_no_servers(mcp_servers)
        session = new_id()
        self._sessions[session] = _Session(_checked_folder(cwd), self._default)
        self._spawn(partial(self._offer_commands, session))
        return schema.NewSessionResponse(session_id=session, modes=self._modes(self._default))

    @_hiding_faults
    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Sequence[object] | None = None, **_: object
    ) -> schema.LoadSessionResponse:
        """Open a session of the store, and send its conversation. An open question is asked again."""
        _need_no_servers(mcp_servers)
        rows, session = await self._open(session_id, cwd)
        for row in reversed(rows):
            encoder, events = UpdateEncoder(row.id), await self._engine.snapshot(row.id)
            turn_start = start_of(events)
            if turn_start is not None:
                await self._send(session_id, [*user_chunks(clean(turn_start.prompt), f"{row.id}/user-1")])
            for event in events:
                await self._send(session_id, encoder.encode(event))
        self._spawn(partial(self._offer_commands, session_id))
        self._continue_later(session_id, session, rows[0])
        return schema.LoadSessionResponse(modes=self._modes(session.mode))

    @_hiding_faults
    async def resume_session(
        self, cwd: str, session_id: str, mcp_servers: Sequence[object] | None = None, **_: object
    ) -> schema.ResumeSessionResponse:
        """Open a session of the store. An open question is asked again."""
        _need_no_servers(mcp_servers)
        rows, session = await self._open(session_id, cwd)
        self._spawn(partial(self._offer_commands, session_id))
        self._continue_later(session_id, session, rows[0])
        return schema.ResumeSessionResponse(modes=self._modes(session.mode))

    @_hiding_faults
    async def list_sessions(
        self, cursor: str | None = None, cwd: str | None = None, **_: object
    ) -> schema.ListSessionsResponse:
        """List the sessions of ACP in the store, the newest first."""
        if cursor is not None and not (cursor.isdecimal() and len(cursor) <= _LONGEST_CURSOR):
            raise RequestError(_INVALID_PARAMS, "the cursor is not one of a list")
        infos = await self._engine.sessions(limit=_MOST_SESSIONS, before=None if cursor is None else int(cursor))
        sessions: list[schema.SessionInfo] = []
        for info in infos:
            about = await self._about(info.id)
            if about is not None and (cwd is None or about["cwd"] == cwd):
                sessions.append(schema.SessionInfo(session_id=info.id, cwd=str(about["cwd"]), title=info.title or None))
        next_cursor = str(infos[-1].number) if len(infos) == _MOST_SESSIONS else None
        return schema.ListSessionsResponse(sessions=sessions, next_cursor=next_cursor)

    async def set_session_mode(self, session_id: str, mode_id: str, **_: object) -> schema.SetSessionModeResponse:
        """Let another agent answer the next prompts."""
        if mode_id not in self._agents:
            raise RequestError(_INVALID_PARAMS, "there is no such mode")
        self._need(session_id).mode = mode_id
        return schema.SetSessionModeResponse()

    @_hiding_faults
    async def close_session(self, session_id: str, **_: object) -> schema.CloseSessionResponse:
        """Abort what runs, and forget the session. It stays in the store."""
        session = self._need(session_id)
        if session.busy:
            await self.cancel(session_id)
            await session.idle.wait()
        del self._sessions[session_id]
        return schema.CloseSessionResponse()

    async def cancel(self, session_id: str, **_: object) -> None:
        """Abort the turn of the running prompt. Without one, nothing happens."""
        session = self._sessions.get(session_id)
        if session is None or not session.busy:
            return
        session.canceled = True
        if session.question_scope is not None:
            session.question_scope.cancel()
        elif session.turn:
            await self._engine.abort(session.turn)  # `_follow` asks nothing more if the turn pauses just now

    @_hiding_faults
    async def prompt(self, session_id: str, prompt: Sequence[Block], **_: object) -> schema.PromptResponse:
        """Run a turn, or answer the question that an earlier prompt ended with."""
        session = self._need(session_id)
        text, files = read_prompt(prompt)
        if session.busy:
            raise RequestError(_INVALID_REQUEST, "the session is busy with another prompt: cancel it first")
        session.busy, session.canceled, session.idle = True, False, anyio.Event()
        try:
            command = COMMANDS.get(text.strip()) if not files else None
            if command is not None:
                return await self._run_command(session_id, session, command)
            return await self._run_prompt(session_id, session, text, files)
        finally:
            session.busy, session.turn = False, ""
            session.idle.set()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 (the protocol's)
        """Refuse an extension."""
        raise RequestError.method_not_found(f"_{method}")

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """Ignore an extension."""

    # Turns.

    async def _run_prompt(
        self, session_id: str, session: _Session, text: str, files: Sequence[Any]
    ) -> schema.PromptResponse:
        row = await find_open_turn(self._engine, session_id)
        if row is not None and is_paused(row) and not files:
            paused_turn = await PausedTurn.read(self._engine, row.id)
            interrupt = accepts_text(_choose(await open_interrupts(self._engine, row.id)), text)
            if interrupt:
                return await self._follow(session_id, session, self._handle(row), paused_turn, {interrupt: text})
        elif row is not None and await self._engine.store.is_driven(row.id):
            raise RequestError(_INVALID_REQUEST, "another process runs a turn of this session")
        elif row is not None:  # left by a process that was killed
            await abort_turn(self._engine, row.id)
        metadata: dict[str, Any] = {_KEY: {"cwd": session.cwd, "mode": session.mode}}
        agent = self._agents[session.mode]
        handle = await start_in_session(
            self._engine,
            agent,
            text,
            session=session_id,
            files=tuple(files),
            metadata=metadata,
            tools=self._editor_tools,
        )
        return await self._follow(session_id, session, handle)

    async def _follow(
        self,
        session_id: str,
        session: _Session,
        handle: TurnHandle[str],
        paused_turn: PausedTurn | None = None,
        answers: Mapping[str, AnswerValue] | None = None,
    ) -> schema.PromptResponse:
        """Drive a turn to its end: send its updates, and ask its questions."""
        encoder, seq = UpdateEncoder(handle.id, session.terminals), 0
        session.turn = handle.id
        if paused_turn is not None:
            for event in paused_turn.events:
                encoder.encode(event)
            seq = paused_turn.seq
        while True:
            if answers:
                await handle.answer(answers, via=_VIA)
            if session.canceled:
                await self._engine.abort(handle.id)
            async for event in events_for_client(self._engine, handle, seq, _choose):
                await self._send(session_id, encoder.encode(event))
            if encoder.end is not None:
                return self._make_end(encoder)
            if encoder.pause is None:
                raise RequestError(_INTERNAL, "the turn was interrupted: send the prompt again")
            seq = encoder.pause.seq
            answers = None if session.canceled else await self._ask(session_id, session, handle, encoder.pause)
            if answers is None and not session.canceled:
                return schema.PromptResponse(stop_reason="end_turn", usage=encoder.usage)

    def _make_end(self, encoder: UpdateEncoder) -> schema.PromptResponse:
        end = encoder.end
        assert end is not None  # noqa: S101 (checked by the caller)
        meta = {_META: {"turn": encoder.turn, **record_end(end)}}
        reason = stop_reason(end)
        if reason is None:
            raise RequestError(_INTERNAL, explain_end(end), meta)
        return schema.PromptResponse(stop_reason=reason, usage=encoder.usage, field_meta=meta)

    async def _ask(
        self,
        session_id: str,
        session: _Session,
        handle: TurnHandle[str],
        pause: TurnPausedEvent,
        *,
        again: bool = False,
    ) -> dict[str, AnswerValue] | None:
        """Ask every question of a pause, and run the calls that the editor runs.

        Return the answers; None if the next prompt must answer, or after a cancel. With `again`, an earlier process may
        have asked before.
        """
        client = self._need_client()
        calls = EditorCalls(client, session_id, session.cwd, session.terminals)
        answers: dict[str, AnswerValue] = {}
        unasked_interrupts: list[Interrupt] = []
        with anyio.CancelScope() as session.question_scope:
            for interrupt in _choose(pause.interrupts):
                if is_editor_call(interrupt):
                    call = f"{pause.turn}/{interrupt.call}"
                    answers[interrupt.id] = await calls.run(interrupt, call, again=again)
                elif asks_permission(interrupt):
                    diffs = await calls.preview(interrupt)
                    answers[interrupt.id] = await ask_permission(client, session_id, pause.turn, interrupt, diffs)
                elif self._has_forms and interrupt.kind is InterruptKind.QUESTION:
                    answers[interrupt.id] = await ask_form(client, session_id, pause.turn, interrupt)
                else:
                    unasked_interrupts.append(interrupt)
        session.question_scope = None
        if session.canceled:
            return None
        for interrupt in unasked_interrupts:
            await self._send(session_id, [*agent_chunks(clean(words(interrupt)), f"{pause.turn}/{interrupt.id}")])
        if unasked_interrupts and answers:
            await handle.answer(answers, via=_VIA)
        return None if unasked_interrupts else answers

    def _continue_later(self, session_id: str, session: _Session, row: TurnRow) -> None:
        """Ask the open questions of a paused turn again, beside the requests of the client."""
        if not is_paused(row) or session.busy:
            return
        session.busy, session.canceled, session.idle = True, False, anyio.Event()

        async def ask_again() -> None:
            try:
                handle, paused_turn = self._handle(row), await PausedTurn.read(self._engine, row.id)
                pause = TurnPausedEvent(row.id, paused_turn.seq, paused_turn.interrupts)
                answers = await self._ask(session_id, session, handle, pause, again=True)
                if answers is not None:
                    with suppress(RequestError):
                        await self._follow(session_id, session, handle, paused_turn, answers)
            except Exception:  # noqa: BLE001 (nobody waits for this task)
                _LOG.exception("the open question of turn %s could not be asked again", row.id)
            finally:
                session.busy, session.turn = False, ""
                session.idle.set()

        self._spawn(ask_again)

    # Commands.

    async def _offer_commands(self, session_id: str) -> None:
        """Send the slash commands to the client, after the response that names the session."""
        commands = [
            schema.AvailableCommand(name=command.name, description=command.description) for command in COMMANDS.values()
        ]
        update = schema.AvailableCommandsUpdate(available_commands=commands, session_update="available_commands_update")
        with suppress(Exception):  # the client has gone
            await self._send(session_id, [update])

    async def _run_command(self, session_id: str, session: _Session, command: Command) -> schema.PromptResponse:
        """Run a slash command. No model is called, and the conversation does not change."""
        if command is STATUS:
            text = await describe_session(self._engine, session_id)
        elif await self._ask_to_delete(session_id, session):
            text = await delete_session(self._engine, session_id)
        else:
            text = "Nothing was deleted."
        if session.canceled:
            return schema.PromptResponse(stop_reason="cancelled")
        await self._send(session_id, [*agent_chunks(clean(text), f"{session_id}/{new_id()}")])
        return schema.PromptResponse(stop_reason="end_turn")

    async def _ask_to_delete(self, session_id: str, session: _Session) -> bool:
        has_agreed = False
        with anyio.CancelScope() as session.question_scope:
            has_agreed = await confirm(self._need_client(), session_id, f"{session_id}/delete", DELETE_QUESTION)
        session.question_scope = None
        return has_agreed and not session.canceled

    def _spawn(self, run: Callable[[], Coroutine[object, object, None]]) -> None:
        """Run a task beside the requests of the client."""
        self._tasks.add(spawn(run))

    # Sessions.

    def _need(self, session_id: str) -> _Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise RequestError(_INVALID_PARAMS, "there is no such session: begin or load it first")
        return session

    def _need_client(self) -> Client:
        if self._client is None:
            raise RequestError(_INTERNAL, "no client is connected")
        return self._client

    async def _open(self, session_id: str, cwd: str) -> tuple[list[TurnRow], _Session]:
        """Open a session of the store. Raises `RequestError` for one of another protocol."""
        about = await self._about(session_id)
        if about is None:
            raise RequestError(_INVALID_PARAMS, "there is no such session")
        rows = root_turns(await self._engine.turns(session=session_id, limit=_MOST_TURNS))
        mode = str(about.get("mode"))
        session = self._sessions.setdefault(
            session_id, _Session(_checked_folder(cwd), mode if mode in self._agents else self._default)
        )
        return rows, session

    async def _about(self, session_id: str) -> Mapping[str, Any] | None:
        """Return what this door noted about a session with its newest turn; None for another door's."""
        rows = await self._engine.turns(session=session_id, limit=20) if session_id.isprintable() else []
        row = next(iter(root_turns(rows)), None)
        facts = [] if row is None else await self._engine.store.facts(row.id)
        turn_start = facts[0][1] if facts else None
        about = turn_start.metadata.get(_KEY) if isinstance(turn_start, f.TurnStarted) else None
        return about if isinstance(about, Mapping) and "cwd" in about else None

    def _handle(self, row: TurnRow) -> TurnHandle[str]:
        if row.agent not in self._agents:
            raise RequestError(_INVALID_PARAMS, "the agent of the paused turn is not served here")
        return self._engine.attach(row.id, self._agents[row.agent])

    def _modes(self, current: str) -> schema.SessionModeState:
        modes = [
            schema.SessionMode(id=agent.name, name=agent.name, description=agent.description or None)
            for agent in self._agents.values()
        ]
        return schema.SessionModeState(current_mode_id=current, available_modes=modes)

    async def _send(self, session_id: str, updates: Sequence[Any]) -> None:
        client = self._need_client()
        for update in updates:
            await client.session_update(session_id, update)


async def serve_acp(engine: Engine, agents: Sequence[Agent], *, editor_tools: bool = True) -> None:
    """Serve agents over standard input and output until the client closes them.

    With `editor_tools`, the agents may use the editor's files and terminals, if it has them. Raises `ConfigError` if
    standard input or output is closed, a file, or a device such as /dev/null.
    """
    for name, stream in (("input", sys.stdin), ("output", sys.stdout)):
        kind = _find_unfit(stream)
        if kind:
            raise ConfigError(f"acp: standard {name} is {kind}: the editor that starts this command gives it pipes")
    agent: Any = AcpAgent(engine, agents, editor_tools=editor_tools)
    (reader, writer), messages = await stdio_streams(limit=MOST_BYTES), asyncio.StreamReader(limit=MOST_BYTES)
    async with background_task(pass_messages, reader, messages, writer):
        # `session/close` and `session/resume` have routes only with the unstable ones, `session/fork` among them.
        await run_agent(agent, writer, messages, use_unstable_protocol=True)


def _find_unfit(stream: TextIO | None) -> str:
    """Return the kind of a stream whose readiness nobody can wait for; empty for a pipe, a socket or a terminal."""
    if stream is None:
        return "closed"
    mode = os.fstat(stream.fileno()).st_mode
    if stat.S_ISREG(mode):
        return "a file"
    return "a device" if stat.S_ISCHR(mode) and not stream.isatty() else ""


def _choose(interrupts: Sequence[Interrupt]) -> list[Interrupt]:
    """Return the interrupts that the editor runs, or its person can answer: ACP names nobody."""
    answerable = answerable_by("")(interrupts)
    return [interrupt for interrupt in interrupts if is_editor_call(interrupt) or interrupt in answerable]


def _checked_folder(cwd: str) -> str:
    if not cwd.startswith("/") and ":" not in cwd[:3]:
        raise RequestError(_INVALID_PARAMS, "cwd: must be an absolute path")
    return cwd


def _need_no_servers(servers: Sequence[object] | None) -> None:
    if servers:
        _LOG.warning("the client's MCP servers are not used: give them to the agent with --mcp")
