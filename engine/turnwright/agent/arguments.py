"""The arguments of `Agent`, for type checkers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from turnwright.context import GuardrailBase, HooksBase
from turnwright.model.model_settings import ModelSettings
from turnwright_states import Limits
from turnwright_states.limits import Concluding, DoomCompare, DoomResponse, StallResponse

from .fields import Compact, Mode, OutputMode, ToolsFunction

if TYPE_CHECKING:
    from turnwright.rules import Rule, RuleSet


class BudgetFields(TypedDict, total=False):
    """A budget as a mapping. See `Agent.budget`."""

    tool_calls: int | None
    tokens: int | None
    cost: float | None
    seconds: float | None


class AgentFields(TypedDict, total=False):
    """The arguments of `Agent` besides its name that say nothing about its dependencies or its answer. See there."""

    description: str
    mode: Mode
    template: bool
    steps: int | None
    budget: int | Limits | BudgetFields | None
    tools: Sequence[str] | None
    model: str | None
    model_settings: ModelSettings | None
    rules: "Sequence[Rule | RuleSet]"
    conclude_prompt: str | None
    compaction: Compact | None
    repeatable_steps: bool
    concluding: Concluding
    max_calls_per_step: int
    tool_timeout: float | None
    doom_threshold: int | None
    doom_compare: DoomCompare
    doom_response: DoomResponse
    nudges: int
    stall_errors: int | None
    stall_rounds: int | None
    stall_response: StallResponse
    idle_steps: int | None
    max_retries: int
    output_retries: int
    output_mode: OutputMode
    max_pauses: int
    conclude_seconds: float
    conclude_tokens: int


class PlainAgentFields(AgentFields, total=False):
    """The arguments of an agent that needs no dependencies."""

    instructions: str
    hooks: Sequence[HooksBase]
    guardrails: Sequence[GuardrailBase]
    prepare_tools: ToolsFunction[object] | None
