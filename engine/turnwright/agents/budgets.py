"""How many tool calls a turn may run where nobody says so: by what the agent's tools do to the world."""

from collections.abc import Iterable
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from turnwright._base.field_docs import described
from turnwright.tools.tool import Tool
from turnwright_states import Limits


class ToolClass(StrEnum):
    """What the tools of an agent do, taken together. The names are those of the fields of `Budgets`."""

    READ_ONLY = "read_only"
    WRITING = "writing"
    DEFAULT = "default"


def class_of(tools: Iterable[Tool]) -> ToolClass:
    """The class of an agent with these tools, as each declares itself (`@tool(read_only=...)`).

    One tool that writes makes the agent a writing one; one that does not say makes it a default one. An agent without
    tools can only read.
    """
    declared = {tool.read_only for tool in tools}
    if False in declared:
        return ToolClass.WRITING
    return ToolClass.DEFAULT if None in declared else ToolClass.READ_ONLY


class Budgets(BaseModel):
    """The tool calls that a turn may run, for each class of agents; at least 0, `None` is no limit.

    They hold where neither the agent nor the engine's limits set `tool_calls`. Raises pydantic's `ValidationError` (a
    `ValueError`), naming field and value. Source: DESIGN 4.5, and the constants of BooCode's plan.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, json_schema_extra=described)

    read_only: int | None = 50
    """For an agent all of whose tools only read."""
    writing: int | None = 10
    """For an agent with a tool that writes: what it does wrong is not undone by stopping it later."""
    default: int | None = 50
    """For every other agent: none of its tools is known to write, and of some it is not known what they do."""

    @field_validator("*", mode="before")
    @classmethod
    def _as_limits_do(cls, value: object) -> object:
        try:
            return Limits.model_validate({"tool_calls": value}).tool_calls
        except ValidationError as error:
            raise ValueError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None

    def of(self, tools: ToolClass) -> int | None:
        """The budget of an agent whose tools are of this class."""
        budget: int | None = getattr(self, tools)
        return budget
