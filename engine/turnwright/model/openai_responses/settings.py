"""Settings as fields of a request of the Responses API. No I/O."""

from collections.abc import Collection, Mapping
from typing import Final

from pydantic import JsonValue

from turnwright.model.capabilities import Capabilities
from turnwright.model.model_settings import ModelSettings
from turnwright.model.settings import MappedSettings, extra_of, supported

#: The settings that have the API's own names.
_SAME: Final = ("temperature", "top_p", "parallel_tool_calls", "service_tier")
_MISSING: Final = ("seed", "stop_sequences")
_ON_OFF: Final = {True: "medium", False: "none"}


def map_responses_settings(
    settings: ModelSettings,
    capabilities: Capabilities,
    reserved: Collection[str],
    reasoning: Mapping[str, JsonValue] | None = None,
) -> MappedSettings:
    """Map settings to the fields of a request. `reserved` are the fields that `extra_body` must not contain.

    A level of thinking replaces the effort in `reasoning`, the client's own object. The API caches prompts by itself,
    so `cache` sends nothing: `auto` is what happens anyway. Raises `ConfigError` for a reserved field.
    """
    allowed, unsupported = supported(settings, capabilities)
    given = allowed.given
    body: dict[str, JsonValue] = {name: getattr(allowed, name) for name in _SAME if name in given}
    if allowed.parallel_tool_calls and not capabilities.parallel_tool_calls:
        del body["parallel_tool_calls"]
        unsupported["parallel_tool_calls"] = "the model makes one call at a time"
    unsupported.update(
        dict.fromkeys((name for name in _MISSING if name in given), "the Responses API has no such field")
    )
    thinking = allowed.thinking
    if isinstance(thinking, int) and not isinstance(thinking, bool):
        unsupported["thinking"] = f"{thinking} tokens: the server takes a level of effort, not a budget"
    elif thinking is not None:
        effort = _ON_OFF[thinking] if isinstance(thinking, bool) else thinking
        body["reasoning"] = {**(reasoning or {}), "effort": effort}
    if allowed.cache not in (None, "auto"):
        unsupported["cache"] = f"{allowed.cache!r} cannot be requested: the provider caches by itself"
    return MappedSettings(body | extra_of(settings, reserved), unsupported)
