"""The method of the lint: small values are enough, and what is found endless is what runs for ever."""

from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hypothesis_examples import percent_of_examples

from turnwright_proof.verify.cycles import Placed, endless
from turnwright_proof.verify.guard_cases import guard_cases, names_in
from turnwright_states import Limits, State, Trigger
from turnwright_states.chart import ROWS, Row
from turnwright_states.counters import NAMES, Counters
from turnwright_states.guards import WORDS, Guard
from turnwright_states.state import LIVE

Rows = tuple[Row, ...]

NUMBERS: Final = [name for name in NAMES if not isinstance(getattr(Counters(Limits()), name), bool)]
ATOMS: Final = {atom: Guard(atom) for atom in WORDS}


def test_small_values_distinguish_all_guards() -> None:
    """Over CHECK's rows: no counters, however large, make the atoms true and false as no small ones do."""
    group = [Placed(number, row) for number, row in enumerate(ROWS, start=1) if row.source is State.CHECK]
    first = next(iter(guard_cases(group, (), ())))
    atoms = [guard for guard in ATOMS.values() if set(names_in([guard])) <= set(first.names)]

    def truths(counters: Counters) -> tuple[bool, ...]:
        return tuple(guard.holds(counters) for guard in atoms)

    small = {truths(choice.counters) for choice in guard_cases(group, (), ())}
    assert len(small) > 500

    @given(st.fixed_dictionaries({name: st.integers(0, 3) | st.integers(0, 10**6) for name in NUMBERS}), st.data())
    def of_any_size(numbers: dict[str, int], data: st.DataObject) -> None:
        counters = Counters(Limits())
        for name in NAMES:
            setattr(counters, name, numbers[name] if name in numbers else data.draw(st.booleans()))
        assert truths(counters) in small

    of_any_size()


# Endless cycles.

#: What leads back to the state that it came in takes a retry.
TRIED_AGAIN: Final = (Trigger.ATTEMPT_FAILED, Trigger.CONCLUDED)
#: A compaction and its model call share their retries.
SHARED: Final = {(State.STREAM, State.COMPACT), (State.COMPACT, State.STREAM)}
Configuration = tuple[State, tuple[int, ...], int]


def after(row: Row, here: Configuration) -> list[Configuration]:
    """Return the configurations after a row; none if too little of something is left."""
    _, (steps, refusals, compactions, pauses, retries), question_count = here
    entered, dest, way = row.source is not row.dest, row.dest, (row.source, row.dest)
    steps -= way == (State.CHECK, State.STREAM)
    refusals -= way == (State.REVIEW, State.CONTINUE)
    compactions -= way == (State.STREAM, State.COMPACT)
    pauses -= entered and dest is State.PAUSED
    if entered and dest in LIVE and way not in SHARED:
        retries = 2
    retries -= row.trigger in TRIED_AGAIN and not entered
    more = [0]
    if dest is State.PAUSED:
        more = [1, 2] if entered else [question_count - (row.trigger is Trigger.ANSWERED)]
    remaining = (steps, refusals, compactions, pauses, retries)
    return [(dest, remaining, count) for count in more] if min(*remaining, *more) >= 0 else []


def runs_for_ever(table: Rows) -> bool:
    """Whether a configuration comes round again, from any state with two of everything."""
    open_, done = set[Configuration](), set[Configuration]()

    def visit(here: Configuration) -> bool:
        if here in open_ or here in done:
            return here in open_
        open_.add(here)
        reaches_cycle = any(visit(there) for row in table if row.source is here[0] for there in after(row, here))
        open_.remove(here)
        done.add(here)
        return reaches_cycle

    return any(visit((state, (2,) * 5, 2 if state is State.PAUSED else 0)) for state in State)


CYCLIC: Final = [
    *(State.CHECK, State.STREAM, State.TOOL_EXEC, State.PAUSED, State.CONCLUDE),
    *(State.COMPACT, State.REVIEW, State.CONTINUE),
]
loops = st.builds(
    Row,
    st.sampled_from(CYCLIC),
    st.sampled_from([Trigger.PROCEED, Trigger.ATTEMPT_FAILED, Trigger.ANSWERED]),
    st.just(Guard("")),
    st.sampled_from(CYCLIC),
)


@settings(max_examples=percent_of_examples(300))
@given(st.lists(loops, max_size=8, unique=True).map(tuple))
def test_table_without_endless_cycles_does_not_run_for_ever(table: Rows) -> None:
    """Against a simulation that knows nothing of ranks. What the lint finds endless is so, too: no false alarm here."""
    assert bool(endless([Placed(number, row) for number, row in enumerate(table, start=1)])) is runs_for_ever(table)


def test_shipped_chart_does_not_run_for_ever() -> None:
    """And one whose CONTINUE leads to STREAM, past the count, does."""
    uncounted = tuple(row._replace(dest=State.STREAM) if row.source is State.CONTINUE else row for row in ROWS)
    assert not runs_for_ever(ROWS)
    assert runs_for_ever(uncounted)
