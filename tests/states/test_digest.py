"""The hash of a turn: it changes with whatever could change what the turn does next, and with nothing else."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final
from zlib import crc32

import pytest
from msgspec.structs import replace

from turnwright_states import (
    AbortInput,
    AnsweredInput,
    CallSettledInput,
    CallStartedInput,
    CallState,
    Decision,
    EndReason,
    InterruptKind,
    Limits,
    ModelRepliedInput,
    Stall,
    State,
    ToolCall,
    Turn,
    TurnMachine,
    Usage,
    facts,
    fold,
)
from turnwright_states.construct import construct_unchecked
from turnwright_states.counters import KEPT, PASSING
from turnwright_states.fact_parser import parse_fact

if TYPE_CHECKING:
    from .conftest import Begin, Script


def busy(begin: "Begin") -> "Script":
    """A turn in its third step: one call runs, one waits for a person, one is ready."""
    turn = begin(tool_calls=20, tokens=1000, cost=2.0, doom_response="ask", nudges=1)
    turn.step("a", usage=Usage(input_tokens=30, cost=0.125))
    turn.step("b")
    turn.reply("a", "b", "c")
    turn.feed(CallStartedInput(call="call00003"))
    turn.wait("call00004")
    return turn


def raised(name: str) -> Callable[[Turn], None]:
    def _raise(turn: Turn) -> None:
        value = getattr(turn.counters, name)
        setattr(turn.counters, name, (not value) if isinstance(value, bool) else value + 1)

    return _raise


def given(**fields: object) -> Callable[[Turn], None]:
    def _give(turn: Turn) -> None:
        for name, value in fields.items():
            setattr(turn, name, value)

    return _give


def asked(turn: Turn) -> None:
    turn.interrupts = {"question-1": facts.InterruptRecord(id="question-1", kind=InterruptKind.QUESTION)}


def of_a_call(**fields: object) -> Callable[[Turn], None]:
    def _change(turn: Turn) -> None:
        for name, value in fields.items():
            setattr(turn.batch["call00005"], name, value)

    return _change


def stalled(**fields: object) -> Callable[[Turn], None]:
    def _change(turn: Turn) -> None:
        turn.rounds = replace(turn.rounds, stalls=replace(turn.rounds.stalls, **fields))

    return _change


def made(**fields: object) -> Callable[[Turn], None]:
    return lambda turn: setattr(turn.batch["call00005"], "made", replace(turn.batch["call00005"].made, **fields))


#: What a turn knows, each thing changed by itself.
CHANGES: Final[dict[str, Callable[[Turn], None]]] = {
    **{name: raised(name) for name in KEPT},
    "state": given(state=State.PAUSED),
    "input tokens": given(input_tokens=31),
    "output tokens": given(output_tokens=1),
    "cached tokens": given(cached_tokens=1),
    "cached and output tokens": given(cached_tokens=1, output_tokens=2),
    "reasoning tokens": given(reasoning_tokens=1),
    "cost": given(cost=0.1250000000000001),
    "calls made": given(calls_made=6),
    "carried reason": given(carried=EndReason.TOKENS),
    "reason": given(reason=EndReason.TOKENS),
    "rounds": lambda turn: turn.apply(facts.MessageAdded(turn.elapsed, turn.state, text="x")),
    "a round that is forgotten": given(round_forgotten=True),
    "grants": given(grants=("/src",)),
    "tools that are left out": given(always_for=frozenset({"a"})),
    "notices": given(noticed=("steps",)),
    "an open step": given(step_open=False),
    "a synthesis": given(synthesis_done=True),
    "an interrupt": asked,
    "a call's state": of_a_call(state=CallState.SETTLED),
    "a call's attempts": of_a_call(attempt=1),
    "a call that counts": of_a_call(counted=True),
    "a call whose crash is paid": of_a_call(crash_paid=True),
    "a call's result": of_a_call(result_key="x"),
    "a call's error": of_a_call(result_key="x", failed=True),
    **{
        f"{field} of stalls": stalled(**{field: value})
        for field, value in {"error": "x", "errors": 1, "idle": 1, "checksum": 1, "stall": Stall.NOTHING_NEW}.items()
    },
    "a call's key": made(key="x"),
    "who gave a call's key": made(own_key=True),
}


def test_each_field_of_a_turn_changes_the_hash(begin: "Begin") -> None:
    """And each in its own way."""
    turn = busy(begin).machine.turn
    hashes = {"": turn.digest()}
    for name, change in CHANGES.items():
        changed_turn = turn.copy()
        change(changed_turn)
        hashes[name] = changed_turn.digest()
    assert len(set(hashes.values())) == len(CHANGES) + 1, sorted((hash_, name) for name, hash_ in hashes.items())


def test_results_change_the_hash_only_if_compared(begin: "Begin") -> None:
    """Journals that were written before keep their hashes."""
    turn = begin(doom_compare="calls", stall_errors=None, stall_rounds=None)
    turn.reply("a")
    before = turn.machine.turn.digest()
    turn.machine.turn.batch["call00001"].result_key = "x"
    turn.machine.turn.batch["call00001"].failed = True
    assert turn.machine.turn.digest() == before
    script = begin(stall_errors=None)
    script.reply("a", "b")
    script.settle_one("call00001")
    before = script.machine.turn.digest()
    script.machine.turn.batch["call00001"].failed = True
    assert script.machine.turn.digest() == before


@pytest.mark.parametrize("name", PASSING)
def test_leftovers_of_a_single_event_do_not_change_the_hash(begin: "Begin", name: str) -> None:
    turn = busy(begin).machine.turn
    before = turn.digest()
    setattr(turn.counters, name, 1)
    assert turn.digest() == before


def test_texts_and_time_do_not_change_the_hash(begin: "Begin") -> None:
    turn = busy(begin).machine.turn
    before = turn.digest()
    turn.elapsed, turn.step_started_at, turn.nudge = 9.0, 8.0, True
    assert turn.digest() == before == turn.copy().digest()


def test_hash_has_eight_hexadecimal_digits_and_is_portable() -> None:
    """A number that is written down here: no machine, no Python and no release may find another."""
    assert Turn(Limits()).digest() == "e6821bb8"
    assert Turn(Limits(steps=7, tool_calls=None, doom_response="ask")).digest() == "d6badec1"
    counted = Turn(Limits())
    counted.cached_tokens, counted.reasoning_tokens = 3, 5
    assert counted.digest() == "afb03908"
    forgotten = Turn(Limits())
    forgotten.round_forgotten = True
    assert forgotten.digest() == "e4f9cd5b"


def test_order_of_calls_changes_the_hash(begin: "Begin") -> None:
    first, second = busy(begin).machine.turn, busy(begin).machine.turn
    first.batch["call00003"].attempt, second.batch["call00005"].attempt = 7, 7
    assert first.digest() != second.digest()


def test_cached_and_reasoning_tokens_change_the_hash_only_if_present(begin: "Begin") -> None:
    """Journals that were written before they existed keep their hashes, and their bytes."""

    def turn(**parts: int) -> "Script":
        script = begin()
        script.step("a", usage=Usage(input_tokens=30, output_tokens=20, **parts))
        return script

    before, cached, reasoned = turn(), turn(cached_tokens=10), turn(reasoning_tokens=10)
    assert before.machine.turn.digest() == turn(cached_tokens=0, reasoning_tokens=0).machine.turn.digest()
    assert len({script.machine.turn.digest() for script in (before, cached, reasoned)}) == 3
    assert "cached_tokens" not in "".join(fact.payload() for fact in before.facts)
    for script in (cached, reasoned):
        folded = fold(parse_fact(fact.kind, fact.payload()) for fact in script.facts)
        assert (folded.digest(), folded.usage) == (script.machine.turn.digest(), script.machine.turn.usage)


def test_count_of_more_than_64_bits_has_a_hash(begin: "Begin") -> None:
    """Any usage that a provider reports, any number of times."""
    turn = begin()
    turn.step("a", usage=Usage(input_tokens=2**63))
    turn.step("b", usage=Usage(input_tokens=10**30))
    hashes = {place: fact.hash for place, fact in enumerate(turn.facts, start=1) if fact.hash}
    assert len({*hashes.values()}) == len(hashes)
    assert all(fold(turn.facts[:place]).digest() == hash_ for place, hash_ in hashes.items())


def test_unencodable_names_have_a_hash(begin: "Begin") -> None:
    """A journal of another writer may contain them."""
    turn = begin()
    turn.reply("a")
    turn.wait("call00001", InterruptKind.GRANT)
    turn.feed(AnsweredInput(interrupt="grant-1", decision=Decision.APPROVE))
    granted = turn.facts[-1]
    assert isinstance(granted, facts.Answered)
    replied = turn.facts[2]
    assert isinstance(replied, facts.ModelReplied)
    calls = tuple(replace(call, name="\ud800", key="\udfff") for call in replied.calls)
    odd = [*turn.facts[:2], replace(replied, calls=calls), *turn.facts[3:-1]]
    journals = (turn.facts, [*odd, granted], [*odd, replace(granted, grant="\ud800")])
    assert len({fold(journal).digest() for journal in journals}) == 3


def test_name_of_a_str_subclass_has_the_hash_of_the_text(begin: "Begin") -> None:
    class Name(str):
        __slots__ = ()

    def turn(name: str) -> "Script":
        script = begin()
        call = construct_unchecked(ToolCall, name=name, arguments={})
        script.facts += script.machine.feed(construct_unchecked(ModelRepliedInput, calls=(call,)))
        script.feed(CallStartedInput(call="call00001"))
        script.feed(CallSettledInput(call="call00001", retry=True))
        return script

    assert turn(Name("a")).machine.turn.digest() == turn("a").machine.turn.digest()


def test_rounds_change_the_hash_while_visible_to_the_detector(begin: "Begin") -> None:
    """A round that is forgotten changes nothing any more."""

    def rounds_checksum(numbers: Iterable[int]) -> int:
        turn = begin(doom_threshold=2, tool_calls=None)
        for number in numbers:
            turn.step(ToolCall(name="a", arguments={"n": number}), "b")
        machine_turn = turn.machine.turn
        assert machine_turn.rounds.checksum == crc32(b"".join(machine_turn.rounds.latest))
        return machine_turn.rounds.checksum

    assert rounds_checksum([]) == 0
    assert rounds_checksum(range(30)) == rounds_checksum(range(22, 30)) == rounds_checksum([7, *range(22, 30)])
    assert len({rounds_checksum(range(start, 30)) for start in range(22, 30)}) == 8


def test_turns_indistinguishable_later_have_equal_hashes(begin: "Begin") -> None:
    """One call was settled before the other here, and after it there."""
    ends = []
    for order in (("call00001", "call00002"), ("call00002", "call00001")):
        turn = begin()
        turn.reply("a", "b")
        for call in order:
            turn.feed(CallStartedInput(call=call))
            turn.feed(CallSettledInput(call=call))
        ends.append(turn.machine.turn.digest())
    assert ends[0] == ends[1]


def test_end_of_a_step_before_another_has_no_hash(begin: "Begin") -> None:
    """Each of its fields follows from the facts before it. That of a stopped turn may be the first of its input."""
    turn = begin(steps=2)
    turn.step("a")
    turn.reply("b")
    turn.feed(AbortInput())
    assert [bool(fact.hash) for fact in turn.of(facts.StepFinished)] == [False, True]


def test_walk_computes_no_hash() -> None:
    class Unhashed(TurnMachine):
        __slots__ = ()
        hashed = False

    machine = Unhashed(fold([facts.TurnStarted(0.0, State.CHECK, prompt="x", limits=Limits(), chart=1)]))
    machine.state = machine.turn.state = State.STREAM
    assert [fact.hash for fact in machine.feed(ModelRepliedInput(text="x"))] == ["", "", ""]
