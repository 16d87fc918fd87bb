"""docs/first-turn.md: its journal is one of this release, and the site's drawing says what the page's own does."""

import json
import re

from turnwright_states.fact_parser import parse_fact
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict

from .repository_pages import DOCS, blocks

PAGE = (DOCS / "first-turn.md").read_text(encoding="utf-8")
DRAWING = (DOCS / "assets" / "first-turn.svg").read_text(encoding="utf-8")


def test_the_drawing_has_the_states_and_the_words_of_the_page() -> None:
    """The site loads nothing from elsewhere, so nothing there draws Mermaid."""
    (mermaid,) = (block.text for block in blocks(PAGE) if block.language == "mermaid")
    arrows = re.findall(r"^    (\w+) --> (\w+): (.+)$", mermaid, re.MULTILINE)
    assert arrows
    drawn = set(re.findall(r"<title>(\w+)&#45;&gt;(\w+)</title>", DRAWING))
    assert {(source, dest) for source, dest, _ in arrows} == drawn - {("start", "CHECK")}
    text = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", DRAWING))
    assert [words for _, _, words in arrows if words not in text] == []


def test_the_journal_is_as_this_release_prints_it_and_holds() -> None:
    (lines,) = (block.text.splitlines() for block in blocks(PAGE) if block.language == "json")
    facts = []
    for line in lines:
        fields = json.loads(line)
        seq, kind = fields.pop("seq"), fields.pop("kind")
        facts.append((seq, fact := parse_fact(kind, json.dumps(fields), seq)))
        assert line == json.dumps({"seq": seq, "kind": kind, **json.loads(fact.payload())})
    assert replay(facts).check.verdict is Verdict.HOLDS
