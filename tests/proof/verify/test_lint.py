"""The lint of the chart: the chart that ships passes it, and each planted fault is refused by the claim that should."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_proof.verify import lint
from turnwright_proof.verify.guard_cases import ASSUMED, Assumption
from turnwright_states import EndReason, IllegalInputError, Limits, State, Trigger
from turnwright_states.chart import CHART, ILLEGAL, ROWS, ReasonFrom, Refused, Row
from turnwright_states.counters import Counters
from turnwright_states.guards import Guard
from turnwright_states.state import FINAL
from turnwright_states.verdict import Check, Verdict, worst

S, T, R = State, Trigger, EndReason
Rows = tuple[Row, ...]

#: The claims in the order in which they are checked, numbered as in the issue.
REACHED, NO_WAY_OUT, NO_TRAP, DECIDED, FALLBACK, NOT_SHADOWED, CYCLES_END, NOT_OVERSPENT, REASONED = range(1, 10)

#: What the lint says of the chart that ships.
SHIPS: Final = lint()


def test_shipped_chart_passes_every_claim() -> None:
    assert len(SHIPS) == len({check.claim for check in SHIPS}) == REASONED
    assert {check.verdict for check in SHIPS} == {Verdict.HOLDS}
    assert all(check.detail and not check.witness for check in SHIPS)


def test_assumptions_about_the_machine_are_stated() -> None:
    """A reader sees what the lint did not check itself."""
    (check,) = (check for check in SHIPS if "assumed" in check.detail)
    assert all(assumption.why in check.detail for assumption in ASSUMED)


# Planting.


def place(name: str) -> int:
    """Return the index of the row of this name."""
    (at,) = (at for at, row in enumerate(ROWS) if row.name == name)
    return at


def without(*names: str) -> Rows:
    gone = set(map(place, names))
    return tuple(row for at, row in enumerate(ROWS) if at not in gone)


def changed(*names: str, **fields: object) -> Rows:
    """The chart with other fields in the rows of these names; a guard is given as its text."""
    if "guard" in fields:
        fields["guard"] = Guard(str(fields["guard"]))
    changing = set(map(place, names))
    return tuple(row._replace(**fields) if at in changing else row for at, row in enumerate(ROWS))  # type: ignore[arg-type]


def swapped(first: str, second: str) -> Rows:
    rows = list(ROWS)
    rows[place(first)], rows[place(second)] = rows[place(second)], rows[place(first)]
    return tuple(rows)


def added(row: Row, after: str | None = None) -> Rows:
    at = len(ROWS) if after is None else place(after) + 1
    return (*ROWS[:at], row, *ROWS[at:])


@dataclass(frozen=True)
class Fault:
    """A fault, the claim that must refuse it, and what its message must say."""

    claim: int
    says: str
    rows: Rows = ROWS
    illegal: Mapping[State, Refused] = field(default_factory=lambda: ILLEGAL)
    assumed: tuple[Assumption, ...] = ASSUMED


@cache
def checks_of(name: str) -> tuple[Check, ...]:
    """Return the lint's check of a fault, after comparing two runs."""
    fault = FAULTS[name]
    return lint(fault.rows, illegal=fault.illegal, assumed=fault.assumed)


NUDGES: Final = "CHECK --proceed [doom and nudges_left > 0 and not spent]--> STREAM"
NOBODY: Final = "CHECK --proceed [doom and (not doom_asks or pauses_left == 0 or spent)]--> CONCLUDE"
CAPPED: Final = "CHECK --proceed [steps >= allowance]--> CONCLUDE"
STARTS: Final = "CHECK --proceed--> STREAM"
CALLS: Final = "STREAM --replied [made > 0]--> TOOL_EXEC"
ANSWERS: Final = "STREAM --replied--> FINISHED"
FAILS: Final = "STREAM --attempt_failed--> FAILED"
RETRIES: Final = "STREAM --attempt_failed [retries_left > 0 and may_pass]--> STREAM"
WAITS: Final = "TOOL_EXEC --settled [waiting > 0]--> PAUSED"
SYNTHESIZED: Final = "TOOL_EXEC --settled [synthesized]--> SYNTHESIS_DONE"
REFUSED: Final = "REVIEW --reviewed [refused and output_retries_left > 0]--> CONTINUE"
COMPACTS: Final = "STREAM --oversized--> COMPACT"
OVERFLOWS: Final = "STREAM --attempt_failed [overflow and compactions_left > 0]--> COMPACT"
COMPACTED: Final = "COMPACT --compacted--> STREAM"
SETTLES: Final = "TOOL_EXEC --settled--> CONTINUE"
CONTINUES: Final = "CONTINUE --proceed--> CHECK"
STILL_WAITS: Final = "PAUSED --answered [waiting > 0]--> PAUSED"
ANSWERED: Final = "PAUSED --answered--> TOOL_EXEC"
CONCLUDE_RETRIES: Final = "CONCLUDE --attempt_failed [retries_left > 0 and may_pass]--> CONCLUDE"
CONCLUDE_FAILS: Final = "CONCLUDE --attempt_failed--> CAP_HIT"
CONCLUDE_FAILS_DOOMED: Final = "CONCLUDE --attempt_failed [carried_doom]--> DOOM_LOOP"
CONCLUDED: Final = "CONCLUDE --concluded--> CAP_HIT"
CONCLUDED_DOOMED: Final = "CONCLUDE --concluded [carried_doom]--> DOOM_LOOP"
TEXT_RETRIES: Final = "TEXT_ONLY --attempt_failed [retries_left > 0 and may_pass]--> TEXT_ONLY"

FAULTS: Final = {
    # 1. Every state is reached.
    "a finished batch skips CONTINUE": Fault(
        REACHED,
        "no path leads to CONTINUE, so these rows are dead: CONTINUE --proceed--> CHECK",
        changed(SETTLES, REFUSED, dest=S.CHECK),
    ),
    "no reply is reviewed": Fault(
        REACHED,
        f"no path leads to REVIEW, so these rows are dead: {REFUSED}",
        without("STREAM --replied [review]--> REVIEW"),
    ),
    "nothing is compacted": Fault(
        REACHED, "no path leads to COMPACT, so these rows are dead: COMPACT --compacted", without(COMPACTS, OVERFLOWS)
    ),
    "nothing leads to the synthesis' end": Fault(REACHED, "no path leads to SYNTHESIS_DONE", without(SYNTHESIZED)),
    "a turn without steps concludes": Fault(
        REACHED,
        "no path leads to TEXT_ONLY, so these rows are dead: TEXT_ONLY --replied [filtered]--> FAILED,"
        " TEXT_ONLY --replied--> FINISHED",
        changed("CHECK --proceed [allowance == 0 or no_calls]--> TEXT_ONLY", dest=S.CONCLUDE),
    ),
    # 2. No row leaves an end.
    "a finished turn can be aborted": Fault(
        NO_WAY_OUT,
        "FINISHED --abort--> ABORTED",
        added(Row(S.FINISHED, T.ABORT, Guard(""), S.ABORTED, ReasonFrom.EVENT)),
    ),
    "a capped turn continues": Fault(
        NO_WAY_OUT, "CAP_HIT --proceed--> CHECK", added(Row(S.CAP_HIT, T.PROCEED, Guard(""), S.CHECK))
    ),
    # 3. No state is a trap.
    "CONTINUE continues with itself": Fault(
        NO_TRAP,
        "CONTINUE is a trap: only CONTINUE --proceed--> CONTINUE",
        changed(CONTINUES, dest=S.CONTINUE),
    ),
    "CONTINUE has no way on": Fault(NO_TRAP, "CONTINUE is a trap: no row leaves it", without(CONTINUES)),
    "a conclusion is asked for again and again": Fault(
        NO_TRAP,
        "CONCLUDE is a trap: only CONCLUDE --attempt_failed [retries_left > 0 and may_pass]--> CONCLUDE,"
        " CONCLUDE --attempt_failed [carried_doom]--> CONCLUDE",
        changed(CONCLUDE_FAILS, CONCLUDE_FAILS_DOOMED, CONCLUDED, CONCLUDED_DOOMED, dest=S.CONCLUDE),
    ),
    "a compaction follows the other": Fault(
        NO_TRAP,
        "COMPACT is a trap: only COMPACT --compacted [tokens_spent]--> COMPACT,",
        changed(
            "COMPACT --compacted [tokens_spent]--> CONCLUDE",
            "COMPACT --compacted [cost_spent]--> CONCLUDE",
            COMPACTED,
            "COMPACT --attempt_failed--> STREAM",
            "COMPACT --expire--> CONCLUDE",
            dest=S.COMPACT,
        ),
    ),
    # 4. Every pair is decided.
    "a guardrail trips while a person is asked": Fault(
        DECIDED,
        "PAUSED --tripped--> FAILED is declared illegal: only a person acts in it",
        added(Row(S.PAUSED, T.TRIPPED, Guard(""), S.FAILED, R.GUARDRAIL)),
    ),
    "a request that is too long is not expected": Fault(
        DECIDED, "STREAM --oversized--> has no row, and is not declared illegal", without(COMPACTS)
    ),
    "a conclusion that fails has no rows": Fault(
        DECIDED,
        "CONCLUDE --attempt_failed--> has no row, and is not declared illegal",
        without(CONCLUDE_RETRIES, CONCLUDE_FAILS_DOOMED, CONCLUDE_FAILS),
    ),
    "a paused turn cannot be aborted": Fault(
        DECIDED, "PAUSED --abort--> has no row", without("PAUSED --abort--> ABORTED")
    ),
    "a paused turn expires": Fault(
        DECIDED,
        "PAUSED --expire--> CONCLUDE is declared illegal: only a person acts in it",
        added(Row(S.PAUSED, T.EXPIRE, Guard(""), S.CONCLUDE, R.DEADLINE)),
    ),
    "somebody aborts a transient state": Fault(
        DECIDED,
        "CHECK --abort--> ABORTED is declared illegal: the machine leaves it by itself",
        added(Row(S.CHECK, T.ABORT, Guard(""), S.ABORTED, ReasonFrom.EVENT)),
    ),
    "a pair is not declared": Fault(
        DECIDED,
        "STREAM --answered--> has no row, and is not declared illegal",
        illegal=ILLEGAL | {S.STREAM: Refused((T.PROCEED, T.SETTLED, T.CONCLUDED), "x")},
    ),
    "a state is not declared at all": Fault(
        DECIDED,
        "TEXT_ONLY --proceed--> has no row, and is not declared illegal",
        illegal={state: refused for state, refused in ILLEGAL.items() if state is not S.TEXT_ONLY},
    ),
    "a pair with rows is declared": Fault(
        DECIDED,
        "STREAM --replied [filtered]--> FAILED is declared illegal: x",
        illegal=ILLEGAL | {S.STREAM: Refused((*ILLEGAL[S.STREAM].triggers, T.REPLIED), "x")},
    ),
    # 5. Every pair ends in a fallback.
    "a failed attempt has no fallback": Fault(FALLBACK, OVERFLOWS, without(FAILS)),
    "a review has no fallback": Fault(
        FALLBACK, "REVIEW --reviewed [truncated]--> FINISHED", without("REVIEW --reviewed--> FINISHED")
    ),
    "a settled batch has no fallback": Fault(FALLBACK, SYNTHESIZED, without(SETTLES)),
    "the fallback has a guard": Fault(
        FALLBACK, "CHECK --proceed [not spent]--> STREAM", changed(STARTS, guard="not spent")
    ),
    # 6. No row is shadowed.
    "a fallback precedes a guarded row": Fault(
        NOT_SHADOWED,
        "STREAM --replied [truncated]--> FINISHED is never",
        swapped("STREAM --replied [truncated]--> FINISHED", ANSWERS),
    ),
    "an earlier guard implies a later one": Fault(
        NOT_SHADOWED, "CHECK --proceed [doom]--> PAUSED", changed(NOBODY, guard="doom")
    ),
    "earlier guards together imply a later one": Fault(
        NOT_SHADOWED,
        "CHECK --proceed [spent]--> PAUSED",
        changed("CHECK --proceed [doom]--> PAUSED", guard="spent"),
    ),
    "a row stands twice": Fault(NOT_SHADOWED, f"{CALLS} is never", added(ROWS[place(CALLS)], after=CALLS)),
    "a guard that cannot hold": Fault(
        NOT_SHADOWED,
        "TOOL_EXEC --settled [synthesized and not synthesized]--> SYNTHESIS_DONE",
        changed(SYNTHESIZED, guard="synthesized and not synthesized"),
    ),
    # 7. Every cycle ends.
    "CONTINUE leads to STREAM without counting": Fault(
        CYCLES_END,
        f"{CALLS}, {SETTLES}, CONTINUE --proceed--> STREAM",
        changed(CONTINUES, dest=S.STREAM),
    ),
    "a reply with calls asks again": Fault(
        CYCLES_END, "STREAM --replied [made > 0]--> STREAM", changed(CALLS, dest=S.STREAM)
    ),
    "a refused reply is reviewed again": Fault(
        CYCLES_END, f"nothing ends this cycle: {REFUSED.replace('CONTINUE', 'REVIEW')}", changed(REFUSED, dest=S.REVIEW)
    ),
    "a compacted conversation is compacted": Fault(
        CYCLES_END, "COMPACT --compacted--> COMPACT", changed(COMPACTED, dest=S.COMPACT)
    ),
    "a settled batch runs again": Fault(
        CYCLES_END, "TOOL_EXEC --settled--> TOOL_EXEC", changed(SETTLES, dest=S.TOOL_EXEC)
    ),
    "a batch whose time is up is streamed again": Fault(
        CYCLES_END,
        f"{CALLS}, TOOL_EXEC --expire--> STREAM",
        changed("TOOL_EXEC --expire--> CONCLUDE", dest=S.STREAM, reason=None),
    ),
    "an abort leaves the turn paused": Fault(
        CYCLES_END, "PAUSED --abort--> PAUSED", changed("PAUSED --abort--> ABORTED", dest=S.PAUSED)
    ),
    "CHECK asks itself": Fault(
        CYCLES_END,
        "CHECK --proceed [tokens_spent]--> CHECK",
        changed("CHECK --proceed [tokens_spent]--> CONCLUDE", dest=S.CHECK, reason=None),
    ),
    # 8. Nothing is spent that is not left.
    "a reply is refused without a bound": Fault(
        NOT_OVERSPENT,
        "REVIEW --reviewed [refused]--> CONTINUE is taken even if not: an output retry is left (",
        changed(REFUSED, guard="refused"),
    ),
    "an overflow is compacted without a bound": Fault(
        NOT_OVERSPENT,
        "STREAM --attempt_failed [overflow]--> COMPACT is taken even if not: a compaction is left (",
        changed(OVERFLOWS, guard="overflow"),
    ),
    "the machine compacts without asking": Fault(
        NOT_OVERSPENT,
        f"{COMPACTS} is taken even if not: a compaction is left (",
        assumed=tuple(assumption for assumption in ASSUMED if assumption.trigger is not T.OVERSIZED),
    ),
    "the step cap is not looked at": Fault(
        NOT_OVERSPENT, f"{STARTS} is taken even if not: a step is left (", without(CAPPED)
    ),
    "spent tokens are not looked at": Fault(
        NOT_OVERSPENT,
        f"{STARTS} is taken even if not: no budget is spent (",
        without("CHECK --proceed [tokens_spent]--> CONCLUDE"),
    ),
    "a nudge is given though none is left": Fault(
        NOT_OVERSPENT,
        "CHECK --proceed [doom and not spent]--> STREAM is taken even if not: no doom loop or a nudge is left",
        changed(NUDGES, guard="doom and not spent"),
    ),
    "a doom loop asks though no pause is left": Fault(
        NOT_OVERSPENT,
        "CHECK --proceed [doom]--> PAUSED is taken even if not: a pause is left",
        changed(NOBODY, guard="doom and (not doom_asks or spent)"),
    ),
    "a model call is retried without a bound": Fault(
        NOT_OVERSPENT,
        "STREAM --attempt_failed [may_pass]--> STREAM is taken even if not: a retry is left (",
        changed(RETRIES, guard="may_pass"),
    ),
    "a text-only call is retried without a bound": Fault(
        NOT_OVERSPENT, "TEXT_ONLY --attempt_failed [may_pass]", changed(TEXT_RETRIES, guard="may_pass")
    ),
    "a conclusion is retried without a bound": Fault(
        NOT_OVERSPENT, "CONCLUDE --attempt_failed [may_pass]", changed(CONCLUDE_RETRIES, guard="may_pass")
    ),
    "a batch that waits for nobody pauses": Fault(
        NOT_OVERSPENT,
        "TOOL_EXEC --settled--> PAUSED is taken even if not: a pause is left",
        changed(SETTLES, dest=S.PAUSED),
    ),
    "a pause waits for nobody": Fault(
        NOT_OVERSPENT,
        "PAUSED --answered--> PAUSED is taken even if not: a person is waited for",
        changed(ANSWERED, dest=S.PAUSED),
    ),
    # 9. Reasons.
    "an answer has no reason": Fault(REASONED, f"{ANSWERS} names no reason", changed(ANSWERS, reason=None)),
    "an answer has another end's reason": Fault(
        REASONED, f"{ANSWERS} names the reason aborted, which does not fit", changed(ANSWERS, reason=R.ABORTED)
    ),
    "a filtered reply is an answer": Fault(
        REASONED,
        "STREAM --replied [filtered]--> FINISHED names the reason content_filter",
        changed("STREAM --replied [filtered]--> FAILED", dest=S.FINISHED),
    ),
    "a reply brings no cause": Fault(
        REASONED,
        "STREAM --replied [filtered]--> FAILED names the reason the cause",
        changed("STREAM --replied [filtered]--> FAILED", reason=ReasonFrom.CAUSE),
    ),
    "a failure of the engine is nobody's abort": Fault(
        REASONED,
        "STREAM --fail--> FAILED names the reason aborted or superseded",
        changed("STREAM --fail--> FAILED", reason=ReasonFrom.EVENT),
    ),
    "a deadline is nobody's abort": Fault(
        REASONED,
        "STREAM --expire--> ABORTED names the reason aborted or superseded, which does not fit",
        changed("STREAM --expire--> CONCLUDE", dest=S.ABORTED, reason=ReasonFrom.EVENT),
    ),
    "nothing is carried before a conclusion": Fault(
        REASONED, f"{ANSWERS} names the reason carried", changed(ANSWERS, reason=ReasonFrom.CARRIED)
    ),
    "a conclusion is entered without a reason": Fault(
        REASONED, f"{CAPPED} names no reason", changed(CAPPED, reason=None)
    ),
    "a conclusion is entered for an answer": Fault(
        REASONED,
        "STREAM --expire--> CONCLUDE names the reason answered, which does not fit",
        changed("STREAM --expire--> CONCLUDE", reason=R.ANSWERED),
    ),
    "a conclusion is entered for a limit that is not reached": Fault(
        REASONED, f"{CAPPED} names the reason cost, which is not reached (", changed(CAPPED, reason=R.COST)
    ),
    "two limits are mixed up": Fault(
        REASONED,
        "CHECK --proceed [cost_spent]--> CONCLUDE names the reason tokens, which is not reached (",
        changed("CHECK --proceed [tokens_spent]--> CONCLUDE", guard="cost_spent"),
    ),
    "a step that continues has a reason": Fault(
        REASONED,
        f"{SETTLES} names the reason synthesized without an ending",
        changed(SETTLES, reason=R.SYNTHESIZED),
    ),
    "a repeated conclusion drops its reason": Fault(
        REASONED, f"{CONCLUDE_RETRIES} drops the reason", changed(CONCLUDE_RETRIES, reason=None)
    ),
    "a repeated conclusion has a reason of its own": Fault(
        REASONED, f"{CONCLUDE_RETRIES} drops the reason", changed(CONCLUDE_RETRIES, reason=R.DEADLINE)
    ),
    "a failed conclusion fails the turn": Fault(
        REASONED,
        "CONCLUDE --attempt_failed--> FAILED carries a reason that does not fit",
        changed(CONCLUDE_FAILS, dest=S.FAILED),
    ),
    "a doom loop ends as a cap": Fault(
        REASONED,
        f"{CONCLUDED} carries a reason that does not fit (retries_left = 0, carried_doom = 1,",
        without(CONCLUDED_DOOMED),
    ),
    # Earlier charts did not end. Their first fault is below.
    "historic: a call asks again without a bound": Fault(
        NOT_OVERSPENT,
        f"{WAITS} is taken even if not: a pause is left (pauses_left = 0, waiting = 1",
        assumed=(),
    ),
    "historic: a nudge runs past a spent budget": Fault(
        NOT_OVERSPENT,
        "CHECK --proceed [doom and nudges_left > 0]--> STREAM is taken even if not: no budget is spent (",
        changed(NUDGES, guard="doom and nudges_left > 0"),
    ),
    "historic: a failed conclusion has no row left": Fault(
        FALLBACK, f"{CONCLUDE_FAILS_DOOMED} is the last of its pair", without(CONCLUDE_FAILS)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_planted_fault_is_refused_by_the_matching_claim(name: str) -> None:
    fault, checks = FAULTS[name], checks_of(name)
    refused = checks[fault.claim - 1]
    assert (refused.claim, refused.verdict) == (SHIPS[fault.claim - 1].claim, Verdict.VIOLATED)
    assert fault.says in refused.detail


@pytest.mark.slow
def test_every_claim_refuses_a_fault_accepted_by_the_others() -> None:
    """Each refuses two faults or more, and one of them nobody else sees; but a trap always has another fault."""
    alone = dict.fromkeys(range(1, 10), 0)
    faults = dict.fromkeys(range(1, 10), 0)
    for name, fault in FAULTS.items():
        violated = [number for number, check in enumerate(checks_of(name), 1) if check.verdict is Verdict.VIOLATED]
        faults[fault.claim] += 1
        alone[fault.claim] += violated == [fault.claim]
    assert min(faults.values()) >= 2
    assert [claim for claim, count in alone.items() if not count] == [NO_TRAP]


def test_answer_leading_to_check_passes_the_lint() -> None:
    """The first historic fault: no longer endless, since each pause is counted, and so no fault of the table.

    That it leaves a call without a result, the walk finds (`test_verify.py`).
    """
    assert worst(lint(changed(ANSWERED, dest=S.CHECK))) is Verdict.HOLDS


def test_endless_cycle_is_shown_from_the_beginning() -> None:
    rows = changed(CONTINUES, dest=S.STREAM)
    witness = lint(rows)[CYCLES_END - 1].witness
    assert witness == (NUDGES, CALLS, SETTLES, "CONTINUE --proceed--> STREAM")


@pytest.mark.slow
def test_fault_inside_an_endless_part_hides_no_other() -> None:
    """A state may have one loop that ends and one that does not; each part of the chart is judged by itself."""
    rows = changed(CALLS, "CHECK --proceed [allowance == 0 or no_calls]--> TEXT_ONLY", dest=S.STREAM)
    rows += (Row(S.TEXT_ONLY, T.EXPIRE, Guard(""), S.TEXT_ONLY),)
    detail = lint(rows)[CYCLES_END - 1].detail
    assert detail == (
        "nothing ends this cycle: STREAM --replied [made > 0]--> STREAM;"
        " nothing ends this cycle: TEXT_ONLY --expire--> TEXT_ONLY"
    )


# What is declared is what runs.


class Model:
    """The model that the chart moves."""

    def __init__(self, state: State) -> None:
        self.state = state


@pytest.mark.parametrize("state", list(State))
def test_chart_refuses_exactly_the_declared_triggers(state: State) -> None:
    """In a final state, everything. A refused trigger changes nothing."""
    counters, refused = Counters(Limits()), set[Trigger]()
    for trigger in Trigger:
        model = Model(state)
        try:
            row = CHART.fire(model, trigger, counters)
        except IllegalInputError:
            refused.add(trigger)
            assert model.state is state, trigger
        else:
            assert row.dest is model.state, trigger
    assert refused == set(Trigger if state in FINAL else ILLEGAL[state].triggers)


def test_every_declaration_has_a_reason() -> None:
    assert set(ILLEGAL) == set(State) - FINAL
    assert all(refused.why and len(set(refused.triggers)) == len(refused.triggers) for refused in ILLEGAL.values())


def test_every_pair_of_the_table_is_checked_once() -> None:
    declared = [(state, trigger) for state, refused in ILLEGAL.items() for trigger in refused.triggers]
    with_rows = {(row.source, row.trigger) for row in ROWS}
    assert sorted([*declared, *with_rows]) == sorted(product([state for state in State if state not in FINAL], Trigger))


rows = st.builds(
    Row,
    st.sampled_from(State),
    st.sampled_from(Trigger),
    st.sampled_from(sorted({row.guard for row in ROWS}, key=lambda guard: guard.text)),
    st.sampled_from(State),
    st.sampled_from([None, *EndReason, *ReasonFrom]),
)


@given(st.lists(rows, max_size=12).map(tuple))
def test_any_table_gets_nine_verdicts(table: Rows) -> None:
    """Nothing that a table may hold breaks the lint; and no table of a dozen rows passes."""
    checks = lint(table)
    assert [check.claim for check in checks] == [check.claim for check in SHIPS]
    assert worst(checks) is Verdict.VIOLATED
