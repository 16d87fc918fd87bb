"""Static checks of rules: every state that their monitors can reach, with conditions as free atoms.

A condition is true or false of a call, whatever it says, and all calls have one key. So the walk allows more than what
can happen: what it never meets, never happens. A path names the conditions that it assumes.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from msgspec import UnsetType
from msgspec.structs import replace

from turnwright_states.rules import (
    ANSWER,
    UNKNOWN,
    USER,
    CallPattern,
    Condition,
    History,
    InvalidRuleError,
    Rule,
    RuleList,
    Scene,
    Truth,
)
from turnwright_states.rules.condition import Path
from turnwright_states.rules.history import CompiledRules
from turnwright_states.rules.pattern import PatternPart
from turnwright_states.suggestions import find_similar_name

#: The most states of a walk, and the most conditions on the calls of one tool.
MOST_STATES: Final = 50_000
MOST_ATOMS: Final = 8
_OUTCOME: Final = ("status", "result", "text")
#: The words of a rule that name judged calls, and those that name calls that it reads.
_JUDGED: Final = ("before", "never", "of", "not_both")
_READ: Final = ("need", "after", "then", "of", "not_both")

#: The kinds of findings.
FindingKind: TypeAlias = Literal["unknown", "never runs", "no way to an answer", "never acts", "holds"]
#: The truth of conditions, by their texts.
_Truths: TypeAlias = Mapping[str, bool]


class RuleFinding(NamedTuple):
    """A fault of rules, or what they guarantee. `path` are calls that show it, the first one first."""

    kind: FindingKind
    rule: str
    words: str
    path: tuple[str, ...] = ()


class _Atom(Condition):
    """A condition whose truth is given: `args` of a scene has it. Before the outcome is known, it may be UNKNOWN."""

    __slots__ = ()

    def __init__(self, condition: Condition) -> None:
        self.text = condition.text
        #: Without `this`: a call is compared when it is settled.
        self.paths: tuple[Path, ...] = tuple(path for path in condition.paths if path[0] != "this")

    def __call__(self, scene: Scene) -> Truth:
        is_settled = scene.status is not UNKNOWN
        if not isinstance(scene.args, Mapping) or (not is_settled and self.reads(*_OUTCOME)):
            return UNKNOWN
        return bool(scene.args.get(self.text, False))


class _AtomList(RuleList):
    """Rules whose conditions are atoms, and whose calls all have one key."""

    __slots__ = ()

    def __init__(self, rules: Iterable[Rule], patterns: Iterable[dict[str, tuple[CallPattern, ...]]]) -> None:
        self.groups = {}
        self.rules = tuple(replace(rule, same=(), per=()) for rule in rules)
        self.patterns = tuple(
            {word: tuple(_pattern_of(map(_abstract, call.parts)) for call in calls) for word, calls in words.items()}
            for words in patterns
        )


def _abstract(part: PatternPart) -> PatternPart:
    return part if part.condition is None else PatternPart(part.tool, _Atom(part.condition))


def _pattern_of(parts: Iterable[PatternPart]) -> CallPattern:
    pattern = CallPattern((), {})
    pattern.parts = tuple(parts)
    return pattern


def check_rules(rules: RuleList | Iterable[Rule], tools: Iterable[str]) -> list[RuleFinding]:
    """Return what is wrong with rules for an agent with these tools, and what they guarantee.

    The kinds are a tool that is not there (`unknown`), a tool that `never runs`, `no way to an answer`, a rule that
    `never acts`, and what `holds`: a call that never starts before another one. Every state of the rules is tried, with
    conditions as free atoms. Raises `InvalidRuleError` for rules that cannot be used, and for too many states.
    """
    rule_list, names = rules if isinstance(rules, RuleList) else RuleList(rules), tuple(tools)
    return [*_list_unknown(rule_list, names), *_RuleCheck(rule_list, names).findings()]


def _list_unknown(rules: RuleList, tools: Sequence[str]) -> Iterator[RuleFinding]:
    for rule, words in zip(rules.rules, rules.patterns, strict=True):
        names = {part.tool: None for calls in words.values() for call in calls for part in call.parts}
        for name in names:
            if "*" not in name and name not in (USER, ANSWER, *tools):
                similar = find_similar_name(name, tools)
                hint = f": did you mean {similar!r}?" if similar else ""
                yield RuleFinding("unknown", rule.name, f"no tool is named {name!r}{hint}")


class _RuleCheck:
    """Walks, for each tool and for the answer, the rules on which they depend. Others cannot change the finding."""

    def __init__(self, rules: RuleList, tools: Sequence[str]) -> None:
        # Amounts are not abstracted: a rule with `sum` may allow each call.
        self._rules = {
            rule.name: (rule, words) for rule, words in zip(rules.rules, rules.patterns, strict=True) if not rule.sum
        }
        self._tools = tools
        self._walks: dict[frozenset[str], _Walk] = {}

    def findings(self) -> Iterator[RuleFinding]:
        """Yield what the walks found."""
        judged_tools = [tool for tool in self._tools if self._judges_of(tool)]
        ran = {tool: self._walk(tool).ran.get(tool) for tool in judged_tools}
        answer_walk = self._walk(ANSWER) if self._judges_of(ANSWER) else None
        acting_paths = {rule: path for walk in self._walks.values() for rule, path in walk.acted.items()}
        for tool, path in ran.items():
            if path is None:
                acting = next((rule for rule in self._judges_of(tool) if rule in acting_paths), "")
                yield RuleFinding("never runs", acting, f"{tool}: refused in every state")
        if answer_walk is not None:
            yield from answer_walk.find_dead_end()
        for name in self._rules:
            if name not in acting_paths:
                yield RuleFinding("never acts", name, "no call and no answer can break it")
        for rule, words in self._rules.values():
            if "need" in words and rule.effect in ("refuse", "end"):
                for tool, path in ran.items():
                    if path is not None and words["before"][0].names(tool):
                        needed_words = " or ".join(dict.fromkeys(part.tool for part in words["need"][0].parts))
                        yield RuleFinding("holds", rule.name, f"{tool} never starts before {needed_words}", path)

    def _judges_of(self, tool: str) -> list[str]:
        """Return the rules that judge a tool, or the answer."""
        return [
            name
            for name, (_, words) in self._rules.items()
            if any(call.names(tool) for word in _JUDGED for call in words.get(word, ()))
            or (tool == ANSWER and "then" in words)
        ]

    def _walk(self, subject: str) -> "_Walk":
        """Walk the rules on which the calls of a tool, or the answer, depend. Those that only ask let a tool run."""
        judges = self._judges_of(subject)
        names = dict.fromkeys(judges)
        pending, reached_tools = [*judges], {subject}
        while pending:
            words = self._rules[pending.pop()][1]
            for tool in (*self._tools, USER):
                if tool in reached_tools or not any(call.names(tool) for word in _READ for call in words.get(word, ())):
                    continue
                reached_tools.add(tool)
                new = [name for name in self._judges_of(tool) if name not in names and self._holds_up(name)]
                names |= dict.fromkeys(new)
                pending += new
        key = frozenset((*names, subject))
        if key not in self._walks:
            tools = [tool for tool in self._tools if tool in reached_tools]
            self._walks[key] = _Walk([self._rules[name] for name in names], tools, subject, judges)
        return self._walks[key]

    def _holds_up(self, name: str) -> bool:
        return self._rules[name][0].effect in ("refuse", "end")


class _State(NamedTuple):
    history: History
    path: tuple[str, ...]


class _Walk:
    """The states of rules that calls of these tools can reach, the shortest paths first.

    `judges` are the rules that judge the subject: a tool, or the answer.
    """

    def __init__(
        self,
        rules: Sequence[tuple[Rule, dict[str, tuple[CallPattern, ...]]]],
        tools: Sequence[str],
        subject: str,
        judges: Sequence[str],
    ) -> None:
        atoms = _AtomList([rule for rule, _ in rules], [words for _, words in rules])
        self._rules = atoms
        self._most = {rule.name: rule.at_most for rule in atoms.rules}
        compiled_rules = CompiledRules([atoms])
        self._moves = {tool: self._list_moves(tool, compiled_rules) for tool in (*tools, USER)}
        self._answers = self._list_truths(ANSWER) if subject == ANSWER else []
        self._subject, self._judges = subject, judges
        #: The shortest path after which a tool runs, or a rule acts.
        self.ran: dict[str, tuple[str, ...]] = {}
        self.acted: dict[str, tuple[str, ...]] = {}
        self._paths: dict[object, tuple[str, ...]] = {}
        self._edges: dict[object, set[object]] = {}
        #: The rule that refuses the answer in a state, and those that refuse a tool in it.
        self._refusals: dict[object, str] = {}
        self._blocked: dict[object, dict[str, str]] = {}
        self._explore(History(compiled_rules))

    def _list_truths(self, tool: str) -> list[_Truths]:
        texts = {
            part.condition.text: None
            for words in self._rules.patterns
            for calls in words.values()
            for call in calls
            for part in call.parts
            if part.condition is not None and _pattern_of([part]).names(tool)
        }
        if len(texts) > MOST_ATOMS:
            raise InvalidRuleError(f"{tool}: more than {MOST_ATOMS} conditions on its calls: inconclusive")
        return [dict(zip(texts, values, strict=True)) for values in product((True, False), repeat=len(texts))]

    def _list_moves(self, tool: str, rules: CompiledRules) -> list[tuple[_Truths, str]]:
        # A failed call changes a state as one that nobody needs does, unless its outcome is counted.
        statuses = ("ok",) if all(role.certain for role in rules.roles_of(tool).counted_roles) else ("ok", "error")
        return [(truths, status) for truths in self._list_truths(tool) for status in statuses]

    def _explore(self, history: History) -> None:
        first = _State(history, ())
        self._paths[self._key(history)] = ()
        states = deque([first])
        while states and not self._is_decided():
            state = states.popleft()
            key = self._key(state.history)
            targets = self._edges[key] = set()
            for tool, moves in self._moves.items():
                for truths, status in moves:
                    after = self._take(state, key, tool, truths, status)
                    if after is None:
                        continue
                    next_key = self._key(after.history)
                    targets.add(next_key)
                    if next_key not in self._paths:
                        self._paths[next_key] = after.path
                        if len(self._paths) > MOST_STATES:
                            raise InvalidRuleError(f"more than {MOST_STATES} states: inconclusive")
                        states.append(after)
            if self._may_answer(state, key):
                targets.add(ANSWER)

    def _is_decided(self) -> bool:
        """Return whether nothing more can be found about a tool: it runs, and each rule that judges it acts."""
        return self._subject in self.ran and all(rule in self.acted for rule in self._judges)

    def _take(self, state: _State, key: object, tool: str, truths: _Truths, status: str) -> _State | None:
        """Return the state after a call, or None if a rule refuses it. `key` is that of the state."""
        call = f"e{len(state.path)}"
        if tool == USER:
            history = state.history.copy()
        else:
            broken_rules = state.history.judge(tool, truths)
            for verdict in broken_rules:
                self.acted.setdefault(verdict.rule, (*state.path, tool))
            refusals = [verdict.rule for verdict in broken_rules if verdict.effect in ("refuse", "end")]
            if refusals:
                self._blocked.setdefault(key, {}).setdefault(tool, refusals[0])
                return None
            history = state.history.copy()
        assumed_texts = [text if value else f"not ({text})" for text, value in truths.items()]
        step = f"{tool} if {' and '.join(assumed_texts)}" if assumed_texts else tool
        path = (*state.path, f"{step} fails" if status == "error" else step)
        self.ran.setdefault(tool, path)
        history.started(call, tool, truths)
        history.settle(call, status, {}, "")
        return _State(history, path)

    def _may_answer(self, state: _State, key: object) -> bool:
        is_possible = False
        for truths in self._answers:
            broken_rules = state.history.judge(ANSWER, truths)
            for verdict in broken_rules:
                self.acted.setdefault(verdict.rule, (*state.path, "the answer"))
            refusals = [verdict for verdict in broken_rules if verdict.effect != "report"]
            is_possible = is_possible or not refusals
            if refusals:
                self._refusals.setdefault(key, refusals[0].rule)
        return is_possible

    def _key(self, history: History) -> object:
        """Return what decides the future of a state: not the ids of calls, nor more of their order than is read."""
        states = history.save()["rules"]
        return tuple((name, *(self._plain(name, state) for state in states[name])) for name in sorted(states))

    def _plain(self, name: str, state: Mapping[str, Any]) -> object:
        most = self._most[name]
        least = 1 if isinstance(most, UnsetType) else int(most) + 1
        last_use = max((order for _, uses in state.get("uses", ()) for _, order, _ in uses), default=0)
        return (
            "full" in state,
            tuple((key, min(int(total), least)) for key, total, _, _ in state.get("starts", ())),
            tuple(sorted((tool, order > last_use) for _, calls in state.get("ok", ()) for tool, order, _, _ in calls)),
        )

    def find_dead_end(self) -> Iterator[RuleFinding]:
        """Yield the nearest state from which no answer is possible."""
        sources: dict[object, set[object]] = {}
        for source, targets in self._edges.items():
            for target in targets:
                sources.setdefault(target, set()).add(source)
        alive: set[object] = set()
        pending: list[object] = [ANSWER]
        while pending:
            for source in sources.get(pending.pop(), ()):
                if source not in alive:
                    alive.add(source)
                    pending.append(source)
        for key, path in self._paths.items():
            if key not in alive:
                rule = self._refusals.get(key, "")
                yield RuleFinding("no way to an answer", rule, self._explain_dead_end(key, rule), path)
                return

    def _explain_dead_end(self, key: object, rule: str) -> str:
        """Return what the answer needs in a state, and the rule that forbids it."""
        patterns = zip(self._rules.rules, self._rules.patterns, strict=True)
        words = next((words for owed_rule, words in patterns if owed_rule.name == rule), {})
        needed_calls = words.get("then") or words.get("need") or ()
        tools = dict.fromkeys(part.tool for call in needed_calls for part in call.parts)
        blocking_rules = self._blocked.get(key, {})
        reasons = [
            f"which {blocking_rules[tool]} forbids" if tool in blocking_rules else "which cannot help" for tool in tools
        ]
        return " or ".join(f"{tool}, {reason}" for tool, reason in zip(tools, reasons, strict=True))
