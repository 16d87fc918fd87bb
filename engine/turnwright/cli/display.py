"""What a person, or another program, sees of a turn while it runs: JSON lines, plain lines, or a live screen."""

import json
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from turnwright.events import FactEvent, TurnEvent, TurnPaused
from turnwright.result import TurnResult
from turnwright_states import Outcome
from turnwright_states import facts as f

from .closing import closing_lines, store_flag
from .options import DEFAULT_STORE
from .process import Output
from .view import CallView, TurnView, one_line, safe, shown_arguments

_COLOURS = {"ok": "green", "error": "red", "denied": "yellow", "refused": "yellow", "aborted": "red", "unknown": "red"}


class Display(Protocol):
    """Hears every event of a turn, and says in the end how it came out. Used as a context manager while it runs."""

    view: TurnView
    #: What a command needs to find the turn; begins with a space unless it is empty.
    flags: str

    def hear(self, event: TurnEvent) -> None:
        """Show one event."""
        ...

    def close(self, result: TurnResult, seq: int) -> None:
        """Say how the turn came out. `seq` is its last fact."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class _Quiet:
    """What displays share: the view, the flags that a command needs to find the turn, and nothing to open or close."""

    def __init__(self, flags: str = "") -> None:
        self.view = TurnView()
        self.flags = flags
        #: The last text that is on the screen for good.
        self.said = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class JsonDisplay(_Quiet):
    """One JSON event a line, flushed, for other programs. The last line is `halted` or `paused`.

    Only ASCII is written, all else is escaped: some readers take other characters for line ends too.
    """

    def __init__(self, flags: str = "") -> None:
        super().__init__(flags)
        self._out = Output(alone=True)
        self._last = ""

    def hear(self, event: TurnEvent) -> None:
        """Print the event."""
        self.view.take(event)
        self._last = event.type
        self._out.write(json.dumps(event.to_json()))

    def close(self, result: TurnResult, seq: int) -> None:
        """Print the closing event, unless the turn has just printed it itself."""
        if result.paused and self._last != "paused":
            self.hear(TurnPaused(turn=result.id, seq=seq, pending=result.pending))


class PlainDisplay(_Quiet):
    """A line for each thing that happens: for pipes, logs and dumb terminals."""

    def __init__(self, flags: str = "") -> None:
        super().__init__(flags)
        self._out = Output()

    def hear(self, event: TurnEvent) -> None:
        """Print a line, if the event is worth one."""
        self.view.take(event)
        self._out.write(*self._lines(event))

    def close(self, result: TurnResult, seq: int) -> None:  # noqa: ARG002 (the JSON display needs it)
        """Print the outcome, the reason, and what to do next."""
        self._out.write("", *closing_lines(result, said=self.said, flags=self.flags))

    def _lines(self, event: TurnEvent) -> list[str]:  # noqa: C901, PLR0911 (one case a fact: flat)
        view = self.view
        if isinstance(event, TurnPaused):
            return [f"PAUSED       {len(event.pending)} to answer"]
        if not isinstance(event, FactEvent):
            return []
        match event.fact:
            case f.TurnStarted():
                return [
                    headline(view),
                    *(f"             {line}" for line in [*forked(event.fact), one_line(event.fact.prompt)]),
                ]
            case f.StepStarted(number=number, nudge=nudge):
                return [f"STREAM       step {number} of {view.limits.cap}" + ("  (nudged)" if nudge else "")]
            case f.ModelReplied(text=text, calls=calls):
                self.said = text or self.said
                said = [f"             {line}" for line in safe(text).splitlines()]
                return [*said, *(f"TOOL_EXEC    {one_line(call.name)}({shown_arguments(call)})" for call in calls)]
            case f.CallSettled(call=call, result=result) if call in view.calls:
                one = view.calls[call]
                took = f" {one.took}" if one.took else ""
                return [f"             {one.name}: {one.status}{took}: {one_line(result)}"]
            case f.CallWaiting(interrupt=interrupt):
                return [f"             {interrupt.tool} waits: {interrupt.id}"]
            case f.AttemptFailed(message=message, retry=retry):
                return [f"             attempt failed{', trying again' if retry else ''}: {one_line(message, 400)}"]
            case f.Stopping(reason=reason):
                return [f"CONCLUDE     {reason}"]
            case f.Notice() as notice:
                return [f"             notice: {noticed(notice)}"]
            case _:
                return []


class LiveDisplay(_Quiet):
    """A screen that changes in place: what is over scrolls away above it, what happens now stays below."""

    def __init__(self, console: Console, flags: str = "") -> None:
        super().__init__(flags)
        self._console = console
        self._spinner = Spinner("dots")
        self._live = Live(console=console, refresh_per_second=12, get_renderable=self._render, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def hear(self, event: TurnEvent) -> None:
        """Show the event; what is over is printed for good."""
        before = (self.view.step, self.view.text, dict(self.view.calls))
        self.view.take(event)
        if isinstance(event, TurnPaused):
            self._print_step(*before)
        if not isinstance(event, FactEvent):
            return
        match event.fact:
            case f.TurnStarted(prompt=prompt) as started:
                for line in [headline(self.view), *forked(started)]:
                    self._console.print(Text(line, style="dim"))
                self._console.print(Text(safe(prompt), style="bold"))
            case f.StepFinished():
                self._print_step(*before)
                self.view.text, self.view.calls = "", {}
            case f.AttemptFailed(message=message, retry=retry):
                what = "attempt failed, trying again" if retry else "attempt failed"
                self._console.print(Text(f"  {what}: {one_line(message, 400)}", style="yellow"))
            case f.Stopping(reason=reason):
                self._console.print(Text(f"concluding: {reason}", style="yellow"))
            case f.Notice() as notice:
                self._console.print(Text(f"  notice: {noticed(notice)}", style="yellow"))
            case _:
                pass

    def close(self, result: TurnResult, seq: int) -> None:  # noqa: ARG002 (the JSON display needs it)
        """Print the outcome, the reason, and what to do next."""
        lines = closing_lines(result, said=self.said, flags=self.flags)
        good = result.outcome in (Outcome.FINISHED, Outcome.SYNTHESIS_DONE)
        self._console.print()
        for line in lines:
            bold = line.startswith((f"{result.outcome}:", "paused:"))
            self._console.print(Text(line, style="" if not bold else "bold green" if good else "bold yellow"))

    def _print_step(self, step: int, text: str, calls: dict[str, CallView]) -> None:
        if text or calls:
            self._console.print(Text(f"step {step} of {self.view.limits.cap}", style="dim"))
        if text:
            self.said = text
            self._console.print(Text(safe(text)))
        if calls:
            self._console.print(_table(calls))

    def _render(self) -> RenderableType:
        view = self.view
        if not view.turn or view.state.outcome is not None:
            return Text("")
        self._spinner.update(text=Text.from_markup(f"[bold]{view.state}[/]  {escape(_progress(view))}"))
        parts: list[RenderableType] = []
        if view.text:
            height = max(self._console.height - 8, 4)
            parts.append(Text("\n".join(safe(view.text).splitlines()[-height:])))
        if view.calls:
            parts.append(_table(view.calls))
        return Group(*parts, self._spinner)


def choose_display(*, as_json: bool, store: str = DEFAULT_STORE) -> Display:
    """JSON lines if asked for; else a live screen on a terminal, and plain lines elsewhere."""
    flags = store_flag(store)
    if as_json:
        return JsonDisplay(flags)
    console = Console()
    return LiveDisplay(console, flags) if console.is_terminal and not console.is_dumb_terminal else PlainDisplay(flags)


def headline(view: TurnView) -> str:
    """The first line: which turn, which agent, which model, which bounds."""
    calls = "unlimited" if view.limits.tool_calls is None else f"{view.limits.tool_calls}"
    agent, model = one_line(view.agent), one_line(view.model)
    return f"turn {view.turn}  agent {agent}  model {model}  cap {view.limits.cap} steps  budget {calls} tool calls"


def forked(started: f.TurnStarted) -> list[str]:
    """The line that tells of which turn this one is a copy, and how far; none if it is its own."""
    return [] if started.forked_from is None else [f"forked from {started.forked_from} at fact {started.forked_at}"]


def noticed(notice: f.Notice) -> str:
    """A notice in words."""
    if notice.limit == "usage_unknown":
        return "the provider does not say what its replies used: token and cost budgets cannot hold"
    return f"{notice.limit}: {notice.used:g} of {notice.of:g} used"


def _progress(view: TurnView) -> str:
    calls = "" if view.limits.tool_calls is None else f" of {view.limits.tool_calls}"
    return f"step {view.step} of {view.limits.cap}  ·  {view.calls_run}{calls} tool calls  ·  {view.tokens} tokens"


def _table(calls: dict[str, CallView]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 2))
    for call in calls.values():
        status = call.status or ("running" if call.started is not None else "")
        table.add_row(
            Text(call.name, style="cyan"),
            Text(call.arguments, overflow="ellipsis", no_wrap=True),
            Text(status, style=_COLOURS.get(status, "dim")),
            Text(call.took, style="dim"),
        )
    return table
