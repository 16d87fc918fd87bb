"""The history of a turn, or of a session, as its rules read it."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from msgspec.json import encode

from .condition import MOST_TEXT, UNKNOWN, InvalidRuleError, Scene
from .monitor import Monitor, Refusal, Start, make_monitors
from .pattern import ANSWER, USER, ToolPattern
from .remembered import parse_result
from .rule import Effect, Rule, RuleList

#: Names of tools are the model's: so many are looked up only once.
_MOST_TOOLS: Final = 10_000
_SEVERITY: Final = {effect: place for place, effect in enumerate(("end", "refuse", "ask", "report"))}
_OUTCOME: Final = ("status", "result", "text")


class Broken(NamedTuple):
    """A rule that a call, or an answer, breaks."""

    rule: str
    effect: Effect
    #: The id of the call; None for an answer.
    call: str | None
    #: The ids of the last earlier calls that decided it, at most three.
    by: tuple[str, ...]
    words: str


class Held(NamedTuple):
    """A rule that allows a call, and the earlier calls that satisfied it."""

    rule: str
    by: tuple[str, ...]


class Judgment(NamedTuple):
    """The rules that a call breaks, the severest first, and the rules that allow it."""

    broken: tuple[Broken, ...] = ()
    holding: tuple[Held, ...] = ()


_NO_RULE: Final = Judgment()


class _Counting(NamedTuple):
    monitor: Monitor
    pattern: ToolPattern
    #: Whether the start alone shows that the call matches, and with which key.
    certain: bool


class _Roles:
    """The monitors in which one tool has a role."""

    __slots__ = ("are_settled", "counted", "judged", "needed", "reads_result", "rules")

    def __init__(self, tool: str, monitors: Iterable[Monitor]) -> None:
        self.judged: list[tuple[Monitor, ToolPattern]] = []
        self.counted: list[_Counting] = []
        self.needed: list[tuple[Monitor, ToolPattern]] = []
        self.reads_result = False
        self.rules: set[str] = set()
        for monitor in monitors:
            judged, counted, needed = (
                None if pattern is None else pattern.bind(tool)
                for pattern in (monitor.judged, monitor.counted, monitor.needed)
            )
            if tool == ANSWER and monitor.judges_answers:
                judged = ToolPattern((None,))
            if judged is not None:
                self.judged.append((monitor, judged))
            if counted is not None:
                certain = not (counted.reads(*_OUTCOME) or monitor.counted_fields.reads_outcome)
                self.counted.append(_Counting(monitor, counted, certain))
                self.reads_result |= counted.reads("result") or monitor.counted_fields.reads_result
            if needed is not None:
                self.needed.append((monitor, needed))
                self.reads_result |= needed.reads("result") or monitor.there.reads_result
            if judged or counted or needed:
                self.rules.add(monitor.rule.name)
        #: Whether the outcome of a call changes a monitor.
        self.are_settled = bool(self.needed) or not all(role.certain for role in self.counted)


class _OpenCall(NamedTuple):
    roles: _Roles
    tool: str
    args: object
    order: int
    turn: int


class History:
    """The state of rules: what was started and settled so far. Raises `InvalidRuleError` for rules that cannot be used.

    It is a fold of its events: the same events give the same state and the same judgments.
    """

    def __init__(self, rules: RuleList | Iterable[Rule | RuleList]) -> None:
        self._monitors: list[Monitor] = []
        self.rules: tuple[Rule, ...] = ()
        names: set[str] = set()
        for rule_set in _rule_sets(rules):
            for rule, patterns in zip(rule_set.rules, rule_set.patterns, strict=True):
                if rule.name in names:
                    raise InvalidRuleError("two rules have this name", rule=rule.name)
                names.add(rule.name)
                self.rules += (rule,)
                self._monitors += make_monitors(rule, patterns)
        self._roles: dict[str, _Roles] = {}
        self._open: dict[str, _OpenCall] = {}
        self._order = 0
        self._turn = 0

    def message(self, text: str, event: str | None = None) -> None:
        """Begin a turn with a message of the user. Rules whose scope is a turn forget what was before."""
        self.begin_turn()
        self.steer(text, event)

    def begin_turn(self) -> None:
        """Begin a turn."""
        self._turn += 1
        for monitor in self._monitors:
            if monitor.rule.scope == "turn":
                monitor.clear()

    def steer(self, text: str, event: str | None = None) -> None:
        """Note a message of the user within a turn."""
        event = event or f"message{self._order + 1}"
        roles = self._roles_of(USER)
        self._start(event, USER, roles, Scene(status="ok", text=text))
        self._settle(event, "ok", text, UNKNOWN)

    def judge(self, tool: str, arguments: Mapping[str, object], call: str | None = None) -> tuple[Broken, ...]:
        """Return the rules that a call would break, the severest first. It changes nothing."""
        return self.verdicts(tool, arguments, call).broken

    def answer(self, text: str) -> tuple[Broken, ...]:
        """Return the rules that an answer would break, the severest first. It changes nothing."""
        return self._judge(ANSWER, self._roles_of(ANSWER), Scene(text=text), None).broken

    def verdicts(self, tool: str, arguments: Mapping[str, object], call: str | None = None) -> Judgment:
        """Return the rules that a call would break, and those that allow it with their evidence."""
        roles = self._roles.get(tool) or self._roles_of(tool)
        return self._judge(tool, roles, Scene(_plain(arguments)), call) if roles.judged else _NO_RULE

    def started(self, call: str, tool: str, arguments: Mapping[str, object]) -> None:
        """Note that a call started. A call that runs again is still one start."""
        roles = self._roles.get(tool) or self._roles_of(tool)
        if roles.rules and call not in self._open:
            self._start(call, tool, roles, Scene(_plain(arguments)))

    def settled(self, call: str, *, ok: bool, result: object = None) -> None:
        """Note the result of a call that ran: a text, or a JSON value."""
        self.settle(call, "ok" if ok else "error", result)

    def settle(self, call: str, status: str, result: object = None, text: str | None = None) -> None:
        """Note how a call ended. One that never started is ignored. Only `ok` and `error` have a result.

        A result that is a text is parsed as JSON where a rule reads its fields. `text` is the text of another result.
        """
        if call in self._open:
            if status not in ("ok", "error"):
                self._settle(call, status, UNKNOWN, UNKNOWN)
            elif isinstance(result, str):
                self._settle(call, status, result, result)
            else:
                self._settle(call, status, text if text is not None else _text_of(result), result)

    def unmet(self) -> tuple[str, ...]:
        """Return the rules whose `then` has not come yet."""
        return tuple(monitor.rule.name for monitor in self._monitors if monitor.is_owed)

    def are_coupled(self, tool: str, next_tool: str) -> bool:
        """Return whether one rule names both tools, so that their calls start in the order of the reply."""
        return not self._roles_of(tool).rules.isdisjoint(self._roles_of(next_tool).rules)

    def is_named(self, tool: str) -> bool:
        """Return whether a rule names this tool."""
        return bool(self._roles_of(tool).rules)

    def _roles_of(self, tool: str) -> _Roles:
        roles = self._roles.get(tool)
        if roles is None:
            if len(self._roles) >= _MOST_TOOLS:
                self._roles.clear()
            roles = self._roles[tool] = _Roles(tool, self._monitors)
        return roles

    @staticmethod
    def _judge(tool: str, roles: _Roles, scene: Scene, call: str | None) -> Judgment:
        broken: dict[str, Broken] = {}
        allowing: list[Held] = []
        for monitor, pattern in roles.judged:
            if pattern(scene) is False:
                continue
            verdict = monitor.judge("the answer" if tool == ANSWER else tool, scene)
            rule = monitor.rule
            if isinstance(verdict, Refusal):
                broken.setdefault(
                    rule.name, Broken(rule.name, rule.effect, call, verdict.by, rule.say or verdict.words)
                )
            elif verdict is not None:
                allowing.append(Held(rule.name, verdict))
        if not broken:
            return Judgment((), tuple(allowing))
        severest = sorted(broken.values(), key=lambda verdict: _SEVERITY[verdict.effect])
        return Judgment(tuple(severest), tuple(allowing))

    def _start(self, call: str, tool: str, roles: _Roles, scene: Scene) -> None:
        self._order += 1
        for monitor, pattern, certain in roles.counted:
            if pattern(scene) is not False:
                monitor.start(call, self._order, scene, certain=certain)
        if roles.are_settled:
            self._open[call] = _OpenCall(roles, tool, scene.args, self._order, self._turn)

    def _settle(self, call: str, status: str, text: object, result: object) -> None:
        opened = self._open.pop(call, None)
        if opened is None:
            return
        self._order += 1
        roles = opened.roles
        if roles.reads_result and isinstance(result, str):
            result = parse_result(result)
        scene = Scene(opened.args, status=status, text=text, result=result)
        for monitor, pattern, certain in roles.counted:
            if certain or not self._remembers(monitor, opened):
                continue
            if pattern(scene) is False:
                monitor.take_back(call)
            else:
                monitor.confirm(call, opened.order, scene)
        if status == "ok":
            for monitor, pattern in roles.needed:
                if self._remembers(monitor, opened):
                    monitor.succeed(Start(opened.order, call), self._order, opened.tool, pattern, scene)

    def _remembers(self, monitor: Monitor, opened: _OpenCall) -> bool:
        """Return whether a monitor has not forgotten the call's start since."""
        return opened.turn == self._turn or monitor.rule.scope == "session"


def _rule_sets(rules: RuleList | Iterable[Rule | RuleList]) -> list[RuleList]:
    """Return sets of rules; rules that stand alone are one set without groups."""
    if isinstance(rules, RuleList):
        return [rules]
    items = list(rules)
    alone = [item for item in items if isinstance(item, Rule)]
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
