"""The words of facts: a kind without its own words has a summary, a log line and public columns."""

import re
from enum import StrEnum

import pytest
from msgspec import structs

from turnwright_states import Cause, Decision, InterruptKind, Limits, Outcome, Stall, State, Turn, Usage, facts
from turnwright_states.fact import DEBUG, INFO, Fact, PublicPart, allow
from turnwright_states.facts import KINDS, rule_decisions, tool_names
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


class Silent(Fact, frozen=True, kw_only=True):
    """A kind without words."""

    kind = "silent"
    public_fields = allow()
    private_fields = frozenset()


TRIPPED = GuardTripped(1.0, State.STREAM, guard="no\nnames", cause=Cause.REJECTED, times=2, again=True, quote="Ann")


def test_default_summary_lists_the_table_columns() -> None:
    assert TRIPPED.columns() == {"guard": "no\nnames", "cause": Cause.REJECTED, "times": 2, "again": True}
    assert TRIPPED.summary() == "guard no\nnames, cause rejected, times 2, again"
    assert GuardTripped(1.0, State.STREAM, guard="", cause=Cause.TIMEOUT).summary() == "cause timeout"


def test_default_log_line_quotes_no_text() -> None:
    assert TRIPPED.log_line(Turn()) == (DEBUG, "guard tripped: cause rejected, times 2, again")
    assert TRIPPED.log_fields() == {"cause": "rejected"}
    silent = Silent(1.0, State.STREAM)
    assert (silent.summary(), silent.log_line(Turn())) == ("", (DEBUG, "silent"))


def test_log_names_the_call_of_a_fact_and_the_agent_of_a_turn() -> None:
    assert facts.CallSettled(0.0, State.TOOL_EXEC, call="call00001").log_fields()["call"] == "call00001"
    assert facts.TurnStarted(0.0, State.CHECK, prompt="x", limits=Limits(), chart=1).log_fields() == {"agent": ""}


def test_unknown_kind_of_fact_changes_only_state_and_time() -> None:
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


def test_call_fact_names_the_tool() -> None:
    call = facts.CallMade(id="call00001", name="look")
    reply = facts.ModelReplied(0.0, State.TOOL_EXEC, calls=(call,))
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
def test_log_line_quotes_no_written_text(fact: Fact) -> None:
    assert WRITTEN not in fact.log_line(Turn())[1]
    fields = {name: value for name, value in fact.log_fields().items() if name not in ("agent", "call")}
    assert all(isinstance(getattr(fact, name), StrEnum) for name in fields)
    assert re.fullmatch(r"\w.*", fact.title)


_ASKED = facts.InterruptRecord(id="approval-1", kind=InterruptKind.APPROVAL, call="call00001", question="Go on?")
_MADE = facts.CallMade(id="call00001", name="look")
_USED = Usage(input_tokens=3, output_tokens=2)
SAID: list[tuple[Fact, str, str]] = [
    (facts.StepStarted(0.0, State.STREAM, number=2), "step 2", "step 2 of at most 200"),
    (
        facts.StepStarted(0.0, State.STREAM, number=2, stall=Stall.SAME_ERROR),
        "step 2, with a hint",
        "step 2 of at most 200",
    ),
    (facts.StepStarted(0.0, State.STREAM, number=2, nudge=True), "step 2, with a nudge", "step 2 of at most 200"),
    (facts.ModelReplied(0.0, State.FINISHED, text="Hi."), "Hi.", "the model replied, without calls"),
    (
        facts.ModelReplied(0.0, State.TOOL_EXEC, calls=(_MADE,)),
        "look (call00001)",
        "the model replied; 1 of 1 calls run",
    ),
    (
        facts.ModelReplied(0.0, State.TEXT_ONLY, calls=(_MADE,)),
        "look (call00001)",
        "the model asked for 1 calls without being allowed any: all refused",
    ),
    (
        facts.AttemptFailed(0.0, State.STREAM, attempt=1, cause=Cause.TIMEOUT, retry=True, wait=0.5),
        "attempt 1: timeout, tried again",
        "attempt 1 failed (timeout), tried again after 0.5 s",
    ),
    (
        facts.AttemptFailed(0.0, State.FAILED, attempt=2, cause=Cause.REJECTED),
        "attempt 2: rejected",
        "attempt 2 failed (rejected), not tried again",
    ),
    (facts.CallStarted(0.0, State.TOOL_EXEC, call="call00001"), "call00001", "call call00001 started, attempt 1"),
    (
        facts.CallStarted(0.0, State.TOOL_EXEC, call="call00001", attempt=2),
        "call00001, attempt 2",
        "call call00001 started, attempt 2",
    ),
    (facts.CallSettled(0.0, State.TOOL_EXEC, call="call00001"), "call00001: ok", "call call00001 settled: ok"),
    (
        facts.CallWaiting(0.0, State.TOOL_EXEC, call="call00001", interrupt=_ASKED),
        "call00001 waits for approval-1",
        "call call00001 waits for a person",
    ),
    (facts.Paused(0.0, State.PAUSED), "", "paused: 0 answers needed"),
    (facts.Paused(0.0, State.PAUSED, interrupt=_ASKED), "Go on?", "paused: 0 answers needed"),
    (facts.Synthesized(0.0, State.TOOL_EXEC), "no answer", "the synthesis gave nothing"),
    (facts.Synthesized(0.0, State.TOOL_EXEC, text="All."), "All.", "the synthesis gave the answer"),
    (
        facts.Answered(0.0, State.TOOL_EXEC, interrupt="approval-1", decision=Decision.REJECT, text="no"),
        "approval-1: reject: no",
        "approval-1 was answered; the state is TOOL_EXEC",
    ),
    (
        facts.Answered(
            0.0, State.TOOL_EXEC, interrupt="approval-1", decision=Decision.APPROVE, arguments={"path": "/srv"}
        ),
        "approval-1: approve, with other arguments",
        "approval-1 was answered; the state is TOOL_EXEC",
    ),
    (
        facts.StepFinished(0.0, State.CHECK, number=2, usage=_USED, seconds=0.25),
        "step 2, 0.25 s",
        "step 2 took 0.250 s, 5 tokens",
    ),
    (facts.Stopping(0.0, State.CONCLUDE, reason=EndReason.STEP_CAP), "step_cap", "stopping: step_cap"),
    (facts.MessageAdded(0.0, State.STREAM, text="And y?"), "And y?", "a message was accepted"),
    (facts.Concluded(0.0, State.CONCLUDE, text="So far."), "So far.", "the model concluded"),
    (facts.Concluded(0.0, State.CONCLUDE), "no text", "the model concluded without text"),
    (
        facts.Concluded(0.0, State.CONCLUDE, retry=True, refused=("look",)),
        "no text, look refused, asked again",
        "the conclusion had no text; the model is asked once more",
    ),
    (
        facts.TurnEnded(0.0, State.CAP_HIT, outcome=Outcome.CAP_HIT, reason=EndReason.STEP_CAP),
        "cap_hit: step_cap",
        "ended: cap_hit: step_cap",
    ),
    (facts.Notice(0.0, State.STREAM, limit="tokens", used=8, of=10), "tokens 8 of 10", "notice: tokens, 8 of 10"),
    (
        facts.Notice(0.0, State.STREAM, limit="tokens", used=1_600_001, of=2_000_000),
        "tokens 1600001 of 2000000",
        "notice: tokens, 1600001 of 2000000",
    ),
    (facts.RequestPrepared(0.0, State.STREAM), "nothing changed", "the request was prepared"),
    (
        facts.RequestPrepared(
            0.0,
            State.STREAM,
            instructions="Be kind.",
            settings={"seed": 1},
            append=("Be brief.",),
            tools=(),
            decisions=({"guardrail": "on_topic", "decision": "passed"},),
        ),
        "instructions; settings; 1 messages; tools none; guardrail on_topic passed",
        "the request was prepared",
    ),
    (facts.Reviewed(0.0, State.TOOL_EXEC), "accepted", "the reply was accepted"),
    (
        facts.Reviewed(0.0, State.REVIEW, refused=True, feedback="no links", retry=True),
        "refused: no links",
        "the reply was refused, another step follows",
    ),
    (
        facts.Reviewed(0.0, State.REVIEW, refused=True, feedback="no links"),
        "refused: no links",
        "the reply was refused, no output retry is left",
    ),
    (
        facts.CompactionStarted(0.0, State.COMPACT, tokens=900),
        "about 900 tokens",
        "compaction started: about 900 tokens",
    ),
    (
        facts.CompactionStarted(0.0, State.COMPACT),
        "the provider refused the request",
        "compaction started: the provider refused the request",
    ),
    (
        facts.Compacted(0.0, State.STREAM, text="They greeted."),
        "They greeted.",
        "the conversation was compacted: its older part was summarized",
    ),
    (
        facts.Compacted(0.0, State.STREAM, cleared=True),
        "old tool results cleared",
        "the conversation was compacted: its old tool results were cleared",
    ),
    (facts.Notice(0.0, State.STREAM, limit="usage_unknown"), "usage_unknown", "notice: usage_unknown"),
]


@pytest.mark.parametrize(
    ("fact", "summary", "line"), SAID, ids=lambda value: value.kind if isinstance(value, Fact) else ""
)
def test_fact_has_a_summary_and_a_log_line(fact: Fact, summary: str, line: str) -> None:
    assert fact.summary() == summary
    assert fact.log_line(Turn())[1] == line


def test_summary_ends_with_decisions_of_hooks_and_guardrails() -> None:
    prepared = facts.RequestPrepared(
        0.0,
        State.STREAM,
        tools=("look", "log"),
        decisions=(
            {"hook": "mask", "decision": "change_request"},
            {"guardrail": "polite", "decision": "passed"},
            {"hook": "later", "decision": "a_new_one"},
        ),
    )
    assert prepared.summary() == (
        "tools look, log; hook mask changed the request; guardrail polite passed; hook later a_new_one"
    )


def test_calls_and_refused_tools_are_listed_with_commas() -> None:
    reply = facts.ModelReplied(0.0, State.TOOL_EXEC, calls=(_MADE, facts.CallMade(id="call00002", name="log")))
    assert reply.summary() == "look (call00001), log (call00002)"
    concluded = facts.Concluded(0.0, State.CONCLUDE, refused=("look", "log"))
    assert "look, log refused" in concluded.summary()


def test_answer_summary_shows_the_text_if_present() -> None:
    answered = facts.Answered(0.0, State.TOOL_EXEC, interrupt="approval-1", decision=Decision.REJECT)
    assert answered.summary() == "approval-1: reject"
    assert facts.Answered(
        0.0, State.TOOL_EXEC, interrupt="approval-1", decision=Decision.REJECT, text="No."
    ).summary() == ("approval-1: reject: No.")


def test_approval_summary_mentions_changed_arguments() -> None:
    answered = facts.Answered(0.0, State.TOOL_EXEC, interrupt="approval-1", decision=Decision.APPROVE, arguments={})
    assert answered.summary() == "approval-1: approve, with other arguments"


@pytest.mark.parametrize(
    ("via", "at", "signature"),
    [
        ("", None, "by ann"),
        ("slack", None, "by ann via slack"),
        ("slack", 1_795_892_520.0, "by ann via slack, 2026-11-28 19:02 UTC"),
        ("", 1e300, "by ann"),
        ("", 1e15, "by ann"),
    ],
    ids=["name", "channel", "time", "beyond the clock", "beyond the calendar"],
)
def test_answer_is_signed_with_its_person_channel_and_time(via: str, at: float | None, signature: str) -> None:
    answered = facts.Answered(
        0.0, State.TOOL_EXEC, interrupt="approval-1", decision=Decision.APPROVE, by="ann", via=via, at=at, always=True
    )
    assert answered.signature == signature
    assert answered.summary() == f"approval-1: approve, always for equal calls ({signature})"


def test_call_that_needs_no_question_names_the_earlier_approval() -> None:
    decisions = ({"approval": "approval-1"}, {"hook": "mask", "decision": "change_arguments"})
    started = facts.CallStarted(0.0, State.TOOL_EXEC, call="call00001", decisions=decisions)
    assert started.summary() == "call00001; approved always (approval-1); hook mask changed the arguments"


def test_fact_gives_the_decisions_of_rules() -> None:
    """A rule that asks asks only in a fact with a question, and a sub-agent's question is decided in its own turn."""
    asks = facts.RuleVerdict(rule="sign", broken="ask", by=("call00001",), words="not signed")
    reports, allows = facts.RuleVerdict(rule="late", broken="report"), facts.RuleVerdict(rule="need")
    own = structs.replace(_ASKED, rules=(asks,))
    forwarded = structs.replace(_ASKED, id="call00001/approval-1", rules=(asks,))
    by_rule = facts.TrippedGuardrail(
        name="stop", message="too much", metadata={"by": ["call00001"], "call": "call00002"}, checks="rule"
    )
    by_guardrail = facts.TrippedGuardrail(name="polite", message="It is rude.", metadata={})
    ends = [
        facts.TurnEnded(0.0, State.FAILED, outcome=Outcome.FAILED, reason=EndReason.GUARDRAIL, guardrail=guardrail)
        for guardrail in (by_rule, structs.replace(by_rule, metadata={"by": []}), by_guardrail)
    ]
    cases: list[tuple[Fact, list[str]]] = [
        (
            facts.CallStarted(0.0, State.TOOL_EXEC, call="call00002", rules=(reports, allows)),
            ["call00002 reported by late", "call00002 allowed by need"],
        ),
        (
            facts.CallSettled(0.0, State.TOOL_EXEC, call="call00002", rules=(asks,)),
            ["call00002 refused by sign (by: call00001)"],
        ),
        (
            facts.CallWaiting(0.0, State.TOOL_EXEC, call="call00002", interrupt=forwarded, more=(own,)),
            ["call00002 asked by sign (by: call00001)"],
        ),
        (facts.Reviewed(0.0, State.REVIEW, rules=(asks,)), ["None refused by sign (by: call00001)"]),
        (ends[0], ["call00002 ended by stop (by: call00001)"]),
        (ends[1], ["None ended by stop"]),
        (ends[2], []),
        (facts.Paused(0.0, State.PAUSED), []),
    ]
    for fact, expected in cases:
        decisions = rule_decisions(fact)
        assert [f"{decision.call} {decision}" for decision in decisions] == expected
        assert [decision.is_broken for decision in decisions] == ["allowed" not in words for words in expected]


def test_tripped_guardrail_is_named_at_the_end() -> None:
    tripped = facts.TrippedGuardrail(name="polite", message="It is rude.", metadata={})
    ended = facts.TurnEnded(0.0, State.FAILED, outcome=Outcome.FAILED, reason=EndReason.GUARDRAIL, guardrail=tripped)
    assert ended.summary().endswith(" (polite: It is rude.)")


@pytest.mark.parametrize(("state", "level"), [(State.TOOL_EXEC, INFO), (State.FINISHED, DEBUG)])
def test_reply_with_running_calls_is_logged_at_info(state: State, level: int) -> None:
    assert facts.ModelReplied(0.0, state, calls=(_MADE,)).log_line(Turn())[0] == level


def test_turn_start_summary_has_the_prompt_and_the_cap() -> None:
    started = facts.TurnStarted(0.0, State.CHECK, prompt="Hi", agent={"name": "Ann"}, limits=Limits(steps=7), chart=1)
    assert (started.summary(), started.log_line(Turn())[1]) == ("Hi", "started, with at most 7 steps")
    assert started.log_fields() == {"agent": "Ann"}


def test_files_and_settings_are_both_written() -> None:
    started = facts.TurnStarted(
        0.0, State.CHECK, prompt="Hi", limits=Limits(), files=({"name": "a"},), model_settings={"seed": 1}, chart=1
    )
    assert ('"files":[{"name":"a"}]' in started.payload(), '"seed":1' in started.payload()) == (True, True)


def test_usage_is_shown_once() -> None:
    """The end of a step adds up the usage of its model calls."""
    assert facts.ModelReplied(0.0, State.FINISHED, usage=_USED).new_usage == _USED
    assert facts.StepFinished(0.0, State.CHECK, number=1, usage=_USED, seconds=0.1).new_usage is None
    assert facts.CallStarted(0.0, State.TOOL_EXEC, call="call00001").new_usage is None
