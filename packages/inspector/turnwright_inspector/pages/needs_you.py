"""The page of the turns that need a person: each is answered, resumed or aborted there, or several at once."""

import json
from contextlib import suppress
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from turnwright.errors import ConfigError, TurnNotFoundError, TurnwrightError
from turnwright.journal.answers import Answer, need_root
from turnwright.runtime.engine import Engine
from turnwright_inspector.background_turns import BackgroundTurns
from turnwright_inspector.http.urls import address
from turnwright_inspector.views.available_actions import PostedItem, need_shown_whole
from turnwright_inspector.views.needs_you import MOST, NeedsYou
from turnwright_states import Decision

from .turn_page import page

#: The most turns that one form changes.
_MOST: Final = 4 * MOST


class NeedsYouPage:
    """The handlers of the page, of its form for several turns, and of the number in the navigation."""

    def __init__(self, engine: Engine, background: BackgroundTurns, needs: NeedsYou) -> None:
        self._engine = engine
        self._background = background
        self._needs = needs

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/needs-you", self.get, name="needs-you"),
            Route("/needs-you", self.post, methods=["POST"], name="needs-you-all"),
            Route("/needs-you/count", self.count, name="needs-you-count"),
        ]

    async def get(self, request: Request) -> Response:
        return await self.show(request)

    async def count(self, request: Request) -> Response:  # noqa: ARG002 (a route takes one)
        return JSONResponse({"count": await self._needs.refresh()})

    async def show(
        self, request: Request, *, posted_item: PostedItem | None = None, turn: str = "", status: int = 200
    ) -> Response:
        """Return the page, with the error of a failed action on a turn, if any. Raises `StoreError`."""
        values = {
            "waiting": await self._needs.find(),
            "said": posted_item,
            "said_of": turn,
            "drives": self._background.drives,
        }
        return page(request, "needs_you.html", values, status)

    async def post(self, request: Request) -> Response:
        """Approve, reject, resume or abort the chosen turns. Those that cannot be changed are named with the reason."""
        form = await request.form()
        action, failures = str(form.get("do", "")), list[str]()
        chosen_turns = [value for value in form.getlist("chosen") if isinstance(value, str)][:_MOST]
        for value in chosen_turns:
            turn = ""
            try:
                turn, interrupts = _read_choice(value)
                await self._do(action, turn, interrupts)
            except TurnwrightError as error:
                failures.append(f"{turn}: {error}")
        if not chosen_turns:
            failures.append("no turn is chosen")
        if failures:
            return await self.show(request, posted_item=PostedItem("; ".join(failures), {}), status=409)
        return RedirectResponse(address(request, "needs-you"), 303)

    async def _do(self, action: str, turn: str, interrupts: list[str]) -> None:
        need_root(turn, "change")
        if action in (Decision.APPROVE, Decision.REJECT):
            if not interrupts:
                raise ConfigError("it asks for more than an approval, or not all of it is shown: answer it by itself")
            if action == Decision.APPROVE:
                await need_shown_whole(self._engine, turn, interrupts)
            # Only the questions that were on the page: one that came since is still open.
            answers = {name: Answer(Decision(action), "") for name in interrupts}
            await self._engine.answer(turn, answers, via="inspector")
        elif action == "abort":
            await self._engine.abort(turn)
            return
        elif action != "resume":
            raise ConfigError(f"{action!r} is not an action")
        elif not self._background.drives:
            raise ConfigError("this inspector drives no turns: a worker resumes it, or the command that is shown")
        with suppress(TurnNotFoundError):
            self._background.take_on(turn)


def _read_choice(value: str) -> tuple[str, list[str]]:
    """Return a turn and the names of the approvals that were shown, from a box of the page."""
    try:
        turn, interrupts = json.loads(value)
    except (ValueError, TypeError, RecursionError):
        raise ConfigError("the form does not say which turn") from None
    if not isinstance(turn, str) or not isinstance(interrupts, list):
        raise ConfigError("the form does not say which turn")
    return turn, [name for name in interrupts if isinstance(name, str)]
