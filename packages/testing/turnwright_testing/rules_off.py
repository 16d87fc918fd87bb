"""The rules that turns break when nothing holds them: what the rules of an agent prevent."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from turnwright.rules import History, RuleSet
from turnwright_states import facts as f
from turnwright_states.rules import Broken
from turnwright_states.state import Outcome


class Breach(Struct):
    """The calls and the answers that break one rule: how many, and the shortest one in words."""

    rule: str
    calls: int = 0
    answers: int = 0
    example: str = ""


def find_breaches(rules: Sequence[RuleSet], turns: Iterable[Sequence[f.Fact]]) -> dict[str, Breach]:
    """Return the rules that the calls and answers of a session break, by their names. Its turns ran without rules."""
    reader = _Reader(rules)
    for facts in turns:
        reader.read(facts)
    return reader.breaches


class _Reader:
    """Feeds the facts of turns to the history of rules."""

    def __init__(self, rules: Sequence[RuleSet]) -> None:
        self._history = History(rules)
        self.breaches: dict[str, Breach] = {}

    def read(self, facts: Sequence[f.Fact]) -> None:
        calls: dict[str, f.CallMade] = {}
        text = ""
        for fact in facts:
            match fact:
                case f.TurnStarted(prompt=prompt):
                    self._history.message(prompt)
                case f.MessageAdded(text=message):
                    self._history.steer(message)
                case f.ModelReplied():
                    calls |= {call.id: call for call in fact.calls}
                    text = fact.text
                case f.CallStarted(call=call, attempt=1) if call in calls:
                    arguments = calls[call].arguments or {} if fact.arguments is None else fact.arguments
                    self._note(self._history.judge(calls[call].name, arguments, call), calls[call].name, arguments)
                    self._history.started(call, calls[call].name, arguments)
                case f.CallSettled(call=call):
                    result = fact.result if fact.structured is None else fact.structured
                    self._history.settle(call, fact.status, result, fact.result)
                case f.TurnEnded(outcome=Outcome.FINISHED):
                    self._note(self._history.answer(text), "the answer", None)
                case _:
                    pass

    def _note(self, broken_rules: Iterable[Broken], tool: str, arguments: Mapping[str, object] | None) -> None:
        fields = ", ".join(f"{name}={value!r}" for name, value in (arguments or {}).items())
        words = tool if arguments is None else f"{tool}({fields})"
        for verdict in broken_rules:
            breach = self.breaches.setdefault(verdict.rule, Breach(verdict.rule))
            breach.calls += arguments is not None
            breach.answers += arguments is None
            if not breach.example or len(words) < len(breach.example):
                breach.example = words
