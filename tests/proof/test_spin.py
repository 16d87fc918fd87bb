"""SPIN on the chart that ships, and on charts and surroundings with a fault in them.

A C program is compiled for each fault: they take some twenty seconds together.
"""

import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from turnwright.draw.promela import CLAIMS, Bounds, to_promela
from turnwright.proof import CHECKS, verify_with_spin
from turnwright.proof.pan import NoAnswerError, Pan, find
from turnwright_states.chart import CHART, ROWS, Chart, Row
from turnwright_states.guards import Guard
from turnwright_states.reasons import EndReason
from turnwright_states.state import State, Trigger
from turnwright_states.verdict import Check, Verdict

#: Large enough that the chart that ships takes every row.
WHOLE: Final = Bounds(allowance=2, budget=1, retries=1, pauses=1, nudges=1, batch=2)
TINY: Final = Bounds(allowance=1, budget=1, retries=1, pauses=1, nudges=1, batch=1)
TWO_STEPS: Final = Bounds(allowance=2, budget=1, retries=0, pauses=1, nudges=1, batch=1)

needs_spin = pytest.mark.skipif(
    shutil.which("spin") is None or not any(map(shutil.which, ("cc", "gcc", "clang"))),
    reason="needs SPIN and a C compiler (`apt-get install spin gcc`)",
)


def checked(rows: tuple[Row, ...], bounds: Bounds, *only: str) -> dict[str, Check]:
    """The checks by their names."""
    says = {sentence: name for name, sentence in CHECKS.items()}
    checks = verify_with_spin(Chart(rows), bounds=bounds, only=only, optimize=False)
    return {says[check.claim]: check for check in checks}


@needs_spin
def test_the_chart_that_ships_holds() -> None:
    """Every claim holds over thousands of states, and every row is taken."""
    checks = checked(CHART.rows, WHOLE)
    assert list(checks) == list(CHECKS)
    assert {check.verdict for check in checks.values()} == {Verdict.HOLDS}, checks
    for check in checks.values():
        assert "states" in check.detail
        assert check.witness == ()
    assert f"{len(ROWS)} rows" in checks["rows"].detail


# Planted in the chart.


def place(source: State, trigger: Trigger, guard: str) -> int:
    (at,) = (i for i, row in enumerate(ROWS) if (row.source, row.trigger, row.guard.text) == (source, trigger, guard))
    return at


def dropped(source: State, trigger: Trigger, guard: str) -> tuple[Row, ...]:
    at = place(source, trigger, guard)
    return (*ROWS[:at], *ROWS[at + 1 :])


def led(source: State, trigger: Trigger, guard: str, dest: State) -> tuple[Row, ...]:
    at = place(source, trigger, guard)
    return (*ROWS[:at], ROWS[at]._replace(dest=dest), *ROWS[at + 1 :])


def guarded(source: State, trigger: Trigger, guard: str, other: str) -> tuple[Row, ...]:
    at = place(source, trigger, guard)
    return (*ROWS[:at], ROWS[at]._replace(guard=Guard(other)), *ROWS[at + 1 :])


@dataclass(frozen=True)
class Fault:
    """A chart with a fault, the checks that it violates, the last row of the path to it, and the detail."""

    rows: tuple[Row, ...]
    violates: tuple[str, ...]
    ends_with: str
    bounds: Bounds = TINY
    says: str = ""


S, T = State, Trigger
NOBODY: Final = "doom and (not doom_asks or pauses_left == 0 or spent)"
FAULTS: Final = {
    # Faults that docs/rules.md#termination excludes; one more is planted in the environment below.
    "an answer leads to CHECK without counting": Fault(
        led(S.PAUSED, T.ANSWERED, "", S.CHECK), ("closed_steps_are_settled",), "PAUSED --answered--> CHECK"
    ),
    "a nudge runs past a spent budget": Fault(
        guarded(S.CHECK, T.PROCEED, "doom and nudges_left > 0 and not spent", "doom and nudges_left > 0"),
        ("no_step_on_a_spent_budget",),
        "CHECK --proceed [doom and nudges_left > 0]--> STREAM",
        TWO_STEPS,
    ),
    "a failed conclusion has no row left": Fault(
        dropped(S.CONCLUDE, T.ATTEMPT_FAILED, ""),
        ("ends", "every_event_finds_a_row", "deadlock"),
        "CHECK --proceed [steps >= allowance]--> CONCLUDE",
        says="; then attempt_failed finds no row",
    ),
    # Others.
    "CONTINUE leads back to STREAM": Fault(
        led(S.CONTINUE, T.PROCEED, "", S.STREAM),
        ("ends", "model_calls_within_formula"),
        "CONTINUE --proceed--> STREAM",
    ),
    "a model call is retried without a bound": Fault(
        guarded(S.STREAM, T.ATTEMPT_FAILED, "retries_left > 0 and may_pass", "may_pass"),
        ("ends", "nothing_is_overdrawn"),
        "STREAM --attempt_failed [may_pass]--> STREAM",
    ),
    "a text-only call is retried without a bound": Fault(
        guarded(S.TEXT_ONLY, T.ATTEMPT_FAILED, "retries_left > 0 and may_pass", "may_pass"),
        ("ends",),
        "TEXT_ONLY --attempt_failed [may_pass]--> TEXT_ONLY",
        Bounds(allowance=0, budget=0, retries=0, pauses=0, nudges=0, batch=1),
        says="; the last row repeats without end",
    ),
    "a conclusion without text is asked for again and again": Fault(
        guarded(
            S.CONCLUDE,
            T.CONCLUDED,
            "no_text and retries_left > 0 and not second_try",
            "no_text and retries_left > 0",
        ),
        ("asked_again_once",),
        "CONCLUDE --concluded [no_text and retries_left > 0]--> CONCLUDE",
        Bounds(allowance=1, budget=1, retries=2, pauses=0, nudges=0, batch=1),
    ),
    "the step cap is not looked at": Fault(
        dropped(S.CHECK, T.PROCEED, "steps >= allowance"), ("steps_within_allowance",), "CHECK --proceed--> STREAM"
    ),
    "a spent budget is not looked at": Fault(
        dropped(S.CHECK, T.PROCEED, "calls_spent"),
        ("no_step_on_a_spent_budget",),
        "CHECK --proceed--> STREAM",
        TWO_STEPS,
    ),
    "a doom loop asks though no pause is left": Fault(
        guarded(S.CHECK, T.PROCEED, NOBODY, "doom and (not doom_asks or spent)"),
        ("nothing_is_overdrawn",),
        "CHECK --proceed [doom]--> PAUSED",
        TWO_STEPS,
    ),
    "the answer of a call is not looked at": Fault(
        dropped(S.TOOL_EXEC, T.SETTLED, "final"),
        ("nothing_follows_an_answer",),
        "CHECK --proceed [steps >= allowance]--> CONCLUDE",
    ),
    "a reply is refused without a bound": Fault(
        guarded(S.REVIEW, T.REVIEWED, "refused and output_retries_left > 0", "refused"),
        ("nothing_is_overdrawn",),
        "REVIEW --reviewed [refused]--> CONTINUE",
    ),
    "an overflow is compacted without a bound": Fault(
        guarded(S.STREAM, T.ATTEMPT_FAILED, "overflow and compactions_left > 0", "overflow"),
        ("nothing_is_overdrawn", "ends"),
        "STREAM --attempt_failed [overflow]--> COMPACT",
    ),
    "a final state has a way out": Fault(
        (*ROWS, Row(S.FINISHED, T.ABORT, Guard(""), S.ABORTED, EndReason.ABORTED)),
        ("stays_ended",),
        "FINISHED --abort--> ABORTED",
    ),
    "a filtered reply is an answer": Fault(
        led(S.STREAM, T.REPLIED, "filtered", S.FINISHED),
        ("reasons_fit_their_outcomes",),
        "STREAM --replied [filtered]--> FINISHED",
    ),
}


@needs_spin
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_the_chart_comes_back_as_a_path_of_its_rows(name: str) -> None:
    """Rows that fit together, from the beginning to the fault; and the limits of that turn."""
    fault = FAULTS[name]
    for check in checked(fault.rows, fault.bounds, *fault.violates).values():
        assert check.verdict is Verdict.VIOLATED, check
        assert re.match(
            r"allowance \d, (budget \d|no budget), max_retries \d, max_pauses \d, nudges \d, ", check.detail
        )
        assert fault.says in check.detail
        numbers, names = zip(*(step.split(". ", 1) for step in check.witness), strict=True)
        rows = [fault.rows[int(number) - 1] for number in numbers]
        assert list(names) == [row.name for row in rows]
        assert rows[0].source is State.CHECK
        assert [before.dest for before, _ in pairwise(rows)] == [after.source for _, after in pairwise(rows)]
        repeats = re.search(r"; the last (?:(\d+) rows repeat|row repeats) without end$", check.detail)
        # A path that repeats may be cut anywhere; any other path ends at the fault.
        assert fault.ends_with in names[-int(repeats[1] or 1) if repeats else -1 :]


@needs_spin
def test_a_row_that_is_never_taken_is_no_pass() -> None:
    """A shadowed row, and a row for an event that never comes."""
    at = place(S.CHECK, T.PROCEED, "doom")
    shadowed = Row(S.CHECK, T.PROCEED, Guard("steps >= allowance"), S.FAILED, EndReason.ENGINE_ERROR)
    unheard = Row(S.PAUSED, T.EXPIRE, Guard(""), S.CONCLUDE, EndReason.DEADLINE)
    check = checked((*ROWS[:at], shadowed, *ROWS[at:], unheard), WHOLE, "rows")["rows"]
    assert check.verdict is Verdict.VIOLATED
    assert check.detail == f"no path takes {at + 1}. {shadowed.name}; {len(ROWS) + 2}. {unheard.name}"


# Planted in the environment: each claim needs each of these rules.


@pytest.fixture
def pan_of(tmp_path: Path) -> Callable[[str], Pan]:
    """A verifier of a model's text, without compiling for speed."""

    def build(model: str) -> Pan:
        return Pan(model, tmp_path / "pan", find(shutil.which), until=time.monotonic() + 120, optimize=False)

    return build


def instead(there: str, other: str, bounds: Bounds = TINY) -> str:
    """Return the model of the shipped chart, with one line of its environment changed."""
    model = to_promela(bounds=bounds)
    assert model.count(there) == 1
    return model.replace(there, other)


@needs_spin
def test_without_fairness_a_turn_need_not_end(pan_of: Callable[[str], Pan]) -> None:
    """So the claim depends on fairness. A path that is cut off is not an answer."""
    pan = pan_of(to_promela(bounds=TINY))
    assert pan.search("ends", fair=True).fault == ""
    assert pan.search("ends", fair=False).fault == "acceptance cycle"
    with pytest.raises(NoAnswerError, match="longer than the search may go"):
        pan.search("ends", fair=True, depth=60)
    with pytest.raises(NoAnswerError, match="printed no report"):
        pan.search("begins")


@needs_spin
@pytest.mark.parametrize(
    ("there", "other", "claim", "fault"),
    [
        ("active proctype person()", "proctype person()", "ends", "acceptance cycle"),
        ("     take_one(pauses_left);\n", "", "ends", "acceptance cycle"),
        (
            "(made - answers < places_left -> made - answers : places_left)",
            "made",
            "calls_within_budget",
            "assertion violated",
        ),
        ("select (used : 0 .. lent)", "select (used : 0 .. lent + 1)", "calls_within_budget", "assertion violated"),
    ],
    ids=[
        *("a person who is gone", "a call that asks again without a bound", "places that nobody reserves"),
        "a stop that reports more calls than the lease",
    ],
)
def test_a_fault_in_the_surroundings_is_found(
    pan_of: Callable[[str], Pan], there: str, other: str, claim: str, fault: str
) -> None:
    bounds = Bounds(allowance=1, budget=2, retries=0, pauses=1, nudges=0, batch=2)
    assert pan_of(instead(there, other, bounds)).search(claim, fair=claim == "ends").fault == fault


def test_every_check_can_fail() -> None:
    planted = {name for fault in FAULTS.values() for name in fault.violates}
    assert planted | {"calls_within_budget", "rows"} == set(CHECKS)
    assert set(CLAIMS) < set(CHECKS)


# Without an answer there is no pass.


def only_finds(**programs: str) -> Callable[[str], str | None]:
    return programs.get


def one(checks: tuple[Check, ...]) -> Check:
    (check,) = checks
    assert check.verdict is Verdict.INCONCLUSIVE
    assert check.witness == ()
    return check


def test_without_spin_nobody_knows() -> None:
    assert (
        "`spin` is not on PATH: install it (`apt-get install spin`" in one(verify_with_spin(which=only_finds())).detail
    )


def test_without_a_compiler_nobody_knows() -> None:
    check = one(verify_with_spin(which=only_finds(spin="spin")))
    assert "no C compiler (cc, gcc, clang) is on PATH: install it (`apt-get install gcc`" in check.detail


def test_a_chart_without_a_model_is_inconclusive() -> None:
    chart = Chart((Row(S.STREAM, T.REPLIED, Guard("doom"), S.FAILED), *ROWS))
    assert "reads `doom`" in one(verify_with_spin(chart, which=only_finds(spin="spin", cc="cc"))).detail


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], str]:
    """Make a program that runs a script of the test."""

    def write(script: str) -> str:
        path = tmp_path / "program"
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    return write


@pytest.mark.parametrize(
    ("script", "seconds", "why"),
    [
        ("echo 'turn.pml:7, syntax error'; exit 1", 60, "SPIN refused the model: turn.pml:7, syntax error"),
        ("exit 0", 60, "pan could not be run: No such file or directory"),
        ("exec sleep 60", 0.2, "the time ended before SPIN had searched every state"),
    ],
)
def test_a_spin_that_makes_no_verifier_is_inconclusive(
    program: Callable[[str], str], script: str, seconds: float, why: str
) -> None:
    """Also when neither it nor the compiler complains."""
    tools = only_finds(spin=program(script), cc=shutil.which("true") or "true")
    checks = verify_with_spin(bounds=TINY, seconds=seconds, which=tools)
    assert [check.claim for check in checks] == list(CHECKS.values())
    assert {(check.verdict, check.detail.split(": allow")[0]) for check in checks} == {(Verdict.INCONCLUSIVE, why)}


def test_when_the_time_is_up_nothing_that_spin_started_goes_on(program: Callable[[str], str], tmp_path: Path) -> None:
    """A program that still wrote would write into a directory that is being removed."""
    wanted, beat = tmp_path / "wanted", tmp_path / "beat"
    wanted.touch()
    spin = program(f"(while [ -e '{wanted}' ]; do touch '{beat}'; touch part; done) & wait")
    checks = verify_with_spin(only=["deadlock"], seconds=0.5, which=only_finds(spin=spin, cc="cc"))
    assert [check.verdict for check in checks] == [Verdict.INCONCLUSIVE]
    beat.unlink()
    time.sleep(0.1)
    survived = beat.exists()
    wanted.unlink()
    assert not survived


@needs_spin
def test_when_the_time_is_up_nobody_knows() -> None:
    checks = verify_with_spin(seconds=0)
    assert {check.verdict for check in checks} == {Verdict.INCONCLUSIVE}
    assert all("the time ended" in check.detail for check in checks)


def test_a_check_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="no such check: everything "):
        verify_with_spin(only=("everything",))
