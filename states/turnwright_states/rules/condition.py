"""Conditions: a part of Python's expressions over one call, with three values, never evaluated as code.

A condition reads `args`, `result`, `status`, `text` and `this` (the call that is judged). Its text is parsed once and
compiled to closures. A missing field, a wrong type or too much work makes it `UNKNOWN`, Kleene's third value. Work is
counted, not timed, so a journal that is folded again gives the same values.
"""

import ast
from collections.abc import Callable, Iterable, Sequence, Sized
from enum import Enum
from functools import lru_cache
from operator import attrgetter, ge, gt, le, lt
from typing import Any, Final, Literal, TypeAlias

from turnwright_states.amounts import LARGEST_FLOAT
from turnwright_states.errors import PicklableError
from turnwright_states.suggestions import explain_unknown

#: A text with more characters is UNKNOWN.
MOST_TEXT: Final = 1_000_000
#: The most items of generators in one evaluation.
MOST_ITEMS: Final = 10_000
#: The most items of lists, and tens of characters, that the other operations of one evaluation read.
MOST_READ: Final = 300_000
#: The longest text of a condition, in characters, and its deepest nesting.
MOST_LENGTH: Final = 4_000
MOST_DEPTH: Final = 50

NAMES: Final = ("args", "result", "status", "text", "this")
#: The values of `CallStatus`, whose module knows this one.
STATUSES: Final = ("ok", "error", "rejected", "refused", "aborted", "unknown")


class InvalidRuleError(PicklableError, ValueError):
    """A rule that cannot be used. The message has the file and the line, the rule, and what to write instead."""

    def __init__(self, why: str, *, rule: str = "", file: str | None = None, line: int | None = None) -> None:
        self.why, self.rule, self.file, self.line = why, rule, file, line
        place = f"{file}:{line}" if file and line else file
        super().__init__(": ".join(part for part in (place, rule, why) if part))

    def at(self, *, rule: str = "", file: str | None = None, line: int | None = None) -> "InvalidRuleError":
        """Return the same error with the place that its raiser did not know."""
        return type(self)(self.why, rule=self.rule or rule, file=self.file or file, line=self.line or line)


class Unknown(Enum):
    """The type of `UNKNOWN`, which is neither true nor false."""

    UNKNOWN = "unknown"

    def __bool__(self) -> bool:
        raise TypeError("UNKNOWN is neither true nor false")

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown.UNKNOWN
Truth: TypeAlias = bool | Literal[Unknown.UNKNOWN]
#: The names of the keys, or the places in lists, from a name to a value.
Path: TypeAlias = tuple[str | int, ...]


class Scene:
    """The values that a condition reads. `UNKNOWN` is a value that is not there, or not yet."""

    __slots__ = ("args", "items_left", "judged", "reads_left", "result", "status", "text", "variables")

    def __init__(
        self,
        args: object = UNKNOWN,
        *,
        status: object = UNKNOWN,
        text: object = UNKNOWN,
        result: object = UNKNOWN,
        judged_call: object = UNKNOWN,
    ) -> None:
        self.args = args
        self.status = status
        self.text = text
        self.result = result
        #: The call that is judged: `this` in a condition.
        self.judged = judged_call
        #: The items of the generators around the part that is evaluated, the outermost first.
        self.variables: tuple[object, ...] = ()
        self.items_left = MOST_ITEMS
        self.reads_left = MOST_READ


class _TooMuchWorkError(Exception):
    """An evaluation did more than `MOST_ITEMS` or `MOST_READ` allow."""


_Part: TypeAlias = Callable[[Scene], object]


class Condition:
    """One condition, parsed from its text. Raises `InvalidRuleError` for a text outside the language."""

    __slots__ = ("_has_default", "_run", "paths", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        compiler = _Compiler(text)
        self._run = compiler.compile(_parse(text), ())
        self._has_default = compiler.has_default
        #: The paths that the condition reads, each from one of `NAMES`.
        self.paths: tuple[Path, ...] = tuple(dict.fromkeys(compiler.paths))

    def __repr__(self) -> str:
        return f"Condition({self.text!r})"

    def __call__(self, scene: Scene) -> Truth:
        """Return whether the condition holds for these values, or `UNKNOWN`."""
        scene.items_left, scene.reads_left = MOST_ITEMS, MOST_READ
        try:
            return truth(self._run(scene))
        except _TooMuchWorkError:
            scene.variables = ()
            return UNKNOWN

    def reads(self, *names: str) -> bool:
        """Return whether the condition reads one of these names."""
        return any(path[0] in names for path in self.paths)

    def can_hold(self, status: object) -> bool:
        """Return whether the condition can be true of a call with this status, or of one whose status is `UNKNOWN`."""
        # Without `default`, a value that is known later turns no false into true.
        return self._has_default or self(Scene(status=status)) is not False


class ReadPath:
    """A path to one value, such as `args.order_id` or `order_id`, which is short for it. Raises `InvalidRuleError`."""

    __slots__ = ("path", "read", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        compiler = _Compiler(text)
        tree = _parse(text)
        root, keys = _chain(tree)
        if not isinstance(root, ast.Name):
            raise InvalidRuleError(f"{text!r} is not a path: write a field of args, or a path such as result.id")
        if root.id not in NAMES or (root.id == "text" and keys):
            keys, root = (root.id, *keys), ast.Name(id="args")
        self.path: Path = (root.id, *keys)
        compiler.check_path(self.path)
        self.read = read_path(self.path)


@lru_cache(maxsize=4_096)
def parse_path(text: str) -> ReadPath:
    """Return a parsed path, the same for an equal text. Raises `InvalidRuleError`."""
    return ReadPath(text)


def read_path(path: Path) -> Callable[[Scene], object]:
    """Return a function that reads the value at a path; `UNKNOWN` if there is none."""
    return _read_keys(attrgetter("judged" if path[0] == "this" else str(path[0])), path[1:])


def truth(value: object) -> Truth:
    """Return the truth of a JSON value as Python has it: null, false, 0 and what is empty are false."""
    return UNKNOWN if value is UNKNOWN else bool(value)


def combine_truths(truths: Sequence[Truth], decisive: bool) -> Truth:
    """Return `decisive` if a value is, else UNKNOWN if a value is: `or` for True, `and` for False."""
    if any(value is decisive for value in truths):
        return decisive
    return UNKNOWN if any(value is UNKNOWN for value in truths) else not decisive


def is_number(value: object) -> bool:
    """Return whether a value is a number as JSON has them: no flag, not NaN, and no larger than every float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST_FLOAT <= value <= LARGEST_FLOAT


def _parse(text: str) -> ast.expr:
    if len(text) > MOST_LENGTH:
        raise InvalidRuleError(f"condition {text[:40]!r}...: it has {len(text)} characters; at most {MOST_LENGTH}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = error.msg if isinstance(error, SyntaxError) else "it cannot be parsed"
        raise InvalidRuleError(f"condition {text!r}: {why}") from None
    level: list[ast.AST] = [tree]
    for _ in range(MOST_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if level:
        raise InvalidRuleError(f"condition {text[:40]!r}...: it nests more than {MOST_DEPTH} parts")
    return tree


def _chain(node: ast.expr) -> tuple[ast.expr, tuple[str | int, ...]]:
    """Return the expression in front of all attributes and constant subscripts, and their keys."""
    keys: list[str | int] = []
    while True:
        match node:
            case ast.Attribute(value=inner, attr=key):
                keys.append(key)
            case ast.Subscript(value=inner, slice=ast.Constant(value=str() | int() as key)) if not isinstance(
                key, bool
            ):
                keys.append(key)
            case ast.Subscript(value=inner, slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(place)))):
                keys.append(-place)
            case _:
                return node, tuple(reversed(keys))
        node = inner


def _read_keys(root: _Part, keys: Sequence[str | int]) -> _Part:
    match keys:
        case []:
            return lambda scene: _short_text(root(scene))
        case [str(name)]:  # as nearly every path

            def read_field(scene: Scene) -> object:
                value = root(scene)
                return _short_text(value.get(name, UNKNOWN)) if isinstance(value, dict) else UNKNOWN

            return read_field
        case _:

            def read(scene: Scene) -> object:
                value = root(scene)
                for key in keys:
                    if isinstance(key, str):
                        value = value.get(key, UNKNOWN) if isinstance(value, dict) else UNKNOWN
                    elif isinstance(value, list | tuple) and -len(value) <= key < len(value):
                        value = value[key]
                    else:
                        return UNKNOWN
                return _short_text(value)

            return read


def _short_text(value: object) -> object:
    return UNKNOWN if isinstance(value, str) and len(value) > MOST_TEXT else value


def _spend(scene: Scene, items: int) -> None:
    scene.reads_left -= items
    if scene.reads_left < 0:
        raise _TooMuchWorkError


def _spend_on(scene: Scene, value: Sized) -> None:
    """Count the work of one pass over a value."""
    _spend(scene, len(value) // 10 if isinstance(value, str) else len(value))


def _equal(scene: Scene, first: object, second: object) -> bool:
    """Equality of JSON values: true is not 1, and 1 is 1.0."""
    if isinstance(first, str):
        _spend_on(scene, first)
        return first == second
    pairs = [(first, second)]
    while pairs:
        a, b = pairs.pop()
        if isinstance(a, dict):
            if not isinstance(b, dict) or len(a) != len(b) or any(key not in b for key in a):
                return False
            _spend(scene, 1 + len(a))
            pairs += [(value, b[key]) for key, value in a.items()]
        elif isinstance(a, list | tuple):
            if not isinstance(b, list | tuple) or len(a) != len(b):
                return False
            _spend(scene, 1 + len(a))
            pairs += zip(a, b, strict=True)
        else:
            if isinstance(a, str):
                _spend_on(scene, a)
            if isinstance(a, bool) is not isinstance(b, bool) or isinstance(b, dict | list | tuple) or a != b:
                return False
    return True


def _unequal(scene: Scene, first: object, second: object) -> bool:
    return not _equal(scene, first, second)


def _are_ordered(first: object, second: object) -> bool:
    """Return whether values have an order: numbers with numbers, texts with texts."""
    return (isinstance(first, str) and isinstance(second, str)) or (is_number(first) and is_number(second))


def _order(compare: Callable[[Any, Any], bool]) -> Callable[[Scene, object, object], Truth]:
    return lambda _, first, second: compare(first, second) if _are_ordered(first, second) else UNKNOWN


def _contains(scene: Scene, item: object, whole: object) -> Truth:
    if isinstance(whole, str | dict):
        _spend_on(scene, whole)
        return item in whole if isinstance(item, str) else UNKNOWN
    if not isinstance(whole, list | tuple):
        return UNKNOWN
    _spend_on(scene, whole)
    return item in whole if isinstance(item, str) else any(_equal(scene, item, value) for value in whole)


def _lacks(scene: Scene, item: object, whole: object) -> Truth:
    contains = _contains(scene, item, whole)
    return UNKNOWN if contains is UNKNOWN else not contains


_COMPARISONS: Final[dict[type[ast.cmpop], Callable[[Scene, object, object], Truth]]] = {
    ast.Eq: _equal,
    ast.NotEq: _unequal,
    ast.In: _contains,
    ast.NotIn: _lacks,
    ast.Lt: _order(lt),
    ast.LtE: _order(le),
    ast.Gt: _order(gt),
    ast.GtE: _order(ge),
}


def _add(scene: Scene, first: object, second: object) -> object:
    if isinstance(first, str) and isinstance(second, str):
        _spend(scene, (len(first) + len(second)) // 10)
        return first + second if len(first) + len(second) <= MOST_TEXT else UNKNOWN
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        _spend(scene, len(first) + len(second))
        return [*first, *second]
    return _calculate(first, second, lambda a, b: a + b)


def _calculate(first: object, second: object, operation: Callable[[float, float], float]) -> object:
    """Return the result of an operation on two numbers; UNKNOWN for others, and for a result that is not a number."""
    if not isinstance(first, int | float) or not isinstance(second, int | float):
        return UNKNOWN
    if not is_number(first) or not is_number(second):
        return UNKNOWN
    value = operation(first, second)  # no overflow: each number is within the floats
    return value if is_number(value) else UNKNOWN


_ARITHMETIC: Final[dict[type[ast.operator], Callable[[Scene, object, object], object]]] = {
    ast.Add: _add,
    ast.Sub: lambda _, first, second: _calculate(first, second, lambda a, b: a - b),
    ast.Mult: lambda _, first, second: _calculate(first, second, lambda a, b: a * b),
}

#: Python's other operators, for messages.
_OTHER_OPERATORS: Final[dict[type[ast.operator], str]] = {
    ast.Pow: "**",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.MatMult: "@",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}


def _length(_: Scene, value: object) -> object:
    return len(value) if isinstance(value, str | list | tuple | dict) else UNKNOWN


def _sum(scene: Scene, values: object) -> object:
    if not isinstance(values, list | tuple):
        return UNKNOWN
    _spend_on(scene, values)
    total: object = 0
    for value in values:
        total = _calculate(total, value, lambda a, b: a + b)
    return total


def _extreme(compare: Callable[[Any, Any], bool]) -> Callable[..., object]:
    def extreme(scene: Scene, *values: object) -> object:
        items = values[0] if len(values) == 1 else values
        if not isinstance(items, list | tuple) or not items:
            return UNKNOWN
        _spend_on(scene, items)
        best = items[0]
        for item in items:
            if not _are_ordered(item, best):
                return UNKNOWN
            if compare(item, best):
                best = item
        return best

    return extreme


def _lower(scene: Scene, value: object) -> object:
    if not isinstance(value, str):
        return UNKNOWN
    _spend_on(scene, value)
    return value.lower()


def _words(scene: Scene, value: object) -> object:
    if not isinstance(value, str):
        return UNKNOWN
    _spend_on(scene, value)
    return _split_words(value)


def _split_words(text: str) -> list[str]:
    return [word.strip(".,;:!?\"'()") for word in text.lower().split()]


def _starts(_: Scene, value: object, start: object) -> object:
    return value.startswith(start) if isinstance(value, str) and isinstance(start, str) else UNKNOWN


def _ends(_: Scene, value: object, end: object) -> object:
    return value.endswith(end) if isinstance(value, str) and isinstance(end, str) else UNKNOWN


def _count(scene: Scene, values: object) -> object:
    if not isinstance(values, list | tuple):
        return UNKNOWN
    _spend_on(scene, values)
    return sum(1 for value in values if value)


#: Each function with its fewest and its most arguments. `any`, `all` and `default` read UNKNOWN, so they stand apart.
_FUNCTIONS: Final[dict[str, tuple[int, int, Callable[..., object]]]] = {
    "len": (1, 1, _length),
    "sum": (1, 1, _sum),
    "min": (1, 10, _extreme(lt)),
    "max": (1, 10, _extreme(gt)),
    "lower": (1, 1, _lower),
    "words": (1, 1, _words),
    "starts": (2, 2, _starts),
    "ends": (2, 2, _ends),
    "count": (1, 1, _count),
}
_QUANTIFIERS: Final = {"any": True, "all": False}
FUNCTIONS: Final = (*_FUNCTIONS, *_QUANTIFIERS, "default")


class _Compiler:
    """Compiles one condition, and collects the paths that it reads."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.paths: list[Path] = []
        self.has_default = False
        #: The lists of the generators, by their variables.
        self._iterables: dict[str, ast.expr] = {}

    def compile(self, node: ast.expr, variables: tuple[str, ...]) -> _Part:
        """Return a function that evaluates an expression. `variables` are those of the generators around it."""
        match node:
            case ast.Constant(value=None | bool() | int() | float() | str() as value):
                return lambda _: value
            case ast.Name() | ast.Attribute() | ast.Subscript():
                return self._compile_path(node, variables)
            case ast.List() | ast.Tuple() | ast.GeneratorExp():
                return self._compile_known_list(self._compile_items(node, variables))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                return self._compile_call(name, arguments, variables)
            case _:
                return self._compile_operation(node, variables)

    def _compile_operation(self, node: ast.expr, variables: tuple[str, ...]) -> _Part:
        match node:
            case ast.BoolOp(op=operator, values=values):
                parts, decisive = [self.compile(value, variables) for value in values], isinstance(operator, ast.Or)
                return lambda scene: combine_truths([truth(part(scene)) for part in parts], decisive)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self._compile_not(self.compile(operand, variables))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                part = self.compile(operand, variables)
                return lambda scene: _calculate(0, part(scene), lambda a, b: a - b)
            case ast.BinOp(op=operator, left=first, right=second) if type(operator) in _ARITHMETIC:
                operation = _ARITHMETIC[type(operator)]
                return self._compile_two(operation, self.compile(first, variables), self.compile(second, variables))
            case ast.Compare(left=first, ops=[comparison], comparators=[second]) if type(comparison) in _COMPARISONS:
                self._check_compared(first, comparison, second)
                test = _COMPARISONS[type(comparison)]
                return self._compile_two(test, self.compile(first, variables), self.compile(second, variables))
            case ast.BinOp(op=operator):
                raise self._error(f"{_OTHER_OPERATORS[type(operator)]!r} is not in the language")
            case _:
                raise self._error(f"{ast.unparse(node)!r} is not in the language")

    def check_path(self, path: Path) -> None:
        """Raise `InvalidRuleError` for a field that is not data, and for one that no call has."""
        root, *keys = path
        self._check_keys(keys)
        if root in ("status", "text") and keys:
            raise self._error(f"{root} is a text, which has no fields")
        if root == "args" and keys and isinstance(keys[0], int):
            raise self._error("args have names, and no places: write args.NAME")
        if root == "this" and keys and keys[0] not in ("args", "text"):
            raise self._error(f"the judged call has no {keys[0]}: write this.args.{keys[0]} for its argument")

    def _check_keys(self, keys: Iterable[str | int]) -> None:
        for key in keys:
            if isinstance(key, str) and key.startswith("__"):
                raise self._error(f"{key!r} is not in the language")

    def _check_compared(self, first: ast.expr, comparison: ast.cmpop, second: ast.expr) -> None:
        """Raise `InvalidRuleError` for a comparison with a text that the other side never is, or never has."""
        is_membership = isinstance(comparison, ast.In | ast.NotIn)
        if not is_membership or isinstance(second, ast.List | ast.Tuple):
            self._check_texts(first, self._list_texts(second))
        if not (is_membership and isinstance(second, ast.Name)):  # a part of the status
            self._check_texts(second, self._list_texts(first))

    def _check_texts(self, side: ast.expr, texts: Iterable[str]) -> None:
        for text in texts:
            match side:
                case ast.Name(id="status") if text not in STATUSES:
                    raise self._error(f"the status {text!r} {explain_unknown(text, STATUSES)}")
                case ast.Call(func=ast.Name(id="lower")) if text != text.lower():
                    raise self._error(f"lower() never has {text!r}: write {text.lower()!r}")
                case ast.Call(func=ast.Name(id="words")) if (words := _split_words(text)) != [text]:
                    hint = repr(words[0]) if len(words) == 1 else f"{text.lower()!r} in lower()"
                    raise self._error(f"words() never has {text!r}: write {hint}")
                case _:
                    pass

    def _list_texts(self, node: ast.expr) -> list[str]:
        """Return the texts that an expression may be, as far as the condition itself has them."""
        match node:
            case ast.Constant(value=str() as text):
                return [text]
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return [text for element in elements for text in self._list_texts(element)]
            case ast.Name(id=name) if name in self._iterables:
                return self._list_texts(self._iterables[name])
            case _:
                return []

    def _error(self, why: str) -> InvalidRuleError:
        return InvalidRuleError(f"condition {self._text!r}: {why}")

    def _compile_path(self, node: ast.expr, variables: tuple[str, ...]) -> _Part:
        root, keys = _chain(node)
        if not isinstance(root, ast.Name):
            raise self._error(f"{ast.unparse(node)!r} is not in the language")
        self._check_keys(keys)
        self._check_spelling(node)
        if root.id in variables:
            place = variables.index(root.id)
            return _read_keys(lambda scene: scene.variables[place], keys)
        if root.id not in NAMES:
            raise self._error(f"the name {root.id!r} {explain_unknown(root.id, (*NAMES, *variables))}")
        self.check_path((root.id, *keys))
        self.paths.append((root.id, *keys))
        return read_path((root.id, *keys))

    def _check_spelling(self, node: ast.expr) -> None:
        """Raise `InvalidRuleError` for a name that Python reads as another: it normalizes letters outside ASCII."""
        if not self._text.isascii():
            source = ast.get_source_segment(self._text.strip(), node) or ""
            if not source.isascii() and any(
                isinstance(part, ast.Name | ast.Attribute) and not _spells(self._text.strip(), part)
                for part in ast.walk(node)
            ):
                raise self._error(f"{source!r}: write a field whose name is not ASCII as ['name']")

    def _compile_items(self, node: ast.expr, variables: tuple[str, ...]) -> Callable[[Scene], object]:
        """Return a function that makes a list, in which items may be UNKNOWN."""
        match node:
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                parts = [self.compile(element, variables) for element in elements]
                return lambda scene: [part(scene) for part in parts]
            case ast.GeneratorExp(
                elt=element,
                generators=[ast.comprehension(target=ast.Name(id=name), iter=iterable, ifs=[], is_async=0)],
            ):
                if name in (*NAMES, *FUNCTIONS, *variables):
                    raise self._error(f"the name {name!r} is taken: choose another for the generator")
                items = self.compile(iterable, variables)
                self._iterables[name] = iterable
                return self._compile_generator(items, self.compile(element, (*variables, name)))
            case ast.GeneratorExp():
                raise self._error(f"{ast.unparse(node)!r} is not in the language: a generator is `X for NAME in LIST`")
            case _:
                return self.compile(node, variables)

    @staticmethod
    def _compile_generator(items: _Part, element: _Part) -> _Part:
        def generate(scene: Scene) -> object:
            values = items(scene)
            if not isinstance(values, list | tuple):
                return UNKNOWN
            scene.items_left -= len(values)
            if scene.items_left < 0:
                raise _TooMuchWorkError
            outer, elements = scene.variables, []
            for value in values:
                scene.variables = (*outer, UNKNOWN if isinstance(value, str) and len(value) > MOST_TEXT else value)
                elements.append(element(scene))
            scene.variables = outer
            return elements

        return generate

    @staticmethod
    def _compile_known_list(items: _Part) -> _Part:
        def make_list(scene: Scene) -> object:
            values = items(scene)
            return UNKNOWN if isinstance(values, list) and any(value is UNKNOWN for value in values) else values

        return make_list

    @staticmethod
    def _compile_not(part: _Part) -> _Part:
        def negate(scene: Scene) -> object:
            value = truth(part(scene))
            return UNKNOWN if value is UNKNOWN else not value

        return negate

    @staticmethod
    def _compile_two(operation: Callable[[Scene, object, object], object], first: _Part, second: _Part) -> _Part:
        def operate(scene: Scene) -> object:
            a, b = first(scene), second(scene)
            return UNKNOWN if a is UNKNOWN or b is UNKNOWN else operation(scene, a, b)

        return operate

    def _compile_call(self, name: str, arguments: list[ast.expr], variables: tuple[str, ...]) -> _Part:
        if name in _QUANTIFIERS:
            self._check_count(name, arguments, 1, 1)
            return self._compile_quantifier(self._compile_items(arguments[0], variables), _QUANTIFIERS[name])
        parts = [self.compile(argument, variables) for argument in arguments]
        if name == "default":
            self._check_count(name, arguments, 2, 2)
            self.has_default = True
            return self._compile_default(*parts)
        if name not in _FUNCTIONS:
            raise self._error(f"the function {name!r} {explain_unknown(name, FUNCTIONS)}")
        fewest, most, function = _FUNCTIONS[name]
        self._check_count(name, arguments, fewest, most)
        if name in ("starts", "ends"):
            self._check_texts(arguments[0], self._list_texts(arguments[1]))

        def call(scene: Scene) -> object:
            values = [part(scene) for part in parts]
            return UNKNOWN if any(value is UNKNOWN for value in values) else function(scene, *values)

        return call

    def _check_count(self, name: str, arguments: Sequence[ast.expr], fewest: int, most: int) -> None:
        if not fewest <= len(arguments) <= most or any(isinstance(part, ast.Starred) for part in arguments):
            raise self._error(f"{name}() has {len(arguments)} arguments, not {fewest}{f' to {most}' * (most > fewest)}")

    @staticmethod
    def _compile_quantifier(items: _Part, decisive: bool) -> _Part:
        def quantify(scene: Scene) -> object:
            values = items(scene)
            if not isinstance(values, list | tuple):
                return UNKNOWN
            _spend_on(scene, values)
            return combine_truths([truth(value) for value in values], decisive)

        return quantify

    @staticmethod
    def _compile_default(part: _Part, fallback: _Part) -> _Part:
        def choose(scene: Scene) -> object:
            value = part(scene)
            return fallback(scene) if value is UNKNOWN or value is None else value

        return choose


def _spells(text: str, node: ast.Name | ast.Attribute) -> bool:
    """Return whether a node's name is in the text as the node has it."""
    name = node.id if isinstance(node, ast.Name) else node.attr
    return (ast.get_source_segment(text, node) or "").endswith(name)
