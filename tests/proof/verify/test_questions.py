"""The machine's answers before an input agree with the effect of the input."""

import pytest

from turnwright_proof.rank import rank_of
from turnwright_proof.verify import Case, Environment, WalkedMachine
from turnwright_proof.verify.configuration import key_of
from turnwright_states import CallSettledInput, Input, Limits, State, SteeredInput
from turnwright_states.state import FINAL

MESSAGE = SteeredInput(text="Mind the tests.")
#: Together they meet every event, each end, and each way in which a batch is settled.
CASES = {
    "a synthesis and retries": Case(Limits(steps=2, doom_threshold=None, max_retries=1, max_pauses=1), synthesis=True),
    "a doom loop, a deadline": Case(
        Limits(steps=2, doom_threshold=2, doom_response="ask", max_retries=0, max_pauses=2, seconds=1.0), widest=1
    ),
    "sub-agents": Case(Limits(steps=1, tool_calls=2, max_retries=0, max_pauses=1), delegates=True),
    "text only": Case(Limits(steps=0, seconds=1.0, max_retries=1)),
}


def edges(case: Case) -> list[tuple[WalkedMachine, Input, WalkedMachine]]:
    """Every event that may happen to a turn of the case, with the machine before it and the one after it."""
    begun, _ = WalkedMachine.start(case.started)
    around, seen_keys, queue, triples = Environment(case), {key_of(begun.turn)}, [begun], []
    while queue:
        machine = queue.pop()
        for event in around.moves(machine.turn, machine.action):
            after = machine.twin()
            after.feed(event)
            triples.append((machine, event, after))
            if after.state not in FINAL and key_of(after.turn) not in seen_keys:
                seen_keys.add(key_of(after.turn))
                queue.append(after)
    return triples


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_predicted_ending_events_are_exactly_the_ending_events(name: str) -> None:
    ended = set()
    for machine, event, after in edges(CASES[name]):
        rank, digest = rank_of(machine.turn), machine.turn.digest()
        assert machine.may_end_with(event) is (after.state in FINAL), (machine.state, event)
        assert (rank_of(machine.turn), machine.turn.digest()) == (rank, digest)
        ended.add(after.state in FINAL)
    assert ended == {True, False}


@pytest.mark.parametrize("name", [name for name in CASES if name != "text only"])
def test_messages_precede_the_event_settling_the_last_call(name: str) -> None:
    """A message may be fed then; so too before the answer to the last interrupt.

    If a step begins in any case, the message may come after the event: it comes before the model call as well.
    """
    answers = set()
    for machine, event, after in edges(CASES[name]):
        takes = machine.takes_messages_before(event)
        if takes:
            assert machine.twin().feed(MESSAGE)
        elif after.state is State.STREAM and isinstance(event, CallSettledInput) and machine.turn.runnable():
            twin = machine.twin()
            twin.feed(MESSAGE)
            twin.feed(event)
            assert twin.state is State.STREAM
            assert after.twin().feed(MESSAGE)
        elif machine.turn.runnable() and event.trigger is None:
            assert after.turn.runnable()
        answers.add(takes)
    assert answers == {True, False}
