"""docs/chart.md explains every state, row and outcome; the turn that it shows is played here."""

import re
from itertools import pairwise

from turnwright_proof.rank import STAGE, rank_of
from turnwright_states import (
    AnsweredInput,
    AttemptFailedInput,
    CallSettledInput,
    CallStartedInput,
    CallWaitingInput,
    Cause,
    Decision,
    Input,
    InterruptKind,
    Limits,
    ModelRepliedInput,
    Outcome,
    StartedInput,
    State,
    ToolCall,
    TurnMachine,
)
from turnwright_states.chart import ROWS
from turnwright_states.state import FINAL, LIVE, OUTCOMES, RESTING, TRANSIENT

from .repository_pages import DOCS

#: The events that lead to the same end from every state that accepts them.
FROM_ANYWHERE = ("tripped", "abort", "fail")
PAGE = (DOCS / "chart.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    return re.split(r"^#{2,3} ", PAGE.split(f"# {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def table(after: str) -> list[list[str]]:
    """The cells of the first table below a text, without its two head lines."""
    match = re.search(r"(?:^\|.*\n)+", PAGE.split(after, 1)[1], re.MULTILINE)
    assert match is not None
    return [[cell.strip(" *`") for cell in line.strip("|").split("|")] for line in match[0].splitlines()[2:]]


def numbers(text: str) -> set[int]:
    """The rows that a text names in brackets: (3), (5 to 8), (18, 24)."""
    row_numbers: set[int] = set()
    for bracket in re.findall(r"\((\d[\d, to]*)\)", text):
        for part in bracket.split(","):
            first, *last = map(int, part.split("to"))
            row_numbers.update(range(first, (last or [first])[0] + 1))
    return row_numbers


def test_kinds_of_states_equal_the_code() -> None:
    kinds = {kind: {State(name) for name in states.split(", ")} for kind, states, _ in table("four kinds of states")}
    assert kinds == {"transient": TRANSIENT, "live": LIVE, "resting": RESTING, "final": FINAL}


def test_every_state_has_a_section_explaining_each_exit() -> None:
    """Rows for guardrails, aborts and failures, the same everywhere, have one of their own."""
    anywhere = numbers(section("From anywhere"))
    assert anywhere == {n for n, row in enumerate(ROWS, 1) if row.trigger in FROM_ANYWHERE}
    for state in set(State) - FINAL:
        rows = {number for number, row in enumerate(ROWS, 1) if row.source is state}
        assert numbers(section(state)) == rows - anywhere, state


def test_every_row_is_explained_with_the_destination() -> None:
    """A line that names a row names its target state too, unless the row stays in its state."""
    for number, row in enumerate(ROWS, 1):
        text = section("From anywhere" if row.trigger in FROM_ANYWHERE else row.source)
        assert row.dest is row.source or row.dest in text, (number, row.name)


def test_every_outcome_is_explained() -> None:
    assert {State(state): Outcome(outcome) for state, outcome, _ in table("## The outcomes")} == OUTCOMES


def test_stages_equal_the_rank() -> None:
    text = " ".join(section("Why it ends").split())
    words = (
        "PAUSED 8, COMPACT 7, STREAM 6, REVIEW 5, TOOL_EXEC 4, CONTINUE 3, CHECK 2, CONCLUDE and TEXT_ONLY 1,"
        " the final states 0"
    )
    assert words in text
    assert list(STAGE.items())[:7] == [
        (State(name), int(stage)) for name, stage in (pair.split() for pair in words.split(", ")[:7])
    ]
    assert (STAGE[State.CONCLUDE], STAGE[State.TEXT_ONLY]) == (1, 1)


def test_turn_of_the_page_is_valid_and_every_event_lowers_the_rank() -> None:
    limits = Limits(steps=2, max_pauses=1, max_retries=1)
    machine, _ = TurnMachine.start(StartedInput(prompt="Tidy up.", limits=limits))
    positions = [(machine.turn.state, rank_of(machine.turn))]
    calls = (ToolCall(name="look", arguments={}), ToolCall(name="erase", arguments={}))
    events: list[Input] = [
        AttemptFailedInput(cause=Cause.TIMEOUT),
        ModelRepliedInput(calls=calls),
        CallStartedInput(call="call00001"),
        CallSettledInput(call="call00001", result="one file"),
        CallWaitingInput(call="call00002", interrupt_kind=InterruptKind.APPROVAL, question="Erase it?"),
        AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE),
        CallStartedInput(call="call00002"),
        CallSettledInput(call="call00002", result="erased"),
        ModelRepliedInput(text="Done."),
    ]
    for event in events:
        machine.feed(event)
        positions.append((machine.turn.state, rank_of(machine.turn)))
    rows = table("<!-- rank:")
    played = [(State(state), tuple(int(digit.strip(" *")) for digit in rank.split(","))) for _, state, rank in rows]
    assert played == [(state, (rank[0], *rank[3:])) for state, rank in positions]
    assert {rank[1:3] for _, rank in positions} == {(limits.output_retries, limits.max_compactions)}
    assert all(later < sooner for (_, sooner), (_, later) in pairwise(positions))


def test_bold_digit_is_the_first_changed_digit() -> None:
    match = re.search(r"(?:^\|.*\n)+", PAGE.split("<!-- rank:", 1)[1], re.MULTILINE)
    assert match is not None
    ranks = [line.strip("|").split("|")[2].strip().split(", ") for line in match[0].splitlines()[2:]]
    plain = [[digit.strip("*") for digit in rank] for rank in ranks]
    for sooner, later, row in zip(plain, plain[1:], ranks[1:], strict=False):
        first = next(
            place for place, (digit, later_digit) in enumerate(zip(sooner, later, strict=True)) if digit != later_digit
        )
        assert [place for place, cell in enumerate(row) if cell.startswith("**")] == [first]
