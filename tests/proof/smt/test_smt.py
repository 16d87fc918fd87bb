"""The inductive proof for all limits: each planted fault of the table is refused.

`tests/proof/cli/test_verify_command.py` proves the chart that ships, with both solvers. The faults are those of the
lint and of the walk that change rows or guards, one more, and each effect without one of its assignments. The others
change the machine, the limits or the declared illegal pairs, which are not in the formulas: `ROWS` is theirs too.
"""

import runpy
from collections.abc import Sequence
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.proof.verify import test_lint, test_planted_faults

from turnwright.errors import ConfigError
from turnwright_proof.moves import ALL_FLAGS, APPLIED, MOVES
from turnwright_proof.smt import each_smt_check
from turnwright_proof.smt.obligations import GROUPS, NAMES, System
from turnwright_proof.smt.smt import export, to_smt
from turnwright_proof.smt.solvers import Z3, Answer, Cvc5, find_solvers
from turnwright_proof.smt.terms import declare, value_of, variables
from turnwright_proof.texts import evaluate
from turnwright_proof.theorems import INVARIANTS, LIMITS, START, claims_of, potential
from turnwright_states.chart import ROWS, Row
from turnwright_states.effects import Effect
from turnwright_states.guards import Guard
from turnwright_states.reasons import EndReason
from turnwright_states.state import State, Trigger
from turnwright_states.verdict import Check, Verdict

ROOT: Final = Path(__file__).parents[3]
HASHES: Final = runpy.run_path(str(ROOT / ".ci" / "hash_smt.py"))
COMMITTED: Final = (ROOT / "diagrams" / "smt.sha256").read_text("utf-8")


def both() -> tuple[Z3, Cvc5]:
    return Z3(import_module("z3"), 60), Cvc5(import_module("cvc5"), 60)


class Remembers:
    """z3, which is asked each question once: most questions about a fault are those about the chart that ships."""

    name = "z3"

    def __init__(self) -> None:
        self._z3 = both()[0]
        self._answers: dict[tuple[str, tuple[str, ...]], Answer] = {}

    def solve(self, script: str, names: Sequence[str] = ()) -> Answer:
        question = script, tuple(names)
        if question not in self._answers:
            self._answers[question] = self._z3.solve(script, names)
        return self._answers[question]


@pytest.fixture(scope="module")
def z3() -> Remembers:
    return Remembers()


def refused(system: System, z3: Remembers) -> Check:
    """The first check that does not hold."""
    checks = each_smt_check(system, solvers=[z3])
    return next(check for check in checks if check.verdict is not Verdict.HOLDS)


# Faults.


def with_guard(name: str, guard: str) -> tuple[Row, ...]:
    return tuple(row._replace(guard=Guard(guard)) if row.name == name else row for row in ROWS)


ASKS_AGAIN: Final = "CONCLUDE --concluded [no_text and retries_left > 0 and not second_try]--> CONCLUDE"
OF_ROWS: Final = {
    # Each path still ends, so only the invariant refuses it.
    "a conclusion is asked for again and again": with_guard(ASKS_AGAIN, "no_text and retries_left > 0"),
    **{
        f"{module.__name__.rpartition('.')[2]}: {name}": fault.rows
        for module in (test_planted_faults, test_lint)
        for name, fault in module.FAULTS.items()
        if fault.rows != ROWS
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_ROWS)
def test_planted_fault_in_a_row_is_refused(name: str, z3: Remembers) -> None:
    assert refused(System(rows=OF_ROWS[name]), z3).verdict is Verdict.VIOLATED


def test_planted_faults_are_numerous() -> None:
    assert len(OF_ROWS) > 100


#: Assignments without which every theorem still holds. Some set what is so by the invariants or by the input; without
#: the others less can happen, or a loop stays one. The walk and the tests of the rules are for them.
HARMLESS: Final = {
    ("step_started", "prepared"),
    *(("model_replied", name) for name in ("ready_counted", "running", "asking", "asking_counted", "answering")),
    *(("model_replied", name) for name in ("lent", "final", "doom")),
    ("step_finished", "doom"),
    *(("call_settled", "final"), ("answered", "waiting"), ("answered", "doom"), ("message_added", "doom")),
    ("model_replied", "crash_paid"),
    *((kind, "idle") for kind in ("step_finished", "call_started", "answered", "message_added")),
}
EFFECTS: Final = [(kind, name) for kind, effect in APPLIED.items() for name in effect.sets]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), EFFECTS)
def test_effect_without_an_assignment_is_refused(kind: str, name: str, z3: Remembers) -> None:
    effect = APPLIED[kind]
    less = Effect({variable: text for variable, text in effect.sets.items() if variable != name}, effect.reads)
    checks = each_smt_check(System(effects={**APPLIED, kind: less}), solvers=[z3])
    verdict = next((check.verdict for check in checks if check.verdict is not Verdict.HOLDS), Verdict.HOLDS)
    assert verdict is (Verdict.HOLDS if (kind, name) in HARMLESS else Verdict.VIOLATED)


def test_answer_dropping_a_question_is_refused(z3: Remembers) -> None:
    """The result of a call ends the turn although another call waits for a person."""
    rows = list(ROWS)
    place = next(at for at, row in enumerate(rows) if row.name == "TOOL_EXEC --settled [waiting > 0]--> PAUSED")
    rows[place : place + 2] = reversed(rows[place : place + 2])
    (check,) = each_smt_check(System(rows=tuple(rows)), only=("claims",), solvers=[z3])
    assert check.detail.startswith("no question to a person is left open: ")


def test_stop_with_a_wrong_reason_of_the_same_outcome_is_refused(z3: Remembers) -> None:
    """Both are reasons of the same outcome."""
    rows = tuple(row._replace(reason=EndReason.GUARDRAIL) if row.trigger is Trigger.FAIL else row for row in ROWS)
    (check,) = each_smt_check(System(rows=rows), only=("claims",), solvers=[z3])
    assert check.detail.startswith("a stop has its reason: ")


def test_counterexample_is_a_configuration_in_words() -> None:
    """With small numbers, and with the word that no turn need reach it."""
    rows = with_guard("STREAM --attempt_failed [retries_left > 0 and may_pass]--> STREAM", "may_pass")
    (check,) = each_smt_check(System(rows=rows), only=("keeps",), solvers=both()[:1])
    assert check.verdict is Verdict.VIOLATED
    assert check.detail.endswith("STREAM --attempt_failed [may_pass]--> STREAM: not inductive: it may be unreachable")
    goal, limits, here, event, after = check.witness
    assert goal == "not: retries are in range"
    assert limits.startswith("limits: ")
    assert here.startswith("in STREAM: ")
    assert "may_pass = 1" in event
    assert "retries_left = -1" in after


@pytest.mark.slow
def test_counterexample_of_a_move_inside_a_state_is_described() -> None:
    moves = tuple(move._replace(assume="running > 0") if move.name == "a call runs again" else move for move in MOVES)
    (check,) = each_smt_check(System(moves=moves), only=("rank",), solvers=both()[:1])
    assert check.detail.startswith("TOOL_EXEC: a call runs again: not inductive")
    assert check.witness[-1] == "then TOOL_EXEC: retries_left = -1"


@pytest.mark.slow
def test_row_without_a_taker_is_refused() -> None:
    rows = (*ROWS, Row(State.PAUSED, ROWS[0].trigger, Guard(""), State.CHECK))
    (check,) = each_smt_check(System(rows=rows), only=("happens",), solvers=both()[:1])
    assert (check.verdict, check.detail) == (
        Verdict.VIOLATED,
        f"not so: {len(ROWS) + 1}. PAUSED --proceed--> CHECK can happen",
    )


# Without an answer there is no pass.


class Says:
    """A solver that gives the same answer to everything."""

    def __init__(self, name: str, status: str) -> None:
        self.name, self._status = name, status

    def solve(self, script: str, names: Sequence[str] = ()) -> Answer:  # noqa: ARG002 (the protocol's signature)
        return Answer(self._status, 0.0)


@pytest.mark.parametrize(
    ("statuses", "detail"),
    [
        (("unknown",), "a turn begins in CHECK: one says unknown"),
        (("unsat", "unknown"), "a turn begins in CHECK: one says unsat, two says unknown"),
        (("unsat", "sat"), "a turn begins in CHECK: one says unsat, two says sat"),
    ],
)
def test_missing_and_contradicting_answers_are_inconclusive(statuses: tuple[str, ...], detail: str) -> None:
    solvers = [Says(name, status) for name, status in zip(("one", "two"), statuses, strict=False)]
    (check,) = each_smt_check(only=("start",), solvers=solvers)
    assert (check.verdict, check.detail) == (Verdict.INCONCLUSIVE, detail)


HARD: Final = """(set-logic QF_NIA)
(declare-const x Int) (declare-const y Int) (declare-const z Int)
(assert (= (+ (* x x x) (* y y y)) (* z z z))) (assert (> x 1)) (assert (> y 1)) (check-sat)
"""


def test_solver_without_time_returns_unknown() -> None:
    for solver in (Z3(import_module("z3"), 0.05), Cvc5(import_module("cvc5"), 0.05)):
        assert solver.solve(HARD).verdict == "unknown"


@pytest.mark.parametrize("place", [0, 1])
def test_solver_returns_values(place: int) -> None:
    script = "(set-logic QF_LIA)(declare-const x Int)(declare-const b Bool)(assert (and b (= x (- 3))))(check-sat)\n"
    assert both()[place].solve(script, ("x", "b")).values == {"x": -3, "b": 1}


def test_missing_solver_is_reported() -> None:
    def only(*names: str) -> ModuleType:
        if names[0] != "z3":
            raise ImportError
        return import_module("z3")

    def nothing(name: str) -> ModuleType:
        raise ImportError(name)

    assert [solver.name for solver in find_solvers(1, only)] == ["z3"]
    (check,) = each_smt_check(only=("start",), solvers=find_solvers(60, only))
    assert "agree" not in check.detail
    with pytest.raises(ConfigError, match=r"--smt needs the package z3-solver: pip install 'turnwright-proof\[smt\]'"):
        find_solvers(1, nothing)


# The formulas are what the texts say.

TEXTS: Final = (
    *dict.fromkeys(
        text
        for text in (
            *(LIMITS, START),
            *(invariant.text for invariant in INVARIANTS.values()),
            *(move.assume for move in MOVES),
            *(row.guard.expanded for row in ROWS),
            *(text for row in ROWS for _, text in claims_of(row)),
            *(potential(state) for state in State),
        )
    ),
)


@given(st.fixed_dictionaries({name: st.booleans() if name in ALL_FLAGS else st.integers(-2, 9) for name in NAMES}))
@settings(max_examples=5)
def test_translation_agrees_with_python(values: dict[str, int]) -> None:
    terms = variables(NAMES)
    lines = [declare(name) for name in NAMES]
    lines += [f"(assert (= {name} {smt(value)}))" for name, value in values.items()]
    same = [f"(= {value_of('', text, terms).number} {smt(evaluate(text, values))})" for text in TEXTS]
    lines += [f"(assert (not (and {' '.join(same)})))", "(check-sat)"]
    assert both()[0].solve("\n".join(lines)).verdict == "unsat"


def smt(value: int) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) if value >= 0 else f"(- {-value})"


# The files.


def test_committed_hashes_equal_the_exported_files(tmp_path: Path) -> None:
    """In the format of `sha256sum`. `make diagrams` writes them again."""
    files = export(tmp_path / "smt")
    assert "".join(f"{sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(files)) == COMMITTED


def test_hash_check_names_each_changed_formula() -> None:
    """A changed, a missing and an additional one."""
    changed_formulas = HASHES["changed_formulas"]
    first, second, *other_lines = COMMITTED.splitlines()
    wrong = [f"{'0' * 64}{first[64:]}", *other_lines, f"{'0' * 64}  old.smt2"]
    assert changed_formulas(COMMITTED) == []
    assert changed_formulas("\n".join(wrong)) == [first.split()[1], second.split()[1], "old.smt2"]


def test_exported_file_is_deterministic_and_states_the_expectation() -> None:
    start = to_smt(GROUPS[0])
    assert start == to_smt(GROUPS[0])
    assert "; unsat\n(push 1)" in start
