"""The forms of the pages: answer, steer, stop, resume and fork turns, without scripts."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from starlette.datastructures import URLPath
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from turnwright._base.ids import new_id, root_of
from turnwright.errors import (
    ConfigError,
    InvalidAnswerError,
    TurnNotFoundError,
    TurnwrightError,
)
from turnwright.journal.answers import Answer, approve, need_root, read_arguments, settled
from turnwright.journal.turn_journal import first_fact
from turnwright.runtime.engine import Engine
from turnwright.store import Annotation, AnnotationKind
from turnwright.store.annotations import annotation_store
from turnwright_inspector.background_turns import BackgroundTurns
from turnwright_inspector.http.forms import Form, status_of
from turnwright_inspector.http.urls import address
from turnwright_inspector.views.available_actions import PostedItem, need_shown_whole
from turnwright_inspector.views.turn_query import whole_number
from turnwright_states import Decision

from .needs_you import NeedsYouPage
from .turn_page import Pages, query_before

#: Does one thing to a turn, as a form requests. Returns the turn to show.
_Action = Callable[[str, Form], Awaitable[str]]


class TurnActions:
    """The handlers of forms. The turn's page shows a failed action, with the typed text."""

    def __init__(self, engine: Engine, background: BackgroundTurns, pages: Pages, needs: NeedsYouPage) -> None:
        self._engine = engine
        self._background = background
        self._pages = pages
        self._needs = needs

    @property
    def routes(self) -> list[Route]:
        actions: dict[str, _Action] = {
            "answer": self._answer,
            "steer": self._steer,
            "abort": self._abort,
            "resume": self._resume,
            "fork": self._fork,
            "annotate": self._annotate,
            "unannotate": self._unannotate,
            "continue": self._continue,
        }
        return [
            Route(f"/turns/{{turn}}/{name}", self._route(action), methods=["POST"], name=name)
            for name, action in actions.items()
        ]

    def _route(self, action: _Action) -> Callable[[Request], Awaitable[Response]]:
        async def do(request: Request) -> Response:
            turn = request.path_params["turn"]
            form = Form(await request.form())
            seen_from = form.text("page")
            is_below = root_of(seen_from) == root_of(turn) and address(request, "turn", turn=seen_from)
            shown_turn = seen_from if is_below else turn
            try:
                goes_to = await action(turn, form)
            except TurnNotFoundError:
                raise
            except TurnwrightError as error:
                posted_item = PostedItem(_words(error), form.typed)
                if form.text("back"):
                    return await self._needs.show(request, posted_item=posted_item, turn=turn, status=status_of(error))
                return await self._pages.show(request, shown_turn, posted_item=posted_item, status=status_of(error))
            if form.text("back"):
                return RedirectResponse(address(request, "needs-you"), 303)
            path = address(request, "turn", turn=shown_turn if goes_to == turn else goes_to)
            return RedirectResponse(URLPath(_with_query(request, path)), 303)

        return do

    async def _answer(self, turn: str, form: Form) -> str:
        """Answer an interrupt. The turn's next driver reads the answer."""
        name, decision = form.text("interrupt"), form.text("decision")
        text = form.text("choice") or form.text("text")
        answer: str | Answer = text
        if not name:
            raise ConfigError("the form does not say what it answers")
        if decision:
            try:
                answer = Answer(Decision(decision), form.text("text"))
            except ValueError:
                raise InvalidAnswerError(name, f"{decision!r} is not a decision", [name]) from None
            if answer.decision is Decision.SETTLE:
                answer = settled(form.text("result"))
            arguments_text = form.text("arguments").strip()
            if arguments_text and answer.decision is Decision.APPROVE:
                answer = approve(arguments=read_arguments(name, arguments_text, [name]))
            elif answer.decision is Decision.APPROVE:
                answer = replace(answer, always=bool(form.text("always")))
                await need_shown_whole(self._engine, turn, [name])
        elif not text.strip():
            raise ConfigError("the answer is empty: write one, or choose one")
        await self._engine.answer(turn, {name: answer}, by=form.text("by").strip(), via="inspector")
        self._background.take_on(turn)
        return turn

    async def _continue(self, turn: str, form: Form) -> str:
        """Start a new turn that continues where an ended one stopped, with the same agent, and run it."""
        if not self._background.drives:
            raise ConfigError("this inspector drives no turns: use the command that is shown")
        need_root(turn, "continue")
        turn_start = first_fact(turn, await self._engine.store.facts(turn))
        agent = self._engine.setup.agent_of(turn, turn_start.agent, None)
        new = await self._engine.submit(agent, form.text("text"), continue_from=turn)
        self._background.take_on(new)
        return new

    async def _steer(self, turn: str, form: Form) -> str:
        need_root(turn, "say it to")
        await self._engine.steer(turn, form.text("text"))
        return turn

    async def _abort(self, turn: str, form: Form) -> str:  # noqa: ARG002 (one of several alike)
        need_root(turn, "stop")
        await self._engine.abort(turn)
        return turn

    async def _resume(self, turn: str, form: Form) -> str:  # noqa: ARG002 (one of several alike)
        if not self._background.drives:
            raise ConfigError("this inspector drives no turns: a worker takes it up, or the command that is shown")
        need_root(turn, "resume")
        await self._engine.store.get(turn)
        self._background.take_on(turn)
        return turn

    async def _fork(self, turn: str, form: Form) -> str:
        """Copy the beginning of a turn into a new one, and run that if this process runs turns."""
        at = whole_number(form.text("at"))
        if at is None:
            raise ConfigError("that is not a place in the journal: a fork begins after a fact, which has a number")
        fork_id = await self._engine.fork(turn, at=at)
        self._background.take_on(fork_id)
        return fork_id

    async def _annotate(self, turn: str, form: Form) -> str:
        """Add a tag, a note or a score, in place of the one of its name."""
        kind, now = _kind(form), self._engine.setup.now()
        name = new_id() if kind is AnnotationKind.NOTE else form.text("name").strip()
        value = _number(form.text("value")) if kind is AnnotationKind.SCORE else None
        text = "" if kind is AnnotationKind.TAG else form.text("text")
        store = annotation_store(self._engine.store)
        await store.annotate(Annotation(turn, kind, name, value=value, text=text, at=now))
        return turn

    async def _unannotate(self, turn: str, form: Form) -> str:
        await annotation_store(self._engine.store).unannotate(turn, _kind(form), form.text("name"))
        return turn


def _words(error: TurnwrightError) -> str:
    if isinstance(error, InvalidAnswerError) and error.interrupt not in error.interrupts:
        return f"The question is closed: another answer came first, or the turn continued ({error})."
    return str(error).replace("give by=", "write your name")


def _kind(form: Form) -> AnnotationKind:
    try:
        return AnnotationKind(form.text("kind"))
    except ValueError:
        raise ConfigError("choose a tag, a note or a score") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"a score is a number, not {text[:40]!r}") from None


def _with_query(request: Request, path: str) -> str:
    """Return the path with the query of its page, if the form was on that page."""
    query = query_before(request, path)
    return f"{path}?{query}" if query else path
