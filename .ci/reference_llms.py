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
    found: list[Any] = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), _Loader)["nav"]  # noqa: S506 (a safe one)
    return found


def text() -> str:
    """The file."""
    sections = {"Start": list(_lines([one for one in nav() if not isinstance(next(iter(one.values())), list)]))}
    for one in nav():
        ((title, below),) = one.items()
        if isinstance(below, list):
            sections.setdefault("Optional" if title in OPTIONAL else title, []).extend(_lines(below))
    parts = [f"## {title}\n\n" + "\n".join(lines) + "\n" for title, lines in sections.items()]
    return "\n".join([HEAD, *parts])


def _lines(items: list[Any]) -> Iterator[str]:
    for one in items:
        ((title, below),) = one.items() if isinstance(one, dict) else ((None, one),)
        if isinstance(below, list):
            yield from _lines(below)
            continue
        inside = not below.startswith("repository/")
        name = below.removeprefix("repository/")
        page = (DOCS if inside else ROOT) / name
        if page.is_file():
            said = page.read_text(encoding="utf-8")
            link = name if inside else f"../{name}"
            yield f"- [{title or heading(said)}]({link}): {ABOUT.get(name) or first_sentence(said)}"


def heading(page: str) -> str:
    """The title of a page."""
    found = re.search(r"^# (.+)$", page, re.MULTILINE)
    return found[1] if found else ""


def first_sentence(page: str) -> str:
    """The first sentence of a page's first paragraph, as plain text on one line."""
    page = re.sub(r"<!--.*?-->|^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    blocks = (one.strip() for one in re.split(r"\n\s*\n", page))
    paragraph = next((one for one in blocks if one and one[0] not in "#!|<>:" and one[:2] != "- "), "")
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
    found = re.match(r".*?[.!?:](?=\s+[A-Z`*(]|$)", plain)
    return (found[0] if found else plain).rstrip(":")
