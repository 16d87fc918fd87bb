"""Every link of every page leads somewhere, on a code host as on the site."""

from pathlib import Path

import pytest

from .repository_pages import DOCS, PAGES, ROOT, anchors, links, name_of


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
