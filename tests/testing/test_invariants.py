"""Each invariant holds of a turn that went right, and is the one that fails when that turn is tampered with."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from turnwright import Agent, Outcome, tool
from turnwright.message import Message
from turnwright.model import asks_for
from turnwright.model.protocol import ModelRequest
from turnwright_states import EndReason, Limits, State
from turnwright_states import facts as f
from turnwright_states.verdict import Check, Verdict
from turnwright_testing.behavior import Asks, Driven, Execution, Floods
from turnwright_testing.hook_script import Consulted
from turnwright_testing.invariants import INVARIANTS, InvariantViolatedError, assert_invariants, check
from turnwright_testing.play import play
from turnwright_testing.scenario import Scenario

Facts = Sequence[tuple[int, f.Fact]]


@tool
def look(path: str) -> str:
    """Look at a path; a stand-in answers."""
    raise AssertionError(f"it ran, with {path}, though it is only looked at")


TWICE = asks_for(("look", {"path": "a"}), ("look", {"path": "b"}))
SCENARIO = Scenario(
    script=(TWICE, asks_for(("look", {"path": "c"})), "Done."),
    behaviours=(Asks(), Floods()),
    limits=Limits(steps=5, tool_calls=5, max_pauses=1, max_retries=0),
)


@pytest.fixture(scope="module")
def right() -> Driven:
    (driven,) = play(SCENARIO, agent=Agent(name="Somebody"), tools=[look])
    return driven


def violated(driven: Driven) -> list[str]:
    return [checked.claim for checked in check(driven) if checked.verdict is Verdict.VIOLATED]


def claim(invariant: Callable[[Driven], Check]) -> str:
    return invariant(Driven(facts=())).claim


def of(driven: Driven, kind: type[f.Fact]) -> list[int]:
    """The places of the facts of a kind, from 0."""
    return [place for place, (_, fact) in enumerate(driven.facts) if isinstance(fact, kind)]


def changed(driven: Driven, place: int, **fields: object) -> Driven:
    """The turn with another fact in that place."""
    facts = list(driven.facts)
    seq, fact = facts[place]
    facts[place] = (seq, structs.replace(fact, **fields))
    return replace(driven, facts=facts)


def with_facts(driven: Driven, facts: Sequence[f.Fact]) -> Driven:
    return replace(driven, facts=list(enumerate(facts, start=1)))


def test_sound_turn_keeps_every_invariant(right: Driven) -> None:
    checks = check(right)
    assert [checked.verdict for checked in checks] == [Verdict.HOLDS] * len(INVARIANTS)
    assert len({checked.claim for checked in checks}) == len(INVARIANTS)
    assert_invariants([right])


def test_unwatched_property_is_inconclusive(right: Driven) -> None:
    checks = check(Driven(facts=right.facts))
    unknown = [checked.claim for checked in checks if checked.verdict is Verdict.INCONCLUSIVE]
    assert unknown == [
        "model calls <= (allowance + 1) x (1 + max_retries) + 2 x max_compactions",
        "every request is paired, ends with no assistant message, and has the tools of its step",
        "no tool runs before its start is in the journal",
        "no call runs again, unless its tool is idempotent or a person said so",
        "no hook is asked again once its decision is in the journal",
        "a turn does not go on after a guardrail has tripped",
    ]
    assert violated(Driven(facts=right.facts)) == []


def raised(right: Driven) -> Driven:
    return replace(right, raised="RuntimeError: boom")


def unfinished(right: Driven) -> Driven:
    return with_facts(right, [fact for _, fact in right.facts][:-1])


def gave_up(right: Driven) -> Driven:
    return replace(unfinished(right), gave_up="it is still in STREAM after the last resumption")


def ended_twice(right: Driven) -> Driven:
    facts = [fact for _, fact in right.facts]
    return with_facts(right, [*facts, facts[-1]])


def another_reason(right: Driven) -> Driven:
    return changed(right, -1, reason=EndReason.STEP_CAP)


def a_bug(right: Driven) -> Driven:
    return changed(right, -1, outcome=Outcome.FAILED, state=State.FAILED, reason=EndReason.ENGINE_ERROR, error="oh")


def a_skipped_step(right: Driven) -> Driven:
    return changed(right, of(right, f.StepStarted)[-1], number=4)


def fewer(right: Driven, **limits: object) -> Driven:
    """The same turn, as if it had been allowed less."""
    return changed(right, 0, limits=SCENARIO.limits.model_copy(update=limits))


def too_many_steps(right: Driven) -> Driven:
    return fewer(right, steps=2)


def too_many_calls(right: Driven) -> Driven:
    return fewer(right, tool_calls=2)


def too_many_calls_in_a_step(right: Driven) -> Driven:
    return fewer(right, max_calls_per_step=1)


def too_many_model_calls(right: Driven) -> Driven:
    assert right.requests is not None
    return replace(right, requests=[*right.requests] * 3)


def too_many_pauses(right: Driven) -> Driven:
    return fewer(right, max_pauses=0)


def spent_tokens(right: Driven) -> Driven:
    return fewer(right, tokens=1)


def a_lost_result(right: Driven) -> Driven:
    place = of(right, f.CallSettled)[0]
    return with_facts(right, [fact for n, (_, fact) in enumerate(right.facts) if n != place])


def a_result_twice(right: Driven) -> Driven:
    facts = [fact for _, fact in right.facts]
    place = of(right, f.CallSettled)[0]
    return with_facts(right, [*facts[: place + 1], *facts[place:]])


def a_long_result(right: Driven) -> Driven:
    return changed(right, of(right, f.CallSettled)[0], result="x" * 70_000)


def a_wrong_hash(right: Driven) -> Driven:
    return changed(right, of(right, f.StepFinished)[0], hash="00000000")


def an_unpaired_request(right: Driven) -> Driven:
    """A hook or an adapter dropped the results."""
    return with_request(right, lambda messages: [message for message in messages if message.role != "tool"])


def an_assistant_message_last(right: Driven) -> Driven:
    return with_request(right, lambda messages: [*messages, Message.assistant("I go on")])


def no_tools_offered(right: Driven) -> Driven:
    assert right.requests is not None
    return replace(right, requests=[structs.replace(request, tools=()) for request in right.requests])


def with_request(right: Driven, change: Callable[[Sequence[Message]], Sequence[Message]]) -> Driven:
    """The last request with other messages."""
    assert right.requests is not None
    last: ModelRequest = right.requests[-1]
    return replace(right, requests=[*right.requests[:-1], structs.replace(last, messages=tuple(change(last.messages)))])


def not_journalled(right: Driven) -> Driven:
    return ran(right, Execution("turn", "call00009", "look", 1))


def ran_twice(right: Driven) -> Driven:
    assert right.executions is not None
    return ran(right, right.executions[0])


def ran(right: Driven, execution: Execution) -> Driven:
    assert right.executions is not None
    return replace(right, executions=[*right.executions, execution])


def with_verdict(right: Driven, *, refused: bool = False, retry: bool = False, answer: str | None = None) -> Driven:
    """The turn whose first reply was judged."""
    facts = [fact for _, fact in right.facts]
    place = of(right, f.ModelReplied)[0] + 1
    return with_facts(
        right,
        [
            *facts[:place],
            f.Reviewed(elapsed=0.0, state=State.TOOL_EXEC, refused=refused, retry=retry, answer=answer),
            *facts[place:],
        ],
    )


def too_many_refusals(right: Driven) -> Driven:
    return with_verdict(fewer(right, output_retries=0), refused=True, retry=True)


def too_many_compactions(right: Driven) -> Driven:
    facts = [fact for _, fact in right.facts]
    return with_facts(right, [*facts, f.CompactionStarted(elapsed=0.0, state=State.COMPACT)])


def a_refused_reply_that_ran(right: Driven) -> Driven:
    return with_verdict(right, refused=True)


def an_accepted_answer_and_a_step(right: Driven) -> Driven:
    return with_verdict(right, answer="call00001")


def consulted(right: Driven, on: str, about: int | str, facts: int, *, tripped: bool = False) -> Driven:
    """The turn with one question to a hook, when the journal had so many facts."""
    return replace(right, consulted=[Consulted("turn", on, about, facts, tripped)])


def asked_again(right: Driven) -> Driven:
    seq, started = right.facts[of(right, f.CallStarted)[0]]
    assert isinstance(started, f.CallStarted)
    return consulted(right, "before_tool", started.call, seq)


def asked_about_a_judged_reply(right: Driven) -> Driven:
    return consulted(with_verdict(right, refused=False), "after_model", 1, facts=9)


def tripped_and_went_on(right: Driven) -> Driven:
    return consulted(right, "output_guardrail", 1, facts=3, tripped=True)


def test_verdict_binds_the_asking_process(right: Driven) -> None:
    claim = "a turn does not go on after a guardrail has tripped"
    consulted = Consulted("turn", "output_guardrail", 1, facts=3, tripped=True)
    for died, went_on in ((3, False), (None, True)):
        again = replace(right, consulted=[replace(consulted, died=died)])
        assert (claim in violated(again)) is went_on


TAMPERED: dict[Callable[[Driven], Driven], str] = {
    raised: "the engine raises nothing",
    unfinished: "the turn ends",
    gave_up: "the turn ends",
    ended_twice: "at most one ending: the last fact, whose reason fits its outcome",
    another_reason: "at most one ending: the last fact, whose reason fits its outcome",
    a_bug: "no turn fails by a bug of the engine, a tool or a hook",
    a_skipped_step: "steps <= min(steps, ceiling, 200), counted one by one",
    too_many_steps: "steps <= min(steps, ceiling, 200), counted one by one",
    too_many_calls: "calls started <= tool_calls, and <= max_calls_per_step in each step",
    too_many_calls_in_a_step: "calls started <= tool_calls, and <= max_calls_per_step in each step",
    too_many_model_calls: "model calls <= (allowance + 1) x (1 + max_retries) + 2 x max_compactions",
    too_many_pauses: "pauses <= max_pauses",
    spent_tokens: "no step starts once the tokens, the cost or the time is spent",
    a_lost_result: "every call has exactly one result, wherever the turn pauses",
    a_result_twice: "every call is settled exactly once in the journal",
    an_unpaired_request: "every request is paired, ends with no assistant message, and has the tools of its step",
    an_assistant_message_last: "every request is paired, ends with no assistant message, and has the tools of its step",
    no_tools_offered: "every request is paired, ends with no assistant message, and has the tools of its step",
    a_long_result: "no result is longer than 64 KiB and its notice",
    a_wrong_hash: "every prefix of the journal folds to the state that was recorded",
    not_journalled: "no tool runs before its start is in the journal",
    too_many_refusals: "refused replies <= output_retries, and compactions <= max_compactions",
    too_many_compactions: "refused replies <= output_retries, and compactions <= max_compactions",
    a_refused_reply_that_ran: "nothing of a refused reply runs, and no step follows an accepted answer",
    an_accepted_answer_and_a_step: "nothing of a refused reply runs, and no step follows an accepted answer",
    asked_again: "no hook is asked again once its decision is in the journal",
    asked_about_a_judged_reply: "no hook is asked again once its decision is in the journal",
    tripped_and_went_on: "a turn does not go on after a guardrail has tripped",
    ran_twice: "no call runs again, unless its tool is idempotent or a person said so",
}


@pytest.mark.parametrize("tamper", TAMPERED, ids=lambda tamper: tamper.__name__)
def test_tampering_violates_the_matching_invariant(right: Driven, tamper: Callable[[Driven], Driven]) -> None:
    assert TAMPERED[tamper] in violated(tamper(right))


@pytest.mark.parametrize("tamper", [another_reason, a_skipped_step, a_lost_result, a_result_twice, ended_twice])
def test_tampered_journal_violates_the_journal_invariant(right: Driven, tamper: Callable[[Driven], Driven]) -> None:
    assert "every fact follows from the ones before" in violated(tamper(right))


def test_every_invariant_can_fail() -> None:
    claims = {*TAMPERED.values(), "every fact follows from the ones before"}
    assert {claim(invariant) for invariant in INVARIANTS} == claims


def test_violation_is_named_with_the_place(right: Driven) -> None:
    with pytest.raises(
        InvariantViolatedError, match=r"(?s)^violated: .*fact 1\d \(step_finished\) has the hash 00000000"
    ) as raised:
        assert_invariants([right, a_wrong_hash(right)])
    assert {check.verdict for check in raised.value.checks} == {Verdict.VIOLATED}


def test_rerun_requested_by_a_person_is_no_second_run(right: Driven) -> None:
    """And neither is one of an idempotent tool; but no attempt may run twice."""
    assert right.executions is not None
    again = replace(right.executions[0], attempt=2)
    place = of(right, f.CallStarted)[0]
    facts = [fact for _, fact in right.facts]
    restarted = structs.replace(facts[place], attempt=2)
    twice = with_facts(ran(right, again), [*facts[: place + 1], restarted, *facts[place + 1 :]])
    claimed = "no call runs again, unless its tool is idempotent or a person said so"
    assert claimed in violated(twice)

    @tool(name="look", idempotent=True)
    def harmless(path: str) -> str:
        raise AssertionError(f"it ran, with {path}, though it is only looked at")

    assert claimed not in violated(replace(twice, tools={"look": harmless}))


def test_empty_observation_violates_the_end_of_the_turn() -> None:
    assert violated(Driven(facts=())) == ["the turn ends"]


def test_only_a_repeatable_step_may_run_without_a_record(right: Driven) -> None:
    """Its agent says so, and its tools only read: then a crash may have lost the fact, and the call ran again."""
    assert right.executions is not None
    started = right.facts[0][1]
    assert isinstance(started, f.TurnStarted)
    repeatable = changed(right, 0, agent={**started.agent, "repeatable_steps": True})
    lost = replace(right.executions[0], call="call00009")
    claims = {TAMPERED[not_journalled], TAMPERED[ran_twice]}

    @tool(name="look", read_only=True)
    def reads(path: str) -> str:
        """Read a path."""
        return path

    for driven, offered, broken in (
        (right, look, claims),
        (right, reads, claims),
        (repeatable, look, claims),
        (repeatable, reads, set[str]()),
    ):
        twice = replace(ran(ran(driven, lost), lost), tools={"look": offered})
        assert claims.intersection(violated(twice)) == broken
