"""The status of a turn in words, from its facts: its activity, why it stopped, and what to do next.

The command line, the inspector, AG-UI and `TurnResult` take their words from here. `turnwright_states.REASONS` has the
meanings of the endings. Every text is computed from the turn's counters, so that no turn ends silently if the model
fails while it concludes (docs/rules.md#concluding).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from turnwright._base.words import count, cut_clean
from turnwright_states import MAX_STEPS, REASONS, EndReason, Limits, State, Turn
from turnwright_states.amounts import format_number
from turnwright_states.facts import Fact, rule_decisions
from turnwright_states.state import Stall
from turnwright_states.turn import fold
from turnwright_states.verdict import RuleDecision

if TYPE_CHECKING:
    from turnwright_states.rules import Rule, RuleState

#: The activity of a turn in each state. A state that passes at once has no entry.
_ACTIVITIES: Final = {
    State.STREAM: "Waiting for the model",
    State.COMPACT: "Compacting the conversation",
    State.REVIEW: "Checking the reply",
    State.TOOL_EXEC: "Running tools",
    State.CONCLUDE: "Waiting for the conclusion",
    State.TEXT_ONLY: "Waiting for the model",
    State.PAUSED: "Paused",
}
_BETWEEN: Final = "Between two steps"


class LimitWords(NamedTuple):
    """A limit in words: its name, what it counts, and the decimals of its figures in notices."""

    name: str
    counted: str
    decimals: int


#: The limits that stop a turn, by their names in `Turn.use`.
LIMITS: Final = {
    "steps": LimitWords("step limit", "steps", 0),
    "tool_calls": LimitWords("tool-call limit", "tool calls", 0),
    "tokens": LimitWords("token limit", "tokens", 0),
    "cost": LimitWords("cost limit", "cost", 6),
    "seconds": LimitWords("time limit", "seconds", 1),
}
#: The reasons of endings at these limits, with the names of the limits.
LIMIT_REASONS: Final = {reason: meaning.limit for reason, meaning in REASONS.items() if meaning.limit in LIMITS}
_REASONS: Final = {limit: reason for reason, limit in LIMIT_REASONS.items()}

#: What happened, for users, where the meaning of the reason is for developers.
_APP_FAILED: Final = {EndReason.ENGINE_ERROR: "Something went wrong in the app"}
_STALLED: Final = {Stall.SAME_ERROR: "got the same error again and again", Stall.NOTHING_NEW: "found out nothing new"}
#: Limits on the names of tools that the model wrote: characters of each, and how many.
_SHOWN_NAME: Final = 100
_SHOWN_NAMES: Final = 10
_MOST_COUNTED: Final = 1e300


def describe_work(steps: int, tool_calls: int, figures: Sequence[str]) -> str:
    """Return what a turn did: "2 steps (1 tool call, 283 tokens, 2.9 s)". `figures` are its tokens and its time."""
    calls = [count(tool_calls, "tool call")] if tool_calls else []
    return f"{count(steps, 'step')} ({', '.join([*calls, *figures])})"


def describe_activity(state: State) -> str:
    """Return what a turn in this state does: "Waiting for the model"."""
    return _ACTIVITIES.get(state, _BETWEEN)


def describe_lost_driver(state: State, *, crashed: bool) -> str:
    """Return how a turn lost its driver, which crashed or released it: "Crashed while running tools"."""
    activity = describe_activity(state)
    when = f"{activity[0].lower()}{activity[1:]}"
    return f"{'Crashed' if crashed else 'Released'} {when if activity == _BETWEEN else f'while {when}'}"


def describe_pause(answers: int) -> str:
    """Return what a paused turn waits for: so many answers, or else a driver."""
    return (
        f"Paused: the turn waits for {count(answers, 'answer')}" if answers else "Paused: answered, and not resumed yet"
    )


def name_limit(reason: EndReason) -> str:
    """Return the limit that stops a turn for this reason: "the step limit". Any other reason is given in words."""
    limit = LIMIT_REASONS.get(reason)
    return str(reason).replace("_", " ") if limit is None else f"the {LIMITS[limit].name}"


def describe_nearest_limit(limit: str, *, is_reached: bool = False) -> str:
    """Return the sentence about `TurnResult.next_limit`. With `is_reached` a limit has stopped the turn."""
    return f"The nearest {'other ' if is_reached else ''}limit is {limit}."


def describe_ending(reason: EndReason, sentinel: str = "") -> str:
    """Return why a turn ended: its sentinel without the next step for users, or else the meaning of the reason."""
    meaning = REASONS[reason]
    return sentinel.removesuffix(f" {meaning.for_users}") if sentinel else meaning.means


def find_nearest_limit(turn: Turn, reached_limits: Collection[EndReason | None] = ()) -> tuple[str, float]:
    """Return the limit that would have stopped the turn next, in words, and the used share of it.

    `reached_limits` are the limits that stopped it; these and limits of 0 are left out. Returns an empty text and 0 if
    no other limit is set.
    """
    shares = [
        (_float(amount) / most, name, amount, most)
        for name, amount, most in turn.use()
        if most and _REASONS[name] not in reached_limits
    ]
    if not shares:
        return "", 0.0
    share, name, amount, most = max(shares, key=lambda entry: entry[0])
    return f"the {LIMITS[name].name} ({_format_use(name, amount, most)})", share


def _format_use(name: str, amount: float, most: float) -> str:
    """Return the used part of a limit, named and counted as in `Turn.use`: `4,800 of 5,000`, `12.5 of 60 s`."""
    amount, most = _float(amount), _float(most)
    if name == "cost":
        return f"{format_number(amount)} of {format_number(most)}"
    return f"{amount:,.1f} of {most:,.15g} s" if name == "seconds" else f"{amount:,.0f} of {most:,.0f}"


def _float(figure: float) -> float:
    """Convert the figure to a `float`. In a changed journal it may be too large for one."""
    return float(max(min(figure, _MOST_COUNTED), -_MOST_COUNTED))


def limit_reached(turn: Turn, reason: EndReason) -> str:
    """Say why the turn stopped, with figures and without settings: "Stopped at the step limit (5 of 5)"."""
    if reason in LIMIT_REASONS:
        return f"Stopped at {name_limit(reason)} ({_figures(turn, reason)})"
    if reason is EndReason.DOOM_LOOP:
        stall = turn.rounds.stalls.stall if turn.limits.stall_response == "loop" else None
        cause = "repeated the same tool calls" if stall is None else _STALLED[stall]
        tools = f": {list_names(turn.rounds.tools)}" if turn.rounds.tools else ""
        return f"Stopped because the model {cause}{tools}"
    if reason is EndReason.NO_CALL_RAN:
        steps = turn.counters.idle
        return f"Stopped because no tool call could run in {steps} step{'s in a row' if steps > 1 else ''}"
    if reason is EndReason.TEXT_ONLY:
        why = _no_tools(turn)
        return f"{why[:1].upper()}{why[1:]}, so no tool could run"
    return REASONS[reason].means.removesuffix(".")


def list_names(names: Sequence[str], counts: Mapping[str, int] | None = None) -> str:
    """List the names of tools that the model wrote, which may be many and long, perhaps with a count of each."""
    shown_names = [
        cut_clean(name, _SHOWN_NAME) + (f" ({counts[name]})" if counts else "") for name in names[:_SHOWN_NAMES]
    ]
    more_words = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(shown_names) + more_words


def _figures(turn: Turn, reason: EndReason) -> str:
    c, limits = turn.counters, turn.limits
    match reason:
        case EndReason.STEP_CAP:
            # With `concluding="within"` the concluding call is the last step of the cap, which is the number that
            # people know.
            return f"{limits.cap} of {limits.cap}"
        case EndReason.BUDGET:
            return f"{c.calls} of {limits.tool_calls} calls"
        case EndReason.TOKENS:
            return f"{turn.usage.tokens} of {limits.tokens}"
        case EndReason.COST:
            return f"{turn.cost:.4f} of {limits.cost:.4f}"
        case _:
            return f"{turn.seconds_used:.1f} of {limits.seconds} s"


def _no_tools(turn: Turn) -> str:
    """Return why a text-only turn may run no tool: each limit that forbids it."""
    limits = turn.limits
    steps = f"the step limit is {limits.cap}" + (", and the last step answers in text" if limits.cap else "")
    why = [steps] * (limits.allowance == 0) + ["the tool-call limit is 0"] * (limits.tool_calls == 0)
    return " and ".join(why)


def advice(turn: Turn, reason: EndReason, overrides: Mapping[str, object], *, is_child: bool) -> str:
    """Return what a developer can change so that the next turn is not stopped, naming the limit that binds.

    `overrides` are the limits that the turn's agent sets. A turn of a sub-agent (`is_child`) has leased its limits.
    """
    limits = turn.limits
    if reason is EndReason.STEP_CAP:
        return _step_advice(limits, overrides)
    if reason is EndReason.TEXT_ONLY:
        steps = "`steps`" if _steps_bind(limits) else "`ceiling` in the engine's limits"
        settings = [steps] * (limits.allowance == 0) + ["`tool_calls`"] * (limits.tool_calls == 0)
        return f"Raise {' and '.join(settings)} to allow tools."
    if reason is EndReason.NO_CALL_RAN:
        repair = "Read the results of the last calls: each says why the call did not run. Repair that"
        return f"{repair}, or raise `idle_steps` in the agent or in the engine's limits (now {limits.idle_steps})."
    if reason not in LIMIT_REASONS:
        return REASONS[reason].next
    field = LIMIT_REASONS[reason]
    most = getattr(limits, field)
    if is_child and overrides.get(field) != most:
        # The journal keeps the limit that applied, and not which of the two it came from.
        return f"Raise `{field}` in the engine's limits or in the turn that called this sub-agent (now {most:,})."
    where = "the agent's budget" if field in overrides else "the agent's budget or in the engine's limits"
    return f"Raise `{field}` in {where} (now {most:,})."


def _step_advice(limits: Limits, overrides: Mapping[str, object]) -> str:
    if _steps_bind(limits):
        setting = "the agent's `steps`" if "steps" in overrides else "`steps` in the agent or in the engine's limits"
        return f"Raise {setting} (now {limits.steps})."
    if limits.ceiling < MAX_STEPS:
        return f"Raise `ceiling` in the engine's limits (now {limits.ceiling}): it applies before `steps`."
    return f"{limits.ceiling} steps is the highest ceiling: continue in a new turn."


def _steps_bind(limits: Limits) -> bool:
    """Whether `steps`, and not `ceiling`, gives the step limit."""
    return limits.steps is not None and limits.steps < limits.ceiling


def sentinel_text(
    turn: Turn,
    reason: EndReason,
    *,
    refused_tools: Sequence[str] = (),
    guardrail: str = "",
) -> str:
    """Return the line for the user: why the turn was stopped, and that they can continue. It names no setting.

    `guardrail` is the message of the guardrail that ended the turn, which is written for people. An error is not: it
    may name hosts, files and variables (docs/security.md#what-a-browser-is-sent).
    """
    when = "all the same" if reason is EndReason.TEXT_ONLY else "while concluding"
    note = f" Calls asked for {when} were refused: {list_names(refused_tools)}." if refused_tools else ""
    why = f" {guardrail.rstrip('.')}." if guardrail else ""
    ending = _APP_FAILED.get(reason) or limit_reached(turn, reason)
    return f"{ending}.{why}{note} {REASONS[reason].for_users}".rstrip()


#: The state of a rule in words, by its form: while it remembers calls, and while it remembers none.
_RULE_STATES: Final = {
    ("before", "need"): ("satisfied by", "not satisfied yet"),
    ("after", "never"): ("in force since", "not in force yet"),
    ("never",): ("always in force", "always in force"),
    ("at_most", "of"): ("counted", "nothing counted yet"),
    ("after", "then"): ("owed since", "nothing is owed"),
    ("not_both",): ("in force since", "not in force yet"),
}


#: What a rule did, before the calls that it did it to.
_DECIDED: Final = {"ask": "asked about", "end": "ended the turn at"}


class RuleStatus(NamedTuple):
    """The status of a rule in a turn: its state in words, the calls that the words name, and its decisions so far."""

    rule: "Rule"
    state: str
    by: tuple[str, ...]
    is_owed: bool
    is_inherited: bool
    decisions: tuple[RuleDecision, ...]

    @property
    def broken(self) -> tuple[RuleDecision, ...]:
        """The decisions that went against a call or an answer."""
        return tuple(decision for decision in self.decisions if decision.is_broken)

    def __str__(self) -> str:
        state = f"{self.state} {', '.join(self.by)}" if self.by else self.state
        calls: dict[str, list[str]] = {}
        for decision in self.decisions:
            words = _DECIDED.get(decision.effect, decision.participle)
            calls.setdefault(words, []).append(decision.call or "the answer")
        decision_words = [f"; {words} {list_names(list(dict.fromkeys(names)))}" for words, names in calls.items()]
        return f"{self.rule.name}: {state}{''.join(decision_words)}"


def read_rules(facts: Iterable[Fact]) -> tuple[RuleStatus, ...]:
    """Return the status of each rule of a turn after these facts, in the order of the rules; none without rules."""
    facts = list(facts)
    history = fold(facts).rules
    if history is None:
        return ()
    decisions: dict[str, list[RuleDecision]] = {}
    for fact in facts:
        for decision in rule_decisions(fact):
            decisions.setdefault(decision.rule, []).append(decision)
    return tuple(
        RuleStatus(
            state.rule,
            *_describe_rule(state),
            is_owed=state.is_owed,
            is_inherited=state.is_inherited,
            decisions=tuple(decisions.get(state.rule.name, ())),
        )
        for state in history.states()
    )


def _describe_rule(state: "RuleState") -> tuple[str, tuple[str, ...]]:
    """Return the state of a rule in words, and the calls that they name."""
    if state.gap:
        return state.gap, ()
    if not state.remembered and state.is_owed:
        return "owed", ()
    remembers, remembers_none = _RULE_STATES[state.rule.form]
    return (remembers, state.remembered) if state.remembered else (remembers_none, ())
