"""The effect of a change of agents on their bounds, for the person who reviews the change."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from pydantic import JsonValue

from turnwright_proof.draw.table import markdown_table
from turnwright_states import State

from .agent_chart import AgentChart
from .agent_page import plain_markdown
from .certificate import Certificate
from .certified_code import CertifiedCode
from .rule_diff import RuleChange, diff_rules
from .tree_bounds import TreeBounds

#: The names of bounds as a person says them; others keep theirs.
_NAMES: Final = {"cap": "steps", "model calls": "model calls at most", "rounds that repeat": "rounds of a doom loop"}
#: The settings that are not numbers.
_TEXTS: Final = ("concluding", "doom_compare", "doom_response", "stall_response")
#: The states that some agents enter and others do not.
_DOES: Final = {
    State.PAUSED: "pause",
    State.COMPACT: "compact the conversation",
    State.TEXT_ONLY: "only answer in text",
}

#: A bound, None if it is off, or a text.
Value = float | str | None
Kind = Literal["changed", "added", "removed"]
#: An agent of a file: its certificate and its chart.
Known = tuple[Certificate, AgentChart]


class Change(NamedTuple):
    """One change: its subject, the values before and after, and whether the agent may do more (None: unclear).

    A change without values is a sentence: "may now pause".
    """

    what: str
    values: tuple[Value, Value] | None = None
    wider: bool | None = None

    @property
    def shown(self) -> tuple[str, str]:
        """The values before and after, in words."""
        return ("", "") if self.values is None else (_show(self.values[0]), _show(self.values[1]))

    def __str__(self) -> str:
        return self.what if self.values is None else f"{self.what} {' -> '.join(self.shown)}"

    def to_json(self) -> dict[str, JsonValue]:
        """Return the change as JSON values, with null for a bound that is off."""
        values: dict[str, JsonValue] = (
            {} if self.values is None else dict(zip(("old", "new"), self.values, strict=True))
        )
        return {"what": self.what, **values, "wider": self.wider}


class AgentDiff(NamedTuple):
    """The changes of one agent."""

    agent: str
    kind: Kind
    changes: tuple[Change, ...]

    def __str__(self) -> str:
        new = {"changed": "", "added": "new: ", "removed": "removed"}[self.kind]
        return f"{self.agent}: {new}{'; '.join(map(str, self.changes))}"

    def to_json(self) -> dict[str, JsonValue]:
        """Return the changes as JSON values."""
        changes: list[JsonValue] = [change.to_json() for change in self.changes]
        return {"agent": self.agent, "kind": self.kind, "changes": changes, "words": str(self)}


def agent_diffs(old: Mapping[str, Known], new: Mapping[str, Known]) -> list[AgentDiff]:
    """Return the changes of each agent whose bounds, tools or abilities changed, the removed ones last."""
    diffs = [
        AgentDiff(name, "changed", tuple(_changes(old[name], certificate)))
        if name in old
        else AgentDiff(name, "added", tuple(_of_new(certificate)))
        for name, certificate in new.items()
    ]
    removed_agents = [AgentDiff(name, "removed", ()) for name in old if name not in new]
    return [diff for diff in diffs if diff.changes or diff.kind == "added"] + removed_agents


def to_markdown(diffs: Sequence[AgentDiff]) -> str:
    """Return the changes for a pull request: a table with a line for each."""
    if not diffs:
        return "No bound of an agent changed.\n"
    rows: list[tuple[str, ...]] = []
    for diff in diffs:
        agent = plain_markdown(diff.agent)
        kind = {"changed": "", "added": "new agent", "removed": "removed"}[diff.kind]
        rows += [(agent, kind, "", "")] if kind else []
        changes = ((plain_markdown(f"{change.what}{_ARROWS[change.wider]}"), *change.shown) for change in diff.changes)
        rows += [(agent, *change) for change in changes]
    return markdown_table(("agent", "change", "before", "after"), rows) + "\n\n▲ may do more, ▼ may do less\n"


#: A bound that is not repeated where it changes as another one does.
_FOLLOWS: Final = {"steps that may call tools": "steps", "tokens of a reply": "tokens"}
#: The bounds of a new agent.
_FIRST: Final = ("steps", "model calls at most", "tool calls", "model calls of the whole tree")
_ENDS: Final = "end as "
#: Whether an agent may do more after a change of a rule.
_WIDER: Final[Mapping[RuleChange, bool | None]] = {
    "added": False,
    "removed": True,
    "loosened": True,
    "tightened": False,
    "changed": None,
}
_ARROWS: Final = {True: " ▲", False: " ▼", None: ""}


def _changes(old: Known, new: Known) -> Iterator[Change]:
    yield from _of_bounds(_bounds(old[0]), _bounds(new[0]))
    before, after = _texts(old[0]), _texts(new[0])
    yield from (Change(name, (before[name], after[name])) for name in _TEXTS if before[name] != after[name])
    yield from _of_bounds(_tree(old[0]), _tree(new[0]))
    yield from _of_abilities(_abilities(old), _abilities(new))
    for rule, change in diff_rules(old[1].rules, new[1].rules):
        yield Change(f"rule {change}: {rule}", wider=_WIDER[change])
    for kind, names_before, names_after in zip(_CODE, _names(old[0]), _names(new[0]), strict=True):
        yield from (Change(f"{kind} added: {name}") for name in names_after if name not in names_before)
        yield from (Change(f"{kind} removed: {name}") for name in names_before if name not in names_after)


def _of_new(certificate: Known) -> Iterator[Change]:
    """Return the bounds that matter most of a new agent, and what it may do."""
    bounds = _bounds(certificate[0]) | _tree(certificate[0])
    yield from (Change(f"{name} {_show(bounds[name])}") for name in _FIRST if name in bounds)
    yield from (
        Change(f"may {ability}") for ability in sorted(_abilities(certificate)) if not ability.startswith(_ENDS)
    )
    yield from (Change(f"rule {rule.name}") for rule in certificate[1].rules.rules)


def _of_bounds(old: Mapping[str, float | None], new: Mapping[str, float | None]) -> Iterator[Change]:
    """Return the bounds that changed. The bounds of a tree are there only with sub-agents."""
    values_by_name: dict[str, tuple[Value, Value]] = {}
    for name in dict.fromkeys((*old, *new)):
        before, after = old.get(name), new.get(name)
        values: tuple[Value, Value] = (before if name in old else "none", after if name in new else "none")
        if values[0] == values[1] or values_by_name.get(_FOLLOWS.get(name, "")) == values:
            continue
        values_by_name[name] = values
        is_larger = after is None or (before is not None and before < after)
        yield Change(name, values, is_larger if name in old and name in new else name in new)


def _of_abilities(old: set[str], new: set[str]) -> Iterator[Change]:
    yield from (Change(f"may now {ability}", wider=True) for ability in sorted(new - old))
    yield from (Change(f"may no longer {ability}", wider=False) for ability in sorted(old - new))


def _bounds(certificate: Certificate) -> dict[str, float | None]:
    return {_NAMES.get(bound.bound, bound.bound): bound.value for bound in (*certificate.bounds, certificate.reply)}


def _texts(certificate: Certificate) -> dict[str, str]:
    return {
        setting.field: str(setting.value)
        for bound in certificate.bounds
        for setting in bound.settings
        if setting.field in _TEXTS
    }


def _tree(certificate: Certificate) -> dict[str, float | None]:
    team = certificate.sub_agents
    names = TreeBounds.model_fields if team is not None else ()
    return {
        f"{name.replace('_', ' ')} of the whole tree": getattr(team.tree, name) for name in names if team is not None
    }


def _abilities(known_agent: Known) -> set[str]:
    """Return what turns of the agent may do: by its chart, and by its tools."""
    certificate, chart = known_agent
    tools = _code(certificate).tools
    abilities = {f"{_ENDS}{end.replace('/', ': ')}" for end in chart.rows.ends}
    abilities |= {does for state, does in _DOES.items() if state in chart.states}
    if tools is None:
        return abilities | {"use tools that are unknown"}
    abilities |= {"write"} if any(tool.read_only is False for tool in tools) else set()
    return abilities | ({"delegate"} if any(tool.delegates for tool in tools) else set())


_CODE: Final = ("tool", "hook", "guardrail", "sub-agent")


def _names(certificate: Certificate) -> tuple[list[str], list[str], list[str], list[str]]:
    code, team = _code(certificate), certificate.sub_agents
    return (
        [tool.tool for tool in code.tools or () if not tool.delegates],
        [hook.name for hook in code.hooks],
        [guardrail.name for guardrail in code.guardrails],
        list(team.calls) if team is not None else [],
    )


def _code(certificate: Certificate) -> CertifiedCode:
    return certificate.code or CertifiedCode(tools=None, hooks=(), guardrails=(), typed=False)


def _show(value: Value) -> str:
    if isinstance(value, str):
        return value
    return "unlimited" if value is None else f"{value:.15g}"
