"""What a fact says of itself: a kind that says nothing of its own has a summary, a log line and public columns."""

import re
from enum import StrEnum

import pytest

from turnwright_states import Cause, Limits, Outcome, State, Turn, facts
from turnwright_states.fact import DEBUG, Fact, PublicPart, allow
from turnwright_states.facts import KINDS, tool_names
from turnwright_states.reasons import EndReason


class GuardTripped(Fact, frozen=True, kw_only=True):
    """A kind that nobody wrote a word for."""

    kind = "guard_tripped"
    public_fields = allow("guard", "cause", "times", "again", "parts")
    private_fields = frozenset({"quote"})
    guard: str
    cause: Cause
    times: int = 0
    again: bool = False
    parts: tuple[str, ...] = ()
    quote: str = ""


TRIPPED = GuardTripped(1.0, State.STREAM, guard="no\nnames", cause=Cause.REJECTED, times=2, again=True, quote="Ann")


def test_the_default_summary_is_what_a_table_would_show() -> None:
    assert TRIPPED.columns() == {"guard": "no\nnames", "cause": Cause.REJECTED, "times": 2, "again": True}
    assert TRIPPED.summary() == "guard no\nnames, cause rejected, times 2, again"
    assert GuardTripped(1.0, State.STREAM, guard="", cause=Cause.TIMEOUT).summary() == "cause timeout"


def test_the_default_log_line_quotes_nobody() -> None:
    assert TRIPPED.log_line(Turn()) == (DEBUG, "guard tripped: cause rejected, times 2, again")
    assert TRIPPED.log_fields() == {"cause": "rejected"}


def test_a_kind_that_the_fold_does_not_know_changes_only_the_state_and_the_time() -> None:
    turn = Turn()
    turn.apply(TRIPPED)
    fresh = Turn()
    fresh.state, fresh.elapsed = State.STREAM, 1.0
    assert turn.digest() == fresh.digest()


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_nested_public_fields_name_fields(kind: type[Fact]) -> None:
    assert set(kind.public_fields) <= set(kind.__struct_fields__)
    rule: PublicPart
    for rule in kind.public_fields.values():
        assert rule is None or rule


def test_a_fact_about_a_call_names_its_tool() -> None:
    made = facts.CallMade(id="call00001", name="look")
    reply = facts.ModelReplied(0.0, State.TOOL_EXEC, calls=(made,))
    tools = tool_names([reply])
    settled = facts.CallSettled(0.0, State.TOOL_EXEC, call="call00001", result="it is there")
    assert tools == {"call00001": "look"}
    assert reply.summary(tools) == "look (call00001)"
    assert settled.summary(tools) == "look (call00001): ok: it is there"
    assert settled.summary() == "call00001: ok: it is there"


WRITTEN = "someone's words"


@pytest.mark.parametrize(
    "fact",
    [
        facts.TurnStarted(0.0, State.CHECK, prompt=WRITTEN, limits=Limits(), chart=1),
        facts.ModelReplied(0.0, State.STREAM, text=WRITTEN, reasoning=WRITTEN),
        facts.AttemptFailed(0.0, State.STREAM, attempt=1, cause=Cause.TIMEOUT, message=WRITTEN, partial=WRITTEN),
        facts.CallSettled(0.0, State.TOOL_EXEC, call="call00001", result=WRITTEN),
        facts.Synthesized(0.0, State.TOOL_EXEC, text=WRITTEN),
        facts.MessageAdded(0.0, State.STREAM, text=WRITTEN),
        facts.Stopping(0.0, State.CONCLUDE, reason=EndReason.STEP_CAP, partial=WRITTEN),
        facts.Concluded(0.0, State.CONCLUDE, text=WRITTEN, refused=(WRITTEN,)),
        facts.TurnEnded(
            0.0, State.FAILED, outcome=Outcome.FAILED, reason=EndReason.CRASHED, error=WRITTEN, partial=WRITTEN
        ),
    ],
    ids=lambda fact: fact.kind,
)
def test_no_log_line_quotes_what_somebody_wrote(fact: Fact) -> None:
    assert WRITTEN not in fact.log_line(Turn())[1]
    fields = {name: value for name, value in fact.log_fields().items() if name not in ("agent", "call")}
    assert all(isinstance(getattr(fact, name), StrEnum) for name in fields)
    assert re.fullmatch(r"\w.*", fact.title)
