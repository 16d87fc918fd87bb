"""What a person, or another program, sees of a turn while it runs: JSON lines, plain lines, or a live screen."""

import sys
from abc import ABC, abstractmethod
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from turnwright.events import FactEvent, TurnEndedEvent, TurnEvent, TurnPausedEvent
from turnwright.result import TurnResult
from turnwright_states import Outcome
from turnwright_states import facts as f

from .options import DEFAULT_STORE
from .process import Output, json_line
from .screen import Screen, escape_prints, fit, fitted, styled
from .stores import store_flag
from .summary import closing_lines, print_closing
from .view import TurnView, file_line, one_line, shown_arguments

#: How far a sub-agent stands to the right of whoever called it.
_INDENT: Final = "    "
#: Where a line goes on that is longer than the terminal.
_HANG: Final = 15
#: Seconds of waiting that somebody who looks on would notice.
_WORTH_TELLING: Final = 0.05
_COLOURS = {
    "ok": "green",
    "error": "red",
    "rejected": "yellow",
    "refused": "yellow",
    "aborted": "red",
    "unknown": "red",
}


class Display(ABC):
    """Hears every event of a turn and of its sub-agents', and says in the end how it came out.

    Used as a context manager while it runs. `store` is the address of the turn's store; `service` has the flags that
    name the service whose workers drive the turn, and is empty where this process does.
    """

    def __init__(self, store: str = DEFAULT_STORE, service: str = "") -> None:
        self.view = TurnView()
        self.store = store
        self.service = service

    @property
    def flags(self) -> str:
        """The flags with which another command finds the turn."""
        return store_flag(self.store) + self.service

    @abstractmethod
    def hear(self, event: TurnEvent) -> None: ...

    @abstractmethod
    def close(self, result: TurnResult, seq: int) -> None:
        """Say how the turn came out. `seq` is its last fact."""

    def _closing(self, result: TurnResult) -> list[str]:
        view = self.view
        return closing_lines(
            result, said=view.said, store=self.store, service=self.service, elsewhere=view.begun_elsewhere
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        return None


class JsonDisplay(Display):
    """One JSON event a line, flushed, for other programs. The last line is `turn_ended` or `paused`.

    Only ASCII is written, all else is escaped: some readers take other characters for line ends too.
    """

    def __init__(self, store: str = DEFAULT_STORE, service: str = "") -> None:
        super().__init__(store, service)
        self._out = Output(alone=True)
        #: What was heard last of the turn itself.
        self._last = ""

    def hear(self, event: TurnEvent) -> None:
        view = self.view.take(event)
        if view is not None:
            if view is self.view:
                self._last = event.type
            self._out.write(json_line(event.to_json()))

    def close(self, result: TurnResult, seq: int) -> None:
        """Print the closing event, unless the turn has just printed it itself."""
        if result.paused and self._last != "paused":
            self.hear(TurnPausedEvent(turn=result.id, seq=seq, interrupts=result.interrupts))


class PlainDisplay(Display):
    """A line for each thing that happens: for pipes, logs and dumb terminals.

    What a sub-agent does stands indented below its call, behind its name: others may do something at the same time.
    """

    def __init__(self, store: str = DEFAULT_STORE, service: str = "") -> None:
        super().__init__(store, service)
        self._out = Output()

    def hear(self, event: TurnEvent) -> None:
        view = self.view.take(event)
        if view is not None:
            gutter = f"{_INDENT * view.depth}{view.label}  " if view.label else ""
            self._out.write(*fit([f"{gutter}{line}" for line in _plain_lines(view, event)], _HANG))

    def close(self, result: TurnResult, seq: int) -> None:  # noqa: ARG002 (the JSON display needs it)
        lines = ["", *self._closing(result)]
        if sys.stdout.isatty():
            print_closing(result, lines, flags=self.flags)
        else:
            self._out.write(*lines)


def _plain_lines(view: TurnView, event: TurnEvent) -> list[str]:
    if isinstance(event, TurnPausedEvent):
        return [f"PAUSED       {len(event.interrupts)} to answer"]
    if isinstance(event, TurnEndedEvent) and view.path:
        last = event.text if event.text != view.said else ""
        return [*_indented(last), f"{view.state:<12} {event.reason}"]
    return _fact_lines(view, event) if isinstance(event, FactEvent) else []


def _fact_lines(view: TurnView, event: FactEvent) -> list[str]:  # noqa: PLR0911 (one case a fact: flat)
    match event.fact:
        case f.TurnStarted():
            # What a sub-agent was told stands in its call.
            started = event.fact
            said = [] if view.path else [*forked(started), one_line(started.prompt), *map(file_line, started.files)]
            return [headline(view), *(f"             {line}" for line in said)]
        case f.StepStarted(number=number, nudge=nudge):
            return [f"STREAM       step {number} of {view.limits.cap}" + ("  (nudged)" if nudge else "")]
        case f.ModelReplied(text=text, calls=calls):
            view.said = text or view.said
            return [
                *_indented(text),
                *(f"TOOL_EXEC    {_named(view, call.id)}({shown_arguments(call)})" for call in calls),
            ]
        case f.CallSettled(call=call, result=result, files=files) if call in view.calls:
            one = view.calls[call]
            took = f" {one.took}" if one.took else ""
            lines = [f"{_named(view, call)}: {one.status}{took}: {one_line(result)}", *map(file_line, files)]
            return [f"             {line}" for line in lines]
        case f.CallWaiting(interrupt=interrupt):
            return [f"             {interrupt.tool} waits: {view.answered_as(interrupt.id)}"]
        case f.Stopping(reason=reason):
            return [f"CONCLUDE     {reason}"]
        case _:
            return [f"             {line}" for line in _note(event)]


def _note(event: FactEvent) -> list[str]:
    """The line for a fact that happens beside the steps and the calls; none for any other."""
    match event.fact:
        case f.AttemptFailed() as failed:
            return [failed_attempt(failed)]
        case f.Concluded(retry=True):
            return ["the conclusion had no text, asking once more"]
        case f.MessageAdded(text=text):
            return [f"message: {one_line(text, 400)}"]
        case f.Notice():
            return [f"notice: {event.text}"]
        case fact if fact.noteworthy:
            return [one_line(f"{fact.title}: {fact.summary()}", 400)]
        case _:
            return []


def _named(view: TurnView, call: str) -> str:
    """The tool of a call; before a sub-agent the call's id, under which it stands below."""
    one = view.calls[call]
    return f"{call} {one.name}" if one.delegated else one.name


def _indented(text: str) -> list[str]:
    return [f"             {line}" for line in text.splitlines()]


class LiveDisplay(Display):
    """A screen that changes in place: what is over scrolls away above it, what happens now stays below."""

    def __init__(self, console: Console, store: str = DEFAULT_STORE, service: str = "") -> None:
        super().__init__(store, service)
        self._console = console
        self._spinner = Spinner("dots")
        self._live = Live(console=console, refresh_per_second=12, get_renderable=self._render, transient=True)
        #: The last step of each turn whose text is on the screen for good.
        self._headed: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._live.start()
        escape_prints()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._live.stop()

    def hear(self, event: TurnEvent) -> None:
        """Show the event; what is over is printed for good."""
        view = self.view.take(event)
        if view is None:
            return
        match event:
            case TurnPausedEvent():
                self._print_step(view)
            case TurnEndedEvent(outcome=outcome, reason=reason, text=text) if view.path:
                said = [styled(text)] if text and text != view.said else []
                self._print(view, *said, styled(f"{outcome}: {reason}", style="dim"))
            case FactEvent(fact=f.TurnStarted() as started):
                if view.path:
                    self._print_head(self.view.above(view))
                lines = [styled(line, style="dim") for line in [headline(view), *forked(started)]]
                files = [styled(file_line(file), style="dim") for file in started.files]
                self._print(view, *lines, styled(started.prompt, style="bold"), *files)
            case FactEvent(fact=f.StepFinished()):
                self._print_step(view)
                view.text, view.calls = "", {}
            case FactEvent(fact=f.Stopping(reason=reason)):
                self._print(view, styled(f"concluding: {reason}", style="yellow"))
            case FactEvent(fact=fact) if notes := _note(event):
                style = "bold" if isinstance(fact, f.MessageAdded) else "yellow"
                self._print(view, *(styled(f"  {line}", style=style) for line in notes))
            case _:
                pass

    def close(self, result: TurnResult, seq: int) -> None:  # noqa: ARG002 (the JSON display needs it)
        lines = self._closing(result)
        if result.paused:
            print_closing(result, ["", *lines], flags=self.flags)
            return
        good = result.outcome in (Outcome.FINISHED, Outcome.SYNTHESIS_DONE)
        self._console.print()
        for line in lines:
            bold = line.startswith(f"{result.outcome}:")
            style = "" if not bold else "bold green" if good else "bold yellow"
            for row in fitted(line, self._console.width):
                self._console.print(styled(row, style), no_wrap=True, crop=False, overflow="ignore")

    def _print(self, view: TurnView, *shown: RenderableType) -> None:
        """Print for good what happened in a turn; of a sub-agent indented, under its name."""
        if not view.path:
            self._console.print(*shown, sep="\n")
            return
        block = Group(styled(view.label, style="magenta"), *shown)
        self._console.print(Padding(block, (0, 0, 0, len(_INDENT) * view.depth), expand=False))

    def _print_head(self, view: TurnView) -> None:
        head = self._head(view)
        if head:
            self._print(view, *head)

    def _print_step(self, view: TurnView) -> None:
        shown = self._head(view)
        if view.calls:
            shown.append(_table(view))
        if shown:
            self._print(view, *shown)

    def _head(self, view: TurnView) -> list[RenderableType]:
        if self._headed.get(view.turn) == view.step or not (view.text or view.calls):
            return []
        self._headed[view.turn] = view.step
        head: list[RenderableType] = [styled(f"step {view.step} of {view.limits.cap}", style="dim")]
        if view.text:
            view.said = view.text
            head.append(styled(view.text))
        return head

    def _render(self) -> RenderableType:
        view = self.view
        if not view.turn or view.state.outcome is not None:
            return styled("")
        self._spinner.update(text=Text.assemble((str(view.state), "bold"), f"  {_progress(view)}"))
        height = max(self._console.height - 8, 4)
        parts: list[RenderableType] = []
        if view.text and self._headed.get(view.turn) != view.step:
            parts.append(styled("\n".join(view.text.splitlines()[-height:])))
        if view.calls:
            parts.append(_table(view))
        return Group(*parts, *_busy(view, height), self._spinner)


def _busy(view: TurnView, height: int) -> list[Text]:
    """A line for each sub-agent that has not ended, as many as there is room for."""
    lines = [
        styled(f"{_INDENT * one.depth}{one.label}  {one.state}  {_progress(one)}", cut=True)
        for one in view.below.values()
        if one.state.outcome is None
    ]
    return lines if len(lines) <= height else [*lines[:height], styled(f"{_INDENT}and {len(lines) - height} more")]


def choose_display(*, as_json: bool, store: str = DEFAULT_STORE, service: str = "") -> Display:
    """JSON lines if asked for; else a live screen on a terminal, and plain lines elsewhere."""
    if as_json:
        return JsonDisplay(store, service)
    console = Screen()
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveDisplay(console, store, service)
    return PlainDisplay(store, service)


def headline(view: TurnView) -> str:
    calls = "unlimited" if view.limits.call_limit is None else f"{view.limits.call_limit}"
    agent, model = one_line(view.agent), one_line(view.model)
    return f"turn {view.turn}  agent {agent}  model {model}  cap {view.limits.cap} steps  budget {calls} tool calls"


def failed_attempt(failed: f.AttemptFailed) -> str:
    """The line that tells of a failed attempt: whether another one follows, and when."""
    wait = f" in {failed.wait:.1f} s" if failed.wait >= _WORTH_TELLING else ""
    again = f", trying again{wait}" if failed.retry else ""
    return f"attempt failed{again}: {one_line(failed.message, 400)}"


def forked(started: f.TurnStarted) -> list[str]:
    """The line that tells of which turn this one is a copy, and how far; none if it is its own."""
    return [] if started.forked_from is None else [f"forked from {started.forked_from} at fact {started.forked_at}"]


def _progress(view: TurnView) -> str:
    calls = "" if view.limits.call_limit is None else f" of {view.limits.call_limit}"
    return f"step {view.step} of {view.limits.cap}  ·  {view.calls_run}{calls} tool calls  ·  {view.tokens} tokens"


def _table(view: TurnView) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 2))
    for name, call in view.calls.items():
        status = call.status or (call.progress or "running" if call.started is not None else "")
        table.add_row(
            styled(_named(view, name), style="cyan"),
            styled(call.arguments, cut=True),
            styled(status, style=_COLOURS.get(status, "dim")),
            styled(call.took, style="dim"),
        )
        if call.error:
            table.add_row("", styled(call.error, style="red"), "", "")
    return table
