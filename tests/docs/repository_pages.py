"""The Markdown files of the repository, their links, anchors and blocks of code."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
#: Where Markdown is: the rest is what tools left behind, or what programs read.
FOLDERS: Final = (".github", "bench", "diagrams", "docs", "examples")
PAGES: Final = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])

_FENCE: Final = re.compile(r"^ *(`{3,}|~{3,})(.*)$")
_LINK: Final = re.compile(r"(?<=\]\()([^)\s]+)(?=[)\s])")
_ANCHOR: Final = re.compile(r'^<a id="([^"]+)"></a>$', re.MULTILINE)
_HEADING: Final = re.compile(r"^#{1,6} +(.+?)(?: +\{[^}]*\})?\s*$", re.MULTILINE)


class Block(NamedTuple):
    """A block of code: its language, its text, the comments right above it, and its place in the page.

    `title` is the name of the file that it is, if it is one. `line` is the number of its first line, from 1.
    """

    language: str
    text: str
    comments: tuple[str, ...]
    title: str
    line: int


def name_of(page: Path) -> str:
    """Return the page's name as the name of a test has it."""
    return str(page.relative_to(ROOT))


def blocks(text: str) -> Iterator[Block]:
    """The blocks of code of a page."""
    above: list[str] = []
    inside: list[str] = []
    fence = language = title = ""
    begins = 0
    for number, line in enumerate(text.splitlines(), start=1):
        match = _FENCE.match(line)
        if fence:
            if match and match[1].startswith(fence) and not match[2].strip():
                yield Block(language, "\n".join(inside) + "\n", tuple(above), title, begins)
                fence, above = "", []
            else:
                inside.append(line)
        elif match:
            fence, language, inside = match[1], (match[2].split() or [""])[0], []
            title, begins = _title(match[2], above), number + 1
        elif line.startswith("<!--") and line.endswith("-->"):
            above.append(line[4:-3].strip())
        else:
            above = []


def _title(info: str, above: list[str]) -> str:
    """The file that a block is, as its fence or a comment above it says."""
    title = re.search(r'title="(.+?)"', info) or re.search(r"^file: (\S+)$", "\n".join(above), re.MULTILINE)
    return title[1] if title else ""


def prose(text: str) -> str:
    """The page without its blocks of code."""
    lines: list[str] = []
    fence = ""
    for line in text.splitlines():
        match = _FENCE.match(line)
        if fence:
            fence = "" if match and match[1].startswith(fence) and not match[2].strip() else fence
        elif match:
            fence = match[1]
        else:
            lines.append(line)
    return "\n".join(lines)


def links(text: str) -> list[str]:
    """Return the targets of the page's links, without those on the web."""
    return [link for link in _LINK.findall(prose(text)) if not re.match(r"[a-z]+:", link)]


def anchors(text: str) -> set[str]:
    """The anchors of a page: those that it sets, and those of its headings as code hosts and the site make them."""
    counts: dict[str, int] = {}
    slugs = set(_ANCHOR.findall(prose(text)))
    for heading in _HEADING.findall(prose(text)):
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        counts[slug] = counts.get(slug, -1) + 1
        slugs.add(slug if not counts[slug] else f"{slug}-{counts[slug]}")
    return slugs
