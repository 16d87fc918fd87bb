"""The docstrings below attributes, for those who print them."""

import linecache
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from turnwright import Agent
from turnwright._base.field_docs import attribute_docs, describe_fields
from turnwright_proof.certificates.certificate import AgentSetting


class Shape(BaseModel):
    """A shape."""

    model_config = ConfigDict(json_schema_extra=describe_fields)

    corners: int = 0
    """The number
    of corners."""
    name: str = ""
    size: "Size" = Field(default=None, alias="extent")  # type: ignore[assignment]
    """The size."""
    kinds: ClassVar[int] = 2
    """Not a field."""

    def area(self) -> float:
        """Not an attribute."""
        return 0


class Size(BaseModel):
    """The size."""


class Square(Shape):
    """A shape with four."""

    side: float = 1
    """The length."""


def test_attribute_doc_is_the_text_below_the_attribute() -> None:
    expected = {"corners": "The number\nof corners.", "size": "The size.", "kinds": "Not a field."}
    assert attribute_docs(Shape) == expected
    assert attribute_docs(Square) == {"side": "The length."}, "what is inherited belongs to the other class"


def test_module_without_source_has_no_attribute_docs() -> None:
    namespace: dict[str, Any] = {"__name__": "nowhere"}
    exec('class Made:\n    a: int = 0\n    """Not to be read."""\n', namespace)  # noqa: S102 (code without a file)
    linecache.checkcache()
    assert attribute_docs(namespace["Made"]) == {}
    assert attribute_docs(int) == {}


def test_json_schema_describes_fields_and_inherited_fields() -> None:
    properties = Square.model_json_schema()["properties"]
    assert properties["side"]["description"] == "The length."
    assert properties["corners"]["description"] == "The number\nof corners."
    assert "description" not in properties["name"]


def test_referenced_type_is_described_once() -> None:
    assert "description" not in Shape.model_json_schema()["properties"]["extent"]


def test_schemas_of_agents_and_settings_describe_every_property() -> None:
    assert Agent.model_json_schema()["properties"]["model"]["description"].startswith("The model's id; None means")
    assert all(
        "description" in field_schema for field_schema in AgentSetting.model_json_schema()["properties"].values()
    )
