"""`docs/rules.md` has every rule that a docstring cites, and the tests that it names are there."""

import re
from collections.abc import Iterator
from typing import Final

from .repository_pages import DOCS, ROOT

PAGE: Final = (DOCS / "rules.md").read_text(encoding="utf-8")
NUMBER: Final = r"\d+(?:\.\d+)?"
#: "DESIGN 4.5, 4.6 and 4.13", "DESIGN 4.11 to 4.15", also where a line ends in the middle of it.
CITED: Final = re.compile(rf"DESIGN\s+({NUMBER}(?:(?:,\s+and|,|\s+and|\s+to)\s+{NUMBER}(?![\w%]))*)")
SOURCES: Final = sorted(path for root in ("engine", "states") for path in (ROOT / root).rglob("*.py"))


def cited(text: str) -> Iterator[str]:
    """The numbers that a text cites; of a range, its two ends."""
    for found in CITED.finditer(text):
        yield from re.findall(NUMBER, found[1])


def test_a_list_a_range_and_a_line_break_are_read() -> None:
    assert list(cited("(DESIGN 4.1,\n    4.2). DESIGN 4.5 and 4.13. DESIGN 2 to 4; DESIGN 1 and 4.\n")) == [
        "4.1", "4.2", "4.5", "4.13", "2", "4", "1", "4",
    ]  # fmt: skip


def test_every_rule_that_a_module_cites_has_its_heading() -> None:
    headings = set(re.findall(rf"^##+ ({NUMBER})\.? ", PAGE, re.MULTILINE))
    missing = {path.name: set(cited(path.read_text(encoding="utf-8"))) - headings for path in SOURCES}
    assert {name: numbers for name, numbers in missing.items() if numbers} == {}


def test_something_is_cited() -> None:
    found = {number for path in SOURCES for number in cited(path.read_text(encoding="utf-8"))}
    assert {"2", "4.5", "4.13"} <= found


def test_every_rule_names_tests_that_are_there() -> None:
    sections = re.split(rf"^##+ (?={NUMBER})", PAGE, flags=re.MULTILINE)[1:]
    assert [one.split("\n")[0] for one in sections if "Pinned by" not in one] == ["1. Words", "4. How a turn behaves"]
    for name in re.findall(r"`(tests/[^`]+)`", PAGE):
        file, _, test = name.partition("::")
        assert (ROOT / file).exists(), name
        assert not test or f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), name
