"""The decisions of hooks and guardrails: plain values, which the journal keeps (docs/rules.md#hooks)."""

from dataclasses import dataclass, field
from typing import TypeAlias

from turnwright.context import JsonObject
from turnwright.model.model_settings import ModelSettings
from turnwright_states import CallStatus


@dataclass(frozen=True, slots=True)
class CallView:
    """A tool call, for a hook or a guardrail. `arguments` are those with which it runs.

    `status` is None before the call has a result, then `ok` or `error`.
    """

    id: str
    tool: str
    arguments: JsonObject
    status: CallStatus | None = None


@dataclass(frozen=True, slots=True)
class ChangeArguments:
    """Run the call with these arguments instead of its own. They are checked against the tool's schema."""

    arguments: JsonObject


@dataclass(frozen=True, slots=True)
class Reject:
    """Do not run the call. The model reads the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class RequireApproval:
    """Ask a person before the call runs, with this question, or a standard one."""

    question: str = ""


@dataclass(frozen=True, slots=True)
class ReturnResult:
    """Give the call this result: before it, so that the tool does not run, or after it, instead of the tool's own.

    `value` is anything that a tool may return.
    """

    value: object


#: The decisions of a `before_tool` hook.
ToolDecision: TypeAlias = ChangeArguments | Reject | RequireApproval | ReturnResult


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """Change the requests of this step.

    `instructions` replace the agent's. `append` are texts that follow the messages, in this step only. `tools` are the
    names of the tools that may be called, out of those that the request has. `settings` override those of the turn.
    `model` names the model that is called instead of the turn's; the engine finds it as it finds that of an agent.
    """

    instructions: str | None = None
    append: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    settings: ModelSettings | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Trip:
    """End the turn as `failed: guardrail`. `message` is for people, and `metadata`, as JSON, for programs."""

    message: str
    metadata: JsonObject = field(default_factory=dict)
