"""`turnwright verify --agents`: what the rules of agents guarantee, and which of them cannot be held."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from turnwright.agent import Agent
from turnwright.agents.files import read_agents
from turnwright.cli import process
from turnwright.cli.agents import OfferedTools
from turnwright.driver.subagents import AgentTool, agent_tools
from turnwright.rules import RuleError, RuleSet, argument_names, make_rule_sets
from turnwright_proof.verify.rule_findings import RuleFinding, check_rules
from turnwright_proof.verify.rule_walk import RuleResult, walk_rules
from turnwright_states.rules import InvalidRuleError, RuleList
from turnwright_states.rules.arguments import check_arguments
from turnwright_states.verdict import Check, Verdict

if TYPE_CHECKING:
    from turnwright.config.config import Config

#: The claims that rules make, by the kind of the finding that refutes them.
_CLAIMS: Final = {
    "unknown": "each tool of a rule is there",
    "never runs": "each tool may run",
    "no way to an answer": "each path leads to an answer",
    "never acts": "each rule may act",
}


def check_agents(
    config: "Config", source: str, tools: str | None, engine_rules: RuleSet | None = None
) -> Iterator[tuple[str, list[Check]]]:
    """Yield each agent of this source that has rules, with the checks of its rules and the engine's.

    Raises `ConfigError`.
    """
    offered_tools = OfferedTools(config, tools)
    agents = read_agents(source, limits=config.limits())
    helpers = agent_tools(agents)
    for agent in agents:
        own_sets = make_rule_sets(agent.rules, f"agent {agent.name!r}")
        sets = own_sets if engine_rules is None else (engine_rules, *own_sets)
        if sets:
            yield agent.name, list(_checks(sets, _reached_tools(agent, offered_tools, helpers)))


def _reached_tools(
    agent: Agent, offered_tools: OfferedTools, helpers: Sequence[AgentTool]
) -> dict[str, Collection[str] | None]:
    """Return the tools that turns of an agent, and of its sub-agents, may call, with the names of their arguments."""
    agents, names = [agent], dict[str, Collection[str] | None]()
    for caller in agents:  # the list grows as sub-agents are found
        tools = offered_tools.tools_for(caller, helpers) or []
        names |= {tool.name: argument_names(tool.parameters) for tool in tools}
        called_agents = (tool.agent for tool in tools if isinstance(tool, AgentTool))
        agents += [called_agent for called_agent in called_agents if called_agent not in agents]
    return names


def _checks(sets: Sequence[RuleSet], arguments: Mapping[str, Collection[str] | None]) -> Iterator[Check]:
    """Yield what the rules guarantee, and their faults: each as a claim."""
    arguments = {**dict.fromkeys(_list_server_tools(sets)), **arguments}
    tools = list(arguments)
    for rules in sets:
        for fault in check_arguments(rules, arguments):
            words = f"{fault.why} ({_place_of(fault.rule, rules)})"
            if fault.is_error:
                yield Check("each argument of a rule is there", Verdict.VIOLATED, words)
            else:
                process.say(f"warning: {words}")
    places = {rule.name: rules for rules in sets for rule in rules.rules}
    # The sets have groups of their own, so they are checked as one list of resolved rules.
    all_rules = RuleList.of_sets(sets)
    for finding in _find(all_rules, tools):
        path = " -> ".join(step.partition(" if ")[0] for step in finding.path)
        if finding.kind == "holds":
            detail = f"shortest: {path}" if path else ""
            yield Check(f"{finding.words} ({finding.rule})", Verdict.HOLDS, detail)
        else:
            words = _describe(finding, places.get(finding.rule))
            yield Check(_CLAIMS[finding.kind], Verdict.VIOLATED, words, finding.path)
    for result in walk_rules(all_rules, tools):
        yield _check_of_walk(result, places.get(result.rule.name))


def _find(rules: RuleList, tools: Sequence[str]) -> list[RuleFinding]:
    """Return the findings about rules. Raises `RuleError` for too many states."""
    try:
        return check_rules(rules, tools)
    except InvalidRuleError as error:
        raise RuleError(error.why, rule=error.rule) from None


def _list_server_tools(sets: Sequence[RuleSet]) -> Iterator[str]:
    """Yield the tools of MCP servers that rules name. A server lists its tools when it runs, so each may be there."""
    for rules in sets:
        for words in rules.patterns:
            names = (part.tool for calls in words.values() for call in calls for part in call.parts)
            yield from (name for name in names if "__" in name and "*" not in name)


def _check_of_walk(result: RuleResult, rules: RuleSet | None) -> Check:
    """Return what the walk of the machine found about a rule. A rule that only reports is held by nothing."""
    path = " -> ".join(result.counterexample)
    if result.rule.effect == "report":
        claim = f"the machine only reports it: {result.sentence} ({result.rule.name})"
        return Check(claim, Verdict.HOLDS, f"shortest: {path}" if path else "never broken")
    claim = f"in the machine, {result.sentence} ({result.rule.name})"
    if result.counterexample:
        place = _place_of(result.rule.name, rules)
        words = f"the machine breaks {result.rule.name}: {path} ({place})"
        return Check(claim, Verdict.VIOLATED, words, result.counterexample)
    if not result.is_whole:
        return Check(claim, Verdict.INCONCLUSIVE, f"cut after {result.extent}")
    free = f"; true or false as they please: {'; '.join(result.free)}" if result.free else ""
    return Check(claim, Verdict.HOLDS, f"{result.extent}{free}")


def _describe(finding: RuleFinding, rules: RuleSet | None) -> str:
    """Return a fault in words, with the place of its rule."""
    place = _place_of(finding.rule, rules)
    if finding.kind == "no way to an answer":
        path = ", ".join(step.partition(" if ")[0] for step in finding.path) or "from the start"
        return f"{finding.kind}: {path}, then `{finding.rule}` needs {finding.words} ({place})"
    return f"{finding.kind}: {finding.words} ({place})"


def _place_of(rule: str, rules: RuleSet | None) -> str:
    line = None if rules is None else rules.lines.get(rule)
    return f"{rules.file}:{line}" if rules is not None and rules.file and line else rule


def lines_of_rules(checks: Sequence[Check]) -> Iterator[str]:
    """Return the checks as text, each in one line."""
    for rule_check in checks:
        if rule_check.verdict is Verdict.HOLDS:
            yield f"  holds   {rule_check.claim}" + (f"; {rule_check.detail}" if rule_check.detail else "")
        elif rule_check.verdict is Verdict.VIOLATED:
            yield f"  fault   {rule_check.detail}"
        else:
            yield f"  open    {rule_check.claim}; {rule_check.detail}"
