"""Complete journals: a later release must read them, and write them again word for word (docs/rules.md#journal).

Each turn below is kept in `golden/`, a fact a line. A change that alters one of them alters the journal's format or a
text that a model or a person reads: run `GOLDEN=write pytest tests/states/test_golden.py`, and read the difference.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from turnwright_states import (
    AbortInput,
    AnsweredInput,
    AttemptFailedInput,
    CallSettledInput,
    CallStartedInput,
    CallStatus,
    CallWaitingInput,
    Cause,
    CompactedInput,
    ConcludedInput,
    Decision,
    EndReason,
    ExpireInput,
    FailInput,
    Finish,
    GivenResult,
    InterruptKind,
    ModelRepliedInput,
    OversizedInput,
    RequestPreparedInput,
    ReviewedInput,
    Spent,
    StartedInput,
    SteeredInput,
    SynthesizedInput,
    ToolCall,
    TrippedInput,
    TurnMachine,
    Usage,
)
from turnwright_states.fact_parser import parse_fact
from turnwright_states.inputs import JsonObject
from turnwright_states.replay import replay

from .conftest import Begin, Script

GOLDEN: Final = Path(__file__).parent / "golden"

READ: Final = ToolCall(name="read_file", arguments={"path": "a.py", "lines": [1, 2]}, provider_id="call_0")
SEARCH: Final = ToolCall(name="search", arguments={"q": "é\u2028 \ud83d"}, loop_key="q")
POLL: Final = ToolCall(name="poll", arguments={}, ignore_in_loop_detection=True)
CHILD: Final = ToolCall(name="agent", arguments={"task": "look"}, delegates=True)
ANSWER: Final = ToolCall(name="answer", arguments={"total": 12.5}, output=True)
NOT_JSON: Final = ToolCall(name="search", raw='{"q": "cut')
UNKNOWN: Final = ToolCall(name="nowhere", arguments={}, problem="there is no tool 'nowhere'")
SMALL: Final = Usage(input_tokens=30, output_tokens=12, cost=0.125)


def answered(begin: Begin) -> Script:
    """Two steps, calls of every kind, a message in between; notices for steps, calls, tokens, cost and seconds."""
    started = StartedInput(prompt="Tidy utils.py", session="s1", model="m", agent={"name": "Tidier"}, elapsed=0.25)
    turn = begin(started, steps=3, tool_calls=6, tokens=100, cost=1.0, seconds=10.0)
    turn.clock = 1.2345678
    turn.reply(READ, SEARCH, POLL, NOT_JSON, UNKNOWN, text="Let me look.", usage=SMALL)
    turn.clock = 2.5
    turn.feed(SteeredInput(text="Mind the tests."))
    turn.settle(result="def f(): ...")
    turn.clock = 8.0
    turn.reply(SEARCH, POLL, usage=Usage(input_tokens=20, output_tokens=20, cost=0.7))
    turn.settle(CallStatus.ERROR, "no such file")
    turn.clock = 9.0
    turn.reply(text="Done.", usage=None)
    return turn


def step_cap(begin: Begin) -> Script:
    """The cap, and a conclusion that asks for tools all the same."""
    turn = begin(steps=2)
    turn.step(READ)
    turn.clock = 1.0
    turn.step(SEARCH)
    turn.feed(AttemptFailedInput(cause=Cause.OVERLOADED, message="529: busy", partial="So f", usage=SMALL))
    turn.feed(ConcludedInput(text="Half of it is done.", calls=(READ, CHILD), usage=SMALL))
    return turn


def within(begin: Begin) -> Script:
    """The concluding call counts as a step; it says nothing."""
    turn = begin(steps=2, concluding="within")
    turn.step(READ)
    turn.feed(ConcludedInput())
    turn.feed(ConcludedInput(calls=(READ,)))
    return turn


def budget(begin: Begin) -> Script:
    """Places are reserved in call order; more calls than a step may run."""
    turn = begin(tool_calls=4, max_calls_per_step=3)
    turn.reply("a", "b", "c", "d")
    turn.settle()
    turn.reply("a", "b")
    turn.settle()
    turn.feed(ConcludedInput(text="Spent."))
    return turn


def tokens_and_cost(begin: Begin) -> Script:
    """Both are spent by one reply; the conclusion fails, and the reason is still the limit's."""
    turn = begin(tokens=50, cost=0.2, max_retries=1)
    turn.step(READ, usage=Usage(input_tokens=40, output_tokens=20, cost=0.3))
    turn.feed(AttemptFailedInput(cause=Cause.TIMEOUT))
    turn.feed(AttemptFailedInput(cause=Cause.TIMEOUT))
    return turn


def deadline_in_tools(begin: Begin) -> Script:
    """Time is up while one call runs and another has not begun."""
    turn = begin(seconds=5.0)
    turn.reply("a", "b", "c", usage=SMALL)
    turn.settle_one("call00001")
    turn.feed(CallStartedInput(call="call00002"))
    turn.clock = 5.5
    turn.feed(ExpireInput())
    turn.feed(ConcludedInput(text="Late."))
    return turn


def deadline_in_a_reply(begin: Begin) -> Script:
    """Time is up while the model writes, in the third attempt."""
    turn = begin(seconds=5.0)
    turn.feed(AttemptFailedInput(cause=Cause.CRASH, message="the process died during this call"))
    turn.reply()
    turn.clock = 6.0
    turn.feed(ExpireInput(partial="Well, I", usage=SMALL))
    turn.feed(ConcludedInput(text="", usage=SMALL))
    turn.feed(ConcludedInput(text="It took two steps."))
    return turn


def deadline_of_a_text(begin: Begin) -> Script:
    """Without a step there is nothing to conclude."""
    turn = begin(steps=0, seconds=5.0)
    turn.clock = 5.0
    turn.feed(ExpireInput(partial="Well, I", usage=SMALL))
    return turn


def doom_stop(begin: Begin) -> Script:
    """A cycle of two, repeated twice; a nudge first, with other limits reached besides."""
    turn = begin(doom_threshold=2, nudges=1, tool_calls=6, tokens=40)
    for name in ("a", "b", "a", "b"):
        turn.step(name, usage=Usage(input_tokens=1))
    turn.step("a", usage=Usage(input_tokens=99))
    turn.feed(ConcludedInput(text="I went round in circles.", usage=SMALL))
    return turn


def doom_ask(begin: Begin) -> Script:
    """Go on; then always; then it is stopped for another tool."""
    turn = begin(doom_threshold=2, doom_response="ask")
    turn.step("a")
    turn.step("a")
    turn.feed(AnsweredInput(interrupt="doom-1", decision=Decision.GO_ON))
    turn.step("a")
    turn.step("a")
    turn.feed(AnsweredInput(interrupt="doom-2", decision=Decision.ALWAYS, text="it takes long"))
    turn.step("a")
    turn.step("a")
    turn.step("a")
    turn.step("a", "b")
    turn.step("b", "a")
    turn.feed(AnsweredInput(interrupt="doom-3", decision=Decision.STOP))
    turn.feed(ConcludedInput(text="Stopped."))
    return turn


def people(begin: Begin) -> Script:
    """A person is asked for each kind of thing, and answers in each way."""
    turn = begin(max_pauses=3)
    turn.reply("rm", "ask", "read", "mail", "rm")
    turn.wait("call00001")
    turn.feed(
        CallWaitingInput(
            call="call00002",
            interrupt_kind=InterruptKind.QUESTION,
            question="Which?",
            choices=("this", "that"),
            expires_at=1e9,
        )
    )
    turn.feed(CallWaitingInput(call="call00003", interrupt_kind=InterruptKind.GRANT, grant="/src"))
    turn.feed(CallStartedInput(call="call00004"))
    turn.feed(CallWaitingInput(call="call00004", interrupt_kind=InterruptKind.UNKNOWN_OUTCOME))
    turn.wait("call00005")
    turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.REJECT, text="keep it"))
    turn.feed(AnsweredInput(interrupt="question-1", decision=Decision.REPLY, text="this"))
    turn.feed(AnsweredInput(interrupt="grant-1", decision=Decision.APPROVE))
    turn.feed(AnsweredInput(interrupt="approval-2", decision=Decision.REJECT))
    turn.feed(AnsweredInput(interrupt="unknown-1", decision=Decision.RERUN))
    turn.settle()
    turn.reply("mail")
    turn.feed(CallStartedInput(call="call00006"))
    turn.feed(CallWaitingInput(call="call00006", interrupt_kind=InterruptKind.UNKNOWN_OUTCOME))
    turn.feed(AnsweredInput(interrupt="unknown-2", decision=Decision.UNKNOWN))
    turn.reply("rm")
    turn.wait("call00007")
    turn.feed(AbortInput(reason=EndReason.SUPERSEDED, undelivered=("one", "two")))
    return turn


def waits(begin: Begin) -> Script:
    """Tools of the client, and results from outside: a value, an error, and the answer to a call in doubt."""
    declared: JsonObject = {"name": "pick", "parameters": {"type": "object"}, "needs_approval": True}
    started = StartedInput(prompt="Render", client_tools=(declared,), restricted=True, guardrails=("no_secrets",))
    turn = begin(started, max_pauses=9)
    turn.reply("pick", "render", "mail")
    turn.wait("call00001")
    for call in ("call00002", "call00003"):
        turn.feed(CallStartedInput(call=call))
    turn.feed(
        CallWaitingInput(
            call="call00002",
            interrupt_kind=InterruptKind.RESULT,
            question="render waits for its result",
            expires_at=2e9,
            otherwise=GivenResult(text="none", structured={"film": None}),
            schema={"type": "object", "required": ["film"]},
            kept={"job": 17},
            restricted=True,
        )
    )
    turn.wait("call00003", InterruptKind.UNKNOWN_OUTCOME)
    approved = AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE, by="ann", via="slack", at=1e9)
    film = GivenResult(text='{"film":"a.mp4"}', structured={"film": "a.mp4"}, files=({"name": "a.mp4"},))
    turn.feed(approved)
    turn.feed(AnsweredInput(interrupt="result-call00002", decision=Decision.SETTLE, given=film, by="farm"))
    paid = GivenResult(text="paid, receipt 42")
    turn.feed(AnsweredInput(interrupt="unknown-1", decision=Decision.SETTLE, given=paid))
    turn.feed(CallSettledInput(call="call00002", result=film.text, structured=film.structured, files=film.files))
    turn.feed(CallSettledInput(call="call00003", result=paid.text))
    turn.feed(CallStartedInput(call="call00001"))
    turn.wait("call00001", InterruptKind.RESULT)
    failed = GivenResult(text="closed", error=True)
    turn.feed(AnsweredInput(interrupt="result-call00001", decision=Decision.SETTLE, given=failed))
    turn.feed(CallSettledInput(call="call00001", status=CallStatus.ERROR, result="closed"))
    turn.reply(text="Done.")
    return turn


def ruled(begin: Begin) -> Script:
    """Rules allow, refuse, ask and report calls, and one is owed at the end."""
    rules: tuple[JsonObject, ...] = (
        {"name": "verify-first", "before": "refund", "need": "verify if result.ok", "same": ["id"]},
        {"name": "large", "never": "refund if args.amount > 60", "effect": "ask", "say": "A person decides."},
        {"name": "tested", "after": "write", "then": "test"},
        {"name": "noted", "never": "write", "effect": "report"},
    )
    turn = begin(StartedInput(prompt="Pay", rules=rules), steps=6)
    refund = ToolCall(name="refund", arguments={"id": 7, "amount": 70})
    turn.reply(refund)
    turn.feed(CallStartedInput(call="call00001"))
    turn.reply(ToolCall(name="verify", arguments={"id": 7}))
    turn.feed(CallStartedInput(call="call00002"))
    turn.feed(CallSettledInput(call="call00002", result="yes", structured={"ok": True}))
    turn.reply(refund, "write")
    turn.feed(CallStartedInput(call="call00004"))
    turn.feed(CallSettledInput(call="call00004"))
    turn.feed(CallStartedInput(call="call00003"))
    turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE))
    turn.settle()
    turn.reply("test")
    turn.settle()
    turn.reply(text="Paid.")
    return turn


def no_pause(begin: Begin) -> Script:
    """Nobody can be asked: what had begun has an unknown outcome, the rest is refused; reruns run out too."""
    turn = begin(max_pauses=0, max_retries=1)
    turn.reply("a", "b", "c")
    turn.wait("call00001")
    turn.feed(CallStartedInput(call="call00002"))
    turn.wait("call00002", InterruptKind.UNKNOWN_OUTCOME)
    turn.feed(CallStartedInput(call="call00003"))
    turn.feed(CallStartedInput(call="call00003"))
    turn.feed(CallStartedInput(call="call00003"))
    turn.feed(FailInput(error="RuntimeError: a hook broke", partial="par"))
    return turn


def children(begin: Begin) -> Script:
    """Leases of everything that can be leased; a child's interrupt; what it spent; one that gets nothing."""
    turn = begin(tool_calls=12, tokens=1000, cost=2.0)
    turn.reply("a", CHILD, CHILD, usage=SMALL)
    turn.settle_one("call00001")
    turn.feed(CallStartedInput(call="call00002", child="t:call00002"))
    turn.feed(CallWaitingInput(call="call00002", interrupt_kind=InterruptKind.DOOM_LOOP, forwarded="doom-1"))
    turn.feed(CallStartedInput(call="call00003", child="t:call00003"))
    turn.feed(CallSettledInput(call="call00003", result="done", spent=Spent(calls=3, tokens=900, cost=0.5)))
    turn.feed(AnsweredInput(interrupt="call00002/doom-1", decision=Decision.GO_ON))
    turn.feed(CallStartedInput(call="call00002", child="t:call00002"))
    turn.feed(CallSettledInput(call="call00002", result="done", spent=Spent(calls=4)))
    turn.reply(CHILD, CHILD, "b")
    turn.settle()
    turn.feed(AbortInput(partial="Hm"))
    return turn


def lost_children(begin: Begin) -> Script:
    """A lost usage counts as the whole lease, without a retry, an answer or a pause, for each limit that is on."""
    turn = begin(tool_calls=30, tokens=1000, cost=2.0, max_retries=0, max_pauses=1)
    turn.reply(CHILD, CHILD, CHILD, usage=SMALL)
    turn.feed(CallStartedInput(call="call00001", child="t:call00001"))
    turn.feed(CallStartedInput(call="call00001", child="t:call00001"))
    turn.feed(CallStartedInput(call="call00002", child="t:call00002"))
    turn.feed(CallWaitingInput(call="call00002", interrupt_kind=InterruptKind.UNKNOWN_OUTCOME))
    turn.feed(CallWaitingInput(call="call00003", interrupt_kind=InterruptKind.APPROVAL))
    turn.feed(AnsweredInput(interrupt="unknown-1", decision=Decision.UNKNOWN))
    turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE))
    turn.feed(CallStartedInput(call="call00003", child="t:call00003"))
    turn.feed(CallWaitingInput(call="call00003", interrupt_kind=InterruptKind.QUESTION, forwarded="question-1"))
    turn.feed(ConcludedInput(text="Lost."))
    return turn


def lost_without_limits(begin: Begin) -> Script:
    """A sub-agent of a turn without budgets is lent nothing that could be lost."""
    turn = begin(tool_calls=None, max_retries=0)
    turn.reply(CHILD, ToolCall(name="a", arguments={}, raw="{}"))
    turn.feed(CallStartedInput(call="call00001", child="t:call00001"))
    turn.feed(CallStartedInput(call="call00001", child="t:call00001"))
    turn.feed(AbortInput())
    return turn


def places_of_a_step(begin: Begin) -> Script:
    """If the step limit equals the rest of the budget, the refusals name the budget."""
    turn = begin(tool_calls=2, max_calls_per_step=2)
    turn.step("a", "b", "c")
    turn.feed(ConcludedInput(text="Spent."))
    return turn


def always(begin: Begin) -> Script:
    """An `always` stays valid after another one."""
    turn = begin(doom_threshold=2, doom_response="ask")
    turn.step("a")
    turn.step("a")
    turn.feed(AnsweredInput(interrupt="doom-1", decision=Decision.ALWAYS))
    turn.step("b")
    turn.step("b")
    turn.feed(AnsweredInput(interrupt="doom-2", decision=Decision.ALWAYS))
    turn.step("a")
    turn.step("a")
    turn.step("b", "a")
    turn.step("b", "a")
    turn.reply(text="Done.")
    return turn


def superseded_half_answered(begin: Begin) -> Script:
    """One call was allowed and waits for the other's answer, which never comes."""
    turn = begin()
    turn.reply("a", "b")
    turn.wait("call00001")
    turn.wait("call00002")
    turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE))
    turn.feed(AbortInput(reason=EndReason.SUPERSEDED))
    return turn


def late_text(begin: Begin) -> Script:
    """Time was up before the attempt that the deadline cut off."""
    turn = begin(steps=0, seconds=5.0)
    turn.clock = 5.5
    turn.feed(AttemptFailedInput(cause=Cause.OVERLOADED))
    turn.feed(ExpireInput())
    return turn


def too_deep(begin: Begin) -> Script:
    """A child of a child of a child has none."""
    turn = begin(StartedInput(prompt="x", depth=3, parent_turn="p", parent_call="call00001"), tool_calls=None)
    turn.step(CHILD)
    turn.reply(text="So be it.", finish=Finish.LENGTH)
    return turn


def synthesized(begin: Begin) -> Script:
    """The pipeline fails, gives nothing, then the answer."""
    turn = begin(StartedInput(prompt="x", synthesis=True), max_retries=1)
    turn.step(READ)
    turn.feed(AttemptFailedInput(cause=Cause.CRASH))
    turn.feed(AttemptFailedInput(cause=Cause.CRASH))
    turn.step(READ)
    turn.feed(SynthesizedInput())
    turn.step(SEARCH)
    turn.feed(SynthesizedInput(text="Summed up."))
    return turn


def text_only(begin: Begin) -> Script:
    """No step is allowed: calls are refused."""
    turn = begin(steps=0)
    turn.feed(AttemptFailedInput(cause=Cause.RATE_LIMITED))
    turn.reply(READ, text="Here you are.")
    return turn


def filtered(begin: Begin) -> Script:
    """The provider stops the reply."""
    turn = begin()
    turn.feed(ModelRepliedInput(text="I w", calls=(READ,), finish=Finish.CONTENT_FILTER, reasoning="hm", usage=SMALL))
    return turn


def failed(begin: Begin) -> Script:
    """A cause that will not pass."""
    turn = begin()
    turn.step(READ)
    turn.feed(AttemptFailedInput(cause=Cause.CONTEXT_OVERFLOW, message="400: too long", partial="", usage=SMALL))
    return turn


def aborted_at_the_cap(begin: Begin) -> Script:
    """An abort takes precedence over a limit, which is in `also_reached`."""
    turn = begin(steps=1, tool_calls=1)
    turn.step(READ)
    turn.feed(AbortInput())
    return turn


def aborted_while_asked(begin: Begin) -> Script:
    """An abort of a doom loop that waits for its answer."""
    turn = begin(doom_threshold=2, doom_response="ask")
    turn.step("a")
    turn.step("a")
    turn.feed(AbortInput())
    return turn


def shown(begin: Begin) -> Script:
    """A picture with the prompt, an attempt that is waited for, and a result with data and a picture."""
    picture: JsonObject = {"media_type": "image/png", "data": "iVBORw=="}
    turn = begin(StartedInput(prompt="What is this?", files=(picture,)))
    turn.feed(AttemptFailedInput(cause=Cause.RATE_LIMITED, message="429: slow down", wait=12.5))
    turn.reply("zoom")
    call = turn.ready[0]
    turn.feed(CallStartedInput(call=call))
    turn.feed(CallSettledInput(call=call, result="closer", structured={"zoom": [1, 2.5]}, files=(picture,)))
    turn.reply(text="A pixel.")
    return turn


def reviewed(begin: Begin) -> Script:
    """Calls are accepted; a reply is refused with its calls, then one without calls; then the answer is accepted."""
    turn = begin()
    turn.reply(READ, review=True)
    turn.feed(ReviewedInput(decisions=({"hook": "audit", "decision": "accept"},)))
    turn.settle()
    turn.clock = 1.5
    turn.reply(READ, SEARCH, NOT_JSON, text="Let me look.", usage=SMALL, review=True)
    turn.feed(ReviewedInput(refused=True, feedback="Read one file at a time.", decisions=({"hook": "audit"},)))
    turn.reply(text="Done.", review=True)
    turn.feed(AttemptFailedInput(cause=Cause.CRASH, message="the process died during this call"))
    turn.feed(ReviewedInput(refused=True, feedback="Say what you did."))
    turn.reply(text="I read a.py.", review=True)
    turn.feed(ReviewedInput(output={"files": ["a.py"], "n": 1}))
    return turn


def typed_answer(begin: Begin) -> Script:
    """Two typed answers in one reply: one is taken. Another call of the reply runs before the turn ends."""
    turn = begin(tool_calls=1)
    turn.reply(ANSWER, "save", ANSWER, "log", review=True)
    turn.feed(ReviewedInput(answer="call00003", output={"total": 12.5}))
    turn.settle(result="saved")
    return turn


def typed_answer_alone(begin: Begin) -> Script:
    """Nothing else runs, and a message comes too late."""
    turn = begin()
    turn.reply(ANSWER, review=True)
    turn.feed(ReviewedInput(answer="call00001", output=None, undelivered=("One more thing.",)))
    return turn


def invalid_output(begin: Begin) -> Script:
    """The second refusal has no retry left; the calls of the reply do not run."""
    turn = begin(output_retries=1)
    turn.reply(ANSWER, review=True)
    turn.feed(ReviewedInput(refused=True, feedback="total: a number is missing"))
    turn.reply("a", ANSWER, review=True)
    turn.feed(ReviewedInput(refused=True, feedback="total: a number is missing"))
    return turn


def refused_at_the_cap(begin: Begin) -> Script:
    """The refusal is allowed, and the step after it is not; the conclusion is text."""
    turn = begin(steps=1)
    turn.reply(text="Twelve.", review=True)
    turn.feed(ReviewedInput(refused=True, feedback="It is not JSON."))
    turn.feed(ConcludedInput(text="The total is twelve."))
    return turn


def reviewed_odd_endings(begin: Begin) -> Script:
    """A filtered reply is not reviewed, although it has a typed answer."""
    turn = begin()
    turn.reply(READ, review=True)
    turn.feed(ReviewedInput())
    turn.settle()
    turn.reply(ANSWER, "a", finish=Finish.CONTENT_FILTER, review=True)
    return turn


def reviewed_truncated(begin: Begin) -> Script:
    """The accepted text was cut off."""
    turn = begin()
    turn.reply(text="It is", finish=Finish.LENGTH, review=True)
    turn.feed(ReviewedInput())
    return turn


def review_failed(begin: Begin) -> Script:
    """The model of a guardrail cannot be reached, so nothing of the reply runs."""
    turn = begin(max_retries=1)
    turn.reply("a", review=True)
    turn.feed(AttemptFailedInput(cause=Cause.TIMEOUT, message="the guardrail's model", usage=SMALL))
    turn.feed(AttemptFailedInput(cause=Cause.TIMEOUT, message="the guardrail's model", usage=SMALL))
    return turn


def deadline_in_a_review(begin: Begin) -> Script:
    """Time is up while a reply is checked."""
    turn = begin(seconds=5.0)
    turn.reply("a", review=True)
    turn.clock = 5.5
    turn.feed(ExpireInput())
    turn.feed(ConcludedInput(text="Late."))
    return turn


def prepared(begin: Begin) -> Script:
    """The dynamic part of the requests: once a step, also after a failed attempt."""
    turn = begin()
    turn.feed(
        RequestPreparedInput(
            instructions="Today is Monday.",
            tools=("read_file",),
            settings={"temperature": 0.2},
            append=("Mind the tests.",),
            decisions=({"hook": "tune", "settings": {"temperature": 0.2}},),
        )
    )
    turn.feed(AttemptFailedInput(cause=Cause.OVERLOADED))
    turn.step(READ)
    turn.feed(RequestPreparedInput(tools=()))
    turn.reply(text="Done.")
    return turn


def prepared_text_only(begin: Begin) -> Script:
    """A turn without steps has instructions too."""
    turn = begin(steps=0)
    turn.feed(RequestPreparedInput(instructions="Be brief."))
    turn.reply(text="Hello.")
    return turn


def compacted(begin: Begin) -> Script:
    """Before a request that is too long, after one that the provider refused, and in vain."""
    turn = begin(max_compactions=3, max_retries=1)
    turn.step(READ, usage=SMALL)
    turn.feed(OversizedInput(tokens=90_000))
    turn.feed(CompactedInput(text="The user wants utils.py tidied.", kept=2, usage=SMALL))
    turn.step(SEARCH)
    turn.feed(AttemptFailedInput(cause=Cause.CONTEXT_OVERFLOW, message="400: too long"))
    turn.feed(CompactedInput(cleared=True, kept=1))
    turn.feed(OversizedInput(tokens=95_000))
    turn.feed(AttemptFailedInput(cause=Cause.OVERLOADED, message="529: busy", usage=SMALL))
    turn.feed(AttemptFailedInput(cause=Cause.BAD_REQUEST, message="400: no"))
    turn.reply(text="Done.")
    return turn


def compacted_to_the_last_token(begin: Begin) -> Script:
    """The summary spends the budget of tokens and of money."""
    turn = begin(max_compactions=1, tokens=100, cost=0.5)
    turn.step(READ, usage=SMALL)
    turn.feed(OversizedInput(tokens=90))
    turn.feed(CompactedInput(text="Utils.", kept=2, usage=Usage(input_tokens=60, cost=0.4)))
    turn.feed(ConcludedInput(text="Half of it is done."))
    return turn


def compacted_to_the_last_cent(begin: Begin) -> Script:
    """The summary spends the budget of money."""
    turn = begin(max_compactions=1, cost=0.5)
    turn.feed(OversizedInput(tokens=90))
    turn.feed(CompactedInput(text="Utils.", kept=1, usage=Usage(cost=0.5)))
    turn.feed(ConcludedInput(text="Nothing is done."))
    return turn


def deadline_in_a_compaction(begin: Begin) -> Script:
    """Time is up while the summary is made."""
    turn = begin(max_compactions=1, seconds=5.0)
    turn.feed(OversizedInput(tokens=90))
    turn.clock = 6.0
    turn.feed(ExpireInput(usage=SMALL))
    turn.feed(ConcludedInput(text="Late."))
    return turn


def aborted_in_a_compaction(begin: Begin) -> Script:
    """Somebody aborts the turn while the summary is made."""
    turn = begin(max_compactions=1)
    turn.feed(OversizedInput(tokens=90))
    turn.feed(AbortInput())
    return turn


def _trips(name: str) -> TrippedInput:
    return TrippedInput(guardrail=name, message="It names a customer.", metadata={"found": ["c1"], "score": 0.5})


def tripped_in_a_reply(begin: Begin) -> Script:
    """A guardrail on the input, beside the model call that it stops."""
    turn = begin()
    stop = {"partial": "Dear M", "usage": SMALL, "undelivered": ("Hurry.",)}
    turn.feed(replace(_trips("no_names"), **stop))
    return turn


def tripped_in_a_review(begin: Begin) -> Script:
    """A guardrail on the output: the calls of the reply do not run."""
    turn = begin()
    turn.reply(READ, UNKNOWN, review=True)
    turn.feed(_trips("no_names"))
    return turn


def tripped_in_tools(begin: Begin) -> Script:
    """A guardrail on a tool; what ran is kept, and what a sub-agent used is counted."""
    turn = begin(tool_calls=9)
    turn.reply("a", CHILD, "b")
    turn.settle_one("call00001", result="done")
    turn.feed(CallStartedInput(call="call00002", child="t:call00002"))
    turn.feed(replace(_trips("no_writes"), spent={"call00002": Spent(calls=2, tokens=90)}))
    return turn


def tripped_in_a_conclusion(begin: Begin) -> Script:
    """A guardrail withholds the conclusion, and the limit is in `also_reached`."""
    turn = begin(steps=1)
    turn.step(READ)
    turn.feed(_trips("no_names"))
    return turn


def tripped_in_a_text(begin: Begin) -> Script:
    """A guardrail on the only reply of a turn without steps."""
    turn = begin(steps=0)
    turn.feed(replace(_trips("no_names"), metadata={}, message=""))
    return turn


def returned_direct(begin: Begin) -> Script:
    """A result is the answer: a sibling still asks a person, and the synthesis is not asked."""
    turn = begin(StartedInput(prompt="x", synthesis=True))
    turn.reply("report", "mail", "log")
    turn.wait("call00002")
    turn.feed(CallStartedInput(call="call00001"))
    turn.feed(CallSettledInput(call="call00001", result="42", structured={"n": 42}, final=True))
    turn.settle_one("call00003")
    turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.REJECT))
    return turn


def not_returned(begin: Begin) -> Script:
    """A call that fails gives no answer, and the next reply is asked for."""
    turn = begin()
    turn.reply("report")
    turn.feed(CallStartedInput(call="call00001"))
    turn.feed(CallSettledInput(call="call00001", status=CallStatus.ERROR, result="no data", final=True))
    turn.reply(text="There is no data.")
    return turn


def deadline_after_the_answer(begin: Begin) -> Script:
    """The answer beats the deadline: the sibling is closed, and the turn is finished."""
    turn = begin(seconds=5.0)
    turn.reply("report", "log")
    turn.feed(CallStartedInput(call="call00001"))
    turn.feed(CallSettledInput(call="call00001", result="42", final=True))
    turn.feed(CallStartedInput(call="call00002"))
    turn.clock = 5.5
    turn.feed(ExpireInput())
    return turn


def aborted_after_the_answer(begin: Begin) -> Script:
    """An abort beats the answer."""
    turn = begin()
    turn.reply("report", "mail")
    turn.wait("call00002")
    turn.feed(CallStartedInput(call="call00001"))
    turn.feed(CallSettledInput(call="call00001", result="42", final=True))
    turn.feed(AbortInput())
    return turn


def changed_arguments(begin: Begin) -> Script:
    """Hooks change arguments, a person changes them again, and a tool asks for another try."""
    turn = begin()
    turn.reply(READ, ToolCall(name="mail", arguments={"to": "a"}), "lint")
    hooks: tuple[JsonObject, ...] = ({"hook": "fix", "decision": "change"},)
    turn.feed(CallStartedInput(call="call00001", arguments={"path": "b.py"}, decisions=hooks))
    turn.feed(CallSettledInput(call="call00001", result="[hidden]", decisions=({"hook": "hide", "was": "secret"},)))
    turn.feed(
        CallWaitingInput(
            call="call00002",
            interrupt_kind=InterruptKind.APPROVAL,
            question="Send it?",
            changed={"to": "a@b"},
            decisions=hooks,
        )
    )
    turn.feed(CallStartedInput(call="call00003"))
    turn.feed(CallSettledInput(call="call00003", status=CallStatus.ERROR, result="give a path", retry=True))
    turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE, arguments={"to": "c@d"}))
    turn.settle(result="sent")
    turn.reply(text="Sent.")
    return turn


def started_together(begin: Begin) -> Script:
    """The calls that may run start with their reply, and a limit comes near with the last of them."""
    turn = begin(tool_calls=5, steps=4)
    for text in ("One.", "Two."):
        turn.feed(ModelRepliedInput(calls=(READ, UNKNOWN, POLL), text=text, usage=SMALL, starts=True))
        for call in turn.machine.turn.runnable():
            turn.feed(CallSettledInput(call=call.id, result="nothing"))
    turn.reply(text="Done.", usage=SMALL)
    return turn


TURNS: Final[tuple[Callable[[Begin], Script], ...]] = (
    *(answered, step_cap, within, budget, tokens_and_cost, deadline_in_tools, deadline_in_a_reply, deadline_of_a_text),
    *(doom_stop, doom_ask, people, no_pause, children, too_deep, synthesized, text_only, filtered, failed),
    *(aborted_at_the_cap, aborted_while_asked, lost_children, lost_without_limits, places_of_a_step, always),
    *(superseded_half_answered, late_text, shown),
    *(reviewed, typed_answer, typed_answer_alone, invalid_output, refused_at_the_cap, reviewed_odd_endings),
    *(reviewed_truncated, review_failed, deadline_in_a_review, prepared, prepared_text_only, compacted),
    *(compacted_to_the_last_token, compacted_to_the_last_cent, deadline_in_a_compaction, aborted_in_a_compaction),
    *(tripped_in_a_reply, tripped_in_a_review, tripped_in_tools, tripped_in_a_conclusion, tripped_in_a_text),
    *(returned_direct, not_returned, deadline_after_the_answer, aborted_after_the_answer, changed_arguments),
    *(started_together, waits, ruled),
)


def lines(turn: Script) -> str:
    """The journal, a fact a line: its kind and its payload."""
    return "".join(f"{fact.kind} {fact.payload()}\n" for fact in turn.facts)


def test_journal_equals_the_golden_file(begin: Begin) -> None:
    journals = {play.__name__: lines(play(begin)) for play in TURNS}
    if os.environ.get("GOLDEN") == "write":
        for name, journal in journals.items():
            (GOLDEN / f"{name}.txt").write_text(journal, encoding="utf-8", newline="\n")
    for name, journal in journals.items():
        assert journal == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8"), name


def test_wrong_hash_is_reported_at_any_place(begin: Begin) -> None:
    """Also where the machine writes none."""
    for play in TURNS:
        facts = play(begin).facts
        for place, fact in enumerate(facts):
            forged = [*facts[:place], replace(fact, hash="00000000"), *facts[place + 1 :]]
            fault = replay(enumerate(forged, start=1)).fault
            assert fault is not None, play
            assert fault.seq == place + 1, play


def test_parsed_fact_equals_the_original_fact(begin: Begin) -> None:
    """Nobody looks at a fact when it is made. Here too a half surrogate pair is the only thing that is lost."""
    for fact in (fact for play in TURNS for fact in play(begin).facts):
        payload = fact.payload()
        back = parse_fact(fact.kind, payload)
        assert (back == fact) is (r"\ud83d" not in repr(fact))
        assert back.payload() == payload


def editable(value: object) -> Iterator[object]:
    """Yield each dict and list in a value that somebody could still change."""
    if type(value) in (dict, list):
        yield value
    if isinstance(value, Struct):
        value = [getattr(value, name) for name in value.__struct_fields__]
    if isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from editable(inner)


def test_facts_contain_no_editable_value(begin: Begin) -> None:
    """A driver may go on with the values that it fed. The journal was written from the fact."""
    for play in TURNS:
        assert [*editable(tuple(play(begin).facts))] == [], play


def test_golden_journal_folds_to_the_recorded_end() -> None:
    """Each fact is read back, and the state after it has the hash that it was written with, if it has one."""
    for file in GOLDEN.iterdir():
        pairs = [line.split(" ", 1) for line in file.read_text(encoding="utf-8").split("\n") if line]
        facts = [parse_fact(kind, payload, seq) for seq, (kind, payload) in enumerate(pairs, start=1)]
        for length, fact in enumerate(facts, start=1):
            machine = TurnMachine.resume(facts[:length])
            assert fact.hash in ("", machine.turn.digest()), f"{file.name}, fact {length}"
            assert machine.turn.state is fact.state, f"{file.name}, fact {length}"


def test_no_golden_journal_is_unused() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == {play.__name__ for play in TURNS}
