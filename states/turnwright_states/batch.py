"""The decision which calls of a reply run: places, leases and refusals, made once when the reply arrives.

The rules are docs/rules.md#budgets (places in call order), #concluding (no call runs on a text-only turn) and
#sub-agents (leases).
"""

from typing import Final

from msgspec.structs import replace

from . import facts as f
from .amounts import is_cost_spent
from .call import Call
from .doom import call_key
from .errors import InvalidCallError
from .inputs import (
    DECISIONS,
    AnsweredInput,
    CallQuestion,
    CallWaitingInput,
    Decision,
    InterruptKind,
    Spent,
    ToolCall,
    Usage,
)
from .limits import MAX_ANSWERS, MAX_DEPTH
from .payload import freeze
from .state import Stall
from .turn import Turn

NO_TOOLS: Final = "not executed: tools are disabled in this reply"
BUDGET_SPENT: Final = "not executed: the tool budget is spent"
NOT_WHOLE: Final = "not executed: the arguments are not one whole JSON object"
TOO_DEEP: Final = f"not executed: sub-agents may be nested {MAX_DEPTH} deep"
NO_LEASE: Final = "not executed: nothing is left of the budget to lend to a sub-agent"
UNKNOWN_OUTCOME: Final = "outcome unknown: it had started, and this turn may not pause to ask; verify before retrying"
NO_RERUN: Final = "outcome unknown: the process died while it ran, and no retry is left; verify before retrying"
OUTPUT_ACCEPTED: Final = "accepted"
OUTPUT_UNUSED: Final = "not used: another call of this reply gave the answer"
_STALLED: Final = {Stall.SAME_ERROR: "keeps getting the same error", Stall.NOTHING_NEW: "finds out nothing new"}
NO_PAUSE: Final = "not executed: this turn may not pause for a person any more"


def decide(turn: Turn, calls: tuple[ToolCall, ...], usage: Usage | None, *, allowed: bool) -> tuple[f.CallMade, ...]:
    """Return the calls of a reply with their ids, keys and leases, or with the reason of a refusal.

    `usage` is the reply's own, because leases are shares of the rest. `allowed` is false where tools are disabled, so
    that every call is refused. A typed answer never runs, so it needs no place. Raises `InvalidCallError` for one in a
    reply without a review.
    """
    counters, limits = turn.counters, turn.limits
    calls_left, most = counters.budget - counters.calls if counters.budgeted else None, limits.max_calls_per_step
    places = most if calls_left is None else min(calls_left, most)
    calls_made: list[f.CallMade] = []
    #: The indexes of the calls that run sub-agents.
    children: list[int] = []
    for place, call in enumerate(calls):
        name, arguments = call.name, call.arguments
        refusal, invalid = "", False
        if not allowed:
            refusal = NO_TOOLS
        elif call.problem or arguments is None:
            refusal, invalid = call.problem or NOT_WHOLE, True
        elif call.output:
            if not counters.review:
                raise InvalidCallError("ModelReplied", name, "a typed answer is accepted or refused in a review")
        elif places <= 0:
            is_spent = calls_left is not None and calls_left <= most
            refusal = BUDGET_SPENT if is_spent else f"not executed: at most {most} calls run in one step"
        elif call.delegates and turn.depth >= MAX_DEPTH:
            refusal = TOO_DEEP
        else:
            places -= 1
            if call.delegates:
                children.append(place)
        is_watched = allowed and not call.ignore_in_loop_detection and name not in turn.always_for
        calls_made.append(
            f.CallMade(
                # Nine letters and digits: the strictest shape that a provider asks of an id.
                id="call%05d" % (turn.calls_made + place + 1),  # noqa: UP031 (half the time of an f-string)
                name=name,
                arguments=freeze(arguments) if type(arguments) is dict else arguments,
                raw=call.raw if arguments is None else "",
                provider_id=call.provider_id,
                key=call_key(name, arguments, call.raw, call.loop_key) if is_watched else "",
                own_key=is_watched and call.loop_key is not None,
                refused=refusal,
                invalid=invalid,
                output=call.output and allowed,
                reaches=turn.named_tools(call.reaches) if call.reaches else (),
            )
        )
    return _lease_children(turn, calls_made, children, usage or Usage(), calls_left) if children else tuple(calls_made)


def _lease_children(
    turn: Turn, calls_made: list[f.CallMade], children: list[int], usage: Usage, calls_left: int | None
) -> tuple[f.CallMade, ...]:
    """Lease each of the k `children` floor(rest / k), where the rest is the budget without the batch's own places.

    `calls_left` is the rest of the tool-call budget before this batch; None without a budget.
    """
    limits, k = turn.limits, len(children)
    cost_left = limits.cost
    if cost_left is not None:
        is_spent = is_cost_spent(turn.cost + usage.cost, cost_left)
        cost_left = 0.0 if is_spent else cost_left - turn.cost - usage.cost
    own_count = sum(not call.refused and not call.output for call in calls_made)
    lease = f.Lease(
        calls=None if calls_left is None else (calls_left - own_count) // k,
        tokens=None if limits.tokens is None else max(limits.tokens - turn.tokens - usage.tokens, 0) // k,
        cost=None if cost_left is None else cost_left / k,
    )
    nothing_left = lease.calls == 0 or lease.tokens == 0 or lease.cost == 0
    for i in children:
        calls_made[i] = (
            replace(calls_made[i], refused=NO_LEASE) if nothing_left else replace(calls_made[i], lease=lease)
        )
    return tuple(calls_made)


def check_spent(event: str, call: Call, spending: Spent) -> None:
    """Refuse an impossible usage of a call's sub-agent, as the input named `event` reports it.

    Usage needs a lease and a call that has started, and at most the leased calls. Tokens and money are not checked:
    they are counted when a reply arrives, so the last reply and the conclusion may exceed the lease
    (docs/rules.md#budgets). Raises `InvalidCallError`.
    """
    lease = call.made.lease
    if lease is None or (lease.calls is not None and spending.calls > lease.calls):
        raise InvalidCallError(event, call.id, f"its sub-agent used {spending.calls} calls, and its lease is {lease}")
    if not call.counted:
        raise InvalidCallError(event, call.id, "its sub-agent used something, but the call never started")


def find_unaccounted_spending(call: Call) -> Spent | None:
    """Return the whole lease of a call, as the usage of a sub-agent that did not report its own.

    Only a rest that is known to be unused returns to the turn (docs/rules.md#sub-agents), because otherwise the turn
    and its sub-agents could run more calls than the budget. None for a call that never started or has no lease.
    """
    lease = call.made.lease
    if lease is None or not call.counted:
        return None
    return Spent(calls=lease.calls or 0, tokens=lease.tokens or 0, cost=lease.cost or 0.0)


def ask(turn: Turn, call: Call, event: CallWaitingInput) -> tuple[f.InterruptRecord, ...]:
    """Return the interrupts of a call that needs people, or a result from outside.

    Raises `InvalidCallError` for more than `MAX_ANSWERS` answers, and for two questions with one id.
    """
    questions, counts = event.questions, dict(turn.interrupts_asked)
    if sum([question.approvals for question in questions]) > MAX_ANSWERS:
        raise InvalidCallError("CallWaiting", call.id, f"it may wait for at most {MAX_ANSWERS} answers at once")
    if len({bool(question.forwarded) for question in questions}) > 1:
        raise InvalidCallError("CallWaiting", call.id, "it asks itself, and its sub-agent asks too")
    records = [
        f.InterruptRecord(
            id=_id_of(call, question, counts),
            kind=question.interrupt_kind,
            call=call.id,
            tool=(question.forwarded and question.tool) or call.name,
            question=question.question,
            choices=question.choices,
            grant=question.grant,
            arguments=freeze(question.arguments) if question.forwarded else None,
            expires_at=question.expires_at,
            path=question.path if question.forwarded else "",
            approvals=question.approvals,
            approved_by=question.approved_by,
            otherwise=question.otherwise,
            schema=None if question.schema is None else freeze(question.schema),
            restricted=question.restricted,
            rules=tuple([f.RuleVerdict(rule=rule, broken="ask") for rule in question.rules if question.forwarded]),
        )
        for question in questions
    ]
    if len({record.id for record in records}) < len(records):
        raise InvalidCallError("CallWaiting", call.id, "two of its questions have the same id")
    if event.kept is not None:
        records[0] = replace(records[0], kept=freeze(event.kept))
    return tuple(records)


def _id_of(call: Call, question: CallWaitingInput | CallQuestion, counts: dict[str, int]) -> str:
    """Return the id of a question, and count its kind in `counts`."""
    if question.forwarded:
        return f"{call.id}/{question.forwarded}"
    kind = question.interrupt_kind
    counts[kind] = counts.get(kind, 0) + 1
    # The id of a result is known before the call waits, so that a result that comes early has an address.
    return f"result-{call.id}" if kind is InterruptKind.RESULT else _numbered_id(kind, counts[kind])


def ask_about_loop(turn: Turn) -> f.InterruptRecord:
    """Return the interrupt of a doom loop."""
    kind, tools = InterruptKind.DOOM_LOOP, ", ".join(turn.rounds.tools)
    stall = turn.rounds.stalls.stall
    behavior = (
        "keeps asking for the same calls" if stall is None or turn.limits.stall_response != "loop" else _STALLED[stall]
    )
    question = f"The model {behavior} ({tools}). Go on?"
    return f.InterruptRecord(
        id=_numbered_id(kind, turn.interrupts_asked.get(kind, 0) + 1),
        kind=kind,
        tool=tools,
        question=question,
        choices=tuple(DECISIONS[kind]),
        restricted=turn.restricted,
    )


def _numbered_id(kind: InterruptKind, number: int) -> str:
    name = {InterruptKind.DOOM_LOOP: "doom", InterruptKind.UNKNOWN_OUTCOME: "unknown"}.get(kind, kind)
    return f"{name}-{number}"


def result_of(answer: AnsweredInput) -> str:
    """Return the result of a call that a person settled, for the model."""
    if answer.decision is Decision.UNKNOWN:
        return "outcome unknown: verify before retrying"
    return f"rejected by the person: {answer.text}" if answer.text else "rejected by the person"
