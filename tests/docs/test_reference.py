"""The generated reference is up to date, and contains every public name."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import yaml

from turnwright.cli import app, codes

from .repository_pages import DOCS, ROOT

sys.path.insert(0, str(ROOT / ".ci"))

from reference_cli import commands_as_markdown

#: Packages whose names are nobody's to import: the command line, what it alone needs, and parts of a room.
OWN = frozenset({"turnwright.cli", "turnwright_inspector.tabs", "turnwright_proof.smt"})


def test_generated_pages_are_fresh() -> None:
    """`make reference` makes it: the API, the reasons, llms.txt."""
    command = [sys.executable, ".ci/make_reference.py", "--check"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("", "", 0)


def rooms() -> set[str]:
    """Every package that says what it exports."""
    inits = {path for root in ("engine", "states") for path in (ROOT / root).rglob("__init__.py")}
    exporting = (path for path in inits if "__all__" in path.read_text(encoding="utf-8"))
    return {".".join(path.parent.relative_to(ROOT).parts[1:]) for path in exporting}


def test_every_package_with_public_names_has_an_api_page() -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in (DOCS / "api").glob("*.md"))
    assert {room for room in rooms() - OWN if f"::: {room}\n" not in pages} == set()


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, and calls nothing that it names."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def listed(nav: object) -> set[str]:
    """The pages of a navigation."""
    if isinstance(nav, str):
        return {nav}
    below = nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ()
    return {page for entry in below for page in listed(entry)}


def test_navigation_and_pages_agree() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = listed(yaml.load(text, Loader)["nav"])  # noqa: S506 (a safe one)
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    outside = {page for page in nav if page.startswith("repository/")}
    assert nav - outside == pages
    assert [page for page in outside if not Path(ROOT, page.removeprefix("repository/")).is_file()] == []


#: A decision: the anchor that links use, then the heading with the same number.
DECISION: Final = re.compile(r'^<a id="(\d+)"></a>\n\n## (\d+)\. (.+)$', re.MULTILINE)


def test_every_decision_has_a_numbered_anchor_and_is_in_the_index() -> None:
    """The index lists each theme, and below it the numbers of the theme's decisions in order."""
    folder = DOCS / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    themes = re.findall(r"^## \[.+\]\((.+)\)$", index, re.MULTILINE)
    assert sorted(themes) == sorted(path.name for path in folder.glob("*.md") if path.name != "README.md")
    links: list[tuple[str, str]] = []
    for theme in themes:
        text = (folder / theme).read_text(encoding="utf-8")
        decisions = DECISION.findall(text)
        assert [anchor for anchor, _, _ in decisions] == [number for _, number, _ in decisions]
        assert len(decisions) == text.count("\n## ")
        assert sorted(decisions, key=lambda decision: int(decision[0])) == decisions
        links += [(number, f"{theme}#{number}") for number, _, _ in decisions]
    assert re.findall(r"\[(\d+)\]\((.+?)\)", index) == links
    assert len({number for number, _ in links}) == len(links)


def test_site_shows_the_help_of_every_command() -> None:
    commands = re.findall(r"^## `([a-z ]+)`$", commands_as_markdown(), re.MULTILINE)
    assert sorted(commands) == sorted(app.PLACES)
    assert (DOCS / "cli.md").read_text(encoding="utf-8").count("\n<!-- commands: ") == 1


def test_exit_codes_equal_the_command_line() -> None:
    ended = {0, codes.FAILED, codes.CAP_HIT, codes.DOOM_LOOP, codes.ABORTED}
    table = (DOCS / "cli.md").read_text(encoding="utf-8").split("## Exit codes\n", 1)[1].split("\n## ", 1)[0]
    listed_codes = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    assert listed_codes == ended | {codes.USAGE, codes.PAUSED, codes.TERMINATED}
