"""The engine and the reference simulator agree on hooks, guardrails, typed answers, compaction and sub-agents."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.hypothesis_examples import percent_of_examples
from tests.oracle.differential import assert_as_predicted
from tests.oracle.turn_script import (
    ANSWER,
    HELPER,
    LONG,
    OUTPUT_TOOL,
    ScriptedCall,
    ScriptedGuardrail,
    ScriptedReply,
    TurnScript,
)
from tests.properties.test_reference import TOOLS, USUAL, folder, limits, maybe_calm, scripts, seldom, work
from tests.properties.test_reference import replies as plain_replies

from turnwright.store import SqliteStore
from turnwright_states import Cause, Limits

__all__ = ["folder"]

calls = st.builds(
    ScriptedCall,
    tool=st.sampled_from([*USUAL, *USUAL, OUTPUT_TOOL, "direct", "asks_direct", "nowhere"]),
    number=st.integers(0, 1),
    does=st.sampled_from(["return", "return", "return", "fail", "retry"]),
    seconds=work,
    fits=st.sampled_from([True] * 7 + [False]),
    before=st.sampled_from(
        [""] * 8 + ["change", "change", "ask", "ask", "spoil", "reject", "result", "trip", "raise", "late"]
    ),
    after=st.sampled_from([""] * 8 + ["hide", "hide", "trip", "raise", "late"]),
)
answers = st.builds(
    ScriptedCall,
    tool=st.just(OUTPUT_TOOL),
    does=st.sampled_from(["return", "retry"]),
    fits=st.sampled_from([True, True, False]),
)
asking = st.lists(st.one_of(calls, calls, calls, answers), min_size=1, max_size=4).map(tuple)
replies = st.builds(
    replace,
    plain_replies,
    text=st.sampled_from(["", "", "Well.", ANSWER]),
    calls=st.one_of(asking, asking, asking, st.just(())),
    error=st.sampled_from([None] * 50 + [Cause.CONTEXT_OVERFLOW] * 5 + sorted(set(Cause) - {Cause.CRASH})),
    tokens=st.sampled_from([1, 3, 8, 20, 20, LONG]),  # of a reply without tokens the engine guesses the length
    refused=st.sampled_from([False] * 5 + [True]),
    trips=st.sampled_from([False] * 9 + [True]),
    fault=st.sampled_from([""] * 16 + ["raise", "late", "guardrail", "model", "once", "once"]),
)
guardrails = st.builds(
    ScriptedGuardrail,
    seconds=st.integers(0, 4).map(lambda n: n + 1 / 32),
    trips=st.sampled_from([False, False, False, True]),
    raises=st.sampled_from([False] * 7 + [True]),
    parallel=st.booleans(),
    fault=st.sampled_from(["", "", "", "model", "once", "once"]),
)
choices: list[tuple[str, ...] | Literal["raise"] | None] = [
    None,
    None,
    ("plain", "asks", "direct"),
    ("plain", "asks", "direct"),
    (),
    "raise",
]
offered = st.lists(st.sampled_from(choices), max_size=3).map(tuple)


helper_calls = st.builds(replace, calls, tool=st.just(HELPER))
helper_replies = st.builds(replace, plain_replies, calls=st.lists(calls, max_size=3).map(tuple))


@st.composite
def teams(draw: st.DrawFn) -> TurnScript:
    """Turns with sub-agents."""
    script = draw(agent_scripts())
    delegating = st.lists(helper_calls | calls, min_size=1, max_size=4).map(_one_fault)
    asking_replies = st.builds(replace, replies, calls=st.just(()) | delegating)
    team = replace(
        script,
        replies=tuple(draw(st.lists(asking_replies, min_size=1, max_size=6))),
        helper=tuple(draw(st.lists(helper_replies, min_size=1, max_size=4))),
        offered=tuple((*names, HELPER) if isinstance(names, tuple) else names for names in script.offered),
    )
    return draw(maybe_calm(team))


def _one_fault(calls: list[ScriptedCall]) -> tuple[ScriptedCall, ...]:
    """Keep the first fault after a sub-agent, because the simulator runs the sub-agents one after the other."""
    faults = [call for call in calls if call.tool == HELPER and call.after not in ("", "hide")]
    return tuple(replace(call, after="") if any(call is later for later in faults[1:]) else call for call in calls)


@st.composite
def agent_scripts(draw: st.DrawFn) -> TurnScript:
    """Turns of agents with some of these."""
    script = draw(scripts)
    typed = draw(st.booleans())
    compactions = draw(st.sampled_from([0, 1, 2]))
    bounds = draw(limits.filter(can_answer) if typed else limits)
    agent = replace(
        script,
        replies=tuple(draw(st.lists(replies, min_size=1, max_size=8))),
        limits=bounds.model_copy(update={"output_retries": draw(st.integers(0, 2))}),
        hooked=draw(st.sampled_from([False, True, True, True])),
        typed=typed,
        guardrail=draw(seldom(guardrails)),
        compactions=compactions,
        keep_steps=draw(st.integers(0, 3)),
        clears=draw(st.booleans()),
        offered=draw(offered) if draw(st.booleans()) else (),
    )
    return draw(maybe_calm(agent))


def can_answer(bounds: Limits) -> bool:
    """Return whether a turn with a typed answer may begin: it needs a step that may call tools."""
    within = bounds.concluding == "within"
    most = min(20 if bounds.steps is None else bounds.steps, bounds.ceiling)
    return most > within and bounds.tool_calls != 0


ASKS = ScriptedReply(calls=(ScriptedCall("plain"),))
TRIPS_AT_ONCE, NEEDS_APPROVAL = ScriptedCall("plain", before="trip"), ScriptedCall("asks_direct")
UNASKED = Limits(max_pauses=0)
SAYS = ScriptedReply("Well.")
HIDES = replace(ASKS, calls=(ScriptedCall("plain", does="fail", after="hide"),))
TRIPS = replace(SAYS, trips=True)
TOO_LONG = replace(ASKS, tokens=LONG)
SAYS_LATER = replace(SAYS, seconds=4.0)
OVERFLOWS = ScriptedReply(error=Cause.CONTEXT_OVERFLOW, tokens=20)
SHORT = Limits(steps=1)
PARALLEL_FAILS = ScriptedGuardrail(1.03, parallel=True, fault="model")


@example(TurnScript((HIDES, SAYS), TOOLS, hooked=True))
@example(TurnScript((SAYS,), messages=(0.75,), guardrail=ScriptedGuardrail(1.1)))
@example(TurnScript((TRIPS,), limits=Limits(steps=0), hooked=True))
@example(TurnScript((ASKS, TRIPS), TOOLS, SHORT, hooked=True))
@example(TurnScript((TOO_LONG, replace(SAYS, error=Cause.BAD_REQUEST), SAYS), TOOLS, compactions=2))
@example(
    TurnScript((ASKS, TOO_LONG, replace(SAYS, error=Cause.AUTHENTICATION), SAYS), TOOLS, compactions=2, keep_steps=1)
)
@example(TurnScript((TOO_LONG, replace(SAYS, tokens=20), SAYS), TOOLS, Limits(tokens=LONG + 10), compactions=1))
@example(TurnScript((TOO_LONG, replace(SAYS, error=Cause.CONTEXT_OVERFLOW), ScriptedReply()), TOOLS, compactions=2))
@example(TurnScript((replace(ASKS, fault="late"),), TOOLS, hooked=True))
@example(TurnScript((replace(SAYS, fault="once"),), limits=Limits(max_retries=1), hooked=True))
@example(TurnScript((replace(SAYS, fault="model"),), limits=Limits(steps=0, max_retries=1), hooked=True))
@example(TurnScript((replace(SAYS, seconds=4.0),), guardrail=ScriptedGuardrail(1.1, raises=True, parallel=True)))
@example(TurnScript((TOO_LONG,), TOOLS, Limits(steps=6), compactions=3, keep_steps=3))
@example(TurnScript((TOO_LONG,), TOOLS, Limits(steps=6), compactions=3, keep_steps=1, clears=True))
#: A failed attempt has spent the tokens before a compaction that calls no model.
@example(TurnScript((ASKS, OVERFLOWS, SAYS), TOOLS, Limits(tokens=20), compactions=1, clears=True))
#: The own model of the guardrail of a prompt fails: before an attempt, beside it, in a conclusion, in a text-only turn.
@example(TurnScript((SAYS,), guardrail=ScriptedGuardrail(1.03, fault="model")))
@example(TurnScript((SAYS_LATER,), guardrail=ScriptedGuardrail(1.03, parallel=True, fault="once")))
@example(TurnScript((SAYS_LATER,), limits=Limits(seconds=0.5), guardrail=ScriptedGuardrail(1.03, fault="model")))
@example(TurnScript((SAYS_LATER,), limits=Limits(steps=0), guardrail=PARALLEL_FAILS))
#: The own model of the synthesis fails, each time or once, or the synthesis raises.
@example(TurnScript((ASKS, SAYS), TOOLS, synthesis=(Cause.SERVER_ERROR, "Together.")))
@example(TurnScript((ASKS, SAYS), TOOLS, synthesis=(Cause.BAD_REQUEST,)))
@example(TurnScript((ASKS, SAYS), TOOLS, synthesis=(RuntimeError,)))
#: No person is left to ask. A call is refused in its place: not after a hook that has ended the turn.
@example(TurnScript((ScriptedReply(calls=(TRIPS_AT_ONCE, NEEDS_APPROVAL)),), TOOLS, UNASKED, hooked=True))
@example(TurnScript((ScriptedReply(calls=(NEEDS_APPROVAL, TRIPS_AT_ONCE)),), TOOLS, UNASKED, hooked=True))
@given(script=agent_scripts())
def test_turn_of_an_agent_with_hooks_follows_the_predicted_course(script: TurnScript) -> None:
    assert_as_predicted(script)


DELEGATES = ScriptedReply(calls=(ScriptedCall(HELPER, 1), ScriptedCall(HELPER, 2)))
DELEGATES_BESIDE = replace(ASKS, calls=(ScriptedCall(HELPER), ScriptedCall("plain", before="result", after="trip")))


def hooked_team(delegates: ScriptedCall, works: ScriptedCall = ASKS.calls[0]) -> TurnScript:
    """Return the turn of an agent that calls two sub-agents, one of them so, and each of them works so."""
    asks = ScriptedReply(calls=(delegates, ScriptedCall(HELPER)))
    return TurnScript((asks, SAYS), TOOLS, hooked=True, helper=(ScriptedReply(calls=(works,)), SAYS_LATER))


POLLS = ScriptedReply(calls=(ScriptedCall("polls"),) * 4, tokens=30)
DELEGATES_AND_WORKS = ScriptedReply(calls=(ScriptedCall(HELPER), ScriptedCall("plain", seconds=3.0)))
DELEGATES_ONE = ScriptedReply(calls=(ScriptedCall(HELPER),))
ANSWERS_DIRECTLY = ScriptedReply(calls=(ScriptedCall("asks_direct"),))
ANSWERS_BESIDE = ScriptedReply(calls=(ScriptedCall(HELPER), ScriptedCall("direct", seconds=1.0)))
NEEDS_PERSON = ScriptedReply(calls=(ScriptedCall("asks"),))
TWO_ROUNDS = Limits(doom_threshold=2, steps=3)
NEEDS_PEOPLE = ScriptedReply(calls=(ScriptedCall("asks", 1), ScriptedCall("asks", 2)))


@example(TurnScript((DELEGATES, SAYS), TOOLS, Limits(tool_calls=8), helper=(POLLS, SAYS)))
@example(TurnScript((DELEGATES, SAYS), TOOLS, Limits(tokens=100, tool_calls=None), helper=(POLLS,)))
# The model calls of sub-agents that are cut off count, by a deadline and by a guardrail.
@example(TurnScript((DELEGATES,), TOOLS, Limits(seconds=9.5), helper=(SAYS_LATER,)))
@example(TurnScript((DELEGATES_BESIDE,), TOOLS, hooked=True, helper=(SAYS_LATER,)))
# Both questions of a sub-agent expire, though only the first one has been asked through the calling turn.
@example(TurnScript((DELEGATES, SAYS), TOOLS, people=("yes", "expire"), helper=(NEEDS_PEOPLE, SAYS)))
@example(TurnScript((DELEGATES, SAYS), TOOLS, people=("change", "no"), helper=(NEEDS_PEOPLE, SAYS)))
# The synthesis of a sub-agent's batch is its answer, and raises in that of its caller.
@example(TurnScript((DELEGATES, SAYS), TOOLS, synthesis=(None, "Together.", RuntimeError), helper=(ASKS, SAYS)))
# A message comes while an abort leaves time to the last call, which is not the sub-agent's.
@example(TurnScript((DELEGATES_AND_WORKS,), TOOLS, messages=(2.75,), abort_at=2.25, helper=(SAYS_LATER,)))
# Hooks and guardrails decide about the call of a sub-agent and about its calls.
@example(hooked_team(ScriptedCall(HELPER, before="change")))
@example(hooked_team(ScriptedCall(HELPER, before="spoil")))
@example(hooked_team(ScriptedCall(HELPER, before="ask", after="hide")))
@example(hooked_team(ScriptedCall(HELPER, before="result", after="trip")))
@example(hooked_team(ScriptedCall(HELPER, after="hide"), ScriptedCall("plain", after="trip")))
@example(hooked_team(ScriptedCall(HELPER, after="late"), ScriptedCall("plain", before="change")))
@example(hooked_team(ScriptedCall(HELPER, before="late"), ScriptedCall("plain", before="late")))
# The deadline ends a sub-agent beside a call that gave the answer. What it used counts.
@example(TurnScript((ANSWERS_BESIDE,), TOOLS, Limits(seconds=2.5), helper=(replace(ASKS, tokens=7), SAYS_LATER)))
# A sub-agent that says the same again and again is a loop. One whose people or figures differ is none.
@example(TurnScript((DELEGATES_ONE,), TOOLS, helper=(ASKS, SAYS)))
@example(TurnScript((DELEGATES_ONE,), TOOLS, TWO_ROUNDS, people=("yes", "no"), helper=(ANSWERS_DIRECTLY, SAYS)))
@example(TurnScript((DELEGATES_ONE,), TOOLS, TWO_ROUNDS, people=("yes", "no"), helper=(NEEDS_PERSON,)))
@given(script=teams())
def test_turn_with_sub_agents_follows_the_predicted_course(script: TurnScript) -> None:
    assert_as_predicted(script)


@settings(max_examples=percent_of_examples(50))
@given(script=agent_scripts() | teams())
def test_turns_in_sqlite_follow_the_predicted_course(folder: Path, script: TurnScript) -> None:
    assert_as_predicted(script, store=partial(SqliteStore, folder / "agents.db", durability="normal"))
