"""Steps in which no tool call runs (docs/rules.md#idle-steps)."""

from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_states import Limits
from turnwright_states.actions import CallModel, Conclude
from turnwright_states.inputs import (
    AnsweredInput,
    CallSettledInput,
    CallStartedInput,
    CallStatus,
    CallWaitingInput,
    ConcludedInput,
    Decision,
    ExpireInput,
    InterruptKind,
    ModelRepliedInput,
    ReviewedInput,
    StartedInput,
    SteeredInput,
    ToolCall,
)
from turnwright_states.machine import TurnMachine
from turnwright_states.reasons import EndReason
from turnwright_states.state import Outcome, State

if TYPE_CHECKING:
    from .conftest import Begin, Script

BAD: Final = ToolCall(name="nothing", problem="there is no tool 'nothing'")
#: Nothing else stops these turns.
LOOSE: Final[dict[str, object]] = {"doom_threshold": None, "stall_errors": None, "stall_rounds": None}


def run_call(turn: "Script", name: str = "a") -> None:
    turn.reply(name)
    call = turn.ready[0]
    turn.feed(CallStartedInput(call=call))
    turn.feed(CallSettledInput(call=call))


def test_five_steps_without_a_running_call_conclude_the_turn(begin: "Begin") -> None:
    turn = begin(**LOOSE)
    for _ in range(4):
        turn.reply(BAD)
        assert turn.action == CallModel(tools=True)
    turn.reply(BAD)
    assert isinstance(turn.action, Conclude)
    assert turn.machine.turn.carried is EndReason.NO_CALL_RAN
    turn.feed(ConcludedInput(text="I found no tool."))
    assert (turn.machine.state.outcome, turn.machine.turn.reason) == (Outcome.CAP_HIT, EndReason.NO_CALL_RAN)
    assert turn.steps == 5


def test_started_call_restarts_the_count(begin: "Begin") -> None:
    turn = begin(idle_steps=2, **LOOSE)
    for _ in range(3):
        turn.reply(BAD)
        run_call(turn)
    assert turn.state is State.STREAM


def test_step_with_a_running_call_is_not_idle(begin: "Begin") -> None:
    turn = begin(idle_steps=1, **LOOSE)
    turn.reply("a", BAD)
    turn.feed(CallStartedInput(call=turn.ready[0]))
    turn.feed(CallSettledInput(call="call00001", status=CallStatus.ERROR, result="it failed"))
    assert turn.state is State.STREAM


@pytest.mark.parametrize("status", [CallStatus.REFUSED, CallStatus.ERROR])
def test_call_settled_before_the_start_did_not_run(begin: "Begin", status: CallStatus) -> None:
    """A hook rejected it, or an approval check failed."""
    turn = begin(idle_steps=1, **LOOSE)
    turn.reply("a")
    turn.feed(CallSettledInput(call=turn.ready[0], status=status, result="no"))
    assert turn.machine.turn.carried is EndReason.NO_CALL_RAN


def test_rejection_by_a_person_restarts_the_count(begin: "Begin") -> None:
    """Someone watches the turn, who can abort it."""
    turn = begin(idle_steps=2, **LOOSE)
    for number in range(1, 4):
        turn.reply("a")
        turn.feed(CallWaitingInput(call=turn.ready[0], interrupt_kind=InterruptKind.APPROVAL))
        turn.feed(AnsweredInput(interrupt=f"approval-{number}", decision=Decision.REJECT))
        assert turn.state is State.STREAM


def test_message_restarts_the_count(begin: "Begin") -> None:
    turn = begin(idle_steps=2, **LOOSE)
    for _ in range(4):
        turn.reply(BAD)
        turn.feed(SteeredInput(text="Use the tools that exist."))
    assert turn.state is State.STREAM


def test_refused_reply_is_not_idle(begin: "Begin") -> None:
    """It has a limit of its own."""
    turn = begin(idle_steps=1, output_retries=3, **LOOSE)
    for _ in range(3):
        turn.feed(ModelRepliedInput(calls=(ToolCall(name="a", arguments={}),), review=True))
        turn.feed(ReviewedInput(refused=True, feedback="no"))
        assert turn.state is State.STREAM


def test_steps_bound_the_turn_without_the_idle_limit(begin: "Begin") -> None:
    turn = begin(idle_steps=None, steps=50, **LOOSE)
    while turn.state is State.STREAM:
        turn.reply(BAD)
    assert (turn.steps, turn.machine.turn.carried) == (50, EndReason.STEP_CAP)


def test_idle_limit_is_not_reached_while_a_step_is_open(begin: "Begin") -> None:
    """A deadline in the last idle step reports no other limit."""
    turn = begin(idle_steps=1, seconds=9.0, **LOOSE)
    turn.reply("a")
    turn.feed(ExpireInput(elapsed=9.0))
    assert (turn.machine.turn.carried, turn.machine.turn.also_reached) == (EndReason.DEADLINE, ())


def test_doom_loop_of_calls_unable_to_run_comes_first(begin: "Begin") -> None:
    turn = begin(doom_threshold=3, idle_steps=3)
    for _ in range(3):
        turn.reply(BAD)
    assert turn.machine.turn.carried is EndReason.DOOM_LOOP
    assert turn.machine.turn.also_reached == (EndReason.NO_CALL_RAN,)


def test_exhausted_idle_steps_prevent_the_question(begin: "Begin") -> None:
    turn = begin(doom_threshold=3, idle_steps=3, doom_response="ask", nudges=1)
    for _ in range(3):
        turn.reply(BAD)
    assert turn.machine.turn.carried is EndReason.DOOM_LOOP


def test_messages_precede_the_result_ending_the_idle_steps(begin: "Begin") -> None:
    """They restart the count, so a message in time keeps the turn going."""
    turn = begin(idle_steps=1, **LOOSE)
    turn.reply("a")
    refusal = CallSettledInput(call=turn.ready[0], status=CallStatus.REFUSED, result="no")
    assert turn.machine.takes_messages_before(refusal)


@given(st.lists(st.sampled_from(["bad", "runs", "message"]), max_size=12), st.integers(1, 4))
def test_idle_count_equals_the_latest_idle_steps(acts: list[str], most: int) -> None:
    machine, _ = TurnMachine.start(
        StartedInput(
            prompt="x", limits=Limits(doom_threshold=None, stall_errors=None, stall_rounds=None, idle_steps=most)
        )
    )
    idle = 0
    for act in acts:
        match act:
            case "message":
                machine.feed(SteeredInput(text="x"))
                idle = 0
            case "bad":
                machine.feed(ModelRepliedInput(calls=(BAD,)))
                idle += 1
            case _:
                machine.feed(ModelRepliedInput(calls=(ToolCall(name="a", arguments={}),)))
                call = next(iter(machine.turn.batch))
                machine.feed(CallStartedInput(call=call))
                machine.feed(CallSettledInput(call=call))
                idle = 0
        assert machine.turn.counters.idle == idle
        assert (machine.turn.carried is EndReason.NO_CALL_RAN) is (idle == most)
        if idle == most:
            return
