"""The rules of a turn: those of its engine and its agent, those of its caller, and their state before the turn."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

from msgspec.structs import replace

from turnwright.agent import Agent
from turnwright.context import JsonObject
from turnwright.errors import ConfigError, UnreadableTurnError
from turnwright.journal.message_history import EarlierJournals
from turnwright.journal.turn_journal import first_fact
from turnwright.rules import RuleError, RuleSet, argument_names, make_rule_sets
from turnwright.store import Store
from turnwright.transcript.transcript import reading
from turnwright_states import facts as f
from turnwright_states.rules import ANSWER, USER, InvalidRuleError, resolve_rules
from turnwright_states.rules.pattern import CallPattern, names_tool
from turnwright_states.turn import fold

from .dependencies import Dependencies, get_or_make

_LOG = logging.getLogger(__name__)
#: The effects by which a rule holds a call up.
_HOLDS: Final = ("refuse", "ask", "end")
Journal = Sequence[tuple[int, f.Fact]]


def rules_for(agent: Agent, setup: Dependencies, client_tools: Collection[str]) -> tuple[JsonObject, ...]:
    """Return the rules of a turn of this agent as its journal keeps them: the engine's, then the agent's.

    `client_tools` are the tools of the turn alone. Raises `RuleError` for an unknown tool or argument, a tool that
    never runs, and two rules of one name, also of a sub-agent and its caller. A glob that names no tool, and an
    argument that some tools lack, are logged. Without `client_tools` the result is cached for each agent.
    """
    if client_tools:
        return _rules_for(agent, setup, client_tools)
    return get_or_make(setup.rules_by_agent, agent, partial(_rules_for, agent, setup, ()))


def _rules_for(agent: Agent, setup: Dependencies, client_tools: Collection[str]) -> tuple[JsonObject, ...]:
    agent_rules = _check_rules(agent, setup, client_tools)
    for sub_agent in setup.sub_agents_of(agent):
        if sub_agent.rules:
            try:
                own_rules = _check_rules(sub_agent, setup, ())
            except RuleError:
                raise
            except ConfigError:  # a call of this sub-agent reports it
                continue
            inherit_rules(agent_rules, own_rules)
    return agent_rules


def _check_rules(agent: Agent, setup: Dependencies, client_tools: Collection[str]) -> tuple[JsonObject, ...]:
    """Check the rules of an agent, and of its engine, against the tools. Returns them as a journal keeps them."""
    agents_by_tool = setup.reached_by(agent) | dict.fromkeys(client_tools, agent)
    own_sets = make_rule_sets(agent.rules, f"agent {agent.name!r}")
    tools: dict[str, Collection[str] | None] = dict.fromkeys(client_tools)
    tools |= {name: argument_names(tool.parameters) for name, tool in setup.tools.items()}
    for rules in (*setup.rules, *own_sets):
        for warning in rules.check_tools(tools, setup.hosted_tools(agent)):
            _LOG.warning("agent %r: %s", agent.name, warning)
    # A sub-agent begins with its caller's state of the engine's rules, so a need may be there already.
    is_called = any(getattr(tool, "agent", None) is agent for tool in setup.tools.values() if tool.delegates)
    for rules in own_sets if is_called else (*setup.rules, *own_sets):
        _check_needs(rules, agent, agents_by_tool)
    return _resolve((*setup.rules, *own_sets))


def _resolve(sets: Iterable[RuleSet]) -> tuple[JsonObject, ...]:
    try:
        return tuple(cast("JsonObject", words) for words in resolve_rules(sets))
    except InvalidRuleError as error:
        raise RuleError(error.why, rule=error.rule) from None


def _check_needs(rules: RuleSet, agent: Agent, agents_by_tool: Mapping[str, Agent]) -> None:
    """Refuse a rule that lets no call start, or no answer be given, because the agent has no tool that it needs.

    A tool that the rule itself holds back does not count. An earlier turn of a session may have had the tool of a
    `need`.
    """
    for rule, patterns in zip(rules.rules, rules.patterns, strict=True):
        is_owed = "then" in patterns
        if rule.effect not in _HOLDS or not (is_owed or ("need" in patterns and rule.scope == "turn")):
            continue
        (pattern,), (needed_pattern,) = (patterns[word] for word in rule.form)
        needed_tools = [tool for tool in agents_by_tool if needed_pattern.names(tool)]
        if needed_tools and rule.effect == "ask":
            continue  # a person may allow the first call
        is_held = all(pattern.covers(CallPattern((tool,), groups=None)) for tool in needed_tools)
        if needed_pattern.names(USER) or not is_held:
            continue
        for part in pattern.parts:
            tool = next((tool for tool in agents_by_tool if names_tool(part.tool, tool)), None)
            if tool is not None or part.tool in (ANSWER, USER):
                answer = f"no answer is possible{f' after {tool or part}' if is_owed else ''}"
                never = answer if is_owed or tool is None else f"{tool}: never runs"
                name = needed_pattern.parts[0].tool
                why = f"a call of {rule.form[0]} itself" if needed_tools else f"not a tool of {agent.name}"
                raise rules.error(f"{never}: {name} is {why}", rule.name)


def inherit_rules(of_caller: Sequence[JsonObject], own_rules: Sequence[JsonObject]) -> tuple[JsonObject, ...]:
    """Return the rules of a sub-agent: those that its caller hands down, then its own.

    A rule that both have is the caller's. Raises `RuleError` for two different rules of one name.
    """
    rules = {str(rule["name"]): dict(rule) | {"inherited": True} for rule in of_caller if rule.get("sub_agents", True)}
    for rule in own_rules:
        known_rule = rules.setdefault(str(rule["name"]), dict(rule))
        if known_rule is not rule and {**known_rule, "inherited": True} != {**rule, "inherited": True}:
            raise RuleError("a sub-agent and its caller have two rules of this name", rule=str(rule["name"]))
    return tuple(rules.values())


async def read_past(
    store: Store, session: str, rules: Sequence[JsonObject], earlier: EarlierJournals
) -> Mapping[str, Any]:
    """Return the state of a session's rules before its next turn (docs/rules.md#rules-over-calls).

    The last turn has it if it had the same rules. Otherwise all stored turns are read with the new rules, and what is
    missing of them is noted. `earlier` are journals that were read already.
    """
    kept_rules = [rule for rule in rules if rule.get("scope") == "session"]
    if not kept_rules:
        return {}
    past: Mapping[str, Any] = {}
    rows = await store.turns(session=session, live=False, limit=1)
    if not rows:
        return past
    last = None if rows[0].fault else await _read(store, rows[0].id, earlier)
    if last is not None and [rule for rule in last[0].rules if rule.get("scope") == "session"] == kept_rules:
        return _past_after(rows[0].id, last[1])
    is_whole = True
    for row in reversed(await store.turns(session=session, live=False)):
        journal = None if row.fault else await _read(store, row.id, earlier)
        if journal is None:
            is_whole = False
            continue
        turn_start, facts = journal
        is_whole = is_whole and bool(past or not turn_start.past) and not _delegates(facts)
        begin = replace(turn_start, rules=tuple(kept_rules), past=past, depth=0)
        past = _past_after(row.id, [begin, *map(_without_report, facts[1:])])
    return past if is_whole else {"order": 0, "rules": {}, **past, "incomplete": True}


async def _read(store: Store, turn_id: str, earlier: EarlierJournals) -> tuple[f.TurnStarted, list[f.Fact]] | None:
    """Return the beginning of a turn and its facts; None if it cannot be read."""
    try:
        journal = earlier.get(turn_id) or await store.facts(turn_id)
        return first_fact(turn_id, journal), [fact for _, fact in journal]
    except UnreadableTurnError:
        return None


def _past_after(turn_id: str, facts: Sequence[f.Fact]) -> Mapping[str, Any]:
    with reading(turn_id):
        rules = fold(facts).rules
    return {} if rules is None else rules.save_session(turn_id)


def _delegates(facts: Iterable[f.Fact]) -> bool:
    return any(call.lease is not None for fact in facts if isinstance(fact, f.ModelReplied) for call in fact.calls)


def _without_report(fact: f.Fact) -> f.Fact:
    """Return a fact without the state in which a sub-agent left other rules."""
    if isinstance(fact, f.CallSettled) and fact.spent is not None and fact.spent.rules is not None:
        return replace(fact, spent=replace(fact.spent, rules={}))
    return fact
