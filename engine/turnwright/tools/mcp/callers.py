"""Whose question is it: finds the call that a server's request belongs to, and answers it out of that call's replies.

A request of a server does not say which call it is about. Over HTTP it comes on the stream of that call, and the SDK
runs our callback in the call's context. Over stdio nothing tells, so a request waits there until the call that made it
is the only one that can have made it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Final

import anyio
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitRequestURLParams, ElicitResult

from turnwright.tools.context import NeedsPersonError, ToolContext
from turnwright.tools.text import shorten
from turnwright.tools.timing import clock_stopped
from turnwright_states import Decision

from .form import FormAnswerError, describe_form, read_form

#: What a person says who has done what a page asked.
DONE: Final = "done"
#: How much of an answer that does not fit is repeated, in characters.
_SHOWN: Final = 40
#: Seconds that a server has to end a call of which it was told that nobody is there to answer.
_TO_END: Final = 5.0

#: The call in whose context the code runs.
_CURRENT: Final[ContextVar["Caller | None"]] = ContextVar("turnwright_mcp_caller", default=None)


class Caller:
    """One call, as the server's requests see it: they are answered by the replies that it was given so far."""

    def __init__(self, server: str, context: ToolContext) -> None:
        self.server = server
        self.context = context
        #: The call has no reply yet for what the server asked. It ends, and waits for a person.
        self.needs: NeedsPersonError | None = None
        #: The server asked something while it could not be told for which call: it is made again, alone.
        self.muddled = False
        #: The server had forgotten the session once, and was greeted again.
        self.greeted = False
        #: Ends the call on our side, soon after `needs`.
        self.scope = anyio.CancelScope()

    @property
    def is_again(self) -> bool:
        """Whether a person has answered it before, so that the server is about to ask the same again."""
        return any(answer.decision == Decision.REPLY for answer in self.context.answers)

    def answer(self, asked: ElicitRequestParams) -> ElicitResult | None:
        """Answer with the next reply; None where a person has to say it first."""
        if self.needs is not None:
            return None
        try:
            if isinstance(asked, ElicitRequestURLParams):
                self.visit(asked)
                return ElicitResult(action="accept")
            return ElicitResult.model_validate({"action": "accept", "content": self._fill(asked)})
        except NeedsPersonError as needs:
            self.needs = needs
            self.scope.deadline = min(self.scope.deadline, anyio.current_time() + _TO_END)
            return None

    def visit(self, asked: ElicitRequestURLParams) -> None:
        """Have a person open an address, and say so: nothing else is taken for consent. Raises `NeedsPersonError`."""
        question = f"{self.server} asks: {asked.message}\nOpen {asked.url}, then answer {DONE}."
        why = ""
        while (said := self.context.ask(f"{why}{question}", [DONE]).strip()).lower() != DONE:
            why = f"That does not fit: it is answered {DONE}, and not {shorten(said, _SHOWN)!r}; deny it to decline.\n"

    def _fill(self, asked: ElicitRequestFormParams) -> dict[str, object]:
        question, choices = describe_form(f"{self.server} asks: {asked.message}", asked.requested_schema)
        why = ""
        while True:  # it ends with the replies: without one `ask` raises
            said = self.context.ask(f"{why}{question}", choices)
            try:
                return dict(read_form(said, asked.requested_schema))
            except FormAnswerError as bad:
                why = f"That does not fit: {bad}\n"


class Callers:
    """The calls that run at one server."""

    def __init__(self) -> None:
        self._running: list[Caller] = []
        self._alone = False
        self._asking = 0
        self._changed = anyio.Event()
        #: First come, first served: else one that is to run alone could wait for ever.
        self._turnstile = anyio.Lock()

    @asynccontextmanager
    async def calling(self, caller: Caller, *, alone: bool) -> AsyncIterator[None]:
        """A call runs in this block; `alone` waits until no other does, and keeps others waiting.

        The time of a call that waits here stands still: nothing of it was sent.
        """
        with clock_stopped():
            async with self._turnstile:
                while self._alone or self._asking or (alone and self._running):
                    await self._changed.wait()
                self._running.append(caller)
                self._alone = alone
        token = _CURRENT.set(caller)
        try:
            yield
        finally:
            _CURRENT.reset(token)
            self._running.remove(caller)
            self._alone = False
            self._notify()

    async def whose(self) -> Caller | None:
        """The call that a request of the server is about, as seen from the SDK's callback; None if nobody can tell."""
        current = _CURRENT.get()
        if current is not None and current in self._running:
            return current
        self._asking += 1
        self._notify()
        try:
            while len(self._running) > self._asking:
                await self._changed.wait()
            if len(self._running) <= 1:
                return self._running[0] if self._running else None
            # All of them wait for a person, who may take days. They are made again for every answer anyway.
            for one in self._running:
                one.muddled = True
            return None
        finally:
            self._asking -= 1
            self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
