"""Render Markdown, code and JSON of models, tools and people as HTML that runs nothing and loads nothing.

Only the elements that are named here are made. Every text in them has its secrets hidden and its invisible characters
made visible, once as it was written and once more after Markdown was read, because an entity may mean either.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Final

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

#: Changes a text before it is escaped: hides its secrets, and makes what is invisible visible.
Shown = Callable[[str], str]

#: The kind of a word of code, by Pygments, and the word.
_Token = tuple[object, str]
#: Lists and quotes in each other, beyond which a text is shown as it was written: the parser would drop the rest.
_DEEPEST: Final = 20
#: The longest code whose words are colored. The time of a lexer's pattern may grow with its square, and nothing can
#: interrupt it.
_LONGEST: Final = 4_000
#: Seconds for the coloring of a page.
_SECONDS: Final = 0.25
#: Lines of code beyond which a block is folded, and of JSON from which an object or a list can be.
_LONG_CODE: Final = 40
_LONG_JSON: Final = 4
#: More lines of JSON are not folded, because a page has many such texts.
_MOST_LINES: Final = 3_000

_ADDRESS: Final = re.compile(r"(?:https?://|mailto:)[!-~]+", re.IGNORECASE)
_BLOCKS: Final = {
    "paragraph": "p",
    "bullet_list": "ul",
    "ordered_list": "ol",
    "list_item": "li",
    "blockquote": "blockquote",
    "table": "table",
    "thead": "thead",
    "tbody": "tbody",
    "tr": "tr",
    "th": "th",
    "td": "td",
    "em": "em",
    "strong": "strong",
    "s": "s",
}
_DIRECTION: Final = Markup(' dir="auto"')
_TABLE: Final = Markup('<div class="scroll" tabindex="0" role="group" aria-label="Table"{}><table class="table">')
#: The languages of code whose words are colored, by the names that models give them.
_LANGUAGES: Final = frozenset(
    (
        *("bash", "c", "cpp", "csharp", "css", "diff", "dockerfile", "go", "html", "ini", "java", "javascript", "js"),
        *("json", "jsx", "kotlin", "makefile", "php", "powershell", "python", "py", "ruby", "rust", "scala", "sh"),
        *("shell", "sql", "swift", "toml", "ts", "tsx", "typescript", "xml", "yaml", "yml"),
    )
)
#: The meaning of a color, by the beginnings of the names of Pygments' tokens.
_COLORS: Final = {
    "Token.Comment": "c",
    "Token.Keyword": "k",
    "Token.Literal.String": "s",
    "Token.Literal.Number": "m",
    "Token.Name.Function": "f",
    "Token.Name.Class": "f",
    "Token.Name.Tag": "k",
    "Token.Name.Attribute": "f",
    "Token.Name.Decorator": "f",
    "Token.Generic.Inserted": "i",
    "Token.Generic.Deleted": "d",
}
_TAGS: Final = {color: Markup('<span class="hl-{}">').format(color) for color in _COLORS.values()}
_END, _SUMMARY_END, _DETAILS_END = Markup("</span>"), Markup("</summary>"), Markup("</details>")
_LINE_COLORS: Final = (("name", "f"), ("text", "s"), ("number", "m"), ("word", "k"))
#: A line of JSON as `json.dumps(indent=2)` writes it: a name, and a value or what opens or closes one.
_LINE: Final = re.compile(
    r"""(?P<indent>\s*)(?P<name>"(?:[^"\\]|\\.)*":\s)?
    (?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<number>-?\d[\d.eE+-]*)|(?P<word>true|false|null)|(?P<mark>[\[\]{}]+))
    (?P<rest>,?)""",
    re.VERBOSE,
)


class ColoringBudget:
    """The rest of the time in which the code of a page is colored. The code after it is shown without colors."""

    def __init__(self, seconds: float = _SECONDS, clock: Callable[[], float] = time.perf_counter) -> None:
        self._seconds_left = seconds
        self._clock = clock

    def spend(self, tokens: "Iterable[_Token]") -> "Iterator[_Token]":
        """Yield the tokens while time is left."""
        if self._seconds_left <= 0:
            return
        before = self._clock()
        for token in tokens:
            now = self._clock()
            self._seconds_left, before = self._seconds_left - (now - before), now
            yield token
            if self._seconds_left <= 0:
                return


#: The budget of the page that is being rendered.
_BUDGET: Final[ContextVar[ColoringBudget | None]] = ContextVar("coloring_budget", default=None)


@contextmanager
def coloring(budget: ColoringBudget) -> Iterator[None]:
    """Color all code in the block within one budget. Code outside such a block has a budget of its own."""
    token = _BUDGET.set(budget)
    try:
        yield
    finally:
        _BUDGET.reset(token)


def markdown(text: str, shorten: Shown) -> Markup:
    """Render Markdown. A text with too deep lists or quotes is returned as it was written."""
    parser = _parser()
    tokens = parser.parse(shorten(text))
    if any(token.level >= _DEEPEST - 1 for token in tokens):
        return Markup('<p class="prose" dir="auto">{}</p>').format(shorten(text))
    return Markup("").join(_blocks(tokens, shorten))


def highlight(text: str, language: str) -> Markup:
    """Color the words of a text that is fit to be shown. JSON over several lines can be folded."""
    if language == "json":
        return _json(text)
    lexer = language.strip().lower()
    if lexer not in _LANGUAGES or len(text) > _LONGEST:
        return escape(text)
    # Slow to load, and not every page has code.
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]  # noqa: PLC0415 (it ships no types)

    colors = get_lexer_by_name(lexer, stripnl=False, ensurenl=False)
    text = text.replace("\r\n", "\n").replace("\r", "\n")  # as the lexer does
    pieces: list[str] = []
    length = 0
    budget = _BUDGET.get() or ColoringBudget()
    for color, group in groupby(budget.spend(colors.get_tokens(text)), key=lambda token: _color(str(token[0]))):
        words = "".join(words for _, words in group)
        length += len(words)
        pieces += _color_pieces(color, words)
    return Markup("").join([*pieces, text[length:]])


def _color(kind: str) -> str:
    return next((color for begins, color in _COLORS.items() if kind.startswith(begins)), "")


def _color_pieces(color: str, words: str) -> tuple[str, ...]:
    """The pieces of colored words: tags, and a text to be escaped."""
    return (_TAGS[color], words, _END) if color else (words,)


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # noqa: PLC0415 (as below)

    parser = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": _DEEPEST})
    return parser.enable(["table", "strikethrough"])


def _blocks(tokens: "Sequence[Token]", show: Shown) -> Iterator[Markup]:
    for token in tokens:
        kind, _, side = token.type.rpartition("_")
        # A block within another has its direction, so that a list has its marks on the side of its texts.
        direction = "" if token.level else _DIRECTION
        if token.type == "inline":
            yield from _inline(token.children or (), show)
        elif token.type in ("fence", "code_block"):
            yield _code(token.content, token.info.split(maxsplit=1)[0] if token.info.strip() else "", show)
        elif token.type == "hr":
            yield Markup("<hr>")
        elif kind == "heading" and side in ("open", "close"):
            # It is not a heading of the page, whose outline is its own.
            open_tag = Markup('<p class="md-{}"{}>').format(token.tag, direction)
            yield open_tag if side == "open" else _tag("p", side)
        elif kind == "table":
            yield _TABLE.format(direction) if side == "open" else Markup("</table></div>")
        elif kind == "ordered_list" and side == "open":
            yield Markup('<ol start="{}"{}>').format(int(token.attrGet("start") or 1), direction)
        elif kind in _BLOCKS and not token.hidden:
            yield _tag(_BLOCKS[kind], side, direction)
        elif not token.hidden:
            yield escape(show(token.content))


def _inline(tokens: "Sequence[Token]", show: Shown) -> Iterator[Markup]:
    links: list[bool] = []
    for token in tokens:
        kind, _, side = token.type.rpartition("_")
        if token.type in ("softbreak", "hardbreak"):
            yield Markup("<br>\n")
        elif token.type == "code_inline":
            yield Markup("<code>{}</code>").format(show(token.content))
        elif token.type == "image":
            # It is not loaded: its server would learn who reads the page.
            yield from _link(str(token.attrGet("src") or ""), f"[{show(token.content) or 'image'}]", show)
        elif kind == "link" and side == "open":
            address = show(str(token.attrGet("href") or ""))
            links.append(_ADDRESS.fullmatch(address) is not None)
            if links[-1]:
                yield _open_link(address)
        elif kind == "link" and side == "close":
            if links.pop():
                yield Markup("</a>")
        elif kind in _BLOCKS:
            yield _tag(_BLOCKS[kind], side)
        else:
            yield escape(show(token.content))


def _link(address: str, words: str, show: Shown) -> Iterator[Markup]:
    address = show(address)
    good = _ADDRESS.fullmatch(address) is not None
    yield Markup("{}{}</a>").format(_open_link(address), words) if good else escape(words)


def _open_link(address: str) -> Markup:
    return Markup('<a href="{0}" title="{0}" rel="noopener noreferrer nofollow" hx-boost="false">').format(address)


def _tag(name: str, side: str, direction: str = "") -> Markup:
    return Markup("</{}>").format(name) if side == "close" else Markup("<{}{}>").format(name, direction)


def _code(text: str, language: str, show: Shown) -> Markup:
    text = show(text)
    words = highlight(text, language)
    label, lines = language[:30] or "code", text.count("\n")
    pre = Markup('<pre tabindex="0" role="group" aria-label="{}"><code>{}</code></pre>').format(show(label), words)
    if lines <= _LONG_CODE:
        return Markup('<div class="code">{}</div>').format(pre)
    return Markup('<details class="fold code"><summary>{}, {} lines</summary>{}</details>').format(
        show(label), lines, pre
    )


def _json(text: str) -> Markup:
    """Color JSON line by line, complete, or only the beginning of a text."""
    lines = text.split("\n")
    ends = _ends(lines) if len(lines) <= _MOST_LINES else {}
    closing = set(ends.values())
    # Plain pieces are escaped once, when they are joined: that takes a fifth of the time of formats.
    parts: list[str] = []
    for number, line in enumerate(lines):
        if number in ends:
            parts.append(
                Markup('<details class="json" open><summary data-lines="{}">').format(ends[number] - number - 1)
            )
        parts += _json_line(line)
        parts.append("\n" if number < len(lines) - 1 else "")
        if number in ends:
            parts.append(_SUMMARY_END)
        elif number in closing:
            parts.append(_DETAILS_END)
    return Markup("").join(parts)


def _ends(lines: Sequence[str]) -> dict[int, int]:
    """The lines that open an object or a list within another, each with the line that closes it."""
    open_lines: list[int] = []
    ends: dict[int, int] = {}
    for number, line in enumerate(lines):
        if line.endswith(("{", "[")):
            open_lines.append(number)
        elif open_lines and line.lstrip().startswith(("}", "]")):
            first = open_lines.pop()
            if open_lines and number - first > _LONG_JSON:
                ends[first] = number
    return ends


def _json_line(line: str) -> Iterator[str]:
    """The pieces of a line: tags, and texts to be escaped."""
    match = _LINE.fullmatch(line)
    if match is None:
        yield line
        return
    yield match["indent"]
    for group, color in _LINE_COLORS:
        if match[group]:
            yield from _color_pieces(color, match[group])
    yield match["mark"] or ""
    yield match["rest"]
