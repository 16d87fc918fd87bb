"""The looks of the picture: one table for the kinds of states, and the colors and lines of DOT for each overlay.

A print without color keeps the difference: kinds of states have different borders, arrows that were taken are wider,
and what was never taken has dashes and a 0.
"""

from typing import Final, NamedTuple

from turnwright_states.reasons import EndReason

from .layout_hints import LayoutHints
from .model import Arrow, Node, NodeKind, Picture, TextLine
from .overlay import Overlay, OverlayKind, compact_count, level, level_words

PAPER: Final = "#f8fafc"
NAME, INK, DIM, RULE = "#111827", "#1f2937", "#5b6678", "#dbe2ea"
_REASON: Final = "#9a3412"
LINE, QUIET, LOOP = "#475569", "#8a97a8", "#1d4ed8"
#: For the parts of an overlay that are less important: still legible.
FADED, FADED_LINE = "#6f7d91", "#c3cdd9"
_TAKEN_ROW, _TAKEN, HERE = "#e4eefd", "#1d4ed8", "#c2410c"
NEVER, NEVER_ROW = "#b91c1c", "#fef0f0"
#: Ground and ink of each shade: one hue from light to dark, which also differ in gray. The first is for never.
_RAMP: Final = (
    (NEVER, "#ffffff"),
    ("#d9e8f7", INK),
    ("#aacdec", INK),
    ("#6ea8dc", NAME),
    ("#2b6cb0", "#ffffff"),
    ("#123a72", "#ffffff"),
)

_READING: Final = (
    "A line on a card is a row of the chart: number, event [guard] / reason. An event is not said twice on a card.",
    "The rows of a state are tried in the order of their numbers.",
)


class NodeLook(NamedTuple):
    """The look of one kind of state, and its words in each format."""

    fill: str
    line: str
    dashed: bool = False
    thick: bool = False
    double: bool = False

    @property
    def dot(self) -> str:
        """The attributes of a node in DOT."""
        border = (" penwidth=1.6" if self.thick else "") + (" peripheries=2" if self.double else "")
        style = f"rounded,filled{',dashed' if self.dashed else ''}"
        return f'style="{style}" fillcolor="{self.fill}" color="{self.line}"{border}'

    @property
    def swatch(self) -> str:
        """The attributes of a legend's cell in Graphviz's HTML."""
        style = f"ROUNDED{',DASHED' if self.dashed else ''}"
        return f'BORDER="{1 + self.double}" STYLE="{style}" BGCOLOR="{self.fill}" COLOR="{self.line}"'

    @property
    def mermaid(self) -> str:
        """The properties of a class in Mermaid."""
        border = (",stroke-dasharray:4" if self.dashed else "") + (",stroke-width:3px" if self.double else "")
        return f"fill:{self.fill},stroke:{self.line},color:{NAME}{border}"


LOOKS: Final = {
    NodeKind.TRANSIENT: NodeLook("#ffffff", "#64748b", dashed=True),
    NodeKind.LIVE: NodeLook("#dbeafe", "#2563eb"),
    NodeKind.RESTING: NodeLook("#fef3c7", "#b45309", thick=True),
    NodeKind.FINAL: NodeLook("#e5e7eb", "#374151", double=True),
}


class CountBadge(NamedTuple):
    """A count: its text, its background, and its ink. An empty background is transparent."""

    text: str
    ground: str = ""
    ink: str = INK


class RowLook(NamedTuple):
    """The look of a row on its card: the ink of its words and of its reason, its background, and its count.

    `mark` is None in a picture without counts. `loud`: whether its event is bold.
    """

    ink: str = INK
    reason: str = _REASON
    ground: str = ""
    loud: bool = True
    mark: CountBadge | None = None


class NameLook(NamedTuple):
    """The look of a state's text.

    `ink` colors its name and `reasons` the reasons under it. `accent` colors the emphasized `reason`, and the text
    `below` the name.
    """

    ink: str = NAME
    reasons: str = _REASON
    accent: str = HERE
    below: str = ""
    reason: EndReason | None = None


class Style:
    """The looks of the plain picture. A subclass overrides what its overlay changes."""

    #: Whether each card has a column for counts.
    counts: bool = False
    #: The text above the picture, one paragraph an item.
    caption: tuple[str, ...] = ()
    #: The legend of counts: samples, each with its meaning unless the sample states it.
    keys: tuple[tuple[CountBadge, str], ...] = ()
    #: The instructions for reading a card, line by line.
    reading: tuple[str, ...] = (_READING[0], f"{_READING[1]} The loop of a step is drawn bold.")
    #: The attributes of the arrow into the initial state.
    start: str = f'color="{LINE}"'

    def __init__(self, picture: Picture, hints: LayoutHints) -> None:
        self.picture = picture
        self._hints = hints

    def node(self, node: Node) -> str:
        """The attributes of a state."""
        return LOOKS[node.kind].dot

    def name(self, node: Node) -> NameLook:
        """The looks of the text of a state."""
        del node
        return NameLook()

    def edge(self, arrow: Arrow) -> str:
        """The attributes of both halves of an arrow."""
        if arrow.stops:
            return f'color="{QUIET}"'
        return f'color="{LOOP}" penwidth=2' if self._hints.looping((arrow.source, arrow.dest)) else f'color="{LINE}"'

    def row(self, arrow: Arrow, line: TextLine) -> RowLook:
        """The looks of a row."""
        del line
        return RowLook(DIM, loud=False) if arrow.stops else RowLook()


class _Counted(Style):
    """A picture with an overlay."""

    counts = True
    reading = (" ".join(_READING),)

    def __init__(self, picture: Picture, hints: LayoutHints, overlay: Overlay) -> None:
        super().__init__(picture, hints)
        self.caption = overlay.caption
        self._overlay = overlay
        self._reached = overlay.reached(picture)


class _TurnStyle(_Counted):
    """One recorded turn: its path is emphasized, the rest is faded, and its current state is framed."""

    start = f'color="{_TAKEN}" penwidth=2.2'
    keys = (
        (CountBadge("2x", _TAKEN, "#ffffff"), "a row that the turn took, and how often"),
        (CountBadge("gray", PAPER, FADED), "a row that it did not take"),
        (CountBadge("framed", PAPER, HERE), "its current state"),
    )

    def node(self, node: Node) -> str:
        looks = super().node(node)
        if node.state is self._overlay.stands:
            return f'{looks} color="{HERE}" penwidth=3'
        return looks if node.state in self._reached else f'{looks} fillcolor="#ffffff" color="{FADED_LINE}"'

    def name(self, node: Node) -> NameLook:
        if node.state is self._overlay.stands:
            return NameLook(reasons=FADED, below=self._overlay.here, reason=self._overlay.reason)
        return NameLook() if node.state in self._reached else NameLook(FADED, FADED)

    def edge(self, arrow: Arrow) -> str:
        return f'color="{_TAKEN}" penwidth=2.2' if self._overlay.on(arrow) else f'color="{FADED_LINE}"'

    def row(self, arrow: Arrow, line: TextLine) -> RowLook:
        del arrow
        if count := self._overlay.of(line):
            return RowLook(ground=_TAKEN_ROW, mark=CountBadge(f"{compact_count(count)}x", _TAKEN, "#ffffff"))
        return RowLook(FADED, FADED, loud=False, mark=CountBadge(""))


class _CoverageStyle(_Counted):
    """A run of tests: each row has the shade of its count, and rows that were never taken are red."""

    keys = tuple((CountBadge(words, *looks), "") for words, looks in zip(level_words(), _RAMP, strict=True))

    def node(self, node: Node) -> str:
        looks = super().node(node)
        return looks if node.state in self._reached else f'{looks} fillcolor="{NEVER_ROW}" color="{NEVER}"'

    def name(self, node: Node) -> NameLook:
        return NameLook() if node.state in self._reached else NameLook(NEVER, NEVER)

    def edge(self, arrow: Arrow) -> str:
        if count := self._overlay.on(arrow):
            return f'color="{LINE}" penwidth={0.75 + 0.25 * level(count):g}'
        return f'color="{NEVER}" style=dashed penwidth=1.2'

    def row(self, arrow: Arrow, line: TextLine) -> RowLook:
        count = self._overlay.of(line)
        mark = CountBadge(compact_count(count), *_RAMP[level(count)])
        if count:
            return super().row(arrow, line)._replace(mark=mark)
        return RowLook(NEVER, NEVER, NEVER_ROW, mark=mark)


def style_of(picture: Picture, hints: LayoutHints, overlay: Overlay | None) -> Style:
    """Return the looks of a picture with this overlay, or without one."""
    if overlay is None:
        return Style(picture, hints)
    kind = _TurnStyle if overlay.kind is OverlayKind.TURN else _CoverageStyle
    return kind(picture, hints, overlay)
