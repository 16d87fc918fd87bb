"""The engine and the reference simulator, two programs without shared code, agree on the course of every turn."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.hypothesis_examples import percent_of_examples
from tests.oracle.differential import assert_as_predicted
from tests.oracle.turn_script import ScriptedCall, ScriptedGuardrail, ScriptedReply, ScriptedTool, TurnScript

from turnwright.store import SqliteStore
from turnwright_states import Cause, Finish, Limits

T = TypeVar("T")

TOOLS = (
    ScriptedTool("plain"),
    ScriptedTool("asks", needs_approval=True),
    ScriptedTool("polls", ignore_in_loop_detection=True),
    ScriptedTool("same", one_loop_key=True, retries=0),
    ScriptedTool("direct", return_direct=True),
    ScriptedTool("asks_direct", return_direct=True, needs_approval=True),
)
USUAL = ["plain", "plain", "asks", "polls", "same"]

#: No two things happen at once: work ends at whole seconds, and aborts, deadlines and messages come between them, as
#: the ends of conclusions do. All are sums of powers of two, so that they are exact.
work = st.sampled_from([0.0, 0.0, 1.0, 2.0, 4.0])
texts: list[str | Cause | type[RuntimeError] | None] = [None] * 3
texts += [" ", "Together.", "Together.", RuntimeError]
texts += [Cause.SERVER_ERROR, Cause.SERVER_ERROR, Cause.BAD_REQUEST, Cause.CONTEXT_OVERFLOW]
messages = st.lists(st.integers(0, 12).map(lambda n: n + 0.75), max_size=3).map(tuple)

calls = st.builds(
    ScriptedCall,
    tool=st.sampled_from([*USUAL, *USUAL, "direct", "asks_direct", "nowhere"]),
    number=st.integers(0, 1),
    does=st.sampled_from(["return", "return", "return", "fail", "retry"]),
    seconds=work,
    fits=st.sampled_from([True] * 7 + [False]),
)
asking = st.lists(calls, min_size=1, max_size=4).map(tuple)
replies = st.builds(
    ScriptedReply,
    text=st.sampled_from(["", "", "Well."]),
    calls=st.one_of(asking, asking, asking, asking, st.just(())),
    finish=st.sampled_from([Finish.STOP] * 16 + [Finish.LENGTH, Finish.CONTENT_FILTER]),
    error=st.sampled_from([None] * 100 + sorted(set(Cause) - {Cause.CRASH})),
    tokens=st.integers(0, 20),
    seconds=work,
)


def seldom(limit: st.SearchStrategy[T]) -> st.SearchStrategy[T | None]:
    """No limit, for the most part, so that another one stops the turn."""
    return st.one_of(st.none(), st.none(), limit)


limits = st.builds(
    Limits,
    steps=st.none() | st.integers(0, 6),
    ceiling=st.sampled_from([0, 1, 8, 20, 20, 20]),
    concluding=st.sampled_from(["after", "within", "never"]),
    tool_calls=seldom(st.integers(0, 8)),
    max_calls_per_step=st.integers(1, 4) | st.just(32),
    tokens=seldom(st.integers(1, 150)),
    cost=seldom(st.integers(1, 150).map(float)),
    seconds=seldom(st.integers(0, 12).map(lambda n: n + 0.5)),
    doom_threshold=st.none() | st.integers(2, 4),
    idle_steps=st.none() | st.integers(1, 3),
    doom_compare=st.sampled_from(["results", "calls"]),
    doom_response=st.sampled_from(["stop", "ask"]),
    nudges=st.integers(0, 2),
    max_retries=st.integers(0, 2),
    max_pauses=st.integers(0, 3),
    conclude_seconds=st.sampled_from([1 + 13 / 64, 30 + 13 / 64]),
)


#: Limits that end a turn early.
ENDING = ("tokens", "cost", "seconds")


def maybe_calm(script: TurnScript) -> st.SearchStrategy[TurnScript]:
    """Turns with the script, or with one that lacks most of what ends a turn early."""
    calm = replace(
        script,
        replies=tuple(sorted(map(_calm, script.replies), key=lambda reply: not reply.calls)),
        helper=tuple(_calm(reply) for reply in script.helper),
        limits=script.limits.model_copy(update=dict.fromkeys(ENDING) | {"steps": 8, "ceiling": 20, "tool_calls": 20}),
        abort_at=None,
        guardrail=None,
    )
    return st.sampled_from([script, calm])


def _calm(reply: ScriptedReply) -> ScriptedReply:
    return replace(reply, text=reply.text or "Well.", finish=Finish.STOP, error=None, trips=False, fault="")


scripts = st.builds(
    TurnScript,
    replies=st.lists(replies, min_size=1, max_size=8).map(tuple),
    tools=st.just(TOOLS),
    limits=limits,
    people=st.lists(
        st.sampled_from(["yes"] * 4 + ["change"] * 2 + ["always"] * 2 + ["no", "no", "expire", "abort", "message"]),
        min_size=1,
        max_size=5,
    ).map(tuple),
    synthesis=st.just(()) | st.lists(st.sampled_from(texts), min_size=1, max_size=3).map(tuple),
    messages=st.just(()) | messages,
    abort_at=seldom(st.integers(0, 12).map(lambda n: n + 0.25)),
).flatmap(maybe_calm)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """One folder for the databases of all examples."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


#: A round that closes a loop asks for an approval, and the turn is aborted there: nobody was asked about the loop.
ABORTED_IN_A_LOOP = TurnScript(
    replies=(ScriptedReply(calls=(ScriptedCall("asks"),)),), tools=TOOLS, people=("yes", "yes", "abort")
)


#: Calls that count as equal, with other results: a loop only where calls alone are compared.
EQUAL_CALLS = TurnScript(
    tuple(ScriptedReply(calls=(ScriptedCall("same", number),), seconds=1.0) for number in range(5)), TOOLS
)

#: Calls that are refused after their tool's retries have another result than before: their rounds close no loop.
REFUSED_RETRIES = TurnScript(
    (
        ScriptedReply(calls=(ScriptedCall("plain"), ScriptedCall("plain", does="retry"))),
        ScriptedReply(calls=(ScriptedCall("plain", 1),) * 2),
    ),
    TOOLS,
    Limits(doom_threshold=2, nudges=0),
)


@example(EQUAL_CALLS)
@example(replace(EQUAL_CALLS, limits=Limits(doom_compare="calls")))
@example(REFUSED_RETRIES)
#: A message that comes while the call of the first reply runs clears its round, too.
@example(TurnScript((ScriptedReply(calls=(ScriptedCall("plain", seconds=2.0),)),), TOOLS, messages=(0.75,)))
@example(ABORTED_IN_A_LOOP)
@example(replace(ABORTED_IN_A_LOOP, people=("change",)))
#: More calls than the turn has left.
@example(TurnScript((ScriptedReply(calls=(ScriptedCall("plain"),) * 3),), TOOLS, Limits(tool_calls=1)))
@given(script=scripts)
def test_turn_in_memory_follows_the_predicted_course(script: TurnScript) -> None:
    assert_as_predicted(script)


@settings(max_examples=percent_of_examples(50))
@given(script=scripts)
def test_turn_in_sqlite_follows_the_predicted_course(folder: Path, script: TurnScript) -> None:
    assert_as_predicted(script, store=partial(SqliteStore, folder / "turns.db", durability="normal"))


@settings(max_examples=percent_of_examples(30))
@example(ceiling=1, messages=[0.75, 12.75, 9.75], guardrail=ScriptedGuardrail(seconds=0.03125), threshold=None)
@given(
    ceiling=st.integers(1, 3),
    # One of the first instant may come before the first request, or behind it.
    messages=st.lists(st.integers(1, 40).map(lambda quarters: quarters / 4), max_size=3),
    guardrail=st.none() | st.builds(ScriptedGuardrail, seconds=st.sampled_from([0.0, 0.25, 1.0])),
    threshold=st.sampled_from([None, 2]),
)
def test_message_in_the_last_batch_is_late_with_an_input_guardrail(
    ceiling: int, messages: list[float], guardrail: ScriptedGuardrail | None, threshold: int | None
) -> None:
    polling = ScriptedReply(calls=(ScriptedCall("plain"), ScriptedCall("helper")), seconds=1.0)
    bounds = Limits(steps=6, ceiling=ceiling, doom_threshold=threshold, nudges=0)
    script = TurnScript(
        replies=(polling, polling, polling, ScriptedReply()),
        tools=TOOLS,
        limits=bounds,
        messages=tuple(messages),
        guardrail=guardrail,
        helper=(ScriptedReply(seconds=2.0),),
    )
    assert_as_predicted(script)


@settings(max_examples=percent_of_examples(5))
@given(
    steps=st.none() | st.sampled_from([198, 199, 200, 201, 250]),
    concluding=st.sampled_from(["after", "within", "never"]),
)
def test_turn_takes_at_most_200_steps(steps: int | None, concluding: str) -> None:
    """A model that never stops by itself, with no other limit."""
    polling = ScriptedReply(calls=(ScriptedCall("polls"),))
    bounds = Limits.model_validate({"steps": steps, "concluding": concluding, "tool_calls": None})
    script = TurnScript(replies=(polling,), tools=TOOLS, limits=bounds)
    course = assert_as_predicted(script)
    assert course.steps == min(steps or 200, 200)


@settings(max_examples=percent_of_examples(20))
@given(
    cycle=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=2), min_size=1, max_size=5),
    threshold=st.integers(2, 3),
    nudges=st.integers(0, 1),
    compare=st.sampled_from(["results", "calls"]),
    messages=st.just(()) | messages,
)
def test_cycle_of_rounds_stops_a_turn_as_predicted(
    cycle: list[list[int]],
    threshold: int,
    nudges: int,
    compare: Literal["results", "calls"],
    messages: tuple[float, ...],
) -> None:
    """The model repeats a few rounds, and nothing else stops it before its twentieth step."""
    replies = tuple(
        ScriptedReply(calls=tuple(ScriptedCall("plain", number) for number in numbers), seconds=1.0)
        for numbers in cycle
    )
    bounds = Limits(steps=20, doom_threshold=threshold, doom_compare=compare, nudges=nudges, tool_calls=None)
    assert_as_predicted(TurnScript(replies=replies, tools=TOOLS, limits=bounds, messages=messages))
