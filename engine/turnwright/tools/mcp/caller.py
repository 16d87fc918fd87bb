"""One call of a server's tool: the server's questions, a person's replies, and the data that it keeps over a pause."""

from collections.abc import Mapping
from itertools import islice
from typing import Final

import anyio
from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequests,
    InputRequiredResult,
)
from pydantic import BaseModel, JsonValue, ValidationError

from turnwright._base.words import cut_clean
from turnwright.tools.context import Ask, NeedsPersonError, ToolContext
from turnwright.tools.errors import ToolError
from turnwright.tools.later import WEEK, Later
from turnwright.tools.result import STRUCTURED_LIMIT, json_size
from turnwright_states import Decision, InterruptKind
from turnwright_states.limits import MAX_ANSWERS

from .form import FormAnswerError, describe_form, read_form

#: The reply that confirms a visit to a web page.
DONE: Final = "done"
#: The number of characters of an invalid reply that are repeated.
_SHOWN: Final = 40
#: Seconds that a server has to end a call after its request was canceled.
_TO_END: Final = 5.0


class Round(BaseModel):
    """The open requests of a server in a call, over protocol 2026-07-28. The journal keeps them over a pause."""

    #: The server's `request_state`, sent back unchanged.
    state: str | None = None
    requests: dict[str, ElicitRequest] = {}
    #: The valid answers to the requests so far.
    responses: dict[str, ElicitResult] = {}
    #: The number of the call's replies before this round, and of those that are used.
    replies: int = 0
    #: The id of the task that the call became, the seconds for which the server keeps it, and the keys of its requests
    #: that were answered: a task may show them for a while.
    task: str = ""
    seconds: float | None = None
    answered: list[str] = []

    @property
    def open_requests(self) -> dict[str, ElicitRequest]:
        """The requests that have no valid answer."""
        return {key: request for key, request in self.requests.items() if key not in self.responses}

    @classmethod
    def of(cls, data: JsonValue) -> "Round":
        """Return the round that a call kept; the first round for anything else, such as the data of another tool."""
        try:
            return cls.model_validate(data)
        except ValidationError:
            return cls()


class Caller:
    """One call. Its replies so far answer the server's requests.

    Over protocol 2026-07-28 the server ends each round with all its requests (`rounds`). Over older protocols it sends
    one request after the other, and the repeated call gets the same replies in the same order.
    """

    def __init__(self, server: str, context: ToolContext) -> None:
        self.server = server
        self.context = context
        #: The round of protocol 2026-07-28; None over older protocols.
        self.round: Round | None = None
        #: The question without a reply. The call ends, and waits for a person. For older protocols.
        self.needs: NeedsPersonError | None = None
        #: A request came whose call is unknown. The call is repeated, alone.
        self.muddled = False
        #: The server had forgotten the session, and a new one was opened.
        self.greeted = False
        #: Ends the call on our side, some seconds after `needs` was set.
        self.scope = anyio.CancelScope()
        self._replies = [answer.text for answer in context.answers if answer.decision == Decision.REPLY]
        self._used_replies = 0

    @property
    def is_again(self) -> bool:
        """Whether a person has answered this call, so that the server will ask the same question again."""
        return bool(self._replies)

    def answer(self, request: ElicitRequestParams) -> ElicitResult | None:
        """Return the next reply as the answer, or None if a person must answer first. For older protocols."""
        if self.needs is not None:
            return None
        try:
            return self.ask(request)
        except NeedsPersonError as needs:
            self.needs = needs
            self.scope.deadline = min(self.scope.deadline, anyio.current_time() + _TO_END)
            return None

    def ask(self, request: ElicitRequestParams) -> ElicitResult:
        """Return the first valid reply among the next ones. Raises `NeedsPersonError` if there is none."""
        why = ""
        while (reply := self._take_reply()) is not None:
            try:
                return _read_reply(request, reply)
            except FormAnswerError as error:
                why = f"{error}\n"
        raise NeedsPersonError(self._question(request, why, self._kept_round()))

    def resume_round(self) -> Round:
        """Return the round in which the call is, after a pause that of the pause."""
        if self.round is None:
            self.round = Round.of(self.context.kept)
            self._used_replies = self.round.replies
        return self.round

    def begin_round(self, result: InputRequiredResult) -> Round:
        """Take the server's requests and its state. Raises `ToolError` for requests that are not offered."""
        self.round = Round(state=result.request_state, requests=self.offered_requests(result.input_requests or {}))
        return self.round

    def begin_task(self, task: str, seconds: float | None) -> Round:
        """Take the task that the call became."""
        self.round = Round(task=task, seconds=seconds)
        return self.round

    def offered_requests(self, requests: InputRequests) -> dict[str, ElicitRequest]:
        """Return a server's requests. Raises `ToolError` for those that are not offered."""
        elicitations: dict[str, ElicitRequest] = {}
        for key, request in requests.items():
            if not isinstance(request, ElicitRequest):
                raise ToolError(f"server {self.server}: it needs {request.method}, which is not offered")
            elicitations[key] = request
        return elicitations

    def wait_for_task(self) -> Later:
        """Return the wait for the result of the call's task, while the server keeps it."""
        seconds = WEEK if self.round is None or self.round.seconds is None else self.round.seconds
        return Later(expires_in=max(seconds, 1.0), kept=self._kept_round())

    def fill_round(self, current: Round) -> None:
        """Answer the requests of a round with the next replies.

        Raises `NeedsPersonError` with all questions that have no valid reply: at most `MAX_ANSWERS`, the rest come with
        the next pause.
        """
        questions: list[tuple[ElicitRequest, str]] = []
        for key, request in islice(current.open_requests.items(), MAX_ANSWERS):
            reply, why = self._take_reply(), ""
            if reply is not None:
                try:
                    current.responses[key] = _read_reply(request.params, reply)
                    continue
                except FormAnswerError as error:
                    why = f"{error}\n"
            questions.append((request, why))
        if not questions and current.open_requests:
            self.fill_round(current)
        if questions:
            round_data = self._kept_round()
            first, *more_questions = [self._question(request.params, why, round_data) for request, why in questions]
            raise NeedsPersonError(first, *more_questions)

    def _take_reply(self) -> str | None:
        if self._used_replies >= len(self._replies):
            return None
        self._used_replies += 1
        return self._replies[self._used_replies - 1]

    def _kept_round(self) -> JsonValue:
        """Return the round as JSON, or None over older protocols. Raises `ToolError` if it is too large."""
        if self.round is None:
            return None
        self.round.replies = self._used_replies
        data: JsonValue = self.round.model_dump(mode="json", by_alias=True, exclude_none=True)
        if (size := json_size(data)) > STRUCTURED_LIMIT:
            raise ToolError(
                f"server {self.server}: its questions and its request_state have {size:,} bytes; the limit:"
                f" {STRUCTURED_LIMIT:,}"
            )
        return data

    def _question(self, request: ElicitRequestParams, why: str, round_data: JsonValue) -> Ask:
        if isinstance(request, ElicitRequestURLParams):
            text = f"{self.server} asks: {request.message}\nOpen {request.url}, then answer {DONE}."
            choices: tuple[str, ...] = (DONE,)
        else:
            text, choices = describe_form(f"{self.server} asks: {request.message}", _schema(request))
        return Ask(InterruptKind.QUESTION, f"{why}{text}", choices, kept=round_data)


def _read_reply(request: ElicitRequestParams, reply: str) -> ElicitResult:
    """Return a reply as the answer. Only `done` confirms a visit. Raises `FormAnswerError` for others."""
    if isinstance(request, ElicitRequestURLParams):
        if reply.strip().lower() == DONE:
            return ElicitResult(action="accept")
        raise FormAnswerError(f"Invalid answer {cut_clean(reply, _SHOWN)!r}: answer {DONE}, or reject the call.")
    try:
        content = read_form(reply, _schema(request))
    except FormAnswerError as error:
        raise FormAnswerError(f"Invalid answer: {error}") from None
    return ElicitResult.model_validate({"action": "accept", "content": content})


def _schema(request: ElicitRequestFormParams) -> Mapping[str, object]:
    return request.requested_schema
