"""Every link of every page leads somewhere, on a code host as on the site."""

import re
from pathlib import Path

import pytest

from .repository_pages import DOCS, PAGES, ROOT, anchors, links, name_of

#: The pages for users, but the one on packages.
GUIDES = [
    page
    for page in PAGES
    if page.is_relative_to(DOCS) and page.parent.name not in ("api", "decisions") and page.name != "install.md"
]


def broken(page: Path, text: str) -> list[str]:
    """The links that name no file, or no heading of it."""
    broken_links = []
    for link in links(text):
        name, _, anchor = link.partition("#")
        target = page.parent / name
        # What mkdocstrings makes has its anchors in the site alone, where the build looks at them.
        looked_at = anchor and (not name or (target.suffix == ".md" and target.parent != DOCS / "api"))
        if not target.exists():
            broken_links.append(link)
            continue
        if looked_at and anchor not in anchors(target.read_text(encoding="utf-8") if name else text):
            broken_links.append(link)
    return broken_links


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_and_every_anchor_exists(page: Path) -> None:
    assert broken(page, page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_page_names_the_packages_of_its_examples(page: Path) -> None:
    """Pages of the engine need no other package. pip finds ours in a checkout alone, as the page on packages shows."""
    text = page.read_text(encoding="utf-8")
    examples = [(ROOT / part).read_text(encoding="utf-8") for part in re.findall(r"<!-- part of (\S+\.py) -->", text)]
    packages = re.findall(
        r"\bturnwright_(audit|guards|inspector|proof|protocols|testing)\b", "\n".join([text, *examples])
    )
    installed = {*re.findall(r"\bpackages/(\w+)", text)}
    if any(link.endswith("install.md") for link in links(text)):
        installed.update(re.findall(r"\bturnwright-(\w+)", text))
    assert {*packages} <= installed
    assert re.findall(r"pip install\s+'?turnwright-", text) == []


def test_every_link_of_llms_txt_exists() -> None:
    llms = DOCS / "llms.txt"
    targets = links(llms.read_text(encoding="utf-8"))
    assert targets
    assert [link for link in targets if not (DOCS / link).is_file()] == []


def test_broken_link_and_broken_anchor_are_detected() -> None:
    text = (
        "# Here\n[a](none.md) [b](#there) [c](#here) [d](README.md#two-commands) [e](README.md#no)\n```\n[f](x)\n```\n"
    )
    assert broken(ROOT / "page.md", text) == ["none.md", "#there", "README.md#no"]
