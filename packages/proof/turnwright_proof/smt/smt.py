"""The inductive proof for all limits: the obligations of the one table, checked by one or two solvers.

A query asks for a counterexample, so `unsat` proves it. No answer in time is inconclusive, and so are two solvers that
disagree. A counterexample is one to induction: its configuration need not be reachable (docs/evidence.md).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from turnwright_proof.moves import ALL_FLAGS, CHOSEN, after_event, after_row, assign_all
from turnwright_proof.texts import evaluate
from turnwright_proof.theorems import CHANGING, CONSTANTS
from turnwright_states.verdict import Check, Verdict

from .obligations import GROUPS, NAMES, Group, Query, System, Transition, definitions
from .solvers import Solver, find_solvers
from .terms import declare, words

_SHIPPED: Final = System()
#: The extra names of the queries about loops and about the allowance.
_MORE: Final = (
    *(f"{name}_0" for name in CHANGING),
    "answered",
    "asked",
    "no_steps",
    "ceiling",
    "after",
    "cap",
    "left",
    "left_next",
    "worth",
)
#: The largest numbers of a counterexample, tried in this order, because small ones read best.
_SMALL: Final = (1, 2, 3, 5, 9)
_HEAD: Final = """\
; {claim}.
; Made by `turnwright verify --smt-export` from the one table (docs/evidence.md). Edit that, not this.
; z3 and cvc5 read it: each `check-sat` must give the answer above it.
"""


def each_smt_check(
    system: System = _SHIPPED,
    *,
    seconds: float = 30,
    only: Collection[str] = (),
    solvers: Sequence[Solver] | None = None,
) -> Iterator[Check]:
    """Return an iterator over one check for each group of obligations, each once all solvers have answered.

    `seconds` limits one query. `only` names the groups; empty means all. `solvers` are z3 and, if it is installed,
    cvc5; only tests pass others. Raises `ConfigError` if z3 is missing.
    """
    all_solvers = find_solvers(seconds) if solvers is None else solvers
    return (_check_group(group, system, all_solvers) for group in GROUPS if not only or group.name in only)


def to_smt(group: Group) -> str:
    """Return all queries of a group as one SMT-LIB text, the same each time."""
    queries = list(group.queries(_SHIPPED))
    bodies = [
        line
        for query in queries
        for line in (f"; {query.name}", f"; {query.expected}", "(push 1)", *query.lines(), "(pop 1)")
    ]
    return _HEAD.format(claim=group.claim) + "\n".join([*_prelude(bodies), *bodies]) + "\n"


def export(where: Path) -> list[Path]:
    """Write each group to a file of a directory, which is made if it is missing. Return the files."""
    where.mkdir(parents=True, exist_ok=True)
    files = {where / f"{group.name}.smt2": to_smt(group) for group in GROUPS}
    for file, text in files.items():
        file.write_text(text, encoding="utf-8")
    return list(files)


@cache
def _definitions() -> tuple[tuple[str, str], ...]:
    return tuple(definitions())


def _prelude(lines: Sequence[str]) -> Iterator[str]:
    """Yield the logic, and the declarations and definitions that the lines need."""
    terms = [line for line in lines if line[0] != ";"]
    used_words = frozenset[str]().union(*map(words, terms))
    definitions = {name: term for name, term in _definitions() if name in used_words}
    known_words = used_words.union(*map(words, definitions.values()))
    multiplies = "credit" in known_words or any("(* " in term for term in terms)
    yield "(set-logic QF_NIA)" if multiplies else "(set-logic QF_LIA)"
    yield from (declare(name) for name in (*NAMES, *_MORE) if name in known_words)
    yield from (f"(define-fun {name} () Bool {term})" for name, term in definitions.items())


def _script(query: Query, *more_lines: str) -> str:
    *asserts, check = query.lines()
    lines = [*asserts, *more_lines, check]
    return "\n".join([*_prelude(lines), *lines]) + "\n"


def _check_group(group: Group, system: System, solvers: Sequence[Solver]) -> Check:
    queries = list(group.queries(system))
    seconds_by_solver = dict.fromkeys((solver.name for solver in solvers), 0.0)
    for query in queries:
        script, verdicts = _script(query), {}
        for solver in solvers:
            answer = solver.solve(script)
            seconds_by_solver[solver.name] += answer.seconds
            verdicts[solver.name] = answer.verdict
        if set(verdicts.values()) != {query.expected}:
            return _make_failed_check(group, query, verdicts, solvers[0])
    times = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in seconds_by_solver.items())
    agree = "; both agree" if len(solvers) > 1 else ""
    number = "1 query" if len(queries) == 1 else f"{len(queries)} queries"
    return Check(f"{group.name}: {group.claim}", Verdict.HOLDS, f"{number}; {times}{agree}")


def _make_failed_check(group: Group, query: Query, verdicts: Mapping[str, str], solver: Solver) -> Check:
    claim = f"{group.name}: {group.claim}"
    if len({*verdicts.values()}) > 1 or "unknown" in verdicts.values():
        answers = ", ".join(f"{name} says {answer}" for name, answer in verdicts.items())
        return Check(claim, Verdict.INCONCLUSIVE, f"{query.name}: {answers}")
    if not query.goals:
        return Check(claim, Verdict.VIOLATED, f"not so: {query.name}")
    return Check(
        claim, Verdict.VIOLATED, f"{query.name}: not inductive: it may be unreachable", _witness(query, solver)
    )


def _witness(query: Query, solver: Solver) -> tuple[str, ...]:
    """Return the goal that fails, and a small configuration that shows it, in words."""
    query_words = _all_words(query)
    names = [name for name in (*NAMES, *_MORE) if name in query_words]
    for goal in query.goals:
        failing = query._replace(goals=(goal,))
        answer = solver.solve(_script(failing), names)
        if answer.verdict != "sat":
            continue
        for most in _SMALL:
            small = [f"(assert (<= (- {most}) {name} {most}))" for name in names if "Int" in declare(name)]
            small_answer = solver.solve(_script(failing, *small), names)
            if small_answer.verdict == "sat":
                answer = small_answer
                break
        return (f"not: {goal[0]}", *_words_of(query.transition, answer.values))
    return ()


def _all_words(query: Query) -> frozenset[str]:
    used_words = frozenset[str]().union(*map(words, query.lines()))
    return used_words.union(*(words(term) for name, term in _definitions() if name in used_words))


def _words_of(transition: Transition | None, values: Mapping[str, int]) -> Iterator[str]:
    yield f"limits: {_show_values(values, CONSTANTS)}"
    if transition is None:
        yield _show_values(values, [name for name in values if name not in CONSTANTS])
        return
    yield f"in {transition.source}: {_show_values(values, CHANGING)}"
    trigger = transition.row.trigger if transition.row is not None else ""
    yield f"{transition.move.name if transition.move is not None else trigger}: {_show_values(values, CHOSEN)}"
    after = _after(transition, {**dict.fromkeys(NAMES, 0), **values})
    changes = ", ".join(f"{name} = {int(after[name])}" for name in CHANGING if int(after[name]) != values.get(name, 0))
    yield f"then {transition.dest}: {changes or 'nothing changes'}"


def _after(transition: Transition, values: Mapping[str, int]) -> Mapping[str, int]:
    move = transition.move
    if move is None:
        return values
    if transition.row is None:
        return after_event(move, values, _value)
    return after_row(transition.row, assign_all(move.before, values, _value), _value)


def _value(name: str, text: str, values: Mapping[str, int]) -> int:
    value = evaluate(text, values)
    return bool(value) if name in ALL_FLAGS else value


def _show_values(values: Mapping[str, int], names: Sequence[str]) -> str:
    return ", ".join(f"{name} = {values[name]}" for name in names if values.get(name)) or "nothing else than 0"
