"""docs/reasons.md has a first fix for every reason and a row for every cause."""

import re

from turnwright_states import REASONS, REASONS_OF, Cause, EndReason

from .repository_pages import DOCS, anchors

PAGE = (DOCS / "reasons.md").read_text(encoding="utf-8")
#: The text below each third-level heading, by the second-level heading above it.
SECTIONS = {
    heading.split("\n", 1)[0]: dict(re.findall(r"^### (\w+)\n\n(.+?)(?=\n#|\Z)", heading, re.DOTALL | re.MULTILINE))
    for heading in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
}


def test_every_reason_has_a_first_fix_under_the_outcome() -> None:
    documented = {name: set(fixes) for name, fixes in SECTIONS.items() if fixes}
    assert documented == {f"Outcome `{outcome}`": set(map(str, reasons)) for outcome, reasons in REASONS_OF.items()}


def test_every_reason_has_an_anchor_with_the_name() -> None:
    """No heading takes it away by coming before it."""
    headings = re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)
    assert len(anchors(PAGE)) == len(headings)
    assert not [anchor for anchor in anchors(PAGE) if re.search(r"-\d+$", anchor)]
    assert set(map(str, EndReason)) <= anchors(PAGE)


def test_first_fix_says_more_than_the_table() -> None:
    for fixes in SECTIONS.values():
        for reason, fix in fixes.items():
            assert len(fix) > len(REASONS[EndReason(reason)].next), reason


def test_every_cause_has_a_row_with_the_reaction_of_the_chart() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (yes|no) \| .+ \| `(\w+)` \|$", PAGE, re.MULTILINE)
    assert [(Cause(cause), may == "yes", EndReason(reason)) for cause, may, reason in rows] == [
        (cause, cause.may_pass, cause.reason) for cause in Cause
    ]
