"""Counts of what a run reached: tools, hooks, guardrails, endings and invariants, and what never occurred."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from turnwright._base.words import count
from turnwright.agent import Agent
from turnwright.driver.hooks.hooks import HOOKS, Hooks, overrides
from turnwright_states import CallStatus, Decision
from turnwright_states import facts as f

#: Hooks that decide nothing.
_OBSERVING: Final = ("on_start", "on_end")


def _counters() -> defaultdict[str, Counter[str]]:
    return defaultdict(Counter)


@dataclass(slots=True)
class Reached:
    """Counts of a run. Each maps a name to how often each of its events occurred."""

    tools: defaultdict[str, Counter[str]] = field(default_factory=_counters)
    """`asked for`, `started`, `ok`, `error`, `approved`, `rejected`, `crashed`, ... of each tool."""
    hooks: defaultdict[str, Counter[str]] = field(default_factory=_counters)
    """The decisions of each hook and guardrail."""
    invariants: defaultdict[str, Counter[str]] = field(default_factory=_counters)
    """The checks of each invariant (`checked`), and those in which one of its assertions was executed (`reached`)."""
    ends: Counter[str] = field(default_factory=Counter)
    """The turns by `outcome/reason`."""
    warnings: dict[str, None] = field(default_factory=dict)
    """Sentences about things that are not faults, each once."""

    def expect(self, agent: Agent, hooks: Sequence[object], tools: Sequence[str], invariants: Sequence[str]) -> None:
        """Note what a run is to reach."""
        self.expect_tools(tools)
        for name in invariants:
            self.invariants[name].update(())
        deciding = [hook for hook in hooks if not isinstance(hook, Hooks) or _decides(hook)]
        for hook in (*deciding, *agent.output_validators):
            self.hooks[name_of(hook)].update(())

    def expect_tools(self, tools: Iterable[str]) -> None:
        """Note tools that a run is to start."""
        for name in tools:
            self.tools[name].update(())

    def warn(self) -> Iterator[str]:
        """Return a sentence for each thing that the run never did."""
        for name, events in self.tools.items():
            if not events["started"]:
                yield f"tool {name} never started ({count(events['asked for'], 'call')} asked for it)"
        for name, events in self.hooks.items():
            if not events:
                yield f"hook {name} never decided anything"
        for name, events in self.invariants.items():
            if not events["reached"]:
                checks = count(events["checked"], "check")
                yield f"{name} never reached an assertion ({checks}): its precondition never held"
        yield from self.warnings

    def events(self) -> Iterator[str]:
        """Return each thing that occurred: `tool book: started`, `hook cap: reject`, `turn: finished/answered`."""
        for title, rows in (("tool", self.tools), ("hook", self.hooks), ("invariant", self.invariants)):
            yield from (f"{title} {name}: {event}" for name, events in rows.items() for event in events)
        yield from (f"turn: {ending}" for ending in self.ends)

    def lines(self) -> Iterator[str]:
        """Return a line for each tool, hook, invariant and ending, with its counts."""
        for title, rows in (("tool", self.tools), ("hook", self.hooks), ("invariant", self.invariants)):
            for name, events in rows.items():
                counts = ", ".join(f"{event} {number}" for event, number in events.items())
                yield f"  {title} {name}: {counts or 'never'}"
        yield from (f"  turns {ending}: {number}" for ending, number in self.ends.most_common())


def name_of(hook: object) -> str:
    """Return the name of a hook, a guardrail or a validator."""
    return str(getattr(hook, "name", getattr(hook, "__name__", hook)))


def _decides(hook: Hooks[object]) -> bool:
    return any(overrides(hook, on) for on in HOOKS if on not in _OBSERVING)


class ReachedTurns:
    """Counts the facts of turns."""

    def __init__(self, reach_counts: Reached) -> None:
        self._reached = reach_counts
        self._tools: dict[tuple[str, str], str] = {}
        self._interrupts: dict[tuple[str, str], str] = {}

    def add(self, turn: str, fact: f.Fact) -> None:
        """Count a fact."""
        tools = self._reached.tools
        # A guardrail that passed, and an approval that covers the call, are decisions too.
        for decision in (decision for decision in getattr(fact, "decisions", ()) if "hook" in decision):
            self._reached.hooks[str(decision["hook"])][str(decision["decision"])] += 1
        match fact:
            case f.ModelReplied():
                self._tools |= {(turn, call.id): call.name for call in fact.calls}
                for call in fact.calls:
                    if call.name in tools:
                        tools[call.name]["asked for"] += 1
            case f.CallStarted():
                tools[self.tool(turn, fact.call)]["started"] += 1
            case f.CallWaiting():
                for interrupt in (fact.interrupt, *fact.more):
                    self._interrupts[turn, interrupt.id] = interrupt.tool
            case f.Answered() if (turn, fact.interrupt) in self._interrupts:
                is_refused = fact.decision is Decision.REJECT
                tools[self._interrupts[turn, fact.interrupt]]["rejected" if is_refused else "approved"] += 1
            case f.CallSettled() if self.tool(turn, fact.call) in tools and fact.status is not CallStatus.REJECTED:
                tools[self.tool(turn, fact.call)][str(fact.status)] += 1
            case _:
                pass

    def tool(self, turn: str, call: str) -> str:
        """Return the name of a call's tool."""
        return self._tools.get((turn, call), call)
