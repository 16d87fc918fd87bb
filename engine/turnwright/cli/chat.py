"""`turnwright chat`: a session with an agent in the terminal."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Final

import anyio
import typer

from turnwright._base.ids import new_id, root_of
from turnwright.agents.bounds import bounds_of, class_of
from turnwright.driver.admission import TurnOptions
from turnwright.errors import ConfigError, SessionBusyError, TurnwrightError
from turnwright.journal.driving_status import driving_status
from turnwright.journal.result import TurnResult
from turnwright.journal.turn_journal import first_fact
from turnwright.runtime.engine import Engine
from turnwright.status import LIMITS
from turnwright.store import Store, TurnRow
from turnwright.store.address import outlives_process
from turnwright.transcript.events import TurnEvent
from turnwright_states.amounts import format_number
from turnwright_states.facts import TurnStarted

from . import codes, process
from .display import Display, choose_display
from .interactive import Answers, Work, answered_by_person, drive_interactively
from .process import QuitError, echo
from .prompts import can_ask, read_line
from .refused import busy_words
from .runtimes import Service
from .screen import print_columns, print_lines
from .stores import is_elsewhere, missing_file, store_flag, use_store
from .summary import closing_lines
from .turn_flags import TurnFlags
from .turn_plan import TurnPlan, plan_turn

_PROMPT: Final = "> "
_HELP: Final = """\
Type a message, and Enter. Ctrl-C stops the turn; at the prompt, twice leaves.

/limits  the limits of a turn, and what the last turn used
/why     why the last turn ended
/resume  ask again what a paused turn waits for, or resume one whose process died
/help    this help
/quit    leave; so does Ctrl-D"""


def chat(
    *,
    flags: TurnFlags,
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="Start or continue the session of this name.")
    ] = None,
    last: Annotated[bool, typer.Option("--continue", help="Continue the last session in the store.")] = False,
) -> None:
    """Talk with an agent in the terminal. Each message is one turn, and the store keeps the session.

    The answer streams, tools are shown, and approvals are asked for. Ctrl-C stops only the turn. Commands: /limits,
    /why, /resume, /help, /quit.

    A continued session keeps the agent, the model and the tools of its last turn, unless a flag changes them.
    """
    if not can_ask():
        raise ConfigError("chat needs a terminal: pipe a prompt into `turnwright run` instead")
    if session is not None and last:
        raise ConfigError("--session and --continue both name a session: give one of them")
    store, earlier = flags.store, None
    if missing_file(store) is None and outlives_process(store):
        earlier = use_store(store, partial(_last_turn, session=session)) if session is not None or last else None
    if last and earlier is None:
        raise ConfigError("--continue: the store has no session yet: leave it out to start one")
    session = session or (earlier[0].session if earlier else None) or f"chat-{new_id()[:8]}"
    conversation = ChatSession(session, store, verbose=flags.verbose)
    before = earlier[1] if earlier else None
    plan = plan_turn(flags, [conversation.show], service=Service(), before=before)
    try:
        code = anyio.run(conversation.run, plan, earlier[0] if earlier else None)
    except QuitError as quit_error:
        process.say_last(str(quit_error))
        raise typer.Exit(quit_error.code) from None
    if conversation.lasts:
        print_lines(["To continue:", f"  turnwright chat --session {session}{store_flag(store)}"])
    raise typer.Exit(code)


async def _last_turn(store: Store, *, session: str | None) -> tuple[TurnRow, TurnStarted] | None:
    """Return the newest turn of the session, or of any session, that no sub-agent ran."""
    before: int | None = None
    while page := await store.turns(session=session, limit=50, before=before):
        for row in page:
            if row.session is not None and root_of(row.id) == row.id and not row.fault:
                return row, first_fact(row.id, await store.facts(row.id))
        before = page[-1].number
    return None


class ChatSession:
    """One session at the prompt. `show` must observe the events of the engine."""

    def __init__(self, session: str, store: str, *, verbose: bool) -> None:
        self._session = session
        self._store = store
        self._verbose = verbose
        self._display = self._new_display()
        self._last: TurnResult | None = None
        self._has_begun = False

    @property
    def lasts(self) -> bool:
        """Whether the session has a turn that another process can find."""
        return self._has_begun and outlives_process(self._store)

    def show(self, event: TurnEvent) -> None:
        self._display.show(event)

    async def run(self, plan: TurnPlan, earlier: TurnRow | None) -> int:
        """Read messages and run turns until the person leaves. Returns the exit code."""
        async with plan.opening as engine:
            self._greet(plan, engine)
            if earlier is not None:
                self._has_begun = True
                self._last = await engine.get(earlier.id)
                self._say_unfinished()
            is_interrupted = False
            while True:
                try:
                    line = read_line(_PROMPT)
                except KeyboardInterrupt:
                    echo()
                    if is_interrupted:
                        return codes.ABORTED
                    is_interrupted = True
                    echo("Press Ctrl-C again to leave, or type /help.")
                    continue
                is_interrupted = False
                if line is None or line.strip() in ("/quit", "/exit"):
                    return 0
                if line.strip():
                    await self._handle(line.strip(), plan, engine)

    async def _handle(self, line: str, plan: TurnPlan, engine: Engine) -> None:
        commands: dict[str, Callable[[], Awaitable[None] | None]] = {
            "/help": lambda: echo(_HELP),
            "/limits": lambda: self._print_limits(plan, engine),
            "/why": lambda: self._print_why(engine),
            "/resume": lambda: self._resume(engine),
        }
        try:
            if line in commands:
                is_finished = commands[line]()
                if is_finished is not None:
                    await is_finished
            elif line.startswith("/") and line[1:].isalpha():
                echo(f"There is no command {line}. /help lists the commands.")
            else:
                options = TurnOptions(session=self._session, metadata=plan.metadata, model_settings=plan.settings)
                await self._drive(engine, lambda open_engine: open_engine.run(plan.agent, line, **options))
        except SessionBusyError as error:
            process.say(await self._busy(engine, error))
        except TurnwrightError as error:
            process.say(str(error))

    async def _busy(self, engine: Engine, error: SessionBusyError) -> str:
        is_driven = await engine.store.is_driven(error.turn)
        elsewhere = await is_elsewhere(engine.store, error.turn)
        command = "" if is_driven or elsewhere or self._last is None or self._last.id != error.turn else "/resume"
        return busy_words(error, store_flag(self._store), driven=is_driven, elsewhere=elsewhere, again=command)

    async def _drive(self, engine: Engine, work: Work) -> None:
        """Drive a turn, ask for answers while it pauses, and print how it ended."""
        display = self._display = self._new_display()
        try:
            result = await drive_interactively(display, engine, work)
            result, quit_ = await answered_by_person(display, engine, result, self._answer)
        except QuitError as quit_error:
            if quit_error.code == codes.ABORTED and not display.view.turn:  # Ctrl-C before the turn started
                echo("Canceled.")
                return
            raise
        self._last, self._has_begun = result, True
        if quit_:
            self._say_unfinished()
        else:
            display.close(result, 0)

    async def _answer(self, engine: Engine, answers: Answers) -> TurnResult:
        return await engine.resume(self._display.view.turn, answers, via="cli")

    async def _resume(self, engine: Engine) -> None:
        turn = self._last
        if turn is None or turn.outcome is not None:
            why = "the last turn has ended. A new message continues from it." if turn else "no turn has run yet."
            echo(f"Nothing to resume: {why}")
            return
        facts = await engine.store.facts(turn.id)

        def resume_turn(open_engine: Engine) -> Awaitable[TurnResult]:
            self._display.view.recall(turn.id, [fact for _, fact in facts])
            return open_engine.resume(turn.id)

        await self._drive(engine, resume_turn)

    def _new_display(self) -> Display:
        return choose_display(store=self._store, verbose=self._verbose, chat=True)

    def _greet(self, plan: TurnPlan, engine: Engine) -> None:
        model = engine.setup.model.name if engine.setup.model is not None else plan.agent.model
        print_lines([f"{plan.agent.name}, model {model}, session {self._session}. /help lists the commands."])

    def _say_unfinished(self) -> None:
        if self._last is not None and self._last.outcome is None:
            words = "is paused. /resume continues it; a new message ends it."
            notice = "has not ended. /resume continues it; until it ends, no message can be sent."
            print_lines([f"The last turn {words if self._last.paused else notice}"])

    async def _print_why(self, engine: Engine) -> None:
        if self._last is None:
            echo("No turn has run yet.")
            return
        _, driver = await driving_status(engine.store, await engine.store.get(self._last.id))
        print_lines(closing_lines(self._last, hints=False, store=self._store, verbose=True, driver=driver))

    def _print_limits(self, plan: TurnPlan, engine: Engine) -> None:
        last = self._last
        figures: dict[str, str] = {}
        if last is not None:
            figures = {
                "cap": str(last.steps),
                "tool calls": str(last.tool_calls),
                "tokens": f"{last.usage.tokens:,}",
                "seconds": f"{last.seconds:.1f}",
            }
        labels = {"cap" if name == "steps" else limit.counted: limit.counted for name, limit in LIMITS.items()}
        setup = engine.setup
        tools = class_of(setup.tools_for(plan.agent).values())
        bounds = {bound.name: bound for bound in bounds_of(plan.agent.limits_for(setup.limits), tools)}
        rows = []
        for name, word in labels.items():
            value = bounds[name].value
            rows.append((word, "no limit" if value is None else format_number(value), figures.get(name, "")))
        print_columns(("LIMIT", "VALUE", "LAST TURN"), rows)
