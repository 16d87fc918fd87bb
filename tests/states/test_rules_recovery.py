"""The machine's decisions about crashes and sub-agents (docs/rules.md#recovery, #sub-agents)."""

from typing import TYPE_CHECKING

import pytest

from turnwright_states import (
    AbortInput,
    AnsweredInput,
    AwaitPerson,
    CallModel,
    CallSettledInput,
    CallStartedInput,
    CallState,
    CallStatus,
    CallWaitingInput,
    Conclude,
    Decision,
    EndReason,
    ExpireInput,
    FailInput,
    InterruptKind,
    InvalidCallError,
    RunTools,
    Spent,
    StartedInput,
    State,
    ToolCall,
    TurnMachine,
    Usage,
    facts,
)
from turnwright_states.inputs import JsonObject
from turnwright_states.replay import replay

if TYPE_CHECKING:
    from .conftest import Begin, Script

AGENT = ToolCall(name="research", arguments={}, delegates=True)
NO_LEASE = "not executed: nothing is left of the budget to lend to a sub-agent"
TOO_DEEP = "not executed: sub-agents may be nested 3 deep"


def leases(turn: "Script") -> list[facts.Lease | None]:
    """The leases of the calls of the last reply."""
    return [call.lease for call in turn.of(facts.ModelReplied)[-1].calls]


# Rule 13. Crash.


def test_resumed_calls_keep_the_state_after_a_crash(begin: "Begin") -> None:
    """Finished calls never run again; unstarted ones run; started ones are shown as started."""
    turn = begin()
    turn.reply("look", "write", "list")
    turn.settle_one("call00001")
    turn.feed(CallStartedInput(call="call00002"))
    resumed = TurnMachine.resume(turn.facts)
    assert isinstance(resumed.action, RunTools)
    states = [(call.id, call.state) for call in resumed.action.calls]
    assert states == [("call00002", CallState.STARTED), ("call00003", CallState.READY)]
    with pytest.raises(InvalidCallError, match="it is settled"):
        resumed.feed(CallStartedInput(call="call00001"))


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_reruns_are_bounded_by_max_retries_and_end_as_unknown(begin: "Begin", retries: int) -> None:
    turn = begin(max_retries=retries)
    turn.reply("fetch")
    for _ in range(1 + retries):
        assert turn.feed(CallStartedInput(call="call00001"))[0].kind == "call_started"
    turn.feed(CallStartedInput(call="call00001"))
    settled = turn.result("call00001")
    assert settled.status is CallStatus.UNKNOWN
    assert settled.result.startswith("outcome unknown")
    assert settled.result.endswith("verify before retrying")
    assert turn.action == CallModel(tools=True)
    assert turn.calls == 1


def crashed(begin: "Begin", *tools: str, **limits: int) -> "Script":
    """A turn whose process died while all calls of a batch ran."""
    turn = begin(**limits)
    turn.reply(*tools)
    for call in turn.ready:
        turn.feed(CallStartedInput(call=call))
    return turn


def test_crash_costs_a_batch_a_single_retry(begin: "Begin") -> None:
    """However many calls it interrupted."""
    turn = crashed(begin, *["fetch"] * 8, max_retries=1)
    for call in turn.ready:
        turn.feed(CallStartedInput(call=call))
    assert turn.machine.turn.counters.retries_left == 0
    assert [call.attempt for call in turn.machine.turn.batch.values()] == [2] * 8


def test_each_further_crash_costs_a_retry(begin: "Begin") -> None:
    turn = crashed(begin, "fetch", "fetch", max_retries=2)
    for remaining in (1, 0):
        for call in ("call00001", "call00002"):
            turn.feed(CallStartedInput(call=call))
        assert turn.machine.turn.counters.retries_left == remaining
    turn.feed(CallStartedInput(call="call00002"))
    assert turn.result("call00002").status is CallStatus.UNKNOWN
    assert turn.ready == ["call00001"]


def test_crash_among_reruns_keeps_the_retry_of_other_calls(begin: "Begin") -> None:
    """The second process died while the first call ran again. The other call was not interrupted a second time."""
    turn = crashed(begin, "fetch", "fetch", max_retries=1)
    turn.feed(CallStartedInput(call="call00001"))
    turn.feed(CallStartedInput(call="call00001"))
    assert turn.result("call00001").status is CallStatus.UNKNOWN
    turn.feed(CallStartedInput(call="call00002"))
    assert turn.ready == ["call00002"]


def test_crash_without_a_retry_leaves_each_outcome_unknown(begin: "Begin") -> None:
    turn = crashed(begin, "fetch", "fetch", max_retries=0)
    for call in ("call00001", "call00002"):
        turn.feed(CallStartedInput(call=call))
        assert turn.result(call).status is CallStatus.UNKNOWN


def test_driver_may_settle_a_started_call_as_unknown(begin: "Begin") -> None:
    """`on_crash = "unknown"`, the default: the model reads it, and the call keeps its place in the budget."""
    turn = begin()
    turn.reply("write")
    turn.feed(CallStartedInput(call="call00001"))
    turn.feed(CallSettledInput(call="call00001", status=CallStatus.UNKNOWN, result="outcome unknown"))
    assert turn.action == CallModel(tools=True)
    assert turn.calls == 1


def test_driver_may_ask_about_a_started_call(begin: "Begin") -> None:
    """`on_crash = "ask"`: a rerun counts no second place, and no retry."""
    turn = begin(max_retries=0)
    turn.reply("write")
    turn.feed(CallStartedInput(call="call00001"))
    turn.wait("call00001", InterruptKind.UNKNOWN_OUTCOME)
    turn.feed(AnsweredInput(interrupt="unknown-1", decision=Decision.RERUN))
    (started,) = turn.feed(CallStartedInput(call="call00001"))
    assert isinstance(started, facts.CallStarted)
    assert started.attempt == 2
    assert turn.calls == 1


def test_person_may_leave_the_outcome_unknown(begin: "Begin") -> None:
    turn = begin()
    turn.reply("write")
    turn.feed(CallStartedInput(call="call00001"))
    turn.wait("call00001", InterruptKind.UNKNOWN_OUTCOME)
    turn.feed(AnsweredInput(interrupt="unknown-1", decision=Decision.UNKNOWN))
    assert turn.result("call00001").status is CallStatus.UNKNOWN
    assert turn.action == CallModel(tools=True)


def test_unstarted_call_has_no_successful_result(begin: "Begin") -> None:
    turn = begin()
    turn.reply("look")
    with pytest.raises(InvalidCallError, match="it succeeded but was never started"):
        turn.feed(CallSettledInput(call="call00001"))
    assert turn.ready == ["call00001"]


# Rule 14. Sub-agents.


@pytest.mark.parametrize(("children", "share"), [(1, 48), (2, 23), (3, 15), (7, 6)])
def test_each_of_k_children_leases_an_equal_share_of_the_calls(begin: "Begin", children: int, share: int) -> None:
    """floor(rest / k), after the batch's own places: 50 less the children and one other call."""
    turn = begin()
    turn.reply("look", *[AGENT] * children)
    assert leases(turn) == [None, *[facts.Lease(calls=share)] * children]


def test_tokens_and_cost_are_leased_in_equal_shares(begin: "Begin") -> None:
    turn = begin(tokens=1000, cost=1.0)
    turn.step("look", usage=Usage(input_tokens=300, cost=0.25))
    turn.reply(AGENT, AGENT)
    assert leases(turn) == [facts.Lease(calls=23, tokens=350, cost=0.375)] * 2


def test_rounding_error_of_the_cost_is_not_leased(begin: "Begin") -> None:
    """The sum of 0.7 and 0.1 is a little less than 0.8."""
    turn = begin(cost=0.8)
    turn.step("look", usage=Usage(cost=0.7))
    turn.reply(AGENT, usage=Usage(cost=0.1))
    assert leases(turn) == [None]


def test_delegating_reply_is_paid_before_the_leases(begin: "Begin") -> None:
    """The rest is what is left when the reply has arrived, and so without what the reply itself used."""
    turn = begin(tokens=1000, cost=1.0)
    turn.reply(AGENT, usage=Usage(input_tokens=600, cost=0.75))
    assert leases(turn) == [facts.Lease(calls=49, tokens=400, cost=0.25)]


def test_unset_budgets_stay_unset(begin: "Begin") -> None:
    turn = begin(tool_calls=None)
    turn.reply(AGENT)
    assert leases(turn) == [facts.Lease()]


@pytest.mark.parametrize(("budget", "refused"), [(2, True), (3, True), (4, False)])
def test_lease_of_0_is_refused(begin: "Begin", budget: int, refused: bool) -> None:
    turn = begin(tool_calls=budget)
    turn.reply(AGENT, AGENT)
    if refused:
        for call in ("call00001", "call00002"):
            assert (turn.result(call).status, turn.result(call).result) == (CallStatus.REFUSED, NO_LEASE)
    else:
        assert leases(turn) == [facts.Lease(calls=1)] * 2


def test_lease_of_0_tokens_or_no_money_is_refused(begin: "Begin") -> None:
    for limits, usage in (({"tokens": 10}, Usage(input_tokens=10)), ({"cost": 0.5}, Usage(cost=0.5))):
        turn = begin(None, **limits)
        turn.reply(AGENT, usage=usage)
        assert turn.result("call00001").result == NO_LEASE


def test_unused_part_of_a_lease_returns(begin: "Begin") -> None:
    turn = begin(tokens=1000)
    turn.reply(AGENT)
    turn.feed(CallStartedInput(call="call00001", child="turn-1:call00001"))
    turn.feed(CallSettledInput(call="call00001", spent=Spent(calls=5, tokens=200, cost=0.5)))
    assert turn.calls == 6
    assert (turn.machine.turn.usage.tokens, turn.machine.turn.usage.cost) == (200, 0.5)
    turn.reply(AGENT)
    assert leases(turn) == [facts.Lease(calls=43, tokens=800)]


def test_child_usage_counts_against_the_parent(begin: "Begin") -> None:
    turn = begin(tool_calls=4)
    turn.reply(AGENT)
    turn.feed(CallStartedInput(call="call00001"))
    turn.feed(CallSettledInput(call="call00001", spent=Spent(calls=3)))
    assert turn.action == Conclude(EndReason.BUDGET, 30.0, 1024)


@pytest.mark.parametrize(("spent", "fits"), [(48, True), (49, True), (50, False)])
def test_child_cannot_spend_more_calls_than_the_lease(begin: "Begin", spent: int, fits: bool) -> None:
    turn = begin()
    turn.reply(AGENT)
    turn.feed(CallStartedInput(call="call00001"))
    settled = CallSettledInput(call="call00001", spent=Spent(calls=spent))
    if fits:
        turn.feed(settled)
        assert turn.calls == 1 + spent
        return
    with pytest.raises(InvalidCallError, match="used 50 calls, and its lease is"):
        turn.feed(settled)
    assert turn.calls == 1


def test_abandoned_sub_agent_has_spent_the_whole_lease(begin: "Begin") -> None:
    """Nobody says what it used when the machine settles its call, and only what is known to be unused returns."""
    gone = begin(tool_calls=4, tokens=100, cost=2.0, max_retries=0)
    unanswered = begin(tool_calls=4, tokens=100, cost=2.0, max_pauses=0)
    unknown = begin(tool_calls=4, tokens=100, cost=2.0)
    for turn in (gone, unanswered, unknown):
        turn.reply(AGENT)
        turn.feed(CallStartedInput(call="call00001"))
    gone.feed(CallStartedInput(call="call00001"))
    unanswered.feed(CallWaitingInput(call="call00001", interrupt_kind=InterruptKind.QUESTION, forwarded="question-1"))
    unknown.feed(CallWaitingInput(call="call00001", interrupt_kind=InterruptKind.UNKNOWN_OUTCOME))
    unknown.feed(AnsweredInput(interrupt="unknown-1", decision=Decision.UNKNOWN))
    for turn in (gone, unanswered, unknown):
        assert turn.result("call00001").status is CallStatus.UNKNOWN
        assert turn.result("call00001").spent == Spent(calls=3, tokens=100, cost=2.0)
        assert turn.action == Conclude(EndReason.BUDGET, 30.0, 1024)


def test_unstarted_sub_agent_has_spent_nothing(begin: "Begin") -> None:
    turn = begin(tool_calls=4)
    turn.reply(AGENT)
    turn.wait("call00001")
    turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.REJECT))
    assert turn.result("call00001").spent is None
    assert turn.calls == 0


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("stop", [AbortInput, ExpireInput, FailInput])
def test_sub_agent_usage_of_a_stopped_turn_is_counted(
    begin: "Begin", stop: type[AbortInput | ExpireInput | FailInput], *, answered: bool
) -> None:
    """Each call that is closed says what its own used, and a replay reads it back. The turn may have its answer."""
    turn = begin(tokens=1000)
    turn.reply(AGENT, "look", AGENT)
    for call in turn.ready:
        turn.feed(CallStartedInput(call=call))
    if answered:
        turn.feed(CallSettledInput(call="call00002", final=True))
    spent = {"call00001": Spent(calls=5, tokens=200, cost=0.5), "call00003": Spent(calls=1)}
    stopped = FailInput(error="x", spent=spent) if issubclass(stop, FailInput) else stop(spent=spent)
    turn.feed(stopped)
    assert {call: turn.result(call).spent for call in ("call00001", "call00002", "call00003")} == {
        "call00002": None,
        **spent,
    }
    assert turn.calls == 3 + 6
    assert turn.machine.turn.usage == Usage(input_tokens=200, cost=0.5)
    replayed = replay(enumerate(turn.facts, start=1))
    assert replayed.groups[-1].event == stopped


def test_begun_call_without_a_pause_left_is_unknown_and_not_refused(begin: "Begin") -> None:
    """An answer made it ready to run again; when it may not ask once more, what it did before is still unknown."""
    turn = begin(max_pauses=1)
    turn.reply("look")
    turn.feed(CallStartedInput(call="call00001"))
    turn.wait("call00001", InterruptKind.UNKNOWN_OUTCOME)
    turn.feed(AnsweredInput(interrupt="unknown-1", decision=Decision.RERUN))
    turn.wait("call00001")
    assert turn.result("call00001").status is CallStatus.UNKNOWN
    assert turn.calls == 1


def test_only_a_sub_agent_spends(begin: "Begin") -> None:
    turn = begin()
    turn.reply("look")
    turn.feed(CallStartedInput(call="call00001"))
    with pytest.raises(InvalidCallError, match="lease"):
        turn.feed(CallSettledInput(call="call00001", spent=Spent(calls=1)))


@pytest.mark.parametrize(("depth", "runs"), [(0, True), (2, True), (3, False)])
def test_sub_agents_are_nested_at_most_3_deep(begin: "Begin", depth: int, runs: bool) -> None:
    turn = begin(StartedInput(prompt="x", depth=depth))
    turn.reply(AGENT, "look")
    assert turn.ready == (["call00001", "call00002"] if runs else ["call00002"])
    if not runs:
        assert (turn.result("call00001").status, turn.result("call00001").result) == (CallStatus.REFUSED, TOO_DEEP)


def forwarded(begin: "Begin", kind: InterruptKind, name: str, **limits: object) -> "Script":
    """A turn that rests on an interrupt of its child."""
    turn = begin(**limits)
    turn.reply(AGENT)
    turn.feed(CallStartedInput(call="call00001", child="turn-1:call00001"))
    turn.feed(CallWaitingInput(call="call00001", interrupt_kind=kind, forwarded=name))
    return turn


def test_child_interrupt_is_forwarded_with_the_call_as_prefix(begin: "Begin") -> None:
    turn = forwarded(begin, InterruptKind.APPROVAL, "approval-1")
    assert turn.interrupts == ["call00001/approval-1"]
    assert isinstance(turn.action, AwaitPerson)


def test_only_a_child_interrupt_has_own_arguments(begin: "Begin") -> None:
    """A call of this turn has them in its reply."""
    turn = begin()
    arguments: JsonObject = {"path": ["/srv"]}
    turn.reply(AGENT, "look")
    turn.feed(CallStartedInput(call="call00001", child="turn-1:call00001"))
    kind = InterruptKind.APPROVAL
    turn.feed(CallWaitingInput(call="call00001", interrupt_kind=kind, forwarded="approval-1", arguments=arguments))
    turn.feed(CallWaitingInput(call="call00002", interrupt_kind=kind, arguments=arguments, changed=arguments))
    ours, own = turn.of(facts.CallWaiting)
    assert (ours.interrupt.arguments, own.interrupt.arguments) == (arguments, None)
    assert (ours.changed, own.changed) == (None, arguments)


@pytest.mark.parametrize("decision", [Decision.APPROVE, Decision.REJECT])
def test_answer_to_a_child_interrupt_reaches_the_child(begin: "Begin", decision: Decision) -> None:
    """A denial is the child's to take: its own call has not failed, and continues."""
    turn = forwarded(begin, InterruptKind.APPROVAL, "approval-1")
    turn.feed(AnsweredInput(interrupt="call00001/approval-1", decision=decision))
    assert turn.ready == ["call00001"]
    assert turn.machine.turn.batch["call00001"].answers[0].decision is decision


@pytest.mark.parametrize("decision", [Decision.GO_ON, Decision.ALWAYS, Decision.STOP])
def test_doom_loop_of_a_child_is_forwarded(begin: "Begin", decision: Decision) -> None:
    """The answer is for the child: its call continues, and the parent neither stops nor forgets its own rounds."""
    turn = begin()
    turn.step(AGENT)
    turn.reply(AGENT)
    rounds = turn.machine.turn.rounds
    turn.feed(CallStartedInput(call="call00002", child="turn-1:call00002"))
    turn.feed(CallWaitingInput(call="call00002", interrupt_kind=InterruptKind.DOOM_LOOP, forwarded="doom-1"))
    assert turn.interrupts == ["call00002/doom-1"]
    turn.feed(AnsweredInput(interrupt="call00002/doom-1", decision=decision))
    assert turn.state is State.TOOL_EXEC
    assert turn.ready == ["call00002"]
    assert turn.machine.turn.rounds == rounds
    assert turn.machine.turn.always_for == frozenset()


def test_doom_loop_of_a_child_keeps_the_parent_name_free(begin: "Begin") -> None:
    """`doom-1` for a doom loop."""
    turn = begin(doom_response="ask", doom_threshold=2)
    turn.reply(AGENT)
    turn.feed(CallStartedInput(call="call00001", child="turn-1:call00001"))
    turn.feed(CallWaitingInput(call="call00001", interrupt_kind=InterruptKind.DOOM_LOOP, forwarded="doom-1"))
    turn.feed(AnsweredInput(interrupt="call00001/doom-1", decision=Decision.GO_ON))
    turn.settle()
    turn.step(AGENT)
    assert turn.interrupts == ["doom-1"]
