"""Faults of a JSON Schema: references that lead nowhere, and keywords whose value no draft from 4 on allows.

They would fail in the middle of a turn, or at the provider, which refuses the whole request.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeGuard
from urllib.parse import unquote, urldefrag, urljoin

#: Keywords whose values are data, not schemas; and those whose values are schemas by names that anybody may choose.
_DATA: Final = frozenset({"const", "default", "enum", "examples"})
_NAMED: Final = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
_REFS: Final = ("$ref", "$dynamicRef", "$recursiveRef")
#: The schemas of JSON Schema itself, which validators know.
_KNOWN: Final = ("https://json-schema.org/", "http://json-schema.org/")
_INDEX: Final = frozenset("0123456789")
_TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})

Path = tuple[str | int, ...]


class DanglingRef(NamedTuple):
    """A reference to a missing place, or to another document, which nobody fetches. `path` leads to its keyword."""

    path: Path
    ref: str
    is_remote: bool

    def __str__(self) -> str:
        """Return where it is, and what to do."""
        fault = (
            "is in another document, which is not fetched: copy it into this one, under $defs"
            if self.is_remote
            else "leads to nothing in this document"
        )
        return f"{'.'.join(map(str, self.path))}: {self.ref!r:.200} {fault}"


class _Place(NamedTuple):
    """A schema inside of the document: the URI that its references are relative to."""

    schema: Mapping[str, object]
    path: Path
    base: str


def dangling_refs(schema: Mapping[str, object]) -> list[DanglingRef]:
    """Return the references in a schema that lead nowhere, in no order. `$id` and anchors inside of it are known."""
    places = list(_places(schema))
    documents = {place.base: place.schema for place in reversed(places) if place.path == () or _id(place.schema)}
    documents[""] = schema
    anchors = {
        (place.base, name)
        for place in places
        for name in (place.schema.get("$anchor"), place.schema.get("$dynamicAnchor"), _fragment_id(place.schema))
        if isinstance(name, str)
    }
    refs: list[DanglingRef] = []
    for place in places:
        for keyword in _REFS:
            ref = place.schema.get(keyword)
            if not isinstance(ref, str):
                continue
            url, fragment = urldefrag(urljoin(place.base, ref))
            is_remote = url not in documents and not url.startswith(_KNOWN)
            if is_remote or (url in documents and not _leads(documents[url], url, unquote(fragment), anchors)):
                refs.append(DanglingRef((*place.path, keyword), ref, is_remote))
    return refs


def invalid_keyword(schema: Mapping[str, object]) -> str | None:
    """Return the first keyword in a schema whose value is invalid in every draft from 4 on that has it, or None.

    The text names the place, the value and what belongs there. Unknown keywords, and keywords that only describe, may
    have any value.
    """
    waiting: list[tuple[Mapping[str, object], Path]] = [(schema, ())]
    while waiting:
        place, path = waiting.pop()
        for keyword, value in place.items():
            kind = _KINDS.get(keyword)
            if kind is None:
                continue
            if not kind.allows(value):
                return f"{'.'.join(map(str, (*path, keyword)))}: {value!r:.80} is not {kind.name}"
            waiting += [(item, (*path, keyword, *inner)) for item, inner in _inner_schemas(keyword, value)]
    return None


def _inner_schemas(keyword: str, value: object) -> Iterator[tuple[Mapping[str, object], Path]]:
    """Yield the schemas in the value of a known keyword, each with its path there."""
    if keyword in _DATA:
        return
    if isinstance(value, Mapping) and keyword not in _NAMED:
        yield value, ()
    elif isinstance(value, Mapping | list | tuple):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        yield from ((item, (name,)) for name, item in items if isinstance(item, Mapping))


def without_refs(schema: Mapping[str, object], refs: Sequence[DanglingRef]) -> dict[str, object]:
    """Return a copy of a schema without these references: any value fits there."""
    paths = {ref.path for ref in refs}

    def copy(value: object, path: Path) -> object:
        if isinstance(value, Mapping):
            items = {name: item for name, item in value.items() if (*path, name) not in paths}
            return {name: copy(item, (*path, name)) for name, item in items.items()}
        if isinstance(value, list | tuple):
            return [copy(item, (*path, number)) for number, item in enumerate(value)]
        return value

    return {name: copy(item, (name,)) for name, item in schema.items() if (name,) not in paths}


class _Kind(NamedTuple):
    """The values that a keyword may have. `name` says so in an error."""

    name: str
    allows: Callable[[object], bool]


def _is_schema(value: object) -> bool:
    return isinstance(value, Mapping | bool)


def _is_list_of_schemas(value: object) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_schema, value))


def _is_type(value: object) -> bool:
    names = value if isinstance(value, list | tuple) else (value,)
    return bool(names) and all(isinstance(name, str) and name in _TYPES for name in names)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a number of JSON: to Python, a boolean is one too."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return is_number(value) and value >= 0 and (isinstance(value, int) or value.is_integer())


_SCHEMA: Final = _Kind("a schema", _is_schema)
_SCHEMAS: Final = _Kind("a list of schemas", _is_list_of_schemas)
#: Older drafts take a list here, and true or false instead of the other bound.
_ITEMS: Final = _Kind("a schema", lambda value: _is_schema(value) or _is_list_of_schemas(value))
_BOUND: Final = _Kind("a number", lambda value: isinstance(value, int | float))
_NUMBER: Final = _Kind("a number", is_number)
_COUNT: Final = _Kind("a whole number from 0 on", _is_count)
_TEXT: Final = _Kind("text", lambda value: isinstance(value, str))
_SCHEMAS_BY_NAME: Final = _Kind(
    "an object of schemas", lambda value: isinstance(value, Mapping) and all(map(_is_schema, value.values()))
)
_KINDS: Final[Mapping[str, _Kind]] = {
    **dict.fromkeys(
        ("additionalItems", "additionalProperties", "contains", "else", "if", "not", "propertyNames", "then"), _SCHEMA
    ),
    **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties"), _SCHEMA),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _SCHEMAS),
    **dict.fromkeys(_NAMED, _SCHEMAS_BY_NAME),
    **dict.fromkeys(("maximum", "minimum", "multipleOf"), _NUMBER),
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum"), _BOUND),
    **dict.fromkeys(("maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"), _COUNT),
    **dict.fromkeys(("$id", "$schema", "pattern", *_REFS), _TEXT),
    "enum": _Kind("a list of values", lambda value: isinstance(value, list | tuple)),
    "items": _ITEMS,
    "required": _Kind(
        "a list of names",
        lambda value: isinstance(value, list | tuple) and all(isinstance(name, str) for name in value),
    ),
    "type": _Kind("a type, or a list of types", _is_type),
}


def _places(schema: Mapping[str, object]) -> Iterator[_Place]:
    """Yield the schema and every schema in it."""
    waiting: list[tuple[object, Path, str, bool]] = [(schema, (), "", False)]
    while waiting:
        value, path, base, is_named = waiting.pop()
        if isinstance(value, Mapping):
            if not is_named:
                base = urljoin(base, _id(value))
                yield _Place(value, path, base)
            for name, item in value.items():
                if is_named or name not in _DATA:
                    waiting.append((item, (*path, name), base, not is_named and name in _NAMED))
        elif isinstance(value, list | tuple):
            waiting += [(item, (*path, number), base, False) for number, item in enumerate(value)]


def _id(schema: Mapping[str, object]) -> str:
    """Return the URI of a schema that has its own, without a fragment; else nothing."""
    identifier = schema.get("$id")
    return urldefrag(identifier)[0] if isinstance(identifier, str) else ""


def _fragment_id(schema: Mapping[str, object]) -> str | None:
    """Return the anchor in an `$id`, as older drafts write it."""
    identifier = schema.get("$id")
    return identifier[1:] if isinstance(identifier, str) and identifier.startswith("#") else None


def _leads(document: object, url: str, fragment: str, anchors: set[tuple[str, str]]) -> bool:
    """Return whether a fragment, a JSON pointer or an anchor, leads to a place in the document."""
    if not fragment:
        return True
    if not fragment.startswith("/"):
        return (url, fragment) in anchors
    value = document
    for part in fragment[1:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping) and name in value:
            value = value[name]
        elif isinstance(value, list | tuple) and name and set(name) <= _INDEX and int(name) < len(value):
            value = value[int(name)]
        else:
            return False
    return True
