"""The page that forks a turn with changes, and runs it."""

from pydantic import ValidationError
from starlette.datastructures import URLPath
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from turnwright.agent import Agent
from turnwright.errors import ConfigError, TurnNotFoundError, TurnwrightError, UnreadableTurnError
from turnwright.runtime.engine import Engine
from turnwright_inspector.background_turns import BackgroundTurns
from turnwright_inspector.http.forms import Form, status_of
from turnwright_inspector.http.urls import address
from turnwright_inspector.views.edit_form import EditForm, changes_in, edit_form
from turnwright_inspector.views.turn_query import whole_number
from turnwright_inspector.views.turn_record import TurnRecord, Turns

from .turn_page import page


class EditPages:
    """The handlers of the page. `turns` has the turns that were read last."""

    def __init__(self, engine: Engine, background: BackgroundTurns, turns: Turns) -> None:
        self._engine = engine
        self._background = background
        self._turns = turns

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/turns/{turn}/edit", self.show, name="edit"),
            Route("/turns/{turn}/edit", self.run, methods=["POST"], name="edit-run"),
        ]

    async def show(self, request: Request) -> Response:
        """Show the form, for a fork after the fact `at`, or before the model call of `step`."""
        fields = request.query_params
        turn = await self._turns.read(request.path_params["turn"])
        form = edit_form(turn, whole_number(fields.get("at", "")), fields.get("step"), {})
        return self._page(request, turn, form)

    async def run(self, request: Request) -> Response:
        """Fork the turn with what was typed, and run the fork if this process runs turns.

        With `show`, or if another beginning was chosen than the one that was shown, show its form, with what was typed.
        """
        form = Form(await request.form())
        turn, at = await self._turns.read(request.path_params["turn"]), whole_number(form.text("at"))
        is_moved = form.text("shown") not in ("", form.text("at"))
        if form.text("show") or is_moved:
            note = "" if form.text("show") else "Another beginning was chosen: check its form, and run it then."
            return self._page(request, turn, edit_form(turn, at, None, form.typed), note)
        try:
            fork_id = await self._fork(turn, at, form)
        except TurnNotFoundError:
            raise
        except TurnwrightError as error:
            return self._page(request, turn, edit_form(turn, at, None, form.typed), str(error), status_of(error))
        self._background.take_on(fork_id)
        return RedirectResponse(URLPath(address(request, "turn", turn=fork_id)), 303)

    async def _fork(self, turn: TurnRecord, at: int | None, form: Form) -> str:
        if at is None:
            raise ConfigError("that is not a place in the journal: choose where to begin")
        changes = changes_in(edit_form(turn, at, None, form.typed))
        if "model" in changes and self._background.drives:
            self._need_model(turn, changes["model"])
        return await self._engine.fork(turn.row.id, at=at, **changes)

    def _need_model(self, turn: TurnRecord, name: str) -> None:
        """Raise `ConfigError` for a model that this process cannot call."""
        try:
            agent = Agent.from_json(turn.started.agent)
        except ValidationError as error:
            raise UnreadableTurnError(turn.row.id, "its agent cannot be read") from error
        self._engine.setup.model_for(agent, name)

    def _page(
        self, request: Request, turn: TurnRecord, form: EditForm, message: str = "", status: int = 200
    ) -> Response:
        values = {"turn": turn, "form": form, "message": message, "drives": self._background.drives}
        return page(request, "edit.html", values, status)
