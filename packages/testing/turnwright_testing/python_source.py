r"""Values as Python source, for printed tests.

`code` writes a value as the expression that makes an equal one, and `Imports` collects the import lines that the
expression needs:

    imports = Imports()
    body = f"SCRIPT = {code(script, imports)}"
    text = "\n".join([*imports.lines(), "", body])

The layout is that of common formatters: one line if it fits, else one item per line. Source that stands already, such
as the name of a variable, is put in between as `Source("NAME")`.
"""

import json
import math
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import Enum
from importlib import import_module
from inspect import Parameter, signature
from typing import Final, NamedTuple

import msgspec
from pydantic import BaseModel

from turnwright.agent import Agent
from turnwright.journal import answers
from turnwright.model.protocol import ModelError, ModelResponse, ResponseToolCall
from turnwright.model.scripted import asks_for
from turnwright_states import Decision, Finish, Limits, Usage

#: Columns that a line may take.
WIDTH: Final = 100
#: An import line that is longer is written one name per line, which formatters of any width leave alone.
_IMPORT_WIDTH: Final = 88
_INDENT: Final = "    "
#: Columns that a literal gets, however deep it stands.
_NARROWEST: Final = 40
#: Where users import from, the nearest first. What none of these exports is imported from where it is defined.
_PUBLIC: Final = (
    "turnwright",
    "turnwright.model",
    "turnwright_testing",
    "turnwright_testing.desk",
    "turnwright_testing.simulation",
    "turnwright.tools",
    "turnwright_states",
)
#: What is nested deeper, or has a longer key, is written as JSON: it would run out of the page, and Python's parser
#: gives up at about 200 brackets.
_DEEPEST: Final = 14
_LONGEST_KEY: Final = 40
_SHORT_ESCAPES: Final = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_LONG_NUMBER: Final = 10**60
#: The texts that a script abbreviates; see `ScriptedModel`.
_ONE_EACH: Final = Usage(input_tokens=1, output_tokens=1)


@dataclass(frozen=True, slots=True)
class PythonSource:
    """Source that `code` inserts unchanged. It must be one expression in one line."""

    text: str


class _Budget(NamedTuple):
    """The budget of an agent, in which a limit that is set to its default is not one that is absent."""

    limits: Limits


class Imports:
    """The imports of a script."""

    def __init__(self) -> None:
        #: The value of each name, and the module that it comes from.
        self._names: dict[str, tuple[object, str]] = {}
        self._modules: set[str] = set()

    def name(self, thing: object) -> str:
        """Note a class or a function, and return its name in the script.

        Of two things with one name, the second is called by its module.
        """
        name: str = getattr(thing, "__name__", "")
        module = _home(name, thing)
        known_thing, _ = self._names.setdefault(name, (thing, module))
        return name if known_thing is thing else f"{self.module(module)}.{name}"

    def module(self, name: str) -> str:
        """Note a module that is imported as a whole, and return its name."""
        self._modules.add(name)
        return name

    def lines(self) -> list[str]:
        """The import lines in the order that linters ask for: the standard library, an empty line, the others."""
        first, second = self._section(standard=True), self._section(standard=False)
        return [*first, *([""] if first and second else []), *second]

    def _section(self, *, standard: bool) -> list[str]:
        """Modules as a whole, then names."""
        lines = [f"import {name}" for name in sorted(self._modules) if _is_standard(name) is standard]
        modules = {module for _, module in self._names.values() if _is_standard(module) is standard}
        for module in sorted(modules - {"builtins"}):
            lines += self._from(module)
        return lines

    def _from(self, module: str) -> list[str]:
        names = sorted((name for name, (_, home) in self._names.items() if home == module), key=_order)
        line = f"from {module} import {', '.join(names)}"
        if len(line) <= _IMPORT_WIDTH:
            return [line]
        return [f"from {module} import (", *(f"{_INDENT}{name}," for name in names), ")"]


def code(value: object, imports: Imports | None = None, *, indent: int = 0, before: int = 0) -> str:
    """Python source of an expression that evaluates to a value equal to `value`.

    It takes None, bools, numbers, texts, `Source`, lists, tuples and mappings, enums, the models and dataclasses of
    Turnwright (without the fields that are at their defaults), and `ModelError`. `imports` collects what the source
    needs. The first line begins behind `before` columns, such as those of `NAME = `, the others behind `indent`.

    Raises `TypeError` for a value of another type, and names the type.
    """
    return _laid_out(_node(value, imports or Imports(), 0), indent, indent + before)


@dataclass(frozen=True, slots=True)
class _Item:
    """One item of a group. `label` precedes the value: the name of an argument, or a key."""

    label: str
    node: "_Node"


@dataclass(frozen=True, slots=True)
class _Node:
    """A piece of source as one line, with its parts if it can be laid out on several."""

    flat: str
    #: What opens and closes a group: `Limits(` and `)`.
    ends: tuple[str, str] = ("(", ")")
    items: tuple[_Item, ...] = ()
    #: A text, which can be cut into several literals.
    text: str | None = None


def _node(value: object, imports: Imports, depth: int) -> _Node:  # noqa: C901, PLR0911, PLR0912 (a case a type: flat)
    match value:
        case PythonSource(text=text):
            return _Node(text)
        case Enum():
            return _Node(f"{imports.name(type(value))}.{value.name}")
        case None | bool() | int() | float():
            return _Node(_number(value))
        case str():
            return _Node(_literal(value), text=value)
        case ModelError():
            return _call(imports.name(ModelError), [("", str(value)), *_said_of(value)], imports, depth)
        case answers.Answer(decision=Decision.REJECT, text=words):
            return _call(imports.name(answers.reject), [("", words)] if words else [], imports, depth)
        case answers.Answer(decision=Decision.APPROVE, text="", arguments=arguments, always=always):
            argument_options: list[tuple[str, object]] = [] if arguments is None else [("arguments", arguments)]
            options = [*argument_options, ("always", always)] if always else argument_options
            return _call(imports.name(answers.approve), options, imports, depth)
        case ModelResponse() if _asks(value):
            return _asking(value, imports, depth)
        case _Budget(limits):
            set_limits = [(name, limit) for name, limit in limits if name in limits.model_fields_set]
            return _call(imports.name(Limits), set_limits, imports, depth)
        case list() | Mapping() if depth >= _DEEPEST or _has_long_keys(value):
            return _as_json(value, imports)
        case list():
            return _group("[", [("", item) for item in value], "]", imports, depth)
        case tuple():
            return _group("(", [("", item) for item in value], ",)" if len(value) == 1 else ")", imports, depth)
        case Mapping():
            return _mapping(value, imports, depth)
        case BaseModel():
            return _call(imports.name(type(value)), _fields_of_model(value), imports, depth)
        case msgspec.Struct():
            return _call(imports.name(type(value)), _fields_of_struct(value), imports, depth)
        case _ if is_dataclass(value) and not isinstance(value, type):
            return _call(imports.name(type(value)), _fields_of_dataclass(value), imports, depth)
        case _:
            raise TypeError(f"code cannot write {type(value).__name__} as source")


def _call(name: str, arguments: Iterable[tuple[str, object]], imports: Imports, depth: int) -> _Node:
    labels_values = [(f"{label}=" if label else "", value) for label, value in arguments]
    return _group(f"{name}(", labels_values, ")", imports, depth)


def _mapping(value: Mapping[object, object], imports: Imports, depth: int) -> _Node:
    pairs = [(f"{_node(key, imports, depth + 1).flat}: ", item) for key, item in value.items()]
    return _group("{", pairs, "}", imports, depth)


def _group(opens: str, labels_values: Sequence[tuple[str, object]], closes: str, imports: Imports, depth: int) -> _Node:
    items = tuple(_Item(label, _node(value, imports, depth + 1)) for label, value in labels_values)
    flat = opens + ", ".join(item.label + item.node.flat for item in items) + closes
    return _Node(flat, (opens, closes.lstrip(",")), items)


def _as_json(value: object, imports: Imports) -> _Node:
    text = json.dumps(value, default=dict, ensure_ascii=False)
    source = f"{imports.module('json')}.loads("
    inner = _Node(_literal(text), text=text)
    return _Node(f"{source}{inner.flat})", (source, ")"), (_Item("", inner),))


def _has_long_keys(value: object) -> bool:
    return isinstance(value, Mapping) and any(
        isinstance(key, str) and _width(_literal(key)) > _LONGEST_KEY for key in value
    )


def _asks(reply: ModelResponse) -> bool:
    """Whether `asks_for` makes this reply."""
    plain = not reply.reasoning and not reply.reasoning_details and reply.finish is Finish.STOP
    return plain and bool(reply.calls) and reply.usage is not None


def _asking(reply: ModelResponse, imports: Imports, depth: int) -> _Node:
    calls: list[tuple[str, object]] = [("", _short(call)) for call in reply.calls]
    text = [("text", reply.text)] if reply.text else []
    usage = [("usage", reply.usage)] if reply.usage != _ONE_EACH else []
    return _call(imports.name(asks_for), [*calls, *text, *usage], imports, depth)


def _short(call: ResponseToolCall) -> object:
    plain = call.arguments is not None and not call.raw and not call.id
    return (call.name, call.arguments) if plain else call


def _said_of(error: ModelError) -> Iterator[tuple[str, object]]:
    yield "cause", error.cause
    for name in ("status", "retry_after", "partial"):
        value = getattr(error, name)
        if value is not None:
            yield name, value


def _fields_of_model(model: BaseModel) -> Iterator[tuple[str, object]]:
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(model, Agent):  # there a field that is set to its default is not one that is absent
            differs = name in model.model_fields_set
            value = _Budget(value) if isinstance(value, Limits) else value
        else:
            differs = field.is_required() or value != field.get_default(call_default_factory=True)
        if differs:
            yield name, value


def _fields_of_struct(value: msgspec.Struct) -> Iterator[tuple[str, object]]:
    parameters = signature(type(value)).parameters
    for field in msgspec.structs.fields(value):
        field_value = getattr(value, field.name)
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if field.required or field_value != default or type(field_value) is not type(default):
            is_named = not field.required or parameters[field.name].kind is Parameter.KEYWORD_ONLY
            yield field.name if is_named else "", field_value


def _fields_of_dataclass(value: object) -> Iterator[tuple[str, object]]:
    assert is_dataclass(value)  # noqa: S101 (the caller has looked)
    for field in fields(value):
        field_value = getattr(value, field.name)
        is_required, default = _default(field)
        if not field.init or (not is_required and field_value == default and type(field_value) is type(default)):
            continue
        yield "" if is_required and not field.kw_only else field.name, field_value


def _default(field: "Field[object]") -> tuple[bool, object]:
    """Return a field's default, and whether the field is required."""
    if field.default is not MISSING:
        return False, field.default
    if field.default_factory is not MISSING:
        return False, field.default_factory()
    return True, None


def _number(value: float | None) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    # Python refuses to read and to write very long decimals; hexadecimals it takes.
    return hex(value) if isinstance(value, int) and abs(value) >= _LONG_NUMBER else repr(value)


def _literal(text: str) -> str:
    """The text as one literal, in double quotes unless single ones save escapes."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    return quote + "".join(_escape(character, quote) for character in text) + quote


def _escape(character: str, quote: str) -> str:
    if character == quote:
        return f"\\{character}"
    if character in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[character]
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def _width(text: str) -> int:
    """The columns that a text takes: those of East Asia take two."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _laid_out(node: _Node, indent: int, column: int) -> str:
    """Return the source of `node`; the first line begins in `column`, the others at `indent` or deeper."""
    if column + _width(node.flat) < WIDTH:  # a comma comes behind it
        return node.flat
    inner, outer = " " * (indent + len(_INDENT)), " " * indent
    opens, closes = node.ends
    text = node.text
    if len(node.items) == 1 and not node.items[0].label and opens != "(":
        text = node.items[0].node.text  # the brackets of a call serve the literals in it; those of a tuple do not
    if text:
        lines = [inner + _literal(piece) for piece in _pieces(text, WIDTH - len(inner) - 3)]
    elif node.items:
        lines = [
            f"{inner}{item.label}{_laid_out(item.node, len(inner), len(inner) + _width(item.label))},"
            for item in node.items
        ]
    else:
        return node.flat
    return "\n".join([opens, *lines, outer + closes])


def _pieces(text: str, width: int) -> Iterator[str]:
    """The text in pieces, each of which makes a literal of at most `width` columns; lines are kept apart."""
    width = max(width, _NARROWEST)
    for line in text.splitlines(keepends=True):
        start = used_width = 0
        for place, character in enumerate(line):
            wide = _width(_escape(character, '"'))
            if used_width + wide > width and character != "\n":
                space = line.rfind(" ", start + (place - start) // 2, place) + 1
                end = space or place
                yield line[start:end]
                start, used_width = end, _width("".join(_escape(character, '"') for character in line[end:place]))
            used_width += wide
        yield line[start:]


def _home(name: str, thing: object) -> str:
    for module in _PUBLIC:
        if getattr(import_module(module), name, None) is thing:
            return module
    home: str = getattr(thing, "__module__", "builtins")
    parent, _, room = home.rpartition(".")
    # Python 3.13 says of `Path` that it lives in `pathlib._local`.
    if room.startswith("_") and parent and getattr(import_module(parent), name, None) is thing:
        return parent
    return home


def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _order(name: str) -> tuple[int, str]:
    """Return the sort key of a name in an import: constants, classes, the others."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2), name
