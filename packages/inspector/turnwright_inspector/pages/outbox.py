"""The page of the outbox: the notices that wait for their subscribers, and those that failed."""

from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from turnwright.errors import ConfigError, TurnwrightError
from turnwright.runtime.engine import Engine
from turnwright.store.outbox import OutboxStore, outbox_store
from turnwright_inspector.http.forms import Form, status_of
from turnwright_inspector.http.urls import address

from .turn_page import page

#: The most notices of a page: those that failed, and then those that wait longest.
_MOST: Final = 200


class OutboxPage:
    """The handlers of the page, and of its forms: deliver again, and end a subscription."""

    def __init__(self, engine: Engine) -> None:
        self._store = engine.store

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/outbox", self.get, name="outbox"),
            Route("/outbox", self.post, methods=["POST"], name="outbox-change"),
        ]

    async def get(self, request: Request) -> Response:
        return await self._show(request)

    async def _show(self, request: Request, *, error: str = "", status: int = 200) -> Response:
        rows = await self._store.notices() if isinstance(self._store, OutboxStore) else []
        failed_rows = [row for row in rows if row.next_at is None]
        waiting = [row for row in rows if row.next_at is not None]
        values = {
            "notices": (failed_rows + waiting)[:_MOST],
            "failed": len(failed_rows),
            "pending": len(waiting),
            "names": sorted({row.name for row in rows}),
            "error": error,
        }
        return page(request, "outbox.html", values, status)

    async def post(self, request: Request) -> Response:
        """Deliver all notices again, or end a subscription with its notices."""
        form = Form(await request.form())
        try:
            await self._change(form)
        except TurnwrightError as error:
            return await self._show(request, error=str(error), status=status_of(error))
        return RedirectResponse(address(request, "outbox"), 303)

    async def _change(self, form: Form) -> None:
        outbox, name = outbox_store(self._store), form.text("remove")
        if form.text("do") == "retry":
            await outbox.retry_notices()
        elif not name:
            raise ConfigError("the form does not say what to do")
        elif not await outbox.unsubscribe(name):
            raise ConfigError(f"there is no subscription {name!r}")
