"""The engine and the reference simulator agree on turns whose processes die after any append, or at any moment."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st
from tests.hypothesis_examples import percent_of_examples
from tests.oracle.differential import assert_as_predicted
from tests.oracle.reference import CoincidenceError
from tests.oracle.turn_script import (
    ANSWER,
    HELPER,
    LONG,
    ScriptedCall,
    ScriptedGuardrail,
    ScriptedReply,
    ScriptedTool,
    TurnScript,
)
from tests.properties.test_reference import TOOLS, folder, limits, maybe_calm, scripts, seldom
from tests.properties.test_reference import calls as plain_calls
from tests.properties.test_reference import replies as plain_replies
from tests.properties.test_reference_agents import agent_scripts, teams

from turnwright.store import SqliteStore
from turnwright_states import Cause, Finish, Limits

__all__ = ["folder"]

MORTAL_TOOLS = (
    *TOOLS,
    ScriptedTool("again", on_crash="rerun"),
    ScriptedTool("doubtful", on_crash="ask"),
    ScriptedTool("asks_again", needs_approval=True, on_crash="rerun"),
    ScriptedTool("asks_doubtful", needs_approval=True, on_crash="ask"),
)
#: A tool works for a second at least: one that ends at once may end before or after the process.
calls = st.builds(
    replace,
    plain_calls,
    tool=st.sampled_from([tool.name for tool in MORTAL_TOOLS] + ["plain", "again", "doubtful", "nowhere"]),
    seconds=st.sampled_from([1.0, 1.0, 2.0, 4.0]),
)
asking = st.lists(calls, min_size=1, max_size=4).map(tuple)
replies = st.builds(replace, plain_replies, calls=st.one_of(asking, asking, asking, st.just(())))
mortal_scripts = st.builds(
    replace,
    scripts,
    replies=st.lists(replies, min_size=1, max_size=8).map(tuple),
    tools=st.just(MORTAL_TOOLS),
    limits=limits,
    crashes=st.lists(st.sampled_from([1, 2, 3, 1, 2, 3, 5, 8]), min_size=1, max_size=6).map(tuple),
    dies_at=seldom(st.integers(0, 12).map(lambda n: n + 0.625)),
).flatmap(maybe_calm)


@st.composite
def mortal_agents(draw: st.DrawFn) -> TurnScript:
    """Turns of agents with hooks, guardrails and typed answers."""
    script, mortal = draw(agent_scripts()), draw(mortal_scripts)
    names = st.sampled_from(["", "", "again", "doubtful", "asks_again", "asks_doubtful"])
    return replace(
        script,
        tools=MORTAL_TOOLS,
        replies=tuple(
            replace(reply, calls=tuple(_lasting(call, draw(names)) for call in reply.calls)) for reply in script.replies
        ),
        crashes=mortal.crashes,
        dies_at=mortal.dies_at,
    )


@st.composite
def mortal_compactions(draw: st.DrawFn) -> TurnScript:
    """Turns with compactions and with hooks before the model."""
    script, agent = draw(mortal_scripts), draw(agent_scripts())
    long = tuple(replace(reply, tokens=draw(st.sampled_from([1, 5, LONG, LONG]))) for reply in script.replies)
    return replace(
        script,
        replies=long,
        compactions=draw(st.integers(0, 3)),
        keep_steps=agent.keep_steps,
        clears=agent.clears,
        offered=agent.offered,
    )


@st.composite
def mortal_teams(draw: st.DrawFn) -> TurnScript:
    """Turns whose first reply calls sub-agents, most of which run when a process dies."""
    team = draw(teams())
    names = st.sampled_from(["", "", "again", "doubtful", "asks_again", "asks_doubtful"])

    def lasting(replies: tuple[ScriptedReply, ...]) -> tuple[ScriptedReply, ...]:
        return tuple(
            replace(reply, calls=tuple(_lasting(call, draw(names)) for call in reply.calls)) for reply in replies
        )

    first, *more = lasting(team.replies)
    delegated = tuple(ScriptedCall(HELPER, number) for number in range(draw(st.integers(1, 3))))
    first = replace(first, calls=delegated + first.calls[:2], error=None, refused=False, finish=Finish.STOP)
    return replace(
        team,
        tools=MORTAL_TOOLS,
        replies=(draw(st.sampled_from([first, replace(first, fault="", trips=False)])), *more),
        helper=lasting(team.helper),
        guardrail=draw(seldom(st.just(team.guardrail))),
        crashes=tuple(draw(st.lists(st.integers(1, 12), max_size=6))),
        dies_at=draw(st.none() | st.integers(0, 12).map(lambda n: n + 0.625)),
    )


@contextmanager
def rejected_coincidences() -> Iterator[None]:
    """Reject an example in which work ends at the very moment of a deadline: the rules allow either to be first."""
    try:
        yield
    except CoincidenceError:
        reject()


def _lasting(call: ScriptedCall, tool: str) -> ScriptedCall:
    tool_names = {tool.name for tool in MORTAL_TOOLS}
    return replace(
        call,
        tool=tool if tool and call.tool in tool_names else call.tool,
        seconds=max(call.seconds, 1.0),
        after="" if call.tool == HELPER and call.after != "hide" else call.after,
    )


#: A process dies after it has added messages to a batch, before it settles the call that the last one left.
DIES_BETWEEN = TurnScript(
    replies=(ScriptedReply(calls=(ScriptedCall("plain", seconds=1.0),), seconds=1.0),),
    tools=MORTAL_TOOLS,
    synthesis=(" ",),
    messages=(2.75, 2.75),
    crashes=(3, 3, 2, 8),
)


WORKS = ScriptedReply(calls=(ScriptedCall("plain", seconds=1.0),))
SAYS = ScriptedReply("Well.")
LONG_WORK = replace(WORKS, tokens=LONG)
OVERFLOWS = ScriptedReply(error=Cause.CONTEXT_OVERFLOW, seconds=1.0)
WORKS_LONGER = ScriptedReply(calls=(ScriptedCall("plain", seconds=2.0),))
DOUBTFUL, ASKS = ScriptedCall("doubtful", seconds=1.0), ScriptedCall("asks")
DOUBTFUL_LONGER, ANSWERS = ScriptedCall("doubtful", seconds=4.0), ScriptedCall("direct", seconds=1.0)
AGAIN = ScriptedCall("again", seconds=2.0)
WORKS_AGAIN = ScriptedReply(calls=(AGAIN,))
RUNS_BESIDE_ASKS = ScriptedReply(calls=(AGAIN, ASKS))
LAST_STEP = Limits(steps=1, max_retries=0)
NO_RETRY, ONE_RETRY = Limits(max_retries=0), Limits(max_retries=1)
PASSES = ScriptedGuardrail(2.1, parallel=True)
FAILS = ScriptedGuardrail(1.03, fault="model")
TOO_LATE = TurnScript((replace(SAYS, seconds=2.0),), limits=Limits(seconds=0.5), guardrail=ScriptedGuardrail(1.03))
SPOILED = ScriptedCall("asks_doubtful", before="spoil")
IS_LATE, TRIPS = ScriptedCall("plain", before="late"), ScriptedCall("plain", before="trip")


@example(DIES_BETWEEN)
@example(TurnScript((WORKS,), MORTAL_TOOLS, messages=(0.75,), crashes=(3,)))
#: The question about the first call is asked after that about the second, because a crash caused it.
@example(TurnScript((replace(WORKS, calls=(DOUBTFUL, ASKS)),), MORTAL_TOOLS, people=("yes", "no"), dies_at=0.6))
#: A turn that was aborted before its process died is not repaired.
@example(TurnScript((WORKS_LONGER,), MORTAL_TOOLS, NO_RETRY, synthesis=(None,), abort_at=1.25, crashes=(3,)))
#: A call that needs a person is refused after a crash too, if no pause is left.
@example(TurnScript((replace(WORKS, calls=(DOUBTFUL, ASKS)),), MORTAL_TOOLS, Limits(max_pauses=0), crashes=(3,)))
#: A message comes before the result of a call that may not run again.
@example(TurnScript((WORKS_AGAIN,), MORTAL_TOOLS, LAST_STEP, messages=(0.75, 0.75), crashes=(3,)))
#: A batch that has the answer takes no message, also if a crash of another call asks a person.
@example(TurnScript((replace(WORKS, calls=(ANSWERS, DOUBTFUL_LONGER)),), MORTAL_TOOLS, messages=(0.75,), dies_at=1.6))
#: After a call that runs again, an aborted turn pauses only if the journal had the question about the other call.
@example(TurnScript((RUNS_BESIDE_ASKS,), MORTAL_TOOLS, abort_at=1.25, crashes=(3,)))
@example(TurnScript((RUNS_BESIDE_ASKS,), MORTAL_TOOLS, abort_at=1.25, crashes=(4,)))
@given(script=mortal_scripts)
def test_turn_with_dying_processes_follows_the_predicted_course(script: TurnScript) -> None:
    assert_as_predicted(script)


#: A review has retries of its own, and a crash of it costs one.
@example(TurnScript((ScriptedReply(ANSWER),), limits=Limits(max_retries=1), crashes=(1, 2), typed=True))
@example(TurnScript((ScriptedReply("Well.", fault="model"),), crashes=(5,), hooked=True))
#: A guardrail whose verdict is in the journal is not asked again.
@example(TurnScript((WORKS,), MORTAL_TOOLS, crashes=(2, 2), guardrail=ScriptedGuardrail(4.1, parallel=True)))
#: The hook or guardrail before a call ends the turn, and the tool does not run.
@example(TurnScript((replace(WORKS, calls=(IS_LATE,)),), MORTAL_TOOLS, crashes=(2,), hooked=True))
@example(TurnScript((replace(WORKS, calls=(TRIPS,)),), MORTAL_TOOLS, crashes=(2, 3), hooked=True))
#: The hook before a call is asked after a crash, though another call waits for a person.
@example(
    TurnScript((replace(WORKS, calls=(DOUBTFUL, SPOILED)),), MORTAL_TOOLS, people=("no",), crashes=(4,), hooked=True)
)
#: The conclusion does not ask the guardrail of the prompt again, because the review has accepted a reply.
@example(TurnScript((WORKS,), MORTAL_TOOLS, Limits(steps=1), abort_at=4.25, crashes=(5,), guardrail=PASSES))
#: A guardrail that passed in a conclusion is asked again, because no fact says so. A process may die while it is asked.
@example(replace(TOO_LATE, messages=(4.75,), dies_at=2.6))
@example(replace(TOO_LATE, dies_at=1.25))
#: A text-only reply is written when the guardrail beside it has passed. Until then a crash loses it with its tokens.
@example(TurnScript((replace(SAYS, tokens=3),), limits=Limits(steps=0), guardrail=PASSES, dies_at=0.6))
#: The failed attempts of a compaction are in the journal, and a crash of it costs a retry of its step.
@example(TurnScript((OVERFLOWS,), limits=ONE_RETRY, crashes=(2, 1, 3), compactions=2, clears=True))
@example(TurnScript((LONG_WORK, SAYS), MORTAL_TOOLS, ONE_RETRY, crashes=(4, 1), compactions=1))
#: A message that a process read before it asked the guardrail of the prompt is written, and the attempt is lost.
@example(TurnScript((SAYS,), limits=ONE_RETRY, messages=(0.75,), crashes=(3,), guardrail=FAILS))
#: A crash costs a retry of the synthesis.
@example(TurnScript((WORKS, SAYS), MORTAL_TOOLS, ONE_RETRY, synthesis=(Cause.SERVER_ERROR,), crashes=(3,)))
#: A turn that must not conclude with the model dies when its end is written.
@example(TurnScript((WORKS,), MORTAL_TOOLS, Limits(steps=1, concluding="never"), crashes=(2, 2)))
@given(script=mortal_agents() | mortal_compactions())
def test_agent_turn_with_dying_processes_follows_the_predicted_course(script: TurnScript) -> None:
    assert_as_predicted(script)


DELEGATES = ScriptedReply(calls=(ScriptedCall(HELPER, 1), ScriptedCall(HELPER, 2)))
ASKS_TOO = ScriptedReply(calls=(ScriptedCall(HELPER), ASKS))
NEEDS_PERSON = ScriptedReply(calls=(ScriptedCall("asks", seconds=1.0),))
WORKS_BESIDE = ScriptedReply(calls=(*DELEGATES.calls, AGAIN))
SAYS_LATER = replace(SAYS, seconds=4.0)
RUNS_AGAIN = ScriptedReply(calls=(AGAIN, DOUBTFUL_LONGER), seconds=1.0)
ENDED_EARLY = TurnScript(
    (ScriptedReply(calls=(ScriptedCall(HELPER), ScriptedCall(HELPER, before="ask"))),),
    MORTAL_TOOLS,
    messages=(0.75,),
    crashes=(10, 11, 2),
    hooked=True,
    helper=(ScriptedReply(calls=(ScriptedCall("asks_direct", seconds=1.0),)),),
)
DOUBTS = ScriptedReply(calls=(DOUBTFUL, ScriptedCall("asks_doubtful", seconds=1.0)))
MORTAL_TEAM = TurnScript((DELEGATES, SAYS), MORTAL_TOOLS, helper=(NEEDS_PERSON, SAYS))


#: A process dies while both sub-agents call their models, and while the tools of both run.
@example(replace(MORTAL_TEAM, helper=(SAYS_LATER,), dies_at=0.6))
@example(replace(MORTAL_TEAM, helper=(RUNS_AGAIN, SAYS_LATER), people=("no", "yes"), dies_at=2.6))
#: It dies before one of the sub-agents has begun, and when only one of them has written its reply.
@example(replace(MORTAL_TEAM, crashes=(5, 1, 1)))
@example(replace(MORTAL_TEAM, helper=(SAYS_LATER,), crashes=(7,)))
#: The calls have started again after the answers, and neither sub-agent has taken its answer.
@example(replace(MORTAL_TEAM, crashes=(15, 1, 1)))
#: A new message of the session has ended one of the two sub-agents, and is lost. A person is asked again.
@example(replace(MORTAL_TEAM, people=("message", "yes"), crashes=(12,)))
#: A person has aborted the turn. A process dies when it has ended one of the two sub-agents.
@example(replace(MORTAL_TEAM, people=("abort",), crashes=(12,)))
#: The deadline has ended one of the two sub-agents, and the crash gave the turn time back.
@example(replace(MORTAL_TEAM, helper=(SAYS_LATER,), limits=Limits(seconds=2.5), crashes=(7, 1)))
#: The same while an interrupted call runs again, and of a sub-agent that was canceled before it has ended.
@example(
    replace(MORTAL_TEAM, replies=(WORKS_BESIDE,), helper=(SAYS_LATER,), limits=Limits(seconds=1.5), crashes=(7, 2))
)
@example(
    replace(MORTAL_TEAM, replies=(WORKS_BESIDE,), helper=(SAYS_LATER,), limits=Limits(seconds=1.5), crashes=(8, 1))
)
#: A question about a crash of a sub-agent does not expire.
@example(replace(MORTAL_TEAM, helper=(RUNS_AGAIN, SAYS_LATER), people=("expire", "yes"), dies_at=2.6))
#: A caller passes on the questions of a sub-agent in the order of its calls, also if a crash caused the first one.
@example(replace(MORTAL_TEAM, helper=(DOUBTS,), people=("expire", "yes"), dies_at=1.625))
#: A question is answered with other arguments, though its sub-agent was ended before a process died.
@example(replace(ENDED_EARLY, people=("change", "yes", "message")))
#: The time of a sub-agent ends before that of its caller, which has lost more of it.
@example(replace(MORTAL_TEAM, helper=(RUNS_AGAIN, SAYS_LATER), limits=Limits(seconds=5.5), dies_at=2.6))
#: An aborted sub-agent whose process died needs no repair, so it has no failed attempt.
@example(replace(MORTAL_TEAM, helper=(SAYS_LATER,), limits=NO_RETRY, abort_at=1.25, crashes=(7, 1)))
#: Questions that expire at once do so in any order, and a process may die between two of them.
@example(TurnScript((ASKS_TOO, SAYS), MORTAL_TOOLS, people=("expire",), helper=(NEEDS_PERSON, SAYS), crashes=(9,)))
@given(script=mortal_teams())
def test_sub_agent_turns_with_dying_processes_follow_the_predicted_course(script: TurnScript) -> None:
    with rejected_coincidences():
        assert_as_predicted(script)


def test_work_ending_exactly_at_a_deadline_is_not_predicted() -> None:
    """A sub-agent concludes when its time is up. The crash has given its caller the second that this takes."""
    works = replace(WORKS, seconds=1.0)
    with pytest.raises(CoincidenceError):
        assert_as_predicted(replace(MORTAL_TEAM, helper=(works,), limits=Limits(seconds=2.5), crashes=(8,)))


@settings(max_examples=percent_of_examples(50))
@given(script=mortal_scripts | mortal_agents() | mortal_compactions() | mortal_teams())
def test_dying_turns_in_sqlite_follow_the_predicted_course(folder: Path, script: TurnScript) -> None:
    with rejected_coincidences():
        assert_as_predicted(script, store=partial(SqliteStore, folder / "crashes.db", durability="normal"))
