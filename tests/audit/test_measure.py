"""The measures of a run: what is counted, and what is counted apart."""

import json

import pytest
from pydantic import JsonValue
from tests.audit.recorded import call, run_of
from tests.audit.trajectories.reading import read

from turnwright_audit.measure import measure
from turnwright_audit.totals import Totals
from turnwright_audit.trajectories.atif import (
    CallNotes,
    Extra,
    ResultNotes,
    StepMetrics,
    StepNotes,
    TrajectoryStep,
)
from turnwright_audit.trajectories.builder import RunBuilder


def test_steps_calls_turns_and_tokens_are_counted() -> None:
    run = RunBuilder("atif", agent="clerk", version="1", run="r1")
    run.user("Hello.")
    run.reply("Hi.", metrics=StepMetrics(prompt_tokens=90, completion_tokens=10, cached_tokens=50, cost_usd=0.5))
    run.user("Read both.")
    run.reply(metrics=StepMetrics(prompt_tokens=100, completion_tokens=20, cost_usd=0.25), model="m2")
    run.call("a", "read", {"n": 1})
    run.call("b", "read", {"n": 2})
    run.result("b", "Error: gone", status="error")
    run.result("a", "no", status="denied")
    run.system("overloaded", error=True)
    run.reply("Done.")
    measures = measure(run.finish(), "runs.json")
    assert (measures.file, measures.run, measures.format, measures.agent, measures.model) == (
        "runs.json",
        "r1",
        "atif",
        "clerk",
        "m2",
    )
    assert (measures.turns, measures.steps, measures.calls, measures.results) == (2, 3, 2, 2)
    assert (measures.tokens, measures.input_tokens, measures.output_tokens, measures.cached_tokens) == (
        220,
        190,
        30,
        50,
    )
    assert (measures.cost, measures.errors, measures.denied, measures.failed_requests) == (0.75, 1, 1, 1)
    assert measures.ending == "answered"
    assert [(turn.first, turn.calls, turn.ran, turn.tokens) for turn in measures.measured] == [
        (1, [0], [0], [100]),
        (2, [2, 0], [1, 0], [120, 0]),
    ]


def test_call_without_result_is_unpaired_unless_terminal_or_unreadable() -> None:
    run = RunBuilder("atif", agent="clerk")
    run.user("Go.")
    run.reply()
    for name in ("lost", "unreadable", "submit"):
        run.call(name, name)
    result = run.result("unreadable", None)
    result.extra = Extra(turnwright=ResultNotes(unreadable=True))
    run.result("nowhere", "?")
    run.notes.terminal_tools = ["submit"]
    measures = measure(run.finish(), "-")
    assert (measures.calls, measures.results, measures.unpaired) == (3, 0, 1)
    assert (measures.terminal, measures.unreadable, measures.orphans) == (1, 1, 1)
    assert measures.unpaired_tools == {"lost": 1}
    assert measures.ending == "terminal tool"


def test_call_awaiting_approval_is_not_lost() -> None:
    run = RunBuilder("turnwright", agent="clerk")
    run.reply()
    paid_call = run.call("a", "pay")
    paid_call.extra = Extra(turnwright=CallNotes(state="waiting"))
    measures = measure(run.finish(ending="paused"), "-")
    assert (measures.calls, measures.unpaired, measures.waiting) == (1, 0, 1)


def test_open_calls_of_a_cut_run_are_not_lost() -> None:
    run = RunBuilder("atif", agent="clerk")
    run.reply()
    run.call("a", "read")
    run.reply()
    run.call("b", "read")
    measures = measure(run.finish(cut=True), "-")
    assert (measures.unpaired, measures.unreadable, measures.ending) == (1, 1, "cut")


def test_steps_before_the_first_message_belong_to_no_turn() -> None:
    run = RunBuilder("atif", agent="clerk")
    run.reply("Hello.")
    run.user("Hi.")
    run.user("Are you there?")
    measures = measure(run.finish(), "-")
    assert (measures.turns, measures.steps, len(measures.measured)) == (2, 1, 1)
    assert measures.ending == "message without a reply"


def test_history_copied_from_another_run_is_not_counted() -> None:
    run = run_of(call("read"), "Done.")
    for step in run.steps[:2]:
        step.is_copied_context = True
    measures = measure(run, "-")
    assert (measures.turns, measures.steps, measures.calls, measures.tokens) == (0, 1, 0, 100)


def test_sub_agents_count_with_the_calling_run() -> None:
    run = RunBuilder("atif", agent="clerk")
    run.user("Go.")
    run.reply()
    inner = run_of(call("read"), "Done.")
    inner.trajectory_id = "inner"
    run.subagent(inner)
    measures = measure(run.finish(), "-")
    assert (measures.subagents, measures.turns, measures.steps, measures.calls, measures.tokens) == (1, 1, 3, 1, 200)


def test_nameless_run_is_named_by_position() -> None:
    assert measure(RunBuilder("atif", agent="clerk").finish(), "-", 3).run == "3"


def test_ending_is_the_recorded_word_or_the_last_step() -> None:
    assert measure(run_of("Done.", ending="Submitted"), "-").ending == "Submitted"
    assert measure(run_of(call("read")), "-").ending == "after a tool call"
    failed = RunBuilder("atif", agent="clerk")
    failed.user("Go.")
    failed.system("overloaded", error=True)
    assert measure(failed.finish(), "-").ending == "model error"
    assert measure(RunBuilder("atif", agent="clerk").finish(), "-").ending == "empty"


def test_message_to_a_running_turn_opens_no_turn() -> None:
    run = RunBuilder("turnwright", agent="clerk")
    run.user("Go.")
    run.reply("Going.")
    run.user("Faster.").extra = Extra(turnwright=StepNotes(steered=True))
    run.reply("Done.")
    measures = measure(run.finish(), "-")
    assert (measures.turns, [turn.steps for turn in measures.measured]) == (1, [2])


def test_contradictions_are_counted_by_kind() -> None:
    run = RunBuilder("atif", agent="clerk")
    run.user("Go.")
    run.reply(metrics=StepMetrics(prompt_tokens=1, cached_tokens=2))
    run.call("a", "read")
    run.result("a", "x")
    run.result("a", "x")
    measures = measure(run.finish(), "-")
    assert measures.findings == {"duplicate result": 1, "more cached than prompt tokens": 1}
    totals = Totals()
    totals.take(measures)
    totals.take(measures)
    assert totals.findings == {"duplicate result": 2, "more cached than prompt tokens": 2}


@pytest.mark.parametrize(
    ("ending", "finished"),
    [
        (None, True),
        ("finished: answered", True),
        ("end_turn", True),
        ("doom_loop: doom_loop", False),
        ("cap_hit: step_cap", False),
        ("max_steps", False),
        ("interrupted", False),
        ("turn_aborted", False),
        ("LimitsExceeded", False),
        ("submitted (exit_cost)", False),
        ("timed out", False),
        ("message limit", False),
        ("error: 500", False),
        ("answered: no error", True),
    ],
)
def test_interrupted_run_is_not_finished(ending: str | None, *, finished: bool) -> None:
    assert measure(run_of(call("read"), "Stopped.", ending=ending), "-").finished is finished


@pytest.mark.parametrize(
    ("ending", "finished"), [("Submitted", True), ("task_done", True), ("LimitsExceeded", False), (None, False)]
)
def test_agent_reporting_completion_is_finished(ending: str | None, *, finished: bool) -> None:
    assert measure(run_of(call("read"), ending=ending), "-").finished is finished


@pytest.mark.parametrize(
    ("text", "ending", "finished"),
    [("It rains.", "end_turn", True), ("", "end_turn", False), ("It rains.", "tool_use", False)],
)
def test_answer_with_calls_run_by_the_server_is_finished(text: str, ending: str, *, finished: bool) -> None:
    run = RunBuilder("atif", agent="clerk")
    run.user("Is it raining?")
    run.reply(text)
    run.call("a", "web_search")
    run.result("a", "Rain.")
    assert measure(run.finish(ending=ending), "-").finished is finished


QUESTION: JsonValue = {"role": "user", "content": "Is it raining?"}
SEARCH: list[JsonValue] = [
    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "rain"}},
    {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
]
SEARCH_ITEM: dict[str, JsonValue] = {
    "type": "web_search_call",
    "id": "w1",
    "status": "completed",
    "action": {"query": "rain"},
}
ITEM: JsonValue = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It rains."}]}


def replied(*blocks: JsonValue, **fields: JsonValue) -> JsonValue:
    return {"role": "assistant", "content": [*blocks], **fields}


@pytest.mark.parametrize(
    ("format_name", "records", "finished"),
    [
        ("anthropic-messages", [QUESTION, replied(*SEARCH, {"type": "text", "text": "It rains."})], True),
        ("anthropic-messages", [QUESTION, replied(*SEARCH)], False),
        (
            "anthropic-messages",
            [QUESTION, replied({"type": "text", "text": "I look."}, *SEARCH, stop_reason="pause_turn")],
            False,
        ),
        (
            "claude-code",
            [
                {"type": "user", "sessionId": "s", "uuid": "u1", "parentUuid": None, "message": QUESTION},
                {
                    "type": "assistant",
                    "sessionId": "s",
                    "uuid": "u2",
                    "parentUuid": "u1",
                    "message": replied(*SEARCH, {"type": "text", "text": "It rains."}, id="m1"),
                },
            ],
            True,
        ),
        ("openai-responses", [QUESTION, SEARCH_ITEM, ITEM], True),
        ("openai-responses", [QUESTION, {**SEARCH_ITEM, "status": "searching"}, ITEM], False),
        ("openai-responses", [QUESTION, ITEM, {"type": "function_call", "call_id": "c", "name": "look"}], False),
        ("codex", [{"type": "response_item", "payload": item} for item in (QUESTION, SEARCH_ITEM, ITEM)], True),
    ],
)
def test_answer_after_a_hosted_call_is_finished_without_an_ending(
    format_name: str, records: list[JsonValue], *, finished: bool
) -> None:
    (run,) = read("\n".join(map(json.dumps, records)).encode(), format_name)
    assert measure(run, "-").finished is finished


def test_message_after_the_answer_leaves_the_run_unfinished() -> None:
    run = run_of("Done.", ending="end_turn")
    run.steps.append(TrajectoryStep(step_id=3, source="user", message="And now?"))
    assert not measure(run, "-").finished


def test_tokens_after_several_loops_of_a_turn_count_once() -> None:
    loop = [call("read", result="x")] * 3
    measures = measure(run_of(*loop, call("write"), *loop, "Done."), "-")
    assert [loop.tokens_after for loop in measures.loops] == [500, 100]
    totals = Totals()
    totals.take(measures)
    assert totals.kinds["same result"].tokens_after == 500


CALLED: JsonValue = {"id": "a", "type": "function", "function": {"name": "", "arguments": "{}"}}
RESULT: JsonValue = {"type": "tool_result", "tool_use_id": "a", "content": "?"}
ANSWERED: JsonValue = {"role": "user", "content": [RESULT]}


@pytest.mark.parametrize(
    ("format_name", "records"),
    [
        ("openai-chat", [{"role": "assistant", "tool_calls": [CALLED]}, {"role": "tool", "tool_call_id": "a"}]),
        (
            "anthropic-messages",
            [replied({"type": "tool_use", "id": "a", "name": "", "input": {}}), ANSWERED],
        ),
        (
            "openai-responses",
            [
                {"type": "custom_tool_call", "call_id": "a", "name": "", "input": ""},
                {"type": "custom_tool_call_output", "call_id": "a", "output": "?"},
            ],
        ),
    ],
)
def test_result_of_an_unreadable_call_is_no_orphan(format_name: str, records: list[JsonValue]) -> None:
    (run,) = read("\n".join(map(json.dumps, records)).encode(), format_name)
    measures = measure(run, "-")
    assert (measures.lost_calls, measures.orphans, measures.calls) == (1, 0, 0)
