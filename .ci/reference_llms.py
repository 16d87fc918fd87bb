"""`llms.txt`: the pages of the site with a line each, for programs that read (llmstxt.org)."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parent.parent
DOCS: Final = ROOT / "docs"
HEAD: Final = """\
# Turnwright

> Turnwright runs one turn of an LLM agent (stream a reply, run its tools, repeat) as an explicit state machine, in Python. Every possible ending is one row of a transition table. A journal records every fact, so a turn survives its process, waits for a person, and can be explained afterwards.

The links lead to the pages as Markdown. `llms-full.txt`, beside this file on the site, has all of them except the API in one file.
"""  # noqa: E501 (a quotation is one line)
#: Of the reference and the project, what a reader with little room may leave out.
OPTIONAL: Final = frozenset({"Project"})

#: Pages that begin with who made them: what they are about.
ABOUT: Final = {
    "diagrams/turn.md": "Every row of the chart in the order in which rows are tried, and every reason, as tables.",
    "bench/RESULTS.md": "CPU, function calls, bytes and memory of a step, beside a bare loop and other frameworks.",
    "CHANGELOG.md": "The changes, release by release.",
}


class _Loader(yaml.SafeLoader):
    """A loader of mkdocs.yml that calls none of the functions named there."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def nav() -> list[Any]:
    """The navigation of mkdocs.yml."""
    entries: list[Any] = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), _Loader)["nav"]  # noqa: S506 (a safe one)
    return entries


def text() -> str:
    """The file."""
    sections = {"Start": list(_lines([entry for entry in nav() if not isinstance(next(iter(entry.values())), list)]))}
    for entry in nav():
        ((title, below),) = entry.items()
        if isinstance(below, list):
            sections.setdefault("Optional" if title in OPTIONAL else title, []).extend(_lines(below))
    parts = [f"## {title}\n\n" + "\n".join(lines) + "\n" for title, lines in sections.items()]
    return "\n".join([HEAD, *parts])


def _lines(items: list[Any]) -> Iterator[str]:
    for item in items:
        ((title, below),) = item.items() if isinstance(item, dict) else ((None, item),)
        if isinstance(below, list):
            yield from _lines(below)
            continue
        inside = not below.startswith("repository/")
        name = below.removeprefix("repository/")
        page = (DOCS if inside else ROOT) / name
        if page.is_file():
            text = page.read_text(encoding="utf-8")
            link = name if inside else f"../{name}"
            yield f"- [{title or heading(text)}]({link}): {ABOUT.get(name) or first_sentence(text)}"


def heading(page: str) -> str:
    """The title of a page."""
    match = re.search(r"^# (.+)$", page, re.MULTILINE)
    return match[1] if match else ""


def first_sentence(page: str) -> str:
    """The first sentence of a page's first paragraph, as plain text on one line."""
    page = re.sub(r"<!--.*?-->|^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    blocks = (block.strip() for block in re.split(r"\n\s*\n", page))
    paragraph = next((block for block in blocks if block and block[0] not in "#!|<>:" and block[:2] != "- "), "")
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
    match = re.match(r".*?[.!?:](?=\s+[A-Z`*(]|$)", plain)
    return (match[0] if match else plain).rstrip(":")
