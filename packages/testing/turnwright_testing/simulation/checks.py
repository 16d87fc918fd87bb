"""Checks what a schedule leaves: the invariants of every turn, and the claims about several processes."""

from collections.abc import Iterator
from typing import Final

from turnwright._base.ids import root_of
from turnwright.tools import Tool
from turnwright_states import CallStatus, Decision, InterruptKind
from turnwright_states import facts as f
from turnwright_states.verdict import Check, Verdict
from turnwright_testing.behavior import Driven
from turnwright_testing.invariants import INVARIANTS, asks_once, stops_at_trips, within_model_calls

from .world import CLAIMS, KEEPS, MODEL_CALLS, World

#: A driver that is cut off may call the model once more, and no hook or guardrail is scripted in a simulation.
_LEFT_OUT: Final = (within_model_calls, asks_once, stops_at_trips)


def checks_of(world: World) -> list[Check]:
    """Return one check of each claim, over all turns of a world."""
    problems_by_claim: dict[str, list[str]] = {claim: list(world.violations.get(claim, ())) for claim in CLAIMS}
    known_claims: set[str] = {*CLAIMS}
    for turn in world.disk.turns_now():
        driven_turn = _make_driven(world, turn)
        for invariant in INVARIANTS:
            if invariant not in _LEFT_OUT:
                check = invariant(driven_turn)
                problems = problems_by_claim.setdefault(check.claim, [])
                if check.verdict is Verdict.VIOLATED:
                    problems.append(f"turn {turn}: {check.detail}")
                if check.verdict is not Verdict.INCONCLUSIVE:
                    known_claims.add(check.claim)
        problems_by_claim[MODEL_CALLS] += _too_many_calls(world, turn, driven_turn)
    problems_by_claim[KEEPS] += [*_lost_messages(world), *_lost_results(world)]
    return [_check(claim, problems, is_known=claim in known_claims) for claim, problems in problems_by_claim.items()]


def _check(claim: str, problems: list[str], *, is_known: bool) -> Check:
    if problems:
        return Check(claim, Verdict.VIOLATED, problems[0], witness=tuple(problems))
    return Check(claim, Verdict.HOLDS if is_known else Verdict.INCONCLUSIVE)


def _make_driven(world: World, turn: str) -> Driven:
    facts = list(enumerate(world.disk.facts_now(turn), start=1))
    first_fact = facts[0][1]
    is_root = root_of(turn) == turn
    prompt = first_fact.prompt if isinstance(first_fact, f.TurnStarted) else ""
    return Driven(
        facts=facts,
        requests=world.requests.get(prompt, []) if is_root else None,
        executions=[execution for execution in world.stage.executions if execution.turn == turn],
        tools=_list_offered(world) if is_root else None,
    )


def _list_offered(world: World) -> dict[str, Tool]:
    may_use = world.agent.may_use
    return {tool.name: tool for tool in world.tools if may_use(tool.name, delegates=tool.delegates)}


def _too_many_calls(world: World, turn: str, driven_turn: Driven) -> Iterator[str]:
    """Model calls stay within the formula, and one more for each driver that was cut off in the middle of one."""
    first_fact = driven_turn.facts[0][1]
    if driven_turn.requests is not None and isinstance(first_fact, f.TurnStarted):
        most, request_count = first_fact.limits.model_calls + world.disk.epoch_of(turn) - 1, len(driven_turn.requests)
        if request_count > most:
            yield f"turn {turn}: {request_count} model calls, of {most}"


def _lost_messages(world: World) -> Iterator[str]:
    """A message that was accepted is in the journal, or waits in the inbox of its ended turn."""
    for turn, text in world.messages:
        payloads = " ".join(fact.payload() for fact in world.disk.facts_now(turn))
        if f'"{text}"' not in payloads and text not in world.disk.inbox_of(turn):
            yield f"{text!r} to turn {turn} was accepted, and is neither in its journal nor in its inbox"


def _lost_results(world: World) -> Iterator[str]:
    """An accepted result was given to its call, unless the call ended otherwise: by itself, or with the turn."""
    for turn, call, result in world.results:
        facts = world.disk.facts_now(turn)
        waits = {
            interrupt.id
            for fact in facts
            if isinstance(fact, f.CallWaiting)
            for interrupt in fact.interrupts
            if interrupt.call == call and interrupt.kind in {InterruptKind.RESULT, InterruptKind.UNKNOWN_OUTCOME}
        }
        answers = [fact for fact in facts if isinstance(fact, f.Answered) and fact.interrupt in waits]
        given_results = [fact.given.text for fact in answers if fact.given is not None]
        status = next((fact.status for fact in facts if isinstance(fact, f.CallSettled) and fact.call == call), None)
        is_cut_off = status not in {CallStatus.OK, CallStatus.ERROR, None}
        is_cut_off = is_cut_off and all(answer.decision is not Decision.REJECT for answer in answers)
        if given_results != [result] and waits and not is_cut_off:
            yield f"{result!r} for {call} of turn {turn} was accepted, and the call was given {given_results}"
