"""The differences between providers that decide whether a request is valid, and those of well-known ones."""

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final, Literal, TypedDict

from turnwright.errors import ConfigError, need_kind

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
    `known_capabilities` has those of public servers.
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
    #: In the Messages API of such a server, each reply begins with its thinking, although nothing signed it.
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


class _Changes(TypedDict, total=False):
    supports_tool_choice_none: bool
    needs_tools_if_history_has_tools: bool
    strict_alternation: bool
    allows_prefill: bool
    parallel_tool_calls: bool
    reasoning_field: ReasoningField | None
    reasoning_required: bool
    reasoning_details: bool
    thinking: ThinkingControl | None
    unsupported_settings: frozenset[str]
    json_schema_output: bool
    reports_cost: bool


# Mistral's API and its templates: "Unexpected role 'user' after role 'tool'", "After the optional system message,
# conversation roles must alternate". The rule belongs to the model, also behind Azure, vLLM, llama.cpp, OpenRouter.
_MISTRAL: Final[_Changes] = {"strict_alternation": True}
# Gemma 1 to 3, their templates: "Conversation roles must alternate user/assistant/user/assistant/...".
_GEMMA: Final[_Changes] = {"strict_alternation": True}
# Llama 3.1 to 3.3, their templates (vLLM, NIM, Nebius, llama.cpp): "This model only supports single tool-calls at
# once!", from then on to every request of the conversation.
_LLAMA: Final[_Changes] = {"parallel_tool_calls": False}
# Behind LiteLLM: "Anthropic doesn't support tool calling without `tools=` param specified".
_CLAUDE: Final[_Changes] = {"needs_tools_if_history_has_tools": True}
# Converse: "The toolConfig field must be defined when using toolUse and toolResult content blocks"; its tool choices
# are auto, any and one tool.
_BEDROCK: Final[_Changes] = {"needs_tools_if_history_has_tools": True, "supports_tool_choice_none": False}
# "The `reasoning_content` in the thinking mode must be passed back to the API", also where it is empty; without
# thinking it is ignored. (The first deepseek-reasoner refused it; the API no longer serves it.)
_DEEPSEEK: Final[_Changes] = {
    "reasoning_field": "reasoning_content",
    "reasoning_required": True,
    "thinking": "switch",
}
# "thinking is enabled but reasoning_content is missing in assistant tool call message"; an empty one will do.
_KIMI: Final[_Changes] = {"reasoning_field": "reasoning_content", "reasoning_required": True, "thinking": "switch"}
# Not required, but recommended by their makers, because interleaved thinking continues from it.
_GLM: Final[_Changes] = {"reasoning_field": "reasoning_content", "thinking": "switch"}
# They send no `reasoning_details`, and reject a message with an unknown field: "Unknown parameter", "property is
# unsupported", "Extra inputs are not permitted".
_NO_DETAILS: Final[_Changes] = {"reasoning_details": False}
# "Unsupported parameter: 'temperature' is not supported with this model", while it reasons; likewise `top_p`, `stop`.
_REASONS: Final[_Changes] = {"unsupported_settings": frozenset({"temperature", "top_p", "stop_sequences"})}
# "Unrecognized request argument supplied: reasoning_effort".
_NEVER_THINKS: Final[_Changes] = {"thinking": None}
# It calls the seed `random_seed`, and answers 422 to an unknown field.
_MISTRAL_API: Final[_Changes] = {"thinking": None, "unsupported_settings": frozenset({"seed", "service_tier"})}
_OPENAI_MODELS: Final = (
    *((model, _REASONS) for model in ("o[134]*", "gpt-5", "gpt-5-*", "gpt-5.[5-9]*", "gpt-[6-9]*")),
    *((model, _NEVER_THINKS) for model in ("gpt-3*", "gpt-4*", "chatgpt-*")),
)
# `response_format` with a JSON Schema, also beside tools.
_OPENAI: Final[_Changes] = {"json_schema_output": True, **_NO_DETAILS}

#: host, with its port where a pattern has one; model; what differs from OpenAI's own API. Both in lower case. A row
#: applies if both of its patterns match; later rows override earlier ones. It exists only if a server or a chat
#: template is known to reject the default, or its documentation asks for another way.
_ROWS: Final[tuple[tuple[str, str, _Changes], ...]] = (
    # Models, wherever they are served.
    ("*", "*mistral*", _MISTRAL),
    ("*", "*ministral*", _MISTRAL),
    ("*", "*mixtral*", _MISTRAL),
    ("*", "*pixtral*", _MISTRAL),
    ("*", "*magistral*", _MISTRAL),
    ("*", "*codestral*", _MISTRAL),
    ("*", "*devstral*", _MISTRAL),
    ("*", "*gemma-[23]*", _GEMMA),
    ("*", "*gemma[23]*", _GEMMA),
    ("*", "*gemma-7b*", _GEMMA),
    ("*", "*llama-3[._-][123]*", _LLAMA),
    ("*", "*llama3[._-][123]*", _LLAMA),
    ("*", "*claude*", _CLAUDE),
    ("*", "*anthropic.claude*", _BEDROCK),  # Bedrock's own ids, whatever gateway is before it
    ("*", "*amazon.nova*", _BEDROCK),
    ("*", "bedrock/*", _BEDROCK),
    # Servers.
    ("api.openai.com", "*", _OPENAI),
    ("*.openai.azure.com", "*", _OPENAI),
    *((host, model, changes) for host in ("api.openai.com", "*.openai.azure.com") for model, changes in _OPENAI_MODELS),
    ("api.mistral.ai", "*", {**_MISTRAL, **_NO_DETAILS, **_MISTRAL_API}),
    ("codestral.mistral.ai", "*", {**_MISTRAL, **_NO_DETAILS, **_MISTRAL_API}),
    # "After the (optional) system message(s), user and assistant roles should be alternating"; it has no tools.
    ("api.perplexity.ai", "*", {"strict_alternation": True, "supports_tool_choice_none": False}),
    ("bedrock*.amazonaws.com", "*", _BEDROCK),
    # Its page on tools has several calls at once for the Llamas that it serves.
    ("api.groq.com", "*llama*", {"parallel_tool_calls": True}),
    ("api.groq.com", "*", _NO_DETAILS),
    # "property 'reasoning_content' is unsupported": what they send as `reasoning` they take as `reasoning`.
    ("api.groq.com", "*gpt-oss*", {"reasoning_field": "reasoning"}),
    ("api.cerebras.ai", "*", {"reasoning_field": "reasoning", **_NO_DETAILS}),
    ("openrouter.ai", "*", {"reasoning_field": "reasoning", "thinking": "reasoning", "reports_cost": True}),
    ("api.deepseek.com", "*", _DEEPSEEK),
    ("api.moonshot.ai", "*", _KIMI),
    ("api.moonshot.cn", "*", _KIMI),
    ("api.kimi.com", "*", _KIMI),
    ("api.z.ai", "*", _GLM),
    ("open.bigmodel.cn", "*", _GLM),
    ("api.fireworks.ai", "*", {"reasoning_field": "reasoning_content"}),
    # No tool choice among the parameters that it documents.
    ("api.minimax.io", "*", {"supports_tool_choice_none": False}),
    ("api.minimaxi.com", "*", {"supports_tool_choice_none": False}),
    # Ollama reads no tool choice: with `none`, calls come all the same. Known by its port.
    ("*:11434", "*", {"supports_tool_choice_none": False}),
    ("ollama.com", "*", {"supports_tool_choice_none": False}),
)


def known_capabilities(host: str, model: str) -> Capabilities:
    """Return the known capabilities of a model: `host` with or without `:port`, `model` as that server names it.

    Unknown models have the defaults. Pass `capabilities=` to a client to override the table.

    Raises `ConfigError` for a model that is not text.
    """
    need_kind("model", model, str, "the model's id")
    host, model = host.lower(), model.lower()
    capabilities = Capabilities()
    for host_pattern, model_pattern, changes in _ROWS:
        where = host if ":" in host_pattern else host.partition(":")[0]
        if fnmatchcase(where, host_pattern) and fnmatchcase(model, model_pattern):
            capabilities = replace(capabilities, **changes)
    return capabilities
