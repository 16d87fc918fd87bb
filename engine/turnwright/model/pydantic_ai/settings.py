"""Settings in pydantic-ai's form. No I/O."""

from collections.abc import Iterator
from typing import Final

from pydantic import JsonValue
from pydantic_ai.models import Model

from turnwright.model.capabilities import Capabilities
from turnwright.model.model_settings import ModelSettings
from turnwright.model.settings_mapping import MappedSettings, extra_of, supported

#: The settings that have the same names there.
_SAME: Final = ("temperature", "top_p", "seed", "parallel_tool_calls")
_TIERS: Final = ("auto", "default", "flex", "priority")
_CACHE: Final[dict[str, JsonValue]] = {"auto": True, "5m": "5m", "1h": "1h", "off": False}


def map_pydantic_settings(settings: ModelSettings, model: Model, capabilities: Capabilities) -> MappedSettings:
    """Map settings to those of pydantic-ai, as far as every model behind this one sends them."""
    supported_settings, unsupported = supported(settings, capabilities)
    body: dict[str, JsonValue] = {
        name: getattr(supported_settings, name) for name in _SAME if name in supported_settings.given
    }
    if supported_settings.stop_sequences:
        body["stop_sequences"] = [*supported_settings.stop_sequences]
    if supported_settings.extra_body:
        body["extra_body"] = {
            name: value for name, value in extra_of(supported_settings, ()).items() if value is not None
        }
    if supported_settings.service_tier in _TIERS:
        body["service_tier"] = supported_settings.service_tier
    elif supported_settings.service_tier is not None:
        unsupported["service_tier"] = f"{supported_settings.service_tier!r}: pydantic-ai knows {', '.join(_TIERS)}"
    models = [*models_behind(model)]
    for name in sorted(body.keys() & {name for inner_model in models for name in inner_model.unsupported_settings}):
        del body[name]
        unsupported[name] = "pydantic-ai's adapter does not send it"
    body.update(_thinking(supported_settings, models, unsupported))
    if supported_settings.cache is not None and all(
        _takes(inner_model, supported_settings.cache) for inner_model in models
    ):
        body["cache"] = _CACHE[supported_settings.cache]
    elif supported_settings.cache is not None:
        unsupported["cache"] = f"{supported_settings.cache!r} cannot be requested from this provider"
    return MappedSettings(body, unsupported)


def models_behind(model: Model) -> Iterator[Model]:
    """Yield the models that do the work: the model itself, the one that it wraps, or those of a fallback."""
    inner = getattr(model, "models", None) or [getattr(model, "wrapped", None)]
    inner_models = (
        [inner_model for inner_model in inner if isinstance(inner_model, Model)] if isinstance(inner, list) else []
    )
    for inner_model in inner_models:
        yield from models_behind(inner_model)
    if not inner_models:
        yield model


def _takes(model: Model, cache: str) -> bool:
    """Return whether the policy can be requested. Some providers cache by themselves, without a choice."""
    if cache in ("auto", "off"):
        return cache == "auto" or not model.profile.get("supports_auto_cache")
    return cache in model.profile.get("supported_cache_retentions", ())


def _thinking(settings: ModelSettings, models: list[Model], unsupported: dict[str, str]) -> dict[str, JsonValue]:
    thinking = settings.thinking
    if thinking is None:
        return {}
    if not isinstance(thinking, bool | str):
        unsupported["thinking"] = f"{thinking} tokens: pydantic-ai takes a level of effort, not a budget"
    elif thinking and not any(inner_model.profile.get("supports_thinking") for inner_model in models):
        unsupported["thinking"] = "pydantic-ai knows no thinking of this model"
    else:
        return {"thinking": thinking}
    return {}
