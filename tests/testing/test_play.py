"""A scenario is played as it is written: the model, the tools, the people, the crash and the clock."""

import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Literal, Unpack

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.statistics import collector
from pydantic import JsonValue

from turnwright import (
    Agent,
    CallView,
    ChangeArguments,
    ChangeRequest,
    Compact,
    ConfigError,
    EndReason,
    Engine,
    ModelSettings,
    Outcome,
    Reject,
    ReturnResult,
    ToolContext,
    Trip,
    TurnInfo,
    before_tool,
    tool,
)
from turnwright.driver.hooks.guardrails import GuardrailKind
from turnwright.model import asks_for
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse, TextDelta
from turnwright.store import MemoryStore, SqliteStore, Store
from turnwright.tools import RESULT_LIMIT
from turnwright_states import Cause, Limits
from turnwright_states import facts as f
from turnwright_testing import (
    Answers,
    Asks,
    Behavior,
    Broke,
    Crash,
    Cut,
    Driven,
    EngineParts,
    FaultyStore,
    FlakyModel,
    Floods,
    GuardrailScript,
    Hangs,
    HookScript,
    Leaves,
    Raises,
    Refuses,
    Returns,
    Runs,
    Scenario,
    Stalls,
    Unfinished,
    assert_invariants,
    clock,
    play,
)
from turnwright_testing.behavior import Stage
from turnwright_testing.faults import StoreCall
from turnwright_testing.hook_script import DecidedCode, HookQuestion

RAN: list[str] = []


@tool(timeout=60)
async def look(path: str = "") -> str:
    """Look at a path; a stand-in answers unless the tools run."""
    RAN.append(path)
    return f"saw {path}"


@tool(needs_approval=lambda path: path == "secret", idempotent=True, on_crash="ask")
def remove(path: str = "") -> str:
    """Asks about one path."""
    raise AssertionError(f"it ran, with {path}, though a stand-in takes its place, or nobody lets it")


TOOLS = [look, remove]
LOOK = asks_for(("look", {"path": "a"}))


def played(scenario: Scenario, **options: object) -> list[Driven]:
    turns: list[Driven] = play(scenario, tools=TOOLS, **options)  # type: ignore[call-overload]
    assert_invariants(turns)
    return turns


def ending(driven: Driven) -> tuple[Outcome, EndReason]:
    last = driven.facts[-1][1]
    assert isinstance(last, f.TurnEnded)
    return last.outcome, last.reason


def results(driven: Driven) -> list[str]:
    return [fact.result for _, fact in driven.facts if isinstance(fact, f.CallSettled)]


def test_empty_scenario_answers_at_once() -> None:
    (driven,) = played(Scenario())
    assert ending(driven) == (Outcome.FINISHED, EndReason.ANSWERED)
    assert repr(Scenario()) == "Scenario()"


def test_last_line_is_repeated_for_ever() -> None:
    (driven,) = played(Scenario(script=(LOOK,)))
    assert ending(driven) == (Outcome.DOOM_LOOP, EndReason.DOOM_LOOP)


@pytest.mark.parametrize(
    ("behaviour", "result"),
    [
        (Returns("well"), "well"),
        (Raises(), "RuntimeError: boom"),
        (Raises("ToolError", "as you like"), "as you like"),
        (Raises("SystemExit", "bye"), "SystemExit: bye"),
        (Hangs(), "look did not finish within 60 s; part of its work may be done"),
        (Hangs(10), "after all"),
        (Asks(then=Returns("allowed")), "allowed"),
        (Runs(), "saw a"),
    ],
    ids=repr,
)
def test_call_has_the_scripted_behavior(behaviour: Behavior, result: str) -> None:
    (driven,) = played(Scenario(script=(LOOK, "Done."), behaviours=(behaviour,)))
    assert results(driven) == [result]


def test_endless_output_is_cut_off() -> None:
    (driven,) = played(Scenario(script=(LOOK, "Done."), behaviours=(Floods(),)))
    (result,) = results(driven)
    assert result.startswith("x" * RESULT_LIMIT + "\n[cut: ")


def test_behaviors_apply_in_call_order_and_then_calls_return_ok() -> None:
    (driven,) = played(Scenario(script=(LOOK, LOOK, "Done."), behaviours=(Returns("first"),)))
    assert results(driven) == ["first", "ok"]


def test_tools_run_only_on_request() -> None:
    RAN.clear()
    scenario = Scenario(script=(LOOK, LOOK, "Done."), behaviours=(Returns("not run"),))
    played(scenario)
    assert RAN == []
    (driven,) = played(scenario, run_tools=True)
    assert (RAN, results(driven)) == (["a"], ["not run", "saw a"])


def test_stand_in_asks_and_validates_like_the_tool() -> None:
    calls = asks_for(("remove", {"path": "secret"}), ("remove", {"path": "b"}), ("remove", {"file": "c"}))
    (driven,) = played(Scenario(script=(calls, "Done."), people=(Answers(decision=1, text="no"),)))
    assert results(driven)[0].startswith("invalid arguments")
    assert results(driven)[1:] == ["ok", "rejected by the person: no"]


def test_person_answers_several_questions_in_order() -> None:
    calls = asks_for(("remove", {"path": "secret"}), ("remove", {"path": "secret"}))
    people = (Answers(first=0), Answers(first=1), Answers(decision=1, text="no"))
    (driven,) = played(Scenario(script=(calls, "Done."), people=people))
    assert results(driven) == ["rejected by the person: no", "ok"]


@pytest.mark.parametrize(
    ("leaves", "ends"),
    [
        (Leaves("abort"), [(Outcome.ABORTED, EndReason.ABORTED)]),
        (
            Leaves("message"),
            [(Outcome.ABORTED, EndReason.SUPERSEDED), (Outcome.FINISHED, EndReason.ANSWERED)],
        ),
    ],
)
def test_person_may_never_answer(leaves: Leaves, ends: list[tuple[Outcome, EndReason]]) -> None:
    turns = played(Scenario(script=(LOOK, "Done."), behaviours=(Asks(),), people=(leaves,)))
    assert [ending(driven) for driven in turns] == ends
    assert [len(driven.requests or ()) for driven in turns] == [1] * len(ends)


@pytest.mark.parametrize("after", [False, True])
def test_dead_process_is_followed_by_another(after: bool) -> None:
    """It dies around the start of a call that is not idempotent: run at most once, and unknown where it may have."""
    script = (LOOK, "Done.") if after else (LOOK, LOOK, "Done.")  # a lost reply is asked for again
    (driven,) = played(Scenario(script=script, crash=Crash(1, after=after)))
    assert results(driven) == [results(driven)[0]]
    assert results(driven)[0].startswith("outcome unknown" if after else "ok")
    assert ending(driven) == (Outcome.FINISHED, EndReason.ANSWERED)


def test_person_decides_about_a_call_interrupted_by_a_crash() -> None:
    scenario = Scenario(script=(asks_for(("remove", {})), "Done."), crash=Crash(1, after=True))
    (driven,) = played(scenario)  # the first decision is to run it again
    assert results(driven) == ["ok"]
    assert [execution.attempt for execution in driven.executions or ()] == [2]


def test_temporary_append_failure_counts_as_an_attempt() -> None:
    """Nobody died, but the reply that was lost is asked for again, and counts as after a crash."""
    (driven,) = played(Scenario(crash=Crash(1, heals=True)))
    assert len(driven.requests or ()) == 2
    (failed,) = (fact for _, fact in driven.facts if isinstance(fact, f.AttemptFailed))
    assert (failed.cause, failed.retry) == (Cause.CRASH, True)


class _FullStore(FaultyStore):
    """A store into which nothing can be written."""

    def fault(self, call: StoreCall) -> Literal["", "fail before"]:
        return "fail before" if call.facts else ""


def test_error_before_the_first_turn_is_reported() -> None:
    (driven,) = play(Scenario(), store=lambda: _FullStore(MemoryStore()))
    assert (driven.facts, driven.raised.partition(":")[0]) == ((), "StoreError")


def test_scenario_can_abort_after_an_append() -> None:
    (driven,) = played(Scenario(script=(LOOK, "Done."), behaviours=(Hangs(),), abort_at=2))
    assert ending(driven) == (Outcome.ABORTED, EndReason.ABORTED)


def test_budget_of_money_is_spent() -> None:
    (driven,) = played(Scenario(script=(LOOK,), limits=Limits(cost=3.0)))
    assert ending(driven) == (Outcome.CAP_HIT, EndReason.COST)


def test_synthesis_returns_the_scripted_text() -> None:
    (driven,) = played(Scenario(script=(LOOK,), synthesis=(None, "In short.")))
    assert ending(driven) == (Outcome.SYNTHESIS_DONE, EndReason.SYNTHESIZED)
    assert len(driven.requests or ()) == 2


def test_agent_uses_own_tools_and_limits() -> None:
    (driven,) = played(Scenario(script=(LOOK,)), agent=Agent(name="One", tools=("look",), steps=1))
    assert list(driven.tools or ()) == ["look"]
    assert ending(driven) == (Outcome.CAP_HIT, EndReason.STEP_CAP)


def test_unrunnable_agent_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="there is no tool 'nowhere'"):
        play(Scenario(), agent=Agent(name="One", tools=("nowhere",)), tools=TOOLS)


def decisions(driven: Driven) -> list[object]:
    return [decision["decision"] for _, fact in driven.facts for decision in getattr(fact, "decisions", ())]


def test_hooks_decide_as_scripted_by_step_and_by_call() -> None:
    look_twice = asks_for(("look", {"path": "a"}), ("look", {"path": "b"}))
    hooks = HookScript(
        before_model=(None, ChangeRequest(append=("go on",), tools=("look", "nowhere"))),
        after_model=(None, Refuses("no")),
        before_tool=(Reject("not this"), ChangeArguments({"path": "c"})),
        after_tool=(None, ReturnResult("hidden")),
        prepare_tools=(("look",),),
    )
    (driven,) = played(Scenario(script=(look_twice, "Done."), hooks=hooks))
    assert results(driven) == ["rejected: not this", "hidden"]
    assert decisions(driven) == ["reject", "change_arguments", "return_result", "change_request", "retry"]
    assert [[spec.name for spec in request.tools] for request in driven.requests or ()] == [
        ["look"],
        ["look"],
        ["look", "remove"],
    ]
    questions = [(consultation.on, consultation.about) for consultation in driven.consulted or ()]
    assert questions[:3] == [("prepare_tools", 1), ("before_model", 1), ("after_model", 1)]
    assert ("after_tool", "call00002") in questions
    assert ("after_tool", "call00001") not in questions


def test_stand_in_has_the_settings_of_its_tool() -> None:
    """Each of them, also an async loop key: the stand-in of a tool loops where the tool does."""

    async def same(_: Mapping[str, JsonValue]) -> str:
        return "same"

    @tool(loop_key=same, approvers=2, retries=3, concurrency=1)
    def poll(n: int) -> str:
        raise AssertionError(n)

    (stand_in,) = Stage().tools([poll])
    own_settings = {"read_only", "never_asks", "asks_by_code", "takes_context", "runs_plainly", "limiter"}
    for name in vars(poll).keys() - own_settings:
        assert getattr(stand_in, name) == getattr(poll, name)
    assert stand_in.limiter is not poll.limiter
    script = tuple(asks_for(("poll", {"n": number})) for number in range(9))
    (driven,) = play(Scenario(script=script), tools=[poll])
    assert ending(driven) == (Outcome.DOOM_LOOP, EndReason.DOOM_LOOP)


def test_code_of_an_app_asks_one_function() -> None:
    """A script, a campaign and the reference decide in it; what is asked about is a step or a call."""
    questions: dict[str, int | str] = {}

    async def decide(question: HookQuestion) -> None:
        questions[question.on] = question.about

    code, names = DecidedCode(decide), ("before_model", "after_model", "before_tool", "after_tool")
    agent = Agent(
        name="One",
        hooks=[code.hook(name) for name in names],
        guardrails=[code.guardrail(kind) for kind in GuardrailKind],
        prepare_tools=code.prepare_tools,
    )
    (driven,) = played(Scenario(script=(LOOK, "Done.")), agent=agent)
    assert results(driven) == ["ok"]
    by_call = dict.fromkeys(["before_tool", "after_tool", "tool_input_guardrail", "tool_output_guardrail"], "call00001")
    by_step = dict.fromkeys(["before_model", "after_model", "prepare_tools", "output_guardrail"], 2)
    assert {**questions, "input_guardrail": 0} == {**by_call, **by_step, "input_guardrail": 0}


@pytest.mark.parametrize("kind", GuardrailKind)
def test_guardrails_trip_at_the_scripted_verdict(kind: GuardrailKind) -> None:
    verdicts = (Trip("no"),) if kind is GuardrailKind.INPUT else (None, Trip("no"))
    again = asks_for(("look", {"path": "a"}), text="Once more.")
    scenario = Scenario(script=(LOOK, again, "Done."), guardrails=(GuardrailScript(kind, verdicts),))
    (driven,) = played(scenario)
    assert ending(driven) == (Outcome.FAILED, EndReason.GUARDRAIL)
    assert [consultation.tripped for consultation in driven.consulted or ()].count(True) == 1


@pytest.mark.parametrize("heals", [False, True])
def test_unrecorded_verdict_is_lost_with_the_process(heals: bool) -> None:
    """The outcome of the call stays unknown, so no result is left that the guardrail could check."""
    trips = GuardrailScript(GuardrailKind.TOOL_OUTPUT, (Trip("no"),))
    (driven,) = played(Scenario(script=(LOOK, "Done."), guardrails=(trips,), crash=Crash(at=2, heals=heals)))
    assert ending(driven) == (Outcome.FINISHED, EndReason.ANSWERED)
    assert [(consultation.tripped, consultation.died) for consultation in driven.consulted or ()] == [(True, 4)]


def test_guardrail_with_a_failing_model_is_asked_again() -> None:
    failure = ModelError("busy", cause=Cause.OVERLOADED)
    script = GuardrailScript(GuardrailKind.OUTPUT, (failure,))
    (driven,) = played(Scenario(guardrails=(script,)))
    assert ending(driven) == (Outcome.FINISHED, EndReason.ANSWERED)
    assert len(driven.consulted or ()) == 2


def test_validator_refuses_a_typed_answer() -> None:
    answer = asks_for(("final_result", {"response": 5}))
    scenario = Scenario(script=(answer,), hooks=HookScript(validator=(Refuses("more"),)))
    (driven,) = played(scenario, agent=Agent(name="Counter", output_type=int))
    verdicts = [(fact.refused, fact.output) for _, fact in driven.facts if isinstance(fact, f.Reviewed)]
    assert verdicts == [(True, None), (False, 5)]


def test_long_conversation_is_compacted_and_settings_are_sent() -> None:
    scenario = Scenario(
        script=(LOOK, LOOK, "In short.", "Done."),
        compaction=Compact(at_tokens=2, keep_steps=1, max_compactions=1),
        settings=ModelSettings(temperature=0.5),
    )
    (driven,) = played(scenario)
    assert [fact.text for _, fact in driven.facts if isinstance(fact, f.Compacted)] == ["In short."]
    assert driven.requests is not None
    assert driven.requests[0].settings == ModelSettings(temperature=0.5)


def test_person_approves_with_changed_arguments_only_if_valid() -> None:
    calls = asks_for(("remove", {"path": "secret"}), ("remove", {"path": "secret"}))
    people = (Answers(first=1, arguments={"path": "b"}), Answers(arguments={"path": 1}))
    (driven,) = played(Scenario(script=(calls, "Done."), people=people))
    assert [fact.arguments for _, fact in driven.facts if isinstance(fact, f.Answered)] == [{"path": "b"}, None]


@tool(retries=0, return_direct=True)
async def give(path: str = "") -> str:
    return path


def test_stand_in_has_retries_and_finality_of_the_tool() -> None:
    call = asks_for(("give", {}))
    (driven,) = play(
        Scenario(script=(call, call, "Done."), behaviours=(Raises("Retry", "again"),)), tools=[give, *TOOLS]
    )
    assert [fact.retry for _, fact in driven.facts if isinstance(fact, f.CallSettled)] == [True, False]
    assert "is not called again" in results(driven)[1]
    (driven,) = play(Scenario(script=(call, LOOK)), tools=[give, *TOOLS])
    assert ending(driven) == (Outcome.FINISHED, EndReason.ANSWERED)
    assert len(driven.requests or ()) == 1


def test_scenario_survives_the_process_in_a_store_of_any_kind(tmp_path: Path) -> None:
    """The next process opens the store again."""
    opened: list[Store] = []

    def open_it() -> Store:
        opened.append(SqliteStore(tmp_path / "turns.db", durability="normal"))
        return opened[-1]

    (driven,) = played(Scenario(script=(LOOK, "Done."), crash=Crash(3)), store=open_it, real_time=True)
    assert ending(driven) == (Outcome.FINISHED, EndReason.ANSWERED)
    assert len(opened) == 2


def test_clock_is_real_during_a_hook_in_a_thread() -> None:
    """Its timeout of 30 seconds is not skipped."""

    @before_tool
    def slow(_: ToolContext, __: CallView) -> None:
        time.sleep(0.02)

    (driven,) = played(Scenario(script=(LOOK, "Done.")), agent=Agent(name="One", hooks=[slow]))
    assert results(driven) == ["ok"]


async def heard(model: FlakyModel) -> tuple[list[str], ModelError | None]:
    """The text of one stream, and what it ended in."""
    texts: list[str] = []
    try:
        async for item in model.stream(ModelRequest(messages=())):
            texts += [item.text] if isinstance(item, TextDelta) else []
    except ModelError as error:
        return texts, error
    return texts, None


@pytest.mark.parametrize(("after", "text"), [(0, ""), (2, ""), (3, "a"), (9, "abc")])
def test_stream_is_cut_at_any_character(after: int, text: str) -> None:
    """Its reasoning comes first."""
    reply = ModelResponse(reasoning="hm", text="abc")
    texts, error = clock.run(lambda: heard(FlakyModel([Cut(reply, after)])))
    assert "".join(texts) == text
    assert error is not None
    assert (error.cause, error.partial) == (Cause.INTERRUPTED, ModelResponse(reasoning="hm"[:after], text=text))
    assert clock.run(lambda: heard(FlakyModel([Cut(reply, after, silently=True)]))) == (texts, None)


def test_stalled_stream_is_given_up() -> None:
    texts, error = clock.run(lambda: heard(FlakyModel([Stalls("So f")])))
    assert texts == ["So f"]
    assert error is not None
    assert error.cause is Cause.TIMEOUT


def test_error_streams_its_partial_reply_first() -> None:
    """A playback and a scenario have the same model."""
    line = ModelError("busy", cause=Cause.INTERRUPTED, partial=ModelResponse(text="So f"))
    assert clock.run(lambda: heard(FlakyModel([line]))) == (["So f"], line)


def test_scenario_takes_the_lines_of_recordings() -> None:
    """`Broke` is an error of the model's code, and `Unfinished` a reply that only its turn's end stops."""
    (driven,) = play(Scenario(script=(Broke("no key"),)))
    assert ending(driven)[1] is EndReason.ENGINE_ERROR
    (driven,) = played(Scenario(script=(Unfinished("So f"),), limits=Limits(seconds=60)))
    assert ending(driven)[1] is EndReason.DEADLINE


def test_model_may_decide_its_lines_by_the_request() -> None:
    class Echo(FlakyModel):
        async def next_line(self, request: ModelRequest) -> str:
            return f"{len(self.requests)} of {len(request.messages)}"

    model = Echo()
    texts = [clock.run(lambda: heard(model))[0] for _ in range(2)]
    assert ["".join(words) for words in texts] == ["1 of 0", "2 of 0"]


def test_endlessly_called_model_refuses() -> None:
    model = FlakyModel(["Done."])
    model.most = 1
    assert clock.run(lambda: heard(model)) == (["Done."], None)
    _, error = clock.run(lambda: heard(model))
    assert error is not None
    assert error.cause is Cause.REJECTED


def test_simulated_hour_passes_at_once_and_in_order() -> None:
    order: list[str] = []

    async def sleep(name: str, seconds: float) -> None:
        await anyio.sleep(seconds)
        order.append(name)

    async def work() -> float:
        start = anyio.current_time()
        with anyio.move_on_after(3600):
            async with anyio.create_task_group() as group:
                for name, seconds in (("late", 1800.0), ("never", 7200.0), ("soon", 1.0)):
                    group.start_soon(sleep, name, seconds)
        return anyio.current_time() - start

    assert clock.run(work) == pytest.approx(3600)
    assert order == ["soon", "late"]


def test_real_clock_keeps_real_time() -> None:
    async def work() -> float:
        await anyio.sleep(0.01)
        return anyio.current_time()

    before = time.monotonic()
    assert clock.run(work, real_time=True) >= before


@tool
async def whose(ctx: ToolContext[str]) -> str:
    return ctx.deps


def test_builder_tools_receive_the_dependencies() -> None:
    closed: list[str] = []

    async def make_deps(turn: TurnInfo) -> AsyncIterator[str]:
        yield f"for {turn.agent}"
        closed.append(turn.turn_id)

    def build(**parts: Unpack[EngineParts]) -> Engine[str]:
        return Engine(deps=make_deps, **parts)

    scenario = Scenario(script=(asks_for(("whose", {})),))
    (turn,) = play(scenario, tools=[whose], build=build, run_tools=True)
    assert {fact.result for _, fact in turn.facts if isinstance(fact, f.CallSettled)} == {"for assistant"}
    assert len(closed) == 1


def test_property_test_counts_the_events_of_a_scenario() -> None:
    """`pytest --hypothesis-show-statistics` prints them."""
    statistics: list[dict[str, dict[str, list[dict[str, list[str]]]]]] = []

    @settings(max_examples=1, database=None)
    @given(st.just(Scenario(script=(asks_for(("look", {})), "Done."))))
    def example(scenario: Scenario) -> None:
        play(scenario, tools=[look])

    with collector.with_value(statistics.append):  # type: ignore[arg-type]  # Hypothesis says None
        example()
    (case,) = statistics[0]["generate-phase"]["test-cases"]
    reached = {"tool look: asked for", "tool look: started", "tool look: ok", "turn: finished/answered"}
    assert reached <= {*case["events"]}
