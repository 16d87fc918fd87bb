"""Shows a turn while it runs: as JSON lines, as plain lines, or on a live screen."""

import sys
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from turnwright._base.words import count
from turnwright.journal.result import TurnResult
from turnwright.status import describe_activity
from turnwright.transcript.events import FactEvent, TurnEndedEvent, TurnEvent, TurnPausedEvent
from turnwright_states import Outcome, State
from turnwright_states import facts as f

from .options import DEFAULT_STORE
from .process import Output, json_line
from .screen import Screen, escape_prints, fit, fit_line, print_lines, style_text
from .stores import store_flag
from .summary import closing_lines, final_text, print_closing
from .view import WRITING, TurnView, describe_fork, file_line, headline, name_call, note, plain_lines

#: The indentation of a sub-agent below its caller.
_INDENT: Final = "    "
#: The indentation of the further rows of a line that is longer than the terminal.
_HANG: Final = 15
_COLORS = {
    "ok": "green",
    "error": "red",
    "rejected": "yellow",
    "refused": "yellow",
    "aborted": "red",
    "unknown": "red",
}


@dataclass(eq=False)
class Display(ABC):
    """Shows every event of a turn and of its sub-agents, and at the end how the turn ended.

    A display is a context manager that is entered while the turn runs. `store` is the address of the turn's store.
    `service` has the flags of the service whose workers drive the turn, and is empty where this process drives it.
    `verbose` adds the outcome, the figures and the path through the chart at the end.
    """

    store: str = DEFAULT_STORE
    service: str = ""
    verbose: bool = field(default=False, kw_only=True)
    view: TurnView = field(default_factory=TurnView, init=False)
    #: Whether the commands that continue the turn are shown at the end.
    hints: bool = field(default=True, init=False)

    @property
    def flags(self) -> str:
        """The flags with which another command finds the turn."""
        return store_flag(self.store) + self.service

    @abstractmethod
    def show(self, event: TurnEvent) -> None: ...

    @abstractmethod
    def close(self, result: TurnResult, seq: int) -> None:
        """Show how the turn ended. `seq` is its last fact."""

    def say_paused(self, result: TurnResult) -> None:
        """Say how to answer a turn that the person has just left paused. The questions are on the screen already."""
        print_lines(["Paused. To answer:", f"  turnwright resume {result.id}{self.flags}"])

    def _closing(self, result: TurnResult) -> list[str]:
        return closing_lines(
            result,
            store=self.store,
            service=self.service,
            hints=self.hints,
            elsewhere=self.view.begun_elsewhere,
            verbose=self.verbose,
            above=final_text(result, self.view.printed_text),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        return None


@dataclass(eq=False)
class JsonDisplay(Display):
    """One JSON event a line, flushed, for other programs. The last line is `turn_ended` or `paused`.

    Only ASCII is written, because some readers take other characters for line ends.
    """

    _out: Output = field(default_factory=partial(Output, alone=True), init=False)
    #: The type of the last event of the turn itself.
    _last: str = field(default="", init=False)

    def show(self, event: TurnEvent) -> None:
        view = self.view.take(event)
        if view is not None:
            if view is self.view:
                self._last = event.type
            self._out.write(json_line(event.to_json()))

    def close(self, result: TurnResult, seq: int) -> None:
        """Print the closing event, unless the turn has just printed it itself."""
        if result.paused and self._last != "paused":
            self.show(TurnPausedEvent(turn=result.id, seq=seq, interrupts=result.interrupts))


@dataclass(eq=False)
class PlainDisplay(Display):
    """A line for each event: for pipes, logs and dumb terminals.

    The lines of a sub-agent are indented below its call and begin with its name, because several may run at once.
    """

    _out: Output = field(default_factory=Output, init=False)

    def show(self, event: TurnEvent) -> None:
        view = self.view.take(event)
        if view is not None:
            gutter = f"{_INDENT * view.depth}{view.label}  " if view.label else ""
            self._out.write(*fit([f"{gutter}{line}" for line in plain_lines(view, event)], _HANG))

    def close(self, result: TurnResult, seq: int) -> None:  # noqa: ARG002 (the JSON display needs it)
        text = final_text(result, self.view.printed_text)
        lines = ["", *([text, ""] if text else []), *self._closing(result)]
        if sys.stdout.isatty():
            print_closing(result, lines, flags=self.flags)
        else:
            self._out.write(*lines)


@dataclass(eq=False)
class LiveDisplay(Display):
    """A screen that changes in place: finished steps scroll up, and the current one stays at the bottom.

    In a `chat` the prompt and the figures of each turn are left out: the person has typed the one, and knows the other.
    """

    console: Console = field(kw_only=True)
    chat: bool = field(default=False, kw_only=True)
    _spinner: Spinner = field(default_factory=partial(Spinner, "dots"), init=False)
    _live: Live | None = field(default=None, init=False)
    #: The last step of each turn whose text is printed for good.
    _headed: dict[str, int] = field(default_factory=dict, init=False)
    _start: float = field(default_factory=time.monotonic, init=False)

    def __post_init__(self) -> None:
        self.hints = not self.chat

    def __enter__(self) -> Self:
        self._start = time.monotonic()
        # A new one each time: an old one would first erase as many lines as it had, which are other lines now.
        self._live = Live(console=self.console, refresh_per_second=12, get_renderable=self._render, transient=True)
        self._live.start()
        escape_prints()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, event: TurnEvent) -> None:
        """Show the event. A finished step is printed for good."""
        view = self.view.take(event)
        if view is None:
            return
        match event:
            case TurnPausedEvent():
                self._print_step(view)
            case TurnEndedEvent(outcome=outcome, reason=reason, text=text) if view.path:
                lines = [_markdown(text)] if text and text != view.printed_text else []
                self._print(view, *lines, style_text(f"{outcome}: {reason}", style="dim"))
            case FactEvent(fact=f.TurnStarted() as turn_start):
                self._print_start(view, turn_start)
            case FactEvent(fact=f.StepFinished()):
                self._print_step(view)
                view.text, view.calls = "", {}
            case FactEvent(fact=f.Stopping(reason=reason)):
                self._print(view, style_text(f"concluding: {reason}", style="yellow"))
            case FactEvent(fact=fact) if notes := note(event):
                style = "bold" if isinstance(fact, f.MessageAdded) else "yellow"
                self._print(view, *(style_text(f"  {line}", style=style) for line in notes))
            case _:
                pass

    def close(self, result: TurnResult, seq: int) -> None:  # noqa: ARG002 (the JSON display needs it)
        lines = self._closing(result)
        if result.paused:
            print_closing(result, ["", *lines], flags=self.flags)
            return
        text = final_text(result, self.view.printed_text)
        if text:
            self.console.print(_markdown(text))
        good = result.outcome in (Outcome.FINISHED, Outcome.SYNTHESIS_DONE)
        self.console.print()
        for number, line in enumerate(lines):
            style = "" if number or result.outcome is None else "bold green" if good else "bold yellow"
            for row in fit_line(line, self.console.width):
                self.console.print(style_text(row, style), no_wrap=True, crop=False, overflow="ignore")

    def _print_start(self, view: TurnView, turn_start: f.TurnStarted) -> None:
        if view.path:
            self._print_head(self.view.above(view))
        elif self.chat:
            return
        lines = [
            style_text(line, style="dim") for line in [headline(view, limits=self.verbose), *describe_fork(turn_start)]
        ]
        files = [style_text(file_line(file), style="dim") for file in turn_start.files]
        self._print(view, *lines, style_text(turn_start.prompt, style="bold"), *files)

    def _print(self, view: TurnView, *renderables: RenderableType) -> None:
        """Print something for good. What a sub-agent did is indented below its name."""
        if not view.path:
            self.console.print(*renderables, sep="\n")
            return
        block = Group(style_text(view.label, style="magenta"), *renderables)
        self.console.print(Padding(block, (0, 0, 0, len(_INDENT) * view.depth), expand=False))

    def _print_head(self, view: TurnView) -> None:
        head = self._head(view)
        if head:
            self._print(view, *head)

    def _print_step(self, view: TurnView) -> None:
        head = self._head(view)
        if view.calls:
            head.append(_table(view))
        if head:
            self._print(view, *head)

    def _head(self, view: TurnView) -> list[RenderableType]:
        if self._headed.get(view.turn) == view.step or not (view.text or view.calls):
            return []
        self._headed[view.turn] = view.step
        head: list[RenderableType] = []
        if view.path or not self.chat:
            head.append(style_text(f"step {view.step} of {view.limits.cap}", style="dim"))
        if view.text:
            view.printed_text = view.text
            head.append(_markdown(view.text))
        return head

    def _render(self) -> RenderableType:
        view = self.view
        if not view.turn or view.state.outcome is not None:
            return style_text("")
        seconds = f"  {time.monotonic() - self._start:.0f} s"
        line = Text.assemble((_activity(view), "bold"), seconds, (f"  {_progress(view)}", "dim"))
        line.truncate(max(self.console.width - 2, 1), overflow="ellipsis")
        self._spinner.update(text=line)
        height = max(self.console.height - 8, 4)
        parts: list[RenderableType] = []
        if view.text and self._headed.get(view.turn) != view.step:
            parts.append(style_text("\n".join(view.text.splitlines()[-height:])))
        if view.calls:
            parts.append(_table(view))
        return Group(*parts, *_busy(view, height), self._spinner)


def _busy(view: TurnView, height: int) -> list[Text]:
    """Return a line for each sub-agent that has not ended, at most `height` of them."""
    lines = [
        style_text(f"{_INDENT * below.depth}{below.label}  {below.state}  {_progress(below)}", cut=True)
        for below in view.below.values()
        if below.state.outcome is None
    ]
    return lines if len(lines) <= height else [*lines[:height], style_text(f"{_INDENT}and {len(lines) - height} more")]


def _markdown(text: str) -> RenderableType:
    from .markdown import RenderedMarkdown  # noqa: PLC0415 (slow to load, and needed on a terminal alone)

    return RenderedMarkdown(text)


def choose_display(
    *, as_json: bool = False, store: str = DEFAULT_STORE, service: str = "", verbose: bool = False, chat: bool = False
) -> Display:
    """Return JSON lines if asked for, else a live screen on a terminal, and plain lines elsewhere."""
    if as_json:
        return JsonDisplay(store, service)
    console = Screen()
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveDisplay(store, service, console=console, verbose=verbose, chat=chat)
    return PlainDisplay(store, service, verbose=verbose)


def _activity(view: TurnView) -> str:
    running = [name_call(view, name) for name, call in view.calls.items() if not call.status]
    if view.state is State.TOOL_EXEC and running:
        return f"Running {running[0]}" if len(running) == 1 else f"Running {len(running)} tools"
    names = [call.name for call in view.calls.values() if call.status == WRITING]
    if names:
        return f"Writing a call of {names[-1]}"
    if view.text and view.state not in (State.COMPACT, State.REVIEW, State.TOOL_EXEC):
        return "Writing"
    return describe_activity(view.state)


def _progress(view: TurnView) -> str:
    return f"step {view.step} of {view.limits.cap}  {count(view.calls_run, 'tool call')}  {view.tokens:,} tokens"


def _table(view: TurnView) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 2))
    for name, call in view.calls.items():
        status = call.status or (call.progress or "running" if call.started is not None else "")
        table.add_row(
            style_text(name_call(view, name), style="cyan"),
            style_text(call.arguments, cut=True),
            style_text(status, style=_COLORS.get(status, "dim")),
            style_text(call.took, style="dim"),
        )
        if call.error:
            table.add_row("", style_text(call.error, style="red"), "", "")
    return table
