"""Monitors: the state of rules, a fold of what was started and settled, and the judgment of a call."""

from collections.abc import Callable, Iterable, Mapping
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final, NamedTuple, Self, TypeAlias

from msgspec import UnsetType

from .condition import UNKNOWN, Scene, is_number, parse_path
from .pattern import USER, CallPattern, ToolPattern
from .remembered import Fields
from .rule import Rule

#: The most keys that a rule remembers, by its scope.
MOST_KEYS: Final = {"turn": 10_000, "session": 1_000}
#: The last calls that a verdict names.
MOST_EVIDENCE: Final = 3
#: Larger whole numbers are texts in a saved state: JSON readers take 64 bits.
_LARGEST: Final = 2**53
#: Sums of amounts are exact: no sum of floats has more digits.
_EXACT: Final = Context(prec=700)

Amount: TypeAlias = Decimal | int
Evidence: TypeAlias = tuple[str, ...]
#: The state of a monitor as JSON values.
MonitorState: TypeAlias = Mapping[str, Any]
#: Changes the ids of calls where a state leaves its turn.
Rename: TypeAlias = Callable[[str], str]


class Refusal(NamedTuple):
    """The words of a refusal, and the ids of the earlier calls that decided it."""

    words: str
    by: Evidence = ()


class Start(NamedTuple):
    """A start that a monitor counts: the id of the call, its place in the order of events, and its amount."""

    order: int
    event: str
    amount: Amount = 1


class Monitor:
    """The state of one rule, or of one pair of calls that `not_both` forbids together.

    `judged_pattern` are the calls that it judges, `counted_pattern` those whose starts it counts, `needed_pattern`
    those whose ok results it reads. A monitor has only the methods of the patterns that it sets, so a call of another
    one is a bug.
    """

    judged_pattern: CallPattern | None = None
    counted_pattern: CallPattern | None = None
    needed_pattern: CallPattern | None = None
    #: Whether it judges answers, whatever they say.
    judges_answers = False
    #: Whether earlier calls change what it judges.
    has_state = True
    #: Whether the rule is the caller's: it judges no answer of a sub-agent, and reads no message to it.
    is_inherited = False

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        pairs = rule.pairs()
        #: The compared fields of the judged call, and of the other call.
        self.here, self.there = Fields(pairs), Fields(pairs.values())
        self.most_keys = MOST_KEYS[rule.scope]
        self._same = f" with the same {', '.join(pairs)}" if pairs else ""
        self.clear()

    @property
    def is_owed(self) -> bool:
        """Whether a call is owed before an answer."""
        return False

    @property
    def remembered(self) -> Evidence:
        """The last calls that the state remembers: those that a later verdict may name."""
        return ()

    @property
    def counted_fields(self) -> Fields:
        """The compared fields of the calls whose starts are counted."""
        return self.here

    def clear(self) -> None:
        """Forget everything."""
        self.full = False
        #: Whether a sub-agent ended without a report of its calls.
        self.lacks_report = False

    @property
    def gap(self) -> str:
        """The reason why the history is not whole, in words; empty if it is."""
        if self.lacks_report:
            return "its history is not whole: a sub-agent did not report its calls"
        return f"its history is full ({self.most_keys} keys)" if self.full else ""

    def copy(self) -> Self:
        """Return a copy with a state of its own."""
        twin = object.__new__(type(self))
        twin.__dict__ = vars(self).copy()
        twin.detach()
        return twin

    def detach(self) -> None:
        """Make the state, which another monitor shares, this one's own."""

    def save(self, rename: Rename) -> dict[str, Any]:
        """Return the state as JSON values, with the ids of its calls renamed."""
        del rename
        return {name: True for name in ("full", "lacks_report") if getattr(self, name)}

    def restore(self, state: MonitorState) -> None:
        """Take a state that `save` returned. Raises `LookupError`, `TypeError` or `ValueError` for another one."""
        self.clear()
        self.full, self.lacks_report = "full" in state, "lacks_report" in state

    def judge(self, tool: str, scene: Scene) -> Refusal | Evidence | None:
        """Return why a call that matches is refused, or the calls that allow it; None if the rule does not act."""
        key = self.here.key(scene)
        if key is None:
            return Refusal(f"{tool} lacks a field that the rule compares: {', '.join(self.rule.pairs())}")
        if self.full or self.lacks_report:
            return Refusal(self.gap)
        return self.judge_key(tool, key, scene)

    def judge_key(self, tool: str, key: str, scene: Scene) -> Refusal | Evidence | None:
        """Judge a call whose compared fields are there and make `key`."""
        raise NotImplementedError

    def start(self, event: str, order: int, scene: Scene, *, certain: bool) -> None:
        """Count a start that matches; if it is not certain, until `confirm` or `take_back`."""
        raise NotImplementedError

    def take_back(self, event: str) -> None:
        """Forget a start: its outcome shows that it does not match."""
        raise NotImplementedError

    def confirm(self, event: str, order: int, scene: Scene) -> None:
        """Keep a start for good, with the key that its outcome makes. It may have matched only by its outcome."""
        raise NotImplementedError

    def succeed(self, start: Start, order: int, tool: str, pattern: ToolPattern, scene: Scene) -> None:
        """Read the ok result, at `order`, of a needed call that began with `start`."""
        raise NotImplementedError


class _Starts:
    """The counted starts of one key: the last certain ones, the total of all, and those that are not certain."""

    __slots__ = ("last", "total", "uncertain")

    def __init__(self) -> None:
        self.total: Amount = 0
        self.last: list[Start] = []
        self.uncertain: dict[str, Start] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no start is counted."""
        return not self.last and not self.uncertain

    def copy(self) -> "_Starts":
        """Return a copy with lists of its own."""
        twin = _Starts()
        twin.total, twin.last, twin.uncertain = self.total, [*self.last], {**self.uncertain}
        return twin

    def save(self, key: str | None, rename: Rename) -> list[Any]:
        """Return the starts of a key as JSON values."""
        uncertain = [_save_start(start, rename) for start in self.uncertain.values()]
        return [key, _save_amount(self.total), [_save_start(start, rename) for start in self.last], uncertain]

    @classmethod
    def restore(cls, total: Any, last: Iterable[Any], uncertain: Iterable[Any]) -> "_Starts":  # noqa: ANN401 (JSON)
        """Return the starts that `save` returned."""
        starts = cls()
        starts.total = _restore_amount(total)
        starts.last = [_restore_start(start) for start in last]
        starts.uncertain = {start.event: start for start in map(_restore_start, uncertain)}
        return starts

    def keep(self, start: Start) -> None:
        """Count a start for good."""
        self.total = _add(self.total, start.amount)
        self.last.append(start)
        if len(self.last) > 1 and self.last[-2].order > start.order:
            self.last.sort()
        if len(self.last) > MOST_EVIDENCE:
            del self.last[0]

    def drop_before(self, order: int) -> list[str]:
        """Forget the starts before `order`, and return the ids of those that were not certain."""
        self.last = [start for start in self.last if start.order >= order]
        events = [event for event, start in self.uncertain.items() if start.order < order]
        for event in events:
            del self.uncertain[event]
        return events


class _StartsMonitor(Monitor):
    """A monitor that counts starts by their keys."""

    def clear(self) -> None:
        super().clear()
        self._starts: dict[str | None, _Starts] = {}
        #: The keys of the starts that are not certain.
        self._keys: dict[str, str | None] = {}

    @property
    def remembered(self) -> Evidence:
        return self._events(self._starts)

    def detach(self) -> None:
        self._starts = {key: starts.copy() for key, starts in self._starts.items()}
        self._keys = {**self._keys}

    def save(self, rename: Rename) -> dict[str, Any]:
        starts = [starts.save(key, rename) for key, starts in self._starts.items()]
        return super().save(rename) | ({"starts": starts} if starts else {})

    def restore(self, state: MonitorState) -> None:
        super().restore(state)
        for key, total, last, uncertain in state.get("starts", ()):
            starts = self._starts[key] = _Starts.restore(total, last, uncertain)
            self._keys |= dict.fromkeys(starts.uncertain, key)

    def start(self, event: str, order: int, scene: Scene, *, certain: bool) -> None:
        key = self.counted_fields.key(scene)
        starts = self._starts_of(key)
        if starts is None:
            return
        start = Start(order, event, self.amount(scene) or 0)
        if certain:
            starts.keep(start)
        else:
            starts.uncertain[event] = start
            self._keys[event] = key

    def take_back(self, event: str) -> None:
        self._pop(event)

    def confirm(self, event: str, order: int, scene: Scene) -> None:
        if event not in self._keys:
            self.start(event, order, scene, certain=True)
        elif self.counted_fields.reads_outcome:
            self._pop(event)
            self.start(event, order, scene, certain=True)
        else:
            starts = self._starts[self._keys.pop(event)]
            starts.keep(starts.uncertain.pop(event))

    def amount(self, scene: Scene) -> Amount | None:  # noqa: ARG002 (`sum` reads it)
        """Return how much a call counts; None if its amount is missing."""
        return 1

    def _pop(self, event: str) -> None:
        if event in self._keys:
            key = self._keys.pop(event)
            del self._starts[key].uncertain[event]
            self._drop_if_empty(key)

    def _drop_if_empty(self, key: str | None) -> None:
        if self._starts[key].is_empty:
            del self._starts[key]

    def _starts_of(self, key: str | None) -> _Starts | None:
        starts = self._starts.get(key)
        if starts is None and len(self._starts) < self.most_keys:
            starts = self._starts[key] = _Starts()
        self.full |= starts is None
        return starts

    def _events(self, keys: Iterable[str | None]) -> Evidence:
        starts: list[Start] = []
        for key in keys:
            if key in self._starts:
                starts += self._starts[key].last
                starts += self._starts[key].uncertain.values()
        if len(starts) > 1:
            starts.sort()
        return tuple([start.event for start in starts[-MOST_EVIDENCE:]])


class _Ok(NamedTuple):
    """The latest ok call of a needed tool, with the values that a condition on `this` compares later."""

    order: int
    event: str
    pattern: ToolPattern
    values: Scene | None


class _NeedMonitor(Monitor):
    """`before` and `need`: the latest ok call of each needed tool decides."""

    def __init__(self, rule: Rule, judged_pattern: CallPattern, needed_pattern: CallPattern) -> None:
        super().__init__(rule)
        self.judged_pattern, self.needed_pattern = judged_pattern, needed_pattern
        #: Whether it needs a message of the user, which has no outcome.
        self.is_for_messages = all(part.tool == USER for part in needed_pattern.parts)
        #: A start uses up the need of its key.
        self.counted_pattern = judged_pattern if rule.once else None

    def clear(self) -> None:
        super().clear()
        self._ok: dict[str, dict[str, _Ok]] = {}
        #: The starts that used up their need: the last certain one of each key, and those that are not certain.
        self._uses: dict[str | None, dict[str, int]] = {}
        self._keys: dict[str, str | None] = {}

    @property
    def remembered(self) -> Evidence:
        unused_events = [
            (call.order, call.event)
            for key, calls in self._ok.items()
            for call in calls.values()
            if call.order > self._last_use(key)
        ]
        return tuple([event for _, event in sorted(unused_events)[-MOST_EVIDENCE:]])

    def detach(self) -> None:
        self._ok = {key: {**calls} for key, calls in self._ok.items()}
        self._uses = {key: {**uses} for key, uses in self._uses.items()}
        self._keys = {**self._keys}

    def save(self, rename: Rename) -> dict[str, Any]:
        state = super().save(rename)
        if self._ok:
            state["ok"] = [
                [
                    key,
                    [[tool, call.order, rename(call.event), _save_scene(call.values)] for tool, call in calls.items()],
                ]
                for key, calls in self._ok.items()
            ]
        if self._uses:
            state["uses"] = [
                [key, [[rename(event), order, event in self._keys] for event, order in uses.items()]]
                for key, uses in self._uses.items()
            ]
        return state

    def restore(self, state: MonitorState) -> None:
        super().restore(state)
        for key, calls in state.get("ok", ()):
            for tool, order, event, values in calls:
                pattern = None if self.needed_pattern is None else self.needed_pattern.bind(tool)
                if pattern is not None:
                    self._ok.setdefault(key, {})[tool] = _Ok(order, event, pattern, _restore_scene(values))
        for key, uses in state.get("uses", ()):
            for event, order, is_uncertain in uses:
                self._uses.setdefault(key, {})[event] = order
                if is_uncertain:
                    self._keys[event] = key

    def judge_key(self, tool: str, key: str, scene: Scene) -> Refusal | Evidence:
        last_use = self._last_use(key) if self._uses else 0
        latest = [(name, call) for name, call in self._ok.get(key, {}).items() if call.order > last_use]
        for _, call in latest:
            if call.values is None or call.pattern(_make_scene_beside(call.values, scene)) is True:
                return (call.event,)
        if not latest:
            outcome = "" if self.is_for_messages else "ok "
            return Refusal(f"{tool} needs an earlier {outcome}{self.needed_pattern}{self._same}")
        names = " and ".join(name for name, _ in latest[-MOST_EVIDENCE:])
        by = tuple(call.event for _, call in latest[-MOST_EVIDENCE:])
        return Refusal(f"the latest {names} does not allow {tool}: {self.needed_pattern}", by)

    def start(self, event: str, order: int, scene: Scene, *, certain: bool) -> None:
        key = self.here.key(scene)
        if not self._has_room(key in self._uses, len(self._uses)):
            return
        self._uses.setdefault(key, {})[event] = order
        self._keys[event] = key
        if certain:
            self.confirm(event, order, scene)

    def take_back(self, event: str) -> None:
        if event in self._keys:
            key = self._keys.pop(event)
            del self._uses[key][event]
            if not self._uses[key]:
                del self._uses[key]

    def confirm(self, event: str, order: int, scene: Scene) -> None:
        if event not in self._keys:
            self.start(event, order, scene, certain=True)
            return
        uses = self._uses[self._keys.pop(event)]
        for earlier in [name for name, place in uses.items() if place < order]:
            del uses[earlier]
            self._keys.pop(earlier, None)

    def succeed(self, start: Start, order: int, tool: str, pattern: ToolPattern, scene: Scene) -> None:
        key = self.there.key(scene)
        if key is None:
            return
        values = None if pattern.memory is None else pattern.memory.keep(scene)
        if values is None and pattern(scene) is not True:
            calls = self._ok.get(key, {})
            calls.pop(tool, None)
            if not calls:
                self._ok.pop(key, None)
        elif self._has_room(key in self._ok, len(self._ok)):
            calls = self._ok.setdefault(key, {})
            calls.pop(tool, None)  # so that the latest is the last
            calls[tool] = _Ok(order, start.event, pattern, values)

    def _last_use(self, key: str) -> int:
        return max((order for name in (key, None) for order in self._uses.get(name, {}).values()), default=0)

    def _has_room(self, is_known: bool, keys: int) -> bool:
        self.full |= not is_known and keys >= self.most_keys
        return is_known or keys < self.most_keys


class _AfterMonitor(_StartsMonitor):
    """`after` and `never`, and each order of a pair of `not_both`: no judged call after a counted one."""

    def __init__(self, rule: Rule, judged_pattern: CallPattern, counted_pattern: CallPattern) -> None:
        super().__init__(rule)
        self.judged_pattern, self.counted_pattern = judged_pattern, counted_pattern

    @property
    def counted_fields(self) -> Fields:
        return self.there

    def judge_key(self, tool: str, key: str, scene: Scene) -> Refusal | None:  # noqa: ARG002
        if key not in self._starts and None not in self._starts:
            return None
        return Refusal(f"{tool} may not follow {self.counted_pattern}{self._same}", self._events((key, None)))


class _NeverMonitor(Monitor):
    """`never`: no judged call at all."""

    has_state = False

    def __init__(self, rule: Rule, judged_pattern: CallPattern) -> None:
        super().__init__(rule)
        self.judged_pattern = judged_pattern

    def judge(self, tool: str, scene: Scene) -> Refusal:  # noqa: ARG002
        return Refusal(f"{self.judged_pattern} is never allowed")


class _CountMonitor(_StartsMonitor):
    """`at_most` and `of`: so many starts, or so much of a field, for each value of `per`."""

    def __init__(self, rule: Rule, counted_pattern: CallPattern) -> None:
        super().__init__(rule)
        self.judged_pattern = self.counted_pattern = counted_pattern
        self._field = parse_path(rule.sum) if rule.sum else None
        self._most = 0 if isinstance(rule.at_most, UnsetType) else _amount(rule.at_most)

    def judge_key(self, tool: str, key: str, scene: Scene) -> Refusal | Evidence:
        total = self.amount(scene)
        if total is None:
            return Refusal(f"{self.rule.sum} of {tool} is missing, or is not a number from 0 on")
        starts = self._starts.get(key)
        by: Evidence = ()
        if starts is not None:
            total = _add(total, starts.total)
            for start in starts.uncertain.values():
                total = _add(total, start.amount)
            by = self._events((key,))
        if total > self._most:
            most = f"at most {self._most}"
            words = (
                f"{self.rule.sum} of {self.counted_pattern} adds up to {most}"
                if self.rule.sum
                else f"{most} {self.counted_pattern}"
            )
            return Refusal(f"{words}{self._same}", by)
        return by

    def amount(self, scene: Scene) -> Amount | None:
        if self._field is None:
            return 1
        value = self._field.read(scene)
        return _amount(value) if isinstance(value, int | float) and is_number(value) and value >= 0 else None


class _OweMonitor(_StartsMonitor):
    """`after` and `then`: after a counted call, an answer is owed a needed one that starts later."""

    judges_answers = True

    def __init__(self, rule: Rule, counted_pattern: CallPattern, needed_pattern: CallPattern) -> None:
        super().__init__(rule)
        self.counted_pattern, self.needed_pattern = counted_pattern, needed_pattern

    def clear(self) -> None:
        super().clear()
        #: Starts that were not certain when a needed call came: their outcome opens nothing.
        self._met: set[str] = set()

    def detach(self) -> None:
        super().detach()
        self._met = {*self._met}

    def save(self, rename: Rename) -> dict[str, Any]:
        met_events = sorted(rename(event) for event in self._met)
        return super().save(rename) | ({"met": met_events} if met_events else {})

    def restore(self, state: MonitorState) -> None:
        super().restore(state)
        self._met = set(state.get("met", ()))

    def take_back(self, event: str) -> None:
        super().take_back(event)
        self._met.discard(event)

    def confirm(self, event: str, order: int, scene: Scene) -> None:
        if event in self._met:
            self._met.remove(event)
        else:
            super().confirm(event, order, scene)

    @property
    def is_owed(self) -> bool:
        return bool(self._starts or self.gap)

    def judge(self, tool: str, scene: Scene) -> Refusal | None:  # noqa: ARG002
        if self.full or self.lacks_report:
            return Refusal(self.gap)
        if not self._starts:
            return None
        return Refusal(
            f"{self.needed_pattern} must follow {self.counted_pattern} before the answer{self._same}",
            self._events(self._starts),
        )

    def succeed(self, start: Start, order: int, tool: str, pattern: ToolPattern, scene: Scene) -> None:  # noqa: ARG002
        key = self.there.key(scene) if pattern(scene) is True else None
        if key is None:
            return
        for name in (key, None):
            if name in self._starts:
                for event in self._starts[name].drop_before(start.order):
                    del self._keys[event]
                    self._met.add(event)
                self._drop_if_empty(name)


def make_monitors(rule: Rule, patterns: dict[str, tuple[CallPattern, ...]]) -> list[Monitor]:
    """Return the monitors of a rule: one, or for `not_both` one for each order of two of its calls."""
    words = {word: calls[0] for word, calls in patterns.items()}
    match rule.form:
        case ("before", "need"):
            return [_NeedMonitor(rule, words["before"], words["need"])]
        case ("after", "never"):
            return [_AfterMonitor(rule, words["never"], words["after"])]
        case ("never",):
            return [_NeverMonitor(rule, words["never"])]
        case ("at_most", "of"):
            return [_CountMonitor(rule, words["of"])]
        case ("after", "then"):
            return [_OweMonitor(rule, words["after"], words["then"])]
        case _:
            calls = patterns["not_both"]
            return [
                _AfterMonitor(rule, judged_pattern, counted_pattern)
                for judged_pattern in calls
                for counted_pattern in calls
                if judged_pattern is not counted_pattern
            ]


def _make_scene_beside(values: Scene, judged_call: Scene) -> Scene:
    """Return the values of an earlier call beside the call that is judged."""
    call = {"args": judged_call.args, "text": judged_call.text}
    return Scene(values.args, status=values.status, text=values.text, result=values.result, judged_call=call)


def _save_start(start: Start, rename: Rename) -> list[Any]:
    return [start.order, rename(start.event), _save_amount(start.amount)]


def _restore_start(start: Iterable[Any]) -> Start:
    order, event, amount = start
    return Start(order, event, _restore_amount(amount))


def _save_amount(amount: Amount) -> int | str:
    """Return an amount as JSON: a text for one with decimals or many digits."""
    return amount if isinstance(amount, int) and abs(amount) < _LARGEST else str(amount)


def _restore_amount(amount: int | str) -> Amount:
    if isinstance(amount, int):
        return amount
    if amount.isdigit():
        return int(amount)
    try:
        number = Decimal(amount)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite():
        raise ValueError(f"{amount!r} is not an amount")
    return number


def _save_scene(values: Scene | None) -> dict[str, Any] | None:
    """Return the values that are kept of a call, without those that are not there."""
    if values is None:
        return None
    fields = {name: getattr(values, name) for name in ("args", "status", "text", "result")}
    return {name: value for name, value in fields.items() if value is not UNKNOWN}


def _restore_scene(values: Mapping[str, Any] | None) -> Scene | None:
    if values is None:
        return None
    outcome = dict(values)
    return Scene(outcome.pop("args", UNKNOWN), **outcome)


def _amount(value: float) -> Amount:
    """Return a number as its decimal digits say it, for exact sums."""
    return int(value) if value == int(value) else Decimal(repr(value))


def _add(first: Amount, second: Amount) -> Amount:
    if type(first) is int and type(second) is int:
        return first + second
    return _EXACT.add(Decimal(first), Decimal(second))
