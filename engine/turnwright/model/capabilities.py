"""The differences between providers that decide whether a request is valid."""

from dataclasses import dataclass
from typing import Literal

from turnwright.errors import ConfigError

#: The names under which chat completions servers accept the reasoning of an assistant's message.
ReasoningField = Literal["reasoning_content", "reasoning"]
#: The ways to switch thinking: `effort` names a level (`reasoning_effort`); `reasoning` is OpenRouter's object, with a
#: level or a budget; `switch` is on or off (`thinking.type`); `budget` has tokens (Anthropic's `budget_tokens`);
#: `adaptive` has a level (Anthropic's `output_config.effort`).
ThinkingControl = Literal["effort", "reasoning", "switch", "budget", "adaptive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The kinds of requests that a model and its server accept.

    The defaults are those of OpenAI's own API, except for `reasoning_details`. A model has them in an attribute
    `capabilities`; a model without it has the defaults. `model.fit` changes a request so that they allow it;
    `model.known_servers` lists those of public servers.
    """

    #: `tool_choice: none` is understood. Otherwise a call that may not use tools is sent without them. Where they
    #: cannot be left out they stay callable, and the engine rejects the calls (docs/rules.md#concluding).
    supports_tool_choice_none: bool = True
    #: The server rejects a conversation with tool calls unless the tools are defined.
    needs_tools_if_history_has_tools: bool = False
    #: After the instructions, user and assistant must take turns; results of tools count as neither, and the
    #: assistant speaks after them.
    strict_alternation: bool = False
    #: The last message may be the assistant's: the model continues it.
    allows_prefill: bool = False
    #: One reply may ask for several calls. Otherwise such a reply is sent as several, each with one call.
    parallel_tool_calls: bool = True
    #: The most calls in one message of a chat completions request. A reply with more is sent as several messages, each
    #: followed by its results. OpenAI answers 400 to more than 128. None: any number.
    calls_per_message: int | None = 128
    #: The field of an assistant's message that returns the server's reasoning to it. None: reasoning is not returned,
    #: since OpenAI and others answer 400 to an unknown field.
    reasoning_field: ReasoningField | None = None
    #: The server rejects an assistant's message without that field, so it is sent empty where there is no reasoning.
    reasoning_required: bool = False
    #: The `reasoning_details` of a reply are sent back. A server that produces them accepts them. Some other servers
    #: answer 400, when a conversation began at another server of the same model.
    reasoning_details: bool = True
    #: The server holds a text reply to a JSON Schema (`response_format`), also beside tools.
    json_schema_output: bool = False
    #: The form in which thinking is set (`ModelSettings.thinking`). None: it cannot be set.
    thinking: ThinkingControl | None = "effort"
    #: The settings that the server rejects or ignores, by their names in `ModelSettings`. They are not sent.
    unsupported_settings: frozenset[str] = frozenset()
    #: Each reply reports its cost (`Usage.cost`), so a cost limit needs no price. None, as for a model without
    #: `capabilities`: the replies show whether they do, and a turn with a cost limit fails at a reply without a cost.
    reports_cost: bool | None = False


def checked_capabilities(capabilities: Capabilities) -> Capabilities:
    """Return the capabilities. Raises `ConfigError` for another type, which would only fail in the middle of a turn."""
    if not isinstance(capabilities, Capabilities):
        raise ConfigError(f"capabilities must be Capabilities(strict_alternation=True, ...), not {capabilities!r}")
    return capabilities
