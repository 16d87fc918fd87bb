"""The HTTP routes of the Responses API: create, retrieve, cancel and delete responses, and list models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from turnwright._base.ids import new_id
from turnwright.agent import Agent
from turnwright.context import DepsT
from turnwright.errors import ConfigError, InvalidAnswerError, TurnNotFoundError
from turnwright.journal.answers import Answer, parse_answer
from turnwright.message import Message
from turnwright.rules import make_rule_sets
from turnwright.runtime.engine import Engine
from turnwright.runtime.handle import TurnHandle
from turnwright.transcript.events import FactEvent, StreamEvent, TurnPausedEvent
from turnwright_protocols.client_tools import (
    give_results,
    need_result,
    read_call_reference,
)
from turnwright_protocols.conversations import (
    AnswerValue,
    PausedTurn,
    abort_turn,
    accepts_text,
    agents_by_name,
    answer_turn,
    events_for_client,
    start_of,
    without_waits,
)
from turnwright_protocols.http import (
    Endpoint,
    EventStream,
    Gate,
    JsonObject,
    RefusedRequestError,
    choose_agent,
    declare_tools,
    encode_stream,
    to_sse,
    waiting,
)
from turnwright_protocols.items import APPROVALS, left_open
from turnwright_states import facts as f

from .chat_completions import ChatCompletions
from .request import (
    ResponseRequest,
    need_answer_format,
    parse_id,
    read_request,
    referenced_turns,
    replace_references,
)
from .response_encoder import Json, ResponseEncoder, ResponseOptions, Segment, functions_of

#: Our key in the metadata of turns that this door started.
_KEY: Final = "responses"
_VIA: Final = "responses"
_LEFT: Final = "the turn was interrupted: retrieve the response later"
_SERVER_FAULT: Final = 500
_METHODS: Final = ("DELETE", "GET", "PATCH", "POST", "PUT")
#: Statuses of requests that did not arrive, or were not admitted.
_REPEATABLE: Final = frozenset({408, 503})


def responses_routes(
    engine: Engine[DepsT],
    agents: Sequence[Agent[DepsT, object]],
    gate: Gate,
    *,
    path: str = "/v1",
    options: ResponseOptions | None = None,
) -> list[Route]:
    """Return the routes of `/responses`, `/chat/completions` and `/models`, for an application of Starlette or FastAPI.

    A model is an agent, by its name. A response is a segment of a turn: from its start or an answer to its next pause
    or end. The gate authorizes the conversation, which begins with a response without a previous one and has a random
    id. Raises `ConfigError` without agents, and for a rule with `scope: session`: a conversation that may branch has no
    order of turns that the rule could remember.
    """
    # No request gives dependencies: the engine makes them, or refuses the turn.
    plain, by_name = cast("Engine", engine), agents_by_name(cast("Sequence[Agent]", agents))
    for agent in by_name.values():
        for rules in (*plain.setup.rules, *make_rule_sets(agent.rules, f"agent {agent.name!r}")):
            for rule in rules.rules:
                if rule.scope == "session":
                    raise ConfigError(
                        f"rule {rule.name!r} of agent {agent.name!r}: responses have no session to remember:"
                        " serve the agent by another protocol, or leave out scope='session'"
                    )
    door = _Responses(plain, by_name, gate, options or ResponseOptions())
    chat = ChatCompletions(plain, by_name, gate)

    serve = partial(Endpoint, gate, refuse=refuse)
    return [
        Route(f"{path}/responses", serve(door.create), methods=["POST"]),
        Route(f"{path}/responses/{{response}}", serve(door.retrieve), methods=["GET"]),
        Route(f"{path}/responses/{{response}}", serve(door.delete), methods=["DELETE"]),
        Route(f"{path}/responses/{{response}}/cancel", serve(door.cancel), methods=["POST"]),
        Route(f"{path}/responses/{{rest:path}}", serve(door.refuse_route), methods=_METHODS),
        Route(f"{path}/chat/completions", serve(chat.create), methods=["POST"]),
        Route(f"{path}/models", serve(door.models), methods=["GET"]),
        Route(f"{path}/models/{{model:path}}", serve(door.model), methods=["GET"]),
    ]


def refuse(refusal: RefusedRequestError) -> Response:
    """Return a refusal in the form of the API's errors.

    OpenAI's clients repeat a request after such a status, which would run the turn again. They may do so only if
    nothing was started.
    """
    kind = "server_error" if refusal.status >= _SERVER_FAULT else "invalid_request_error"
    error = {"message": refusal.why, "type": kind, "param": refusal.field or None, "code": refusal.code or None}
    headers = {} if refusal.status in _REPEATABLE else {"x-should-retry": "false"}
    return JSONResponse({"error": error}, refusal.status, headers)


@dataclass(frozen=True, slots=True)
class _Stored:
    """A response in the journal: its segment, and all events of its turn."""

    segment: Segment
    events: Sequence[StreamEvent]
    started: f.TurnStarted
    agent: str
    conversation: str
    user: str

    @property
    def pause(self) -> TurnPausedEvent | None:
        """The pause that ended the segment."""
        after = (event for event in self.events if event.seq > self.segment.seq)
        return next((event for event in after if isinstance(event, TurnPausedEvent)), None)

    @property
    def is_last(self) -> bool:
        """Whether the segment is the turn's last one so far."""
        return self.pause is None or self.open_pause is not None

    @property
    def open_pause(self) -> TurnPausedEvent | None:
        """The pause that ended the segment, with the interrupts that are still open; None without any."""
        pause = self.pause
        for event in self.events:
            if pause is not None and event.seq > pause.seq:
                pause = left_open(pause, event) if isinstance(event, FactEvent) else None
        return pause

    @property
    def is_answered_here(self) -> bool:
        """Whether a request answered the pause, so that the client has a later response of the turn."""
        return self.pause is not None and any(
            isinstance(event, FactEvent) and isinstance(event.fact, f.Answered) and event.fact.via == _VIA
            for event in self.events
            if event.seq > self.pause.seq
        )


class _Responses:
    """The handlers of responses."""

    def __init__(self, engine: Engine, agents: Mapping[str, Agent], gate: Gate, options: ResponseOptions) -> None:
        self._engine = engine
        self._agents = agents
        self._gate = gate
        self._options = options

    async def models(self, request: Request) -> Response:
        """List the agents."""
        await self._gate.identify(request, "models")
        return JSONResponse({"object": "list", "data": [_model(name) for name in self._agents]})

    async def model(self, request: Request) -> Response:
        """Return an agent by its name."""
        await self._gate.identify(request, "models")
        return JSONResponse(_model(choose_agent(self._agents, request.path_params["model"]).name.lower()))

    async def refuse_route(self, request: Request) -> Response:
        """Refuse what other servers have here (`input_items`, `compact`) in the form that clients show."""
        await self._gate.identify(request, "models")
        raise RefusedRequestError(
            404, "this server creates, retrieves, cancels and deletes responses, and nothing else"
        )

    async def create(self, request: Request) -> Response:
        """Start a turn, or answer the paused one."""
        body = read_request(await self._with_items(request, await self._gate.read_json(request)))
        agent = choose_agent(self._agents, body.model)
        need_answer_format(agent, body.text_format, "text.format")
        earlier = await self._earlier(request, body)
        if earlier is not None and (body.answers or body.results or earlier.open_pause or earlier.is_answered_here):
            answers = self._answers(earlier, body)
            if answers:
                return await self._answer(request, earlier, body, agent, answers)
            if earlier.is_answered_here:
                raise RefusedRequestError(
                    409, "the previous response was answered already", field="previous_response_id"
                )
            if earlier.open_pause is not None:
                await abort_turn(self._engine, earlier.segment.turn)  # another message replaces the paused turn
        return await self._start(request, body, agent, earlier)

    async def retrieve(self, request: Request) -> Response:
        """Return a response as it is now, or stream it from its beginning."""
        record = await self._open(request, str(request.path_params["response"]))
        if request.query_params.get("stream") == "true":
            if request.query_params.get("starting_after"):
                raise RefusedRequestError(
                    400, "a stream begins with the response: leave starting_after out", field="starting_after"
                )
            handle = self._engine.attach(record.segment.turn, choose_agent(self._agents, record.agent))
            return self._stream(handle, self._encoder(record, up_to=record.segment.seq), record.segment)
        return JSONResponse(self._encoder(record).response)

    async def cancel(self, request: Request) -> Response:
        """Abort the turn of a response."""
        identifier = str(request.path_params["response"])
        record = await self._open(request, identifier)
        if not record.is_last:
            raise RefusedRequestError(409, "the response has ended")
        await abort_turn(self._engine, record.segment.turn)
        return JSONResponse(self._encoder(await self._open(request, identifier)).response)

    async def delete(self, request: Request) -> Response:
        """Delete the turn of a response, with its other responses."""
        identifier = str(request.path_params["response"])
        record = await self._open(request, identifier)
        await self._engine.delete(record.segment.turn)
        return JSONResponse({"id": identifier, "object": "response", "deleted": True})

    # Reading.

    async def _with_items(self, request: Request, body: JsonObject) -> JsonObject:
        """Return the body of a request with the items that its input has by reference."""
        turns = referenced_turns(body.get("input"))
        if not turns:
            return body
        items: dict[str, Json] = {}
        for turn in dict.fromkeys(turns.values()):
            first = await self._open(request, f"resp_{turn}_0", "input", "item")
            for start in _starts(first.events):
                segment = Segment(turn, start, first.segment.request, first.segment.created_at)
                items |= self._encoder(replace(first, segment=segment)).items
        return {**body, "input": replace_references(body["input"], items)}

    async def _earlier(self, request: Request, body: ResponseRequest) -> _Stored | None:
        """Return the response that a request continues. Raises `RefusedRequestError` for answers to several turns."""
        if body.previous:
            return await self._open(request, body.previous, "previous_response_id")
        turns = {name.partition("/")[0] for name in body.answers}
        turns |= {read_call_reference(reference)[0] for reference in body.results}
        if not turns:
            return None
        if len(turns) > 1:
            raise RefusedRequestError(400, "input: the answers belong to several turns", field="input")
        (turn,) = turns
        first = await self._open(request, f"resp_{turn}_0", "input", "call or approval request")
        pauses = [event.seq for event in first.events if isinstance(event, TurnPausedEvent)]
        starts = [0, *pauses[:-1]]  # of the response that ended with the last pause
        return await self._open(request, f"resp_{turn}_{starts[-1]}")

    async def _open(self, request: Request, identifier: str, field: str = "", name: str = "response") -> _Stored:
        """Read a response that this door began. Raises `RefusedRequestError` in the words of the field with its id."""
        try:
            return await self._read(request, identifier)
        except TurnNotFoundError:
            why = f"{field}: there is no such {name}" if field else f"there is no such {name}"
            raise RefusedRequestError(404, why, field=field or "response_id") from None

    async def _read(self, request: Request, identifier: str) -> _Stored:
        """Read a response that this door began. Raises `TurnNotFoundError`."""
        turn, seq = parse_id(identifier)
        row = await self._engine.store.get(turn)
        events = await self._engine.snapshot(turn)
        first = start_of(events)
        if first is None:
            raise TurnNotFoundError(turn)
        events = without_waits(events)
        about = first.metadata.get(_KEY)
        if not isinstance(about, Mapping) or not isinstance(about.get("conversation"), str):
            raise TurnNotFoundError(turn)
        conversation = str(about["conversation"])
        user = await self._gate.identify(request, conversation)
        starts = _starts(events)
        if user != about.get("user") or seq not in starts:
            raise TurnNotFoundError(turn)
        place = starts.index(seq)
        previous = f"resp_{turn}_{starts[place - 1]}" if place else about.get("previous") or None
        fields: Json = {"model": row.agent.lower(), "previous_response_id": previous}
        fields["tools"] = functions_of(first.client_tools)
        if not place:
            own_metadata = about.get("metadata")
            fields["background"] = bool(about.get("background"))
            fields["metadata"] = {**own_metadata} if isinstance(own_metadata, Mapping) else {}
        return _Stored(Segment(turn, seq, fields, row.created_at), events, first, row.agent, conversation, user)

    def _encoder(self, record: _Stored, *, up_to: int | None = None) -> ResponseEncoder:
        """Return the encoder of a response, which has read the turn's events, or those up to a fact."""
        encoder = ResponseEncoder(record.segment, self._options, record.user)
        for event in record.events:
            if event.seq <= record.segment.seq:
                encoder.absorb(event)
            elif up_to is None:
                encoder.encode(event)
        return encoder

    # Writing.

    def _answers(self, earlier: _Stored, body: ResponseRequest) -> dict[str, AnswerValue]:
        """Return the answers to the pause of a response, by interrupt.

        Raises `RefusedRequestError` unless all are there.
        """
        pause = earlier.pause
        if pause is None:
            raise RefusedRequestError(409, "the previous response waits for no answer", field="input")
        prefix, answers = f"{earlier.segment.turn}/", dict[str, AnswerValue]()
        for name, answer in body.answers.items():
            if not name.startswith(prefix):
                raise RefusedRequestError(404, "there is no such approval request", field="input")
            answers[name.removeprefix(prefix)] = answer
        results: dict[str, Callable[[], Answer]] = {}
        for reference, result in body.results.items():
            turn, call = read_call_reference(reference)
            if turn != earlier.segment.turn:
                raise RefusedRequestError(404, "there is no such call", field="input")
            results[call] = result
        answers |= give_results(pause.interrupts, results)
        need_result(answers, results)
        questions = (earlier.open_pause or pause).interrupts
        missing = [interrupt for interrupt in questions if interrupt.id not in answers]
        if not answers or body.prompt:
            text = body.prompt
            interrupt = accepts_text(missing, text)
            if not interrupt and self._options.approvals == "text" and len(missing) == 1:
                interrupt = _approval_by_text(missing[0].id, pause, text, by=earlier.user)
            return {**answers, interrupt: text} if interrupt else {}
        if missing:
            raise RefusedRequestError(400, "input: all open requests must be answered in one request", field="input")
        return answers

    async def _answer(
        self,
        request: Request,
        earlier: _Stored,
        body: ResponseRequest,
        agent: Agent,
        answers: Mapping[str, AnswerValue],
    ) -> Response:
        pause, turn = earlier.pause, earlier.segment.turn
        if agent.name != earlier.agent:
            raise RefusedRequestError(400, "model: the paused turn is another agent's", field="model")
        seq = 0 if pause is None else pause.seq
        later = (event.seq for event in earlier.events if isinstance(event, TurnPausedEvent) and event.seq > seq)
        end = next(later, None)
        paused_turn = PausedTurn([event for event in earlier.events if end is None or event.seq < end])
        fields: Json = {"model": earlier.agent.lower(), "previous_response_id": earlier.segment.id}
        fields |= {"metadata": body.metadata, "background": body.background}
        fields["tools"] = earlier.segment.request["tools"]
        segment = Segment(turn, seq, fields, earlier.segment.created_at)
        encoder = ResponseEncoder(segment, self._options, earlier.user)
        for event in paused_turn.events:
            encoder.absorb(event)
        handle = await answer_turn(self._engine, agent, paused_turn, turn, answers, by=earlier.user, via=_VIA)
        return await self._respond(request, handle, encoder, segment, body)

    async def _start(self, request: Request, body: ResponseRequest, agent: Agent, earlier: _Stored | None) -> Response:
        conversation = new_id() if earlier is None else earlier.conversation
        user = await self._gate.identify(request, conversation)
        history = [] if earlier is None else await self._history(earlier)
        instructions = [Message.system(body.instructions)] if body.instructions else []
        about: Json = {"conversation": conversation, "user": user, "previous": body.previous}
        about |= {"metadata": body.metadata, "background": body.background, "instructions": bool(instructions)}
        tools = declare_tools(self._engine, agent, body.tools)
        handle = await self._engine.start(
            agent,
            body.prompt,
            files=body.files,
            message_history=[*instructions, *history, *body.history],
            metadata={_KEY: about},
            tools=tools,
        )
        fields: Json = {"model": agent.name.lower(), "previous_response_id": body.previous or None}
        fields |= {"metadata": body.metadata, "background": body.background}
        fields["tools"] = functions_of([tool.to_json() for tool in tools])
        segment = Segment(handle.id, 0, fields, self._engine.setup.now())
        encoder = ResponseEncoder(segment, self._options, user)
        return await self._respond(request, handle, encoder, segment, body)

    async def _history(self, earlier: _Stored) -> list[Message]:
        """Return the conversation up to the end of a response's turn. Raises `RefusedRequestError` while that runs."""
        result = await self._engine.get(earlier.segment.turn)
        if result.outcome is None:
            raise RefusedRequestError(409, "the previous response is in progress", field="previous_response_id")
        about = earlier.started.metadata.get(_KEY)
        skipped_count = 1 if isinstance(about, Mapping) and about.get("instructions") else 0
        before = [Message.of_json(message) for message in earlier.started.message_history[skipped_count:]]
        return [*before, *result.new_messages()]

    async def _respond(
        self,
        request: Request,
        handle: TurnHandle[str],
        encoder: ResponseEncoder,
        segment: Segment,
        body: ResponseRequest,
    ) -> Response:
        if body.stream:
            return self._stream(handle, encoder, segment)
        if body.background:
            return JSONResponse(encoder.response)
        async with waiting(request, self._gate.bounds):
            async for event in events_for_client(self._engine, handle, segment.seq, encoder.choose_questions):
                encoder.encode(event)
        response = encoder.response
        error = response["error"]
        if isinstance(error, dict):
            raise RefusedRequestError(500, str(error["message"]), code=str(error["code"]))
        if not encoder.is_over:
            raise RefusedRequestError(_SERVER_FAULT, _LEFT)
        return JSONResponse(response)

    def _stream(self, handle: TurnHandle[str], encoder: ResponseEncoder, segment: Segment) -> Response:
        def close(error: str) -> str:
            return _to_lines(encoder.close(error or _LEFT) if error or not encoder.is_over else ())

        # At once: the text of a fast reply streams in from now on.
        events = events_for_client(self._engine, handle, segment.seq, encoder.choose_questions)
        start = _to_lines(encoder.start())
        lines = encode_stream(events, start, lambda event: _to_lines(encoder.encode(event)), close)
        return EventStream(lines, self._gate.bounds)


def _starts(events: Sequence[StreamEvent]) -> list[int]:
    """Return the places where the segments of a turn begin."""
    return [0, *(event.seq for event in events[:-1] if isinstance(event, TurnPausedEvent))]


def _model(name: str) -> Json:
    return {"id": name, "object": "model", "created": 0, "owned_by": "turnwright"}


def _to_lines(events: Sequence[Json]) -> str:
    return "".join(to_sse(event, str(event["type"])) for event in events)


def _approval_by_text(interrupt: str, pause: TurnPausedEvent, text: str, *, by: str) -> str:
    """Return the interrupt if the text approves or rejects it. Raises `InvalidAnswerError` if `by` must not approve."""
    question = next(open_interrupt for open_interrupt in pause.interrupts if open_interrupt.id == interrupt)
    if question.kind not in APPROVALS or text.lstrip().startswith("{"):
        return ""
    try:
        parse_answer(pause.interrupts, interrupt, text, by=by)
    except InvalidAnswerError as error:
        if not error.is_unfit:
            raise
        return ""
    return interrupt
