"""The page of a session's approvals that cover equal calls, and the form that revokes them."""

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from turnwright.errors import TurnwrightError
from turnwright.journal.questions import call_lines, describe_giver
from turnwright.privacy.redaction import redactor
from turnwright.runtime.engine import Engine
from turnwright_inspector.http.forms import Form, status_of
from turnwright_inspector.http.urls import address

from .turn_page import page


class ApprovalsPage:
    """The handlers of the page and of its form."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/approvals", self.get, name="approvals"),
            Route("/approvals", self.post, methods=["POST"], name="approvals-revoke"),
        ]

    async def get(self, request: Request) -> Response:
        return await self._show(request, request.query_params.get("session", ""))

    async def post(self, request: Request) -> Response:
        """Revoke the approvals of a session."""
        label = Form(await request.form()).text("session")
        try:
            await self._engine.revoke_approvals(await self._name(label))
        except TurnwrightError as error:
            return await self._show(request, label, error=str(error), status=status_of(error))
        return RedirectResponse(f"{address(request, 'approvals')}?{urlencode({'session': label})}", 303)

    async def _show(self, request: Request, label: str, *, error: str = "", status: int = 200) -> Response:
        hide = redactor()
        name = await self._name(label)
        if not name or not await self._engine.store.turns(session=name, limit=1):
            message = {
                "title": "Session not found",
                "message": f"There is no session {hide.hide(label)!r} in this store.",
            }
            return page(request, "missing.html", message, 404)
        approvals = [
            {
                "turn": approval.turn,
                "interrupt": approval.interrupt,
                "given": hide.hide(describe_giver(approval)),
                "call": hide.hide("\n".join(call_lines(approval.tool, hide.hide_fields(approval.arguments)))),
            }
            for approval in await self._engine.approvals(name)
        ]
        values = {"session": hide.hide(name), "approvals": approvals, "error": error}
        return page(request, "approvals.html", values, status)

    async def _name(self, label: str) -> str:
        """Return the id of a session, of which pages hide what looks like a secret."""
        if await self._engine.store.turns(session=label, limit=1):
            return label
        hide = redactor().hide
        return next((info.id for info in await self._engine.store.sessions() if hide(info.id) == label), label)
