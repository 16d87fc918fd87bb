"""The obligations of the inductive proof, from the one table: for turns with any limits (docs/evidence.md).

A transition is a row of the chart or a move inside a state, from any configuration that satisfies the invariants. Its
effect, its precondition, the invariants and the claims are the texts of `turnwright_proof.moves` and
`turnwright_proof.theorems`; this module only combines them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from turnwright_proof.moves import (
    ANSWERING,
    APPLIED,
    CHOSEN,
    CLOSES,
    CLOSING,
    MOVES,
    OPEN,
    REFUSED_CALL,
    Follows,
    Move,
    after_event,
    after_row,
    assign_all,
    follow_fact,
)
from turnwright_proof.rank import RANK, rank_values
from turnwright_proof.theorems import (
    ALLOWANCE,
    ANSWERING_LOOP,
    BOUNDS,
    CAP,
    CEILING,
    CHANGING,
    CLOSING_LOOP,
    CONSTANTS,
    EVENTS,
    HERE,
    INVARIANTS,
    LIMITS,
    PROMISED_STEPS,
    START,
    WORTH,
    claims_of,
    potential,
)
from turnwright_states.chart import ROWS, Row
from turnwright_states.effects import Effect
from turnwright_states.state import FINAL, State

from .terms import Term, Terms, conjunction, disjunction, formula, lower, value_of, variables, words

#: Every name of a configuration and of what a move chooses.
NAMES: Final = (*CONSTANTS, *CHANGING, *CHOSEN)
_NOW: Final = variables(NAMES)
_INITIAL: Final = State.CHECK
_NONE: Final[Terms] = {}


@dataclass(frozen=True)
class System:
    """The rows, moves and effects that are proven. Only tests pass others, with a planted fault."""

    rows: tuple[Row, ...] = ROWS
    moves: tuple[Move, ...] = MOVES
    effects: Mapping[str, Effect] = field(default_factory=lambda: APPLIED)

    @cached_property
    def transitions(self) -> "tuple[Transition, ...]":
        """Each row, then each move inside a state. Most groups of queries need them."""
        return tuple(_transitions(self))


class Query(NamedTuple):
    """One question to a solver: whether the goals follow from the hypotheses.

    `defines` are the values after the transition. Without goals the hypotheses must be satisfiable. All are terms.
    """

    name: str
    hypotheses: tuple[str, ...]
    goals: tuple[tuple[str, str], ...] = ()
    defines: Terms = _NONE
    transition: "Transition | None" = None

    @property
    def expected(self) -> str:
        """The answer of a solver that proves it."""
        return "unsat" if self.goals else "sat"

    def lines(self) -> Iterator[str]:
        """Yield the assertions."""
        yield from (f"(assert {hypothesis})" for hypothesis in self.hypotheses)
        for name, term in self.defines.items():
            yield f"(define-fun {name} () {'Bool' if term.flag else 'Int'} {term.text})"
        if self.goals:
            yield f"(assert (not {conjunction(goal for _, goal in self.goals)}))"
        yield "(check-sat)"


@dataclass(frozen=True)
class Transition:
    """A row or a move inside a state, with its condition and the values before and after it, as terms."""

    name: str
    source: State
    dest: State
    conditions: tuple[str, ...]
    terms_before: Terms
    after: dict[str, Term]
    move: Move | None
    row: Row | None = None

    @cached_property
    def changed(self) -> dict[str, Term]:
        """The values that differ, by the name after."""
        return {f"{name}_next": self.after[name] for name in CHANGING if self.after[name] != _NOW[name]}

    @cached_property
    def following(self) -> Terms:
        """Each value after it: by name, or unchanged."""
        return {
            name: Term(f"{name}_next", term.flag) if self.after[name] != term else term for name, term in _NOW.items()
        }


def _transitions(system: System) -> Iterator[Transition]:
    of_pair = {(state, move.trigger): move for move in system.moves if move.trigger for state in move.states}
    earlier: dict[object, list[str]] = {}
    for number, row in enumerate(system.rows, start=1):
        move = of_pair.get((row.source, row.trigger))
        name = f"{number}. {row.name}"
        if move is None:
            yield Transition(name, row.source, row.dest, ("false",), _NOW, dict(_NOW), None, row)
            continue
        terms_before = assign_all(move.before, _NOW, value_of)
        guard = formula(row.guard.expanded, terms_before)
        before = earlier.setdefault((row.source, row.trigger), [])
        conditions = (formula(move.assume, _NOW), *(f"(not {condition})" for condition in before), guard)
        after = after_row(row, terms_before, value_of, system.effects)
        yield Transition(name, row.source, row.dest, conditions, terms_before, after, move, row)
        before.append(guard)
    for move in system.moves:
        for state in move.states if move.trigger is None else ():
            after = after_event(move, _NOW, value_of, system.effects)
            conditions = (formula(move.assume, _NOW),)
            yield Transition(f"{state}: {move.name}", state, state, conditions, _NOW, after, move)


def invariants(state: State, values: Terms, *groups: str) -> dict[str, str]:
    """Return the invariants of a state as terms, by name; of these groups, or all."""
    return {
        name: formula(invariant.text, values)
        for name, invariant in INVARIANTS.items()
        if state in invariant.states and (not groups or invariant.group in groups)
    }


def name_invariants(state: State, *, credit: bool = False) -> str:
    """Return the name of the invariants of a state in `definitions`: those with products, or the others."""
    return f"{state}_counts" if credit else f"{state}_holds"


def definitions() -> Iterator[tuple[str, str]]:
    """Yield the name and the term of what most queries assume: the limits, and the invariants of each state."""
    yield "limits", formula(LIMITS, _NOW)
    for state in State:
        yield name_invariants(state), conjunction(invariants(state, _NOW, "keeps", "reasons").values())
        yield name_invariants(state, credit=True), conjunction(invariants(state, _NOW, "credit").values())


def _keep_invariants(system: System, group: str) -> Iterator[Query]:
    for transition in system.transitions:
        if group == "reasons" and transition.row is None:
            continue
        known_invariants = invariants(transition.source, _NOW, group)
        goals = {
            name: goal
            for name, goal in invariants(transition.dest, transition.following, group).items()
            if known_invariants.get(name) != goal  # nothing that it reads has changed
        }
        yield _query(transition, goals, credit=group == "credit")


def _query(transition: Transition, goals: Mapping[str, str], *, credit: bool = False) -> Query:
    used_words = frozenset[str]().union(*map(words, goals.values()))
    defines = {name: term for name, term in transition.changed.items() if name in used_words}
    hypotheses = _assume(transition, credit=credit)
    return Query(
        transition.name, hypotheses, tuple(goals.items()) or (("nothing changes", "true"),), defines, transition
    )


def _assume(transition: Transition, *, credit: bool = False) -> tuple[str, ...]:
    """Return the hypotheses about a transition: the limits, the invariants of its state, and its conditions."""
    credit_names = (name_invariants(transition.source, credit=True),) if credit else ()
    return ("limits", name_invariants(transition.source), *credit_names, *transition.conditions)


def _make_ranks(state: State, values: Terms) -> list[Term]:
    stage, is_paused, asks = rank_values(state)
    terms = {**values, "stage": Term(str(stage))} | {
        name: Term(str(flag).lower(), flag=True) for name, flag in (("paused", is_paused), ("asks_model", asks))
    }
    return [value_of("rank", text, terms) for text in RANK.values()]


def _rank(system: System) -> Iterator[Query]:
    for transition in system.transitions:
        before, after = _make_ranks(transition.source, _NOW), _make_ranks(transition.dest, transition.following)
        if transition.move is not None and not transition.move.lowers:
            equal_ranks = conjunction(f"(= {new.number} {old.number})" for old, new in zip(before, after, strict=True))
            yield _query(transition, {"the rank stays": equal_ranks})
            continue
        floor = conjunction(f"(>= {new.number} 0)" for new in after)
        yield _query(transition, {"the rank falls": lower(before, after), "the rank is not below zero": floor})


def _events(system: System) -> Iterator[Query]:
    """Yield the goals without products: a number falls by one at most, and then by its worth."""
    names = {name: Term(name) for name in ("left", "left_next", "worth")}
    falls = formula("left * worth - left_next * worth == (worth if left_next < left else 0)", names)
    one_less = formula("left_next == left or left_next == left - 1", names)
    yield Query("a number that falls by one loses its worth", (one_less,), (("the difference is linear", falls),))
    product = formula("left * worth >= 0", names)
    yield Query(
        "what is left is worth something", ("(>= left 0)", "(>= worth 0)"), (("no product is negative", product),)
    )
    for transition in system.transitions:
        if transition.move is None or transition.move.lowers:
            yield _query(transition, dict(_fewer(transition)))


def _fewer(transition: Transition) -> Iterator[tuple[str, str]]:
    here, after = (
        value_of("potential", HERE[at], to).number
        for at, to in ((transition.source, _NOW), (transition.dest, transition.following))
    )
    terms = [here]
    for text, worth in WORTH.items():
        before_value, next_ = value_of("left", text, _NOW), value_of("left", text, transition.following)
        yield f"{text} >= 0", f"(>= {next_.text} 0)"
        if next_ != before_value:
            yield (
                f"{text} falls by one at most",
                f"(or (= {next_.text} {before_value.text}) (= {next_.text} (- {before_value.text} 1)))",
            )
            terms.append(f"(ite (< {next_.text} {before_value.text}) {value_of('worth', worth, _NOW).text} 0)")
    before = here if len(terms) == 1 else f"(+ {' '.join(terms)})"
    yield "fewer events can follow", f"(< {after} {before})"
    yield "not below zero", f"(>= {after} 0)"


def _happens(system: System) -> Iterator[Query]:
    entries: dict[State, list[str]] = {state: [] for state in State if state is not _INITIAL}
    for transition in system.transitions:
        hypotheses = _assume(transition, credit=True)
        yield Query(f"{transition.name} can happen", hypotheses, transition=transition)
        if transition.dest is not transition.source and transition.dest in entries:
            entries[transition.dest].append(conjunction(hypotheses))
    for state, ways in entries.items():
        yield Query(f"{state} can be entered", (disjunction(ways),))


def _total(system: System) -> Iterator[Query]:
    for move in system.moves:
        for state in move.states if move.trigger is not None else ():
            terms_before = assign_all(move.before, _NOW, value_of)
            group = [row for row in system.rows if (row.source, row.trigger) == (state, move.trigger)]
            some_row = disjunction(formula(row.guard.expanded, terms_before) for row in group)
            falls_back = str(bool(group) and not group[-1].guard.text).lower()
            hypotheses = ("limits", name_invariants(state), formula(move.assume, _NOW))
            goals = (("a row holds", some_row), ("the last row is a fallback", falls_back))
            yield Query(f"{state} --{move.trigger}: {move.name}", hypotheses, goals)


def _way_on(system: System) -> Iterator[Query]:
    for state in State:
        if state not in FINAL:
            ways = [
                formula(move.assume, _example(move)) for move in system.moves if state in move.states and not move.stops
            ]
            yield Query(
                f"from {state}", ("limits", name_invariants(state)), (("a move can happen", disjunction(ways)),)
            )


def _example(move: Move) -> Terms:
    zero = {name: Term("false", flag=True) if _NOW[name].flag else Term("0") for name in CHOSEN}
    return {**_NOW, **zero, **{name: value_of(name, text, _NOW) for name, text in move.example.items()}}


def _claims(system: System) -> Iterator[Query]:
    for transition in system.transitions:
        for claim, text in claims_of(transition.row) if transition.row is not None else ():
            yield Query(
                f"{claim}: {transition.name}",
                _assume(transition),
                ((claim, formula(text, transition.terms_before)),),
                transition=transition,
            )


def _loops(system: System) -> Iterator[Query]:
    now = {**_NOW, **variables(f"{name}_0" for name in CHANGING), "answered": Term("answered", flag=True)}
    entry_values = tuple(f"(= {name} {name}_0)" for name in CHANGING)
    refusal_terms = follow_fact(REFUSED_CALL, _NOW, value_of, system.effects)
    yield Query("the result of a refused call changes nothing", (), _equal(refusal_terms, _NOW))
    counts = ("limits", *(formula(CLOSING_LOOP[name], _NOW) for name in list(CLOSING_LOOP)[:2]))
    owed_results = formula("waiting >= asking + asking_counted", _NOW)
    yield Query("a batch begins to close", (*counts, owed_results, *entry_values), _loop(CLOSING_LOOP, now))
    inside = ("limits", *(goal for _, goal in _loop(CLOSING_LOOP, now)))
    still_open = value_of("open", OPEN, _NOW).number
    for move in CLOSES:
        after = follow_fact(move.facts[0], now, value_of, system.effects)
        other_names = tuple(name for name in CHANGING if name not in CLOSING.sets and name != "ran")
        goals = (
            *_loop(CLOSING_LOOP, after),
            ("a call less is open", f"(< {value_of('open', OPEN, after).number} {still_open})"),
            ("used calls count", f"(= {after['calls'].text} (+ calls used))"),
            *_equal({name: after[name] for name in other_names}, _NOW),
        )
        yield Query(move.name, (*inside, formula(move.assume, _NOW)), goals)
    closing = _summary(
        CLOSING, {**_NOW, **_first_terms(), "used": Term("(- calls calls_0)")}, system.effects["closing"]
    )
    unused_calls = (
        "used calls were lent",
        "(and (>= calls calls_0) (or (<= (- calls calls_0) lent_0) (not budgeted)))",
    )
    yield Query("a batch is closed", (*inside, f"(= {still_open} 0)"), (unused_calls, *_equal(closing, _NOW)))
    yield Query(
        "typed answers begin to settle",
        ("(>= answering 0)", "(not answered)", *entry_values),
        _loop(ANSWERING_LOOP, now),
    )
    inside = tuple(goal for _, goal in _loop(ANSWERING_LOOP, now))
    fact = CLOSES[-1].facts[0]
    after = follow_fact(Follows(fact.kind, {**fact.values, "used": "0", "lease": "0", "gives": "gives"}), now, value_of)
    after["answered"] = Term("(or answered gives)", flag=True)
    other_names = tuple(name for name in CHANGING if name not in ANSWERING.sets)
    yield Query(
        "a typed answer is settled",
        (*inside, "(> answering 0)"),
        (*_loop(ANSWERING_LOOP, after), *_equal({name: after[name] for name in other_names}, _NOW)),
    )
    answering = _summary(ANSWERING, {**_NOW, **_first_terms()}, system.effects["answering"])
    yield Query(
        "typed answers are settled",
        (*inside, "(= answering 0)", "(= answered (> answering_0 0))"),
        _equal(answering, _NOW),
    )


def _loop(texts: Mapping[str, str], values: Terms) -> tuple[tuple[str, str], ...]:
    return tuple((name, formula(text, values)) for name, text in texts.items())


def _first_terms() -> dict[str, Term]:
    return {name: Term(f"{name}_0", _NOW[name].flag) for name in CHANGING}


def _summary(shipped_effect: Effect, values: Terms, effect: Effect) -> Terms:
    after = assign_all(effect.sets, values, value_of)
    return {name: after[name] for name in {**shipped_effect.sets, **effect.sets}}


def _equal(machine_terms: Terms, read_terms: Terms) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name, f"(= {read_terms[name].text} {term.text})")
        for name, term in machine_terms.items()
        if term != read_terms[name]
    )


def _start(_: System) -> Iterator[Query]:
    goals = tuple(invariants(_INITIAL, _NOW).items())
    yield Query("a turn begins in CHECK", ("limits", formula(START, _NOW)), goals)


def _bounds(_: System) -> Iterator[Query]:
    product = ("a product of numbers is a number", "(>= (* (- allowance steps) (+ 1 max_retries)) 0)")
    for state in State:
        known_parts = ("limits", name_invariants(state), name_invariants(state, credit=True))
        yield Query(f"steps times retries in {state}", known_parts, (product,))
        for name, text in BOUNDS.items():
            yield Query(f"{name} in {state}", (*known_parts, product[1]), ((name, formula(text, _NOW)),))
    names = variables(("asked", "no_steps", "ceiling", "after", "cap"))
    given_terms = (
        formula(CEILING, names),
        f"(= cap {value_of('cap', CAP, names).number})",
        f"(= allowance {value_of('allowance', ALLOWANCE, names).number})",
    )
    within = f"(and (>= allowance 0) (<= allowance {PROMISED_STEPS}) (or no_steps (<= allowance asked)))"
    yield Query(
        f"allowance <= min(steps, {PROMISED_STEPS})", given_terms, (("the allowance is within the limits", within),)
    )
    initial_potential = value_of("potential", potential(_INITIAL), _NOW).number
    most = value_of("potential", EVENTS, _NOW).number
    yield Query(
        "the events of a turn, messages left out",
        ("limits", formula(START, _NOW)),
        (("the formula is the potential of the start", f"(= {initial_potential} {most})"),),
    )


class Group(NamedTuple):
    """Queries with one claim, a sentence without a full stop."""

    name: str
    claim: str
    queries: Callable[[System], Iterator[Query]]


GROUPS: Final = (
    Group("start", "a turn that begins satisfies the invariants", _start),
    Group(
        "keeps", "every row and event keeps the invariants", lambda transition: _keep_invariants(transition, "keeps")
    ),
    Group(
        "credit",
        "every row and event keeps the model calls within what steps and compactions allow",
        lambda transition: _keep_invariants(transition, "credit"),
    ),
    Group(
        "reasons",
        "every row into an end or a conclusion gives one reason that fits",
        lambda transition: _keep_invariants(transition, "reasons"),
    ),
    Group("rank", "every row and event lowers the rank, never below zero, and a message leaves it as it is", _rank),
    Group("events", "every row and event lowers the number of events that can follow", _events),
    Group("total", "every pair of state and trigger finds a row and ends in a fallback", _total),
    Group("way-on", "every state that is not an end has a way on without a stop", _way_on),
    Group("loops", "the results of a batch, one after the other, are what its closing says", _loops),
    Group("claims", "what a row claims holds when it is taken", _claims),
    Group("bounds", "steps, tool calls, model calls, pauses and events are within their bounds", _bounds),
    Group("happens", "every row and event can happen under the invariants, and every state is entered", _happens),
)
