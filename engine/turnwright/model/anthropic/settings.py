"""Settings as fields of a request of the Messages API. No I/O.

Source: "Thinking", "Effort", "Prompt caching" and "Service tiers" of Anthropic's documentation.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final

from pydantic import JsonValue

from turnwright.model.capabilities import Capabilities
from turnwright.model.model_settings import ModelSettings
from turnwright.model.settings_mapping import MappedSettings, extra_of, select_supported

#: The smallest budget for thinking that the API accepts. As many tokens are reserved for the answer.
MIN_BUDGET: Final = 1024
#: Claude since Opus 4.7 takes a level of effort instead of a budget, and rejects sampling parameters.
_ADAPTIVE: Final = (
    "claude-fable-*",
    "claude-mythos-*",
    "claude-opus-4-[7-9]*",
    "claude-opus-[5-9]*",
    "claude-sonnet-[5-9]*",
    "claude-haiku-[5-9]*",
)
#: These reject a request that switches thinking off.
_ALWAYS_THINKS: Final = ("claude-fable-*", "claude-mythos-*", "claude-opus-5-5*")
#: This one wants another word for it.
_BETWEEN_TOOLS: Final = "claude-sonnet-5-5*"
_SAMPLING: Final = frozenset({"temperature", "top_p"})
#: The API accepts no other values with thinking.
_THINKING_TEMPERATURE: Final = 1.0
_THINKING_TOP_P: Final = 0.95
_EFFORTS: Final[Mapping[str, str]] = {"minimal": "low"}
#: The budget for each level, and for thinking without a level (`True`).
_BUDGETS: Final[Mapping[bool | str | int, int]] = {
    "minimal": MIN_BUDGET,
    "low": 2048,
    "medium": 8192,
    True: 8192,
    "high": 16_384,
}
#: The marker of the places up to which the provider caches; None for none.
CACHE_CONTROLS: Final[Mapping[str, JsonValue]] = {
    "auto": {"type": "ephemeral"},
    "5m": {"type": "ephemeral", "ttl": "5m"},
    "1h": {"type": "ephemeral", "ttl": "1h"},
    "off": None,
}


def with_claude(defaults: Capabilities, model: str) -> Capabilities:
    """Return the known capabilities of a model at this API."""
    newer = _is(model, *_ADAPTIVE)
    return replace(
        defaults,
        needs_tools_if_history_has_tools=True,
        thinking="adaptive" if newer else "budget",
        unsupported_settings=(_SAMPLING if newer else frozenset()) | {"seed"},
    )


def map_messages_settings(
    settings: ModelSettings, model: str, capabilities: Capabilities, reserved_fields: Collection[str], *, thinks: bool
) -> MappedSettings:
    """Map settings to the fields of a request. `reserved_fields` are the fields that `extra_body` must not contain.

    `thinks` is whether the model thinks if the settings say nothing. The field `thinking` is the one for a reply with
    room for it. `parallel_tool_calls` and `cache` have no fields of their own: the encoder reads them.

    Raises `ConfigError` for a reserved field.
    """
    supported_settings, problems = select_supported(settings, capabilities)
    if settings.seed is not None:
        problems["seed"] = "the Messages API has no seed"
    body: dict[str, JsonValue] = {}
    if supported_settings.thinking is not None:
        thinking = _thinking(supported_settings, model, adaptive=capabilities.thinking == "adaptive")
        if isinstance(thinking, str):
            problems["thinking"] = thinking
        else:
            body.update(thinking)
            thinks = supported_settings.thinking is not False
    body.update(_sampling(supported_settings, problems, thinks=thinks))
    if supported_settings.stop_sequences:
        body["stop_sequences"] = [*supported_settings.stop_sequences]
    if supported_settings.service_tier is not None:
        body["service_tier"] = supported_settings.service_tier
    return MappedSettings(body | extra_of(settings, reserved_fields), problems)


def _thinking(settings: ModelSettings, model: str, *, adaptive: bool) -> dict[str, JsonValue] | str:
    """Return the fields that set thinking, or the reason why it cannot be set."""
    thinking = settings.thinking
    if thinking is None or thinking is False:
        if _is(model, *_ALWAYS_THINKS):
            return "the model always thinks"
        return {"thinking": {"type": "between_tools" if _is(model, _BETWEEN_TOOLS) else "disabled"}}
    if not adaptive:
        return _set_budget(_BUDGETS[thinking] if isinstance(thinking, bool | str) else thinking, settings.max_tokens)
    if not isinstance(thinking, bool | str):
        return f"{thinking} tokens: the model takes a level of effort, not a budget"
    body: dict[str, JsonValue] = {"thinking": {"type": "adaptive"}}
    if isinstance(thinking, str):
        body["output_config"] = {"effort": _EFFORTS.get(thinking, thinking)}
    return body


def _set_budget(budget: int, max_tokens: int | None) -> dict[str, JsonValue] | str:
    if budget < MIN_BUDGET:
        return f"{budget} tokens: a budget has at least {MIN_BUDGET}"
    if max_tokens is not None and max_tokens < 2 * MIN_BUDGET:
        return f"max_tokens is {max_tokens}, and thinking with an answer needs {2 * MIN_BUDGET}"
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _sampling(settings: ModelSettings, problems: dict[str, str], *, thinks: bool) -> dict[str, JsonValue]:
    """Return `temperature` and `top_p` where the API accepts them, and add the reasons where it does not."""
    temperature, top_p = settings.temperature, settings.top_p
    body: dict[str, JsonValue] = {}
    if temperature is not None and temperature > 1:
        problems["temperature"] = f"{temperature:g}: the Messages API accepts at most 1"
    elif temperature is not None and thinks and temperature != _THINKING_TEMPERATURE:
        problems["temperature"] = "a model that thinks accepts no temperature"
    elif temperature is not None:
        body["temperature"] = temperature
    if top_p is not None and body:
        problems["top_p"] = "the model accepts temperature or top_p, not both"
    elif top_p is not None and thinks and top_p < _THINKING_TOP_P:
        problems["top_p"] = f"{top_p:g}: a model that thinks accepts at least {_THINKING_TOP_P:g}"
    elif top_p is not None:
        body["top_p"] = top_p
    return body


def _is(model: str, *patterns: str) -> bool:
    return any(fnmatchcase(model.lower(), pattern) for pattern in patterns)
