"""`docs/rules.md` has every rule that a module links to, and the tests that it names exist."""

import re
from collections.abc import Iterator
from typing import Final

from .repository_pages import DOCS, ROOT, anchors

PAGE: Final = (DOCS / "rules.md").read_text(encoding="utf-8")
SOURCES: Final = sorted(path for root in ("engine", "states") for path in (ROOT / root).rglob("*.py"))


def cited(text: str) -> Iterator[str]:
    """The anchors of the rules that a text links to."""
    yield from re.findall(r"rules\.md#([\w-]+)", text)


def test_link_to_a_rule_is_found_in_a_source() -> None:
    text = "See docs/rules.md#pairing and `docs/rules.md#sub-agents`."
    assert list(cited(text)) == ["pairing", "sub-agents"]


def test_every_rule_linked_by_a_module_has_a_heading() -> None:
    headings = anchors(PAGE)
    missing = {path.name: set(cited(path.read_text(encoding="utf-8"))) - headings for path in SOURCES}
    assert {name: rules for name, rules in missing.items() if rules} == {}


def test_every_rule_names_existing_tests() -> None:
    rules = re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]
    assert [rule.split("\n")[0] for rule in rules if "\nTested by `tests/" not in rule] == []
    for name in re.findall(r"`(tests/[^`]+)`", PAGE):
        file, _, test = name.partition("::")
        assert (ROOT / file).exists(), name
        assert not test or f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), name
