"""Changes of a fork: another prompt, model, setting, limit or result than the original has."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypedDict, cast

from msgspec import structs
from pydantic import JsonValue, ValidationError

from turnwright.agent import Agent, needs_of
from turnwright.errors import ConfigError
from turnwright.model.model_settings import ModelSettings, checked_settings, parsed_settings
from turnwright_states import CallSettledInput, CallStatus, Input, Limits
from turnwright_states.event_inference import started_input
from turnwright_states.facts import CallSettled, Fact, TurnStarted
from turnwright_states.inputs import JsonObject
from turnwright_states.payload import freeze
from turnwright_states.rederive import rederive
from turnwright_states.replay import FactGroup

from .driving_status import by_command_line
from .inbox import writable
from .turn_journal import unsigned

if TYPE_CHECKING:
    from turnwright.rules import Rule, RuleSet


class ForkChanges(TypedDict, total=False):
    """The changes of a fork: each is as if the original had had it. `TurnStarted.forked_with` names them."""

    prompt: str
    """Another prompt. Copied replies stay as they are."""
    instructions: str
    """Other instructions of the agent, if the original's are a text."""
    model: str
    """Another model, by name, which the agent then names. Signatures of the original's model are left out."""
    model_settings: ModelSettings | Mapping[str, JsonValue]
    """The settings of the model calls, in place of the original's."""
    limits: Mapping[str, JsonValue]
    """Fields of `Limits` with other values, such as `{"steps": 20}`."""
    results: Mapping[str, str]
    """Other results of finished calls, by the id of the call. The model reads them as results of the tool."""
    rules: "Sequence[Rule | RuleSet]"
    """Other rules over the calls, in place of those of the agent and the engine. They begin without a past."""


_NAMES: Final = tuple(ForkChanges.__annotations__)
#: Those that the agent has.
_OF_AGENT: Final = ("instructions", "model")
#: The statuses of results that a tool gave.
_GIVEN: Final = (CallStatus.OK, CallStatus.ERROR)


def changed_facts(
    turn_start: TurnStarted, journal: Sequence[tuple[int, Fact]], groups: Sequence[FactGroup], changes: ForkChanges
) -> list[Fact]:
    """Return the facts of a fork with these changes. `turn_start` is its first fact without them.

    `journal` is the original, and `groups` are the inputs that it copies. Raises `ConfigError` for a change that is
    unknown or not possible, and if the turn would have taken another course before the last of them.
    """
    for name in changes:
        if name not in _NAMES:
            raise ConfigError(f"{name[:40]!r} cannot be changed in a fork: use one of {', '.join(_NAMES)}")
    copied_facts = [fact for _, fact in journal[: groups[-1].last]]
    results = _other_results(copied_facts, changes.get("results", {}))
    first = structs.replace(turn_start, **_fields(turn_start, changes))
    limits = _limits(turn_start.limits, changes.get("limits", {}))
    fields = ("prompt", "model", "model_settings", "rules")
    names = [name for name in fields if getattr(first, name) != getattr(turn_start, name)]
    if first.agent.get("instructions") != turn_start.agent.get("instructions"):
        names.append("instructions")
    names += [f"limits.{name}" for name, value in limits if value != getattr(turn_start.limits, name)]
    names += [f"results.{call}" for call in results]
    first = structs.replace(first, limits=limits, forked_with=tuple(names))
    facts = [first, *copied_facts[1:]]
    # Rules read the prompt.
    is_judged_anew = first.rules != turn_start.rules or (first.rules != () and first.prompt != turn_start.prompt)
    if limits != turn_start.limits or results or is_judged_anew:
        facts = _play(first, copied_facts, groups, results)
    if first.model != turn_start.model:
        facts = list(map(unsigned, facts))
    return facts


def _fields(turn_start: TurnStarted, changes: ForkChanges) -> dict[str, object]:
    """Return the changed fields of the first fact, but for its limits."""
    fields: dict[str, object] = {}
    if "prompt" in changes:
        fields["prompt"] = writable(changes["prompt"], "the prompt")
        if not changes["prompt"].strip():
            raise ConfigError("prompt: is blank: write one, or leave it out")
    if "model" in changes:
        fields["model"] = writable(changes["model"], "the model")
        if by_command_line(turn_start.metadata):
            fields["metadata"] = freeze({**turn_start.metadata, "model": changes["model"]})
    if "model_settings" in changes:
        settings = changes["model_settings"]
        settings = parsed_settings(settings, "model_settings") if isinstance(settings, Mapping) else settings
        new_settings = checked_settings(settings, "model_settings")
        fields["model_settings"] = freeze({} if new_settings is None else new_settings.to_json())
    if "rules" in changes:
        fields |= _rules(changes["rules"])
    agent: dict[str, JsonValue] = {name: cast("str", value) for name, value in changes.items() if name in _OF_AGENT}
    if agent:
        fields["agent"] = _agent(turn_start, agent)
    return fields


def _rules(rules: "Sequence[Rule | RuleSet]") -> dict[str, object]:
    from turnwright.rules import make_rule_sets  # noqa: PLC0415 (few forks have other rules)
    from turnwright_states.rules import InvalidRuleError, resolve_rules  # noqa: PLC0415 (as above)

    try:
        rule_fields = resolve_rules(make_rule_sets(rules, "rules"))
    except InvalidRuleError as error:
        raise ConfigError(f"rules: {error}") from None
    return {"rules": tuple(map(freeze, rule_fields)), "past": freeze({})}


def _agent(turn_start: TurnStarted, changes: Mapping[str, JsonValue]) -> JsonObject:
    """Return the changed agent of the first fact."""
    if "instructions" in changes and "instructions" in needs_of(turn_start.agent):
        raise ConfigError("instructions: a function of the agent makes them: change the function")
    new_fields = {**turn_start.agent, **changes}
    try:
        agent = Agent.from_json(new_fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if agent.template and isinstance(agent.instructions, str):
        from turnwright.agents.template import check_template  # noqa: PLC0415 (few agents are templates)

        check_template(agent.instructions, turn_start.metadata)
    return freeze(new_fields)


def _limits(limits: Limits, changes: Mapping[str, JsonValue]) -> Limits:
    try:
        return Limits.model_validate({**dict(limits), **changes}) if changes else limits
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"limits.{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _other_results(facts: Sequence[Fact], results: Mapping[str, str]) -> dict[str, str]:
    """Return the results that differ from those of the copied facts."""
    facts_by_call = {fact.call: fact for fact in facts if isinstance(fact, CallSettled) and fact.status in _GIVEN}
    for call, text in results.items():
        writable(text, f"the result of call {call}")
        if call not in facts_by_call:
            raise ConfigError(f"results: call {call[:40]!r} has no result of a tool in the first {len(facts)} facts")
    return {call: text for call, text in results.items() if text != facts_by_call[call].result}


def _play(
    first: TurnStarted, copied_facts: Sequence[Fact], groups: Sequence[FactGroup], results: Mapping[str, str]
) -> list[Fact]:
    last_group = rederive(copied_facts, groups, started_input(first), partial(_change_input, results))
    if not isinstance(last_group, FactGroup) and last_group[-1].state.outcome is not None:
        last_group = groups[-1]
    if isinstance(last_group, FactGroup):
        raise ConfigError(
            f"with these changes the turn would differ before fact {last_group.last}:"
            f" fork it at an earlier fact than {last_group.first}"
        )
    return last_group


def _change_input(results: Mapping[str, str], event: Input) -> Input:
    if not isinstance(event, CallSettledInput) or event.call not in results:
        return event
    return structs.replace(
        event, status=CallStatus.OK, result=results[event.call], structured=None, files=(), retry=False
    )
