"""The requests of A2A on the journal: messages, tasks, subscriptions. A task is a turn, and its context a session."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Final, NoReturn

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler, validate_request_params
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE
from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    InternalError,
    InvalidParamsError,
    InvalidRequestError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a.utils.task import apply_history_length, validate_history_length, validate_page_size
from starlette.requests import Request

from turnwright._base.ids import root_of
from turnwright.agent import Agent
from turnwright.errors import InvalidAnswerError, TurnAlreadyEndedError, TurnNotFoundError
from turnwright.runtime.engine import Engine
from turnwright.runtime.handle import TurnHandle
from turnwright.store import QUEUED, TurnRow
from turnwright.transcript.events import StreamEvent
from turnwright_protocols.client_tools import external_tools
from turnwright_protocols.conversations import (
    PausedTurn,
    abort_turn,
    answer_turn,
    events_for_client,
    find_open_turn,
    is_paused,
)
from turnwright_protocols.http import (
    LONGEST_SESSION,
    Gate,
    RefusedRequestError,
    conversation_of,
    refusal_of,
    user_of,
    waiting,
)

from .messages import Prompt, read_answers, read_prompt
from .task_encoder import TaskEncoder, Update, state_of_end

_VIA: Final = "a2a"
#: The most turns that one request looks through for a list.
_MOST_LISTED: Final = 1000
_LEFT: Final = "the task was interrupted: get it later"
_PAUSE_IS_FIRST: Final = "the context has an open task: answer it, cancel it or wait for its end"
_NO_CONTENT: Final = "parts: the message has no content"
_NOT_NOW: Final = "a message to a working task is text"
_CLIENT_FAULTS: Final[dict[int, type[A2AError]]] = {
    400: InvalidParamsError,
    404: TaskNotFoundError,
    409: UnsupportedOperationError,
}


class TaskHandler(RequestHandler):
    """Answers the requests to one agent.

    The context of each call has the HTTP request (`request`), whose `state.refusal` is set if it is refused by its
    status: the protocol has no error for that.
    """

    def __init__(self, engine: Engine, agent: Agent, gate: Gate) -> None:
        self._engine = engine
        self._agent = agent
        self._gate = gate
        self._client_tools = external_tools(engine)

    # Messages.

    @validate_request_params
    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task:
        """Start a task, answer or steer one; and wait until it ends or asks, unless the client does not wait."""
        with _refusing(context) as request:
            validate_history_length(params.configuration)
            encoder, events = await self._send(params, request)
            if not params.configuration.return_immediately:
                async with waiting(request, self._gate.bounds):
                    async for _ in self._follow(encoder, events):
                        pass
                encoder.at = (await self._engine.store.get(encoder.turn)).updated_at
            return apply_history_length(encoder.task, params.configuration)

    @validate_request_params
    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Task | Update]:
        """Do the same, and yield the task and its updates."""
        with _refusing(context) as request:
            validate_history_length(params.configuration)
            encoder, events = await self._send(params, request)
            yield apply_history_length(encoder.task, params.configuration)
            async for update in self._follow(encoder, events):
                yield update

    @validate_request_params
    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Task | Update]:
        """Yield an open task and its updates."""
        with _refusing(context) as request:
            row, _ = await self._open(request, params.id)
            if row.status.outcome is not None:
                raise UnsupportedOperationError("the task has ended: get it")
            encoder, seq = await self._read_now(row)
            events = self._events(self._engine.attach(row.id, self._agent), seq, encoder)
            yield encoder.task
            if encoder.pause is None:
                async for update in self._follow(encoder, events):
                    yield update

    # Tasks.

    @validate_request_params
    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task:
        """Return a task."""
        with _refusing(context) as request:
            validate_history_length(params)
            row, _ = await self._open(request, params.id)
            encoder, _ = await self._read_now(row)
            return apply_history_length(encoder.task, params)

    @validate_request_params
    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """Return the tasks of a context, or of all contexts that the request may use; the newest first."""
        with _refusing(context) as request:
            validate_history_length(params)
            size = params.page_size if params.HasField("page_size") else DEFAULT_LIST_TASKS_PAGE_SIZE
            validate_page_size(size)
            before, earlier = _read_token(params.page_token)
            session = None
            if params.context_id:
                _, session = await self._gate.open_session(request, params.context_id)
            rows = await self._engine.turns(session=session, limit=_MOST_LISTED, before=before)
            listed_rows = await self._filter(rows, params, request, session)
            page = listed_rows[:size]
            following = ""
            if len(listed_rows) > size:
                following = f"{page[-1].number}.{earlier + size}"
            elif len(rows) == _MOST_LISTED:
                following = f"{rows[-1].number}.{earlier + len(page)}"
            tasks = [apply_history_length((await self._read_now(row))[0].task, params) for row in page]
            return ListTasksResponse(
                tasks=tasks, next_page_token=following, page_size=size, total_size=earlier + len(listed_rows)
            )

    @validate_request_params
    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task:
        """Abort a task."""
        with _refusing(context) as request:
            row, _ = await self._open(request, params.id)
            if row.status.outcome is not None:
                raise TaskNotCancelableError
            await abort_turn(self._engine, row.id)
            row, _ = await self._open(request, params.id)
            return (await self._read(row))[0].task

    # Not offered.

    async def _refuse_push(self, params: object, context: ServerCallContext) -> NoReturn:  # noqa: ARG002 (the protocol's)
        raise PushNotificationNotSupportedError

    on_create_task_push_notification_config = _refuse_push
    on_get_task_push_notification_config = _refuse_push
    on_list_task_push_notification_configs = _refuse_push
    on_delete_task_push_notification_config = _refuse_push

    async def on_get_extended_agent_card(
        self,
        params: GetExtendedAgentCardRequest,  # noqa: ARG002 (the protocol's arguments)
        context: ServerCallContext,  # noqa: ARG002
    ) -> AgentCard:
        """Refuse."""
        raise UnsupportedOperationError("the agent has no extended card")

    # Reading.

    async def _open(self, request: Request, task: str) -> tuple[TurnRow, str]:
        """Return the turn of a task, and its user. Raises `TurnNotFoundError`, also for a task of another user."""
        if not 0 < len(task) <= LONGEST_SESSION or not task.isprintable():
            raise TurnNotFoundError(task)
        row = await self._engine.store.get(task)
        if row.session is None:
            raise TurnNotFoundError(task)
        user, session = await self._gate.open_session(request, conversation_of(row.session))
        if session != row.session or not self._is_task(row):
            raise TurnNotFoundError(task)
        return row, user

    async def _read(self, row: TurnRow) -> tuple[TaskEncoder, int]:
        """Return the task of a turn's journal, and the seq of its last event."""
        encoder = self._encoder(row.id, row.session or "", row.updated_at)
        events = await self._engine.snapshot(row.id)
        for event in events:
            encoder.encode(event)
        return encoder, events[-1].seq if events else 0

    async def _read_now(self, row: TurnRow) -> tuple[TaskEncoder, int]:
        """Return the same, as if the turn's driver had taken the answers so far."""
        encoder, seq = await self._read(row)
        if encoder.pause is not None:
            encoder.take_answers((await self._engine.get(row.id)).answered)
        return encoder, seq

    def _encoder(self, turn: str, session: str, at: float) -> TaskEncoder:
        user = user_of(session)
        return TaskEncoder(turn, conversation_of(session), at=at, client_tools=self._client_tools, user=user)

    def _events(self, handle: TurnHandle[str], after: int, encoder: TaskEncoder) -> AsyncIterator[StreamEvent]:
        return events_for_client(self._engine, handle, after, encoder.choose_questions)

    async def _follow(self, encoder: TaskEncoder, events: AsyncIterator[StreamEvent]) -> AsyncIterator[Update]:
        """Yield the updates of a turn until it ends or asks. Raises `RefusedRequestError` if nobody drives it on."""
        async for event in events:
            encoder.at = self._engine.setup.now()
            for update in encoder.encode(event):
                yield update
        if not encoder.has_ended and encoder.pause is None:
            raise RefusedRequestError(500, _LEFT)

    def _is_task(self, row: TurnRow) -> bool:
        return row.agent == self._agent.name and root_of(row.id) == row.id and not row.fault

    async def _filter(
        self, rows: list[TurnRow], params: ListTasksRequest, request: Request, session: str | None
    ) -> list[TurnRow]:
        """Return the turns that a list has. `session` is a session that the request may use."""
        access: dict[str, bool] = {} if session is None else {session: True}
        after = params.status_timestamp_after.ToMicroseconds() / 1_000_000
        listed_rows: list[TurnRow] = []
        for row in rows:
            if row.session is None or not self._is_task(row) or row.updated_at < after:
                continue
            if params.status and params.status != await self._state_of(row):
                continue
            if row.session not in access:
                access[row.session] = await self._may_use(request, row.session)
            if access[row.session]:
                listed_rows.append(row)
        return listed_rows

    async def _state_of(self, row: TurnRow) -> TaskState:
        """Return the state of a turn's task, by its row if possible."""
        outcome, reason = row.status.outcome, row.status.reason
        if outcome is not None and reason is not None:
            return state_of_end(outcome, reason)
        if is_paused(row):
            return (await self._read_now(row))[0].task.status.state
        return TaskState.TASK_STATE_SUBMITTED if row.status.state is QUEUED else TaskState.TASK_STATE_WORKING

    async def _may_use(self, request: Request, session: str) -> bool:
        try:
            return session == (await self._gate.open_session(request, conversation_of(session)))[1]
        except RefusedRequestError:
            return False

    # Writing.

    async def _send(
        self, params: SendMessageRequest, request: Request
    ) -> tuple[TaskEncoder, AsyncIterator[StreamEvent]]:
        """Start, answer or steer a task. Returns it, with its events from now on."""
        message = params.message
        if params.configuration.HasField("task_push_notification_config"):
            raise PushNotificationNotSupportedError
        modes = params.configuration.accepted_output_modes
        if modes and not any(mode.startswith(("text/", "*/")) for mode in modes):
            raise ContentTypeNotSupportedError("the agent answers in text/plain")
        prompt = read_prompt(message)
        if not message.task_id:
            return await self._start(prompt, message, request)
        row, user = await self._open(request, message.task_id)
        if message.context_id and message.context_id != conversation_of(row.session or ""):
            raise InvalidParamsError("contextId: the task is in another context")
        encoder, seq = await self._read(row)
        if encoder.pause is not None or prompt.answers is not None:
            names = prompt.answers or {}
            paused_turn = await PausedTurn.read(self._engine, row.id, lambda interrupt: interrupt.id in names)
            asked_ids = [interrupt.id for interrupt in paused_turn.interrupts]
            still_open = () if encoder.pause is None else encoder.pause.interrupts
            open_interrupts = [interrupt for interrupt in still_open if interrupt.id in asked_ids]
            answers = read_answers(prompt, paused_turn.interrupts, open_interrupts, by=user)
            handle = await answer_turn(self._engine, self._agent, paused_turn, row.id, answers, by=user, via=_VIA)
            needed = {interrupt.id: interrupt.approvals for interrupt in open_interrupts}
            encoder.take_answers([name for name in answers if needed.get(name) == 1])
            return encoder, self._events(handle, seq, encoder)
        if encoder.has_ended:
            raise UnsupportedOperationError("the task has ended: send a message without a task to its context")
        if prompt.files:
            raise UnsupportedOperationError(_NOT_NOW)
        if not prompt.text.strip():
            raise InvalidParamsError(_NO_CONTENT)
        handle = self._engine.attach(row.id, self._agent)
        events = self._events(handle, seq, encoder)
        await handle.steer(prompt.text)
        return encoder, events

    async def _start(
        self, prompt: Prompt, message: Message, request: Request
    ) -> tuple[TaskEncoder, AsyncIterator[StreamEvent]]:
        """Start the task of a message, or find it: the same message again starts nothing."""
        context = message.context_id or self._digest(message)
        _, session = await self._gate.open_session(request, context)
        if prompt.answers is not None:
            raise InvalidParamsError("taskId: an answer needs the task that asks")
        if not prompt.text.strip() and not prompt.files:
            raise InvalidParamsError(_NO_CONTENT)
        turn_id = self._digest(message, session)
        known_row = await self._find(turn_id)
        if known_row is None and (row := await find_open_turn(self._engine, session)) and row.id != turn_id:
            raise UnsupportedOperationError(_PAUSE_IS_FIRST)
        handle = await self._engine.start(self._agent, prompt.text, session=session, files=prompt.files, id=turn_id)
        if known_row is not None:
            encoder, seq = await self._read_now(known_row)
            return encoder, self._events(handle, seq, encoder)
        encoder = self._encoder(handle.id, session, self._engine.setup.now())
        events = self._events(handle, 0, encoder)
        encoder.encode(await anext(events))
        return encoder, events

    async def _find(self, turn_id: str) -> TurnRow | None:
        try:
            return await self._engine.store.get(turn_id)
        except TurnNotFoundError:
            return None

    def _digest(self, message: Message, session: str = "") -> str:
        """Return the id of what a message starts. Some clients give every message one `messageId`: the rest differs."""
        text = f"{self._agent.name}\0{session}\0".encode()
        return sha256(text + message.SerializeToString(deterministic=True)).hexdigest()[:32]


@contextmanager
def _refusing(context: ServerCallContext) -> Iterator[Request]:
    """Yield the HTTP request of a call, and raise errors of the protocol for all others."""
    request: Request = context.state["request"]
    try:
        yield request
    except A2AError:
        raise
    except InvalidAnswerError as error:
        raise InvalidParamsError(refusal_of(error).why) from None
    except TurnAlreadyEndedError:
        raise UnsupportedOperationError("the task has ended") from None
    except Exception as error:  # noqa: BLE001 (the library would send the error's words, which may name hosts)
        refusal = refusal_of(error)
        if refusal.status >= 500:  # noqa: PLR2004 (the server's own faults)
            raise InternalError(refusal.why) from None
        kind = _CLIENT_FAULTS.get(refusal.status)
        if kind is None:
            request.state.refusal = refusal
            raise InvalidRequestError(refusal.why) from None
        raise kind(None if kind is TaskNotFoundError else refusal.why) from None


def _read_token(token: str) -> tuple[int | None, int]:
    """Return the turn before which a page begins, and the number of tasks on earlier pages."""
    if not token:
        return None, 0
    number, _, earlier = token.partition(".")
    if not (number.isascii() and number.isdecimal() and earlier.isascii() and earlier.isdecimal() and len(token) < 40):  # noqa: PLR2004 (two numbers)
        raise InvalidParamsError("pageToken: is not one of this server")
    return int(number), int(earlier)
