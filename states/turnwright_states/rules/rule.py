"""Rules: data with a name and the words of one form, the same in Python and in YAML."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args, overload

from msgspec import UNSET, Struct, StructMeta, UnsetType, to_builtins
from msgspec.structs import force_setattr

from turnwright_states.suggestions import explain_unknown
from turnwright_states.verdict import Effect

from .condition import UNKNOWN, InvalidRuleError, is_number, parse_path
from .pattern import ANSWER, USER, CallPattern, PatternPart

Call: TypeAlias = str | Sequence[str]
Same: TypeAlias = Sequence[str] | Mapping[str, str]
Scope: TypeAlias = Literal["turn", "session"]

EFFECTS: Final[tuple[Effect, ...]] = get_args(Effect)
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
#: The words of each form, those that must be there and those that may be.
FORMS: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
    ("before", "need"): ("same", "once"),
    ("after", "never"): ("same",),
    ("never",): (),
    ("at_most", "of"): ("per", "sum"),
    ("after", "then"): ("same",),
    ("not_both",): ("same",),
}
#: The version of the language, which a journal has with its rules.
LANGUAGE: Final = 1
_LONGEST_NAME: Final = 200
_FORM_WORDS: Final = ("before", "need", "after", "never", "at_most", "of", "then", "not_both")
_CALLS: Final = ("before", "need", "after", "never", "of", "then")
#: The patterns whose calls are judged, and so may name no message of the user.
_JUDGED: Final = ("before", "never", "of", "not_both")
#: Those whose calls are judged, and not counted: no condition can read their outcome.
_ONLY_JUDGED: Final = ("before", "never")


class RuleLanguageError(InvalidRuleError):
    """A rule of a later release."""


class _RuleType(StructMeta):
    """The type of rules: a word that no rule has is an error with a suggestion."""

    if TYPE_CHECKING:  # a call would hide the overloads of the forms
        pass
    else:

        def __call__(cls, *values: object, **words: object) -> object:  # noqa: N805 (a class)
            for word in words:
                if word not in cls.__struct_fields__:
                    name = values[0] if values else words.get("name")
                    why = f"{word} {explain_unknown(word, cls.__struct_fields__)}"
                    raise InvalidRuleError(why, rule=name if isinstance(name, str) else "")
            return super().__call__(*values, **words)


class _Name(Struct, frozen=True, metaclass=_RuleType):
    name: str


class Rule(_Name, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, repr_omit_defaults=True):
    """One rule: a name and the words of one form. Raises `InvalidRuleError` for words that are not a form.

    A call is `TOOL`, `TOOL if CONDITION`, a glob, `$GROUP`, `@user`, `@answer` (in `before` only), or a list of these:
    any of them.
    """

    before: Call | UnsetType = UNSET
    need: Call | UnsetType = UNSET
    #: Whether a `need` is used up by one `before`.
    once: bool = False
    after: Call | UnsetType = UNSET
    never: Call | UnsetType = UNSET
    then: Call | UnsetType = UNSET
    at_most: float | UnsetType = UNSET
    of: Call | UnsetType = UNSET
    #: The fields whose values are counted apart.
    per: Call = ()
    #: The field that is added up, in place of calls.
    sum: str = ""
    not_both: Sequence[Call] | UnsetType = UNSET
    #: Fields that the judged call and the other call have in common, or a path of the other call for each.
    same: Same = ()
    scope: Scope = "turn"
    #: Whether the calls of sub-agents count.
    sub_agents: bool = True
    effect: Effect = "refuse"
    #: The words of a refusal, in place of those that the rule makes.
    say: str = ""

    if TYPE_CHECKING:

        @overload
        def __init__(
            self,
            name: str,
            *,
            before: Call,
            need: Call,
            same: Same = (),
            once: bool = False,
            scope: Scope = "turn",
            sub_agents: bool = True,
            effect: Effect = "refuse",
            say: str = "",
        ) -> None: ...
        @overload
        def __init__(
            self,
            name: str,
            *,
            never: Call,
            after: Call = ...,
            same: Same = (),
            scope: Scope = "turn",
            sub_agents: bool = True,
            effect: Effect = "refuse",
            say: str = "",
        ) -> None: ...
        @overload
        def __init__(
            self,
            name: str,
            *,
            at_most: float,
            of: Call,
            per: Call = (),
            sum: str = "",
            scope: Scope = "turn",
            sub_agents: bool = True,
            effect: Effect = "refuse",
            say: str = "",
        ) -> None: ...
        @overload
        def __init__(
            self,
            name: str,
            *,
            after: Call,
            then: Call,
            same: Same = (),
            scope: Scope = "turn",
            sub_agents: bool = True,
            effect: Literal["refuse", "end", "report"] = "refuse",
            say: str = "",
        ) -> None: ...
        @overload
        def __init__(
            self,
            name: str,
            *,
            not_both: Sequence[Call],
            same: Same = (),
            scope: Scope = "turn",
            sub_agents: bool = True,
            effect: Effect = "refuse",
            say: str = "",
        ) -> None: ...
        def __init__(self, name: str, **words: object) -> None: ...

    def __post_init__(self) -> None:
        try:
            self._check()
        except InvalidRuleError as error:
            raise error.at(rule=self.name if _is_name(self.name) else "") from None

    @property
    def form(self) -> tuple[str, ...]:
        """The words of the rule's form, such as `("before", "need")`."""
        return tuple(word for word in _FORM_WORDS if getattr(self, word) is not UNSET)

    def calls(self, word: str) -> tuple[str, ...]:
        """Return the calls of a word, such as `before`; none if the rule does not have it."""
        value = getattr(self, word)
        return () if value is UNSET else _texts(word, value)

    def pairs(self) -> Mapping[str, str]:
        """Return the paths that are compared: of the judged call, and of the other for each."""
        if isinstance(self.same, Mapping):
            return self.same
        fields = _texts("same", self.same) or _texts("per", self.per)
        return {field: field for field in fields}

    def patterns(self, groups: Mapping[str, Sequence[str]] | None) -> dict[str, tuple[CallPattern, ...]]:
        """Return the parsed calls of each word. Raises `InvalidRuleError`. See `CallPattern` for `groups`."""
        try:
            patterns: dict[str, tuple[CallPattern, ...]] = {}
            patterns |= {word: (CallPattern(self.calls(word), groups),) for word in _CALLS if self.calls(word)}
            if not isinstance(self.not_both, UnsetType):
                calls = [_texts("not_both", call) for call in self.not_both]
                patterns["not_both"] = tuple(CallPattern(call, groups) for call in calls)
            self._check_patterns(patterns)
        except InvalidRuleError as error:
            raise error.at(rule=self.name) from None
        return patterns

    def _check(self) -> None:
        if not _is_name(self.name):
            limit = f"one line of at most {_LONGEST_NAME} visible characters"
            raise InvalidRuleError(f"a rule has a name, {limit}, not {self.name!r:.80}")
        form = self.form
        optional = FORMS.get(form)
        if optional is None:
            forms = ", ".join("+".join(form_words) for form_words in FORMS)
            if not form:
                raise InvalidRuleError(f"it has no form: the forms are {forms}")
            verb = "is" if len(form) == 1 else "are"
            raise InvalidRuleError(f"{' and '.join(form)} {verb} not a form of a rule: the forms are {forms}")
        for word, default in (("same", ()), ("once", False), ("per", ()), ("sum", "")):
            value = getattr(self, word)
            if (value and value != default) and word not in optional:
                raise InvalidRuleError(f"{word} has no meaning beside {' and '.join(form)}")
        self._check_values()

    def _check_values(self) -> None:
        for word, values in (("effect", EFFECTS), ("scope", SCOPES)):
            value = getattr(self, word)
            if value not in values:
                raise InvalidRuleError(f"{word} {value!r} {explain_unknown(str(value), values)}")
            # A word that equals its default is left out if it is the same object: an equal text of a file is not.
            force_setattr(self, word, values[values.index(value)])
        self._check_calls()
        for word in ("once", "sub_agents"):
            if not isinstance(getattr(self, word), bool):
                raise InvalidRuleError(f"{word} is true or false, not {getattr(self, word)!r}")
        for word in ("sum", "say"):
            if not isinstance(getattr(self, word), str):
                raise InvalidRuleError(f"{word} is a text, not {getattr(self, word)!r}")
        self._check_at_most()
        self._check_paths()
        self.patterns(groups=None)

    def _check_calls(self) -> None:
        for word in _CALLS:
            if getattr(self, word) is not UNSET:
                force_setattr(self, word, _call(word, getattr(self, word)))
        force_setattr(self, "per", _call("per", self.per))
        if not isinstance(self.not_both, UnsetType):
            calls = self.not_both
            if isinstance(calls, str) or not isinstance(calls, Sequence) or len(calls) < 2:  # noqa: PLR2004
                raise InvalidRuleError("not_both is a list of two or more calls")
            force_setattr(self, "not_both", tuple(_call("not_both", call) for call in calls))

    def _check_at_most(self) -> None:
        most = self.at_most
        if isinstance(most, UnsetType):
            return
        if not is_number(most) or most < 0:
            raise InvalidRuleError(f"at_most is a number from 0 on, not {most!r:.80}")
        if not self.sum and most != int(most):
            raise InvalidRuleError(
                f"at_most {most!r}: calls are counted in whole numbers; write sum for a field's amount"
            )

    def _check_paths(self) -> None:
        if isinstance(self.same, Mapping):
            if not all(isinstance(path, str) for pair in self.same.items() for path in pair):
                raise InvalidRuleError("same has a path for each field: {order_id: result.id}")
            force_setattr(self, "same", dict(self.same))
        elif isinstance(self.same, str):
            raise InvalidRuleError(f"same is a list: [{self.same}]")
        else:
            force_setattr(self, "same", _texts("same", self.same))
        is_judged = self.form != ("after", "then")  # an owed call has run when it is compared
        for field, path in self.pairs().items():
            root = parse_path(field).path[0]
            if is_judged and root not in ("args", "text"):
                raise InvalidRuleError(f"{field!r}: the judged call has no {root} yet: compare one of its args")
            if parse_path(path).path[0] == "this":
                raise InvalidRuleError(
                    f"{path!r}: this is the judged call: write its path first, as in order_id: result.id"
                )
        if self.sum and parse_path(self.sum).path[0] != "args":
            raise InvalidRuleError(f"sum {self.sum!r}: the judged call has only args")

    def _check_patterns(self, patterns: Mapping[str, tuple[CallPattern, ...]]) -> None:
        for word, calls in patterns.items():
            for pattern in calls:
                if not pattern.parts:
                    raise InvalidRuleError(f"{word} names no call: its groups have no tools")
                if pattern.names(ANSWER) and word != "before":
                    raise InvalidRuleError(
                        f"{word}: {ANSWER} is allowed only in before: what an answer owes is written as after and then"
                    )
                if pattern.names(USER) and word in _JUDGED:
                    raise InvalidRuleError(
                        f"{word}: a message of the user is not judged: {USER} is allowed in need, after and then"
                    )
                if pattern.reads("this") and word != "need":
                    raise InvalidRuleError(f"{word}: this is the judged call, which only need compares")
                for part in pattern.parts:
                    self._check_condition(word, part)
        self._check_compared(patterns)
        self._check_met(patterns)

    def _check_condition(self, word: str, part: PatternPart) -> None:
        """Check that a condition reads what its call has, and can be true."""
        condition = part.condition
        if condition is None:
            return
        if part.tool in (USER, ANSWER):
            if condition.reads("args", "result", "status"):
                raise InvalidRuleError(f"{word}: {part.tool} has only a text: {condition.text!r} reads more")
        elif word in _ONLY_JUDGED and not self.once and condition.reads("result", "status", "text"):
            raise InvalidRuleError(
                f"{word}: the judged call has no result yet: {condition.text!r} can read only its args"
            )
        if not condition.can_hold("ok" if word in ("need", "then") else UNKNOWN):
            calls = " of an ok call, which need and then read" if condition.reads("status") else ""
            raise InvalidRuleError(f"{word}: {condition.text!r} is never true{calls}")

    def _check_met(self, patterns: Mapping[str, tuple[CallPattern, ...]]) -> None:
        """Check that a rule can be met, and that its words do not mean another form."""
        match self.form:
            case ("before", "need"):
                (judged_calls,), (needed_calls,) = patterns["before"], patterns["need"]
                # A person may allow the first call, and so may an earlier turn that did not have this rule.
                is_held = self.effect in ("refuse", "end") and self.scope == "turn"
                if is_held and judged_calls.covers(needed_calls):
                    raise InvalidRuleError(
                        f"{needed_calls} is itself a call of before, so the first one can never start: "
                        "leave it out of before, or write effect: ask"
                    )
            case ("after", "then"):
                (counted_calls,), (needed_calls,) = patterns["after"], patterns["then"]
                if counted_calls.covers(needed_calls):
                    raise InvalidRuleError(
                        f"{needed_calls} is itself a call of after, so each one owes another: "
                        "leave it out of after, or write a condition there"
                    )
            case ("not_both",) if all(field == path for field, path in self.pairs().items()):
                calls = patterns["not_both"]
                for place, call in enumerate(calls):
                    if any(call.covers(earlier) and earlier.covers(call) for earlier in calls[:place]):
                        per = " and per" if self.pairs() else ""
                        raise InvalidRuleError(
                            f"not_both has {call} twice: for no second one, write at_most: 1 with of{per}"
                        )
            case _:
                pass

    def _check_compared(self, patterns: Mapping[str, tuple[CallPattern, ...]]) -> None:
        """Check the effect and the compared fields of rules on answers, and on messages of the user."""
        judges_answers = any(pattern.names(ANSWER) for pattern in patterns.get("before", ()))
        if self.effect == "ask" and (judges_answers or "then" in patterns):
            raise InvalidRuleError("effect ask: an answer cannot be asked about: write refuse, end or report")
        fields = self.pairs()
        owes = self.form == ("after", "then")
        if judges_answers and self.once and self.scope == "session":
            raise InvalidRuleError(
                "once: an answer uses nothing up: write scope: turn, so that each answer needs its own"
            )
        if judges_answers:
            _check_text_only(ANSWER, fields)
        elif not owes and any(parse_path(field).path[0] == "text" for field in fields):
            raise InvalidRuleError("same 'text': the judged call has no text: write args.text for its argument")
        for word in ("need", "after", "then"):
            if any(pattern.names(USER) for pattern in patterns.get(word, ())):
                _check_text_only(USER, fields if owes and word == "after" else fields.values())


def _is_name(name: object) -> bool:
    """Whether a name is readable in a line of a log, a page or a terminal."""
    return isinstance(name, str) and name.isprintable() and len(name.strip()) > 0 and len(name) <= _LONGEST_NAME


def parse_rule(words: Mapping[str, object], kind: type[Rule] = Rule) -> Rule:
    """Return the rule of these words, as a file has them. Raises `InvalidRuleError`, also for an unknown word."""
    make: Callable[..., Rule] = kind
    return make(**{"name": None, **{str(word): value for word, value in words.items()}})


def resolve_rules(rule_sets: Iterable["RuleList"]) -> tuple[dict[str, object], ...]:
    """Return rules as a journal keeps them: each stands alone, with the tools of its groups.

    Raises `InvalidRuleError` for two rules of one name, unless they are equal: then one is kept.
    """
    rules_by_name: dict[str, dict[str, object]] = {}
    for rule_set in rule_sets:
        for rule in rule_set.rules:
            words = {"language": LANGUAGE, **_resolve(rule, rule_set.groups)}
            if rules_by_name.setdefault(rule.name, words) != words:
                raise InvalidRuleError("two rules have this name", rule=rule.name)
    return tuple(rules_by_name.values())


def read_rules(entries: Iterable[Mapping[str, object]]) -> tuple["RuleList", frozenset[str]]:
    """Return the rules of a journal, and the names of those that a caller handed down.

    Raises `InvalidRuleError`, for those of a later release `RuleLanguageError`.
    """
    rules: list[Rule] = []
    inherited_names: set[str] = set()
    for words in entries:
        fields = dict(words)
        language = fields.pop("language", LANGUAGE)
        if language != LANGUAGE:
            raise RuleLanguageError(
                f"it is written in language {language!r}, and this release reads language {LANGUAGE}: upgrade it",
                rule=str(fields.get("name", "")),
            )
        is_inherited = fields.pop("inherited", False)
        rule = parse_rule(fields)
        rules.append(rule)
        if is_inherited:
            inherited_names.add(rule.name)
    return RuleList(rules), frozenset(inherited_names)


def _resolve(rule: Rule, groups: Mapping[str, Sequence[str]]) -> dict[str, object]:
    words: dict[str, object] = {
        word: list(value) if isinstance(value, tuple) else value for word, value in to_builtins(rule).items()
    }
    for word in _CALLS:
        if rule.calls(word):
            words[word] = _expand(rule.calls(word), groups)
    if not isinstance(rule.not_both, UnsetType):
        words["not_both"] = [_expand(_texts("not_both", call), groups) for call in rule.not_both]
    return words


def _expand(calls: Iterable[str], groups: Mapping[str, Sequence[str]]) -> object:
    """Return calls with the tools of their groups."""
    texts: list[str] = []
    for call in calls:
        name, separator, condition = call.partition(" if ")
        tools = groups.get(name.strip()[1:], ()) if name.strip().startswith("$") else (name,)
        texts += [f"{tool}{separator}{condition}" for tool in tools]
    return texts[0] if len(texts) == 1 else texts


class RuleList:
    """Rules with groups of tools, as one file has them. Raises `InvalidRuleError`, also for two rules of one name."""

    __slots__ = ("groups", "patterns", "rules")

    def __init__(self, rules: Iterable[Rule], groups: Mapping[str, Sequence[str]] | None = None) -> None:
        self.rules: tuple[Rule, ...] = tuple(rules)
        self.groups = _read_groups(groups or {})
        names: set[str] = set()
        for rule in self.rules:
            if not isinstance(rule, Rule):
                raise InvalidRuleError(f"{rule!r:.80} is not a rule: write Rule(NAME, ...), or RuleSet.load(FILE)")
            if rule.name in names:
                raise InvalidRuleError("two rules have this name", rule=rule.name)
            names.add(rule.name)
        #: The parsed calls of each rule, by their words.
        self.patterns = tuple(rule.patterns(self.groups) for rule in self.rules)

    @classmethod
    def of_sets(cls, rule_sets: Iterable["RuleList"]) -> "RuleList":
        """Return several sets as one, without groups. Raises `InvalidRuleError` for two rules of one name."""
        return read_rules(resolve_rules(rule_sets))[0]

    def __repr__(self) -> str:
        return f"RuleList({list(self.rules)!r}, {dict(self.groups)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        # Compiled conditions cannot be sent to another process.
        return type(self), (self.rules, dict(self.groups))

    def __eq__(self, value: object) -> bool:
        return isinstance(value, RuleList) and (self.rules, self.groups) == (value.rules, value.groups)

    def __hash__(self) -> int:
        return hash(tuple(rule.name for rule in self.rules))


def _read_groups(groups: object) -> Mapping[str, tuple[str, ...]]:
    if not isinstance(groups, Mapping) or not all(isinstance(name, str) for name in groups):
        raise InvalidRuleError(f"groups have a list of tools for each name, not {groups!r:.80}")
    texts_by_name = {name: _texts(f"group {name}", tools) for name, tools in groups.items()}
    for name, texts in texts_by_name.items():
        for text in texts:
            if not _is_tool(text):
                raise InvalidRuleError(f"group {name}: {text!r} is not a tool: a group has names of tools, and globs")
    return texts_by_name


def _is_tool(text: str) -> bool:
    try:
        (part,) = CallPattern((text,), groups=None).parts
    except InvalidRuleError:
        return False
    return part.tool == text and not text.startswith("$")


def _texts(word: str, value: object) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise InvalidRuleError(f"{word} is a text or a list of texts, not {value!r}")
    return tuple(texts)


def _call(word: str, value: object) -> Call:
    """Return a call as it is kept: a text stays, a list becomes a tuple."""
    texts = _texts(word, value)
    if not texts and word != "per":
        raise InvalidRuleError(f"{word} names no call")
    return value if isinstance(value, str) else texts


def _check_text_only(name: str, paths: Iterable[str]) -> None:
    for path in paths:
        if parse_path(path).path[0] != "text":
            raise InvalidRuleError(f"same {path!r}: {name} has only a text, and nothing else to compare")
