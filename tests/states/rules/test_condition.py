"""Conditions mean the same as a direct interpreter of their trees, which shares no code with them."""

# ruff: noqa: ANN401, C901, PLR0911 (an interpreter of JSON values has a branch for each kind)

import operator
from collections.abc import Callable, Mapping
from math import nan
from typing import Any, Final

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.hypothesis_examples import percent_of_examples

from turnwright_states import CallStatus
from turnwright_states.rules import UNKNOWN, Condition, InvalidRuleError, Scene
from turnwright_states.rules.condition import STATUSES

#: A tree: its kind, and its parts.
Tree = tuple[Any, ...]
FIELDS: Final = ("a", "b", "c")
COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
CALCULATE: Final[dict[str, Callable[[Any, Any], Any]]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
TEXTS: Final = st.sampled_from(["", "a", "b", "yes", "Yes, please!", "a b", "é"])
NUMBERS: Final = st.sampled_from([0, 1, 2, -1, 0.5, 1.0, 10**400])
SCALARS: Final = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES: Final = st.recursive(
    SCALARS | st.just(nan),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=3),
    max_leaves=6,
)
ROOTS: Final = ("args", "result", "status", "text", "this")
JUDGED: Final = VALUES | st.fixed_dictionaries({"args": VALUES})
ENVIRONMENTS: Final = st.fixed_dictionaries({}, optional=dict.fromkeys(ROOTS, VALUES) | {"this": JUDGED})


#: Paths of the names whose fields the language knows.
READABLE: Final[tuple[Tree, ...]] = (
    ("path", "args", []),
    ("path", "args", ["a"]),
    ("path", "args", ["b", "c"]),
    ("path", "args", ["c", -1]),
    ("path", "status", []),
    ("path", "text", []),
    ("path", "this", []),
    ("path", "this", ["args", "a"]),
    ("path", "this", ["args", "b", 0]),
)


def trees(variables: tuple[str, ...] = (), depth: int = 3) -> st.SearchStrategy[Tree]:
    """Trees of expressions over the names, and over the variables of the generators around them."""
    keys = st.lists(st.sampled_from([*FIELDS, 0, -1]), max_size=2)
    names = st.sampled_from(["result", *variables, *variables])
    paths = st.tuples(st.just("path"), names, keys) | st.sampled_from(READABLE)
    leaves = paths | st.tuples(
        st.just("literal"), st.none() | st.booleans() | st.sampled_from([0, 1, 2, 0.5, "", "a", "yes", "é"])
    )
    if not depth:
        return leaves
    inner = trees(variables, depth - 1)
    variable = f"x{depth}"
    generators = st.tuples(st.just("each"), trees((*variables, variable), depth - 1), st.just(variable), inner)
    lists = st.tuples(st.just("list"), st.lists(inner, max_size=3)) | generators
    single, pair = st.tuples(inner), st.tuples(inner, inner)
    return st.one_of(
        leaves,
        lists,
        st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)),
        st.tuples(st.just("not"), inner),
        st.tuples(st.just("negative"), inner),
        st.tuples(st.just("binary"), st.sampled_from([*CALCULATE, *COMPARE, "==", "!=", "in", "not in"]), inner, inner),
        st.tuples(st.just("call"), st.sampled_from(["any", "all", "count", "len", "sum"]), st.tuples(lists)),
        st.tuples(st.just("call"), st.sampled_from(["min", "max", "lower", "words", "any", "len"]), single),
        st.tuples(st.just("call"), st.sampled_from(["starts", "ends", "default", "min", "max"]), pair),
    )


def text_of(tree: Tree) -> str:
    """Return a tree as a condition is written, with all parentheses."""
    match tree:
        case ("literal", value):
            return repr(value)
        case ("path", name, keys):
            return str(name) + "".join(f".{key}" if isinstance(key, str) else f"[{key}]" for key in keys)
        case ("list", items):
            return f"[{', '.join(map(text_of, items))}]"
        case ("each", item, variable, items):
            return f"({text_of(item)} for {variable} in {text_of(items)})"
        case ("and" | "or" as word, items):
            return f"({f' {word} '.join(map(text_of, items))})"
        case ("not", item):
            return f"(not {text_of(item)})"
        case ("negative", item):
            return f"(-{text_of(item)})"
        case ("binary", sign, first, second):
            return f"({text_of(first)} {sign} {text_of(second)})"
        case (_, name, items):
            return f"{name}({', '.join(map(text_of, items))})"
    raise AssertionError(tree)


class UnknownValueError(Exception):
    """A value is unknown."""


def value_of(tree: Tree, names: Mapping[str, Any]) -> Any:
    """Return the value of a tree by the definition. Raises `UnknownValueError`."""
    match tree:
        case ("literal", value):
            return value
        case ("path", name, keys):
            return follow(names, [name, *keys])
        case ("list", items):
            return [value_of(item, names) for item in items]
        case ("each", _, _, _):
            return [value() for value in each(tree, names)]
        case ("and" | "or" as word, items):
            return kleene(each(("list", items), names), word == "or")
        case ("not", item):
            return not value_of(item, names)
        case ("negative", item):
            return calculate("-", 0, value_of(item, names))
        case ("binary", sign, first, second):
            return binary(sign, value_of(first, names), value_of(second, names))
        case ("call", "any" | "all" as word, (items,)):
            values = each(items, names)
            return kleene(values, word == "any")
        case ("call", "default", (first, second)):
            try:
                value = value_of(first, names)
            except UnknownValueError:
                value = None
            return value_of(second, names) if value is None else value
        case ("call", name, items):
            return apply(name, [value_of(item, names) for item in items])
    raise AssertionError(tree)


def follow(value: Any, keys: list[Any]) -> Any:
    for key in keys:
        if isinstance(key, str) is not isinstance(value, Mapping):
            raise UnknownValueError
        if not isinstance(value, Mapping | list):
            raise UnknownValueError
        try:
            value = value[key]
        except LookupError:
            raise UnknownValueError from None
    return value


def each(tree: Tree, names: Mapping[str, Any]) -> list[Callable[[], Any]]:
    """Return the items of a list, each unknown for itself."""
    match tree:
        case ("list", items):
            return [lambda item=item: value_of(item, names) for item in items]  # type: ignore[misc]
        case ("each", item, variable, items):
            values = value_of(items, names)
            if not isinstance(values, list):
                raise UnknownValueError
            return [lambda value=value: value_of(item, {**names, variable: value}) for value in values]  # type: ignore[misc]
    values = value_of(tree, names)
    if not isinstance(values, list):
        raise UnknownValueError
    return [lambda value=value: value for value in values]  # type: ignore[misc]


def kleene(values: list[Callable[[], Any]], decisive: bool) -> bool:
    unknown = False
    for value in values:
        try:
            if bool(value()) is decisive:
                return decisive
        except UnknownValueError:
            unknown = True
    if unknown:
        raise UnknownValueError
    return not decisive


def equal(first: Any, second: Any) -> bool:
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(equal, first, second))
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(equal(first[key], second[key]) for key in first)
    kinds = [
        next(kind for kind in (bool, (int, float), object) if isinstance(value, kind)) for value in (first, second)
    ]
    return kinds[0] == kinds[1] and bool(first == second)


def calculate(sign: str, first: Any, second: Any) -> Any:
    if sign == "+" and isinstance(first, str) and isinstance(second, str):
        return first + second
    if sign == "+" and isinstance(first, list) and isinstance(second, list):
        return first + second
    if not is_number_of_json(first) or not is_number_of_json(second):
        raise UnknownValueError
    try:
        value = CALCULATE[sign](first, second)
    except OverflowError:
        raise UnknownValueError from None
    if not is_number_of_json(value):
        raise UnknownValueError
    return value


def is_number_of_json(value: Any) -> bool:
    return type(value) in (int, float) and -1.7976931348623157e308 <= value <= 1.7976931348623157e308


def binary(sign: str, first: Any, second: Any) -> Any:
    if sign in CALCULATE:
        return calculate(sign, first, second)
    if sign in COMPARE:
        texts = isinstance(first, str) and isinstance(second, str)
        if not texts and not (is_number_of_json(first) and is_number_of_json(second)):
            raise UnknownValueError
        return COMPARE[sign](first, second)
    if sign in ("==", "!="):
        return equal(first, second) is (sign == "==")
    if isinstance(second, list):
        contains = any(equal(first, value) for value in second)
    elif isinstance(second, str | dict) and isinstance(first, str):
        contains = first in second
    else:
        raise UnknownValueError
    return contains is (sign == "in")


def apply(name: str, values: list[Any]) -> Any:
    value = values[0]
    if name in ("lower", "words", "starts", "ends") and not all(isinstance(text, str) for text in values):
        raise UnknownValueError
    match name:
        case "lower":
            return value.lower()
        case "words":
            return [word.strip(".,;:!?\"'()") for word in value.lower().split()]
        case "starts":
            return value[: len(values[1])] == values[1]
        case "ends":
            return not values[1] or value[-len(values[1]) :] == values[1]
    if name == "len" and isinstance(value, str | dict):
        return len(value)
    items = values if len(values) > 1 else value
    if not isinstance(items, list):
        raise UnknownValueError
    match name:
        case "len":
            return len(items)
        case "count":
            return len(list(filter(None, items)))
        case "sum":
            total = 0
            for item in items:
                total = calculate("-", total, calculate("-", 0, item))
            return total
    if not items or not (
        all(isinstance(item, str) for item in items) or all(is_number_of_json(item) for item in items)
    ):
        raise UnknownValueError
    best = sorted(items, reverse=name == "max")
    return best[0]


@settings(max_examples=percent_of_examples(1_000))
@given(tree=trees(), names=ENVIRONMENTS)
def test_condition_and_direct_interpreter_agree(tree: Tree, names: dict[str, Any]) -> None:
    """Meaning 1: three values, JSON equality, and an order only of numbers and of texts."""
    try:
        expected: object = bool(value_of(tree, names))
    except UnknownValueError:
        expected = UNKNOWN
    scene_names = {"judged" if name == "this" else name: value for name, value in names.items()}
    scene = Scene()
    for name, value in scene_names.items():
        setattr(scene, name, value)
    try:
        condition = Condition(text_of(tree))
    except InvalidRuleError as error:
        assume("never has" not in error.why and "the status" not in error.why)
        raise
    assert condition(scene) is expected


@settings(max_examples=percent_of_examples(100))
@given(
    text=st.text(st.sampled_from("args.result[]()'\"for x in y and or not 1+-*<>=,any len:{}\\\n\ud800é"), max_size=40)
)
def test_any_text_is_a_condition_or_a_rule_error(text: str) -> None:
    try:
        condition = Condition(text)
    except InvalidRuleError:
        return
    assert condition(Scene({"x": 1})) in (True, False, UNKNOWN)


@pytest.mark.parametrize(
    ("text", "args", "expected"),
    [
        ("args.x == 1", {"x": True}, False),
        ("args.x == [1]", {"x": [True]}, False),
        ("args.x == 1", {"x": 1.0}, True),
        ("args.x > 1", {"x": "2"}, UNKNOWN),
        ("args.x > 1", {"x": True}, UNKNOWN),
        ("args.x > 1", {"x": nan}, UNKNOWN),
        ("args.x == args.x", {"x": nan}, False),
        ("args.y == 1", {"x": 1}, UNKNOWN),
        ("args.y == 1 or args.x == 1", {"x": 1}, True),
        ("args.y == 1 and args.x == 2", {"x": 1}, False),
        ("not args.y", {}, UNKNOWN),
        ("(args.y == 1) == (args.x == 1)", {"x": 1}, UNKNOWN),
        ("len([args.y]) == 1", {}, UNKNOWN),
        ("any(v > 1 for v in args.x)", {"x": ["a", 2]}, True),
        ("all(v > 1 for v in args.x)", {"x": ["a", 2]}, UNKNOWN),
        ("default(args.y, 0) == 0", {}, True),
        ("default(args.x, 0) == 0", {"x": None}, True),
        ("len(args.x) > 0", {"x": "a" * 1_000_001}, UNKNOWN),
        ("len(args.x + args.x) > 0", {"x": "a" * 600_000}, UNKNOWN),
        ("any(v == 0 for v in args.x)", {"x": [0] * 10_000}, True),
        ("any(v == 0 for v in args.x)", {"x": [0] * 10_001}, UNKNOWN),
        ("True or any(v == 0 for v in args.x)", {"x": [0] * 10_001}, UNKNOWN),
        ("any(any(w == v for w in args.x) for v in args.x)", {"x": [1] * 200}, UNKNOWN),
        ("default(any(v == 0 for v in args.x), True)", {"x": [0] * 10_001}, UNKNOWN),
    ],
)
def test_condition_has_three_values(text: str, args: dict[str, object], expected: object) -> None:
    """Meaning 1: what is missing, of a wrong type or too much work is UNKNOWN."""
    assert Condition(text)(Scene(args)) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("args.word == 'Yes' and args.word != 'yes'", True),
        ("lower(args.word) == 'yes' and starts(args.word, 'Y') and ends(args.word, 's')", True),
        ("starts(args.word, 's') or ends(args.word, 'Y') or starts(args.word, '')", True),
        ("lower(args.pair) == 'yes'", UNKNOWN),
        ("starts(args.pair, 3)", UNKNOWN),
        ("ends(args.word, args.pair)", UNKNOWN),
        ("args.pair + [5] == [3, 4, 5]", True),
        ("args.pair == [3] or args.pair == [3, 5] or args.pair == 3", False),
        ("args.pair[0] == 3 and args.pair[-1] == 4 and args.tree.leaves[1] == 'b'", True),
        ("args.pair[2] == 3", UNKNOWN),
        ("args.pair.first == 3", UNKNOWN),
        ("args.tree == args.same", True),
        ("args.tree == args.other or args.tree == args.pair", False),
        ("'leaves' in args.tree and 'bark' not in args.tree and 5 not in args.pair", True),
        ("'es' in args.word and 3 in args.pair and '3' not in args.pair", True),
        ("3 not in args.word", UNKNOWN),
        ("3 in 3", UNKNOWN),
        ("min(args.pair) == 3 and max(args.pair) == 4 and max(1, 2.5, 2) == 2.5 and min('b', 'a') == 'a'", True),
        ("sum(args.pair) == 7 and count([0, '', 1]) == 1 and 2 + 3.5 == 5.5", True),
        ("len(args.word) == 3 and len(args.tree) == 1 and any(args.pair) and not all(args.pair + [0])", True),
        ("max(1, 'a') == 1", UNKNOWN),
        ("max([]) == 1", UNKNOWN),
        ("sum([1, 'a']) == 1", UNKNOWN),
        ("args.large * args.large > 0", UNKNOWN),
        ("args.large * 1e300 > 0", UNKNOWN),
        ("args.large - 1.0 > 0", True),
        ("-args.large - args.large < 0", UNKNOWN),
    ],
)
def test_values_of_conditions_are_json_values(text: str, expected: object) -> None:
    """Meaning 1: texts, lists, objects and numbers have Python's operations where JSON's values have them."""
    args = {
        "word": "Yes",
        "pair": [3, 4],
        "tree": {"leaves": ["a", "b"]},
        "same": {"leaves": ("a", "b")},
        "other": {"bark": ["a", "b"]},
        "large": 2**1024 - 2**971,  # the largest float
    }
    assert Condition(text)(Scene(args)) is expected


def test_unknown_is_neither_true_nor_false() -> None:
    """A test of UNKNOWN that forgets the third value is an error, not a false."""
    condition = Condition("args.x")
    with pytest.raises(TypeError, match="UNKNOWN is neither true nor false"):
        assert condition(Scene({}))
    assert f"{condition} is {condition(Scene({}))!r}" == "Condition('args.x') is UNKNOWN"


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("value", [[0] * 1_000_000, nested(1_000), "a" * 10_000_000, {"k": "\ud800"}, nan, 10**4000])
@pytest.mark.parametrize(
    "text",
    [
        "args.x in args.x or args.x == args.x",
        "args.x * args.x * args.x > 2",
        "any('a' in words(args.x) for w in args.x)",
        "sum(args.x) > 1 or max(args.x) > 1 or count(args.x) > 1",
        "lower(args.x) + args.x == args.x",
    ],
)
def test_condition_of_hostile_arguments_raises_nothing(text: str, value: object) -> None:
    """Meaning 1: hostile arguments make a condition false, true or UNKNOWN, with bounded work."""
    assert Condition(text)(Scene({"x": value})) in (True, False, UNKNOWN)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("args.x ** 2", "'**' is not in the language"),
        ("args.x / 2 > 1", "'/' is not in the language"),
        ("1 < args.x < 2", "is not in the language"),
        ("args.__class__", "'__class__' is not in the language"),
        ("args['__class__']", "'__class__' is not in the language"),
        ("().x", "is not in the language"),
        ("(lambda: 1)()", "is not in the language"),
        ("args.x.lower()", "is not in the language"),
        ("f'{args}'", "is not in the language"),
        ("[v for v in args.x]", "is not in the language"),
        ("any(v for v in args.x if v)", "a generator is"),
        ("any(args for args in args.x)", "is taken"),
        ("any(len for len in args.x)", "is taken"),
        ("arg.x", "did you mean `args`?"),
        ("lenn(args.x)", "did you mean `len`?"),
        ("len(args.x, 1)", "len() has 2 arguments, not 1"),
        ("len(*args.x)", "is not in the language"),
        ("args[args.x]", "is not in the language"),
        ("args.x if args.y else 1", "is not in the language"),
        ("args.re\ufb01ne", "is not ASCII"),
        ("1j", "is not in the language"),
        ("args.x ==", "invalid syntax"),
        ("", "condition ''"),
        ("not " * 900 + "args", "nests more than 50 parts"),
        ("(" * 100_000, "at most 4000"),
        ("[" * 1_000 + "]" * 1_000, "condition"),
        ("args\0", "condition"),
        ("status.code == 1", "status is a text, which has no fields"),
        ("text[0] == 'a'", "text is a text, which has no fields"),
        ("args[0] == 'a'", "args have names, and no places"),
        ("this.amount > 5", "the judged call has no amount: write this.args.amount"),
        ("judged.args.x", "the name 'judged' is unknown"),
        ("status == 'failed'", "the status 'failed' is unknown: use one of ok, error"),
        ("status in ['ok', 'abort']", "the status 'abort' is unknown: did you mean `aborted`?"),
        ("'Yes' in words(text)", "words() never has 'Yes': write 'yes'"),
        ("'yes!' not in words(text)", "words() never has 'yes!': write 'yes'"),
        (
            "any(w in words(text) for w in ['ok', 'Go ahead'])",
            "words() never has 'Go ahead': write 'go ahead' in lower()",
        ),
        ("'RM' in lower(args.x)", "lower() never has 'RM': write 'rm'"),
        ("lower(args.x) in ['no', 'No']", "lower() never has 'No': write 'no'"),
        ("'No' == lower(args.x)", "lower() never has 'No': write 'no'"),
        ("starts(lower(args.x), 'Rm')", "lower() never has 'Rm': write 'rm'"),
    ],
)
def test_condition_outside_the_language_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidRuleError) as error:
        Condition(text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "'err' in status",
        "lower(args.x) in 'A1'",
        "any(w in words(text) for w in ['yes']) or any(w in args.list for w in ['No'])",
        "any(w in args.list for w in ['Yes']) or any(w in words(text) for w in ['no'])",
        "lower(args.x) == args.y or args.x == 'Yes'",
    ],
)
def test_condition_that_some_text_meets_is_allowed(text: str) -> None:
    """Of `status`, a part may be compared; a variable has the list of its own generator."""
    assert Condition(text)(Scene()) is UNKNOWN


def test_statuses_of_conditions_and_of_calls_agree() -> None:
    assert tuple(CallStatus) == STATUSES


def test_condition_reads_a_field_with_a_name_that_is_not_ascii() -> None:
    assert Condition("args['gr\u00f6\u00dfe'] == '\ufb01'")(Scene({"gr\u00f6\u00dfe": "\ufb01"})) is True
