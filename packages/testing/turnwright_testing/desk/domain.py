"""The values of a desk's domain, from which the arguments of calls are drawn.

They come from strategies of the user, from schemas (enums, examples, bounds), from the modules of the desk (keys, rows
and constants, with the numbers next to them), from the agent's own texts, and from the results of earlier calls.
"""

import json
import math
import re
import sqlite3
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from pathlib import Path
from random import Random
from types import CodeType, FunctionType, ModuleType, NoneType, UnionType
from typing import Final, cast
from uuid import UUID

from pydantic import JsonValue

from turnwright.context import JsonObject
from turnwright.tools import Tool
from turnwright_testing.draw import draw_pool
from turnwright_testing.json_values import (
    ChosenValues,
    Schema,
    arguments_of,
    choose_values,
    chosen_type,
    values_of,
)

from .desk import Desk
from .world import rows_of

#: The most values that are taken of a container, and how deep containers are searched.
_MOST: Final = 50
_DEEPEST: Final = 3
_LONGEST: Final = 120
#: How often a value is one of a result under this name, an argument that was accepted under it, one of any result,
#: and one of the desk's data; and how often a text is one that is almost the same.
_SHARES: Final = (35, 30, 15, 20)
_VARIES: Final = 0.06
#: Numbers above the limits of most desks.
_LARGE: Final = (100, 1_000, 10_000)
#: A word of a text that looks like an id, a name or a number: it has a digit, a capital inside, or one of `@-_.:`.
_WORD: Final = re.compile(r"[\w@.:/-]*[\d@_:/-][\w@.:/-]*\w|[A-Z]{2,}")
_KINDS: Final[Mapping[str, type | UnionType]] = {
    "string": str,
    "integer": int,
    "number": int | float,
    "boolean": bool,
    "null": NoneType,
    "array": list,
    "object": dict,
}
#: Readers of formats, which raise `ValueError` for another text.
_FORMATS: Final[Mapping[str, Callable[[str], object]]] = {
    "date": date.fromisoformat,
    "date-time": datetime.fromisoformat,
    "time": time.fromisoformat,
    "uuid": UUID,
}


class Domain:
    """The values of one desk. `seed` decides what is drawn of strategies."""

    def __init__(self, desk: Desk, seed: int) -> None:
        self._seed = seed
        self._values = desk.values
        names = {module.__name__ for module in desk.modules}
        world = [value for module in desk.modules for value in _values_in(module, names)]
        agents = {agent.name: agent for agent in (desk.agent, *desk.agents)}.values()
        texts = [agent.instructions for agent in agents if isinstance(agent.instructions, str)]
        texts += [tool.description for tool in desk.tools]
        world += [word for text in (*texts, *desk.prompts) for word in _WORD.findall(text)]
        world += [constant for tool in desk.tools for constant in _constants_of(tool)]
        self.texts = list(dict.fromkeys(value for value in world if isinstance(value, str)))
        numbers = [int(value) if value == int(value) else value for value in world if not isinstance(value, str)]
        self.numbers = sorted({near for value in (*numbers, *_LARGE) for near in (value - 1, value, value + 1)})
        #: The arguments of calls that succeeded, in this case and in those before it.
        self.accepted = Memory()
        #: Of each tool, the arguments of calls that succeeded, and may succeed in other cases too.
        self.accepted_calls: defaultdict[str, list[JsonObject]] = defaultdict(list)
        self._vocabulary: set[JsonValue] = {*self.texts, *self.numbers}
        self._pools: dict[str, list[object]] = {}
        self._strategies: dict[str, ChosenValues] = {}

    def pool(self, schema: Schema, tool: str) -> list[object]:
        """Return values that fit a schema; `tool` is the name of the tool whose arguments they are."""
        key = f"{tool}:{json.dumps(schema, sort_keys=True, default=str)}"
        if key not in self._pools:
            strategy = arguments_of(schema, self.chosen(tool)) if tool else values_of(schema)
            self._pools[key] = draw_pool(strategy, self._seed) or [{}]
            values = cast("list[JsonValue]", self._pools[key])
            self._vocabulary |= {value for _, value in _leaves("", values)}
        return self._pools[key]

    def accept(self, tool: str, arguments: JsonObject) -> None:
        """Note the arguments of a call that succeeded, apart from those of results, which other cases do not have."""
        leaves = [*_leaves("", arguments)]
        known_leaves = [(name, value) for name, value in leaves if value in self._vocabulary]
        for name, value in known_leaves:
            self.accepted.add_value(name, value)
        calls = self.accepted_calls[tool]
        if all(leaf in known_leaves or not leaf[0] for leaf in leaves) and arguments not in calls[:_MOST]:
            calls.append(arguments)

    def result(self, tool: str) -> list[JsonValue] | None:
        """Return results of a tool, drawn of the user's strategy for `tool.result`; None without one."""
        strategy = choose_values(tool, {key: value for key, value in self._values.items() if key == f"{tool}.result"})
        return [*draw_pool(strategy["result"], self._seed)] if strategy else None

    def chosen(self, tool: str) -> ChosenValues:
        """Return the user's strategies for this tool."""
        if tool not in self._strategies:
            self._strategies[tool] = choose_values(tool, self._values)
        return self._strategies[tool]


class Memory:
    """Values that results or arguments had, by the name under which they came."""

    def __init__(self) -> None:
        self.values: list[JsonValue] = []
        self._by_name: dict[str, list[JsonValue]] = {}

    def add(self, text: str) -> None:
        """Remember the values of a result: those of JSON, the words of a text, and the whole text."""
        try:
            data: JsonValue = json.loads(text)
        except ValueError:
            data = [text, *_WORD.findall(text)]
        for name, value in _leaves("", data):
            self.add_value(name, value)

    def add_value(self, name: str, value: JsonValue) -> None:
        """Remember a value."""
        known_values = self._by_name.setdefault(name, [])
        if value not in known_values:
            known_values.append(value)
            self.values.append(value)

    def of(self, name: str) -> list[JsonValue]:
        """Return the values that came under a name like this one: `order` is like `order_id`, and like `id`."""
        return [
            value
            for known_name, values in self._by_name.items()
            if known_name and (known_name == name or known_name in name.split("_") or name in known_name.split("_"))
            for value in values
        ]


class Arguments:
    """Draws the arguments of calls in one case."""

    def __init__(self, domain: Domain, random: Random, memory: Memory) -> None:
        self._domain = domain
        self._random = random
        self._memory = memory

    def draw(self, schema: Schema, tool: str = "") -> JsonValue:
        """Draw a value that fits the schema: one of its pool, in which some leaves become values of the domain."""
        value = self._random.choice(self._domain.pool(schema, tool))
        definitions = schema.get("$defs")
        return self._place(schema, value, tool, "", definitions if isinstance(definitions, Mapping) else {})

    def _place(
        self, schema: JsonValue | Schema, value: object, tool: str, name: str, definitions: Mapping[str, JsonValue]
    ) -> JsonValue:
        if not isinstance(schema, Mapping) or chosen_type(self._domain.chosen(tool), str(schema.get("type")), schema):
            return value  # type: ignore[return-value]  # pools have JSON values
        if isinstance(reference := schema.get("$ref"), str):
            return self._place(definitions.get(reference.rpartition("/")[2]), value, tool, name, definitions)
        branches = schema.get("anyOf", schema.get("oneOf"))
        if isinstance(branches, list):
            fitting = [branch for branch in branches if _may_be(branch, value)]
            return self._place(fitting[0] if fitting else None, value, tool, name, definitions)
        if isinstance(value, dict):
            properties = schema.get("properties")
            inner = properties if isinstance(properties, Mapping) else {}
            return {
                key: item
                if key in self._domain.chosen(tool)
                else self._place(inner.get(key), item, tool, key, definitions)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self._place(schema.get("items"), item, tool, name, definitions) for item in value]
        return self._leaf(schema, value, name)

    def _leaf(self, schema: Schema, value: object, name: str) -> JsonValue:
        """Return the value, or one of the domain: mostly that of a result, or of an example where there are some."""
        is_fixed = any(key in schema for key in ("enum", "const"))
        stays = 0.8 if schema.get("examples") else 0.35
        if not is_fixed and self._random.random() >= stays:
            sources = [[item for item in source if _fits(schema, item)] for source in self._sources(name)]
            shares = [share if source else 0 for share, source in zip(_SHARES, sources, strict=True)]
            if any(shares):
                return self._vary(schema, self._random.choice(*self._random.choices(sources, shares)))
        return value  # type: ignore[return-value]  # pools have JSON values

    def _sources(self, name: str) -> tuple[Sequence[JsonValue], ...]:
        """Return the values of each source, in the order of the shares."""
        domain, memory = self._domain, self._memory
        return memory.of(name), domain.accepted.of(name), memory.values, (*domain.texts, *domain.numbers)

    def _vary(self, schema: Schema, value: JsonValue) -> JsonValue:
        """Return the value, or rarely one that a careless comparison takes for it."""
        if isinstance(value, str) and self._random.random() < _VARIES:
            variant = self._random.choice((value.swapcase(), f"{value} ", f"../{value}", f"{value}'"))
            return variant if _fits(schema, variant) else value
        return value


def _may_be(schema: JsonValue, value: object) -> bool:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    return isinstance(value, _KINDS.get(str(kind), object))


def _fits(schema: Schema, value: JsonValue) -> bool:
    """Whether a leaf fits the type and the bounds of a schema."""
    match schema.get("type"):
        case "string" if isinstance(value, str):
            return _has_form(schema, value) and _between(len(value), schema.get("minLength"), schema.get("maxLength"))
        case "integer" if isinstance(value, int) and not isinstance(value, bool):
            return _in_bounds(schema, value)
        case "number" if isinstance(value, int | float) and not isinstance(value, bool):
            return _in_bounds(schema, value)
        case _:
            return False


def _has_form(schema: Schema, text: str) -> bool:
    """Whether a text has the pattern and the format of a schema."""
    form, pattern = schema.get("format"), schema.get("pattern")
    try:
        if isinstance(form, str):
            _FORMATS[form](text)
        return not isinstance(pattern, str) or re.search(pattern, text) is not None
    except (KeyError, ValueError, re.error):
        return False


def _in_bounds(schema: Schema, value: float) -> bool:
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    is_inside = not (isinstance(above, int | float) and value <= above)
    is_inside = is_inside and not (isinstance(below, int | float) and value >= below)
    return is_inside and _between(value, schema.get("minimum"), schema.get("maximum"))


def _between(value: float, low: JsonValue, high: JsonValue) -> bool:
    return not (isinstance(low, int | float) and value < low) and not (isinstance(high, int | float) and value > high)


def _leaves(name: str, data: JsonValue | JsonObject) -> Iterator[tuple[str, str | int | float]]:
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield "", key
            yield from _leaves(key, value)
    elif isinstance(data, list):
        for value in data:
            yield from _leaves(name, value)
    elif isinstance(data, str | int | float) and not isinstance(data, bool):
        yield name, data


def _values_in(module: ModuleType, modules: Collection[str]) -> Iterator[str | float]:
    """Return the texts and numbers of a module: of its data, and of the code of its functions."""
    classes = [value for value in vars(module).values() if isinstance(value, type)]
    own_classes = [value for value in classes if value.__module__ == module.__name__]
    for name, value in (item for names in (module, *own_classes) for item in vars(names).items()):
        if name.startswith("__") or isinstance(value, ModuleType | type):
            continue
        if isinstance(value, FunctionType):
            if value.__module__ == module.__name__:
                yield from _constants(value.__code__, value.__doc__)
        else:
            yield from _plain(value, 0, modules)


def _plain(value: object, depth: int, modules: Collection[str] = ()) -> Iterator[str | float]:
    """Return the texts and numbers of a value; `modules` have the classes into whose objects it looks."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, date | time):
        value = value.isoformat()
    if isinstance(value, bool) or value is None or depth > _DEEPEST:
        return
    if isinstance(value, str | UUID):
        yield from [str(value)] if 0 < len(str(value)) <= _LONGEST else []
    elif isinstance(value, int | float | Decimal):
        yield from [value if isinstance(value, int) else float(value)] if math.isfinite(value) else []
    else:
        for item in _items(value, modules):
            yield from _plain(item, depth + 1, modules)


def _items(value: object, modules: Collection[str]) -> Sequence[object]:
    if isinstance(value, sqlite3.Connection | Path):
        return [row for _, rows in rows_of(value, _MOST) for row in rows]
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()][: 2 * _MOST]
    if isinstance(value, set | frozenset):  # their order differs from process to process
        return sorted(value, key=repr)[:_MOST]
    if isinstance(value, list | tuple | deque):
        return [*value][:_MOST]
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in fields(value)]
    return [*getattr(value, "__dict__", {}).values()] if type(value).__module__ in modules else ()


def _constants_of(tool: Tool) -> Iterator[str | float]:
    for function in tool.functions:
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            yield from _constants(code, getattr(function, "__doc__", None))


def _constants(code: CodeType, doc: str | None) -> Iterator[str | float]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _constants(constant, None)
        elif constant != doc and not _is_piece(constant):
            yield from _plain(constant, 1)


def _is_piece(constant: object) -> bool:
    """Whether a constant is a piece of a message, such as ` EUR for `: no argument, and confusing in a result."""
    return isinstance(constant, str) and constant != constant.strip()
