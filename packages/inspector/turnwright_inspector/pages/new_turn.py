"""The page that starts a turn."""

from collections.abc import Mapping, Sequence

from starlette.datastructures import URLPath
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from turnwright.agent import Agent
from turnwright.errors import ConfigError, TurnwrightError
from turnwright.runtime.engine import Engine
from turnwright_inspector.background_turns import BackgroundTurns
from turnwright_inspector.http.forms import Form, status_of
from turnwright_inspector.http.urls import address

from .turn_page import page


class NewTurnPages:
    """The handlers of the page. `agents` can be started besides those that are registered with the engine."""

    def __init__(self, engine: Engine, background: BackgroundTurns, agents: Sequence[Agent]) -> None:
        self._engine = engine
        self._background = background
        self._agents = {**engine.setup.agents, **{agent.name: agent for agent in agents}}

    @property
    def routes(self) -> list[Route]:
        return [Route("/new", self.show, name="new"), Route("/new", self.start, methods=["POST"], name="new-start")]

    @property
    def agents(self) -> list[Agent]:
        """The agents that a person can start; none if this process runs no turns."""
        return [agent for agent in self._agents.values() if agent.mode != "subagent"] if self._background.drives else []

    async def show(self, request: Request) -> Response:
        """Show the form, with the agent, the prompt and the session of the query."""
        return self._page(request, request.query_params)

    async def start(self, request: Request) -> Response:
        """Start a turn in a task of the engine, and show it."""
        form = Form(await request.form())
        try:
            agent = next((startable for startable in self.agents if startable.name == form.text("agent")), None)
            if agent is None:
                raise ConfigError("choose an agent that this server has")
            if not form.text("prompt").strip():
                raise ConfigError("the prompt is blank: say what to do")
            session = form.text("session").strip() or None
            handle = await self._engine.start(agent, form.text("prompt"), session=session)
            self._background.watch(handle)
        except TurnwrightError as error:
            return self._page(request, form.typed, str(error), status_of(error))
        return RedirectResponse(URLPath(address(request, "turn", turn=handle.id)), 303)

    def _page(self, request: Request, form_values: Mapping[str, str], message: str = "", status: int = 200) -> Response:
        values = {name: form_values.get(name, "") for name in ("agent", "prompt", "session")}
        return page(request, "new_turn.html", {"agents": self.agents, "typed": values, "message": message}, status)
