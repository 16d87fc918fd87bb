"""The history of a turn, or of a session, as its rules read it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Any, Final, NamedTuple
from zlib import crc32

from msgspec.json import Encoder, decode, encode

from turnwright_states.payload import plain
from turnwright_states.verdict import Broken

from .condition import MOST_TEXT, UNKNOWN, InvalidRuleError, Scene, Truth
from .monitor import Monitor, Refusal, Rename, Start, make_monitors
from .pattern import ANSWER, USER, ToolPattern
from .remembered import parse_result
from .rule import Rule, RuleList, read_rules

#: Names of tools are the model's: so many are looked up only once.
_MOST_TOOLS: Final = 10_000
_SEVERITY: Final = {effect: place for place, effect in enumerate(("end", "refuse", "ask", "report"))}
_OUTCOME: Final = ("status", "result", "text")
#: Equal values have equal bytes, also if a journal has frozen them.
_encode_state: Final = Encoder(enc_hook=plain, order="deterministic").encode
_NO_STATE: Final[Mapping[str, Any]] = {}
_MARKS: Final[Mapping[Truth, str]] = {True: "+", False: "-", UNKNOWN: "?"}


class Held(NamedTuple):
    """A rule that allows a call, and the earlier calls that satisfied it."""

    rule: str
    by: tuple[str, ...]


class Judgment(NamedTuple):
    """The rules that a call breaks, the severest first, and the rules that allow it."""

    broken: tuple[Broken, ...] = ()
    holding: tuple[Held, ...] = ()


_NO_RULE: Final = Judgment()


class RuleState(NamedTuple):
    """The state of a rule: the calls that a later verdict may name, and whether an answer is owed something.

    `gap` says why the rule refuses all that it judges, if its history is not whole. `is_inherited`: the rule is the
    caller's.
    """

    rule: Rule
    remembered: tuple[str, ...]
    is_owed: bool
    gap: str
    is_inherited: bool


class _Counting(NamedTuple):
    place: int
    pattern: ToolPattern
    #: Whether the start alone shows that the call matches, and with which key.
    certain: bool


class _Roles:
    """The monitors in which one tool has a role, by their places. Histories of the same rules share them."""

    __slots__ = (
        "are_settled",
        "counted_roles",
        "coupling",
        "is_named",
        "judged_patterns",
        "needed_patterns",
        "reads_result",
        "tree_coupling",
    )

    def __init__(self, tool: str, monitors: Iterable[Monitor]) -> None:
        self.judged_patterns: list[tuple[int, ToolPattern]] = []
        self.counted_roles: list[_Counting] = []
        self.needed_patterns: list[tuple[int, ToolPattern]] = []
        self.reads_result = False
        self.is_named = False
        #: The rules that couple calls of the tool with others, and those of them that sub-agents inherit. A `never`
        #: alone reads no history.
        self.coupling: set[str] = set()
        self.tree_coupling: set[str] = set()
        for place, monitor in enumerate(monitors):
            if monitor.is_inherited and tool in (USER, ANSWER):
                continue
            judged_pattern, counted_pattern, needed_pattern = (
                None if pattern is None else pattern.bind(tool)
                for pattern in (monitor.judged_pattern, monitor.counted_pattern, monitor.needed_pattern)
            )
            if tool == ANSWER and monitor.judges_answers:
                judged_pattern = ToolPattern((None,))
            if judged_pattern is not None:
                self.judged_patterns.append((place, judged_pattern))
            if counted_pattern is not None:
                certain = not (counted_pattern.reads(*_OUTCOME) or monitor.counted_fields.reads_outcome)
                self.counted_roles.append(_Counting(place, counted_pattern, certain))
                self.reads_result |= counted_pattern.reads("result") or monitor.counted_fields.reads_result
            if needed_pattern is not None:
                self.needed_patterns.append((place, needed_pattern))
                self.reads_result |= needed_pattern.reads("result") or monitor.there.reads_result
            if judged_pattern or counted_pattern or needed_pattern:
                self.is_named = True
                if monitor.has_state:
                    self.coupling.add(monitor.rule.name)
                    if monitor.rule.sub_agents:
                        self.tree_coupling.add(monitor.rule.name)
        #: Whether the outcome of a call changes a monitor.
        self.are_settled = bool(self.needed_patterns) or not all(role.certain for role in self.counted_roles)


class CompiledRules:
    """Rules ready to use: their monitors without a state, and the roles of the tools that were looked up."""

    __slots__ = ("monitors", "roles", "rules")

    def __init__(self, rules: Iterable[RuleList], inherited_names: Collection[str] = ()) -> None:
        self.monitors: list[Monitor] = []
        self.rules: tuple[Rule, ...] = ()
        self.roles: dict[str, _Roles] = {}
        names: set[str] = set()
        for rule_set in rules:
            for rule, patterns in zip(rule_set.rules, rule_set.patterns, strict=True):
                if rule.name in names:
                    raise InvalidRuleError("two rules have this name", rule=rule.name)
                names.add(rule.name)
                self.rules += (rule,)
                for monitor in make_monitors(rule, patterns):
                    monitor.is_inherited = rule.name in inherited_names
                    self.monitors.append(monitor)

    def roles_of(self, tool: str) -> _Roles:
        """Return the roles of a tool."""
        roles = self.roles.get(tool)
        if roles is None:
            if len(self.roles) >= _MOST_TOOLS:
                self.roles.clear()
            roles = self.roles[tool] = _Roles(tool, self.monitors)
        return roles


@lru_cache(maxsize=64)
def _compile(text: bytes) -> CompiledRules:
    """Return the rules of a journal, as JSON. Turns with the same rules share them."""
    rules, inherited_names = read_rules(decode(text))
    return CompiledRules([rules], inherited_names)


class _OpenCall(NamedTuple):
    roles: _Roles
    tool: str
    args: object
    order: int
    turn: int


class _Outcome(NamedTuple):
    """The end of a call, and its place in the order of events."""

    event: str
    open_call: _OpenCall
    order: int
    scene: Scene


class History:
    """The state of rules: what was started and settled so far. Raises `InvalidRuleError` for rules that cannot be used.

    It is a fold of its events: the same events give the same state and the same judgments.
    """

    __slots__ = (
        "_compiled",
        "_delegates",
        "_is_shared",
        "_late",
        "_monitors",
        "_open",
        "_order",
        "_path",
        "_turn",
        "checksum",
    )

    def __init__(self, rules: "RuleList | Iterable[Rule | RuleList] | CompiledRules", *, path: str = "") -> None:
        compiled_rules = rules if isinstance(rules, CompiledRules) else CompiledRules(list_rule_sets(rules))
        self._compiled = compiled_rules
        self._monitors = [monitor.copy() for monitor in compiled_rules.monitors]
        for monitor in self._monitors:
            monitor.clear()
        self._open: dict[str, _OpenCall] = {}
        self._order = 0
        self._turn = 0
        self._path = f"{path}:" if path else ""
        #: Whether another history may share the monitors.
        self._is_shared = False
        #: The calls that run sub-agents, and the outcomes that came since the first of them started.
        self._delegates: frozenset[str] = frozenset()
        self._late: tuple[_Outcome, ...] = ()
        #: A checksum of all events, which decide the state.
        self.checksum = 0

    @classmethod
    def of_journal(cls, rules: Sequence[Mapping[str, object]], past: Mapping[str, Any] = _NO_STATE) -> "History":
        """Return the history at the beginning of a turn, from the rules and the `past` of its first fact.

        Raises `InvalidRuleError`, and `ValueError` for a `past` that `save` did not return.
        """
        history = cls(_compile(_encode_state(rules)), path=past.get("path", ""))
        if past:
            try:
                history.restore(past)
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise ValueError(f"past: it is not the state of rules: {error!r}") from error
        return history

    def copy(self) -> "History":
        """Return a copy. Its monitors are copied at the next change of either."""
        self._is_shared = True
        state = {name: getattr(self, name) for name in History.__slots__} | {"_open": {**self._open}}
        twin = object.__new__(History)
        for name, value in state.items():
            setattr(twin, name, value)
        return twin

    def save(self) -> dict[str, Any]:
        """Return the state of all rules as JSON values."""
        return self._save(lambda rule: bool(rule.name), str)

    def save_session(self, turn: str) -> dict[str, Any]:
        """Return the state of the rules with the scope of a session, as JSON values, for its next turn.

        The ids of calls follow `turn`, the id of this turn.
        """

        def rename(event: str) -> str:
            return event if "/" in event else f"{turn}/{event}"

        return self._save(lambda rule: rule.scope == "session", rename)

    def save_tree(self, call: str = "") -> dict[str, Any]:
        """Return the state of the rules that sub-agents inherit: for the sub-agent of a call, or for its caller."""
        state = self._save(lambda rule: rule.sub_agents, str)
        return state | ({"path": self._path + call} if call else {})

    def _save(self, matches: Callable[[Rule], bool], rename: Rename) -> dict[str, Any]:
        states: dict[str, list[dict[str, Any]]] = {}
        for monitor in self._monitors:
            if matches(monitor.rule):
                states.setdefault(monitor.rule.name, []).append(monitor.save(rename))
        return {"order": self._order, "rules": {name: state for name, state in states.items() if any(state)}}

    def restore(self, state: Mapping[str, Any], names: Collection[str] | None = None) -> None:
        """Take a state that was saved: of all rules, or of those with these names.

        Raises `LookupError`, `TypeError` or `ValueError` for another value.
        """
        self._copy_shared_monitors()
        states = {name: iter(states) for name, states in state["rules"].items()}
        for monitor in self._monitors:
            if names is None or monitor.rule.name in names:
                monitor.restore(next(states.get(monitor.rule.name, iter(())), {}))
        self._order = max(self._order, state["order"])
        self.checksum = crc32(_encode_state(state), self.checksum)

    def delegate(self, call: str) -> None:
        """Note that a call runs a sub-agent from now on."""
        self._delegates |= {self._path + call}

    def rejoin(self, call: str, tool: str, reached_tools: Iterable[str], state: Mapping[str, Any] | None) -> None:
        """Take the state in which a sub-agent left the rules that it could change. It is empty if none began.

        Without a state, the calls of the sub-agent are not known, and those rules refuse what they judge.
        """
        names = self.coupled_rules(tool, reached_tools)
        if state:
            self.restore(state, names)
        elif state is None:
            self._copy_shared_monitors()
            for monitor in self._monitors:
                monitor.lacks_report |= monitor.rule.name in names
        for outcome in self._late:
            self._apply(outcome, names)
        self._delegates -= {self._path + call}
        if not self._delegates:
            self._late = ()

    def message(self, text: str, event: str | None = None) -> None:
        """Begin a turn with a message of the user. Rules whose scope is a turn forget what was before."""
        self.begin_turn()
        self.steer(text, event)

    def begin_turn(self) -> None:
        """Begin a turn."""
        self._copy_shared_monitors()
        self._turn += 1
        for monitor in self._monitors:
            if monitor.rule.scope == "turn":
                monitor.clear()

    def steer(self, text: str, event: str | None = None) -> None:
        """Note a message of the user within a turn."""
        event = self._path + (event or f"message{self._order + 1}")
        roles = self._compiled.roles_of(USER)
        self._start(event, USER, roles, Scene(status="ok", text=text))
        self._settle(event, "ok", text, UNKNOWN)

    def judge(self, tool: str, arguments: Mapping[str, object], call: str | None = None) -> tuple[Broken, ...]:
        """Return the rules that a call would break, the severest first. It changes nothing."""
        return self.verdicts(tool, arguments, call).broken

    def answer(self, text: str) -> tuple[Broken, ...]:
        """Return the rules that an answer would break, the severest first. It changes nothing."""
        return self._judge(ANSWER, self._compiled.roles_of(ANSWER), Scene(text=text), None).broken

    @property
    def judges_answers(self) -> bool:
        """Whether a rule judges answers."""
        return bool(self._compiled.roles_of(ANSWER).judged_patterns)

    @property
    def may_end(self) -> bool:
        """Whether a broken rule ends the turn."""
        return any(rule.effect == "end" for rule in self._compiled.rules)

    def answer_after(self, call: str, result: object, text: str) -> tuple[Broken, ...]:
        """Return the rules that an answer would break if this call of the turn had ended ok. It changes nothing."""
        if not self.judges_answers:
            return ()
        history = self.copy()
        history.settle(call, "ok", text if result is None else result, text)
        return history.answer(text)

    def opened_by(self, tool: str, arguments: Mapping[str, object]) -> str:
        """Return the rule by which an answer is owed something after a call starts; empty if none is."""
        if not self.judges_answers:
            return ""
        scene = Scene(_plain(arguments))
        for place, pattern, _ in self._compiled.roles_of(tool).counted_roles:
            monitor = self._monitors[place]
            enforces = monitor.judges_answers and not monitor.is_inherited and monitor.rule.effect != "report"
            if enforces and pattern(scene) is not False:
                return monitor.rule.name
        return ""

    def verdicts(self, tool: str, arguments: Mapping[str, object], call: str | None = None) -> Judgment:
        """Return the rules that a call would break, and those that allow it with their evidence."""
        roles = self._compiled.roles.get(tool) or self._compiled.roles_of(tool)
        return self._judge(tool, roles, Scene(_plain(arguments)), call) if roles.judged_patterns else _NO_RULE

    def started(self, call: str, tool: str, arguments: Mapping[str, object]) -> None:
        """Note that a call started. A call that runs again is still one start."""
        roles = self._compiled.roles.get(tool) or self._compiled.roles_of(tool)
        if roles.is_named and self._path + call not in self._open:
            self._start(self._path + call, tool, roles, Scene(_plain(arguments)))

    def settled(self, call: str, *, ok: bool, result: object = None) -> None:
        """Note the result of a call that ran: a text, or a JSON value."""
        self.settle(call, "ok" if ok else "error", result)

    def settle(self, call: str, status: str, result: object = None, text: str | None = None) -> None:
        """Note how a call ended. One that never started is ignored. Only `ok` and `error` have a result.

        A result that is a text is parsed as JSON where a rule reads its fields. `text` is the text of another result.
        """
        if not self._open:
            return
        event = self._path + call
        if event in self._open:
            if status not in ("ok", "error"):
                self._settle(event, status, UNKNOWN, UNKNOWN)
            elif isinstance(result, str):
                self._settle(event, status, result, result)
            else:
                self._settle(event, status, text if text is not None else _text_of(result), result)

    def unmet(self) -> tuple[str, ...]:
        """Return the rules whose `then` has not come yet, without those of a caller."""
        return tuple(monitor.rule.name for monitor in self._monitors if monitor.is_owed and not monitor.is_inherited)

    def states(self) -> tuple[RuleState, ...]:
        """Return the state of each rule, in the order of the rules."""
        states: dict[str, RuleState] = {}
        for monitor in self._monitors:
            rule = monitor.rule
            before = states.get(rule.name)
            events = dict.fromkeys((*(() if before is None else before.remembered), *monitor.remembered))
            is_owed = monitor.is_owed and not monitor.is_inherited
            states[rule.name] = RuleState(rule, tuple(events), is_owed, monitor.gap, monitor.is_inherited)
        return tuple(states.values())

    def coupled_rules(self, tool: str, reached_tools: Iterable[str] = ()) -> AbstractSet[str]:
        """Return the rules that couple calls of a tool, or of one that its sub-agent reaches, with others."""
        rules: AbstractSet[str] = self._compiled.roles_of(tool).coupling
        for name in reached_tools:
            rules = rules | self._compiled.roles_of(name).tree_coupling
        return rules

    def is_named(self, tool: str) -> bool:
        """Return whether a rule names this tool."""
        return (self._compiled.roles.get(tool) or self._compiled.roles_of(tool)).is_named

    def is_enforced_on(self, tool: str) -> bool:
        """Return whether a rule that does more than report names this tool."""
        roles = self._compiled.roles_of(tool)
        places = [
            *(role[0] for role in (*roles.judged_patterns, *roles.needed_patterns)),
            *(role.place for role in roles.counted_roles),
        ]
        return any(self._monitors[place].rule.effect != "report" for place in places)

    def _copy_shared_monitors(self) -> None:
        """Copy the monitors before a change, if another history may share them."""
        if self._is_shared:
            self._monitors = [monitor.copy() for monitor in self._monitors]
            self._is_shared = False

    def _judge(self, tool: str, roles: _Roles, scene: Scene, call: str | None) -> Judgment:
        broken_rules: dict[str, Broken] = {}
        allowing: list[Held] = []
        name = "the answer" if tool == ANSWER else tool
        for place, pattern in roles.judged_patterns:
            if pattern(scene) is False:
                continue
            monitor = self._monitors[place]
            verdict = monitor.judge(name, scene)
            if verdict is None:
                continue
            rule = monitor.rule
            if not isinstance(verdict, Refusal):
                allowing.append(Held(rule.name, verdict))
            elif rule.name not in broken_rules:
                words = rule.say or verdict.words
                broken_rules[rule.name] = Broken(rule.name, rule.effect, call, verdict.by, words)
        if not broken_rules:
            return Judgment((), tuple(allowing)) if allowing else _NO_RULE
        severest = sorted(broken_rules.values(), key=lambda verdict: _SEVERITY[verdict.effect])
        return Judgment(tuple(severest), tuple(allowing))

    def _start(self, event: str, tool: str, roles: _Roles, scene: Scene) -> None:
        if self._is_shared:
            self._copy_shared_monitors()
        self._order += 1
        marks = ""
        for place, pattern, certain in roles.counted_roles:
            is_match = pattern(scene)
            if is_match is not False:
                self._monitors[place].start(event, self._order, scene, certain=certain)
            marks += _MARKS[is_match]
        self.checksum = crc32(f"{event} {tool}{marks}".encode(errors="replace"), self.checksum)
        if roles.are_settled:
            self._open[event] = _OpenCall(roles, tool, scene.args, self._order, self._turn)

    def _settle(self, event: str, status: str, text: object, result: object) -> None:
        open_call = self._open.pop(event, None)
        if open_call is None:
            return
        if self._is_shared:
            self._copy_shared_monitors()
        self._order += 1
        if open_call.roles.reads_result and isinstance(result, str):
            result = parse_result(result)
        outcome = _Outcome(
            event, open_call, self._order, Scene(open_call.args, status=status, text=text, result=result)
        )
        if self._delegates:
            self._late += (outcome,)
        marks = " ".join([event, status, *self._apply(outcome)])
        self.checksum = crc32(marks.encode(errors="replace"), self.checksum)

    def _apply(self, outcome: "_Outcome", names: Collection[str] | None = None) -> list[str]:
        """Change the monitors by the outcome of a call: all, or those of some rules. Return what the monitors read."""
        event, open_call, order, scene = outcome
        marks: list[str] = []
        for place, pattern, certain in open_call.roles.counted_roles:
            monitor = self._monitors[place]
            if certain or not self._remembers(monitor, open_call) or not (names is None or monitor.rule.name in names):
                continue
            is_match = pattern(scene)
            marks.append(_MARKS[is_match])
            if is_match is False:
                monitor.take_back(event)
            else:
                monitor.confirm(event, open_call.order, scene)
        if scene.status == "ok":
            for place, pattern in open_call.roles.needed_patterns:
                monitor = self._monitors[place]
                if self._remembers(monitor, open_call) and (names is None or monitor.rule.name in names):
                    start = Start(open_call.order, event)
                    monitor.succeed(start, order, open_call.tool, pattern, scene)
                    marks.append(monitor.there.key(scene) or "")
                    marks.append("" if pattern.memory is not None else _MARKS[pattern(scene)])
        return marks

    def _remembers(self, monitor: Monitor, open_call: _OpenCall) -> bool:
        """Return whether a monitor has not forgotten the call's start since."""
        return open_call.turn == self._turn or monitor.rule.scope == "session"


def list_rule_sets(rules: RuleList | Iterable[Rule | RuleList]) -> list[RuleList]:
    """Return sets of rules; rules that stand alone are one set without groups. Raises `InvalidRuleError`."""
    if isinstance(rules, RuleList):
        return [rules]
    items = list(rules)
    alone = [item for item in items if not isinstance(item, RuleList)]
    return [*(item for item in items if isinstance(item, RuleList)), *([RuleList(alone)] if alone else ())]


def _plain(arguments: Mapping[str, object]) -> object:
    return arguments if isinstance(arguments, dict) else dict(arguments)


def _text_of(result: object) -> object:
    """Return the JSON text of a result; `UNKNOWN` for a value that JSON does not have."""
    try:
        text = encode(result).decode()
    except (TypeError, ValueError, RecursionError):
        return UNKNOWN
    return text if len(text) <= MOST_TEXT else UNKNOWN
