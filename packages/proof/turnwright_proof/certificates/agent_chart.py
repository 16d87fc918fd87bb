"""The chart as it is for one agent: the rows that its turns can take, and the tools at each row."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from turnwright_proof.draw.agent_picture import agent_picture, some_names
from turnwright_proof.draw.model import Picture
from turnwright_proof.verify import Abilities, AgentRows, rows_of
from turnwright_states import Limits, State, Trigger
from turnwright_states.chart import ROWS, Row
from turnwright_states.rules import ANSWER, Rule, RuleList

from .certificate import Certificate, CertifiedBound, CertifiedSubAgent
from .certified_code import CertifiedCode, CertifiedTool

#: Nothing is known of the code of such an agent, so that it may have everything.
_UNKNOWN: Final = CertifiedCode(tools=None, hooks=(), guardrails=(), typed=True)
NO_RULES: Final = RuleList([])


class AgentChart(NamedTuple):
    """The chart of one agent: its name, its limits, the rows and endings of its turns, their picture, and its rules."""

    name: str
    limits: Limits
    rows: AgentRows
    picture: Picture
    rules: RuleList = NO_RULES

    @property
    def states(self) -> frozenset[State]:
        """The states that its turns can enter."""
        return frozenset(node.state for node in self.picture.nodes)


def agent_chart(certificate: Certificate, rules: RuleList = NO_RULES, *, synthesis: bool = False) -> AgentChart:
    """Return the chart of an agent, by walking small turns of its kind (`turnwright_proof.verify.rows_of`).

    `rules` are the agent's. `synthesis` says that the app makes answers from the results of tools.
    """
    team = certificate.sub_agents
    code = certificate.code or _UNKNOWN
    limits = limits_of(certificate.bounds)
    abilities = _under(_abilities(code, () if team is None else team.agents, synthesis=synthesis), rules)
    rows = rows_of(limits, abilities)
    picture = agent_picture(rows.rows, rows.ends, limits, _beside(code, rules))
    return AgentChart(certificate.agent, limits, rows, picture, rules)


def limits_of(bounds: Iterable[CertifiedBound]) -> Limits:
    """Return the limits that the settings of these bounds are."""
    return Limits.model_validate({setting.field: setting.value for bound in bounds for setting in bound.settings})


def _abilities(code: CertifiedCode, sub_agents: Sequence[CertifiedSubAgent], *, synthesis: bool) -> Abilities:
    tools = code.tools
    return Abilities(
        tools=tools is None or any(not tool.delegates for tool in tools),
        delegates=bool(sub_agents),
        asks=code.may_ask or any(map(_may_ask, sub_agents)),
        direct=tools is None or any(tool.returns_direct for tool in tools),
        typed=code.typed,
        reviews=code.reviews,
        refuses=code.may_refuse,
        trips=bool(code.guardrails),
        synthesis=synthesis,
    )


def _under(abilities: Abilities, rules: RuleList) -> Abilities:
    """Return the abilities of turns under rules, which refuse answers, ask people and end turns."""
    effects = {rule.effect for rule in rules.rules}
    refuses = any(rule.effect != "report" for rule in _answer_rules(rules))
    return abilities._replace(
        asks=abilities.asks or "ask" in effects,
        reviews="sometimes" if refuses and abilities.reviews == "never" else abilities.reviews,
        refuses=abilities.refuses or refuses,
        trips=abilities.trips or refuses or "end" in effects,
    )


def _answer_rules(rules: RuleList) -> list[Rule]:
    """Return the rules that judge answers."""
    pairs = zip(rules.rules, rules.patterns, strict=True)
    return [
        rule for rule, words in pairs if "then" in words or any(call.names(ANSWER) for call in words.get("before", ()))
    ]


def _may_ask(sub_agent: CertifiedSubAgent) -> bool:
    """Return whether a sub-agent may pause its caller: by a tool, or because of a doom loop."""
    limits = limits_of(sub_agent.bounds)
    loops = limits.doom_response == "ask" and limits.shortest_loop is not None
    return loops or (sub_agent.code or _UNKNOWN).may_ask


def _beside(code: CertifiedCode, rules: RuleList) -> dict[int, str]:
    """Return the tools, hooks, guardrails and rules that act at a row, by its number."""
    places = ((number, _at(row, code), _rules_at(row, rules)) for number, row in enumerate(ROWS, start=1))
    return {number: ", ".join(filter(None, words)) for number, *words in places if any(words)}


def _rules_at(row: Row, rules: RuleList) -> str:
    """Return the rules that judge the calls or the answers at a row, or that end the turn."""
    answers = _answer_rules(rules)
    match row.source, row.trigger, row.dest:
        case _, Trigger.REPLIED | Trigger.REVIEWED, State.TOOL_EXEC:
            acting = [rule for rule in rules.rules if rule not in answers or ANSWER not in rule.calls("before")]
            acting = [rule for rule in acting if "then" not in rule.form]
        case State.TOOL_EXEC, Trigger.SETTLED, State.PAUSED:
            acting = [rule for rule in rules.rules if rule.effect == "ask"]
        case _, Trigger.TRIPPED, _:
            acting = [rule for rule in rules.rules if rule.effect == "end" or rule in answers]
        case _, Trigger.REPLIED, State.REVIEW:
            acting = answers
        case _:
            acting = []
    return f"under {some_names([rule.name for rule in acting])}" if acting else ""


def _at(row: Row, code: CertifiedCode) -> str:
    tools = code.tools
    match row.source, row.trigger, row.dest:
        case _, Trigger.REPLIED | Trigger.REVIEWED, State.TOOL_EXEC:
            return _list_tools(tools, writes=True)
        case State.TOOL_EXEC, Trigger.SETTLED, State.PAUSED:
            return _list_tools(tools, writes=False)
        case State.TOOL_EXEC, Trigger.SETTLED, State.FINISHED:
            direct = [tool.tool for tool in tools or () if tool.returns_direct]
            return f"by {some_names(direct)}" if direct else ""
        case _, Trigger.TRIPPED, _ if code.guardrails:
            return f"by {some_names([guardrail.name for guardrail in code.guardrails])}"
        case _, Trigger.REPLIED, State.REVIEW:
            checks = [hook.name for hook in code.hooks if "after_model" in hook.on] + ["the output type"] * code.typed
            checks += [guardrail.name for guardrail in code.guardrails if guardrail.checks in ("input", "output")]
            return f"by {some_names(checks)}" if checks else ""
        case _:
            return ""


def _list_tools(tools: tuple[CertifiedTool, ...] | None, *, writes: bool) -> str:
    """Return the tools that write and delegate, or those that pause."""
    if tools is None:
        return "(some tools are unknown)"
    groups = {
        "writes": [tool.tool for tool in tools if writes and tool.read_only is False],
        "may write": [tool.tool for tool in tools if writes and tool.read_only is None and not tool.delegates],
        "delegates to": [tool.tool for tool in tools if writes and tool.delegates],
        "asks by": [tool.tool for tool in tools if not writes and tool.asks == "always"],
        "may ask by": [tool.tool for tool in tools if not writes and tool.asks == "perhaps"],
    }
    return ", ".join(f"{label} {some_names(names)}" for label, names in groups.items() if names)
