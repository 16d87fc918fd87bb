"""Check docs/first-turn.md: this release reads its journal, and the site's drawing has the page's transitions."""

import json
import re

from turnwright_states.fact_parser import parse_fact
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict

from .repository_pages import DOCS, blocks

PAGE = (DOCS / "first-turn.md").read_text(encoding="utf-8")
JOURNAL = (DOCS / "assets" / "first-turn.jsonl").read_text(encoding="utf-8").splitlines()
DRAWING = (DOCS / "assets" / "first-turn.svg").read_text(encoding="utf-8")


def test_drawing_has_the_states_and_events_of_the_page() -> None:
    """The site loads nothing from another server, so it cannot draw Mermaid."""
    (mermaid,) = (block.text for block in blocks(PAGE) if block.language == "mermaid")
    arrows = re.findall(r"^    (\w+) --> (\w+): (.+)$", mermaid, re.MULTILINE)
    assert arrows
    drawn = set(re.findall(r"<title>(\w+)&#45;&gt;(\w+)</title>", DRAWING))
    assert {(source, dest) for source, dest, _ in arrows} == drawn - {("start", "CHECK")}
    text = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", DRAWING))
    assert [words for _, _, words in arrows if words not in text] == []


def test_journal_equals_the_output_of_the_current_release_and_holds() -> None:
    facts = []
    for line in JOURNAL:
        fields = json.loads(line)
        seq, kind = fields.pop("seq"), fields.pop("kind")
        facts.append((seq, fact := parse_fact(kind, json.dumps(fields), seq)))
        assert line == json.dumps({"seq": seq, "kind": kind, **json.loads(fact.payload())})
    assert replay(facts).check.verdict is Verdict.HOLDS


def test_page_lists_the_facts_of_the_journal() -> None:
    journal = next(block.text for block in blocks(PAGE) if block.language == "text")
    stored = [json.loads(line) for line in JOURNAL]
    listed = [line.split()[:3] for line in journal.splitlines()]
    assert listed == [[str(fact["seq"]), fact["kind"], f"{fact['elapsed']:.3f}"] for fact in stored]
    (example,) = (json.loads(block.text) for block in blocks(PAGE) if block.language == "json")
    assert example == stored[example["seq"] - 1]
