"""Settings as fields of a chat completion's request. No I/O."""

from collections.abc import Collection
from typing import Final

from pydantic import JsonValue

from turnwright.model.capabilities import Capabilities, ThinkingControl
from turnwright.model.model_settings import ModelSettings
from turnwright.model.settings_mapping import MappedSettings, extra_of, supported

#: The settings that have the API's own names.
_SAME: Final = ("temperature", "top_p", "seed", "parallel_tool_calls", "service_tier")
_ON_OFF: Final = {True: "medium", False: "none"}


def map_chat_settings(settings: ModelSettings, capabilities: Capabilities, reserved: Collection[str]) -> MappedSettings:
    """Map settings to the fields of a request. `reserved` are the fields that `extra_body` must not contain.

    Chat completions cache prompts by themselves, so `cache` sends nothing: `auto` is what happens anyway. Raises
    `ConfigError` for a reserved field.
    """
    supported_settings, unsupported = supported(settings, capabilities)
    set_names = supported_settings.given
    body: dict[str, JsonValue] = {name: getattr(supported_settings, name) for name in _SAME if name in set_names}
    if supported_settings.parallel_tool_calls and not capabilities.parallel_tool_calls:
        del body["parallel_tool_calls"]
        unsupported["parallel_tool_calls"] = "the model makes one call at a time"
    if supported_settings.stop_sequences:
        body["stop"] = [*supported_settings.stop_sequences]
    if supported_settings.thinking is not None and capabilities.thinking is not None:
        thinking = map_thinking(supported_settings.thinking, capabilities.thinking)
        if isinstance(thinking, str):
            unsupported["thinking"] = thinking
        else:
            body.update(thinking)
    if supported_settings.cache not in (None, "auto"):
        unsupported["cache"] = f"{supported_settings.cache!r} cannot be requested: the provider caches by itself"
    return MappedSettings(body | extra_of(settings, reserved), unsupported)


def map_thinking(thinking: bool | str | int, control: ThinkingControl) -> dict[str, JsonValue] | str:
    """Return the fields that set thinking, or the reason why this control cannot."""
    switched, budget = isinstance(thinking, bool), not isinstance(thinking, bool | str)
    if control == "reasoning":
        kind = "max_tokens" if budget else "enabled" if switched else "effort"
        return {"reasoning": {kind: thinking}}
    if control == "switch":
        if not switched:
            return f"{thinking!r}: the server can only switch it on or off (True or False)"
        return {"thinking": {"type": "enabled" if thinking else "disabled"}}
    if budget:
        return f"{thinking} tokens: the server takes a level of effort, not a budget"
    return {"reasoning_effort": _ON_OFF[thinking] if isinstance(thinking, bool) else thinking}
