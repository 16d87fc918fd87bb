"""The invariants of every turn, for any model, tools, people and store.

Each invariant is a function of a `Driven` that returns one `Check`. Where it is not known what it looks at, it is
inconclusive. They recompute from the journal and from what was sent, and ask the engine nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from turnwright.agent import OUTPUT_TOOL
from turnwright.errors import PicklableError
from turnwright.message import Message, ToolCallPart, ToolResultPart
from turnwright.tools import RESULT_LIMIT, Tool
from turnwright.tools.batch import can_be_repeated
from turnwright.transcript.pairing import UnpairedError, check_pairing
from turnwright.transcript.transcript import Transcript
from turnwright_states import MAX_STEPS, REASONS_OF, Decision, EndReason, Limits, Outcome, Turn
from turnwright_states import facts as f
from turnwright_states.replay import replay
from turnwright_states.verdict import Check, Verdict

from .behavior import Driven, Execution

F = TypeVar("F", bound=f.Fact)

Invariant = Callable[[Driven], Check]

#: Bytes of the notice that a result was cut.
_NOTICE: Final = 100
#: The answer with which a person has an interrupted call begin again.
_GOES_ON: Final = (Decision.RERUN, Decision.REPLY)
#: The end of the error of a guardrail without a verdict.
_UNDECIDED: Final = " could not decide: "
#: Facts after which no call is open: every call has its result in what was said so far.
_AT_REST: Final = (f.StepFinished, f.Stopping, f.Concluded, f.TurnEnded)
#: Guardrails whose trip lets no call start any more. Calls beside one that trips may have started.
_STOP_CALLS: Final = ("input_guardrail", "output_guardrail")


class InvariantViolatedError(PicklableError, AssertionError):
    """An invariant is violated. `checks` are the violated ones; the message has one per line, with its witness."""

    def __init__(self, checks: tuple[Check, ...]) -> None:
        super().__init__("\n".join(f"violated: {check.claim}: {check.detail}" for check in checks))
        self.checks = checks


def check(turn: Driven) -> list[Check]:
    """Every invariant of a turn, in the order of `INVARIANTS`."""
    return [invariant(turn) for invariant in INVARIANTS]


def select_violated(checks: Iterable[Check]) -> tuple[Check, ...]:
    """Return the violated ones of these checks."""
    return tuple(check for check in checks if check.verdict is Verdict.VIOLATED)


def assert_invariants(turns: Iterable[Driven]) -> None:
    """Raise `InvariantViolatedError` unless every invariant of every turn holds. An unknown is not a violation."""
    violations = select_violated(result for turn in turns for result in check(turn))
    if violations:
        raise InvariantViolatedError(violations)


def raises_nothing(turn: Driven) -> Check:
    """The end of a turn is a value, never an exception. Source: docs/rules.md#outcomes."""
    return make_check("the engine raises nothing", [turn.raised] if turn.raised else [])


def ends(turn: Driven) -> Check:
    """Every turn ends, once no turn waits for a person any more."""
    claim = "the turn ends"
    if turn.raised:
        return Check(claim, Verdict.INCONCLUSIVE, "it was left, for the engine raised")
    last = turn.facts[-1][1] if turn.facts else None
    has_ended = isinstance(last, f.TurnEnded)
    ending = turn.gave_up or f"the last fact is {last.kind if last else 'missing'}"
    return make_check(claim, [] if has_ended and not turn.gave_up else [ending])


def ends_once(turn: Driven) -> Check:
    """One ending, the last fact, with an outcome, its reason and its state. Source: docs/rules.md#outcomes."""
    return make_check("at most one ending: the last fact, whose reason fits its outcome", _endings(turn))


def fails_for_a_cause(turn: Driven) -> Check:
    """No turn ends as `engine_error`: that is a bug, in the engine, a tool, or a hook.

    A guardrail whose own model fails has no verdict, and is not a bug.
    """
    errors = (fact.error for fact in facts_of(turn, f.TurnEnded) if fact.reason is EndReason.ENGINE_ERROR)
    faults = [error or "it says nothing" for error in errors if _UNDECIDED not in error]
    return make_check("no turn fails by a bug of the engine, a tool or a hook", faults)


def within_steps(turn: Driven) -> Check:
    """Steps are counted one by one, up to the allowance, which is at most 200. Source: docs/rules.md#steps, #zero."""
    limits = limits_of(turn)
    numbers = [fact.number for fact in facts_of(turn, f.StepStarted)]
    faults = [] if numbers == list(range(1, len(numbers) + 1)) else [f"steps are numbered {numbers}"]
    most = min(limits.allowance, limits.cap, MAX_STEPS)
    faults += [f"{len(numbers)} steps started, of {most}"] if len(numbers) > most else []
    return make_check("steps <= min(steps, ceiling, 200), counted one by one", faults)


def within_calls(turn: Driven) -> Check:
    """The started calls of the turn and of each step stay within their budgets. Source: docs/rules.md#budgets."""
    limits, whole, of_step = limits_of(turn), set[str](), set[str]()
    faults: list[str] = []
    for seq, fact in turn.facts:
        if isinstance(fact, f.StepStarted):
            of_step = set()
        elif isinstance(fact, f.CallStarted):
            whole.add(fact.call)
            of_step.add(fact.call)
            if limits.call_limit is not None and len(whole) > limits.call_limit:
                faults.append(f"fact {seq}: call {len(whole)} of {limits.call_limit} starts")
            if len(of_step) > limits.max_calls_per_step:
                faults.append(f"fact {seq}: call {len(of_step)} of {limits.max_calls_per_step} of its step starts")
    return make_check("calls started <= tool_calls, and <= max_calls_per_step in each step", faults)


def within_model_calls(turn: Driven) -> Check:
    """Model calls, with retries and the conclusion, stay within the formula. Source: docs/rules.md#model-calls."""
    claim = "model calls <= (allowance + 1) x (1 + max_retries) + 2 x max_compactions"
    if turn.requests is None:
        return unknown(claim, "the requests are not known")
    most, request_count = limits_of(turn).model_calls, len(turn.requests)
    return make_check(claim, [f"{request_count} model calls, of {most}"] if request_count > most else [])


def within_pauses(turn: Driven) -> Check:
    """Pauses, each for any number of interrupts. Source: docs/rules.md#approvals."""
    most, pause_count = limits_of(turn).max_pauses, sum(1 for _ in facts_of(turn, f.Paused))
    return make_check("pauses <= max_pauses", [f"{pause_count} pauses, of {most}"] if pause_count > most else [])


def within_budgets(turn: Driven) -> Check:
    """No step starts without tokens, money or time; one reply may exceed them. Source: docs/rules.md#budgets."""
    state, faults = Turn(), list[str]()
    for seq, fact in turn.facts:
        if isinstance(fact, f.StepStarted):
            c = state.counters
            is_spent = {"tokens": c.tokens_spent, "cost": c.cost_spent, "seconds": c.time_spent}
            faults += [
                f"fact {seq}: step {fact.number} starts, and the {name} are spent"
                for name in is_spent
                if is_spent[name]
            ]
        if not _applied(state, fact):
            break
    return make_check("no step starts once the tokens, the cost or the time is spent", faults)


def pairs_its_calls(turn: Driven) -> Check:
    """Each call has one result right after it, once no call is open. Source: docs/rules.md#pairing."""
    transcript, faults = Transcript(), list[str]()
    for seq, fact in turn.facts:
        if not _applied(transcript.turn, fact):
            break
        transcript.add(seq, fact)
        if isinstance(fact, _AT_REST):
            faults += _find_unpaired(f"after fact {seq} ({fact.kind})", transcript.messages)
    parts = [part for message in transcript.messages for part in message.parts]
    call_counts = Counter(part.id for part in parts if isinstance(part, ToolCallPart))
    results = Counter(part.call for part in parts if isinstance(part, ToolResultPart))
    faults += [
        f"call {call} occurs in the transcript {count} times"
        for call, count in (call_counts | results).items()
        if count > 1
    ]
    return make_check("every call has exactly one result, wherever the turn pauses", faults)


def settles_once(turn: Driven) -> Check:
    """Each call that a reply made gets one result in the journal, and nothing else gets one."""
    call_counts = Counter(call.id for fact in facts_of(turn, f.ModelReplied) for call in fact.calls)
    settle_counts = Counter(fact.call for fact in facts_of(turn, f.CallSettled))
    over = any(isinstance(fact, f.TurnEnded) for _, fact in turn.facts)
    faults = [f"call {call} was made twice" for call, count in call_counts.items() if count > 1]
    faults += [f"call {call} has a result, and was never made" for call in settle_counts if call not in call_counts]
    faults += [f"call {call} has {count} results" for call, count in settle_counts.items() if count > 1]
    faults += [
        f"call {call} has no result, and the turn is over" for call in call_counts if over and call not in settle_counts
    ]
    return make_check("every call is settled exactly once in the journal", faults)


def sends_sound_requests(turn: Driven) -> Check:
    """No request is sent that providers reject. Source: docs/rules.md#pairing, #concluding, #dynamic-requests."""
    claim = "every request is paired, ends with no assistant message, and has the tools of its step"
    if turn.requests is None:
        return unknown(claim, "the requests are not known")
    faults: list[str] = []
    tool_names = list(turn.tools or ())
    prepared_tools = [fact.tools for fact in facts_of(turn, f.RequestPrepared) if fact.tools is not None]
    allowed_offers = [tool_names, *([name for name in tool_names if name in tools] for tools in prepared_tools)]
    offers_output = {any(spec.name == OUTPUT_TOOL for spec in request.tools) for request in turn.requests}
    if len(offers_output) > 1:
        faults.append("some requests offer the tool of the typed answer, and some do not")
    for number, request in enumerate(turn.requests, start=1):
        where = f"request {number}"
        faults += _find_unpaired(where, request.messages)
        if not request.messages or request.messages[-1].role == "assistant":
            faults.append(f"{where} ends with an assistant message")
        request_tools = [spec.name for spec in request.tools if spec.name != OUTPUT_TOOL]
        if turn.tools is not None and request_tools not in allowed_offers:
            faults.append(f"{where} offers the tools {request_tools}, not {' or '.join(map(str, allowed_offers))}")
    return make_check(claim, faults)


def shows_short_results(turn: Driven) -> Check:
    """A model receives at most 64 KiB of one result, and a note about the cut. Source: docs/rules.md#tool-results."""
    sizes = {fact.call: len(fact.result.encode(errors="replace")) for fact in facts_of(turn, f.CallSettled)}
    faults = [f"the result of {call} has {size} bytes" for call, size in sizes.items() if size > RESULT_LIMIT + _NOTICE]
    return make_check("no result is longer than 64 KiB and its notice", faults)


def folds(turn: Driven) -> Check:
    """Every prefix of the journal folds to the state whose hash its last fact has. Source: docs/rules.md#journal."""
    state, faults = Turn(), list[str]()
    for number, (seq, fact) in enumerate(turn.facts, start=1):
        if seq != number:
            faults.append(f"fact {number} has the place {seq}")
        if not _applied(state, fact):
            faults.append(f"fact {seq} ({fact.kind}) names something that no fact before it made")
            break
        if fact.hash not in ("", state.digest()):
            faults.append(
                f"fact {seq} ({fact.kind}) has the hash {fact.hash}, and its prefix folds to {state.digest()}"
            )
            break
    return make_check("every prefix of the journal folds to the state that was recorded", faults)


def follows(turn: Driven) -> Check:
    """Every fact follows from those before, by the chart that ships. Source: docs/rules.md#journal."""
    return replay(turn.facts).check


def journals_before_it_runs(turn: Driven) -> Check:
    """A tool's work begins only when its start is in the journal. Source: docs/rules.md#recovery."""
    claim = "no tool runs before its start is in the journal"
    if turn.executions is None:
        return unknown(claim, "what ran is not known")
    started_attempts = {(fact.call, fact.attempt) for fact in facts_of(turn, f.CallStarted)}
    faults = [
        f"{execution.tool} ran as {execution.call}, attempt {execution.attempt}, and the journal knows of no such start"
        for execution in _list_recorded(turn)
        if (execution.call, execution.attempt) not in started_attempts
    ]
    return make_check(claim, faults)


def runs_once(turn: Driven) -> Check:
    """No attempt runs twice; another one needs an idempotent tool or a person. Source: docs/rules.md#recovery."""
    claim = "no call runs again, unless its tool is idempotent or a person said so"
    if turn.executions is None or turn.tools is None:
        return unknown(claim, "what ran is not known")
    reruns = Counter(_reruns(turn))
    faults: list[str] = []
    for (call, attempt), count in Counter(
        (execution.call, execution.attempt) for execution in _list_recorded(turn)
    ).items():
        faults += [f"attempt {attempt} of {call} ran {count} times"] if count > 1 else []
    for (call, name), count in Counter((execution.call, execution.tool) for execution in _list_recorded(turn)).items():
        if count > 1 + reruns[call] and not turn.tools[name].idempotent:
            faults.append(f"{name} is not idempotent, and {call} ran {count} times")
    return make_check(claim, faults)


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


INVARIANTS: Final[tuple[Invariant, ...]] = (
    raises_nothing,
    ends,
    ends_once,
    fails_for_a_cause,
    within_steps,
    within_calls,
    within_model_calls,
    within_pauses,
    within_budgets,
    pairs_its_calls,
    settles_once,
    sends_sound_requests,
    shows_short_results,
    folds,
    follows,
    journals_before_it_runs,
    runs_once,
    within_reviews,
    obeys_verdicts,
    asks_once,
    stops_at_trips,
)


def _endings(turn: Driven) -> Iterator[str]:
    for seq, fact in turn.facts:
        if not isinstance(fact, f.TurnEnded):
            continue
        if seq != turn.facts[-1][0]:
            yield f"fact {seq} halts the turn, and {len(turn.facts) - seq} facts follow"
        if fact.reason not in REASONS_OF[fact.outcome]:
            yield f"fact {seq}: the outcome {fact.outcome} has the reason {fact.reason}"
        if fact.state.outcome is not fact.outcome:
            yield f"fact {seq}: the outcome is {fact.outcome}, and the state {fact.state}"


def may_be_repeated(first_fact: f.Fact, tool: str, tools: Mapping[str, Tool]) -> bool:
    """Whether a turn that began so may lose a call of this tool, so that no fact names it."""
    repeatable = isinstance(first_fact, f.TurnStarted) and first_fact.agent.get("repeatable_steps") is True
    return repeatable and tool in tools and can_be_repeated([tools[tool]])


def _list_recorded(turn: Driven) -> list[Execution]:
    """Return the executions that the journal must have: not those of steps that a crash may have lost."""
    executions, tools = turn.executions or (), turn.tools or {}
    if not turn.facts:
        return list(executions)
    first_fact = turn.facts[0][1]
    return [execution for execution in executions if not may_be_repeated(first_fact, execution.tool, tools)]


def _reruns(turn: Driven) -> Iterator[str]:
    """Return the calls that a person allowed to run again, or answered during their work, once for each time."""
    open_calls: dict[str, str] = {}
    started_calls: set[str] = set()
    for _, fact in turn.facts:
        if isinstance(fact, f.CallStarted):
            started_calls.add(fact.call)
        elif isinstance(fact, f.CallWaiting) and fact.call in started_calls:
            open_calls |= {interrupt.id: fact.call for interrupt in fact.interrupts}
            started_calls.discard(fact.call)
        elif isinstance(fact, f.Answered) and fact.decision in _GOES_ON and fact.interrupt in open_calls:
            yield open_calls[fact.interrupt]


def _applied(turn: Turn, fact: f.Fact) -> bool:
    """Whether the fact could be applied; not if it names an unknown call or interrupt."""
    try:
        turn.apply(fact)
    except KeyError:
        return False
    return True


def _find_unpaired(where: str, messages: Sequence[Message]) -> list[str]:
    try:
        check_pairing(messages)
    except UnpairedError as error:
        return [f"{where}: {error}"]
    return []


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
