"""The facts of an append are one row, and each of them is read, and named if it is damaged, as if it had its own."""

import pytest
from msgspec import structs

from turnwright.errors import UnreadableTurnError
from turnwright.store.rows import Columns, facts_of, join_facts
from turnwright_states.facts import ModelReplied
from turnwright_testing.store_suite import Written

WRITTEN = Written()
WRITTEN.answer("one\ntwo\u2028three")
FACTS = list(enumerate(WRITTEN.facts, start=1))
KINDS, PAYLOADS = join_facts(WRITTEN.facts)
LINES = PAYLOADS.split("\n")


def test_append_is_readable_from_each_fact() -> None:
    for after in range(len(FACTS) + 1):
        assert facts_of("t1", [(1, KINDS, PAYLOADS)], "here", after) == FACTS[after:]


def test_append_row_contains_the_payloads_of_the_facts() -> None:
    """Also if one of them cannot be written as UTF-8."""
    odd = [
        structs.replace(fact, text="half \ud83d") if isinstance(fact, ModelReplied) else fact for fact in WRITTEN.facts
    ]
    for facts in (WRITTEN.facts, WRITTEN.facts[1:], odd[1:]):
        assert join_facts(facts)[1].split("\n") == [fact.payload() for fact in facts]
    assert join_facts(odd[1:]) != join_facts(WRITTEN.facts[1:])


def test_rows_of_single_and_several_facts_form_a_journal() -> None:
    """An append of one fact is such a row. Line breaks do not split it."""
    first, *rest = WRITTEN.facts
    spread = first.payload().replace(",", ",\n", 1)
    rows: list[Columns] = [(1, first.kind, spread), (2, *join_facts(rest))]
    assert facts_of("t1", rows, "here") == FACTS


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((1, KINDS, "\n".join([LINES[0], "no JSON", *LINES[2:]])), "fact 2 of the journal: its payload"),
        ((1, KINDS, "\n".join(LINES[:2])), "fact 3 of the journal: its payload None is not text"),
        ((1, KINDS, PAYLOADS + "\n{}"), f"fact {len(FACTS) + 1} of the journal: its kind None is unknown"),
        ((1, KINDS.replace("step_started", "dreamt"), PAYLOADS), "fact 2 of the journal: its kind 'dreamt'"),
        ((1, KINDS, b"x"), "fact 1 of the journal: its payload b'x' is not text"),
        ((1, None, PAYLOADS), "fact 1 of the journal: its kind None"),
        (("1", KINDS, PAYLOADS), "fact 1 of the journal: its seq is damaged"),
    ],
)
def test_damaged_fact_of_an_append_is_named(row: Columns, message: str) -> None:
    with pytest.raises(UnreadableTurnError, match=message):
        facts_of("t1", [row], "here")


def test_damaged_fact_before_the_requested_facts_is_not_read() -> None:
    row = (1, KINDS, "\n".join(["no JSON", *LINES[1:]]))
    assert facts_of("t1", [row], "here", after=1) == FACTS[1:]
