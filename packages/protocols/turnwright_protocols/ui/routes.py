"""The HTTP routes of a UI message stream: messages and answers, reconnecting, reloading, stopping."""

import logging
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final, cast

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from turnwright.agent import Agent
from turnwright.context import DepsT
from turnwright.runtime.engine import Engine
from turnwright.runtime.handle import TurnHandle
from turnwright.transcript.events import StreamEvent, TurnPausedEvent
from turnwright_protocols.client_tools import external_tools, give_results, need_result
from turnwright_protocols.conversations import (
    PausedTurn,
    abort_turn,
    accepts_text,
    agents_by_name,
    answer_turn,
    events_for_client,
    find_open_turn,
    find_turn,
    is_paused,
    open_interrupts,
    start_in_session,
    without_approved,
    without_waits,
)
from turnwright_protocols.http import (
    Endpoint,
    EventStream,
    Gate,
    RefusedRequestError,
    choose_agent,
    declare_tools,
    encode_stream,
    to_sse,
)

from .chunks import Chunk, ChunkEncoder
from .messages import VIA, VIA_MESSAGE, chat_messages, closed_in, message_id, split_events
from .request import ChatRequest, read_request

_LOG = logging.getLogger(__name__)

_LEFT: Final = "the turn was interrupted: load the page again"
#: Marks a response as a UI message stream.
HEADERS: Final = {"x-vercel-ai-ui-message-stream": "v1"}


def ui_routes(
    engine: Engine[DepsT],
    agents: Sequence[Agent[DepsT, object]],
    gate: Gate,
    *,
    path: str = "/api/chat",
    resets: bool = False,
    reasoning: bool = True,
) -> list[Route]:
    """Return the routes of a chat with these agents, for an application of Starlette or FastAPI.

    The chat's id is the session. `POST path` takes a message or answers; `GET path/{id}/stream` reconnects to a running
    turn; `GET path/{id}` returns the messages; `DELETE path/{id}/stream` stops the turn. The first agent answers unless
    the body names another (`agent`). With `resets`, withdrawn text is removed from the page, which needs version 7 of
    the SDK. Without `reasoning`, the model's reasoning is not sent. Raises `ConfigError` without agents.
    """
    # No request gives dependencies: the engine makes them, or refuses the turn.
    chat = _Chat(cast("Engine", engine), cast("Sequence[Agent]", agents), gate, resets=resets, reasoning=reasoning)

    serve = partial(Endpoint, gate, refuse=refuse)
    return [
        Route(path, serve(chat.post), methods=["POST"]),
        Route(f"{path}/{{chat}}", serve(chat.messages), methods=["GET"]),
        Route(f"{path}/{{chat}}/stream", serve(chat.reconnect), methods=["GET"]),
        Route(f"{path}/{{chat}}/stream", serve(chat.stop), methods=["DELETE"]),
    ]


def refuse(refusal: RefusedRequestError) -> Response:
    """Return a refusal: the SDK shows the text of the response as the error's message."""
    return PlainTextResponse(refusal.why, refusal.status)


class _Chat:
    """The handlers of one chat's routes."""

    def __init__(
        self,
        engine: Engine,
        agents: Sequence[Agent],
        gate: Gate,
        *,
        resets: bool,
        reasoning: bool,
    ) -> None:
        self._engine = engine
        self._agents = agents_by_name(agents)
        self._gate = gate
        self._resets = resets
        self._reasoning = reasoning
        self._client_tools = external_tools(engine)

    async def post(self, request: Request) -> Response:
        """Start a turn, or answer the paused one, and stream what follows."""
        chat = read_request(await self._gate.read_json(request))
        user, session = await self._gate.open_session(request, chat.session)
        if chat.answers or chat.results:
            return await self._answer(session, chat, user)
        answer = await self._as_answer(session, chat)
        if answer is not None:
            return await self._answer(session, answer, user, is_message=True)
        agent = choose_agent(self._agents, chat.agent)
        tools = declare_tools(self._engine, agent, chat.tools)
        handle = await start_in_session(
            self._engine, agent, chat.prompt, session=session, files=chat.files, tools=tools
        )
        encoder = self._encoder(handle.id)
        return self._stream(handle, encoder, encoder.start(handle.id), user)

    async def reconnect(self, request: Request) -> Response:
        """Stream the message of the turn from its beginning, unless it asks: the SDK's client builds it again."""
        user, session = await self._gate.open_session(request, str(request.path_params["chat"]))
        row = await find_open_turn(self._engine, session)
        events = [] if row is None else await self._events(row.id)
        if row is None or (is_paused(row) and isinstance(events[-1], TurnPausedEvent)):
            return Response(status_code=204)
        handle = self._engine.attach(row.id, choose_agent(self._agents, row.agent))
        *earlier, _ = split_events(events)
        encoder = self._encoder(row.id, closed_in(events))
        for event in (event for segment in earlier for event in segment):
            encoder.absorb(event)
        start_chunks = encoder.start(message_id(row.id, len(earlier)), announces=bool(earlier))
        return self._stream(handle, encoder, start_chunks, user, after=earlier[-1][-1].seq if earlier else 0)

    async def messages(self, request: Request) -> Response:
        """Return the messages of the chat."""
        _, session = await self._gate.open_session(request, str(request.path_params["chat"]))
        return JSONResponse(
            await chat_messages(self._engine, session, reasoning=self._reasoning, client_tools=self._client_tools),
            headers={"cache-control": "no-store"},
        )

    async def stop(self, request: Request) -> Response:
        """Abort the running turn, or end the paused one."""
        _, session = await self._gate.open_session(request, str(request.path_params["chat"]))
        row = await find_open_turn(self._engine, session)
        if row is not None:
            await abort_turn(self._engine, row.id)
        return Response(status_code=204)

    async def _as_answer(self, session: str, chat: ChatRequest) -> ChatRequest | None:
        """Return a message as the answer to the only open question, if it is one."""
        row = await find_open_turn(self._engine, session)
        if row is None or not is_paused(row) or chat.files:
            return None
        open_ids = {interrupt.id for interrupt in await open_interrupts(self._engine, row.id)}
        interrupts = PausedTurn(await self._events(row.id)).interrupts
        interrupt = accepts_text([interrupt for interrupt in interrupts if interrupt.id in open_ids], chat.prompt)
        return ChatRequest(chat.session, turn=row.id, answers={interrupt: chat.prompt}) if interrupt else None

    async def _answer(self, session: str, chat: ChatRequest, user: str, *, is_message: bool = False) -> Response:
        row = await find_turn(self._engine, session, chat.turn)
        agent, events = choose_agent(self._agents, row.agent), await self._events(row.id)
        answered_ids = {*chat.answers, *chat.results}  # of interrupts and calls
        paused_turn = PausedTurn(events, lambda interrupt: bool(answered_ids & {interrupt.id, interrupt.call}))
        encoder = self._encoder(row.id)
        for event in paused_turn.events:
            encoder.absorb(event)
        answers = {**chat.answers, **give_results(paused_turn.interrupts, chat.results)}
        need_result(answers, chat.results)
        via = VIA_MESSAGE if is_message else VIA
        handle = await answer_turn(self._engine, agent, paused_turn, row.id, answers, by=user, via=via)
        number = len(split_events(paused_turn.events)) - (not is_message)
        start_chunks = encoder.start(message_id(row.id, number), announces=is_message)
        return self._stream(handle, encoder, start_chunks, user, after=paused_turn.seq)

    async def _events(self, turn: str) -> list[StreamEvent]:
        """Return the events of a turn so far, as the page has them."""
        return without_waits(await self._engine.snapshot(turn), self._client_tools)

    def _encoder(self, turn: str, closed_ids: Collection[str] = ()) -> ChunkEncoder:
        return ChunkEncoder(
            turn,
            resets=self._resets,
            reasoning=self._reasoning,
            closed_ids=closed_ids,
            client_tools=self._client_tools,
        )

    def _stream(
        self,
        handle: TurnHandle[str],
        encoder: ChunkEncoder,
        start_chunks: Sequence[Chunk],
        user: str,
        *,
        after: int = 0,
    ) -> Response:
        def close(error: str) -> str:
            return _to_lines(encoder.close(error or _LEFT) if error or not encoder.is_over else ())

        # At once: the text of a fast reply streams in from now on.
        choose = without_approved(user, encoder.choose_questions)
        events = events_for_client(self._engine, handle, after, choose)
        lines = encode_stream(events, _to_lines(start_chunks), lambda event: _to_lines(encoder.encode(event)), close)
        return EventStream(lines, self._gate.bounds, HEADERS)


def _to_lines(chunks: Sequence[Chunk]) -> str:
    return "".join(map(to_sse, chunks))
