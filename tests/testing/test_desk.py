"""Rehearsals of a desk: real tools, values of the domain, hangs, faults without an invariant, and counts."""

import asyncio
import queue
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import time as clock_time
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Annotated, Final, Literal, Unpack

import anyio
import anyio.lowlevel
import pytest
from hypothesis import assume
from hypothesis import strategies as st
from pydantic import Field, JsonValue

from turnwright import (
    Agent,
    Answering,
    CallView,
    ChangeArguments,
    ConfigError,
    Engine,
    Hooks,
    Message,
    ToolContext,
    ToolError,
    Trip,
    TurnContext,
    TurnInfo,
    TurnResult,
    approve,
    before_tool,
    external_tool,
    input_guardrail,
    on_end,
    on_start,
    output_guardrail,
    reject,
    tool,
)
from turnwright.context import DepsFactory
from turnwright.journal.answers import Answer
from turnwright.model import ModelRequest, ScriptedModel, asks_for
from turnwright.tools import Tool
from turnwright.transcript.events import (
    FactEvent,
    ResponseRestartedEvent,
    ResponseWithdrawnEvent,
    TextDeltaEvent,
)
from turnwright_states import EndReason, Outcome, State
from turnwright_states import facts as f
from turnwright_states.verdict import Verdict
from turnwright_testing import EngineParts
from turnwright_testing.desk import CaseFailedError, Desk, DeskReport, Visit, assert_case, fuzz_desk, load_desk
from turnwright_testing.desk.domain import Arguments, Domain, Memory
from turnwright_testing.desk.fuzz import as_test
from turnwright_testing.desk.rehearsal import Follower
from turnwright_testing.desk.world import amounts_of, sizes_of

#: The outside world of the tools below.
BOOKINGS: Final[list[str]] = []


def here() -> ModuleType:
    """Return this module, whose file has the places of the tools."""
    module = ModuleType("here")
    module.__file__ = __file__
    return module


def make_desk(*tools: Tool, **parts: object) -> Desk:
    """Make a desk with these tools."""
    agent = Agent(name="Desk", tools=tuple(tool.name for tool in tools))
    return Desk(agent, tools, modules=(here(),), **{"reset": BOOKINGS.clear, **parts})  # type: ignore[arg-type]  # its fields


def fuzz_tools(*tools: Tool, examples: int = 40, **parts: object) -> DeskReport:
    """Rehearse a desk with these tools."""
    return fuzz_desk(make_desk(*tools, **parts), examples=examples, seed=1)


def fault_of(*tools: Tool, **parts: object) -> str:
    """Return the fault that a rehearsal shows."""
    return str(fuzz_desk(make_desk(*tools, **parts), examples=40, seed=1).fault)


@tool
async def book(room: Literal["blue", "red"]) -> str:
    """Book a room."""
    BOOKINGS.append(room)
    return f"the {room} room is booked"


def invariant_no_red_room() -> None:
    """The red room is closed."""
    for room in BOOKINGS:
        assert room != "red", f"booked {BOOKINGS}"


def test_broken_invariant_names_the_tool_and_a_small_case() -> None:
    """The case has one visit with one call, and fails again as a test."""
    report = fuzz_tools(book, invariants=(invariant_no_red_room,))
    assert str(report.fault) == "book: invariant_no_red_room: booked ['red']"
    (visit,) = report.case
    assert visit.replies[0] == asks_for(("book", {"room": "red"}))
    with pytest.raises(CaseFailedError, match=r"^book: invariant_no_red_room: "):
        assert_case(report.desk, report.case)


@pytest.mark.parametrize("on", [on_start, on_end])
def test_hook_at_an_end_of_a_turn_is_named(on: "Callable[[Callable[..., Awaitable[None]]], Hooks[object]]") -> None:
    notes: list[object] = []

    async def note(*_: object) -> None:
        notes.append(on)

    def invariant_no_note(turn: TurnResult) -> None:
        assert not notes, turn.outcome

    agent = Agent(name="Desk", tools=("book",), hooks=(on(note),))
    desk = replace(make_desk(book, invariants=(invariant_no_note,)), agent=agent)
    with pytest.raises(CaseFailedError, match="book, hook note: invariant_no_note"):
        assert_case(desk, (Visit(replies=(asks_for(("book", {"room": "blue"})),)),))


def test_texts_of_results_are_answered_inside_sentences() -> None:
    """A guardrail that looks at the beginning of an answer overlooks them."""

    @output_guardrail
    async def no_key(_: TurnContext, text: str) -> Trip | None:
        return Trip("a key") if text.startswith("key-17") else None

    def invariant_no_key_is_answered(turn: TurnResult) -> None:
        assert "key-17" not in turn.text, turn.text

    @tool(read_only=True)
    async def find_key() -> str:
        """Find the key."""
        return "key-17"

    agent = Agent(name="Desk", tools=("find_key",), guardrails=(no_key,))
    desk = replace(make_desk(find_key, invariants=(invariant_no_key_is_answered,)), agent=agent)
    assert str(fuzz_desk(desk, examples=40, seed=1).fault).endswith(": It is key-17.")


def test_fault_that_reset_leaves_behind_names_the_tool() -> None:
    """No case is made smaller, as each of them would show it."""
    BOOKINGS.clear()
    report = fuzz_tools(book, invariants=(invariant_no_red_room,), reset=bool)
    BOOKINGS.clear()
    assert str(report.fault).startswith("book: invariant_no_red_room: booked [")
    assert str(report.fault).endswith("] (reset() leaves it so)")


def test_assertion_without_a_message_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(DESK_FILE + "def invariant_empty():\n    assert LOADED == []\n")
    with pytest.raises(CaseFailedError, match=r"invariant_empty: it does not hold: assert LOADED == \[\]"):
        assert_case(load_desk(f"{tmp_path}/desk.py:DESK"), (Visit(),))


def test_case_is_written_as_a_test() -> None:
    report = fuzz_tools(book, invariants=(invariant_no_red_room,))
    text = as_test(report, 'load_desk("desk.py:DESK")', command="turnwright fuzz --seed 1")
    assert text.startswith(
        "# violated: book: invariant_no_red_room: booked ['red']\n# Found by: turnwright fuzz --seed 1\n"
    )
    assert 'asks_for(("book", {"room": "red"}))' in text
    compile(text, "test_found.py", "exec")


def test_same_seed_repeats_a_rehearsal() -> None:
    first, second = (fuzz_tools(book, examples=5) for _ in range(2))
    assert (first.reached.tools, first.reached.ends) == (second.reached.tools, second.reached.ends)


@pytest.mark.slow
def test_unexpected_exception_of_a_tool_is_a_fault() -> None:
    """`ToolError` is for the model, and none."""

    @tool
    async def divide(by: Annotated[int, Field(ge=0, le=3)]) -> int:
        """Divide 6."""
        return 6 // by

    @tool
    async def refuse(by: int) -> int:
        """Refuse."""
        raise ToolError(f"not by {by}")

    assert "divide: raises ZeroDivisionError: " in fault_of(divide)
    assert "test_desk.py:" in fault_of(divide)
    assert fuzz_tools(refuse).fault is None


def test_raising_check_for_approval_is_a_fault() -> None:
    def is_large(amount: int) -> bool:
        return 10 // amount < 1

    @tool(needs_approval=is_large)
    async def pay(amount: Annotated[int, Field(ge=0, le=20)]) -> str:
        """Pay."""
        return f"paid {amount}"

    assert fault_of(pay).startswith("pay: its check for approval raises ZeroDivisionError")


def test_check_for_approval_that_refuses_is_no_fault() -> None:
    def has_room(room: str) -> bool:
        raise ToolError(f"the {room} room is taken")

    @tool(needs_approval=has_room)
    async def ask_for_room(room: Literal["blue"]) -> str:
        """Ask for a room."""
        return room

    assert fault_of(ask_for_room) == "None"


def test_function_of_instructions_is_named() -> None:
    def instruct(_ctx: TurnContext) -> str:
        return "The door opens with 4711."

    def invariant_no_code(requests: Sequence[ModelRequest]) -> None:
        assert "4711" not in str(requests), "the code is sent"

    desk = replace(make_desk(), agent=Agent(name="Desk", instructions=instruct), invariants=(invariant_no_code,))
    with pytest.raises(CaseFailedError, match="instruct: invariant_no_code"):
        assert_case(desk, (Visit(),))


@tool(timeout=None)
async def wait_for_event() -> str:
    """Wait for what never comes."""
    await asyncio.Event().wait()
    return "over"


@tool
async def wait_with_time_limit() -> str:
    """Wait for what never comes, within the time limit of every tool."""
    await asyncio.Event().wait()
    return "over"


@tool(timeout=None)
async def poll() -> str:
    """Poll for what never comes."""
    while True:  # noqa: ASYNC110 (the fault)
        await anyio.sleep(0.1)


@tool(timeout=None)
async def poll_without_pause() -> str:
    """Give the loop a turn, again and again."""
    while True:
        await anyio.lowlevel.checkpoint()


@tool
async def spin() -> str:
    """Give the loop no turn."""
    while True:
        time.sleep(0.01)  # noqa: ASYNC251 (the fault)


@before_tool(timeout=None)
async def wait_for_lock(_ctx: ToolContext, _call: CallView) -> None:
    """Wait for what never comes."""
    await asyncio.Event().wait()


def build_with_hung_hook(**parts: Unpack[EngineParts]) -> Engine[None]:
    """Make an engine whose hook never ends."""
    return Engine(hooks=[wait_for_lock], **parts)


@pytest.mark.slow
def test_hang_without_work_is_reported_at_once() -> None:
    """No real time passes: the report has the tool or the hook, the call and its place.

    In a process of its own: the time of a desk is real as long as a thread of an earlier test runs.
    """
    tools = "desk.wait_for_event, desk.wait_with_time_limit, desk.poll"
    code = f"import test_desk as desk\nfor waiting in ({tools}):\n    print(desk.fault_of(waiting))"
    code += "\nprint(desk.fault_of(desk.book, build=desk.build_with_hung_hook))"
    output = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, check=True, text=True
    )
    faults = [fault.partition(" at test_desk.py:") for fault in output.stdout.splitlines()]
    assert [head for head, _, _ in faults] == [
        "wait_for_event: never ends: call call00001 waits",
        "wait_with_time_limit: never ends: call call00001 is cut off after 300 s,",
        "poll: never ends: call call00001 waits",
        "wait_for_lock: never ends: it waits",
    ]
    functions = ["wait_for_event", "wait_with_time_limit", "poll", "wait_for_lock"]
    assert [place.partition(" in ")[2] for _, _, place in faults] == functions


@pytest.mark.slow
@pytest.mark.parametrize("waiting", [poll_without_pause, spin])
def test_hang_in_real_time_is_reported(waiting: Tool) -> None:
    """A loop that goes round without an end, and one that gets no turn, cost seconds."""
    assert fault_of(waiting).startswith(f"{waiting.name}: never ends: call ")


@pytest.mark.slow
def test_hang_in_a_thread_is_reported() -> None:
    """The thread, which waits for ever, keeps no process from its end."""
    done = threading.Event()

    @tool
    def wait_in_thread() -> str:
        """Wait in a thread."""
        done.wait()
        return "over"

    try:
        assert fault_of(wait_in_thread).startswith("wait_in_thread: never ends: call ")
        workers = [thread for thread in threading.enumerate() if thread.name.startswith("AnyIO worker")]
        assert workers
        assert all(thread.daemon for thread in workers)
    finally:
        done.set()


@pytest.mark.slow
def test_blocking_call_in_an_async_tool_is_a_fault() -> None:
    """The same call of a tool that is not async runs in a thread."""

    @tool
    async def sleep_in_loop() -> str:
        """Sleep."""
        time.sleep(0.12)  # noqa: ASYNC251 (the fault)
        return "slept"

    @tool
    def sleep_in_thread() -> str:
        """Sleep."""
        time.sleep(0.12)
        return "slept"

    assert fault_of(sleep_in_loop).startswith("sleep_in_loop: blocks the event loop for ")
    assert fuzz_tools(sleep_in_thread, examples=2).fault is None


@pytest.mark.slow
def test_people_change_arguments_and_waiting_calls_get_results() -> None:
    """A tool that books what was asked for, and not what was approved, is found; a result has its schema."""
    asked_rooms: dict[str, str] = {}

    def ask(ctx: ToolContext, room: str) -> bool:
        asked_rooms.setdefault(ctx.idempotency_key, room)
        return True

    @tool(needs_approval=ask)
    async def reserve(ctx: ToolContext, room: Literal["blue", "red"]) -> str:
        """Reserve a room."""
        assert asked_rooms[ctx.idempotency_key] == room, "another room"
        return room

    assert fault_of(reserve).startswith("reserve: raises AssertionError: another room")
    verdict: dict[str, JsonValue] = {"type": "object", "properties": {"ok": {"const": True}}, "required": ["ok"]}
    confirm = external_tool(
        name="confirm", description="Confirm.", parameters={"type": "object"}, output_schema=verdict
    )
    assert fuzz_tools(confirm, examples=10).reached.tools["confirm"]["ok"] > 0


@tool(needs_approval=True)
async def refuse_without_answer(ctx: ToolContext) -> str:
    """Trust the answers."""
    if not ctx.answers:
        raise ToolError("nobody approved")
    return "done"


@tool(needs_approval=True)
async def read_answer(ctx: ToolContext) -> str:
    """Trust the answers."""
    return str(ctx.answers[0].decision)


@tool(needs_approval=True)
async def note_answer(ctx: ToolContext) -> str:
    """Note the answers."""
    BOOKINGS.extend([] if ctx.answers else ["unapproved"])
    return "done"


@tool(needs_approval=True)
async def tell_answer(ctx: ToolContext) -> str:
    """Answer another thing without answers."""
    BOOKINGS.extend([] if ctx.answers else ["unapproved"])
    return "done" if ctx.answers else "refused"


def invariant_approved() -> None:
    assert not BOOKINGS, f"{BOOKINGS}"


@pytest.mark.parametrize(
    ("trusting", "fault"),
    [
        (refuse_without_answer, "a call that `always` covers fails: it has no ctx.answers: nobody approved"),
        (read_answer, "raises IndexError: tuple index out of range"),
        (tell_answer, "invariant_approved: ['unapproved']"),
    ],
)
def test_tool_that_trusts_its_answers_is_found(trusting: Tool, fault: str) -> None:
    """A call that `always` covers has none."""
    report = fuzz_tools(trusting, invariants=(invariant_approved,))
    assert str(report.fault).startswith(f"{trusting.name}: {fault}")
    with pytest.raises(CaseFailedError, match=f"^{trusting.name}: "):
        assert_case(report.desk, report.case)


def test_tool_that_notes_its_answers_is_a_warning() -> None:
    """It does the same with an answer and without one."""
    report = fuzz_tools(note_answer, invariants=(invariant_approved,))
    assert report.fault is None
    (warning,) = report.reached.warn()
    words = "invariant_approved needs ctx.answers, but a call that `always` covers has none"
    assert warning == f"note_answer: {words}"


def test_people_of_the_metadata_answer_too() -> None:
    """A requester approves an own payment, and the case says who."""

    @tool(needs_approval=True)
    async def pay(ctx: ToolContext) -> str:
        """Pay a bill."""
        return f"paid for {ctx.metadata['user']}"

    payments: list[tuple[object, str]] = []

    async def may_answer(answering: Answering) -> bool | str:
        payments.append((answering.metadata["user"], answering.by))
        return answering.by == "ann" or "only Ann may"

    def invariant_nobody_approves_an_own_payment() -> None:
        assert ("ann", "ann") not in payments

    desk = make_desk(
        pay,
        reset=payments.clear,
        invariants=(invariant_nobody_approves_an_own_payment,),
        metadata=({"user": "ann"}, {"user": "bob"}),
        build=partial(Engine, authorize=may_answer),
    )
    report = fuzz_desk(desk, examples=40, seed=1)
    assert str(report.fault).startswith("pay: invariant_nobody_approves_an_own_payment")
    assert [visit.people for visit in report.case] == [("ann",)]


def test_answers_after_a_crash_are_repeated() -> None:
    """The turn that another process resumes gets its second answer."""

    @tool(needs_approval=True)
    async def reserve(room: str) -> str:
        """Reserve a room."""
        BOOKINGS.append(room)
        return room

    replies = tuple(asks_for(("reserve", {"room": room})) for room in ("blue", "red"))
    answers: tuple[dict[str, Answer], ...] = ({"approval-1": approve()}, {"approval-2": reject()})
    assert_case(make_desk(reserve), (Visit(replies=replies, answers=answers, dies_at=1),))
    assert BOOKINGS == ["blue"]


def test_words_that_the_case_made_up_break_no_invariant_of_requests() -> None:
    """The model may guess the key, and a tool may repeat it, whole or in part. A tool that returns it breaks it."""

    def invariant_secret(requests: Sequence[ModelRequest]) -> None:
        assert "key-4711" not in str(requests[-1].messages)

    @tool
    async def echo(text: str) -> str:
        """Repeat a text."""
        return f"you wrote {text}"

    @tool
    async def explain(topic: str) -> str:
        """Explain a topic."""
        return f"{topic}: key-4711"

    desk = make_desk(echo, explain, invariants=(invariant_secret,))
    assert_case(desk, (Visit(replies=(asks_for(("echo", {"text": "key-4711"})),)),))
    whole, part = (asks_for(("echo", {"text": text})) for text in ("user:key-4711", "key-4711"))
    assert_case(desk, (Visit(replies=(whole, part)),))
    with pytest.raises(CaseFailedError, match=r"^explain: invariant_secret: "):
        assert_case(desk, (Visit(replies=(asks_for(("explain", {"topic": "a"})),)),))


@pytest.mark.slow
def test_loop_of_equal_calls_without_a_guard_is_a_fault() -> None:
    agent = Agent(name="Desk", tools=("book",), doom_threshold=None, stall_rounds=None, budget=None)
    report = fuzz_desk(Desk(agent, (book,), reset=BOOKINGS.clear), examples=60, seed=1)
    assert str(report.fault) == "book: the same calls are repeated in 50 steps, and nothing notices the loop"


@pytest.mark.slow
def test_loop_that_only_the_budget_ends_is_a_warning() -> None:
    """Not for an agent with a loop guard: then results differ, or the tool is one that polls."""
    agent = Agent(name="Desk", tools=("book",), doom_threshold=None, stall_rounds=None)
    report = fuzz_desk(Desk(agent, (book,), reset=BOOKINGS.clear), examples=60, seed=1)
    assert report.fault is None
    assert [*report.reached.warn()] == ["book: the same calls spend the budget, and nothing notices the loop"]


@before_tool
async def prefer_blue(_: TurnContext, __: CallView) -> ChangeArguments:
    """Book the blue room instead."""
    return ChangeArguments({"room": "blue"})


@pytest.mark.parametrize("keeps_change", [True, False])
def test_call_that_ignores_the_change_of_a_hook_is_a_fault(keeps_change: bool) -> None:
    """People change arguments, too: the journal has what runs."""

    def build(**parts: Unpack[EngineParts]) -> Engine[None]:
        (own_tool,) = parts["tools"]
        if not keeps_change:
            vars(own_tool)["parse"] = lambda _: {"room": "red"}
        return Engine(hooks=[prefer_blue], **parts)

    report = fuzz_desk(make_desk(book, build=build), examples=20, seed=1)
    if keeps_change:
        assert (report.fault, {*BOOKINGS}) == (None, {"blue"})
    else:
        text = "call call00001 runs with {'room': 'red'}, and the journal has {'room': 'blue'}"
        assert str(report.fault) == f"book: {text}"


@pytest.mark.parametrize("hold_stream", [True, False])
def test_withheld_text_that_streams_is_a_warning(hold_stream: bool) -> None:
    @output_guardrail(hold_stream=hold_stream)
    async def pass_nothing(_: TurnContext, __: str) -> Trip:
        return Trip("not for you")

    report = fuzz_desk(make_desk(book, build=partial(Engine, guardrails=[pass_nothing])), examples=20, seed=1)
    warning = "hook pass_nothing: what it withholds is read before its verdict (hold_stream=False)"
    assert report.fault is None
    assert (warning in [*report.reached.warn()]) is not hold_stream


def test_withheld_text_that_was_read_is_a_fault() -> None:
    """Texts of earlier attempts and steps, and texts that were withdrawn, are none."""
    faults: list[tuple[str, ...]] = []
    follower = Follower(lambda *fault, **_: faults.append(fault), {})
    text = TextDeltaEvent("t", 1, 0, "psst")
    tripped = f.TrippedGuardrail(name="g", checks="output")
    turn_end = f.TurnEnded(
        elapsed=1.0, state=State.FAILED, outcome=Outcome.FAILED, reason=EndReason.GUARDRAIL, guardrail=tripped
    )
    end = FactEvent("t", 2, turn_end)
    for event in (
        *(text, ResponseRestartedEvent("t", 1), end),
        *(text, FactEvent("t", 2, f.StepStarted(elapsed=1.0, state=State.STREAM, number=2)), end),
        *(text, ResponseWithdrawnEvent("t", 1, "g"), end),
    ):
        follower.read(event)
    assert not faults
    for event in (text, text, end):
        follower.read(event)
    assert faults == [("g", "comes too late", "the text that it withholds was read: 'psstpsst'")]


async def make_deps(turn: TurnInfo) -> AsyncIterator[str]:
    """Return the customer's room, which bob has not."""
    if turn.metadata["customer"] == "bob":
        raise LookupError("no room of bob")
    yield "the blue room"


async def wait_for_deps(turn: TurnInfo) -> AsyncIterator[str]:
    """Return the customer's room, which never comes for bob."""
    if turn.metadata["customer"] == "bob":
        await asyncio.Event().wait()
    yield "the blue room"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (make_deps, "make_deps raised LookupError: no room of bob"),
        (wait_for_deps, "wait_for_deps did not finish within 300 s"),
    ],
)
def test_dependencies_that_fail_in_a_turn_are_a_fault(make: DepsFactory[str], why: str) -> None:
    """And not the end of the run, as for an agent that no turn can have."""

    def build(**parts: Unpack[EngineParts]) -> Engine[str]:
        return Engine(deps=make, **parts)

    desk = make_desk(book, metadata=({"customer": "ann"}, {"customer": "bob"}), build=build)
    report = fuzz_desk(desk, examples=20, seed=1)
    assert report.fault is not None
    assert report.fault.subject == why.partition(" ")[0]
    assert f"deps: {why}" in report.fault.detail
    assert [visit.metadata for visit in report.case] == [{"customer": "bob"}]
    with pytest.raises(CaseFailedError, match=why):
        assert_case(desk, report.case)
    with pytest.raises(ConfigError, match="no_such_tool"):
        fuzz_desk(replace(desk, agent=Agent(name="Desk", tools=("no_such_tool",))), examples=1)


def test_crash_between_effect_and_record_repeats_an_effect() -> None:
    """The process dies before the result is recorded, and the call of an idempotent tool runs again."""

    @tool(idempotent=True)
    async def stamp(ctx: ToolContext) -> str:
        """Stamp a paper."""
        BOOKINGS.append(ctx.idempotency_key)
        return "stamped"

    def invariant_one_stamp_a_call() -> None:
        assert len(set(BOOKINGS)) == len(BOOKINGS), f"stamps: {BOOKINGS}"

    report = fuzz_tools(stamp, invariants=(invariant_one_stamp_a_call,))
    assert str(report.fault) == "stamp: invariant_one_stamp_a_call: stamps: ['visit-1:call00001', 'visit-1:call00001']"
    assert report.case[0].dies_at == 1


@pytest.mark.slow
def test_effect_of_an_idempotent_tool_that_happens_twice_is_reported(tmp_path: Path) -> None:
    """Without an invariant: what grows when the call runs again is data, a warning, or a file, which is a fault."""
    module, file = here(), tmp_path / "stamps.txt"
    stamps: list[str] = []
    vars(module).update(STAMPS=stamps, FILE=file)

    @tool(idempotent=True)
    async def print_stamp(ctx: ToolContext) -> str:
        """Print a stamp."""
        file.write_text(f"{file.read_text()}{ctx.idempotency_key} ")
        return "printed"

    @tool(idempotent=True)
    async def stamp(ctx: ToolContext) -> str:
        """Stamp a paper."""
        stamps.append(ctx.idempotency_key)
        return "stamped"

    desk = Desk(Agent(name="Desk"), (stamp,), modules=(module,), reset=stamps.clear)
    (warning,) = fuzz_desk(desk, examples=40, seed=2).reached.warn()
    assert warning.startswith("stamp is declared idempotent, and a call that ran again after a crash added to STAMPS (")
    desk = Desk(Agent(name="Desk"), (print_stamp,), modules=(module,), reset=lambda: file.write_text(""))
    fault = str(fuzz_desk(desk, examples=40, seed=2).fault)
    assert fault.startswith(
        "print_stamp: is declared idempotent, and a call that ran again after a crash added to FILE"
    )


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("counted", [False, True])
def test_effect_before_a_question_that_is_repeated_is_a_fault(guarded: bool, counted: bool) -> None:
    """Without an invariant, of data that grow and of a number. A table may be held once for each call, and released."""
    module = here()
    holds: list[str] = []
    free = {"tables": 10}
    at_work: list[str] = []
    vars(module).update(HOLDS=holds, FREE=free, AT_WORK=at_work)

    @tool
    async def hold(ctx: ToolContext) -> str:
        """Hold a table."""
        at_work.append(ctx.call_id)
        try:
            if not (guarded and ctx.idempotency_key in holds):
                holds.extend([] if counted and not guarded else [ctx.idempotency_key])
                free["tables"] -= counted
            return ctx.ask("Where?")
        finally:
            at_work.pop()

    def reset() -> None:
        holds.clear()
        free["tables"] = 10

    report = fuzz_desk(Desk(Agent(name="Desk"), (hold,), modules=(module,), reset=reset), examples=20, seed=1)
    place = "FREE.tables" if counted else "HOLDS"
    assert (report.fault is None) is guarded
    assert guarded or str(report.fault).startswith(f"hold: call call00001 changes {place} (")


def test_note_before_a_question_is_judged_by_the_invariants() -> None:
    """A test may note each time that a person is to be asked. A note that no invariant reads is worth a warning."""

    @tool
    async def hold(ctx: ToolContext) -> str:
        """Hold a table."""
        BOOKINGS.append(ctx.call_id)
        return ctx.ask("Where?")

    def invariant_asked() -> None:
        assert not [name for name in BOOKINGS if not name]

    def invariant_of_other_data() -> None:
        assert UUID_OF_A_RESULT

    module = here()
    vars(module).update(BOOKINGS=BOOKINGS)
    desk = Desk(Agent(name="Desk"), (hold,), modules=(module,), reset=BOOKINGS.clear)
    assert " changes BOOKINGS (" in str(fuzz_desk(desk, examples=10, seed=1).fault)
    assert fuzz_desk(replace(desk, invariants=(invariant_asked,)), examples=10, seed=1).fault is None
    report = fuzz_desk(replace(desk, invariants=(invariant_of_other_data,)), examples=10, seed=1)
    assert report.fault is None
    assert "hold changes BOOKINGS before its question, and again when it is answered" in report.reached.warn()


class Account:
    """An object without `__dict__`."""

    __slots__ = ("cents",)

    def __init__(self) -> None:
        self.cents = 500


def test_amounts_are_sizes_and_numbers() -> None:
    """Containers, objects and the columns of a database have them."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript("CREATE TABLE sales (item, cents); INSERT INTO sales VALUES ('tea', 3), ('cake', 4)")
        data = {"ACCOUNTS": {"ann": Account()}, "OPEN": 2, "JOBS": queue.Queue(), "LINES": deque([4])}
        amounts = amounts_of([module_with(__name__=__name__, DATABASE=database, **data)])
    assert amounts == {
        "ACCOUNTS": 1,
        "ACCOUNTS.ann.cents": 500,
        "DATABASE.sales": 2,
        "DATABASE.sales.1": 0,
        "DATABASE.sales.2": 7,
        "JOBS": 0,
        "LINES": 1,
        "LINES.0": 4,
        "OPEN": 2,
    }


def test_person_may_answer_another_text_than_a_choice() -> None:
    prices = {"small": 3, "large": 5}

    @tool
    async def order_tea(ctx: ToolContext) -> str:
        """Order tea."""
        return str(prices[ctx.ask("Small or large?", [*prices])])

    assert fault_of(order_tea).startswith("order_tea: raises KeyError: ")


@pytest.mark.parametrize("is_released", [False, True])
def test_failed_call_that_makes_later_calls_fail_is_a_fault(is_released: bool) -> None:
    """A busy flag that an error leaves set. A call that fails beside it, and a tool that counts mistakes, do not."""
    desk_state = {"busy": False, "mistakes": 0}

    @tool
    async def scan(page: Literal[1, 2]) -> str:
        """Scan a page, of which there is one."""
        if desk_state["busy"]:
            raise ToolError("the scanner is busy")
        desk_state["busy"] = True
        await anyio.sleep(1)
        desk_state["busy"] = page > 1 and not is_released
        if page > 1:
            raise ToolError("there is one page")
        return "scanned"

    @tool
    async def unlock(pin: Literal[1, 2]) -> str:
        """Unlock a door, which three mistakes lock for ever."""
        desk_state["mistakes"] += pin > 1
        if desk_state["mistakes"] > 2:
            raise ToolError("the door is locked")
        if pin > 1:
            raise ToolError("a wrong PIN")
        return "unlocked"

    report = fuzz_desk(
        Desk(Agent(name="Desk"), (scan, unlock), reset=lambda: desk_state.update(busy=False, mistakes=0)),
        examples=100,
        seed=1,
    )
    assert (report.fault is None) is is_released
    why = "call call00001 fails ('there is one page'), and later calls only by it: 'the scanner is busy'"
    assert is_released or str(report.fault) == f"scan: {why}"


@pytest.mark.slow
@pytest.mark.parametrize("is_given_back", [False, True])
def test_slot_that_each_error_keeps_is_a_fault(is_given_back: bool) -> None:
    """Three slots, counted by hand."""
    slots = {"free": 3}

    @tool
    async def convert(file: Literal["a.doc", "b.exe"]) -> str:
        """Convert a file."""
        if not slots["free"]:
            raise ToolError("all slots are taken")
        slots["free"] -= 1
        slots["free"] += file == "a.doc" or is_given_back
        if file == "b.exe":
            raise ToolError("cannot convert it")
        return "converted"

    module = module_with(__file__=__file__, SLOTS=slots)
    desk = replace(make_desk(convert), reset=lambda: slots.update(free=3), modules=(module,))
    report = fuzz_desk(desk, examples=40, seed=1)
    assert (report.fault is None) is is_given_back
    assert is_given_back or "and later calls only by it: 'all slots are taken'" in str(report.fault)


def test_connection_that_each_error_takes_from_a_pool_is_a_fault() -> None:
    """A later call waits for one until its own timeout."""
    pool: asyncio.Queue[str] = asyncio.Queue()

    def reset() -> None:
        while not pool.empty():
            pool.get_nowait()
        for name in ("first", "second"):
            pool.put_nowait(name)

    @tool(timeout=20)
    async def query(sql: str) -> None:
        """Run a query."""
        connection = await pool.get()
        if sql != "select":
            raise ToolError("only select is allowed")
        pool.put_nowait(connection)

    desk = replace(make_desk(query), reset=reset, modules=(module_with(__file__=__file__, POOL=pool),))
    case = tuple(asks_for(("query", {"sql": sql})) for sql in ("drop", "insert", "select", "select"))
    with pytest.raises(CaseFailedError, match=r"call00001, call00002 fails .* only by it: 'query did not finish"):
        assert_case(desk, (Visit(replies=case),))


def test_place_that_each_error_keeps_is_a_fault() -> None:
    """A semaphore counts the places of plain functions, which wait for none."""
    places = threading.Semaphore(2)

    @tool
    def translate(text: str) -> str:
        """Translate a text."""
        if not places.acquire(blocking=False):
            raise ToolError("all places are taken")
        if text != "yes":
            raise ToolError("this text is unknown")
        places.release()
        return "oui"

    desk = replace(make_desk(translate), modules=(module_with(__file__=__file__, PLACES=places),))
    case = tuple(asks_for(("translate", {"text": text})) for text in ("no", "maybe", "yes", "yes"))
    with pytest.raises(CaseFailedError, match="later calls only by it: 'all places are taken'"):
        assert_case(desk, (Visit(replies=case),))


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 2])
def test_tool_that_wrong_tries_block_is_no_fault(most: int) -> None:
    """A wrong try cancels the code, or two do."""
    code = {"wrong tries": 0}

    @tool
    async def redeem(pin: Literal[1, 2]) -> str:
        """Redeem the code."""
        if code["wrong tries"] == most:
            raise ToolError("the code is canceled")
        if pin > 1:
            code["wrong tries"] += 1
            raise ToolError("a wrong PIN")
        code["wrong tries"] = 0
        return "welcome"

    module = module_with(__file__=__file__, CODE=code)
    desk = replace(make_desk(redeem), reset=lambda: code.update({"wrong tries": 0}), modules=(module,))
    assert fuzz_desk(desk, examples=40, seed=1).fault is None


async def send_mail() -> None:
    """Send a mail."""


@tool
async def close_ticket() -> str:
    """Close a ticket, and forget to wait for the mail."""
    send_mail()  # type: ignore[unused-coroutine]  # the mistake
    return "closed"


@tool(name="close_all")
def close_in_thread() -> str:
    """Close all tickets, and forget the mail."""
    send_mail()  # type: ignore[unused-coroutine]  # the mistake
    return "closed"


@before_tool
async def mail_first(_ctx: ToolContext, _call: CallView) -> None:
    """Forget to wait for the mail."""
    send_mail()  # type: ignore[unused-coroutine]  # the mistake


def build_with_forgetful_hook(**parts: Unpack[EngineParts]) -> Engine[None]:
    return Engine(hooks=[mail_first], **parts)


def test_coroutine_that_nothing_awaits_is_a_fault() -> None:
    """The fault names the tool or the hook."""
    text = "the coroutine send_mail is never awaited (test_desk.py:"
    assert fault_of(close_ticket).startswith(f"close_ticket: {text}")
    assert fault_of(close_in_thread).startswith(f"close_all: {text}")
    assert fault_of(book, build=build_with_forgetful_hook).startswith(f"mail_first: {text}")


LOCKS: Final = (
    *(asyncio.Lock, threading.Lock, anyio.Lock),
    *(asyncio.Semaphore, partial(threading.BoundedSemaphore, 2), partial(anyio.Semaphore, 1)),
)


@pytest.mark.parametrize("make_lock", LOCKS)
def test_lock_that_an_error_keeps_is_a_fault(
    make_lock: "Callable[[], threading.Lock | asyncio.Lock | anyio.Lock]",
) -> None:
    """The case becomes smaller, although the lock is the module's."""
    lock = make_lock()
    module = module_with(LOCKS={"printer": lock})

    @tool(timeout=0.3)
    async def print_page(page: Literal[1, 2]) -> str:
        """Print a page, and refuse the second one."""
        acquired = lock.acquire()
        if not isinstance(acquired, bool):
            await acquired
        if page > 1:
            raise ToolError("there is one page")
        lock.release()
        return "printed"

    report = fuzz_desk(Desk(Agent(name="Desk"), (print_page,), modules=(module,)), examples=20, seed=1)
    assert str(report.fault).startswith("print_page: ")
    assert len(report.case) == 1


@pytest.mark.parametrize(
    ("second", "seconds", "is_fault"), [(("b", "a"), 0.1, True), (("a", "b"), 0.1, False), (("a", "b"), 9, False)]
)
def test_calls_that_wait_for_the_locks_of_each_other_are_a_fault(
    second: Sequence[str], seconds: float, is_fault: bool
) -> None:
    """A timeout hides that, but not from a rehearsal. A call that works too long while it holds a lock is none."""
    locks = {"a": asyncio.Lock(), "b": asyncio.Lock()}

    @tool(timeout=5)
    async def move(names: list[str]) -> str:
        """Move from one to the other."""
        async with locks[names[0]]:
            await anyio.sleep(seconds)
            async with locks[names[1]]:
                return "moved"

    calls: list[tuple[str, Mapping[str, JsonValue]]] = [("move", {"names": [*names]}) for names in ("ab", second, "ab")]
    case = (Visit(replies=(asks_for(*calls),)),)
    if not is_fault:
        assert_case(make_desk(move), case)
        return
    with pytest.raises(CaseFailedError, match=r"move: never ends: call call0000\d is cut off after 5 s, at test_desk"):
        assert_case(make_desk(move), case)


def test_lock_of_a_module_outlives_the_event_loop_of_a_case() -> None:
    """Calls that wait for it bind it to their loop."""
    lock = asyncio.Lock()

    @tool
    async def print_page() -> str:
        """Print a page."""
        async with lock:
            await anyio.sleep(1)
        return "printed"

    desk = Desk(Agent(name="Desk"), (print_page,), modules=(module_with(LOCK=lock),))
    for _ in range(2):
        assert_case(desk, (Visit(replies=(asks_for(("print_page", {}), ("print_page", {})),)),))


def test_calls_run_in_parallel_and_visits_together() -> None:
    """A race between calls that wait shows."""
    balance = {"cents": 0, "deposits": 0}

    @tool
    async def deposit() -> str:
        """Deposit a cent."""
        cents = balance["cents"]
        await anyio.sleep(0.01)
        balance["cents"] = cents + 1
        balance["deposits"] += 1
        return "deposited"

    def invariant_balance() -> None:
        assert balance["cents"] == balance["deposits"], f"{balance}"

    desk = Desk(
        Agent(name="Desk"),
        (deposit,),
        reset=lambda: balance.update(cents=0, deposits=0),
        invariants=(invariant_balance,),
    )
    assert "deposit: invariant_balance: " in str(fuzz_desk(desk, examples=40, seed=1).fault)


def test_run_counts_events_and_warns_of_missing_events() -> None:
    def invariant_vacuous() -> None:
        for room in BOOKINGS:
            if room == "green":
                assert False, "there is no green room"  # noqa: B011, PT015 (never reached)

    def invariant_assumed() -> None:
        assume("green" in BOOKINGS)

    @tool
    async def unused() -> str:
        """Do nothing."""
        return "nothing"

    agent = Agent(name="Desk", tools=("book",))
    desk = Desk(agent, (book, unused), reset=BOOKINGS.clear, invariants=(invariant_vacuous, invariant_no_green_room))
    report = fuzz_desk(desk, examples=5, seed=1)
    assert report.verdict is Verdict.HOLDS
    assert report.reached.tools["book"]["started"] > 0
    assert report.reached.invariants["invariant_no_green_room"]["reached"] > 0
    (warning,) = report.reached.warn()
    assert warning.startswith("invariant_vacuous never reached an assertion (")
    assert list(fuzz_desk(Desk(agent, (book,), invariants=(invariant_assumed,)), examples=2).reached.warn())


def invariant_no_green_room() -> None:
    """There is no green room."""
    assert "green" not in BOOKINGS


def test_tool_that_never_started_and_silent_hook_are_warnings() -> None:
    """A tool that `prepare_tools` never offers, and a guardrail that lets everything pass."""

    @input_guardrail
    async def never(_ctx: TurnContext, _prompt: str) -> Trip | None:
        return None

    async def offer_nothing(_ctx: TurnContext, _names: tuple[str, ...]) -> Sequence[str]:
        return []

    agent = Agent(name="Desk", tools=("book",), guardrails=(never,), prepare_tools=offer_nothing)
    warnings = list(fuzz_desk(Desk(agent, (book,)), examples=3).reached.warn())
    assert warnings == ["tool book never started (0 calls asked for it)", "hook never never decided anything"]


Shorten = Callable[[Sequence[Message]], Sequence[Message] | Awaitable[Sequence[Message]]]


async def forget_results(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if message.role != "tool"]


def forget_calls(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if message.role != "assistant"]


@pytest.mark.parametrize(
    ("shorten", "why"), [(forget_results, "the model reads that there is none"), (forget_calls, "its call is cut off")]
)
def test_dropped_result_is_a_fault(shorten: Shorten, why: str) -> None:
    """The engine repairs the request, so that the turn continues."""

    def build(**parts: Unpack[EngineParts]) -> Engine[None]:
        return Engine(history_processor=shorten, **parts)

    with pytest.raises(
        CaseFailedError, match=rf"^hook {shorten.__name__}, book: a result of book is dropped, and {why}"
    ):
        assert_case(make_desk(book, build=build), (Visit(replies=(asks_for(("book", {"room": "red"})),)),))


def drawn(schema: Mapping[str, JsonValue], desk: Desk, results: Sequence[str] = ()) -> list[JsonValue]:
    """Draw many values of the parameter `order`."""
    memory = Memory()
    for result in results:
        memory.add(result)
    arguments = Arguments(Domain(desk, 1), Random(1), memory)  # noqa: S311 (repeatable, not secret)
    whole: dict[str, JsonValue] = {"type": "object", "properties": {"order": {**schema}}, "required": ["order"]}
    values = (arguments.draw(whole, "cancel") for _ in range(300))
    return [value["order"] for value in values if isinstance(value, dict)]


def module_with(**names: object) -> ModuleType:
    module = ModuleType("world")
    vars(module).update(names)
    return module


def limited(amount: int) -> bool:
    """Have a constant in the code."""
    return amount > 4711


class Shop:
    """An object with the data of a desk."""

    def __init__(self) -> None:
        self.orders = {"S-7": "ann"}


class Room(Enum):
    """A class of a schema."""

    RED = "the red room"


UUID_OF_A_RESULT: Final = "0195c2a4-7b1e-7000-8000-3c5f1d2e9a01"


@pytest.mark.parametrize(
    ("schema", "parts", "results", "value"),
    [
        ({"type": "string", "examples": ["A1"]}, {}, (), "A1"),
        ({"enum": ["A1", "B1"]}, {}, (), "B1"),
        ({"type": "integer", "minimum": 1, "maximum": 9999}, {}, (), 9999),
        ({"type": "integer", "exclusiveMinimum": 0}, {}, (), 1),
        ({"type": "number", "minimum": 0, "maximum": 9.5}, {}, (), 0.29),
        ({"type": "number", "minimum": 0, "maximum": 9.5}, {}, (), 9.5),
        ({"type": "string"}, {}, ('["A7", "A8"]',), "A8"),
        ({"type": "string"}, {}, ('{"orders": [{"order_id": "A9"}]}',), "A9"),
        ({"type": "string"}, {}, ("your order is no-4711.",), "no-4711"),
        ({"type": "string"}, {"modules": (module_with(ORDERS={"C3": ("ann", 50)}),)}, (), "C3"),
        ({"type": "integer"}, {"modules": (module_with(MOST=(77,)),)}, (), 78),
        ({"type": "integer"}, {"modules": (module_with(MOST=77.0),)}, (), 78),
        ({"type": "number"}, {"modules": (module_with(MOST=Decimal("7.5")),)}, (), 8.5),
        ({"type": "string"}, {"modules": (module_with(__name__=__name__, SHOP=Shop()),)}, (), "S-7"),
        ({"type": "string", "format": "uuid"}, {}, (f'["{UUID_OF_A_RESULT}"]',), UUID_OF_A_RESULT),
        ({"type": "string"}, {"agent": Agent(name="Desk", instructions="Orders are like D-12.")}, (), "D-12"),
        ({"type": "string", "format": "date-time"}, {}, (), "2025-12-31T23:30:00Z"),
        ({"type": "string", "format": "date-time"}, {}, (), "2026-03-01T09:00:00"),
        ({"type": "string", "format": "time"}, {"modules": (module_with(CLOSES=clock_time(21, 30)),)}, (), "21:30:00"),
        ({"type": "string"}, {"values": {"order": st.just("E5")}}, (), "E5"),
        ({"type": "string"}, {"values": {"cancel.order": st.just("E6")}}, (), "E6"),
        ({"type": "string"}, {"values": {str: st.just("E7")}}, (), "E7"),
        ({"$ref": "#/$defs/Room"}, {"values": {Room: st.just(Room.RED)}}, (), "the red room"),
        ({"type": "string", "format": "duration"}, {"values": {timedelta: st.just(timedelta(hours=3))}}, (), "PT3H"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {}, ("F-1",), "F-1"),
    ],
)
def test_values_come_from_the_domain(
    schema: Mapping[str, JsonValue], parts: Mapping[str, object], results: Sequence[str], value: JsonValue
) -> None:
    """Schemas, results, data of modules, the agent's texts, and strategies of the user."""
    desk = Desk(**{"agent": Agent(name="Desk"), **parts})  # type: ignore[arg-type]  # its fields
    assert value in drawn(schema, desk, results)


def test_names_of_the_domain_may_end_with_a_quote() -> None:
    """It ends the text of a query, or of a command."""
    domain = Domain(Desk(Agent(name="Desk"), modules=(module_with(NAMES=["Ann"]),)), seed=1)
    arguments = Arguments(domain, Random(1), Memory())  # noqa: S311 (repeatable, not secret)
    schema: dict[str, JsonValue] = {"properties": {"name": {"type": "string"}}, "required": ["name"]}
    assert {"name": "Ann'"} in [arguments.draw(schema) for _ in range(2000)]


def test_strategy_of_the_user_is_the_only_source() -> None:
    desk = Desk(Agent(name="Desk"), values={"order": st.sampled_from(["E5", "E6"])})
    assert set(drawn({"type": "string"}, desk, ["G-1"])) == {"E5", "E6"}


def test_accepted_arguments_are_values_under_their_names() -> None:
    """A call that succeeded says that its order exists; texts that almost are such a value are drawn rarely.

    What only a result had belongs to the world of one case.
    """
    domain = Domain(Desk(Agent(name="Desk", instructions="Orders are like G-2 or H-3.")), 1)
    domain.texts.clear()
    domain.accept("cancel", {"order_id": "G-2", "order": "I-4", "note": "H-3"})
    arguments = Arguments(domain, Random(1), Memory())  # noqa: S311 (repeatable, not secret)
    schema: dict[str, JsonValue] = {
        "type": "object",
        "properties": {"order": {"type": "string"}},
        "required": ["order"],
    }
    values = [str(arguments.draw(schema)) for _ in range(300)]
    assert values.count("{'order': 'G-2'}") > values.count("{'order': 'g-2'}") > 0
    assert not {"H-3", "I-4"} & {*str(values).replace("'", " ").split()}


def test_constants_of_code_are_values() -> None:
    """So are the numbers next to them."""
    module = module_with(limited=limited)
    limited_module: Callable[..., object] = limited
    module.__name__ = limited_module.__module__
    values = drawn({"type": "integer"}, Desk(Agent(name="Desk"), modules=(module,)))
    assert {4710, 4711, 4712} <= set(values)


DESK_FILE: Final = '''
from turnwright import Agent, TurnResult, tool

LOADED = []
LOADED.append(1)
METADATA = ({"user": "ann"}, {"user": "bob"})
PROMPTS = ("Book the blue room.",)

@tool
async def book(room: str) -> str:
    """Book a room."""
    return room

def reset():
    pass

def invariant_one(turn: TurnResult):
    assert turn.id

DESK = Agent(name="Hotel", tools=("book",))
'''


def test_server_of_the_desk_that_waits_lets_time_be_skipped() -> None:
    """Three minutes pass, although the thread of the server is there."""

    @tool(timeout=None)
    async def wait_for_minutes() -> str:
        """Wait."""
        await anyio.sleep(180)
        return "over"

    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.1,))
        thread.start()
        case = (Visit(replies=(asks_for(("wait_for_minutes", {})),)),)
        assert_case(make_desk(wait_for_minutes), case)
        server.shutdown()
        thread.join()


def test_connection_of_a_client_ends_with_the_event_loop_of_a_case() -> None:
    """The client of the module makes a new one in the next case."""
    connections: list[asyncio.StreamWriter] = []

    @tool
    async def send() -> str:
        """Send a byte over the connection."""
        if not connections or connections[-1].is_closing():
            connections.append((await asyncio.open_connection(*address))[1])
        connections[-1].write(b"a")
        return "sent"

    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        address = "127.0.0.1", server.server_port
        for _ in range(2):
            assert_case(make_desk(send), (Visit(replies=(asks_for(("send", {})), asks_for(("send", {})))),))
    assert len(connections) == 2


def test_turns_of_a_person_follow_each_other_with_another_role() -> None:
    """The desk trusts the role that the session began with. Another person has other sessions."""
    roles: dict[str, object] = {}
    users: dict[str, object] = {}

    @tool
    async def drop_table(ctx: ToolContext) -> str:
        """Drop a table."""
        assert users.setdefault(str(ctx.session), ctx.metadata["user"]) == ctx.metadata["user"]
        if roles.setdefault(str(ctx.session), ctx.metadata["role"]) == "admin":
            BOOKINGS.append(str(ctx.metadata["role"]))
        return "done"

    def invariant_guests_drop_nothing() -> None:
        assert "guest" not in BOOKINGS

    def reset() -> None:
        for data in (BOOKINGS, roles, users):
            data.clear()

    metadata = ({"user": "ann", "role": "admin"}, {"user": "ann", "role": "guest"}, {"user": "bob", "role": "admin"})
    fault = fault_of(drop_table, metadata=metadata, reset=reset, invariants=(invariant_guests_drop_nothing,))
    assert fault.startswith("drop_table: invariant_guests_drop_nothing")


def test_process_that_dies_in_a_helper_of_a_tool_is_no_fault() -> None:
    """The engine of the helper has the store of the desk."""
    engines: list[Engine[None]] = []

    @tool(idempotent=True)
    async def ask_helper() -> str:
        """Ask a helper."""
        async with Engine(
            model=ScriptedModel(asks_for(("book", {"room": "blue"})), "Booked."), tools=[book], store=engines[-1].store
        ) as engine:
            return (await engine.run(Agent(name="Helper"), "Book a room.")).text

    def build(**parts: Unpack[EngineParts]) -> Engine[None]:
        engines.append(Engine(**parts))
        return engines[-1]

    case = (Visit(replies=(asks_for(("ask_helper", {})),), dies_at=1),)
    assert_case(make_desk(ask_helper, build=build), case)


def test_visits_together_share_a_process_that_lives() -> None:
    """The first visit would die alone; both end."""
    call = asks_for(("book", {"room": "red"}))
    visits = (Visit(replies=(call,), dies_at=1), Visit(replies=(call,), session="second", together=True))
    assert_case(make_desk(book), visits)
    assert BOOKINGS == ["red", "red"]


@pytest.mark.parametrize(("text", "ending"), [("", "aborted/aborted"), ("Not the red one!", "finished/answered")])
def test_person_interjects_while_a_call_runs(text: str, ending: str) -> None:
    """An empty text aborts the turn; another one is in the next request."""
    turns: list[str] = []

    def invariant_turn(turn: TurnResult) -> None:
        turns.append(f"{turn.outcome}/{turn.reason}")
        assert not text or text in [message.text for message in turn.messages]

    visit = Visit(replies=(asks_for(("book", {"room": "red"})),), interjection=(1, text))
    assert_case(make_desk(book, invariants=(invariant_turn,)), (visit,))
    assert turns == [ending]


@pytest.mark.parametrize(("text", "results"), [("", ["printed"]), (None, [])])
def test_aborted_call_gets_time_to_finish_or_none(text: str | None, results: list[str]) -> None:
    """A call that is canceled has time to clean up, in either case."""
    prints: list[str] = []
    clean: list[bool] = []

    @tool
    async def print_page() -> str:
        """Print a page."""
        try:
            await anyio.sleep(0.5)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.5)
            clean.append(True)
        prints.append("printed")
        return "printed"

    visit = Visit(replies=(asks_for(("print_page", {})),), interjection=(1, text))
    assert_case(Desk(Agent(name="Desk"), (print_page,)), (visit,))
    assert (prints, clean) == (results, [True])


def test_canceled_call_cleans_up_before_invariants_are_checked() -> None:
    """Its cleanup outlives it, as a cancel scope cancels each wait."""
    free = {"printers": 1}

    async def release() -> None:
        await anyio.sleep(0.2)
        free["printers"] += 1

    @tool
    async def print_page() -> str:
        """Print a page."""
        free["printers"] -= 1
        try:
            await anyio.sleep(5)
        finally:
            await asyncio.shield(release())
        return "printed"

    def invariant_printer_is_free() -> None:
        assert free["printers"] == 1

    visit = Visit(replies=(asks_for(("print_page", {})),), interjection=(1, None))
    assert_case(Desk(Agent(name="Desk"), (print_page,), invariants=(invariant_printer_is_free,)), (visit, visit))


def test_module_states_the_desk(tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(DESK_FILE)
    desk = load_desk(f"{tmp_path}/desk.py:DESK")
    assert (desk.agent.name, [tool.name for tool in desk.tools]) == ("Hotel", ["book"])
    assert (desk.prompts, len(desk.metadata), len(desk.invariants)) == (("Book the blue room.",), 2, 1)
    assert fuzz_desk(desk, examples=2).verdict is Verdict.HOLDS


def test_desk_has_tools_of_a_list_and_data_of_neighbors(tmp_path: Path) -> None:
    (tmp_path / "storage_of_rooms.py").write_text("class Rooms:\n    names = ['R-81']\n")
    listed = DESK_FILE.replace("@tool\n", "").replace(
        "DESK =", "TOOLS = [tool(book)]\ndel book\nROOMS = Rooms()\nDESK ="
    )
    (tmp_path / "desk.py").write_text("from storage_of_rooms import Rooms\n" + listed)
    desk = load_desk(f"{tmp_path}/desk.py:DESK")
    assert [tool.name for tool in desk.tools] == ["book"]
    assert "R-81" in Domain(desk, 1).texts
    assert f"{tmp_path}/storage_of_rooms.py" in desk.files


def test_world_has_the_files_and_databases_that_a_module_names(tmp_path: Path) -> None:
    """A file by its bytes, a folder by its files, a database by its rows."""
    (tmp_path / "log.txt").write_text("one line")
    with closing(sqlite3.connect(tmp_path / "turns.db")) as database:
        database.executescript("CREATE TABLE orders (id); INSERT INTO orders VALUES ('F-1'), ('F-2')")
    module = module_with(LOG=tmp_path / "log.txt", FOLDER=tmp_path, MISSING=tmp_path / "none")
    assert sizes_of([module]) == {"LOG": 8, "FOLDER": 2, "FOLDER/log.txt": 8, "FOLDER/turns.db.orders": 2}
    desk = Desk(Agent(name="Desk"), modules=(module_with(DATABASE=tmp_path / "turns.db"),))
    assert {"F-1", "F-2"} <= set(Domain(desk, 1).texts)


def test_metadata_of_a_module_may_be_a_strategy(tmp_path: Path) -> None:
    source = "from hypothesis import strategies as st\n" + DESK_FILE.replace(
        'METADATA = ({"user": "ann"}, {"user": "bob"})',
        'METADATA = st.fixed_dictionaries({"user": st.sampled_from(["ann", "bob", "cy"])})',
    )
    (tmp_path / "desk.py").write_text(source)
    users = {str(metadata["user"]) for metadata in load_desk(f"{tmp_path}/desk.py:DESK").metadata}
    assert users == {"ann", "bob", "cy"}


def test_invariant_of_an_unknown_argument_is_a_configuration_mistake(tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(DESK_FILE.replace("turn: TurnResult", "result"))
    with pytest.raises(ConfigError, match="invariant_one takes 'result': an invariant may take turn and requests"):
        load_desk(f"{tmp_path}/desk.py:DESK")


VALUES_OF: Final = "from hypothesis import strategies as st\nVALUES ="


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "async def invariant_two(): assert False",
            "invariant_two must be a plain function, because nothing awaits it",
        ),
        ("async def reset(): pass", "reset must be a plain function, because nothing awaits it"),
        ("def reset(world): pass", "reset is called with (), and takes (world)"),
        ("METADATA = {'user': 'ann'}", "METADATA must be a list of dicts, not {'user': 'ann'}"),
        ("METADATA = ['ann']", "METADATA must be a list of dicts, not 'ann'"),
        ("PROMPTS = 'Book a room.'", "PROMPTS must be a list of texts, not 'Book a room.'"),
        ("PROMPTS = [7]", "PROMPTS must be a list of texts, not 7"),
        ("VALUES = ['red']", "VALUES must be a dict of strategies, not ['red']"),
        (
            "VALUES = {'room': ['red']}",
            "VALUES['room'] must be a strategy of Hypothesis, such as st.sampled_from([...])",
        ),
        (f"{VALUES_OF} {{'rom': st.just('red')}}", "VALUES['rom'] is unknown: did you mean `room`?"),
        (f"{VALUES_OF} {{'bok.room': st.just('red')}}", "VALUES['bok.room'] is unknown: did you mean `book.room`?"),
        (f"{VALUES_OF} {{'x': st.just('red')}}", "VALUES['x'] is unknown: use one of room, "),
    ],
)
def test_name_of_a_desk_with_another_form_is_a_mistake(tmp_path: Path, statement: str, message: str) -> None:
    """A desk that took it would play without it, or call its error a bug of ours."""
    (tmp_path / "desk.py").write_text(f"{DESK_FILE}\n{statement}\n")
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_desk(f"{tmp_path}/desk.py:DESK")


def test_invariant_of_a_turn_is_checked_at_its_end() -> None:
    turns: list[TurnResult] = []

    def invariant_ended(turn: TurnResult) -> None:
        turns.append(turn)
        assert turn.outcome is not None

    assert_case(
        make_desk(book, invariants=(invariant_ended,)), (Visit(replies=(asks_for(("book", {"room": "red"})),)),)
    )
    assert [turn.text for turn in turns] == ["Done."]


LISTING: Final = """
import gc, threading
from turnwright_testing.desk.hang_watch import frames_of_threads

class Cycle: pass

over = threading.Event()
for _ in range(4):
    threading.Thread(target=over.wait, daemon=True).start()
for threshold in range(1, 12):
    for _ in range(30):
        gc.disable()
        cycle = Cycle()
        cycle.itself, cycle.local = cycle, threading.local()
        del cycle
        gc.set_threshold(threshold)
        gc.enable()
        assert len(frames_of_threads()) == 5
        assert gc.isenabled()
"""


@pytest.mark.slow
def test_list_of_frames_survives_a_collection_of_thread_locals() -> None:
    """The interpreter would wait for its own lock for ever."""
    subprocess.run([sys.executable, "-c", LISTING], check=True, timeout=60)
