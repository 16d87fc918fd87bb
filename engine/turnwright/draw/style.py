"""How the picture looks in DOT: colours and lines, of the plain picture and of each overlay.

Whoever prints it without colour still tells the kinds of states by their borders, what was taken by the width of its
arrows, and what was never taken by its dashes and its 0.
"""

from typing import Final, NamedTuple

from turnwright_states.reasons import EndReason

from .layout_hints import LayoutHints
from .model import Arrow, Node, NodeKind, Picture, TextLine
from .overlay import Overlay, OverlayKind, compact_count, level, level_words

PAPER: Final = "#f8fafc"
NAME, INK, DIM, RULE = "#111827", "#1f2937", "#5b6678", "#dbe2ea"
_REASON: Final = "#9a3412"
_LINE, QUIET, _LOOP = "#475569", "#8a97a8", "#1d4ed8"
#: What an overlay sets back: legible, and not what the eye meets first.
_FADED, _FADED_LINE = "#6f7d91", "#c3cdd9"
_TAKEN_ROW, _TAKEN, _HERE = "#e4eefd", "#1d4ed8", "#c2410c"
_NEVER, _NEVER_ROW = "#b91c1c", "#fef0f0"
#: Ground and ink of each shade: one hue from light to dark, told apart in grey too; the first is for never.
_RAMP: Final = (
    (_NEVER, "#ffffff"),
    ("#d9e8f7", INK),
    ("#aacdec", INK),
    ("#6ea8dc", NAME),
    ("#2b6cb0", "#ffffff"),
    ("#123a72", "#ffffff"),
)

_KINDS: Final = {
    NodeKind.TRANSIENT: 'style="rounded,filled,dashed" fillcolor="#ffffff" color="#64748b"',
    NodeKind.LIVE: 'style="rounded,filled" fillcolor="#dbeafe" color="#2563eb"',
    NodeKind.RESTING: 'style="rounded,filled" fillcolor="#fef3c7" color="#b45309" penwidth=1.6',
    NodeKind.FINAL: 'style="rounded,filled" fillcolor="#e5e7eb" color="#374151" peripheries=2',
}
#: The same looks for the cells of the legend, whose language has other words for them.
SWATCHES: Final = {
    NodeKind.TRANSIENT: 'BORDER="1" STYLE="ROUNDED,DASHED" BGCOLOR="#ffffff" COLOR="#64748b"',
    NodeKind.LIVE: 'BORDER="1" STYLE="ROUNDED" BGCOLOR="#dbeafe" COLOR="#2563eb"',
    NodeKind.RESTING: 'BORDER="1" STYLE="ROUNDED" BGCOLOR="#fef3c7" COLOR="#b45309"',
    NodeKind.FINAL: 'BORDER="2" STYLE="ROUNDED" BGCOLOR="#e5e7eb" COLOR="#374151"',
}
_READING: Final = (
    "A line on a card is a row of the chart: number, event [guard] / reason. An event is not said twice on a card.",
    "The rows of a state are tried in the order of their numbers.",
)


class CountBadge(NamedTuple):
    """A count: its text, the ground it stands on, and its ink. An empty ground shows what is behind it."""

    text: str
    ground: str = ""
    ink: str = INK


class RowLook(NamedTuple):
    """How a row stands on its card: the ink of its words and of its reason, its ground, and its count.

    `mark` is None in a picture without counts. `loud`: whether its event is bold.
    """

    ink: str = INK
    reason: str = _REASON
    ground: str = ""
    loud: bool = True
    mark: CountBadge | None = None


class NameLook(NamedTuple):
    """How the text of a state looks.

    `ink` is that of its name, `reasons` that of the reasons under it, and `accent` that of the `reason` that stands
    out, and of what is written `below` the name.
    """

    ink: str = NAME
    reasons: str = _REASON
    accent: str = _HERE
    below: str = ""
    reason: EndReason | None = None


class Style:
    """The looks of the plain picture; those of an overlay differ where they say so."""

    #: Whether each card has a column for counts.
    counts: bool = False
    #: What stands above the picture, an item a paragraph.
    caption: tuple[str, ...] = ()
    #: What the legend says of counts: a sample, and what it means if the sample does not say it.
    keys: tuple[tuple[CountBadge, str], ...] = ()
    #: How to read a card, line by line.
    reading: tuple[str, ...] = (_READING[0], f"{_READING[1]} The loop of a step is drawn bold.")
    #: The attributes of the arrow into the initial state.
    start: str = f'color="{_LINE}"'

    def __init__(self, picture: Picture, hints: LayoutHints) -> None:
        self.picture = picture
        self._hints = hints

    def node(self, node: Node) -> str:
        """The attributes of a state."""
        return _KINDS[node.kind]

    def name(self, node: Node) -> NameLook:
        """The looks of the text of a state."""
        del node
        return NameLook()

    def edge(self, arrow: Arrow) -> str:
        """The attributes of both halves of an arrow."""
        if arrow.stops:
            return f'color="{QUIET}"'
        return f'color="{_LOOP}" penwidth=2' if self._hints.looping((arrow.source, arrow.dest)) else f'color="{_LINE}"'

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
    """One recorded turn: its way stands out, the rest is set back, and the state where it stands is framed."""

    start = f'color="{_TAKEN}" penwidth=2.2'
    keys = (
        (CountBadge("2x", _TAKEN, "#ffffff"), "a row that the turn took, and how often"),
        (CountBadge("grey", PAPER, _FADED), "what it did not take"),
        (CountBadge("framed", PAPER, _HERE), "where it stands"),
    )

    def node(self, node: Node) -> str:
        looks = super().node(node)
        if node.state is self._overlay.stands:
            return f'{looks} color="{_HERE}" penwidth=3'
        return looks if node.state in self._reached else f'{looks} fillcolor="#ffffff" color="{_FADED_LINE}"'

    def name(self, node: Node) -> NameLook:
        if node.state is self._overlay.stands:
            return NameLook(reasons=_FADED, below=self._overlay.here, reason=self._overlay.reason)
        return NameLook() if node.state in self._reached else NameLook(_FADED, _FADED)

    def edge(self, arrow: Arrow) -> str:
        return f'color="{_TAKEN}" penwidth=2.2' if self._overlay.on(arrow) else f'color="{_FADED_LINE}"'

    def row(self, arrow: Arrow, line: TextLine) -> RowLook:
        del arrow
        if count := self._overlay.of(line):
            return RowLook(ground=_TAKEN_ROW, mark=CountBadge(f"{compact_count(count)}x", _TAKEN, "#ffffff"))
        return RowLook(_FADED, _FADED, loud=False, mark=CountBadge(""))


class _CoverageStyle(_Counted):
    """A run of tests: each row has the shade of its count, and what was never taken is red."""

    keys = tuple((CountBadge(words, *looks), "") for words, looks in zip(level_words(), _RAMP, strict=True))

    def node(self, node: Node) -> str:
        looks = super().node(node)
        return looks if node.state in self._reached else f'{looks} fillcolor="{_NEVER_ROW}" color="{_NEVER}"'

    def name(self, node: Node) -> NameLook:
        return NameLook() if node.state in self._reached else NameLook(_NEVER, _NEVER)

    def edge(self, arrow: Arrow) -> str:
        if count := self._overlay.on(arrow):
            return f'color="{_LINE}" penwidth={0.75 + 0.25 * level(count):g}'
        return f'color="{_NEVER}" style=dashed penwidth=1.2'

    def row(self, arrow: Arrow, line: TextLine) -> RowLook:
        count = self._overlay.of(line)
        mark = CountBadge(compact_count(count), *_RAMP[level(count)])
        if count:
            return super().row(arrow, line)._replace(mark=mark)
        return RowLook(_NEVER, _NEVER, _NEVER_ROW, mark=mark)


def style_of(picture: Picture, hints: LayoutHints, overlay: Overlay | None) -> Style:
    """The looks of a picture with this overlay, or with none."""
    if overlay is None:
        return Style(picture, hints)
    kind = _TurnStyle if overlay.kind is OverlayKind.TURN else _CoverageStyle
    return kind(picture, hints, overlay)
