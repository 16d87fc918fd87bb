"""The invariants of hooks, guardrails, reviews and compactions; part of `invariants.INVARIANTS`."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeVar

from turnwright_states import Limits, Outcome
from turnwright_states import facts as f
from turnwright_states.verdict import Check, Verdict

from .behavior import Driven

F = TypeVar("F", bound=f.Fact)

#: Guardrails whose trip lets no call start any more. Calls beside one that trips may have started.
_STOP_CALLS: Final = ("input_guardrail", "output_guardrail")


def within_reviews(turn: Driven) -> Check:
    """Refused replies and compactions stay within their limits. Source: docs/rules.md#reviews, #compaction."""
    limits = limits_of(turn)
    refusals = sum(fact.retry for fact in facts_of(turn, f.Reviewed))
    compactions = sum(1 for _ in facts_of(turn, f.CompactionStarted))
    faults = (
        [f"{refusals} replies were refused, of {limits.output_retries}"] if refusals > limits.output_retries else []
    )
    faults += (
        [f"{compactions} compactions, of {limits.max_compactions}"] if compactions > limits.max_compactions else []
    )
    return make_check("refused replies <= output_retries, and compactions <= max_compactions", faults)


def obeys_verdicts(turn: Driven) -> Check:
    """A refused reply runs nothing, and nothing follows an accepted answer. Source: docs/rules.md#reviews."""
    return make_check("nothing of a refused reply runs, and no step follows an accepted answer", _find_disobeyed(turn))


def asks_once(turn: Driven) -> Check:
    """A hook is asked once: its decision is in the journal. Source: docs/rules.md#hooks."""
    claim = "no hook is asked again once its decision is in the journal"
    if turn.consulted is None:
        return unknown(claim, "the questions to hooks are not known")
    decision_seqs = _map_decisions(turn)
    faults: list[str] = []
    for consultation in turn.consulted:
        seq = decision_seqs.get((consultation.on, consultation.about))
        if seq is not None and consultation.facts >= seq:
            faults.append(
                f"{consultation.on} was asked about {consultation.about} after fact {consultation.facts}, "
                f"and fact {seq} has its decision"
            )
    return make_check(claim, faults)


def stops_at_trips(turn: Driven) -> Check:
    """Nothing runs after a guardrail has tripped. Source: docs/rules.md#guardrails.

    A verdict that its process did not live to write down is lost. The guardrail is asked again, unless it checked the
    result of a call that stays unknown.
    """
    claim = "a turn does not go on after a guardrail has tripped"
    if turn.consulted is None:
        return unknown(claim, "the verdicts of guardrails are not known")
    faults: list[str] = []
    for consultation in (consultation for consultation in turn.consulted if consultation.tripped):
        for seq, fact in turn.facts:
            if consultation.facts < seq <= (consultation.died or seq) and _goes_on(
                fact, consultation.on, consultation.about
            ):
                faults.append(
                    f"{consultation.on} tripped after fact {consultation.facts}, and fact {seq} is {fact.kind}"
                )
    return make_check(claim, faults)


def _goes_on(fact: f.Fact, on: str, about: int | str) -> bool:
    match fact:
        case f.StepStarted() | f.Paused():
            return True
        case f.CallStarted(call=call):
            return on in _STOP_CALLS or (on == "tool_input_guardrail" and call == about)
        case f.TurnEnded(outcome=outcome):
            return outcome in (Outcome.FINISHED, Outcome.SYNTHESIS_DONE)
        case _:
            return False


def _find_disobeyed(turn: Driven) -> Iterator[str]:
    refused_calls: set[str] = set()
    reply: f.ModelReplied | None = None
    answer_seq = 0
    for seq, fact in turn.facts:
        if isinstance(fact, f.ModelReplied):
            reply = fact
        elif isinstance(fact, f.Reviewed) and reply is not None:
            if fact.refused:
                refused_calls |= {call.id for call in reply.calls}
            elif fact.answer is not None:
                answer_seq = seq
        elif isinstance(fact, f.CallStarted) and fact.call in refused_calls:
            yield f"fact {seq}: {fact.call} starts, and its reply was refused"
        elif isinstance(fact, f.StepStarted | f.Stopping) and answer_seq:
            yield f"fact {seq} is {fact.kind}, and fact {answer_seq} accepted an answer"


def _map_decisions(turn: Driven) -> Mapping[tuple[str, int | str], int]:
    """Return the first fact with the decision of each hook, by the hook and its step or its call."""
    decision_seqs: dict[tuple[str, int | str], int] = {}
    step = 0
    for seq, fact in turn.facts:
        keys: list[tuple[str, int | str]] = []
        match fact:
            case f.StepStarted(number=number):
                step = number
            case f.RequestPrepared():
                keys = [("before_model", step), ("prepare_tools", step)]
            case f.Reviewed():
                keys = [("after_model", step), ("validator", step)]
            case f.CallStarted(call=call) | f.CallWaiting(call=call):
                keys = [("before_tool", call)]
            case f.CallSettled(call=call):
                keys = [("before_tool", call), ("after_tool", call)]
            case _:
                pass
        for key in keys:
            decision_seqs.setdefault(key, seq)
    return decision_seqs


def limits_of(turn: Driven) -> Limits:
    """Return the limits of the turn."""
    return next((fact.limits for fact in facts_of(turn, f.TurnStarted)), Limits())


def facts_of(turn: Driven, kind: type[F]) -> Iterator[F]:
    """Return the facts of a kind."""
    return (fact for _, fact in turn.facts if isinstance(fact, kind))


def make_check(claim: str, faults: Iterable[str]) -> Check:
    """Return the check of a claim: it holds without faults."""
    all_faults = tuple(faults)
    if not all_faults:
        return Check(claim, Verdict.HOLDS)
    return Check(claim, Verdict.VIOLATED, all_faults[0], witness=all_faults)


def unknown(claim: str, why: str) -> Check:
    """Return the check of a claim that nothing is known about."""
    return Check(claim, Verdict.INCONCLUSIVE, why)
