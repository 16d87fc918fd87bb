"""The picture in SVG: drawn by Graphviz from the DOT text, then adapted to a page.

Two versions of Graphviz give different layouts, so a committed SVG is never compared with a fresh one. It has two
digests instead. The digest of its DOT text shows whether it is stale, and the digest of its own text shows whether it
was edited by hand. Both can be checked without Graphviz.
"""

import hashlib
import re
import shutil
import subprocess
from html import escape
from typing import Final

from turnwright.errors import ConfigError

from .dot import FONT
from .overlay import Overlay
from .style import PAPER

#: The default width in pixels: that of a page on a code host.
_WIDTH: Final = 900
#: Graphviz needs a tenth of a second.
_SECONDS: Final = 60.0

_FONTS: Final = f"{FONT}, Helvetica, Liberation Sans, sans-serif"
_TITLE: Final = "One turn of an agent as a state machine"
_DESCRIPTION: Final = (
    "The states of a turn, and the arrows between them with their events, guards and reasons. "
    "The page turn.md holds the same as pictures in Mermaid and as tables."
)
_OPENED: Final = re.compile(r'<svg\b[^>]* ?viewBox="[\d.]+ [\d.]+ ([\d.]+) ([\d.]+)"[^>]*>')
_RUN: Final = re.compile(r'<text (text-anchor="\w+" x="[^"]*" y="[^"]*") ([^>]*)>([^<]*)</text>')
#: Each piece of a line but the last ends in a non-breaking space.
_SPACE: Final = re.compile(r"\xa0|&#160;")
_RUNS: Final = re.compile(rf"(?:<text [^>]*>[^<]*(?:{_SPACE.pattern})</text>\n)+<text [^>]*>[^<]*</text>")
_MADE_FROM: Final = re.compile(r"<!-- Drawn from DOT\. dot sha256:([0-9a-f]{64}) svg sha256:([0-9a-f]{64}) -->\n")


def to_svg(dot: str, overlay: Overlay | None = None) -> str:
    """Return the SVG of a DOT text.

    `overlay` is the one that the text shows, if any: a screen reader reads its caption. Without one the picture begins
    with its digests, which `is_fresh` reads. Raises `ConfigError` when Graphviz's `dot` is not on PATH, or fails.
    """
    program = shutil.which("dot")
    if program is None:
        raise ConfigError(
            "an SVG is drawn by Graphviz, and its `dot` is not on PATH: install it (`apt-get install graphviz`, "
            "`brew install graphviz`); the formats mermaid, dot and table need nothing"
        )
    try:
        process = subprocess.run(  # noqa: S603 (the program that PATH names, with constant arguments)
            [program, "-Tsvg"], input=dot, capture_output=True, encoding="utf-8", timeout=_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        message = getattr(error, "stderr", None) or str(error)
        raise ConfigError(f"Graphviz could not draw the picture: {program}: {message.strip()}") from None
    if overlay is not None:
        return _finish(process.stdout, f"{_TITLE}: {overlay.caption[0]}", " ".join(overlay.caption[1:]) or _DESCRIPTION)
    text = _finish(process.stdout, _TITLE, _DESCRIPTION)
    return f"<!-- Drawn from DOT. dot sha256:{_digest(dot)} svg sha256:{_digest(text)} -->\n{text}"


def is_fresh(svg: str, dot: str) -> bool:
    """Whether an SVG was drawn from this DOT text, and has not been changed since."""
    match = _MADE_FROM.match(svg)
    return match is not None and match.groups() == (_digest(dot), _digest(svg[match.end() :]))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _finish(drawing: str, title: str, description: str) -> str:
    """Return Graphviz's SVG without its version-specific parts, and with the title and the size that a page needs."""
    opening = _OPENED.search(drawing)
    if opening is None:
        raise ConfigError("Graphviz drew an SVG of an unknown form: it has no viewBox")
    width, height = map(float, opening.groups())
    head = (
        '<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="turn-title turn-description" '
        f'font-family="{_FONTS}" width="{_WIDTH}" height="{_WIDTH * height / width:.0f}" '
        f'viewBox="0 0 {width:g} {height:g}">\n'
        f'<title id="turn-title">{escape(title)}</title>\n<desc id="turn-description">{escape(description)}</desc>\n'
        f'<rect width="100%" height="100%" rx="12" fill="{PAPER}"/>\n'
    )
    body = re.sub(r"<!--.*?-->\n?", "", drawing[opening.end() :], flags=re.DOTALL).lstrip()
    # Rounded corners look right on a dark page too.
    body = re.sub(rf'<polygon fill="{PAPER}"[^>]*/>\n', "", body, count=1)
    # The root has the font, no spaces need keeping, and SVG 1.1 has no transparent stroke.
    for attribute in (f' font-family="{FONT}"', ' xml:space="preserve"', ' stroke="transparent"'):
        body = body.replace(attribute, "")
    return head + _RUNS.sub(_join_pieces, body)


def _join_pieces(runs: re.Match[str]) -> str:
    """Join the pieces of one line, because Graphviz places each by the widths of its own font."""
    pieces = _RUN.findall(_SPACE.sub(" ", runs[0]))
    spans = "".join(f"<tspan {style}>{text}</tspan>" for _, style, text in pieces)
    return f"<text {pieces[0][0]}>{spans}</text>"
