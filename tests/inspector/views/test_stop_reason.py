"""The page's words for why a turn stopped, what it waits for, and what will stop it."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest
from msgspec import structs

from turnwright import Agent, Engine, tool
from turnwright.journal.answers import answer_item, approve
from turnwright.model import ScriptedModel, asks_for
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import Line
from turnwright.store import InboxItem, InboxKind
from turnwright_inspector.views.stop_reason import StopReason, stop_of
from turnwright_inspector.views.turn_record import TabContext, TurnRecord, read_turn
from turnwright_states import REASONS, EndReason, Usage
from turnwright_states.verdict import Check, Verdict

pytestmark = pytest.mark.anyio


@tool
async def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: nothing found"


@tool(needs_approval=True)
async def delete_file(path: str) -> str:
    """Delete a file."""
    return f"{path} is deleted"


def as_it_is(turn: TurnRecord) -> TurnRecord:
    return turn


async def explained(
    lines: Sequence[Line],
    *,
    change: Callable[[TurnRecord], TurnRecord] = as_it_is,
    at: int | None = None,
    **agent: object,
) -> StopReason:
    """Play a turn with these lines and return its stop reason; `change` is applied to the record first."""
    settings = {"name": "Searcher"} | agent
    async with Engine(model=ScriptedModel(*lines, repeat=True), tools=[look_up, delete_file]) as engine:
        turn = await engine.run(Agent.model_validate(settings), "Find the word.")
        read = change(await read_turn(engine.store, turn.id, at))
        return stop_of(TabContext(engine, read, None, "sqlite:///turns.db", ()))


async def submitted(
    change: Callable[[TurnRecord], TurnRecord] = as_it_is, *, store: str = "sqlite:///turns.db", steps: int = 5
) -> StopReason:
    """Return the stop reason of a submitted turn; `store` is the store's address on the page."""
    async with Engine(model=ScriptedModel("Done."), tools=[look_up]) as engine:
        name = await engine.submit(Agent(name="Searcher", steps=steps), "Find the word.")
        read = change(await read_turn(engine.store, name))
        return stop_of(TabContext(engine, read, None, store, ()))


def searching(calls: int = 1) -> Line:
    words = iter(f"word-{number}" for number in range(1000))

    def say(request: ModelRequest) -> ModelResponse | str:
        if request.tool_choice == "none":
            return "Nothing was found."
        return asks_for(*[("look_up", {"word": next(words)}) for _ in range(calls)])

    return say


async def test_step_cap_has_figures_and_the_next_limit() -> None:
    stop = await explained([searching(calls=2)], steps=5, budget={"tool_calls": 11})
    assert stop.what == "cap_hit"
    assert stop.title == "Stopped at the step limit (5 of 5)"
    assert stop.limit == "The nearest other limit is the tool-call limit (10 of 11)."
    assert stop.next_step == "Raise the agent's `steps` (now 5)."


async def test_tool_budget_has_figures_and_the_next_limit() -> None:
    stop = await explained([searching()], steps=9, budget={"tool_calls": 2})
    assert stop.title == "Stopped at the tool-call limit (2 of 2 calls)"
    assert stop.limit == ""


async def test_advice_has_thousands_separators() -> None:
    reply = asks_for(("look_up", {"word": "a"}), usage=Usage(input_tokens=1_234_567))
    stop = await explained([reply, "Done."], budget={"tokens": 1_000_000})
    assert stop.title == "Stopped at the token limit (1234569 of 1000000)"
    assert "(now 1,000,000)" in stop.next_step


async def test_other_reached_limits_are_named() -> None:
    stop = await explained([searching()], steps=2, budget={"tool_calls": 2})
    assert stop.title == "Stopped at the step limit (2 of 2)"
    assert "Also reached: the tool-call limit." in stop.further


async def test_doom_loop_shows_advice() -> None:
    stop = await explained([asks_for(("look_up", {"word": "alpha"}))])
    assert (stop.what, stop.title) == ("doom_loop", "Stopped because the model repeated the same tool calls: look_up")
    assert stop.next_step == REASONS[EndReason.DOOM_LOOP].next


async def test_answer_shows_totals_and_no_advice() -> None:
    stop = await explained([asks_for(("look_up", {"word": "a"})), "Forty-two."], steps=4)
    assert (stop.what, stop.answer) == ("finished", "Forty-two.")
    assert re.fullmatch(r"Done in 2 steps \(1 tool call, \d+ tokens, .*\)", stop.title)
    assert (stop.means, stop.next_step, stop.further) == ("", "", ())


@pytest.mark.parametrize(("steps", "limit"), [(3, ""), (2, "The nearest limit is the step limit (2 of 2).")])
async def test_limit_is_shown_from_70_percent(steps: int, limit: str) -> None:
    stop = await explained([asks_for(("look_up", {"word": "a"})), "Forty-two."], steps=steps)
    assert (stop.limit, stop.limit_share) == (limit, 1.0 if limit else 0.0)


async def test_failure_shows_the_error() -> None:
    def fail(request: ModelRequest) -> str:  # noqa: ARG001 (a line takes one)
        raise ValueError("the prompt hook is broken")

    stop = await explained([fail])
    assert stop.what == "failed"
    assert "the prompt hook is broken" in stop.error


async def test_paused_turn_lists_the_awaited_answers() -> None:
    stop = await explained([asks_for(("delete_file", {"path": "a"}), ("delete_file", {"path": "b"}))])
    assert (stop.what, stop.title) == ("paused", "Paused: the turn waits for 2 answers")
    assert [interrupt.tool for interrupt in stop.interrupts] == ["delete_file", "delete_file"]


async def test_answered_turn_is_shown_as_not_resumed() -> None:
    def given(turn: TurnRecord, *, answers: int) -> TurnRecord:
        items = [answer_item("t", interrupt.id, approve()) for interrupt in turn.result.interrupts]
        return replace(turn, inbox=tuple(items[:answers]))

    script = [asks_for(("delete_file", {"path": "a"}), ("delete_file", {"path": "b"}))]
    some = await explained(script, change=partial(given, answers=1))
    assert some.title == "Paused: the turn waits for 1 answer"
    all_of_them = await explained(script, change=partial(given, answers=2))
    assert all_of_them.title == "Paused: answered, and not resumed yet"


async def test_running_turn_names_the_nearest_limit() -> None:
    stop = await submitted(lambda turn: replace(turn, driven=True))
    assert (stop.what, stop.title, stop.means) == ("running", "Waiting for the model", "Step 1")
    assert stop.limit == ""
    near = await submitted(lambda turn: replace(turn, driven=True), steps=1)
    assert near.limit == "The nearest limit is the step limit (1 of 1)."


async def test_pending_inbox_item_is_shown() -> None:
    item = InboxItem("t", "abort", InboxKind.ABORT)
    stop = await submitted(lambda turn: replace(turn, driven=True, inbox=(item,)))
    assert stop.further[0] == "Requested, and not read yet: an abort."


async def test_submitted_turn_is_shown_as_queued() -> None:
    stop = await submitted()
    assert (stop.what, stop.title) == ("waiting", "Queued: no worker has started it yet")
    assert stop.command.startswith("turnwright resume ")
    assert stop.command.endswith(" --store sqlite:///turns.db --base-url URL --tools FILE")
    assert "Add the program's model and tools to the command." in stop.how


async def test_command_line_turn_is_resumed_without_model_flags() -> None:
    def began(turn: TurnRecord) -> TurnRecord:
        return replace(turn, started=structs.replace(turn.started, metadata={"root": "/"}))

    stop = await submitted(began)
    assert stop.command.endswith(" --store sqlite:///turns.db")


@pytest.mark.parametrize("epoch", [0, 1])
async def test_command_without_a_store_address_has_a_note(epoch: int) -> None:
    stop = await submitted(lambda turn: replace(turn, row=replace(turn.row, epoch=epoch)), store="")
    assert re.fullmatch(r"turnwright resume \w+ --base-url URL --tools FILE", stop.command)
    assert "add it with `--store`" in stop.how


async def test_crashed_turn_shows_the_resume_command() -> None:
    stop = await submitted(lambda turn: replace(turn, row=replace(turn.row, epoch=1, owner="worker-7")))
    assert (stop.what, stop.title) == ("crashed", "Crashed while waiting for the model")
    assert "worker-7" in stop.means
    assert stop.command.startswith("turnwright resume ")


async def test_earlier_place_is_shown_as_past() -> None:
    stop = await explained([searching()], steps=1, at=2)
    assert (stop.what, stop.title, stop.means) == ("past", "After fact 2 of 9", "Waiting for the model.")
    assert stop.limit == "The nearest limit is the step limit (1 of 1)."


async def test_journal_fault_is_shown() -> None:
    def forged(turn: TurnRecord) -> TurnRecord:
        check = Check("every fact follows", Verdict.VIOLATED, "fact 3 does not follow")
        return replace(turn, replayed=replace(turn.replayed, check=check))

    stop = await explained(["Forty-two."], change=forged)
    assert "fact 3" in stop.fault


async def test_undelivered_messages_are_shown() -> None:
    def undelivered(turn: TurnRecord) -> TurnRecord:
        return replace(turn, result=replace(turn.result, undelivered=("Hurry up.",)))

    stop = await explained(["Forty-two."], change=undelivered)
    assert "Not delivered: Hurry up." in stop.further


async def test_every_reason_has_a_title() -> None:
    def ended(reason: EndReason) -> Callable[[TurnRecord], TurnRecord]:
        def change(turn: TurnRecord) -> TurnRecord:
            return replace(turn, result=replace(turn.result, reason=reason))

        return change

    reply = ModelResponse(text="Forty-two.", usage=Usage(cost=0.1))
    budget = {"tool_calls": 5, "tokens": 1_000, "cost": 1.0, "seconds": 60.0}
    titles = {reason: (await explained([reply], budget=budget, change=ended(reason))).title for reason in EndReason}
    assert all(title and not title.endswith(".") for title in titles.values())
