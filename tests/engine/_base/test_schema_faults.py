"""Faults of a JSON Schema are found before a turn begins. jsonschema is the oracle."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft4Validator, Draft7Validator, Draft202012Validator
from jsonschema.exceptions import SchemaError
from jsonschema.protocols import Validator
from pydantic import JsonValue
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from turnwright._base.schema_faults import dangling_refs, invalid_keyword, without_refs

REMOTE = "https://example.com/x.json"


def shown(schema: Mapping[str, object]) -> list[str]:
    return sorted(str(ref) for ref in dangling_refs(schema))


def test_remote_reference_is_reported_with_a_path() -> None:
    schema = {"properties": {"a": {"anyOf": [{"type": "null"}, {"$ref": REMOTE}]}}}
    fault = "is in another document, which is not fetched: copy it into this one, under $defs"
    assert shown(schema) == [f"properties.a.anyOf.1.$ref: '{REMOTE}' {fault}"]
    assert [ref.path for ref in dangling_refs({"$ref": "other.json#/a"})] == [("$ref",)]


def test_a_pointer_and_an_anchor_without_a_target_are_found() -> None:
    schema = {"$defs": {"a": {}}, "allOf": [{"$ref": "#/$defs/b"}, {"$ref": "#here"}, {"$ref": "#/allOf/9"}]}
    assert [ref.is_remote for ref in dangling_refs(schema)] == [False] * 3


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#"}}},
        {"$defs": {"a/b~c": {}}, "$ref": "#/$defs/a~1b~0c"},
        {"$defs": {"é x": {}}, "$ref": "#/$defs/%C3%A9%20x"},
        {"$defs": {"a": {"$anchor": "here"}}, "$ref": "#here"},
        {"$id": REMOTE, "$defs": {"a": {}}, "properties": {"x": {"$ref": f"{REMOTE}#/$defs/a"}}},
        {"$id": "https://a/b", "$defs": {"x": {"$id": "x", "$defs": {"y": {}}, "$ref": "#/$defs/y"}}, "$ref": "x"},
        {"$ref": "http://json-schema.org/draft-07/schema#"},
        {"allOf": [{"type": "object"}], "$ref": "#/allOf/0"},
    ],
)
def test_reference_within_the_document_is_no_fault(schema: dict[str, JsonValue]) -> None:
    assert dangling_refs(schema) == []
    list(Draft202012Validator(schema).iter_errors({}))


@pytest.mark.parametrize("keyword", ["const", "default", "examples", "enum"])
def test_data_are_no_references_and_names_are_no_keywords(keyword: str) -> None:
    assert dangling_refs({keyword: [{"$ref": REMOTE}]}) == []
    assert [ref.path for ref in dangling_refs({"properties": {keyword: {"$ref": REMOTE}}})] == [
        ("properties", keyword, "$ref")
    ]
    assert dangling_refs({"properties": {"$ref": {"type": "string"}}}) == []


def test_deep_schemas_are_read() -> None:
    schema: dict[str, object] = {"$ref": REMOTE}
    for _ in range(5_000):
        schema = {"not": schema}
    assert len(dangling_refs(schema)) == 1


REFS = st.sampled_from(["#", "#/$defs/a", "#/$defs/b", "#/properties/x", "#top", "#no", REMOTE, "https://a/b", "c"])
SCHEMAS: st.SearchStrategy[dict[str, object]] = st.deferred(
    lambda: st.fixed_dictionaries(
        {},
        optional={
            "$ref": REFS,
            "$anchor": st.just("top"),
            "$id": st.sampled_from(["https://a/b", "c"]),
            "$defs": st.dictionaries(st.sampled_from(["a", "b"]), SCHEMAS, max_size=2),
            "properties": st.dictionaries(st.sampled_from(["x", "$ref"]), SCHEMAS, max_size=2),
            "items": SCHEMAS,
            "anyOf": st.lists(SCHEMAS, min_size=1, max_size=2),
        },
    )
)


@given(SCHEMAS)
def test_references_resolve_exactly_as_in_jsonschema(schema: dict[str, object]) -> None:
    ids = json.dumps(schema).count('"$id"')
    if ids > 1:  # two documents of one name: the library takes either
        return
    resource = DRAFT202012.create_resource(schema)
    resolver = Registry().with_resource(resource.id() or "", resource).resolver(resource.id() or "")

    def failing(part: dict[str, object], resolver: object) -> Iterator[str]:
        inner = DRAFT202012.create_resource(part)
        if "$ref" in part:
            try:
                resolver.lookup(part["$ref"])  # type: ignore[attr-defined]
            except Unresolvable:
                yield str(part["$ref"])
        for sub in inner.subresources():
            yield from failing(sub.contents, resolver.in_subresource(sub))  # type: ignore[attr-defined]

    assert sorted(ref.ref for ref in dangling_refs(schema)) == sorted(failing(schema, resolver))


@given(SCHEMAS)
def test_schema_without_dangling_references_gains_no_new_fault(schema: dict[str, object]) -> None:
    refs = dangling_refs(schema)
    mended = without_refs(schema, refs)
    assert not {ref.path for ref in dangling_refs(mended)} & {ref.path for ref in refs}
    assert refs or mended == schema


VALUES: st.SearchStrategy[object] = st.deferred(
    lambda: st.one_of(
        *(st.none(), st.booleans(), st.integers(-1, 2), st.sampled_from([0.5, 2.0, float("inf")])),
        st.sampled_from(["object", "string", "a"]),
        st.lists(st.sampled_from(["object", "null", "a", 1]), max_size=2, unique=True),
        LOOSE,
        st.lists(LOOSE, min_size=1, max_size=2),
    )
)
KEYWORDS = (
    *("type", "properties", "required", "items", "enum", "const", "anyOf", "not", "additionalProperties", "minimum"),
    *("exclusiveMinimum", "maxLength", "multipleOf", "pattern", "$ref", "$defs", "patternProperties", "default"),
)
LOOSE: st.SearchStrategy[dict[str, object]] = st.deferred(
    lambda: st.dictionaries(st.sampled_from(KEYWORDS), VALUES, max_size=3)
)


def _with_refs(draft: type[Validator]) -> Validator:
    """A validator of this draft's schemas. References are checked too, of which older meta-schemas say nothing."""
    meta = draft.META_SCHEMA
    assert isinstance(meta, Mapping)
    refs = {"$ref": {"type": "string"}, "$defs": {"type": "object", "additionalProperties": {"$ref": "#"}}}
    more: dict[str, Any] = {**meta, "properties": {**refs, **meta["properties"]}}
    return draft(more)


DRAFTS = (
    _with_refs(Draft4Validator),
    _with_refs(Draft7Validator),
    Draft202012Validator(Draft202012Validator.META_SCHEMA),
)


@given(LOOSE)
def test_schema_allowed_by_some_draft_has_no_invalid_keyword(schema: dict[str, Any]) -> None:
    if any(draft.is_valid(schema) for draft in DRAFTS):
        assert invalid_keyword(schema) is None


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"type": "any"}, "type: 'any' is not a type, or a list of types"),
        ({"type": []}, "type: [] is not a type, or a list of types"),
        ({"properties": {"a": {"items": {"minimum": "1"}}}}, "properties.a.items.minimum: '1' is not a number"),
        ({"anyOf": [{}, {"required": True}]}, "anyOf.1.required: True is not a list of names"),
        ({"anyOf": {"type": "null"}}, "anyOf: {'type': 'null'} is not a list of schemas"),
        ({"maxLength": 1.5}, "maxLength: 1.5 is not a whole number from 0 on"),
        ({"maxLength": float("nan")}, "maxLength: nan is not a whole number from 0 on"),
        ({"$ref": 5}, "$ref: 5 is not text"),
        ({"$ref": None}, "$ref: None is not text"),
        ({"$defs": None}, "$defs: None is not an object of schemas"),
        ({"enum": "a"}, "enum: 'a' is not a list of values"),
        ({"properties": None}, "properties: None is not an object of schemas"),
    ],
)
def test_invalid_keyword_is_named_with_a_path(schema: dict[str, object], fault: str) -> None:
    assert invalid_keyword(schema) == fault
    with pytest.raises(SchemaError):
        Draft202012Validator.check_schema(schema)


def test_names_and_data_are_no_keywords() -> None:
    assert (
        invalid_keyword({"properties": {"type": {}, "enum": True}, "default": {"type": 5}, "x-note": {"type": 5}})
        is None
    )
    assert invalid_keyword({"enum": [{"type": None}, {"$ref": 5}]}) is None
    deep: dict[str, object] = {"type": "str"}
    for _ in range(5_000):
        deep = {"not": deep}
    assert invalid_keyword(deep) is not None
