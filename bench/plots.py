"""The plots: CPU by place in a turn and in a session, and throughput and memory of turns in flight.

The palette is that of Okabe and Ito, which is safe for color blindness; each line is named at its end.
"""

# pyright: reportMissingImports=false
# matplotlib comes with the extra `bench`, which checking the types does not need.

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log10
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.labels import spread
from bench.results import Measured, Results
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: By how a subject's name begins. Black and blue, the strongest, are the bare loop's and ours.
COLOURS: Final = {
    "bare loop": "#000000",
    "Turnwright": "#0072B2",
    "langgraph": "#009E73",
    "pydantic-ai": "#D55E00",
    "openai-agents": "#E69F00",
    "smolagents": "#CC79A7",
    "strands": "#56B4E9",
    "autogen": "#7A6A00",
    "adk": "#882255",
    "agent-framework": "#44AA99",
}
OTHER: Final = "#777777"
#: Of the subjects with one color, the first has the first of these dashes, and so on.
STYLES: Final = (("-", "o"), ("--", "s"), (":", "^"), ("-.", "D"), ("-", "v"), ("--", "P"))
OURS: Final = ("bare loop", "Turnwright")
FLIGHTS: Final = ("10", "100", "1000", "10000")
LABEL: Final = 8.0  # points, and the height of a label with its space
HEIGHT: Final = 6.5  # inches
DPI: Final = 144


@dataclass(frozen=True, slots=True)
class Line:
    """One subject's line."""

    name: str
    xs: list[float]
    ys: list[float]


def draw(results: Results, folder: Path) -> None:
    """Write `growth.png`, `sessions.png`, `in_flight.png` and `durable.png` into the folder."""
    _growth(results, folder / "growth.png")
    _sessions(results, folder / "sessions.png")
    _in_flight(results, folder / "in_flight.png")
    _durable(results, folder / "durable.png")


def _sessions(results: Results, path: Path) -> None:
    lines = [
        Line(subject["name"], [float(place) for place in spent], [turn["ratio"] for turn in spent.values()])
        for subject in results["subjects"]
        if (spent := subject.get("session"))
    ]
    figure = Figure(figsize=(10, HEIGHT), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    axes.set_title("CPU of a turn by its place in a session of 500 turns", loc="left", fontsize=12)
    axes.set_xlabel("turn of the session")
    axes.set_ylabel("CPU of a turn of one step, over a step of the bare loop")
    axes.set_xlim(0, 505)
    _lines(axes, lines, results, _count, every=1, gap=0.025)
    figure.savefig(path)


def _durable(results: Results, path: Path) -> None:
    figure = Figure(figsize=(10, HEIGHT), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    axes.set_title("Durable steps a CPU second, by turns in flight", loc="left", fontsize=12)
    axes.set_ylabel("steps a CPU second")
    subjects = [subject for subject in results["subjects"] if subject["durable"]]
    _by_flights(axes, [_rates(subject) for subject in subjects], results, _count, gap=0.04)
    figure.savefig(path)


def _growth(results: Results, path: Path) -> None:
    lines = [
        Line(subject["name"], [10 * at + 5.0 for at in range(len(growth["by_ten_us"]))], growth["by_ten_us"])
        for subject in results["subjects"]
        if (growth := subject.get("growth")) is not None
    ]
    figure = Figure(figsize=(10, HEIGHT), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    axes.set_title("CPU of a step by its place in a turn of 200 steps", loc="left", fontsize=12)
    axes.set_xlabel("step")
    axes.set_ylabel("CPU of a step, median, each point ten steps")
    axes.set_xlim(0, 200)
    axes.set_xticks(range(0, 201, 50))
    _lines(axes, lines, results, _time, every=4, gap=0.025)
    figure.savefig(path)


def _in_flight(results: Results, path: Path) -> None:
    figure = Figure(figsize=(14, HEIGHT), dpi=DPI, layout="constrained")
    left_axes, right_axes = figure.subplots(1, 2)
    left_axes.set_title("Steps a CPU second", loc="left", fontsize=12)
    right_axes.set_title("Resident memory of a turn held in its sixth step of ten", loc="left", fontsize=12)
    sizes: list[Line] = []
    for subject in results["subjects"]:
        flights = [subject["flight"][turns] for turns in FLIGHTS if turns in subject["flight"]]
        sizes_by_turns = [(float(f["turns"]), f["kib_per_turn"]) for f in flights if (f["kib_per_turn"] or 0) > 0]
        sizes.append(
            Line(subject["name"], [x for x, _ in sizes_by_turns], [y for _, y in sizes_by_turns if y is not None])
        )
    _by_flights(left_axes, [_rates(subject) for subject in results["subjects"]], results, _count, gap=0.055)
    _by_flights(right_axes, sizes, results, _size, gap=0.055)
    figure.savefig(path)


def _rates(subject: Measured) -> Line:
    flights = [subject["flight"][turns] for turns in FLIGHTS if turns in subject["flight"]]
    return Line(
        subject["name"], [flight["turns"] for flight in flights], [flight["steps_per_cpu_s"] for flight in flights]
    )


def _by_flights(
    axes: "Axes", lines: Sequence[Line], results: Results, words: Callable[[float], str], *, gap: float
) -> None:
    axes.set_xlabel("turns in flight")
    axes.set_xscale("log")
    axes.set_xlim(8, 12_500)
    axes.set_xticks([float(turns) for turns in FLIGHTS], [f"{int(turns):,}" for turns in FLIGHTS])
    axes.xaxis.set_minor_formatter(NullFormatter())
    _lines(axes, [line for line in lines if line.xs], results, words, every=1, gap=gap)


def _lines(
    axes: "Axes", lines: Sequence[Line], results: Results, words: Callable[[float], str], *, every: int, gap: float
) -> None:
    """Draw the lines on a logarithmic axis, and name each at its end."""
    styles = _styles([subject["name"] for subject in results["subjects"]])
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: words(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    for line in lines:
        colour, dashes, marker = styles[line.name]
        width = 2.2 if line.name.startswith(OURS) else 1.3
        axes.plot(
            line.xs, line.ys, dashes, color=colour, marker=marker, markersize=4.5, markevery=every, linewidth=width
        )
    _names(axes, lines, styles, gap)


def _names(axes: "Axes", lines: Sequence[Line], styles: dict[str, tuple[str, str, str]], gap: float) -> None:
    """Name the lines to the right of the axes, each at the height of its end or as near as there is room.

    `gap` is how far from the axes their markers are, in widths of the axes.
    """
    if not lines:
        return
    low, high = (log10(bound) for bound in axes.get_ylim())
    points = HEIGHT * 72 * 0.82  # less what titles and ticks take
    room = LABEL * 1.35 / points * (high - low)
    ends = sorted(lines, key=lambda line: line.ys[-1])
    for line, at in zip(ends, spread([log10(line.ys[-1]) for line in ends], room, low, high), strict=True):
        colour, _, marker = styles[line.name]
        height = (at - low) / (high - low)
        leader = {"arrowstyle": "-", "color": colour, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
        axes.annotate(
            "",
            xy=(line.xs[-1], line.ys[-1]),
            xytext=(1 + gap, height),
            textcoords="axes fraction",
            arrowprops=leader,
        )
        axes.plot([1 + gap], [height], marker, color=colour, markersize=4, transform=axes.transAxes, clip_on=False)
        axes.text(
            1 + 1.8 * gap,
            height,
            line.name,
            fontsize=LABEL,
            fontweight="bold" if line.name.startswith(OURS) else "normal",
            color=colour,
            va="center",
            transform=axes.transAxes,
        )


def _styles(names: Sequence[str]) -> dict[str, tuple[str, str, str]]:
    """The color, dashes and marker of each subject."""
    drawn: dict[str, int] = {}
    styles: dict[str, tuple[str, str, str]] = {}
    for name in names:
        colour = next((colour for begins, colour in COLOURS.items() if name.startswith(begins)), OTHER)
        dashes, marker = STYLES[drawn.get(colour, 0) % len(STYLES)]
        drawn[colour] = drawn.get(colour, 0) + 1
        styles[name] = (colour, dashes, marker)
    return styles


def _time(us: float) -> str:
    return f"{us / 1e6:g} s" if us >= 1e6 else f"{us / 1e3:g} ms" if us >= 1e3 else f"{us:g} \N{GREEK SMALL LETTER MU}s"  # noqa: PLR2004


def _count(value: float) -> str:
    return f"{value:,.6g}"


def _size(kib: float) -> str:
    return f"{kib / 1024:,.6g} MiB" if kib >= 1024 else f"{kib:g} KiB"  # noqa: PLR2004
