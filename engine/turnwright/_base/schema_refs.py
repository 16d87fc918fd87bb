"""References in a JSON Schema that lead nowhere. They would fail in the middle of a turn, or at the provider."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

#: Keywords whose values are data, not schemas; and those whose values are schemas by names that anybody may choose.
_DATA: Final = frozenset({"const", "default", "enum", "examples"})
_NAMED: Final = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
_REFS: Final = ("$ref", "$dynamicRef", "$recursiveRef")
#: The schemas of JSON Schema itself, which validators know.
_KNOWN: Final = ("https://json-schema.org/", "http://json-schema.org/")
_INDEX: Final = frozenset("0123456789")

Path = tuple[str | int, ...]


class DanglingRef(NamedTuple):
    """A reference to a missing place, or to another document, which nobody fetches. `path` leads to its keyword."""

    path: Path
    ref: str
    is_remote: bool

    def __str__(self) -> str:
        """Return where it is, and what to do."""
        what = (
            "is in another document, which is not fetched: copy it into this one, under $defs"
            if self.is_remote
            else "leads to nothing in this document"
        )
        return f"{'.'.join(map(str, self.path))}: {self.ref!r:.200} {what}"


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
    found: list[DanglingRef] = []
    for place in places:
        for keyword in _REFS:
            ref = place.schema.get(keyword)
            if not isinstance(ref, str):
                continue
            url, fragment = urldefrag(urljoin(place.base, ref))
            is_remote = url not in documents and not url.startswith(_KNOWN)
            if is_remote or (url in documents and not _leads(documents[url], url, unquote(fragment), anchors)):
                found.append(DanglingRef((*place.path, keyword), ref, is_remote))
    return found


def without_refs(schema: Mapping[str, object], refs: Sequence[DanglingRef]) -> dict[str, object]:
    """Return a copy of a schema without these references: any value fits there."""
    paths = {one.path for one in refs}

    def copy(value: object, path: Path) -> object:
        if isinstance(value, Mapping):
            kept = {name: item for name, item in value.items() if (*path, name) not in paths}
            return {name: copy(item, (*path, name)) for name, item in kept.items()}
        if isinstance(value, list | tuple):
            return [copy(item, (*path, number)) for number, item in enumerate(value)]
        return value

    return {name: copy(item, (name,)) for name, item in schema.items() if (name,) not in paths}


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
    own = schema.get("$id")
    return urldefrag(own)[0] if isinstance(own, str) else ""


def _fragment_id(schema: Mapping[str, object]) -> str | None:
    """Return the anchor in an `$id`, as older drafts write it."""
    own = schema.get("$id")
    return own[1:] if isinstance(own, str) and own.startswith("#") else None


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
