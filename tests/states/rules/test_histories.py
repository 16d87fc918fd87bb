"""Judgments are those of the definitions over whole histories, which share no code with the monitors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import given, reject, settings
from hypothesis import strategies as st
from tests.hypothesis_examples import percent_of_examples

from turnwright_states.rules import History, InvalidRuleError, Rule

TOOLS: Final = ("a", "b", "c")
#: A condition as its text, and as a function of a call and of the judged call: True, False, or None for UNKNOWN.
Test = Callable[["Call", "Call | None"], bool | None]


@dataclass
class Call:
    """A call, and its outcome as far as it is known."""

    id: str
    tool: str
    args: Mapping[str, Any]
    start: int
    turn: int
    status: str | None = None
    result: Mapping[str, Any] | None = None
    end: int | None = None

    def at(self, place: int) -> "Call":
        """Return the call as it was known at a place in the history."""
        if self.end is None or self.end <= place:
            return self
        return Call(self.id, self.tool, self.args, self.start, self.turn)

    def get(self, path: str) -> Any:  # noqa: ANN401 (a JSON value)
        root, _, name = path.rpartition(".")
        values = self.result if root == "result" else self.args
        return None if values is None else values.get(name)


def positive(value: Any) -> bool | None:  # noqa: ANN401 (a JSON value)
    return None if not isinstance(value, int) else value > 0


def is_status(call: Call, status: str) -> bool | None:
    return None if call.status is None else call.status == status


def is_same(call: Call, judged: Call | None) -> bool | None:
    assert judged is not None
    values = (judged.args.get("n"), call.get("result.n"))
    return None if None in values else values[0] == values[1]


PLAIN: Final[dict[str, Test]] = {
    "": lambda _, __: True,
    " if args.n > 0": lambda call, _: positive(call.args.get("n")),
}
OUTCOME: Final[dict[str, Test]] = {
    **PLAIN,
    " if status == 'ok'": lambda call, _: is_status(call, "ok"),
    " if status != 'error'": lambda call, _: None if call.status is None else call.status != "error",
    " if default(status, 'none') == 'ok'": lambda call, _: call.status == "ok",
    " if result.n > 0": lambda call, _: positive(call.get("result.n")),
}
NEEDED: Final[dict[str, Test]] = {**OUTCOME, " if this.args.n == result.n": is_same}
EVERY: Final = {**OUTCOME, **NEEDED}
SAME: Final[tuple[Any, ...]] = ((), ("k",), {"k": "result.k"}, ("k", "n"))


def patterns(tests: Mapping[str, Test]) -> st.SearchStrategy[list[str]]:
    parts = st.builds("{}{}".format, st.sampled_from((*TOOLS, "*")), st.sampled_from(list(tests)))
    return st.lists(parts, min_size=1, max_size=2)


def make_rule(**words: Any) -> Rule:  # noqa: ANN401 (the words of each form)
    """Return a rule, unless it could never be met."""
    try:
        return Rule(**words)
    except InvalidRuleError:
        reject()


COMMON: Final = {"name": st.just("r"), "scope": st.sampled_from(["turn", "session"])}
SAMES: Final = st.sampled_from(SAME)
RULES: Final = st.one_of(
    st.builds(make_rule, **COMMON, before=patterns(PLAIN), need=patterns(NEEDED), same=SAMES),
    st.builds(make_rule, **COMMON, before=patterns(OUTCOME), need=patterns(NEEDED), same=SAMES, once=st.just(True)),
    st.builds(Rule, **COMMON, before=st.just("@answer"), need=patterns(OUTCOME)),
    st.builds(Rule, **COMMON, after=patterns(OUTCOME), never=patterns(PLAIN), same=SAMES),
    st.builds(Rule, **COMMON, never=patterns(PLAIN)),
    st.builds(
        Rule,
        **COMMON,
        at_most=st.integers(0, 3),
        of=patterns(OUTCOME),
        per=st.sampled_from([(), "k", ("k", "n")]),
        sum=st.sampled_from(["", "n"]),
    ),
    st.builds(make_rule, **COMMON, after=patterns(OUTCOME), then=patterns(OUTCOME), same=SAMES),
    st.builds(
        make_rule,
        **COMMON,
        not_both=st.lists(patterns(OUTCOME), min_size=2, max_size=3),
        same=st.sampled_from([(), ("k",)]),
    ),
)
VALUES: Final = st.fixed_dictionaries({}, optional={"k": st.integers(0, 1) | st.just(True), "n": st.integers(-1, 2)})
EVENTS: Final = st.lists(
    st.one_of(
        st.tuples(st.just("turn")),
        st.tuples(st.just("start"), st.sampled_from(TOOLS), VALUES),
        st.tuples(st.just("start"), st.sampled_from(TOOLS), VALUES),
        st.tuples(st.just("settle"), st.integers(0, 3), st.sampled_from(["ok", "ok", "error", "unknown"]), VALUES),
        st.tuples(st.just("settle"), st.integers(0, 3), st.sampled_from(["ok", "ok", "error", "unknown"]), VALUES),
    ),
    max_size=14,
)


@dataclass
class Definition:
    """The meaning of one rule over the calls of a history, by brute force."""

    rule: Rule
    calls: list[Call] = field(default_factory=list)
    turn: int = 0
    now: int = 0

    def breaks(self, judged: Call) -> bool:
        rule = self.rule
        match rule.form:
            case ("before", "need"):
                return self.matches(rule.calls("before"), judged) is not False and not self.has_need(judged)
            case ("after", "never"):
                return self.matches(rule.calls("never"), judged) is not False and self.follows(
                    judged, rule.calls("after")
                )
            case ("never",):
                return self.matches(rule.calls("never"), judged) is not False
            case ("at_most", "of"):
                return self.matches(rule.calls("of"), judged) is not False and self.is_too_much(judged)
            case ("after", "then"):
                return judged.tool == "@answer" and self.owes()
            case _:
                pairs = [tuple(call) for call in rule.not_both]  # type: ignore[union-attr]
                return any(
                    self.matches(first, judged) is not False and self.follows(judged, second)
                    for place, first in enumerate(pairs)
                    for other_place, second in enumerate(pairs)
                    if place != other_place
                )

    def visible(self) -> Iterator[Call]:
        for call in self.calls:
            if self.rule.scope == "session" or call.turn == self.turn:
                yield call

    @staticmethod
    def matches(parts: Sequence[str], call: Call, judged: Call | None = None) -> bool | None:
        truths: list[bool | None] = []
        for part in parts:
            tool, _, condition = part.partition(" if ")
            if tool == call.tool or (tool == "*" and not call.tool.startswith("@")):
                truths.append(EVERY[f" if {condition}" if condition else ""](call, judged))
        return True if True in truths else None if None in truths else False

    def key(self, call: Call, side: str) -> tuple[object, ...] | None:
        fields = self.rule.pairs() if side == "here" else list(self.rule.pairs().values())
        values = [call.get(name) for name in fields]
        return None if None in values else tuple((value, isinstance(value, bool)) for value in values)

    def has_need(self, judged: Call) -> bool:
        key = self.key(judged, "here")
        if key is None:
            return False
        last_use = max(
            (
                call.start
                for call in self.visible()
                if self.rule.once
                and self.matches(self.rule.calls("before"), call) is not False
                and self.key(call, "here") in (key, None)
            ),
            default=-1,
        )
        for tool in TOOLS:
            oks = [
                call
                for call in self.visible()
                if call.tool == tool
                and call.status == "ok"
                and self.key(call, "there") == key
                and self.matches([part.partition(" if ")[0] for part in self.rule.calls("need")], call)
            ]
            latest = max(oks, key=lambda call: call.end or 0, default=None)
            is_unused = latest is not None and (latest.end or 0) > last_use
            if is_unused and latest and self.matches(self.rule.calls("need"), latest, judged) is True:
                return True
        return False

    def follows(self, judged: Call, after: Sequence[str]) -> bool:
        key = self.key(judged, "here")
        return key is None or any(
            self.matches(after, call) is not False and self.key(call, "there") in (key, None) for call in self.visible()
        )

    def is_too_much(self, judged: Call) -> bool:
        key, name = self.key(judged, "here"), self.rule.sum
        amount = judged.args.get(name) if name else 1
        if key is None or amount is None or amount < 0:
            return True
        total = amount
        for call in self.visible():
            if self.matches(self.rule.calls("of"), call) is not False and self.key(call, "here") == key:
                total += max(call.args.get(name, 0), 0) if name else 1
        assert isinstance(self.rule.at_most, float | int)
        return bool(total > self.rule.at_most)

    def owes(self) -> bool:
        return any(
            self.matches(self.rule.calls("after"), call) is not False and not self.is_met(call)
            for call in self.visible()
        )

    def is_met(self, call: Call) -> bool:
        for later in self.visible():
            if later.status == "ok" and later.end is not None and later.start > call.start:
                then = call.at(later.end)
                key = self.key(later, "there")
                opened = self.matches(self.rule.calls("after"), then) is not False
                matched = self.matches(self.rule.calls("then"), later) is True
                if opened and matched and key is not None and self.key(then, "here") in (key, None):
                    return True
        return False


@settings(max_examples=percent_of_examples(1_000))
@given(rule=RULES, events=EVENTS, judged_args=VALUES)
def test_monitors_and_definitions_over_histories_agree(
    rule: Rule, events: list[tuple[Any, ...]], judged_args: dict[str, Any]
) -> None:
    """Meaning 2, 3, 4, 5 and 15: who counts, settling, the latest, equality and the scope."""
    history, definition = History([rule]), Definition(rule)
    for place, event in enumerate([*events, ("end",)], start=1):
        definition.now = place
        match event:
            case ("turn",):
                history.begin_turn()
                definition.turn += 1
            case ("start", tool, args):
                call = Call(f"call{place}", tool, args, place, definition.turn)
                definition.calls.append(call)
                history.started(call.id, tool, args)
            case ("settle", number, status, result):
                waiting = [call for call in definition.calls if call.end is None]
                if waiting:
                    call = waiting[number % len(waiting)]
                    call.status, call.end = status, place
                    call.result = result if status in ("ok", "error") else None
                    history.settle(call.id, status, result)
        for tool in TOOLS:
            judged = Call("judged", tool, judged_args, place, definition.turn)
            broken = history.judge(tool, judged_args)
            assert bool(broken) is definition.breaks(judged), (place, tool)
            assert {call for row in broken for call in row.by} <= {call.id for call in definition.calls}
        answer = Call("judged", "@answer", {}, place, definition.turn)
        assert bool(history.answer("done")) is definition.breaks(answer), place
