"""Steps and budgets (docs/rules.md#steps, #zero, #last-step, #budgets)."""

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from turnwright_states import (
    AnsweredInput,
    AttemptFailedInput,
    CallModel,
    CallSettledInput,
    CallStartedInput,
    CallStatus,
    Cause,
    Conclude,
    ConcludedInput,
    Decision,
    EndReason,
    Halt,
    Outcome,
    RunTools,
    Spent,
    StartedInput,
    State,
    SteeredInput,
    Synthesize,
    SynthesizedInput,
    ToolCall,
    Usage,
    facts,
)
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict

if TYPE_CHECKING:
    from .conftest import Begin

SPENT = "not executed: the tool budget is spent"


# Rule 1. Counting.


@pytest.mark.parametrize("cap", [1, 2, 5, 200])
def test_concluding_after_takes_all_steps_and_another_call(begin: "Begin", cap: int) -> None:
    """`concluding = "after"`: `cap` steps, then one concluding call."""
    turn = begin(steps=cap, tool_calls=None, doom_threshold=None, stall_rounds=None)
    for number in range(1, cap + 1):
        assert turn.action == CallModel(tools=True)
        assert turn.steps == number
        turn.step("look")
    assert turn.action == Conclude(EndReason.STEP_CAP, 30.0, 1024)
    turn.feed(ConcludedInput(text="Done."))
    assert turn.end == Halt(Outcome.CAP_HIT, EndReason.STEP_CAP)
    assert turn.steps == cap


@pytest.mark.parametrize("cap", [2, 3, 5])
def test_concluding_within_uses_the_last_step(begin: "Begin", cap: int) -> None:
    """`concluding = "within"`: the cap-th call is the concluding one, and CAP_HIT even if the model says it is done."""
    turn = begin(steps=cap, concluding="within", doom_threshold=None)
    for _ in range(cap - 1):
        turn.step("look", "list")
    assert isinstance(turn.action, Conclude)
    turn.feed(ConcludedInput(text="I am done: everything works."))
    assert turn.end == Halt(Outcome.CAP_HIT, EndReason.STEP_CAP)
    assert turn.steps == cap - 1


@pytest.mark.parametrize(("steps", "allowed"), [(None, 200), (250, 200), (200, 200), (199, 199)])
def test_ceiling_holds_for_any_requested_steps(begin: "Begin", steps: int | None, allowed: int) -> None:
    """Unset `steps` mean the ceiling, and larger ones are cut to it."""
    turn = begin(steps=steps, tool_calls=None, doom_threshold=None)
    while isinstance(turn.action, CallModel):
        turn.step("look")
    assert turn.steps == allowed
    assert isinstance(turn.action, Conclude)


def test_steps_equal_the_step_started_facts(begin: "Begin") -> None:
    """1 for an immediate answer, 0 for TEXT_ONLY; they are numbered from 1."""
    answered, text_only, three = begin(), begin(steps=0), begin()
    answered.reply(text="42")
    text_only.reply(text="42")
    three.step("look")
    three.step("list")
    assert (answered.steps, text_only.steps) == (1, 0)
    assert [fact.number for fact in three.of(facts.StepStarted)] == [1, 2, 3]


def test_only_entering_stream_from_check_counts_a_step(begin: "Begin") -> None:
    """Retries, an empty reply, a pause, its answer and a message start no step."""
    turn = begin(steps=2)
    turn.feed(AttemptFailedInput(cause=Cause.TIMEOUT))
    turn.reply()
    turn.reply("look", "list")
    turn.feed(SteeredInput(text="Only utils.py"))
    turn.wait("call00001")
    turn.settle()
    turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE))
    assert turn.steps == 1
    turn.settle()
    assert turn.steps == 2


@pytest.mark.parametrize("concluding", ["after", "within"])
@pytest.mark.parametrize("retries", [0, 1, 3])
@pytest.mark.parametrize("cap", [0, 1, 2, 4])
def test_formula_of_model_calls_is_reached_and_not_exceeded(
    begin: "Begin", cap: int, retries: int, concluding: str
) -> None:
    """Model calls <= (allowance + 1) x (1 + max_retries): the worst turn fails all attempts but the last of each."""
    turn = begin(steps=cap, concluding=concluding, max_retries=retries, doom_threshold=None)
    count = 0
    while turn.end is None:
        for _ in range(retries):
            count += 1
            turn.feed(AttemptFailedInput(cause=Cause.OVERLOADED))
        count += 1
        if isinstance(turn.action, Conclude):
            turn.feed(ConcludedInput(text="Stopped."))
        elif turn.state is State.TEXT_ONLY:
            turn.reply(text="No tools.")
        else:
            turn.step("look")
    allowance = turn.machine.turn.limits.allowance
    # A turn without steps has one call and no conclusion.
    assert count == (allowance + 1) * (1 + retries)
    assert count == turn.machine.turn.limits.model_calls


# Rule 2. Zero.


@pytest.mark.parametrize(
    "limits",
    [
        {"steps": 0},
        {"steps": 0, "concluding": "within"},
        {"steps": 1, "concluding": "within"},
        {"tool_calls": 0},
        {"ceiling": 0},
        {"steps": 0, "tool_calls": 0},
    ],
    ids=str,
)
def test_zero_limit_gives_a_single_text_only_call(begin: "Begin", limits: dict[str, object]) -> None:
    """`steps: 0`, `within` with cap 1 and a tool-call budget of 0: one text-only call and FINISHED, no sentinel."""
    turn = begin(**limits)
    assert turn.action == CallModel(tools=False)
    turn.reply(text="I have no tools, but I think so.")
    assert turn.end == Halt(Outcome.FINISHED, EndReason.TEXT_ONLY)
    assert turn.steps == 0
    assert "stopping" not in turn.kinds()


@pytest.mark.parametrize(
    "limits", [{"steps": 1}, {"steps": 2, "concluding": "within"}, {"tool_calls": 1}, {"steps": None}], ids=str
)
def test_limit_above_zero_allows_a_step(begin: "Begin", limits: dict[str, object]) -> None:
    assert begin(**limits).action == CallModel(tools=True)


@pytest.mark.parametrize("calls", [2**31 - 2, 2**31 - 1, 2**31, 2**63, 2**70])
def test_unlimited_calls_are_never_reached(begin: "Begin", calls: int) -> None:
    """No count means "no limit", so neither a turn nor a sub-agent's usage can reach one."""
    turn = begin(tool_calls=None, doom_threshold=None, steps=3)
    for _ in range(2):
        turn.reply(ToolCall(name="agent", arguments={}, delegates=True), "look")
        agent, look = turn.ready
        turn.feed(CallStartedInput(call=agent))
        turn.feed(CallSettledInput(call=agent, spent=Spent(calls=calls)))
        turn.settle_one(look)
        assert turn.action == CallModel(tools=True)
    assert turn.calls == 2 * calls + 4
    turn.step("look")
    assert turn.action == Conclude(EndReason.STEP_CAP, 30.0, 1024)
    assert turn.of(facts.Stopping)[0].also_reached == ()
    assert replay(enumerate(turn.facts, start=1)).check.verdict is Verdict.HOLDS


@pytest.mark.parametrize("remaining", [0, 1])
@pytest.mark.parametrize("budget", [1000, 2**31 - 2])
def test_large_budget_is_exact(begin: "Begin", budget: int, remaining: int) -> None:
    """One call fewer than the budget is not the budget."""
    turn = begin(tool_calls=budget, doom_threshold=None)
    turn.reply(ToolCall(name="agent", arguments={}, delegates=True))
    assert turn.of(facts.ModelReplied)[0].calls[0].lease == facts.Lease(calls=budget - 1)
    turn.feed(CallStartedInput(call="call00001"))
    turn.feed(CallSettledInput(call="call00001", spent=Spent(calls=budget - 1 - remaining)))
    if remaining:
        turn.reply("look", "look")
        assert turn.result("call00003").result == SPENT
        turn.settle()
    assert turn.calls == budget
    assert turn.action == Conclude(EndReason.BUDGET, 30.0, 1024)


def test_none_switches_a_limit_off_unlike_zero(begin: "Begin") -> None:
    turn = begin(tool_calls=None, doom_threshold=None, stall_rounds=None)
    for _ in range(10):
        turn.step(*["look"] * 32)
    assert turn.calls == 320
    assert turn.action == CallModel(tools=True)


# Rule 4. The last allowed step.


@pytest.mark.parametrize("concluding", ["after", "within"])
def test_answer_on_the_last_allowed_step_is_finished(begin: "Begin", concluding: str) -> None:
    turn = begin(steps=3, concluding=concluding)
    for _ in range(turn.machine.turn.limits.allowance - 1):
        turn.step("look")
    turn.reply(text="42")
    assert turn.end == Halt(Outcome.FINISHED, EndReason.ANSWERED)


def test_tools_of_the_last_allowed_reply_still_run(begin: "Begin") -> None:
    turn = begin(steps=1)
    turn.reply("look", "list")
    assert isinstance(turn.action, RunTools)
    turn.settle()
    assert [turn.result(call).status for call in ("call00001", "call00002")] == [CallStatus.OK] * 2
    assert isinstance(turn.action, Conclude)


def test_pause_on_the_last_step_is_paused(begin: "Begin") -> None:
    turn = begin(steps=1)
    turn.reply("write")
    turn.wait("call00001")
    assert turn.state is State.PAUSED
    turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE))
    turn.settle()
    assert isinstance(turn.action, Conclude)


def test_synthesis_on_the_last_step_is_synthesis_done(begin: "Begin") -> None:
    turn = begin(StartedInput(prompt="x", synthesis=True), steps=1)
    turn.step("search")
    assert isinstance(turn.action, Synthesize)
    turn.feed(SynthesizedInput(text="The answer."))
    assert turn.end == Halt(Outcome.SYNTHESIS_DONE, EndReason.SYNTHESIZED)


def test_empty_synthesis_on_the_last_step_concludes(begin: "Begin") -> None:
    turn = begin(StartedInput(prompt="x", synthesis=True), steps=1)
    turn.step("search")
    turn.feed(SynthesizedInput())
    assert isinstance(turn.action, Conclude)


# Rule 5. The tool-call budget is exact.


def test_batch_of_10_with_49_of_50_calls_used_runs_a_single_call(begin: "Begin") -> None:
    """The first runs, nine are answered "not executed: the tool budget is spent", and the next CHECK concludes."""
    turn = begin(doom_threshold=None)
    turn.step(*["look"] * 32)
    turn.step(*["look"] * 17)
    assert turn.calls == 49
    turn.reply(*["look"] * 10)
    assert turn.ready == ["call00050"]
    for number in range(51, 60):
        settled = turn.result(f"call{number:05d}")
        assert (settled.status, settled.result) == (CallStatus.REFUSED, SPENT)
    turn.settle()
    assert turn.calls == 50
    assert turn.action == Conclude(EndReason.BUDGET, 30.0, 1024)


@pytest.mark.parametrize(("calls", "run", "concludes"), [(2, 2, False), (3, 3, True), (4, 3, True)])
def test_budget_of_3_runs_3_calls(begin: "Begin", calls: int, run: int, concludes: bool) -> None:
    turn = begin(tool_calls=3)
    turn.reply(*["look"] * calls)
    assert len(turn.ready) == run
    turn.settle()
    assert turn.calls == run
    assert isinstance(turn.action, Conclude) is concludes


def test_unknown_and_invalid_calls_use_no_budget(begin: "Begin") -> None:
    turn = begin(tool_calls=2)
    unknown = ToolCall(name="loook", arguments={}, problem="there is no tool loook")
    not_json = ToolCall(name="look", raw="{path:")
    turn.reply(unknown, "look", not_json, "look", "look")
    assert turn.ready == ["call00002", "call00004"]
    assert turn.result("call00001").status is turn.result("call00003").status is CallStatus.ERROR
    assert turn.result("call00001").result == "there is no tool loook"
    assert turn.result("call00005").result == SPENT
    turn.settle()
    assert turn.calls == 2


def test_denied_call_does_not_count(begin: "Begin") -> None:
    turn = begin(tool_calls=1)
    turn.reply("write")
    turn.wait("call00001")
    turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.REJECT))
    assert turn.calls == 0
    assert turn.action == CallModel(tools=True)


def test_call_needing_approval_counts_after_the_grant(begin: "Begin") -> None:
    turn = begin()
    turn.reply("write")
    turn.wait("call00001")
    turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE))
    assert turn.calls == 0
    turn.feed(CallStartedInput(call="call00001"))
    assert turn.calls == 1


def test_restarted_call_counts_once(begin: "Begin") -> None:
    turn = begin()
    turn.reply("fetch")
    for attempt in (1, 2, 3):
        (started,) = turn.feed(CallStartedInput(call="call00001"))
        assert isinstance(started, facts.CallStarted)
        assert started.attempt == attempt
    assert turn.calls == 1


def test_call_refused_before_the_start_does_not_count(begin: "Begin") -> None:
    turn = begin(tool_calls=1)
    turn.reply("look")
    turn.feed(CallSettledInput(call="call00001", status=CallStatus.REFUSED, result="not allowed here"))
    assert turn.calls == 0
    assert turn.action == CallModel(tools=True)


@pytest.mark.parametrize(("calls", "run"), [(31, 31), (32, 32), (33, 32), (50, 32)])
def test_at_most_32_calls_run_in_a_step(begin: "Begin", calls: int, run: int) -> None:
    """The rest are refused likewise."""
    turn = begin(tool_calls=100)
    turn.reply(*["look"] * calls)
    assert len(turn.ready) == run
    for number in range(run + 1, calls + 1):
        settled = turn.result(f"call{number:05d}")
        assert (settled.status, settled.result) == (
            CallStatus.REFUSED,
            "not executed: at most 32 calls run in one step",
        )


@pytest.mark.parametrize(("tokens", "concludes"), [(99, False), (100, True), (101, True)])
def test_tokens_are_checked_before_a_step(begin: "Begin", tokens: int, concludes: bool) -> None:
    """Input and output count; the batch of the reply that overshot still runs."""
    turn = begin(tokens=100)
    turn.reply("look", usage=Usage(input_tokens=tokens - 1, output_tokens=1))
    assert isinstance(turn.action, RunTools)
    turn.settle()
    assert isinstance(turn.action, Conclude) is concludes
    assert not concludes or turn.of(facts.Stopping)[0].reason is EndReason.TOKENS


@pytest.mark.parametrize(("cost", "part", "steps"), [(0.8, 0.1, 8), (1.0, 0.1, 10), (0.3, 0.1, 3), (0.7, 0.1, 7)])
def test_cost_limit_of_equal_replies_is_reached_exactly(begin: "Begin", cost: float, part: float, steps: int) -> None:
    """The sum of 0.1 eight times is a little less than 0.8."""
    turn = begin(cost=cost, doom_threshold=None, steps=20)
    for number in range(1, steps + 1):
        assert isinstance(turn.action, CallModel)
        turn.step("look", usage=Usage(cost=part))
        assert isinstance(turn.action, Conclude) is (number == steps)


@pytest.mark.parametrize(("cost", "concludes"), [(0.49, False), (0.5, True), (0.51, True)])
def test_cost_is_checked_before_a_step(begin: "Begin", cost: float, concludes: bool) -> None:
    turn = begin(cost=0.5)
    turn.step("look", usage=Usage(cost=cost))
    assert isinstance(turn.action, Conclude) is concludes
    assert not concludes or turn.of(facts.Stopping)[0].reason is EndReason.COST


@pytest.mark.parametrize(("elapsed", "concludes"), [(59.9, False), (60.0, True), (60.1, True)])
def test_time_is_checked_before_a_step(begin: "Begin", elapsed: float, concludes: bool) -> None:
    turn = begin(seconds=60)
    turn.reply("look")
    turn.clock = elapsed
    turn.settle()
    assert isinstance(turn.action, Conclude) is concludes
    assert not concludes or turn.of(facts.Stopping)[0].reason is EndReason.DEADLINE


def test_failed_attempts_spend_tokens_too(begin: "Begin") -> None:
    """A budget of tokens may be overshot by the attempts of one reply, never by a further step."""
    turn = begin(tokens=100)
    turn.feed(AttemptFailedInput(cause=Cause.INTERRUPTED, usage=Usage(input_tokens=100)))
    assert isinstance(turn.action, CallModel)
    turn.step("look", usage=Usage(input_tokens=100))
    assert isinstance(turn.action, Conclude)
    assert turn.machine.turn.usage.tokens == 200


def test_max_tokens_is_clamped_to_the_remaining_budget(begin: "Begin") -> None:
    """Of a step's request; it never falls to nothing, and is None without a budget."""
    turn = begin(tokens=100)
    assert turn.action == CallModel(tools=True, max_tokens=100)
    turn.step("look", usage=Usage(input_tokens=30, output_tokens=9))
    assert turn.action == CallModel(tools=True, max_tokens=61)
    turn.feed(AttemptFailedInput(cause=Cause.INTERRUPTED, usage=Usage(input_tokens=61)))
    assert turn.action == CallModel(tools=True, max_tokens=1)
    assert begin(steps=0, tokens=7).action == CallModel(tools=False, max_tokens=7)
    assert begin().action == CallModel(tools=True, max_tokens=None)


def test_part_of_the_usage_can_be_subtracted_from_the_sum() -> None:
    """Each number by itself; a part that is larger than the sum is refused."""
    part = Usage(input_tokens=1, output_tokens=2, cost=0.25, cached_tokens=3, reasoning_tokens=4)
    rest = Usage(input_tokens=10, output_tokens=20, cost=0.5, cached_tokens=30, reasoning_tokens=40)
    assert part + rest - part == rest
    for name in Usage.__struct_fields__:
        with pytest.raises(ValueError, match=name):
            _ = Usage() - replace(Usage(), **{name: 1})


def test_single_reply_of_only_calls_is_requested_once_more(begin: "Begin") -> None:
    """The last step under a cap of 1 concludes, and a conclusion without text has a second try."""
    turn = begin(steps=1, concluding="within")
    turn.reply("a")
    assert turn.action == CallModel(tools=False, second_try=True)
    turn.reply("a")
    assert turn.end is not None
    assert (turn.end.outcome, turn.end.reason) == (Outcome.FINISHED, EndReason.TEXT_ONLY)


def test_single_reply_without_a_retry_left_is_not_requested_again(begin: "Begin") -> None:
    turn = begin(steps=0, max_retries=0)
    turn.reply("a")
    assert turn.end is not None
    assert turn.end.reason is EndReason.TEXT_ONLY


@pytest.mark.parametrize(("concluding", "step_count"), [("after", 2), ("never", 2), ("within", 2)])
def test_taken_steps_are_counted_in_the_unit_of_the_setting(begin: "Begin", concluding: str, step_count: int) -> None:
    turn = begin(steps=2, concluding=concluding)
    while turn.state is State.STREAM:
        turn.step("a")
    assert turn.machine.turn.steps_taken == step_count
