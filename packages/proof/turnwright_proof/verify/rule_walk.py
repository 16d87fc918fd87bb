"""The shipped machine, walked with the rules of an agent: no start and no answer that a rule forbids.

The rules are made small first. A condition becomes a field of the call, or of its result, that is true, false or
missing, so it is free: it allows more than the real condition does, and never less. `same` becomes one field with few
values, and so many calls as `at_most` allows become one. Each tool is walked with the rules that judge it, the tools
that these name, and one other tool. Of tools with equal roles one is walked.

Everything that starts, ends, pauses or repeats a call is tried, in each order. What starts no call is left out: failed
model calls, stops and compactions (`walk.py` has them). Each start and each answer is compared with the definitions of
the rules (`rule_meaning.py`), which share no code with the monitors.
"""

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Final, NamedTuple

from msgspec import UnsetType
from msgspec.structs import replace
from pydantic import JsonValue

from turnwright_states import facts as f
from turnwright_states.actions import AwaitPerson, CallModel, Halt, RunTools
from turnwright_states.amounts import format_number
from turnwright_states.inputs import (
    AnsweredInput,
    CallSettledInput,
    CallStartedInput,
    CallStatus,
    CallWaitingInput,
    Decision,
    Input,
    InterruptKind,
    JsonObject,
    ModelRepliedInput,
    StartedInput,
    SteeredInput,
    ToolCall,
    Usage,
)
from turnwright_states.limits import Limits
from turnwright_states.rules import ANSWER, LANGUAGE, USER, CallPattern, Condition, Rule, RuleList
from turnwright_states.rules.condition import parse_path
from turnwright_states.rules.pattern import names_tool
from turnwright_states.state import Outcome

from .case import Case
from .configuration import Key, WalkedMachine, whole_key_of
from .environment import Environment
from .rule_meaning import Event, SmallPart, SmallRule, Trace, breaks

#: The most configurations of one walk.
MOST_CONFIGURATIONS: Final = 30_000
#: The most calls of a turn; the second number is tried if a walk with the first one is too large.
_CALLS: Final = (3, 2)
#: The most calls that rules distinguish, and the most of one reply.
_MOST_ALPHABET: Final = 8
_WIDEST: Final = 2
#: The most messages of the user, the prompt included.
_MESSAGES: Final = 2
#: The name of a tool that no rule names.
OTHER: Final = "another_tool"
#: The name in a rule of tools that the agent does not have.
_NO_TOOL: Final = "no_tool"
_OUTCOME: Final = ("result", "text", "status")
_NOTHING: Final = Usage()
#: The values of a compared field and of a condition: with a missing one, without, and a single value.
VALUES: Final[tuple[tuple[tuple[JsonValue, ...], tuple[JsonValue, ...]], ...]] = (
    ((1, 2, None), (True, False, None)),
    ((1, 2), (True, False, None)),
    ((1, 2), (True, False)),
    ((1,), (True, False)),
)
_LIMITS: Final = Limits.model_validate(
    {"steps": max(_CALLS) + 1, "tool_calls": None, "max_retries": 0, "max_pauses": 1, "output_retries": 1}
    | {"doom_threshold": None, "stall_errors": None, "stall_rounds": None, "idle_steps": None}
)
#: The inputs that start, end, pause or repeat a call.
_TRIED: Final = (CallStartedInput, CallSettledInput, CallWaitingInput, AnsweredInput)


class RuleResult(NamedTuple):
    """The result for one rule: its sentence, and the shortest path that breaks it, if there is one.

    `free` are the conditions that the walk decides freely. `extent` says what was walked. `is_whole` is false if a walk
    was cut.
    """

    rule: Rule
    sentence: str
    free: tuple[str, ...]
    extent: str
    counterexample: tuple[str, ...] = ()
    is_whole: bool = True


def walk_rules(
    rules: RuleList,
    tools: Sequence[str],
    *,
    machine: type[WalkedMachine] = WalkedMachine,
    most: int = MOST_CONFIGURATIONS,
) -> list[RuleResult]:
    """Walk the machine with the rules of an agent with these tools, and return the result for each rule.

    Only tests pass another `machine`, with a planted fault.
    """
    walks_by_shape: dict[object, _SliceWalk] = {}
    walks = [(part, _walk_slice(part, walks_by_shape, machine, most)) for part in _slices(rules, tools)]
    return [_result_of(rule, words, walks) for rule, words in zip(rules.rules, rules.patterns, strict=True)]


_Words = Mapping[str, tuple[CallPattern, ...]]


class RuleSlice(NamedTuple):
    """The rules that judge one tool, or the answer, and the tools that have a role in them, the judged one first."""

    subject: str
    rules: tuple[tuple[Rule, _Words], ...]
    tools: tuple[str, ...]


class _SliceWalk(NamedTuple):
    """The walk of one slice: the shortest trace that breaks each rule, by its place in the slice."""

    broken: Mapping[str, Trace]
    configurations: int
    calls: int
    keys: int
    is_whole: bool


def _slices(rules: RuleList, tools: Sequence[str]) -> Iterator[RuleSlice]:
    known_roles: set[object] = set()
    pairs = list(zip(rules.rules, rules.patterns, strict=True))
    for subject in (*tools, ANSWER):
        judges = tuple(pair for pair in pairs if _judges(pair[1], subject))
        wide = slice_rules(judges, subject, tools)
        # A rule that another one helps holds alone too: more starts are possible then.
        parts = [wide] if len(alphabet_of(SmallSlice(wide), *VALUES[-2])) <= _MOST_ALPHABET else []
        for part in parts or [slice_rules((pair,), subject, tools) for pair in judges]:
            # A walk reads the rules and the roles of tools, not which of the tools was judged.
            names = tuple(rule.name for rule, _ in part.rules)
            roles = names, frozenset(_signature(part.rules, tool) for tool in part.tools)
            if part.rules and roles not in known_roles:
                known_roles.add(roles)
                yield part


def slice_rules(pairs: tuple[tuple[Rule, _Words], ...], subject: str, tools: Sequence[str]) -> RuleSlice:
    """Return the slice of these rules, with one tool for each role."""
    tool_of_signature: dict[object, str] = {}
    for tool in (subject, *tools, USER):
        signature = _signature(pairs, tool)
        if signature and tool != ANSWER:
            tool_of_signature.setdefault(signature, tool)
    return RuleSlice(subject, pairs, tuple(tool_of_signature.values()))


def _judges(words: _Words, subject: str) -> bool:
    if subject == ANSWER and "then" in words:
        return True
    judged_words = ("before", "of", "not_both", "never")
    return any(call.names(subject) for word in judged_words for call in words.get(word, ()))


def _signature(pairs: Sequence[tuple[Rule, _Words]], tool: str) -> tuple[object, ...]:
    """Return the roles of a tool in rules. Tools with equal roles are interchangeable."""
    return tuple(
        (rule.name, word, number, part.condition.text if part.condition else "")
        for rule, words in pairs
        for word, calls in words.items()
        for number, call in enumerate(calls)
        for part in call.parts
        if names_tool(part.tool, tool)
    )


class SmallSlice:
    """The rules of a slice, made small: as the machine and as the definitions read them, and the fields of each tool.

    Rules and tools are numbered, so that rules that differ only in names are walked once.
    """

    def __init__(self, part: RuleSlice) -> None:
        #: The tools by their numbers.
        self.tools = {tool: tool if tool == USER else f"tool{number}" for number, tool in enumerate(part.tools)}
        #: The names of fields by the conditions, and by the compared paths, that they replace.
        self.conditions: dict[str, str] = {}
        self.keys: dict[tuple[str, ...], str] = {}
        self.fields: dict[str, dict[str, None]] = {tool: {} for tool in self.tools.values()}
        self.texts: dict[str, None] = {}
        self.rules = tuple(
            self._shrink(f"rule{number}", rule, words) for number, (rule, words) in enumerate(part.rules)
        )

    @property
    def words(self) -> dict[str, str]:
        """The conditions and paths that fields replace, and the names of tools."""
        keys = {name: ", ".join(path.removeprefix("args.") for path in paths) for paths, name in self.keys.items()}
        conditions = {name: text for text, name in self.conditions.items()}
        return keys | conditions | {name: tool for tool, name in self.tools.items()}

    @property
    def shape(self) -> object:
        """Everything that decides the walk."""
        return json.dumps([self.journaled, self.fields, self.texts])

    @property
    def journaled(self) -> tuple[JsonObject, ...]:
        """The rules as a turn's journal has them."""
        return tuple(words for words, _ in self.rules)

    @property
    def definitions(self) -> tuple[SmallRule, ...]:
        """The rules as their definitions read them."""
        return tuple(definition for _, definition in self.rules)

    def _shrink(self, name: str, rule: Rule, words: _Words) -> tuple[JsonObject, SmallRule]:
        parts = {
            word: tuple(tuple(self._parts(call, words)) or (SmallPart(_NO_TOOL),) for call in calls)
            for word, calls in words.items()
        }
        small_words: dict[str, JsonValue] = {"language": LANGUAGE, "name": name, "effect": rule.effect}
        for word, calls in parts.items():
            texts: list[JsonValue] = [[_text_of(part) for part in call] for call in calls]
            small_words[word] = texts if word == "not_both" else texts[0]
        if rule.once:
            small_words["once"] = True
        most = 1
        if not isinstance(rule.at_most, UnsetType):
            most = 0 if rule.at_most == 0 else 1
            small_words["at_most"] = most
        key, in_result = self._key(rule, words)
        if key:
            judged_key, paired_key = (f"result.{key}" if is_in_result else key for is_in_result in in_result)
            small_words["per" if "of" in words else "same"] = (
                [key] if judged_key == paired_key == key else {judged_key: paired_key}
            )
        return small_words, SmallRule(name, parts, key, *in_result, once=rule.once, most=most)

    def _key(self, rule: Rule, words: _Words) -> tuple[str, tuple[bool, bool]]:
        """Return the field in place of the compared paths, and whether the judged and the other call's are results.

        Texts are not compared: all messages and answers have one key.
        """
        paths = [
            (parse_path(judged_text).path[0], parse_path(paired_text).path[0])
            for judged_text, paired_text in rule.pairs().items()
        ]
        if not paths or any("text" in pair for pair in paths):
            return "", (False, False)
        key = self.keys.setdefault(tuple(rule.pairs()), f"k{len(self.keys)}")
        for tool, fields in self.fields.items():
            if any(call.names(self._name_of(tool)) for calls in words.values() for call in calls):
                fields[key] = None
        judged_text, paired_text = (any(pair[side] != "args" for pair in paths) for side in (0, 1))
        return key, (judged_text, paired_text)

    def _parts(self, call: CallPattern, words: _Words) -> Iterator[SmallPart]:
        """Yield the parts of a call for each tool that they name."""
        for part in call.parts:
            if part.tool == ANSWER:
                yield self._part(ANSWER, part.condition, words)
            for tool, name in self.tools.items():
                if names_tool(part.tool, tool):
                    yield self._part(name, part.condition, words)

    def _part(self, tool: str, condition: Condition | None, words: _Words) -> SmallPart:
        if condition is None:
            return SmallPart(tool)
        roots = {path[0] for path in condition.paths}
        if roots <= {"status"}:
            return SmallPart(tool, "status", condition=condition)
        field = self.conditions.setdefault(condition.text, f"c{len(self.conditions)}")
        if "this" in roots:
            for name in self.fields:
                if words["before"][0].names(self._name_of(name)):
                    self.fields[name][field] = None
            return SmallPart(tool, "this", field)
        if tool in (USER, ANSWER):
            self.texts[field] = None
            return SmallPart(tool, "text", field)
        self.fields[tool][field] = None
        return SmallPart(tool, "result" if roots.intersection(_OUTCOME) else "args", field)

    def _name_of(self, number: str) -> str:
        return next(tool for tool, name in self.tools.items() if name == number)


def _text_of(part: SmallPart) -> str:
    """Return a part in the language of rules."""
    match part.kind:
        case "always":
            return part.tool
        case "status":
            return f"{part.tool} if {part.condition.text if part.condition else ''}"
        case "text":
            return f"{part.tool} if '{part.field}' in text"
        case "this":
            return f"{part.tool} if this.args.{part.field}"
        case _:
            return f"{part.tool} if {part.kind}.{part.field}"


def alphabet_of(small: SmallSlice, keys: Sequence[JsonValue], values: Sequence[JsonValue]) -> list[ToolCall]:
    """Return the calls that the rules distinguish, and one that they do not name."""
    calls = []
    for tool, names in small.fields.items():
        if tool == USER:
            continue
        fields = tuple(names)
        for chosen_values in product(*(keys if field.startswith("k") else values for field in fields)):
            arguments = {field: value for field, value in zip(fields, chosen_values, strict=True) if value is not None}
            calls.append(ToolCall(name=tool, arguments=arguments))
    return [*calls, ToolCall(name=OTHER, arguments={})]


def _walk_slice(
    part: RuleSlice, walks_by_shape: dict[object, _SliceWalk], machine: type[WalkedMachine], most: int
) -> _SliceWalk:
    small = SmallSlice(part)
    if small.shape not in walks_by_shape:
        walks_by_shape[small.shape] = _walk_small(small, machine, most)
    return walks_by_shape[small.shape]


def _walk_small(small: SmallSlice, machine: type[WalkedMachine], most: int) -> _SliceWalk:
    keys, values = next(
        (pair for pair in VALUES if len(alphabet_of(small, *pair)) <= _MOST_ALPHABET),
        VALUES[-1],
    )
    alphabet = alphabet_of(small, keys, values)
    calls = _CALLS[0]
    walk = _RuleWalk(small, alphabet, calls, machine, most)
    walk.explore()
    if not walk.is_whole:
        calls = _CALLS[1]
        walk = _RuleWalk(small, alphabet, calls, machine, most)
        walk.explore()
    return _SliceWalk(walk.broken, len(walk.keys), calls, len(keys), walk.is_whole)


class _Node(NamedTuple):
    """A configuration and the trace that led to it. `starts` are the places of the calls in the trace."""

    machine: WalkedMachine
    trace: Trace
    starts: Mapping[str, int]
    #: The rules that an interrupt asks about, and those that people allowed a call to break.
    questions: Mapping[str, tuple[str, frozenset[str]]]
    allowed: Mapping[str, frozenset[str]]
    calls: int = 0
    text: str = ""


class _RuleWalk:
    """Everything that can happen to the calls of a turn, the shortest paths first."""

    def __init__(
        self, small: SmallSlice, alphabet: Sequence[ToolCall], most_calls: int, machine: type[WalkedMachine], most: int
    ) -> None:
        self._small, self._alphabet, self._machine, self._most = small, alphabet, machine, most
        self._most_calls = most_calls
        self.broken: dict[str, Trace] = {}
        self.keys: set[tuple[Key, Trace]] = set()
        self.is_whole = True
        self._case = Case(_LIMITS, widest=1, rules=small.journaled)
        self._around = Environment(self._case, reduced=False)
        #: The texts of messages and answers, for each truth of the conditions on them.
        self._texts = [
            " ".join(("x", *(name for name in chosen_words if name)))
            for chosen_words in product(*((name, "") for name in small.texts))
        ]
        rules = small.definitions
        parts = [part for rule in rules for calls in rule.parts.values() for call in calls for part in call]
        self._judges_answers = any(part.tool == ANSWER for part in parts) or any("then" in rule.parts for rule in rules)
        self._reads_messages = any(part.tool == USER for part in parts)
        self._asks = any(words["effect"] == "ask" for words in small.journaled)
        #: The tools whose outcome a rule reads.
        self._read_tools = {
            part.tool
            for rule in small.definitions
            for word, patterns in rule.parts.items()
            for pattern in patterns
            for part in pattern
            if word in ("need", "then") or part.kind in ("result", "status")
        }

    def explore(self) -> None:
        """Walk until every rule is broken, or everything was tried."""
        pending = deque(self._begin(text) for text in (self._texts if self._reads_messages else self._texts[-1:]))
        while pending and len(self.broken) < len(self._small.definitions):
            node = pending.popleft()
            for event in self._moves(node):
                after = self._feed(node, event)
                if isinstance(after.machine.action, Halt):
                    continue
                key = whole_key_of(after.machine.turn), after.trace
                if key in self.keys:
                    continue
                if len(self.keys) >= self._most:
                    self.is_whole = False
                    return
                self.keys.add(key)
                pending.append(after)

    def _begin(self, text: str) -> _Node:
        machine, _ = self._machine.start(StartedInput(prompt=text, limits=_LIMITS, rules=self._small.journaled))
        return _Node(machine, (Event("message", tool=USER, text=text),), {}, {}, {})

    def _moves(self, node: _Node) -> Iterator[Input]:
        machine = node.machine
        match machine.action:
            case CallModel(tools=True):
                yield from self._replies(node)
                if self._reads_messages and sum(event.kind == "message" for event in node.trace) < _MESSAGES:
                    yield from (SteeredInput(text=text) for text in self._texts)
            case RunTools() | AwaitPerson() as action:
                for event in self._around.moves(machine.turn, action):
                    if isinstance(event, _TRIED) and self._is_tried(machine, event):
                        yield self._with_result(machine, event)
            case _:
                return

    def _replies(self, node: _Node) -> Iterator[Input]:
        if self._judges_answers:
            yield from (ModelRepliedInput(text=text, usage=_NOTHING) for text in self._texts)
        used_values = {value for event in node.trace for _, value in event.fields}
        for size in range(1, min(_WIDEST, self._most_calls - node.calls) + 1):
            for batch in product(self._alphabet, repeat=size):
                # Values are interchangeable, so the first one that occurs is 1.
                values = [value for call in batch for value in (call.arguments or {}).values() if value is not True]
                if 2 not in values or 1 in used_values or (1 in values and values.index(1) < values.index(2)):  # noqa: PLR2004
                    yield ModelRepliedInput(calls=batch, usage=_NOTHING)

    def _is_tried(self, machine: WalkedMachine, event: Input) -> bool:
        match event:
            case CallSettledInput(call=call, status=CallStatus.ERROR):
                return machine.turn.batch[call].name in self._read_tools
            case CallSettledInput(result=result):
                return not result
            case CallWaitingInput(interrupt_kind=kind):
                return self._asks and kind is InterruptKind.APPROVAL
            case AnsweredInput(decision=decision):
                return decision in (Decision.APPROVE, Decision.REJECT)
            case _:
                return True

    def _with_result(self, machine: WalkedMachine, event: Input) -> Input:
        """Return the outcome of a call with its fields as the result."""
        if not isinstance(event, CallSettledInput):
            return event
        return replace(event, result=json.dumps(dict(machine.turn.batch[event.call].arguments)))

    def _feed(self, node: _Node, event: Input) -> _Node:
        machine = node.machine.twin()
        facts = machine.feed(event)
        calls = len(event.calls) if isinstance(event, ModelRepliedInput) else 0
        text = event.text if isinstance(event, ModelRepliedInput) else node.text
        after = node._replace(machine=machine, calls=node.calls + calls, text=text)
        for fact in facts:
            after = self._note(after, node, fact)
        return after

    def _note(self, node: _Node, before: _Node, fact: f.Fact) -> _Node:  # noqa: PLR0911 (one a kind of fact)
        """Add a fact to the trace, and look for the rules that it breaks."""
        match fact:
            case f.CallStarted(call=call, attempt=1):
                started_call = before.machine.turn.batch[call]
                fields = tuple(sorted(started_call.arguments.items()))
                allowed_rules = node.allowed.get(call, frozenset())
                start = Event("start", len(node.trace), started_call.name, fields, allowed=allowed_rules)
                node = node._replace(starts={**node.starts, call: len(node.trace)})
                return self._extend(node, start)
            case f.CallSettled(call=call, status=status) if call in node.starts:
                return self._extend(node, Event("outcome", node.starts[call], status=status))
            case f.CallWaiting(call=call, interrupt=interrupt):
                rules = frozenset(verdict.rule for verdict in interrupt.rules)
                return node._replace(questions={**node.questions, interrupt.id: (call, rules)})
            case f.Answered(interrupt=name, decision=Decision.APPROVE) if name in node.questions:
                call, rules = node.questions[name]
                return node._replace(allowed={**node.allowed, call: node.allowed.get(call, frozenset()) | rules})
            case f.MessageAdded(text=text):
                return self._extend(node, Event("message", tool=USER, text=text))
            case f.TurnEnded(outcome=Outcome.FINISHED):
                return self._extend(node, Event("answer", tool=ANSWER, text=node.text))
            case _:
                return node

    def _extend(self, node: _Node, event: Event) -> _Node:
        trace = (*node.trace, event)
        for rule in self._small.definitions:
            if rule.name not in self.broken and rule.name not in event.allowed and breaks(rule, trace):
                self.broken[rule.name] = trace
        return node._replace(trace=trace)


def _describe(trace: Trace, words: Mapping[str, str]) -> Iterator[str]:
    """Yield the steps of a trace in words."""
    for place, event in enumerate(trace):
        tool = words.get(event.tool, event.tool)
        match event.kind:
            case "start":
                fields = [f"{words[name]}={value}" for name, value in event.fields if name.startswith("k")]
                conditions = [(words[name], value) for name, value in event.fields if name.startswith("c")]
                fields += [text if value else f"not ({text})" for text, value in conditions]
                yield f"{tool} if {' and '.join(fields)}" if fields else tool
            case "outcome" if event.status != "ok":
                start = trace[event.start]
                yield f"{words.get(start.tool, start.tool)} ends: {event.status}"
            case "message" if place:
                yield "a message"
            case "answer":
                yield "the answer"


def _result_of(rule: Rule, words: _Words, walks: Sequence[tuple[RuleSlice, _SliceWalk]]) -> RuleResult:
    own_walks: list[_SliceWalk] = []
    counterexamples: list[tuple[str, ...]] = []
    for part, walk in walks:
        names = {name.name: f"rule{number}" for number, (name, _) in enumerate(part.rules)}
        if rule.name in names:
            own_walks.append(walk)
            trace = walk.broken.get(names[rule.name])
            if trace is not None:
                counterexamples.append(tuple(_describe(trace, SmallSlice(part).words)))
    conditions = dict.fromkeys(
        part.condition.text
        for calls in words.values()
        for call in calls
        for part in call.parts
        if part.condition is not None and {path[0] for path in part.condition.paths} - {"status"}
    )
    return RuleResult(
        rule,
        describe_rule(rule, words),
        tuple(conditions),
        _describe_extent(rule, own_walks),
        min(counterexamples, key=len, default=()),
        all(walk.is_whole for walk in own_walks),
    )


def _describe_extent(rule: Rule, walks: Sequence[_SliceWalk]) -> str:
    """Return what was walked, in words."""
    if not walks:
        return "no tool of the agent has a role in it"
    configurations, calls = sum(walk.configurations for walk in walks), min(walk.calls for walk in walks)
    words = [f"{_count(configurations, 'configuration')} of up to {calls} calls, {_WIDEST} in a reply"]
    if rule.pairs():
        words.append(f"{_count(min(walk.keys for walk in walks), 'value')} of {', '.join(rule.pairs())}")
    if not isinstance(rule.at_most, UnsetType) and (rule.at_most > 1 or rule.sum):
        words.append("with 1 in place of its number")
    return ", ".join(words)


def describe_rule(rule: Rule, words: _Words) -> str:
    """Return what a rule guarantees."""
    names = {word: " or ".join(dict.fromkeys(part.tool for part in calls[0].parts)) for word, calls in words.items()}
    same_words = f" with the same {', '.join(rule.pairs())}" if rule.pairs() else ""
    match rule.form:
        case ("before", "need"):
            subject = "no answer comes" if names["before"] == ANSWER else f"no {names['before']} starts"
            sentence = f"{subject} without an earlier ok {names['need']}{same_words}"
        case ("after", "never"):
            sentence = f"no {names['never']} starts after {names['after']}{same_words}"
        case ("never",):
            sentence = f"no {names['never']} starts"
        case ("at_most", "of") if not isinstance(rule.at_most, UnsetType):
            starts = f"at most {_count(int(rule.at_most), 'start')} of {names['of']}"
            total = f"{rule.sum} of all {names['of']} adds up to at most {format_number(rule.at_most)}"
            sentence = (total if rule.sum else starts) + same_words
        case ("after", "then"):
            sentence = f"no answer comes after {names['after']} before an ok {names['then']}{same_words}"
        case _:
            pair = [" or ".join(dict.fromkeys(part.tool for part in call.parts)) for call in words["not_both"]]
            sentence = f"{' and '.join(pair)} do not both start{same_words}"
    return f"{sentence}, unless a person approves" if rule.effect == "ask" else sentence


def _count(number: int, noun: str) -> str:
    """Do what the helper of the engine does, which no walk may import."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
