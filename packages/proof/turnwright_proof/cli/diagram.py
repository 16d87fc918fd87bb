"""`turnwright diagram`: draws the chart, also as it is for one agent, or with the path of a turn over it."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

from turnwright.cli import codes
from turnwright.cli.options import (
    DEFAULT_STORE,
    AgentsOption,
    ConfigOption,
    HooksOption,
    StoreOption,
    ToolsOption,
    configuration,
)
from turnwright.cli.process import echo, words_of
from turnwright.cli.stores import find_turn, read_journal
from turnwright.cli.summary import path_words
from turnwright.errors import ConfigError
from turnwright.transcript.transcript import Transcript
from turnwright_proof.draw import (
    Overlay,
    coverage_overlay,
    extract,
    extract_overview,
    fold_common_rows,
    overview_to_svg,
    overview_to_table,
    read_row_counts,
    stale,
    turn_overlay,
    write,
)
from turnwright_states.replay import replay
from turnwright_states.row_counts import RowCounts

from .pictures import Format, picture_text, report_problems, report_written


class View(StrEnum):
    OVERVIEW = "overview"
    REVIEW = "review"
    FULL = "full"


#: The formats of the views that lack rows.
_FORMATS: Final = {
    View.OVERVIEW: frozenset({Format.SVG, Format.TABLE}),
    View.REVIEW: frozenset({Format.MERMAID, Format.DOT, Format.SVG}),
}


def diagram(
    *,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="The format [default: mermaid; of the overview: svg; of an agent: page].",
            show_default=False,
        ),
    ] = None,
    view: Annotated[
        View | None,
        typer.Option(
            "--view",
            help="overview: a dozen boxes for a first look; review: transitions of several states become one note;"
            " full: every transition [default: full].",
            show_default=False,
        ),
    ] = None,
    turn: Annotated[str | None, typer.Option("--turn", metavar="ID", help="Mark the path of this turn.")] = None,
    coverage: Annotated[
        list[Path] | None,
        typer.Option(
            "--coverage",
            metavar="FILE",
            help="Color rows by how often tests took them: a file of the pytest plugin or of `fuzz`; may be repeated.",
            show_default=False,
        ),
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    agents: AgentsOption = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="NAME", help="The agent to draw.")] = None,
    tools: ToolsOption = None,
    hooks: HooksOption = None,
    synthesis: Annotated[
        bool, typer.Option("--synthesis", help="The app makes answers of its own from the results of tools.")
    ] = False,
    config: ConfigOption = None,
    write_to: Annotated[
        Path | None,
        typer.Option(
            "--write",
            metavar="DIR",
            help="Write overview.svg, the review drawing (turn.svg, .dot, .mmd), the full chart (turn-full.*) and"
            " turn.md; of agents, a page each.",
        ),
    ] = None,
    check: Annotated[
        Path | None, typer.Option("--check", metavar="DIR", help="List the files there that are stale or missing.")
    ] = None,
) -> None:
    """Draw the chart of states, or the path of a turn in it.

    SVG needs Graphviz's `dot` on PATH. --turn marks and counts the rows that a turn took, and exits with 1 if the
    journal does not follow the chart. --check exits with 1 if it lists a file. --agents or --agent draws the chart as
    it is for an agent: without the rows that its limits, tools and hooks exclude.
    """
    if sum(map(bool, (form or view or turn or coverage, write_to, check))) > 1:
        _refuse("printing a picture, --write and --check exclude each other: give one of them")
    _refuse_overlays(form, view, turn=turn, coverage=coverage, of_agents=bool(agents or agent))
    if agents or agent:
        from .agent_diagram import AgentDrawing, draw_agents  # noqa: PLC0415 (walks turns: slow to load)

        drawing = AgentDrawing(configuration(config), tools, hooks or (), synthesis=synthesis)
        draw_agents(drawing, agents, agent, form=form or Format.PAGE, write_to=write_to, check=check)
        return
    text = ""
    try:
        if write_to is not None:
            report_written(write_to, write(write_to))
        elif check is not None:
            report_problems(check, stale(check), f"`turnwright diagram --write {check}`")
        else:
            overlay = _turn(turn, store) if turn else None
            if coverage:
                overlay = coverage_overlay(sum(map(read_row_counts, coverage), start=RowCounts.zeros()))
            text = _text(view or View.FULL, form, overlay)
    except (ConfigError, OSError) as error:
        _refuse(words_of(error))
    if text:  # an output that cannot be written is reported as for every command
        echo(text.removesuffix("\n"))


def _refuse_overlays(
    form: Format | None, view: View | None, *, turn: str | None, coverage: list[Path] | None, of_agents: bool
) -> None:
    """Refuse options that do not fit together."""
    if turn and coverage:
        _refuse("--turn and --coverage exclude each other: give one of them")
    formats = _FORMATS.get(view or View.FULL)
    if formats and (turn or coverage):
        _refuse(f"--view {view} excludes --turn and --coverage: they need the full chart")
    if formats and form and form not in formats:
        _refuse(f"--view {view} excludes --format {form}: use {', '.join(sorted(formats))}")
    if (turn or coverage) and form is Format.PAGE:
        _refuse(f"the format {form} has no overlay: use mermaid, dot, svg or table")
    if of_agents and (view or turn or coverage):
        _refuse("--agents and --agent exclude --view, --turn and --coverage")


def _text(view: View, form: Format | None, overlay: Overlay | None) -> str:
    picture = extract()
    match view:
        case View.OVERVIEW:
            overview = extract_overview(picture)
            return overview_to_table(overview) if form is Format.TABLE else overview_to_svg(overview)
        case View.REVIEW:
            return picture_text(form or Format.MERMAID, fold_common_rows(picture), overlay)
        case View.FULL:
            return picture_text(form or Format.MERMAID, picture, overlay)


def _turn(turn: str, store: str) -> Overlay:
    turn = find_turn(store, turn)
    facts = read_journal(store, turn)
    replay_result = replay(facts)
    if replay_result.fault is not None or replay_result.machine is None:
        echo(f"turnwright diagram: turn {turn} cannot be drawn: {replay_result.check.detail}", err=True)
        raise typer.Exit(codes.FAILED)
    rows = [row for group in replay_result.groups for row in group.rows]
    path = Transcript.of(facts).path
    return turn_overlay(turn, replay_result.machine.turn, rows, path=path_words(path))


def _refuse(message: str) -> NoReturn:
    echo(f"turnwright diagram: {message}", err=True)
    raise typer.Exit(codes.USAGE)
