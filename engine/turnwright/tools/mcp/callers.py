"""Matching a server's requests to calls, and answering each request with the replies of its call.

A request of a server does not name its call. Over HTTP it arrives on the stream of that call, and the SDK runs our
callback in the call's context. Over stdio the call is unknown, so a request waits until only one call runs.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Final

import anyio
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitRequestURLParams, ElicitResult

from turnwright._base.words import cut_clean
from turnwright.tools.context import NeedsPersonError, ToolContext
from turnwright.tools.timing import clock_stopped
from turnwright_states import Decision

from .form import FormAnswerError, describe_form, read_form

#: The reply that confirms a visit to a web page.
DONE: Final = "done"
#: The number of characters of an invalid answer that are repeated.
_SHOWN: Final = 40
#: Seconds that a server has to end a call after its request was canceled.
_TO_END: Final = 5.0

#: The call in whose context the code runs.
_CURRENT: Final[ContextVar["Caller | None"]] = ContextVar("turnwright_mcp_caller", default=None)


class Caller:
    """One call. Its replies so far answer the server's requests."""

    def __init__(self, server: str, context: ToolContext) -> None:
        self.server = server
        self.context = context
        #: The question without a reply. The call ends, and waits for a person.
        self.needs: NeedsPersonError | None = None
        #: A request came whose call is unknown. The call is repeated, alone.
        self.muddled = False
        #: The server had forgotten the session, and a new one was opened.
        self.greeted = False
        #: Ends the call on our side, some seconds after `needs` was set.
        self.scope = anyio.CancelScope()

    @property
    def is_again(self) -> bool:
        """Whether a person has answered this call, so that the server will ask the same question again."""
        return any(answer.decision == Decision.REPLY for answer in self.context.answers)

    def answer(self, request: ElicitRequestParams) -> ElicitResult | None:
        """Return the next reply as the answer, or None if a person must answer first."""
        if self.needs is not None:
            return None
        try:
            if isinstance(request, ElicitRequestURLParams):
                self.visit(request)
                return ElicitResult(action="accept")
            return ElicitResult.model_validate({"action": "accept", "content": self._fill(request)})
        except NeedsPersonError as needs:
            self.needs = needs
            self.scope.deadline = min(self.scope.deadline, anyio.current_time() + _TO_END)
            return None

    def visit(self, request: ElicitRequestURLParams) -> None:
        """Ask a person to open an address. Only the reply `done` is consent. Raises `NeedsPersonError`."""
        question = f"{self.server} asks: {request.message}\nOpen {request.url}, then answer {DONE}."
        why = ""
        while (reply := self.context.ask(f"{why}{question}", [DONE]).strip()).lower() != DONE:
            why = f"Invalid answer {cut_clean(reply, _SHOWN)!r}: answer {DONE}, or reject the call.\n"

    def _fill(self, request: ElicitRequestFormParams) -> dict[str, object]:
        question, choices = describe_form(f"{self.server} asks: {request.message}", request.requested_schema)
        why = ""
        while True:  # ends after the last reply, because `ask` then raises
            reply = self.context.ask(f"{why}{question}", choices)
            try:
                return dict(read_form(reply, request.requested_schema))
            except FormAnswerError as error:
                why = f"Invalid answer: {error}\n"


class Callers:
    """The running calls of one server."""

    def __init__(self) -> None:
        self._running_callers: list[Caller] = []
        self._alone = False
        self._open_requests = 0
        self._change = anyio.Event()
        #: Keeps the order of arrival. Otherwise a call that must run alone could wait for ever.
        self._turnstile = anyio.Lock()

    @asynccontextmanager
    async def run_call(self, caller: Caller, *, alone: bool) -> AsyncIterator[None]:
        """Run a call in the block. With `alone`, it waits until no other call runs, and keeps others waiting.

        The timeout clock of a waiting call is stopped, because nothing was sent yet.
        """
        with clock_stopped():
            async with self._turnstile:
                while self._alone or self._open_requests or (alone and self._running_callers):
                    await self._change.wait()
                self._running_callers.append(caller)
                self._alone = alone
        token = _CURRENT.set(caller)
        try:
            yield
        finally:
            _CURRENT.reset(token)
            self._running_callers.remove(caller)
            self._alone = False
            self._notify()

    async def find_caller(self) -> Caller | None:
        """Return the call that a server's request belongs to, or None if it is unknown. For the SDK's callback."""
        current = _CURRENT.get()
        if current is not None and current in self._running_callers:
            return current
        self._open_requests += 1
        self._notify()
        try:
            while len(self._running_callers) > self._open_requests:
                await self._change.wait()
            if len(self._running_callers) <= 1:
                return self._running_callers[0] if self._running_callers else None
            # Several calls still run, which may take long. So all of them are repeated, one after the other.
            for caller in self._running_callers:
                caller.muddled = True
            return None
        finally:
            self._open_requests -= 1
            self._notify()

    def _notify(self) -> None:
        self._change.set()
        self._change = anyio.Event()
